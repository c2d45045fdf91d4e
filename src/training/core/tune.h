/* SPDX-License-Identifier: Apache-2.0 */
/* tune.h - autotuning: what replays and programmes ask of tune.c, and what it has to say. */
#ifndef HLT_TUNE_H
#define HLT_TUNE_H

#include "core.h"
#include "search.h"

enum hlt_tune_state {
    HLT_TUNE_ASKS,  /* has an earlier job kept a setting? */
    HLT_TUNE_WARMS, /* the program has just begun */
    HLT_TUNE_SEARCHES,
    HLT_TUNE_OVER
};

enum hlt_tune_says {
    HLT_TUNE_BLOCK = 1, /* a block has shown that a cycle takes block_ns */
    HLT_TUNE_FOUND,
    HLT_TUNE_GAVE_UP /* the replay breaks off too often for the search */
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

    enum hlt_tune_says says;
    int block_setting;
    double block_ns;

    uint32_t cycles; /* that have begun since the state or the block began */
    uint64_t stamp_ns;
    size_t nns;
    double ns[HLT_BLOCK_STEPS]; /* of this block's cycles, but its first */
    double words[HLT_SEARCH_WORDS];
};

enum hlt_turn {
    HLT_TURN_BEGIN,   /* the next cycle can begin */
    HLT_TURN_CHANGED, /* it has other groups now */
    HLT_TURN_REDUCE,  /* after the ranks' words are reduced */
    HLT_TURN_WAIT     /* for a result */
};
/* A cycle of the replay comes next: its first group's tensors are here, or this rank is void. */
enum hlt_turn hlt_tune_next(struct hlt_core *core);
/* A cycle begins. */
void hlt_tune_cycle(struct hlt_core *core);
/* The ranks' words are reduced. The programme may have other groups now. */
void hlt_tune_agreed(struct hlt_core *core);
/* The words to reduce, by the largest. The shell fills that of HLT_TUNE_ASKS: the setting that an
 * earlier job has kept, or -1. */
double *hlt_tune_words(const struct hlt_core *core, size_t *nwords);
/* The replay has ended in the midst. */
void hlt_tune_void(struct hlt_core *core, struct hlt_programme *programme);
/* The same programme was learnt anew. */
void hlt_tune_keep(struct hlt_core *core, struct hlt_programme *to, struct hlt_programme *from);
void hlt_tune_free(struct hlt_programme *programme);

#endif
