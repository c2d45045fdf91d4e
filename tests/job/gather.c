/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gather.c - jobs that start by the program's own allgather (halay_boot_rank_t), here over shared
 * memory of forked processes: right ones, and each way to be wrong. Each process puts its record
 * at its place, whatever rank it was told to be.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <halay/boot.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

enum { MOST = 5, ROUNDS = 3, RECORD = 512 };
enum fault { RIGHT, BLOCKS, AT_ONCE, IN_TEST, NEVER, DIES, NOTHING, NO_TEST, OLD, DEAF };

struct job {
    const char *name;
    int n, rounds;
    int told_n[MOST], told_rank[MOST]; /* 0: n; its place + 1 */
    enum fault fault[MOST];
    const char *seconds, *variables[2][2]; /* HALAY_START_DEADLINE; others of all processes */
    int code;                              /* of all, but who is faulty; 0: it has to go well */
    const char *text, *own;                /* in the error of all; of who is faulty */
    bool same;                             /* the text is the same on all */
};

struct shared {
    atomic_int came[ROUNDS];
    char records[ROUNDS][MOST][RECORD];
    struct {
        int code;
        char text[768];
    } result[MOST];
};

struct process {
    const struct job *job;
    struct shared *shared;
    int place, round, n;
    void *out;
};

/* ---------------------------------------------------------------- the program's functions */

static int test(void *request)
{
    const struct process *p = request;
    if (p->job->fault[p->place] == IN_TEST)
        return -3;
    if (p->shared->came[p->round] < p->n)
        return 0;
    if (p->job->fault[p->place] != NOTHING)
        memcpy(p->out, p->shared->records[p->round], (size_t)p->n * RECORD);
    return 1;
}

static int end(void *request)
{
    struct process *p = request;
    p->out = NULL;
    return 0;
}

static int allgather(void *context, const void *in, void *out, size_t bytes, void **request)
{
    struct process *p = context;
    const enum fault fault = p->job->fault[p->place];
    MUST(bytes == RECORD && !*request);
    if (fault == DIES)
        _exit(0);
    if (fault == AT_ONCE)
        return 7;
    p->out = out;
    if (fault != NEVER) {
        memcpy(p->shared->records[p->round][p->place], in, bytes);
        atomic_fetch_add(&p->shared->came[p->round], 1);
    }
    if (fault != BLOCKS) {
        *request = p;
        return 0;
    }
    while (!test(p))
        usleep(1000);
    return 0;
}

/* ---------------------------------------------------------------- a process */

static int descriptors(void)
{
    DIR *all = opendir("/proc/self/fd");
    int n = 0;
    while (readdir(all))
        n++;
    closedir(all);
    return n;
}

static void use(halay_context_t *context, int rank, int n)
{
    static const size_t counts[] = {1, 1000, 100003};
    static int64_t in[100003], out[100003];
    halay_topology_t where = {.size = sizeof where};
    halay_comm_t *world;
    MUST(!halay_comm_world(context, &world) && !halay_context_topology(context, &where));
    CHECK(where.rank == rank && where.nranks == n, "it is %d of %d", where.rank, where.nranks);
    for (int c = 0; c < 3; c++) {
        for (size_t i = 0; i < counts[c]; i++)
            in[i] = (int64_t)i * (rank + 1) + c;
        MUST(!halay_allreduce(in, out, counts[c], HALAY_INT64, HALAY_SUM, world));
        for (size_t i = 0; i < counts[c]; i++)
            MUST(out[i] == (int64_t)i * n * (n + 1) / 2 + (int64_t)n * c);
    }
}

static void process(const struct job *job, struct shared *shared, int place)
{
    int open = 0;
    struct process p = {.job = job, .shared = shared, .place = place};
    p.n = job->told_n[place] ? job->told_n[place] : job->n;
    setenv("HALAY_START_DEADLINE", job->seconds ? job->seconds : "60", 1);
    for (int v = 0; v < 2 && job->variables[v][0]; v++)
        setenv(job->variables[v][0], job->variables[v][1], 1);
    if (job->fault[place] == DEAF)
        setenv("HALAY_INTERFACE", "none-such", 1);
    for (p.round = 0; p.round < job->rounds; p.round++) {
        const int rank = job->told_rank[place] ? job->told_rank[place] - 1 : place;
        halay_boot_rank_t given = {
            .size = sizeof given, .rank = rank, .nranks = p.n, .context = &p};
        halay_context_t *context, *other;
        halay_config_t config = HALAY_CONFIG_INIT;
        given.allgather = allgather;
        given.test = job->fault[place] == NO_TEST ? NULL : test;
        given.free = end;
        if (job->fault[place] == OLD)
            given.size = offsetof(halay_boot_rank_t, allgather);
        config.boot_arg = &given;
        config.error = shared->result[place].text;
        config.error_bytes = sizeof shared->result[place].text;
        const int code = shared->result[place].code = halay_init(&config, &context);
        if (code)
            _exit(job->fault[place] == NO_TEST ? 0 : (exit(0), 1)); /* its records are left */
        use(context, rank, p.n);
        MUST(halay_init(&config, &other) == HALAY_ESTATE);
        MUST(!halay_finalize(context));
        CHECK(!p.round || descriptors() == open, "%d descriptors, and %d", descriptors(), open);
        open = descriptors();
    }
    exit(0);
}

/* ---------------------------------------------------------------- the jobs */

#define MISSING "did not come to the rendezvous of rank 0"

