/* SPDX-License-Identifier: Apache-2.0 */
/*
 * type_array.c - datatypes of parts of arrays: MPI_Type_create_subarray and MPI_Type_create_darray.
 *
 * Both nest loops, from the dimension whose elements are neighbours to the one whose elements are
 * farthest apart, and then set the bounds of the whole array.
 */
#include <stdlib.h>

#include "type.h"

/* The dimension that is number i from the fastest one on. */
static int dimension(int order, int ndims, int i)
{
    return order == MPI_ORDER_C ? ndims - 1 - i : i;
}

static int check_array_of(const char *function, int ndims, int order,
                          const struct hly_mpi_type *oldtype, struct hly_mpi_type **newtype)
{
    if (!oldtype)
        return hly_mpi_fail(MPI_ERR_TYPE, "%s: oldtype is MPI_DATATYPE_NULL", function);
    if (!newtype)
        return hly_mpi_fail(MPI_ERR_ARG, "%s: newtype is null", function);
    if (ndims < 1)
        return hly_mpi_fail(MPI_ERR_ARG, "%s: ndims is %d: it has to be 1 or more", function,
                            ndims);
    if (order != MPI_ORDER_C && order != MPI_ORDER_FORTRAN)
        return hly_mpi_fail(MPI_ERR_ARG,
                            "%s: order is %d: it has to be MPI_ORDER_C or MPI_ORDER_FORTRAN",
                            function, order);
    return MPI_SUCCESS;
}

static int check_subarray(const char *function, int ndims, struct hly_mpi_ints sizes,
                          struct hly_mpi_ints subsizes, struct hly_mpi_ints starts)
{
    if (!sizes.at || !subsizes.at || !starts.at)
        return hly_mpi_fail(MPI_ERR_ARG, "%s: an array of sizes or starts is null", function);
    for (int d = 0; d < ndims; d++) {
        int64_t size = hly_mpi_int(sizes, d), subsize = hly_mpi_int(subsizes, d),
                start = hly_mpi_int(starts, d);
        if (size < 1 || subsize < 1 || subsize > size || start < 0 || start > size - subsize)
            return hly_mpi_fail(
                MPI_ERR_ARG, "%s: dimension %d: subsize %lld at start %lld is not within size %lld",
                function, d, (long long)subsize, (long long)start, (long long)size);
    }
    return MPI_SUCCESS;
}

/* *stride is that of the next dimension: `size` times as long. */
static int stride_grow(int64_t *stride, int64_t size)
{
    return __builtin_mul_overflow(*stride, size, stride) ? MPI_ERR_ARG : MPI_SUCCESS;
}

int hly_mpi_type_create_subarray(int ndims, struct hly_mpi_ints array_of_sizes,
                                 struct hly_mpi_ints array_of_subsizes,
                                 struct hly_mpi_ints array_of_starts, int order,
                                 struct hly_mpi_type *oldtype, struct hly_mpi_type **newtype)
{
    static const char function[] = "MPI_Type_create_subarray";
    int64_t n = ndims, ordered = order, stride, offset = 0;
    struct hly_mpi_part parts[] = {HLY_MPI_PART(HLY_MPI_INTS, 1, &n),
                                   {HLY_MPI_SIZES, ndims, array_of_sizes},
                                   {HLY_MPI_SIZES, ndims, array_of_subsizes},
                                   {HLY_MPI_SIZES, ndims, array_of_starts},
                                   HLY_MPI_PART(HLY_MPI_INTS, 1, &ordered)};
    struct hly_mpi_shape shape, outer;
    int rc = check_array_of(function, ndims, order, oldtype, newtype);
    if (!rc)
        rc = check_subarray(function, ndims, array_of_sizes, array_of_subsizes, array_of_starts);
    if (rc)
        return rc;
    stride = oldtype->extent;
    hly_mpi_shape_copy(&oldtype->made->shape, &shape);
    for (int i = 0; i < ndims && !rc; i++) {
        int d = dimension(order, ndims, i);
        rc = hly_mpi_shape_repeat(&shape, hly_mpi_int(array_of_subsizes, d), stride, &outer);
        if (rc)
            break;
        hly_mpi_shape_drop(&shape);
        shape = outer;
        /* No overflow: the start is below the size, and the next line checks that. */
        offset += (int64_t)((uint64_t)hly_mpi_int(array_of_starts, d) * (uint64_t)stride);
        rc = stride_grow(&stride, hly_mpi_int(array_of_sizes, d));
    }
    if (!rc)
        rc = hly_mpi_shape_shift(&shape, offset);
    if (rc)
        hly_mpi_shape_drop(&shape);
    else
        hly_mpi_shape_bound(&shape, 0, stride);
    rc = hly_mpi_type_finish(function, MPI_COMBINER_SUBARRAY, rc, &shape, parts, 5, &oldtype, 1,
                             newtype);
    if (!rc && array_of_sizes.wide)
        hly_mpi_type_made_large(*newtype);
    return rc;
}

