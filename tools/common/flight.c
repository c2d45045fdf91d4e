/* SPDX-License-Identifier: Apache-2.0 */
/* flight.c - reads a flight record: each number in it is checked before it counts or names
 * anything. */
#define _GNU_SOURCE
#include "flight.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <halay/plan.h>

#include "../../common/proc.h"

#define RANKS_MAX (1 << 24)

/* ---------------------------------------------------------------- the head */

static const char *wrong_head(const halay_record_head_t *h)
{
    if (h->magic != HALAY_RECORD_MAGIC)
        return "it is no flight record";
    if (h->version != HALAY_RECORD_VERSION)
        return "it is of another version of Halay";
    if (h->bytes != HALAY_RECORD_BYTES || h->head_bytes != sizeof *h ||
        h->ncomms != HALAY_RECORD_COMMS || h->comm_bytes != sizeof(halay_record_comm_t) ||
        h->nverdicts != HALAY_RECORD_VERDICTS ||
        h->verdict_bytes != sizeof(halay_record_verdict_t) || h->nwaits != HALAY_RECORD_WAITS ||
        h->wait_bytes != sizeof(halay_record_wait_t) || h->ncalls != HALAY_RECORD_CALLS ||
        h->call_bytes != sizeof(halay_record_call_t) || h->nstacks != HALAY_RECORD_STACKS ||
        h->stack_bytes != sizeof(halay_record_stack_t))
        return "its sizes are not those of its version";
    if (h->rank < -1 || h->nranks < 0 || h->nranks > RANKS_MAX ||
        (h->nranks ? h->rank >= h->nranks : h->rank != -1) || h->pid < 0 || h->started < 0 ||
        h->state > HALAY_RECORD_NO_INIT)
        return "its head makes no sense";
    return NULL;
}

/* What goes to a terminal. */
static void make_printable(char *text, size_t bytes)
{
    text[bytes - 1] = '\0';
    for (; *text; text++)
        if (*text != '\n' && ((unsigned char)*text < 32 || *text == 127))
            *text = '?';
}

/* ---------------------------------------------------------------- slots */

static int is_comm(const halay_record_comm_t *c)
{
    return c->nranks > 0 && c->nranks <= RANKS_MAX && c->rank >= 0 && c->rank < c->nranks &&
           c->first >= 0 && c->first < RANKS_MAX && c->stride > -RANKS_MAX && c->stride < RANKS_MAX;
}

static int is_verdict(halay_record_verdict_t *v)
{
    make_printable(v->text, sizeof v->text);
    return v->code < 0 && v->rank >= -1 && v->rank < RANKS_MAX && v->other >= -1 &&
           v->other < RANKS_MAX;
}

static int is_stack(halay_record_stack_t *s)
{
    make_printable(s->text, sizeof s->text);
    return s->thread > 0;
}

static int is_edge(const halay_record_edge_t *e, uint32_t nsteps)
{
    return e->step < nsteps && e->kind >= HALAY_STEP_SEND && e->kind <= HALAY_STEP_GROUP &&
           e->peer >= -1 && e->peer < RANKS_MAX &&
           (e->rank == HALAY_STEP_NONE || e->rank < RANKS_MAX);
}

static int is_wait(const halay_record_wait_t *w)
{
    int right = w->nsteps <= HALAY_PLAN_STEPS_MAX && w->ndone <= w->nsteps && w->nsegments > 0 &&
                w->segment < w->nsegments && w->in_place <= 1 && w->root < RANKS_MAX &&
                w->nedges <= HALAY_RECORD_EDGES;
    for (uint32_t i = 0; right && i < w->nedges; i++)
        right = is_edge(&w->edges[i], w->nsteps);
    return right;
}

static int is_call(const halay_record_call_t *c)
{
    return (c->what & 31) < HALAY_COLLECTIVE_COUNT && c->state >= HALAY_RECORD_POSTED &&
           c->state <= HALAY_RECORD_FAILED;
}

static int is_agreement(const halay_record_agreement_t *a)
{
    int right = (a->what == HALAY_RECORD_AGREE || a->what == HALAY_RECORD_SHRINK) &&
                a->nawaited <= HALAY_RECORD_AWAITED;
    for (uint32_t i = 0; right && i < a->nawaited; i++)
        right = a->awaited[i] >= 0 && a->awaited[i] < RANKS_MAX;
    return right;
}

static int is_wait_of_program(halay_record_place_t *p)
{
    char name[sizeof p->name + 1] = "";
    memcpy(name, p->name, sizeof p->name);
    make_printable(name, sizeof name);
    memcpy(p->name, name, sizeof p->name);
    return p->in >= HALAY_RECORD_IN_CALL && p->in <= HALAY_RECORD_IN_SEND && p->peer >= -1 &&
           p->peer < RANKS_MAX && p->rank >= -1 && p->rank < RANKS_MAX && p->tag >= -1;
}

static int by_stamp(const void *a, const void *b)
{
    uint64_t left, right;
    memcpy(&left, a, sizeof left);
    memcpy(&right, b, sizeof right);
    return left < right ? -1 : left > right;
}

/* Does the slot with this number stand where it has to? */
static int is_place(const void *slot, uint32_t index, uint32_t n)
{
    uint64_t stamp;
    memcpy(&stamp, slot, sizeof stamp);
    return stamp / 2 % n == index;
}

