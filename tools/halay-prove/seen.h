/* SPDX-License-Identifier: Apache-2.0 */
/* seen.h - which states an exploration has been in, by hashes of 64 bits. */
#ifndef HALAY_PROVE_SEEN_H
#define HALAY_PROVE_SEEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct hly_states { /* zeros: none */
    uint64_t *hash;         /* 0: free */
    uint64_t size, used;
} hly_seen_t;

/* The hash is not 0. False: it was there already. */
bool hly_seen_is_new(hly_seen_t *seen, uint64_t hash);
void hly_seen_free(hly_seen_t *seen);

/* Zeros; ends the program if there is no memory. */
void *hly_seen_memory(size_t bytes);

static inline uint64_t hly_seen_mix(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ (hash >> 29);
}

#endif
