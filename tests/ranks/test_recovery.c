/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rank dies at a step of a collective; the others agree and shrink, while a second and a third
 * one die at a message of that; then the survivors make 100 collectives, with the right results.
 * Every survivor must have heard the same, and nobody who lives may be left out. Or the second one
 * stands still there until the others' deadline has passed: it is left out by all of them, or by
 * none. Or those who have agreed first compute for long meanwhile: nobody waits for them.
 *
 *   test_recovery one P PLANNER RANK STEP RANK STEP RANK STEP STALLS NAPS REVOKE SEED
 *   test_recovery sampled SEED CASES    some cases, by chance
 *   test_recovery stalled SEED CASES    the same, with ranks that stand still
 *   test_recovery napped                the coordinator dies at each message, and others compute
 *   test_recovery all [P [PART PARTS]]  each rank of each planner at each step, for p = 2 to 8;
 * then a second death at each message of the recovery. PART, from 0 on, of so many parts
 */
#include <halay/plan.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ranks.h"

#define COUNT   24
#define CALLS   100
#define WORKERS 8
#define ROUNDS  6
#define MOST    16 /* ranks */
#define IN_TIME 30000000000ull
#define SHORT   2000000000ull /* deadline, if a rank stalls, */
#define STALL_S 5             /* for so long */
#define NAP_S   6
#define NAPPED  12 /* so many messages */
#define NOBODY  (-1)

struct death {
    int rank;
    uint32_t at; /* before it sends this message, the first one being 1; 0: never */
};

struct agreed { /* what a rank was told by one halay_comm_agree */
    bool is;
    int flag;
};

struct job {
    int nranks;
    uint32_t planner;
    struct death first, second, third;
    bool stalls; /* the second one */
    bool naps;   /* whoever has agreed */
    bool revokes;
    uint64_t seed;
    atomic_bool dead[MOST], reached[3];
    struct agreed agreed[ROUNDS][MOST];
    pthread_barrier_t over;
};

/* Of this thread's rank: how many more messages it sends before it dies. */
static _Thread_local struct {
    uint32_t left;
    bool stalls;
    struct rank *rank;
    atomic_bool *reached;
} doom;

