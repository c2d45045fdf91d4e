/* SPDX-License-Identifier: Apache-2.0 */
/*
 * boot_meet.c - the bootstrap of a job whose launcher has a driver (HALAY_JOB): every open asks it
 * who this process is now. docs/decisions/bootstraps.md#0096.
 *
 * Invariant: `id` is that of the last open; its socket is the process's, and stays. The phase
 * (life.h) guards all else here.
 */
#define _GNU_SOURCE
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "../common/life.h"
#include "../common/listen.h"
#include "../common/meet.h"
#include "meet_place.h"

#define LEAVE_NS 1000000000ull

static struct halay_boot self = HLY_BOOT_CLOSED;
static struct {
    bool known; /* id and the claim are there */
    uint8_t id[16];
    halay_address_t address; /* of the socket */
    int news_fd; /* of rank 0: the driver says how many newcomers wait; -1: there is none */
    uint32_t newcomers;
    int nlost;
    struct hly_boot_lost lost[HLY_BOOT_LOST_RUNS]; /* ranks of the last epoch */
} own = {.news_fd = -1};

static void hear_no_more(void)
{
    if (own.news_fd >= 0)
        close(own.news_fd);
    own.news_fd = -1;
    own.newcomers = 0;
}

static void forked(void)
{
    hly_boot_life_forked(&self);
    hear_no_more();
}

static int meet_probe(int *announced)
{
    char where[HLY_JOB_VALUE];
    *announced = 0;
    return hly_job_has("meet", where, sizeof where);
}

struct caller {
    const struct hly_boot_log *log;
    struct hly_meet_told told;
    struct hly_meet_place place;
    struct hly_boot_key key;
    struct hly_boot_hello hello;
    char guest[32], holder[160];
    uint64_t end_ns;
};

static int ask_once(struct caller *c, enum hly_boot_heard *heard)
{
    struct hly_boot_greeting greeting;
    struct hly_boot_identity id = {0};
    const struct hly_boot_visit visit = {c->log, &c->key, c->guest, c->holder, c->end_ns, heard, 0};
    int fd = hly_meet_place_call(c->log, &c->place, &c->key, c->guest, c->end_ns, &greeting);
    if (fd < 0)
        return HALAY_EBOOT;
    /* At this socket the others find this process. It is made once. */
    int rc = hly_listen_beside(c->log, fd, false, &own.address, &self.id.listen_fd);
    if (!rc) {
        c->hello.address = own.address;
        rc = hly_boot_visit(&visit, fd, &greeting, &c->hello, &id);
    }
    const bool listens = !rc && id.changes && id.rank == 0;
    if (!listens)
        close(fd);
    if (rc)
        return rc;
    own.news_fd = listens ? fd : -1;
    own.nlost = 0;
    id.listen_fd = self.id.listen_fd;
    hly_boot_identity_finish(&self.id);
    self.id = id;
    return HALAY_OK;
}

/* Among many strangers the driver may have taken this process for one. */
static int ask(struct caller *c)
{
    static const struct timespec a_little = {0, 20000000};
    for (;;) {
        enum hly_boot_heard heard = HLY_BOOT_HEARD;
        const int rc = ask_once(c, &heard);
        if (heard != HLY_BOOT_HUNG_UP)
            return rc;
        nanosleep(&a_little, NULL); /* a driver that is gone is not found then */
    }
}

/* The first open of this process. */
static int begin(const struct hly_boot_log *log, const struct hly_meet_told *told)
{
    const char *slot = told->slot, *names[3] = {"meet", told->meet, slot};
    if (own.known)
        return HALAY_OK;
    int rc = hly_boot_secret_lacks(log, slot);
    if (!rc)
        rc = hly_boot_life_heeds_fork(&self, log, forked);
    if (!rc)
        rc = hly_boot_random(log, own.id, sizeof own.id);
    if (!rc)
        rc = hly_boot_claim(log, names, 3, slot, &self.claim_fd);
    own.known = !rc;
    return rc;
}

static int prepare(struct caller *c, const halay_boot_info_t *info)
{
    const char *key = HLY_MEET_KEY;
    int rc = hly_meet_place_read(c->log, &c->told, &c->place, &c->hello.slot);
    if (!rc)
        rc = begin(c->log, &c->told);
    if (rc)
        return rc;
    c->key.has_secret = hly_boot_secret(c->key.secret);
    hly_boot_hash(&key, 1, c->key.job);
    snprintf(c->guest, sizeof c->guest, "process %u", c->hello.slot);
    snprintf(c->holder, sizeof c->holder, "the driver at '%.120s'", c->place.text);
    c->hello.rank = c->hello.nranks = HLY_BOOT_NOBODY;
    c->hello.was = self.id.epoch ? (uint32_t)self.id.rank : HLY_BOOT_NOBODY;
    c->hello.epoch = self.id.epoch;
    memcpy(c->hello.id, own.id, sizeof c->hello.id);
    hly_boot_describe(c->guest, info, &c->hello);
    memcpy(c->hello.lost, own.lost, (size_t)own.nlost * sizeof own.lost[0]);
    return HALAY_OK;
}

