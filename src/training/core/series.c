/* SPDX-License-Identifier: Apache-2.0 */
/*
 * series.c - tensors without a name of their own, which only a number tells apart
 * (docs/decisions/training.md#0025). The next number, and the period after which such tensors
 * repeat, follow from the tensors that ranks have agreed on, in order. So they are equal on all
 * ranks.
 */
#include <stdlib.h>
#include <string.h>

#include "core.h"

#define WORD        "noname."
#define DIGITS      18
#define BACKOFF_MAX 5 /* 64 times */

uint64_t hlt_series_of(const char *name, uint64_t *number)
{
    char stem[HALAY_TENSOR_NAME_MAX];
    const char *end = name + strlen(name), *at = end;
    size_t word = strlen(WORD);
    while (at > name && at[-1] >= '0' && at[-1] <= '9')
        at--;
    if (at == end || end - at > DIGITS || (*at == '0' && end - at > 1))
        return 0;
    if ((size_t)(at - name) < word || memcmp(at - word, WORD, word) ||
        ((size_t)(at - name) > word && at[-(ptrdiff_t)word - 1] != '.'))
        return 0;
    memcpy(stem, name, (size_t)(at - name));
    stem[at - name] = 0;
    *number = strtoull(at, NULL, 10);
    return hlt_tensor_hash(stem) | 1;
}

uint64_t hlt_series_name(uint64_t series, uint64_t number)
{
    return hlt_hash_words(series, &number, 1);
}

struct hlt_series *hlt_series_find(struct hlt_core *core, uint64_t series)
{
    for (size_t i = 0; i < core->learnt.nseries; i++)
        if (core->learnt.series[i].series == series)
            return &core->learnt.series[i];
    return NULL;
}

struct hlt_series *hlt_series_get(struct hlt_core *core, uint64_t series, uint64_t number)
{
    struct hlt_series *found = hlt_series_find(core, series);
    if (found || core->learnt.nseries == HLT_SERIES)
        return found;
    found = &core->learnt.series[core->learnt.nseries++];
    *found = (struct hlt_series){series, number};
    return found;
}

void hlt_series_done(struct hlt_core *core, uint64_t series, uint64_t number)
{
    struct hlt_series *found = hlt_series_get(core, series, number);
    if (found && found->next <= number)
        found->next = number + 1;
}

/* ------------------------------------------------------------------ periods */

void hlt_period_forget(struct hlt_core *core)
{
    core->learnt.period.count = 0;
}

void hlt_period_doubt(struct hlt_core *core, int more)
{
    int exponent = core->learnt.period.backoff_log2 + more;
    core->learnt.period.backoff_log2 = exponent < 0             ? 0
                                       : exponent < BACKOFF_MAX ? exponent
                                                                : BACKOFF_MAX;
}

size_t hlt_period_add(struct hlt_core *core, uint64_t says, int begins, size_t among)
{
    struct hlt_period *period = &core->learnt.period;
    size_t at = period->count++, most = at < HLT_PERIOD ? at : HLT_PERIOD;
    uint64_t key = says << 1 | (uint64_t)(begins != 0),
             more = (UINT64_C(2) << period->backoff_log2) - 1;
    for (size_t p = 1; p <= most; p++) {
        uint64_t before = p < at ? period->same[p] : 0;
        period->same[p] = period->keys[(at - p) % HLT_PERIOD] == key ? before + 1 : 0;
    }
    period->keys[at % HLT_PERIOD] = key;
    for (size_t p = 1; p <= most; p++)
        if (period->same[p] >= more * p && 2 * (period->same[p] + p) >= among &&
            (period->keys[(at + 1 - p) % HLT_PERIOD] & 1))
            return p;
    return 0;
}
