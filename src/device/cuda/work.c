/* SPDX-License-Identifier: Apache-2.0 */
/*
 * work.c - pieces of work in flight. Kernels, copies down and copies up have a stream each. After
 * a piece the GPU writes its number into a word of pinned memory, so that polling is one read;
 * where it cannot, an event is recorded. Pieces of one stream end in order; a flight is what the
 * caller waits for, and may be several pieces.
 */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "device/cuda/gpu.h"

#define THREADS 256
#define WAVES   8 /* of blocks on a multiprocessor */
#define IDLE_LOOKS                                                                                 \
    64                /* with nothing done, before the driver is asked whether the stream is well  \
                       */
#define WORDS_APART 8 /* a line */

static uint64_t now_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static uint64_t word_at(const struct hly_gpu *gpu, const struct hly_gpu_stream *s)
{
    return gpu->words_at + (uint64_t)(s - gpu->streams) * WORDS_APART * sizeof(uint64_t);
}

/* ------------------------------------------------------------------ what is done */

/* Asks the driver. An error is the context's, and nothing runs in it any more. */
static void look_closely(struct hly_gpu *gpu, struct hly_gpu_stream *s)
{
    int rc = hly_gpu_enter(gpu);
    s->nidle = 0;
    if (!rc) {
        rc = gpu->driver.cuStreamQuery(s->handle);
        hly_gpu_leave(gpu);
        if (rc && rc != HLY_CU_NOT_READY)
            hly_gpu_failed(gpu, "cuStreamQuery", rc);
    }
    if (!rc) {
        s->done = s->issued;
        s->unmarked = false;
    }
    if (rc && rc != HLY_CU_NOT_READY)
        hly_gpu_break(gpu);
}

static void look_at_events(struct hly_gpu *gpu, struct hly_gpu_stream *s)
{
    if (s->done == s->issued || hly_gpu_enter(gpu))
        return;
    while (s->done < s->issued &&
           !gpu->driver.cuEventQuery(s->events[(s->done + 1) % HLY_GPU_FLIGHTS]))
        s->done++;
    hly_gpu_leave(gpu);
}

/* How far has the stream come? Its load of the word pairs with the GPU's write, which is ordered
 * after all that the piece wrote. */
static void look(struct hly_gpu *gpu, struct hly_gpu_stream *s)
{
    const uint64_t before = s->done;
    if (gpu->words) {
        const uint64_t *word = gpu->words + (s - gpu->streams) * WORDS_APART;
        const uint64_t count = __atomic_load_n(word, __ATOMIC_ACQUIRE);
        s->done = count > before ? count : before;
    }
    if (!gpu->words && !s->unmarked) /* an event that was not recorded looks done */
        look_at_events(gpu, s);
    s->nidle = s->done > before ? 0 : s->nidle + 1;
    if (s->done < s->issued && (s->unmarked || s->nidle >= IDLE_LOOKS))
        look_closely(gpu, s);
}

/* ------------------------------------------------------------------ pieces */

/* A piece has failed that is told when it has ended: with the words of now. */
static int keep_why(struct hly_gpu *gpu, int status)
{
    snprintf(gpu->piece_why, sizeof(gpu->piece_why), "%s", gpu->why);
    return status;
}

/* Has the end of what was put into the stream just now written. If that fails it is looked for
 * with the driver's help. */
static int mark(struct hly_gpu *gpu, struct hly_gpu_stream *s, struct hly_gpu_flight *f)
{
    const struct hly_cuda_driver *d = &gpu->driver;
    int rc;
    f->number = ++s->issued;
    if (gpu->words)
        rc = d->cuStreamWriteValue64_v2(s->handle, word_at(gpu, s), f->number, 0);
    else
        rc = d->cuEventRecord(s->events[f->number % HLY_GPU_FLIGHTS], s->handle);
    if (!rc)
        return HALAY_OK;
    s->unmarked = true;
    f->status = HALAY_EDEVICE;
    hly_gpu_failed(gpu, gpu->words ? "cuStreamWriteValue64" : "cuEventRecord", rc);
    return keep_why(gpu, f->status);
}

/* So many threads have something to do. */
static int launch_kernel(struct hly_gpu *gpu, void *stream, void *kernel, void *args,
                         uint64_t items)
{
    const uint64_t blocks = (items + THREADS - 1) / THREADS;
    const uint64_t most = (uint64_t)WAVES * (gpu->nmultiprocessors + 1);
    void *params[] = {args};
    const int rc = gpu->driver.cuLaunchKernel(kernel, (unsigned)(blocks < most ? blocks : most), 1,
                                              1, THREADS, 1, 1, 0, stream, params, NULL);
    return rc ? hly_gpu_failed(gpu, "cuLaunchKernel", rc) : HALAY_OK;
}

