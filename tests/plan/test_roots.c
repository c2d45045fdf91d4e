/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_roots.c - ranks that differ on the root, in any way: one of them hears of it from another
 * one's message, whatever the algorithm, so that nobody waits for the deadline.
 *
 * Ranks that agree on a root play their plans with one another as far as they get alone. If nothing
 * of that goes to one of the others, they are closed. All ranks in two or more closed sets of
 * different roots would wait for ever; every number of ranks up to 8, every way to part them.
 *
 * What starts tells its peer: a SEND at once, if it is not long; if it is, the RECV that announces
 * itself (rendezvous.c), and nobody is told by the SEND unless it is offered.
 */
#include "test_plan.h"

enum { MOST = 8, SETS = 1 << MOST, STEPS = 256 };

enum { WAITS, STARTED, DONE };

struct game {
    const struct plans *all;
    uint32_t set;
    int long_data;
    uint8_t state[MOST][STEPS];
};

static uint32_t partner[MOST][MOST][STEPS]; /* root, rank, step */

static int is_message(const halay_step_t *s)
{
    return s->kind == HALAY_STEP_SEND || s->kind == HALAY_STEP_RECV;
}

static uint32_t find_partner(const struct plans *all, uint32_t rank, const halay_step_t *s)
{
    const halay_plan_t *plan = all->plan[s->peer];
    uint32_t i = 0;

    while (i < plan->nsteps && !(is_message(&plan->steps[i]) && plan->steps[i].kind != s->kind &&
                                 plan->steps[i].peer == rank && plan->steps[i].edge == s->edge)) {
        i++;
    }
    CHECK(i < plan->nsteps, "rank %u: nobody at the other end", rank);
    return i;
}

static int is_done(const struct game *g, uint32_t rank, uint32_t step)
{
    return step == HALAY_STEP_NONE || g->state[rank][step] == DONE;
}

/* Does the peer hear of it when this step starts? */
static int tells(const struct game *g, const halay_plan_t *plan, const halay_step_t *s)
{
    int is_long = g->long_data && plan->operands[s->operand].count > 0;

    return is_message(s) && (s->kind == HALAY_STEP_RECV) == is_long;
}

/* Starts or ends what can be; 1: somebody else has heard, 0: not, *moved says whether any was. */
static int play_rank(struct game *g, uint32_t root, uint32_t rank, int *moved)
{
    const halay_plan_t *plan = g->all->plan[rank];

    for (uint32_t i = 0; i < plan->nsteps; i++) {
        const halay_step_t *s = &plan->steps[i];
        uint8_t *state = &g->state[rank][i];

        if (*state == WAITS && is_done(g, rank, s->dep[0]) && is_done(g, rank, s->dep[1])) {
            *state = is_message(s) ? STARTED : DONE;
            *moved = 1;
            if (tells(g, plan, s) && !(g->set >> s->peer & 1)) {
                return 1;
            }
        }
        if (*state == STARTED && g->set >> s->peer & 1 &&
            g->state[s->peer][partner[root][rank][i]] != WAITS) {
            *state = DONE;
            *moved = 1;
        }
    }
    return 0;
}

static int is_closed(struct game *g, uint32_t root)
{
    memset(g->state, WAITS, sizeof(g->state));
    for (int moved = 1; moved;) {
        moved = 0;
        for (uint32_t rank = 0; rank < g->all->nranks; rank++) {
            if (g->set >> rank & 1 && play_rank(g, root, rank, &moved)) {
                return 0;
            }
        }
    }
    return 1;
}

/* All ranks in closed sets of different roots? parts[]: those of each root. */
static int can_part(uint32_t p, uint8_t closed[MOST][SETS], uint32_t root, uint32_t taken,
                    uint32_t parts[MOST])
{
    const uint32_t all = (1u << p) - 1;

    if (root == p) {
        return taken == all;
    }
    for (uint32_t left = all & ~taken, set = left;; set = (set - 1) & left) {
        parts[root] = set;
        if (set != all && (!set || closed[root][set]) &&
            can_part(p, closed, root + 1, taken | set, parts)) {
            return 1;
        }
        if (!set) {
            return 0;
        }
    }
}

static void check_case(uint32_t planner, uint32_t p, const halay_shape_t *shape, int long_data)
{
    static uint8_t closed[MOST][SETS];
    const halay_planner_info_t *info = halay_planner_get(planner);
    uint32_t parts[MOST] = {0};

    for (uint32_t root = 0; root < p; root++) {
        struct plans all;
        make_plans_on(&all, planner, p, root, 0, shape);
        for (uint32_t rank = 0; rank < p; rank++) {
            const halay_plan_t *plan = all.plan[rank];
            CHECK(plan->nsteps <= STEPS, "%s: %u steps", info->name, plan->nsteps);
            for (uint32_t i = 0; i < plan->nsteps && i < STEPS; i++) {
                if (is_message(&plan->steps[i])) {
                    partner[root][rank][i] = find_partner(&all, rank, &plan->steps[i]);
                }
            }
        }
        for (uint32_t set = 1; set < 1u << p && !failures; set++) {
            struct game game = {.all = &all, .set = set, .long_data = long_data};
            closed[root][set] = (uint8_t)is_closed(&game, root);
        }
        CHECK(closed[root][(1u << p) - 1], "all ranks are alone");
        free_plans(&all);
    }
    int parted = !failures && can_part(p, closed, 0, 0, parts);
    CHECK(!parted,
          "%s %s, %u ranks, %s: those of the sets %x %x %x %x %x %x %x %x take 0 to 7 for the "
          "root, and nobody hears of it",
          halay_collective_name((halay_collective_t)info->collective), info->name, p,
          long_data ? "long" : "short", parts[0], parts[1], parts[2], parts[3], parts[4], parts[5],
          parts[6], parts[7]);
}

/* rendezvous.c offers what is long. */
static int is_offered(const halay_planner_info_t *info)
{
    return info->collective == HALAY_BROADCAST &&
           info->restrictions & (HALAY_PLANNER_ROUNDS | HALAY_PLANNER_SHORT);
}

static void check_planner(uint32_t planner, uint32_t p)
{
    const halay_planner_info_t *info = halay_planner_get(planner);

    for (uint32_t kind = 0; kind < 3; kind++) { /* one node, nodes of two, two by turns */
        uint32_t node[MOST];
        halay_shape_t *shape = NULL;
        for (uint32_t rank = 0; rank < p; rank++) {
            node[rank] = kind == 0 ? 0 : kind == 1 ? rank / 2 : rank % 2;
        }
        CHECK(!halay_shape_make(node, p, &shape), "shape");
        for (int long_data = 0; long_data <= !is_offered(info); long_data++) {
            check_case(planner, p, shape, long_data);
        }
        halay_shape_free(shape);
        if (!(info->restrictions & HALAY_PLANNER_SHAPE)) {
            return;
        }
    }
}

int main(void)
{
    for (uint32_t planner = 0; planner < halay_planner_count(); planner++) {
        const halay_planner_info_t *info = halay_planner_get(planner);
        /* Of a call of a series the one before had the same root. */
        if (halay_collective_rooted((halay_collective_t)info->collective) &&
            !(info->restrictions & HALAY_PLANNER_RELAXED)) {
            for (uint32_t p = 2; p <= MOST && !failures; p++) {
                check_planner(planner, p);
            }
        }
    }
    return failures != 0;
}
