/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run.h - how a call runs, from hly_post() to its end. Public calls (api/) check their arguments,
 * fill one struct hly_call, and post it.
 */
#ifndef HLY_RUN_H
#define HLY_RUN_H

#include "comm/comm.h"
#include "wire/wire.h"

/* How a call is posted. */
enum hly_post {
    HLY_WAIT, /* blocking: wait for it */
    HLY_GO,   /* non-blocking: the program gets a request */
    HLY_MAKE  /* persistent: the program gets a request that is not started */
};

struct hly_check {   /* the check of one call's arguments */
    int code;        /* of the first error found; 0: none */
    halay_op_t op;   /* of a call that reduces */
    size_t bytes[2]; /* of the buffers in and out, where the call has them */
    char text[224];  /* what is wrong */
};

/* ---------------------------------------------------------------- describe.c */

static inline uint8_t hly_desc_byte(unsigned number)
{
    return number < UINT8_MAX ? (uint8_t)number : UINT8_MAX;
}
/* An operation: its number, or HLY_CALL_UNKNOWN where that has no place; a user's as
 * HLY_CALL_USER says. */
static inline uint8_t hly_desc_op(halay_op_t op)
{
    if (op >= HALAY_OP_USER && op <= HALAY_OP_USER_LAST)
        return (uint8_t)(HLY_CALL_USER | ((uint32_t)op % HLY_CALL_USER));
    return (unsigned)op < HLY_CALL_UNKNOWN ? (uint8_t)op : HLY_CALL_UNKNOWN;
}
/* Fills in the description's kind of memory, and whether the call is in place. */
void hly_describe(struct hly_call *call, struct hly_check *c, const halay_comm_t *comm);
/* Notes a wrong argument (HALAY_EINVAL), unless an error is noted already. */
void hly_wrong(struct hly_check *c, const char *text);
/* Was the communicator freed on this rank? Then the call is wrong. */
void hly_check_freed(struct hly_check *c, const halay_comm_t *comm);
/*
 * Hashes what ranks compare. Before, call->signature is a hash of what the description does not
 * hold, or 0. In v forms ranks may use different kinds of memory, since plan and messages are the
 * same for all kinds; but not with GPUDirect.
 */
void hly_sign(struct hly_call *call, const halay_comm_t *comm);

/* ---------------------------------------------------------------- call.c */

/* Makes a call description of these arguments; all else is zero. */
static inline struct hly_call hly_call_of(halay_collective_t collective, const void *in, void *out,
                                          size_t count, halay_type_t type)
{
    return (struct hly_call){.desc = {.collective = (uint8_t)collective & 31,
                                      .count = count,
                                      .type = hly_desc_byte(type)},
                             .in = in,
                             .out = out};
}
/* Makes a call of the call cache again, with the same arguments; `request` is this entry's. NULL
 * `handle`: waits for it. */
int hly_repeat(halay_request_t *request, halay_request_t **handle);
/*
 * Posts a call. call->signature: hash of what ranks compare besides the description, or 0.
 * HLY_WAIT: returns the call's result, and `request` is not used.
 */
int hly_post(halay_comm_t *comm, struct hly_call *call, struct hly_check *c, enum hly_post how,
             halay_request_t **request);

/* ---------------------------------------------------------------- request.c */

/* As hly_exec_go(), with HALAY_EXPLAIN and trace; then handles the news. */
void hly_go(halay_request_t *request);
/* Finds the request of a handle, and locks its context. */
int hly_request_lock(halay_request_t *handle, halay_request_t **request);
/* Refuses what the program asks of a communicator (of a context: its world communicator). Logs the
 * text, and keeps it for halay_comm_verdict(). The context is locked. Returns code. */
int hly_comm_refuse(halay_comm_t *comm, int code, const char *text);
/* The same where the context is not locked, for this communicator. NULL: HALAY_EINVAL. */
int hly_comm_reject(halay_comm_t *comm, int code, const char *text);
/* The same for a context that the program names. NULL, or none: HALAY_EINVAL. */
int hly_context_reject(halay_context_t *context, int code, const char *text);
/* hly_context_enter() for a public call on a communicator. Refuses one that was freed. */
int hly_comm_enter(const halay_comm_t *handle, halay_comm_t **comm);
/* Refuses what the program asks of a request: logs why, unlocks its context, returns rc. */
int hly_request_refuse(const halay_request_t *request, int rc, const char *what);
/* Returns the result of a complete request, and releases the request. */
int hly_end(halay_request_t *request);

/* ---------------------------------------------------------------- op.c */

/* Looks a user-defined operation up, and writes it into the call. */
void hly_op_resolve(const halay_comm_t *comm, struct hly_call *call, struct hly_check *c);
/* Frees all user-defined operations of the context. */
void hly_ops_free(halay_context_t *context);

/* ---------------------------------------------------------------- comm_make.c, comm.c */

/* Makes a communicator, which owns `ranks` from now on, also on failure. The next hly_hand_on()
 * matches messages that came before this rank made it. */
int hly_comm_make(halay_context_t *context, uint64_t id, struct hly_ranks *ranks, int rank,
                  uint64_t deadline_ns, halay_comm_t **comm);
void hly_comm_destroy(halay_comm_t *comm);
/* Are there calls that the program has not waited for, on the communicator or between two of its
 * ranks? */
bool hly_comm_in_use(const halay_comm_t *comm);

/* ---------------------------------------------------------------- explain_run.c */

/* HALAY_EXPLAIN, on rank 0 of a communicator. Prints why the first call of a class gets its plan,
 * measures each call, and prints at the end how far the model was off. _call returns the time at
 * which the call begins, or 0 if it is not measured. */
uint64_t hly_explain_call(halay_request_t *request);
void hly_explain_done(halay_request_t *request);
void hly_explain_end(halay_comm_t *comm);

/* ---------------------------------------------------------------- progress.c */

#define HLY_POLLS_BETWEEN_CLOCKS 64

int hly_progress(halay_context_t *context); /* returns how many events there were */
void hly_hand_on(halay_context_t *context); /* calls the handlers of pending news */
/* Checks timers and deadlines, and writes long calls into the flight record. */
void hly_look_at_clock(halay_context_t *context);

/* ---------------------------------------------------------------- waiting.c */

/* Makes progress, and waits, until the request is complete. */
void hly_wait(halay_request_t *request);
/* Makes progress, and waits, until over(arg) is true. */
void hly_wait_until(halay_context_t *context, bool (*over)(void *arg), void *arg);
/* Sleeps until an event, or for this time. */
void hly_sleep(halay_context_t *context, uint64_t timeout_ns);
/* Makes progress; if there is none, sleeps for a millisecond at most. */
void hly_wait_once(halay_context_t *context);

#endif
