/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_training_faults.c - named tensors where ranks disagree, are late, or leave: every rank gets
 * an error that says why, in time, and what can go on goes on.
 */
#include <sys/wait.h>

#include "training/shell/trainer.h"
#include "training_ranks.h"

static double deadline_s(void)
{
    uint64_t own_ns = hub_set_ns ? hub_set_ns : hub_config_ns;
    return own_ns ? (double)own_ns * 1e-9 : atof(getenv("HALAY_DEADLINE"));
}

/* What went wrong leaves nothing behind: an ordinary tensor works. */
static void still_works(struct rank *rank)
{
    int64_t value = rank->rank + 1;
    halay_ticket_t ticket;
    CHECK(!halay_trainer_allreduce(rank->trainer, "after", &value, &value, 1, HALAY_INT64,
                                   HALAY_SUM, 1, 1, &ticket),
          "submit");
    finish(rank, ticket, 0);
    CHECK(value == rank->nranks * (rank->nranks + 1) / 2, "sum is %lld", (long long)value);
}

/* ------------------------------------------------------------------ mismatches */

struct variant {
    const char *says; /* how the text shows it */
    int kind; /* 'r'educe, 'b'roadcast, 'g'ather, '|'; with a shape: 'R', 'B', 'G', 'S'catter,
                 'A'lltoall */
    size_t count;
    halay_type_t type;
    halay_op_t op;
    int root;
    double prescale, postscale;
    halay_dims_t shape;
};

/* The first is what all ranks but one submit. */
static const struct variant variants[] = {
    {"allreduce of 12 float32, sum", 'r', 12, HALAY_FLOAT32, HALAY_SUM, 0, 1, 1},
    {"allreduce of 13 float32, sum", 'r', 13, HALAY_FLOAT32, HALAY_SUM, 0, 1, 1},
    {"allreduce of 0 float32, sum", 'r', 0, HALAY_FLOAT32, HALAY_SUM, 0, 1, 1},
    {"allreduce of 12 float64, sum", 'r', 12, HALAY_FLOAT64, HALAY_SUM, 0, 1, 1},
    {"allreduce of 12 float32, max", 'r', 12, HALAY_FLOAT32, HALAY_MAX, 0, 1, 1},
    {"allreduce of 12 float32, sum, scaled by 0.5 and 1", 'r', 12, HALAY_FLOAT32, HALAY_SUM, 0, .5,
     1},
    {"allreduce of 12 float32, sum, scaled by 1 and 0.25", 'r', 12, HALAY_FLOAT32, HALAY_SUM, 0, 1,
     .25},
    {"broadcast of 12 float32 from rank 0", 'b', 12, HALAY_FLOAT32, HALAY_SUM, 0, 1, 1},
    {"broadcast of 12 float32 from rank 1", 'b', 12, HALAY_FLOAT32, HALAY_SUM, 1, 1, 1},
    {"allgather of rows of 12 float32", 'g', 12, HALAY_FLOAT32, HALAY_SUM, 0, 1, 1},
    {"allgather of rows of 11 float32", 'g', 11, HALAY_FLOAT32, HALAY_SUM, 0, 1, 1},
    {"barrier", '|', 0, HALAY_UINT8, HALAY_SUM, 0, 1, 1},
    {"allreduce of [3, 4] float32, sum", 'R', 12, HALAY_FLOAT32, HALAY_SUM, 0, 1, 1, {2, {3, 4}}},
    {"allreduce of [12] float32, sum", 'R', 12, HALAY_FLOAT32, HALAY_SUM, 0, 1, 1, {1, {12}}},
    {"allreduce of [3, 1, 4] float32, sum, scaled by 0.5 and 1",
     'R',
     12,
     HALAY_FLOAT32,
     HALAY_SUM,
     0,
     .5,
     1,
     {3, {3, 1, 4}}},
    {"allreduce of [] float32, sum", 'R', 1, HALAY_FLOAT32, HALAY_SUM, 0, 1, 1, {0, {0}}},
    {"allreduce of [0, 2^32 or more] float32, sum",
     'R',
     0,
     HALAY_FLOAT32,
     HALAY_SUM,
     0,
     1,
     1,
     {2, {0, SIZE_MAX}}},
    {"broadcast of [4, 3] float32 from rank 0",
     'B',
     12,
     HALAY_FLOAT32,
     HALAY_SUM,
     0,
     1,
     1,
     {2, {4, 3}}},
    {"broadcast of [1, 1, 1, 1, 1, 2, 6] float32 from rank 0",
     'B',
     12,
     HALAY_FLOAT32,
     HALAY_SUM,
     0,
     1,
     1,
     {7, {1, 1, 1, 1, 1, 2, 6}}},
    {"allgather of rows of [3, 4] float32",
     'G',
     12,
     HALAY_FLOAT32,
     HALAY_SUM,
     0,
     1,
     1,
     {3, {2, 3, 4}}},
    {"allgather of rows of [12] float32", 'G', 12, HALAY_FLOAT32, HALAY_SUM, 0, 1, 1, {2, {1, 12}}},
    {"reduce_scatter of [3, 4] float32, sum",
     'S',
     12,
     HALAY_FLOAT32,
     HALAY_SUM,
     0,
     1,
     1,
     {2, {3, 4}}},
    {"allgather of rows of [] float32", 'G', 1, HALAY_FLOAT32, HALAY_SUM, 0, 1, 1, {1, {5}}},
    {"alltoall of rows of [2] float32", 'A', 2, HALAY_FLOAT32, HALAY_SUM, 0, 1, 1, {2, {9, 2}}},
    {"alltoall of rows of [3] float32", 'A', 3, HALAY_FLOAT32, HALAY_SUM, 0, 1, 1, {2, {9, 3}}},
};

