/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crossed.h - programs of calls on several communicators, of which some ranks deviate, and a model
 * of what becomes of them.
 */
#ifndef TESTS_CROSSED_H
#define TESTS_CROSSED_H

#include <stdbool.h>
#include <stdint.h>

#define CROSSED_RANKS 8
#define CROSSED_COMMS 4 /* the world, a copy, even and odd ranks, lower and upper half reversed */
#define CROSSED_CALLS 12
#define CROSSED_COUNT 12

enum crossed_kind {
    CROSSED_ALLREDUCE,
    CROSSED_BROADCAST,
    CROSSED_REDUCE,
    CROSSED_ALLGATHER,
    CROSSED_BARRIER,
    CROSSED_KINDS
};

struct crossed_call {
    int comm, kind, count, root;
    bool other_type, other_op;
};

enum crossed_end {
    CROSSED_WAITS,  /* in its call end_at, which some others have not made */
    CROSSED_DIFFER, /* the same, and the calls of those who have differ */
    CROSSED_DONE    /* it has made all of its calls */
};

struct crossed {
    int nranks;
    bool posted; /* all calls are posted, then waited for in each rank's own order */
    bool leaves; /* ranks finalize when they are done or have failed; else when all are */
    uint64_t seed;
    char what[64];
    struct crossed_call list[CROSSED_RANKS][CROSSED_CALLS];
    int n[CROSSED_RANKS];
    /* The model's: */
    enum crossed_end end[CROSSED_RANKS];
    int end_at[CROSSED_RANKS];
    bool wrong;
};

/* nranks 0: drawn, too. */
void crossed_draw(struct crossed *program, uint64_t seed, int nranks);
/* In which order this rank waits for posted calls. */
void crossed_order(const struct crossed *program, int me, int order[CROSSED_CALLS]);
bool crossed_is_wrong(const struct crossed *program);
/* Does rank `me` have this other one in its group of the communicator? */
bool crossed_has(const struct crossed *program, int comm, int me, int other);
/* A number of this group; the world rank of its rank; its root for this call. */
int crossed_group(const struct crossed *program, int comm, int me);
int crossed_member(const struct crossed *program, int comm, int me, int rank);
int crossed_root(const struct crossed *program, int me, const struct crossed_call *call);
/*
 * May a verdict on the i-th call of rank `me` name this world rank (-1: none)? Not one that waits,
 * unless for one that is to blame; or it is said where it waits, and no circle of two can be seen.
 */
bool crossed_is_just(const struct crossed *program, int me, int i, int blamed, const char *text);
/* Does rank a wait for rank b, which is not in a's last call? Of blocking programs. */
bool crossed_waits_for(const struct crossed *program, int a, int b);
const char *crossed_end_name(enum crossed_end end);
const char *crossed_text(const struct crossed_call *call);

#endif
