/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pmi.c - the bootstrap under a launcher with PMI-1, such as Hydra, the mpiexec of MPICH and Intel
 * MPI. Rank 0 puts in where it listens and a secret, all pass one barrier, and the others get that;
 * then the ranks meet at rank 0 as by variables. docs/decisions/bootstraps.md#0138.
 *
 * Invariant: a process joins once, and later opens are epochs of the same identity. It says that it
 * leaves PMI when it exits: one that is killed, or calls _exit, is known to the launcher at once.
 */
#define _GNU_SOURCE
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../../common/job.h"
#include "../common/life.h"
#include "../common/listen.h"
#include "tcp.h"

#define KEY    "halay"
#define FAILED "-" /* the address of a rank 0 that cannot go on */

enum {
    LEAVE_MS = 1000,
    LINE = 2048,
    KVS_NAME = 512,
    SECRET = 40,
    VALUE = HLY_LISTEN_NAME + SECRET
};

struct pmi {
    const struct hly_boot_log *log;
    int fd, rank, nranks;
    uint64_t begin_ns, end_ns;
    struct hly_notices notices;
    const char *asks; /* the request that waits for its answer */
    char line[LINE];  /* that answer */
};

static struct halay_boot self = HLY_BOOT_CLOSED;
static bool tried;                    /* guarded by the phase of self */
static _Atomic int own_fd = -1;       /* a duplicate of PMI_FD, which nobody else closes */
static _Atomic int inherited_fd = -1; /* PMI_FD */

/* ---------------------------------------------------------------- the connection */

static int broken(struct pmi *p, const char *what)
{
    return hly_boot_error(p->log, HALAY_EBOOT,
                          "the launcher's PMI did not answer rank %d's '%s': %s; was the launcher "
                          "killed, or has another program or MPI of this process used PMI before?",
                          p->rank, p->asks, what);
}

static int late(const struct pmi *p)
{
    return hly_boot_error(
        p->log, HALAY_EBOOT,
        "the launcher's PMI did not answer rank %d's '%s' within %.1f s: do all %d ranks live, and "
        "has each called halay_init? (see HALAY_START_DEADLINE)",
        p->rank, p->asks, (double)(hly_boot_now_ns() - p->begin_ns) / 1e9, p->nranks);
}

static int malformed(struct pmi *p)
{
    for (char *c = p->line; *c; c++)
        *c = isprint((unsigned char)*c) ? *c : '?';
    return hly_boot_error(p->log, HALAY_EBOOT,
                          "the launcher's PMI answered rank %d's '%s' with '%.120s', which is not "
                          "PMI-1: use a launcher with PMIx, or halayrun",
                          p->rank, p->asks, p->line);
}

/* Until the descriptor has the event. Reminds of a barrier that lasts. */
static int await(struct pmi *p, short event)
{
    for (;;) {
        struct pollfd waits = {.fd = p->fd, .events = event};
        const int left_ms = hly_boot_ms(p->end_ns);
        if (left_ms == 0)
            return late(p);
        const int n = poll(&waits, 1, left_ms < 500 ? left_ms : 500);
        if (n > 0)
            return HALAY_OK;
        if (n < 0 && errno != EINTR)
            return broken(p, strerror(errno));
        if (p->rank <= 1 && hly_notices_give(&p->notices, hly_boot_now_ns()))
            hly_boot_remind(p->log, p->begin_ns, p->end_ns, "halay_init",
                            " for all %d ranks to call it: the launcher's PMI has not answered "
                            "rank %d's '%s'",
                            p->nranks, p->rank, p->asks);
    }
}

static int put_all(struct pmi *p, const char *text, size_t bytes)
{
    for (size_t at = 0; at < bytes;) {
        const ssize_t n = send(p->fd, text + at, bytes - at, MSG_NOSIGNAL | MSG_DONTWAIT);
        int rc = HALAY_OK;
        if (n > 0)
            at += (size_t)n;
        else if (errno == EAGAIN)
            rc = await(p, POLLOUT);
        else if (errno != EINTR)
            rc = broken(p, strerror(errno));
        if (rc)
            return rc;
    }
    return HALAY_OK;
}

