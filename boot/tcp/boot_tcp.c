/* SPDX-License-Identifier: Apache-2.0 */
/*
 * boot_tcp.c - the bootstrap from variables and over TCP: the table, and its process-wide object.
 *
 * Invariant: who this process is does not change while it lives, so the others are met once, and
 * opens after the first are new epochs of the same identity and talk to no one. Its life
 * (life.h) guards everything else in `self`.
 */
#define _GNU_SOURCE
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "../../proc/proc.h"
#include "../common/life.h"
#include "tcp.h"
#include <hly_build.h>

struct halay_boot {
    struct hly_boot_life life;
    bool joined, heeds_fork;
    struct hly_tcp_identity id;
};

static struct halay_boot self = {.life.claim_fd = -1, .id.listen_fd = -1};

static void forked(void)
{
    hly_boot_life_forked(&self.life, &self.id.listen_fd);
}

uint64_t hly_tcp_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

int hly_tcp_random(const struct hly_boot_log *log, void *bytes, size_t n)
{
    if (getrandom(bytes, n, 0) == (ssize_t)n)
        return HALAY_OK;
    hly_boot_say(log, 0, "no random bytes for the rendezvous: %s", strerror(errno));
    return HALAY_EBOOT;
}

const char *hly_tcp_who(const struct hly_tcp_hello *hello, char text[128])
{
    snprintf(text, 128, "rank %u (pid %u on %s)", hello->rank, hello->pid, hello->host);
    return text;
}

void hly_tcp_hello_mac(const struct hly_tcp_variables *v, const struct hly_tcp_greeting *greeting,
                       const struct hly_tcp_hello *hello, uint8_t mac[32])
{
    struct hly_piece pieces[3] = {
        {"hello", 5}, {greeting, sizeof *greeting}, {hello, offsetof(struct hly_tcp_hello, mac)}};
    hly_mac(v->secret_key, pieces, 3, mac);
}

void hly_tcp_answer_mac(const struct hly_tcp_variables *v, const struct hly_tcp_greeting *greeting,
                        const struct hly_tcp_hello *hello, const struct hly_tcp_answer *answer,
                        const uint8_t digest[32], uint8_t mac[32])
{
    struct hly_piece pieces[5] = {{"answer", 6},
                                  {greeting, sizeof *greeting},
                                  {hello, sizeof *hello},
                                  {answer, offsetof(struct hly_tcp_answer, mac)},
                                  {digest, 32}};
    hly_mac(v->secret_key, pieces, 5, mac);
}

static void describe(struct hly_tcp *tcp, int processors)
{
    struct hly_tcp_hello *me = &tcp->self;
    struct stat net;
    char why[HLY_SHARE_WHY];
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
    me->magic = HLY_TCP_MAGIC;
    me->version = HLY_TCP_VERSION;
    me->bytes = sizeof *me;
    memcpy(me->key, tcp->v->key, sizeof me->key);
    me->rank = (uint32_t)tcp->v->rank;
    me->nranks = (uint32_t)tcp->v->nranks;
    me->pid = (uint32_t)getpid();
    me->processors = (uint32_t)processors;
    hly_proc_self(&me->process);
    if (gethostname(me->host, sizeof me->host - 1) || !me->host[0])
        strcpy(me->host, "unknown");
    /* Which machine, and which network namespace of it: nothing on a node goes across either. */
    if (!file || fscanf(file, "%39s", me->machine) != 1)
        snprintf(me->machine, sizeof me->machine, "%.39s", me->host);
    if (file)
        fclose(file);
    if (stat("/proc/self/ns/net", &net) == 0)
        me->netns = net.st_ino;
    if (!hly_share_probe(why)) {
        snprintf(me->machine, sizeof me->machine, "rank %d", tcp->v->rank); /* nobody else's */
        hly_boot_say(tcp->log, 1,
                     "rank %d (pid %u on %s) is a node of its own: it can share no "
                     "memory: %s",
                     tcp->v->rank, me->pid, me->host, why);
    }
    _Static_assert(sizeof HLY_BUILD <= sizeof me->library, "with its end");
    strcpy(me->library, hly_build());
}

