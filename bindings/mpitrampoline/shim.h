/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shim.h - MPI's functions over Halay, for programs that load an MPI through MPItrampoline: JAX
 * (docs/decisions/frameworks.md#0116). The ABI is MPItrampoline's: handles are words, constants are
 * variables.
 */
#ifndef HALAY_MPI_SHIM_H
#define HALAY_MPI_SHIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <halay/halay.h>

#include "names.h"

typedef uintptr_t word; /* a handle, of whatever kind */

enum { NONE = 0, WORLD = 1, SELF = 2 }; /* communicators; others are addresses of struct comm */

#define X(name, value) MPI_##name = (value),
enum { MPI_INTS(X) };
#undef X

struct comm {
    halay_comm_t *halay; /* NULL: it has failed, or there is no job (any more): `code`, `why` */
    int rank, size;
    unsigned life; /* of the job in which it was made */
    int code;
    char why[1024];
};

struct status { /* MPI_Status: room for those of other libraries, then what programs read */
    size_t theirs[3];
    int source, tag, error;
};

/* ---------------------------------------------------------------- job.c */

/* The communicator of a handle; one that has failed, if there is none. Never NULL. */
struct comm *comm_of(word handle);
/* Is the job over in which this communicator was made? */
bool is_over(const struct comm *comm);
/* Is this a child that was forked since MPI_Init? */
bool is_forked(void);
unsigned life_of_job(void);
/* Has nobody told this process of a job? */
bool is_alone(void);

/* What MPI_Error_string tells this thread next. Returns MPI's number of the error. */
int fail(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* HALAY_OK, or why no call can be made on it. */
int check(const struct comm *comm);
/* The same, and the job is not left before call_end(). */
int call_begin(const struct comm *comm);
void call_end(void);
/* Ends a call with fail(), or, by code 0, with MPI_SUCCESS. */
int result(const struct comm *comm, int code);
int check_type(const char *function, int count, word datatype, halay_type_t *type);
int check_op(const char *function, word op, halay_op_t *found);

#endif
