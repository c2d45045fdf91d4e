/* SPDX-License-Identifier: Apache-2.0 */
/*
 * host.c - rank 0: listens, awaits all ranks, and decides.
 *
 * Invariant: no rank is told anything before the verdict stands, and after that all are told the
 * same: the table, or one text. Only known guests (reception.c) are ranks.
 */
#define _GNU_SOURCE
#include <assert.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../../src/waits/text.h"
#include "../../src/waits/waits.h"
#include "tcp.h"

#define MS 1000000ull
#define S  1000000000ull

enum { TICK_MS = 100 };
/* The time for late ranks to come and hear that there is no job, and the time for ranks to take a
 * table before the connection is left to the kernel. */
#define LATE_NS  (5 * S)
#define TAKEN_NS (1 * S)
#define LATE                                                                                       \
    "the job has begun, with another process as this rank: give each process a RANK of its own"

struct host {
    struct hly_tcp *tcp;
    struct hly_tcp_door door;
    struct hly_boot_reception reception;
    int port;
    struct hly_boot_hello *hellos; /* of the ranks that came; magic is 0 where none did */
    bool *told_to;                 /* by rank: told the verdict, or gone without waiting for it */
    int came, told;
    enum { WAITING, JOINED, FAILED } verdict;
    uint64_t decide_ns, verdict_ns;
    struct hly_notices notices; /* of who is missing */
    bool missing;               /* the verdict is that ranks are missing: no more will come */
    struct hly_boot_answer answer;
    struct hly_boot_table table;
    char text[HLY_BOOT_TEXT_BYTES];
    struct hly_sha sha; /* of what all ranks are told */
};

/* ---------------------------------------------------------------- the verdict */

static void count_told(struct host *h, const struct hly_boot_guest *g)
{
    if (g->hello.rank < (uint32_t)h->tcp->v->nranks && !h->told_to[g->hello.rank]) {
        h->told_to[g->hello.rank] = true;
        h->told++;
    }
}

static void tell(struct host *h, struct hly_boot_guest *g)
{
    struct hly_boot_answer a = h->answer;
    count_told(h, g);
    if (h->verdict == JOINED) {
        const struct hly_piece part = hly_boot_table_part(&h->table, g->hello.rank, &a);
        hly_boot_reception_answer(&h->reception, g, &a, h->table.bytes, &h->sha, &part);
    } else {
        hly_boot_reception_answer(&h->reception, g, &a, h->text, &h->sha, NULL);
    }
}

/* The verdict stands: all ranks that are here are told. */
static void announce(struct host *h)
{
    const char *payload = h->verdict == JOINED ? h->table.bytes : h->text;
    h->verdict_ns = hly_boot_now_ns();
    hly_sha_init(&h->sha);
    hly_sha_add(&h->sha, payload, h->answer.bytes);
    for (int i = 0; i < h->reception.nslots; i++) {
        struct hly_boot_guest *g = &h->reception.guests[i];
        if (g->fd >= 0 && g->known && !g->answering)
            tell(h, g);
    }
}

static void __attribute__((format(printf, 2, 3))) fail(struct host *h, const char *format, ...)
{
    va_list args;
    if (h->verdict != WAITING)
        return;
    va_start(args, format);
    vsnprintf(h->text, sizeof h->text, format, args);
    va_end(args);
    hly_boot_say(h->tcp->log, 0, "%s", h->text);
    h->verdict = FAILED;
    h->answer =
        (struct hly_boot_answer){.magic = HLY_BOOT_MAGIC, .version = HLY_BOOT_VERSION, .said = 1};
    h->answer.bytes = (uint32_t)strlen(h->text);
    announce(h);
}

static void join_all(struct host *h)
{
    struct hly_boot_answer *a = &h->answer;
    *a = (struct hly_boot_answer){
        .magic = HLY_BOOT_MAGIC, .version = HLY_BOOT_VERSION, .joined = HLY_BOOT_JOINED};
    if (hly_boot_random(h->tcp->log, a->job, sizeof a->job) ||
        (!h->tcp->v->key.has_secret && hly_boot_random(h->tcp->log, a->secret, sizeof a->secret)) ||
        hly_boot_table_write(h->hellos, h->tcp->v->nranks, a, &h->table)) {
        fail(h, "rank 0 is out of memory or of random bytes");
        return;
    }
    h->verdict = JOINED;
    hly_boot_say_alone(h->tcp->log, h->hellos, h->tcp->v->nranks);
    announce(h);
}

