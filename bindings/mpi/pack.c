/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pack.c - copies data of any datatype to and from their packed form, which is the elements' bytes
 * one after the other, and MPI_Pack and MPI_Unpack, whose format that is.
 *
 * A copy may begin and end anywhere in the packed form: it finds the place by division in a loop,
 * by bisection in a list. It allocates nothing. Addresses are computed as numbers, for MPI_BOTTOM.
 */
#include <string.h>

#include "type.h"

struct copy {
    char *packed; /* moves on */
    bool pack;
};

/* With constants: one load and store, where a call of memcpy would cost more. */
static inline void move_bytes(char *to, const char *from, int64_t bytes)
{
    if (bytes == 8)
        memcpy(to, from, 8);
    else if (bytes == 4)
        memcpy(to, from, 4);
    else if (bytes == 16)
        memcpy(to, from, 16);
    else
        memcpy(to, from, (size_t)bytes);
}

static inline void move(struct copy *copy, uintptr_t at, int64_t bytes)
{
    if (copy->pack)
        move_bytes(copy->packed, (const char *)at, bytes);
    else
        move_bytes((char *)at, copy->packed, bytes);
    copy->packed += bytes;
}

/* n pieces of `bytes` each; inlined with constants, so that each memcpy is one load and store. */
static inline __attribute__((always_inline)) void
move_strided(struct copy *copy, uintptr_t at, int64_t n, int64_t stride, size_t bytes)
{
    char *packed = copy->packed;
    if (copy->pack) {
        for (int64_t i = 0; i < n; i++, at += (uintptr_t)stride, packed += bytes)
            memcpy(packed, (const void *)at, bytes);
    } else {
        for (int64_t i = 0; i < n; i++, at += (uintptr_t)stride, packed += bytes)
            memcpy((void *)at, packed, bytes);
    }
    copy->packed = packed;
}

static void move_many(struct copy *copy, uintptr_t at, int64_t n, int64_t stride, int64_t bytes)
{
    switch (bytes) {
    case 1:
        move_strided(copy, at, n, stride, 1);
        break;
    case 2:
        move_strided(copy, at, n, stride, 2);
        break;
    case 4:
        move_strided(copy, at, n, stride, 4);
        break;
    case 8:
        move_strided(copy, at, n, stride, 8);
        break;
    case 12:
        move_strided(copy, at, n, stride, 12);
        break;
    case 16:
        move_strided(copy, at, n, stride, 16);
        break;
    case 24:
        move_strided(copy, at, n, stride, 24);
        break;
    case 32:
        move_strided(copy, at, n, stride, 32);
        break;
    default:
        move_strided(copy, at, n, stride, (size_t)bytes);
    }
}

static void copy_all(struct copy *copy, const struct hly_mpi_layout *layout, uintptr_t at);

/* n whole layouts, `stride` bytes apart. */
static void copy_many(struct copy *copy, const struct hly_mpi_layout *layout, uintptr_t at,
                      int64_t n, int64_t stride)
{
    if (layout->kind == HLY_MPI_LEAF && layout->size == stride) {
        if (n)
            move(copy, at, layout->size * n);
    } else if (layout->kind == HLY_MPI_LEAF) {
        move_many(copy, at, n, stride, layout->size);
    } else {
        for (; n > 0; n--, at += (uintptr_t)stride)
            copy_all(copy, layout, at);
    }
}

/* One whole item. */
static void copy_item(struct copy *copy, const struct hly_mpi_item *item, uintptr_t at)
{
    if (item->child)
        copy_all(copy, item->child, at + (uintptr_t)item->offset);
    else
        move(copy, at + (uintptr_t)item->offset, item[1].start - item->start);
}

static void copy_all(struct copy *copy, const struct hly_mpi_layout *layout, uintptr_t at)
{
    if (layout->kind == HLY_MPI_LEAF)
        move(copy, at, layout->size);
    else if (layout->kind == HLY_MPI_LOOP)
        copy_many(copy, layout->child, at, layout->count, layout->stride);
    else
        for (int64_t i = 0; i < layout->count; i++)
            copy_item(copy, &layout->items[i], at);
}

