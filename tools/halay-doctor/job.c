/* SPDX-License-Identifier: Apache-2.0 */
/*
 * job.c - the job: rank 0 leads, the others follow (docs/decisions/diagnosis.md#0027). In order:
 * hello from all ranks, who has a seat, reports, everybody to everybody at once, then rounds of
 * pairs, each given out and collected by rank 0.
 */
#include <stdlib.h>
#include <string.h>

#include "doctor.h"

#define RANKS_MAX 4096
#define TIMEOUT   24 /* deadlines that a follower waits for rank 0 */
#define MEASURING 12 /* ... that rank 0 waits for a pair's result */

struct command {
    int32_t partner; /* a seat; -1: none in this round; -2: the end */
    int32_t leads;
};

struct role {
    int32_t seat; /* -1: none */
    int32_t n, ranks[HLY_MOST];
};

struct hly_cell *hly_cell(const struct hly_job *job, int from, int to)
{
    return &job->matrix.cells[(size_t)from * (size_t)job->matrix.n + (size_t)to];
}

const char *hly_transport(const struct hly_job *job, int from, int to)
{
    return job->seats[from].node == job->seats[to].node ? job->matrix.near : job->matrix.far;
}

static struct hly_table make_table(const struct hly_options *o, halay_comm_t *world)
{
    return (struct hly_table){.world = world, .deadline_ns = (uint64_t)(o->seconds * 1e9)};
}

/* ---------------------------------------------------------------- who follows */

static int follow_rounds(const struct hly_table *table)
{
    struct hly_cell cell;
    struct command command;
    for (;;) {
        int rc = hly_hear(table, 0, &command, sizeof command, TIMEOUT);
        if (rc || command.partner == -2)
            return rc;
        if (command.partner < 0 || command.partner >= table->n)
            continue;
        hly_measure(table, command.partner, command.leads != 0, &cell);
        rc = hly_say(table, 0, &cell, sizeof cell, TIMEOUT);
        if (rc)
            return rc;
    }
}

int hly_follow(const struct hly_options *options, halay_comm_t *world,
               const halay_topology_t *topology, const struct hly_report *report)
{
    struct hly_table table = make_table(options, world);
    struct hly_seat hello = {topology->rank, topology->node, topology->local_rank, ""};
    struct role role;
    if (topology->nranks > RANKS_MAX)
        return HALAY_EUNSUPPORTED;
    snprintf(hello.host, sizeof hello.host, "%s", topology->host);
    int rc = hly_say(&table, 0, &hello, sizeof hello, 1);
    rc = rc ? rc : hly_hear(&table, 0, &role, sizeof role, TIMEOUT);
    if (rc || role.seat < 0)
        return rc;
    table.seat = role.seat;
    table.n = role.n;
    memcpy(table.ranks, role.ranks, sizeof table.ranks);
    rc = hly_say(&table, 0, report, sizeof *report, TIMEOUT);
    if (rc || !options->pairs)
        return rc;
    struct hly_cell *row = calloc((size_t)table.n, sizeof *row);
    rc = row ? hly_reach(&table, row) : HALAY_ENOMEM;
    rc = rc ? rc : hly_say(&table, 0, row, (size_t)table.n * sizeof *row, TIMEOUT);
    free(row);
    return rc ? rc : follow_rounds(&table);
}

/* ---------------------------------------------------------------- who leads */

struct lead {
    const struct hly_options *options;
    struct hly_job *job;
    struct hly_table table;
    bool *lost; /* seats that do not answer any more */
};

static void lose(struct lead *l, const struct hly_seat *seat, int code, const char *when)
{
    char reason[200], where[64];
    hly_reason(&l->table, seat->rank, code, reason, sizeof reason);
    snprintf(where, sizeof where, "rank %d%s%.40s", seat->rank, *seat->host ? " on " : "",
             seat->host);
    struct hly_finding *f = hly_find(&l->job->across, HLY_ERROR, "job.rank", where,
                                     "no word from it %s: %s", when, reason);
    hly_advise(f, "It is not in what follows, and a job of all ranks would end so, too.",
               "run halay-doctor on that host alone; look at the interface (HALAY_INTERFACE), at "
               "firewalls between it and %.60s, and at cables",
               l->job->topology.host);
}

/* All ranks that answer, by rank. Returns how many, with rank 0. */
static int hear_hellos(struct lead *l, struct hly_seat *all)
{
    const halay_topology_t *t = &l->job->topology;
    halay_request_t **request = calloc((size_t)t->nranks, sizeof *request);
    int n = 1;
    all[0] = (struct hly_seat){0, t->node, t->local_rank, ""};
    snprintf(all[0].host, sizeof all[0].host, "%s", t->host);
    if (!request)
        return HALAY_ENOMEM;
    for (int r = 1; r < t->nranks; r++)
        request[r] = hly_hear_later(&l->table, r, &all[r], sizeof all[r], 1);
    for (int r = 1; r < t->nranks; r++) {
        int rc = request[r] ? halay_request_wait(request[r]) : HALAY_ENOMEM;
        all[r].host[sizeof all[r].host - 1] = '\0';
        if (rc || all[r].rank != r) {
            struct hly_seat absent = {.rank = r};
            lose(l, &absent, rc ? rc : HALAY_EINTERNAL, "at the start");
        } else {
            all[n++] = all[r]; /* n is at most r, and what stood there is done with */
        }
    }
    free(request);
    return n;
}

