/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages with tags: drawn ones against what MPI's rules say of each, with receives of one source
 * and tag, of any source, of any tag; probes, taken messages, messages to itself; what does not
 * fit, is cancelled, does not come, or has no sender any more.
 */
#include <limits.h>
#include <pthread.h>
#include <string.h>

#include "ranks.h"

#define MOST_BYTES 70000
#define TAGS       4

struct drawn {
    int from, to, tag;
    size_t bytes;
    bool synchronous;
};

struct board {
    pthread_barrier_t barrier;
    struct drawn *drawn;
    int n;
    uint64_t seed;
};

static void good(int rc, const char *what)
{
    CHECK(rc == 0, "%s: %s", what, halay_strerror(rc));
}

static unsigned char byte_of(int message, size_t k)
{
    return (unsigned char)(message * 131 + (int)(k % 8191) * 7 + 3);
}

static void draw(struct board *b, int nranks)
{
    uint64_t state = b->seed;
    for (int i = 0; i < b->n; i++) {
        struct drawn *d = &b->drawn[i];
        static const size_t sizes[] = {0, 1, 8, 511, 513, 4000, 16384, 16385, MOST_BYTES};
        d->from = (int)(ranks_random(&state) % (uint64_t)nranks);
        d->to = (int)(ranks_random(&state) % (uint64_t)nranks);
        d->tag = (int)(ranks_random(&state) % TAGS);
        d->bytes = sizes[ranks_random(&state) % 9];
        d->synchronous = ranks_random(&state) % 4 == 0;
    }
}

/* ---------------------------------------------------------------- drawn messages */

enum { EXACT, ANY_TAG, ANY_SOURCE, ANY, WAYS };

struct posted {
    halay_request_t *request;
    int from, tag;
    unsigned char *buffer;
};

/* The message that a receive has got must be the next one that its sender has sent to this rank and
 * that no earlier receive of the same kind has got. */
static void check(const struct board *b, const struct rank *r, const struct posted *p,
                  const halay_envelope_t *e, bool *received)
{
    int is = -1;
    for (int i = 0; i < b->n && is < 0; i++)
        if (b->drawn[i].to == r->rank && b->drawn[i].from == e->source &&
            b->drawn[i].tag == e->tag && !received[i])
            is = i;
    CHECK(is >= 0, "rank %d got a message from %d with tag %d that nobody has sent", r->rank,
          e->source, e->tag);
    CHECK((p->from < 0 || p->from == e->source) && (p->tag < 0 || p->tag == e->tag),
          "rank %d wanted (%d, %d), got (%d, %d)", r->rank, p->from, p->tag, e->source, e->tag);
    for (int i = 0; p->tag < 0 && i < is; i++) /* any tag: nothing older of that sender is left */
        CHECK(b->drawn[i].to != r->rank || b->drawn[i].from != e->source || received[i],
              "rank %d got message %d of rank %d before %d", r->rank, is, e->source, i);
    CHECK(e->bytes == b->drawn[is].bytes, "%llu bytes, not %zu", (unsigned long long)e->bytes,
          b->drawn[is].bytes);
    for (size_t k = 0; k < e->bytes; k++)
        CHECK(p->buffer[k] == byte_of(is, k), "message %d, byte %zu", is, k);
    received[is] = true;
}

static void post(const struct board *b, struct rank *r, int way, struct posted *posted, int *n)
{
    *n = 0;
    for (int i = 0; i < b->n; i++) {
        const struct drawn *d = &b->drawn[i];
        if (d->to != r->rank)
            continue;
        struct posted *p = &posted[(*n)++];
        p->from = way == ANY_SOURCE || way == ANY ? HALAY_ANY_SOURCE : d->from;
        p->tag = way == ANY_TAG || way == ANY ? HALAY_ANY_TAG : d->tag;
        p->buffer = malloc(MOST_BYTES);
        CHECK(p->buffer, "no memory");
        good(halay_message_irecv(p->buffer, MOST_BYTES, HALAY_UINT8, p->from, p->tag, r->world,
                                 &p->request),
             "irecv");
    }
}

