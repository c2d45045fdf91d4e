/* SPDX-License-Identifier: Apache-2.0 */
/*
 * type_external.c - MPI_Pack_external and MPI_Unpack_external: data in the representation
 * "external32", MPI-5.0, 14.5.2: big endian, with sizes of its own, without gaps.
 *
 * MPI_LONG has 4 bytes there, MPI_WCHAR 2: a value that does not fit is an error. long double is
 * IEEE binary128 there, which gcc converts.
 */
#include <float.h>
#include <string.h>

#include "type.h"

#if LDBL_MANT_DIG == 113 || LDBL_MANT_DIG == 53
typedef long double quad;
#define QUAD_OK (LDBL_MANT_DIG == 113)
#else
typedef __float128 quad;
#define QUAD_OK 1
#endif

struct conversion {
    const char *function;
    char *external; /* moves on */
    bool pack;
    int rc;
};

/* n bytes in the other order; in the same one where the machine is big endian. */
static void swap(char *to, const char *from, int n)
{
    for (int i = 0; i < n; i++)
        to[i] = from[__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__ ? i : n - 1 - i];
}

static int fail_value(const struct conversion *conversion, const char *name)
{
    return hly_mpi_fail(MPI_ERR_CONVERSION,
                        "%s: a value of %s does not fit in its size in external32",
                        conversion->function, name);
}

/* An integer of `size` bytes is one of fewer, `external`, there. */
static int convert_integer(struct conversion *conversion, const struct hly_mpi_named *named,
                           char *at)
{
    bool is_signed = named->format % 2 == 0;
    int size = named->size, external = named->external, bits = 64 - 8 * external;
    int64_t number = 0;
    int32_t word;
    if (conversion->pack) {
        if (size == 8) {
            memcpy(&number, at, 8);
        } else {
            memcpy(&word, at, 4);
            number = is_signed && external == 4 ? word : (int64_t)(uint32_t)word;
        }
        if (is_signed && external == 4 ? (int64_t)((uint64_t)number << bits) >> bits != number
                                       : (uint64_t)number >> (8 * external) != 0)
            return fail_value(conversion, named->name);
        for (int i = 0; i < external; i++)
            conversion->external[i] = (char)((uint64_t)number >> (8 * (external - 1 - i)));
        return MPI_SUCCESS;
    }
    for (int i = 0; i < external; i++)
        number = (int64_t)((uint64_t)number << 8 | (unsigned char)conversion->external[i]);
    if (is_signed && external == 4)
        number = (int64_t)((uint64_t)number << bits) >> bits;
    if (size == 8) {
        memcpy(at, &number, 8);
    } else {
        word = (int32_t)number;
        memcpy(at, &word, 4);
    }
    return MPI_SUCCESS;
}

static int convert_long_double(struct conversion *conversion, char *at, int n)
{
    long double number;
    quad wide;
    char bytes[16];
    if (!QUAD_OK)
        return hly_mpi_fail(MPI_ERR_UNSUPPORTED_OPERATION,
                            "%s: long double has 64 bits here, and no conversion to external32",
                            conversion->function);
    for (int i = 0; i < n; i++, at += sizeof(number)) {
        char *external = conversion->external + 16 * i;
        if (conversion->pack) {
            memcpy(&number, at, sizeof(number));
            wide = number;
            memcpy(bytes, &wide, 16);
            swap(external, bytes, 16);
        } else {
            swap(bytes, external, 16);
            memcpy(&wide, bytes, 16);
            number = (long double)wide;
            memset(at, 0, sizeof(number));
            memcpy(at, &number, LDBL_MANT_DIG == 64 ? 10 : sizeof(number));
        }
    }
    return MPI_SUCCESS;
}

static int convert(struct conversion *conversion, const struct hly_mpi_named *named, char *at)
{
    int parts = named->of_class == HLY_MPI_COMPLEX_NUMBER ? 2 : 1, bytes = named->size / parts;
    if (named->format == HLY_MPI_FLONG || named->format == HLY_MPI_CLONG)
        return convert_long_double(conversion, at, parts);
    if (named->external != named->size)
        return convert_integer(conversion, named, at);
    for (int i = 0; i < parts; i++, at += bytes) {
        if (conversion->pack)
            swap(conversion->external + i * bytes, at, bytes);
        else
            swap(at, conversion->external + i * bytes, bytes);
    }
    return MPI_SUCCESS;
}