/* Copies what is whole in a table of n slots, and sorts it; wait slots are placed by their calls.
 */
#define TAKE(flight, record, table, count, total, right, place)                                    \
    do {                                                                                           \
        for (uint32_t i = 0; i < (total); i++) {                                                   \
            const void *slot = &(record)->table[i];                                                \
            uint64_t stamp = __atomic_load_n((const uint64_t *)slot, __ATOMIC_RELAXED);            \
            const int whole =                                                                      \
                halay_record_copy(slot, &(flight)->table[(flight)->count],                         \
                                  sizeof(flight)->table[0]) &&                                     \
                right(&(flight)->table[(flight)->count]) &&                                        \
                (!(place) || is_place(&(flight)->table[(flight)->count], i, (total)));             \
            (flight)->count += (uint32_t)whole;                                                    \
            (flight)->torn += !whole && stamp;                                                     \
        }                                                                                          \
        qsort((flight)->table, (flight)->count, sizeof(flight)->table[0], by_stamp);               \
    } while (0)

int hly_flight_read(const void *memory, size_t bytes, hly_flight_t *flight, const char **why)
{
    const halay_record_t *record = memory;
    *why = "it is not as long as one";
    if (bytes != HALAY_RECORD_BYTES)
        return -1;
    memset(flight, 0, sizeof *flight);
    uint64_t *to = (uint64_t *)&flight->head;
    for (size_t i = 0; i < sizeof flight->head / sizeof *to; i++)
        to[i] = __atomic_load_n((const uint64_t *)memory + i, __ATOMIC_ACQUIRE);
    *why = wrong_head(&flight->head);
    if (*why)
        return -1;
    if (!flight->head.pid)
        flight->head.pid = flight->head.started;
    make_printable(flight->head.job, sizeof flight->head.job);
    make_printable(flight->head.host, sizeof flight->head.host);
    for (uint32_t i = 0; i < HALAY_RECORD_AGREEMENTS; i++) {
        halay_record_agreement_t *a = &flight->head.agreements[i];
        if (!halay_record_copy(&record->head.agreements[i], a, sizeof *a) || !is_agreement(a))
            *a = (halay_record_agreement_t){0};
    }
    for (uint32_t i = 0; i < HALAY_RECORD_PLACES; i++) {
        halay_record_place_t *p = &flight->head.places[i];
        if (!halay_record_copy(&record->head.places[i], p, sizeof *p) || !is_wait_of_program(p))
            *p = (halay_record_place_t){0};
    }
    TAKE(flight, record, comms, ncomms, HALAY_RECORD_COMMS, is_comm, 1);
    TAKE(flight, record, verdicts, nverdicts, HALAY_RECORD_VERDICTS, is_verdict, 1);
    TAKE(flight, record, waits, nwaits, HALAY_RECORD_WAITS, is_wait, 0);
    TAKE(flight, &record->head, stacks, nstacks, HALAY_RECORD_STACKS, is_stack, 0);
    TAKE(flight, record, calls, ncalls, HALAY_RECORD_CALLS, is_call, 1);
    return 0;
}

int hly_flight_read_file(const char *path, hly_flight_t *flight)
{
    const char *why = strerror(ENOMEM);
    int rc = -1;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    char *memory = malloc(HALAY_RECORD_BYTES + 1);
    if (fd < 0) {
        why = strerror(errno);
    } else if (memory) {
        ssize_t n = read(fd, memory, HALAY_RECORD_BYTES + 1);
        if (n < 0)
            why = strerror(errno);
        else
            rc = hly_flight_read(memory, (size_t)n, flight, &why);
    }
    if (rc)
        fprintf(stderr, "%s: %s\n", path, why);
    if (fd >= 0)
        close(fd);
    free(memory);
    return rc;
}

/* ---------------------------------------------------------------- those of a job */

int hly_flights_add(hly_flights_t *flights, hly_flight_t *flight)
{
    hly_flight_t **grown = realloc(flights->list, (flights->n + 1) * sizeof *grown);
    if (!grown) {
        free(flight);
        return -1;
    }
    flights->list = grown;
    grown[flights->n++] = flight;
    return 0;
}

static int by_rank(const void *a, const void *b)
{
    const halay_record_head_t *left = &(*(hly_flight_t *const *)a)->head,
                              *right = &(*(hly_flight_t *const *)b)->head;
    const int jobs = strcmp(left->job, right->job);
    return jobs ? jobs : (left->rank > right->rank) - (left->rank < right->rank);
}

void hly_flights_sort(hly_flights_t *flights)
{
    if (flights->n)
        qsort(flights->list, flights->n, sizeof *flights->list, by_rank);
}

void hly_flights_free(hly_flights_t *flights)
{
    for (uint32_t i = 0; i < flights->n; i++)
        free(flights->list[i]);
    free(flights->list);
    *flights = (hly_flights_t){0};
}

int hly_flight_process(int pid)
{
    struct hly_proc_stat seen;
    return hly_proc_stat(pid, &seen) ? seen.state : 'X';
}

int hly_flight_is_stopped(int pid)
{
    const int state = hly_flight_process(pid);
    return state == 'T' || state == 't';
}
