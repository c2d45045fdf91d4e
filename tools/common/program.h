/* SPDX-License-Identifier: Apache-2.0 */
/*
 * program.h - the plans of all ranks, resolved for execution: every operand is a list of cells, one
 * cell a block or scratch slot, in a single numbering over all ranks. Memory that is the same (in
 * place) is the same cell.
 */
#ifndef HLY_PROGRAM_H
#define HLY_PROGRAM_H

#include <halay/plan.h>

enum {
    HLY_PROGRAM_RANKS_MAX = 64, /* a set of them is one word */
    HLY_PROGRAM_BLOCKS_MAX = HLY_PROGRAM_RANKS_MAX * HALAY_PLAN_SLICES_MAX,
    HLY_PROGRAM_STEPS_MAX = 1 << 16 /* of all ranks */
};

typedef enum hly_verdict {
    HLY_RIGHT = 0,
    HLY_WRONG, /* a wrong block, ranks that differ, or a rank done without having heard from all */
    HLY_STALL, /* nothing can move, and not all are done */
    HLY_FAULT  /* read before write, out of range, or no plan at all */
} hly_verdict_t;

/* An operand. tag tells apart how packed blocks were written to scratch; 0 elsewhere. */
typedef struct hly_run {
    uint32_t cell; /* index of its first one in program->cells */
    uint32_t first;
    uint32_t count;
    uint64_t tag;
    uint32_t buffer;
} hly_run_t;

typedef struct hly_pstep {
    uint32_t kind;
    uint32_t rank;
    uint32_t index;   /* in its rank's plan */
    uint32_t channel; /* SEND, RECV; of a GROUP that of its device */
    uint32_t group;   /* GROUP: its kind; its members and their blocks, in the plan */
    uint32_t nmembers;
    const halay_member_t *members;
    uint32_t target; /* run it writes, or HLY_NO_RUN */
    uint32_t source; /* first run it reads */
    uint32_t nsources;
    uint32_t reads;  /* index of its first cell in the machine's reads */
    uint32_t writes; /* and writes */
    uint32_t need;   /* predecessors */
    uint32_t next;   /* index of its first successor in program->next */
    uint32_t nnext;
} hly_pstep_t;

#define HLY_NO_RUN UINT32_MAX

/* All messages of one name (sender, receiver, edge): one of each, unless the plan is damaged. */
typedef struct hly_channel {
    uint32_t from;
    uint32_t to;
    uint32_t edge;
    uint32_t sends; /* index of the first one in program->ends, and how many */
    uint32_t nsends;
    uint32_t recvs;
    uint32_t nrecvs;
} hly_channel_t;

typedef struct hly_program {
    halay_plan_params_t params; /* rank means nothing */
    uint32_t blocks;
    uint32_t in_order; /* 1: reduces in the order of ranks, as its planner's entry says */
    uint32_t equal;    /* 1: blocks of equal size, as its planner's entry says; a slot is one */
    uint32_t series;   /* 1: ranks need not hear but from the root, as its planner's entry says */
    uint32_t nsteps, nruns, ncells, nchannels;
    uint32_t nreads, nwrites; /* cells of all sources, and of all targets */
    uint32_t nevents;         /* at most so many can be possible at once */
    hly_pstep_t *steps;
    hly_run_t *runs;
    uint32_t *cells; /* of all runs; those of one step's sources follow one another */
    uint32_t *next;
    hly_channel_t *channels;
    uint32_t *ends;
    uint32_t in[HLY_PROGRAM_RANKS_MAX]; /* cell of the first block */
    uint32_t out[HLY_PROGRAM_RANKS_MAX];
    uint32_t scratch[HLY_PROGRAM_RANKS_MAX];
    uint32_t nsteps_of[HLY_PROGRAM_RANKS_MAX];
    char fault[192]; /* why these are no plans; empty if they are */
} hly_program_t;

enum { HLY_LAYOUT_NONE = 0, HLY_LAYOUT_FULL, HLY_LAYOUT_OWN };
uint32_t hly_layout(const halay_plan_params_t *params, uint32_t rank, uint32_t buffer);
/* 1 if each block of `to` is as large as that of `from`, whatever sizes the user gives. */
int hly_sizes_agree(const hly_program_t *program, uint32_t from_rank, const hly_run_t *from,
                    uint32_t to_rank, const hly_run_t *to);

/* 0, also with a fault (then only `fault` counts), or HALAY_ENOMEM. Finish it in any case. */
int hly_program_init(hly_program_t *program, const halay_plan_t *const plans[], uint32_t nranks);
void hly_program_finish(hly_program_t *program);

#endif
