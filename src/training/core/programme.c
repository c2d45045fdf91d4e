/* SPDX-License-Identifier: Apache-2.0 */
/*
 * programme.c - learns the order of a step's tensors from what rounds complete, and keeps eight
 * such programmes; docs/decisions/training.md#0019. Everything here follows from records and
 * results that are equal on all ranks. So all learn the same programmes and begin them at the same
 * place.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "core.h"
#include "tune.h"

#define SCORE_MAX     4
#define VOID_COSTS    2
#define BACKOFF_MAX   1
#define PERIODIC_PAYS 256 /* tensors of a replay that save what a void and learning cost */

/* ------------------------------------------------------------------ series */

/*
 * Fills the shares. Until a replay begins, base is the least number. Returns 0 if the numbers of a
 * series are not consecutive.
 */
static int shares_read(struct hlt_programme *programme, const struct hlt_item *items, size_t count)
{
    uint64_t most[HLT_PROGRAMME_SERIES] = {0};
    for (size_t i = 0; i < count; i++) {
        struct hlt_share *share = hlt_programme_share(programme, items[i].series);
        uint64_t number = items[i].number;
        if (!items[i].series)
            continue;
        if (!share) {
            if (programme->nshares == HLT_PROGRAMME_SERIES)
                return 0;
            share = &programme->shares[programme->nshares++];
            *share = (struct hlt_share){items[i].series, number, 0};
            most[share - programme->shares] = number;
        }
        uint64_t *high = &most[share - programme->shares];
        share->base = number < share->base ? number : share->base;
        *high = number > *high ? number : *high;
        share->count++;
    }
    for (size_t s = 0; s < programme->nshares; s++)
        if (most[s] - programme->shares[s].base != programme->shares[s].count - 1)
            return 0;
    return 1;
}

/* Makes an item as it stands on the tape. */
static struct hlt_item item_from(const struct hlt_announcement *says, uint64_t run, uint64_t series,
                                 uint64_t number)
{
    struct hlt_item item = {.says = *says, .run = run, .series = series, .number = number};
    if (series)
        item.says.name = hlt_series_name(series, number);
    return item;
}

/* Makes a tape item from a programme's item, as it was in this cycle of the last replay. */
static struct hlt_item item_run(struct hlt_programme *programme, const struct hlt_item *item,
                                uint64_t cycle)
{
    const struct hlt_share *share = hlt_programme_share(programme, item->series);
    uint64_t number = share ? share->base + cycle * share->count + item->number : 0;
    return item_from(&item->says, item->run, item->series, number);
}

/* Makes a programme's item, at this place, from a tape item. */
static struct hlt_item item_placed(struct hlt_programme *programme, const struct hlt_item *item,
                                   size_t place)
{
    struct hlt_item placed = *item;
    placed.place = (uint32_t)place;
    if (item->series) {
        placed.number -= hlt_programme_share(programme, item->series)->base;
        placed.says.name = hlt_series_name(item->series, ~placed.number);
    }
    return placed;
}

/* Hashes all that ranks must agree on. name: the tensor's, or its series. */
static uint64_t says_hash(uint64_t name, const struct hlt_announcement *says)
{
    uint64_t words[10] = {name,           says->what,      says->count,
                          says->prescale, says->postscale, says->group};
    static_assert(sizeof(words) == 6 * sizeof(words[0]) + sizeof(says->shape), "no word is left");
    memcpy(&words[6], says->shape, sizeof(says->shape));
    return hlt_hash_words(0, words, sizeof(words) / sizeof(words[0]));
}

/* ------------------------------------------------------------------ programmes */

static void programme_free(struct hlt_programme *programme)
{
    if (!programme)
        return;
    hlt_tune_free(programme);
    hlt_script_free(&programme->script);
    free(programme->groups);
    free(programme);
}

void hlt_programmes_free(struct hlt_core *core)
{
    for (int i = 0; i < HLT_PROGRAMMES; i++)
        programme_free(core->learnt.programmes[i]);
    hlt_script_free(&core->learnt.tape);
}

