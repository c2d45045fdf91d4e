/* SPDX-License-Identifier: Apache-2.0 */
/*
 * listen.c - chooses this host's address and makes the socket that the other ranks connect to.
 *
 * The socket is bound to the one address that the other ranks get, not to all. So a connection over
 * another network cannot reach it.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <assert.h>
#include <dlfcn.h>
#include <errno.h>
#include <glob.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../../src/waits/text.h"
#include "listen.h"
#include "lookup.h"
#include "meet.h"

#define RESOLVER_NS 2000000000ull

enum { BACKLOG = 4096 };

/* ---------------------------------------------------------------- addresses */

bool hly_address_from(const struct sockaddr *from, halay_address_t *address)
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    struct sockaddr_in four;
    struct sockaddr_in6 six;
    memset(address, 0, sizeof *address);
    if (!from)
        return false;
    if (from->sa_family == AF_INET) {
        memcpy(&four, from, sizeof four);
        address->family = AF_INET;
        address->port = four.sin_port;
        memcpy(address->ip, &four.sin_addr, 4);
        return four.sin_addr.s_addr != INADDR_ANY;
    }
    if (from->sa_family != AF_INET6)
        return false;
    memcpy(&six, from, sizeof six);
    address->port = six.sin6_port;
    if (!memcmp(&six.sin6_addr, mapped, sizeof mapped)) {
        address->family = AF_INET;
        memcpy(address->ip, six.sin6_addr.s6_addr + 12, 4);
        return true;
    }
    address->family = AF_INET6;
    memcpy(address->ip, &six.sin6_addr, 16);
    return !IN6_IS_ADDR_LINKLOCAL(&six.sin6_addr) && !IN6_IS_ADDR_UNSPECIFIED(&six.sin6_addr);
}

socklen_t hly_address_to(const halay_address_t *address, struct sockaddr_storage *to)
{
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = address->port};
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = address->port};
    memset(to, 0, sizeof *to);
    if (address->family == AF_INET) {
        memcpy(&four.sin_addr, address->ip, 4);
        memcpy(to, &four, sizeof four);
        return sizeof four;
    }
    assert(address->family == AF_INET6);
    memcpy(&six.sin6_addr, address->ip, 16);
    memcpy(to, &six, sizeof six);
    return sizeof six;
}

bool hly_address_parse(const char *text, halay_address_t *address)
{
    *address = (halay_address_t){.family = strchr(text, ':') ? AF_INET6 : AF_INET};
    return inet_pton(address->family, text, address->ip) == 1;
}

bool hly_address_loopback(const halay_address_t *address)
{
    static const uint8_t one[16] = {[15] = 1};
    return address->family == AF_INET
               ? address->ip[0] == 127
               : address->family == AF_INET6 && !memcmp(address->ip, one, 16);
}

bool hly_address_same_ip(const halay_address_t *a, const halay_address_t *b)
{
    return a->family == b->family && !memcmp(a->ip, b->ip, sizeof a->ip);
}

const char *hly_address_name(const halay_address_t *address, char name[HLY_LISTEN_NAME])
{
    char ip[INET6_ADDRSTRLEN] = "nowhere";
    if (address->family == AF_INET || address->family == AF_INET6)
        inet_ntop(address->family, address->ip, ip, sizeof ip);
    if (address->port)
        snprintf(name, HLY_LISTEN_NAME, address->family == AF_INET6 ? "[%s]:%u" : "%s:%u", ip,
                 (unsigned)ntohs(address->port));
    else
        snprintf(name, HLY_LISTEN_NAME, "%s", ip);
    return name;
}

/* ---------------------------------------------------------------- interfaces */

static bool has(const struct ifaddrs *all, const halay_address_t *address)
{
    halay_address_t it;
    for (const struct ifaddrs *one = all; one; one = one->ifa_next)
        if (one->ifa_flags & IFF_UP && hly_address_from(one->ifa_addr, &it) &&
            hly_address_same_ip(&it, address))
            return true;
    return false;
}

bool hly_address_is_ours(const halay_address_t *address)
{
    struct ifaddrs *all;
    if (getifaddrs(&all))
        return false;
    bool ours = has(all, address);
    freeifaddrs(all);
    return ours;
}

/* True for an interface that a container engine or hypervisor has made: it leads to this host
 * only. */
static bool is_inner(const char *name)
{
    static const char *const prefixes[] = {"docker", "virbr", "podman", "cni", "veth"};
    for (size_t i = 0; i < sizeof prefixes / sizeof prefixes[0]; i++)
        if (!strncmp(name, prefixes[i], strlen(prefixes[i])))
            return true;
    return false;
}

/* Ranks an interface; 0: unusable. wanted NULL: any except loopback; else only the one of that
 * name. */
static int worth(const struct ifaddrs *one, const char *wanted, halay_address_t *address)
{
    if (!(one->ifa_flags & IFF_UP) || !hly_address_from(one->ifa_addr, address))
        return 0;
    if (wanted ? strcmp(one->ifa_name, wanted) != 0 : !!(one->ifa_flags & IFF_LOOPBACK))
        return 0;
    return 1 + (address->family == AF_INET) + (is_inner(one->ifa_name) ? 0 : 2);
}

