/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan.h - a collective as data. For tools that prove, print, cost and simulate plans; a program
 * that only calls collectives needs halay.h alone.
 *
 * A plan is the schedule of ONE rank: steps with dependencies, on symbolic operands. It names no
 * address and no count, so one plan serves every count, and its proof holds for all of them.
 *
 * Memory as a plan sees it
 *  - The data of the collective are cut into `blocks` blocks, numbered from 0; their sizes are
 * bound at the call and may be 0 or differ.
 *  - Buffers: IN (read only), OUT, SCRATCH. In the FULL layout a buffer holds all blocks, one after
 *    the other; in the OWN layout it holds only the block whose number is the plan's rank.
 *      allreduce       IN full, OUT full    as the planner says, at most 8 x nranks blocks
 *      broadcast       no IN,   OUT full    block(s) of the root's buffer (the root reads OUT too)
 *      allgather(v)    IN own,  OUT full    block r comes from rank r
 *      reduce_scatter(v) IN full, OUT own   block r goes to rank r
 *      barrier         nothing, 0 blocks
 *      reduce          IN full, OUT full at the root; blocks as for allreduce
 *      gather(v)       IN own,  OUT full at the root: block r comes from rank r
 *      scatter(v)      IN full at the root, OUT own: block r goes to rank r
 *      alltoall(v)     IN full, OUT full    IN block d goes to rank d, as its OUT block `rank`
 *      scan, exscan    IN full, OUT full    the inputs of ranks 0 to `rank`, or to rank - 1 (then
 *                                           rank 0's OUT is left alone); blocks as for allreduce
 *    IN or OUT "at the root" does not exist elsewhere: no operand names it.
 *  - In place: IN and OUT are the same memory. allreduce: block b of IN is block b of OUT.
 * allgather: IN is block `rank` of OUT. reduce_scatter: OUT is block 0 of IN (which may then be
 * written). scan, exscan: as allreduce. alltoall: block b of IN is block b of OUT. reduce, gather,
 * scatter: at the root alone (scatter: OUT is block `root` of IN and stays as it is); the other
 * ranks' plans are the same either way, so that only the root need know.
 *  - An operand is a run of blocks [first, first + count), taken modulo `blocks` (it may wrap;
 * count
 *    <= blocks). In IN and OUT that is where they are. In SCRATCH they are packed, one after the
 *    other, from slot `slot` on; a slot has room for the largest block, so the run occupies slots
 *    [slot, slot + count). A SCRATCH operand is read exactly as it was written: same first, count
 *    and slot. Not so in the plans of planners with HALAY_PLANNER_EQUAL, of collectives that do not
 *    cut a vector: there a slot is as large as the blocks, none differs from another, and slots may
 *    be read in other runs than they were written in.
 *    SCRATCH is memory like that of IN and OUT. In the plans of planners with HALAY_PLANNER_STAGE
 *    only its first `device_slots` are. The others are the stage: host memory with which a device
 *    copies fast. There SEND, RECV and REDUCE name the stage alone, and GROUP never does; COPY
 *    moves data between the two. No operand is in both. So IN and OUT may be memory that the
 *    processor cannot touch.
 *  - count 0: an operand without bytes (the step is a message or a wait only).
 *
 * Steps
 *  SEND    operand[0] to peer. Done when the operand may be overwritten.
 *  RECV    operand[0] from peer. Done when the data are there.
 *  COPY    operand[0] (destination) = operand[1]; same first and count.
 *  REDUCE  operand[0] = operand[1] OP operand[2] OP ... in this order; 2 to 4 sources, all with the
 *          same first and count. The destination may be one of the sources exactly.
 *  JOIN    nothing: done when its predecessors are.
 *  GROUP   a collective that a device does for several ranks, its members: operand[0]
 *          (destination), operand[1] (source). The step names an entry of the plan's groups: the
 *          kind, the members by rising rank, and which run of blocks is whose. The runs follow one
 *          another; together they are the whole. A member's own run may be empty.
 *            reduce_scatter, reduce, allreduce   own run = sum of the members' sources
 *            allgather, broadcast                whole = each block from the member whose it is
 *            alltoall                            a member's run = the own run of its whole
 *          An alltoall's operands are both the whole, which are apart, and all runs are of one
 *          length. It is in plans of an alltoall, and no other is there.
 *          In a reduce or broadcast the whole is one member's; in an allreduce it is everyone's.
 *          The sum is in an order that the device chooses, the same for all that it gives it to.
 *          Source and destination are apart, or each block that they share is the same one (in
 *          SCRATCH the whole operand is).
 *          Done when its operands may be touched, and each member from which data come has begun.
 *          `peer` is the entry in groups[], `edge` the channel: the n-th step of a rank on a
 *          channel meets the n-th step there of each member. A rank's steps on one channel have the
 *          same members and follow one another. A member has to have heard from the others before.
 * A step may start when both steps in dep[] (or HALAY_STEP_NONE) are done; dep[i] is lower than the
 * step's own index. The executor starts them in the order in which they are listed;
 * halay_plan_make() sorts them. A message is named by (sender, receiver, edge): edges are numbered
 * by the planner so that no two messages of a plan from one rank to another have the same edge, and
 * both sides agree. Both operands of a message, and of a COPY, are the same run of blocks; those of
 * an alltoall only have the same count, since a block's number differs between sender and receiver.
 * All members of a group step have the same group.
 *
 * The prover checks of the plans of all ranks together (docs/algorithms.md): every send has its
 * recv with the same blocks, and a group step all its members; no deadlock with zero buffering;
 * every input is counted exactly once; the same operands in the same order on every rank; nothing
 * is read before it is written; no two steps that could run at once touch the same memory, one of
 * them writing; scratch as declared; and no rank finishes before it has heard, directly or not,
 * from every other rank (so that an error on any rank reaches all before one of them returns
 * success; with HALAY_PLANNER_RELAXED from the root).
 */
#ifndef HALAY_PLAN_H
#define HALAY_PLAN_H

#include <stddef.h>
#include <stdint.h>

#include "halay.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum halay_collective {
    HALAY_ALLREDUCE = 0,
    HALAY_BROADCAST,
    HALAY_ALLGATHER,      /* and allgatherv: blocks may differ in size */
    HALAY_REDUCE_SCATTER, /* and reduce_scatterv */
    HALAY_BARRIER,
    HALAY_REDUCE,
    HALAY_GATHER,   /* and gatherv */
    HALAY_SCATTER,  /* and scatterv */
    HALAY_ALLTOALL, /* and alltoallv */
    HALAY_SCAN,
    HALAY_EXSCAN,
    HALAY_COLLECTIVE_COUNT
} halay_collective_t;

