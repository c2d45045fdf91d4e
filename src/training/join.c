/* SPDX-License-Identifier: Apache-2.0 */
/*
 * join.c - a rank that has no more data joins: until all have, its part of what the others reduce
 * is zeros; docs/decisions/0020. Who has joined is what the rounds have said: equal on all ranks.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "trainer.h"

static int has_joined(const halay_trainer_t *trainer, int rank)
{
    return hlt_rank_in(trainer->joined, rank);
}

int hlt_join_missing(const halay_trainer_t *trainer, const struct hlt_record *record, int rank)
{
    return !hlt_rank_in(record->announced, rank) && !has_joined(trainer, rank);
}

int hlt_join_complete(const halay_trainer_t *trainer, const struct hlt_record *record)
{
    int present = record->nannounced;
    for (int r = 0; trainer->njoined && r < trainer->nranks; r++)
        present += has_joined(trainer, r) && !hlt_rank_in(record->announced, r);
    return present == trainer->nranks;
}

int hlt_join_absent(const halay_trainer_t *trainer, const struct hlt_record *record)
{
    for (int r = 0; trainer->njoined && r < trainer->nranks; r++)
        if (has_joined(trainer, r) && !hlt_rank_in(record->announced, r))
            return r;
    return -1;
}

int hlt_join_takes(const struct hlt_announcement *says)
{
    halay_op_t op = hlt_announcement_op(says);
    int kind = hlt_announcement_kind(says);
    return kind == HLT_KIND_BARRIER ||
           (kind == HLT_KIND_ALLREDUCE && (op == HALAY_SUM || op == HALAY_AVERAGE));
}

uint64_t hlt_join_kinds(const halay_trainer_t *trainer)
{
    uint64_t kinds = UINT64_C(1) << HALAY_MEMORY_HOST;
    for (uint32_t kind = 0; !hlt_trainer_forked(trainer) && kind < HALAY_MEMORY_KINDS; kind++) {
        void *address = NULL;
        if (kind == HALAY_MEMORY_HOST || halay_local_alloc(trainer->context, kind, 1, &address))
            continue;
        kinds |= UINT64_C(1) << kind;
        halay_local_free(trainer->context, kind, address);
    }
    return kinds;
}

int hlt_join_lacks(const halay_trainer_t *trainer, const struct hlt_record *record)
{
    uint32_t memory = hlt_agreed_memory(&record->first);
    if (hlt_announcement_kind(&record->first) == HLT_KIND_BARRIER)
        return -1;
    for (int r = 0; trainer->njoined && r < trainer->nranks; r++)
        if (has_joined(trainer, r) && !hlt_rank_in(record->announced, r) &&
            !(trainer->joined_kinds[r] >> memory & 1))
            return r;
    return -1;
}

/* Nobody waits for the stand-in, and no name leads to it. */
struct hlt_tensor *hlt_join_stand_in(halay_trainer_t *trainer, const struct hlt_record *record)
{
    const struct hlt_announcement *says = &record->first;
    halay_type_t type = hlt_announcement_type(says);
    size_t bytes = says->count * halay_type_bytes(type);
    uint32_t memory = hlt_agreed_memory(says);
    const int fits = says->count <= PTRDIFF_MAX / 4 / halay_type_bytes(type); /* others say so */
    char *zeros = fits ? hlt_memory_alloc(trainer, memory, 2 * bytes) : NULL;
    if (zeros && hlt_memory_zero(trainer, memory, zeros, 2 * bytes)) {
        hlt_memory_free(trainer, memory, zeros);
        zeros = NULL;
    }
    pthread_mutex_lock(&trainer->mutex);
    struct hlt_tensor *tensor = zeros ? hlt_tensor_take(trainer) : NULL;
    pthread_mutex_unlock(&trainer->mutex);
    if (!tensor) {
        hlt_memory_free(trainer, memory, zeros);
        return NULL;
    }
    assert(hlt_announcement_kind(says) == HLT_KIND_ALLREDUCE);
    tensor->says = *says;
    tensor->result = zeros;
    tensor->memory = memory;
    tensor->in = zeros;
    tensor->out = record->marks & HLT_IN_PLACE ? zeros : zeros + bytes;
    tensor->count = says->count;
    tensor->type = type;
    tensor->op = hlt_announcement_op(says);
    tensor->kind = HLT_KIND_ALLREDUCE;
    memcpy(&tensor->prescale, &says->prescale, sizeof(tensor->prescale));
    memcpy(&tensor->postscale, &says->postscale, sizeof(tensor->postscale));
    tensor->series = 0;
    tensor->fusion = tensor->start_ns = tensor->ready_ns = 0;
    tensor->buffer = HLT_BUFFERS;
    tensor->notices = 0;
    tensor->behind = NULL;
    tensor->unready = 0;
    tensor->submit_ns = hlt_trainer_now_ns();
    tensor->code = 0;
    tensor->stand_in = 1;
    return tensor;
}