/* Makes a programme of these items of the tape. HALAY_EAGAIN: they are not a whole cycle. */
static int programme_make(const struct hlt_core *core, size_t from, size_t count,
                          struct hlt_programme **out)
{
    const struct hlt_item *tape = core->learnt.tape.items + from;
    struct hlt_programme *programme = calloc(1, sizeof(*programme));
    struct hlt_item *placed = malloc(count * sizeof(*placed));
    char *taken = calloc(count, 1);
    int rc = HALAY_ENOMEM;
    if (!programme || !placed || !taken || hlt_script_reserve(&programme->script, count) ||
        !(programme->groups = calloc(count, sizeof(*programme->groups))))
        goto fail;
    rc = shares_read(programme, tape, count) ? 0 : HALAY_EAGAIN;
    for (size_t i = 0; i < count && !rc; i++)
        placed[i] = item_placed(programme, &tape[i], i);
    if (!rc)
        hlt_programme_fill(core->nranks, programme, placed, taken, count, core->buffer_bytes);
    for (size_t i = 0; i < programme->script.count; i++) {
        const struct hlt_announcement *says = &programme->script.items[i].says;
        programme->set += says_hash(says->name, says);
    }

fail:
    free(placed);
    free(taken);
    if (rc)
        programme_free(programme);
    else
        *out = programme;
    return rc;
}

/*
 * Keeps the programme: in place of one with the same tensors in another order, else in a free
 * place, else in place of the least recently used one.
 */
static void programme_keep(struct hlt_core *core, struct hlt_programme *programme)
{
    struct hlt_programme **place = NULL;
    programme->score = 1;
    programme->used = ++core->learnt.uses;
    core->counters.programmes++;
    for (int i = 0; i < HLT_PROGRAMMES; i++) {
        struct hlt_programme **at = &core->learnt.programmes[i];
        if (*at && (*at)->set == programme->set) {
            programme->score += (*at)->score < SCORE_MAX ? (*at)->score : SCORE_MAX - 1;
            place = at;
            break;
        }
        if (!place || (*place && (!*at || (*at)->used < (*place)->used)))
            place = at;
    }
    if (core->learnt.avoid == *place)
        core->learnt.avoid = NULL;
    if (*place && (*place)->set == programme->set)
        hlt_tune_keep(core, programme, *place);
    programme_free(*place);
    *place = programme;
}

static int shares_known(struct hlt_core *core, const struct hlt_programme *programme)
{
    for (size_t s = 0; s < programme->nshares; s++)
        if (!hlt_series_find(core, programme->shares[s].series))
            return 0;
    return 1;
}

/*
 * Finds the programme whose first run has this tensor; of several the one with the best score, then
 * the most recently used. A programme with score 0 has to be learnt anew.
 */
static struct hlt_programme *programme_best(struct hlt_core *core,
                                            const struct hlt_announcement *says, int boundary)
{
    struct hlt_programme *best = NULL;
    for (int i = 0; i < HLT_PROGRAMMES; i++) {
        struct hlt_programme *programme = core->learnt.programmes[i];
        if (!programme || !programme->score ||
            (!boundary && (programme->begun || programme == core->learnt.avoid)))
            continue;
        const struct hlt_item *item = hlt_script_find(&programme->script, says->name);
        if (!item || !shares_known(core, programme) ||
            item->run != programme->script.items[0].run ||
            !hlt_announcement_alike(&item->says, says))
            continue;
        if (!best || programme->score > best->score ||
            (programme->score == best->score && programme->used > best->used))
            best = programme;
    }
    return best;
}

/* ------------------------------------------------------------------ the tape */

/* Keeps this many of the last items. */
static void tape_cut(struct hlt_core *core, size_t kept)
{
    struct hlt_script *tape = &core->learnt.tape;
    hlt_period_forget(core);
    core->learnt.turn = 0;
    hlt_script_cut(tape, kept);
    for (int i = 0; i < HLT_PROGRAMMES; i++) {
        struct hlt_programme *programme = core->learnt.programmes[i];
        if (!programme)
            continue;
        programme->begun = 0;
        for (size_t t = 0; t < kept && !programme->begun; t++)
            programme->begun =
                hlt_script_find(&programme->script, tape->items[t].says.name) != NULL;
    }
}

