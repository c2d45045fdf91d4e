/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One rank makes a wrong call, after right ones or at once, for p = 2 to 9, every algorithm, every
 * kind of mistake, on each single rank: all ranks must return the same error with the same words,
 * long before the deadline; and the communicator must be good for the next call.
 */
#include <halay/plan.h>
#include <pthread.h>
#include <string.h>

#include "ranks.h"

#define COUNT   24
#define ROOM    300000
#define SOON_NS 5000000000ull

enum form {
    ALLREDUCE,
    BROADCAST,
    ALLGATHER,
    ALLGATHERV,
    REDUCE_SCATTER,
    REDUCE_SCATTERV,
    REDUCE,
    GATHER,
    GATHERV,
    SCATTER,
    SCATTERV,
    ALLTOALL,
    ALLTOALLV,
    SCAN,
    EXSCAN,
    BARRIER,
    FROM_RANKS,
    FORMS
};

enum { REDUCES = 1, TO_ROOT = 2, FROM_ROOT = 4, VECTOR = 8, NO_INPUT = 16, NO_DATA = 32 };

static const int forms[FORMS] = {
    [ALLREDUCE] = REDUCES,
    [BROADCAST] = FROM_ROOT | NO_INPUT,
    [ALLGATHERV] = VECTOR,
    [REDUCE_SCATTER] = REDUCES,
    [REDUCE_SCATTERV] = REDUCES | VECTOR,
    [REDUCE] = REDUCES | TO_ROOT,
    [GATHER] = TO_ROOT,
    [GATHERV] = TO_ROOT | VECTOR,
    [SCATTER] = FROM_ROOT,
    [SCATTERV] = FROM_ROOT | VECTOR,
    [ALLTOALLV] = VECTOR,
    [SCAN] = REDUCES,
    [EXSCAN] = REDUCES,
    [BARRIER] = NO_DATA,
    [FROM_RANKS] = NO_DATA,
};

enum mistake {
    COUNT_SMALL,
    COUNT_LARGE,
    TYPE,
    OP,
    OP_OF_OTHER_TYPE,
    COLLECTIVE,
    NEXT_FORM,
    ROOT,
    NULL_BUFFER,
    NULL_COUNTS,
    NO_TYPE,
    NO_OP,
    NO_ROOT,
    OVERLAP,
    IN_PLACE,
    OUT_IN_PLACE,
    BLOCKS_OVERLAP,
    FREED,
    HUGE_COUNT,
    MISTAKES
};

static const char *const names[] = {"smaller count",
                                    "larger count",
                                    "type",
                                    "operation",
                                    "operation of other types",
                                    "collective",
                                    "next form",
                                    "root",
                                    "NULL buffer",
                                    "NULL counts",
                                    "no such type",
                                    "no such operation",
                                    "no such root",
                                    "overlap",
                                    "in place",
                                    "output in place",
                                    "blocks that overlap",
                                    "freed communicator",
                                    "negative count"};

struct board { /* what each rank got, compared by rank 0 */
    pthread_barrier_t barrier;
    halay_verdict_t verdict[RANKS_MAX];
    int code[RANKS_MAX];
    enum form form; /* of roots() */
};

struct args {
    char *in, *out;
    size_t count;
    halay_type_t type;
    halay_op_t op;
    int root;
    enum form form;
    bool no_counts, blocks_overlap;
};

static int call_vector(const struct args *a, halay_comm_t *comm)
{
    size_t counts[RANKS_MAX], *n = a->no_counts ? NULL : counts;
    size_t places[RANKS_MAX], *at = a->blocks_overlap ? places : NULL;
    for (int k = 0; k < RANKS_MAX; k++) {
        counts[k] = a->count;
        places[k] = (RANKS_MAX - 1 - (size_t)k) * (a->count - 1); /* share one with the next */
    }
    switch (a->form) {
    case ALLGATHERV:
        return halay_allgatherv(a->in, a->out, n, at, a->type, comm);
    case REDUCE_SCATTERV:
        return halay_reduce_scatterv(a->in, a->out, n, a->type, a->op, comm);
    case GATHERV:
        return halay_gatherv(a->in, a->out, n, at, a->type, a->root, comm);
    case SCATTERV:
        return halay_scatterv(a->in, a->out, n, NULL, a->type, a->root, comm);
    default:
        return halay_alltoallv(a->in, n, NULL, a->out, n, at, a->type, comm);
    }
}

