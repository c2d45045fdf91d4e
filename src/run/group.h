/* SPDX-License-Identifier: Apache-2.0 */
/* group.h - group.c, group_run.c, persistent.c: calls that are kept instead of posted. */
#ifndef HLY_GROUP_H
#define HLY_GROUP_H

#include "run/run.h"

struct hly_group {
    struct hly_link link;  /* comm->groups, from its end until its members begin */
    struct hly_link order; /* comm->grouped, from its end until its members are over */
    halay_comm_t *comm;
    halay_request_t *request, *head; /* the program's, and the barrier */
    halay_request_t **members;
    uint32_t nmembers, room, ncalls; /* calls: also those that were wrong */
    uint32_t left;                   /* members that are not complete */
    bool answered;                   /* the head is complete */
    uint8_t grouped;                 /* its members may use NCCL */
    int result;
    uint32_t failed; /* first member that has failed, and why */
    struct hly_failure failure;
    int wrong;   /* the first error among them */
    int awaited; /* as in a call */
    char text[192];
    uint64_t hash;
};

/* ---------------------------------------------------------------- group.c */

/* Instead of posting it, adds the call to comm->group_open. allowed: such a call can be a member.
 */
int hly_group_add(halay_comm_t *comm, const struct hly_call *call, struct hly_check *c,
                  bool allowed, halay_request_t **request);
/* It can have no such call: so the open group will fail, and the text says why the call does. */
void hly_group_refuse(halay_comm_t *comm, char *text, size_t bytes);

/* ---------------------------------------------------------------- group_run.c */

/* The head of a group, or a member, is complete. */
void hly_group_part_done(halay_request_t *request);
/* The program has waited for the group; the context is being destroyed. */
void hly_group_release(halay_request_t *request);
void hly_group_forget(struct hly_group *group);
/* Gives back a member that was never started, or has ended. */
void hly_group_part_release(halay_request_t *request);
/* Gives back all members, and the group. */
void hly_group_drop(struct hly_group *group);
/* Another group is the first of those that have group steps. */
void hly_group_order(halay_comm_t *comm);

/* ---------------------------------------------------------------- persistent.c */

/* Instead of posting it, makes a persistent request. */
int hly_persistent_make(halay_comm_t *comm, struct hly_call *call, const struct hly_check *c,
                        halay_request_t **request);

#endif
