/* SPDX-License-Identifier: Apache-2.0 */
/* group.h - group.c and persistent.c: calls that are kept instead of posted. */
#ifndef HLY_API_GROUP_H
#define HLY_API_GROUP_H

#include "api/api.h"

/* Instead of posting it, adds the call to comm->group_open. allowed: such a call can be a member.
 */
int hly_group_add(halay_comm_t *comm, const struct hly_call *call, struct hly_check *c,
                  bool allowed, halay_request_t **request);
/* It can have no such call: so the open group will fail, and the text says why the call does. */
void hly_group_refuse(halay_comm_t *comm, char *text, size_t bytes);
/* The head of a group, or a member, is complete. */
void hly_group_part_done(halay_request_t *request);
/* The program has waited for the group; the context is being destroyed. */
void hly_group_release(halay_request_t *request);
void hly_group_forget(struct hly_group *group);
/* Instead of posting it, makes a persistent request. */
int hly_persistent_make(halay_comm_t *comm, struct hly_call *call, const struct hly_check *c,
                        halay_request_t **request);

#endif
