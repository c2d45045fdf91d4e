/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Persistent requests: many starts with other data each, several in flight, every other rank making
 * the ordinary call instead; and what may not be done with them, alone and on one of several ranks.
 *
 *   test_persistent [STARTS]   without, 1000
 */
#include <string.h>

#include "device/device_builtin.h"
#include "ranks.h"

#define COUNT 40

static int starts = 1000;

struct data { /* of all requests of one rank */
    int64_t in[COUNT], out[COUNT], average[COUNT], all[COUNT * RANKS_MAX], cast[COUNT];
    int64_t blocks[COUNT * RANKS_MAX], block[COUNT], every[COUNT * RANKS_MAX], scaled[COUNT];
    size_t counts[RANKS_MAX];
    int root;
};

enum { REDUCE, AVERAGE, GATHER, VECTOR, SCATTER, CAST, BARRIER, SCALED, PRODUCT, REQUESTS };

static void prepare(const struct rank *r, struct data *d, int round)
{
    for (int i = 0; i < COUNT; i++) {
        d->in[i] = ranks_value(r->rank, round, i);
        d->cast[i] = r->rank == d->root ? ranks_value(77, round, i) : -1;
        d->average[i] = r->nranks * (i + round);
        d->scaled[i] = i + round;
    }
    for (int i = 0; i < COUNT * r->nranks; i++)
        d->blocks[i] = ranks_value(r->rank, round, i);
    memset(d->all, 0, sizeof(d->all));
    memset(d->every, 0, sizeof(d->every));
    memset(d->out, 0, sizeof(d->out));
}

static void check(const struct rank *r, const struct data *d, int round)
{
    for (int i = 0; i < COUNT; i++) {
        CHECK(d->out[i] == ranks_sum(r->nranks, round, i), "allreduce, round %d", round);
        CHECK(d->average[i] == r->nranks * (i + round), "average, round %d", round);
        CHECK(d->cast[i] == ranks_value(77, round, i), "broadcast, round %d", round);
        CHECK(d->scaled[i] == (i + round) * 2 * r->nranks * 3, "scaled, round %d", round);
        CHECK(d->block[i] == ranks_sum(r->nranks, round, r->rank * COUNT + i), "scatter, round %d",
              round);
    }
    size_t at = 0;
    for (int k = 0; k < r->nranks; k++)
        for (int i = 0; i < COUNT; i++) {
            CHECK(d->all[k * COUNT + i] == ranks_value(k, round, i), "allgather, round %d", round);
            if ((size_t)i < d->counts[k])
                CHECK(d->every[at++] == ranks_value(k, round, i), "allgatherv, round %d", round);
        }
}

static void init(const struct rank *r, struct data *d, halay_request_t *q[REQUESTS])
{
    const halay_type_t t = HALAY_INT64;
    halay_comm_t *w = r->world;
    for (int k = 0; k < r->nranks; k++)
        d->counts[k] = (size_t)(k % 3) * 10 + 1;
    d->root = r->nranks - 1;
    int rc = halay_allreduce_init(d->in, d->out, COUNT, t, HALAY_SUM, w, &q[REDUCE]);
    rc |= halay_allreduce_init(HALAY_IN_PLACE, d->average, COUNT, t, HALAY_AVERAGE, w, &q[AVERAGE]);
    rc |= halay_allgather_init(d->in, d->all, COUNT, t, w, &q[GATHER]);
    rc |= halay_allgatherv_init(d->in, d->every, d->counts, NULL, t, w, &q[VECTOR]);
    rc |= halay_reduce_scatter_init(d->blocks, d->block, COUNT, t, HALAY_SUM, w, &q[SCATTER]);
    rc |= halay_broadcast_init(d->cast, COUNT, t, d->root, w, &q[CAST]);
    rc |= halay_barrier_init(w, &q[BARRIER]);
    rc |= halay_allreduce_scaled_init(HALAY_IN_PLACE, d->scaled, COUNT, t, HALAY_SUM, 2, 3, w,
                                      &q[SCALED]);
    rc |= halay_allreduce_init(d->in, d->out, 0, t, HALAY_PROD, w, &q[PRODUCT]);
    CHECK(rc == 0, "init");
    for (int k = 0; k < r->nranks; k++)
        if (k == r->rank)
            memset(d->counts, 0xff, sizeof(d->counts)); /* they were copied */
    for (int k = 0; k < r->nranks; k++)
        d->counts[k] = (size_t)(k % 3) * 10 + 1;
}

