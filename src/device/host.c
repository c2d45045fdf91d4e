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

#define BLOCK_BYTES 4096
#define LINE        64

struct host {
    const struct hly_kernels *kernels;
};

/* ------------------------------------------------------------------ instruction sets */

static int has_scalar(void)
{
    return 1;
}

#if defined(__x86_64__)
/* Not every compiler's __builtin_cpu_supports() tells the truth: Zig's says no to everything. */
static bool has_leaf7(unsigned ebx)
{
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & ebx) == ebx;
}

/* The kernel keeps these registers (bits of XCR0) for a thread; there is F16C, and so AVX. */
static bool has_registers(unsigned bits)
{
    unsigned a, b, c, d, low, high;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE) || !(c & bit_AVX) || !(c & bit_F16C))
        return false;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (low & bits) == bits;
}

static int has_avx2(void)
{
    return has_registers(0x06) && has_leaf7(bit_AVX2);
}

static int has_avx512(void)
{
    return has_avx2() && has_registers(0xe6) &&
           has_leaf7(bit_AVX512F | bit_AVX512BW | bit_AVX512VL | bit_AVX512DQ);
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
    if (work->direction > HALAY_FROM_HOST ||
        (work->direction && (work->nsrc != 1 || work->scales || divides(work))))
        return HALAY_EINVAL;
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
    if (!work || work->size < sizeof(*work))
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

halay_work_t hly_device_part(const halay_part_t *part, halay_type_t type)
{
    return (halay_work_t){.size = sizeof(halay_work_t),
                          .dst = part->dst,
                          .src = {part->src},
                          .count = part->count,
                          .type = type,
                          .nsrc = 1,
                          .factor = part->factor,
                          .scales = part->factor != 1};
}

int hly_device_list_check(const halay_part_t parts[], uint32_t nparts, halay_type_t type)
{
    if (!parts || !nparts || nparts > HALAY_LIST_PARTS)
        return HALAY_EINVAL;
    for (uint32_t i = 0; i < nparts; i++) {
        const halay_work_t work = hly_device_part(&parts[i], type);
        if (hly_device_work_check(&work))
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

/* All memory that no other device claims. */
static int host_query(halay_device_t *device, const void *address, size_t bytes,
                      halay_memory_t *memory)
{
    (void)device;
    (void)address;
    (void)bytes;
    if (!memory || memory->size < sizeof(*memory))
        return HALAY_EINVAL;
    memory->kind = HALAY_MEMORY_HOST;
    memory->touchable = 1;
    return HALAY_OK;
}

static int host_alloc(halay_device_t *device, uint32_t place, size_t bytes, size_t alignment,
                      void **address)
{
    (void)device;
    if (place > HALAY_PLACE_HOST || !address || !bytes || !alignment ||
        alignment & (alignment - 1) || bytes > SIZE_MAX - alignment)
        return HALAY_EINVAL;
    *address = aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
    return *address ? HALAY_OK : HALAY_ENOMEM;
}

static void host_free(halay_device_t *device, uint32_t place, void *address)
{
    (void)device;
    (void)place;
    free(address);
}

/* What has been checked. */
static void perform(const struct hly_kernels *kernels, const halay_work_t *work)
{
    hly_combine_fn *const *combine = combine_of(kernels, work);
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

/* Whole lines of a sum from `done` bytes on. Returns how much that was; 0: it goes in blocks. */
static size_t sum_lines(const struct hly_kernels *kernels, const halay_work_t *work, size_t done)
{
    hly_sum_lines_fn *const fn = sums(work) ? kernels->sum_lines[work->type] : NULL;
    char *const dst = (char *)work->dst + done;
    const size_t left = work->count * halay_type_bytes(work->type) - done;
    const size_t bytes = left - left % LINE;
    if (!fn || (uintptr_t)dst % LINE || !bytes)
        return 0;
    fn(dst, at(work->src[0], done), at(work->src[1], done), bytes);
    return bytes;
}

/*
 * Block by block, through the first-level cache and past the others: the same loops, so the same
 * bits. Sums line by line.
 */
static void stream_blocks(const struct hly_kernels *kernels, const halay_work_t *work)
{
    _Alignas(LINE) unsigned char scratch[BLOCK_BYTES];
    const size_t bytes = halay_type_bytes(work->type);
    hly_combine_fn *const *combine = work->bound ? work->bound : combine_of(kernels, work);
    halay_work_t part = *work;
    hly_fp_t state;
    const int changed = hly_fp_enter(&state);
    for (size_t done = 0; done < work->count; done += part.count) {
        part.count = sum_lines(kernels, work, done * bytes) / bytes;
        if (part.count)
            continue;
        part.count = block_count(work, done, bytes, BLOCK_BYTES);
        part.dst = scratch;
        for (uint32_t s = 0; s < work->nsrc; s++)
            part.src[s] = at(work->src[s], done * bytes);
        if (combine)
            (*combine)(part.dst, part.src[0], part.src[1], part.count);
        else
            perform(kernels, &part);
        stream(kernels, (char *)work->dst + done * bytes, scratch, part.count * bytes);
    }
    if (changed)
        hly_fp_leave(&state);
    hly_stream_end();
}

static int host_launch(halay_device_t *device, const halay_work_t *work)
{
    const struct host *host = (const struct host *)device;
    if (!work)
        return HALAY_EINVAL;
    if (work->bound && !work->streams) {
        combine_two(*(hly_combine_fn *const *)work->bound, work, work->src[0], work->src[1]);
        return HALAY_OK;
    }
    const int rc = work->bound ? HALAY_OK : hly_device_work_check(work);
    if (rc != HALAY_OK || work->count == 0)
        return rc;
    bool plain = work->nsrc == 1 && !work->scales && !divides(work);
    if (work->streams && plain)
        hly_stream(work->dst, work->src[0], work->count * halay_type_bytes(work->type));
    else if (work->streams && !is_user(work))
        stream_blocks(host->kernels, work);
    else
        perform(host->kernels, work);
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

static int host_poll(halay_device_t *device, halay_done_t done[], int max)
{
    assert(device);
    (void)device;
    (void)done;
    return max < 0 ? HALAY_EINVAL : 0;
}

/* Nothing is ever in flight. */
static int host_arm(halay_device_t *device, int *fd)
{
    (void)device;
    (void)fd;
    return HALAY_EUNSUPPORTED;
}

static int host_stop(halay_device_t *device, uint64_t cookie, uint64_t timeout_ns)
{
    (void)device;
    (void)cookie;
    (void)timeout_ns;
    return HALAY_OK;
}

/* What the processor does is done. */
static int host_follow(halay_device_t *device, const halay_stream_t *stream, uint64_t cookie)
{
    (void)device;
    (void)stream;
    (void)cookie;
    return HALAY_EUNSUPPORTED;
}

/* Nor does it come to a gate. */
static int host_gate(halay_device_t *device, const halay_stream_t *stream, uint32_t *gate)
{
    (void)device, (void)stream, (void)gate;
    return HALAY_EUNSUPPORTED;
}

static void host_gate_open(halay_device_t *device, uint32_t gate)
{
    (void)device, (void)gate;
}

static int host_gate_word(halay_device_t *device, uint32_t gate, uint64_t *at, uint64_t *value)
{
    (void)device, (void)gate, (void)at, (void)value;
    return HALAY_EUNSUPPORTED;
}

static const char *host_why(halay_device_t *device)
{
    (void)device;
    return "";
}

static void host_close(halay_device_t *device)
{
    free(device);
}

static int host_export(halay_device_t *device, const void *address, size_t bytes, uint32_t opens,
                       halay_export_t *exported)
{
    (void)device, (void)address, (void)bytes, (void)opens, (void)exported;
    return HALAY_EUNSUPPORTED;
}

static int host_flush(halay_device_t *device)
{
    (void)device;
    return HALAY_EUNSUPPORTED;
}

static int host_launch_list(halay_device_t *device, const halay_part_t parts[], uint32_t nparts,
                            halay_type_t type, uint64_t cookie)
{
    (void)cookie;
    int rc = hly_device_list_check(parts, nparts, type);
    for (uint32_t i = 0; !rc && i < nparts; i++) {
        const halay_work_t work = hly_device_part(&parts[i], type);
        rc = host_launch(device, &work);
    }
    return rc;
}

const halay_device_ops_t hly_device_host = {
    .size = sizeof(halay_device_ops_t),
    .name = "host",
    .open = host_open,
    .query = host_query,
    .alloc = host_alloc,
    .free = host_free,
    .launch = host_launch,
    .bind = host_bind,
    .poll = host_poll,
    .arm = host_arm,
    .stop = host_stop,
    .follow = host_follow,
    .why = host_why,
    .close = host_close,
    .export_mem = host_export,
    .flush = host_flush,
    .gate = host_gate,
    .gate_open = host_gate_open,
    .gate_word = host_gate_word,
    .launch_list = host_launch_list,
};
