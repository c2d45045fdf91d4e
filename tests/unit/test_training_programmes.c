/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_training_programmes.c - steps that repeat are replayed without a round, and steps that do
 * not repeat still give what a serial reference gives, to the bit.
 */
#include "training_ranks.h"

enum { TENSORS = 40, COUNT_MAX = 300 };

/* ------------------------------------------------------------------ tensors of every kind */

struct tensor {
    char name[32];
    int kind; /* 'r'educe, 'b'roadcast, 'g'ather, 'a'lltoall, '|' */
    halay_type_t type;
    halay_op_t op;
    size_t count; /* a row's for a gather, an alltoall */
    int root, step;
    int deal, dealer; /* alltoall: so many rows more, but on that rank only */
    double prescale, postscale;
    halay_ticket_t ticket;
    unsigned char in[COUNT_MAX * 16], out[COUNT_MAX * 16];
};

/* Small integers, whose sums and products of two are exact in every type. */
static int value_of(int rank, int step, size_t i)
{
    return (int)((size_t)(rank + 1) * (1 + (size_t)step % 3) + i % 3) % 4;
}

static void put(unsigned char *at, halay_type_t type, size_t i, int value)
{
    switch (type) {
    case HALAY_INT8:
    case HALAY_UINT8:
        at[i] = (unsigned char)value;
        break;
    case HALAY_BOOL:
        at[i] = value != 0;
        break;
    case HALAY_INT16:
    case HALAY_UINT16:
        ((uint16_t *)(void *)at)[i] = (uint16_t)value;
        break;
    case HALAY_INT32:
    case HALAY_UINT32:
        ((uint32_t *)(void *)at)[i] = (uint32_t)value;
        break;
    case HALAY_INT64:
    case HALAY_UINT64:
        ((uint64_t *)(void *)at)[i] = (uint64_t)value;
        break;
    case HALAY_FLOAT16: {
        _Float16 half = (_Float16)value;
        memcpy(at + 2 * i, &half, 2);
        break;
    }
    case HALAY_BFLOAT16: {
        float single = (float)value;
        memcpy(at + 2 * i, (char *)&single + 2, 2);
        break;
    }
    case HALAY_FLOAT32:
        ((float *)(void *)at)[i] = (float)value;
        break;
    case HALAY_FLOAT64:
        ((double *)(void *)at)[i] = value;
        break;
    case HALAY_COMPLEX64:
        ((float *)(void *)at)[2 * i] = (float)value;
        ((float *)(void *)at)[2 * i + 1] = 0;
        break;
    default:
        ((double *)(void *)at)[2 * i] = value;
        ((double *)(void *)at)[2 * i + 1] = 0;
    }
}

static size_t rows_of(int rank, int step)
{
    return (size_t)(rank + step) % 3;
}

/* Rows of an alltoall. */
static size_t split_of(const struct tensor *t, int from, int to)
{
    return (size_t)(from + 2 * to + (from == t->dealer ? t->deal : 0)) % 3;
}

static int submit_alltoall(struct rank *rank, struct tensor *t)
{
    size_t rows[RANKS_MAX];
    halay_dims_t shape = {2, {1, t->count}}; /* a row more, for nobody */
    for (int r = 0; r < rank->nranks; r++)
        shape.dims[0] += rows[r] = split_of(t, rank->rank, r);
    for (size_t i = 0; i < shape.dims[0] * t->count; i++)
        put(t->in, t->type, i, value_of(rank->rank, t->step, i));
    int rc =
        halay_trainer_alltoall(rank->trainer, t->name, t->in, rows, &shape, t->type, &t->ticket);
    memset(rows, 0xee, sizeof(rows));
    return rc;
}

/* Elements of rank `from` before those that it has for rank `to`. */
static size_t elements_before(const struct tensor *t, int from, int to)
{
    size_t rows = 0;
    for (int r = 0; r < to; r++)
        rows += split_of(t, from, r);
    return rows * t->count;
}

