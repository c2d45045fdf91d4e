/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Contexts that open NCCL by themselves, over the doubles of NCCL and of CUDA's driver; and those
 * that use our own group steps, since their ranks share a GPU. That ranks
 * agree on one of both, or all stage, with the reason; calls of all kinds that have group plans, on
 * nodes drawn by seed, against a serial reference; faults in each call of NCCL and of the driver,
 * and collectives that hang: all ranks have a verdict by the deadline, and no communicator is left.
 *
 *   test_nccl [shared_gpu] agree | calls SEED N | direct SEED N | kept SEED N | faults SEED N |
 *             hang | silence; SEED 0: all
 *
 * direct: as calls, with GPUDirect between nodes; then one adapter lacks it.
 */
#include <string.h>
#include <unistd.h>

#include "comm/comm.h"
#include "double/cuda/double.h"
#include "double/nccl/double.h"
#include "exec/device_comm.h"
#include "groups/nccl/library.h"
#include "ranks.h"
#include "reference.h"
#include "wire/endpoint.h"

#define CALL(name, arguments) extern int name arguments;
#include "device/cuda/driver.h"
HLY_CUDA_CALLS(CALL, CALL)
extern int cuCtxSynchronize(void);

enum { NODES_MAX = 3, COUNT = 500 };
#define BYTES    ((size_t)16 * COUNT * 8)
#define DEADLINE 1000000000ull

enum { ALLREDUCE, REDUCE_SCATTER, ALLGATHER, BROADCAST, ALLTOALL, KINDS };

static bool shares; /* all ranks share a GPU, and no NCCL is used */

static struct trial {
    int nranks, nodes[RANKS_MAX];
    bool one_gpu;        /* ranks share it */
    bool no_shared;      /* the last rank has none */
    const char *library; /* of `whose` ranks; NULL: all have NCCL */
    enum { OF_LAST, OF_FIRST, OF_ALL } whose;
    const char *why; /* no NCCL is used, and this is said; NULL: it is */
    int calls;
    uint64_t seed;
    const char *name; /* of the call that fails, */
    bool nccl;        /* of NCCL or of the driver; */
    uint64_t nth;     /* 0: none does */
    bool hangs;
    int form;    /* of the call that a rank does not make: 0; persistent: 1; in a group: 2 */
    bool direct; /* adapters read and write GPUs' memory */
    pthread_barrier_t barrier;
} trial;

/* ---------------------------------------------------------------- a rank */

struct data {
    void *gpu;
    uint64_t in, out;
    char *own, *want;
};

static char *inside(uint64_t at)
{
    char *p = cuda_double_inside(at, BYTES);
    CHECK(p, "not of a GPU");
    return p;
}

static int gpu_of(const struct trial *t, int rank)
{
    int n = 0;
    for (int r = 0; r < rank; r++)
        n += t->nodes[r] == t->nodes[rank];
    return t->one_gpu || shares ? 0 : n;
}

static void take(struct data *d, int gpu)
{
    CHECK(!cuInit(0) && !cuDevicePrimaryCtxRetain(&d->gpu, gpu) && !cuCtxPushCurrent_v2(d->gpu),
          "a GPU");
    CHECK(!cuMemAlloc_v2(&d->in, BYTES) && !cuMemAlloc_v2(&d->out, BYTES), "memory of it");
    d->own = malloc(BYTES);
    d->want = malloc(BYTES);
    CHECK(d->own && d->want, "no memory");
}

static void give(struct data *d, int gpu)
{
    CHECK(!cuMemFree_v2(d->in) && !cuMemFree_v2(d->out), "free");
    cuCtxPopCurrent_v2(&d->gpu);
    cuDevicePrimaryCtxRelease_v2(gpu);
    free(d->own);
    free(d->want);
}

struct form {
    int kind, root;
    size_t count;
    halay_type_t type;
    halay_op_t op;
    uint64_t salt;
};

static int call(const struct form *f, const struct data *d, halay_comm_t *comm)
{
    const void *in = (const void *)(uintptr_t)d->in;
    void *out = (void *)(uintptr_t)d->out;
    switch (f->kind) {
    case ALLREDUCE:
        return halay_allreduce(in, out, f->count, f->type, f->op, comm);
    case REDUCE_SCATTER:
        return halay_reduce_scatter(in, out, f->count, f->type, f->op, comm);
    case ALLGATHER:
        return halay_allgather(in, out, f->count, f->type, comm);
    case ALLTOALL:
        return halay_alltoall(f->salt % 2 ? HALAY_IN_PLACE : in, out, f->count, f->type, comm);
    default:
        return halay_broadcast(out, f->count, f->type, f->root, comm);
    }
}