enum { VARIANTS = sizeof(variants) / sizeof(variants[0]) };

static halay_ticket_t submit_variant(struct rank *rank, const struct variant *v, float *in,
                                     float *out)
{
    static const size_t dealt[RANKS_MAX] = {1, 0, 2};
    halay_ticket_t ticket = 0;
    int rc;
    if (v->kind == 'r')
        rc = halay_trainer_allreduce(rank->trainer, "it", in, out, v->count, v->type, v->op,
                                     v->prescale, v->postscale, &ticket);
    else if (v->kind == 'b')
        rc = halay_trainer_broadcast(rank->trainer, "it", in, v->count, v->type, v->root, &ticket);
    else if (v->kind == 'R')
        rc = halay_trainer_allreduce_shaped(rank->trainer, "it", in, out, &v->shape, v->type, v->op,
                                            v->prescale, v->postscale, &ticket);
    else if (v->kind == 'B')
        rc = halay_trainer_broadcast_shaped(rank->trainer, "it", in, &v->shape, v->type, v->root,
                                            &ticket);
    else if (v->kind == 'S')
        rc = halay_trainer_reduce_scatter(rank->trainer, "it", in, out, &v->shape, v->type, v->op,
                                          v->prescale, v->postscale, &ticket);
    else if (v->kind == 'G')
        rc = halay_trainer_allgather_shaped(rank->trainer, "it", in, &v->shape, v->type, &ticket);
    else if (v->kind == 'A')
        rc = halay_trainer_alltoall(rank->trainer, "it", in, dealt, &v->shape, v->type, &ticket);
    else if (v->kind == 'g')
        rc = halay_trainer_allgather(rank->trainer, "it", in, 1, v->count, v->type, &ticket);
    else
        rc = halay_trainer_barrier(rank->trainer, "it", &ticket);
    CHECK(!rc, "submit: %d", rc);
    return ticket;
}

/* One rank, every one in turn, submits something else: all get the same error, at once. */
static void mismatch(struct rank *rank)
{
    float in[64], out[64], kept[64];
    char want[128], *text = rank->ranks->texts[rank->rank];
    for (int i = 0; i < 64; i++)
        in[i] = kept[i] = (float)(rank->rank + i);
    for (int odd = 0; odd < rank->nranks; odd++) {
        for (int base = 0; base < VARIANTS; base += 7) {
            for (int v = 0; v < VARIANTS; v++) {
                if (v == base)
                    continue;
                int mine = rank->rank == odd ? v : base;
                if (base == 0 && v == 1 && rank->rank == 0)
                    usleep(5000); /* so that a higher rank is the first to announce it */
                halay_ticket_t ticket = submit_variant(rank, &variants[mine], in, out);
                int rc = halay_trainer_wait(rank->trainer, ticket, text, 1024);
                CHECK(rc == HALAY_EMISMATCH, "%d: %s", rc, text);
                halay_trainer_release(rank->trainer, ticket);
                CHECK(strstr(text, "'it'"), "no name: %s", text);
                snprintf(want, sizeof(want), "rank %d: %s", odd, variants[v].says);
                CHECK(strstr(text, want), "'%s' is not in: %s", want, text);
                CHECK(strstr(text, variants[base].says), "one side only: %s", text);
                const char *low = strstr(text, "rank "), *high = strstr(text, "; rank ");
                CHECK(high && atoi(low + 5) < atoi(high + 7), "the lower rank comes first: %s",
                      text);
                meet(rank);
                CHECK(!strcmp(text, rank->ranks->texts[0]), "other words on rank 0: %s", text);
                CHECK(!memcmp(in, kept, sizeof(in)), "the input changed");
                meet(rank);
            }
        }
    }
    still_works(rank);
}