static bool by_interface(const struct ifaddrs *all, const char *wanted, halay_address_t *address)
{
    int best = 0;
    halay_address_t it;
    for (const struct ifaddrs *one = all; one; one = one->ifa_next) {
        int value = worth(one, wanted, &it);
        if (value > best) {
            best = value;
            *address = it;
        }
    }
    return best > 0;
}

/* "eth0 (10.1.2.3), eth1 (down), ib0 (no address)", with each name once */
static void list_interfaces(const struct ifaddrs *all, struct hly_line *line)
{
    for (const struct ifaddrs *one = all; one; one = one->ifa_next) {
        char state[HLY_LISTEN_NAME] = "down";
        halay_address_t address;
        const struct ifaddrs *before = all;
        while (before != one && strcmp(before->ifa_name, one->ifa_name) != 0)
            before = before->ifa_next;
        if (before != one)
            continue;
        if (one->ifa_flags & IFF_UP)
            strcpy(state, "no address");
        if (by_interface(all, one->ifa_name, &address))
            hly_address_name(&address, state);
        hly_line_put(line, "%s%s (%s)", line->used ? ", " : "", one->ifa_name, state);
    }
}

/* ---------------------------------------------------------------- the choice */

const char *hly_listen_interface(void)
{
    const char *name = getenv("HALAY_INTERFACE");
    return name && *name ? name : NULL;
}

/* Takes the address that this host's own name resolves to, within RESOLVER_NS. */
static bool by_name(const struct ifaddrs *all, halay_address_t *address)
{
    char name[256] = "";
    bool ok = false;
    halay_address_t it;
    const struct addrinfo *f = NULL;
    struct hly_lookup *l = NULL;
    if (!gethostname(name, sizeof name - 1) && name[0])
        l = hly_lookup_start(name);
    if (l && hly_lookup_wait(l, hly_boot_now_ns() + RESOLVER_NS))
        hly_lookup_found(l, &f);
    for (; f; f = f->ai_next) {
        if (!hly_address_from(f->ai_addr, &it) || hly_address_loopback(&it) || !has(all, &it) ||
            (ok && it.family != AF_INET))
            continue;
        *address = it;
        ok = true;
        if (it.family == AF_INET)
            break;
    }
    hly_lookup_end(l);
    return ok;
}

/* Takes the address from which the default route leaves. Connecting a datagram socket sends
 * nothing; the far ends are addresses reserved for documentation. */
static bool by_route(const struct ifaddrs *all, halay_address_t *address)
{
    static const char *const far[] = {"198.51.100.1", "2001:db8::1"};
    for (size_t i = 0; i < 2; i++) {
        halay_address_t to;
        struct sockaddr_storage at;
        hly_address_parse(far[i], &to);
        to.port = htons(9);
        socklen_t bytes = hly_address_to(&to, &at);
        int fd = socket(to.family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        if (fd < 0)
            continue;
        int rc = connect(fd, (struct sockaddr *)&at, bytes);
        bytes = sizeof at;
        rc = rc ? rc : getsockname(fd, (struct sockaddr *)&at, &bytes);
        close(fd);
        if (rc == 0 && hly_address_from((struct sockaddr *)&at, address) &&
            !hly_address_loopback(address) && has(all, address)) {
            address->port = 0;
            return true;
        }
    }
    return false;
}

/* Takes the loopback address: that of IPv4, or of IPv6 if the host has no other. */
static void loopback(const struct ifaddrs *all, halay_address_t *address)
{
    const halay_address_t six = {.family = AF_INET6, .ip = {[15] = 1}};
    *address = (halay_address_t){.family = AF_INET, .ip = {127, 0, 0, 1}};
    if (!has(all, address) && has(all, &six))
        *address = six;
}

int hly_listen_choose(const struct hly_boot_log *log, const char *interface,
                      halay_address_t *address)
{
    struct ifaddrs *all = NULL;
    char name[HLY_LISTEN_NAME], list[400];
    struct hly_line line = hly_line(list, sizeof list);
    const char *how = "the only address there is";
    int rc = HALAY_OK;
    if (getifaddrs(&all))
        all = NULL;
    if (interface) {
        how = "HALAY_INTERFACE names its interface";
        if (!by_interface(all, interface, address)) {
            list_interfaces(all, &line);
            rc = hly_boot_error(
                log, HALAY_EBOOT,
                "HALAY_INTERFACE is '%.64s', but there is no such interface here that is "
                "up and has an address; there are: %s",
                interface, list);
        }
    } else if (by_name(all, address)) {
        how = "this host's name resolves to it";
    } else if (by_route(all, address)) {
        how = "the default route leaves from it";
    } else if (by_interface(all, NULL, address)) {
        how = "the first interface has it";
    } else {
        loopback(all, address);
    }
    if (all)
        freeifaddrs(all);
    if (!rc) {
        address->port = 0;
        hly_boot_say(log, 2, "this process listens at %s: %s", hly_address_name(address, name),
                     how);
    }
    return rc;
}

/* HALAY_FABRIC_RDMA if a port of an RDMA device is active. */
static uint8_t fabrics_here(void)
{
    glob_t all;
    uint8_t found = 0;
    if (glob("/sys/class/infiniband/*/ports/*/state", GLOB_NOSORT, NULL, &all))
        return 0;
    for (size_t i = 0; i < all.gl_pathc; i++) {
        char state[32] = "";
        FILE *file = fopen(all.gl_pathv[i], "re");
        if (file && fgets(state, sizeof state, file) && strstr(state, "ACTIVE"))
            found |= HALAY_FABRIC_RDMA;
        if (file)
            fclose(file);
    }
    globfree(&all);
    return found;
}

/* Which transports over RDMA are installed: looks in the folder of this bootstrap's plug-in. */
static uint8_t transports_here(void)
{
    static const struct {
        const char *name;
        uint8_t fabric;
    } all[] = {{"verbs", HALAY_FABRIC_VERBS}, {"ucx", HALAY_FABRIC_UCX}};
    Dl_info here;
    char path[512];
    uint8_t found = 0;
    if (!dladdr(all, &here) || !strrchr(here.dli_fname, '/'))
        return 0;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        int folder = (int)(strrchr(here.dli_fname, '/') - here.dli_fname);
        snprintf(path, sizeof path, "%.*s/halay-transport-%s.so", folder, here.dli_fname,
                 all[i].name);
        if (access(path, R_OK) == 0)
            found |= all[i].fabric;
    }
    return found;
}

