/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Flight records: the ring as it wraps, read while it is written; calls that wait, and who is
 * blamed for it, with every algorithm of some collectives; verdicts; and readers of records of
 * which each byte was changed.
 */
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "../../tools/common/flight.h"
#include "../../tools/halay-replay/run.h"
#include "base/context.h"
#include "ranks.h"

#define CALLS 1300

/* ---------------------------------------------------------------- the ring */

static size_t count_of(uint32_t sequence)
{
    return 1 + sequence % 7;
}

static void read_of(const halay_record_t *record, hly_flight_t *flight)
{
    const char *why = "";
    CHECK(!hly_flight_read(record, sizeof(*record), flight, &why), "%s", why);
}

/* Each is whole, whatever was being written meanwhile. */
static void check_calls(const hly_flight_t *f)
{
    for (uint32_t i = 0; i < f->ncalls; i++) {
        const halay_record_call_t *c = &f->calls[i];
        CHECK(c->count == count_of(c->sequence) && c->type == HALAY_INT32 && c->op == HALAY_SUM &&
                  (c->what & 31) == HALAY_ALLREDUCE && c->plan && c->started_ns,
              "call %u is mixed", c->sequence);
        CHECK(c->stamp == 2 * ((uint64_t)c->sequence + 1), "call %u is number %llu", c->sequence,
              (unsigned long long)c->stamp / 2);
        CHECK(c->state == HALAY_RECORD_COMPLETE || c->state == HALAY_RECORD_POSTED, "state");
        CHECK(c->state == HALAY_RECORD_POSTED || c->ended_ns >= c->started_ns,
              "call %u ended early", c->sequence);
    }
}

struct watch {
    const halay_record_t *record;
    atomic_bool over;
    uint32_t looks;
};

static void *watch_main(void *arg)
{
    struct watch *w = arg;
    hly_flight_t *f = malloc(sizeof(*f));
    CHECK(f, "memory");
    while (!atomic_load(&w->over)) {
        read_of(w->record, f);
        check_calls(f);
        w->looks++;
    }
    free(f);
    return NULL;
}

static void ring(struct rank *r)
{
    int32_t in[8] = {1, 1, 1, 1, 1, 1, 1, 1}, out[8];
    struct watch w = {.record = r->context->record.map};
    pthread_t thread;
    CHECK(!pthread_create(&thread, NULL, watch_main, &w), "thread");
    for (uint32_t i = 0; i < CALLS; i++)
        CHECK(!halay_allreduce(in, out, count_of(i), HALAY_INT32, HALAY_SUM, r->world), "call");
    atomic_store(&w.over, true);
    pthread_join(thread, NULL);
    hly_flight_t *f = malloc(sizeof(*f));
    CHECK(f && w.looks, "nobody looked");
    read_of(w.record, f);
    check_calls(f);
    CHECK(f->ncalls == HALAY_RECORD_CALLS && !f->torn, "%u calls, %u torn", f->ncalls, f->torn);
    for (uint32_t i = 0; i < f->ncalls; i++)
        CHECK(f->calls[i].sequence == CALLS - HALAY_RECORD_CALLS + i &&
                  f->calls[i].state == HALAY_RECORD_COMPLETE,
              "place %u has call %u", i, f->calls[i].sequence);
    CHECK(f->head.rank == r->rank && f->head.nranks == r->nranks && f->ncomms == 1 &&
              f->comms[0].stride == 1 && f->comms[0].rank == r->rank,
          "who it is");
    free(f);
}

/* One slot is written all the time: who reads it has all words of one time, or none. */
static void *hammer_main(void *arg)
{
    struct watch *w = arg;
    halay_record_wait_t *slot = (halay_record_wait_t *)&w->record->waits[0], from;
    uint64_t n = 0;
    while (!atomic_load(&w->over)) {
        n++;
        for (size_t i = 0; i < sizeof(from) / 8; i++)
            ((uint64_t *)&from)[i] = n;
        halay_record_write(slot, &from, sizeof(from), n);
    }
    return NULL;
}

