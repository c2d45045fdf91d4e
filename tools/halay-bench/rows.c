/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rows.c - of `halay-bench calibrate`: for each collective and size, whether another algorithm is
 * faster here than the one that would be chosen, and by how much.
 *
 * The default and the few that the model predicts to be fastest have a communicator each, so that
 * their calls take turns. The best replaces the default only where it is better by GAIN in two more
 * measurements, of pairs, and in nearly all pairs: where noise is all that differs, that happens
 * once in thousands. Every decision is taken on numbers that all ranks have agreed on.
 */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench.h"

#define GAIN     0.97 /* of the default's time, or less */
#define ROUNDS   5
#define PAIRS    9
#define WINS     8 /* of these, at least; 2 % by chance */
#define SLOW     2 /* times the fastest at first sight: it takes part no longer */
#define BATCH_NS 1.5e6
#define CALLS    1024
#define WARM_NS  50e6 /* of a call: another one tells no more */

enum { SIZES = 10, LANES = 5, LEAST_BYTES = 16 }; /* 16 bytes, and 4 times more each: to 4 MiB */

static const halay_collective_t all[] = {HALAY_ALLREDUCE, HALAY_BROADCAST, HALAY_REDUCE_SCATTER,
                                         HALAY_ALLGATHER, HALAY_ALLTOALL,  HALAY_REDUCE};
enum { COLLECTIVES = sizeof all / sizeof all[0] };

struct lane {
    halay_comm_t *comm;
    uint32_t planner;
    bool slow;
    double ns[PAIRS]; /* a call, of each round */
};

struct field {
    const halay_topology_t *t;
    const halay_model_t *model;
    halay_selection_t *plain; /* the table's rows alone */
    halay_shape_t *shape;
    halay_comm_t *world;
    struct lane lane[LANES]; /* the default first */
    int lanes;
    struct hly_bench bench;
    struct hly_data data;
    double end_ns, last_ns[COLLECTIVES]; /* last: that the size before took */
};

static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(const double *of, int n)
{
    double sorted[PAIRS];
    memcpy(sorted, of, (size_t)n * sizeof *of);
    qsort(sorted, (size_t)n, sizeof *sorted, compare);
    return sorted[n / 2];
}

/* ---------------------------------------------------------------- who takes part */

/* Elements of a call of which the rows see so many bytes. */
static size_t count_of(const struct field *f, size_t bytes)
{
    const halay_collective_t c = f->bench.collective;
    const bool blocks = c == HALAY_ALLGATHER || c == HALAY_REDUCE_SCATTER || c == HALAY_ALLTOALL;
    return bytes / 4 / (blocks ? (size_t)f->t->nranks : 1);
}

static halay_question_t question(const struct field *f, size_t count)
{
    return (halay_question_t){.collective = (uint32_t)f->bench.collective,
                              .commutative = 1,
                              .element_bytes = 4,
                              .count = count,
                              .oversubscribed = (uint32_t)f->t->oversubscribed,
                              .shape = f->shape};
}

static bool serves(const struct field *f, uint32_t planner, size_t count)
{
    const halay_collective_t c = f->bench.collective;
    const bool rooted = c == HALAY_REDUCE; /* its planners are to serve in place, too */
    const bool whole = c == HALAY_ALLREDUCE || c == HALAY_BROADCAST || rooted;
    const halay_planner_call_t call = {.nranks = (uint32_t)f->t->nranks,
                                       .count = whole ? count / (size_t)f->t->nranks : count,
                                       .in_place = rooted,
                                       .commutative = 1,
                                       .scattered = f->shape->hash & HALAY_SHAPE_SCATTERED,
                                       .nodes = f->shape->nnodes,
                                       .uneven = f->shape->smallest != f->shape->largest};
    return halay_planner_serves(planner, &call, NULL);
}

/* The default, and those with the least predicted times, which is the same on all ranks. */
static int choose_lanes(struct field *f, size_t count)
{
    const halay_question_t q = question(f, count);
    halay_explanation_t *e;
    double ns[LANES] = {0};
    int rc = halay_explain(f->plain, &q, &e);
    f->lanes = 0;
    if (rc || e->chosen == UINT32_MAX) {
        if (!rc)
            halay_explanation_free(e);
        return rc;
    }
    f->lane[f->lanes++].planner = e->candidate[e->chosen].planner;
    for (uint32_t i = 0; i < e->ncandidates; i++) {
        const uint32_t planner = e->candidate[i].planner;
        halay_cost_t cost = {.size = sizeof cost};
        if (i == e->chosen || e->candidate[i].refused || !serves(f, planner, count) ||
            halay_planner_cost(planner, &q, f->model, &cost))
            continue;
        int at = f->lanes < LANES ? f->lanes++ : LANES;
        for (; at > 1 && ns[at - 1] > cost.predicted_ns; at--)
            if (at < LANES) {
                ns[at] = ns[at - 1];
                f->lane[at].planner = f->lane[at - 1].planner;
            }
        if (at < LANES) {
            ns[at] = cost.predicted_ns;
            f->lane[at].planner = planner;
        }
    }
    halay_explanation_free(e);
    return HALAY_OK;
}

