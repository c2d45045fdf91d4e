/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verbs_count.c - what each collective asks of the RDMA device, against what its plan has to cost.
 *
 * A rank makes its own plan of each call by the public calls of plan.h, takes each step that sends
 * to or receives from another node, and from the bytes of its operand says how many messages,
 * puts, work requests, doorbells, completions and registrations it has to cost (docs/rdma.md has
 * the rules). Then the call runs some times, and what the transport has counted meanwhile is that,
 * on each rank. Rank 0 prints a line for each call, of all ranks together.
 *
 * Credits are the one thing that depends on time: they are counted apart, and bounded. The ranks
 * meet over sockets of their own, so that meeting counts nowhere.
 */
#include <stdbool.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <halay/halay.h>
#include <halay/plan.h>

#include "../check.h"
#include "verbs_side.h"

/* Of transports/verbs with Soft-RoCE, and of the core's header. */
enum {
    HEADER = 64,
    PIECE = (8 << 10) - HEADER, /* bytes in one message */
    EAGER = 32 << 10,           /* bytes that go at once, unannounced */
    APART = 8 << 10,            /* beyond it a put's immediate travels alone */
    BOUNCE = 64 << 10,          /* up to it a put is copied */
    MOST = 8 << 20,             /* bytes of one work request */
    CHAIN = 8,                  /* requests to a doorbell */
    QUIET = 8,                  /* of requests that need no completion one in so many has one */
    GRANT = 32,                 /* credits, half of which go back at once if need be */
    KEEPS_SCRATCH = 1,          /* 1: the core keeps scratch registered */
    RANKS = 8,                  /* at most */
    ELEMENT = 8                 /* all is HALAY_INT64 */
};

#define ASKS 0.4 /* seconds; src/fault/stall.c asks after 0.5 */

enum call {
    ALLREDUCE,
    REDUCE,
    BROADCAST,
    ALLGATHER,
    ALLGATHERV,
    GATHER,
    GATHERV,
    SCATTER,
    SCATTERV,
    REDUCE_SCATTER,
    REDUCE_SCATTERV,
    ALLTOALL,
    ALLTOALLV,
    SCAN,
    EXSCAN,
    BARRIER,
    CALLS
};

static const struct {
    const char *name;
    halay_collective_t collective;
    int blocks, vector; /* a block a rank; of any sizes */
} calls[CALLS] = {{"allreduce", HALAY_ALLREDUCE, 0, 0},
                  {"reduce", HALAY_REDUCE, 0, 0},
                  {"broadcast", HALAY_BROADCAST, 0, 0},
                  {"allgather", HALAY_ALLGATHER, 1, 0},
                  {"allgatherv", HALAY_ALLGATHER, 1, 1},
                  {"gather", HALAY_GATHER, 1, 0},
                  {"gatherv", HALAY_GATHER, 1, 1},
                  {"scatter", HALAY_SCATTER, 1, 0},
                  {"scatterv", HALAY_SCATTER, 1, 1},
                  {"reduce_scatter", HALAY_REDUCE_SCATTER, 1, 0},
                  {"reduce_scatterv", HALAY_REDUCE_SCATTER, 1, 1},
                  {"alltoall", HALAY_ALLTOALL, 1, 0},
                  {"alltoallv", HALAY_ALLTOALL, 1, 1},
                  {"scan", HALAY_SCAN, 0, 0},
                  {"exscan", HALAY_EXSCAN, 0, 0},
                  {"barrier", HALAY_BARRIER, 0, 0}};

/* Elements of the whole vector, and how often: messages, puts that are copied, puts that are not.
 */
static const struct {
    size_t elements;
    int times;
} sizes[] = {{48, 4}, {6144, 1}, {81920, 1}};

