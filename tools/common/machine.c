/* SPDX-License-Identifier: Apache-2.0 */
/* machine.c - starts and ends steps on cells; see machine.h for what overlaps do. */
#include "machine.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

__attribute__((format(printf, 3, 4))) static void
end_run(hly_machine_t *machine, hly_verdict_t verdict, const char *format, ...)
{
    if (machine->verdict != HLY_RIGHT) {
        return;
    }
    machine->verdict = verdict;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(machine->why, sizeof machine->why, format, arguments);
    va_end(arguments);
}

static size_t carve(size_t *bytes, size_t count, size_t size)
{
    size_t at = *bytes;
    *bytes = (at + count * size + 7) & ~(size_t)7;
    return at;
}

/* The inputs of all ranks; all else was never written. */
static void fill_inputs(hly_machine_t *machine)
{
    const hly_program_t *program = machine->program;
    const halay_plan_params_t *params = &program->params;
    for (uint32_t rank = 0; rank < params->nranks; rank++) {
        uint32_t layout = hly_layout(params, rank, HALAY_BUFFER_IN);
        for (uint32_t block = 0; block < program->blocks; block++) {
            uint32_t leaf = hly_terms_leaf(&machine->terms, rank, block);
            if (layout == HLY_LAYOUT_FULL) {
                machine->cells[program->in[rank] + block].value = leaf;
            } else if (layout == HLY_LAYOUT_OWN && block == rank) {
                machine->cells[program->in[rank]].value = leaf;
            } else if (params->collective == HALAY_BROADCAST && rank == params->root) {
                machine->cells[program->out[rank] + block].value = leaf;
            }
        }
        machine->heard[rank] = (uint64_t)1 << rank;
        machine->left[rank] = program->nsteps_of[rank];
    }
    for (uint32_t g = 0; g < program->nsteps; g++) {
        assert(program->steps[g].need <= 2);
        machine->need[g] = (uint8_t)program->steps[g].need;
    }
}

int hly_machine_init(hly_machine_t *machine, const hly_program_t *program)
{
    memset(machine, 0, sizeof *machine);
    machine->program = program;
    size_t bytes = 0;
    size_t cells = carve(&bytes, program->ncells, sizeof(hly_cell_t));
    size_t reads = carve(&bytes, program->nreads, sizeof(hly_read_t));
    size_t writes = carve(&bytes, program->nwrites, sizeof(hly_write_t));
    size_t events = carve(&bytes, program->nevents, sizeof(hly_event_t));
    size_t nevents = carve(&bytes, 1, sizeof(uint32_t));
    size_t heard = carve(&bytes, program->params.nranks, sizeof(uint64_t));
    size_t told = carve(&bytes, program->nsteps, sizeof(uint64_t));
    size_t place = carve(&bytes, program->nsteps, sizeof(uint32_t));
    size_t begun =
        carve(&bytes, program->params.nranks * HALAY_PLAN_CHANNELS_MAX, sizeof(uint32_t));
    size_t left = carve(&bytes, program->params.nranks, sizeof(uint32_t));
    size_t steps = carve(&bytes, program->nsteps, 1);
    size_t need = carve(&bytes, program->nsteps, 1);
    machine->bytes = bytes;
    machine->state = calloc(1, bytes);
    machine->fresh = calloc(1, bytes);
    machine->pending = calloc(program->nsteps + 1, sizeof *machine->pending);
    if (machine->state == NULL || machine->fresh == NULL || machine->pending == NULL ||
        hly_terms_init(&machine->terms) != 0) {
        hly_machine_finish(machine);
        return HALAY_ENOMEM;
    }
    machine->cells = (hly_cell_t *)(void *)(machine->state + cells);
    machine->reads = (hly_read_t *)(void *)(machine->state + reads);
    machine->writes = (hly_write_t *)(void *)(machine->state + writes);
    machine->events = (hly_event_t *)(void *)(machine->state + events);
    machine->nevents = (uint32_t *)(void *)(machine->state + nevents);
    machine->heard = (uint64_t *)(void *)(machine->state + heard);
    machine->told = (uint64_t *)(void *)(machine->state + told);
    machine->place = (uint32_t *)(void *)(machine->state + place);
    machine->begun = (uint32_t *)(void *)(machine->state + begun);
    machine->left = (uint32_t *)(void *)(machine->state + left);
    machine->steps = machine->state + steps;
    machine->need = machine->state + need;
    fill_inputs(machine);
    memcpy(machine->fresh, machine->state, bytes);
    return 0;
}

