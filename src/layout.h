/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layout.h - where the operands of a call are; and its tiles: a long call over a cache that the
 * ranks share runs its plan on one slice after the other, each a sub-range of the vector, or the
 * same sub-range of every block. docs/decisions/0032-tiles.md.
 */
#ifndef HLY_LAYOUT_H
#define HLY_LAYOUT_H

#include <stddef.h>
#include <stdint.h>

#include <halay/halay.h>

struct hly_call;

struct hly_tiles {
    uint32_t n;          /* 1: the call is not cut */
    uint32_t number;     /* of the one that is laid out */
    uint64_t count;      /* elements of each but the last: of the vector, or of every block */
    uint32_t sent;       /* of these the first message has gone (ahead.h); number at least */
    size_t stride_bytes; /* from block to block in IN and OUT, where the program says that */
};

/* Copies the counts of a v form. */
int hly_layout_tables(halay_request_t *request, const struct hly_call *call);
/* The addresses behind the plan's symbols, for the first tile, and scratch. */
int hly_layout_bind(halay_request_t *request);
/* The call starts: for the first tile, in the scratch that it gets. */
void hly_layout_begin(halay_request_t *request);
/* The same for another tile of the call. */
void hly_layout_tile(halay_request_t *request, uint32_t tile);
void hly_layout_forget(halay_request_t *request);

#endif
