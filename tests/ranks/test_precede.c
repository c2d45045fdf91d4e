/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_precede.c - moves that precede a call, and moves that are only started, in memory of the
 * late device: in more calls than the window holds, on a device with little room, and where they
 * fail, never end, or precede nothing.
 */
#include <stdatomic.h>
#include <string.h>

#include <halay/local.h>

#include "device/device_builtin.h"
#include "fated.h"
#include "ranks.h"

enum { CALLS = 20, COUNT = 3000, BYTES = COUNT * 4, HALF = COUNT / 2 };
#define DEADLINE 1000000000ull

static void fill(int32_t *to, int rank, int call)
{
    for (int i = 0; i < COUNT; i++)
        to[i] = rank + 1 + call + i;
}

static int32_t sum(int nranks, int call, int i)
{
    return nranks * (nranks + 1) / 2 + nranks * (call + i);
}

/* factor * from, in two halves. */
static void halves(halay_move_t moves[2], void *to, const void *from, double factor)
{
    for (int h = 0; h < 2; h++)
        moves[h] = (halay_move_t){.dst = (char *)to + h * HALF * 4,
                                  .src = (const char *)from + h * HALF * 4,
                                  .count = HALF,
                                  .type = HALAY_INT32,
                                  .direction = HALAY_WITHIN,
                                  .factor = factor};
}

static int precede(halay_comm_t *comm, void *to, const void *from, double factor)
{
    halay_move_t moves[2];
    halves(moves, to, from, factor);
    const int rc = halay_local_precede(comm, HALAY_MEMORY_TEST, &moves[0], 1);
    return rc ? rc : halay_local_precede(comm, HALAY_MEMORY_TEST, &moves[1], 1);
}

struct buffers {
    void *from, *to;
};

static struct buffers take(struct rank *r, int call)
{
    int32_t values[COUNT];
    struct buffers b = {ranks_there_take(r->context, BYTES), ranks_there_take(r->context, BYTES)};
    fill(values, r->rank, call);
    ranks_there_put(b.from, values, BYTES);
    return b;
}

static void drop(struct rank *r, struct buffers *b)
{
    ranks_there_drop(r->context, b->from);
    ranks_there_drop(r->context, b->to);
}

static void want(struct rank *r, void *there, int call, int factor)
{
    int32_t got[COUNT];
    ranks_there_get(got, there, BYTES);
    for (int i = 0; i < COUNT; i++)
        CHECK(got[i] == factor * sum(r->nranks, call, i), "call %d, element %d: %d", call, i,
              got[i]);
}

static int sum_in_place(struct rank *r, void *at)
{
    return halay_allreduce(HALAY_IN_PLACE, at, COUNT, HALAY_INT32, HALAY_SUM, r->world);
}

/* Each call has moves of its own, also one that waits for the window; then moves follow. */
static void well(struct rank *r)
{
    struct buffers b[CALLS];
    halay_request_t *requests[CALLS];
    halay_mark_t marks[CALLS];
    halay_move_t moves[2];
    int32_t got[COUNT];
    memset(marks, 0, sizeof(marks));
    for (int c = 0; c < CALLS; c++)
        b[c] = take(r, c);
    for (int round = 0; round < 4; round++) {
        for (int c = 0; c < CALLS; c++) {
            CHECK(!precede(r->world, b[c].to, b[c].from, 2), "precede");
            CHECK(!halay_iallreduce(HALAY_IN_PLACE, b[c].to, COUNT, HALAY_INT32, HALAY_SUM,
                                    r->world, &requests[c]),
                  "post");
        }
        for (int c = 0; c < CALLS; c++)
            CHECK(!halay_request_wait(requests[c]), "wait");
        for (int c = 0; c < CALLS; c++)
            want(r, b[c].to, c, 2);
        CHECK(!precede(r->world, b[0].to, b[0].from, 3) && !sum_in_place(r, b[0].to), "blocking");
        want(r, b[0].to, 0, 3);
    }
    for (int c = 0; c < CALLS; c++) {
        halves(moves, b[c].to, b[c].from, 5);
        for (int h = 0; h < 2; h++)
            CHECK(!halay_local_start(r->context, HALAY_MEMORY_TEST, &moves[h], 1, DEADLINE,
                                     &marks[c]),
                  "start");
    }
    for (int c = 0; c < CALLS; c++) {
        CHECK(!halay_local_marked(r->context, &marks[c], 10 * DEADLINE), "marked");
        halay_local_unmark(r->context, &marks[c]);
        ranks_there_get(got, b[c].to, BYTES);
        for (int i = 0; i < COUNT; i++)
            CHECK(got[i] == 5 * (r->rank + 1 + c + i), "move %d, element %d", c, i);
        drop(r, &b[c]);
    }
}

