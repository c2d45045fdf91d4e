/* SPDX-License-Identifier: Apache-2.0 */
/*
 * collective_vector.c - the collectives whose blocks differ in size. MPI tells the counts of
 * gatherv and scatterv to the root alone, and Halay wants them on all ranks; its alltoallv wants
 * them on both sides of each block, which is what MPI gives. So all but allgatherv are alltoallvs.
 */
#include "collective.h"

#include <stdlib.h>

#define SMALL 64 /* ranks: up to so many the arrays are on the stack */

/* ---------------------------------------------------------------- parts */

struct side {
    struct hly_mpi_part *parts;
    int n;
    bool direct;      /* the buffer is the program's memory, from lo to hi */
    bool in_order;    /* each part begins after those before it */
    uintptr_t lo, hi; /* lo: the first byte of a part */
    size_t total;
    void *buffer;
    size_t *counts, *displs;
};

/* Can the call work on the program's memory? Not if types have gaps, or a rank has several parts.
 */
static void measure(struct side *side)
{
    int last = -1;
    side->direct = side->in_order = true;
    side->lo = UINTPTR_MAX;
    for (int i = 0; i < side->n; i++) {
        const struct hly_mpi_part *p = &side->parts[i];
        const size_t bytes = p->count ? (size_t)(p->count * p->type->size) : 0;
        const uintptr_t at = (uintptr_t)p->at;
        if (!bytes)
            continue;
        side->in_order &= !side->total || at >= side->hi;
        side->total += bytes;
        side->direct &= p->type->dense && p->rank != last;
        side->lo = at < side->lo ? at : side->lo;
        side->hi = at + bytes > side->hi ? at + bytes : side->hi;
        last = p->rank;
    }
}

/* Halay refuses output whose blocks overlap. MPI forbids them, too, but its libraries take them. */
static void measure_out(struct side *side)
{
    measure(side);
    side->direct &= side->in_order;
}

static int lay_out(struct hly_mpi_collect *call, struct side *side, int ways)
{
    size_t next = 0;
    const int n = hly_mpi_span(call->comm);
    for (int r = 0; r < n; r++)
        side->counts[r] = side->displs[r] = 0;
    if (!side->total)
        return MPI_SUCCESS;
    /* The address may be NULL + displacement: an integer, until Halay has added it up. */
    side->buffer = side->direct ? (void *)side->lo : hly_mpi_collect_room(call, side->total);
    if (!side->buffer)
        return MPI_ERR_NO_MEM;
    for (int i = 0; i < side->n; i++) {
        const struct hly_mpi_part *p = &side->parts[i];
        const size_t bytes = p->count ? (size_t)(p->count * p->type->size) : 0;
        int rc = MPI_SUCCESS;
        if (!bytes)
            continue;
        if (!side->counts[p->rank])
            side->displs[p->rank] = side->direct ? (uintptr_t)p->at - side->lo : next;
        side->counts[p->rank] += bytes;
        if (!side->direct)
            rc = hly_mpi_collect_copy(call, ways, p->at, p->count, p->type,
                                      (char *)side->buffer + next);
        if (rc)
            return rc;
        next += bytes;
    }
    return MPI_SUCCESS;
}

