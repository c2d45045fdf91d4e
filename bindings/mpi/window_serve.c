/* SPDX-License-Identifier: Apache-2.0 */
/*
 * window_serve.c - the thread that carries out orders to this process's windows. It begins with the
 * first window and ends with the last one. It sleeps in halay_context_progress() while no order
 * comes, and makes the process's progress then.
 *
 * Each window has one receive posted for its next order. An order that waits for a lock is put into
 * a list, which has room for one of each rank. All else is done at once, and waits only for bytes
 * that are on their way, so that two such threads never wait for each other.
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "window.h"

#define SLEEP_NS    20000000ull
#define GIVE_WAY_NS 50000 /* to threads that want the mutex */
#define IN_A_ROW    64    /* orders to a window before the next one's turn */

static struct {
    pthread_mutex_t life;  /* guards the thread */
    pthread_mutex_t mutex; /* guards the list, and is held while an order is carried out */
    pthread_t thread;
    int windows; /* under `life` */
    int stop;    /* atomic */
    int wanted;  /* threads that want the mutex; atomic */
    char *data, *answer;
    struct hly_mpi_win *first;
} serve = {.life = PTHREAD_MUTEX_INITIALIZER, .mutex = PTHREAD_MUTEX_INITIALIZER};

/* ---------------------------------------------------------------- answers */

static void answer(struct hly_mpi_win *win, int rank, int tag, const void *data, int64_t bytes)
{
    /* If it fails the origin finds the same: the communicator is broken. */
    if (tag >= HLY_MPI_TAG_ANSWER)
        halay_message_send(data, (size_t)bytes, HALAY_UINT8, rank, tag, HALAY_SEND_STANDARD,
                           win->comm->halay);
}

static void answer_refusal(struct hly_mpi_win *win, int rank, int tag)
{
    struct hly_mpi_refusal *mine = &win->peers[rank].refusal;
    answer(win, rank, tag, mine, sizeof(*mine));
    *mine = (struct hly_mpi_refusal){0};
}

static void refuse(struct hly_mpi_win *win, int rank, const struct hly_mpi_order *order,
                   int mpi_class)
{
    struct hly_mpi_refusal *first = &win->peers[rank].refusal;
    if (!first->mpi_class)
        *first = (struct hly_mpi_refusal){mpi_class, order->disp, order->bytes};
}

/* ---------------------------------------------------------------- locks */

static bool may_lock(const struct hly_mpi_win *win, int mode)
{
    return !win->exclusive && (mode == MPI_LOCK_SHARED || !win->shared);
}

static void give_lock(struct hly_mpi_win *win, int rank, int mode, int tag)
{
    if (mode == MPI_LOCK_SHARED)
        win->shared++;
    else
        win->exclusive++;
    win->peers[rank].holds = mode == MPI_LOCK_SHARED ? 1 : 2;
    answer_refusal(win, rank, tag);
}

static void lock(struct hly_mpi_win *win, int rank, const struct hly_mpi_order *order)
{
    bool again = win->peers[rank].holds != 0;
    for (int i = 0; i < win->nwaits; i++)
        again = again || win->waits[i].rank == rank;
    if (again) { /* its own library has found that before */
        refuse(win, rank, order, MPI_ERR_RMA_SYNC);
        answer_refusal(win, rank, order->answer);
    } else if (!win->nwaits && may_lock(win, order->mode)) {
        give_lock(win, rank, order->mode, order->answer);
    } else {
        win->waits[win->nwaits++] = (struct hly_mpi_win_wait){rank, order->mode, order->answer};
    }
}

static void unlock(struct hly_mpi_win *win, int rank, const struct hly_mpi_order *order)
{
    struct hly_mpi_win_peer *peer = &win->peers[rank];
    if (peer->holds == 1)
        win->shared--;
    else if (peer->holds == 2)
        win->exclusive--;
    else
        refuse(win, rank, order, MPI_ERR_RMA_SYNC);
    peer->holds = 0;
    answer_refusal(win, rank, order->answer);
    while (win->nwaits && may_lock(win, win->waits[0].mode)) {
        const struct hly_mpi_win_wait next = win->waits[0];
        memmove(win->waits, win->waits + 1, (size_t)--win->nwaits * sizeof(next));
        give_lock(win, next.rank, next.mode, next.answer);
    }
}

