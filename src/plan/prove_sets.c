/* SPDX-License-Identifier: Apache-2.0 */
/*
 * prove_sets.c - sets of ranks, shared and given back, so that a proof holds only those of steps
 * that some later step still asks.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "prove_value.h"

static int grow(struct hly_sets *sets)
{
    uint32_t room = sets->room ? sets->room * 2 : 64;
    uint64_t *bits = realloc(sets->bits, (size_t)room * sets->words * sizeof(*bits));

    if (!bits) {
        return HALAY_ENOMEM;
    }
    sets->bits = bits;
    uint32_t *references = realloc(sets->references, room * sizeof(*references));
    if (!references) {
        return HALAY_ENOMEM;
    }
    sets->references = references;
    sets->room = room;
    return 0;
}

int hly_sets_init(struct hly_sets *sets, uint32_t nranks)
{
    memset(sets, 0, sizeof(*sets));
    sets->words = nranks / 64 + 1;
    if (grow(sets) < 0) {
        hly_sets_finish(sets);
        return HALAY_ENOMEM;
    }
    memset(sets->bits, 0, sets->words * sizeof(*sets->bits));
    sets->used = 1;
    return 0;
}

void hly_sets_finish(struct hly_sets *sets)
{
    free(sets->references);
    free(sets->bits);
}

uint32_t hly_sets_make(struct hly_sets *sets)
{
    uint32_t set = sets->spare;

    if (set) {
        sets->spare = sets->references[set];
    } else {
        if (sets->used == sets->room && grow(sets) < 0) {
            return 0;
        }
        set = sets->used++;
    }
    memset(hly_set(sets, set), 0, sets->words * sizeof(*sets->bits));
    sets->references[set] = 1;
    return set;
}

void hly_sets_add(struct hly_sets *sets, uint32_t to, uint32_t from)
{
    uint64_t *a = hly_set(sets, to);
    const uint64_t *b = hly_set(sets, from);

    assert(to != 0);
    for (uint32_t i = 0; i < sets->words; i++) {
        a[i] |= b[i];
    }
}

void hly_sets_put(struct hly_sets *sets, uint32_t set)
{
    if (set != 0 && --sets->references[set] == 0) {
        sets->references[set] = sets->spare;
        sets->spare = set;
    }
}
