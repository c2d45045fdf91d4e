/* SPDX-License-Identifier: Apache-2.0 */
/* search.c - successive halving; see search.h. */
#include "search.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define LEAST_GAIN 0.03 /* with less gain the default stays */
#define HOPELESS   1.05 /* ends the search if all others are so much slower than the default */

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double hlt_median(double *values, size_t count)
{
    assert(count);
    qsort(values, count, sizeof(*values), compare);
    return (values[(count - 1) / 2] + values[count / 2]) / 2;
}

static int is_alive(const struct hlt_search *search, int setting)
{
    return (int)(search->alive >> setting & 1);
}

static int next_alive(const struct hlt_search *search, int from)
{
    while (from < search->nsettings && !is_alive(search, from))
        from++;
    return from;
}

static void end(struct hlt_search *search, int found, double gain)
{
    search->over = 1;
    search->found = found;
    search->gain = gain;
}

void hlt_search_begin(struct hlt_search *search, int nsettings, int steps)
{
    assert(nsettings > 0 && nsettings <= HLT_SETTINGS && steps > 0 && steps <= HLT_BLOCK_STEPS);
    *search =
        (struct hlt_search){.nsettings = nsettings, .steps = steps, .alive = (1u << nsettings) - 1};
    if (nsettings == 1)
        end(search, 0, 0);
}

int hlt_search_setting(const struct hlt_search *search)
{
    if (search->over)
        return search->found;
    if (search->rival)
        return search->at % 2 ? search->rival : 0;
    return search->at;
}

int hlt_search_steps(const struct hlt_search *search)
{
    const int steps = search->rival ? search->steps : search->steps << search->round;
    return steps < HLT_BLOCK_STEPS ? steps : HLT_BLOCK_STEPS;
}

size_t hlt_search_words(const struct hlt_search *search)
{
    return search->rival ? HLT_SEARCH_WORDS : (size_t)search->nsettings;
}

int hlt_search_block(struct hlt_search *search, double ns)
{
    assert(!search->over);
    search->ns[search->at] = ns;
    if (search->rival)
        return ++search->at == HLT_SEARCH_WORDS;
    search->at = next_alive(search, search->at + 1);
    return search->at == search->nsettings;
}

/* Drops the slower half of the default's rivals. */
static void halve(struct hlt_search *search)
{
    const int rivals = __builtin_popcount(search->alive) - 1;
    for (int drop = rivals > 1 ? (rivals + 1) / 2 : 0; drop > 0; drop--) {
        int worst = 0;
        for (int i = next_alive(search, 1); i < search->nsettings; i = next_alive(search, i + 1))
            if (!worst || search->ns[i] > search->ns[worst])
                worst = i;
        search->alive &= ~(1u << worst);
    }
}

static void round_over(struct hlt_search *search)
{
    int best = 0;
    for (int i = next_alive(search, 1); i < search->nsettings; i = next_alive(search, i + 1))
        if (!best || search->ns[i] < search->ns[best])
            best = i;
    if (search->ns[best] > HOPELESS * search->ns[0]) {
        end(search, 0, 0);
        return;
    }
    halve(search);
    if (__builtin_popcount(search->alive) == 2)
        search->rival = best;
    search->round++;
    search->at = 0;
    memset(search->ns, 0, sizeof(search->ns));
}

void hlt_search_agreed(struct hlt_search *search)
{
    double part[HLT_TURNS];
    assert(!search->over);
    if (!search->rival) {
        round_over(search);
        return;
    }
    for (int i = 0; i < HLT_TURNS; i++)
        part[i] = search->ns[2 * i] > 0 ? search->ns[2 * i + 1] / search->ns[2 * i] : 1;
    const double middle = hlt_median(part, HLT_TURNS);
    const int better = middle < 1 - LEAST_GAIN;
    end(search, better ? search->rival : 0, better ? 1 - middle : 0);
}
