/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Programs drawn by seed: communicators of many shapes; all calls in all forms, sizes and orders;
 * late ranks, devices and messages; at the end a wrong call or a death. Each result is compared
 * with the serial reference. A line a program: its seed, a hash of all results' bits, and one of
 * all codes and culprits of which exactly one is right. Two builds have to print the same lines
 * (scripts/compare-builds).
 *
 *   test_programs FIRST|random PROGRAMS [bytes=N] [ranks=N] [irregular=0|1] [old=1]
 *                 [calls=1] [there=1]
 *
 * bytes: of a buffer, at most. irregular 0: no groups, persistent requests and messages on
 * communicators that are not the world in its order. old 1: leaves out what builds before them did
 * wrong. calls 1: prints a line a call and rank. there 1: buffers lie in memory of a device's own.
 */
#include <string.h>
#include <time.h>

#include "device/device_builtin.h"
#include "program_calls.h"

#ifndef IRREGULAR
#define IRREGULAR 1 /* what `irregular` is without the argument */
#endif
#define TEAMS    8
#define CALLS    12
#define NODES    3
#define IN_TIME  20000000000ull
#define DEADLINE 60000000000ull

struct program {
    uint64_t seed;
    size_t most_bytes; /* of a buffer */
    bool irregular, old, print, there, forced, kills;
    pthread_barrier_t barrier;
    uint64_t bits[RANKS_MAX], codes[RANKS_MAX], calls[RANKS_MAX];
};

struct player { /* one rank of a program */
    struct program *p;
    struct rank *r;
    uint64_t draw; /* the same on all ranks: what is played */
    uint64_t own;  /* of this rank: when, and where its buffers are */
    struct pteam teams[TEAMS];
    halay_op_t multiply, merge;
    int act;
    bool ended;
    char where[64];
};

static uint64_t draw(struct player *x, uint64_t n)
{
    return ranks_random(&x->draw) % n;
}

static uint64_t own(struct player *x, uint64_t n)
{
    return ranks_random(&x->own) % n;
}

#define GOOD(x, rc, ...)                                                                           \
    do {                                                                                           \
        const int rc_ = (rc);                                                                      \
        CHECK(rc_ == 0, "%s: %s: %s", (x)->where, __VA_ARGS__, halay_strerror(rc_));               \
    } while (0)

static void late(struct player *x)
{
    struct timespec ts = {0, (long)own(x, 150000)};
    if (own(x, 16) == 0)
        nanosleep(&ts, NULL);
}

static void note_code(struct player *x, int rc, int culprit)
{
    uint64_t *codes = &x->p->codes[x->r->rank];
    *codes = pmix(pmix(*codes, (uint64_t)-rc), (uint64_t)(culprit + 1));
    if (x->p->print)
        printf("%s rank %d code %d culprit %d\n", x->where, x->r->rank, rc, culprit);
}

/* ---------------------------------------------------------------- communicators */

static void meet(struct player *x, int t, halay_comm_t *comm, bool plain)
{
    struct pteam *team = &x->teams[t];
    *team = (struct pteam){.comm = comm, .plain = plain};
    if (comm) {
        GOOD(x, halay_comm_rank(comm, &team->me), "rank");
        GOOD(x, halay_comm_size(comm, &team->n), "size");
    }
}

static int some_list(struct player *x, int n, int list[])
{
    int all[RANKS_MAX], k = 0;
    for (int i = 0; i < n; i++)
        all[i] = i;
    for (int i = n - 1; i > 0; i--) { /* of any order */
        int j = (int)draw(x, (uint64_t)i + 1), was = all[i];
        all[i] = all[j];
        all[j] = was;
    }
    const int want = 1 + (int)draw(x, (uint64_t)n);
    const bool sorted = draw(x, 2);
    for (int i = 0; i < n && k < want; i++)
        list[k++] = all[i];
    for (int i = 0; sorted && i < k; i++)
        for (int j = i + 1; j < k; j++)
            if (list[j] < list[i]) {
                int was = list[i];
                list[i] = list[j];
                list[j] = was;
            }
    return k;
}

