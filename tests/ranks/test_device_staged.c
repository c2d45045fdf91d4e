/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Staged calls (docs/decisions/device-memory.md#0053), of one slice and of several. Each piece of
 * one rank's device work in turn never finishes, ends with an error, or breaks its device; or that
 * gives no host memory; or a rank is absent: the call ends on all ranks, in time, and no byte of
 * its buffers changes afterwards. Warm calls take no more memory, and a long one no more than its
 * slots.
 *
 *   test_device_staged [sampled]   sampled: a third of the failures, by a seed
 */
#include <stdatomic.h>
#include <string.h>

#include "device/device_builtin.h"
#include "fated.h"
#include "ranks.h"

#define NRANKS   3
#define DEADLINE 1000000000ull
#define CALLS    3
#define LONG     900001 /* elements: four slices */
#define LONGEST  4000037

enum fate { NEVER, FAILS, BREAKS, STUBBORN, NO_MEMORY, ABSENT, FATES };
static const char *const names[FATES] = {"never",    "fails",     "breaks",
                                         "stubborn", "no memory", "absent"};

static struct trial {
    enum fate fate;
    uint32_t piece;
    size_t count;
    double busy; /* the deadline is so many times as long */
    pthread_barrier_t barrier;
    int code[NRANKS], calls[NRANKS];
    char text[NRANKS][512];
} trial;

static _Thread_local uint32_t taken;     /* pieces of host memory, by this rank */
static _Thread_local size_t taken_bytes; /* the largest */
static atomic_int victim;

static int fated_alloc(halay_device_t *device, uint32_t place, size_t bytes, size_t alignment,
                       void **address)
{
    if (place == HALAY_PLACE_HOST) {
        taken++;
        taken_bytes = bytes > taken_bytes ? bytes : taken_bytes;
        if (is_victim && trial.fate == NO_MEMORY && taken == trial.piece)
            return HALAY_ENOMEM;
    }
    return hly_device_late.alloc(device, place, bytes, alignment, address);
}

struct buffers {
    int32_t *in, *out, *there_in, *there_out;
    size_t bytes;
};

static struct buffers take(struct rank *r, size_t count)
{
    struct buffers b = {.bytes = count * sizeof(int32_t)};
    b.in = malloc(b.bytes);
    b.out = malloc(b.bytes);
    CHECK(b.in && b.out, "no memory");
    b.there_in = ranks_there_take(r->context, b.bytes);
    b.there_out = ranks_there_take(r->context, b.bytes);
    for (size_t i = 0; i < count; i++)
        b.in[i] = (int32_t)i * 3 + r->rank;
    ranks_there_put(b.there_in, b.in, b.bytes);
    return b;
}

static void drop(struct rank *r, struct buffers *b)
{
    ranks_there_drop(r->context, b->there_in);
    ranks_there_drop(r->context, b->there_out);
    free(b->in);
    free(b->out);
}

static int reduce(struct rank *r, const struct buffers *b)
{
    memset(b->out, 0x5a, b->bytes);
    ranks_there_put(b->there_out, b->out, b->bytes);
    return halay_allreduce(b->there_in, b->there_out, b->bytes / sizeof(int32_t), HALAY_INT32,
                           HALAY_SUM, r->world);
}

static void check_sum(struct rank *r, const struct buffers *b)
{
    const int32_t n = r->nranks;
    ranks_there_get(b->out, b->there_out, b->bytes);
    for (size_t i = 0; i < b->bytes / sizeof(int32_t); i++)
        CHECK(b->out[i] == n * (int32_t)i * 3 + n * (n - 1) / 2, "element %zu is %d", i, b->out[i]);
}

/* ---------------------------------------------------------------- it ends */

static int expected(void)
{
    return trial.fate == NO_MEMORY ? HALAY_ENOMEM
           : trial.fate == ABSENT  ? HALAY_ETIMEOUT
                                   : HALAY_EDEVICE;
}

/* Is this its last call? Only the victim knows by itself where nobody is absent. */
static bool leaves(const struct rank *r, int call)
{
    return trial.fate == ABSENT && r->rank == 1 && call == (int)trial.piece;
}

static void check_quiet(struct rank *r, const struct buffers *b)
{
    int32_t *later = malloc(b->bytes);
    CHECK(later, "no memory");
    ranks_there_get(b->out, b->there_out, b->bytes);
    for (const uint64_t until = ranks_now_ns() + 10000000; ranks_now_ns() < until;)
        halay_context_progress(r->context, 0);
    ranks_there_get(later, b->there_out, b->bytes);
    CHECK(!memcmp(later, b->out, b->bytes), "%s %u: the output has changed", names[trial.fate],
          trial.piece);
    ranks_there_get(later, b->there_in, b->bytes);
    CHECK(!memcmp(later, b->in, b->bytes), "%s %u: the input has changed", names[trial.fate],
          trial.piece);
    free(later);
}

/*
 * A copy to the device is a rank's last act in a call. If that fails others may have ended theirs
 * already: then their next call fails, with the verdict of this one.
 */
static void ends(struct rank *r)
{
    struct buffers b = take(r, trial.count);
    halay_verdict_t v = {.size = sizeof(v)};
    int rc = 0, call = 0;
    uint64_t begin = 0;
    if (is_victim)
        atomic_store(&victim, r->rank);
    taken = 0;
    pthread_barrier_wait(&trial.barrier);
    for (; !rc && !leaves(r, call) && call < 3 * CALLS; call++) {
        begin = ranks_now_ns();
        rc = reduce(r, &b);
        if (!rc)
            check_sum(r, &b);
    }
    const double took = (double)(ranks_now_ns() - begin) * 1e-9;
    if (!leaves(r, call)) {
        CHECK(rc == expected(), "%s %u: rank %d got %s", names[trial.fate], trial.piece, r->rank,
              halay_strerror(rc));
        CHECK(took < 4 * trial.busy, "%s %u: after %.1f s", names[trial.fate], trial.piece, took);
        CHECK(!halay_comm_verdict(r->world, &v), "verdict");
        CHECK(v.rank == (trial.fate == ABSENT ? 1 : atomic_load(&victim)), "%s %u: blames %d: %s",
              names[trial.fate], trial.piece, v.rank, v.text);
        if (trial.fate != ABSENT)
            CHECK(strstr(v.text, "device late"), "%s: %s", names[trial.fate], v.text);
        check_quiet(r, &b);
    }
    /* Who leaves has read no verdict, also where its last call was too slow for the deadline. */
    trial.code[r->rank] = leaves(r, call) ? HALAY_OK : rc;
    trial.calls[r->rank] = call;
    snprintf(trial.text[r->rank], sizeof(trial.text[0]), "%s", v.text);
    pthread_barrier_wait(&trial.barrier);
    for (int k = 0; k < NRANKS; k++) {
        const int apart = trial.calls[r->rank] - trial.calls[k];
        CHECK(apart >= -1 && apart <= 1, "%s %u: after %d and %d calls", names[trial.fate],
              trial.piece, trial.calls[r->rank], trial.calls[k]);
        CHECK(trial.code[k] != trial.code[r->rank] || !strcmp(trial.text[k], v.text), "%s\n%s",
              trial.text[k], v.text);
    }
    if (trial.fate == NO_MEMORY) { /* nobody was harmed */
        CHECK(!reduce(r, &b), "afterwards");
        check_sum(r, &b);
    }
    pthread_barrier_wait(&trial.barrier);
    drop(r, &b);
}

/* ---------------------------------------------------------------- memory */

static void warm(struct rank *r)
{
    static const size_t counts[NRANKS] = {5, 0, 300};
    struct buffers b = take(r, LONG), longest = take(r, LONGEST);
    struct buffers few = b;
    few.bytes = 32;
    taken_bytes = 0;
    for (int i = 0; i < 6; i++) {
        const uint32_t before = taken;
        CHECK(!reduce(r, &b) && !reduce(r, &few), "calls");
        check_sum(r, &few);
        int rc = halay_allgatherv(b.there_in, b.there_out, counts, NULL, HALAY_INT32, r->world);
        CHECK(!rc, "allgatherv");
        halay_request_t *q[4];
        for (int k = 0; k < 4; k++)
            CHECK(!halay_ibroadcast(b.there_out + k * 1000, 1000, HALAY_INT32, 0, r->world, &q[k]),
                  "ibroadcast");
        for (int k = 0; k < 4; k++)
            CHECK(!halay_request_wait(q[k]), "wait");
        CHECK(i < 2 || taken == before, "round %d: %u allocations", i, taken - before);
    }
    CHECK(!reduce(r, &longest), "long");
    check_sum(r, &longest);
    CHECK(taken_bytes && taken_bytes < LONGEST * sizeof(int32_t) / 2, "%zu bytes of %zu",
          taken_bytes, LONGEST * sizeof(int32_t));
    drop(r, &b);
    drop(r, &longest);
}

/* ---------------------------------------------------------------- */

static void run(struct hly_device_late_arg arg, void (*fn)(struct rank *), bool shm)
{
    halay_device_ops_t fated = hly_device_late;
    struct ranks_options o = {.nranks = NRANKS,
                              .shm = shm,
                              .device = &fated,
                              .device_arg = &arg,
                              .deadline_ns = fn == ends ? (uint64_t)(DEADLINE * trial.busy) : 0};
    fated.open = fated_open;
    fated.alloc = fated_alloc;
    arg.own_memory = true;
    arg.delay_polls_max = 3;
    arg.capacity = arg.capacity ? arg.capacity : 8;
    atomic_store(&opened, 0);
    pthread_barrier_init(&trial.barrier, NULL, NRANKS);
    ranks_run(&o, fn, NULL);
    pthread_barrier_destroy(&trial.barrier);
}

int main(int argc, char **argv)
{
    const bool sampled = argc > 1 && !strcmp(argv[1], "sampled");
    uint64_t seed = 7;
    static const uint32_t last[FATES] = {4, 8, 8, 2, 1, 2};
    setenv("HALAY_DEBUG", "error", 1); /* the failures here are wanted */
    trial.busy = ranks_busy();
    for (uint32_t capacity = 1; capacity < 9; capacity += 7)
        for (int shm = 0; shm < 2; shm++) {
            trial.fate = FATES;
            run((struct hly_device_late_arg){.capacity = capacity}, warm, shm);
        }
    for (int f = 0; f < FATES; f++)
        for (uint32_t piece = 1; piece <= last[f]; piece++)
            for (int length = 0; length < 2; length++) {
                if (sampled && ranks_random(&seed) % 3)
                    continue;
                struct hly_device_late_arg arg = {.stubborn = f == STUBBORN};
#ifdef __SANITIZE_ADDRESS__
                if (arg.stubborn) /* what it may write to is kept for ever */
                    continue;
#endif
                *(f == FAILS    ? &arg.fails
                  : f == BREAKS ? &arg.breaks
                                : &arg.never) = f < NO_MEMORY ? piece : 0;
                trial.fate = (enum fate)f;
                trial.piece = piece;
                trial.count = length ? LONG : 1000;
                run(arg, ends, piece % 2);
                printf("%s %u, %zu elements: all are told\n", names[f], piece, trial.count);
                fflush(stdout);
            }
    return 0;
}
