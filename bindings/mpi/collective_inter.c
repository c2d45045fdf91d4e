/* SPDX-License-Identifier: Apache-2.0 */
/*
 * collective_inter.c - collectives over two groups: exchanges of parts between all of their ranks.
 * Reductions send whole vectors, and each rank that gets the result reduces them. So do those
 * within one group whose elements are larger than Halay's operations take.
 */
#include <stdlib.h>

#include "collective.h"

/* The ranks that this one exchanges with: of the remote group; or, in a reduction within one group,
 * all of it. */
static int other_count(const struct hly_mpi_comm *comm)
{
    return comm->remote ? comm->remote->size : comm->size;
}

static int other_first(const struct hly_mpi_comm *comm)
{
    return comm->remote ? comm->remote_first : 0;
}

int hly_mpi_inter_barrier(const struct hly_mpi_how *how, struct hly_mpi_comm *comm)
{
    struct hly_mpi_collect call = {.how = how, .comm = comm, .what = HLY_MPI_BARRIER};
    return hly_mpi_collect(&call);
}

/* A part for each other rank, or for one of them (only >= 0), in memory that the caller frees. */
static int make_parts(const struct hly_mpi_how *how, const struct hly_mpi_blocks *blocks, int only,
                      const struct hly_mpi_comm *comm, struct hly_mpi_part **parts, int *n)
{
    const int count = only < 0 ? other_count(comm) : 1;
    struct hly_mpi_part *made = malloc((size_t)count * sizeof(*made));
    int rc = MPI_SUCCESS;
    if (!made)
        return hly_mpi_fail(MPI_ERR_NO_MEM, "%s: no memory for %d blocks", how->function, count);
    if (blocks->buffer == MPI_IN_PLACE)
        rc = hly_mpi_check_side(how, MPI_IN_PLACE, 0, NULL);
    if (!rc && blocks->vector && (!blocks->counts.at || !blocks->displs.at))
        rc = hly_mpi_fail(MPI_ERR_ARG, "%s: the counts or displacements are NULL", how->function);
    for (int i = 0; i < count && !rc; i++)
        rc = hly_mpi_block(how, blocks, i, other_first(comm) + (only < 0 ? i : only), &made[i]);
    if (rc) {
        free(made);
        return rc;
    }
    *parts = made;
    *n = count;
    return MPI_SUCCESS;
}

static int check_root(const struct hly_mpi_how *how, int root, const struct hly_mpi_comm *comm)
{
    if (root == MPI_ROOT || root == MPI_PROC_NULL || (root >= 0 && root < comm->remote->size))
        return MPI_SUCCESS;
    return hly_mpi_fail(MPI_ERR_ROOT,
                        "%s: root is %d: it has to be MPI_ROOT, MPI_PROC_NULL, or a rank from 0 to "
                        "%d of the remote group",
                        how->function, root, comm->remote->size - 1);
}

int hly_mpi_inter_rooted(const struct hly_mpi_how *how, bool gathers,
                         const struct hly_mpi_blocks *many, const struct hly_mpi_blocks *one,
                         int root, struct hly_mpi_comm *comm)
{
    struct hly_mpi_collect call = {.how = how, .comm = comm};
    struct hly_mpi_part *parts = NULL;
    int n = 0, rc = check_root(how, root, comm);
    if (!rc && root == MPI_ROOT)
        rc = make_parts(how, many, -1, comm, &parts, &n);
    else if (!rc && root >= 0)
        rc = make_parts(how, one, root, comm, &parts, &n);
    /* The root of a gathering receives, and its senders send. */
    const bool sends = gathers == (root != MPI_ROOT);
    rc = rc ? hly_mpi_collect_refuse(&call, rc)
            : hly_mpi_exchange(&call, sends ? parts : NULL, sends ? n : 0, sends ? NULL : parts,
                               sends ? 0 : n, false);
    free(parts);
    return rc;
}

static int exchange(struct hly_mpi_collect *call, const struct hly_mpi_blocks *sent,
                    const struct hly_mpi_blocks *received)
{
    struct hly_mpi_part *in = NULL, *out = NULL;
    int nin = 0, nout = 0, rc = make_parts(call->how, sent, -1, call->comm, &in, &nin);
    if (!rc)
        rc = make_parts(call->how, received, -1, call->comm, &out, &nout);
    rc = rc ? hly_mpi_collect_refuse(call, rc) : hly_mpi_exchange(call, in, nin, out, nout, false);
    free(in);
    free(out);
    return rc;
}

int hly_mpi_inter_all(const struct hly_mpi_how *how, const struct hly_mpi_blocks *sent,
                      const struct hly_mpi_blocks *received, struct hly_mpi_comm *comm)
{
    struct hly_mpi_collect call = {.how = how, .comm = comm};
    return exchange(&call, sent, received);
}