static void make_teams(struct player *x)
{
    const int n = x->r->nranks, me = x->r->rank;
    int list[RANKS_MAX], k;
    halay_comm_t *c;
    meet(x, 0, x->r->world, true);
    GOOD(x, halay_comm_dup(x->r->world, &c), "dup");
    meet(x, 1, c, true);
    const int colours = 1 + (int)draw(x, 3);
    GOOD(x, halay_comm_split(x->r->world, me % colours, draw(x, 2) ? -me : me / 2, &c), "split");
    meet(x, 2, c, false);
    GOOD(x, halay_comm_split_node(x->r->world, &c), "split_node");
    meet(x, 3, c, false);
    for (int t = 4; t < 6; t++) {
        k = some_list(x, n, list);
        GOOD(x, halay_comm_from_ranks(x->r->world, list, k, &c), "from_ranks");
        meet(x, t, c, false);
    }
    for (int i = 0; i < n; i++)
        list[i] = n - 1 - i;
    GOOD(x, halay_comm_from_ranks(x->r->world, list, n, &c), "from_ranks");
    meet(x, 6, c, false);
    c = NULL;
    if (x->teams[4].comm)
        GOOD(x, halay_comm_dup(x->teams[4].comm, &c), "dup of a list");
    meet(x, 7, c, false);
}

/* ---------------------------------------------------------------- drawing a call */

static const halay_type_t floats[] = {HALAY_FLOAT16, HALAY_BFLOAT16, HALAY_FLOAT32, HALAY_FLOAT64};

static void draw_operation(struct player *x, struct pcall *c)
{
    const bool scan = c->kind == P_SCAN || c->kind == P_EXSCAN;
    const uint64_t how = draw(x, 10);
    if (c->kind == P_SCALED) {
        c->type = floats[2 + draw(x, 2)];
        c->prescale = draw(x, 2) ? 2 : 1;
        c->postscale = draw(x, 2) ? 0.5 : 4;
    } else if (how < 2 && !scan && c->kind != P_REDUCE_SCATTERV) {
        c->data = P_ROUNDS;
        c->type = floats[draw(x, 4)];
        c->op = draw(x, 3) ? HALAY_SUM : HALAY_AVERAGE;
    } else if (how < 4 && c->kind != P_REDUCE_SCATTER && c->kind != P_REDUCE_SCATTERV) {
        c->data = how == 2 ? P_MATRIX : P_MERGE;
        c->type = HALAY_UINT32;
        c->count = (c->count + 3) / 4 * 4;
    } else {
        do {
            c->type = (halay_type_t)draw(x, HALAY_TYPE_COUNT);
            c->op = (halay_op_t)draw(x, HALAY_OP_COUNT);
        } while (!halay_op_takes(c->op, c->type) || (scan && c->op == HALAY_AVERAGE) ||
                 (c->op == HALAY_PROD && c->type >= HALAY_COMPLEX64)); /* the sign of its zeros */
    }
    c->called = c->data == P_MATRIX ? x->multiply : c->data == P_MERGE ? x->merge : c->op;
}

static size_t draw_count(struct player *x, bool small)
{
    const uint64_t how = draw(x, 100);
    if (how < 45 || small)
        return draw(x, 17);
    if (how < 72)
        return draw(x, 2000);
    if (how < 92)
        return draw(x, 40000);
    return draw(x, how < 99 ? 300000 : 1000000);
}

/* What all ranks of all groups of a team draw alike; `size` of the team differs between them. */
static void draw_call(struct player *x, int t, bool small, struct pcall *c)
{
    const struct pteam *team = &x->teams[t];
    const uint64_t root = draw(x, 1000);
    memset(c, 0, sizeof(*c));
    c->kind = draw(x, 3) ? (enum pkind)draw(x, P_KINDS) : P_ALLREDUCE;
    c->count = draw_count(x, small);
    c->type = (halay_type_t)draw(x, HALAY_TYPE_COUNT);
    c->in_place = draw(x, 3) == 0;
    if (pkind_reduces(c->kind))
        draw_operation(x, c);
    const bool wide = c->kind >= P_ALLGATHER && c->kind != P_REDUCE && c->kind != P_SCAN &&
                      c->kind != P_EXSCAN; /* a block a rank */
    const size_t most =
        x->p->most_bytes / halay_type_bytes(c->type) / (wide ? (size_t)x->r->nranks : 1);
    if (c->count > most)
        c->count = most / 4 * 4;
    if (!team->comm)
        return;
    c->registered = own(x, 4) == 0;
    c->root = pkind_rooted(c->kind) ? (int)(root % (uint64_t)team->n) : 0;
    pcall_make(c, x->r->context, team);
}

