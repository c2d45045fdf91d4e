/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stream.c - streams and events. A stream is a thread that does what stands in its queue, in order,
 * each after a delay of its own.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "inside.h"

enum { QUEUE = 512, STREAMS_MAX = 512, EVENTS_MAX = 16384, GRAPH_OPS = 64 };

struct event {
    bool used, captured;   /* recorded last in a graph: nobody may ask for it */
    uint64_t issued, done; /* records */
};

struct op {
    enum { COPY, KERNEL, RECORD, WAIT_EVENT, WRITE, WAIT_WORD, HOST_FN } kind;
    uint64_t dst, src, value; /* addresses, or a host's */
    size_t bytes;
    void *snapshot; /* of a source that was not pinned, or of a kernel's argument */
    struct event *event;
    struct launch launch;
    hly_cu_host_fn *fn;
    void *arg;
};

struct graph {
    int n;
    struct op ops[GRAPH_OPS];
};

struct stream {
    struct context *context;
    bool closing;
    int capturing;               /* as cuStreamIsCapturing says: 1, or 2 if it was spoiled */
    struct graph *graph;         /* what is captured; NULL: nothing is, or it is only said so */
    uint64_t random, taken, put; /* ops put[taken .. put) of the queue */
    struct op queue[QUEUE];
};

static struct stream *streams[STREAMS_MAX];
static struct event events[EVENTS_MAX];

/* ------------------------------------------------------------------ the thread */

static uint64_t random_next(struct stream *s)
{
    s->random ^= s->random << 13;
    s->random ^= s->random >> 7;
    s->random ^= s->random << 17;
    return s->random * 0x2545f4914f6cdd1du;
}

static void sleep_us(unsigned us)
{
    const struct timespec pause = {.tv_nsec = 1000l * us};
    if (us)
        nanosleep(&pause, NULL);
}

/* A millisecond at most, or till something changes. */
static void wait_changed(void)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += 1000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_cond_timedwait(&changed, &mutex, &until);
}

static void *place(uint64_t at, size_t bytes, int device)
{
    void *p = inside(at, bytes, device);
    return p || is_device((void *)(uintptr_t)at) ? p : (void *)(uintptr_t)at;
}

/* Without the mutex. */
static bool copy(const struct op *op, int device)
{
    pthread_mutex_lock(&mutex);
    void *dst = place(op->dst, op->bytes, device);
    const void *src = op->snapshot ? op->snapshot : place(op->src, op->bytes, device);
    pthread_mutex_unlock(&mutex);
    if (dst && src)
        memcpy(dst, src, op->bytes);
    free(op->snapshot);
    return dst && src;
}

static uint64_t *word_of(const struct op *op)
{
    return (uint64_t *)(uintptr_t)op->dst;
}

static bool must_wait(const struct op *op)
{
    if (op->kind == WAIT_EVENT)
        return op->event->done < op->value;
    return op->kind == WAIT_WORD &&
           (int64_t)(__atomic_load_n(word_of(op), __ATOMIC_ACQUIRE) - op->value) < 0;
}

/* With the mutex, which it gives away while it works. */
static void perform(struct stream *s, const struct op *op)
{
    bool well = true;
    counts.written += op->kind == WRITE; /* before anybody can see it */
    pthread_mutex_unlock(&mutex);
    if (settings.delay_us)
        sleep_us((unsigned)(random_next(s) % (settings.delay_us + 1)));
    if (op->kind == COPY)
        well = copy(op, s->context->device);
    else if (op->kind == KERNEL)
        well = kernel_run(&op->launch, op->snapshot, s->context->device);
    else if (op->kind == WRITE)
        __atomic_store_n(word_of(op), op->value, __ATOMIC_RELEASE);
    else if (op->kind == HOST_FN) {
        in_host_fn = true;
        op->fn(op->arg);
        in_host_fn = false;
    }
    if (op->kind == KERNEL)
        free(op->snapshot);
    pthread_mutex_lock(&mutex);
    if (op->kind == RECORD)
        op->event->done = op->value > op->event->done ? op->value : op->event->done;
    counts.kernels += op->kind == KERNEL;
    if (!well && !broken)
        broken = ILLEGAL_ADDRESS;
}

