/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device_comm.h - device communicators: those of a device library, such as NCCL's, which do the
 * group steps of plans (halay/group.h, docs/decisions/group-steps.md#0054). A Halay communicator
 * makes one for each channel and set of members, when the first step needs it. The first member
 * makes the id, as ncclGetUniqueId() does, and sends it to the others (INVITE).
 *
 * A failed call ends device communicators, since a member may have launched what another never
 * will. So they have a generation: 1 + the number of the last failed call before those that they
 * serve; 0: none has failed. A rank on which a call fails starts no later group step until that
 * failure is agreed on. So all ranks that succeed in a call use one generation.
 */
#ifndef HLY_DEVICE_COMM_H
#define HLY_DEVICE_COMM_H

#include "wire/endpoint.h"

#define HLY_DEVICE_COMMS_MAX      32 /* of a communicator, with those that are being ended */
#define HLY_INVITATIONS_MAX       16 /* of a communicator, kept until a step needs them */
#define HLY_FAILED_MAX            64 /* more than there are calls in flight */
#define HLY_DEVICE_COMM_ABORT_NS  100000000ull /* how long abort() may take */
#define HLY_DEVICE_COMM_CLOSE_NS  200000000ull
#define HLY_DEVICE_COMM_RETIRE_NS 100000000ull /* how long launches of a retired one may go on */
/* And at least so many checks, a millisecond apart or more. A rank that was not scheduled, or whose
 * device was busy, may not have noticed yet that a launch has ended. */
#define HLY_DEVICE_COMM_LOOKS 64

struct hly_device_comm {
    struct hly_link link; /* dcomms->list */
    struct hly_device_comms *dcomms;
    struct hly_device *device;
    const struct hly_group_library *library;
    halay_circle_t *handle; /* NULL: no invitation has come to this rank yet */
    bool opened;            /* collectives may be launched on it */
    bool lost;              /* launches on it fail */
    bool captured;          /* graphs of the program have launches on it */
    bool retired;           /* a call has failed: calls from `upto` on use another one */
    uint32_t channel, generation, upto;
    uint32_t flying; /* launches that have not ended */
    uint64_t order;  /* of the next launch */
    uint64_t retired_ns;
    uint32_t n, me;
    size_t *count;   /* elements of each member's run, for a launch */
    char why[192];   /* what its library said when it failed */
    uint32_t rank[]; /* in the communicator */
};

struct hly_invited { /* an invitation to one that this rank has not opened yet */
    bool valid;
    uint32_t channel, generation, from;
    struct hly_invitation invitation;
};

/* The device communicators of one Halay communicator. */
struct hly_device_comms {
    struct hly_link link; /* context->dcomms */
    halay_comm_t *comm;
    struct hly_link list;
    uint32_t ndcomms;
    uint64_t lost_ns;  /* when a rank of the communicator was lost; 0: none was */
    uint32_t orphaned; /* checks since then that found a launch which may wait for that rank */
    uint32_t waiting;  /* group steps of running calls that are not launched yet */
    struct {
        uint32_t sequence;
        uint32_t launched[HALAY_PLAN_CHANNELS_MAX]; /* how many steps of this call are launched */
    } call[HLY_SLOTS];
    uint32_t nfailed;
    uint32_t failed[HLY_FAILED_MAX]; /* the last calls that have failed */
    struct hly_invited invited[HLY_INVITATIONS_MAX];
};

/* ---------------------------------------------------------------- device_comm.c */

/* Finds or makes those of this Halay communicator. NULL: no memory. */
struct hly_device_comms *hly_device_comms_of(halay_comm_t *comm);
/* Ends all of this Halay communicator. Its calls are over, or the context ends. */
void hly_device_comms_free(halay_comm_t *comm);
/* A rank of the communicator is lost. */
static inline void hly_device_comms_lost(struct hly_device_comms *dcomms, uint64_t now_ns)
{
    dcomms->lost_ns = now_ns;
    dcomms->orphaned = 0;
}
uint32_t hly_device_comm_generation(const struct hly_device_comms *dcomms, uint32_t sequence);
/* Finds the device communicator for this step, or NULL. */
struct hly_device_comm *hly_device_comm_find(const halay_request_t *request, uint32_t step);
/* The same, but makes and opens it if need be. On an error fills text. */
int hly_device_comm_get(halay_request_t *request, uint32_t step, struct hly_device_comm **dcomm,
                        char *text, size_t bytes);
/* An INVITE message has come. */
void hly_device_comm_invited(halay_comm_t *comm, const struct hly_header *header,
                             const struct hly_invitation *invitation);
/* The device communicator's library has failed: keeps the library's error text in `why`. */
void hly_device_comm_note(struct hly_device_comm *dcomm);
/* Has the library abort it. The caller ends the requests that had launches on it. */
void hly_device_comm_abort(struct hly_device_comm *dcomm);
/* Frees the device communicator, which has nothing in flight. */
void hly_device_comm_free(struct hly_device_comm *dcomm);

/* ---------------------------------------------------------------- group_step.c */

/* Starts a group step. It is launched when all steps before it on its channel are.
 * HALAY_INPROGRESS; an error: the call has failed. */
int hly_group_step_start(halay_request_t *request, uint32_t step);
/* Launches the steps that can be launched, and completes those that have ended. Returns how many
 * have ended. */
int hly_group_steps_poll(halay_context_t *context);
/* Aborts device communicators with a lost member, if the program's graphs may still run there. */
void hly_group_steps_watch(halay_context_t *context);
/* The call has failed: nothing more of it is launched. */
void hly_group_steps_fail(halay_request_t *request);
/* The failed call may wait no longer for its launches: aborts their device communicators. */
void hly_group_steps_force(halay_request_t *request);
/* The deadline has passed: is a group step the cause? Then fills text. */
bool hly_group_steps_overdue(halay_request_t *request, char *text, size_t bytes);
/*
 * A rank may be lost only because it has finalized, after its own launches had ended; then this
 * rank's launches end, too. True if a launch with a lost member has not ended for a while, in many
 * checks.
 */
bool hly_group_steps_orphaned(const halay_request_t *request);

#endif
