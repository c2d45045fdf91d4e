/* SPDX-License-Identifier: Apache-2.0 */
/* shapes.h - which ranks share a node: kinds of shapes to try, and one's own as text. */
#ifndef HALAY_PROVE_SHAPES_H
#define HALAY_PROVE_SHAPES_H

#include <halay/plan.h>

uint32_t hly_shape_kinds(void);
const char *hly_shape_kind_name(uint32_t kind);

/* HALAY_EAGAIN: for so many ranks it is the same as a kind before. HALAY_ENOMEM. */
int hly_shape_of_kind(uint32_t kind, uint32_t nranks, halay_shape_t **shape);

/*
 * "3+2+2": nodes of so many ranks. "4x2": 4 nodes of 2 ranks; also as one of several terms.
 * "cyclic:3+2+2": the same nodes, ranks dealt out round robin while a node has room. HALAY_EINVAL:
 * none of these, or more than ranks_max ranks.
 */
int hly_shape_parse(const char *text, uint32_t ranks_max, halay_shape_t **shape);

#endif