int hly_mpi_exchange(struct hly_mpi_collect *call, struct hly_mpi_part in[], int nin,
                     struct hly_mpi_part out[], int nout, bool in_place)
{
    const size_t n = (size_t)hly_mpi_span(call->comm);
    size_t small[4 * SMALL], *arrays = n <= SMALL ? small : malloc(4 * n * sizeof(*arrays));
    struct side from = {.parts = in, .n = nin}, to = {.parts = out, .n = nout};
    int rc = MPI_SUCCESS;
    if (!arrays)
        return hly_mpi_collect_refuse(call,
                                      hly_mpi_fail(MPI_ERR_NO_MEM, "%s: no memory for %zu counts",
                                                   call->how->function, 4 * n));
    from.counts = arrays;
    from.displs = arrays + n;
    to.counts = arrays + 2 * n;
    to.displs = arrays + 3 * n;
    measure(&from);
    measure_out(&to);
    /* Halay takes two buffers that overlap as a mistake. Here parts of one array may be sent, and
     * others received. */
    if (from.direct && to.direct && from.lo < to.hi && to.lo < from.hi)
        from.direct = false;
    rc = lay_out(call, &to, in_place ? HLY_MPI_PACK | HLY_MPI_UNPACK : HLY_MPI_UNPACK);
    if (!rc && !in_place)
        rc = lay_out(call, &from, HLY_MPI_PACK);
    call->what = HLY_MPI_ALLTOALLV;
    call->type = HALAY_UINT8;
    call->in = in_place ? HALAY_IN_PLACE : from.buffer;
    call->in_counts = from.counts;
    call->in_displs = from.displs;
    call->out = to.buffer;
    call->out_counts = to.counts;
    call->out_displs = to.displs;
    rc = rc ? hly_mpi_collect_refuse(call, rc) : hly_mpi_collect(call);
    if (arrays != small)
        free(arrays);
    return rc;
}

/* ---------------------------------------------------------------- arguments */

int hly_mpi_block(const struct hly_mpi_how *how, const struct hly_mpi_blocks *blocks, int b,
                  int rank, struct hly_mpi_part *part)
{
    struct hly_mpi_type *type = blocks->types ? blocks->types[b] : blocks->type;
    const int64_t count = blocks->vector ? hly_mpi_int(blocks->counts, b) : blocks->count;
    const int64_t step = type ? type->extent : 0;
    int64_t displ = blocks->same ? 0 : b * count * step;
    if (blocks->vector)
        displ = hly_mpi_int(blocks->displs, b) * (blocks->types ? 1 : step);
    /* A displacement may be an address, on MPI_BOTTOM. */
    const void *at = (const void *)((uintptr_t)blocks->buffer + (uintptr_t)displ);
    *part = (struct hly_mpi_part){rank, at, count, type};
    return hly_mpi_check_side(how, count ? at : NULL, count, type);
}

static int make_parts(const struct hly_mpi_how *how, const struct hly_mpi_blocks *blocks, int n,
                      struct hly_mpi_part parts[])
{
    int rc = MPI_SUCCESS;
    if (!blocks->counts.at || !blocks->displs.at)
        rc = hly_mpi_fail(MPI_ERR_ARG, "%s: the counts or displacements are NULL", how->function);
    for (int r = 0; r < n && !rc; r++)
        rc = hly_mpi_block(how, blocks, r, r, &parts[r]);
    return rc;
}

/* Room for parts of all ranks, twice. */
static struct hly_mpi_part *parts_new(const struct hly_mpi_how *how, int n,
                                      struct hly_mpi_part *small)
{
    if (n <= SMALL)
        return small;
    struct hly_mpi_part *parts = malloc(2 * (size_t)n * sizeof(*parts));
    if (!parts)
        hly_mpi_fail(MPI_ERR_NO_MEM, "%s: no memory for the blocks of %d ranks", how->function, n);
    return parts;
}

static int all_to_all(const struct hly_mpi_how *how, const struct hly_mpi_blocks *sent,
                      const struct hly_mpi_blocks *received, struct hly_mpi_comm *comm)
{
    struct hly_mpi_collect call = {.how = how, .comm = comm};
    struct hly_mpi_part small[2 * SMALL];
    if (comm && comm->remote)
        return hly_mpi_inter_all(how, sent, received, comm);
    int rc = hly_mpi_check_collective(how, comm);
    if (rc)
        return rc;
    const int n = comm->size;
    const bool in_place = sent->buffer == MPI_IN_PLACE;
    struct hly_mpi_part *parts = parts_new(how, n, small);
    rc = parts ? MPI_SUCCESS : MPI_ERR_NO_MEM;
    if (!rc && received->buffer == MPI_IN_PLACE)
        rc = hly_mpi_check_side(how, MPI_IN_PLACE, 0, NULL);
    if (!rc && !in_place)
        rc = make_parts(how, sent, n, parts);
    if (!rc)
        rc = make_parts(how, received, n, parts + n);
    rc = rc ? hly_mpi_collect_refuse(&call, rc)
            : hly_mpi_exchange(&call, parts, in_place ? 0 : n, parts + n, n, in_place);
    if (parts != small)
        free(parts);
    return rc;
}