HALAY_API const char *halay_collective_name(halay_collective_t collective);

enum { HALAY_BUFFER_IN = 0, HALAY_BUFFER_OUT = 1, HALAY_BUFFER_SCRATCH = 2 };
enum {
    HALAY_STEP_SEND = 1,
    HALAY_STEP_RECV,
    HALAY_STEP_COPY,
    HALAY_STEP_REDUCE,
    HALAY_STEP_JOIN,
    HALAY_STEP_GROUP
};
enum {
    HALAY_GROUP_REDUCE_SCATTER = 1,
    HALAY_GROUP_ALLGATHER,
    HALAY_GROUP_ALLREDUCE,
    HALAY_GROUP_REDUCE,
    HALAY_GROUP_BROADCAST,
    HALAY_GROUP_ALLTOALL
};

/* 1 if collectives of this kind only move blocks, each from its owner; 0 if they reduce. */
static inline int halay_group_moves(uint32_t kind)
{
    return kind == HALAY_GROUP_ALLGATHER || kind == HALAY_GROUP_BROADCAST ||
           kind == HALAY_GROUP_ALLTOALL;
}

#define HALAY_STEP_NONE         UINT32_MAX
#define HALAY_PLAN_STEPS_MAX    (1u << 22) /* of one rank */
#define HALAY_PLAN_MEMBERS_MAX  (1u << 22) /* of all groups of one rank */
#define HALAY_PLAN_CHANNELS_MAX 8          /* of group steps */
#define HALAY_PLAN_SLICES_MAX   8          /* blocks of an allreduce for each rank */

typedef struct halay_operand {
    uint32_t buffer; /* HALAY_BUFFER_* */
    uint32_t first;
    uint32_t count;
    uint32_t slot; /* SCRATCH only, else 0 */
} halay_operand_t;

