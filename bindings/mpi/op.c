/* SPDX-License-Identifier: Apache-2.0 */
/*
 * op.c - operations as objects; which of them takes which type; MPI_Reduce_local.
 *
 * The predefined operations take named types alone. Where Halay has the operation for the type it
 * does it; else one of op_user.c's slots, which calls a kernel or the user's function.
 */
#include <limits.h>
#include <string.h>

#include "op.h"

#define REPLACE 0x3c
#define NO_OP   0x3d

static const struct {
    uint32_t number;
    int halay;
    const char *name;
} predefined[] = {
    {0x21, HALAY_SUM, "MPI_SUM"},       {0x22, HALAY_MIN, "MPI_MIN"},
    {0x23, HALAY_MAX, "MPI_MAX"},       {0x24, HALAY_PROD, "MPI_PROD"},
    {0x28, HALAY_BAND, "MPI_BAND"},     {0x29, HALAY_BOR, "MPI_BOR"},
    {0x2a, HALAY_BXOR, "MPI_BXOR"},     {0x30, HALAY_LAND, "MPI_LAND"},
    {0x31, HALAY_LOR, "MPI_LOR"},       {0x32, HALAY_LXOR, "MPI_LXOR"},
    {0x38, HALAY_MINLOC, "MPI_MINLOC"}, {0x39, HALAY_MAXLOC, "MPI_MAXLOC"},
    {REPLACE, -1, "MPI_REPLACE"},       {NO_OP, -1, "MPI_NO_OP"},
};
#define PREDEFINED (sizeof(predefined) / sizeof(predefined[0]))

int hly_mpi_ops_open(void)
{
    for (size_t i = 0; i < PREDEFINED; i++) {
        struct hly_mpi_op *op = hly_mpi_predefined(HLY_MPI_OP, predefined[i].number);
        if (op)
            continue;
        op = hly_mpi_object_new(HLY_MPI_OP, sizeof(*op));
        if (!op)
            return hly_mpi_fail(MPI_ERR_NO_MEM, "MPI_Init: no memory for the operations");
        op->halay = predefined[i].halay;
        op->predefined = true;
        op->commutative = op->halay >= 0;
        hly_mpi_predefine(HLY_MPI_OP, predefined[i].number, op);
    }
    return MPI_SUCCESS;
}

const char *hly_mpi_op_name(const struct hly_mpi_op *op)
{
    for (size_t i = 0; i < PREDEFINED; i++) {
        if (op->predefined && predefined[i].number == op->head.handle)
            return predefined[i].name;
    }
    return "the operation";
}

bool hly_mpi_op_native(const struct hly_mpi_op *op, int place, halay_op_t *found, halay_type_t *as,
                       int64_t *each)
{
    const struct hly_mpi_named *named = &hly_mpi_named[place];
    *found = (halay_op_t)op->halay;
    *each = 1;
    if (op->halay >= 0 && named->halay >= 0) {
        *as = (halay_type_t)named->halay;
    } else if (named->format == HLY_MPI_I128 && op->halay >= HALAY_BAND &&
               op->halay <= HALAY_BXOR) {
        *as = HALAY_UINT64;
        *each = 2;
    } else if (named->format == HLY_MPI_C16 && op->halay == HALAY_SUM) {
        *as = HALAY_FLOAT16;
        *each = 2;
    } else {
        return false;
    }
    return halay_op_takes(*found, *as) == 1;
}

/* The kernel of a predefined operation and a type; NULL: it does not take the type, and has said
 * so. */
static hly_mpi_kernel *kernel_of(const char *function, const struct hly_mpi_op *op,
                                 const struct hly_mpi_type *type)
{
    int place = hly_mpi_type_named(type);
    hly_mpi_kernel *kernel = place >= 0 ? hly_mpi_op_kernel(op->head.handle, place) : NULL;
    if (kernel)
        return kernel;
    if (op->halay < 0)
        hly_mpi_fail(MPI_ERR_OP, "%s: %s is only for one-sided communication", function,
                     hly_mpi_op_name(op));
    else if (place < 0)
        hly_mpi_fail(MPI_ERR_OP,
                     "%s: %s takes predefined datatypes: for a derived one use MPI_Op_create",
                     function, hly_mpi_op_name(op));
    else
        hly_mpi_fail(MPI_ERR_OP, "%s: %s does not take %s", function, hly_mpi_op_name(op),
                     hly_mpi_named[place].name);
    return NULL;
}

int hly_mpi_op_find(const char *function, struct hly_mpi_op *op, struct hly_mpi_type *type,
                    halay_op_t *found, halay_type_t *as, int64_t *each)
{
    hly_mpi_kernel *kernel;
    *as = HALAY_UINT8;
    *each = type->size;
    if (!op->predefined && !type->size) { /* nothing to do, and no function to call */
        *found = HALAY_MAX;
        return MPI_SUCCESS;
    }
    if (!op->predefined && type->size > HALAY_OP_GROUP_BYTES_MAX)
        return hly_mpi_fail(MPI_ERR_OP,
                            "%s: an element has %lld bytes: a user's operation takes at most %d",
                            function, (long long)type->size, HALAY_OP_GROUP_BYTES_MAX);
    if (!op->predefined)
        return hly_mpi_op_slot(function, op, type, found);
    kernel = kernel_of(function, op, type);
    if (!kernel)
        return MPI_ERR_OP;
    if (hly_mpi_op_native(op, hly_mpi_type_named(type), found, as, each))
        return MPI_SUCCESS;
    *as = HALAY_UINT8;
    *each = type->size;
    if (hly_mpi_op_slot_of_kernel(kernel, found))
        return hly_mpi_fail(MPI_ERR_INTERN, "%s: there is no operation for %s", function,
                            hly_mpi_op_name(op));
    return MPI_SUCCESS;
}