static int reduced(int nranks, int step, size_t i, halay_type_t type, halay_op_t op)
{
    int result = value_of(0, step, i), truth = result != 0;
    result = type == HALAY_BOOL ? truth : result;
    for (int r = 1; r < nranks; r++) {
        int v = value_of(r, step, i);
        v = type == HALAY_BOOL ? v != 0 : v;
        result = op == HALAY_MIN    ? (v < result ? v : result)
                 : op == HALAY_MAX  ? (v > result ? v : result)
                 : op == HALAY_PROD ? result * v
                 : op == HALAY_BAND ? result & v
                 : op == HALAY_BOR  ? result | v
                 : op == HALAY_BXOR ? result ^ v
                                    : result + v;
        truth = op == HALAY_LAND ? truth && v : op == HALAY_LOR ? truth || v : truth ^ (v != 0);
    }
    if (nranks == 1) /* nothing is reduced */
        return result;
    return op == HALAY_LAND || op == HALAY_LOR || op == HALAY_LXOR ? truth : result;
}

static void submit(struct rank *rank, struct tensor *t, int step)
{
    int rc;
    size_t count = t->kind == 'g' ? t->count * rows_of(rank->rank, step) : t->count;
    t->step = step;
    for (size_t i = 0; i < count; i++)
        put(t->in, t->type, i, value_of(rank->rank, step, i));
    memset(t->out, 0xee, sizeof(t->out));
    if (t->kind == 'r')
        rc = halay_trainer_allreduce(rank->trainer, t->name, t->in, t->out, t->count, t->type,
                                     t->op, t->prescale, t->postscale, &t->ticket);
    else if (t->kind == 'b')
        rc = halay_trainer_broadcast(rank->trainer, t->name, t->in, t->count, t->type, t->root,
                                     &t->ticket);
    else if (t->kind == 'g')
        rc = halay_trainer_allgather(rank->trainer, t->name, t->in, rows_of(rank->rank, step),
                                     t->count, t->type, &t->ticket);
    else if (t->kind == 'a')
        rc = submit_alltoall(rank, t);
    else
        rc = halay_trainer_barrier(rank->trainer, t->name, &t->ticket);
    CHECK(!rc, "submit %s: %d", t->name, rc);
}

/* Waits, compares every byte with the reference, releases. */
static void collect(struct rank *rank, struct tensor *t)
{
    unsigned char want[16], input[16];
    char text[1024];
    const void *data;
    const size_t *rows;
    size_t count, bytes = halay_type_bytes(t->type), at = 0;
    int rc = halay_trainer_wait(rank->trainer, t->ticket, text, sizeof(text));
    CHECK(!rc, "rank %d: %s: %d %s", rank->rank, t->name, rc, text);
    CHECK(!halay_trainer_result(rank->trainer, t->ticket, &data, &count, &rows), "result");
    int dealt = t->kind == 'a';
    for (int r = 0; (dealt || t->kind == 'g') && r < rank->nranks; r++) {
        size_t from = dealt ? elements_before(t, r, rank->rank) : 0;
        size_t nrows = dealt ? split_of(t, r, rank->rank) : rows_of(r, t->step);
        CHECK(rows[r] == nrows, "%s: %zu rows of %d, not %zu", t->name, rows[r], r, nrows);
        for (size_t i = 0; i < rows[r] * t->count; i++, at++) {
            put(want, t->type, 0, value_of(r, t->step, from + i));
            CHECK(!memcmp((const char *)data + at * bytes, want, bytes), "%s [%zu]", t->name, at);
        }
    }
    CHECK(at == count || (!dealt && t->kind != 'g'), "%s: %zu elements", t->name, count);
    for (size_t i = 0; (t->kind == 'r' || t->kind == 'b') && i < t->count; i++) {
        int value = t->kind == 'b' ? value_of(t->root, t->step, i)
                                   : reduced(rank->nranks, t->step, i, t->type, t->op);
        value = (int)(value * t->prescale * t->postscale);
        value = t->op == HALAY_AVERAGE ? value / rank->nranks : value;
        put(want, t->type, 0, value);
        put(input, t->type, 0, value_of(rank->rank, t->step, i));
        CHECK(!memcmp((const char *)data + i * bytes, want, bytes), "rank %d: %s, step %d [%zu]",
              rank->rank, t->name, t->step, i);
        CHECK(t->kind == 'b' || !memcmp(t->in + i * bytes, input, bytes), "%s: input", t->name);
    }
    halay_trainer_release(rank->trainer, t->ticket);
}

