/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_transport_shm_death.c - peers that leave, die, or never come, while forked children of
 * theirs (data loaders) hold their sockets, pipes and memory open.
 */
#define _GNU_SOURCE
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>

#include "shm_rank.h"

enum { MESSAGES = 50 };

typedef struct death {
    int asleep, out, in; /* the survivor has a way to the dead / a ring from it */
    int polls;           /* the dead ever polled */
    int seen;            /* the survivor has read its messages before */
    int full;            /* the survivor's ring is full */
    int pipe[2];
} death_t;

/* The data loader: does nothing, and outlives its parent. */
static pid_t loader_start(void)
{
    pid_t pid = fork();
    CHECK(pid >= 0, "fork");
    if (pid == 0) {
        alarm(60);
        for (;;)
            pause();
    }
    return pid;
}

static void doomed(void *arg)
{
    const death_t *death = arg;
    rank_t rank = {0};
    halay_event_t event;
    rank_open(&rank, 2);
    if (death->in) {
        halay_ep_t *ep = rank_connect(&rank, 1);
        for (uint32_t i = 0; i < MESSAGES; i++)
            message_send(&rank, ep, i, 1000);
    }
    pid_t loader = loader_start();
    CHECK(write(death->pipe[1], &loader, sizeof(loader)) == sizeof(loader), "pipe");
    if (death->polls && death->out)
        rank_expect(&rank, 0);
    if (death->polls)
        CHECK(rank_wait(&rank, 2 * MS, &event) == 0, "%s", rank.text);
    CHECK(write(death->pipe[1], &loader, sizeof(loader)) == sizeof(loader), "pipe");
    for (;;)
        pause();
}

/* Kills the peer; how long it took to hear of it. */
static uint64_t killed(rank_t *a, const death_t *death, pid_t victim)
{
    char text[64];
    for (uint32_t i = 0; death->seen && i < MESSAGES; i++)
        rank_expect(a, i);
    snprintf(text, sizeof(text), "its process %d ended", (int)victim);
    uint64_t begun = clock_ns();
    kill(victim, SIGKILL);
    for (uint32_t i = 0; death->in && !death->seen && i < MESSAGES; i++)
        rank_expect(a, i);
    rank_expect_failed(a, 5000 * MS, 2, text);
    CHECK(a->status == HALAY_EPEER, "%d", a->status);
    return clock_ns() - begun;
}

static uint64_t death_once(death_t death)
{
    rank_t a = {.asleep = death.asleep};
    halay_ep_t *ep = NULL;
    pid_t loader;
    CHECK(pipe(death.pipe) == 0, "pipe");
    job_draw();
    rank_open(&a, 1);
    pid_t victim = process_start(doomed, &death);
    CHECK(read(death.pipe[0], &loader, sizeof(loader)) == sizeof(loader), "pipe");
    if (death.out) {
        ep = rank_connect(&a, 2);
        message_send(&a, ep, 0, 64);
    }
    CHECK(read(death.pipe[0], &loader, sizeof(loader)) == sizeof(loader), "pipe");
    while (death.full && message_try(&a, ep, 1, 4000) == 0)
        ;
    uint64_t took = killed(&a, &death, victim);
    process_kill(victim);
    if (ep) {
        CHECK(message_try(&a, ep, 1, 64) == HALAY_EPEER, "a dead peer takes messages");
        rank_quiet(&a, 5);
        shm->disconnect(a.transport, ep);
        rank_quiet(&a, 1);
        /* The loader holds the listening socket: there is somebody to connect to. */
        rank_connect(&a, 2);
        rank_expect_failed(&a, 2000 * MS, 2, "ended");
    }
    CHECK(kill(loader, 0) == 0, "the loader is gone");
    kill(loader, SIGKILL);
    rank_close(&a);
    close(death.pipe[0]);
    close(death.pipe[1]);
    return took;
}

/*
 * Within 100 ms; on a machine that is busy with other things, in one of five tries. (A sanitizer's
 * process takes long to end: its memory has to be unmapped first.)
 */
static void death(death_t death)
{
    uint64_t best = UINT64_MAX, limit = (sanitized() ? 1000 : 100) * MS;
    for (int i = 0; i < 5 && best > limit; i++) {
        uint64_t took = death_once(death);
        best = took < best ? took : best;
    }
    CHECK(best <= limit, "heard of after %llu ms", (unsigned long long)(best / MS));
}

static void killed_awake(void)
{
    death((death_t){.out = 1, .in = 1, .polls = 1});
    death((death_t){.out = 1, .in = 1, .polls = 1, .seen = 1});
}

static void killed_asleep(void)
{
    death((death_t){.asleep = 1, .out = 1, .in = 1, .polls = 1, .seen = 1});
    death((death_t){.asleep = 1, .out = 1, .in = 1, .polls = 1});
}

static void killed_out_only(void)
{
    death((death_t){.out = 1, .polls = 1});
    death((death_t){.asleep = 1, .out = 1, .polls = 1});
    death((death_t){.asleep = 1, .out = 1, .polls = 1, .full = 1});
}