/* ---------------------------------------------------------------- what a guest says */

static void compare(struct host *h, const struct hly_boot_guest *g)
{
    const struct hly_boot_hello *me = &h->tcp->self, *it = &g->hello;
    char a[128], b[128], at[48], builds[400];
    snprintf(at, sizeof at, "the rendezvous of rank 0 is at port %d", h->port);
    hly_boot_who(me, a);
    hly_boot_who(it, b);
    if (hly_boot_builds_differ(me, it, builds))
        fail(h, "%s (%s)", builds, at);
    else if (it->nranks != me->nranks)
        fail(h, "%s has WORLD_SIZE=%u, but %s has WORLD_SIZE=%u: give all ranks the same (%s)", b,
             it->nranks, a, me->nranks, at);
    else if (it->rank >= me->nranks)
        fail(h, "%s is out of the range of WORLD_SIZE=%u (%s)", b, me->nranks, at);
    else if (h->hellos[it->rank].magic)
        fail(h,
             "two processes are the same rank: %s and %s: give each process a RANK of its own "
             "(%s)",
             hly_boot_who(&h->hellos[it->rank], a), b, at);
    else
        return;
    assert(h->verdict == FAILED);
}

static void hear_rank(void *arg, struct hly_boot_guest *g)
{
    struct host *h = arg;
    const struct hly_boot_hello *it = &g->hello;
    if (h->verdict == WAITING)
        compare(h, g);
    if (h->verdict != WAITING) {
        if (!g->answering) { /* it came late, or a second time */
            count_told(h, g);
            hly_boot_reception_text(&h->reception, g, h->verdict == FAILED ? h->text : LATE,
                                    h->verdict == FAILED ? HLY_BOOT_SAID : 0);
        }
        return;
    }
    uint64_t now = hly_boot_now_ns(), left = it->left_ns,
             spare = left / 5 < 2 * S ? left / 5 : 2 * S;
    if (left < 2000000000 * S && now + left - spare < h->decide_ns)
        h->decide_ns = now + left - spare; /* it is to hear the verdict before it gives up */
    h->hellos[it->rank] = *it;
    if (++h->came == h->tcp->v->nranks)
        join_all(h);
}

static void lose_rank(void *arg, struct hly_boot_guest *g)
{
    struct host *h = arg;
    char who[128];
    if (g->answering)
        return;
    count_told(h, g);
    fail(h,
         "%s has left while rank 0 waited for other ranks (port %d): it has died, or its own "
         "deadline was over; see what it says",
         hly_boot_who(&g->hello, who), h->port);
}

static void run_out(void *arg)
{
    struct host *h = arg;
    fail(h,
         "rank 0 has no file descriptors left for the rendezvous of %d ranks, one for each: raise "
         "the limit on its host (ulimit -n)",
         h->tcp->v->nranks);
}

/* "1, 3-5" */
static void list_missing(const struct host *h, struct hly_line *line)
{
    const int n = h->tcp->v->nranks;
    for (int r = 1, last; r < n; r = last + 1) {
        last = r;
        if (h->hellos[r].magic)
            continue;
        while (last + 1 < n && !h->hellos[last + 1].magic)
            last++;
        hly_line_ranks(line, r, last);
    }
    hly_line_more(line, ", ");
}

static void give_up(struct host *h)
{
    const struct hly_tcp *tcp = h->tcp;
    char missing[300];
    struct hly_line line = hly_line(missing, sizeof missing);
    list_missing(h, &line);
    h->missing = true;
    fail(h,
         "%d of the %d ranks did not come to the rendezvous of rank 0 (%s port %d, %s is "
         "'%.80s') within %.1f s: rank %s; are they running, have they called "
         "halay_init, and do they reach this host? (see HALAY_START_DEADLINE)%s",
         tcp->v->nranks - h->came, tcp->v->nranks, tcp->self.host, h->port,
         tcp->v->given ? "its address" : "MASTER_ADDR or HALAY_RENDEZVOUS", tcp->v->address,
         (double)(hly_boot_now_ns() - tcp->begin_ns) / 1e9, missing, h->reception.note);
}

/* Says who has not come yet. */
static void remind(struct host *h, uint64_t now)
{
    char text[600];
    struct hly_line line = hly_line(text, sizeof text);
    if (h->verdict != WAITING || !hly_notices_give(&h->notices, now))
        return;
    hly_line_waited(&line, now - h->tcp->begin_ns, "halay_init");
    hly_line_put(&line, " for %d of %d ranks to come to rank 0 (%s port %d): rank ",
                 h->tcp->v->nranks - h->came, h->tcp->v->nranks, h->tcp->self.host, h->port);
    list_missing(h, &line);
    hly_line_until(&line, HLY_ENDS, h->decide_ns, now);
    hly_boot_say(h->tcp->log, 1, "%s", text);
}

