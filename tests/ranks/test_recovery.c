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
#include "mortal.h"

#define CALLS   100
#define ROUNDS  6
#define IN_TIME 30000000000ull
#define SHORT   2000000000ull /* deadline, if a rank stalls, */
#define STALL_S 5             /* for so long */
#define NAP_S   4
#define NAPPED  12 /* so many messages */
#define NOBODY  (-1)

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

static void doom_to(struct rank *r, const struct death *death, bool stalls, atomic_bool *reached)
{
    struct job *job = r->arg;
    doom.rank = r;
    doom.left = death->rank == r->rank ? death->at : 0;
    doom.stall_s = stalls ? STALL_S : 0;
    doom.reached = reached;
    doom.dead = &job->dead[r->rank];
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
    uint64_t took_ns = 0; /* the agreements: between busy processes each call is slow by itself */
    int rc = job->seed % 2 ? halay_barrier(comm) : HALAY_OK;
    if (is_reversed(job)) {
        CHECK(!halay_comm_split(r->world, 0, -r->rank, &comm), "split");
        pthread_barrier_wait(&job->over); /* who dies takes with it what was under way */
    }
    doom_to(r, &job->first, false, &job->reached[0]);
    rc = rc ? rc : call_planned(job->planner, (int)(job->seed % (unsigned)job->nranks), comm);
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
        const uint64_t begin = ranks_now_ns();
        next = mend(r, comm, rc, round);
        took_ns += ranks_now_ns() - begin;
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
        CHECK(took_ns < IN_TIME, "rank %d: the agreements took %.1f s", r->rank,
              (double)took_ns * 1e-9);
    }
    doom.rank = NULL;
    pthread_barrier_wait(&job->over); /* who has left cannot be told from who has yet to come */
    halay_finalize(r->context);
}

static void run_one(struct job *job)
{
    static halay_transport_ops_t mortal;
    char algorithm[64];
    halay_inproc_faults_t faults = mortal_faults(job->seed);
    struct ranks_options o = {.nranks = job->nranks,
                              .transport = &mortal,
                              .faults = &faults,
                              .algorithm = algorithm,
                              .deadline_ns = job->stalls ? SHORT : IN_TIME,
                              .keep = true};
    mortal = mortal_ops();
    algorithm_of(job->planner, algorithm);
    snprintf(described, sizeof(described),
             "in: one %d %u %d %u %d %u %d %u %d %d %d %llu, which is %s\n", job->nranks,
             job->planner, job->first.rank, job->first.at, job->second.rank, job->second.at,
             job->third.rank, job->third.at, job->stalls, job->naps, job->revokes,
             (unsigned long long)job->seed, algorithm);
    pthread_barrier_init(&job->over, NULL, (unsigned)job->nranks);
    ranks_run(&o, body, job);
    pthread_barrier_destroy(&job->over);
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
    /* It dies while it says that all is decided, and that is long under way: some hear of its death
     * first, give to the next one, and compute then. */
    job.nranks = 8;
    for (uint32_t i = 0; i < 16; i++) {
        job.second = (struct death){0, 15 + i % 4};
        job.seed = i < 8 ? 4 : 6;
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

static void part_of(int worker, char **argv)
{
    const char *what = argv[1];
    if (!strcmp(what, "all")) {
        const int p = argv[2] ? atoi(argv[2]) : 0;
        const int part = argv[2] && argv[3] && argv[4] ? atoi(argv[3]) : 0;
        all(part * WORKERS + worker, p ? p : 2, p ? p : 8);
    } else if (!strcmp(what, "napped")) {
        napped(worker);
    } else {
        sampled(worker, !strcmp(what, "stalled"), strtoull(argv[2], NULL, 10),
                strtoull(argv[3], NULL, 10));
    }
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
    nworkers = every && argc > 4 ? WORKERS * atoi(argv[4]) : WORKERS;
    work_in_processes(part_of, argv);
    return 0;
}
