/* SPDX-License-Identifier: Apache-2.0 */
/*
 * calls.h - the calls on the data communicator: fused groups and their buffers, votes, exchanges.
 */
#ifndef HLT_CALLS_H
#define HLT_CALLS_H

#include "../core/core.h"

enum {
    HLT_CALLS = 12,      /* in flight; below the core's window of 16 */
    HLT_EXCHANGES = 1024 /* alltoalls of which the rows are remembered */
};

enum hlt_call_kind {
    HLT_CALL_FAREWELL,
    HLT_CALL_DIRECT,
    HLT_CALL_FUSED,
    HLT_CALL_VOTE,
    HLT_CALL_EXCHANGE,
    HLT_CALL_TUNE /* the ranks' times, or a kept setting: tune.c */
};

/* In a device's memory moves follow a call, and the trainer goes on meanwhile. */
enum hlt_phase {
    HLT_PHASE_CALL,  /* it runs */
    HLT_PHASE_MARK,  /* it is over, and its group's mark comes down to the host */
    HLT_PHASE_RESULT /* the results are taken out of its fusion buffer, or scaled */
};

/* A call on the data communicator. */
struct hlt_call {
    enum hlt_call_kind kind;
    halay_request_t *request;
    struct hlt_list tensors; /* empty where this rank is void */
    struct hlt_group *group; /* of the programme; NULL: rounds have made it ready, or its
                                result is known, and the moves that follow are under way */
    uint64_t sequence;       /* of the group */
    uint64_t start_ns;
    uint64_t begin_ns, packed_ns, reduced_ns; /* while a timeline is on */
    enum hlt_phase phase;
    halay_mark_t *moves; /* those that follow the call; NULL: none are under way */
    int code;            /* why they could not be started */
    int buffer;          /* its fusion buffer; -1: none */
    size_t count;        /* fused: elements, without the marks */
};

/* A fusion buffer. */
struct hlt_buffer {
    char *memory;
    char *marks;   /* of its group in a device's memory, as the processor sees them */
    uint32_t kind; /* HALAY_MEMORY_* */
    size_t bytes;
    int used;
};

struct hlt_fusion {
    struct hlt_buffer buffers[HLT_BUFFERS];
};

/* How many rows of an alltoall went where when its ranks last told each other; see exchange.c. */
struct hlt_exchange {
    struct hlt_node node; /* the first member */
    size_t rows[];        /* as in hlt_tensor.rows */
};

struct hlt_exchanges {
    struct hlt_map map;                        /* remembered, by name */
    struct hlt_exchange *order[HLT_EXCHANGES]; /* a ring of the same, by age */
    size_t count;
};

struct hlt_calls {
    struct hlt_call at[HLT_CALLS];
    int count;
    int voting; /* a vote, an exchange or a tuning is out: nothing is started before its result */
    int broken; /* the code of a call that could not be made, so the order is lost */
    size_t *counts;  /* two for each rank, for a call */
    uint64_t *votes; /* of all ranks, of the vote in flight */
    char *marks;     /* of all fusion buffers */
    halay_mark_t moves[HLT_CALLS];
    uint32_t moving; /* a bit for each of moves[] that is in use */
};

/* execute.c; stepper, without the mutex */
void hlt_calls_step(halay_trainer_t *trainer);
/* When the oldest group, or tuning, in flight began; 0: none is out. */
uint64_t hlt_calls_oldest_ns(const halay_trainer_t *trainer);

/* exchange.c; stepper, without the mutex */
/* 1 if this rank remembers no rows for the name, or others than it has now. */
int hlt_exchange_needed(const halay_trainer_t *trainer, const struct hlt_tensor *tensor);
/* No rank needs an exchange: the tensor gets the rows that are remembered. */
void hlt_exchange_recall(const halay_trainer_t *trainer, struct hlt_tensor *tensor);
/* An exchange is over: its rows are remembered. */
void hlt_exchange_keep(halay_trainer_t *trainer, const struct hlt_tensor *tensor);
void hlt_exchanges_free(halay_trainer_t *trainer);

/* fuse.c */
/* Takes a fusion buffer of so many bytes. HALAY_EAGAIN: all are in use. Or HALAY_ENOMEM. */
int hlt_fuse_free(const halay_trainer_t *trainer); /* 1 if there is one */
int hlt_fuse_buffer(halay_trainer_t *trainer, uint32_t memory, size_t bytes, int *buffer);
/* at: in the host's memory */
void hlt_fuse_mark(const halay_trainer_t *trainer, char *at, halay_type_t type, halay_op_t op,
                   int empty);
int hlt_fuse_marked(const halay_trainer_t *trainer, const char *at, halay_type_t type,
                    halay_op_t op);
/* Packs tensors into a buffer, or unpacks them. In a device's memory this starts the moves: they
 * precede the next call, or follow one if there is a mark. */
int hlt_fuse_copy(halay_trainer_t *trainer, uint32_t memory, char *buffer,
                  const struct hlt_list *tensors, int pack, halay_mark_t *mark);

/* tune_file.c; rank 0's */
void hlt_tune_refuse(const char *why);
/* What an earlier job has kept goes into the words that the ranks are to reduce. */
void hlt_tune_recall(struct hlt_core *core);
/* Says what the core has found out in this event, if anything. */
void hlt_tune_speak(struct hlt_core *core);

#endif
