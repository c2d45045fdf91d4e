/* SPDX-License-Identifier: Apache-2.0 */
/*
 * programme.c - learns what a step is, from what rounds complete, and keeps eight of them;
 * docs/decisions/0019. Everything here follows from records and results that are equal on all
 * ranks, so that all learn the same programmes and begin them at the same place.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "trainer.h"

#define SCORE_MAX   4
#define VOID_COSTS  2
#define BACKOFF_MAX 1

/* ------------------------------------------------------------------ scripts */

struct hly_item *hly_script_find(const struct hly_script *script, uint64_t name)
{
    if (!script->count)
        return NULL;
    for (size_t at = name & script->mask; script->index[at]; at = (at + 1) & script->mask) {
        struct hly_item *item = &script->items[script->index[at] - 1];
        if (item->says.name == name)
            return item;
    }
    return NULL;
}

static void script_index(struct hly_script *script, size_t item)
{
    size_t at = script->items[item].says.name & script->mask;
    while (script->index[at])
        at = (at + 1) & script->mask;
    script->index[at] = (uint32_t)item + 1;
}

static int script_reserve(struct hly_script *script, size_t room)
{
    size_t size = 64;
    if (room <= script->room)
        return 0;
    while (size < 2 * room)
        size *= 2;
    struct hly_item *items = realloc(script->items, room * sizeof(*items));
    if (!items)
        return HALAY_ENOMEM;
    script->items = items;
    uint32_t *index = calloc(size, sizeof(*index));
    if (!index)
        return HALAY_ENOMEM;
    free(script->index);
    script->index = index;
    script->mask = size - 1;
    script->room = room;
    for (size_t i = 0; i < script->count; i++)
        script_index(script, i);
    return 0;
}

static int script_add(struct hly_script *script, const struct hly_item *item)
{
    assert(!hly_script_find(script, item->says.name));
    if (script->count == script->room &&
        script_reserve(script, script->room ? 2 * script->room : 64))
        return HALAY_ENOMEM;
    script->items[script->count] = *item;
    script_index(script, script->count++);
    return 0;
}

static void script_clear(struct hly_script *script)
{
    if (script->count)
        memset(script->index, 0, (script->mask + 1) * sizeof(*script->index));
    script->count = 0;
}

static void script_free(struct hly_script *script)
{
    free(script->items);
    free(script->index);
}

/* ------------------------------------------------------------------ groups */

/* What takes items [from, to), one run, and sorts them into groups. */
struct sorter {
    struct hly_programme *programme;
    const struct hly_item *items;
    char *taken;
    size_t from, to;
};

/* Adds to the group what follows and fits. Stops at what would fit elsewhere: first needed first.
 */
static int fused_fill(const halay_trainer_t *trainer, struct sorter *sorter,
                      struct hly_group *group)
{
    const struct hly_announcement *first = &sorter->items[sorter->from].says;
    size_t left = trainer->slot_bytes / halay_type_bytes(hly_announcement_type(first));
    for (size_t i = sorter->from; i < sorter->to; i++) {
        const struct hly_item *item = &sorter->items[i];
        if (sorter->taken[i] || !hly_fuse_alike(first, &item->says))
            continue;
        if (item->says.count > left)
            return 0;
        left -= item->says.count;
        if (script_add(&sorter->programme->script, item))
            return HALAY_ENOMEM;
        sorter->taken[i] = 1;
        group->count++;
    }
    return 0;
}

static int voted_fill(const halay_trainer_t *trainer, struct sorter *sorter,
                      struct hly_group *group)
{
    for (size_t i = sorter->from; i < sorter->to && group->count < HLY_VOTE_ITEMS; i++) {
        const struct hly_item *item = &sorter->items[i];
        if (sorter->taken[i] || hly_fuse_takes(trainer, &item->says))
            continue;
        if (script_add(&sorter->programme->script, item))
            return HALAY_ENOMEM;
        sorter->taken[i] = 1;
        group->rows |= hly_announcement_kind(&item->says) == HLY_KIND_ALLGATHER;
        group->count++;
    }
    return 0;
}

/* One run: groups in the order of their first items. */
static int run_sort(const halay_trainer_t *trainer, struct sorter *sorter)
{
    int rc = 0;
    for (; sorter->from < sorter->to && !rc; sorter->from++) {
        struct hly_programme *programme = sorter->programme;
        if (sorter->taken[sorter->from])
            continue;
        struct hly_group *group = &programme->groups[programme->ngroups++];
        group->first = (uint32_t)programme->script.count;
        group->fused = hly_fuse_takes(trainer, &sorter->items[sorter->from].says);
        rc = group->fused ? fused_fill(trainer, sorter, group) : voted_fill(trainer, sorter, group);
        assert(rc || group->count);
        for (size_t i = group->first; i < programme->script.count; i++)
            programme->script.items[i].group = (uint32_t)(programme->ngroups - 1);
    }
    return rc;
}

