/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks that wait for each other's messages. Scenes in which none can go on: each rank of them gets
 * the error, with one text that names all, and no other rank does. Then drawn programs that are
 * right, with ranks that are late and questions every few milliseconds: none gets an error.
 * [ROUNDS [drawn]]: so many rounds of programs; without the scenes.
 */
#define _GNU_SOURCE
#include <string.h>
#include <time.h>

#include <halay/local.h>

#include "ranks.h"

#define LONG 50000 /* bytes: offered */

static void good(int rc, const char *what)
{
    CHECK(rc == 0, "%s: %s", what, halay_strerror(rc));
}

static void nap(uint64_t us)
{
    struct timespec ts = {(time_t)(us / 1000000), (long)(us % 1000000) * 1000};
    nanosleep(&ts, NULL);
}

static const char *named(void)
{
    return "test_recv";
}

static void begin(struct rank *r, int one_at_a_time)
{
    good(halay_local_on_name(r->context, named, one_at_a_time), "on_name");
    good(halay_comm_set_deadline(r->world, UINT64_MAX), "deadline");
}

/* ---------------------------------------------------------------- scenes */

enum what { RECV, SEND, SSEND, PROBE, ANY, ALLREDUCE, NOTHING };

struct scene {
    const char *name;
    int nranks;
    enum what what[8];
    int whom[8];         /* -1: the rank before (RECV, PROBE), the next one (SEND, SSEND) */
    unsigned ends;       /* bit r: rank r gets the error */
    const char *text[2]; /* of it */
    bool together;       /* the program may make other calls meanwhile: no error */
};

struct board {
    struct ranks_board told;
    const struct scene *scene;
};

static int do_it(struct rank *r, enum what what, int whom)
{
    static unsigned char data[LONG];
    int32_t in = 1, out;
    int rc = 0;
    if (whom < 0)
        whom = what == SEND || what == SSEND ? (r->rank + 1) % r->nranks
                                             : (r->rank + r->nranks - 1) % r->nranks;
    switch (what) {
    case RECV:
        return halay_message_recv(&out, 1, HALAY_INT32, whom, 7, r->world, NULL);
    case ANY:
        return halay_message_recv(&out, 1, HALAY_INT32, HALAY_ANY_SOURCE, 7, r->world, NULL);
    case PROBE:
        return halay_message_probe(whom, 7, r->world, NULL, NULL);
    case SEND:
        return halay_message_send(data, LONG, HALAY_UINT8, whom, 7, HALAY_SEND_STANDARD, r->world);
    case SSEND:
        return halay_message_send(data, 1, HALAY_UINT8, whom, 7, HALAY_SEND_SYNCHRONOUS, r->world);
    case ALLREDUCE:
        return halay_allreduce(&in, &out, 1, HALAY_INT32, HALAY_SUM, r->world);
    case NOTHING:
        break;
    }
    return rc;
}

static void play(struct rank *r)
{
    struct board *b = r->arg;
    const struct scene *s = b->scene;
    halay_verdict_t v = {.size = sizeof(v)};
    begin(r, !s->together);
    if (s->together)
        good(halay_comm_set_deadline(r->world, 2000000000), "deadline");
    const int rc = do_it(r, s->what[r->rank], s->whom[r->rank]);
    b->told.code[r->rank] = rc;
    if (rc) {
        good(halay_comm_verdict(r->world, &v), "verdict");
        snprintf(b->told.text[r->rank], sizeof(b->told.text[0]), "%s", v.text);
    }
    pthread_barrier_wait(&b->told.barrier);
    halay_finalize(r->context);
}

static void watch(const struct scene *s, struct ranks_options o)
{
    static struct board b;
    const char *first = NULL;
    b = (struct board){.scene = s};
    pthread_barrier_init(&b.told.barrier, NULL, (unsigned)s->nranks);
    o.nranks = s->nranks;
    o.keep = true;
    const uint64_t began = ranks_now_ns();
    ranks_run(&o, play, &b);
    const double took = (double)(ranks_now_ns() - began) * 1e-9;
    for (int r = 0; r < s->nranks; r++) {
        const bool ends = s->ends >> r & 1;
        CHECK(b.told.code[r] == (ends ? HALAY_ETIMEOUT : HALAY_OK), "%s: rank %d: %s: %s", s->name,
              r, halay_strerror(b.told.code[r]), b.told.text[r]);
        if (!ends || s->together)
            continue;
        CHECK(strstr(b.told.text[r], "wait for each other"), "%s: %s", s->name, b.told.text[r]);
        for (int i = 0; i < 2 && s->text[i]; i++)
            CHECK(strstr(b.told.text[r], s->text[i]), "%s: %s: %s", s->name, s->text[i],
                  b.told.text[r]);
        CHECK(!first || !strcmp(first, b.told.text[r]), "%s: two texts: %s: %s", s->name, first,
              b.told.text[r]);
        first = b.told.text[r];
    }
    CHECK(took < 20 * ranks_busy(), "%s took %.1f s", s->name, took);
    for (int r = 0; s->together && r < s->nranks; r++)
        CHECK(strstr(b.told.text[r], "by the deadline") &&
                  strstr(b.told.text[r], "is in test_recv("),
              "%s: %s", s->name, b.told.text[r]);
    pthread_barrier_destroy(&b.told.barrier);
}