static int by_sequence(const void *a, const void *b)
{
    const struct hlt_record *const *one = a, *const *other = b;
    return ((*one)->sequence > (*other)->sequence) - ((*one)->sequence < (*other)->sequence);
}

/* Completes what waited for this rank only, in the order of the first announcements. */
static int records_complete(halay_trainer_t *trainer)
{
    size_t count = 0;
    struct hlt_record **found = malloc((trainer->records.count + 1) * sizeof(struct hlt_record *));
    if (!found || hlt_round_reserve(trainer, trainer->records.count)) {
        free(found);
        return HALAY_ENOMEM;
    }
    for (size_t i = 0; i <= trainer->records.mask; i++)
        for (struct hlt_node *node = trainer->records.buckets[i]; node; node = node->next)
            if (hlt_join_complete(trainer, (struct hlt_record *)node))
                found[count++] = (struct hlt_record *)node;
    qsort(found, count, sizeof(struct hlt_record *), by_sequence);
    for (size_t i = 0; i < count; i++)
        hlt_record_complete(trainer, found[i]);
    free(found);
    return 0;
}

/* While this rank still replays, a join completes nothing. */
int hlt_join_said(halay_trainer_t *trainer, int rank, uint64_t kinds)
{
    if (has_joined(trainer, rank))
        return HALAY_EINTERNAL;
    trainer->joined_kinds[rank] = (uint8_t)kinds;
    trainer->njoined++;
    hlt_rank_add(trainer->joined, rank);
    trainer->agreed_ns = hlt_trainer_now_ns();
    if (records_complete(trainer))
        return HALAY_ENOMEM;
    if (trainer->njoined < trainer->nranks)
        return 0;
    memset(trainer->joined, 0, hlt_rank_words(trainer->nranks) * sizeof(*trainer->joined));
    trainer->njoined = 0;
    hlt_programme_forget(trainer);
    trainer->nseries = 0; /* a rank that had joined has not seen all */
    struct hlt_tensor *own = hlt_tensor_list_pop(&trainer->joining);
    assert(own && !trainer->joining.head);
    own->result_count = (size_t)rank;
    hlt_tensor_done(trainer, own, 0, NULL);
    return 0;
}

void hlt_join_unsaid(halay_trainer_t *trainer, int rank)
{
    char text[HLT_TEXT_BYTES];
    if (!has_joined(trainer, rank)) /* all have joined in this very round */
        return;
    if (rank == trainer->rank) {
        hlt_text_join(text, trainer);
        hlt_tensor_done(trainer, hlt_tensor_list_pop(&trainer->joining), HALAY_ETIMEOUT, text);
    }
    hlt_rank_remove(trainer->joined, rank);
    trainer->njoined--;
}

uint64_t hlt_join_end_ns(const halay_trainer_t *trainer)
{
    const struct hlt_tensor *own = trainer->joining.head;
    if (!own)
        return 0;
    return (own->submit_ns > trainer->agreed_ns ? own->submit_ns : trainer->agreed_ns) +
           trainer->deadline_ns;
}
