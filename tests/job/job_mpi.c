/* SPDX-License-Identifier: Apache-2.0 */
/*
 * job_mpi ORDER [LIBRARY] - MPI and Halay in one process, whatever has started it. ORDER is made of
 * i (MPI_Init), f (MPI_Finalize) and h (a life of Halay, with a sum over all ranks). Each h says
 * "rank R of N", or why not, which is the end.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>

#include <halay/halay.h>

#include "../check.h"

static void live(void)
{
    char why[768] = "";
    int rank, nranks;
    int64_t one = 1, sum = 0;
    halay_context_t *context;
    halay_comm_t *world;
    halay_config_t config = HALAY_CONFIG_INIT;
    config.error = why;
    config.error_bytes = sizeof why;
    if (halay_init(&config, &context)) {
        printf("refused: %s\n", why);
        exit(3);
    }
    MUST(!halay_comm_world(context, &world));
    MUST(!halay_comm_rank(world, &rank) && !halay_comm_size(world, &nranks));
    MUST(!halay_allreduce(&one, &sum, 1, HALAY_INT64, HALAY_SUM, world) && sum == nranks);
    printf("rank %d of %d\n", rank, nranks);
    MUST(!halay_finalize(context));
}

int main(int argc, char **argv)
{
    MUST(argc > 1);
    void *mpi = dlopen(argc > 2 ? argv[2] : "libmpi.so.40", RTLD_NOW | RTLD_GLOBAL);
    CHECK(mpi, "%s", dlerror());
    int (*initialize)(int *, char ***), (*finalize)(void);
    *(void **)&initialize = dlsym(mpi, "MPI_Init");
    *(void **)&finalize = dlsym(mpi, "MPI_Finalize");
    MUST(initialize && finalize);
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (const char *at = argv[1]; *at; at++) {
        if (*at == 'h')
            live();
        else
            MUST(!(*at == 'i' ? initialize(NULL, NULL) : finalize()));
    }
    return 0;
}
