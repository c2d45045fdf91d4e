/* SPDX-License-Identifier: Apache-2.0 */
/*
 * window_send.c - orders of an origin on their way to a target, and what comes back. A part that is
 * fetched has a receive of its own, with a tag that is its number. What has come is given out by
 * the thread that waits for it, or that finds it done.
 */
#include <stdlib.h>
#include <string.h>

#include "message.h"
#include "window.h"

#define FETCHES_MOST 64

/* ---------------------------------------------------------------- what is fetched */

/* With the window's mutex. */
static void finish(struct hly_mpi_win *win, struct hly_mpi_fetch *f, int code,
                   const halay_envelope_t *came)
{
    int rc = hly_mpi_result(code, win->comm, "one-sided communication");
    if (!rc && came->bytes != (uint64_t)f->bytes)
        rc = hly_mpi_fail(MPI_ERR_RMA_RANGE,
                          "rank %d: %lld bytes at displacement %lld are not in its window", f->rank,
                          (long long)f->bytes, (long long)f->disp);
    if (!rc && f->room)
        hly_mpi_unpack_range(f->buffer, f->count, f->type, f->from, f->bytes, f->room);
    if (f->gather) {
        f->gather->rc = f->gather->rc ? f->gather->rc : rc;
        __atomic_sub_fetch(&f->gather->left, 1, __ATOMIC_RELEASE);
    } else if (!win->fetch_rc) {
        win->fetch_rc = rc;
    }
    struct hly_mpi_fetch **at = &win->fetches;
    while (*at != f)
        at = &(*at)->next;
    *at = f->next;
    win->nfetches--;
    hly_mpi_object_release(f->type);
    free(f->room);
    free(f);
}

/* With the mutex. The first part from this rank, or from any. */
static struct hly_mpi_fetch *first_of(struct hly_mpi_win *win, int rank)
{
    struct hly_mpi_fetch *f = win->fetches;
    while (f && rank >= 0 && f->rank != rank)
        f = f->next;
    return f;
}

/* With the mutex, which it releases meanwhile. */
static void await_one(struct hly_mpi_win *win, struct hly_mpi_fetch *f)
{
    halay_envelope_t came = {.size = sizeof(came)};
    if (f->awaited) {
        pthread_cond_wait(&win->fetched, &win->mutex);
        return;
    }
    f->awaited = true;
    pthread_mutex_unlock(&win->mutex);
    const int code = halay_message_wait(f->halay, &came);
    pthread_mutex_lock(&win->mutex);
    finish(win, f, code, &came);
    pthread_cond_broadcast(&win->fetched);
}

int hly_mpi_win_await(struct hly_mpi_win *win, int rank)
{
    struct hly_mpi_fetch *f;
    pthread_mutex_lock(&win->mutex);
    while ((f = first_of(win, rank)))
        await_one(win, f);
    const int rc = win->fetch_rc;
    win->fetch_rc = MPI_SUCCESS;
    pthread_mutex_unlock(&win->mutex);
    return rc;
}

static bool gather_is_done(struct hly_mpi_request *r)
{
    struct hly_mpi_gather *g = r->kept;
    struct hly_mpi_win *win = g->win;
    if (!__atomic_load_n(&g->left, __ATOMIC_ACQUIRE))
        return true;
    pthread_mutex_lock(&win->mutex);
    for (struct hly_mpi_fetch *f = win->fetches, *next; f; f = next) {
        halay_envelope_t came = {.size = sizeof(came)};
        next = f->next;
        if (f->awaited || !halay_message_is_done(f->halay))
            continue;
        const int code = halay_message_wait(f->halay, &came);
        finish(win, f, code, &came);
    }
    pthread_mutex_unlock(&win->mutex);
    return !__atomic_load_n(&g->left, __ATOMIC_ACQUIRE);
}

static int gather_then(struct hly_mpi_request *r)
{
    return ((struct hly_mpi_gather *)r->kept)->rc;
}

static void gather_end(struct hly_mpi_request *r)
{
    hly_mpi_object_release(((struct hly_mpi_gather *)r->kept)->win);
}

int hly_mpi_gather_make(const char *function, struct hly_mpi_win *win, struct hly_mpi_request **r)
{
    const int rc = hly_mpi_request_make(function, NULL, sizeof(struct hly_mpi_gather), r);
    if (rc)
        return rc;
    ((struct hly_mpi_gather *)(*r)->kept)->win = win;
    hly_mpi_object_hold(win);
    (*r)->is_done = gather_is_done;
    (*r)->then = gather_then;
    (*r)->end = gather_end;
    return MPI_SUCCESS;
}

/* ---------------------------------------------------------------- sending orders */

static int next_tag(struct hly_mpi_win *win)
{
    const unsigned n = (unsigned)__atomic_fetch_add(&win->answers, 1, __ATOMIC_RELAXED);
    return HLY_MPI_TAG_ANSWER + (int)(n & 0x3fffffff);
}

