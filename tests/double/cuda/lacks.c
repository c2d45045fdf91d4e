/* SPDX-License-Identifier: Apache-2.0 */
/* lacks.c - a libcuda.so.1 of another kind: a few calls only, and the version that is asked for.
 * All memory is a GPU's to it. */
#include <stdlib.h>

#include "inside.h"

int cuInit(unsigned flags)
{
    return flags ? INVALID_VALUE : 0;
}

int cuDriverGetVersion(int *version)
{
    const char *value = getenv("CUDA_LACKS_VERSION");
    *version = value ? atoi(value) : 13000;
    return 0;
}

int cuPointerGetAttributes(unsigned n, int *which, void **values, uint64_t at)
{
    for (unsigned i = 0; i < n; i++)
        if (which[i] == HLY_CU_MEMORY_TYPE)
            *(unsigned *)values[i] = at ? HLY_CU_MEMORY_DEVICE : 0;
    return 0;
}
