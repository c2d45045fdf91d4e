/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_early.c - messages of a communicator that this rank has not made yet: what fits is there
 * when it is made; where there was too much, calls on it fail on all ranks with one verdict that
 * says so, and others are good.
 */
#include <string.h>

#include "ranks.h"
#include "run/run.h"
#include "wire/match.h"

enum { BYTES = 65536, MIB = 1 << 20 };

static uint64_t ids[100]; /* of rank 0's communicators */

static void meet(struct rank *r)
{
    struct ranks_board *b = r->arg;
    pthread_barrier_wait(&b->barrier);
}

/* As if `from` had sent so much of a communicator. */
static void flood(struct rank *r, uint64_t id, int from, size_t bytes)
{
    const struct hly_header h = {
        .comm = id, .sequence = 5, .from = (uint32_t)from, .kind = HLY_EAGER};
    char message[sizeof(h) + BYTES] = {0};
    const halay_event_t event = {.kind = HALAY_EVENT_MESSAGE,
                                 .peer = hly_peer_id(r->context, from),
                                 .data = message,
                                 .bytes = sizeof(message)};
    memcpy(message, &h, sizeof(h));
    hly_lock(r->context);
    for (size_t sent = 0; sent < bytes; sent += BYTES)
        hly_wire_take(r->context, &r->context->transports[0], &event);
    hly_unlock(r->context);
}

static size_t kept(struct rank *r)
{
    size_t bytes = 0, n = 0;
    hly_lock(r->context);
    for (struct hly_link *l = r->context->orphans.next; l != &r->context->orphans; l = l->next, n++)
        bytes += sizeof(struct hly_unexpected) + HLY_OF(l, struct hly_unexpected, link)->bytes;
    CHECK(bytes == r->context->orphan_bytes && n == r->context->norphans, "miscounted");
    hly_unlock(r->context);
    return bytes;
}

static void good(struct rank *r, halay_comm_t *comm)
{
    int64_t x = r->rank, sum = 0;
    int rc = halay_allreduce(&x, &sum, 1, HALAY_INT64, HALAY_SUM, comm);
    CHECK(!rc && sum == r->nranks * (r->nranks - 1) / 2, "%s", halay_strerror(rc));
}

static void bad(struct rank *r, halay_comm_t *comm)
{
    struct ranks_board *b = r->arg;
    halay_verdict_t v = {.size = sizeof(v)};
    int64_t x = r->rank, sum = 0;
    int rc = halay_allreduce(&x, &sum, 1, HALAY_INT64, HALAY_SUM, comm);
    CHECK(rc == HALAY_ENOMEM && !halay_comm_verdict(comm, &v), "%s", halay_strerror(rc));
    CHECK(v.rank == r->nranks - 1 && strstr(v.text, "before this rank made"), "%s", v.text);
    memcpy(b->text[r->rank], v.text, sizeof(v.text));
    meet(r);
    CHECK(!strcmp(b->text[r->rank], b->text[0]), "%s\n%s", b->text[r->rank], b->text[0]);
}

static halay_comm_t *dup(struct rank *r)
{
    halay_comm_t *comm;
    CHECK(!halay_comm_dup(r->world, &comm), "dup");
    return comm;
}

/* All that has come for communicators to be made comes to be as old as that. */
static void age(struct rank *r, uint64_t by_ns)
{
    hly_lock(r->context);
    for (struct hly_link *l = r->context->orphans.next; l != &r->context->orphans; l = l->next)
        HLY_OF(l, struct hly_unexpected, link)->came_ns -= by_ns;
    r->context->lost_ns -= by_ns;
    hly_unlock(r->context);
}

/* What nobody waits for any more makes room, and nobody is told of it. */
static void stale(struct rank *r)
{
    const uint64_t deadline_ns = r->context->settings.deadline_ns;
    const halay_peer_id_t first = hly_peer_id(r->context, 0);
    flood(r, 77, 0, 12 * MIB);
    age(r, deadline_ns);
    flood(r, 78, 1, 1);
    CHECK(kept(r) >= 12 * MIB && hly_orphan_from(r->context, first), "it is not so old");
    age(r, deadline_ns);
    CHECK(!hly_orphan_from(r->context, first), "it is old");
    flood(r, 79, 1, 1);
    CHECK(kept(r) < MIB, "%zu bytes", kept(r));
    for (uint64_t id = 1000; id < 1100; id++) /* more than are known one by one */
        flood(r, id, 0, 17 * MIB);
    CHECK(hly_orphan_lost(r->context, 1) && hly_orphan_lost(r->context, 1000), "all are lost");
    age(r, 3 * deadline_ns);
    flood(r, 80, 1, 1);
    CHECK(kept(r) < MIB && !hly_orphan_lost(r->context, 1) && !hly_orphan_lost(r->context, 1000),
          "that is past");
    age(r, 3 * deadline_ns);
    CHECK(!halay_comm_set_deadline(r->world, 10 * deadline_ns), "a longer one");
    flood(r, 81, 0, 12 * MIB);
    age(r, 3 * deadline_ns);
    flood(r, 82, 1, 1);
    CHECK(kept(r) >= 12 * MIB, "a call may still wait for what this rank will make");
    age(r, 20 * deadline_ns);
    flood(r, 83, 1, 1);
    CHECK(kept(r) < MIB && !halay_comm_set_deadline(r->world, deadline_ns), "%zu bytes", kept(r));
    age(r, 30 * deadline_ns);
    flood(r, ids[0], 0, 1); /* one that will be made */
    age(r, 3 * deadline_ns);
}

/* The last rank makes its communicators late. */
static void all(struct rank *r)
{
    enum { COMMS = 6 };
    const bool late = r->rank == r->nranks - 1;
    halay_comm_t *comm[COMMS];
    for (int i = 0; i < COMMS && !late; i++) {
        comm[i] = dup(r);
        if (r->rank == 0)
            ids[i] = comm[i]->id;
    }
    meet(r);
    if (late) {
        stale(r);
        flood(r, ids[0], 0, 12 * MIB);
        CHECK(kept(r) >= 12 * MIB, "it fits");
        flood(r, ids[1], 0, 100 * MIB);
        CHECK(kept(r) <= 16 * MIB, "%zu bytes of one rank", kept(r));
        flood(r, ids[2], 1, 10 * MIB); /* the other's share is its own */
        CHECK(kept(r) > 24 * MIB, "%zu bytes", kept(r));
        for (int from = 1; from < r->nranks - 1; from++)
            flood(r, ids[3], from, 100 * MIB);
        CHECK(kept(r) <= 64 * MIB, "%zu bytes in all", kept(r));
        for (int i = 0; i < COMMS; i++)
            comm[i] = dup(r);
        CHECK(comm[0]->id == ids[0] && kept(r) == 0, "%zu bytes are left", kept(r));
    }
    meet(r);
    bad(r, comm[1]);
    bad(r, comm[3]);
    bad(r, comm[1]); /* and stays so */
    for (int i = 0; i < COMMS; i++) {
        if (i >= 4)
            good(r, comm[i]);
        meet(r);
    }
    good(r, r->world);
}

int main(void)
{
    struct ranks_board board;
    struct ranks_options o = {.nranks = 7};
    setenv("HALAY_DEBUG", "error", 1); /* the failures here are wanted */
    pthread_barrier_init(&board.barrier, NULL, 7);
    ranks_run(&o, all, &board);
    pthread_barrier_destroy(&board.barrier);
    return 0;
}
