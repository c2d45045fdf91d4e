/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exec.h - executes calls. plan_cache.c proves and compiles a plan. post.c makes a request, and
 * layout.c binds it to memory. execute.c puts the request into the communicator's window, does its
 * steps and completes it. work.h has the work of devices.
 */
#ifndef HLY_EXEC_H
#define HLY_EXEC_H

#include "wire/expected.h"

#define HLY_PLANS_MAX       256         /* that a communicator keeps */
#define HLY_PROVE_WHOLE_MAX 512         /* with more ranks each proves its own plan alone */
#define HLY_CACHE_BYTES     (32u << 20) /* size of the last-level cache, if it is not known */

/* ---------------------------------------------------------------- post.c: requests */

/* Makes a request for the call: IDLE, its plan and memory bound. The request keeps an argument
 * error, and fails when it starts. It gets no plan while it is open who does its group steps. */
int hly_exec_make(halay_comm_t *comm, const struct hly_call *call, int argument_error,
                  const char *argument_text, halay_request_t **request);
/* Gives an UNPLANNED request its plan and memory, for hly_exec_begin(). An error: the call has
 * failed; so it does with rc and why, if the ranks did not agree. */
int hly_exec_plan(halay_request_t *request, int rc, const char *why);
/* The cause of a call that ends with this code before it is posted. */
enum hly_cause hly_exec_cause(int code);
/* Makes the request fail as soon as the window lets it start. text NULL: with the verdict of its
 * broken communicator. HALAY_ENOMEM: the refusal could not be recorded, and the call goes on. */
int hly_exec_refuse_as(halay_request_t *request, int code, enum hly_cause cause, const char *text);
/* The same as hly_exec_make(), but the call may become a relaxed one (relaxed.h), and is kept in
 * the call cache. */
int hly_exec_prepare(halay_comm_t *comm, struct hly_call *call, int argument_error,
                     const char *argument_text, halay_request_t **request);
/* Makes a request without a call, for a group of calls. */
halay_request_t *hly_request_bare(halay_comm_t *comm);
/* Keeps an idle request for the next call with the same plan. */
void hly_request_spare(halay_request_t *request);
/* Gives a request back after its result was read. */
void hly_request_release(halay_request_t *request);
/* Frees a request in any state, when the context ends. */
void hly_request_drop(halay_request_t *request);

/* ---------------------------------------------------------------- execute.c: it runs */

/* Starts the request as the communicator's next call. After that it is running, queued, stopped or
 * complete. */
void hly_exec_go(halay_request_t *request);
/* The request has got its plan: does all steps that can be done now. */
void hly_exec_begin(halay_request_t *request);
/* Completes the request, and starts queued calls. */
void hly_exec_finish(halay_request_t *request, int result);
/* Does all steps that can be done now, and finishes the call if that was all. */
void hly_exec_advance(halay_request_t *request);
/* The message of a RECV step has come whole. reduced: the reduction that reads it is done, too. */
void hly_exec_landed(halay_request_t *request, uint32_t step, bool reduced);
/* A SEND step's message has left, or a device has finished a REDUCE or COPY step. */
void hly_exec_step_done(halay_request_t *request, uint32_t step);

/* ---------------------------------------------------------------- plan_cache.c */

/* Gives the communicator's plan for this call: one that it has kept, or a new one, proved and
 * compiled. */
int hly_plan_admit(halay_comm_t *comm, uint32_t planner, const struct hly_call *call,
                   struct hly_plan **plan, char *reason, size_t reason_bytes);
void hly_plan_drop_all(halay_comm_t *comm);
/* 0 if the plan's bytes are those of the certificate, else HALAY_EPLAN. */
int hly_plan_check(const struct hly_plan *plan);
void hly_certificates_free(halay_context_t *context);

/* ---------------------------------------------------------------- call_cache.c */

/* Finds the request of this call, or NULL. Needs no lock: only calls on this communicator change
 * the cache, and the program orders those. If the context has several devices the caller must still
 * compare the kind of memory. */
static inline halay_request_t *hly_cache_find(const halay_comm_t *comm, uint64_t key,
                                              uint64_t count, const void *in, const void *out)
{
    for (uint32_t i = 0; i < HLY_CACHED_CALLS; i++) {
        const struct hly_cached_call *c = &comm->calls[i];
        if (c->key == key && c->count == count && c->in == in && c->out == out)
            return c->request;
    }
    return NULL;
}
/* The same for a relaxed call, whose signature differs from that of the program's call. The request
 * is idle. */
halay_request_t *hly_cache_relaxed(const halay_comm_t *comm, const struct hly_call *call);
/* Enters the request, if such a call can be kept. */
void hly_cache_keep(halay_request_t *request);
/* Drops the entries of this plan; NULL: all. Their requests go back to the plan. */
void hly_cache_forget(halay_comm_t *comm, const struct hly_plan *plan);

/* ---------------------------------------------------------------- request.c */

/* Gives memory for a request: all zero except magic, context and generation. NULL: no memory. */
halay_request_t *hly_request_memory(halay_context_t *context);
/* Frees what the request owns, and keeps its memory for the next one. */
void hly_request_destroy(halay_request_t *request);
void hly_request_free_memory(halay_context_t *context);
/* The handle that the program gets. */
halay_request_t *hly_request_handle(halay_request_t *request);
/* _of finds the request of a handle, and needs no lock. _is_current, under the lock: is the handle
 * still valid? */
int hly_request_of(halay_request_t *handle, halay_request_t **request);
bool hly_request_is_current(const halay_request_t *request, halay_request_t *handle);
/* Makes the handle invalid. */
void hly_request_retire(halay_request_t *request);

/* ---------------------------------------------------------------- layout.c */

/* Is the call in memory of a device, and does it wait for the program's stream? */
static inline bool hly_request_follows(const halay_request_t *request)
{
    return !request->layout.scratch_from->touchable && hly_comm_ordered_by(request->comm)->follows;
}
/* Does the operand go from the last block on to the first one, so that it has two extents? */
bool hly_operand_wraps(const halay_plan_t *plan, const halay_operand_t *operand);
/* Is the operand in the stage, the part of scratch that is pinned host memory? */
bool hly_operand_on_stage(const halay_request_t *request, uint32_t operand);
/* Copies the counts and displacements of a v form. */
int hly_layout_tables(halay_request_t *request, const struct hly_call *call);
/* Cuts the call into segments, gives it scratch, and gives the operands of the first segment their
 * addresses. */
int hly_layout_bind(halay_request_t *request);
/* Gives the operands the addresses of another segment. */
void hly_layout_segment(halay_request_t *request, uint32_t segment);
/* The bytes of a run of blocks that does not wrap, in a call that is no v form. */
size_t hly_layout_bytes(const halay_request_t *request, uint32_t first, uint32_t count);
/* Frees the tables of a v form. */
void hly_layout_forget(halay_request_t *request);

#endif
