/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A driver and its processes meet, again and again: ranks, epochs and who is in, after ends,
 * deaths and newcomers; and what those are told who cannot be served. The driver is in this
 * process, as it is in a launcher; the others are its children, one open for each letter that they
 * read.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <halay/boot.h>
#include <halay/launch.h>

#include "../check.h"
#include "meet_process.h"

enum { MOST = 6 };

extern const halay_launch_ops_t halay_launch_v3_meet, halay_launch_v3_agent;

static const halay_launch_ops_t *const ops = &halay_launch_v3_meet;

struct process {
    pid_t pid;
    int to, from;
};

static halay_launch_t *driver;
static struct process all[MOST];
static char folder[64], at[32];
static char told[4000]; /* by the driver's log */
static int failed = -1; /* a rank whose halay_init has failed */
static char lost[16];   /* slots, as the driver has said them */
static int mate = -1;   /* a slot whose process is lost with any other one */

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void driver_says(void *arg, int level, const char *text)
{
    (void)arg, (void)level;
    const size_t used = strlen(told);
    snprintf(told + used, sizeof told - used, "%s\n", text);
}

static int has_failed(void *arg, int rank, char *text, size_t bytes)
{
    MUST(arg == told);
    snprintf(text, bytes, "a setting is wrong");
    return rank == failed;
}

static void is_lost(void *arg, int slot)
{
    MUST(arg == told);
    const size_t used = strlen(lost);
    snprintf(lost + used, sizeof lost - used, "%d", slot);
    if (mate >= 0)
        ops->ended(driver, mate, SIGTERM, -1, NULL);
}

/* ---------------------------------------------------------------- processes */

/* The process of a slot, which is this rank of the server's. */
static void start_at(int slot, const halay_launch_ops_t *its, halay_launch_t *server, int rank)
{
    int to[2], from[2];
    char **env = calloc(1, sizeof *env);
    MUST(env && !pipe(to) && !pipe(from) && !its->env(server, rank, &env));
    const pid_t pid = fork();
    MUST(pid >= 0);
    if (!pid) {
        for (char **e = env; *e; e++)
            putenv(*e);
        for (int fd = 3; fd < 256; fd++) /* as an exec would do */
            if (fd != to[0] && fd != from[1])
                close(fd);
        meet_process(to[0], from[1], at);
    }
    for (char **e = env; *e; e++)
        free(*e);
    free(env);
    close(to[0]);
    close(from[1]);
    all[slot] = (struct process){pid, to[1], from[0]};
    its->started(server, rank, pid);
}

static void start(int slot)
{
    start_at(slot, ops, driver, slot);
}

static int end_quietly(int slot, int number)
{
    int status;
    if (number)
        kill(all[slot].pid, number);
    close(all[slot].to);
    MUST(waitpid(all[slot].pid, &status, 0) == all[slot].pid);
    close(all[slot].from);
    all[slot].pid = 0;
    return status;
}

static void end_all_quietly(void)
{
    for (int s = 0; s < MOST; s++)
        if (all[s].pid)
            end_quietly(s, 0);
}

static void end(int slot, int number)
{
    ops->ended(driver, slot, end_quietly(slot, number), -1, NULL);
}

static void order(int slot, char what)
{
    MUST(write(all[slot].to, &what, 1) == 1);
}

/* Lets the driver work until the process says something, or for that long. */
static bool hear(int slot, struct said *said, double timeout_s)
{
    const double until = now_s() + timeout_s;
    for (;;) {
        const int due = ops->progress(driver);
        struct pollfd fds[2] = {{.fd = all[slot].from, .events = POLLIN},
                                {.fd = ops->descriptor(driver), .events = POLLIN}};
        const int left = (int)((until - now_s()) * 1e3) + 1;
        if (left <= 1)
            return false;
        MUST(poll(fds, 2, due >= 0 && due < left ? due : left) >= 0 || errno == EINTR);
        if (fds[0].revents) {
            MUST(read(all[slot].from, said, sizeof *said) == sizeof *said);
            return true;
        }
    }
}

