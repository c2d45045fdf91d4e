/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two ranks, or three, die in one call, each before a message of its own: of the call, or of the
 * agreement after it. All survivors end with the same words, in the call or in the next one. Or one
 * dies, and others are in the program's code: who is in the call is told meanwhile. Or who has
 * completed the call ends at once: the others do not call it lost.
 *
 *   test_deaths one P PLANNER RANK STEP RANK STEP RANK STEP WORDS LEAVES SEED
 *   test_deaths sampled SEED CASES   some cases, by chance
 *   test_deaths all [P]              each two ranks at each two steps, for p = 3, 4, 5 and each
 * planner
 */
#include "mortal.h"

#define RANKS    8 /* at most */
#define DEADLINE 20000000000ull
#define IN_TIME  10000000000ull
#define AWAY_S   3
#define DEATHS   3
#define DEAF_MS  20 /* when all is sent that does not need the late one */
#define HEARS_MS 100
#define LATE_MS  40
#define END      UINT32_MAX /* a death after the call */

struct job {
    int nranks;
    uint32_t planner;
    struct death deaths[DEATHS]; /* at 0: none */
    uint64_t seed;
    unsigned away; /* bit r: rank r comes after AWAY_S */
    int late;      /* 1 + the rank that makes its call after LATE_MS; 0: none */
    int deaf;    /* 1 + the one that hears nothing from DEAF_MS on, until the second one is dead */
    bool words;  /* each rank says a death by other words, as over TCP it may */
    bool leaves; /* who has completed the call ends */
    atomic_bool back, dead[RANKS], reached[DEATHS];
    char text[RANKS][512];
    unsigned sequence[RANKS];
    uint64_t took_ns[RANKS];
    pthread_barrier_t begin, over;
};

static _Thread_local struct {
    struct rank *rank;
    uint64_t began_ns;
    char text[64]; /* of a death; empty: the transport's */
} own;

static bool is_deaf(void)
{
    const struct job *job = own.rank ? own.rank->arg : NULL;
    if (!job || own.rank->rank + 1 != job->deaf || atomic_load(&job->dead[job->deaths[1].rank]))
        return false;
    const uint64_t ms = (ranks_now_ns() - own.began_ns) / 1000000;
    return ms >= DEAF_MS && ms < HEARS_MS;
}

static int own_poll(halay_transport_t *t, halay_event_t events[], int max)
{
    while (is_deaf())
        usleep(1000);
    const int n = halay_transport_v7_inproc.poll(t, events, max);
    for (int i = 0; i < n && own.text[0]; i++)
        if (events[i].kind == HALAY_EVENT_FAILED)
            events[i].text = own.text;
    return n;
}

static bool is_dead(const struct rank *r)
{
    return atomic_load(&((struct job *)r->arg)->dead[r->rank]);
}