static void duplicates(struct rank *rank)
{
    float value[2] = {1, 1};
    halay_ticket_t first, second = 77;
    for (int i = 0; i < 5; i++) {
        if (rank->rank == 0) {
            CHECK(!halay_trainer_allreduce(rank->trainer, "twice", value, value, 2, HALAY_FLOAT32,
                                           HALAY_MAX, 1, 1, &first),
                  "submit");
            CHECK(halay_trainer_barrier(rank->trainer, "twice", &second) == HALAY_EINVAL, "twice");
            CHECK(second == 77, "a refused ticket was written");
            meet(rank);
        } else {
            meet(rank);
            CHECK(!halay_trainer_allreduce(rank->trainer, "twice", value, value, 2, HALAY_FLOAT32,
                                           HALAY_MAX, 1, 1, &first),
                  "submit");
        }
        finish(rank, first, 0);
    }
    /* Done, not released: the name is free again. */
    CHECK(!halay_trainer_barrier(rank->trainer, "twice", &first), "submit");
    CHECK(!halay_trainer_wait(rank->trainer, first, NULL, 0), "wait");
    CHECK(!halay_trainer_barrier(rank->trainer, "twice", &second), "again");
    finish(rank, second, 0);
    finish(rank, first, 0);
}

static void arguments(struct rank *rank)
{
    char name[HALAY_TENSOR_NAME_MAX + 1];
    float f[4] = {0};
    int32_t n[4] = {0};
    halay_trainer_t *t = rank->trainer;
    halay_ticket_t k = 77;
    memset(name, 'x', sizeof(name) - 1);
    name[sizeof(name) - 1] = 0;
#define REFUSED(call) CHECK((call) == HALAY_EINVAL && k == 77, "was accepted")
    REFUSED(halay_trainer_barrier(NULL, "a", &k));
    REFUSED(halay_trainer_barrier(t, NULL, &k));
    REFUSED(halay_trainer_barrier(t, "", &k));
    REFUSED(halay_trainer_barrier(t, name, &k));
    REFUSED(halay_trainer_barrier(t, "a", NULL));
    REFUSED(halay_trainer_broadcast(t, "a", f, 4, HALAY_FLOAT32, -1, &k));
    REFUSED(halay_trainer_broadcast(t, "a", f, 4, HALAY_FLOAT32, rank->nranks, &k));
    REFUSED(halay_trainer_broadcast(t, "a", NULL, 4, HALAY_FLOAT32, 0, &k));
    REFUSED(halay_trainer_broadcast(t, "a", f, 4, HALAY_TYPE_COUNT, 0, &k));
    REFUSED(halay_trainer_broadcast(t, "a", f, SIZE_MAX / 2, HALAY_FLOAT32, 0, &k));
    REFUSED(halay_trainer_allgather(t, "a", f, SIZE_MAX / 2, 3, HALAY_FLOAT32, &k));
    REFUSED(halay_trainer_allgather(t, "a", NULL, 1, 1, HALAY_FLOAT32, &k));
    REFUSED(halay_trainer_allgather(t, "a", f, 1, 1, (halay_type_t)-1, &k));
    REFUSED(halay_trainer_allreduce(t, "a", NULL, f, 4, HALAY_FLOAT32, HALAY_SUM, 1, 1, &k));
    REFUSED(halay_trainer_allreduce(t, "a", f, NULL, 4, HALAY_FLOAT32, HALAY_SUM, 1, 1, &k));
    REFUSED(halay_trainer_allreduce(t, "a", f, f, 4, HALAY_FLOAT32, HALAY_OP_COUNT, 1, 1, &k));
    REFUSED(halay_trainer_allreduce(t, "a", f, f, 4, HALAY_BOOL, HALAY_SUM, 1, 1, &k));
    REFUSED(halay_trainer_allreduce(t, "a", f, f, 4, HALAY_FLOAT32, HALAY_MAX, 2, 1, &k));
    REFUSED(halay_trainer_allreduce(t, "a", f, f, 4, HALAY_FLOAT32, HALAY_AVERAGE, 1, 2, &k));
    REFUSED(halay_trainer_allreduce(t, "a", n, n, 4, HALAY_INT32, HALAY_SUM, 1, 2, &k));
    const halay_dims_t many = {HALAY_DIMS_MAX + 1, {1}}, none = {-1, {1}}, scalar = {0, {1}},
                       vast = {3, {SIZE_MAX / 8, 2, 8}}, rows = {2, {SIZE_MAX / 2, 3}},
                       two = {2, {2, 2}};
    const size_t fit[RANKS_MAX] = {1}, more[RANKS_MAX] = {1, SIZE_MAX, 3},
                 over[RANKS_MAX] = {rank->nranks == 1 ? 3 : 2, 1};
    REFUSED(halay_trainer_broadcast_shaped(t, "a", f, NULL, HALAY_FLOAT32, 0, &k));
    REFUSED(halay_trainer_broadcast_shaped(t, "a", f, &many, HALAY_FLOAT32, 0, &k));
    REFUSED(halay_trainer_broadcast_shaped(t, "a", f, &none, HALAY_FLOAT32, 0, &k));
    REFUSED(halay_trainer_broadcast_shaped(t, "a", f, &vast, HALAY_FLOAT32, 0, &k));
    REFUSED(halay_trainer_allgather_shaped(t, "a", f, &scalar, HALAY_FLOAT32, &k));
    REFUSED(halay_trainer_reduce_scatter(t, "a", f, f + 1, &scalar, HALAY_FLOAT32, HALAY_SUM, 1, 1,
                                         &k));
    REFUSED(halay_trainer_reduce_scatter(t, "a", f, f, &(halay_dims_t){1, {2}}, HALAY_FLOAT32,
                                         HALAY_SUM, 1, 1, &k));
    REFUSED(halay_trainer_allgather_shaped(t, "a", f, &rows, HALAY_FLOAT32, &k));
    REFUSED(halay_trainer_alltoall(NULL, "a", f, fit, &two, HALAY_FLOAT32, &k));
    REFUSED(halay_trainer_alltoall(t, "a", f, NULL, &two, HALAY_FLOAT32, &k));
    REFUSED(halay_trainer_alltoall(t, "a", f, fit, NULL, HALAY_FLOAT32, &k));
    REFUSED(halay_trainer_alltoall(t, "a", f, fit, &scalar, HALAY_FLOAT32, &k));
    REFUSED(halay_trainer_alltoall(t, "a", f, fit, &rows, HALAY_FLOAT32, &k));
    REFUSED(halay_trainer_alltoall(t, "a", f, over, &two, HALAY_FLOAT32, &k));
    REFUSED(halay_trainer_alltoall(t, "a", NULL, fit, &two, HALAY_FLOAT32, &k));
    if (rank->nranks > 1)
        REFUSED(halay_trainer_alltoall(t, "a", f, more, &two, HALAY_FLOAT32, &k));
    REFUSED(halay_trainer_allreduce_shaped(t, "a", NULL, f, &scalar, HALAY_FLOAT32, HALAY_SUM, 1, 1,
                                           &k));
#undef REFUSED
    halay_trainer_destroy(NULL);
    halay_trainer_release(NULL, 1);
    CHECK(halay_trainer_wait(NULL, 1, NULL, 0) == HALAY_EINVAL, "no trainer");
    still_works(rank);
}