/* ---------------------------------------------------------------- data */

static bool has_data(const struct hly_mpi_order *order)
{
    return order->what != HLY_MPI_GET && order->what <= HLY_MPI_SWAP && order->op != HLY_MPI_NO_OP;
}

/* What does not fit, since the order was refused, is lost with the message. */
static int receive_data(struct hly_mpi_win *win, int rank, char *to, int64_t room)
{
    return halay_message_recv(to, (size_t)room, HALAY_UINT8, rank, HLY_MPI_TAG_DATA,
                              win->comm->halay, NULL);
}

static void carry_out(struct hly_mpi_win *win, int rank, const struct hly_mpi_order *order,
                      const struct hly_mpi_run runs[], const char *data)
{
    const bool fetches = order->what == HLY_MPI_GET || order->what >= HLY_MPI_GET_ACCUMULATE;
    const bool fits = hly_mpi_order_fits(win, order, runs);
    const bool one = order->nruns == 1 && runs[0].n == 1;
    char *at = (char *)win->base + order->disp;
    if (win->flavor == MPI_WIN_FLAVOR_DYNAMIC)
        at = (char *)(uintptr_t)order->disp;
    if (!fits && !fetches) /* those get an empty answer */
        refuse(win, rank, order, MPI_ERR_RMA_RANGE);
    if (has_data(order) && !order->inlined) {
        const bool direct = fits && one && order->what == HLY_MPI_PUT;
        data = serve.data;
        if (receive_data(win, rank, direct ? at + runs[0].offset : serve.data,
                         direct ? order->bytes : HLY_MPI_PART_BYTES) ||
            direct)
            return;
    }
    if (!fits || (!(order->what == HLY_MPI_GET && one) && order->bytes > HLY_MPI_PART_BYTES)) {
        answer(win, rank, order->answer, NULL, 0);
        return;
    }
    if (order->what == HLY_MPI_GET && one) {
        answer(win, rank, order->answer, at + runs[0].offset, order->bytes);
        return;
    }
    hly_mpi_order_apply(win, win->comm->rank, at, order, runs, data, fetches ? serve.answer : NULL);
    if (fetches)
        answer(win, rank, order->answer, serve.answer, order->bytes);
}

/* Is the message an order? Its sender is a process of this job, but its bytes are not trusted. */
static bool is_order(const struct hly_mpi_order *order, const halay_envelope_t *came)
{
    const uint64_t head = sizeof(*order) + (uint64_t)order->nruns * sizeof(struct hly_mpi_run);
    if (came->bytes < sizeof(*order) || order->nruns < 0 ||
        order->nruns > (int64_t)HLY_MPI_RUNS_ROOM || came->bytes < head || order->bytes < 0)
        return false;
    const uint64_t data = (uint64_t)order->bytes * (order->what == HLY_MPI_SWAP ? 2 : 1);
    if (has_data(order) && order->inlined && came->bytes - head < data)
        return false;
    if (order->what == HLY_MPI_SWAP && (!order->inlined || order->nruns != 1))
        return false;
    return order->basic >= HLY_MPI_NONE && order->basic < hly_mpi_named_count &&
           (order->basic >= 0 || order->what < HLY_MPI_ACCUMULATE || order->what >= HLY_MPI_SWAP);
}

static void obey(struct hly_mpi_win *win, const halay_envelope_t *came)
{
    const struct hly_mpi_order *order = (const struct hly_mpi_order *)win->room;
    const struct hly_mpi_run *runs = (const struct hly_mpi_run *)(order + 1);
    if (!is_order(order, came))
        return;
    switch (order->what) {
    case HLY_MPI_FLUSH:
        answer_refusal(win, came->source, order->answer);
        break;
    case HLY_MPI_LOCK:
        lock(win, came->source, order);
        break;
    case HLY_MPI_UNLOCK:
        unlock(win, came->source, order);
        break;
    default:
        carry_out(win, came->source, order, runs, (const char *)(runs + order->nruns));
    }
}

/* ---------------------------------------------------------------- the thread */

static int listen(struct hly_mpi_win *win)
{
    return halay_message_irecv(win->room, sizeof(win->room), HALAY_UINT8, HALAY_ANY_SOURCE,
                               HLY_MPI_TAG_ORDER, win->comm->halay, &win->listen);
}

