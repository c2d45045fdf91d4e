/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_transport_verbs.c - the contract on a queue pair, between ends in one process. Needs an RDMA
 * device; a Soft-RoCE device will do.
 *
 *   test_unit_transport_verbs [ends [case]]
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

#include "transport_body.h"

extern const halay_transport_ops_t halay_transport_v7_verbs;

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
    struct transport_body body = {.ops = &halay_transport_v7_verbs,
                                  .n = argc > 1 ? atoi(argv[1]) : 2,
                                  .flags = TRANSPORT_BODY_SECRET | TRANSPORT_BODY_SLOW |
                                           TRANSPORT_BODY_BREAKS};
    if (device_count() == 0) {
        printf("skipped: /sys/class/infiniband shows no RDMA device\n");
        return 77;
    }
    return transport_body_run(&body, argc > 2 ? argv[2] : NULL);
}