void hly_machine_finish(hly_machine_t *machine)
{
    hly_terms_finish(&machine->terms);
    free(machine->state);
    free(machine->fresh);
    free(machine->pending);
    memset(machine, 0, sizeof *machine);
}

/* ------------------------------------------------------------------ events */

static void add_event(hly_machine_t *machine, uint32_t step, uint32_t send)
{
    assert(*machine->nevents < machine->program->nevents);
    machine->events[(*machine->nevents)++] = (hly_event_t){step, send};
}

/* Every message that this end could now be of. */
static void add_messages(hly_machine_t *machine, uint32_t g)
{
    const hly_program_t *program = machine->program;
    const hly_pstep_t *step = &program->steps[g];
    const hly_channel_t *channel = &program->channels[step->channel];
    if (step->kind == HALAY_STEP_SEND) {
        for (uint32_t i = 0; i < channel->nrecvs; i++) {
            uint32_t recv = program->ends[channel->recvs + i];
            if (machine->steps[recv] == HLY_STEP_MOVES) {
                add_event(machine, recv, g);
            }
        }
        return;
    }
    uint8_t wanted = machine->eager ? HLY_STEP_SENT : HLY_STEP_MOVES;
    for (uint32_t i = 0; i < channel->nsends; i++) {
        uint32_t send = program->ends[channel->sends + i];
        if (machine->steps[send] == wanted) {
            add_event(machine, g, send);
        }
    }
}

/* Takes out what step and send can no longer do; the order of the others stays. */
static void drop_events(hly_machine_t *machine, uint32_t step, uint32_t send)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < *machine->nevents; i++) {
        hly_event_t event = machine->events[i];
        if (event.step != step && (send == HLY_NO_SEND || event.send != send)) {
            machine->events[kept++] = event;
        }
    }
    *machine->nevents = kept;
}

/* ------------------------------------------------------------------ steps */

uint32_t hly_machine_read(const hly_machine_t *machine, const hly_pstep_t *step, uint32_t i)
{
    const hly_program_t *program = machine->program;
    const hly_read_t *read = &machine->reads[step->reads + i];
    uint32_t cell = program->cells[program->runs[step->source].cell + i];
    return machine->cells[cell].writes == read->writes ? read->value : HLY_TERM_GARBAGE;
}

static void begin_reads(hly_machine_t *machine, const hly_pstep_t *step)
{
    const hly_program_t *program = machine->program;
    uint32_t at = step->reads;
    for (uint32_t s = 0; s < step->nsources; s++) {
        const hly_run_t *run = &program->runs[step->source + s];
        for (uint32_t i = 0; i < run->count; i++, at++) {
            const hly_cell_t *cell = &machine->cells[program->cells[run->cell + i]];
            machine->reads[at].value = cell->value;
            machine->reads[at].writes = cell->writes;
            if (cell->writers > 0) {
                machine->reads[at].value = HLY_TERM_GARBAGE;
            } else if (cell->value == HLY_TERM_NONE) {
                end_run(machine, HLY_FAULT, "rank %u, step %u reads what was never written",
                        step->rank, step->index);
            } else if (cell->tag != run->tag) {
                end_run(machine, HLY_FAULT, "rank %u, step %u reads scratch as it was not written",
                        step->rank, step->index);
            }
        }
    }
}

/* After begin_reads: a step does not disturb its own reads. */
static void begin_writes(hly_machine_t *machine, const hly_pstep_t *step)
{
    if (step->target == HLY_NO_RUN) {
        return;
    }
    const hly_program_t *program = machine->program;
    const hly_run_t *target = &program->runs[step->target];
    for (uint32_t i = 0; i < target->count; i++) {
        hly_cell_t *cell = &machine->cells[program->cells[target->cell + i]];
        hly_write_t *write = &machine->writes[step->writes + i];
        write->shared = cell->writers > 0;
        cell->writers++;
        write->writes = ++cell->writes;
    }
    if (step->kind == HALAY_STEP_GROUP) {
        const hly_run_t *from = &program->runs[step->source];
        for (uint32_t i = 0; i < from->count * target->count; i++) {
            uint32_t r = i / target->count, w = i % target->count;
            machine->reads[step->reads + r].writes +=
                program->cells[from->cell + r] == program->cells[target->cell + w];
        }
        return;
    }
    uint32_t nreads = step->nsources * target->count;
    for (uint32_t i = 0; i < nreads; i++) {
        uint32_t source = program->cells[program->runs[step->source].cell + i];
        if (source == program->cells[target->cell + i % target->count]) {
            machine->reads[step->reads + i].writes++;
        }
    }
}

