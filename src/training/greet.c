/* SPDX-License-Identifier: Apache-2.0 */
/*
 * greet.c - what ranks tell each other once, when the trainer is made: where they are, for the
 * texts of errors, HALAY_FUSION, of which the least counts for all, and what time it is on their
 * nodes.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trainer.h"

#define FUSION_BYTES   (UINT64_C(64) << 20)
#define FUSION_MAX     (UINT64_C(1) << 40)
#define GROUP_BYTES    (UINT64_C(64) << 10) /* for each rank; more leaves the caches */
#define CLOCK_BARRIERS 8
#define WORDS          (sizeof(struct hlt_greeting) / sizeof(uint64_t))

/* HALAY_FUSION in bytes; 0: nothing is fused. halay_init has checked it. */
static uint64_t fusion_bytes(void)
{
    const char *text = getenv("HALAY_FUSION");
    return text && *text ? strtoull(text, NULL, 10) : FUSION_BYTES;
}

/*
 * Nobody leaves a barrier before the last has come. So a rank's times around one, and rank 0's,
 * bound how far their clocks are apart: docs/decisions/0021. One node has one clock, and
 * needs no message; only in a trainer of all ranks rank 0 is the job's.
 */
static int clock_measure(halay_trainer_t *trainer, const halay_topology_t *topology)
{
    uint64_t own[CLOCK_BARRIERS + 1][2], zero[CLOCK_BARRIERS + 1][2]; /* the last row is the node */
    int64_t least = INT64_MIN, most = INT64_MAX;
    int rc = 0;
    if (topology->nnodes < 2 || topology->nranks != trainer->nranks)
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
    trainer->clock.offset_ns = least + (most - least) / 2;
    trainer->clock.error_ns = (uint64_t)(most - least) / 2;
    return 0;
}

int hlt_trainer_greet(halay_trainer_t *trainer)
{
    halay_topology_t topology = {.size = sizeof(topology)};
    struct hlt_greeting *own = &trainer->greetings[trainer->rank];
    own->fusion_bytes = fusion_bytes();
    if (!halay_context_topology(trainer->context, &topology))
        snprintf(own->host, sizeof(own->host), "%.55s", topology.host);
    int rc =
        halay_allgather(HALAY_IN_PLACE, trainer->greetings, WORDS, HALAY_UINT64, trainer->control);
    if (rc)
        return rc;
    for (int r = 0; r < trainer->nranks; r++) /* whatever they said */
        trainer->greetings[r].host[sizeof(own->host) - 1] = 0;
    uint64_t least = FUSION_MAX;
    for (int r = 0; r < trainer->nranks; r++)
        if (trainer->greetings[r].fusion_bytes < least)
            least = trainer->greetings[r].fusion_bytes;
    least /= HLT_BUFFERS;
    if (least > GROUP_BYTES * (uint64_t)trainer->nranks)
        least = GROUP_BYTES * (uint64_t)trainer->nranks;
    trainer->buffer_bytes = (size_t)least;
    return clock_measure(trainer, &topology);
}
