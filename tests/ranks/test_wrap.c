/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_wrap.c - a communicator after 2^32 calls, whose numbers have 32 bits: it is set to a number
 * shortly before the end on all ranks at once, while nothing is under way. Results, the window of
 * calls in flight, groups, relaxed broadcasts, errors, and halay_comm_called(), also long after
 * anything was heard that is not of a call made here already.
 */
#include <string.h>

#include "exec/relaxed.h"
#include "ranks.h"
#include "run/run.h"

#define SOON_NS 10000000000ull

/* The communicator's next call has this number; the calls before it have all ended long ago. */
static void set(halay_comm_t *comm, uint32_t sequence)
{
    hly_lock(comm->context);
    CHECK(comm->oldest == comm->next_sequence && comm->acked == comm->oldest, "in use");
    comm->next_sequence = comm->oldest = comm->acked = comm->started = sequence;
    for (uint32_t i = 0; i < HLY_SLOTS; i++) {
        struct hly_slot *slot = &comm->slots[(sequence + i) % HLY_SLOTS];
        CHECK(!slot->request && !slot->fault && hly_link_empty(&slot->unexpected), "in use");
        slot->sequence = sequence + i - HLY_SLOTS;
    }
    hly_unlock(comm->context);
}

static void progress(struct rank *r)
{
    hly_lock(r->context);
    hly_progress(r->context);
    hly_unlock(r->context);
}

/* All ranks are here, and nothing is on its way any more. */
static void meet(struct rank *r)
{
    struct ranks_board *b = r->arg;
    pthread_barrier_wait(&b->barrier);
    for (int i = 0; i < 50; i++)
        progress(r);
    pthread_barrier_wait(&b->barrier);
}

static int called(halay_comm_t *comm)
{
    int called = -1;
    CHECK(!halay_comm_called(comm, &called), "called");
    return called;
}

/* Nobody has called; then rank 0 has, who needs not tell more than one other rank of it. */
static void look(struct rank *r, halay_comm_t *comm)
{
    int64_t one = 1, sum = 0;
    halay_request_t *request;
    meet(r);
    CHECK(called(comm) == 0, "rank %d, call %u: %d", r->rank, comm->next_sequence, called(comm));
    meet(r);
    if (r->rank == 0)
        CHECK(!halay_iallreduce(&one, &sum, 1, HALAY_INT64, HALAY_SUM, comm, &request), "post");
    uint64_t start = ranks_now_ns();
    while (r->rank == 1 && r->nranks == 2 && !called(comm)) {
        progress(r);
        CHECK(ranks_now_ns() - start < SOON_NS, "call %u was not heard of", comm->next_sequence);
    }
    if (r->rank)
        CHECK(!halay_iallreduce(&one, &sum, 1, HALAY_INT64, HALAY_SUM, comm, &request), "post");
    CHECK(!halay_request_wait(request) && sum == r->nranks, "sum %lld", (long long)sum);
}

static void one_by_one(struct rank *r, halay_comm_t *comm, int n)
{
    for (int i = 0; i < n; i++) {
        int64_t x = ranks_value(r->rank, i, 0), sum = 0;
        CHECK(!halay_allreduce(&x, &sum, 1, HALAY_INT64, HALAY_SUM, comm), "allreduce");
        CHECK(sum == ranks_sum(r->nranks, i, 0), "call %u", comm->next_sequence - 1);
    }
}

/* More than the window has. */
static void at_once(struct rank *r, halay_comm_t *comm)
{
    enum { CALLS = 100 };
    halay_request_t *request[CALLS];
    int64_t x[CALLS], sum[CALLS];
    for (int i = 0; i < CALLS; i++) {
        x[i] = ranks_value(r->rank, i, 0);
        CHECK(!halay_iallreduce(&x[i], &sum[i], 1, HALAY_INT64, HALAY_SUM, comm, &request[i]),
              "post");
    }
    for (int i = 0; i < CALLS; i++)
        CHECK(!halay_request_wait(request[i]) && sum[i] == ranks_sum(r->nranks, i, 0), "call %d",
              i);
}

static void broadcasts(struct rank *r, halay_comm_t *comm)
{
    int64_t x;
    for (int i = 0; i < 100; i++) {
        x = r->rank == 0 ? i : -1;
        CHECK(!halay_broadcast(&x, 1, HALAY_INT64, 0, comm) && x == i, "broadcast %d", i);
    }
    CHECK(hly_relaxed_follows(comm, comm->next_sequence - 1), "call %u is not relaxed",
          comm->next_sequence - 1);
    CHECK(!halay_barrier(comm), "barrier"); /* ends them: all are heard of */
}

