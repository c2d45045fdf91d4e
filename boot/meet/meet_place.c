/* SPDX-License-Identifier: Apache-2.0 */
/* meet_place.c - where the driver is, and a call to it. */
#include "meet_place.h"

#include <stdio.h>
#include <string.h>

bool hly_meet_place_of(const char *text, struct hly_meet_place *place)
{
    *place = (struct hly_meet_place){.text = text, .holder = "driver"};
    if (strncmp(text, "unix:/", 6) != 0)
        return hly_boot_split(text, place->host, &place->port);
    place->near.sun_family = AF_UNIX;
    return (size_t)snprintf(place->near.sun_path, sizeof place->near.sun_path, "%s", text + 5) <
           sizeof place->near.sun_path;
}

int hly_meet_place_read(const struct hly_boot_log *log, struct hly_meet_told *told,
                        struct hly_meet_place *place, uint32_t *slot)
{
    hly_job_has("meet", told->meet, sizeof told->meet);
    hly_job_has("slot", told->slot, sizeof told->slot);
    if (!hly_meet_place_of(told->meet, place))
        return hly_boot_error(log, HALAY_EBOOT,
                              "HALAY_JOB has meet=%.80s: it takes the driver's address, unix:/path "
                              "or host:port, as the launcher sets it",
                              place->text);
    const int n = hly_boot_number(told->slot, HLY_MEET_SLOTS_MAX - 1);
    if (n < 0)
        return hly_boot_error(log, HALAY_EBOOT,
                              "HALAY_JOB has meet=, but slot=%.20s: it takes a number from 0 to "
                              "%d, which the launcher sets for each of its processes",
                              told->slot, HLY_MEET_SLOTS_MAX - 1);
    *slot = (uint32_t)n;
    return HALAY_OK;
}

int hly_meet_place_call(const struct hly_boot_log *log, const struct hly_meet_place *place,
                        const struct hly_boot_key *key, const char *caller, uint64_t end_ns,
                        struct hly_boot_greeting *greeting)
{
    char looks[160];
    /* A driver on this machine was there before its processes. It may have many to greet. */
    struct hly_boot_search search = {.log = log,
                                     .key = key,
                                     .near = place->near.sun_family ? &place->near : NULL,
                                     .name = place->host,
                                     .ports = &place->port,
                                     .nports = 1,
                                     .end_ns = end_ns,
                                     .timeout_ns = 5000000000,
                                     .notices = {hly_boot_now_ns(), HLY_FIRST_NOTICE_NS, 0},
                                     .who = caller,
                                     .looks = looks};
    snprintf(looks, sizeof looks, "it looks for the %s at '%.120s'", place->holder, place->text);
    const int fd = hly_boot_find(&search, greeting);
    if (fd < 0)
        hly_boot_say(log, 0,
                     "%s found no %s at '%.120s' (last: %s): is the launcher that holds the job "
                     "alive, and does its address (meet in HALAY_JOB, halayrun --agent) reach from "
                     "here?",
                     caller, place->holder, place->text, search.why);
    return fd;
}
