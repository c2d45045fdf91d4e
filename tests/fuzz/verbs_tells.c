/* SPDX-License-Identifier: Apache-2.0 */
/* What a peer tells of its queue pairs, and the pairs that follow from it. */
#include "fuzz.h"
#include "transports/verbs/peer.c" /* NOLINT(bugprone-suspicious-include) */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct fuzz f = {data, bytes};
    hly_verbs_tell_t mine = {0}, its;
    hly_verbs_lane_plan_t plan[HLY_VERBS_RAILS];
    fuzz_take(&f, &mine, bytes < sizeof(mine) ? bytes : sizeof(mine)); /* in part the same */
    uint8_t *tells = malloc(bytes + 1);
    FUZZ_WANT(tells);
    memcpy(tells, data, bytes);
    if (!tell_read(&its, tells, bytes) && !tell_read(&mine, (uint8_t *)&mine, sizeof(mine))) {
        const int n = hly_verbs_map(mine.ports, (int)mine.nports, its.ports, (int)its.nports,
                                    bytes & 1, plan);
        FUZZ_WANT(n >= 0 && n <= HLY_VERBS_RAILS);
        hly_verbs_map_hash(mine.ports, its.ports, bytes & 1, plan, n);
        for (int i = 0; i < n; i++)
            FUZZ_WANT(plan[i].mine < (int)mine.nports && plan[i].its < (int)its.nports);
    }
    free(tells);
    return 0;
}
