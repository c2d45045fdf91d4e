/* SPDX-License-Identifier: Apache-2.0 */
/*
 * calls.h - one call with its buffers and what has to come out, to be started now and looked at
 * later, so that many can be in flight. Everything is compared: the result, the guards around it,
 * the gaps between blocks, and that the input was not written.
 */
#ifndef TESTS_CALLS_H
#define TESTS_CALLS_H

#include <halay/plan.h>

#include "ranks.h"

enum call_kind {
    CALL_REDUCE,
    CALL_GATHER,
    CALL_GATHERV,
    CALL_SCATTER,
    CALL_SCATTERV,
    CALL_REDUCE_SCATTERV,
    CALL_ALLTOALL,
    CALL_ALLTOALLV,
    CALL_SCAN,
    CALL_EXSCAN,
    CALL_SEND, /* round a ring: to the next rank, from the one before */
    CALL_KINDS
};

struct call {
    enum call_kind kind;
    size_t count;
    halay_type_t type;
    halay_op_t op;
    int root;
    bool in_place;
    bool blocking;

    struct rank *rank;
    halay_comm_t *comm;
    uint64_t salt;
    halay_request_t *request[2];
    int nrequests;
    char *in, *in_was, *out, *want; /* behind their guards */
    char *here_in, *here_out;       /* of buffers in a device's memory: the host's, before, after */
    size_t in_bytes, out_bytes;
    size_t certain; /* bytes of out, from its start, that are defined */
};

const char *call_name(enum call_kind kind);
halay_collective_t call_collective(enum call_kind kind);
bool call_is_vector(enum call_kind kind);
bool call_is_rooted(enum call_kind kind);
bool call_reduces(enum call_kind kind);

/* Takes what stands in the first part of the struct. */
void call_start(struct call *c, struct rank *r, halay_comm_t *comm, uint64_t salt);
/* Waits, compares, frees. */
void call_finish(struct call *c);

#endif
