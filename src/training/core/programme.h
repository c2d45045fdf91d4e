/* SPDX-License-Identifier: Apache-2.0 */
/*
 * programme.h - programmes, and what they are learnt from: the tape, series and periods. All of
 * this is equal on all ranks, except for the tensors in the items.
 */
#ifndef HLT_PROGRAMME_H
#define HLT_PROGRAMME_H

#include "tensor.h"

enum {
    HLT_VOTE_ITEMS = 32,       /* tensors that share a vote */
    HLT_PROGRAMMES = 8,        /* how many are kept */
    HLT_SERIES = 64,           /* series that are known; tensors of any other count as named */
    HLT_PROGRAMME_SERIES = 16, /* in a programme */
    HLT_PERIOD = 1024,         /* tensors in the longest period */
    HLT_TAPE_ITEMS = 65536
};

struct hlt_core;
struct hlt_record;

/*
 * A tensor on the tape or in a programme. For a tensor of a series, says.name is hlt_series_name()
 * of its number (tape), or of ~place, its place in the series' cycle (programme).
 */
struct hlt_item {
    struct hlt_announcement says;
    uint64_t run;    /* hash of all ranks' `wait`, as in hlt_record */
    uint64_t series; /* 0: the tensor has a name of its own */
    /* its number in the series; in a programme: its place in the series' cycle, from 0 */
    uint64_t number;
    uint64_t due;              /* in a replay: the number that comes here next */
    struct hlt_tensor *tensor; /* in a replay: this rank's; NULL: not submitted yet */
    uint32_t place;            /* in a programme: the item's index in the order of learning */
    uint32_t group;            /* its group in the programme */
    uint32_t row;              /* its row in the timeline; see hlt_group.timelines */
};

/* Items in order, found by name. */
struct hlt_script {
    struct hlt_item *items;
    uint32_t *index; /* a hash table with open addressing: item + 1, or 0 */
    size_t count, room, mask;
};

/* Items [first, first + count) of a programme, which are launched together. */
struct hlt_group {
    uint32_t first, count;
    uint32_t missing;   /* items whose tensor this rank has not submitted yet */
    int fused;          /* one call; 0: a vote, and then a call for each tensor */
    int rows;           /* the vote carries the numbers of rows of its allgathers */
    uint64_t timelines; /* halay_trainer.timelines when the items' rows were asked for */
};

/* How far a series has come; equal on all ranks. */
struct hlt_series {
    uint64_t series;
    uint64_t next; /* above the numbers of all tensors that all ranks have completed */
};

/*
 * A series in a programme. base: the first number of the replay's first cycle; after the replay,
 * the first number of the last whole cycle.
 */
struct hlt_share {
    uint64_t series;
    uint64_t base;
    uint64_t count; /* numbers in a cycle */
};

/* Finds cycles in a series, in which no name repeats; see series.c. */
struct hlt_period {
    uint64_t count; /* items in a row that could be part of a period */
    uint64_t keys[HLT_PERIOD];
    /* [p]: how many items in a row, up to the last, equal the item p before */
    uint64_t same[1 + HLT_PERIOD];
    int backoff_log2; /* a period must repeat 2^backoff_log2 times as often */
};

struct hlt_programme {
    struct hlt_script script;
    struct hlt_share shares[HLT_PROGRAMME_SERIES];
    size_t nshares;
    struct hlt_group *groups;
    size_t ngroups;
    uint64_t set;          /* hash of the items, equal for any order of them */
    uint64_t used;         /* hlt_learnt.uses when it was last used */
    struct hlt_tune *tune; /* autotuning: what is known of its groups' size; else NULL */
    int score;             /* rises with whole cycles, falls with voids; 0: it is not used */
    int begun;             /* a name of it is on the tape */
    int periodic;          /* no name has ended its cycle: it is a period of a series */
};

