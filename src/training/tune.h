/* SPDX-License-Identifier: Apache-2.0 */
/* tune.h - autotuning: what replays, programmes and calls ask of tune.c; and its file. */
#ifndef HLT_TUNE_H
#define HLT_TUNE_H

#include "search.h"
#include "trainer.h"

enum hlt_tune_state {
    HLT_TUNE_ASKS,  /* has an earlier job kept a setting? */
    HLT_TUNE_WARMS, /* the program has just begun */
    HLT_TUNE_SEARCHES,
    HLT_TUNE_OVER
};

struct hlt_tune {
    enum hlt_tune_state state;
    struct hlt_search search;
    size_t bytes[HLT_SETTINGS]; /* a group's most: the settings; 0 is the default */
    int setting;                /* that the programme is grouped by */
    int voids;                  /* replays that broke off in the search */
    int from_file;              /* its result is a kept one */
    uint64_t key;               /* of the kept file */
    uint64_t total_bytes;       /* of the programme's tensors */
    size_t ntensors;

    uint32_t cycles; /* that have begun since the state or the block began */
    uint64_t stamp_ns;
    size_t nns;
    double ns[HLT_BLOCK_STEPS]; /* of this block's cycles, but its first */
    double words[HLT_SEARCH_WORDS];
};

/* tune.c; stepper, without the mutex */
enum hlt_turn {
    HLT_TURN_BEGIN,   /* the next cycle can begin */
    HLT_TURN_CHANGED, /* it has other groups now */
    HLT_TURN_WAIT     /* for a result */
};
/* A cycle of the replay comes next: its first group's tensors are here, or this rank is void. */
enum hlt_turn hlt_tune_next(halay_trainer_t *trainer);
/* A cycle begins. */
void hlt_tune_cycle(halay_trainer_t *trainer);
/* The ranks' words are reduced. */
void hlt_tune_agreed(halay_trainer_t *trainer);
/* The words to reduce, by the largest. */
double *hlt_tune_words(const halay_trainer_t *trainer, size_t *nwords);
/* The replay has ended in the midst. */
void hlt_tune_void(halay_trainer_t *trainer, struct hlt_programme *programme);
/* The same programme was learnt anew. */
void hlt_tune_keep(halay_trainer_t *trainer, struct hlt_programme *to, struct hlt_programme *from);
void hlt_tune_free(struct hlt_programme *programme);

/* execute.c: all ranks reduce the words. */
void hlt_tune_start(halay_trainer_t *trainer);

/* tune_file.c; rank 0's. */
void hlt_tune_refuse(const char *why);
/* The replay breaks off too often for the search. */
void hlt_tune_give_up(const struct hlt_tune *tune);
/* The kept setting; -1: there is none, or it is stale, which is said. */
int hlt_tune_read(const struct hlt_tune *tune);
/* Keeps the result, and says it in one line. */
void hlt_tune_write(const halay_trainer_t *trainer, const struct hlt_tune *tune);
/* A block has shown that a cycle takes so long: a line for the log of HALAY_AUTOTUNE. */
void hlt_tune_log(const struct hlt_tune *tune, double ns);

#endif
