/* SPDX-License-Identifier: Apache-2.0 */
/*
 * negotiate.c - ranks agree on what is ready, in rounds; docs/decisions/training.md#0004.
 *
 * A round is one allgather of a block of announcements. Every rank enters it by itself: because it
 * has something to announce, or because another rank has entered. After each round all ranks hold
 * equal records, since only rounds change them. So all take the same decisions in the same order,
 * without further messages.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "negotiate.h"
#include "replay.h"

/* ------------------------------------------------------------------ records */

static void record_give(struct hlt_core *core, struct hlt_record *record)
{
    record->next = core->rounds.unused;
    core->rounds.unused = record;
}

static struct hlt_record *record_take(struct hlt_core *core, const struct hlt_announcement *says,
                                      int rank)
{
    size_t words = hlt_rank_words(core->nranks);
    struct hlt_record *record = core->rounds.unused;
    if (record)
        core->rounds.unused = record->next;
    else if (!(record = calloc(1, sizeof(*record) + words * sizeof(uint64_t))))
        return NULL;
    if (hlt_announcement_kind(says) == HLT_KIND_ALLGATHER && !record->rows &&
        !(record->rows = calloc((size_t)core->nranks, sizeof(*record->rows)))) {
        record_give(core, record);
        return NULL;
    }
    memset(record->announced, 0, words * sizeof(uint64_t));
    record->nannounced = 0;
    record->run = record->noticed_round = 0;
    record->marks = 0;
    record->first = *says;
    record->first_rank = rank;
    record->other_rank = -1;
    record->own = NULL;
    record->sequence = core->rounds.sequence++;
    record->node.hash = says->name;
    hlt_tensor_map_add(&core->rounds.records, &record->node);
    return record;
}

static void record_free(struct hlt_node *record)
{
    free(((struct hlt_record *)record)->rows);
    free(record);
}

void hlt_round_records_free(struct hlt_core *core)
{
    hlt_tensor_map_finish(&core->rounds.records, record_free);
    while (core->rounds.unused) {
        struct hlt_record *record = core->rounds.unused;
        core->rounds.unused = record->next;
        record_free(&record->node);
    }
}

/* Adds a rank's count of waits to a hash of those of all ranks. */
static uint64_t run_add(uint64_t run, int rank, uint64_t wait)
{
    uint64_t word = (wait + 1) * 0x9e3779b97f4a7c15u ^ (uint64_t)rank * 0xc2b2ae3d27d4eb4fu;
    word = (word ^ (word >> 29)) * 0xbf58476d1ce4e5b9u;
    return run + (word ^ (word >> 32));
}

/* A replay begins here. Moves tensors that were announced, but not agreed on, back to `pending`,
 * from where the replay takes them. */
static void rounds_end(struct hlt_core *core, struct hlt_programme *programme)
{
    struct hlt_tensor *tensor;
    for (size_t i = 0; i <= core->rounds.records.mask; i++) {
        while (core->rounds.records.buckets[i]) {
            struct hlt_record *record = (struct hlt_record *)core->rounds.records.buckets[i];
            hlt_tensor_map_remove(&core->rounds.records, &record->node);
            record_give(core, record);
        }
    }
    while ((tensor = hlt_tensor_list_pop(&core->waiting)) != NULL)
        hlt_tensor_list_insert(&core->pending, tensor);
    while ((tensor = hlt_tensor_list_pop(&core->joining)) != NULL)
        hlt_tensor_list_insert(&core->pending, tensor); /* no rank has read the join */
    hlt_replay_begin(core, programme);
}

static void record_fail(struct hlt_core *core, const struct hlt_record *record,
                        struct hlt_tensor *tensor, int code, const char *text)
{
    uint64_t other = record->other_rank >= 0 ? record->other.group : 0;
    if (record->first.group || other) {
        struct hlt_unlike *unlike = &core->rounds.unlike[core->rounds.nunlike++];
        *unlike = (struct hlt_unlike){record->first.group, other};
        snprintf(core->rounds.unlike_text, sizeof(core->rounds.unlike_text),
                 "another tensor of the same group differs: %.900s", text);
    }
    if (tensor)
        hlt_tensor_end(core, tensor, code, text);
}

