/* SPDX-License-Identifier: Apache-2.0 */
/* scaled.c - an allreduce between two multiplications. */
#include <math.h>

#include "api/api.h"

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

static int post_scaled(const void *in, void *out, size_t count, halay_type_t type, halay_op_t op,
                       double prescale, double postscale, halay_comm_t *comm, enum hly_post how,
                       halay_request_t **request)
{
    struct hly_check c = {0};
    size_t bytes = hly_check_type(&c, count, 1, type);
    hly_check_op(&c, type, op);
    check_scale(&c, type, op, prescale, postscale);
    hly_check_buffers(&c, in, bytes, out, bytes);
    struct hly_call call = hly_call_of(HALAY_ALLREDUCE, in, out, count, type);
    call.prescale = prescale;
    call.postscale = postscale;
    call.desc.op = hly_desc_op(op);
    if (prescale != 1 || postscale != 1) {
        const double scales[2] = {prescale, postscale};
        call.desc.flags = HLY_CALL_SCALED;
        call.signature = hly_hash(0, scales, sizeof(scales));
    }
    if (prescale != 1) /* the input is scaled into `out`, and the plan begins there */
        call.desc.flags |= HLY_CALL_IN_PLACE;
    return hly_post(comm, &call, &c, how, request);
}

HLY_FORMS(allreduce_scaled,
          (const void *in, void *out, size_t count, halay_type_t type, halay_op_t op,
           double prescale, double postscale, ),
          NULL, post_scaled(in, out, count, type, op, prescale, postscale, comm, how, request))
