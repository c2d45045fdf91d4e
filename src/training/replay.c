/* SPDX-License-Identifier: Apache-2.0 */
/*
 * replay.c - runs a programme's groups in its order, without asking anyone; docs/decisions/0019.
 *
 * The rule that keeps ranks together: group s goes out only if s is less than a window ahead of
 * the results so far, of which none was void. So no rank can have gone further than a window behind
 * the first void one. Once they know of it, all ranks send out exactly up to there: good where they
 * can, void else. Then all have made the same calls, and rounds begin.
 */
#include <assert.h>
#include <string.h>

#include "tune.h"

#define NEVER       UINT64_MAX
#define GRACE_NS    UINT64_C(200000)   /* other threads may still submit while one waits */
#define FOREIGN_NS  UINT64_C(50000000) /* so long a tensor without a place waits */
#define ALARM_OF    16                 /* deadline / this: a group is out for long */
#define OWN_OF      4                  /* deadline / this: a tensor waits, and no caller for it */
#define OWN_MOST_NS 7500000000ull      /* for so long at most */

/*
 * How many groups may be ahead of the results. A name is out once at a time, so never more than a
 * cycle.
 */
static uint64_t window(const struct hlt_replay *replay)
{
    return replay->programme->ngroups < HLT_BUFFERS ? replay->programme->ngroups : HLT_BUFFERS;
}

struct hlt_group *hlt_replay_group(const struct hlt_replay *replay, uint64_t sequence)
{
    return &replay->programme->groups[(sequence - replay->base) % replay->programme->ngroups];
}

int hlt_replay_is_first(const struct hlt_replay *replay, uint64_t sequence)
{
    return (sequence - replay->base) % replay->programme->ngroups == 0;
}

uint64_t hlt_replay_cycle(const struct hlt_replay *replay, uint64_t sequence)
{
    return replay->cycles + (sequence - replay->base) / replay->programme->ngroups;
}

/* ------------------------------------------------------------------ the pool */

