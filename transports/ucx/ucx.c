/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ucx.c - the transport between nodes, over UCX: the table and the fast path.
 *
 * An untagged message is a tagged message of UCX if it is short (short.c), else an active message:
 * the token that the receiver gave to the sender, header, payload. A message for a landing buffer
 * is a tagged message with the landing's tag.
 * All callbacks of UCX run inside poll, arm and close, and only write down what has happened.
 *
 * Invariant: events wait (t->first < t->last) only while the arena holds their data, and the arena
 * starts anew only when none waits: so what a poll gave away stays until the next.
 */
#include "ucx.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern HALAY_API const halay_transport_ops_t halay_transport_v7_ucx;

/* ------------------------------------------------------------------ small answers */

/* Why a GPU's memory is staged. */
static const char *gpu_refusal(const halay_transport_t *t)
{
    ucp_context_attr_t attr = {.field_mask = UCP_ATTR_FIELD_MEMORY_TYPES};
    if (ucp_context_query(t->context, &attr) != UCS_OK ||
        !(attr.memory_types & UCS_BIT(UCS_MEMORY_TYPE_CUDA)))
        return "this UCX has no support for CUDA here (ucx_info -d)";
    return "this UCX could, but Halay does not use that; verbs does";
}

static int ucx_query(const halay_transport_t *t, halay_transport_attr_t *attr)
{
    if (!attr || attr->size < sizeof(*attr))
        return HALAY_EINVAL;
    attr->capabilities = HALAY_CAN_LAND | HALAY_CAN_SLEEP;
    attr->message_bytes = HLY_UCX_MESSAGE;
    attr->eager_bytes = HLY_UCX_EAGER;
    attr->piece_bytes = HLY_UCX_MESSAGE / 2; /* the header has to fit too */
    snprintf(attr->over, sizeof(attr->over), "what UCX finds; not a GPU's memory: %s",
             gpu_refusal(t));
    return HALAY_OK;
}

static int ucx_register(halay_transport_t *t, const halay_mem_params_t *params, halay_mem_t **mem)
{
    (void)t, (void)params, (void)mem;
    return HALAY_EUNSUPPORTED;
}

static int ucx_alloc(halay_transport_t *t, size_t bytes, void **address, halay_mem_t **mem)
{
    (void)t, (void)bytes, (void)address, (void)mem;
    return HALAY_EUNSUPPORTED;
}

static int ucx_give_back(halay_transport_t *t)
{
    (void)t;
    return HALAY_EUNSUPPORTED;
}

static void ucx_deregister(halay_transport_t *t, halay_mem_t *mem)
{
    (void)t, (void)mem;
}

static int ucx_key(halay_transport_t *t, const halay_mem_t *mem, void *key, size_t *bytes)
{
    (void)t, (void)mem, (void)key, (void)bytes;
    return HALAY_EUNSUPPORTED;
}

static int ucx_put(halay_transport_t *t, halay_ep_t *ep, const void *payload, size_t bytes,
                   const void *key, size_t key_bytes, uint64_t offset, uint32_t immediate,
                   uint64_t cookie)
{
    (void)t, (void)ep, (void)payload, (void)bytes, (void)key, (void)key_bytes;
    (void)offset, (void)immediate, (void)cookie;
    return HALAY_EUNSUPPORTED;
}

/* ------------------------------------------------------------------ send */

static void op_free(hly_ucx_op_t *op)
{
    halay_transport_t *t = op->transport;
    op->next = t->free_op;
    t->free_op = op;
}

static int status_of(ucs_status_t status)
{
    return status == UCS_OK ? HALAY_OK : status == UCS_ERR_NO_MEMORY ? HALAY_ENOMEM : HALAY_EPEER;
}

static void on_sent(void *request, ucs_status_t status, void *arg)
{
    hly_ucx_op_t *op = arg;
    halay_transport_t *t = op->transport;
    assert(op->peer->under_way > 0);
    op->peer->under_way--;
    if (op->tell)
        hly_ucx_event_add(t,
                          &(halay_event_t){.kind = HALAY_EVENT_SENT,
                                           .status = status_of(status),
                                           .peer = op->peer->base.id,
                                           .cookie = op->cookie},
                          0);
    if (status != UCS_OK)
        hly_ucx_peer_break(t, op->peer, status);
    op_free(op);
    ucp_request_free(request);
}

