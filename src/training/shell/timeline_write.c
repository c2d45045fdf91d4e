/* SPDX-License-Identifier: Apache-2.0 */
/*
 * timeline_write.c - records as events of the Chrome trace format: a rank is a process, a name is a
 * thread. One event a line, so that a file that was cut off can be read up to there. Numbers are
 * put together by hand: this thread may have to share a core with the program.
 */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../../../common/file_limit.h"
#include "timeline.h"

/* Rows that every rank has; those of names come after. */
enum { ROW_CYCLES = 1, ROW_PROGRAM, ROW_VOTES, ROW_BUFFERS, ROW_NAMES = 16 };

/* ------------------------------------------------------------------ bytes */

static void flush(struct hlt_timeline *timeline)
{
    const off_t before = lseek(timeline->fd, 0, SEEK_CUR);
    size_t at = 0;
    if (before >= 0 && !timeline->error && !hly_file_fits((uint64_t)before + timeline->used))
        timeline->error = errno;
    while (at < timeline->used && !timeline->error) {
        ssize_t bytes = write(timeline->fd, timeline->buffer + at, timeline->used - at);
        if (bytes < 0 && errno != EINTR)
            timeline->error = errno;
        at += bytes > 0 ? (size_t)bytes : 0;
    }
    timeline->used = 0;
}

static inline void put_bytes(struct hlt_timeline *timeline, const char *text, size_t bytes)
{
    memcpy(timeline->buffer + timeline->used, text, bytes);
    timeline->used += bytes;
}

/* Inlined, so that the length of a constant is one, and short ones are a move or two. */
static inline __attribute__((always_inline)) void put_text(struct hlt_timeline *timeline,
                                                           const char *text)
{
    put_bytes(timeline, text, strlen(text));
}

/* Three digits, with zeros before. Here as below more bytes are moved than are put: it is faster.
 */
static inline void put_three(struct hlt_timeline *timeline, uint32_t number)
{
    memcpy(timeline->buffer + timeline->used, timeline->digits[number], 4);
    timeline->used += 3;
}

/* Below a thousand. */
static inline void put_small(struct hlt_timeline *timeline, uint32_t number)
{
    size_t zeros = (size_t)(number < 10) + (size_t)(number < 100);
    memcpy(timeline->buffer + timeline->used, timeline->digits[number] + zeros, 4);
    timeline->used += 3 - zeros;
}

static void put_number(struct hlt_timeline *timeline, uint64_t number)
{
    if (number < 1000) {
        put_small(timeline, (uint32_t)number);
        return;
    }
    put_number(timeline, number / 1000);
    put_three(timeline, (uint32_t)(number % 1000));
}

/* In microseconds. One second's digits are nearly always those of the time before. */
static inline void put_time(struct hlt_timeline *timeline, uint64_t ns)
{
    enum { SECOND_NS = 1000000000 };
    uint32_t below = (uint32_t)(ns % SECOND_NS);
    if (ns < SECOND_NS / 1000) {
        put_small(timeline, below / 1000);
    } else if (ns < SECOND_NS) {
        put_small(timeline, below / 1000000);
        put_three(timeline, below / 1000 % 1000);
    } else {
        if (ns / SECOND_NS != timeline->second) {
            size_t used = timeline->used;
            timeline->second = ns / SECOND_NS;
            put_number(timeline, timeline->second);
            timeline->second_bytes = timeline->used - used;
            memcpy(timeline->second_text, timeline->buffer + used, timeline->second_bytes);
            timeline->used = used;
        }
        put_bytes(timeline, timeline->second_text, timeline->second_bytes);
        put_three(timeline, below / 1000000);
        put_three(timeline, below / 1000 % 1000);
    }
    timeline->buffer[timeline->used++] = '.';
    put_three(timeline, below % 1000);
}

