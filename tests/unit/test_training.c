/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_training.c - tensors by name: results against a serial reference, in any order, from any
 * thread; see test_training_faults.c for what goes wrong.
 */
#include "training_ranks.h"

#define NAMES 60

/* What rank `rank` gives as element i of tensor t: integers, so that sums are exact. */
static int64_t given(int rank, int t, size_t i)
{
    return (int64_t)(rank + 1) * 1000 + t * 31 + (int64_t)i * 7;
}

static int64_t summed(int nranks, int t, size_t i)
{
    int64_t sum = 0;
    for (int r = 0; r < nranks; r++)
        sum += given(r, t, i);
    return sum;
}

static halay_ticket_t submit_sum(struct rank *rank, int t, int64_t *in, int64_t *out, size_t count)
{
    char name[64];
    halay_ticket_t ticket = 0;
    snprintf(name, sizeof(name), "tensor.%d", t);
    for (size_t i = 0; i < count; i++)
        in[i] = given(rank->rank, t, i);
    int rc = halay_trainer_allreduce(rank->trainer, name, in, out, count, HALAY_INT64, HALAY_SUM, 1,
                                     1, &ticket);
    CHECK(!rc && ticket, "submit: %d", rc);
    return ticket;
}

static void check_sum(struct rank *rank, int t, const int64_t *in, const int64_t *out, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        CHECK(out[i] == summed(rank->nranks, t, i), "tensor %d [%zu] is %lld", t, i,
              (long long)out[i]);
        CHECK(in == out || in[i] == given(rank->rank, t, i), "tensor %d: the input changed", t);
    }
}

/* Each rank submits in an order of its own and waits in another; odd tensors are in place. */
static void orders(struct rank *rank)
{
    enum { ROUNDS = 3, COUNT = 50 };
    int order[NAMES];
    halay_ticket_t tickets[NAMES];
    static __thread int64_t in[NAMES][COUNT], out[NAMES][COUNT];
    for (int round = 0; round < ROUNDS; round++) {
        shuffle(order, NAMES, &rank->seed);
        for (int i = 0; i < NAMES; i++) {
            int t = order[i], count = t % COUNT;
            tickets[t] = submit_sum(rank, t, t & 1 ? out[t] : in[t], out[t], (size_t)count);
        }
        shuffle(order, NAMES, &rank->seed);
        for (int i = 0; i < NAMES; i++) {
            int t = order[i], count = t % COUNT;
            finish(rank, tickets[t], 0);
            check_sum(rank, t, t & 1 ? out[t] : in[t], out[t], (size_t)count);
        }
    }
}

static void thousand(struct rank *rank)
{
    enum { TENSORS = 1000, COUNT = 9 };
    int *order = calloc(TENSORS, sizeof(*order));
    halay_ticket_t *tickets = calloc(TENSORS, sizeof(*tickets));
    int64_t(*in)[COUNT] = calloc(TENSORS, sizeof(*in));
    int64_t(*out)[COUNT] = calloc(TENSORS, sizeof(*out));
    for (int round = 0; round < 2; round++) {
        shuffle(order, TENSORS, &rank->seed);
        for (int i = 0; i < TENSORS; i++)
            tickets[order[i]] = submit_sum(rank, order[i], in[order[i]], out[order[i]], COUNT);
        for (int t = 0; t < TENSORS; t++) {
            uint64_t start_ns = clock_ns(CLOCK_MONOTONIC);
            finish(rank, tickets[t], 0);
            start_ns = clock_ns(CLOCK_MONOTONIC) - start_ns;
            CHECK(start_ns < 900000000, "a wake-up was lost: %.3f s", (double)start_ns * 1e-9);
            check_sum(rank, t, in[t], out[t], COUNT);
        }
    }
    free(out);
    free(in);
    free(tickets);
    free(order);
}

