/* SPDX-License-Identifier: Apache-2.0 */
/* meet_place.c - where the driver is, and a call to it. */
#define _GNU_SOURCE
#include "meet_place.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "../common/lookup.h"

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

#define NOTICE_NS 2000000000ull
#define SILENT_NS                                                                                  \
    5000000000ull /* a driver on another machine greets sooner, or is called again                 \
                   */

static int connect_to(const struct sockaddr *at, socklen_t bytes, uint64_t until_ns, int *error)
{
    socklen_t error_bytes = sizeof *error;
    const int fd = socket(at->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    *error = fd < 0 || connect(fd, at, bytes) ? errno : 0;
    if (fd >= 0 && *error == EINPROGRESS) {
        if (!hly_boot_wait(fd, POLLOUT, until_ns))
            *error = ETIMEDOUT;
        else if (getsockopt(fd, SOL_SOCKET, SO_ERROR, error, &error_bytes))
            *error = errno;
    }
    if (!*error)
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

/* The lookup has no port. */
static int connect_at(const struct addrinfo *at, int port, uint64_t until_ns, int *error)
{
    struct sockaddr_storage to = {0};
    memcpy(&to, at->ai_addr, at->ai_addrlen < sizeof to ? at->ai_addrlen : sizeof to);
    if (to.ss_family == AF_INET6)
        ((struct sockaddr_in6 *)&to)->sin6_port = htons((uint16_t)port);
    else
        ((struct sockaddr_in *)&to)->sin_port = htons((uint16_t)port);
    return connect_to((const struct sockaddr *)&to, at->ai_addrlen, until_ns, error);
}

static int reach(const struct hly_meet_place *place, uint64_t until_ns, char why[HLY_MEET_WHY])
{
    int error = 0, fd = -1;
    if (place->near.sun_family) {
        fd =
            connect_to((const struct sockaddr *)&place->near, sizeof place->near, until_ns, &error);
        snprintf(why, HLY_MEET_WHY, "%s%s", strerror(error), hly_boot_remedy(error));
        errno = error;
        return fd;
    }
    struct hly_lookup *name = hly_lookup_start(place->host);
    const struct addrinfo *found = NULL;
    const bool over = name && hly_lookup_wait(name, until_ns);
    int rc = over ? hly_lookup_found(name, &found) : EAI_AGAIN, tries = 8;
    for (const struct addrinfo *at = found; at && tries-- && fd < 0; at = at->ai_next)
        fd = connect_at(at, place->port, until_ns, &error);
    hly_lookup_end(name);
    if (rc) {
        snprintf(why, HLY_MEET_WHY, "the name does not resolve: %s", gai_strerror(rc));
        return -1;
    }
    snprintf(why, HLY_MEET_WHY, "%s%s", strerror(error), hly_boot_remedy(error));
    return fd;
}

/* A driver on this machine is not called again: it may have many to greet. */
static uint64_t greeted_until(const struct hly_meet_place *place, uint64_t end_ns)
{
    const uint64_t silent_ns = hly_boot_now_ns() + SILENT_NS;
    return place->near.sun_family || end_ns < silent_ns ? end_ns : silent_ns;
}

int hly_meet_place_call(const struct hly_boot_log *log, const struct hly_meet_place *place,
                        const struct hly_boot_key *key, const char *caller, uint64_t end_ns,
                        struct hly_boot_greeting *greeting)
{
    char why[HLY_MEET_WHY] = "";
    uint64_t notice_ns = hly_boot_now_ns() + NOTICE_NS;
    for (uint64_t pause_ns = 20000000;; pause_ns *= pause_ns < 500000000 ? 2 : 1) {
        const char *who = NULL;
        const int fd = reach(place, end_ns, why);
        /* A launcher on this machine was there before its processes; but others may fill its queue,
         * and push this process out. */
        bool comes = !place->near.sun_family || (fd < 0 && errno == EAGAIN);
        const uint64_t until_ns = greeted_until(place, end_ns);
        if (fd >= 0 && hly_boot_visit_greeted(key, fd, until_ns, greeting, &who))
            return fd;
        if (fd >= 0) {
            close(fd);
            if (greeting->magic)
                snprintf(why, sizeof why, "%s answers there", who);
            else
                snprintf(why, sizeof why, "%s",
                         hly_boot_now_ns() < until_ns ? "somebody who hangs up answers there"
                                                      : "what listens there says nothing");
            comes |= !greeting->magic;
        }
        const uint64_t now = hly_boot_now_ns();
        if (!comes || now + pause_ns >= end_ns)
            break;
        if (now >= notice_ns) {
            hly_boot_say(log, 1,
                         "%s has found no %s at '%.120s' yet (last: %s): it tries for %.0f s",
                         caller, place->holder, place->text, why, (double)(end_ns - now) / 1e9);
            notice_ns = end_ns;
        }
        struct timespec t = {(time_t)(pause_ns / 1000000000), (long)(pause_ns % 1000000000)};
        nanosleep(&t, NULL);
    }
    hly_boot_say(log, 0,
                 "%s found no %s at '%.120s' (last: %s): is the launcher that holds the job alive, "
                 "and does its address (meet in HALAY_JOB, halayrun --agent) reach from here?",
                 caller, place->holder, place->text, why);
    return -1;
}
