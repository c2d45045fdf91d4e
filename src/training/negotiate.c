/* SPDX-License-Identifier: Apache-2.0 */
/*
 * negotiate.c - ranks agree on what is ready, in rounds; docs/decisions/0004.
 *
 * A round is one allgather of a block of announcements. Every rank enters it by itself: because it
 * has something to announce, or because another rank has entered. After each round all ranks hold
 * equal records, made of nothing but what the rounds have carried; so all take the same decisions
 * in the same order and need not tell each other.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trainer.h"

#define BLOCK_WORDS (sizeof(struct hlt_block) / sizeof(uint64_t))

uint64_t hlt_tensor_what(int kind, halay_type_t type, halay_op_t op, int root)
{
    return (uint64_t)kind | (uint64_t)type << 8 | (uint64_t)op << 16 | (uint64_t)root << 32;
}

int hlt_announcement_kind(const struct hlt_announcement *says)
{
    return (int)(says->what & 0xff);
}

/* ------------------------------------------------------------------ records */

static void record_give(halay_trainer_t *trainer, struct hlt_record *record)
{
    record->next = trainer->unused_records;
    trainer->unused_records = record;
}

static struct hlt_record *record_take(halay_trainer_t *trainer, const struct hlt_announcement *says,
                                      int rank)
{
    size_t words = hlt_rank_words(trainer->nranks);
    struct hlt_record *record = trainer->unused_records;
    if (record)
        trainer->unused_records = record->next;
    else if (!(record = calloc(1, sizeof(*record) + words * sizeof(uint64_t))))
        return NULL;
    if (hlt_announcement_kind(says) == HLT_KIND_ALLGATHER && !record->rows &&
        !(record->rows = calloc((size_t)trainer->nranks, sizeof(*record->rows)))) {
        record_give(trainer, record);
        return NULL;
    }
    memset(record->announced, 0, words * sizeof(uint64_t));
    record->nannounced = 0;
    record->run = record->told = 0;
    record->marks = 0;
    record->first = *says;
    record->first_rank = rank;
    record->other_rank = -1;
    record->sequence = trainer->sequence++;
    record->node.hash = says->name;
    hlt_tensor_map_add(&trainer->records, &record->node);
    return record;
}

static void record_free(struct hlt_node *record)
{
    free(((struct hlt_record *)record)->rows);
    free(record);
}

void hlt_round_records_free(halay_trainer_t *trainer)
{
    hlt_tensor_map_finish(&trainer->records, record_free);
    while (trainer->unused_records) {
        struct hlt_record *record = trainer->unused_records;
        trainer->unused_records = record->next;
        record_free(&record->node);
    }
}

int hlt_announcement_alike(const struct hlt_announcement *a, const struct hlt_announcement *b)
{
    return hlt_memory_alike(a, b) && a->count == b->count && a->prescale == b->prescale &&
           a->postscale == b->postscale && a->group == b->group &&
           !memcmp(a->shape, b->shape, sizeof(a->shape));
}

/* This rank's tensor of a record that it has announced. The tensor waits. */
static struct hlt_tensor *tensor_of(halay_trainer_t *trainer, const struct hlt_record *record)
{
    pthread_mutex_lock(&trainer->mutex);
    struct hlt_node *node = hlt_tensor_map_find(&trainer->names, record->node.hash);
    pthread_mutex_unlock(&trainer->mutex);
    assert(node);
    return (struct hlt_tensor *)node;
}

/* Adds a rank's count of waits to a hash of those of all ranks. */
static uint64_t run_add(uint64_t run, int rank, uint64_t wait)
{
    uint64_t word = (wait + 1) * 0x9e3779b97f4a7c15u ^ (uint64_t)rank * 0xc2b2ae3d27d4eb4fu;
    word = (word ^ (word >> 29)) * 0xbf58476d1ce4e5b9u;
    return run + (word ^ (word >> 32));
}

