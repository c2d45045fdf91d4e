/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pair.c - messages between two ranks: who is reached, how fast it is. Every call has a deadline,
 * and one that fails harms no other pair.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "doctor.h"

#define LATENCY_CALLS 1000
#define LATENCY_WARM  10
#define LATENCY_NS    200000000ull
#define STREAM_NS     200000000ull
#define STREAM_BYTES  (1u << 20)
#define STREAM_AHEAD  4 /* messages under way */
#define STREAM_ROUNDS 64
#define MEASURING     4 /* deadlines: the pair was reached before, and may be slow */

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

int hly_say(const struct hly_table *table, int rank, const void *message, size_t bytes,
            int deadlines)
{
    halay_comm_set_deadline(table->world, table->deadline_ns * (uint64_t)deadlines);
    return halay_send(message, bytes, HALAY_UINT8, rank, table->world);
}

halay_request_t *hly_hear_later(const struct hly_table *table, int rank, void *message,
                                size_t bytes, int deadlines)
{
    halay_request_t *request;
    halay_comm_set_deadline(table->world, table->deadline_ns * (uint64_t)deadlines);
    int rc = halay_irecv(message, bytes, HALAY_UINT8, rank, table->world, &request);
    return rc ? NULL : request;
}

int hly_hear(const struct hly_table *table, int rank, void *message, size_t bytes, int deadlines)
{
    halay_request_t *request = hly_hear_later(table, rank, message, bytes, deadlines);
    return request ? halay_request_wait(request) : HALAY_ENOMEM;
}

/* The verdict's first sentence is the evidence; what follows is advice for programs. */
void hly_reason(const struct hly_table *table, int rank, int code, char *text, size_t bytes)
{
    halay_verdict_t v = {.size = sizeof v};
    bool known = !halay_comm_verdict(table->world, &v) && v.code == code && v.rank == rank;
    const char *end = known ? strstr(v.text, ". ") : NULL;
    if (known)
        snprintf(text, bytes, "%.*s", end ? (int)(end - v.text) : (int)strlen(v.text), v.text);
    else
        snprintf(text, bytes, "%s", halay_strerror(code));
}

/* ---------------------------------------------------------------- who is reached */

struct hail {
    halay_request_t *in, *out;
    uint64_t heard, said;
};

static int wait_if(halay_request_t *request)
{
    return request ? halay_request_wait(request) : HALAY_ENOMEM;
}

int hly_reach(const struct hly_table *table, struct hly_cell *row)
{
    struct hail *hails = calloc((size_t)table->n, sizeof *hails);
    if (!hails)
        return HALAY_ENOMEM;
    for (int s = 0; s < table->n; s++) {
        struct hail *h = &hails[s];
        int rank = table->ranks[s];
        h->said = (uint64_t)table->seat << 32 | (uint32_t)s;
        if (s == table->seat)
            continue;
        h->in = hly_hear_later(table, rank, &h->heard, sizeof h->heard, 1);
        if (halay_isend(&h->said, sizeof h->said, HALAY_UINT8, rank, table->world, &h->out))
            h->out = NULL;
    }
    for (int s = 0; s < table->n; s++) {
        struct hail *h = &hails[s];
        struct hly_cell *cell = &row[s];
        *cell = (struct hly_cell){.code = HALAY_OK};
        if (s == table->seat)
            continue;
        int in = wait_if(h->in), out = wait_if(h->out);
        cell->code = in ? in : out;
        if (cell->code) {
            hly_reason(table, table->ranks[s], cell->code, cell->reason, sizeof cell->reason);
        } else if (h->heard != ((uint64_t)s << 32 | (uint32_t)table->seat)) {
            cell->code = HALAY_EINTERNAL;
            snprintf(cell->reason, sizeof cell->reason, "wrong bytes arrived");
        }
    }
    free(hails);
    return HALAY_OK;
}

/* ---------------------------------------------------------------- how fast it is */

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* The leader says in each message whether another one follows. */
static int ping(const struct hly_table *table, int rank, double *us)
{
    static const size_t most = LATENCY_CALLS + LATENCY_WARM;
    uint64_t *took = calloc(most, sizeof *took), more = 1, back, start = now_ns();
    size_t n = 0;
    int rc = took ? HALAY_OK : HALAY_ENOMEM;
    while (!rc && more) {
        uint64_t from = now_ns();
        more = n + 1 < most && (n < 2 * LATENCY_WARM || from - start < LATENCY_NS);
        rc = hly_say(table, rank, &more, sizeof more, MEASURING);
        rc = rc ? rc : hly_hear(table, rank, &back, sizeof back, MEASURING);
        took[n++] = now_ns() - from;
    }
    if (!rc) {
        qsort(took + LATENCY_WARM, n - LATENCY_WARM, sizeof *took, compare);
        size_t middle = LATENCY_WARM + (n - LATENCY_WARM) / 2;
        *us = (double)took[middle] / 2e3;
    }
    free(took);
    return rc;
}

