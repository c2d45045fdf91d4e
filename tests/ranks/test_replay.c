/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine does what the plans say (decision 22). Its log is replayed against the plans of all
 * ranks, and mistakes are seeded in it to see that the replay, or the exact results, find them.
 *
 *   test_replay clean [ROUNDS]   random executions: the replay finds nothing
 *   test_replay seeded           each kind of mistake: a table of what found it
 *
 * The core is compiled for this program alone, with its assertions, which may find a mistake first.
 */
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "device/device_builtin.h"
#include "ranks.h"
#include "reference.h"
#include "replay.h"

static const halay_inproc_faults_t none, slow = {.seed = 1, .delay_polls_max = 4, .reorder = 1};

static const halay_inproc_faults_t segments = {.seed = 6,
                                               .delay_polls_max = 2,
                                               .reorder = 1,
                                               .again_percent = 20,
                                               .hide_capabilities = HALAY_CAN_PUT | HALAY_CAN_LAND,
                                               .cache = 1,
                                               .eager_bytes = 256};
static const halay_inproc_faults_t lent = {.seed = 11,
                                           .delay_polls_max = 2,
                                           .reorder = 1,
                                           .again_percent = 20,
                                           .hide_capabilities = HALAY_CAN_PUT | HALAY_CAN_LAND,
                                           .cache = 1,
                                           .eager_bytes = 256,
                                           .lend_bytes = 32};

static const struct setup {
    const char *name;
    bool shm, late_device;
    const halay_inproc_faults_t *faults;
} setups[] = {
    {"inproc", false, false, &slow},       {"staged", false, true, &ranks_staged},
    {"put", false, true, &ranks_put},      {"tagged", false, false, &ranks_tagged},
    {"segments", false, false, &segments}, {"segments-late", false, true, &segments},
    {"lent", false, false, &lent},         {"lent-late", false, true, &lent},
    {"shm", true, false, &none},
};

static const char *const algorithms[] = {
    "allreduce=circulant,allgather=circulant,reduce_scatter=circulant",
    "allreduce=ring,allgather=ring,reduce_scatter=ring", "allreduce=recursive_doubling", NULL};

#define TRIALS     10 /* of each kind of mistake that reached it */
#define TRIALS_MAX 60
#define SETUPS     (sizeof(setups) / sizeof(setups[0]))
#define ALGORITHMS (sizeof(algorithms) / sizeof(algorithms[0]))

static const char *const kinds[HLY_SEED_COUNT] = {
    [HLY_SEED_SKIP_DEPENDENCY] = "a step does not wait for a predecessor",
    [HLY_SEED_FORGET_SUCCESSOR] = "a successor is not released",
    [HLY_SEED_DONE_TWICE] = "a step is done twice",
    [HLY_SEED_WORK_TWICE] = "a reduction or copy is made twice",
    [HLY_SEED_SWAP_SOURCES] = "a reduction's sources change places",
    [HLY_SEED_SHORT_WORK] = "a reduction or copy lacks its last element",
    [HLY_SEED_WRONG_OFFSET] = "an operand lies an element too far on",
    [HLY_SEED_WRONG_SLOT] = "an operand lies in slot 0, not its own",
    [HLY_SEED_LOSE_TAIL] = "an operand that wraps lacks its second part",
    [HLY_SEED_STALE_LAYOUT] = "the operands of another count are used",
    [HLY_SEED_WRONG_INPUT] = "the input is read from the output",
    [HLY_SEED_NO_DIVISION] = "an average is not divided",
    [HLY_SEED_FINISH_EARLY] = "the call ends before its steps",
    [HLY_SEED_WRONG_EDGE] = "a message is sent as another edge's",
    [HLY_SEED_RECV_EARLY] = "a receive is done after its first piece",
    [HLY_SEED_SEND_EARLY] = "a send is done while the transport reads it",
    [HLY_SEED_DROP_LAST_PIECE] = "a message lacks its last piece",
    [HLY_SEED_DROP_LANDED] = "a piece is counted and not written",
};

static atomic_int wrong_data, errors;

/* ---------------------------------------------------------------- calls with known results */

struct buffers {
    double *in, *out;
};

