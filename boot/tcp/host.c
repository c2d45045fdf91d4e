/* SPDX-License-Identifier: Apache-2.0 */
/*
 * host.c - rank 0: listens, awaits all ranks, and decides.
 *
 * Invariant: no rank is told anything before the verdict stands, and after that all are told the
 * same: the table, or one text. Only known guests (reception.c) are ranks.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "../../src/waits/text.h"
#include "../common/listen.h"
#include "../common/lookup.h"
#include "tcp.h"

#define MS 1000000ull
#define S  1000000000ull

enum { TICK_MS = 100, MISSING = 300 };
/* The time for late ranks to come and hear that there is no job, and the time for ranks to take a
 * table before the connection is left to the kernel. */
#define LATE_NS  (5 * S)
#define TAKEN_NS (1 * S)
#define LATE                                                                                       \
    "the job has begun, with another process as this rank: give each process a RANK of its own"

/* Where rank 0 listens for the rendezvous: on loopback if its address is that, else everywhere. */
struct door {
    struct sockaddr_storage at;
    bool local;
    halay_address_t near; /* at which the others find rank 0; family 0: not known */
};

struct host {
    struct hly_tcp *tcp;
    struct door door;
    struct hly_boot_reception reception;
    int port;
    struct hly_worlds *worlds;     /* of one meeting: who has come, and who is told what */
    struct hly_boot_hello *hellos; /* of the ranks that have come */
    uint64_t verdict_ns;           /* 0: there is none */
    bool missing;                  /* it is that ranks are missing: no more will come */
    struct hly_boot_answer answer;
    struct hly_boot_table table;
    char text[HLY_BOOT_TEXT_BYTES];
    struct hly_sha sha; /* of the table */
};

/* ---------------------------------------------------------------- the verdict */

static bool has_joined(const struct host *h)
{
    return h->worlds->epoch > 0;
}

static void tell(struct host *h, struct hly_boot_guest *g)
{
    struct hly_boot_answer a = h->answer;
    if (has_joined(h)) {
        const struct hly_piece part = hly_boot_table_part(&h->table, g->hello.rank, &a);
        hly_boot_reception_answer(&h->reception, g, &a, h->table.bytes, &h->sha, &part);
    } else {
        hly_boot_reception_text(&h->reception, g, h->text, HLY_BOOT_SAID);
    }
}

/* The verdict stands: all ranks that are here are told. */
static void announce(struct host *h)
{
    h->verdict_ns = hly_boot_now_ns();
    for (int i = 0; i < h->reception.nslots; i++) {
        struct hly_boot_guest *g = &h->reception.guests[i];
        if (g->fd >= 0 && g->known && !g->answering)
            tell(h, g);
    }
}

/* Why there will be no job. */
static void __attribute__((format(printf, 2, 3))) fail(struct host *h, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(h->text, sizeof h->text, format, args);
    va_end(args);
    hly_worlds_break(h->worlds);
}

static void join_all(struct host *h)
{
    struct hly_boot_answer *a = &h->answer;
    *a = (struct hly_boot_answer){.joined = HLY_BOOT_JOINED};
    if (hly_boot_random(h->tcp->log, a->job, sizeof a->job) ||
        (!h->tcp->v->key.has_secret && hly_boot_random(h->tcp->log, a->secret, sizeof a->secret)) ||
        hly_boot_table_write(h->hellos, h->tcp->v->nranks, a, &h->table)) {
        fail(h, "rank 0 is out of memory or of random bytes");
        return;
    }
    hly_worlds_joined(h->worlds);
    hly_boot_say_alone(h->tcp->log, h->hellos, h->tcp->v->nranks);
    hly_sha_init(&h->sha);
    hly_sha_add(&h->sha, h->table.bytes, a->bytes);
    announce(h);
}

/* "1, 3-5" */
static const char *list_missing(const struct host *h, char text[MISSING])
{
    struct hly_line line = hly_line(text, MISSING);
    const int n = h->tcp->v->nranks;
    for (int r = 1, last; r < n; r = last + 1) {
        last = r;
        if (!hly_worlds_is_awaited(h->worlds, r))
            continue;
        while (last + 1 < n && hly_worlds_is_awaited(h->worlds, last + 1))
            last++;
        hly_line_ranks(&line, r, last);
    }
    hly_line_more(&line, ", ");
    return text;
}