static void copy_part(struct copy *copy, const struct hly_mpi_layout *layout, uintptr_t at,
                      int64_t from, int64_t to);

/* Bytes from to before `to` of n layouts; from is before to. */
static void copy_loop(struct copy *copy, const struct hly_mpi_layout *layout, uintptr_t at,
                      int64_t stride, int64_t from, int64_t to)
{
    int64_t size = layout->size, i = from / size, skip = from - i * size, whole;
    at += (uintptr_t)i * (uintptr_t)stride;
    if (skip) {
        int64_t end = to - i * size < size ? to - i * size : size;
        copy_part(copy, layout, at, skip, end);
        at += (uintptr_t)stride;
        from += end - skip;
    }
    whole = (to - from) / size;
    copy_many(copy, layout, at, whole, stride);
    from += whole * size;
    if (from < to)
        copy_part(copy, layout, at + (uintptr_t)whole * (uintptr_t)stride, 0, to - from);
}

/* The item that has this byte of the packed form. */
static int64_t item_of(const struct hly_mpi_layout *list, int64_t byte)
{
    int64_t low = 0, high = list->count; /* items[low].start <= byte < items[high].start */
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        if (list->items[middle].start <= byte)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static void copy_part(struct copy *copy, const struct hly_mpi_layout *layout, uintptr_t at,
                      int64_t from, int64_t to)
{
    if (layout->kind == HLY_MPI_LEAF) {
        move(copy, at + (uintptr_t)from, to - from);
        return;
    }
    if (layout->kind == HLY_MPI_LOOP) {
        copy_loop(copy, layout->child, at, layout->stride, from, to);
        return;
    }
    for (const struct hly_mpi_item *item = &layout->items[item_of(layout, from)]; from < to;
         item++) {
        int64_t skip = from - item->start, end = item[1].start < to ? item[1].start : to,
                bytes = end - from;
        if (!item->child)
            move(copy, at + (uintptr_t)item->offset + (uintptr_t)skip, bytes);
        else if (bytes == item->child->size)
            copy_all(copy, item->child, at + (uintptr_t)item->offset);
        else
            copy_part(copy, item->child, at + (uintptr_t)item->offset, skip, skip + bytes);
        from = end;
    }
}

static void copy_range(uintptr_t buffer, int64_t count, const struct hly_mpi_type *type,
                       int64_t from, int64_t bytes, struct copy copy)
{
    const struct hly_mpi_piece *data = &type->made->shape.data;
    if (bytes > count * type->size - from)
        bytes = count * type->size - from;
    if (bytes <= 0)
        return;
    if (type->dense)
        move(&copy, buffer + (uintptr_t)from, bytes);
    else
        copy_loop(&copy, data->layout, buffer + (uintptr_t)data->offset, type->extent, from,
                  from + bytes);
}

void hly_mpi_pack_range(const void *buffer, int64_t count, const struct hly_mpi_type *type,
                        int64_t from, int64_t bytes, void *packed)
{
    copy_range((uintptr_t)buffer, count, type, from, bytes, (struct copy){packed, true});
}

void hly_mpi_unpack_range(void *buffer, int64_t count, const struct hly_mpi_type *type,
                          int64_t from, int64_t bytes, const void *packed)
{
    /* It only reads from there. */
    copy_range((uintptr_t)buffer, count, type, from, bytes,
               (struct copy){(char *)(uintptr_t)packed, false});
}

/* ---------------------------------------------------------------- runs of basic types */

static bool walk(const struct hly_mpi_layout *layout, uintptr_t at, hly_mpi_run_fn *fn, void *arg)
{
    bool on = true;
    if (layout->kind == HLY_MPI_LEAF)
        return fn(arg, layout->basic, (char *)at, layout->size);
    if (layout->kind == HLY_MPI_LOOP) {
        for (int64_t i = 0; i < layout->count && on; i++, at += (uintptr_t)layout->stride)
            on = walk(layout->child, at, fn, arg);
        return on;
    }
    for (int64_t i = 0; i < layout->count && on; i++) {
        const struct hly_mpi_item *item = &layout->items[i];
        uintptr_t place = at + (uintptr_t)item->offset;
        on = item->child ? walk(item->child, place, fn, arg)
                         : fn(arg, layout->basic, (char *)place, item[1].start - item->start);
    }
    return on;
}

bool hly_mpi_type_walk(const struct hly_mpi_type *type, uintptr_t buffer, int64_t count,
                       hly_mpi_run_fn *fn, void *arg)
{
    const struct hly_mpi_piece *map = &type->made->shape.map;
    bool on = true;
    if (!map->layout)
        return true;
    buffer += (uintptr_t)map->offset;
    for (int64_t i = 0; i < count && on; i++, buffer += (uintptr_t)type->extent)
        on = walk(map->layout, buffer, fn, arg);
    return on;
}

/* ---------------------------------------------------------------- calls of MPI */

int hly_mpi_pack_room(const char *function, const void *packed, int64_t size, int64_t bytes,
                      const int64_t *position)
{
    if (!position || *position < 0 || size < 0)
        return hly_mpi_fail(MPI_ERR_ARG,
                            "%s: position or the size of the packed buffer is negative", function);
    if (!packed && bytes)
        return hly_mpi_fail(MPI_ERR_BUFFER, "%s: the packed buffer is null", function);
    if (*position > size || bytes > size - *position)
        return hly_mpi_fail(
            MPI_ERR_TRUNCATE,
            "%s: %lld bytes do not fit: the packed buffer has %lld, position is %lld", function,
            (long long)bytes, (long long)size, (long long)*position);
    return MPI_SUCCESS;
}

int hly_mpi_pack(const void *inbuf, int64_t incount, struct hly_mpi_type *datatype, void *outbuf,
                 int64_t outsize, int64_t *position, struct hly_mpi_comm *comm)
{
    int64_t bytes;
    int rc = hly_mpi_check_comm("MPI_Pack", comm);
    if (!rc)
        rc = hly_mpi_check_data("MPI_Pack", inbuf, incount, datatype);
    if (rc)
        return rc;
    bytes = incount * datatype->size;
    rc = hly_mpi_pack_room("MPI_Pack", outbuf, outsize, bytes, position);
    if (rc)
        return rc;
    hly_mpi_pack_range(inbuf, incount, datatype, 0, bytes, (char *)outbuf + *position);
    *position += bytes;
    return MPI_SUCCESS;
}

int hly_mpi_unpack(const void *inbuf, int64_t insize, int64_t *position, void *outbuf,
                   int64_t outcount, struct hly_mpi_type *datatype, struct hly_mpi_comm *comm)
{
    int64_t bytes;
    int rc = hly_mpi_check_comm("MPI_Unpack", comm);
    if (!rc)
        rc = hly_mpi_check_data("MPI_Unpack", outbuf, outcount, datatype);
    if (rc)
        return rc;
    bytes = outcount * datatype->size;
    rc = hly_mpi_pack_room("MPI_Unpack", inbuf, insize, bytes, position);
    if (rc)
        return rc;
    hly_mpi_unpack_range(outbuf, outcount, datatype, 0, bytes, (const char *)inbuf + *position);
    *position += bytes;
    return MPI_SUCCESS;
}

int hly_mpi_pack_size(int64_t incount, struct hly_mpi_type *datatype, struct hly_mpi_comm *comm,
                      int64_t *size)
{
    int rc = hly_mpi_check_comm("MPI_Pack_size", comm);
    if (rc)
        return rc;
    if (!datatype)
        return hly_mpi_fail(MPI_ERR_TYPE, "MPI_Pack_size: the datatype is MPI_DATATYPE_NULL");
    if (incount < 0 || !size || __builtin_mul_overflow(incount, datatype->size, size))
        return hly_mpi_fail(incount < 0 ? MPI_ERR_COUNT : MPI_ERR_ARG,
                            "MPI_Pack_size: count is negative, or the size needs over 63 bits");
    return MPI_SUCCESS;
}
