/* SPDX-License-Identifier: Apache-2.0 */
/*
 * type.c - datatypes as objects: made, committed, duplicated, freed; their size, bounds and name.
 *
 * A type is complete when it is made, so MPI_Type_commit only marks it. A type holds those that it
 * was made of. MPI_Type_get_contents hands out the same objects again: `handles` counts how often
 * the program has one, and the attributes are freed with the last.
 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "type.h"

static void made_end(struct hly_mpi_made *made)
{
    hly_mpi_shape_drop(&made->shape);
    for (int64_t i = 0; i < made->ntypes; i++)
        hly_mpi_object_release(made->types[i]);
    free(made->types);
    free(made->numbers);
    free(made);
}

void hly_mpi_type_end(void *object)
{
    struct hly_mpi_type *type = object;
    if (type->made)
        made_end(type->made);
    type->made = NULL;
}

static bool is_dense(const struct hly_mpi_shape *shape)
{
    if (shape->lb != 0 || shape->ub != shape->size)
        return false;
    return !shape->data.layout ||
           (shape->data.offset == 0 && shape->data.layout->kind == HLY_MPI_LEAF);
}

struct hly_mpi_type *hly_mpi_type_new(int combiner, struct hly_mpi_shape *shape)
{
    struct hly_mpi_type *type = hly_mpi_object_new(HLY_MPI_TYPE, sizeof(*type));
    struct hly_mpi_made *made = calloc(1, sizeof(*made));
    if (!type || !made) {
        free(made);
        if (type)
            hly_mpi_object_release(type);
        hly_mpi_shape_drop(shape);
        return NULL;
    }
    made->combiner = combiner;
    made->handles = 1;
    made->shape = *shape;
    type->made = made;
    type->size = shape->size;
    type->lb = shape->lb;
    type->extent = shape->ub - shape->lb;
    type->true_lb = shape->true_lb;
    type->true_extent = shape->true_ub - shape->true_lb;
    type->dense = is_dense(shape);
    type->halay = shape->unit >= 0 ? hly_mpi_named[shape->unit].halay : -1;
    type->elements = type->halay >= 0
                         ? shape->size / (int64_t)halay_type_bytes((halay_type_t)type->halay)
                         : shape->basics;
    type->signature = hly_mpi_signature(1, type);
    return type;
}

int hly_mpi_type_run(struct hly_mpi_type *type, enum hly_mpi_sort sort, int64_t n)
{
    struct hly_mpi_made *made = type->made;
    int64_t *numbers;
    if ((uint64_t)n > SIZE_MAX / 32 - (uint64_t)made->nnumbers)
        return MPI_ERR_NO_MEM;
    numbers = realloc(made->numbers, (size_t)(made->nnumbers + n + 1) * sizeof(*numbers));
    if (!numbers)
        return MPI_ERR_NO_MEM;
    made->numbers = numbers;
    made->nnumbers += n;
    made->runs[made->nruns].sort = sort;
    made->runs[made->nruns++].n = n;
    return MPI_SUCCESS;
}

int hly_mpi_type_keep(struct hly_mpi_type *type, struct hly_mpi_type *const types[], int64_t n)
{
    struct hly_mpi_made *made = type->made;
    made->types = malloc((size_t)(n + 1) * sizeof(struct hly_mpi_type *));
    if (!made->types)
        return MPI_ERR_NO_MEM;
    for (int64_t i = 0; i < n; i++) {
        made->types[i] = types[i];
        hly_mpi_object_hold(types[i]);
    }
    made->ntypes = n;
    return MPI_SUCCESS;
}

int hly_mpi_type_failed(const char *function, int mpi_class)
{
    if (mpi_class == MPI_ERR_NO_MEM)
        return hly_mpi_fail(mpi_class, "%s: no memory for the datatype", function);
    if (mpi_class == MPI_ERR_TYPE)
        return hly_mpi_fail(mpi_class, "%s: the datatype is nested more than %d deep", function,
                            HLY_MPI_DEPTH_MAX);
    return hly_mpi_fail(mpi_class, "%s: the size or a bound of the datatype needs over 64 bits",
                        function);
}

void hly_mpi_type_made_large(struct hly_mpi_type *type)
{
    type->made->large = true;
}

bool hly_mpi_type_untyped(const struct hly_mpi_type *type)
{
    const struct hly_mpi_layout *map = type->made->shape.map.layout;
    return map && map->basic >= 0 && hly_mpi_named[map->basic].of_class == HLY_MPI_BYTES;
}

int hly_mpi_check_data(const char *function, const void *buffer, int64_t count,
                       const struct hly_mpi_type *type)
{
    __int128 first, last;
    if (count < 0)
        return hly_mpi_fail(MPI_ERR_COUNT, "%s: count is %lld: it has to be 0 or more", function,
                            (long long)count);
    if (!type)
        return hly_mpi_fail(MPI_ERR_TYPE, "%s: the datatype is MPI_DATATYPE_NULL", function);
    if (!type->committed)
        return hly_mpi_fail(MPI_ERR_TYPE,
                            "%s: the datatype is not committed: call MPI_Type_commit first",
                            function);
    if (!count || !type->size)
        return MPI_SUCCESS;
    first = (__int128)(intptr_t)buffer + type->true_lb;
    last =
        first + type->true_extent + (__int128)(count - 1) * (type->extent < 0 ? 0 : type->extent);
    if ((uintptr_t)buffer + (uint64_t)type->true_lb < 4096)
        return hly_mpi_fail(MPI_ERR_BUFFER,
                            "%s: the buffer is null, and the datatype has no absolute addresses",
                            function);
    if (last > INT64_MAX || (__int128)type->size * count > INT64_MAX)
        return hly_mpi_fail(MPI_ERR_COUNT, "%s: count is %lld: the data would need over 2^63 bytes",
                            function, (long long)count);
    return MPI_SUCCESS;
}

/* ---------------------------------------------------------------- calls of MPI */

