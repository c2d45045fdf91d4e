/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_training_lent.c - fusion buffers that the peer reads where they are: between two ranks of a
 * node every call is lent; right where a rank cannot have such memory, where groups grow and where
 * they are void; and all given back.
 */
#include <stdatomic.h>

#include "training_ranks.h"

enum { TENSORS = 6, MOST = 5000, STEPS = 24 };

/* ------------------------------------------------------------------ a transport that counts */

static halay_transport_t *transports[RANKS_MAX];
static atomic_uint made, given_back, refused, lent[RANKS_MAX];
static unsigned refusing; /* a bit a rank: it gets no memory that peers map */

static int count_open(const halay_transport_params_t *params, halay_transport_t **transport)
{
    const struct halay_inproc_rank *rank = params->arg;
    int rc = halay_transport_v4_inproc.open(params, transport);
    transports[rank->rank] = rc ? NULL : *transport;
    return rc;
}

static int rank_of(const halay_transport_t *transport)
{
    int rank = 0;
    while (rank < RANKS_MAX && transports[rank] != transport)
        rank++;
    CHECK(rank < RANKS_MAX, "nobody's transport");
    return rank;
}

static int count_register(halay_transport_t *t, void **address, size_t bytes, halay_mem_t **mem)
{
    if (refusing >> rank_of(t) & 1) {
        refused++;
        return HALAY_ENOMEM;
    }
    int rc = halay_transport_v4_inproc.register_mem(t, address, bytes, mem);
    made += !rc;
    return rc;
}

static void count_deregister(halay_transport_t *t, halay_mem_t *mem)
{
    given_back += mem != NULL;
    halay_transport_v4_inproc.deregister_mem(t, mem);
}

static int count_poll(halay_transport_t *t, halay_event_t events[], int max)
{
    int n = halay_transport_v4_inproc.poll(t, events, max);
    if (max && n > 0 && events[n - 1].kind == HALAY_EVENT_LENT)
        lent[rank_of(t)]++;
    return n;
}

static void run(int nranks, void (*body)(struct rank *rank))
{
    static const halay_inproc_faults_t faults = {.seed = 12,
                                                 .eager_bytes = 16384,
                                                 .message_bytes = 65536,
                                                 .delay_polls_max = 3,
                                                 .reorder = 1,
                                                 .cache = 1,
                                                 .lend_bytes = 64,
                                                 .hide_capabilities =
                                                     HALAY_CAN_LAND | HALAY_CAN_PUT};
    halay_transport_ops_t counting = halay_transport_v4_inproc;
    counting.open = count_open;
    counting.register_mem = count_register;
    counting.deregister_mem = count_deregister;
    counting.poll = count_poll;
    made = given_back = refused = 0;
    for (int r = 0; r < RANKS_MAX; r++)
        lent[r] = 0;
    hub_faults = &faults;
    hub_transport = &counting;
    run_ranks(nranks, "30", body);
    CHECK(made == given_back, "%u regions, of which %u were given back", made, given_back);
}

/* ------------------------------------------------------------------ steps */

static float value(int rank, int step, int t, size_t i)
{
    return (float)((rank + 1) * (int)((i + (size_t)t) % 7) + step % 5);
}

/* Of every other tensor: so there are two groups, which are out together. */
static halay_op_t op_of(int t)
{
    return t % 2 ? HALAY_MAX : HALAY_SUM;
}

static void submit(struct rank *rank, float *at, int step, int t, size_t count,
                   halay_ticket_t *ticket)
{
    char name[16];
    snprintf(name, sizeof(name), "t%d", t);
    for (size_t i = 0; i < count; i++)
        at[i] = value(rank->rank, step, t, i);
    CHECK(!halay_trainer_allreduce(rank->trainer, name, at, at, count, HALAY_FLOAT32, op_of(t), 1,
                                   1, ticket),
          "submit");
}

static void collect(struct rank *rank, const float *at, int step, int t, size_t count,
                    halay_ticket_t ticket)
{
    finish(rank, ticket, 0);
    for (size_t i = 0; i < count; i++) {
        float sum = value(rank->nranks - 1, step, t, i);
        for (int r = 0; op_of(t) == HALAY_SUM && r < rank->nranks - 1; r++)
            sum += value(r, step, t, i);
        CHECK(at[i] == sum, "rank %d, step %d, t%d [%zu]: %g, not %g", rank->rank, step, t, i,
              (double)at[i], (double)sum);
    }
}

