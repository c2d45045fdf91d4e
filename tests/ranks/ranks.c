/* SPDX-License-Identifier: Apache-2.0 */
#include "ranks.h"

#include <string.h>
#include <time.h>

extern const halay_transport_ops_t halay_transport_v5_shm;

struct start {
    pthread_t thread;
    struct rank rank;
    struct halay_inproc_rank where;
    const struct ranks_options *options;
    void (*fn)(struct rank *);
};

int64_t ranks_sum(int nranks, int round, int i)
{
    int64_t s = 0;
    for (int r = 0; r < nranks; r++)
        s += ranks_value(r, round, i);
    return s;
}

const halay_inproc_faults_t ranks_put = {.seed = 3,
                                         .delay_polls_max = 3,
                                         .reorder = 1,
                                         .late_put_polls = 5,
                                         .hide_capabilities = HALAY_CAN_LAND,
                                         .eager_bytes = 128};
const halay_inproc_faults_t ranks_tagged = {.seed = 4,
                                            .delay_polls_max = 3,
                                            .reorder = 1,
                                            .late_put_polls = 5,
                                            .again_percent = 10,
                                            .hide_capabilities = HALAY_CAN_PUT,
                                            .eager_bytes = 128};
const halay_inproc_faults_t ranks_staged = {.seed = 5,
                                            .delay_polls_max = 4,
                                            .reorder = 1,
                                            .again_percent = 30,
                                            .hide_capabilities = HALAY_CAN_PUT | HALAY_CAN_LAND,
                                            .eager_bytes = 64,
                                            .piece_bytes = 256};

uint64_t ranks_random(uint64_t *state) /* splitmix64 (S. Vigna) */
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

uint64_t ranks_now_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000ull + (uint64_t)ts.tv_nsec;
}

static void *rank_main(void *arg)
{
    struct start *s = arg;
    const struct ranks_options *o = s->options;
    halay_config_t config = HALAY_CONFIG_INIT;
    char error[512] = "";
    config.boot = &halay_boot_v3_inproc;
    config.boot_arg = &s->where;
    config.transport = o->transport ? o->transport
                       : o->shm     ? &halay_transport_v5_shm
                                    : &halay_transport_v5_inproc;
    config.device = o->device;
    config.device_arg = o->device_arg;
    config.algorithm = o->algorithms ? o->algorithms[s->rank.rank] : o->algorithm;
    config.isa = o->isa ? o->isa[s->rank.rank] : NULL;
    config.deadline_ns = o->deadline_ns ? o->deadline_ns : 20000000000ull;
    config.error = error;
    config.error_bytes = sizeof(error);
    int rc = halay_init(&config, &s->rank.context);
    CHECK(rc == 0, "halay_init on rank %d: %s: %s", s->rank.rank, halay_strerror(rc), error);
    CHECK(halay_comm_world(s->rank.context, &s->rank.world) == 0, "no world");
    s->fn(&s->rank);
    if (!o->keep) {
        rc = halay_finalize(s->rank.context);
        CHECK(rc == 0, "halay_finalize on rank %d: %s", s->rank.rank, halay_strerror(rc));
    }
    return NULL;
}

void ranks_run(const struct ranks_options *options, void (*fn)(struct rank *), void *arg)
{
    static struct start starts[RANKS_MAX];
    halay_inproc_hub_t *hub;
    CHECK(options->nranks > 0 && options->nranks <= RANKS_MAX, "%d ranks", options->nranks);
    CHECK(halay_inproc_hub_create(options->nranks, options->faults, &hub) == 0, "no hub");
    if (options->node_of_rank)
        CHECK(halay_inproc_hub_nodes(hub, options->node_of_rank) == 0, "no nodes");
    for (int r = 0; r < options->nranks; r++) {
        struct start *s = &starts[r];
        *s = (struct start){.options = options, .fn = fn, .where = {hub, r}};
        s->rank = (struct rank){.rank = r,
                                .nranks = options->nranks,
                                .hub = hub,
                                .arg = arg,
                                .seed = 1000u + (uint64_t)r};
        CHECK(pthread_create(&s->thread, NULL, rank_main, s) == 0, "no thread");
    }
    for (int r = 0; r < options->nranks; r++)
        pthread_join(starts[r].thread, NULL);
    halay_inproc_hub_destroy(hub);
}
