/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Send and receive between two ranks: order, many in flight, both directions at once; and what does
 * not fit, does not come or has died: the same error on both sides, with the ranks that the program
 * knows.
 */
#include <pthread.h>
#include <string.h>
#include <time.h>

#include "ranks.h"

#define MESSAGES 1000
#define MOST     700 /* elements */
#define SOON_NS  5000000000ull
#define MANY_NS  100000000000ull /* thousands of turns over two slots, beside other programs */

struct board {
    pthread_barrier_t barrier;
    int code[RANKS_MAX];
    halay_verdict_t verdict[RANKS_MAX];
};

static void good(int rc, const char *what)
{
    CHECK(rc == 0, "%s: %s", what, halay_strerror(rc));
}

static size_t count_of(int i)
{
    static const size_t counts[] = {1, 0, 3, MOST, 17};
    return counts[i % 5];
}

/* Thousands in flight between each pair of ranks that are next to each other, both ways. */
static void many(struct rank *r)
{
    int next = (r->rank + 1) % r->nranks, before = (r->rank + r->nranks - 1) % r->nranks;
    halay_request_t *(*request)[4] = calloc(MESSAGES, sizeof(*request));
    int32_t(*data)[4][MOST] = calloc(MESSAGES, sizeof(*data));
    CHECK(request && data, "no memory");
    for (int i = 0; i < MESSAGES; i++) {
        size_t n = count_of(i);
        for (size_t k = 0; k < n; k++)
            data[i][0][k] = data[i][1][k] = r->rank * 1000000 + i * 1000 + (int)k;
        good(halay_isend(data[i][0], n, HALAY_INT32, next, r->world, &request[i][0]), "isend");
        good(halay_irecv(data[i][2], n, HALAY_INT32, next, r->world, &request[i][1]), "irecv");
        good(halay_irecv(data[i][3], n, HALAY_INT32, before, r->world, &request[i][2]), "irecv");
        good(halay_isend(data[i][1], n, HALAY_INT32, before, r->world, &request[i][3]), "isend");
    }
    halay_comm_t *copy;
    good(halay_comm_dup(r->world, &copy), "dup"); /* of the ranks, not of the messages */
    good(halay_comm_free(copy), "free");
    for (int i = 0; i < MESSAGES; i++)
        for (int k = 0; k < 4; k++)
            good(halay_request_wait(request[(i * 7) % MESSAGES][k]), "wait");
    for (int i = 0; i < MESSAGES; i++)
        for (size_t k = 0; k < count_of(i); k++)
            CHECK(data[i][2][k] == next * 1000000 + i * 1000 + (int)k &&
                      data[i][3][k] == before * 1000000 + i * 1000 + (int)k,
                  "message %d, element %zu", i, k);
    free(data);
    free(request);
}

/* Messages and collectives do not meet; a communicator in use is not freed. */
static void beside(struct rank *r)
{
    int32_t mine = r->rank, got = -1, sum = 0;
    halay_comm_t *comm;
    halay_request_t *request;
    good(halay_comm_split(r->world, 0, -r->rank, &comm), "split"); /* backwards */
    int me = r->nranks - 1 - r->rank;
    good(halay_irecv(&got, 1, HALAY_INT32, (me + 1) % r->nranks, comm, &request), "irecv");
    CHECK(halay_comm_free(comm) == HALAY_ESTATE, "freed with a message in flight");
    good(halay_allreduce(&mine, &sum, 1, HALAY_INT32, HALAY_SUM, comm), "allreduce");
    good(halay_send(&mine, 1, HALAY_INT32, (me + r->nranks - 1) % r->nranks, comm), "send");
    good(halay_request_wait(request), "wait");
    CHECK(got == (r->rank + r->nranks - 1) % r->nranks, "rank %d got %d", r->rank, got);
    good(halay_comm_free(comm), "free");
    CHECK(halay_send(&mine, 1, HALAY_INT32, r->rank, r->world) == HALAY_EINVAL, "to itself");
    CHECK(halay_send(&mine, 1, HALAY_INT32, r->nranks, r->world) == HALAY_EINVAL, "no such rank");
    CHECK(halay_recv(&got, 1, HALAY_INT32, -1, r->world) == HALAY_EINVAL, "no such rank");
}

/* ---------------------------------------------------------------- wrong calls */

enum mistake { COUNT, TYPE, NULL_BUFFER, IN_PLACE, NO_TYPE, NEGATIVE, FREED, LARGE, MISTAKES };

