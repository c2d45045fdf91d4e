/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device.c - which device, which port, which GIDs: the active port one of whose GIDs is nearest to
 * the address of the bootstrap (rules.c), or what HALAY_VERBS names.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <stdio.h>
#include <string.h>

#include "verbs.h"

/* The best port so far, and what was wrong with others. */
typedef struct hly_verbs_choice {
    halay_transport_t *t;
    struct ifaddrs *interfaces;
    int near;
    char seen[HLY_VERBS_TEXT]; /* "rxe0/1 is DOWN, " */
} hly_verbs_choice_t;

static void seen_add(hly_verbs_choice_t *choice, const char *name, int port, const char *what)
{
    size_t length = strlen(choice->seen);
    snprintf(choice->seen + length, sizeof(choice->seen) - length, "%s%s/%d %s", length ? ", " : "",
             name, port, what);
}

static unsigned bits_set(const uint8_t *bytes, size_t many)
{
    unsigned bits = 0;
    for (size_t i = 0; i < many; i++)
        bits += (unsigned)__builtin_popcount(bytes[i]);
    return bits;
}

/* The subnet of a GID is its interface's; 0: no interface has this address. */
static uint8_t prefix_of(const struct ifaddrs *all, const uint8_t raw[16])
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    int four = memcmp(raw, mapped, sizeof(mapped)) == 0;
    halay_address_t where = {.family = four ? AF_INET : AF_INET6};
    memcpy(where.ip, four ? raw + sizeof(mapped) : raw, four ? 4 : 16);
    const struct ifaddrs *one = hly_meet_where_interface(all, &where);
    if (!one || !one->ifa_netmask)
        return 0;
    if (four)
        return (uint8_t)bits_set(
            (const uint8_t *)&((struct sockaddr_in *)one->ifa_netmask)->sin_addr, 4);
    return (uint8_t)bits_set((const uint8_t *)&((struct sockaddr_in6 *)one->ifa_netmask)->sin6_addr,
                             16);
}

static int near_of(const halay_transport_t *t, const hly_verbs_gid_t *gid)
{
    return hly_verbs_gid_near(gid, t->meet.where.family, t->meet.where.ip);
}

/* The nearest GIDs of a port, the nearest first. Returns how many. */
static int gids_read(const hly_verbs_choice_t *choice, struct ibv_context *device, int port,
                     int many, hly_verbs_gid_t gids[HLY_VERBS_GIDS])
{
    static const uint8_t types[] = {[IBV_GID_TYPE_IB] = HLY_VERBS_IB,
                                    [IBV_GID_TYPE_ROCE_V1] = HLY_VERBS_ROCE1,
                                    [IBV_GID_TYPE_ROCE_V2] = HLY_VERBS_ROCE2};
    const int forced = choice->t->settings.gid;
    struct ibv_gid_entry entry;
    int n = 0;
    for (int i = 0; i < many && i < 256; i++) {
        if ((forced >= 0 && i != forced) ||
            ibv_query_gid_ex(device, (uint32_t)port, (uint32_t)i, &entry, 0) ||
            entry.gid_type > IBV_GID_TYPE_ROCE_V2)
            continue;
        hly_verbs_gid_t gid = {.index = (uint8_t)i, .type = types[entry.gid_type]};
        memcpy(gid.raw, entry.gid.raw, sizeof(gid.raw));
        gid.prefix = prefix_of(choice->interfaces, gid.raw);
        if (gid.type == HLY_VERBS_ROCE1 && forced < 0)
            continue;
        int at = n;
        while (at > 0 && near_of(choice->t, &gid) > near_of(choice->t, &gids[at - 1]))
            at--;
        if (at == HLY_VERBS_GIDS)
            continue;
        int moves = (n < HLY_VERBS_GIDS ? n : HLY_VERBS_GIDS - 1) - at;
        memmove(&gids[at + 1], &gids[at], (size_t)moves * sizeof(gid));
        gids[at] = gid;
        n += n < HLY_VERBS_GIDS;
    }
    return n;
}

/* 1: it is the best so far, and was taken. */
static int port_look(hly_verbs_choice_t *choice, struct ibv_context *device, int port)
{
    halay_transport_t *t = choice->t;
    const char *name = ibv_get_device_name(device->device);
    hly_verbs_gid_t gids[HLY_VERBS_GIDS];
    struct ibv_port_attr attr;
    if ((t->settings.port > 0 && port != t->settings.port) ||
        ibv_query_port(device, (uint8_t)port, &attr))
        return 0;
    if (attr.state != IBV_PORT_ACTIVE) {
        seen_add(choice, name, port, attr.state == IBV_PORT_DOWN ? "is down" : "is not active yet");
        return 0;
    }
    int n = gids_read(choice, device, port, attr.gid_tbl_len, gids);
    if (n == 0) {
        seen_add(choice, name, port, t->settings.gid < 0 ? "has no GID" : "has no such GID");
        return 0;
    }
    int near = near_of(t, &gids[0]) + 1;
    if (near <= choice->near)
        return 0;
    choice->near = near;
    t->port = attr;
    t->port_number = port;
    t->ngids = n;
    memcpy(t->gids, gids, sizeof(gids));
    snprintf(t->name, sizeof(t->name), "%.48s/%d", name, port);
    return 1;
}