/* A message for a landing buffer: it stays where it is, until SENT if UCX does not take it at once.
 */
static void *post_tagged(hly_ucx_op_t *op, uint64_t tag, const void *payload, size_t bytes)
{
    const ucp_request_param_t param = {.op_attr_mask =
                                           UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
                                       .cb.send = on_sent,
                                       .user_data = op};
    op->tell = 1;
    return ucp_tag_send_nbx(op->peer->ucp, payload, bytes, tag, &param);
}

/* Token, header and payload are put together, and need no SENT. */
static void *post_short(hly_ucx_op_t *op, const void *header, size_t header_bytes,
                        const void *payload, size_t payload_bytes)
{
    const ucp_request_param_t param = {.op_attr_mask =
                                           UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
                                       .cb.send = on_sent,
                                       .user_data = op};
    const size_t bytes = HLY_UCX_TOKEN + header_bytes;
    memcpy(op->room, &op->peer->its_token, HLY_UCX_TOKEN);
    if (header_bytes == HLY_UCX_LINE)
        memcpy(op->room + HLY_UCX_TOKEN, header, HLY_UCX_LINE); /* without a call */
    else if (header_bytes)
        memcpy(op->room + HLY_UCX_TOKEN, header, header_bytes);
    if (payload_bytes)
        memcpy(op->room + bytes, payload, payload_bytes);
    op->tell = 0;
    return ucp_tag_send_nbx(op->peer->ucp, op->room, bytes + payload_bytes, HLY_UCX_SHORT_TAG,
                            &param);
}

/*
 * Token, header and a small payload are put together, and need no SENT. (UCX has a place for
 * headers of its own, but is slower with it.)
 */
static void *post_message(hly_ucx_op_t *op, const void *header, size_t header_bytes,
                          const void *payload, size_t payload_bytes)
{
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK |
                                                 UCP_OP_ATTR_FIELD_USER_DATA |
                                                 UCP_OP_ATTR_FIELD_FLAGS,
                                 .flags = UCP_AM_SEND_FLAG_EAGER,
                                 .cb.send = on_sent,
                                 .user_data = op};
    const uint64_t token = op->peer->its_token;
    size_t bytes = sizeof(token) + header_bytes;
    memcpy(op->room, &token, sizeof(token));
    if (header_bytes)
        memcpy(op->room + sizeof(token), header, header_bytes);
    op->tell = payload_bytes > 0 && bytes + payload_bytes > HLY_UCX_COPY;
    if (!op->tell) {
        if (payload_bytes)
            memcpy(op->room + bytes, payload, payload_bytes);
        return ucp_am_send_nbx(op->peer->ucp, 0, NULL, 0, op->room, bytes + payload_bytes, &param);
    }
    op->parts[0] = (ucp_dt_iov_t){op->room, bytes};
    op->parts[1] = (ucp_dt_iov_t){(void *)(uintptr_t)payload, payload_bytes};
    param.op_attr_mask |= UCP_OP_ATTR_FIELD_DATATYPE;
    param.datatype = ucp_dt_make_iov();
    return ucp_am_send_nbx(op->peer->ucp, 0, NULL, 0, op->parts, 2, &param);
}

static int ucx_send(halay_transport_t *t, halay_ep_t *ep, uint64_t tag, const void *header,
                    size_t header_bytes, const void *payload, size_t payload_bytes, uint64_t cookie)
{
    hly_ucx_peer_t *peer = ep;
    if (tag ? header_bytes > 0 || (tag & HLY_UCX_SHORT_TAG)
            : header_bytes > HLY_UCX_MESSAGE || payload_bytes > HLY_UCX_MESSAGE - header_bytes)
        return HALAY_EINVAL;
    if (peer->base.state != PEER_WELL || peer->broken != UCS_OK)
        return HALAY_EPEER;
    if (!peer->base.met || peer->under_way >= HLY_UCX_OPS_PEER || !t->free_op)
        return HALAY_EAGAIN;
    hly_ucx_op_t *op = t->free_op;
    t->free_op = op->next;
    op->peer = peer;
    op->cookie = cookie;
    void *request = tag ? post_tagged(op, tag, payload, payload_bytes)
                    : header_bytes + payload_bytes <= t->short_bytes
                        ? post_short(op, header, header_bytes, payload, payload_bytes)
                        : post_message(op, header, header_bytes, payload, payload_bytes);
    if (UCS_PTR_IS_ERR(request)) {
        ucs_status_t status = UCS_PTR_STATUS(request);
        op_free(op);
        if (status == UCS_ERR_NO_RESOURCE || status == UCS_ERR_NO_MEMORY)
            return HALAY_EAGAIN;
        hly_ucx_peer_break(t, peer, status);
        return HALAY_EPEER;
    }
    peer->sent += tag == 0;
    if (!request) {
        op_free(op);
        return HALAY_OK;
    }
    peer->under_way++;
    return op->tell ? HALAY_INPROGRESS : HALAY_OK;
}

