/* SPDX-License-Identifier: Apache-2.0 */
/*
 * core.h - what a trainer has agreed on with the others, and how it decides what comes next.
 *
 * Words.
 * - programme: the agreed order of fused groups that is replayed each step (a cached schedule).
 * - replay: the ranks run a programme, and do not ask each other what is ready.
 * - cycle: a programme is run through once; in training that is a step.
 * - round: the ranks announce to each other what they have submitted (a negotiation cycle).
 * - run: the tensors that a rank submits between two of its waits.
 * - vote: one word, reduced over all ranks: whether each rank has the tensors that come next.
 * - void: of a group whose tensors are not all here on some rank. The call is made all the same,
 *   its result says so, and every rank drops it.
 * - mark: elements behind a fused group's tensors that tell whether a rank was void.
 * - pool: what this rank has submitted in a replay and no group has taken yet.
 * - tape: what the ranks have agreed on in rounds, in its order; programmes are learnt from it.
 * - series: the tensors without a name of their own, told apart by a number.
 * - behind: a tensor's mark in a stream of the program, which has not come to it yet.
 * - stand-in: the zeros with which a rank that has joined takes part.
 * - ended: tensors that are over. The shell tells their callers.
 *
 * The core is pure: it has no mutex, thread, clock, call, device, log or setting of its own. The
 * shell hands it events: a round is over, a group's result is here, a stream has come to its mark;
 * with the time in `now_ns`. What a rank has to do next the core returns. The one thread that steps
 * (`stepping` in the shell) owns all of it.
 *
 * The way of a tensor: submitted (-> behind a stream) -> pending -> (announced in a round) waiting
 * -> (announced by all) ready -> (started) in one of `calls` -> done. While a programme is
 * replayed: pending -> pool -> calls -> done, and back to the pool where the group was void. It is
 * in one list at a time.
 */
#ifndef HLT_CORE_H
#define HLT_CORE_H

#include "programme.h"

/* What all ranks have said so far about a name that not all have announced. Equal on all ranks. */
struct hlt_record {
    struct hlt_node node; /* the first member: a node is cast to its record */
    struct hlt_announcement first, other;
    int first_rank; /* who announced it first */
    int other_rank; /* who was the first to differ; -1: nobody */
    int nannounced;
    uint64_t run;            /* hash of all ranks' `wait`: equal where no rank waited in between */
    uint64_t marks;          /* HLT_PART_REPLAYED, HLT_IN_PLACE: of any rank */
    uint64_t noticed_round;  /* of the last notice of it */
    uint64_t *rows;          /* of each rank; allocated for allgathers only */
    uint64_t sequence;       /* its number, by age */
    struct hlt_record *next; /* in the list of unused ones */
    struct hlt_tensor *own;  /* this rank's; NULL: it has announced none */
    uint64_t announced[];    /* a bit a rank */
};

/* Where the replay stands. Sequences count groups since it began. */
struct hlt_replay {
    struct hlt_programme *programme; /* NULL: there are rounds instead */
    uint64_t issued;                 /* groups sent out */
    uint64_t results;                /* groups whose result is known */
    uint64_t base;                   /* the first one of the present grouping */
    uint64_t cycles;                 /* that are whole before that one */
    uint64_t first_void;             /* the first result that was void, or UINT64_MAX */
    uint64_t good_after_void;        /* bit i: group i after the first void was good */
    int flushing;     /* a void is known of, or was this rank's: groups go out at once */
    uint32_t foreign; /* tensors in the pool without a place in the programme */
    uint32_t early;   /* tensors in the pool with a place in a later cycle */
    uint32_t submissions_before_group; /* how many cannot complete the next group */
    uint64_t called;                   /* another rank waits for the groups up to here */
    uint64_t alarm_ns;                 /* when this rank last asked where the others are */
    uint64_t check_ns;                 /* when to look again whether to be void; 0: no need */
    int tuning;                        /* the words of a tuning are out */
};

/* A group of the replay; whether it is the first of its cycle; and the cycle, from 0. */
static inline struct hlt_group *hlt_replay_group(const struct hlt_replay *replay, uint64_t sequence)
{
    return &replay->programme->groups[(sequence - replay->base) % replay->programme->ngroups];
}

static inline int hlt_replay_is_first(const struct hlt_replay *replay, uint64_t sequence)
{
    return (sequence - replay->base) % replay->programme->ngroups == 0;
}

static inline uint64_t hlt_replay_cycle(const struct hlt_replay *replay, uint64_t sequence)
{
    return replay->cycles + (sequence - replay->base) / replay->programme->ngroups;
}

