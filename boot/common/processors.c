/* SPDX-License-Identifier: Apache-2.0 */
/* processors.c - as the core counts them for itself (src/context.c). */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* cpu_set_t */
#endif

#include "processors.h"

#include <sched.h>
#include <stdlib.h>
#include <sys/types.h>
#include <unistd.h>

int hly_boot_processors(void)
{
    cpu_set_t mine, all;
    pid_t launcher = getppid();
    const char *shared = getenv("HALAY_PROCESSORS");
    int most = shared ? (int)strtol(shared, NULL, 10) : 0;
    if (sched_getaffinity(0, sizeof mine, &mine))
        return most > 0 ? most : 1;
    if (launcher > 0 && !sched_getaffinity(launcher, sizeof all, &all))
        CPU_OR(&mine, &mine, &all);
    return CPU_COUNT(&mine) > most ? CPU_COUNT(&mine) : most;
}