static void strike(void)
{
    struct job *job = doom.rank ? doom.rank->arg : NULL;
    if (!job || !doom.left || --doom.left)
        return;
    atomic_store(doom.reached, true);
    if (doom.stalls) {
        sleep(STALL_S);
        return;
    }
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

static void doom_to(struct rank *r, const struct death *death, bool stalls, atomic_bool *reached)
{
    doom.rank = r;
    doom.left = death->rank == r->rank ? death->at : 0;
    doom.stalls = stalls;
    doom.reached = reached;
}

static bool may_be_left_out(const struct rank *r)
{
    const struct job *job = r->arg;
    return job->stalls && job->second.rank == r->rank && atomic_load(&job->reached[1]);
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

/* Is it about a communicator whose ranks are not the world's? */
static bool is_reversed(const struct job *job)
{
    return job->seed / 32 % 2;
}

/* 100 collectives with the right results; or the code of the first that failed. */
static int work(const struct rank *r, halay_comm_t *comm)
{
    const struct job *job = r->arg;
    int32_t who[MOST], me = r->rank;
    int n, rc = halay_allgather(&me, who, 1, HALAY_INT32, comm);
    CHECK(!halay_comm_size(comm, &n), "size");
    for (int i = 1; !rc && i < n; i++)
        CHECK(is_reversed(job) ? who[i - 1] > who[i] : who[i - 1] < who[i], "rank %d after %d",
              who[i], who[i - 1]);
    for (int call = 1; !rc && call < CALLS; call++) {
        int64_t in[COUNT], out[COUNT];
        for (int i = 0; i < COUNT; i++)
            in[i] = ranks_value(r->rank, call, i);
        if (call % 2)
            rc = halay_allreduce(in, out, COUNT, HALAY_INT64, HALAY_SUM, comm);
        else
            rc = halay_broadcast(in, COUNT, HALAY_INT64, call % n, comm);
        for (int i = 0; !rc && i < COUNT; i++) {
            int64_t sum = 0;
            for (int k = 0; k < n; k++)
                sum += ranks_value(who[k], call, i);
            CHECK(call % 2 ? out[i] == sum : in[i] == ranks_value(who[call % n], call, i),
                  "call %d of %d ranks: wrong result", call, n);
        }
    }
    if (!rc && n != job->nranks)
        CHECK(n < job->nranks, "%d of %d ranks", n, job->nranks);
    return rc;
}

static bool is_failure(const struct job *job, int rc)
{
    return rc == HALAY_EPEER || rc == HALAY_EREVOKED || (job->stalls && rc == HALAY_ETIMEOUT);
}

/* Everyone who lives has been told the same, in each round in which it was. */
static void compare(const struct job *job, int round, int rank, int flag)
{
    for (int k = 0; k < job->nranks; k++) {
        const struct agreed *other = &job->agreed[round][k];
        if (__atomic_load_n(&other->is, __ATOMIC_ACQUIRE))
            CHECK(other->flag == flag, "round %d: rank %d was told %x, rank %d %x", round, rank,
                  (unsigned)flag, k, (unsigned)other->flag);
    }
}

/* Agrees on whether all is well. Shrinks, if not. Returns the communicator to go on with; NULL:
 * this rank is dead, or all is well. */
static halay_comm_t *mend(const struct rank *r, halay_comm_t *comm, int rc, int round)
{
    struct job *job = r->arg;
    int flag =
        ~(1 << (r->rank + 1)) & (rc ? ~1 : ~0); /* bit 0: all is well; others: who is there */
    halay_comm_t *next = NULL;
    CHECK(!rc || is_failure(job, rc) || is_dead(r), "rank %d: %s", r->rank, halay_strerror(rc));
    if (rc && job->revokes && !is_dead(r))
        CHECK(!halay_comm_revoke(comm), "revoke");
    const uint64_t begin = ranks_now_ns();
    rc = halay_comm_agree(comm, &flag);
    if (job->naps && round == 0 && !is_dead(r)) {
        CHECK(ranks_now_ns() - begin < NAP_S * 800000000ull, "rank %d waited for who computes",
              r->rank);
        sleep(NAP_S);
    }
    if (is_dead(r) || (rc == HALAY_EPEER && may_be_left_out(r)))
        return NULL;
    CHECK(!rc, "rank %d, agree: %s", r->rank, halay_strerror(rc));
    compare(job, round, r->rank, flag);
    job->agreed[round][r->rank].flag = flag;
    __atomic_store_n(&job->agreed[round][r->rank].is, true, __ATOMIC_RELEASE);
    if (flag & 1 && round)
        return NULL;
    rc = halay_comm_shrink(comm, &next);
    if (is_dead(r) || (rc == HALAY_EPEER && may_be_left_out(r)))
        return NULL;
    CHECK(!rc, "rank %d, shrink: %s", r->rank, halay_strerror(rc));
    return next;
}

static void last_check(const struct rank *r, halay_comm_t *comm)
{
    struct job *job = r->arg;
    int n, living = 0;
    CHECK(!halay_comm_size(comm, &n), "size");
    for (int k = 0; k < job->nranks; k++)
        living += !atomic_load(&job->dead[k]);
    const bool late = atomic_load(&job->reached[1]) || atomic_load(&job->reached[2]);
    if (may_be_left_out(r))
        return; /* perhaps it has last heard of a communicator that the others have left since */
    CHECK(n == living || (n > living && late) || (n == living - 1 && job->stalls && late),
          "rank %d: %d ranks go on, and %d live", r->rank, n, living);
}

static void body(struct rank *r)
{
    struct job *job = r->arg;
    halay_comm_t *comm = r->world, *next;
    const uint64_t begin = ranks_now_ns();
    int rc = job->seed % 2 ? halay_barrier(comm) : HALAY_OK;
    if (is_reversed(job)) {
        CHECK(!halay_comm_split(r->world, 0, -r->rank, &comm), "split");
        pthread_barrier_wait(&job->over); /* who dies takes with it what was under way */
    }
    doom_to(r, &job->first, false, &job->reached[0]);
    rc = rc ? rc : call_planned(job, comm);
    if (r->rank == job->first.rank) { /* if it has sent less, it dies now */
        doom.left = 1;
        strike();
        atomic_store(&job->reached[0], doom.left == 0 && rc != 0);
    }
    if (r->rank == job->third.rank)
        doom_to(r, &job->third, false, &job->reached[2]);
    else
        doom_to(r, &job->second, job->stalls, &job->reached[1]);
    for (int round = 0; !is_dead(r) && round < ROUNDS; round++) {
        next = mend(r, comm, rc, round);
        if (!next)
            break;
        if (comm != r->world)
            CHECK(!halay_comm_free(comm), "free");
        comm = next;
        rc = work(r, comm);
        CHECK(round < ROUNDS - 1, "it does not end");
    }
    if (!is_dead(r)) {
        last_check(r, comm);
        CHECK(ranks_now_ns() - begin < IN_TIME, "rank %d took %.1f s", r->rank,
              (double)(ranks_now_ns() - begin) * 1e-9);
    }
    doom.rank = NULL;
    pthread_barrier_wait(&job->over); /* who has left cannot be told from who has yet to come */
    halay_finalize(r->context);
}

static char described[200]; /* the case that this process runs */

static void describe(int signal_number)
{
    const ssize_t n = write(STDERR_FILENO, described, strlen(described));
    (void)n;
    signal(signal_number, SIG_DFL);
}

static void run_one(struct job *job)
{
    static halay_transport_ops_t mortal;
    char algorithm[64];
    const halay_planner_info_t *planner = halay_planner_get(job->planner);
    static const uint32_t delays[] = {0, 4, 40, 40}; /* what is under way may be lost at a death */
    halay_inproc_faults_t faults = {.seed = job->seed + 1,
                                    .delay_polls_max = delays[job->seed / 2 % 4],
                                    .reorder = (uint32_t)(job->seed / 8 % 2),
                                    .eager_bytes = job->seed / 16 % 2 ? 64 : 1024};
    struct ranks_options o = {.nranks = job->nranks,
                              .transport = &mortal,
                              .faults = &faults,
                              .algorithm = algorithm,
                              .deadline_ns = job->stalls ? SHORT : IN_TIME,
                              .keep = true};
    mortal = halay_transport_v7_inproc;
    mortal.send = mortal_send;
    mortal.put = mortal_put;
    snprintf(algorithm, sizeof(algorithm), "%s=%s",
             halay_collective_name((halay_collective_t)planner->collective), planner->name);
    snprintf(described, sizeof(described),
             "in: one %d %u %d %u %d %u %d %u %d %d %d %llu, which is %s\n", job->nranks,
             job->planner, job->first.rank, job->first.at, job->second.rank, job->second.at,
             job->third.rank, job->third.at, job->stalls, job->naps, job->revokes,
             (unsigned long long)job->seed, algorithm);
    pthread_barrier_init(&job->over, NULL, (unsigned)job->nranks);
    ranks_run(&o, body, job);
    pthread_barrier_destroy(&job->over);
}

static bool serves(uint32_t planner, int nranks)
{
    const halay_planner_call_t call = {
        .nranks = (uint32_t)nranks, .count = COUNT, .commutative = 1, .nodes = 1};
    return halay_planner_serves(planner, &call, NULL);
}

/* ---------------------------------------------------------------- which cases */

static int nworkers = WORKERS; /* of all parts */
static unsigned long ran;      /* cases, here */

/* Runs what this worker has to: each nworkers-th number. */
static void mine(int worker, uint64_t *number, struct job job, bool reached[3])
{
    reached[0] = reached[1] = reached[2] = true; /* unknown, of what another worker runs */
    if ((int)((*number)++ % nworkers) != worker)
        return;
    struct job *run = malloc(sizeof(*run));
    CHECK(run, "no memory");
    *run = job;
    ran++;
    run_one(run);
    for (int k = 0; k < 3; k++)
        reached[k] = atomic_load(&run->reached[k]);
    free(run);
}

static void sampled(int worker, bool stalls, uint64_t seed, uint64_t cases)
{
    bool reached[3];
    unsigned deaths[3] = {0};
    for (uint64_t i = 0, number = 0; i < cases; i++) {
        uint64_t s = seed * 1000003 + i;
        struct job job = {.nranks = 2 + (int)(ranks_random(&s) % 7)};
        do
            job.planner = (uint32_t)(ranks_random(&s) % halay_planner_count());
        while (!serves(job.planner, job.nranks));
        job.first.rank = (int)(ranks_random(&s) % (unsigned)job.nranks);
        job.first.at = 1 + (uint32_t)(ranks_random(&s) % 8);
        job.second.rank = (int)(ranks_random(&s) % (unsigned)job.nranks);
        job.second.at = (uint32_t)(ranks_random(&s) % 30);
        if (i % 2) { /* who coordinates, in the first two agreements */
            job.second.rank = job.first.rank == 0;
            job.second.at = 1 + (uint32_t)(ranks_random(&s) % (5 * (unsigned)job.nranks));
        }
        job.third.rank = NOBODY;
        if (i % 4 == 3 && job.nranks > 3) { /* and who coordinates after it */
            job.third.rank = 1 + (job.first.rank == 1);
            job.third.rank += job.third.rank == job.second.rank;
            job.third.rank += job.third.rank == job.first.rank;
            job.third.at = 1 + (uint32_t)(ranks_random(&s) % (5 * (unsigned)job.nranks));
        }
        job.stalls = stalls;
        job.revokes = ranks_random(&s) % 2;
        job.seed = ranks_random(&s) % 1000000;
        if (i % 2)
            job.seed &= ~UINT64_C(32);
        const bool runs = (int)(number % nworkers) == worker;
        mine(worker, &number, job, reached);
        for (int k = 0; k < 3; k++)
            deaths[k] += runs && reached[k];
    }
    printf("worker %d: %u died in the call, %u in the recovery, %u after that\n", worker, deaths[0],
           deaths[1], deaths[2]);
}

/* Every worker looks for the last step of a kind by itself: those of one victim are its own. */
static void all_of(int worker, uint64_t *number, int nranks, uint32_t planner)
{
    for (int victim = 0; victim < nranks; victim++) {
        if ((int)((*number)++ % nworkers) != worker)
            continue;
        bool reached[3] = {true};
        for (uint32_t at = 1; reached[0]; at++) {
            uint64_t zero = (uint64_t)worker;
            struct job job = {.nranks = nranks,
                              .planner = planner,
                              .first = {victim, at},
                              .second = {NOBODY, 0},
                              .third = {NOBODY, 0},
                              .revokes = at % 2,
                              .seed = *number * 7 + at};
            mine(worker, &zero, job, reached);
        }
    }
}

static void all_second(int worker, uint64_t *number, int nranks, uint32_t planner)
{
    for (int victim = 0; victim < nranks; victim++)
        for (int second = 0; second < nranks; second++) {
            if (second == victim || (int)((*number)++ % nworkers) != worker)
                continue;
            bool reached[3] = {true, true};
            for (uint32_t at = 1; reached[1]; at++) {
                uint64_t zero = (uint64_t)worker;
                struct job job = {
                    .nranks = nranks,
                    .planner = planner,
                    .first = {victim, 1 + at % 3},
                    .second = {second, at < 60 ? at : at * 4 - 180}, /* then sampled */
                    .third = {NOBODY, 0},
                    .revokes = at % 2,
                    .seed = *number * 7 + at};
                mine(worker, &zero, job, reached);
            }
        }
}

static void all(int worker, int from, int to)
{
    uint64_t number = 0;
    for (int nranks = from; nranks <= to; nranks++) {
        uint32_t planner, allreduce;
        for (planner = 0; planner < halay_planner_count(); planner++)
            if (serves(planner, nranks))
                all_of(worker, &number, nranks, planner);
        CHECK(!halay_planner_find(HALAY_ALLREDUCE, "ring", &allreduce), "no ring");
        all_second(worker, &number, nranks, allreduce);
    }
    printf("worker %d: %lu cases\n", worker, ran);
}

static void napped(int worker)
{
    uint64_t number = 0;
    bool reached[3];
    struct job job = {.nranks = 5, .first = {3, 1}, .third = {NOBODY, 0}, .naps = true};
    CHECK(!halay_planner_find(HALAY_ALLREDUCE, "ring", &job.planner), "no ring");
    for (uint32_t i = 0; i < 2 * NAPPED; i++) { /* what comes of a message depends on time, too */
        job.second = (struct death){0, 1 + i % NAPPED};
        mine(worker, &number, job, reached);
    }
}

/* One case, as describe() names it. */
static void one(char **argv)
{
    uint64_t number = 0;
    bool reached[3];
    struct job job = {.nranks = atoi(argv[0]),
                      .planner = (uint32_t)atoi(argv[1]),
                      .first = {atoi(argv[2]), (uint32_t)atoi(argv[3])},
                      .second = {atoi(argv[4]), (uint32_t)atoi(argv[5])},
                      .third = {atoi(argv[6]), (uint32_t)atoi(argv[7])},
                      .stalls = atoi(argv[8]),
                      .naps = atoi(argv[9]),
                      .revokes = atoi(argv[10]),
                      .seed = strtoull(argv[11], NULL, 10)};
    mine(0, &number, job, reached);
}

int main(int argc, char **argv)
{
    const bool every = argc > 1 && !strcmp(argv[1], "all");
    const bool stalled = argc > 1 && !strcmp(argv[1], "stalled");
    const bool naps = argc == 2 && !strcmp(argv[1], "napped");
    setenv("HALAY_DEBUG", "error", 0); /* the failures here are wanted */
    signal(SIGABRT, describe);
    if (argc == 14 && !strcmp(argv[1], "one")) {
        one(argv + 2);
        return 0;
    }
    CHECK(every || naps || (argc == 4 && (stalled || !strcmp(argv[1], "sampled"))),
          "usage: test_recovery sampled|stalled SEED CASES | napped | all [P [PART PARTS]]");
    const int p = every && argc > 2 ? atoi(argv[2]) : 0;
    const int part = every && argc > 4 ? atoi(argv[3]) : 0;
    nworkers = every && argc > 4 ? WORKERS * atoi(argv[4]) : WORKERS;
    pid_t pids[WORKERS];
    for (int w = 0; w < WORKERS; w++) {
        pids[w] = fork();
        CHECK(pids[w] >= 0, "fork");
        if (pids[w])
            continue;
        if (every)
            all(part * WORKERS + w, p ? p : 2, p ? p : 8);
        else if (naps)
            napped(w);
        else
            sampled(w, stalled, strtoull(argv[2], NULL, 10), strtoull(argv[3], NULL, 10));
        exit(0);
    }
    int failed = 0, status;
    for (int w = 0; w < WORKERS; w++)
        failed += waitpid(pids[w], &status, 0) != pids[w] || status != 0;
    CHECK(!failed, "%d of %d workers failed", failed, WORKERS);
    return 0;
}
