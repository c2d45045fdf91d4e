/* SPDX-License-Identifier: Apache-2.0 */
/*
 * door.c - where rank 0 listens for the rendezvous.
 *
 * If MASTER_ADDR is loopback for rank 0, all ranks are on one host, and all listen on loopback.
 */
#define _GNU_SOURCE
#include <netdb.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

#include "tcp.h"

void hly_tcp_door_place(const struct hly_tcp *tcp, struct hly_tcp_door *door)
{
    const struct addrinfo *found = NULL;
    struct sockaddr_in6 any6 = {.sin6_family = AF_INET6, .sin6_addr = in6addr_any};
    struct hly_lookup *name = hly_lookup_start(tcp->v->address);
    const uint64_t half_ns = tcp->begin_ns + (tcp->end_ns - tcp->begin_ns) / 2;
    const bool over = name && hly_lookup_wait(name, half_ns); /* others have yet to come */
    int rc = over ? hly_lookup_found(name, &found) : EAI_AGAIN;
    memset(door, 0, sizeof *door);
    memcpy(&door->at, &any6, sizeof any6);
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
            memcpy(&door->at, f->ai_addr, f->ai_addrlen);
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
