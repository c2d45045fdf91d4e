/* SPDX-License-Identifier: Apache-2.0 */
/* shm_rank.c - see shm_rank.h. */
#define _GNU_SOURCE
#include "shm_rank.h"

#include <dirent.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>

const halay_transport_ops_t *const shm = &halay_transport_v7_shm;
static uint32_t job_number;

int sanitized(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    return 1;
#else
    return 0;
#endif
}

uint64_t clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

void pause_ms(unsigned ms)
{
    struct timespec pause = {ms / 1000, (long)(ms % 1000) * 1000000};
    while (nanosleep(&pause, &pause))
        ;
}

void job_draw(void)
{
    job_number++;
}

static void on_log(void *arg, int level, const char *text)
{
    rank_t *rank = arg;
    CHECK(level >= 0 && level <= 3, "level %d", level);
    rank->logged[level]++;
    snprintf(rank->log, sizeof(rank->log), "%s", text);
}

void rank_params(rank_t *rank, uint64_t id, halay_transport_params_t *params)
{
    static pid_t first; /* the same in all processes of the test */
    if (!first)
        first = getpid();
    *params = (halay_transport_params_t){.size = sizeof(*params),
                                         .self = {.hi = 7, .lo = id},
                                         .deadline_ns =
                                             rank->deadline_ns ? rank->deadline_ns : 20000 * MS,
                                         .options = rank->options,
                                         .log = on_log,
                                         .log_arg = rank};
    memcpy(params->job, &first, sizeof(first));
    memcpy(params->job + 8, &job_number, sizeof(job_number));
    snprintf((char *)params->secret, sizeof(params->secret), "%s",
             rank->secret ? rank->secret : "between us");
}

void rank_open(rank_t *rank, uint64_t id)
{
    halay_transport_params_t params;
    rank_params(rank, id, &params);
    int rc = shm->open(&params, &rank->transport);
    CHECK(rc == 0, "%d: %s", rc, rank->log);
}

void rank_close(rank_t *rank)
{
    shm->close(rank->transport);
    rank->transport = NULL;
}

halay_ep_t *rank_connect(rank_t *rank, uint64_t id)
{
    halay_ep_t *ep = NULL;
    int rc = shm->connect(rank->transport, (halay_peer_id_t){7, id}, NULL, 0, &ep);
    CHECK(rc == 0 && ep, "%d: %s", rc, rank->log);
    return ep;
}

static uint8_t content(uint32_t number, size_t i)
{
    return (uint8_t)(number * 31 + i * 7 + (i >> 8));
}

int message_try(rank_t *rank, halay_ep_t *ep, uint32_t number, size_t bytes)
{
    static uint8_t text[1 << 16];
    uint32_t head[2] = {number, (uint32_t)bytes};
    CHECK(bytes >= 8 && bytes <= sizeof(text), "%zu", bytes);
    for (size_t i = 8; i < bytes; i++)
        text[i] = content(number, i);
    memcpy(text, head, 8);
    size_t header = number % 3 == 0 ? 0 : number % 3 == 1 ? bytes : bytes / 2;
    return shm->send(rank->transport, ep, 0, header ? text : NULL, header,
                     header < bytes ? text + header : NULL, bytes - header, 0);
}

void message_send(rank_t *rank, halay_ep_t *ep, uint32_t number, size_t bytes)
{
    uint64_t begun = clock_ns();
    halay_event_t event;
    int rc;
    while ((rc = message_try(rank, ep, number, bytes)) == HALAY_EAGAIN) {
        CHECK(shm->poll(rank->transport, &event, 1) == 0, "something came in between");
        CHECK(clock_ns() - begun < 20000 * MS, "it stays full");
    }
    CHECK(rc == 0, "%d", rc);
}

uint32_t message_check(const halay_event_t *event)
{
    uint32_t head[2];
    const uint8_t *data = event->data;
    CHECK(event->kind == HALAY_EVENT_MESSAGE && event->status == 0, "%d %d", event->kind,
          event->status);
    CHECK(event->bytes >= 8 && (uintptr_t)data % 8 == 0, "%zu at %p", event->bytes, event->data);
    memcpy(head, data, 8);
    CHECK(head[1] == event->bytes, "%zu instead of %u", event->bytes, head[1]);
    for (size_t i = 8; i < event->bytes; i++)
        CHECK(data[i] == content(head[0], i), "message %u, byte %zu", head[0], i);
    return head[0];
}