/* ------------------------------------------------------------------ deadlines */

/* All but the last submit: they hear who is missing, once the deadline has passed. */
static void lonely(struct rank *rank)
{
    int last = rank->nranks - 1;
    float value[3] = {1, 2, 3};
    char text[1024], want[64];
    halay_ticket_t ticket;
    double deadline = deadline_s();
    for (int round = 0; round < 2; round++) {
        if (rank->rank != last) {
            uint64_t start_ns = clock_ns(CLOCK_MONOTONIC);
            uint64_t cpu_ns = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
            CHECK(!halay_trainer_allreduce(rank->trainer, "lonely", value, value, 3, HALAY_FLOAT32,
                                           HALAY_SUM, 1, 1, &ticket),
                  "submit");
            int rc = halay_trainer_wait(rank->trainer, ticket, text, sizeof(text));
            double took = (double)(clock_ns(CLOCK_MONOTONIC) - start_ns) * 1e-9;
            double cpu = (double)(clock_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu_ns) * 1e-9;
            CHECK(rc == HALAY_ETIMEOUT, "%d: %s", rc, text);
            CHECK(cpu < took / 4, "waiting for %.3f s took %.3f s of CPU", took, cpu);
            halay_trainer_release(rank->trainer, ticket);
            snprintf(want, sizeof(want), " waited for %.1f s; not submitted by rank %d (", deadline,
                     last);
            CHECK(strstr(text, "'lonely'") && strstr(text, want), "%s", text);
            CHECK(took > deadline * 0.5 && took < deadline + 3, "after %.3f s", took);
        }
        meet(rank);
        /* The late one is too late, and hears it. */
        if (rank->rank == last) {
            CHECK(!halay_trainer_barrier(rank->trainer, "lonely", &ticket), "submit");
            int rc = halay_trainer_wait(rank->trainer, ticket, text, sizeof(text));
            CHECK(rc == HALAY_ETIMEOUT && strstr(text, "not submitted by rank 0"), "%d: %s", rc,
                  text);
            halay_trainer_release(rank->trainer, ticket);
        }
        meet(rank);
        still_works(rank);
    }
}

/*
 * Submissions race with deadlines. Which wins is not known, but no rank hangs, and a tensor that is
 * good on one rank is good on all.
 */
