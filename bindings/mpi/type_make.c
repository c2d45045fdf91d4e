/* SPDX-License-Identifier: Apache-2.0 */
/*
 * type_make.c - constructors of datatypes, except for those of arrays: each computes a shape, and
 * keeps its arguments for MPI_Type_get_contents.
 */
#include <limits.h>
#include <stdlib.h>

#include "type.h"

int hly_mpi_type_finish(const char *function, int combiner, int rc, struct hly_mpi_shape *shape,
                        const struct hly_mpi_part parts[], int nparts,
                        struct hly_mpi_type *const types[], int64_t ntypes,
                        struct hly_mpi_type **newtype)
{
    struct hly_mpi_type *type;
    int64_t at = 0;
    if (rc)
        return hly_mpi_type_failed(function, rc);
    type = hly_mpi_type_new(combiner, shape);
    if (!type)
        return hly_mpi_type_failed(function, MPI_ERR_NO_MEM);
    rc = hly_mpi_type_keep(type, types, ntypes);
    for (int p = 0; p < nparts && !rc; p++) {
        const struct hly_mpi_part *part = &parts[p];
        rc = hly_mpi_type_run(type, part->sort, part->n);
        for (int64_t i = 0; i < part->n && !rc; i++) {
            int64_t number = hly_mpi_int(part->from, i);
            type->made->numbers[at++] = number;
            if (part->sort == HLY_MPI_SIZES && number != (int)number)
                type->made->large = true;
        }
    }
    if (rc) {
        hly_mpi_object_release(type);
        return hly_mpi_type_failed(function, rc);
    }
    *newtype = type;
    return MPI_SUCCESS;
}

static int check(const char *function, int64_t count, const struct hly_mpi_type *oldtype,
                 struct hly_mpi_type **newtype)
{
    if (count < 0)
        return hly_mpi_fail(MPI_ERR_COUNT, "%s: count is %lld: it has to be 0 or more", function,
                            (long long)count);
    if (!oldtype)
        return hly_mpi_fail(MPI_ERR_TYPE, "%s: oldtype is MPI_DATATYPE_NULL", function);
    if (!newtype)
        return hly_mpi_fail(MPI_ERR_ARG, "%s: newtype is null", function);
    return MPI_SUCCESS;
}

static int check_length(const char *function, int64_t length)
{
    if (length >= 0)
        return MPI_SUCCESS;
    return hly_mpi_fail(MPI_ERR_ARG, "%s: a block length is %lld: it has to be 0 or more", function,
                        (long long)length);
}

static int check_array(const char *function, int64_t count, const void *array)
{
    if (array || !count)
        return MPI_SUCCESS;
    return hly_mpi_fail(MPI_ERR_ARG, "%s: an array of lengths, displacements or types is null",
                        function);
}

int hly_mpi_type_contiguous(int64_t count, struct hly_mpi_type *oldtype,
                            struct hly_mpi_type **newtype)
{
    static const char function[] = "MPI_Type_contiguous";
    struct hly_mpi_part part = HLY_MPI_PART(HLY_MPI_SIZES, 1, &count);
    struct hly_mpi_shape shape;
    int rc = check(function, count, oldtype, newtype);
    if (rc)
        return rc;
    rc = hly_mpi_shape_repeat(&oldtype->made->shape, count, oldtype->extent, &shape);
    return hly_mpi_type_finish(function, MPI_COMBINER_CONTIGUOUS, rc, &shape, &part, 1, &oldtype, 1,
                               newtype);
}

/* count blocks, their starts `stride` bytes apart. */
static int shape_of_vector(const struct hly_mpi_type *oldtype, int64_t count, int64_t blocklength,
                           __int128 stride, struct hly_mpi_shape *made)
{
    struct hly_mpi_shape block;
    int rc;
    if (stride != (int64_t)stride)
        return MPI_ERR_ARG;
    rc = hly_mpi_shape_repeat(&oldtype->made->shape, blocklength, oldtype->extent, &block);
    if (rc)
        return rc;
    rc = hly_mpi_shape_repeat(&block, count, (int64_t)stride, made);
    hly_mpi_shape_drop(&block);
    return rc;
}

