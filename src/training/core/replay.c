/* SPDX-License-Identifier: Apache-2.0 */
/*
 * replay.c - runs a programme's groups in its order, without asking anyone;
 * docs/decisions/training.md#0019.
 *
 * One rule keeps ranks together. A rank launches group s only if s is less than a window ahead of
 * the results so far, and none of these was void. So no rank can have launched more than a window
 * of groups after the first void one. Once ranks know of the void, all launch exactly the groups up
 * to there: good ones if they have the tensors, void ones if not. Then all have made the same
 * calls, and rounds begin.
 */
#include <assert.h>
#include <string.h>

#include "replay.h"
#include "tune.h"

#define NEVER       UINT64_MAX
#define GRACE_NS    UINT64_C(200000)   /* other threads may still submit while one waits */
#define FOREIGN_NS  UINT64_C(50000000) /* a tensor without a place waits so long */
#define OWN_OF      4                  /* deadline / this: how long a tensor waits alone, */
#define OWN_MOST_NS 7500000000ull      /* at most */

/*
 * How many groups may be launched ahead of the results. A name may be under way only once, so never
 * more than a cycle.
 */
static uint64_t window(const struct hlt_replay *replay)
{
    return replay->programme->ngroups < HLT_BUFFERS ? replay->programme->ngroups : HLT_BUFFERS;
}

/* ------------------------------------------------------------------ the pool */

/* The tensor's place in the programme; NULL: none. A tensor of a series has one in every cycle. */
static struct hlt_item *place_of(struct hlt_programme *programme, const struct hlt_tensor *tensor)
{
    uint64_t name = tensor->says.name;
    const struct hlt_share *share = hlt_programme_share(programme, tensor->series);
    if (share && tensor->number >= share->base)
        name = hlt_series_name(share->series, ~((tensor->number - share->base) % share->count));
    struct hlt_item *item = hlt_script_find(&programme->script, name);
    if (!item || !hlt_announcement_alike(&item->says, &tensor->says))
        return NULL;
    /* If no rank had rows when the programme was learnt, ranks without rows take the memory for the
     * host's. */
    int unknown = hlt_announcement_memory(&item->says) == HLT_MEMORY_ANY;
    return unknown && hlt_agreed_memory(&tensor->says) ? NULL : item;
}

static void pool_place(struct hlt_programme *programme, struct hlt_item *item,
                       struct hlt_tensor *tensor)
{
    assert(!item->tensor);
    item->tensor = tensor;
    tensor->in_place = (item->says.wait & HLT_IN_PLACE) != 0;
    tensor->known = item->says.name;
    tensor->memory = hlt_agreed_memory(&item->says);
    programme->groups[item->group].missing--;
}

static void pool_add(struct hlt_core *core, struct hlt_tensor *tensor)
{
    struct hlt_programme *programme = core->replay.programme;
    struct hlt_item *item = place_of(programme, tensor);
    if (item && item->series && tensor->number < item->due)
        item = NULL; /* it was in a void group, and its place waits for the next number */
    tensor->item = item;
    core->replay.foreign += !item;
    if (item && (!item->series || tensor->number == item->due))
        pool_place(programme, item, tensor);
    else if (item)
        core->replay.early++;
    hlt_tensor_list_insert(&core->pool, tensor);
}

/* The item now waits for its next number of the series, which may be in the pool already. */
static void pool_advance(struct hlt_core *core, struct hlt_item *item)
{
    struct hlt_programme *programme = core->replay.programme;
    struct hlt_tensor *tensor = core->replay.early ? core->pool.head : NULL;
    item->due += hlt_programme_share(programme, item->series)->count;
    while (tensor && (tensor->item != item || tensor->number != item->due))
        tensor = tensor->next;
    if (tensor) {
        pool_place(programme, item, tensor);
        core->replay.early--;
    }
}

static void pool_take(struct hlt_core *core, struct hlt_group *group, struct hlt_list *tensors)
{
    struct hlt_item *items = core->replay.programme->script.items + group->first;
    for (uint32_t i = 0; i < group->count; i++) {
        struct hlt_tensor *tensor = items[i].tensor;
        hlt_tensor_list_remove(&core->pool, tensor);
        tensor->item = NULL;
        items[i].tensor = NULL;
        hlt_tensor_list_push(tensors, tensor);
    }
    group->missing = group->count;
    for (uint32_t i = 0; i < group->count; i++)
        if (items[i].series)
            pool_advance(core, &items[i]);
}