static int from_ranks(const struct args *a, halay_comm_t *comm)
{
    const int lists[2][2] = {{0, 1}, {1, 0}}, out_of_range[2] = {0, 9}, twice[2] = {1, 1};
    halay_comm_t *subset = NULL;
    const int *list = lists[a->count != COUNT];
    if (a->type == (halay_type_t)99)
        list = twice;
    else if (a->count == (size_t)-1)
        list = out_of_range;
    int rc = halay_comm_from_ranks(comm, list, 2, &subset);
    CHECK(rc || !halay_comm_free(subset), "free");
    return rc;
}

static int call(const struct args *a, halay_comm_t *comm)
{
    switch (a->form) {
    case ALLREDUCE:
        return halay_allreduce(a->in, a->out, a->count, a->type, a->op, comm);
    case BROADCAST:
        return halay_broadcast(a->out, a->count, a->type, a->root, comm);
    case ALLGATHER:
        return halay_allgather(a->in, a->out, a->count, a->type, comm);
    case REDUCE_SCATTER:
        return halay_reduce_scatter(a->in, a->out, a->count, a->type, a->op, comm);
    case REDUCE:
        return halay_reduce(a->in, a->out, a->count, a->type, a->op, a->root, comm);
    case GATHER:
        return halay_gather(a->in, a->out, a->count, a->type, a->root, comm);
    case SCATTER:
        return halay_scatter(a->in, a->out, a->count, a->type, a->root, comm);
    case ALLTOALL:
        return halay_alltoall(a->in, a->out, a->count, a->type, comm);
    case SCAN:
        return halay_scan(a->in, a->out, a->count, a->type, a->op, comm);
    case EXSCAN:
        return halay_exscan(a->in, a->out, a->count, a->type, a->op, comm);
    case BARRIER:
        return halay_barrier(comm);
    case FROM_RANKS:
        return from_ranks(a, comm);
    default:
        return call_vector(a, comm);
    }
}

/* Turns right arguments into wrong ones. 0: this mistake cannot be made with this collective, or on
 * this rank. */
static int spoil(struct args *a, enum mistake m, int nranks, int rank)
{
    int form = forms[a->form], rooted = form & (TO_ROOT | FROM_ROOT);
    bool data = !(form & NO_DATA), list = a->form == FROM_RANKS;
    switch (m) {
    case COUNT_SMALL:
        a->count = 0;
        return data || list;
    case COUNT_LARGE:
        a->count = 20000;
        return data;
    case TYPE:
        a->type = HALAY_UINT32;
        return data;
    case OP:
        a->op = HALAY_MAX;
        return form & REDUCES;
    case OP_OF_OTHER_TYPE: /* or one that a scan does not take */
        a->op = a->form == SCAN || a->form == EXSCAN ? HALAY_AVERAGE : HALAY_BAND;
        a->type = a->op == HALAY_BAND ? HALAY_FLOAT32 : a->type;
        return form & REDUCES;
    case COLLECTIVE:
        a->form = data ? BARRIER : ALLREDUCE;
        return 1;
    case NEXT_FORM:
        a->form = (enum form)((a->form + 1) % FORMS);
        return 1;
    case ROOT:
        a->root = (a->root + 1) % nranks;
        return rooted;
    case NULL_BUFFER:
        *(form & TO_ROOT ? &a->in : &a->out) = NULL;
        return data && !(a->form == EXSCAN && rank == 0);
    case NULL_COUNTS:
        a->no_counts = true;
        return form & VECTOR;
    case NO_TYPE:
        a->type = (halay_type_t)99;
        return data || list;
    case NO_OP:
        a->op = (halay_op_t)-1;
        return form & REDUCES;
    case NO_ROOT:
        a->root = nranks;
        return rooted;
    case OVERLAP:
        a->in = a->out + 4;
        return data && !(form & NO_INPUT) && (!rooted || rank == a->root) &&
               !(a->form == EXSCAN && rank == 0);
    case IN_PLACE:
        a->in = (char *)(uintptr_t)HALAY_IN_PLACE;
        return data && !(form & FROM_ROOT) && !(form & TO_ROOT && rank == a->root);
    case OUT_IN_PLACE:
        a->out = (char *)(uintptr_t)HALAY_IN_PLACE;
        return data && !(a->form == EXSCAN && rank == 0) && !(form & TO_ROOT && rank != a->root) &&
               !((a->form == SCATTER || a->form == SCATTERV) && rank == a->root);
    case BLOCKS_OVERLAP: /* of an output, which a root alone has */
        a->blocks_overlap = true;
        return a->form == ALLGATHERV || a->form == ALLTOALLV ||
               (a->form == GATHERV && rank == a->root);
    case HUGE_COUNT:
        a->count = (size_t)-1;
        return data || list;
    default:
        return 1;
    }
}

