/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The first calls in a GPU's memory on a communicator, over the doubles of NCCL and of CUDA's
 * driver: while ranks agree who does group steps. NCCL serves the first call, and a post waits for
 * nobody. Whatever one rank does instead of that call, all have one verdict, soon, and go on.
 */
#include <string.h>

#include "comm/comm.h"
#include "double/cuda/double.h"
#include "double/nccl/double.h"
#include "ranks.h"

#define CALL(name, arguments) extern int name arguments;
#include "device/cuda/driver.h"
HLY_CUDA_CALLS(CALL, CALL)

enum { RANKS = 3, COUNT = 100, PARTS = 40, BYTES = PARTS * COUNT * 4 };
#define DEADLINE 20000000000ull
#define SOON     10000000000ull

static pthread_barrier_t barrier;
static uint64_t collectives;         /* of NCCL, before the run */
static _Thread_local bool no_memory; /* for what the ranks say of themselves */

void *__real_calloc(size_t n, size_t bytes);
/* Visible, since the doubles' libraries call it, too. */
__attribute__((visibility("default"))) void *__wrap_calloc(size_t n, size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes)
{
    return no_memory && bytes == sizeof(struct hly_nccl_says) ? NULL : __real_calloc(n, bytes);
}

static void meet(void)
{
    pthread_barrier_wait(&barrier);
}

/* ---------------------------------------------------------------- a rank */

struct data {
    void *gpu;
    uint64_t in, out;
    int32_t host[2][COUNT];
};

static int32_t *inside(uint64_t at)
{
    int32_t *p = cuda_double_inside(at, BYTES);
    CHECK(p, "not of a GPU");
    return p;
}

static const int32_t *in_of(const struct data *d, int part)
{
    return (const int32_t *)(uintptr_t)d->in + (size_t)part * COUNT;
}

static int32_t *out_of(const struct data *d, int part)
{
    return (int32_t *)(uintptr_t)d->out + (size_t)part * COUNT;
}

static void take(const struct rank *r, struct data *d)
{
    CHECK(!cuDevicePrimaryCtxRetain(&d->gpu, r->rank) && !cuCtxPushCurrent_v2(d->gpu), "a GPU");
    CHECK(!cuMemAlloc_v2(&d->in, BYTES) && !cuMemAlloc_v2(&d->out, BYTES), "memory of it");
    for (int i = 0; i < PARTS * COUNT; i++)
        inside(d->in)[i] = (r->rank + 1) * i;
    memset(inside(d->out), 0x5a, BYTES);
}

static void drop(const struct rank *r, struct data *d)
{
    meet();
    CHECK(!cuMemFree_v2(d->in) && !cuMemFree_v2(d->out), "free");
    cuCtxPopCurrent_v2(&d->gpu);
    cuDevicePrimaryCtxRelease_v2(r->rank);
}

static void check(const struct rank *r, const struct data *d, int part)
{
    const int32_t sum = r->nranks * (r->nranks + 1) / 2;
    for (int i = part * COUNT; i < (part + 1) * COUNT; i++)
        CHECK(inside(d->out)[i] == sum * i, "rank %d, element %d: %d", r->rank, i,
              inside(d->out)[i]);
}

static int post(const struct data *d, int part, halay_comm_t *comm, halay_request_t **q)
{
    return halay_iallreduce(in_of(d, part), out_of(d, part), COUNT, HALAY_INT32, HALAY_SUM, comm,
                            q);
}

static int call(const struct data *d, int part, halay_comm_t *comm)
{
    return halay_allreduce(in_of(d, part), out_of(d, part), COUNT, HALAY_INT32, HALAY_SUM, comm);
}

static int on_host(struct data *d, halay_comm_t *comm)
{
    return halay_allreduce(d->host[0], d->host[1], COUNT, HALAY_INT32, HALAY_SUM, comm);
}