static void write_cell(hly_machine_t *machine, const hly_pstep_t *step, uint32_t i, uint32_t value)
{
    const hly_program_t *program = machine->program;
    const hly_run_t *target = &program->runs[step->target];
    hly_cell_t *cell = &machine->cells[program->cells[target->cell + i]];
    const hly_write_t *write = &machine->writes[step->writes + i];
    assert(cell->writers > 0);
    cell->writers--;
    int alone = !write->shared && cell->writes == write->writes;
    if (!alone && cell->writers == 0 && (cell->value != value || cell->tag != target->tag)) {
        value = HLY_TERM_GARBAGE;
    }
    cell->value = value;
    cell->tag = target->tag;
}

/* From all; in a series from the root. */
static int has_heard(const hly_machine_t *machine, uint32_t rank)
{
    const hly_program_t *program = machine->program;
    uint64_t all = UINT64_MAX >> (HLY_PROGRAM_RANKS_MAX - program->params.nranks);
    uint64_t needed = program->series ? (uint64_t)1 << program->params.root : all;

    return (machine->heard[rank] & needed) == needed;
}

/* Puts successors that may start now on the work list. */
static void release(hly_machine_t *machine, uint32_t g, uint32_t *npending)
{
    const hly_pstep_t *step = &machine->program->steps[g];
    for (uint32_t i = 0; i < step->nnext; i++) {
        uint32_t next = machine->program->next[step->next + i];
        assert(machine->need[next] > 0);
        if (--machine->need[next] == 0) {
            machine->pending[(*npending)++] = next;
        }
    }
    assert(machine->left[step->rank] > 0);
    if (--machine->left[step->rank] == 0 && !has_heard(machine, step->rank)) {
        end_run(machine, HLY_WRONG, "rank %u is done before it has heard from all (only %#llx)",
                step->rank, (unsigned long long)machine->heard[step->rank]);
    }
}

int hly_machine_meets(const hly_machine_t *machine, uint32_t g, uint32_t *meets)
{
    const hly_program_t *program = machine->program;
    const hly_pstep_t *step = &program->steps[g];
    for (uint32_t m = 0; m < step->nmembers; m++) {
        meets[m] = UINT32_MAX;
        for (uint32_t h = 0; h < program->nsteps; h++) {
            const hly_pstep_t *other = &program->steps[h];
            if (other->kind == HALAY_STEP_GROUP && other->rank == step->members[m].rank &&
                other->channel == step->channel && machine->steps[h] == HLY_STEP_MOVES &&
                machine->place[h] == machine->place[g]) {
                meets[m] = h;
            }
        }
    }
    for (uint32_t m = 0; m < step->nmembers; m++) {
        if (meets[m] == UINT32_MAX) {
            return 0;
        }
    }
    return 1;
}

static int same_group(const hly_pstep_t *a, const hly_pstep_t *b)
{
    int same = a->group == b->group && a->nmembers == b->nmembers;
    for (uint32_t m = 0; same && m < a->nmembers; m++) {
        same = a->members[m].rank == b->members[m].rank &&
               a->members[m].count == b->members[m].count &&
               (a->members[m].count == 0 || a->members[m].first == b->members[m].first);
    }
    return same;
}

static void start_group(hly_machine_t *machine, uint32_t g)
{
    const hly_pstep_t *step = &machine->program->steps[g];
    uint32_t meets[HLY_PROGRAM_RANKS_MAX] = {0};
    uint32_t *begun = &machine->begun[step->rank * HALAY_PLAN_CHANNELS_MAX + step->channel];
    machine->told[g] = machine->heard[step->rank];
    machine->place[g] = (*begun)++;
    int all = hly_machine_meets(machine, g, meets);
    for (uint32_t m = 0; m < step->nmembers; m++) {
        if (!(machine->told[g] >> step->members[m].rank & 1)) {
            end_run(machine, HLY_WRONG, "rank %u, step %u begins before it has heard from rank %u",
                    step->rank, step->index, step->members[m].rank);
        }
        if (meets[m] != UINT32_MAX && !same_group(step, &machine->program->steps[meets[m]])) {
            end_run(machine, HLY_FAULT, "rank %u, step %u meets another group on rank %u",
                    step->rank, step->index, step->members[m].rank);
        }
    }
    if (all) {
        add_event(machine, meets[0], HLY_NO_SEND);
    }
}