/* The call is over. Where the program forced an algorithm, a refusal is an answer too. */
static void ended(struct player *x, struct pcall *c, int rc)
{
    uint64_t *bits = &x->p->bits[x->r->rank], hash = 0;
    if (x->p->forced && rc == HALAY_EUNSUPPORTED) {
        note_code(x, rc, -1);
        return;
    }
    CHECK(rc == 0, "%s: rank %d: %s of %zu %s: %s", x->where, x->r->rank, pkind_name(c->kind),
          c->count, halay_type_name(c->type), halay_strerror(rc));
    hash = pcall_check(c, x->where);
    *bits = pmix(*bits, hash);
    x->p->calls[x->r->rank]++;
    if (x->p->print)
        printf("%s rank %d %s of %zu %s %s bits %016llx\n", x->where, x->r->rank,
               pkind_name(c->kind), c->count, halay_type_name(c->type), halay_op_name(c->op),
               (unsigned long long)hash);
}

static void drop(struct player *x, struct pcall *c)
{
    const int rc = pcall_free(c);
    if (!x->p->old) /* there, what a device was given last could refuse it */
        GOOD(x, rc, "halay_mem_free");
}

static int finish(struct player *x, halay_request_t *request)
{
    int rc = HALAY_INPROGRESS;
    if (own(x, 2))
        return halay_request_wait(request);
    for (int i = 0; i < 20 && rc == HALAY_INPROGRESS; i++)
        rc = halay_request_test(request);
    return rc == HALAY_INPROGRESS ? halay_request_wait(request) : rc;
}

static void own_order(struct player *x, int n, int order[])
{
    for (int i = 0; i < n; i++)
        order[i] = i;
    for (int i = n - 1; i > 0; i--) {
        int j = (int)own(x, (uint64_t)i + 1), was = order[i];
        order[i] = order[j];
        order[j] = was;
    }
}

/* A team of which groups, persistent requests and messages may be made. */
static int plain_team(struct player *x)
{
    const int t = (int)draw(x, TEAMS);
    return x->p->irregular || x->teams[t].plain ? t : t % 2;
}

/* ---------------------------------------------------------------- acts */

/* The same call again and again, or two or three by turns. */
static void blocking(struct player *x)
{
    struct pcall c[3];
    const int n = 1 + (int)draw(x, 6) / 3 + (int)draw(x, 2), t = (int)draw(x, TEAMS);
    int rounds = 1 + (int)draw(x, 12);
    const bool small = rounds > 3;
    bool here = x->teams[t].comm;
    if (draw(x, 3) == 0 && small)
        rounds *= 4;
    for (int i = 0; i < n; i++)
        draw_call(x, t, small, &c[i]);
    for (int i = 0; here && i < rounds * n; i++) {
        struct pcall *now = &c[i % n];
        pcall_fill(now, x->p->seed + (uint64_t)i);
        late(x);
        ended(x, now, pcall_begin(now, P_BLOCKING, NULL));
    }
    for (int i = 0; here && i < n; i++)
        drop(x, &c[i]);
}

/* Several in flight, on several communicators, waited for in each rank's own order. */
static void flight(struct player *x)
{
    struct pcall c[CALLS];
    halay_request_t *request[CALLS];
    const int n = 2 + (int)draw(x, CALLS - 1), first = (int)own(x, TEAMS);
    int t[CALLS], order[CALLS];
    for (int i = 0; i < n; i++) {
        t[i] = (int)draw(x, TEAMS);
        draw_call(x, t[i], i > 2, &c[i]);
        if (x->teams[t[i]].comm)
            pcall_fill(&c[i], x->p->seed * 3 + (uint64_t)i);
    }
    for (int k = 0; k < TEAMS; k++) /* those of each communicator in their order */
        for (int i = 0; i < n; i++)
            if (t[i] == (first + k) % TEAMS && x->teams[t[i]].comm) {
                late(x);
                GOOD(x, pcall_begin(&c[i], P_POSTED, &request[i]), pkind_name(c[i].kind));
            }
    own_order(x, n, order);
    for (int k = 0; k < n; k++) {
        const int i = order[k];
        if (!x->teams[t[i]].comm)
            continue;
        ended(x, &c[i], finish(x, request[i]));
        drop(x, &c[i]);
    }
}