static void killed_in_only(void)
{
    death((death_t){.in = 1, .polls = 1, .seen = 1});
    death((death_t){.asleep = 1, .in = 1, .polls = 1, .seen = 1});
}

/* It never answered: the survivor knows its process from the socket alone. */
static void killed_unanswered(void)
{
    death((death_t){.out = 1});
    death((death_t){.asleep = 1, .out = 1});
    death((death_t){.asleep = 1, .out = 1, .full = 1});
}

/* ------------------------------------------------------------------ orderly goodbyes */

enum { BOTH, OUT_POLLED, OUT_UNPOLLED, IN_ONLY, GOODBYES };

static void goodbye(int kind, int asleep, int loader)
{
    rank_t a = {.asleep = asleep, .deadline_ns = 100 * MS}, b = {0};
    halay_event_t event;
    halay_ep_t *ab = NULL, *ba = NULL;
    job_draw();
    rank_open(&a, 1);
    rank_open(&b, 2);
    if (kind != IN_ONLY)
        ab = rank_connect(&a, 2);
    if (kind == BOTH || kind == IN_ONLY)
        ba = rank_connect(&b, 1);
    if (kind == BOTH || kind == OUT_POLLED) {
        message_send(&a, ab, 1, 100);
        rank_expect(&b, 1);
    }
    if (kind == BOTH)
        CHECK(rank_wait(&a, 1, &event) == 0, "%s", a.text);
    for (uint32_t i = 0; ba && i < MESSAGES; i++)
        message_send(&b, ba, i, 1000);
    pid_t pid = loader ? loader_start() : 0;
    rank_close(&b);
    for (uint32_t i = 0; ba && i < MESSAGES; i++)
        rank_expect(&a, i);
    rank_expect_failed(&a, 5000 * MS, 2, "closed its end");
    CHECK(!ab || message_try(&a, ab, 2, 100) == HALAY_EPEER, "it takes messages");
    rank_quiet(&a, 5);
    CHECK(a.logged[0] + a.logged[1] == 0, "%s", a.log);
    shm->disconnect(a.transport, ab);
    rank_quiet(&a, 1);
    if (pid) { /* the loader holds the listening socket, but nobody listens any more */
        rank_connect(&a, 2);
        rank_expect_failed(&a, 5000 * MS, 2, "nobody listened");
        process_kill(pid);
    }
    rank_close(&a);
}

static void goodbyes(void)
{
    for (int kind = 0; kind < GOODBYES; kind++) {
        for (int asleep = 0; asleep < 2; asleep++) {
            goodbye(kind, asleep, 0);
            goodbye(kind, asleep, 1);
        }
    }
}

static void leaver(void *arg)
{
    rank_t rank = {0};
    rank_open(&rank, 2);
    if (*(const int *)arg == IN_ONLY)
        message_send(&rank, rank_connect(&rank, 1), 0, 100);
    else
        rank_expect(&rank, 0);
    rank_quiet(&rank, 150); /* by then the other one is asleep */
    rank_close(&rank);
    for (;;)
        pause();
}

/* A goodbye wakes who sleeps: the process lives on, so nothing else can. */
static void goodbye_wakes(void)
{
    for (int kind = OUT_POLLED; kind <= IN_ONLY; kind += IN_ONLY - OUT_POLLED) {
        rank_t a = {.asleep = 1};
        job_draw();
        pid_t pid = process_start(leaver, &kind);
        rank_open(&a, 1);
        if (kind == IN_ONLY)
            rank_expect(&a, 0);
        else
            message_send(&a, rank_connect(&a, 2), 0, 100);
        uint64_t begun = clock_ns();
        rank_expect_failed(&a, 10000 * MS, 2, "closed its end");
        CHECK(clock_ns() - begun < 5000 * MS, "it slept on");
        process_kill(pid);
        rank_close(&a);
    }
}

/* ------------------------------------------------------------------ who never comes */

static void absent(void)
{
    for (int asleep = 0; asleep < 2; asleep++) {
        rank_t a = {.asleep = asleep, .deadline_ns = 200 * MS}, b = {0};
        job_draw();
        rank_open(&a, 1);
        uint64_t begun = clock_ns();
        halay_ep_t *ep = rank_connect(&a, 2);
        rank_expect_failed(&a, 5000 * MS, 2, "nobody listened");
        uint64_t took = clock_ns() - begun;
        CHECK(took >= 175 * MS && took < 2000 * MS, "%llu ms", (unsigned long long)(took / MS));
        CHECK(message_try(&a, ep, 1, 64) == HALAY_EPEER, "it takes messages");
        shm->disconnect(a.transport, ep);
        rank_quiet(&a, 1);
        /* Who is there and does not answer is busy, not dead. */
        rank_open(&b, 2);
        ep = rank_connect(&a, 2);
        message_send(&a, ep, 4, 64);
        rank_quiet(&a, 400);
        rank_expect(&b, 4);
        shm->disconnect(a.transport, ep);
        ep = rank_connect(&a, 2);
        message_send(&a, ep, 5, 64);
        rank_expect(&b, 5);
        rank_close(&a);
        rank_close(&b);
    }
}