/* One rank a node, all ranks where there is one node; the first `most` of them. */
static int choose(const struct lead *l, struct hly_seat *all, int n, int32_t role_of[])
{
    const struct hly_options *o = l->options;
    bool every = o->all_ranks || l->job->topology.nnodes == 1;
    int seats = 0, left = 0;
    for (int i = 0; i < n; i++) {
        bool fits = every || all[i].local_rank == 0 || i == 0; /* rank 0 has the first seat */
        role_of[i] = fits && seats < o->most ? seats++ : -1;
        left += fits && role_of[i] < 0;
    }
    if (left) {
        struct hly_finding *f = hly_find(&l->job->across, HLY_NOTE, "job.most", "",
                                         "left out: %d of %d %s; %d is the most", left,
                                         seats + left, every ? "ranks" : "nodes", o->most);
        hly_advise(f, "Each pair takes about half a second.", "--most %d takes all of them",
                   seats + left < HLY_MOST ? seats + left : HLY_MOST);
    }
    return seats;
}

static int give_roles(struct lead *l, struct hly_seat *all, int n)
{
    struct role role = {.seat = -1};
    int32_t *role_of = calloc((size_t)n, sizeof *role_of);
    int seats = role_of ? choose(l, all, n, role_of) : 0;
    role.n = seats;
    for (int i = 0; i < n && role_of; i++)
        if (role_of[i] >= 0)
            role.ranks[role_of[i]] = all[i].rank;
    for (int i = 1; i < n && role_of; i++) {
        role.seat = role_of[i];
        int rc = hly_say(&l->table, all[i].rank, &role, sizeof role, 3);
        if (rc)
            lose(l, &all[i], rc, "when it was given its part");
    }
    for (int i = 0, s = 0; i < n && role_of; i++)
        if (role_of[i] >= 0)
            all[s++] = all[i];
    l->table.n = l->job->nseats = seats;
    memcpy(l->table.ranks, role.ranks, sizeof l->table.ranks);
    free(role_of);
    return seats ? HALAY_OK : HALAY_ENOMEM;
}

static void hear_reports(struct lead *l)
{
    for (int s = 1; s < l->job->nseats; s++) {
        struct hly_report *report = &l->job->reports[s];
        const struct hly_seat *seat = &l->job->seats[s];
        int rc = hly_hear(&l->table, seat->rank, report, sizeof *report, 3);
        if (rc) {
            lose(l, seat, rc, "when it should have sent its findings");
            l->lost[s] = true;
            memset(report, 0, sizeof *report);
            snprintf(report->host, sizeof report->host, "%s", seat->host);
        }
        hly_report_tame(report);
    }
}

/* ---------------------------------------------------------------- the matrix */

static int reach_all(struct lead *l)
{
    struct hly_job *job = l->job;
    int n = job->nseats;
    job->matrix.cells = calloc((size_t)n * (size_t)n, sizeof *job->matrix.cells);
    if (!job->matrix.cells)
        return HALAY_ENOMEM;
    job->matrix.n = n;
    for (int i = 0; i < n * n; i++)
        job->matrix.cells[i].code = HALAY_INPROGRESS;
    int rc = hly_reach(&l->table, hly_cell(job, 0, 0));
    for (int s = 1; s < n && !rc; s++) {
        struct hly_cell *row = hly_cell(job, s, 0);
        int failed = l->lost[s]
                         ? HALAY_OK
                         : hly_hear(&l->table, job->seats[s].rank, row, (size_t)n * sizeof *row, 4);
        if (failed) {
            lose(l, &job->seats[s], failed, "when the pairs had been tried");
            l->lost[s] = true;
        }
        for (int i = 0; i < n; i++) {
            row[i].reason[sizeof row[i].reason - 1] = '\0';
            if (l->lost[s])
                row[i] = (struct hly_cell){.code = HALAY_INPROGRESS};
        }
    }
    return rc;
}

static bool worth_timing(const struct lead *l, int a, int b)
{
    return b >= 0 && !l->lost[a] && !l->lost[b] && hly_cell(l->job, a, b)->code == HALAY_OK &&
           hly_cell(l->job, b, a)->code == HALAY_OK;
}

