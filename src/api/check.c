/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check.c - checks of arguments. A wrong argument still takes its place in the communicator's
 * sequence, so that it ends the call on all ranks instead of leaving them waiting.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/api.h"

size_t hly_check_type(struct hly_check *c, size_t count, size_t nblocks, halay_type_t type)
{
    size_t bytes = halay_type_bytes(type);
    if (!bytes) {
        char text[64];
        snprintf(text, sizeof(text), "there is no type %d", (int)type);
        hly_wrong(c, text);
    } else if (count > (size_t)PTRDIFF_MAX / bytes / nblocks) {
        hly_wrong(c, "the count is larger than the address space (a negative number?)");
    }
    return c->code ? 0 : count * bytes;
}

void hly_check_op(struct hly_check *c, halay_type_t type, halay_op_t op)
{
    char text[96];
    c->op = op;
    if (op >= HALAY_OP_USER && op <= HALAY_OP_USER_LAST)
        return; /* hly_op_resolve() */
    if ((unsigned)op >= HALAY_OP_COUNT) {
        const size_t said = strlen(c->text); /* of the type */
        snprintf(c->text + said, sizeof(c->text) - said, "%sthere is no operation %d",
                 c->code ? "; and " : "", (int)op);
        c->code = c->code ? c->code : HALAY_EINVAL;
    } else if (!c->code && !halay_op_takes(op, type)) {
        snprintf(text, sizeof(text), "operation %s does not take type %s", halay_op_name(op),
                 halay_type_name(type));
        hly_wrong(c, text);
    }
}

void hly_check_root(struct hly_check *c, int root, const halay_comm_t *comm)
{
    char text[96];
    if (root >= 0 && root < comm->nranks)
        return;
    snprintf(text, sizeof(text), "root %d is not a rank of a communicator of %d", root,
             comm->nranks);
    hly_wrong(c, text);
}

void hly_check_buffers(struct hly_check *c, const void *in, size_t in_bytes, const void *out,
                       size_t out_bytes)
{
    if (c->code)
        return;
    if (in == HALAY_IN_PLACE && in_bytes > out_bytes)
        out_bytes = in_bytes; /* a rank may get nothing of what it gives there */
    c->bytes[0] = in_bytes;
    c->bytes[1] = out_bytes;
    if (out_bytes && !out)
        hly_wrong(c, "the output buffer is NULL");
    if (out_bytes && out == HALAY_IN_PLACE)
        hly_wrong(c, "HALAY_IN_PLACE is for the input (or, at a scatter's root, the output)");
    if (in == HALAY_IN_PLACE)
        return;
    if (in_bytes && !in)
        hly_wrong(c, "the input buffer is NULL");
    uintptr_t i = (uintptr_t)in, o = (uintptr_t)out;
    if (in_bytes && out_bytes && i < o + out_bytes && o < i + in_bytes)
        hly_wrong(c, "input and output overlap; pass HALAY_IN_PLACE as input instead");
}

void hly_check_gathering(struct hly_check *c, struct hly_call *call, size_t in_bytes,
                         size_t out_bytes, int root, const halay_comm_t *comm)
{
    hly_check_root(c, root, comm);
    call->desc.root = (uint32_t)root;
    if (root == comm->rank) {
        hly_check_buffers(c, call->in, in_bytes, call->out, out_bytes);
        call->local_in_place = call->in == HALAY_IN_PLACE;
    } else {
        if (call->in == HALAY_IN_PLACE)
            hly_wrong(c, "HALAY_IN_PLACE is for the root alone");
        hly_check_buffers(c, call->in, in_bytes, NULL, 0);
        call->out = NULL;
    }
    if (call->in == HALAY_IN_PLACE)
        call->in = NULL;
}

/* Elements from the start of the buffer to the end of its last block. */
static size_t extent_of(struct hly_check *c, const size_t counts[], const size_t displs[], size_t n,
                        halay_type_t type)
{
    size_t extent = 0, next = 0;
    for (size_t i = 0; i < n && !c->code; i++) {
        size_t at = displs ? displs[i] : next;
        hly_check_type(c, counts[i], 1, type);
        hly_check_type(c, at, 1, type);
        next += counts[i];
        if (at + counts[i] > extent)
            extent = at + counts[i];
    }
    hly_check_type(c, extent, 1, type);
    return c->code ? 0 : extent;
}

struct placed { /* a block */
    size_t at, end;
    uint32_t block;
};

static int by_place(const void *a, const void *b)
{
    const struct placed *x = a, *y = b;
    return x->at < y->at ? -1 : x->at > y->at;
}

/* Where blocks stand in order, as they mostly do, this is all. */
static bool are_ordered(const size_t counts[], const size_t displs[], size_t n)
{
    size_t end = 0;
    for (size_t i = 0; i < n; i++) {
        if (counts[i] && displs[i] < end)
            return false;
        end = counts[i] ? displs[i] + counts[i] : end;
    }
    return true;
}

/* No two blocks of an output share an element: which one it would hold is undefined. */
static void check_apart(struct hly_check *c, const size_t counts[], const size_t displs[], size_t n)
{
    char text[160];
    size_t used = 0;
    if (c->code || !displs || are_ordered(counts, displs, n))
        return;
    struct placed *all = malloc(n * sizeof(*all));
    if (!all) {
        hly_wrong(c, "there is no memory to compare the places of its blocks");
        c->code = HALAY_ENOMEM;
        return;
    }
    for (size_t i = 0; i < n; i++)
        if (counts[i])
            all[used++] = (struct placed){displs[i], displs[i] + counts[i], (uint32_t)i};
    qsort(all, used, sizeof(*all), by_place);
    for (size_t i = 1; i < used && !c->code; i++) {
        const struct placed *a = &all[i - 1], *b = &all[i];
        if (b->at >= a->end)
            continue;
        snprintf(text, sizeof(text),
                 "blocks %u and %u of the output overlap: block %u ends at element %zu, and block "
                 "%u begins at %zu",
                 a->block < b->block ? a->block : b->block,
                 a->block < b->block ? b->block : a->block, a->block, a->end, b->block, b->at);
        hly_wrong(c, text);
    }
    free(all);
}

size_t hly_check_counts(struct hly_check *c, struct hly_call *call, uint32_t buffer,
                        const size_t counts[], const size_t displs[], halay_type_t type,
                        const halay_comm_t *comm)
{
    size_t n = (size_t)comm->nranks, total = 0;
    call->desc.flags |= HLY_CALL_VECTOR;
    call->vector[buffer] = (struct hly_vector){counts, displs};
    hly_check_type(c, 0, 1, type);
    if (!counts) {
        hly_wrong(c, "counts is NULL");
        return 0;
    }
    for (size_t i = 0; i < n; i++)
        total += counts[i];
    call->desc.count = total;
    call->signature = hly_hash(0, counts, n * sizeof(*counts));
    const size_t extent = extent_of(c, counts, displs, n, type);
    if (buffer == HALAY_BUFFER_OUT)
        check_apart(c, counts, displs, n);
    return c->code ? 0 : extent * halay_type_bytes(type);
}