static struct tensor *make(int count, const char *prefix)
{
    static const halay_type_t types[] = {HALAY_FLOAT32,  HALAY_FLOAT32, HALAY_FLOAT16, HALAY_INT64,
                                         HALAY_BFLOAT16, HALAY_FLOAT64, HALAY_INT8};
    struct tensor *tensors = calloc((size_t)count, sizeof(*tensors));
    CHECK(tensors, "memory");
    for (int t = 0; t < count; t++) {
        snprintf(tensors[t].name, sizeof(tensors[t].name), "%s.%d", prefix, t);
        tensors[t].kind = 'r';
        tensors[t].type = types[t % 7];
        tensors[t].op = t % 5 == 4 ? HALAY_MAX : HALAY_SUM;
        tensors[t].count = (size_t)(t * 37 % COUNT_MAX);
        tensors[t].prescale = tensors[t].postscale = 1;
        if (tensors[t].op == HALAY_SUM && tensors[t].type == HALAY_FLOAT32 && t % 3 == 0)
            tensors[t].prescale = 4, tensors[t].postscale = 0.5;
    }
    return tensors;
}

/* All of them, in an order of this rank's own. */
static void step_all(struct rank *rank, struct tensor *tensors, int count, int step)
{
    int order[TENSORS];
    CHECK(count <= TENSORS, "too many");
    shuffle(order, count, &rank->seed);
    for (int i = 0; i < count; i++)
        submit(rank, &tensors[order[i]], step);
    shuffle(order, count, &rank->seed);
    for (int i = 0; i < count; i++)
        collect(rank, &tensors[order[i]]);
}

/* ------------------------------------------------------------------ the steady state */

/* Six types with two operations each: twelve groups. */
static void steady(struct rank *rank)
{
    struct tensor *tensors = make(TENSORS, "steady");
    for (int step = 0; step < 2; step++)
        step_all(rank, tensors, TENSORS, step);
    halay_trainer_counters_t before = counters(rank);
    for (int step = 2; step < 30; step++)
        step_all(rank, tensors, TENSORS, step);
    halay_trainer_counters_t after = counters(rank);
    CHECK(before.control_rounds && before.programmes == 1, "nothing was negotiated");
    CHECK(after.control_rounds == before.control_rounds, "%d rounds",
          (int)(after.control_rounds - before.control_rounds));
    CHECK(after.control_bytes == before.control_bytes, "control bytes");
    CHECK(after.votes == 0 && after.voids == 0, "votes, voids");
    CHECK(after.cycles == before.cycles + 28, "%d cycles", (int)(after.cycles - before.cycles));
    CHECK(after.fused_tensors == before.fused_tensors + 28 * TENSORS, "fused tensors");
    CHECK(after.fused_calls == after.calls - before.calls + before.fused_calls, "calls");
    CHECK((after.calls - before.calls) / 28 == 12, "%.1f calls a step",
          (double)(after.calls - before.calls) / 28);
    free(tensors);
}