static uint64_t items_of(const struct hly_cuda_args *args, size_t bytes)
{
    const uint64_t apart = (args->dst ^ args->src[0]) | (args->dst ^ args->src[1]) |
                           (args->dst ^ args->src[2]) | (args->dst ^ args->src[3]);
    return apart % 16 ? args->count : bytes / 16 + 16;
}

static bool divides(const halay_work_t *work)
{
    return work->op == HALAY_AVERAGE && work->divisor > 1;
}

/* Work of a kernel. */
static int compute(struct hly_gpu *gpu, void *stream, const halay_work_t *work)
{
    const size_t bytes = work->count * halay_type_bytes(work->type);
    struct hly_cuda_args args = {.dst = (uint64_t)(uintptr_t)work->dst,
                                 .count = work->count,
                                 .factor = work->factor,
                                 .nsrc = work->nsrc,
                                 .divisor = divides(work) ? work->divisor : 0};
    uint64_t odd = bytes | args.dst;
    void *kernel;
    uint32_t parts = 1;
    int rc;
    for (uint32_t i = 0; i < HALAY_REDUCE_SOURCES; i++) {
        args.src[i] = (uint64_t)(uintptr_t)work->src[i < work->nsrc ? i : 0];
        odd |= args.src[i];
    }
    if (work->nsrc == 1 && !work->scales && !divides(work)) {
        rc = hly_gpu_kernel_copy(gpu, odd % 4 == 0, &kernel);
        args.count = odd % 4 ? bytes : bytes / 4;
    } else {
        rc = hly_gpu_kernel(gpu, work, &kernel, &parts);
        args.count *= parts;
    }
    return rc ? rc : launch_kernel(gpu, stream, kernel, &args, items_of(&args, bytes));
}

/* The next part of a copy: all of it, or what a chunk holds. */
static int copy_on(struct hly_gpu *gpu, const struct hly_gpu_stream *s, struct hly_gpu_flight *f)
{
    const bool down = s == &gpu->streams[HALAY_TO_HOST];
    char *host = f->host;
    f->bytes = f->left;
    if (f->chunk >= 0) {
        f->bytes = f->left < HLY_GPU_CHUNK ? f->left : HLY_GPU_CHUNK;
        host = gpu->chunks + (size_t)f->chunk * HLY_GPU_CHUNK;
        if (!down)
            memcpy(host, f->host, f->bytes);
    }
    const int rc = down ? gpu->driver.cuMemcpyDtoHAsync_v2(host, f->at, f->bytes, s->handle)
                        : gpu->driver.cuMemcpyHtoDAsync_v2(f->at, host, f->bytes, s->handle);
    return rc ? hly_gpu_failed(gpu, down ? "cuMemcpyDtoHAsync" : "cuMemcpyHtoDAsync", rc)
              : HALAY_OK;
}

/* What was copied has arrived. Is it all? If not, the next part is under way. */
static bool copied(struct hly_gpu *gpu, struct hly_gpu_stream *s, struct hly_gpu_flight *f)
{
    if (f->chunk < 0 || f->status)
        return true;
    if (s == &gpu->streams[HALAY_TO_HOST])
        memcpy(f->host, gpu->chunks + (size_t)f->chunk * HLY_GPU_CHUNK, f->bytes);
    f->host += f->bytes;
    f->at += f->bytes;
    f->left -= f->bytes;
    if (!f->left)
        return true;
    f->status = hly_gpu_enter(gpu);
    if (f->status) {
        keep_why(gpu, f->status);
        return true;
    }
    f->status = copy_on(gpu, s, f);
    const bool flies = !f->status;
    if (flies)
        mark(gpu, s, f);
    else
        keep_why(gpu, f->status);
    hly_gpu_leave(gpu);
    return !flies;
}

/* ------------------------------------------------------------------ launch */

/* On this GPU, or not: as the work says. */
static int operand_check(struct hly_gpu *gpu, const void *at, size_t bytes, bool own)
{
    int ordinal;
    uint64_t id;
    int rc = hly_gpu_memory(gpu, at, bytes, &ordinal, &id);
    if (!own)
        return rc == HALAY_EUNSUPPORTED ? HALAY_OK : rc ? rc : HALAY_EINVAL;
    if (rc == HALAY_EUNSUPPORTED) {
        snprintf(gpu->why, sizeof(gpu->why),
                 "memory that was a GPU's is so no more: was it freed?");
        return HALAY_EINVAL;
    }
    if (!rc && gpu->ordinal < 0)
        rc = hly_gpu_open(gpu, ordinal);
    return rc ? rc : ordinal != gpu->ordinal ? HALAY_EINVAL : HALAY_OK;
}

