/* SPDX-License-Identifier: Apache-2.0 */
/*
 * core.h - the trainer's state that ranks agree on, and how a rank decides what it does next.
 *
 * Words.
 * - programme: the agreed order of fused groups that is replayed each step (a cached schedule).
 * - replay: the ranks run a programme, and do not ask each other what is ready.
 * - cycle: one pass of the replay through a programme; in training that is a step. (Horovod's cycle
 *   is a round here.)
 * - round: the ranks announce to each other what they have submitted (a negotiation cycle).
 * - run: the tensors that a rank submits between two of its waits (for example one backward pass).
 * - vote: one word, reduced over all ranks: whether each rank has the tensors that come next.
 * - void: a launch of a group for which some rank lacks a tensor. All ranks make the call all the
 *   same; its result shows the void, and every rank drops the result. A rank that lacks a tensor
 *   goes void.
 * - mark: an extra element after a fused group's tensors, which shows whether a rank was void.
 * - pool: the tensors that this rank has submitted in a replay, and that no group has taken yet.
 * - tape: the tensors that the ranks have agreed on in rounds, in order. Programmes are learnt from
 *   it.
 * - series: the tensors without a name of their own, told apart by a number.
 * - behind: a tensor waits for a stream of the program, which has not reached the tensor's mark
 *   yet.
 * - stand-in: a tensor of zeros with which a rank that has joined takes part.
 * - fresh: the tensors on which the ranks have agreed in this round. They become ready, or enter a
 *   replay, when the round ends.
 * - ended: tensors that are done. The shell reports this to their callers.
 *
 * The core is pure: it has no mutex, thread, clock, call, device, log or setting of its own. The
 * shell hands it events: a round is over, a group's result is here, a stream has come to its mark;
 * with the time in `now_ns`. The core returns what the rank has to do next. Only the thread that
 * steps (`stepping` in the shell) touches the core's state.
 *
 * A tensor's states: submitted (-> behind a stream) -> pending -> (announced in a round) waiting ->
 * (announced by all) ready -> (started) in one of `calls` -> done. While a programme is replayed:
 * pending -> pool -> calls -> done, and back to the pool where the group was void. It is in one
 * list at a time.
 */
#ifndef HLT_CORE_H
#define HLT_CORE_H

#include "programme.h"

/* What ranks have announced so far about a name that not all have announced. Equal on all ranks. */
struct hlt_record {
    struct hlt_node node;                 /* the first member: a node is cast to its record */
    struct hlt_announcement first, other; /* of first_rank; of other_rank */
    int first_rank;                       /* the rank that announced it first */
    int other_rank;                       /* the first rank whose announcement differs; -1: none */
    int nannounced;                       /* how many ranks have announced it */
    uint64_t run;            /* hash of all ranks' `wait`: equal where no rank waited in between */
    uint64_t marks;          /* HLT_PART_REPLAYED, HLT_IN_PLACE: of any rank */
    uint64_t noticed_round;  /* the round of the last notice about it */
    uint64_t *rows;          /* of each rank; allocated for allgathers only */
    uint64_t sequence;       /* number of the record; older records have smaller ones */
    struct hlt_record *next; /* in the list of unused records */
    struct hlt_tensor *own;  /* this rank's tensor; NULL: this rank has announced none */
    uint64_t announced[];    /* a bit for each rank that has announced it */
};

/* The state of the replay. Sequences count groups since it began. */
struct hlt_replay {
    struct hlt_programme *programme; /* NULL: no replay; the ranks negotiate in rounds */
    uint64_t issued;                 /* how many groups this rank has launched */
    uint64_t results;                /* of how many the result is known */
    uint64_t base;                   /* sequence of the first group of the present grouping */
    uint64_t cycles;                 /* whole cycles before `base` */
    uint64_t first_void;             /* the first result that was void, or UINT64_MAX */
    uint64_t good_after_void;        /* bit i: group i after the first void was good */
    int flushing;                    /* a void is known: launches groups at once, void if need be */
    uint32_t foreign;                /* tensors in the pool without a place in the programme */
    uint32_t early;                  /* tensors in the pool with a place in a later cycle */
    /* the next group cannot be complete before so many more submissions */
    uint32_t submissions_before_group;
    /* a sequence: another rank has launched the groups before it, and waits for their results */
    uint64_t called;
    uint64_t alarm_ns; /* when this rank last started a round to wake the others */
    uint64_t check_ns; /* when to check again whether to go void; 0: never */
    int tuning;        /* a reduction of autotuning's words is under way */
};

/* _group: the group with this sequence. _is_first: is it the first of its cycle? _cycle: the number
 * of its cycle. */
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

/* This rank's trainer ends alone: the others' next calls have to fail at once, those that move
 * tensors or those that negotiate. */
enum { HLT_FAREWELL_DATA = 1, HLT_FAREWELL_CONTROL = 2 };

/* The group hashes of two announcements of one name that differ. */
struct hlt_unlike {
    uint64_t first, other;
};

/* The state of the rounds. */
struct hlt_rounds {
    struct hlt_block *blocks; /* one for each rank, of the round in flight */
    /* this rank's tensors, by the entries of its block */
    struct hlt_tensor *said[HLT_ROUND_ENTRIES];
    struct hlt_map records;
    struct hlt_record *unused;
    uint64_t sequence;         /* how many records were made so far */
    uint64_t agreed_ns;        /* when something was agreed on last */
    uint64_t *agreed_groups;   /* groups of which a tensor was agreed on in this round */
    struct hlt_unlike *unlike; /* group calls that differ, found in this round */
    size_t nagreed_groups, nunlike, groups_room;
    char unlike_text[HLT_TEXT_BYTES];
    /* the last timeout of a rank that waited for this one, as text: for the error if that leaves */
    char missed[HLT_TEXT_BYTES];
    uint64_t fusions; /* how many fused groups rounds have made so far: numbers for tensor.fusion */
    int stand_ins;    /* how many stand-ins have no memory yet */
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
    int again;             /* does not read a setting that an earlier job has kept */
    uint64_t key;          /* hash of what a kept setting depends on, apart from the programme */
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
    uint64_t alarm_after_ns; /* a group without a result for so long raises the alarm */
    size_t buffer_bytes;     /* largest fused group, without its marks; equal on all ranks */
    struct hlt_autotune autotune;
    struct hlt_greeting *greetings; /* one for each rank */
    uint64_t now_ns;                /* of the event */
    int leaving;                    /* the trainer closes */

    /* the states of a tensor, and other words: see above */
    struct hlt_list pending, waiting, fresh, ready, pool, ended;
    struct hlt_list joining; /* this rank's join, when it is announced */
    struct hlt_rounds rounds;
    struct hlt_joins joins;
    struct hlt_learnt learnt;
    struct hlt_replay replay;
    struct hlt_tune *speaks; /* autotuning has something for the shell to log; NULL: nothing */

    int broken;   /* the error code, if not 0: no round is started any more */
    int farewell; /* HLT_FAREWELL_*: calls that this rank still has to make, to fail on all ranks */
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
/* Ends a tensor that is in no list, with this code. text: copied; may be NULL. */
void hlt_tensor_end(struct hlt_core *core, struct hlt_tensor *tensor, int code, const char *text);
void hlt_tensor_list_end(struct hlt_core *core, struct hlt_list *list, int code, const char *text);
/* Ends all negotiation: tensors that are not agreed on, and later ones, end with the code. */
void hlt_core_break(struct hlt_core *core, int code, const char *text);
/* The same if other ranks do not know of the error: makes their next calls fail. */
void hlt_core_leave_all(struct hlt_core *core, int code, const char *text);

#endif