/* All calls are good, and NCCL does them. */
static void goes_on(struct rank *r, struct data *d)
{
    meet();
    const uint64_t before = nccl_double_counts().collectives;
    meet();
    for (int c = 0; c < 3; c++) {
        memset(inside(d->out), 0x5a, BYTES);
        CHECK(!on_host(d, r->world) && !call(d, c, r->world), "rank %d, call %d", r->rank, c);
        check(r, d, c);
    }
    meet();
    CHECK(nccl_double_counts().collectives == before + 3, "%d collectives of NCCL",
          (int)(nccl_double_counts().collectives - before));
}

/* ---------------------------------------------------------------- all is well */

static void blocking(struct rank *r)
{
    struct data d = {.gpu = NULL};
    take(r, &d);
    goes_on(r, &d);
    const halay_record_call_t *calls = r->context->record.map->calls;
    for (int i = 0; i < HALAY_RECORD_CALLS; i++)
        CHECK(calls[i].state != HALAY_RECORD_COMPLETE || calls[i].plan, "recorded without a plan");
    drop(r, &d);
}

/* One after the other, the ranks post more than the window has room for, and each leaves the post
 * before the next one comes. What is in host memory is among it, and ends meanwhile. */
static void posted(struct rank *r)
{
    struct data d = {.gpu = NULL};
    halay_request_t *q[PARTS] = {NULL}, *host[2] = {NULL, NULL};
    int32_t one[2] = {1, 1}, all[2] = {0, 0};
    take(r, &d);
    for (int turn = 0; turn < r->nranks; turn++) {
        for (int p = 0; p < PARTS && turn == r->rank; p++) {
            if (p == 1 || p == PARTS / 2)
                CHECK(!halay_iallreduce(&one[p > 1], &all[p > 1], 1, HALAY_INT32, HALAY_SUM,
                                        r->world, &host[p > 1]),
                      "in host memory");
            CHECK(!post(&d, p, r->world, &q[p]), "post %d", p);
        }
        meet();
    }
    for (int i = 0; i < 2; i++)
        CHECK(!halay_request_wait(host[i]) && all[i] == r->nranks, "in host memory: %d", all[i]);
    for (int p = PARTS - 1; p >= 0; p--)
        CHECK(!halay_request_wait(q[p]), "wait %d", p);
    for (int p = 0; p < PARTS; p++)
        check(r, &d, p);
    meet();
    CHECK(nccl_double_counts().collectives == collectives + PARTS, "%d collectives of NCCL",
          (int)(nccl_double_counts().collectives - collectives));
    drop(r, &d);
}

/* A persistent request, a group and a call, made by one rank after the other; and a request that
 * nobody starts. */
static void kept(struct rank *r)
{
    struct data d = {.gpu = NULL};
    halay_request_t *q = NULL, *idle = NULL, *member, *group = NULL, *behind = NULL;
    take(r, &d);
    for (int turn = 0; turn < r->nranks; turn++) {
        if (turn == r->rank) {
            CHECK(!halay_allreduce_init(in_of(&d, 0), out_of(&d, 0), COUNT, HALAY_INT32, HALAY_SUM,
                                        r->world, &q) &&
                      !halay_allreduce_init(in_of(&d, 1), out_of(&d, 1), COUNT, HALAY_INT32,
                                            HALAY_SUM, r->world, &idle),
                  "init");
            CHECK(!halay_request_start(q), "start");
            CHECK(!halay_group_begin(r->world) && !post(&d, 2, r->world, &member) &&
                      !post(&d, 3, r->world, &member) && !halay_group_end(r->world, &group),
                  "group");
            CHECK(!post(&d, 4, r->world, &behind), "behind it");
        }
        meet();
    }
    CHECK(!halay_request_wait(behind) && !halay_request_wait(group) && !halay_request_wait(q),
          "wait");
    for (int p = 0; p < 5; p++)
        if (p != 1)
            check(r, &d, p);
    CHECK(!halay_request_start(idle) && !halay_request_wait(idle), "the other one");
    check(r, &d, 1);
    CHECK(!halay_request_start(q) && !halay_request_wait(q), "again");
    CHECK(!halay_request_free(q) && !halay_request_free(idle), "free");
    goes_on(r, &d);
    drop(r, &d);
}

