/* SPDX-License-Identifier: Apache-2.0 */
/*
 * frame.h - what XLA hands a call, read; and errors as XLA wants them.
 */
#ifndef HALAY_XLA_FRAME_H
#define HALAY_XLA_FRAME_H

#include "ffi.h"
#include "gate.h"

/* What the program says with each call: the attributes of the custom call. */
struct hlx_says {
    struct hlx_gate *gate;
    char name[HALAY_TENSOR_NAME_MAX];
    int64_t op, mean, root, keep; /* keep: the rank that gets the result, others zeros; or -1 */
    int64_t alone;                /* it is all that its program does */
    double prescale, postscale;
};

struct hlx_array {
    void *data;
    size_t count, bytes, rows; /* rows: the first dimension, 1 if there is none */
    halay_type_t type;
    halay_dims_t shape;
};

/* XLA's error, with the name of Halay's code before the text. */
struct hlx_ffi_error *hlx_error(const struct hlx_ffi_api *api, int code, const char *text);
/* Whether XLA only asks which version of its interface this is; then it is told. */
int hlx_is_question(struct hlx_ffi_frame *frame);
/*
 * The minor version that the installed jaxlib's header declares, for an XLA that does not say its
 * own when it asks (0.1). Called once, before handlers are registered.
 */
HALAY_API void halay_xla_speak(int minor);
/* The number of the execution of a program that the call is part of; 0: unknown. */
int64_t hlx_run_of(const struct hlx_ffi_frame *frame);
/* 0, or HALAY_EINVAL where the frame is not what halay.jax writes. */
int hlx_says_read(struct hlx_says *says, const struct hlx_ffi_frame *frame);
int hlx_array_read(struct hlx_array *array, const struct hlx_ffi_values *values, int64_t index);

#endif