/* The slots of `who` have opened; these must be their ranks in a world of so many. */
static void met(const char *who, uint64_t epoch, const char *ranks)
{
    const int n = (int)strlen(ranks);
    struct said said, first = {0};
    for (int i = 0; who[i]; i++) {
        CHECK(hear(who[i] - '0', &said, 10), "process %c got no answer", who[i]);
        CHECK(said.rc == 0, "process %c: %s", who[i], said.text);
        CHECK(said.rank == ranks[i] - '0' && said.nranks == n && said.epoch == epoch,
              "process %c is rank %d of %d in epoch %llu, not %c of %d in %llu", who[i], said.rank,
              said.nranks, (unsigned long long)said.epoch, ranks[i], n, (unsigned long long)epoch);
        MUST(said.nnodes == 1 && said.local_rank == said.rank);
        first = i ? first : said;
        MUST(said.first.pid == first.first.pid && said.first.pid > 0);
    }
}

static void world(const char *who, uint64_t epoch, const char *ranks)
{
    for (const char *w = who; *w; w++)
        order(*w - '0', 'o');
    met(who, epoch, ranks);
}

static void refused_with(int code, int slot, const char *part)
{
    struct said said;
    CHECK(hear(slot, &said, 10), "process %d got no answer", slot);
    CHECK(said.rc == code && strstr(said.text, part), "process %d: %d, '%s' and not %d, '%s'", slot,
          said.rc, said.text, code, part);
}

static void refused(int slot, const char *part)
{
    refused_with(HALAY_EBOOT, slot, part);
}

/* port, nlocal: as halay_launch_params_t has them. */
static void begin_at(int port, int nlocal, int n, int least, const char *secret)
{
    const halay_launch_params_t params = {.size = sizeof params,
                                          .nranks = n,
                                          .port = port,
                                          .nlocal = nlocal,
                                          .least = least,
                                          .job = "test",
                                          .host = "here",
                                          .session_dir = folder,
                                          .secret = secret,
                                          .log = driver_says,
                                          .failed = has_failed,
                                          .lost = is_lost,
                                          .arg = told};
    told[0] = lost[0] = '\0';
    setenv("HALAY_SECRET", secret, 1);
    MUST(ops->start(&params, &driver) == HALAY_OK);
}

static void begin(int n, int least, const char *secret)
{
    begin_at(0, 0, n, least, secret);
}

/* ---------------------------------------------------------------- agents */

struct agent {
    halay_launch_params_t params;
    halay_launch_t *server;
    pthread_t thread;
    atomic_int rc; /* of start; 1: not yet */
};

static void *agent_begin(void *arg)
{
    struct agent *a = arg;
    atomic_store(&a->rc, halay_launch_v3_agent.start(&a->params, &a->server));
    return NULL;
}

static void agent_open(struct agent *a, int places, const char *secret)
{
    *a = (struct agent){.params = {.size = sizeof a->params,
                                   .nranks = places,
                                   .job = "test",
                                   .host = "there",
                                   .secret = secret,
                                   .head = ops->address(driver),
                                   .log = driver_says},
                        .rc = 1};
    MUST(!pthread_create(&a->thread, NULL, agent_begin, a));
    while (atomic_load(&a->rc) == 1) {
        struct pollfd fd = {.fd = ops->descriptor(driver), .events = POLLIN};
        poll(&fd, 1, 10);
        ops->progress(driver);
    }
    pthread_join(a->thread, NULL);
}

/* The next event of a server, which must be this one; but what it says of its own beginning. */
static halay_launch_event_t event(const halay_launch_ops_t *its, halay_launch_t *server,
                                  enum halay_launch_what what, int rank, int value)
{
    halay_launch_event_t e = {.size = sizeof e};
    const double until = now_s() + 10;
    while (!its->event(server, &e) ||
           (e.what != what && (e.what == HALAY_LAUNCH_STARTED || its != ops) &&
            (e.what == HALAY_LAUNCH_STARTED || e.what == HALAY_LAUNCH_AGENT))) {
        struct pollfd fd = {.fd = its->descriptor(server), .events = POLLIN};
        CHECK(now_s() < until, "no event %d of %d", what, rank);
        poll(&fd, 1, 10);
        its->progress(server);
    }
    CHECK(e.what == what && (e.rank == rank || rank < 0) && (e.value == value || value < 0),
          "event %d of %d with %d, '%s'; not %d of %d with %d", e.what, e.rank, e.value, e.text,
          what, rank, value);
    return e;
}