/* ---------------------------------------------------------------- one rank does something else */

enum other { HOST, VECTOR, COUNTS, BARRIER, GROUP, WRONG, PERSISTENT, MEMORY, OTHERS };
static enum other other;
static bool waits; /* the others' calls are blocking */

static const char *const words[OTHERS] = {
    "memory of a GPU", "allgatherv",      "of 7 int32",          "barrier",
    "group of 1",      "no operation 99", "All ranks must make", "could not agree on NCCL"};
static const int codes[OTHERS] = {HALAY_EMISMATCH, HALAY_EMISMATCH, HALAY_EMISMATCH,
                                  HALAY_EMISMATCH, HALAY_EMISMATCH, HALAY_EINVAL,
                                  HALAY_EMISMATCH, HALAY_ENOMEM};

static int do_other(struct rank *r, struct data *d)
{
    size_t counts[RANKS] = {1, 1, 1}, displs[RANKS] = {0, 1, 2};
    halay_request_t *q;
    int rc;
    switch (other) {
    case HOST:
        return on_host(d, r->world);
    case VECTOR:
        return halay_allgatherv(in_of(d, 0), out_of(d, 0), counts, displs, HALAY_INT32, r->world);
    case COUNTS:
        return halay_allreduce(in_of(d, 0), out_of(d, 0), 7, HALAY_INT32, HALAY_SUM, r->world);
    case BARRIER:
        return halay_barrier(r->world);
    case GROUP:
        CHECK(!halay_group_begin(r->world) && !post(d, 0, r->world, &q) &&
                  !halay_group_end(r->world, &q),
              "group");
        return halay_request_wait(q);
    case WRONG:
        return halay_allreduce(in_of(d, 0), out_of(d, 0), COUNT, HALAY_INT32, (halay_op_t)99,
                               r->world);
    case PERSISTENT:
        CHECK(!halay_broadcast_init(out_of(d, 0), COUNT, HALAY_INT32, 0, r->world, &q), "init");
        CHECK(!halay_request_start(q), "start");
        rc = halay_request_wait(q);
        CHECK(!halay_request_free(q), "free");
        return rc;
    default:
        no_memory = true;
        rc = call(d, 0, r->world);
        no_memory = false;
        return rc;
    }
}

static void differs(struct rank *r)
{
    struct data d = {.gpu = NULL};
    halay_verdict_t v = {.size = sizeof(v)};
    halay_request_t *q[2];
    int rc;
    take(r, &d);
    meet();
    const uint64_t begin = ranks_now_ns();
    if (r->rank == 1) {
        rc = do_other(r, &d);
    } else if (waits) {
        rc = call(&d, 0, r->world);
    } else {
        CHECK(!post(&d, 0, r->world, &q[0]), "post");
        rc = halay_request_wait(q[0]);
    }
    CHECK(ranks_now_ns() - begin < SOON, "it takes %d ms",
          (int)((ranks_now_ns() - begin) / 1000000));
    CHECK(!halay_comm_verdict(r->world, &v), "no verdict");
    CHECK(rc == codes[other] && strstr(v.text, words[other]) && v.sequence == 0, "rank %d: %s: %s",
          r->rank, halay_strerror(rc), v.text);
    meet();
    if (other != MEMORY) {
        goes_on(r, &d);
    } else { /* nobody knows what rank 1 has: calls in a GPU's memory fail, others do not */
        CHECK(!on_host(&d, r->world), "in host memory");
        CHECK(call(&d, 0, r->world) == HALAY_ENOMEM, "it is good all at once");
        CHECK(!halay_comm_verdict(r->world, &v) && v.rank == 1, "%s", v.text);
        CHECK(!on_host(&d, r->world), "in host memory");
    }
    drop(r, &d);
}

/* Rank 1 dies, leaves or revokes, with calls of the others under way. */
enum end { DIES, FINALIZES, REVOKES, ENDS };
static enum end end;