static void persistent(struct player *x)
{
    struct pcall c[CALLS];
    halay_request_t *request[CALLS], *other[CALLS];
    const int n = 1 + (int)draw(x, 5), t = plain_team(x), rounds = 1 + (int)draw(x, 6);
    int order[CALLS];
    for (int i = 0; i < n; i++)
        draw_call(x, t, i > 0, &c[i]);
    if (!x->teams[t].comm)
        return;
    for (int i = 0; i < n; i++)
        GOOD(x, pcall_begin(&c[i], P_INIT, &request[i]), "init");
    for (int round = 0; round < rounds; round++) {
        const bool plain = own(x, 4) == 0; /* meets others' starts */
        for (int i = 0; i < n; i++) {
            pcall_fill(&c[i], x->p->seed * 5 + (uint64_t)(round * n + i));
            late(x);
            GOOD(x,
                 plain ? pcall_begin(&c[i], P_POSTED, &other[i]) : halay_request_start(request[i]),
                 "start");
        }
        own_order(x, n, order);
        for (int k = 0; k < n; k++)
            ended(x, &c[order[k]], finish(x, plain ? other[order[k]] : request[order[k]]));
    }
    for (int i = 0; i < n; i++) {
        GOOD(x, halay_request_free(request[i]), "free");
        drop(x, &c[i]);
    }
}

static void group(struct player *x)
{
    struct pcall c[CALLS];
    halay_request_t *request, *none;
    const int n = 1 + (int)draw(x, 7), t = plain_team(x);
    for (int i = 0; i < n; i++)
        draw_call(x, t, i > 1, &c[i]);
    if (!x->teams[t].comm)
        return;
    for (int i = 0; i < n; i++)
        pcall_fill(&c[i], x->p->seed * 7 + (uint64_t)i);
    GOOD(x, halay_group_begin(x->teams[t].comm), "group_begin");
    for (int i = 0; i < n; i++)
        GOOD(x, pcall_begin(&c[i], own(x, 2) ? P_POSTED : P_BLOCKING, &none), "collecting");
    late(x);
    GOOD(x, halay_group_end(x->teams[t].comm, &request), "group_end");
    const int rc = finish(x, request);
    for (int i = 0; i < n; i++) {
        ended(x, &c[i], rc);
        drop(x, &c[i]);
    }
}

/* Messages between drawn pairs of ranks, all in flight at once. */
static void messages(struct player *x)
{
    struct pcall c[CALLS];
    halay_request_t *request[CALLS];
    const int n = 1 + (int)draw(x, CALLS), t = plain_team(x);
    const struct pteam *team = &x->teams[t];
    bool mine[CALLS];
    int order[CALLS];
    for (int i = 0; i < n; i++) {
        const uint64_t from = draw(x, 1000), by = draw(x, 1000);
        const size_t count = draw_count(x, i > 3), type = draw(x, HALAY_TYPE_COUNT);
        c[i] = (struct pcall){.kind = P_SEND, .type = (halay_type_t)type};
        const size_t most = x->p->most_bytes / halay_type_bytes(c[i].type);
        c[i].count = count < most ? count : most;
        mine[i] = false;
        if (!team->comm || team->n < 2)
            continue;
        c[i].root = (int)(from % (uint64_t)team->n);
        c[i].peer = (int)((uint64_t)c[i].root + 1 + by % (uint64_t)(team->n - 1)) % team->n;
        mine[i] = team->me == c[i].root || team->me == c[i].peer;
        if (!mine[i])
            continue;
        c[i].registered = own(x, 4) == 0;
        pcall_make(&c[i], x->r->context, team);
        pcall_fill(&c[i], x->p->seed * 11 + (uint64_t)i);
        late(x);
        GOOD(x, pcall_begin(&c[i], P_POSTED, &request[i]), "a message");
    }
    own_order(x, n, order);
    for (int k = 0; k < n; k++)
        if (mine[order[k]]) {
            ended(x, &c[order[k]], finish(x, request[order[k]]));
            drop(x, &c[order[k]]);
        }
}

/* ---------------------------------------------------------------- mistakes */

