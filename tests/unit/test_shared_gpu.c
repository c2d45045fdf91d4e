/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_shared_gpu.c - our own group steps alone, over the double of CUDA's driver; ranks are
 * threads or processes on one GPU: all kinds, types and operations against a serial reference,
 * several in flight, in place and not, runs that are empty, in one slice and in many; faults in
 * each call of the driver; members that abort, that die, that never come, and that poll no more;
 * device communicators whose meeting is over. Memory is freed as soon as it may be, so whoever
 * reads it later breaks the GPU's context.
 */
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <halay/device.h>

#include "../check.h"
#include "../double/cuda/double.h"
#include "../ranks/reference.h"
#include "device/cuda/driver.h"
#include "groups/shared_gpu/meeting.h"
#include "groups/shared_gpu/shared_gpu.h"

#define CALL(name, arguments) extern int name arguments;
HLY_CUDA_CALLS(CALL, CALL)

enum { RANKS_MAX = 9, FORMS_MAX = 2048, ELEMENTS = 640 };
#define TIMEOUT_NS 3000000000ull
static const halay_group_ops_t *const ops = &hly_group_shared_gpu;

struct form {
    uint32_t kind;
    halay_type_t type;
    halay_op_t op;
    size_t count[RANKS_MAX];
    bool in_place;
};

/* Of the last rank. */
enum event { NOTHING, ABORTS, NEVER_COMES, NEVER_LAUNCHES, DIES };

static struct shared {
    uint32_t n, nforms;
    size_t half_bytes; /* of a slab; 0: as it is */
    struct form form[FORMS_MAX];
    enum event event;
    int act_at; /* polls in vain before it aborts */
    bool fails; /* something does: how it ends counts, and not the data */
    int tries;  /* polls in vain before a rank gives up */
    unsigned char id[HALAY_CIRCLE_ID_BYTES];
    int status[RANKS_MAX], abort_status[RANKS_MAX];
    pthread_barrier_t *barrier;
} shared;

/* Of processes. */
struct common {
    pthread_barrier_t barrier;
    unsigned char id[HALAY_CIRCLE_ID_BYTES];
};

struct buffer {
    uint64_t in, out;
    size_t own; /* of `in`, if that is a part of `out`, or the other way round: bytes before it */
};

static void check_clean(void)
{
    const struct cuda_double_counts c = cuda_double_counts();
    CHECK(!c.streams && !c.events && !c.allocations && !c.pinned && !c.retained && !c.pushed &&
              !c.misused && !c.broken && !c.opened,
          "%d streams, %d events, %d allocations, %d opened, %d pinned, %d retained, %d pushed, "
          "%llu misused, broken %d",
          c.streams, c.events, c.allocations, c.opened, c.pinned, c.retained, c.pushed,
          (unsigned long long)c.misused, c.broken);
}

static void pause_us(long us)
{
    nanosleep(&(struct timespec){.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000}, NULL);
}

/* ------------------------------------------------------------------ one launch */

static bool moves(const struct form *f)
{
    return f->kind == HALAY_GROUP_ALLGATHER || f->kind == HALAY_GROUP_BROADCAST ||
           f->kind == HALAY_GROUP_ALLTOALL;
}

static bool exchanges(const struct form *f)
{
    return f->kind == HALAY_GROUP_ALLTOALL;
}

static size_t before(const struct form *f, uint32_t rank)
{
    size_t at = 0;
    for (uint32_t i = 0; i < rank && f->kind != HALAY_GROUP_ALLREDUCE; i++)
        at += f->count[i];
    return at;
}

static size_t whole(const struct form *f)
{
    return f->kind == HALAY_GROUP_ALLREDUCE ? f->count[0] : before(f, shared.n);
}

/* Element i of what the rank gives: of the whole, or of its run. */
static void give(const struct form *f, uint32_t rank, size_t i, char *to)
{
    reference_input(f->type, f->op, (int)rank, i, f->kind * 31 + f->type, to);
}