#define HLT_NO_ZEROS "no memory for the zeros of a rank that joined"

/* This rank ends alone: what others call next, here or there, is to fail at once. */
enum { HLT_FAREWELL_DATA = 1, HLT_FAREWELL_CONTROL = 2 };

/* The groups of two announcements that differ. */
struct hlt_unlike {
    uint64_t first, other;
};

/* What the rounds have carried. */
struct hlt_rounds {
    struct hlt_block *blocks;                   /* one for each rank, of the round in flight */
    struct hlt_tensor *said[HLT_ROUND_ENTRIES]; /* this rank's, of the entries of its block */
    struct hlt_map records;
    struct hlt_record *unused;
    uint64_t sequence;         /* records so far */
    uint64_t agreed_ns;        /* when something was agreed on last */
    uint64_t *agreed_groups;   /* a tensor of these was agreed on in this round */
    struct hlt_unlike *unlike; /* in this round */
    size_t nagreed_groups, nunlike, groups_room;
    char unlike_text[HLT_TEXT_BYTES];
    char missed[HLT_TEXT_BYTES]; /* others have waited for this rank, and then left */
    uint64_t fusions;            /* so far */
    int stand_ins;               /* zeros of a rank that has joined, which have no memory yet */
};

/* The ranks that have joined, as the rounds have said. */
struct hlt_joins {
    uint64_t *ranks; /* a bit for each */
    uint8_t *kinds;  /* of each rank that has joined: a bit for each kind of memory */
    int count;
};

/* Equal on all ranks. */
struct hlt_autotune {
    size_t most_bytes;     /* in a group of any setting */
    uint32_t steps;        /* in a block of the first round; 0: nothing is tuned */
    uint32_t warmup_steps; /* before the first block */
    int again;             /* what is kept is not read */
    uint64_t key;          /* hash of what a kept setting depends on, beside the programme */
};

/* What ranks tell each other once. */
struct hlt_greeting {
    uint64_t fusion_bytes, group_bytes;
    uint64_t tune_steps, tune_warmup_steps, tune_reads; /* see struct hlt_autotune */
    char host[56];
};

struct hlt_core {
    int rank, nranks;
    uint64_t deadline_ns;    /* how long a tensor waits for other ranks */
    uint64_t alarm_after_ns; /* a group is out for long */
    size_t buffer_bytes;     /* a fused group's most, without its marks; equal on all ranks */
    struct hlt_autotune autotune;
    struct hlt_greeting *greetings; /* one for each rank */
    uint64_t now_ns;                /* of the event */
    int leaving;                    /* the trainer closes */

    struct hlt_list pending, waiting, fresh, ready, pool, ended;
    struct hlt_list joining; /* this rank's join, when it is announced */
    struct hlt_rounds rounds;
    struct hlt_joins joins;
    struct hlt_learnt learnt;
    struct hlt_replay replay;
    struct hlt_tune *speaks; /* of this event the shell is to say something; NULL: no */

    int broken;   /* the code for which no round is started any more */
    int farewell; /* HLT_FAREWELL_*: calls that are still to be made, and fail on all ranks */
    char broken_text[HLT_TEXT_BYTES];
    halay_trainer_counters_t counters;
};

/* Words that hold a bit for each rank. */
static inline size_t hlt_rank_words(int nranks)
{
    return ((size_t)nranks + 63) / 64;
}

static inline int hlt_rank_in(const uint64_t *ranks, int rank)
{
    return (int)(ranks[rank / 64] >> (rank % 64) & 1);
}

static inline void hlt_rank_add(uint64_t *ranks, int rank)
{
    ranks[rank / 64] |= UINT64_C(1) << (rank % 64);
}

static inline void hlt_rank_remove(uint64_t *ranks, int rank)
{
    ranks[rank / 64] &= ~(UINT64_C(1) << (rank % 64));
}

/* ended.c */
/* Takes a tensor that is in no list. text: copied; may be NULL. */
void hlt_tensor_end(struct hlt_core *core, struct hlt_tensor *tensor, int code, const char *text);
void hlt_tensor_list_end(struct hlt_core *core, struct hlt_list *list, int code, const char *text);
/* Ends all negotiation: what is not agreed on, and what comes later, ends with the code. */
void hlt_core_break(struct hlt_core *core, int code, const char *text);
/* The same where other ranks do not know of it: their next calls fail. */
void hlt_core_leave_all(struct hlt_core *core, int code, const char *text);

#endif
