/* SPDX-License-Identifier: Apache-2.0 */
/*
 * circle.h - circles: who does the group steps of plans (halay/group.h,
 * docs/decisions/group-steps.md#0054). A communicator has one for each channel and set of members,
 * made when the first step needs it. Its first member makes an id, and sends it to the others
 * (INVITE).
 *
 * A failed call ends circles, since a member may have launched what another never will. So circles
 * have a generation: 1 + the number of the last failed call before those that they serve; 0: none
 * has failed. Whoever fails in a call waits with later ones until it is over; so all ranks that
 * succeed in a call do so in one generation.
 */
#ifndef HLY_CIRCLE_H
#define HLY_CIRCLE_H

#include "wire/endpoint.h"

#define HLY_CIRCLES_MAX      32           /* of a communicator, also those that end */
#define HLY_INVITATIONS_MAX  16           /* of a communicator, that no step has needed yet */
#define HLY_FAILED_MAX       64           /* more than there are calls in flight */
#define HLY_CIRCLE_ABORT_NS  100000000ull /* patience */
#define HLY_CIRCLE_CLOSE_NS  200000000ull
#define HLY_CIRCLE_RETIRE_NS 100000000ull /* for launches of the ended to end by themselves */
/* And so many looks, a millisecond apart at least: a rank that was not scheduled, or whose device
 * was busy, has not seen yet what ended long ago. */
#define HLY_CIRCLE_LOOKS 64

struct hly_circle {
    struct hly_link link; /* circles->list */
    struct hly_circles *circles;
    struct hly_device *device;
    const struct hly_group_library *library;
    halay_circle_t *handle; /* NULL: this rank is not invited yet */
    bool opened;            /* it may be launched on */
    bool lost;              /* what is launched on it fails */
    bool captured;          /* graphs of the program have launches on it */
    bool retired;           /* a call has failed: no later one uses it; `upto` is the first such */
    uint32_t channel, generation, upto;
    uint32_t flying; /* launches that have not ended */
    uint64_t order;  /* of the next launch */
    uint64_t retired_ns;
    uint32_t n, me;
    size_t *count;   /* of each member, for a launch */
    char why[192];   /* what its library said when it failed */
    uint32_t rank[]; /* in the communicator */
};

struct hly_invited { /* and not opened yet */
    bool valid;
    uint32_t channel, generation, from;
    struct hly_invitation invitation;
};

/* The circles of one communicator. */
struct hly_circles {
    struct hly_link link; /* context->circles */
    halay_comm_t *comm;
    struct hly_link list;
    uint32_t ncircles;
    uint64_t lost_ns;  /* when a rank of the communicator was lost; 0: none was */
    uint32_t orphaned; /* looks since then that found a launch which may wait for it */
    uint32_t waiting;  /* group steps of running calls that are not launched */
    bool begun;        /* of members of groups of calls: the ranks have agreed on the library */
    uint32_t first;    /* before this call */
    struct {
        uint32_t sequence;
        uint32_t launched[HALAY_PLAN_CHANNELS_MAX]; /* so many steps of this call */
    } call[HLY_SLOTS];
    uint32_t nfailed;
    uint32_t failed[HLY_FAILED_MAX]; /* the last calls that have failed */
    struct hly_invited invited[HLY_INVITATIONS_MAX];
};

/* ---------------------------------------------------------------- circle.c */

/* The communicator's; makes them. NULL: no memory. */
struct hly_circles *hly_circles_of(halay_comm_t *comm);
/* From its next call on members of groups have group steps, on all ranks. */
void hly_circles_begin(halay_comm_t *inner);
/* Ends all of them. The calls on the communicator are over, or the context goes. */
void hly_circles_free(halay_comm_t *comm);
/* A rank of the communicator is lost. */
static inline void hly_circles_lost(struct hly_circles *circles, uint64_t now_ns)
{
    circles->lost_ns = now_ns;
    circles->orphaned = 0;
}
uint32_t hly_circle_generation(const struct hly_circles *circles, uint32_t sequence);
/* The circle for this step, or NULL. */
struct hly_circle *hly_circle_find(const halay_request_t *request, uint32_t step);
/* The same; made and opened, if need be. An error has its text. */
int hly_circle_get(halay_request_t *request, uint32_t step, struct hly_circle **circle, char *text,
                   size_t bytes);
/* An INVITE message has come. */
void hly_circle_invited(halay_comm_t *comm, const struct hly_header *header,
                        const struct hly_invitation *invitation);
/* Its library has failed: keeps what it says of that. */
void hly_circle_note(struct hly_circle *circle);
/* The device ends it; what was launched on it is the caller's affair. */
void hly_circle_abort(struct hly_circle *circle);
/* Frees it, if nothing of it is in flight. */
void hly_circle_free(struct hly_circle *circle);

/* ---------------------------------------------------------------- group_step.c */

/* Starts a group step: it is launched when its turn has come. HALAY_INPROGRESS; an error: the call
 * has failed. */
int hly_group_step_start(halay_request_t *request, uint32_t step);
/* Launches what can be launched; takes in what has ended. Returns how much. */
int hly_group_steps_poll(halay_context_t *context);
/* Aborts circles that graphs may run on, and that have lost a member. */
void hly_group_steps_watch(halay_context_t *context);
/* The call has failed: nothing more of it is launched. */
void hly_group_steps_fail(halay_request_t *request);
/* The failed call may wait no longer for what it has launched. */
void hly_group_steps_force(halay_request_t *request);
/* The deadline has passed: is a group step to blame? Then the text says so. */
bool hly_group_steps_overdue(halay_request_t *request, char *text, size_t bytes);
/*
 * A rank may be lost since it has left, after its own launches had ended; then those in flight here
 * end too. Has one that has a lost member not ended in a while, and in many of these looks?
 */
bool hly_group_steps_orphaned(const halay_request_t *request);

#endif
