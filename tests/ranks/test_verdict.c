/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One verdict on every rank, also where ranks are late; and the verdict that a rank reads is that
 * of the result it read last.
 */
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "ranks.h"

#define COUNT   40
#define SECOND  1000000000ull
#define AT_ONCE (SECOND / 4) /* on a busy machine; a grace time is longer */
#define FORMS   11

struct round {
    uint64_t deadline_ns, late_ns;
    int form, count;
    pthread_barrier_t barrier;
    struct ranks_board board;
};

static void nap(uint64_t ns)
{
    struct timespec ts = {(time_t)(ns / SECOND), (long)(ns % SECOND)};
    nanosleep(&ts, NULL);
}

static int call(halay_comm_t *comm, int form, int root, int32_t *in, int32_t *out, size_t n)
{
    switch (form) {
    case 0:
        return halay_allreduce(in, out, n, HALAY_INT32, HALAY_SUM, comm);
    case 1:
        return halay_broadcast(out, n, HALAY_INT32, root, comm);
    case 2:
        return halay_allgather(in, out, n, HALAY_INT32, comm);
    case 3:
        return halay_reduce_scatter(in, out, n, HALAY_INT32, HALAY_SUM, comm);
    case 4:
        return halay_reduce(in, out, n, HALAY_INT32, HALAY_SUM, root, comm);
    case 5:
        return halay_gather(in, out, n, HALAY_INT32, root, comm);
    case 6:
        return halay_scatter(in, out, n, HALAY_INT32, root, comm);
    case 7:
        return halay_alltoall(in, out, n, HALAY_INT32, comm);
    case 8:
        return halay_scan(in, out, n, HALAY_INT32, HALAY_SUM, comm);
    case 9:
        return halay_exscan(in, out, n, HALAY_INT32, HALAY_SUM, comm);
    default:
        return halay_barrier(comm);
    }
}

static halay_verdict_t verdict_of(halay_comm_t *comm)
{
    halay_verdict_t v = {.size = sizeof(v)};
    CHECK(!halay_comm_verdict(comm, &v), "no verdict");
    return v;
}

/* All ranks have read the same, with this code, and that this rank is to blame (-1: any). */
static void compare(struct rank *r, int code, int blamed, const char *what)
{
    struct round *round = r->arg;
    struct ranks_board *board = &round->board;
    halay_verdict_t v = verdict_of(r->world);
    CHECK(v.code == code && (blamed < 0 || v.rank == blamed), "%s: rank %d reads %d, rank %d: %s",
          what, r->rank, v.code, v.rank, v.text);
    strcpy(board->text[r->rank], v.text);
    pthread_barrier_wait(&board->barrier);
    CHECK(!strcmp(board->text[0], v.text), "%s:\n 0: %s\n %d: %s", what, board->text[0], r->rank,
          v.text);
    pthread_barrier_wait(&board->barrier);
}

static void broken_at_once(struct rank *r, int code, int32_t *in, int32_t *out)
{
    struct round *round = r->arg;
    for (int i = 0; i < 3; i++) {
        uint64_t started = ranks_now_ns();
        int rc = call(r->world, (round->form + i) % FORMS, 0, in, out, COUNT);
        CHECK(rc == code && ranks_now_ns() - started < AT_ONCE,
              "rank %d: a later call gave %d after %.3f s", r->rank, rc,
              (double)(ranks_now_ns() - started) * 1e-9);
    }
}

/* ---------------------------------------------------------------- late */

/* The last rank makes its call when the others have given up, or are about to. */
static void late(struct rank *r)
{
    struct round *round = r->arg;
    int32_t in[64 * COUNT] = {0}, out[64 * COUNT];
    for (size_t i = 2; i; i--) /* other counts: the root of equal broadcasts does not wait */
        CHECK(!call(r->world, round->form, 0, in, out, COUNT + i), "too early");
    pthread_barrier_wait(&round->barrier);
    if (r->rank == r->nranks - 1)
        nap(round->late_ns);
    int rc = call(r->world, round->form, 0, in, out, COUNT);
    round->board.code[r->rank] = rc;
    pthread_barrier_wait(&round->barrier);
    int worst = 0;
    for (int i = 0; i < r->nranks; i++)
        worst = round->board.code[i] < worst ? round->board.code[i] : worst;
    if ((double)round->late_ns > ranks_busy() * (double)round->deadline_ns ||
        rc) /* else it was in time, or learns later that it was not */
        CHECK(rc == HALAY_ETIMEOUT, "form %d, %.1f s: rank %d of %d got %s", round->form,
              (double)round->late_ns * 1e-9, r->rank, r->nranks, halay_strerror(rc));
    if (worst) {
        broken_at_once(r, worst, in, out);
        compare(r, HALAY_ETIMEOUT, r->nranks - 1, "later");
    }
    CHECK(halay_finalize(r->context) == 0, "it was told");
}