typedef struct halay_step {
    uint16_t kind;      /* HALAY_STEP_* */
    uint16_t noperands; /* 1 SEND, RECV; 2 COPY, GROUP; 3 to 5 REDUCE; 0 JOIN */
    uint32_t peer;      /* SEND, RECV; GROUP: index in plan->groups; else HALAY_STEP_NONE */
    uint32_t edge;      /* SEND, RECV; GROUP: the channel; else 0 */
    uint32_t operand;   /* index of the first one in plan->operands */
    uint32_t dep[2];    /* predecessors, or HALAY_STEP_NONE */
} halay_step_t;

/* A member of a group, and its run of blocks; an empty run begins where the one before it ends. */
typedef struct halay_member {
    uint32_t rank;
    uint32_t first, count;
} halay_member_t;

typedef struct halay_group {
    uint32_t kind;   /* HALAY_GROUP_* */
    uint32_t member; /* index of the first one in plan->members */
    uint32_t nmembers;
} halay_group_t;

/*
 * Which ranks share a node. Any map from ranks to nodes is allowed: consecutive ranks or not, nodes
 * of any sizes. Nodes are numbered by their lowest ranks, so the same map has one form.
 */
typedef struct halay_shape {
    uint32_t nranks, nnodes;
    uint32_t smallest, largest; /* ranks of the smallest and of the largest node */
    uint64_t hash;              /* of the map, never 0; bit 0 is HALAY_SHAPE_SCATTERED */
    uint32_t *node;             /* nranks: of each rank */
    uint32_t *first;            /* nnodes + 1: where the ranks of a node begin in member[] */
    uint32_t *member;           /* nranks: by node, rising; all in one allocation with the shape */
} halay_shape_t;

/* Some node's ranks are not consecutive. */
#define HALAY_SHAPE_SCATTERED 1u

/* node_of_rank: any numbers, or NULL for all on one node. halay_shape_free takes NULL. */
HALAY_API int halay_shape_make(const uint32_t node_of_rank[], uint32_t nranks,
                               halay_shape_t **shape);
HALAY_API void halay_shape_free(halay_shape_t *shape);

/* The parameters of a plan: the same on all ranks except for `rank`. */
typedef struct halay_plan_params {
    uint32_t collective;
    uint32_t nranks;
    uint32_t rank;
    uint32_t root;     /* broadcast, reduce, gather, scatter; else 0 */
    uint32_t in_place; /* 0 or 1 */
    /* Read while the plan is made, NULL in the plan. NULL: all ranks are on one node. */
    const halay_shape_t *shape;
} halay_plan_params_t;

typedef struct halay_plan {
    halay_plan_params_t params;
    uint32_t planner; /* index into the planners' table */
    uint32_t blocks;
    uint64_t shape; /* hash of the shape for which it was made; 0: its planner ignores the shape */
    uint32_t scratch_slots;
    uint32_t device_slots; /* HALAY_PLANNER_STAGE: slots before the stage; else 0 */
    uint32_t nsteps;
    uint32_t noperands;
    uint32_t ngroups;
    uint32_t nmembers;
    halay_step_t *steps; /* all in one allocation with the plan */
    halay_operand_t *operands;
    halay_group_t *groups;
    halay_member_t *members;
} halay_plan_t;

