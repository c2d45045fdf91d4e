/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_transport_verbs.c - the contract on a queue pair, between ends in one process. Needs an RDMA
 * device; a Soft-RoCE device will do.
 *
 *   test_unit_transport_verbs [ends [case]]
 *
 * Left out: `deregister`. There a put to memory that is not registered any more must fail and leave
 * the peer alone; a queue pair does not survive it (docs/decisions/0011-verbs-spike.md).
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

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

static int on_poll(halay_transport_t *t, int kind)
{
    halay_event_t event;
    return halay_transport_v2_verbs.poll(t, &event, 1) == 1 && event.kind == kind;
}

/* One end outlives 40 others, of which it can hold 16: the place of one that left is used again. */
static int run_places(void)
{
    const halay_transport_ops_t *ops = &halay_transport_v2_verbs;
    halay_transport_params_t params = {.size = sizeof(params), .deadline_ns = 10000000000};
    halay_transport_t *stays, *leaves;
    halay_ep_t *ep;
    uint8_t address[64];
    int bad = ops->open(&params, &stays);
    for (uint64_t i = 1; i <= 40 && !bad; i++) {
        size_t bytes = sizeof(address);
        time_t until = time(NULL) + 20;
        params.self.lo = i;
        bad = ops->open(&params, &leaves) || ops->address(leaves, address, &bytes) ||
              ops->connect(stays, params.self, address, bytes, &ep);
        while (!bad && ops->send(stays, ep, 0, "x", 1, NULL, 0, 0) == HALAY_EAGAIN)
            bad = on_poll(stays, HALAY_EVENT_FAILED) || on_poll(leaves, HALAY_EVENT_FAILED) ||
                  time(NULL) > until;
        while (!bad && !on_poll(leaves, HALAY_EVENT_MESSAGE))
            bad = time(NULL) > until;
        ops->close(leaves);
        while (!bad && !on_poll(stays, HALAY_EVENT_FAILED))
            bad = time(NULL) > until;
        ops->disconnect(stays, ep);
        printf("%s", bad ? "FAIL places\n" : "");
    }
    ops->close(stays);
    printf("%s", bad ? "" : "ok   places\n");
    return bad != 0;
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
    return bad + run_places() > 0;
}
