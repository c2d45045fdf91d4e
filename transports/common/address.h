/* SPDX-License-Identifier: Apache-2.0 */
/* address.h - addresses as sockets and as text, and who is who: for all transports over sockets. */
#ifndef HALAY_TRANSPORTS_COMMON_ADDRESS_H
#define HALAY_TRANSPORTS_COMMON_ADDRESS_H

#include <ifaddrs.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "halay/transport.h"

enum { HLY_MEET_NAME = INET6_ADDRSTRLEN + 10 };

int hly_meet_same_id(halay_peer_id_t a, halay_peer_id_t b);
/* Both ends of a pair agree on which of them is the lower one. */
int hly_meet_lower_id(halay_peer_id_t a, halay_peer_id_t b);
/* Can a transport over sockets be opened with these? */
int hly_meet_params_well(const halay_transport_params_t *params);
/* In constant time, so that the secret cannot be guessed byte by byte. */
int hly_meet_same_secret(const uint8_t a[16], const uint8_t b[16]);
/* 0: no address. */
socklen_t hly_meet_where_socket(const halay_address_t *where, struct sockaddr_storage *address);
int hly_meet_where_from(const struct sockaddr_storage *address, halay_address_t *where);
/* The first of all that has this address, whatever the port; NULL: none has. */
const struct ifaddrs *hly_meet_where_interface(const struct ifaddrs *all,
                                               const halay_address_t *where);
void hly_meet_where_name(const halay_address_t *where, char name[HLY_MEET_NAME]);
/* Sets a TCP connection: nothing is kept back, and keepalive probes go on for about so long. */
void hly_meet_socket_set(int fd, uint64_t timeout_ns);

#endif
