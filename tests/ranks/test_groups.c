/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Several calls as one: right results, many groups in flight between ordinary calls; and one rank
 * that has something else in its group, or something wrong: all ranks get the same error, no buffer
 * was touched, and the communicator is good for the next call.
 */
#include <string.h>

#include "device/device_builtin.h"
#include "ranks.h"

#define COUNT 300
#define DEEP  20
#define MOST  65536 /* calls of a group */

struct data {
    int64_t in[COUNT], out[COUNT], cast[COUNT], scaled[COUNT], small[2];
    int64_t all[10 * COUNT], every[10 * COUNT], blocks[10 * COUNT], block[COUNT];
};

static void prepare(const struct rank *r, struct data *d, int round)
{
    memset(d, 0x5a, sizeof(*d));
    for (int i = 0; i < COUNT; i++) {
        d->in[i] = ranks_value(r->rank, round, i);
        d->cast[i] = r->rank == round % r->nranks ? ranks_value(99, round, i) : -1;
        d->scaled[i] = i;
    }
    d->small[0] = d->small[1] = r->rank;
    for (int i = 0; i < COUNT * r->nranks; i++)
        d->blocks[i] = ranks_value(r->rank, round, i);
}

/* Blocking and non-blocking forms by turns: neither waits. */
static void collect(const struct rank *r, struct data *d, int round)
{
    const halay_type_t t = HALAY_INT64;
    halay_comm_t *w = r->world;
    halay_request_t *none = (halay_request_t *)d;
    size_t counts[RANKS_MAX];
    for (int k = 0; k < r->nranks; k++)
        counts[k] = (size_t)(k % 3) * 100 + 1;
    int rc = halay_group_begin(w);
    rc |= halay_allreduce(d->in, d->out, COUNT, t, HALAY_SUM, w);
    rc |= halay_ibroadcast(d->cast, COUNT, t, round % r->nranks, w, &none);
    CHECK(!none, "a request for one of a group");
    rc |= halay_allgather(d->in, d->all, COUNT, t, w);
    rc |= halay_iallgatherv(d->in, d->every, counts, NULL, t, w, &none);
    rc |= halay_reduce_scatter(d->blocks, d->block, COUNT, t, HALAY_SUM, w);
    rc |= halay_iallreduce(HALAY_IN_PLACE, d->small, 1 + round % 2, t, HALAY_MAX, w, &none);
    rc |= halay_allreduce_scaled(HALAY_IN_PLACE, d->scaled, COUNT, t, HALAY_SUM, 2, 1, w);
    rc |= halay_barrier(w);
    memset(counts, 0xff, sizeof(counts));
    CHECK(rc == 0, "collecting");
    CHECK(d->out[0] == 0x5a5a5a5a5a5a5a5a, "something happened before the end");
}

static void check(const struct rank *r, const struct data *d, int round)
{
    size_t at = 0;
    for (int i = 0; i < COUNT; i++) {
        CHECK(d->out[i] == ranks_sum(r->nranks, round, i), "allreduce, round %d", round);
        CHECK(d->cast[i] == ranks_value(99, round, i), "broadcast, round %d", round);
        CHECK(d->scaled[i] == 2 * r->nranks * i, "scaled, round %d", round);
        CHECK(d->block[i] == ranks_sum(r->nranks, round, r->rank * COUNT + i), "reduce_scatter");
    }
    CHECK(d->small[0] == r->nranks - 1, "maximum, round %d", round);
    for (int k = 0; k < r->nranks; k++)
        for (int i = 0; i < COUNT; i++) {
            CHECK(d->all[k * COUNT + i] == ranks_value(k, round, i), "allgather, round %d", round);
            if (i < k % 3 * 100 + 1)
                CHECK(d->every[at++] == ranks_value(k, round, i), "allgatherv, round %d", round);
        }
}

static void right(struct rank *r)
{
    struct data *d = malloc(DEEP * sizeof(*d));
    halay_request_t *group[DEEP], *between[DEEP];
    int64_t one[DEEP], total[DEEP];
    CHECK(d, "no memory");
    for (int round = 0; round < 3; round++) {
        for (int g = 0; g < DEEP; g++) {
            prepare(r, &d[g], round + g);
            collect(r, &d[g], round + g);
            CHECK(!halay_group_end(r->world, &group[g]) && group[g], "end");
            one[g] = g + 1;
            CHECK(!halay_iallreduce(&one[g], &total[g], 1, HALAY_INT64, HALAY_SUM, r->world,
                                    &between[g]),
                  "between");
        }
        for (int g = 0; g < DEEP; g++) {
            int rc = HALAY_INPROGRESS;
            while (g % 2 && (rc = halay_request_test(group[g])) == HALAY_INPROGRESS)
                ;
            rc = g % 2 ? rc : halay_request_wait(group[g]);
            CHECK(rc == 0, "group: %s", halay_strerror(rc));
            CHECK(halay_request_wait(group[g]) == HALAY_ESTATE, "waited for twice");
            check(r, &d[g], round + g);
        }
        for (int g = 0; g < DEEP; g++)
            CHECK(!halay_request_wait(between[g]) && total[g] == (g + 1) * r->nranks, "between");
    }
    free(d);
}

