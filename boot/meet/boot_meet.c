/* SPDX-License-Identifier: Apache-2.0 */
/*
 * boot_meet.c - the bootstrap of a job whose launcher has a driver (HALAY_JOB): every open asks it
 * who this process is now. docs/decisions/bootstraps.md#0096.
 *
 * Invariant: `id` is that of the last open; its socket is the process's, and stays. The life
 * (life.h) guards everything in `self`.
 */
#define _GNU_SOURCE
#include <assert.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../common/life.h"
#include "../common/listen.h"
#include "../common/meet.h"
#include "meet_place.h"

#define LEAVE_NS 1000000000ull

struct halay_boot {
    struct hly_boot_life life;
    bool known; /* id_bytes, the claim and the socket are there */
    uint8_t id_bytes[16];
    halay_address_t address; /* of the socket */
    struct hly_boot_identity id;
    int news_fd; /* of rank 0: the driver says how many newcomers wait; -1: there is none */
    uint32_t newcomers;
    int nlost;
    struct hly_boot_lost lost[HLY_BOOT_LOST_RUNS]; /* ranks of the last epoch */
};

static struct halay_boot self = {.life.claim_fd = -1, .id.listen_fd = -1, .news_fd = -1};

static void hear_no_more(void)
{
    if (self.news_fd >= 0)
        close(self.news_fd);
    self.news_fd = -1;
    self.newcomers = 0;
}

static void forked(void)
{
    hly_boot_life_forked(&self.life, &self.id.listen_fd);
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

/* The socket at which the others find this process: made once, where it reaches the driver from. */
static int listen_once(const struct caller *c, int fd)
{
    if (self.id.listen_fd >= 0)
        return HALAY_OK;
    halay_address_t near = {0};
    struct sockaddr_storage at = {0};
    socklen_t bytes = sizeof at;
    if (getsockname(fd, (struct sockaddr *)&at, &bytes) ||
        !hly_address_from((struct sockaddr *)&at, &near) || hly_address_loopback(&near))
        near.family = 0;
    return hly_listen_near(c->log, &near, &self.address, &self.id.listen_fd);
}

static int ask_once(struct caller *c, enum hly_boot_heard *heard)
{
    struct hly_boot_greeting greeting;
    struct hly_boot_identity id = {0};
    const struct hly_boot_visit visit = {c->log, &c->key, c->guest, c->holder, c->end_ns, heard, 0};
    int fd = hly_meet_place_call(c->log, &c->place, &c->key, c->guest, c->end_ns, &greeting);
    if (fd < 0)
        return HALAY_EBOOT;
    int rc = listen_once(c, fd);
    if (!rc) {
        c->hello.address = self.address;
        rc = hly_boot_visit(&visit, fd, &greeting, &c->hello, &id);
    }
    const bool listens = !rc && id.changes && id.rank == 0;
    if (!listens)
        close(fd);
    if (rc)
        return rc;
    self.news_fd = listens ? fd : -1;
    self.nlost = 0;
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
    if (self.known)
        return HALAY_OK;
    int rc = hly_boot_secret_lacks(log, slot);
    if (!rc)
        rc = hly_boot_random(log, self.id_bytes, sizeof self.id_bytes);
    if (!rc)
        rc = hly_boot_claim(log, names, 3, slot, &self.life.claim_fd);
    if (!rc && pthread_atfork(NULL, NULL, forked)) {
        hly_boot_say(log, 0, "out of memory for the rendezvous");
        hly_boot_life_unclaim(&self.life);
        rc = HALAY_ENOMEM;
    }
    self.known = !rc;
    return rc;
}

static int prepare(struct caller *c)
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
    memcpy(c->hello.id, self.id_bytes, sizeof c->hello.id);
    for (int i = 0; i < HLY_BOOT_LOST_RUNS; i++)
        c->hello.lost[i] = i < self.nlost ? self.lost[i] : (struct hly_boot_lost){1, 0};
    return HALAY_OK;
}

