/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls that are captured into CUDA graphs (docs/decisions/streams.md#0071), over the doubles of
 * NCCL and of CUDA's driver: graphs that run a hundred times with other data each time; averages,
 * which are divided in the graph, with the bits of the call outside; all that a capture cannot
 * have, by name, on all ranks, and without harm to the capture; ranks that capture other calls, or
 * of which one captures none; and a rank that is lost while a graph runs on the others.
 */
#include <string.h>
#include <unistd.h>

#include "double/cuda/calls.h"
#include "double/nccl/double.h"
#include "lines.h"

extern int cuStreamSynchronize(void *stream);

enum { RANKS = 3, COUNT = 300, REPLAYS = 100 };
#define BYTES    (COUNT * RANKS * sizeof(int32_t))
#define DEADLINE 2000000000ull

static pthread_barrier_t barrier;
static bool one_gpu; /* of all ranks: group steps are our own */

struct data {
    struct line line;
    uint64_t in, out;
};

static void meet(void)
{
    pthread_barrier_wait(&barrier);
}

static int32_t *inside(uint64_t at)
{
    int32_t *p = cuda_double_inside(at, BYTES);
    CHECK(p, "not of a GPU");
    return p;
}

static int call(const struct data *d, size_t count, halay_type_t type, halay_op_t op,
                halay_comm_t *comm)
{
    return halay_allreduce((void *)(uintptr_t)d->in, (void *)(uintptr_t)d->out, count, type, op,
                           comm);
}

static void fill(struct rank *r, const struct data *d, int round)
{
    for (int i = 0; i < COUNT; i++)
        inside(d->in)[i] = (r->rank + 1) * (i + round);
}

static void check(struct rank *r, const struct data *d, int round)
{
    const int n = r->nranks * (r->nranks + 1) / 2;
    for (int i = 0; i < COUNT; i++)
        CHECK(inside(d->out)[i] == n * (i + round), "round %d, element %d: %d", round, i,
              inside(d->out)[i]);
}

static void once(struct rank *r, const struct data *d, int round)
{
    halay_verdict_t v = {.size = sizeof(v)};
    fill(r, d, round);
    const int rc = call(d, COUNT, HALAY_INT32, HALAY_SUM, r->world);
    CHECK(!rc, "call %d: %s: %s", round, halay_strerror(rc),
          halay_comm_verdict(r->world, &v) ? "" : v.text);
    check(r, d, round);
}

/* Makes so many calls behind a stream. */
static void take(struct rank *r, struct data *d, int calls)
{
    line_make(&d->line, one_gpu ? 0 : r->rank);
    enter(&d->line);
    CHECK(!cuMemAlloc_v2(&d->in, BYTES) && !cuMemAlloc_v2(&d->out, BYTES), "memory");
    const halay_stream_t s = stream_of(&d->line);
    CHECK(!halay_comm_stream(r->world, &s), "stream");
    for (int i = 0; i < calls; i++)
        once(r, d, i);
    meet();
}

static void drop(struct rank *r, struct data *d)
{
    meet();
    CHECK(!cuMemFree_v2(d->in) && !cuMemFree_v2(d->out), "free");
    leave();
    line_drop(&d->line, one_gpu ? 0 : r->rank);
}

/* All ranks capture at a time: unsafe calls of any thread would spoil it. */
static void begin(const struct data *d)
{
    meet();
    CHECK(!cuStreamBeginCapture_v2(d->line.cuda, 0), "begin");
    meet();
}

static void *end(const struct data *d)
{
    void *graph, *exec;
    meet();
    const int rc = cuStreamEndCapture(d->line.cuda, &graph);
    CHECK(!rc, "the capture was spoiled: %d", rc);
    meet();
    CHECK(!cuGraphInstantiateWithFlags(&exec, graph, 0) && !cuGraphDestroy(graph), "graph");
    return exec;
}

/* ---------------------------------------------------------------- graphs that run */

static void replay(struct rank *r, const struct data *d, void *exec, int replays)
{
    for (int i = 0; i < replays; i++) {
        fill(r, d, i);
        meet();
        CHECK(!cuGraphLaunch(exec, d->line.cuda) && !cuStreamSynchronize(d->line.cuda), "launch");
        check(r, d, i);
        if (i % 25 == 0)
            once(r, d, 7 * i); /* the same device communicator is of use outside */
    }
}

static void replays(struct rank *r)
{
    struct data d;
    take(r, &d, 3);
    begin(&d);
    CHECK(!call(&d, COUNT, HALAY_INT32, HALAY_SUM, r->world), "captured");
    memset(inside(d.out), 0x5a, BYTES);
    void *exec = end(&d);
    CHECK(inside(d.out)[0] == 0x5a5a5a5a, "nothing runs at the capture");
    const uint64_t before = nccl_double_counts().collectives;
    meet();
    replay(r, &d, exec, REPLAYS);
    meet();
    CHECK(nccl_double_counts().collectives >= before + REPLAYS, "collectives");
    CHECK(!cuGraphExecDestroy(exec), "destroy");
    drop(r, &d);
}

/* Two calls of a graph, one on the result of the other, and two graphs in turn. */
static void chained(struct rank *r)
{
    struct data d;
    void *exec[2];
    take(r, &d, 3);
    for (int g = 0; g < 2; g++) {
        begin(&d);
        CHECK(!call(&d, COUNT, HALAY_INT32, HALAY_SUM, r->world), "captured");
        if (g)
            CHECK(!halay_allreduce(HALAY_IN_PLACE, (void *)(uintptr_t)d.out, COUNT, HALAY_INT32,
                                   HALAY_MAX, r->world),
                  "in place");
        exec[g] = end(&d);
    }
    for (int i = 0; i < 20; i++)
        replay(r, &d, exec[i % 2], 1);
    CHECK(!cuGraphExecDestroy(exec[0]) && !cuGraphExecDestroy(exec[1]), "destroy");
    drop(r, &d);
}

/* ---------------------------------------------------------------- averages */

enum { BLOCK = 100, BLOCK_AT = 2400, VALUE_MIDDLE = 20 };

static double value(int rank, int i, int round)
{
    return (rank + 1) * ((i + round) % (2 * VALUE_MIDDLE) - VALUE_MIDDLE) + (rank == 0);
}

static void fill_as(struct rank *r, const struct data *d, halay_type_t type, int round)
{
    char *at = (char *)inside(d->in);
    for (int i = 0; i < COUNT; i++) {
        const double v = value(r->rank, i, round);
        if (type == HALAY_INT32)
            ((int32_t *)at)[i] = (int32_t)v;
        else if (type == HALAY_INT8)
            ((int8_t *)at)[i] = (int8_t)v;
        else if (type == HALAY_FLOAT64)
            ((double *)at)[i] = v;
        else
            ((uint16_t *)at)[i] = (uint16_t)(0x3c00 + 37 * i + 1000 * r->rank + round);
    }
}

/* Integers are cut towards zero, and what has a fraction is rounded once. */
static void check_as(struct rank *r, const struct data *d, halay_type_t type, int round)
{
    const char *at = (const char *)inside(d->out);
    for (int i = 0; i < COUNT; i++) {
        double sum = 0;
        for (int k = 0; k < r->nranks; k++)
            sum += value(k, i, round);
        if (type == HALAY_INT32)
            CHECK(((const int32_t *)at)[i] == (int32_t)sum / r->nranks, "round %d, %d: %d", round,
                  i, ((const int32_t *)at)[i]);
        if (type == HALAY_FLOAT64)
            CHECK(((const double *)at)[i] == sum / r->nranks, "round %d, %d: %f", round, i,
                  ((const double *)at)[i]);
    }
}

/* An average, the greatest of it, and one of blocks. */
static void three(struct rank *r, const struct data *d, halay_type_t type)
{
    void *in = (void *)(uintptr_t)d->in, *out = (void *)(uintptr_t)d->out;
    CHECK(!halay_allreduce(in, out, COUNT, type, HALAY_AVERAGE, r->world), "average");
    CHECK(!halay_allreduce(HALAY_IN_PLACE, out, COUNT, type, HALAY_MAX, r->world), "greatest");
    CHECK(!halay_reduce_scatter(in, (char *)out + BLOCK_AT, BLOCK, type, HALAY_AVERAGE, r->world),
          "blocks");
}

static void average_of(struct rank *r, const struct data *d, halay_type_t type)
{
    static char got[RANKS][BYTES];
    begin(d);
    three(r, d, type);
    void *exec = end(d);
    for (int i = 0; i < 5; i++) {
        fill_as(r, d, type, i);
        memset(inside(d->out), 0x5a, BYTES);
        meet();
        CHECK(!cuGraphLaunch(exec, d->line.cuda) && !cuStreamSynchronize(d->line.cuda), "launch");
        check_as(r, d, type, i);
        memcpy(got[r->rank], inside(d->out), BYTES);
        memset(inside(d->out), 0x5a, BYTES);
        three(r, d, type);
        CHECK(!memcmp(got[r->rank], inside(d->out), BYTES), "type %d, round %d: other bits", type,
              i);
    }
    CHECK(!cuGraphExecDestroy(exec), "destroy");
}

static void averages(struct rank *r)
{
    struct data d;
    take(r, &d, 3);
    average_of(r, &d, HALAY_INT32);
    average_of(r, &d, HALAY_INT8);
    average_of(r, &d, HALAY_FLOAT16);
    average_of(r, &d, HALAY_FLOAT64);
    drop(r, &d);
}

/* ---------------------------------------------------------------- what is refused */

static void refused(struct rank *r, int rc, int want, const char *why)
{
    halay_verdict_t v = {.size = sizeof(v)};
    CHECK(rc == want, "%s: %s", why, halay_strerror(rc));
    CHECK(!halay_comm_verdict(r->world, &v) && strstr(v.text, why), "%s: %s", why, v.text);
    meet();
}

static void refuses(struct rank *r)
{
    struct data d;
    halay_request_t *q;
    take(r, &d, 0);
    CHECK(!call(&d, COUNT, HALAY_INT16, HALAY_SUM, r->world), "staged: it opens nothing");
    begin(&d);
    refused(r, call(&d, COUNT, HALAY_INT32, HALAY_SUM, r->world), HALAY_EDEVICE,
            "make the call once before the capture");
    CHECK(!cuGraphExecDestroy(end(&d)), "destroy");
    once(r, &d, 1);
    begin(&d);
    refused(r, call(&d, COUNT, HALAY_INT16, HALAY_SUM, r->world), HALAY_EUNSUPPORTED,
            "has no group steps: make the call outside");
    refused(r,
            halay_allreduce_scaled((void *)(uintptr_t)d.in, (void *)(uintptr_t)d.out, COUNT,
                                   HALAY_INT32, HALAY_SUM, 1, 2, r->world),
            HALAY_EUNSUPPORTED, "has no group steps");
    CHECK(!halay_iallreduce((void *)(uintptr_t)d.in, (void *)(uintptr_t)d.out, COUNT, HALAY_INT32,
                            HALAY_SUM, r->world, &q),
          "posted");
    refused(r, halay_request_wait(q), HALAY_EUNSUPPORTED, "only blocking calls");
    CHECK(!halay_group_begin(r->world) &&
              !halay_iallreduce((void *)(uintptr_t)d.in, (void *)(uintptr_t)d.out, COUNT,
                                HALAY_INT32, HALAY_SUM, r->world, &q) &&
              !halay_group_end(r->world, &q),
          "group");
    refused(r, halay_request_wait(q), HALAY_EUNSUPPORTED, "is being captured into a graph");
    CHECK(!cuGraphExecDestroy(end(&d)), "destroy");
    once(r, &d, 2);
    drop(r, &d);
}

/* A captured call is refused, for this reason, after so many calls outside; then all go on. */
static void refuses_one(struct rank *r, int calls, const char *why)
{
    struct data d;
    take(r, &d, calls);
    begin(&d);
    refused(r, call(&d, COUNT, HALAY_INT32, HALAY_SUM, r->world), HALAY_EUNSUPPORTED, why);
    CHECK(!cuGraphExecDestroy(end(&d)), "destroy");
    once(r, &d, 2);
    drop(r, &d);
}

/* Our own group steps serve calls on either side of it. */
static void ours(struct rank *r)
{
    refuses_one(r, 2, "needs the host in each of them");
}

static void early(struct rank *r)
{
    refuses_one(r, 0, "have not agreed yet who does group steps");
}

/* Two ranks are on one node, and one on another. */
static void far(struct rank *r)
{
    refuses_one(r, 2, "has messages");
}

/* Ranks capture calls that differ, or one makes its call outside; then all go on. */
static void mismatched(struct rank *r)
{
    struct data d;
    take(r, &d, 2);
    begin(&d);
    refused(r, call(&d, r->rank == 1 ? 7 : 8, HALAY_INT32, HALAY_SUM, r->world), HALAY_EMISMATCH,
            "All ranks must make the same calls");
    CHECK(!cuGraphExecDestroy(end(&d)), "destroy");
    once(r, &d, 1);
    if (r->rank != 1)
        CHECK(!cuStreamBeginCapture_v2(d.line.cuda, 0), "begin");
    meet();
    refused(r, call(&d, COUNT, HALAY_INT32, HALAY_SUM, r->world), HALAY_EMISMATCH,
            r->nranks == 2 ? "rank 0 alone captures it into a graph" : "captures it into a graph");
    void *graph;
    if (r->rank != 1)
        CHECK(!cuStreamEndCapture(d.line.cuda, &graph) && !cuGraphDestroy(graph), "end");
    meet();
    once(r, &d, 2);
    begin(&d);
    CHECK(!call(&d, COUNT, HALAY_INT32, HALAY_SUM, r->world), "captured");
    void *exec = end(&d);
    replay(r, &d, exec, 3);
    CHECK(!cuGraphExecDestroy(exec), "destroy");
    drop(r, &d);
}

/* The division of one rank, whichever, cannot be launched. It learns of it at once; others may be
 * through with the call, so that the next one tells all. */
static void undivided(struct rank *r)
{
    static int failed;
    struct data d;
    take(r, &d, 3);
    if (!r->rank)
        failed = 0;
    begin(&d);
    if (!r->rank)
        cuda_double_fail("cuLaunchKernel", 1, 999);
    meet();
    const int rc = call(&d, COUNT, HALAY_INT32, HALAY_AVERAGE, r->world);
    CHECK(!rc || rc == HALAY_EDEVICE, "%s", halay_strerror(rc));
    __atomic_fetch_add(&failed, rc == HALAY_EDEVICE, __ATOMIC_SEQ_CST);
    CHECK(!cuGraphExecDestroy(end(&d)), "destroy");
    CHECK(failed, "none has failed");
    const int next = call(&d, COUNT, HALAY_INT32, HALAY_SUM, r->world);
    CHECK(next ? next == HALAY_EDEVICE : failed == r->nranks, "%d have failed, then %s", failed,
          halay_strerror(next));
    drop(r, &d);
}

/* ---------------------------------------------------------------- a rank is lost */

static void leaves(struct rank *r)
{
    struct data d;
    take(r, &d, 3);
    begin(&d);
    CHECK(!call(&d, COUNT, HALAY_INT32, HALAY_SUM, r->world), "captured");
    void *exec = end(&d);
    replay(r, &d, exec, 2);
    meet();
    if (r->rank == 1) {
        halay_inproc_kill(r->hub, r->rank);
    } else {
        const uint64_t at = ranks_now_ns();
        CHECK(!cuGraphLaunch(exec, d.line.cuda) && !cuStreamSynchronize(d.line.cuda), "launch");
        CHECK(ranks_now_ns() - at < 5 * DEADLINE, "it ends late");
        CHECK(call(&d, COUNT, HALAY_INT32, HALAY_SUM, r->world), "no call has an end");
    }
    halay_finalize(r->context);
    CHECK(!cuGraphExecDestroy(exec), "destroy");
    drop(r, &d);
}

/* Rank 0 alone has launched its graph when the communicator is freed, or the context ends. */
static bool by_free;
static void left_running(struct rank *r)
{
    struct data d;
    halay_comm_t *const world = r->world;
    if (by_free)
        CHECK(!halay_comm_dup(world, &r->world), "dup");
    take(r, &d, 3);
    begin(&d);
    CHECK(!call(&d, COUNT, HALAY_INT32, HALAY_SUM, r->world), "captured");
    void *exec = end(&d);
    replay(r, &d, exec, 2);
    meet();
    const uint64_t at = ranks_now_ns(), begun = nccl_double_counts().replays;
    meet();
    if (r->rank == 0) {
        CHECK(!cuGraphLaunch(exec, d.line.cuda), "launch");
        while (nccl_double_counts().replays == begun)
            usleep(1000);
    }
    meet();
    CHECK(!by_free || !halay_comm_free(r->world), "free");
    r->world = world;
    halay_finalize(r->context);
    CHECK(!cuStreamSynchronize(d.line.cuda), "synchronize");
    CHECK(ranks_now_ns() - at < 5 * DEADLINE, "it ends late");
    CHECK(!cuGraphExecDestroy(exec), "destroy");
    drop(r, &d);
}

/* ---------------------------------------------------------------- */

static void run(void (*fn)(struct rank *), int nranks, const int *nodes)
{
    static const int one[RANKS];
    const struct ranks_options o = {.nranks = nranks,
                                    .node_of_rank = nodes ? nodes : one,
                                    .deadline_ns = DEADLINE,
                                    .keep = fn == leaves || fn == left_running};
    pthread_barrier_init(&barrier, NULL, (unsigned)nranks);
    ranks_run(&o, fn, NULL);
    pthread_barrier_destroy(&barrier);
    const struct cuda_double_counts c = cuda_double_counts();
    CHECK(!c.misused && !c.spoiled && !c.streams && !c.events && !c.retained,
          "%d streams, %d events left, %d misused, %d spoiled", c.streams, c.events, (int)c.misused,
          (int)c.spoiled);
    CHECK(!nccl_double_counts().misused && !nccl_double_counts().comms, "NCCL: misused, or left");
}

/* Who leaves a graph running is told so, and nobody else is. */
static void warned(void (*fn)(struct rank *), bool by_comm_free)
{
    char told[4096];
    FILE *file = tmpfile();
    const int err = dup(STDERR_FILENO);
    CHECK(file && err >= 0 && dup2(fileno(file), STDERR_FILENO) >= 0, "no file");
    by_free = by_comm_free;
    CHECK(!setenv("HALAY_DEBUG", "warn", 1), "setenv");
    run(fn, RANKS, NULL);
    CHECK(!setenv("HALAY_DEBUG", "error", 1), "setenv");
    CHECK(dup2(err, STDERR_FILENO) >= 0 && !close(err), "dup2");
    rewind(file);
    told[fread(told, 1, sizeof(told) - 1, file)] = '\0';
    const char *first = strstr(told, "Destroy graphs before the communicator");
    CHECK(!fclose(file) && !first == (fn != left_running), "%s", told);
    CHECK(!first || strstr(told, "[rank 0 on"), "%s", told);
}

int main(void)
{
    setenv("HALAY_DEBUG", "error", 1); /* the failures here are wanted */
    cuda_double_settings()->devices = RANKS;
    cuda_double_settings()->bytes = (size_t)1 << 30;
    for (int n = 2; n <= RANKS; n++) {
        nccl_double_settings()->in_progress = n - 2;
        run(replays, n, NULL);
        run(chained, n, NULL);
        run(averages, n, NULL);
        run(mismatched, n, NULL);
    }
    run(refuses, RANKS, NULL);
    run(early, 2, NULL);
    run(far, RANKS, (const int[]){0, 0, 1});
    run(undivided, RANKS, NULL);
    run(leaves, RANKS, NULL);
    warned(left_running, false);
    warned(left_running, true);
    warned(replays, false);
    one_gpu = true;
    setenv("HALAY_NCCL_LIBRARY", "own:1", 1); /* short calls, too */
    run(ours, RANKS, NULL);
    unsetenv("HALAY_NCCL_LIBRARY");
    return 0;
}
