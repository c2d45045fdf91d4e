/* SPDX-License-Identifier: Apache-2.0 */
/* mistakes.c - runs one of the wrong programs by its name. --list: a row for each. */
#include "mistakes.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const struct mistake *const tables[] = {mistakes_collective, mistakes_arguments,
                                               mistakes_message,    mistakes_request,
                                               mistakes_handle,     mistakes_life};
#define TABLES ((int)(sizeof tables / sizeof tables[0]))

/* Waits a moment, so that each rank can say what it has got before one of them ends the job. */
static void say(MPI_Comm *comm, int *code, ...)
{
    char text[MPI_MAX_ERROR_STRING];
    int length, rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Error_string(*code, text, &length);
    fprintf(stderr, "rank %d: %s\n", rank, text);
    usleep(300000);
    MPI_Abort(*comm, 3);
}

static int run(const struct mistake *m, int argc, char **argv)
{
    MPI_Errhandler handler;
    int rank = 0, rc;
    if (m->bare)
        return m->run(-1);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (m->ends == ALL) {
        MPI_Comm_create_errhandler(say, &handler);
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, handler);
        MPI_Errhandler_free(&handler);
    }
    rc = m->run(rank);
    if (rc && (m->ends == FINE || m->ends == TOLD)) {
        fprintf(stderr, "rank %d: %s: the result is wrong: %d\n", rank, m->name, rc);
        return 5;
    }
    MPI_Finalize();
    return 0;
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "--list";
    for (int t = 0; t < TABLES; t++)
        for (const struct mistake *m = tables[t]; m->name; m++) {
            if (!strcmp(name, "--list"))
                printf("%s\t%d\t%c\t%s\t%s\n", m->name, m->ranks, (char)m->ends, m->kind, m->says);
            else if (!strcmp(name, m->name))
                return run(m, argc, argv);
        }
    return strcmp(name, "--list") ? 6 : 0;
}