/* The ordinary call, which meets starts on other ranks. */
static int call(const struct rank *r, struct data *d, int which, halay_request_t **q)
{
    const halay_type_t t = HALAY_INT64;
    halay_comm_t *w = r->world;
    switch (which) {
    case REDUCE:
        return halay_iallreduce(d->in, d->out, COUNT, t, HALAY_SUM, w, q);
    case AVERAGE:
        return halay_iallreduce(HALAY_IN_PLACE, d->average, COUNT, t, HALAY_AVERAGE, w, q);
    case GATHER:
        return halay_iallgather(d->in, d->all, COUNT, t, w, q);
    case VECTOR:
        return halay_iallgatherv(d->in, d->every, d->counts, NULL, t, w, q);
    case SCATTER:
        return halay_ireduce_scatter(d->blocks, d->block, COUNT, t, HALAY_SUM, w, q);
    case CAST:
        return halay_ibroadcast(d->cast, COUNT, t, d->root, w, q);
    case BARRIER:
        return halay_ibarrier(w, q);
    case SCALED:
        return halay_iallreduce_scaled(HALAY_IN_PLACE, d->scaled, COUNT, t, HALAY_SUM, 2, 3, w, q);
    default:
        return halay_iallreduce(d->in, d->out, 0, t, HALAY_PROD, w, q);
    }
}

static int test_until_done(halay_request_t *q)
{
    int rc;
    while ((rc = halay_request_test(q)) == HALAY_INPROGRESS)
        ;
    return rc;
}

static void many(struct rank *r)
{
    static struct data all[RANKS_MAX];
    struct data *d = &all[r->rank];
    halay_request_t *q[REQUESTS], *other[REQUESTS];
    init(r, d, q);
    for (int round = 0; round < starts; round++) {
        bool ordinary = round % 5 == 1 && r->rank % 2;
        prepare(r, d, round);
        for (int i = 0; i < REQUESTS; i++) {
            int which = (i + round) % REQUESTS;
            int rc = ordinary ? call(r, d, which, &other[which]) : halay_request_start(q[which]);
            CHECK(rc == 0, "start: %s", halay_strerror(rc));
        }
        for (int i = 0; i < REQUESTS; i++) {
            halay_request_t *wait = ordinary ? other[i] : q[i];
            int rc = i % 2 ? test_until_done(wait) : halay_request_wait(wait);
            CHECK(rc == 0, "wait: %s", halay_strerror(rc));
        }
        check(r, d, round);
    }
    for (int i = 0; i < REQUESTS; i++)
        CHECK(!halay_request_free(q[i]), "free");
}

