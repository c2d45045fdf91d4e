/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_training_tune.c - autotuning changes the groups of programmes that run, and nothing else:
 * every value is compared at every step, while ranks deviate, sleep and leave. What it finds is
 * kept, and the next job begins with it.
 */
#include <dirent.h>
#include <errno.h>
#include <sys/stat.h>

#include "training_ranks.h"

enum {
    TENSORS = 24,
    COUNT_MAX = 6000,
    STEPS = 150
}; /* a search of 7 settings by 2 steps takes less */

struct call {
    int64_t *values;
    size_t count;
    int64_t seed;
    halay_ticket_t ticket;
};

static char folder[64], logged[80];

static void autotune_set(const char *words)
{
    char text[700];
    snprintf(text, sizeof(text), "%s,log:%s", words, logged);
    setenv("HALAY_AUTOTUNE", text, 1);
}

/* ------------------------------------------------------------------ steps */

static void submit(struct rank *rank, struct call *call, const char *name, size_t count,
                   int64_t seed)
{
    call->count = count;
    call->seed = seed;
    for (size_t i = 0; i < count; i++)
        call->values[i] = (rank->rank + 1) * (seed * 1009 + (int64_t)i);
    int rc = halay_trainer_allreduce(rank->trainer, name, call->values, call->values, count,
                                     HALAY_INT64, HALAY_SUM, 1, 1, &call->ticket);
    CHECK(!rc, "%s: %d", name, rc);
}

static void collect(struct rank *rank, struct call *call)
{
    const int64_t ranks = rank->nranks * (rank->nranks + 1) / 2;
    finish(rank, call->ticket, 0);
    for (size_t i = 0; i < call->count; i++)
        CHECK(call->values[i] == ranks * (call->seed * 1009 + (int64_t)i),
              "rank %d, seed %lld [%zu]", rank->rank, (long long)call->seed, i);
}

static struct call *calls_make(void)
{
    struct call *calls = calloc(TENSORS + 1, sizeof(*calls));
    CHECK(calls, "memory");
    for (int t = 0; t <= TENSORS; t++)
        CHECK(calls[t].values = malloc(COUNT_MAX * sizeof(int64_t)), "memory");
    return calls;
}

static void calls_free(struct call *calls)
{
    for (int t = 0; t <= TENSORS; t++)
        free(calls[t].values);
    free(calls);
}

static size_t count_of(int t)
{
    return (size_t)(t * 7919 % COUNT_MAX) / (t % 3 ? 8 : 1);
}

/* As a training does: all tensors in an order of this rank's own, then all are waited for. */
static void step(struct rank *rank, struct call *calls, const char *stem, int number)
{
    char name[64];
    int order[TENSORS];
    shuffle(order, TENSORS, &rank->seed);
    for (int i = 0; i < TENSORS; i++) {
        snprintf(name, sizeof(name), "%s.%d", stem, order[i]);
        submit(rank, &calls[order[i]], name, count_of(order[i]), number + order[i]);
    }
    for (int i = 0; i < TENSORS; i++)
        collect(rank, &calls[i]);
}

static void steps(struct rank *rank, const char *stem, int nsteps)
{
    struct call *calls = calls_make();
    for (int i = 0; i < nsteps; i++)
        step(rank, calls, stem, i);
    calls_free(calls);
}

static void searches(struct rank *rank)
{
    steps(rank, "grad", STEPS);
    const halay_trainer_counters_t now = counters(rank);
    CHECK(now.programmes == 1 && !now.voids, "%d programmes, %d voids", (int)now.programmes,
          (int)now.voids);
    CHECK(now.cycles == STEPS - 1, "%d cycles", (int)now.cycles);
}

static void two_programmes(struct rank *rank)
{
    struct call *calls = calls_make();
    for (int i = 0; i < 2 * STEPS; i++)
        step(rank, calls, i / 15 % 2 ? "eval" : "grad", i);
    calls_free(calls);
}

/* Tensors without a name of their own: their programme is a period. */
static void unnamed(struct rank *rank)
{
    char name[64];
    struct call *calls = calls_make();
    for (int i = 0, number = 0; i < 2 * STEPS; i++) {
        for (int t = 0; t < 5; t++, number++) {
            snprintf(name, sizeof(name), "allreduce.noname.%d", number);
            submit(rank, &calls[t], name, 3000 + 500 * (size_t)t, number);
        }
        for (int t = 0; t < 5; t++)
            collect(rank, &calls[t]);
    }
    calls_free(calls);
}

/*
 * Every now and then a tensor comes that is no part of the programme, on one rank first and waited
 * for there; or a rank is away for longer than the others want to wait in silence.
 */
