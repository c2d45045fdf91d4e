/* SPDX-License-Identifier: Apache-2.0 */
/*
 * driver.c - the driver of a job, inside the launcher that starts its processes (launch.h): hears
 * them, and what becomes of them. docs/decisions/bootstraps.md#0096.
 *
 * One thread, the launcher's: nothing here waits. The address is a Unix socket in the launcher's
 * private folder.
 */
#define _GNU_SOURCE
#include "driver.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "../common/listen.h"
#include "env.h"
#include "meet_place.h"

enum { BACKLOG = 4096 };

/* ---------------------------------------------------------------- what processes say */

static bool cannot_meet(const struct hly_boot_hello *a, const struct hly_boot_hello *b, char *text)
{
    return hly_boot_builds_differ(a, b, text) || hly_boot_cut_off(a, b, text);
}

/* Two that cannot meet break a job of always as many ranks; else the newcomer is refused. */
static void compare(halay_launch_t *d, int slot)
{
    for (int s = 0; s < d->params.nranks && d->slots[slot].guest && !d->worlds->broken; s++) {
        if (s == slot || !d->slots[s].guest ||
            !cannot_meet(&d->slots[s].hello, &d->slots[slot].hello, d->text))
            continue;
        const int refused = hly_worlds_differ(d->worlds, s, slot);
        if (refused >= 0)
            hly_driver_tell(d, refused, d->text, 0);
    }
}

static enum hly_hello take(halay_launch_t *d, int slot, struct hly_boot_guest *guest)
{
    const struct hly_boot_hello *it = &guest->hello;
    const struct hly_worlds_hello hello = {it->id, it->epoch, it->left_ns, it->lost, !it->nranks};
    const enum hly_hello was = hly_worlds_hello(d->worlds, slot, &hello, hly_boot_now_ns());
    if (was != HLY_HELLO_TAKEN)
        return was;
    d->slots[slot].seen = 0;
    d->slots[slot].guest = guest;
    d->slots[slot].hello = *it; /* the guest's own stays as it is: the answer proves it */
    if (!d->params.least)
        d->slots[slot].hello.rank = it->slot; /* which rank it will be is known */
    compare(d, slot);
    return was;
}

static void heard(void *arg, struct hly_boot_guest *guest)
{
    static const char *const texts[] = {
        [HLY_HELLO_MAY_GO] = "it may go",
        [HLY_HELLO_NOBODY] = "no process of this job has this slot of HALAY_JOB, or it has ended",
        [HLY_HELLO_TWIN] =
            ("another process has this slot of HALAY_JOB: a program that a rank starts inherits "
             "the "
             "rank's environment; to let it run alone, start it with HALAY_JOB=none")};
    halay_launch_t *d = arg;
    const uint32_t slot = guest->hello.slot;
    if (slot == HLY_BOOT_AGENT) {
        hly_agents_heard(d, guest);
        return;
    }
    const enum hly_hello was =
        slot < (uint32_t)d->params.nranks ? take(d, (int)slot, guest) : HLY_HELLO_NOBODY;
    if (was != HLY_HELLO_TAKEN)
        hly_boot_reception_text(&d->reception, guest, texts[was],
                                was == HLY_HELLO_MAY_GO ? HLY_BOOT_SAID : 0);
    hly_driver_go_on(d);
}

/* It gave up, or died: then its launcher knows. */
static void left(void *arg, struct hly_boot_guest *guest)
{
    halay_launch_t *d = arg;
    const uint32_t slot = guest->hello.slot;
    if (slot == HLY_BOOT_AGENT)
        hly_agents_left(d, guest);
    if (d->first == guest)
        d->first = NULL;
    if (slot >= (uint32_t)d->params.nranks || d->slots[slot].guest != guest)
        return;
    d->slots[slot].guest = NULL;
    hly_worlds_left(d->worlds, (int)slot);
    hly_driver_go_on(d);
    hly_driver_tell_news(d);
}

static void full(void *arg)
{
    halay_launch_t *d = arg;
    if (hly_worlds_is_static(d->worlds))
        hly_worlds_break(d->worlds);
    hly_driver_refuse(d,
                      "the launcher on %s has no file descriptors left for the rendezvous of %d "
                      "processes, one for each: raise the limit there (ulimit -n)",
                      d->host, d->params.nranks);
    hly_driver_go_on(d);
}

