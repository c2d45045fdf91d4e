/* SPDX-License-Identifier: Apache-2.0 */
/*
 * api.h - what the public calls share. Each checks its arguments, fills one struct hly_call, and
 * posts it by hly_post().
 */
#ifndef HLY_API_H
#define HLY_API_H

#include "comm/comm.h"
#include "wire/wire.h"

/* How a call is posted. */
enum hly_post {
    HLY_WAIT, /* blocking: wait for it */
    HLY_GO,   /* non-blocking: the program gets a request */
    HLY_MAKE  /* persistent: the program gets a request that is not started */
};

struct hly_check { /* of one call's arguments: the first thing found wrong */
    int code;
    halay_op_t op;   /* of a call that reduces */
    size_t bytes[2]; /* of the buffers in and out, where the call has them */
    char text[224];
};

/* ---------------------------------------------------------------- check.c */

static inline uint8_t hly_desc_byte(unsigned number)
{
    return number < UINT8_MAX ? (uint8_t)number : UINT8_MAX;
}
/* Memory kind, and whether it is in place. */
void hly_describe(struct hly_call *call, struct hly_check *c, const halay_comm_t *comm);
void hly_wrong(struct hly_check *c, const char *text);
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
/* Was it freed on this rank? */
void hly_check_freed(struct hly_check *c, const halay_comm_t *comm);

/* ---------------------------------------------------------------- call.c */

/* A call on these buffers, of which nothing else is known yet. */
static inline struct hly_call hly_call_of(halay_collective_t collective, const void *in, void *out,
                                          size_t count, halay_type_t type)
{
    return (struct hly_call){.desc = {.collective = (uint8_t)collective & 31,
                                      .count = count,
                                      .type = hly_desc_byte(type)},
                             .in = in,
                             .out = out};
}
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
    if (!comm || (how != HLY_WAIT && !request))                                                    \
        return HALAY_EINVAL;                                                                       \
    halay_request_t *const known = cached;                                                         \
    return known ? hly_repeat(known, request) : post;
#define HLY_LIST(...) __VA_ARGS__
/* Makes a call of the call cache again, with the same arguments; `request` is this entry's. NULL
 * `handle`: waits for it. */
int hly_repeat(halay_request_t *request, halay_request_t **handle);
/*
 * Posts a call. call->signature: hash of what ranks compare besides the description, or 0.
 * HLY_WAIT: returns the call's result, and `request` is not used.
 */
int hly_post(halay_comm_t *comm, struct hly_call *call, struct hly_check *c, enum hly_post how,
             halay_request_t **request);
/* Of a call that was signed: it has group steps, and other ranks' calls must, too. */
void hly_sign_grouped(struct hly_call *call);
/* hly_exec_go(), with HALAY_EXPLAIN and trace, and hands on the news. */
void hly_go(halay_request_t *request);
/* Finds the request of a handle, and locks its context. */
int hly_request_lock(halay_request_t *handle, halay_request_t **request);
/* What a communicator, or the world's for a context, is asked for cannot be done: says so, so that
 * halay_comm_verdict() does, too. Locked. Returns code. */
int hly_comm_refuse(halay_comm_t *comm, int code, const char *text);
/* The program cannot do that with a request now: says so, unlocks its context, returns rc. */
int hly_request_refuse(const halay_request_t *request, int rc, const char *what);
/* Gives the result of a complete request, and gives the request back. */
int hly_end(halay_request_t *request);
/* Gives it back, after its result was read. */
void hly_release(halay_request_t *request);

/* ---------------------------------------------------------------- op.c */

/* Looks a user-defined operation up, and writes it into the call. */
void hly_op_resolve(const halay_comm_t *comm, struct hly_call *call, struct hly_check *c);
void hly_ops_free(halay_context_t *context);

/* ---------------------------------------------------------------- comm.c */

/* Takes `ranks` over, also on failure. Matches the orphans that came for it. */
int hly_comm_make(halay_context_t *context, uint64_t id, struct hly_ranks *ranks, int rank,
                  uint64_t deadline_ns, halay_comm_t **comm);
void hly_comm_destroy(halay_comm_t *comm);
/* Are there calls whose end the program has not seen, on it or between two of its ranks? */
bool hly_comm_in_use(const halay_comm_t *comm);

/* ---------------------------------------------------------------- explain_run.c */

/* HALAY_EXPLAIN, on rank 0 of a communicator. Tells why the first call of a kind gets its plan;
 * notes how long each takes; tells at the end how far the model was off. _call returns when the
 * call begins, or 0 if it is not noted. */
uint64_t hly_explain_call(halay_request_t *request);
void hly_explain_done(halay_request_t *request);
void hly_explain_end(halay_comm_t *comm);

/* ---------------------------------------------------------------- progress.c */

/* Locks the context for a public call. An error: it cannot be used, and is not locked. */
int hly_context_enter(halay_context_t *context);
int hly_comm_enter(const halay_comm_t *handle, halay_comm_t **comm); /* not of a freed one */
int hly_progress(halay_context_t *context); /* how many events there were */
void hly_hand_on(halay_context_t *context); /* the news */
void hly_wait(halay_request_t *request);
/* Makes progress, and waits, until `over` says that it is over. */
void hly_wait_until(halay_context_t *context, bool (*over)(void *arg), void *arg);
void hly_sleep(halay_context_t *context, uint64_t timeout_ns);

#endif
