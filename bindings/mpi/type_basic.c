/* SPDX-License-Identifier: Apache-2.0 */
/*
 * type_basic.c - MPI's named types: their numbers, sizes and names; and the calls that find one.
 *
 * Sizes in "external32": MPI-5.0, table 14.2. Fortran's types are those of a compiler whose
 * INTEGER, LOGICAL and REAL have 4 bytes.
 */
#include <pthread.h>
#include <stdalign.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

#include "type.h"

#define SIGNED(type)                                                                               \
    (sizeof(type) == 8   ? HLY_MPI_I64                                                             \
     : sizeof(type) == 4 ? HLY_MPI_I32                                                             \
     : sizeof(type) == 2 ? HLY_MPI_I16                                                             \
                         : HLY_MPI_I8)
#define UNSIGNED(type) (SIGNED(type) + 1)
#define HALAY_SIGNED(type)                                                                         \
    (sizeof(type) == 8   ? HALAY_INT64                                                             \
     : sizeof(type) == 4 ? HALAY_INT32                                                             \
     : sizeof(type) == 2 ? HALAY_INT16                                                             \
                         : HALAY_INT8)

#define C_INT(number, name, type, external)                                                        \
    {                                                                                              \
        number, HLY_MPI_C_INTEGER, SIGNED(type), sizeof(type), alignof(type), HALAY_SIGNED(type),  \
            external, 0, 0, name                                                                   \
    }
#define C_UINT(number, name, type, external)                                                       \
    {                                                                                              \
        number, HLY_MPI_C_INTEGER, UNSIGNED(type), sizeof(type), alignof(type),                    \
            HALAY_SIGNED(type) + 1, external, 0, 0, name                                           \
    }
#define MULTI(number, name)                                                                        \
    {                                                                                              \
        number, HLY_MPI_MULTI, HLY_MPI_I64, 8, 8, HALAY_INT64, 8, 0, 0, name                       \
    }
#define NAMED(number, name, of_class, format, size, halay)                                         \
    {                                                                                              \
        number, HLY_MPI_##of_class, HLY_MPI_##format, size, size, halay, size, 0, 0, name          \
    }
#define LONG_TYPE(number, name, of_class, format, type, external)                                  \
    {                                                                                              \
        number, HLY_MPI_##of_class, HLY_MPI_##format, sizeof(type), alignof(type), -1, external,   \
            0, 0, name                                                                             \
    }
#define COMPLEX_TYPE(number, name, format, size, halay)                                            \
    {                                                                                              \
        number, HLY_MPI_COMPLEX_NUMBER, HLY_MPI_##format, size, size / 2, halay, size, 0, 0, name  \
    }
#define PAIR(number, name, value, index, halay)                                                    \
    {                                                                                              \
        number, HLY_MPI_PAIR, 0, 0, 0, halay, 0, value, index, name                                \
    }

