/* SPDX-License-Identifier: Apache-2.0 */
/* comm_make.c - makes communicators. */
#include "fault/fault.h"
#include "run/run.h"
#include "wire/news.h"

int hly_comm_make(halay_context_t *context, uint64_t id, struct hly_ranks *ranks, int rank,
                  uint64_t deadline_ns, halay_comm_t **out)
{
    int rc = hly_comm_create(context, id, ranks, rank, deadline_ns, out);
    if (rc)
        return rc;
    struct hly_news *n = hly_news_leave(context, HLY_NEWS_MADE, NULL);
    if (!n) {
        hly_comm_remove(*out);
        hly_comm_give_back(*out);
        context->ncomms--;
        return HALAY_ENOMEM;
    }
    n->comm = *out;
    hly_fault_new_comm(*out);
    return HALAY_OK;
}
