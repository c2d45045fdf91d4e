/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_hints.c - HALAY_HINT_PLANNER: each planner of a collective is the one that serves it then,
 * in all forms and in groups of calls, on that communicator alone; ranks that have set another one
 * are told; and what is no planner is refused. HALAY_EXPLAIN tells of it, in groups of calls, too.
 */
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <halay/plan.h>

#include "ranks.h"

enum { N = 5, COUNT = 4096 };

static uint32_t find(const char *name)
{
    uint32_t planner;
    CHECK(!halay_planner_find(HALAY_ALLREDUCE, name, &planner), "%s", name);
    return planner;
}

enum form { BLOCKING, POSTED, PERSISTENT, GROUP, FORMS };

static int allreduce(enum form form, const int64_t *in, int64_t *out, halay_comm_t *comm)
{
    halay_request_t *request, *member;
    int rc;
    switch (form) {
    case BLOCKING:
        return halay_allreduce(in, out, COUNT, HALAY_INT64, HALAY_SUM, comm);
    case POSTED:
        rc = halay_iallreduce(in, out, COUNT, HALAY_INT64, HALAY_SUM, comm, &request);
        return rc ? rc : halay_request_wait(request);
    case PERSISTENT:
        rc = halay_allreduce_init(in, out, COUNT, HALAY_INT64, HALAY_SUM, comm, &request);
        if (rc || (rc = halay_request_start(request)) || (rc = halay_request_wait(request)))
            return rc;
        return halay_request_free(request);
    default:
        rc = halay_group_begin(comm);
        if (!rc)
            rc = halay_iallreduce(in, out, COUNT, HALAY_INT64, HALAY_SUM, comm, &member);
        if (!rc)
            rc = halay_group_end(comm, &request);
        return rc ? rc : halay_request_wait(request);
    }
}

static void sum_as(enum form form, struct rank *r, halay_comm_t *comm, int round)
{
    static __thread int64_t in[COUNT], out[COUNT];
    for (int i = 0; i < COUNT; i++)
        in[i] = ranks_value(r->rank, round, i);
    int rc = allreduce(form, in, out, comm);
    CHECK(rc == 0, "rank %d, round %d: %s", r->rank, round, halay_strerror(rc));
    for (int i = 0; i < COUNT; i++)
        CHECK(out[i] == ranks_sum(r->nranks, round, i), "round %d, element %d", round, i);
}

static void sum(struct rank *r, halay_comm_t *comm, int round)
{
    sum_as(BLOCKING, r, comm, round);
}

/* Messages that this rank sends in a call. */
static uint64_t messages_as(enum form form, struct rank *r, halay_comm_t *comm, int round)
{
    halay_counters_t before = {.size = sizeof before}, after = before;
    sum_as(form, r, comm, round); /* connects */
    CHECK(!halay_barrier(comm), "barrier");
    CHECK(!halay_context_counters(r->context, &before), "counters");
    sum_as(form, r, comm, round + 1);
    CHECK(!halay_barrier(comm), "barrier");
    CHECK(!halay_context_counters(r->context, &after), "counters");
    return after.sent_messages - before.sent_messages;
}

static uint64_t messages(struct rank *r, halay_comm_t *comm, int round)
{
    return messages_as(BLOCKING, r, comm, round);
}

/* A group sends those of its comparison, too. */
static void all_forms(struct rank *r)
{
    uint64_t sent[FORMS][2];
    const char *const names[2] = {"ring", "recursive_doubling"};
    for (int p = 0; p < 2; p++) {
        CHECK(!halay_comm_set_hint(r->world, HALAY_HINT_PLANNER, (int)find(names[p])), "hint");
        for (enum form f = 0; f < FORMS; f++)
            sent[f][p] = messages_as(f, r, r->world, 2 * (int)f);
    }
    for (enum form f = 1; f < FORMS; f++)
        CHECK(sent[f][0] - sent[f][1] == sent[0][0] - sent[0][1] && sent[f][0] > sent[f][1],
              "rank %d, form %d: %llu and %llu messages, blocking %llu and %llu", r->rank, (int)f,
              (unsigned long long)sent[f][0], (unsigned long long)sent[f][1],
              (unsigned long long)sent[0][0], (unsigned long long)sent[0][1]);
}

