/* SPDX-License-Identifier: Apache-2.0 */
/*
 * V forms and empty calls of ranks whose memory differs, over the double of CUDA's driver: a rank
 * that has nothing to move gives NULL, or memory of the host, while the others give a GPU's; or it
 * has something, in the host's. Results are exact; where messages go out of the GPU's memory
 * (HALAY_GPUDIRECT) it is a mismatch on all ranks, as before.
 */
#include <string.h>

#include "device/cuda/driver.h"
#include "double/cuda/calls.h"
#include "double/cuda/double.h"
#include "ranks.h"

enum { RANKS = 4, ODD = 2, MOST = 40000, ROUNDS = 3 };
#define BYTES (RANKS * MOST * sizeof(int32_t))

/* What the odd rank gives. */
enum given { NOTHING_NULL, NOTHING_HOST, SOME_HOST, SOME_GPU, GIVEN };
static const char *const names[GIVEN] = {"nothing, NULL", "nothing, the host's", "the host's",
                                         "a GPU's"};

struct state { /* of one rank */
    struct rank *r;
    enum given given;
    int32_t *in, *out;           /* as given to calls */
    int32_t *seen_in, *seen_out; /* where the test reads and writes them */
    int32_t own[2][RANKS * MOST];
    size_t counts[RANKS]; /* of a rank's block */
    int all_empty;
};

static size_t count_of(const struct state *s, int rank)
{
    const bool empty = s->all_empty || (rank == ODD && s->given <= NOTHING_HOST);
    return empty ? 0 : (size_t)(rank + 1) * (MOST / RANKS) - (size_t)rank;
}

/* How much `from` sends to `to`. */
static size_t between(const struct state *s, int from, int to)
{
    const size_t a = count_of(s, from), b = count_of(s, to);
    return a < b ? a : b;
}

static int32_t value(int from, int to, size_t i)
{
    return from * 1000003 + to * 7919 + (int32_t)i * 31 + 1;
}

static void take(struct state *s, struct rank *r)
{
    uint64_t at[2] = {0, 0};
    s->r = r;
    s->given = *(const enum given *)r->arg;
    if (r->rank == ODD && s->given != SOME_GPU) {
        const bool null = s->given == NOTHING_NULL;
        s->in = null ? NULL : s->own[0];
        s->out = null ? NULL : s->own[1];
        s->seen_in = s->own[0];
        s->seen_out = s->own[1];
        return;
    }
    for (int i = 0; i < 2; i++)
        CHECK(!cuMemAlloc_v2(&at[i], BYTES), "memory of the GPU");
    s->in = (int32_t *)(uintptr_t)at[0];
    s->out = (int32_t *)(uintptr_t)at[1];
    s->seen_in = cuda_double_inside(at[0], BYTES);
    s->seen_out = cuda_double_inside(at[1], BYTES);
}

static void drop(const struct state *s)
{
    if (s->seen_in == s->own[0])
        return;
    CHECK(!cuMemFree_v2((uint64_t)(uintptr_t)s->in) && !cuMemFree_v2((uint64_t)(uintptr_t)s->out),
          "free");
}

static int all_to_all(const struct state *s)
{
    const int me = s->r->rank;
    size_t in[RANKS], out[RANKS], at = 0;
    for (int to = 0; to < RANKS; to++) {
        in[to] = between(s, me, to);
        out[to] = between(s, to, me);
        for (size_t i = 0; i < in[to]; i++)
            s->seen_in[at++] = value(me, to, i);
    }
    const int rc = halay_alltoallv(s->in, in, NULL, s->out, out, NULL, HALAY_INT32, s->r->world);
    at = 0;
    for (int from = 0; from < RANKS && !rc; from++)
        for (size_t i = 0; i < out[from]; i++, at++)
            CHECK(s->seen_out[at] == value(from, me, i), "alltoallv from %d, element %zu", from, i);
    return rc;
}

static void check_blocks(const struct state *s, int to, const char *call)
{
    size_t at = 0;
    for (int from = 0; from < RANKS; from++)
        for (size_t i = 0; i < s->counts[from]; i++, at++)
            CHECK(s->seen_out[at] == value(from, to, i), "%s from %d, element %zu", call, from, i);
}

static int gather(const struct state *s, int root)
{
    const int me = s->r->rank;
    for (size_t i = 0; i < s->counts[me]; i++)
        s->seen_in[i] = value(me, root, i);
    const int rc = halay_gatherv(s->in, s->out, s->counts, NULL, HALAY_INT32, root, s->r->world);
    if (!rc && me == root)
        check_blocks(s, root, "gatherv");
    return rc;
}