static struct {
    halay_context_t *context;
    halay_comm_t *world;
    halay_selection_t *selection;
    halay_shape_t *shape;
    uint32_t node[RANKS];
    int rank, nranks, root, way;
    int64_t *in, *out;
    size_t counts[RANKS];
    int met[RANKS]; /* ranks of other nodes that a plan has needed so far */
} job;

/* ------------------------------------------------------------------ what it has to cost */

/* Of one rank and one call; all but the last are counters of the transport. */
struct cost {
    uint64_t bytes, messages, puts, put_bytes, copied_bytes, requests, doorbells;
    uint64_t registrations;
    uint64_t told;   /* completions that a put needs */
    uint64_t untold; /* requests that need none */
    uint64_t offers; /* messages that are sent unless the receiver was first (alltoallv) */
};
enum { COSTS = sizeof(struct cost) / sizeof(uint64_t) };

static uint64_t parts(uint64_t bytes, uint64_t most)
{
    return (bytes + most - 1) / most;
}

/* Its buffer can wait for a later completion. */
static void cost_message(struct cost *c)
{
    c->messages++;
    c->requests++;
    c->doorbells++;
    c->untold++;
}

/* A source is registered where it is not copied; the last request ends the put. */
static void cost_put(struct cost *c, uint64_t bytes, int kept)
{
    uint64_t apart = bytes > APART, copied = bytes <= BOUNCE && !kept;
    uint64_t requests = parts(bytes, copied ? BOUNCE : MOST) + apart;
    c->puts++;
    c->put_bytes += bytes;
    c->copied_bytes += copied ? bytes : 0;
    c->requests += requests;
    c->doorbells += parts(requests, CHAIN);
    c->told++;
    c->untold += requests - 1;
    c->registrations += !copied;
}

/* A message of the plan is in two parts where it wraps round the end of its buffer. */
struct message {
    uint64_t part[2];
    int staged; /* if it is announced, in pieces through the transport's memory */
    int kept;   /* it lies in memory that is registered already */
};

static void cost_send(struct cost *c, const struct message *m, int offers)
{
    uint64_t bytes = m->part[0] + m->part[1];
    c->bytes += bytes;
    c->offers += bytes > EAGER && offers;
    if (bytes > EAGER && !m->staged) {
        cost_put(c, bytes, m->kept);
        return;
    }
    const uint64_t messages = parts(m->part[0], PIECE) + parts(m->part[1], PIECE);
    for (uint64_t i = 0; i < messages || i < 1; i++)
        cost_message(c);
}

static void cost_recv(struct cost *c, const struct message *m)
{
    if (m->part[0] + m->part[1] <= EAGER)
        return;
    cost_message(c);
    c->registrations += !m->staged && !m->kept;
}

/* ------------------------------------------------------------------ from the plan */

/* Elements of a block: as plan.h says how a vector is cut; else the caller says it. */
static uint64_t block_of(enum call call, size_t elements, const halay_plan_t *plan, uint32_t b)
{
    if (calls[call].vector)
        return job.counts[b];
    if (calls[call].blocks)
        return elements / (size_t)job.nranks;
    return elements / plan->blocks + (b < elements % plan->blocks);
}

static struct message message_of(enum call call, size_t elements, const halay_plan_t *plan,
                                 const halay_operand_t *o)
{
    struct message m = {.staged = o->first + o->count > plan->blocks ||
                                  (calls[call].collective == HALAY_ALLTOALL && o->count > 1),
                        .kept = KEEPS_SCRATCH && o->buffer == HALAY_BUFFER_SCRATCH};
    for (uint32_t i = 0; i < o->count; i++) {
        uint32_t b = o->first + i;
        int wraps = b >= plan->blocks && o->buffer != HALAY_BUFFER_SCRATCH;
        m.part[wraps] += ELEMENT * block_of(call, elements, plan, b % plan->blocks);
    }
    return m;
}