/* In the steady state a step of 30 tensors of one type sends the messages of one allreduce. */
static void messages(struct rank *rank)
{
    enum { STEPS = 20, COUNT = 30, ELEMENTS = 100 };
    struct tensor *tensors = make(COUNT, "messages");
    static __thread float bare[COUNT * ELEMENTS + 1];
    halay_counters_t at[3] = {
        {.size = sizeof(at[0])}, {.size = sizeof(at[0])}, {.size = sizeof(at[0])}};
    for (int t = 0; t < COUNT; t++) {
        tensors[t].type = HALAY_FLOAT32;
        tensors[t].op = HALAY_SUM;
        tensors[t].count = ELEMENTS;
        tensors[t].prescale = tensors[t].postscale = 1;
    }
    for (int step = 0; step < 3; step++)
        step_all(rank, tensors, COUNT, step);
    halay_allreduce(HALAY_IN_PLACE, bare, COUNT * ELEMENTS + 1, HALAY_FLOAT32, HALAY_SUM,
                    rank->world);
    usleep(20000);
    meet(rank);
    CHECK(!halay_context_counters(rank->context, &at[0]), "counters");
    for (int step = 0; step < STEPS; step++)
        step_all(rank, tensors, COUNT, step);
    meet(rank);
    usleep(20000);
    CHECK(!halay_context_counters(rank->context, &at[1]), "counters");
    for (int step = 0; step < STEPS; step++)
        halay_allreduce(HALAY_IN_PLACE, bare, COUNT * ELEMENTS + 1, HALAY_FLOAT32, HALAY_SUM,
                        rank->world);
    meet(rank);
    usleep(20000);
    CHECK(!halay_context_counters(rank->context, &at[2]), "counters");
    CHECK(at[1].operations - at[0].operations == STEPS, "%d operations",
          (int)(at[1].operations - at[0].operations));
    CHECK(at[1].sent_bytes - at[0].sent_bytes == at[2].sent_bytes - at[1].sent_bytes,
          "%d bytes, not %d", (int)(at[1].sent_bytes - at[0].sent_bytes),
          (int)(at[2].sent_bytes - at[1].sent_bytes));
    meet(rank);
    free(tensors);
}

/* One after the other, each waited for before the next: nothing may be fused, nothing is void. */
static void sequential(struct rank *rank)
{
    struct tensor *tensors = make(10, "one");
    halay_trainer_counters_t before = {0}, after;
    for (int step = 0; step < 20; step++) {
        if (step == 2)
            before = counters(rank);
        for (int t = 0; t < 10; t++) {
            submit(rank, &tensors[t], step);
            collect(rank, &tensors[t]);
        }
    }
    after = counters(rank);
    CHECK(after.control_rounds == before.control_rounds && !after.voids, "rounds, voids");
    CHECK(after.calls - before.calls == 180, "calls");
    free(tensors);
}

/*
 * Broadcasts, allgathers whose rows change at every step, alltoalls, and barriers: votes, but no
 * rounds.
 */
static void kinds(struct rank *rank)
{
    struct tensor *tensors = make(15, "kind");
    halay_trainer_counters_t before = {0}, after;
    for (int t = 0; t < 15; t++) {
        tensors[t].kind = "rbga|"[t % 5];
        tensors[t].root = t % rank->nranks;
        tensors[t].count = (size_t)(tensors[t].kind == 'a' ? t : t * 9);
        tensors[t].op = HALAY_SUM;
        tensors[t].prescale = tensors[t].postscale = 1;
    }
    for (int step = 0; step < 20; step++) {
        if (step == 2)
            before = counters(rank);
        step_all(rank, tensors, 15, step);
    }
    after = counters(rank);
    CHECK(after.control_rounds == before.control_rounds && !after.voids, "rounds, voids");
    CHECK(after.votes - before.votes == 18, "%d votes", (int)(after.votes - before.votes));
    CHECK(after.deals == before.deals, "%d deals", (int)(after.deals - before.deals));
    free(tensors);
}

/*
 * Alltoalls whose rows stay as they were: a vote and a call each, nothing else. Where one rank has
 * others, ranks tell each other once; that is no reason for a round, and nothing is void.
 */