/* ---------------------------------------------------------------- outlived */

static atomic_int left;

/*
 * Rank 1 has all that it needs of rank 0, and has ended the call; rank 0 is stopped in it, in a
 * call before, or by its program: here it finalizes with the call in flight.
 */
static void outlived(struct rank *r)
{
    struct round *round = r->arg;
    int32_t in[64 * COUNT] = {0}, out[64 * COUNT];
    halay_request_t *request;
    CHECK(!call(r->world, 0, 0, in, out, COUNT), "too early");
    pthread_barrier_wait(&round->barrier);
    if (r->rank == 0) {
        CHECK(!halay_iallreduce(in, out, COUNT, HALAY_INT32, HALAY_SUM, r->world, &request),
              "post");
        nap(SECOND / 5); /* it sends, and takes nothing in */
        CHECK(halay_finalize(r->context) == HALAY_ESTATE, "in flight");
        atomic_store(&left, 1);
        return;
    }
    int rc = call(r->world, 0, 0, in, out, COUNT);
    CHECK(rc == 0, "outlived: %s", halay_strerror(rc));
    while (!atomic_load(&left))
        nap(SECOND / 100);
    if (round->count) {
        rc = call(r->world, 0, 0, in, out, COUNT);
        CHECK(rc == HALAY_ESTATE, "the next call: %s", halay_strerror(rc));
        halay_verdict_t v = verdict_of(r->world);
        CHECK(v.rank == 0 && v.sequence == 1, "the next call: %s", v.text);
        CHECK(halay_finalize(r->context) == 0, "told");
    } else {
        rc = halay_finalize(r->context);
        CHECK(rc == HALAY_ESTATE, "at the end: %s", halay_strerror(rc));
    }
}

/* ---------------------------------------------------------------- called absent */

/* Rank 3 is stopped; rank 0 is there, but does nothing when the others look who is absent. */
static void claimed(struct rank *r)
{
    struct round *round = r->arg;
    int32_t in[64 * COUNT] = {0}, out[64 * COUNT];
    halay_request_t *request;
    CHECK(!call(r->world, 0, 0, in, out, COUNT), "too early");
    pthread_barrier_wait(&round->barrier);
    if (r->rank == 3) {
        nap(round->deadline_ns + 3 * SECOND);
    } else {
        if (r->rank)
            nap(SECOND / 20);
        CHECK(!halay_iallreduce(in, out, COUNT, HALAY_INT32, HALAY_SUM, r->world, &request),
              "post");
        if (!r->rank) /* a quarter of the grace time is a sixteenth of the deadline */
            nap(round->deadline_ns + round->deadline_ns / 16 + round->deadline_ns / 12);
        int rc = halay_request_wait(request);
        CHECK(rc == HALAY_ETIMEOUT, "claimed: rank %d got %s", r->rank, halay_strerror(rc));
        halay_verdict_t v = verdict_of(r->world);
        CHECK(v.rank == 3, "rank %d blames %d: %s", r->rank, v.rank, v.text);
    }
    CHECK(call(r->world, 0, 0, in, out, COUNT) == HALAY_ETIMEOUT, "broken");
    compare(r, HALAY_ETIMEOUT, 3, "claimed");
    halay_finalize(r->context);
}

/* ---------------------------------------------------------------- one waits for one that waits */

/*
 * Rank 7 sends its first message, to rank 6, and is stopped then. Half the ranks hear it over 6,
 * and end the call. Rank 5 waits for rank 7, and rank 1 for rank 5: its deadline passes first, so
 * it says so first, also to ranks that are in the next call.
 */
