/* SPDX-License-Identifier: Apache-2.0 */
/*
 * group_double.h - a double of a library of device collectives, for ranks that are threads of one
 * process: it works in host memory, late, and each device communicator for itself. It checks what
 * such libraries ask of their users: the n-th launch of all members of a device communicator is the
 * same collective with the same counts, type and operation; nobody is missing; memory overlaps only
 * as allowed. Who breaks a rule aborts the process. The members' wholes are combined in the order
 * of the members.
 *
 * A launch begins some polls later: only then its input is read. It ends some polls after all
 * members from which data come have begun.
 */
#ifndef TESTS_GROUP_DOUBLE_H
#define TESTS_GROUP_DOUBLE_H

#include <stdatomic.h>
#include <stdbool.h>

#include <halay/group.h>

extern const halay_group_ops_t group_double;

/* Of one rank; all 0: it works, and is not late. */
struct group_double_arg {
    uint64_t seed;
    uint32_t delay_polls_max; /* to begin, and to end; 0: at once */
    uint32_t capacity;        /* launches in flight on a device communicator; 0: any */
    /* Of this rank's launches, counted from 1: one that never begins, one that ends with an error,
     * one that is refused, one after which poll is an error. 0: none. */
    uint32_t never, fails, refused, breaks;
    bool there;    /* it works in memory that the processor cannot touch (ranks.h) */
    bool stubborn; /* abort is HALAY_EDEVICE */
    bool never_opens, fails_to_open, refuses_to_open, refuses_to_invite; /* the first time */
    const char *name;
    /* What it has done: */
    uint32_t launched, opened, aborted, closed;
    bool failed; /* one of the above has happened */
};

/* Device communicators that were not closed by all who opened them. */
int group_double_left(void);

#endif
