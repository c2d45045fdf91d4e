/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tune.c - autotuning (HALAY_AUTOTUNE): how many bytes a programme's fused groups have at most, by
 * the time that its cycles take; docs/decisions/0133. Search.h says how settings are compared.
 *
 * All ranks change a programme's groups ahead of the same group: between two cycles, when no group
 * is out and none was void. That follows from the number of cycles and from reduced words, so no
 * rank asks another. Each rank takes its own times; the slowest rank's count.
 */
#include "tune.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define LEAST_BYTES (UINT64_C(16) << 10) /* of a fused group that is tried */
#define VOIDS_MOST  16

/* ------------------------------------------------------------------ settings */

/* What the programme's groups are now: programmes are equal where this is. */
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

/* Adds a setting whose groups differ from those of all that are there. */
static int add_setting(halay_trainer_t *trainer, struct hlt_tune *tune, int n, uint64_t seen[],
                       uint64_t bytes)
{
    const struct hlt_programme *programme = trainer->replay.programme;
    int known = 0;
    if (n == HLT_SETTINGS || trainer->broken)
        return n;
    hlt_replay_regroup(trainer, (size_t)bytes);
    seen[n] = grouping(programme);
    while (seen[known] != seen[n])
        known++;
    tune->bytes[n] = (size_t)bytes;
    return n + (known == n);
}

/* From the default up and down by factors of 4; the largest; and none. */
static void find_settings(halay_trainer_t *trainer, struct hlt_tune *tune)
{
    const uint64_t preset = trainer->buffer_bytes, most = trainer->autotune.most_bytes;
    uint64_t seen[HLT_SETTINGS];
    int n = add_setting(trainer, tune, 0, seen, preset);
    n = add_setting(trainer, tune, n, seen, 0);
    n = add_setting(trainer, tune, n, seen, most);
    for (uint64_t far = 4; far <= 64; far *= 4) {
        if (preset * far < most)
            n = add_setting(trainer, tune, n, seen, preset * far);
        if (preset / far >= LEAST_BYTES)
            n = add_setting(trainer, tune, n, seen, preset / far);
    }
    hlt_replay_regroup(trainer, (size_t)preset);
    hlt_search_begin(&tune->search, n > 0 ? n : 1, (int)trainer->autotune.steps);
}

/* Between two cycles. NULL: no memory, and the trainer has ended. */
static struct hlt_tune *tune_make(halay_trainer_t *trainer)
{
    struct hlt_programme *programme = trainer->replay.programme;
    struct hlt_tune *tune = calloc(1, sizeof(*tune));
    if (!tune) {
        hlt_trainer_leave_all(trainer, HALAY_ENOMEM, "no memory for autotuning");
        return NULL;
    }
    programme->tune = tune;
    tune->ntensors = programme->script.count;
    for (size_t i = 0; i < tune->ntensors; i++) {
        const struct hlt_announcement *says = &programme->script.items[i].says;
        tune->total_bytes += says->count * halay_type_bytes(hlt_announcement_type(says));
    }
    find_settings(trainer, tune);
    const uint64_t key[] = {programme->set, trainer->autotune.key};
    tune->key = hlt_hash_words(0, key, 2);
    return tune;
}

void hlt_tune_free(struct hlt_programme *programme)
{
    free(programme->tune);
    programme->tune = NULL;
}

/* ------------------------------------------------------------------ the search */

/* The next block begins, or what was found is used from here on. */
static void go_on(halay_trainer_t *trainer, struct hlt_tune *tune)
{
    const int setting = hlt_search_setting(&tune->search);
    tune->state = tune->search.over ? HLT_TUNE_OVER : HLT_TUNE_SEARCHES;
    tune->cycles = 0;
    tune->nns = 0;
    if (setting != tune->setting)
        hlt_replay_regroup(trainer, tune->bytes[setting]);
    tune->setting = setting;
}

static void ask(halay_trainer_t *trainer, struct hlt_tune *tune)
{
    const int reads = trainer->rank == 0 && !trainer->autotune.again && tune->search.nsettings > 1;
    tune->words[0] = reads ? hlt_tune_read(tune) : -1;
    hlt_tune_start(trainer);
}

