/* SPDX-License-Identifier: Apache-2.0 */
/*
 * programme.h - programmes, and what they are learnt from: the tape, series and periods. All of it
 * but the tensors in the items is equal on all ranks.
 */
#ifndef HLT_PROGRAMME_H
#define HLT_PROGRAMME_H

#include "tensor.h"

enum {
    HLT_VOTE_ITEMS = 32,       /* tensors that share a vote */
    HLT_PROGRAMMES = 8,        /* kept */
    HLT_SERIES = 64,           /* known; tensors of any other have plain names */
    HLT_PROGRAMME_SERIES = 16, /* in a programme */
    HLT_PERIOD = 1024,         /* tensors in the longest one */
    HLT_TAPE_ITEMS = 65536
};

struct hlt_core;
struct hlt_record;

/*
 * A tensor's place on the tape or in a programme. In a series, says.name is hlt_series_name() of
 * the number on the tape. In a programme it is that of the complement of the place in the series.
 */
struct hlt_item {
    struct hlt_announcement says;
    uint64_t run;
    uint64_t series;
    uint64_t number;           /* in the series; in a programme: the place there, from 0 */
    uint64_t due;              /* replayed: the number that comes here next */
    struct hlt_tensor *tensor; /* replayed: this rank's; NULL: it is not submitted yet */
    uint32_t place;            /* in a programme: the item's number in the order that was learnt */
    uint32_t group;            /* of the programme */
    uint32_t row;              /* in the timeline; see hlt_group.timelines */
};

/* Items in order, found by name. */
struct hlt_script {
    struct hlt_item *items;
    uint32_t *index; /* a hash table with open addressing: item + 1, or 0 */
    size_t count, room, mask;
};

/* What runs as one: items [first, first + count) of a programme. */
struct hlt_group {
    uint32_t first, count;
    uint32_t missing;   /* items whose tensor is not here yet */
    int fused;          /* one call; 0: a vote, and then a call for each tensor */
    int rows;           /* the vote carries rows */
    uint64_t timelines; /* halay_trainer.timelines when the items' rows were asked for */
};

/* Where a series stands; equal on all ranks. */
struct hlt_series {
    uint64_t series;
    uint64_t next; /* above the numbers of all tensors that all ranks have completed */
};

/*
 * A series in a programme. base: the first number of the replay's first cycle. When the replay is
 * over it is the first number of the last whole cycle.
 */
struct hlt_share {
    uint64_t series;
    uint64_t base;
    uint64_t count; /* numbers in a cycle */
};

/* What repeats where no name does; see series.c. */
struct hlt_period {
    uint64_t count; /* items in a row that could be part of a period */
    uint64_t keys[HLT_PERIOD];
    uint64_t same[1 + HLT_PERIOD]; /* [p]: so many items up to here equal those p before them */
    int backoff_log2;              /* a period must have repeated 2^this times as often */
};

struct hlt_programme {
    struct hlt_script script;
    struct hlt_share shares[HLT_PROGRAMME_SERIES];
    size_t nshares;
    struct hlt_group *groups;
    size_t ngroups;
    uint64_t set;          /* hash of the items in any order */
    uint64_t used;         /* number of its last use */
    struct hlt_tune *tune; /* autotuning: what is known of its groups' size; else NULL */
    int score;             /* rises with whole cycles, falls with voids; 0: it is not used */
    int begun;             /* a name of it is on the tape */
    int periodic;          /* no name has ended its cycle: it is a period of a series */
};

/* What the ranks have learnt from what they agreed on. */
struct hlt_learnt {
    struct hlt_script tape; /* what was agreed on since the last boundary */
    struct hlt_programme *programmes[HLT_PROGRAMMES];
    int impure;    /* the tape has items of a replay that broke off, with runs of another cycle */
    size_t turn;   /* the tape's length at which a cycle of a series is over; or 0 */
    int switching; /* a replay broke off between cycles: the next may be another programme's */
    struct hlt_programme *avoid; /* it broke off so, and nothing has been agreed on since */
    uint64_t uses;               /* of programmes, so far */
    struct hlt_series series[HLT_SERIES];
    size_t nseries;
    struct hlt_period period;
    uint64_t replayed_until; /* above the `wait` of all tensors that replays have run */
    int failures;            /* voids since the last whole cycle */
    int skip;                /* ends of cycles to stay in rounds for */
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
/* Fills the script with these items, which have their places, in groups of at most so many bytes.
 * taken: zeros. */
void hlt_programme_fill(int nranks, struct hlt_programme *programme, const struct hlt_item *items,
                        char *taken, size_t count, size_t most);
/* Sorts its items into groups of at most so many bytes. No replay of it has a group out. Returns
 * HALAY_ENOMEM, with the groups as they were. */
int hlt_programme_group(int nranks, struct hlt_programme *programme, size_t most);

/* programme.c */
/*
 * All ranks have announced this; tensor is this rank's. Returns the programme that begins here, and
 * will run it. NULL: it is on the tape, and runs now.
 */
struct hlt_programme *hlt_programme_seen(struct hlt_core *core, const struct hlt_record *record,
                                         const struct hlt_tensor *tensor);
/* What was agreed on is no part of a cycle. What comes next may begin a known programme. */
void hlt_programme_forget(struct hlt_core *core);
void hlt_programme_whole(struct hlt_core *core);
/* The replay ends; what has run in the cycle that it broke off is on the tape again. */
void hlt_programme_void(struct hlt_core *core);
void hlt_programmes_free(struct hlt_core *core);

/* series.c */
/* The series of a name without one of its own; else 0. */
uint64_t hlt_series_of(const char *name, uint64_t *number);
uint64_t hlt_series_name(uint64_t series, uint64_t number);
/* This and all that follow: at the same place on all ranks. */
struct hlt_series *hlt_series_find(struct hlt_core *core, uint64_t series);
/* Begins an unknown series with the number. NULL: there are too many. */
struct hlt_series *hlt_series_get(struct hlt_core *core, uint64_t series, uint64_t number);
void hlt_series_done(struct hlt_core *core, uint64_t series, uint64_t number);
/*
 * One more tensor is on the tape, the last of `among`; begins: it begins a run. Returns the length
 * of the period that it ends and that has stood often enough, or 0.
 */
size_t hlt_period_add(struct hlt_core *core, uint64_t says, int begins, size_t among);
void hlt_period_forget(struct hlt_core *core);
/* A period has to stand twice as often from now on (more is 1), or half as often (-1). */
void hlt_period_doubt(struct hlt_core *core, int more);

#endif
