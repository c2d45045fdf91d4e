/* SPDX-License-Identifier: Apache-2.0 */
/*
 * settings.c - UCX's own settings, and the address that others reach this process at. What the user
 * has set in UCX_* stays.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucs/debug/debug.h>
#include <unistd.h>

#include "ucx.h"

/* ------------------------------------------------------------------ UCX */

/*
 * UCX takes over the signals of crashes when it is loaded, before anybody can set anything. They
 * are given back, unless the user has asked for it, or somebody else has taken them since.
 */
void hly_ucx_signals_restore(void)
{
    static const int signals[] = {SIGILL, SIGSEGV, SIGBUS, SIGFPE};
    Dl_info ucs, handler;
    if (getenv("UCX_HANDLE_ERRORS") || getenv("UCX_ERROR_SIGNALS"))
        return;
    if (!dladdr((void *)(uintptr_t)ucs_debug_disable_signal, &ucs))
        return;
    for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++) {
        struct sigaction action;
        if (sigaction(signals[i], NULL, &action) == 0 && action.sa_handler != SIG_DFL &&
            action.sa_handler != SIG_IGN &&
            dladdr((void *)(uintptr_t)action.sa_handler, &handler) &&
            handler.dli_fbase == ucs.dli_fbase)
            ucs_debug_disable_signal(signals[i]);
    }
}

ucs_status_t hly_ucx_settings_read(ucp_config_t **config)
{
    static const char *const settings[][2] = {
        {"HANDLE_ERRORS", "none"},
        {"TCP_RX_SEG_SIZE", "256K"}, /* 64K, the default: 16 MiB take three times as long */
        {"LOG_LEVEL", "fatal"},      /* errors come back as a status, and are told once, by us */
    };
    ucs_status_t status = ucp_config_read(NULL, NULL, config);
    for (size_t i = 0; status == UCS_OK && i < sizeof(settings) / sizeof(settings[0]); i++) {
        char name[64];
        snprintf(name, sizeof(name), "UCX_%s", settings[i][0]);
        if (!getenv(name))
            ucp_config_modify(*config, settings[i][0], settings[i][1]); /* a wish */
    }
    return status;
}

/* ------------------------------------------------------------------ addresses */

/* 0: no address. */
socklen_t hly_ucx_where_socket(const hly_ucx_where_t *where, struct sockaddr_storage *address)
{
    memset(address, 0, sizeof(*address));
    if (where->family == AF_INET) {
        struct sockaddr_in *four = (struct sockaddr_in *)address;
        four->sin_family = AF_INET;
        four->sin_port = where->port;
        memcpy(&four->sin_addr, where->ip, sizeof(four->sin_addr));
        return sizeof(*four);
    }
    if (where->family == AF_INET6) {
        struct sockaddr_in6 *six = (struct sockaddr_in6 *)address;
        six->sin6_family = AF_INET6;
        six->sin6_port = where->port;
        memcpy(&six->sin6_addr, where->ip, sizeof(six->sin6_addr));
        return sizeof(*six);
    }
    return 0;
}

int hly_ucx_where_from(const struct sockaddr_storage *address, hly_ucx_where_t *where)
{
    memset(where, 0, sizeof(*where));
    if (address->ss_family == AF_INET) {
        const struct sockaddr_in *four = (const struct sockaddr_in *)address;
        where->port = four->sin_port;
        memcpy(where->ip, &four->sin_addr, sizeof(four->sin_addr));
    } else if (address->ss_family == AF_INET6) {
        const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)address;
        where->port = six->sin6_port;
        memcpy(where->ip, &six->sin6_addr, sizeof(six->sin6_addr));
    } else {
        return -EAFNOSUPPORT;
    }
    where->family = (uint8_t)address->ss_family;
    return 0;
}

void hly_ucx_where_name(const hly_ucx_where_t *where, char name[HLY_UCX_NAME])
{
    char ip[INET6_ADDRSTRLEN] = "an unknown address";
    if (where->family == AF_INET || where->family == AF_INET6)
        inet_ntop(where->family, where->ip, ip, sizeof(ip));
    snprintf(name, HLY_UCX_NAME, where->family == AF_INET6 ? "[%s]:%u" : "%s:%u", ip,
             (unsigned)ntohs(where->port));
}

/* How good an interface's address is; 0: of no use. */
static int worth(const struct ifaddrs *one, const char *wanted)
{
    struct sockaddr_storage address = {0};
    if (!one->ifa_addr || !(one->ifa_flags & IFF_UP))
        return 0;
    int family = one->ifa_addr->sa_family;
    if (wanted ? strcmp(one->ifa_name, wanted) != 0 : !!(one->ifa_flags & IFF_LOOPBACK))
        return 0;
    if (family == AF_INET)
        return 2;
    if (family != AF_INET6)
        return 0;
    memcpy(&address, one->ifa_addr, sizeof(struct sockaddr_in6));
    return !IN6_IS_ADDR_LINKLOCAL(&((struct sockaddr_in6 *)&address)->sin6_addr);
}

/* The best address of the interface, or, wanted NULL, of all but the loopback. -1: none. */
static int interface_find(const char *wanted, struct sockaddr_storage *address)
{
    struct ifaddrs *all = NULL, *best = NULL;
    int most = 0;
    if (getifaddrs(&all))
        return -1;
    for (struct ifaddrs *one = all; one; one = one->ifa_next) {
        if (worth(one, wanted) > most) {
            most = worth(one, wanted);
            best = one;
        }
    }
    if (best)
        memcpy(address, best->ifa_addr,
               best->ifa_addr->sa_family == AF_INET ? sizeof(struct sockaddr_in)
                                                    : sizeof(struct sockaddr_in6));
    freeifaddrs(all);
    return best ? 0 : -1;
}

/* This host's address on its default route: connecting a datagram socket sends nothing. */
static int route_find(struct sockaddr_storage *address)
{
    struct sockaddr_in far = {.sin_family = AF_INET, .sin_port = htons(9)};
    socklen_t bytes = sizeof(*address);
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    far.sin_addr.s_addr = htonl(0xc6336401u); /* 198.51.100.1: kept for documents, nobody's */
    if (fd < 0)
        return -1;
    int rc = connect(fd, (struct sockaddr *)&far, sizeof(far));
    if (rc == 0)
        rc = getsockname(fd, (struct sockaddr *)address, &bytes);
    close(fd);
    return rc;
}

/* "interface=NAME"; the port is found out when it listens. */
int hly_ucx_where_choose(halay_transport_t *t, const char *options)
{
    struct sockaddr_storage address = {0};
    const char *wanted = NULL;
    if (options && *options) {
        if (strncmp(options, "interface=", 10) != 0 || !options[10]) {
            hly_ucx_log(t, 0, "ucx: the option '%s' is not understood; interface=NAME is", options);
            return HALAY_EINVAL;
        }
        wanted = options + 10;
    }
    if (wanted && interface_find(wanted, &address)) {
        hly_ucx_log(
            t, 0,
            "ucx: the interface '%s' is not there, is down, or has no address; 'ip address' "
            "shows what there is",
            wanted);
        return HALAY_ETRANSPORT;
    }
    if (!wanted && route_find(&address) && interface_find(NULL, &address)) {
        struct sockaddr_in *four = (struct sockaddr_in *)&address;
        memset(&address, 0, sizeof(address));
        four->sin_family = AF_INET;
        four->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    }
    hly_ucx_where_from(&address, &t->where);
    t->where.port = 0;
    return HALAY_OK;
}