static void races(struct rank *rank)
{
    enum { RACES = 8 };
    for (int round = 0; round < 3; round++) {
        int64_t values[RACES];
        halay_ticket_t tickets[RACES];
        char name[16];
        int late = rank->rank != round % rank->nranks, good = 0;
        meet(rank);
        if (late)
            usleep(375000);
        for (int i = 0; i < RACES; i++) {
            if (late)
                usleep((useconds_t)(draw(&rank->seed) % (50000 / RACES)));
            values[i] = rank->rank + 1;
            snprintf(name, sizeof(name), "race.%d", i);
            CHECK(!halay_trainer_allreduce(rank->trainer, name, &values[i], &values[i], 1,
                                           HALAY_INT64, HALAY_SUM, 1, 1, &tickets[i]),
                  "submit");
        }
        for (int i = 0; i < RACES; i++) {
            char *text = rank->ranks->texts[rank->rank];
            int rc = halay_trainer_wait(rank->trainer, tickets[i], text, 1024);
            halay_trainer_release(rank->trainer, tickets[i]);
            CHECK(rc == 0 || rc == HALAY_ETIMEOUT, "%d: %s", rc, text);
            CHECK(rc || values[i] == rank->nranks * (rank->nranks + 1) / 2, "sum %lld",
                  (long long)values[i]);
            good |= !rc << i;
        }
        rank->ranks->codes[rank->rank] = good;
        meet(rank);
        for (int r = 0; r < rank->nranks; r++)
            CHECK(good == rank->ranks->codes[r], "%#x here, on rank %d %#x: %s", good, r,
                  rank->ranks->codes[r], rank->ranks->texts[r]);
    }
}

/* Long computation between tensors is no error: nothing is out, so no deadline runs. */
static void timeout(struct rank *rank)
{
    still_works(rank);
    usleep((useconds_t)(deadline_s() * 1.3e6));
    still_works(rank);
    /* Not even where one rank alone computes, as long as the others wait for less than it. */
    if (rank->rank == 0)
        usleep((useconds_t)(deadline_s() * 0.5e6));
    still_works(rank);
}

/* ------------------------------------------------------------------ in mid-programme */

enum { LAYERS = 12 };

static halay_ticket_t layer(struct rank *rank, int t, int64_t *value, size_t count)
{
    char name[32];
    halay_ticket_t ticket;
    snprintf(name, sizeof(name), "layer.%d", t);
    value[0] = rank->rank + 1 + t;
    int rc = halay_trainer_allreduce(rank->trainer, name, value, value, count,
                                     t % 2 ? HALAY_INT64 : HALAY_UINT64, HALAY_SUM, 1, 1, &ticket);
    CHECK(!rc, "submit: %d", rc);
    return ticket;
}

static void layer_check(struct rank *rank, int t, const int64_t *value)
{
    CHECK(value[0] == rank->nranks * (rank->nranks + 1) / 2 + rank->nranks * t, "layer %d: %lld", t,
          (long long)value[0]);
}

/* `without` is left out. */
static void layers(struct rank *rank, int steps, int without)
{
    int order[LAYERS];
    int64_t values[LAYERS][2] = {{0}};
    halay_ticket_t tickets[LAYERS] = {0};
    for (int step = 0; step < steps; step++) {
        shuffle(order, LAYERS, &rank->seed);
        for (int i = 0; i < LAYERS; i++)
            if (order[i] != without)
                tickets[order[i]] = layer(rank, order[i], values[order[i]], 1);
        for (int t = 0; t < LAYERS; t++) {
            if (t == without)
                continue;
            finish(rank, tickets[t], 0);
            layer_check(rank, t, values[t]);
        }
    }
}

static halay_trainer_counters_t replayed(struct rank *rank)
{
    halay_trainer_counters_t now = counters(rank);
    CHECK(now.cycles, "nothing is replayed");
    return now;
}

/* One rank does in mid-programme what no other does; the others submit what they always do. */
static void deviate(struct rank *rank, int who, char what)
{
    int64_t values[LAYERS][2] = {{0}}, more[2] = {rank->rank};
    halay_ticket_t tickets[LAYERS], extra = 0;
    char text[1024];
    int mine = rank->rank == who;
    if (mine && what == 'o') { /* waits for the last before it submits the first ones */
        for (int t = LAYERS - 1; t >= 0; t--) {
            tickets[t] = layer(rank, t, values[t], 1);
            if (t == 9 || t == 4)
                CHECK(!halay_trainer_wait(rank->trainer, tickets[t], NULL, 0), "wait");
        }
    }
    for (int t = 0; t < LAYERS && !(mine && what == 'o'); t++) {
        if (mine && what == 's' && t == 5)
            usleep((useconds_t)(deadline_s() * 0.5e6));
        if (mine && what == 'm' && t == 5)
            tickets[t] = 0;
        else
            tickets[t] = layer(rank, t, values[t], mine && what == 'c' && t == 5 ? 2 : 1);
    }
    if (mine && (what == 'a' || what == 'm'))
        CHECK(!halay_trainer_allreduce(rank->trainer, "more", more, more, 1, HALAY_INT64, HALAY_SUM,
                                       1, 1, &extra),
              "submit");
    for (int t = 0; t < LAYERS; t++) {
        if (!tickets[t])
            continue;
        int rc = halay_trainer_wait(rank->trainer, tickets[t], text, sizeof(text));
        int want = t != 5 ? 0 : what == 'c' ? HALAY_EMISMATCH : what == 'm' ? HALAY_ETIMEOUT : 0;
        CHECK(rc == want, "'%c', layer %d: %d %s", what, t, rc, text);
        CHECK(what != 'c' || t != 5 || (strstr(text, " 1 int64") && strstr(text, " 2 int64")), "%s",
              text);
        if (rc == HALAY_ETIMEOUT) {
            char missing[32];
            snprintf(missing, sizeof(missing), "by rank %d (inproc", who);
            CHECK(strstr(text, "'layer.5'") && strstr(text, missing), "%s", text);
        }
        if (!rc)
            layer_check(rank, t, values[t]);
        else
            CHECK(values[t][0] == rank->rank + 1 + t, "an input has changed");
        halay_trainer_release(rank->trainer, tickets[t]);
    }
    if (extra)
        finish(rank, extra, HALAY_ETIMEOUT);
}