/* All ranks agree on the tensor: moves it to `fresh`, so all will run it. */
static void record_run(struct hlt_core *core, const struct hlt_record *record,
                       struct hlt_tensor *tensor)
{
    if (record->first.group)
        core->rounds.agreed_groups[core->rounds.nagreed_groups++] = record->first.group;
    if (hlt_announcement_kind(&record->first) == HLT_KIND_BARRIER) {
        if (tensor) /* a barrier is over when all have announced it */
            hlt_tensor_end(core, tensor, 0, NULL);
        return;
    }
    if (!tensor && !(tensor = hlt_join_stand_in(core, record))) {
        hlt_core_leave_all(core, HALAY_ENOMEM, HLT_NO_ZEROS);
        return;
    }
    tensor->in_place = (record->marks & HLT_IN_PLACE) != 0;
    tensor->memory = hlt_agreed_memory(&record->first);
    if (tensor->grouped)
        tensor->grouped->agreed = 1;
    for (int r = 0; tensor->kind == HLT_KIND_ALLGATHER && record->rows && r < core->nranks; r++)
        tensor->rows[r] = (size_t)record->rows[r];
    hlt_tensor_list_push(&core->fresh, tensor);
}

/* All ranks have announced the tensor or joined. Every rank does this at the same place of the same
 * round. */
static void record_complete(struct hlt_core *core, struct hlt_record *record)
{
    char text[HLT_TEXT_BYTES];
    struct hlt_programme *programme = NULL;
    struct hlt_tensor *tensor = record->own;
    int absent = hlt_join_absent(core, record), lacks;
    assert(!core->replay.programme);
    int all = tensor && !core->joins.count; /* a joined rank learns no programme from it */
    if (record->other_rank < 0 && all)
        programme = hlt_programme_seen(core, record, tensor);
    if (programme) {
        rounds_end(core, programme);
        return;
    }
    core->rounds.agreed_ns = core->now_ns;
    core->rounds.missed[0] = 0; /* all ranks are here */
    if (all && tensor->series)
        hlt_series_done(core, tensor->series, tensor->number);
    if (tensor)
        hlt_tensor_list_remove(&core->waiting, tensor);
    hlt_tensor_map_remove(&core->rounds.records, &record->node);
    if (record->other_rank >= 0) {
        hlt_text_mismatch(text, record, tensor ? tensor->name : "?");
        record_fail(core, record, tensor, HALAY_EMISMATCH, text);
    } else if (absent >= 0 && hlt_join_takes(&record->first) &&
               (lacks = hlt_join_lacks(core, record)) >= 0) {
        hlt_text_lacks(text, core, record, lacks);
        record_fail(core, record, tensor, HALAY_EUNSUPPORTED, text);
    } else if (absent >= 0 && !hlt_join_takes(&record->first)) {
        hlt_text_unsupported(text, core, record, absent);
        record_fail(core, record, tensor, HALAY_EUNSUPPORTED, text);
    } else {
        record_run(core, record, tensor);
    }
    record_give(core, record);
}

/* Makes room for the group hashes of so many more completions in this round. */
static int reserve(struct hlt_core *core, size_t more)
{
    size_t room = core->rounds.groups_room + more;
    uint64_t *groups = realloc(core->rounds.agreed_groups, room * sizeof(*groups));
    if (!groups)
        return HALAY_ENOMEM;
    core->rounds.agreed_groups = groups;
    struct hlt_unlike *unlike = realloc(core->rounds.unlike, room * sizeof(*unlike));
    if (!unlike)
        return HALAY_ENOMEM;
    core->rounds.unlike = unlike;
    core->rounds.groups_room = room;
    return 0;
}

static int by_sequence(const void *a, const void *b)
{
    const struct hlt_record *const *one = a, *const *other = b;
    return ((*one)->sequence > (*other)->sequence) - ((*one)->sequence < (*other)->sequence);
}

/* A rank has joined: completes the records that only it had not announced, in the order of first
 * announcements. */
static int records_complete(struct hlt_core *core)
{
    size_t count = 0;
    struct hlt_record **found =
        malloc((core->rounds.records.count + 1) * sizeof(struct hlt_record *));
    if (!found || reserve(core, core->rounds.records.count)) {
        free(found);
        return HALAY_ENOMEM;
    }
    for (size_t i = 0; i <= core->rounds.records.mask; i++)
        for (struct hlt_node *node = core->rounds.records.buckets[i]; node; node = node->next)
            if (hlt_join_complete(core, (struct hlt_record *)node))
                found[count++] = (struct hlt_record *)node;
    qsort(found, count, sizeof(struct hlt_record *), by_sequence);
    for (size_t i = 0; i < count; i++)
        record_complete(core, found[i]);
    free(found);
    return 0;
}