static void exchange(struct rank *r)
{
    const struct board *b = r->arg;
    uint64_t state = r->seed + b->seed;
    const int way = (int)((b->seed + (uint64_t)r->rank) % WAYS);
    const bool first = ranks_random(&state) % 2;
    struct posted *posted = calloc((size_t)b->n, sizeof(*posted));
    halay_request_t **sends = calloc((size_t)b->n, sizeof(*sends));
    unsigned char **data = calloc((size_t)b->n, sizeof(*data));
    bool *received = calloc((size_t)b->n, 1);
    int n = 0;
    CHECK(posted && sends && data && received, "no memory");
    if (first)
        post(b, r, way, posted, &n);
    for (int i = 0; i < b->n; i++) {
        const struct drawn *d = &b->drawn[i];
        if (d->from != r->rank)
            continue;
        data[i] = malloc(d->bytes + 1);
        CHECK(data[i], "no memory");
        for (size_t k = 0; k < d->bytes; k++)
            data[i][k] = byte_of(i, k);
        good(halay_message_isend(data[i], d->bytes, HALAY_UINT8, d->to, d->tag,
                                 d->synchronous ? HALAY_SEND_SYNCHRONOUS : HALAY_SEND_STANDARD,
                                 r->world, &sends[i]),
             "isend");
    }
    if (!first)
        post(b, r, way, posted, &n);
    int32_t one = 1, sum = 0; /* beside them */
    good(halay_allreduce(&one, &sum, 1, HALAY_INT32, HALAY_SUM, r->world), "allreduce");
    CHECK(sum == r->nranks, "sum %d", sum);
    for (int i = 0; i < n; i++) {
        halay_envelope_t e = {.size = sizeof(e)};
        good(halay_message_wait(posted[i].request, &e), "wait of a receive");
        check(b, r, &posted[i], &e, received);
        free(posted[i].buffer);
    }
    for (int i = 0; i < b->n; i++) {
        if (sends[i])
            good(halay_request_wait(sends[i]), "wait of a send");
        free(data[i]);
    }
    free(posted);
    free(sends);
    free(data);
    free(received);
    good(halay_barrier(r->world), "barrier");
}

/* ---------------------------------------------------------------- one by one */

/* Far more bytes than the window has, received in the opposite order. */
static void backwards(struct rank *r)
{
    enum { N = 340, BYTES = 8000 };
    static _Thread_local unsigned char out[N][BYTES], in[BYTES];
    halay_request_t *sends[N];
    halay_envelope_t e = {.size = sizeof(e)};
    const int next = (r->rank + 1) % r->nranks, before = (r->rank + r->nranks - 1) % r->nranks;
    for (int i = 0; i < N; i++) {
        memset(out[i], r->rank * 7 + i, BYTES);
        good(halay_message_isend(out[i], BYTES, HALAY_UINT8, next, i, HALAY_SEND_STANDARD, r->world,
                                 &sends[i]),
             "isend");
    }
    for (int i = N - 1; i >= 0; i--) {
        good(halay_message_recv(in, BYTES, HALAY_UINT8, before, i, r->world, &e), "recv");
        CHECK(in[0] == (unsigned char)(before * 7 + i) && in[BYTES - 1] == in[0], "message %d", i);
    }
    for (int i = 0; i < N; i++)
        good(halay_request_wait(sends[i]), "wait");
}

