/* SPDX-License-Identifier: Apache-2.0 */
/* negotiate.h - rounds of negotiation, joins, and the texts of errors. */
#ifndef HLT_NEGOTIATE_H
#define HLT_NEGOTIATE_H

#include "core.h"

/* negotiate.c */
/* 1 if this rank has something to announce, so a round has to begin. */
int hlt_round_due(const struct hlt_core *core);
/* Begins this rank's block: in a replay writes all of it, else the withdrawals. */
void hlt_round_begin(struct hlt_core *core);
/* Moves pending tensors into the block, as far as there is room; they are `waiting` afterwards. */
void hlt_round_fill(struct hlt_core *core);
/* Reads the blocks of all ranks. 1: the caller has to read questions and withdrawals as well. */
int hlt_round_read(struct hlt_core *core);
/* Reads the withdrawals, after all announcements: so an announcement in the last round still
 * counts. */
void hlt_round_withdraw(struct hlt_core *core);
/* The round's allgather has failed: ends all negotiation. */
void hlt_round_failed(struct hlt_core *core, int code, const char *text);
/* No round is under way, and none follows: ends all tensors that are not agreed on. */
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
/* 1 if every rank has announced the tensor or joined. */
int hlt_join_complete(const struct hlt_core *core, const struct hlt_record *record);
/* A joined rank that has not announced it, or -1. */
int hlt_join_absent(const struct hlt_core *core, const struct hlt_record *record);
/* 1 if the tensor completes without the joined ranks. */
int hlt_join_takes(const struct hlt_announcement *says);
/* A joined rank that cannot have zeros of the record's kind of memory; -1: none. */
int hlt_join_lacks(const struct hlt_core *core, const struct hlt_record *record);
/* Makes this rank's stand-in for a tensor that it has not submitted; the shell adds its buffers.
 * NULL: no memory. */
struct hlt_tensor *hlt_join_stand_in(struct hlt_core *core, const struct hlt_record *record);
/* The rank has announced its join. HALAY_EINTERNAL: it has joined before. */
int hlt_join_said(struct hlt_core *core, int rank, uint64_t kinds);
/* Ends the join on all ranks, if the rank was the last one to join. */
void hlt_join_over(struct hlt_core *core, int rank);
/* The rank has taken its join back. */
void hlt_join_unsaid(struct hlt_core *core, int rank);
/* When this rank takes its join back; 0: it has none. */
uint64_t hlt_join_end_ns(const struct hlt_core *core);

/* A notice: what a rank has waited for, as that rank tells it. */
struct hlt_notice {
    int rank, others; /* others: more tensors that wait for the same ranks */
    uint64_t waited_ns;
    const char *name, *place;
    const char *here, *waits; /* where this rank has submitted the tensor; where it waits itself */
};

/* text.c: writes a message; text: HLT_TEXT_BYTES */
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
