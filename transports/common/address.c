/* SPDX-License-Identifier: Apache-2.0 */
/*
 * address.c - addresses, as a socket and as text; who is who.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>

#include "address.h"

int hly_meet_same_id(halay_peer_id_t a, halay_peer_id_t b)
{
    return a.hi == b.hi && a.lo == b.lo;
}

int hly_meet_lower_id(halay_peer_id_t a, halay_peer_id_t b)
{
    return a.hi != b.hi ? a.hi < b.hi : a.lo < b.lo;
}

int hly_meet_params_well(const halay_transport_params_t *params)
{
    return params && params->size >= sizeof(*params) &&
           (params->listen_address.family == 0 || params->listen_fd >= 0);
}

int hly_meet_same_secret(const uint8_t a[16], const uint8_t b[16])
{
    volatile uint8_t difference = 0;
    for (int i = 0; i < 16; i++)
        difference |= a[i] ^ b[i];
    return difference == 0;
}

/* 0: no address. */
socklen_t hly_meet_where_socket(const halay_address_t *where, struct sockaddr_storage *address)
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

int hly_meet_where_from(const struct sockaddr_storage *address, halay_address_t *where)
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

const struct ifaddrs *hly_meet_where_interface(const struct ifaddrs *all,
                                               const halay_address_t *where)
{
    for (const struct ifaddrs *one = all; one; one = one->ifa_next) {
        struct sockaddr_storage address = {0};
        halay_address_t its;
        if (!one->ifa_addr || one->ifa_addr->sa_family != where->family)
            continue;
        memcpy(&address, one->ifa_addr,
               where->family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6));
        if (hly_meet_where_from(&address, &its) == 0 &&
            memcmp(its.ip, where->ip, sizeof(its.ip)) == 0)
            return one;
    }
    return NULL;
}

void hly_meet_where_name(const halay_address_t *where, char name[HLY_MEET_NAME])
{
    char ip[INET6_ADDRSTRLEN] = "an unknown address";
    if (where->family == AF_INET || where->family == AF_INET6)
        inet_ntop(where->family, where->ip, ip, sizeof(ip));
    snprintf(name, HLY_MEET_NAME, where->family == AF_INET6 ? "[%s]:%u" : "%s:%u", ip,
             (unsigned)ntohs(where->port));
}

void hly_meet_socket_set(int fd, uint64_t timeout_ns)
{
    enum { PROBES_MOST = 100, APART_MOST = 32767 }; /* the kernel takes 127 */
    const uint64_t seconds = (timeout_ns + 999999999) / 1000000000;
    const uint64_t between = (seconds + PROBES_MOST - 1) / PROBES_MOST;
    const int one = 1, apart = between < 1 ? 1 : between < APART_MOST ? (int)between : APART_MOST;
    const uint64_t n = seconds / (uint64_t)apart;
    const int probes = n < 1 ? 1 : n < PROBES_MOST ? (int)n : PROBES_MOST;
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &one, sizeof(one));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &apart, sizeof(apart));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof(probes));
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
}