static const struct job jobs[] = {
    {"one rank", .n = 1, .rounds = 3},
    {"two ranks", .n = 2, .rounds = 3, .fault = {BLOCKS}},
    {"three ranks", .n = 3, .rounds = 3},
    {"five ranks", .n = 5, .rounds = 3, .fault = {RIGHT, BLOCKS, BLOCKS}},
    {"another order", .n = 3, .rounds = 1, .told_rank = {3, 1, 2}, .code = HALAY_EBOOT,
     .text = "the process at place 0 of the program's allgather", .same = true},
    {"a rank out of range", .n = 3, .rounds = 1, .told_rank = {0, 0, 8}, .code = HALAY_EBOOT,
     .text = "was told that it is rank 7: give", .same = true},
    {"a rank twice", .n = 3, .rounds = 1, .told_rank = {0, 2, 2}, .code = HALAY_EBOOT,
     .text = "the process at place 2 of the program's allgather", .same = true},
    {"no number of ranks", .n = 1, .rounds = 1, .told_n = {-1}, .code = HALAY_EINVAL,
     .text = "a rank below the number of ranks"},
    {"other numbers of ranks", .n = 3, .rounds = 1, .told_n = {2}, .code = HALAY_EBOOT,
     .text = "that there are 2: give halay_init the same number", .same = true},
    {"fails at once", .n = 3, .rounds = 1, .fault = {RIGHT, AT_ONCE}, .seconds = "4",
     .code = HALAY_EBOOT, .text = "has not ended on rank", .own = "has failed on rank 1"},
    {"fails later", .n = 3, .rounds = 1, .fault = {RIGHT, RIGHT, IN_TEST}, .seconds = "4",
     .code = HALAY_EBOOT, .text = MISSING, .own = "with its code -3"},
    {"fails on rank 0", .n = 3, .rounds = 1, .fault = {IN_TEST}, .seconds = "4",
     .code = HALAY_EBOOT, .text = "found no rendezvous of rank 0", .own = "has failed on rank 0"},
    {"never comes", .n = 3, .rounds = 1, .fault = {RIGHT, RIGHT, NEVER}, .seconds = "2",
     .code = HALAY_EBOOT, .text = "the program's allgather of 3 ranks has not ended on rank"},
    {"dies in it", .n = 3, .rounds = 1, .fault = {RIGHT, DIES}, .seconds = "2", .code = HALAY_EBOOT,
     .text = "the program's allgather of 3 ranks has not ended on rank", .own = ""},
    {"gives nothing", .n = 2, .rounds = 1, .fault = {NOTHING, NOTHING}, .code = HALAY_EBOOT,
     .text = "has put no record of halay_init at place 0 of 2", .same = true},
    {"no test", .n = 1, .rounds = 1, .fault = {NO_TEST}, .code = HALAY_EINVAL,
     .text = "no function test for it"},
    {"an older program's struct", .n = 1, .rounds = 1, .fault = {OLD}, .code = HALAY_EINVAL,
     .text = "rank 0 of 1 at ''"},
    {"rank 0 cannot listen", .n = 3, .rounds = 1, .fault = {DEAF}, .code = HALAY_EBOOT,
     .text = "none-such", .same = true},
    {"fewer than the launcher's", .n = 2, .rounds = 1,
     .variables = {{"HALAY_JOB", "launcher=halayrun;ranks=4"}}, .code = HALAY_EBOOT,
     .text = "allgather knows a job of 2 ranks, but HALAY_JOB says that there are 4", .same = true},
    {"MPI that is alone", .n = 1, .rounds = 1, .variables = {{"OMPI_COMM_WORLD_SIZE", "2"}},
     .code = HALAY_EBOOT, .text = "a job of 1 rank, but OMPI_COMM_WORLD_SIZE says"},
    {"meant to be fewer", .n = 2, .rounds = 1,
     .variables = {{"HALAY_JOB", "none"}, {"OMPI_COMM_WORLD_SIZE", "4"}}},
    {"as many as the launcher's", .n = 2, .rounds = 1,
     .variables = {{"OMPI_COMM_WORLD_SIZE", "2"}}},
};

enum { JOBS = sizeof jobs / sizeof jobs[0] };

static void check(const struct job *job, const struct shared *shared)
{
    const char *first = NULL;
    for (int place = 0; place < job->n; place++) {
        const char *text = shared->result[place].text, *wanted = job->text ? job->text : "";
        const bool faulty = job->own && job->fault[place];
        if (job->fault[place] == DIES)
            continue;
        CHECK(shared->result[place].code == job->code, "%s: process %d: %d, %s", job->name, place,
              shared->result[place].code, text);
        wanted = faulty ? job->own : wanted;
        CHECK(!job->code || strstr(text, wanted), "%s: process %d: '%s' without '%s'", job->name,
              place, text, wanted);
        first = first ? first : text;
        CHECK(!job->same || !strcmp(first, text), "%s: '%s' and '%s'", job->name, first, text);
    }
}

/* Side by side, for some wait for their deadlines. */
int main(void)
{
    struct shared *shared = mmap(NULL, JOBS * sizeof *shared, PROT_READ | PROT_WRITE,
                                 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int status, wrong = 0;
    MUST(shared != MAP_FAILED);
    unsetenv("HALAY_JOB");
    for (int j = 0; j < JOBS; j++)
        for (int place = 0; place < jobs[j].n; place++) {
            const pid_t pid = fork();
            MUST(pid >= 0);
            if (pid == 0)
                process(&jobs[j], &shared[j], place);
        }
    while (wait(&status) > 0)
        wrong += status != 0;
    CHECK(!wrong, "%d processes", wrong);
    for (int j = 0; j < JOBS; j++)
        check(&jobs[j], &shared[j]);
    return 0;
}