static void behind(struct rank *r)
{
    struct round *round = r->arg;
    int32_t in[64 * COUNT] = {0}, out[64 * COUNT];
    halay_request_t *request;
    CHECK(!call(r->world, 0, 0, in, out, COUNT), "too early");
    pthread_barrier_wait(&round->barrier);
    if (r->rank == 7) {
        CHECK(!halay_iallreduce(in, out, COUNT, HALAY_INT32, HALAY_SUM, r->world, &request),
              "post");
        nap(round->deadline_ns + 3 * SECOND);
        CHECK(halay_request_wait(request), "it was stopped");
    } else {
        if (r->rank != 1)
            nap(SECOND / 5);
        int rc = call(r->world, 0, 0, in, out, COUNT);
        CHECK(rc == ((r->rank % 2) ? HALAY_ETIMEOUT : HALAY_OK), "rank %d got %s", r->rank,
              halay_strerror(rc));
    }
    CHECK(call(r->world, 0, 0, in, out, COUNT) == HALAY_ETIMEOUT, "broken");
    compare(r, HALAY_ETIMEOUT, 7, "behind");
    halay_finalize(r->context);
}

/* ---------------------------------------------------------------- one rank alone */

static void told(halay_comm_t *comm, int rc, int code, const char *why)
{
    halay_verdict_t v = verdict_of(comm);
    CHECK(rc == code && v.code == code && strstr(v.text, why), "not \"%s\", %d: %d, %s", why, code,
          rc, v.text);
}

/* Each error has another text than the one before: that is not taken for it. */
static void alone(halay_comm_t *comm)
{
    int32_t x = 0, y;
    halay_comm_t *made;
    told(comm, halay_iallreduce(&x, &y, 1, HALAY_INT32, HALAY_SUM, comm, NULL), HALAY_EINVAL,
         "no place for the request");
    told(comm, halay_comm_set_deadline(comm, 0), HALAY_EINVAL, "1 ns at least");
    told(comm, halay_barrier_init(comm, NULL), HALAY_EINVAL, "no place for the request");
    told(comm, halay_comm_deadline(comm, NULL), HALAY_EINVAL, "comm_deadline");
    told(comm, halay_comm_set_hint(comm, (halay_hint_t)77, 1), HALAY_EINVAL, "no hint 77");
    told(comm, halay_comm_set_hint(comm, HALAY_HINT_RELAXED_BROADCAST, 7), HALAY_EINVAL,
         "the value 7");
    told(comm, halay_comm_rank(comm, NULL), HALAY_EINVAL, "comm_rank");
    told(comm, halay_comm_size(comm, NULL), HALAY_EINVAL, "comm_size");
    told(comm, halay_comm_called(comm, NULL), HALAY_EINVAL, "comm_called");
    told(comm, halay_comm_failed(comm, NULL, NULL), HALAY_EINVAL, "comm_failed");
    told(comm, halay_comm_agree(comm, NULL), HALAY_EINVAL, "comm_agree");
    told(comm, halay_comm_shrink(comm, NULL), HALAY_EINVAL, "comm_shrink");
    told(comm, halay_comm_dup(comm, NULL), HALAY_EINVAL, "comm_dup");
    told(comm, halay_comm_from_ranks(comm, NULL, 0, NULL), HALAY_EINVAL, "comm_from_ranks");
    told(comm, halay_comm_create_group(comm, NULL, -1, 0, &made), HALAY_EINVAL, "so many ranks");
    told(comm, halay_group_end(comm, NULL), HALAY_EINVAL, "group_end");
    told(comm, halay_send(&x, 1, HALAY_INT32, 99, comm), HALAY_EINVAL, "another rank");
    told(comm, halay_isend(&x, 1, HALAY_INT32, 0, comm, NULL), HALAY_EINVAL,
         "no place for the request");
}

static void refused_alone(struct rank *r)
{
    halay_op_t op = HALAY_OP_USER;
    halay_range_t range;
    halay_comm_t *comm;
    halay_request_t *request;
    CHECK(!halay_comm_dup(r->world, &comm), "dup");
    alone(r->world);
    alone(comm);
    told(r->world, halay_op_create(r->context, NULL, NULL, 1, 1, &op), HALAY_EINVAL, "op_create");
    told(r->world, halay_op_free(r->context, HALAY_SUM), HALAY_EINVAL, "op_free");
    told(r->world, halay_mem_register(r->context, &op, 1, NULL), HALAY_EINVAL, "range is NULL");
    told(r->world, halay_mem_register(r->context, NULL, 1, &range), HALAY_EINVAL, "an address");
    told(r->world, halay_mem_alloc(r->context, 0, NULL), HALAY_EINVAL, "mem_alloc");
    told(r->world, halay_mem_kind(r->context, NULL, 1, NULL), HALAY_EINVAL, "mem_kind");
    CHECK(!halay_ibarrier(comm, &request) && !halay_request_wait(request), "barrier");
    told(r->world, halay_request_wait(request), HALAY_ESTATE, "ended already");
    CHECK(!halay_comm_free(comm), "free");
    told(comm, halay_comm_set_deadline(comm, SECOND), HALAY_ESTATE, "freed on this rank");
    told(comm, halay_comm_rank(comm, &(int){0}), HALAY_EINVAL, "comm_rank: the communicator");
    told(comm, halay_comm_free(comm), HALAY_ESTATE, "freed before");
    CHECK(!halay_barrier(r->world), "the calls go on");
    CHECK(!halay_finalize(r->context), "finalize");
}

