/* SPDX-License-Identifier: Apache-2.0 */
/* main.c - halay-prove: the command line. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../common/printed.h"
#include "explore.h"
#include "prove.h"

enum { EXIT_USAGE = 2, MUTANTS_MAX = 10000, ORDERS_MAX = 1000000, FAR_MAX = 10000 };
enum { ALL_RANKS = 512, ALL_FAR = 20 };

static const char usage[] =
    "usage: halay-prove [--max N | --ranks LIST | --nodes SHAPE] [--random N] [--far N]\n"
    "                   [--seed S] [--planner NAME]\n"
    "       halay-prove --all [--list] [--seed S] [--planner NAME]\n"
    "       halay-prove --mutants N [--seed S] [--orders K] [--planner NAME] [--verbose]\n"
    "       halay-prove --selftest\n"
    "       halay-prove --agreements [--all] [--random N] [--seed S]\n"
    "       halay-prove --agreements --mutants N [--verbose]\n"
    "       halay-prove --worlds [--all] | --worlds --mutants N [--verbose]\n"
    "\n"
    "Proves every planner's plans for 1 to N ranks (64), in place and not, those with a root for\n"
    "all roots up to 9 ranks and for a few beyond; those that ask which ranks share a node, on\n"
    "nodes of all kinds (beyond 128 ranks: on a quarter of them).\n"
    "\n"
    "  --ranks LIST    for these numbers of ranks: 2,3,8-16 (up to 4096)\n"
    "  --nodes SHAPE   for these nodes: 3+2+2 ranks, 4x8 (4 nodes of 8), 2x8+4; cyclic:3+2+2 "
    "deals\n"
    "                  the ranks out in turn\n"
    "  --random N      for N more numbers of ranks, drawn up to 512\n"
    "  --far N         makes plans of single ranks for N numbers of ranks up to 100,000, too, and\n"
    "                  looks for their messages in the plans of the peers\n"
    "  --all           the same as --max 512 --far 20: half an hour\n"
    "  --list          proves nothing: prints how many proofs, and plans in them, there would be\n"
    "                  of each planner, from the table of planners\n"
    "  --planner NAME  only \"ring\", or only \"allreduce/ring\"\n"
    "  --mutants N     puts faults into plans of 2 to 8 ranks until N of each kind are harmful by\n"
    "                  the oracle, which executes them in many orders; the prover has to refuse "
    "all\n"
    "                  of them. Each kind needs N different ones, or all that turn up. 60 takes\n"
    "                  seconds and is what CI runs; the long run is --mutants 500.\n"
    "  --seed S        other numbers of ranks, mutants and orders (1); random: by the clock\n"
    "  --orders K      orders of one set of plans, each with zero and with eager buffering (1000)\n"
    "  --verbose       prints the harmless mutants that are refused, and why\n"
    "  --agreements    goes through all states of 2 to 4 ranks that agree on who has failed, "
    "while\n"
    "                  some die or are silent; --random N: and N drawn runs of 5 to 64 ranks;\n"
    "                  --all: more faults of four; --mutants N: damaged agreements, of which\n"
    "                  at least N have to be there, and all to be refused\n"
    "  --worlds        the same of processes that meet (1 to 4 of them), while some die, are "
    "late,\n"
    "                  stopped or refused, and others come in their place\n"
    "  --selftest      runs plans written by hand, whose outcome is known, through the oracle\n"
    "\n"
    "Exit status: 0, or 1 if anything was refused that must not be, or the other way round.\n";

static int complain(const char *option, const char *value)
{
    fprintf(stderr, "halay-prove: %s%s%s; see halay-prove --help\n", option,
            value != NULL ? " cannot be " : ": no such option", value != NULL ? value : "");
    return EXIT_USAGE;
}

static int parse_number(const char *text, uint64_t low, uint64_t high, uint64_t *number)
{
    char *end = NULL;
    if (*text < '0' || *text > '9')
        return -1;
    *number = strtoull(text, &end, 10);
    return *end == '\0' && *number >= low && *number <= high ? 0 : -1;
}

static int parse_ranks(const char *text, uint8_t ranks[])
{
    memset(ranks, 0, HLY_RANKS_MAX + 1);
    for (;;) {
        char *end = NULL;
        unsigned long first = strtoul(text, &end, 10);
        if (end == text)
            return -1;
        unsigned long last = first;
        if (*end == '-') {
            text = end + 1;
            last = strtoul(text, &end, 10);
            if (end == text)
                return -1;
        }
        if (first < 1 || last < first || last > HLY_RANKS_MAX)
            return -1;
        memset(ranks + first, 1, last - first + 1);
        if (*end == '\0')
            return 0;
        if (*end != ',')
            return -1;
        text = end + 1;
    }
}

static int planner_exists(const hly_options_t *options)
{
    for (uint32_t planner = 0; planner < halay_planner_count(); planner++)
        if (hly_planner_wanted(options, halay_planner_get(planner)))
            return 1;
    return 0;
}

/* One option with its value. -1: no such option or value. */
static int take_option(hly_options_t *options, const char *option, const char *value)
{
    uint64_t number = 0;
    if (strcmp(option, "--ranks") == 0)
        return parse_ranks(value, options->ranks);
    if (strcmp(option, "--nodes") == 0) {
        halay_shape_free(options->shape);
        options->shape = NULL;
        memset(options->ranks, 0, sizeof options->ranks);
        if (hly_shape_parse(value, HLY_RANKS_MAX, &options->shape) != 0)
            return -1;
        options->ranks[options->shape->nranks] = 1;
        return 0;
    }
    if (strcmp(option, "--planner") == 0) {
        options->planner = value;
        return planner_exists(options) ? 0 : -1;
    }
    if (strcmp(option, "--max") == 0) {
        if (parse_number(value, 1, HLY_RANKS_MAX, &number) != 0)
            return -1;
        memset(options->ranks, 0, sizeof options->ranks);
        memset(options->ranks + 1, 1, number);
        return 0;
    }
    const struct {
        const char *name;
        uint64_t most;
        uint32_t *to;
    } numbers[] = {{"--random", UINT32_MAX, &options->random},
                   {"--far", FAR_MAX, &options->far},
                   {"--mutants", MUTANTS_MAX, &options->mutants},
                   {"--orders", ORDERS_MAX, &options->orders}};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        if (strcmp(option, numbers[i].name) == 0) {
            int rc = parse_number(value, 1, numbers[i].most, &number);
            *numbers[i].to = (uint32_t)number;
            return rc;
        }
    if (strcmp(value, "random") == 0) {
        struct timespec now; /* nanoseconds: processes started together draw different numbers */
        clock_gettime(CLOCK_REALTIME, &now);
        options->seed = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
        return 0;
    }
    return parse_number(value, 0, UINT64_MAX, &options->seed);
}