/* What the ranks have learnt from what they agreed on. */
struct hlt_learnt {
    struct hlt_script tape; /* tensors agreed on since the last boundary */
    struct hlt_programme *programmes[HLT_PROGRAMMES];
    int impure;    /* the tape has items of a replay that broke off in mid-cycle */
    size_t turn;   /* the tape's length at which a cycle of a series ends; or 0 */
    int switching; /* a replay broke off between two cycles: another programme may follow */
    struct hlt_programme *avoid; /* the programme that broke off so, until a tensor is agreed on */
    uint64_t uses;               /* of programmes, so far */
    struct hlt_series series[HLT_SERIES];
    size_t nseries;
    struct hlt_period period;
    uint64_t replayed_until; /* 1 + the largest `wait` of a tensor that a replay has run */
    int failures;            /* voids since the last whole cycle */
    int skip;                /* for how many more cycles no replay begins */
};

/* script.c */
struct hlt_item *hlt_script_find(const struct hlt_script *script, uint64_t name);
/* Makes room for so many items, or returns HALAY_ENOMEM. */
int hlt_script_reserve(struct hlt_script *script, size_t room);
int hlt_script_add(struct hlt_script *script, const struct hlt_item *item);
/* Keeps this many of the last items. */
void hlt_script_cut(struct hlt_script *script, size_t kept);
void hlt_script_free(struct hlt_script *script);
/* NULL: the programme has none of the series, or the series is 0. */
struct hlt_share *hlt_programme_share(struct hlt_programme *programme, uint64_t series);
/* Fills the script with these items, sorted into groups of at most `most` bytes. taken: count
 * zeros, for its use. */
void hlt_programme_fill(int nranks, struct hlt_programme *programme, const struct hlt_item *items,
                        char *taken, size_t count, size_t most);
/* Sorts the programme's items anew, into groups of at most `most` bytes. None of its groups may be
 * under way. HALAY_ENOMEM: the groups are as before. */
int hlt_programme_group(int nranks, struct hlt_programme *programme, size_t most);

/* programme.c */
/*
 * All ranks have announced this tensor. Returns the programme that begins with it, whose replay
 * will run it. NULL: no programme begins; adds the tensor to the tape, and the caller runs it.
 */
struct hlt_programme *hlt_programme_seen(struct hlt_core *core, const struct hlt_record *record,
                                         const struct hlt_tensor *tensor);
/* Clears the tape: its tensors are no part of a cycle. The next tensor may begin a known
 * programme. */
void hlt_programme_forget(struct hlt_core *core);
/* The replay has completed a cycle without a void. */
void hlt_programme_whole(struct hlt_core *core);
/* The replay ends with a void. Puts tensors of its last cycle that have run on the tape. */
void hlt_programme_void(struct hlt_core *core);
void hlt_programmes_free(struct hlt_core *core);

/* series.c */
/* The series of a generated name ("....noname.7"), and its number. 0: the name is the program's. */
uint64_t hlt_series_of(const char *name, uint64_t *number);
uint64_t hlt_series_name(uint64_t series, uint64_t number);
/* This function and those below are called at the same place on all ranks. */
struct hlt_series *hlt_series_find(struct hlt_core *core, uint64_t series);
/* Begins an unknown series with the number. NULL: there are too many. */
struct hlt_series *hlt_series_get(struct hlt_core *core, uint64_t series, uint64_t number);
/* All ranks have completed the tensor with this number. */
void hlt_series_done(struct hlt_core *core, uint64_t series, uint64_t number);
/*
 * A tensor was added to the tape, which now has `among` items; begins: the tensor begins a run.
 * Returns the length of a period that ends here and has repeated often enough, or 0.
 */
size_t hlt_period_add(struct hlt_core *core, uint64_t says, int begins, size_t among);
/* The next item begins a new search for periods. */
void hlt_period_forget(struct hlt_core *core);
/* From now on a period has to repeat twice as often (more is 1), or half as often (-1). */
void hlt_period_doubt(struct hlt_core *core, int more);

#endif