/* What a context that broke will not do any more. */
static void drop(struct stream *s)
{
    for (; s->taken < s->put; s->taken++)
        free(s->queue[s->taken % QUEUE].snapshot);
    pthread_cond_broadcast(&changed);
}

static void *run(void *arg)
{
    struct stream *s = arg;
    pthread_mutex_lock(&mutex);
    while (!s->closing || s->taken < s->put) {
        const struct op *op = &s->queue[s->taken % QUEUE];
        if (broken)
            drop(s);
        if (s->taken == s->put || halted || must_wait(op)) {
            wait_changed();
            continue;
        }
        perform(s, op);
        s->taken++;
        pthread_cond_broadcast(&changed);
    }
    free(s);
    pthread_mutex_unlock(&mutex);
    return NULL;
}

void streams_drained(void)
{
    for (int i = 0; i < STREAMS_MAX; i++)
        while (streams[i] && streams[i]->taken < streams[i]->put)
            wait_changed();
}

/* ------------------------------------------------------------------ streams */

static bool is_stream(const struct stream *s)
{
    for (int i = 0; s && i < STREAMS_MAX; i++)
        if (streams[i] == s)
            return true;
    return false;
}

static void *legacy; /* stands for the stream that NULL and 1 name; NULL: naming it is misuse */

void cuda_double_legacy(void *stream)
{
    pthread_mutex_lock(&mutex);
    legacy = stream;
    pthread_mutex_unlock(&mutex);
}

static struct stream *named(void *stream)
{
    return legacy && (uintptr_t)stream <= 1 ? legacy : stream;
}

int cuStreamCreate(void **stream, unsigned flags)
{
    struct context *c = NULL;
    pthread_t thread;
    pthread_attr_t attributes;
    int i = 0, rc = call_begin("cuStreamCreate", NEEDS_CONTEXT, &c);
    if (!rc && flags != HLY_CU_NON_BLOCKING) /* others would wait for the program's streams */
        rc = misuse(INVALID_VALUE);
    while (i < STREAMS_MAX && streams[i])
        i++;
    if (rc || i == STREAMS_MAX)
        return call_end(rc ? rc : HLY_CU_OUT_OF_MEMORY);
    struct stream *s = calloc(1, sizeof(*s));
    if (!s)
        abort();
    s->context = c;
    s->random = (settings.seed + 1) * 0x9e3779b97f4a7c15u + counts.calls;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    if (pthread_create(&thread, &attributes, run, s))
        abort();
    pthread_attr_destroy(&attributes);
    streams[i] = s;
    counts.streams++;
    *stream = s;
    return call_end(0);
}

/* What is in the queue is still done. */
int cuStreamDestroy_v2(void *stream)
{
    struct stream *s = stream;
    int rc = call_begin("cuStreamDestroy_v2", NEEDS_CONTEXT, NULL);
    if (!rc && !is_stream(s))
        rc = misuse(INVALID_HANDLE);
    for (int i = 0; !rc && i < STREAMS_MAX; i++)
        if (streams[i] == s)
            streams[i] = NULL;
    if (!rc) {
        s->closing = true;
        counts.streams--;
        pthread_cond_broadcast(&changed);
    }
    return call_end(rc);
}

static int spoil(struct stream *s, int result)
{
    counts.spoiled++;
    s->capturing = 2;
    return result;
}

void captures_spoil(void)
{
    for (int i = 0; i < STREAMS_MAX; i++)
        if (streams[i] && streams[i]->graph)
            streams[i]->capturing = 2;
}

int cuStreamQuery(void *stream)
{
    struct stream *s = stream;
    int rc = call_begin("cuStreamQuery", NEEDS_CONTEXT, NULL);
    if (!rc && !is_stream(s))
        rc = misuse(INVALID_HANDLE);
    if (!rc && s->graph)
        rc = spoil(s, CAPTURE_UNSUPPORTED);
    if (!rc && s->taken < s->put)
        rc = HLY_CU_NOT_READY;
    return call_end(rc);
}

int cuStreamGetCtx(void *stream, void **context)
{
    struct stream *s = stream;
    int rc = call_begin("cuStreamGetCtx", NO_CONTEXT, NULL);
    if (!rc && !is_stream(s))
        rc = misuse(INVALID_HANDLE);
    if (!rc)
        *context = s->context;
    return call_end(rc);
}

