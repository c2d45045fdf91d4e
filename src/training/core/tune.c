/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tune.c - autotuning (HALAY_AUTOTUNE): finds the size limit of a programme's fused groups with
 * which its cycles take the least time; docs/decisions/fusion.md#0133. search.h says how it
 * compares settings.
 *
 * All ranks change a programme's groups before the same group: between two cycles, when no group is
 * under way and none was void. The number of cycles and the reduced words decide when, so ranks
 * need no further messages. Each rank measures its own times; those of the slowest rank count.
 */
#include "tune.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define LEAST_BYTES (UINT64_C(16) << 10) /* smallest size limit that is tried */
#define VOIDS_MOST  16

/* ------------------------------------------------------------------ settings */

/* Has rank 0's shell log this. */
static void say(struct hlt_core *core, struct hlt_tune *tune, enum hlt_tune_says what)
{
    tune->says = what;
    core->speaks = core->rank == 0 ? tune : NULL;
}

/* A hash of the programme's groups: equal groupings have equal hashes. */
static uint64_t grouping(const struct hlt_programme *programme)
{
    uint64_t hash = programme->ngroups;
    for (size_t i = 0; i < programme->script.count; i++) {
        const struct hlt_item *item = &programme->script.items[i];
        const uint64_t words[] = {item->place, item->group,
                                  (uint64_t)programme->groups[item->group].fused};
        hash = hlt_hash_words(hash, words, 3);
    }
    return hash;
}

static void group(struct hlt_core *core, struct hlt_programme *programme, size_t most)
{
    if (hlt_programme_group(core->nranks, programme, most))
        hlt_core_leave_all(core, HALAY_ENOMEM, "no memory to sort tensors into groups anew");
}

/* Adds a setting if its groups differ from those of all earlier settings. */
static int add_setting(struct hlt_core *core, struct hlt_tune *tune, int n, uint64_t seen[],
                       uint64_t bytes)
{
    struct hlt_programme *programme = core->replay.programme;
    int known = 0;
    if (n == HLT_SETTINGS || core->broken)
        return n;
    group(core, programme, (size_t)bytes);
    seen[n] = grouping(programme);
    while (seen[known] != seen[n])
        known++;
    tune->bytes[n] = (size_t)bytes;
    return n + (known == n);
}

/* The settings: from the default up and down by factors of 4; the largest; and no fusion. */
static void find_settings(struct hlt_core *core, struct hlt_tune *tune)
{
    const uint64_t preset = core->buffer_bytes, most = core->autotune.most_bytes;
    uint64_t seen[HLT_SETTINGS];
    int n = add_setting(core, tune, 0, seen, preset);
    n = add_setting(core, tune, n, seen, 0);
    n = add_setting(core, tune, n, seen, most);
    for (uint64_t far = 4; far <= 64; far *= 4) {
        if (preset * far < most)
            n = add_setting(core, tune, n, seen, preset * far);
        if (preset / far >= LEAST_BYTES)
            n = add_setting(core, tune, n, seen, preset / far);
    }
    group(core, core->replay.programme, (size_t)preset);
    hlt_search_begin(&tune->search, n > 0 ? n : 1, (int)core->autotune.steps);
}

/* Called between two cycles. NULL: no memory; then it has ended the trainer. */
static struct hlt_tune *tune_make(struct hlt_core *core)
{
    struct hlt_programme *programme = core->replay.programme;
    struct hlt_tune *tune = calloc(1, sizeof(*tune));
    if (!tune) {
        hlt_core_leave_all(core, HALAY_ENOMEM, "no memory for autotuning");
        return NULL;
    }
    programme->tune = tune;
    tune->ntensors = programme->script.count;
    for (size_t i = 0; i < tune->ntensors; i++) {
        const struct hlt_announcement *says = &programme->script.items[i].says;
        tune->total_bytes += says->count * halay_type_bytes(hlt_announcement_type(says));
    }
    find_settings(core, tune);
    const uint64_t key[] = {programme->set, core->autotune.key};
    tune->key = hlt_hash_words(0, key, 2);
    return tune;
}

void hlt_tune_free(struct hlt_programme *programme)
{
    free(programme->tune);
    programme->tune = NULL;
}

/* ------------------------------------------------------------------ the search */

/* Begins the next block, or uses the found setting from here on. */
static void go_on(struct hlt_core *core, struct hlt_tune *tune)
{
    const int setting = hlt_search_setting(&tune->search);
    tune->state = tune->search.over ? HLT_TUNE_OVER : HLT_TUNE_SEARCHES;
    tune->cycles = 0;
    tune->nns = 0;
    if (setting != tune->setting)
        group(core, core->replay.programme, tune->bytes[setting]);
    tune->setting = setting;
}