/* The items' hash in any order. */
static uint64_t set_add(uint64_t set, const struct hly_announcement *says)
{
    uint64_t words[10] = {says->name,     says->what,      says->count,
                          says->prescale, says->postscale, says->group};
    static_assert(sizeof(words) == 6 * sizeof(words[0]) + sizeof(says->shape), "no word is left");
    memcpy(&words[6], says->shape, sizeof(says->shape));
    return set + hly_hash_words(0, words, sizeof(words) / sizeof(words[0]));
}

/* ------------------------------------------------------------------ programmes */

static void programme_free(struct hly_programme *programme)
{
    if (!programme)
        return;
    script_free(&programme->script);
    free(programme->groups);
    free(programme);
}

void hly_programmes_free(halay_trainer_t *trainer)
{
    for (int i = 0; i < HLY_PROGRAMMES; i++)
        programme_free(trainer->programmes[i]);
    script_free(&trainer->tape);
}

/* So many of the tape's items. */
static struct hly_programme *programme_make(const halay_trainer_t *trainer, size_t from,
                                            size_t count)
{
    const struct hly_script *tape = &trainer->tape;
    struct hly_programme *programme = calloc(1, sizeof(*programme));
    char *taken = calloc(count, 1);
    int rc = HALAY_ENOMEM;
    if (!programme || !taken || script_reserve(&programme->script, count) ||
        !(programme->groups = calloc(count, sizeof(*programme->groups))))
        goto fail;
    struct sorter sorter = {.programme = programme, .items = tape->items + from, .taken = taken};
    for (rc = 0; sorter.to < count && !rc; sorter.from = sorter.to) {
        while (sorter.to < count && sorter.items[sorter.to].run == sorter.items[sorter.from].run)
            sorter.to++;
        rc = run_sort(trainer, &sorter);
    }
    for (size_t i = 0; i < count; i++)
        programme->set = set_add(programme->set, &sorter.items[i].says);
    assert(rc || programme->script.count == count);

fail:
    free(taken);
    if (!rc)
        return programme;
    programme_free(programme);
    return NULL;
}

/* In the place of the same set in another order, of none, or of the one that was used last. */
static void programme_keep(halay_trainer_t *trainer, struct hly_programme *programme)
{
    struct hly_programme **place = NULL;
    programme->score = 1;
    programme->used = ++trainer->uses;
    trainer->counters.programmes++;
    for (int i = 0; i < HLY_PROGRAMMES; i++) {
        struct hly_programme **at = &trainer->programmes[i];
        if (*at && (*at)->set == programme->set) {
            programme->score += (*at)->score < SCORE_MAX ? (*at)->score : SCORE_MAX - 1;
            place = at;
            break;
        }
        if (!place || (*place && (!*at || (*at)->used < (*place)->used)))
            place = at;
    }
    if (trainer->avoid == *place)
        trainer->avoid = NULL;
    programme_free(*place);
    *place = programme;
}

/*
 * Among those whose first run has this tensor: the one that has served best, and then the latest.
 * One that has lost its score has to be learnt anew.
 */
static struct hly_programme *programme_best(halay_trainer_t *trainer,
                                            const struct hly_announcement *says, int boundary)
{
    struct hly_programme *best = NULL;
    for (int i = 0; i < HLY_PROGRAMMES; i++) {
        struct hly_programme *programme = trainer->programmes[i];
        if (!programme || !programme->score ||
            (!boundary && (programme->begun || programme == trainer->avoid)))
            continue;
        const struct hly_item *item = hly_script_find(&programme->script, says->name);
        if (!item || item->run != programme->script.items[0].run ||
            !hly_announcement_alike(&item->says, says))
            continue;
        if (!best || programme->score > best->score ||
            (programme->score == best->score && programme->used > best->used))
            best = programme;
    }
    return best;
}

/* ------------------------------------------------------------------ the tape */

/* Keeps so many of the last items. */
static void tape_cut(halay_trainer_t *trainer, size_t kept)
{
    struct hly_script *tape = &trainer->tape;
    size_t from = tape->count - kept;
    script_clear(tape);
    for (size_t i = 0; i < kept; i++) {
        tape->items[i] = tape->items[from + i];
        script_index(tape, tape->count++);
    }
    for (int i = 0; i < HLY_PROGRAMMES; i++) {
        struct hly_programme *programme = trainer->programmes[i];
        if (!programme)
            continue;
        programme->begun = 0;
        for (size_t t = 0; t < kept && !programme->begun; t++)
            programme->begun =
                hly_script_find(&programme->script, tape->items[t].says.name) != NULL;
    }
}

static void tape_add(halay_trainer_t *trainer, const struct hly_announcement *says, uint64_t run)
{
    struct hly_item item = {.says = *says, .run = run};
    if (trainer->tape.count == HLY_TAPE_ITEMS || hly_script_find(&trainer->tape, says->name))
        tape_cut(trainer, 0);
    if (script_add(&trainer->tape, &item)) {
        hly_trainer_break(trainer, HALAY_ENOMEM, "no memory for what the ranks have agreed on");
        return;
    }
    for (int i = 0; i < HLY_PROGRAMMES; i++)
        if (trainer->programmes[i] && hly_script_find(&trainer->programmes[i]->script, says->name))
            trainer->programmes[i]->begun = 1;
    trainer->avoid = NULL;
}

