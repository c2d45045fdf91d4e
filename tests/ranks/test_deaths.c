/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two ranks die in one call, each before a message of its own: of the call, or of the agreement
 * after it. All survivors end with the same words, in the call or in the next one.
 *
 *   test_deaths one P PLANNER RANK STEP RANK STEP SEED
 *   test_deaths sampled SEED CASES   some cases, by chance
 *   test_deaths all [P]              each two ranks at each two steps, for p = 3, 4, 5 and each
 * planner
 */
#include <halay/plan.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ranks.h"

#define COUNT    24
#define WORKERS  8
#define MOST     8 /* ranks */
#define DEADLINE 20000000000ull
#define IN_TIME  10000000000ull

struct death {
    int rank;
    uint32_t at; /* before it sends this message, the first one being 1 */
};

struct job {
    int nranks;
    uint32_t planner;
    struct death deaths[2];
    uint64_t seed;
    atomic_bool dead[MOST], reached[2];
    char text[MOST][512];
    unsigned sequence[MOST];
    uint64_t took_ns[MOST];
    pthread_barrier_t begin, over;
};

/* Of this thread's rank: how many more messages it sends before it dies. */
static _Thread_local struct {
    uint32_t left;
    struct rank *rank;
    atomic_bool *reached;
} doom;

static void strike(void)
{
    struct job *job = doom.rank ? doom.rank->arg : NULL;
    if (!job || !doom.left || --doom.left)
        return;
    atomic_store(doom.reached, true);
    atomic_store(&job->dead[doom.rank->rank], true);
    halay_inproc_kill(doom.rank->hub, doom.rank->rank);
}

static int mortal_send(halay_transport_t *t, halay_ep_t *ep, uint64_t tag, const void *header,
                       size_t header_bytes, const void *payload, size_t bytes, uint64_t cookie)
{
    strike();
    return halay_transport_v7_inproc.send(t, ep, tag, header, header_bytes, payload, bytes, cookie);
}

static int mortal_put(halay_transport_t *t, halay_ep_t *ep, const void *payload, size_t bytes,
                      const void *key, size_t key_bytes, uint64_t offset, uint32_t immediate,
                      uint64_t cookie)
{
    strike();
    return halay_transport_v7_inproc.put(t, ep, payload, bytes, key, key_bytes, offset, immediate,
                                         cookie);
}

static bool is_dead(const struct rank *r)
{
    return atomic_load(&((struct job *)r->arg)->dead[r->rank]);
}

static int call_planned(const struct job *job, halay_comm_t *comm)
{
    static _Thread_local int32_t in[COUNT * MOST], out[COUNT * MOST];
    const int root = (int)(job->seed % (unsigned)job->nranks);
    switch ((halay_collective_t)halay_planner_get(job->planner)->collective) {
    case HALAY_ALLREDUCE:
        return halay_allreduce(in, out, COUNT, HALAY_INT32, HALAY_SUM, comm);
    case HALAY_BROADCAST:
        return halay_broadcast(out, COUNT, HALAY_INT32, root, comm);
    case HALAY_ALLGATHER:
        return halay_allgather(in, out, COUNT, HALAY_INT32, comm);
    case HALAY_REDUCE_SCATTER:
        return halay_reduce_scatter(in, out, COUNT, HALAY_INT32, HALAY_SUM, comm);
    case HALAY_REDUCE:
        return halay_reduce(in, out, COUNT, HALAY_INT32, HALAY_SUM, root, comm);
    case HALAY_GATHER:
        return halay_gather(in, out, COUNT, HALAY_INT32, root, comm);
    case HALAY_SCATTER:
        return halay_scatter(in, out, COUNT, HALAY_INT32, root, comm);
    case HALAY_ALLTOALL:
        return halay_alltoall(in, out, COUNT, HALAY_INT32, comm);
    case HALAY_SCAN:
        return halay_scan(in, out, COUNT, HALAY_INT32, HALAY_SUM, comm);
    case HALAY_EXSCAN:
        return halay_exscan(in, out, COUNT, HALAY_INT32, HALAY_SUM, comm);
    default:
        return halay_barrier(comm);
    }
}

static void doom_self(struct rank *r)
{
    struct job *job = r->arg;
    doom.rank = r;
    for (int i = 0; i < 2; i++)
        if (job->deaths[i].rank == r->rank) {
            doom.left = job->deaths[i].at;
            doom.reached = &job->reached[i];
        }
}

