/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gather.c - the program's own allgather says where rank 0 is (halay_boot_rank_t), and the ranks
 * meet there as always, so that rank 0 names a rank whose allgather failed to all others.
 *
 * Each rank puts in one record. All ranks judge all records in the same order, and a rank that
 * cannot go on puts in its reason, so all say the same.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "../../common/proc.h"
#include "../common/listen.h"
#include "tcp.h"
#include <hly_build.h>

#define MAGIC 0x313048544147484cull /* "LHGATH01" on a little-endian machine */

enum { NAP_MIN_NS = 50000, NAP_MAX_NS = 5000000 };

struct record { /* of 512 bytes in each version, for any allgather needs the same on all ranks */
    uint64_t magic;
    int32_t rank, nranks;
    uint32_t pid, unused;
    char build[24], host[HLY_BOOT_HOST_BYTES];
    char address[HLY_LISTEN_NAME]; /* at which rank 0 lets the others in */
    char secret[40];               /* that rank 0 has drawn; empty: all have one */
    char why[296];                 /* this rank cannot go on; else empty */
};
_Static_assert(sizeof(struct record) == 512, "the same in all versions");

struct gather {
    const struct hly_boot_log *log;
    const halay_boot_rank_t *given;
    uint64_t begin_ns, end_ns;
    struct record *all, *own; /* own: behind all, for the program may go on to read it */
};

/* ---------------------------------------------------------------- what a rank puts in */

static void keep(void *arg, int level, const char *text)
{
    struct gather *g = arg;
    if (level == 0)
        snprintf(g->own->why, sizeof g->own->why, "%s", text);
    else if (g->log->fn)
        g->log->fn(g->log->arg, level, text);
}

/* Rank 0 listens before the others are told where. */
static void open_door(struct gather *g, struct hly_tcp_variables *v)
{
    const struct hly_boot_log log = {keep, g};
    halay_address_t address = {0};
    uint8_t random[16];
    if (hly_listen_near(&log, NULL, &address, &v->door_fd))
        return;
    hly_address_name(&address, g->own->address);
    if (v->key.has_secret || hly_boot_random(&log, random, sizeof random))
        return;
    for (size_t i = 0; i < sizeof random; i++)
        snprintf(g->own->secret + 2 * i, 3, "%02x", random[i]);
}

static void describe(struct gather *g, struct hly_tcp_variables *v)
{
    struct record *own = g->own;
    own->magic = MAGIC;
    own->rank = g->given->rank;
    own->nranks = g->given->nranks;
    own->pid = (uint32_t)getpid();
    snprintf(own->build, sizeof own->build, "%s", hly_build());
    hly_proc_host(own->host, sizeof own->host);
    if (own->rank == 0)
        open_door(g, v);
}

/* ---------------------------------------------------------------- the program's allgather */

static bool is_late(const struct gather *g)
{
    return hly_boot_now_ns() >= g->end_ns;
}

/* What its test says: 1 if it has ended; 0: its time is over; else its code. */
static int await(const struct gather *g, void *request)
{
    struct hly_notices notices = {g->begin_ns, HLY_FIRST_NOTICE_NS, 0};
    long nap_ns = NAP_MIN_NS;
    int done = g->given->test(request);
    while (!done && !is_late(g)) {
        nanosleep(&(struct timespec){0, nap_ns}, NULL);
        nap_ns = nap_ns * 2 < NAP_MAX_NS ? nap_ns * 2 : NAP_MAX_NS;
        if (g->own->rank <= 1 && hly_notices_give(&notices, hly_boot_now_ns()))
            hly_boot_remind(g->log, g->begin_ns, g->end_ns, "halay_init",
                            ": the program's allgather of %d ranks has not ended on rank %d",
                            g->own->nranks, g->own->rank);
        done = g->given->test(request);
    }
    return done;
}

static int say_failed(const struct gather *g, int code)
{
    const struct record *own = g->own;
    return hly_boot_error(g->log, HALAY_EBOOT,
                          "the program's allgather has failed on rank %d (pid %u on %s) with its "
                          "code %d; the others wait for this rank until their deadline",
                          own->rank, own->pid, own->host, code);
}

