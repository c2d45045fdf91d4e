/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fp.h - the floating-point environment. The caller's thread may flush denormals to zero, round
 * another way or trap. Results must not depend on it. Sticky exception flags are left to be raised:
 * they change no result.
 */
#ifndef HLY_DEVICE_FP_H
#define HLY_DEVICE_FP_H

#if defined(__SSE__)
#include <xmmintrin.h>

#define HLY_MXCSR_DEFAULT 0x1f80u
#define HLY_MXCSR_FLAGS   0x003fu
typedef unsigned hly_fp_t;

/* 1: it was changed, and hly_fp_leave has to put it back. */
static inline int hly_fp_enter(hly_fp_t *state)
{
    *state = _mm_getcsr();
    if ((*state & ~HLY_MXCSR_FLAGS) == HLY_MXCSR_DEFAULT)
        return 0;
    _mm_setcsr(HLY_MXCSR_DEFAULT);
    return 1;
}

static inline void hly_fp_leave(const hly_fp_t *state)
{
    _mm_setcsr(*state);
}
#else
#include <fenv.h>

typedef fenv_t hly_fp_t;

static inline int hly_fp_enter(hly_fp_t *state)
{
    return fegetenv(state) == 0 && fesetenv(FE_DFL_ENV) == 0;
}

static inline void hly_fp_leave(const hly_fp_t *state)
{
    fesetenv(state);
}
#endif

#endif
