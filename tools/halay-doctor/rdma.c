/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rdma.c - RDMA devices and their ports: state, addresses (GIDs), MTU.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "rdma.h"

enum { GIDS_MAX = 256 };

static const char *const gid_words[] = {
    "an IPv4 address of the interface at which ranks listen",
    "an IPv4 address, though not of the interface at which ranks listen",
    "a global IPv6 address; there is no IPv4 one",
    "a link-local address: there is no other",
};

bool hly_has_rdma(const struct hly_probe *p)
{
    struct hly_names names;
    return hly_list(p, &names, "/sys/class/infiniband") > 0;
}

/* ---------------------------------------------------------------- addresses */

static enum hly_gid_kind gid_kind(const struct in6_addr *gid, const char *type, bool near)
{
    static const struct in6_addr none;
    if (!memcmp(gid, &none, sizeof none))
        return GID_NONE;
    if (!strstr(type, "v2"))
        return GID_V1;
    if (IN6_IS_ADDR_V4MAPPED(gid))
        return near ? GID_NEAR_IPV4 : GID_IPV4;
    return IN6_IS_ADDR_LINKLOCAL(gid) ? GID_LINK_LOCAL : GID_IPV6;
}

static struct hly_gid gid_read(const struct hly_probe *p, const struct hly_port *port, int index,
                               const char *listens)
{
    struct hly_gid gid = {.kind = GID_NONE, .index = index};
    struct in6_addr address;
    char text[64], type[32];
    const char *device = port->device;
    if (!hly_read(p, text, sizeof text, "/sys/class/infiniband/%s/ports/%d/gids/%d", device,
                  port->number, index) ||
        inet_pton(AF_INET6, text, &address) != 1)
        return gid;
    hly_read(p, type, sizeof type, "/sys/class/infiniband/%s/ports/%d/gid_attrs/types/%d", device,
             port->number, index);
    hly_read(p, gid.interface, sizeof gid.interface,
             "/sys/class/infiniband/%s/ports/%d/gid_attrs/ndevs/%d", device, port->number, index);
    gid.kind = gid_kind(&address, type, *listens && !strcmp(gid.interface, listens));
    if (IN6_IS_ADDR_V4MAPPED(&address))
        inet_ntop(AF_INET, address.s6_addr + 12, gid.text, sizeof gid.text);
    else
        inet_ntop(AF_INET6, &address, gid.text, sizeof gid.text);
    return gid;
}

/* The best one; of equal ones the first. */
static struct hly_gid gid_choose(const struct hly_probe *p, const struct hly_port *port)
{
    char listens[64];
    struct hly_gid best = {.kind = GID_NONE};
    hly_interface(p, listens);
    for (int i = 0; i < GIDS_MAX; i++) { /* the folder may have a thousand, nearly all empty */
        struct hly_gid gid = gid_read(p, port, i, listens);
        if (gid.kind < best.kind)
            best = gid;
    }
    return best;
}

/* The port is Ethernet and active. */
static void tell_gid(const struct hly_probe *p, const struct hly_port *port)
{
    const struct hly_gid *gid = &port->gid;
    struct hly_finding *f;
    if (gid->kind <= GID_IPV6) {
        hly_find(p->report, HLY_GOOD, "rdma.gid", port->name, "GID index %d, RoCE v2, %s on %s: %s",
                 gid->index, gid->text, *gid->interface ? gid->interface : "?",
                 gid_words[gid->kind]);
    } else if (gid->kind == GID_LINK_LOCAL) {
        f = hly_find(p->report, HLY_WARNING, "rdma.gid", port->name,
                     "there are link-local GIDs only (%s at index %d)", gid->text, gid->index);
        hly_advise(f,
                   "Such an address is good inside one Ethernet segment only: nodes behind a "
                   "router are not reached.",
                   "give the interface an address: ip address add 10.0.0.1/24 dev %s (its own on "
                   "each node)",
                   *gid->interface ? gid->interface : "IFACE");
    } else if (gid->kind == GID_V1) {
        f = hly_find(p->report, HLY_ERROR, "rdma.gid", port->name,
                     "there are RoCE v1 GIDs only (index %d)", gid->index);
        hly_advise(f,
                   "RoCE v1 cannot be routed, and Halay does not use it: this port carries "
                   "nothing.",
                   "turn RoCE v2 on: cma_roce_mode -d %s -p %d -m 2, or the driver's setting; then "
                   "look at /sys/class/infiniband/%s/ports/%d/gid_attrs/types",
                   port->device, port->number, port->device, port->number);
    } else {
        f = hly_find(p->report, HLY_ERROR, "rdma.gid", port->name, "there is no GID");
        hly_advise(f, "Without an address no other node can be told where to write.",
                   "take the port's network interface up and give it an address: ip link set IFACE "
                   "up; ip address add ...");
    }
}

/* ---------------------------------------------------------------- ports */

