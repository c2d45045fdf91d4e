/* SPDX-License-Identifier: Apache-2.0 */
/* runs.c - two sets of ranks in a message of fixed length (runs.h). */
#include "agree/runs.h"

#include <string.h>

/* Do both sets fit as bits? */
static bool is_whole(int nranks, const struct hly_packed *p)
{
    return 2 * hly_set_words(nranks) <= p->most;
}

/* Returns how many runs of the set were written, at most `most`; *all: these are all. */
static uint32_t write_runs(int nranks, const uint64_t set[], uint64_t runs[], uint32_t most,
                           bool *all)
{
    uint32_t n = 0;
    for (int r = 0; r < nranks; r++) {
        if (!hly_set_has(set, r))
            continue;
        const int first = r;
        while (r + 1 < nranks && hly_set_has(set, r + 1))
            r++;
        if (n < most)
            runs[n] = (uint64_t)(unsigned)first << 32 | (uint64_t)(unsigned)(r - first + 1);
        n++;
    }
    *all = n <= most;
    return n < most ? n : most;
}

bool hly_sets_pack(int nranks, const uint64_t failed[], const uint64_t without[],
                   struct hly_packed *p)
{
    const uint32_t words = hly_set_words(nranks);
    bool all = true, known;
    p->nfailed = p->nwithout = 0;
    if (is_whole(nranks, p)) {
        memcpy(p->words, failed, words * sizeof(*failed));
        memcpy(p->words + words, without, words * sizeof(*without));
        return true;
    }
    memset(p->words, 0, p->most * sizeof(*p->words));
    const uint32_t n = write_runs(nranks, without, p->words, p->most, &all);
    if (!all) {
        memset(p->words, 0, p->most * sizeof(*p->words));
        return false;
    }
    p->nwithout = (uint16_t)n;
    p->nfailed = (uint16_t)write_runs(nranks, failed, p->words + n, p->most - n, &known);
    return true;
}

static bool read_runs(int nranks, const uint64_t runs[], uint32_t n, uint64_t set[])
{
    uint64_t next = 0;
    for (uint32_t i = 0; i < n; i++) {
        const uint64_t first = runs[i] >> 32, end = first + (uint32_t)runs[i];
        if (first < next || end <= first || end > (uint64_t)nranks)
            return false;
        for (uint64_t r = first; r < end; r++)
            set[r / 64] |= UINT64_C(1) << (r % 64);
        next = end + 1; /* consecutive ranks are in one run */
    }
    return true;
}

bool hly_sets_unpack(int nranks, const struct hly_packed *p, uint64_t failed[], uint64_t without[])
{
    const uint32_t words = hly_set_words(nranks);
    if (is_whole(nranks, p)) {
        memcpy(failed, p->words, words * sizeof(*failed));
        memcpy(without, p->words + words, words * sizeof(*without));
        return true;
    }
    memset(failed, 0, words * sizeof(*failed));
    memset(without, 0, words * sizeof(*without));
    return (uint32_t)p->nwithout + p->nfailed <= p->most &&
           read_runs(nranks, p->words, p->nwithout, without) &&
           read_runs(nranks, p->words + p->nwithout, p->nfailed, failed);
}