/* ---------------------------------------------------------------- the collectives */

static int alltoallv(const struct hly_mpi_how *how, const void *sendbuf,
                     struct hly_mpi_ints sendcounts, struct hly_mpi_ints sdispls,
                     struct hly_mpi_type *sendtype, void *recvbuf, struct hly_mpi_ints recvcounts,
                     struct hly_mpi_ints rdispls, struct hly_mpi_type *recvtype,
                     struct hly_mpi_comm *comm)
{
    const struct hly_mpi_blocks sent = {.buffer = sendbuf,
                                        .counts = sendcounts,
                                        .displs = sdispls,
                                        .type = sendtype,
                                        .vector = true};
    const struct hly_mpi_blocks received = {.buffer = recvbuf,
                                            .counts = recvcounts,
                                            .displs = rdispls,
                                            .type = recvtype,
                                            .vector = true};
    return all_to_all(how, &sent, &received, comm);
}

static int alltoallw(const struct hly_mpi_how *how, const void *sendbuf,
                     struct hly_mpi_ints sendcounts, struct hly_mpi_ints sdispls,
                     struct hly_mpi_type *const sendtypes[], void *recvbuf,
                     struct hly_mpi_ints recvcounts, struct hly_mpi_ints rdispls,
                     struct hly_mpi_type *const recvtypes[], struct hly_mpi_comm *comm)
{
    const struct hly_mpi_blocks sent = {.buffer = sendbuf,
                                        .counts = sendcounts,
                                        .displs = sdispls,
                                        .types = sendtypes,
                                        .vector = true};
    const struct hly_mpi_blocks received = {.buffer = recvbuf,
                                            .counts = recvcounts,
                                            .displs = rdispls,
                                            .types = recvtypes,
                                            .vector = true};
    return all_to_all(how, &sent, &received, comm);
}

/* gatherv and scatterv: the root has `many`, of all ranks, and each rank has `one`; in place, the
 * root's own stays where it is. */
static int rooted(const struct hly_mpi_how *how, bool gathers, const struct hly_mpi_blocks *many,
                  struct hly_mpi_part one, bool in_place, int root, struct hly_mpi_comm *comm)
{
    struct hly_mpi_collect call = {.how = how, .comm = comm};
    struct hly_mpi_part small[2 * SMALL];
    const int n = comm->size;
    struct hly_mpi_part *parts = parts_new(how, n, small);
    int rc = hly_mpi_check_root(how, comm, root), nmany = 0, none = 0;
    if (!rc && !parts)
        rc = MPI_ERR_NO_MEM;
    if (!rc && !in_place) {
        one.rank = root;
        none = 1;
        rc = hly_mpi_check_side(how, one.at, one.count, one.type);
    }
    if (!rc && root == comm->rank) {
        nmany = n;
        if (many->buffer == MPI_IN_PLACE)
            rc = hly_mpi_check_side(how, MPI_IN_PLACE, 0, NULL);
        if (!rc)
            rc = make_parts(how, many, n, parts);
        if (!rc && in_place)
            parts[root].count = 0;
    }
    if (rc)
        rc = hly_mpi_collect_refuse(&call, rc);
    else if (gathers)
        rc = hly_mpi_exchange(&call, &one, none, parts, nmany, false);
    else
        rc = hly_mpi_exchange(&call, parts, nmany, &one, none, false);
    if (parts != small)
        free(parts);
    return rc;
}