static void prepare(const struct form *f, uint32_t me, struct buffer *b, halay_group_launch_t *l)
{
    const size_t e = halay_type_bytes(f->type), own = before(f, me) * e, bytes = whole(f) * e + 64;
    MUST(!cuMemAlloc_v2(&b->out, bytes));
    b->in = b->out;
    if (!f->in_place)
        MUST(!cuMemAlloc_v2(&b->in, bytes));
    uint64_t in = b->in + (f->in_place && moves(f) ? own : 0);
    uint64_t out = b->out + (f->in_place && !moves(f) ? own : 0);
    const size_t n = moves(f) && !exchanges(f) ? f->count[me] : whole(f);
    char *at = n ? cuda_double_inside(in, n * e) : NULL;
    for (size_t i = 0; i < n; i++)
        give(f, me, i, at + i * e);
    *l = (halay_group_launch_t){.size = sizeof(*l),
                                .kind = f->kind,
                                .type = f->type,
                                .op = f->op,
                                .n = shared.n,
                                .count = f->count,
                                .out = (void *)(uintptr_t)out,
                                .in = (void *)(uintptr_t)in};
}

static void drop(const struct form *f, const struct buffer *b)
{
    MUST(!cuMemFree_v2(b->out) && (f->in_place || !cuMemFree_v2(b->in)));
}

/* Products of complex numbers end with either 0, as the order has it. */
static bool same(halay_type_t type, const char *a, const char *b)
{
    float x[2], y[2];
    double v[2], w[2];
    if (type != HALAY_COMPLEX64 && type != HALAY_COMPLEX128)
        return !memcmp(a, b, halay_type_bytes(type));
    memcpy(x, a, sizeof(x));
    memcpy(y, b, sizeof(y));
    memcpy(v, a, halay_type_bytes(type));
    memcpy(w, b, halay_type_bytes(type));
    return type == HALAY_COMPLEX64 ? x[0] == y[0] && x[1] == y[1] : v[0] == w[0] && v[1] == w[1];
}

static void check(const struct form *f, uint32_t me, const halay_group_launch_t *l)
{
    const size_t e = halay_type_bytes(f->type), n = moves(f) ? whole(f) : f->count[me];
    const char *got = n ? cuda_double_inside((uint64_t)(uintptr_t)l->out, n * e) : NULL;
    uint32_t from = 0;
    size_t at = 0;
    for (size_t i = 0; i < n; i++, at++) {
        char want[16];
        for (; moves(f) && at == f->count[from]; at = 0)
            from++;
        if (moves(f))
            give(f, from, exchanges(f) ? before(f, me) + at : at, want);
        else
            reference_result(f->type, f->op, (int)shared.n, before(f, me) + i,
                             f->kind * 31 + f->type, want);
        CHECK(same(f->type, got + i * e, want),
              "rank %u of %u, kind %u %s %s%s, element %zu of %zu", me, shared.n, f->kind,
              halay_type_name(f->type), halay_op_name(f->op), f->in_place ? " in place" : "", i, n);
    }
}

/* ------------------------------------------------------------------ a rank */

struct rank {
    uint32_t me;
    bool acts; /* the event is its */
    halay_circle_t *dcomm;
    halay_group_launch_t launch[HLY_SHARED_GPU_FLIGHTS];
    struct buffer buffer[HLY_SHARED_GPU_FLIGHTS];
};

static int poll_one(struct rank *r, uint64_t ended)
{
    halay_group_done_t done;
    for (int i = 0; i < shared.tries; i++) {
        if (r->acts && shared.event == ABORTS && ended >= 3 && (ended > 3 || i == shared.act_at))
            return HALAY_ESTATE;
        if (r->acts && shared.event == DIES && ended >= 3 && (ended > 3 || i == shared.act_at))
            raise(SIGKILL);
        const int n = ops->poll(r->dcomm, &done, 1);
        if (n < 0)
            return n;
        if (n) {
            CHECK(done.cookie == ended + 1 && !done.status, "cookie %llu, status %d",
                  (unsigned long long)done.cookie, done.status);
            return HALAY_OK;
        }
        pause_us(20);
    }
    CHECK(shared.fails, "rank %u: launch %llu does not end", r->me, (unsigned long long)ended);
    return HALAY_ETIMEOUT;
}

