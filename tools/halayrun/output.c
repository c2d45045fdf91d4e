/* SPDX-License-Identifier: Apache-2.0 */
/*
 * output.c - line-wise copying.
 *
 * Invariant: halayrun never waits in a write, or it could not pass on signals while the reader of
 * its output is stopped. A sink holds at most PIPE_BUF bytes and is written only when poll says it
 * can take them; a stream is read only when it holds no complete line. So a slow reader slows the
 * ranks, as without halayrun.
 */
#define _GNU_SOURCE
#include "output.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STREAM_BYTES = 8192, PREFIX_BYTES = 16, TURNS = 64 };

struct sink {
    int fd, broken;
    size_t begin, end;
    char data[PIPE_BUF];
};

struct stream {
    int fd; /* -1: at its end */
    int rank;
    struct sink *sink;
    size_t begin, end;
    char data[STREAM_BYTES];
};

struct hly_output {
    int nstreams;
    struct sink sinks[2];
    struct stream streams[];
};

struct hly_output *hly_output_create(int nranks, int first)
{
    struct hly_output *o = calloc(1, sizeof *o + 2 * (size_t)nranks * sizeof o->streams[0]);
    if (!o)
        return NULL;
    o->nstreams = 2 * nranks;
    o->sinks[0].fd = STDOUT_FILENO;
    o->sinks[1].fd = STDERR_FILENO;
    for (int i = 0; i < o->nstreams; i++) {
        o->streams[i].fd = -1;
        o->streams[i].rank = first + i / 2;
        o->streams[i].sink = &o->sinks[i % 2];
    }
    return o;
}

void hly_output_destroy(struct hly_output *o)
{
    for (int i = 0; o && i < o->nstreams; i++)
        if (o->streams[i].fd >= 0)
            close(o->streams[i].fd);
    free(o);
}

/* Bytes of the next piece to write: a line, or as much of one as there is room for. 0: none yet. */
static size_t piece(const struct stream *s)
{
    size_t held = s->end - s->begin;
    const char *newline = held ? memchr(s->data + s->begin, '\n', held) : NULL;
    size_t most = PIPE_BUF - PREFIX_BYTES - 1, n = 0;
    if (newline)
        n = (size_t)(newline - (s->data + s->begin)) + 1;
    else if (s->fd < 0 || held == STREAM_BYTES || held >= most)
        n = held;
    return n < most ? n : most;
}

static int sink_flush(struct sink *sink)
{
    struct pollfd p = {.fd = sink->fd, .events = POLLOUT};
    while (sink->begin < sink->end && !sink->broken) {
        if (poll(&p, 1, 0) != 1)
            return 0;
        ssize_t n = write(sink->fd, sink->data + sink->begin, sink->end - sink->begin);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return 0;
        if (n < 0)
            sink->broken = 1;
        else
            sink->begin += (size_t)n;
    }
    sink->begin = sink->end = 0;
    return 1;
}

/* Moves pieces to the sink while they fit. One that is no whole line is made one: lines
 * never mix. */
static void move(struct stream *s)
{
    struct sink *sink = s->sink;
    size_t n;
    while ((n = piece(s)) > 0 && sink->end + n + PREFIX_BYTES + 1 <= sizeof sink->data) {
        sink->end += (size_t)snprintf(sink->data + sink->end, PREFIX_BYTES, "[%d] ", s->rank);
        memcpy(sink->data + sink->end, s->data + s->begin, n);
        s->begin += n;
        sink->end += n;
        if (sink->data[sink->end - 1] != '\n')
            sink->data[sink->end++] = '\n';
    }
    assert(sink->end <= sizeof sink->data);
}

/* 1 if there was something. */
static int fill(struct stream *s)
{
    if (s->fd < 0)
        return 0;
    assert(s->end - s->begin < STREAM_BYTES);
    memmove(s->data, s->data + s->begin, s->end - s->begin);
    s->end -= s->begin;
    s->begin = 0;
    ssize_t n = read(s->fd, s->data + s->end, STREAM_BYTES - s->end);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (n > 0) {
        s->end += (size_t)n;
        return 1;
    }
    close(s->fd);
    s->fd = -1;
    return 1;
}

static void copy_stream(struct stream *s)
{
    for (int turn = 0; turn < TURNS && !s->sink->broken; turn++) {
        if (piece(s) == 0 && !fill(s))
            return;
        move(s);
        if (!sink_flush(s->sink))
            return;
    }
}

int hly_output_copy(struct hly_output *o)
{
    for (int i = 0; i < 2; i++)
        sink_flush(&o->sinks[i]);
    for (int i = 0; i < o->nstreams; i++) {
        struct stream *s = &o->streams[i];
        if (s->sink->begin == s->sink->end)
            copy_stream(s);
    }
    return o->sinks[0].broken || o->sinks[1].broken ? -1 : 0;
}

int hly_output_poll(struct hly_output *o, struct pollfd *fds)
{
    int n = 0;
    for (int i = 0; i < 2; i++)
        if (o->sinks[i].begin < o->sinks[i].end)
            fds[n++] = (struct pollfd){.fd = o->sinks[i].fd, .events = POLLOUT};
    for (int i = 0; i < o->nstreams; i++)
        if (o->streams[i].fd >= 0 && o->streams[i].sink->begin == o->streams[i].sink->end)
            fds[n++] = (struct pollfd){.fd = o->streams[i].fd, .events = POLLIN};
    return n;
}

int hly_output_open(const struct hly_output *o)
{
    for (int i = 0; i < 2; i++)
        if (o->sinks[i].begin < o->sinks[i].end && !o->sinks[i].broken)
            return 1;
    for (int i = 0; i < o->nstreams; i++)
        if (!o->streams[i].sink->broken && (o->streams[i].fd >= 0 || piece(&o->streams[i]) > 0))
            return 1;
    return 0;
}

/* What is in the pipe is all that comes. */
static void stream_last(struct stream *s)
{
    while (s->fd >= 0 && s->end - s->begin < STREAM_BYTES) {
        if (fill(s))
            continue;
        close(s->fd); /* empty, and at most a stranger holds it open */
        s->fd = -1;
    }
}

void hly_output_last(struct hly_output *o)
{
    for (int i = 0; i < o->nstreams; i++)
        stream_last(&o->streams[i]);
}

/* Another process writes here from now on: lines of the two do not mix. What there is no room for,
 * where nobody reads, is lost. */
static void stream_end(struct stream *s)
{
    stream_last(s);
    if (s->fd >= 0)
        close(s->fd);
    s->fd = -1;
    const int partial = s->end > s->begin && s->data[s->end - 1] != '\n';
    if (partial && s->end < STREAM_BYTES)
        s->data[s->end++] = '\n';
    else if (partial)
        s->data[s->end - 1] = '\n';
}

int hly_output_pipes(struct hly_output *o, int rank, int *out, int *err)
{
    int a[2], b[2];
    stream_end(&o->streams[2 * rank]);
    stream_end(&o->streams[2 * rank + 1]);
    if (pipe2(a, O_CLOEXEC))
        return -1;
    if (pipe2(b, O_CLOEXEC)) {
        close(a[0]);
        close(a[1]);
        return -1;
    }
    fcntl(a[0], F_SETFL, O_NONBLOCK);
    fcntl(b[0], F_SETFL, O_NONBLOCK);
    o->streams[2 * rank].fd = a[0];
    o->streams[2 * rank + 1].fd = b[0];
    *out = a[1];
    *err = b[1];
    return 0;
}
