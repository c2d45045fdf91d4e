/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_training_core.c - the pure core of two and three ranks, without threads or calls: drawn
 * orders of submissions, events and results. What the shell would send is copied from core to core.
 * All ranks start the same tensors and groups in the same order; all come to their end; programmes
 * are learnt, replayed, and broken off where a rank lacks a tensor.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "training/core/negotiate.h"
#include "training/core/replay.h"

#define CHECK_FAILED abort()
#include "../check.h"

enum {
    RANKS = 3,
    NAMES = 6,
    STEPS = 24,
    STARTS = STEPS * NAMES * 4,
    DRAWS = 1500,
    EVENTS = 200000
};

struct core_rank {
    struct hlt_core core;
    struct hlt_block blocks[RANKS];
    struct hlt_greeting greetings[RANKS];
    struct hlt_unlike unlike[RANKS * HLT_ROUND_ENTRIES];
    uint64_t joined[1];
    uint8_t kinds[RANKS];
    struct hlt_tensor tensors[NAMES];
    int order[NAMES], submitted, step, out; /* of this step; out: not done */
    struct hlt_list launched[STARTS];       /* the groups of replays */
    int empty[STARTS];
    int nlaunched, nresults;
    uint64_t starts[STARTS]; /* names: what it has started, in this order */
    int nstarts, ndone;
};

static uint64_t seed;
static uint64_t cycles, voids;

static unsigned draw(unsigned below)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (unsigned)((seed >> 33) % below);
}

static void rank_make(struct core_rank *r, int rank, int nranks)
{
    struct hlt_core *core = &r->core;
    memset(r, 0, sizeof(*r));
    core->rank = rank;
    core->nranks = nranks;
    core->deadline_ns = UINT64_C(1) << 60;
    core->buffer_bytes = 64;
    core->greetings = r->greetings;
    core->now_ns = 1;
    core->rounds.blocks = r->blocks;
    core->rounds.groups_room = RANKS * HLT_ROUND_ENTRIES;
    core->rounds.agreed_groups = calloc(core->rounds.groups_room, sizeof(uint64_t));
    core->rounds.unlike = r->unlike;
    core->joins.ranks = r->joined;
    core->joins.kinds = r->kinds;
    CHECK(!hlt_tensor_map_init(&core->rounds.records), "a map");
}

static void rank_free(struct core_rank *r)
{
    hlt_round_records_free(&r->core);
    hlt_programmes_free(&r->core);
    free(r->core.rounds.agreed_groups);
}

/* One more tensor of the step; with `odd` the last one has another name on all ranks. */
static void submit(struct core_rank *r, int odd)
{
    int which = r->order[r->submitted++];
    struct hlt_tensor *t = &r->tensors[which];
    memset(t, 0, sizeof(*t));
    snprintf(t->name, sizeof(t->name), "t%d%s", which, which == NAMES - 1 && odd ? "odd" : "");
    t->node.hash = hlt_tensor_hash(t->name);
    t->kind = HLT_KIND_ALLREDUCE;
    t->type = HALAY_FLOAT32;
    t->says.name = t->node.hash;
    t->says.what = hlt_tensor_what(t->kind, t->type, HALAY_SUM, 0);
    t->says.count = t->count = 4 + (size_t)which;
    t->says.wait = (uint64_t)r->step;
    t->submit_ns = ++r->core.now_ns;
    r->out++;
    hlt_tensor_list_push(&r->core.pending, t);
}

static void started(struct core_rank *r, uint64_t name)
{
    CHECK(r->nstarts < STARTS, "rank %d starts without end", r->core.rank);
    r->starts[r->nstarts++] = name;
}

static void done(struct core_rank *r, struct hlt_list *tensors)
{
    while (hlt_tensor_list_pop(tensors)) {
        r->out--;
        r->ndone++;
    }
}

/* The blocks of all reach all. */
static void make_round(struct core_rank ranks[], int nranks)
{
    for (int r = 0; r < nranks; r++) {
        hlt_round_begin(&ranks[r].core);
        hlt_round_fill(&ranks[r].core);
    }
    for (int r = 0; r < nranks; r++)
        for (int from = 0; from < nranks; from++)
            ranks[r].blocks[from] = ranks[from].blocks[from];
    for (int r = 0; r < nranks; r++) {
        struct hlt_core *core = &ranks[r].core;
        if (hlt_round_read(core))
            hlt_round_withdraw(core);
        CHECK(!core->broken, "rank %d: %s", r, core->broken_text);
        for (const struct hlt_tensor *t = core->ready.head; t; t = t->next)
            started(&ranks[r], t->node.hash);
        done(&ranks[r], &core->ready);
    }
}

