/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ffi.h - XLA's foreign function interface, as far as it is used here: versions 0.1 to 0.3, in
 * which these structs are equal. tests/python/frameworks/test_xla_abi.py compares them with the
 * header of the jaxlib that is installed.
 */
#ifndef HALAY_XLA_FFI_H
#define HALAY_XLA_FFI_H

#include <stddef.h>
#include <stdint.h>

#define HLX_FFI_MAJOR 0

enum { HLX_FFI_ABORTED = 10 }; /* JAX raises its own error for it; others become ValueError */

enum hlx_ffi_type {
    HLX_FFI_PRED = 1,
    HLX_FFI_S8 = 2,
    HLX_FFI_S16 = 3,
    HLX_FFI_S32 = 4,
    HLX_FFI_S64 = 5,
    HLX_FFI_U8 = 6,
    HLX_FFI_U16 = 7,
    HLX_FFI_U32 = 8,
    HLX_FFI_U64 = 9,
    HLX_FFI_F16 = 10,
    HLX_FFI_F32 = 11,
    HLX_FFI_F64 = 12,
    HLX_FFI_C64 = 15,
    HLX_FFI_BF16 = 16,
    HLX_FFI_C128 = 18
};

enum { HLX_FFI_EXTENSION_METADATA = 1 };
enum { HLX_FFI_BUFFER = 1 };
enum { HLX_FFI_ATTR_SCALAR = 3, HLX_FFI_ATTR_STRING = 4 };
enum { HLX_FFI_EXECUTE = 3 };

struct hlx_ffi_error;  /* XLA's own */
struct hlx_ffi_future; /* likewise */

struct hlx_ffi_extension {
    size_t struct_size;
    int type;
    struct hlx_ffi_extension *next;
};

struct hlx_ffi_version {
    size_t struct_size;
    struct hlx_ffi_extension *extension_start;
    int major_version;
    int minor_version;
};

struct hlx_ffi_error_create {
    size_t struct_size;
    struct hlx_ffi_extension *extension_start;
    const char *message;
    int errc;
};

struct hlx_ffi_error_destroy {
    size_t struct_size;
    struct hlx_ffi_extension *extension_start;
    struct hlx_ffi_error *error;
};

struct hlx_ffi_future_create {
    size_t struct_size;
    struct hlx_ffi_extension *extension_start;
    struct hlx_ffi_future *future; /* out */
};

struct hlx_ffi_future_available {
    size_t struct_size;
    struct hlx_ffi_extension *extension_start;
    struct hlx_ffi_future *future;
};

struct hlx_ffi_future_error {
    size_t struct_size;
    struct hlx_ffi_extension *extension_start;
    struct hlx_ffi_future *future;
    struct hlx_ffi_error *error; /* XLA's from now on */
};

struct hlx_ffi_run_id {
    size_t struct_size;
    struct hlx_ffi_extension *extension_start;
    void *context;
    int64_t run_id; /* out */
};

struct hlx_ffi_api {
    size_t struct_size;
    struct hlx_ffi_extension *extension_start;
    struct hlx_ffi_version api_version;
    const void *internal_api;
    struct hlx_ffi_error *(*error_create)(struct hlx_ffi_error_create *);
    void *error_get_message;
    void (*error_destroy)(struct hlx_ffi_error_destroy *);
    void *handler_register;
    void *stream_get;
    void *type_register;
    void *context_get;
    void *state_set;
    void *state_get;
    void *memory_allocate;
    void *memory_free;
    void *pool_schedule;
    void *pool_threads;
    struct hlx_ffi_error *(*future_create)(struct hlx_ffi_future_create *);
    struct hlx_ffi_error *(*future_set_available)(struct hlx_ffi_future_available *);
    struct hlx_ffi_error *(*future_set_error)(struct hlx_ffi_future_error *);
    struct hlx_ffi_error *(*run_id_get)(struct hlx_ffi_run_id *);
};

struct hlx_ffi_buffer {
    size_t struct_size;
    struct hlx_ffi_extension *extension_start;
    int dtype;
    void *data;
    int64_t rank;
    int64_t *dims;
};

/* Arguments, and results. */
struct hlx_ffi_values {
    size_t struct_size;
    struct hlx_ffi_extension *extension_start;
    int64_t size;
    int *types;
    void **values;
};

struct hlx_ffi_span {
    const char *ptr;
    size_t len;
};

struct hlx_ffi_scalar {
    int dtype;
    void *value;
};

struct hlx_ffi_attrs {
    size_t struct_size;
    struct hlx_ffi_extension *extension_start;
    int64_t size;
    int *types;
    struct hlx_ffi_span **names; /* sorted */
    void **attrs;
};

struct hlx_ffi_frame {
    size_t struct_size;
    struct hlx_ffi_extension *extension_start;
    const struct hlx_ffi_api *api;
    void *context;
    int stage;
    struct hlx_ffi_values args;
    struct hlx_ffi_values rets;
    struct hlx_ffi_attrs attrs;
    struct hlx_ffi_future *future; /* out */
};

/* The first of its members; later versions have more after them. */
struct hlx_ffi_metadata {
    size_t struct_size;
    struct hlx_ffi_version api_version;
    uint32_t traits;
};

struct hlx_ffi_metadata_extension {
    struct hlx_ffi_extension base;
    struct hlx_ffi_metadata *metadata;
};

#endif
