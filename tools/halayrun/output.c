/* SPDX-License-Identifier: Apache-2.0 */
/*
 * output.c - line-wise copying.
 *
 * Invariant: halayrun never waits for a reader, or it could not pass on signals while the reader of
 * its output is stopped. A sink holds at most PIPE_BUF bytes and is written only when poll says it
 * can take them; a stream is read only when it holds no complete line. So a slow reader slows the
 * ranks, as without halayrun. The files of --output-filename are written at once.
 */
#define _GNU_SOURCE
#include "output.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "note.h"

enum { STREAM_BYTES = 8192, PREFIX_BYTES = 48, TURNS = 64, LINGER_MS = 100 };

struct stream;

struct sink {
    int fd, broken, lossy;     /* lossy: it has printed that lines were lost */
    const struct stream *amid; /* the line that it has written last goes on; NULL: it has ended */
    size_t begin, end;
    char data[PIPE_BUF];
};

struct stream {
    int fd;   /* -1: at its end */
    int file; /* what is read goes there, too; -1: nowhere */
    int rank;
    int linger;       /* a part of a line that nothing follows is passed on */
    int64_t since_ms; /* the last was read then */
    struct sink *sink;
    size_t begin, end;
    char data[STREAM_BYTES];
};

struct hly_output {
    int nstreams, first, lost; /* lost: a file could not be written, said */
    enum hly_marks marks;
    const char *folder; /* for files; NULL: none */
    struct sink sinks[2];
    struct stream streams[];
};

struct hly_output *hly_output_create(int nranks, int first, enum hly_marks marks)
{
    struct hly_output *o = calloc(1, sizeof *o + 2 * (size_t)nranks * sizeof o->streams[0]);
    if (!o)
        return NULL;
    o->nstreams = 2 * nranks;
    o->first = first;
    o->marks = marks;
    o->sinks[0].fd = STDOUT_FILENO;
    o->sinks[1].fd = STDERR_FILENO;
    for (int i = 0; i < o->nstreams; i++) {
        o->streams[i].fd = o->streams[i].file = -1;
        o->streams[i].rank = first + i / 2;
        o->streams[i].linger = marks == HLY_MARK_NONE;
        o->streams[i].sink = &o->sinks[i % 2];
    }
    return o;
}

void hly_output_destroy(struct hly_output *o)
{
    for (int i = 0; o && i < o->nstreams; i++) {
        if (o->streams[i].fd >= 0)
            close(o->streams[i].fd);
        if (o->streams[i].file >= 0)
            close(o->streams[i].file);
    }
    free(o);
}

/* ------------------------------------------------------------------ files */

static int cannot(const char *path, const char *remedy)
{
    const int error = errno;
    hly_note("--output-filename: cannot make '%s': %s%s", path, strerror(error), remedy);
    errno = error;
    return -1;
}

static int make_folder(const char *path)
{
    return mkdir(path, 0777) && errno != EEXIST ? cannot(path, "") : 0;
}

/* With those that it is in. */
static int make_folders(const char *folder)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s", folder);
    for (char *at = strchr(path + 1, '/'); at; at = strchr(at + 1, '/')) {
        *at = '\0';
        if (make_folder(path))
            return -1;
        *at = '/';
    }
    return make_folder(path);
}

int hly_output_digits(int nranks, int first)
{
    return snprintf(NULL, 0, "%d", first + nranks - 1);
}

int hly_output_folders(const char *folder, int nranks, int digits)
{
    char path[PATH_MAX];
    if (make_folders(folder))
        return -1;
    for (int r = 0; r < nranks; r++) {
        snprintf(path, sizeof path, "%s/rank.%0*d", folder, digits, r);
        if (make_folder(path))
            return -1;
    }
    return 0;
}

int hly_output_keep(struct hly_output *o, const char *folder)
{
    o->folder = folder;
    return make_folders(folder);
}

/* If a rank is started again, what it printed before stays. */
static int open_files(struct hly_output *o, int rank)
{
    char path[PATH_MAX];
    const int digits = hly_output_digits(o->nstreams / 2, o->first);
    if (!o->folder || o->streams[2 * rank].file >= 0 || o->lost)
        return 0;
    snprintf(path, sizeof path, "%s/rank.%0*d", o->folder, digits, o->first + rank);
    if (make_folder(path))
        return -1;
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/rank.%0*d/%s", o->folder, digits, o->first + rank,
                 i ? "stderr" : "stdout");
        const int fd =
            open(path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0666);
        if (fd < 0)
            return cannot(path, errno == EMFILE ? "; raise the limit (ulimit -n)" : "");
        o->streams[2 * rank + i].file = fd;
    }
    return 0;
}

/* A file that takes no more costs no rank its output elsewhere. */
static void keep(struct hly_output *o, struct stream *s, const char *data, size_t bytes)
{
    while (s->file >= 0 && bytes) {
        ssize_t n = write(s->file, data, bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            if (!o->lost)
                hly_note("--output-filename: what rank %d prints is not kept from here on, and "
                         "perhaps not "
                         "that of others: %s",
                         s->rank, strerror(errno));
            o->lost = 1;
            close(s->file);
            s->file = -1;
            return;
        }
        data += n;
        bytes -= (size_t)n;
    }
}

