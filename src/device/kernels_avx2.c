/* SPDX-License-Identifier: Apache-2.0 */
#define HLY_KERNELS     hly_kernels_avx2
#define HLY_KERNELS_ISA "avx2"
#include "kernels.inc"
