/* SPDX-License-Identifier: Apache-2.0 */
/*
 * api.h - what the public calls share: each checks its arguments, fills one struct hly_call and
 * posts it.
 */
#ifndef HLY_API_H
#define HLY_API_H

#include "core.h"

struct hly_check { /* of one call's arguments: the first thing found wrong */
    int code;
    halay_op_t op; /* of a call that reduces */
    bool again;    /* the call is the one that was checked last */
    char text[128];
};

/*
 * The first thing of a call. false: the arguments are those that were checked last on this
 * communicator, and right. What is wrong must not look like anything right in the brief.
 */
bool hly_check_begin(struct hly_check *c, struct hly_call *call, halay_collective_t collective,
                     const halay_comm_t *comm);
static inline uint8_t hly_brief_byte(unsigned number)
{
    return number < UINT8_MAX ? (uint8_t)number : UINT8_MAX;
}
void hly_wrong(struct hly_check *c, const char *text);
/* count * nblocks elements of this type must be addressable. */
void hly_check_type(struct hly_check *c, size_t count, size_t nblocks, halay_type_t type);
void hly_check_op(struct hly_check *c, halay_type_t type, halay_op_t op);
/* Looks the user's operation up, and writes it into the call. */
void hly_op_resolve(const halay_comm_t *comm, struct hly_call *call, struct hly_check *c);
void hly_check_root(struct hly_check *c, int root, const halay_comm_t *comm);
/* Buffers without bytes may be NULL; `in` may be HALAY_IN_PLACE. */
void hly_check_buffers(struct hly_check *c, const void *in, size_t in_bytes, const void *out,
                       size_t out_bytes);
/* Reduce and gather: `out` is the root's, who alone may have its input there. Sets the root. */
void hly_check_gathering(struct hly_check *c, struct hly_call *call, size_t in_bytes,
                         size_t out_bytes, int root, const halay_comm_t *comm);
/*
 * The counts of a v form, for this buffer: part of the signature, and their sum is the call's
 * count. Returns the bytes from the start of the buffer to the end of its last block; 0 if wrong.
 */
size_t hly_check_counts(struct hly_check *c, struct hly_call *call, uint32_t buffer,
                        const size_t counts[], const size_t displs[], halay_type_t type,
                        const halay_comm_t *comm);

/* The handles can be used, if only to say what is wrong with them. */
static inline bool hly_usable(const halay_comm_t *comm, const void *request)
{
    return comm && request && (comm->magic == HLY_COMM_MAGIC || comm->magic == HLY_COMM_FREED);
}
/* As the place of a handle: there is none, hly_post() waits. */
static inline halay_request_t **hly_blocking(halay_comm_t *comm)
{
    return comm ? &comm->blocking : NULL;
}
static inline bool hly_is_checked(const struct hly_checked *was, halay_collective_t collective,
                                  const void *in, const void *out, size_t count, halay_type_t type,
                                  halay_op_t op, int root)
{
    return was->signature && was->in == in && was->out == out && was->brief.count == count &&
           was->brief.collective == collective && was->brief.type == type && was->brief.op == op &&
           was->brief.root == (uint32_t)root &&
           was->brief.flags == (in == HALAY_IN_PLACE ? HLY_BRIEF_IN_PLACE : 0);
}
/* The same of a few calls before it; then it is taken for the last one. */
bool hly_recalls(halay_comm_t *comm, halay_collective_t collective, const void *in, const void *out,
                 size_t count, halay_type_t type, halay_op_t op, int root);
/* Makes the call that was checked last again; false: it has to be made as any other one. */
bool hly_post_again(halay_comm_t *comm, int *result);
/* The same of a blocking call, if its arguments are those of one that was made lately, and right.
 */
static inline bool hly_again(halay_comm_t *comm, halay_collective_t collective, const void *in,
                             const void *out, size_t count, halay_type_t type, halay_op_t op,
                             int root, int *result)
{
    if (!comm || comm->magic != HLY_COMM_MAGIC)
        return false;
    return (hly_is_checked(&comm->checked, collective, in, out, count, type, op, root) ||
            hly_recalls(comm, collective, in, out, count, type, op, root)) &&
           hly_post_again(comm, result);
}
/* The part that all calls share. call->signature: of what is not in the brief. */
int hly_post(halay_comm_t *comm, halay_collective_t collective, struct hly_call *call,
             struct hly_check *c, halay_request_t **request);
/* Instead of posting it: a member of comm->bundle. allowed: such a call can be. */
int hly_group_add(halay_comm_t *comm, const struct hly_call *call, const struct hly_check *c,
                  bool allowed, halay_request_t **request);
/* Instead of posting it: the request is IDLE. */
int hly_persistent_make(halay_comm_t *comm, struct hly_call *call, const struct hly_check *c,
                        halay_request_t **request);
#endif
