/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a rank of 100,000 keeps in its own memory, after init and ten splits: at most 16 MiB.
 *
 * Simulated: the bootstrap says that there are 100,000 ranks on nodes of 64; one of them is here.
 * A split's exchange of colours and keys is left out; the groups it ends in are made as it makes
 * them, each of all ranks, in an order of its own. Then the plans of seven planners
 * are admitted, and their peers made. Not in it: the bootstrap's table (one a node), and what a
 * transport between nodes keeps for each connection.
 */
#include <malloc.h>
#include <string.h>

#include "exec/exec.h"
#include "ranks/ranks.h"
#include "run/run.h"

#define RANKS      100000
#define NODE_RANKS 64
#define SPLITS     10
#define MOST_BYTES (16u << 20)

extern const halay_transport_ops_t halay_transport_v7_shm;

/* ---------------------------------------------------------------- groups in both forms */

static void shuffle(int order[], int n, uint64_t *seed)
{
    for (int i = n - 1; i > 0; i--) {
        int j = (int)(ranks_random(seed) % (uint64_t)(i + 1)), kept = order[i];
        order[i] = order[j];
        order[j] = kept;
    }
}

static void check_group(const int world[], int n, int absent)
{
    struct hly_ranks *made, *group;
    CHECK(!hly_ranks_make(world, n, &made) && !hly_ranks_copy(made, &group), "no memory");
    free(made);
    for (int r = 0; r < n; r++) {
        CHECK(hly_ranks_world_rank(group, r) == world[r], "rank %d of %d is %d, not %d", r, n,
              hly_ranks_world_rank(group, r), world[r]);
        if (n < 1000 || r % 997 == 0)
            CHECK(hly_ranks_rank_of(group, world[r]) == r, "world rank %d is not %d", world[r], r);
    }
    CHECK(hly_ranks_rank_of(group, absent) == -1, "%d is in it", absent);
    free(group);
}

static void groups(void)
{
    static int world[RANKS];
    uint64_t seed = 7;
    for (int round = 0; round < 2000; round++) {
        int n = 1 + (int)(ranks_random(&seed) % (round % 100 ? 70 : 5000));
        int step = 1 + (int)(ranks_random(&seed) % 5), first = (int)(ranks_random(&seed) % 9);
        for (int r = 0; r < n; r++)
            world[r] = first + r * step;
        if (round % 3 == 1)
            shuffle(world, n, &seed);
        for (int r = 0; round % 3 == 2 && r < n / 2; r++) { /* backwards */
            int kept = world[r];
            world[r] = world[n - 1 - r];
            world[n - 1 - r] = kept;
        }
        check_group(world, n, first + n * step);
    }
    for (int bits = 1; bits < 31; bits++) { /* around each power of two */
        int two[] = {1 << bits, (1 << bits) - 1, 0, (1 << bits) - 2 + (bits == 1) * 3, 5 << 24};
        check_group(two, bits < 24 ? 5 : 3, 3 << 28);
    }
}

/* ---------------------------------------------------------------- one rank of many */

static int probe(int *announced)
{
    *announced = RANKS;
    return 1;
}

static int open_boot(void *arg, halay_log_fn log, void *log_arg, uint64_t deadline_ns,
                     halay_boot_info_t *info, halay_boot_t **boot)
{
    (void)log, (void)log_arg, (void)deadline_ns;
    *boot = arg;
    *info = (halay_boot_info_t){.size = sizeof(*info),
                                .rank = 4711,
                                .nranks = RANKS,
                                .local_rank = 4711 % NODE_RANKS,
                                .local_nranks = NODE_RANKS,
                                .node = 4711 / NODE_RANKS,
                                .nnodes = (RANKS + NODE_RANKS - 1) / NODE_RANKS,
                                .listen_fd = -1,
                                .epoch = 1};
    snprintf(info->host, sizeof(info->host), "here");
    snprintf(info->launcher, sizeof(info->launcher), "one of many");
    return HALAY_OK;
}

static int get(const halay_boot_t *boot, int rank, halay_place_t *place)
{
    (void)boot;
    *place = (halay_place_t){.size = sizeof(*place), .node = rank / NODE_RANKS};
    return HALAY_OK;
}

static void close_boot(halay_boot_t *boot)
{
    (void)boot;
}

/* Of the heap; a sanitizer has one of its own. */
static size_t in_use(void)
{
    struct mallinfo2 m = mallinfo2();
    return m.uordblks + m.hblkhd;
}

/* Of this process' pages without files: the heap with its holes, stacks, shared memory touched. */
static size_t resident(void)
{
    char line[128];
    size_t sum = 0, kib;
    FILE *f = fopen("/proc/self/status", "r");
    CHECK(f, "no /proc");
    while (fgets(line, sizeof(line), f))
        if (sscanf(line, "RssAnon: %zu", &kib) == 1 || sscanf(line, "RssShmem: %zu", &kib) == 1)
            sum += kib << 10;
    fclose(f);
    return sum;
}

