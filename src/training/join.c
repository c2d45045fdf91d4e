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
    return hly_rank_in(trainer->joined, rank);
}

int hly_join_missing(const halay_trainer_t *trainer, const struct hly_record *record, int rank)
{
    return !hly_rank_in(record->announced, rank) && !has_joined(trainer, rank);
}

int hly_join_complete(const halay_trainer_t *trainer, const struct hly_record *record)
{
    int present = record->nannounced;
    for (int r = 0; trainer->njoined && r < trainer->nranks; r++)
        present += has_joined(trainer, r) && !hly_rank_in(record->announced, r);
    return present == trainer->nranks;
}

int hly_join_absent(const halay_trainer_t *trainer, const struct hly_record *record)
{
    for (int r = 0; trainer->njoined && r < trainer->nranks; r++)
        if (has_joined(trainer, r) && !hly_rank_in(record->announced, r))
            return r;
    return -1;
}

int hly_join_takes(const struct hly_announcement *says)
{
    halay_op_t op = hly_announcement_op(says);
    int kind = hly_announcement_kind(says);
    return kind == HLY_KIND_BARRIER ||
           (kind == HLY_KIND_ALLREDUCE && (op == HALAY_SUM || op == HALAY_AVERAGE));
}

/* Nobody waits for it, and no name leads to it. */
struct hly_tensor *hly_join_ghost(halay_trainer_t *trainer, const struct hly_record *record)
{
    const struct hly_announcement *says = &record->first;
    halay_type_t type = hly_announcement_type(says);
    size_t bytes = says->count * halay_type_bytes(type);
    char *zeros = calloc(2, bytes ? bytes : 1);
    pthread_mutex_lock(&trainer->mutex);
    struct hly_tensor *tensor = zeros ? hly_tensor_take(trainer) : NULL;
    pthread_mutex_unlock(&trainer->mutex);
    if (!tensor) {
        free(zeros);
        return NULL;
    }
    assert(hly_announcement_kind(says) == HLY_KIND_ALLREDUCE);
    tensor->says = *says;
    tensor->result = zeros;
    tensor->in = zeros;
    tensor->out = record->marks & HLY_PLACED ? zeros : zeros + bytes;
    tensor->count = says->count;
    tensor->type = type;
    tensor->op = hly_announcement_op(says);
    tensor->kind = HLY_KIND_ALLREDUCE;
    memcpy(&tensor->prescale, &says->prescale, sizeof(tensor->prescale));
    memcpy(&tensor->postscale, &says->postscale, sizeof(tensor->postscale));
    tensor->series = 0;
    tensor->bond = tensor->start_ns = tensor->ready_ns = 0;
    tensor->buffer = HLY_SLOTS;
    tensor->notices = 0;
    tensor->submit_ns = hly_trainer_now_ns();
    tensor->code = 0;
    tensor->ghost = 1;
    return tensor;
}

static int by_sequence(const void *a, const void *b)
{
    const struct hly_record *const *one = a, *const *other = b;
    return ((*one)->sequence > (*other)->sequence) - ((*one)->sequence < (*other)->sequence);
}

/* What waited for this rank only, in the order in which it was first announced. */
static int records_complete(halay_trainer_t *trainer)
{
    size_t count = 0;
    struct hly_record **found = malloc((trainer->records.count + 1) * sizeof(struct hly_record *));
    if (!found || hly_round_reserve(trainer, trainer->records.count)) {
        free(found);
        return HALAY_ENOMEM;
    }
    for (size_t i = 0; i <= trainer->records.mask; i++)
        for (struct hly_node *node = trainer->records.buckets[i]; node; node = node->next)
            if (hly_join_complete(trainer, (struct hly_record *)node))
                found[count++] = (struct hly_record *)node;
    qsort(found, count, sizeof(struct hly_record *), by_sequence);
    for (size_t i = 0; i < count; i++)
        hly_record_complete(trainer, found[i]);
    free(found);
    return 0;
}

/* While this rank still replays nothing becomes complete by it. */
int hly_join_said(halay_trainer_t *trainer, int rank)
{
    assert(!has_joined(trainer, rank));
    trainer->njoined++;
    hly_rank_add(trainer->joined, rank);
    trainer->agreed_ns = hly_trainer_now_ns();
    if (records_complete(trainer))
        return HALAY_ENOMEM;
    if (trainer->njoined < trainer->nranks)
        return 0;
    memset(trainer->joined, 0, hly_rank_words(trainer->nranks) * sizeof(*trainer->joined));
    trainer->njoined = 0;
    hly_programme_forget(trainer);
    trainer->nseries = 0; /* who had joined has not seen all */
    struct hly_tensor *own = hly_tensor_list_pop(&trainer->joining);
    assert(own && !trainer->joining.head);
    own->result_count = (size_t)rank;
    hly_tensor_done(trainer, own, 0, NULL);
    return 0;
}

void hly_join_unsaid(halay_trainer_t *trainer, int rank)
{
    char text[HLY_TEXT_BYTES];
    if (!has_joined(trainer, rank)) /* in this very round all have joined */
        return;
    if (rank == trainer->rank) {
        hly_text_join(text, trainer);
        hly_tensor_done(trainer, hly_tensor_list_pop(&trainer->joining), HALAY_ETIMEOUT, text);
    }
    hly_rank_remove(trainer->joined, rank);
    trainer->njoined--;
}

uint64_t hly_join_end_ns(const halay_trainer_t *trainer)
{
    const struct hly_tensor *own = trainer->joining.head;
    if (!own)
        return 0;
    return (own->submit_ns > trainer->agreed_ns ? own->submit_ns : trainer->agreed_ns) +
           trainer->deadline_ns;
}