int hly_mpi_type_vector(int64_t count, int64_t blocklength, int64_t stride,
                        struct hly_mpi_type *oldtype, struct hly_mpi_type **newtype)
{
    static const char function[] = "MPI_Type_vector";
    struct hly_mpi_part parts[] = {HLY_MPI_PART(HLY_MPI_SIZES, 1, &count),
                                   HLY_MPI_PART(HLY_MPI_SIZES, 1, &blocklength),
                                   HLY_MPI_PART(HLY_MPI_SIZES, 1, &stride)};
    struct hly_mpi_shape shape;
    int rc = check(function, count, oldtype, newtype);
    if (!rc)
        rc = check_length(function, blocklength);
    if (rc)
        return rc;
    rc = shape_of_vector(oldtype, count, blocklength, (__int128)stride * oldtype->extent, &shape);
    return hly_mpi_type_finish(function, MPI_COMBINER_VECTOR, rc, &shape, parts, 3, &oldtype, 1,
                               newtype);
}

int hly_mpi_type_create_hvector(int64_t count, int64_t blocklength, int64_t stride,
                                struct hly_mpi_type *oldtype, struct hly_mpi_type **newtype)
{
    static const char function[] = "MPI_Type_create_hvector";
    struct hly_mpi_part parts[] = {HLY_MPI_PART(HLY_MPI_SIZES, 1, &count),
                                   HLY_MPI_PART(HLY_MPI_SIZES, 1, &blocklength),
                                   HLY_MPI_PART(HLY_MPI_ADDRESSES, 1, &stride)};
    struct hly_mpi_shape shape;
    int rc = check(function, count, oldtype, newtype);
    if (!rc)
        rc = check_length(function, blocklength);
    if (rc)
        return rc;
    rc = shape_of_vector(oldtype, count, blocklength, stride, &shape);
    return hly_mpi_type_finish(function, MPI_COMBINER_HVECTOR, rc, &shape, parts, 3, &oldtype, 1,
                               newtype);
}

/* Blocks at displacements, which count `unit` bytes each; lengths.at NULL: all of `length`. */
struct blocks {
    const char *function;
    int64_t count, length, unit;
    struct hly_mpi_ints lengths, displacements;
};

static int check_blocks(const struct blocks *blocks, const struct hly_mpi_type *oldtype,
                        struct hly_mpi_type **newtype)
{
    int rc = check(blocks->function, blocks->count, oldtype, newtype);
    if (!rc)
        rc = check_array(blocks->function, blocks->count, blocks->displacements.at);
    if (!rc && !blocks->lengths.at)
        rc = check_length(blocks->function, blocks->length);
    for (int64_t i = 0; !rc && blocks->lengths.at && i < blocks->count; i++)
        rc = check_length(blocks->function, hly_mpi_int(blocks->lengths, i));
    return rc;
}

static int shape_of_blocks(const struct blocks *blocks, const struct hly_mpi_type *oldtype,
                           struct hly_mpi_shape *made)
{
    const struct hly_mpi_shape *old = &oldtype->made->shape;
    struct hly_mpi_sequence sequence;
    int rc = MPI_SUCCESS;
    hly_mpi_sequence_open(&sequence, old->map.layout != old->data.layout);
    for (int64_t i = 0; i < blocks->count && !rc; i++) {
        __int128 at = (__int128)hly_mpi_int(blocks->displacements, i) * blocks->unit;
        int64_t length = blocks->lengths.at ? hly_mpi_int(blocks->lengths, i) : blocks->length;
        rc = at == (int64_t)at ? hly_mpi_sequence_add(&sequence, length, (int64_t)at, old)
                               : MPI_ERR_ARG;
    }
    return hly_mpi_sequence_end(&sequence, rc, made);
}