static void ends(struct rank *r)
{
    static const int want[ENDS] = {HALAY_EPEER, HALAY_EPEER, HALAY_EREVOKED};
    struct data d = {.gpu = NULL};
    halay_verdict_t v = {.size = sizeof(v)};
    halay_request_t *q[2];
    take(r, &d);
    CHECK(!halay_barrier(r->world), "barrier");
    for (int p = 0; p < 2 && r->rank != 1; p++)
        CHECK(!post(&d, p, r->world, &q[p]), "post");
    meet();
    if (r->rank == 1 && end == DIES)
        halay_inproc_kill(r->hub, r->rank);
    else if (r->rank == 1 && end == REVOKES)
        CHECK(!halay_comm_revoke(r->world), "revoke");
    else if (r->rank == 1)
        CHECK(!halay_finalize(r->context), "finalize");
    for (int p = 0; p < 2 && r->rank != 1; p++) {
        const int rc = halay_request_wait(q[p]);
        CHECK(rc == want[end], "rank %d: %s", r->rank, halay_strerror(rc));
        CHECK(!halay_comm_verdict(r->world, &v) && (end == REVOKES || v.rank == 1), "%s", v.text);
    }
    meet();
    if (r->rank != 1 || end != FINALIZES)
        halay_finalize(r->context);
    drop(r, &d);
}

/* Rank 0 ends its context with such a call in flight. */
static void left(struct rank *r)
{
    struct data d = {.gpu = NULL};
    halay_request_t *q;
    take(r, &d);
    CHECK(!halay_barrier(r->world) && !post(&d, 0, r->world, &q), "post");
    CHECK(r->rank != 0 || halay_finalize(r->context) == HALAY_ESTATE, "finalize");
    if (r->rank) {
        const int rc = halay_request_wait(q);
        CHECK(rc == HALAY_ESTATE, "rank %d: %s", r->rank, halay_strerror(rc));
        halay_finalize(r->context);
    }
    drop(r, &d);
}

/* ---------------------------------------------------------------- */

static void run(const char *name, void (*fn)(struct rank *), const halay_inproc_faults_t *faults)
{
    static const int one[RANKS];
    const struct ranks_options o = {.nranks = RANKS,
                                    .node_of_rank = one,
                                    .faults = faults,
                                    .deadline_ns = DEADLINE,
                                    .keep = fn == ends || fn == left};
    pthread_barrier_init(&barrier, NULL, RANKS);
    collectives = nccl_double_counts().collectives;
    ranks_run(&o, fn, NULL);
    pthread_barrier_destroy(&barrier);
    const struct cuda_double_counts c = cuda_double_counts();
    CHECK(!c.allocations && !c.pinned && !c.streams && !c.events && !c.retained && !c.misused,
          "%d, %d, %d, %d, %d left, %llu misused", c.allocations, c.pinned, c.streams, c.events,
          c.retained, (unsigned long long)c.misused);
    CHECK(!nccl_double_counts().comms && !nccl_double_counts().misused, "NCCL: left or misused");
    printf("%s: well\n", name);
    fflush(stdout);
}

int main(void)
{
    static const halay_inproc_faults_t late = {.seed = 7, .delay_polls_max = 30, .reorder = 1};
    cuda_double_settings()->devices = RANKS;
    CHECK(!cuInit(0), "init");
    for (int i = 0; i < 4; i++) {
        nccl_double_settings()->in_progress = i;
        run("posted", posted, i % 2 ? &late : NULL);
    }
    for (int i = 0; i < 4; i++) {
        run("blocking", blocking, i % 2 ? &late : NULL);
        nccl_double_settings()->one_order = 1;
        run("kept", kept, i % 2 ? &late : NULL);
        nccl_double_settings()->one_order = 0;
        CHECK(!nccl_double_counts().crossed, "another order on another rank");
    }
    for (int i = 0; i < 4 * OTHERS; i++) {
        other = (enum other)(i / 4);
        waits = i % 2;
        run(words[other], differs, i % 4 / 2 ? &late : NULL);
    }
    for (int i = 0; i < 2 * ENDS; i++) {
        end = (enum end)(i / 2);
        run("an end", ends, i % 2 ? &late : NULL);
    }
    run("left", left, NULL);
    return 0;
}
