/* SPDX-License-Identifier: Apache-2.0 */
/* elastic_options.h - the options of a job whose ranks change: a part of options.c. */
#ifndef HALAYRUN_ELASTIC_OPTIONS_H
#define HALAYRUN_ELASTIC_OPTIONS_H

#include "options.h"

enum {
    HLY_ELASTIC_FIRST = 256,
    HLY_ELASTIC_MIN = HLY_ELASTIC_FIRST,
    HLY_ELASTIC_MAX,
    HLY_ELASTIC_RESETS,
    HLY_ELASTIC_TIMEOUT,
    HLY_ELASTIC_DISCOVERY,
    HLY_ELASTIC_SLOTS,
    HLY_ELASTIC_COOL,
    HLY_ELASTIC_BLACKLIST
};

#define HLY_ELASTIC_NAMES                                                                          \
    {"min-np", 1, 0, HLY_ELASTIC_MIN}, {"max-np", 1, 0, HLY_ELASTIC_MAX},                          \
        {"min-num-proc", 1, 0, HLY_ELASTIC_MIN}, {"max-num-proc", 1, 0, HLY_ELASTIC_MAX},          \
        {"reset-limit", 1, 0, HLY_ELASTIC_RESETS}, {"elastic-timeout", 1, 0, HLY_ELASTIC_TIMEOUT}, \
        {"host-discovery-script", 1, 0, HLY_ELASTIC_DISCOVERY},                                    \
        {"slots-per-host", 1, 0, HLY_ELASTIC_SLOTS}, {"blacklist", 1, 0, HLY_ELASTIC_BLACKLIST},   \
    {                                                                                              \
        "blacklist-cooldown-range", 1, 0, HLY_ELASTIC_COOL                                         \
    }

#define HLY_ELASTIC_HELP                                                                           \
    "  --min-np A, --min-num-proc A\n"                                                             \
    "                       a process that fails is started again, and the job goes on with A "    \
    "at\n"                                                                                         \
    "                       least; with this, --max-np or a script, ranks change (see the "        \
    "manual)\n"                                                                                    \
    "  --max-np B, --max-num-proc B\n"                                                             \
    "                       never more than B processes (-np if not given)\n"                      \
    "  --host-discovery-script COMMAND\n"                                                          \
    "                       asked each second how many there may be: lines of \"host[:slots]\"\n"  \
    "  --slots-per-host K   of a host in them that has no number (1)\n"                            \
    "  --reset-limit N      end the job when its ranks have to meet again for the N + 1st time\n"  \
    "  --elastic-timeout S  how long fewer than A may wait for others (600)\n"                     \
    "  --blacklist-cooldown-range A B\n"                                                           \
    "                       start a process again after A seconds, then 2 A, ..., B (1 60)\n"      \
    "  --blacklist slots|hosts\n"                                                                  \
    "                       a failure costs a process its place, or its whole host (slots)\n"

void hly_elastic_default(struct hly_options *options);
/* As take() in options.c. */
int hly_elastic_take(struct hly_options *options, int option, char **argv);
/* Do they fit together? -1, or the status to exit with, said. */
int hly_elastic_check(struct hly_options *options);
/* Once it is known how many ranks the job begins with: the same. */
int hly_elastic_settle(struct hly_options *options);

#endif