/* The kernel's own rule: what is left of a packet without any possible header, rounded down. */
static int path_mtu(int interface_mtu)
{
    int room = interface_mtu - 96, mtu = 4096;
    while (mtu > room)
        mtu /= 2;
    return mtu < 256 ? 0 : mtu;
}

static void tell_mtu(const struct hly_probe *p, struct hly_port *port)
{
    char text[32];
    if (!*port->gid.interface ||
        !hly_read(p, text, sizeof text, "/sys/class/net/%s/mtu", port->gid.interface))
        return;
    int mtu = (int)strtol(text, NULL, 10);
    port->mtu = path_mtu(mtu);
    struct hly_finding *f = hly_find(p->report, port->mtu >= 4096 ? HLY_GOOD : HLY_NOTE, "rdma.mtu",
                                     port->name, "packets of %d bytes, for the MTU of %s is %d",
                                     port->mtu, port->gid.interface, mtu);
    if (port->mtu < 4096)
        hly_advise(f, "Larger packets cost less a byte; RDMA uses up to 4096 bytes.",
                   "on all nodes, and on the switches first: ip link set %s mtu 4200 (or 9000)",
                   port->gid.interface);
    hly_fact(p->report, "RDMA packets", "%d bytes", port->mtu);
}

/* A port that is down has no address that would name its interface. */
static void interface_of(const struct hly_probe *p, const char *device, char name[64])
{
    struct hly_names all;
    if (hly_read(p, name, 64, "/sys/class/infiniband/%s/parent", device)) /* Soft-RoCE */
        return;
    hly_list(p, &all, "/sys/class/infiniband/%s/device/net", device);
    snprintf(name, 64, "%s", all.n == 1 ? all.name[0] : "IFACE");
}

static void tell_state(const struct hly_probe *p, const struct hly_ports *all,
                       const struct hly_port *port)
{
    if (port->active) {
        hly_find(p->report, HLY_GOOD, "rdma.port", port->name, "%s, %s, %s", port->state,
                 port->link, port->rate);
        return;
    }
    bool init = strstr(port->state, "INIT") != NULL;
    char interface[64];
    interface_of(p, port->device, interface);
    struct hly_finding *f = hly_find(p->report, all->nactive ? HLY_WARNING : HLY_ERROR, "rdma.port",
                                     port->name, "%s, %s: the port is not active%s", port->state,
                                     port->link, all->nactive ? "" : ", nor is any other");
    const char *why = all->nactive ? "Nothing goes over this port."
                                   : "Ranks of different nodes fall back to TCP.";
    if (init && !port->ethernet)
        hly_advise(f, why,
                   "the port waits for a subnet manager: start one in this fabric (opensm)");
    else if (port->ethernet)
        hly_advise(f, why, "ip link set %s up; then cable, and the switch's port", interface);
    else
        hly_advise(f, why, "look at cable and switch: ibstat %s; iblinkinfo", port->device);
}

/* A cable with broken lanes still works, at a fraction of its rate. */
static void tell_rate(const struct hly_probe *p, const struct hly_port *port)
{
    if (!port->active || port->ethernet || !strstr(port->rate, "(1X"))
        return;
    struct hly_finding *f =
        hly_find(p->report, HLY_WARNING, "rdma.rate", port->name, "%s: one lane only", port->rate);
    hly_advise(f, "InfiniBand links have 4 lanes as a rule: this one is at a quarter of its rate.",
               "exchange the cable, or reset the port: ibportstate; iblinkinfo");
}

static void port_read(const struct hly_probe *p, const char *device, const char *number,
                      struct hly_port *port)
{
    *port = (struct hly_port){.number = (int)strtol(number, NULL, 10), .gid.kind = GID_NONE};
    snprintf(port->device, sizeof port->device, "%s", device);
    snprintf(port->name, sizeof port->name, "%.50s/%.16s", device, number);
    hly_read(p, port->state, sizeof port->state, "/sys/class/infiniband/%s/ports/%s/state", device,
             number);
    hly_read(p, port->link, sizeof port->link, "/sys/class/infiniband/%s/ports/%s/link_layer",
             device, number);
    hly_read(p, port->rate, sizeof port->rate, "/sys/class/infiniband/%s/ports/%s/rate", device,
             number);
    char *word = strchr(port->state, ' '); /* "4: ACTIVE" */
    if (word)
        memmove(port->state, word + 1, strlen(word));
    port->active = !strcmp(port->state, "ACTIVE");
    port->ethernet = !strcmp(port->link, "Ethernet");
}

/* ---------------------------------------------------------------- devices */

