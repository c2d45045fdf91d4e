/* SPDX-License-Identifier: Apache-2.0 */
#include <halay/halay.h>
#include <stdio.h>
int main(void)
{
    halay_context_t *context;
    halay_comm_t *world;
    halay_topology_t here = {.size = sizeof(here)};
    if (halay_init(NULL, &context) || halay_comm_world(context, &world))
        return 1;
    halay_context_topology(context, &here);
    int n = here.rank + 1,
        rc = halay_allreduce(HALAY_IN_PLACE, &n, 1, HALAY_INT32, HALAY_SUM, world);
    printf("rank %d of %d: %d over %s\n", here.rank, here.nranks, n, here.transport);
    return halay_finalize(context) || rc;
}
