/* SPDX-License-Identifier: Apache-2.0 */
/* inside.h - what the parts of NCCL's adapter share. */
#ifndef HLY_NCCL_INSIDE_H
#define HLY_NCCL_INSIDE_H

#include <stdbool.h>

#include "device/cuda/driver.h"
#include "groups/nccl/library.h"
#include "groups/nccl/nccl.h"

#define HLY_NCCL_FLIGHTS 64 /* launches in flight on a device communicator */
#define HLY_NCCL_WHY     256

struct hly_nccl {
    struct hly_nccl_library library;
    struct hly_cuda_driver driver;
    int ordinal;
    char why[HLY_NCCL_WHY];
};

/*
 * Invariants: launches first .. last - 1 are in flight, each with the event of its place; of the
 * last one the event is not recorded yet while `pending`.
 */
struct halay_circle {
    struct hly_nccl *nccl;
    void *comm, *context, *stream;
    struct hly_nccl_ending *ending; /* of a thread that was left behind */
    int device;
    uint32_t me;
    bool opened, pending, ended, lost; /* ended: comm is gone; lost: something may still run */
    int capture_mode;                  /* that the thread had before it entered */
    int failed; /* launch could not record its event: the next poll says so */
    uint64_t first, last;
    uint64_t cookies[HLY_NCCL_FLIGHTS];
    void *events[HLY_NCCL_FLIGHTS];
    bool captured[HLY_NCCL_FLIGHTS]; /* it went into a graph: it has no event */
    uint64_t opens_at, opens_value;  /* of the last one: a gate, or 0 */
};

/* Codes for what a call has answered, which is kept in why. */
int hly_nccl_failed(struct hly_nccl *nccl, const char *call, int result, void *comm);
int hly_nccl_cuda_failed(struct hly_nccl *nccl, const char *call, int result);

/* Makes the GPU's context current on this thread, and its calls harmless to captures; or back what
 * was before. */
int hly_nccl_enter(struct halay_circle *dcomm);
void hly_nccl_leave(struct halay_circle *dcomm);

/* Makes one with a stream and events, but without an ncclComm_t; frees it. Takes NULL. */
int hly_nccl_dcomm_make(struct hly_nccl *nccl, struct halay_circle **dcomm);
void hly_nccl_dcomm_free(struct halay_circle *dcomm);

/* Ends the communicator: aborts it, or has all members end theirs, which graphs that are not
 * destroyed prevent: then it is aborted, and that is HALAY_EDEVICE. In timeout_ns at most. */
int hly_nccl_dcomm_end(struct halay_circle *dcomm, bool abort, uint64_t timeout_ns);

#endif
