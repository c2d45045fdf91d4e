/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lookup.h - what a name stands for, in a bounded time. A resolver takes its own, so it is asked in
 * a thread, which is left running if need be: the last of the two to leave frees the lookup. The
 * plug-ins that it runs in stay loaded (-z nodelete). docs/decisions/bootstraps.md#0089.
 */
#ifndef HALAY_BOOT_LOOKUP_H
#define HALAY_BOOT_LOOKUP_H

#include <netdb.h>
#include <stdbool.h>
#include <stdint.h>

struct hly_lookup;

/* Begins to look. Addresses are known at once, without a thread. NULL: there is no memory, or no
 * thread. */
struct hly_lookup *hly_lookup_start(const char *name);
/* Is it over, by then (of the monotonic clock)? May be asked again. */
bool hly_lookup_wait(struct hly_lookup *l, uint64_t until_ns);
/* The result of a lookup that has ended: 0 or EAI_*, and what was found, which lives as long as it.
 */
int hly_lookup_found(const struct hly_lookup *l, const struct addrinfo **found);
/* Over or not. Takes NULL. */
void hly_lookup_end(struct hly_lookup *l);

#endif