static int joined(struct hlt_core *core, int rank, uint64_t kinds)
{
    if (hlt_join_said(core, rank, kinds))
        return HALAY_EINTERNAL;
    if (records_complete(core))
        return HALAY_ENOMEM;
    hlt_join_over(core, rank);
    return 0;
}

/* Validates an announcement, which a peer has sent: other code relies on it. */
static int sensible(const struct hlt_announcement *says)
{
    const int kind = hlt_announcement_kind(says);
    const uint32_t memory = hlt_announcement_memory(says);
    return kind >= HLT_KIND_ALLREDUCE && says->shape[0] <= 1 + HALAY_DIMS_MAX &&
           (memory == HLT_MEMORY_ANY || memory < HALAY_MEMORY_KINDS) &&
           (kind >= HLT_KIND_JOIN || kind == HLT_KIND_BARRIER ||
            halay_type_bytes(hlt_announcement_type(says)) > 0);
}

/* own: the tensor, if this rank has announced it. */
static int announced(struct hlt_core *core, int rank, const struct hlt_announcement *says,
                     struct hlt_tensor *own)
{
    if (!sensible(says))
        return HALAY_EINTERNAL;
    if (hlt_announcement_kind(says) == HLT_KIND_JOIN)
        return joined(core, rank, says->rows);
    struct hlt_record *record =
        (struct hlt_record *)hlt_tensor_map_find(&core->rounds.records, says->name);
    if (!record && !(record = record_take(core, says, rank)))
        return HALAY_ENOMEM;
    if (hlt_rank_in(record->announced, rank))
        return HALAY_EINTERNAL;
    hlt_rank_add(record->announced, rank);
    record->nannounced++;
    record->own = own ? own : record->own;
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
    if (hlt_join_complete(core, record))
        record_complete(core, record);
    return 0;
}

/*
 * Ends the record, and this rank's tensor if it has announced it: then it returns 1. why: its group
 * differs between ranks. NULL: the deadline of `rank` has passed.
 */
static int record_end(struct hlt_core *core, int rank, const char *why, struct hlt_record *record)
{
    char text[HLT_TEXT_BYTES];
    struct hlt_tensor *tensor = record->own;
    hlt_tensor_map_remove(&core->rounds.records, &record->node);
    if (tensor) {
        hlt_tensor_list_remove(&core->waiting, tensor);
        if (!why)
            hlt_text_timeout(text, core, record, rank, tensor->name);
        hlt_tensor_end(core, tensor, why ? HALAY_EMISMATCH : HALAY_ETIMEOUT, why ? why : text);
    }
    record_give(core, record);
    return tensor != NULL;
}

/* Ends all records of a group. If this rank has announced a part of it the rest ends as well. */
static void group_end(struct hlt_core *core, int rank, const char *why, uint64_t group, int own)
{
    struct hlt_tensor *tensor, *next;
    for (size_t i = 0; i <= core->rounds.records.mask; i++) {
        struct hlt_node *node = core->rounds.records.buckets[i], *after;
        for (; node; node = after) {
            after = node->next;
            if (((struct hlt_record *)node)->first.group == group)
                own |= record_end(core, rank, why, (struct hlt_record *)node);
        }
    }
    for (tensor = core->pending.head; own && tensor; tensor = next) {
        next = tensor->next;
        if (tensor->says.group != group)
            continue;
        hlt_tensor_list_remove(&core->pending, tensor);
        hlt_tensor_end(core, tensor, why ? HALAY_EMISMATCH : HALAY_ETIMEOUT,
                       why ? why : "others of its group have waited too long for another rank");
    }
}

/* 1 if a tensor of the group was agreed on in this very round. */
static int group_agreed(const struct hlt_core *core, uint64_t group)
{
    for (size_t i = 0; i < core->rounds.nagreed_groups; i++)
        if (core->rounds.agreed_groups[i] == group)
            return 1;
    return 0;
}

static void withdrawn(struct hlt_core *core, int rank, const struct hlt_announcement *says)
{
    struct hlt_record *record =
        (struct hlt_record *)hlt_tensor_map_find(&core->rounds.records, says->name);
    char name[sizeof(says->shape) + 1] = "";
    memcpy(name, says->shape, sizeof(says->shape));
    if (record && !record->own)
        hlt_text_timeout(core->rounds.missed, core, record, rank, name);
    if (says->group && !group_agreed(core, says->group))
        group_end(core, rank, NULL, says->group, 0);
    else if (!says->group && record)
        record_end(core, rank, NULL, record);
}