/* The others hear of the call that has failed, also where the last error was this rank's alone. */
static void leaves(struct rank *r)
{
    halay_comm_t *comm;
    int32_t in[COUNT] = {0}, out[COUNT];
    CHECK(!halay_comm_dup(r->world, &comm), "dup");
    CHECK(call(comm, r->rank ? 4 : 0, 0, in, out, COUNT) == HALAY_EMISMATCH, "a mismatch");
    told(comm, halay_comm_deadline(comm, NULL), HALAY_EINVAL, "comm_deadline");
    if (r->rank)
        told(r->world, halay_barrier(r->world), HALAY_EPEER,
             "after a call of it on another communicator failed: the ranks' calls differ");
    CHECK(!halay_finalize(r->context), "finalize");
}

/* ---------------------------------------------------------------- what does not exist */

static void all_told(struct rank *r, int rc, const char *call, const char *why)
{
    compare(r, HALAY_EINVAL, 1, call);
    told(r->world, rc, HALAY_EINVAL, call);
    told(r->world, rc, HALAY_EINVAL, why);
}

/* Rank 1 gives numbers that nothing has: they are shown as they are. */
static void no_such(struct rank *r)
{
    const bool wrong = r->rank == 1;
    const int list[] = {0, 1};
    const halay_op_t sum = HALAY_SUM, users = (halay_op_t)(HALAY_OP_USER + 5);
    const halay_type_t f64 = HALAY_FLOAT64;
    double x = 1, y;
    halay_comm_t *made = NULL;
    all_told(r, halay_comm_from_ranks(r->world, list, wrong ? -1 : 2, &made),
             "comm_from_ranks of -1 (", "so many ranks");
    if (made)
        CHECK(!halay_comm_free(made), "free");
    all_told(r,
             halay_allreduce(&x, &y, 1, wrong ? (halay_type_t)-1 : f64,
                             wrong ? (halay_op_t)-1 : sum, r->world),
             "allreduce of 1 of an unknown type, unknown operation (",
             "there is no type -1; and there is no operation -1");
    all_told(r, halay_allreduce(&x, &y, 1, wrong ? (halay_type_t)99 : f64, sum, r->world),
             "allreduce of 1 of unknown type 99, sum (", "there is no type 99");
    all_told(r, halay_allreduce(&x, &y, 1, f64, wrong ? (halay_op_t)99 : sum, r->world),
             "allreduce of 1 float64, unknown operation 99 (", "there is no operation 99");
    all_told(r, halay_allreduce(&x, &y, 1, f64, wrong ? (halay_op_t)200 : sum, r->world),
             "allreduce of 1 float64, unknown operation (", "there is no operation 200");
    all_told(r, halay_allreduce(&x, wrong ? NULL : &y, 1, f64, wrong ? users : sum, r->world),
             "allreduce of 1 float64, user's operation 5 (", "the output buffer is NULL");
    CHECK(!halay_finalize(r->context), "finalize");
}

/* ---------------------------------------------------------------- two requests */