static void replay(struct core_rank *r)
{
    const struct hlt_seen seen = {.wanted = r->submitted == NAMES || !draw(64)};
    struct hlt_launch launch;
    enum hlt_next next;
    int empty = 0;
    r->core.now_ns += 1 + (uint64_t)seen.wanted * 1000000;
    while ((next = hlt_replay_next(&r->core, empty, &launch)) == HLT_NEXT_MISSING)
        if (!(empty = hlt_replay_must_void(&r->core, &seen)))
            return;
    if (next != HLT_NEXT_GROUP)
        return;
    const struct hlt_item *items = r->core.replay.programme->script.items;
    for (uint32_t i = 0; i < launch.group->count; i++)
        started(r, items[launch.group->first + i].says.name);
    r->launched[r->nlaunched] = launch.tensors;
    r->empty[r->nlaunched++] = !launch.tensors.head;
}

/* Of the next group, once all have sent it out: it is void if it was so on any rank. */
static void take_result(struct core_rank ranks[], int nranks, struct core_rank *r)
{
    int empty = 0;
    for (int i = 0; i < nranks; i++) {
        if (ranks[i].nlaunched <= r->nresults)
            return;
        empty |= ranks[i].empty[r->nresults];
    }
    struct hlt_list *tensors = &r->launched[r->nresults++];
    hlt_replay_result(&r->core, tensors, empty);
    done(r, tensors);
    hlt_replay_step(&r->core, 0);
}

static void step_begin(struct core_rank *r)
{
    for (int i = 0; i < NAMES; i++)
        r->order[i] = i;
    for (int i = NAMES - 1; i > 0; i--) {
        int other = (int)draw((unsigned)i + 1), was = r->order[i];
        r->order[i] = r->order[other];
        r->order[other] = was;
    }
    r->submitted = 0;
    r->step++;
}

/* One event of one rank. Returns 1 while steps are left. */
static int event(struct core_rank ranks[], int nranks)
{
    int left = 0, due = 0;
    struct core_rank *r = &ranks[draw((unsigned)nranks)];
    for (int i = 0; i < nranks; i++) {
        left |= ranks[i].ndone < STEPS * NAMES || ranks[i].nresults < ranks[i].nlaunched;
        due |= !ranks[i].core.replay.programme && hlt_round_due(&ranks[i].core);
    }
    switch (draw(4)) {
    case 0:
        if (r->submitted == NAMES && !r->out && r->step < STEPS)
            step_begin(r);
        else if (r->submitted < NAMES)
            submit(r, r->step % 7 == 6);
        break;
    case 1:
        replay(r);
        break;
    case 2:
        take_result(ranks, nranks, r);
        break;
    default:
        if (due)
            make_round(ranks, nranks);
    }
    return left;
}

static void test_draw(int nranks)
{
    struct core_rank *ranks = calloc((size_t)nranks, sizeof(*ranks));
    int events = 0;
    CHECK(ranks, "memory");
    for (int r = 0; r < nranks; r++) {
        rank_make(&ranks[r], r, nranks);
        step_begin(&ranks[r]);
    }
    while (event(ranks, nranks))
        CHECK(++events < EVENTS, "%d ranks do not come to an end", nranks);
    for (int r = 0; r < nranks; r++) {
        const halay_trainer_counters_t *own = &ranks[r].core.counters;
        const halay_trainer_counters_t *first = &ranks[0].core.counters;
        CHECK(ranks[r].nstarts == ranks[0].nstarts &&
                  !memcmp(ranks[r].starts, ranks[0].starts, sizeof(ranks[r].starts)),
              "rank %d starts what rank 0 does not", r);
        CHECK(own->programmes == first->programmes && own->cycles == first->cycles &&
                  own->voids == first->voids,
              "rank %d has learnt what rank 0 has not", r);
    }
    cycles += ranks[0].core.counters.cycles;
    voids += ranks[0].core.counters.voids;
    for (int r = 0; r < nranks; r++)
        rank_free(&ranks[r]);
    free(ranks);
}

int main(void)
{
    for (int n = 0; n < DRAWS; n++) {
        seed = 88172645463325252u + (uint64_t)n;
        test_draw(2 + n % 2);
    }
    CHECK(cycles > DRAWS && voids > DRAWS, "%d cycles, %d voids", (int)cycles, (int)voids);
    printf("%d draws: %d cycles, %d voids\n", DRAWS, (int)cycles, (int)voids);
    return 0;
}