static void want(const struct form *f, const struct rank *r, const struct data *d, size_t n)
{
    const size_t e = halay_type_bytes(f->type);
    for (size_t i = 0; i < n; i++) {
        const size_t first = f->kind == REDUCE_SCATTER ? (size_t)r->rank * f->count : 0;
        if (f->kind <= REDUCE_SCATTER)
            reference_result(f->type, f->op, r->nranks, first + i, f->salt, d->want + i * e);
        else if (f->kind == ALLTOALL)
            reference_input(f->type, f->op, (int)(i / f->count),
                            (size_t)r->rank * f->count + i % f->count, f->salt, d->want + i * e);
        else
            reference_input(f->type, f->op, f->kind == ALLGATHER ? (int)(i / f->count) : f->root,
                            f->kind == ALLGATHER ? i % f->count : i, f->salt, d->want + i * e);
    }
}

static void one(const struct form *f, struct rank *r, const struct data *d)
{
    const size_t e = halay_type_bytes(f->type), n = (size_t)r->nranks;
    const bool all = f->kind == ALLTOALL;
    const size_t nin = all || f->kind == REDUCE_SCATTER ? n * f->count : f->count;
    const size_t nout = all || f->kind == ALLGATHER ? n * f->count : f->count;
    for (size_t i = 0; i < nin; i++)
        reference_input(f->type, f->op, r->rank, i, f->salt, d->own + i * e);
    memcpy(inside(d->in), d->own, nin * e);
    memset(inside(d->out), 0x5a, BYTES);
    if (all || (f->kind == BROADCAST && r->rank == f->root)) /* in place, or not read */
        memcpy(inside(d->out), d->own, nin * e);
    want(f, r, d, nout);
    const int rc = call(f, d, r->world);
    CHECK(!rc, "rank %d, kind %d: %s", r->rank, f->kind, halay_strerror(rc));
    CHECK(!memcmp(inside(d->out), d->want, nout * e), "rank %d: kind %d, %zu %s %s", r->rank,
          f->kind, f->count, halay_type_name(f->type), halay_op_name(f->op));
}

/* The same on all ranks. */
static struct form draw(uint64_t *state)
{
    static const size_t counts[] = {1, 7, COUNT, 130, 64};
    struct form f = {.salt = ranks_random(state)};
    f.kind = (int)(ranks_random(state) % KINDS);
    f.count = counts[ranks_random(state) % 5];
    do {
        f.type = (halay_type_t)(ranks_random(state) % HALAY_TYPE_COUNT);
        f.op = (halay_op_t)(ranks_random(state) % HALAY_OP_COUNT);
    } while (f.kind <= REDUCE_SCATTER ? !halay_op_takes(f.op, f.type) || f.op == HALAY_PROD
                                      : f.op != HALAY_SUM);
    return f;
}

/* Opens the device and NCCL, by a call on another communicator. */
static void warm(struct rank *r, const struct data *d)
{
    const struct form f = {.kind = ALLREDUCE, .count = 7, .type = HALAY_INT32};
    halay_comm_t *dup;
    memset(inside(d->in), 0, BYTES);
    CHECK(!halay_comm_dup(r->world, &dup) && !call(&f, d, dup), "a call on another communicator");
}

static void check_agreed(const struct rank *r)
{
    const halay_comm_t *comm = hly_comm_of(r->world);
    const bool asked = (int)comm->nnodes < comm->nranks;
    CHECK(!!comm->nccl == asked, "asked");
    if (asked && trial.why)
        CHECK(comm->nccl->state == HLY_NCCL_NONE && strstr(comm->nccl->why, trial.why), "%u: %s",
              comm->nccl->state, comm->nccl->why);
    else if (asked)
        CHECK(comm->nccl->state == HLY_NCCL_AGREED, "%s", comm->nccl->why);
    if (asked && !trial.why)
        CHECK(!strcmp(comm->nccl->library->name, shares ? "Halay's kernels" : "nccl 2.28.9"), "%s",
              comm->nccl->why);
    const struct hly_link *first = comm->dcomms ? comm->dcomms->list.next : NULL;
    if (shares && comm->nnodes == 1 && comm->nranks > 1 && !trial.why)
        CHECK(first && HLY_OF(first, struct hly_device_comm, link)->order > 0, "they do nothing");
}

/* ---------------------------------------------------------------- persistent, and in groups */

enum { PARTS = 3, KEPT = 24 };

