/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_training_core.c - the pure core of two and three ranks, without threads or calls: drawn
 * orders of submissions, events and results. What the shell would send is copied from core to core.
 * All ranks start the same tensors and groups in the same order; all come to their end; programmes
 * are learnt, replayed, and broken off where a rank lacks a tensor. In some draws ranks have
 * different numbers of steps and join after their last one; in some a rank's deadline passes at any
 * time, so it withdraws tensors and its join, and the others may wait for what it never submits.
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
    EPOCHS = 3, /* that end with a join */
    STARTS = STEPS * NAMES * 8,
    DRAWS = 6000,
    EVENTS = 400000
};
enum { JOINS = 1, LATE = 2 };
#define DEADLINE_NS UINT64_C(1000000000000)
#define GROUP       UINT64_C(77)

struct core_rank {
    struct hlt_core core;
    struct hlt_block blocks[RANKS];
    struct hlt_greeting greetings[RANKS];
    uint64_t joined[1];
    uint8_t kinds[RANKS];
    struct hlt_tensor tensors[NAMES];
    struct hlt_tensor join;
    struct hlt_grouped grouped;             /* the first two tensors of a step are one group call */
    int order[NAMES], submitted, step, out; /* of this step; out: not done */
    int epoch, first_step, last_step;       /* of this epoch */
    int joins, joining, last[EPOCHS];       /* the rank that joined last, of each join */
    int nepochs;                            /* begun after the first */
    struct hlt_list launched[STARTS];       /* the groups of replays */
    int empty[STARTS];
    int nlaunched, nresults;
    uint64_t starts[STARTS]; /* names: what it has started, in this order */
    int nstarts;
};

static uint64_t seed;
static uint64_t cycles, voids, stand_ins, timeouts, unjoins;
static int mode;

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
    core->deadline_ns = mode & LATE ? DEADLINE_NS : UINT64_C(1) << 60;
    core->buffer_bytes = 64;
    core->greetings = r->greetings;
    core->now_ns = 1;
    core->rounds.blocks = r->blocks;
    core->rounds.groups_room = RANKS * HLT_ROUND_ENTRIES;
    core->rounds.agreed_groups = calloc(core->rounds.groups_room, sizeof(uint64_t));
    core->rounds.unlike = calloc(core->rounds.groups_room, sizeof(struct hlt_unlike));
    core->joins.ranks = r->joined;
    core->joins.kinds = r->kinds;
    CHECK(!hlt_tensor_map_init(&core->rounds.records), "a map");
}

static void rank_free(struct core_rank *r)
{
    hlt_round_records_free(&r->core);
    hlt_programmes_free(&r->core);
    free(r->core.rounds.agreed_groups);
    free(r->core.rounds.unlike);
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
    if (which < 2) {
        t->says.group = GROUP;
        t->grouped = &r->grouped;
    }
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
    struct hlt_tensor *t;
    while ((t = hlt_tensor_list_pop(tensors)) != NULL) {
        if (!t->stand_in) {
            r->out--;
            continue;
        }
        CHECK(r->joining, "rank %d stands in, and has not joined", r->core.rank);
        stand_ins++;
        r->core.rounds.stand_ins--;
        free(t);
    }
}

static void step_begin(struct core_rank *r)
{
    int sorted[NAMES];
    for (int i = 0; i < NAMES; i++)
        r->order[i] = i;
    for (int i = NAMES - 1; i > 0; i--) {
        int other = (int)draw((unsigned)i + 1), was = r->order[i];
        r->order[i] = r->order[other];
        r->order[other] = was;
    }
    for (int i = 0, at = 0; i < NAMES; i++) { /* tensors 0 and 1 beside one another */
        if (r->order[i] == 1)
            continue;
        sorted[at++] = r->order[i];
        if (r->order[i] == 0)
            sorted[at++] = 1;
    }
    memcpy(r->order, sorted, sizeof(sorted));
    r->grouped.agreed = 0;
    r->submitted = 0;
    r->step++;
}

static void epoch_begin(struct core_rank *r)
{
    r->first_step = r->step;
    r->last_step = r->step + (mode & JOINS ? 5 + (int)draw(6) : STEPS);
    step_begin(r);
}

/* What has ended without being started: the join, and what a deadline has ended. */
static void take_ended(struct core_rank *r)
{
    struct hlt_tensor *t;
    while ((t = hlt_tensor_list_pop(&r->core.ended)) != NULL) {
        CHECK(!t->code || (mode & LATE && t->code == HALAY_ETIMEOUT), "rank %d: %d, %s",
              r->core.rank, t->code, t->text ? t->text : "");
        if (t != &r->join) {
            CHECK(t->code, "rank %d: it has ended, and was not started", r->core.rank);
            timeouts++;
            r->out--;
        } else if (t->code) { /* joins again */
            unjoins++;
            r->joining = 0;
        } else {
            CHECK(r->joins < EPOCHS, "rank %d joins without end", r->core.rank);
            r->last[r->joins++] = (int)t->result_count;
            r->joining = 0;
            r->epoch++;
        }
        free(t->text);
        t->text = NULL;
    }
}