static void command(enum halay_launch_what what, int rank, int value)
{
    const halay_launch_event_t c = {
        .size = sizeof c, .what = what, .rank = rank, .value = value, .text = "over"};
    ops->command(driver, &c);
}

static void finish(void)
{
    for (int i = 0; i < MOST; i++)
        if (all[i].pid)
            end(i, 0);
    ops->stop(driver);
}

/* ---------------------------------------------------------------- cases */

static void meets_again(void)
{
    begin(4, 0, "s");
    for (int i = 0; i < 4; i++)
        start(i);
    world("3120", 1, "3120");
    world("0123", 2, "0123");
    world("2301", 3, "2301");
    finish();
}

static void static_end(void)
{
    begin(3, 0, "");
    for (int i = 0; i < 3; i++)
        start(i);
    order(0, 'o');
    order(1, 'o');
    struct said said;
    MUST(!hear(0, &said, 0.1));
    order(2, 'x');
    end(2, 0);
    refused(0, "rank 2 (pid ");
    refused(1, "has ended before all ranks had joined the job: it exited with status 3.");
    order(0, 'o'); /* at once */
    refused(0, "rank 2 (pid ");
    finish();
}

static void goes_on(void)
{
    begin(5, 2, "s");
    for (int i = 0; i < 4; i++)
        start(i);
    world("0123", 1, "0123");
    end(0, SIGKILL);
    world("132", 2, "021"); /* rank 0 is a survivor */
    start(4);               /* a newcomer waits for the members */
    order(4, 'o');
    struct said said;
    MUST(!hear(4, &said, 0.2));
    order(1, 'o');
    MUST(!hear(1, &said, 0.2));
    order(2, 'o');
    order(3, 'o');
    met("1324", 3, "0213");
    end(2, SIGKILL);
    start(2); /* in the slot of a dead one */
    order(2, 'o');
    MUST(!hear(2, &said, 0.2));
    order(1, 'o');
    order(3, 'o');
    order(4, 'o');
    met("1342", 4, "0123");
    end(1, SIGKILL);
    end(3, SIGKILL);
    end(4, SIGKILL);
    order(2, 's');
    order(2, 'o'); /* one is too few */
    refused(2, "only 1 of the 2 that there must be");
    finish();
}

/* How many newcomers this process is told, once they have come. */
static void newcomers(int slot, int rc, int count)
{
    const double until = now_s() + 10;
    struct said said;
    do {
        order(slot, 'n');
        MUST(hear(slot, &said, 10) && said.rc == rc);
    } while (!rc && said.rank != count && now_s() < until);
    CHECK(rc || said.rank == count, "process %d is told of %d newcomers", slot, said.rank);
}

/* Rank 0 hears of newcomers; who is lost is not waited for, and condemned; who waits for too long,
 * and who comes when the job ends, is told so. */
static void changes(void)
{
    struct said said;
    int condemned = -1;
    begin(5, 2, "s");
    MUST(ops->epoch(driver) == 0);
    for (int i = 0; i < 4; i++)
        start(i);
    world("0123", 1, "0123");
    newcomers(0, 0, 0);
    start(4);
    order(4, 'o');
    MUST(!hear(4, &said, 0.2));
    newcomers(0, 0, 1);
    newcomers(1, 0, 0);
    MUST(!ops->condemned(driver, &condemned));
    kill(all[3].pid, SIGSTOP);
    order(1, 'l');
    order(1, '3');
    for (int i = 0; i < 3; i++)
        order(i, 'o');
    met("0124", 2, "0123");
    MUST(ops->condemned(driver, &condemned) == 1 && condemned == 3 && ops->epoch(driver) == 2);
    MUST(!ops->condemned(driver, &condemned));
    newcomers(0, 0, 0);
    end(3, SIGKILL);
    start(3);
    order(3, 's');
    order(3, 'o');
    MUST(!hear(3, &said, 0.2));
    newcomers(0, 0, 1);
    refused(3, "have not met again in time");
    newcomers(0, 0, 0);
    end(2, 0);
    order(3, 'o');
    refused_with(HALAY_EOVER, 3, "the job ends");
    order(0, 'o');
    order(1, 'o');
    MUST(!hear(0, &said, 0.2)); /* process 4 has not ended */
    end(4, 0);
    MUST(hear(0, &said, 10) && said.nranks == 2 && said.epoch == 3 && hear(1, &said, 10));
    order(0, 's');
    order(0, 'o');
    met("0", 4, "0"); /* fewer than two, but the job ends; process 1 never asks */
    finish();
    begin(1, 0, "s");
    start(0);
    world("0", 1, "0");
    newcomers(0, HALAY_EUNSUPPORTED, 0);
    finish();
}

