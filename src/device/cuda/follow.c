/* SPDX-License-Identifier: Apache-2.0 */
/*
 * follow.c - streams of the program. A mark is an event recorded there, which is asked about when
 * the device is polled. Streams of ours do not wait for it: another call may stand in them that the
 * program's stream waits for in its turn.
 */
#include <stdio.h>

#include "device/cuda/gpu.h"

#define PER_THREAD 2 /* handles of CUDA's own: those below it are the legacy stream */
#define LATE       4 /* streams that are known not to have come to their next mark, in one poll */

/* The GPU that the program's thread works on, or else that of the stream. If none is open yet. */
static int open_of(struct hly_gpu *gpu, void *stream)
{
    int ordinal;
    void *context = NULL;
    const struct hly_cuda_driver *d = &gpu->driver;
    int rc = hly_cuda_driver_open(&gpu->driver, true, gpu->why, sizeof(gpu->why));
    if (rc)
        return rc;
    rc = d->cuCtxGetDevice(&ordinal);
    if (rc && (uintptr_t)stream > PER_THREAD && !d->cuStreamGetCtx(stream, &context) &&
        !d->cuCtxPushCurrent_v2(context)) {
        rc = d->cuCtxGetDevice(&ordinal);
        d->cuCtxPopCurrent_v2(&context);
    }
    if (rc) {
        snprintf(gpu->why, sizeof(gpu->why), "which GPU? None is in use on this thread");
        return HALAY_EINVAL;
    }
    return hly_gpu_open(gpu, ordinal);
}

static bool is_gone(int result)
{
    return result == HLY_CU_INVALID_HANDLE || result == HLY_CU_INVALID_CONTEXT ||
           result == HLY_CU_CONTEXT_DESTROYED;
}

int hly_gpu_stream_check(struct hly_gpu *gpu, void *stream)
{
    void *context = gpu->context;
    int rc, capturing = 0;
    if ((uintptr_t)stream == PER_THREAD) {
        snprintf(gpu->why, sizeof(gpu->why),
                 "the per-thread stream is another one on each thread: make one by cuStreamCreate");
        return HALAY_EINVAL;
    }
    if ((uintptr_t)stream > PER_THREAD) {
        rc = gpu->driver.cuStreamGetCtx(stream, &context);
        if (is_gone(rc)) {
            snprintf(gpu->why, sizeof(gpu->why),
                     "there is no such stream (any more): was it destroyed? Set another one, or "
                     "none");
            return HALAY_EINVAL;
        }
        if (rc)
            return hly_gpu_failed(gpu, "cuStreamGetCtx", rc);
    }
    if (context != gpu->context) {
        snprintf(gpu->why, sizeof(gpu->why),
                 "the stream is of another GPU, or not of the primary context of GPU %d: use one "
                 "context of Halay a GPU",
                 gpu->ordinal);
        return HALAY_EINVAL;
    }
    rc = gpu->driver.cuStreamIsCapturing(stream, &capturing);
    if (rc)
        return hly_gpu_failed(gpu, "cuStreamIsCapturing", rc);
    if (capturing) {
        snprintf(gpu->why, sizeof(gpu->why),
                 "the stream is being captured into a graph: make the call outside of the capture");
        return HALAY_EUNSUPPORTED;
    }
    return HALAY_OK;
}

/* Closes the gaps of marks that are over in front of the first that is not. */
static void marks_close_up(struct hly_gpu *gpu)
{
    uint64_t kept = gpu->marks_end;
    for (uint64_t i = gpu->marks_end; i-- > gpu->marks_first;) {
        struct hly_gpu_mark *from = &gpu->marks[i % HLY_GPU_MARKS];
        if (!from->cookie)
            continue;
        struct hly_gpu_mark *to = &gpu->marks[--kept % HLY_GPU_MARKS];
        const struct hly_gpu_mark moved = *from;
        *from = *to;
        *to = moved;
    }
    gpu->marks_first = kept;
}