static int gatherv(const struct hly_mpi_how *how, const void *sendbuf, int64_t sendcount,
                   struct hly_mpi_type *sendtype, void *recvbuf, struct hly_mpi_ints recvcounts,
                   struct hly_mpi_ints displs, struct hly_mpi_type *recvtype, int root,
                   struct hly_mpi_comm *comm)
{
    const struct hly_mpi_blocks many = {.buffer = recvbuf,
                                        .counts = recvcounts,
                                        .displs = displs,
                                        .type = recvtype,
                                        .vector = true};
    const struct hly_mpi_blocks single = {.buffer = sendbuf, .count = sendcount, .type = sendtype};
    const struct hly_mpi_part one = {root, sendbuf, sendcount, sendtype};
    if (comm && comm->remote)
        return hly_mpi_inter_rooted(how, true, &many, &single, root, comm);
    const int rc = hly_mpi_check_collective(how, comm);
    return rc ? rc
              : rooted(how, true, &many, one, root == comm->rank && sendbuf == MPI_IN_PLACE, root,
                       comm);
}

static int scatterv(const struct hly_mpi_how *how, const void *sendbuf,
                    struct hly_mpi_ints sendcounts, struct hly_mpi_ints displs,
                    struct hly_mpi_type *sendtype, void *recvbuf, int64_t recvcount,
                    struct hly_mpi_type *recvtype, int root, struct hly_mpi_comm *comm)
{
    const struct hly_mpi_blocks many = {.buffer = sendbuf,
                                        .counts = sendcounts,
                                        .displs = displs,
                                        .type = sendtype,
                                        .vector = true};
    const struct hly_mpi_blocks single = {.buffer = recvbuf, .count = recvcount, .type = recvtype};
    const struct hly_mpi_part one = {root, recvbuf, recvcount, recvtype};
    if (comm && comm->remote)
        return hly_mpi_inter_rooted(how, false, &many, &single, root, comm);
    const int rc = hly_mpi_check_collective(how, comm);
    return rc ? rc
              : rooted(how, false, &many, one, root == comm->rank && recvbuf == MPI_IN_PLACE, root,
                       comm);
}

/* All ranks know all counts. */
static int all_gather(struct hly_mpi_collect *call, struct hly_mpi_part *own,
                      struct hly_mpi_part parts[], bool in_place, size_t *arrays)
{
    const int n = call->comm->size, rank = call->comm->rank;
    struct side from = {.parts = own, .n = 1}, to = {.parts = parts, .n = n};
    to.counts = arrays;
    to.displs = arrays + n;
    measure_out(&to);
    int rc = lay_out(call, &to, HLY_MPI_UNPACK);
    if (!rc && in_place && !to.direct && parts[rank].count)
        rc = hly_mpi_collect_copy(call, HLY_MPI_PACK, parts[rank].at, parts[rank].count,
                                  parts[rank].type, (char *)to.buffer + to.displs[rank]);
    call->in = HALAY_IN_PLACE;
    if (!rc && !in_place) {
        measure(&from);
        if (from.total != to.counts[rank])
            return hly_mpi_fail(MPI_ERR_COUNT,
                                "%s: this rank sends %zu bytes, and its entry in recvcounts means "
                                "%zu: make them equal",
                                call->how->function, from.total, to.counts[rank]);
        if (from.direct && to.direct && from.lo < to.hi && to.lo < from.hi)
            from.direct = false;
        from.buffer = (void *)(uintptr_t)own->at;
        if (from.total && !from.direct) {
            from.buffer = hly_mpi_collect_room(call, from.total);
            rc = from.buffer ? hly_mpi_collect_copy(call, HLY_MPI_PACK, own->at, own->count,
                                                    own->type, from.buffer)
                             : MPI_ERR_NO_MEM;
        }
        call->in = from.total ? from.buffer : NULL;
    }
    call->out = to.buffer;
    call->out_counts = to.counts;
    call->out_displs = to.displs;
    return rc;
}