static void compare(const struct rank *r, const struct board *b, enum mistake m, int wrong)
{
    const char *who = names[m];
    for (int k = 0; k < r->nranks; k++) {
        const halay_verdict_t *v = &b->verdict[k];
        CHECK(b->code[k] < 0 && b->code[k] != HALAY_ETIMEOUT && b->code[k] != HALAY_EPEER,
              "%s on rank %d of %d: rank %d got %s", who, wrong, r->nranks, k,
              halay_strerror(b->code[k]));
        CHECK(b->code[k] == b->code[0] && !strcmp(v->text, b->verdict[0].text),
              "%s on rank %d of %d:\n rank 0: %s\n rank %d: %s", who, wrong, r->nranks,
              b->verdict[0].text, k, v->text);
        CHECK(v->code == b->code[k] && v->text[0] && v->host[0], "%s: no verdict", who);
        CHECK(b->code[k] == HALAY_EMISMATCH || v->rank == wrong, "%s on rank %d: blames %d", who,
              wrong, v->rank);
        CHECK(b->code[k] != HALAY_EMISMATCH || v->rank == wrong || v->other == wrong ||
                  r->nranks > 2,
              "%s on rank %d: blames %d and %d", who, wrong, v->rank, v->other);
    }
}

static void one(struct rank *r, enum form form, enum mistake m, int wrong, char *room)
{
    struct board *b = r->arg;
    const struct args right = {room, room + ROOM, COUNT, HALAY_INT32, HALAY_SUM,
                               0,    form,        false, false};
    struct args a = right;
    halay_comm_t *comm;
    if (!spoil(&a, m, r->nranks, wrong))
        return;
    if (r->rank != wrong)
        a = right;
    CHECK(halay_comm_dup(r->world, &comm) == 0, "dup");
    /* It is the first call, or like the last; but a broadcast's root may go ahead then:
     * ranks/series
     */
    const int before = form == BROADCAST ? 0 : ((int)form + (int)m + wrong) % 3;
    for (int i = 0; i < before; i++)
        CHECK(call(&right, comm) == 0, "a right call");
    if (m == FREED && r->rank == wrong)
        CHECK(halay_comm_free(comm) == 0, "free");
    uint64_t start = ranks_now_ns();
    b->code[r->rank] = call(&a, comm);
    CHECK(ranks_now_ns() - start < SOON_NS, "%s on rank %d of %d: rank %d waited for the deadline",
          names[m], wrong, r->nranks, r->rank);
    b->verdict[r->rank].size = sizeof(halay_verdict_t);
    CHECK(halay_comm_verdict(comm, &b->verdict[r->rank]) == 0, "verdict");
    pthread_barrier_wait(&b->barrier);
    if (r->rank == 0)
        compare(r, b, m, wrong);
    pthread_barrier_wait(&b->barrier);
    if (m == FREED) {
        if (r->rank != wrong)
            halay_comm_free(comm);
        return;
    }
    int32_t mine = r->rank + 1, sum = 0;
    int rc = halay_allreduce(&mine, &sum, 1, HALAY_INT32, HALAY_SUM, comm);
    CHECK(rc == 0 && sum == r->nranks * (r->nranks + 1) / 2, "after %s on rank %d of %d: %s",
          names[m], wrong, r->nranks, halay_strerror(rc));
    CHECK(halay_comm_free(comm) == 0, "free");
}

/* One rank expects one element more from one other, all else fits: those two are named. */
static void one_count(struct rank *r, int wrong, size_t each, char *room)
{
    struct board *b = r->arg;
    int other = (wrong + 1) % r->nranks, low = wrong < other ? wrong : other;
    size_t in[RANKS_MAX], out[RANKS_MAX];
    char words[96];
    for (int k = 0; k < r->nranks; k++)
        in[k] = out[k] = each;
    if (r->rank == wrong)
        out[other]++;
    b->code[r->rank] =
        halay_alltoallv(room, in, NULL, room + ROOM, out, NULL, HALAY_INT16, r->world);
    b->verdict[r->rank].size = sizeof(halay_verdict_t);
    CHECK(halay_comm_verdict(r->world, &b->verdict[r->rank]) == 0, "verdict");
    pthread_barrier_wait(&b->barrier);
    snprintf(words, sizeof(words), "rank %d sends %zu to rank %d, which expects %zu", other, each,
             wrong, each + 1);
    const halay_verdict_t *v = &b->verdict[r->rank];
    CHECK(b->code[r->rank] == HALAY_EMISMATCH && !strcmp(v->text, b->verdict[0].text),
          "rank %d got %s: %s", r->rank, halay_strerror(b->code[r->rank]), v->text);
    CHECK(v->rank == low && v->other == wrong + other - low && strstr(v->text, words),
          "not \"%s\": %s", words, v->text);
    pthread_barrier_wait(&b->barrier);
}

