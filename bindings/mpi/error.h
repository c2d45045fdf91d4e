/* SPDX-License-Identifier: Apache-2.0 */
/* error.h - error handlers, and how an error that a function of MPI has found reaches them. */
#ifndef HLY_MPI_ERROR_H
#define HLY_MPI_ERROR_H

#include "core.h"

struct hly_mpi_errhandler {
    struct hly_mpi_head head;
    enum hly_mpi_kind of; /* of which objects; 0: any (predefined) */
    hly_mpi_fn *fn;       /* NULL: predefined */
};
extern struct hly_mpi_errhandler hly_mpi_errors_are_fatal, hly_mpi_errors_abort,
    hly_mpi_errors_return;

/* The face of this library: face.c, which is compiled once for each. */
extern const struct hly_mpi_face hly_mpi_this_face;

/* Calls the error handler of the object, or of MPI_COMM_SELF if it is NULL, and returns the code.
 */
int hly_mpi_raise(enum hly_mpi_kind kind, void *object, int code);

/* The text of a code, as MPI_Error_string gives it. Valid until the thread's next call. */
const char *hly_mpi_error_text(int code);

/* Says on standard error where in the program this call stands: place.c. */
void hly_mpi_place_tell(void);

#endif
