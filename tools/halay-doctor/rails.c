/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rails.c - which ports a rank would use. The rule is that of transports/verbs
 * (docs/decisions/transports.md#0029), seen from one end and from the first rank of a node.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "rdma.h"

enum { RAILS = 4, NEAR = 10, CPUS = 4096, NODES = 64 };

struct cpus {
    bool has[CPUS];
};

/* ---------------------------------------------------------------- where a port is */

/* "0-3,16-19" */
static void cpus_read(const char *text, struct cpus *cpus)
{
    char *end;
    memset(cpus, 0, sizeof *cpus);
    while (*text) {
        long first = strtol(text, &end, 10), last = first;
        if (end == text)
            return;
        if (*end == '-')
            last = strtol(end + 1, &end, 10);
        for (long i = first < 0 ? 0 : first; i <= last && i < CPUS; i++)
            cpus->has[i] = true;
        text = end + (*end == ',');
    }
}

static bool share_one(const struct cpus *a, const struct cpus *b)
{
    for (int i = 0; i < CPUS; i++)
        if (a->has[i] && b->has[i])
            return true;
    return false;
}

/* From the nearest node of NUMA where this process may run. */
static int distance_of(const struct hly_probe *p, const char *device)
{
    struct cpus mine, here;
    char text[4096], list[2048], node[32];
    int place = -1, best = 0;
    if (!hly_read(p, node, sizeof node, "/sys/class/infiniband/%s/device/numa_node", device))
        return NEAR;
    for (int i = 0; i <= strtol(node, NULL, 10) && i < NODES; i++)
        place += hly_read(p, text, sizeof text, "/sys/devices/system/node/node%d/distance", i);
    hly_read(p, text, sizeof text, "/proc/self/status");
    hly_line(text, "Cpus_allowed_list", list, sizeof list);
    cpus_read(list, &mine);
    for (int i = 0; i < NODES && place >= 0; i++) {
        char *row = text;
        hly_read(p, list, sizeof list, "/sys/devices/system/node/node%d/cpulist", i);
        cpus_read(list, &here);
        if (!share_one(&mine, &here) ||
            !hly_read(p, text, sizeof text, "/sys/devices/system/node/node%d/distance", i))
            continue;
        for (int k = 0; k < place; k++)
            strtol(row, &row, 10);
        int distance = (int)strtol(row, NULL, 10);
        best = distance > 0 && (!best || distance < best) ? distance : best;
    }
    return best ? best : NEAR;
}

/* The subnet: of InfiniBand its prefix; of IPv4 what /proc/net/route says; else the interface. */
static void net_read(const struct hly_probe *p, struct hly_port *port)
{
    char text[65536], *rest = text;
    struct in_addr address;
    if (!port->ethernet) {
        hly_read(p, text, 20, "/sys/class/infiniband/%s/ports/%d/gids/0", port->device,
                 port->number);
        snprintf(port->net, sizeof port->net, "ib %.20s", text);
        return;
    }
    snprintf(port->net, sizeof port->net, "%s", port->gid.interface);
    if (inet_pton(AF_INET, port->gid.text, &address) != 1)
        return;
    hly_read(p, text, sizeof text, "/proc/net/route");
    const size_t length = strlen(port->gid.interface);
    for (char *line; (line = strsep(&rest, "\n"));) {
        unsigned long v[7]; /* destination, gateway, flags, two more, metric, mask */
        if (strncmp(line, port->gid.interface, length) != 0 || line[length] != '\t')
            continue;
        line += length;
        for (int i = 0; i < 7; i++)
            v[i] = strtoul(line, &line, 16);
        if (v[6] && !v[1] && (address.s_addr & v[6]) == v[0])
            snprintf(port->net, sizeof port->net, "%lx/%lx", v[0], v[6]);
    }
}

static void place_read(const struct hly_probe *p, struct hly_port *port)
{
    char path[4096];
    snprintf(path, sizeof path, "%.2000s/sys/class/infiniband/%s/device", p->root, port->device);
    char *real = realpath(path, NULL); /* Soft-RoCE has none */
    snprintf(port->place, sizeof port->place, "%s", real ? real : "");
    free(real);
    port->speed_mbs = (unsigned long)(strtod(port->rate, NULL) * 1000); /* "100 Gb/sec (4X EDR)" */
    port->distance = distance_of(p, port->device);
    net_read(p, port);
}

/* ---------------------------------------------------------------- which serve */

static bool usable(const struct hly_port *port)
{
    return port->active && (!port->ethernet || port->gid.kind <= GID_LINK_LOCAL);
}

static bool routable(const struct hly_port *port)
{
    return !port->ethernet || port->gid.kind <= GID_IPV6;
}

static int by_worth(const void *a, const void *b)
{
    const struct hly_port *x = *(struct hly_port *const *)a, *y = *(struct hly_port *const *)b;
    if (!x->against != !y->against)
        return !y->against - !x->against;
    if (x->distance != y->distance)
        return x->distance - y->distance;
    if (x->speed_mbs != y->speed_mbs)
        return x->speed_mbs < y->speed_mbs ? 1 : -1;
    if (x->gid.kind != y->gid.kind)
        return (int)x->gid.kind - (int)y->gid.kind;
    int order = strcmp(x->place, y->place);
    if (!order)
        order = strcmp(x->device, y->device);
    return order ? order : x->number - y->number;
}

/* Those that the others are too good for, whatever their subnet. */
static void leave_poor(struct hly_port *ports[], int n)
{
    bool reach = false;
    unsigned long fastest = 0;
    for (int i = 0; i < n; i++)
        reach |= routable(ports[i]);
    for (int i = 0; i < n; i++)
        if (routable(ports[i]) == reach && ports[i]->speed_mbs > fastest)
            fastest = ports[i]->speed_mbs;
    for (int i = 0; i < n; i++) {
        if (routable(ports[i]) != reach)
            ports[i]->against = "it has link-local addresses only";
        else if (ports[i]->speed_mbs < fastest / 2)
            ports[i]->against = "it is less than half as fast as another";
    }
}

/* Each against the best of its subnet, which stands before it. */
static void leave_worse(struct hly_port *ports[], int n)
{
    for (int i = 0; i < n; i++) {
        const struct hly_port *best = ports[i];
        for (int k = i; k-- > 0;)
            if (!ports[k]->against && !strcmp(ports[k]->net, ports[i]->net))
                best = ports[k];
        if (ports[i]->against)
            continue;
        if (ports[i]->distance != best->distance)
            ports[i]->against = "another one of its subnet is nearer";
        else if (ports[i]->speed_mbs != best->speed_mbs)
            ports[i]->against = "another one of its subnet is faster";
    }
}

/* Where there are too many, those of the subnet at which ranks listen go first. */
static void leave_many(struct hly_port *ports[], int n)
{
    const struct hly_port *home = ports[0];
    int left = RAILS, good = 0;
    for (int i = 0; i < n; i++) {
        good += !ports[i]->against;
        if (!ports[i]->against && ports[i]->gid.kind < home->gid.kind)
            home = ports[i];
    }
    for (int turn = 0; turn < 2 && good > RAILS; turn++)
        for (int i = 0; i < n; i++)
            if (!ports[i]->against && !strcmp(ports[i]->net, home->net) == !turn && left-- <= 0)
                ports[i]->against = "four are the most that one rank uses; others begin elsewhere";
}

/* ---------------------------------------------------------------- what is told */

static void tell_set(const struct hly_probe *p)
{
    const char *named = getenv("HALAY_VERBS");
    if (!named || !*named)
        return;
    struct hly_finding *f =
        hly_find(p->report, HLY_NOTE, "rdma.choice", "", "HALAY_VERBS is set: %.200s", named);
    hly_advise(f, "What it names is used in place of what would be chosen.",
               "unset HALAY_VERBS, unless it was set for a reason");
}

/* "GID index 1 (10.0.0.1)" */
static void gid_add(char *text, size_t bytes, const struct hly_port *port)
{
    size_t length = strlen(text);
    if (port->ethernet)
        snprintf(text + length, bytes - length, "%sGID index %d (%s)", length ? ", " : "",
                 port->gid.index, port->gid.text);
}

static void tell_rails(const struct hly_probe *p, struct hly_port *ports[], int n)
{
    char names[RAILS * 80] = "", gids[256] = "";
    int rails = 0;
    for (int i = 0; i < n; i++) {
        const size_t length = strlen(names);
        if (ports[i]->against)
            continue;
        snprintf(names + length, sizeof names - length, "%s%s", length ? ", " : "", ports[i]->name);
        gid_add(gids, sizeof gids, ports[i]);
        rails++;
    }
    hly_find(p->report, HLY_GOOD, "rdma.choice", names, "would be used, %s%s%s%d port%s%s",
             *gids ? "with " : "", gids, *gids ? ", the best of " : "the best of ", n,
             n == 1 ? "" : "s", rails > 1 ? ": messages over the first, large data over all" : "");
    for (int i = 0; i < n; i++)
        if (ports[i]->against)
            hly_find(p->report, HLY_GOOD, "rdma.rail", ports[i]->name,
                     "is left out: %s (%lu Mb/s, distance %d)", ports[i]->against,
                     ports[i]->speed_mbs, ports[i]->distance);
}

void hly_tell_rails(const struct hly_probe *p, struct hly_ports *all)
{
    struct hly_port *ports[HLY_PORTS];
    int n = 0;
    for (int i = 0; i < all->n; i++) {
        if (!usable(&all->port[i]))
            continue;
        ports[n] = &all->port[i];
        place_read(p, ports[n++]);
    }
    if (n == 0)
        return;
    tell_set(p);
    leave_poor(ports, n);
    qsort(ports, (size_t)n, sizeof(struct hly_port *), by_worth);
    leave_worse(ports, n);
    leave_many(ports, n);
    tell_rails(p, ports, n);
}
