/* SPDX-License-Identifier: Apache-2.0 */
/* plan.c - the planners, and `halay-info plan`: one rank's plan as text, and the proof of all. */
#define _GNU_SOURCE
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <halay/plan.h>

#include "info.h"

#define RANKS_MAX 1024 /* a ring's proof grows with the square */

const char hly_info_plan_help[] =
    "Usage: halay-info plan COLLECTIVE --algorithm NAME --ranks N [--rank R] [--root R] "
    "[--in-place]\n"
    "Prints what one rank (0) does, a line a step, and proves the plans of all ranks (1 to "
    "1024).\n";

void hly_info_planners(void)
{
    printf("planners\n  %-15s %-19s %-3s %-35s %s\n", "collective", "algorithm", "rev",
           "restrictions", "source");
    for (uint32_t i = 0; i < halay_planner_count(); i++) {
        const halay_planner_info_t *p = halay_planner_get(i);
        char limits[96];
        snprintf(limits, sizeof limits, "%s%s%s%s%s%s",
                 p->restrictions & HALAY_PLANNER_SHAPE ? "nodes, " : "",
                 p->restrictions & HALAY_PLANNER_POWER_OF_TWO ? "power of two, " : "",
                 p->restrictions & HALAY_PLANNER_COMMUTATIVE ? "commutative, " : "",
                 p->restrictions & HALAY_PLANNER_BLOCKWISE ? "in order by node, " : "",
                 p->restrictions & HALAY_PLANNER_STAGE   ? "group steps and a stage, "
                 : p->restrictions & HALAY_PLANNER_GROUP ? "group steps, "
                                                         : "",
                 p->restrictions & HALAY_PLANNER_SHORT ? "few bytes, " : "");
        size_t length = strlen(limits);
        printf("  %-15s %-19s %-3u %-35.*s %s\n",
               halay_collective_name((halay_collective_t)p->collective), p->name, p->version,
               length ? (int)length - 2 : 1, length ? limits : "-", p->source);
    }
}

static int complain(const char *what, const char *value)
{
    fprintf(stderr, "halay-info: %s%s; see halay-info plan --help\n", what, value);
    return HLY_EXIT_USAGE;
}

static int list_algorithms(halay_collective_t collective)
{
    fprintf(stderr, "halay-info: --algorithm of %s is one of:", halay_collective_name(collective));
    for (uint32_t i = 0; i < halay_planner_count(); i++)
        if (halay_planner_get(i)->collective == (uint32_t)collective)
            fprintf(stderr, " %s", halay_planner_get(i)->name);
    fputc('\n', stderr);
    return HLY_EXIT_USAGE;
}

static int print_plan(const halay_plan_t *plan)
{
    size_t bytes = halay_plan_print(plan, NULL, 0);
    char *text = malloc(bytes);
    if (!text)
        return 1;
    halay_plan_print(plan, text, bytes);
    fputs(text, stdout);
    printf("hash %016llx\n", (unsigned long long)halay_plan_hash(plan));
    free(text);
    return 0;
}

static int prove(halay_plan_t *const plans[], uint32_t nranks)
{
    halay_proof_t proof = {.size = sizeof proof};
    int rc = halay_plan_prove((const halay_plan_t *const *)plans, nranks, &proof);
    if (rc) {
        printf("REFUSED: %s\n", proof.reason);
        return 1;
    }
    printf("proved: %llu steps and %llu messages of %u ranks, %u rounds, reduce depth %u, "
           "at most %u scratch slots\n",
           (unsigned long long)proof.steps, (unsigned long long)proof.messages, nranks,
           proof.rounds, proof.reduce_depth, proof.scratch_slots);
    return 0;
}

static int make_and_show(uint32_t planner, halay_plan_params_t params)
{
    const uint32_t shown = params.rank;
    int status = 1, rc = 0;
    halay_plan_t **plans = calloc(params.nranks, sizeof(halay_plan_t *));
    if (!plans)
        return 1;
    for (params.rank = 0; params.rank < params.nranks && !rc; params.rank++)
        rc = halay_plan_make(planner, &params, &plans[params.rank]);
    if (rc)
        fprintf(stderr, "halay-info: no such plan: %s\n", halay_strerror(rc));
    else
        status = print_plan(plans[shown]) || prove(plans, params.nranks);
    for (uint32_t r = 0; r < params.nranks; r++)
        halay_plan_free(plans[r]);
    free(plans);
    return status;
}

static int parse_number(const char *text, uint32_t most, uint32_t *number)
{
    char *end;
    errno = 0;
    unsigned long n = strtoul(text, &end, 10);
    if (errno || *text < '0' || *text > '9' || *end || n > most)
        return complain("no such number: ", text);
    *number = (uint32_t)n;
    return 0;
}

static int parse_options(int argc, char **argv, halay_plan_params_t *params, const char **algorithm)
{
    static const struct option longs[] = {
        {"algorithm", 1, 0, 'a'}, {"ranks", 1, 0, 'n'}, {"rank", 1, 0, 'r'}, {"root", 1, 0, 'o'},
        {"in-place", 0, 0, 'i'},  {"help", 0, 0, 'h'},  {0, 0, 0, 0}};
    int option, status = 0;
    while (!status && (option = getopt_long(argc, argv, "h", longs, NULL)) != -1) {
        if (option == 'a')
            *algorithm = optarg;
        else if (option == 'n')
            status = parse_number(optarg, RANKS_MAX, &params->nranks);
        else if (option == 'r')
            status = parse_number(optarg, RANKS_MAX - 1, &params->rank);
        else if (option == 'o')
            status = parse_number(optarg, RANKS_MAX - 1, &params->root);
        else if (option == 'i')
            params->in_place = 1;
        else
            status = HLY_EXIT_USAGE;
        if (option == 'h') {
            fputs(hly_info_plan_help, stdout);
            return -1;
        }
    }
    return status;
}

int hly_info_plan(int argc, char **argv)
{
    halay_plan_params_t params = {.collective = HALAY_COLLECTIVE_COUNT};
    const char *algorithm = NULL;
    uint32_t planner;
    int status = parse_options(argc, argv, &params, &algorithm);
    if (status)
        return status < 0 ? 0 : status;
    if (optind + 1 != argc)
        return complain("one collective has to be named", "");
    for (uint32_t c = 0; c < HALAY_COLLECTIVE_COUNT; c++)
        if (!strcmp(argv[optind], halay_collective_name((halay_collective_t)c)))
            params.collective = c;
    if (params.collective == HALAY_COLLECTIVE_COUNT)
        return complain("no such collective: ", argv[optind]);
    const halay_collective_t collective = (halay_collective_t)params.collective;
    if (!algorithm || halay_planner_find(collective, algorithm, &planner))
        return list_algorithms(collective);
    if (!params.nranks)
        return complain("--ranks is missing", "");
    if (params.rank >= params.nranks || params.root >= params.nranks)
        return complain("there is no such rank among so many", "");
    return make_and_show(planner, params);
}
