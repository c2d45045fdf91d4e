/* SPDX-License-Identifier: Apache-2.0 */
#define HLY_KERNELS     hly_kernels_scalar
#define HLY_KERNELS_ISA "scalar"
#include "kernels.inc"
