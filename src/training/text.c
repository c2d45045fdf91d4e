/* SPDX-License-Identifier: Apache-2.0 */
/*
 * text.c - what a user reads when ranks do not agree: both sides, or who is missing.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "trainer.h"

__attribute__((format(printf, 3, 4))) static size_t append(char *text, size_t at,
                                                           const char *format, ...)
{
    if (at >= HLT_TEXT_BYTES)
        return at;
    va_list arguments;
    va_start(arguments, format);
    int bytes = vsnprintf(text + at, HLT_TEXT_BYTES - at, format, arguments);
    va_end(arguments);
    return at + (bytes > 0 ? (size_t)bytes : 0);
}

static double double_of(uint64_t bits)
{
    double value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

/* " of [2, 3] float32", or " of 6 float32" without a shape. */
static size_t append_size(char *text, size_t at, const struct hlt_announcement *says)
{
    const char *type = halay_type_name(hlt_announcement_type(says));
    if (!says->shape[0])
        return append(text, at, " of %llu %s", (unsigned long long)says->count, type);
    at = append(text, at, " of [");
    for (uint32_t d = 1; d < says->shape[0]; d++) {
        at = append(text, at, d > 1 ? ", " : "");
        at = says->shape[d] == HLT_DIM_LARGE ? append(text, at, "2^32 or more")
                                             : append(text, at, "%u", (unsigned)says->shape[d]);
    }
    return append(text, at, "] %s", type);
}

static size_t append_side(char *text, size_t at, int rank, const struct hlt_announcement *says)
{
    unsigned long long members = says->members;
    at = append(text, at, "rank %d: ", rank);
    switch (hlt_announcement_kind(says)) {
    case HLT_KIND_ALLREDUCE:
    case HLT_KIND_REDUCE_SCATTER:
        at = append(text, at,
                    hlt_announcement_kind(says) == HLT_KIND_ALLREDUCE ? "allreduce"
                                                                      : "reduce_scatter");
        at = append_size(text, at, says);
        at = append(text, at, ", %s", halay_op_name(hlt_announcement_op(says)));
        if (double_of(says->prescale) != 1 || double_of(says->postscale) != 1)
            at = append(text, at, ", scaled by %.17g and %.17g", double_of(says->prescale),
                        double_of(says->postscale));
        return members ? append(text, at, ", in a group of %llu", members) : at;
    case HLT_KIND_BROADCAST:
        at = append_size(text, append(text, at, "broadcast"), says);
        return append(text, at, " from rank %d", (int)(says->what >> 32));
    case HLT_KIND_ALLGATHER:
        return append_size(text, append(text, at, "allgather of rows"), says);
    case HLT_KIND_ALLTOALL:
        return append_size(text, append(text, at, "alltoall of rows"), says);
    default:
        return append(text, at, "barrier");
    }
}

static size_t append_memory_of(char *text, size_t at, uint32_t memory)
{
    if (memory == HALAY_MEMORY_CUDA)
        return append(text, at, ", in a GPU's memory (CUDA)");
    return memory == HALAY_MEMORY_HOST ? append(text, at, ", in the host's memory")
                                       : append(text, at, ", in memory of kind %u", memory);
}

/* Where the tensor is, if that is what differs. */
static size_t append_memory(char *text, size_t at, const struct hlt_announcement *says,
                            const struct hlt_announcement *other)
{
    uint32_t memory = hlt_announcement_memory(says);
    int same = hlt_memory_alike(says, other) || memory == hlt_announcement_memory(other);
    return same ? at : append_memory_of(text, at, memory);
}

void hlt_text_mismatch(char *text, const struct hlt_record *record, const char *name)
{
    int swap = record->other_rank < record->first_rank;
    const struct hlt_announcement *low = swap ? &record->other : &record->first;
    const struct hlt_announcement *high = swap ? &record->first : &record->other;
    size_t at = append(text, 0, "tensor '%s' differs between ranks: ", name);
    at = append_side(text, at, swap ? record->other_rank : record->first_rank, low);
    at = append_memory(text, at, low, high);
    at = append(text, at, "; ");
    at = append_side(text, at, swap ? record->first_rank : record->other_rank, high);
    at = append_memory(text, at, high, low);
    append(text, at, ". Submit it%s alike on all ranks",
           record->first.members || record->other.members ? ", and all of its group," : "");
}