/* ---------------------------------------------------------------- reductions */

struct fold {
    struct hly_mpi_reduction what; /* its type and operation are held */
    int n;                         /* vectors that are reduced */
    char *first;                   /* the first element of the first vector */
    int64_t stride;                /* bytes to the next one */
    void *packed;                  /* room for the result */
};

/* The vector of the last rank is on the right. */
static int fold_now(void *arg)
{
    const struct fold *f = arg;
    const struct hly_mpi_reduction *r = &f->what;
    char *vector = f->first + r->first * r->type->extent + (f->n - 1) * f->stride, *result = vector;
    int rc = MPI_SUCCESS;
    for (int i = 1; i < f->n && !rc; i++) {
        vector -= f->stride;
        rc = hly_mpi_reduce_local(vector, result, r->own, r->type, r->op);
    }
    if (rc || !r->own)
        return rc;
    hly_mpi_pack_range(result, r->own, r->type, 0, r->own * r->type->size, f->packed);
    hly_mpi_unpack_range(r->recvbuf, r->own, r->type, 0, r->own * r->type->size, f->packed);
    return MPI_SUCCESS;
}

static void fold_end(void *arg)
{
    const struct fold *f = arg;
    hly_mpi_object_release(f->what.type);
    hly_mpi_object_release(f->what.op);
}

/* Room for the vectors, and what makes one of them. */
static int prepare(struct hly_mpi_collect *call, const struct hly_mpi_reduction *r,
                   struct hly_mpi_blocks *received)
{
    const int n = other_count(call->comm);
    const int64_t stride = r->count * r->type->extent, slack = r->type->true_extent + 64;
    struct fold *f = malloc(sizeof(*f));
    char *room = f ? hly_mpi_collect_room(call, (size_t)(n * stride + 2 * slack)) : NULL;
    void *packed = room ? hly_mpi_collect_room(call, (size_t)(r->own * r->type->size + 1)) : NULL;
    if (!packed || hly_mpi_collect_then(call, fold_now, fold_end, f)) {
        free(f);
        return hly_mpi_fail(MPI_ERR_NO_MEM, "%s: no memory for %d vectors", call->how->function, n);
    }
    hly_mpi_object_hold(r->type);
    hly_mpi_object_hold(r->op);
    /* Elements may begin before their address, as far as true_lb says. */
    *f = (struct fold){*r, r->ranks ? r->ranks : n, room - r->type->true_lb, stride, packed};
    *received = (struct hly_mpi_blocks){.buffer = f->first, .count = r->count, .type = r->type};
    return MPI_SUCCESS;
}

int hly_mpi_inter_reduce(const struct hly_mpi_how *how, const struct hly_mpi_reduction *reduction,
                         int root, struct hly_mpi_comm *comm)
{
    struct hly_mpi_collect call = {.how = how, .comm = comm};
    const struct hly_mpi_reduction *r = reduction;
    const bool all = root == MPI_ANY_SOURCE, gets = all || root == MPI_ROOT;
    const struct hly_mpi_blocks sent = {
        .buffer = r->sendbuf, .count = r->count, .type = r->type, .same = true};
    struct hly_mpi_blocks received = {0};
    int rc = all ? MPI_SUCCESS : check_root(how, root, comm);
    if (!rc && root != MPI_PROC_NULL)
        rc = hly_mpi_check_side(how, r->sendbuf == MPI_IN_PLACE ? MPI_IN_PLACE : NULL, 0, r->type);
    if (!rc && root != MPI_PROC_NULL && (r->count < 0 || r->own < 0))
        rc = hly_mpi_fail(MPI_ERR_COUNT, "%s: a count is not 0 or more", how->function);
    if (!rc && root != MPI_PROC_NULL && !r->op)
        rc = hly_mpi_fail(MPI_ERR_OP, "%s: the operation is MPI_OP_NULL, or was freed",
                          how->function);
    if (!rc && root != MPI_PROC_NULL) /* does it take the type? */
        rc = hly_mpi_reduce_local(NULL, NULL, 0, r->type, r->op);
    if (!rc && gets)
        rc = hly_mpi_check_side(how, r->recvbuf, r->own, r->type);
    if (!rc && gets)
        rc = prepare(&call, r, &received);
    if (rc)
        return hly_mpi_collect_refuse(&call, rc);
    if (all)
        return exchange(&call, &sent, &received);
    struct hly_mpi_part *parts = NULL;
    int n = 0;
    if (root != MPI_PROC_NULL)
        rc = make_parts(how, gets ? &received : &sent, gets ? -1 : root, comm, &parts, &n);
    rc = rc     ? hly_mpi_collect_refuse(&call, rc)
         : gets ? hly_mpi_exchange(&call, NULL, 0, parts, n, false)
                : hly_mpi_exchange(&call, parts, n, NULL, 0, false);
    free(parts);
    return rc;
}
