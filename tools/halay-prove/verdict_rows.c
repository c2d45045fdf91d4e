/* SPDX-License-Identifier: Apache-2.0 */
/* verdict_rows.c - what is explored of the verdict of a call that fails. */
#include "verdict_model.h"

static uint32_t call_world_draw(uint64_t *chance, uint8_t limits[])
{
    hly_case_limits_t *l = (hly_case_limits_t *)limits;
    l->ranks = (uint8_t)(3 + hly_random_below(chance, hly_random_below(chance, 2) ? 6 : 3));
    l->die = (uint8_t)hly_random_below(chance, 3);
    l->stopped = (uint8_t)hly_random_below(chance, 2);
    const uint32_t most = l->die && l->stopped ? 1 : l->die + l->stopped ? 2 : l->ranks - 1u;
    l->away = (uint8_t)hly_random_below(chance, most); /* with both others nobody can know */
    l->leave = (uint8_t)hly_random_below(chance, 2);
    l->wrong = (uint8_t)hly_random_below(chance, 3);
    l->words = (uint8_t)hly_random_below(chance, 2);
    l->ring = !l->stopped && !l->away && hly_random_below(chance, 2);
    l->in_order = (uint8_t)hly_random_below(chance, 2);
    return 1 + hly_random_below(chance, 60);
}

static const char *const words[] = {"ranks", "die",         "leave",        "stopped",  "away",
                                    "wrong", "other words", "round a ring", "in order", NULL};

static const char *const texts[] = {"crank %u calls",
                                    "rrank %u calls with a wrong argument",
                                    "hrank %u hears rank %u:",
                                    "orank %u hears a later message (%u):",
                                    "drank %u dies",
                                    "erank %u ends",
                                    "frank %u finds rank %u dead",
                                    "srank %u is stopped",
                                    "grank %u goes on",
                                    "prank %u has seen for long that rank %u is stopped",
                                    "ttime passes",
                                    "lrank %u looks at its clock",
                                    NULL};

static const hly_row_t rows[] = {
    {"2 ranks, 2 die, other words", HLY_ALWAYS},
    {"2 ranks, 1 die, 1 stopped, 1 away, 1 wrong, other words", HLY_SOUND},
    {"2 ranks, 1 die, 1 leave, 1 stopped, 1 away, 1 wrong, other words", HLY_SOUND},
    {"3 ranks, 2 wrong", HLY_ALWAYS},
    {"3 ranks, 1 leave, 1 wrong, other words, round a ring", HLY_ALWAYS},
    {"3 ranks, 1 die, 1 wrong, other words", HLY_ALWAYS},
    {"3 ranks, 1 die, 1 leave, other words, round a ring", HLY_ALWAYS},
    {"3 ranks, 1 die, 1 leave, 1 wrong, other words", HLY_ALWAYS},
    {"3 ranks, 2 die, 1 wrong, other words", HLY_ALWAYS},
    {"3 ranks, 1 leave, 1 away, other words, in order", HLY_SOUND},
    {"3 ranks, 1 stopped, in order", HLY_SOUND},
    {"4 ranks, 1 wrong, in order", HLY_SOUND},
    {"3 ranks, 1 away, 1 wrong, in order", HLY_LONG},
    {"3 ranks, 1 stopped, 1 wrong, in order", HLY_LONG},
    {"3 ranks, 1 die, 1 away, 1 wrong, in order", HLY_LONG},
    {"3 ranks, 1 die, 1 stopped, in order", HLY_LONG},
    {"3 ranks, 1 stopped", HLY_LONG},
    {"4 ranks, 1 die, in order", HLY_LONG},
    {"4 ranks, 1 die, round a ring, in order", HLY_LONG},
    {NULL, HLY_LONG}};