static void doom_self(struct rank *r)
{
    struct job *job = r->arg;
    doom.rank = r;
    doom.dead = &job->dead[r->rank];
    for (int i = 0; i < DEATHS; i++)
        if (job->deaths[i].at && job->deaths[i].rank == r->rank) {
            doom.left = job->deaths[i].at;
            doom.linger_ms = job->deaf ? 5 : 0;
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
    bool died = false;
    for (int i = 0; i < DEATHS; i++)
        died |= job->deaths[i].at && v.rank == job->deaths[i].rank;
    CHECK(died, "rank %d: %s", r->rank, v.text);
    snprintf(job->text[r->rank], sizeof(job->text[0]), "%s", v.text);
    job->sequence[r->rank] = v.sequence;
}

static void body(struct rank *r)
{
    struct job *job = r->arg;
    doom.rank = NULL;
    own.rank = NULL;
    snprintf(own.text, sizeof(own.text), job->words ? "as rank %d has seen" : "", r->rank);
    int rc = job->seed % 2 ? halay_barrier(r->world) : HALAY_OK; /* most are connected then */
    pthread_barrier_wait(&job->begin);                           /* nobody dies in that one */
    CHECK(!rc, "too early: %s", halay_strerror(rc));
    doom_self(r);
    own.rank = r;
    own.began_ns = ranks_now_ns();
    if (job->late == r->rank + 1)
        usleep(LATE_MS * 1000);
    if (job->away >> r->rank & 1) {
        sleep(AWAY_S);
        atomic_store(&job->back, true);
    }
    const uint64_t begin = ranks_now_ns();
    rc = call_planned(job->planner, (int)(job->seed % (unsigned)job->nranks), r->world);
    if (doom.left) { /* it has sent less: it dies now */
        atomic_bool *const reached = doom.reached;
        doom.left = 1;
        strike();
        atomic_store(reached, false);
    }
    if (!is_dead(r) && (rc || !job->leaves)) {
        CHECK(!job->away || atomic_load(&job->back) || rc, "rank %d was not told", r->rank);
        CHECK(!job->away || job->away >> r->rank & 1 || !atomic_load(&job->back),
              "rank %d was told only when others were back", r->rank);
        survive(r, rc);
    }
    job->took_ns[r->rank] = ranks_now_ns() - begin;
    doom.rank = NULL;
    const bool leaves = job->leaves && !rc && !is_dead(r);
    if (leaves)
        halay_finalize(r->context);
    pthread_barrier_wait(&job->over);
    if (!leaves)
        halay_finalize(r->context);
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
    static struct job job;
    char algorithm[64];
    halay_inproc_faults_t faults = mortal_faults(given->seed);
    struct ranks_options o = {.nranks = given->nranks,
                              .transport = &mortal,
                              .faults = &faults,
                              .algorithm = algorithm,
                              .deadline_ns = DEADLINE,
                              .keep = true};
    job = *given;
    mortal = mortal_ops();
    mortal.poll = own_poll;
    algorithm_of(job.planner, algorithm);
    snprintf(described, sizeof(described),
             "in: one %d %u %d %u %d %u %d %u %d %d %llu, which is %s\n", job.nranks, job.planner,
             job.deaths[0].rank, job.deaths[0].at, job.deaths[1].rank, job.deaths[1].at,
             job.deaths[2].rank, job.deaths[2].at, job.words, job.leaves,
             (unsigned long long)job.seed, algorithm);
    pthread_barrier_init(&job.begin, NULL, (unsigned)job.nranks);
    pthread_barrier_init(&job.over, NULL, (unsigned)job.nranks);
    ranks_run(&o, body, &job);
    pthread_barrier_destroy(&job.begin);
    pthread_barrier_destroy(&job.over);
    compare(&job);
    return atomic_load(&job.reached[0]) && atomic_load(&job.reached[1]);
}

/* ---------------------------------------------------------------- which cases */

/* Rank 6 of 8 dies. Of those that are in the call rank 3 hears from nobody (agree/failing.c); nor
 * does the lowest one judge. */
static void others_away(void)
{
    struct job job = {.nranks = 8, .deaths = {{6, 1}, {0, 0}}, .seed = 1, .away = 0x87};
    while (halay_planner_get(job.planner)->collective != HALAY_ALLGATHER ||
           !strstr(halay_planner_get(job.planner)->name, "ring") || !serves(job.planner, 8))
        job.planner++;
    run_one(&job);
}

/* Rank 1 of 4 dies, and rank 0, which judges, while it tells: who is told ends the call at once. */
static void judge_dies(void)
{
    for (uint32_t at = 6; at <= 14; at++)
        run_one(&(struct job){.nranks = 4, .deaths = {{1, 2}, {0, at}}, .seed = 737043});
}

/*
 * Rank 3 of 4 dies. Ranks 0 and 1 see it, and 1 gives its word; 2 comes later, and has better
 * words. Rank 0 judges. When it has told rank 2, which ends the call, it dies; what it had sent to
 * rank 1 may be lost. So 1 judges alone.
 */
static void judge_proposes(void)
{
    struct job job = {
        .nranks = 4, .deaths = {{3, 1}, {0, END}}, .late = 3, .deaf = 2, .words = true};
    CHECK(!halay_planner_find(HALAY_REDUCE_SCATTER, "ring", &job.planner), "no ring");
    for (job.seed = 101; job.seed < 141; job.seed += 2)
        run_one(&job);
}

static void sampled(int worker, uint64_t seed, uint64_t cases)
{
    unsigned both = 0;
    if (!worker)
        others_away();
    if (worker == 1)
        judge_dies();
    if (worker == 2)
        judge_proposes();
    for (uint64_t i = (uint64_t)worker; i < cases; i += WORKERS) {
        uint64_t s = seed * 1000003 + i;
        struct job job = {.nranks = 3 + (int)(ranks_random(&s) % (RANKS - 2))};
        do
            job.planner = (uint32_t)(ranks_random(&s) % halay_planner_count());
        while (!serves(job.planner, job.nranks));
        const unsigned n = (unsigned)job.nranks;
        job.deaths[0].rank = (int)(ranks_random(&s) % n);
        job.deaths[1].rank =
            (job.deaths[0].rank + 1 + (int)(ranks_random(&s) % (n - 1))) % job.nranks;
        for (int k = 0; k < 2; k++)
            job.deaths[k].at = 1 + (uint32_t)(ranks_random(&s) % 18);
        job.seed = ranks_random(&s) % 1000000;
        job.words = ranks_random(&s) % 2;
        if (i % 4 == 3 && n > 3) {
            do
                job.deaths[2].rank = (int)(ranks_random(&s) % n);
            while (job.deaths[2].rank == job.deaths[0].rank ||
                   job.deaths[2].rank == job.deaths[1].rank);
            job.deaths[2].at = 1 + (uint32_t)(ranks_random(&s) % 18);
        }
        both += run_one(&job);
        if (i % 3 == 0) /* one dies, and who needs nothing of it ends */
            job.deaths[1].at = job.deaths[2].at = 0;
        job.leaves = true;
        run_one(&job);
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
                                       {atoi(argv[4]), (uint32_t)atoi(argv[5])},
                                       {atoi(argv[6]), (uint32_t)atoi(argv[7])}},
                            .words = atoi(argv[8]),
                            .leaves = atoi(argv[9]),
                            .seed = strtoull(argv[10], NULL, 10)};
    for (int i = 0; i < 100; i++)
        run_one(&job);
}

static void part_of(int worker, char **argv)
{
    if (!strcmp(argv[1], "all")) {
        const int p = argv[2] ? atoi(argv[2]) : 0;
        all(worker, p ? p : 3, p ? p : 5);
        return;
    }
    sampled(worker, strtoull(argv[2], NULL, 10), strtoull(argv[3], NULL, 10));
}

int main(int argc, char **argv)
{
    const bool every = argc > 1 && !strcmp(argv[1], "all");
    setenv("HALAY_DEBUG", "error", 0); /* the failures here are wanted */
    signal(SIGABRT, describe);
    if (argc == 13 && !strcmp(argv[1], "one")) {
        one(argv + 2);
        return 0;
    }
    CHECK(every || (argc == 4 && !strcmp(argv[1], "sampled")),
          "usage: test_deaths sampled SEED CASES | all [P]");
    work_in_processes(part_of, argv);
    return 0;
}
