/* SPDX-License-Identifier: Apache-2.0 */
/* fault.h - how one rank's error becomes every rank's: docs/agreements.md, agree/failing.c. */
#ifndef HLY_FAULT_H
#define HLY_FAULT_H

#include "agree/failing.h"
#include "wire/endpoint.h"

#define HLY_RANK_TEXT 64

/* ---------------------------------------------------------------- call.c */

/* The call with this number fails, with this verdict or a better one. */
void hly_fault_raise(halay_comm_t *comm, uint32_t sequence, const struct hly_verdict_wire *verdict);

/* This call has failed, and some rank's program may have got success: later calls fail with its
 * verdict. */
void hly_fault_break(halay_comm_t *comm, uint32_t sequence, const struct hly_verdict_wire *verdict);
/* Starts the failure of a call that was refused, or that others have ended with an error. */
void hly_fault_begin(halay_request_t *request);
/* A message, target or piece of work of a failing call has ended: goes on with the agreement. */
void hly_fault_progress(halay_comm_t *comm, struct hly_slot *slot);
/* A message of the agreement on a failing call has come. */
void hly_fault_heard(halay_comm_t *comm, const struct hly_header *header,
                     const struct hly_verdict_wire *verdict);
/* The ranks have decided this verdict, after which they are out of step. */
void hly_fault_concluded(halay_comm_t *comm, const struct hly_verdict_wire *verdict);
enum hly_report {                     /* how a verdict is logged */
                  HLY_REPORT_WARNING, /* as a warning */
                  HLY_REPORT_INFO,    /* as information: another rank logs the warning */
                  HLY_REPORT_KNOWN    /* as information, and not in the flight record, which has it
                                         already */
};
/* Fills `failure`, and logs it. */
void hly_fault_tell(halay_comm_t *comm, uint32_t sequence, const struct hly_verdict_wire *verdict,
                    enum hly_report report, struct hly_failure *failure);
/* For halay_comm_verdict(): keeps the verdict of a request whose result the program reads. */
void hly_fault_read(halay_request_t *request);
/* The same for an error of this rank alone, without a request. Returns the code. */
int hly_fault_alone(halay_comm_t *comm, int code, const char *text);
/* The agreement waits for a rank that is stopped: sets an earlier deadline. */
void hly_fault_hurry(halay_comm_t *comm, struct hly_slot *slot);
/* Looks at all deadlines. */
void hly_fault_timers(halay_context_t *context);

/* ---------------------------------------------------------------- events.c */

/* An error of this rank alone; a message of a call that differs from this rank's. */
void hly_fault_local(halay_request_t *request, int code, const char *text);
void hly_fault_mismatch(halay_request_t *request, const struct hly_header *header);
/* The message for this step has `theirs` bytes instead of `mine`. */
void hly_fault_misfit(halay_request_t *request, uint32_t step, const struct hly_header *header,
                      uint64_t mine, uint64_t theirs);
/* This rank has lost a message of this call, because it had no memory for it. */
void hly_fault_unkept(halay_comm_t *comm, uint32_t sequence);
/* An ALARM or REVOKE message has come. */
void hly_fault_verdict(halay_comm_t *comm, const struct hly_header *header,
                       const struct hly_verdict_wire *verdict);
/* The build of this world rank differs; or, if same_build, its settings do. */
void hly_fault_hello(halay_context_t *context, int rank, const struct hly_hello *theirs,
                     bool same_build);
/* A peer is lost; a transport has failed. */
void hly_fault_lost(halay_context_t *context, const struct hly_peer *peer);
void hly_fault_transport_lost(halay_context_t *context, const char *why);
/* The call fails, and its device could not be stopped: the verdict has to say so. */
void hly_fault_runs_on(halay_comm_t *comm, const struct hly_slot *slot);
/* This rank's call has failed: sends NEWS to the members of a group step, whose devices may wait
 * for this rank's device. Skips peers whose `alarm` is `mark` already. */
void hly_fault_alarm_members(const struct hly_slot *slot, const halay_step_t *step, uint64_t mark);
/* Breaks a new communicator if one of its ranks was lost before, or messages for it were. */
void hly_fault_new_comm(halay_comm_t *comm);

/* ---------------------------------------------------------------- revoke.c */

/* Ends all calls on the communicator, on all ranks. */
void hly_fault_revoke(halay_comm_t *comm);
/* The communicator was revoked: revokes its hidden communicators. */
void hly_fault_revoked(halay_comm_t *comm);
/* A hidden communicator is made: revokes it if its parent was revoked. */
void hly_fault_inherit(const halay_comm_t *parent, halay_comm_t *comm);
/* The others of this communicator have gone on without this rank: ends all communicators here. */
void hly_fault_left_out(halay_comm_t *comm);

/* ---------------------------------------------------------------- verdict.c */

/* Makes a verdict. rank: at fault, or -1. */
void hly_verdict_init(struct hly_verdict_wire *v, halay_comm_t *comm, enum hly_cause cause,
                      int code, int rank);
void hly_verdict_other(struct hly_verdict_wire *v, halay_comm_t *comm); /* fills v->other_host */
/* Is it known for certain that ranks wait for each other? Else a deadline has passed meanwhile, and
 * v->call has waited. */
bool hly_verdict_is_certain(const struct hly_verdict_wire *v);
/* Reports to the bootstrap that this rank is lost; the same if this verdict, which the ranks have
 * decided, says that a rank is lost. */
void hly_verdict_lost(const halay_comm_t *comm, int rank);
void hly_verdict_agreed(const halay_comm_t *comm, const struct hly_verdict_wire *v);
/* Before this rank logs a verdict: has it not logged this death already, for another communicator?
 * Notes that it does now, so this is called once for each verdict. */
bool hly_verdict_is_news(const halay_comm_t *comm, const struct hly_verdict_wire *v);
/* "rank 1 of 2", with " (rank 3 of the job)" where the job has another number for it; nranks 0:
 * without " of 2". */
void hly_rank_text(int rank, int nranks, int world, char text[HLY_RANK_TEXT]);
/* A failure: a verdict, with what its text needs of the communicator. */
void hly_failure_init(struct hly_failure *failure, const halay_comm_t *comm, uint32_t sequence,
                      const struct hly_verdict_wire *verdict);
void hly_failure_text(const struct hly_failure *failure, char *text, size_t bytes);
/* The rank as the program knows it, also if the communicator is one of a pair of ranks. */
int hly_failure_rank(const struct hly_failure *failure, int rank);
/* "COLLECTIVE of COUNT TYPE ... (call 7 on this communicator)", as this rank has made the call;
 * then the same without the number. */
void hly_call_text(const halay_comm_t *comm, const struct hly_call_desc *desc, uint32_t sequence,
                   char *text, size_t bytes);
void hly_desc_text(const struct hly_call_desc *desc, char *text, size_t bytes);

#endif