/* Starts all on the work list, and what becomes ready by that (after a JOIN). */
static void start_pending(hly_machine_t *machine, uint32_t npending)
{
    while (npending > 0 && machine->verdict == HLY_RIGHT) {
        uint32_t g = machine->pending[--npending];
        const hly_pstep_t *step = &machine->program->steps[g];
        assert(machine->steps[g] == HLY_STEP_WAITS);
        if (step->kind == HALAY_STEP_JOIN) {
            machine->steps[g] = HLY_STEP_DONE;
            release(machine, g, &npending);
            continue;
        }
        machine->steps[g] = HLY_STEP_MOVES;
        begin_reads(machine, step);
        begin_writes(machine, step);
        if (step->kind == HALAY_STEP_SEND) {
            machine->told[g] = machine->heard[step->rank];
        }
        if (step->kind == HALAY_STEP_GROUP) {
            start_group(machine, g);
            continue;
        }
        if (step->kind == HALAY_STEP_RECV || (step->kind == HALAY_STEP_SEND && !machine->eager)) {
            add_messages(machine, g);
        } else {
            add_event(machine, g, HLY_NO_SEND);
        }
    }
}

void hly_machine_reset(hly_machine_t *machine, uint32_t eager)
{
    const hly_program_t *program = machine->program;
    memcpy(machine->state, machine->fresh, machine->bytes);
    machine->eager = eager;
    machine->verdict = HLY_RIGHT;
    machine->why[0] = '\0';
    for (uint32_t rank = 0; rank < program->params.nranks; rank++) {
        if (machine->left[rank] == 0 && !has_heard(machine, rank)) {
            end_run(machine, HLY_WRONG, "rank %u does nothing and hears from nobody", rank);
        }
    }
    uint32_t npending = 0;
    for (uint32_t g = program->nsteps; g-- > 0;) {
        if (program->steps[g].need == 0) {
            machine->pending[npending++] = g;
        }
    }
    start_pending(machine, npending);
}

/* ------------------------------------------------------------------ moves */

static void end_local(hly_machine_t *machine, const hly_pstep_t *step)
{
    const hly_run_t *target = &machine->program->runs[step->target];
    uint32_t results[HLY_PROGRAM_BLOCKS_MAX];
    assert(target->count <= HLY_PROGRAM_BLOCKS_MAX && step->nsources <= HLY_TERM_OPERANDS_MAX);
    for (uint32_t i = 0; i < target->count; i++) {
        uint32_t operands[HLY_TERM_OPERANDS_MAX];
        for (uint32_t s = 0; s < step->nsources; s++) {
            operands[s] = hly_machine_read(machine, step, s * target->count + i);
        }
        results[i] = hly_terms_reduce(&machine->terms, operands, step->nsources);
    }
    for (uint32_t i = 0; i < target->count; i++) {
        write_cell(machine, step, i, results[i]);
    }
}

/* The message has left: what it carries is settled. */
static void settle_send(hly_machine_t *machine, const hly_pstep_t *send)
{
    uint32_t count = machine->program->runs[send->source].count;
    for (uint32_t i = 0; i < count; i++) {
        machine->reads[send->reads + i].value = hly_machine_read(machine, send, i);
    }
}

static void end_message(hly_machine_t *machine, const hly_pstep_t *recv, uint32_t g)
{
    const hly_program_t *program = machine->program;
    const hly_pstep_t *send = &program->steps[g];
    const hly_run_t *from = &program->runs[send->source];
    const hly_run_t *to = &program->runs[recv->target];
    if (from->count != to->count ||
        (from->first != to->first && program->params.collective != HALAY_ALLTOALL) ||
        !hly_sizes_agree(program, send->rank, from, recv->rank, to)) {
        end_run(machine, HLY_FAULT,
                "rank %u, step %u: blocks %u+%u arrive from rank %u, step %u for %u+%u", recv->rank,
                recv->index, from->first, from->count, send->rank, send->index, to->first,
                to->count);
        return;
    }
    if (machine->steps[g] == HLY_STEP_MOVES) {
        settle_send(machine, send);
    }
    for (uint32_t i = 0; i < to->count; i++) {
        write_cell(machine, recv, i, machine->reads[send->reads + i].value);
    }
    machine->heard[recv->rank] |= machine->told[g];
}

