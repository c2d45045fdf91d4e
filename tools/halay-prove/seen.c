/* SPDX-License-Identifier: Apache-2.0 */
/* seen.c - a table of hashes that grows. */
#include "seen.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { SEEN_FIRST = 1 << 16 };

void *hly_seen_memory(size_t bytes)
{
    void *p = calloc(1, bytes);
    if (p == NULL) {
        fprintf(stderr, "halay-prove: no memory\n");
        exit(EXIT_FAILURE);
    }
    return p;
}

static void grow(hly_seen_t *seen)
{
    const uint64_t size = seen->size > 0 ? seen->size * 2 : SEEN_FIRST;
    hly_seen_t more = {hly_seen_memory(size * sizeof(uint64_t)), size, seen->used};
    madvise(more.hash, size * sizeof(uint64_t), MADV_HUGEPAGE); /* it is read at random */
    for (uint64_t i = 0; i < seen->size; i++) {
        uint64_t at = (seen->hash[i] >> 1) & (more.size - 1);
        while (seen->hash[i] && more.hash[at])
            at = (at + 1) & (more.size - 1);
        if (seen->hash[i])
            more.hash[at] = seen->hash[i];
    }
    free(seen->hash);
    *seen = more;
}

bool hly_seen_is_new(hly_seen_t *seen, uint64_t hash)
{
    if (seen->used * 3 >= seen->size * 2)
        grow(seen);
    for (uint64_t at = (hash >> 1) & (seen->size - 1);; at = (at + 1) & (seen->size - 1)) {
        if (seen->hash[at] == hash)
            return false;
        if (!seen->hash[at]) {
            seen->hash[at] = hash;
            seen->used++;
            return true;
        }
    }
}

void hly_seen_free(hly_seen_t *seen)
{
    free(seen->hash);
    *seen = (hly_seen_t){0};
}
