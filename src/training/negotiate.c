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
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trainer.h"

#define BLOCK_WORDS (sizeof(struct hly_block) / sizeof(uint64_t))
#define BIT(rank)   (UINT64_C(1) << ((rank) % 64))

uint64_t hly_tensor_what(int kind, halay_type_t type, halay_op_t op, int root)
{
    return (uint64_t)kind | (uint64_t)type << 8 | (uint64_t)op << 16 | (uint64_t)root << 32;
}

static int kind_of(const struct hly_announcement *says)
{
    return (int)(says->what & 0xff);
}

/* ------------------------------------------------------------------ texts */

__attribute__((format(printf, 3, 4))) static size_t append(char *text, size_t at,
                                                           const char *format, ...)
{
    if (at >= HLY_TEXT_BYTES)
        return at;
    va_list arguments;
    va_start(arguments, format);
    int bytes = vsnprintf(text + at, HLY_TEXT_BYTES - at, format, arguments);
    va_end(arguments);
    return at + (bytes > 0 ? (size_t)bytes : 0);
}

static double double_of(uint64_t bits)
{
    double value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

static size_t append_side(char *text, size_t at, int rank, const struct hly_announcement *says)
{
    unsigned long long count = says->count;
    const char *type = halay_type_name((halay_type_t)(says->what >> 8 & 0xff));
    at = append(text, at, "rank %d: ", rank);
    switch (kind_of(says)) {
    case HLY_KIND_ALLREDUCE:
        at = append(text, at, "allreduce of %llu %s, %s", count, type,
                    halay_op_name((halay_op_t)(says->what >> 16 & 0xff)));
        if (double_of(says->prescale) != 1 || double_of(says->postscale) != 1)
            at = append(text, at, ", scaled by %.17g and %.17g", double_of(says->prescale),
                        double_of(says->postscale));
        return at;
    case HLY_KIND_BROADCAST:
        return append(text, at, "broadcast of %llu %s from rank %d", count, type,
                      (int)(says->what >> 32));
    case HLY_KIND_ALLGATHER:
        return append(text, at, "allgather of rows of %llu %s", count, type);
    default:
        return append(text, at, "barrier");
    }
}

static void mismatch_text(const struct hly_record *record, const char *name, char *text)
{
    int swap = record->other_rank < record->first_rank;
    const struct hly_announcement *low = swap ? &record->other : &record->first;
    const struct hly_announcement *high = swap ? &record->first : &record->other;
    size_t at = append(text, 0, "tensor '%s' differs between ranks: ", name);
    at = append_side(text, at, swap ? record->other_rank : record->first_rank, low);
    at = append(text, at, "; ");
    at = append_side(text, at, swap ? record->first_rank : record->other_rank, high);
    append(text, at, ". Submit it alike on all ranks");
}

static void timeout_text(const halay_trainer_t *trainer, const struct hly_record *record, int rank,
                         const char *name, char *text)
{
    size_t at = append(text, 0, "tensor '%s': rank %d has waited for %.3g s; not submitted by rank",
                       name, rank, (double)trainer->deadline_ns * 1e-9);
    int shown = 0, missing = trainer->nranks - record->nannounced;
    for (int r = 0; r < trainer->nranks && shown < 8; r++)
        if (!(record->announced[r / 64] & BIT(r)))
            at = append(text, at, shown++ ? ", %d" : " %d", r);
    if (missing > shown)
        at = append(text, at, " and %d more", missing - shown);
    append(text, at, ". Do all ranks submit the same names? Is one much slower? (HALAY_DEADLINE)");
}

/* ------------------------------------------------------------------ records */

static struct hly_record *record_take(halay_trainer_t *trainer, const struct hly_announcement *says,
                                      int rank)
{
    size_t words = ((size_t)trainer->nranks + 63) / 64;
    struct hly_record *record = trainer->unused_records;
    if (record)
        trainer->unused_records = record->next;
    else if (!(record = calloc(1, sizeof(*record) + words * sizeof(uint64_t))))
        return NULL;
    if (kind_of(says) == HLY_KIND_ALLGATHER && !record->rows &&
        !(record->rows = calloc((size_t)trainer->nranks, sizeof(*record->rows)))) {
        hly_round_record_give(trainer, record);
        return NULL;
    }
    memset(record->announced, 0, words * sizeof(uint64_t));
    record->nannounced = 0;
    record->first = *says;
    record->first_rank = rank;
    record->other_rank = -1;
    record->node.hash = says->name;
    hly_tensor_map_add(&trainer->records, &record->node);
    return record;
}

void hly_round_record_give(halay_trainer_t *trainer, struct hly_record *record)
{
    record->next = trainer->unused_records;
    trainer->unused_records = record;
}

static void record_free(struct hly_record *record)
{
    free(record->rows);
    free(record);
}

void hly_round_records_free(halay_trainer_t *trainer)
{
    for (size_t i = 0; i <= trainer->records.mask; i++) {
        for (struct hly_node *node = trainer->records.buckets[i], *next; node; node = next) {
            next = node->next;
            record_free((struct hly_record *)node);
        }
    }
    while (trainer->unused_records) {
        struct hly_record *record = trainer->unused_records;
        trainer->unused_records = record->next;
        record_free(record);
    }
}

static int alike(const struct hly_announcement *a, const struct hly_announcement *b)
{
    return a->what == b->what && a->count == b->count && a->prescale == b->prescale &&
           a->postscale == b->postscale;
}

/* This rank's tensor of a record that it has announced. */
static struct hly_tensor *tensor_of(halay_trainer_t *trainer, const struct hly_record *record)
{
    pthread_mutex_lock(&trainer->mutex);
    struct hly_node *node = hly_tensor_map_find(&trainer->names, record->node.hash);
    pthread_mutex_unlock(&trainer->mutex);
    assert(node);
    hly_tensor_list_remove(&trainer->waiting, (struct hly_tensor *)node);
    return (struct hly_tensor *)node;
}

/* All ranks have announced it, and all come to this point at the same place in the same round. */
static void record_complete(halay_trainer_t *trainer, struct hly_record *record)
{
    char text[HLY_TEXT_BYTES];
    struct hly_tensor *tensor = tensor_of(trainer, record);
    hly_tensor_map_remove(&trainer->records, &record->node);
    tensor->record = record;
    if (record->other_rank >= 0) {
        mismatch_text(record, tensor->name, text);
        hly_tensor_done(trainer, tensor, HALAY_EMISMATCH, text);
    } else if (tensor->kind == HLY_KIND_BARRIER) {
        hly_tensor_done(trainer, tensor, 0, NULL); /* that all have announced it was the point */
    } else {
        hly_tensor_list_push(&trainer->ready, tensor);
    }
}

static int announced(halay_trainer_t *trainer, int rank, const struct hly_announcement *says)
{
    struct hly_record *record =
        (struct hly_record *)hly_tensor_map_find(&trainer->records, says->name);
    if (!record && !(record = record_take(trainer, says, rank)))
        return HALAY_ENOMEM;
    assert(!(record->announced[rank / 64] & BIT(rank)));
    record->announced[rank / 64] |= BIT(rank);
    record->nannounced++;
    if (record->other_rank < 0 && !alike(&record->first, says)) {
        record->other = *says;
        record->other_rank = rank;
    }
    if (kind_of(&record->first) == HLY_KIND_ALLGATHER)
        record->rows[rank] = says->rows;
    if (record->nannounced == trainer->nranks)
        record_complete(trainer, record);
    return 0;
}

/* Comes after all announcements of the round: who came in the last moment has come. */
static void withdrawn(halay_trainer_t *trainer, int rank, uint64_t name)
{
    char text[HLY_TEXT_BYTES];
    struct hly_record *record = (struct hly_record *)hly_tensor_map_find(&trainer->records, name);
    if (!record)
        return;
    hly_tensor_map_remove(&trainer->records, &record->node);
    if (record->announced[trainer->rank / 64] & BIT(trainer->rank)) {
        struct hly_tensor *tensor = tensor_of(trainer, record);
        timeout_text(trainer, record, rank, tensor->name, text);
        hly_tensor_done(trainer, tensor, HALAY_ETIMEOUT, text);
    }
    hly_round_record_give(trainer, record);
}

/* ------------------------------------------------------------------ rounds */

static void round_read(halay_trainer_t *trainer)
{
    int rc = 0;
    for (int r = 0; r < trainer->nranks && !rc; r++) {
        const struct hly_block *block = &trainer->blocks[r];
        assert(block->count <= HLY_ROUND_ENTRIES);
        for (uint64_t i = 0; i < block->count && !rc; i++)
            if (kind_of(&block->entries[i]) != HLY_KIND_WITHDRAW)
                rc = announced(trainer, r, &block->entries[i]);
    }
    if (rc) {
        hly_trainer_break(trainer, rc, "no memory for what the other ranks announced");
        return;
    }
    for (int r = 0; r < trainer->nranks; r++) {
        const struct hly_block *block = &trainer->blocks[r];
        for (uint64_t i = 0; i < block->count; i++)
            if (kind_of(&block->entries[i]) == HLY_KIND_WITHDRAW)
                withdrawn(trainer, r, block->entries[i].name);
    }
}

/* Tensors time out in the order in which they were announced. */
static int expired(const halay_trainer_t *trainer, const struct hly_tensor *tensor, uint64_t now)
{
    return tensor && now - tensor->submit_ns >= trainer->deadline_ns;
}

/* What this rank has to say; afterwards what was pending is waiting. */
static void block_write(halay_trainer_t *trainer)
{
    struct hly_block *block = &trainer->blocks[trainer->rank];
    struct hly_tensor *tensor;
    uint64_t now = hly_trainer_now_ns();
    memset(block, 0, sizeof(*block));
    for (tensor = trainer->waiting.head;
         expired(trainer, tensor, now) && block->count < HLY_ROUND_ENTRIES; tensor = tensor->next) {
        block->entries[block->count].name = tensor->node.hash;
        block->entries[block->count++].what = HLY_KIND_WITHDRAW;
    }
    while (block->count < HLY_ROUND_ENTRIES &&
           (tensor = hly_tensor_list_pop(&trainer->pending)) != NULL) {
        block->entries[block->count++] = tensor->says;
        hly_tensor_list_push(&trainer->waiting, tensor);
    }
}

/* Ranks that leave when all is done break the communicator too: only who waits asks why. */
static int round_needed(halay_trainer_t *trainer)
{
    int called = 0;
    if (trainer->pending.head || expired(trainer, trainer->waiting.head, hly_trainer_now_ns()))
        return 1;
    return !halay_comm_called(trainer->control, &called) &&
           (called == 1 || (called == 2 && trainer->waiting.head));
}

static void tensors_end(halay_trainer_t *trainer, struct hly_list *list, int code, const char *text)
{
    struct hly_tensor *tensor;
    while ((tensor = hly_tensor_list_pop(list)) != NULL)
        hly_tensor_done(trainer, tensor, code, text);
}

void hly_trainer_break(halay_trainer_t *trainer, int code, const char *text)
{
    if (trainer->broken)
        return;
    trainer->broken = code;
    snprintf(trainer->broken_text, sizeof(trainer->broken_text), "%s", text);
}

/* Returns 1 when a round has come to its end. */
static int round_test(halay_trainer_t *trainer)
{
    char text[HLY_TEXT_BYTES];
    int rc = halay_request_test(trainer->round);
    if (rc == HALAY_INPROGRESS)
        return 0;
    trainer->round = NULL;
    if (rc) {
        hly_trainer_verdict(trainer->control, rc, text, sizeof(text));
        hly_trainer_break(trainer, rc, text);
    } else {
        round_read(trainer);
    }
    return 1;
}

static void round_start(halay_trainer_t *trainer)
{
    char text[HLY_TEXT_BYTES];
    block_write(trainer);
    int rc = halay_iallgather(HALAY_IN_PLACE, trainer->blocks, BLOCK_WORDS, HALAY_UINT64,
                              trainer->control, &trainer->round);
    if (rc) {
        trainer->round = NULL;
        hly_trainer_verdict(trainer->control, rc, text, sizeof(text));
        hly_trainer_break(trainer, rc, text);
    }
}

void hly_round_step(halay_trainer_t *trainer)
{
    do {
        if (!trainer->round && !trainer->broken && !trainer->leaving && round_needed(trainer))
            round_start(trainer);
    } while (trainer->round && round_test(trainer));

    if (trainer->round)
        return;
    int code = trainer->broken ? trainer->broken : HALAY_ESTATE;
    const char *text = trainer->broken ? trainer->broken_text : "the trainer was destroyed";
    if (trainer->broken || trainer->leaving) {
        tensors_end(trainer, &trainer->pending, code, text);
        tensors_end(trainer, &trainer->waiting, code, text);
    }
}
