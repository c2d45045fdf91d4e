/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cluster_rank - a rank for the cluster tests, over the public API. Its first argument says what it
 * does: see `modes` at the end. Exit codes: 0 all was right, 1 something was not, 4 a call failed
 * with a verdict, which was printed (what the fault tests want), 5 halay_init failed.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <halay/halay.h>

#define CHECK(c)                                                                                   \
    do {                                                                                           \
        if (!(c)) {                                                                                \
            fprintf(stderr, "%s:%d: rank %d: not so: %s\n", __FILE__, __LINE__, job.rank, #c);     \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

enum { MOST = 100003, ROUNDS = 2, ARENA = 16 << 20 };

static struct {
    halay_context_t *context;
    halay_comm_t *world;
    int rank, nranks;
    char *arena; /* ARENA bytes that are registered, for all buffers; or NULL */
    size_t used, rooms;
} job;

/* Counts around the sizes at which messages change their way. */
static const size_t COUNTS[] = {0, 1, 2, 7, 61, 1021, 8191, MOST};

static uint64_t clock_ns(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void nap(double seconds)
{
    struct timespec t = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    while (nanosleep(&t, &t))
        ;
}

static int begin(void)
{
    int rc = halay_init(NULL, &job.context);
    if (rc)
        return rc;
    CHECK(halay_comm_world(job.context, &job.world) == HALAY_OK);
    CHECK(halay_comm_rank(job.world, &job.rank) == HALAY_OK);
    CHECK(halay_comm_size(job.world, &job.nranks) == HALAY_OK);
    return HALAY_OK;
}

static void begin_or_exit(void)
{
    if (begin())
        exit(5); /* it has said why */
}

/* ------------------------------------------------------------------ collectives */

static int64_t value(int rank, size_t i, int salt)
{
    return (int64_t)(i % 1009) * (rank + 1) + salt - 3 * rank;
}

static int64_t sum(int nranks, size_t i, int salt)
{
    int64_t n = nranks;
    return (int64_t)(i % 1009) * (n * (n + 1) / 2) + n * salt - 3 * (n * (n - 1) / 2);
}

static int64_t *room(size_t count)
{
    const size_t bytes = (count + 1) * sizeof(int64_t);
    int64_t *p = job.arena ? (int64_t *)(job.arena + job.used) : malloc(bytes);
    if (job.arena) {
        job.used += (bytes + 63) / 64 * 64;
        job.rooms++;
    }
    CHECK(p && job.used <= ARENA);
    p[count] = 0x5ca1ab1e; /* nobody writes here */
    return p;
}

static void put_back(int64_t *p, size_t count)
{
    CHECK(p[count] == 0x5ca1ab1e);
    if (!job.arena)
        free(p);
    else if (--job.rooms == 0)
        job.used = 0;
}

static int allreduce(halay_comm_t *comm, int rank, int nranks, size_t count, int salt)
{
    int64_t *in = room(count), *out = room(count), *same = room(count);
    for (size_t i = 0; i < count; i++)
        in[i] = same[i] = value(rank, i, salt);
    int rc = halay_allreduce(in, out, count, HALAY_INT64, HALAY_SUM, comm);
    if (!rc)
        rc = halay_allreduce(HALAY_IN_PLACE, same, count, HALAY_INT64, HALAY_MAX, comm);
    for (size_t i = 0; !rc && i < count; i++) {
        CHECK(in[i] == value(rank, i, salt) && out[i] == sum(nranks, i, salt));
        int64_t first = value(0, i, salt), last = value(nranks - 1, i, salt);
        CHECK(same[i] == (first > last ? first : last)); /* linear in the rank */
    }
    put_back(in, count);
    put_back(out, count);
    put_back(same, count);
    return rc;
}

static void broadcast(halay_comm_t *comm, int rank, int nranks, size_t count, int salt)
{
    for (int root = 0; root<nranks; root += nranks> 4 ? 3 : 1) {
        int64_t *data = room(count);
        for (size_t i = 0; i < count; i++)
            data[i] = rank == root ? value(root, i, salt) : -1;
        CHECK(halay_broadcast(data, count, HALAY_INT64, root, comm) == HALAY_OK);
        for (size_t i = 0; i < count; i++)
            CHECK(data[i] == value(root, i, salt));
        put_back(data, count);
    }
}

static void allgather(halay_comm_t *comm, int rank, int nranks, size_t count, int salt)
{
    size_t n = (size_t)nranks, *counts = calloc(n, sizeof *counts), all = 0;
    CHECK(counts);
    for (size_t r = 0; r < n; r++)
        all += counts[r] = r % 3 == 1 ? 0 : count / n + r;
    int64_t *in = room(count), *out = room(n * count), *uneven = room(all);
    for (size_t i = 0; i < count; i++)
        in[i] = value(rank, i, salt);
    CHECK(halay_allgather(in, out, count, HALAY_INT64, comm) == HALAY_OK);
    for (size_t i = 0; i < n * count; i++)
        CHECK(out[i] == value((int)(i / count), i % count, salt));
    put_back(in, count);
    in = room(counts[rank]);
    for (size_t i = 0; i < counts[rank]; i++)
        in[i] = value(rank, i, salt + 1);
    CHECK(halay_allgatherv(in, uneven, counts, NULL, HALAY_INT64, comm) == HALAY_OK);
    for (size_t r = 0, at = 0; r < n; at += counts[r++])
        for (size_t i = 0; i < counts[r]; i++)
            CHECK(uneven[at + i] == value((int)r, i, salt + 1));
    put_back(in, counts[rank]);
    put_back(out, n * count);
    put_back(uneven, all);
    free(counts);
}

static void reduce_scatter(halay_comm_t *comm, int rank, int nranks, size_t count, int salt)
{
    size_t n = (size_t)nranks;
    int64_t *in = room(n * count), *out = room(count);
    for (size_t i = 0; i < n * count; i++)
        in[i] = value(rank, i, salt);
    CHECK(halay_reduce_scatter(in, out, count, HALAY_INT64, HALAY_SUM, comm) == HALAY_OK);
    for (size_t i = 0; i < count; i++)
        CHECK(out[i] == sum(nranks, (size_t)rank * count + i, salt));
    put_back(in, n * count);
    put_back(out, count);
}

/* Half of it is summed while the other half is still to be started. */
static void together(halay_comm_t *comm, int rank, int nranks)
{
    enum { MANY = 8, EACH = 5000 };
    halay_request_t *requests[MANY];
    int64_t *data[MANY];
    for (int k = 0; k < MANY; k++) {
        data[k] = room(EACH);
        for (size_t i = 0; i < EACH; i++)
            data[k][i] = value(rank, i, k);
        CHECK(halay_iallreduce(HALAY_IN_PLACE, data[k], EACH, HALAY_INT64, HALAY_SUM, comm,
                               &requests[k]) == HALAY_OK);
    }
    for (int k = MANY - 1; k >= 0; k--) {
        CHECK(halay_request_wait(requests[k]) == HALAY_OK);
        for (size_t i = 0; i < EACH; i++)
            CHECK(data[k][i] == sum(nranks, i, k));
        put_back(data[k], EACH);
    }
}

static void one_by_one(halay_comm_t *comm, int rank, int nranks, int round)
{
    for (size_t k = 0; k < sizeof COUNTS / sizeof COUNTS[0]; k++) {
        CHECK(allreduce(comm, rank, nranks, COUNTS[k], round) == HALAY_OK);
        broadcast(comm, rank, nranks, COUNTS[k], round);
        allgather(comm, rank, nranks, COUNTS[k], round);
        reduce_scatter(comm, rank, nranks, COUNTS[k], round);
    }
}

static void all_on(halay_comm_t *comm)
{
    int rank, nranks;
    CHECK(halay_comm_rank(comm, &rank) == HALAY_OK && halay_comm_size(comm, &nranks) == HALAY_OK);
    for (int round = 0; round < ROUNDS; round++) {
        one_by_one(comm, rank, nranks, round);
        CHECK(halay_barrier(comm) == HALAY_OK);
        together(comm, rank, nranks);
    }
}

/* One line a rank: where it was, and what that cost. */
static void print_place(void)
{
    halay_topology_t here = {.size = sizeof here};
    halay_counters_t c = {.size = sizeof c};
    CHECK(halay_context_topology(job.context, &here) == HALAY_OK);
    CHECK(halay_context_counters(job.context, &c) == HALAY_OK);
    CHECK(here.rank == job.rank && here.nranks == job.nranks && c.errors == 0);
    printf("rank %d of %d on %s: node %d of %d, local %d of %d, %s, %s: sent %llu bytes in %llu, "
           "received %llu in %llu, %llu connections, %llu plans\n",
           here.rank, here.nranks, here.host, here.node, here.nnodes, here.local_rank,
           here.local_nranks, here.launcher, here.transport, (unsigned long long)c.sent_bytes,
           (unsigned long long)c.sent_messages, (unsigned long long)c.received_bytes,
           (unsigned long long)c.received_messages, (unsigned long long)c.connections,
           (unsigned long long)c.plans_made);
}

/* All collectives on the world, a copy, and on communicators that lie across and within nodes. */
static int collectives(int argc, char **argv)
{
    (void)argc, (void)argv;
    halay_comm_t *dup, *split;
    halay_topology_t here = {.size = sizeof here};
    begin_or_exit();
    all_on(job.world);
    CHECK(halay_context_topology(job.context, &here) == HALAY_OK);
    CHECK(halay_comm_dup(job.world, &dup) == HALAY_OK);
    int colours[] = {here.node, here.local_rank, job.rank % 2};
    for (size_t i = 0; i < sizeof colours / sizeof colours[0]; i++) {
        CHECK(halay_comm_split(dup, colours[i], -job.rank, &split) == HALAY_OK);
        all_on(split);
        CHECK(halay_comm_free(split) == HALAY_OK);
    }
    CHECK(halay_comm_free(dup) == HALAY_OK);
    print_place();
    CHECK(halay_finalize(job.context) == HALAY_OK);
    return 0;
}

/* registered ROUNDS: the same number of registrations, however many rounds. */
static int registered(int argc, char **argv)
{
    void *arena;
    begin_or_exit();
    CHECK(halay_mem_alloc(job.context, ARENA, &arena) == HALAY_OK);
    job.arena = arena;
    for (int round = 0; round < (argc > 2 ? atoi(argv[2]) : 2); round++)
        one_by_one(job.world, job.rank, job.nranks, round);
    CHECK(halay_mem_free(job.context, arena) == HALAY_OK);
    CHECK(halay_finalize(job.context) == HALAY_OK);
    return 0;
}

/* ------------------------------------------------------------------ life and death */

/* Prints the verdict with the time at which it came, and that this rank lives on after that. */
static int told(int rc, double live_s)
{
    halay_verdict_t v = {.size = sizeof v};
    uint64_t now_ns = clock_ns(CLOCK_REALTIME);
    CHECK(halay_comm_verdict(job.world, &v) == HALAY_OK && v.code == rc);
    printf("told %llu rank %d: %d about rank %d on %s: %s\n",
           (unsigned long long)(now_ns / 1000000), job.rank, v.code, v.rank,
           v.host[0] ? v.host : "-", v.text);
    fflush(stdout);
    nap(live_s); /* longer than Slurm takes to end a step whose task was lost */
    rc = allreduce(job.world, job.rank, job.nranks, 1, 0);
    CHECK(rc != HALAY_OK);
    printf("rank %d lived on\n", job.rank);
    (void)halay_finalize(job.context);
    return 4;
}

/*
 * wait VICTIM [SECONDS]: all connect; VICTIM then says its process id and sleeps, for the test to
 * do something to it or to its node, while the others wait for it in a call.
 */
static int wait_for(int argc, char **argv)
{
    int victim = argc > 2 ? atoi(argv[2]) : 1;
    double live_s = argc > 3 ? atof(argv[3]) : 2.5;
    begin_or_exit();
    for (int i = 0; i < 3; i++)
        CHECK(allreduce(job.world, job.rank, job.nranks, 1000, i) == HALAY_OK);
    if (job.rank == victim) {
        printf("victim: rank %d is process %d\n", job.rank, (int)getpid());
        fflush(stdout);
        nap(60);
        return 1;
    }
    return told(allreduce(job.world, job.rank, job.nranks, MOST, 3), live_s);
}

/* loop: calls without end, until one fails; says how long that one took. */
static int loop(int argc, char **argv)
{
    double live_s = argc > 2 ? atof(argv[2]) : 0;
    int rc = HALAY_OK;
    uint64_t start_ns = 0, limit_ns = clock_ns(CLOCK_MONOTONIC) + 60000000000u;
    begin_or_exit();
    for (int i = 0; !rc && start_ns < limit_ns; i++) {
        start_ns = clock_ns(CLOCK_MONOTONIC);
        rc = allreduce(job.world, job.rank, job.nranks, i % 2 ? 1 : 20000, i);
        if (i == 3 && job.rank == 0) {
            printf("looping\n");
            fflush(stdout);
        }
        nap(0.005);
    }
    CHECK(rc != HALAY_OK);
    printf("rank %d: the call that failed took %llu ms\n", job.rank,
           (unsigned long long)((clock_ns(CLOCK_MONOTONIC) - start_ns) / 1000000));
    return told(rc, live_s);
}

/* Nobody writes here any more, though the call that was to write has failed. */
static void stays(const int64_t *data, size_t count)
{
    int64_t *copy = room(count);
    memcpy(copy, data, count * sizeof *data);
    nap(2);
    CHECK(!memcmp(copy, data, count * sizeof *data));
    put_back(copy, count);
}

/*
 * steady SECONDS [FILE]: calls of three sizes, for so long or till rank 0 finds the file; says how
 * many, and how long the slowest took. If one fails, its result stays as it is.
 */
static int steady(int argc, char **argv)
{
    static const size_t counts[] = {1, 20000, MOST};
    uint64_t begun_ns = clock_ns(CLOCK_MONOTONIC), slowest_ns = 0, took_ns = 0;
    double seconds = argc > 2 ? atof(argv[2]) : 5;
    int rc = HALAY_OK, calls = 0;
    begin_or_exit();
    int64_t *in = room(MOST), *out = room(MOST), over = 0;
    for (; !rc && !over; calls++) {
        size_t count = counts[calls % 3];
        uint64_t start_ns = clock_ns(CLOCK_MONOTONIC);
        for (size_t i = 0; i < count; i++)
            in[i] = value(job.rank, i, calls);
        if (count == 1)
            in[0] = job.rank == 0 && ((double)(start_ns - begun_ns) / 1e9 > seconds ||
                                      (argc > 3 && access(argv[3], F_OK) == 0));
        rc = halay_allreduce(in, out, count, HALAY_INT64, HALAY_SUM, job.world);
        took_ns = clock_ns(CLOCK_MONOTONIC) - start_ns;
        slowest_ns = took_ns > slowest_ns ? took_ns : slowest_ns;
        over = !rc && count == 1 ? out[0] : 0;
        for (size_t i = 0; !rc && count > 1 && i < count; i++)
            CHECK(out[i] == sum(job.nranks, i, calls));
        if (calls == 3 && printf("looping\n"))
            fflush(stdout);
    }
    printf("rank %d: %d calls in %.1f s, the %s took %llu ms\n", job.rank, calls,
           (double)(clock_ns(CLOCK_MONOTONIC) - begun_ns) / 1e9,
           rc ? "call that failed" : "slowest",
           (unsigned long long)((rc ? took_ns : slowest_ns) / 1000000));
    if (rc)
        stays(out, MOST);
    put_back(in, MOST);
    put_back(out, MOST);
    if (rc)
        return told(rc, 0);
    CHECK(halay_finalize(job.context) == HALAY_OK);
    return 0;
}

/* late: rank 1 sends when the others have given up; their memory stays registered and as it is. */
static int late(int argc, char **argv)
{
    void *memory;
    char *copy = malloc(MOST);
    (void)argc, (void)argv;
    begin_or_exit();
    CHECK(copy && halay_mem_alloc(job.context, MOST, &memory) == HALAY_OK);
    CHECK(halay_broadcast(memory, MOST, HALAY_INT8, 1, job.world) == HALAY_OK);
    CHECK(halay_comm_set_deadline(job.world, 1000000000) == HALAY_OK);
    if (job.rank == 1) {
        nap(3);
        memset(memory, 1, MOST);
    }
    int rc = halay_broadcast(memory, MOST, HALAY_INT8, 1, job.world);
    CHECK(rc != HALAY_OK || job.rank == 1); /* whose message may be gone before it hears of it */
    memcpy(copy, memory, MOST);
    /* Rank 0 gave up a second after the call's begin, and looks until rank 1 has called for long.
     */
    const uint64_t watch_ns = job.rank == 1 ? 1000000000u : 4000000000u;
    for (uint64_t end = clock_ns(CLOCK_MONOTONIC) + watch_ns; clock_ns(CLOCK_MONOTONIC) < end;)
        CHECK(halay_context_progress(job.context, 10000000) == HALAY_OK);
    CHECK(!memcmp(copy, memory, MOST) && (job.rank == 1 || copy[0] == 0));
    free(copy);
    if (rc)
        return told(rc, 0);
    (void)halay_finalize(job.context);
    return 4;
}

/* cycles NUMBER: so often from halay_init to halay_finalize, with random pauses. */
static int cycles(int argc, char **argv)
{
    int number = argc > 2 ? atoi(argv[2]) : 100;
    uint64_t slowest_ns = 0;
    srandom((unsigned)getpid());
    for (int i = 0; i < number; i++) {
        if (random() % 4 == 0)
            nap((double)(random() % 5000) / 1e6);
        uint64_t start_ns = clock_ns(CLOCK_MONOTONIC);
        begin_or_exit();
        uint64_t took_ns = clock_ns(CLOCK_MONOTONIC) - start_ns;
        slowest_ns = took_ns > slowest_ns ? took_ns : slowest_ns;
        CHECK(allreduce(job.world, job.rank, job.nranks, (size_t)(i % 50), i) == HALAY_OK);
        if (random() % 4 == 0)
            nap((double)(random() % 5000) / 1e6);
        if (i % 2)
            CHECK(halay_barrier(job.world) == HALAY_OK);
        CHECK(halay_finalize(job.context) == HALAY_OK);
    }
    printf("rank %d: %d cycles, slowest init %llu ms\n", job.rank, number,
           (unsigned long long)(slowest_ns / 1000000));
    return 0;
}

/* absent RANK: that rank (by PMIx) dies before halay_init; the others go on into it. */
static int absent(int argc, char **argv)
{
    const char *me = getenv("PMIX_RANK");
    if (me && argc > 2 && !strcmp(me, argv[2]))
        raise(SIGKILL);
    uint64_t start_ns = clock_ns(CLOCK_MONOTONIC);
    int rc = begin();
    printf("halay_init returned %d after %llu ms\n", rc,
           (unsigned long long)((clock_ns(CLOCK_MONOTONIC) - start_ns) / 1000000));
    return rc ? 5 : 0;
}

static void traffic_of(uint64_t bytes[2])
{
    halay_traffic_t t = {.size = sizeof t};
    for (int i = 0; i < 2; i++) {
        CHECK(halay_context_traffic(job.context, i, &t) == HALAY_OK);
        CHECK(!strcmp(t.transport, "shm") == (i == 0));
        bytes[i] = t.sent_bytes;
    }
    CHECK(halay_context_traffic(job.context, 2, &t) == HALAY_EINVAL);
}

/*
 * traffic: k ranks on each of n nodes. One allreduce of N bytes sends, as the formulas have it,
 * from each rank N (k-1)/k to give its lanes away and the same to spread its own inside the node,
 * and 2 N/k (n-1)/n between nodes.
 */
static int traffic(int argc, char **argv)
{
    enum { ELEMENTS = 24 * 4096 };
    uint64_t before[2], after[2];
    halay_topology_t here = {.size = sizeof here};
    (void)argc, (void)argv;
    begin_or_exit();
    CHECK(halay_context_topology(job.context, &here) == HALAY_OK);
    uint64_t k = (uint64_t)here.local_nranks, n = (uint64_t)here.nnodes, bytes = ELEMENTS * 8;
    CHECK(allreduce(job.world, job.rank, job.nranks, ELEMENTS, 0) == HALAY_OK);
    CHECK(halay_barrier(job.world) == HALAY_OK);
    int64_t *data = room(ELEMENTS);
    memset(data, 0, bytes);
    traffic_of(before);
    CHECK(halay_allreduce(HALAY_IN_PLACE, data, ELEMENTS, HALAY_INT64, HALAY_SUM, job.world) == 0);
    traffic_of(after);
    put_back(data, ELEMENTS);
    printf("rank %d: %llu bytes inside the node, %llu between nodes\n", job.rank,
           (unsigned long long)(after[0] - before[0]), (unsigned long long)(after[1] - before[1]));
    CHECK(after[0] - before[0] == 2 * bytes * (k - 1) / k);
    CHECK(after[1] - before[1] == 2 * (bytes / k) * (n - 1) / n);
    CHECK(halay_finalize(job.context) == HALAY_OK);
    return 0;
}

/* one: one call, after which each rank prints its verdict, if there is one. */
static int one(int argc, char **argv)
{
    (void)argc, (void)argv;
    begin_or_exit();
    int rc = allreduce(job.world, job.rank, job.nranks, 1000, 0);
    if (rc)
        return told(rc, 0);
    printf("rank %d of %d\n", job.rank, job.nranks);
    CHECK(halay_finalize(job.context) == HALAY_OK);
    return 0;
}

/* early VICTIM [SECONDS]: that rank ends right after halay_init; the others call later. */
static int early(int argc, char **argv)
{
    int victim = argc > 2 ? atoi(argv[2]) : -1;
    begin_or_exit();
    if (job.rank == victim) {
        CHECK(halay_finalize(job.context) == HALAY_OK);
        return 0;
    }
    nap(argc > 3 ? atof(argv[3]) : 0.5);
    uint64_t start_ns = clock_ns(CLOCK_MONOTONIC);
    int rc = allreduce(job.world, job.rank, job.nranks, 1000, 0);
    printf("rank %d: the call took %llu ms\n", job.rank,
           (unsigned long long)((clock_ns(CLOCK_MONOTONIC) - start_ns) / 1000000));
    if (rc)
        return told(rc, 0);
    CHECK(halay_finalize(job.context) == HALAY_OK);
    return 0;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        int (*run)(int argc, char **argv);
    } modes[] = {
        {"collectives", collectives}, {"wait", wait_for}, {"loop", loop},       {"cycles", cycles},
        {"absent", absent},           {"one", one},       {"traffic", traffic}, {"early", early},
        {"registered", registered},   {"late", late},     {"steady", steady}};
    for (size_t i = 0; argc > 1 && i < sizeof modes / sizeof modes[0]; i++)
        if (!strcmp(argv[1], modes[i].name))
            return modes[i].run(argc, argv);
    fprintf(stderr, "usage: cluster_rank collectives | wait VICTIM [S] | loop [S] | cycles N | "
                    "absent RANK | one | traffic | early VICTIM [S] | registered ROUNDS | late | "
                    "steady S [FILE]\n");
    return 2;
}