static void deals(struct rank *rank)
{
    enum { COUNT = 3 };
    struct tensor *tensors = make(COUNT, "deal");
    halay_counters_t at[2] = {{.size = sizeof(at[0])}, {.size = sizeof(at[0])}};
    for (int t = 0; t < COUNT; t++) {
        tensors[t].kind = 'a';
        tensors[t].count = (size_t)(7 * t);
    }
    for (int step = 0; step < 3; step++)
        step_all(rank, tensors, COUNT, step);
    for (int change = 0; change < 9; change++) {
        halay_trainer_counters_t before = counters(rank), after;
        tensors[change % COUNT].deal = (1 + change / COUNT) % 3;
        tensors[change % COUNT].dealer = change % rank->nranks;
        step_all(rank, tensors, COUNT, change);
        after = counters(rank);
        CHECK(after.deals == before.deals + 1, "change %d: %d deals", change,
              (int)(after.deals - before.deals));
        meet(rank);
        CHECK(!halay_context_counters(rank->context, &at[0]), "counters");
        for (int step = 0; step < 5; step++)
            step_all(rank, tensors, COUNT, step);
        CHECK(!halay_context_counters(rank->context, &at[1]), "counters");
        CHECK(at[1].operations - at[0].operations == 5 * (1 + COUNT), "%d operations",
              (int)(at[1].operations - at[0].operations));
        CHECK(counters(rank).deals == after.deals, "dealt out anew");
        after = counters(rank);
        CHECK(after.control_rounds == before.control_rounds &&
                  after.control_bytes == before.control_bytes && !after.voids,
              "change %d: rounds, voids", change);
        CHECK(after.votes - before.votes == 6 && after.calls - before.calls == 6 * COUNT,
              "votes, calls");
        meet(rank);
    }
    free(tensors);
}

/* ------------------------------------------------------------------ marks */

/*
 * Every type and operation: after two steps, `empty` ranks wait for something else first, so that
 * the group is void; its value comes out right afterwards.
 */
static void marks(struct rank *rank)
{
    struct tensor *it = make(1, "it"), *other = make(1, "other");
    int nth = 0;
    for (int type = 0; type <= HALAY_COMPLEX128; type++) {
        for (int op = 0; op < HALAY_OP_COUNT; op++) {
            if (!halay_op_takes((halay_op_t)op, (halay_type_t)type))
                continue;
            /* An average of floats that is no integer, a product that overflows: not looked at. */
            int average = op == HALAY_AVERAGE;
            it->type = (halay_type_t)type;
            it->op = (halay_op_t)op;
            it->count = average && (type >= HALAY_FLOAT16) ? 0 : op == HALAY_PROD ? 1 : 5;
            it->prescale = it->postscale = 1;
            snprintf(it->name, sizeof(it->name), "it.%d.%d", type, op);
            snprintf(other->name, sizeof(other->name), "other.%d.%d", type, op);
            other->count = 3;
            for (int step = 0; step < 3; step++) {
                submit(rank, it, step);
                collect(rank, it);
            }
            int empty = nth++ % 2 ? 1 : rank->nranks - 1; /* so many, from a rank that changes */
            int first = (rank->rank + nth) % rank->nranks < empty;
            meet(rank);
            halay_trainer_counters_t before = counters(rank), after;
            submit(rank, first ? other : it, 4);
            if (!first)
                submit(rank, other, 4);
            collect(rank, other);
            if (first)
                submit(rank, it, 4);
            collect(rank, it);
            after = counters(rank);
            CHECK(rank->nranks == 1 || after.voids == before.voids + 1, "%s: %d voids", it->name,
                  (int)(after.voids - before.voids));
        }
    }
    free(other);
    free(it);
}

/* ------------------------------------------------------------------ deviations that all make */

