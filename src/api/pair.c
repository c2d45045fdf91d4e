/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pair.c - send and receive: a broadcast on a hidden communicator of the two ranks, sender first
 * (docs/decisions/plans.md#0014). There is one for each direction (run/pair.h).
 */
#include <stdio.h>

#include "api/api.h"
#include "fault/fault.h"
#include "run/pair.h"

static int post(void *buffer, size_t count, halay_type_t type, bool sending, int peer,
                halay_comm_t *comm, enum hly_post how, halay_request_t **request)
{
    struct hly_check c = {0};
    halay_comm_t *pair = NULL;
    halay_context_t *ctx = comm->context;
    if (hly_forked(ctx))
        return HALAY_EFORKED;
    if (peer < 0 || peer >= comm->nranks || peer == comm->rank) {
        char text[96];
        snprintf(text, sizeof(text), "%s rank %d: it has to be another rank of %d, and this is %d",
                 sending ? "send to" : "receive from", peer, comm->nranks, comm->rank);
        return hly_comm_reject(comm, HALAY_EINVAL, text);
    }
    hly_lock(ctx);
    int from = sending ? comm->rank : peer, to = sending ? peer : comm->rank;
    int rc = hly_pair_get(comm, HLY_PAIR_CALLS, from, to, &pair);
    if (rc)
        hly_comm_refuse(comm, rc, "no memory for messages between these two ranks");
    hly_unlock(ctx);
    if (rc)
        return rc;
    struct hly_call call = hly_call_of(HALAY_BROADCAST, NULL, buffer, count, type);
    call.desc.flags = HLY_CALL_PAIR;
    hly_check_buffers(&c, HALAY_IN_PLACE, 0, buffer, hly_check_type(&c, count, 1, type));
    hly_check_freed(&c, comm);
    return hly_post(pair, &call, &c, how, request);
}

HLY_FORMS(send, (const void *buffer, size_t count, halay_type_t type, int peer, ), NULL,
          post((void *)(uintptr_t)buffer, count, type, true, peer, comm, how, request))
HLY_FORMS(recv, (void *buffer, size_t count, halay_type_t type, int peer, ), NULL,
          post(buffer, count, type, false, peer, comm, how, request))