/* What one side measured; the latency is both sides'. */
static void keep(struct lead *l, int from, int to, const struct hly_cell *got)
{
    struct hly_cell *cell = hly_cell(l->job, from, to), *back = hly_cell(l->job, to, from);
    cell->code = got->code;
    cell->bandwidth_mbs = got->bandwidth_mbs;
    memcpy(cell->reason, got->reason, sizeof cell->reason);
    cell->reason[sizeof cell->reason - 1] = '\0';
    if (got->latency_us > 0)
        cell->latency_us = back->latency_us = got->latency_us;
}

struct turn {    /* of a seat in a round */
    int partner; /* -1: it has none */
    halay_request_t *request;
    struct hly_cell cell;
};

/* Says to each seat what it does; a seat that has nothing to do hears that, too, and waits on. */
static void give_turns(struct lead *l, int round, struct turn *turns)
{
    const struct hly_job *job = l->job;
    for (int s = 0; s < job->nseats; s++) {
        int partner = hly_partner(job->nseats, round, s);
        turns[s] = (struct turn){.partner = worth_timing(l, s, partner) ? partner : -1};
    }
    for (int s = 1; s < job->nseats; s++) {
        struct turn *turn = &turns[s];
        struct command command = {turn->partner, s < turn->partner};
        int rank = job->seats[s].rank, rc = HALAY_OK;
        if (!l->lost[s])
            rc = hly_say(&l->table, rank, &command, sizeof command, 3);
        if (rc) {
            lose(l, &job->seats[s], rc, "when a pair was to be timed");
            l->lost[s] = true; /* its partner finds out by the deadline */
            turn->partner = -1;
        }
        if (turn->partner > 0) /* rank 0's own partner first talks about other things */
            turn->request =
                hly_hear_later(&l->table, rank, &turn->cell, sizeof turn->cell, MEASURING);
    }
}

static void play_round(struct lead *l, int round, struct turn *turns)
{
    const struct hly_job *job = l->job;
    give_turns(l, round, turns);
    if (turns[0].partner >= 0) {
        hly_measure(&l->table, turns[0].partner, true, &turns[0].cell);
        keep(l, 0, turns[0].partner, &turns[0].cell);
        struct turn *turn = &turns[turns[0].partner];
        turn->request = hly_hear_later(&l->table, job->seats[turns[0].partner].rank, &turn->cell,
                                       sizeof turn->cell, MEASURING);
    }
    for (int s = 1; s < job->nseats; s++) {
        struct turn *turn = &turns[s];
        if (turn->partner < 0)
            continue;
        int rc = turn->request ? halay_request_wait(turn->request) : HALAY_ENOMEM;
        if (!rc) {
            keep(l, s, turn->partner, &turn->cell);
        } else {
            lose(l, &job->seats[s], rc, "while a pair was timed");
            l->lost[s] = true;
        }
    }
}

static int play(struct lead *l)
{
    int n = l->job->nseats;
    struct turn *turns = calloc((size_t)n, sizeof *turns);
    if (!turns)
        return HALAY_ENOMEM;
    for (int round = 0; round < n - 1 + n % 2; round++)
        play_round(l, round, turns);
    free(turns);
    return HALAY_OK;
}

static void end_rounds(struct lead *l)
{
    const struct command end = {-2, 0};
    for (int s = 1; s < l->job->nseats; s++)
        if (!l->lost[s])
            hly_say(&l->table, l->job->seats[s].rank, &end, sizeof end, 1);
}

static void name_transports(struct hly_matrix *m, const halay_topology_t *t)
{
    const char *plus = strchr(t->transport, '+');
    snprintf(m->near, sizeof m->near, "%.*s", (int)strcspn(t->transport, "+"), t->transport);
    snprintf(m->far, sizeof m->far, "%s", plus ? plus + 1 : m->near);
}

int hly_lead(const struct hly_options *options, halay_comm_t *world, struct hly_job *job)
{
    struct lead l = {options, job, make_table(options, world), NULL};
    if (job->topology.nranks > RANKS_MAX)
        return HALAY_EUNSUPPORTED;
    struct hly_seat *all = calloc((size_t)job->topology.nranks, sizeof *all);
    int n = all ? hear_hellos(&l, all) : HALAY_ENOMEM;
    int rc = n < 0 ? n : give_roles(&l, all, n);
    free(job->seats);
    job->seats = all;
    if (rc)
        return rc;
    struct hly_report *more = realloc(job->reports, (size_t)job->nseats * sizeof *more);
    l.lost = calloc((size_t)job->nseats, sizeof *l.lost);
    if (more)
        job->reports = more;
    if (!more || !l.lost) {
        free(l.lost);
        job->nseats = 1;
        return HALAY_ENOMEM;
    }
    name_transports(&job->matrix, &job->topology);
    hear_reports(&l);
    if (options->pairs) {
        rc = reach_all(&l);
        rc = rc ? rc : play(&l);
        end_rounds(&l);
    }
    free(l.lost);
    return rc;
}