static void hammer(void)
{
    static halay_record_t record;
    struct watch w = {.record = &record};
    uint64_t copy[sizeof(halay_record_wait_t) / 8], last = 0;
    pthread_t thread;
    uint32_t whole = 0;
    CHECK(!halay_record_copy(&record.waits[0], copy, sizeof(copy)), "never used");
    CHECK(!pthread_create(&thread, NULL, hammer_main, &w), "thread");
    for (int i = 0; i < 200000 || whole < 100; i++) {
        if (!halay_record_copy(&record.waits[0], copy, sizeof(copy)))
            continue;
        whole++;
        CHECK(copy[0] % 2 == 0 && copy[0] / 2 >= last, "an old stamp");
        last = copy[0] / 2;
        for (size_t k = 1; k < sizeof(copy) / 8; k++)
            CHECK(copy[k] == last, "word %zu of %llu is mixed", k, (unsigned long long)last);
    }
    atomic_store(&w.over, true);
    pthread_join(thread, NULL);
}

/* A rank that dies while it writes leaves an odd stamp: the slot is left out, and counted. */
static void torn(const halay_record_t *whole)
{
    halay_record_t *record = malloc(sizeof(*record));
    hly_flight_t *f = malloc(sizeof(*f));
    CHECK(record && f, "memory");
    memcpy(record, whole, sizeof(*record));
    record->calls[5].stamp = 1;
    read_of(record, f);
    CHECK(f->ncalls == HALAY_RECORD_CALLS - 1 && f->torn == 1, "%u calls, %u torn", f->ncalls,
          f->torn);
    record->calls[6].stamp += 2; /* of another place */
    read_of(record, f);
    CHECK(f->ncalls == HALAY_RECORD_CALLS - 2 && f->torn == 2, "it stands in the wrong place");
    free(f);
    free(record);
}

/* ---------------------------------------------------------------- who is missing */

struct table {
    pthread_barrier_t barrier;
    const halay_record_t *records[RANKS_MAX];
    int collective;
};

static int make(struct rank *r, int collective, int32_t *in, int32_t *out)
{
    switch (collective) {
    case HALAY_BROADCAST:
        return halay_broadcast(out, 1000, HALAY_INT32, 0, r->world);
    case HALAY_ALLGATHER:
        return halay_allgather(in, out, 40, HALAY_INT32, r->world);
    case HALAY_BARRIER:
        return halay_barrier(r->world);
    default:
        return halay_allreduce(in, out, 1000, HALAY_INT32, HALAY_SUM, r->world);
    }
}

static void take(const struct table *t, int nranks, hly_flights_t *all)
{
    *all = (hly_flights_t){0};
    for (int i = 0; i < nranks; i++) {
        hly_flight_t *f = malloc(sizeof(*f));
        CHECK(f, "memory");
        read_of(t->records[i], f);
        CHECK(!hly_flights_add(all, f), "memory");
    }
    hly_flights_sort(all);
}

/* All others wait, or have gone on as ranks may that need nothing of it. */
static bool all_wait(const hly_flights_t *all, int missing, uint32_t sequence)
{
    for (uint32_t i = 0; i < all->n; i++) {
        const hly_flight_t *f = all->list[i];
        hly_standing_t s;
        hly_flight_stand(f, &s);
        if ((int)i != missing &&
            !(s.where == HLY_IN_CALL && s.wait && s.call->sequence == sequence))
            return false;
    }
    return true;
}

static void check_replay(const hly_flights_t *all, const hly_question_t *q, int missing)
{
    hly_replay_t replay;
    uint32_t stuck[RANKS_MAX];
    CHECK(!hly_replay_init(&replay, all, q), "%s", replay.why);
    CHECK(hly_replay_run(&replay, stuck) == replay.nranks, "with all they do not end");
    CHECK(replay.machine.verdict == HLY_RIGHT, "%s", replay.machine.why);
    replay.frozen[missing] = 1;
    CHECK(hly_replay_run(&replay, stuck) == 0, "without rank %d some end", missing);
    for (uint32_t i = 0; i < all->n; i++) { /* and they stop where the records say */
        hly_standing_t s;
        hly_flight_stand(all->list[i], &s);
        const uint32_t now = stuck[i];
        uint32_t done = 0;
        for (uint32_t k = 0; s.wait && k < s.wait->nsteps; k++)
            done += (s.wait->steps[k / 4] >> k % 4 * 2 & 3) == HALAY_RECORD_DONE;
        CHECK(!s.wait || done == s.wait->ndone, "%u steps are done, not %u", done, s.wait->ndone);
        bool seen = (int)i == missing;
        for (uint32_t e = 0; !seen && e < s.wait->nedges; e++)
            seen = s.wait->edges[e].step == now;
        CHECK(seen, "rank %u stops in step %u, which it does not wait in", i, now);
    }
    hly_replay_finish(&replay);
}