/* As many in flight as there is room for. */
static int run_all(struct rank *r)
{
    uint64_t launched = 0, ended = 0;
    while (ended < shared.nforms) {
        const uint64_t at = launched % HLY_SHARED_GPU_FLIGHTS;
        int rc = HALAY_EAGAIN;
        if (launched < shared.nforms && launched - ended < HLY_SHARED_GPU_FLIGHTS &&
            !(r->acts && shared.event == NEVER_LAUNCHES && launched == 3)) {
            prepare(&shared.form[launched], r->me, &r->buffer[at], &r->launch[at]);
            r->launch[at].order = launched;
            r->launch[at].cookie = launched + 1;
            rc = ops->launch(r->dcomm, &r->launch[at]);
            launched += rc == HALAY_INPROGRESS;
            MUST(rc == HALAY_INPROGRESS || shared.fails);
        }
        if (rc != HALAY_INPROGRESS)
            rc = rc == HALAY_EAGAIN ? poll_one(r, ended) : rc;
        if (rc < 0) {
            const int off = shared.abort_status[r->me] = ops->abort(r->dcomm, TIMEOUT_NS);
            for (; !off && ended < launched; ended++)
                drop(&shared.form[ended], &r->buffer[ended % HLY_SHARED_GPU_FLIGHTS]);
            return rc;
        }
        if (rc == HALAY_INPROGRESS)
            continue;
        check(&shared.form[ended], r->me, &r->launch[ended % HLY_SHARED_GPU_FLIGHTS]);
        drop(&shared.form[ended], &r->buffer[ended % HLY_SHARED_GPU_FLIGHTS]);
        ended++;
    }
    return HALAY_OK;
}

static void *rank_run(void *arg)
{
    struct rank *r = arg;
    struct hly_shared_gpu *library = NULL;
    void *context = NULL;
    MUST(!cuInit(0) && !cuDevicePrimaryCtxRetain(&context, 0) && !cuCtxPushCurrent_v2(context));
    pthread_barrier_wait(shared.barrier);
    MUST(!hly_shared_gpu_open(0, shared.half_bytes, &library));
    int rc = HALAY_OK;
    if (!(r->acts && shared.event == NEVER_COMES))
        rc = ops->open(library, shared.id, r->me, shared.n, &r->dcomm);
    if (!rc && r->dcomm)
        rc = run_all(r);
    CHECK(!rc || shared.fails, "rank %u: %d", r->me, rc);
    shared.status[r->me] = rc;
    if (shared.event != DIES)
        pthread_barrier_wait(shared.barrier);
    if (r->dcomm)
        ops->close(r->dcomm, shared.fails ? 50000000 : TIMEOUT_NS);
    hly_shared_gpu_close(library);
    MUST(!cuCtxPopCurrent_v2(&context) && !cuDevicePrimaryCtxRelease_v2(0));
    return NULL;
}

/* How many ranks have not ended well. The event is the last one's. */
static uint32_t run(void)
{
    static struct rank rank[RANKS_MAX];
    pthread_barrier_t barrier;
    pthread_t thread[RANKS_MAX];
    uint32_t bad = 0;
    memset(rank, 0, sizeof(rank));
    memset(shared.abort_status, 0, sizeof(shared.abort_status));
    shared.tries = shared.fails ? 2000 : 500000;
    MUST(!ops->invite(NULL, shared.id));
    shared.barrier = &barrier;
    MUST(!pthread_barrier_init(&barrier, NULL, shared.n));
    for (uint32_t i = 0; i < shared.n; i++) {
        rank[i].me = i;
        rank[i].acts = i == shared.n - 1;
        MUST(!pthread_create(&thread[i], NULL, rank_run, &rank[i]));
    }
    for (uint32_t i = 0; i < shared.n; i++) {
        MUST(!pthread_join(thread[i], NULL));
        bad += shared.status[i] != HALAY_OK;
        MUST(!shared.abort_status[i]);
    }
    pthread_barrier_destroy(&barrier);
    return bad;
}