/* The other calls: a ring of messages, rooted ones, prefixes, an exchange. */
static void others(struct rank *r)
{
    enum { SEND, RECV, TO_ROOT, FROM_ROOT, REDUCED, PREFIX, BEFORE, EXCHANGE, MORE };
    const int n = r->nranks, next = (r->rank + 1) % n, previous = (r->rank + n - 1) % n;
    const halay_type_t t = HALAY_INT64;
    halay_comm_t *w = r->world;
    halay_request_t *q[MORE] = {NULL};
    int64_t mine = 0, got = 0, dealt = 0, total = 0, prefix = 0, before = -1;
    int64_t out[RANKS_MAX] = {0}, in[RANKS_MAX], all[RANKS_MAX], deal[RANKS_MAX] = {0};
    int rc = halay_gather_init(&mine, all, 1, t, n - 1, w, &q[TO_ROOT]);
    if (n > 1)
        rc |= halay_send_init(&mine, 1, t, next, w, &q[SEND]) |
              halay_recv_init(&got, 1, t, previous, w, &q[RECV]);
    rc |= halay_scatter_init(deal, &dealt, 1, t, 0, w, &q[FROM_ROOT]);
    rc |= halay_reduce_init(&mine, &total, 1, t, HALAY_SUM, n / 2, w, &q[REDUCED]);
    rc |= halay_scan_init(&mine, &prefix, 1, t, HALAY_SUM, w, &q[PREFIX]);
    rc |= halay_exscan_init(&mine, &before, 1, t, HALAY_SUM, w, &q[BEFORE]);
    rc |= halay_alltoall_init(out, in, 1, t, w, &q[EXCHANGE]);
    CHECK(rc == 0, "init");
    for (int round = 0; round < 50; round++) {
        mine = ranks_value(r->rank, round, 0);
        for (int k = 0; k < n; k++) {
            deal[k] = ranks_value(k, round, 5);
            out[k] = ranks_value(r->rank, round, k);
        }
        for (int i = 0; i < MORE; i++)
            CHECK(!q[i] || !halay_request_start(q[i]), "start %d", i);
        for (int i = 0; i < MORE; i++)
            CHECK(!q[i] || !halay_request_wait(q[i]), "wait %d", i);
        int64_t low = ranks_sum(r->rank, round, 0);
        CHECK(n == 1 || got == ranks_value(previous, round, 0), "message");
        CHECK(dealt == ranks_value(r->rank, round, 5), "scatter");
        CHECK(r->rank != n / 2 || total == ranks_sum(n, round, 0), "reduce");
        CHECK(prefix == low + mine && before == (r->rank ? low : -1), "scans");
        for (int k = 0; k < n; k++) {
            CHECK(in[k] == ranks_value(k, round, r->rank), "alltoall");
            CHECK(r->rank != n - 1 || all[k] == ranks_value(k, round, 0), "gather");
        }
    }
    for (int i = 0; i < MORE; i++)
        CHECK(!halay_request_free(q[i]), "free");
}

/* ---------------------------------------------------------------- mistakes */

static void misuse(struct rank *r)
{
    int64_t x = 1, y = 0;
    halay_request_t *q, *plain;
    halay_comm_t *dup;
    CHECK(!halay_comm_dup(r->world, &dup), "dup");
    CHECK(!halay_allreduce_init(&x, &y, 1, HALAY_INT64, HALAY_SUM, dup, &q), "init");
    CHECK(halay_request_wait(q) == HALAY_ESTATE, "waited for, not started");
    CHECK(halay_request_test(q) == HALAY_ESTATE, "tested, not started");
    CHECK(halay_comm_free(dup) == HALAY_ESTATE, "freed with a request");
    CHECK(!halay_request_start(q), "start");
    CHECK(halay_request_start(q) == HALAY_ESTATE, "started twice");
    CHECK(halay_request_free(q) == HALAY_ESTATE, "freed under way");
    CHECK(!halay_request_wait(q) && y == r->nranks, "wait");
    CHECK(halay_request_wait(q) == HALAY_ESTATE, "waited for twice");
    CHECK(!halay_request_free(q), "free");
    CHECK(halay_request_start(q) == HALAY_ESTATE, "started when freed");
    CHECK(halay_request_free(q) == HALAY_ESTATE, "freed twice");
    CHECK(!halay_ibarrier(dup, &plain), "ibarrier");
    CHECK(halay_request_start(plain) == HALAY_EINVAL, "not persistent");
    CHECK(halay_request_free(plain) == HALAY_EINVAL, "not persistent");
    CHECK(!halay_request_wait(plain), "wait");
    CHECK(halay_request_free(NULL) == HALAY_OK && halay_request_start(NULL) == HALAY_EINVAL,
          "NULL");
    CHECK(halay_barrier_init(NULL, &q) == HALAY_EINVAL, "no communicator");
    CHECK(halay_barrier_init(dup, NULL) == HALAY_EINVAL, "no request");
    CHECK(!halay_barrier(dup), "a failed init left something behind");
    CHECK(!halay_comm_free(dup), "free");
    CHECK(halay_barrier_init(dup, &q) == HALAY_ESTATE, "a freed communicator");
    CHECK(!halay_barrier_init(r->world, &q), "left for halay_finalize");
}