const struct hly_mpi_named hly_mpi_named[] = {
    MULTI(0x201, "MPI_AINT"),
    MULTI(0x202, "MPI_COUNT"),
    MULTI(0x203, "MPI_OFFSET"),
    NAMED(0x207, "MPI_PACKED", BYTES, U8, 1, HALAY_UINT8),
    C_INT(0x208, "MPI_SHORT", short, 2),
    C_INT(0x209, "MPI_INT", int, 4),
    C_INT(0x20a, "MPI_LONG", long, 4),
    C_INT(0x20b, "MPI_LONG_LONG_INT", long long, 8),
    C_UINT(0x20c, "MPI_UNSIGNED_SHORT", short, 2),
    C_UINT(0x20d, "MPI_UNSIGNED", int, 4),
    C_UINT(0x20e, "MPI_UNSIGNED_LONG", long, 4),
    C_UINT(0x20f, "MPI_UNSIGNED_LONG_LONG", long long, 8),
    NAMED(0x210, "MPI_FLOAT", FLOATING, F32, 4, HALAY_FLOAT32),
    COMPLEX_TYPE(0x212, "MPI_C_COMPLEX", C32, 8, HALAY_COMPLEX64),
    COMPLEX_TYPE(0x213, "MPI_CXX_FLOAT_COMPLEX", C32, 8, HALAY_COMPLEX64),
    NAMED(0x214, "MPI_DOUBLE", FLOATING, F64, 8, HALAY_FLOAT64),
    COMPLEX_TYPE(0x216, "MPI_C_DOUBLE_COMPLEX", C64, 16, HALAY_COMPLEX128),
    COMPLEX_TYPE(0x217, "MPI_CXX_DOUBLE_COMPLEX", C64, 16, HALAY_COMPLEX128),
    NAMED(0x218, "MPI_LOGICAL", LOGIC, I32, 4, HALAY_INT32),
    NAMED(0x219, "MPI_INTEGER", FORTRAN_INTEGER, I32, 4, HALAY_INT32),
    NAMED(0x21a, "MPI_REAL", FLOATING, F32, 4, HALAY_FLOAT32),
    COMPLEX_TYPE(0x21b, "MPI_COMPLEX", C32, 8, HALAY_COMPLEX64),
    NAMED(0x21c, "MPI_DOUBLE_PRECISION", FLOATING, F64, 8, HALAY_FLOAT64),
    COMPLEX_TYPE(0x21d, "MPI_DOUBLE_COMPLEX", C64, 16, HALAY_COMPLEX128),
    NAMED(0x21e, "MPI_CHARACTER", C_INTEGER, U8, 1, HALAY_UINT8),
    LONG_TYPE(0x220, "MPI_LONG_DOUBLE", FLOATING, FLONG, long double, 16),
    LONG_TYPE(0x224, "MPI_C_LONG_DOUBLE_COMPLEX", COMPLEX_NUMBER, CLONG, _Complex long double, 32),
    LONG_TYPE(0x225, "MPI_CXX_LONG_DOUBLE_COMPLEX", COMPLEX_NUMBER, CLONG, _Complex long double,
              32),
    PAIR(0x228, "MPI_FLOAT_INT", 0x210, 0x209, HALAY_FLOAT32_INT32),
    PAIR(0x229, "MPI_DOUBLE_INT", 0x214, 0x209, -1),
    PAIR(0x22a, "MPI_LONG_INT", 0x20a, 0x209, sizeof(long) == 4 ? HALAY_INT32_INT32 : -1),
    PAIR(0x22b, "MPI_2INT", 0x209, 0x209, HALAY_INT32_INT32),
    PAIR(0x22c, "MPI_SHORT_INT", 0x208, 0x209, -1),
    PAIR(0x22d, "MPI_LONG_DOUBLE_INT", 0x220, 0x209, -1),
    PAIR(0x230, "MPI_2REAL", 0x21a, 0x21a, -1),
    PAIR(0x231, "MPI_2DOUBLE_PRECISION", 0x21c, 0x21c, -1),
    PAIR(0x232, "MPI_2INTEGER", 0x219, 0x219, HALAY_INT32_INT32),
    NAMED(0x238, "MPI_C_BOOL", LOGIC, U8, 1, HALAY_BOOL),
    NAMED(0x239, "MPI_CXX_BOOL", LOGIC, U8, 1, HALAY_BOOL),
    {0x23c, HLY_MPI_TEXT, SIGNED(wchar_t), sizeof(wchar_t), alignof(wchar_t), HALAY_SIGNED(wchar_t),
     2, 0, 0, "MPI_WCHAR"},
    NAMED(0x240, "MPI_INT8_T", C_INTEGER, I8, 1, HALAY_INT8),
    NAMED(0x241, "MPI_UINT8_T", C_INTEGER, U8, 1, HALAY_UINT8),
    C_INT(0x243, "MPI_CHAR", char, 1),
    C_INT(0x244, "MPI_SIGNED_CHAR", char, 1),
    C_UINT(0x245, "MPI_UNSIGNED_CHAR", char, 1),
    NAMED(0x247, "MPI_BYTE", BYTES, U8, 1, HALAY_UINT8),
    NAMED(0x248, "MPI_INT16_T", C_INTEGER, I16, 2, HALAY_INT16),
    NAMED(0x249, "MPI_UINT16_T", C_INTEGER, U16, 2, HALAY_UINT16),
    NAMED(0x250, "MPI_INT32_T", C_INTEGER, I32, 4, HALAY_INT32),
    NAMED(0x251, "MPI_UINT32_T", C_INTEGER, U32, 4, HALAY_UINT32),
    NAMED(0x258, "MPI_INT64_T", C_INTEGER, I64, 8, HALAY_INT64),
    NAMED(0x259, "MPI_UINT64_T", C_INTEGER, U64, 8, HALAY_UINT64),
    NAMED(0x2c0, "MPI_LOGICAL1", LOGIC, I8, 1, HALAY_INT8),
    NAMED(0x2c1, "MPI_INTEGER1", FORTRAN_INTEGER, I8, 1, HALAY_INT8),
    NAMED(0x2c8, "MPI_LOGICAL2", LOGIC, I16, 2, HALAY_INT16),
    NAMED(0x2c9, "MPI_INTEGER2", FORTRAN_INTEGER, I16, 2, HALAY_INT16),
    NAMED(0x2ca, "MPI_REAL2", FLOATING, F16, 2, HALAY_FLOAT16),
    NAMED(HLY_MPI_FLOAT16, "MPIX_C_FLOAT16", FLOATING, F16, 2, HALAY_FLOAT16),
    NAMED(0x2d0, "MPI_LOGICAL4", LOGIC, I32, 4, HALAY_INT32),
    NAMED(0x2d1, "MPI_INTEGER4", FORTRAN_INTEGER, I32, 4, HALAY_INT32),
    NAMED(0x2d2, "MPI_REAL4", FLOATING, F32, 4, HALAY_FLOAT32),
    COMPLEX_TYPE(0x2d3, "MPI_COMPLEX4", C16, 4, -1),
    NAMED(0x2d8, "MPI_LOGICAL8", LOGIC, I64, 8, HALAY_INT64),
    NAMED(0x2d9, "MPI_INTEGER8", FORTRAN_INTEGER, I64, 8, HALAY_INT64),
    NAMED(0x2da, "MPI_REAL8", FLOATING, F64, 8, HALAY_FLOAT64),
    COMPLEX_TYPE(0x2db, "MPI_COMPLEX8", C32, 8, HALAY_COMPLEX64),
    NAMED(0x2e0, "MPI_LOGICAL16", LOGIC, I128, 16, -1),
    NAMED(0x2e1, "MPI_INTEGER16", FORTRAN_INTEGER, I128, 16, -1),
    NAMED(0x2e2, "MPI_REAL16", FLOATING, F128, 16, -1),
    COMPLEX_TYPE(0x2e3, "MPI_COMPLEX16", C64, 16, HALAY_COMPLEX128),
    COMPLEX_TYPE(0x2eb, "MPI_COMPLEX32", C128, 32, -1),
};
const int hly_mpi_named_count = sizeof(hly_mpi_named) / sizeof(hly_mpi_named[0]);