/* ------------------------------------------------------------------ tests */

static void add(uint32_t kind, halay_type_t type, halay_op_t op)
{
    static const size_t counts[] = {1, 5, 64, 130, 257, ELEMENTS};
    const uint32_t turn = shared.nforms++, n = shared.n;
    struct form *f = &shared.form[turn];
    *f = (struct form){kind, type, op, {0}, turn % 3 == 0 && kind != HALAY_GROUP_ALLTOALL};
    CHECK(turn < FORMS_MAX - 1, "too many");
    for (uint32_t i = 0; i < n; i++)
        f->count[i] = kind == HALAY_GROUP_ALLREDUCE ? counts[turn % 6]
                      : kind == HALAY_GROUP_REDUCE || kind == HALAY_GROUP_BROADCAST
                          ? (i == turn % n) * counts[turn % 6]
                      : turn % 2 || kind == HALAY_GROUP_ALLTOALL
                          ? 37 + turn % 3
                          : ((i + turn) % 3 > 0) * counts[(i + turn) % 4];
    if (!whole(f))
        f->count[0] = 3;
}

static void add_all(void)
{
    shared.nforms = 0;
    for (uint32_t kind = HALAY_GROUP_REDUCE_SCATTER; kind <= HALAY_GROUP_ALLTOALL; kind++)
        for (int t = 0; t < HALAY_TYPE_COUNT; t++)
            for (int o = 0; o < HALAY_OP_COUNT; o++) {
                const bool moved = moves(&(struct form){.kind = kind});
                if (moved ? o == HALAY_SUM && !halay_op_takes(HALAY_SUM, (halay_type_t)t)
                          : ops->query(NULL, kind, (halay_type_t)t, (halay_op_t)o) != HALAY_OK)
                    continue;
                if (!moved || o == HALAY_SUM)
                    add(kind, (halay_type_t)t, (halay_op_t)o);
            }
}

static void test_kinds(void)
{
    static const uint32_t ranks[] = {1, 2, 5, 9, 5};
    static const size_t half_bytes[] = {0, 1280, 10240, 9216, 0};
    for (size_t i = 0; i < sizeof(ranks) / sizeof(ranks[0]); i++) {
        shared.n = ranks[i];
        shared.half_bytes = half_bytes[i];
        add_all();
        cuda_double_settings()->seed = i + 1;
        cuda_double_settings()->delay_us = i % 2 ? 20 : 0;
        MUST(run() == 0);
        check_clean();
        printf("%u ranks: %u launches\n", shared.n, shared.nforms);
    }
    shared.half_bytes = 0;
}

static void test_offers(void)
{
    int offered = 0, taken = 0;
    for (int t = 0; t < HALAY_TYPE_COUNT; t++)
        for (int o = 0; o < HALAY_OP_COUNT; o++) {
            const halay_type_t type = (halay_type_t)t;
            offered += !ops->query(NULL, HALAY_GROUP_REDUCE, type, (halay_op_t)o);
            taken += o != HALAY_AVERAGE && halay_op_takes((halay_op_t)o, type);
        }
    CHECK(offered == taken && taken > 100, "%d of %d", offered, taken);
    MUST(!ops->query(NULL, HALAY_GROUP_ALLGATHER, HALAY_INT64_INT64, HALAY_SUM));
    MUST(ops->query(NULL, HALAY_GROUP_ALLREDUCE, HALAY_FLOAT32, HALAY_OP_USER));
    MUST(ops->query(NULL, HALAY_GROUP_ALLREDUCE, HALAY_FLOAT32, HALAY_AVERAGE));
    MUST(ops->query(NULL, 99, HALAY_FLOAT32, HALAY_SUM));
}

