/* SPDX-License-Identifier: Apache-2.0 */
/* elastic_options.c - the options of a job whose ranks change. */
#define _GNU_SOURCE
#include "elastic_options.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "note.h"

enum { TIMEOUT_S = 600, COOL_FIRST_MS = 1000, COOL_MOST_MS = 60000, COOL_BOUND_S = 86400 };

void hly_elastic_default(struct hly_options *options)
{
    options->reset_limit = -1;
    options->cool_ms[0] = -1;
}

static int whole(const char *name, int least, int most, int *number)
{
    if (hly_options_number(optarg, least, most, number))
        return -1;
    hly_note("--%s must be a whole number from %d to %d, not '%s'", name, least, most, optarg);
    return HLY_EXIT_USAGE;
}

static int seconds(const char *text, int *ms)
{
    char *end;
    const double s = text ? strtod(text, &end) : -1;
    if (!text || end == text || *end || !(s >= 0.01 && s <= COOL_BOUND_S)) {
        hly_note("--blacklist-cooldown-range takes two numbers of seconds from 0.01 to %d, not "
                 "'%s'",
                 COOL_BOUND_S, text ? text : "");
        return HLY_EXIT_USAGE;
    }
    *ms = (int)(s * 1000 + 0.5);
    return -1;
}

/* The only option with two values. */
static int cool_downs(struct hly_options *options, char **argv)
{
    int status = seconds(optarg, &options->cool_ms[0]);
    if (status < 0)
        status = seconds(argv[optind], &options->cool_ms[1]);
    if (status >= 0)
        return status;
    if (options->cool_ms[0] > options->cool_ms[1]) {
        hly_note("--blacklist-cooldown-range %s %s: the first is the shorter one", optarg,
                 argv[optind]);
        return HLY_EXIT_USAGE;
    }
    optind++;
    return -1;
}

static int blacklist(struct hly_options *options)
{
    options->drop_hosts = !strcmp(optarg, "hosts");
    if (options->drop_hosts || !strcmp(optarg, "slots"))
        return -1;
    hly_note("--blacklist must be slots or hosts, not '%s'", optarg);
    return HLY_EXIT_USAGE;
}

int hly_elastic_take(struct hly_options *options, int option, char **argv)
{
    switch (option) {
    case HLY_ELASTIC_MIN:
        return whole("min-np", 1, HLY_RANKS_MAX, &options->least);
    case HLY_ELASTIC_MAX:
        return whole("max-np", 1, HLY_RANKS_MAX, &options->slots);
    case HLY_ELASTIC_RESETS:
        return whole("reset-limit", 0, 1000000, &options->reset_limit);
    case HLY_ELASTIC_TIMEOUT:
        return whole("elastic-timeout", 1, 1000000, &options->elastic_timeout_s);
    case HLY_ELASTIC_SLOTS:
        return whole("slots-per-host", 1, HLY_RANKS_MAX, &options->slots_per_host);
    case HLY_ELASTIC_COOL:
        return cool_downs(options, argv);
    case HLY_ELASTIC_BLACKLIST:
        return blacklist(options);
    default:
        options->discovery = optarg;
        return -1;
    }
}

int hly_elastic_check(struct hly_options *options)
{
    const int agents = options->agents >= 0; /* then -np is of this machine alone */
    const char *alone = options->reset_limit >= 0               ? "--reset-limit"
                        : options->elastic_timeout_s && !agents ? "--elastic-timeout"
                        : options->cool_ms[0] >= 0              ? "--blacklist-cooldown-range"
                        : options->drop_hosts                   ? "--blacklist hosts"
                        : options->slots_per_host               ? "--slots-per-host"
                                                                : NULL;
    const int changes = options->least || options->slots || options->discovery;
    if (!options->elastic_timeout_s)
        options->elastic_timeout_s = TIMEOUT_S;
    if (!changes)
        return alone ? hly_options_refuse(alone, "is for a job whose ranks change: give --min-np")
                     : -1;
    if (options->keep_going)
        return hly_options_refuse("--keep-going",
                                  "is for a job whose ranks are always the same: leave it out");
    if (options->slots_per_host && !options->discovery)
        return hly_options_refuse("--slots-per-host", "is for hosts of --host-discovery-script");
    if (options->discovery && (options->hosts || options->host_file))
        return hly_options_refuse("--host-discovery-script",
                                  "says where, and so do -H and --hostfile: give "
                                  "one of them");
    if (!options->least)
        options->least = options->nranks && !agents ? options->nranks : 1;
    if (!options->nranks && options->discovery && !agents)
        options->nranks = options->least;
    else if (!options->nranks && !agents && !options->hosts && !options->host_file)
        options->nranks = options->slots;
    if (options->discovery && !agents && !options->slots) {
        options->slots = HLY_RANKS_MAX;
        options->bind = 0; /* nobody knows for how many */
    }
    if (!options->slots_per_host)
        options->slots_per_host = 1;
    if (options->cool_ms[0] < 0) {
        options->drop_for_good = options->drop_hosts;
        options->cool_ms[0] = COOL_FIRST_MS;
        options->cool_ms[1] = COOL_MOST_MS;
    }
    return -1;
}

/* What agents bring comes on top. */
static int settle_agents(struct hly_options *options)
{
    if (!options->slots)
        options->slots = HLY_RANKS_MAX;
    options->nlocal = options->nranks;
    if (options->least <= options->slots && options->nlocal + options->agents <= options->slots)
        return -1;
    hly_note("--min-np %d, -np %d and %d agents contradict --max-np %d: there are never more "
             "processes, and each agent brings one at least",
             options->least, options->nlocal, options->agents, options->slots);
    return HLY_EXIT_USAGE;
}

int hly_elastic_settle(struct hly_options *options)
{
    if (options->agents >= 0)
        return settle_agents(options);
    if (!options->slots)
        options->slots = options->nranks;
    options->nlocal = options->slots;
    if (options->least <= options->nranks && options->nranks <= options->slots)
        return -1;
    if (options->least > options->nranks)
        hly_note("--min-np %d is more than the %d process%s that the job begins with (-np, or the "
                 "slots of the hosts)",
                 options->least, options->nranks, options->nranks == 1 ? "" : "es");
    else
        hly_note("%s %d is more than --max-np %d allows",
                 options->least > options->slots ? "--min-np" : "-np", options->nranks,
                 options->slots);
    return HLY_EXIT_USAGE;
}