static int scatter(const struct state *s, int root)
{
    const int me = s->r->rank;
    size_t at = 0;
    for (int to = 0; to < RANKS && me == root; to++)
        for (size_t i = 0; i < s->counts[to]; i++)
            s->seen_in[at++] = value(root, to, i);
    const int rc = halay_scatterv(s->in, s->out, s->counts, NULL, HALAY_INT32, root, s->r->world);
    for (size_t i = 0; i < s->counts[me] && !rc; i++)
        CHECK(s->seen_out[i] == value(root, me, i), "scatterv, element %zu", i);
    return rc;
}

/* In the odd rank the result of the others lies in its own, if it has memory at all. */
static int all_gather(const struct state *s)
{
    const int me = s->r->rank;
    int32_t *out = s->out ? s->out : (int32_t *)(uintptr_t)s->own[1];
    for (size_t i = 0; i < s->counts[me]; i++)
        s->seen_in[i] = value(me, 0, i);
    const int rc = halay_allgatherv(s->in, out, s->counts, NULL, HALAY_INT32, s->r->world);
    if (!rc)
        check_blocks(s, 0, "allgatherv");
    return rc;
}

static void empties(const struct state *s)
{
    halay_comm_t *w = s->r->world;
    CHECK(!halay_broadcast(s->out, 0, HALAY_INT32, 0, w), "broadcast of nothing");
    CHECK(!halay_allreduce(s->in, s->out, 0, HALAY_INT32, HALAY_SUM, w), "allreduce of nothing");
    CHECK(!halay_allgather(s->in, s->out, 0, HALAY_INT32, w), "allgather of nothing");
}

static void body(struct rank *r)
{
    static struct state all[RANKS];
    struct state *s = &all[r->rank];
    void *gpu;
    CHECK(!cuDevicePrimaryCtxRetain(&gpu, 0) && !cuCtxPushCurrent_v2(gpu), "a GPU");
    take(s, r);
    for (int round = 0; round < ROUNDS; round++) {
        s->all_empty = round == 1;
        for (int k = 0; k < RANKS; k++)
            s->counts[k] = count_of(s, k);
        CHECK(!all_to_all(s), "alltoallv");
        for (int root = 0; root < RANKS; root++) {
            if (root == ODD && s->given == NOTHING_NULL && !s->all_empty)
                continue; /* it would need memory */
            CHECK(!gather(s, root) && !scatter(s, root), "root %d", root);
        }
        CHECK(!all_gather(s), "allgatherv");
        empties(s);
    }
    drop(s);
    CHECK(!cuCtxPopCurrent_v2(&gpu), "pop");
    cuDevicePrimaryCtxRelease_v2(0);
}

/* With GPUDirect: all alike, and at once. */
static void direct(struct rank *r)
{
    static struct state all[RANKS];
    struct state *s = &all[r->rank];
    halay_verdict_t v = {.size = sizeof(v)};
    void *gpu;
    CHECK(!cuDevicePrimaryCtxRetain(&gpu, 0) && !cuCtxPushCurrent_v2(gpu), "a GPU");
    take(s, r);
    const uint64_t start = ranks_now_ns();
    const int rc = all_to_all(s);
    CHECK(ranks_now_ns() - start < 5000000000ull, "waited for the deadline");
    CHECK(rc == HALAY_EMISMATCH, "%s: %s", names[s->given], halay_strerror(rc));
    CHECK((!halay_comm_verdict(r->world, &v) && strstr(v.text, "memory of a GPU") &&
           (v.rank == ODD || v.other == ODD)),
          "%s", v.text);
    empties(s); /* of which there is nothing to know */
    drop(s);
    CHECK(!cuCtxPopCurrent_v2(&gpu), "pop");
    cuDevicePrimaryCtxRelease_v2(0);
}

int main(void)
{
    static const int shapes[][RANKS] = {{0, 0, 0, 0}, {0, 0, 1, 1}, {0, 1, 2, 3}};
    setvbuf(stdout, NULL, _IOLBF, 0);
    setenv("HALAY_DEBUG", "error", 1);
    CHECK(!cuInit(0), "init");
    for (enum given given = 0; given < GIVEN; given++)
        for (size_t i = 0; i < 4; i++) {
            const struct ranks_options o = {
                .nranks = RANKS, .shm = i == 3, .node_of_rank = i == 3 ? NULL : shapes[i]};
            ranks_run(&o, body, &given);
            printf("%s: %zu\n", names[given], i);
        }
    CHECK(!setenv("HALAY_GPUDIRECT", "1", 1), "setenv");
    const halay_inproc_faults_t late = {.seed = 1, .late_put_polls = 4};
    for (enum given given = 0; given < SOME_GPU; given++)
        ranks_run(
            &(struct ranks_options){.nranks = RANKS, .node_of_rank = shapes[2], .faults = &late},
            direct, &given);
    const struct cuda_double_counts left = cuda_double_counts();
    CHECK(!left.allocations && !left.misused && !left.retained, "%d allocations left, %llu misused",
          left.allocations, (unsigned long long)left.misused);
    return 0;
}
