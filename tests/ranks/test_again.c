/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls like the last one, and calls that differ in one thing only: what the engine keeps from one
 * to the next (plan, signature, addresses, work of the device) must never be another call's. Each
 * rank draws its buffers by itself, the contents change, communicators come and go at the same
 * addresses, and every result is compared.
 *
 *   test_again [CALLS]
 */
#include <string.h>

#include "device/device_builtin.h"
#include "ranks.h"

#define ROOM    700 /* elements */
#define NSETS   3
#define FLIGHTS 4

static const struct setup {
    bool shm, late_device;
    halay_inproc_faults_t faults;
} setups[] = {{.shm = true},
              {.late_device = true,
               .faults = {.seed = 7,
                          .delay_polls_max = 3,
                          .reorder = 1,
                          .again_percent = 20,
                          .hide_capabilities = HALAY_CAN_PUT | HALAY_CAN_LAND,
                          .cache = 1,
                          .eager_bytes = 256,
                          .piece_bytes = 512}},
              {.faults = {.seed = 8, .delay_polls_max = 2, .reorder = 1, .eager_bytes = 256}},
              {.faults = {.seed = 9,
                          .hide_capabilities = HALAY_CAN_PUT | HALAY_CAN_LAND,
                          .cache = 1,
                          .eager_bytes = 256}}};

enum kind { ALLREDUCE, BROADCAST, ALLGATHER, REDUCE, KINDS };

struct shape { /* what all ranks agree on */
    enum kind kind;
    size_t count;
    halay_op_t op;
    halay_type_t type;
    int root;
    bool in_place;
};

struct flight {
    struct shape s;
    int64_t salt;
    int set;
    bool blocks; /* this rank's own affair */
    halay_request_t *request;
};

struct buffers {
    int64_t in[NSETS * FLIGHTS][ROOM], out[NSETS * FLIGHTS][ROOM * 5];
};

/* The same bits mean the same in both types: small numbers are given as such. */
static int64_t number(halay_type_t type, int64_t value)
{
    double real = (double)value;
    if (type == HALAY_FLOAT64)
        memcpy(&value, &real, sizeof(value));
    return value;
}

static int64_t input(int rank, size_t i, int64_t salt)
{
    return (rank + 3) * (int64_t)(i % 13 + 1) + salt % 1000;
}

static int64_t result(const struct shape *s, int nranks, size_t i, int64_t salt)
{
    int64_t value = 0;
    if (s->kind == BROADCAST)
        return input(s->root, i, salt);
    if (s->kind == ALLGATHER)
        return input((int)(i / s->count), i % s->count, salt);
    for (int k = 0; k < nranks; k++) {
        int64_t x = input(k, i, salt);
        value = s->op == HALAY_SUM ? value + x : x > value ? x : value;
    }
    return value;
}

static bool reads_out(const struct rank *r, const struct shape *s)
{
    return s->kind == BROADCAST || (s->in_place && (s->kind != REDUCE || r->rank == s->root));
}

static void start(const struct rank *r, halay_comm_t *comm, struct buffers *b, struct flight *f)
{
    const struct shape *s = &f->s;
    int64_t *in = b->in[f->set], *out = b->out[f->set];
    size_t own = s->kind == ALLGATHER && s->in_place ? s->count * (size_t)r->rank : 0;
    int64_t *from = reads_out(r, s) ? out + own : in;
    for (size_t i = 0; i < s->count; i++)
        from[i] = number(s->type, input(r->rank, i, f->salt));
    const void *given = reads_out(r, s) ? HALAY_IN_PLACE : in;
    int rc;
    if (f->blocks && s->kind == ALLREDUCE)
        rc = halay_allreduce(given, out, s->count, s->type, s->op, comm);
    else if (f->blocks && s->kind == BROADCAST)
        rc = halay_broadcast(out, s->count, s->type, s->root, comm);
    else if (f->blocks && s->kind == ALLGATHER)
        rc = halay_allgather(given, out, s->count, s->type, comm);
    else if (f->blocks)
        rc = halay_reduce(given, out, s->count, s->type, s->op, s->root, comm);
    else if (s->kind == ALLREDUCE)
        rc = halay_iallreduce(given, out, s->count, s->type, s->op, comm, &f->request);
    else if (s->kind == BROADCAST)
        rc = halay_ibroadcast(out, s->count, s->type, s->root, comm, &f->request);
    else if (s->kind == ALLGATHER)
        rc = halay_iallgather(given, out, s->count, s->type, comm, &f->request);
    else
        rc = halay_ireduce(given, out, s->count, s->type, s->op, s->root, comm, &f->request);
    CHECK(!rc, "%s", halay_strerror(rc));
}

static void finish(const struct rank *r, const struct buffers *b, const struct flight *f)
{
    const struct shape *s = &f->s;
    int rc = f->blocks ? HALAY_OK : halay_request_wait(f->request);
    CHECK(!rc, "%s", halay_strerror(rc));
    size_t n = s->kind == ALLGATHER ? s->count * (size_t)r->nranks : s->count;
    if (s->kind == REDUCE && r->rank != s->root)
        return;
    for (size_t i = 0; i < n; i++) {
        int64_t want = number(s->type, result(s, r->nranks, i, f->salt)), got = b->out[f->set][i];
        CHECK(got == want, "rank %d, element %zu: %llx, not %llx", r->rank, i,
              (unsigned long long)got, (unsigned long long)want);
    }
}

