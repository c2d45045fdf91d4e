/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ports.c - which ports serve, with which GIDs: all ports of all devices are looked at, rails.c
 * chooses, and the devices of those that it chose stay open.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "verbs.h"

enum { LOOKED_AT = HLY_VERBS_PORTS };

/* What has been seen so far. */
typedef struct hly_verbs_look {
    halay_transport_t *t;
    struct ifaddrs *interfaces;
    struct ibv_context *opened[LOOKED_AT]; /* candidate.device is a place in it */
    struct ibv_device_attr limits[LOOKED_AT];
    int nopened, n;
    hly_verbs_candidate_t all[HLY_VERBS_PORTS];
    hly_verbs_numa_t numa;
    char cpus[1024];
    char seen[HLY_VERBS_TEXT]; /* what is wrong with others: "rxe0/1 is down, " */
} hly_verbs_look_t;

static void seen_add(hly_verbs_look_t *look, const char *name, int port, const char *what)
{
    size_t length = strlen(look->seen);
    snprintf(look->seen + length, sizeof(look->seen) - length, "%s%s/%d %s", length ? ", " : "",
             name, port, what);
}

/* ------------------------------------------------------------------ the kernel's files */

/* The first line of a file. Returns 0 where there is none, and text is empty. */
static int line_read(char *text, size_t bytes, const char *folder, const char *name)
{
    char path[512];
    *text = 0;
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *file = fopen(path, "re");
    int there = file && fgets(text, (int)bytes, file) != NULL;
    if (file)
        fclose(file);
    return there;
}

static void numa_read(hly_verbs_look_t *look)
{
    static const char folder[] = "/sys/devices/system/node";
    static const char key[] = "Cpus_allowed_list:";
    hly_verbs_numa_t *numa = &look->numa;
    char line[1024], name[64];
    const char *rest = line;
    int first, last;
    line_read(line, sizeof(line), folder, "online");
    while (hly_verbs_list_next(&rest, &first, &last)) {
        for (int i = first; i <= last && numa->n < HLY_VERBS_NODES; i++) {
            numa->node[numa->n] = i;
            snprintf(name, sizeof(name), "node%d/cpulist", i);
            line_read(numa->cpus[numa->n], sizeof(numa->cpus[0]), folder, name);
            snprintf(name, sizeof(name), "node%d/distance", i);
            line_read(numa->distances[numa->n++], sizeof(numa->distances[0]), folder, name);
        }
    }
    FILE *file = fopen("/proc/self/status", "re");
    while (file && fgets(line, sizeof(line), file)) {
        if (strncmp(line, key, sizeof(key) - 1) == 0)
            snprintf(look->cpus, sizeof(look->cpus), "%s", line + sizeof(key) - 1);
    }
    if (file)
        fclose(file);
}

/* Where a port is, and how fast. */
static void place_read(hly_verbs_look_t *look, const struct ibv_device *device, int port,
                       hly_verbs_candidate_t *one)
{
    char path[PATH_MAX], name[64], line[64];
    snprintf(path, sizeof(path), "%.200s/device", device->ibdev_path);
    char *real = realpath(path, NULL); /* Soft-RoCE has none */
    snprintf(one->place, sizeof(one->place), "%s", real ? real : "");
    free(real);
    one->distance = hly_verbs_distance(
        &look->numa, look->cpus,
        line_read(line, sizeof(line), path, "numa_node") ? (int)strtol(line, NULL, 10) : -1);
    snprintf(name, sizeof(name), "ports/%d/rate", port);
    line_read(line, sizeof(line), device->ibdev_path, name);
    one->port.speed_mbs = (uint32_t)(strtod(line, NULL) * 1000); /* "100 Gb/sec (4X EDR)" */
}