/* Of the calls of a group, each has a part of the buffers. */
static void fill_part(const struct rank *r, const struct data *d, size_t part, int round)
{
    int32_t *in = (int32_t *)(void *)inside(d->in) + part * COUNT;
    for (int i = 0; i < COUNT; i++)
        in[i] = (r->rank + 1) * (i + round + (int)part);
}

static void check_part(const struct rank *r, const struct data *d, size_t part, int round)
{
    const int32_t *out = (const int32_t *)(const void *)inside(d->out) + part * COUNT;
    const int n = r->nranks * (r->nranks + 1) / 2;
    for (int i = 0; i < COUNT; i++)
        CHECK(out[i] == n * (i + round + (int)part), "rank %d, round %d, part %zu, element %d: %d",
              r->rank, round, part, i, out[i]);
}

static int post_part(struct rank *r, const struct data *d, size_t part, halay_request_t **request)
{
    return halay_iallreduce((const int32_t *)(uintptr_t)d->in + part * COUNT,
                            (int32_t *)(uintptr_t)d->out + part * COUNT, COUNT, HALAY_INT32,
                            HALAY_SUM, r->world, request);
}

/* A group of two calls, one call behind it, and a wait for them from the last to the first. */
static void group_round(struct rank *r, const struct data *d, int round)
{
    halay_request_t *member, *group, *behind;
    for (size_t p = 0; p < PARTS; p++)
        fill_part(r, d, p, round);
    CHECK(!halay_group_begin(r->world), "begin");
    CHECK(!post_part(r, d, 0, &member) && !post_part(r, d, 1, &member), "members");
    CHECK(!halay_group_end(r->world, &group), "end");
    CHECK(!post_part(r, d, 2, &behind), "behind it");
    CHECK(!halay_request_wait(behind) && !halay_request_wait(group), "wait");
    for (size_t p = 0; p < PARTS; p++)
        check_part(r, d, p, round);
}

/* Every other rank makes the call itself. */
static void start_round(struct rank *r, const struct data *d, halay_request_t *kept, int round)
{
    fill_part(r, d, 0, round);
    if ((r->rank + round) % 2) {
        CHECK(!halay_request_start(kept) && !halay_request_wait(kept), "start %d", round);
    } else {
        halay_request_t *once;
        CHECK(!post_part(r, d, 0, &once) && !halay_request_wait(once), "call %d", round);
    }
    check_part(r, d, 0, round);
}

static halay_request_t *keep(struct rank *r, const struct data *d)
{
    halay_request_t *kept;
    CHECK(!halay_allreduce_init((const void *)(uintptr_t)d->in, (void *)(uintptr_t)d->out, COUNT,
                                HALAY_INT32, HALAY_SUM, r->world, &kept),
          "init");
    return kept;
}

/* From before ranks agree till long after, whoever made the request when. */
static void kept_body(struct rank *r)
{
    struct data d;
    halay_request_t *kept = NULL, *late;
    take(&d, gpu_of(&trial, r->rank));
    if (r->rank % 2)
        kept = keep(r, &d);
    for (int i = 0; i < KEPT; i++) {
        if (!kept)
            kept = keep(r, &d);
        if ((trial.seed >> i & 1) == 0)
            group_round(r, &d, i);
        start_round(r, &d, kept, i);
    }
    check_agreed(r);
    const uint64_t before = nccl_double_counts().collectives;
    pthread_barrier_wait(&trial.barrier);
    late = keep(r, &d);
    CHECK(!halay_request_start(late) && !halay_request_wait(late), "made afterwards");
    group_round(r, &d, KEPT);
    pthread_barrier_wait(&trial.barrier);
    CHECK(trial.why || shares || nccl_double_counts().collectives >= before + 4, "they use NCCL");
    CHECK(!halay_request_free(late) && !halay_request_free(kept), "free");
    give(&d, gpu_of(&trial, r->rank));
}

static void body(struct rank *r)
{
    struct data d;
    const int gpu = gpu_of(&trial, r->rank);
    uint64_t state = trial.seed;
    const int without = trial.whose == OF_LAST ? r->nranks - 1 : 0;
    if (trial.library && (trial.whose == OF_ALL || r->rank == without)) {
        r->context->settings.no_nccl = !strcmp(trial.library, "own");
        strcpy(r->context->settings.nccl, r->context->settings.no_nccl ? "" : trial.library);
    }
    r->context->settings.no_shared_gpu = trial.no_shared && r->rank == r->nranks - 1;
    r->context->settings.shared_gpu_least_bytes = 1; /* short calls, too */
    take(&d, gpu);
    CHECK(!r->context->nccl.looked, "NCCL is opened before there is a call");
    for (int i = 0; i < trial.calls; i++) {
        struct form f = draw(&state);
        f.root = (int)(f.salt % (uint64_t)r->nranks);
        one(&f, r, &d);
    }
    one(&(struct form){ALLREDUCE, 0, COUNT, HALAY_INT32, HALAY_SUM, 1}, r, &d); /* is grouped */
    check_agreed(r);
    give(&d, gpu);
}