/* Rank r has (5 r + step) mod 4 rows, so some have none; row_count 0 and no rows at all, too. */
static void allgather(struct rank *rank)
{
    static const size_t row_counts[] = {1, 3, 0, 1000};
    for (int step = 0; step < 8; step++) {
        size_t row_count = row_counts[step % 4], nrows = (size_t)(5 * rank->rank + step) % 4,
               at = 0;
        int32_t *in = malloc((nrows * row_count + 1) * sizeof(*in));
        halay_ticket_t ticket;
        const void *data;
        const size_t *rows;
        size_t count;
        for (size_t i = 0; i < nrows * row_count; i++)
            in[i] = rank->rank * 100000 + (int32_t)i;
        nrows = step == 7 ? 0 : nrows;
        CHECK(!halay_trainer_allgather(rank->trainer, "gather", nrows ? in : NULL, nrows, row_count,
                                       HALAY_INT32, &ticket),
              "submit");
        CHECK(!halay_trainer_wait(rank->trainer, ticket, NULL, 0), "wait");
        CHECK(!halay_trainer_result(rank->trainer, ticket, &data, &count, &rows), "result");
        for (int r = 0; r < rank->nranks; r++) {
            CHECK(rows[r] == (step == 7 ? 0 : (size_t)(5 * r + step) % 4), "rows of %d", r);
            for (size_t i = 0; i < rows[r] * row_count; i++, at++)
                CHECK(((const int32_t *)data)[at] == r * 100000 + (int32_t)i, "step %d at %zu",
                      step, at);
        }
        CHECK(at == count, "%zu elements instead of %zu", count, at);
        halay_trainer_release(rank->trainer, ticket);
        free(in);
    }
}

static void broadcast(struct rank *rank)
{
    enum { COUNT = 777 };
    double buffer[COUNT];
    for (int root = 0; root < rank->nranks; root++) {
        halay_ticket_t ticket;
        const void *data;
        const size_t *rows;
        size_t count;
        for (int i = 0; i < COUNT; i++)
            buffer[i] = rank->rank * 1e6 + i + 0.25;
        CHECK(!halay_trainer_broadcast(rank->trainer, "broadcast", buffer, COUNT, HALAY_FLOAT64,
                                       root, &ticket),
              "submit");
        CHECK(!halay_trainer_wait(rank->trainer, ticket, NULL, 0), "wait");
        for (int i = 0; i < COUNT; i++)
            CHECK(buffer[i] == root * 1e6 + i + 0.25, "root %d [%d]", root, i);
        CHECK(!halay_trainer_result(rank->trainer, ticket, &data, &count, &rows), "result");
        CHECK(data == buffer && count == COUNT && !rows, "result of a broadcast");
        halay_trainer_release(rank->trainer, ticket);
    }
}

/* No rank leaves before the last has come. */
static void barrier(struct rank *rank)
{
    for (int i = 0; i < 20; i++) {
        halay_ticket_t ticket;
        if (rank->rank == i % rank->nranks)
            usleep(3000);
        __atomic_add_fetch(&rank->ranks->codes[0], 1, __ATOMIC_SEQ_CST);
        CHECK(!halay_trainer_barrier(rank->trainer, "barrier", &ticket), "submit");
        finish(rank, ticket, 0);
        int come = __atomic_load_n(&rank->ranks->codes[0], __ATOMIC_SEQ_CST);
        CHECK(come >= (i + 1) * rank->nranks, "%d had come", come);
    }
}

