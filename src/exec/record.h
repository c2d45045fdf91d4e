/* SPDX-License-Identifier: Apache-2.0 */
/* record.h - calls in the flight record (halay/record.h): posted, ended, waiting. */
#ifndef HLY_EXEC_RECORD_H
#define HLY_EXEC_RECORD_H

#include "exec/exec.h"

/* Records how far a call is that has waited for long, or has failed. */
void hly_record_wait(halay_request_t *request);
/* A thread is about to sleep: records how far calls are and, if one has waited for long, the
 * thread's stack. Returns the stack's slot for hly_record_woken(), or NULL. */
halay_record_stack_t *hly_record_sleep(halay_context_t *context);
void hly_record_woken(halay_context_t *context, halay_record_stack_t *stack);
/* Records all calls that have been under way for least_ns. */
void hly_record_waits(halay_context_t *context, uint64_t now_ns, uint64_t least_ns);

/* A thread of the program has waited for long in this place, and goes on waiting: fills number and
 * name, and the record. The second: it waits no more. */
void hly_waited_begin(halay_context_t *context, struct hly_waited *waited);
void hly_waited_end(halay_context_t *context, struct hly_waited *waited);

#ifdef HLY_UNRECORDED /* a build for bench/record, which measures what recording costs */

static inline void hly_record_post(const halay_request_t *r, const halay_comm_t *comm,
                                   const struct hly_record *record, uint64_t started_ns)
{
    (void)r, (void)comm, (void)record, (void)started_ns;
}

static inline void hly_record_planned(const halay_request_t *r)
{
    (void)r;
}

static inline void hly_record_end(const halay_request_t *r, int result)
{
    (void)r, (void)result;
}

#else

/* The words of halay_record_call_t, one by one: a call pays for each instruction. */
static inline void hly_record_post(halay_request_t *r, const halay_comm_t *comm,
                                   struct hly_record *record, uint64_t started_ns)
{
    uint64_t desc[2];
    memcpy(desc, &r->call.desc, sizeof(desc));
    const uint64_t stamp = record->calls_stamp += 2;
    static_assert(sizeof(halay_record_call_t) == 64, "32 for each stamp");
    halay_record_call_t *slot =
        (void *)((char *)record->map->calls + (stamp % (2 * HALAY_RECORD_CALLS) << 5));
    uint64_t *to = &slot->stamp;
    r->recorded = stamp;
    r->record = slot;
    __atomic_store_n(&to[0], 1, __ATOMIC_RELAXED);
    __atomic_store_n(&to[1], comm->id, __ATOMIC_RELEASE);
    __atomic_store_n(&to[2], desc[0], __ATOMIC_RELEASE);
    __atomic_store_n(&to[3], desc[1], __ATOMIC_RELEASE);
    __atomic_store_n(&to[4], r->plan_hash, __ATOMIC_RELEASE);
    __atomic_store_n(&to[5], r->sequence | (uint64_t)HALAY_RECORD_POSTED << 32, __ATOMIC_RELEASE);
    __atomic_store_n(&to[6], started_ns, __ATOMIC_RELEASE);
    __atomic_store_n(&to[0], stamp, __ATOMIC_RELEASE);
    __builtin_prefetch(slot + 1, 1); /* else the next call's messages wait for its stores */
}

/* The call was posted without a plan, and has one now. */
static inline void hly_record_planned(const halay_request_t *r)
{
    if (r->record->stamp == r->recorded)
        __atomic_store_n(&r->record->plan, r->plan_hash, __ATOMIC_RELEASE);
}

/* The slot may belong to another call by now. */
static inline void hly_record_end(const halay_request_t *r, int result)
{
    halay_record_call_t *slot = r->record;
    if (__builtin_expect(slot->stamp != r->recorded, 0))
        return;
    __atomic_store_n(&slot->ended_ns, r->context->now_ns, __ATOMIC_RELAXED);
    if (!result) {
        __atomic_store_n(&slot->state, HALAY_RECORD_COMPLETE, __ATOMIC_RELEASE);
        return;
    }
    __atomic_store_n(&slot->code, (uint8_t)-result, __ATOMIC_RELAXED);
    __atomic_store_n(&slot->state, HALAY_RECORD_FAILED, __ATOMIC_RELEASE);
}

#endif
#endif