static void tape_add(struct hlt_core *core, const struct hlt_item *item)
{
    uint64_t name = item->says.name;
    if (core->learnt.tape.count == HLT_TAPE_ITEMS || hlt_script_find(&core->learnt.tape, name))
        tape_cut(core, 0);
    if (hlt_script_add(&core->learnt.tape, item)) {
        hlt_core_break(core, HALAY_ENOMEM, "no memory for what the ranks have agreed on");
        return;
    }
    for (int i = 0; i < HLT_PROGRAMMES; i++)
        if (core->learnt.programmes[i] &&
            hlt_script_find(&core->learnt.programmes[i]->script, name))
            core->learnt.programmes[i]->begun = 1;
    core->learnt.avoid = NULL;
}

/* Counts the items of this run at the tape's end. */
static size_t tape_run(const struct hlt_core *core, uint64_t run)
{
    const struct hlt_script *tape = &core->learnt.tape;
    size_t count = 0;
    while (count < tape->count && tape->items[tape->count - 1 - count].run == run)
        count++;
    return count;
}

/* Makes a programme of these items of the tape, and keeps it. NULL: they are not a whole cycle, or
 * no memory. */
static struct hlt_programme *programme_learn(struct hlt_core *core, size_t from, size_t count,
                                             int periodic)
{
    struct hlt_programme *programme = NULL;
    int rc = programme_make(core, from, count, &programme);
    if (rc == HALAY_ENOMEM)
        hlt_core_break(core, rc, "no memory for a programme");
    if (rc)
        return NULL;
    programme->periodic = periodic;
    programme_keep(core, programme);
    return programme;
}

/*
 * A name comes again, so a cycle is over. It began with the run in which the name came first. The
 * next cycle begins with the present run, of which `next` items are on the tape already. Learns
 * nothing from a part of a cycle.
 */
static struct hlt_programme *cycle_end(struct hlt_core *core, const struct hlt_item *again,
                                       size_t next)
{
    const struct hlt_script *tape = &core->learnt.tape;
    size_t from = (size_t)(again - tape->items), to = tape->count - next;
    struct hlt_programme *programme = NULL;
    if (!core->learnt.impure && from < to) {
        while (from && tape->items[from - 1].run == tape->items[from].run)
            from--;
        programme = programme_learn(core, from, to - from, 0);
    }
    core->learnt.impure = 0;
    tape_cut(core, next);
    core->learnt.turn = next && programme ? programme->script.count : 0;
    return programme;
}

/* Adds the item to the tape. The end of a period is the end of a cycle. */
static void tape_goes_on(struct hlt_core *core, const struct hlt_item *item, size_t before)
{
    tape_add(core, item);
    if (!item->series) {
        hlt_period_forget(core); /* a new name: a period cannot span it */
        return;
    }
    size_t count = hlt_period_add(core, says_hash(item->series, &item->says), !before,
                                  core->learnt.tape.count);
    if (count && programme_learn(core, core->learnt.tape.count - count, count, 1)) {
        hlt_programme_forget(core);
        core->learnt.skip = 0;
    }
}

/* The step goes on after a whole cycle of the replay, so the programme was that of another, shorter
 * step: forgets its score. */
static void programme_short(struct hlt_core *core)
{
    struct hlt_programme *programme = core->learnt.avoid;
    core->learnt.switching = 0;
    if (!programme)
        return;
    for (size_t i = 0; i < programme->script.count; i++) {
        struct hlt_item item = item_run(programme, &programme->script.items[i], 0);
        tape_add(core, &item);
    }
    core->learnt.impure = 1;
    programme->score = 0;
}

/* The announcement as it would be in a programme that begins with this item. */
static struct hlt_announcement beginning(struct hlt_core *core, const struct hlt_item *item)
{
    struct hlt_announcement says = item->says;
    if (item->series)
        says.name = hlt_series_name(item->series,
                                    ~(item->number - hlt_series_find(core, item->series)->next));
    return says;
}

/*
 * Timing decides where one round ends and the next begins, so no decision here may depend on that.
 * A programme begins only with the first tensor of a run. The rest of a run that a replay has begun
 * does not begin one.
 */
