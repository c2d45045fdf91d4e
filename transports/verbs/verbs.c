/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verbs.c - the transport between nodes with RDMA, on queue pairs: the table and small answers.
 */
#include <stdio.h>

#include "verbs.h"

extern HALAY_API const halay_transport_ops_t halay_transport_v7_verbs;

static int verbs_query(const halay_transport_t *t, halay_transport_attr_t *attr)
{
    const hly_verbs_counters_t *n = &t->n;
    if (!attr || attr->size < sizeof(*attr))
        return HALAY_EINVAL;
    attr->capabilities = HALAY_CAN_PUT | HALAY_CAN_SLEEP | HALAY_CAN_COUNT |
                         (t->dmabuf || t->peermem ? HALAY_CAN_DEVICE : 0);
    attr->message_bytes = attr->piece_bytes = HLY_VERBS_MESSAGE;
    attr->eager_bytes = HLY_VERBS_EAGER;
    attr->queues = (halay_queues_t){.messages = n->messages,
                                    .puts = n->puts,
                                    .credits = n->credits,
                                    .requests = n->requests,
                                    .doorbells = n->doorbells,
                                    .signalled = n->signalled,
                                    .sent = n->sent,
                                    .received = n->received,
                                    .put_bytes = n->put_bytes,
                                    .copied_bytes = n->bounced_bytes,
                                    .registrations = n->registered,
                                    .reused = n->shared + n->kept,
                                    .connections = n->connections};
    snprintf(attr->over, sizeof(attr->over), "%.79s%s%s%s", t->over,
             t->dmabuf || t->peermem ? "; a GPU's memory by " : "",
             t->dmabuf && t->peermem ? "dma-buf, else "
             : t->dmabuf             ? "dma-buf"
                                     : "",
             t->peermem ? "nvidia_peermem" : "");
    return HALAY_OK;
}

static int verbs_recv(halay_transport_t *t, uint64_t tag, void *buffer, size_t bytes,
                      uint64_t cookie)
{
    (void)t, (void)tag, (void)buffer, (void)bytes, (void)cookie;
    return HALAY_EUNSUPPORTED;
}

static int verbs_withdraw(halay_transport_t *t, uint64_t tag)
{
    (void)t, (void)tag;
    return HALAY_EUNSUPPORTED;
}

static int verbs_alloc(halay_transport_t *t, size_t bytes, void **address, halay_mem_t **mem)
{
    (void)t, (void)bytes, (void)address, (void)mem;
    return HALAY_EUNSUPPORTED;
}

static int verbs_give_back(halay_transport_t *t)
{
    (void)t;
    return HALAY_EUNSUPPORTED;
}

/* What is under way on a way that is given up ends by its queue pair, or a little later here. */
static void verbs_disconnect(halay_transport_t *t, halay_ep_t *peer)
{
    hly_meet_disconnect(t, peer);
    if (peer && peer->base.refs == 0 && peer->put_first != peer->put_end)
        peer->base.look_ns = hly_meet_now_ns() + HLY_VERBS_GIVEN_UP_NS;
}

const halay_transport_ops_t halay_transport_v7_verbs = {
    .size = sizeof(halay_transport_ops_t),
    .name = "verbs",
    .open = hly_verbs_open,
    .close = hly_verbs_close,
    .query = verbs_query,
    .address = hly_meet_address,
    .connect = hly_meet_connect,
    .disconnect = verbs_disconnect,
    .sever = hly_meet_sever,
    .register_mem = hly_verbs_register,
    .alloc_mem = verbs_alloc,
    .deregister_mem = hly_verbs_deregister,
    .key = hly_verbs_key,
    .send = hly_verbs_send,
    .recv = verbs_recv,
    .withdraw = verbs_withdraw,
    .put = hly_verbs_put,
    .poll = hly_verbs_poll,
    .give_back = verbs_give_back,
    .arm = hly_verbs_arm,
};
