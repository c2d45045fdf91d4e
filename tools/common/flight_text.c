/* SPDX-License-Identifier: Apache-2.0 */
/* flight_text.c - where a rank is, in words. halayrun, which has no library, says it too. */
#define _GNU_SOURCE
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/wait.h>
#include <time.h>

#include <halay/plan.h>

#include "flight.h"

/* ---------------------------------------------------------------- where it is */

static const halay_record_wait_t *wait_of(const hly_flight_t *f, const halay_record_call_t *call)
{
    const halay_record_wait_t *found = NULL;
    for (uint32_t i = 0; i < f->nwaits; i++)
        if (f->waits[i].call == call->stamp / 2 && f->waits[i].comm == call->comm &&
            f->waits[i].sequence == call->sequence)
            found = &f->waits[i];
    return found;
}

/* The first of the calls at the end that have failed, one after the other: the others end with its
 * verdict. */
static const halay_record_call_t *first_failed(const hly_flight_t *f)
{
    const halay_record_call_t *first = NULL;
    for (uint32_t i = f->ncalls; i-- && f->calls[i].state == HALAY_RECORD_FAILED;)
        if (!first || wait_of(f, &f->calls[i]))
            first = &f->calls[i];
    return first;
}

/* The latest agreement that it is in; or NULL. */
static const halay_record_agreement_t *agreement_of(const hly_flight_t *f)
{
    const halay_record_agreement_t *found = NULL;
    for (uint32_t i = 0; i < HALAY_RECORD_AGREEMENTS; i++) {
        const halay_record_agreement_t *a = &f->head.agreements[i];
        if (a->what && !a->ended_ns && (!found || a->stamp > found->stamp))
            found = a;
    }
    return found;
}

/* The first of the places where the program waits; or NULL. */
static const halay_record_place_t *place_of(const hly_flight_t *f)
{
    const halay_record_place_t *found = NULL;
    for (uint32_t i = 0; i < HALAY_RECORD_PLACES; i++) {
        const halay_record_place_t *p = &f->head.places[i];
        if (p->in && !p->ended_ns && (!found || p->stamp < found->stamp))
            found = p;
    }
    return found;
}

void hly_flight_stand(const hly_flight_t *f, hly_standing_t *s)
{
    const halay_record_call_t *call = NULL;
    for (uint32_t i = f->ncalls; i--;)
        if (f->calls[i].state == HALAY_RECORD_POSTED)
            call = &f->calls[i];
    const int runs = f->head.state == HALAY_RECORD_RUNS;
    *s = (hly_standing_t){.where = f->head.state == HALAY_RECORD_GIVEN     ? HLY_BEFORE_INIT
                                   : f->head.state == HALAY_RECORD_INIT    ? HLY_IN_INIT
                                   : f->head.state == HALAY_RECORD_NO_INIT ? HLY_NO_INIT
                                   : runs                                  ? HLY_OUTSIDE
                                                                           : HLY_LEFT,
                          .call = f->ncalls ? &f->calls[f->ncalls - 1] : NULL};
    s->place = runs ? place_of(f) : NULL;
    if (runs && agreement_of(f)) {
        s->where = HLY_IN_AGREEMENT;
        s->agreement = agreement_of(f);
    } else if (s->place && s->place->in != HALAY_RECORD_IN_CALL) {
        s->where = HLY_IN_MESSAGE;
    } else if (runs && call) {
        s->where = HLY_IN_CALL;
        s->call = call;
    } else if (f->head.state >= HALAY_RECORD_RUNS && first_failed(f)) {
        s->where = HLY_IN_FAILED;
        s->call = first_failed(f);
    }
    s->wait = s->call ? wait_of(f, s->call) : NULL;
}

const halay_record_comm_t *hly_flight_comm(const hly_flight_t *f, uint64_t id)
{
    for (uint32_t i = f->ncomms; i--;)
        if (f->comms[i].id == id)
            return &f->comms[i];
    return NULL;
}

int hly_flight_made(const hly_flight_t *f, uint64_t comm, uint32_t sequence)
{
    for (uint32_t i = f->ncalls; i--;)
        if (f->calls[i].comm == comm && (int32_t)(f->calls[i].sequence - sequence) >= 0)
            return 1;
    return 0;
}