int hly_mpi_type_named(const struct hly_mpi_type *type)
{
    return type->predefined ? type->made->shape.unit : -1;
}

/* A number of C, by its number in the standard's ABI; not MPI_CHAR and MPI_BYTE. */
static bool is_number(uint32_t n)
{
    return n - 0x208u < 0x10u || (n - 0x240u < 0x20u && n != 0x243u && n != 0x247u);
}

int hly_mpi_types_open(void)
{
    static pthread_mutex_t once = PTHREAD_MUTEX_INITIALIZER;
    int rc = MPI_SUCCESS;
    pthread_mutex_lock(&once);
    if (!hly_mpi_predefined(HLY_MPI_TYPE, hly_mpi_named[hly_mpi_named_count - 1].number)) {
        hly_mpi_object_ends(HLY_MPI_TYPE, hly_mpi_type_end);
        for (int i = 0; i < hly_mpi_named_count && !rc; i++) {
            struct hly_mpi_shape shape;
            struct hly_mpi_type *type = NULL;
            rc = hly_mpi_shape_named(i, &shape);
            if (!rc)
                type = hly_mpi_type_new(MPI_COMBINER_NAMED, &shape);
            if (!type) {
                rc = hly_mpi_fail(MPI_ERR_NO_MEM, "MPI_Init: no memory for the named datatypes");
                break;
            }
            type->predefined = type->committed = true;
            if (is_number(hly_mpi_named[i].number) && type->halay >= 0)
                type->number = 1 + type->halay;
            snprintf(type->name, sizeof(type->name), "%s", hly_mpi_named[i].name);
            hly_mpi_predefine(HLY_MPI_TYPE, hly_mpi_named[i].number, type);
        }
    }
    pthread_mutex_unlock(&once);
    return rc;
}

int hly_mpi_type_get_value_index(struct hly_mpi_type *value_type, struct hly_mpi_type *index_type,
                                 struct hly_mpi_type **pair_type)
{
    if (!value_type || !index_type || !pair_type)
        return hly_mpi_fail(value_type && index_type ? MPI_ERR_ARG : MPI_ERR_TYPE,
                            "MPI_Type_get_value_index: a datatype or its address is null");
    *pair_type = NULL;
    for (int i = 0; i < hly_mpi_named_count; i++) {
        const struct hly_mpi_named *pair = &hly_mpi_named[i];
        if (pair->value && hly_mpi_predefined(HLY_MPI_TYPE, pair->value) == value_type &&
            hly_mpi_predefined(HLY_MPI_TYPE, pair->index) == index_type)
            *pair_type = hly_mpi_predefined(HLY_MPI_TYPE, pair->number);
    }
    return MPI_SUCCESS;
}

