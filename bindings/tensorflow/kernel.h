/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernel.h - the collective operations: what a node of a graph is, and how it runs.
 */
#ifndef HALAY_TF_KERNEL_H
#define HALAY_TF_KERNEL_H

#include "abi.h"
#include "job.h"

void *hlf_kernel_create(TF_OpKernelConstruction *of, enum hlf_kind kind);
void hlf_kernel_delete(void *kernel);
void hlf_kernel_compute(void *kernel, TF_OpKernelContext *ctx, TF_AsyncOpKernelDoneCallback *done);

/* Ends a kernel, or a node of a graph, with an error. */
void hlf_fail(TF_OpKernelContext *ctx, TF_Code code, const char *text);
/* The status in which a result of the library's is told. */
TF_Code hlf_code(int result);

#endif