/* In an order of its own; with `late` rank 0 has the others only when it has waited for the first.
 */
static void step_all(struct rank *rank, float (*memory)[MOST], int step, size_t count, int late)
{
    halay_ticket_t tickets[TENSORS];
    int order[TENSORS], first = late && rank->rank == 0;
    shuffle(order, TENSORS, &rank->seed);
    if (first) {
        submit(rank, memory[0], step, 0, count, &tickets[0]);
        collect(rank, memory[0], step, 0, count, tickets[0]);
    }
    for (int i = 0; i < TENSORS; i++)
        if (order[i] || !first)
            submit(rank, memory[order[i]], step, order[i], count, &tickets[order[i]]);
    for (int t = first; t < TENSORS; t++)
        collect(rank, memory[t], step, t, count, tickets[t]);
}

/* Groups grow, at first in memory that is not lent; a void one is packed by all ranks but one. */
static void train(struct rank *rank)
{
    static const size_t counts[] = {500, 2000, MOST};
    float(*memory)[MOST] = calloc(TENSORS, sizeof(*memory));
    CHECK(memory, "memory");
    for (int step = 0; step < STEPS; step++)
        step_all(rank, memory, step, counts[step * 3 / STEPS], step == 5);
    halay_trainer_counters_t said = counters(rank);
    CHECK(said.fused_tensors && said.cycles > STEPS / 3 && said.voids, "%d cycles, %d voids",
          (int)said.cycles, (int)said.voids);
    free(memory);
}

/* In the steady state every fused call is lent, and nothing is made, or given back till the end. */
static void steady(struct rank *rank)
{
    enum { MORE = 20 };
    float(*memory)[MOST] = calloc(TENSORS, sizeof(*memory));
    CHECK(memory, "memory");
    for (int step = 0; step < 4; step++)
        step_all(rank, memory, step, 2000, 0);
    meet(rank);
    unsigned before = lent[rank->rank], had = made;
    halay_trainer_counters_t at[2] = {counters(rank)};
    for (int step = 0; step < MORE; step++)
        step_all(rank, memory, step, 2000, 0);
    at[1] = counters(rank);
    unsigned reads = lent[rank->rank] - before;
    uint64_t calls = at[1].fused_calls - at[0].fused_calls;
    CHECK(calls == 2 * MORE && at[1].calls - at[0].calls == calls, "%d fused calls", (int)calls);
    CHECK(reads >= calls, "%u messages of %d calls were lent to rank %d", reads, (int)calls,
          rank->rank);
    meet(rank);
    CHECK(made == had && given_back == 0, "%u regions, then %u", had, made);
    meet(rank);
    halay_trainer_destroy(rank->trainer);
    rank->trainer = NULL;
    meet(rank);
    CHECK(given_back == made, "%u regions of %u were given back", given_back, made);
    free(memory);
}

static void small(struct rank *rank)
{
    float(*memory)[MOST] = calloc(TENSORS, sizeof(*memory));
    CHECK(memory, "memory");
    for (int step = 0; step < 4; step++)
        step_all(rank, memory, step, 100, 0);
    CHECK(counters(rank).fused_calls, "nothing was fused");
    free(memory);
}

int main(void)
{
    static const int apart[] = {0, 1};
    run(2, steady);
    CHECK(made == 2 && !refused, "%u regions", made);
    run(2, train);
    CHECK(made == 2 && lent[0] && lent[1], "%u regions", made);
    refusing = 2;
    run(2, train);
    CHECK(made == 1 && refused == 1 && lent[1] && !lent[0], "%u regions, %u refused", made,
          refused);
    refusing = 3;
    run(2, train);
    CHECK(!made && refused == 2, "%u regions, %u refused", made, refused);
    refusing = 0;
    run(2, small);
    CHECK(!made, "small groups: %u regions", made);
    run(1, train);
    run(3, train);
    CHECK(!made, "no pair: %u regions", made);
    hub_nodes = apart;
    run(2, train);
    CHECK(!made, "two nodes: %u regions", made);
    return 0;
}
