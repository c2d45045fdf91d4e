/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Programs drawn by seed over the world and communicators made of it, of which one rank or two
 * deviate: they skip a call, make one more, two in another order, one on another communicator, with
 * another root, count, type or operation, or end early. A model of the program says which calls
 * complete, which differ, and who waits for whom. Right programs must end well. In wrong ones all
 * ranks of a call that fails read one text, in time, which blames nobody who waits for another one
 * that the model knows to have left or failed, and nobody at all if they wait in a circle.
 *
 *   test_crossed FIRST PROGRAMS [inproc|shm] [deadline in ms]
 */
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "crossed.h"
#include "ranks.h"

#define WORKERS  24 /* they wait most of the time */
#define GRACE_NS 12000000000ull /* on a busy machine */

struct said { /* by one rank of one failing call */
    int group, code, blamed; /* blamed: world rank, or -1 */
    uint32_t sequence;
    bool read;
    char text[512];
};

struct job {
    struct crossed program;
    uint64_t deadline_ns;
    pthread_barrier_t over;
    struct said said[CROSSED_RANKS][CROSSED_CALLS];
    uint64_t took_ns[CROSSED_RANKS];
};

static void hear(struct job *job, int me, int i, halay_comm_t *comm, int rc)
{
    const struct crossed_call *c = &job->program.list[me][i];
    struct said *s = &job->said[me][i];
    halay_verdict_t v = {.size = sizeof(v)};
    s->read = true;
    s->code = rc;
    if (!rc)
        return;
    CHECK(!halay_comm_verdict(comm, &v) && v.code == rc, "rank %d: code %d, verdict %d", me, rc,
          v.code);
    s->group = crossed_group(&job->program, c->comm, me);
    s->sequence = v.sequence;
    s->blamed = v.rank < 0 ? -1 : crossed_member(&job->program, c->comm, me, v.rank);
    snprintf(s->text, sizeof(s->text), "%s", v.text);
}

static int begin(const struct crossed_call *c, int root, halay_comm_t *comm, int32_t *in,
                 int32_t *out, halay_request_t **request)
{
    const halay_type_t type = c->other_type ? HALAY_UINT32 : HALAY_INT32;
    const halay_op_t op = c->other_op ? HALAY_MAX : HALAY_SUM;
    const size_t n = (size_t)c->count;
    switch (c->kind) {
    case CROSSED_ALLREDUCE:
        return halay_iallreduce(in, out, n, type, op, comm, request);
    case CROSSED_BROADCAST:
        return halay_ibroadcast(in, n, type, root, comm, request);
    case CROSSED_REDUCE:
        return halay_ireduce(in, out, n, type, op, root, comm, request);
    case CROSSED_ALLGATHER:
        return halay_iallgather(in, out, n, type, comm, request);
    default:
        return halay_ibarrier(comm, request);
    }
}

/* An allreduce that ended well has the right sum. */
static void check_sum(const struct crossed *p, int me, int i, const int32_t *out)
{
    const struct crossed_call *c = &p->list[me][i];
    int32_t sum = 0, most = 0;
    if (c->kind != CROSSED_ALLREDUCE)
        return;
    for (int r = 0; r < p->nranks; r++)
        if (crossed_has(p, c->comm, me, r)) {
            sum += r + 1;
            most = r + 1;
        }
    for (int k = 0; k < c->count; k++)
        CHECK(out[k] == (c->other_op ? most : sum), "rank %d, call %d: %d", me, i, out[k]);
}

static void play(struct rank *r, halay_comm_t *const comms[])
{
    struct job *job = r->arg;
    const struct crossed *p = &job->program;
    static _Thread_local int32_t in[CROSSED_CALLS][CROSSED_COUNT],
        out[CROSSED_CALLS][CROSSED_COUNT * CROSSED_RANKS];
    halay_request_t *request[CROSSED_CALLS];
    const int me = r->rank, n = p->n[me];
    int rc = 0, order[CROSSED_CALLS];
    crossed_order(p, me, order);
    for (int i = 0; i < n && !rc; i++) {
        const struct crossed_call *c = &p->list[me][i];
        for (int k = 0; k < CROSSED_COUNT; k++)
            in[i][k] = me + 1;
        CHECK(!begin(c, crossed_root(p, me, c), comms[c->comm], in[i], out[i], &request[i]),
              "rank %d cannot post call %d", me, i);
        if (p->posted)
            continue;
        rc = halay_request_wait(request[i]);
        hear(job, me, i, comms[c->comm], rc);
        if (!rc)
            check_sum(p, me, i, out[i]);
    }
    for (int k = 0; p->posted && k < n; k++) {
        const int i = order[k];
        rc = halay_request_wait(request[i]);
        hear(job, me, i, comms[p->list[me][i].comm], rc);
        if (!rc)
            check_sum(p, me, i, out[i]);
    }
}

static void body(struct rank *r)
{
    struct job *job = r->arg;
    const struct crossed *p = &job->program;
    halay_comm_t *comms[CROSSED_COMMS] = {r->world};
    const int me = r->rank;
    CHECK(!halay_comm_dup(r->world, &comms[1]) &&
              !halay_comm_split(r->world, me % 2, me, &comms[2]) &&
              !halay_comm_split(r->world, me < (p->nranks + 1) / 2, -me, &comms[3]),
          "no communicators");
    CHECK(!halay_barrier(r->world), "barrier");
    const uint64_t started = ranks_now_ns();
    play(r, comms);
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
                    job->said[r][i].code ? "!" : job->said[r][i].read ? "" : "-");
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
            if (s->code && s->code != HALAY_EMISMATCH && s->blamed >= 0 &&
                !(p->leaves && strstr(s->text, "it has left after a call of it")) &&
                !crossed_may_blame(p, r, i, s->blamed))
                return true;
        }
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
    ntwo += two;
    nblamed += innocent;
    if (two || innocent)
        show(job, two ? "two texts" : "an innocent one is blamed");
    CHECK(!strict || !(two || innocent), "see above");
}

static void run_one(uint64_t seed, bool shm, uint64_t deadline_ns)
{
    static struct job job;
    static const halay_inproc_faults_t faults = {.seed = 7, .delay_polls_max = 4, .reorder = 1};
    memset(&job, 0, sizeof(job));
    job.deadline_ns = deadline_ns;
    crossed_draw(&job.program, seed);
    const struct ranks_options o = {.nranks = job.program.nranks,
                                    .shm = shm,
                                    .faults = shm || seed % 2 ? NULL : &faults,
                                    .deadline_ns = deadline_ns,
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
    const bool shm = argv[3] && !strcmp(argv[3], "shm");
    const uint64_t ms = argv[3] && argv[4] ? strtoull(argv[4], NULL, 10) : 2400;
    for (uint64_t i = (uint64_t)worker; i < n; i += WORKERS)
        run_one(first + i, shm, ms * 1000000);
    if (nwrong)
        printf("worker %d: %d programs, %d wrong; %d had two texts, %d blamed an innocent rank\n",
               worker, nprograms, nwrong, ntwo, nblamed);
}

int main(int argc, char **argv)
{
    pid_t pids[WORKERS];
    int failed = 0, status;
    CHECK(argc >= 3, "usage: test_crossed FIRST PROGRAMS [inproc|shm] [deadline in ms]");
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
