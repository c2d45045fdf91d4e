/* SPDX-License-Identifier: Apache-2.0 */
#define HLY_KERNELS     hly_kernels_avx512
#define HLY_KERNELS_ISA "avx512"
#include "kernels.inc"
