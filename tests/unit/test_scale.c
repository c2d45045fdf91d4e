/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a rank of 100,000 keeps in its own memory, after init and ten splits: at most 16 MiB.
 *
 * Simulated: the bootstrap says that there are 100,000 ranks on nodes of 64; one of them is here.
 * A split's exchange of colours and keys is left out; the groups it ends in are made as it makes
 * them, each of all ranks, in an order of its own. Not in it: the bootstrap's table (one a node),
 * peers (made on use), and plans.
 */
#include <malloc.h>
#include <string.h>

#include "core.h"
#include "ranks/ranks.h"

#define RANKS      100000
#define NODE_RANKS 64
#define SPLITS     10
#define MOST_BYTES (16u << 20)

extern const halay_transport_ops_t halay_transport_v2_shm;

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
    struct hly_group *made, *group;
    CHECK(!hly_group_make(world, n, &made) && !hly_group_copy(made, &group), "no memory");
    free(made);
    for (int r = 0; r < n; r++) {
        CHECK(hly_group_world_rank(group, r) == world[r], "rank %d of %d is %d, not %d", r, n,
              hly_group_world_rank(group, r), world[r]);
        if (n < 1000 || r % 997 == 0)
            CHECK(hly_group_rank_of(group, world[r]) == r, "world rank %d is not %d", world[r], r);
    }
    CHECK(hly_group_rank_of(group, absent) == -1, "%d is in it", absent);
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

static int join(halay_boot_t *boot, const char *address)
{
    (void)boot, (void)address;
    return HALAY_EUNSUPPORTED;
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
    struct hly_group *group;
    halay_comm_t *comm;
    int rank = -1;
    for (int r = 0; r < RANKS; r++)
        order[r] = r;
    shuffle(order, RANKS, seed);
    for (int r = 0; r < RANKS; r++)
        if (order[r] == ctx->info.rank)
            rank = r;
    hly_lock(ctx);
    CHECK(!hly_group_make(order, RANKS, &group), "no memory");
    CHECK(!hly_comm_create(ctx, 1000u + (uint64_t)number, group, rank, 1000000000, &comm),
          "split %d", number);
    hly_unlock(ctx);
    CHECK(hly_comm_world_rank(comm, rank) == ctx->info.rank, "another rank");
    CHECK(comm->nnodes == (RANKS + NODE_RANKS - 1) / NODE_RANKS, "%u nodes", comm->nnodes);
}

static void memory(void)
{
    static const halay_boot_ops_t ops = {sizeof(ops), "many", probe,     open_boot,
                                         get,         join,   close_boot};
    static int order[RANKS];
    static char boot; /* must not be NULL: then there is one node */
    uint64_t seed = 11, begin, ready;
    char error[512] = "";
    halay_config_t config = HALAY_CONFIG_INIT;
    config.boot = &ops;
    config.boot_arg = &boot;
    config.transport = &halay_transport_v2_shm;
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
    size_t after = in_use();
    pages = resident() - pages;
    printf("%d ranks: %zu KiB of heap after init (%.1f ms), %zu KiB after %d splits of all of them "
           "in any order (%.1f ms each); %zu KiB of pages\n",
           RANKS, (after_init - before) >> 10, (double)(ready - begin) * 1e-6,
           (after - before) >> 10, SPLITS, (double)(ranks_now_ns() - ready) * 1e-6 / SPLITS,
           pages >> 10);
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