static const struct scene scenes[] = {
    {"two receive",
     2,
     {RECV, RECV},
     {-1, -1},
     3,
     {"rank 0 is in test_recv(source 1, tag 7)", "rank 1 is"}},
    {"a ring of 8",
     8,
     {RECV, RECV, RECV, RECV, RECV, RECV, RECV, RECV},
     {-1, -1, -1, -1, -1, -1, -1, -1},
     255,
     {"rank 0 is in test_recv(source 7, tag 7)", "more"}},
    {"long sends",
     3,
     {SEND, SEND, SEND},
     {-1, -1, -1},
     7,
     {"rank 2 is in test_recv: send(dest 0, tag 7)"}},
    {"synchronous",
     2,
     {SSEND, SSEND},
     {-1, -1},
     3,
     {"rank 0 is in test_recv: send(dest 1, tag 7)"}},
    {"mixed",
     4,
     {RECV, SSEND, PROBE, SEND},
     {3, 0, 1, 2},
     15,
     {"rank 2 is in test_recv: probe(source 1, tag 7)"}},
    {"a collective",
     3,
     {ALLREDUCE, RECV, ALLREDUCE},
     {0, 0, 0},
     7,
     {"rank 0 is in test_recv (allreduce of 1 int32", "rank 1 is in test_recv(source 0"}},
    {"any",
     4,
     {ANY, RECV, RECV, SSEND},
     {0, 0, 1, 2},
     15,
     {"rank 0 is in test_recv(source any", "rank 1 is"}},
    {"all of any", 3, {ANY, ANY, ANY}, {0, 0, 0}, 7, {"rank 2 is in test_recv(source any, tag 7)"}},
    {"itself", 1, {SSEND}, {0}, 1, {"rank 0 is in test_recv: send(dest 0, tag 7)"}},
    {"threads", 2, {RECV, RECV}, {-1, -1}, 3, .together = true},
};

/* ---------------------------------------------------------------- drawn programs */

/* The events of a program have an order, in which each rank does its own ones: so some rank can
 * always go on. */
enum { EVENTS = 40, PROGRAMS = 12 };
enum how { BLOCKS, WAITS_LATER, POSTS_EARLY, PROBES };

struct event {
    int from, to; /* -1: all call a collective */
    enum how send, receive;
    bool synchronous, any, slow;
    size_t bytes;
    uint64_t late_us[2]; /* of the sender and of the receiver */
    int end[2];          /* before which event a request is waited for */
};

struct drawn {
    struct event event[EVENTS];
    uint64_t seed;
};

static void draw(struct drawn *d, int nranks, int number)
{
    static const size_t sizes[] = {0, 4, 600, LONG};
    uint64_t x = d->seed * 7919 + (uint64_t)number + 1;
    for (int i = 0; i < EVENTS; i++) {
        struct event *e = &d->event[i];
        *e = (struct event){.from = (int)(ranks_random(&x) % (uint64_t)nranks)};
        e->to = (int)((uint64_t)e->from + 1 + ranks_random(&x) % (uint64_t)(nranks - 1)) % nranks;
        if (ranks_random(&x) % 8 == 0)
            e->from = e->to = -1;
        e->send = ranks_random(&x) % 3 ? BLOCKS : WAITS_LATER;
        e->receive = (enum how)(ranks_random(&x) % 4);
        e->receive = e->receive == WAITS_LATER ? BLOCKS : e->receive;
        e->synchronous = ranks_random(&x) % 2;
        e->any = ranks_random(&x) % 3 == 0;
        e->bytes = sizes[ranks_random(&x) % 4];
        for (int k = 0; k < 2; k++) {
            e->late_us[k] = ranks_random(&x) % 12 ? 0 : ranks_random(&x) % 30000;
            e->end[k] = i + 1 + (int)(ranks_random(&x) % 6);
        }
    }
}

