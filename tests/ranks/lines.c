/* SPDX-License-Identifier: Apache-2.0 */
/* lines.c - streams of a program, of the double of CUDA's driver and of the late device. */
#include <sched.h>
#include <string.h>

#include "lines.h"

bool late;

void enter(struct line *l)
{
    CHECK(!cuCtxPushCurrent_v2(l->context), "push");
}

void leave(void)
{
    void *was;
    CHECK(!cuCtxPopCurrent_v2(&was), "pop");
}

static uint32_t done_of(struct line *l)
{
    return __atomic_load_n(&l->stream.done, __ATOMIC_ACQUIRE);
}

static bool must_wait(struct line *l, const struct job *j)
{
    if (j->kind == GATE)
        return !__atomic_load_n(&l->opened[j->behind % LINE_JOBS], __ATOMIC_ACQUIRE);
    return j->after && done_of(j->after) < j->behind;
}

static void *work(void *arg)
{
    static const struct timespec pause = {.tv_nsec = 1000000};
    struct line *l = arg;
    while (!__atomic_load_n(&l->closing, __ATOMIC_ACQUIRE)) {
        const uint32_t n = done_of(l);
        nanosleep(&pause, NULL);
        if (n == __atomic_load_n(&l->stream.put, __ATOMIC_ACQUIRE))
            continue;
        const struct job *j = &l->jobs[n % LINE_JOBS];
        while (must_wait(l, j))
            nanosleep(&pause, NULL);
        if (j->kind == GET)
            ranks_there_get(j->to, (void *)(uintptr_t)j->from, j->bytes);
        else if (j->to)
            ranks_there_put(j->to, j->from, j->bytes);
        __atomic_store_n(&l->stream.done, n + 1, __ATOMIC_RELEASE);
    }
    return NULL;
}

static void add(struct line *l, const struct job *job)
{
    const uint32_t n = l->stream.put;
    CHECK(n - done_of(l) < LINE_JOBS, "full");
    l->jobs[n % LINE_JOBS] = *job;
    __atomic_store_n(&l->stream.put, n + 1, __ATOMIC_RELEASE);
}

static void gate(struct hly_late_stream *stream, uint32_t number, bool opens)
{
    struct line *l = (struct line *)(void *)stream;
    __atomic_store_n(&l->opened[number % LINE_JOBS], opens, __ATOMIC_RELEASE);
    if (!opens)
        add(l, &(struct job){.kind = GATE, .behind = number});
}

void line_make(struct line *l, int gpu)
{
    memset(l, 0, sizeof(*l));
    l->stream.magic = HLY_LATE_STREAM;
    l->stream.gate = gate;
    if (late) {
        CHECK(!pthread_create(&l->thread, NULL, work, l), "thread");
        return;
    }
    CHECK(!cuInit(0) && !cuDevicePrimaryCtxRetain(&l->context, gpu), "GPU %d", gpu);
    enter(l);
    CHECK(!cuStreamCreate(&l->cuda, HLY_CU_NON_BLOCKING), "stream");
    leave();
}

void line_end(struct line *l)
{
    if (late)
        return; /* line_drop waits */
    enter(l);
    while (cuStreamQuery(l->cuda) == HLY_CU_NOT_READY)
        sched_yield();
    leave();
}

void line_drop(struct line *l, int gpu)
{
    if (late) {
        __atomic_store_n(&l->closing, true, __ATOMIC_RELEASE);
        pthread_join(l->thread, NULL);
        return;
    }
    enter(l);
    CHECK(!cuStreamDestroy_v2(l->cuda), "destroy");
    leave();
    CHECK(!cuDevicePrimaryCtxRelease_v2(gpu), "release");
}

halay_stream_t stream_of(struct line *l)
{
    return (halay_stream_t){.size = sizeof(halay_stream_t),
                            .kind = late ? HALAY_MEMORY_TEST : HALAY_MEMORY_CUDA,
                            .handle = late ? (void *)&l->stream : l->cuda};
}

void put(struct line *l, void *to, const void *from, size_t bytes, struct line *after)
{
    void *event;
    if (late) {
        add(l, &(struct job){PUT, to, from, bytes, after ? after->stream.put : 0, after});
        return;
    }
    enter(l);
    if (after) {
        CHECK(!cuEventCreate(&event, HLY_CU_DISABLE_TIMING), "event");
        CHECK(!cuEventRecord(event, after->cuda) && !cuStreamWaitEvent(l->cuda, event, 0), "after");
        CHECK(!cuEventDestroy_v2(event), "event");
    }
    CHECK(!to || !cuMemcpyHtoDAsync_v2((uint64_t)(uintptr_t)to, from, bytes, l->cuda), "copy");
    leave();
}

void get(struct line *l, void *to, const void *from, size_t bytes)
{
    if (late) {
        add(l, &(struct job){.kind = GET, .to = to, .from = from, .bytes = bytes});
        return;
    }
    enter(l);
    CHECK(!cuMemcpyDtoHAsync_v2(to, (uint64_t)(uintptr_t)from, bytes, l->cuda), "copy");
    leave();
}

bool line_is_done(struct line *l)
{
    if (late)
        return done_of(l) == l->stream.put;
    enter(l);
    const int rc = cuStreamQuery(l->cuda);
    leave();
    CHECK(!rc || rc == HLY_CU_NOT_READY, "query: %d", rc);
    return !rc;
}