static bool finished(const struct host *h, uint64_t now)
{
    if (h->verdict == WAITING)
        return false;
    if (now >= h->tcp->end_ns)
        return true;
    if (h->verdict == JOINED)
        return h->reception.nknown == 0 ||
               (hly_boot_reception_sent(&h->reception) && now > h->verdict_ns + TAKEN_NS);
    bool all = h->missing || h->told >= h->tcp->v->nranks - 1;
    return (all && h->reception.nknown == 0) || now > h->verdict_ns + LATE_NS;
}

static int serve(struct host *h)
{
    for (;;) {
        uint64_t now = hly_boot_now_ns();
        if (h->verdict == WAITING && now >= h->decide_ns)
            give_up(h);
        remind(h, now);
        if (finished(h, now))
            return h->verdict == JOINED ? HALAY_OK : HALAY_EBOOT;
        hly_boot_reception_turn(&h->reception, h->verdict == WAITING ? TICK_MS : 10);
    }
}

/* ---------------------------------------------------------------- listening */

/* Someone has the port: if it is this job's rank 0, there are two. It is met, and refuses. */
static bool met_twin(struct host *h, int port, struct hly_boot_identity *id)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found;
    struct hly_boot_greeting greeting;
    char why[200];
    if (getaddrinfo("localhost", NULL, &hints, &found))
        return false;
    int fd = -1;
    for (struct addrinfo *at = found; at && fd < 0; at = at->ai_next)
        fd = hly_tcp_knock(h->tcp, at, port, hly_boot_now_ns() + 500 * MS, &greeting, why);
    freeaddrinfo(found);
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
        *listen_fd = hly_tcp_door_open(&h->door, h->port);
        error = errno;
        if (*listen_fd < 0 && error == EADDRINUSE && met_twin(h, h->port, id))
            return HALAY_EBOOT;
    }
    if (*listen_fd >= 0)
        return HALAY_OK;
    hly_boot_say(
        h->tcp->log, 0,
        "rank 0 (pid %u on %s) can listen on none of the ports %d to %d (last: %s%s): free "
        "one, choose another MASTER_PORT, or set HALAY_RENDEZVOUS=host:port on all ranks",
        h->tcp->self.pid, h->tcp->self.host, v->ports[0], v->ports[v->nports - 1], strerror(error),
        hly_boot_remedy(error));
    return HALAY_EBOOT;
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
        hly_boot_say(h->tcp->log, 0, "rank 0 cannot hold the rendezvous of %d ranks: %s%s",
                     h->tcp->v->nranks, strerror(errno), hly_boot_remedy(errno));
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

int hly_tcp_host(struct hly_tcp *tcp, struct hly_boot_identity *id)
{
    int n = tcp->v->nranks;
    struct host h = {.tcp = tcp};
    uint64_t all = tcp->end_ns - tcp->begin_ns;
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
    h.notices = (struct hly_notices){tcp->begin_ns, HLY_FIRST_NOTICE_NS, 0};
    h.decide_ns = tcp->end_ns - (all / 5 < 2 * S ? all / 5 : 2 * S);
    h.hellos = calloc((size_t)n, sizeof h.hellos[0]);
    h.told_to = calloc((size_t)n, sizeof h.told_to[0]);
    if (!h.hellos || !h.told_to) {
        hly_boot_say(tcp->log, 0, "out of memory for the rendezvous of %d ranks", n);
        goto out;
    }
    hly_tcp_door_place(tcp, &h.door);
    rc = hly_tcp_listen(tcp, &h.door.near);
    if (rc)
        goto out;
    h.hellos[0] = tcp->self;
    h.came = 1;
    h.told_to[0] = true;
    if (n == 1)
        join_all(&h);
    rc = n == 1 ? (h.verdict == JOINED ? HALAY_OK : HALAY_EBOOT) : hold(&h, id);
    if (!rc) {
        hly_boot_table_part(&h.table, 0, &h.answer);
        rc = hly_boot_table_read(&tcp->v->key, &h.answer, h.table.bytes, id);
    }
out:
    hly_boot_table_finish(&h.table);
    free(h.told_to);
    free(h.hellos);
    return rc;
}