static void compare(struct rank *r, int from, int to, int wrong, enum mistake m)
{
    struct board *b = r->arg;
    const halay_verdict_t *v = &b->verdict[from], *w = &b->verdict[to];
    char side[2][32];
    snprintf(side[0], sizeof(side[0]), "to rank %d", to);
    snprintf(side[1], sizeof(side[1]), "from rank %d", from);
    CHECK(b->code[from] < 0 && b->code[from] != HALAY_ETIMEOUT && b->code[from] == b->code[to],
          "mistake %d: %s and %s", m, halay_strerror(b->code[from]), halay_strerror(b->code[to]));
    CHECK(!strcmp(v->text, w->text) && v->code == b->code[from], "mistake %d:\n %s\n %s", m,
          v->text, w->text);
    CHECK(v->rank == w->rank && (v->rank == wrong || v->other == wrong), "blames %d and %d: %s",
          v->rank, v->other, v->text);
    CHECK(strstr(v->text, side[0]) && strstr(v->text, side[1]) && !strstr(v->text, "broadcast"),
          "mistake %d from %d to %d: %s", m, from, to, v->text);
}

static void wrong_call(struct rank *r, int from, int to, int wrong, enum mistake m)
{
    struct board *b = r->arg;
    int32_t data[64] = {0};
    void *at = data;
    size_t count = 4;
    halay_type_t type = HALAY_INT32;
    halay_comm_t *comm;
    good(halay_comm_dup(r->world, &comm), "dup");
    bool mine = r->rank == wrong;
    count = mine && m == COUNT ? 5 : mine && m == NEGATIVE ? (size_t)-3 : count;
    count = m == LARGE ? (mine ? 2 : 64) : count;
    type = mine && m == TYPE ? HALAY_FLOAT32 : mine && m == NO_TYPE ? (halay_type_t)77 : type;
    at = mine && m == NULL_BUFFER ? NULL : at;
    at = mine && m == IN_PLACE ? (void *)(uintptr_t)HALAY_IN_PLACE : at;
    if (mine && m == FREED)
        good(halay_comm_free(comm), "free");
    uint64_t start = ranks_now_ns();
    if (r->rank == from)
        b->code[from] = halay_send(at, count, type, to, comm);
    if (r->rank == to)
        b->code[to] = halay_recv(at, count, type, from, comm);
    CHECK(ranks_now_ns() - start < SOON_NS, "mistake %d: rank %d waited", m, r->rank);
    b->verdict[r->rank].size = sizeof(halay_verdict_t);
    good(halay_comm_verdict(comm, &b->verdict[r->rank]), "verdict");
    pthread_barrier_wait(&b->barrier);
    if (r->rank == 0)
        compare(r, from, to, wrong, m);
    pthread_barrier_wait(&b->barrier);
    if (m == FREED) {
        if (!mine)
            good(halay_comm_free(comm), "free");
        return;
    }
    data[0] = r->rank == from ? 77 : 0; /* the next message is not spoilt */
    if (r->rank == from)
        good(halay_send(data, 64, HALAY_INT32, to, comm), "send");
    if (r->rank == to)
        good(halay_recv(data, 64, HALAY_INT32, from, comm), "recv");
    CHECK(r->rank != to || data[0] == 77, "the message after the wrong one");
    good(halay_barrier(comm), "barrier");
    good(halay_comm_free(comm), "free");
}

static void all(struct rank *r)
{
    many(r);
    beside(r);
    for (int from = 0; from < r->nranks; from++)
        for (int k = 0; k < 2 * MISTAKES; k++) {
            int to = (from + 1 + k % (r->nranks - 1)) % r->nranks;
            wrong_call(r, from, to, k % 2 ? from : to, (enum mistake)(k / 2));
        }
}

/* ---------------------------------------------------------------- who does not come */

static void nap(uint64_t ns)
{
    struct timespec ts = {(time_t)(ns / 1000000000ull), (long)(ns % 1000000000ull)};
    nanosleep(&ts, NULL);
}

static void expect(struct rank *r, int rc, int code, int rank, const char *words)
{
    halay_verdict_t v = {.size = sizeof(v)};
    good(halay_comm_verdict(r->world, &v), "verdict");
    CHECK(rc == code && v.code == code, "rank %d got %s: %s", r->rank, halay_strerror(rc), v.text);
    CHECK(v.rank == rank && strstr(v.text, words), "rank %d: not \"%s\" and rank %d in: %s",
          r->rank, words, rank, v.text);
}

/* Rank 2 never receives, or far too late; rank 3's message never comes. Rank 0 goes on. */
static void absent(struct rank *r)
{
    struct board *b = r->arg;
    static const uint64_t deadline = 700000000ull;
    int32_t data[500] = {0};
    size_t n = r->rank ? 500 : 1;
    good(halay_comm_set_deadline(r->world, deadline), "deadline");
    uint64_t start = ranks_now_ns();
    if (r->rank == 1)
        expect(r, halay_send(data, n, HALAY_INT32, 2, r->world), HALAY_ETIMEOUT, 2,
               "send of 500 int32 to rank 2");
    if (r->rank == 0)
        expect(r, halay_recv(data, n, HALAY_INT32, 3, r->world), HALAY_ETIMEOUT, 3,
               "receive of 1 int32 from rank 3");
    CHECK(ranks_now_ns() - start < deadline + SOON_NS, "rank %d waited on", r->rank);
    pthread_barrier_wait(&b->barrier);
    if (r->rank == 2)
        expect(r, halay_recv(data, n, HALAY_INT32, 1, r->world), HALAY_ETIMEOUT, 2,
               "send of 500 int32 to rank 2");
    good(halay_comm_set_deadline(r->world, 20000000000ull), "deadline");
    good(halay_barrier(r->world), "the communicator itself is not broken");
}