/* Moves of a call that is refused, of none, and in a group. */
static void odd(struct rank *r)
{
    struct buffers b = take(r, 0);
    halay_request_t *request;
    halay_comm_t *other;
    CHECK(!precede(r->world, b.to, b.from, 2), "precede");
    if (r->rank)
        CHECK(!halay_iallreduce(HALAY_IN_PLACE, b.to, COUNT, HALAY_INT32, HALAY_SUM, r->world,
                                &request),
              "post");
    else
        CHECK(!halay_local_refuse(r->world, HALAY_ENOMEM, "no memory", &request), "refuse");
    CHECK(halay_request_wait(request) == HALAY_ENOMEM, "all learn of it");
    CHECK(!precede(r->world, b.to, b.from, 1) && !sum_in_place(r, b.to), "the next call");
    want(r, b.to, 0, 1);
    CHECK(!halay_comm_dup(r->world, &other), "dup");
    CHECK(!halay_group_begin(other), "group");
    CHECK(precede(other, b.to, b.from, 2) == HALAY_ESTATE, "in a group");
    CHECK(!halay_group_end(other, &request) && !halay_request_wait(request), "an empty group");
    CHECK(!precede(other, b.to, b.from, 2) && !halay_comm_free(other), "they precede nothing");
    CHECK(precede(NULL, b.to, b.from, 2) == HALAY_EINVAL, "no communicator");
    drop(r, &b);
}

static atomic_int victim;

/* A rank's first move fails, or does not end: so does the call, on all ranks. */
static const char *failure;
static int polls; /* between the moves and the call */

static void fails(struct rank *r)
{
    struct buffers b = take(r, 0);
    halay_verdict_t v = {.size = sizeof(v)};
    if (is_victim)
        atomic_store(&victim, r->rank);
    CHECK(!precede(r->world, b.to, b.from, 2), "precede");
    for (int i = 0; i < polls; i++)
        halay_context_progress(r->context, 0);
    CHECK(sum_in_place(r, b.to) == HALAY_EDEVICE, "the call is well");
    CHECK(!halay_comm_verdict(r->world, &v) && v.rank == atomic_load(&victim) &&
              strstr(v.text, failure),
          "rank %d says: %s", v.rank, v.text);
    CHECK(!precede(r->world, b.to, b.from, 2) && !sum_in_place(r, b.to), "the next call");
    want(r, b.to, 0, 2);
    drop(r, &b);
}

/* Started moves that do not end: this is told when it was asked for, and they are stopped. */
static void stays(struct rank *r)
{
    struct buffers b = take(r, 0);
    halay_move_t moves[2];
    halay_mark_t mark;
    const uint64_t begin = ranks_now_ns();
    int rc;
    memset(&mark, 0, sizeof(mark));
    halves(moves, b.to, b.from, 2);
    CHECK(!halay_local_start(r->context, HALAY_MEMORY_TEST, moves, 2, DEADLINE / 10, &mark),
          "start");
    while ((rc = halay_local_marked(r->context, &mark, 0)) == HALAY_INPROGRESS)
        CHECK(!halay_context_progress(r->context, 1000000), "progress");
    CHECK(rc == HALAY_EDEVICE && ranks_now_ns() - begin >= DEADLINE / 10, "%d", rc);
    halay_local_unmark(r->context, &mark);
    drop(r, &b);
}

static void run_fated(struct hly_device_late_arg arg, int nranks, void (*fn)(struct rank *),
                      const char *text)
{
    halay_device_ops_t fated = hly_device_late;
    struct ranks_options o = {
        .nranks = nranks, .device = &fated, .device_arg = &arg, .deadline_ns = DEADLINE};
    fated.open = fated_open;
    atomic_store(&opened, 0);
    failure = text;
    ranks_run(&o, fn, NULL);
}

int main(void)
{
    struct hly_device_late_arg arg = {.own_memory = true, .delay_polls_max = 5, .capacity = 3};
    struct ranks_options o = {.device = &hly_device_late, .device_arg = &arg};
    for (o.nranks = 1; o.nranks <= 4; o.nranks++) {
        ranks_run(&o, well, NULL);
        ranks_run(&o, odd, NULL);
    }
    arg.delay_us_max = 300; /* and it has a descriptor */
    o.nranks = 3;
    ranks_run(&o, well, NULL);
    arg = (struct hly_device_late_arg){.own_memory = true, .fails = 1};
    for (int n = 1; n <= 3; n += 2) {
        run_fated(arg, n, fails, "has failed in its work");
        arg.delay_us_max = 300;
    }
    arg.delay_us_max = 0;
    polls = 50; /* they have ended before the call is made */
    run_fated(arg, 3, fails, "could not copy or scale the call's input");
    polls = 0;
    arg = (struct hly_device_late_arg){.own_memory = true, .never = 1};
    run_fated(arg, 3, fails, "did not finish its work in time");
    run_fated(arg, 1, stays, "");
    return 0;
}