/* ------------------------------------------------------------------ rounds */

static int begun(const struct hlt_core *core)
{
    return core->replay.programme != NULL;
}

/* A rank's block is invalid. All ranks have read the same blocks, so all refuse it and end. */
static void round_refuse(struct hlt_core *core, int code, int rank)
{
    char text[HLT_TEXT_BYTES];
    snprintf(text, sizeof(text),
             code == HALAY_ENOMEM ? "no memory for what rank %d announced"
                                  : "rank %d announced what makes no sense (a tensor twice, or too "
                                    "many); is it the same build of Halay?",
             rank);
    hlt_core_break(core, code, text);
}

/* Moves the tensors that a round has completed to `ready`, and decides which of them are fused. */
static void fresh_fuse(struct hlt_core *core)
{
    struct hlt_tensor *first, *next;
    for (first = core->fresh.head; first; first = first->next)
        first->ready_ns = core->now_ns;
    while ((first = hlt_tensor_list_pop(&core->fresh)) != NULL) {
        size_t left = first->says.count, bytes = halay_type_bytes(first->type);
        first->fusion = 0;
        hlt_tensor_list_push(&core->ready, first);
        if (!hlt_fuse_takes(core->nranks, &first->says, core->buffer_bytes))
            continue;
        left = core->buffer_bytes / bytes - left;
        for (struct hlt_tensor *t = core->fresh.head; t; t = next) {
            next = t->next;
            if (!hlt_fuse_alike(&first->says, &t->says))
                continue;
            if (t->says.count > left)
                break;
            left -= t->says.count;
            if (!first->fusion)
                first->fusion = ++core->rounds.fusions;
            t->fusion = first->fusion;
            hlt_tensor_list_remove(&core->fresh, t);
            hlt_tensor_list_push(&core->ready, t);
        }
    }
}

/*
 * If a programme begins in the middle of a round, ranks do not read the rest of the round: they put
 * those tensors into their pools. A rank that still replays has announced nothing, so no record
 * completes; it keeps the records for later.
 */
int hlt_round_read(struct hlt_core *core)
{
    int rc = 0, rank = 0, replayed = begun(core);
    core->rounds.nagreed_groups = core->rounds.nunlike = 0;
    for (int r = 0; r < core->nranks && !rc; r++) {
        const struct hlt_block *block = &core->rounds.blocks[r];
        rank = r;
        if (block->count > HLT_ROUND_ENTRIES)
            rc = HALAY_EINTERNAL;
        else if (replayed && block->issued > core->replay.called)
            core->replay.called = block->issued;
        for (uint64_t i = 0; !rc && i < block->count && begun(core) == replayed; i++)
            if (hlt_announcement_kind(&block->entries[i]) < HLT_KIND_WITHDRAW)
                rc = announced(core, r, &block->entries[i],
                               r == core->rank ? core->rounds.said[i] : NULL);
    }
    fresh_fuse(core);
    for (size_t i = 0; i < core->rounds.nunlike && begun(core) == replayed; i++) {
        const uint64_t groups[2] = {core->rounds.unlike[i].first, core->rounds.unlike[i].other};
        for (int g = 0; g < 2; g++)
            if (groups[g])
                group_end(core, -1, core->rounds.unlike_text, groups[g], 1);
    }
    if (rc)
        round_refuse(core, rc, rank);
    return !rc && begun(core) == replayed;
}

void hlt_round_withdraw(struct hlt_core *core)
{
    for (int r = 0; r < core->nranks; r++) {
        const struct hlt_block *block = &core->rounds.blocks[r];
        for (uint64_t i = 0; i < block->count; i++) {
            if (hlt_announcement_kind(&block->entries[i]) == HLT_KIND_WITHDRAW)
                withdrawn(core, r, &block->entries[i]);
            else if (hlt_announcement_kind(&block->entries[i]) == HLT_KIND_UNJOIN)
                hlt_join_unsaid(core, r);
        }
    }
}

/*
 * When this rank may withdraw the tensor. Where one tensor of a group call is agreed on, all ranks
 * have submitted all of it: the others follow. They do not where ranks have timed out before, and
 * are in different steps since then, so that one group call has met two.
 */
