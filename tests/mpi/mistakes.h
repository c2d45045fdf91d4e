/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mistakes.h - small wrong programs. mistakes_*.c have a table each; mistakes.c runs one by its
 * name; mistakes.py runs all and judges what they say.
 */
#ifndef MISTAKES_H
#define MISTAKES_H

#include <mpi.h>

enum mistake_end {
    ONE = 'e',  /* the rank that makes it gets an error, which ends the job */
    ALL = 'a',  /* all ranks get the same error */
    WAIT = 'w', /* ranks wait for ever: they say for whom, and end by the deadline */
    DIES = 'd', /* a rank ends without MPI_Finalize: the job ends, and that rank is named */
    TOLD = 't', /* the program ends well, and a line on standard error names the mistake */
    FINE = 'f', /* MPI permits it, or Halay does what was meant: the result is checked */
    OPEN = 'o'  /* Halay does not find it */
};
struct mistake {
    const char *name;
    int ranks;
    enum mistake_end ends;
    const char *kind; /* as benchmarks of wrong programs name them */
    const char *says; /* what standard error has to have */
    int (*run)(
        int rank); /* the result is only read where it ends FINE or TOLD: 0, or it is wrong */
    int bare;      /* it calls MPI_Init itself */
};
extern const struct mistake mistakes_collective[], mistakes_arguments[], mistakes_message[],
    mistakes_request[], mistakes_handle[], mistakes_life[];

/* MPI_COMM_WORLD's copy. */
static inline MPI_Comm copy_of_world(void)
{
    MPI_Comm copy;
    MPI_Comm_dup(MPI_COMM_WORLD, &copy);
    return copy;
}
/* The two groups of an intercommunicator: even and odd ranks. */
static inline MPI_Comm even_and_odd(int rank)
{
    MPI_Comm half, inter;
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, rank % 2 ? 0 : 1, 7, &inter);
    return inter;
}

#endif
