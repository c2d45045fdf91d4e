/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A wait for a device that has a descriptor: it sleeps till the work is done, and neither wakes
 * every millisecond nor sleeps for longer than that. Work that another thread launches while one
 * sleeps is waited for, too.
 */
#include <stdatomic.h>
#include <string.h>

#include <halay/local.h>

#include "device/device_builtin.h"
#include "ranks.h"

#define CALLS   10
#define COUNT   1000
#define SOON_NS 900000000ull /* the longest sleep is 1 s */

static halay_counters_t counters_of(struct rank *r)
{
    halay_counters_t c = {.size = sizeof(c)};
    CHECK(!halay_context_counters(r->context, &c), "counters");
    return c;
}

static void wait_for_calls(struct rank *r)
{
    int32_t in[COUNT], out[COUNT];
    for (int i = 0; i < COUNT; i++)
        in[i] = i + r->rank;
    const uint64_t slept = counters_of(r).sleeps;
    for (int call = 0; call < CALLS; call++) {
        const uint64_t start = ranks_now_ns();
        memset(out, 0, sizeof(out));
        CHECK(!halay_allreduce(in, out, COUNT, HALAY_INT32, HALAY_SUM, r->world), "allreduce");
        CHECK(ranks_now_ns() - start < SOON_NS, "call %d: a sleep has missed its work", call);
        for (int i = 0; i < COUNT; i++)
            CHECK(out[i] == r->nranks * i + r->nranks * (r->nranks - 1) / 2, "element %d", i);
    }
    const uint64_t sleeps = counters_of(r).sleeps - slept;
    if (r->nranks > 1)
        return; /* who shares a processor on a busy machine yields for that long */
    CHECK(sleeps > 0, "it was never slept");
    CHECK(sleeps <= 2 * CALLS, "%llu sleeps in %d calls", (unsigned long long)sleeps, CALLS);
}

/* ---------------------------------------------------------------- two threads */

struct sleeper {
    struct rank *rank;
    atomic_bool ends;
};

static void *sleep_on(void *arg)
{
    struct sleeper *s = arg;
    while (!atomic_load(&s->ends))
        CHECK(!halay_context_progress(s->rank->context, 2000000000ull), "progress");
    return NULL;
}

/* This thread only posts; the one that is asleep has to see the end of the work. */
static void post_while_asleep(struct rank *r)
{
    int32_t in[COUNT] = {0}, out[COUNT];
    struct sleeper s = {.rank = r};
    halay_request_t *request;
    pthread_t thread;
    CHECK(!halay_allreduce(in, out, COUNT, HALAY_INT32, HALAY_SUM, r->world), "the first");
    const halay_counters_t before = counters_of(r);
    CHECK(!pthread_create(&thread, NULL, sleep_on, &s), "thread");
    while (counters_of(r).sleeps == before.sleeps)
        sched_yield();
    const uint64_t start = ranks_now_ns();
    CHECK(!halay_iallreduce(in, out, COUNT, HALAY_INT32, HALAY_SUM, r->world, &request), "post");
    while (counters_of(r).operations == before.operations)
        CHECK(ranks_now_ns() - start < SOON_NS, "the sleeper does not know of the work");
    CHECK(!halay_request_wait(request), "wait");
    atomic_store(&s.ends, true);
    halay_context_wake(r->context);
    pthread_join(thread, NULL);
}

/* Moves that belong to no call. */
static void wait_for_moves(struct rank *r)
{
    int32_t in[COUNT], out[COUNT];
    const uint64_t slept = counters_of(r).sleeps;
    const halay_move_t move = {.dst = out,
                               .src = in,
                               .count = COUNT,
                               .type = HALAY_INT32,
                               .direction = HALAY_WITHIN,
                               .factor = 1};
    for (int i = 0; i < CALLS; i++) {
        const uint64_t start = ranks_now_ns();
        memset(in, i + 1, sizeof(in));
        CHECK(!halay_local_moves(r->context, HALAY_MEMORY_HOST, &move, 1, 10 * SOON_NS), "moves");
        CHECK(ranks_now_ns() - start < SOON_NS, "move %d: a sleep has missed its end", i);
        CHECK(!memcmp(in, out, sizeof(in)), "move %d", i);
    }
    CHECK(counters_of(r).sleeps > slept, "it was never slept");
}

int main(void)
{
    struct hly_device_late_arg arg = {.delay_us_max = 30000};
    struct ranks_options o = {.device = &hly_device_late, .device_arg = &arg};
    for (int n = 1; n <= 4; n++)
        for (int shm = 0; shm < 2; shm++) {
            o.nranks = n;
            o.shm = shm;
            ranks_run(&o, wait_for_calls, NULL);
        }
    o.nranks = 1;
    ranks_run(&o, post_while_asleep, NULL);
    ranks_run(&o, wait_for_moves, NULL);
    return 0;
}
