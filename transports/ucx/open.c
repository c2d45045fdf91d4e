/* SPDX-License-Identifier: Apache-2.0 */
/*
 * open.c - an endpoint comes and goes. A forked child may close the copy that it inherited: it lets
 * its descriptors and memory go, and does not touch UCX, whose connections are its parent's.
 */
#define _GNU_SOURCE
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ucx.h"

/* A longer one. */
static ucs_status_t on_message(void *arg, const void *header, size_t header_bytes, void *data,
                               size_t bytes, const ucp_am_recv_param_t *param)
{
    uint64_t token = 0; /* of nobody */
    (void)header, (void)header_bytes;
    if (bytes >= sizeof(token) && !(param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV)) {
        memcpy(&token, data, sizeof(token));
        bytes -= sizeof(token);
    }
    hly_ucx_message(arg, token, (uint8_t *)data + sizeof(token), bytes, 0);
    return UCS_OK;
}

/* ------------------------------------------------------------------ open */

static ucs_status_t worker_open(halay_transport_t *t, const char **what)
{
    const ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES,
                                 .features = UCP_FEATURE_TAG | UCP_FEATURE_AM | UCP_FEATURE_WAKEUP};
    const ucp_worker_params_t worker = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                        .thread_mode = UCS_THREAD_MODE_SERIALIZED};
    const ucp_am_handler_param_t handler = {
        .field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                      UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG,
        .flags = UCP_AM_FLAG_WHOLE_MSG,
        .cb = on_message,
        .arg = t};
    ucp_worker_attr_t attr = {.field_mask = UCP_WORKER_ATTR_FIELD_ADDRESS |
                                            UCP_WORKER_ATTR_FIELD_ADDRESS_FLAGS,
                              .address_flags = UCP_WORKER_ADDRESS_FLAG_NET_ONLY};
    ucp_config_t *config;
    int rdma;
    *what = "ucp_config_read";
    ucs_status_t status = hly_ucx_settings_read(&t->meet, &config, &rdma);
    if (status != UCS_OK)
        return status;
    t->short_bytes = rdma ? HLY_UCX_SHORT : HLY_UCX_SHORT_TCP;
    *what = "ucp_init";
    status = ucp_init(&params, config, &t->context);
    ucp_config_release(config);
    if (status != UCS_OK)
        return status;
    *what = "ucp_worker_create";
    if ((status = ucp_worker_create(t->context, &worker, &t->worker)) != UCS_OK)
        return status;
    *what = "ucp_worker_set_am_recv_handler";
    if ((status = ucp_worker_set_am_recv_handler(t->worker, &handler)) != UCS_OK)
        return status;
    *what = "ucp_worker_get_efd";
    if ((status = ucp_worker_get_efd(t->worker, &t->worker_fd)) != UCS_OK)
        return status;
    *what = "ucp_worker_query";
    if ((status = ucp_worker_query(t->worker, &attr)) != UCS_OK)
        return status;
    t->worker_address = attr.address;
    t->worker_address_bytes = attr.address_length;
    return attr.address_length <= HLY_UCX_ADDRESS ? UCS_OK : UCS_ERR_EXCEEDS_LIMIT;
}

static int pools_make(halay_transport_t *t)
{
    const size_t room = HLY_UCX_TOKEN + HLY_UCX_MESSAGE;
    t->ops = calloc(HLY_UCX_OPS, sizeof(*t->ops));
    t->ops_room = malloc(HLY_UCX_OPS * room); /* touched only where used */
    t->landings = calloc(HLY_UCX_LANDINGS, sizeof(*t->landings));
    if (!t->ops || !t->ops_room || !t->landings)
        return HALAY_ENOMEM;
    for (size_t i = HLY_UCX_OPS; i-- > 0;) {
        t->ops[i].transport = t;
        t->ops[i].room = t->ops_room + i * room;
        t->ops[i].next = t->free_op;
        t->free_op = &t->ops[i];
    }
    for (size_t i = HLY_UCX_LANDINGS; i-- > 0;) {
        t->landings[i].transport = t;
        t->landings[i].next = t->free_landing;
        t->free_landing = &t->landings[i];
    }
    return HALAY_OK;
}

/* Our own memory and descriptors; UCX is gone already, or is a parent's. */
static void let_go(halay_transport_t *t)
{
    hly_meet_close(&t->meet);
    for (hly_ucx_peer_t *peer; (peer = hly_ucx_first(t)) != NULL; free(peer))
        hly_meet_peer_forget(&t->meet, &peer->base);
    free(t->by_index);
    free(t->waiting);
    free(t->arena);
    free(t->ops);
    free(t->ops_room);
    free(t->landings);
    free(t->shorts);
    free(t);
}

static void worker_close(halay_transport_t *t)
{
    if (t->worker_address)
        ucp_worker_release_address(t->worker, t->worker_address);
    if (t->worker)
        ucp_worker_destroy(t->worker);
    if (t->context)
        ucp_cleanup(t->context);
}

