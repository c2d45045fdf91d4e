/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_training_ends.c - a trainer that has ended on one rank, where others do not know it yet:
 * they are answered, and nobody waits for the deadline, which is 30 s.
 */
#include "training/shell/trainer.h"
#include "training_ranks.h"

/* Ends this rank's trainer as an error of a group would, or (tells) a lost device. */
static void break_here(halay_trainer_t *trainer, int tells)
{
    pthread_mutex_lock(&trainer->mutex);
    while (trainer->steps.stepping)
        pthread_cond_wait(&trainer->changed, &trainer->mutex);
    if (tells)
        hlt_core_leave_all(&trainer->core, HALAY_EDEVICE, "lost");
    else
        hlt_core_break(&trainer->core, HALAY_EDEVICE, "broken");
    pthread_mutex_unlock(&trainer->mutex);
    halay_context_wake(trainer->context);
}

/* A rank whose trainer has ended still answers those that do not know it: in a round, which rank 1
 * begins afterwards, and in the last calls of a rank that leaves. Nobody waits for the deadline. */
static void broken_first(struct rank *rank, int tells)
{
    const uint64_t start_ns = clock_ns(CLOCK_MONOTONIC);
    if (rank->rank != 1)
        break_here(rank->trainer, 0);
    meet(rank);
    if (rank->rank == 1) {
        float value = 1;
        char text[1024];
        halay_ticket_t ticket;
        if (tells)
            break_here(rank->trainer, 1);
        CHECK(!halay_trainer_allreduce(rank->trainer, "x", &value, &value, 1, HALAY_FLOAT32,
                                       HALAY_SUM, 1, 1, &ticket),
              "submit");
        CHECK(halay_trainer_wait(rank->trainer, ticket, text, sizeof(text)) < 0 && text[0], "%s",
              text);
        halay_trainer_release(rank->trainer, ticket);
        halay_trainer_destroy(rank->trainer);
        rank->trainer = NULL;
        const double took_s = (double)(clock_ns(CLOCK_MONOTONIC) - start_ns) * 1e-9;
        CHECK(took_s < 10, "%g s", took_s);
    }
    meet(rank);
    halay_trainer_destroy(rank->trainer);
    rank->trainer = NULL;
}

static void answered(struct rank *rank)
{
    broken_first(rank, 0);
}

static void farewells(struct rank *rank)
{
    broken_first(rank, 1);
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        {"answered", answered, {2, 3}},
        {"farewells", farewells, {2, 3}},
        {NULL},
    };
    return run_cases(cases, argc, argv);
}