/* ---------------------------------------------------------------- trials */

static void check_clean(void)
{
    const struct cuda_double_counts c = cuda_double_counts();
    const struct nccl_double_counts n = nccl_double_counts();
    CHECK(!c.allocations && !c.pinned && !c.streams && !c.events && !c.retained && !c.misused,
          "%d, %d, %d, %d, %d left, %llu misused", c.allocations, c.pinned, c.streams, c.events,
          c.retained, (unsigned long long)c.misused);
    CHECK(!n.comms && !n.misused, "%d communicators left, %llu misused", n.comms,
          (unsigned long long)n.misused);
}

static bool shared(const struct trial *t)
{
    bool any = false;
    for (int i = 0; i < t->nranks; i++)
        for (int j = 0; j < i; j++)
            any = any || t->nodes[i] == t->nodes[j];
    return any;
}

static bool several(void)
{
    for (int i = 1; i < trial.nranks; i++)
        if (trial.nodes[i] != trial.nodes[0])
            return true;
    return false;
}

static void run(void)
{
    const uint64_t before = nccl_double_counts().collectives;
    const struct cuda_double_counts gpus = cuda_double_counts();
    const halay_inproc_faults_t late = {.seed = trial.seed, .late_put_polls = 4};
    struct ranks_options o = {.nranks = trial.nranks,
                              .node_of_rank = trial.nodes,
                              .faults = trial.direct ? &late : NULL,
                              .deadline_ns = 60000000000ull};
    ranks_run(&o, body, NULL);
    const uint64_t launched = nccl_double_counts().collectives - before;
    const bool groups = shared(&trial) && !trial.why && !shares;
    CHECK(!!launched == groups, "%llu collectives of NCCL", (unsigned long long)launched);
    if (shared(&trial) && trial.direct && several())
        CHECK(cuda_double_counts().exports > gpus.exports &&
                  cuda_double_counts().flushes > gpus.flushes,
              "nothing went directly");
    check_clean();
    printf("%d ranks, nodes", trial.nranks);
    for (int i = 0; i < trial.nranks; i++)
        printf(" %d", trial.nodes[i]);
    printf(": %llu collectives of NCCL%s%s\n", (unsigned long long)launched,
           trial.why ? ", since " : "", trial.why ? trial.why : "");
    fflush(stdout);
}

/* Communicators that are freed, or end with the context, while the ranks agree. Of the freed ones
 * no more are kept than of others, and nobody is told of an agreement that came to nothing. */
static void leaves(struct rank *r)
{
    enum { MANY = 4 * HLY_FREED_MAX, KEPT_DUPS = 8 };
    const struct form f = {.kind = ALLREDUCE, .count = 7, .type = HALAY_INT32, .op = HALAY_SUM};
    struct data d;
    halay_comm_t *dup;
    take(&d, r->rank);
    for (int i = 0; i < (trial.calls ? MANY : KEPT_DUPS); i++) {
        CHECK(!halay_comm_dup(r->world, &dup) && !call(&f, &d, dup), "call on dup %d", i);
        CHECK(!trial.calls || !halay_comm_free(dup), "free");
    }
    CHECK(r->context->ncomms <= 2 * HLY_FREED_MAX, "%u communicators are left", r->context->ncomms);
    const int rc = halay_finalize(r->context);
    CHECK(!rc, "rank %d: finalize: %s", r->rank, halay_strerror(rc));
    give(&d, r->rank);
}

static void leave(void)
{
    const halay_inproc_faults_t late = {.seed = 9, .delay_polls_max = 20, .reorder = 1};
    for (int i = 0; i < 30; i++) {
        trial = (struct trial){.nranks = 4, .calls = i == 0};
        ranks_run(
            &(struct ranks_options){.nranks = 4, .faults = i % 2 ? &late : NULL, .keep = true},
            leaves, NULL);
    }
}

