/* SPDX-License-Identifier: Apache-2.0 */
/* habit.h - calls that a program has just made, and may make again: straight.c. */
#ifndef HLY_HABIT_H
#define HLY_HABIT_H

#include "wire.h"

struct hly_plan;

#define HLY_HABITS 3 /* calls that alternate with the last one */

struct hly_checked { /* they were right, and nothing but the brief is signed; signature 0: none */
    struct hly_brief brief;
    const void *in;
    void *out;
    uint64_t signature;
    uint64_t number; /* of those of its communicator, from 1 on */
};
struct hly_habit { /* of the members of a communicator: checked and last_* */
    struct hly_checked checked;
    struct hly_brief brief;
    struct hly_plan *plan, *series;
};

#endif