/* Names come and go, shapes, types and orders change, phases with waits between: as a whole job. */
static void changes(struct rank *rank)
{
    struct tensor *tensors = make(TENSORS, "change");
    uint64_t common = 12345;
    for (int t = 5; t < TENSORS; t += 13) {
        tensors[t].kind = 'a';
        tensors[t].op = HALAY_SUM;
        tensors[t].count = (size_t)t;
        tensors[t].prescale = tensors[t].postscale = 1;
    }
    for (int step = 0; step < 96; step++) {
        int chosen[TENSORS], count = 0, order[TENSORS], phases = 1 + (int)(draw(&common) % 3);
        int change = step % 16 == 15;
        for (int t = 0; t < TENSORS; t++) {
            uint64_t dice = draw(&common);
            if (change && dice % 16 == 0)
                tensors[t].count = (size_t)(dice >> 8) % (tensors[t].kind == 'a' ? 25 : COUNT_MAX);
            if (dice % 16 == 3)
                tensors[t].deal = (int)(dice >> 8 & 0xff) % 3,
                tensors[t].dealer = (int)(dice >> 16 & 0xff) % rank->nranks;
            if (change && dice % 16 == 1)
                tensors[t].type = HALAY_INT32, tensors[t].prescale = tensors[t].postscale = 1;
            if (change && dice % 16 == 2)
                snprintf(tensors[t].name, sizeof(tensors[t].name), "new.%d.%d", step, t);
            if (step % 16 < 11 || dice % 5)
                chosen[count++] = t;
        }
        phases = step % 16 < 10 ? 2 : phases;
        for (int phase = 0; phase < phases; phase++) {
            int from = count * phase / phases, to = count * (phase + 1) / phases;
            shuffle(order, to - from, &rank->seed);
            for (int i = 0; i < to - from; i++)
                submit(rank, &tensors[chosen[from + order[i]]], step);
            if (draw(&rank->seed) % 32 == 0)
                usleep(2000);
            shuffle(order, to - from, &rank->seed);
            for (int i = 0; i < to - from; i++)
                collect(rank, &tensors[chosen[from + order[i]]]);
        }
    }
    halay_trainer_counters_t after = counters(rank);
    CHECK(after.cycles > 12 && after.voids, "%d cycles, %d voids: nothing was tried",
          (int)after.cycles, (int)after.voids);
    free(tensors);
}

/* Two models in turn, and a metric every seventh step; once known, few rounds. */
static void alternate(struct rank *rank)
{
    struct tensor *a = make(20, "a"), *b = make(15, "b"), *metric = make(2, "metric");
    halay_trainer_counters_t at[3];
    for (int step = 0; step < 40; step++) {
        at[step == 20] = step == 0 || step == 20 ? counters(rank) : at[step == 20];
        step_all(rank, a, 20, step);
        step_all(rank, b, 15, step);
    }
    at[2] = counters(rank);
    CHECK(at[2].control_rounds == at[1].control_rounds, "two models in turn make rounds");
    for (int step = 0; step < 60; step++) {
        step_all(rank, step % 20 < 10 ? a : b, step % 20 < 10 ? 20 : 15, step);
        if (step % 7 == 6) {
            submit(rank, &metric[1], step);
            collect(rank, &metric[1]);
        }
    }
    at[0] = counters(rank);
    CHECK(at[0].cycles - at[2].cycles > 20, "%d of 60 steps were replayed",
          (int)(at[0].cycles - at[2].cycles));
    free(metric);
    free(b);
    free(a);
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        {"steady", steady},
        {"messages", messages},
        {"sequential", sequential},
        {"kinds", kinds},
        {"deals", deals},
        {"marks", marks},
        {"changes", changes},
        {"changes, small buffers", changes, .fusion = "16000"},
        {"changes, unfused", changes, .fusion = "0"},
        {"alternate", alternate},
        {"changes, faults", changes, .fusion = "16000", .faults = &ranks_chaos},
        {"marks, faults", marks, .faults = &ranks_chaos},
        {NULL},
    };
    return run_cases(cases, argc, argv);
}