enum mistake { NO_TYPE, NO_OPERATION, NO_OUTPUT, COUNT, TYPE, OPERATION, COLLECTIVE, MISTAKES };

/* Returns what every rank has to get. */
static int spoil(enum mistake m, struct pcall *c, bool mine)
{
    if (!mine)
        return m <= NO_OUTPUT ? HALAY_EINVAL : HALAY_EMISMATCH;
    switch (m) {
    case NO_TYPE:
        c->type = (halay_type_t)99;
        return HALAY_EINVAL;
    case NO_OPERATION:
        c->called = (halay_op_t)-1;
        return HALAY_EINVAL;
    case NO_OUTPUT:
        c->out = NULL;
        return HALAY_EINVAL;
    case COUNT:
        c->count -= 1;
        break;
    case TYPE:
        c->type = HALAY_UINT32;
        break;
    case OPERATION:
        c->called = HALAY_MAX;
        break;
    default:
        c->kind = P_BARRIER;
    }
    return HALAY_EMISMATCH;
}

/* One rank's call is wrong: all get the same error, and the next call is good again. */
static void wrong(struct player *x)
{
    static const enum pkind kinds[] = {P_ALLREDUCE, P_REDUCE_SCATTER, P_SCAN};
    const int t = plain_team(x), before = (int)draw(x, 3), form = (int)draw(x, 3);
    const enum mistake m = (enum mistake)draw(x, MISTAKES);
    struct pcall c = {.kind = kinds[draw(x, 3)],
                      .count = draw(x, 4) ? 1 + draw(x, 30) : 20000,
                      .type = HALAY_INT32};
    const uint64_t culprit = draw(x, 1000);
    halay_verdict_t v = {.size = sizeof(v)};
    halay_request_t *request = NULL;
    struct pteam team = x->teams[t];
    if (!team.comm || team.n < 2)
        return;
    GOOD(x, halay_comm_dup(x->teams[t].comm, &team.comm), "dup");
    pcall_make(&c, x->r->context, &team);
    for (int i = 0; i <= before + 1; i++) {
        pcall_fill(&c, x->p->seed * 13 + (uint64_t)i);
        late(x);
        if (i != before) {
            ended(x, &c, pcall_begin(&c, P_BLOCKING, NULL));
            continue;
        }
        struct pcall bad = c;
        const int guilty = (int)(culprit % (uint64_t)team.n);
        const int want = spoil(m, &bad, team.me == guilty);
        const uint64_t started = ranks_now_ns();
        int rc = pcall_begin(&bad, (enum pform)form, &request);
        if (form == P_INIT && !rc)
            rc = halay_request_start(request);
        if (form != P_BLOCKING && !rc)
            rc = halay_request_wait(request);
        CHECK(ranks_now_ns() - started < IN_TIME, "%s: waited for the deadline", x->where);
        GOOD(x, halay_comm_verdict(team.comm, &v), "verdict");
        CHECK(rc == want && v.code == want && (want != HALAY_EINVAL || v.rank == guilty),
              "%s: mistake %d of rank %d: rank %d got %s: %s", x->where, (int)m, guilty, team.me,
              halay_strerror(rc), v.text);
        note_code(x, rc, want == HALAY_EINVAL ? v.rank : -1);
        if (form == P_INIT)
            GOOD(x, halay_request_free(request), "free");
    }
    drop(x, &c);
    GOOD(x, halay_comm_free(team.comm), "free");
}