/* 1 if the setting changes before the next cycle. */
static int is_due(const struct hlt_core *core, const struct hlt_tune *tune)
{
    switch (tune->state) {
    case HLT_TUNE_ASKS:
        return 1;
    case HLT_TUNE_WARMS:
        return tune->cycles >= core->autotune.warmup_steps;
    case HLT_TUNE_SEARCHES:
        return tune->cycles == 1 + (uint32_t)hlt_search_steps(&tune->search);
    default:
        return 0;
    }
}

/* Ends a block. 1: the ranks have to reduce their words. */
static int block_over(struct hlt_core *core, struct hlt_tune *tune)
{
    if (tune->nns < HLT_BLOCK_STEPS)
        tune->ns[tune->nns++] = (double)(core->now_ns - tune->stamp_ns);
    tune->block_ns = hlt_median(tune->ns, tune->nns);
    tune->block_setting = tune->setting;
    say(core, tune, HLT_TUNE_BLOCK);
    if (hlt_search_block(&tune->search, tune->block_ns)) {
        memcpy(tune->words, tune->search.ns, sizeof(tune->words));
        return 1;
    }
    go_on(core, tune);
    return 0;
}

enum hlt_turn hlt_tune_next(struct hlt_core *core)
{
    const struct hlt_replay *replay = &core->replay;
    struct hlt_tune *tune = replay->programme->tune;
    if ((tune && !is_due(core, tune)) || replay->results > replay->first_void)
        return HLT_TURN_BEGIN;
    if (replay->results < replay->issued)
        return HLT_TURN_WAIT;
    if (!tune && !(tune = tune_make(core)))
        return HLT_TURN_WAIT;
    if (tune->state == HLT_TUNE_ASKS)
        return HLT_TURN_REDUCE;
    if (tune->state == HLT_TUNE_WARMS)
        go_on(core, tune);
    else if (block_over(core, tune))
        return HLT_TURN_REDUCE;
    return core->broken ? HLT_TURN_WAIT : HLT_TURN_CHANGED;
}

void hlt_tune_cycle(struct hlt_core *core)
{
    struct hlt_tune *tune = core->replay.programme->tune;
    if (!tune || tune->state == HLT_TUNE_OVER)
        return;
    const uint64_t now_ns = core->now_ns;
    if (tune->cycles > 1 && tune->nns < HLT_BLOCK_STEPS)
        tune->ns[tune->nns++] = (double)(now_ns - tune->stamp_ns);
    tune->stamp_ns = now_ns;
    tune->cycles++;
}

double *hlt_tune_words(const struct hlt_core *core, size_t *nwords)
{
    struct hlt_tune *tune = core->replay.programme->tune;
    *nwords = tune->state == HLT_TUNE_ASKS ? 1 : hlt_search_words(&tune->search);
    return tune->words;
}

void hlt_tune_agreed(struct hlt_core *core)
{
    struct hlt_tune *tune = core->replay.programme->tune;
    struct hlt_search *search = &tune->search;
    if (tune->state != HLT_TUNE_ASKS) {
        memcpy(search->ns, tune->words, sizeof(search->ns));
        hlt_search_agreed(search);
        go_on(core, tune);
    } else if (tune->words[0] >= 0 && tune->words[0] < search->nsettings) {
        search->over = tune->from_file = 1;
        search->found = (int)tune->words[0];
        go_on(core, tune);
    } else {
        tune->state = search->over ? HLT_TUNE_OVER : HLT_TUNE_WARMS;
    }
    if (tune->state == HLT_TUNE_OVER)
        say(core, tune, HLT_TUNE_FOUND);
}

/* ------------------------------------------------------------------ programmes that end */

void hlt_tune_void(struct hlt_core *core, struct hlt_programme *programme)
{
    struct hlt_tune *tune = programme->tune;
    if (!tune || tune->state != HLT_TUNE_SEARCHES)
        return;
    tune->cycles = 0;
    tune->nns = 0;
    if (++tune->voids <= VOIDS_MOST)
        return;
    tune->state = HLT_TUNE_OVER;
    tune->setting = 0;
    say(core, tune, HLT_TUNE_GAVE_UP);
    group(core, programme, tune->bytes[0]);
}

void hlt_tune_keep(struct hlt_core *core, struct hlt_programme *to, struct hlt_programme *from)
{
    struct hlt_tune *tune = to->tune = from->tune;
    from->tune = NULL;
    if (!tune)
        return;
    if (tune->state == HLT_TUNE_SEARCHES) {
        tune->cycles = 0;
        tune->nns = 0;
    }
    group(core, to, tune->bytes[tune->setting]);
}
