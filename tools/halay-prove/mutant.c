/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mutant.c - the kinds of faults. A step's operands are moved to the end of the plan's operands
 * before one changes, so that steps which share operands stay as they were.
 */
#include "mutant.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SPARE_OPERANDS = 32, OPERANDS_MAX = 5, SPARE_GROUPS = 4, SPARE_MEMBERS = 80 };

static halay_plan_t *clone_plan(const halay_plan_t *plan)
{
    size_t steps = plan->nsteps * sizeof(halay_step_t);
    size_t operands = (plan->noperands + SPARE_OPERANDS) * sizeof(halay_operand_t);
    size_t groups = (plan->ngroups + SPARE_GROUPS) * sizeof(halay_group_t);
    size_t members = (plan->nmembers + SPARE_MEMBERS) * sizeof(halay_member_t);
    halay_plan_t *made = calloc(1, sizeof *made + steps + operands + groups + members);
    if (made == NULL)
        return NULL;
    *made = *plan;
    made->steps = (halay_step_t *)(void *)(made + 1);
    made->operands = (halay_operand_t *)(void *)(made->steps + plan->nsteps);
    made->groups = (halay_group_t *)(void *)(made->operands + plan->noperands + SPARE_OPERANDS);
    made->members = (halay_member_t *)(void *)(made->groups + plan->ngroups + SPARE_GROUPS);
    if (plan->nsteps > 0)
        memcpy(made->steps, plan->steps, steps);
    if (plan->noperands > 0)
        memcpy(made->operands, plan->operands, plan->noperands * sizeof(halay_operand_t));
    if (plan->ngroups > 0) {
        memcpy(made->groups, plan->groups, plan->ngroups * sizeof(halay_group_t));
        memcpy(made->members, plan->members, plan->nmembers * sizeof(halay_member_t));
    }
    return made;
}

static halay_plan_t *change_rank(hly_mutant_t *mutant, uint32_t rank)
{
    for (uint32_t i = 0; i < mutant->nchanged; i++)
        if (mutant->changed[i]->params.rank == rank)
            return mutant->changed[i];
    assert(mutant->nchanged < HLY_MUTANT_CHANGED_MAX);
    halay_plan_t *plan = clone_plan(mutant->plans[rank]);
    if (plan != NULL) {
        mutant->plans[rank] = plan;
        mutant->changed[mutant->nchanged++] = plan;
    }
    return plan;
}

/* The step's operands, with room for one more, shared with no other step. */
static halay_operand_t *own_operands(halay_plan_t *plan, halay_step_t *step)
{
    assert(step->noperands <= OPERANDS_MAX);
    halay_operand_t *own = plan->operands + plan->noperands;
    memcpy(own, plan->operands + step->operand, step->noperands * sizeof *own);
    step->operand = plan->noperands;
    plan->noperands += step->noperands + 1u;
    return own;
}

/* Adds to the description. */
__attribute__((format(printf, 2, 3))) static int done(hly_mutant_t *mutant, const char *format, ...)
{
    size_t length = strlen(mutant->what);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(mutant->what + length, sizeof mutant->what - length, format, arguments);
    va_end(arguments);
    return 0;
}

static int is_message(const halay_step_t *step)
{
    return step->kind == HALAY_STEP_SEND || step->kind == HALAY_STEP_RECV;
}

/* Two sources at least: another fault may have taken some. */
static int is_whole_reduce(const halay_step_t *step)
{
    return step->kind == HALAY_STEP_REDUCE && step->noperands >= 3;
}

/* Any number in [0, bound) but not_this; there has to be one. */
static uint32_t another(uint64_t *chance, uint32_t bound, uint32_t not_this)
{
    assert(bound >= 2 || (bound == 1 && not_this >= 1));
    if (not_this >= bound)
        return hly_random_below(chance, bound);
    uint32_t drawn = hly_random_below(chance, bound - 1);
    return drawn + (drawn >= not_this);
}

/* ------------------------------------------------------------------ the kinds */

/* Each gets a private plan and one of its steps; HALAY_EAGAIN if that step does not suit. */
typedef int change_fn(hly_mutant_t *mutant, halay_plan_t *plan, uint32_t at, uint64_t *chance);