/* Two that send to each other first: who finds it out says what to do. */
static void both_send(struct rank *r)
{
    struct board *b = r->arg;
    int32_t x = 1;
    halay_verdict_t *v = &b->verdict[r->rank];
    v->size = sizeof(*v);
    good(halay_comm_set_deadline(r->world, 700000000ull), "deadline");
    b->code[r->rank] = halay_send(&x, 1, HALAY_INT32, 1 - r->rank, r->world);
    good(halay_comm_verdict(r->world, v), "verdict");
    pthread_barrier_wait(&b->barrier);
    CHECK(b->code[0] == HALAY_ETIMEOUT || b->code[1] == HALAY_ETIMEOUT, "%d, %d", b->code[0],
          b->code[1]);
    CHECK(strstr(b->verdict[0].text, "halay_isend") || strstr(b->verdict[1].text, "halay_isend"),
          "rank 0: %s\nrank 1: %s", b->verdict[0].text, b->verdict[1].text);
    good(halay_barrier(r->world), "the communicator itself is not broken");
}

/* Rank 1 dies: while it is sent to, while it is waited for, and before the first message. */
static void dies(struct rank *r)
{
    struct board *b = r->arg;
    int32_t data[500] = {0};
    good(halay_barrier(r->world), "barrier");
    uint64_t start = ranks_now_ns();
    if (r->rank == 1) {
        nap(30000000);
        halay_inproc_kill(r->hub, 1);
    }
    if (r->rank == 0)
        expect(r, halay_send(data, 500, HALAY_INT32, 1, r->world), HALAY_EPEER, 1, "rank 1 of 4");
    if (r->rank == 2)
        expect(r, halay_recv(data, 500, HALAY_INT32, 1, r->world), HALAY_EPEER, 1, "rank 1 of 4");
    if (r->rank == 0)
        expect(r, halay_recv(data, 1, HALAY_INT32, 1, r->world), HALAY_EPEER, 1, "rank 1 of 4");
    CHECK(ranks_now_ns() - start < SOON_NS, "rank %d waited", r->rank);
    pthread_barrier_wait(&b->barrier);
    if (r->rank == 2) /* the living go on */
        good(halay_send(data, 500, HALAY_INT32, 3, r->world), "send");
    if (r->rank == 3)
        good(halay_recv(data, 500, HALAY_INT32, 2, r->world), "recv");
    pthread_barrier_wait(&b->barrier);
    halay_finalize(r->context);
}

/* An argument: this number of ranks alone. */
int main(int argc, char **argv)
{
    const int only = argc > 1 ? atoi(argv[1]) : 0;
    static const int nodes[] = {0, 1, 0, 1, 2};
    static const halay_inproc_faults_t faults[] = {
        {.seed = 1, .queue_slots = 2},
        {.seed = 2, .reorder = 1, .delay_polls_max = 4, .late_put_polls = 3, .eager_bytes = 64},
        {.seed = 3,
         .queue_slots = 2,
         .hide_capabilities = HALAY_CAN_PUT | HALAY_CAN_LAND,
         .eager_bytes = 64,
         .piece_bytes = 128}};
    static void (*const fns[])(struct rank *) = {absent, dies};
    setenv("HALAY_DEBUG", "error", 1); /* the failures here are wanted */
    for (int f = 0; f < 4; f++)
        for (int n = only ? only : 2; n <= (only ? only : 5); n++) {
            struct board board;
            pthread_barrier_init(&board.barrier, NULL, (unsigned)n);
            struct ranks_options o = {.nranks = n,
                                      .shm = f == 3,
                                      .faults = &faults[f % 3],
                                      .node_of_rank = f % 2 ? nodes : NULL,
                                      .deadline_ns = MANY_NS};
            ranks_run(&o, all, &board);
            pthread_barrier_destroy(&board.barrier);
        }
    for (int i = 0; i < 8; i++) {
        struct board board;
        pthread_barrier_init(&board.barrier, NULL, 4);
        struct ranks_options o = {.nranks = 4, .faults = &faults[i / 2 % 3], .keep = i % 2};
        if (i >= 6) /* no broadcast's algorithm is a pair's */
            o.algorithm = "broadcast=dissemination_by_four";
        ranks_run(&o, fns[i % 2], &board);
        pthread_barrier_destroy(&board.barrier);
    }
    struct board board;
    struct ranks_options two = {.nranks = 2, .shm = true};
    pthread_barrier_init(&board.barrier, NULL, 2);
    ranks_run(&two, both_send, &board);
    pthread_barrier_destroy(&board.barrier);
    return 0;
}
