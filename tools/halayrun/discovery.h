/* SPDX-License-Identifier: Apache-2.0 */
/* discovery.h - which hosts there are, by a script of the user's that is asked each second. */
#ifndef HALAYRUN_DISCOVERY_H
#define HALAYRUN_DISCOVERY_H

#include <poll.h>
#include <stdint.h>
#include <sys/types.h>

#include "guard.h"
#include "hosts.h"
#include "spawn.h"

struct hly_discovery;

/* For a shell; a host without a number has so many slots. NULL: no memory. */
struct hly_discovery *hly_discovery_create(const char *script, int slots_per_host,
                                           const struct hly_spawner *spawner,
                                           const struct hly_guard *guard);
/* Kills the script if it runs; the caller reaps it. Takes NULL. */
void hly_discovery_destroy(struct hly_discovery *discovery);

/* Starts the script when it is time, reads what it says, ends it when it takes too long. Does not
 * block. 1 if it has ended. */
int hly_discovery_turn(struct hly_discovery *discovery, int64_t now_ms);
/* Its last answer that was of use; NULL before the first one. A host may be there twice. */
const struct hly_hosts *hly_discovery_hosts(const struct hly_discovery *discovery);
/* When to call that at the latest, and the descriptor that may ask for it. */
int64_t hly_discovery_next_ms(const struct hly_discovery *discovery);
struct pollfd hly_discovery_poll(const struct hly_discovery *discovery);

/* Its process; 0: none. */
pid_t hly_discovery_pid(const struct hly_discovery *discovery);

#endif