static void probes(struct rank *r)
{
    halay_envelope_t e = {.size = sizeof(e)};
    halay_message_t *message = NULL;
    halay_request_t *request, *send;
    int32_t data[5] = {1, 2, 3, 4, 5}, got[8] = {0};
    int found = 1;
    good(halay_message_probe(HALAY_ANY_SOURCE, 77, r->world, &found, &e), "probe");
    CHECK(!found, "nobody has sent that");
    good(halay_barrier(r->world), "barrier");
    const int next = (r->rank + 1) % r->nranks, before = (r->rank + r->nranks - 1) % r->nranks;
    for (int synchronous = 0; synchronous < 2; synchronous++) {
        const int tag = 77 + synchronous;
        good(halay_message_isend(data, 5, HALAY_INT32, next, tag, (halay_send_mode_t)synchronous,
                                 r->world, &send),
             "isend");
        good(halay_message_probe(before, tag, r->world, NULL, &e), "probe");
        CHECK(e.source == before && e.tag == tag && e.bytes == 20, "probe found %d %d %llu",
              e.source, e.tag, (unsigned long long)e.bytes);
        good(halay_message_take(HALAY_ANY_SOURCE, tag, r->world, NULL, &message, &e), "take");
        good(halay_message_probe(before, tag, r->world, &found, NULL), "probe");
        CHECK(!found, "it was taken");
        good(halay_message_irecv_taken(got, 8, HALAY_INT32, message, &request), "irecv_taken");
        good(halay_message_wait(request, &e), "wait");
        CHECK(e.bytes == 20 && !memcmp(got, data, 20), "what was taken");
        good(halay_request_wait(send), "wait");
    }
}

static void wrong(struct rank *r)
{
    halay_envelope_t e = {.size = sizeof(e)};
    halay_verdict_t v = {.size = sizeof(v)};
    halay_request_t *request, *send;
    const int next = (r->rank + 1) % r->nranks, before = (r->rank + r->nranks - 1) % r->nranks;
    int32_t *data = calloc(10000, sizeof(*data)), got[4] = {9, 9, 9, 9};
    CHECK(data, "no memory");
    for (int n = 5; n <= 10000; n *= 2000) { /* short, and long: too many bytes */
        good(halay_message_isend(data, (size_t)n, HALAY_INT32, next, 1, HALAY_SEND_STANDARD,
                                 r->world, &send),
             "isend");
        CHECK(halay_message_recv(got, 4, HALAY_INT32, before, 1, r->world, &e) == HALAY_EMISMATCH,
              "too long a message fits");
        good(halay_comm_verdict(r->world, &v), "verdict");
        CHECK(strstr(v.text, "has room for 16"), "text: %s", v.text);
        CHECK(got[0] == 9, "bytes of it came");
        good(halay_request_wait(send), "wait");
    }
    good(halay_message_isend(data, 1, HALAY_FLOAT32, next, 2, HALAY_SEND_STANDARD, r->world, &send),
         "isend");
    CHECK(halay_message_recv(got, 4, HALAY_INT32, before, 2, r->world, NULL) == HALAY_EMISMATCH,
          "another type");
    good(halay_request_wait(send), "wait");
    good(halay_message_irecv(got, 4, HALAY_INT32, before, 3, r->world, &request), "irecv");
    CHECK(halay_message_test(request, NULL) == HALAY_INPROGRESS && !halay_message_is_done(request),
          "nobody has sent that");
    good(halay_message_cancel(request), "cancel");
    good(halay_message_wait(request, &e), "wait");
    CHECK(e.cancelled == 1 && e.source == -1, "it was cancelled");
    good(halay_barrier(r->world), "barrier");
    CHECK(halay_message_send(data, 1, HALAY_INT32, r->nranks, 0, 0, r->world) == HALAY_EINVAL,
          "refused");
    CHECK(halay_message_send(data, 1, HALAY_INT32, next, -1, 0, r->world) == HALAY_EINVAL,
          "refused");
    CHECK(halay_message_recv(NULL, 1, HALAY_INT32, next, 0, r->world, NULL) == HALAY_EINVAL,
          "refused");
    good(halay_message_send(data, 1, HALAY_INT32, next, INT_MAX, 0, r->world), "send");
    good(halay_message_recv(got, 4, HALAY_INT32, before, INT_MAX, r->world, &e), "recv");
    CHECK(e.bytes == 4 && e.tag == INT_MAX, "the largest tag");
    free(data);
}