/* Wrong on one rank: each start ends with the same error on all, and others go on. */
static void wrong(struct rank *r)
{
    struct ranks_board *b = r->arg;
    for (int kind = 0; kind < 3; kind++)
        for (int w = 0; w < r->nranks; w++) {
            int64_t in[4] = {1, 2, 3, 4}, out[4], x = 1, y;
            halay_verdict_t v = {.size = sizeof(v)};
            halay_request_t *bad, *good;
            bool mine = r->rank == w;
            size_t count = mine && kind == 0 ? 3 : 4;
            void *to = mine && kind == 1 ? NULL : out;
            halay_op_t op = mine && kind == 2 ? (halay_op_t)99 : HALAY_SUM;
            CHECK(!halay_allreduce_init(in, to, count, HALAY_INT64, op, r->world, &bad), "init");
            CHECK(!halay_allreduce_init(&x, &y, 1, HALAY_INT64, HALAY_SUM, r->world, &good),
                  "init");
            for (int round = 0; round < 3; round++) {
                CHECK(!halay_request_start(bad) && !halay_request_start(good), "start");
                b->code[r->rank] = halay_request_wait(bad);
                CHECK(!halay_request_wait(good) && y == r->nranks, "the other one");
                CHECK(!halay_comm_verdict(r->world, &v), "verdict");
                memcpy(b->text[r->rank], v.text, sizeof(v.text));
                pthread_barrier_wait(&b->barrier);
                int want = kind ? HALAY_EINVAL : HALAY_EMISMATCH;
                for (int k = 0; k < r->nranks; k++)
                    CHECK(b->code[k] == want && !strcmp(b->text[k], b->text[0]), "rank %d: %s", k,
                          b->text[k]);
                pthread_barrier_wait(&b->barrier);
            }
            CHECK(!halay_request_free(bad) && !halay_request_free(good), "free");
        }
}

int main(int argc, char **argv)
{
    static const int nodes[9] = {0, 1, 0, 2, 1, 0, 0, 1, 3};
    struct hly_device_late_arg late = {.seed = 3, .delay_polls_max = 4, .capacity = 3};
    halay_inproc_faults_t faults = {
        .seed = 5, .delay_polls_max = 3, .reorder = 1, .late_put_polls = 3, .eager_bytes = 64};
    if (argc > 1)
        starts = atoi(argv[1]);
    setenv("HALAY_DEBUG", "error", 1); /* the failures here are wanted */
    for (int p = 1; p <= 9; p++) {
        struct ranks_board board;
        struct ranks_options o = {.nranks = p, .shm = p % 2};
        pthread_barrier_init(&board.barrier, NULL, (unsigned)p);
        if (p > 4) { /* slower: fewer starts, harder conditions */
            o.faults = &faults;
            o.device = p % 2 ? &hly_device_late : NULL;
            o.device_arg = p % 2 ? &late : NULL;
            o.node_of_rank = p % 2 ? NULL : nodes;
            starts = starts > 100 ? 100 : starts;
        }
        ranks_run(&o, many, NULL);
        ranks_run(&o, others, NULL);
        ranks_run(&o, misuse, NULL);
        if (p > 1)
            ranks_run(&o, wrong, &board);
        pthread_barrier_destroy(&board.barrier);
    }
    return 0;
}