/* 1: it is one. */
static int take_flag(hly_options_t *options, const char *option)
{
    const struct {
        const char *name;
        uint32_t *to;
    } flags[] = {{"--selftest", &options->selftest}, {"--agreements", &options->agreements},
                 {"--worlds", &options->worlds},     {"--list", &options->list},
                 {"--verbose", &options->verbose},   {"--all", &options->all}};
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++)
        if (strcmp(option, flags[i].name) == 0) {
            *flags[i].to = 1;
            if (flags[i].to == &options->all) {
                memset(options->ranks + 1, 1, ALL_RANKS);
                options->far = ALL_FAR;
            }
            return 1;
        }
    return 0;
}

static int parse(int argc, char **argv, hly_options_t *options)
{
    static const char *const known[] = {"--max",  "--ranks",  "--nodes",  "--planner", "--mutants",
                                        "--seed", "--orders", "--random", "--far"};
    memset(options, 0, sizeof *options);
    memset(options->ranks + 1, 1, 64);
    options->orders = 1000;
    options->seed = 1;
    const char *random = "";
    for (int i = 1; i < argc; i++) {
        if (take_flag(options, argv[i]))
            continue;
        int found = 0;
        for (size_t k = 0; k < sizeof known / sizeof known[0]; k++)
            found |= strcmp(argv[i], known[k]) == 0;
        if (!found)
            return complain(argv[i], NULL);
        if (i + 1 == argc)
            return complain(argv[i], "without a value");
        if (take_option(options, argv[i], argv[i + 1]) != 0)
            return complain(argv[i], argv[i + 1]);
        random = strcmp(argv[i], "--random") == 0 ? argv[i + 1] : random;
        i++;
    }
    const bool many = options->random > ALL_RANKS; /* runs may be so many, numbers of ranks not */
    return many && !options->agreements ? complain("--random", random) : 0;
}

/* More numbers of ranks, of those that are not there yet. */
static void draw_ranks(hly_options_t *options)
{
    uint64_t chance = options->seed;
    uint32_t left = 0;
    for (uint32_t nranks = 1; nranks <= ALL_RANKS; nranks++)
        left += !options->ranks[nranks];
    for (uint32_t drawn = 0; drawn < options->random && left > 0;) {
        uint32_t nranks = 1 + hly_random_below(&chance, ALL_RANKS);
        if (!options->ranks[nranks]) {
            options->ranks[nranks] = 1;
            drawn++;
            left--;
        }
    }
}

static void explore(const hly_options_t *options, hly_count_t *count)
{
    static const hly_explored_t *const kinds[] = {&hly_agreements, &hly_failing_calls,
                                                  &hly_meetings};
    const uint32_t first = options->agreements ? 0 : 2, end = options->agreements ? 2 : 3;
    for (uint32_t i = first; i < end; i++)
        if (options->mutants == 0)
            hly_explore(kinds[i], options->all, options->random, options->seed, count);
        else
            hly_explore_damaged(kinds[i], options->verbose, count);
    if (options->mutants > count->passed + count->failed) {
        printf("there are fewer than %u mutants\n", options->mutants);
        count->failed++;
    }
    for (uint32_t i = first; i < end && options->mutants > 0; i++)
        hly_explore_merged(kinds[i], count);
}

static int work(int argc, char **argv)
{
    static hly_options_t options;
    hly_count_t count = {0, 0};
    if (argc == 2 && strcmp(argv[1], "--help") == 0) {
        fputs(usage, stdout);
        return 0;
    }
    if (parse(argc, argv, &options) != 0)
        return EXIT_USAGE;
    if (options.list) {
        draw_ranks(&options);
        hly_prove(&options, &count);
        halay_shape_free(options.shape);
        return count.failed == 0 && count.passed > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
    }
    if (options.agreements || options.worlds) {
        explore(&options, &count);
    } else if (options.selftest) {
        hly_selftest(&count);
    } else if (options.mutants > 0) {
        hly_campaign(&options, &count);
    } else {
        draw_ranks(&options);
        hly_prove(&options, &count);
        if (options.far > 0)
            hly_prove_far(&options, &count);
    }
    halay_shape_free(options.shape);
    printf("%llu passed, %llu failed\n", (unsigned long long)count.passed,
           (unsigned long long)count.failed);
    return count.failed == 0 && count.passed > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

int main(int argc, char **argv)
{
    return hly_printed("halay-prove", work(argc, argv), EXIT_FAILURE);
}