/* What the ranks write meanwhile. */
static const char *told_in_run(void)
{
    static char told[65536];
    FILE *file = tmpfile();
    const int err = dup(STDERR_FILENO);
    CHECK(file && err >= 0, "no file");
    CHECK(dup2(fileno(file), STDERR_FILENO) >= 0, "dup2");
    run();
    CHECK(dup2(err, STDERR_FILENO) >= 0 && !close(err), "dup2");
    rewind(file);
    told[fread(told, 1, sizeof(told) - 1, file)] = '\0';
    CHECK(!fclose(file), "close");
    return told;
}

/* Runs, and writes this to standard error. */
static void says(const char *text)
{
    const char *told = told_in_run();
    CHECK(strstr(told, text), "not '%s' in: %s", text, told);
}

static void agree(void)
{
    const struct trial two = {.nranks = 3, .nodes = {0, 0, 1}, .calls = 30, .seed = 1};
    trial = two;
    run();
    trial.library = "own";
    trial.why = "rank 2 has no NCCL";
    run();
    trial.library = "libnccl-is-not-here.so";
    says("HALAY_NCCL_LIBRARY is \"libnccl-is-not-here.so\", which cannot be used");
    trial = two;
    trial.why = "ranks 0 and 1 share a GPU, which NCCL refuses; and Halay's kernels need ranks 0 "
                "and 1 to share";
    cuda_double_settings()->one_place = 1; /* as instances of one */
    run();
    cuda_double_settings()->one_place = 0;
    trial.nranks = 2;
    trial.why = "and rank 1 has NCCL";
    nccl_double_settings()->other_version = 22304;
    run();
    nccl_double_settings()->other_version = 0;
    nccl_double_settings()->version = 21703;
    trial.why = "rank 0 has NCCL 2.17.3, and 2.18 is needed";
    run();
    nccl_double_settings()->version = 22809;
    trial = (struct trial){.nranks = 3, .nodes = {0, 1, 2}, .calls = 20, .seed = 1};
    run(); /* nobody is asked */
    leave();
}

static void draw_nodes(uint64_t *state)
{
    trial.nranks = 1 + (int)(ranks_random(state) % 8);
    int nodes = 0;
    const int most = 1 + (int)(ranks_random(state) % NODES_MAX);
    for (int i = 0; i < trial.nranks; i++) {
        const int node = (int)(ranks_random(state) % (uint64_t)most);
        trial.nodes[i] = node < nodes ? node : nodes;
        nodes = trial.nodes[i] == nodes ? nodes + 1 : nodes;
    }
}

static void calls(uint64_t seed, int n, bool direct)
{
    for (int i = 0; i < n; i++) {
        uint64_t state = seed + (uint64_t)i;
        printf("seed %llu: ", (unsigned long long)state);
        trial = (struct trial){.calls = 40, .seed = state, .direct = direct};
        draw_nodes(&state);
        nccl_double_settings()->in_progress = (int)(ranks_random(&state) % 4);
        cuda_double_settings()->seed = state;
        run();
    }
}

/* ---------------------------------------------------------------- GPUDirect */

/* Of two nodes of two ranks one leader's adapter cannot: all have its verdict. */
static void lacks(struct rank *r)
{
    const struct form f = {.kind = ALLREDUCE, .count = COUNT, .type = HALAY_INT32};
    halay_verdict_t v = {.size = sizeof(v)};
    struct data d;
    take(&d, gpu_of(&trial, r->rank));
    memset(inside(d.in), 0, BYTES);
    if (r->rank == 3)
        for (int t = 0; t < r->context->ntransports; t++)
            r->context->transports[t].attr.capabilities &= ~(uint32_t)HALAY_CAN_DEVICE;
    const int rc = call(&f, &d, r->world);
    CHECK(rc == HALAY_EDEVICE, "%s", halay_strerror(rc));
    CHECK(!halay_comm_verdict(r->world, &v) && v.rank == 3, "rank %d: %s", v.rank, v.text);
    CHECK(strstr(v.text, "HALAY_GPUDIRECT=0"), "%s", v.text);
    give(&d, gpu_of(&trial, r->rank));
}

/* What rank 0 tells of its calls has `says`. */
static void explains(const char *text)
{
    CHECK(!setenv("HALAY_EXPLAIN", "1", 1), "setenv");
    says(text);
    CHECK(!unsetenv("HALAY_EXPLAIN"), "unsetenv");
}

static int times(const char *text, const char *what)
{
    int n = 0;
    for (const char *at = text; (at = strstr(at, what)); at += strlen(what))
        n++;
    return n;
}

/* So many ranks warn of their HALAY_NCCL_LIBRARY, with `says`, and so often rank 0 of staged calls,
 * once each. */