static int drop_dependency(hly_mutant_t *mutant, halay_plan_t *plan, uint32_t at, uint64_t *chance)
{
    halay_step_t *step = &plan->steps[at];
    uint32_t which = hly_random_below(chance, 2);
    if (step->dep[which] == HALAY_STEP_NONE)
        return HALAY_EAGAIN;
    uint32_t was = step->dep[which];
    step->dep[which] = HALAY_STEP_NONE;
    return done(mutant, "no longer waits for step %u", was);
}

static int redirect_dependency(hly_mutant_t *mutant, halay_plan_t *plan, uint32_t at,
                               uint64_t *chance)
{
    halay_step_t *step = &plan->steps[at];
    uint32_t which = hly_random_below(chance, 2);
    if (step->dep[which] == HALAY_STEP_NONE || at < 2)
        return HALAY_EAGAIN;
    uint32_t was = step->dep[which];
    step->dep[which] = another(chance, at, was);
    return done(mutant, "waits for step %u, not %u", step->dep[which], was);
}

static int wrong_peer(hly_mutant_t *mutant, halay_plan_t *plan, uint32_t at, uint64_t *chance)
{
    halay_step_t *step = &plan->steps[at];
    if (!is_message(step))
        return HALAY_EAGAIN;
    uint32_t was = step->peer;
    step->peer = another(chance, plan->params.nranks + 1, was);
    return done(mutant, "peer %u, not %u", step->peer, was);
}

/* Another number; or the numbers of two messages with one peer exchanged on one side. */
static int wrong_edge(hly_mutant_t *mutant, halay_plan_t *plan, uint32_t at, uint64_t *chance)
{
    halay_step_t *step = &plan->steps[at];
    if (!is_message(step))
        return HALAY_EAGAIN;
    uint32_t was = step->edge;
    halay_step_t *other = &plan->steps[hly_random_below(chance, plan->nsteps)];
    if (other != step && other->kind == step->kind && other->peer == step->peer) {
        step->edge = other->edge;
        other->edge = was;
        return done(mutant, "edge %u, not %u, exchanged with step %u", step->edge, was,
                    (uint32_t)(other - plan->steps));
    }
    step->edge = another(chance, was + 3, was);
    return done(mutant, "edge %u, not %u", step->edge, was);
}

/* Changes one operand; or all of the step; or all of the step and the other end of its message. */
typedef void edit_fn(halay_operand_t *operand, uint32_t value);

static int edit_ends(hly_mutant_t *mutant, const halay_plan_t *plan, const halay_step_t *step,
                     edit_fn *edit, uint32_t value)
{
    uint32_t kind = step->kind == HALAY_STEP_SEND ? HALAY_STEP_RECV : HALAY_STEP_SEND;
    if (step->peer == plan->params.rank || step->peer >= mutant->nranks)
        return HALAY_EAGAIN;
    halay_plan_t *far = change_rank(mutant, step->peer);
    if (far == NULL)
        return HALAY_ENOMEM;
    for (uint32_t i = 0; i < far->nsteps; i++) {
        halay_step_t *end = &far->steps[i];
        if (end->kind == kind && end->peer == plan->params.rank && end->edge == step->edge) {
            edit(own_operands(far, end), value);
            return 0;
        }
    }
    return HALAY_EAGAIN;
}

static int edit_some(hly_mutant_t *mutant, halay_plan_t *plan, halay_step_t *step, edit_fn *edit,
                     uint32_t value, uint64_t *chance)
{
    halay_operand_t *operands = own_operands(plan, step);
    uint32_t all = hly_random_below(chance, 4) > 0;
    uint32_t one = hly_random_below(chance, step->noperands);
    for (uint32_t i = 0; i < step->noperands; i++)
        if (all || i == one)
            edit(&operands[i], value);
    return all && is_message(step) ? edit_ends(mutant, plan, step, edit, value) : 0;
}

static void edit_first(halay_operand_t *operand, uint32_t value)
{
    operand->first = value;
}

static void edit_count(halay_operand_t *operand, uint32_t value)
{
    operand->count = value;
}