int hly_mpi_win_send(struct hly_mpi_win *win, int rank, struct hly_mpi_order *order,
                     const struct hly_mpi_run runs[], const void *data, int64_t bytes)
{
    _Alignas(16) char room[HLY_MPI_ORDER_ROOM];
    size_t n = sizeof(*order) + (size_t)order->nruns * sizeof(struct hly_mpi_run);
    order->inlined = (uint64_t)bytes <= sizeof(room) - n;
    memcpy(room, order, sizeof(*order));
    if (order->nruns)
        memcpy(room + sizeof(*order), runs, n - sizeof(*order));
    if (order->inlined && bytes)
        memcpy(room + n, data, (size_t)bytes);
    n += order->inlined ? (size_t)bytes : 0;
    if (!order->inlined)
        pthread_mutex_lock(&win->send_mutex);
    int code = halay_message_send(room, n, HALAY_UINT8, rank, HLY_MPI_TAG_ORDER,
                                  HALAY_SEND_STANDARD, win->comm->halay);
    if (!order->inlined) {
        if (!code)
            code = halay_message_send(data, (size_t)bytes, HALAY_UINT8, rank, HLY_MPI_TAG_DATA,
                                      HALAY_SEND_STANDARD, win->comm->halay);
        pthread_mutex_unlock(&win->send_mutex);
    }
    return code;
}

int hly_mpi_win_fetch(const char *function, struct hly_mpi_win *win,
                      const struct hly_mpi_fetch *wanted, int32_t *answer)
{
    struct hly_mpi_fetch *f = malloc(sizeof(*f)), *oldest;
    if (f) {
        *f = *wanted;
        f->room = f->type->dense ? NULL : malloc((size_t)f->bytes);
    }
    if (!f || (!f->type->dense && !f->room)) {
        free(f);
        return hly_mpi_fail(MPI_ERR_NO_MEM, "%s: no memory for %lld bytes", function,
                            (long long)wanted->bytes);
    }
    *answer = next_tag(win);
    const int code =
        halay_message_irecv(f->room ? f->room : (char *)f->buffer + f->from, (size_t)f->bytes,
                            HALAY_UINT8, f->rank, *answer, win->comm->halay, &f->halay);
    if (code) {
        free(f->room);
        free(f);
        return hly_mpi_result(code, win->comm, function);
    }
    hly_mpi_object_hold(f->type);
    pthread_mutex_lock(&win->mutex);
    while (win->nfetches >= FETCHES_MOST && (oldest = first_of(win, -1)))
        await_one(win, oldest);
    struct hly_mpi_fetch **end = &win->fetches;
    while (*end)
        end = &(*end)->next;
    *end = f;
    win->nfetches++;
    if (f->gather)
        f->gather->left++;
    pthread_mutex_unlock(&win->mutex);
    return MPI_SUCCESS;
}

/* ---------------------------------------------------------------- questions */

struct question {
    halay_request_t *halay;
    struct hly_mpi_refusal answer;
};

static int ask_one(struct hly_mpi_win *win, enum hly_mpi_order_what what, int mode, int rank,
                   struct question *q)
{
    struct hly_mpi_order order = {
        .what = (uint8_t)what, .basic = HLY_MPI_NONE, .mode = mode, .answer = next_tag(win)};
    q->halay = NULL;
    const int code = halay_message_irecv(&q->answer, sizeof(q->answer), HALAY_UINT8, rank,
                                         order.answer, win->comm->halay, &q->halay);
    return code ? code : hly_mpi_win_send(win, rank, &order, NULL, NULL, 0);
}

static int refused(const char *function, int rank, const struct hly_mpi_refusal *why)
{
    if (why->mpi_class != MPI_ERR_RMA_RANGE)
        return hly_mpi_fail((int)why->mpi_class, "%s: rank %d has refused it", function, rank);
    return hly_mpi_fail(MPI_ERR_RMA_RANGE,
                        "%s: rank %d: %lld bytes at displacement %lld are not in its window",
                        function, rank, (long long)why->bytes, (long long)why->disp);
}

int hly_mpi_win_ask(const char *function, struct hly_mpi_win *win, enum hly_mpi_order_what what,
                    int mode, const int ranks[], int n)
{
    struct question one, *q = n == 1 ? &one : calloc((size_t)n + 1, sizeof(*q));
    int code = 0, rc = MPI_SUCCESS;
    if (!q)
        return hly_mpi_fail(MPI_ERR_NO_MEM, "%s: no memory for the answers of %d ranks", function,
                            n);
    for (int i = 0; i < n && !code; i++)
        code = ask_one(win, what, mode, ranks[i], &q[i]);
    for (int i = 0; i < n && (q != &one || !i); i++) {
        if (!q[i].halay)
            continue;
        if (code) /* the order may not have gone out */
            halay_message_cancel(q[i].halay);
        const int ended = halay_message_wait(q[i].halay, NULL);
        code = code ? code : ended;
        if (!code && q[i].answer.mpi_class && !rc)
            rc = refused(function, ranks[i], &q[i].answer);
    }
    if (q != &one)
        free(q);
    return code ? hly_mpi_result(code, win->comm, function) : rc;
}

int hly_mpi_win_flush_rank(const char *function, struct hly_mpi_win *win, int rank)
{
    const int size = win->comm->size;
    int rc = hly_mpi_win_await(win, rank), n = 0, flushed = MPI_SUCCESS;
    int *ranks = malloc((size_t)size * sizeof(*ranks));
    if (!ranks)
        return hly_mpi_fail(MPI_ERR_NO_MEM, "%s: no memory for %d ranks", function, size);
    for (int i = rank < 0 ? 0 : rank; i < (rank < 0 ? size : rank + 1); i++)
        if (__atomic_exchange_n(&win->peers[i].dirty, 0, __ATOMIC_ACQ_REL))
            ranks[n++] = i;
    if (n)
        flushed = hly_mpi_win_ask(function, win, HLY_MPI_FLUSH, 0, ranks, n);
    free(ranks);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    return rc ? rc : flushed;
}