/* One line: nothing may follow it, as an answer follows a request. */
static int take_line(struct pmi *p)
{
    for (size_t at = 0; at < LINE - 1;) {
        int rc = await(p, POLLIN);
        const ssize_t n = rc ? 0 : recv(p->fd, p->line + at, LINE - 1 - at, MSG_DONTWAIT);
        if (!rc && n == 0)
            rc = broken(p, "the connection has ended");
        else if (n < 0 && errno != EAGAIN && errno != EINTR)
            rc = broken(p, strerror(errno));
        if (rc)
            return rc;
        at += n > 0 ? (size_t)n : 0;
        p->line[at] = 0;
        char *end = strchr(p->line, '\n');
        if (!end && strlen(p->line) == at)
            continue;
        if (!end || end != p->line + at - 1)
            return malformed(p);
        *end = 0;
        return HALAY_OK;
    }
    return malformed(p);
}

/* The value of a field of the answer. False: there is none that fits. */
static bool field(const struct pmi *p, const char *key, char *value, size_t bytes)
{
    const size_t length = strlen(key);
    const char *at = p->line;
    while ((at = strstr(at, key)) && (at == p->line || at[-1] != ' ' || at[length] != '='))
        at++;
    const size_t n = at ? strcspn(at + length + 1, " ") : bytes;
    if (n >= bytes)
        return false;
    memcpy(value, at + length + 1, n);
    value[n] = 0;
    return true;
}

/* Sends "cmd=ASKS" with its fields, and takes the line of that answer. */
static int __attribute__((format(printf, 4, 5)))
ask(struct pmi *p, const char *asks, const char *answer, const char *format, ...)
{
    char text[LINE], rc_text[16];
    const size_t length = strlen(answer);
    int n = snprintf(text, sizeof text, "cmd=%s", asks);
    va_list args;
    va_start(args, format);
    n += vsnprintf(text + n, sizeof text - (size_t)n - 1, format, args);
    va_end(args);
    text[n++] = '\n';
    p->asks = asks;
    int rc = put_all(p, text, (size_t)n);
    explicit_bzero(text, sizeof text); /* the secret */
    if (!rc)
        rc = take_line(p);
    if (rc)
        return rc;
    if (strncmp(p->line, "cmd=", 4) != 0 || strncmp(p->line + 4, answer, length) != 0 ||
        !strchr(" ", p->line[4 + length]) ||
        (field(p, "rc", rc_text, sizeof rc_text) && strcmp(rc_text, "0") != 0))
        return malformed(p);
    return HALAY_OK;
}

/* ---------------------------------------------------------------- where rank 0 is */

/* Rank 0 listens before the others are told where. `value` is set in any case. */
static int open_door(struct pmi *p, struct hly_tcp_variables *v, char value[VALUE])
{
    halay_address_t address = {0};
    char name[HLY_LISTEN_NAME];
    uint8_t random[16] = {0};
    strcpy(value, FAILED "/");
    int rc = hly_listen_near(p->log, NULL, &address, &v->door_fd);
    if (!rc && !v->key.has_secret)
        rc = hly_boot_random(p->log, random, sizeof random);
    if (rc)
        return rc;
    int n = snprintf(value, VALUE, "%s/", hly_address_name(&address, name));
    for (size_t i = 0; i < sizeof random && !v->key.has_secret; i++)
        n += snprintf(value + n, VALUE - (size_t)n, "%02x", random[i]);
    return HALAY_OK;
}

static int take_value(struct pmi *p, struct hly_tcp_variables *v)
{
    char value[VALUE];
    char *slash = field(p, "value", value, sizeof value) ? strchr(value, '/') : NULL;
    if (!slash)
        return malformed(p);
    *slash = 0;
    if (!strcmp(value, FAILED))
        return hly_boot_error(p->log, HALAY_EBOOT,
                              "rank 0 cannot go on, and has said why on its own standard error");
    if (!hly_boot_split(value, v->address, &v->port))
        return malformed(p);
    if (!v->key.has_secret)
        v->key.has_secret = hly_boot_secret_of(slash + 1, v->key.secret);
    explicit_bzero(value, sizeof value);
    return HALAY_OK;
}

