/* SPDX-License-Identifier: Apache-2.0 */
/* kernels.c - the text of the kernels (ptx/), machine code of them if the build has any
 * (HALAY_CUDA_CHIPS), and which kernel does a piece of work. */
#include <stdio.h>
#include <string.h>

#include "device/cuda/gpu.h"

#define EMBED(symbol, path)                                                                        \
    __asm__(".pushsection .rodata\n"                                                               \
            ".balign 8\n" symbol ": .incbin \"" path "\"\n"                                        \
            ".byte 0\n"                                                                            \
            ".popsection\n");
#define EMBED_TEXT(name, number)                                                                   \
    EMBED("hly_ptx_" #name, HLY_CUDA_PTX "/" #name ".ptx")                                         \
    extern const char hly_ptx_##name[] __attribute__((visibility("hidden")));
HLY_CUDA_MODULES(EMBED_TEXT)

#define TEXT(name, number)   hly_ptx_##name,
#define NUMBER(name, number) M_##name = (number),
enum { HLY_CUDA_MODULES(NUMBER) };
static const char *const texts[HLY_GPU_MODULES] = {HLY_CUDA_MODULES(TEXT)};

#ifdef HLY_CUDA_FATBINS
#define EMBED_CODE(name, number)                                                                   \
    EMBED("hly_fatbin_" #name, HLY_CUDA_FATBINS "/" #name ".fatbin")                               \
    extern const char hly_fatbin_##name[] __attribute__((visibility("hidden")));
HLY_CUDA_MODULES(EMBED_CODE)
#define CODE(name, number) hly_fatbin_##name,
static const char *const codes[HLY_GPU_MODULES] = {HLY_CUDA_MODULES(CODE)};
#else
static const char *const codes[HLY_GPU_MODULES]; /* NULL: the text is all there is */
#endif

/* How kernels call a type: what cares for the sign, what does not, products of whole elements. */
static const struct {
    int module;
    const char *own, *unsigned_, *product;
    uint32_t parts;
} types[HALAY_TYPE_COUNT] = {
    [HALAY_INT8] = {M_i8, "i8", "u8", "u8", 1},
    [HALAY_UINT8] = {M_i8, "u8", "u8", "u8", 1},
    [HALAY_INT16] = {M_i16, "i16", "u16", "u16", 1},
    [HALAY_UINT16] = {M_i16, "u16", "u16", "u16", 1},
    [HALAY_INT32] = {M_i32, "i32", "u32", "u32", 1},
    [HALAY_UINT32] = {M_i32, "u32", "u32", "u32", 1},
    [HALAY_INT64] = {M_i64, "i64", "u64", "u64", 1},
    [HALAY_UINT64] = {M_i64, "u64", "u64", "u64", 1},
    [HALAY_BOOL] = {M_i8, "u8", "u8", "u8", 1},
    [HALAY_FLOAT16] = {M_f16, "f16", "f16", "f16", 1},
    [HALAY_BFLOAT16] = {M_bf16, "bf16", "bf16", "bf16", 1},
    [HALAY_FLOAT32] = {M_f32, "f32", "f32", "f32", 1},
    [HALAY_FLOAT64] = {M_f64, "f64", "f64", "f64", 1},
    [HALAY_COMPLEX64] = {M_f32, "f32", "f32", "c64", 2},
    [HALAY_COMPLEX128] = {M_f64, "f64", "f64", "c128", 2},
    [HALAY_FLOAT32_INT32] = {M_f32, "f32", NULL, NULL, 1},
    [HALAY_FLOAT64_INT64] = {M_f64, "f64", NULL, NULL, 1},
    [HALAY_INT32_INT32] = {M_i32, "i32", NULL, NULL, 1},
    [HALAY_INT64_INT64] = {M_i64, "i64", NULL, NULL, 1},
};

/* The driver takes the machine code, if there is any for its GPU, or translates the text. */
static int load(struct hly_gpu *gpu, int module)
{
    const struct hly_cuda_driver *d = &gpu->driver;
    int rc = HLY_CU_NO_BINARY;
    if (codes[module])
        rc = d->cuModuleLoadData(&gpu->modules[module], codes[module]);
    if (rc == HLY_CU_NO_BINARY || rc == HLY_CU_INVALID_IMAGE)
        rc = d->cuModuleLoadData(&gpu->modules[module], texts[module]);
    if (!rc)
        return HALAY_OK;
    gpu->modules[module] = NULL;
    return hly_gpu_failed(gpu, "cuModuleLoadData", rc);
}

/* Finds a kernel of the module, which is loaded first. */
static int find(struct hly_gpu *gpu, int module, const char *name, void **kernel)
{
    const struct hly_cuda_driver *d = &gpu->driver;
    if (*kernel)
        return HALAY_OK;
    int rc = gpu->modules[module] ? HALAY_OK : load(gpu, module);
    if (rc)
        return rc;
    rc = d->cuModuleGetFunction(kernel, gpu->modules[module], name);
    if (rc) {
        *kernel = NULL;
        return hly_gpu_failed(gpu, "cuModuleGetFunction", rc);
    }
    return HALAY_OK;
}

/* Names are those of kernels.inc. */
static void name_of(const halay_work_t *work, char *name, size_t bytes)
{
    static const char *const ops[HALAY_OP_COUNT] = {
        [HALAY_SUM] = "average",    [HALAY_PROD] = "prod",     [HALAY_MIN] = "min",
        [HALAY_MAX] = "max",        [HALAY_LAND] = "land",     [HALAY_LOR] = "lor",
        [HALAY_LXOR] = "lxor",      [HALAY_BAND] = "band",     [HALAY_BOR] = "bor",
        [HALAY_BXOR] = "bxor",      [HALAY_MINLOC] = "minloc", [HALAY_MAXLOC] = "maxloc",
        [HALAY_AVERAGE] = "average"};
    const char *op = ops[work->op], *type = types[work->type].own;
    if (work->type == HALAY_BOOL && work->op >= HALAY_BAND && work->op <= HALAY_BXOR)
        op = ops[work->op - HALAY_BAND + HALAY_LAND]; /* the logical one */
    if (work->op == HALAY_PROD)
        type = types[work->type].product;
    else if (work->op >= HALAY_LAND && work->op <= HALAY_BXOR)
        type = types[work->type].unsigned_;
    snprintf(name, bytes, "hly_%s_%s", op, type);
}

int hly_gpu_kernel(struct hly_gpu *gpu, const halay_work_t *work, void **kernel, uint32_t *parts)
{
    char name[32];
    void **kept = work->scales ? &gpu->scales[work->type] : &gpu->kernels[work->type][work->op];
    if (work->scales)
        snprintf(name, sizeof(name), "hly_scale_%s", types[work->type].own);
    else
        name_of(work, name, sizeof(name));
    *parts = !work->scales && work->op == HALAY_PROD ? 1 : types[work->type].parts;
    const int rc = find(gpu, types[work->type].module, name, kept);
    *kernel = *kept;
    return rc;
}

int hly_gpu_kernel_copy(struct hly_gpu *gpu, bool words, void **kernel)
{
    const int rc = find(gpu, M_copy, words ? "hly_copy_4" : "hly_copy_1", &gpu->copies[words]);
    *kernel = gpu->copies[words];
    return rc;
}

int hly_gpu_kernel_list(struct hly_gpu *gpu, halay_type_t type, void **kernel, uint32_t *parts)
{
    char name[32];
    snprintf(name, sizeof(name), "hly_list_%s", types[type].own);
    const int rc = find(gpu, types[type].module, name, &gpu->lists[type]);
    *kernel = gpu->lists[type];
    *parts = types[type].parts;
    return rc;
}

int hly_gpu_kernel_copy_list(struct hly_gpu *gpu, bool words, void **kernel)
{
    const int rc = find(gpu, M_copy, words ? "hly_list_4" : "hly_list_1", &gpu->copy_lists[words]);
    *kernel = gpu->copy_lists[words];
    return rc;
}