/* Memory that the transport may lend, but not all ranks' alike. */
static double *take(struct rank *r, size_t count, bool in)
{
    void *memory = NULL;
    if (r->rank % 3 == (in ? 2 : 1))
        memory = calloc(count, sizeof(double));
    else if (halay_mem_alloc(r->context, count * sizeof(double), &memory))
        memory = NULL;
    CHECK(memory, "no memory");
    return memory;
}

static void give(struct rank *r, double *memory, bool in)
{
    if (r->rank % 3 == (in ? 2 : 1))
        free(memory);
    else
        halay_mem_free(r->context, memory); /* goes with the context where a call has failed */
}

/* Compares `count` elements from element `first` of the reduction on. */
static void compare(struct rank *r, const double *out, size_t first, size_t count, halay_op_t op,
                    uint64_t salt)
{
    for (size_t i = 0; i < count; i++) {
        double want;
        reference_result(HALAY_FLOAT64, op, r->nranks, first + i, salt, &want);
        if (memcmp(&want, &out[i], sizeof(want)))
            wrong_data++;
    }
}

static void fill(double *to, size_t count, halay_op_t op, int rank, uint64_t salt)
{
    for (size_t i = 0; i < count; i++)
        reference_input(HALAY_FLOAT64, op, rank, i, salt, &to[i]);
}

static int reduces(struct rank *r, struct buffers b, size_t count, halay_op_t op, uint64_t salt)
{
    size_t n = (size_t)r->nranks;
    bool in_place = salt & 1;
    const void *in = in_place ? HALAY_IN_PLACE : b.in;
    fill(in_place ? b.out : b.in, count, op, r->rank, salt);
    int rc = halay_allreduce(in, b.out, count, HALAY_FLOAT64, op, r->world);
    if (rc)
        return rc;
    compare(r, b.out, 0, count, op, salt);
    fill(in_place ? b.out : b.in, count * n, HALAY_SUM, r->rank, salt);
    rc = halay_reduce_scatter(in, b.out, count, HALAY_FLOAT64, HALAY_SUM, r->world);
    if (!rc)
        compare(r, b.out, count * (size_t)r->rank, count, HALAY_SUM, salt);
    return rc;
}

static int moves(struct rank *r, struct buffers b, size_t count, uint64_t salt)
{
    double want;
    bool in_place = salt & 1;
    int root = (int)(salt % (uint64_t)r->nranks);
    fill(in_place ? b.out + count * (size_t)r->rank : b.in, count, HALAY_SUM, r->rank, salt);
    int rc =
        halay_allgather(in_place ? HALAY_IN_PLACE : b.in, b.out, count, HALAY_FLOAT64, r->world);
    for (int k = 0; !rc && k < r->nranks; k++)
        for (size_t i = 0; i < count; i++) {
            reference_input(HALAY_FLOAT64, HALAY_SUM, k, i, salt, &want);
            wrong_data += b.out[(size_t)k * count + i] != want;
        }
    fill(b.out, count, HALAY_SUM, r->rank, salt);
    if (!rc)
        rc = halay_broadcast(b.out, count, HALAY_FLOAT64, root, r->world);
    for (size_t i = 0; !rc && i < count; i++) {
        reference_input(HALAY_FLOAT64, HALAY_SUM, root, i, salt, &want);
        wrong_data += b.out[i] != want;
    }
    return rc ? rc : halay_barrier(r->world);
}

static int rooted(struct rank *r, struct buffers b, size_t count, uint64_t salt)
{
    size_t n = (size_t)r->nranks;
    int root = (int)(salt % n);
    double want;
    fill(b.in, count * n, HALAY_SUM, r->rank, salt);
    int rc = halay_reduce(b.in, b.out, count, HALAY_FLOAT64, HALAY_AVERAGE, root, r->world);
    if (!rc && r->rank == root)
        compare(r, b.out, 0, count, HALAY_AVERAGE, salt);
    rc = rc ? rc : halay_gather(b.in, b.out, count, HALAY_FLOAT64, root, r->world);
    for (size_t i = 0; !rc && r->rank == root && i < count * n; i++) {
        reference_input(HALAY_FLOAT64, HALAY_SUM, (int)(i / count), i % count, salt, &want);
        wrong_data += b.out[i] != want;
    }
    rc = rc ? rc : halay_scatter(b.in, b.out, count, HALAY_FLOAT64, root, r->world);
    for (size_t i = 0; !rc && i < count; i++) {
        reference_input(HALAY_FLOAT64, HALAY_SUM, root, count * (size_t)r->rank + i, salt, &want);
        wrong_data += b.out[i] != want;
    }
    return rc;
}