/* *left: the program may go on to use the records. */
static int gather(const struct gather *g, bool *left)
{
    const halay_boot_rank_t *p = g->given;
    const struct record *own = g->own;
    void *request = NULL;
    const int code = p->allgather(p->context, own, g->all, sizeof *own, &request);
    if (code)
        return say_failed(g, code);
    if (request && (!p->test || !p->free)) {
        hly_boot_say(g->log, 0,
                     "the program's allgather gave a request, but the program no function %s for "
                     "it: set that, or wait in allgather",
                     p->test ? "free" : "test");
        *left = true;
        return HALAY_EINVAL;
    }
    const int done = request ? await(g, request) : 1;
    const bool late = !done || is_late(g);
    *left = request && p->free(request) && done != 1;
    if (done < 0)
        return say_failed(g, done);
    if (!late)
        return HALAY_OK;
    return hly_boot_error(
        g->log, HALAY_EBOOT,
        "the program's allgather of %d ranks has not ended on rank %d (pid %u on %s) within %.1f "
        "s: do all ranks live, and has each called halay_init? (see HALAY_START_DEADLINE)",
        own->nranks, own->rank, own->pid, own->host,
        (double)(hly_boot_now_ns() - g->begin_ns) / 1e9);
}

/* ---------------------------------------------------------------- the judgement */

/* What is wrong with the record at this place; the same text on all ranks. */
static bool is_wrong(struct gather *g, int place)
{
    const struct record *first = &g->all[0], *it = &g->all[place];
    const bool tells = g->own->rank == 0 || !memcmp(it, g->own, sizeof *it);
    const int level = tells ? 0 : HALAY_LOG_TOLD;
    if (it->magic != MAGIC)
        hly_boot_say(
            g->log, level,
            "the program's allgather has put no record of halay_init at place %d of %d: it has to "
            "give each rank the bytes of all, in the order of the ranks",
            place, g->own->nranks);
    else if (strncmp(it->build, first->build, sizeof it->build) != 0)
        hly_boot_say(
            g->log, level,
            "rank %d (pid %u on %.63s) runs Halay %.23s, but rank %d (pid %u on %.63s) runs Halay "
            "%.23s: run the same version on all nodes",
            it->rank, it->pid, it->host, it->build, first->rank, first->pid, first->host,
            first->build);
    else if (it->nranks != first->nranks)
        hly_boot_say(
            g->log, level,
            "rank %d (pid %u on %.63s) was told that there are %d ranks, but rank %d (pid %u on "
            "%.63s) that there are %d: give halay_init the same number on all ranks",
            it->rank, it->pid, it->host, it->nranks, first->rank, first->pid, first->host,
            first->nranks);
    else if (it->rank != place)
        hly_boot_say(
            g->log, level,
            "the process at place %d of the program's allgather (pid %u on %.63s) was told that "
            "it is rank %d: give halay_init the rank that the allgather goes by",
            place, it->pid, it->host, it->rank);
    else if (it->why[0])
        hly_boot_say(g->log, level, "rank %d (pid %u on %.63s): %.295s", it->rank, it->pid,
                     it->host, it->why);
    else
        return false;
    return true;
}

static int judge(struct gather *g, struct hly_tcp_variables *v)
{
    const struct record *own = g->own, *first = &g->all[0];
    for (int place = 0; place < own->nranks; place++)
        if (is_wrong(g, place))
            return HALAY_EBOOT;
    if (own->rank < 0 || own->rank >= own->nranks)
        return hly_boot_error(g->log, HALAY_EINVAL,
                              "halay_init was told that this process (pid %u on %s) is rank %d of "
                              "%d: give it the rank that the allgather goes by",
                              own->pid, own->host, own->rank, own->nranks);
    if (memcmp(&g->all[own->rank], own, sizeof *own) != 0)
        return hly_boot_error(g->log, HALAY_EBOOT,
                              "two processes are rank %d: this one (pid %u on %s) and pid %u on "
                              "%.63s: give each process a rank of its own",
                              own->rank, own->pid, own->host, g->all[own->rank].pid,
                              g->all[own->rank].host);
    if (!hly_boot_split(first->address, v->address, &v->port))
        return HALAY_EBOOT;
    if (!v->key.has_secret)
        v->key.has_secret = hly_boot_secret_of(first->secret, v->key.secret);
    return HALAY_OK;
}

int hly_tcp_gather(const struct hly_boot_log *log, const halay_boot_rank_t *given,
                   uint64_t deadline_ns, struct hly_tcp_variables *v)
{
    const size_t n = (size_t)given->nranks + 1;
    struct gather g = {.log = log, .given = given, .begin_ns = hly_boot_now_ns()};
    bool left = false;
    g.end_ns = g.begin_ns + deadline_ns;
    g.all = calloc(n, sizeof g.all[0]);
    if (!g.all)
        return hly_boot_error(log, HALAY_ENOMEM, "out of memory for the records of %d ranks",
                              given->nranks);
    g.own = &g.all[n - 1];
    describe(&g, v);
    int rc = gather(&g, &left);
    if (!rc)
        rc = judge(&g, v);
    if (left)
        return rc;
    explicit_bzero(g.all, n * sizeof g.all[0]); /* the secret */
    free(g.all);
    return rc;
}