/* Sets the series to go on where rounds, or the replay before, have stopped. */
static void shares_begin(struct hlt_core *core, struct hlt_programme *programme)
{
    for (size_t s = 0; s < programme->nshares; s++) {
        struct hlt_share *share = &programme->shares[s];
        share->base = hlt_series_find(core, share->series)->next;
        for (size_t i = 0; i < programme->script.count; i++)
            if (programme->script.items[i].series == share->series)
                programme->script.items[i].due = share->base + programme->script.items[i].number;
    }
}

static void pool_begin(struct hlt_programme *programme)
{
    for (size_t i = 0; i < programme->ngroups; i++)
        programme->groups[i].missing = programme->groups[i].count;
    for (size_t i = 0; i < programme->script.count; i++)
        programme->script.items[i].tensor = NULL;
}

void hlt_replay_begin(struct hlt_core *core, struct hlt_programme *programme)
{
    assert(!core->replay.programme && !core->pool.head);
    core->replay = (struct hlt_replay){.programme = programme, .first_void = NEVER};
    pool_begin(programme);
    shares_begin(core, programme);
}

/* The programme has other groups from this cycle on. No group is under way. */
static void regrouped(struct hlt_core *core, uint64_t cycle)
{
    struct hlt_replay *replay = &core->replay;
    struct hlt_list pool = core->pool;
    struct hlt_tensor *tensor;
    assert(replay->issued == replay->results);
    replay->cycles = cycle;
    replay->base = replay->issued;
    core->pool = (struct hlt_list){NULL, NULL};
    replay->foreign = replay->early = 0;
    pool_begin(replay->programme);
    while ((tensor = hlt_tensor_list_pop(&pool)) != NULL)
        pool_add(core, tensor);
}

static void replay_end(struct hlt_core *core)
{
    struct hlt_tensor *tensor;
    hlt_programme_void(core);
    while ((tensor = hlt_tensor_list_pop(&core->pool)) != NULL) {
        tensor->item = NULL;
        hlt_tensor_list_insert(&core->pending, tensor); /* others may have come later */
    }
    memset(&core->replay, 0, sizeof(core->replay));
}

/* ------------------------------------------------------------------ void */

static void look_at(struct hlt_replay *replay, uint64_t when_ns)
{
    if (!replay->check_ns || when_ns < replay->check_ns)
        replay->check_ns = when_ns;
}

static int is_time(struct hlt_core *core, uint64_t when_ns)
{
    if (when_ns <= core->now_ns)
        return 1;
    look_at(&core->replay, when_ns);
    return 0;
}

/* The oldest tensor of the pool that has no place in the programme. There must be one. */
static const struct hlt_tensor *pool_foreign(const struct hlt_core *core)
{
    const struct hlt_tensor *tensor = core->pool.head;
    while (tensor->item)
        tensor = tensor->next;
    return tensor;
}

/* How long a tensor may wait for which no caller waits. */
static uint64_t own_ns(const struct hlt_core *core)
{
    const uint64_t share_ns = core->deadline_ns / OWN_OF;
    return share_ns < OWN_MOST_NS ? share_ns : OWN_MOST_NS;
}

int hlt_replay_must_void(struct hlt_core *core, const struct hlt_seen *seen)
{
    struct hlt_replay *replay = &core->replay;
    const struct hlt_tensor *first = core->pool.head, *last = core->pool.tail;
    replay->submissions_before_group = 0;
    if (replay->issued < replay->called)
        return 1;
    if (!first)
        return 0;
    if (seen->over || is_time(core, first->submit_ns + own_ns(core)))
        return 1;
    if (replay->foreign && is_time(core, pool_foreign(core)->submit_ns + FOREIGN_NS))
        return 1;
    look_at(replay, core->now_ns + FOREIGN_NS);
    if ((!seen->behind && seen->expecting && is_time(core, last->submit_ns + FOREIGN_NS)) ||
        (!seen->behind && seen->wanted && is_time(core, last->submit_ns + GRACE_NS)))
        return 1;
    replay->submissions_before_group = hlt_replay_group(replay, replay->issued)->missing - 1;
    return 0;
}

/* ------------------------------------------------------------------ groups */

