/* SPDX-License-Identifier: Apache-2.0 */
/*
 * collective.h - a collective of MPI as one of Halay's: blocking, non-blocking or persistent.
 *
 * What only moves data goes as bytes: MPI compares signatures, and equal ones may be made of
 * different types and counts. So Halay finds ranks whose sizes in bytes differ, and calls of other
 * kinds or with other roots; it does not find other types of the same size. Data of a type with
 * gaps are packed first, and unpacked when the call is done.
 */
#ifndef HLY_MPI_COLLECTIVE_H
#define HLY_MPI_COLLECTIVE_H

#include "comm.h"

enum hly_mpi_form { HLY_MPI_NOW, HLY_MPI_LATER, HLY_MPI_AGAIN };
struct hly_mpi_how {
    const char *function;
    enum hly_mpi_form form;
    struct hly_mpi_request **request; /* NULL: NOW */
};
#define HLY_MPI_HOW_NOW(name)                                                                      \
    &(const struct hly_mpi_how)                                                                    \
    {                                                                                              \
        name, HLY_MPI_NOW, NULL                                                                    \
    }
#define HLY_MPI_HOW_LATER(name, request)                                                           \
    &(const struct hly_mpi_how)                                                                    \
    {                                                                                              \
        name, HLY_MPI_LATER, request                                                               \
    }
#define HLY_MPI_HOW_AGAIN(name, request)                                                           \
    &(const struct hly_mpi_how)                                                                    \
    {                                                                                              \
        name, HLY_MPI_AGAIN, request                                                               \
    }

enum hly_mpi_what {
    HLY_MPI_BARRIER,
    HLY_MPI_BCAST,
    HLY_MPI_GATHER,
    HLY_MPI_SCATTER,
    HLY_MPI_ALLGATHER,
    HLY_MPI_ALLGATHERV,
    HLY_MPI_ALLTOALL,
    HLY_MPI_ALLTOALLV,
    HLY_MPI_REDUCE,
    HLY_MPI_ALLREDUCE,
    HLY_MPI_REDUCE_SCATTER,
    HLY_MPI_REDUCE_SCATTERV,
    HLY_MPI_SCAN,
    HLY_MPI_EXSCAN
};

struct hly_mpi_kept;
struct hly_mpi_collect { /* a call of Halay's: what it does not need is zero */
    const struct hly_mpi_how *how;
    struct hly_mpi_comm *comm;
    enum hly_mpi_what what;
    const void *in;
    void *out; /* BCAST: the buffer */
    size_t count;
    halay_type_t type;
    halay_op_t op;
    int root;
    /* ALLGATHERV: out; REDUCE_SCATTERV: out_counts */
    const size_t *in_counts, *in_displs, *out_counts, *out_displs;
    struct hly_mpi_kept *kept; /* NULL: nothing is packed, and no operation is kept */
};

/* Makes the call, and takes over what is kept; also after an error. */
int hly_mpi_collect(struct hly_mpi_collect *call);
/*
 * Ends what is kept for a call that cannot be made. rc: the error, whose text is the thread's last.
 * But for a persistent one, the call fails with this text on all ranks, instead of leaving the
 * others to wait. Returns rc.
 */
int hly_mpi_collect_refuse(struct hly_mpi_collect *call, int rc);

enum { HLY_MPI_PACK = 1, HLY_MPI_UNPACK = 2 };
/*
 * Room for the packed form of these elements, of `bytes` bytes or more, where the call may use it
 * as a buffer. PACK: of these elements, at `at` in it, before the call; UNPACK: after it. NULL: no
 * memory, and hly_mpi_fail() was called.
 */
void *hly_mpi_collect_room(struct hly_mpi_collect *call, size_t bytes);
int hly_mpi_collect_copy(struct hly_mpi_collect *call, int ways, const void *buffer, int64_t count,
                         struct hly_mpi_type *type, void *packed);
/* The elements as bytes: where they are, or packed. NULL: as above. */
void *hly_mpi_collect_bytes(struct hly_mpi_collect *call, int ways, const void *buffer,
                            int64_t count, struct hly_mpi_type *type);
/* The operation, for as long as the call lives. */
int hly_mpi_collect_op(struct hly_mpi_collect *call, struct hly_mpi_op *op,
                       struct hly_mpi_type *type, int64_t *each);

/* Some elements that go to a rank or come from it. Those of one rank stand in the order in which
 * they are sent; ranks in ascending order. */
struct hly_mpi_part {
    int rank;
    const void *at;
    int64_t count;
    struct hly_mpi_type *type;
};
/* Exchanges parts. in_place: what is sent is what stands in the receive parts. */
int hly_mpi_exchange(struct hly_mpi_collect *call, struct hly_mpi_part in[], int nin,
                     struct hly_mpi_part out[], int nout, bool in_place);

/* Blocks of elements, as arguments give them. */
struct hly_mpi_blocks {
    const void *buffer;
    int64_t count; /* of each block, without counts */
    struct hly_mpi_ints counts, displs;
    struct hly_mpi_type *type;
    struct hly_mpi_type *const *types; /* of the w forms, whose displacements are bytes */
    bool same;                         /* each block is the same one */
    bool vector;                       /* counts and displs are arguments */
};
/* The b-th block, for this rank. */
int hly_mpi_block(const struct hly_mpi_how *how, const struct hly_mpi_blocks *blocks, int b,
                  int rank, struct hly_mpi_part *part);

/* What is left to do when the data are there; `arg` is freed by free() after it. */
int hly_mpi_collect_then(struct hly_mpi_collect *call, int (*then)(void *arg),
                         void (*end)(void *arg), void *arg);

/* ---------------------------------------------------------------- collective_inter.c */

/* These are for intercommunicators. root: MPI_ROOT, MPI_PROC_NULL, or a rank of the remote group.
 */
int hly_mpi_inter_barrier(const struct hly_mpi_how *how, struct hly_mpi_comm *comm);
/* The root gets `many`, of all remote ranks, of which each sends `one`; or, gathers false, the
 * other way round. */
int hly_mpi_inter_rooted(const struct hly_mpi_how *how, bool gathers,
                         const struct hly_mpi_blocks *many, const struct hly_mpi_blocks *one,
                         int root, struct hly_mpi_comm *comm);
/* Each rank with each remote one. */
int hly_mpi_inter_all(const struct hly_mpi_how *how, const struct hly_mpi_blocks *sent,
                      const struct hly_mpi_blocks *received, struct hly_mpi_comm *comm);
/*
 * Reduces `count` elements of each remote rank. This rank gets `own` elements of the result, from
 * `first` on. root: as above, or MPI_ANY_SOURCE: each rank gets one; then the communicator may also
 * be of one group, whose first `ranks` ranks are reduced (0: all).
 */
struct hly_mpi_reduction {
    const void *sendbuf;
    void *recvbuf;
    int64_t count, first, own;
    struct hly_mpi_type *type;
    struct hly_mpi_op *op;
    int ranks;
};
int hly_mpi_inter_reduce(const struct hly_mpi_how *how, const struct hly_mpi_reduction *reduction,
                         int root, struct hly_mpi_comm *comm);

/* ---------------------------------------------------------------- checks */

int hly_mpi_check_collective(const struct hly_mpi_how *how, const struct hly_mpi_comm *comm);
int hly_mpi_check_root(const struct hly_mpi_how *how, const struct hly_mpi_comm *comm, int root);
/* Where MPI_IN_PLACE is allowed, or not. */
int hly_mpi_check_side(const struct hly_mpi_how *how, const void *buffer, int64_t count,
                       struct hly_mpi_type *type);

#endif