static int wrong_first(hly_mutant_t *mutant, halay_plan_t *plan, uint32_t at, uint64_t *chance)
{
    halay_step_t *step = &plan->steps[at];
    if (step->noperands == 0 || plan->blocks < 2)
        return HALAY_EAGAIN;
    uint32_t was = plan->operands[step->operand].first;
    uint32_t now = another(chance, plan->blocks, was);
    int rc = edit_some(mutant, plan, step, edit_first, now, chance);
    return rc != 0 ? rc
                   : done(mutant, "first block %u, not %u (ranks changed: %u)", now, was,
                          mutant->nchanged);
}

static int wrong_count(hly_mutant_t *mutant, halay_plan_t *plan, uint32_t at, uint64_t *chance)
{
    halay_step_t *step = &plan->steps[at];
    if (step->noperands == 0)
        return HALAY_EAGAIN;
    uint32_t was = plan->operands[step->operand].count;
    uint32_t now = another(chance, plan->blocks + 1 + (plan->blocks == 0), was);
    int rc = edit_some(mutant, plan, step, edit_count, now, chance);
    return rc != 0
               ? rc
               : done(mutant, "%u blocks, not %u (ranks changed: %u)", now, was, mutant->nchanged);
}

static int wrong_slot(hly_mutant_t *mutant, halay_plan_t *plan, uint32_t at, uint64_t *chance)
{
    halay_step_t *step = &plan->steps[at];
    if (step->noperands == 0)
        return HALAY_EAGAIN;
    halay_operand_t *operand = own_operands(plan, step) + hly_random_below(chance, step->noperands);
    if (operand->buffer != HALAY_BUFFER_SCRATCH || operand->count == 0)
        return HALAY_EAGAIN;
    uint32_t was = operand->slot;
    operand->slot = another(chance, plan->scratch_slots + 2, was);
    return done(mutant, "slot %u, not %u", operand->slot, was);
}

static int swap_sources(hly_mutant_t *mutant, halay_plan_t *plan, halay_step_t *step,
                        uint64_t *chance)
{
    if (!is_whole_reduce(step))
        return HALAY_EAGAIN;
    halay_operand_t *sources = own_operands(plan, step) + 1;
    uint32_t nsources = step->noperands - 1u;
    uint32_t a = hly_random_below(chance, nsources);
    uint32_t b = another(chance, nsources, a);
    halay_operand_t kept = sources[a];
    sources[a] = sources[b];
    sources[b] = kept;
    return done(mutant, "sources %u and %u exchanged", a, b);
}

/* At one step, or at two of any ranks: the same change on both may be a change for a third. */
static int swap_operands(hly_mutant_t *mutant, halay_plan_t *plan, uint32_t at, uint64_t *chance)
{
    halay_step_t *step = &plan->steps[at];
    int rc = swap_sources(mutant, plan, step, chance);
    if (rc != 0 || hly_random_below(chance, 2) == 0)
        return rc;
    uint32_t rank = hly_random_below(chance, mutant->nranks);
    halay_plan_t *other = change_rank(mutant, rank);
    if (other == NULL)
        return HALAY_ENOMEM;
    if (other->nsteps == 0)
        return HALAY_EAGAIN;
    uint32_t more = hly_random_below(chance, other->nsteps);
    uint32_t tries = 0;
    while (other->steps[more].kind != HALAY_STEP_REDUCE && tries++ < other->nsteps)
        more = (more + 1) % other->nsteps;
    if (&other->steps[more] == step)
        return 0;
    done(mutant, "; rank %u, step %u: ", rank, more);
    return swap_sources(mutant, other, &other->steps[more], chance);
}

static int drop_source(hly_mutant_t *mutant, halay_plan_t *plan, uint32_t at, uint64_t *chance)
{
    halay_step_t *step = &plan->steps[at];
    if (!is_whole_reduce(step))
        return HALAY_EAGAIN;
    halay_operand_t *sources = own_operands(plan, step) + 1;
    uint32_t nsources = step->noperands - 1u;
    uint32_t a = hly_random_below(chance, nsources);
    memmove(sources + a, sources + a + 1, (nsources - a - 1) * sizeof *sources);
    step->noperands--;
    return done(mutant, "source %u dropped", a);
}