/* A programme is replayed from here on. What is announced but not agreed on goes to the pool. */
static void rounds_end(halay_trainer_t *trainer, struct hlt_programme *programme)
{
    struct hlt_tensor *tensor;
    for (size_t i = 0; i <= trainer->records.mask; i++) {
        while (trainer->records.buckets[i]) {
            struct hlt_record *record = (struct hlt_record *)trainer->records.buckets[i];
            hlt_tensor_map_remove(&trainer->records, &record->node);
            record_give(trainer, record);
        }
    }
    while ((tensor = hlt_tensor_list_pop(&trainer->waiting)) != NULL)
        hlt_tensor_list_insert(&trainer->pending, tensor);
    while ((tensor = hlt_tensor_list_pop(&trainer->joining)) != NULL)
        hlt_tensor_list_insert(&trainer->pending, tensor); /* no rank has read it */
    hlt_replay_begin(trainer, programme);
}

static void record_fail(halay_trainer_t *trainer, const struct hlt_record *record,
                        struct hlt_tensor *tensor, int code, const char *text)
{
    uint64_t other = record->other_rank >= 0 ? record->other.group : 0;
    if (record->first.group || other) {
        struct hlt_unlike *unlike = &trainer->unlike[trainer->nunlike++];
        *unlike = (struct hlt_unlike){record->first.group, other};
        snprintf(trainer->unlike_text, sizeof(trainer->unlike_text),
                 "another tensor of the same group differs: %.900s", text);
    }
    if (tensor)
        hlt_tensor_done(trainer, tensor, code, text);
}

/* All ranks agree on the tensor, so all will run it. */
static void record_run(halay_trainer_t *trainer, const struct hlt_record *record,
                       struct hlt_tensor *tensor)
{
    if (record->first.group)
        trainer->agreed_groups[trainer->nagreed_groups++] = record->first.group;
    if (hlt_announcement_kind(&record->first) == HLT_KIND_BARRIER) {
        if (tensor) /* a barrier is over when all have announced it */
            hlt_tensor_done(trainer, tensor, 0, NULL);
        return;
    }
    if (!tensor && !(tensor = hlt_join_stand_in(trainer, record))) {
        hlt_trainer_leave_all(trainer, HALAY_ENOMEM,
                              "no memory for the zeros of a rank that joined");
        return;
    }
    tensor->in_place = (record->marks & HLT_IN_PLACE) != 0;
    tensor->memory = hlt_agreed_memory(&record->first);
    if (tensor->grouped)
        tensor->grouped->agreed = 1;
    for (int r = 0; tensor->kind == HLT_KIND_ALLGATHER && record->rows && r < trainer->nranks; r++)
        tensor->rows[r] = (size_t)record->rows[r];
    hlt_tensor_list_push(&trainer->fresh, tensor);
}

void hlt_record_complete(halay_trainer_t *trainer, struct hlt_record *record)
{
    char text[HLT_TEXT_BYTES];
    struct hlt_programme *programme = NULL;
    struct hlt_tensor *tensor = NULL;
    int absent = hlt_join_absent(trainer, record), lacks;
    assert(!trainer->replay.programme);
    if (hlt_rank_in(record->announced, trainer->rank))
        tensor = tensor_of(trainer, record);
    int all = tensor && !trainer->njoined; /* a rank that has joined has not seen it */
    if (record->other_rank < 0 && all)
        programme = hlt_programme_seen(trainer, record, tensor);
    if (programme) {
        rounds_end(trainer, programme);
        return;
    }
    trainer->agreed_ns = hlt_trainer_now_ns();
    trainer->missed[0] = 0; /* all go on */
    if (all && tensor->series)
        hlt_series_done(trainer, tensor->series, tensor->number);
    if (tensor)
        hlt_tensor_list_remove(&trainer->waiting, tensor);
    hlt_tensor_map_remove(&trainer->records, &record->node);
    if (record->other_rank >= 0) {
        hlt_text_mismatch(text, record, tensor ? tensor->name : "?");
        record_fail(trainer, record, tensor, HALAY_EMISMATCH, text);
    } else if (absent >= 0 && hlt_join_takes(&record->first) &&
               (lacks = hlt_join_lacks(trainer, record)) >= 0) {
        hlt_text_lacks(text, trainer, record, lacks);
        record_fail(trainer, record, tensor, HALAY_EUNSUPPORTED, text);
    } else if (absent >= 0 && !hlt_join_takes(&record->first)) {
        hlt_text_unsupported(text, trainer, record, absent);
        record_fail(trainer, record, tensor, HALAY_EUNSUPPORTED, text);
    } else {
        record_run(trainer, record, tensor);
    }
    record_give(trainer, record);
}