static int operands_check(struct hly_gpu *gpu, const halay_work_t *work)
{
    const size_t bytes = work->count * halay_type_bytes(work->type);
    int rc = operand_check(gpu, work->dst, bytes, work->direction != HALAY_TO_HOST);
    for (uint32_t i = 0; !rc && i < work->nsrc; i++)
        rc = operand_check(gpu, work->src[i], bytes, work->direction != HALAY_FROM_HOST);
    return rc;
}

/* The flight of a copy from or to the host. HALAY_EAGAIN: there is no chunk for it. */
static int copy_begin(struct hly_gpu *gpu, const struct hly_gpu_stream *s, const halay_work_t *work,
                      struct hly_gpu_flight *f)
{
    const bool down = work->direction == HALAY_TO_HOST;
    const void *host = down ? work->dst : work->src[0];
    f->host = (char *)(uintptr_t)host;
    f->at = (uint64_t)(uintptr_t)(down ? work->src[0] : work->dst);
    f->left = work->count * halay_type_bytes(work->type);
    if (!hly_gpu_is_pinned(gpu, host, f->left)) {
        f->chunk = hly_gpu_chunk_take(gpu);
        if (f->chunk < 0)
            return f->chunk == -1 ? HALAY_EAGAIN : f->chunk + 1;
    }
    const int rc = copy_on(gpu, s, f);
    if (rc && f->chunk >= 0)
        hly_gpu_chunk_give(gpu, f->chunk);
    return rc;
}

static int start(struct hly_gpu *gpu, const halay_work_t *work)
{
    struct hly_gpu_stream *s = &gpu->streams[work->direction];
    struct hly_gpu_flight *f = &s->flights[s->nflights];
    if (s->nflights == HLY_GPU_FLIGHTS)
        return HALAY_EAGAIN;
    int rc = hly_gpu_enter(gpu);
    if (rc)
        return rc;
    *f = (struct hly_gpu_flight){.cookie = work->cookie, .chunk = -1};
    rc = work->direction ? copy_begin(gpu, s, work, f) : compute(gpu, s->handle, work);
    if (!rc && work->opens_at && !work->direction) /* if it fails, the core opens it */
        (void)gpu->driver.cuStreamWriteValue64_v2(s->handle, work->opens_at, work->opens_value, 0);
    if (!rc) {
        mark(gpu, s, f); /* if not, poll says so when the piece has ended */
        s->nflights++;
    }
    hly_gpu_leave(gpu);
    return rc ? rc : HALAY_INPROGRESS;
}

/* In the program's stream, which is being captured into a graph. */
static int record(struct hly_gpu *gpu, const halay_work_t *work)
{
    int rc = work->direction ? HALAY_EUNSUPPORTED : hly_gpu_enter(gpu);
    if (rc)
        return rc;
    rc = compute(gpu, work->stream->handle, work);
    hly_gpu_leave(gpu);
    return rc;
}

int hly_gpu_launch(struct hly_gpu *gpu, const halay_work_t *work)
{
    int rc = hly_device_work_check(work);
    if (rc || !work->count)
        return rc;
    if (work->at_once || (work->nsrc > 1 && work->op >= HALAY_OP_USER))
        return HALAY_EUNSUPPORTED;
    if (gpu->lost || gpu->broken)
        return HALAY_EDEVICE;
    rc = operands_check(gpu, work);
    if (rc)
        return rc;
    if (work->nsrc == 1 && work->dst == work->src[0] && !work->scales && !divides(work))
        return HALAY_OK;
    return work->stream ? record(gpu, work) : start(gpu, work);
}

/* ------------------------------------------------------------------ lists */

static bool moves(const halay_part_t *part)
{
    return part->count && (part->dst != part->src || part->factor != 1);
}

/* Looks at all of a list: does one of them scale, and are those that only copy of whole words? */
static int list_look(struct hly_gpu *gpu, const halay_part_t parts[], uint32_t nparts, size_t bytes,
                     bool *scales, bool *words)
{
    uint64_t odd = 0;
    int rc = HALAY_OK;
    *scales = false;
    for (uint32_t i = 0; !rc && i < nparts; i++) {
        const halay_part_t *p = &parts[i];
        if (!p->count)
            continue;
        odd |= (uint64_t)(uintptr_t)p->dst | (uint64_t)(uintptr_t)p->src | p->count * bytes;
        *scales = *scales || p->factor != 1;
        rc = operand_check(gpu, p->dst, p->count * bytes, true);
        rc = rc ? rc : operand_check(gpu, p->src, p->count * bytes, true);
    }
    *words = odd % 4 == 0;
    return rc;
}

