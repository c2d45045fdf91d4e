/* SPDX-License-Identifier: Apache-2.0 */
/*
 * select.h - the parts of selection: select.c chooses a row, selection.c reads what
 * overrides it, explain.c tells why.
 */
#ifndef HLY_SELECT_H
#define HLY_SELECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "comm/comm.h"
#include "plan/rows.h"

#define HLY_PLANNERS_MAX    128
#define HLY_SELECT_LINES    1000 /* of a file */
#define HLY_PREDICTED_RANKS 128  /* beyond, HALAY_SELECTION=model takes the rows */

struct halay_selection {
    uint64_t hash;
    halay_model_t model;
    bool by_model;
    uint32_t forced[HALAY_COLLECTIVE_COUNT]; /* planner, or UINT32_MAX */
    uint32_t pair;                           /* the planner of send and receive */
    uint32_t nrows;
    uint32_t first[HALAY_COLLECTIVE_COUNT + 1]; /* rows stand by collective, a file's before */
    struct hly_row *rows;
};

/* A call as selection sees it: all of it is equal on all ranks. */
struct hly_ask {
    uint32_t collective, nranks, nnodes;
    bool in_place, vector, commutative, scattered, uneven;
    uint32_t oversubscribed; /* as of the communicator */
    uint32_t asked;          /* 1 + the planner of HALAY_HINT_PLANNER; 0: none */
    bool pair;               /* send and receive */
    bool relaxed;            /* a relaxed broadcast: exec/relaxed.h */
    bool group;              /* a device offers group steps for this type and operation */
    bool apart;              /* in memory that messages cannot carry, */
    bool direct;             /* but adapters read and write it (HALAY_GPUDIRECT) */
    uint64_t count, element_bytes;
};

/* Bytes that rows look at: of the vector, or of all blocks. */
uint64_t hly_ask_bytes(const struct hly_ask *ask);
/* 1 if no restriction forbids the planner; `asked` for it by name: then short vectors are served
 * by planners for long ones too. */
int hly_ask_serves(const struct hly_ask *ask, uint32_t planner, bool asked, const char **why);

/* As halay_selection_make() of `rows`, of a file that is open. */
int hly_selection_read(FILE *file, const char *path, char *error, size_t error_bytes,
                       halay_selection_t **selection);

/* What was asked for, by a hint or by name; UINT32_MAX: nothing. */
uint32_t hly_select_forced(const halay_selection_t *selection, const struct hly_ask *ask);
/* As halay_explain(), where a hint asks: 1 + its planner, or 0. */
int hly_explain(const halay_selection_t *selection, const halay_question_t *question,
                uint32_t asked, halay_explanation_t **explanation);

/* Appends the table's rows to those that are there; HALAY_EINVAL if one names no planner. */
int hly_select_rows(struct hly_row *rows, uint32_t room, uint32_t *nrows);
/*
 * The planner that was asked for by name, else the first row's that fits, else the first that
 * serves; *row: which one, or NULL. HALAY_EPLAN if none serves.
 */
int hly_select_row(const halay_selection_t *selection, const struct hly_ask *ask, uint32_t *planner,
                   const struct hly_row **row);

/* Planners of a collective, the least predicted one first, for a class of sizes. */
struct hly_ranking {
    uint32_t nplanners;
    uint32_t planner[HLY_PLANNERS_MAX];
};

/* Sizes of one class: up to 2^class bytes of the call's count. */
uint32_t hly_size_class(const struct hly_ask *ask);
bool hly_ranking_wanted(const halay_selection_t *selection, const struct hly_ask *ask);
int hly_ranking_make(const halay_selection_t *selection, const struct hly_ask *ask,
                     const halay_shape_t *shape, struct hly_ranking *ranking);
int hly_ranking_choose(const struct hly_ranking *ranking, const struct hly_ask *ask,
                       uint32_t *planner);

/* Selects a planner for a communicator's call; reason: why nobody serves it. */
int hly_select(halay_comm_t *comm, const struct hly_call *call, uint32_t *planner, char *reason,
               size_t reason_bytes);
void hly_select_ask(const halay_comm_t *comm, const struct hly_call *call, struct hly_ask *ask);
void hly_select_forget(halay_comm_t *comm);

#endif
