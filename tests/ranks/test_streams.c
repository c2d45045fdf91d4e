/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls behind a stream of the program (docs/decisions/streams.md#0056), over the double of CUDA's
 * driver and over the late device: the input is made by work in the stream that has not run yet at
 * the call, and nobody waits for it but the call. NULL resets; two communicators with two streams,
 * one behind the other; a stream of another GPU or device, or being captured; faults at the
 * driver's calls; a stream that stops; a rank that is absent.
 */
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lines.h"

enum { RANKS = 3, CALLS = 6, LONG = 700001 };
#define DEADLINE 1000000000ull

static pthread_barrier_t barrier;
static const char *failing;

/* ---------------------------------------------------------------- buffers */

struct buffers {
    int32_t *made, *seen, *in, *out;
    size_t count, bytes;
};

static struct buffers take(struct rank *r, size_t count)
{
    struct buffers b = {.count = count, .bytes = count * sizeof(int32_t)};
    b.made = malloc(CALLS * b.bytes);
    b.seen = malloc(b.bytes);
    CHECK(b.made && b.seen, "no memory");
    b.in = ranks_there_take(r->context, b.bytes);
    b.out = ranks_there_take(r->context, b.bytes);
    for (int c = 0; c < CALLS; c++)
        for (size_t i = 0; i < count; i++)
            b.made[(size_t)c * count + i] = (int32_t)i * (r->rank + 1) + c;
    return b;
}

static void drop(struct rank *r, struct buffers *b)
{
    ranks_there_drop(r->context, b->in);
    ranks_there_drop(r->context, b->out);
    free(b->made);
    free(b->seen);
}

static void check_sum(struct rank *r, struct buffers *b, int call)
{
    const int32_t n = r->nranks;
    ranks_there_get(b->seen, b->out, b->bytes);
    for (size_t i = 0; i < b->count; i++)
        CHECK(b->seen[i] == n * (n + 1) / 2 * (int32_t)i + n * call, "call %d, element %zu: %d",
              call, i, b->seen[i]);
}

static void wipe(struct buffers *b)
{
    memset(b->seen, 0x77, b->bytes);
    ranks_there_put(b->in, b->seen, b->bytes);
}

static int reduce(struct rank *r, struct buffers *b, halay_comm_t *comm)
{
    (void)r;
    return halay_allreduce(b->in, b->out, b->count, HALAY_INT32, HALAY_SUM, comm);
}

/* ---------------------------------------------------------------- they are ordered */

static void ordered_calls(struct rank *r, size_t count, bool posted, struct line *l)
{
    struct buffers b = take(r, count);
    for (int c = 0; c < CALLS; c++) {
        halay_request_t *q;
        if (c % 2)
            wipe(&b);
        put(l, b.in, b.made + (size_t)c * count, b.bytes, NULL);
        if (posted) {
            CHECK(!halay_iallreduce(b.in, b.out, count, HALAY_INT32, HALAY_SUM, r->world, &q),
                  "post");
            CHECK(!halay_request_wait(q), "wait");
        } else {
            CHECK(!reduce(r, &b, r->world), "call");
        }
        check_sum(r, &b, c);
    }
    wipe(&b);
    put(l, b.in, b.made, b.bytes, NULL);
    CHECK(!halay_broadcast(b.in, count, HALAY_INT32, 1 % r->nranks, r->world), "broadcast");
    ranks_there_get(b.seen, b.in, b.bytes);
    for (size_t i = 0; i < count; i++)
        CHECK(b.seen[i] == (int32_t)i * (1 % r->nranks + 1), "element %zu", i);
    drop(r, &b);
}

/* A call on one communicator stands behind a stream that waits for another's, whose call is posted
 * later: neither may hold up the other. */
static void crossed(struct rank *r, struct line *l)
{
    struct line second;
    halay_comm_t *dup;
    halay_request_t *q;
    line_make(&second, 0);
    struct buffers a = take(r, 1000), b = take(r, 1000);
    const halay_stream_t stream = stream_of(&second);
    CHECK(!halay_comm_dup(r->world, &dup) && !halay_comm_stream(dup, &stream), "dup");
    put(&second, b.in, b.made, b.bytes, NULL);
    put(l, a.in, a.made, a.bytes, &second);
    CHECK(!halay_iallreduce(a.in, a.out, 1000, HALAY_INT32, HALAY_SUM, r->world, &q), "post");
    CHECK(halay_comm_stream(r->world, NULL) == HALAY_ESTATE, "a call is under way");
    CHECK(!reduce(r, &b, dup), "call");
    check_sum(r, &b, 0);
    CHECK(!halay_request_wait(q), "wait");
    check_sum(r, &a, 0);
    CHECK(!halay_comm_free(dup), "free");
    drop(r, &a);
    drop(r, &b);
    line_drop(&second, 0);
}

/* Members of a group of calls, and messages from rank to rank. */
static void others(struct rank *r, struct line *l)
{
    struct buffers a = take(r, 1000), b = take(r, 1000);
    halay_request_t *q;
    const int next = (r->rank + 1) % r->nranks, before = (r->rank + r->nranks - 1) % r->nranks;
    put(l, a.in, a.made, a.bytes, NULL);
    put(l, b.in, b.made + b.count, b.bytes, NULL);
    CHECK(!halay_group_begin(r->world), "begin");
    CHECK(!halay_iallreduce(a.in, a.out, 1000, HALAY_INT32, HALAY_SUM, r->world, &q), "member");
    CHECK(!halay_iallreduce(b.in, b.out, 1000, HALAY_INT32, HALAY_SUM, r->world, &q), "member");
    CHECK(!halay_group_end(r->world, &q) && !halay_request_wait(q), "end");
    check_sum(r, &a, 0);
    check_sum(r, &b, 1);
    if (next != r->rank) {
        wipe(&a);
        put(l, a.in, a.made, a.bytes, NULL);
        CHECK(!halay_isend(a.in, 1000, HALAY_INT32, next, r->world, &q), "send");
        CHECK(!halay_recv(a.out, 1000, HALAY_INT32, before, r->world), "receive");
        CHECK(!halay_request_wait(q), "wait");
        ranks_there_get(a.seen, a.out, a.bytes);
        for (int i = 0; i < 1000; i++)
            CHECK(a.seen[i] == i * (before + 1), "element %d: %d", i, a.seen[i]);
    }
    drop(r, &a);
    drop(r, &b);
}

/* Without one the call is not ordered: data are there at the call, and a stream that stands still
 * is nothing to it. Host memory is never ordered. */
static void reset(struct rank *r, struct line *l)
{
    struct buffers b = take(r, 100);
    struct line ahead;
    int32_t in = 1, out = 0;
    line_make(&ahead, 0);
    CHECK(!halay_allreduce(&in, &out, 1, HALAY_INT32, HALAY_SUM, r->world), "host");
    CHECK(out == r->nranks, "%d", out);
    CHECK(!halay_comm_stream(r->world, NULL), "reset");
    ranks_there_put(b.in, b.made, b.bytes);
    put(l, NULL, NULL, 0, NULL);
    CHECK(!reduce(r, &b, r->world), "call");
    check_sum(r, &b, 0);
    line_drop(&ahead, 0);
    drop(r, &b);
}

static void wrong(struct rank *r, struct line *l)
{
    halay_stream_t s = stream_of(l);
    struct hly_late_stream none = {0};
    halay_verdict_t v = {.size = sizeof(v)};
    s.size = 0;
    CHECK(halay_comm_stream(r->world, &s) == HALAY_EINVAL, "no size");
    s = stream_of(l);
    s.kind = HALAY_MEMORY_HOST;
    CHECK(halay_comm_stream(r->world, &s) == HALAY_EINVAL, "the host's");
    s.kind = 6;
    CHECK(halay_comm_stream(r->world, &s) == HALAY_EINVAL, "no device");
    CHECK(halay_comm_stream(NULL, &s) == HALAY_EINVAL, "no communicator");
    s = stream_of(l);
    if (late) {
        s.handle = &none;
        CHECK(halay_comm_stream(r->world, &s) == HALAY_EINVAL, "no stream");
        return;
    }
    struct line other;
    line_make(&other, 1);
    s = stream_of(&other);
    CHECK(halay_comm_stream(r->world, &s) == HALAY_EINVAL, "of another GPU");
    CHECK(!halay_comm_verdict(r->world, &v) && strstr(v.text, "another GPU"), "%s", v.text);
    line_drop(&other, 1);
    s.handle = (void *)2;
    CHECK(halay_comm_stream(r->world, &s) == HALAY_EINVAL, "the thread's");
    cuda_double_capture(l->cuda, 1);
    s = stream_of(l);
    CHECK(halay_comm_stream(r->world, &s) == HALAY_EUNSUPPORTED, "captured");
    cuda_double_capture(l->cuda, 0);
}

static void ordered(struct rank *r)
{
    struct line l;
    halay_request_t *q;
    line_make(&l, 0);
    wrong(r, &l);
    const halay_stream_t stream = stream_of(&l);
    CHECK(!halay_comm_stream(r->world, &stream), "stream");
    for (int posted = 0; posted < 2; posted++) {
        ordered_calls(r, 5, posted, &l);
        ordered_calls(r, LONG, posted, &l);
    }
    crossed(r, &l);
    others(r, &l);
    reset(r, &l);
    CHECK(!halay_barrier_init(r->world, &q), "init");
    CHECK(halay_comm_stream(r->world, &stream) == HALAY_ESTATE, "persistent");
    CHECK(!halay_request_free(q), "free");
    line_drop(&l, 0);
}

/* ---------------------------------------------------------------- they end */

/* The call fails on all ranks alike, rank 1 is to blame, and the others' streams go on. */
static void told(struct rank *r, struct buffers *b, int code, const char *text)
{
    halay_verdict_t v = {.size = sizeof(v)};
    const uint64_t begin = ranks_now_ns();
    const int rc = reduce(r, b, r->world);
    CHECK(rc == code, "rank %d: %s", r->rank, halay_strerror(rc));
    CHECK(ranks_now_ns() - begin < 4 * DEADLINE, "late");
    CHECK(!halay_comm_verdict(r->world, &v) && v.rank == 1 && strstr(v.text, text), "%d: %s",
          v.rank, v.text);
}

/* What stands in rank 1's stream does not end before the call has. */
static void stopped(struct rank *r)
{
    struct line l, never = {0};
    line_make(&l, 0);
    struct buffers b = take(r, 1000);
    const halay_stream_t stream = stream_of(&l);
    CHECK(!halay_comm_stream(r->world, &stream), "stream");
    if (r->rank == 1) {
        struct line *at = &l;
        CHECK(late, "only there");
        at->jobs[0] = (struct job){.behind = 1, .after = &never};
        __atomic_store_n(&at->stream.put, 1, __ATOMIC_RELEASE);
    } else {
        put(&l, b.in, b.made, b.bytes, NULL);
    }
    told(r, &b, HALAY_EDEVICE, "stream");
    pthread_barrier_wait(&barrier);
    __atomic_store_n(&never.stream.done, 1, __ATOMIC_RELEASE);
    put(&l, b.in, b.made, b.bytes, NULL); /* the device is well, and so is the communicator */
    CHECK(!reduce(r, &b, r->world), "afterwards");
    check_sum(r, &b, 0);
    drop(r, &b);
    line_drop(&l, 0);
}

/* A call of the driver fails in the call, of whichever rank makes it next; or the capture begins
 * late. */
static void faulted(struct rank *r)
{
    struct line l;
    line_make(&l, 0);
    struct buffers b = take(r, 1000);
    const halay_stream_t stream = stream_of(&l);
    CHECK(!halay_comm_stream(r->world, &stream), "stream");
    put(&l, b.in, b.made, b.bytes, NULL);
    pthread_barrier_wait(&barrier);
    if (r->rank == 1 && failing)
        cuda_double_fail(failing, 1, 999);
    if (r->rank == 1 && !failing)
        cuda_double_capture(l.cuda, 1);
    pthread_barrier_wait(&barrier);
    const uint64_t begin = ranks_now_ns();
    const int rc = reduce(r, &b, r->world);
    CHECK(rc == (failing ? HALAY_EDEVICE : HALAY_EUNSUPPORTED), "%s: %s",
          failing ? failing : "capture", halay_strerror(rc));
    CHECK(ranks_now_ns() - begin < 4 * DEADLINE, "late");
    pthread_barrier_wait(&barrier);
    if (!failing) { /* nobody was harmed */
        if (r->rank == 1)
            cuda_double_capture(l.cuda, 0);
        CHECK(!reduce(r, &b, r->world), "afterwards");
        check_sum(r, &b, 0);
    }
    pthread_barrier_wait(&barrier);
    line_end(&l); /* a call that has failed has not waited for its input */
    line_drop(&l, 0);
    drop(r, &b);
}

static void absent(struct rank *r)
{
    struct line l;
    line_make(&l, 0);
    struct buffers b = take(r, 1000);
    const halay_stream_t stream = stream_of(&l);
    CHECK(!halay_comm_stream(r->world, &stream), "stream");
    put(&l, b.in, b.made, b.bytes, NULL);
    if (r->rank != 1)
        told(r, &b, HALAY_ETIMEOUT, "");
    pthread_barrier_wait(&barrier);
    line_end(&l); /* rank 1 has not heard that it has made its input */
    line_drop(&l, 0);
    drop(r, &b);
}

/* ---------------------------------------------------------------- */

static void run(void (*fn)(struct rank *), int nranks, bool shm, bool ends)
{
    struct hly_device_late_arg there = {.own_memory = true, .delay_polls_max = 3};
    struct hly_device_cuda_arg gpu = {.ordinal = 1, .no_words = shm};
    const struct ranks_options o = {.nranks = nranks,
                                    .shm = shm,
                                    .device = late ? &hly_device_late : &hly_device_cuda,
                                    .device_arg = late ? (void *)&there : &gpu,
                                    .deadline_ns = ends ? DEADLINE : 0};
    pthread_barrier_init(&barrier, NULL, (unsigned)nranks);
    ranks_run(&o, fn, NULL);
    pthread_barrier_destroy(&barrier);
}

static void none_left(void)
{
    const struct cuda_double_counts left = cuda_double_counts();
    CHECK(!left.misused && !left.streams && !left.events, "%d streams, %d events left",
          left.streams, left.events);
}

/* It waits for the deadline in a process of its own, while others go on. One thread runs yet. */
static pid_t begin(bool over_late, bool shm)
{
    const pid_t child = fork();
    CHECK(child >= 0, "fork");
    if (child == 0) {
        late = over_late;
        run(absent, RANKS, shm, true);
        none_left();
        exit(0);
    }
    return child;
}

int main(void)
{
    static const char *const calls[] = {NULL, "cuStreamGetCtx", "cuStreamIsCapturing",
                                        "cuEventRecord", "cuEventQuery"};
    setenv("HALAY_DEBUG", "error", 1); /* the failures here are wanted */
    cuda_double_settings()->devices = 2;
    cuda_double_settings()->delay_us = 300;
    const pid_t children[] = {begin(false, false), begin(true, true)};
    for (int which = 0; which < 2; which++) {
        late = which;
        for (int shm = 0; shm < 2; shm++) {
            cuda_double_settings()->seed = (uint64_t)shm + 1;
            run(ordered, shm ? 1 : RANKS, shm, false);
            run(ordered, RANKS, shm, false);
        }
    }
    for (size_t i = 0; i < sizeof(children) / sizeof(children[0]); i++) {
        int status;
        CHECK(waitpid(children[i], &status, 0) == children[i] && !status, "child %zu: %x", i,
              (unsigned)status);
    }
    run(stopped, RANKS, false, true);
    late = false;
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        failing = calls[i];
        run(faulted, RANKS, false, true);
    }
    none_left();
    return 0;
}