struct course { /* of one rank in one program */
    halay_request_t *send[EVENTS], *receive[EVENTS];
    unsigned char in[EVENTS][LONG], out[LONG];
};

static void receive_early(struct rank *r, const struct drawn *d, struct course *c, int now)
{
    for (int i = now; i < EVENTS && i < now + 4; i++) {
        const struct event *e = &d->event[i];
        if (e->to == r->rank && e->receive == POSTS_EARLY && !c->receive[i])
            good(halay_message_irecv(c->in[i], LONG, HALAY_UINT8,
                                     e->any ? HALAY_ANY_SOURCE : e->from, i, r->world,
                                     &c->receive[i]),
                 "irecv");
    }
}

static void run_event(struct rank *r, const struct drawn *d, struct course *c, int i)
{
    const struct event *e = &d->event[i];
    const halay_send_mode_t mode = e->synchronous ? HALAY_SEND_SYNCHRONOUS : HALAY_SEND_STANDARD;
    const int from = e->any ? HALAY_ANY_SOURCE : e->from;
    int32_t one = 1, sum = 0;
    if (e->from < 0) {
        good(halay_allreduce(&one, &sum, 1, HALAY_INT32, HALAY_SUM, r->world), "allreduce");
        CHECK(sum == r->nranks, "sum %d", sum);
    } else if (e->from == r->rank) {
        nap(e->late_us[0]);
        if (e->send == BLOCKS)
            good(halay_message_send(c->out, e->bytes, HALAY_UINT8, e->to, i, mode, r->world),
                 "send");
        else
            good(halay_message_isend(c->out, e->bytes, HALAY_UINT8, e->to, i, mode, r->world,
                                     &c->send[i]),
                 "isend");
    } else if (e->to == r->rank) {
        halay_envelope_t came = {.size = sizeof(came)};
        nap(e->late_us[1]);
        if (e->receive == PROBES)
            good(halay_message_probe(from, i, r->world, NULL, NULL), "probe");
        if (c->receive[i])
            good(halay_message_wait(c->receive[i], &came), "wait");
        else
            good(halay_message_recv(c->in[i], LONG, HALAY_UINT8, from, i, r->world, &came), "recv");
        CHECK(came.source == e->from && came.tag == i && came.bytes == e->bytes, "event %d", i);
    }
}

static void run_program(struct rank *r, const struct drawn *d)
{
    struct course *c = calloc(1, sizeof(*c));
    CHECK(c, "no memory");
    for (int i = 0; i < EVENTS; i++) {
        receive_early(r, d, c, i);
        for (int k = 0; k < i; k++)
            if (c->send[k] && d->event[k].end[0] <= i) {
                good(halay_request_wait(c->send[k]), "wait");
                c->send[k] = NULL;
            }
        run_event(r, d, c, i);
    }
    for (int k = 0; k < EVENTS; k++)
        if (c->send[k])
            good(halay_request_wait(c->send[k]), "wait");
    free(c);
}

static void programs(struct rank *r)
{
    struct drawn *d = malloc(sizeof(*d));
    CHECK(d, "no memory");
    begin(r, 1);
    for (int n = 0; n < PROGRAMS; n++) {
        d->seed = *(const uint64_t *)r->arg;
        draw(d, r->nranks, n);
        run_program(r, d);
    }
    good(halay_barrier(r->world), "barrier");
    free(d);
}

int main(int argc, char **argv)
{
    static const halay_inproc_faults_t slow = {
        .seed = 5, .queue_slots = 2, .reorder = 1, .delay_polls_max = 300, .eager_bytes = 64};
    const int rounds = argc > 1 ? atoi(argv[1]) : 12;
    setenv("HALAY_DEBUG", "error", 1); /* notices and errors are wanted */
    setenv("HALAY_STALL", "0.1", 1);
    for (size_t i = 0; argc < 3 && i < sizeof(scenes) / sizeof(scenes[0]); i++)
        for (int way = 0; way < 3; way++)
            watch(&scenes[i],
                  (struct ranks_options){.shm = way == 1, .faults = way == 2 ? &slow : NULL});
    setenv("HALAY_STALL", "0.002", 1);
    for (uint64_t round = 0; round < (uint64_t)rounds; round++)
        ranks_run(&(struct ranks_options){.nranks = 2 + (int)(round % 5),
                                          .shm = round % 3 == 1,
                                          .faults = round % 3 == 2 ? &slow : NULL},
                  programs, &round);
    return 0;
}
