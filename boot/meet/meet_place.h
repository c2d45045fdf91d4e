/* SPDX-License-Identifier: Apache-2.0 */
/* meet_place.h - where the driver is: the words of HALAY_MEET and HALAY_MEET_SLOT. Inside
 * boot/meet/ only. */
#ifndef HALAY_BOOT_MEET_PLACE_H
#define HALAY_BOOT_MEET_PLACE_H

#include <sys/un.h>

#include "../common/claim.h"

#define HLY_MEET_KEY "halay meet" /* its hash is in the greeting of a driver */

enum { HLY_MEET_WHY = 200, HLY_MEET_SLOTS_MAX = 65536 };

struct hly_meet_place {
    const char *text;        /* of HALAY_MEET */
    struct sockaddr_un near; /* a Unix socket; sun_family 0: host and port */
    char host[HLY_BOOT_NAME];
    int port;
};

/* Reads "unix:/path" or "host:port", and the slot. HALAY_EBOOT, logged with variable and remedy. */
int hly_meet_place_read(const struct hly_boot_log *log, struct hly_meet_place *place,
                        const char **slot_text, uint32_t *slot);
/* A non-blocking connection, or -1 and why; for a Unix socket errno has it, too. */
int hly_meet_place_call(const struct hly_meet_place *place, uint64_t until_ns,
                        char why[HLY_MEET_WHY]);
#endif