struct hlt_programme *hlt_programme_seen(struct hlt_core *core, const struct hlt_record *record,
                                         const struct hlt_tensor *tensor)
{
    struct hlt_programme *best = NULL, *made = NULL;
    int known = tensor->series && hlt_series_get(core, tensor->series, tensor->number);
    struct hlt_item item =
        item_from(&record->first, record->run, known ? tensor->series : 0, tensor->number);
    item.says.wait = record->marks & HLT_IN_PLACE;
    if ((record->marks & HLT_PART_REPLAYED) && core->learnt.switching)
        programme_short(core);
    const struct hlt_item *again = hlt_script_find(&core->learnt.tape, item.says.name);
    size_t before = tape_run(core, record->run);
    if (record->marks & HLT_PART_REPLAYED) {
        hlt_period_forget(core);
        if (!again)
            tape_add(core, &item);
        return NULL;
    }
    if (again) {
        core->learnt.switching = 0;
        made = cycle_end(core, again, before);
    }
    struct hlt_announcement says = beginning(core, &item);
    int over =
        again || (item.series && core->learnt.turn && core->learnt.tape.count == core->learnt.turn);
    if (core->learnt.skip)
        core->learnt.skip -= again != NULL;
    else if (over ? !before : core->learnt.switching)
        best = made ? made : programme_best(core, &says, over);
    if (!best) {
        tape_goes_on(core, &item, before);
        return NULL;
    }
    if (!again && over)
        tape_cut(core, 0);
    best->used = ++core->learnt.uses;
    return best;
}

void hlt_programme_forget(struct hlt_core *core)
{
    tape_cut(core, 0);
    core->learnt.impure = 0;
    core->learnt.switching = 1;
    core->learnt.avoid = NULL;
}

void hlt_programme_whole(struct hlt_core *core)
{
    struct hlt_programme *programme = core->replay.programme;
    if (programme->score < SCORE_MAX)
        programme->score++;
    core->learnt.failures = 0;
    core->counters.cycles++;
}

/* Sets the shares to those of the last whole cycle. */
static void shares_end(struct hlt_core *core, struct hlt_programme *programme, uint64_t cycles)
{
    for (size_t s = 0; s < programme->nshares && cycles; s++) {
        struct hlt_share *share = &programme->shares[s];
        share->base += (cycles - 1) * share->count;
        hlt_series_done(core, share->series, share->base + share->count - 1);
    }
}

static void tape_run_again(struct hlt_core *core, struct hlt_programme *programme,
                           const struct hlt_group *group, uint64_t cycle)
{
    for (uint32_t i = group->first; i < group->first + group->count; i++) {
        struct hlt_item item = item_run(programme, &programme->script.items[i], cycle);
        if (item.series)
            hlt_series_done(core, item.series, item.number);
        tape_add(core, &item);
    }
}

/* A period that is only a part of the step ends in a void each time, which is slower than rounds:
 * trusts periods less. */
static void periodic_void(struct hlt_core *core, struct hlt_programme *programme, uint64_t cycles)
{
    int pays = cycles * programme->script.count >= PERIODIC_PAYS;
    if (!programme->periodic)
        return;
    hlt_period_doubt(core, pays ? -1 : 1);
    programme->score = pays ? programme->score : 0;
}

void hlt_programme_void(struct hlt_core *core)
{
    const struct hlt_replay *replay = &core->replay;
    struct hlt_programme *programme = replay->programme;
    const uint64_t cycles = hlt_replay_cycle(replay, replay->first_void);
    uint64_t begin = replay->base + (cycles - replay->cycles) * programme->ngroups;
    if (cycles) { /* else the tape continues from before the replay */
        tape_cut(core, 0);
        core->learnt.impure = 0;
    }
    for (uint64_t s = begin; s < replay->results; s++) {
        const struct hlt_group *group = hlt_replay_group(replay, s);
        if (s >= replay->first_void && !(replay->good_after_void >> (s - replay->first_void) & 1))
            continue;
        tape_run_again(core, programme, group, hlt_replay_cycle(replay, s));
        core->learnt.impure = 1;
    }
    shares_end(core, programme, cycles);
    hlt_period_forget(core);
    core->learnt.switching = replay->first_void == begin && !replay->good_after_void;
    if (core->learnt.switching)
        core->learnt.avoid = programme;
    programme->score = programme->score > VOID_COSTS ? programme->score - VOID_COSTS : 0;
    periodic_void(core, programme, cycles);
    hlt_tune_void(core, programme);
    core->counters.voids++;
    if (++core->learnt.failures >= 2) {
        int shift = core->learnt.failures - 2;
        core->learnt.skip = 1 << (shift < BACKOFF_MAX ? shift : BACKOFF_MAX);
    }
}