/* Where the files are seen and the device file is not, a container was given half of it. */
static void tell_access(const struct hly_probe *p, const char *device)
{
    struct hly_names verbs;
    char of[64];
    int n = hly_list(p, &verbs, "/sys/class/infiniband_verbs");
    for (int i = 0; i < n; i++) {
        if (!hly_read(p, of, sizeof of, "/sys/class/infiniband_verbs/%s/ibdev", verbs.name[i]) ||
            strcmp(of, device))
            continue;
        if (hly_usable(p, "/dev/infiniband/%s", verbs.name[i]))
            return;
        struct hly_finding *f = hly_find(p->report, HLY_ERROR, "rdma.access", device,
                                         "/dev/infiniband/%s cannot be opened", verbs.name[i]);
        hly_advise(f, "Without it no program of this user can use the device.",
                   "in a container: --device /dev/infiniband; else rights for all (udev rule: "
                   "KERNEL==\"uverbs*\", MODE=\"0666\")");
        return;
    }
    struct hly_finding *f =
        hly_find(p->report, HLY_ERROR, "rdma.access", device,
                 "the kernel offers it to no program: there is no uverbs device");
    hly_advise(f, "Without it no program can use the device.", "modprobe ib_uverbs");
}

static void tell_pci(const struct hly_probe *p, const char *device)
{
    char now[64], most[64], width[16], widest[16];
    static const char base[] = "/sys/class/infiniband/%s/device/%s";
    if (!hly_read(p, now, sizeof now, base, device, "current_link_speed") ||
        !hly_read(p, most, sizeof most, base, device, "max_link_speed") ||
        !hly_read(p, width, sizeof width, base, device, "current_link_width") ||
        !hly_read(p, widest, sizeof widest, base, device, "max_link_width") ||
        (!strcmp(now, most) && !strcmp(width, widest)))
        return;
    struct hly_finding *f = hly_find(p->report, HLY_WARNING, "rdma.pci", device,
                                     "PCI at %s x%s; it could do %s x%s", now, width, most, widest);
    hly_advise(f, "The slot may be slower than the network.",
               "another slot, or the firmware's settings: lspci -vv, LnkSta");
}

static void tell_library(const struct hly_probe *p)
{
    if (*p->root)
        return;
    void *library = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        struct hly_finding *f = hly_find(p->report, HLY_ERROR, "rdma.library", "", "%s", dlerror());
        hly_advise(f, "Halay and UCX reach the device through this library.",
                   "install rdma-core (Debian: libibverbs1 ibverbs-providers)");
        return;
    }
    hly_find(p->report, HLY_GOOD, "rdma.library", "", "libibverbs.so.1 is there");
    dlclose(library);
}

static void tell_none(const struct hly_probe *p)
{
    struct hly_finding *f =
        hly_find(p->report, HLY_WARNING, "rdma.device", "", "there is no RDMA device");
    hly_advise(f, "Ranks of different nodes use TCP, with many times the latency.",
               "is there an adapter (lspci | grep -i -e infiniband -e mellanox)? Load its driver "
               "(mlx5_ib, irdma, bnxt_re). For tests: modprobe rdma_rxe; rdma link add rxe0 type "
               "rxe netdev IFACE");
}

static void tell_mtus(const struct hly_probe *p, const struct hly_ports *all)
{
    const struct hly_port *first = NULL;
    for (int i = 0; i < all->n; i++) {
        const struct hly_port *port = &all->port[i];
        if (!port->mtu)
            continue;
        if (first && first->mtu != port->mtu) {
            struct hly_finding *f =
                hly_find(p->report, HLY_WARNING, "rdma.mtu", port->name,
                         "packets of %d bytes, of %s %d", port->mtu, first->name, first->mtu);
            hly_advise(f, "Between ports of different MTU large packets may vanish without a word.",
                       "the same MTU everywhere, on nodes and switches: ip link set %s mtu ...",
                       port->gid.interface);
            return;
        }
        first = first ? first : port;
    }
}

static void ports_read(const struct hly_probe *p, const struct hly_names *devices,
                       struct hly_ports *all)
{
    struct hly_names numbers;
    for (int d = 0; d < devices->n; d++) {
        int n = hly_list(p, &numbers, "/sys/class/infiniband/%s/ports", devices->name[d]);
        for (int i = 0; i < n && all->n < HLY_PORTS; i++) {
            struct hly_port *port = &all->port[all->n++];
            port_read(p, devices->name[d], numbers.name[i], port);
            all->nactive += port->active;
        }
    }
}

void hly_probe_rdma(const struct hly_probe *p)
{
    struct hly_names devices;
    struct hly_ports all = {0};
    if (!hly_list(p, &devices, "/sys/class/infiniband")) {
        tell_none(p);
        return;
    }
    tell_library(p);
    ports_read(p, &devices, &all);
    for (int d = 0; d < devices.n; d++) {
        tell_access(p, devices.name[d]);
        tell_pci(p, devices.name[d]);
    }
    for (int i = 0; i < all.n; i++) {
        struct hly_port *port = &all.port[i];
        tell_state(p, &all, port);
        tell_rate(p, port);
        if (!port->active || !port->ethernet)
            continue;
        port->gid = gid_choose(p, port);
        tell_gid(p, port);
        tell_mtu(p, port);
    }
    tell_mtus(p, &all);
    hly_tell_rails(p, &all);
}
