# SPDX-License-Identifier: Apache-2.0
"""What this back end uses of halay.h beyond halay/_cdef.py; tests/python compares it too."""

from __future__ import annotations

from .._core import declare, ffi, lib

CDEF = """
int halay_comm_rank(const halay_comm_t *comm, int *rank);
int halay_comm_size(const halay_comm_t *comm, int *nranks);
int halay_comm_create_group(halay_comm_t *comm, const int ranks[], int n, uint64_t tag,
                            halay_comm_t **made);
int halay_comm_revoke(halay_comm_t *comm);
int halay_comm_agree(halay_comm_t *comm, int *flag);
int halay_comm_shrink(halay_comm_t *comm, halay_comm_t **survivors);
int halay_comm_failed(halay_comm_t *comm, int ranks[], int *n);
int halay_comm_set_deadline(halay_comm_t *comm, uint64_t deadline_ns);
int halay_iallgather(const void *in, void *out, size_t count, halay_type_t type,
                     halay_comm_t *comm, halay_request_t **request);
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
int halay_ibarrier(halay_comm_t *comm, halay_request_t **request);
int halay_isend(const void *buffer, size_t count, halay_type_t type, int peer,
                halay_comm_t *comm, halay_request_t **request);
int halay_irecv(void *buffer, size_t count, halay_type_t type, int peer,
                halay_comm_t *comm, halay_request_t **request);

int halay_group_begin(halay_comm_t *comm);
int halay_group_end(halay_comm_t *comm, halay_request_t **request);

int halay_comm_stream(halay_comm_t *comm, const halay_stream_t *stream);
"""

declare(CDEF)

__all__ = ["CDEF", "ffi", "lib"]
