/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_training_join.c - ranks with different numbers of steps: who has no more joins, and the
 * others' sums go on without it; all hear which rank was the last.
 */
#include "training_ranks.h"

enum { LAYERS = 20, COUNT = 7 };

/* Sums, integer averages and scaled sums, in this rank's own order; `present` ranks submit it. */
static void step(struct rank *rank, int number, int present)
{
    int64_t whole[LAYERS][COUNT];
    float scaled[LAYERS][COUNT];
    int order[LAYERS], n = rank->nranks;
    halay_ticket_t tickets[LAYERS], alone = 0;
    shuffle(order, LAYERS, &rank->seed);
    if (number % 3 == 0 && number > 8)
        CHECK(!halay_trainer_barrier(rank->trainer, "together", &alone), "submit");
    for (int i = 0; i < LAYERS; i++) {
        char name[32];
        int t = order[i], rc;
        snprintf(name, sizeof(name), "layer.%d", t);
        for (int c = 0; c < COUNT; c++)
            scaled[t][c] = (float)(whole[t][c] = 6 * (1 + t + c + number));
        if (t % 3 == 2)
            rc = halay_trainer_allreduce(rank->trainer, name, scaled[t], scaled[t], COUNT,
                                         HALAY_FLOAT32, HALAY_SUM, .5, 4, &tickets[t]);
        else
            rc =
                halay_trainer_allreduce(rank->trainer, name, whole[t], whole[t], COUNT, HALAY_INT64,
                                        t % 3 ? HALAY_AVERAGE : HALAY_SUM, 1, 1, &tickets[t]);
        CHECK(!rc, "submit: %d", rc);
    }
    for (int t = 0; t < LAYERS; t++) {
        finish(rank, tickets[t], 0);
        for (int c = 0; c < COUNT; c++) {
            int64_t all = (int64_t)present * 6 * (1 + t + c + number);
            int64_t want = t % 3 == 0 ? all : t % 3 == 1 ? all / n : 2 * all;
            int64_t found = t % 3 == 2 ? (int64_t)scaled[t][c] : whole[t][c];
            CHECK(found == want, "step %d with %d ranks, layer %d: %lld, not %lld", number, present,
                  t, (long long)found, (long long)want);
        }
    }
    if (alone)
        finish(rank, alone, 0);
}

static int join(struct rank *rank)
{
    halay_ticket_t ticket;
    char text[1024];
    size_t last = 77;
    CHECK(!halay_trainer_join(rank->trainer, &ticket), "submit");
    int rc = halay_trainer_wait(rank->trainer, ticket, text, sizeof(text));
    CHECK(!rc, "%d: %s", rc, text);
    CHECK(!halay_trainer_result(rank->trainer, ticket, NULL, &last, NULL), "result");
    halay_trainer_release(rank->trainer, ticket);
    return (int)last;
}

/* So many steps more than the rank with the least; the last one of all has them alone. */
static int extra_of(int rank, int epoch, int nranks)
{
    return 2 * ((rank + epoch) % nranks);
}

/*
 * Epochs whose common part is replayed, before and after the part that some ranks do not have. The
 * rank with the most steps is alone in the end, and joins last.
 */
static void epochs(struct rank *rank)
{
    int n = rank->nranks;
    for (int epoch = 0; epoch < 4; epoch++) {
        int mine = 8 + extra_of(rank->rank, epoch, n), last = -1;
        uint64_t cycles = counters(rank).cycles;
        for (int number = 0; number < mine; number++) {
            int present = 0;
            for (int r = 0; r < n; r++)
                present += number < 8 + extra_of(r, epoch, n);
            step(rank, number, present);
            if (number == 7)
                CHECK(counters(rank).cycles > cycles + 5, "epoch %d: %d cycles", epoch,
                      (int)(counters(rank).cycles - cycles));
        }
        last = join(rank);
        CHECK(extra_of(last, epoch, n) == 2 * (n - 1), "rank %d was the last", last);
    }
}

/* What a joined rank cannot be part of ends on the others, and what it can goes on. */
static void refused(struct rank *rank)
{
    float value[4] = {1, 2, 3, 4};
    char text[1024];
    halay_ticket_t ticket;
    int joins = rank->rank == 0;
    for (int turn = 0; turn < 2; turn++) {
        if (joins) {
            CHECK(join(rank) != 0 || rank->nranks == 1, "rank 0 was the last");
            continue;
        }
        /* An allreduce that goes on shows that rank 0 has joined or will, so nothing is timed. */
        for (int kind = 0; kind < 4; kind++) {
            int rc = kind == 0   ? halay_trainer_allgather(rank->trainer, "it", value, 2, 2,
                                                           HALAY_FLOAT32, &ticket)
                     : kind == 1 ? halay_trainer_broadcast(rank->trainer, "it", value, 4,
                                                           HALAY_FLOAT32, 1, &ticket)
                     : kind == 2
                         ? halay_trainer_allreduce(rank->trainer, "it", value, value, 4,
                                                   HALAY_FLOAT32, HALAY_MAX, 1, 1, &ticket)
                         : halay_trainer_allreduce(rank->trainer, "it", value, value,
                                                   rank->rank == 1 && rank->nranks > 2 ? 3 : 4,
                                                   HALAY_FLOAT32, HALAY_SUM, 1, 1, &ticket);
            int want = kind < 3 ? HALAY_EUNSUPPORTED : rank->nranks > 2 ? HALAY_EMISMATCH : 0;
            CHECK(!rc, "submit: %d", rc);
            rc = halay_trainer_wait(rank->trainer, ticket, text, sizeof(text));
            halay_trainer_release(rank->trainer, ticket);
            CHECK(rc == want, "kind %d: %d, not %d: %s", kind, rc, want, text);
            CHECK(kind == 3 || (strstr(text, "rank 0 (inproc") && strstr(text, "joined")), "%s",
                  text);
            CHECK(value[0] == 1 && value[3] == 4, "the input has changed");
        }
        CHECK(join(rank) != 0, "rank 0 was the last");
    }
    step(rank, 1, rank->nranks);
}

