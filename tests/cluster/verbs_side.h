/* SPDX-License-Identifier: Apache-2.0 */
/* verbs_side.h - ranks meet beside Halay, so that it is counted nowhere: over TCP, at MASTER_ADDR
 * and the port after MASTER_PORT. One job a process. */
#ifndef HALAY_TESTS_VERBS_SIDE_H
#define HALAY_TESTS_VERBS_SIDE_H

#include <stddef.h>
#include <stdint.h>

void verbs_side_open(int rank, int nranks);
/* values[] become their sums over all ranks: all have called when it returns. */
void verbs_side_sum(uint64_t values[], size_t n);
void verbs_side_close(void);

#endif
