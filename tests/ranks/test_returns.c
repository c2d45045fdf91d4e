/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls that return when they are posted (HALAY_STREAM_RETURNS, docs/decisions/streams.md#0066),
 * over the double of CUDA's driver and over the late device. The program looks at nothing but its
 * stream. A call returns while its peers are absent; many calls with work between them; two streams
 * in opposite order; a rank that is absent, has made another call, stops making calls or dies with
 * many under way; a gate that cannot be; the end of the context with a call under way.
 */
#include <string.h>

#include "lines.h"

enum { RANKS = 3, ROUNDS = 8, FLYING = 12, MADE = 3 };
#define DEADLINE 500000000ull

static pthread_barrier_t barrier;
static const char *failing;
static bool dies; /* rank 1; else it makes no more calls */
static uint64_t turn;

/* ---------------------------------------------------------------- buffers */

struct buffers {
    int32_t *made, *seen; /* of each call; seen: pinned */
    int32_t *in, *out;
    int calls;
    size_t count, bytes;
};

static int32_t *pinned(struct line *l, size_t bytes)
{
    void *at = late ? calloc(1, bytes) : NULL;
    if (late)
        return at;
    enter(l);
    CHECK(!cuMemHostAlloc(&at, bytes, HLY_CU_PORTABLE), "pinned");
    leave();
    return at;
}

static struct buffers take(struct rank *r, struct line *l, int calls, size_t count)
{
    struct buffers b = {.calls = calls, .count = count, .bytes = count * sizeof(int32_t)};
    b.made = malloc((size_t)calls * b.bytes);
    b.seen = pinned(l, (size_t)calls * b.bytes);
    CHECK(b.made && b.seen, "no memory");
    b.in = ranks_there_take(r->context, b.bytes);
    b.out = ranks_there_take(r->context, b.bytes);
    for (int c = 0; c < calls; c++)
        for (size_t i = 0; i < count; i++)
            b.made[(size_t)c * count + i] = (int32_t)i * (r->rank + 1) + c;
    return b;
}

static void drop(struct rank *r, struct line *l, struct buffers *b)
{
    ranks_there_drop(r->context, b->in);
    ranks_there_drop(r->context, b->out);
    free(b->made);
    if (late) {
        free(b->seen);
        return;
    }
    enter(l);
    CHECK(!cuMemFreeHost(b->seen), "free");
    leave();
}

/* All that stands in the stream is done. */
static void await(struct line *l)
{
    static const struct timespec pause = {.tv_nsec = 200000};
    const uint64_t begin = ranks_now_ns();
    while (!line_is_done(l)) {
        CHECK(ranks_now_ns() - begin < 30 * DEADLINE, "the stream stands");
        nanosleep(&pause, NULL);
    }
}

/* Input, call and result of call c in the stream. What the call returns. */
static int post(struct line *l, struct buffers *b, int c, halay_comm_t *comm)
{
    put(l, b->in, b->made + (size_t)c * b->count, b->bytes, NULL);
    const int rc = halay_allreduce(b->in, b->out, b->count, HALAY_INT32, HALAY_SUM, comm);
    get(l, b->seen + (size_t)c * b->count, b->out, b->bytes);
    return rc;
}

static void check_sum(struct rank *r, const struct buffers *b, int c)
{
    const int32_t n = r->nranks, *seen = b->seen + (size_t)c * b->count;
    for (size_t i = 0; i < b->count; i++)
        CHECK(seen[i] == n * (n + 1) / 2 * (int32_t)i + n * c, "call %d, element %zu: %d", c, i,
              seen[i]);
}

static void set(struct line *l, halay_comm_t *comm)
{
    halay_stream_t s = stream_of(l);
    s.flags = HALAY_STREAM_RETURNS;
    const int rc = halay_comm_stream(comm, &s);
    CHECK(!rc, "%s", halay_strerror(rc));
}

/* ---------------------------------------------------------------- they return */

static void wrong(struct rank *r, struct line *l)
{
    halay_stream_t s = stream_of(l);
    s.flags = 2;
    CHECK(halay_comm_stream(r->world, &s) == HALAY_EINVAL, "a flag that nobody knows");
    s.size =
        offsetof(halay_stream_t, flags); /* of a program that was built before there were any */
    CHECK(!halay_comm_stream(r->world, &s), "an older one");
    struct {
        halay_stream_t known;
        size_t more;
    } newer = {.known = stream_of(l), .more = 1};
    halay_verdict_t v = {.size = sizeof(v)};
    newer.known.size = sizeof(newer);
    CHECK(halay_comm_stream(r->world, &newer.known) == HALAY_EINVAL, "a newer one");
    CHECK(!halay_comm_verdict(r->world, &v) && strstr(v.text, "sizeof(halay_stream_t)"), "%s",
          v.text);
    newer.more = 0;
    CHECK(!halay_comm_stream(r->world, &newer.known), "a newer one, with nothing new");
    s = stream_of(l);
    s.flags = HALAY_STREAM_RETURNS;
    if (late) {
        l->stream.gate = NULL;
        CHECK(halay_comm_stream(r->world, &s) == HALAY_EUNSUPPORTED, "no gates");
        line_drop(l, 0);
        line_make(l, 0);
    }
}

/* Only rank 0 has called, and its call returns; its stream stands until the others call. */
static void alone(struct rank *r, struct line *l)
{
    struct buffers b = take(r, l, 1, 1000);
    if (r->rank)
        pthread_barrier_wait(&barrier);
    CHECK(!post(l, &b, 0, r->world), "call");
    if (!r->rank) {
        static const struct timespec pause = {.tv_nsec = 20000000};
        nanosleep(&pause, NULL);
        CHECK(r->nranks < 2 || !line_is_done(l), "there is no result yet");
        pthread_barrier_wait(&barrier);
    }
    await(l);
    check_sum(r, &b, 0);
    drop(r, l, &b);
}

/* More than have room, with copies between them, and calls in host memory that wait. */
static void many(struct rank *r, struct line *l, int calls, size_t count)
{
    struct buffers b = take(r, l, calls, count);
    for (int c = 0; c < calls; c++) {
        int32_t in = c, out = 0;
        CHECK(!post(l, &b, c, r->world), "call %d", c);
        if (c % 10 == 9)
            CHECK(!halay_allreduce(&in, &out, 1, HALAY_INT32, HALAY_SUM, r->world) &&
                      out == c * r->nranks,
                  "in host memory: %d", out);
    }
    await(l);
    for (int c = 0; c < calls; c++)
        check_sum(r, &b, c);
    drop(r, l, &b);
}

/* Around a ring; one rank receives first, as the stream holds a send up until it is received. */
static void ring(struct rank *r, struct line *l)
{
    struct buffers b = take(r, l, 1, 1000);
    const int next = (r->rank + 1) % r->nranks, before = (r->rank + r->nranks - 1) % r->nranks;
    put(l, b.in, b.made, b.bytes, NULL);
    for (int i = 0; i < 2; i++)
        if (i == (r->rank == 0))
            CHECK(!halay_send(b.in, b.count, HALAY_INT32, next, r->world), "send");
        else
            CHECK(!halay_recv(b.out, b.count, HALAY_INT32, before, r->world), "receive");
    get(l, b.seen, b.out, b.bytes);
    await(l);
    for (int i = 0; i < 1000; i++)
        CHECK(b.seen[i] == i * (before + 1), "element %d: %d", i, b.seen[i]);
    drop(r, l, &b);
}

/* Two communicators on two streams, in another order on every other rank; one of the streams waits
 * for the other on the ranks where its call comes second. */
static void crossed(struct rank *r, struct line *l)
{
    struct line second;
    halay_comm_t *dup;
    line_make(&second, 0);
    CHECK(!halay_comm_dup(r->world, &dup), "dup");
    set(&second, dup);
    struct buffers a = take(r, l, ROUNDS, 1000), b = take(r, &second, ROUNDS, 1000);
    for (int c = 0; c < ROUNDS; c++) {
        if (r->rank % 2)
            CHECK(!post(&second, &b, c, dup), "dup, call %d", c);
        CHECK(!post(l, &a, c, r->world), "world, call %d", c);
        if (r->rank % 2 == 0) {
            put(&second, NULL, NULL, 0, c % 2 ? l : NULL);
            CHECK(!post(&second, &b, c, dup), "dup, call %d", c);
        }
    }
    await(l);
    await(&second);
    for (int c = 0; c < ROUNDS; c++) {
        check_sum(r, &a, c);
        check_sum(r, &b, c);
    }
    CHECK(!halay_comm_free(dup), "nothing is under way");
    drop(r, l, &a);
    drop(r, &second, &b);
    line_drop(&second, 0);
}

static void returning(struct rank *r)
{
    struct line l;
    line_make(&l, 0);
    wrong(r, &l);
    set(&l, r->world);
    alone(r, &l);
    many(r, &l, late || r->nranks == 1 ? 25 : 100, 500);
    many(r, &l, 3, 300001);
    if (r->nranks > 1)
        ring(r, &l);
    crossed(r, &l);
    CHECK(!halay_comm_stream(r->world, NULL), "reset");
    line_drop(&l, 0);
}

/* Where the GPU's streams wait for no words. */
static void wordless(struct rank *r)
{
    struct line l;
    halay_verdict_t v = {.size = sizeof(v)};
    line_make(&l, 0);
    halay_stream_t s = stream_of(&l);
    s.flags = HALAY_STREAM_RETURNS;
    CHECK(halay_comm_stream(r->world, &s) == HALAY_EUNSUPPORTED, "no words");
    CHECK(!halay_comm_verdict(r->world, &v) && strstr(v.text, "HALAY_STREAM_RETURNS"), "%s",
          v.text);
    line_drop(&l, 0);
}

/* ---------------------------------------------------------------- they fail */

/* The call returns, and fails; the stream goes on. */
static void absent(struct rank *r)
{
    struct line l;
    halay_verdict_t v = {.size = sizeof(v)};
    line_make(&l, 0);
    set(&l, r->world);
    struct buffers b = take(r, &l, 2, 1000);
    const uint64_t begin = ranks_now_ns();
    if (r->rank != 1) {
        CHECK(!post(&l, &b, 0, r->world), "call");
        await(&l);
        CHECK(ranks_now_ns() - begin < 4 * DEADLINE, "late");
        CHECK(!halay_comm_verdict(r->world, &v) && v.rank == 1 && v.code == HALAY_ETIMEOUT,
              "%d: %s", v.rank, v.text);
        CHECK(post(&l, &b, 1, r->world) == HALAY_ETIMEOUT, "the next call");
        await(&l);
        CHECK(halay_comm_stream(r->world, NULL) == HALAY_ETIMEOUT, "told");
    }
    pthread_barrier_wait(&barrier);
    drop(r, &l, &b);
    line_drop(&l, 0);
}

static void *killer(void *arg)
{
    const struct rank *r = arg;
    uint64_t seed = turn;
    nanosleep(&(struct timespec){.tv_nsec = (long)(ranks_random(&seed) % 6000000)}, NULL);
    halay_inproc_kill(r->hub, r->rank);
    return NULL;
}

/* Posts those calls that rank 1 makes, or begins to make. */
static int post_some(struct rank *r, struct line *l, struct buffers *b, int n)
{
    pthread_t thread;
    int rc = 0;
    pthread_barrier_wait(&barrier);
    if (r->rank == 1 && dies)
        CHECK(!pthread_create(&thread, NULL, killer, r), "no thread");
    for (int c = 0; c < n; c++) {
        const int code = post(l, b, c, r->world);
        rc = rc ? rc : code;
    }
    if (r->rank == 1 && dies)
        pthread_join(thread, NULL);
    return rc;
}

/* With many calls under way that have returned, rank 1 makes no more, or dies. All gates open; the
 * calls that were over are right; who it was is told, once. */
static void cut(struct rank *r)
{
    struct line l;
    halay_verdict_t v = {.size = sizeof(v)};
    const int expected = dies ? HALAY_EPEER : HALAY_ETIMEOUT, me = r->rank;
    line_make(&l, 0);
    set(&l, r->world);
    struct buffers b = take(r, &l, FLYING + 1, 1000);
    const int posted = post_some(r, &l, &b, me == 1 && !dies ? MADE : FLYING);
    const uint64_t begin = ranks_now_ns();
    await(&l);
    CHECK(ranks_now_ns() - begin < 8 * DEADLINE, "rank %d: late", me);
    if (me != 1) {
        const int next = post(&l, &b, FLYING, r->world);
        await(&l);
        const int told = halay_comm_stream(r->world, NULL);
        CHECK((!posted || posted == expected) && (!next || next == expected) &&
                  (!told || told == expected) && (posted || next || told),
              "rank %d: %s, %s, %s", me, halay_strerror(posted), halay_strerror(next),
              halay_strerror(told));
        CHECK(!halay_comm_verdict(r->world, &v) && v.rank == 1 && v.code == expected, "%d: %s",
              v.rank, v.text);
        CHECK(dies || v.sequence == MADE, "call %u: %s", v.sequence, v.text);
        for (int c = 0; c < (int)v.sequence && c < FLYING; c++)
            check_sum(r, &b, c);
        CHECK(halay_comm_stream(r->world, NULL) == 0, "it is told once");
    }
    pthread_barrier_wait(&barrier);
    drop(r, &l, &b);
    halay_finalize(r->context);
    await(&l);
    line_drop(&l, 0);
}

/* The device is lost in the call, on all ranks. The stream goes on. */
static void lost(struct rank *r)
{
    struct line l;
    line_make(&l, 0);
    set(&l, r->world);
    struct buffers b = take(r, &l, 2, 1000);
    put(&l, b.in, b.made, b.bytes, NULL);
    CHECK(!halay_allreduce(b.in, b.out, b.count, HALAY_INT32, HALAY_SUM, r->world), "call");
    await(&l);
    CHECK(post(&l, &b, 1, r->world) == HALAY_EDEVICE, "the next call");
    await(&l);
    pthread_barrier_wait(&barrier);
    drop(r, &l, &b);
    CHECK(!halay_barrier(r->world), "host memory is left");
    CHECK(halay_finalize(r->context) == HALAY_EDEVICE, "told at the end");
    await(&l);
    line_drop(&l, 0);
}

/* Rank 1 has made another call. All are told, and can go on together. */
static void mismatched(struct rank *r)
{
    struct line l;
    halay_verdict_t v = {.size = sizeof(v)};
    line_make(&l, 0);
    set(&l, r->world);
    struct buffers b = take(r, &l, 3, 1000);
    put(&l, b.in, b.made, b.bytes, NULL);
    const int rc =
        halay_allreduce(b.in, b.out, r->rank == 1 ? 999 : 1000, HALAY_INT32, HALAY_SUM, r->world);
    CHECK(!rc || rc == HALAY_EMISMATCH, "it is seen when it is posted, or later: %d", rc);
    await(&l);
    const int next = post(&l, &b, 1, r->world); /* made all the same */
    CHECK(next == (rc ? HALAY_OK : HALAY_EMISMATCH), "next: %d, after %d", next, rc);
    await(&l);
    check_sum(r, &b, 1);
    CHECK(!halay_comm_verdict(r->world, &v) && v.code == HALAY_EMISMATCH && v.sequence == 0, "%s",
          v.text);
    CHECK(halay_comm_stream(r->world, NULL) == (rc ? HALAY_OK : HALAY_EMISMATCH), "told");
    set(&l, r->world);
    CHECK(!post(&l, &b, 2, r->world), "afterwards");
    CHECK(!halay_comm_stream(r->world, NULL), "that waits");
    await(&l);
    check_sum(r, &b, 2);
    drop(r, &l, &b);
    line_drop(&l, 0);
}

/* A call of the driver fails for rank 1 where its gate is put: it waits instead. */
static void gateless(struct rank *r)
{
    struct line l;
    line_make(&l, 0);
    set(&l, r->world);
    struct buffers b = take(r, &l, 2, 1000);
    CHECK(!post(&l, &b, 0, r->world), "call");
    await(&l);
    pthread_barrier_wait(&barrier);
    if (r->rank == 1)
        cuda_double_fail(failing, 1, 999);
    pthread_barrier_wait(&barrier);
    CHECK(!post(&l, &b, 1, r->world), "%s", failing);
    await(&l);
    check_sum(r, &b, 1);
    pthread_barrier_wait(&barrier);
    drop(r, &l, &b);
    line_drop(&l, 0);
}

/* Ranks end the context with a call under way that rank 1 does not make. */
static void ended(struct rank *r)
{
    struct line l;
    uint64_t in;
    line_make(&l, 0);
    set(&l, r->world);
    enter(&l);
    CHECK(!cuMemAlloc_v2(&in, 4000), "memory");
    leave();
    void *const at = (void *)(uintptr_t)in;
    if (r->rank != 1)
        CHECK(!halay_allreduce(HALAY_IN_PLACE, at, 1000, HALAY_INT32, HALAY_SUM, r->world), "call");
    pthread_barrier_wait(&barrier);
    const int rc = halay_finalize(r->context);
    CHECK(r->rank == 1 || rc == HALAY_ESTATE, "%d", rc);
    await(&l);
    enter(&l);
    CHECK(!cuMemFree_v2(in), "free");
    leave();
    line_drop(&l, 0);
}

/* ---------------------------------------------------------------- */

static void run(void (*fn)(struct rank *), int nranks, bool shm, bool ends)
{
    struct hly_device_late_arg there = {
        .own_memory = true, .delay_polls_max = 3, .breaks = fn == lost};
    struct hly_device_cuda_arg gpu = {.ordinal = 1, .no_words = fn == wordless};
    const struct ranks_options o = {.nranks = nranks,
                                    .shm = shm,
                                    .device = late ? &hly_device_late : &hly_device_cuda,
                                    .device_arg = late ? (void *)&there : &gpu,
                                    .deadline_ns = ends ? DEADLINE : 0,
                                    .keep = fn == ended || fn == lost || fn == cut};
    pthread_barrier_init(&barrier, NULL, (unsigned)nranks);
    ranks_run(&o, fn, NULL);
    pthread_barrier_destroy(&barrier);
}

int main(void)
{
    setenv("HALAY_DEBUG", "error", 1); /* the failures here are wanted */
    cuda_double_settings()->delay_us = 100;
    for (int which = 0; which < 2; which++) {
        late = which;
        cuda_double_settings()->seed = (uint64_t)which + 1;
        run(returning, 1, false, false);
        run(returning, RANKS, late, false);
        run(mismatched, RANKS, false, true);
    }
    for (turn = 0; turn < 6; turn++) {
        late = turn % 2;
        dies = turn != 1 && turn != 2;
        run(cut, RANKS, false, true);
    }
    late = true;
    run(lost, RANKS, false, true);
    late = false;
    run(absent, RANKS, true, true);
    run(wordless, 2, false, true);
    failing = "cuStreamWaitValue64_v2";
    run(gateless, RANKS, false, true);
    run(ended, RANKS, false, true);
    const struct cuda_double_counts left = cuda_double_counts();
    CHECK(!left.misused && !left.streams && !left.events, "%d streams, %d events left, %d misused",
          left.streams, left.events, (int)left.misused);
    return 0;
}