int hly_mpi_type_match_size(int typeclass, int size, struct hly_mpi_type **datatype)
{
    static const uint32_t integers[] = {0x2c1, 0x2c9, 0x2d1, 0x2d9, 0x2e1},
                          reals[] = {0x2ca, 0x2d2, 0x2da, 0x2e2},
                          complexes[] = {0x2d3, 0x2db, 0x2e3, 0x2eb};
    const uint32_t *of = typeclass == MPI_TYPECLASS_INTEGER ? integers
                         : typeclass == MPI_TYPECLASS_REAL  ? reals
                                                            : complexes;
    int n = of == integers ? 5 : 4;
    if (typeclass != MPI_TYPECLASS_INTEGER && typeclass != MPI_TYPECLASS_REAL &&
        typeclass != MPI_TYPECLASS_COMPLEX)
        return hly_mpi_fail(MPI_ERR_ARG, "MPI_Type_match_size: there is no type class %d",
                            typeclass);
    for (int i = 0; i < n; i++) {
        struct hly_mpi_type *type = hly_mpi_predefined(HLY_MPI_TYPE, of[i]);
        if (type && type->size == size) {
            *datatype = type;
            return MPI_SUCCESS;
        }
    }
    return hly_mpi_fail(MPI_ERR_ARG, "MPI_Type_match_size: no type of the class has %d bytes",
                        size);
}

/* The type like the named one, with these arguments: made once, and never freed. */
static int f90_type(const char *function, int combiner, uint32_t number, int p, int r,
                    struct hly_mpi_type **newtype)
{
    static pthread_mutex_t list = PTHREAD_MUTEX_INITIALIZER;
    struct hly_mpi_type *named = hly_mpi_predefined(HLY_MPI_TYPE, number), *type;
    struct hly_mpi_shape shape;
    bool integer = combiner == MPI_COMBINER_F90_INTEGER;
    int rc = MPI_SUCCESS;
    pthread_mutex_lock(&list);
    for (type = named->made->variants; type; type = type->made->next) {
        const int64_t *is = type->made->numbers;
        if (type->made->combiner == combiner && (integer ? is[0] == r : is[0] == p && is[1] == r))
            break;
    }
    if (!type) {
        hly_mpi_shape_copy(&named->made->shape, &shape);
        type = hly_mpi_type_new(combiner, &shape);
        if (type && hly_mpi_type_run(type, HLY_MPI_INTS, integer ? 1 : 2)) {
            hly_mpi_object_release(type);
            type = NULL;
        }
        if (type) {
            type->made->numbers[0] = integer ? r : p;
            if (!integer)
                type->made->numbers[1] = r;
            type->predefined = type->committed = true;
            type->made->next = named->made->variants;
            named->made->variants = type;
        } else {
            rc = hly_mpi_fail(MPI_ERR_NO_MEM, "%s: no memory for a datatype", function);
        }
    }
    pthread_mutex_unlock(&list);
    if (!rc)
        *newtype = type;
    return rc;
}

/* Which of REAL4, REAL8 and REAL16 has p decimal digits and an exponent of r: 0, 1, 2; -1: none. */
static int real_of(int p, int r)
{
    static const int digits[] = {6, 15, 33}, exponents[] = {37, 307, 4931};
    if (p == MPI_UNDEFINED && r == MPI_UNDEFINED)
        return -1;
    for (int i = 0; i < 3; i++) {
        if ((p == MPI_UNDEFINED || (p >= 0 && p <= digits[i])) &&
            (r == MPI_UNDEFINED || (r >= 0 && r <= exponents[i])))
            return i;
    }
    return -1;
}

int hly_mpi_type_create_f90_real(int p, int r, struct hly_mpi_type **newtype)
{
    static const uint32_t numbers[] = {0x21a, 0x21c, 0x2e2};
    int which = real_of(p, r);
    if (which < 0)
        return hly_mpi_fail(
            MPI_ERR_ARG, "MPI_Type_create_f90_real: no REAL has precision %d and range %d", p, r);
    return f90_type("MPI_Type_create_f90_real", MPI_COMBINER_F90_REAL, numbers[which], p, r,
                    newtype);
}

int hly_mpi_type_create_f90_complex(int p, int r, struct hly_mpi_type **newtype)
{
    static const uint32_t numbers[] = {0x21b, 0x21d, 0x2eb};
    int which = real_of(p, r);
    if (which < 0)
        return hly_mpi_fail(MPI_ERR_ARG,
                            "MPI_Type_create_f90_complex: no COMPLEX has precision %d and range %d",
                            p, r);
    return f90_type("MPI_Type_create_f90_complex", MPI_COMBINER_F90_COMPLEX, numbers[which], p, r,
                    newtype);
}

int hly_mpi_type_create_f90_integer(int r, struct hly_mpi_type **newtype)
{
    static const int digits[] = {2, 4, 9, 18, 38};
    static const uint32_t numbers[] = {0x2c1, 0x2c9, 0x219, 0x2d9, 0x2e1};
    int which = 0;
    while (which < 5 && r > digits[which])
        which++;
    if (which == 5 || r < 0)
        return hly_mpi_fail(MPI_ERR_ARG, "MPI_Type_create_f90_integer: no INTEGER has range %d", r);
    return f90_type("MPI_Type_create_f90_integer", MPI_COMBINER_F90_INTEGER, numbers[which], 0, r,
                    newtype);
}