/* Changes one thing, or nothing. */
static void change(struct shape *s, int nranks, uint64_t *common)
{
    static const size_t counts[] = {1, 2, 5, 40, 130, 0};
    switch (ranks_random(common) % 12) {
    case 0:
        s->kind = (enum kind)(ranks_random(common) % KINDS);
        break;
    case 1:
        s->count = counts[ranks_random(common) % 6];
        break;
    case 2:
        s->op = s->op == HALAY_SUM ? HALAY_MAX : HALAY_SUM;
        break;
    case 3:
        s->type = s->type == HALAY_INT64 ? HALAY_FLOAT64 : HALAY_INT64;
        break;
    case 4:
        s->root = (int)(ranks_random(common) % (uint64_t)nranks);
        break;
    case 5:
        s->in_place = !s->in_place;
        break;
    default:
        break;
    }
}

struct job {
    int ncalls;
};

static void calls(struct rank *r)
{
    const struct job *job = r->arg;
    struct buffers *b = calloc(1, sizeof(*b));
    struct shape s = {ALLREDUCE, 1, HALAY_SUM, HALAY_INT64, 0, false};
    uint64_t common = 42, own = r->seed;
    halay_comm_t *comm = NULL;
    CHECK(b, "no memory");
    for (int i = 0; i < job->ncalls; i++) {
        struct flight f[FLIGHTS];
        int n = 1 + (ranks_random(&common) % 4 ? 0 : (int)(ranks_random(&common) % FLIGHTS));
        if (i % 7 == 0) {
            CHECK(!halay_comm_free(comm), "free");
            CHECK(!halay_comm_dup(r->world, &comm), "dup");
        }
        for (int k = 0; k < n; k++) {
            if (ranks_random(&common) % 2)
                change(&s, r->nranks, &common);
            int set = k * NSETS + (int)(ranks_random(&own) % 8 ? 0 : ranks_random(&own) % NSETS);
            bool blocks = ranks_random(&own) % 4 > 0;
            f[k] = (struct flight){s, i * FLIGHTS + k, set, blocks, NULL};
            start(r, comm, b, &f[k]);
        }
        for (int k = n; k-- > 0;)
            finish(r, b, &f[k]);
    }
    CHECK(!halay_comm_free(comm), "free");
    free(b);
    halay_counters_t done = {.size = sizeof(done)};
    CHECK(!halay_context_counters(r->context, &done), "counters");
    CHECK(done.repeated > 0, "rank %d: %llu of %llu repeated", r->rank,
          (unsigned long long)done.repeated, (unsigned long long)done.operations);
}

/* Calls that alternate are all in the call cache. */
static void by_turns(struct rank *r)
{
    enum { ROUNDS = 50, N = 40 };
    int64_t in[N], sum[N], cast[N];
    halay_counters_t begun = {.size = sizeof(begun)}, done = {.size = sizeof(done)};
    CHECK(!halay_context_counters(r->context, &begun), "counters");
    for (int i = 0; i < ROUNDS; i++) {
        for (int k = 0; k < N; k++) {
            in[k] = (r->rank + 1) * i + k;
            cast[k] = r->rank == 0 ? i * k : -1;
        }
        CHECK(!halay_barrier(r->world), "barrier");
        CHECK(!halay_allreduce(in, sum, N, HALAY_INT64, HALAY_SUM, r->world), "allreduce");
        CHECK(!halay_broadcast(cast, N, HALAY_INT64, 0, r->world), "broadcast");
        for (int k = 0; k < N; k++) {
            int64_t want = (int64_t)r->nranks * (r->nranks + 1) / 2 * i + (int64_t)r->nranks * k;
            CHECK(sum[k] == want && cast[k] == (int64_t)i * k, "round %d, element %d", i, k);
        }
    }
    CHECK(!halay_context_counters(r->context, &done), "counters");
    CHECK(done.repeated - begun.repeated == 3 * (ROUNDS - 1), "%llu calls of %d were repeated",
          (unsigned long long)(done.repeated - begun.repeated), 3 * ROUNDS);
}

int main(int argc, char **argv)
{
    int ncalls = argc > 1 ? atoi(argv[1]) : 3000;
    for (int p = 1; p <= 5; p++)
        for (size_t i = 0; i < sizeof(setups) / sizeof(setups[0]); i++) {
            struct hly_device_late_arg late = {.seed = 3, .delay_polls_max = 4, .capacity = 2};
            struct ranks_options options = {.nranks = p,
                                            .shm = setups[i].shm,
                                            .faults = &setups[i].faults,
                                            .device =
                                                setups[i].late_device ? &hly_device_late : NULL,
                                            .device_arg = setups[i].late_device ? &late : NULL};
            struct job job = {ncalls};
            ranks_run(&options, calls, &job);
            ranks_run(&options, by_turns, NULL);
        }
    return 0;
}
