/* SPDX-License-Identifier: Apache-2.0 */
/* tune.h - autotuning: the calls of replays and programmes to tune.c, and what it has the shell
 * log. */
#ifndef HLT_TUNE_H
#define HLT_TUNE_H

#include "core.h"
#include "search.h"

enum hlt_tune_state {
    HLT_TUNE_ASKS,  /* reads whether an earlier job has kept a setting */
    HLT_TUNE_WARMS, /* warm-up steps, which are not measured */
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
    size_t bytes[HLT_SETTINGS]; /* the settings: size limits of a group; the first is the default */
    int setting;                /* the one by which the programme is grouped now */
    int voids;                  /* how many replays broke off during the search */
    int from_file;              /* the setting comes from an earlier job's file */
    uint64_t key;               /* names the file that keeps the setting */
    uint64_t total_bytes;       /* of the programme's tensors */
    size_t ntensors;

    enum hlt_tune_says says; /* what the shell has to log */
    int block_setting;       /* BLOCK: which setting the block has measured, */
    double block_ns;         /* and how long a cycle took */

    uint32_t cycles;                /* cycles begun since the state or the block began */
    uint64_t stamp_ns;              /* when the last cycle began */
    size_t nns;                     /* entries of ns[] */
    double ns[HLT_BLOCK_STEPS];     /* times of this block's cycles, except for the first */
    double words[HLT_SEARCH_WORDS]; /* hlt_tune_words() */
};

enum hlt_turn {
    HLT_TURN_BEGIN,   /* the next cycle can begin */
    HLT_TURN_CHANGED, /* the programme has other groups now: look at the first one again */
    HLT_TURN_REDUCE,  /* the ranks have to reduce their words first */
    HLT_TURN_WAIT     /* results of groups under way have to come first */
};
/* Called before a cycle of the replay: the first group's tensors are here, or this rank goes
 * void. */
enum hlt_turn hlt_tune_next(struct hlt_core *core);
/* A cycle begins. */
void hlt_tune_cycle(struct hlt_core *core);
/* The ranks' words are reduced. The programme may have other groups now. */
void hlt_tune_agreed(struct hlt_core *core);
/* The words to reduce, with MAX. In HLT_TUNE_ASKS the shell fills the word: the setting that an
 * earlier job has kept, or -1. */
double *hlt_tune_words(const struct hlt_core *core, size_t *nwords);
/* The replay has broken off. */
void hlt_tune_void(struct hlt_core *core, struct hlt_programme *programme);
/* The same programme was learnt anew: moves its tuning to the new one. */
void hlt_tune_keep(struct hlt_core *core, struct hlt_programme *to, struct hlt_programme *from);
void hlt_tune_free(struct hlt_programme *programme);

#endif