static int allgatherv(const struct hly_mpi_how *how, const void *sendbuf, int64_t sendcount,
                      struct hly_mpi_type *sendtype, void *recvbuf, struct hly_mpi_ints recvcounts,
                      struct hly_mpi_ints displs, struct hly_mpi_type *recvtype,
                      struct hly_mpi_comm *comm)
{
    struct hly_mpi_collect call = {
        .how = how, .comm = comm, .what = HLY_MPI_ALLGATHERV, .type = HALAY_UINT8};
    const struct hly_mpi_blocks many = {.buffer = recvbuf,
                                        .counts = recvcounts,
                                        .displs = displs,
                                        .type = recvtype,
                                        .vector = true};
    struct hly_mpi_part own = {0, sendbuf, sendcount, sendtype}, small[2 * SMALL];
    size_t few[2 * SMALL];
    const struct hly_mpi_blocks single = {
        .buffer = sendbuf, .count = sendcount, .type = sendtype, .same = true};
    const bool in_place = sendbuf == MPI_IN_PLACE;
    if (comm && comm->remote)
        return hly_mpi_inter_all(how, &single, &many, comm);
    int rc = hly_mpi_check_collective(how, comm);
    if (rc)
        return rc;
    const int n = comm->size;
    struct hly_mpi_part *parts = parts_new(how, n, small);
    size_t *arrays = n <= SMALL ? few : malloc(2 * (size_t)n * sizeof(*arrays));
    if (parts && !arrays)
        hly_mpi_fail(MPI_ERR_NO_MEM, "%s: no memory for %d counts", how->function, 2 * n);
    rc = parts && arrays ? MPI_SUCCESS : MPI_ERR_NO_MEM;
    if (!rc && recvbuf == MPI_IN_PLACE)
        rc = hly_mpi_check_side(how, MPI_IN_PLACE, 0, NULL);
    if (!rc && !in_place)
        rc = hly_mpi_check_side(how, sendbuf, sendcount, sendtype);
    if (!rc)
        rc = make_parts(how, &many, n, parts);
    if (!rc)
        rc = all_gather(&call, &own, parts, in_place, arrays);
    rc = rc ? hly_mpi_collect_refuse(&call, rc) : hly_mpi_collect(&call);
    if (parts != small)
        free(parts);
    if (arrays != few)
        free(arrays);
    return rc;
}

/* ---------------------------------------------------------------- the forms of each */

int hly_mpi_gatherv(const void *sendbuf, int64_t sendcount, struct hly_mpi_type *sendtype,
                    void *recvbuf, struct hly_mpi_ints recvcounts, struct hly_mpi_ints displs,
                    struct hly_mpi_type *recvtype, int root, struct hly_mpi_comm *comm)
{
    return gatherv(HLY_MPI_HOW_NOW("MPI_Gatherv"), sendbuf, sendcount, sendtype, recvbuf,
                   recvcounts, displs, recvtype, root, comm);
}

int hly_mpi_igatherv(const void *sendbuf, int64_t sendcount, struct hly_mpi_type *sendtype,
                     void *recvbuf, struct hly_mpi_ints recvcounts, struct hly_mpi_ints displs,
                     struct hly_mpi_type *recvtype, int root, struct hly_mpi_comm *comm,
                     struct hly_mpi_request **request)
{
    return gatherv(HLY_MPI_HOW_LATER("MPI_Igatherv", request), sendbuf, sendcount, sendtype,
                   recvbuf, recvcounts, displs, recvtype, root, comm);
}

int hly_mpi_gatherv_init(const void *sendbuf, int64_t sendcount, struct hly_mpi_type *sendtype,
                         void *recvbuf, struct hly_mpi_ints recvcounts, struct hly_mpi_ints displs,
                         struct hly_mpi_type *recvtype, int root, struct hly_mpi_comm *comm,
                         struct hly_mpi_info *info, struct hly_mpi_request **request)
{
    (void)info;
    return gatherv(HLY_MPI_HOW_AGAIN("MPI_Gatherv_init", request), sendbuf, sendcount, sendtype,
                   recvbuf, recvcounts, displs, recvtype, root, comm);
}

