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

#include "timeline.h"

/* Rows that every rank has; those of names come after. */
enum { ROW_CYCLES = 1, ROW_PROGRAM, ROW_VOTES, ROW_BUFFERS, ROW_NAMES = 16 };

/* ------------------------------------------------------------------ bytes */

static void flush(struct hly_timeline *timeline)
{
    size_t at = 0;
    while (at < timeline->used && !timeline->error) {
        ssize_t bytes = write(timeline->fd, timeline->buffer + at, timeline->used - at);
        if (bytes < 0 && errno != EINTR)
            timeline->error = errno;
        at += bytes > 0 ? (size_t)bytes : 0;
    }
    timeline->used = 0;
}

static inline void put_bytes(struct hly_timeline *timeline, const char *text, size_t bytes)
{
    memcpy(timeline->buffer + timeline->used, text, bytes);
    timeline->used += bytes;
}

/* Inlined, so that the length of a constant is one, and short ones are a move or two. */
static inline __attribute__((always_inline)) void put_text(struct hly_timeline *timeline,
                                                           const char *text)
{
    put_bytes(timeline, text, strlen(text));
}

/* Two digits at a time. Returns where they begin: they end before `end`. */
static char *digits_before(char *end, uint32_t number)
{
    static const char pairs[] = "00010203040506070809101112131415161718192021222324"
                                "25262728293031323334353637383940414243444546474849"
                                "50515253545556575859606162636465666768697071727374"
                                "75767778798081828384858687888990919293949596979899";
    for (; number >= 100; number /= 100)
        memcpy(end -= 2, pairs + number % 100 * 2, 2);
    if (number >= 10)
        return memcpy(end - 2, pairs + number * 2, 2);
    *--end = (char)('0' + number);
    return end;
}

static void put_number(struct hly_timeline *timeline, uint64_t number)
{
    enum { PART = 100000000 };
    char text[24], *end = text + sizeof(text), *at = end;
    for (; number >= PART; number /= PART) {
        char *part = digits_before(at, (uint32_t)(number % PART));
        at -= 8;
        memset(at, '0', (size_t)(part - at));
    }
    at = digits_before(at, (uint32_t)number);
    put_bytes(timeline, at, (size_t)(end - at));
}

/* Microseconds, with three places. */
static void put_time(struct hly_timeline *timeline, uint64_t ns)
{
    uint32_t rest = (uint32_t)(ns % 1000);
    char places[4] = {'.', (char)('0' + rest / 100), (char)('0' + rest / 10 % 10),
                      (char)('0' + rest % 10)};
    put_number(timeline, ns / 1000);
    put_bytes(timeline, places, sizeof(places));
}

/* At most six times as long. What is no UTF-8 stays what it is. */
static void put_quoted(struct hly_timeline *timeline, const char *text)
{
    char escaped[8];
    put_text(timeline, "\"");
    for (; *text; text++) {
        if (timeline->used + sizeof(escaped) + HLY_TIMELINE_EVENT > sizeof(timeline->buffer))
            flush(timeline);
        if ((unsigned char)*text >= ' ' && *text != '"' && *text != '\\') {
            put_bytes(timeline, text, 1);
            continue;
        }
        snprintf(escaped, sizeof(escaped), "\\u%04x", (unsigned)*text);
        put_text(timeline, escaped);
    }
    put_text(timeline, "\"");
}

/* ------------------------------------------------------------------ events */

/* Up to its row: a line before which all lines before it have ended. */
static void begin(struct hly_timeline *timeline, char phase, uint64_t row)
{
    if (timeline->used + HLY_TIMELINE_EVENT > sizeof(timeline->buffer))
        flush(timeline);
    put_text(timeline, timeline->written++ ? ",\n" : "[\n");
    put_text(timeline, "{\"ph\":\"");
    timeline->buffer[timeline->used++] = phase;
    put_text(timeline, "\",\"pid\":");
    put_number(timeline, (uint64_t)timeline->rank);
    put_text(timeline, ",\"tid\":");
    put_number(timeline, row);
}

static void named(struct hly_timeline *timeline, const char *what, uint64_t row, const char *name)
{
    begin(timeline, 'M', row);
    put_text(timeline, ",\"name\":\"");
    put_text(timeline, what);
    put_text(timeline, "\",\"args\":{\"name\":");
    put_quoted(timeline, name);
    put_text(timeline, "}}");
}

static uint64_t aligned(const struct hly_timeline *timeline, uint64_t ns)
{
    return (int64_t)ns < -timeline->offset_ns ? 0 : ns + (uint64_t)timeline->offset_ns;
}

/* An event of some duration; its name and its end follow. */
static void span(struct hly_timeline *timeline, uint64_t row, uint64_t from_ns, uint64_t to_ns)
{
    begin(timeline, 'X', row);
    put_text(timeline, ",\"ts\":");
    put_time(timeline, aligned(timeline, from_ns));
    put_text(timeline, ",\"dur\":");
    put_time(timeline, to_ns > from_ns ? to_ns - from_ns : 0);
    put_text(timeline, ",\"name\":\"");
}

