/* SPDX-License-Identifier: Apache-2.0 */
/*
 * host.c - the host device: this processor, in launch. Kernels combine two operands; what takes
 * more steps (more sources, a division) goes block by block through scratch that
 * stays in the first-level cache. A block of dst is written last of all that is done on the block,
 * so dst may be any one of the sources.
 */
#include <assert.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#include "device/device_builtin.h"
#include "device/fp.h"
#include "device/kernels.h"

#define BLOCK_BYTES  4096
#define BESIDE_BYTES 256 /* a block where something is copied beside */
#define LINE         64

struct host {
    const struct hly_kernels *kernels;
};

/* ------------------------------------------------------------------ instruction sets */

static int has_scalar(void)
{
    return 1;
}

#if defined(__x86_64__)
static int has_avx2(void)
{
    unsigned a, b, c = 0, d; /* not every compiler lets one ask for "f16c" by name */
    return __builtin_cpu_supports("avx2") && __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

static int has_avx512(void)
{
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}
#endif

/* Best first. */
static const struct {
    const struct hly_kernels *kernels;
    int (*here)(void);
} isas[] = {
#if defined(__x86_64__)
    {&hly_kernels_avx512, has_avx512},
    {&hly_kernels_avx2, has_avx2},
#endif
    {&hly_kernels_scalar, has_scalar},
};

static const struct hly_kernels *kernels_find(const char *isa)
{
    for (size_t i = 0; i < sizeof isas / sizeof isas[0]; i++) {
        if (isa && strcmp(isa, isas[i].kernels->isa) != 0)
            continue;
        if (isas[i].here())
            return isas[i].kernels;
    }
    return NULL;
}

/* ------------------------------------------------------------------ work */

/* Disjoint, or equal. */
static int overlap_allowed(const void *dst, const void *src, size_t bytes)
{
    uintptr_t d = (uintptr_t)dst, s = (uintptr_t)src;
    return d == s || (d < s ? s - d : d - s) >= bytes;
}

/* Is there a division? The divisor of any other operation has no meaning. */
static int divides(const halay_work_t *work)
{
    return work->op == HALAY_AVERAGE && work->divisor > 1;
}

static int is_user(const halay_work_t *work)
{
    return work->nsrc > 1 && work->op >= HALAY_OP_USER;
}

/* What is asked of an operation, beside its type. */
static int operation_check(const halay_work_t *work, size_t bytes)
{
    if (work->scales && (work->nsrc != 1 || halay_scale(NULL, NULL, 0, work->type, work->factor)))
        return HALAY_EINVAL;
    if ((work->nsrc > 1 || divides(work)) && !halay_op_takes(work->op, work->type))
        return HALAY_EINVAL;
    if (is_user(work) && (!work->fn || !work->group || work->count % work->group ||
                          work->group > HALAY_OP_GROUP_BYTES_MAX / bytes))
        return HALAY_EINVAL;
    return HALAY_OK;
}

int hly_device_work_check(const halay_work_t *work)
{
    size_t bytes;
    if (!work)
        return HALAY_EINVAL;
    bytes = halay_type_bytes(work->type);
    if (bytes == 0 || work->count > SIZE_MAX / bytes)
        return HALAY_EINVAL;
    if (work->nsrc < 1 || work->nsrc > HALAY_REDUCE_SOURCES)
        return HALAY_EINVAL;
    if (operation_check(work, bytes) != HALAY_OK)
        return HALAY_EINVAL;
    if (work->count == 0)
        return HALAY_OK;
    if (!work->dst)
        return HALAY_EINVAL;
    for (uint32_t s = 0; s < work->nsrc; s++) {
        if (!work->src[s] || !overlap_allowed(work->dst, work->src[s], work->count * bytes))
            return HALAY_EINVAL;
    }
    return HALAY_OK;
}

/* NULL unless one combination of two operands is all there is to do. */
static hly_combine_fn *const *combine_of(const struct hly_kernels *kernels,
                                         const halay_work_t *work)
{
    hly_combine_fn *const *combine;
    if (work->nsrc != 2 || divides(work) || is_user(work))
        return NULL;
    combine = &kernels->combine[work->type][work->op];
    return *combine ? combine : NULL;
}

static void combine_two(hly_combine_fn *combine, const halay_work_t *work, const void *left,
                        const void *right)
{
    hly_fp_t state;
    const int changed = hly_fp_enter(&state);
    combine(work->dst, left, right, work->count);
    if (changed)
        hly_fp_leave(&state);
}

void hly_host_combine(const halay_work_t *work, const void *left, const void *right)
{
    hly_combine_fn *const *combine = work->bound;
    combine_two(*combine, work, left, right);
}

static const void *at(const void *base, size_t bytes)
{
    return (const char *)base + bytes;
}

/* Types that are their own accumulation type. */
static void step_by_step(const struct hly_kernels *kernels, const halay_work_t *work)
{
    _Alignas(64) unsigned char scratch[BLOCK_BYTES];
    const size_t bytes = halay_type_bytes(work->type), step = BLOCK_BYTES / bytes;
    const uint32_t nsrc = work->nsrc, last = divides(work) ? nsrc : nsrc - 1;
    hly_combine_fn *const combine = nsrc > 1 ? kernels->combine[work->type][work->op] : NULL;

    if (last == 1) { /* of one source */
        kernels->divide[work->type](work->dst, work->src[0], work->divisor, work->count);
        return;
    }
    for (size_t done = 0; done < work->count; done += step) {
        const size_t count = work->count - done < step ? work->count - done : step;
        const size_t offset = done * bytes;
        void *const dst = (char *)work->dst + offset;
        const void *left = at(work->src[0], offset);
        for (uint32_t s = 1; s < nsrc; s++) {
            void *out = s == last ? dst : scratch;
            combine(out, left, at(work->src[s], offset), count);
            left = out;
        }
        if (last == nsrc)
            kernels->divide[work->type](dst, left, work->divisor, count);
    }
}

/* Whole groups at a time, never into an operand: what fn reads is what it was given. */
static void by_user(const halay_work_t *work)
{
    _Alignas(64) unsigned char scratch[2][BLOCK_BYTES];
    const size_t bytes = halay_type_bytes(work->type), group = work->group * bytes;
    const size_t step = BLOCK_BYTES / group * work->group;

    static_assert(HALAY_OP_GROUP_BYTES_MAX <= BLOCK_BYTES, "a block holds a group");
    if (work->nsrc == 2 && work->dst != work->src[0] && work->dst != work->src[1]) {
        work->fn(work->fn_arg, work->type, work->count, work->dst, work->src[0], work->src[1]);
        return;
    }
    for (size_t done = 0; done < work->count; done += step) {
        const size_t count = work->count - done < step ? work->count - done : step;
        const void *left = at(work->src[0], done * bytes);
        for (uint32_t s = 1; s < work->nsrc; s++) {
            void *const out = scratch[s % 2];
            work->fn(work->fn_arg, work->type, count, out, left, at(work->src[s], done * bytes));
            left = out;
        }
        memcpy((char *)work->dst + done * bytes, left, count * bytes);
    }
}

static void compute(const struct hly_kernels *kernels, const halay_work_t *work)
{
    hly_reduce_fn *const at_once = is_user(work) ? NULL : kernels->reduce[work->type][work->op];
    hly_fp_t state;
    const int changed = hly_fp_enter(&state);

    if (is_user(work))
        by_user(work);
    else if (at_once)
        at_once(work->dst, work->src, work->nsrc, divides(work) ? work->divisor : 0, work->count);
    else
        step_by_step(kernels, work);
    if (changed)
        hly_fp_leave(&state);
}

/* ------------------------------------------------------------------ the device */

static int host_open(void *arg, const char *isa, halay_device_t **device)
{
    const struct hly_kernels *kernels;
    struct host *host;
    (void)arg;
    if (!device)
        return HALAY_EINVAL;
    kernels = kernels_find(isa);
    if (!kernels)
        return HALAY_EUNSUPPORTED;
    host = malloc(sizeof *host);
    if (!host)
        return HALAY_ENOMEM;
    host->kernels = kernels;
    *device = (halay_device_t *)host;
    return HALAY_OK;
}

/* What has been checked. */
static void perform(const struct hly_kernels *kernels, const halay_work_t *work)
{
    hly_combine_fn *const *combine = work->bound ? work->bound : combine_of(kernels, work);
    if (combine)
        combine_two(*combine, work, work->src[0], work->src[1]);
    else if (work->scales)
        halay_scale(work->dst, work->src[0], work->count, work->type, work->factor);
    else if (work->nsrc > 1 || divides(work))
        compute(kernels, work);
    else if (work->dst != work->src[0])
        memcpy(work->dst, work->src[0], work->count * halay_type_bytes(work->type));
}

/* Elements of the next block; the first block ends where a line of dst does. */
static size_t block_count(const halay_work_t *work, size_t done, size_t bytes, size_t block)
{
    const size_t head = -(uintptr_t)work->dst % LINE;
    size_t most = (done || head % bytes || !head ? block : head) / bytes;
    return work->count - done < most ? work->count - done : most;
}

static void copy(const struct hly_kernels *kernels, void *dst, const void *src, size_t bytes)
{
    if (bytes % LINE)
        memcpy(dst, src, bytes);
    else
        kernels->copy(dst, src, bytes);
}

static void stream(const struct hly_kernels *kernels, void *dst, const void *src, size_t bytes)
{
    if (bytes % LINE || (uintptr_t)dst % LINE)
        hly_stream_part(dst, src, bytes);
    else
        kernels->stream(dst, src, bytes);
}

static bool sums(const halay_work_t *work)
{
    return work->streams && work->nsrc == 2 &&
           (work->op == HALAY_SUM || (work->op == HALAY_AVERAGE && !divides(work)));
}

/* NULL: in blocks. */
static hly_weave_fn *weave_of(const struct hly_kernels *kernels, const halay_work_t *work)
{
    return sums(work) ? kernels->weave[work->type] : NULL;
}

/* The next bytes of what is copied beside. */
static struct hly_beside beside_take(struct hly_beside *rest, size_t most)
{
    const struct hly_beside taken = {rest->to, rest->from, rest->bytes < most ? rest->bytes : most};
    if (taken.bytes) {
        rest->to = (char *)rest->to + taken.bytes;
        rest->from = at(rest->from, taken.bytes);
        rest->bytes -= taken.bytes;
    }
    return taken;
}

/* What is whole lines of the work, from `done` bytes on, as far as there is something to copy; or
 * to its end. Returns how much that was. */
static size_t weave(hly_weave_fn *fn, const halay_work_t *work, struct hly_beside *rest,
                    size_t done)
{
    char *const dst = (char *)work->dst + done;
    size_t bytes = work->count * halay_type_bytes(work->type) - done;
    if (rest->bytes >= LINE && rest->bytes < bytes)
        bytes = rest->bytes;
    bytes -= bytes % LINE;
    if ((uintptr_t)dst % LINE || !bytes)
        return 0;
    const struct hly_beside copied = beside_take(rest, rest->bytes < LINE ? 0 : bytes);
    fn(dst, at(work->src[0], done), at(work->src[1], done), bytes, copied.bytes ? copied.to : NULL,
       copied.from);
    return bytes;
}

/*
 * Block by block, through the first-level cache where it goes past the others: the same loops, so
 * the same bits. After each a block of what is copied beside. Sums that go past the caches, line by
 * line.
 */
static void perform_blocks(const struct hly_kernels *kernels, const halay_work_t *work,
                           const struct hly_beside *beside, size_t block)
{
    _Alignas(LINE) unsigned char scratch[BLOCK_BYTES];
    const size_t bytes = halay_type_bytes(work->type);
    hly_combine_fn *const *combine = work->bound ? work->bound : combine_of(kernels, work);
    hly_weave_fn *const woven = weave_of(kernels, work);
    struct hly_beside rest = *beside;
    halay_work_t part = *work;
    hly_fp_t state;
    const int changed = hly_fp_enter(&state);
    for (size_t done = 0; done < work->count; done += part.count) {
        char *const dst = (char *)work->dst + done * bytes;
        part.count = woven ? weave(woven, work, &rest, done * bytes) / bytes : 0;
        if (part.count)
            continue;
        part.count = block_count(work, done, bytes, block);
        part.dst = work->streams ? (void *)scratch : dst;
        for (uint32_t s = 0; s < work->nsrc; s++)
            part.src[s] = at(work->src[s], done * bytes);
        if (combine)
            (*combine)(part.dst, part.src[0], part.src[1], part.count);
        else
            perform(kernels, &part);
        if (work->streams)
            stream(kernels, dst, scratch, part.count * bytes);
        const struct hly_beside now = beside_take(&rest, block);
        if (now.bytes)
            copy(kernels, now.to, now.from, now.bytes);
    }
    if (rest.bytes)
        memcpy(rest.to, rest.from, rest.bytes);
    if (changed)
        hly_fp_leave(&state);
}

static void perform_streaming(const struct hly_kernels *kernels, const halay_work_t *work)
{
    static const struct hly_beside nothing = {NULL, NULL, 0};
    perform_blocks(kernels, work, &nothing, BLOCK_BYTES);
    hly_stream_end();
}

static int host_launch(halay_device_t *device, const halay_work_t *work)
{
    const struct host *host = (const struct host *)device;
    int rc = HALAY_OK;
    assert(host);
    if (!work)
        return HALAY_EINVAL;
    if (!work->bound)
        rc = hly_device_work_check(work);
    if (rc != HALAY_OK || work->count == 0)
        return rc;
    bool plain = work->nsrc == 1 && !work->scales && !divides(work);
    if (work->streams && plain)
        hly_stream(work->dst, work->src[0], work->count * halay_type_bytes(work->type));
    else if (work->streams && !is_user(work))
        perform_streaming(host->kernels, work);
    else
        perform(host->kernels, work);
    return HALAY_OK;
}

int hly_host_beside(halay_device_t *device, const halay_work_t *work,
                    const struct hly_beside *beside)
{
    const struct host *host = (const struct host *)device;
    int rc = work->bound ? HALAY_OK : hly_device_work_check(work);
    if (rc != HALAY_OK || !work->count || work->nsrc < 2 || is_user(work)) {
        rc = host_launch(device, work);
        if (rc == HALAY_OK)
            memcpy(beside->to, beside->from, beside->bytes);
        return rc;
    }
    perform_blocks(host->kernels, work, beside, BESIDE_BYTES);
    return HALAY_OK;
}

/* Of whole lines, all of it; of other work each block to both. */
static void perform_twice(const struct hly_kernels *kernels, const halay_work_t *work, void *other)
{
    _Alignas(LINE) unsigned char scratch[BLOCK_BYTES];
    const size_t size = halay_type_bytes(work->type), bytes = work->count * size;
    hly_twice_fn *const twice = sums(work) ? kernels->twice[work->type] : NULL;
    const bool lines = !(((uintptr_t)work->dst | (uintptr_t)other | bytes) % LINE);
    halay_work_t part = *work;
    hly_fp_t state;
    const int changed = hly_fp_enter(&state);
    if (twice && lines)
        twice(work->dst, other, work->src[0], work->src[1], bytes);
    for (size_t done = 0; !(twice && lines) && done < bytes; done += part.count * size) {
        part.count = (bytes - done < BLOCK_BYTES ? bytes - done : BLOCK_BYTES) / size;
        part.dst = scratch;
        for (uint32_t s = 0; s < work->nsrc; s++)
            part.src[s] = at(work->src[s], done);
        perform(kernels, &part);
        stream(kernels, (char *)work->dst + done, scratch, part.count * size);
        stream(kernels, (char *)other + done, scratch, part.count * size);
    }
    if (changed)
        hly_fp_leave(&state);
}

int hly_host_twice(halay_device_t *device, const halay_work_t *work, void *other)
{
    const struct host *host = (const struct host *)device;
    const int rc = hly_device_work_check(work);
    if (rc != HALAY_OK || is_user(work))
        return rc ? rc : HALAY_EUNSUPPORTED;
    perform_twice(host->kernels, work, other);
    return HALAY_OK;
}

static int host_bind(halay_device_t *device, halay_work_t *work)
{
    const struct host *host = (const struct host *)device;
    int rc = hly_device_work_check(work);
    if (rc == HALAY_OK)
        work->bound = work->count ? combine_of(host->kernels, work) : NULL;
    return rc == HALAY_OK && !work->bound ? HALAY_EUNSUPPORTED : rc;
}

static int host_poll(halay_device_t *device, uint64_t cookies[], int max)
{
    assert(device);
    (void)device;
    (void)cookies;
    return max < 0 ? HALAY_EINVAL : 0;
}

static void host_close(halay_device_t *device)
{
    free(device);
}

const halay_device_ops_t hly_device_host = {
    .size = sizeof(halay_device_ops_t),
    .name = "host",
    .open = host_open,
    .launch = host_launch,
    .bind = host_bind,
    .poll = host_poll,
    .close = host_close,
};