/* The tensor's place in the programme; NULL: none. A series has one in every cycle. */
static struct hlt_item *place_of(struct hlt_programme *programme, const struct hlt_tensor *tensor)
{
    uint64_t name = tensor->says.name;
    const struct hlt_share *share = hlt_programme_share(programme, tensor->series);
    if (share && tensor->number >= share->base)
        name = hlt_series_name(share->series, ~((tensor->number - share->base) % share->count));
    struct hlt_item *item = hlt_script_find(&programme->script, name);
    if (!item || !hlt_announcement_alike(&item->says, &tensor->says))
        return NULL;
    /* Where no rank had rows when this was learnt, ranks without rows take it for the host's. */
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

static void pool_add(halay_trainer_t *trainer, struct hlt_tensor *tensor)
{
    struct hlt_programme *programme = trainer->replay.programme;
    struct hlt_item *item = place_of(programme, tensor);
    if (item && item->series && tensor->number < item->due)
        item = NULL; /* of a void group: its place has gone on to the next number */
    tensor->item = item;
    trainer->replay.foreign += !item;
    if (item && (!item->series || tensor->number == item->due))
        pool_place(programme, item, tensor);
    else if (item)
        trainer->replay.early++;
    hlt_tensor_list_insert(&trainer->pool, tensor);
}

/* The item waits for the next number of its series, which may be here already. */
static void pool_advance(halay_trainer_t *trainer, struct hlt_item *item)
{
    struct hlt_programme *programme = trainer->replay.programme;
    struct hlt_tensor *tensor = trainer->replay.early ? trainer->pool.head : NULL;
    item->due += hlt_programme_share(programme, item->series)->count;
    while (tensor && (tensor->item != item || tensor->number != item->due))
        tensor = tensor->next;
    if (tensor) {
        pool_place(programme, item, tensor);
        trainer->replay.early--;
    }
}

static void pool_take(halay_trainer_t *trainer, struct hlt_group *group, struct hlt_list *tensors)
{
    struct hlt_item *items = trainer->replay.programme->script.items + group->first;
    for (uint32_t i = 0; i < group->count; i++) {
        struct hlt_tensor *tensor = items[i].tensor;
        hlt_tensor_list_remove(&trainer->pool, tensor);
        tensor->item = NULL;
        items[i].tensor = NULL;
        hlt_tensor_list_push(tensors, tensor);
    }
    group->missing = group->count;
    for (uint32_t i = 0; i < group->count; i++)
        if (items[i].series)
            pool_advance(trainer, &items[i]);
}

/* The series go on where rounds, or the replay before, have left them. */
static void shares_begin(halay_trainer_t *trainer, struct hlt_programme *programme)
{
    for (size_t s = 0; s < programme->nshares; s++) {
        struct hlt_share *share = &programme->shares[s];
        share->base = hlt_series_find(trainer, share->series)->next;
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

void hlt_replay_begin(halay_trainer_t *trainer, struct hlt_programme *programme)
{
    assert(!trainer->replay.programme && !trainer->pool.head);
    trainer->replay = (struct hlt_replay){.programme = programme, .first_void = NEVER};
    pool_begin(programme);
    shares_begin(trainer, programme);
}

void hlt_replay_regroup(halay_trainer_t *trainer, size_t most)
{
    struct hlt_replay *replay = &trainer->replay;
    struct hlt_list pool = trainer->pool;
    struct hlt_tensor *tensor;
    assert(replay->issued == replay->results && hlt_replay_is_first(replay, replay->issued));
    replay->cycles = hlt_replay_cycle(replay, replay->issued);
    replay->base = replay->issued;
    trainer->pool = (struct hlt_list){NULL, NULL};
    replay->foreign = replay->early = 0;
    if (hlt_programme_group(trainer, replay->programme, most))
        hlt_trainer_leave_all(trainer, HALAY_ENOMEM, "no memory to sort tensors into groups anew");
    pool_begin(replay->programme);
    while ((tensor = hlt_tensor_list_pop(&pool)) != NULL)
        pool_add(trainer, tensor);
}

static void replay_end(halay_trainer_t *trainer)
{
    struct hlt_tensor *tensor;
    hlt_programme_void(trainer);
    hlt_timeline_void(trainer);
    while ((tensor = hlt_tensor_list_pop(&trainer->pool)) != NULL) {
        tensor->item = NULL;
        hlt_tensor_list_push(&trainer->pending, tensor);
    }
    memset(&trainer->replay, 0, sizeof(trainer->replay));
}

/* ------------------------------------------------------------------ void */

static void look_at(struct hlt_replay *replay, uint64_t when_ns)
{
    if (!replay->check_ns || when_ns < replay->check_ns)
        replay->check_ns = when_ns;
}

static int is_time(struct hlt_replay *replay, uint64_t when_ns, uint64_t now_ns)
{
    if (when_ns <= now_ns)
        return 1;
    look_at(replay, when_ns);
    return 0;
}

static int pool_wanted(halay_trainer_t *trainer)
{
    int wanted = 0;
    pthread_mutex_lock(&trainer->mutex);
    for (const struct hlt_tensor *t = trainer->pool.head; t && !wanted; t = t->next)
        wanted = t->wanted;
    if (!wanted)
        trainer->polled = 0;
    pthread_mutex_unlock(&trainer->mutex);
    return wanted;
}

/* The oldest tensor of the pool that has no place in the programme. There is one. */
static const struct hlt_tensor *pool_foreign(const halay_trainer_t *trainer)
{
    const struct hlt_tensor *tensor = trainer->pool.head;
    while (tensor->item)
        tensor = tensor->next;
    return tensor;
}

/* So long may a tensor wait for which no caller waits. */
static uint64_t own_ns(const halay_trainer_t *trainer)
{
    const uint64_t share_ns = trainer->deadline_ns / OWN_OF;
    return share_ns < OWN_MOST_NS ? share_ns : OWN_MOST_NS;
}

/* The next group has tensors missing here. Must this rank go void? */
static int must_void(halay_trainer_t *trainer)
{
    struct hlt_replay *replay = &trainer->replay;
    uint64_t now_ns = hlt_trainer_now_ns();
    int called = 0;
    if (replay->issued < replay->called)
        return 1;
    if (!trainer->pool.head)
        return 0;
    if (!halay_comm_called(trainer->data, &called) && called == 2)
        return 1; /* the communicator is broken: the call will say why */
    if (is_time(replay, trainer->pool.head->submit_ns + own_ns(trainer), now_ns))
        return 1;
    if (replay->foreign && is_time(replay, pool_foreign(trainer)->submit_ns + FOREIGN_NS, now_ns))
        return 1;
    look_at(replay, now_ns + FOREIGN_NS);
    if (trainer->behind.head) /* what is missing may be there, and come with its stream */
        return 0;
    if (trainer->expecting && /* nobody can tell whether a caller waits */
        is_time(replay, trainer->pool.tail->submit_ns + FOREIGN_NS, now_ns))
        return 1;
    return trainer->wanting && pool_wanted(trainer) &&
           is_time(replay, trainer->pool.tail->submit_ns + GRACE_NS, now_ns);
}

/* The thread need not wake up for a submission that cannot complete the group. */
static int quiet(halay_trainer_t *trainer, const struct hlt_group *group)
{
    trainer->replay.quiet = trainer->pool.head ? group->missing - 1 : 0;
    return 0;
}

/* ------------------------------------------------------------------ groups */

static void cycle_begins(halay_trainer_t *trainer)
{
    hlt_timeline_cycle(trainer);
    if (trainer->autotune.steps)
        hlt_tune_cycle(trainer);
}

int hlt_replay_next(halay_trainer_t *trainer)
{
    struct hlt_replay *replay = &trainer->replay;
    struct hlt_programme *programme = replay->programme;
    struct hlt_list tensors = {NULL, NULL};
    struct hlt_tensor *tensor;
    if (!programme || trainer->broken || trainer->leaving)
        return 0;
    while ((tensor = hlt_tensor_list_pop(&trainer->pending)) != NULL)
        pool_add(trainer, tensor);

    uint64_t known = replay->first_void < replay->results ? replay->first_void : replay->results;
    if (replay->issued >= known + window(replay))
        return 0;
    const int begins = hlt_replay_is_first(replay, replay->issued);
    enum hlt_turn turn = HLT_TURN_BEGIN;
    struct hlt_group *group;
    do {
        group = hlt_replay_group(replay, replay->issued);
        if (group->missing && !replay->flushing && !must_void(trainer))
            return quiet(trainer, group);
        if (begins && trainer->autotune.steps)
            turn = hlt_tune_next(trainer);
    } while (turn == HLT_TURN_CHANGED);
    if (turn == HLT_TURN_WAIT)
        return 0;
    if (group->missing)
        replay->flushing = 1;
    else
        pool_take(trainer, group, &tensors);
    if (begins)
        cycle_begins(trainer);
    hlt_group_start(trainer, group, replay->issued++, &tensors);
    return 1;
}

/* The tensors of a void group go back; they are as they were. */
static void group_back(halay_trainer_t *trainer, struct hlt_list *tensors)
{
    struct hlt_tensor *tensor;
    while ((tensor = hlt_tensor_list_pop(tensors)) != NULL)
        pool_add(trainer, tensor);
}

void hlt_replay_result(halay_trainer_t *trainer, struct hlt_call *call, int empty)
{
    struct hlt_replay *replay = &trainer->replay;
    assert(call->sequence == replay->results);
    for (const struct hlt_tensor *t = call->tensors.head; t && !empty; t = t->next)
        if (t->says.wait >= trainer->replayed_until)
            trainer->replayed_until = t->says.wait + 1;
    if (empty) {
        group_back(trainer, &call->tensors);
        if (replay->first_void == NEVER)
            replay->first_void = replay->results;
        replay->flushing = 1;
    } else if (replay->first_void != NEVER) {
        replay->good_behind |= UINT64_C(1) << (replay->results - replay->first_void);
    } else if (hlt_replay_is_first(replay, replay->results + 1)) {
        hlt_programme_whole(trainer);
    }
    replay->results++;
}

/* When the oldest group in flight will have been out for too long; 0: none is out. */
static uint64_t alarm_due_ns(const halay_trainer_t *trainer)
{
    uint64_t start_ns = 0;
    for (int i = 0; i < trainer->ncalls; i++) {
        const struct hlt_call *call = &trainer->calls[i];
        const int counts = call->group || call->kind == HLT_CALL_TUNE;
        if (counts && (!start_ns || call->start_ns < start_ns))
            start_ns = call->start_ns;
    }
    if (start_ns && start_ns < trainer->replay.alarm_ns)
        start_ns = trainer->replay.alarm_ns;
    uint64_t wait_ns = trainer->deadline_ns / ALARM_OF, notice_ns = trainer->stall.notice_ns;
    if (notice_ns && notice_ns < wait_ns)
        wait_ns = notice_ns;
    return start_ns ? start_ns + wait_ns : 0;
}

uint64_t hlt_replay_reached(const halay_trainer_t *trainer)
{
    uint64_t reached = trainer->replay.issued;
    for (int i = 0; i < trainer->ncalls; i++)
        reached += trainer->calls[i].kind == HLT_CALL_TUNE;
    return reached;
}

int hlt_replay_alarm(const halay_trainer_t *trainer)
{
    uint64_t due_ns = alarm_due_ns(trainer), now_ns = due_ns ? hlt_trainer_now_ns() : 0;
    return due_ns && due_ns <= now_ns;
}

void hlt_replay_called(halay_trainer_t *trainer, uint64_t issued)
{
    if (issued > trainer->replay.called)
        trainer->replay.called = issued;
}

int hlt_replay_step(halay_trainer_t *trainer)
{
    struct hlt_replay *replay = &trainer->replay;
    uint64_t due_ns = replay->programme && !trainer->round ? alarm_due_ns(trainer) : 0;
    if (due_ns && !trainer->broken && !trainer->leaving)
        look_at(replay, due_ns);
    if (!replay->programme || replay->first_void == NEVER || trainer->broken ||
        replay->results < replay->first_void + window(replay))
        return 0;
    assert(replay->issued == replay->results);
    replay_end(trainer);
    return 1;
}