/* Nobody waits for a process that has said that it leaves; it may come again, as a newcomer. */
static void leavers(void)
{
    struct said said;
    int condemned;
    begin(3, 1, "s");
    for (int i = 0; i < 3; i++)
        start(i);
    world("012", 1, "012");
    order(1, 'o');
    order(2, 'o');
    MUST(!hear(1, &said, 0.2));
    order(0, 'g');
    met("12", 2, "01");
    MUST(!ops->condemned(driver, &condemned));
    order(2, 'g');
    order(2, 'o');
    order(0, 'o');
    MUST(!hear(0, &said, 0.2));
    order(1, 'o');
    met("102", 3, "012"); /* not 120: process 2 is no member any more */
    finish();
}

/* Who is called lost is said once, before the others meet, and its launcher may say then who is
 * lost with it: that one is not waited for, and is its launcher's to kill. */
static void with_its_host(void)
{
    struct said said;
    int condemned = -1;
    begin(4, 1, "s");
    for (int i = 0; i < 4; i++)
        start(i);
    world("0123", 1, "0123");
    mate = 2;
    order(1, 'l');
    order(1, '3');
    order(0, 'o');
    order(1, 'o');
    met("01", 2, "01");
    CHECK(!strcmp(lost, "3"), "lost: '%s'", lost);
    MUST(ops->condemned(driver, &condemned) == 1 && condemned == 3);
    MUST(!ops->condemned(driver, &condemned));
    end_quietly(2, SIGKILL);
    mate = -1;
    end(3, SIGKILL);
    start(2);
    order(2, 'o');
    MUST(!hear(2, &said, 0.2));
    world("01", 3, "012");
    MUST(hear(2, &said, 10) && said.rank == 2 && said.nranks == 3);
    CHECK(!strcmp(lost, "3"), "lost: '%s'", lost);
    finish();
}