/* The plan that this rank has to run, by the selection that all calls go through. */
static halay_plan_t *plan_of(enum call call, size_t elements)
{
    int rooted = halay_collective_rooted(calls[call].collective);
    size_t count = call == ALLTOALLV || call == BARRIER        ? 0
                   : calls[call].blocks && !calls[call].vector ? elements / (size_t)job.nranks
                                                               : elements;
    halay_question_t q = {.collective = calls[call].collective,
                          .root = rooted ? (uint32_t)job.root : 0,
                          .vector = (uint32_t)calls[call].vector,
                          .commutative = 1,
                          .element_bytes = ELEMENT,
                          .count = count,
                          .shape = job.shape};
    halay_plan_params_t params = {.collective = q.collective,
                                  .nranks = (uint32_t)job.nranks,
                                  .rank = (uint32_t)job.rank,
                                  .root = q.root,
                                  .shape = job.shape};
    halay_explanation_t *why;
    halay_plan_t *plan;
    CHECK(!halay_explain(job.selection, &q, &why) && why->chosen < why->ncandidates, "%s",
          calls[call].name);
    CHECK(!halay_plan_make(why->candidate[why->chosen].planner, &params, &plan), "%s",
          calls[call].name);
    halay_explanation_free(why);
    return plan;
}

static struct cost cost_of(enum call call, size_t elements, const halay_plan_t *plan)
{
    struct cost c = {0};
    for (uint32_t i = 0; i < plan->nsteps; i++) {
        const halay_step_t *s = &plan->steps[i];
        int sends = s->kind == HALAY_STEP_SEND;
        if ((!sends && s->kind != HALAY_STEP_RECV) || job.node[s->peer] == job.node[job.rank])
            continue;
        struct message m = message_of(call, elements, plan, &plan->operands[s->operand]);
        job.met[s->peer] = 1;
        if (sends)
            cost_send(&c, &m, call == ALLTOALLV);
        else
            cost_recv(&c, &m);
    }
    return c;
}

/* ------------------------------------------------------------------ the calls */

static int run(enum call call, size_t n)
{
    const size_t each = n / (size_t)job.nranks, *v = job.counts;
    const halay_type_t type = HALAY_INT64;
    switch (call) {
    case ALLREDUCE:
        return halay_allreduce(job.in, job.out, n, type, HALAY_SUM, job.world);
    case REDUCE:
        return halay_reduce(job.in, job.out, n, type, HALAY_SUM, job.root, job.world);
    case BROADCAST:
        return halay_broadcast(job.rank == job.root ? job.in : job.out, n, type, job.root,
                               job.world);
    case ALLGATHER:
        return halay_allgather(job.in, job.out, each, type, job.world);
    case ALLGATHERV:
        return halay_allgatherv(job.in, job.out, v, NULL, type, job.world);
    case GATHER:
        return halay_gather(job.in, job.out, each, type, job.root, job.world);
    case GATHERV:
        return halay_gatherv(job.in, job.out, v, NULL, type, job.root, job.world);
    case SCATTER:
        return halay_scatter(job.in, job.out, each, type, job.root, job.world);
    case SCATTERV:
        return halay_scatterv(job.in, job.out, v, NULL, type, job.root, job.world);
    case REDUCE_SCATTER:
        return halay_reduce_scatter(job.in, job.out, each, type, HALAY_SUM, job.world);
    case REDUCE_SCATTERV:
        return halay_reduce_scatterv(job.in, job.out, v, type, HALAY_SUM, job.world);
    case ALLTOALL:
        return halay_alltoall(job.in, job.out, each, type, job.world);
    case ALLTOALLV:
        return halay_alltoallv(job.in, v, NULL, job.out, v, NULL, type, job.world);
    case SCAN:
        return halay_scan(job.in, job.out, n, type, HALAY_SUM, job.world);
    case EXSCAN:
        return halay_exscan(job.in, job.out, n, type, HALAY_SUM, job.world);
    default:
        return halay_barrier(job.world);
    }
}