/* What the group makes of a block: the sum of all members', or that of the member whose it is. */
static uint32_t group_block(hly_machine_t *machine, const uint32_t *meets, uint32_t block)
{
    const hly_program_t *program = machine->program;
    const hly_pstep_t *step = &program->steps[meets[0]];
    int moves = step->group == HALAY_GROUP_ALLGATHER || step->group == HALAY_GROUP_BROADCAST;
    uint32_t operands[HLY_PROGRAM_RANKS_MAX], n = 0;
    for (uint32_t m = 0; m < step->nmembers; m++) {
        const hly_pstep_t *of = &program->steps[meets[m]];
        const hly_run_t *from = &program->runs[of->source];
        for (uint32_t i = 0; i < from->count; i++) {
            if ((from->first + i) % program->blocks == block) {
                operands[n++] = hly_machine_read(machine, of, i);
            }
        }
    }
    assert(n == (moves ? 1 : step->nmembers));
    return hly_terms_group(&machine->terms, meets[0], operands, n);
}

/* Run r of member m goes to member r, as its run m. */
static void end_exchange(hly_machine_t *machine, const uint32_t *meets, uint32_t n)
{
    const hly_program_t *program = machine->program;
    uint32_t values[HLY_PROGRAM_RANKS_MAX][HLY_PROGRAM_BLOCKS_MAX];
    uint64_t all = 0;
    uint32_t run = program->runs[program->steps[meets[0]].target].count / n;
    for (uint32_t m = 0; m < n; m++) {
        for (uint32_t r = 0; r < n; r++) {
            for (uint32_t i = 0; i < run; i++) {
                values[r][m * run + i] =
                    hly_machine_read(machine, &program->steps[meets[m]], r * run + i);
            }
        }
        all |= machine->told[meets[m]];
    }
    for (uint32_t m = 0; m < n; m++) {
        const hly_pstep_t *step = &program->steps[meets[m]];
        for (uint32_t i = 0; i < n * run; i++) {
            write_cell(machine, step, i, values[m][i]);
        }
        machine->heard[step->rank] |= all;
    }
}

static void end_group(hly_machine_t *machine, const uint32_t *meets, uint32_t n)
{
    assert(n > 0);
    const hly_program_t *program = machine->program;
    if (program->steps[meets[0]].group == HALAY_GROUP_ALLTOALL) {
        end_exchange(machine, meets, n);
        return;
    }
    uint32_t made[HLY_PROGRAM_BLOCKS_MAX], have[HLY_PROGRAM_BLOCKS_MAX] = {0};
    uint64_t all = 0;
    for (uint32_t m = 0; m < n; m++) {
        const hly_pstep_t *step = &program->steps[meets[m]];
        const hly_run_t *to = &program->runs[step->target];
        for (uint32_t i = 0; i < to->count; i++) {
            uint32_t block = (to->first + i) % program->blocks;
            if (!have[block]) {
                made[block] = group_block(machine, meets, block);
                have[block] = 1;
            }
        }
        if (program->runs[step->source].count > 0) {
            all |= machine->told[meets[m]];
        }
    }
    for (uint32_t m = 0; m < n; m++) {
        const hly_pstep_t *step = &program->steps[meets[m]];
        const hly_run_t *to = &program->runs[step->target];
        for (uint32_t i = 0; i < to->count; i++) {
            write_cell(machine, step, i, made[(to->first + i) % program->blocks]);
        }
        if (to->count > 0) {
            machine->heard[step->rank] |= all;
        }
    }
}

static void move_group(hly_machine_t *machine, uint32_t g)
{
    uint32_t meets[HLY_PROGRAM_RANKS_MAX], npending = 0;
    uint32_t n = machine->program->steps[g].nmembers;
    int all = hly_machine_meets(machine, g, meets);
    assert(all);
    (void)all;
    end_group(machine, meets, n);
    for (uint32_t m = 0; m < n; m++) {
        machine->steps[meets[m]] = HLY_STEP_DONE;
    }
    for (uint32_t m = 0; m < n; m++) {
        release(machine, meets[m], &npending);
    }
    start_pending(machine, npending);
}