/* 1 if something changes ahead of the next cycle. */
static int is_due(const halay_trainer_t *trainer, const struct hlt_tune *tune)
{
    switch (tune->state) {
    case HLT_TUNE_ASKS:
        return 1;
    case HLT_TUNE_WARMS:
        return tune->cycles >= trainer->autotune.warmup_steps;
    case HLT_TUNE_SEARCHES:
        return tune->cycles == 1 + (uint32_t)hlt_search_steps(&tune->search);
    default:
        return 0;
    }
}

static void block_over(halay_trainer_t *trainer, struct hlt_tune *tune)
{
    if (tune->nns < HLT_BLOCK_STEPS)
        tune->ns[tune->nns++] = (double)(hlt_trainer_now_ns() - tune->stamp_ns);
    const double ns = hlt_median(tune->ns, tune->nns);
    if (trainer->rank == 0)
        hlt_tune_log(tune, ns);
    if (hlt_search_block(&tune->search, ns)) {
        memcpy(tune->words, tune->search.ns, sizeof(tune->words));
        hlt_tune_start(trainer);
    } else {
        go_on(trainer, tune);
    }
}

enum hlt_turn hlt_tune_next(halay_trainer_t *trainer)
{
    const struct hlt_replay *replay = &trainer->replay;
    struct hlt_tune *tune = replay->programme->tune;
    if ((tune && !is_due(trainer, tune)) || replay->results > replay->first_void)
        return HLT_TURN_BEGIN;
    if (replay->results < replay->issued)
        return HLT_TURN_WAIT;
    if (!tune && !(tune = tune_make(trainer)))
        return HLT_TURN_WAIT;
    if (tune->state == HLT_TUNE_ASKS)
        ask(trainer, tune);
    else if (tune->state == HLT_TUNE_WARMS)
        go_on(trainer, tune);
    else
        block_over(trainer, tune);
    return trainer->voting || trainer->broken ? HLT_TURN_WAIT : HLT_TURN_CHANGED;
}

void hlt_tune_cycle(halay_trainer_t *trainer)
{
    struct hlt_tune *tune = trainer->replay.programme->tune;
    if (!tune || tune->state == HLT_TUNE_OVER)
        return;
    const uint64_t now_ns = hlt_trainer_now_ns();
    if (tune->cycles > 1 && tune->nns < HLT_BLOCK_STEPS)
        tune->ns[tune->nns++] = (double)(now_ns - tune->stamp_ns);
    tune->stamp_ns = now_ns;
    tune->cycles++;
}

double *hlt_tune_words(const halay_trainer_t *trainer, size_t *nwords)
{
    struct hlt_tune *tune = trainer->replay.programme->tune;
    *nwords = tune->state == HLT_TUNE_ASKS ? 1 : hlt_search_words(&tune->search);
    return tune->words;
}

void hlt_tune_agreed(halay_trainer_t *trainer)
{
    struct hlt_tune *tune = trainer->replay.programme->tune;
    struct hlt_search *search = &tune->search;
    if (tune->state != HLT_TUNE_ASKS) {
        memcpy(search->ns, tune->words, sizeof(search->ns));
        hlt_search_agreed(search);
        go_on(trainer, tune);
    } else if (tune->words[0] >= 0 && tune->words[0] < search->nsettings) {
        search->over = tune->from_file = 1;
        search->found = (int)tune->words[0];
        go_on(trainer, tune);
    } else {
        tune->state = search->over ? HLT_TUNE_OVER : HLT_TUNE_WARMS;
    }
    if (trainer->rank == 0 && tune->state == HLT_TUNE_OVER)
        hlt_tune_write(trainer, tune);
}

/* ------------------------------------------------------------------ programmes that end */

void hlt_tune_void(halay_trainer_t *trainer, struct hlt_programme *programme)
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
    if (trainer->rank == 0)
        hlt_tune_give_up(tune);
    if (hlt_programme_group(trainer, programme, tune->bytes[0]))
        hlt_trainer_leave_all(trainer, HALAY_ENOMEM, "no memory to sort tensors into groups anew");
}

void hlt_tune_keep(halay_trainer_t *trainer, struct hlt_programme *to, struct hlt_programme *from)
{
    struct hlt_tune *tune = to->tune = from->tune;
    from->tune = NULL;
    if (!tune)
        return;
    if (tune->state == HLT_TUNE_SEARCHES) {
        tune->cycles = 0;
        tune->nns = 0;
    }
    if (hlt_programme_group(trainer, to, tune->bytes[tune->setting]))
        hlt_trainer_leave_all(trainer, HALAY_ENOMEM, "no memory to sort tensors into groups anew");
}