int hlt_round_reserve(halay_trainer_t *trainer, size_t more)
{
    size_t room = trainer->groups_room + more;
    uint64_t *groups = realloc(trainer->agreed_groups, room * sizeof(*groups));
    if (!groups)
        return HALAY_ENOMEM;
    trainer->agreed_groups = groups;
    struct hlt_unlike *unlike = realloc(trainer->unlike, room * sizeof(*unlike));
    if (!unlike)
        return HALAY_ENOMEM;
    trainer->unlike = unlike;
    trainer->groups_room = room;
    return 0;
}

/* What other code takes for granted of an announcement; a peer has sent it. */
static int sensible(const struct hlt_announcement *says)
{
    const int kind = hlt_announcement_kind(says);
    const uint32_t memory = hlt_announcement_memory(says);
    return kind >= HLT_KIND_ALLREDUCE && says->shape[0] <= 1 + HALAY_DIMS_MAX &&
           (memory == HLT_MEMORY_ANY || memory < HALAY_MEMORY_KINDS) &&
           (kind >= HLT_KIND_JOIN || kind == HLT_KIND_BARRIER ||
            halay_type_bytes(hlt_announcement_type(says)) > 0);
}

static int announced(halay_trainer_t *trainer, int rank, const struct hlt_announcement *says)
{
    if (!sensible(says))
        return HALAY_EINTERNAL;
    if (hlt_announcement_kind(says) == HLT_KIND_JOIN)
        return hlt_join_said(trainer, rank, says->rows);
    struct hlt_record *record =
        (struct hlt_record *)hlt_tensor_map_find(&trainer->records, says->name);
    if (!record && !(record = record_take(trainer, says, rank)))
        return HALAY_ENOMEM;
    if (hlt_rank_in(record->announced, rank))
        return HALAY_EINTERNAL;
    hlt_rank_add(record->announced, rank);
    record->nannounced++;
    record->run = run_add(record->run, rank, says->wait >> HLT_MARK_BITS);
    record->marks |= says->wait & (HLT_PART_REPLAYED | HLT_IN_PLACE);
    if (record->other_rank < 0 && !hlt_announcement_alike(&record->first, says)) {
        record->other = *says;
        record->other_rank = rank;
    }
    if (record->other_rank < 0)
        hlt_announcement_settle(&record->first, says);
    if (hlt_announcement_kind(&record->first) == HLT_KIND_ALLGATHER)
        record->rows[rank] = says->rows;
    if (hlt_join_complete(trainer, record))
        hlt_record_complete(trainer, record);
    return 0;
}

/*
 * Ends the record, and this rank's tensor if it has announced it: then it returns 1. why: its group
 * differs between ranks. NULL: the deadline of `rank` has passed.
 */
static int record_end(halay_trainer_t *trainer, int rank, const char *why,
                      struct hlt_record *record)
{
    char text[HLT_TEXT_BYTES];
    int own = hlt_rank_in(record->announced, trainer->rank);
    hlt_tensor_map_remove(&trainer->records, &record->node);
    if (own) {
        struct hlt_tensor *tensor = tensor_of(trainer, record);
        hlt_tensor_list_remove(&trainer->waiting, tensor);
        if (!why)
            hlt_text_timeout(text, trainer, record, rank, tensor->name);
        hlt_tensor_done(trainer, tensor, why ? HALAY_EMISMATCH : HALAY_ETIMEOUT, why ? why : text);
    }
    record_give(trainer, record);
    return own;
}