/* Items of this run at the tape's end. */
static size_t tape_run(const halay_trainer_t *trainer, uint64_t run)
{
    const struct hly_script *tape = &trainer->tape;
    size_t count = 0;
    while (count < tape->count && tape->items[tape->count - 1 - count].run == run)
        count++;
    return count;
}

/*
 * A name is here again. Its run begins the next cycle, with what of it is on the tape already; the
 * one that is over began with the run of the name's first time. Half a cycle teaches nothing.
 */
static struct hly_programme *cycle_end(halay_trainer_t *trainer, const struct hly_item *again,
                                       size_t next)
{
    const struct hly_script *tape = &trainer->tape;
    size_t from = (size_t)(again - tape->items), to = tape->count - next;
    struct hly_programme *programme = NULL;
    if (!trainer->impure && from < to) {
        while (from && tape->items[from - 1].run == tape->items[from].run)
            from--;
        programme = programme_make(trainer, from, to - from);
        if (!programme)
            hly_trainer_break(trainer, HALAY_ENOMEM, "no memory for a programme");
        else
            programme_keep(trainer, programme);
    }
    trainer->impure = 0;
    tape_cut(trainer, next);
    return programme;
}

/* A whole cycle, and then more in the same step: it was the programme of another one. */
static void programme_short(halay_trainer_t *trainer)
{
    struct hly_programme *programme = trainer->avoid;
    trainer->switching = 0;
    if (!programme)
        return;
    for (size_t i = 0; i < programme->script.count; i++)
        tape_add(trainer, &programme->script.items[i].says, programme->script.items[i].run);
    trainer->impure = 1;
    programme->score = 0;
}

/*
 * Where a round is cut follows from time, so it decides nothing here: a programme begins only with
 * the first of a run, and of a run that a replay has begun the rest is no beginning.
 */
struct hly_programme *hly_programme_seen(halay_trainer_t *trainer, const struct hly_record *record)
{
    struct hly_announcement says = record->first;
    struct hly_programme *best = NULL, *made = NULL;
    says.wait = record->marks & HLY_PLACED;
    if ((record->marks & HLY_TORN) && trainer->switching)
        programme_short(trainer);
    const struct hly_item *again = hly_script_find(&trainer->tape, says.name);
    size_t before = tape_run(trainer, record->run);
    if (record->marks & HLY_TORN) {
        if (!again)
            tape_add(trainer, &says, record->run);
        return NULL;
    }
    if (again) {
        trainer->switching = 0;
        made = cycle_end(trainer, again, before);
    }
    if (trainer->skip)
        trainer->skip -= again != NULL;
    else if (again ? !before : trainer->switching)
        best = made ? made : programme_best(trainer, &says, again != NULL);
    if (!best)
        tape_add(trainer, &says, record->run);
    else
        best->used = ++trainer->uses;
    return best;
}

void hly_programme_forget(halay_trainer_t *trainer)
{
    tape_cut(trainer, 0);
    trainer->impure = 0;
    trainer->switching = 1;
    trainer->avoid = NULL;
}

void hly_programme_whole(halay_trainer_t *trainer)
{
    struct hly_programme *programme = trainer->replay.programme;
    if (programme->score < SCORE_MAX)
        programme->score++;
    trainer->failures = 0;
    trainer->counters.cycles++;
}

void hly_programme_void(halay_trainer_t *trainer)
{
    const struct hly_replay *replay = &trainer->replay;
    struct hly_programme *programme = replay->programme;
    uint64_t begin = replay->first_void - replay->first_void % programme->ngroups;
    if (begin) { /* else the tape goes on from where the replay began */
        tape_cut(trainer, 0);
        trainer->impure = 0;
    }
    for (uint64_t s = begin; s < replay->results; s++) {
        const struct hly_group *group = &programme->groups[s % programme->ngroups];
        if (s >= replay->first_void && !(replay->good_behind >> (s - replay->first_void) & 1))
            continue;
        for (uint32_t i = group->first; i < group->first + group->count; i++)
            tape_add(trainer, &programme->script.items[i].says, programme->script.items[i].run);
        trainer->impure = 1;
    }
    trainer->switching = replay->first_void == begin && !replay->good_behind;
    if (trainer->switching)
        trainer->avoid = programme;
    programme->score = programme->score > VOID_COSTS ? programme->score - VOID_COSTS : 0;
    trainer->counters.voids++;
    if (++trainer->failures >= 2) {
        int shift = trainer->failures - 2;
        trainer->skip = 1 << (shift < BACKOFF_MAX ? shift : BACKOFF_MAX);
    }
}
