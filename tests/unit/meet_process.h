/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MEET_PROCESS_H
#define MEET_PROCESS_H

#include <halay/boot.h>

extern const halay_boot_ops_t halay_boot_v4_meet, halay_boot_v4_tcp;

struct said { /* by a process, of an open */
    int rc, rank, nranks, nnodes, local_rank;
    uint64_t epoch;
    halay_process_t first; /* of rank 0 */
    char text[600];
};

/* An open's log, with a struct said: the last text that was told. */
void meet_keep_text(void *arg, int level, const char *text);
/* Does as it reads, and writes a struct said for each open. at: where ranks by argument meet. */
_Noreturn void meet_process(int in, int out, const char *at);

#endif
