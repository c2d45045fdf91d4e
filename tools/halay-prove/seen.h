/* SPDX-License-Identifier: Apache-2.0 */
/* seen.h - which states an exploration has been in: a hash of 64 bits of each. */
#ifndef HALAY_PROVE_SEEN_H
#define HALAY_PROVE_SEEN_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { SEEN_FIRST = 1 << 16 };

typedef struct seen { /* hashes of states; 0: free */
    uint64_t *hash;
    uint64_t size, used;
} seen_t;

static inline void *memory(size_t bytes)
{
    void *p = calloc(1, bytes);
    if (p == NULL) {
        fprintf(stderr, "halay-prove: no memory\n");
        exit(EXIT_FAILURE);
    }
    return p;
}

static inline uint64_t mix(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ (hash >> 29);
}

static inline void grow(seen_t *seen)
{
    const uint64_t size = seen->size > 0 ? seen->size * 2 : SEEN_FIRST;
    seen_t more = {memory(size * sizeof(uint64_t)), size, seen->used};
    for (uint64_t i = 0; i < seen->size; i++) {
        uint64_t at = seen->hash[i] % more.size;
        while (seen->hash[i] && more.hash[at]) {
            at = (at + 1) % more.size;
        }
        if (seen->hash[i]) {
            more.hash[at] = seen->hash[i];
        }
    }
    free(seen->hash);
    *seen = more;
}

/* False: it was there already. */
static inline bool is_new(seen_t *seen, uint64_t hash)
{
    if (seen->used * 3 >= seen->size * 2) {
        grow(seen);
    }
    for (uint64_t at = hash % seen->size;; at = (at + 1) % seen->size) {
        if (seen->hash[at] == hash) {
            return false;
        }
        if (!seen->hash[at]) {
            seen->hash[at] = hash;
            seen->used++;
            return true;
        }
    }
}

#endif
