/* SPDX-License-Identifier: Apache-2.0 */
/* run.h - what kernels.c needs. */
#ifndef TESTS_DOUBLE_CUDA_RUN_H
#define TESTS_DOUBLE_CUDA_RUN_H

#include <stddef.h>
#include <stdint.h>

#include "device/cuda/kernels.h"

/* With its argument, of so many bytes. */
typedef void kernel_fn(const void *argument);
void kernel_add(const char *name, kernel_fn *fn, size_t bytes);

/* Where a kernel finds memory; does not return if it has none there. */
char *kernel_at(uint64_t at, size_t bytes);
extern __thread uint64_t thread_number, thread_count;

#endif