/* A rank leaves, or is killed, between two calls or in the middle of one: its peers name it. */
static void death(struct player *x)
{
    struct rank *r = x->r;
    const int victim = (int)draw(x, (uint64_t)r->nranks), calls = (int)draw(x, 5);
    const bool killed = draw(x, 2) && x->p->kills;
    const size_t count = draw(x, 2) ? 3 : 3000;
    struct pcall c = {
        .kind = draw(x, 2) ? P_ALLREDUCE : P_ALLGATHER, .count = count, .type = HALAY_INT32};
    halay_verdict_t v = {.size = sizeof(v)};
    int rc = halay_barrier(r->world);
    CHECK(!rc, "%s: a barrier before the end: %s", x->where, halay_strerror(rc));
    pthread_barrier_wait(&x->p->barrier); /* all are out of it */
    pcall_make(&c, r->context, &x->teams[0]);
    for (int i = 0; rc == 0 && (r->rank != victim || i < calls); i++) {
        pcall_fill(&c, x->p->seed * 17 + (uint64_t)i);
        rc = pcall_begin(&c, P_BLOCKING, NULL);
        if (rc == 0) /* how many end well may differ */
            pcall_check(&c, x->where);
    }
    if (r->rank == victim) {
        CHECK(rc == 0, "%s: rank %d: %s before its end", x->where, r->rank, halay_strerror(rc));
        if (killed)
            halay_inproc_kill(r->hub, r->rank);
    } else {
        CHECK(rc == HALAY_EPEER && !halay_comm_verdict(r->world, &v) && v.rank == victim,
              "%s: rank %d: %s, blames %d, not %d", x->where, r->rank, halay_strerror(rc), v.rank,
              victim);
        note_code(x, rc, v.rank);
    }
    drop(x, &c);
    if (r->rank == victim && !killed)
        GOOD(x, halay_finalize(r->context), "finalize");
    pthread_barrier_wait(&x->p->barrier);
    if (r->rank != victim || killed)
        halay_finalize(r->context); /* ESTATE is in order after all this */
    x->ended = true;
}

/* ---------------------------------------------------------------- programs */

static void play(struct rank *r)
{
    struct program *p = r->arg;
    static void (*const acts[])(struct player *) = {blocking, blocking,   blocking, flight, flight,
                                                    group,    persistent, messages, wrong};
    struct player x = {.p = p, .r = r, .draw = p->seed, .own = p->seed * 100 + (uint64_t)r->rank};
    const int n = 5 + (int)draw(&x, 8);
    const bool dies = r->nranks > 1 && draw(&x, 5) == 0;
    p->bits[r->rank] = p->codes[r->rank] = p->calls[r->rank] = 0;
    snprintf(x.where, sizeof(x.where), "seed %llu", (unsigned long long)p->seed);
    GOOD(&x, halay_op_create(r->context, pcall_multiply, NULL, 4, 0, &x.multiply), "op_create");
    GOOD(&x, halay_op_create(r->context, pcall_merge, NULL, 1, 1, &x.merge), "op_create");
    make_teams(&x);
    for (x.act = 0; x.act < n; x.act++) {
        snprintf(x.where, sizeof(x.where), "seed %llu act %d", (unsigned long long)p->seed, x.act);
        acts[draw(&x, sizeof(acts) / sizeof(acts[0]))](&x);
    }
    if (dies) {
        death(&x);
        return;
    }
    GOOD(&x, halay_barrier(r->world), "barrier");
    for (int t = TEAMS - 1; t > 0; t--)
        GOOD(&x, halay_comm_free(x.teams[t].comm), "free");
    GOOD(&x, halay_finalize(r->context), "finalize");
}

static const char *algorithm_of(struct player *x)
{
    static const char *const algorithms[] = {
        "allreduce=ring,allgather=ring,reduce_scatter=ring",
        "allreduce=circulant,allgather=circulant,reduce_scatter=circulant",
        "allreduce=recursive_doubling,broadcast=dissemination_by_four,allgather=one_shot",
        "allreduce=one_shot,broadcast=chain,allgather=bruck,reduce_scatter=pairwise,"
        "barrier=dissemination_by_four",
        "allreduce=double_tree,broadcast=knomial",
        "allreduce=two_stars,barrier=two_stars",
        "allreduce=star,broadcast=star,allgather=star,barrier=star",
        "allreduce=halving_doubling,broadcast=posted",
        "allreduce=sliced_ring,broadcast=sliced_posted",
        "allreduce=two_level,broadcast=two_level,allgather=two_level,reduce_scatter=two_level,"
        "barrier=two_level"};
    return algorithms[draw(x, sizeof(algorithms) / sizeof(algorithms[0]))];
}