/*
 * On one rank a tensor is missing, is one more, is late, comes in an order that needs waits, or has
 * another shape: each time the others hear it or are served, and afterwards steps are replayed.
 */
static void deviations(struct rank *rank)
{
    static const char whats[] = "somca";
    for (int i = 0; whats[i]; i++) {
        int who = i % rank->nranks;
        layers(rank, 6, -1);
        replayed(rank);
        meet(rank);
        uint64_t start_ns = clock_ns(CLOCK_MONOTONIC);
        deviate(rank, who, whats[i]);
        double took = (double)(clock_ns(CLOCK_MONOTONIC) - start_ns) * 1e-9;
        CHECK(took < deadline_s() + 5, "'%c' took %.3f s", whats[i], took);
        meet(rank);
        halay_trainer_counters_t before = replayed(rank);
        layers(rank, 9, -1);
        uint64_t cycles = replayed(rank).cycles - before.cycles;
        CHECK(cycles >= 7, "'%c': of 9 steps %d are replayed", whats[i], (int)cycles);
        layers(rank, 4, 3); /* all ranks alike */
    }
}

/* ------------------------------------------------------------------ groups */

enum { MEMBERS = 40 };

struct group {
    char names[MEMBERS][32];
    halay_reduction_t says[MEMBERS];
    const void *in[MEMBERS];
    void *out[MEMBERS];
    halay_ticket_t tickets[MEMBERS];
    int64_t value[MEMBERS][2], sum[MEMBERS][2];
};

static void group_fill(struct rank *rank, struct group *group)
{
    for (int i = 0; i < MEMBERS; i++) {
        snprintf(group->names[i], sizeof(group->names[i]), "member.%d", i);
        group->in[i] = group->value[i];
        group->out[i] = group->sum[i];
        group->says[i] = (halay_reduction_t){sizeof(halay_reduction_t),
                                             group->names[i],
                                             {1, {1}},
                                             i % 3 ? HALAY_INT64 : HALAY_UINT64,
                                             HALAY_SUM,
                                             1,
                                             1};
        group->value[i][0] = rank->rank + i;
        group->sum[i][0] = -7;
    }
}

static int group_submit(struct rank *rank, struct group *group)
{
    return halay_trainer_allreduce_group(rank->trainer, MEMBERS, group->says, group->in, group->out,
                                         group->tickets);
}

static void group_finish(struct rank *rank, struct group *group, int code)
{
    char text[1024];
    for (int i = 0; i < MEMBERS; i++) {
        int rc = halay_trainer_wait(rank->trainer, group->tickets[i], text, sizeof(text));
        CHECK(rc == code, "member %d: %d, not %d: %s", i, rc, code, text);
        CHECK(group->sum[i][0] ==
                  (code ? -7 : rank->nranks * (rank->nranks - 1) / 2 + rank->nranks * i),
              "member %d: %lld", i, (long long)group->sum[i][0]);
        halay_trainer_release(rank->trainer, group->tickets[i]);
    }
}

/*
 * All or nothing: with a member that one rank shapes otherwise, with a rank that does not submit
 * it, with a name that is out; negotiated, and in mid-programme.
 */