int hly_mpi_scatterv(const void *sendbuf, struct hly_mpi_ints sendcounts,
                     struct hly_mpi_ints displs, struct hly_mpi_type *sendtype, void *recvbuf,
                     int64_t recvcount, struct hly_mpi_type *recvtype, int root,
                     struct hly_mpi_comm *comm)
{
    return scatterv(HLY_MPI_HOW_NOW("MPI_Scatterv"), sendbuf, sendcounts, displs, sendtype, recvbuf,
                    recvcount, recvtype, root, comm);
}

int hly_mpi_iscatterv(const void *sendbuf, struct hly_mpi_ints sendcounts,
                      struct hly_mpi_ints displs, struct hly_mpi_type *sendtype, void *recvbuf,
                      int64_t recvcount, struct hly_mpi_type *recvtype, int root,
                      struct hly_mpi_comm *comm, struct hly_mpi_request **request)
{
    return scatterv(HLY_MPI_HOW_LATER("MPI_Iscatterv", request), sendbuf, sendcounts, displs,
                    sendtype, recvbuf, recvcount, recvtype, root, comm);
}

int hly_mpi_scatterv_init(const void *sendbuf, struct hly_mpi_ints sendcounts,
                          struct hly_mpi_ints displs, struct hly_mpi_type *sendtype, void *recvbuf,
                          int64_t recvcount, struct hly_mpi_type *recvtype, int root,
                          struct hly_mpi_comm *comm, struct hly_mpi_info *info,
                          struct hly_mpi_request **request)
{
    (void)info;
    return scatterv(HLY_MPI_HOW_AGAIN("MPI_Scatterv_init", request), sendbuf, sendcounts, displs,
                    sendtype, recvbuf, recvcount, recvtype, root, comm);
}

int hly_mpi_allgatherv(const void *sendbuf, int64_t sendcount, struct hly_mpi_type *sendtype,
                       void *recvbuf, struct hly_mpi_ints recvcounts, struct hly_mpi_ints displs,
                       struct hly_mpi_type *recvtype, struct hly_mpi_comm *comm)
{
    return allgatherv(HLY_MPI_HOW_NOW("MPI_Allgatherv"), sendbuf, sendcount, sendtype, recvbuf,
                      recvcounts, displs, recvtype, comm);
}

int hly_mpi_iallgatherv(const void *sendbuf, int64_t sendcount, struct hly_mpi_type *sendtype,
                        void *recvbuf, struct hly_mpi_ints recvcounts, struct hly_mpi_ints displs,
                        struct hly_mpi_type *recvtype, struct hly_mpi_comm *comm,
                        struct hly_mpi_request **request)
{
    return allgatherv(HLY_MPI_HOW_LATER("MPI_Iallgatherv", request), sendbuf, sendcount, sendtype,
                      recvbuf, recvcounts, displs, recvtype, comm);
}

int hly_mpi_allgatherv_init(const void *sendbuf, int64_t sendcount, struct hly_mpi_type *sendtype,
                            void *recvbuf, struct hly_mpi_ints recvcounts,
                            struct hly_mpi_ints displs, struct hly_mpi_type *recvtype,
                            struct hly_mpi_comm *comm, struct hly_mpi_info *info,
                            struct hly_mpi_request **request)
{
    (void)info;
    return allgatherv(HLY_MPI_HOW_AGAIN("MPI_Allgatherv_init", request), sendbuf, sendcount,
                      sendtype, recvbuf, recvcounts, displs, recvtype, comm);
}

