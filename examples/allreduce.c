/* SPDX-License-Identifier: Apache-2.0 */
/* Sums a vector over all ranks. Runs alone, too. */
#include <halay/halay.h>
#include <stdio.h>

int main(void)
{
    halay_context_t *context;
    halay_comm_t *world;
    halay_topology_t here = {.size = sizeof(here)};
    if (halay_init(NULL, &context))
        return 1; /* it has said why */
    halay_comm_world(context, &world);
    halay_context_topology(context, &here);

    double data[4] = {1, 10, 100, here.rank};
    int rc = halay_allreduce(HALAY_IN_PLACE, data, 4, HALAY_FLOAT64, HALAY_SUM, world);
    if (rc) {
        halay_verdict_t verdict = {.size = sizeof(verdict)};
        halay_comm_verdict(world, &verdict);
        fprintf(stderr, "%s: %s\n", halay_strerror(rc), verdict.text);
    } else {
        printf("rank %d of %d on %s: %g %g %g %g\n", here.rank, here.nranks, here.host, data[0],
               data[1], data[2], data[3]);
    }
    halay_finalize(context);
    return rc != 0;
}
