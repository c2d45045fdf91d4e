/* SPDX-License-Identifier: Apache-2.0 */
/* between.h - which transport serves between nodes. */
#ifndef HLY_BETWEEN_H
#define HLY_BETWEEN_H

#include "base/context.h"

/* The transport between nodes that ranks choose alike; why it is that; the rows. */
enum { HLY_BETWEEN_BYTES = 448 };
const char *hly_between(const halay_context_t *context);
/* name, over: of the transport that was opened. */
void hly_between_text(const halay_context_t *context, const char *name, const char *over,
                      char *text, size_t bytes);
/* Where only some nodes have RDMA nobody uses it; one rank says so. */
void hly_between_warn(halay_context_t *context);
void hly_between_rows(char *text, size_t bytes);

#endif