/* One more source, or one in place of another. */
static int duplicate_source(hly_mutant_t *mutant, halay_plan_t *plan, uint32_t at, uint64_t *chance)
{
    halay_step_t *step = &plan->steps[at];
    if (!is_whole_reduce(step))
        return HALAY_EAGAIN;
    halay_operand_t *sources = own_operands(plan, step) + 1;
    uint32_t nsources = step->noperands - 1u;
    uint32_t a = hly_random_below(chance, nsources);
    if (step->noperands < OPERANDS_MAX && hly_random_below(chance, 2) == 0) {
        sources[nsources] = sources[a];
        step->noperands++;
        return done(mutant, "source %u once more at the end", a);
    }
    uint32_t b = another(chance, nsources, a);
    sources[b] = sources[a];
    return done(mutant, "source %u in place of source %u too", a, b);
}

static int drop_step(hly_mutant_t *mutant, halay_plan_t *plan, uint32_t at, uint64_t *chance)
{
    halay_step_t *step = &plan->steps[at];
    (void)chance;
    if (step->kind == HALAY_STEP_JOIN)
        return HALAY_EAGAIN;
    step->kind = HALAY_STEP_JOIN;
    step->noperands = 0;
    step->peer = HALAY_STEP_NONE;
    step->edge = 0;
    step->operand = 0;
    return done(mutant, "turned into JOIN");
}

static int copy_for_reduce(hly_mutant_t *mutant, halay_plan_t *plan, uint32_t at, uint64_t *chance)
{
    halay_step_t *step = &plan->steps[at];
    if (!is_whole_reduce(step))
        return HALAY_EAGAIN;
    halay_operand_t *operands = own_operands(plan, step);
    uint32_t a = 1 + hly_random_below(chance, step->noperands - 1u);
    operands[1] = operands[a];
    step->kind = HALAY_STEP_COPY;
    step->noperands = 2;
    return done(mutant, "copies source %u only", a - 1);
}

static int small_scratch(hly_mutant_t *mutant, halay_plan_t *plan, uint32_t at, uint64_t *chance)
{
    (void)at;
    if (plan->scratch_slots == 0)
        return HALAY_EAGAIN;
    uint32_t was = plan->scratch_slots;
    plan->scratch_slots = hly_random_below(chance, was);
    return done(mutant, "%u scratch slots declared, not %u", plan->scratch_slots, was);
}

static int wrong_buffer(hly_mutant_t *mutant, halay_plan_t *plan, uint32_t at, uint64_t *chance)
{
    static const char *const names[] = {"IN", "OUT", "SCRATCH"};
    halay_step_t *step = &plan->steps[at];
    if (step->noperands == 0)
        return HALAY_EAGAIN;
    uint32_t which = hly_random_below(chance, step->noperands);
    halay_operand_t *operand = own_operands(plan, step) + which;
    if (operand->count == 0)
        return HALAY_EAGAIN;
    uint32_t was = operand->buffer;
    operand->buffer = another(chance, 3, was);
    operand->slot = operand->buffer == HALAY_BUFFER_SCRATCH
                        ? hly_random_below(chance, plan->scratch_slots + 1)
                        : 0;
    return done(mutant, "operand %u in %s slot %u, not %s", which, names[operand->buffer],
                operand->slot, names[was]);
}

/* Two steps of a kind do each other's work. */
static int exchange_operands(hly_mutant_t *mutant, halay_plan_t *plan, uint32_t at,
                             uint64_t *chance)
{
    halay_step_t *step = &plan->steps[at];
    halay_step_t *other = &plan->steps[hly_random_below(chance, plan->nsteps)];
    if (other == step || other->kind != step->kind || step->noperands == 0 ||
        step->noperands != other->noperands)
        return HALAY_EAGAIN;
    uint32_t kept = step->operand;
    step->operand = other->operand;
    other->operand = kept;
    return done(mutant, "operands exchanged with step %u", (uint32_t)(other - plan->steps));
}

/* ------------------------------------------------------------------ group steps */

/* The next group step from `at` on, or NULL. */
static halay_step_t *group_step(halay_plan_t *plan, uint32_t at)
{
    for (uint32_t i = 0; i < plan->nsteps; i++) {
        halay_step_t *step = &plan->steps[(at + i) % plan->nsteps];
        if (step->kind == HALAY_STEP_GROUP && step->peer < plan->ngroups)
            return step;
    }
    return NULL;
}

