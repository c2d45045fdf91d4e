/* SPDX-License-Identifier: Apache-2.0 */
/* seen.h - which states an exploration has seen, by hashes of 64 bits. */
#ifndef HALAY_PROVE_SEEN_H
#define HALAY_PROVE_SEEN_H

#include <stdbool.h>
#include <stdint.h>

typedef struct hly_seen { /* zeros: none */
    uint64_t *hash;       /* 0: free */
    uint64_t size, used;
} hly_seen_t;

/* The hash is not 0. False: it was there already. */
bool hly_seen_is_new(hly_seen_t *seen, uint64_t hash);
void hly_seen_free(hly_seen_t *seen);

#endif
