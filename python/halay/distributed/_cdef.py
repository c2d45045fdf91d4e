# SPDX-License-Identifier: Apache-2.0
"""What this back end uses of halay.h beyond halay/_cdef.py; tests/python compares it too."""

from __future__ import annotations

from .._core import ffi, lib

CDEF = """
typedef struct halay_request halay_request_t;

int halay_context_progress(halay_context_t *context, uint64_t timeout_ns);
void halay_context_wake(halay_context_t *context);

int halay_comm_rank(const halay_comm_t *comm, int *rank);
int halay_comm_size(const halay_comm_t *comm, int *nranks);
int halay_comm_dup(halay_comm_t *comm, halay_comm_t **dup);
int halay_comm_from_ranks(halay_comm_t *comm, const int ranks[], int n, halay_comm_t **subset);
int halay_comm_free(halay_comm_t *comm);
int halay_comm_set_deadline(halay_comm_t *comm, uint64_t deadline_ns);

typedef struct halay_verdict {
    size_t size;
    int code;
    int rank;
    int other;
    uint32_t sequence;
    char host[64];
    char text[512];
} halay_verdict_t;

int halay_comm_verdict(const halay_comm_t *comm, halay_verdict_t *verdict);

int halay_iallreduce(const void *in, void *out, size_t count, halay_type_t type, halay_op_t op,
                     halay_comm_t *comm, halay_request_t **request);
int halay_ibroadcast(void *buffer, size_t count, halay_type_t type, int root,
                     halay_comm_t *comm, halay_request_t **request);
int halay_iallgather(const void *in, void *out, size_t count, halay_type_t type,
                     halay_comm_t *comm, halay_request_t **request);
int halay_iallgatherv(const void *in, void *out, const size_t counts[], const size_t displs[],
                      halay_type_t type, halay_comm_t *comm, halay_request_t **request);
int halay_ireduce_scatter(const void *in, void *out, size_t count, halay_type_t type,
                          halay_op_t op, halay_comm_t *comm, halay_request_t **request);
int halay_ireduce_scatterv(const void *in, void *out, const size_t counts[], halay_type_t type,
                           halay_op_t op, halay_comm_t *comm, halay_request_t **request);
int halay_ireduce(const void *in, void *out, size_t count, halay_type_t type, halay_op_t op,
                  int root, halay_comm_t *comm, halay_request_t **request);
int halay_igather(const void *in, void *out, size_t count, halay_type_t type, int root,
                  halay_comm_t *comm, halay_request_t **request);
int halay_iscatter(const void *in, void *out, size_t count, halay_type_t type, int root,
                   halay_comm_t *comm, halay_request_t **request);
int halay_ialltoall(const void *in, void *out, size_t count, halay_type_t type,
                    halay_comm_t *comm, halay_request_t **request);
int halay_ialltoallv(const void *in, const size_t in_counts[], const size_t in_displs[],
                     void *out, const size_t out_counts[], const size_t out_displs[],
                     halay_type_t type, halay_comm_t *comm, halay_request_t **request);
int halay_ibarrier(halay_comm_t *comm, halay_request_t **request);
int halay_isend(const void *buffer, size_t count, halay_type_t type, int peer,
                halay_comm_t *comm, halay_request_t **request);
int halay_irecv(void *buffer, size_t count, halay_type_t type, int peer,
                halay_comm_t *comm, halay_request_t **request);

int halay_group_begin(halay_comm_t *comm);
int halay_group_end(halay_comm_t *comm, halay_request_t **request);

int halay_request_wait(halay_request_t *request);
int halay_request_test(halay_request_t *request);
"""

# override: halay/_cdef.py may come to declare some of these too.
ffi.cdef(CDEF, override=True)

__all__ = ["CDEF", "ffi", "lib"]
