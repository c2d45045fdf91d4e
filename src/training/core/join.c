/* SPDX-License-Identifier: Apache-2.0 */
/*
 * join.c - a rank that has no more data joins. Until all have joined, it takes part in the others'
 * reductions with zeros (docs/decisions/training.md#0020). Ranks join in rounds, so the set of
 * joined ranks is equal on all ranks.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "negotiate.h"

static int has_joined(const struct hlt_core *core, int rank)
{
    return hlt_rank_in(core->joins.ranks, rank);
}

int hlt_join_complete(const struct hlt_core *core, const struct hlt_record *record)
{
    int present = record->nannounced;
    for (int r = 0; core->joins.count && r < core->nranks; r++)
        present += has_joined(core, r) && !hlt_rank_in(record->announced, r);
    return present == core->nranks;
}

int hlt_join_absent(const struct hlt_core *core, const struct hlt_record *record)
{
    for (int r = 0; core->joins.count && r < core->nranks; r++)
        if (has_joined(core, r) && !hlt_rank_in(record->announced, r))
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

int hlt_join_lacks(const struct hlt_core *core, const struct hlt_record *record)
{
    uint32_t memory = hlt_agreed_memory(&record->first);
    if (hlt_announcement_kind(&record->first) == HLT_KIND_BARRIER)
        return -1;
    for (int r = 0; core->joins.count && r < core->nranks; r++)
        if (has_joined(core, r) && !hlt_rank_in(record->announced, r) &&
            !(core->joins.kinds[r] >> memory & 1))
            return r;
    return -1;
}

struct hlt_tensor *hlt_join_stand_in(struct hlt_core *core, const struct hlt_record *record)
{
    const struct hlt_announcement *says = &record->first;
    halay_type_t type = hlt_announcement_type(says);
    /* a peer has sent the count */
    const int fits = says->count <= PTRDIFF_MAX / 4 / halay_type_bytes(type);
    struct hlt_tensor *tensor = fits ? calloc(1, sizeof(*tensor)) : NULL;
    if (!tensor)
        return NULL;
    assert(hlt_announcement_kind(says) == HLT_KIND_ALLREDUCE);
    tensor->says = *says;
    tensor->count = says->count;
    tensor->type = type;
    tensor->op = hlt_announcement_op(says);
    tensor->kind = HLT_KIND_ALLREDUCE;
    memcpy(&tensor->prescale, &says->prescale, sizeof(tensor->prescale));
    memcpy(&tensor->postscale, &says->postscale, sizeof(tensor->postscale));
    tensor->buffer = HLT_BUFFERS;
    tensor->submit_ns = core->now_ns;
    tensor->stand_in = 1;
    core->rounds.stand_ins++;
    return tensor;
}

/* While this rank still replays, a join completes nothing. */
int hlt_join_said(struct hlt_core *core, int rank, uint64_t kinds)
{
    if (has_joined(core, rank))
        return HALAY_EINTERNAL;
    core->joins.kinds[rank] = (uint8_t)kinds;
    core->joins.count++;
    hlt_rank_add(core->joins.ranks, rank);
    core->rounds.agreed_ns = core->now_ns;
    return 0;
}

void hlt_join_over(struct hlt_core *core, int rank)
{
    if (core->joins.count < core->nranks)
        return;
    memset(core->joins.ranks, 0, hlt_rank_words(core->nranks) * sizeof(*core->joins.ranks));
    core->joins.count = 0;
    hlt_programme_forget(core);
    core->learnt.nseries = 0; /* a rank that had joined has not seen all tensors of a series */
    struct hlt_tensor *own = hlt_tensor_list_pop(&core->joining);
    assert(own && !core->joining.head);
    own->result_count = (size_t)rank;
    hlt_tensor_end(core, own, 0, NULL);
}

void hlt_join_unsaid(struct hlt_core *core, int rank)
{
    char text[HLT_TEXT_BYTES];
    if (!has_joined(core, rank)) /* all ranks have joined in this very round */
        return;
    if (rank == core->rank) {
        hlt_text_join(text, core);
        hlt_tensor_end(core, hlt_tensor_list_pop(&core->joining), HALAY_ETIMEOUT, text);
    }
    hlt_rank_remove(core->joins.ranks, rank);
    core->joins.count--;
}

uint64_t hlt_join_end_ns(const struct hlt_core *core)
{
    const struct hlt_tensor *own = core->joining.head;
    if (!own)
        return 0;
    return (own->submit_ns > core->rounds.agreed_ns ? own->submit_ns : core->rounds.agreed_ns) +
           core->deadline_ns;
}
