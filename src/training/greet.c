/* SPDX-License-Identifier: Apache-2.0 */
/*
 * greet.c - what ranks tell each other once, when the trainer is made: where they are, for the
 * texts of errors, and HALAY_FUSION, of which the least counts for all.
 */
#include <stdio.h>
#include <stdlib.h>

#include "trainer.h"

#define FUSION_BYTES (UINT64_C(64) << 20)
#define FUSION_MAX   (UINT64_C(1) << 40)
#define GROUP_BYTES  (UINT64_C(64) << 10) /* a rank: more does not pay, and leaves the caches */
#define WORDS        (sizeof(struct hly_greeting) / sizeof(uint64_t))

/* Bytes; 0 fuses nothing. What is no number is as if it were not set, and said. */
static uint64_t fusion_bytes(int rank)
{
    const char *text = getenv("HALAY_FUSION");
    char *end = NULL;
    if (!text)
        return FUSION_BYTES;
    unsigned long long bytes = strtoull(text, &end, 10);
    if (text[0] >= '0' && text[0] <= '9' && !*end && bytes <= FUSION_MAX)
        return bytes;
    if (rank == 0)
        fprintf(stderr,
                "halay: HALAY_FUSION=%s is not a number of bytes up to 2^40; %llu is used\n", text,
                (unsigned long long)FUSION_BYTES);
    return FUSION_BYTES;
}

int hly_trainer_greet(halay_trainer_t *trainer)
{
    halay_topology_t topology = {.size = sizeof(topology)};
    struct hly_greeting *own = &trainer->greetings[trainer->rank];
    own->fusion_bytes = fusion_bytes(trainer->rank);
    if (!halay_context_topology(trainer->context, &topology))
        snprintf(own->host, sizeof(own->host), "%.55s", topology.host);
    int rc =
        halay_allgather(HALAY_IN_PLACE, trainer->greetings, WORDS, HALAY_UINT64, trainer->control);
    if (rc)
        return rc;
    uint64_t least = FUSION_MAX;
    for (int r = 0; r < trainer->nranks; r++)
        if (trainer->greetings[r].fusion_bytes < least)
            least = trainer->greetings[r].fusion_bytes;
    least /= HLY_SLOTS;
    if (least > GROUP_BYTES * (uint64_t)trainer->nranks)
        least = GROUP_BYTES * (uint64_t)trainer->nranks;
    trainer->slot_bytes = (size_t)least;
    return 0;
}