static void poll_and_tickets(struct rank *rank)
{
    int64_t in[3], out[3];
    CHECK(halay_trainer_poll(rank->trainer, 0) == HALAY_EINVAL, "0 is no ticket");
    CHECK(halay_trainer_poll(rank->trainer, 1u << 16) == HALAY_EINVAL, "never given out");
    CHECK(halay_trainer_poll(rank->trainer, ~UINT64_C(0)) == HALAY_EINVAL, "never given out");
    halay_trainer_release(rank->trainer, 0);
    if (rank->rank == 0 && rank->nranks > 1) {
        halay_ticket_t ticket = submit_sum(rank, 0, in, out, 3);
        for (int i = 0; i < 100; i++)
            CHECK(halay_trainer_poll(rank->trainer, ticket) == 0, "the others have not submitted");
        CHECK(halay_trainer_result(rank->trainer, ticket, NULL, NULL, NULL) == HALAY_ESTATE,
              "early");
        meet(rank);
        halay_trainer_release(rank->trainer, ticket); /* waits */
        check_sum(rank, 0, in, out, 3);
        CHECK(halay_trainer_poll(rank->trainer, ticket) == HALAY_EINVAL, "stale");
        CHECK(halay_trainer_wait(rank->trainer, ticket, NULL, 0) == HALAY_EINVAL, "stale");
        meet(rank);
        halay_ticket_t next = submit_sum(rank, 1, in, out, 3);
        CHECK(next != ticket && halay_trainer_poll(rank->trainer, ticket) == HALAY_EINVAL,
              "a stale ticket was taken for a new tensor");
        finish(rank, next, 0);
        return;
    }
    meet(rank);
    halay_ticket_t ticket = submit_sum(rank, 0, in, out, 3);
    int rc;
    while ((rc = halay_trainer_poll(rank->trainer, ticket)) == 0)
        usleep(100);
    CHECK(rc == 1, "poll: %d", rc);
    finish(rank, ticket, 0);
    check_sum(rank, 0, in, out, 3);
    meet(rank);
    finish(rank, submit_sum(rank, 1, in, out, 3), 0);
}

/* ------------------------------------------------------------------ threads */

struct helper {
    struct rank *rank;
    halay_ticket_t ticket;
    int first;
};

static void *helper_wait(void *arg)
{
    struct helper *helper = arg;
    char text[64];
    CHECK(!halay_trainer_wait(helper->rank->trainer, helper->ticket, text, sizeof(text)), "%s",
          text);
    return NULL;
}

static void *helper_submit(void *arg)
{
    struct helper *helper = arg;
    enum { TENSORS = 100 };
    int64_t in[TENSORS][4], out[TENSORS][4];
    halay_ticket_t tickets[TENSORS];
    for (int t = 0; t < TENSORS; t++)
        tickets[t] = submit_sum(helper->rank, helper->first + t, in[t], out[t], 4);
    for (int t = TENSORS - 1; t >= 0; t--) {
        finish(helper->rank, tickets[t], 0);
        check_sum(helper->rank, helper->first + t, in[t], out[t], 4);
    }
    return NULL;
}

static void several_threads(struct rank *rank)
{
    pthread_t threads[4];
    struct helper helpers[4];
    int64_t in[2][5], out[2][5];
    for (int i = 0; i < 4; i++) {
        helpers[i] = (struct helper){.rank = rank, .first = i * 100};
        pthread_create(&threads[i], NULL, helper_submit, &helpers[i]);
    }
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);

    /* Four threads wait for two tensors that rank 0 submits late. */
    for (int round = 0; round < 10; round++) {
        meet(rank);
        if (rank->rank == 0)
            usleep(2000);
        for (int t = 0; t < 2; t++)
            helpers[t].ticket = helpers[t + 2].ticket = submit_sum(rank, t, in[t], out[t], 5);
        for (int i = 0; i < 4; i++)
            pthread_create(&threads[i], NULL, helper_wait, &helpers[i]);
        for (int i = 0; i < 4; i++)
            pthread_join(threads[i], NULL);
        for (int t = 0; t < 2; t++) {
            check_sum(rank, t, in[t], out[t], 5);
            finish(rank, helpers[t].ticket, 0);
        }
    }
}

/* Nobody waits: the trainer's own thread wakes up and brings it to its end, soon each time. */
static void thread_alone(struct rank *rank)
{
    int64_t in[2][6], out[2][6];
    halay_ticket_t tickets[2];
    uint64_t took_ns = 0;
    for (int round = 0; round < 4; round++) {
        usleep(20000);
        meet(rank);
        uint64_t start_ns = clock_ns(CLOCK_MONOTONIC);
        for (int t = 0; t < 2; t++)
            tickets[t] = submit_sum(rank, t, in[t], out[t], 6);
        int found = 0; /* asking for a result neither steps nor counts as waiting */
        for (int i = 0; i < 5000 && found < 2; i++) {
            usleep(1000);
            found = 0;
            for (int t = 0; t < 2; t++)
                found += !halay_trainer_result(rank->trainer, tickets[t], NULL, NULL, NULL);
        }
        took_ns += clock_ns(CLOCK_MONOTONIC) - start_ns;
        CHECK(found == 2, "%d tensors were done without help", found);
        for (int t = 0; t < 2; t++)
            finish(rank, tickets[t], 0);
    }
    CHECK(took_ns < 1000000000, "four times two tensors took %.3f s", (double)took_ns * 1e-9);
}

