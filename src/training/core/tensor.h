/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tensor.h - a submitted tensor. The core reads its announcement, and keeps it in lists. Only the
 * shell touches its memory, and tells callers of its end.
 */
#ifndef HLT_TENSOR_H
#define HLT_TENSOR_H

#include "announce.h"
#include "table.h"

enum {
    HLT_BUFFERS = 4, /* fusion buffers; also groups launched ahead of the last result */
    HLT_TEXT_BYTES = 1024
};

struct hlt_behind;
struct hlt_item;

/* The tensors of one group call (halay_trainer_allreduce_group()) on this rank. */
struct hlt_grouped {
    size_t refs; /* tensors of the group call that are not released */
    int agreed;  /* all ranks have announced one of them, so all have submitted all */
};

struct hlt_tensor {
    struct hlt_node node; /* the first member; in the map of names until the tensor is done */
    struct hlt_tensor *prev, *next; /* in a list */
    uint32_t index;                 /* of this struct among all; index and generation make the */
    uint64_t generation;            /* ticket, and the generation tells uses of the struct apart */

    struct hlt_announcement says;
    const void *in;
    void *out;
    size_t count; /* elements of `in`; allgather, alltoall: rows times a row's elements */
    halay_type_t type;
    halay_op_t op;
    int kind, root;
    double prescale, postscale;

    uint64_t series; /* 0: it has a name of its own */
    uint64_t number; /* in the series */

    /* touched only by the thread that steps */
    struct hlt_item *item; /* in the pool: its place in the programme; NULL: it has none */
    uint64_t known;        /* hash under which the shell remembers its rows */
    uint64_t fusion;       /* when ready: tensors with the same number are fused; 0: not fused */
    int in_place;          /* it is in place on some rank, so the call is in place on all */
    uint32_t notices;      /* notices given about it, which set the time of the next one */
    uint64_t submit_ns;
    uint64_t ready_ns; /* when a round made it ready; 0: it was replayed */
    uint64_t start_ns;
    int buffer;                  /* its fusion buffer; HLT_BUFFERS: none */
    struct hlt_grouped *grouped; /* NULL: it is not in a group call */
    int stand_in;                /* zeros of a joined rank, which no caller has submitted */
    int voted;                   /* the ranks have voted on it, before its call */
    int exchanged;               /* alltoall: its rows from each rank are known */
    struct hlt_behind *behind;   /* NULL: it waits for no stream (any more) */
    int unready;                 /* the stream's error: no call touches its buffers */

    /* touched under the trainer's mutex */
    int done, code;
    int wanted;               /* a caller has waited or polled for it */
    halay_ticket_done_t call; /* callback; NULL: none, or it runs now */
    void *call_arg;
    char *text;      /* why it failed; NULL: it did not */
    void *result;    /* the output of an allgather or alltoall, owned by the trainer */
    uint32_t memory; /* HALAY_MEMORY_*: of in, out and result. Agreed on, once it is ready */
    /* rows from each rank; alltoall: then to each rank. Until done only the stepping thread's */
    size_t *rows;
    size_t result_count;
    char name[HALAY_TENSOR_NAME_MAX];
};

#endif