static void say_missing(struct host *h, uint64_t now)
{
    const struct hly_tcp *tcp = h->tcp;
    char missing[MISSING];
    h->missing = true;
    snprintf(h->text, sizeof h->text,
             "%d of the %d ranks did not come to the rendezvous of rank 0 (%s port %d, %s is "
             "'%.80s') within %.1f s: rank %s; are they running, have they called halay_init, and "
             "do they reach this host? (see HALAY_START_DEADLINE)%s",
             hly_worlds_waiting(h->worlds), tcp->v->nranks, tcp->self.host, h->port,
             tcp->v->given ? "its address" : "MASTER_ADDR or HALAY_RENDEZVOUS", tcp->v->address,
             (double)(now - tcp->begin_ns) / 1e9, list_missing(h, missing), h->reception.note);
}

/* Says who has not come yet. */
static void remind(const struct host *h)
{
    char missing[MISSING];
    hly_boot_remind(h->tcp->log, h->tcp->begin_ns, h->worlds->decide_ns, "halay_init",
                    " for %d of %d ranks to come to rank 0 (%s port %d): rank %s",
                    hly_worlds_waiting(h->worlds), h->tcp->v->nranks, h->tcp->self.host, h->port,
                    list_missing(h, missing));
}

static void refuse_all(struct host *h, const struct hly_worlds_action *a, uint64_t now)
{
    char who[128];
    if (a->cause == HLY_CAUSE_MISSING)
        say_missing(h, now);
    if (a->cause == HLY_CAUSE_LEFT)
        snprintf(h->text, sizeof h->text,
                 "%s has left while rank 0 waited for other ranks (port %d): it has died, or its "
                 "own deadline was over; see what it says",
                 hly_boot_who(&h->hellos[a->place], who), h->port);
    hly_boot_say(h->tcp->log, 0, "%s", h->text);
    hly_worlds_refused(h->worlds);
    announce(h);
}

static void go_on(struct host *h)
{
    struct hly_worlds_action a;
    uint64_t now = hly_boot_now_ns();
    for (; hly_worlds_next(h->worlds, now, &a); now = hly_boot_now_ns()) {
        if (a.what == HLY_WORLDS_TABLE)
            join_all(h);
        else if (a.what == HLY_WORLDS_REFUSE_ALL)
            refuse_all(h, &a, now);
        else if (a.what == HLY_WORLDS_NOTICE)
            remind(h);
    }
}

/* ---------------------------------------------------------------- what a guest says */

static void compare(struct host *h, const struct hly_boot_hello *it)
{
    const struct hly_boot_hello *me = &h->tcp->self;
    char a[128], b[128], builds[400];
    hly_boot_who(me, a);
    hly_boot_who(it, b);
    if (hly_boot_builds_differ(me, it, builds))
        fail(h, "%s (the rendezvous of rank 0 is at port %d)", builds, h->port);
    else if (it->nranks != me->nranks)
        fail(h,
             "%s has WORLD_SIZE=%u, but %s has WORLD_SIZE=%u: give all ranks the same (the "
             "rendezvous of rank 0 is at port %d)",
             b, it->nranks, a, me->nranks, h->port);
    else if (it->rank >= me->nranks)
        fail(h, "%s is out of the range of WORLD_SIZE=%u (the rendezvous of rank 0 is at port %d)",
             b, me->nranks, h->port);
}

static void take(struct host *h, const struct hly_boot_hello *it)
{
    char a[128], b[128];
    if (it->rank >= (uint32_t)h->tcp->v->nranks)
        return;
    const struct hly_worlds_hello hello = {it->id, 0, it->left_ns, it->lost, false};
    const enum hly_hello was =
        hly_worlds_hello(h->worlds, (int)it->rank, &hello, hly_boot_now_ns());
    if (was == HLY_HELLO_TAKEN)
        h->hellos[it->rank] = *it;
    if (was == HLY_HELLO_TWIN)
        snprintf(h->text, sizeof h->text,
                 "two processes are the same rank: %s and %s: give each process a RANK of its own "
                 "(the rendezvous of rank 0 is at port %d)",
                 hly_boot_who(&h->hellos[it->rank], a), hly_boot_who(it, b), h->port);
}

static void hear_rank(void *arg, struct hly_boot_guest *g)
{
    struct host *h = arg;
    if (!h->verdict_ns) {
        compare(h, &g->hello);
        if (!h->worlds->broken)
            take(h, &g->hello);
        go_on(h);
    }
    if (h->verdict_ns)
        take(h, &g->hello);             /* no more than that it has been told */
    if (h->verdict_ns && !g->answering) /* it came late, or a second time */
        hly_boot_reception_text(&h->reception, g, has_joined(h) ? LATE : h->text,
                                has_joined(h) ? 0 : HLY_BOOT_SAID);
}