static int exchange(struct pmi *p, struct hly_tcp_variables *v)
{
    char number[16], kvs[KVS_NAME], value[VALUE] = "";
    int door = HALAY_OK;
    int rc = ask(p, "init", "response_to_init", " pmi_version=1 pmi_subversion=1");
    if (!rc && (!field(p, "pmi_version", number, sizeof number) || strcmp(number, "1") != 0))
        rc = malformed(p);
    if (!rc)
        rc = ask(p, "get_maxes", "maxes", "%s", "");
    if (!rc && (!field(p, "vallen_max", number, sizeof number) ||
                hly_boot_number(number, 1 << 30) < VALUE))
        rc = malformed(p);
    if (!rc)
        rc = ask(p, "get_my_kvsname", "my_kvsname", "%s", "");
    if (!rc && !field(p, "kvsname", kvs, sizeof kvs))
        rc = malformed(p);
    if (!rc && p->rank == 0) {
        door = open_door(p, v, value);
        rc = ask(p, "put", "put_result", " kvsname=%s key=" KEY " value=%s", kvs, value);
        explicit_bzero(value, sizeof value);
    }
    if (!rc)
        rc = ask(p, "barrier_in", "barrier_out", "%s", "");
    if (!rc && !door)
        rc = ask(p, "get", "get_result", " kvsname=%s key=" KEY, kvs);
    if (!rc && !door)
        rc = take_value(p, v);
    explicit_bzero(p->line, sizeof p->line);
    return rc ? rc : door;
}

/* ---------------------------------------------------------------- the process */

static const char *value_of(const char *name)
{
    const char *text = getenv(name);
    return text && *text ? text : NULL;
}

static int announced(int *nranks)
{
    const int n = hly_boot_number(value_of("PMI_SIZE"), HLY_BOOT_RANKS_MAX);
    *nranks = n > 1 && !hly_job_none() ? n : 1;
    return *nranks > 1 && value_of("PMI_FD") && value_of("PMI_RANK");
}

static void forget(void)
{
    const int own = atomic_exchange(&own_fd, -1), inherited = atomic_exchange(&inherited_fd, -1);
    if (own >= 0)
        close(own);
    if (inherited >= 0)
        close(inherited);
}

static void forked(void)
{
    forget();
    hly_boot_life_forked(&self);
}

/*
 * Without this line the launcher ends the job: that is right if this rank did not join, since the
 * others wait for it. Hydra fails where nobody takes its answer.
 */
static void __attribute__((destructor)) leave_pmi(void)
{
    static const char text[] = "cmd=finalize\n";
    char answer[64];
    struct pollfd waits = {.fd = atomic_exchange(&own_fd, -1), .events = POLLIN};
    if (waits.fd < 0)
        return;
    if (self.id.epoch && send(waits.fd, text, sizeof text - 1, MSG_NOSIGNAL | MSG_DONTWAIT) > 0 &&
        poll(&waits, 1, LEAVE_MS) > 0 && recv(waits.fd, answer, sizeof answer, MSG_DONTWAIT) < 0)
        waits.revents = 0; /* the process ends in any case */
    close(waits.fd);
}