/* A copy of the step's group, with room for one member more, shared with no other step; or NULL. */
static halay_group_t *own_group(halay_plan_t *plan, halay_step_t *step)
{
    const halay_group_t *from = &plan->groups[step->peer];
    halay_group_t *own = &plan->groups[plan->ngroups];
    if (from->nmembers == 0 || from->nmembers > HLY_ORACLE_RANKS_MAX)
        return NULL;
    *own = (halay_group_t){from->kind, plan->nmembers, from->nmembers};
    memcpy(plan->members + own->member, plan->members + from->member,
           from->nmembers * sizeof *plan->members);
    plan->nmembers += own->nmembers + 1;
    step->peer = plan->ngroups++;
    return own;
}

/* One more, one less, or another rank in place of one. */
static int wrong_member(hly_mutant_t *mutant, halay_plan_t *plan, uint32_t at, uint64_t *chance)
{
    halay_step_t *step = group_step(plan, at);
    halay_group_t *group = step != NULL ? own_group(plan, step) : NULL;
    if (group == NULL)
        return HALAY_EAGAIN;
    halay_member_t *members = plan->members + group->member;
    uint32_t which = hly_random_below(chance, group->nmembers);
    if (hly_random_below(chance, 3) == 0 && group->nmembers > 1) {
        memmove(members + which, members + which + 1,
                (--group->nmembers - which) * sizeof *members);
        return done(mutant, "member %u dropped", which);
    }
    if (hly_random_below(chance, 2) == 0 && group->nmembers < mutant->nranks) {
        members[group->nmembers] = members[group->nmembers - 1];
        members[group->nmembers].first += members[group->nmembers - 1].count;
        members[group->nmembers].first %= plan->blocks + (plan->blocks == 0);
        members[group->nmembers].count = 0;
        members[group->nmembers++].rank = hly_random_below(chance, mutant->nranks);
        return done(mutant, "rank %u is a member too", members[group->nmembers - 1].rank);
    }
    members[which].rank = another(chance, mutant->nranks + 1, members[which].rank);
    return done(mutant, "member %u is rank %u", which, members[which].rank);
}

static int edit_run(hly_mutant_t *mutant, halay_plan_t *plan, halay_step_t *step, uint32_t which,
                    int32_t more)
{
    halay_group_t *group = own_group(plan, step);
    if (group == NULL || which + 1 >= group->nmembers || plan->blocks == 0)
        return HALAY_EAGAIN;
    halay_member_t *member = plan->members + group->member + which;
    member[0].count = (uint32_t)((int32_t)member[0].count + more);
    member[1].count = (uint32_t)((int32_t)member[1].count - more);
    member[1].first = (uint32_t)((int32_t)(member[1].first + plan->blocks) + more) % plan->blocks;
    return done(mutant, "a block %s member %u", more > 0 ? "more to" : "less to", which);
}

/* A block goes from a member to the next one: on one rank, or on all that name the two. */
static int wrong_run(hly_mutant_t *mutant, halay_plan_t *plan, uint32_t at, uint64_t *chance)
{
    halay_step_t *step = group_step(plan, at);
    if (step == NULL)
        return HALAY_EAGAIN;
    const halay_group_t was = plan->groups[step->peer];
    uint32_t which = hly_random_below(chance, was.nmembers + (was.nmembers == 0));
    int32_t more = hly_random_below(chance, 2) ? 1 : -1;
    int rc = edit_run(mutant, plan, step, which, more);
    int all = hly_random_below(chance, 2) == 0;
    for (uint32_t m = 0; rc == 0 && all && m < was.nmembers; m++) {
        uint32_t rank = plan->members[was.member + m].rank;
        if (rank == plan->params.rank || rank >= mutant->nranks)
            continue;
        halay_plan_t *other = change_rank(mutant, rank);
        if (other == NULL)
            return HALAY_ENOMEM;
        for (uint32_t i = 0; rc == 0 && i < other->nsteps; i++) {
            halay_step_t *theirs = &other->steps[i];
            if (theirs->kind == HALAY_STEP_GROUP && theirs->edge == step->edge &&
                theirs->peer < other->ngroups && other->groups[theirs->peer].kind == was.kind) {
                rc = edit_run(mutant, other, theirs, which, more);
                break;
            }
        }
    }
    return rc;
}