static void sleep_until(rank_t *rank, uint64_t end)
{
    uint64_t now = clock_ns();
    struct pollfd pollfd = {.events = POLLIN};
    int rc = shm->arm(rank->transport, &pollfd.fd);
    if (rc == HALAY_EAGAIN || now >= end)
        return;
    CHECK(rc == 0, "arm: %d", rc);
    poll(&pollfd, 1, (int)((end - now) / MS) + 1);
}

int rank_doze(rank_t *rank)
{
    struct pollfd pollfd = {.events = POLLIN};
    int rc = shm->arm(rank->transport, &pollfd.fd);
    if (rc == HALAY_EAGAIN)
        return 0;
    CHECK(rc == 0, "arm: %d", rc);
    CHECK(poll(&pollfd, 1, 15000) == 1, "nobody woke it");
    return 1;
}

int rank_wait(rank_t *rank, uint64_t wait_ns, halay_event_t *event)
{
    uint64_t end = clock_ns() + wait_ns;
    for (unsigned idle = 1;; idle++) {
        int n = shm->poll(rank->transport, event, 1);
        CHECK(n >= 0, "poll: %d: %s", n, rank->log);
        if (n == 1)
            break;
        if (clock_ns() >= end)
            return 0;
        if (rank->asleep)
            sleep_until(rank, end);
        else if (idle % 1024 == 0)
            sched_yield(); /* there may be more processes than processors */
    }
    if (event->kind == HALAY_EVENT_FAILED) {
        rank->failed++;
        rank->status = event->status;
        rank->failed_id = event->peer.lo;
        snprintf(rank->text, sizeof(rank->text), "%s", event->text);
    }
    return event->kind;
}

void rank_expect(rank_t *rank, uint32_t number)
{
    halay_event_t event;
    int kind = rank_wait(rank, 20000 * MS, &event);
    CHECK(kind == HALAY_EVENT_MESSAGE, "waiting for %u: kind %d %s", number, kind, rank->text);
    uint32_t got = message_check(&event);
    CHECK(got == number, "%u instead of %u", got, number);
}

void rank_expect_failed(rank_t *rank, uint64_t wait_ns, uint64_t id, const char *text)
{
    halay_event_t event;
    int before = rank->failed, kind = rank_wait(rank, wait_ns, &event);
    CHECK(kind == HALAY_EVENT_FAILED && rank->failed == before + 1, "kind %d", kind);
    CHECK(rank->failed_id == id && rank->status < 0, "%d", rank->status);
    CHECK(strstr(rank->text, text), "'%s' is not in '%s'", text, rank->text);
}

void rank_quiet(rank_t *rank, unsigned ms)
{
    halay_event_t event;
    int kind = rank_wait(rank, ms * MS, &event);
    CHECK(kind == 0, "kind %d %s", kind, rank->text);
}

pid_t process_start(void (*body)(void *arg), void *arg)
{
    fflush(NULL);
    pid_t pid = fork();
    CHECK(pid >= 0, "fork");
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        body(arg);
        _exit(0);
    }
    return pid;
}

void process_join(pid_t pid)
{
    int status;
    CHECK(waitpid(pid, &status, 0) == pid, "waitpid");
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "process %d ended with %x", (int)pid,
          (unsigned)status);
}

void process_kill(pid_t pid)
{
    int status;
    kill(pid, SIGKILL);
    CHECK(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status), "%x", (unsigned)status);
}

int descriptors(void)
{
    int n = 0;
    DIR *dir = opendir("/proc/self/fd");
    CHECK(dir, "/proc");
    while (readdir(dir))
        n++;
    closedir(dir);
    return n;
}

long resident_kib(void)
{
    long pages = 0, all = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    CHECK(file && fscanf(file, "%ld %ld", &all, &pages) == 2, "/proc/self/statm");
    fclose(file);
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}
