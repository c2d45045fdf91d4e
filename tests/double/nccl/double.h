/* SPDX-License-Identifier: Apache-2.0 */
/*
 * double.h - a double of NCCL for tests, over the double of CUDA: libnccl.so.2 for ranks that are
 * threads of one process. Collectives compute in the memory of its GPUs, on the stream that they
 * are given, when the streams of all members have come to them; reductions run from the last member
 * to the first. It counts who breaks NCCL's rules. Set by these calls, or before the first one by
 * the environment: NCCL_DOUBLE="version=22809 in_progress=3".
 */
#ifndef TESTS_DOUBLE_NCCL_H
#define TESTS_DOUBLE_NCCL_H

#include <stdint.h>

#define NCCL_DOUBLE __attribute__((visibility("default")))

struct nccl_double_settings {
    int version;
    int other_version; /* not 0: every second time it says that it is of this one */
    int in_progress;   /* looks at a communicator till a call on it is done */
    int hangs; /* of communicators made from now on: collectives do not end before an abort */
    int abort_hangs_ms;
    int one_order; /* all communicators are of all ranks, each with a GPU: the order is checked */
};

struct nccl_double_counts {
    int comms;            /* that were neither destroyed nor aborted */
    uint64_t collectives; /* that have ended, each of all its members */
    uint64_t replays;     /* of captured ones, each on each member, that were begun */
    uint64_t crossed;     /* launches whose communicator is not that of the same launch elsewhere */
    uint64_t misused;     /* another order or other arguments, memory of no GPU, a comm that is over
                             or in progress */
};

NCCL_DOUBLE struct nccl_double_settings *nccl_double_settings(void);
NCCL_DOUBLE struct nccl_double_counts nccl_double_counts(void);
/* The nth call of this name from now on answers `result`, once; nth 0: none does. NULL: any. */
NCCL_DOUBLE void nccl_double_fail(const char *name, uint64_t nth, int result);
/* Calls that could have failed, since nccl_double_fail() was called last. */
NCCL_DOUBLE uint64_t nccl_double_calls(void);
/* All communicators answer this to ncclCommGetAsyncError from now on. 0: well again. */
NCCL_DOUBLE void nccl_double_break(int result);

#endif
