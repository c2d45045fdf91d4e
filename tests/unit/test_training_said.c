/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_training_said.c - a rank that says in a round what it cannot mean, or that it cannot go on:
 * all others end with an error that names it. In the first case the last rank's trainer is kept
 * from stepping, and its block is written here.
 */
#include "training/shell/trainer.h"
#include "training_ranks.h"

static void block_say(struct rank *rank, struct hlt_block *mine)
{
    halay_trainer_t *trainer = rank->trainer;
    struct hlt_block *all = calloc((size_t)rank->nranks, sizeof(*all));
    CHECK(all, "no memory");
    all[rank->rank] = *mine;
    int rc = halay_allgather(HALAY_IN_PLACE, all, sizeof(*all) / sizeof(uint64_t), HALAY_UINT64,
                             trainer->control);
    CHECK(!rc, "%s", halay_strerror(rc));
    free(all);
}

/* The last rank does what its trainer would do, but says `mine`. */
static void says(struct rank *rank, struct hlt_block *mine)
{
    halay_trainer_t *trainer = rank->trainer;
    int64_t value = 1;
    char text[1024], who[32];
    halay_ticket_t ticket;
    if (rank->rank == rank->nranks - 1) {
        pthread_mutex_lock(&trainer->mutex);
        while (trainer->steps.stepping)
            pthread_cond_wait(&trainer->changed, &trainer->mutex);
        trainer->steps.stepping = 1; /* nobody else does */
        pthread_mutex_unlock(&trainer->mutex);
    }
    meet(rank);
    if (rank->rank == rank->nranks - 1) {
        block_say(rank, mine);
        pthread_mutex_lock(&trainer->mutex);
        trainer->steps.stepping = 0;
        pthread_cond_broadcast(&trainer->changed);
        pthread_mutex_unlock(&trainer->mutex);
        return;
    }
    CHECK(!halay_trainer_allreduce(trainer, "x", &value, &value, 1, HALAY_INT64, HALAY_SUM, 1, 1,
                                   &ticket),
          "submit");
    int rc = halay_trainer_wait(trainer, ticket, text, sizeof(text));
    snprintf(who, sizeof(who), "rank %d announced", rank->nranks - 1);
    CHECK(rc == HALAY_EINTERNAL && strstr(text, who), "%s: %s", halay_strerror(rc), text);
    halay_trainer_release(trainer, ticket);
}

static void too_many(struct rank *rank)
{
    struct hlt_block block = {.count = UINT64_C(1) << 40};
    says(rank, &block);
}

static void one_too_many(struct rank *rank)
{
    struct hlt_block block = {.count = HLT_ROUND_ENTRIES + 1};
    says(rank, &block);
}

static void twice(struct rank *rank)
{
    struct hlt_block block = {.count = 2};
    for (int i = 0; i < 2; i++)
        block.entries[i] =
            (struct hlt_announcement){.name = 77, .what = HLT_KIND_ALLREDUCE, .count = 1};
    says(rank, &block);
}

/* The last rank cannot go on: the others learn it from the call that it refuses, on each of the two
 * communicators. */
static void refuses(struct rank *rank)
{
    static const char reason[] = "this rank's device has failed";
    int64_t value = 1;
    char text[1024], who[64];
    halay_ticket_t ticket;
    const int last = rank->nranks - 1;
    if (rank->rank == last)
        CHECK(hlt_trainer_lose(rank->trainer, HALAY_EDEVICE) == HALAY_EDEVICE, "lose");
    meet(rank);
    int rc = halay_trainer_allreduce(rank->trainer, "x", &value, &value, 1, HALAY_INT64, HALAY_SUM,
                                     1, 1, &ticket);
    if (!rc) {
        rc = halay_trainer_wait(rank->trainer, ticket, text, sizeof(text));
        snprintf(who, sizeof(who), "rank %d of %d on ", last, rank->nranks);
        CHECK(strstr(text, reason), "%s", text);
        CHECK(rank->rank == last || (strstr(text, who) && strstr(text, "cannot make its call")),
              "%s", text);
        halay_trainer_release(rank->trainer, ticket);
    }
    CHECK(rc == HALAY_EDEVICE, "rank %d: %s", rank->rank, halay_strerror(rc));
    meet(rank);
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        {"too_many", too_many, {2, 3}},
        {"one_too_many", one_too_many, {2, 3}},
        {"twice", twice, {2, 3}},
        {"refuses", refuses, {2, 3}},
        {NULL},
    };
    setenv("HALAY_STALL", "0", 1);
    return run_cases(cases, argc, argv);
}