/* The variables, and a descriptor that only this process of the node uses as this rank. */
static int who_am_i(struct pmi *p, struct hly_tcp_variables *v)
{
    const char *rank = value_of("PMI_RANK"), *size = value_of("PMI_SIZE");
    const char *text = value_of("PMI_FD");
    const int fd = hly_boot_number(text, 1 << 20);
    struct stat its;
    p->nranks = hly_boot_number(size, HLY_BOOT_RANKS_MAX);
    p->rank = hly_boot_number(rank, HLY_BOOT_RANKS_MAX);
    if (p->nranks < 1 || p->rank < 0 || p->rank >= p->nranks)
        return hly_boot_error(p->log, HALAY_EBOOT,
                              "PMI_RANK is '%.40s' and PMI_SIZE '%.40s': they take numbers, the "
                              "first less than the second, which is at most %d; to run this "
                              "process alone, set HALAY_JOB=none",
                              rank ? rank : "", size ? size : "", HLY_BOOT_RANKS_MAX);
    if (fd < 0 || fstat(fd, &its) || !S_ISSOCK(its.st_mode))
        return hly_boot_error(
            p->log, HALAY_EBOOT,
            "PMI_FD is '%.40s', which is no open socket of this process: if a rank has started it, "
            "set HALAY_JOB=none to run it alone; else let the descriptor through to the program",
            text ? text : "");
    snprintf(v->claim, sizeof v->claim, "%llu", (unsigned long long)its.st_ino);
    snprintf(v->rank_text, sizeof v->rank_text, "%d", p->rank);
    const char *names[3] = {"pmi", v->claim, v->rank_text};
    const int rc = hly_boot_claim(p->log, names, 3, v->rank_text, &self.claim_fd);
    if (rc)
        return rc;
    p->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (p->fd < 0)
        return hly_boot_errno(p->log, errno, "rank %d cannot duplicate PMI_FD", p->rank);
    fcntl(fd, F_SETFD, FD_CLOEXEC); /* a child that outlives this rank would hide its death */
    atomic_store(&own_fd, p->fd);
    atomic_store(&inherited_fd, fd);
    return HALAY_OK;
}

static int join(const struct hly_boot_log *log, uint64_t deadline_ns, const halay_boot_info_t *info)
{
    struct hly_tcp_variables v = {.given = true, .door_fd = -1, .nports = 1};
    const uint64_t begin_ns = hly_boot_now_ns();
    struct pmi p = {.log = log,
                    .begin_ns = begin_ns,
                    .end_ns = begin_ns + deadline_ns,
                    .notices = {begin_ns, HLY_FIRST_NOTICE_NS, 0}};
    int rc = hly_boot_life_heeds_fork(&self, log, forked);
    if (!rc)
        rc = who_am_i(&p, &v);
    if (rc) {
        hly_boot_life_unclaim(&self);
        return rc;
    }
    tried = true;
    v.rank = p.rank;
    v.nranks = p.nranks;
    v.key.has_secret = hly_boot_secret(v.key.secret);
    rc = exchange(&p, &v);
    v.ports[0] = v.port;
    snprintf(v.port_text, sizeof v.port_text, "%d", v.port);
    const char *key[2] = {"halay pmi", v.port_text};
    hly_boot_hash(key, 2, v.key.job);
    const uint64_t now = hly_boot_now_ns();
    if (!rc)
        rc = hly_tcp_join(log, &v, now < p.end_ns ? p.end_ns - now : 1, info, &self.id);
    if (v.door_fd >= 0)
        close(v.door_fd);
    explicit_bzero(&v, sizeof v);
    return rc;
}

static int pmi_open(void *arg, halay_log_fn fn, void *log_arg, uint64_t deadline_ns,
                    halay_boot_info_t *info, halay_boot_t **boot)
{
    struct hly_boot_log log = {fn, log_arg};
    (void)arg;
    int rc = hly_boot_life_begin(&self, &log, deadline_ns, info, boot);
    if (rc)
        return rc;
    if (!tried)
        rc = join(&log, deadline_ns, info);
    else if (!self.id.epoch)
        rc = hly_boot_error(&log, HALAY_EBOOT,
                            "this process has failed to join its job before, and PMI serves a "
                            "process once: start the job anew");
    else
        self.id.alike = 0; /* nothing was compared */
    self.id.epoch += !rc;
    return hly_boot_life_end(&self, rc, "pmi", info, boot);
}

HALAY_API extern const halay_boot_ops_t halay_boot_v4_pmi;
const halay_boot_ops_t halay_boot_v4_pmi = {
    .size = sizeof(halay_boot_ops_t),
    .name = "pmi",
    .probe = announced,
    .open = pmi_open,
    .get = hly_boot_get,
    .lost = hly_boot_ignores_lost,
    .newcomers = hly_boot_has_no_newcomers,
    .close = hly_boot_close,
    .leave = hly_boot_leaves_at_once,
};
