/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_transport_inproc.c - the contract test over inproc, with no faults and with many.
 * Arguments: the name of a setting or "all", and of a case; both may be left out.
 */
#include <stdio.h>
#include <string.h>

#include <inproc/inproc.h>

#include "transport_body.h"

#define RANKS_MAX 8

struct setting {
    const char *name;
    int n;
    unsigned flags;
    halay_inproc_faults_t faults;
};

static const struct setting settings[] = {
    {"none", 4, 0, {0}},
    {"many", 8, TRANSPORT_BODY_SLOW, {.seed = 1}},
    {"delay", 3, TRANSPORT_BODY_SLOW, {.seed = 2, .delay_polls_max = 20}},
    {"reorder", 4, 0, {.seed = 3, .reorder = 1}},
    {"late", 3, TRANSPORT_BODY_SLOW, {.seed = 4, .late_put_polls = 12}},
    {"two slots", 4, TRANSPORT_BODY_SLOW, {.seed = 5, .queue_slots = 2}},
    {"again", 2, TRANSPORT_BODY_SLOW, {.seed = 6, .again_percent = 50, .connect_polls = 30}},
    {"small", 2, 0, {.seed = 7, .eager_bytes = 100, .message_bytes = 1024, .piece_bytes = 512}},
    {"everything",
     4,
     TRANSPORT_BODY_SLOW,
     {.seed = 8,
      .delay_polls_max = 7,
      .reorder = 1,
      .late_put_polls = 5,
      .queue_slots = 2,
      .again_percent = 20,
      .connect_polls = 3}},
    {"no put", 2, TRANSPORT_BODY_SLOW, {.seed = 9, .hide_capabilities = HALAY_CAN_PUT}},
    {"no land", 2, TRANSPORT_BODY_SLOW, {.seed = 10, .hide_capabilities = HALAY_CAN_LAND}},
    {"messages only",
     2,
     TRANSPORT_BODY_SLOW,
     {.seed = 11, .hide_capabilities = HALAY_CAN_PUT | HALAY_CAN_LAND | HALAY_CAN_SLEEP}},
};

static void *rank_of(void *user, int rank)
{
    return (struct halay_inproc_rank *)user + rank;
}

static int run(const struct setting *setting, const char *only)
{
    unsigned slow = setting->flags & TRANSPORT_BODY_SLOW; /* a secret waits 0.8 s each time */
    struct halay_inproc_rank rank[RANKS_MAX];
    struct transport_body body = {&halay_transport_v7_inproc,
                                  setting->n,
                                  rank_of,
                                  rank,
                                  NULL,
                                  setting->flags | (slow ? 0 : TRANSPORT_BODY_SECRET)};
    halay_inproc_hub_t *hub;
    int result;

    printf("--- faults: %s\n", setting->name);
    if (halay_inproc_hub_create(setting->n, &setting->faults, &hub)) {
        printf("no hub\n");
        return 1;
    }
    for (int r = 0; r < setting->n; r++) {
        rank[r] = (struct halay_inproc_rank){hub, r};
    }
    result = transport_body_run(&body, only);
    halay_inproc_hub_destroy(hub);
    return result;
}

int main(int argc, char **argv)
{
    const char *which = argc > 1 && strcmp(argv[1], "all") ? argv[1] : NULL;
    int ran = 0;

    for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++) {
        int result;

        if (which && strcmp(which, settings[i].name)) {
            continue;
        }
        result = run(&settings[i], argc > 2 ? argv[2] : NULL);
        if (result != 0 && result != 77) {
            return 1;
        }
        ran += result == 0;
    }
    printf("%d settings passed\n", ran);
    return ran ? 0 : 1;
}
