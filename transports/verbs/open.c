/* SPDX-License-Identifier: Apache-2.0 */
/*
 * open.c - an endpoint comes and goes: device, port, GID, memory, descriptors.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "verbs.h"

uint64_t hly_verbs_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

int hly_verbs_say(const halay_transport_t *t, int level, int rc, const char *what, const char *why)
{
    char text[400];
    snprintf(text, sizeof(text), "verbs: %s: %s", what, why);
    if (t->params.log)
        t->params.log(t->params.log_arg, level, text);
    return rc;
}

/* ------------------------------------------------------------------ open, close */

static int gid_worth(const struct ibv_gid_entry *e)
{
    static const uint8_t four[12] = {[10] = 0xff, [11] = 0xff};
    if (e->gid_type == IBV_GID_TYPE_ROCE_V1)
        return 1;
    return !memcmp(e->gid.raw, four, sizeof(four)) ? 4 : e->gid.raw[0] == 0xfe ? 2 : 3;
}

/* "DEVICE:PORT:GID", as much as is given; the GID: RoCE v2 and routable, if there is one. */
static int device_open(halay_transport_t *t)
{
    char name[64] = "";
    struct ibv_gid_entry e;
    int n = 0, most = 0, gid = -1;
    t->port_number = 1;
    if (t->params.options)
        sscanf(t->params.options, "%63[^:]:%d:%d", name, &t->port_number, &gid);
    struct ibv_device **list = ibv_get_device_list(&n);
    for (int i = 0; i < n && !t->device; i++) {
        if (!*name || !strcmp(name, ibv_get_device_name(list[i])))
            t->device = ibv_open_device(list[i]);
    }
    if (list)
        ibv_free_device_list(list);
    if (!t->device || ibv_query_port(t->device, (uint8_t)t->port_number, &t->port))
        return -1;
    for (int i = 0; i < t->port.gid_tbl_len; i++) {
        if ((gid >= 0 && i != gid) ||
            ibv_query_gid_ex(t->device, (uint32_t)t->port_number, (uint32_t)i, &e, 0) ||
            gid_worth(&e) <= most)
            continue;
        most = gid_worth(&e);
        t->gid = e.gid;
        t->gid_index = i;
    }
    return most > 0 && t->port.state == IBV_PORT_ACTIVE ? 0 : -1;
}

static int memory_open(halay_transport_t *t)
{
    size_t bytes = (size_t)PEERS * BUFFERS * BUFFER;
    return (t->room = aligned_alloc(BUFFER, bytes)) && (t->pd = ibv_alloc_pd(t->device)) &&
                   (t->mr = ibv_reg_mr(t->pd, t->room, bytes, IBV_ACCESS_LOCAL_WRITE)) &&
                   (t->channel = ibv_create_comp_channel(t->device)) &&
                   (t->cq = ibv_create_cq(t->device, PEERS * BUFFERS, t, t->channel, 0))
               ? 0
               : -1;
}

static int listener_open(halay_transport_t *t)
{
    struct sockaddr_in at = {.sin_family = AF_INET};
    socklen_t length = sizeof(at);
    t->listen_fd = t->params.listen_fd;
    t->where = t->params.listen_address;
    if (t->where.family)
        return 0;
    memcpy(&at.sin_addr, t->gid.raw + 12, 4); /* of RoCE over IPv4 */
    t->listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (t->listen_fd < 0 || bind(t->listen_fd, (struct sockaddr *)&at, length) ||
        listen(t->listen_fd, LINKS) || getsockname(t->listen_fd, (struct sockaddr *)&at, &length))
        return -1;
    t->where = (halay_address_t){.family = AF_INET, .port = at.sin_port};
    memcpy(t->where.ip, &at.sin_addr, 4);
    return 0;
}

static int descriptors_open(halay_transport_t *t)
{
    struct itimerspec tick = {{0, 100000000}, {0, 100000000}};
    t->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    t->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    return listener_open(t) || timerfd_settime(t->timer_fd, 0, &tick, NULL) ||
           hly_verbs_watch(t, t->timer_fd) || hly_verbs_watch(t, t->listen_fd) ||
           hly_verbs_watch(t, t->channel->fd) || fcntl(t->channel->fd, F_SETFL, O_NONBLOCK);
}

void hly_verbs_close(halay_transport_t *t)
{
    halay_event_t events[HELD];
    uint64_t until = hly_verbs_now_ns() + 1000000000;
    if (!t)
        return;
    for (halay_ep_t *peer = t->peers; peer < t->peers + PEERS; peer++) {
        while (peer->state == PEER_WELL && peer->free_slots != UINT32_MAX &&
               hly_verbs_now_ns() < until)
            hly_verbs_poll(t, events, HELD);
    }
    for (halay_ep_t *peer = t->peers; peer < t->peers + PEERS; peer++) {
        if (peer->state == PEER_FREE)
            continue;
        hly_verbs_peer_cut(t, peer);
        ibv_destroy_qp(peer->qp);
        for (int i = 0; i < SLOTS; i++) {
            if (~peer->free_slots & 1u << i && peer->slot[i].mr)
                ibv_dereg_mr(peer->slot[i].mr);
        }
    }
    for (link_t *link = t->links; link < t->links + LINKS; link++) {
        if (link->state != LINK_FREE)
            close(link->fd);
    }
    if (t->cq)
        ibv_destroy_cq(t->cq);
    if (t->channel)
        ibv_destroy_comp_channel(t->channel);
    if (t->mr)
        ibv_dereg_mr(t->mr);
    if (t->pd)
        ibv_dealloc_pd(t->pd);
    if (t->device)
        ibv_close_device(t->device);
    if (t->listen_fd > 0 && !t->params.listen_address.family)
        close(t->listen_fd);
    if (t->timer_fd > 0)
        close(t->timer_fd);
    if (t->epoll_fd > 0)
        close(t->epoll_fd);
    free(t->room);
    free(t);
}

int hly_verbs_open(const halay_transport_params_t *params, halay_transport_t **out)
{
    if (!params || params->size < sizeof(*params) || !out)
        return HALAY_EINVAL;
    halay_transport_t *t = calloc(1, sizeof(*t));
    if (!t)
        return HALAY_ENOMEM;
    t->params = *params;
    if (device_open(t) || memory_open(t) || descriptors_open(t)) {
        hly_verbs_say(t, 0, 0, "it cannot open (DEVICE:PORT:GID; see ibv_devinfo -v, ulimit -l)",
                      strerror(errno));
        hly_verbs_close(t);
        return HALAY_ETRANSPORT;
    }
    *out = t;
    return HALAY_OK;
}
