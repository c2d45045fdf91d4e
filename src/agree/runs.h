/* SPDX-License-Identifier: Apache-2.0 */
/*
 * runs.h - packs two sets of ranks into a message of fixed length. Sets of bits are packed as they
 * are if both fit. Otherwise ranges of consecutive ranks (runs) are packed: failed ranks are few,
 * or have consecutive numbers, as those of a node.
 */
#ifndef HLY_AGREE_RUNS_H
#define HLY_AGREE_RUNS_H

#include "agree/agree.h"

struct hly_packed {             /* two sets, packed */
    uint16_t nfailed, nwithout; /* how many runs each has; 0: it is empty, or is packed as bits */
    uint64_t *words;            /* the message's: 64 ranks as bits each, or a run each */
    uint32_t most;              /* how many words there are */
};

/* Runs of `failed` that do not fit are dropped: other ranks find those failures themselves. False:
 * `without` does not fit, and the packed sets are empty. */
bool hly_sets_pack(int nranks, const uint64_t failed[], const uint64_t without[],
                   struct hly_packed *packed);
/* False: hly_sets_pack() cannot have made this. */
bool hly_sets_unpack(int nranks, const struct hly_packed *packed, uint64_t failed[],
                     uint64_t without[]);

#endif