/* Restrictions of a planner, as data: the selection never picks a planner that they forbid. */
enum {
    HALAY_PLANNER_POWER_OF_TWO = 1u << 0, /* ranks */
    HALAY_PLANNER_COMMUTATIVE = 1u << 1,  /* operations only */
    HALAY_PLANNER_SHORT = 1u << 2,        /* meant for few bytes: sends everything in every round */
    /* not a restriction: uses the shape (which ranks share a node) */
    HALAY_PLANNER_SHAPE = 1u << 3,
    HALAY_PLANNER_BLOCKWISE = 1u << 4, /* commutative operations only on a scattered shape */
    HALAY_PLANNER_RUNS = 1u << 5, /* names runs of several blocks of IN or OUT: not for the v forms,
                                     whose blocks lie anywhere */
    HALAY_PLANNER_EQUAL = 1u << 6, /* blocks of equal size only; a slot has that size */
    HALAY_PLANNER_OUT_OF_PLACE = 1u << 7,
    /* not a restriction: few rounds of many messages, from scratch; Halay cuts a long call until
     * each message is eager */
    HALAY_PLANNER_ROUNDS = 1u << 8,
    /* for a relaxed broadcast: ranks hear from the root alone, and the root from nobody */
    HALAY_PLANNER_RELAXED = 1u << 9,
    HALAY_PLANNER_GROUP = 1u << 10, /* has group steps: only where a device offers them */
    HALAY_PLANNER_STAGE = 1u << 11, /* part of SCRATCH is the stage; only for memory of a device
                                       that messages cannot carry */
    HALAY_PLANNER_WRAPS = 1u << 12  /* not a restriction: operands may go on from the last block to
                                       the first, so that messages lie in two places */
};

typedef struct halay_planner_info {
    const char *name; /* "ring" */
    uint32_t collective;
    uint32_t version; /* raised when the plans it makes change */
    uint32_t restrictions;
    const char *source; /* paper or other source of the algorithm */
    uint64_t min_count; /* elements for each rank, at least: meant for long vectors; 0: any */
} halay_planner_info_t;

/* The properties of a call that restrictions look at. */
typedef struct halay_planner_call {
    uint32_t nranks;
    uint64_t count;    /* elements for each rank: of the vector (allreduce, broadcast), divided by
                          nranks where that is cut into blocks by the planner; else of a block */
    uint32_t in_place; /* 0 or 1 */
    uint32_t vector;   /* 1: a v form, blocks of any sizes that lie anywhere */
    uint32_t commutative; /* 0: the operation does not commute */
    uint32_t scattered;   /* 1: some node's ranks are not consecutive */
    uint32_t relaxed;     /* 1: a relaxed broadcast */
    uint32_t group;       /* 1: a device offers group steps to the ranks of each node */
    uint32_t apart;       /* 1: buffers in memory that messages cannot carry */
    uint32_t nodes;       /* number of nodes */
    uint32_t uneven;      /* 1: nodes have different numbers of ranks */
    uint32_t direct;      /* 1: in such memory, but adapters reach it (GPUDirect) */
} halay_planner_call_t;

HALAY_API uint32_t halay_planner_count(void);
/* NULL past the end. */
HALAY_API const halay_planner_info_t *halay_planner_get(uint32_t planner);
/*
 * 1 if the planner's restrictions allow this call, else 0; then *why, if not NULL, is the first
 * that does not ("needs a power of two of ranks"). Does not look at the collective.
 */
HALAY_API int halay_planner_serves(uint32_t planner, const halay_planner_call_t *call,
                                   const char **why);
/* 1 for the collectives whose plans have a root. */
HALAY_API int halay_collective_rooted(halay_collective_t collective);
/* 1 for those that reduce: allreduce, reduce_scatter, reduce, scan, exscan. */
HALAY_API int halay_collective_reduces(halay_collective_t collective);
/* Text: why messages of the planner's plans cannot use GPUDirect. NULL: they can. `uneven`: the
 * nodes have different numbers of ranks. */
HALAY_API const char *halay_planner_indirect(uint32_t planner, uint32_t nranks, uint32_t nodes,
                                             uint32_t uneven);
/* By collective and name; HALAY_EINVAL if there is none. */
HALAY_API int halay_planner_find(halay_collective_t collective, const char *name,
                                 uint32_t *planner);

/*
 * Makes one rank's plan, in time and memory proportional to its own steps. Pure: equal arguments
 * give equal bytes. HALAY_EUNSUPPORTED where a restriction does not allow it. halay_plan_free takes
 * NULL.
 */
HALAY_API int halay_plan_make(uint32_t planner, const halay_plan_params_t *params,
                              halay_plan_t **plan);
HALAY_API void halay_plan_free(halay_plan_t *plan);
HALAY_API int halay_plan_copy(const halay_plan_t *plan, halay_plan_t **copy);

/* 1 if the plan may be used for commutative operations only. */
HALAY_API int halay_plan_commutative(const halay_plan_t *plan);

/* A hash over all members of the plan, with its parameters. */
HALAY_API uint64_t halay_plan_hash(const halay_plan_t *plan);