int hly_listen_at(halay_address_t *address)
{
    struct sockaddr_storage at;
    halay_address_t got;
    address->port = 0;
    socklen_t bytes = hly_address_to(address, &at);
    const int fd = socket(address->family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0 && !bind(fd, (struct sockaddr *)&at, bytes) && !listen(fd, SOMAXCONN) &&
        !getsockname(fd, (struct sockaddr *)&at, &bytes)) {
        hly_address_from((struct sockaddr *)&at, &got);
        assert(got.port && hly_address_same_ip(&got, address));
        address->port = got.port;
        address->fabrics = fabrics_here() | transports_here();
        return fd;
    }
    const int error = errno;
    if (fd >= 0)
        close(fd);
    return -error;
}

int hly_listen_open(const struct hly_boot_log *log, halay_address_t *address, int *fd)
{
    char name[HLY_LISTEN_NAME];
    int got = hly_listen_at(address);
    if (got >= 0) {
        *fd = got;
        return HALAY_OK;
    }
    hly_boot_say(
        log, 0,
        "cannot listen at %s for the other ranks: %s%s; HALAY_INTERFACE names another interface",
        hly_address_name(address, name), strerror(-got), hly_boot_remedy(-got));
    return got == -EMFILE || got == -ENFILE || got == -ENOMEM || got == -ENOBUFS ? HALAY_ENOMEM
                                                                                 : HALAY_EBOOT;
}

int hly_listen_near(const struct hly_boot_log *log, const halay_address_t *near,
                    halay_address_t *address, int *fd)
{
    const char *interface = hly_listen_interface();
    if (*fd >= 0)
        return HALAY_OK;
    if (near && near->family && !interface) {
        *address = *near;
        address->port = 0;
        const int got = hly_listen_at(address);
        if (got >= 0) {
            *fd = got;
            return HALAY_OK;
        }
    }
    const int rc = hly_listen_choose(log, interface, address);
    return rc ? rc : hly_listen_open(log, address, fd);
}

int hly_listen_beside(const struct hly_boot_log *log, int connection, bool local,
                      halay_address_t *address, int *fd)
{
    struct sockaddr_storage at = {0};
    socklen_t bytes = sizeof at;
    halay_address_t near;
    if (getsockname(connection, (struct sockaddr *)&at, &bytes) ||
        !hly_address_from((struct sockaddr *)&at, &near) || (hly_address_loopback(&near) && !local))
        near.family = 0;
    return hly_listen_near(log, &near, address, fd);
}

int hly_listen_door(struct sockaddr_storage *at, int port)
{
    const int on = 1, off = 0;
    struct sockaddr_in6 *six = (struct sockaddr_in6 *)at;
    const bool is_six = at->ss_family == AF_INET6;
    six->sin6_port = htons((uint16_t)port); /* at the same place in both families */
    const int fd = socket(at->ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 && errno == EAFNOSUPPORT && is_six && IN6_IS_ADDR_UNSPECIFIED(&six->sin6_addr)) {
        *at = (struct sockaddr_storage){.ss_family = AF_INET};
        return hly_listen_door(at, port);
    }
    if (fd >= 0 && !setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) &&
        !(is_six && setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off)) &&
        !bind(fd, (struct sockaddr *)at, is_six ? sizeof *six : sizeof(struct sockaddr_in)) &&
        !listen(fd, BACKLOG))
        return fd;
    const int error = errno;
    if (fd >= 0)
        close(fd);
    errno = error;
    return -1;
}