static void each(struct rank *r)
{
    halay_comm_t *other;
    int round = 0;
    CHECK(!halay_comm_dup(r->world, &other), "dup");
    const uint64_t usual = messages(r, other, round);
    for (uint32_t p = 0; p < halay_planner_count(); p++) {
        const halay_planner_info_t *info = halay_planner_get(p);
        CHECK(!halay_comm_set_hint(r->world, HALAY_HINT_PLANNER, (int)p), "%s", info->name);
        sum(r, r->world, round += 2);
    }
    CHECK(!halay_comm_set_hint(r->world, HALAY_HINT_PLANNER, (int)find("ring")), "ring");
    const uint64_t ring = messages(r, r->world, round += 2);
    CHECK(!halay_comm_set_hint(r->world, HALAY_HINT_PLANNER, (int)find("recursive_doubling")),
          "recursive doubling");
    const uint64_t doubling = messages(r, r->world, round += 2);
    CHECK(ring > doubling, "rank %d: %llu messages, and %llu", r->rank, (unsigned long long)ring,
          (unsigned long long)doubling);
    CHECK(messages(r, other, round += 2) == usual, "rank %d: on another communicator", r->rank);
    CHECK(!halay_comm_set_hint(r->world, HALAY_HINT_PLANNER, -1), "none");
    CHECK(messages(r, r->world, round += 2) == usual, "rank %d: as before", r->rank);
    const int wrong[] = {(int)halay_planner_count(), INT_MAX, -2, INT_MIN};
    for (int i = 0; i < 4; i++)
        CHECK(halay_comm_set_hint(r->world, HALAY_HINT_PLANNER, wrong[i]) == HALAY_EINVAL &&
                  halay_comm_set_hint(r->world, HALAY_HINT_RELAXED_BROADCAST, wrong[i]) ==
                      HALAY_EINVAL,
              "%d is taken", wrong[i]);
    CHECK(halay_comm_set_hint(r->world, (halay_hint_t)99, 1) == HALAY_EINVAL, "no such hint");
    CHECK(!halay_comm_free(other), "free");
}

static void differ(struct rank *r)
{
    const char *name = r->rank == N - 1 ? "circulant" : "ring";
    int32_t in = 1, out = 0;
    CHECK(!halay_comm_set_hint(r->world, HALAY_HINT_PLANNER, (int)find(name)), "hint");
    int rc = halay_allreduce(&in, &out, 1, HALAY_INT32, HALAY_SUM, r->world);
    CHECK(rc == HALAY_EMISMATCH, "rank %d: %s", r->rank, halay_strerror(rc));
}

/* A start has the plan that was made before: so not while there is one. */
static void persistent(struct rank *r)
{
    int32_t in = 1, out = 0;
    halay_request_t *request;
    CHECK(!halay_allreduce_init(&in, &out, 1, HALAY_INT32, HALAY_SUM, r->world, &request), "init");
    int rc = halay_comm_set_hint(r->world, HALAY_HINT_PLANNER, (int)find("ring"));
    CHECK(rc == HALAY_ESTATE, "%s", halay_strerror(rc));
    CHECK(!halay_request_free(request), "free");
    CHECK(!halay_comm_set_hint(r->world, HALAY_HINT_PLANNER, (int)find("ring")), "hint");
    CHECK(!halay_comm_set_hint(r->world, HALAY_HINT_PLANNER, -1), "none");
}

/* Not while calls are under way. */
static void under_way(struct rank *r)
{
    halay_request_t *request;
    if (r->rank == 0) {
        CHECK(!halay_ibarrier(r->world, &request), "barrier");
        int rc = halay_comm_set_hint(r->world, HALAY_HINT_PLANNER, -1);
        CHECK(rc == HALAY_ESTATE, "%s", halay_strerror(rc));
        pthread_barrier_wait(r->arg);
        CHECK(!halay_request_wait(request), "wait");
    } else {
        pthread_barrier_wait(r->arg);
        CHECK(!halay_barrier(r->world), "barrier");
    }
}

static void blocking_and_group(struct rank *r)
{
    CHECK(!halay_comm_set_hint(r->world, HALAY_HINT_PLANNER, (int)find("ring")), "hint");
    sum_as(BLOCKING, r, r->world, 0);
    sum_as(GROUP, r, r->world, 1);
}

/* What rank 0 explains is the algorithm that ran. */
static void explained(const struct ranks_options *options)
{
    char told[16384];
    FILE *file = tmpfile();
    const int saved = dup(STDERR_FILENO);
    CHECK(file && saved >= 0 && dup2(fileno(file), STDERR_FILENO) >= 0, "dup2");
    CHECK(!setenv("HALAY_EXPLAIN", "1", 1), "setenv");
    ranks_run(options, blocking_and_group, NULL);
    CHECK(!unsetenv("HALAY_EXPLAIN") && dup2(saved, STDERR_FILENO) >= 0, "dup2");
    close(saved);
    rewind(file);
    told[fread(told, 1, sizeof(told) - 1, file)] = 0;
    fclose(file);
    int calls = 0;
    for (const char *at = told; (at = strstr(at, "allreduce of 32768 bytes, ")); at++, calls++) {
        const char *chosen = strstr(at, "  chosen: ");
        const char *by = "  chosen: ring: it was asked for by name (HALAY_HINT_PLANNER)";
        CHECK(chosen && !strncmp(chosen, by, strlen(by)), "told: %s", told);
    }
    CHECK(calls > 0, "told: %s", told);
}

int main(void)
{
    pthread_barrier_t barrier;
    struct ranks_options options = {.nranks = N};
    CHECK(!pthread_barrier_init(&barrier, NULL, N), "barrier");
    for (int shm = 0; shm < 2; shm++) {
        options.shm = shm;
        ranks_run(&options, each, NULL);
        ranks_run(&options, all_forms, NULL);
        ranks_run(&options, persistent, NULL);
        ranks_run(&options, differ, NULL);
        ranks_run(&options, under_way, &barrier);
        explained(&options);
    }
    pthread_barrier_destroy(&barrier);
    return 0;
}
