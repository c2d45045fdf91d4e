/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ranks.c - the ranks of a communicator as world ranks. They are kept in the smaller of two forms.
 * One is runs of equal distance, of which most communicators have few. The other is a table that
 * packs each world rank into as few bits as the largest needs. So 100,000 ranks in any order take
 * 210 KiB.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "comm/comm.h"

/* Walks the runs of equal distance; fills run[] if it is not NULL. Returns how many there are. */
static uint32_t find_runs(const int world_ranks[], int nranks, struct hly_run *run)
{
    uint32_t n = 0;
    for (int r = 0, count; r < nranks; r += count, n++) {
        int stride = r + 1 < nranks ? world_ranks[r + 1] - world_ranks[r] : 1;
        for (count = 1; r + count < nranks; count++)
            if (world_ranks[r + count] - world_ranks[r + count - 1] != stride)
                break;
        if (run)
            run[n] = (struct hly_run){r, world_ranks[r], stride, count};
    }
    return n;
}

static const struct hly_run *runs_of(const struct hly_ranks *g)
{
    return (const struct hly_run *)g->word;
}

/* A rank's bits may lie in two words; there is one more word than the ranks fill. */
static int packed(const struct hly_ranks *g, int rank)
{
    uint64_t bit = (uint64_t)rank * g->width;
    uint32_t shift = bit % 64;
    const uint64_t *word = &g->word[bit / 64];
    uint64_t bits = word[0] >> shift | (shift ? word[1] << (64 - shift) : 0);
    return (int)(bits & ((1ull << g->width) - 1));
}

static void pack(struct hly_ranks *g, int rank, int world_rank)
{
    uint64_t bit = (uint64_t)rank * g->width;
    uint32_t shift = bit % 64;
    uint64_t *word = &g->word[bit / 64];
    word[0] |= (uint64_t)world_rank << shift;
    if (shift + g->width > 64)
        word[1] |= (uint64_t)world_rank >> (64 - shift);
}

int hly_ranks_make(const int world_ranks[], int nranks, struct hly_ranks **ranks)
{
    assert(nranks > 0);
    uint32_t width = 1;
    for (int r = 0; r < nranks; r++)
        while ((uint64_t)world_ranks[r] >> width)
            width++;
    uint32_t nruns = find_runs(world_ranks, nranks, NULL);
    size_t as_runs = nruns * sizeof(struct hly_run);
    size_t as_table = ((uint64_t)nranks * width / 64 + 2) * sizeof(uint64_t);
    size_t bytes = sizeof(**ranks) + (as_runs <= as_table ? as_runs : as_table);
    struct hly_ranks *g = calloc(1, bytes);
    if (!g)
        return HALAY_ENOMEM;
    g->bytes = bytes;
    g->nranks = nranks;
    if (as_runs <= as_table) {
        g->nruns = nruns;
        find_runs(world_ranks, nranks, (struct hly_run *)g->word);
    } else {
        g->width = width;
        for (int r = 0; r < nranks; r++)
            pack(g, r, world_ranks[r]);
    }
    *ranks = g;
    return HALAY_OK;
}

int hly_ranks_copy(const struct hly_ranks *ranks, struct hly_ranks **copy)
{
    struct hly_ranks *g = malloc(ranks->bytes);
    if (!g)
        return HALAY_ENOMEM;
    memcpy(g, ranks, ranks->bytes);
    *copy = g;
    return HALAY_OK;
}

int hly_ranks_world_rank(const struct hly_ranks *g, int rank)
{
    assert(rank >= 0 && rank < g->nranks);
    if (!g->nruns)
        return packed(g, rank);
    const struct hly_run *run = runs_of(g);
    uint32_t low = 0, high = g->nruns; /* the last run that starts at or before rank */
    while (high - low > 1) {
        uint32_t middle = (low + high) / 2;
        if (run[middle].first_rank <= rank)
            low = middle;
        else
            high = middle;
    }
    return run[low].first_world + (rank - run[low].first_rank) * run[low].stride;
}

int hly_ranks_rank_of(const struct hly_ranks *g, int world_rank)
{
    for (int r = 0; !g->nruns && r < g->nranks; r++)
        if (packed(g, r) == world_rank)
            return r;
    for (uint32_t i = 0; i < g->nruns; i++) {
        const struct hly_run *run = &runs_of(g)[i];
        int distance = world_rank - run->first_world;
        if (run->stride && distance % run->stride == 0 && distance / run->stride >= 0 &&
            distance / run->stride < run->count)
            return run->first_rank + distance / run->stride;
    }
    return -1;
}
