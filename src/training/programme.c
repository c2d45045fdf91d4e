/* SPDX-License-Identifier: Apache-2.0 */
/*
 * programme.c - learns what a step is, from what rounds complete, and keeps eight of them;
 * docs/decisions/0019. Everything here follows from records and results that are equal on all
 * ranks. So all learn the same programmes and begin them at the same place.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "tune.h"

#define SCORE_MAX     4
#define VOID_COSTS    2
#define BACKOFF_MAX   1
#define PERIODIC_PAYS 256 /* tensors of a replay that make up for a void and for learning anew */

/* ------------------------------------------------------------------ scripts */

struct hlt_item *hlt_script_find(const struct hlt_script *script, uint64_t name)
{
    if (!script->count)
        return NULL;
    for (size_t at = name & script->mask; script->index[at]; at = (at + 1) & script->mask) {
        struct hlt_item *item = &script->items[script->index[at] - 1];
        if (item->says.name == name)
            return item;
    }
    return NULL;
}

static void script_index(struct hlt_script *script, size_t item)
{
    size_t at = script->items[item].says.name & script->mask;
    while (script->index[at])
        at = (at + 1) & script->mask;
    script->index[at] = (uint32_t)item + 1;
}

static int script_reserve(struct hlt_script *script, size_t room)
{
    size_t size = 64;
    if (room <= script->room)
        return 0;
    while (size < 2 * room)
        size *= 2;
    struct hlt_item *items = realloc(script->items, room * sizeof(*items));
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

static int script_add(struct hlt_script *script, const struct hlt_item *item)
{
    assert(!hlt_script_find(script, item->says.name));
    if (script->count == script->room &&
        script_reserve(script, script->room ? 2 * script->room : 64))
        return HALAY_ENOMEM;
    script->items[script->count] = *item;
    script_index(script, script->count++);
    return 0;
}

static void script_clear(struct hlt_script *script)
{
    if (script->count)
        memset(script->index, 0, (script->mask + 1) * sizeof(*script->index));
    script->count = 0;
}

static void script_free(struct hlt_script *script)
{
    free(script->items);
    free(script->index);
}

/* ------------------------------------------------------------------ series */

struct hlt_share *hlt_programme_share(struct hlt_programme *programme, uint64_t series)
{
    struct hlt_share *share = programme->shares, *end = share + programme->nshares;
    while (share < end && share->series != series)
        share++;
    return share < end ? share : NULL;
}

/*
 * Fills the shares; base is the least number until a replay begins. Returns 0 if numbers are
 * missing in between.
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

/* Makes the tape's item of a programme's, as it was in this cycle of the last replay. */
static struct hlt_item item_run(struct hlt_programme *programme, const struct hlt_item *item,
                                uint64_t cycle)
{
    const struct hlt_share *share = hlt_programme_share(programme, item->series);
    uint64_t number = share ? share->base + cycle * share->count + item->number : 0;
    return item_from(&item->says, item->run, item->series, number);
}

/* The tape's item as it stands in a programme of which it is the item with this number. */
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

/* ------------------------------------------------------------------ groups */

/* Sorts items [from, to), which are one run, into groups. The script has room for all. */
struct sorter {
    struct hlt_programme *programme;
    const struct hlt_item *items;
    char *taken;
    size_t from, to, most; /* most: bytes of a group */
};

static void sorter_take(struct sorter *sorter, struct hlt_group *group, size_t i)
{
    const int rc = script_add(&sorter->programme->script, &sorter->items[i]);
    assert(!rc);
    (void)rc;
    sorter->taken[i] = 1;
    group->count++;
}

/*
 * Adds what follows and fits. It stops at the first that does not fit: what is needed first goes
 * first.
 */
static void fused_fill(struct sorter *sorter, struct hlt_group *group)
{
    const struct hlt_announcement *first = &sorter->items[sorter->from].says;
    size_t left = sorter->most / halay_type_bytes(hlt_announcement_type(first));
    for (size_t i = sorter->from; i < sorter->to; i++) {
        const struct hlt_item *item = &sorter->items[i];
        if (sorter->taken[i] || !hlt_fuse_alike(first, &item->says))
            continue;
        if (item->says.count > left)
            return;
        left -= item->says.count;
        sorter_take(sorter, group, i);
    }
}

static void voted_fill(const halay_trainer_t *trainer, struct sorter *sorter,
                       struct hlt_group *group)
{
    for (size_t i = sorter->from; i < sorter->to && group->count < HLT_VOTE_ITEMS; i++) {
        const struct hlt_item *item = &sorter->items[i];
        if (sorter->taken[i] || hlt_fuse_takes(trainer, &item->says, sorter->most))
            continue;
        group->rows |= hlt_announcement_kind(&item->says) == HLT_KIND_ALLGATHER;
        sorter_take(sorter, group, i);
    }
}

/* Sorts one run. Groups stand in the order of their first items. */
static void run_sort(const halay_trainer_t *trainer, struct sorter *sorter)
{
    for (; sorter->from < sorter->to; sorter->from++) {
        struct hlt_programme *programme = sorter->programme;
        if (sorter->taken[sorter->from])
            continue;
        struct hlt_group *group = &programme->groups[programme->ngroups++];
        *group = (struct hlt_group){.first = (uint32_t)programme->script.count};
        group->fused = hlt_fuse_takes(trainer, &sorter->items[sorter->from].says, sorter->most);
        if (group->fused)
            fused_fill(sorter, group);
        else
            voted_fill(trainer, sorter, group);
        assert(group->count);
        for (size_t i = group->first; i < programme->script.count; i++)
            programme->script.items[i].group = (uint32_t)(programme->ngroups - 1);
    }
}

/* Fills the script with these items, which have their places, group by group. taken: zeros. */
static void groups_fill(const halay_trainer_t *trainer, struct hlt_programme *programme,
                        const struct hlt_item *items, char *taken, size_t count, size_t most)
{
    struct sorter sorter = {.programme = programme, .items = items, .taken = taken, .most = most};
    script_clear(&programme->script);
    programme->ngroups = 0;
    while (sorter.to < count) {
        while (sorter.to < count && items[sorter.to].run == items[sorter.from].run)
            sorter.to++;
        run_sort(trainer, &sorter);
    }
    assert(programme->script.count == count);
}

int hlt_programme_group(const halay_trainer_t *trainer, struct hlt_programme *programme,
                        size_t most)
{
    const size_t count = programme->script.count;
    struct hlt_item *items = malloc(count * sizeof(*items));
    char *taken = calloc(count, 1);
    if (items && taken) {
        for (size_t i = 0; i < count; i++)
            items[programme->script.items[i].place] = programme->script.items[i];
        groups_fill(trainer, programme, items, taken, count, most);
    }
    const int rc = items && taken ? 0 : HALAY_ENOMEM;
    free(items);
    free(taken);
    return rc;
}

/* Hashes all that must agree. name: the tensor's, or what stands for it. */
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
    script_free(&programme->script);
    free(programme->groups);
    free(programme);
}