/* One that has done its part before it stood still keeps nobody: what it sent is there. */
static void check_past(const hly_flights_t *all, const hly_question_t *q, int missing)
{
    hly_replay_t replay;
    uint32_t stuck[RANKS_MAX];
    hly_flight_t *f = all->list[missing];
    hly_standing_t s;
    hly_flight_stand(all->list[missing ? 0 : 1], &s);
    CHECK(f->ncalls < HALAY_RECORD_CALLS, "there is room");
    f->calls[f->ncalls] = *s.call;
    f->calls[f->ncalls++].state = HALAY_RECORD_COMPLETE;
    CHECK(!hly_replay_init(&replay, all, q), "%s", replay.why);
    replay.frozen[missing] = 1;
    CHECK(hly_replay_run(&replay, stuck) == replay.nranks, "they wait for what was sent");
    CHECK(replay.machine.verdict == HLY_RIGHT, "%s", replay.machine.why);
    hly_replay_finish(&replay);
}

static void miss_one(struct rank *r, struct table *t, int missing, uint32_t sequence)
{
    int32_t in[1000] = {1}, out[1000];
    pthread_barrier_wait(&t->barrier);
    if (r->rank == missing) {
        hly_flights_t all;
        const uint64_t until = ranks_now_ns() + 60000000000ull;
        for (;;) {
            take(t, r->nranks, &all);
            if (all_wait(&all, missing, sequence))
                break;
            CHECK(ranks_now_ns() < until, "not all others wait for rank %d", missing);
            hly_flights_free(&all);
            usleep(2000);
        }
        hly_question_t q[2];
        hly_blame_t b[2];
        CHECK(hly_flights_questions(&all, q, 2) == 1 && q[0].sequence == sequence, "which call");
        CHECK(hly_flights_blame(&all, &q[0], b, 2) == 1 && b[0].rank == missing &&
                  strstr(b[0].text, "has not made the call: in the program's code"),
              "%s", b[0].text);
        check_replay(&all, &q[0], missing);
        check_past(&all, &q[0], missing);
        hly_flights_free(&all);
    }
    CHECK(!make(r, t->collective, in, out), "call");
}

static void missing(struct rank *r)
{
    struct table *t = r->arg;
    t->records[r->rank] = r->context->record.map;
    for (int m = 0; m < r->nranks; m++) {
        if (t->collective == HALAY_BROADCAST && m)
            break; /* the others do not all wait for it */
        miss_one(r, t, m, (uint32_t)m);
    }
    pthread_barrier_wait(&t->barrier);
}

static void run_missing(int nranks, int collective, const char *algorithm, const int *nodes)
{
    struct table t = {.collective = collective};
    const struct ranks_options o = {.nranks = nranks,
                                    .algorithm = algorithm,
                                    .node_of_rank = nodes,
                                    .deadline_ns = 120000000000ull};
    pthread_barrier_init(&t.barrier, NULL, (unsigned)nranks);
    ranks_run(&o, missing, &t);
    pthread_barrier_destroy(&t.barrier);
}

/* ---------------------------------------------------------------- verdicts */

static void differ(struct rank *r)
{
    int32_t in[4] = {1}, out[4];
    hly_flight_t *f = malloc(sizeof(*f));
    CHECK(f, "memory");
    CHECK(!halay_barrier(r->world), "barrier");
    CHECK(halay_allreduce(in, out, r->rank ? 4 : 3, HALAY_INT32, HALAY_SUM, r->world) ==
              HALAY_EMISMATCH,
          "they differ");
    read_of(r->context->record.map, f);
    const halay_record_call_t *c = &f->calls[f->ncalls - 1];
    CHECK(f->ncalls == 2 && c->state == HALAY_RECORD_FAILED && c->code == -HALAY_EMISMATCH,
          "state");
    CHECK(f->nverdicts == 1 && f->verdicts[0].code == HALAY_EMISMATCH &&
              f->verdicts[0].sequence == 1 && strstr(f->verdicts[0].text, "allreduce"),
          "verdict");
    free(f);
}

/* ---------------------------------------------------------------- changed bytes */

static void swallow(void *arg, const char *text)
{
    *(size_t *)arg += strlen(text);
}

