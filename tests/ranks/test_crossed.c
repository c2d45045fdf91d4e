/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Programs drawn by seed over the world and communicators made of it, of which one rank or two
 * deviate: they skip a call, make one more, two in another order, one on another communicator, with
 * another root, count, type or operation, or end early. A model of the program says which calls
 * complete, which differ, and who waits for whom. Right programs must end well. In wrong ones all
 * ranks of a call that fails read one text, in time, which blames nobody who waits for another one
 * that is guilty, and nobody at all if they wait in a circle.
 *
 *   test_crossed FIRST PROGRAMS [both|inproc|shm] [deadline in ms]
 */
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ranks.h"

#include "crossed_play.h"

#define WORKERS  24             /* they wait most of the time */
#define MEET_NS  60000000000ull /* to make the communicators */
#define GRACE_NS 12000000000ull /* on a busy machine */

struct job {
    struct crossed program;
    uint64_t deadline_ns;
    pthread_barrier_t over;
    struct said said[CROSSED_RANKS][CROSSED_CALLS];
    uint64_t took_ns[CROSSED_RANKS];
};

static void body(struct rank *r)
{
    struct job *job = r->arg;
    const struct crossed *p = &job->program;
    const int me = r->rank;
    const uint64_t started = ranks_now_ns();
    crossed_play(p, me, r->world, job->deadline_ns, job->said[me]);
    job->took_ns[me] = ranks_now_ns() - started;
    if (!p->leaves)
        pthread_barrier_wait(&job->over);
    halay_finalize(r->context);
}

/* ---------------------------------------------------------------- what was said */

static char described[200]; /* the program that this process runs */

static void describe(int signal_number)
{
    const ssize_t n = write(STDERR_FILENO, described, strlen(described));
    (void)n;
    signal(signal_number, SIG_DFL);
}

static int nwrong, ntwo, nblamed, nprograms;
static bool strict = true;

static void show(const struct job *job, const char *what)
{
    const struct crossed *p = &job->program;
    fprintf(stderr, "%s: %s", what, described);
    for (int r = 0; r < p->nranks; r++) {
        fprintf(stderr, " rank %d (%s, %.2f s):", r, crossed_end_name(p->end[r]),
                (double)job->took_ns[r] * 1e-9);
        for (int i = 0; i < p->n[r]; i++)
            fprintf(stderr, " %d.%s%s", p->list[r][i].comm, crossed_text(&p->list[r][i]),
                    job->said[r][i].code   ? "!"
                    : job->said[r][i].read ? ""
                                           : "-");
        fputc('\n', stderr);
    }
    for (int r = 0; r < p->nranks; r++)
        for (int i = 0; i < p->n[r]; i++)
            if (job->said[r][i].code)
                fprintf(stderr, "  %d.%d call %u blames %d: %s\n", r, p->list[r][i].comm,
                        job->said[r][i].sequence, job->said[r][i].blamed, job->said[r][i].text);
}

static bool has_two_texts(const struct job *job)
{
    const struct crossed *p = &job->program;
    const struct said *first = NULL;
    for (int group = 0; group < CROSSED_COMMS * CROSSED_RANKS; group++) {
        for (uint32_t sequence = 0; sequence < CROSSED_CALLS; sequence++, first = NULL)
            for (int r = 0; r < p->nranks; r++)
                for (int i = 0; i < p->n[r]; i++) {
                    const struct said *s = &job->said[r][i];
                    if (!s->code || s->group != group || s->sequence != sequence)
                        continue;
                    if (first && strcmp(first->text, s->text))
                        return true;
                    first = s;
                }
    }
    return false;
}

static bool blames_innocent(const struct job *job)
{
    const struct crossed *p = &job->program;
    for (int r = 0; r < p->nranks; r++)
        for (int i = 0; i < p->n[r]; i++) {
            const struct said *s = &job->said[r][i];
            if (s->code && s->code != HALAY_EMISMATCH &&
                !crossed_is_just(p, r, i, s->blamed, s->text))
                return true;
        }
    return false;
}

/* Each that the text has in a circle waits for the next one, and the last for the first, if all are
 * shown. */
