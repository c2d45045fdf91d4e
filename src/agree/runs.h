/* SPDX-License-Identifier: Apache-2.0 */
/*
 * runs.h - two sets of ranks in a message of fixed length. Failed ranks are few, or neighbours
 * (those of a node), so of large groups the runs of them are sent.
 */
#ifndef HLY_AGREE_RUNS_H
#define HLY_AGREE_RUNS_H

#include "agree/agree.h"

struct hly_packed {             /* of two sets */
    uint16_t nfailed, nwithout; /* runs */
    uint64_t *words;
    uint32_t most; /* words, each for 64 ranks of a set, or for a run */
};

/* What does not fit of `failed` is left out: others find those ranks themselves. False: `without`
 * does not fit, and the packed one is empty. */
bool hly_sets_pack(int nranks, const uint64_t failed[], const uint64_t without[],
                   struct hly_packed *packed);
/* False: nobody has packed that. */
bool hly_sets_unpack(int nranks, const struct hly_packed *packed, uint64_t failed[],
                     uint64_t without[]);

#endif
