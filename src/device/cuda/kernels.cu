/* SPDX-License-Identifier: Apache-2.0 */
/* kernels.cu - kernels.inc for nvcc, one module at a time (scripts/make-kernels). */
#include <stddef.h>
#include <stdint.h>

#define ENTRY(name, arg) extern "C" __global__ void hly_##name(const __grid_constant__ struct arg p)
#define THREAD                 ((uint64_t)blockIdx.x * blockDim.x + threadIdx.x)
#define THREADS                ((uint64_t)gridDim.x * blockDim.x)
#define GLOBAL(address, bytes) ((char *)__cvta_global_to_generic(address))
#define ALIGNED(bytes)         __attribute__((aligned(bytes)))
#define ROLLED                 _Pragma("unroll 1")

#include "device/cuda/kernels.inc"