/* Every rank's input is its number + 1 everywhere. */
static void prepare(enum call call, size_t elements)
{
    size_t each = elements / (size_t)job.nranks;
    for (int b = 0; b < job.nranks; b++) {
        int odd = (b + (call == ALLTOALLV ? job.rank : 0)) % 2;
        job.counts[b] = !calls[call].vector ? each : odd ? each + each / 2 : each / 2;
    }
    for (size_t i = 0; i < elements; i++)
        job.in[i] = job.rank + 1;
    memset(job.out, 0xff, elements * ELEMENT);
}

static void check_run(int64_t value, size_t from, size_t many, enum call call)
{
    for (size_t i = from; i < from + many; i++)
        CHECK(job.out[i] == value, "%s: element %zu on rank %d is %lld, not %lld", calls[call].name,
              i, job.rank, (long long)job.out[i], (long long)value);
}

static void check_result(enum call call, size_t n)
{
    const int64_t r = job.rank, p = job.nranks;
    size_t at = 0;
    switch (calls[call].collective) {
    case HALAY_ALLREDUCE:
        check_run(p * (p + 1) / 2, 0, n, call);
        break;
    case HALAY_REDUCE:
        check_run(p * (p + 1) / 2, 0, r == job.root ? n : 0, call);
        break;
    case HALAY_REDUCE_SCATTER:
        check_run(p * (p + 1) / 2, 0, job.counts[r], call);
        break;
    case HALAY_BROADCAST:
        check_run(job.root + 1, 0, r == job.root ? 0 : n, call);
        break;
    case HALAY_SCATTER:
        check_run(job.root + 1, 0, job.counts[r], call);
        break;
    case HALAY_SCAN:
        check_run((r + 1) * (r + 2) / 2, 0, n, call);
        break;
    case HALAY_EXSCAN:
        check_run(r * (r + 1) / 2, 0, r ? n : 0, call);
        break;
    case HALAY_GATHER:
    case HALAY_ALLGATHER:
    case HALAY_ALLTOALL:
        for (int b = 0; b < (call == GATHER || call == GATHERV ? (r == job.root) * p : p); b++) {
            check_run(b + 1, at, job.counts[b], call);
            at += job.counts[b];
        }
        break;
    default:
        break;
    }
}

/* ------------------------------------------------------------------ counting */

static void look(halay_traffic_t *now)
{
    *now = (halay_traffic_t){.size = sizeof(*now)};
    CHECK(!halay_context_traffic(job.context, job.way, now), "traffic");
}

static int met(void)
{
    int n = 0;
    for (int r = 0; r < job.nranks; r++)
        n += job.met[r];
    return n;
}

/* A call that stands still for ASKS asks the others what they do: in messages, and over connections
 * that it need not have. True on all ranks once one has been so slow. */
static bool asked;

/* Nothing is under way between any two ranks: all that was sent was received and is done. */
static void quiet(halay_traffic_t *now)
{
    for (int tries = 0;; tries++) {
        halay_context_progress(job.context, 1000000);
        look(now);
        const halay_queues_t *q = &now->queues;
        uint64_t sum[] = {q->messages + q->puts + q->credits, q->received, q->signalled, q->sent,
                          q->connections<(uint64_t)met(), q->connections>(uint64_t) met() &&
                              !asked};
        verbs_side_sum(sum, sizeof(sum) / sizeof(sum[0]));
        if (sum[0] == sum[1] && sum[2] == sum[3] && !sum[4] && !sum[5])
            break;
        CHECK(tries < 5000,
              "%llu sent, %llu received; %llu signalled, %llu done; %llu ranks have too few "
              "connections, and %llu too many",
              (unsigned long long)sum[0], (unsigned long long)sum[1], (unsigned long long)sum[2],
              (unsigned long long)sum[3], (unsigned long long)sum[4], (unsigned long long)sum[5]);
    }
    CHECK(asked || now->connections == (uint64_t)met(), "%llu connections for %d ranks",
          (unsigned long long)now->connections, met());
}

