/* SPDX-License-Identifier: Apache-2.0 */
/* host.c - the host itself, and the network that is there without RDMA. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "doctor.h"

void hly_probe_host(const struct hly_probe *p)
{
    char release[96], text[4096], cpus[128], room[32];
    hly_read(p, release, sizeof release, "/proc/sys/kernel/osrelease");
    hly_read(p, text, sizeof text, "/proc/self/status");
    hly_line(text, "Cpus_allowed_list", cpus, sizeof cpus);
    hly_find(p->report, HLY_GOOD, "host", "", "Linux %s, %s of memory, processors %s",
             *release ? release : "?", hly_bytes_text(hly_memory_bytes(p), room),
             *cpus ? cpus : "?");
    hly_fact(p->report, "Halay", "%s", halay_version());
}

/* /proc/net/route: interface, destination, gateway, flags, two more, metric, mask. */
static bool default_route(const struct hly_probe *p, char name[64])
{
    char text[65536], *rest = text;
    unsigned long best = ~0ul;
    name[0] = '\0';
    hly_read(p, text, sizeof text, "/proc/net/route");
    for (char *line; (line = strsep(&rest, "\n"));) {
        char *field[8] = {NULL};
        for (int i = 0; i < 8 && line; i++)
            field[i] = strsep(&line, "\t");
        if (!field[7] || strcmp(field[1], "00000000") || strcmp(field[7], "00000000"))
            continue;
        unsigned long metric = strtoul(field[6], NULL, 10);
        if (metric < best) {
            best = metric;
            snprintf(name, 64, "%.63s", field[0]);
        }
    }
    return *name;
}

const char *hly_interface(const struct hly_probe *p, char name[64])
{
    const char *named = getenv("HALAY_INTERFACE");
    struct hly_names all;
    char state[32];
    if (named && *named) {
        snprintf(name, 64, "%s", named);
        return "HALAY_INTERFACE names it";
    }
    if (default_route(p, name))
        return "it has the default route";
    int n = hly_list(p, &all, "/sys/class/net");
    for (int i = 0; i < n; i++) {
        hly_read(p, state, sizeof state, "/sys/class/net/%s/operstate", all.name[i]);
        if (strcmp(all.name[i], "lo") && !strcmp(state, "up")) {
            snprintf(name, 64, "%s", all.name[i]);
            return "it is the first that is up, and there is no default route";
        }
    }
    return "there is none but loopback";
}

void hly_probe_network(const struct hly_probe *p)
{
    char name[64], state[32], mtu[32], speed[32], rate[64] = "";
    struct hly_finding *f;
    struct hly_names all;
    const char *why = hly_interface(p, name);
    if (hly_list(p, &all, "/sys/class") < 1) {
        f = hly_find(p->report, HLY_NOTE, "net.interface", "", "unknown: /sys is not mounted");
        hly_advise(f, "Interfaces and RDMA devices cannot be looked at, nor does UCX find them.",
                   "mount -t sysfs sysfs /sys");
        return;
    }
    if (!*name) {
        f = hly_find(p->report, HLY_NOTE, "net.interface", "", "%s", why);
        hly_advise(f, "Ranks of other nodes cannot reach this one.",
                   "take a network interface up: ip link; ip address");
        return;
    }
    if (!hly_read(p, state, sizeof state, "/sys/class/net/%s/operstate", name)) {
        f = hly_find(p->report, HLY_ERROR, "net.interface", name,
                     "there is no such interface, and %s", why);
        hly_advise(f, "No rank can listen for the others.",
                   "HALAY_INTERFACE=one of those that ip link lists, or take it away");
        return;
    }
    hly_read(p, mtu, sizeof mtu, "/sys/class/net/%s/mtu", name);
    if (hly_read(p, speed, sizeof speed, "/sys/class/net/%s/speed", name) && *speed != '-')
        snprintf(rate, sizeof rate, ", %.20s Mb/s", speed);
    hly_fact(p->report, "the interface's MTU", "%s", mtu);
    if (!strcmp(state, "up") || !strcmp(state, "unknown")) {
        hly_find(p->report, HLY_GOOD, "net.interface", name, "ranks listen there, for %s; MTU %s%s",
                 why, mtu, rate);
        return;
    }
    f = hly_find(p->report, HLY_ERROR, "net.interface", name, "it is %s, and %s", state, why);
    hly_advise(f, "Ranks listen there, and ranks of other nodes cannot reach them.",
               "ip link set %s up; or name another one by HALAY_INTERFACE", name);
}
