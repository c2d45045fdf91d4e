/* SPDX-License-Identifier: Apache-2.0 */
/* ps.c - `halay-info ps`: where the ranks of this machine's jobs are now. */
#include <stdio.h>
#include <string.h>

#include "../common/flight.h"
#include "info.h"

#define SHOWN 1024

const char hly_info_ps_help[] =
    "Usage: halay-info ps [JOB]\n"
    "Says of the ranks of this user's jobs on this machine, or of one job (its name, or the "
    "number\n"
    "of halayrun's process or of a rank's): in which call each is, in which step, for whom it\n"
    "waits; or that it is in the program's code, stopped, dead; and who keeps calls from their\n"
    "end.\n";

static void print(void *arg, const char *text)
{
    (void)arg;
    printf("  %s\n", text);
}

int hly_info_ps(int argc, char **argv)
{
    hly_flights_t all;
    if (argc == 2 && !strcmp(argv[1], "--help")) {
        fputs(hly_info_ps_help, stdout);
        return 0;
    }
    if (argc > 2 || (argc == 2 && argv[1][0] == '-')) {
        fprintf(stderr, "halay-info: see halay-info ps --help\n");
        return HLY_EXIT_USAGE;
    }
    if (hly_flights_find(argc == 2 ? argv[1] : NULL, &all)) {
        fprintf(stderr, "halay-info: no memory\n");
        return 1;
    }
    for (uint32_t i = 0, n; i < all.n; i += n) {
        for (n = 1; i + n < all.n && !strcmp(all.list[i]->head.job, all.list[i + n]->head.job);)
            n++;
        const hly_flights_t job = {all.list + i, n};
        printf("job %s: %u of %d ranks\n", all.list[i]->head.job, n, all.list[i]->head.nranks);
        hly_flights_tell(&job, SHOWN, print, NULL);
    }
    if (!all.n)
        fprintf(stderr, "halay-info: no such ranks on this machine\n");
    const int status = all.n ? 0 : 1;
    hly_flights_free(&all);
    return status;
}