#define IS(what, measured, formula)                                                                \
    CHECK((measured) == (formula), "rank %d, %s of %zu bytes: %llu %s, not %llu", job.rank,        \
          calls[call].name, elements * ELEMENT, (unsigned long long)(measured), what,              \
          (unsigned long long)(formula))

/* What one rank has counted in so many calls. Returns by how many messages it is more: offers. */
static uint64_t compare(enum call call, size_t elements, uint64_t times, const struct cost *c,
                        const halay_traffic_t *from, const halay_traffic_t *to)
{
    const halay_queues_t *a = &from->queues, *b = &to->queues;
    const uint64_t credits = b->credits - a->credits, received = b->received - a->received;
    const uint64_t offers = b->messages - a->messages - times * c->messages;
    const uint64_t told = b->signalled - a->signalled - times * c->told;
    CHECK(offers <= times * c->offers, "rank %d, %s of %zu bytes: %llu messages for %llu", job.rank,
          calls[call].name, elements * ELEMENT, (unsigned long long)(b->messages - a->messages),
          (unsigned long long)(times * c->messages));
    IS("bytes", to->sent_bytes - from->sent_bytes, times * c->bytes);
    IS("puts", b->puts - a->puts, times * c->puts);
    IS("bytes of puts", b->put_bytes - a->put_bytes, times * c->put_bytes);
    IS("bytes copied", b->copied_bytes - a->copied_bytes, times * c->copied_bytes);
    IS("requests", b->requests - a->requests, times * c->requests + offers + credits);
    IS("doorbells", b->doorbells - a->doorbells, times * c->doorbells + offers + credits);
    IS("registrations", b->registrations - a->registrations + b->reused - a->reused,
       times * c->registrations);
    IS("new connections", b->connections, a->connections);
    const uint64_t quiets = times * c->untold + offers + credits, peers = b->connections;
    CHECK(told <= (quiets + (QUIET - 1) * peers) / QUIET,
          "rank %d, %s: %llu completions beyond those that are needed, of %llu requests", job.rank,
          calls[call].name, (unsigned long long)told, (unsigned long long)quiets);
    CHECK(credits <= received / (GRANT / 2) + peers, "rank %d, %s: %llu returns of credits",
          job.rank, calls[call].name, (unsigned long long)credits);
    return offers;
}

static void print_line(enum call call, size_t elements, const char *planner, double times,
                       const uint64_t *sum)
{
    struct cost c;
    memcpy(&c, sum, sizeof(c));
    const uint64_t *more = sum + COSTS; /* of all calls: completions, credits, offers */
    printf("| %s | %s | %zu | %llu | %llu | %llu | %llu | %llu | %llu | %llu | %.1f | %.1f |\n",
           calls[call].name, planner, elements * ELEMENT, (unsigned long long)c.messages,
           (unsigned long long)c.puts, (unsigned long long)c.bytes, (unsigned long long)c.requests,
           (unsigned long long)c.doorbells, (unsigned long long)c.registrations,
           (unsigned long long)(c.told + c.messages + c.puts), (double)more[0] / times,
           (double)(more[1] + more[2]) / times);
}

static double seconds(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + 1e-9 * (double)ts.tv_nsec;
}

/* Runs it so often; whether a rank's was so slow that it has asked. */
static bool run_slow(enum call call, size_t elements, int times)
{
    uint64_t slow = 0;
    for (int i = 0; i < times; i++) {
        const double start = seconds();
        CHECK(!run(call, elements), "%s", calls[call].name);
        slow += seconds() - start > ASKS;
    }
    verbs_side_sum(&slow, 1);
    asked |= slow > 0;
    return slow > 0;
}

