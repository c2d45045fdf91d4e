/* SPDX-License-Identifier: Apache-2.0 */
/* fault.h - how one rank's error becomes every rank's: call.c says how. */
#ifndef HLY_FAULT_H
#define HLY_FAULT_H

#include "agree/failing.h"
#include "wire/endpoint.h"

#define HLY_RANK_TEXT 64

/* ---------------------------------------------------------------- call.c */

/* The call with this number fails, with this verdict or a better one. */
void hly_fault_raise(halay_comm_t *comm, uint32_t sequence, const struct hly_verdict_wire *verdict);

/* Calls after this one fail with the verdict on it: some rank may have been told that it was good.
 */
void hly_fault_break(halay_comm_t *comm, uint32_t sequence, const struct hly_verdict_wire *verdict);
/* Starts the failure of a call that was refused, or that others have given up already. */
void hly_fault_begin(halay_request_t *request);
/* A message, target or piece of work of a failing call has ended: goes on with the agreement. */
void hly_fault_progress(halay_comm_t *comm, struct hly_slot *slot);
/* An ALARM has come. */
void hly_fault_heard(halay_comm_t *comm, const struct hly_header *header,
                     const struct hly_verdict_wire *verdict);
/* The ranks have agreed on this verdict. */
void hly_fault_concluded(halay_comm_t *comm, const struct hly_verdict_wire *verdict);
enum hly_report {
    HLY_REPORT_WARNING, /* as a warning */
    HLY_REPORT_INFO,    /* another rank says it; HALAY_DEBUG=info shows it here, too */
    HLY_REPORT_KNOWN    /* the same, and it is no news to the program: nor to the flight record */
};
/* Fills `failure`, and logs it. */
void hly_fault_tell(halay_comm_t *comm, uint32_t sequence, const struct hly_verdict_wire *verdict,
                    enum hly_report report, struct hly_failure *failure);
/* For halay_comm_verdict(): notes the error of a result that the program reads; or one without a
 * request. */
void hly_fault_read(halay_request_t *request);
int hly_fault_alone(halay_comm_t *comm, int code, const char *text);
/* The agreement waits for a rank that is stopped: the clock ends it. */
void hly_fault_hurry(halay_comm_t *comm, struct hly_slot *slot);
/* Looks at all deadlines. */
void hly_fault_timers(halay_context_t *context);

/* ---------------------------------------------------------------- events.c */

/* An error of this rank alone; a message of another call. */
void hly_fault_local(halay_request_t *request, int code, const char *text);
void hly_fault_mismatch(halay_request_t *request, const struct hly_header *header);
/* The message for this step has `theirs` bytes instead of `mine`. */
void hly_fault_misfit(halay_request_t *request, uint32_t step, const struct hly_header *header,
                      uint64_t mine, uint64_t theirs);
/* A message of this call is lost: there was no memory. */
void hly_fault_unkept(halay_comm_t *comm, uint32_t sequence);
/* An ALARM or REVOKE message has come. */
void hly_fault_verdict(halay_comm_t *comm, const struct hly_header *header,
                       const struct hly_verdict_wire *verdict);
/* The build of this world rank differs; or, same_build, its settings do. */
void hly_fault_hello(halay_context_t *context, int rank, const struct hly_hello *theirs,
                     bool same_build);
void hly_fault_lost(halay_context_t *context, const struct hly_peer *peer);
void hly_fault_transport_lost(halay_context_t *context, const char *why);
/* The call fails, and its device could not be stopped: the verdict has to say so. */
void hly_fault_runs_on(halay_comm_t *comm, const struct hly_slot *slot);
/* This rank's call has failed: alarms the members of a group step, whose devices may wait for its
 * one, but not those that bear this mark already. */
void hly_fault_alarm_members(const struct hly_slot *slot, const halay_step_t *step, uint64_t mark);
/* Is a new communicator broken from the start? A rank of it was lost before, or orphans were. */
void hly_fault_new_comm(halay_comm_t *comm);

/* ---------------------------------------------------------------- revoke.c */

/* Ends all calls on the communicator, on all ranks. */
void hly_fault_revoke(halay_comm_t *comm);
/* It was revoked: so are its hidden ones, and the others that do not hear of it from this rank's
 * neighbours are told. */
void hly_fault_revoked(halay_comm_t *comm);
/* A hidden one is made of it. */
void hly_fault_inherit(const halay_comm_t *parent, halay_comm_t *comm);
/* The others of this communicator have gone on without this rank: it can go on with nobody. */
void hly_fault_left_out(halay_comm_t *comm);

/* ---------------------------------------------------------------- verdict.c */

void hly_verdict_init(struct hly_verdict_wire *v, halay_comm_t *comm, enum hly_cause cause,
                      int code, int rank);
void hly_verdict_other(struct hly_verdict_wire *v, halay_comm_t *comm); /* fills v->other_host */
/* The bootstrap is told that this rank is lost; that this verdict, which may say so, is agreed on.
 */
void hly_verdict_lost(const halay_comm_t *comm, int rank);
void hly_verdict_agreed(const halay_comm_t *comm, const struct hly_verdict_wire *v);
/* Before this rank says it: has it not said this death already, for another communicator? What
 * others say does not count: they may leave it to this rank. Asked once a verdict. */
bool hly_verdict_is_news(const halay_comm_t *comm, const struct hly_verdict_wire *v);
/* "rank 1 of 2", with " (rank 3 of the job)" where the job numbers it otherwise; nranks 0: without
 * how many they are. */
void hly_rank_text(int rank, int nranks, int world, char text[HLY_RANK_TEXT]);
void hly_failure_init(struct hly_failure *failure, const halay_comm_t *comm, uint32_t sequence,
                      const struct hly_verdict_wire *verdict);
void hly_failure_text(const struct hly_failure *failure, char *text, size_t bytes);
int hly_failure_rank(const struct hly_failure *failure, int rank);
/* The call as this rank has made it, and which one it is. */
void hly_call_text(const halay_comm_t *comm, const struct hly_call_desc *desc, uint32_t sequence,
                   char *text, size_t bytes);
void hly_desc_text(const struct hly_call_desc *desc, char *text, size_t bytes);

#endif
