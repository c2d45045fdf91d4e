/* SPDX-License-Identifier: Apache-2.0 */
/*
 * job_lives ORDER [LIBRARY [PROGRAM]] - MPI and Halay in one process, whatever has started it.
 * ORDER is made of i (MPI_Init), f (MPI_Finalize), h (a life of Halay, with a sum over all ranks),
 * e (what the environment has for a secret) and c (runs PROGRAM, a line of the shell). Each h says
 * "rank R of N", or why not, which is the end.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

static void show_secret(void)
{
    static char text[1 << 18];
    const char *now = getenv("HALAY_SECRET"), *began = "";
    FILE *file = fopen("/proc/self/environ", "re");
    MUST(file);
    const size_t bytes = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    for (const char *at = text; at < text + bytes; at += strlen(at) + 1)
        if (!strncmp(at, "HALAY_SECRET=", 13))
            began = at + 13;
    printf("secret '%s', at first '%s'\n", now ? now : "", began);
}

/* Two that are alone at once would make, and remove, the same folder. */
static void own_folder(void)
{
    char path[4096], *here = getcwd(path, sizeof path - 16);
    if (!here || getenv("OMPI_COMM_WORLD_SIZE") || getenv("SLURM_STEP_ID"))
        return;
    strcat(path, "/mpi.XXXXXX");
    MUST(mkdtemp(path) && !setenv("OMPI_MCA_orte_tmpdir_base", path, 1));
}

static void call_mpi(const char *library, char what)
{
    void *mpi = dlopen(library, RTLD_NOW | RTLD_GLOBAL);
    CHECK(mpi, "%s", dlerror());
    int (*initialize)(int *, char ***), (*finalize)(void);
    *(void **)&initialize = dlsym(mpi, "MPI_Init");
    *(void **)&finalize = dlsym(mpi, "MPI_Finalize");
    MUST(initialize && finalize);
    if (what == 'i')
        own_folder();
    if (what != 'l')
        MUST(!(what == 'i' ? initialize(NULL, NULL) : finalize()));
}

int main(int argc, char **argv)
{
    MUST(argc > 1);
    const char *library = argc > 2 ? argv[2] : "libmpi.so.40";
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (strpbrk(argv[1], "if")) /* Halay has to know that an MPI is to come: docs/mpirun.md */
        call_mpi(library, 'l');
    for (const char *at = argv[1]; *at; at++) {
        if (*at == 'h')
            live();
        else if (*at == 'e')
            show_secret();
        else if (*at == 'c')
            MUST(argc > 3 && system(argv[3]) >= 0);
        else
            call_mpi(library, *at);
    }
    return 0;
}