static void group(struct rank *r, halay_comm_t *comm)
{
    int64_t x = r->rank, sum[3] = {0}; /* members run at the same time: a result each */
    halay_request_t *request;
    CHECK(!halay_group_begin(comm), "begin");
    for (int i = 0; i < 3; i++)
        CHECK(!halay_allreduce(&x, &sum[i], 1, HALAY_INT64, HALAY_SUM, comm), "member");
    CHECK(!halay_group_end(comm, &request) && !halay_request_wait(request), "end");
    for (int i = 0; i < 3; i++)
        CHECK(sum[i] == r->nranks * (r->nranks - 1) / 2, "sum %lld", (long long)sum[i]);
}

/* The last rank has another count: the same verdict on all. */
static void wrong(struct rank *r, halay_comm_t *comm)
{
    struct ranks_board *b = r->arg;
    halay_verdict_t v = {.size = sizeof(v)};
    int64_t x[2] = {0, 0}, sum[2];
    const uint32_t sequence = comm->next_sequence;
    int rc =
        halay_allreduce(x, sum, r->rank == r->nranks - 1 ? 2 : 1, HALAY_INT64, HALAY_SUM, comm);
    CHECK(rc == HALAY_EMISMATCH && !halay_comm_verdict(comm, &v), "%s", halay_strerror(rc));
    CHECK(v.sequence == sequence, "call %u, not %u", v.sequence, sequence);
    memcpy(b->text[r->rank], v.text, sizeof(v.text));
    meet(r);
    CHECK(!strcmp(b->text[r->rank], b->text[0]), "%s\n%s", b->text[r->rank], b->text[0]);
    meet(r);
}

static halay_comm_t *fresh(struct rank *r, uint32_t sequence)
{
    halay_comm_t *comm;
    CHECK(!halay_comm_dup(r->world, &comm), "dup");
    CHECK(!halay_comm_set_hint(comm, HALAY_HINT_RELAXED_BROADCAST, 1), "hint");
    set(comm, sequence);
    meet(r);
    return comm;
}

static void all(struct rank *r)
{
    for (uint32_t before = 1; before < 80; before += 13) {
        halay_comm_t *comm = fresh(r, 0u - before);
        look(r, comm);
        one_by_one(r, comm, (int)before);
        look(r, comm);
        meet(r);
        set(comm, 0u - before);
        at_once(r, comm);
        look(r, comm);
        meet(r);
        set(comm, 0u - before);
        broadcasts(r, comm);
        look(r, comm);
        group(r, comm);
        meet(r);
        set(comm, 0u - before);
        set(comm->inner, 1u - before);
        for (uint32_t i = 0; i < 80; i++)
            group(r, comm);
        meet(r);
        for (uint32_t i = 0; i < 3; i++) {
            set(comm, i - 2);
            wrong(r, comm);
            look(r, comm);
            meet(r);
        }
        CHECK(!halay_comm_free(comm), "free");
    }
}

/* What was heard of long ago is neither ahead of all calls nor hides the next one. */
static void long_ago(struct rank *r)
{
    static const uint32_t later[] = {100, 0x7fffff00, 0x80000003, 0xc0000000, 0xfffffff0};
    for (size_t i = 0; i < sizeof(later) / sizeof(later[0]); i++)
        for (uint32_t k = 0; k < 3; k++) {
            const uint32_t first = k * 0x7fffffe0; /* the last: the end is passed */
            halay_comm_t *comm = fresh(r, first);
            look(r, comm);
            one_by_one(r, comm, 3);
            broadcasts(r, comm);
            meet(r);
            set(comm, first + later[i]);
            comm->relaxed.next = comm->next_sequence; /* as if all had been broadcasts */
            broadcasts(r, comm);
            look(r, comm);
            one_by_one(r, comm, 100);
            look(r, comm);
            meet(r);
            CHECK(!halay_comm_free(comm), "free");
        }
}

int main(void)
{
    static const halay_inproc_faults_t faults = {
        .seed = 7, .delay_polls_max = 3, .reorder = 1, .late_put_polls = 3, .eager_bytes = 64};
    setenv("HALAY_DEBUG", "error", 1); /* the failures here are wanted */
    for (int p = 2; p <= 5; p += p == 2 ? 1 : 2)
        for (int shm = 0; shm < 2; shm++) {
            struct ranks_board board;
            struct ranks_options o = {.nranks = p, .shm = shm, .faults = shm ? NULL : &faults};
            pthread_barrier_init(&board.barrier, NULL, (unsigned)p);
            ranks_run(&o, all, &board);
            ranks_run(&o, long_ago, &board);
            pthread_barrier_destroy(&board.barrier);
        }
    return 0;
}