static void warns(const char *library, int whose, int own, int staged, const char *says)
{
    trial = (struct trial){.nranks = 3, .nodes = {0, 0, 1}, .library = library, .calls = 5};
    trial.whose = whose;
    trial.why = library ? "has no NCCL" : NULL;
    const char *told = told_in_run();
    CHECK(times(told, "]: HALAY_NCCL_LIBRARY is \"") == own && (!own || strstr(told, says)),
          "%s, %d: not %d of %s in: %s", library, whose, own, says, told);
    CHECK(times(told, "halay warning [rank 0 on") == staged + (own && whose != OF_LAST) &&
              times(told, "calls in GPUs' memory are staged") == staged,
          "%s, %d: rank 0: %s", library, whose, told);
    CHECK(times(told, "warning") == own + staged, "%s, %d: %s", library, whose, told);
}

static void agree_all(void)
{
    agree();
    warns(NULL, OF_LAST, 0, 0, "");
    warns("own", OF_LAST, 0, 1, "");
    warns("own", OF_FIRST, 0, 1, "");
    warns("own", OF_ALL, 0, 0, "");
    warns("OFF", OF_LAST, 1, 1,
          "\"OFF\", which cannot be used: there is no NCCL: OFF: cannot open");
    warns(" ", OF_FIRST, 1, 1, "\" \", which cannot be used");
    warns("/", OF_ALL, 3, 0, "/ is not a file. Name a file of NCCL 2.18");
    warns("libpthread.so.0", OF_ALL, 3, 0, "is not NCCL: it lacks ncclGetVersion. Name");
}

static void direct(uint64_t seed, int n)
{
    CHECK(!setenv("HALAY_GPUDIRECT", "1", 1), "setenv");
    cuda_double_settings()->ordered = 0; /* each message that has come is flushed */
    calls(seed, n, true);
    trial = (struct trial){.nranks = 3, .nodes = {0, 0, 1}, .direct = true};
    explains("in device memory: hierarchical and direct");
    trial = (struct trial){.nranks = 4, .nodes = {0, 0, 1, 1}};
    struct ranks_options o = {
        .nranks = trial.nranks, .node_of_rank = trial.nodes, .deadline_ns = 20000000000ull};
    ranks_run(&o, lacks, NULL);
    check_clean();
}

static void kept(uint64_t seed, int n)
{
    nccl_double_settings()->one_order = 1;
    for (int i = 0; i < n; i++) {
        const int nranks = 2 + i % 3;
        trial = (struct trial){.nranks = nranks, .seed = seed + (uint64_t)i * 0x5bd1e995};
        cuda_double_settings()->seed = trial.seed;
        nccl_double_settings()->in_progress = i % 4;
        CHECK(!pthread_barrier_init(&trial.barrier, NULL, (unsigned)nranks), "barrier");
        ranks_run(&(struct ranks_options){.nranks = nranks, .node_of_rank = trial.nodes}, kept_body,
                  NULL);
        pthread_barrier_destroy(&trial.barrier);
        CHECK(!nccl_double_counts().crossed, "another order on another rank");
        check_clean();
    }
    nccl_double_settings()->one_order = 0;
}

static void agree_ours(void)
{
    shares = true;
    trial = (struct trial){.nranks = 2, .calls = 20, .seed = 3};
    explains("grouped, all of it on the device, by Halay's kernels, since ranks 0 and 1 share");
    trial = (struct trial){.nranks = 3, .nodes = {0, 0, 1}, .library = "own", .calls = 20};
    explains("grouped in the node and over the stage between nodes, by Halay's kernels, since rank "
             "2 has no NC");
    trial.no_shared = true;
    trial.why = "rank 2 has no NCCL; rank 2 has no group steps by Halay's kernels";
    run();
}

/* ---------------------------------------------------------------- faults */

