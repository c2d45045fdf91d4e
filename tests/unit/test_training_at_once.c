/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_training_at_once.c - allreduces that are submitted and waited for in one call: alone, beside
 * other callers of the same trainer, and with everything that can go wrong with the two apart.
 */
#include <sys/wait.h>

#include "training_ranks.h"

enum { COUNT = 6 };

static halay_reduction_t reduction(const char *name, halay_type_t type, halay_op_t op)
{
    return (halay_reduction_t){.size = sizeof(halay_reduction_t),
                               .name = name,
                               .shape = {2, {2, COUNT / 2}},
                               .type = type,
                               .op = op,
                               .prescale = 1,
                               .postscale = 1};
}

/* Reduces integers that depend on `seed`, out of place if it is odd; wants the exact sum. */
static void sum(struct rank *rank, const char *name, int seed)
{
    int64_t in[COUNT], out[COUNT], want;
    char text[1024] = "?";
    halay_reduction_t says = reduction(name, HALAY_INT64, HALAY_SUM);
    for (int i = 0; i < COUNT; i++)
        in[i] = out[i] = (rank->rank + 1) * 1000 + seed * 31 + i;
    int rc = halay_trainer_allreduce_wait(rank->trainer, &says, seed & 1 ? in : HALAY_IN_PLACE, out,
                                          text, sizeof(text));
    CHECK(!rc && !text[0], "%s: %d %s", name, rc, text);
    for (int i = 0; i < COUNT; i++) {
        want = 1000 * rank->nranks * (rank->nranks + 1) / 2 + rank->nranks * (seed * 31 + i);
        CHECK(out[i] == want, "%s [%d] is %lld, not %lld", name, i, (long long)out[i],
              (long long)want);
    }
}

static void refuse(struct rank *rank, const halay_reduction_t *says, int code)
{
    int64_t out[COUNT] = {0};
    char text[1024] = "";
    int rc = halay_trainer_allreduce_wait(rank->trainer, says, out, out, text, sizeof(text));
    CHECK(rc == code && text[0], "%d instead of %d: '%s'", rc, code, text);
    CHECK(halay_trainer_allreduce_wait(rank->trainer, says, out, out, NULL, 0) == code, "no text");
}

/* The same few again and again are a programme, and need no round. */
static void replayed(struct rank *rank)
{
    halay_trainer_counters_t before = {.size = sizeof(before)}, after = {.size = sizeof(after)};
    for (int step = 0; step < 60; step++) {
        if (step == 10)
            CHECK(!halay_trainer_counters(rank->trainer, &before), "counters");
        sum(rank, "a", step);
        if (step % 7 == 0)
            usleep(100 * (unsigned)rank->rank);
        sum(rank, "b", step + 1);
    }
    CHECK(!halay_trainer_counters(rank->trainer, &after), "counters");
    CHECK(after.control_rounds == before.control_rounds && after.voids == 0,
          "%llu rounds in 50 steps",
          (unsigned long long)(after.control_rounds - before.control_rounds));
}

static void scaled(struct rank *rank)
{
    halay_reduction_t says = reduction("scaled", HALAY_FLOAT64, HALAY_SUM);
    double values[COUNT];
    says.prescale = 0.5;
    says.postscale = 4;
    for (int step = 0; step < 10; step++) {
        for (int i = 0; i < COUNT; i++)
            values[i] = rank->rank + i;
        CHECK(!halay_trainer_allreduce_wait(rank->trainer, &says, values, values, NULL, 0), "?");
        for (int i = 0; i < COUNT; i++)
            CHECK(values[i] == rank->nranks * (rank->nranks - 1 + 2.0 * i), "%g", values[i]);
    }
}

/* More than two megabytes, and none. */
static void sizes(struct rank *rank)
{
    enum { MANY = 300000 };
    static const size_t counts[] = {1, 0, MANY};
    int64_t *values = malloc(MANY * sizeof(*values));
    CHECK(values, "no memory");
    for (int step = 0; step < 12; step++) {
        size_t count = counts[step % 3];
        char name[] = {'s', (char)('0' + step % 3), 0};
        halay_reduction_t says = reduction(name, HALAY_INT64, HALAY_MAX);
        says.shape = (halay_dims_t){1, {count}};
        for (size_t i = 0; i < count; i++)
            values[i] = (int64_t)i * (rank->rank + 1);
        CHECK(!halay_trainer_allreduce_wait(rank->trainer, &says, values, values, NULL, 0), "?");
        for (size_t i = 0; i < count; i++)
            CHECK(values[i] == (int64_t)i * rank->nranks, "[%zu] is %lld", i, (long long)values[i]);
    }
    free(values);
}

struct caller {
    struct rank *rank;
    int number;
    pthread_t thread;
};

static void *call_often(void *arg)
{
    const struct caller *caller = arg;
    char name[32];
    snprintf(name, sizeof(name), "of.%d", caller->number);
    for (int step = 0; step < 40; step++) {
        sum(caller->rank, name, step + caller->number);
        if (step % 16 == caller->number)
            usleep(3000); /* so long that the trainer's thread takes over */
    }
    return NULL;
}

