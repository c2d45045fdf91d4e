/* SPDX-License-Identifier: Apache-2.0 */
/* terms.c - expressions, each stored once. A leaf has noperands 0 and (rank, block) as its key. */
#include "terms.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { BUCKETS = HLY_TERMS_MAX };

int hly_terms_init(hly_terms_t *terms)
{
    memset(terms, 0, sizeof *terms);
    terms->nodes = calloc(HLY_TERMS_MAX, sizeof *terms->nodes);
    terms->buckets = calloc(BUCKETS, sizeof *terms->buckets);
    if (terms->nodes == NULL || terms->buckets == NULL) {
        hly_terms_finish(terms);
        return HALAY_ENOMEM;
    }
    terms->count = HLY_TERM_FIRST;
    return 0;
}

void hly_terms_finish(hly_terms_t *terms)
{
    free(terms->nodes);
    free(terms->buckets);
    memset(terms, 0, sizeof *terms);
}

/* Finds or adds; *is_new says which. operands has HLY_TERM_OPERANDS_MAX entries, unused ones 0. */
static uint32_t intern(hly_terms_t *terms, const uint32_t *operands, uint32_t noperands,
                       int *is_new)
{
    uint64_t hash = noperands + 1;
    for (uint32_t i = 0; i < HLY_TERM_OPERANDS_MAX; i++) {
        hash = (hash ^ operands[i]) * 0x9e3779b97f4a7c15u;
        hash ^= hash >> 29;
    }
    uint32_t *bucket = &terms->buckets[hash % BUCKETS];
    *is_new = 0;
    for (uint32_t at = *bucket; at != 0; at = terms->nodes[at].next) {
        const hly_term_t *node = &terms->nodes[at];
        if (node->noperands == noperands &&
            memcmp(node->operands, operands, sizeof node->operands) == 0) {
            return at;
        }
    }
    if (terms->count == HLY_TERMS_MAX) {
        terms->full = 1;
        return HLY_TERM_GARBAGE;
    }
    uint32_t at = terms->count++;
    hly_term_t *node = &terms->nodes[at];
    memset(node, 0, sizeof *node);
    node->noperands = noperands;
    memcpy(node->operands, operands, sizeof node->operands);
    node->next = *bucket;
    *bucket = at;
    *is_new = 1;
    return at;
}

uint32_t hly_terms_leaf(hly_terms_t *terms, uint32_t rank, uint32_t block)
{
    assert(rank < HLY_PROGRAM_RANKS_MAX);
    const uint32_t key[HLY_TERM_OPERANDS_MAX] = {rank, block, 0, 0};
    int is_new = 0;
    uint32_t value = intern(terms, key, 0, &is_new);
    if (is_new) {
        terms->nodes[value].block = block;
        terms->nodes[value].times[rank] = 1;
        terms->nodes[value].first = (uint16_t)rank;
        terms->nodes[value].last = (uint16_t)rank;
        terms->nodes[value].in_order = 1;
    }
    return value;
}

static void fill(const hly_terms_t *terms, hly_term_t *node, const uint32_t *operands,
                 uint32_t noperands)
{
    node->block = terms->nodes[operands[0]].block;
    node->first = terms->nodes[operands[0]].first;
    node->last = terms->nodes[operands[noperands - 1]].last;
    node->in_order = 1;
    for (uint32_t i = 0; i < noperands; i++) {
        const hly_term_t *child = &terms->nodes[operands[i]];
        if (child->block != node->block) {
            node->block = HLY_BLOCK_MIXED;
        }
        if (!child->in_order || (i > 0 && terms->nodes[operands[i - 1]].last >= child->first)) {
            node->in_order = 0;
        }
        for (uint32_t rank = 0; rank < HLY_PROGRAM_RANKS_MAX; rank++) {
            uint32_t sum = (uint32_t)node->times[rank] + child->times[rank];
            node->times[rank] = (uint8_t)(sum > 255 ? 255 : sum);
        }
    }
}

uint32_t hly_terms_reduce(hly_terms_t *terms, const uint32_t *operands, uint32_t noperands)
{
    assert(noperands >= 1 && noperands <= HLY_TERM_OPERANDS_MAX);
    uint32_t key[HLY_TERM_OPERANDS_MAX] = {0, 0, 0, 0};
    for (uint32_t i = 0; i < noperands; i++) {
        if (operands[i] < HLY_TERM_FIRST) {
            return HLY_TERM_GARBAGE;
        }
        key[i] = operands[i];
    }
    if (noperands == 1) {
        return operands[0];
    }
    int is_new = 0;
    uint32_t value = intern(terms, key, noperands, &is_new);
    if (!is_new) {
        return value;
    }
    fill(terms, &terms->nodes[value], operands, noperands);
    return value;
}

uint32_t hly_terms_group(hly_terms_t *terms, uint32_t event, const uint32_t *operands,
                         uint32_t noperands)
{
    uint32_t value = operands[0];
    for (uint32_t i = 1; i < noperands; i++) {
        if (value < HLY_TERM_FIRST || operands[i] < HLY_TERM_FIRST) {
            return HLY_TERM_GARBAGE;
        }
        const uint32_t pair[] = {value, operands[i]};
        const uint32_t key[HLY_TERM_OPERANDS_MAX] = {value, operands[i], event + 1, i};
        int is_new = 0;
        value = intern(terms, key, HLY_TERM_DEVICE, &is_new);
        if (is_new) {
            fill(terms, &terms->nodes[value], pair, 2);
            terms->nodes[value].in_order = 0;
        }
    }
    return value;
}

int hly_terms_is_sum(const hly_terms_t *terms, uint32_t value, uint32_t block, uint32_t n)
{
    if (value < HLY_TERM_FIRST || terms->nodes[value].block != block) {
        return 0;
    }
    for (uint32_t rank = 0; rank < HLY_PROGRAM_RANKS_MAX; rank++) {
        if (terms->nodes[value].times[rank] != (rank < n)) {
            return 0;
        }
    }
    return 1;
}

int hly_terms_in_order(const hly_terms_t *terms, uint32_t value)
{
    assert(value >= HLY_TERM_FIRST && value < terms->count);
    return terms->nodes[value].in_order;
}