/* Blocks in reverse with gaps, those of odd ranks empty and amid others; inputs share elements. */
static void looks_wrong(struct rank *r)
{
    const size_t n = (size_t)r->nranks;
    size_t counts[RANKS_MAX], places[RANKS_MAX], own[RANKS_MAX], same[RANKS_MAX] = {0};
    int32_t in[3] = {r->rank, r->rank + 100, r->rank + 200}, out[6 * RANKS_MAX] = {0};
    for (size_t k = 0; k < n; k++) {
        counts[k] = k % 2 ? 0 : 3;
        places[k] = k % 2 ? 5 * (n - k) + 1 : 5 * (n - 1 - k);
        own[k] = r->rank % 2 ? 0 : 3;
    }
    for (int form = 0; form < 3; form++) {
        int rc = form == 0 ? halay_allgatherv(in, out, counts, places, HALAY_INT32, r->world)
                 : form == 1
                     ? halay_gatherv(in, out, counts, places, HALAY_INT32, 0, r->world)
                     : halay_alltoallv(in, own, same, out, counts, places, HALAY_INT32, r->world);
        halay_verdict_t v = {.size = sizeof(v)};
        CHECK(!halay_comm_verdict(r->world, &v), "verdict");
        CHECK(rc == 0, "rank %d, form %d: %s", r->rank, form, v.text);
        for (size_t k = 0; k < n && (form != 1 || r->rank == 0); k += 2)
            for (size_t i = 0; i < 3; i++)
                CHECK(out[places[k] + i] == (int32_t)(k + 100 * i), "form %d, block %zu", form, k);
        memset(out, 0, sizeof(out));
    }
    int rc = halay_scatterv(in, out, counts, same, HALAY_INT32, 0, r->world);
    CHECK(rc == 0 && (r->rank % 2 || (out[0] == 0 && out[2] == 200)), "rank %d, scatterv: %s",
          r->rank, halay_strerror(rc));
}

static void all(struct rank *r)
{
    looks_wrong(r);
    char *room = calloc(2, ROOM * (size_t)r->nranks);
    CHECK(room, "no memory");
    for (int f = 0; f < FORMS; f++)
        for (int m = 0; m < MISTAKES; m++)
            for (int wrong = 0; wrong < r->nranks; wrong++)
                one(r, (enum form)f, (enum mistake)m, wrong, room);
    for (int wrong = 0; wrong < r->nranks; wrong++)
        for (size_t each = 0; each <= 6250; each = each ? each * 25 : 10)
            one_count(r, wrong, each, room);
    free(room);
}

/* Each in turn takes another rank for the root, or itself; at last each takes the next. */
static void roots(struct rank *r)
{
    struct board *b = r->arg;
    char *room = calloc(2, ROOM * (size_t)r->nranks);
    CHECK(room, "no memory");
    for (int wrong = 0; wrong <= r->nranks; wrong++) {
        const int root = wrong == r->nranks ? (r->rank + 1) % r->nranks : r->rank == wrong;
        struct args a = {room, room + ROOM, COUNT, HALAY_INT32, HALAY_SUM,
                         root, b->form,     false, false};
        halay_comm_t *comm;
        uint64_t told = 0;
        CHECK(!halay_comm_dup(r->world, &comm), "dup");
        CHECK(!halay_comm_set_deadline(comm, 3 * SOON_NS), "deadline");
        CHECK(!halay_comm_deadline(comm, &told) && told == 3 * SOON_NS, "deadline");
        CHECK(halay_comm_deadline(comm, NULL) == HALAY_EINVAL, "nowhere to tell it");
        uint64_t start = ranks_now_ns();
        b->code[r->rank] = call(&a, comm);
        CHECK(ranks_now_ns() - start < SOON_NS, "rank %d waited for the deadline", r->rank);
        pthread_barrier_wait(&b->barrier);
        CHECK(b->code[r->rank] == HALAY_EMISMATCH, "root on rank %d of %d: %s", wrong, r->nranks,
              halay_strerror(b->code[r->rank]));
        CHECK(!halay_comm_free(comm), "free");
        pthread_barrier_wait(&b->barrier);
    }
    free(room);
}