/* Ends all records of a group. If this rank has announced a part of it the rest ends as well. */
static void group_end(halay_trainer_t *trainer, int rank, const char *why, uint64_t group, int own)
{
    struct hlt_tensor *tensor, *next;
    for (size_t i = 0; i <= trainer->records.mask; i++) {
        struct hlt_node *node = trainer->records.buckets[i], *after;
        for (; node; node = after) {
            after = node->next;
            if (((struct hlt_record *)node)->first.group == group)
                own |= record_end(trainer, rank, why, (struct hlt_record *)node);
        }
    }
    for (tensor = trainer->pending.head; own && tensor; tensor = next) {
        next = tensor->next;
        if (tensor->says.group != group)
            continue;
        hlt_tensor_list_remove(&trainer->pending, tensor);
        hlt_tensor_done(trainer, tensor, why ? HALAY_EMISMATCH : HALAY_ETIMEOUT,
                        why ? why : "others of its group have waited too long for another rank");
    }
}

/* 1 if a tensor of the group was agreed on in this very round. */
static int group_agreed(const halay_trainer_t *trainer, uint64_t group)
{
    for (size_t i = 0; i < trainer->nagreed_groups; i++)
        if (trainer->agreed_groups[i] == group)
            return 1;
    return 0;
}

/* Withdrawals are read after all announcements: what came at the last moment still counts. */
static void withdrawn(halay_trainer_t *trainer, int rank, const struct hlt_announcement *says)
{
    struct hlt_record *record =
        (struct hlt_record *)hlt_tensor_map_find(&trainer->records, says->name);
    char name[sizeof(says->shape) + 1] = "";
    memcpy(name, says->shape, sizeof(says->shape));
    if (record && !hlt_rank_in(record->announced, trainer->rank))
        hlt_text_timeout(trainer->missed, trainer, record, rank, name);
    if (says->group && !group_agreed(trainer, says->group))
        group_end(trainer, rank, NULL, says->group, 0);
    else if (!says->group && record)
        record_end(trainer, rank, NULL, record);
}

/* ------------------------------------------------------------------ rounds */

static int begun(const halay_trainer_t *trainer)
{
    return trainer->replay.programme != NULL;
}

/* All ranks have read the same: where a rank has said what it cannot mean, all refuse it. */
static void round_refuse(halay_trainer_t *trainer, int code, int rank)
{
    char text[HLT_TEXT_BYTES];
    snprintf(text, sizeof(text),
             code == HALAY_ENOMEM ? "no memory for what rank %d announced"
                                  : "rank %d announced what makes no sense (a tensor twice, or too "
                                    "many); is it the same build of Halay?",
             rank);
    hlt_trainer_break(trainer, code, text);
}

/*
 * Where a programme begins in mid-round, the rest of the round is not read: those tensors wait in
 * the pools. A rank that still replays has announced nothing, so nothing becomes complete. It keeps
 * the records.
 */
static void round_read(halay_trainer_t *trainer)
{
    int rc = 0, rank = 0, replayed = begun(trainer);
    trainer->nagreed_groups = trainer->nunlike = 0;
    for (int r = 0; r < trainer->nranks && !rc; r++) {
        const struct hlt_block *block = &trainer->blocks[r];
        rank = r;
        if (block->count > HLT_ROUND_ENTRIES)
            rc = HALAY_EINTERNAL;
        else if (replayed)
            hlt_replay_called(trainer, block->issued);
        for (uint64_t i = 0; !rc && i < block->count && begun(trainer) == replayed; i++)
            if (hlt_announcement_kind(&block->entries[i]) < HLT_KIND_WITHDRAW)
                rc = announced(trainer, r, &block->entries[i]);
    }
    hlt_fresh_fuse(trainer);
    for (size_t i = 0; i < trainer->nunlike && begun(trainer) == replayed; i++) {
        const uint64_t groups[2] = {trainer->unlike[i].first, trainer->unlike[i].other};
        for (int g = 0; g < 2; g++)
            if (groups[g])
                group_end(trainer, -1, trainer->unlike_text, groups[g], 1);
    }
    if (rc) {
        round_refuse(trainer, rc, rank);
        return;
    }
    if (!begun(trainer))
        hlt_stall_read(trainer);
    for (int r = 0; r < trainer->nranks; r++) {
        const struct hlt_block *block = &trainer->blocks[r];
        for (uint64_t i = 0; i < block->count && begun(trainer) == replayed; i++) {
            if (hlt_announcement_kind(&block->entries[i]) == HLT_KIND_WITHDRAW)
                withdrawn(trainer, r, &block->entries[i]);
            else if (hlt_announcement_kind(&block->entries[i]) == HLT_KIND_UNJOIN)
                hlt_join_unsaid(trainer, r);
        }
    }
}