static int need(const char *function, const struct hly_mpi_type *type, const void *result)
{
    if (!type)
        return hly_mpi_fail(MPI_ERR_TYPE, "%s: the datatype is MPI_DATATYPE_NULL", function);
    if (!result)
        return hly_mpi_fail(MPI_ERR_ARG, "%s: the address for the result is null", function);
    return MPI_SUCCESS;
}

int hly_mpi_type_commit(struct hly_mpi_type **datatype)
{
    int rc = need("MPI_Type_commit", datatype ? *datatype : NULL, datatype);
    if (!rc)
        (*datatype)->committed = true;
    return rc;
}

int hly_mpi_type_free(struct hly_mpi_type **datatype)
{
    struct hly_mpi_type *type = datatype ? *datatype : NULL;
    int rc = need("MPI_Type_free", type, datatype);
    if (rc)
        return rc;
    if (type->predefined)
        return hly_mpi_fail(MPI_ERR_TYPE, "MPI_Type_free: %s is predefined and cannot be freed",
                            type->name[0] ? type->name : "a datatype of MPI_Type_create_f90_*");
    if (__atomic_load_n(&type->made->handles, __ATOMIC_ACQUIRE) == 1 && type->attributes) {
        rc = hly_mpi_attributes_free(HLY_MPI_TYPE, type, &type->attributes);
        if (rc)
            return rc;
    }
    __atomic_sub_fetch(&type->made->handles, 1, __ATOMIC_ACQ_REL);
    hly_mpi_object_release(type);
    *datatype = NULL;
    return MPI_SUCCESS;
}