void hly_machine_move(hly_machine_t *machine, uint32_t event)
{
    assert(event < *machine->nevents && machine->verdict == HLY_RIGHT);
    const hly_program_t *program = machine->program;
    hly_event_t now = machine->events[event];
    const hly_pstep_t *step = &program->steps[now.step];
    uint32_t npending = 0;
    drop_events(machine, now.step, now.send);
    if (step->kind == HALAY_STEP_GROUP) {
        move_group(machine, now.step);
        return;
    }
    if (now.send != HLY_NO_SEND) {
        end_message(machine, step, now.send);
        int sent = machine->steps[now.send] == HLY_STEP_SENT;
        machine->steps[now.send] = HLY_STEP_DONE;
        if (!sent && machine->verdict == HLY_RIGHT) {
            release(machine, now.send, &npending);
        }
    } else if (step->kind == HALAY_STEP_SEND) {
        settle_send(machine, step);
        machine->steps[now.step] = HLY_STEP_SENT;
        add_messages(machine, now.step);
        release(machine, now.step, &npending);
        start_pending(machine, npending);
        return;
    } else {
        end_local(machine, step);
    }
    machine->steps[now.step] = HLY_STEP_DONE;
    if (machine->verdict == HLY_RIGHT) {
        release(machine, now.step, &npending);
    }
    start_pending(machine, npending);
}

/* ------------------------------------------------------------------ the end */

static uint32_t wanted_value(hly_machine_t *machine, uint32_t rank, uint32_t block)
{
    const hly_program_t *program = machine->program;
    const halay_plan_params_t *params = &program->params;
    uint32_t cell = program->out[rank];
    if (hly_layout(params, rank, HALAY_BUFFER_OUT) == HLY_LAYOUT_FULL) {
        cell += block;
    }
    uint32_t value = machine->cells[cell].value;
    uint32_t good = 0;
    switch (params->collective) {
    case HALAY_BROADCAST:
        good = value == hly_terms_leaf(&machine->terms, params->root, block);
        break;
    case HALAY_SCATTER:
        good = value == hly_terms_leaf(&machine->terms, params->root, rank);
        break;
    case HALAY_ALLGATHER:
    case HALAY_GATHER:
        good = value == hly_terms_leaf(&machine->terms, block, block);
        break;
    case HALAY_ALLTOALL:
        good = value == hly_terms_leaf(&machine->terms, block, rank);
        break;
    case HALAY_SCAN:
        good = (uint32_t)hly_terms_is_sum(&machine->terms, value, block, rank + 1);
        break;
    case HALAY_EXSCAN:
        good = (uint32_t)hly_terms_is_sum(&machine->terms, value, block, rank);
        break;
    default:
        good = (uint32_t)hly_terms_is_sum(&machine->terms, value, block, params->nranks);
        break;
    }
    return good ? value : HLY_TERM_NONE;
}

static void judge_block(hly_machine_t *machine, uint32_t rank, uint32_t block)
{
    if (machine->program->params.collective == HALAY_EXSCAN && rank == 0) {
        if (machine->cells[machine->program->out[rank] + block].writes > 0) {
            end_run(machine, HLY_WRONG, "rank 0 writes to block %u of out", block);
        }
        return;
    }
    uint32_t value = wanted_value(machine, rank, block);
    if (value == HLY_TERM_NONE) {
        end_run(machine, HLY_WRONG, "rank %u ends with a wrong block %u", rank, block);
    } else if (machine->program->params.collective == HALAY_ALLREDUCE &&
               value != wanted_value(machine, 0, block)) {
        end_run(machine, HLY_WRONG, "rank %u computes block %u as rank 0 does not", rank, block);
    } else if (machine->program->in_order && !hly_terms_in_order(&machine->terms, value)) {
        end_run(machine, HLY_WRONG, "rank %u reduces block %u out of the order of ranks", rank,
                block);
    }
}

void hly_machine_judge(hly_machine_t *machine)
{
    const hly_program_t *program = machine->program;
    assert(*machine->nevents == 0);
    for (uint32_t g = 0; g < program->nsteps; g++) {
        if (machine->steps[g] == HLY_STEP_SENT) {
            end_run(machine, HLY_STALL, "nobody receives what rank %u sends in step %u",
                    program->steps[g].rank, program->steps[g].index);
            return;
        }
        if (machine->steps[g] != HLY_STEP_DONE) {
            end_run(machine, HLY_STALL, "rank %u waits in step %u for ever", program->steps[g].rank,
                    program->steps[g].index);
            return;
        }
    }
    for (uint32_t rank = 0; rank < program->params.nranks; rank++) {
        uint32_t layout = hly_layout(&program->params, rank, HALAY_BUFFER_OUT);
        for (uint32_t block = 0; block < program->blocks; block++) {
            if (layout == HLY_LAYOUT_FULL || (layout == HLY_LAYOUT_OWN && block == rank)) {
                judge_block(machine, rank, block);
            }
        }
    }
}
