/* SPDX-License-Identifier: Apache-2.0 */
/*
 * greet.c - what ranks tell each other once, when the trainer is made: where they are, for the
 * texts of errors, the settings of fusion and autotuning, of which the least counts for all, and
 * what time it is on their nodes.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../../common/autotune.h"
#include "trainer.h"

#define FUSION_BYTES   (UINT64_C(64) << 20)
#define FUSION_MAX     (UINT64_C(1) << 40)
#define GROUP_BYTES    (UINT64_C(64) << 10) /* for each rank; more leaves the caches */
#define UNSET          HLY_AUTOTUNE_UNSET
#define CLOCK_BARRIERS 8
#define WORDS          (sizeof(struct hlt_greeting) / sizeof(uint64_t))

/* halay_init has checked both variables. */
static void greeting_fill(struct hlt_greeting *own)
{
    const char *fusion = getenv("HALAY_FUSION");
    struct hly_autotune autotune;
    hly_autotune_read(getenv("HALAY_AUTOTUNE"), &autotune);
    own->fusion_bytes = fusion && *fusion ? strtoull(fusion, NULL, 10) : FUSION_BYTES;
    own->group_bytes = autotune.group_bytes;
    own->tune_steps = autotune.on ? autotune.steps : 0;
    own->tune_warmup_steps = own->tune_steps * autotune.warmup;
    own->tune_reads = !autotune.again;
}

static void settings_take(halay_trainer_t *trainer, const halay_topology_t *topology)
{
    struct hlt_greeting least = trainer->core.greetings[0];
    int asked = least.tune_steps != 0; /* of any rank for autotuning */
    for (int r = 1; r < trainer->core.nranks; r++) {
        const struct hlt_greeting *g = &trainer->core.greetings[r];
        least.fusion_bytes =
            g->fusion_bytes < least.fusion_bytes ? g->fusion_bytes : least.fusion_bytes;
        least.group_bytes = g->group_bytes < least.group_bytes ? g->group_bytes : least.group_bytes;
        least.tune_steps = g->tune_steps < least.tune_steps ? g->tune_steps : least.tune_steps;
        least.tune_warmup_steps = g->tune_warmup_steps < least.tune_warmup_steps
                                      ? g->tune_warmup_steps
                                      : least.tune_warmup_steps;
        least.tune_reads &= g->tune_reads;
        asked |= g->tune_steps != 0;
    }
    const uint64_t caches = GROUP_BYTES * (uint64_t)trainer->core.nranks;
    const uint64_t most =
        (least.fusion_bytes < FUSION_MAX ? least.fusion_bytes : FUSION_MAX) / HLT_BUFFERS;
    const uint64_t wanted = least.group_bytes == UNSET ? caches : least.group_bytes;
    const uint64_t where[] = {(uint64_t)trainer->core.nranks, (uint64_t)topology->nnodes,
                              hlt_tensor_hash(topology->transport)};
    trainer->core.buffer_bytes = (size_t)(wanted < most ? wanted : most);
    const char *off = !least.tune_steps            ? "not all ranks have HALAY_AUTOTUNE=1"
                      : least.group_bytes != UNSET ? "HALAY_AUTOTUNE has group:BYTES"
                      : !most                      ? "HALAY_FUSION leaves no room for groups"
                                                   : NULL;
    if (off && trainer->core.rank == 0 && asked)
        hlt_tune_refuse(off);
    if (!off)
        trainer->core.autotune = (struct hlt_autotune){
            .most_bytes = (size_t)most,
            .steps = (uint32_t)least.tune_steps,
            .warmup_steps = (uint32_t)least.tune_warmup_steps,
            .again = !least.tune_reads,
            .key = hlt_hash_words(0, where, sizeof(where) / sizeof(where[0]))};
}

/*
 * Nobody leaves a barrier before the last has come. So a rank's times around one, and rank 0's,
 * bound how far their clocks are apart: docs/decisions/training.md#0021. One node has one clock,
 * and needs no message; only in a trainer of all ranks rank 0 is the job's.
 */
static int clock_measure(halay_trainer_t *trainer, const halay_topology_t *topology)
{
    uint64_t own[CLOCK_BARRIERS + 1][2], zero[CLOCK_BARRIERS + 1][2]; /* the last row is the node */
    int64_t least = INT64_MIN, most = INT64_MAX;
    int rc = 0;
    if (topology->nnodes < 2 || topology->nranks != trainer->core.nranks)
        return 0;
    for (int i = 0; i < CLOCK_BARRIERS && !rc; i++) {
        own[i][0] = hlt_trainer_now_ns();
        rc = halay_barrier(trainer->control);
        own[i][1] = hlt_trainer_now_ns();
    }
    own[CLOCK_BARRIERS][0] = own[CLOCK_BARRIERS][1] = (uint64_t)topology->node;
    memcpy(zero, own, sizeof(zero));
    if (rc || (rc = halay_broadcast(zero, sizeof(zero) / sizeof(uint64_t), HALAY_UINT64, 0,
                                    trainer->control)) != 0)
        return rc;
    for (int i = 0; i < CLOCK_BARRIERS; i++) {
        int64_t low = (int64_t)(zero[i][0] - own[i][1]), high = (int64_t)(zero[i][1] - own[i][0]);
        least = low > least ? low : least;
        most = high < most ? high : most;
    }
    if (zero[CLOCK_BARRIERS][0] == own[CLOCK_BARRIERS][0])
        return 0;
    trainer->recording.clock.offset_ns = least + (most - least) / 2;
    trainer->recording.clock.error_ns = (uint64_t)(most - least) / 2;
    return 0;
}

int hlt_trainer_greet(halay_trainer_t *trainer)
{
    halay_topology_t topology = {.size = sizeof(topology)};
    struct hlt_greeting *own = &trainer->core.greetings[trainer->core.rank];
    greeting_fill(own);
    if (!halay_context_topology(trainer->context, &topology))
        snprintf(own->host, sizeof(own->host), "%.55s", topology.host);
    int rc = halay_allgather(HALAY_IN_PLACE, trainer->core.greetings, WORDS, HALAY_UINT64,
                             trainer->control);
    if (rc)
        return rc;
    for (int r = 0; r < trainer->core.nranks; r++) /* whatever they said */
        trainer->core.greetings[r].host[sizeof(own->host) - 1] = 0;
    settings_take(trainer, &topology);
    return clock_measure(trainer, &topology);
}