static void all(struct rank *r)
{
    struct board *b = r->arg;
    pthread_barrier_wait(&b->barrier);
    exchange(r);
    backwards(r);
    probes(r);
    wrong(r);
    good(halay_barrier(r->world), "barrier");
}

/* ---------------------------------------------------------------- nobody sends, or is there */

static void absent(struct rank *r)
{
    struct board *b = r->arg;
    int32_t got;
    halay_request_t *send;
    static int32_t data[20000];
    good(halay_comm_set_deadline(r->world, 200000000), "deadline");
    if (r->rank == 0) {
        const uint64_t start = ranks_now_ns();
        CHECK(halay_message_recv(&got, 1, HALAY_INT32, 1, 5, r->world, NULL) == HALAY_ETIMEOUT,
              "nobody sends");
        CHECK(halay_message_probe(1, 5, r->world, NULL, NULL) == HALAY_ETIMEOUT, "nobody sends");
        good(halay_message_isend(data, 20000, HALAY_INT32, 1, 6, HALAY_SEND_STANDARD, r->world,
                                 &send),
             "isend");
        CHECK(halay_request_wait(send) == HALAY_ETIMEOUT, "nobody has received it");
        CHECK(ranks_now_ns() - start > 500000000, "the deadline counts");
    }
    pthread_barrier_wait(&b->barrier);
    halay_finalize(r->context);
}

static void dies(struct rank *r)
{
    struct board *b = r->arg;
    int32_t got = 0, data = 7;
    halay_verdict_t v = {.size = sizeof(v)};
    pthread_barrier_wait(&b->barrier);
    if (r->rank == 1) {
        for (int to = 0; to < r->nranks; to += 2)
            good(halay_message_send(&data, 1, HALAY_INT32, to, 8, HALAY_SEND_STANDARD, r->world),
                 "send");
        halay_finalize(r->context);
        pthread_barrier_wait(&b->barrier);
        return;
    }
    good(halay_message_recv(&got, 1, HALAY_INT32, 1, 8, r->world, NULL), "recv"); /* all the same */
    CHECK(got == 7, "got %d", got);
    CHECK(halay_message_recv(&got, 1, HALAY_INT32, r->rank == 0 ? 1 : HALAY_ANY_SOURCE, 9, r->world,
                             NULL) == HALAY_EPEER,
          "it has ended");
    good(halay_comm_verdict(r->world, &v), "verdict");
    CHECK(v.rank == 1 && strstr(v.text, "rank 1"), "text: %s", v.text);
    CHECK(halay_message_send(&data, 1, HALAY_INT32, 1, 8, HALAY_SEND_STANDARD, r->world) ==
              HALAY_EPEER,
          "it has ended");
    pthread_barrier_wait(&b->barrier);
    halay_finalize(r->context);
}

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
    for (int round = 0; round < 8; round++)
        for (int n = only ? only : 1; n <= (only ? only : 5); n++) {
            struct board b = {.n = 40 * n, .seed = (uint64_t)(round * 16 + n)};
            b.drawn = calloc((size_t)b.n, sizeof(*b.drawn));
            CHECK(b.drawn, "no memory");
            draw(&b, n);
            pthread_barrier_init(&b.barrier, NULL, (unsigned)n);
            struct ranks_options o = {.nranks = n,
                                      .shm = round % 4 == 3,
                                      .faults = &faults[round % 4 % 3],
                                      .node_of_rank = round % 2 ? nodes : NULL,
                                      .deadline_ns = 100000000000ull};
            ranks_run(&o, all, &b);
            pthread_barrier_destroy(&b.barrier);
            free(b.drawn);
        }
    for (int i = 0; i < 8; i++) {
        struct board b = {.n = 0};
        const int n = i % 2 ? 3 : 2;
        pthread_barrier_init(&b.barrier, NULL, (unsigned)n);
        struct ranks_options o = {.nranks = n, .faults = &faults[i / 2 % 3], .keep = true};
        ranks_run(&o, fns[i % 2], &b);
        pthread_barrier_destroy(&b.barrier);
    }
    return 0;
}