int hly_mpi_op_find_alone(const char *function, const struct hly_mpi_op *op,
                          const struct hly_mpi_type *type, halay_op_t *found, halay_type_t *as,
                          int64_t *each)
{
    if (op->predefined && !kernel_of(function, op, type))
        return MPI_ERR_OP;
    *found = HALAY_MAX; /* of bytes, which stay as they are */
    *as = HALAY_UINT8;
    *each = type->size;
    return MPI_SUCCESS;
}

/* ---------------------------------------------------------------- calls of MPI */

static int create(const char *function, hly_mpi_fn *fn, int commute, bool large,
                  struct hly_mpi_op **op)
{
    struct hly_mpi_op *made;
    if (!fn || !op)
        return hly_mpi_fail(MPI_ERR_ARG, "%s: the function or the address of the operation is null",
                            function);
    made = hly_mpi_object_new(HLY_MPI_OP, sizeof(*made));
    if (!made)
        return hly_mpi_fail(MPI_ERR_NO_MEM, "%s: no memory for an operation", function);
    made->halay = -1;
    made->commutative = commute != 0;
    made->large = large;
    made->fn = fn;
    *op = made;
    return MPI_SUCCESS;
}

int hly_mpi_op_create(hly_mpi_fn *user_fn, int commute, struct hly_mpi_op **op)
{
    return create("MPI_Op_create", user_fn, commute, false, op);
}

int hly_mpi_op_create_c(hly_mpi_fn *user_fn, int commute, struct hly_mpi_op **op)
{
    return create("MPI_Op_create_c", user_fn, commute, true, op);
}

int hly_mpi_op_free(struct hly_mpi_op **op)
{
    if (!op || !*op)
        return hly_mpi_fail(MPI_ERR_OP, "MPI_Op_free: the operation is MPI_OP_NULL");
    if ((*op)->predefined)
        return hly_mpi_fail(MPI_ERR_OP, "MPI_Op_free: %s is predefined and cannot be freed",
                            hly_mpi_op_name(*op));
    hly_mpi_object_release(*op);
    *op = NULL;
    return MPI_SUCCESS;
}

int hly_mpi_op_commutative(struct hly_mpi_op *op, int *commute)
{
    if (!op || !commute)
        return hly_mpi_fail(op ? MPI_ERR_ARG : MPI_ERR_OP,
                            "MPI_Op_commutative: the operation or the address of commute is null");
    *commute = op->commutative;
    return MPI_SUCCESS;
}

void hly_mpi_op_call(const struct hly_mpi_op *op, const void *in, void *inout, int64_t count,
                     struct hly_mpi_type *type)
{
    const int64_t most = op->large ? INT64_MAX : INT_MAX;
    uintptr_t from = (uintptr_t)in, to = (uintptr_t)inout;
    while (count > 0) {
        int64_t n = count < most ? count : most;
        op->head.face->call_op(op->fn, op->large, (const void *)from, (void *)to, n, type);
        count -= n;
        from += (uintptr_t)n * (uintptr_t)type->extent;
        to += (uintptr_t)n * (uintptr_t)type->extent;
    }
}

/* Elements of a pair type with gaps, some at a time in their packed form. */
static void reduce_packed(hly_mpi_kernel *kernel, const void *in, void *inout, int64_t count,
                          const struct hly_mpi_type *type)
{
    enum { BYTES = 4096 };
    char left[BYTES], right[BYTES];
    int64_t size = type->size, total = count * size, step = BYTES / size * size;
    for (int64_t at = 0; at < total; at += step) {
        int64_t bytes = total - at < step ? total - at : step;
        hly_mpi_pack_range(in, count, type, at, bytes, left);
        hly_mpi_pack_range(inout, count, type, at, bytes, right);
        kernel(right, left, right, (size_t)(bytes / size));
        hly_mpi_unpack_range(inout, count, type, at, bytes, right);
    }
}

int hly_mpi_reduce_local(const void *inbuf, void *inoutbuf, int64_t count,
                         struct hly_mpi_type *datatype, struct hly_mpi_op *op)
{
    static const char function[] = "MPI_Reduce_local";
    hly_mpi_kernel *kernel;
    int rc = hly_mpi_check_data(function, inoutbuf, count, datatype);
    if (!rc && !op)
        rc = hly_mpi_fail(MPI_ERR_OP, "%s: the operation is MPI_OP_NULL", function);
    if (!rc && (inbuf == MPI_IN_PLACE || inoutbuf == MPI_IN_PLACE))
        rc = hly_mpi_fail(MPI_ERR_BUFFER, "%s: MPI_IN_PLACE is no buffer here", function);
    if (!rc && inbuf == inoutbuf && count > 0 && datatype->size)
        rc = hly_mpi_fail(MPI_ERR_BUFFER, "%s: inbuf is inoutbuf: they must not overlap", function);
    if (!rc)
        rc = hly_mpi_check_data(function, inbuf, count, datatype);
    if (rc)
        return rc;
    if (!op->predefined) {
        hly_mpi_op_call(op, inbuf, inoutbuf, count, datatype);
        return MPI_SUCCESS;
    }
    kernel = kernel_of(function, op, datatype);
    if (!kernel)
        return MPI_ERR_OP;
    if (datatype->dense)
        kernel(inoutbuf, inbuf, inoutbuf, (size_t)count);
    else
        reduce_packed(kernel, inbuf, inoutbuf, count, datatype);
    return MPI_SUCCESS;
}