int hly_mpi_type_indexed(int64_t count, struct hly_mpi_ints array_of_blocklengths,
                         struct hly_mpi_ints array_of_displacements, struct hly_mpi_type *oldtype,
                         struct hly_mpi_type **newtype)
{
    struct blocks blocks = {
        "MPI_Type_indexed",    count, 0, oldtype ? oldtype->extent : 0, array_of_blocklengths,
        array_of_displacements};
    struct hly_mpi_part parts[] = {HLY_MPI_PART(HLY_MPI_SIZES, 1, &count),
                                   {HLY_MPI_SIZES, count, array_of_blocklengths},
                                   {HLY_MPI_SIZES, count, array_of_displacements}};
    struct hly_mpi_shape shape;
    int rc = check_array(blocks.function, count, array_of_blocklengths.at);
    if (!rc)
        rc = check_blocks(&blocks, oldtype, newtype);
    if (rc)
        return rc;
    rc = shape_of_blocks(&blocks, oldtype, &shape);
    rc = hly_mpi_type_finish(blocks.function, MPI_COMBINER_INDEXED, rc, &shape, parts, 3, &oldtype,
                             1, newtype);
    if (!rc && array_of_blocklengths.wide)
        hly_mpi_type_made_large(*newtype);
    return rc;
}

int hly_mpi_type_create_hindexed(int64_t count, struct hly_mpi_ints array_of_blocklengths,
                                 struct hly_mpi_ints array_of_displacements,
                                 struct hly_mpi_type *oldtype, struct hly_mpi_type **newtype)
{
    struct blocks blocks = {"MPI_Type_create_hindexed", count, 0, 1, array_of_blocklengths,
                            array_of_displacements};
    struct hly_mpi_part parts[] = {HLY_MPI_PART(HLY_MPI_SIZES, 1, &count),
                                   {HLY_MPI_SIZES, count, array_of_blocklengths},
                                   {HLY_MPI_ADDRESSES, count, array_of_displacements}};
    struct hly_mpi_shape shape;
    int rc = check_array(blocks.function, count, array_of_blocklengths.at);
    if (!rc)
        rc = check_blocks(&blocks, oldtype, newtype);
    if (rc)
        return rc;
    rc = shape_of_blocks(&blocks, oldtype, &shape);
    rc = hly_mpi_type_finish(blocks.function, MPI_COMBINER_HINDEXED, rc, &shape, parts, 3, &oldtype,
                             1, newtype);
    if (!rc && array_of_blocklengths.wide)
        hly_mpi_type_made_large(*newtype);
    return rc;
}

int hly_mpi_type_create_indexed_block(int64_t count, int64_t blocklength,
                                      struct hly_mpi_ints array_of_displacements,
                                      struct hly_mpi_type *oldtype, struct hly_mpi_type **newtype)
{
    struct blocks blocks = {"MPI_Type_create_indexed_block", count,         blocklength,
                            oldtype ? oldtype->extent : 0,   {NULL, false}, array_of_displacements};
    struct hly_mpi_part parts[] = {HLY_MPI_PART(HLY_MPI_SIZES, 1, &count),
                                   HLY_MPI_PART(HLY_MPI_SIZES, 1, &blocklength),
                                   {HLY_MPI_SIZES, count, array_of_displacements}};
    struct hly_mpi_shape shape;
    int rc = check_blocks(&blocks, oldtype, newtype);
    if (rc)
        return rc;
    rc = shape_of_blocks(&blocks, oldtype, &shape);
    rc = hly_mpi_type_finish(blocks.function, MPI_COMBINER_INDEXED_BLOCK, rc, &shape, parts, 3,
                             &oldtype, 1, newtype);
    if (!rc && array_of_displacements.wide)
        hly_mpi_type_made_large(*newtype);
    return rc;
}

int hly_mpi_type_create_hindexed_block(int64_t count, int64_t blocklength,
                                       struct hly_mpi_ints array_of_displacements,
                                       struct hly_mpi_type *oldtype, struct hly_mpi_type **newtype)
{
    struct blocks blocks = {"MPI_Type_create_hindexed_block",
                            count,
                            blocklength,
                            1,
                            {NULL, false},
                            array_of_displacements};
    struct hly_mpi_part parts[] = {HLY_MPI_PART(HLY_MPI_SIZES, 1, &count),
                                   HLY_MPI_PART(HLY_MPI_SIZES, 1, &blocklength),
                                   {HLY_MPI_ADDRESSES, count, array_of_displacements}};
    struct hly_mpi_shape shape;
    int rc = check_blocks(&blocks, oldtype, newtype);
    if (rc)
        return rc;
    rc = shape_of_blocks(&blocks, oldtype, &shape);
    return hly_mpi_type_finish(blocks.function, MPI_COMBINER_HINDEXED_BLOCK, rc, &shape, parts, 3,
                               &oldtype, 1, newtype);
}