static void deviates(struct rank *rank)
{
    char name[64];
    struct call *calls = calls_make();
    for (int i = 0; i < 2 * STEPS; i++) {
        const int odd = i % 7 == 3, first = odd && rank->rank == i % rank->nranks;
        snprintf(name, sizeof(name), "metric.%d", i);
        if (i % 67 == 50 && rank->rank == i % rank->nranks)
            usleep(300000);
        if (odd)
            submit(rank, &calls[TENSORS], name, 17, i);
        if (first)
            collect(rank, &calls[TENSORS]);
        step(rank, calls, "grad", i);
        if (odd && !first)
            collect(rank, &calls[TENSORS]);
    }
    CHECK(counters(rank).voids, "nothing was void");
    calls_free(calls);
}

/* One rank has ended in the midst of the search; the others are told at their next step. */
static void leaves(struct rank *rank)
{
    struct call *calls = calls_make();
    char text[1024];
    for (int i = 0; i < 40; i++)
        step(rank, calls, "grad", i);
    if (rank->rank == rank->nranks - 1) {
        halay_trainer_destroy(rank->trainer);
        halay_finalize(rank->context);
        rank->context = NULL;
    } else {
        for (int t = 0; t < TENSORS; t++) {
            char name[64];
            snprintf(name, sizeof(name), "grad.%d", t);
            submit(rank, &calls[t], name, count_of(t), t);
        }
        for (int t = 0; t < TENSORS; t++) {
            CHECK(halay_trainer_wait(rank->trainer, calls[t].ticket, text, sizeof(text)),
                  "a rank has left, and the others do not know");
            halay_trainer_release(rank->trainer, calls[t].ticket);
        }
        halay_trainer_destroy(rank->trainer);
    }
    rank->trainer = NULL;
    meet(rank);
    calls_free(calls);
}

/* ------------------------------------------------------------------ what is kept */

static void clear(void)
{
    char path[600];
    DIR *dir = opendir(folder);
    for (struct dirent *e; dir && (e = readdir(dir));) {
        snprintf(path, sizeof(path), "%s/%s", folder, e->d_name);
        unlink(path);
    }
    if (dir)
        closedir(dir);
}

/* Fills the path of the only kept file; returns how many there are. */
static int kept(char path[600])
{
    int n = 0;
    DIR *dir = opendir(folder);
    for (struct dirent *e; dir && (e = readdir(dir));)
        if (!strncmp(e->d_name, "groups-", 7)) {
            CHECK(strlen(e->d_name) == 7 + 16 + 4, "a temporary file is left: %s", e->d_name);
            snprintf(path, 600, "%s/%s", folder, e->d_name);
            n++;
        }
    if (dir)
        closedir(dir);
    return n;
}

static void read_text(const char *path, char text[4096])
{
    FILE *file = fopen(path, "r");
    CHECK(file, "%s: %s", path, strerror(errno));
    text[fread(text, 1, 4095, file)] = 0;
    fclose(file);
}

static void write_text(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    CHECK(file && fputs(text, file) >= 0, "%s", path);
    fclose(file);
}

/* Lines of the log, which is then removed: one of the columns' names, and one a block. */
static int blocks_logged(void)
{
    char line[512];
    int n = 0, columns = 0;
    double group, score;
    FILE *file = fopen(logged, "r");
    while (file && fgets(line, sizeof(line), file)) {
        if (!n++)
            CHECK(!strcmp(strrchr(line, ','), ",score\n"), "%s", line);
        else
            columns += sscanf(line, "0,0,0,1,0,%lf,%lf", &group, &score) == 2 && score > 0;
    }
    if (file)
        fclose(file);
    CHECK(!n || columns == n - 1, "%d lines, %d understood", n, columns);
    unlink(logged);
    return columns;
}

static void run(const char *name, void (*body)(struct rank *rank), int nranks)
{
    const uint64_t start_ns = clock_ns(CLOCK_MONOTONIC);
    printf("%s, %d ranks:", name, nranks);
    fflush(stdout);
    run_ranks(nranks, "120", body);
    printf(" %.2f s\n", (double)(clock_ns(CLOCK_MONOTONIC) - start_ns) * 1e-9);
}

