/* SPDX-License-Identifier: Apache-2.0 */
/*
 * staging.h - calls in memory that messages cannot carry, since the processor cannot touch it.
 * Halay copies the input down to host memory, runs the plan there, and copies the output up to the
 * device. docs/decisions/device-memory.md#0053.
 */
#ifndef HLY_STAGING_H
#define HLY_STAGING_H

#include "wire/request.h"

#define HLY_STAGING_SLOTS 3 /* one is filled, one is in use, one is emptied */

/* Copies in one direction, slice after slice. */
struct hly_staging_way {
    uint32_t slice;                   /* the next one: all copies of earlier slices were launched */
    uint32_t block;                   /* next one of this slice */
    uint32_t left[HLY_STAGING_SLOTS]; /* copies that the device holds */
};

/*
 * A slice is some segments of the call: the same part of each block. Its IN and OUT are in one slot
 * of host memory, laid out as in the program's memory, except that blocks of v forms have no gaps.
 * The slots are part of the request's scratch.
 */
struct hly_staging {
    struct hly_device *device; /* of the program's buffers */
    uint64_t count;            /* elements of a slice: of the vector or block */
    uint32_t nslices, nslots;
    uint32_t nsegments; /* of a slice */
    size_t slots_at;    /* in scratch */
    size_t out_at;      /* in a slot */
    size_t slot_bytes;
    const size_t *places[2];       /* v forms: where blocks begin in the program's IN and OUT */
    struct hly_staging_way way[2]; /* down, up */
};

/* Do the transports read and write this device's memory (docs/decisions/device-memory.md#0059)?
 * Equal on all ranks: it depends on settings that are compared, the shape, and the planner. */
bool hly_is_direct(const halay_comm_t *comm, const halay_plan_t *plan, const struct hly_call *call,
                   const struct hly_device *device);
/* Is a call in memory of this device staged? It is not if it has no messages, or if transports
 * reach the memory. It is in any case if it scales or has a user's operation, which the device need
 * not know. Plans with group steps are not staged: selection picks only those whose messages carry
 * other memory. */
static inline bool hly_is_staged(const halay_comm_t *comm, const struct hly_call *call,
                                 const struct hly_plan *plan, const struct hly_device *device)
{
    return !device->touchable &&
           ((comm->nranks > 1 &&
             !(halay_planner_get(plan->planner)->restrictions & HALAY_PLANNER_GROUP)) ||
            call->user || call->desc.flags & HLY_CALL_SCALED);
}
/* From now on the request's calls are staged, for buffers of this device; NULL: they are not. */
int hly_staging_set(halay_request_t *request, struct hly_device *device);

/* ---------------------------------------------------------------- for layout.c */

/* Cuts the call into slices of some segments each; cuts segments first if there is only one and
 * `can`. */
void hly_staging_cut(halay_request_t *request, bool can);
/* Takes the blocks' places in the program's memory out of the tables, into `places`. */
void hly_staging_pack(halay_request_t *request, size_t *places);
/* Places the slots at this offset in scratch. Returns their bytes. */
size_t hly_staging_lay(halay_request_t *request, size_t at);

/* The slice that the current segment is in; and the offset of its slot from the first one. */
static inline uint32_t hly_staging_slice(const halay_request_t *r)
{
    return r->segments.number / r->staging->nsegments;
}
static inline size_t hly_staging_offset(const halay_request_t *r)
{
    return hly_staging_slice(r) % r->staging->nslots * r->staging->slot_bytes;
}
/* Elements of the current slice, if the result has so many. */
static inline size_t hly_staging_count(const halay_request_t *r, size_t all)
{
    const struct hly_staging *s = r->staging;
    const size_t from = s->nslices > 1 ? hly_staging_slice(r) * s->count : 0;
    if (s->nslices < 2 || all <= from)
        return s->nslices < 2 ? all : 0;
    return all - from < s->count ? all - from : s->count;
}

/* ---------------------------------------------------------------- for execute.c, work.c */

/* Before the plan runs on a slice. HALAY_OK: the slice has come down. */
int hly_staging_down(halay_request_t *request);
/* After the last slice: has the rest copied up. HALAY_OK: the whole output is there. */
int hly_staging_up(halay_request_t *request);
/* Before the next segment. False: division, scaling or copies of this slice are still to be
 * launched. */
bool hly_staging_leave(halay_request_t *request);
/* The device has made a copy: `lane` of its struct hly_send. */
void hly_staging_landed(halay_request_t *request, uint8_t lane);

#endif