int cuStreamIsCapturing(void *stream, int *status)
{
    int rc = call_begin("cuStreamIsCapturing", NEEDS_CONTEXT, NULL);
    const struct stream *s = named(stream);
    if (!rc && !is_stream(s))
        rc = misuse(INVALID_HANDLE);
    if (!rc)
        *status = s->capturing;
    return call_end(rc);
}

/* Only that it is said to be captured: there are no graphs. */
void cuda_double_capture(void *stream, int now)
{
    struct stream *s = stream;
    pthread_mutex_lock(&mutex);
    capturing += now - s->capturing;
    s->capturing = now;
    pthread_mutex_unlock(&mutex);
}

/* Begins a call that puts something into a stream, of the context that is current. */
static int put_begin(const char *name, void *stream)
{
    struct context *c = NULL;
    const int rc = call_begin(name, NEEDS_CONTEXT, &c);
    struct stream *s = named(stream);
    if (rc)
        return rc;
    if (!is_stream(s) || s->context != c)
        return misuse(INVALID_HANDLE);
    if (s->capturing == 2)
        return CAPTURE_INVALIDATED;
    counts.waited += s->put - s->taken == QUEUE;
    while (s->put - s->taken == QUEUE && !broken) /* as a real one does */
        wait_changed();
    return broken;
}

static int put_end(void *stream, const struct op *op)
{
    struct stream *s = named(stream);
    if (s->graph && s->graph->n == GRAPH_OPS)
        abort();
    if (s->graph)
        s->graph->ops[s->graph->n++] = *op;
    else
        s->queue[s->put++ % QUEUE] = *op;
    pthread_cond_broadcast(&changed);
    return call_end(0);
}

/* ------------------------------------------------------------------ what streams do */

int cuMemcpyHtoDAsync_v2(uint64_t dst, const void *src, size_t bytes, void *stream)
{
    struct op op = {.kind = COPY, .dst = dst, .src = (uint64_t)(uintptr_t)src, .bytes = bytes};
    int rc = put_begin("cuMemcpyHtoDAsync_v2", stream);
    if (!rc && (!inside(dst, bytes, -1) || is_device(src)))
        rc = misuse(INVALID_VALUE);
    if (rc)
        return call_end(rc);
    if (!is_pinned(src, bytes) && !named(stream)->graph) {
        counts.pageable++;
        op.snapshot = malloc(bytes);
        if (!op.snapshot)
            abort();
        memcpy(op.snapshot, src, bytes);
    }
    return put_end(stream, &op);
}

int cuMemcpyDtoHAsync_v2(void *dst, uint64_t src, size_t bytes, void *stream)
{
    const struct op op = {
        .kind = COPY, .dst = (uint64_t)(uintptr_t)dst, .src = src, .bytes = bytes};
    int rc = put_begin("cuMemcpyDtoHAsync_v2", stream);
    struct stream *s = named(stream);
    if (!rc && (!inside(src, bytes, -1) || is_device(dst)))
        rc = misuse(INVALID_VALUE);
    if (rc)
        return call_end(rc);
    if (is_pinned(dst, bytes) || s->graph)
        return put_end(stream, &op);
    counts.pageable++;
    counts.waited++;
    s->queue[s->put++ % QUEUE] = op;
    const uint64_t until = s->put;
    while (s->taken < until && !broken)
        wait_changed();
    return call_end(broken);
}

int cuLaunchKernel(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                   unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                   void *stream, void **args, void **extra)
{
    struct op op = {.kind = KERNEL, .launch = {function, grid_x, block_x}};
    int rc = put_begin("cuLaunchKernel", stream);
    if (!rc && (!kernel_bytes(function) || !grid_x || !block_x || block_x > 1024 || grid_y != 1 ||
                grid_z != 1 || block_y != 1 || block_z != 1 || shared_bytes || extra || !args ||
                (uintptr_t)args[0] % 8))
        rc = misuse(INVALID_VALUE);
    if (rc)
        return call_end(rc);
    const size_t bytes = kernel_bytes(function);
    op.snapshot = malloc(bytes);
    if (!op.snapshot)
        abort();
    memcpy(op.snapshot, args[0], bytes);
    counts.launched++;
    return put_end(stream, &op);
}

int cuLaunchHostFunc(void *stream, hly_cu_host_fn *fn, void *arg)
{
    const struct op op = {.kind = HOST_FN, .fn = fn, .arg = arg};
    const int rc = put_begin("cuLaunchHostFunc", stream);
    return rc ? call_end(rc) : put_end(stream, &op);
}

