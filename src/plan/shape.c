/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shape.c - which ranks share a node, in one form for each map.
 * Invariant: member[] holds each rank once; those of one node stand together and rise; nodes stand
 * in the order of their lowest ranks.
 */
#include <halay/plan.h>

#include <stdlib.h>
#include <string.h>

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

static uint64_t mix(uint64_t h, uint64_t word)
{
    h = (h ^ word) * 0x9e3779b97f4a7c15u;
    return h ^ h >> 29;
}

/* pairs: (node, rank), sorted; nodes: (lowest rank, where its pairs begin), sorted. */
static void fill(halay_shape_t *s, const uint64_t *pairs, const uint64_t *nodes)
{
    uint64_t h = mix(0x7368617065, s->nranks);
    uint32_t at = 0, scattered = 0;

    s->smallest = s->nranks;
    for (uint32_t i = 0; i < s->nnodes; i++) {
        uint32_t from = (uint32_t)nodes[i], end = from;
        s->first[i] = at;
        for (; end < s->nranks && pairs[end] >> 32 == pairs[from] >> 32; end++) {
            s->member[at] = (uint32_t)pairs[end];
            s->node[s->member[at++]] = i;
        }
        scattered |= s->member[at - 1] - s->member[s->first[i]] != end - from - 1;
        s->smallest = end - from < s->smallest ? end - from : s->smallest;
        s->largest = end - from > s->largest ? end - from : s->largest;
    }
    s->first[s->nnodes] = at;
    for (uint32_t rank = 0; rank < s->nranks; rank++) {
        h = mix(h, s->node[rank]);
    }
    s->hash = h << 1 | scattered;
    s->hash |= s->hash <= 1 ? 2 : 0;
}

static uint32_t find_nodes(const uint64_t *pairs, uint32_t nranks, uint64_t *nodes)
{
    uint32_t nnodes = 0;

    for (uint32_t i = 0; i < nranks; i++) {
        if (i == 0 || pairs[i] >> 32 != pairs[i - 1] >> 32) {
            nodes[nnodes++] = pairs[i] << 32 | i;
        }
    }
    qsort(nodes, nnodes, sizeof(*nodes), compare);
    return nnodes;
}

int halay_shape_make(const uint32_t node_of_rank[], uint32_t nranks, halay_shape_t **shape)
{
    if (nranks == 0 || !shape) {
        return HALAY_EINVAL;
    }
    uint64_t *pairs = malloc(2 * (size_t)nranks * sizeof(*pairs));
    if (!pairs) {
        return HALAY_ENOMEM;
    }
    uint64_t *nodes = pairs + nranks;
    for (uint32_t rank = 0; rank < nranks; rank++) {
        pairs[rank] = (node_of_rank ? (uint64_t)node_of_rank[rank] << 32 : 0) | rank;
    }
    qsort(pairs, nranks, sizeof(*pairs), compare);
    uint32_t nnodes = find_nodes(pairs, nranks, nodes);
    halay_shape_t *made =
        calloc(1, sizeof(*made) + (2 * (size_t)nranks + nnodes + 1) * sizeof(uint32_t));
    if (made) {
        made->nranks = nranks;
        made->nnodes = nnodes;
        made->node = (uint32_t *)(made + 1);
        made->member = made->node + nranks;
        made->first = made->member + nranks;
        fill(made, pairs, nodes);
        *shape = made;
    }
    free(pairs);
    return made ? 0 : HALAY_ENOMEM;
}

void halay_shape_free(halay_shape_t *shape)
{
    free(shape);
}
