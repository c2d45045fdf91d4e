/* SPDX-License-Identifier: Apache-2.0 */
/*
 * op.c - user-defined operations, which belong to a context.
 *
 * A number holds the context's epoch and a serial number that is not used again. So a freed
 * operation, or one of an earlier context, is never taken for another one. Whether it commutes, its
 * group and, unless it is HALAY_OP_LOCAL, its number are part of a call's signature: the ranks have
 * to agree on them.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "run/run.h"

#define OPS_MAX     128
#define SERIALS     65536
#define SERIAL_BITS 16
#define EPOCHS      16383 /* at most HALAY_OP_USER_LAST */

static_assert(HALAY_OP_USER == SERIALS && HALAY_OP_USER_LAST == EPOCHS * SERIALS + SERIALS - 1,
              "an epoch has its range of numbers");

static uint32_t epoch_of(const halay_context_t *context)
{
    return 1 + (uint32_t)(context->info.epoch % EPOCHS);
}

static struct hly_op **find(halay_context_t *context, halay_op_t number)
{
    struct hly_op **p = &context->user_ops;
    while (*p && (*p)->number != number)
        p = &(*p)->next;
    return p;
}

int halay_op_create(halay_context_t *context, halay_op_fn *fn, void *arg, size_t group,
                    int properties, halay_op_t *op)
{
    if (!fn || !op || group < 1 || group > HALAY_OP_GROUP_BYTES_MAX)
        return hly_context_reject(context, HALAY_EINVAL,
                                  "op_create: fn or op is NULL, or group is 0 or too large");
    if (properties & ~(HALAY_OP_COMMUTATIVE | HALAY_OP_LOCAL))
        return hly_context_reject(context, HALAY_EINVAL,
                                  "op_create: properties are HALAY_OP_COMMUTATIVE and "
                                  "HALAY_OP_LOCAL, joined by |, or 0");
    int rc = hly_context_enter(context);
    if (rc)
        return rc;
    struct hly_op *made = calloc(1, sizeof(*made));
    rc = HALAY_ENOMEM;
    if (made && context->nuser_ops < OPS_MAX && context->user_ops_made < SERIALS) {
        uint32_t number = epoch_of(context) << SERIAL_BITS | context->user_ops_made++;
        *made =
            (struct hly_op){context->user_ops, (halay_op_t)number, fn, arg, group, properties, 0};
        context->user_ops = made;
        context->nuser_ops++;
        *op = made->number;
        made = NULL;
        rc = HALAY_OK;
    } else {
        hly_comm_refuse(context->world, rc, "op_create: no memory, or too many operations");
    }
    hly_unlock(context);
    free(made);
    return rc;
}

/* Did this context give out the number? */
static bool is_of(const halay_context_t *context, halay_op_t number)
{
    return (uint32_t)number >> SERIAL_BITS == epoch_of(context) &&
           (uint32_t)number % SERIALS < context->user_ops_made;
}

int halay_op_free(halay_context_t *context, halay_op_t op)
{
    int rc = hly_context_enter(context);
    if (rc)
        return rc;
    struct hly_op **p = find(context, op), *gone = *p;
    rc = gone ? HALAY_OK : is_of(context, op) ? HALAY_ESTATE : HALAY_EINVAL;
    if (gone && gone->users) {
        char text[64];
        snprintf(text, sizeof(text), "op_free: %u requests use it; end them first", gone->users);
        rc = hly_comm_refuse(context->world, HALAY_ESTATE, text);
    } else if (gone) {
        *p = gone->next;
        context->nuser_ops--;
        free(gone);
    } else {
        hly_comm_refuse(context->world, rc,
                        rc == HALAY_ESTATE ? "op_free: the operation was freed before"
                                           : "op_free: the operation is none of this context");
    }
    hly_unlock(context);
    return rc;
}

void hly_ops_free(halay_context_t *context)
{
    while (context->user_ops) {
        struct hly_op *next = context->user_ops->next;
        free(context->user_ops);
        context->user_ops = next;
    }
}

static void check_group(struct hly_check *c, const struct hly_call *call, int nranks)
{
    size_t group = call->user->group, bytes = halay_type_bytes((halay_type_t)call->desc.type);
    bool whole = call->desc.count % group == 0;
    char text[128];
    for (int v = 0; v < 2; v++)
        for (int r = 0; call->vector[v].counts && r < nranks; r++)
            whole = whole && call->vector[v].counts[r] % group == 0;
    snprintf(text, sizeof(text), "the user's operation takes %zu elements together, %s", group,
             whole ? "more bytes than HALAY_OP_GROUP_BYTES_MAX"
                   : "and the count is not a multiple of that");
    if (!whole || group > HALAY_OP_GROUP_BYTES_MAX / bytes)
        hly_wrong(c, text);
}

void hly_op_resolve(const halay_comm_t *comm, struct hly_call *call, struct hly_check *c)
{
    halay_context_t *ctx = comm->context;
    char text[112];
    if (c->op < HALAY_OP_USER || c->code)
        return;
    call->desc.op = hly_desc_op(c->op);
    call->user = *find(ctx, c->op);
    if (!call->user) {
        bool freed = is_of(ctx, c->op);
        snprintf(text, sizeof(text), "the user's operation %#x %s", (unsigned)c->op,
                 freed ? "was freed on this rank" : "is none of this context");
        hly_wrong(c, text);
        if (freed)
            c->code = HALAY_ESTATE;
        return;
    }
    check_group(c, call, comm->nranks);
    if (!(call->user->properties & HALAY_OP_COMMUTATIVE))
        call->desc.flags |= HLY_CALL_ORDERED;
    uint64_t key[2] = {(uint64_t)c->op, call->user->group};
    if (call->user->properties & HALAY_OP_LOCAL) {
        call->desc.op = hly_desc_op(HALAY_OP_USER);
        key[0] = 0; /* no operation's number */
    }
    call->signature = hly_hash(call->signature, key, sizeof(key));
}