/* ---------------------------------------------------------------- one rank differs */

enum mistake { FEWER, MORE, EMPTY, COUNT_, ORDER, BUFFER, TYPE, FREED, MESSAGE, PERSISTENT, KINDS };

static const int codes[KINDS] = {HALAY_EMISMATCH, HALAY_EMISMATCH, HALAY_EMISMATCH, HALAY_EMISMATCH,
                                 HALAY_EMISMATCH, HALAY_EINVAL,    HALAY_EINVAL,    HALAY_ESTATE,
                                 HALAY_ESTATE,    HALAY_ESTATE};

static void spoilt(const struct rank *r, struct data *d, enum mistake m, bool wrong,
                   halay_comm_t *comm)
{
    const halay_type_t t = HALAY_INT64;
    halay_request_t *none;
    size_t count = wrong && m == COUNT_ ? COUNT - 1 : COUNT;
    void *to = wrong && m == BUFFER ? NULL : d->all;
    if (wrong && m == EMPTY)
        return;
    for (int i = 0; i < 2; i++)
        if (i == (wrong && m == ORDER))
            CHECK(!halay_allreduce(d->in, d->out, COUNT, t, HALAY_SUM, comm), "first");
        else
            CHECK(!halay_broadcast(d->cast, COUNT, t, 0, comm), "second");
    CHECK(!halay_allgather(d->in, to, count, t, comm), "third");
    if (wrong && m == TYPE)
        CHECK(!halay_barrier(comm) &&
                  !halay_allreduce(d->in, d->out, 1, (halay_type_t)99, HALAY_SUM, comm),
              "none such");
    if (wrong && m == MESSAGE)
        CHECK(halay_isend(d->in, 1, t, (r->rank + 1) % r->nranks, comm, &none) == HALAY_ESTATE,
              "a message in a group");
    if (wrong && m == PERSISTENT)
        CHECK(halay_barrier_init(comm, &none) == HALAY_ESTATE, "persistent in a group");
    if (!(wrong && m == FEWER))
        CHECK(!halay_reduce_scatter(d->blocks, d->block, COUNT, t, HALAY_SUM, comm), "fourth");
    if (wrong && m == MORE)
        CHECK(!halay_allreduce(HALAY_IN_PLACE, d->scaled, COUNT, t, HALAY_SUM, comm), "fifth");
}

static void one_mistake(struct rank *r, enum mistake m, int w)
{
    static struct data all[RANKS_MAX], before[RANKS_MAX];
    struct ranks_board *b = r->arg;
    struct data *d = &all[r->rank];
    halay_verdict_t v = {.size = sizeof(v)};
    halay_request_t *group;
    halay_comm_t *comm;
    bool wrong = r->rank == w;
    CHECK(!halay_comm_dup(r->world, &comm), "dup");
    prepare(r, d, 0);
    before[r->rank] = *d;
    if (wrong && m == FREED)
        CHECK(!halay_comm_free(comm), "free");
    CHECK(!halay_group_begin(comm), "begin");
    spoilt(r, d, m, wrong, comm);
    CHECK(!halay_group_end(comm, &group), "end");
    b->code[r->rank] = halay_request_wait(group);
    CHECK(!memcmp(d, &before[r->rank], sizeof(*d)), "mistake %d: a buffer was touched", (int)m);
    CHECK(!halay_comm_verdict(comm, &v), "verdict");
    memcpy(b->text[r->rank], v.text, sizeof(v.text));
    pthread_barrier_wait(&b->barrier);
    for (int k = 0; k < r->nranks; k++)
        CHECK(b->code[k] == codes[m] && !strcmp(b->text[k], b->text[0]) && b->text[0][0],
              "mistake %d of rank %d of %d: rank %d got %s: %s", (int)m, w, r->nranks, k,
              halay_strerror(b->code[k]), b->text[k]);
    CHECK(strstr(v.text, "group"), "%s", v.text);
    CHECK(codes[m] == HALAY_EMISMATCH || v.rank == w, "blames %d: %s", v.rank, v.text);
    pthread_barrier_wait(&b->barrier);
    if (m != FREED) {
        collect(&(struct rank){r->rank, r->nranks, r->context, comm, r->hub, NULL, 0}, d, 0);
        CHECK(!halay_group_end(comm, &group) && !halay_request_wait(group), "the next group");
        check(r, d, 0);
    }
    if (m != FREED || !wrong)
        CHECK(!halay_comm_free(comm), "free");
}

static void wrong(struct rank *r)
{
    for (int m = 0; m < KINDS; m++)
        for (int w = 0; w < r->nranks; w++)
            one_mistake(r, (enum mistake)m, w);
}

