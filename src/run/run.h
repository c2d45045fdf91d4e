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

struct hly_check { /* of one call's arguments: the first thing found wrong */
    int code;
    halay_op_t op;   /* of a call that reduces */
    size_t bytes[2]; /* of the buffers in and out, where the call has them */
    char text[224];
};

/* ---------------------------------------------------------------- describe.c */

static inline uint8_t hly_desc_byte(unsigned number)
{
    return number < UINT8_MAX ? (uint8_t)number : UINT8_MAX;
}
/* Memory kind, and whether it is in place. */
void hly_describe(struct hly_call *call, struct hly_check *c, const halay_comm_t *comm);
void hly_wrong(struct hly_check *c, const char *text);
/* Was it freed on this rank? */
void hly_check_freed(struct hly_check *c, const halay_comm_t *comm);
/*
 * Hashes what ranks compare; call->signature is that of what the description lacks, or 0. In v
 * forms each rank's memory is its own affair, for they have the same plan, and the same messages,
 * in memory of any kind; but not with GPUDirect.
 */
void hly_sign(struct hly_call *call, const halay_comm_t *comm);
/* A call that was signed has group steps, and other ranks' calls must, too. */
void hly_sign_grouped(struct hly_call *call);

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

#define HLY_POLLS_BETWEEN_CLOCKS 64

int hly_progress(halay_context_t *context); /* how many events there were */
void hly_hand_on(halay_context_t *context); /* the news */
/* Timers, deadlines, and what is recorded of calls that last. */
void hly_look_at_clock(halay_context_t *context);

/* ---------------------------------------------------------------- waiting.c */

void hly_wait(halay_request_t *request);
/* Makes progress, and waits, until `over` says that it is over. */
void hly_wait_until(halay_context_t *context, bool (*over)(void *arg), void *arg);
void hly_sleep(halay_context_t *context, uint64_t timeout_ns);
/* Makes progress; if there is none, sleeps for a millisecond at most. */
void hly_wait_once(halay_context_t *context);

#endif
