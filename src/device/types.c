/* SPDX-License-Identifier: Apache-2.0 */
/* types.c - what is known of the element types and the operations: sizes, names, who takes whom. */
#include <halay/halay.h>

enum {
    INTEGERS = (1 << HALAY_INT8) | (1 << HALAY_UINT8) | (1 << HALAY_INT16) | (1 << HALAY_UINT16) |
               (1 << HALAY_INT32) | (1 << HALAY_UINT32) | (1 << HALAY_INT64) | (1 << HALAY_UINT64),
    BOOLS = 1 << HALAY_BOOL,
    REALS =
        (1 << HALAY_FLOAT16) | (1 << HALAY_BFLOAT16) | (1 << HALAY_FLOAT32) | (1 << HALAY_FLOAT64),
    COMPLEXES = (1 << HALAY_COMPLEX64) | (1 << HALAY_COMPLEX128),
    PAIRS = (1 << HALAY_FLOAT32_INT32) | (1 << HALAY_FLOAT64_INT64) | (1 << HALAY_INT32_INT32) |
            (1 << HALAY_INT64_INT64)
};

static const struct {
    const char *name;
    size_t bytes;
} types[HALAY_TYPE_COUNT] = {
    [HALAY_INT8] = {"int8", 1},
    [HALAY_UINT8] = {"uint8", 1},
    [HALAY_INT16] = {"int16", 2},
    [HALAY_UINT16] = {"uint16", 2},
    [HALAY_INT32] = {"int32", 4},
    [HALAY_UINT32] = {"uint32", 4},
    [HALAY_INT64] = {"int64", 8},
    [HALAY_UINT64] = {"uint64", 8},
    [HALAY_BOOL] = {"bool", 1},
    [HALAY_FLOAT16] = {"float16", 2},
    [HALAY_BFLOAT16] = {"bfloat16", 2},
    [HALAY_FLOAT32] = {"float32", 4},
    [HALAY_FLOAT64] = {"float64", 8},
    [HALAY_COMPLEX64] = {"complex64", 8},
    [HALAY_COMPLEX128] = {"complex128", 16},
    [HALAY_FLOAT32_INT32] = {"float32_int32", 8},
    [HALAY_FLOAT64_INT64] = {"float64_int64", 16},
    [HALAY_INT32_INT32] = {"int32_int32", 8},
    [HALAY_INT64_INT64] = {"int64_int64", 16},
};

static const struct {
    const char *name;
    unsigned takes; /* one bit for each type */
} ops[HALAY_OP_COUNT] = {
    [HALAY_SUM] = {"sum", INTEGERS | REALS | COMPLEXES},
    [HALAY_PROD] = {"prod", INTEGERS | REALS | COMPLEXES},
    [HALAY_MIN] = {"min", INTEGERS | REALS},
    [HALAY_MAX] = {"max", INTEGERS | REALS},
    [HALAY_AVERAGE] = {"average", INTEGERS | REALS | COMPLEXES},
    [HALAY_LAND] = {"land", INTEGERS | BOOLS},
    [HALAY_LOR] = {"lor", INTEGERS | BOOLS},
    [HALAY_LXOR] = {"lxor", INTEGERS | BOOLS},
    [HALAY_BAND] = {"band", INTEGERS | BOOLS},
    [HALAY_BOR] = {"bor", INTEGERS | BOOLS},
    [HALAY_BXOR] = {"bxor", INTEGERS | BOOLS},
    [HALAY_MINLOC] = {"minloc", PAIRS},
    [HALAY_MAXLOC] = {"maxloc", PAIRS},
};

static int type_exists(halay_type_t type)
{
    return (unsigned)type < HALAY_TYPE_COUNT;
}

static int op_exists(halay_op_t op)
{
    return (unsigned)op < HALAY_OP_COUNT;
}

static int op_is_user(halay_op_t op)
{
    return op >= HALAY_OP_USER && op <= HALAY_OP_USER_LAST;
}

size_t halay_type_bytes(halay_type_t type)
{
    return type_exists(type) ? types[type].bytes : 0;
}

const char *halay_type_name(halay_type_t type)
{
    return type_exists(type) ? types[type].name : "?";
}

const char *halay_op_name(halay_op_t op)
{
    return op_exists(op) ? ops[op].name : op_is_user(op) ? "user" : "?";
}

int halay_op_takes(halay_op_t op, halay_type_t type)
{
    if (!type_exists(type))
        return 0;
    return op_is_user(op) || (op_exists(op) && ((ops[op].takes >> type) & 1u));
}