/* One dimension of a distributed array: this process has the blocks number coordinate, coordinate +
 * processes, ... of `block` elements each. */
struct distribution {
    int64_t size, block, processes, coordinate;
};

static int distribution_check(const char *function, int d, int distribution, int darg,
                              struct distribution *made)
{
    if (made->size < 1 || made->processes < 1)
        return hly_mpi_fail(MPI_ERR_ARG,
                            "%s: dimension %d: its size and its processes have to be 1 or more",
                            function, d);
    if (distribution != MPI_DISTRIBUTE_NONE && darg != MPI_DISTRIBUTE_DFLT_DARG && darg < 1)
        return hly_mpi_fail(MPI_ERR_ARG, "%s: dimension %d: its darg is %d: it has to be over 0",
                            function, d, darg);
    switch (distribution) {
    case MPI_DISTRIBUTE_NONE:
        if (made->processes != 1)
            return hly_mpi_fail(MPI_ERR_ARG,
                                "%s: dimension %d is not distributed, and needs 1 process",
                                function, d);
        made->block = made->size;
        return MPI_SUCCESS;
    case MPI_DISTRIBUTE_CYCLIC:
        made->block = darg == MPI_DISTRIBUTE_DFLT_DARG ? 1 : darg;
        return MPI_SUCCESS;
    case MPI_DISTRIBUTE_BLOCK:
        made->block =
            darg == MPI_DISTRIBUTE_DFLT_DARG ? (made->size - 1) / made->processes + 1 : darg;
        if (made->block * made->processes < made->size)
            return hly_mpi_fail(MPI_ERR_ARG,
                                "%s: dimension %d: darg %d times %lld processes is below its size",
                                function, d, darg, (long long)made->processes);
        return MPI_SUCCESS;
    default:
        return hly_mpi_fail(MPI_ERR_ARG, "%s: dimension %d: there is no distribution %d", function,
                            d, distribution);
    }
}

/* The blocks of `of`, which stands for one element of the dimension, `stride` bytes apart. */
static int distribution_shape(const struct distribution *dist, const struct hly_mpi_shape *of,
                              int64_t stride, struct hly_mpi_shape *made)
{
    __int128 cycle = (__int128)dist->block * dist->processes,
             first = (__int128)dist->block * dist->coordinate, left = (__int128)dist->size - first,
             whole, rest;
    struct hly_mpi_shape block, blocks, tail;
    struct hly_mpi_sequence sequence;
    int rc;
    if (left <= 0)
        return hly_mpi_shape_repeat(of, 0, 0, made);
    whole = left / cycle;
    rest = left - whole * cycle;
    if (rest >= dist->block) {
        whole++;
        rest = 0;
    }
    /* One block alone has no distance to the next one, which might not fit 64 bits. */
    rc = hly_mpi_shape_repeat(of, whole ? dist->block : 0, stride, &block);
    if (rc)
        return rc;
    rc = hly_mpi_shape_repeat(&block, (int64_t)whole, whole > 1 ? (int64_t)cycle * stride : 0,
                              &blocks);
    hly_mpi_shape_drop(&block);
    if (rc)
        return rc;
    rc = hly_mpi_shape_repeat(of, (int64_t)rest, stride, &tail);
    if (rc) {
        hly_mpi_shape_drop(&blocks);
        return rc;
    }
    hly_mpi_sequence_open(&sequence, of->map.layout != of->data.layout);
    rc = hly_mpi_sequence_add(&sequence, 1, (int64_t)first * stride, &blocks);
    if (!rc && rest)
        rc = hly_mpi_sequence_add(&sequence, 1, (int64_t)(first + whole * cycle) * stride, &tail);
    rc = hly_mpi_sequence_end(&sequence, rc, made);
    hly_mpi_shape_drop(&blocks);
    hly_mpi_shape_drop(&tail);
    return rc;
}

