/* SPDX-License-Identifier: Apache-2.0 */
/*
 * calibrate.c - `halay-bench calibrate`: measures the constants of halay_model_t with calls of one
 * and of two ranks, whose plans are known, and writes them to a file; or goes on to rows.c, which
 * is to know from them what is worth a try.
 *
 *   a barrier of one rank              call
 *   an allreduce of one rank, n bytes  call + step + n copy_byte
 *   barriers of two ranks, many under way at once
 *                                      call + 2 step + 2 overhead: what the processors do
 *   a barrier of two ranks             the same, and the latency
 *   a broadcast of two ranks           ... and n byte
 *   an allreduce of two ranks          ... and n (byte + reduce_byte)
 *
 * Times are medians over batches; lines through them are fitted by least squares of the relative
 * errors, in which what is far off counts less (Huber).
 */
#include <errno.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../../common/calibration.h"
#include "bench.h"

#define BATCHES     15
#define BATCHES_FEW 5 /* to see what is worth a try */
#define BATCH_NS    2e6
#define CALLS_MAX   4096
#define SIZES       9 /* 64 bytes, and 4 times more each: to 4 MiB */
#define AT_ONCE     16
#define BYTES_MOST  (64u << 2 * (SIZES - 1))

enum what { BARRIER, BARRIERS, BROADCAST, ALLREDUCE };

struct bed {
    halay_comm_t *comm;
    int nranks;
    int batches;
    char *in, *out;
};

struct line { /* at_ns + bytes * byte_ns, and jump_ns more for what is announced */
    double at_ns, byte_ns, jump_ns;
};

static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static int barriers(halay_comm_t *comm)
{
    halay_request_t *request[AT_ONCE];
    int made = 0, rc = HALAY_OK;
    while (made < AT_ONCE && !rc) {
        rc = halay_ibarrier(comm, &request[made]);
        made += !rc;
    }
    for (int i = 0; i < made; i++) {
        int failed = halay_request_wait(request[i]);
        rc = rc ? rc : failed;
    }
    return rc;
}

static int call(const struct bed *bed, enum what what, size_t bytes)
{
    switch (what) {
    case BARRIER:
        return halay_barrier(bed->comm);
    case BARRIERS:
        return barriers(bed->comm);
    case BROADCAST:
        return halay_broadcast(bed->out, bytes, HALAY_INT8, 0, bed->comm);
    default:
        return halay_allreduce(bed->in, bed->out, bytes / 4, HALAY_FLOAT32, HALAY_SUM, bed->comm);
    }
}