/* ------------------------------------------------------------------ lines */

/* In how many ms a part of a line is passed on as it is; -1: there is none that waits for it. */
static int64_t lingers(const struct stream *s)
{
    if (!s->linger || s->fd < 0 || s->begin == s->end)
        return -1;
    const int64_t left = s->since_ms + LINGER_MS - hly_now_ms();
    return left > 0 ? left : 0;
}

/* Bytes of the next piece to write: a line, or as much of one as there is room for. 0: none yet. */
static size_t piece(const struct stream *s)
{
    size_t held = s->end - s->begin;
    const char *newline = held ? memchr(s->data + s->begin, '\n', held) : NULL;
    size_t most = PIPE_BUF - PREFIX_BYTES - 1, n = 0;
    if (newline)
        n = (size_t)(newline - (s->data + s->begin)) + 1;
    else if (s->fd < 0 || held == STREAM_BYTES || held >= most || lingers(s) == 0)
        n = held;
    return n < most ? n : most;
}

/* A disk that is full costs what is printed, not the job. */
static int lose(struct sink *sink)
{
    if (!sink->lossy)
        hly_note("what the ranks print is not all written: %s", strerror(errno));
    sink->lossy = 1;
    sink->begin = sink->end = 0;
    return 1;
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
        if (n > 0)
            sink->begin += (size_t)n;
        else if (n < 0 && errno == EPIPE)
            sink->broken = 1;
        else
            return lose(sink);
    }
    sink->begin = sink->end = 0;
    return 1;
}

/* What stands before a line. Its bytes. */
static size_t mark(const struct hly_output *o, const struct stream *s, char *to)
{
    const time_t now = time(NULL);
    struct tm at;
    size_t n = 0;
    if (o->marks == HLY_MARK_TIME && localtime_r(&now, &at))
        n = strftime(to, PREFIX_BYTES, "%Y-%m-%dT%H:%M:%S ", &at);
    if (o->marks != HLY_MARK_NONE)
        n += (size_t)snprintf(to + n, PREFIX_BYTES - n, "[%d] ", s->rank);
    return n;
}

/* Moves pieces to the sink while they fit. Lines never mix: a piece that is no whole line is made
 * one, with a mark at once, else where another stream comes next. */
static void move(const struct hly_output *o, struct stream *s)
{
    struct sink *sink = s->sink;
    size_t n;
    while ((n = piece(s)) > 0 && sink->end + n + PREFIX_BYTES + 1 <= sizeof sink->data) {
        if (sink->amid && sink->amid != s)
            sink->data[sink->end++] = '\n';
        sink->end += mark(o, s, sink->data + sink->end);
        memcpy(sink->data + sink->end, s->data + s->begin, n);
        s->begin += n;
        sink->end += n;
        sink->amid = sink->data[sink->end - 1] == '\n' ? NULL : s;
        if (sink->amid && o->marks != HLY_MARK_NONE) {
            sink->data[sink->end++] = '\n';
            sink->amid = NULL;
        }
    }
    assert(sink->end <= sizeof sink->data);
}

/* 1 if there was something. */
static int fill(struct hly_output *o, struct stream *s)
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
        keep(o, s, s->data + s->end, (size_t)n);
        s->end += (size_t)n;
        s->since_ms = hly_now_ms();
        return 1;
    }
    close(s->fd);
    s->fd = -1;
    return 1;
}

static void copy_stream(struct hly_output *o, struct stream *s)
{
    for (int turn = 0; turn < TURNS && !s->sink->broken; turn++) {
        if (piece(s) == 0 && !fill(o, s))
            return;
        move(o, s);
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
            copy_stream(o, s);
    }
    return o->sinks[0].broken || o->sinks[1].broken ? -1 : 0;
}

int hly_output_lost(const struct hly_output *o)
{
    return o->sinks[0].lossy || o->sinks[1].lossy;
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

int hly_output_due(const struct hly_output *o)
{
    int64_t next = -1;
    for (int i = 0; i < o->nstreams; i++) {
        const int64_t left = lingers(&o->streams[i]);
        if (left >= 0 && !o->streams[i].sink->broken &&
            o->streams[i].sink->begin == o->streams[i].sink->end && (next < 0 || left < next))
            next = left;
    }
    return (int)next;
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
static void stream_last(struct hly_output *o, struct stream *s)
{
    while (s->fd >= 0 && s->end - s->begin < STREAM_BYTES) {
        if (fill(o, s))
            continue;
        close(s->fd); /* empty, and at most a stranger holds it open */
        s->fd = -1;
    }
}

void hly_output_last(struct hly_output *o)
{
    for (int i = 0; i < o->nstreams; i++)
        stream_last(o, &o->streams[i]);
}

/* Another process writes here from now on: lines of the two do not mix. What there is no room for,
 * where nobody reads, is lost. */
static void stream_end(struct hly_output *o, struct stream *s)
{
    stream_last(o, s);
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
    stream_end(o, &o->streams[2 * rank]);
    stream_end(o, &o->streams[2 * rank + 1]);
    if (open_files(o, rank))
        return -1;
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
