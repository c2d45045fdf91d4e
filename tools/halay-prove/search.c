/* SPDX-License-Identifier: Apache-2.0 */
/*
 * search.c - every order, depth first. Two ways to one state are followed once: a state is what the
 * rest of the run can depend on, and the counters after it are left out. States are remembered by
 * 128 bits of hash: with 20,000 of them a collision has a chance of about 1e-30.
 */
#include "order.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

typedef struct key {
    uint64_t word[2];
} key_t128;

typedef struct frame {
    uint8_t *state;
    uint32_t next; /* event to try */
} frame_t;

typedef struct search {
    hly_machine_t *machine;
    key_t128 *seen; /* open addressing; {0, 0} is empty */
    uint32_t mask;
    frame_t *frames;
    uint8_t *states;
    uint32_t nframes_max;
} search_t;

static void mix(key_t128 *key, uint64_t word)
{
    key->word[0] = (key->word[0] ^ word) * 0x9e3779b97f4a7c15u;
    key->word[0] ^= key->word[0] >> 32;
    key->word[1] = (key->word[1] + word) * 0xc2b2ae3d27d4eb4fu;
    key->word[1] ^= key->word[1] >> 29;
}

/* Steps done and on their way, what they have read, what they share, and the cells. */
static key_t128 key_of(const hly_machine_t *machine)
{
    const hly_program_t *program = machine->program;
    key_t128 key = {{1, 2}};
    for (uint32_t cell = 0; cell < program->ncells; cell++) {
        mix(&key, machine->cells[cell].value);
        mix(&key, machine->cells[cell].tag);
    }
    for (uint32_t rank = 0; rank < program->params.nranks; rank++)
        mix(&key, machine->heard[rank]);
    for (uint32_t g = 0; g < program->nsteps; g++) {
        const hly_pstep_t *step = &program->steps[g];
        uint8_t state = machine->steps[g];
        mix(&key, state);
        if (state != HLY_STEP_MOVES && state != HLY_STEP_SENT)
            continue;
        uint32_t nreads = step->nsources > 0 ? program->runs[step->source].count : 0;
        for (uint32_t i = 0; i < step->nsources * nreads; i++) {
            mix(&key, state == HLY_STEP_SENT ? machine->reads[step->reads + i].value
                                             : hly_machine_read(machine, step, i));
        }
        mix(&key, machine->told[g]);
        mix(&key, machine->place[g]);
        uint32_t nwrites = step->target != HLY_NO_RUN ? program->runs[step->target].count : 0;
        for (uint32_t i = 0; i < nwrites; i++) {
            const hly_write_t *write = &machine->writes[step->writes + i];
            uint32_t cell = program->cells[program->runs[step->target].cell + i];
            mix(&key, write->shared || machine->cells[cell].writes != write->writes);
        }
    }
    key.word[0] |= key.word[1] == 0;
    return key;
}

/* 1 if the key is new. */
static int remember(search_t *search, key_t128 key)
{
    for (uint32_t at = (uint32_t)key.word[0] & search->mask;; at = (at + 1) & search->mask) {
        key_t128 *seen = &search->seen[at];
        if (seen->word[0] == key.word[0] && seen->word[1] == key.word[1])
            return 0;
        if (seen->word[0] == 0 && seen->word[1] == 0) {
            *seen = key;
            return 1;
        }
    }
}

static int search_init(search_t *search, hly_machine_t *machine, uint32_t states_max)
{
    memset(search, 0, sizeof *search);
    search->machine = machine;
    search->mask = 1;
    while (search->mask < 2 * states_max + 2)
        search->mask = search->mask * 2;
    search->seen = calloc(search->mask, sizeof *search->seen);
    search->mask--;
    /* Every move ends a step or sends one message. */
    search->nframes_max = 2 * machine->program->nsteps + 2;
    search->frames = calloc(search->nframes_max, sizeof *search->frames);
    search->states = malloc(search->nframes_max * machine->bytes);
    if (search->seen == NULL || search->frames == NULL || search->states == NULL) {
        free(search->seen);
        free(search->frames);
        free(search->states);
        return HALAY_ENOMEM;
    }
    for (uint32_t i = 0; i < search->nframes_max; i++)
        search->frames[i].state = search->states + i * machine->bytes;
    return 0;
}

static void search_finish(search_t *search)
{
    free(search->seen);
    free(search->frames);
    free(search->states);
}

int hly_search(hly_machine_t *machine, uint32_t eager, uint32_t states_max, uint64_t *states,
               int *complete)
{
    search_t search;
    if (search_init(&search, machine, states_max) != 0)
        return HALAY_ENOMEM;
    *complete = 1;
    *states = 1;
    hly_machine_reset(machine, eager);
    memcpy(search.frames[0].state, machine->state, machine->bytes);
    uint32_t depth = 1;
    while (machine->verdict == HLY_RIGHT && depth > 0) {
        frame_t *frame = &search.frames[depth - 1];
        memcpy(machine->state, frame->state, machine->bytes);
        if (*machine->nevents == 0)
            hly_machine_judge(machine);
        if (frame->next >= *machine->nevents) {
            depth--;
            continue;
        }
        hly_machine_move(machine, frame->next++);
        if (machine->verdict != HLY_RIGHT || !remember(&search, key_of(machine)))
            continue;
        if (++*states > states_max) {
            *complete = 0;
            break;
        }
        assert(depth < search.nframes_max);
        search.frames[depth].next = 0;
        memcpy(search.frames[depth].state, machine->state, machine->bytes);
        depth++;
    }
    search_finish(&search);
    return 0;
}
