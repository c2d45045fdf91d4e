/* SPDX-License-Identifier: Apache-2.0 */
/*
 * replay.h - which group of a programme comes next, and what its result means.
 */
#ifndef HLT_REPLAY_H
#define HLT_REPLAY_H

#include "core.h"

/* What this rank is to do. */
enum hlt_next {
    HLT_NEXT_NONE,    /* nothing can be started now */
    HLT_NEXT_GROUP,   /* the launch says what: start it */
    HLT_NEXT_MISSING, /* tensors are missing here: ask hlt_replay_must_void() */
    HLT_NEXT_REDUCE   /* reduce hlt_tune_words() */
};

/* A group that goes out. Without tensors this rank is void. */
struct hlt_launch {
    struct hlt_group *group;
    uint64_t sequence;
    struct hlt_list tensors;
    int begins; /* a cycle */
};

/* What the shell knows while tensors are missing. */
struct hlt_seen {
    int over;      /* the communicator is broken: the call will say why */
    int behind;    /* tensors wait for streams: what is missing may be there, and come */
    int expecting; /* tensors have functions, so nobody can tell whether a caller waits */
    int wanted;    /* a caller waits for a tensor of the pool */
};

void hlt_replay_begin(struct hlt_core *core, struct hlt_programme *programme);
/* What comes next; with `empty` a group goes out though its tensors are not here. */
enum hlt_next hlt_replay_next(struct hlt_core *core, int empty, struct hlt_launch *launch);
/* The next group has tensors missing here. Must this rank go void? */
int hlt_replay_must_void(struct hlt_core *core, const struct hlt_seen *seen);
/* Takes a void group's tensors back. A good one's are still in the list. Comes in the order of the
 * sequences. */
void hlt_replay_result(struct hlt_core *core, struct hlt_list *tensors, int empty);
/* The words of a tuning are reduced. */
void hlt_replay_tuned(struct hlt_core *core);
/* 1 if a group is out for long, the oldest since then (0: none is out). Then a round asks the
 * others to go as far, void if they must. */
int hlt_replay_alarm(const struct hlt_core *core, uint64_t oldest_ns);
/* Comes after all that could be started or tested. 1 if the replay has ended and rounds go on.
 * oldest_ns: as above; 0 as well while a round is out. */
int hlt_replay_step(struct hlt_core *core, uint64_t oldest_ns);

#endif
