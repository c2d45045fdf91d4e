/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "frame.h"

#define TEXT_BYTES 1200

/* A valid address for an array without elements. */
static char empty[16];

/* A fact of the process, as the jaxlib in it is: halay_xla_speak(). */
static int installed_minor;

void halay_xla_speak(int minor)
{
    installed_minor = minor;
}

struct hlx_ffi_error *hlx_error(const struct hlx_ffi_api *api, int code, const char *text)
{
    char whole[TEXT_BYTES];
    const char *general = halay_strerror(code);
    int name = (int)strcspn(general, ":");
    snprintf(whole, sizeof(whole), "%.*s: %s", name, general, text);
    struct hlx_ffi_error_create create = {
        .struct_size = sizeof(create), .message = whole, .errc = HLX_FFI_ABORTED};
    return api->error_create(&create);
}

/*
 * XLA compares the version with its own. The structs that are used here are the same in all of this
 * major version, so the answer is the one that is asked for.
 */
int hlx_is_question(struct hlx_ffi_frame *frame)
{
    struct hlx_ffi_extension *first = frame->extension_start;
    if (!first || first->type != HLX_FFI_EXTENSION_METADATA)
        return 0;
    struct hlx_ffi_metadata *answer = ((struct hlx_ffi_metadata_extension *)first)->metadata;
    answer->api_version.major_version = HLX_FFI_MAJOR;
    answer->api_version.minor_version =
        frame->api ? frame->api->api_version.minor_version : installed_minor;
    answer->traits = 0;
    return 1;
}

int64_t hlx_run_of(const struct hlx_ffi_frame *frame)
{
    struct hlx_ffi_run_id get = {.struct_size = sizeof(get), .context = frame->context};
    struct hlx_ffi_error *error = frame->api->run_id_get(&get);
    if (!error)
        return get.run_id;
    struct hlx_ffi_error_destroy destroy = {.struct_size = sizeof(destroy), .error = error};
    frame->api->error_destroy(&destroy);
    return 0;
}

static int is_name(const struct hlx_ffi_span *name, const char *wanted)
{
    return name->len == strlen(wanted) && !memcmp(name->ptr, wanted, name->len);
}

/* A scalar of this name and type, into `into`. */
static int scalar(const struct hlx_ffi_attrs *attrs, const char *name, int type, void *into)
{
    for (int64_t i = 0; i < attrs->size; i++) {
        const struct hlx_ffi_scalar *found = attrs->attrs[i];
        if (!is_name(attrs->names[i], name))
            continue;
        if (attrs->types[i] != HLX_FFI_ATTR_SCALAR || found->dtype != type)
            return HALAY_EINVAL;
        memcpy(into, found->value, 8);
        return 0;
    }
    return HALAY_EINVAL;
}

static int text(const struct hlx_ffi_attrs *attrs, const char *name, char *into, size_t bytes)
{
    for (int64_t i = 0; i < attrs->size; i++) {
        const struct hlx_ffi_span *found = attrs->attrs[i];
        if (!is_name(attrs->names[i], name))
            continue;
        if (attrs->types[i] != HLX_FFI_ATTR_STRING || found->len >= bytes)
            return HALAY_EINVAL;
        memcpy(into, found->ptr, found->len);
        into[found->len] = 0;
        return 0;
    }
    return HALAY_EINVAL;
}

int hlx_says_read(struct hlx_says *says, const struct hlx_ffi_frame *frame)
{
    const struct hlx_ffi_attrs *attrs = &frame->attrs;
    int64_t gate = 0;
    int rc = scalar(attrs, "gate", HLX_FFI_S64, &gate);
    if (!rc)
        rc = text(attrs, "name", says->name, sizeof(says->name));
    if (!rc)
        rc = scalar(attrs, "op", HLX_FFI_S64, &says->op);
    if (!rc)
        rc = scalar(attrs, "mean", HLX_FFI_S64, &says->mean);
    if (!rc)
        rc = scalar(attrs, "root", HLX_FFI_S64, &says->root);
    if (!rc)
        rc = scalar(attrs, "keep", HLX_FFI_S64, &says->keep);
    if (!rc)
        rc = scalar(attrs, "alone", HLX_FFI_S64, &says->alone);
    if (!rc)
        rc = scalar(attrs, "prescale", HLX_FFI_F64, &says->prescale);
    if (!rc)
        rc = scalar(attrs, "postscale", HLX_FFI_F64, &says->postscale);
    says->gate = (struct hlx_gate *)(uintptr_t)gate;
    return rc || !gate ? HALAY_EINVAL : 0;
}

static int type_of(int dtype, halay_type_t *type)
{
    static const signed char types[] = {
        [HLX_FFI_PRED] = HALAY_BOOL + 1,       [HLX_FFI_S8] = HALAY_INT8 + 1,
        [HLX_FFI_S16] = HALAY_INT16 + 1,       [HLX_FFI_S32] = HALAY_INT32 + 1,
        [HLX_FFI_S64] = HALAY_INT64 + 1,       [HLX_FFI_U8] = HALAY_UINT8 + 1,
        [HLX_FFI_U16] = HALAY_UINT16 + 1,      [HLX_FFI_U32] = HALAY_UINT32 + 1,
        [HLX_FFI_U64] = HALAY_UINT64 + 1,      [HLX_FFI_F16] = HALAY_FLOAT16 + 1,
        [HLX_FFI_F32] = HALAY_FLOAT32 + 1,     [HLX_FFI_F64] = HALAY_FLOAT64 + 1,
        [HLX_FFI_C64] = HALAY_COMPLEX64 + 1,   [HLX_FFI_BF16] = HALAY_BFLOAT16 + 1,
        [HLX_FFI_C128] = HALAY_COMPLEX128 + 1,
    };
    if (dtype < 0 || dtype >= (int)sizeof(types) || !types[dtype])
        return HALAY_EINVAL;
    *type = (halay_type_t)(types[dtype] - 1);
    return 0;
}

int hlx_array_read(struct hlx_array *array, const struct hlx_ffi_values *values, int64_t index)
{
    if (index >= values->size || values->types[index] != HLX_FFI_BUFFER)
        return HALAY_EINVAL;
    const struct hlx_ffi_buffer *buffer = values->values[index];
    if (type_of(buffer->dtype, &array->type))
        return HALAY_EINVAL;
    array->count = 1;
    array->shape = (halay_dims_t){.ndims = (int)buffer->rank};
    if (array->shape.ndims > HALAY_DIMS_MAX)
        array->shape.ndims = HALAY_DIMS_MAX;
    for (int64_t i = 0; i < buffer->rank; i++) {
        const size_t dim = (size_t)buffer->dims[i];
        array->count *= dim;
        if (i < HALAY_DIMS_MAX)
            array->shape.dims[i] = dim;
        else /* one with the last for which there is room */
            array->shape.dims[HALAY_DIMS_MAX - 1] *= dim;
    }
    array->rows = buffer->rank ? (size_t)buffer->dims[0] : 1;
    array->bytes = array->count * halay_type_bytes(array->type);
    array->data = array->count ? buffer->data : empty;
    return 0;
}