static const hly_story_t stories[] = {
    {"who was stopped reads what has come before it coordinates", "what has come is not read first",
     "2 ranks, 1 stopped, 1 away", "c1 h01 t0 l1 c0 s0 t0 l1 t0 g0 l1 h01 h01"},
    {"the coordinator tells one rank, which has no link to the other one, and dies",
     "a vote can change", "4 ranks, 2 die, round a ring",
     "c0 c2 c3 d1 f01 f21 h32 h32 h02 h02 h02 h03 h03 h03 d0 h30 f20 t0 l2 t0 l2"},
    {"an absent rank calls when one has ended by the clock, and died",
     "the clock ends it for each rank", "3 ranks, 1 die, 1 away",
     "c0 h10 c1 h01 h20 t0 l0 h10 h01 h01 h20 t0 l0 h10 h01 h10 l1 h01 h20 h20 t0 l0 d0 f10 c2 h12 "
     "l1 h20"},
    {"an absent rank calls when the others have said that it is absent, and their coordinator dies",
     "no verdict is proposed", "3 ranks, 1 die, 1 away",
     "c0 h10 c1 h01 h20 h21 t0 l0 h10 h01 h10 h01 h20 h21 h21 t0 l0 h10 h01 h10 l1 h01 h20 h20 h21 "
     "h21 t0 l0 h10 h01 d0 f10 h20 h21 c2 h12 h12 h20"},
    {"the same, where the votes are alike", "who may live and has not voted does not count",
     "3 ranks, 1 die, 1 away",
     "c0 h10 c1 h01 h20 h21 t0 l0 h10 h01 h10 h01 h20 h21 h21 t0 l0 h10 h01 h10 l1 h01 h20 h20 h21 "
     "h21 t0 l0 h10 h01 d0 f10 h20 h21 c2 h12 h12 h20"},
    {"of six ranks two have called, which have no path to each other in the control graph",
     "who is absent is told to nobody", "6 ranks, 4 away",
     "c1 c4 h14 h41 t0 l1 l4 t0 l1 l4 t0 l1 l4"},
    {"one completes the call and leaves, and one dies in it",
     "who has completed the call and left is called lost", "3 ranks, 1 die, 1 leave, other words",
     "c0 h10 c1 h01 c2 h12 e1 d2 f02 f01"},
    {"the same, where the call fails by its deadline",
     "who has completed the call and left is called lost at the deadline",
     "3 ranks, 1 leave, 1 away, other words, in order",
     "c0 h10 c1 h01 h20 t0 l0 c2 h02 h12 e1 f01 h20 h02 h02 h20 h02 h20 h02"},
    {"who was stopped and goes on waits for the coordinator",
     "who was stopped and speaks is not asked", "3 ranks, 1 die, 1 stopped",
     "c0 s0 c1 h20 h21 c2 p10 g0 h01 h01 h10 h10 h10 t0 l0 h10 l1 h01 t0 l0 h10 t0 l0 h10 h20 h02 "
     "h10 h01 h12 t0 l0 h10 l1 h01 t0 l0 h10 t0 l0 d2 f12 t0 l1"},
    {"who has found a death waits for the coordinator that asks",
     "who finds a death waits half as long for the coordinator",
     "7 ranks, 2 die, 1 leave, other words, in order", "e1 h31 f31 d4 f04 c0 c3 h03 h30"},
    {NULL, NULL, NULL, NULL}};

static const hly_failing_ops_t sound = {"src/agree", HLY_FAILING_EACH(HLY_IS)};

const hly_explored_t hly_failing_calls = {
    .name = "a call",
    .bytes = sizeof(hly_call_world_t),
    .state_bytes = sizeof(hly_call_world_t),
    .events_most = HLY_CALL_EVENTS,
    .depth = 600,
    .trace = 1024,
    .idles = true, /* a rank may look at its clock again and again */
    .tells = true,
    .damaged = hly_damaged_verdict,
    .draws = 5,
    .draws_damaged = 20000,
    .drawn_name = "a call of 3 to 8 ranks",
    .drawn_may = "hof",
    .draw = call_world_draw,
    .merge = hly_call_world_merge,
    HLY_EXPLORED(hly_call_world)};
