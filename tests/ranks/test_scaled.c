/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Allreduces with prescale and postscale against a serial reference in float64, exactly: small
 * numbers and factors that every type holds. And factors that differ, or make no sense.
 */
#include <math.h>
#include <pthread.h>
#include <string.h>

#include "device/device_builtin.h"
#include "ranks.h"

struct board {
    pthread_barrier_t barrier;
    int code[RANKS_MAX];
    char text[RANKS_MAX][512];
};

static const halay_type_t types[] = {HALAY_INT8,    HALAY_UINT8,   HALAY_INT32,  HALAY_INT64,
                                     HALAY_FLOAT16, HALAY_FLOAT32, HALAY_FLOAT64};

static void store(halay_type_t type, void *base, size_t i, double value)
{
    if (type == HALAY_INT8)
        ((int8_t *)base)[i] = (int8_t)value;
    else if (type == HALAY_UINT8)
        ((uint8_t *)base)[i] = (uint8_t)value;
    else if (type == HALAY_INT32)
        ((int32_t *)base)[i] = (int32_t)value;
    else if (type == HALAY_INT64)
        ((int64_t *)base)[i] = (int64_t)value;
    else if (type == HALAY_FLOAT16)
        ((_Float16 *)base)[i] = (_Float16)value;
    else if (type == HALAY_FLOAT32)
        ((float *)base)[i] = (float)value;
    else
        ((double *)base)[i] = value;
}

/* What an element of this type holds of a value: integers truncate. */
static double held(halay_type_t type, double value)
{
    return type < HALAY_BOOL ? trunc(value) : value;
}

static double input(int rank, size_t i, size_t salt)
{
    return (double)((i * 5 + (size_t)rank * 3 + salt) % 4);
}

static double result(halay_type_t type, halay_op_t op, int nranks, size_t i, size_t salt,
                     double prescale, double postscale)
{
    double sum = 0;
    for (int r = 0; r < nranks; r++) {
        double next = held(type, prescale * input(r, i, salt));
        if (r == 0)
            sum = next;
        else if (op == HALAY_MAX)
            sum = next > sum ? next : sum;
        else
            sum += next;
    }
    if (op == HALAY_AVERAGE)
        sum = held(type, sum / nranks);
    return held(type, postscale * sum);
}

static void one(struct rank *r, halay_type_t type, halay_op_t op, size_t count, double prescale,
                double postscale, bool in_place)
{
    size_t bytes = count * halay_type_bytes(type);
    char *in = malloc(bytes + 1), *out = malloc(bytes + 1), *want = malloc(bytes + 1);
    char *before = malloc(bytes + 1);
    CHECK(in && out && want && before, "no memory");
    memset(out, 0x5a, bytes);
    for (size_t i = 0; i < count; i++) {
        store(type, in_place ? out : in, i, input(r->rank, i, count));
        store(type, before, i, input(r->rank, i, count));
        store(type, want, i, result(type, op, r->nranks, i, count, prescale, postscale));
    }
    int rc = halay_allreduce_scaled(in_place ? HALAY_IN_PLACE : in, out, count, type, op, prescale,
                                    postscale, r->world);
    CHECK(rc == HALAY_OK, "%s", halay_strerror(rc));
    CHECK(!memcmp(out, want, bytes), "rank %d of %d: %zu %s %s, %g and %g%s", r->rank, r->nranks,
          count, halay_type_name(type), halay_op_name(op), prescale, postscale,
          in_place ? ", in place" : "");
    CHECK(in_place || !memcmp(in, before, bytes), "the input has changed");
    free(in);
    free(out);
    free(want);
    free(before);
}

static void right(struct rank *r)
{
    static const double factors[][2] = {{1, 1}, {2, 1}, {1, 0.5}, {0.5, 2}, {1.5, 0.25}, {0, 1}};
    static const halay_op_t ops[] = {HALAY_SUM, HALAY_MAX, HALAY_AVERAGE};
    static const size_t counts[] = {0, 1, 33, 5000};
    for (size_t t = 0; t < sizeof(types) / sizeof(types[0]); t++)
        for (size_t f = 0; f < sizeof(factors) / sizeof(factors[0]); f++)
            for (size_t o = 0; o < 3; o++) {
                bool exact = r->nranks & (r->nranks - 1) ? types[t] < HALAY_BOOL : true;
                if (ops[o] == HALAY_AVERAGE && !exact)
                    continue; /* thirds */
                one(r, types[t], ops[o], counts[(t + f + o) % 4], factors[f][0], factors[f][1],
                    (t + f) % 2);
                one(r, types[t], ops[o], counts[(t + f + o + 1) % 4], factors[f][0], factors[f][1],
                    (t + f) % 2 == 0);
            }
}

enum mistake { PRESCALE, POSTSCALE, ONLY_ONE, INFINITE, NOT_A_NUMBER, TYPE, OP, MISTAKES };

static void wrong(struct rank *r)
{
    struct board *b = r->arg;
    for (int m = 0; m < MISTAKES; m++)
        for (int w = 0; w < r->nranks; w++) {
            int64_t in[8] = {1}, out[8];
            double pre = m == ONLY_ONE ? 1 : 2, post = m == ONLY_ONE ? 1 : 3;
            halay_type_t type = HALAY_INT32;
            halay_op_t op = HALAY_SUM;
            halay_verdict_t v = {.size = sizeof(v)};
            if (r->rank == w) {
                pre = m == PRESCALE || m == ONLY_ONE ? 4 : m == INFINITE ? (double)INFINITY : pre;
                post = m == POSTSCALE ? 4 : m == NOT_A_NUMBER ? (double)NAN : post;
                type = m == TYPE ? HALAY_BOOL : type;
                op = m == OP ? HALAY_BXOR : op;
            }
            b->code[r->rank] = halay_allreduce_scaled(in, out, 4, type, op, pre, post, r->world);
            CHECK(!halay_comm_verdict(r->world, &v), "verdict");
            memcpy(b->text[r->rank], v.text, sizeof(v.text));
            pthread_barrier_wait(&b->barrier);
            int want = m <= ONLY_ONE ? HALAY_EMISMATCH : HALAY_EINVAL;
            for (int k = 0; k < r->nranks; k++)
                CHECK(b->code[k] == want && !strcmp(b->text[k], b->text[0]), "%d: rank %d: %s: %s",
                      m, k, halay_strerror(b->code[k]), b->text[k]);
            CHECK(m > ONLY_ONE || strstr(v.text, "scaled, in place or with a prescale"), "%s",
                  v.text);
            pthread_barrier_wait(&b->barrier);
        }
}

/* An argument: the most ranks. */
int main(int argc, char **argv)
{
    const int most = argc > 1 ? atoi(argv[1]) : 9;
    struct hly_device_late_arg late = {.seed = 3, .delay_polls_max = 4, .capacity = 2};
    setenv("HALAY_DEBUG", "error", 1); /* the failures here are wanted */
    for (int p = 1; p <= most; p++)
        for (int how = 0; how < 2; how++) {
            struct board board;
            struct ranks_options o = {.nranks = p,
                                      .shm = !how,
                                      .device = how ? &hly_device_late : NULL,
                                      .device_arg = how ? &late : NULL};
            pthread_barrier_init(&board.barrier, NULL, (unsigned)p);
            ranks_run(&o, right, NULL);
            if (p > 1)
                ranks_run(&o, wrong, &board);
            pthread_barrier_destroy(&board.barrier);
        }
    return 0;
}