/* What has no place in a group says so, and the group fails. */
static void no_place(struct rank *r)
{
    halay_request_t *started, *group, *none;
    int64_t x = 1, sum;
    CHECK(!halay_allreduce_init(&x, &sum, 1, HALAY_INT64, HALAY_SUM, r->world, &started), "init");
    for (int i = 0; i < 3 && r->nranks > 1; i++) {
        halay_verdict_t v = {.size = sizeof(v)};
        CHECK(!halay_group_begin(r->world), "begin");
        int rc = i == 0 ? halay_request_start(started)
                 : i == 1
                     ? halay_barrier_init(r->world, &none)
                     : halay_isend(&x, 1, HALAY_INT64, (r->rank + 1) % r->nranks, r->world, &none);
        CHECK(!halay_comm_verdict(r->world, &v), "verdict");
        CHECK(rc == HALAY_ESTATE && v.code == rc && strstr(v.text, "halay_group_end"), "%d: %s", i,
              v.text);
        CHECK(!halay_group_end(r->world, &group), "end");
        CHECK(halay_request_wait(group) == HALAY_ESTATE, "the group is good");
    }
    CHECK(!halay_request_start(started) && !halay_request_wait(started) && sum == r->nranks,
          "persistent");
    CHECK(!halay_request_free(started), "free");
}

/* The call that is one too many says how many there may be, and the group fails on all ranks. */
static void full(struct rank *r)
{
    halay_verdict_t v = {.size = sizeof(v)};
    halay_request_t *group;
    CHECK(!halay_group_begin(r->world), "begin");
    for (int i = 0; i < MOST; i++)
        CHECK(!halay_barrier(r->world), "call %d", i);
    if (r->rank == 0) {
        CHECK(halay_barrier(r->world) == HALAY_ESTATE, "one more");
        CHECK(!halay_comm_verdict(r->world, &v), "verdict");
        CHECK(v.code == HALAY_ESTATE && strstr(v.text, "a group has 65536 calls at most") &&
                  strstr(v.text, "begin another"),
              "%s", v.text);
    }
    CHECK(!halay_group_end(r->world, &group), "end");
    CHECK(halay_request_wait(group) == HALAY_ESTATE, "the group is good");
    CHECK(!halay_comm_verdict(r->world, &v), "verdict");
    CHECK(strstr(v.text, "65536 calls"), "%s", v.text);
    CHECK(!halay_barrier(r->world), "the next call");
}

static void misuse(struct rank *r)
{
    halay_request_t *group;
    halay_comm_t *comm, *dup;
    int64_t x = 1;
    CHECK(!halay_comm_dup(r->world, &comm), "dup");
    CHECK(halay_group_begin(NULL) == HALAY_EINVAL, "no communicator");
    CHECK(halay_group_end(comm, &group) == HALAY_ESTATE, "not begun");
    CHECK(!halay_group_begin(comm), "begin");
    CHECK(halay_group_begin(comm) == HALAY_ESTATE, "begun twice");
    CHECK(halay_group_end(comm, NULL) == HALAY_EINVAL, "no request");
    CHECK(halay_comm_dup(comm, &dup) == HALAY_ESTATE, "made of one with a group");
    CHECK(halay_comm_split(comm, 0, 0, &dup) == HALAY_ESTATE, "made of one with a group");
    CHECK(halay_comm_free(comm) == HALAY_ESTATE, "freed with a group");
    CHECK(!halay_group_end(comm, &group) && !halay_request_wait(group), "an empty group");
    CHECK(!halay_group_begin(comm), "begin");
    CHECK(!halay_allreduce(HALAY_IN_PLACE, &x, 1, HALAY_INT64, HALAY_SUM, comm), "allreduce");
    CHECK(!halay_group_end(comm, &group), "end");
    CHECK(halay_comm_free(comm) == HALAY_ESTATE, "freed with a group under way");
    CHECK(!halay_request_wait(group) && x == r->nranks, "wait");
    CHECK(!halay_comm_free(comm), "free");
    CHECK(!halay_group_begin(r->world), "begin");
    CHECK(!halay_barrier(r->world), "left for halay_finalize");
}

int main(int argc, char **argv)
{
    static const int nodes[9] = {0, 1, 0, 2, 1, 0, 0, 1, 3};
    struct hly_device_late_arg late = {.seed = 3, .delay_polls_max = 4, .capacity = 3};
    halay_inproc_faults_t faults = {
        .seed = 5, .delay_polls_max = 3, .reorder = 1, .late_put_polls = 3, .eager_bytes = 64};
    setenv("HALAY_DEBUG", "error", 1); /* the failures here are wanted */
    for (int p = 1; p <= 9; p++) {
        struct ranks_board board;
        struct ranks_options o = {.nranks = p, .shm = p % 2};
        if (argc > 1 && atoi(argv[1]) != p)
            continue;
        pthread_barrier_init(&board.barrier, NULL, (unsigned)p);
        if (p > 4) {
            o.faults = &faults;
            o.device = p % 2 ? &hly_device_late : NULL;
            o.device_arg = p % 2 ? &late : NULL;
            o.node_of_rank = p % 2 ? NULL : nodes;
        }
        ranks_run(&o, right, NULL);
        ranks_run(&o, misuse, NULL);
        ranks_run(&o, no_place, NULL);
        if (p == 2)
            ranks_run(&o, full, NULL);
        if (p > 1)
            ranks_run(&o, wrong, &board);
        pthread_barrier_destroy(&board.barrier);
    }
    return 0;
}