static void survive(struct rank *r, int rc)
{
    struct job *job = r->arg;
    halay_verdict_t v = {.size = sizeof(v)};
    for (int more = 0; !rc && more < 2; more++) /* it needed nothing more of the dead */
        rc = halay_barrier(r->world);
    CHECK(rc == HALAY_EPEER, "rank %d: %s", r->rank, halay_strerror(rc));
    CHECK(!halay_comm_verdict(r->world, &v) && v.code == rc, "verdict %d", v.code);
    CHECK(v.rank == job->deaths[0].rank || v.rank == job->deaths[1].rank, "rank %d: %s", r->rank,
          v.text);
    snprintf(job->text[r->rank], sizeof(job->text[0]), "%s", v.text);
    job->sequence[r->rank] = v.sequence;
}

static void body(struct rank *r)
{
    struct job *job = r->arg;
    doom.rank = NULL;
    int rc = job->seed % 2 ? halay_barrier(r->world) : HALAY_OK; /* most are connected then */
    pthread_barrier_wait(&job->begin);                           /* nobody dies in that one */
    CHECK(!rc, "too early: %s", halay_strerror(rc));
    doom_self(r);
    const uint64_t begin = ranks_now_ns();
    rc = call_planned(job, r->world);
    if (doom.left) { /* it has sent less: it dies now */
        atomic_bool *const reached = doom.reached;
        doom.left = 1;
        strike();
        atomic_store(reached, false);
    }
    if (!is_dead(r))
        survive(r, rc);
    job->took_ns[r->rank] = ranks_now_ns() - begin;
    doom.rank = NULL;
    pthread_barrier_wait(&job->over);
    halay_finalize(r->context);
}

static char described[200]; /* the case that this process runs */

static void describe(int signal_number)
{
    const ssize_t n = write(STDERR_FILENO, described, strlen(described));
    (void)n;
    signal(signal_number, SIG_DFL);
}

static uint64_t slowest_ns;

static void compare(const struct job *job)
{
    int first = -1;
    for (int k = 0; k < job->nranks; k++) {
        if (!job->text[k][0])
            continue;
        first = first < 0 ? k : first;
        CHECK(!strcmp(job->text[first], job->text[k]),
              "two texts:\n %d in call %u: %s\n %d in call %u: %s", first, job->sequence[first],
              job->text[first], k, job->sequence[k], job->text[k]);
        CHECK(job->took_ns[k] < IN_TIME, "rank %d took %.1f s", k, (double)job->took_ns[k] * 1e-9);
        if (job->took_ns[k] > 500000000ull)
            fprintf(stderr, "SLOW %.2f %s", (double)job->took_ns[k] * 1e-9, described);
        slowest_ns = job->took_ns[k] > slowest_ns ? job->took_ns[k] : slowest_ns;
    }
}

/* Have both died where they were to? */
static bool run_one(const struct job *given)
{
    static halay_transport_ops_t mortal;
    static const uint32_t delays[] = {0, 4, 40, 40}; /* what is under way may be lost at a death */
    static struct job job;
    char algorithm[64];
    const halay_planner_info_t *planner = halay_planner_get(given->planner);
    halay_inproc_faults_t faults = {.seed = given->seed + 1,
                                    .delay_polls_max = delays[given->seed / 2 % 4],
                                    .reorder = (uint32_t)(given->seed / 8 % 2),
                                    .eager_bytes = given->seed / 16 % 2 ? 64 : 1024};
    struct ranks_options o = {.nranks = given->nranks,
                              .transport = &mortal,
                              .faults = &faults,
                              .algorithm = algorithm,
                              .deadline_ns = DEADLINE,
                              .keep = true};
    job = *given;
    mortal = halay_transport_v7_inproc;
    mortal.send = mortal_send;
    mortal.put = mortal_put;
    snprintf(algorithm, sizeof(algorithm), "%s=%s",
             halay_collective_name((halay_collective_t)planner->collective), planner->name);
    snprintf(described, sizeof(described), "in: one %d %u %d %u %d %u %llu, which is %s\n",
             job.nranks, job.planner, job.deaths[0].rank, job.deaths[0].at, job.deaths[1].rank,
             job.deaths[1].at, (unsigned long long)job.seed, algorithm);
    pthread_barrier_init(&job.begin, NULL, (unsigned)job.nranks);
    pthread_barrier_init(&job.over, NULL, (unsigned)job.nranks);
    ranks_run(&o, body, &job);
    pthread_barrier_destroy(&job.begin);
    pthread_barrier_destroy(&job.over);
    compare(&job);
    return atomic_load(&job.reached[0]) && atomic_load(&job.reached[1]);
}