static void groups(struct rank *rank)
{
    struct group *group = calloc(1, sizeof(*group));
    CHECK(group, "memory");
    for (int step = 0; step < 16; step++) {
        int odd = rank->rank == (step + step / 8) % rank->nranks, kind = step % 8;
        group_fill(rank, group);
        if (kind == 5) {
            if (odd && step < 8) /* as many elements, in another shape */
                group->says[MEMBERS - 1].shape = (halay_dims_t){2, {1, 1}};
            else if (odd)
                group->says[MEMBERS - 1].shape.dims[0] = 2;
            CHECK(!group_submit(rank, group), "submit");
            group_finish(rank, group, HALAY_EMISMATCH);
        } else if (kind == 6) {
            CHECK(odd || !group_submit(rank, group), "submit");
            if (!odd)
                group_finish(rank, group, HALAY_ETIMEOUT);
        } else if (kind == 7) {
            halay_ticket_t ticket, kept = group->tickets[1];
            CHECK(!halay_trainer_barrier(rank->trainer, "member.20", &ticket), "submit");
            int rc = group_submit(rank, group);
            if (rc == 0) { /* the barrier was over already */
                finish(rank, ticket, 0);
                group_finish(rank, group, 0);
            } else {
                CHECK(rc == HALAY_EINVAL && kept, "a name that is out: %d", rc);
                finish(rank, ticket, 0);
                CHECK(!group_submit(rank, group), "nothing of it is left");
                group_finish(rank, group, 0);
            }
        } else {
            CHECK(!group_submit(rank, group), "submit");
            group_finish(rank, group, 0);
        }
        meet(rank);
    }
    group->says[3].shape.dims[0] = SIZE_MAX;
    CHECK(group_submit(rank, group) == HALAY_EINVAL, "a count");
    group->says[3].shape.dims[0] = 1;
    group->says[2].size = 8;
    CHECK(group_submit(rank, group) == HALAY_EINVAL, "a size that is another's");
    CHECK(halay_trainer_allreduce_group(rank->trainer, 0, group->says, group->in, group->out,
                                        group->tickets) == HALAY_EINVAL,
          "an empty group");
    free(group);
    still_works(rank);
}

/* The last rank stops in mid-step: it never submits, and the others hear which tensor and who. */
static void silent(struct rank *rank)
{
    int64_t values[LAYERS][2] = {{0}};
    halay_ticket_t tickets[LAYERS];
    char text[1024], missing[64];
    int last = rank->nranks - 1;
    layers(rank, 5, -1);
    meet(rank);
    uint64_t start_ns = clock_ns(CLOCK_MONOTONIC);
    snprintf(missing, sizeof(missing), "not submitted by rank %d (inproc", last);
    for (int t = 0; t < LAYERS && rank->rank != last; t++)
        tickets[t] = layer(rank, t, values[t], 1);
    for (int t = 0; t < LAYERS && rank->rank != last; t++) {
        int rc = halay_trainer_wait(rank->trainer, tickets[t], text, sizeof(text));
        CHECK(rc == HALAY_ETIMEOUT && strstr(text, "'layer.") && strstr(text, missing), "%d: %s",
              rc, text);
        CHECK(values[t][0] == rank->rank + 1 + t, "an input has changed");
        halay_trainer_release(rank->trainer, tickets[t]);
    }
    double took = (double)(clock_ns(CLOCK_MONOTONIC) - start_ns) * 1e-9;
    CHECK(rank->rank == last || took < deadline_s() + 5, "after %.3f s", took);
    meet(rank);
    layers(rank, 5, -1);
}

/* The last rank dies in mid-step: all others hear it, of every tensor, and at once. */
static void dying(struct rank *rank)
{
    int64_t values[LAYERS][2] = {{0}};
    halay_ticket_t tickets[LAYERS];
    char text[1024], who[32];
    int last = rank->nranks - 1;
    layers(rank, 5, -1);
    meet(rank);
    if (rank->rank == last) {
        for (int t = 0; t < LAYERS / 2; t++)
            tickets[t] = layer(rank, t, values[t], 1);
        usleep(50000);
        halay_inproc_kill(rank->ranks->hub_rank[last].hub, last);
        halay_trainer_destroy(rank->trainer);
        rank->trainer = NULL;
        return;
    }
    uint64_t start_ns = clock_ns(CLOCK_MONOTONIC);
    snprintf(who, sizeof(who), "rank %d", last);
    for (int t = 0; t < LAYERS; t++)
        tickets[t] = layer(rank, t, values[t], 1);
    for (int t = 0; t < LAYERS; t++) {
        int rc = halay_trainer_wait(rank->trainer, tickets[t], text, sizeof(text));
        CHECK(rc == HALAY_EPEER && strstr(text, who) && strstr(text, "inproc"), "%d: %s", rc, text);
        CHECK(strstr(text, "tensor 'layer."), "%s", text);
        CHECK(values[t][0] == rank->rank + 1 + t, "an input has changed");
        halay_trainer_release(rank->trainer, tickets[t]);
    }
    double took = (double)(clock_ns(CLOCK_MONOTONIC) - start_ns) * 1e-9;
    CHECK(took < deadline_s(), "after %.3f s", took);
    halay_trainer_destroy(rank->trainer);
    rank->trainer = NULL;
}

/* ------------------------------------------------------------------ leaving */

struct waiter {
    struct rank *rank;
    halay_ticket_t ticket;
};

static void *wait_for_state(void *arg)
{
    struct waiter *waiter = arg;
    char text[1024];
    int rc = halay_trainer_wait(waiter->rank->trainer, waiter->ticket, text, sizeof(text));
    CHECK(rc == HALAY_ESTATE && strstr(text, "destroyed"), "%d: %s", rc, text);
    return NULL;
}