static int batch(const struct bed *bed, enum what what, size_t bytes, int calls, double *ns)
{
    int rc = halay_barrier(bed->comm);
    double start = now_ns();
    for (int i = 0; i < calls && !rc; i++)
        rc = call(bed, what, bytes);
    *ns = (now_ns() - start) / calls;
    if (!rc)
        rc = halay_allreduce(HALAY_IN_PLACE, ns, 1, HALAY_FLOAT64, HALAY_MAX, bed->comm);
    return rc;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* The time of one call. All ranks agree on every batch's time, and so on how many calls follow. */
static int measure(const struct bed *bed, enum what what, size_t bytes, double *ns)
{
    double took[BATCHES];
    int rc = batch(bed, what, bytes, 3, ns); /* connects, proves */
    if (!rc)
        rc = batch(bed, what, bytes, 3, ns);
    double fit = BATCH_NS / (*ns > 1 ? *ns : 1);
    int calls = fit < 1 ? 1 : fit > CALLS_MAX ? CALLS_MAX : (int)fit;
    for (int i = 0; i < bed->batches && !rc; i++)
        rc = batch(bed, what, bytes, calls, &took[i]);
    if (rc)
        return rc;
    qsort(took, (size_t)bed->batches, sizeof took[0], compare);
    *ns = took[bed->batches / 2];
    return HALAY_OK;
}

/* ---------------------------------------------------------------- the fit */

/* Solves the n normal equations a x = b; a column without data gives 0. */
static void solve(double a[3][3], double b[3], int n, double x[3])
{
    for (int i = 0; i < n; i++) {
        if (fabs(a[i][i]) < 1e-30) {
            a[i][i] = 1;
            b[i] = 0;
        }
        for (int k = i + 1; k < n; k++) {
            double f = a[k][i] / a[i][i];
            for (int j = i; j < n; j++)
                a[k][j] -= f * a[i][j];
            b[k] -= f * b[i];
        }
    }
    for (int i = n - 1; i >= 0; i--) {
        x[i] = b[i];
        for (int j = i + 1; j < n; j++)
            x[i] -= a[i][j] * x[j];
        x[i] /= a[i][i];
    }
}

static double line_at(const struct line *l, double bytes, double eager)
{
    return l->at_ns + bytes * l->byte_ns + (bytes > eager ? l->jump_ns : 0);
}

static struct line fit(const double bytes[SIZES], const double ns[SIZES], double eager)
{
    double weight[SIZES], x[3] = {0};
    struct line l = {0, 0, 0};
    for (int i = 0; i < SIZES; i++)
        weight[i] = 1;
    for (int round = 0; round < 8; round++) {
        double a[3][3] = {{0}}, b[3] = {0};
        for (int i = 0; i < SIZES; i++) {
            const double column[3] = {1, bytes[i], bytes[i] > eager};
            double w = weight[i] / (ns[i] * ns[i]);
            for (int j = 0; j < 3; j++) {
                b[j] += w * column[j] * ns[i];
                for (int k = 0; k < 3; k++)
                    a[j][k] += w * column[j] * column[k];
            }
        }
        solve(a, b, 3, x);
        l = (struct line){x[0], x[1], x[2]};
        for (int i = 0; i < SIZES; i++) {
            double off = fabs(line_at(&l, bytes[i], eager) / ns[i] - 1);
            weight[i] = off > 0.1 ? 0.1 / off : 1;
        }
    }
    return l;
}

static int measure_line(const struct bed *bed, enum what what, double eager, struct line *line)
{
    double bytes[SIZES], ns[SIZES];
    int rc = HALAY_OK;
    for (int i = 0; i < SIZES && !rc; i++) {
        bytes[i] = 64u << 2 * i;
        rc = measure(bed, what, (size_t)bytes[i], &ns[i]);
    }
    if (!rc)
        *line = fit(bytes, ns, eager);
    return rc;
}

/* ---------------------------------------------------------------- the constants */

static double at_least(double value, double least)
{
    return value > least ? value : least; /* also for what is not a number */
}

static int measure_rank(const struct bed *self, halay_model_t *m)
{
    struct line copy;
    int rc = measure(self, BARRIER, 0, &m->call_ns);
    if (!rc)
        rc = measure_line(self, ALLREDUCE, 1e18, &copy);
    if (rc)
        return rc;
    m->step_ns = at_least(copy.at_ns - m->call_ns, 1);
    m->copy_byte_ns = at_least(copy.byte_ns, 1e-3);
    return HALAY_OK;
}

static int measure_pair(const struct bed *pair, halay_model_t *m, halay_link_model_t *link,
                        bool near)
{
    struct line sent, summed;
    double one, many, eager = (double)link->eager_bytes;
    int rc = measure(pair, BARRIER, 0, &one);
    if (!rc)
        rc = measure(pair, BARRIERS, 0, &many);
    if (!rc)
        rc = measure_line(pair, BROADCAST, eager, &sent);
    if (!rc)
        rc = measure_line(pair, ALLREDUCE, eager, &summed);
    if (rc)
        return rc;
    many /= AT_ONCE;
    link->overhead_ns = at_least((many - m->call_ns - 2 * m->step_ns) / 2, 1);
    link->latency_ns = at_least(one - m->call_ns - 2 * m->step_ns - 2 * link->overhead_ns, 1);
    link->byte_ns = at_least(sent.byte_ns, 1e-3);
    if (near) /* between nodes the bytes hide it */
        m->reduce_byte_ns = at_least(summed.byte_ns - sent.byte_ns, 1e-3);
    return HALAY_OK;
}

/* What the new constants say of what they were made from. */
static int show_error(const struct bed *pair, const halay_model_t *m, bool near)
{
    const uint32_t apart[2] = {0, near ? 0 : 1};
    halay_shape_t *shape;
    halay_question_t q = {.collective = HALAY_ALLREDUCE, .commutative = 1, .element_bytes = 4};
    uint32_t planner;
    int rank, rc = halay_comm_rank(pair->comm, &rank);
    if (!rc)
        rc = halay_planner_find(HALAY_ALLREDUCE, "recursive_doubling", &planner);
    if (!rc)
        rc = halay_shape_make(apart, 2, &shape);
    if (rc)
        return rc;
    q.shape = shape;
    if (rank == 0)
        printf("%s: allreduce of 2 ranks, recursive doubling\n%12s %12s %12s %8s\n",
               near ? "near" : "far", "bytes", "measured us", "predicted us", "off by");
    for (size_t bytes = 64; bytes <= BYTES_MOST && !rc; bytes *= 4) {
        halay_cost_t cost = {.size = sizeof cost};
        double ns = 0;
        rc = measure(pair, ALLREDUCE, bytes, &ns);
        q.count = bytes / 4;
        if (!rc)
            rc = halay_planner_cost(planner, &q, m, &cost);
        if (!rc && rank == 0)
            printf("%12zu %12.2f %12.2f %+7.0f%%\n", bytes, ns / 1e3, cost.predicted_ns / 1e3,
                   100 * (cost.predicted_ns / ns - 1));
    }
    halay_shape_free(shape);
    return rc;
}

/* ---------------------------------------------------------------- the job */

static uint64_t eager_of(const char *transport, uint64_t otherwise)
{
    static const struct {
        const char *name;
        uint64_t bytes;
    } known[] = {{"shm", 8192}, {"tcp", 65536}, {"ucx", 8192}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (!strcmp(transport, known[i].name))
            return known[i].bytes;
    return otherwise;
}

static int write_file(const char *path, const halay_model_t *m, const halay_topology_t *t,
                      bool near, bool far)
{
    char text[1024];
    halay_model_print(m, text, sizeof text);
    FILE *file = fopen(path, "w");
    bool good = file != NULL;
    if (good) {
        fprintf(file, "# halay-bench calibrate, Halay %s: %d ranks on %d nodes, %s, transport %s\n",
                halay_version(), t->nranks, t->nnodes, t->host, t->transport);
        fprintf(file, "# near: %s; far: %s; stage: compiled in\n%s",
                near ? "measured" : "compiled in", far ? "measured" : "compiled in", text);
        good = !ferror(file);
        good = !fclose(file) && good;
    }
    if (!good) {
        fprintf(stderr, "halay-bench: cannot write %s: %s\n", path, strerror(errno));
        return 1;
    }
    printf("%s: %s%s%smeasured, model %016llx\n", path, near ? "near " : "",
           near && far ? "and " : "", far ? "far " : "", (unsigned long long)halay_model_hash(m));
    return 0;
}

/* The communicator of two ranks that meet like this; NULL on all other ranks. */
static int make_pair(halay_comm_t *world, const halay_topology_t *t, const int32_t *node, bool near,
                     struct bed *pair, bool *any)
{
    int second = 1;
    while (second < t->nranks && (node[second] == node[0]) != near)
        second++;
    *any = second < t->nranks;
    bool in = *any && (t->rank == 0 || t->rank == second);
    pair->nranks = 2;
    return halay_comm_split(world, in ? 0 : -1, 0, &pair->comm);
}

static int calibrate(halay_comm_t *world, const halay_topology_t *t, const int32_t *node,
                     struct bed *bed, halay_model_t *m, bool any[2])
{
    int rc = HALAY_OK;
    const char *plus = strchr(t->transport, '+');
    char first[sizeof t->transport];
    snprintf(first, sizeof first, "%.*s", (int)strcspn(t->transport, "+"), t->transport);
    m->near.eager_bytes = eager_of(first, m->near.eager_bytes);
    if (plus || t->nnodes > 1)
        m->far.eager_bytes = eager_of(plus ? plus + 1 : first, m->far.eager_bytes);
    bed->nranks = 1;
    rc = halay_comm_split(world, t->rank, 0, &bed->comm);
    if (!rc)
        rc = measure_rank(bed, m);
    if (!rc)
        rc = halay_comm_free(bed->comm);
    if (!rc) /* all ranks hold the same numbers from here on */
        rc = halay_broadcast(m, sizeof *m, HALAY_INT8, 0, world);
    for (int far = 0; far < 2 && !rc; far++) {
        rc = make_pair(world, t, node, !far, bed, &any[far]);
        if (rc || !any[far])
            continue;
        if (bed->comm)
            rc = measure_pair(bed, m, far ? &m->far : &m->near, !far);
        if (bed->comm && !rc && bed->batches == BATCHES)
            rc = show_error(bed, m, !far);
        if (bed->comm && !rc)
            rc = halay_comm_free(bed->comm);
        if (!rc)
            rc = halay_broadcast(m, sizeof *m, HALAY_INT8, 0, world);
    }
    return rc;
}

static int find_rows(halay_comm_t *world, const halay_topology_t *t, const int32_t *node,
                     const halay_model_t *model, double end_ns, int *status)
{
    struct hly_finding finding;
    char text[HLY_CALIBRATION_TEXT];
    const int64_t kind = hly_calibration_kind(text);
    int64_t kinds[2] = {kind, -kind};
    bool scattered = false;
    int rc = hly_bench_rows(world, t, node, model, end_ns, &finding);
    if (!rc)
        rc = halay_allreduce(HALAY_IN_PLACE, kinds, 2, HALAY_INT64, HALAY_MAX, world);
    for (int r = 1; r < t->nranks; r++)
        scattered = scattered || node[r] < node[r - 1]; /* numbered by their lowest ranks */
    if (!rc && t->rank == 0)
        *status = hly_bench_keep(t, scattered, kinds[0] != -kinds[1], &finding);
    return rc;
}

int hly_bench_calibrate(const char *path, double seconds)
{
    halay_config_t config = HALAY_CONFIG_INIT;
    halay_context_t *context;
    halay_comm_t *world;
    halay_topology_t t = {.size = sizeof t};
    halay_model_t model;
    bool any[2] = {false, false};
    struct bed bed = {.batches = path ? BATCHES : BATCHES_FEW};
    const double end_ns = now_ns() + seconds * 1e9;
    config.algorithm = "allreduce=recursive_doubling,broadcast=binomial,barrier=dissemination";
    config.deadline_ns =
        600ull * 1000000000ull; /* the others wait for the pairs, and say nothing */
    setenv("HALAY_STALL", "0", 0);
    if (halay_init(&config, &context)) /* has said why */
        return 1;
    int rc = halay_comm_world(context, &world), status = 0;
    if (!rc)
        rc = halay_context_topology(context, &t);
    int32_t *node = calloc((size_t)(t.nranks > 0 ? t.nranks : 1), sizeof *node), mine = t.node;
    bed.in = calloc(1, BYTES_MOST);
    bed.out = calloc(1, BYTES_MOST);
    halay_model_default(&model);
    if (!rc && (!node || !bed.in || !bed.out))
        rc = HALAY_ENOMEM;
    if (!rc)
        rc = halay_allgather(&mine, node, 1, HALAY_INT32, world);
    if (!rc && t.nranks < 2) {
        fprintf(stderr, "halay-bench: calibrate takes two ranks at least: halayrun -np 2 ...\n");
        status = HLY_EXIT_USAGE;
    } else if (!rc) {
        rc = calibrate(world, &t, node, &bed, &model, any);
    }
    if (!rc && !status && !path)
        rc = find_rows(world, &t, node, &model, end_ns, &status);
    if (rc)
        fprintf(stderr, "halay-bench: rank %d: %s\n", t.rank, halay_strerror(rc));
    else if (!status && path && t.rank == 0)
        status = write_file(path, &model, &t, any[0], any[1]);
    free(node);
    free(bed.in);
    free(bed.out);
    return halay_finalize(context) || rc ? 1 : status;
}