/* ---------------------------------------------------------------- the clock */

static int agree(const struct field *f, double *ns)
{
    return halay_allreduce(HALAY_IN_PLACE, ns, 1, HALAY_FLOAT64, HALAY_MAX, f->world);
}

static int batch(const struct field *f, const struct lane *lane, size_t count, int calls,
                 double *ns)
{
    int rc = halay_barrier(f->world);
    const double start = now_ns();
    for (int i = 0; i < calls && !rc; i++)
        rc = hly_call(&f->bench, &f->data, lane->comm, count);
    *ns = (now_ns() - start) / calls;
    return rc ? rc : agree(f, ns);
}

/* Makes and proves the plan, looks at what comes out, and finds how many calls make a batch. */
static int warm(struct field *f, struct lane *lane, size_t count, int *calls)
{
    double ns = 0, wrong;
    int rc = halay_comm_set_hint(lane->comm, HALAY_HINT_PLANNER, (int)lane->planner);
    hly_data_prepare(&f->data, count);
    if (!rc)
        rc = hly_call(&f->bench, &f->data, lane->comm, count);
    wrong = !rc && !hly_data_valid(&f->data, count);
    if (!rc)
        rc = agree(f, &wrong);
    if (!rc && wrong > 0) {
        if (f->t->rank == 0)
            fprintf(stderr, "halay-bench: wrong data from %s\n",
                    halay_planner_get(lane->planner)->name);
        return HALAY_EINTERNAL;
    }
    for (int i = 1; i <= 2 && !rc && ns < WARM_NS; i++)
        rc = batch(f, lane, count, i, &ns);
    const double fit = BATCH_NS / (ns > 1 ? ns : 1);
    const int most = fit < 1 ? 1 : fit > CALLS ? CALLS : (int)fit;
    *calls = *calls > most || !*calls ? most : *calls;
    lane->ns[0] = ns;
    return rc;
}

/* Those of which one look is enough; never the default. */
static void leave_slow(struct field *f)
{
    double least = f->lane[0].ns[0];
    for (int i = 1; i < f->lanes; i++)
        least = f->lane[i].ns[0] < least ? f->lane[i].ns[0] : least;
    for (int i = 0; i < f->lanes; i++)
        f->lane[i].slow = i && f->lane[i].ns[0] > SLOW * least;
}

/* Lanes from..to in turns, every other round backwards. */
static int rounds(struct field *f, int other, int n, size_t count, int calls)
{
    int rc = HALAY_OK;
    for (int round = 0; round < n && !rc; round++)
        for (int i = 0; i < f->lanes && !rc; i++) {
            struct lane *lane = &f->lane[round % 2 ? f->lanes - 1 - i : i];
            if (!other ? !lane->slow : lane == &f->lane[0] || lane == &f->lane[other])
                rc = batch(f, lane, count, calls, &lane->ns[round]);
        }
    return rc;
}

/* Whether it is faster than the default. */
static int confirm(struct field *f, int best, size_t count, int calls, struct hly_found *found,
                   bool *better)
{
    double ratio[PAIRS];
    int rc = rounds(f, best, PAIRS, count, calls), wins = 0;
    for (int i = 0; i < PAIRS && !rc; i++) {
        ratio[i] = f->lane[best].ns[i] / f->lane[0].ns[i];
        wins += ratio[i] < 1;
    }
    if (rc)
        return rc;
    found->default_ns = median(f->lane[0].ns, PAIRS);
    found->chosen_ns = median(f->lane[best].ns, PAIRS);
    *better = wins >= WINS && median(ratio, PAIRS) <= GAIN &&
              found->chosen_ns <= GAIN * found->default_ns;
    return HALAY_OK;
}

static int measure(struct field *f, size_t count, struct hly_found *found)
{
    int rc = choose_lanes(f, count), calls = 0, best = 0;
    if (rc || !f->lanes)
        return rc;
    for (int i = 0; i < f->lanes && !rc; i++)
        rc = warm(f, &f->lane[i], count, &calls);
    if (!rc) {
        leave_slow(f);
        rc = rounds(f, 0, ROUNDS, count, calls);
    }
    for (int i = 1; i < f->lanes && !rc; i++)
        if (!f->lane[i].slow && median(f->lane[i].ns, ROUNDS) < median(f->lane[best].ns, ROUNDS))
            best = i;
    if (rc)
        return rc;
    found->by_default = found->chosen = f->lane[0].planner;
    found->default_ns = found->chosen_ns = median(f->lane[0].ns, ROUNDS);
    if (!best || median(f->lane[best].ns, ROUNDS) > GAIN * found->default_ns)
        return HALAY_OK;
    bool better = true;
    for (int i = 0; i < 2 && better && !rc; i++)
        rc = confirm(f, best, count, calls, found, &better);
    if (!rc && better)
        found->chosen = f->lane[best].planner;
    else
        found->chosen_ns = found->default_ns;
    return rc;
}