/* ------------------------------------------------------------------ GIDs */

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
static int gids_read(const hly_verbs_look_t *look, struct ibv_context *device, int port, int many,
                     hly_verbs_gid_t gids[HLY_VERBS_GIDS])
{
    static const uint8_t types[] = {[IBV_GID_TYPE_IB] = HLY_VERBS_IB,
                                    [IBV_GID_TYPE_ROCE_V1] = HLY_VERBS_ROCE1,
                                    [IBV_GID_TYPE_ROCE_V2] = HLY_VERBS_ROCE2};
    const int forced = look->t->settings.gid;
    struct ibv_gid_entry entry;
    int n = 0;
    for (int i = 0; i < many && i < 256; i++) {
        if ((forced >= 0 && i != forced) ||
            ibv_query_gid_ex(device, (uint32_t)port, (uint32_t)i, &entry, 0) ||
            entry.gid_type > IBV_GID_TYPE_ROCE_V2)
            continue;
        hly_verbs_gid_t gid = {.index = (uint8_t)i, .type = types[entry.gid_type]};
        memcpy(gid.raw, entry.gid.raw, sizeof(gid.raw));
        gid.prefix = prefix_of(look->interfaces, gid.raw);
        if (gid.type == HLY_VERBS_ROCE1 && forced < 0)
            continue;
        int at = n;
        while (at > 0 && near_of(look->t, &gid) > near_of(look->t, &gids[at - 1]))
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

/* ------------------------------------------------------------------ ports */

static void port_look(hly_verbs_look_t *look, int device, int port)
{
    const halay_transport_t *t = look->t;
    struct ibv_context *context = look->opened[device];
    const char *name = ibv_get_device_name(context->device);
    hly_verbs_candidate_t *one = &look->all[look->n];
    struct ibv_port_attr attr;
    if ((t->settings.port > 0 && port != t->settings.port) || look->n == HLY_VERBS_PORTS ||
        ibv_query_port(context, (uint8_t)port, &attr))
        return;
    if (attr.state != IBV_PORT_ACTIVE) {
        seen_add(look, name, port, attr.state == IBV_PORT_DOWN ? "is down" : "is not active yet");
        return;
    }
    *one = (hly_verbs_candidate_t){.device = device,
                                   .port = {.mtu = attr.active_mtu,
                                            .lid = attr.lid,
                                            .port = (uint32_t)port,
                                            .type = attr.link_layer}};
    int n = gids_read(look, context, port, attr.gid_tbl_len, one->port.gids);
    if (n == 0) {
        seen_add(look, name, port, t->settings.gid < 0 ? "has no GID" : "has no such GID");
        return;
    }
    if (t->settings.mtu > 0 && hly_verbs_mtu_number(t->settings.mtu) < (int)one->port.mtu)
        one->port.mtu = (uint32_t)hly_verbs_mtu_number(t->settings.mtu);
    snprintf(one->port.name, sizeof(one->port.name), "%.15s", name);
    one->port.ngids = (uint32_t)n;
    one->near = near_of(t, &one->port.gids[0]);
    place_read(look, context->device, port, one);
    look->n++;
}

static void device_look(hly_verbs_look_t *look, struct ibv_device *one)
{
    const halay_transport_t *t = look->t;
    const char *name = ibv_get_device_name(one);
    const int place = look->nopened, before = look->n;
    if (one->transport_type != IBV_TRANSPORT_IB || place == LOOKED_AT ||
        (*t->settings.device && strcmp(name, t->settings.device) != 0))
        return;
    struct ibv_context *context = look->opened[place] = ibv_open_device(one);
    if (!context || ibv_query_device(context, &look->limits[place]))
        seen_add(look, name, 0, "cannot be opened");
    for (int port = 1; context && port <= look->limits[place].phys_port_cnt; port++)
        port_look(look, place, port);
    if (look->n > before)
        look->nopened++;
    else if (context)
        ibv_close_device(context);
}

/* ------------------------------------------------------------------ rails */

/* A device is opened once, also for two of its ports. */
static int device_of(hly_verbs_look_t *look, int place)
{
    halay_transport_t *t = look->t;
    int i = 0;
    while (i < t->ndevices && t->devices[i].context != look->opened[place])
        i++;
    if (i == t->ndevices) {
        t->devices[i].context = look->opened[place];
        t->devices[i].limits = look->limits[place];
        t->ndevices++;
    }
    return i;
}

static void rail_add(hly_verbs_look_t *look, const hly_verbs_candidate_t *one)
{
    halay_transport_t *t = look->t;
    hly_verbs_rail_t *rail = &t->rails[t->nrails++];
    const hly_verbs_gid_t *gid = &one->port.gids[0];
    char text[INET6_ADDRSTRLEN] = "";
    rail->device = device_of(look, one->device);
    rail->port = one->port;
    rail->port.device = (uint32_t)rail->device;
    snprintf(rail->name, sizeof(rail->name), "%.48s/%u",
             ibv_get_device_name(look->opened[one->device]->device), one->port.port);
    /* It was asked for before, and answered. */
    ibv_query_port(look->opened[one->device], (uint8_t)one->port.port, &rail->attr);
    if (rail->attr.max_msg_sz < t->most)
        t->most = rail->attr.max_msg_sz;
    inet_ntop(AF_INET6, gid->raw, text, sizeof(text));
    hly_meet_log(
        &t->meet, 2, "%s, GID %d %s (of %u that may serve), MTU %d, link %s, %u Mb/s, distance %d",
        rail->name, gid->index, text, one->port.ngids, hly_verbs_mtu_bytes((int)one->port.mtu),
        one->port.type == IBV_LINK_LAYER_ETHERNET ? "Ethernet" : "InfiniBand", one->port.speed_mbs,
        one->distance);
}

static void rails_make(hly_verbs_look_t *look)
{
    halay_transport_t *t = look->t;
    int n = hly_verbs_rails_choose(look->all, look->n, t->settings.rails, t->local_rank);
    t->most = 1u << 30;
    for (int i = 0; i < n; i++) {
        rail_add(look, &look->all[i]);
        size_t length = strlen(t->over);
        snprintf(t->over + length, sizeof(t->over) - length, "%s%s", i ? ", " : "",
                 t->rails[i].name);
    }
    if (look->n > 1)
        hly_meet_log(&t->meet, 2, "rails: %s (%d of %d active ports)", t->over, n, look->n);
    for (int i = 0; i < look->nopened; i++) {
        int used = 0;
        for (int k = 0; k < t->ndevices; k++)
            used |= t->devices[k].context == look->opened[i];
        if (!used)
            ibv_close_device(look->opened[i]);
    }
}

int hly_verbs_ports_open(halay_transport_t *t)
{
    hly_verbs_look_t *look = calloc(1, sizeof(*look));
    int many = 0, rc = HALAY_OK;
    if (!look)
        return HALAY_ENOMEM;
    look->t = t;
    struct ibv_device **list = ibv_get_device_list(&many);
    if (getifaddrs(&look->interfaces))
        look->interfaces = NULL; /* then no GID is near */
    numa_read(look);
    for (int i = 0; list && i < many; i++)
        device_look(look, list[i]);
    if (look->n > 0)
        rails_make(look);
    if (look->interfaces)
        freeifaddrs(look->interfaces);
    if (list)
        ibv_free_device_list(list);
    if (many == 0)
        rc = hly_meet_error(&t->meet, HALAY_ETRANSPORT,
                            "this host has no RDMA device that a program may use (ibv_devices "
                            "shows what there is, /dev/infiniband/uverbs* has to be readable); "
                            "HALAY_TRANSPORT=shm+tcp does without");
    else if (t->nrails == 0)
        rc = hly_meet_error(&t->meet, HALAY_ETRANSPORT,
                            "no RDMA port here can be used (%s): ibv_devinfo -v shows ports and "
                            "GIDs, HALAY_VERBS=device=NAME:PORT,gid=INDEX names them, "
                            "HALAY_TRANSPORT=shm+tcp does without",
                            *look->seen ? look->seen : "none has the name that was set");
    free(look);
    return rc;
}