/* At most six times as long. What is no UTF-8 stays what it is. */
static void put_escaped(struct hlt_timeline *timeline, const char *text, size_t bytes)
{
    char escaped[8];
    for (; bytes--; text++) {
        if (timeline->used + sizeof(escaped) + HLT_TIMELINE_EVENT > sizeof(timeline->buffer))
            flush(timeline);
        if ((unsigned char)*text >= ' ' && *text != '"' && *text != '\\') {
            timeline->buffer[timeline->used++] = *text;
            continue;
        }
        snprintf(escaped, sizeof(escaped), "\\u%04x", (unsigned)*text);
        put_text(timeline, escaped);
    }
}

/* ------------------------------------------------------------------ events */

/* Up to its row: a line before which all lines before it have ended. */
static void begin(struct hlt_timeline *timeline, char phase, uint64_t row)
{
    if (timeline->used + HLT_TIMELINE_EVENT > sizeof(timeline->buffer))
        flush(timeline);
    timeline->from = timeline->used;
    put_text(timeline, timeline->written++ ? ",\n" : "[\n");
    put_text(timeline, "{\"ph\":\"");
    timeline->buffer[timeline->used++] = phase;
    put_bytes(timeline, timeline->pid, timeline->pid_bytes);
    put_number(timeline, row);
}

static void named(struct hlt_timeline *timeline, const char *what, uint64_t row, const char *name)
{
    begin(timeline, 'M', row);
    put_text(timeline, ",\"name\":\"");
    put_text(timeline, what);
    put_text(timeline, "\",\"args\":{\"name\":");
    put_text(timeline, "\"");
    put_escaped(timeline, name, strlen(name));
    put_text(timeline, "\"}}");
}

static uint64_t aligned(const struct hlt_timeline *timeline, uint64_t ns)
{
    return (int64_t)ns < -timeline->offset_ns ? 0 : ns + (uint64_t)timeline->offset_ns;
}

static uint64_t since(uint64_t from_ns, uint64_t to_ns)
{
    return to_ns > from_ns ? to_ns - from_ns : 0;
}

/* An event of some duration, up to that. */
static void span_begin(struct hlt_timeline *timeline, uint64_t row, uint64_t from_ns)
{
    begin(timeline, 'X', row);
    put_text(timeline, ",\"ts\":");
    put_time(timeline, aligned(timeline, from_ns));
    put_text(timeline, ",\"dur\":");
}

/* Its name and its end follow. */
static void span(struct hlt_timeline *timeline, uint64_t row, uint64_t from_ns, uint64_t to_ns)
{
    span_begin(timeline, row, from_ns);
    put_time(timeline, since(from_ns, to_ns));
    put_text(timeline, ",\"name\":\"");
}

static void argument(struct hlt_timeline *timeline, const char *before, uint64_t number)
{
    put_text(timeline, before);
    put_number(timeline, number);
}

static void instant(struct hlt_timeline *timeline, const char *name, uint64_t ns)
{
    begin(timeline, 'i', ROW_CYCLES);
    put_text(timeline, ",\"s\":\"t\",\"ts\":");
    put_time(timeline, aligned(timeline, ns));
    put_text(timeline, ",\"name\":\"");
    put_text(timeline, name);
    put_text(timeline, "\"}");
}

static const char *kind_name(int kind)
{
    switch (kind) {
    case HLT_KIND_ALLREDUCE:
        return "ALLREDUCE";
    case HLT_KIND_BROADCAST:
        return "BROADCAST";
    case HLT_KIND_ALLGATHER:
        return "ALLGATHER";
    case HLT_KIND_BARRIER:
        return "BARRIER";
    case HLT_KIND_REDUCE_SCATTER:
        return "REDUCESCATTER";
    case HLT_KIND_ALLTOALL:
        return "ALLTOALL";
    case HLT_KIND_JOIN:
        return "JOIN";
    default:
        return "OPERATION";
    }
}

/* name: NULL if it has been written. */
static void write_row(struct hlt_timeline *timeline, uint32_t row, const char *name)
{
    if (name)
        named(timeline, "thread_name", ROW_NAMES + row, name);
    else if (row == HLT_TIMELINE_ROWS && !timeline->others++)
        named(timeline, "thread_name", ROW_NAMES + row, "(other names)");
}

