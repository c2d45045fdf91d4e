/* SPDX-License-Identifier: Apache-2.0 */
/* process.c - what the processes of other ranks do. */
#include "base/process.h"

#include <sys/wait.h>

#include "../../common/proc.h"

bool hly_process_was_killed(const halay_process_t *process)
{
    struct hly_proc_stat seen;
    return hly_proc_stat_of(process, &seen) && (seen.state == 'Z' || seen.state == 'X') &&
           WIFSIGNALED(seen.status);
}

enum hly_doing hly_process_look(const halay_process_t *process)
{
    struct hly_proc_stat seen;
    switch (hly_proc_stat_of(process, &seen) ? seen.state : 0) {
    case 'R':
        return HLY_DOING_RUNS;
    case 'S':
        return HLY_DOING_SLEEPS;
    case 'D':
        return HLY_DOING_DISK;
    case 'T':
    case 't':
        return HLY_DOING_STOPPED;
    default:
        return HLY_DOING_UNKNOWN;
    }
}