/* ------------------------------------------------------------------ landing */

static void landing_done(hly_ucx_landing_t *landing, ucs_status_t status, size_t bytes)
{
    halay_transport_t *t = landing->transport;
    int truncated = status == UCS_ERR_MESSAGE_TRUNCATED;
    hly_ucx_waiting_t *waiting =
        hly_ucx_event_add(t,
                          &(halay_event_t){.kind = HALAY_EVENT_LANDED,
                                           .status = truncated ? HALAY_EINVAL : status_of(status),
                                           .cookie = landing->cookie},
                          0);
    landing->state = LANDING_DONE;
    landing->request = NULL;
    if (waiting) {
        waiting->event.bytes = status == UCS_OK ? bytes : 0;
        waiting->landing = landing;
    }
}

static void landing_free(hly_ucx_landing_t *landing)
{
    halay_transport_t *t = landing->transport;
    landing->state = LANDING_FREE;
    landing->next = t->free_landing;
    t->free_landing = landing;
}

static void on_landed(void *request, ucs_status_t status, const ucp_tag_recv_info_t *info,
                      void *arg)
{
    hly_ucx_landing_t *landing = arg;
    if (status == UCS_ERR_CANCELED && landing->withdrawing)
        landing->state = LANDING_FREE;
    else
        landing_done(landing, status, info->length);
    ucp_request_free(request);
}

static int ucx_withdraw(halay_transport_t *t, uint64_t tag)
{
    for (int i = 0; i < HLY_UCX_LANDINGS; i++) {
        hly_ucx_landing_t *landing = &t->landings[i];
        if (landing->state == LANDING_FREE || landing->tag != tag)
            continue;
        if (landing->state == LANDING_DONE)
            return HALAY_INPROGRESS;
        landing->withdrawing = 1;
        ucp_request_cancel(t->worker, landing->request); /* calls on_landed if it still can */
        landing->withdrawing = 0;
        if (landing->state != LANDING_FREE)
            return HALAY_INPROGRESS;
        landing_free(landing);
        return HALAY_OK;
    }
    return HALAY_EINVAL;
}

static int ucx_recv(halay_transport_t *t, uint64_t tag, void *buffer, size_t bytes, uint64_t cookie)
{
    if (tag == 0 || (tag & HLY_UCX_SHORT_TAG))
        return HALAY_EINVAL;
    hly_ucx_landing_t *landing = t->free_landing;
    if (!landing)
        return HALAY_EAGAIN;
    const ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK |
                                                       UCP_OP_ATTR_FIELD_USER_DATA |
                                                       UCP_OP_ATTR_FLAG_NO_IMM_CMPL,
                                       .cb.recv = on_landed,
                                       .user_data = landing};
    t->free_landing = landing->next;
    t->lands = 1;
    landing->state = LANDING_POSTED;
    landing->tag = tag;
    landing->cookie = cookie;
    void *request = ucp_tag_recv_nbx(t->worker, buffer, bytes, tag, UINT64_MAX, &param);
    if (UCS_PTR_IS_ERR(request) && UCS_PTR_STATUS(request) == UCS_ERR_NO_MEMORY) {
        landing_free(landing);
        return HALAY_EAGAIN;
    }
    if (UCS_PTR_IS_ERR(request))
        landing_done(landing, UCS_PTR_STATUS(request), 0);
    else if (landing->state == LANDING_POSTED) /* else it came before */
        landing->request = request;
    return HALAY_OK;
}