/* Counts again where more messages were sent by a call that has asked. */
static void measure(enum call call, size_t elements, int times, const struct cost *c,
                    halay_traffic_t *before, halay_traffic_t *after)
{
    const uint64_t most = (uint64_t)times * (c->messages + c->offers);
    for (int tries = 0;; tries++) {
        quiet(before);
        const bool slow = run_slow(call, elements, times);
        quiet(after);
        uint64_t more = after->queues.messages - before->queues.messages > most;
        verbs_side_sum(&more, 1);
        if (!slow || !more)
            return;
        CHECK(tries < 50, "%s stands still all the time", calls[call].name);
    }
}

static void count(enum call call, size_t elements, int times)
{
    halay_traffic_t before, after;
    prepare(call, elements);
    halay_plan_t *plan = plan_of(call, elements);
    struct cost c = cost_of(call, elements, plan);
    run_slow(call, elements, 1); /* the connections come about */
    check_result(call, elements);
    measure(call, elements, times, &c, &before, &after);
    check_result(call, elements);
    const uint64_t offers = compare(call, elements, (uint64_t)times, &c, &before, &after);
    const halay_queues_t *a = &before.queues, *b = &after.queues;
    uint64_t sum[COSTS + 3];
    memcpy(sum, &c, sizeof(c));
    sum[COSTS] = b->sent + b->received - a->sent - a->received;
    sum[COSTS + 1] = b->credits - a->credits;
    sum[COSTS + 2] = offers;
    verbs_side_sum(sum, COSTS + 3);
    if (job.rank == 0)
        print_line(call, elements, halay_planner_get(plan->planner)->name, times, sum);
    halay_plan_free(plan);
}

/* ------------------------------------------------------------------ the job */

static void begin(void)
{
    halay_topology_t here = {.size = sizeof(here)};
    char error[256];
    CHECK(!halay_init(NULL, &job.context) && !halay_comm_world(job.context, &job.world) &&
              !halay_context_topology(job.context, &here),
          "halay_init");
    CHECK(here.nnodes == 2 && here.nranks == 2 * here.local_nranks && here.nranks <= RANKS,
          "%d ranks on %d nodes", here.nranks, here.nnodes);
    job.rank = here.rank;
    job.nranks = here.nranks;
    job.root = here.nranks - 1;
    job.way = here.local_nranks > 1;
    for (int r = 0; r < job.nranks; r++)
        job.node[r] = (uint32_t)(r / here.local_nranks);
    CHECK(!halay_selection_make(NULL, NULL, NULL, error, sizeof(error), &job.selection) &&
              !halay_shape_make(job.node, (uint32_t)job.nranks, &job.shape),
          "selection");
    job.in = malloc(sizes[2].elements * ELEMENT);
    job.out = malloc(sizes[2].elements * ELEMENT);
    CHECK(job.in && job.out, "no memory");
    verbs_side_open(job.rank, job.nranks);
}

int main(void)
{
    halay_traffic_t start;
    begin();
    look(&start);
    CHECK(!strcmp(start.transport, "verbs") && !start.connections && !start.queues.connections,
          "%s, %llu connections before the first call", start.transport,
          (unsigned long long)start.connections);
    if (job.rank == 0)
        printf("| call | plan | bytes | messages | puts | bytes sent | requests | doorbells | "
               "registrations | completions, least | completions | credits, offers |\n"
               "|---|---|---|---|---|---|---|---|---|---|---|---|\n");
    for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++)
        for (enum call call = 0; call < CALLS; call++)
            if (call != BARRIER || s == 0)
                count(call, call == BARRIER ? 0 : sizes[s].elements, sizes[s].times);
    printf("rank %d of %d: %d connections, as many as other nodes' ranks are in its plans\n",
           job.rank, job.nranks, met());
    verbs_side_close();
    CHECK(!halay_finalize(job.context), "halay_finalize");
    halay_shape_free(job.shape);
    halay_selection_free(job.selection);
    free(job.in);
    free(job.out);
    return 0;
}