static void write_tensor(struct hlt_timeline *timeline, const struct hlt_timed *timed)
{
    const uint64_t *ns = timed->ns;
    const char *kind = kind_name(timed->what);
    uint64_t row = ROW_NAMES + timed->row, from_ns = ns[1] ? ns[1] : ns[0];
    write_row(timeline, timed->row, timed->name);
    if (ns[1]) {
        span(timeline, row, ns[0], ns[1]);
        put_text(timeline, "NEGOTIATE_");
        put_text(timeline, kind);
        put_text(timeline, "\"}");
    }
    span(timeline, row, from_ns, ns[3]);
    put_text(timeline, kind);
    argument(timeline, "\",\"args\":{\"bytes\":", timed->bytes);
    if (timed->buffer < HLT_BUFFERS)
        argument(timeline, ",\"fusion buffer\":", timed->buffer);
    if (timed->code)
        argument(timeline, ",\"error\":-", (uint64_t)-timed->code);
    put_text(timeline, "}}");
    span(timeline, row, from_ns, ns[2]);
    put_text(timeline, "QUEUE\"}");
    if (timed->buffer < HLT_BUFFERS || timed->code)
        return;
    span(timeline, row, ns[2], ns[3]);
    put_text(timeline, "HALAY_");
    put_text(timeline, kind);
    put_text(timeline, "\"}");
}

/* As the first two spans of write_tensor(): both begin in the same way. */
static void write_member(struct hlt_timeline *timeline, const struct hlt_timed *group,
                         const struct hlt_member *member)
{
    uint64_t submit_ns = member->submit_ns;
    write_row(timeline, member->row, NULL);
    span_begin(timeline, ROW_NAMES + member->row, submit_ns);
    const char *from = timeline->buffer + timeline->from;
    size_t bytes = timeline->used - timeline->from;
    put_time(timeline, since(submit_ns, group->ns[3]));
    put_text(timeline, ",\"name\":\"ALLREDUCE\",\"args\":{\"bytes\":");
    put_number(timeline, member->bytes);
    put_text(timeline, ",\"fusion buffer\":");
    put_number(timeline, group->buffer);
    put_text(timeline, "}}");
    put_bytes(timeline, from, bytes);
    put_time(timeline, since(submit_ns, group->ns[0]));
    put_text(timeline, ",\"name\":\"QUEUE\"}");
}

static void write_fused(struct hlt_timeline *timeline, const struct hlt_timed *timed)
{
    uint64_t row = ROW_BUFFERS + timed->buffer;
    span(timeline, row, timed->ns[0], timed->ns[1]);
    put_text(timeline, "MEMCPY_IN_FUSION_BUFFER\"}");
    span(timeline, row, timed->ns[1], timed->ns[2]);
    put_text(timeline, "HALAY_");
    put_text(timeline, kind_name(timed->what));
    argument(timeline, "\",\"args\":{\"tensors\":", timed->count);
    argument(timeline, ",\"bytes\":", timed->bytes);
    put_text(timeline, "}}");
    span(timeline, row, timed->ns[2], timed->ns[3]);
    put_text(timeline, "MEMCPY_OUT_FUSION_BUFFER\"}");
}

/* The name is in the cells after it. */
static void write_span(struct hlt_timeline *timeline, const struct hlt_timed *timed, uint64_t at)
{
    span(timeline, ROW_PROGRAM, timed->ns[0], timed->ns[1]);
    for (size_t left = timed->count; left;) {
        size_t part = left < HLT_CELL_BYTES ? left : HLT_CELL_BYTES;
        put_escaped(timeline, hlt_timeline_cell(timeline, ++at)->text, part);
        left -= part;
    }
    put_text(timeline, "\"}");
}

