/* SPDX-License-Identifier: Apache-2.0 */
/* types.h - a part of halay.h, which includes it: result codes, types, operations. */
#ifndef HALAY_TYPES_H
#define HALAY_TYPES_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define HALAY_API __attribute__((visibility("default")))
#else
#define HALAY_API
#endif

/* ------------------------------------------------------------------ results */

/* The numbers are stable: they are part of the ABI and never reused. */
enum {
    HALAY_OK = 0,
    HALAY_INPROGRESS = 1,    /* no error: an event will follow (plug-ins), or not done yet (test) */
    HALAY_EINVAL = -1,       /* an argument no call could accept */
    HALAY_ENOMEM = -2,       /* memory, descriptors or address space ran out */
    HALAY_EUNSUPPORTED = -3, /* valid, but not available here */
    HALAY_ESTATE = -4,       /* freed, finalized, initialized twice, or in use */
    HALAY_EMISMATCH = -5,    /* ranks called different collectives, or with different arguments */
    HALAY_ETIMEOUT = -6,     /* the deadline passed; the verdict names who was missing */
    HALAY_EPEER = -7,        /* a rank died, or cannot be reached any more */
    HALAY_ETRANSPORT = -8,   /* a transport failed */
    HALAY_EBOOT = -9,        /* a launcher announced ranks, and they could not be found */
    HALAY_EFORKED = -10,     /* called in a forked child */
    HALAY_EPLAN = -11,       /* a plan without a valid certificate: refused */
    HALAY_EAGAIN = -12,      /* full for now: try again (plug-ins only) */
    HALAY_EINTERNAL = -13,   /* a bug in Halay */
    HALAY_EDEVICE = -14,     /* a device failed; memory may still change if the verdict says so */
    HALAY_EREVOKED = -15,    /* a rank has revoked the communicator */
    HALAY_EOVER = -16        /* the job ends, and this process has come too late to join it */
};

/* A short fixed English text for a code ("HALAY_EMISMATCH: ..."). Never NULL. */
HALAY_API const char *halay_strerror(int code);

/* "0.1.0", the version of the library that is loaded. */
HALAY_API const char *halay_version(void);

/* ------------------------------------------------------------------ types and operations */

typedef enum halay_type {
    HALAY_INT8 = 0,
    HALAY_UINT8,
    HALAY_INT16,
    HALAY_UINT16,
    HALAY_INT32,
    HALAY_UINT32,
    HALAY_INT64,
    HALAY_UINT64,
    HALAY_BOOL,     /* one byte; any non-zero byte is true, results are 0 or 1 */
    HALAY_FLOAT16,  /* IEEE binary16; summed in float32, rounded once per reduce step */
    HALAY_BFLOAT16, /* as FLOAT16, with bfloat16's format */
    HALAY_FLOAT32,
    HALAY_FLOAT64,
    HALAY_COMPLEX64,  /* two float32: real, imaginary */
    HALAY_COMPLEX128, /* two float64 */
    /* A value and its index, for MINLOC and MAXLOC: the structs below. */
    HALAY_FLOAT32_INT32,
    HALAY_FLOAT64_INT64,
    HALAY_INT32_INT32,
    HALAY_INT64_INT64,
    HALAY_TYPE_COUNT
} halay_type_t;

/* Elements of the pair types: value first, no padding, 8 or 16 bytes. */
typedef struct halay_float32_int32 {
    float value;
    int32_t index;
} halay_float32_int32_t;
typedef struct halay_float64_int64 {
    double value;
    int64_t index;
} halay_float64_int64_t;
typedef struct halay_int32_int32 {
    int32_t value, index;
} halay_int32_int32_t;
typedef struct halay_int64_int64 {
    int64_t value, index;
} halay_int64_int64_t;

/*
 * Which operation takes which type: SUM, PROD, AVERAGE all but BOOL and the pairs; MIN, MAX those
 * except for the complex types; LAND, LOR, LXOR, BAND, BOR, BXOR integers and BOOL; MINLOC, MAXLOC
 * the pairs; a user-defined one all types. Floating point: a NaN result is always the positive
 * quiet NaN without payload; MIN and MAX return NaN if any operand is one, and order -0 before +0.
 * Integers wrap. AVERAGE is the sum, then one true division in the accumulation type; integers
 * truncate toward zero. MINLOC and MAXLOC give the least or greatest value, in the order of MIN and
 * MAX, with its index; of equal ones (also of several NaNs, which win over all numbers) the lowest
 * index, as a signed number.
 */
typedef enum halay_op {
    HALAY_SUM = 0,
    HALAY_PROD,
    HALAY_MIN,
    HALAY_MAX,
    HALAY_AVERAGE,
    HALAY_LAND,
    HALAY_LOR,
    HALAY_LXOR,
    HALAY_BAND,
    HALAY_BOR,
    HALAY_BXOR,
    HALAY_MINLOC,
    HALAY_MAXLOC,
    HALAY_OP_COUNT,
    HALAY_OP_USER = 0x10000, /* user-defined ones: from here .. */
    HALAY_OP_USER_LAST = 0x3fffffff
} halay_op_t;

/* Bytes of one element, or 0 for a type that does not exist. */
HALAY_API size_t halay_type_bytes(halay_type_t type);
/* "float32", "sum"; "?" for one that does not exist. */
HALAY_API const char *halay_type_name(halay_type_t type);
HALAY_API const char *halay_op_name(halay_op_t op);
/* 1 if the operation takes the type, else 0. */
HALAY_API int halay_op_takes(halay_op_t op, halay_type_t type);

/*
 * out[i] = factor * in[i], as prescale and postscale of halay_allreduce_scaled do; out may be in.
 * Local. The half types through float32, rounded once; all floating types but those of float64 with
 * the factor rounded to float32. Integers: the product in float64 (so integers beyond 2^53 are
 * rounded to one first), truncated toward zero, and what does not fit is the nearest that does.
 * HALAY_EINVAL: BOOL and the pairs, or a factor that is not finite.
 */
HALAY_API int halay_scale(void *out, const void *in, size_t count, halay_type_t type,
                          double factor);

/*
 * Passed as `in`: the input is in `out` already (see each collective). Passed as `out` at the root
 * of a scatter, as in MPI: its block stays in `in`. For any other buffer: HALAY_EINVAL on all
 * ranks.
 */
#define HALAY_IN_PLACE ((const void *)-1)

#ifdef __cplusplus
}
#endif

#endif