static void device_look(hly_verbs_choice_t *choice, struct ibv_device *one)
{
    halay_transport_t *t = choice->t;
    const char *name = ibv_get_device_name(one);
    struct ibv_device_attr limits;
    int best = 0;
    if (one->transport_type != IBV_TRANSPORT_IB ||
        (*t->settings.device && strcmp(name, t->settings.device) != 0))
        return;
    struct ibv_context *device = ibv_open_device(one);
    if (!device || ibv_query_device(device, &limits)) {
        seen_add(choice, name, 0, "cannot be opened");
        if (device)
            ibv_close_device(device);
        return;
    }
    for (int port = 1; port <= limits.phys_port_cnt; port++)
        best |= port_look(choice, device, port);
    if (!best) {
        ibv_close_device(device);
        return;
    }
    if (t->device)
        ibv_close_device(t->device);
    t->device = device;
    t->limits = limits;
}

static int choose(halay_transport_t *t)
{
    hly_verbs_choice_t choice = {.t = t};
    int many = 0;
    struct ibv_device **list = ibv_get_device_list(&many);
    if (getifaddrs(&choice.interfaces))
        choice.interfaces = NULL; /* then no GID is near */
    for (int i = 0; list && i < many; i++)
        device_look(&choice, list[i]);
    if (choice.interfaces)
        freeifaddrs(choice.interfaces);
    if (list)
        ibv_free_device_list(list);
    if (t->device)
        return HALAY_OK;
    if (many == 0)
        return hly_meet_error(&t->meet, HALAY_ETRANSPORT,
                              "this host has no RDMA device that a program may use (ibv_devices "
                              "shows what there is, /dev/infiniband/uverbs* has to be readable); "
                              "HALAY_TRANSPORT=shm+tcp does without");
    return hly_meet_error(&t->meet, HALAY_ETRANSPORT,
                          "no RDMA port here can be used (%s): ibv_devinfo -v shows ports and "
                          "GIDs, HALAY_VERBS=device=NAME:PORT,gid=INDEX names them, "
                          "HALAY_TRANSPORT=shm+tcp does without",
                          *choice.seen ? choice.seen : "none has the name that was set");
}

/* Queues: one of completions and one of receive requests. */
static int queues_open(halay_transport_t *t)
{
    struct ibv_srq_init_attr init = {.attr = {.max_sge = 1}};
    t->queue = HLY_VERBS_QUEUE;
    if (t->limits.max_srq_wr > 0 && (uint32_t)t->limits.max_srq_wr < t->queue)
        t->queue = (uint32_t)t->limits.max_srq_wr;
    init.attr.max_wr = t->queue;
    t->cq_room = 1024;
    t->pd = ibv_alloc_pd(t->device);
    t->channel = ibv_create_comp_channel(t->device);
    if (!t->pd || !t->channel)
        return -1;
    t->cq = ibv_create_cq(t->device, t->cq_room, t, t->channel, 0);
    t->srq = ibv_create_srq(t->pd, &init);
    if (!t->cq || !t->srq)
        return -1;
    return fcntl(t->channel->fd, F_SETFL, O_NONBLOCK) ||
           fcntl(t->device->async_fd, F_SETFL, O_NONBLOCK);
}

int hly_verbs_device_open(halay_transport_t *t)
{
    char gid[INET6_ADDRSTRLEN] = "";
    int rc = choose(t);
    if (rc)
        return rc;
    t->mtu = t->port.active_mtu;
    t->most = t->port.max_msg_sz < 1u << 30 ? t->port.max_msg_sz : 1u << 30;
    if (t->settings.mtu > 0 && hly_verbs_mtu_number(t->settings.mtu) < t->mtu)
        t->mtu = hly_verbs_mtu_number(t->settings.mtu);
    if (queues_open(t))
        return hly_meet_error(&t->meet, HALAY_ETRANSPORT,
                              "%s gives no queues: %s; check the limits on locked memory (ulimit "
                              "-l), open files (ulimit -n) and of the control group (rdma.max), or "
                              "say HALAY_TRANSPORT=shm+tcp",
                              t->name, strerror(errno));
    inet_ntop(AF_INET6, t->gids[0].raw, gid, sizeof(gid));
    hly_meet_log(&t->meet, 2, "%s, GID %d %s (of %d that may serve), MTU %d, link %s", t->name,
                 t->gids[0].index, gid, t->ngids, hly_verbs_mtu_bytes(t->mtu),
                 t->port.link_layer == IBV_LINK_LAYER_ETHERNET ? "Ethernet" : "InfiniBand");
    return HALAY_OK;
}

/* Most end by themselves in errors of queue pairs; what is said here says why. */
void hly_verbs_device_look(halay_transport_t *t)
{
    struct ibv_async_event event;
    for (int i = 0; i < HLY_VERBS_BATCH && ibv_get_async_event(t->device, &event) == 0; i++) {
        int port =
            event.event_type == IBV_EVENT_PORT_ERR || event.event_type == IBV_EVENT_PORT_ACTIVE;
        if (event.event_type == IBV_EVENT_DEVICE_FATAL || event.event_type == IBV_EVENT_CQ_ERR ||
            event.event_type == IBV_EVENT_SRQ_ERR)
            t->meet.error = hly_meet_error(&t->meet, HALAY_ETRANSPORT, "%s has failed: %s", t->name,
                                           ibv_event_type_str(event.event_type));
        else if (port && event.element.port_num == t->port_number)
            hly_meet_log(&t->meet, 1, "%s: %s%s", t->name, ibv_event_type_str(event.event_type),
                         event.event_type == IBV_EVENT_PORT_ERR
                             ? ": no peer is reached till its link is up (ip link, rdma link)"
                             : "");
        ibv_ack_async_event(&event);
    }
}