static void submit_join(struct core_rank *r)
{
    struct hlt_tensor *t = &r->join;
    memset(t, 0, sizeof(*t));
    snprintf(t->name, sizeof(t->name), "join");
    t->node.hash = hlt_tensor_hash(t->name);
    t->kind = HLT_KIND_JOIN;
    t->says.name = t->node.hash;
    t->says.what = hlt_tensor_what(t->kind, HALAY_UINT8, HALAY_SUM, 0);
    t->says.rows = 1u << HALAY_MEMORY_HOST;
    t->says.wait = (uint64_t)r->step;
    t->submit_ns = ++r->core.now_ns;
    r->joining = 1;
    hlt_tensor_list_push(&r->core.pending, t);
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
            started(&ranks[r], t->says.name);
        done(&ranks[r], &core->ready);
        take_ended(&ranks[r]);
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

static int is_finished(const struct core_rank *r)
{
    return r->epoch == (mode & JOINS ? EPOCHS : 1);
}

/* The program's own next move. */
static void go_on(struct core_rank *r)
{
    const int odd = (r->step - r->first_step) % 7 == 6;
    if (r->submitted < NAMES) {
        if (r->order[r->submitted] == 0)
            submit(r, odd);
        submit(r, odd);
    } else if (r->joining || is_finished(r)) {
        return;
    } else if (mode & JOINS && r->step == r->last_step && r->epoch == r->nepochs && !draw(4)) {
        submit_join(r); /* while tensors are under way, too */
    } else if (r->out) {
        return;
    } else if (r->epoch > r->nepochs) {
        r->nepochs++;
        epoch_begin(r);
    } else if (r->step < r->last_step) {
        step_begin(r);
    } else if (mode & JOINS) {
        submit_join(r);
    } else {
        r->epoch++;
    }
}

/* One event of one rank. Returns 1 while steps are left. */
static int event(struct core_rank ranks[], int nranks)
{
    int left = 0, due = 0;
    struct core_rank *r = &ranks[draw((unsigned)nranks)];
    for (int i = 0; i < nranks; i++) {
        const struct core_rank *it = &ranks[i];
        left |= !is_finished(it) || it->out || it->nresults < it->nlaunched;
        due |= it->core.replay.programme ? mode && it->nresults < it->nlaunched && !draw(32)
                                         : hlt_round_due(&it->core); /* the former: its alarm */
    }
    switch (draw(4)) {
    case 0:
        go_on(r);
        if (mode & LATE && !draw(64))
            r->core.now_ns += DEADLINE_NS;
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
    take_ended(r);
    return left;
}

static void test_draw(int nranks)
{
    struct core_rank *ranks = calloc((size_t)nranks, sizeof(*ranks));
    const uint64_t first_seed = seed;
    int events = 0;
    CHECK(ranks, "memory");
    for (int r = 0; r < nranks; r++) {
        rank_make(&ranks[r], r, nranks);
        epoch_begin(&ranks[r]);
    }
    while (event(ranks, nranks))
        CHECK(++events < EVENTS, "seed %llu: %d ranks do not come to an end",
              (unsigned long long)first_seed, nranks);
    for (int r = 0; r < nranks; r++) {
        const halay_trainer_counters_t *own = &ranks[r].core.counters;
        const halay_trainer_counters_t *first = &ranks[0].core.counters;
        CHECK(ranks[r].nstarts == ranks[0].nstarts &&
                  !memcmp(ranks[r].starts, ranks[0].starts, sizeof(ranks[r].starts)),
              "rank %d starts what rank 0 does not", r);
        CHECK(!memcmp(ranks[r].last, ranks[0].last, sizeof(ranks[r].last)),
              "rank %d does not know who joined last", r);
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
        mode = n / 2 % 4;
        test_draw(2 + n % 2);
    }
    CHECK(cycles > DRAWS && voids > DRAWS && stand_ins > DRAWS && timeouts > DRAWS && unjoins > 50,
          "%d cycles, %d voids, %d stand-ins, %d timeouts, %d joins taken back", (int)cycles,
          (int)voids, (int)stand_ins, (int)timeouts, (int)unjoins);
    printf("%d draws: %d cycles, %d voids, %d stand-ins, %d timeouts, %d joins taken back\n", DRAWS,
           (int)cycles, (int)voids, (int)stand_ins, (int)timeouts, (int)unjoins);
    return 0;
}
