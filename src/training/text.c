/* SPDX-License-Identifier: Apache-2.0 */
/*
 * text.c - what a user reads when ranks do not agree: both sides, or who is missing.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "trainer.h"

#define BIT(rank) (UINT64_C(1) << ((rank) % 64))

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
    unsigned long long count = says->count, members = says->members;
    const char *type = halay_type_name((halay_type_t)(says->what >> 8 & 0xff));
    at = append(text, at, "rank %d: ", rank);
    switch (hly_announcement_kind(says)) {
    case HLY_KIND_ALLREDUCE:
        at = append(text, at, "allreduce of %llu %s, %s", count, type,
                    halay_op_name((halay_op_t)(says->what >> 16 & 0xff)));
        if (double_of(says->prescale) != 1 || double_of(says->postscale) != 1)
            at = append(text, at, ", scaled by %.17g and %.17g", double_of(says->prescale),
                        double_of(says->postscale));
        return members ? append(text, at, ", in a group of %llu", members) : at;
    case HLY_KIND_BROADCAST:
        return append(text, at, "broadcast of %llu %s from rank %d", count, type,
                      (int)(says->what >> 32));
    case HLY_KIND_ALLGATHER:
        return append(text, at, "allgather of rows of %llu %s", count, type);
    default:
        return append(text, at, "barrier");
    }
}

void hly_text_mismatch(char *text, const struct hly_record *record, const char *name)
{
    int swap = record->other_rank < record->first_rank;
    const struct hly_announcement *low = swap ? &record->other : &record->first;
    const struct hly_announcement *high = swap ? &record->first : &record->other;
    size_t at = append(text, 0, "tensor '%s' differs between ranks: ", name);
    at = append_side(text, at, swap ? record->other_rank : record->first_rank, low);
    at = append(text, at, "; ");
    at = append_side(text, at, swap ? record->first_rank : record->other_rank, high);
    append(text, at, ". Submit it%s alike on all ranks",
           record->first.members || record->other.members ? ", and all of its group," : "");
}

static size_t append_ranks(char *text, size_t at, const halay_trainer_t *trainer,
                           const struct hly_record *record)
{
    int shown = 0, missing = trainer->nranks - record->nannounced;
    for (int r = 0; r < trainer->nranks && shown < 8; r++)
        if (!(record->announced[r / 64] & BIT(r)))
            at = append(text, at, "%s %d (%s)", shown++ ? "," : "", r, trainer->greetings[r].host);
    return missing > shown ? append(text, at, " and %d more", missing - shown) : at;
}

/* What a rank that is missing knows of itself. */
static void append_self(char *text, size_t at, halay_trainer_t *trainer,
                        const struct hly_record *record)
{
    char place[HLY_PLACE_BYTES];
    const struct hly_tensor *waits = trainer->waiting.head;
    hly_stall_place(trainer, record->node.hash, place);
    if (place[0])
        at = append(text, at, ". This rank has submitted it before, first at %s", place);
    if (!waits)
        return;
    hly_stall_place(trainer, waits->node.hash, place);
    at = append(text, at, ". This rank waits for '%s'", waits->name);
    if (place[0])
        append(text, at, " (%s)", place);
}

void hly_text_notice(char *text, halay_trainer_t *trainer, const struct hly_record *record,
                     const struct hly_notice *notice)
{
    int own = (record->announced[trainer->rank / 64] & BIT(trainer->rank)) != 0;
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

void hly_text_timeout(char *text, const halay_trainer_t *trainer, const struct hly_record *record,
                      int rank, const char *name)
{
    size_t at = append(text, 0, "tensor '%s': rank %d has waited for %.3g s; not submitted by rank",
                       name, rank, (double)trainer->deadline_ns * 1e-9);
    at = append_ranks(text, at, trainer, record);
    append(text, at, ". Do all ranks submit the same names? Is one much slower? (HALAY_DEADLINE)");
}
