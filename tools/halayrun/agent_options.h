/* SPDX-License-Identifier: Apache-2.0 */
/* agent_options.h - the options of agents and their heads: a part of options.c. */
#ifndef HALAYRUN_AGENT_OPTIONS_H
#define HALAYRUN_AGENT_OPTIONS_H

#include "options.h"

enum {
    HLY_AGENT_FIRST = 512,
    HLY_AGENT_COUNT = HLY_AGENT_FIRST,
    HLY_AGENT_LISTEN,
    HLY_AGENT_SECRET,
    HLY_AGENT_START,
    HLY_AGENT_HEAD,
    HLY_AGENT_NAME
};

#define HLY_AGENT_NAMES                                                                            \
    {"agents", 1, 0, HLY_AGENT_COUNT}, {"listen", 1, 0, HLY_AGENT_LISTEN},                         \
        {"secret-file", 1, 0, HLY_AGENT_SECRET}, {"start-agent", 1, 0, HLY_AGENT_START},           \
        {"agent", 1, 0, HLY_AGENT_HEAD},                                                           \
    {                                                                                              \
        "agent-name", 1, 0, HLY_AGENT_NAME                                                         \
    }

#define HLY_AGENT_HELP                                                                             \
    "  --agents N           wait for N agents, which bring places on other nodes; -np of a "       \
    "program\n"                                                                                    \
    "                       is of this machine then, and may be left out\n"                        \
    "  --listen [IP:]PORT   where agents come to (all addresses, a free port)\n"                   \
    "  --start-agent 'CMD %h'\n"                                                                   \
    "                       run it for each other host of the discovery script; %a: where "        \
    "agents\n"                                                                                     \
    "                       come to\n"                                                             \
    "  --agent HOST:PORT    be an agent of the job there: -np processes of the program for it\n"   \
    "  --agent-name NAME    what its discovery script calls this host (its host name)\n"           \
    "  --secret-file FILE   where the secret of job and agents is (HALAY_SECRET), mode 0600\n"

void hly_agent_default(struct hly_options *options);
/* As take() in options.c. */
int hly_agent_take(struct hly_options *options, int option);
/* Do they fit together? -1, or the status to exit with, said. */
int hly_agent_check(struct hly_options *options);
/* HALAY_SECRET, from the file if there is one: of a job with agents it must be there. The same. */
int hly_agent_secret(const struct hly_options *options);

#endif