static int open_again(const struct hly_boot_log *log, uint64_t deadline_ns,
                      const halay_boot_info_t *info)
{
    struct caller c = {.log = log, .end_ns = hly_boot_now_ns() + deadline_ns};
    int rc = prepare(&c, info);
    if (rc)
        return rc;
    hear_no_more();
    rc = ask(&c);
    explicit_bzero(&c.key, sizeof c.key);
    return rc;
}

static int meet_open(void *arg, halay_log_fn fn, void *log_arg, uint64_t deadline_ns,
                     halay_boot_info_t *info, halay_boot_t **boot)
{
    struct hly_boot_log log = {fn, log_arg};
    char by[24], launcher[32] = "meet";
    (void)arg;
    int rc = hly_boot_life_begin(&self, &log, deadline_ns, info, boot);
    if (rc)
        return rc;
    rc = open_again(&log, deadline_ns, info);
    if (!rc)
        hly_boot_secret_hide();
    if (hly_job_has("launcher", by, sizeof by))
        snprintf(launcher, sizeof launcher, "meet (%.20s)", by);
    return hly_boot_life_end(&self, rc, launcher, info, boot);
}

/* Of more runs than a hello has room for, the launcher knows those that have ended. */
static void meet_lost(halay_boot_t *boot, int rank)
{
    const uint32_t r = (uint32_t)rank;
    (void)boot;
    for (int i = 0; i < own.nlost; i++) {
        struct hly_boot_lost *run = &own.lost[i];
        if (r >= run->first && r <= run->last)
            return;
        if (r + 1 == run->first || r == run->last + 1) {
            *(r < run->first ? &run->first : &run->last) = r;
            return;
        }
    }
    if (own.nlost < HLY_BOOT_LOST_RUNS)
        own.lost[own.nlost++] = (struct hly_boot_lost){r, r};
}

static int meet_newcomers(halay_boot_t *boot, int *count)
{
    uint32_t news;
    ssize_t n = sizeof news;
    if (!boot->id.changes)
        return HALAY_EUNSUPPORTED;
    while (own.news_fd >= 0 && n == sizeof news) { /* it was sent as one */
        n = recv(own.news_fd, &news, sizeof news, MSG_DONTWAIT);
        if (n == sizeof news)
            own.newcomers = news;
    }
    if (n >= 0) /* the driver has gone, and with it all that wait there */
        hear_no_more();
    *count = own.newcomers < INT_MAX ? (int)own.newcomers : INT_MAX;
    return HALAY_OK;
}

/* That the driver has answered means that it has heard. Where it does not, it sees the process's
 * end, and the others wait for that: nobody hears of an error. */
static void meet_leave(halay_boot_t *boot)
{
    const struct hly_boot_log log = {NULL, NULL};
    struct caller c = {.log = &log, .end_ns = hly_boot_now_ns() + LEAVE_NS};
    struct hly_boot_greeting greeting;
    struct hly_boot_answer answer;
    char *payload;
    if (!boot->id.changes || prepare(&c, NULL))
        return;
    c.hello.nranks = 0;
    const struct hly_boot_visit visit = {&log, &c.key, c.guest, c.holder, c.end_ns, NULL, 0};
    const int fd = hly_meet_place_call(&log, &c.place, &c.key, c.guest, c.end_ns, &greeting);
    if (fd >= 0) {
        if (!hly_boot_visit_ask(&visit, fd, &greeting, &c.hello, &answer, &payload))
            free(payload);
        close(fd);
    }
    explicit_bzero(&c.key, sizeof c.key);
}

HALAY_API extern const halay_boot_ops_t halay_boot_v4_meet;
const halay_boot_ops_t halay_boot_v4_meet = {
    .size = sizeof(halay_boot_ops_t),
    .name = "meet",
    .probe = meet_probe,
    .open = meet_open,
    .get = hly_boot_get,
    .lost = meet_lost,
    .newcomers = meet_newcomers,
    .close = hly_boot_close,
    .leave = meet_leave,
};