/* Threads of one rank call at the same time, while another one submits, and waits later. */
static void together(struct rank *rank)
{
    struct caller callers[3];
    int64_t values[COUNT];
    for (int i = 0; i < 3; i++) {
        callers[i] = (struct caller){.rank = rank, .number = i};
        CHECK(!pthread_create(&callers[i].thread, NULL, call_often, &callers[i]), "no thread");
    }
    for (int step = 0; step < 40; step++) {
        halay_ticket_t ticket;
        for (int i = 0; i < COUNT; i++)
            values[i] = i;
        CHECK(!halay_trainer_allreduce(rank->trainer, "apart", values, values, COUNT, HALAY_INT64,
                                       HALAY_SUM, 1, 1, &ticket),
              "submit");
        if (step & 1)
            while (halay_trainer_poll(rank->trainer, ticket) == 0)
                usleep(50);
        finish(rank, ticket, 0);
        for (int i = 0; i < COUNT; i++)
            CHECK(values[i] == i * rank->nranks, "%lld", (long long)values[i]);
    }
    for (int i = 0; i < 3; i++)
        pthread_join(callers[i].thread, NULL);
}

/* Nothing of what is refused is submitted: the name is free, and the others need not come. */
static void refused(struct rank *rank)
{
    char longer[HALAY_TENSOR_NAME_MAX + 1] = {0};
    halay_reduction_t says = reduction("x", HALAY_INT64, HALAY_SUM);
    int64_t values[COUNT] = {0};
    halay_ticket_t ticket;
    refuse(rank, NULL, HALAY_EINVAL);
    says.size--;
    refuse(rank, &says, HALAY_EINVAL);
    says = reduction(NULL, HALAY_INT64, HALAY_SUM);
    refuse(rank, &says, HALAY_EINVAL);
    says.name = "";
    refuse(rank, &says, HALAY_EINVAL);
    says.name = memset(longer, 'x', HALAY_TENSOR_NAME_MAX);
    refuse(rank, &says, HALAY_EINVAL);
    says = reduction("x", HALAY_INT64, HALAY_OP_COUNT);
    refuse(rank, &says, HALAY_EINVAL);
    says = reduction("x", HALAY_INT64, HALAY_SUM);
    says.prescale = 2; /* of integers */
    refuse(rank, &says, HALAY_EINVAL);
    says = reduction("x", HALAY_INT64, HALAY_SUM);
    says.shape.ndims = HALAY_DIMS_MAX + 1;
    refuse(rank, &says, HALAY_EINVAL);
    CHECK(halay_trainer_allreduce_wait(NULL, &says, values, values, NULL, 0) == HALAY_EINVAL, "?");

    sum(rank, "x", 1);
    CHECK(!halay_trainer_allreduce(rank->trainer, "x", values, values, COUNT, HALAY_INT64,
                                   HALAY_SUM, 1, 1, &ticket),
          "submit");
    says = reduction("x", HALAY_INT64, HALAY_SUM);
    refuse(rank, &says, HALAY_EINVAL); /* it is out */
    finish(rank, ticket, 0);
    sum(rank, "x", 2);
}

static void differing(struct rank *rank)
{
    halay_reduction_t says = reduction("y", HALAY_INT64, HALAY_SUM);
    int64_t values[COUNT] = {0};
    char text[1024];
    for (int step = 0; step < 8; step++) {
        sum(rank, "y", step);
        if (step % 3 != 2)
            continue;
        says.shape.dims[0] = rank->rank == rank->nranks - 1 ? 1 : 2;
        int rc =
            halay_trainer_allreduce_wait(rank->trainer, &says, values, values, text, sizeof(text));
        CHECK(rc == HALAY_EMISMATCH && strstr(text, "[1, 3]") && strstr(text, "[2, 3]"), "%d %s",
              rc, text);
    }
}

/* One rank does not come in time, in the first step or in a programme; then all go on. */
static void late(struct rank *rank)
{
    halay_reduction_t says = reduction("late", HALAY_INT64, HALAY_SUM);
    int64_t values[COUNT];
    char text[1024], missing[32];
    snprintf(missing, sizeof(missing), "rank %d", rank->nranks - 1);
    for (int step = 0; step < 2; step++) {
        memset(values, 1, sizeof(values));
        if (rank->rank != rank->nranks - 1) {
            int rc = halay_trainer_allreduce_wait(rank->trainer, &says, values, values, text,
                                                  sizeof(text));
            CHECK(rc == HALAY_ETIMEOUT && strstr(text, "late") && strstr(text, missing), "%d %s",
                  rc, text);
            CHECK(values[0] == 0x0101010101010101, "the tensor was written to");
        }
        meet(rank);
        for (int i = 0; i < 6; i++)
            sum(rank, "late", i);
        meet(rank);
    }
}

static void forked(struct rank *rank)
{
    halay_reduction_t says = reduction("z", HALAY_INT64, HALAY_SUM);
    int64_t values[COUNT] = {0};
    int status;
    sum(rank, "z", 1);
    pid_t pid = fork();
    CHECK(pid >= 0, "fork");
    if (!pid)
        _exit(-halay_trainer_allreduce_wait(rank->trainer, &says, values, values, NULL, 0));
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) &&
              WEXITSTATUS(status) == -HALAY_EFORKED,
          "the child ended with %#x", (unsigned)status);
    sum(rank, "z", 2);
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        {"replayed", replayed, {0}, "1000"},
        {"scaled", scaled},
        {"sizes", sizes},
        {"together", together},
        {"refused", refused},
        {"differing", differing, {2, 3, 5}},
        {"late", late, {2, 3}, "0.6"},
        {"forked", forked, {1, 3}},
        {NULL},
    };
    setenv("HALAY_STALL", "0",
           1); /* a notice is a round, and a slow machine gives reason for one */
    return run_cases(cases, argc, argv);
}
