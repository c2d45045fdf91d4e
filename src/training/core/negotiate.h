/* SPDX-License-Identifier: Apache-2.0 */
/*
 * negotiate.h - rounds, who has joined, and what a user reads when ranks do not agree.
 */
#ifndef HLT_NEGOTIATE_H
#define HLT_NEGOTIATE_H

#include "core.h"

/* negotiate.c */
/* This rank has something to say: a round is to begin. */
int hlt_round_due(const struct hlt_core *core);
/* Writes what goes first into this rank's block: in a replay all of it, else what it withdraws. */
void hlt_round_begin(struct hlt_core *core);
/* What was pending goes into the block as far as there is room, and is waiting afterwards. */
void hlt_round_fill(struct hlt_core *core);
/* All blocks are here. 1: questions and withdrawals are to be read as well. */
int hlt_round_read(struct hlt_core *core);
/* Withdrawals are read after all announcements: what came at the last moment still counts. */
void hlt_round_withdraw(struct hlt_core *core);
void hlt_round_failed(struct hlt_core *core, int code, const char *text);
/* No round is out, and none comes any more: ends what is not agreed on. */
void hlt_rounds_end(struct hlt_core *core);
/* When the next tensor that waits for other ranks reaches its deadline; 0: none waits. */
uint64_t hlt_round_end_ns(const struct hlt_core *core);
void hlt_round_records_free(struct hlt_core *core);

/* join.c */
/* 1 if the rank has neither announced it nor joined. */
static inline int hlt_join_missing(const struct hlt_core *core, const struct hlt_record *record,
                                   int rank)
{
    return !hlt_rank_in(record->announced, rank) && !hlt_rank_in(core->joins.ranks, rank);
}
int hlt_join_complete(const struct hlt_core *core, const struct hlt_record *record);
/* A joined rank that has not announced it, or -1. */
int hlt_join_absent(const struct hlt_core *core, const struct hlt_record *record);
/* 1 if it goes on without the joined ranks. */
int hlt_join_takes(const struct hlt_announcement *says);
/* A joined rank that cannot have zeros of the record's kind of memory; -1: none. */
int hlt_join_lacks(const struct hlt_core *core, const struct hlt_record *record);
/* This rank's stand-in for what it has not submitted, without its memory. NULL: no memory. */
struct hlt_tensor *hlt_join_stand_in(struct hlt_core *core, const struct hlt_record *record);
/* Returns HALAY_EINTERNAL where the rank has joined before. */
int hlt_join_said(struct hlt_core *core, int rank, uint64_t kinds);
/* What waited for this rank only is complete: are these all ranks? */
void hlt_join_over(struct hlt_core *core, int rank);
void hlt_join_unsaid(struct hlt_core *core, int rank);
/* When this rank takes its join back; 0: it has none. */
uint64_t hlt_join_end_ns(const struct hlt_core *core);

/* Which rank has waited for what, as that rank says. */
struct hlt_notice {
    int rank, others; /* others: more tensors that wait for the same ranks */
    uint64_t waited_ns;
    const char *name, *place;
    const char *here, *waits; /* where this rank has submitted it, and what it waits for itself */
};

/* text.c; text: HLT_TEXT_BYTES */
void hlt_text_notice(char *text, const struct hlt_core *core, const struct hlt_record *record,
                     const struct hlt_notice *notice);
void hlt_text_mismatch(char *text, const struct hlt_record *record, const char *name);
void hlt_text_unsupported(char *text, const struct hlt_core *core, const struct hlt_record *record,
                          int rank);
/* A joined rank has no memory of the kind. */
void hlt_text_lacks(char *text, const struct hlt_core *core, const struct hlt_record *record,
                    int rank);
void hlt_text_join(char *text, const struct hlt_core *core);
void hlt_text_timeout(char *text, const struct hlt_core *core, const struct hlt_record *record,
                      int rank, const char *name);

#endif
