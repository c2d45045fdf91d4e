/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Persistent requests whose memory is not what it was when they were made: one rank of three has
 * freed it, or something else lies there. Each start fails on all ranks at once with the same
 * words, which name that rank; other requests and calls go on. Staged, by NCCL, and by group steps
 * of our own, over the doubles.
 */
#include <string.h>
#include <sys/mman.h>

#include "device/cuda/driver.h"
#include "double/cuda/calls.h"
#include "double/cuda/double.h"
#include "double/nccl/double.h"
#include "ranks.h"

enum { RANKS = 3, WRONG = 1, SHORT = 1000, LONG = 300001 };
#define SOON_NS 5000000000ull

struct state { /* of one rank */
    struct rank *r;
    int32_t *in, *out;     /* of the request that is spoilt */
    int32_t *in_2, *out_2; /* of one that is not, and of calls */
    void *extra;
};

/* ---------------------------------------------------------------- what a program does */

static void *there(size_t bytes)
{
    uint64_t at;
    CHECK(!cuMemAlloc_v2(&at, bytes), "memory of the GPU");
    return (void *)(uintptr_t)at;
}

static void drop(void *at)
{
    CHECK(!cuMemFree_v2((uint64_t)(uintptr_t)at), "free");
}

static size_t count_of(const struct rank *r);

static size_t bytes_of(const struct rank *r)
{
    return count_of(r) * sizeof(int32_t);
}

static void in_freed(struct state *s)
{
    drop(s->in);
    s->in = NULL;
}

static void out_freed(struct state *s)
{
    drop(s->out);
    s->out = NULL;
}

static void again(struct state *s, int32_t *at)
{
    cuda_double_settings()->again = 1;
    drop(at);
    void *next = there(bytes_of(s->r));
    cuda_double_settings()->again = 0;
    CHECK(next == at, "the double gives it elsewhere");
}

static void in_again(struct state *s)
{
    again(s, s->in);
}

static void out_again(struct state *s)
{
    again(s, s->out);
}

