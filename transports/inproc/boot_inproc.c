/* SPDX-License-Identifier: Apache-2.0 */
/*
 * boot_inproc.c - the bootstrap of ranks that are threads: the hub knows all there is to know.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hub.h"

struct halay_boot {
    halay_inproc_hub_t *hub;
    int rank;
};

static void host_name(char host[64], int node)
{
    memset(host, 0, 64);
    snprintf(host, 64, "inproc-node%d", node);
}

static void fill(const halay_inproc_hub_t *hub, int rank, halay_boot_info_t *info)
{
    const uint64_t words[4] = {hly_inproc_mix(hub->job + 1), hly_inproc_mix(hub->job + 2),
                               hly_inproc_mix(hub->job + 3), hly_inproc_mix(hub->job + 4)};

    *info = (halay_boot_info_t){.size = sizeof(*info), .rank = rank, .nranks = hub->nranks};
    info->node = hub->ranks[rank].node;
    info->nnodes = hub->nnodes;
    info->epoch = hub->ranks[rank].epoch;
    for (int r = 0; r < hub->nranks; r++) {
        if (hub->ranks[r].node == info->node) {
            info->local_rank += r < rank;
            info->local_nranks++;
        }
    }
    memcpy(info->job, &words[0], sizeof(info->job));
    memcpy(info->secret, &words[2], sizeof(info->secret));
    host_name(info->host, info->node);
    snprintf(info->launcher, sizeof(info->launcher), "inproc");
}

/* Never by itself: only who configures it gets it. */
static int boot_probe(int *announced)
{
    *announced = 1;
    return 0;
}

static int boot_open(void *arg, halay_log_fn log, void *log_arg, uint64_t deadline_ns,
                     halay_boot_info_t *info, halay_boot_t **boot)
{
    const struct halay_inproc_rank *who = arg;
    struct inproc_rank_state *state;
    halay_boot_info_t full;
    halay_boot_t *made;
    const char *trouble = "inproc: boot_arg must name a rank of a hub; it is for tests only";
    int result = HALAY_EBOOT;

    (void)deadline_ns;
    if (!who || !who->hub || who->rank < 0 || who->rank >= who->hub->nranks) {
        goto tell;
    }
    made = malloc(sizeof(*made));
    if (!made) {
        return HALAY_ENOMEM;
    }
    *made = (halay_boot_t){who->hub, who->rank};
    state = &who->hub->ranks[who->rank];
    pthread_mutex_lock(&who->hub->lock);
    if (state->killed) {
        trouble = "inproc: this rank was killed by the test; make a new hub";
    } else if (state->boot_open) {
        trouble = "inproc: this rank holds the job open already; close it first";
        result = HALAY_ESTATE;
    } else {
        result = HALAY_OK;
        state->boot_open = true;
        state->epoch++;
        fill(who->hub, who->rank, &full);
    }
    pthread_mutex_unlock(&who->hub->lock);
    if (result) {
        free(made);
        goto tell;
    }
    full.size = info->size;
    memcpy(info, &full, info->size < sizeof(full) ? info->size : sizeof(full));
    *boot = made;
    return HALAY_OK;

tell:
    if (log) {
        log(log_arg, 0, trouble);
    }
    return result;
}

static int boot_get(const halay_boot_t *boot, int rank, halay_place_t *place)
{
    if (rank < 0 || rank >= boot->hub->nranks || place->size < sizeof(*place)) {
        return HALAY_EINVAL;
    }
    *place = (halay_place_t){.size = sizeof(*place)};
    place->node = boot->hub->ranks[rank].node; /* set before any open */
    host_name(place->host, place->node);
    return HALAY_OK;
}

static void boot_close(halay_boot_t *boot)
{
    if (boot) {
        pthread_mutex_lock(&boot->hub->lock);
        assert(boot->hub->ranks[boot->rank].boot_open);
        boot->hub->ranks[boot->rank].boot_open = false;
        pthread_mutex_unlock(&boot->hub->lock);
        free(boot);
    }
}

static void boot_lost(halay_boot_t *boot, int rank)
{
    (void)boot, (void)rank;
}

static int boot_newcomers(halay_boot_t *boot, int *count)
{
    (void)boot, (void)count;
    return HALAY_EUNSUPPORTED; /* a hub always has the same ranks */
}

static void boot_leave(halay_boot_t *boot)
{
    (void)boot;
}

HALAY_API const halay_boot_ops_t halay_boot_v4_inproc = {
    .size = sizeof(halay_boot_ops_t),
    .name = "inproc",
    .probe = boot_probe,
    .open = boot_open,
    .get = boot_get,
    .lost = boot_lost,
    .newcomers = boot_newcomers,
    .close = boot_close,
    .leave = boot_leave,
};
