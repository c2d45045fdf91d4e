/* SPDX-License-Identifier: Apache-2.0 */
/* work.h - the work of devices for calls: steps of a plan, and scaling and copies before and after
 * it. */
#ifndef HLY_WORK_H
#define HLY_WORK_H

#include "exec/exec.h"

/* The `lane` of a mark in the program's stream, which is no copy. */
#define HLY_LANE_MARK 255
/* The `lane` of a move that precedes a call. */
#define HLY_LANE_MOVE 254

/* Starts a reduce or copy step. HALAY_OK: it is done; HALAY_INPROGRESS; HALAY_EAGAIN: the device is
 * full, start it again; other errors: the call has failed. */
int hly_work_start(halay_request_t *request, uint32_t step);
/* Launches one piece of work. HALAY_OK: it is done; HALAY_INPROGRESS; HALAY_EAGAIN: the device is
 * full. lane: of struct hly_send. */
int hly_work_launch(halay_request_t *request, struct hly_device *device, uint32_t step,
                    uint8_t lane, halay_work_t *work);
/* The same of a mark in the program's stream. */
int hly_work_follow(halay_request_t *request, struct hly_device *device, uint8_t lane,
                    const halay_stream_t *stream);
/* The call begins with the moves that its communicator has for it; or there is no such call, and
 * they are stopped. */
void hly_work_preceded(halay_request_t *request);
void hly_work_unprecede(halay_comm_t *comm);
/* Stops work that belongs to no call, in a bounded time. */
void hly_work_local_stop(halay_context_t *context, struct hly_local *local);
/* Before any step: has staged buffers copied to the host, and scales the input. HALAY_OK: all of
 * this is done. */
int hly_work_before(halay_request_t *request);
/* After the plan: division, scaling, the copy of a result out of scratch, its copy to the device.
 * HALAY_OK: all of this is done. */
int hly_work_result(halay_request_t *request);
/* For a call that has returned to the program. The device's last work for it may itself open the
 * stream's gate, so the stream goes on without the processor. Leaves *at as it is if there is no
 * gate. */
void hly_work_gate(halay_request_t *request, uint64_t *at, uint64_t *value);
/* Which work after the plan the call needs: HLY_AFTER_*. */
uint8_t hly_work_left(const halay_request_t *request);
/* A device has finished a piece of work, or has stopped it. */
void hly_work_done(halay_context_t *context, struct hly_send *work, int status);
/* Stops all work that devices do for this call. */
void hly_work_stop(halay_request_t *request);
/* The call's deadline has passed: is its device at fault? Then stops its work, and fills text. */
bool hly_work_overdue(halay_request_t *request, char *text, size_t bytes);
/* The device itself has failed: stops its work, and fails the calls that it worked for. */
void hly_work_lost(halay_context_t *context, struct hly_device *device, int status);

#endif