static int pong(const struct hly_table *table, int rank)
{
    uint64_t more = 1;
    int rc = HALAY_OK;
    while (!rc && more) {
        rc = hly_hear(table, rank, &more, sizeof more, MEASURING);
        rc = rc ? rc : hly_say(table, rank, &more, sizeof more, MEASURING);
    }
    return rc;
}

/* `count` messages at once. */
static int burst(const struct hly_table *table, int rank, char *room, uint64_t count, bool sends)
{
    halay_request_t *request[STREAM_AHEAD];
    int rc = HALAY_OK;
    uint64_t made = 0;
    while (made < count && !rc) {
        char *at = room + made * STREAM_BYTES;
        rc = sends ? halay_isend(at, STREAM_BYTES, HALAY_UINT8, rank, table->world, &request[made])
                   : halay_irecv(at, STREAM_BYTES, HALAY_UINT8, rank, table->world, &request[made]);
        made += !rc;
    }
    for (uint64_t i = 0; i < made; i++) {
        int failed = halay_request_wait(request[i]);
        rc = rc ? rc : failed;
    }
    return rc;
}

/*
 * Bursts, each announced by how many messages it has, and answered. The first is one message, which
 * counts only if it took so long that it is enough.
 */
static int stream_out(const struct hly_table *table, int rank, char *room, double *mbs)
{
    uint64_t count = 1, answer, spent = 0, bytes = 0;
    int rc = HALAY_OK;
    for (int round = 0; !rc && count; round++) {
        if (round == 1 && spent < STREAM_NS)
            spent = bytes = 0;
        if (round)
            count = round <= STREAM_ROUNDS && spent < STREAM_NS ? STREAM_AHEAD : 0;
        rc = hly_say(table, rank, &count, sizeof count, MEASURING);
        uint64_t from = now_ns();
        if (!rc && count)
            rc = burst(table, rank, room, count, true);
        if (!rc && count)
            rc = hly_hear(table, rank, &answer, sizeof answer, MEASURING);
        spent += count ? now_ns() - from : 0;
        bytes += count * STREAM_BYTES;
    }
    if (!rc)
        *mbs = (double)bytes * 1e3 / (double)spent;
    return rc;
}

static int stream_in(const struct hly_table *table, int rank, char *room)
{
    uint64_t count = 1;
    int rc = HALAY_OK;
    while (!rc && count) {
        rc = hly_hear(table, rank, &count, sizeof count, MEASURING);
        if (!rc && count > STREAM_AHEAD)
            rc = HALAY_EINTERNAL;
        if (!rc && count)
            rc = burst(table, rank, room, count, false);
        if (!rc && count)
            rc = hly_say(table, rank, &count, sizeof count, MEASURING);
    }
    return rc;
}

void hly_measure(const struct hly_table *table, int seat, bool leads, struct hly_cell *cell)
{
    int rank = table->ranks[seat];
    char *room = calloc(STREAM_AHEAD, STREAM_BYTES);
    *cell = (struct hly_cell){.code = HALAY_OK};
    int rc = room ? HALAY_OK : HALAY_ENOMEM;
    if (!rc)
        rc = leads ? ping(table, rank, &cell->latency_us) : pong(table, rank);
    for (int turn = 0; turn < 2 && !rc; turn++)
        rc = (turn == 0) == leads ? stream_out(table, rank, room, &cell->bandwidth_mbs)
                                  : stream_in(table, rank, room);
    free(room);
    cell->code = rc;
    if (rc)
        hly_reason(table, rank, rc, cell->reason, sizeof cell->reason);
}

int hly_partner(int n, int round, int seat)
{
    int even = n + n % 2, odd = even - 1, partner;
    if (seat == odd)
        partner = round * (even / 2) % odd; /* twice that is `round`, modulo an odd number */
    else
        partner = ((round - seat) % odd + odd) % odd;
    if (partner == seat)
        partner = odd;
    return partner < n ? partner : -1;
}