int hly_mpi_alltoallv(const void *sendbuf, struct hly_mpi_ints sendcounts,
                      struct hly_mpi_ints sdispls, struct hly_mpi_type *sendtype, void *recvbuf,
                      struct hly_mpi_ints recvcounts, struct hly_mpi_ints rdispls,
                      struct hly_mpi_type *recvtype, struct hly_mpi_comm *comm)
{
    return alltoallv(HLY_MPI_HOW_NOW("MPI_Alltoallv"), sendbuf, sendcounts, sdispls, sendtype,
                     recvbuf, recvcounts, rdispls, recvtype, comm);
}

int hly_mpi_ialltoallv(const void *sendbuf, struct hly_mpi_ints sendcounts,
                       struct hly_mpi_ints sdispls, struct hly_mpi_type *sendtype, void *recvbuf,
                       struct hly_mpi_ints recvcounts, struct hly_mpi_ints rdispls,
                       struct hly_mpi_type *recvtype, struct hly_mpi_comm *comm,
                       struct hly_mpi_request **request)
{
    return alltoallv(HLY_MPI_HOW_LATER("MPI_Ialltoallv", request), sendbuf, sendcounts, sdispls,
                     sendtype, recvbuf, recvcounts, rdispls, recvtype, comm);
}

int hly_mpi_alltoallv_init(const void *sendbuf, struct hly_mpi_ints sendcounts,
                           struct hly_mpi_ints sdispls, struct hly_mpi_type *sendtype,
                           void *recvbuf, struct hly_mpi_ints recvcounts,
                           struct hly_mpi_ints rdispls, struct hly_mpi_type *recvtype,
                           struct hly_mpi_comm *comm, struct hly_mpi_info *info,
                           struct hly_mpi_request **request)
{
    (void)info;
    return alltoallv(HLY_MPI_HOW_AGAIN("MPI_Alltoallv_init", request), sendbuf, sendcounts, sdispls,
                     sendtype, recvbuf, recvcounts, rdispls, recvtype, comm);
}

int hly_mpi_alltoallw(const void *sendbuf, struct hly_mpi_ints sendcounts,
                      struct hly_mpi_ints sdispls, struct hly_mpi_type *const sendtypes[],
                      void *recvbuf, struct hly_mpi_ints recvcounts, struct hly_mpi_ints rdispls,
                      struct hly_mpi_type *const recvtypes[], struct hly_mpi_comm *comm)
{
    return alltoallw(HLY_MPI_HOW_NOW("MPI_Alltoallw"), sendbuf, sendcounts, sdispls, sendtypes,
                     recvbuf, recvcounts, rdispls, recvtypes, comm);
}

int hly_mpi_ialltoallw(const void *sendbuf, struct hly_mpi_ints sendcounts,
                       struct hly_mpi_ints sdispls, struct hly_mpi_type *const sendtypes[],
                       void *recvbuf, struct hly_mpi_ints recvcounts, struct hly_mpi_ints rdispls,
                       struct hly_mpi_type *const recvtypes[], struct hly_mpi_comm *comm,
                       struct hly_mpi_request **request)
{
    return alltoallw(HLY_MPI_HOW_LATER("MPI_Ialltoallw", request), sendbuf, sendcounts, sdispls,
                     sendtypes, recvbuf, recvcounts, rdispls, recvtypes, comm);
}

int hly_mpi_alltoallw_init(const void *sendbuf, struct hly_mpi_ints sendcounts,
                           struct hly_mpi_ints sdispls, struct hly_mpi_type *const sendtypes[],
                           void *recvbuf, struct hly_mpi_ints recvcounts,
                           struct hly_mpi_ints rdispls, struct hly_mpi_type *const recvtypes[],
                           struct hly_mpi_comm *comm, struct hly_mpi_info *info,
                           struct hly_mpi_request **request)
{
    (void)info;
    return alltoallw(HLY_MPI_HOW_AGAIN("MPI_Alltoallw_init", request), sendbuf, sendcounts, sdispls,
                     sendtypes, recvbuf, recvcounts, rdispls, recvtypes, comm);
}