static void ends(struct rank *r)
{
    struct data d;
    const int gpu = gpu_of(&trial, r->rank);
    const struct form f = {.kind = ALLREDUCE, .count = COUNT, .type = HALAY_INT32};
    take(&d, gpu);
    warm(r, &d);
    pthread_barrier_wait(&trial.barrier);
    if (r->rank == 0 && trial.nth && trial.nccl)
        nccl_double_fail(trial.name, trial.nth, HLY_NCCL_SYSTEM_ERROR);
    else if (r->rank == 0 && trial.nth)
        cuda_double_fail(trial.name, trial.nth, 999);
    if (r->rank == 0 && trial.hangs && shares)
        cuda_double_halt(1);
    else if (r->rank == 0 && trial.hangs)
        nccl_double_settings()->hangs = 1;
    pthread_barrier_wait(&trial.barrier);
    const uint64_t start = ranks_now_ns();
    const int rc = call(&f, &d, r->world);
    const uint64_t took = ranks_now_ns() - start;
    halay_verdict_t v = {.size = sizeof(v)};
    CHECK(took < 10 * DEADLINE, "%s %llu: rank %d took %llu ms", trial.name,
          (unsigned long long)trial.nth, r->rank, (unsigned long long)took / 1000000);
    CHECK(!rc || (!halay_comm_verdict(r->world, &v) && v.text[0]), "%s: no verdict", trial.name);
    CHECK(!trial.why || (rc == HALAY_EDEVICE && strstr(v.text, trial.why)), "%s: %s: %s",
          trial.name, halay_strerror(rc), v.text);
    CHECK(!trial.hangs || rc == HALAY_EDEVICE, "%s", halay_strerror(rc));
    pthread_barrier_wait(&trial.barrier);
    if (r->rank == 0) {
        nccl_double_fail(NULL, 0, 0);
        cuda_double_fail(NULL, 0, 0);
        cuda_double_halt(0);
        if (trial.hangs && shares) /* calls that have failed may read what is freed now */
            CHECK(!cuCtxSynchronize(), "the GPU comes to an end");
    }
    pthread_barrier_wait(&trial.barrier);
    give(&d, gpu);
    halay_finalize(r->context); /* HALAY_EDEVICE where the call was over here before it failed */
}

static void fault(void)
{
    struct ranks_options o = {
        .nranks = trial.nranks, .node_of_rank = trial.nodes, .deadline_ns = DEADLINE, .keep = true};
    CHECK(!pthread_barrier_init(&trial.barrier, NULL, (unsigned)trial.nranks), "barrier");
    ranks_run(&o, ends, NULL);
    nccl_double_settings()->hangs = 0;
    pthread_barrier_destroy(&trial.barrier);
    CHECK(!nccl_double_counts().comms && !nccl_double_counts().misused,
          "%d communicators left, %llu misused", nccl_double_counts().comms,
          (unsigned long long)nccl_double_counts().misused);
    printf("%s, %llu: it ends\n", trial.hangs ? "a hang" : trial.name,
           (unsigned long long)trial.nth);
    fflush(stdout);
}

#define NAME_NCCL(result, name, arguments) {#name, true},
#define NAME_CUDA(name, arguments)         {#name, false},
static const struct {
    const char *name;
    bool nccl;
} names[] = {HLY_NCCL_CALLS(NAME_NCCL) HLY_CUDA_CALLS(NAME_CUDA, NAME_CUDA)};
enum { NAMES = sizeof(names) / sizeof(names[0]), NTH = 4 };

/* All are told NCCL's own words, and what to do. */
static void fault_words(void)
{
    static const char *const calls[] = {"ncclGetUniqueId", "ncclCommInitRankConfig",
                                        "ncclCommGetAsyncError", "ncclAllReduce"};
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        trial = (struct trial){.nranks = 2, .name = calls[i], .nccl = true, .nth = 1};
        trial.why = ": said by the double. HALAY_NCCL_LIBRARY=own does without";
        fault();
    }
}

/* n 0: all. */
static void faults(uint64_t seed, int n)
{
    if (!shares)
        fault_words();
    for (size_t i = 0; i < (n ? (size_t)n : NAMES * NTH); i++) {
        const size_t at = n ? ranks_random(&seed) % (NAMES * NTH) : i;
        trial = (struct trial){.nranks = 4,
                               .nodes = {0, 0, at % 2, at % 2},
                               .name = names[at / NTH].name,
                               .nccl = names[at / NTH].nccl,
                               .nth = 1 + at % NTH};
        fault();
    }
}

/* ---------------------------------------------------------------- a rank that does not agree */

/* Rank 2 has made no call in a GPU's memory when the others wait for what it has: the first one was
 * wrong. Then it is absent; or makes its call in the host's memory. */