/* The kernel's argument, of elements of so many bytes. HALAY_EUNSUPPORTED: it is too much. */
static int list_fill(struct hly_cuda_list *list, const halay_part_t parts[], uint32_t nparts,
                     size_t type_bytes, size_t element)
{
    uint64_t ntiles = 0;
    _Static_assert(HALAY_LIST_PARTS <= HLY_CUDA_LIST, "all parts have room");
    list->nparts = 0;
    for (uint32_t i = 0; i < nparts && ntiles <= UINT32_MAX; i++) {
        const uint64_t count = parts[i].count * type_bytes / element;
        const uint32_t n = list->nparts;
        if (!moves(&parts[i]))
            continue;
        list->dst[n] = (uint64_t)(uintptr_t)parts[i].dst;
        list->src[n] = (uint64_t)(uintptr_t)parts[i].src;
        list->count[n] = count;
        list->factor[n] = parts[i].factor;
        list->first[n] = (uint32_t)ntiles;
        list->nparts++;
        ntiles += (count + HLY_CUDA_TILE - 1) / HLY_CUDA_TILE;
    }
    list->ntiles = (uint32_t)ntiles;
    return ntiles <= UINT32_MAX ? HALAY_OK : HALAY_EUNSUPPORTED;
}

/* With the GPU's context. */
static int list_start(struct hly_gpu *gpu, struct hly_gpu_stream *s, void *kernel,
                      struct hly_cuda_list *list, uint64_t cookie)
{
    struct hly_gpu_flight *f = &s->flights[s->nflights];
    *f = (struct hly_gpu_flight){.cookie = cookie, .chunk = -1};
    const int rc =
        launch_kernel(gpu, s->handle, kernel, list, (uint64_t)list->ntiles * HLY_CUDA_TEAM);
    if (rc)
        return rc;
    mark(gpu, s, f);
    s->nflights++;
    return HALAY_INPROGRESS;
}

int hly_gpu_launch_list(struct hly_gpu *gpu, const halay_part_t parts[], uint32_t nparts,
                        halay_type_t type, uint64_t cookie)
{
    struct hly_gpu_stream *s = &gpu->streams[HALAY_WITHIN];
    struct hly_cuda_list list;
    const size_t bytes = halay_type_bytes(type);
    bool scales, words;
    void *kernel;
    uint32_t nelements = 1;
    int rc = hly_device_list_check(parts, nparts, type);
    if (rc)
        return rc;
    if (gpu->lost || gpu->broken)
        return HALAY_EDEVICE;
    if (s->nflights == HLY_GPU_FLIGHTS)
        return HALAY_EAGAIN;
    rc = list_look(gpu, parts, nparts, bytes, &scales, &words);
    if (rc || !gpu->context)
        return rc;
    rc = hly_gpu_enter(gpu);
    if (rc)
        return rc;
    rc = scales ? hly_gpu_kernel_list(gpu, type, &kernel, &nelements)
                : hly_gpu_kernel_copy_list(gpu, words, &kernel);
    if (!rc)
        rc = list_fill(&list, parts, nparts, bytes, scales ? bytes / nelements : words ? 4 : 1);
    if (!rc && list.nparts)
        rc = list_start(gpu, s, kernel, &list, cookie);
    hly_gpu_leave(gpu);
    return rc;
}

/* ------------------------------------------------------------------ poll, sleep, stop */

static halay_done_t remove_flight(struct hly_gpu *gpu, struct hly_gpu_stream *s, uint32_t which)
{
    const struct hly_gpu_flight f = s->flights[which];
    if (f.chunk >= 0 && !gpu->lost)
        hly_gpu_chunk_give(gpu, f.chunk);
    s->flights[which] = s->flights[--s->nflights];
    if (f.status)
        snprintf(gpu->why, sizeof(gpu->why), "%s", gpu->piece_why);
    return (halay_done_t){f.cookie, f.status};
}