/* ---------------------------------------------------------------- the contract */

/* On all interfaces, if none is named: agents know this host by any of its names. */
static int listen_for_agents(halay_launch_t *d)
{
    struct sockaddr_storage at = {.ss_family = AF_INET6};
    socklen_t bytes = sizeof at;
    halay_address_t reached, bound;
    char name[HLY_LISTEN_NAME];
    if (!d->params.listen && hly_listen_choose(&d->log, hly_listen_interface(), &reached))
        return -1;
    if (d->params.listen &&
        (!hly_address_parse(d->params.listen, &reached) || !hly_address_to(&reached, &at) ||
         !hly_address_from((struct sockaddr *)&at, &reached))) {
        hly_boot_say(&d->log, 0, "'%.80s' is no IP address to listen at", d->params.listen);
        return -1;
    }
    const int fd = hly_listen_door(&at, d->params.port > 0 ? d->params.port : 0);
    if (fd >= 0 && !getsockname(fd, (struct sockaddr *)&at, &bytes)) {
        hly_address_from((struct sockaddr *)&at, &bound);
        reached.port = bound.port;
        snprintf(d->address, sizeof d->address, "%s", hly_address_name(&reached, name));
        return fd;
    }
    char port[32] = "any port";
    if (d->params.port > 0)
        snprintf(port, sizeof port, "TCP port %d", d->params.port);
    hly_boot_errno(&d->log, errno, "no rendezvous at %s%s%.80s", port,
                   d->params.listen ? " of " : "", d->params.listen ? d->params.listen : "");
    if (fd >= 0)
        close(fd);
    return -1;
}

static int listen_here(halay_launch_t *d)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    const int n = snprintf(d->path, sizeof d->path, "%s/meet", d->params.session_dir);
    const bool fits = n > 0 && (size_t)n < sizeof at.sun_path;
    if (fits)
        memcpy(at.sun_path, d->path, (size_t)n + 1);
    else
        errno = ENAMETOOLONG;
    const int fd = fits ? socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0) : -1;
    if (fd >= 0 && !bind(fd, (struct sockaddr *)&at, sizeof at) && !listen(fd, BACKLOG))
        return fd;
    hly_boot_errno(&d->log, errno, "no rendezvous at %s", d->path);
    if (fd >= 0)
        close(fd);
    return -1;
}

static void meet_stop(halay_launch_t *d)
{
    if (!d)
        return;
    hly_boot_reception_close(&d->reception);
    if (d->reception.listen_fd >= 0) {
        close(d->reception.listen_fd);
        if (!d->params.port)
            unlink(d->path);
    }
    hly_boot_table_finish(&d->table);
    free(d->hellos);
    free(d->slots);
    free(d->worlds);
    free(d->agents);
    explicit_bzero(&d->key, sizeof d->key);
    free(d);
}

/* The key is made of the HALAY_SECRET that the processes get. */
static int prepare(halay_launch_t *d)
{
    const char *key = HLY_MEET_KEY;
    const size_t n = (size_t)d->params.nranks;
    d->key.has_secret = hly_boot_secret_of(d->params.secret, d->key.secret);
    hly_boot_hash(&key, 1, d->key.job);
    d->worlds = hly_boot_worlds_new(d->params.nranks, d->params.least);
    d->slots = calloc(n, sizeof d->slots[0]);
    d->hellos = calloc(n, sizeof d->hellos[0]);
    d->most_agents = d->params.port ? d->params.nranks : 0;
    d->agents = calloc((size_t)d->most_agents + 1, sizeof d->agents[0]);
    if (!d->worlds || !d->slots || !d->hellos || !d->agents)
        return hly_boot_error(&d->log, HALAY_ENOMEM, "out of memory for a job of %zu processes", n);
    d->worlds->timeout_ns = hly_meet_seconds_ns("HALAY_STOP_TIMEOUT", HLY_MEET_STOP_S);
    int rc = hly_boot_random(&d->log, d->job, sizeof d->job);
    return rc || d->key.has_secret ? rc : hly_boot_random(&d->log, d->secret, sizeof d->secret);
}