/* Processes of this launcher and of two agents; one agent is lost, another takes its places. */
static void agents(void)
{
    static struct agent a, b, c;
    const halay_launch_ops_t *const there = &halay_launch_v3_agent;
    struct said said;
    begin_at(-1, 2, 6, 2, "s");
    MUST(ops->address(driver));
    agent_open(&a, 2, "another");
    MUST(a.rc == HALAY_EBOOT && strstr(told, "HALAY_SECRET"));
    agent_open(&a, 2, "s");
    CHECK(!a.rc, "%s", told);
    agent_open(&b, 3, "s"); /* there is room for two */
    MUST(!b.rc && event(ops, driver, HALAY_LAUNCH_AGENT, 2, -1).count == 2);
    MUST(event(ops, driver, HALAY_LAUNCH_AGENT, 4, -1).count == 2);
    agent_open(&c, 1, "s");
    MUST(c.rc == HALAY_EBOOT && strstr(told, "agents for all of its places"));
    start(0);
    for (int s = 2; s < 6; s++) {
        const struct agent *its = s < 4 ? &a : &b;
        command(HALAY_LAUNCH_START, s, 0);
        event(there, its->server, HALAY_LAUNCH_START, s % 2, -1);
        start_at(s, there, its->server, s % 2);
    }
    world("02345", 1, "01234");
    command(HALAY_LAUNCH_SIGNAL, 5, SIGUSR1);
    event(there, b.server, HALAY_LAUNCH_SIGNAL, 1, SIGUSR1);
    there->ended(a.server, 1, end_quietly(3, SIGKILL), 2, "why");
    const halay_launch_event_t third = event(ops, driver, HALAY_LAUNCH_ENDED, 3, SIGKILL);
    MUST(!strcmp(third.text, "why") && third.state == 2 && !third.count);
    ops->ended(driver, 3, third.value, third.state, third.text);
    there->command(b.server, &(halay_launch_event_t){.what = HALAY_LAUNCH_AGENT_LEAVES});
    MUST(event(ops, driver, HALAY_LAUNCH_AGENT_LEAVES, 4, -1).count == 2);
    there->stop(b.server); /* its node is gone */
    MUST(strstr(event(ops, driver, HALAY_LAUNCH_AGENT_LOST, 4, -1).text, "connection ended"));
    agent_open(&c, 2, "s"); /* the processes there have not been ended() */
    MUST(c.rc == HALAY_EBOOT && strstr(told, "agents for all of its places"));
    for (int s = 4; s < 6; s++) {
        MUST(event(ops, driver, HALAY_LAUNCH_ENDED, s, SIGKILL).count == 1);
        ops->ended(driver, s, SIGKILL, -1, NULL);
    }
    world("02", 2, "01");
    agent_open(&c, 2, "s");
    MUST(!c.rc && event(ops, driver, HALAY_LAUNCH_AGENT, 4, -1).count == 2);
    end_quietly(4, SIGKILL); /* of the lost one: it ends them */
    order(5, 'o');
    refused(5, "no process of this job");
    end_quietly(5, SIGKILL);
    command(HALAY_LAUNCH_START, 5, 0);
    event(there, c.server, HALAY_LAUNCH_START, 1, -1);
    start_at(5, there, c.server, 1);
    order(5, 'o');
    MUST(!hear(5, &said, 0.2));
    newcomers(0, 0, 1);
    order(0, 'o');
    order(2, 'o');
    MUST(hear(5, &said, 10) && said.rank == 2 && said.nranks == 3 && said.epoch == 3);
    MUST(hear(0, &said, 10) && hear(2, &said, 10));
    command(HALAY_LAUNCH_END, 0, 7);
    event(there, a.server, HALAY_LAUNCH_END, -1, 7);
    there->stop(a.server);
    ops->stop(driver);
    MUST(strstr(event(there, c.server, HALAY_LAUNCH_END, -1, 7).text, "over"));
    MUST(!there->event(c.server, &(halay_launch_event_t){.size = 0}));
    there->stop(c.server);
    end_all_quietly();
}

/* A stranger that has got an agent's connection says what no agent does; the head's end is told. */
static void torn(void)
{
    static struct agent a;
    begin_at(-1, 0, 2, 0, "s");
    agent_open(&a, 2, "s");
    MUST(!a.rc);
    event(ops, driver, HALAY_LAUNCH_AGENT, 0, -1);
    halay_launch_v3_agent.ended(a.server, 0, 0, -1, NULL); /* of what was never started */
    event(ops, driver, HALAY_LAUNCH_AGENT_LOST, 0, -1);
    MUST(
        strstr(event(&halay_launch_v3_agent, a.server, HALAY_LAUNCH_END, -1, 125).text, "is lost"));
    halay_launch_v3_agent.stop(a.server);
    agent_open(&a, 2, "s");
    event(ops, driver, HALAY_LAUNCH_AGENT, 0, -1);
    char rubbish[312] = "x";
    MUST(send(halay_launch_v3_agent.descriptor(a.server), rubbish, sizeof rubbish, 0) == 312);
    event(ops, driver, HALAY_LAUNCH_AGENT_LOST, 0, -1);
    halay_launch_v3_agent.stop(a.server);
    agent_open(&a, 2, "s");
    ops->stop(driver);
    MUST(
        strstr(event(&halay_launch_v3_agent, a.server, HALAY_LAUNCH_END, -1, 125).text, "is lost"));
    halay_launch_v3_agent.stop(a.server);
}

/* Who does not come is named, in a notice and at the end. */
static void missing(void)
{
    begin(3, 0, "s");
    for (int i = 0; i < 3; i++) {
        start(i);
        order(i, 's');
    }
    kill(all[1].pid, SIGSTOP);
    order(0, 'o');
    order(2, 'o');
    char text[80];
    snprintf(text, sizeof text, "rank 1 (pid %d: stopped; not in halay_init)", (int)all[1].pid);
    refused(0, text);
    refused(2, text);
    CHECK(strstr(told, text), "%s", told);
    kill(all[1].pid, SIGCONT);
    world("120", 1, "120"); /* and it may come later */
    finish();
}