static int put_word(const char *name, void *stream, int kind, uint64_t at, uint64_t value,
                    unsigned flags)
{
    const struct op op = {.kind = kind == WRITE ? WRITE : WAIT_WORD, .dst = at, .value = value};
    int rc = put_begin(name, stream);
    if (!rc && (at % 8 || flags || !is_pinned((void *)(uintptr_t)at, 8) || !settings.words))
        rc = misuse(INVALID_VALUE);
    return rc ? call_end(rc) : put_end(stream, &op);
}

int cuStreamWriteValue64_v2(void *stream, uint64_t at, uint64_t value, unsigned flags)
{
    return put_word("cuStreamWriteValue64_v2", stream, WRITE, at, value, flags);
}

int cuStreamWaitValue64_v2(void *stream, uint64_t at, uint64_t value, unsigned flags)
{
    return put_word("cuStreamWaitValue64_v2", stream, WAIT_WORD, at, value, flags);
}

/* ------------------------------------------------------------------ graphs */

/* Each launch of a kernel has an argument of its own. */
static void op_copy(struct op *to, const struct op *from)
{
    *to = *from;
    if (!from->snapshot)
        return;
    to->snapshot = malloc(kernel_bytes(from->launch.function));
    if (!to->snapshot)
        abort();
    memcpy(to->snapshot, from->snapshot, kernel_bytes(from->launch.function));
}

static void graph_free(struct graph *g)
{
    for (int i = 0; g && i < g->n; i++)
        free(g->ops[i].snapshot);
    free(g);
}

/* A graph is a list: what one stream has captured. Mode 0: unsafe calls of all threads spoil it. */
int cuStreamBeginCapture_v2(void *stream, int mode)
{
    struct stream *s = stream;
    int rc = put_begin("cuStreamBeginCapture_v2", stream);
    if (!rc && (s->capturing || mode))
        rc = misuse(INVALID_VALUE);
    if (rc)
        return call_end(rc);
    s->graph = calloc(1, sizeof(*s->graph));
    if (!s->graph)
        abort();
    s->capturing = 1;
    capturing++;
    return call_end(0);
}

int cuStreamEndCapture(void *stream, void **graph)
{
    struct stream *s = stream;
    int rc = call_begin("cuStreamEndCapture", NEEDS_CONTEXT, NULL);
    if (!rc && (!is_stream(s) || !s->graph))
        rc = misuse(INVALID_VALUE);
    if (rc)
        return call_end(rc);
    *graph = s->capturing == 1 ? s->graph : NULL;
    if (s->capturing == 2)
        graph_free(s->graph);
    rc = s->capturing == 2 ? CAPTURE_INVALIDATED : 0;
    s->graph = NULL;
    s->capturing = 0;
    capturing--;
    return call_end(rc);
}

int cuGraphInstantiateWithFlags(void **exec, void *graph, unsigned long long flags)
{
    const struct graph *from = graph;
    int rc = call_begin("cuGraphInstantiateWithFlags", NEEDS_CONTEXT, NULL);
    if (!rc && (!graph || flags))
        rc = misuse(INVALID_VALUE);
    if (rc)
        return call_end(rc);
    struct graph *copied = malloc(sizeof(*copied));
    if (!copied)
        abort();
    copied->n = from->n;
    for (int i = 0; i < from->n; i++)
        op_copy(&copied->ops[i], &from->ops[i]);
    *exec = copied;
    return call_end(0);
}

int cuGraphLaunch(void *exec, void *stream)
{
    const struct graph *g = exec;
    struct stream *s = stream;
    int rc = put_begin("cuGraphLaunch", stream);
    if (!rc && s->graph)
        rc = misuse(NOT_SUPPORTED);
    for (int i = 0; !rc && i < g->n; i++) {
        while (s->put - s->taken == QUEUE && !broken)
            wait_changed();
        op_copy(&s->queue[s->put++ % QUEUE], &g->ops[i]);
        rc = broken;
    }
    pthread_cond_broadcast(&changed);
    return call_end(rc);
}

/* What runs is in the streams already. */
int cuGraphExecDestroy(void *exec)
{
    const int rc = call_begin("cuGraphExecDestroy", NO_CONTEXT, NULL);
    graph_free(exec);
    return call_end(rc);
}

