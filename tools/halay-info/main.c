/* SPDX-License-Identifier: Apache-2.0 */
/* main.c - halay-info: what this installation of Halay is, and what it has found. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <halay/halay.h>

#include "../common/library.h"
#include "../common/nccl.h"
#include "../common/printed.h"
#include "info.h"

static const char help[] =
    "Usage: halay-info           version, plug-ins, processor, planners and variables\n"
    "       halay-info plan ...  a plan as text, with its proof (halay-info plan --help)\n"
    "       halay-info explain ...\n"
    "                            which algorithm a call gets and why (halay-info explain --help)\n"
    "       halay-info ps [JOB]  where the ranks of this machine's jobs are now\n"
    "       halay-info --version\n"
    "Exit status: 0; 1 halay_init() would refuse the variables, a plan was refused, or no "
    "algorithm\n"
    "serves a call; 2 wrong usage.\n";

static void print_version(void)
{
    printf("Halay %s", halay_version());
    char built[32];
    snprintf(built, sizeof built, "%d.%d.%d", HALAY_VERSION_MAJOR, HALAY_VERSION_MINOR,
             HALAY_VERSION_PATCH);
    if (strcmp(built, halay_version()))
        printf(" (halay-info was built with %s)", built);
    putchar('\n');
}

static int work(int argc, char **argv)
{
    char library[HLY_PATH_BYTES], reason[512] = "", nccl[1024];
    if (argc > 1 && !strcmp(argv[1], "plan"))
        return hly_info_plan(argc - 1, argv + 1);
    if (argc > 1 && !strcmp(argv[1], "explain"))
        return hly_info_explain(argc - 1, argv + 1);
    if (argc > 1 && !strcmp(argv[1], "ps"))
        return hly_info_ps(argc - 1, argv + 1);
    if (argc == 2 && !strcmp(argv[1], "--help")) {
        printf("%s\n%s\n%s\n%s", help, hly_info_plan_help, hly_info_explain_help, hly_info_ps_help);
        return 0;
    }
    if (argc == 2 && !strcmp(argv[1], "--version")) {
        print_version();
        return 0;
    }
    if (argc > 1) {
        fprintf(stderr, "halay-info: no such option: %s; see halay-info --help\n", argv[1]);
        return HLY_EXIT_USAGE;
    }
    const int refused = hly_info_check(reason, sizeof reason);
    print_version();
    hly_library_path(library);
    printf("library: %s\n", library);
    hly_info_plugins();
    hly_nccl_look(nccl, sizeof nccl);
    printf("NCCL: %s\n", nccl);
    hly_info_processor(!refused);
    hly_info_planners();
    hly_info_variables();
    printf("  %s%s\n", refused ? "REFUSED: " : "accepted", refused ? reason : "");
    hly_info_calibration();
    return refused != 0;
}

int main(int argc, char **argv)
{
    return hly_printed("halay-info", work(argc, argv), EXIT_FAILURE);
}