static bool is_circle(const struct crossed *p, const char *text)
{
    int first = -1, last = -1;
    char *end;
    const char *at = strstr(text, "waited in a circle");
    if (!at || p->posted)
        return true;
    while ((at = strstr(at, "rank "))) {
        const int rank = (int)strtol(at + 5, &end, 10);
        at++;
        if (strncmp(end, " is in", 6) != 0)
            continue;
        if (last >= 0 && !crossed_waits_for(p, last, rank))
            return false;
        first = first < 0 ? rank : first;
        last = rank;
    }
    return first != last && (strstr(text, " more. All") || crossed_waits_for(p, last, first));
}

static bool has_false_circle(const struct job *job)
{
    for (int r = 0; r < job->program.nranks; r++)
        for (int i = 0; i < job->program.n[r]; i++)
            if (job->said[r][i].blamed < 0 && !is_circle(&job->program, job->said[r][i].text))
                return true;
    return false;
}

static void judge(const struct job *job)
{
    const struct crossed *p = &job->program;
    bool failed = false, late = false;
    for (int r = 0; r < p->nranks; r++) {
        for (int i = 0; i < p->n[r]; i++)
            failed = failed || job->said[r][i].code;
        late = late || job->took_ns[r] > 2 * job->deadline_ns + GRACE_NS;
    }
    nprograms++;
    nwrong += crossed_is_wrong(p);
    if (failed != crossed_is_wrong(p) || late) {
        show(job, late ? "late" : failed ? "fails" : "does not fail");
        CHECK(0, "see above");
    }
    const bool two = has_two_texts(job), innocent = blames_innocent(job);
    const bool bent = has_false_circle(job);
    ntwo += two;
    nblamed += innocent;
    if (two || innocent || bent)
        show(job, two ? "two texts" : innocent ? "an innocent one is blamed" : "no such circle");
    CHECK(!strict || !(two || innocent || bent), "see above");
}

static void run_one(uint64_t seed, bool shm, uint64_t deadline_ns)
{
    static struct job job;
    static const halay_inproc_faults_t faults = {.seed = 7, .delay_polls_max = 4, .reorder = 1};
    memset(&job, 0, sizeof(job));
    job.deadline_ns = deadline_ns;
    crossed_draw(&job.program, seed, 0);
    const struct ranks_options o = {.nranks = job.program.nranks,
                                    .shm = shm,
                                    .faults = shm || seed % 2 ? NULL : &faults,
                                    .deadline_ns = MEET_NS,
                                    .keep = true};
    snprintf(described, sizeof(described), "seed %llu, %d ranks, %s%s%s\n",
             (unsigned long long)seed, job.program.nranks, job.program.what,
             job.program.posted ? ", posted" : "", job.program.leaves ? ", leaves" : "");
    pthread_barrier_init(&job.over, NULL, (unsigned)o.nranks);
    ranks_run(&o, body, &job);
    pthread_barrier_destroy(&job.over);
    judge(&job);
}

static void part_of(int worker, char **argv)
{
    const uint64_t first = strtoull(argv[1], NULL, 10), n = strtoull(argv[2], NULL, 10);
    const uint64_t ms = argv[3] && argv[4] ? strtoull(argv[4], NULL, 10) : 3300;
    for (uint64_t i = (uint64_t)worker; i < n; i += WORKERS)
        run_one(first + i, argv[3] && strcmp(argv[3], "both") ? !strcmp(argv[3], "shm") : i & 1,
                ms * 1000000);
    if (nwrong)
        printf("worker %d: %d programs, %d wrong; %d had two texts, %d blamed an innocent rank\n",
               worker, nprograms, nwrong, ntwo, nblamed);
}

int main(int argc, char **argv)
{
    pid_t pids[WORKERS];
    int failed = 0, status;
    CHECK(argc >= 3, "usage: test_crossed FIRST PROGRAMS [both|inproc|shm] [deadline in ms]");
    setenv("HALAY_DEBUG", "error", 0); /* the failures here are wanted */
    strict = !getenv("CROSSED_COUNT");
    signal(SIGABRT, describe);
    for (int w = 0; w < WORKERS; w++) {
        pids[w] = fork();
        CHECK(pids[w] >= 0, "fork");
        if (pids[w])
            continue;
        part_of(w, argv);
        exit(0);
    }
    for (int w = 0; w < WORKERS; w++)
        failed += waitpid(pids[w], &status, 0) != pids[w] || status != 0;
    CHECK(!failed, "%d of %d workers failed", failed, WORKERS);
    return 0;
}