static bool convert_run(void *arg, int basic, char *at, int64_t bytes)
{
    struct conversion *conversion = arg;
    const struct hly_mpi_named *named = &hly_mpi_named[basic];
    for (int64_t i = 0; i < bytes && !conversion->rc; i += named->size) {
        conversion->rc = convert(conversion, named, at + i);
        conversion->external += named->external;
    }
    return !conversion->rc;
}

static __int128 external_size(const struct hly_mpi_layout *layout)
{
    __int128 size = 0;
    if (layout->basic >= 0)
        return (__int128)layout->size / hly_mpi_named[layout->basic].size *
               hly_mpi_named[layout->basic].external;
    if (layout->kind == HLY_MPI_LOOP)
        return external_size(layout->child) * layout->count;
    for (int64_t i = 0; i < layout->count; i++)
        size += external_size(layout->items[i].child);
    return size;
}

static int size_of(const char *function, const char *datarep, int64_t count,
                   const struct hly_mpi_type *type, int64_t *size)
{
    const struct hly_mpi_layout *map;
    __int128 all;
    if (!datarep || strcmp(datarep, "external32") != 0)
        return hly_mpi_fail(MPI_ERR_ARG, "%s: datarep is \"%s\": it has to be \"external32\"",
                            function, datarep ? datarep : "(null)");
    if (!type)
        return hly_mpi_fail(MPI_ERR_TYPE, "%s: the datatype is MPI_DATATYPE_NULL", function);
    if (count < 0)
        return hly_mpi_fail(MPI_ERR_COUNT, "%s: count is %lld: it has to be 0 or more", function,
                            (long long)count);
    map = type->made->shape.map.layout;
    all = map ? external_size(map) * count : 0;
    if (!size || all != (int64_t)all)
        return hly_mpi_fail(MPI_ERR_ARG, "%s: size is null, or needs over 63 bits", function);
    *size = (int64_t)all;
    return MPI_SUCCESS;
}

int hly_mpi_pack_external_size(const char *datarep, int64_t incount, struct hly_mpi_type *datatype,
                               int64_t *size)
{
    return size_of("MPI_Pack_external_size", datarep, incount, datatype, size);
}

int hly_mpi_pack_external(const char *datarep, const void *inbuf, int64_t incount,
                          struct hly_mpi_type *datatype, void *outbuf, int64_t outsize,
                          int64_t *position)
{
    struct conversion conversion = {"MPI_Pack_external", NULL, true, MPI_SUCCESS};
    int64_t size;
    int rc = size_of(conversion.function, datarep, incount, datatype, &size);
    if (!rc)
        rc = hly_mpi_check_data(conversion.function, inbuf, incount, datatype);
    if (!rc)
        rc = hly_mpi_pack_room(conversion.function, outbuf, outsize, size, position);
    if (rc)
        return rc;
    conversion.external = (char *)outbuf + *position;
    hly_mpi_type_walk(datatype, (uintptr_t)inbuf, incount, convert_run, &conversion);
    if (!conversion.rc)
        *position += size;
    return conversion.rc;
}

int hly_mpi_unpack_external(const char *datarep, const void *inbuf, int64_t insize,
                            int64_t *position, void *outbuf, int64_t outcount,
                            struct hly_mpi_type *datatype)
{
    struct conversion conversion = {"MPI_Unpack_external", NULL, false, MPI_SUCCESS};
    int64_t size;
    int rc = size_of(conversion.function, datarep, outcount, datatype, &size);
    if (!rc)
        rc = hly_mpi_check_data(conversion.function, outbuf, outcount, datatype);
    if (!rc)
        rc = hly_mpi_pack_room(conversion.function, inbuf, insize, size, position);
    if (rc)
        return rc;
    /* It only reads from there. */
    conversion.external = (char *)(uintptr_t)inbuf + *position;
    hly_mpi_type_walk(datatype, (uintptr_t)outbuf, outcount, convert_run, &conversion);
    if (!conversion.rc)
        *position += size;
    return conversion.rc;
}
