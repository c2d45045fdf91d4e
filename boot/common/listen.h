/* SPDX-License-Identifier: Apache-2.0 */
/* listen.h - where this process listens for the other ranks. Inside boot/ and pmix/ only. */
#ifndef HALAY_BOOT_LISTEN_H
#define HALAY_BOOT_LISTEN_H

#include <stdbool.h>
#include <sys/socket.h>

#include "claim.h"

enum { HLY_LISTEN_NAME = 64 }; /* bytes of an address as text, "[ip]:port" */

/* The interface that HALAY_INTERFACE names, or NULL. */
const char *hly_listen_interface(void);

/*
 * Chooses this host's address for the other ranks, with port 0: that of `interface` if it is not
 * NULL. Else, in this order, the one that this host's own name resolves to, that of the default
 * route, that of the first interface, loopback. Waits at most 2 s for a resolver. HALAY_EBOOT,
 * logged, if the interface cannot be used.
 */
int hly_listen_choose(const struct hly_boot_log *log, const char *interface,
                      halay_address_t *address);

/* Makes a listening, non-blocking socket at the address, and fills in its port; or returns
 * -errno. */
int hly_listen_at(halay_address_t *address);

/* The same, with errors logged: HALAY_EBOOT, HALAY_ENOMEM. */
int hly_listen_open(const struct hly_boot_log *log, halay_address_t *address, int *fd);

/* The same, unless *fd is one already, at the IP of `near`, if the user names no interface and this
 * host has that IP. If near is NULL or has no family, at an address of hly_listen_choose(). */
int hly_listen_near(const struct hly_boot_log *log, const halay_address_t *near,
                    halay_address_t *address, int *fd);

/* The same at the IP of this end of a connection. local: the other ranks are on this machine, too;
 * else no loopback will do. */
int hly_listen_beside(const struct hly_boot_log *log, int connection, bool local,
                      halay_address_t *address, int *fd);

/* A listening, non-blocking socket for many, at this address; one of IPv6 serves IPv4, too. If it
 * is any address, and there is no IPv6, *at becomes that of IPv4. -1: see errno. */
int hly_listen_door(struct sockaddr_storage *at, int port);

/* An IP address as text; port 0. */
bool hly_address_parse(const char *text, halay_address_t *address);
/* Returns the size of *to. */
socklen_t hly_address_to(const halay_address_t *address, struct sockaddr_storage *to);
bool hly_address_loopback(const halay_address_t *address);
bool hly_address_same_ip(const halay_address_t *a, const halay_address_t *b);
/* False: other hosts could not use the address (another family, or link-local). */
bool hly_address_from(const struct sockaddr *from, halay_address_t *address);
/* Does an interface of this host that is up have the address? */
bool hly_address_is_ours(const halay_address_t *address);
const char *hly_address_name(const halay_address_t *address, char name[HLY_LISTEN_NAME]);

#endif