/*
 * The first tensor, from this one on, that may be withdrawn. Tensors time out in the order of their
 * announcements. A group of which one is agreed on comes in full, for all ranks have submitted it.
 */
static struct hlt_tensor *withdrawable(struct hlt_tensor *tensor)
{
    while (tensor && tensor->grouped && tensor->grouped->agreed)
        tensor = tensor->next;
    return tensor;
}

uint64_t hlt_round_end_ns(const halay_trainer_t *trainer)
{
    const struct hlt_tensor *oldest = withdrawable(trainer->waiting.head);
    uint64_t join_ns = hlt_join_end_ns(trainer);
    uint64_t oldest_ns = oldest ? oldest->submit_ns + trainer->deadline_ns : 0;
    return oldest_ns && (!join_ns || oldest_ns < join_ns) ? oldest_ns : join_ns;
}

static struct hlt_tensor *expired(const halay_trainer_t *trainer, struct hlt_tensor *from,
                                  uint64_t now_ns)
{
    struct hlt_tensor *tensor = withdrawable(from);
    return tensor && now_ns - tensor->submit_ns >= trainer->deadline_ns ? tensor : NULL;
}

static int join_expired(const halay_trainer_t *trainer, uint64_t now_ns)
{
    uint64_t end_ns = hlt_join_end_ns(trainer);
    return end_ns && end_ns <= now_ns;
}

/* Writes what this rank has to say. What was pending is waiting afterwards. */
static void block_write(halay_trainer_t *trainer)
{
    struct hlt_block *block = &trainer->blocks[trainer->rank];
    struct hlt_tensor *tensor;
    uint64_t now = hlt_trainer_now_ns();
    memset(block, 0, sizeof(*block));
    if (trainer->replay.programme) {
        block->issued = hlt_replay_reached(trainer);
        trainer->replay.alarm_ns = now; /* any rank's round asks for this one too */
        return;
    }
    if (join_expired(trainer, now))
        block->entries[block->count++].what = HLT_KIND_UNJOIN;
    for (tensor = expired(trainer, trainer->waiting.head, now);
         tensor && block->count < HLT_ROUND_ENTRIES; tensor = expired(trainer, tensor->next, now)) {
        const size_t n = strlen(tensor->name), most = sizeof(block->entries[0].shape);
        const size_t cut = n > most ? n - most : 0; /* a rank that lacks it is told its end */
        memcpy(block->entries[block->count].shape, tensor->name + cut, n - cut);
        block->entries[block->count].name = tensor->node.hash;
        block->entries[block->count].group = tensor->says.group;
        block->entries[block->count++].what = HLT_KIND_WITHDRAW;
    }
    hlt_stall_write(trainer, block);
    while (block->count < HLT_ROUND_ENTRIES &&
           (tensor = hlt_tensor_list_pop(&trainer->pending)) != NULL) {
        block->entries[block->count] = tensor->says;
        block->entries[block->count++].wait =
            tensor->says.wait << HLT_MARK_BITS |
            (tensor->says.wait < trainer->replayed_until ? HLT_PART_REPLAYED : 0) |
            (tensor->in == tensor->out ? HLT_IN_PLACE : 0);
        hlt_tensor_list_push(tensor->kind == HLT_KIND_JOIN ? &trainer->joining : &trainer->waiting,
                             tensor);
    }
}

/*
 * A rank that leaves when all is done breaks the communicator too. Only a rank that waits asks why.
 */