static bool serves(uint32_t planner, int nranks)
{
    const halay_planner_call_t call = {
        .nranks = (uint32_t)nranks, .count = COUNT, .commutative = 1, .nodes = 1};
    return halay_planner_serves(planner, &call, NULL);
}

/* ---------------------------------------------------------------- which cases */

static void sampled(int worker, uint64_t seed, uint64_t cases)
{
    unsigned both = 0;
    for (uint64_t i = (uint64_t)worker; i < cases; i += WORKERS) {
        uint64_t s = seed * 1000003 + i;
        struct job job = {.nranks = 3 + (int)(ranks_random(&s) % (MOST - 2))};
        do
            job.planner = (uint32_t)(ranks_random(&s) % halay_planner_count());
        while (!serves(job.planner, job.nranks));
        const unsigned n = (unsigned)job.nranks;
        job.deaths[0].rank = (int)(ranks_random(&s) % n);
        job.deaths[1].rank =
            (job.deaths[0].rank + 1 + (int)(ranks_random(&s) % (n - 1))) % job.nranks;
        for (int k = 0; k < 2; k++)
            job.deaths[k].at = 1 + (uint32_t)(ranks_random(&s) % 12);
        job.seed = ranks_random(&s) % 1000000;
        both += run_one(&job);
    }
    printf("worker %d: in %u cases two died where they were to; the slowest took %.3f s\n", worker,
           both, (double)slowest_ns * 1e-9);
}

/* From some step on a rank sends no more messages than that before it has ended. */
static void all_of(int nranks, uint32_t planner, int a, int b)
{
    const uint32_t most = 16;
    for (uint32_t at = 1; at <= most; at++)
        for (uint32_t other = 1; other <= most; other++) {
            const struct job job = {.nranks = nranks,
                                    .planner = planner,
                                    .deaths = {{a, at}, {b, other}},
                                    .seed = planner * 31 + at * 7 + other};
            if (!run_one(&job) && other > 8)
                break;
        }
}

static void all(int worker, int from, int to)
{
    uint64_t number = 0;
    for (int nranks = from; nranks <= to; nranks++)
        for (uint32_t planner = 0; planner < halay_planner_count(); planner++)
            for (int a = 0; serves(planner, nranks) && a < nranks; a++)
                for (int b = a + 1; b < nranks; b++)
                    if ((int)(number++ % WORKERS) == worker)
                        all_of(nranks, planner, a, b);
    printf("worker %d: the slowest took %.3f s\n", worker, (double)slowest_ns * 1e-9);
}

/* One case, as describe() names it, again and again. */
static void one(char **argv)
{
    const struct job job = {.nranks = atoi(argv[0]),
                            .planner = (uint32_t)atoi(argv[1]),
                            .deaths = {{atoi(argv[2]), (uint32_t)atoi(argv[3])},
                                       {atoi(argv[4]), (uint32_t)atoi(argv[5])}},
                            .seed = strtoull(argv[6], NULL, 10)};
    for (int i = 0; i < 100; i++)
        run_one(&job);
}

int main(int argc, char **argv)
{
    const bool every = argc > 1 && !strcmp(argv[1], "all");
    setenv("HALAY_DEBUG", "error", 0); /* the failures here are wanted */
    signal(SIGABRT, describe);
    if (argc == 9 && !strcmp(argv[1], "one")) {
        one(argv + 2);
        return 0;
    }
    CHECK(every || (argc == 4 && !strcmp(argv[1], "sampled")),
          "usage: test_deaths sampled SEED CASES | all [P]");
    const int p = every && argc > 2 ? atoi(argv[2]) : 0;
    pid_t pids[WORKERS];
    for (int w = 0; w < WORKERS; w++) {
        pids[w] = fork();
        CHECK(pids[w] >= 0, "fork");
        if (pids[w])
            continue;
        if (every)
            all(w, p ? p : 3, p ? p : 5);
        else
            sampled(w, strtoull(argv[2], NULL, 10), strtoull(argv[3], NULL, 10));
        exit(0);
    }
    int failed = 0, status;
    for (int w = 0; w < WORKERS; w++)
        failed += waitpid(pids[w], &status, 0) != pids[w] || status != 0;
    CHECK(!failed, "%d of %d workers failed", failed, WORKERS);
    return 0;
}
