/* SPDX-License-Identifier: Apache-2.0 */
/*
 * agent.c - an agent's side of the head (launch.h): brings the places of this launcher to the head
 * of a job, starts what it is told to start, and says what becomes of it.
 *
 * Its launcher numbers its processes from 0; the head's number is `first` more. What the head says
 * is kept as one mark a process and one for all, so there is no queue.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../../common/proc.h"
#include "env.h"
#include "frame.h"
#include "meet_place.h"

enum { HEAD_LOST = 125 }; /* the agent's exit status, as where there is no head */

struct mark {      /* what the head wants of a process */
    unsigned tell; /* HLY_TELL */
    int timeout_s, signal;
    int64_t pid; /* of the process that runs; 0: none */
};

struct halay_launch {
    halay_launch_params_t params;
    struct hly_boot_log log;
    struct hly_boot_key key;
    char head[HLY_BOOT_NAME + 8];
    int fd; /* -1: the head is lost */
    int first, count;
    struct mark *marks;
    bool changes;  /* the ranks of the job do */
    unsigned tell; /* HLY_TELL */
    bool over;     /* the job is */
    int status;
    char text[252];
    struct hly_frames frames;
};

static void end(halay_launch_t *a, int status, const char *text)
{
    if (a->over)
        return;
    a->over = true;
    a->tell |= HLY_TELL(END);
    a->status = status;
    snprintf(a->text, sizeof a->text, "%s", text);
}

static void lose_head(halay_launch_t *a, const char *why)
{
    char text[252];
    if (a->fd >= 0)
        close(a->fd);
    a->fd = -1;
    snprintf(text, sizeof text, "the head of the job at %.120s is lost: %.80s", a->head, why);
    end(a, HEAD_LOST, text);
}

static void send_frame(halay_launch_t *a, struct hly_frame *frame)
{
    if (a->fd < 0)
        return;
    hly_frame_seal(&a->frames, frame);
    const ssize_t n = send(a->fd, frame, sizeof *frame, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n == (ssize_t)sizeof *frame)
        return;
    if (n < 0 && (errno == EPIPE || errno == ECONNRESET))
        return; /* the next read says so, behind the head's last words */
    lose_head(a, n >= 0 || errno == EAGAIN ? "it does not read" : strerror(errno));
}

/* ---------------------------------------------------------------- the contract */

static void agent_stop(halay_launch_t *a)
{
    if (!a)
        return;
    if (a->fd >= 0)
        close(a->fd);
    free(a->marks);
    explicit_bzero(&a->key, sizeof a->key);
    free(a);
}

static int say_hello(halay_launch_t *a, uint64_t end_ns)
{
    const char *key = HLY_MEET_KEY;
    struct hly_meet_place place;
    struct hly_boot_greeting greeting;
    struct hly_boot_answer answer;
    struct hly_boot_hello hello = {.slot = HLY_BOOT_AGENT};
    char holder[HLY_BOOT_NAME + 40], *payload = NULL;
    if (!hly_meet_place_of(a->head, &place))
        return hly_boot_error(&a->log, HALAY_EINVAL,
                              "'%.80s' is no address of a head: it takes host:port", a->head);
    place.holder = "head";
    a->key.has_secret = hly_boot_secret_of(a->params.secret, a->key.secret);
    hly_boot_hash(&key, 1, a->key.job);
    snprintf(holder, sizeof holder, "the head at '%.255s'", a->head);
    const struct hly_boot_visit visit = {&a->log, &a->key, "this agent", holder, end_ns, NULL, 0};
    a->fd = hly_meet_place_call(&a->log, &place, &a->key, "this agent", end_ns, &greeting);
    if (a->fd < 0)
        return HALAY_EBOOT;
    hly_boot_describe("agent", NULL, &hello);
    snprintf(hello.host, sizeof hello.host, "%.63s", a->params.host);
    hello.rank = hello.was = HLY_BOOT_NOBODY;
    hello.nranks = (uint32_t)a->params.nranks;
    int rc = hly_boot_visit_ask(&visit, a->fd, &greeting, &hello, &answer, &payload);
    if (rc)
        return rc;
    free(payload);
    hly_frames_init(&a->frames, &a->key, HLY_FROM_AGENT, &greeting, &hello);
    hly_frame_keep_alive(a->fd);
    a->tell = HLY_TELL(AGENT);
    a->changes = answer.joined & HLY_BOOT_CHANGES;
    a->first = (int)answer.rank;
    a->count = answer.nprocesses < hello.nranks ? (int)answer.nprocesses : a->params.nranks;
    return HALAY_OK;
}

