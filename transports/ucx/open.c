/* SPDX-License-Identifier: Apache-2.0 */
/*
 * open.c - an endpoint comes and goes. A forked child may close the copy that it inherited: it lets
 * its descriptors and memory go, and does not touch UCX, whose connections are its parent's.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "ucx.h"

uint64_t hly_ucx_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

void hly_ucx_log(const halay_transport_t *t, int level, const char *format, ...)
{
    char text[512];
    va_list list;
    if (!t->log)
        return;
    va_start(list, format);
    vsnprintf(text, sizeof(text), format, list);
    va_end(list);
    t->log(t->log_arg, level, text);
}

/* An untagged message has come. */
static ucs_status_t on_message(void *arg, const void *header, size_t header_bytes, void *data,
                               size_t bytes, const ucp_am_recv_param_t *param)
{
    halay_transport_t *t = arg;
    hly_ucx_peer_t *peer = NULL;
    uint64_t token = 0;
    (void)header, (void)header_bytes;
    if (bytes >= sizeof(token) && !(param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV)) {
        memcpy(&token, data, sizeof(token));
        peer = hly_ucx_peer_of(t, token);
        bytes -= sizeof(token);
    }
    if (!peer || bytes > HLY_UCX_MESSAGE) {
        if (!t->closing && !(t->warned & WARNED_MESSAGE))
            hly_ucx_log(t, 1,
                        "ucx: a message of %zu bytes of an unknown sender was thrown away; this is "
                        "said once",
                        bytes);
        t->warned |= WARNED_MESSAGE;
        return UCS_OK;
    }
    peer->came++;
    t->attention |= peer->goodbye;
    if (!t->closing)
        hly_ucx_event_add(t,
                          &(halay_event_t){.kind = HALAY_EVENT_MESSAGE,
                                           .peer = peer->id,
                                           .data = bytes ? (uint8_t *)data + sizeof(token) : NULL,
                                           .bytes = bytes});
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
    *what = "ucp_config_read";
    ucs_status_t status = hly_ucx_settings_read(&t->where, &config);
    if (status != UCS_OK)
        return status;
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

/* A socket of our own, where the bootstrap has none: for the processes of this host. */
static int listen_open(halay_transport_t *t, const char **what)
{
    struct sockaddr_storage address;
    socklen_t length = hly_ucx_where_socket(&t->where, &address);
    *what = "socket";
    t->listen_fd = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (t->listen_fd < 0)
        return -errno;
    *what = "bind";
    if (bind(t->listen_fd, (struct sockaddr *)&address, length))
        return -errno;
    *what = "listen";
    if (listen(t->listen_fd, SOMAXCONN))
        return -errno;
    *what = "getsockname";
    length = sizeof(address);
    if (getsockname(t->listen_fd, (struct sockaddr *)&address, &length))
        return -errno;
    return hly_ucx_where_from(&address, &t->where);
}

/* Each step says what it was, for the message. */
static int descriptors_open(halay_transport_t *t, const char **what)
{
    *what = "epoll_create1";
    if ((t->epoll_fd = epoll_create1(EPOLL_CLOEXEC)) < 0 ||
        (t->slow_fd = epoll_create1(EPOLL_CLOEXEC)) < 0)
        return -errno;
    *what = "timerfd_create";
    if ((t->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)) < 0)
        return -errno;
    int rc = t->listen_shared ? 0 : listen_open(t, what);
    if (rc)
        return rc;
    hly_ucx_where_name(&t->where, t->name);
    *what = "epoll_ctl";
    rc = hly_ucx_watch_add(t->slow_fd, t->listen_fd, EPOLLIN, &t->listen_watch);
    if (rc == 0)
        rc = hly_ucx_watch_add(t->slow_fd, t->timer_fd, EPOLLIN, &t->timer_watch);
    if (rc == 0)
        rc = hly_ucx_watch_add(t->epoll_fd, t->slow_fd, EPOLLIN, NULL);
    return rc ? rc : hly_ucx_watch_add(t->epoll_fd, t->worker_fd, EPOLLIN, NULL);
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

static void close_one(int fd)
{
    if (fd >= 0)
        close(fd);
}

/* Our own memory and descriptors; UCX is gone already, or is a parent's. */
static void let_go(halay_transport_t *t)
{
    close_one(t->slow_fd);
    t->slow_fd = -1; /* from here on nothing is taken out or shut down: a parent may share it */
    while (t->links)
        hly_ucx_link_free(t, t->links);
    for (hly_ucx_peer_t *peer; (peer = t->peers) != NULL; free(peer))
        t->peers = peer->next;
    for (halay_ep_t *ep; (ep = t->ways) != NULL; free(ep))
        t->ways = ep->next;
    close_one(t->epoll_fd);
    if (!t->listen_shared)
        close_one(t->listen_fd);
    close_one(t->timer_fd);
    free(t->by_index);
    free(t->waiting);
    free(t->arena);
    free(t->ops);
    free(t->ops_room);
    free(t->landings);
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

static void params_take(halay_transport_t *t, const halay_transport_params_t *params)
{
    t->slow_fd = t->epoll_fd = t->listen_fd = t->timer_fd = t->worker_fd = -1;
    t->listen_watch = WATCH_LISTEN;
    t->timer_watch = WATCH_TIMER;
    t->pid = getpid();
    t->self = params->self;
    memcpy(t->secret, params->secret, sizeof(t->secret));
    t->deadline_ns = params->deadline_ns ? params->deadline_ns : HLY_UCX_DEADLINE_NS;
    if (t->deadline_ns > INT64_MAX / 2)
        t->deadline_ns = INT64_MAX / 2; /* it is added to the time */
    t->listen_shared = params->listen_address.family != 0;
    if (t->listen_shared) {
        t->listen_fd = params->listen_fd;
        t->where = params->listen_address;
    } else {
        t->where = (halay_address_t){.family = AF_INET, .ip = {127, 0, 0, 1}};
    }
    t->log = params->log;
    t->log_arg = params->log_arg;
}

/* It has none. */
static int options_read(const halay_transport_t *t, const char *options)
{
    if (!options || !*options)
        return HALAY_OK;
    hly_ucx_log(t, 0,
                "ucx: the transport option '%s' is not understood: ucx has none; its settings are "
                "UCX's variables (ucx_info -c), and HALAY_INTERFACE chooses the network",
                options);
    return HALAY_EINVAL;
}

int hly_ucx_open(const halay_transport_params_t *params, halay_transport_t **out)
{
    const char *what = "memory";
    if (!params || params->size < sizeof(*params) || !out)
        return HALAY_EINVAL;
    if (params->listen_address.family != 0 && params->listen_fd < 0)
        return HALAY_EINVAL;
    halay_transport_t *t = calloc(1, sizeof(*t));
    if (!t)
        return HALAY_ENOMEM;
    params_take(t, params);
    hly_ucx_signals_restore();
    int rc = options_read(t, params->options);
    if (rc == 0)
        rc = pools_make(t);
    if (rc)
        goto undo;
    ucs_status_t status = worker_open(t, &what);
    if (status != UCS_OK) {
        hly_ucx_log(t, 0,
                    "ucx: cannot open: %s: %s; see what 'ucx_info -d' shows, and the UCX_* "
                    "variables, if any are set",
                    what, ucs_status_string(status));
        rc = status == UCS_ERR_NO_MEMORY ? HALAY_ENOMEM : HALAY_ETRANSPORT;
        goto undo;
    }
    rc = descriptors_open(t, &what);
    if (rc) {
        hly_ucx_log(t, 0, "ucx: cannot listen: %s: %s; check the limit on open files (ulimit -n)",
                    what, strerror(-rc));
        rc = rc == -EMFILE || rc == -ENFILE || rc == -ENOMEM ? HALAY_ENOMEM : HALAY_ETRANSPORT;
        goto undo;
    }
    *out = t;
    return HALAY_OK;
undo:
    worker_close(t);
    let_go(t);
    return rc;
}

/* ------------------------------------------------------------------ close */

/* Says goodbye where all is sent; how many peers are still to be waited for. */
static int goodbyes_say(halay_transport_t *t)
{
    int pending = 0;
    for (hly_ucx_peer_t *peer = t->peers; peer; peer = peer->next) {
        hly_ucx_link_t *link = hly_ucx_link_of(t, peer);
        if (peer->state != PEER_WELL || !peer->met || !link)
            continue;
        if (!peer->said_goodbye && peer->under_way == 0) {
            peer->said_goodbye = 1;
            hly_ucx_link_say(t, link, WORD_GOODBYE, peer->sent);
            hly_ucx_link_write(t, link); /* if it fails, nobody is there */
        }
        pending += !peer->said_goodbye || (!peer->seen && peer->sent > 0);
    }
    return pending;
}

static void farewell(halay_transport_t *t, uint64_t until)
{
    t->closing = 1;
    /* Who calls from now on waits in the socket's queue, for the next epoch. */
    epoll_ctl(t->slow_fd, EPOLL_CTL_DEL, t->listen_fd, NULL);
    for (;;) {
        unsigned progress = ucp_worker_progress(t->worker);
        struct pollfd nap = {.fd = t->slow_fd, .events = POLLIN};
        t->first = t->last = t->arena_bytes = 0;
        hly_ucx_attend(t);
        t->first = t->last = t->arena_bytes = 0;
        if (goodbyes_say(t) == 0 || hly_ucx_now_ns() >= until)
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
    for (hly_ucx_peer_t *peer = t->peers; peer; peer = peer->next)
        hly_ucx_ep_close(t, peer);
    do {
        ucp_worker_progress(t->worker);
        hly_ucx_strays_drop(t);
        t->first = t->last = t->arena_bytes = 0;
    } while (t->closes > 0 && hly_ucx_now_ns() < until);
    if (t->closes > 0)
        hly_ucx_log(t, 1, "ucx: %d connections could not be closed within 1 s", t->closes);
}

void hly_ucx_close(halay_transport_t *t)
{
    if (!t)
        return;
    if (getpid() == t->pid) {
        uint64_t until = hly_ucx_now_ns() + HLY_UCX_CLOSE_NS;
        farewell(t, until);
        while (t->links)
            hly_ucx_link_free(t, t->links);
        worker_quiet(t, until + HLY_UCX_CLOSE_NS / 4);
        worker_close(t);
    }
    let_go(t);
}