static int personal(struct rank *r, struct buffers b, size_t count, uint64_t salt)
{
    size_t n = (size_t)r->nranks;
    double want;
    fill(b.in, count * n, HALAY_SUM, r->rank, salt);
    int rc = halay_alltoall(b.in, b.out, count, HALAY_FLOAT64, r->world);
    for (size_t i = 0; !rc && i < count * n; i++) {
        reference_input(HALAY_FLOAT64, HALAY_SUM, (int)(i / count),
                        count * (size_t)r->rank + i % count, salt, &want);
        wrong_data += b.out[i] != want;
    }
    for (int ex = 0; !rc && ex < 2; ex++) {
        rc = (ex ? halay_exscan : halay_scan)(b.in, b.out, count, HALAY_FLOAT64, HALAY_SUM,
                                              r->world);
        for (size_t i = 0; !rc && r->rank >= ex && i < count; i++) {
            reference_result(HALAY_FLOAT64, HALAY_SUM, r->rank + 1 - ex, i, salt, &want);
            wrong_data += b.out[i] != want;
        }
    }
    return rc;
}

/* Three at once, waited for in another order. */
static int at_once(struct rank *r, struct buffers b, size_t count, uint64_t salt)
{
    halay_request_t *request[3];
    int rc = HALAY_OK, first = HALAY_OK;
    for (int i = 0; i < 3; i++) {
        fill(b.in + count * (size_t)i, count, HALAY_SUM, r->rank, salt + (uint64_t)i);
        rc = halay_iallreduce(b.in + count * (size_t)i, b.out + count * (size_t)i, count,
                              HALAY_FLOAT64, HALAY_SUM, r->world, &request[i]);
        CHECK(!rc, "%s", halay_strerror(rc));
    }
    for (int i = 2; i >= 0; i--) {
        rc = halay_request_wait(request[i]);
        first = first ? first : rc;
    }
    for (int i = 0; !first && i < 3; i++)
        compare(r, b.out + count * (size_t)i, 0, count, HALAY_SUM, salt + (uint64_t)i);
    return first;
}

static void calls(struct rank *r)
{
    static const size_t counts[] = {1, 40, 7, 0, 331, 40};
    const uint64_t *salt = r->arg;
    size_t room = 400 * (size_t)(r->nranks + 3);
    struct buffers b = {take(r, room, true), take(r, room, false)};
    int rc = HALAY_OK;
    for (size_t i = 0; !rc && i < sizeof(counts) / sizeof(counts[0]); i++) {
        uint64_t s = *salt + i;
        rc = reduces(r, b, counts[i], i % 2 ? HALAY_AVERAGE : HALAY_SUM, s);
        rc = rc ? rc : moves(r, b, counts[i], s);
        rc = rc ? rc : rooted(r, b, counts[i], s);
        rc = rc ? rc : personal(r, b, counts[i], s);
        rc = rc ? rc : at_once(r, b, counts[i], s);
    }
    errors += rc != HALAY_OK;
    give(r, b.in, true);
    give(r, b.out, false);
}

static void run(const struct setup *setup, const char *algorithm, int nranks, uint64_t salt,
                uint64_t deadline_ns)
{
    struct hly_device_late_arg late = {.seed = salt, .delay_polls_max = 4, .capacity = 3};
    halay_inproc_faults_t faults = *setup->faults;
    faults.seed += salt;
    struct ranks_options options = {.nranks = nranks,
                                    .shm = setup->shm,
                                    .faults = &faults,
                                    .algorithm = algorithm,
                                    .device = setup->late_device ? &hly_device_late : NULL,
                                    .device_arg = setup->late_device ? &late : NULL,
                                    .deadline_ns = deadline_ns};
    ranks_run(&options, calls, &salt);
}

/* ---------------------------------------------------------------- mistakes */

struct verdict {
    bool made, replay, data, error;
    char why[200];
};

struct score {
    int made, replay, data, error, assertion, crash, missed;
    char why[200];
};