int cuGraphDestroy(void *graph)
{
    const int rc = call_begin("cuGraphDestroy", NO_CONTEXT, NULL);
    graph_free(graph);
    return call_end(rc);
}

/* ------------------------------------------------------------------ events */

static bool is_event(const struct event *e)
{
    return e >= events && e < events + EVENTS_MAX && e->used;
}

int cuEventCreate(void **event, unsigned flags)
{
    int i = 0, rc = call_begin("cuEventCreate", NEEDS_CONTEXT, NULL);
    (void)flags;
    while (i < EVENTS_MAX && events[i].used)
        i++;
    if (rc || i == EVENTS_MAX)
        return call_end(rc ? rc : HLY_CU_OUT_OF_MEMORY);
    events[i].used = true;
    counts.events++;
    *event = &events[i];
    return call_end(0);
}

int cuEventDestroy_v2(void *event)
{
    struct event *e = event;
    int rc = call_begin("cuEventDestroy_v2", NEEDS_CONTEXT, NULL);
    if (!rc && !is_event(e))
        rc = misuse(INVALID_HANDLE);
    if (!rc) {
        e->used = false;
        counts.events--;
    }
    return call_end(rc);
}

int cuEventRecord(void *event, void *stream)
{
    struct event *e = event;
    int rc = put_begin("cuEventRecord", stream);
    if (!rc && !is_event(e))
        rc = misuse(INVALID_HANDLE);
    if (rc)
        return call_end(rc);
    e->captured = named(stream)->graph != NULL;
    const struct op op = {.kind = RECORD, .event = e, .value = ++e->issued};
    return put_end(stream, &op);
}

int cuEventQuery(void *event)
{
    const struct event *e = event;
    int rc = call_begin("cuEventQuery", NEEDS_CONTEXT, NULL);
    if (!rc && !is_event(e))
        rc = misuse(INVALID_HANDLE);
    if (!rc && e->captured) {
        counts.spoiled++;
        captures_spoil();
        rc = CAPTURED_EVENT;
    }
    if (!rc && e->done < e->issued)
        rc = HLY_CU_NOT_READY;
    return call_end(rc);
}

int cuStreamWaitEvent(void *stream, void *event, unsigned flags)
{
    struct event *e = event;
    int rc = put_begin("cuStreamWaitEvent", stream);
    if (!rc && (!is_event(e) || flags))
        rc = misuse(INVALID_HANDLE);
    if (!rc && (named(stream)->graph || e->captured)) { /* no graphs of two streams */
        counts.spoiled++;
        captures_spoil();
        rc = CAPTURE_ISOLATION;
    }
    if (rc)
        return call_end(rc);
    const struct op op = {.kind = WAIT_EVENT, .event = e, .value = e->issued};
    return put_end(stream, &op);
}

/* ------------------------------------------------------------------ the processor waits */

int cuStreamSynchronize(void *stream)
{
    int rc = put_begin("cuStreamSynchronize", stream);
    struct stream *s = named(stream);
    if (!rc && s->graph)
        rc = spoil(s, CAPTURE_UNSUPPORTED);
    const uint64_t until = rc ? 0 : s->put;
    counts.synchronized++;
    counts.waited++;
    while (!rc && s->taken < until && !broken)
        wait_changed();
    return call_end(rc ? rc : broken);
}

int cuEventSynchronize(void *event)
{
    const struct event *e = event;
    int rc = call_begin("cuEventSynchronize", NEEDS_CONTEXT, NULL);
    counts.synchronized++;
    counts.waited++;
    if (!rc && !is_event(e))
        rc = misuse(INVALID_HANDLE);
    while (!rc && e->done < e->issued && !broken)
        wait_changed();
    return call_end(rc ? rc : broken);
}

int cuCtxSynchronize(void)
{
    struct context *c = NULL;
    const int rc = call_begin("cuCtxSynchronize", NEEDS_CONTEXT, &c);
    counts.synchronized++;
    counts.waited++;
    for (int i = 0; !rc && i < STREAMS_MAX; i++)
        while (streams[i] && streams[i]->context == c && streams[i]->taken < streams[i]->put &&
               !broken)
            wait_changed();
    return call_end(rc ? rc : broken);
}