static void some_forms(uint32_t n)
{
    shared.n = n;
    shared.nforms = 0;
    while (shared.nforms < 12)
        add(HALAY_GROUP_REDUCE_SCATTER + shared.nforms % 6, HALAY_INT32, HALAY_SUM);
}

/* All come to an end by themselves, and nothing runs on. */
static void test_events(void)
{
    shared.fails = true;
    some_forms(3);
    for (shared.event = ABORTS; shared.event <= NEVER_LAUNCHES; shared.event++)
        for (uint32_t i = 0; i < 4; i++) {
            cuda_double_settings()->delay_us = i * 300;
            cuda_double_settings()->seed = i + 1;
            shared.act_at = (int)i * 3;
            const uint32_t bad = run();
            CHECK(bad == shared.n - (shared.event == NEVER_COMES), "%u have failed", bad);
            check_clean();
        }
    shared.event = NOTHING;
    shared.fails = false;
}

static void test_faults(void)
{
#define NAME(name, arguments) #name,
    static const char *const names[] = {HLY_CUDA_CALLS(NAME, NAME)};
    uint32_t failed = 0;
    shared.fails = true;
    cuda_double_settings()->delay_us = 50;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        for (uint64_t nth = 2; nth <= 7; nth += 5) {
            some_forms(nth == 2 ? 2 : 3);
            if (!strncmp(names[i], "cuMemAlloc", 10) || !strncmp(names[i], "cuMemFree_", 10) ||
                strstr(names[i], "Pop") || strstr(names[i], "Push") || strstr(names[i], "cuInit") ||
                strstr(names[i], "PrimaryCtx") || strstr(names[i], "Exchange"))
                continue; /* the test itself makes them */
            cuda_double_fail(names[i], nth, 999);
            const uint32_t bad = run();
            cuda_double_fail(NULL, 0, 0);
            CHECK(!bad || bad == shared.n, "%s: %u of %u have failed", names[i], bad, shared.n);
            failed += bad > 0;
            MUST(!cuda_double_counts().misused && !cuda_double_counts().allocations);
        }
    printf("%u faults were met\n", failed);
    CHECK(failed > 8, "%u", failed);
    shared.fails = false;
    some_forms(3);
    MUST(run() == 0);
}

/* ------------------------------------------------------------------ one thread, two members */

struct pair {
    struct hly_shared_gpu *library[2];
    halay_circle_t *dcomm[2];
    struct buffer buffer[2];
    halay_group_launch_t launch[2];
    void *context;
};

static void pair_make(struct pair *p)
{
    some_forms(2);
    shared.form[2].count[0] = shared.form[2].count[1] = ELEMENTS; /* both have a part */
    MUST(!cuInit(0) && !cuDevicePrimaryCtxRetain(&p->context, 0));
    MUST(!cuCtxPushCurrent_v2(p->context) && !ops->invite(NULL, shared.id));
    for (uint32_t i = 0; i < 2; i++) {
        MUST(!hly_shared_gpu_open(0, 0, &p->library[i]));
        MUST(!ops->open(p->library[i], shared.id, i, 2, &p->dcomm[i]));
        prepare(&shared.form[2], i, &p->buffer[i], &p->launch[i]); /* an allreduce */
        p->launch[i].cookie = 1;
        MUST(ops->launch(p->dcomm[i], &p->launch[i]) == HALAY_INPROGRESS);
    }
}

static void pair_free(struct pair *p)
{
    for (uint32_t i = 0; i < 2; i++) {
        drop(&shared.form[2], &p->buffer[i]);
        ops->close(p->dcomm[i], TIMEOUT_NS);
        hly_shared_gpu_close(p->library[i]);
    }
    MUST(!cuCtxPopCurrent_v2(&p->context) && !cuDevicePrimaryCtxRelease_v2(0));
}

/* Whose kernels read the slab of another member keeps nobody from giving up; and the slab stays as
 * long. */