static int open_again(const struct hly_boot_log *log, uint64_t deadline_ns,
                      const halay_boot_info_t *info)
{
    struct caller c = {.log = log, .end_ns = hly_boot_now_ns() + deadline_ns};
    int rc = prepare(&c);
    if (rc)
        return rc;
    hear_no_more();
    hly_boot_describe(c.guest, info, &c.hello);
    rc = ask(&c);
    explicit_bzero(&c.key, sizeof c.key);
    return rc;
}

static void fill(halay_boot_info_t *info)
{
    info->rank = self.id.rank;
    info->epoch = self.id.epoch;
    info->kept_alike = self.id.alike;
    memcpy(info->job, self.id.job, sizeof info->job);
    memcpy(info->secret, self.id.secret, sizeof info->secret);
    hly_boot_places_info(&self.id.places, info);
    info->listen_fd = self.id.listen_fd;
    char launcher[24];
    snprintf(info->launcher, sizeof info->launcher,
             hly_job_has("launcher", launcher, sizeof launcher) ? "meet (%.20s)" : "meet",
             launcher);
}

static int meet_open(void *arg, halay_log_fn fn, void *log_arg, uint64_t deadline_ns,
                     halay_boot_info_t *info, halay_boot_t **boot)
{
    struct hly_boot_log log = {fn, log_arg};
    (void)arg;
    if (!deadline_ns)
        return HALAY_EINVAL;
    int rc = hly_boot_life_begin(&self.life, &log, self.id.rank, info, boot);
    if (rc)
        return rc;
    rc = open_again(&log, deadline_ns, info);
    if (rc) {
        hly_boot_life_failed(&self.life);
        return rc;
    }
    *boot = &self;
    hly_boot_secret_hide();
    hly_boot_life_opened(&self.life);
    fill(info);
    return HALAY_OK;
}

static int meet_get(const halay_boot_t *boot, int rank, halay_place_t *place)
{
    return hly_boot_places_get(&boot->id.places, rank, place);
}

/* Of more runs than a hello has room for, the launcher knows those that have ended. */
static void meet_lost(halay_boot_t *boot, int rank)
{
    const uint32_t r = (uint32_t)rank;
    for (int i = 0; i < boot->nlost; i++) {
        struct hly_boot_lost *run = &boot->lost[i];
        if (r >= run->first && r <= run->last)
            return;
        if (r + 1 == run->first || r == run->last + 1) {
            *(r < run->first ? &run->first : &run->last) = r;
            return;
        }
    }
    if (boot->nlost < HLY_BOOT_LOST_RUNS)
        boot->lost[boot->nlost++] = (struct hly_boot_lost){r, r};
}

static int meet_newcomers(halay_boot_t *boot, int *count)
{
    uint32_t news;
    ssize_t n = sizeof news;
    if (!boot->id.changes)
        return HALAY_EUNSUPPORTED;
    while (boot->news_fd >= 0 && n == sizeof news) { /* it was sent as one */
        n = recv(boot->news_fd, &news, sizeof news, MSG_DONTWAIT);
        if (n == sizeof news)
            boot->newcomers = news;
    }
    if (n >= 0) /* the driver has gone, and with it all that wait there */
        hear_no_more();
    *count = boot->newcomers < INT_MAX ? (int)boot->newcomers : INT_MAX;
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
    if (!boot->id.changes || prepare(&c))
        return;
    hly_boot_describe(c.guest, NULL, &c.hello);
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

static void meet_close(halay_boot_t *boot)
{
    assert(!boot || boot == &self);
    if (boot)
        hly_boot_life_closed(&boot->life);
}

HALAY_API extern const halay_boot_ops_t halay_boot_v4_meet;
const halay_boot_ops_t halay_boot_v4_meet = {
    .size = sizeof(halay_boot_ops_t),
    .name = "meet",
    .probe = meet_probe,
    .open = meet_open,
    .get = meet_get,
    .lost = meet_lost,
    .newcomers = meet_newcomers,
    .close = meet_close,
    .leave = meet_leave,
};