static void lose_rank(void *arg, struct hly_boot_guest *g)
{
    struct host *h = arg;
    if (g->answering || g->hello.rank >= (uint32_t)h->tcp->v->nranks)
        return;
    hly_worlds_left(h->worlds, (int)g->hello.rank);
    go_on(h);
}

static void run_out(void *arg)
{
    struct host *h = arg;
    if (h->verdict_ns)
        return;
    fail(h,
         "rank 0 has no file descriptors left for the rendezvous of %d ranks, one for each: raise "
         "the limit on its host (ulimit -n)",
         h->tcp->v->nranks);
    go_on(h);
}

/* ---------------------------------------------------------------- to its end */

static bool finished(const struct host *h, uint64_t now)
{
    if (!h->verdict_ns)
        return false;
    if (now >= h->tcp->end_ns)
        return true;
    if (has_joined(h))
        return h->reception.nknown == 0 ||
               (hly_boot_reception_sent(&h->reception) && now > h->verdict_ns + TAKEN_NS);
    const bool all = h->missing || !hly_worlds_untold(h->worlds);
    return (all && h->reception.nknown == 0) || now > h->verdict_ns + LATE_NS;
}

static int serve(struct host *h)
{
    for (;;) {
        go_on(h);
        if (finished(h, hly_boot_now_ns()))
            return has_joined(h) ? HALAY_OK : HALAY_EBOOT;
        hly_boot_reception_turn(&h->reception, h->verdict_ns ? 10 : TICK_MS);
    }
}

/* ---------------------------------------------------------------- listening */

/* If MASTER_ADDR is loopback for rank 0, all ranks are on one host, and all listen on loopback. */
static void place_door(const struct hly_tcp *tcp, struct door *door)
{
    const struct addrinfo *found = NULL;
    struct sockaddr_in6 any6 = {.sin6_family = AF_INET6, .sin6_addr = in6addr_any};
    struct hly_lookup *name = hly_lookup_start(tcp->v->address);
    const uint64_t half_ns = tcp->begin_ns + (tcp->end_ns - tcp->begin_ns) / 2;
    const bool over = name && hly_lookup_wait(name, half_ns); /* others have yet to come */
    int rc = over ? hly_lookup_found(name, &found) : EAI_AGAIN;
    memset(door, 0, sizeof *door);
    memcpy(&door->at, &any6, sizeof any6);
    if (rc)
        hly_boot_say(tcp->log, 1,
                     "rank 0 is to be found at '%.100s', which does not resolve on its own host "
                     "(%s): it listens on all addresses",
                     tcp->v->address, gai_strerror(rc));
    for (const struct addrinfo *f = found; f; f = f->ai_next) {
        halay_address_t it;
        if (!hly_address_from(f->ai_addr, &it))
            continue;
        it.port = 0;
        if (hly_address_loopback(&it)) {
            memcpy(&door->at, f->ai_addr, f->ai_addrlen);
            door->near = it;
            door->local = true;
            if (it.family == AF_INET) /* of a name with both, the one that all ranks are sure to
                                         try */
                break;
        } else if (!door->near.family && hly_address_is_ours(&it)) {
            door->near = it; /* this is where the others find rank 0 */
        }
    }
    hly_lookup_end(name);
}

/* Someone has the port: if it is this job's rank 0, there are two. It is met, and refuses. */
static bool met_twin(struct host *h, int port, struct hly_boot_identity *id)
{
    static const char *const here[] = {"127.0.0.1", "::1"};
    struct hly_boot_greeting greeting;
    struct sockaddr_storage at;
    halay_address_t address;
    char why[HLY_BOOT_WHY];
    int fd = -1;
    for (int i = 0; i < 2 && fd < 0; i++) {
        hly_address_parse(here[i], &address);
        const socklen_t bytes = hly_address_to(&address, &at);
        fd = hly_boot_knock(&h->tcp->v->key, (struct sockaddr *)&at, bytes, port,
                            hly_boot_now_ns() + 500 * MS, &greeting, why);
    }
    return fd >= 0 && hly_tcp_meet(h->tcp, fd, port, &greeting, id) != HALAY_OK;
}