static int darray_check(const char *function, int size, int rank, int ndims,
                        struct hly_mpi_ints gsizes, const int distribs[], const int dargs[],
                        const int psizes[])
{
    int64_t processes = 1;
    if (!gsizes.at || !distribs || !dargs || !psizes)
        return hly_mpi_fail(MPI_ERR_ARG, "%s: an array of sizes or distributions is null",
                            function);
    if (size < 1 || rank < 0 || rank >= size)
        return hly_mpi_fail(MPI_ERR_ARG, "%s: rank %d is not below size %d", function, rank, size);
    for (int d = 0; d < ndims; d++) {
        struct distribution dist = {hly_mpi_int(gsizes, d), 0, psizes[d], 0};
        int rc = distribution_check(function, d, distribs[d], dargs[d], &dist);
        if (rc)
            return rc;
        if (processes <= size)
            processes *= psizes[d];
    }
    if (processes != size)
        return hly_mpi_fail(MPI_ERR_ARG, "%s: the processes of all dimensions are not size, %d",
                            function, size);
    return MPI_SUCCESS;
}

static int darray_shape(int size, int rank, int ndims, struct hly_mpi_ints gsizes,
                        const int distribs[], const int dargs[], const int psizes[], int order,
                        const struct hly_mpi_type *oldtype, struct hly_mpi_shape *shape)
{
    struct hly_mpi_shape outer;
    int64_t stride = oldtype->extent;
    int rc = MPI_SUCCESS;
    hly_mpi_shape_copy(&oldtype->made->shape, shape);
    for (int i = 0; i < ndims && !rc; i++) {
        int d = dimension(order, ndims, i), below = size;
        struct distribution dist = {hly_mpi_int(gsizes, d), 0, psizes[d], 0};
        int64_t next = stride;
        /* Ranks are numbered with the last dimension fastest, whatever the order of the array. */
        for (int e = 0; e <= d; e++)
            below /= psizes[e];
        dist.coordinate = rank / below % psizes[d];
        distribution_check("", d, distribs[d], dargs[d], &dist);
        rc = stride_grow(&next, dist.size);
        if (!rc)
            rc = distribution_shape(&dist, shape, stride, &outer);
        if (!rc) {
            hly_mpi_shape_drop(shape);
            *shape = outer;
        }
        stride = next;
    }
    if (rc)
        hly_mpi_shape_drop(shape);
    else
        hly_mpi_shape_bound(shape, 0, stride);
    return rc;
}

int hly_mpi_type_create_darray(int size, int rank, int ndims, struct hly_mpi_ints array_of_gsizes,
                               const int array_of_distribs[], const int array_of_dargs[],
                               const int array_of_psizes[], int order, struct hly_mpi_type *oldtype,
                               struct hly_mpi_type **newtype)
{
    static const char function[] = "MPI_Type_create_darray";
    int64_t first[3] = {size, rank, ndims}, ordered = order;
    struct hly_mpi_part parts[] = {HLY_MPI_PART(HLY_MPI_INTS, 3, first),
                                   {HLY_MPI_SIZES, ndims, array_of_gsizes},
                                   {HLY_MPI_INTS, ndims, {array_of_distribs, false}},
                                   {HLY_MPI_INTS, ndims, {array_of_dargs, false}},
                                   {HLY_MPI_INTS, ndims, {array_of_psizes, false}},
                                   HLY_MPI_PART(HLY_MPI_INTS, 1, &ordered)};
    struct hly_mpi_shape shape;
    int rc = check_array_of(function, ndims, order, oldtype, newtype);
    if (!rc)
        rc = darray_check(function, size, rank, ndims, array_of_gsizes, array_of_distribs,
                          array_of_dargs, array_of_psizes);
    if (rc)
        return rc;
    rc = darray_shape(size, rank, ndims, array_of_gsizes, array_of_distribs, array_of_dargs,
                      array_of_psizes, order, oldtype, &shape);
    rc = hly_mpi_type_finish(function, MPI_COMBINER_DARRAY, rc, &shape, parts, 6, &oldtype, 1,
                             newtype);
    if (!rc && array_of_gsizes.wide)
        hly_mpi_type_made_large(*newtype);
    return rc;
}