static int meet(const struct hly_boot_log *log, const struct hly_tcp_variables *v,
                uint64_t deadline_ns, int processors, struct hly_tcp_identity *id)
{
    struct hly_tcp tcp = {.log = log, .v = v, .begin_ns = hly_tcp_now_ns(), .listen_fd = -1};
    memset(id, 0, sizeof *id);
    tcp.end_ns = tcp.begin_ns + deadline_ns;
    id->rank = v->rank;
    id->nranks = v->nranks;
    describe(&tcp, processors);
    int rc = v->rank == 0 ? hly_tcp_host(&tcp, id) : hly_tcp_guest(&tcp, id);
    if (rc && tcp.listen_fd >= 0)
        close(tcp.listen_fd);
    id->listen_fd = rc ? -1 : tcp.listen_fd;
    return rc;
}

/* The first open: claims the identity, then meets the others. Only one thread is in here. */
static int first_open(const struct hly_boot_log *log, uint64_t deadline_ns, int processors)
{
    struct hly_tcp_variables v;
    int announced;
    if (!hly_tcp_announced(&announced)) {
        hly_boot_say(log, 0,
                     "neither RANK nor WORLD_SIZE is in the environment: start the program with "
                     "torchrun or halayrun, or set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT");
        return HALAY_EBOOT;
    }
    int rc = hly_tcp_variables(log, &v);
    if (rc)
        return rc;
    const char *names[3] = {"tcp", v.claim, v.rank_text};
    rc = hly_boot_claim(log, names, 3, v.rank_text, &self.life.claim_fd);
    if (rc)
        return rc;
    self.heeds_fork = self.heeds_fork || !pthread_atfork(NULL, NULL, forked);
    if (self.heeds_fork) {
        rc = meet(log, &v, deadline_ns, processors, &self.id);
    } else {
        hly_boot_say(log, 0, "out of memory for the rendezvous");
        rc = HALAY_ENOMEM;
    }
    explicit_bzero(&v, sizeof v);
    self.joined = rc == HALAY_OK;
    if (rc)
        hly_boot_life_unclaim(&self.life);
    return rc;
}

static void fill(const struct halay_boot *boot, halay_boot_info_t *info)
{
    const struct hly_tcp_identity *id = &boot->id;
    info->rank = id->rank;
    info->epoch = boot->life.epoch;
    memcpy(info->job, id->job, sizeof info->job);
    memcpy(info->secret, id->secret, sizeof info->secret);
    hly_boot_places_info(&id->places, info);
    info->listen_fd = id->listen_fd;
    snprintf(info->launcher, sizeof info->launcher,
             getenv("TORCHELASTIC_RUN_ID") ? "tcp (torchrun)" : "tcp");
}

static int tcp_open(void *arg, halay_log_fn fn, void *log_arg, uint64_t deadline_ns,
                    halay_boot_info_t *info, halay_boot_t **boot)
{
    struct hly_boot_log log = {fn, log_arg};
    (void)arg;
    if (!deadline_ns)
        return HALAY_EINVAL;
    int rc = hly_boot_life_begin(&self.life, &log, self.id.rank, info, boot);
    if (rc)
        return rc;
    rc = self.joined ? HALAY_OK : first_open(&log, deadline_ns, info->processors);
    if (rc) {
        hly_boot_life_failed(&self.life);
        return rc;
    }
    *boot = &self;
    hly_boot_life_opened(&self.life);
    fill(&self, info);
    return HALAY_OK;
}

static int tcp_get(const halay_boot_t *boot, int rank, halay_place_t *place)
{
    return hly_boot_places_get(&boot->id.places, rank, place);
}

static void tcp_close(halay_boot_t *boot)
{
    assert(!boot || boot == &self);
    if (boot)
        hly_boot_life_closed(&boot->life);
}

HALAY_API extern const halay_boot_ops_t halay_boot_v3_tcp;
const halay_boot_ops_t halay_boot_v3_tcp = {
    .size = sizeof(halay_boot_ops_t),
    .name = "tcp",
    .probe = hly_tcp_announced,
    .open = tcp_open,
    .get = tcp_get,
    .join = hly_boot_join_never,
    .close = tcp_close,
};