/* Writes the plan as text, a line a step; returns bytes written, or needed if bytes is too
 * small. */
HALAY_API size_t halay_plan_print(const halay_plan_t *plan, char *text, size_t bytes);

typedef struct halay_proof {
    size_t size;    /* of this struct, set by the caller */
    uint64_t steps; /* of all ranks */
    uint64_t messages;
    uint32_t rounds; /* longest chain of messages */
    uint32_t
        reduce_depth; /* most reduce steps on a path to one output: the half types' error bound */
    uint32_t scratch_slots; /* most of one rank */
    char reason[256];       /* why it was refused: rank, step, what */
} halay_proof_t;

/*
 * Proves the plans of ranks 0..nranks-1 of one collective. 0, or HALAY_EPLAN with the reason.
 * plans[r]->params must agree except for rank. Takes any plans, also damaged ones: never trusts an
 * index.
 */
HALAY_API int halay_plan_prove(const halay_plan_t *const plans[], uint32_t nranks,
                               halay_proof_t *proof);

/* ---------------------------------------------------------------- what plans cost */

/* The cost of messages between two ranks, after LogGP (Alexandrov et al., SPAA 1995). */
typedef struct halay_link_model {
    double overhead_ns;   /* of a processor, for each message that it sends or receives */
    double latency_ns;    /* from then until a message without bytes is there */
    double byte_ns;       /* for each byte */
    uint64_t eager_bytes; /* a longer message needs a rendezvous */
} halay_link_model_t;

/* The cost constants of a machine: those compiled in, or a file of halay-bench calibrate. */
typedef struct halay_model {
    size_t size;                  /* of this struct, set by the caller */
    double call_ns;               /* once a call */
    double step_ns;               /* for each step of a plan */
    double copy_byte_ns;          /* for each byte that a COPY copies */
    double reduce_byte_ns;        /* for each byte that a REDUCE adds to the first source */
    halay_link_model_t near, far; /* inside a node, between nodes */
    double stage_latency_ns;      /* of a copy between a device's memory and the host's */
    double stage_byte_ns;         /* for each byte of it, each way by itself */
} halay_model_t;

HALAY_API void halay_model_default(halay_model_t *model);
/* "key value" lines, all keys but the stage's, which have their defaults; HALAY_EINVAL with what is
 * wrong, file and line in error. */
HALAY_API int halay_model_read(const char *path, halay_model_t *model, char *error,
                               size_t error_bytes);
/* Such a file's text; returns bytes written, or needed if bytes is too small. */
HALAY_API size_t halay_model_print(const halay_model_t *model, char *text, size_t bytes);
/* A hash of the constants. */
HALAY_API uint64_t halay_model_hash(const halay_model_t *model);

/* The properties of a call on which its cost and its algorithm depend. */
typedef struct halay_question {
    uint32_t collective;
    uint32_t root;
    uint32_t in_place;    /* 0 or 1, as the others */
    uint32_t vector;      /* a v form */
    uint32_t commutative; /* the operation commutes, or there is none */
    uint32_t element_bytes;
    uint64_t count;             /* as in the call: elements of the vector, or of a block */
    const halay_shape_t *shape; /* the ranks and their nodes */
    uint32_t oversubscribed;    /* 1: on one node that has more ranks than processors; 2: of one
                                   processor */
    uint32_t relaxed;           /* 1: a relaxed broadcast */
    uint32_t group;             /* 1: a device offers group steps */
    uint32_t apart;             /* 1: buffers in memory that messages cannot carry, */
    uint32_t direct;            /* 1: but adapters reach (GPUDirect) */
} halay_question_t;

typedef struct halay_cost {
    size_t size; /* of this struct, set by the caller */
    double predicted_ns;
    uint64_t messages;      /* of all ranks */
    uint64_t busiest_bytes; /* sent or received by one rank, at most */
    uint32_t rounds;        /* longest chain of messages */
} halay_cost_t;