void hlt_text_unsupported(char *text, const halay_trainer_t *trainer,
                          const struct hlt_record *record, int rank)
{
    size_t at =
        append(text, 0, "rank %d (%s) has joined, and cannot be part of what others have: ", rank,
               trainer->greetings[rank].host);
    at = append_side(text, at, record->first_rank, &record->first);
    append(text, at,
           ". While a rank has joined only allreduces with sum or average, and barriers, go on");
}

void hlt_text_lacks(char *text, const halay_trainer_t *trainer, const struct hlt_record *record,
                    int rank)
{
    size_t at = append(text, 0, "rank %d (%s) has joined, and has no memory for its zeros: ", rank,
                       trainer->greetings[rank].host);
    at = append_side(text, at, record->first_rank, &record->first);
    at = append_memory_of(text, at, hlt_agreed_memory(&record->first));
    append(text, at, ". Submit a tensor in memory of that kind on each rank before one joins");
}

void hlt_text_join(char *text, const halay_trainer_t *trainer)
{
    size_t at = append(text, 0, "join: nothing was agreed on for %.3g s; not joined:",
                       (double)trainer->deadline_ns * 1e-9);
    int shown = 0;
    for (int r = 0; r < trainer->nranks && shown < 8; r++)
        if (!hlt_rank_in(trainer->joined, r))
            at = append(text, at, "%s rank %d (%s)", shown++ ? "," : "", r,
                        trainer->greetings[r].host);
    if (trainer->nranks - trainer->njoined > shown)
        at = append(text, at, " and %d more", trainer->nranks - trainer->njoined - shown);
    append(text, at, ". Do all ranks join? Is one much slower? (HALAY_DEADLINE)");
}

static size_t append_ranks(char *text, size_t at, const halay_trainer_t *trainer,
                           const struct hlt_record *record)
{
    int shown = 0, missing = 0;
    for (int r = 0; r < trainer->nranks; r++) {
        missing += hlt_join_missing(trainer, record, r);
        if (hlt_join_missing(trainer, record, r) && shown < 8)
            at = append(text, at, "%s %d (%s)", shown++ ? "," : "", r, trainer->greetings[r].host);
    }
    return missing > shown ? append(text, at, " and %d more", missing - shown) : at;
}

/* What a rank that is missing knows of itself. */
static void append_self(char *text, size_t at, halay_trainer_t *trainer,
                        const struct hlt_record *record)
{
    char place[HLT_PLACE_BYTES];
    const struct hlt_tensor *waits = trainer->waiting.head;
    hlt_stall_place(trainer, record->node.hash, place);
    if (place[0])
        at = append(text, at, ". This rank has submitted it before, first at %s", place);
    if (!waits)
        return;
    hlt_stall_place(trainer, waits->node.hash, place);
    at = append(text, at, ". This rank waits for '%s'", waits->name);
    if (place[0])
        append(text, at, " (%s)", place);
}

void hlt_text_notice(char *text, halay_trainer_t *trainer, const struct hlt_record *record,
                     const struct hlt_notice *notice)
{
    int own = hlt_rank_in(record->announced, trainer->rank);
    size_t at = append(text, 0, "'%s'", notice->name);
    if (notice->others)
        at = append(text, at, " and %d more", notice->others);
    at = append(text, at, " not submitted by rank");
    at = append_ranks(text, at, trainer, record);
    at = append(text, at, "; rank %d has waited for it for %.3g s", notice->rank, notice->waited_s);
    if (notice->place[0])
        at = append(text, at, " (%s)", notice->place);
    if (!own)
        append_self(text, at, trainer, record);
}

void hlt_text_timeout(char *text, const halay_trainer_t *trainer, const struct hlt_record *record,
                      int rank, const char *name)
{
    size_t at = append(text, 0, "tensor '%s': rank %d has waited for %.3g s; not submitted by rank",
                       name, rank, (double)trainer->deadline_ns * 1e-9);
    at = append_ranks(text, at, trainer, record);
    append(text, at, ". Do all ranks submit the same names? Is one much slower? (HALAY_DEADLINE)");
}