static int open_door(struct host *h, struct hly_boot_identity *id)
{
    const struct hly_tcp_variables *v = h->tcp->v;
    int *listen_fd = &h->reception.listen_fd, error = 0;
    *listen_fd = v->door_fd;
    h->port = v->port;
    for (int k = 0; k < v->nports && *listen_fd < 0; k++) {
        h->port = v->ports[k];
        *listen_fd = hly_listen_door(&h->door.at, h->port);
        error = errno;
        if (*listen_fd < 0 && error == EADDRINUSE && met_twin(h, h->port, id))
            return HALAY_EBOOT;
    }
    if (*listen_fd >= 0)
        return HALAY_OK;
    return hly_boot_error(
        h->tcp->log, HALAY_EBOOT,
        "rank 0 (pid %u on %s) can listen on none of the ports %d to %d (last: %s%s): free one, "
        "choose another MASTER_PORT, or set HALAY_RENDEZVOUS=host:port on all ranks",
        h->tcp->self.pid, h->tcp->self.host, v->ports[0], v->ports[v->nports - 1], strerror(error),
        hly_boot_remedy(error));
}

/* One descriptor a rank: the soft limit is lifted for the time of the rendezvous if need be. */
static bool lift_limit(int nslots, struct rlimit *old)
{
    struct rlimit limit;
    rlim_t need = (rlim_t)nslots + 512;
    if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur >= need)
        return false;
    *old = limit;
    limit.rlim_cur = limit.rlim_max < need ? limit.rlim_max : need;
    return setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

static int hold(struct host *h, struct hly_boot_identity *id)
{
    struct rlimit old;
    int rc = open_door(h, id);
    if (rc)
        return rc;
    bool lifted = lift_limit(h->tcp->v->nranks + HLY_BOOT_STRANGERS, &old);
    h->reception.local = h->door.local;
    rc = hly_boot_reception_open(&h->reception, h->tcp->v->nranks);
    if (rc) {
        hly_boot_errno(h->tcp->log, errno, "rank 0 cannot hold the rendezvous of %d ranks",
                       h->tcp->v->nranks);
        goto out;
    }
    hly_boot_say(h->tcp->log, 2, "rank 0 awaits %d ranks at port %d", h->tcp->v->nranks - 1,
                 h->port);
    rc = serve(h);
out:
    hly_boot_reception_close(&h->reception);
    if (h->reception.listen_fd != h->tcp->v->door_fd)
        close(h->reception.listen_fd);
    if (lifted)
        setrlimit(RLIMIT_NOFILE, &old);
    return rc;
}

/* All ranks are on their way, and this one is there: where it is alone, that is all. */
static void begin(struct host *h)
{
    struct hly_boot_hello self = h->tcp->self;
    const uint64_t now = hly_boot_now_ns();
    h->worlds->once = true;
    for (int r = 0; r < h->tcp->v->nranks; r++)
        hly_worlds_start(h->worlds, r);
    self.left_ns = now < h->tcp->end_ns ? h->tcp->end_ns - now : 0;
    take(h, &self);
    if (h->tcp->v->nranks == 1)
        go_on(h);
}

int hly_tcp_host(struct hly_tcp *tcp, struct hly_boot_identity *id)
{
    const int n = tcp->v->nranks;
    struct host h = {.tcp = tcp};
    int rc = HALAY_ENOMEM;
    h.reception = (struct hly_boot_reception){
        .log = tcp->log,
        .key = &tcp->v->key,
        .holder = "rank 0",
        .refusal = "this process is not one of the ranks that rank 0 takes",
        .listen_fd = -1,
        .epoll_fd = -1,
        .arg = &h,
        .heard = hear_rank,
        .left = lose_rank,
        .full = run_out};
    h.worlds = hly_boot_worlds_new(n, 0);
    h.hellos = calloc((size_t)n, sizeof h.hellos[0]);
    if (!h.worlds || !h.hellos) {
        hly_boot_say(tcp->log, 0, "out of memory for the rendezvous of %d ranks", n);
        goto out;
    }
    place_door(tcp, &h.door);
    rc = hly_listen_near(tcp->log, &h.door.near, &tcp->self.address, &tcp->listen_fd);
    if (rc)
        goto out;
    begin(&h);
    rc = h.verdict_ns ? (has_joined(&h) ? HALAY_OK : HALAY_EBOOT) : hold(&h, id);
    if (!rc) {
        hly_boot_table_part(&h.table, 0, &h.answer);
        rc = hly_boot_table_read(&tcp->v->key, &h.answer, h.table.bytes, id);
    }
out:
    hly_boot_table_finish(&h.table);
    free(h.hellos);
    free(h.worlds);
    return rc;
}