static int meet_start(const halay_launch_params_t *params, halay_launch_t **server)
{
    halay_launch_t *d = calloc(1, sizeof *d);
    if (!d)
        return HALAY_ENOMEM;
    d->params = *params;
    d->log = (struct hly_boot_log){params->log, params->log_arg};
    snprintf(d->host, sizeof d->host, "%s", params->host);
    d->reception =
        (struct hly_boot_reception){.log = &d->log,
                                    .key = &d->key,
                                    .holder = "the launcher",
                                    .refusal = "this process is not one of this launcher's",
                                    .local = !params->port,
                                    .listen_fd = -1,
                                    .epoll_fd = -1,
                                    .arg = d,
                                    .heard = heard,
                                    .left = left,
                                    .said = hly_agents_said,
                                    .full = full};
    int rc = prepare(d);
    if (rc)
        goto undo;
    d->reception.listen_fd = params->port ? listen_for_agents(d) : listen_here(d);
    if (d->reception.listen_fd < 0) {
        rc = HALAY_EBOOT;
        goto undo;
    }
    rc = hly_boot_reception_open(&d->reception, params->nranks * (params->port ? 2 : 1));
    if (rc) {
        hly_boot_errno(&d->log, errno, "no rendezvous of %d processes", params->nranks);
        goto undo;
    }
    *server = d;
    return HALAY_OK;
undo:
    meet_stop(d);
    return rc;
}

static int meet_env(halay_launch_t *d, int slot, char ***env)
{
    char where[sizeof d->address];
    if (d->params.port)
        snprintf(where, sizeof where, "%s", d->address);
    else
        snprintf(where, sizeof where, "unix:%s", d->path);
    return hly_meet_env(where, slot, d->params.job, env);
}

void hly_driver_started(halay_launch_t *d, int slot, int64_t pid)
{
    struct hly_slot *s = &d->slots[slot], begun = {0};
    begun.agent = s->agent;
    begun.pid = pid;
    memcpy(begun.host, s->host, sizeof begun.host);
    *s = begun;
    hly_worlds_start(d->worlds, slot);
}

void hly_driver_ended(halay_launch_t *d, int slot, int status, int state, const char *why)
{
    struct hly_slot *s = &d->slots[slot];
    (void)state;
    if (s->guest)
        hly_boot_reception_dismiss(&d->reception, s->guest);
    s->guest = NULL;
    s->status = status;
    snprintf(s->why, sizeof s->why, "%s", why ? why : "");
    hly_worlds_end(d->worlds, slot, !status);
    hly_driver_go_on(d);
}

static int meet_descriptor(const halay_launch_t *d)
{
    return d->reception.epoll_fd;
}

static int meet_progress(halay_launch_t *d)
{
    hly_boot_reception_turn(&d->reception, 0);
    hly_driver_go_on(d);
    hly_driver_tell_news(d);
    const uint64_t next = hly_worlds_due_ns(d->worlds);
    return next < UINT64_MAX ? hly_boot_ms(next) : -1;
}

static int meet_condemned(halay_launch_t *d, int *rank)
{
    return hly_worlds_condemned(d->worlds, rank);
}

static const char *meet_address(const halay_launch_t *d)
{
    return d->address[0] ? d->address : NULL;
}

static void meet_settle(halay_launch_t *d, int nranks)
{
    assert(nranks >= 1 && nranks <= d->params.nranks && !d->worlds->epoch);
    d->params.nranks = d->worlds->nplaces = nranks;
}

static uint64_t meet_epoch(const halay_launch_t *d)
{
    return d->worlds->epoch;
}

/* A rank that aborts ends itself; who may leave when, its flight record says. */
HALAY_API extern const halay_launch_ops_t halay_launch_v3_meet;
const halay_launch_ops_t halay_launch_v3_meet = {
    .size = sizeof(halay_launch_ops_t),
    .name = "meet",
    .start = meet_start,
    .env = meet_env,
    .started = hly_driver_started,
    .ended = hly_driver_ended,
    .descriptor = meet_descriptor,
    .progress = meet_progress,
    .condemned = meet_condemned,
    .epoch = meet_epoch,
    .event = hly_agents_event,
    .command = hly_agents_command,
    .address = meet_address,
    .settle = meet_settle,
    .stop = meet_stop,
};
