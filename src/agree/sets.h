/* SPDX-License-Identifier: Apache-2.0 */
/* sets.h - sets of ranks, a bit each. */
#ifndef HLY_AGREE_SETS_H
#define HLY_AGREE_SETS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static inline uint32_t hly_set_words(int nranks)
{
    return ((uint32_t)nranks + 63) / 64;
}

static inline bool hly_set_has(const uint64_t set[], int rank)
{
    return set[rank / 64] >> (rank % 64) & 1;
}

static inline void hly_set_add(uint64_t set[], int rank)
{
    set[rank / 64] |= UINT64_C(1) << (rank % 64);
}

#endif