/* One rank's, or that of all in this group. */
static int wrong_group_kind(hly_mutant_t *mutant, halay_plan_t *plan, uint32_t at, uint64_t *chance)
{
    halay_step_t *step = group_step(plan, at);
    halay_group_t *group = step != NULL ? own_group(plan, step) : NULL;
    if (group == NULL)
        return HALAY_EAGAIN;
    uint32_t was = group->kind, now = another(chance, HALAY_GROUP_ALLTOALL + 2, was);
    int all = hly_random_below(chance, 2) == 0;
    group->kind = now;
    for (uint32_t m = 0; all && m < group->nmembers; m++) {
        uint32_t rank = plan->members[group->member + m].rank;
        halay_plan_t *other = rank < mutant->nranks ? change_rank(mutant, rank) : plan;
        if (other == NULL)
            return HALAY_ENOMEM;
        for (uint32_t g = 0; g < other->ngroups; g++)
            other->groups[g].kind = other->groups[g].kind == was ? now : other->groups[g].kind;
    }
    return done(mutant, "group of kind %u, not %u%s", now, was, all ? ", on all members" : "");
}

/* On this rank, or on all; there the first two group steps may change places too. */
static int wrong_channel(hly_mutant_t *mutant, halay_plan_t *plan, uint32_t at, uint64_t *chance)
{
    halay_step_t *step = group_step(plan, at);
    if (step == NULL)
        return HALAY_EAGAIN;
    uint32_t was = step->edge, now = another(chance, 4, was);
    if (hly_random_below(chance, 3) == 0) {
        step->edge = hly_random_below(chance, 4) ? now : HALAY_PLAN_CHANNELS_MAX;
        return done(mutant, "channel %u, not %u", step->edge, was);
    }
    for (uint32_t rank = 0; rank < mutant->nranks; rank++) {
        halay_plan_t *other = change_rank(mutant, rank);
        if (other == NULL)
            return HALAY_ENOMEM;
        for (uint32_t i = 0; i < other->nsteps; i++) {
            other->steps[i].edge =
                other->steps[i].kind == HALAY_STEP_GROUP ? now : other->steps[i].edge;
        }
    }
    halay_step_t *last = group_step(plan, (uint32_t)(step - plan->steps) + 1);
    if (last != step && hly_random_below(chance, 2)) {
        halay_step_t *late = last > step ? last : step;
        late->dep[0] = late->dep[1] = HALAY_STEP_NONE;
        return done(mutant, "all group steps on channel %u, of this rank in any order", now);
    }
    return done(mutant, "all group steps on channel %u", now);
}

/* It no longer waits for what its rank has to hear before, or nobody hears at all. */
static int unheard_group(hly_mutant_t *mutant, halay_plan_t *plan, uint32_t at, uint64_t *chance)
{
    halay_step_t *step = group_step(plan, at);
    if (step == NULL)
        return HALAY_EAGAIN;
    uint32_t was = step->dep[0], now = hly_random_below(chance, (uint32_t)(step - plan->steps) + 1);
    step->dep[0] = now == was || now == (uint32_t)(step - plan->steps) ? HALAY_STEP_NONE : now;
    step->dep[1] = hly_random_below(chance, 2) ? HALAY_STEP_NONE : step->dep[1];
    return done(mutant, "group step %u no longer waits for step %u", (uint32_t)(step - plan->steps),
                was);
}

static const struct {
    const char *name;
    change_fn *change;
} kinds[] = {
    {"dropped dependency", drop_dependency},
    {"redirected dependency", redirect_dependency},
    {"wrong peer", wrong_peer},
    {"wrong edge", wrong_edge},
    {"wrong first block", wrong_first},
    {"wrong count", wrong_count},
    {"wrong slot", wrong_slot},
    {"wrong buffer", wrong_buffer},
    {"swapped reduce operands", swap_operands},
    {"dropped reduce source", drop_source},
    {"duplicated reduce source", duplicate_source},
    {"COPY instead of REDUCE", copy_for_reduce},
    {"exchanged operands", exchange_operands},
    {"dropped step", drop_step},
    {"scratch too small", small_scratch},
    {"wrong group member", wrong_member},
    {"wrong group run", wrong_run},
    {"wrong group kind", wrong_group_kind},
    {"wrong channel", wrong_channel},
    {"group begun unheard", unheard_group},
};