static void idle(void *arg)
{
    (void)arg;
    for (;;)
        pause();
}

static uint64_t born(pid_t pid)
{
    char path[64], text[1024] = "";
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "re");
    CHECK(file && fread(text, 1, sizeof(text) - 1, file) > 0, "%s", path);
    fclose(file);
    const char *at = strrchr(text, ')');
    for (int field = 2; field < 22 && at; field++)
        at = strchr(at + 1, ' ');
    CHECK(at, "%s", text);
    return strtoull(at, NULL, 10);
}

/* Its process is told with the way, and it never opens this transport: it dies after that, or
 * before it (zombie: its parent has not waited for it yet), or another one has its pid. */
static void before_contact(void)
{
    char text[64];
    for (int which = 0; which < 8; which++) {
        const int asleep = which % 2, early = which / 2 == 1, late = which / 2 == 2;
        rank_t a = {.asleep = asleep, .deadline_ns = 60000 * MS};
        halay_ep_t *ep;
        job_draw();
        rank_open(&a, 1);
        const pid_t pid = process_start(idle, NULL);
        halay_process_t process = {.space = 1, .pid = pid, .born = born(pid)};
        process.born += which / 2 == 3;
        if (early)
            kill(pid, SIGKILL);
        if (late)
            process_kill(pid);
        CHECK(!shm->connect(a.transport, (halay_peer_id_t){7, 2}, &process, sizeof(process), &ep),
              "%s", a.log);
        if (!early && !late)
            rank_quiet(&a, 50);
        if (!early && !late)
            kill(pid, SIGKILL);
        snprintf(text, sizeof(text), "its process %d ended", (int)pid);
        if (which / 2 == 3)
            rank_quiet(&a, 100); /* as before: it may come yet */
        else
            rank_expect_failed(&a, 20000 * MS, 2, text);
        if (!late)
            process_kill(pid);
        rank_close(&a);
    }
}

static void other_secret(void)
{
    rank_t a = {.secret = "mine", .deadline_ns = 100 * MS}, b = {.secret = "yours"};
    job_draw();
    rank_open(&a, 1);
    rank_open(&b, 2);
    halay_ep_t *ep = rank_connect(&a, 2);
    CHECK(message_try(&a, ep, 1, 64) == HALAY_EAGAIN, "taken");
    rank_expect_failed(&a, 5000 * MS, 2, "nobody listened");
    rank_quiet(&b, 5);
    rank_close(&a);
    rank_close(&b);
}

/* ------------------------------------------------------------------ fork */

static int rings_mapped(void)
{
    char line[512];
    int n = 0;
    FILE *file = fopen("/proc/self/maps", "r");
    CHECK(file, "maps");
    while (fgets(line, sizeof(line), file))
        n += strstr(line, "halay-ring") != NULL;
    fclose(file);
    return n;
}

static void child_of(void *arg)
{
    rank_t **ranks = arg;
    int before = descriptors();
    CHECK(rings_mapped() == 0, "rings are mapped in a forked child");
    rank_close(ranks[0]);
    rank_close(ranks[1]);
    CHECK(descriptors() < before - 10, "%d descriptors, then %d", before, descriptors());
}

/* Children close, exit, and are killed; the parent notices nothing. */
static void forked(void)
{
    rank_t a = {0}, b = {.asleep = 1}, *both[2] = {&a, &b};
    job_draw();
    rank_open(&a, 1);
    rank_open(&b, 2);
    halay_ep_t *ab = rank_connect(&a, 2), *ba = rank_connect(&b, 1);
    for (uint32_t round = 0; round < 4; round++) {
        message_send(&a, ab, 10 * round, 5000);
        rank_expect(&b, 10 * round);
        message_send(&b, ba, 10 * round + 1, 5000); /* unread, or unaccepted, when the fork comes */
        CHECK(rings_mapped() >= 2, "no rings in the parent");
        pid_t closes = process_start(child_of, both);
        pid_t dies = loader_start();
        process_join(closes);
        process_kill(dies);
        rank_expect(&a, 10 * round + 1);
        rank_quiet(&a, 2);
        rank_quiet(&b, 2);
    }
    rank_close(&b);
    rank_expect_failed(&a, 5000 * MS, 2, "closed its end");
    rank_close(&a);
}

const shm_case_t shm_death_cases[] = {{"killed_awake", killed_awake},
                                      {"killed_asleep", killed_asleep},
                                      {"killed_out_only", killed_out_only},
                                      {"killed_in_only", killed_in_only},
                                      {"killed_unanswered", killed_unanswered},
                                      {"goodbyes", goodbyes},
                                      {"goodbye_wakes", goodbye_wakes},
                                      {"absent", absent},
                                      {"before_contact", before_contact},
                                      {"other_secret", other_secret},
                                      {"forked", forked},
                                      {0}};