static void silent(struct rank *r)
{
    const struct form f = {.kind = ALLREDUCE, .count = COUNT, .type = HALAY_INT32};
    halay_verdict_t v = {.size = sizeof(v)};
    static int32_t host[RANKS_MAX][2][COUNT];
    int32_t(*own)[COUNT] = host[r->rank];
    halay_request_t *kept = NULL, *group = NULL;
    struct data d;
    take(&d, gpu_of(&trial, r->rank));
    memset(inside(d.in), 0, BYTES);
    int rc = r->rank == 2 ? halay_allreduce(own[0], own[1], COUNT, HALAY_INT32, HALAY_SUM, r->world)
                          : call(&f, &d, r->world);
    CHECK(rc == HALAY_EMISMATCH, "%s", halay_strerror(rc));
    CHECK(!halay_barrier(r->world), "barrier");
    if (trial.form == 1)
        kept = keep(r, &d);
    pthread_barrier_wait(&trial.barrier);
    const uint64_t start = ranks_now_ns();
    if (r->rank == 2 && trial.hangs)
        goto absent;
    if (r->rank == 2) {
        rc = halay_allreduce(own[0], own[1], COUNT, HALAY_INT32, HALAY_SUM, r->world);
    } else if (trial.form == 0) {
        rc = call(&f, &d, r->world);
    } else if (trial.form == 1) {
        CHECK(!halay_request_start(kept), "start");
        rc = halay_request_wait(kept);
    } else {
        halay_request_t *member;
        CHECK(!halay_group_begin(r->world) && !post_part(r, &d, 0, &member), "begin");
        CHECK(!halay_group_end(r->world, &group), "end");
        rc = halay_request_wait(group);
    }
    const uint64_t took = ranks_now_ns() - start;
    CHECK(!halay_comm_verdict(r->world, &v), "no verdict");
    CHECK(v.sequence == 2, "call %u: %s", v.sequence, v.text);
    if (trial.hangs) {
        CHECK(rc == HALAY_ETIMEOUT && v.rank == 2 && strstr(v.text, "rank 2 of 3") &&
                  strstr(v.text, "has not made this call") && strstr(v.text, "HALAY_DEADLINE") &&
                  strstr(v.text, trial.form == 2 ? "group of 1" : "allreduce of 500 int32"),
              "%s: %d, %s", halay_strerror(rc), v.rank, v.text);
        CHECK(took < 20 * DEADLINE, "rank %d took %llu ms", r->rank,
              (unsigned long long)took / 1000000);
    } else {
        CHECK(rc == HALAY_EMISMATCH && strstr(v.text, "rank 2"), "%s: %s", halay_strerror(rc),
              v.text);
        printf("rank %d: %llu ms\n", r->rank, (unsigned long long)took / 1000000);
    }
absent:
    pthread_barrier_wait(&trial.barrier);
    CHECK(!kept || !halay_request_free(kept), "free");
    give(&d, gpu_of(&trial, r->rank));
    halay_finalize(r->context);
}

static void silence(void)
{
    for (int form = 0; form < 3; form++)
        for (int hangs = 0; hangs < 2; hangs++) {
            trial = (struct trial){.nranks = 3, .hangs = hangs, .form = form};
            struct ranks_options o = {
                .nranks = 3, .node_of_rank = trial.nodes, .deadline_ns = DEADLINE, .keep = true};
            CHECK(!pthread_barrier_init(&trial.barrier, NULL, 3), "barrier");
            ranks_run(&o, silent, NULL);
            pthread_barrier_destroy(&trial.barrier);
            check_clean();
        }
}

static void hang(void)
{
    trial = (struct trial){.nranks = 3, .nodes = {0, 0, 0}, .name = "hang", .hangs = true};
    fault();
    trial.nranks = 4;
    trial.nodes[2] = trial.nodes[3] = 1;
    fault();
}

int main(int argc, char **argv)
{
    shares = argc > 1 && !strcmp(argv[1], "shared_gpu");
    argc -= shares;
    argv += shares;
    const char *what = argc > 1 ? argv[1] : "agree";
    const uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    const int n = argc > 3 ? atoi(argv[3]) : 0;
    if (shares && strcmp(what, "agree") != 0) /* short calls, too */
        setenv("HALAY_NCCL_LIBRARY", "own:1", 1);
    cuda_double_settings()->devices = 8;
    cuda_double_settings()->bytes = (size_t)2 << 30;
    if (!strcmp(what, "agree") && shares)
        agree_ours();
    else if (!strcmp(what, "agree"))
        agree_all();
    else if (!strcmp(what, "calls"))
        calls(seed, n ? n : 1000, false);
    else if (!strcmp(what, "direct"))
        direct(seed, n ? n : 1000);
    else if (!strcmp(what, "kept"))
        kept(seed, n ? n : 30);
    else if (!strcmp(what, "faults"))
        faults(seed, n);
    else if (!strcmp(what, "silence"))
        silence();
    else
        hang();
    return 0;
}