/* Groups go on with zeros too, or end as a whole; also those that were out before the join. */
static void groups(struct rank *rank)
{
    enum { MEMBERS = 50 };
    char names[MEMBERS][16], text[1024];
    const void *in[MEMBERS];
    void *out[MEMBERS];
    halay_reduction_t says[MEMBERS];
    halay_ticket_t tickets[MEMBERS];
    int64_t values[MEMBERS];
    for (int turn = 0; turn < 6; turn++) {
        halay_op_t op = turn % 3 == 2 ? HALAY_MIN : HALAY_SUM;
        int joins = rank->rank == turn % rank->nranks;
        for (int i = 0; i < MEMBERS; i++) {
            snprintf(names[i], sizeof(names[i]), "member.%d", i);
            in[i] = out[i] = &values[i];
            says[i] = (halay_reduction_t){sizeof(*says), names[i], {0, {0}}, HALAY_INT64, op, 1, 1};
            values[i] = 1 + i;
        }
        CHECK(joins ||
                  !halay_trainer_allreduce_group(rank->trainer, MEMBERS, says, in, out, tickets),
              "submit");
        if (turn % 2) /* the joins may come before, behind, or in the middle of it */
            CHECK(join(rank) < rank->nranks, "join");
        for (int i = 0; i < MEMBERS && !joins; i++) {
            int rc = halay_trainer_wait(rank->trainer, tickets[i], text, sizeof(text));
            halay_trainer_release(rank->trainer, tickets[i]);
            CHECK(op == HALAY_MIN ? rc == HALAY_EUNSUPPORTED || rc == HALAY_EMISMATCH : !rc,
                  "member %d: %d %s", i, rc, text);
            CHECK(values[i] == (rc ? 1 : rank->nranks - 1) * (1 + i), "member %d: %lld", i,
                  (long long)values[i]);
        }
        if (turn % 2 == 0)
            CHECK(join(rank) < rank->nranks, "join");
    }
    step(rank, 1, rank->nranks);
}

/* A rank that never joins: the others hear it when the deadline has passed, and can go on. */
static void alone(struct rank *rank)
{
    char text[1024];
    halay_ticket_t ticket, second = 77;
    int last = rank->nranks - 1;
    for (int number = 0; number < 6; number++)
        step(rank, number, rank->nranks);
    if (rank->rank != last) {
        CHECK(!halay_trainer_join(rank->trainer, &ticket), "submit");
        CHECK(halay_trainer_join(rank->trainer, &second) == HALAY_EINVAL && second == 77, "two");
        int rc = halay_trainer_wait(rank->trainer, ticket, text, sizeof(text));
        halay_trainer_release(rank->trainer, ticket);
        CHECK(rc == HALAY_ETIMEOUT && strstr(text, "not joined: rank "), "%d: %s", rc, text);
    }
    meet(rank);
    for (int number = 0; number < 6; number++)
        step(rank, number, rank->nranks);
    CHECK(join(rank) < rank->nranks, "join");
}

/* A rank leaves while others have joined: they hear it. */
static void leaving(struct rank *rank)
{
    char text[1024];
    halay_ticket_t ticket;
    step(rank, 0, rank->nranks);
    if (rank->rank == 0) {
        halay_trainer_destroy(rank->trainer);
        CHECK(!halay_finalize(rank->context), "something was in flight");
        rank->trainer = NULL;
        rank->context = NULL;
        return;
    }
    CHECK(!halay_trainer_join(rank->trainer, &ticket), "submit");
    int rc = halay_trainer_wait(rank->trainer, ticket, text, sizeof(text));
    CHECK(rc == HALAY_EPEER && text[0], "%d: %s", rc, text);
    halay_trainer_destroy(rank->trainer);
    rank->trainer = NULL;
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        {"epochs", epochs},
        {"refused", refused, {2, 3, 5}},
        {"groups", groups, {2, 3, 5}},
        {"alone", alone, {2, 3}, "3"},
        {"leaving", leaving, {2, 3}},
        {NULL},
    };
    return run_cases(cases, argc, argv);
}