static int round_needed(halay_trainer_t *trainer)
{
    int called = 0;
    if (trainer->replay.programme)
        return hlt_replay_alarm(trainer) ||
               (!halay_comm_called(trainer->control, &called) && called == 1);
    uint64_t now_ns = hlt_trainer_now_ns();
    if (trainer->pending.head || expired(trainer, trainer->waiting.head, now_ns) ||
        join_expired(trainer, now_ns) || hlt_stall_due(trainer))
        return 1;
    return !halay_comm_called(trainer->control, &called) &&
           (called == 1 || (called == 2 && (trainer->waiting.head || trainer->joining.head)));
}

void hlt_trainer_break(halay_trainer_t *trainer, int code, const char *text)
{
    if (trainer->broken)
        return;
    trainer->broken = code;
    snprintf(trainer->broken_text, sizeof(trainer->broken_text), "%s", text);
}

void hlt_trainer_leave_all(halay_trainer_t *trainer, int code, const char *text)
{
    if (!trainer->broken)
        trainer->farewell = HLT_FAREWELL_DATA | HLT_FAREWELL_CONTROL;
    hlt_trainer_break(trainer, code, text);
}

static void round_fail(halay_trainer_t *trainer, int code)
{
    char text[HLT_TEXT_BYTES], both[HLT_TEXT_BYTES];
    hlt_trainer_verdict(trainer->control, code, text, sizeof(text));
    if (code == HALAY_EPEER && trainer->missed[0]) { /* that is why they have gone */
        snprintf(both, sizeof(both), "%.640s. Since then %.360s", trainer->missed, text);
        hlt_trainer_break(trainer, HALAY_ETIMEOUT, both);
        return;
    }
    hlt_trainer_break(trainer, code, text);
}

/* Returns 1 when a round has come to its end. */
static int round_test(halay_trainer_t *trainer)
{
    int rc = halay_request_test(trainer->round);
    if (rc == HALAY_INPROGRESS)
        return 0;
    trainer->round = NULL;
    if (rc) {
        round_fail(trainer, rc);
    } else {
        hlt_timeline_round(trainer);
        round_read(trainer);
    }
    return 1;
}

static void round_start(halay_trainer_t *trainer)
{
    block_write(trainer);
    hlt_timeline_cycle(trainer);
    trainer->round_ns = trainer->recording ? hlt_trainer_now_ns() : 0;
    trainer->counters.control_rounds++;
    trainer->counters.control_bytes += sizeof(*trainer->blocks);
    int rc = halay_iallgather(HALAY_IN_PLACE, trainer->blocks, BLOCK_WORDS, HALAY_UINT64,
                              trainer->control, &trainer->round);
    if (rc) {
        trainer->round = NULL;
        round_fail(trainer, rc);
    }
}

int hlt_is_awaited(const halay_trainer_t *trainer, halay_comm_t *comm)
{
    int called = 0;
    return trainer->broken && !trainer->leaving && !halay_comm_called(comm, &called) && called == 1;
}

/* A round that fails on all ranks, with this one's reason. */
static void farewell(halay_trainer_t *trainer)
{
    trainer->farewell &= ~HLT_FAREWELL_CONTROL;
    if (halay_local_refuse(trainer->control, trainer->broken, trainer->broken_text,
                           &trainer->round))
        trainer->round = NULL;
}

void hlt_round_step(halay_trainer_t *trainer)
{
    do {
        if (!trainer->round &&
            (trainer->farewell & HLT_FAREWELL_CONTROL || hlt_is_awaited(trainer, trainer->control)))
            farewell(trainer);
        if (!trainer->round && !trainer->broken && !trainer->leaving && round_needed(trainer))
            round_start(trainer);
    } while (trainer->round && round_test(trainer));

    if (trainer->round)
        return;
    int code = trainer->broken ? trainer->broken : HALAY_ESTATE;
    const char *text = trainer->broken ? trainer->broken_text : "the trainer was destroyed";
    if (trainer->broken || trainer->leaving) {
        hlt_tensor_list_end(trainer, &trainer->pending, code, text);
        hlt_tensor_list_end(trainer, &trainer->waiting, code, text);
        hlt_tensor_list_end(trainer, &trainer->pool, code, text);
        hlt_tensor_list_end(trainer, &trainer->joining, code, text);
    }
}
