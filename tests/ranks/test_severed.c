/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A peer that stands still while the transport holds memory of ours, for its bytes to land in or
 * for ours to be sent from: the call ends by its deadline, after the peer was severed; then the
 * peer is lost for everybody: another communicator's call fails at once, and finalize is quick.
 */
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "ranks.h"

#define DEADLINE 1500000000ull
#define AT_ONCE  700000000ull
#define COUNT    50000
#define SHORT    300

/* Of this thread's transport; only rank 0 holds anything. */
static _Thread_local struct {
    bool lands, sends; /* which memory is held */
    bool holds, severed;
    uint64_t cookie, tag;
} held;

static int held_recv(halay_transport_t *t, uint64_t tag, void *buffer, size_t bytes,
                     uint64_t cookie)
{
    if (held.lands && !held.holds) {
        held.holds = true;
        held.cookie = cookie;
        held.tag = tag;
        return HALAY_OK;
    }
    return halay_transport_v7_inproc.recv(t, tag, buffer, bytes, cookie);
}

static int held_withdraw(halay_transport_t *t, uint64_t tag)
{
    if (held.lands && held.holds && tag == held.tag && held.cookie) /* its bytes are landing */
        return HALAY_INPROGRESS;
    return halay_transport_v7_inproc.withdraw(t, tag);
}

static int held_send(halay_transport_t *t, halay_ep_t *ep, uint64_t tag, const void *header,
                     size_t header_bytes, const void *payload, size_t bytes, uint64_t cookie)
{
    if (held.sends && held.holds)
        return held.severed ? HALAY_EPEER : HALAY_EAGAIN;
    if (held.sends && bytes >= SHORT) {
        held.holds = true;
        held.cookie = cookie;
        return HALAY_INPROGRESS;
    }
    return halay_transport_v7_inproc.send(t, ep, tag, header, header_bytes, payload, bytes, cookie);
}

static void held_sever(halay_transport_t *t, halay_ep_t *ep)
{
    CHECK(held.holds && !held.severed, "severed without need, or twice");
    held.severed = true;
    halay_transport_v7_inproc.sever(t, ep);
}

static int held_poll(halay_transport_t *t, halay_event_t events[], int max)
{
    if (!held.severed || !held.cookie)
        return halay_transport_v7_inproc.poll(t, events, max);
    events[0] = (halay_event_t){.kind = held.lands ? HALAY_EVENT_LANDED : HALAY_EVENT_SENT,
                                .status = HALAY_EPEER,
                                .cookie = held.cookie};
    held.cookie = 0;
    return 1;
}

static atomic_int over;

static void nap(uint64_t ns)
{
    struct timespec ts = {(time_t)(ns / 1000000000ull), (long)(ns % 1000000000ull)};
    nanosleep(&ts, NULL);
}

static void survive(struct rank *r, halay_comm_t *other, bool lands)
{
    static int32_t in[COUNT], out[COUNT];
    const size_t count = lands ? COUNT : SHORT;
    halay_verdict_t v = {.size = sizeof(v)};
    uint64_t begin = ranks_now_ns();
    held.lands = lands;
    held.sends = !lands;
    int rc = halay_allreduce(in, out, count, HALAY_INT32, HALAY_SUM, r->world);
    CHECK(rc == HALAY_ETIMEOUT && held.severed, "it ends with %s", halay_strerror(rc));
    CHECK(ranks_now_ns() - begin < DEADLINE + 3000000000ull, "after %.1f s",
          (double)(ranks_now_ns() - begin) * 1e-9);
    begin = ranks_now_ns();
    rc = halay_allreduce(in, out, 1, HALAY_INT32, HALAY_SUM, other);
    CHECK(rc == HALAY_EPEER && ranks_now_ns() - begin < AT_ONCE,
          "the other communicator: %s after %.1f s", halay_strerror(rc),
          (double)(ranks_now_ns() - begin) * 1e-9);
    CHECK(!halay_comm_verdict(other, &v) && v.rank == 1, "it blames %d", v.rank);
    begin = ranks_now_ns();
    CHECK(!halay_finalize(r->context), "finalize");
    CHECK(ranks_now_ns() - begin < AT_ONCE, "finalize took %.1f s",
          (double)(ranks_now_ns() - begin) * 1e-9);
}

static void one(struct rank *r)
{
    const bool *lands = r->arg;
    halay_comm_t *other;
    int32_t in = 1, out;
    CHECK(!halay_comm_dup(r->world, &other), "a second communicator");
    CHECK(!halay_allreduce(&in, &out, 1, HALAY_INT32, HALAY_SUM, r->world), "world");
    CHECK(!halay_allreduce(&in, &out, 1, HALAY_INT32, HALAY_SUM, other), "other");
    if (r->rank == 0) {
        survive(r, other, *lands);
        atomic_store(&over, 1);
        return;
    }
    while (!atomic_load(&over))
        nap(1000000);
    halay_finalize(r->context);
}

int main(void)
{
    halay_transport_ops_t holding = halay_transport_v7_inproc;
    const halay_inproc_faults_t faults = {.seed = 4, .hide_capabilities = HALAY_CAN_PUT};
    holding.recv = held_recv;
    holding.withdraw = held_withdraw;
    holding.send = held_send;
    holding.sever = held_sever;
    holding.poll = held_poll;
    for (int lands = 0; lands < 2; lands++) {
        struct ranks_options o = {.nranks = 2,
                                  .transport = &holding,
                                  .faults = &faults,
                                  .deadline_ns = DEADLINE,
                                  .keep = true};
        bool arg = lands;
        atomic_store(&over, 0);
        ranks_run(&o, one, &arg);
        printf("%s: the others are told\n", lands ? "lands" : "sends");
    }
    return 0;
}
