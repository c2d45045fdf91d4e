/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lookup.h - resolves a host name in a bounded time. getaddrinfo() has no time limit, so a thread
 * calls it, and the caller may leave it running. The last of caller and thread to leave frees the
 * lookup. The plug-ins with this code stay loaded (-z nodelete). docs/decisions/bootstraps.md#0089.
 */
#ifndef HALAY_BOOT_LOOKUP_H
#define HALAY_BOOT_LOOKUP_H

#include <netdb.h>
#include <stdbool.h>
#include <stdint.h>

struct hly_lookup;

/* Begins a lookup. A numeric address needs no thread. NULL: no memory, or no thread. */
struct hly_lookup *hly_lookup_start(const char *name);
/* Waits until the lookup has ended, or until_ns of the monotonic clock. True: it has ended. May be
 * called again. */
bool hly_lookup_wait(struct hly_lookup *l, uint64_t until_ns);
/* The result of a lookup that has ended: 0 or EAI_*, and the addresses, which live until _end. */
int hly_lookup_found(const struct hly_lookup *l, const struct addrinfo **found);
/* Leaves the lookup, ended or not. Takes NULL. */
void hly_lookup_end(struct hly_lookup *l);

#endif