/* By every algorithm that has a root: one rank takes another one for it, or itself. */
static void every_root(int p, const halay_inproc_faults_t *faults)
{
    static const int nodes[] = {0, 0, 1, 1};
    static const enum form of[HALAY_COLLECTIVE_COUNT] = {[HALAY_BROADCAST] = BROADCAST,
                                                         [HALAY_REDUCE] = REDUCE,
                                                         [HALAY_GATHER] = GATHER,
                                                         [HALAY_SCATTER] = SCATTER};
    for (uint32_t i = 0; i < halay_planner_count(); i++) {
        const halay_planner_info_t *planner = halay_planner_get(i);
        struct board board = {.form = of[planner->collective]};
        char name[64];
        if (!halay_collective_rooted(planner->collective))
            continue;
        snprintf(name, sizeof(name), "%s=%s", halay_collective_name(planner->collective),
                 planner->name);
        pthread_barrier_init(&board.barrier, NULL, (unsigned)p);
        struct ranks_options o = {.nranks = p,
                                  .faults = faults,
                                  .node_of_rank =
                                      planner->restrictions & HALAY_PLANNER_SHAPE ? nodes : NULL,
                                  .algorithm = name};
        ranks_run(&o, roots, &board);
        pthread_barrier_destroy(&board.barrier);
    }
}

#define LONG 20000

/* One rank calls a barrier, the others an allreduce of so many elements. */
static void instead(struct rank *r)
{
    static int32_t in[LONG]; /* all zero, in all ranks */
    const size_t count = *(const size_t *)r->arg;
    int32_t *out = calloc(LONG, sizeof(*out)), one = 1, sum = 0;
    CHECK(out, "memory");
    for (int guilty = 0; guilty < r->nranks; guilty++) {
        const uint64_t start = ranks_now_ns();
        int rc = r->rank == guilty
                     ? halay_barrier(r->world)
                     : halay_allreduce(in, out, count, HALAY_INT32, HALAY_SUM, r->world);
        CHECK(rc == HALAY_EMISMATCH, "rank %d: %s", r->rank, halay_strerror(rc));
        CHECK(ranks_now_ns() - start < SOON_NS, "rank %d of %d, rank %d guilty", r->rank, r->nranks,
              guilty);
        rc = halay_allreduce(&one, &sum, 1, HALAY_INT32, HALAY_SUM, r->world);
        CHECK(!rc && sum == r->nranks, "the next call: %s", halay_strerror(rc));
    }
    free(out);
}

int main(int argc, char **argv)
{
    static const char *const algorithms[] = {
        NULL, "allreduce=ring,allgather=ring,reduce_scatter=ring",
        "allreduce=circulant,allgather=circulant,reduce_scatter=circulant", NULL};
    static const int nodes[] = {0, 1, 0, 2, 1, 0, 0, 1, 3}; /* for the last of them */
    halay_inproc_faults_t faults = {
        .seed = 5, .delay_polls_max = 3, .reorder = 1, .late_put_polls = 3, .eager_bytes = 64};
    setenv("HALAY_DEBUG", "error", 1); /* the failures here are wanted */
    for (int p = 2; p <= 9; p++)
        for (int a = 0; a < 4; a++) {
            bool asked = argc == 1;
            for (int i = 1; i < argc; i++)
                asked |= atoi(argv[i]) == p;
            if (!asked)
                continue;
            struct board board;
            pthread_barrier_init(&board.barrier, NULL, (unsigned)p);
            struct ranks_options o = {.nranks = p,
                                      .shm = a == 0,
                                      .faults = &faults,
                                      .node_of_rank = a == 3 ? nodes : NULL,
                                      .algorithm = algorithms[a]};
            ranks_run(&o, all, &board);
            pthread_barrier_destroy(&board.barrier);
        }
    const halay_inproc_faults_t *const ways[] = {&ranks_put, &ranks_tagged, &ranks_staged};
    for (int p = 2; p <= 4; p++) {
        every_root(p, &faults);
        for (int w = 0; w < 3; w++) {
            struct ranks_options o = {.nranks = p, .faults = ways[w]};
            size_t count = LONG; /* the others wait for long data, not for what the one sends */
            ranks_run(&o, instead, &count);
        }
    }
    /* With these plans it waits for ranks that wait for it, and nobody has sent it anything. */
    static const int two_nodes[] = {0, 1, 0, 1, 0, 1};
    struct ranks_options o = {.nranks = 6,
                              .shm = true,
                              .node_of_rank = two_nodes,
                              .algorithm = "allreduce=halving_doubling,barrier=two_level"};
    size_t count = 26;
    ranks_run(&o, instead, &count);
    return 0;
}