/* With the GPU's context. */
static int mark(struct hly_gpu *gpu, void *stream, uint64_t cookie)
{
    const struct hly_cuda_driver *d = &gpu->driver;
    int rc = HLY_CU_OK;
    if (gpu->nmarks == HLY_GPU_MARKS)
        return HALAY_EAGAIN;
    if (gpu->marks_end - gpu->marks_first == HLY_GPU_MARKS)
        marks_close_up(gpu);
    struct hly_gpu_mark *m = &gpu->marks[gpu->marks_end % HLY_GPU_MARKS];
    if (!m->event)
        rc = d->cuEventCreate(&m->event, HLY_CU_DISABLE_TIMING);
    if (rc) {
        m->event = NULL;
        return hly_gpu_failed(gpu, "cuEventCreate", rc);
    }
    rc = d->cuEventRecord(m->event, stream);
    if (rc)
        return hly_gpu_failed(gpu, "cuEventRecord", rc);
    m->cookie = cookie;
    m->stream = stream;
    gpu->marks_end++;
    gpu->nmarks++;
    return HALAY_INPROGRESS;
}

int hly_gpu_follow(struct hly_gpu *gpu, const halay_stream_t *stream, uint64_t cookie)
{
    if (gpu->lost || gpu->broken)
        return HALAY_EDEVICE;
    int rc = gpu->context ? HALAY_OK : open_of(gpu, stream->handle);
    rc = rc ? rc : hly_gpu_enter(gpu);
    if (rc)
        return rc;
    rc = hly_gpu_stream_check(gpu, stream->handle);
    if (!rc && cookie)
        rc = mark(gpu, stream->handle, cookie);
    hly_gpu_leave(gpu);
    return rc;
}

static void mark_free(struct hly_gpu *gpu, struct hly_gpu_mark *m)
{
    m->cookie = 0;
    gpu->nmarks--;
    while (gpu->marks_first < gpu->marks_end &&
           !gpu->marks[gpu->marks_first % HLY_GPU_MARKS].cookie)
        gpu->marks_first++;
}

/* Streams that have not come to a mark, so not to the later ones. */
struct late {
    const void *stream[LATE];
    int count;
};

static bool is_late(const struct late *late, const void *stream)
{
    for (int i = 0; i < late->count; i++)
        if (late->stream[i] == stream)
            return true;
    return false;
}

/* An error is the context's. */
int hly_gpu_marks_poll(struct hly_gpu *gpu, halay_done_t done[], int max)
{
    int n = 0;
    struct late late = {.count = 0};
    if (!gpu->nmarks || gpu->broken)
        return 0;
    if (hly_gpu_enter(gpu)) {
        hly_gpu_break(gpu);
        return 0;
    }
    for (uint64_t i = gpu->marks_first; i < gpu->marks_end && n < max && !gpu->broken; i++) {
        struct hly_gpu_mark *m = &gpu->marks[i % HLY_GPU_MARKS];
        if (!m->cookie || is_late(&late, m->stream))
            continue;
        const int rc = gpu->driver.cuEventQuery(m->event);
        if (rc == HLY_CU_NOT_READY) {
            if (late.count < LATE)
                late.stream[late.count++] = m->stream;
            continue;
        }
        if (rc) {
            hly_gpu_failed(gpu, "cuEventQuery", rc);
            hly_gpu_break(gpu);
            break;
        }
        done[n++] = (halay_done_t){m->cookie, HALAY_OK};
        mark_free(gpu, m);
    }
    hly_gpu_leave(gpu);
    return n;
}

bool hly_gpu_mark_drop(struct hly_gpu *gpu, uint64_t cookie)
{
    for (int i = 0; cookie && i < HLY_GPU_MARKS; i++)
        if (gpu->marks[i].cookie == cookie) {
            mark_free(gpu, &gpu->marks[i]);
            return true;
        }
    return false;
}

void hly_gpu_marks_free(struct hly_gpu *gpu)
{
    for (int i = 0; i < HLY_GPU_MARKS; i++) {
        if (gpu->marks[i].event)
            gpu->driver.cuEventDestroy_v2(gpu->marks[i].event);
        gpu->marks[i].event = NULL;
    }
}
