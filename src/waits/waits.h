/* SPDX-License-Identifier: Apache-2.0 */
/*
 * waits.h - when the next notice is due: docs/decisions/0080. Pure: its caller gives it the time.
 */
#ifndef HLY_WAITS_H
#define HLY_WAITS_H

#include <stdbool.h>
#include <stdint.h>

/* ---------------------------------------------------------------- notices */

#define HLY_FIRST_NOTICE_NS 1000000000ull /* if nobody sets another time (HALAY_STALL) */

/* The first notice comes after a time of its own, and each later one after twice the time. */
struct hly_notices {
    uint64_t since_ns, first_ns; /* what waits does so since then; first_ns 0: no notices */
    uint32_t given;
};

/* When the next one is due; UINT64_MAX: never. */
uint64_t hly_notices_due_ns(const struct hly_notices *notices);
/* Is one due? It counts as given, and so do those that were missed. */
bool hly_notices_give(struct hly_notices *notices, uint64_t now_ns);

#endif
