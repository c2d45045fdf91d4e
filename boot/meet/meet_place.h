/* SPDX-License-Identifier: Apache-2.0 */
/* meet_place.h - where the driver is: meet and slot of HALAY_JOB. Inside
 * boot/meet/ only. */
#ifndef HALAY_BOOT_MEET_PLACE_H
#define HALAY_BOOT_MEET_PLACE_H

#include <sys/un.h>

#include "../../common/job.h"
#include "../common/meet.h"

#define HLY_MEET_KEY "halay meet" /* its hash is in the greeting of a driver */

enum { HLY_MEET_SLOTS_MAX = 65536 };

struct hly_meet_told { /* by HALAY_JOB */
    char meet[HLY_JOB_VALUE], slot[16];
};

struct hly_meet_place {
    const char *text;        /* "unix:/path" or "host:port" */
    const char *holder;      /* who is there: "driver" */
    struct sockaddr_un near; /* a Unix socket; sun_family 0: host and port */
    char host[HLY_BOOT_NAME];
    int port;
};

/* Reads "unix:/path" or "host:port". */
bool hly_meet_place_of(const char *text, struct hly_meet_place *place);
/* Reads both, and place->text lies in told. HALAY_EBOOT, logged with variable and remedy. */
int hly_meet_place_read(const struct hly_boot_log *log, struct hly_meet_told *told,
                        struct hly_meet_place *place, uint32_t *slot);
/* A connection to the driver, greeted and non-blocking; -1, logged. who: "process 3". */
int hly_meet_place_call(const struct hly_boot_log *log, const struct hly_meet_place *place,
                        const struct hly_boot_key *key, const char *who, uint64_t end_ns,
                        struct hly_boot_greeting *greeting);
#endif