static void what_is_kept(int nranks)
{
    char path[600], text[4096], again[4096];
    run("searches", searches, nranks);
    CHECK(kept(path) == 1, "%d files", kept(path));
    read_text(path, text);
    CHECK(strstr(text, "\ngroup_bytes "), "%s", text);
    const int blocks = blocks_logged();
    CHECK(blocks >= 3, "%d blocks", blocks);

    run("begins with it", searches, nranks);
    CHECK(!blocks_logged(), "the next job searches again");
    read_text(path, again);
    CHECK(!strcmp(text, again), "%s", again);

    /* Of each setting that there is: the next job begins with it. */
    for (int i = 0; i < 2; i++) {
        snprintf(text, sizeof(text), "# x\nhalay %s\ngroup_bytes %d\ngain 0.5\n", halay_version(),
                 i ? 0 : 16 << 20);
        write_text(path, text);
        run(i ? "nothing is fused" : "all in one group", searches, nranks);
        CHECK(!blocks_logged(), "the next job searches again");
        read_text(path, again);
        CHECK(!strcmp(text, again), "%s", again);
    }
    static const char *const stale[] = {"# x\nhalay 0.0.1\ngroup_bytes 0\ngain 0.5\n",
                                        "# x\nhalay 0.1.0\ngroup_bytes 12345\n", "rubbish", ""};
    for (size_t i = 0; i < sizeof(stale) / sizeof(stale[0]); i++) {
        write_text(path, stale[i]);
        run("stale", searches, nranks);
        CHECK(blocks_logged() >= 3, "a stale file is used: %s", stale[i]);
        read_text(path, again);
        CHECK(strstr(again, halay_version()), "it is not made anew: %s", again);
    }
    autotune_set("again,steps:2,warmup:2");
    run("again", searches, nranks);
    CHECK(blocks_logged() >= 3, "it does not search again");
    autotune_set("steps:2,warmup:2");
}

static void where_nothing_is_kept(void)
{
    char path[600];
    setenv("HALAY_CALIBRATION", "/proc/nowhere/halay", 1);
    run("a folder that cannot be", searches, 2);
    CHECK(blocks_logged() >= 3, "no search");
    setenv("HALAY_CALIBRATION", "off", 1);
    run("off", searches, 2);
    CHECK(blocks_logged() >= 3, "no search");
    unsetenv("HALAY_CALIBRATION");
    unsetenv("XDG_CACHE_HOME");
    unsetenv("HOME");
    run("no home", searches, 2);
    CHECK(blocks_logged() >= 3, "no search");
    CHECK(!kept(path), "something is kept all the same");
    setenv("HOME", folder, 1);
    run("in a home", searches, 2);
    CHECK(blocks_logged() >= 3, "no search");
    snprintf(path, sizeof(path),
             "rm %s/.cache/halay/groups-*.txt && rmdir %s/.cache/halay %s/.cache", folder, folder,
             folder);
    CHECK(!system(path), "nothing else in the home");
    setenv("HALAY_CALIBRATION", folder, 1);
}

/* Nobody reads it: a line less in the log, and no step waits. */
static void log_is_a_fifo(void)
{
    char path[600];
    CHECK(!mkfifo(logged, 0600), "%s: %s", logged, strerror(errno));
    run("the log is a FIFO", searches, 2);
    CHECK(kept(path) == 1, "%d files", kept(path));
    unlink(logged);
    clear();
}

int main(void)
{
    char path[600];
    snprintf(folder, sizeof(folder), "/tmp/halay-tune-%d", (int)getpid());
    snprintf(logged, sizeof(logged), "%s.csv", folder);
    CHECK(!mkdir(folder, 0700), "%s", folder);
    setenv("HALAY_CALIBRATION", folder, 1);
    autotune_set("steps:2,warmup:2");
    unsetenv("HALAY_FUSION");

    what_is_kept(2);
    clear();
    for (int nranks = 1; nranks <= 4; nranks += 1 + (nranks > 1)) {
        hub_faults = &ranks_chaos;
        run("searches", searches, nranks);
        CHECK(kept(path) == 1 && blocks_logged() >= 3, "%d files", kept(path));
        clear();
        run("two programmes", two_programmes, nranks);
        CHECK(kept(path) == 2 && blocks_logged() >= 6, "%d files", kept(path));
        clear();
        run("unnamed", unnamed, nranks);
        CHECK(kept(path) == 1 && blocks_logged() >= 2, "%d files", kept(path));
        clear();
        hub_faults = NULL;
        setenv("HALAY_STALL", "0.1", 1);
        run("deviates", deviates, nranks);
        unsetenv("HALAY_STALL");
        blocks_logged();
        clear();
        if (nranks > 1)
            run("leaves", leaves, nranks);
        blocks_logged();
        clear();
    }
    log_is_a_fifo();
    where_nothing_is_kept();
    autotune_set("1,group:32768");
    run("pinned", searches, 2);
    CHECK(!blocks_logged() && !kept(path), "a group's size that is set is tuned");
    setenv("HALAY_AUTOTUNE", "0", 1);
    run("without", searches, 2);
    CHECK(!blocks_logged() && !kept(path), "it tunes unasked");
    return rmdir(folder);
}
