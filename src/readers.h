/* SPDX-License-Identifier: Apache-2.0 */
/*
 * readers.h - who reads what a step of a plan writes. What one reduction alone reads need not be
 * copied out of the message; what nobody reads need not stay in a cache.
 */
#ifndef HLY_READERS_H
#define HLY_READERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <halay/halay.h>

#include "device/device_builtin.h"

/* hly_plan.reader[step], else the number of the reduction. */
enum { HLY_READ_BY_MORE = 0xfffe, HLY_READ_BY_NONE = 0xffff };

#define HLY_CACHE_BYTES (32u << 20) /* of the last level, where nobody says */

struct hly_plan;

void hly_readers_find(struct hly_plan *plan);
/* The reduction that alone reads what this receive step brings, and could read it where it lies; or
 * HALAY_STEP_NONE. */
uint32_t hly_reader_of(const halay_request_t *request, uint32_t step);
/* Has that reduction done so, and copied that beside it, if there is any? */
bool hly_reduce_lying(halay_request_t *request, uint32_t step, uint32_t reduction, const void *data,
                      const struct hly_beside *beside);
/* engine.c: the same, and both steps are done. */
bool hly_engine_take_lying(halay_request_t *request, uint32_t step, const void *data);
/* The call is larger than the caches, and nobody reads again what this step writes. */
bool hly_step_streams(const halay_request_t *request, uint32_t step);
static inline void hly_copy_in(void *to, const void *from, size_t bytes, bool streams)
{
    if (streams)
        hly_stream(to, from, bytes);
    else
        memcpy(to, from, bytes);
}

#endif