/* Whose halay_init has failed, and who lives, is told of; but may ask again until then, and is
 * waited for once the driver has refused it. */
static void failed_and_lives(void)
{
    struct said said;
    begin(2, 0, "s");
    start(0);
    start(1);
    failed = 1;
    order(0, 'o');
    MUST(!hear(0, &said, 0.3));
    order(1, 'o');
    MUST(hear(0, &said, 10) && !said.rc && hear(1, &said, 10) && !said.rc);
    order(0, 'o');
    char text[100];
    snprintf(text, sizeof text, "failed on rank 1 (pid %d on here; it goes on): a setting is wrong",
             (int)all[1].pid);
    refused(0, text);
    CHECK(strstr(told, text), "%s", told);
    failed = 0; /* by that refusal */
    order(1, 'o');
    MUST(!hear(1, &said, 1.3));
    order(0, 'o');
    MUST(hear(0, &said, 10) && !said.rc && hear(1, &said, 10) && !said.rc && said.epoch == 2);
    failed = -1;
    finish();
}

/* A driver that hangs up has taken this process for a stranger: it calls again. */
static void hung_up(void)
{
    struct sockaddr_un where = {.sun_family = AF_UNIX};
    struct said said = {0};
    char bytes[72], variable[160];
    int status;
    snprintf(where.sun_path, sizeof where.sun_path, "%s/fake", folder);
    snprintf(variable, sizeof variable, "meet=unix:%s;slot=0", where.sun_path);
    const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    MUST(fd >= 0 && !bind(fd, (struct sockaddr *)&where, sizeof where) && !listen(fd, 4));
    const struct timeval timeout = {.tv_sec = 10}; /* of accept, too */
    MUST(!setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout));
    begin(1, 0, "s");
    const int guest = socket(AF_UNIX, SOCK_STREAM, 0); /* what a driver says first */
    struct sockaddr_un real = {.sun_family = AF_UNIX};
    snprintf(real.sun_path, sizeof real.sun_path, "%s/meet", folder);
    MUST(!connect(guest, (struct sockaddr *)&real, sizeof real));
    ops->progress(driver);
    MUST(read(guest, bytes, sizeof bytes) == sizeof bytes);
    close(guest);
    finish();
    const pid_t child = fork();
    if (!child) {
        halay_boot_info_t info = {.size = sizeof info};
        halay_boot_t *boot;
        setenv("HALAY_JOB", variable, 1);
        close(fd);
        halay_boot_v4_meet.open(NULL, meet_keep_text, &said, 10000000000, &info, &boot);
        _exit(!strstr(said.text, "found no driver at 'unix:"));
    }
    for (int i = 0; i < 4; i++) { /* without a greeting, and with one */
        const int in = accept(fd, NULL, NULL);
        MUST(in >= 0 && (i < 2 || write(in, bytes, sizeof bytes) == sizeof bytes));
        close(in);
    }
    close(fd);
    MUST(!unlink(where.sun_path));
    MUST(waitpid(child, &status, 0) == child);
    CHECK(status == 0, "it has ended with %x", (unsigned)status);
}

/* Many that do not know the secret, each with a hello: a line of the log for a few of them. */
static void crowd(void)
{
    struct sockaddr_un where = {.sun_family = AF_UNIX};
    begin(2, 0, "s");
    start(0);
    start(1);
    snprintf(where.sun_path, sizeof where.sun_path, "%s/meet", folder);
    for (int i = 0; i < 300; i++) {
        char bytes[616] = "HLAYDVZ1", greeting[72];
        const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
        MUST(!connect(fd, (struct sockaddr *)&where, sizeof where));
        ops->progress(driver);
        MUST(read(fd, greeting, sizeof greeting) == sizeof greeting);
        memcpy(bytes + 8, greeting + 8, 4);
        bytes[12] = 616 & 0xff;
        bytes[13] = 616 >> 8;
        memcpy(bytes + 16, greeting + 16, 16);
        MUST(write(fd, bytes, sizeof bytes) == sizeof bytes);
        ops->progress(driver);
        if (i % 2)
            close(fd);
        if (i == 150)
            order(0, 'o');
    }
    int lines = 0;
    for (const char *in = told; (in = strstr(in, "was refused")); in++)
        lines++;
    CHECK(lines >= 1 && lines <= 6, "%d lines", lines);
    struct said said;
    order(1, 'o');
    MUST(hear(0, &said, 10) && !said.rc && hear(1, &said, 10) && !said.rc);
    finish();
}