/* Both have failed before the first result is read: rank 1's calls are wrong, each in its way. */
static void two(struct rank *r)
{
    struct round *round = r->arg;
    int32_t in[64 * COUNT] = {0}, out[2][64 * COUNT];
    halay_request_t *request[2];
    halay_op_t op = r->rank == 1 ? (halay_op_t)77 : HALAY_SUM;
    size_t n = r->rank == 1 ? COUNT + 1 : COUNT;
    CHECK(!halay_iallreduce(in, out[0], COUNT, HALAY_INT32, op, r->world, &request[0]), "post");
    CHECK(!halay_iallreduce(in, out[1], n, HALAY_INT32, HALAY_SUM, r->world, &request[1]), "post");
    uint64_t until = ranks_now_ns() + SECOND / 2;
    while (ranks_now_ns() < until)
        halay_context_progress(r->context, SECOND / 100);
    int first = round->count, code[2] = {HALAY_EINVAL, HALAY_EMISMATCH}, blamed[2] = {1, -1};
    for (int i = 0; i < 2; i++) {
        int which = first ^ i, rc = halay_request_wait(request[which]);
        CHECK(rc == code[which], "request %d: %s", which, halay_strerror(rc));
        halay_verdict_t v = verdict_of(r->world);
        CHECK(v.sequence == (uint32_t)which, "request %d: %s", which, v.text);
        compare(r, code[which], blamed[which], "two requests");
    }
    CHECK(halay_comm_free(r->world) == HALAY_ESTATE, "the world cannot be freed");
    halay_verdict_t v = verdict_of(r->world);
    CHECK(v.code == HALAY_ESTATE && v.rank == r->rank && strstr(v.text, "world"),
          "an error of this rank alone: %d, %s", v.code, v.text);
    CHECK(!halay_finalize(r->context), "finalize");
}

/* ---------------------------------------------------------------- the cases */

static void run(void (*fn)(struct rank *), bool shm, int nranks, struct round *round)
{
    struct ranks_options o = {
        .nranks = nranks, .shm = shm, .deadline_ns = round->deadline_ns, .keep = true};
    if (fn == behind)
        o.algorithm = "allreduce=recursive_doubling";
    unsigned n = (unsigned)nranks;
    pthread_barrier_init(&round->barrier, NULL, n);
    pthread_barrier_init(&round->board.barrier, NULL, n);
    atomic_store(&left, 0);
    ranks_run(&o, fn, round);
    pthread_barrier_destroy(&round->barrier);
    pthread_barrier_destroy(&round->board.barrier);
}

/* Few: not all forms with all numbers of ranks, but each of both. A rank that does not run for a
 * grace time, a share of the deadline, is called absent: on a busy machine it takes longer. */
static void run_late(bool shm, bool few)
{
    /* As it ends; while the others agree; when they have. */
    static const uint64_t after[] = {SECOND, SECOND + SECOND / 5, 2 * SECOND};
    const double busy = ranks_busy() < 4 ? ranks_busy() : 4;
    for (int form = 0; form < FORMS; form++)
        for (int nranks = 2; nranks <= 4; nranks += 2)
            for (size_t k = 0; k < 3; k++) {
                struct round round = {.deadline_ns = (uint64_t)(busy * SECOND),
                                      .late_ns = (uint64_t)(busy * (double)after[k]),
                                      .form = form};
                if (!few || (form + nranks / 2 + (int)k) % 6 == 0)
                    run(late, shm, nranks, &round);
            }
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    setenv("HALAY_DEBUG", "error", 1); /* the failures here are wanted */
    bool shm = argc > 2 && !strcmp(argv[2], "shm"), few = argc <= 3;
    if (!strcmp(what, "late")) {
        run_late(shm, few);
    } else if (!strcmp(what, "outlived")) {
        for (int i = 0; i < 4; i++) {
            struct round round = {.deadline_ns = 20 * SECOND, .count = i % 2};
            run(outlived, i / 2, 2, &round);
        }
    } else if (!strcmp(what, "claimed")) {
        struct round round = {.deadline_ns = few ? 6 * SECOND : 12 * SECOND};
        run(claimed, shm, 4, &round);
    } else if (!strcmp(what, "behind")) {
        /* Long: who is absent is named later than a short grace time after the deadline. */
        struct round round = {.deadline_ns = few ? 3 * SECOND : 8 * SECOND};
        run(behind, shm, 8, &round);
    } else {
        CHECK(!strcmp(what, "two"),
              "usage: test_verdict late|outlived|claimed|behind|two [shm [long]]");
        struct round plain = {.deadline_ns = 20 * SECOND};
        run(refused_alone, shm, 2, &plain);
        run(leaves, shm, 3, &plain);
        run(no_such, shm, 3, &plain);
        for (int i = 0; i < 2; i++) {
            struct round round = {.deadline_ns = 20 * SECOND, .count = i};
            run(two, shm, 3 + i, &round);
        }
    }
    return 0;
}