/* Returns how many cells it has. */
static uint64_t write_one(struct hlt_timeline *timeline, uint64_t at)
{
    const struct hlt_timed *timed = &hlt_timeline_cell(timeline, at)->timed;
    switch (timed->kind) {
    case HLT_RECORD_TENSOR:
        write_tensor(timeline, timed);
        break;
    case HLT_RECORD_FUSED:
        write_fused(timeline, timed);
        for (uint64_t m = 0; timed->listed && m < timed->count; m++)
            write_member(timeline, timed,
                         &hlt_timeline_cell(timeline, at + 1 + m / HLT_CELL_MEMBERS)
                              ->members[m % HLT_CELL_MEMBERS]);
        return 1 + (timed->listed ? hlt_cells(timed->count, HLT_CELL_MEMBERS) : 0);
    case HLT_RECORD_NAME:
        write_row(timeline, timed->row, timed->name);
        break;
    case HLT_RECORD_VOTE:
        span(timeline, ROW_VOTES, timed->ns[0], timed->ns[1]);
        argument(timeline, "VOTE\",\"args\":{\"tensors\":", timed->count);
        put_text(timeline, "}}");
        break;
    case HLT_RECORD_ROUND:
        span(timeline, ROW_CYCLES, timed->ns[0], timed->ns[1]);
        argument(timeline, "ROUND\",\"args\":{\"entries\":", timed->count);
        put_text(timeline, "}}");
        break;
    case HLT_RECORD_CYCLE:
        instant(timeline, "CYCLE_START", timed->ns[0]);
        break;
    case HLT_RECORD_VOID:
        instant(timeline, "VOID", timed->ns[0]);
        break;
    default:
        assert(timed->kind == HLT_RECORD_SPAN);
        write_span(timeline, timed, at);
        return 1 + hlt_cells(timed->count, HLT_CELL_BYTES);
    }
    return 1;
}

void hlt_timeline_begin(struct hlt_timeline *timeline, const char *host, uint64_t error_ns)
{
    char text[128];
    for (int n = 0; n < 1000; n++)
        snprintf(timeline->digits[n], sizeof(timeline->digits[n]), "%03d", n);
    timeline->pid_bytes = (size_t)snprintf(timeline->pid, sizeof(timeline->pid),
                                           "\",\"pid\":%d,\"tid\":", timeline->rank);
    snprintf(text, sizeof(text), "rank %d (%s)", timeline->rank, host);
    named(timeline, "process_name", 0, text);
    begin(timeline, 'M', 0);
    snprintf(text, sizeof(text),
             ",\"name\":\"halay_clock\",\"args\":{\"offset_ns\":%lld,\"error_ns\":%llu}}",
             (long long)timeline->offset_ns, (unsigned long long)error_ns);
    put_text(timeline, text);
    begin(timeline, 'M', 0);
    put_text(timeline, ",\"name\":\"process_sort_index\",\"args\":{\"sort_index\":");
    put_number(timeline, (uint64_t)timeline->rank);
    put_text(timeline, "}}");
    named(timeline, "thread_name", ROW_CYCLES, "cycles");
    named(timeline, "thread_name", ROW_PROGRAM, "program");
    named(timeline, "thread_name", ROW_VOTES, "votes");
    for (int i = 0; i < HLT_BUFFERS; i++) {
        snprintf(text, sizeof(text), "fusion buffer %d", i);
        named(timeline, "thread_name", ROW_BUFFERS + (uint64_t)i, text);
    }
    flush(timeline);
}

void hlt_timeline_drain(struct hlt_timeline *timeline, int if_on)
{
    /* Pairs with the release of who has put it in. */
    uint64_t head = atomic_load_explicit(&timeline->head, memory_order_acquire);
    uint64_t tail = atomic_load_explicit(&timeline->tail, memory_order_relaxed);
    while (tail < head && !(if_on && atomic_load_explicit(&timeline->stop, memory_order_relaxed))) {
        tail += write_one(timeline, tail);
        atomic_store_explicit(&timeline->tail, tail, memory_order_release);
    }
    flush(timeline);
}

void hlt_timeline_end(struct hlt_timeline *timeline)
{
    begin(timeline, 'i', ROW_CYCLES);
    put_text(timeline, ",\"s\":\"p\",\"ts\":");
    put_time(timeline, aligned(timeline, timeline->stopped_ns));
    argument(timeline, ",\"name\":\"END\",\"args\":{\"recorded\":", timeline->recorded);
    argument(timeline, ",\"lost\":", timeline->lost);
    put_text(timeline, "}}\n]\n");
    flush(timeline);
}