static uint64_t later(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

uint64_t hly_flights_now(const hly_flights_t *flights)
{
    uint64_t now = 0;
    struct timespec wall;
    for (uint32_t i = 0; i < flights->n; i++) {
        const hly_flight_t *f = flights->list[i];
        uint64_t last = f->head.began_ns;
        if (f->here) {
            clock_gettime(CLOCK_REALTIME, &wall);
            return (uint64_t)wall.tv_sec * 1000000000u + (uint64_t)wall.tv_nsec;
        }
        for (uint32_t k = 0; k < f->ncalls; k++)
            last = later(last, later(f->calls[k].started_ns, f->calls[k].ended_ns));
        for (uint32_t k = 0; k < f->nwaits; k++)
            last = later(last, f->waits[k].seen_ns);
        for (uint32_t k = 0; k < f->nstacks; k++)
            last = later(last, f->stacks[k].taken_ns);
        for (uint32_t k = 0; k < f->nverdicts; k++)
            last = later(last, f->verdicts[k].told_ns);
        now = later(now, last + f->head.epoch_ns);
    }
    return now;
}

/* ---------------------------------------------------------------- in words */

void hly_flight_call_text(const hly_flight_t *f, const halay_record_call_t *c, char *text,
                          size_t bytes)
{
    static const char *const names[HALAY_COLLECTIVE_COUNT] = {
        "allreduce", "broadcast", "allgather", "reduce_scatter", "barrier", "reduce",
        "gather",    "scatter",   "alltoall",  "scan",           "exscan"};
    static const char *const types[HALAY_TYPE_COUNT] = {
        "int8",          "uint8",         "int16",       "uint16",     "int32",
        "uint32",        "int64",         "uint64",      "bool",       "float16",
        "bfloat16",      "float32",       "float64",     "complex64",  "complex128",
        "float32_int32", "float64_int64", "int32_int32", "int64_int64"};
    const uint32_t what = c->what & 31;
    const halay_record_comm_t *comm = hly_flight_comm(f, c->comm);
    const char *type = c->type < HALAY_TYPE_COUNT ? types[c->type] : "?";
    const unsigned long long count = c->count;
    if (what == HALAY_BARRIER)
        snprintf(text, bytes,
                 c->flags & HALAY_RECORD_LIST    ? "halay_comm_from_ranks of %llu"
                 : c->flags & HALAY_RECORD_GROUP ? "group of %llu calls"
                                                 : "barrier",
                 count);
    else if (c->flags & HALAY_RECORD_PAIR && comm && comm->nranks == 2)
        snprintf(text, bytes, "%s of %llu %s %s rank %d", comm->rank ? "receive" : "send", count,
                 type, comm->rank ? "from" : "to", comm->first + !comm->rank * comm->stride);
    else if (c->flags & HALAY_RECORD_PAIR)
        snprintf(text, bytes, "send or receive of %llu %s", count, type);
    else if (c->flags & HALAY_RECORD_LIST)
        snprintf(text, bytes, "halay_comm_split");
    else if (c->flags & HALAY_RECORD_VECTOR)
        snprintf(text, bytes, "%sv of %s", names[what], type);
    else
        snprintf(text, bytes, "%s of %llu %s", names[what], count, type);
}

void hly_flight_process_text(const hly_flight_t *f, char *text, size_t bytes)
{
    const int status = (int)(f->head.ended - 1);
    text[0] = '\0';
    if (f->head.ended && WIFSIGNALED(status))
        snprintf(text, bytes, "killed by signal %d", WTERMSIG(status));
    else if (f->head.ended)
        snprintf(text, bytes, "exited with status %d", WEXITSTATUS(status));
    else if (f->process == 'T' || f->process == 't')
        snprintf(text, bytes, "stopped");
    else if (f->process == 'Z' || f->process == 'X')
        snprintf(text, bytes, "dead");
    else if (f->head.stopped)
        snprintf(text, bytes, "was stopped");
}

static void put(char *text, size_t bytes, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void put(char *text, size_t bytes, const char *format, ...)
{
    const size_t used = strlen(text);
    va_list list;
    va_start(list, format);
    vsnprintf(text + used, bytes - used, format, list);
    va_end(list);
}

/* since: a time of this rank's clock. */
static void put_since(const hly_flight_t *f, uint64_t since_ns, uint64_t now_ns, char *text,
                      size_t bytes)
{
    const uint64_t since = since_ns + f->head.epoch_ns;
    if (since_ns && now_ns > since)
        put(text, bytes, " for %.1f s", (double)(now_ns - since) / 1e9);
}

static const char *kind_text(uint32_t kind)
{
    static const char *const names[] = {"?",      "SEND to", "RECV from", "COPY",
                                        "REDUCE", "JOIN",    "GROUP"};
    return names[kind <= HALAY_STEP_GROUP ? kind : 0];
}

static void put_wait(const halay_record_wait_t *w, char *text, size_t bytes)
{
    put(text, bytes, "; %u of %u steps done", w->ndone, w->nsteps);
    if (w->nsegments > 1)
        put(text, bytes, " of segment %u of %u", w->segment + 1, w->nsegments);
    for (uint32_t i = 0; i < w->nedges && i < 4; i++) {
        put(text, bytes, "%s step %u %s", i ? "," : "; waits in", w->edges[i].step,
            kind_text(w->edges[i].kind));
        if (w->edges[i].peer >= 0)
            put(text, bytes, " rank %d", w->edges[i].peer);
    }
    if (w->nedges > 4)
        put(text, bytes, ", ...");
}

/* Between two sleeps a thread looks around: some milliseconds, four times a second. */
static int is_of_now(const hly_flight_t *f, const halay_record_stack_t *s, uint64_t now_ns)
{
    return s->taken_ns + f->head.epoch_ns + 1000000000u > now_ns;
}

static int waits_now(const hly_flight_t *f, uint64_t now_ns)
{
    int waits = f->head.sleeping != 0;
    for (uint32_t i = 0; i < f->nstacks; i++)
        waits |= is_of_now(f, &f->stacks[i], now_ns);
    return waits;
}

static void put_agreement(const hly_flight_t *f, const halay_record_agreement_t *a, uint64_t now_ns,
                          char *text, size_t bytes)
{
    put(text, bytes, "in halay_comm_%s", a->what == HALAY_RECORD_AGREE ? "agree" : "shrink");
    put_since(f, a->began_ns, now_ns, text, bytes);
    for (uint32_t i = 0; i < a->nawaited; i++)
        put(text, bytes, "%s %d", i ? "," : "; waits for rank", a->awaited[i]);
    if (a->nawaited == HALAY_RECORD_AWAITED)
        put(text, bytes, ", ...");
}

/* "MPI_Recv: recv(source 0, tag 99, 4 bytes)" */
static void put_message(const hly_flight_t *f, const halay_record_place_t *p, uint64_t now_ns,
                        char *text, size_t bytes)
{
    const int sends = p->in == HALAY_RECORD_IN_SEND;
    const char *verb = sends ? "send" : p->in == HALAY_RECORD_IN_PROBE ? "probe" : "recv";
    const size_t length = strnlen(p->name, sizeof p->name), end = strlen(verb);
    if (length >= end && !strncasecmp(p->name + length - end, verb, end))
        put(text, bytes, "in %.*s(%s ", (int)length, p->name, sends ? "dest" : "source");
    else
        put(text, bytes, "in %.*s%s%s(%s ", (int)length, p->name, length ? ": " : "", verb,
            sends ? "dest" : "source");
    put(text, bytes, p->rank < 0 ? "any" : "%d", p->rank);
    put(text, bytes, p->tag < 0 ? ", tag any" : ", tag %d", p->tag);
    if (p->in != HALAY_RECORD_IN_PROBE)
        put(text, bytes, ", %llu bytes", (unsigned long long)p->bytes);
    put(text, bytes, ")");
    put_since(f, p->began_ns, now_ns, text, bytes);
    put(text, bytes, p->peer < 0 ? "; waits for any rank" : "; waits for rank %d", p->peer);
}

/* Is it in several communicators that the program has made? Those of two ranks that messages make
 * are none. */
static int has_several(const hly_flight_t *f)
{
    uint64_t first = 0;
    for (uint32_t i = 0; i < f->ncomms; i++) {
        uint32_t k = 0;
        while (k < f->ncalls &&
               (f->calls[k].comm != f->comms[i].id || !(f->calls[k].flags & HALAY_RECORD_PAIR)))
            k++;
        if (k < f->ncalls)
            continue;
        if (first && f->comms[i].id != first)
            return 1;
        first = f->comms[i].id;
    }
    return 0;
}

/* "call 5"; of which communicator, where there are several. */
static void put_number(const hly_flight_t *f, const halay_record_call_t *call, char *text,
                       size_t bytes)
{
    put(text, bytes, "call %u", call->sequence);
    if (!(call->flags & HALAY_RECORD_PAIR) && has_several(f))
        put(text, bytes, " of communicator %016llx", (unsigned long long)call->comm);
}

static void put_place(const hly_flight_t *f, const hly_standing_t *s, uint64_t now_ns, char *text,
                      size_t bytes)
{
    char call[96] = "";
    if (s->call)
        hly_flight_call_text(f, s->call, call, sizeof call);
    switch (s->where) {
    case HLY_BEFORE_INIT:
        put(text, bytes, "has not called halay_init()");
        return;
    case HLY_IN_INIT:
        put(text, bytes, "in halay_init()");
        if (f->here && !f->head.ended) /* else nobody knows until when */
            put_since(f, f->head.began_ns, now_ns, text, bytes);
        return;
    case HLY_NO_INIT:
        put(text, bytes, "its halay_init() has failed");
        return;
    case HLY_IN_AGREEMENT:
        put_agreement(f, s->agreement, now_ns, text, bytes);
        return;
    case HLY_IN_MESSAGE:
        put_message(f, s->place, now_ns, text, bytes);
        return;
    case HLY_IN_CALL:
    case HLY_IN_FAILED:
        put(text, bytes, "in ");
        if (s->place && s->where == HLY_IN_CALL && s->place->name[0] &&
            s->place->call == s->call->stamp / 2)
            put(text, bytes, "%.*s, ", (int)sizeof s->place->name, s->place->name);
        put_number(f, s->call, text, bytes);
        put(text, bytes, ", %s%s", call, s->where == HLY_IN_FAILED ? ", which failed" : "");
        if (s->where == HLY_IN_CALL)
            put_since(f, s->call->started_ns, now_ns, text, bytes);
        if (s->wait)
            put_wait(s->wait, text, bytes);
        if (s->where == HLY_IN_CALL && !waits_now(f, now_ns) && f->process && f->process != 'X' &&
            f->process != 'Z')
            put(text, bytes, "; no thread of it waits for that now");
        return;
    default:
        put(text, bytes, s->where == HLY_LEFT ? "has finalized" : "in the program's code");
        if (s->call && s->where != HLY_LEFT)
            put_since(f, s->call->ended_ns, now_ns, text, bytes);
        put(text, bytes, s->call ? ", after " : "; it has made no call");
        if (s->call) {
            put_number(f, s->call, text, bytes);
            put(text, bytes, ", %s", call);
        }
    }
}

void hly_flight_stack_text(const hly_flight_t *f, uint32_t stack, uint64_t now_ns, char *text,
                           size_t bytes)
{
    const halay_record_stack_t *s = &f->stacks[stack];
    const char *line = s->text;
    hly_standing_t stands;
    hly_flight_stand(f, &stands);
    text[0] = '\0';
    if ((s->over && !is_of_now(f, s, now_ns)) ||
        (stands.where != HLY_IN_CALL && stands.where != HLY_IN_FAILED &&
         stands.where != HLY_IN_MESSAGE) ||
        !*line)
        return;
    if (s->thread == f->head.pid)
        put(text, bytes, "  from");
    else
        put(text, bytes, "  thread %d, from", s->thread);
    for (const char *end; *line && (end = strchr(line, '\n')); line = end + 1)
        put(text, bytes, "%s %.*s", line == s->text ? "" : ", from", (int)(end - line), line);
}

void hly_flight_text(const hly_flight_t *f, uint64_t now_ns, char *text, size_t bytes)
{
    char process[48];
    hly_standing_t s;
    hly_flight_stand(f, &s);
    hly_flight_process_text(f, process, sizeof process);
    snprintf(text, bytes, "%s%s", process, process[0] ? ", " : "");
    put_place(f, &s, now_ns, text, bytes);
}