static uint64_t end_ns(const struct hlt_core *core, const struct hlt_tensor *tensor)
{
    const int agreed = tensor->grouped && tensor->grouped->agreed;
    return tensor->submit_ns + (agreed ? 2 : 1) * core->deadline_ns;
}

/* Tensors time out in the order of their announcements, apart from those of such group calls. */
static struct hlt_tensor *expired(const struct hlt_core *core, struct hlt_tensor *from)
{
    while (from && core->now_ns < end_ns(core, from))
        from = from->grouped && from->grouped->agreed ? from->next : NULL;
    return from;
}

uint64_t hlt_round_end_ns(const struct hlt_core *core)
{
    uint64_t first_ns = hlt_join_end_ns(core);
    for (const struct hlt_tensor *t = core->waiting.head; t; t = t->next) {
        if (!first_ns || end_ns(core, t) < first_ns)
            first_ns = end_ns(core, t);
        if (!t->grouped || !t->grouped->agreed)
            break;
    }
    return first_ns;
}

static int join_expired(const struct hlt_core *core)
{
    uint64_t end_ns = hlt_join_end_ns(core);
    return end_ns && end_ns <= core->now_ns;
}

int hlt_round_due(const struct hlt_core *core)
{
    return core->pending.head || expired(core, core->waiting.head) || join_expired(core);
}

void hlt_round_begin(struct hlt_core *core)
{
    struct hlt_block *block = &core->rounds.blocks[core->rank];
    memset(block, 0, sizeof(*block));
    memset(core->rounds.said, 0, sizeof(core->rounds.said));
    if (begun(core)) {
        /* as far as this rank goes */
        block->issued = core->replay.issued + (core->replay.tuning != 0);
        core->replay.alarm_ns = core->now_ns; /* any round wakes all ranks */
        return;
    }
    if (join_expired(core))
        block->entries[block->count++].what = HLT_KIND_UNJOIN;
    for (struct hlt_tensor *tensor = expired(core, core->waiting.head);
         tensor && block->count < HLT_ROUND_ENTRIES; tensor = expired(core, tensor->next)) {
        const size_t n = strlen(tensor->name), most = sizeof(block->entries[0].shape);
        /* a rank that lacks the tensor reads the end of its name */
        const size_t cut = n > most ? n - most : 0;
        memcpy(block->entries[block->count].shape, tensor->name + cut, n - cut);
        block->entries[block->count].name = tensor->node.hash;
        block->entries[block->count].group = tensor->says.group;
        block->entries[block->count++].what = HLT_KIND_WITHDRAW;
    }
}

void hlt_round_fill(struct hlt_core *core)
{
    struct hlt_block *block = &core->rounds.blocks[core->rank];
    struct hlt_tensor *tensor;
    while (block->count < HLT_ROUND_ENTRIES && !begun(core) &&
           (tensor = hlt_tensor_list_pop(&core->pending)) != NULL) {
        struct hlt_announcement *entry = &block->entries[block->count];
        core->rounds.said[block->count++] = tensor;
        *entry = tensor->says;
        entry->wait = tensor->says.wait << HLT_MARK_BITS |
                      (tensor->says.wait < core->learnt.replayed_until ? HLT_PART_REPLAYED : 0) |
                      (tensor->in == tensor->out ? HLT_IN_PLACE : 0);
        hlt_tensor_list_push(tensor->kind == HLT_KIND_JOIN ? &core->joining : &core->waiting,
                             tensor);
    }
}

void hlt_round_failed(struct hlt_core *core, int code, const char *text)
{
    char both[HLT_TEXT_BYTES];
    if (code == HALAY_EPEER && core->rounds.missed[0]) { /* why the others have left */
        snprintf(both, sizeof(both), "%.640s. Since then %.360s", core->rounds.missed, text);
        hlt_core_break(core, HALAY_ETIMEOUT, both);
        return;
    }
    hlt_core_break(core, code, text);
}

void hlt_rounds_end(struct hlt_core *core)
{
    int code = core->broken ? core->broken : HALAY_ESTATE;
    const char *text = core->broken ? core->broken_text : "the trainer was destroyed";
    hlt_tensor_list_end(core, &core->pending, code, text);
    hlt_tensor_list_end(core, &core->waiting, code, text);
    hlt_tensor_list_end(core, &core->pool, code, text);
    hlt_tensor_list_end(core, &core->joining, code, text);
}
