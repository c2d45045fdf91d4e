/* SPDX-License-Identifier: Apache-2.0 */
/* meet_process.c - a process of test_meet.c: one open for each letter that it reads. */
#include "meet_process.h"

#include <stdio.h>
#include <unistd.h>

#include <halay/launch.h>

#include "../check.h"

void meet_keep_text(void *arg, int level, const char *text)
{
    struct said *said = arg;
    if (level == 0 || level == HALAY_LOG_TOLD)
        snprintf(said->text, sizeof said->text, "%s", text);
}

void meet_process(int in, int out, const char *at)
{
    const halay_boot_ops_t *boot_ops = &halay_boot_v4_meet;
    halay_boot_rank_t given = {
        .size = sizeof given, .nranks = 3, .address = at, .secret = "of all"};
    halay_boot_t *boot = NULL;
    uint64_t deadline_ns = 20000000000;
    char order;
    while (read(in, &order, 1) == 1) {
        struct said said = {0};
        halay_boot_info_t info = {.size = sizeof info, .processors = 64};
        halay_place_t first = {.size = sizeof first};
        if (order == 's') { /* a short deadline */
            deadline_ns = 3000000000;
            continue;
        }
        if (order == 'x')
            _exit(3);
        if (order == 'l') { /* the rank that follows is lost */
            MUST(read(in, &order, 1) == 1);
            boot_ops->lost(boot, order - '0');
            continue;
        }
        if (order == 'g') { /* it leaves; its process stays */
            boot_ops->leave(boot);
            continue;
        }
        if (order == 'n') {
            said.rc = boot_ops->newcomers(boot, &said.rank);
            MUST(write(out, &said, sizeof said) == sizeof said);
            continue;
        }
        boot_ops->close(boot);
        boot = NULL;
        boot_ops = order == 'o' ? &halay_boot_v4_meet : &halay_boot_v4_tcp;
        given.rank = order - '0';
        said.rc = boot_ops->open(order == 'o' ? NULL : &given, meet_keep_text, &said, deadline_ns,
                                 &info, &boot);
        if (!said.rc && !boot_ops->get(boot, 0, &first)) {
            said.rank = info.rank;
            said.nranks = info.nranks;
            said.nnodes = info.nnodes;
            said.local_rank = info.local_rank;
            said.epoch = info.epoch;
            said.first = first.process;
        }
        if (write(out, &said, sizeof said) != sizeof said)
            _exit(4);
    }
    _exit(0);
}