/* A trainer with nothing to do sleeps, and costs nothing. */
static void idle(struct rank *rank)
{
    int64_t in[2], out[2];
    finish(rank, submit_sum(rank, 0, in, out, 2), 0);
    halay_counters_t before = {.size = sizeof(before)}, after = {.size = sizeof(after)};
    meet(rank);
    usleep(50000);
    meet(rank);
    CHECK(!halay_context_counters(rank->context, &before), "counters");
    uint64_t cpu_ns = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
    usleep(1500000);
    cpu_ns = clock_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu_ns;
    CHECK(!halay_context_counters(rank->context, &after), "counters");
    CHECK(cpu_ns < 15000000, "%.3f ms of CPU in 1.5 s", (double)cpu_ns * 1e-6);
    CHECK(before.sent_messages == after.sent_messages, "an idle trainer sent messages");
    meet(rank);
}

/* What agrees in shapes runs, and is replayed; an allgather's first dimension may differ. */
static void shapes(struct rank *rank)
{
    const halay_dims_t shape = {3, {2, 1, 3}}, rows = {3, {(size_t)rank->rank, 2, 1}};
    int n = rank->nranks;
    halay_trainer_counters_t before = {.size = sizeof(before)}, after = {.size = sizeof(after)};
    for (int step = 0; step < 12; step++) {
        int32_t sum[6], sent[6], row[2 * RANKS_MAX];
        halay_ticket_t tickets[3];
        const void *data;
        size_t count;
        for (int i = 0; i < 6; i++)
            sum[i] = sent[i] = rank->rank + i + step;
        for (int i = 0; i < 2 * n; i++)
            row[i] = rank->rank;
        if (step == 4)
            halay_trainer_counters(rank->trainer, &before);
        CHECK(!halay_trainer_allreduce_shaped(rank->trainer, "sum", sum, sum, &shape, HALAY_INT32,
                                              HALAY_SUM, 1, 1, &tickets[0]),
              "submit");
        CHECK(!halay_trainer_broadcast_shaped(rank->trainer, "sent", sent, &shape, HALAY_INT32,
                                              n - 1, &tickets[1]),
              "submit");
        CHECK(!halay_trainer_allgather_shaped(rank->trainer, "rows", row, &rows, HALAY_INT32,
                                              &tickets[2]),
              "submit");
        CHECK(!halay_trainer_wait(rank->trainer, tickets[2], NULL, 0) &&
                  !halay_trainer_result(rank->trainer, tickets[2], &data, &count, NULL),
              "gather");
        CHECK(count == (size_t)(n * (n - 1)) && (n == 1 || ((const int32_t *)data)[1] == 1),
              "gathered %zu", count);
        for (int i = 0; i < 3; i++)
            finish(rank, tickets[i], 0);
        for (int i = 0; i < 6; i++)
            CHECK(sum[i] == n * (n - 1) / 2 + n * (i + step) && sent[i] == n - 1 + i + step,
                  "step %d, element %d: %d, %d", step, i, sum[i], sent[i]);
    }
    halay_trainer_counters(rank->trainer, &after);
    CHECK(after.control_rounds == before.control_rounds, "rounds in the steady state");
}

