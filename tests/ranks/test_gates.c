/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls of group steps that return when they are posted (docs/decisions/streams.md#0066), over the
 * doubles of NCCL and of CUDA's driver: their gates are opened by the GPU's stream, behind the
 * collective, and neither the program's thread nor ours is in the way of the result. A chain of
 * calls, each on the result of the one before; averages, which open theirs behind the division;
 * calls that differ; a collective that hangs until it is given up, after which the same gates serve
 * again; a rank that dies with many calls under way.
 */
#include <string.h>

#include "double/cuda/calls.h"
#include "double/nccl/double.h"
#include "lines.h"

enum { RANKS = 3, COUNT = 500, CALLS = 60, FLYING = 10 };
#define BYTES    (COUNT * sizeof(int32_t))
#define DEADLINE 2000000000ull

static pthread_barrier_t barrier;

struct data {
    struct line line;
    uint64_t at;
    int32_t *made, *seen; /* pinned; seen: of each call */
};

static void meet(void)
{
    pthread_barrier_wait(&barrier);
}

/* All that stands in the stream is done. Waits for nothing of CUDA's. */
static void await(struct data *d)
{
    static const struct timespec pause = {.tv_nsec = 200000};
    const uint64_t begin = ranks_now_ns();
    while (!line_is_done(&d->line)) {
        CHECK(ranks_now_ns() - begin < 15 * DEADLINE, "the stream stands");
        nanosleep(&pause, NULL);
    }
}

static void set(struct rank *r, struct data *d, uint64_t flags)
{
    halay_stream_t s = stream_of(&d->line);
    s.flags = flags;
    CHECK(!halay_comm_stream(r->world, &s), "stream");
}

/* The sum, in place. */
static int call(struct rank *r, const struct data *d, size_t count, halay_op_t op)
{
    return halay_allreduce(HALAY_IN_PLACE, (void *)(uintptr_t)d->at, count, HALAY_INT32, op,
                           r->world);
}

static void start(struct data *d)
{
    for (int i = 0; i < COUNT; i++)
        d->made[i] = i + 1;
    put(&d->line, (void *)(uintptr_t)d->at, d->made, BYTES, NULL);
}

static void look(struct data *d, int c)
{
    get(&d->line, d->seen + (size_t)c * COUNT, (void *)(uintptr_t)d->at, BYTES);
}

/* What a chain of so many sums has made of 1. */
static int32_t power(struct rank *r, int calls)
{
    uint32_t n = 1;
    for (int c = 0; c < calls; c++)
        n *= (uint32_t)r->nranks;
    return (int32_t)n;
}

static void check(const struct data *d, int c, int32_t factor)
{
    for (int i = 0; i < COUNT; i++)
        CHECK(d->seen[c * COUNT + i] == (int32_t)((uint32_t)factor * (uint32_t)(i + 1)),
              "call %d, element %d: %d", c, i, d->seen[c * COUNT + i]);
}

/* Makes so many calls that wait. */
static void take(struct rank *r, struct data *d, int calls)
{
    line_make(&d->line, r->rank);
    enter(&d->line);
    CHECK(!cuMemAlloc_v2(&d->at, BYTES) &&
              !cuMemHostAlloc((void **)&d->made, BYTES, HLY_CU_PORTABLE) &&
              !cuMemHostAlloc((void **)&d->seen, CALLS * BYTES, HLY_CU_PORTABLE),
          "memory");
    leave();
    set(r, d, 0);
    for (int i = 0; i < calls; i++)
        CHECK(!call(r, d, COUNT, HALAY_SUM), "call %d", i);
    set(r, d, HALAY_STREAM_RETURNS);
    meet();
}

static void drop(struct rank *r, struct data *d)
{
    meet();
    enter(&d->line);
    CHECK(!cuMemFree_v2(d->at) && !cuMemFreeHost(d->made) && !cuMemFreeHost(d->seen), "free");
    leave();
    line_drop(&d->line, r->rank);
}

static void chain_of(struct rank *r, struct data *d, int calls)
{
    start(d);
    for (int c = 0; c < calls; c++) {
        CHECK(!call(r, d, COUNT, HALAY_SUM), "call %d", c);
        look(d, c);
    }
    await(d);
    for (int c = 0; c < calls; c++)
        check(d, c, power(r, c + 1));
}

/* The streams have opened all gates, and nothing has waited for a stream or an event. */
static void chain(struct rank *r)
{
    struct data d;
    take(r, &d, 3);
    const struct cuda_double_counts before = cuda_double_counts();
    meet();
    chain_of(r, &d, CALLS);
    meet();
    const struct cuda_double_counts now = cuda_double_counts();
    CHECK(now.written - before.written == (uint64_t)CALLS * (uint64_t)r->nranks,
          "%d gates were opened by streams", (int)(now.written - before.written));
    CHECK(now.synchronized == before.synchronized, "something has waited for the GPU");
    CHECK(now.allocations == before.allocations && now.pinned == before.pinned,
          "memory was allocated in the steady state");
    drop(r, &d);
}

/* The stream is through with a call before we know of its end: the context may go all the same. */
static void lands(struct rank *r)
{
    struct data d;
    take(r, &d, 1);
    chain_of(r, &d, 3);
    CHECK(!call(r, &d, COUNT, HALAY_SUM), "one more");
    await(&d);
    enter(&d.line);
    CHECK(!cuMemFree_v2(d.at) && !cuMemFreeHost(d.made) && !cuMemFreeHost(d.seen), "free");
    leave();
    const int rc = halay_finalize(r->context);
    CHECK(!rc, "%s", halay_strerror(rc));
    line_drop(&d.line, r->rank);
}

/* The division comes behind the collective, so the gate has to wait for it. The GPU writes a word
 * for each gate, and one behind each division. */
static void averages(struct rank *r)
{
    struct data d;
    take(r, &d, 3);
    const uint64_t before = cuda_double_counts().written;
    meet();
    start(&d);
    for (int c = 0; c < 20; c++) {
        CHECK(!call(r, &d, COUNT, c % 2 ? HALAY_SUM : HALAY_AVERAGE), "call %d", c);
        look(&d, c);
    }
    await(&d);
    for (int c = 0; c < 20; c++)
        check(&d, c, power(r, (c + 1) / 2));
    meet();
    const uint64_t written = cuda_double_counts().written - before;
    CHECK(written == 30 * (uint64_t)r->nranks, "%d words, not 20 gates and 10 divisions a rank",
          (int)written);
    drop(r, &d);
}

/* Rank 1 has made another call, which is seen before anything is launched; then all go on. */
static void differs(struct rank *r)
{
    struct data d;
    take(r, &d, 3);
    const int rc = call(r, &d, r->rank == 1 ? 7 : 8, HALAY_SUM);
    CHECK(!rc || rc == HALAY_EMISMATCH, "%s", halay_strerror(rc));
    await(&d);
    CHECK(halay_comm_stream(r->world, NULL) == (rc ? HALAY_OK : HALAY_EMISMATCH), "told");
    set(r, &d, HALAY_STREAM_RETURNS);
    chain_of(r, &d, CALLS);
    drop(r, &d);
}

/* The collective does not end. It is given up by the deadline, and what stands behind it then opens
 * the gate as well as the processor does. Gates serve again after that, on another device
 * communicator. */
static void hangs(struct rank *r)
{
    struct data d;
    if (!r->rank)
        nccl_double_settings()->hangs = 1;
    take(r, &d, 0);
    start(&d);
    CHECK(!call(r, &d, COUNT, HALAY_SUM), "it returns");
    await(&d);
    CHECK(halay_comm_stream(r->world, NULL) == HALAY_EDEVICE, "told");
    meet();
    if (!r->rank)
        nccl_double_settings()->hangs = 0;
    meet();
    set(r, &d, HALAY_STREAM_RETURNS);
    chain_of(r, &d, CALLS);
    drop(r, &d);
}

/* All gates open; the calls that all have made are right. */
static void dies(struct rank *r)
{
    struct data d;
    halay_verdict_t v = {.size = sizeof(v)};
    take(r, &d, 3);
    start(&d);
    for (int c = 0; c < (r->rank == 1 ? FLYING / 2 : FLYING); c++) {
        (void)call(r, &d, COUNT, HALAY_SUM);
        look(&d, c);
    }
    if (r->rank == 1) {
        await(&d);
        halay_inproc_kill(r->hub, r->rank);
    }
    await(&d);
    for (int c = 0; c < FLYING / 2; c++)
        check(&d, c, power(r, c + 1));
    if (r->rank != 1) {
        CHECK(halay_comm_stream(r->world, NULL) == HALAY_EPEER, "told");
        CHECK(!halay_comm_verdict(r->world, &v) && v.rank == 1, "%s", v.text);
    }
    meet();
    halay_finalize(r->context);
    drop(r, &d);
}

/* ---------------------------------------------------------------- */

static void run(void (*fn)(struct rank *), int nranks)
{
    static const int one[RANKS];
    const struct ranks_options o = {.nranks = nranks,
                                    .node_of_rank = one,
                                    .deadline_ns = fn == hangs || fn == dies ? DEADLINE : 0,
                                    .keep = fn == dies || fn == lands};
    pthread_barrier_init(&barrier, NULL, (unsigned)nranks);
    ranks_run(&o, fn, NULL);
    pthread_barrier_destroy(&barrier);
    const struct cuda_double_counts c = cuda_double_counts();
    CHECK(!c.misused && !c.streams && !c.events && !c.retained && !c.pinned,
          "%d streams, %d events, %d pinned left, %d misused", c.streams, c.events, c.pinned,
          (int)c.misused);
    CHECK(!nccl_double_counts().misused && !nccl_double_counts().comms, "NCCL: misused, or left");
}

int main(void)
{
    setenv("HALAY_DEBUG", "error", 1); /* the failures here are wanted */
    cuda_double_settings()->devices = RANKS;
    cuda_double_settings()->bytes = (size_t)4 << 20;
    cuda_double_settings()->delay_us = 200;
    for (int n = 2; n <= RANKS; n++) {
        cuda_double_settings()->seed = (uint64_t)n;
        nccl_double_settings()->in_progress = n - 2;
        run(chain, n);
        run(averages, n);
        run(differs, n);
    }
    cuda_double_settings()->delay_us = 5000;
    for (uint64_t seed = 1; seed < 5; seed++) {
        cuda_double_settings()->seed = seed;
        run(lands, RANKS);
    }
    cuda_double_settings()->delay_us = 200;
    run(hangs, RANKS);
    run(dies, RANKS);
    return 0;
}