/* ------------------------------------------------------------------ poll, arm */

/* Gives events away. What they point to stays until the arena starts anew. */
static int events_give(halay_transport_t *t, halay_event_t events[], int max)
{
    int n = 0;
    while (n < max && t->first < t->last) {
        hly_ucx_waiting_t *waiting = &t->waiting[t->first++];
        events[n] = waiting->event;
        if (events[n].kind == HALAY_EVENT_MESSAGE && !waiting->stays)
            events[n].data = t->arena + waiting->offset;
        if (waiting->landing)
            landing_free(waiting->landing);
        n++;
    }
    return n;
}

/* Returns how many events went to the caller's array. */
static int look(halay_transport_t *t, halay_event_t events[], int max)
{
    t->sink = events;
    t->sink_room = max;
    t->sunk = 0;
    for (int i = t->last == 0 ? HLY_UCX_PROGRESS : 0; i > 0; i--) {
        if (ucp_worker_progress(t->worker) == 0 || t->sunk || t->last > 0)
            break;
    }
    t->sink_room = 0;
    return t->sunk;
}

/* While messages come, sockets are looked at less: each look is a system call. */
static void tick(halay_transport_t *t)
{
    const uint64_t pause_ns = t->busy ? HLY_UCX_BUSY_NS : HLY_UCX_SLOW_NS;
    t->busy = 0;
    if (hly_meet_now_ns() - t->attended_ns >= pause_ns)
        hly_ucx_attend(t);
}

static int ucx_poll(halay_transport_t *t, halay_event_t events[], int max)
{
    assert(max > 0);
    if (t->first == t->last)
        hly_ucx_arena_restart(t);
    if (t->first < t->last)
        return events_give(t, events, max);
    if (t->watched)
        hly_ucx_watch(t, 0); /* if it fails, it is only slower */
    if (++t->polls % HLY_UCX_TICK == 0)
        tick(t);
    int n = look(t, events, max);
    t->busy |= n;
    if (t->last == 0 && n)
        return n;
    if (t->last == 0 && t->shorts_posted < t->shorts_wanted)
        hly_ucx_shorts_post(t); /* now that there is time */
    if (t->last == 0 && t->meet.attention)
        hly_ucx_attend(t);
    if (t->last > 0)
        n += events_give(t, events + n, max - n);
    return n || !t->meet.error ? n : hly_meet_error_take(&t->meet);
}

static int ucx_arm(halay_transport_t *t, int *fd)
{
    if (t->meet.attention || t->meet.error || t->first < t->last)
        return HALAY_EAGAIN;
    ucs_status_t status = ucp_worker_arm(t->worker);
    if (status == UCS_ERR_BUSY)
        return HALAY_EAGAIN;
    if (status != UCS_OK) {
        hly_meet_log(&t->meet, 0, "it cannot sleep: ucp_worker_arm: %s", ucs_status_string(status));
        return HALAY_ETRANSPORT;
    }
    int rc = hly_ucx_watch(t, 1);
    if (rc) {
        hly_meet_log(&t->meet, 0, "it cannot sleep: epoll_ctl: %s", strerror(-rc));
        return HALAY_ETRANSPORT;
    }
    t->meet.attention = 1; /* whatever wakes it, the first idle poll looks everywhere */
    *fd = t->meet.epoll_fd;
    return hly_meet_timer_set(&t->meet, UINT64_MAX);
}

const halay_transport_ops_t halay_transport_v7_ucx = {
    .size = sizeof(halay_transport_ops_t),
    .name = "ucx",
    .open = hly_ucx_open,
    .close = hly_ucx_close,
    .query = ucx_query,
    .address = hly_meet_address,
    .connect = hly_meet_connect,
    .disconnect = hly_meet_disconnect,
    .sever = hly_meet_sever,
    .register_mem = ucx_register,
    .alloc_mem = ucx_alloc,
    .deregister_mem = ucx_deregister,
    .key = ucx_key,
    .send = ucx_send,
    .recv = ucx_recv,
    .withdraw = ucx_withdraw,
    .put = ucx_put,
    .poll = ucx_poll,
    .give_back = ucx_give_back,
    .arm = ucx_arm,
};
