/* SPDX-License-Identifier: Apache-2.0 */
/* group.h - group.c, group_run.c, persistent.c: calls that are kept instead of posted. */
#ifndef HLY_GROUP_H
#define HLY_GROUP_H

#include "run/run.h"

struct hly_group {
    struct hly_link link;  /* in comm->groups: until the members start */
    struct hly_link order; /* in comm->grouped: until all members have ended */
    halay_comm_t *comm;
    halay_request_t *request, *head; /* the request that the program waits for, and the barrier */
    halay_request_t **members;
    uint32_t nmembers, room, ncalls; /* ncalls also counts wrong calls, which have no member */
    uint32_t left;                   /* how many members are not complete */
    bool answered;                   /* the head is complete: the ranks have compared the group */
    bool grouped;                    /* its members may have group steps */
    int result;                      /* the group's */
    uint32_t failed; /* index of the first member that has failed; its verdict is in `failure` */
    struct hly_failure failure;
    int wrong;      /* the code of the first wrong call; 0: none is wrong */
    char text[192]; /* what is wrong with that call */
    uint64_t hash;  /* of the signatures of all calls */
};

/* ---------------------------------------------------------------- group.c */

/* Instead of posting it, adds the call to comm->group_open. allowed: such a call can be a member.
 */
int hly_group_add(halay_comm_t *comm, const struct hly_call *call, struct hly_check *c,
                  bool allowed, halay_request_t **request);
/* The call cannot be a member. full: because the group has no room. Makes the open group fail, and
 * writes into text why the call fails. */
void hly_group_refuse(halay_comm_t *comm, bool full, char *text, size_t bytes);

/* ---------------------------------------------------------------- group_run.c */

/* The head of a group, or a member, is complete. */
void hly_group_part_done(halay_request_t *request);
/* _release: the program has waited for the group. _forget: the context is being destroyed. */
void hly_group_release(halay_request_t *request);
void hly_group_forget(struct hly_group *group);
/* Gives back a member that was never started, or has ended. */
void hly_group_part_release(halay_request_t *request);
/* Gives back all members, and the group. */
void hly_group_drop(struct hly_group *group);
/* The first group in comm->grouped has changed: the group steps of the new first one may be
 * launched. */
void hly_group_order(halay_comm_t *comm);

/* ---------------------------------------------------------------- persistent.c */

/* Instead of posting the call, makes a persistent request of it. */
int hly_persistent_make(halay_comm_t *comm, struct hly_call *call, const struct hly_check *c,
                        halay_request_t **request);

#endif