static void test_sleeper(void)
{
    struct pair p;
    struct hly_meeting *m;
    halay_group_done_t done;
    pair_make(&p);
    cuda_double_settings()->delay_us = 0;
    MUST(!hly_meeting_enter(shared.id, 2, &m));
    while (m->member[0].ended < 1)
        MUST(ops->poll(p.dcomm[0], &done, 1) == 0);
    while (m->member[1].ended < 1) {
        cuda_double_halt(0);
        pause_us(2000);
        cuda_double_halt(1);
        MUST(ops->poll(p.dcomm[1], &done, 1) == 0);
    }
    MUST(m->member[1].reading && m->member[1].ended == 1);
    MUST(ops->abort(p.dcomm[0], TIMEOUT_NS) == HALAY_OK);
    const int allocations = cuda_double_counts().allocations;
    ops->close(p.dcomm[0], 1000000);
    p.dcomm[0] = NULL;
    MUST(cuda_double_counts().allocations == allocations);
    cuda_double_halt(0);
    while (m->member[1].ended < 2)
        ops->poll(p.dcomm[1], &done, 1);
    MUST(ops->poll(p.dcomm[1], &done, 1) == HALAY_EDEVICE); /* it waits, and hears of it */
    MUST(ops->abort(p.dcomm[1], TIMEOUT_NS) == HALAY_OK);
    hly_meeting_leave(m, 2);
    pair_free(&p);
    check_clean();
}

static int poll_till(halay_circle_t *dcomm, halay_group_done_t *done)
{
    int n = 0;
    for (int i = 0; i < 100000 && !n; i++, pause_us(20))
        n = ops->poll(dcomm, done, 1);
    return n;
}

/* Who waits for nobody ends it, after another member has told so and given up. */
static void test_ended(void)
{
    struct pair p;
    halay_group_done_t done;
    uint32_t first = 0;
    int n = 0;
    pair_make(&p);
    for (int i = 0; i < 100000 && !n; i++, pause_us(20)) {
        first = (uint32_t)i % 2;
        n = ops->poll(p.dcomm[first], &done, 1);
    }
    const uint32_t other = 1 - first;
    MUST(n == 1 && ops->abort(p.dcomm[first], TIMEOUT_NS) == HALAY_OK);
    ops->close(p.dcomm[first], 0);
    p.dcomm[first] = NULL;
    MUST(poll_till(p.dcomm[other], &done) == 1 && done.cookie == 1 && !done.status);
    check(&shared.form[2], other, &p.launch[other]);
    p.launch[other].order = 1;
    MUST(ops->launch(p.dcomm[other], &p.launch[other]) == HALAY_INPROGRESS);
    MUST(poll_till(p.dcomm[other], &done) == HALAY_EDEVICE);
    MUST(ops->abort(p.dcomm[other], TIMEOUT_NS) == HALAY_OK);
    pair_free(&p);
    check_clean();
}

/* An id whose meeting is over, one of which nobody has heard, and a launch for a graph. */
static void test_refusals(void)
{
    struct pair p;
    halay_circle_t *late;
    halay_stream_t stream = {.size = sizeof(stream)};
    unsigned char id[HALAY_CIRCLE_ID_BYTES];
    pair_make(&p);
    memcpy(id, shared.id, sizeof(id));
    id[0] ^= 1;
    MUST(ops->open(p.library[1], id, 1, 2, &late) == HALAY_EDEVICE);
    halay_group_launch_t l = p.launch[0];
    l.stream = &stream;
    MUST(ops->launch(p.dcomm[0], &l) == HALAY_EUNSUPPORTED);
    MUST(!ops->abort(p.dcomm[0], TIMEOUT_NS) && !ops->abort(p.dcomm[1], TIMEOUT_NS));
    struct hly_shared_gpu *library;
    memcpy(id, shared.id, sizeof(id));
    pair_free(&p);
    MUST(!hly_shared_gpu_open(1, 0, &library) &&
         ops->open(library, id, 1, 2, &late) == HALAY_EDEVICE);
    hly_shared_gpu_close(library);
    MUST(!ops->invite(NULL, id) && !hly_shared_gpu_open(7, 0, &library)); /* there is no GPU 7 */
    MUST(ops->open(library, id, 0, 1, &late) == HALAY_EDEVICE);
    hly_shared_gpu_close(library);
    check_clean();
}