int hly_mpi_type_dup(struct hly_mpi_type *oldtype, struct hly_mpi_type **newtype)
{
    struct hly_mpi_shape shape;
    struct hly_mpi_type *type;
    int rc = need("MPI_Type_dup", oldtype, newtype);
    if (rc)
        return rc;
    hly_mpi_shape_copy(&oldtype->made->shape, &shape);
    type = hly_mpi_type_new(MPI_COMBINER_DUP, &shape);
    if (!type)
        return hly_mpi_type_failed("MPI_Type_dup", MPI_ERR_NO_MEM);
    rc = hly_mpi_type_keep(type, &oldtype, 1);
    if (rc)
        hly_mpi_type_failed("MPI_Type_dup", rc);
    else if (oldtype->attributes)
        rc = hly_mpi_attributes_copy(HLY_MPI_TYPE, oldtype, oldtype->attributes, &type->attributes);
    if (rc) {
        hly_mpi_object_release(type);
        return rc;
    }
    type->committed = oldtype->committed;
    *newtype = type;
    return MPI_SUCCESS;
}

int hly_mpi_type_size(struct hly_mpi_type *datatype, int64_t *size)
{
    int rc = need("MPI_Type_size", datatype, size);
    if (!rc)
        *size = datatype->size;
    return rc;
}

int hly_mpi_type_size_x(struct hly_mpi_type *datatype, int64_t *size)
{
    int rc = need("MPI_Type_size_x", datatype, size);
    if (!rc)
        *size = datatype->size;
    return rc;
}

static int extent_of(const char *function, const struct hly_mpi_type *type, int64_t *lb,
                     int64_t *extent)
{
    int rc = need(function, type, lb && extent ? lb : NULL);
    if (rc)
        return rc;
    *lb = type->lb;
    *extent = type->extent;
    return MPI_SUCCESS;
}

int hly_mpi_type_get_extent(struct hly_mpi_type *datatype, int64_t *lb, int64_t *extent)
{
    return extent_of("MPI_Type_get_extent", datatype, lb, extent);
}

int hly_mpi_type_get_extent_x(struct hly_mpi_type *datatype, int64_t *lb, int64_t *extent)
{
    return extent_of("MPI_Type_get_extent_x", datatype, lb, extent);
}

static int true_extent_of(const char *function, const struct hly_mpi_type *type, int64_t *true_lb,
                          int64_t *true_extent)
{
    int rc = need(function, type, true_lb && true_extent ? true_lb : NULL);
    if (rc)
        return rc;
    *true_lb = type->true_lb;
    *true_extent = type->true_extent;
    return MPI_SUCCESS;
}

int hly_mpi_type_get_true_extent(struct hly_mpi_type *datatype, int64_t *true_lb,
                                 int64_t *true_extent)
{
    return true_extent_of("MPI_Type_get_true_extent", datatype, true_lb, true_extent);
}

int hly_mpi_type_get_true_extent_x(struct hly_mpi_type *datatype, int64_t *true_lb,
                                   int64_t *true_extent)
{
    return true_extent_of("MPI_Type_get_true_extent_x", datatype, true_lb, true_extent);
}

int hly_mpi_type_set_name(struct hly_mpi_type *datatype, const char *type_name)
{
    int rc = need("MPI_Type_set_name", datatype, type_name);
    if (!rc)
        snprintf(datatype->name, sizeof(datatype->name), "%s", type_name);
    return rc;
}

int hly_mpi_type_get_name(struct hly_mpi_type *datatype, char *type_name, int *resultlen)
{
    const char *name = datatype ? datatype->name : "MPI_DATATYPE_NULL";
    if (!type_name || !resultlen)
        return hly_mpi_fail(MPI_ERR_ARG, "MPI_Type_get_name: type_name or resultlen is null");
    *resultlen = (int)strlen(name);
    memcpy(type_name, name, (size_t)*resultlen + 1);
    return MPI_SUCCESS;
}

int hly_mpi_get_address(const void *location, int64_t *address)
{
    if (!address)
        return hly_mpi_fail(MPI_ERR_ARG, "MPI_Get_address: address is null");
    *address = (int64_t)(intptr_t)location;
    return MPI_SUCCESS;
}
