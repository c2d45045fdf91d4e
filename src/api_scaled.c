/* SPDX-License-Identifier: Apache-2.0 */
/* api_scaled.c - an allreduce between two multiplications. */
#include <math.h>

#include "api.h"

static void check_scale(struct hly_check *c, halay_type_t type, halay_op_t op, double prescale,
                        double postscale)
{
    bool scales = op == HALAY_SUM || op == HALAY_PROD || op == HALAY_MIN || op == HALAY_MAX ||
                  op == HALAY_AVERAGE;
    if (c->code || (prescale == 1 && postscale == 1))
        return;
    if (!isfinite(prescale) || !isfinite(postscale))
        hly_wrong(c, "prescale and postscale must be finite");
    else if (!scales || halay_scale(NULL, NULL, 0, type, 1))
        hly_wrong(c, "this operation or type is not scaled: prescale and postscale must be 1");
}

int halay_iallreduce_scaled(const void *in, void *out, size_t count, halay_type_t type,
                            halay_op_t op, double prescale, double postscale, halay_comm_t *comm,
                            halay_request_t **request)
{
    struct hly_check c = {0};
    if (!hly_usable(comm, request))
        return HALAY_EINVAL;
    hly_check_type(&c, count, 1, type);
    hly_check_op(&c, type, op);
    check_scale(&c, type, op, prescale, postscale);
    size_t bytes = c.code ? 0 : count * halay_type_bytes(type);
    hly_check_buffers(&c, in, bytes, out, bytes);
    struct hly_call call = {.in = in, .out = out, .prescale = prescale, .postscale = postscale};
    call.brief.count = count;
    call.brief.type = hly_brief_byte(type);
    call.brief.op = hly_brief_byte(op);
    if (prescale != 1 || postscale != 1) {
        const double scales[2] = {prescale, postscale};
        call.brief.flags = HLY_BRIEF_SCALED;
        call.signature = hly_hash(0, scales, sizeof(scales));
    }
    if (prescale != 1) /* the input is scaled into `out`, and the plan begins there */
        call.brief.flags |= HLY_BRIEF_IN_PLACE;
    return hly_post(comm, HALAY_ALLREDUCE, &call, &c, request);
}

int halay_allreduce_scaled(const void *in, void *out, size_t count, halay_type_t type,
                           halay_op_t op, double prescale, double postscale, halay_comm_t *comm)
{
    return halay_iallreduce_scaled(in, out, count, type, op, prescale, postscale, comm,
                                   hly_blocking(comm));
}
