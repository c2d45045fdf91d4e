/* SPDX-License-Identifier: Apache-2.0 */
/* face_fatal.c - errors that end a program, and what it says then. Starts itself once for each, and
 * reads standard error. Prints what is wrong, and exits with 1. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

static int rank_of_freed(void)
{
    int rank;
    MPI_Comm dup, old;
    MPI_Init(NULL, NULL);
    MPI_Comm_dup(MPI_COMM_WORLD, &dup);
    old = dup;
    MPI_Comm_free(&dup);
    return MPI_Comm_rank(old, &rank);
}

static int too_early(void)
{
    int rank;
    return MPI_Comm_rank(MPI_COMM_WORLD, &rank);
}

static int too_late(void)
{
    int rank;
    MPI_Init(NULL, NULL);
    MPI_Finalize();
    return MPI_Comm_rank(MPI_COMM_WORLD, &rank);
}

static int type_of_null(void)
{
    int size;
    MPI_Init(NULL, NULL);
    return MPI_Type_size(MPI_DATATYPE_NULL, &size);
}

/* Does not end: the error is returned, and the function says once that it is not there. */
static int absent(void)
{
    MPI_File file;
    MPI_Init(NULL, NULL);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    for (int i = 0; i < 3; i++) {
        int class = 0,
            code = MPI_File_open(MPI_COMM_WORLD, "none", MPI_MODE_RDONLY, MPI_INFO_NULL, &file);
        MPI_Error_class(code, &class);
        if (class != MPI_ERR_UNSUPPORTED_OPERATION)
            return 3;
    }
    MPI_Finalize();
    return 0;
}

static const struct {
    int (*run)(void);
    const char *says;
    int ends; /* with an error */
} cases[] = {
    {rank_of_freed, "rank 0: MPI_ERR_COMM: MPI_Comm_rank: the handle of a communicator", 1},
    {too_early, "MPI_Comm_rank: the communicator does not exist before MPI_Init", 1},
    {too_late, "MPI_Comm_rank: the communicator does not exist after MPI_Finalize", 1},
    {type_of_null, "rank 0: MPI_ERR_TYPE: MPI_Type_size", 1},
    {absent, "MPI_File_open: this MPI (Halay) does not have it", 0},
};

int main(int argc, char **argv)
{
    int wrong = 0;
    if (argc > 1) /* a case that should have ended the process returns 9 if it has not */
        return cases[atoi(argv[1])].run() ? 9 : 0;
    for (int i = 0; i < (int)(sizeof cases / sizeof cases[0]); i++) {
        char command[4096], text[65536];
        snprintf(command, sizeof command, "'%s' %d 2>&1", argv[0], i);
        FILE *pipe = popen(command, "r");
        size_t n = pipe ? fread(text, 1, sizeof text - 1, pipe) : 0;
        int status = pipe ? pclose(pipe) : -1;
        text[n] = 0;
        const char *at = strstr(text, cases[i].says);
        int code = WIFEXITED(status) ? WEXITSTATUS(status) : 256;
        if (!at || (code != 0) != cases[i].ends || code == 9) {
            printf("case %d has exited with %d, and said: %s\n", i, code, text);
            wrong++;
        } else if (!cases[i].ends && strstr(at + 1, cases[i].says)) {
            printf("case %d has said it twice: %s\n", i, text);
            wrong++;
        }
    }
    return wrong != 0;
}
