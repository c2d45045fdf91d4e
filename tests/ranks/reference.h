/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reference.h - what a collective should give, computed serially and exactly: small integers, in
 * every type, so that no rounding excuses a difference.
 */
#ifndef TESTS_REFERENCE_H
#define TESTS_REFERENCE_H

#include <stddef.h>
#include <stdint.h>

#include <halay/halay.h>

/* Element i of rank's input for this operation, written to `to`. salt varies the data. */
void reference_input(halay_type_t type, halay_op_t op, int rank, size_t i, uint64_t salt, void *to);
/* Element i of the reduction over ranks 0 .. nranks-1, in rank order. */
void reference_result(halay_type_t type, halay_op_t op, int nranks, size_t i, uint64_t salt,
                      void *to);

#endif
