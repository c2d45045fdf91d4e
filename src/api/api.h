/* SPDX-License-Identifier: Apache-2.0 */
/*
 * api.h - what the public calls share. Each checks its arguments, fills one struct hly_call, and
 * posts it by hly_post().
 */
#ifndef HLY_API_H
#define HLY_API_H

#include "run/run.h"

/* ---------------------------------------------------------------- check.c */

/* Is this a type, and can count * nblocks elements of it be addressed? Returns the bytes of count
 * elements, 0 if anything is wrong. */
size_t hly_check_type(struct hly_check *c, size_t count, size_t nblocks, halay_type_t type);
void hly_check_op(struct hly_check *c, halay_type_t type, halay_op_t op);
void hly_check_root(struct hly_check *c, int root, const halay_comm_t *comm);
/* Buffers without bytes may be NULL; `in` may be HALAY_IN_PLACE. */
void hly_check_buffers(struct hly_check *c, const void *in, size_t in_bytes, const void *out,
                       size_t out_bytes);
/* Reduce and gather: only the root has an output, and may have its input there. Sets the root. */
void hly_check_gathering(struct hly_check *c, struct hly_call *call, size_t in_bytes,
                         size_t out_bytes, int root, const halay_comm_t *comm);
/*
 * The counts of a v form, for this buffer: part of the signature, and their sum is the call's
 * count. Returns the bytes from the start of the buffer to the end of its last block; 0 if wrong.
 */
size_t hly_check_counts(struct hly_check *c, struct hly_call *call, uint32_t buffer,
                        const size_t counts[], const size_t displs[], halay_type_t type,
                        const halay_comm_t *comm);
/*
 * Defines the three public forms of a call. parameters: those before comm, in parentheses, with a
 * comma after the last. cached: its request in the call cache, or NULL; post: posts it. Both are
 * made of the parameters and of comm, how and request, and used if these can be.
 */
#define HLY_FORMS(name, parameters, cached, post)                                                  \
    int halay_##name(HLY_LIST parameters halay_comm_t *comm)                                       \
    {                                                                                              \
        halay_request_t **const request = NULL;                                                    \
        HLY_FORM(HLY_WAIT, cached, post)                                                           \
    }                                                                                              \
    int halay_i##name(HLY_LIST parameters halay_comm_t *comm, halay_request_t **request)           \
    {                                                                                              \
        HLY_FORM(HLY_GO, cached, post)                                                             \
    }                                                                                              \
    int halay_##name##_init(HLY_LIST parameters halay_comm_t *comm, halay_request_t **request)     \
    {                                                                                              \
        HLY_FORM(HLY_MAKE, NULL, post)                                                             \
    }
#define HLY_FORM(form, cached, post)                                                               \
    const enum hly_post how = form;                                                                \
    comm = hly_comm_of(comm);                                                                      \
    if (!comm)                                                                                     \
        return HALAY_EINVAL;                                                                       \
    if (how != HLY_WAIT && !request)                                                               \
        return hly_comm_reject(comm, HALAY_EINVAL, "there is no place for the request (NULL)");    \
    halay_request_t *const known = cached;                                                         \
    return known ? hly_repeat(known, request) : post;
#define HLY_LIST(...) __VA_ARGS__

/* ---------------------------------------------------------------- current.c */

/* A context that halay_init() has made: the process's, if it has none. Takes no context's mutex. */
void hly_current_begin(halay_context_t *context);
/* One user less; takes any pointer. After ENDS nobody makes another one before hly_current_ended(),
 * by this thread: a process cannot be in its job twice. */
enum hly_current_left { HLY_CURRENT_OTHER, HLY_CURRENT_STAYS, HLY_CURRENT_ENDS };
enum hly_current_left hly_current_end(const halay_context_t *context);
void hly_current_ended(enum hly_current_left left);

#endif