/* It has none. */
static int options_read(const halay_transport_t *t, const char *options)
{
    if (!options || !*options)
        return HALAY_OK;
    hly_meet_log(&t->meet, 0,
                 "the transport option '%s' is not understood: ucx has none; its settings are "
                 "UCX's variables (ucx_info -c), and HALAY_INTERFACE chooses the network",
                 options);
    return HALAY_EINVAL;
}

int hly_ucx_open(const halay_transport_params_t *params, halay_transport_t **out)
{
    static const hly_meet_ops_t ops = {.name = "ucx",
                                       .magic = HLY_UCX_MAGIC,
                                       .make = hly_ucx_peer_make,
                                       .tell = hly_ucx_peer_tell,
                                       .meet = hly_ucx_peer_meet};
    /* Where the bootstrap does not listen: for the processes of this host. */
    const halay_address_t where = {.family = AF_INET, .ip = {127, 0, 0, 1}};
    const char *what = "memory";
    if (!hly_meet_params_well(params) || !out)
        return HALAY_EINVAL;
    halay_transport_t *t = calloc(1, sizeof(*t));
    if (!t)
        return HALAY_ENOMEM;
    t->worker_fd = -1;
    hly_meet_init(&t->meet, &ops, t, params, &where);
    hly_ucx_signals_restore();
    int rc = options_read(t, params->options);
    if (rc == 0)
        rc = pools_make(t);
    if (rc)
        goto undo;
    ucs_status_t status = worker_open(t, &what);
    if (status != UCS_OK) {
        hly_meet_log(&t->meet, 0,
                     "cannot open: %s: %s; see what 'ucx_info -d' shows, and the UCX_* "
                     "variables, if any are set",
                     what, ucs_status_string(status));
        rc = status == UCS_ERR_NO_MEMORY ? HALAY_ENOMEM : HALAY_ETRANSPORT;
        goto undo;
    }
    rc = hly_ucx_shorts_make(t);
    if (rc == 0)
        rc = hly_meet_open(&t->meet, t->worker_fd);
    if (rc)
        goto undo;
    t->watched = 1;
    *out = t;
    return HALAY_OK;
undo:
    worker_close(t);
    let_go(t);
    return rc;
}

/* ------------------------------------------------------------------ close */

/* Says goodbye where all is sent; how many peers it still has to wait for. */
static int goodbyes_say(halay_transport_t *t)
{
    int pending = 0;
    for (hly_ucx_peer_t *peer = hly_ucx_first(t); peer; peer = hly_ucx_next(peer)) {
        hly_meet_link_t *link = hly_meet_link_of(&t->meet, &peer->base);
        if (peer->base.state != PEER_WELL || !peer->base.met || !link)
            continue;
        if (!peer->base.said_goodbye && peer->under_way == 0) {
            peer->base.said_goodbye = 1;
            (void)hly_meet_link_say(&t->meet, link, MEET_GOODBYE, peer->sent);
            hly_meet_link_write(&t->meet, link); /* if it fails, nobody is there */
        }
        pending += !peer->base.said_goodbye || (!peer->base.seen && peer->sent > 0);
    }
    return pending;
}

static void farewell(halay_transport_t *t, uint64_t until)
{
    hly_meet_leave(&t->meet);
    for (;;) {
        unsigned progress = ucp_worker_progress(t->worker);
        struct pollfd nap = {.fd = t->meet.slow_fd, .events = POLLIN};
        hly_ucx_arena_restart(t);
        t->first = t->last = t->arena_bytes = 0; /* nobody polls any more */
        hly_ucx_attend(t);
        if (goodbyes_say(t) == 0 || hly_meet_now_ns() >= until)
            return;
        if (progress == 0)
            poll(&nap, 1, 1);
    }
}

/* Everything that UCX still does for us ends: first what is posted, then the connections. */
static void worker_quiet(halay_transport_t *t, uint64_t until)
{
    for (int i = 0; i < HLY_UCX_LANDINGS; i++) {
        hly_ucx_landing_t *landing = &t->landings[i];
        if (landing->state == LANDING_POSTED)
            ucp_request_cancel(t->worker, landing->request);
    }
    hly_ucx_shorts_cancel(t);
    for (hly_ucx_peer_t *peer = hly_ucx_first(t); peer; peer = hly_ucx_next(peer))
        hly_ucx_ep_close(t, peer);
    do {
        ucp_worker_progress(t->worker);
        hly_ucx_strays_drop(t);
        t->first = t->last = t->arena_bytes = 0;
    } while (t->closes > 0 && hly_meet_now_ns() < until);
    if (t->closes > 0)
        hly_meet_log(&t->meet, 1, "%d connections could not be closed within 1 s", t->closes);
}

void hly_ucx_close(halay_transport_t *t)
{
    if (!t)
        return;
    if (getpid() == t->meet.pid) {
        uint64_t until = hly_meet_now_ns() + HLY_MEET_CLOSE_NS;
        farewell(t, until);
        while (t->meet.links)
            hly_meet_link_free(&t->meet, t->meet.links);
        worker_quiet(t, until + HLY_MEET_CLOSE_NS / 4);
        worker_close(t);
    }
    let_go(t);
}