int hly_gpu_poll(struct hly_gpu *gpu, halay_done_t done[], int max)
{
    int n = hly_gpu_marks_poll(gpu, done, max);
    for (int i = 0; i < HLY_GPU_STREAMS && !gpu->broken; i++) {
        struct hly_gpu_stream *s = &gpu->streams[i];
        if (s->nflights)
            look(gpu, s);
        for (uint32_t f = 0; f < s->nflights && n < max && !gpu->broken;) {
            if (s->flights[f].number <= s->done && copied(gpu, s, &s->flights[f]))
                done[n++] = remove_flight(gpu, s, f);
            else
                f++;
        }
    }
    return gpu->broken && !n ? HALAY_EDEVICE : n;
}

static void ring(void *fd)
{
    const uint64_t one = 1;
    const ssize_t n = write((int)(intptr_t)fd, &one, sizeof(one));
    (void)n; /* full: it is readable */
}

/* Wakes the sleeper when the piece is done, which was issued before. */
static int alarm_set(struct hly_gpu *gpu, struct hly_gpu_stream *s, uint64_t number)
{
    const struct hly_cuda_driver *d = &gpu->driver;
    int rc = gpu->words ? d->cuStreamWaitValue64_v2(s->alarm, word_at(gpu, s), number, 0)
                        : d->cuStreamWaitEvent(s->alarm, s->events[number % HLY_GPU_FLIGHTS], 0);
    if (!rc)
        rc = d->cuLaunchHostFunc(s->alarm, ring, (void *)(intptr_t)gpu->wake);
    if (!rc)
        s->alarmed = number;
    return rc;
}

int hly_gpu_arm(struct hly_gpu *gpu, int *fd)
{
    uint64_t rung;
    if (gpu->broken)
        return HALAY_EAGAIN;
    while (read(gpu->wake, &rung, sizeof(rung)) < 0 && errno == EINTR)
        ;
    for (int i = 0; i < HLY_GPU_STREAMS; i++) {
        struct hly_gpu_stream *s = &gpu->streams[i];
        if (!s->nflights)
            continue;
        look(gpu, s);
        uint64_t first = UINT64_MAX;
        for (uint32_t f = 0; f < s->nflights; f++)
            first = s->flights[f].number < first ? s->flights[f].number : first;
        if (first <= s->done || s->unmarked || gpu->broken)
            return HALAY_EAGAIN;
        if (s->alarmed >= first)
            continue;
        if (hly_gpu_enter(gpu))
            return HALAY_EAGAIN;
        const int rc = alarm_set(gpu, s, first);
        hly_gpu_leave(gpu);
        if (rc) /* polling finds out how it is */
            return HALAY_EAGAIN;
    }
    *fd = gpu->wake;
    return HALAY_OK;
}

static struct hly_gpu_stream *flight_find(struct hly_gpu *gpu, uint64_t cookie, uint32_t *which)
{
    for (int i = 0; i < HLY_GPU_STREAMS; i++) {
        struct hly_gpu_stream *s = &gpu->streams[i];
        for (*which = 0; *which < s->nflights; ++*which)
            if (s->flights[*which].cookie == cookie)
                return s;
    }
    return NULL;
}

/* Is the GPU off this piece? A context that broke does nothing any more; but whether it did, or one
 * call failed, only a second answer can tell. */
static bool is_off(struct hly_gpu *gpu, struct hly_gpu_stream *s, uint64_t number)
{
    look(gpu, s);
    if (s->done >= number || !gpu->broken)
        return s->done >= number;
    if (hly_gpu_enter(gpu))
        return false;
    const int rc = gpu->driver.cuStreamQuery(s->handle);
    hly_gpu_leave(gpu);
    return rc != HLY_CU_NOT_READY;
}

int hly_gpu_stop(struct hly_gpu *gpu, uint64_t cookie, uint64_t timeout_ns)
{
    const struct timespec pause = {.tv_nsec = 20000};
    const uint64_t begun_ns = now_ns();
    uint32_t which;
    if (hly_gpu_mark_drop(gpu, cookie))
        return HALAY_OK;
    struct hly_gpu_stream *s = flight_find(gpu, cookie, &which);
    assert(s);
    const uint64_t number = s->flights[which].number;
    bool off = is_off(gpu, s, number);
    while (!off && now_ns() - begun_ns < timeout_ns) {
        nanosleep(&pause, NULL);
        off = is_off(gpu, s, number);
    }
    if (!off) {
        snprintf(gpu->why, sizeof(gpu->why), "GPU %d does not come to an end of its work",
                 gpu->ordinal);
        if (!gpu->broken)
            snprintf(gpu->broken_why, sizeof(gpu->broken_why), "%s", gpu->why);
        gpu->lost = true;
    }
    remove_flight(gpu, s, which);
    return off ? HALAY_OK : HALAY_EDEVICE;
}