/* The host's memory comes to lie where the GPU's was. */
static void hosts_now(struct state *s)
{
    drop(s->out);
    s->extra = mmap(s->out, bytes_of(s->r), PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    CHECK(s->extra == s->out, "mmap");
    s->out = NULL;
}

static void nothing(struct state *s)
{
    (void)s;
}

static const struct row {
    const char *name;
    void (*spoil)(struct state *);
    const char *words; /* of the verdict; NULL: all is well */
} rows[] = {
    {"input freed", in_freed, "was it freed"},
    {"output freed", out_freed, "was it freed"},
    {"input given again", in_again, "another allocation lies there now: free the request"},
    {"output given again", out_again, "another allocation lies there now: free the request"},
    {"the host's now", hosts_now, "two kinds"},
    {"nothing", nothing, NULL},
};

struct board {
    const struct row *row;
    size_t count;
    bool nccl;
    struct ranks_board all;
};

static size_t count_of(const struct rank *r)
{
    return ((const struct board *)r->arg)->count;
}

/* ---------------------------------------------------------------- starts */

static int32_t *seen(void *at, size_t bytes)
{
    int32_t *p = cuda_double_inside((uint64_t)(uintptr_t)at, bytes);
    CHECK(p, "not of a GPU");
    return p;
}

static halay_request_t *make(const struct state *s, const int32_t *in, int32_t *out)
{
    halay_request_t *q;
    CHECK(!halay_allreduce_init(in, out, count_of(s->r), HALAY_INT32, HALAY_SUM, s->r->world, &q),
          "init");
    return q;
}

/* q NULL: the call itself. */
static void right(const struct state *s, halay_request_t *q, int32_t *in, int32_t *out, int round)
{
    const int n = (int)count_of(s->r);
    int32_t *from = seen(in, bytes_of(s->r)), *to = seen(out, bytes_of(s->r));
    for (int i = 0; i < n; i++)
        from[i] = (s->r->rank + 1) * (i + round);
    const int rc = q ? halay_request_start(q) || halay_request_wait(q)
                     : halay_allreduce(in, out, (size_t)n, HALAY_INT32, HALAY_SUM, s->r->world);
    CHECK(!rc, "round %d: %d", round, rc);
    for (int i = 0; i < n; i++)
        CHECK(to[i] == RANKS * (RANKS + 1) / 2 * (i + round), "round %d, element %d", round, i);
}

static void wrong(const struct state *s, halay_request_t *q)
{
    struct board *b = s->r->arg;
    halay_verdict_t v = {.size = sizeof(v)};
    const int me = s->r->rank;
    const uint64_t start = ranks_now_ns();
    CHECK(!halay_request_start(q), "start");
    const int rc = halay_request_wait(q);
    CHECK(ranks_now_ns() - start < SOON_NS, "%s: waited for the deadline", b->row->name);
    CHECK(!halay_comm_verdict(s->r->world, &v), "verdict");
    CHECK(rc == HALAY_EINVAL, "%s, rank %d: %s: %s", b->row->name, me, halay_strerror(rc), v.text);
    CHECK(v.rank == WRONG && strstr(v.text, b->row->words) && strstr(v.text, "allreduce"), "%s",
          v.text);
    snprintf(b->all.text[me], sizeof(b->all.text[0]), "%s", v.text);
    pthread_barrier_wait(&b->all.barrier);
    CHECK(!strcmp(v.text, b->all.text[0]), "%s\n%s", v.text, b->all.text[0]);
    pthread_barrier_wait(&b->all.barrier);
    if (!me)
        printf("%-20s %s\n", b->row->name, v.text);
}

/* A start in the host's memory asks the driver nothing. */
static void host_start(const struct state *s)
{
    static int32_t in[RANKS][4], out[RANKS][4];
    struct board *b = s->r->arg;
    halay_request_t *q;
    int32_t *own = in[s->r->rank], *sum = out[s->r->rank];
    own[0] = s->r->rank;
    CHECK(!halay_allreduce_init(own, sum, 4, HALAY_INT32, HALAY_SUM, s->r->world, &q), "init");
    pthread_barrier_wait(&b->all.barrier);
    const uint64_t before = cuda_double_counts().calls;
    pthread_barrier_wait(&b->all.barrier);
    CHECK(!halay_request_start(q) && !halay_request_wait(q), "the host's");
    CHECK(sum[0] == RANKS * (RANKS - 1) / 2, "%d", sum[0]);
    pthread_barrier_wait(&b->all.barrier);
    CHECK(cuda_double_counts().calls == before, "a start asked the driver");
    pthread_barrier_wait(&b->all.barrier);
    CHECK(!halay_request_free(q), "free");
}

static void begin(struct state *s, struct rank *r, void **gpu)
{
    const int ordinal = ((const struct board *)r->arg)->nccl ? r->rank : 0;
    CHECK(!cuDevicePrimaryCtxRetain(gpu, ordinal) && !cuCtxPushCurrent_v2(*gpu), "a GPU");
    *s = (struct state){.r = r};
    s->in = there(bytes_of(r));
    s->out = there(bytes_of(r));
    s->in_2 = there(bytes_of(r));
    s->out_2 = there(bytes_of(r));
}

static void end(const struct state *s, void *gpu)
{
    void *const at[] = {s->in, s->out, s->in_2, s->out_2};
    for (int i = 0; i < 4; i++)
        if (at[i])
            drop(at[i]);
    if (s->extra) /* as it was, to the double */
        CHECK(mmap(s->extra, bytes_of(s->r), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
                   0) == s->extra,
              "mmap");
    CHECK(!cuCtxPopCurrent_v2(&gpu), "pop");
    cuDevicePrimaryCtxRelease_v2(((const struct board *)s->r->arg)->nccl ? s->r->rank : 0);
}

static void body(struct rank *r)
{
    struct board *b = r->arg;
    struct state s;
    void *gpu;
    begin(&s, r, &gpu);
    halay_request_t *q = make(&s, s.in, s.out), *q_2 = make(&s, s.in_2, s.out_2);
    for (int i = 0; i < 2; i++)
        right(&s, q, s.in, s.out, i);
    pthread_barrier_wait(&b->all.barrier);
    const uint64_t before = nccl_double_counts().collectives;
    if (r->rank == WRONG)
        b->row->spoil(&s);
    pthread_barrier_wait(&b->all.barrier);
    for (int i = 0; i < 2 && b->row->words; i++)
        wrong(&s, q);
    CHECK(nccl_double_counts().collectives == before, "NCCL was given what is not there");
    pthread_barrier_wait(&b->all.barrier);
    if (!b->row->words)
        right(&s, q, s.in, s.out, 7);
    right(&s, q_2, s.in_2, s.out_2, 8);
    right(&s, NULL, s.in_2, s.out_2, 9);
    pthread_barrier_wait(&b->all.barrier);
    CHECK((nccl_double_counts().collectives > before) == b->nccl, "by NCCL, or not");
    host_start(&s);
    CHECK(!halay_request_free(q) && !halay_request_free(q_2), "free");
    end(&s, gpu);
}

int main(void)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    setenv("HALAY_DEBUG", "error", 1);
    cuda_double_settings()->devices = RANKS;
    CHECK(!cuInit(0), "init");
    for (int way = 0; way < 2; way++)
        for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
            for (int length = 0; length < 2; length++) {
                struct board board = {.row = &rows[i], .count = length ? LONG : SHORT, .nccl = way};
                struct ranks_options o = {.nranks = RANKS, .shm = i % 2};
                CHECK(!setenv("HALAY_NCCL_LIBRARY", board.nccl ? "" : "off", 1), "setenv");
                pthread_barrier_init(&board.all.barrier, NULL, RANKS);
                ranks_run(&o, body, &board);
                pthread_barrier_destroy(&board.all.barrier);
            }
    const struct cuda_double_counts left = cuda_double_counts();
    CHECK(!left.allocations && !left.pinned && !left.streams && !left.retained && !left.misused,
          "%d, %d, %d, %d left, %llu misused", left.allocations, left.pinned, left.streams,
          left.retained, (unsigned long long)left.misused);
    CHECK(!nccl_double_counts().misused, "NCCL was misused");
    return 0;
}