/* False: there was none. */
static bool serve_once(struct hly_mpi_win *win)
{
    halay_envelope_t came = {.size = sizeof(came)};
    if (win->deaf || !halay_message_is_done(win->listen))
        return false;
    const int code = halay_message_wait(win->listen, &came);
    win->listen = NULL;
    if (!code)
        obey(win, &came);
    win->deaf = code || listen(win); /* a rank has died: calls on the window say so */
    return true;
}

static void *body(void *arg)
{
    (void)arg;
    while (!__atomic_load_n(&serve.stop, __ATOMIC_ACQUIRE)) {
        bool some = false;
        pthread_mutex_lock(&serve.mutex);
        for (struct hly_mpi_win *win = serve.first; win; win = win->next)
            for (int i = 0; i < IN_A_ROW && serve_once(win); i++)
                some = true;
        pthread_mutex_unlock(&serve.mutex);
        if (!some)
            halay_context_progress(hly_mpi_job.context, SLEEP_NS);
        else if (__atomic_load_n(&serve.wanted, __ATOMIC_RELAXED)) /* a mutex is not fair */
            nanosleep(&(struct timespec){.tv_nsec = GIVE_WAY_NS}, NULL);
    }
    return NULL;
}

static void take_mutex(void)
{
    __atomic_add_fetch(&serve.wanted, 1, __ATOMIC_RELAXED);
    pthread_mutex_lock(&serve.mutex);
    __atomic_sub_fetch(&serve.wanted, 1, __ATOMIC_RELAXED);
}

/* With `life`. The thread takes no signals: they are the program's. */
static int start_thread(void)
{
    sigset_t all, before;
    serve.data = malloc(HLY_MPI_PART_BYTES);
    serve.answer = malloc(HLY_MPI_PART_BYTES);
    __atomic_store_n(&serve.stop, 0, __ATOMIC_RELEASE);
    hly_mpi_job_serves(true);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int rc =
        serve.data && serve.answer ? pthread_create(&serve.thread, NULL, body, NULL) : -1;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!rc)
        return 0;
    hly_mpi_job_serves(false);
    free(serve.data);
    free(serve.answer);
    return rc;
}

static void stop_thread(void)
{
    __atomic_store_n(&serve.stop, 1, __ATOMIC_RELEASE);
    halay_context_wake(hly_mpi_job.context);
    pthread_join(serve.thread, NULL);
    hly_mpi_job_serves(false);
    free(serve.data);
    free(serve.answer);
}

int hly_mpi_serve(const char *function, struct hly_mpi_win *win)
{
    int rc = MPI_SUCCESS;
    pthread_mutex_lock(&serve.life);
    const int code = listen(win);
    if (code)
        rc = hly_mpi_result(code, win->comm, function);
    else if (!serve.windows && start_thread())
        rc = hly_mpi_fail(MPI_ERR_NO_MEM, "%s: no memory for the thread that serves windows",
                          function);
    if (!rc) {
        serve.windows++;
        take_mutex();
        win->next = serve.first;
        serve.first = win;
        pthread_mutex_unlock(&serve.mutex);
    }
    pthread_mutex_unlock(&serve.life);
    return rc;
}

/* With `life`. */
static void remove_one(struct hly_mpi_win *win)
{
    struct hly_mpi_win **at = &serve.first;
    take_mutex();
    while (*at && *at != win)
        at = &(*at)->next;
    const bool found = *at != NULL;
    if (found)
        *at = win->next;
    pthread_mutex_unlock(&serve.mutex);
    if (win->listen) {
        halay_message_cancel(win->listen);
        halay_message_wait(win->listen, NULL);
        win->listen = NULL;
    }
    if (found && !--serve.windows)
        stop_thread();
}

void hly_mpi_serve_end(struct hly_mpi_win *win)
{
    pthread_mutex_lock(&serve.life);
    remove_one(win);
    pthread_mutex_unlock(&serve.life);
}

void hly_mpi_windows_leave(void)
{
    pthread_mutex_lock(&serve.life);
    while (serve.first)
        remove_one(serve.first);
    pthread_mutex_unlock(&serve.life);
}