/*
 * Simulates the plans of ranks 0..n-1 by events. These do one thing at a time: every rank's
 * processor, the memory path into each rank, each direction to and from its device's memory, the
 * network interface of each node. A call in memory that messages cannot carry is staged: copied to
 * the host before the plan, and back after it. It is not if its plan has no messages, has a stage,
 * or uses GPUDirect. Time and memory in proportion to the steps (the time also to the logarithm of
 * those that are ready at once). HALAY_EPLAN for plans that would not end, HALAY_EUNSUPPORTED
 * beyond HALAY_COST_STEPS_MAX.
 */
HALAY_API int halay_plan_cost(const halay_plan_t *const plans[], const halay_question_t *question,
                              const halay_model_t *model, halay_cost_t *cost);
/* The same of the plans that a planner makes. */
HALAY_API int halay_planner_cost(uint32_t planner, const halay_question_t *question,
                                 const halay_model_t *model, halay_cost_t *cost);

#define HALAY_COST_STEPS_MAX (1u << 21) /* of all ranks */

/* A lower bound: no plan can take less, in the model. Takes blocks of a v form as equal. */
typedef struct halay_bound {
    size_t size;         /* of this struct, set by the caller */
    double latency_ns;   /* until every rank has heard of every other */
    double bandwidth_ns; /* for the bytes that have to move */
    double reduction_ns; /* for the reductions, shared by all ranks */
    double bound_ns;     /* the call, and the largest of the three */
} halay_bound_t;

HALAY_API void halay_cost_bound(const halay_question_t *question, const halay_model_t *model,
                                halay_bound_t *bound);

/* ---------------------------------------------------------------- which plans are chosen */

/* A selection: the table rows, algorithm names and model by which Halay chooses planners; equal on
 * all ranks, and constant. */
typedef struct halay_selection halay_selection_t;

/*
 * Each may be NULL or "". algorithm: as HALAY_ALGORITHM ("allreduce=ring,barrier=dissemination");
 * rows: as HALAY_SELECTION, a file, "model" or "model:FILE"; model: a model file, for predictions
 * beside rows. HALAY_EINVAL: error gets what is wrong, and the valid names. halay_selection_free
 * takes NULL.
 */
HALAY_API int halay_selection_make(const char *algorithm, const char *rows, const char *model,
                                   char *error, size_t error_bytes, halay_selection_t **selection);
HALAY_API void halay_selection_free(halay_selection_t *selection);
/* A hash of all parts that must be equal on all ranks. */
HALAY_API uint64_t halay_selection_hash(const halay_selection_t *selection);

typedef struct halay_candidate {
    uint32_t planner;
    const char *refused; /* which restriction forbids it; NULL: none */
    int result;          /* of halay_planner_cost() */
    halay_cost_t cost;   /* if that is 0 */
} halay_candidate_t;

typedef struct halay_explanation {
    halay_question_t question; /* except for the shape */
    uint32_t nranks, nnodes;
    uint64_t bytes; /* by which rows choose: of the vector, or of all blocks */
    uint64_t model_hash;
    halay_bound_t bound;
    uint32_t chosen; /* index into candidate[], or UINT32_MAX */
    char by[192];    /* why that planner was chosen */
    uint32_t ncandidates;
    halay_candidate_t *candidate; /* ncandidates, in one allocation with the explanation */
} halay_explanation_t;

HALAY_API int halay_explain(const halay_selection_t *selection, const halay_question_t *question,
                            halay_explanation_t **explanation);
HALAY_API void halay_explanation_free(halay_explanation_t *explanation);
/* A table, or JSON; returns bytes written, or needed if bytes is too small. */
HALAY_API size_t halay_explanation_print(const halay_explanation_t *explanation, int json,
                                         char *text, size_t bytes);

/* ---------------------------------------------------------------- one rank alone */

/*
 * Proves what one rank can of its own plan, with time and memory for its own and its peers' plans
 * only. It checks the plan's form, and that steps are ordered which touch the same memory. It also
 * checks that each message has its partner in the peer's plan, made by the same planner. It proves
 * neither freedom from deadlock nor the values, which halay_plan_prove() does. shape: as in the
 * parameters with which the plan was made. In *proof steps and messages are this rank's, and the
 * rest is 0.
 */
HALAY_API int halay_plan_prove_local(const halay_plan_t *plan, const halay_shape_t *shape,
                                     halay_proof_t *proof);

#ifdef __cplusplus
}
#endif
#endif