/* ---------------------------------------------------------------- all of it */

static void print(const struct field *f, size_t bytes, const struct hly_found *found)
{
    const bool same = found->chosen == found->by_default;
    printf("%-15s %9zu  %-22s %10.2f  %-22s %10.2f %6.1f%%\n",
           halay_collective_name(f->bench.collective), bytes,
           halay_planner_get(found->by_default)->name, found->default_ns / 1e3,
           same ? "-" : halay_planner_get(found->chosen)->name, found->chosen_ns / 1e3,
           100 * (1 - found->chosen_ns / found->default_ns));
    fflush(stdout);
}

/* One cell of the table. *cut: the time is over, or would be. */
static int measure_cell(struct field *f, int c, int size, struct hly_found *found, bool *cut)
{
    const size_t bytes = (size_t)LEAST_BYTES << 2 * size;
    const bool gathers = all[c] == HALAY_ALLGATHER;
    const double begin = now_ns();
    double over = begin + f->last_ns[c] > f->end_ns;
    f->bench.collective = all[c];
    f->bench.max_bytes = gathers ? bytes / (size_t)f->t->nranks : bytes;
    *found = (struct hly_found){
        .collective = (uint32_t)all[c], .least = size ? bytes / 2 + 1 : 0, .most = bytes * 2};
    const size_t count = count_of(f, bytes);
    int rc = agree(f, &over);
    *cut = *cut || over > 0;
    if (rc || over > 0 || !count)
        return rc;
    rc = hly_data_create(&f->data, &f->bench, f->t->rank, f->t->nranks);
    if (rc)
        return rc;
    rc = measure(f, count, found);
    hly_data_destroy(&f->data);
    f->last_ns[c] = now_ns() - begin;
    if (!rc && f->lanes && f->t->rank == 0)
        print(f, bytes, found);
    return rc;
}

/* A row for each run of sizes that have the same winner; where the default stays there is none. */
static void make_rows(struct hly_found cell[][SIZES], struct hly_finding *out)
{
    struct hly_found *last = NULL;
    for (int c = 0; c < COLLECTIVES; c++)
        for (int size = 0; size < SIZES; size++) {
            const struct hly_found *it = &cell[c][size];
            if (it->chosen == it->by_default)
                continue;
            if (last && last->collective == it->collective && last->chosen == it->chosen &&
                last->most + 1 == it->least) {
                last->most = it->most;
            } else {
                last = &out->row[out->n++];
                *last = *it;
            }
        }
}

/* All collectives of a size, then the next one: if time is short, the long calls are left out. */
static int measure_all(struct field *f, struct hly_finding *out)
{
    struct hly_found cell[COLLECTIVES][SIZES];
    int rc = HALAY_OK;
    memset(cell, 0, sizeof cell);
    if (f->t->rank == 0)
        printf("%-15s %9s  %-22s %10s  %-22s %10s %7s\n", "collective", "bytes", "default", "us",
               "faster", "us", "gain");
    for (int size = 0; size < SIZES && !rc; size++)
        for (int c = 0; c < COLLECTIVES && !rc; c++)
            rc = measure_cell(f, c, size, &cell[c][size], &out->cut);
    if (rc)
        return rc;
    make_rows(cell, out);
    if (out->cut && f->t->rank == 0)
        printf("the time is over (--seconds): what is not listed was not measured, and stays as it "
               "is\n");
    return rc;
}

int hly_bench_rows(halay_comm_t *world, const halay_topology_t *t, const int32_t *node,
                   const halay_model_t *model, double end_ns, struct hly_finding *out)
{
    struct field f = {.t = t, .model = model, .world = world, .end_ns = end_ns};
    _Static_assert((int)COLLECTIVES * (int)SIZES <= (int)HLY_FOUND_MAX, "room for each");
    f.bench = (struct hly_bench){.type = HALAY_FLOAT32, .op = HALAY_SUM};
    *out = (struct hly_finding){0};
    int rc = halay_selection_make(NULL, NULL, NULL, NULL, 0, &f.plain);
    if (!rc)
        rc = halay_shape_make((const uint32_t *)node, (uint32_t)t->nranks, &f.shape);
    for (int i = 0; i < LANES && !rc; i++)
        rc = halay_comm_dup(world, &f.lane[i].comm);
    if (!rc)
        rc = measure_all(&f, out);
    for (int i = 0; i < LANES; i++)
        if (f.lane[i].comm)
            halay_comm_free(f.lane[i].comm);
    halay_shape_free(f.shape);
    halay_selection_free(f.plain);
    return rc;
}
