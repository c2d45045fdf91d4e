/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Wrong memory, streams, GPUs and drivers, over the double of CUDA's driver. One rank of three does
 * something wrong: all get the same error with the same words, which name that rank and say what to
 * do, long before the deadline; and the communicator is good for the next call. What only looks
 * wrong (managed and pinned memory, GPUs of other numbers, a capture elsewhere) works.
 */
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "device/cuda/driver.h"
#include "double/cuda/double.h"
#include "halay/local.h"
#include "ranks.h"

enum { RANKS = 3, WRONG = 1, COUNT = 1000 };
#define BYTES   (COUNT * sizeof(int32_t))
#define SOON_NS 5000000000ull

#define CALL(name, arguments) extern int name arguments;
HLY_CUDA_CALLS(CALL, CALL)
int cuMemAllocManaged(uint64_t *at, size_t bytes, unsigned flags);
int cuMemHostRegister_v2(void *at, size_t bytes, unsigned flags);
int cuMemHostUnregister(void *at);

static void *contexts[2]; /* the program's, of GPUs 0 and 1 */
static struct cuda_double_settings usual;

/* ---------------------------------------------------------------- what a program does */

static void enter(int gpu)
{
    CHECK(!cuCtxPushCurrent_v2(contexts[gpu]), "push");
}

static void leave(void)
{
    void *was;
    CHECK(!cuCtxPopCurrent_v2(&was), "pop");
}

static void *there(int gpu, size_t bytes)
{
    uint64_t at;
    enter(gpu);
    CHECK(!cuMemAlloc_v2(&at, bytes), "memory of GPU %d", gpu);
    leave();
    return (void *)(uintptr_t)at;
}

static void *managed(int gpu)
{
    uint64_t at;
    enter(gpu);
    CHECK(!cuMemAllocManaged(&at, BYTES, 1), "managed memory");
    leave();
    return (void *)(uintptr_t)at;
}

static void *pinned(void)
{
    void *at;
    enter(0);
    CHECK(!cuMemHostAlloc(&at, BYTES, HLY_CU_PORTABLE), "pinned memory");
    leave();
    return at;
}

static void drop(void *at)
{
    enter(0);
    CHECK(!cuMemFree_v2((uint64_t)(uintptr_t)at), "free");
    leave();
}

static void drop_pinned(void *at)
{
    enter(0);
    CHECK(!cuMemFreeHost(at), "free");
    leave();
}

/* Where the test itself reads and writes this memory. */
static int32_t *seen(void *at)
{
    int32_t *p = cuda_double_inside((uint64_t)(uintptr_t)at, BYTES);
    return p ? p : at;
}

/* ---------------------------------------------------------------- one rank's mistake */

struct state { /* of one rank */
    struct rank *r;
    void *in, *out, *kept[2]; /* kept: the right ones, on GPU 0 */
    void *extra[2], *stream;
};

static void two_gpus(struct state *s)
{
    s->out = s->extra[0] = there(1, BYTES);
}

static void other_gpu(struct state *s)
{
    s->in = s->extra[0] = there(1, BYTES);
    s->out = s->extra[1] = there(1, BYTES);
}

static int32_t host[2][COUNT];

static void host_out(struct state *s)
{
    s->out = host[1];
}

static void host_both(struct state *s)
{
    s->in = host[0];
    s->out = host[1];
}

static void managed_both(struct state *s)
{
    s->in = s->extra[0] = managed(0);
    s->out = s->extra[1] = managed(1);
}

static void pinned_out(struct state *s)
{
    s->out = s->extra[0] = pinned();
}

/* The rank's memory is given back before the call. */
static void freed(struct state *s)
{
    drop(s->kept[0]);
    s->kept[0] = there(0, BYTES); /* somewhere else */
    CHECK(s->kept[0] != s->in, "the double gives an address again");
}

static void short_out(struct state *s)
{
    s->out = s->extra[0] = there(0, BYTES / 2);
}

static void begins_before(struct state *s)
{
    s->in = (char *)s->in - 2 * sizeof(int32_t);
}

static void odd_in(struct state *s)
{
    s->extra[0] = there(0, BYTES + sizeof(int32_t));
    s->in = (char *)s->extra[0] + 1;
}

static void odd_out(struct state *s)
{
    s->extra[0] = there(0, BYTES + sizeof(int32_t));
    s->out = (char *)s->extra[0] + 2;
}