/* A thread that has not come to its wait yet would find its trainer gone. */
static void until_waited_for(halay_trainer_t *trainer)
{
    for (int waiters = 0; !waiters; usleep(1000)) {
        pthread_mutex_lock(&trainer->mutex);
        waiters = trainer->callers.waiters;
        pthread_mutex_unlock(&trainer->mutex);
    }
}

/*
 * Rank 0 leaves while others wait for it and while a thread of its own waits for them. They hear it
 * at once, and so does what they submit later.
 */
static void leaving(struct rank *rank)
{
    char text[1024];
    halay_ticket_t ticket;
    float value[2] = {0};
    if (rank->rank == 0) {
        pthread_t thread;
        CHECK(!halay_trainer_barrier(rank->trainer, "alone", &ticket), "submit");
        struct waiter waiter = {rank, ticket};
        pthread_create(&thread, NULL, wait_for_state, &waiter);
        meet(rank);
        until_waited_for(rank->trainer);
        halay_trainer_destroy(rank->trainer);
        pthread_join(thread, NULL);
        CHECK(!halay_finalize(rank->context), "something was in flight");
        rank->trainer = NULL;
        rank->context = NULL;
        return;
    }
    CHECK(!halay_trainer_allreduce(rank->trainer, "with all", value, value, 2, HALAY_FLOAT32,
                                   HALAY_SUM, 1, 1, &ticket),
          "submit");
    meet(rank);
    uint64_t start_ns = clock_ns(CLOCK_MONOTONIC);
    for (int i = 0; i < 3; i++) {
        int rc = halay_trainer_wait(rank->trainer, ticket, text, sizeof(text));
        CHECK(rc == HALAY_EPEER && text[0], "%d: %s", rc, text);
        halay_trainer_release(rank->trainer, ticket);
        int again = halay_trainer_barrier(rank->trainer, "later", &ticket);
        CHECK(!again, "submit: %d", again);
    }
    double took = (double)(clock_ns(CLOCK_MONOTONIC) - start_ns) * 1e-9;
    CHECK(took < deadline_s(), "after %.3f s", took);
    halay_trainer_destroy(rank->trainer);
    rank->trainer = NULL;
}

/* As many as may be out, and one more; then all of them end with their trainer. */
static void too_many(struct rank *rank)
{
    char name[32];
    halay_ticket_t ticket, first = 0;
    if (rank->rank == 0) {
        for (int i = 0; i < 65536; i++) {
            snprintf(name, sizeof(name), "many.%d", i);
            int rc = halay_trainer_barrier(rank->trainer, name, &ticket);
            CHECK(!rc, "number %d: %d", i, rc);
            first = first ? first : ticket;
        }
        CHECK(halay_trainer_barrier(rank->trainer, "many.65536", &ticket) == HALAY_ENOMEM, "more");
        CHECK(halay_trainer_poll(rank->trainer, first) == 0, "no other rank has submitted it");
    }
    meet(rank);
}

static void forked(struct rank *rank)
{
    still_works(rank);
    meet(rank);
    if (rank->rank == 0) {
        int status;
        pid_t child = fork();
        if (!child) {
            halay_ticket_t ticket;
            int rc = halay_trainer_barrier(rank->trainer, "child", &ticket);
            rc = rc == HALAY_EFORKED ? halay_trainer_wait(rank->trainer, 1, NULL, 0) : rc;
            rc = rc == HALAY_EFORKED ? halay_trainer_poll(rank->trainer, 1) : rc;
            halay_trainer_release(rank->trainer, 1);
            halay_trainer_destroy(rank->trainer);
            _exit(rc == HALAY_EFORKED ? 5 : 6);
        }
        CHECK(child > 0 && waitpid(child, &status, 0) == child, "fork");
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 5, "the child was not refused");
    }
    meet(rank);
    still_works(rank);
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        {"mismatch", mismatch, {2, 3, 5}},
        {"duplicates", duplicates, {2, 3, 5}},
        {"arguments", arguments, {1, 2, 3}},
        {"lonely", lonely, {2, 5}, "0.6"},
        {"lonely, configured", lonely, {2}, .config_ns = 2000000000},
        {"lonely, set", lonely, {3}, .config_ns = 50000000000, .set_ns = 2000000000},
        {"races", races, {2, 3}, "0.4"},
        {"timeout", timeout, {3}, "1"},
        {"leaving", leaving, {2, 3, 5}, "10"},
        {"too many", too_many, {2, 3}},
        {"forked", forked, {1, 3}},
        {"deviations", deviations, {2, 3, 5}, "1"},
        {"groups", groups, {2, 5}, "1"},
        {"silent", silent, {2, 5}, "1"},
        {"dying", dying, {2, 3, 5}, "10"},
        {NULL},
    };
    return run_cases(cases, argc, argv);
}
