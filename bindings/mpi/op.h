/* SPDX-License-Identifier: Apache-2.0 */
/* op.h - what op.c and op_user.c share. */
#ifndef HLY_MPI_OP_H
#define HLY_MPI_OP_H

#include "type.h"

/* op_user.c: Halay's operation for a user's one on elements of a type, or for a kernel. */
int hly_mpi_op_slot(const char *function, struct hly_mpi_op *op, struct hly_mpi_type *type,
                    halay_op_t *found);
int hly_mpi_op_slot_of_kernel(hly_mpi_kernel *kernel, halay_op_t *found);
/* Calls a user's function for count elements, which lie in memory as the type says. */
void hly_mpi_op_call(const struct hly_mpi_op *op, const void *in, void *inout, int64_t count,
                     struct hly_mpi_type *type);
/* Does Halay reduce elements of the named type by an operation of its own? Then *found and *as are
 * those, *each of them for one element. */
bool hly_mpi_op_native(const struct hly_mpi_op *op, int place, halay_op_t *found, halay_type_t *as,
                       int64_t *each);

#endif