static void strangers(void)
{
    struct said said;
    begin(2, 0, "right");
    start(0);
    setenv("HALAY_SECRET", "wrong", 1);
    start(1);
    order(1, 'o');
    CHECK(hear(1, &said, 10), "no answer");
    CHECK(said.rc == HALAY_EBOOT && strstr(said.text, "the same secret"), "%s", said.text);
    MUST(strstr(told, "was refused"));
    end(1, 0);
    setenv("HALAY_SECRET", "right", 1);
    start(1);
    world("01", 1, "01");
    const int bad =
        dup(all[1].to); /* a program that rank 1 starts, and that inherits its variables */
    struct process one = all[1];
    char **env = calloc(1, sizeof *env);
    MUST(env && !ops->env(driver, 1, &env));
    close(bad);
    const pid_t child = fork();
    if (!child) {
        halay_boot_info_t info = {.size = sizeof info};
        halay_boot_t *boot;
        for (char **e = env; *e; e++)
            putenv(*e);
        _exit(halay_boot_v4_meet.open(NULL, meet_keep_text, &said, 1000000000, &info, &boot) ==
                      HALAY_ESTATE
                  ? 0
                  : 1);
    }
    int status;
    MUST(waitpid(child, &status, 0) == child && status == 0);
    for (char **e = env; *e; e++)
        free(*e);
    free(env);
    all[1] = one;
    end(0, SIGKILL);
    start(0);
    world("10", 2, "10"); /* a newcomer, and a rank is its place all the same */
    finish();
}

/* Without a launcher: each process says which rank it is, another one each time; and one is new. */
static void given(void)
{
    static const char *const rounds[] = {"012", "120", "201", "012"};
    struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof any;
    struct said said;
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    MUST(!bind(fd, (struct sockaddr *)&any, bytes) &&
         !getsockname(fd, (struct sockaddr *)&any, &bytes));
    close(fd);
    snprintf(at, sizeof at, "127.0.0.1:%d", ntohs(any.sin_port));
    begin(3, 0, "of halayrun");
    for (int i = 0; i < 3; i++)
        start(i);
    for (int round = 0; round < 4; round++) {
        if (round == 2) {
            end(1, SIGKILL);
            start(1);
        }
        for (int i = 0; i < 3; i++)
            order(i, rounds[round][i]);
        for (int i = 0; i < 3; i++) {
            CHECK(hear(i, &said, 10), "round %d: process %d got no answer", round, i);
            CHECK(said.rc == 0, "round %d: process %d: %s", round, i, said.text);
            MUST(said.rank == rounds[round][i] - '0' && said.nranks == 3 && said.nnodes == 1);
            MUST(said.rank || said.first.pid == all[i].pid);
            CHECK(said.epoch == 1, "round %d: process %d is in epoch %llu, the others may not be",
                  round, i, (unsigned long long)said.epoch);
        }
    }
    order(0, '3'); /* no such rank */
    MUST(hear(0, &said, 10) && said.rc == HALAY_EINVAL && strstr(said.text, "rank 3 of 3"));
    finish();
}

int main(void)
{
    snprintf(folder, sizeof folder, "/tmp/halay-test-meet-XXXXXX");
    MUST(mkdtemp(folder));
    signal(SIGPIPE, SIG_IGN);
    meets_again();
    static_end();
    goes_on();
    changes();
    leavers();
    with_its_host();
    agents();
    torn();
    missing();
    failed_and_lives();
    hung_up();
    crowd();
    strangers();
    given();
    MUST(!rmdir(folder));
    return 0;
}