static void look_at(const halay_record_t *record, hly_flight_t *f)
{
    const char *why = NULL;
    size_t length = 0;
    hly_question_t q[4];
    hly_blame_t b[4];
    hly_flight_t *list[1] = {f};
    const hly_flights_t all = {list, 1};
    if (hly_flight_read(record, sizeof(*record), f, &why)) {
        CHECK(why, "refused without a reason");
        return;
    }
    hly_flights_tell(&all, 4, swallow, &length);
    const uint32_t n = hly_flights_questions(&all, q, 4);
    for (uint32_t i = 0; i < n; i++) {
        hly_replay_t replay;
        uint32_t *stuck = NULL;
        hly_flights_blame(&all, &q[i], b, 4);
        if (!hly_replay_init(&replay, &all, &q[i]) &&
            (stuck = calloc(replay.nranks, sizeof(*stuck))))
            hly_replay_run(&replay, stuck);
        free(stuck);
        hly_replay_finish(&replay);
    }
}

static void spoil(const halay_record_t *whole, size_t stride)
{
    static const uint8_t flips[] = {0xff, 0x01, 0x80, 0x10};
    halay_record_t *record = malloc(sizeof(*record));
    hly_flight_t *f = malloc(sizeof(*f));
    CHECK(record && f, "memory");
    memcpy(record, whole, sizeof(*record));
    for (size_t i = 0; i < sizeof(*record); i += stride) {
        uint8_t *byte = (uint8_t *)record + i, was = *byte;
        *byte ^= flips[(i / stride) % sizeof(flips)];
        look_at(record, f);
        *byte = was;
    }
    for (size_t bytes = 0; bytes < sizeof(*record); bytes += 4099) {
        const char *why;
        CHECK(hly_flight_read(record, bytes, f, &why), "a short one is taken");
    }
    free(f);
    free(record);
}

struct kept {
    pthread_barrier_t barrier;
    halay_record_t record;
};

/* A record of a rank that waits. */
static void keep(struct rank *r)
{
    struct kept *k = r->arg;
    int32_t in[1000] = {1}, out[1000];
    const halay_record_t *record = r->context->record.map;
    static const halay_record_t *waits;
    for (int i = 0; i < 600; i++)
        CHECK(!halay_allreduce(in, out, 8, HALAY_INT32, HALAY_SUM, r->world), "call");
    if (r->rank == 0)
        waits = record;
    pthread_barrier_wait(&k->barrier);
    if (r->rank == 1) {
        hly_flight_t *f = malloc(sizeof(*f));
        hly_standing_t s = {0};
        CHECK(f, "memory");
        do {
            read_of(waits, f);
            hly_flight_stand(f, &s);
            usleep(1000);
        } while (!s.wait || s.where != HLY_IN_CALL);
        for (size_t i = 0; i < sizeof(k->record) / 8; i++)
            ((uint64_t *)&k->record)[i] =
                __atomic_load_n((const uint64_t *)waits + i, __ATOMIC_ACQUIRE);
        free(f);
    }
    CHECK(!halay_allreduce(in, out, 1000, HALAY_INT32, HALAY_SUM, r->world), "call");
}

int main(int argc, char **argv)
{
    static const int nodes[] = {0, 0, 0, 1, 1, 1};
    static struct kept kept;
    const size_t stride = argc > 1 ? strtoul(argv[1], NULL, 10) : 1;
    hammer();
    ranks_run(&(struct ranks_options){.nranks = 2}, ring, NULL);
    ranks_run(&(struct ranks_options){.nranks = 3, .shm = true}, differ, NULL);
    run_missing(4, HALAY_ALLREDUCE, "allreduce=ring", NULL);
    run_missing(5, HALAY_ALLREDUCE, "allreduce=recursive_doubling", NULL);
    run_missing(6, HALAY_ALLREDUCE, NULL, nodes);
    run_missing(3, HALAY_ALLGATHER, NULL, NULL);
    run_missing(7, HALAY_BARRIER, NULL, NULL);
    run_missing(4, HALAY_BROADCAST, NULL, NULL);
    pthread_barrier_init(&kept.barrier, NULL, 2);
    ranks_run(&(struct ranks_options){.nranks = 2}, keep, &kept);
    torn(&kept.record);
    spoil(&kept.record, stride);
    pthread_barrier_destroy(&kept.barrier);
    return 0;
}