/* Threads of one process have one word for one GPU; where memory is shared, processes have it, too.
 */
static void test_reach(void)
{
    uint64_t word[2][2];
    for (int ipc = 0; ipc < 2; ipc++)
        for (int gpu = 0; gpu < 2; gpu++) {
            struct hly_device_cuda_arg arg = {.ordinal = gpu + 1};
            halay_device_t *device;
            cuda_double_settings()->ipc = ipc;
            MUST(!hly_device_cuda.open(&arg, NULL, &device));
            word[ipc][gpu] = hly_shared_gpu_reach(device);
            MUST(word[ipc][gpu] && word[ipc][gpu] == hly_shared_gpu_reach(device));
            hly_device_cuda.close(device);
        }
    MUST(word[0][0] != word[0][1] && word[1][0] != word[1][1] && word[0][0] != word[1][0]);
    check_clean();
}

/* ------------------------------------------------------------------ processes */

static _Noreturn void process_run(uint32_t me, struct common *common)
{
    struct rank rank = {.me = me, .acts = me == shared.n - 1};
    MUST(me || !ops->invite(NULL, common->id));
    pthread_barrier_wait(&common->barrier);
    memcpy(shared.id, common->id, sizeof(shared.id));
    shared.barrier = &common->barrier;
    rank_run(&rank);
    MUST(!shared.abort_status[me]);
    MUST(cuda_double_counts().shared > 0);
    check_clean();
    _exit(shared.status[me] ? 3 : 0);
}

/* As run, with processes. The double is not yet in use in this one. */
static uint32_t run_processes(void)
{
    struct common *common =
        mmap(NULL, sizeof(*common), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pthread_barrierattr_t attr;
    pid_t process[RANKS_MAX];
    uint32_t bad = 0;
    MUST(common != MAP_FAILED && !pthread_barrierattr_init(&attr));
    MUST(!pthread_barrierattr_setpshared(&attr, PTHREAD_PROCESS_SHARED));
    MUST(!pthread_barrier_init(&common->barrier, &attr, shared.n));
    shared.tries = shared.fails ? 2000 : 500000;
    fflush(NULL);
    for (uint32_t i = 0; i < shared.n; i++) {
        process[i] = fork();
        MUST(process[i] >= 0);
        if (!process[i])
            process_run(i, common);
    }
    for (uint32_t i = 0; i < shared.n; i++) {
        int status;
        MUST(waitpid(process[i], &status, 0) == process[i]);
        const bool died = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
        CHECK(died ? shared.event == DIES : WIFEXITED(status) && WEXITSTATUS(status) % 3 == 0,
              "process %u: status %x", i, status);
        bad += status != 0;
    }
    munmap(common, sizeof(*common));
    return bad;
}

static void test_processes(void)
{
    static const uint32_t ranks[] = {2, 4};
    static const size_t half_bytes[] = {4096, 0};
    for (size_t i = 0; i < sizeof(ranks) / sizeof(ranks[0]); i++) {
        shared.n = ranks[i];
        shared.half_bytes = half_bytes[i];
        add_all();
        MUST(run_processes() == 0);
    }
    shared.half_bytes = 0;
    shared.fails = true;
    some_forms(3);
    shared.event = DIES;
    for (shared.act_at = 0; shared.act_at < 9; shared.act_at += 2)
        MUST(run_processes() == shared.n);
    shared.event = NOTHING;
    shared.fails = false;
}

int main(void)
{
    cuda_double_settings()->bytes = (size_t)1 << 30;
    cuda_double_settings()->dmabuf = 0; /* pages of their own have slabs alone */
    test_processes();                   /* first: a child of who has used CUDA has none */
    test_offers();
    test_reach();
    test_kinds();
    test_sleeper();
    test_ended();
    test_refusals();
    shared.half_bytes = 64u << 10; /* many slabs, which the double fills */
    test_events();
    test_faults();
    return 0;
}
