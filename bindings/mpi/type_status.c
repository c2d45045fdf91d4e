/* SPDX-License-Identifier: Apache-2.0 */
/*
 * type_status.c - how many elements, or basic types, the bytes of a message are; and the reverse.
 *
 * Where an element's basic types have different sizes, a part of it is counted by a walk of one
 * element; the whole elements before it only by a division.
 */
#include <limits.h>

#include "type.h"

static int check(const char *function, const void *status, const struct hly_mpi_type *type,
                 const void *result)
{
    if (!type)
        return hly_mpi_fail(MPI_ERR_TYPE, "%s: the datatype is MPI_DATATYPE_NULL", function);
    if (!status || !result)
        return hly_mpi_fail(MPI_ERR_ARG, "%s: status or count is null", function);
    return MPI_SUCCESS;
}

int hly_mpi_get_count(const struct hly_mpi_status *status, struct hly_mpi_type *datatype,
                      int64_t *count)
{
    int rc = check("MPI_Get_count", status, datatype, count);
    if (rc)
        return rc;
    if (!status->bytes)
        *count = 0;
    else if (!datatype->size || status->bytes % datatype->size)
        *count = MPI_UNDEFINED;
    else
        *count = status->bytes / datatype->size;
    return MPI_SUCCESS;
}

struct counting {
    int64_t bytes, basics; /* what is left, and what is counted: of bytes, or of basic types */
};

static bool count_bytes(void *arg, int basic, char *at, int64_t bytes)
{
    struct counting *counting = arg;
    int64_t part = bytes < counting->bytes ? bytes : counting->bytes;
    (void)at;
    if (part % hly_mpi_named[basic].size) {
        counting->basics = MPI_UNDEFINED;
        return false;
    }
    counting->basics += part / hly_mpi_named[basic].size;
    counting->bytes -= part;
    return counting->bytes > 0;
}

static bool count_basics(void *arg, int basic, char *at, int64_t bytes)
{
    struct counting *counting = arg;
    int64_t n = bytes / hly_mpi_named[basic].size;
    (void)at;
    if (n > counting->basics)
        n = counting->basics;
    counting->bytes += n * hly_mpi_named[basic].size;
    counting->basics -= n;
    return counting->basics > 0;
}

static int get_elements(const char *function, const struct hly_mpi_status *status,
                        struct hly_mpi_type *type, int64_t *count)
{
    int rc = check(function, status, type, count);
    const struct hly_mpi_shape *shape;
    struct counting counting;
    if (rc)
        return rc;
    shape = &type->made->shape;
    if (!shape->size) {
        *count = status->bytes ? MPI_UNDEFINED : 0;
        return MPI_SUCCESS;
    }
    counting = (struct counting){status->bytes % shape->size, 0};
    if (counting.bytes && shape->map.layout->basic >= 0) {
        int64_t size = hly_mpi_named[shape->map.layout->basic].size;
        counting.basics = counting.bytes % size ? MPI_UNDEFINED : counting.bytes / size;
    } else if (counting.bytes) {
        hly_mpi_type_walk(type, 0, 1, count_bytes, &counting);
    }
    *count = counting.basics == MPI_UNDEFINED
                 ? MPI_UNDEFINED
                 : status->bytes / shape->size * shape->basics + counting.basics;
    return MPI_SUCCESS;
}

int hly_mpi_get_elements(const struct hly_mpi_status *status, struct hly_mpi_type *datatype,
                         int64_t *count)
{
    return get_elements("MPI_Get_elements", status, datatype, count);
}

int hly_mpi_get_elements_x(const struct hly_mpi_status *status, struct hly_mpi_type *datatype,
                           int64_t *count)
{
    return get_elements("MPI_Get_elements_x", status, datatype, count);
}

static int set_elements(const char *function, struct hly_mpi_status *status,
                        struct hly_mpi_type *type, int64_t count)
{
    int rc = check(function, status, type, type);
    const struct hly_mpi_shape *shape;
    struct counting counting = {0, 0};
    int64_t bytes = 0;
    if (rc)
        return rc;
    if (count < 0)
        return hly_mpi_fail(MPI_ERR_COUNT, "%s: count is %lld: it has to be 0 or more", function,
                            (long long)count);
    shape = &type->made->shape;
    if (shape->basics) {
        counting.basics = count % shape->basics;
        if (__builtin_mul_overflow(count / shape->basics, shape->size, &bytes))
            return hly_mpi_fail(MPI_ERR_COUNT, "%s: the data would need over 2^63 bytes", function);
        if (counting.basics)
            hly_mpi_type_walk(type, 0, 1, count_basics, &counting);
    }
    status->bytes = bytes + counting.bytes;
    return MPI_SUCCESS;
}

int hly_mpi_status_set_elements(struct hly_mpi_status *status, struct hly_mpi_type *datatype,
                                int64_t count)
{
    return set_elements("MPI_Status_set_elements", status, datatype, count);
}

int hly_mpi_status_set_elements_x(struct hly_mpi_status *status, struct hly_mpi_type *datatype,
                                  int64_t count)
{
    return set_elements("MPI_Status_set_elements_x", status, datatype, count);
}