enum { KINDS = sizeof kinds / sizeof kinds[0] };

/* And one more: two faults at once, which may or may not make up for one another. */
uint32_t hly_mutant_kinds(void)
{
    return KINDS + 1;
}

const char *hly_mutant_kind_name(uint32_t kind)
{
    assert(kind <= KINDS);
    return kind == KINDS ? "two of these" : kinds[kind].name;
}

static int add_fault(uint32_t kind, hly_mutant_t *mutant, uint64_t *chance)
{
    uint32_t rank = hly_random_below(chance, mutant->nranks);
    if (mutant->plans[rank]->nsteps == 0)
        return HALAY_EAGAIN;
    halay_plan_t *plan = change_rank(mutant, rank);
    if (plan == NULL)
        return HALAY_ENOMEM;
    uint32_t step = hly_random_below(chance, plan->nsteps);
    done(mutant, "%srank %u, step %u: ", mutant->what[0] != '\0' ? "; " : "", rank, step);
    return kinds[kind].change(mutant, plan, step, chance);
}

int hly_mutant_make(uint32_t kind, const halay_plan_t *const plans[], uint32_t nranks,
                    uint64_t *chance, hly_mutant_t *mutant)
{
    assert(kind <= KINDS && nranks >= 1 && nranks <= HLY_ORACLE_RANKS_MAX);
    memset(mutant, 0, sizeof *mutant);
    memcpy(mutant->plans, plans, nranks * sizeof plans[0]);
    mutant->nranks = nranks;
    int rc = 0;
    if (kind < KINDS) {
        rc = add_fault(kind, mutant, chance);
    } else {
        rc = add_fault(hly_random_below(chance, KINDS), mutant, chance);
        rc = rc != 0 ? rc : add_fault(hly_random_below(chance, KINDS), mutant, chance);
    }
    if (rc != 0)
        hly_mutant_free(mutant);
    return rc;
}

void hly_mutant_free(hly_mutant_t *mutant)
{
    for (uint32_t i = 0; i < mutant->nchanged; i++)
        free(mutant->changed[i]);
    memset(mutant, 0, sizeof *mutant);
}

static uint64_t mix(uint64_t hash, const uint32_t *words, uint32_t nwords)
{
    for (uint32_t i = 0; i < nwords; i++) {
        hash = (hash ^ words[i]) * 0x9e3779b97f4a7c15u;
        hash ^= hash >> 31;
    }
    return hash;
}

/* Operands count where they are used: where they are stored does not. */
uint64_t hly_mutant_hash(const hly_mutant_t *mutant)
{
    uint64_t hash = 1;
    for (uint32_t c = 0; c < mutant->nchanged; c++) {
        const halay_plan_t *plan = mutant->changed[c];
        const uint32_t head[] = {plan->params.rank, plan->scratch_slots};
        hash = mix(hash, head, 2);
        for (uint32_t i = 0; i < plan->nsteps; i++) {
            const halay_step_t *step = &plan->steps[i];
            const uint32_t words[] = {step->kind, step->noperands, step->peer,
                                      step->edge, step->dep[0],    step->dep[1]};
            hash = mix(hash, words, 6);
            for (uint32_t k = 0; k < step->noperands; k++) {
                const halay_operand_t *operand = &plan->operands[step->operand + k];
                const uint32_t place[] = {operand->buffer, operand->first, operand->count,
                                          operand->slot};
                hash = mix(hash, place, 4);
            }
            if (step->kind == HALAY_STEP_GROUP && step->peer < plan->ngroups) {
                const halay_group_t *group = &plan->groups[step->peer];
                const halay_member_t *member = plan->members + group->member;
                const uint32_t which[] = {group->kind, group->nmembers};
                hash = mix(hash, which, 2);
                for (uint32_t k = 0; k < group->nmembers; k++) {
                    const uint32_t run[] = {member[k].rank, member[k].first, member[k].count};
                    hash = mix(hash, run, 3);
                }
            }
        }
    }
    return hash;
}