static void child(enum hly_seed seed, const struct setup *setup, const char *algorithm,
                  uint64_t trial, int pipe)
{
    struct verdict v = {0};
    uint64_t state = trial * 100 + seed;
    int nranks = 3 + (int)(trial % 3), victim = (int)(ranks_random(&state) % (uint64_t)nranks);
    alarm(20);
    if (!freopen("/dev/null", "w", stderr))
        _exit(1);
    replay_seed(seed, victim, (int)(ranks_random(&state) % (trial % 2 ? 25 : 3)));
    run(setup, algorithm, nranks, trial, 600000000ull);
    v.made = replay_seeded();
    v.data = wrong_data > 0;
    v.error = errors > 0;
    v.replay = replay_check(v.why, sizeof(v.why)) != 0;
    _exit(write(pipe, &v, sizeof(v)) != sizeof(v));
}

/* Returns false if the run died before it could tell; *signal is what ended it. */
static bool run_seeded(enum hly_seed seed, const struct setup *setup, const char *algorithm,
                       uint64_t trial, struct verdict *v, int *signal)
{
    int fd[2], status;
    CHECK(!pipe(fd), "no pipe");
    fflush(stdout);
    pid_t pid = fork();
    CHECK(pid >= 0, "no process");
    if (!pid)
        child(seed, setup, algorithm, trial, fd[1]);
    close(fd[1]);
    bool told = read(fd[0], v, sizeof(*v)) == sizeof(*v);
    close(fd[0]);
    CHECK(waitpid(pid, &status, 0) == pid, "no child");
    *signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    return told;
}

static void try_seed(enum hly_seed seed, const struct setup *setup, const char *algorithm,
                     uint64_t trial, struct score *score)
{
    struct verdict v = {0};
    int signal = 0;
    bool told, cut = true;
    for (int i = 0; cut && i < 3; i++) { /* a busy machine may cut a run short */
        told = run_seeded(seed, setup, algorithm, trial, &v, &signal);
        cut = told && v.made && v.error && !v.replay && !v.data;
    }
    if (told && !v.made)
        return;
    score->made++;
    score->assertion += !told && signal == SIGABRT;
    score->crash += !told && signal != SIGABRT;
    score->replay += told && v.replay;
    score->data += told && v.data;
    score->error += told && v.error;
    if (told && v.replay && !score->why[0])
        memcpy(score->why, v.why, sizeof(v.why));
    if (told && !v.replay && !v.data) {
        score->missed++;
        fprintf(stderr, "missed: %s: %s, %s, trial %llu%s\n", kinds[seed], setup->name,
                algorithm ? algorithm : "as selected", (unsigned long long)trial,
                v.error ? " (the call failed)" : "");
    }
}

static int seeded(void)
{
    int bad = 0;
    printf("%-44s %5s %7s %5s %6s %6s %6s %7s\n", "mistake", "made", "replay", "data", "failed",
           "assert", "crash", "missed");
    for (int seed = HLY_SEED_NONE + 1; seed < HLY_SEED_COUNT; seed++) {
        struct score score = {0};
        for (uint64_t t = 0; t < TRIALS_MAX && score.made < TRIALS; t++)
            try_seed((enum hly_seed)seed, &setups[t % SETUPS], algorithms[t / SETUPS % 2], t,
                     &score);
        printf("%-44s %5d %7d %5d %6d %6d %6d %7d\n", kinds[seed], score.made, score.replay,
               score.data, score.error, score.assertion, score.crash, score.missed);
        printf("    %s\n", score.why);
        bad += !score.made || score.missed || !(score.replay + score.data + score.assertion);
    }
    return bad;
}

static int clean(uint64_t rounds)
{
    char why[300] = "";
    for (uint64_t round = 0; round < rounds; round++)
        for (size_t s = 0; s < SETUPS; s++)
            for (size_t a = 0; a < ALGORITHMS; a++) {
                int nranks = 1 + (int)((round * 3 + s + a) % 7);
                run(&setups[s], algorithms[a], nranks, round, 20000000000ull);
                CHECK(!wrong_data && !errors, "%s: wrong data or errors", setups[s].name);
                CHECK(!replay_check(why, sizeof(why)), "%s: %s", setups[s].name, why);
            }
    printf("%llu calls, %llu steps replayed\n", (unsigned long long)replay_calls(),
           (unsigned long long)replay_steps());
    return replay_steps() == 0;
}

int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "clean"))
        return clean(argc > 2 ? strtoull(argv[2], NULL, 10) : 20);
    CHECK(argc == 2 && !strcmp(argv[1], "seeded"), "usage: test_replay clean [ROUNDS] | seeded");
    return seeded() != 0;
}