static void no_memory(struct state *s)
{
    s->in = s->extra[0] = mmap(NULL, BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

static void old_driver(struct state *s)
{
    (void)s;
    cuda_double_settings()->version = 10020;
}

static void old_gpu(struct state *s)
{
    (void)s;
    cuda_double_settings()->capability = 70;
}

static void split_gpu(struct state *s)
{
    (void)s;
    cuda_double_settings()->split = 1;
}

static void taken(struct state *s)
{
    (void)s;
    cuda_double_settings()->taken = 1;
}

static void full(struct state *s)
{
    (void)s;
    cuda_double_fail("cuStreamCreate", 1, HLY_CU_OUT_OF_MEMORY);
}

static void gone(struct state *s)
{
    (void)s;
    cuda_double_break(700);
}

static void damaged(struct state *s)
{
    (void)s;
    cuda_double_fail("cuPointerGetAttributes", 1, HLY_CU_ECC_UNCORRECTABLE);
}

static void stream_destroyed(struct state *s)
{
    enter(0);
    CHECK(!cuStreamDestroy_v2(s->stream), "destroy");
    leave();
    s->stream = NULL;
}

static void captured(struct state *s)
{
    cuda_double_capture(s->stream, 1);
}

static void well(struct state *s)
{
    cuda_double_fail(NULL, 0, 0);
    cuda_double_break(0);
    if (s->stream)
        cuda_double_capture(s->stream, 0);
    struct cuda_double_settings *now = cuda_double_settings(); /* streams read the rest of it */
    now->version = usual.version;
    now->capability = usual.capability;
    now->split = usual.split;
    now->taken = usual.taken;
}

/* ---------------------------------------------------------------- the table */

enum { COLD = 1, STREAM = 2, ELSEWHERE = 4 };

/* COLD: rank 1 has not met a GPU before. STREAM: its calls stand behind a stream. ELSEWHERE: which
 * they do not. words: of the verdict, all of them. */
static const struct row {
    const char *name;
    void (*spoil)(struct state *);
    int code;
    const char *words[3];
    int how;
} rows[] = {
    {"two GPUs in one call", two_gpus, HALAY_EINVAL, {"memory of GPU 1", "one context a GPU"}},
    {"memory of another GPU", other_gpu, HALAY_EINVAL, {"memory of GPU 1", "one context a GPU"}},
    {"output in the host's", host_out, HALAY_EINVAL, {"memory of two kinds", "of the same"}},
    {"all in the host's", host_both, HALAY_EMISMATCH, {"memory of a GPU", "the same calls"}},
    {"managed", managed_both, HALAY_OK, {NULL}},
    {"output pinned", pinned_out, HALAY_EINVAL, {"of two kinds", "pinned memory is the host's"}},
    {"freed", freed, HALAY_EINVAL, {"memory of no device", "was it freed"}},
    {"freed, first call", freed, HALAY_EINVAL, {"memory of no device", "was it freed"}, COLD},
    {"too short", short_out, HALAY_EINVAL, {"in part", "Is the count right"}},
    {"too short, first call", short_out, HALAY_EINVAL, {"in part", "Is the count right"}, COLD},
    {"begins before", begins_before, HALAY_EINVAL, {"in part", "Is the count right"}},
    {"odd input", odd_in, HALAY_EINVAL, {"its input buffer", "int32 has", "a multiple of 4"}},
    {"odd output", odd_out, HALAY_EINVAL, {"its output buffer", "int32 has", "a multiple of 4"}},
    {"odd, first call", odd_out, HALAY_EINVAL, {"its output buffer", "a multiple of 4"}, COLD},
    {"no memory at all", no_memory, HALAY_EINVAL, {"memory of no device", "was it freed"}},
    {"old driver", old_driver, HALAY_EDEVICE, {"CUDA 10.2", "11.0", "update"}, COLD},
    {"old GPU", old_gpu, HALAY_EDEVICE, {"GPU 0", "capability 7.0", "7.5"}, COLD},
    {"no unified addressing", split_gpu, HALAY_EDEVICE, {"without unified", "host"}, COLD},
    {"taken by another process",
     taken,
     HALAY_EDEVICE,
     {"GPU 0", "UNAVAILABLE", "nvidia-smi"},
     COLD},
    {"no room for streams", full, HALAY_ENOMEM, {"GPU 0", "cuStreamCreate", "nvidia-smi"}, COLD},
    {"its context died", gone, HALAY_EDEVICE, {"ILLEGAL_ADDRESS (700)", "end the job"}},
    {"its memory is damaged", damaged, HALAY_EDEVICE, {"(214)", "drain the node"}},
    {"stream destroyed", stream_destroyed, HALAY_EINVAL, {"destroyed", "or none"}, STREAM},
    {"stream captured", captured, HALAY_EUNSUPPORTED, {"graph", "outside of the capture"}, STREAM},
    {"captured elsewhere", captured, HALAY_OK, {NULL}, STREAM | ELSEWHERE},
};

enum { ALLREDUCE, ALLGATHER, FORMS };

struct board {
    const struct row *row;
    int form;
    struct ranks_board all;
};

static int call(const struct state *s, int form)
{
    halay_comm_t *comm = s->r->world;
    if (form == ALLREDUCE)
        return halay_allreduce(s->in, s->out, COUNT, HALAY_INT32, HALAY_SUM, comm);
    return halay_allgather(s->in, s->out, COUNT / RANKS, HALAY_INT32, comm);
}

static void right(struct state *s, int form)
{
    for (int i = 0; i < COUNT; i++)
        seen(s->in)[i] = s->r->rank * i + 1;
    const int rc = call(s, form);
    CHECK(!rc, "%s", halay_strerror(rc));
    for (int i = 0; form == ALLREDUCE && i < COUNT; i++)
        CHECK(seen(s->out)[i] == RANKS * (RANKS - 1) / 2 * i + RANKS, "element %d", i);
    for (int i = 0; form != ALLREDUCE && i < COUNT / RANKS * RANKS; i++)
        CHECK(seen(s->out)[i] == i / (COUNT / RANKS) * (i % (COUNT / RANKS)) + 1, "element %d", i);
}

static void begin(struct state *s, const struct board *b)
{
    uint32_t kind;
    s->in = s->kept[0] = there(0, BYTES);
    s->out = s->kept[1] = there(0, BYTES);
    if (b->row->how & STREAM) {
        halay_stream_t stream = {.size = sizeof(stream), .kind = HALAY_MEMORY_CUDA};
        enter(0);
        CHECK(!cuStreamCreate(&s->stream, HLY_CU_NON_BLOCKING), "stream");
        stream.handle = s->stream;
        CHECK(b->row->how & ELSEWHERE || !halay_comm_stream(s->r->world, &stream), "set");
        leave();
    }
    if (!(b->row->how & COLD))
        right(s, b->form);
    else if (s->r->rank != WRONG)
        CHECK(!halay_mem_kind(s->r->context, s->in, BYTES, &kind), "kind");
}

static void end(struct state *s)
{
    halay_comm_stream(s->r->world, NULL);
    enter(0);
    if (s->stream)
        CHECK(!cuStreamDestroy_v2(s->stream), "destroy");
    leave();
    for (int i = 0; i < 2; i++) {
        uint32_t type = 0;
        int which = HLY_CU_MEMORY_TYPE;
        void *value = &type;
        drop(s->kept[i]);
        if (!s->extra[i])
            continue;
        CHECK(!cuPointerGetAttributes(1, &which, &value, (uint64_t)(uintptr_t)s->extra[i]), "type");
        if (type == HLY_CU_MEMORY_HOST)
            drop_pinned(s->extra[i]);
        else if (type)
            drop(s->extra[i]);
        else
            munmap(s->extra[i], BYTES);
    }
}

/* All are told alike, and of rank 1; by how the driver answers all of them, of any. */
static void told(struct state *s, struct board *b, int code, bool anyone)
{
    halay_verdict_t v = {.size = sizeof(v)};
    const struct row *row = b->row;
    const int me = s->r->rank;
    CHECK(code == row->code, "%s, form %d, rank %d: %s", row->name, b->form, me,
          halay_strerror(code));
    if (!code)
        return;
    CHECK(!halay_comm_verdict(s->r->world, &v), "verdict");
    snprintf(b->all.text[me], sizeof(b->all.text[0]), "%s", v.text);
    pthread_barrier_wait(&b->all.barrier);
    CHECK(!strcmp(b->all.text[me], b->all.text[0]), "%s:\n%s\n%s", row->name, b->all.text[me],
          b->all.text[0]);
    if (!me)
        printf("%-26s %s\n", row->name, v.text);
    for (int i = 0; i < 3 && row->words[i]; i++)
        CHECK(strstr(v.text, row->words[i]), "%s: not \"%s\": %s", row->name, row->words[i],
              v.text);
    CHECK(anyone || v.rank == WRONG || v.other == WRONG, "%s: blames %d and %d: %s", row->name,
          v.rank, v.other, v.text);
    CHECK(v.host[0] && strstr(v.text, b->form == ALLREDUCE ? "allreduce" : "allgather"), "%s",
          v.text);
}

static void body(struct rank *r)
{
    struct board *b = r->arg;
    struct state s = {.r = r};
    begin(&s, b);
    pthread_barrier_wait(&b->all.barrier);
    if (r->rank == WRONG)
        b->row->spoil(&s);
    pthread_barrier_wait(&b->all.barrier);
    const uint64_t start = ranks_now_ns();
    if (b->row->code)
        told(&s, b, call(&s, b->form), b->row->spoil == gone || b->row->spoil == damaged);
    else
        right(&s, b->form);
    CHECK(ranks_now_ns() - start < SOON_NS, "%s: waited for the deadline", b->row->name);
    pthread_barrier_wait(&b->all.barrier);
    if (b->row->spoil == gone) { /* what lies in the host's memory is no GPU's */
        int32_t one = 1, sum = 0;
        CHECK(!halay_allreduce(&one, &sum, 1, HALAY_INT32, HALAY_SUM, r->world), "the host's");
        CHECK(sum == RANKS, "%d", sum);
        pthread_barrier_wait(&b->all.barrier);
    }
    if (r->rank == WRONG)
        well(&s);
    s.in = s.kept[0];
    s.out = s.kept[1];
    if (r->rank == WRONG && b->row->spoil == stream_destroyed)
        CHECK(!halay_comm_stream(r->world, NULL), "none");
    pthread_barrier_wait(&b->all.barrier);
    right(&s, b->form);
    pthread_barrier_wait(&b->all.barrier);
    end(&s);
}

/* ---------------------------------------------------------------- what works */

/* Pinned, registered in part and plain memory; and each rank on a GPU of its own number, as where
 * CUDA_VISIBLE_DEVICES differs. */
static void works(struct rank *r)
{
    static int32_t plain[RANKS][2][COUNT];
    struct state s = {.r = r};
    s.in = r->rank == 0 ? pinned() : plain[r->rank][0];
    s.out = plain[r->rank][1];
    enter(0);
    CHECK(r->rank != 1 || !cuMemHostRegister_v2(s.in, BYTES / 2, 1), "register");
    leave();
    right(&s, ALLREDUCE);
    enter(0);
    CHECK(r->rank != 1 || !cuMemHostUnregister(s.in), "unregister");
    leave();
    if (r->rank == 0)
        drop_pinned(s.in);
    s.in = there(r->rank == WRONG, BYTES);
    s.out = there(r->rank == WRONG, BYTES);
    right(&s, ALLREDUCE);
    right(&s, ALLGATHER);
    drop(s.in);
    drop(s.out);
}

/* Every type, also as a message, at each place that its elements may
 * have, and at those that they may not; what lies in the host's memory may lie anywhere. */
static void places(struct rank *r)
{
    static const size_t needs[HALAY_TYPE_COUNT] = {1, 1, 2, 2, 4, 4, 8, 8, 1, 2,
                                                   2, 4, 8, 4, 8, 4, 8, 4, 8};
    static char plain[RANKS][64];
    char *gpu = there(0, 64);
    for (int t = 0; t < HALAY_TYPE_COUNT; t++)
        for (size_t at = 1; at <= 16; at *= 2) {
            const int want = at < needs[t] ? HALAY_EINVAL : HALAY_OK;
            char *in = gpu + (r->rank == WRONG ? at : needs[t]);
            int rc = halay_broadcast(in, 1, (halay_type_t)t, 0, r->world);
            CHECK(rc == want, "rank %d, %s at %zu: %s", r->rank, halay_type_name((halay_type_t)t),
                  at, halay_strerror(rc));
            rc = halay_broadcast(plain[r->rank] + at, 1, (halay_type_t)t, 0, r->world);
            CHECK(!rc, "the host's: %s", halay_strerror(rc));
            if (r->rank <= WRONG)
                rc = r->rank ? halay_send(in, 1, (halay_type_t)t, 0, r->world)
                             : halay_recv(gpu, 1, (halay_type_t)t, WRONG, r->world);
            CHECK(r->rank > WRONG || rc == want, "message: %s", halay_strerror(rc));
        }
    drop(gpu);
}

/* All have failed alike, on rank 1's account or anybody's. */
static void same(struct rank *r, int rc, int code, bool anyone, const char *words)
{
    struct board *b = r->arg;
    halay_verdict_t v = {.size = sizeof(v)};
    CHECK(rc == code, "rank %d: %s", r->rank, halay_strerror(rc));
    CHECK(!halay_comm_verdict(r->world, &v) && strstr(v.text, words), "not \"%s\": %s", words,
          v.text);
    CHECK(anyone || v.rank == WRONG, "blames %d: %s", v.rank, v.text);
    snprintf(b->all.text[r->rank], sizeof(b->all.text[0]), "%s", v.text);
    pthread_barrier_wait(&b->all.barrier);
    CHECK(!strcmp(v.text, b->all.text[0]), "%s\n%s", v.text, b->all.text[0]);
    if (!r->rank)
        printf("%s\n", v.text);
    pthread_barrier_wait(&b->all.barrier);
}

/* Memory is freed of which a request was made; or is the one of a group's calls that is wrong. */
static void kept(struct rank *r)
{
    struct state s = {.r = r, .in = there(0, BYTES), .out = there(0, BYTES)};
    halay_request_t *q, *other;
    CHECK(!halay_allreduce_init(s.in, s.out, COUNT, HALAY_INT32, HALAY_SUM, r->world, &q), "init");
    CHECK(!halay_request_start(q) && !halay_request_wait(q), "start");
    if (r->rank == WRONG)
        drop(s.in);
    CHECK(!halay_request_start(q), "start");
    same(r, halay_request_wait(q), HALAY_EINVAL, false, "was it freed");
    CHECK(!halay_request_free(q), "free");
    CHECK(!halay_group_begin(r->world), "group");
    halay_iallreduce(s.in, s.out, COUNT, HALAY_INT32, HALAY_SUM, r->world, &other);
    CHECK(!halay_group_end(r->world, &q), "group");
    same(r, halay_request_wait(q), HALAY_EINVAL, false, "was it freed");
    s.in = r->rank == WRONG ? there(0, BYTES) : s.in;
    right(&s, ALLREDUCE);
    drop(s.in);
    drop(s.out);
}

/* The context dies while the GPU works for a call: this one and the next have the driver's words.
 */
static void dies(struct rank *r)
{
    struct board *b = r->arg;
    struct state s = {.r = r, .in = there(0, BYTES), .out = there(0, BYTES)};
    halay_request_t *q;
    right(&s, ALLREDUCE);
    pthread_barrier_wait(&b->all.barrier);
    if (!r->rank)
        cuda_double_halt(1);
    pthread_barrier_wait(&b->all.barrier);
    CHECK(!halay_iallreduce(s.in, s.out, COUNT, HALAY_INT32, HALAY_SUM, r->world, &q), "post");
    pthread_barrier_wait(&b->all.barrier);
    if (!r->rank)
        cuda_double_break(700);
    same(r, halay_request_wait(q), HALAY_EDEVICE, true, "ILLEGAL_ADDRESS (700)");
    if (!r->rank) {
        cuda_double_halt(0);
        cuda_double_break(0);
    }
    pthread_barrier_wait(&b->all.barrier);
    same(r, call(&s, ALLREDUCE), HALAY_EDEVICE, true, "ILLEGAL_ADDRESS (700)");
    drop(s.in);
    drop(s.out);
}

/* Rank 0's GPU stands in a call, and in a later one, which needs more memory of it: both say so.
 * What its work may still write to is kept for ever. */
static void stands(struct rank *r)
{
    enum { MANY = 1 << 20 };
    struct board *b = r->arg;
    struct state s = {.r = r, .in = there(0, MANY * 4), .out = there(0, MANY * 4)};
    right(&s, ALLREDUCE);
    pthread_barrier_wait(&b->all.barrier);
    if (!r->rank)
        cuda_double_halt(1);
    pthread_barrier_wait(&b->all.barrier);
    same(r, call(&s, ALLREDUCE), HALAY_EDEVICE, true, "end the job");
    same(r, halay_allreduce(s.in, s.out, MANY, HALAY_INT32, HALAY_SUM, r->world), HALAY_EDEVICE,
         true, "does not come to an end of its work: end the job");
    pthread_barrier_wait(&b->all.barrier);
    if (!r->rank)
        cuda_double_halt(0);
    halay_finalize(r->context);
}

/* A process forked after CUDA was used: no call of ours reaches the driver there. */
static void forked(struct rank *r)
{
    struct state s = {.r = r, .in = there(0, BYTES), .out = there(0, BYTES)};
    halay_stream_t stream = {.size = sizeof(stream), .kind = HALAY_MEMORY_CUDA};
    void *at;
    uint32_t kind;
    int status;
    CHECK(!halay_allreduce(s.in, s.out, COUNT, HALAY_INT32, HALAY_SUM, r->world), "call");
    const pid_t child = fork();
    CHECK(child >= 0, "fork");
    if (!child) {
        const uint64_t calls = cuda_double_counts().calls;
        int bad =
            halay_allreduce(s.in, s.out, COUNT, HALAY_INT32, HALAY_SUM, r->world) != HALAY_EFORKED;
        bad += halay_comm_stream(r->world, &stream) != HALAY_EFORKED;
        bad += halay_mem_kind(r->context, s.in, BYTES, &kind) != HALAY_EFORKED;
        bad += halay_local_alloc(r->context, HALAY_MEMORY_CUDA, 8, &at) != HALAY_EFORKED;
        bad += halay_local_free(r->context, HALAY_MEMORY_CUDA, s.in) != HALAY_EFORKED;
        halay_finalize(r->context);
        bad += 10 * (cuda_double_counts().calls != calls);
        _exit(bad);
    }
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && !WEXITSTATUS(status),
          "the child: %x", status);
    CHECK(!halay_allreduce(s.in, s.out, COUNT, HALAY_INT32, HALAY_SUM, r->world), "afterwards");
    drop(s.in);
    drop(s.out);
}

/* ---------------------------------------------------------------- */

static void run(const struct row *row, int form, bool shm)
{
    struct board board = {.row = row, .form = form};
    struct ranks_options o = {.nranks = RANKS, .shm = shm};
    pthread_barrier_init(&board.all.barrier, NULL, RANKS);
    ranks_run(&o, body, &board);
    pthread_barrier_destroy(&board.all.barrier);
}

int main(void)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    setenv("HALAY_DEBUG", "error", 1);
    usual = *cuda_double_settings();
    CHECK(!cuInit(0), "init");
    for (int gpu = 0; gpu < 2; gpu++)
        CHECK(!cuDevicePrimaryCtxRetain(&contexts[gpu], gpu), "GPU %d", gpu);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        for (int form = ALLREDUCE; form < FORMS; form++)
            run(&rows[i], form, (i + (size_t)form) % 2);
    const struct ranks_options three = {.nranks = RANKS}, alone = {.nranks = 1};
    struct board board = {.form = ALLREDUCE};
    pthread_barrier_init(&board.all.barrier, NULL, RANKS);
    ranks_run(&three, works, NULL);
    ranks_run(&three, places, NULL);
    ranks_run(&three, kept, &board);
    ranks_run(&three, dies, &board);
    pthread_barrier_destroy(&board.all.barrier);
    ranks_run(&alone, forked, NULL);
    for (int gpu = 0; gpu < 2; gpu++)
        CHECK(!cuDevicePrimaryCtxRelease_v2(gpu), "GPU %d", gpu);
    const struct cuda_double_counts left = cuda_double_counts();
    CHECK(!left.allocations && !left.pinned && !left.streams && !left.retained && !left.spoiled,
          "%d, %d, %d, %d left, %d spoiled", left.allocations, left.pinned, left.streams,
          left.retained, (int)left.spoiled);
#ifdef __SANITIZE_ADDRESS__
    return 0; /* what work may still write to is kept for ever */
#endif
    CHECK(!cuDevicePrimaryCtxRetain(&contexts[0], 0), "GPU 0");
    pthread_barrier_init(&board.all.barrier, NULL, RANKS);
    ranks_run(&(struct ranks_options){.nranks = RANKS, .deadline_ns = 1000000000, .keep = true},
              stands, &board);
    return 0;
}