/* Its bounds are rounded up to what the basic types need in C, unless markers have set them. */
static int shape_of_struct(int64_t count, struct hly_mpi_ints lengths,
                           struct hly_mpi_ints displacements, struct hly_mpi_type *const types[],
                           struct hly_mpi_shape *made)
{
    struct hly_mpi_sequence sequence;
    int basic = HLY_MPI_NONE, rc = MPI_SUCCESS;
    bool mixed = false;
    for (int64_t i = 0; i < count; i++) {
        const struct hly_mpi_layout *map = types[i]->made->shape.map.layout;
        if (!map || !hly_mpi_int(lengths, i))
            continue;
        mixed |= map->basic == HLY_MPI_MIXED || (basic >= 0 && basic != map->basic);
        basic = map->basic;
    }
    hly_mpi_sequence_open(&sequence, mixed);
    for (int64_t i = 0; i < count && !rc; i++)
        rc = hly_mpi_sequence_add(&sequence, hly_mpi_int(lengths, i), hly_mpi_int(displacements, i),
                                  &types[i]->made->shape);
    rc = hly_mpi_sequence_end(&sequence, rc, made);
    if (!rc && made->bounded && !made->marked) {
        int64_t over = (made->ub - made->lb) % made->align, more = over ? made->align - over : 0;
        if (made->ub > INT64_MAX - more || made->ub - made->lb > INT64_MAX - more) {
            hly_mpi_shape_drop(made);
            return MPI_ERR_ARG;
        }
        made->ub += more;
    }
    return rc;
}

int hly_mpi_type_create_struct(int64_t count, struct hly_mpi_ints array_of_blocklengths,
                               struct hly_mpi_ints array_of_displacements,
                               struct hly_mpi_type *const array_of_types[],
                               struct hly_mpi_type **newtype)
{
    static const char function[] = "MPI_Type_create_struct";
    struct hly_mpi_part parts[] = {HLY_MPI_PART(HLY_MPI_SIZES, 1, &count),
                                   {HLY_MPI_SIZES, count, array_of_blocklengths},
                                   {HLY_MPI_ADDRESSES, count, array_of_displacements}};
    struct hly_mpi_shape shape;
    int rc = MPI_SUCCESS;
    if (count < 0)
        return hly_mpi_fail(MPI_ERR_COUNT, "%s: count is %lld: it has to be 0 or more", function,
                            (long long)count);
    rc = check_array(function, count, array_of_blocklengths.at);
    if (!rc)
        rc = check_array(function, count, array_of_displacements.at);
    if (!rc)
        rc = check_array(function, count, array_of_types);
    for (int64_t i = 0; i < count && !rc; i++) {
        rc = check_length(function, hly_mpi_int(array_of_blocklengths, i));
        if (!rc)
            rc = check(function, count, array_of_types[i], newtype);
    }
    if (rc)
        return rc;
    rc = shape_of_struct(count, array_of_blocklengths, array_of_displacements, array_of_types,
                         &shape);
    rc = hly_mpi_type_finish(function, MPI_COMBINER_STRUCT, rc, &shape, parts, 3, array_of_types,
                             count, newtype);
    if (!rc && array_of_blocklengths.wide)
        hly_mpi_type_made_large(*newtype);
    return rc;
}

int hly_mpi_type_create_resized(struct hly_mpi_type *oldtype, int64_t lb, int64_t extent,
                                struct hly_mpi_type **newtype)
{
    static const char function[] = "MPI_Type_create_resized";
    int64_t numbers[2] = {lb, extent};
    struct hly_mpi_part part = HLY_MPI_PART(HLY_MPI_ADDRESSES, 2, numbers);
    struct hly_mpi_shape shape;
    int64_t ub;
    int rc = check(function, 0, oldtype, newtype);
    if (rc)
        return rc;
    if (__builtin_add_overflow(lb, extent, &ub))
        return hly_mpi_type_failed(function, MPI_ERR_ARG);
    hly_mpi_shape_copy(&oldtype->made->shape, &shape);
    hly_mpi_shape_bound(&shape, lb, ub);
    return hly_mpi_type_finish(function, MPI_COMBINER_RESIZED, rc, &shape, &part, 1, &oldtype, 1,
                               newtype);
}