/* Rows dealt out, fewer than ranks too; scaled, averaged, none; replayed without rounds. */
static void scatters(struct rank *rank)
{
    static const size_t rows[4] = {7, 1, 0, 10};
    int n = rank->nranks;
    halay_trainer_counters_t before = {.size = sizeof(before)}, after = {.size = sizeof(after)};
    for (int step = 0; step < 12; step++) {
        float in[4][30], out[4][30];
        halay_ticket_t tickets[4];
        if (step == 4)
            halay_trainer_counters(rank->trainer, &before);
        for (int t = 0; t < 4; t++) {
            const halay_dims_t shape = {2, {rows[t], 3}};
            char name[16];
            snprintf(name, sizeof(name), "t.%d", t);
            for (int i = 0; i < 30; i++) {
                in[t][i] = (float)(8 * (rank->rank + i + step));
                out[t][i] = -1;
            }
            CHECK(!halay_trainer_reduce_scatter(rank->trainer, name, in[t], out[t], &shape,
                                                HALAY_FLOAT32, HALAY_SUM, t == 3 ? .5 : 1,
                                                t ? .25 : 1, &tickets[t]),
                  "submit");
        }
        for (int t = 0; t < 4; t++) {
            size_t each = rows[t] / (size_t)n, more = rows[t] % (size_t)n, r = (size_t)rank->rank;
            size_t first = 3 * (r * each + (r < more ? r : more)), count;
            size_t own = 3 * (each + (r < more));
            double scale = (t == 3 ? .5 : 1) * (t ? .25 : 1);
            const void *data;
            CHECK(!halay_trainer_wait(rank->trainer, tickets[t], NULL, 0) &&
                      !halay_trainer_result(rank->trainer, tickets[t], &data, &count, NULL),
                  "wait");
            CHECK(data == out[t] && count == own, "tensor %d has %zu elements, not %zu", t, count,
                  own);
            for (size_t i = 0; i < 30; i++) {
                int64_t sum = 8 * (n * (n - 1) / 2 + n * ((int64_t)(first + i) + step));
                float want = i < own ? (float)((double)sum * scale) : -1;
                CHECK(out[t][i] == want, "step %d, tensor %d, element %zu: %g, not %g", step, t, i,
                      (double)out[t][i], (double)want);
                CHECK(in[t][i] == (float)(8 * (rank->rank + (int)i + step)), "the input changed");
            }
            finish(rank, tickets[t], 0);
        }
    }
    halay_trainer_counters(rank->trainer, &after);
    CHECK(after.control_rounds == before.control_rounds, "rounds in the steady state");
}

/* A tensor is in place on some ranks, not on others, and changes: small, and larger than a group.
 */
static void places(struct rank *rank)
{
    enum { LARGE = 50000 };
    const size_t counts[3] = {3, LARGE, 5};
    const char *const names[3] = {"small", "large", "alone"};
    int64_t *in = calloc(LARGE, sizeof(*in)), *out = calloc(LARGE, sizeof(*out));
    CHECK(in && out, "memory");
    for (int step = 0; step < 18; step++) {
        int placed = step < 6 ? rank->rank % 2 : step < 12 ? 0 : (step + rank->rank) % 2;
        for (int t = 0; t < 3; t++) {
            halay_ticket_t ticket;
            int64_t *from = placed ? out : in;
            for (size_t i = 0; i < counts[t]; i++)
                from[i] = rank->rank + step + (int64_t)i;
            CHECK(!halay_trainer_allreduce(rank->trainer, names[t], from, out, counts[t],
                                           HALAY_INT64, t == 2 ? HALAY_AVERAGE : HALAY_SUM, 1, 1,
                                           &ticket),
                  "submit");
            finish(rank, ticket, 0);
            int n = rank->nranks;
            for (size_t i = 0; i < counts[t]; i++) {
                int64_t sum = n * (n - 1) / 2 + n * (step + (int64_t)i);
                CHECK(out[i] == (t == 2 ? sum / n : sum), "step %d, tensor %d, element %zu", step,
                      t, i);
                CHECK(placed || from[i] == rank->rank + step + (int64_t)i, "the input changed");
            }
        }
    }
    free(in);
    free(out);
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        {"orders", orders},
        {"allgather", allgather},
        {"broadcast", broadcast},
        {"barrier", barrier},
        {"shapes", shapes},
        {"places", places},
        {"scatters", scatters},
        {"poll and tickets", poll_and_tickets},
        {"several threads", several_threads},
        {"thread alone", thread_alone},
        {"thousand", thousand},
        {"idle", idle},
        {NULL},
    };
    return run_cases(cases, argc, argv);
}
