/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_transport_verbs.c - the contract on a queue pair, between ends in one process. Needs an RDMA
 * device; a Soft-RoCE device will do.
 *
 *   test_unit_transport_verbs [ends [case]]
 *
 * Left out: `deregister`, which expects a peer to survive a put to memory that is not registered
 * any more. The contract does not promise that: a queue pair ends
 * (docs/decisions/0011-verbs-spike.md).
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "transport_body.h"

extern const halay_transport_ops_t halay_transport_v2_verbs;

static int device_count(void)
{
    DIR *folder = opendir("/sys/class/infiniband");
    struct dirent *one;
    int n = 0;
    while (folder && (one = readdir(folder)) != NULL)
        n += one->d_name[0] != '.';
    if (folder)
        closedir(folder);
    return n;
}

int main(int argc, char **argv)
{
    static const char *const cases[] = {"table",        "late_open",   "nobody",     "secret",
                                        "close",        "close_busy",  "disconnect", "reopen",
                                        "messages",     "many_to_one", "flood",      "ping_pong",
                                        "wake_by_many", "idle",        "put",        "put_bounds"};
    struct transport_body body = {.ops = &halay_transport_v2_verbs,
                                  .n = argc > 1 ? atoi(argv[1]) : 2,
                                  .flags = TRANSPORT_BODY_SECRET | TRANSPORT_BODY_SLOW};
    int bad = 0;
    if (device_count() == 0) {
        printf("skipped: /sys/class/infiniband shows no RDMA device\n");
        return 77;
    }
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (argc < 3 || !strcmp(argv[2], cases[i]))
            bad += transport_body_run(&body, cases[i]) != 0;
    }
    return bad > 0;
}