enum hlt_next hlt_replay_next(struct hlt_core *core, int empty, struct hlt_launch *launch)
{
    struct hlt_replay *replay = &core->replay;
    struct hlt_tensor *tensor;
    if (!replay->programme || core->broken || core->leaving)
        return HLT_NEXT_NONE;
    while ((tensor = hlt_tensor_list_pop(&core->pending)) != NULL)
        pool_add(core, tensor);

    uint64_t known = replay->first_void < replay->results ? replay->first_void : replay->results;
    if (replay->issued >= known + window(replay))
        return HLT_NEXT_NONE;
    *launch = (struct hlt_launch){.begins = hlt_replay_is_first(replay, replay->issued)};
    const uint64_t cycle = hlt_replay_cycle(replay, replay->issued);
    enum hlt_turn turn;
    do {
        launch->group = hlt_replay_group(replay, replay->issued);
        if (launch->group->missing && !replay->flushing && !empty)
            return HLT_NEXT_MISSING;
        turn = launch->begins && core->autotune.steps ? hlt_tune_next(core) : HLT_TURN_BEGIN;
        if (turn == HLT_TURN_CHANGED)
            regrouped(core, cycle);
    } while (turn == HLT_TURN_CHANGED);
    replay->tuning = turn == HLT_TURN_REDUCE;
    if (turn != HLT_TURN_BEGIN)
        return replay->tuning ? HLT_NEXT_REDUCE : HLT_NEXT_NONE;
    if (launch->group->missing)
        replay->flushing = 1;
    else
        pool_take(core, launch->group, &launch->tensors);
    if (launch->begins && core->autotune.steps)
        hlt_tune_cycle(core);
    launch->sequence = replay->issued++;
    return HLT_NEXT_GROUP;
}

/* Puts the tensors of a void group back into the pool; the call has not changed them. */
static void group_back(struct hlt_core *core, struct hlt_list *tensors)
{
    struct hlt_tensor *tensor;
    while ((tensor = hlt_tensor_list_pop(tensors)) != NULL)
        pool_add(core, tensor);
}

void hlt_replay_result(struct hlt_core *core, struct hlt_list *tensors, int empty)
{
    struct hlt_replay *replay = &core->replay;
    for (const struct hlt_tensor *t = tensors->head; t && !empty; t = t->next)
        if (t->says.wait >= core->learnt.replayed_until)
            core->learnt.replayed_until = t->says.wait + 1;
    if (empty) {
        group_back(core, tensors);
        if (replay->first_void == NEVER)
            replay->first_void = replay->results;
        replay->flushing = 1;
    } else if (replay->first_void != NEVER) {
        replay->good_after_void |= UINT64_C(1) << (replay->results - replay->first_void);
    } else if (hlt_replay_is_first(replay, replay->results + 1)) {
        hlt_programme_whole(core);
    }
    replay->results++;
}

void hlt_replay_tuned(struct hlt_core *core)
{
    const uint64_t cycle = hlt_replay_cycle(&core->replay, core->replay.issued);
    core->replay.tuning = 0;
    hlt_tune_agreed(core);
    regrouped(core, cycle);
}

/* When the oldest launched group is overdue; 0: none is under way. */
static uint64_t alarm_due_ns(const struct hlt_core *core, uint64_t oldest_ns)
{
    if (oldest_ns && oldest_ns < core->replay.alarm_ns)
        oldest_ns = core->replay.alarm_ns;
    return oldest_ns ? oldest_ns + core->alarm_after_ns : 0;
}

int hlt_replay_alarm(const struct hlt_core *core, uint64_t oldest_ns)
{
    uint64_t due_ns = alarm_due_ns(core, oldest_ns);
    return due_ns && due_ns <= core->now_ns;
}

int hlt_replay_step(struct hlt_core *core, uint64_t oldest_ns)
{
    struct hlt_replay *replay = &core->replay;
    uint64_t due_ns = replay->programme ? alarm_due_ns(core, oldest_ns) : 0;
    if (due_ns && !core->broken && !core->leaving)
        look_at(replay, due_ns);
    if (!replay->programme || replay->first_void == NEVER || core->broken ||
        replay->results < replay->first_void + window(replay))
        return 0;
    assert(replay->issued == replay->results);
    replay_end(core);
    return 1;
}