static void argument(struct hly_timeline *timeline, const char *before, uint64_t number)
{
    put_text(timeline, before);
    put_number(timeline, number);
}

static void instant(struct hly_timeline *timeline, const char *name, uint64_t ns)
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
    case HLY_KIND_ALLREDUCE:
        return "ALLREDUCE";
    case HLY_KIND_BROADCAST:
        return "BROADCAST";
    case HLY_KIND_ALLGATHER:
        return "ALLGATHER";
    case HLY_KIND_BARRIER:
        return "BARRIER";
    case HLY_KIND_REDUCE_SCATTER:
        return "REDUCESCATTER";
    case HLY_KIND_ALLTOALL:
        return "ALLTOALL";
    case HLY_KIND_JOIN:
        return "JOIN";
    default:
        return "OPERATION";
    }
}

static void write_tensor(struct hly_timeline *timeline, const struct hly_timed *timed)
{
    const uint64_t *ns = timed->ns;
    const char *kind = kind_name(timed->what);
    uint64_t row = ROW_NAMES + timed->row, from_ns = ns[1] ? ns[1] : ns[0];
    if (timed->name)
        named(timeline, "thread_name", row, timed->name);
    else if (timed->row == HLY_TIMELINE_ROWS && !timeline->others++)
        named(timeline, "thread_name", row, "(other names)");
    if (ns[1]) {
        span(timeline, row, ns[0], ns[1]);
        put_text(timeline, "NEGOTIATE_");
        put_text(timeline, kind);
        put_text(timeline, "\"}");
    }
    span(timeline, row, from_ns, ns[3]);
    put_text(timeline, kind);
    argument(timeline, "\",\"args\":{\"bytes\":", timed->bytes);
    if (timed->buffer < HLY_SLOTS)
        argument(timeline, ",\"fusion buffer\":", timed->buffer);
    if (timed->code)
        argument(timeline, ",\"error\":-", (uint64_t)-timed->code);
    put_text(timeline, "}}");
    span(timeline, row, from_ns, ns[2]);
    put_text(timeline, "QUEUE\"}");
    if (timed->buffer < HLY_SLOTS || timed->code)
        return;
    span(timeline, row, ns[2], ns[3]);
    put_text(timeline, "HALAY_");
    put_text(timeline, kind);
    put_text(timeline, "\"}");
}

static void write_fused(struct hly_timeline *timeline, const struct hly_timed *timed)
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

static void write_one(struct hly_timeline *timeline, const struct hly_timed *timed)
{
    switch (timed->kind) {
    case HLY_RECORD_TENSOR:
        write_tensor(timeline, timed);
        break;
    case HLY_RECORD_FUSED:
        write_fused(timeline, timed);
        break;
    case HLY_RECORD_VOTE:
        span(timeline, ROW_VOTES, timed->ns[0], timed->ns[1]);
        argument(timeline, "VOTE\",\"args\":{\"tensors\":", timed->count);
        put_text(timeline, "}}");
        break;
    case HLY_RECORD_ROUND:
        span(timeline, ROW_CYCLES, timed->ns[0], timed->ns[1]);
        argument(timeline, "ROUND\",\"args\":{\"entries\":", timed->count);
        put_text(timeline, "}}");
        break;
    case HLY_RECORD_CYCLE:
        instant(timeline, "CYCLE_START", timed->ns[0]);
        break;
    case HLY_RECORD_VOID:
        instant(timeline, "VOID", timed->ns[0]);
        break;
    default:
        assert(timed->kind == HLY_RECORD_SPAN);
        span(timeline, ROW_PROGRAM, timed->ns[0], timed->ns[1]);
        timeline->used--; /* the quote */
        put_quoted(timeline, timed->name);
        put_text(timeline, "}");
    }
    free(timed->name);
}

void hly_timeline_begin(struct hly_timeline *timeline, const char *host, uint64_t error_ns)
{
    char text[128];
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
    for (int i = 0; i < HLY_SLOTS; i++) {
        snprintf(text, sizeof(text), "fusion buffer %d", i);
        named(timeline, "thread_name", ROW_BUFFERS + (uint64_t)i, text);
    }
    flush(timeline);
}

void hly_timeline_drain(struct hly_timeline *timeline)
{
    /* Pairs with the release of who has put it in. */
    uint64_t head = atomic_load_explicit(&timeline->head, memory_order_acquire);
    uint64_t tail = atomic_load_explicit(&timeline->tail, memory_order_relaxed);
    for (; tail < head; tail++) {
        write_one(timeline, &timeline->ring[tail % HLY_TIMELINE_RECORDS]);
        atomic_store_explicit(&timeline->tail, tail + 1, memory_order_release);
    }
    flush(timeline);
}

void hly_timeline_end(struct hly_timeline *timeline)
{
    begin(timeline, 'i', ROW_CYCLES);
    put_text(timeline, ",\"s\":\"p\",\"ts\":");
    put_time(timeline, aligned(timeline, timeline->stopped_ns));
    argument(timeline, ",\"name\":\"END\",\"args\":{\"recorded\":", timeline->recorded);
    argument(timeline, ",\"lost\":", timeline->lost);
    put_text(timeline, "}}\n]\n");
    flush(timeline);
}