void hlt_programmes_free(halay_trainer_t *trainer)
{
    for (int i = 0; i < HLT_PROGRAMMES; i++)
        programme_free(trainer->programmes[i]);
    script_free(&trainer->tape);
}

/* Makes a programme of the tape's items. HALAY_EAGAIN: these make none. */
static int programme_make(const halay_trainer_t *trainer, size_t from, size_t count,
                          struct hlt_programme **out)
{
    const struct hlt_item *tape = trainer->tape.items + from;
    struct hlt_programme *programme = calloc(1, sizeof(*programme));
    struct hlt_item *placed = malloc(count * sizeof(*placed));
    char *taken = calloc(count, 1);
    int rc = HALAY_ENOMEM;
    if (!programme || !placed || !taken || script_reserve(&programme->script, count) ||
        !(programme->groups = calloc(count, sizeof(*programme->groups))))
        goto fail;
    rc = shares_read(programme, tape, count) ? 0 : HALAY_EAGAIN;
    for (size_t i = 0; i < count && !rc; i++)
        placed[i] = item_placed(programme, &tape[i], i);
    if (!rc)
        groups_fill(trainer, programme, placed, taken, count, trainer->buffer_bytes);
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
 * Puts it in place of the same set in another order, else into a free place. Else the programme
 * goes whose last use is the longest ago.
 */
static void programme_keep(halay_trainer_t *trainer, struct hlt_programme *programme)
{
    struct hlt_programme **place = NULL;
    programme->score = 1;
    programme->used = ++trainer->uses;
    trainer->counters.programmes++;
    for (int i = 0; i < HLT_PROGRAMMES; i++) {
        struct hlt_programme **at = &trainer->programmes[i];
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
    if (*place && (*place)->set == programme->set)
        hlt_tune_keep(trainer, programme, *place);
    programme_free(*place);
    *place = programme;
}

static int shares_known(halay_trainer_t *trainer, const struct hlt_programme *programme)
{
    for (size_t s = 0; s < programme->nshares; s++)
        if (!hlt_series_find(trainer, programme->shares[s].series))
            return 0;
    return 1;
}

/*
 * The programme whose first run has this tensor: of several the one with the best score, then the
 * latest. One without a score has to be learnt anew.
 */
static struct hlt_programme *programme_best(halay_trainer_t *trainer,
                                            const struct hlt_announcement *says, int boundary)
{
    struct hlt_programme *best = NULL;
    for (int i = 0; i < HLT_PROGRAMMES; i++) {
        struct hlt_programme *programme = trainer->programmes[i];
        if (!programme || !programme->score ||
            (!boundary && (programme->begun || programme == trainer->avoid)))
            continue;
        const struct hlt_item *item = hlt_script_find(&programme->script, says->name);
        if (!item || !shares_known(trainer, programme) ||
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
static void tape_cut(halay_trainer_t *trainer, size_t kept)
{
    struct hlt_script *tape = &trainer->tape;
    size_t from = tape->count - kept;
    hlt_period_forget(trainer);
    trainer->turn = 0;
    script_clear(tape);
    for (size_t i = 0; i < kept; i++) {
        tape->items[i] = tape->items[from + i];
        script_index(tape, tape->count++);
    }
    for (int i = 0; i < HLT_PROGRAMMES; i++) {
        struct hlt_programme *programme = trainer->programmes[i];
        if (!programme)
            continue;
        programme->begun = 0;
        for (size_t t = 0; t < kept && !programme->begun; t++)
            programme->begun =
                hlt_script_find(&programme->script, tape->items[t].says.name) != NULL;
    }
}

static void tape_add(halay_trainer_t *trainer, const struct hlt_item *item)
{
    uint64_t name = item->says.name;
    if (trainer->tape.count == HLT_TAPE_ITEMS || hlt_script_find(&trainer->tape, name))
        tape_cut(trainer, 0);
    if (script_add(&trainer->tape, item)) {
        hlt_trainer_break(trainer, HALAY_ENOMEM, "no memory for what the ranks have agreed on");
        return;
    }
    for (int i = 0; i < HLT_PROGRAMMES; i++)
        if (trainer->programmes[i] && hlt_script_find(&trainer->programmes[i]->script, name))
            trainer->programmes[i]->begun = 1;
    trainer->avoid = NULL;
}

/* Counts the items of this run at the tape's end. */
static size_t tape_run(const halay_trainer_t *trainer, uint64_t run)
{
    const struct hlt_script *tape = &trainer->tape;
    size_t count = 0;
    while (count < tape->count && tape->items[tape->count - 1 - count].run == run)
        count++;
    return count;
}

/* Makes a programme of the tape's items, and keeps it. NULL: they make none. */
static struct hlt_programme *programme_learn(halay_trainer_t *trainer, size_t from, size_t count,
                                             int periodic)
{
    struct hlt_programme *programme = NULL;
    int rc = programme_make(trainer, from, count, &programme);
    if (rc == HALAY_ENOMEM)
        hlt_trainer_break(trainer, rc, "no memory for a programme");
    if (rc)
        return NULL;
    programme->periodic = periodic;
    programme_keep(trainer, programme);
    return programme;
}

/*
 * A name is here again, so a cycle is over. It began with the run in which the name stood first.
 * The next one begins with the run of now, of which `next` items are on the tape already. Half a
 * cycle teaches nothing.
 */
static struct hlt_programme *cycle_end(halay_trainer_t *trainer, const struct hlt_item *again,
                                       size_t next)
{
    const struct hlt_script *tape = &trainer->tape;
    size_t from = (size_t)(again - tape->items), to = tape->count - next;
    struct hlt_programme *programme = NULL;
    if (!trainer->impure && from < to) {
        while (from && tape->items[from - 1].run == tape->items[from].run)
            from--;
        programme = programme_learn(trainer, from, to - from, 0);
    }
    trainer->impure = 0;
    tape_cut(trainer, next);
    trainer->turn = next && programme ? programme->script.count : 0;
    return programme;
}

/* The item goes on the tape. The end of a period is the end of a cycle. */
static void tape_goes_on(halay_trainer_t *trainer, const struct hlt_item *item, size_t before)
{
    tape_add(trainer, item);
    if (!item->series) {
        hlt_period_forget(trainer); /* a new name: no period goes across it */
        return;
    }
    size_t count =
        hlt_period_add(trainer, says_hash(item->series, &item->says), !before, trainer->tape.count);
    if (count && programme_learn(trainer, trainer->tape.count - count, count, 1)) {
        hlt_programme_forget(trainer);
        trainer->skip = 0;
    }
}

/* The step goes on behind a whole cycle, so the programme was that of another step. */
static void programme_short(halay_trainer_t *trainer)
{
    struct hlt_programme *programme = trainer->avoid;
    trainer->switching = 0;
    if (!programme)
        return;
    for (size_t i = 0; i < programme->script.count; i++) {
        struct hlt_item item = item_run(programme, &programme->script.items[i], 0);
        tape_add(trainer, &item);
    }
    trainer->impure = 1;
    programme->score = 0;
}

/* The announcement as a programme would have it that begins here. */
static struct hlt_announcement beginning(halay_trainer_t *trainer, const struct hlt_item *item)
{
    struct hlt_announcement says = item->says;
    if (item->series)
        says.name = hlt_series_name(item->series,
                                    ~(item->number - hlt_series_find(trainer, item->series)->next));
    return says;
}

/*
 * Where one round ends and the next begins follows from time, so that must decide nothing here. A
 * programme begins only with the first tensor of a run. The rest of a run that a replay has begun
 * is no beginning.
 */
struct hlt_programme *hlt_programme_seen(halay_trainer_t *trainer, const struct hlt_record *record,
                                         const struct hlt_tensor *tensor)
{
    struct hlt_programme *best = NULL, *made = NULL;
    int known = tensor->series && hlt_series_get(trainer, tensor->series, tensor->number);
    struct hlt_item item =
        item_from(&record->first, record->run, known ? tensor->series : 0, tensor->number);
    item.says.wait = record->marks & HLT_IN_PLACE;
    if ((record->marks & HLT_PART_REPLAYED) && trainer->switching)
        programme_short(trainer);
    const struct hlt_item *again = hlt_script_find(&trainer->tape, item.says.name);
    size_t before = tape_run(trainer, record->run);
    if (record->marks & HLT_PART_REPLAYED) {
        hlt_period_forget(trainer);
        if (!again)
            tape_add(trainer, &item);
        return NULL;
    }
    if (again) {
        trainer->switching = 0;
        made = cycle_end(trainer, again, before);
    }
    struct hlt_announcement says = beginning(trainer, &item);
    int over = again || (item.series && trainer->turn && trainer->tape.count == trainer->turn);
    if (trainer->skip)
        trainer->skip -= again != NULL;
    else if (over ? !before : trainer->switching)
        best = made ? made : programme_best(trainer, &says, over);
    if (!best) {
        tape_goes_on(trainer, &item, before);
        return NULL;
    }
    if (!again && over)
        tape_cut(trainer, 0);
    best->used = ++trainer->uses;
    return best;
}

void hlt_programme_forget(halay_trainer_t *trainer)
{
    tape_cut(trainer, 0);
    trainer->impure = 0;
    trainer->switching = 1;
    trainer->avoid = NULL;
}

void hlt_programme_whole(halay_trainer_t *trainer)
{
    struct hlt_programme *programme = trainer->replay.programme;
    if (programme->score < SCORE_MAX)
        programme->score++;
    trainer->failures = 0;
    trainer->counters.cycles++;
}

/* The shares become those of the last whole cycle. */
static void shares_end(halay_trainer_t *trainer, struct hlt_programme *programme, uint64_t cycles)
{
    for (size_t s = 0; s < programme->nshares && cycles; s++) {
        struct hlt_share *share = &programme->shares[s];
        share->base += (cycles - 1) * share->count;
        hlt_series_done(trainer, share->series, share->base + share->count - 1);
    }
}

static void tape_run_again(halay_trainer_t *trainer, struct hlt_programme *programme,
                           const struct hlt_group *group, uint64_t cycle)
{
    for (uint32_t i = group->first; i < group->first + group->count; i++) {
        struct hlt_item item = item_run(programme, &programme->script.items[i], cycle);
        if (item.series)
            hlt_series_done(trainer, item.series, item.number);
        tape_add(trainer, &item);
    }
}

/* A period that is only a part of the step ends in a void each time, which is worse than none. */
static void periodic_void(halay_trainer_t *trainer, struct hlt_programme *programme,
                          uint64_t cycles)
{
    int pays = cycles * programme->script.count >= PERIODIC_PAYS;
    if (!programme->periodic)
        return;
    hlt_period_doubt(trainer, pays ? -1 : 1);
    programme->score = pays ? programme->score : 0;
}

void hlt_programme_void(halay_trainer_t *trainer)
{
    const struct hlt_replay *replay = &trainer->replay;
    struct hlt_programme *programme = replay->programme;
    const uint64_t cycles = hlt_replay_cycle(replay, replay->first_void);
    uint64_t begin = replay->base + (cycles - replay->cycles) * programme->ngroups;
    if (cycles) { /* else the tape goes on from where the replay began */
        tape_cut(trainer, 0);
        trainer->impure = 0;
    }
    for (uint64_t s = begin; s < replay->results; s++) {
        const struct hlt_group *group = hlt_replay_group(replay, s);
        if (s >= replay->first_void && !(replay->good_behind >> (s - replay->first_void) & 1))
            continue;
        tape_run_again(trainer, programme, group, hlt_replay_cycle(replay, s));
        trainer->impure = 1;
    }
    shares_end(trainer, programme, cycles);
    hlt_period_forget(trainer);
    trainer->switching = replay->first_void == begin && !replay->good_behind;
    if (trainer->switching)
        trainer->avoid = programme;
    programme->score = programme->score > VOID_COSTS ? programme->score - VOID_COSTS : 0;
    periodic_void(trainer, programme, cycles);
    hlt_tune_void(trainer, programme);
    trainer->counters.voids++;
    if (++trainer->failures >= 2) {
        int shift = trainer->failures - 2;
        trainer->skip = 1 << (shift < BACKOFF_MAX ? shift : BACKOFF_MAX);
    }
}