static int agent_start(const halay_launch_params_t *params, halay_launch_t **server)
{
    halay_launch_t *a = calloc(1, sizeof *a);
    if (!a)
        return HALAY_ENOMEM;
    a->params = *params;
    a->log = (struct hly_boot_log){params->log, params->log_arg};
    a->fd = -1;
    snprintf(a->head, sizeof a->head, "%s", params->head);
    a->marks = calloc((size_t)params->nranks, sizeof a->marks[0]);
    const uint64_t timeout_ns = hly_meet_seconds_ns("HALAY_START_DEADLINE", HLY_MEET_START_S);
    int rc = !a->marks ? HALAY_ENOMEM : say_hello(a, hly_boot_now_ns() + timeout_ns);
    if (rc) {
        agent_stop(a);
        return rc;
    }
    *server = a;
    return HALAY_OK;
}

static int agent_env(halay_launch_t *a, int rank, char ***env)
{
    return hly_meet_env(a->head, a->first + rank, a->params.job, env);
}

static void agent_started(halay_launch_t *a, int rank, int64_t pid)
{
    struct hly_frame frame = {
        .what = HALAY_LAUNCH_STARTED, .rank = a->first + rank, .value = (int32_t)pid};
    a->marks[rank].pid = pid;
    send_frame(a, &frame);
}

static void agent_ended(halay_launch_t *a, int rank, int status, int state, const char *why)
{
    struct hly_frame frame = {
        .what = HALAY_LAUNCH_ENDED, .rank = a->first + rank, .value = status, .state = state};
    snprintf(frame.text, sizeof frame.text, "%.251s", why ? why : "");
    a->marks[rank] = (struct mark){0};
    send_frame(a, &frame);
}

static void agent_command(halay_launch_t *a, const halay_launch_event_t *command)
{
    struct hly_frame frame = {.what = command->what, .rank = a->first};
    send_frame(a, &frame);
}

static int agent_descriptor(const halay_launch_t *a)
{
    return a->fd;
}

/* If the process has ended, this tells the head so instead. */
static void look(halay_launch_t *a, int rank)
{
    struct hly_proc_stat stat;
    struct hly_frame frame = {.what = HALAY_LAUNCH_LOOK, .rank = a->first + rank};
    if (!a->marks[rank].pid)
        return;
    frame.state = hly_proc_stat(a->marks[rank].pid, &stat) ? stat.state : 0;
    send_frame(a, &frame);
}

static void signal_it(struct mark *mark, int number)
{
    mark->tell |= HLY_TELL(SIGNAL);
    mark->signal = number;
}

static void take(halay_launch_t *a, const struct hly_frame *f)
{
    const int rank = f->rank - a->first;
    const bool ours = f->rank >= a->first && rank < a->count;
    if (f->what == HALAY_LAUNCH_END)
        end(a, f->value, f->text);
    else if (ours && f->what == HALAY_LAUNCH_START)
        a->marks[rank] = (struct mark){.tell = HLY_TELL(START), .timeout_s = f->value};
    else if (ours && f->what == HALAY_LAUNCH_SIGNAL)
        signal_it(&a->marks[rank], f->value);
    else if (ours && f->what == HALAY_LAUNCH_LOOK)
        look(a, rank);
    else
        lose_head(a, "it says what no head does");
}

static int agent_progress(halay_launch_t *a)
{
    char bytes[4096];
    while (a->fd >= 0) {
        ssize_t got = recv(a->fd, bytes, sizeof bytes, MSG_DONTWAIT);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0 && errno == EAGAIN)
            break;
        if (got <= 0) {
            lose_head(a, got ? strerror(errno) : "its connection ended");
            break;
        }
        const char *from = bytes;
        size_t n = (size_t)got;
        for (int whole; n && a->fd >= 0;) {
            whole = hly_frames_take(&a->frames, &from, &n);
            if (whole < 0)
                lose_head(a, "what came is not its own");
            else if (whole)
                take(a, &a->frames.next);
        }
    }
    return -1;
}

static int agent_event(halay_launch_t *a, halay_launch_event_t *event)
{
    if (hly_frame_tells(&a->tell, HALAY_LAUNCH_AGENT, a->first, a->count, event)) {
        event->value = a->changes;
        return 1;
    }
    for (int r = 0; r < a->count && !a->over; r++) {
        struct mark *m = &a->marks[r];
        const bool start = hly_frame_tells(&m->tell, HALAY_LAUNCH_START, r, 0, event);
        if (start || hly_frame_tells(&m->tell, HALAY_LAUNCH_SIGNAL, r, 0, event)) {
            event->value = start ? m->timeout_s : m->signal;
            return 1;
        }
    }
    if (!hly_frame_tells(&a->tell, HALAY_LAUNCH_END, 0, 0, event))
        return 0;
    event->value = a->status;
    snprintf(event->text, sizeof event->text, "%s", a->text);
    return 1;
}

HALAY_API extern const halay_launch_ops_t halay_launch_v3_agent;
const halay_launch_ops_t halay_launch_v3_agent = {
    .size = sizeof(halay_launch_ops_t),
    .name = "agent",
    .start = agent_start,
    .env = agent_env,
    .started = agent_started,
    .ended = agent_ended,
    .descriptor = agent_descriptor,
    .progress = agent_progress,
    .event = agent_event,
    .command = agent_command,
    .stop = agent_stop,
};
