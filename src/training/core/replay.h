/* SPDX-License-Identifier: Apache-2.0 */
/* replay.h - decides which group of a programme a rank launches next, and what its result means. */
#ifndef HLT_REPLAY_H
#define HLT_REPLAY_H

#include "core.h"

/* What this rank is to do. */
enum hlt_next {
    HLT_NEXT_NONE,    /* nothing can be started now */
    HLT_NEXT_GROUP,   /* start the group in *launch */
    HLT_NEXT_MISSING, /* tensors are missing here: ask hlt_replay_must_void() */
    HLT_NEXT_REDUCE   /* reduce hlt_tune_words() */
};

/* A group to launch. If it has no tensors this rank is void. */
struct hlt_launch {
    struct hlt_group *group;
    uint64_t sequence;
    struct hlt_list tensors;
    int begins; /* a cycle */
};

/* What the shell knows when tensors of the next group are missing. */
struct hlt_seen {
    int over;      /* the communicator is broken: the call will return why */
    int behind;    /* tensors wait for streams: the missing ones may be among them */
    int expecting; /* tensors have callbacks, so it is unknown whether a caller waits */
    int wanted;    /* a caller waits for a tensor of the pool */
};

void hlt_replay_begin(struct hlt_core *core, struct hlt_programme *programme);
/* What this rank does next. empty: launches the next group although its tensors are missing. */
enum hlt_next hlt_replay_next(struct hlt_core *core, int empty, struct hlt_launch *launch);
/* The next group has tensors missing here. Must this rank go void? */
int hlt_replay_must_void(struct hlt_core *core, const struct hlt_seen *seen);
/* The result of the next group, in the order of sequences. empty: the group was void; puts its
 * tensors back into the pool. Else they stay in the list. */
void hlt_replay_result(struct hlt_core *core, struct hlt_list *tensors, int empty);
/* The reduction of autotuning's words has ended. */
void hlt_replay_tuned(struct hlt_core *core);
/* 1 if the oldest group under way, launched at oldest_ns (0: there is none), is overdue. Then a
 * round tells the others to launch as many groups, void ones if they must. */
int hlt_replay_alarm(const struct hlt_core *core, uint64_t oldest_ns);
/* Called after all groups that could be started or tested. 1 if the replay has ended and rounds
 * follow. oldest_ns: as above; also 0 while a round is under way. */
int hlt_replay_step(struct hlt_core *core, uint64_t oldest_ns);

#endif
