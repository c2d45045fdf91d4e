/* SPDX-License-Identifier: Apache-2.0 */
/*
 * door.c - where a rank listens: rank 0 for the rendezvous, each rank for the job.
 *
 * If MASTER_ADDR is loopback for rank 0, all ranks are on one host, and all listen on loopback.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tcp.h"

enum { BACKLOG = 4096 };

void hly_tcp_door_place(const struct hly_tcp *tcp, struct hly_tcp_door *door)
{
    const struct addrinfo *found = NULL;
    struct sockaddr_in6 any6 = {.sin6_family = AF_INET6, .sin6_addr = in6addr_any};
    struct hly_lookup *name = hly_lookup_start(tcp->v->address);
    const uint64_t half_ns = tcp->begin_ns + (tcp->end_ns - tcp->begin_ns) / 2;
    const bool over = name && hly_lookup_wait(name, half_ns); /* others have yet to come */
    int rc = over ? hly_lookup_found(name, &found) : EAI_AGAIN;
    memset(door, 0, sizeof *door);
    memcpy(&door->at, &any6, door->bytes = sizeof any6);
    if (rc)
        hly_boot_say(tcp->log, 1,
                     "rank 0 is to be found at '%.100s', which does not resolve on its own host "
                     "(%s): it listens on all addresses",
                     tcp->v->address, gai_strerror(rc));
    for (const struct addrinfo *f = found; f; f = f->ai_next) {
        halay_address_t it;
        if (!hly_address_from(f->ai_addr, &it))
            continue;
        it.port = 0;
        if (hly_address_loopback(&it)) {
            memcpy(&door->at, f->ai_addr, door->bytes = f->ai_addrlen);
            door->near = it;
            door->local = true;
            if (it.family == AF_INET) /* of a name with both, the one that all ranks are sure to
                                         try */
                break;
        } else if (!door->near.family && hly_address_is_ours(&it)) {
            door->near = it; /* this is where the others find rank 0 */
        }
    }
    hly_lookup_end(name);
}

int hly_tcp_door_open(struct hly_tcp_door *door, int port)
{
    int on = 1, off = 0;
    struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)&door->at;
    in6->sin6_port = htons((uint16_t)port); /* at the same place in both families */
    int fd = socket(door->at.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 && errno == EAFNOSUPPORT && door->at.ss_family == AF_INET6) {
        struct sockaddr_in any = {.sin_family = AF_INET};
        memcpy(&door->at, &any, door->bytes = sizeof any);
        return hly_tcp_door_open(door, port);
    }
    if (fd < 0)
        return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (door->at.ss_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    if (bind(fd, (struct sockaddr *)&door->at, door->bytes) || listen(fd, BACKLOG)) {
        int error = errno;
        close(fd);
        errno = error;
        return -1;
    }
    return fd;
}

int hly_tcp_listen(struct hly_tcp *tcp, const halay_address_t *near)
{
    if (tcp->listen_fd >= 0)
        return HALAY_OK;
    return hly_listen_near(tcp->log, near, &tcp->self.address, &tcp->listen_fd);
}

int hly_tcp_listen_beside(struct hly_tcp *tcp, int fd, const struct hly_boot_greeting *greeting)
{
    struct sockaddr_storage at = {0};
    socklen_t bytes = sizeof at;
    halay_address_t near;
    if (getsockname(fd, (struct sockaddr *)&at, &bytes) ||
        !hly_address_from((struct sockaddr *)&at, &near) ||
        (hly_address_loopback(&near) && !greeting->local))
        memset(&near, 0, sizeof near);
    return hly_tcp_listen(tcp, &near);
}