static void split(halay_context_t *ctx, int number, int order[], uint64_t *seed)
{
    struct hly_ranks *group;
    halay_comm_t *comm;
    int rank = -1;
    for (int r = 0; r < RANKS; r++)
        order[r] = r;
    shuffle(order, RANKS, seed);
    for (int r = 0; r < RANKS; r++)
        if (order[r] == ctx->info.rank)
            rank = r;
    hly_lock(ctx);
    CHECK(!hly_ranks_make(order, RANKS, &group), "no memory");
    CHECK(!hly_comm_make(ctx, 1000u + (uint64_t)number, group, rank, 1000000000, &comm), "split %d",
          number);
    hly_unlock(ctx);
    CHECK(hly_comm_world_rank(comm, rank) == ctx->info.rank, "another rank");
    CHECK(comm->nnodes == (RANKS + NODE_RANKS - 1) / NODE_RANKS, "%u nodes", comm->nnodes);
}

/* The plans that a program would use: proved by this rank alone; their peers are made. */
static void plans(halay_context_t *ctx)
{
    static const struct {
        halay_collective_t collective;
        const char *planner;
    } used[] = {{HALAY_ALLREDUCE, "recursive_doubling"}, {HALAY_ALLREDUCE, "two_level_short"},
                {HALAY_ALLREDUCE, "circulant"},          {HALAY_ALLREDUCE, "two_level"},
                {HALAY_BROADCAST, "two_level"},          {HALAY_BARRIER, "two_level"},
                {HALAY_ALLGATHER, "circulant"}};
    for (size_t i = 0; i < sizeof(used) / sizeof(used[0]); i++) {
        struct hly_call call = {.desc = {.count = 1, .collective = (uint8_t)used[i].collective}};
        struct hly_plan *plan;
        uint32_t planner;
        char reason[256] = "";
        uint64_t begin = ranks_now_ns();
        CHECK(!halay_planner_find(used[i].collective, used[i].planner, &planner), "no planner");
        hly_lock(ctx);
        int rc = hly_plan_admit(ctx->world, planner, &call, &plan, reason, sizeof(reason));
        hly_unlock(ctx);
        CHECK(!rc, "%s: %s %s", used[i].planner, halay_strerror(rc), reason);
        printf("%s.%s: %u steps, proved and admitted in %.1f ms\n",
               halay_collective_name(used[i].collective), used[i].planner, plan->plan->nsteps,
               (double)(ranks_now_ns() - begin) * 1e-6);
    }
}

/* A plan with group steps is not run where no device has them. */
static void no_groups(halay_context_t *ctx)
{
    struct hly_call call = {.desc = {.count = 1, .collective = HALAY_ALLREDUCE}};
    struct hly_plan *plan = NULL;
    uint32_t planner;
    char reason[256] = "";
    CHECK(!halay_planner_find(HALAY_ALLREDUCE, "two_level_group", &planner), "no planner");
    hly_lock(ctx);
    int rc = hly_plan_admit(ctx->world, planner, &call, &plan, reason, sizeof(reason));
    hly_unlock(ctx);
    CHECK(rc == HALAY_EUNSUPPORTED && !plan && strstr(reason, "no device offers group steps"),
          "%d: %s", rc, reason);
}

static void memory(void)
{
    static const halay_boot_ops_t ops = {.size = sizeof(ops),
                                         .name = "many",
                                         .probe = probe,
                                         .open = open_boot,
                                         .get = get,
                                         .close = close_boot};
    static int order[RANKS];
    static char boot; /* must not be NULL: then there is one node */
    uint64_t seed = 11, begin, ready;
    char error[512] = "";
    halay_config_t config = HALAY_CONFIG_INIT;
    config.boot = &ops;
    config.boot_arg = &boot;
    config.transport = &halay_transport_v7_shm;
    config.error = error;
    config.error_bytes = sizeof(error);
    halay_context_t *ctx;
    memset(order, 1, sizeof(order)); /* so that it is resident */
    size_t before = in_use(), pages = resident();
    begin = ranks_now_ns();
    int rc = halay_init(&config, &ctx);
    CHECK(!rc, "halay_init: %s: %s", halay_strerror(rc), error);
    ready = ranks_now_ns();
    size_t after_init = in_use();
    for (int i = 0; i < SPLITS; i++)
        split(ctx, i, order, &seed);
    uint64_t split_done = ranks_now_ns();
    size_t after = in_use(), after_pages = resident();
    plans(ctx);
    no_groups(ctx);
    printf(
        "%d ranks. Heap: %zu KiB after init (%.1f ms), %zu KiB after %d splits of all of them in "
        "any order (%.1f ms each), %zu KiB after these plans, with %u peers. Pages: %zu KiB after "
        "the splits, %zu KiB after the plans, most of them free again\n",
        RANKS, (after_init - before) >> 10, (double)(ready - begin) * 1e-6, (after - before) >> 10,
        SPLITS, (double)(split_done - ready) * 1e-6 / SPLITS, (in_use() - before) >> 10,
        ctx->npeers, (after_pages - pages) >> 10, (resident() - pages) >> 10);
    pages = after_pages - pages;
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    CHECK(after > before && after - before <= MOST_BYTES, "%zu bytes", after - before);
    CHECK(pages <= MOST_BYTES, "%zu bytes of pages", pages);
#endif
    CHECK(!halay_finalize(ctx), "halay_finalize");
}

int main(void)
{
    groups();
    memory();
    return 0;
}