static halay_inproc_faults_t faults_of(struct player *x)
{
    static const uint32_t hidden[] = {0, HALAY_CAN_LAND, HALAY_CAN_PUT,
                                      HALAY_CAN_PUT | HALAY_CAN_LAND};
    static const uint64_t eager[] = {0, 64, 256, 1024};
    return (halay_inproc_faults_t){.seed = x->p->seed,
                                   .delay_polls_max = (uint32_t)draw(x, 5),
                                   .reorder = (uint32_t)draw(x, 2),
                                   .late_put_polls = (uint32_t)draw(x, 6),
                                   .queue_slots = draw(x, 3) ? 0 : 2 + (uint32_t)draw(x, 4),
                                   .again_percent = draw(x, 2) ? 0 : (uint32_t)draw(x, 40),
                                   .connect_polls = (uint32_t)draw(x, 4),
                                   .hide_capabilities = hidden[draw(x, 4)],
                                   .cache = (uint32_t)draw(x, 2),
                                   .lend_bytes = draw(x, 2) ? 0 : 32,
                                   .eager_bytes = eager[draw(x, 4)],
                                   .piece_bytes = draw(x, 3) ? 0 : 256};
}

static void one_program(struct program *p, int nranks)
{
    struct player x = {.p = p, .draw = p->seed * 31 + 7};
    const int n = 1 + (int)draw(&x, 7) + (int)draw(&x, 3);
    const bool shm = draw(&x, 2), on_nodes = draw(&x, 2), late_device = draw(&x, 2);
    halay_inproc_faults_t faults = faults_of(&x);
    struct hly_device_late_arg late = {
        .seed = p->seed, .delay_polls_max = 4, .capacity = 3, .own_memory = p->there};
    int nodes[RANKS_MAX];
    uint64_t bits = 0, codes = 0, calls = 0;
    const size_t most = p->most_bytes;
    if (faults.piece_bytes || faults.eager_bytes) /* many packets */
        p->most_bytes = shm || most < 200000 ? most : 200000;
    for (int k = 0; k < RANKS_MAX; k++)
        nodes[k] = k < NODES && k < n ? k : (int)draw(&x, NODES < n ? NODES : (uint64_t)n);
    p->forced = draw(&x, 4) == 0;
    p->kills = !shm;
    struct ranks_options o = {.nranks = nranks ? nranks : n,
                              .shm = shm,
                              .faults = shm ? NULL : &faults,
                              .device = late_device || p->there ? &hly_device_late : NULL,
                              .device_arg = late_device || p->there ? &late : NULL,
                              .algorithm = p->forced ? algorithm_of(&x) : NULL,
                              .deadline_ns = DEADLINE,
                              .node_of_rank = on_nodes && !nranks ? nodes : NULL,
                              .keep = true};
    pthread_barrier_init(&p->barrier, NULL, (unsigned)o.nranks);
    ranks_run(&o, play, p);
    pthread_barrier_destroy(&p->barrier);
    p->most_bytes = most;
    for (int k = 0; k < o.nranks; k++) {
        bits = pmix(bits, p->bits[k]);
        codes = pmix(codes, p->codes[k]);
        calls += p->calls[k];
    }
    printf("seed %llu ranks %d %s calls %llu bits %016llx codes %016llx\n",
           (unsigned long long)p->seed, o.nranks, shm ? "shm" : "inproc", (unsigned long long)calls,
           (unsigned long long)bits, (unsigned long long)codes);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    struct program p = {.most_bytes = 4 << 20, .irregular = IRREGULAR};
    int nranks = 0;
    CHECK(argc > 2, "usage: test_programs FIRST|random PROGRAMS [bytes=N] [ranks=N] "
                    "[irregular=0|1] [old=1] [calls=1] [there=1]");
    const uint64_t first =
        strcmp(argv[1], "random") ? strtoull(argv[1], NULL, 10) : ranks_now_ns() % 1000000000;
    for (int i = 3; i < argc; i++) {
        unsigned long long n = 0;
        char name[16];
        CHECK(sscanf(argv[i], "%15[a-z]=%llu", name, &n) == 2, "%s", argv[i]);
        if (!strcmp(name, "bytes"))
            p.most_bytes = n;
        else if (!strcmp(name, "ranks"))
            nranks = (int)n;
        else if (!strcmp(name, "irregular"))
            p.irregular = n;
        else if (!strcmp(name, "old"))
            p.old = n;
        else if (!strcmp(name, "there"))
            p.there = n;
        else
            p.print = n;
    }
    p.irregular = p.irregular && !p.old;
    setenv("HALAY_DEBUG", "error", 1); /* the failures here are wanted */
    for (p.seed = first; p.seed < first + strtoull(argv[2], NULL, 10); p.seed++)
        one_program(&p, nranks);
    return 0;
}
