/* SPDX-License-Identifier: Apache-2.0 */
/*
 * window_sync.c - epochs: fence; post, start, complete, wait; locks; flushes.
 *
 * An access epoch is one of four; an exposure epoch is open between post and wait. The end of an
 * epoch flushes: each target answers when it has carried out all orders before. After a fence the
 * epoch is open, and ends by itself if no operation was made.
 */
#include <limits.h>
#include <stdlib.h>

#include "message.h"
#include "window.h"

/* ---------------------------------------------------------------- what is common */

static int out_of_order(const char *function, const char *why)
{
    return hly_mpi_fail(MPI_ERR_RMA_SYNC, "%s: %s", function, why);
}

static const char *const open_texts[] = {
    [HLY_MPI_NO_EPOCH] = "no access epoch is open",
    [HLY_MPI_FENCED] = "the epoch of MPI_Win_fence has operations: end it by another MPI_Win_fence",
    [HLY_MPI_STARTED] = "the epoch of MPI_Win_start is open: end it by MPI_Win_complete",
    [HLY_MPI_LOCKED] = "a rank is locked: end that by MPI_Win_unlock",
    [HLY_MPI_LOCKED_ALL] = "all ranks are locked: end that by MPI_Win_unlock_all"};

static int check_assert(const char *function, int assert)
{
    const int known = MPI_MODE_NOCHECK | MPI_MODE_NOPRECEDE | MPI_MODE_NOPUT | MPI_MODE_NOSTORE |
                      MPI_MODE_NOSUCCEED;
    return assert & ~known
               ? hly_mpi_fail(MPI_ERR_ASSERT, "%s: assert is %d: it has to be 0, or of MPI_MODE_*",
                              function, assert)
               : MPI_SUCCESS;
}

static int check_rank(const char *function, const struct hly_mpi_win *win, int rank)
{
    const int rc = hly_mpi_check_win(function, win);
    if (rc || rank == MPI_PROC_NULL || (rank >= 0 && rank < win->comm->size))
        return rc;
    return hly_mpi_fail(MPI_ERR_RANK, "%s: there is no rank %d: the window has ranks 0 to %d",
                        function, rank, win->comm->size - 1);
}

/* With the mutex. May another access epoch begin? */
static bool is_free(const struct hly_mpi_win *win)
{
    return win->epoch == HLY_MPI_NO_EPOCH || (win->epoch == HLY_MPI_FENCED && !win->used);
}

/* Begins an access epoch. */
static int enter(const char *function, struct hly_mpi_win *win, enum hly_mpi_epoch epoch)
{
    int rc = MPI_SUCCESS;
    pthread_mutex_lock(&win->mutex);
    if (is_free(win))
        __atomic_store_n(&win->epoch, epoch, __ATOMIC_RELAXED);
    else
        rc = out_of_order(function, open_texts[win->epoch]);
    pthread_mutex_unlock(&win->mutex);
    return rc;
}

static void leave(struct hly_mpi_win *win)
{
    pthread_mutex_lock(&win->mutex);
    __atomic_store_n(&win->epoch, HLY_MPI_NO_EPOCH, __ATOMIC_RELAXED);
    pthread_mutex_unlock(&win->mutex);
}

/* Is this epoch open? */
static int check_open(const char *function, struct hly_mpi_win *win, enum hly_mpi_epoch epoch,
                      const char *why)
{
    int rc = hly_mpi_check_win(function, win);
    if (rc)
        return rc;
    pthread_mutex_lock(&win->mutex);
    if (win->epoch != epoch)
        rc = out_of_order(function, why);
    pthread_mutex_unlock(&win->mutex);
    return rc;
}

/* ---------------------------------------------------------------- fence */

int hly_mpi_win_fence(int assert, struct hly_mpi_win *win)
{
    static const char function[] = "MPI_Win_fence";
    int rc = hly_mpi_check_win(function, win);
    rc = rc ? rc : check_assert(function, assert);
    if (rc)
        return rc;
    pthread_mutex_lock(&win->mutex);
    if (win->epoch > HLY_MPI_FENCED)
        rc = out_of_order(function, open_texts[win->epoch]);
    else if (win->is_posted)
        rc = out_of_order(function, "the epoch of MPI_Win_post is open: end it by MPI_Win_wait");
    pthread_mutex_unlock(&win->mutex);
    if (rc)
        return rc;
    rc = hly_mpi_win_flush_rank(function, win, -1);
    const int met = hly_mpi_result(halay_barrier(win->comm->halay), win->comm, function);
    pthread_mutex_lock(&win->mutex);
    win->used = false;
    __atomic_store_n(&win->epoch, assert &MPI_MODE_NOSUCCEED ? HLY_MPI_NO_EPOCH : HLY_MPI_FENCED,
                     __ATOMIC_RELAXED);
    pthread_mutex_unlock(&win->mutex);
    return rc ? rc : met;
}

/* ---------------------------------------------------------------- start and complete */

/* Checks the arguments. *ranks: those in the window of the group's members, which the caller frees.
 */
static int members(const char *function, const struct hly_mpi_win *win,
                   const struct hly_mpi_group *group, int assert, int **ranks)
{
    int rc = hly_mpi_check_win(function, win);
    rc = rc ? rc : check_assert(function, assert);
    rc = rc ? rc : hly_mpi_check_group(function, group);
    rc = rc ? rc : hly_mpi_group_ranks(function, group, win->comm->group, ranks);
    for (int i = 0; !rc && i < group->size; i++)
        if ((*ranks)[i] == MPI_UNDEFINED) {
            free(*ranks);
            rc = hly_mpi_fail(MPI_ERR_GROUP, "%s: rank %d of the group has no part in the window",
                              function, i);
        }
    return rc;
}

int hly_mpi_win_start(struct hly_mpi_group *group, int assert, struct hly_mpi_win *win)
{
    static const char function[] = "MPI_Win_start";
    int *ranks = NULL, code = 0;
    int rc = members(function, win, group, assert, &ranks);
    if (rc)
        return rc;
    rc = enter(function, win, HLY_MPI_STARTED);
    if (rc) {
        free(ranks);
        return rc;
    }
    for (int i = 0; i < group->size && !code && !(assert &MPI_MODE_NOCHECK); i++)
        code = halay_message_recv(NULL, 0, HALAY_UINT8, ranks[i], HLY_MPI_TAG_POST,
                                  win->comm->halay, NULL);
    if (code) {
        free(ranks);
        leave(win);
        return hly_mpi_result(code, win->comm, function);
    }
    for (int i = 0; i < group->size; i++)
        win->peers[ranks[i]].access |= HLY_MPI_HAS_START;
    win->started = ranks;
    win->nstarted = group->size;
    return MPI_SUCCESS;
}

int hly_mpi_win_complete(struct hly_mpi_win *win)
{
    static const char function[] = "MPI_Win_complete";
    int rc = check_open(function, win, HLY_MPI_STARTED, "MPI_Win_start was not called before");
    if (rc)
        return rc;
    int code = 0;
    rc = hly_mpi_win_flush_rank(function, win, -1);
    for (int i = 0; i < win->nstarted; i++) {
        win->peers[win->started[i]].access &= (uint8_t)~HLY_MPI_HAS_START;
        const int sent =
            halay_message_send(NULL, 0, HALAY_UINT8, win->started[i], HLY_MPI_TAG_COMPLETE,
                               HALAY_SEND_STANDARD, win->comm->halay);
        code = code ? code : sent;
    }
    free(win->started);
    win->started = NULL;
    win->nstarted = 0;
    leave(win);
    return rc ? rc : hly_mpi_result(code, win->comm, function);
}

/* ---------------------------------------------------------------- post and wait */

int hly_mpi_win_post(struct hly_mpi_group *group, int assert, struct hly_mpi_win *win)
{
    static const char function[] = "MPI_Win_post";
    int *ranks = NULL, code = 0;
    int rc = members(function, win, group, assert, &ranks);
    if (rc)
        return rc;
    halay_request_t **posted = calloc((size_t)group->size + 1, sizeof(halay_request_t *));
    pthread_mutex_lock(&win->mutex);
    if (!posted)
        rc = hly_mpi_fail(MPI_ERR_NO_MEM, "%s: no memory for %d ranks", function, group->size);
    else if (win->is_posted)
        rc = out_of_order(function, "the epoch of MPI_Win_post is open: end it by MPI_Win_wait");
    else if (win->epoch == HLY_MPI_FENCED && win->used)
        rc = out_of_order(function, open_texts[win->epoch]);
    win->is_posted = win->is_posted || !rc;
    pthread_mutex_unlock(&win->mutex);
    if (rc) {
        free(posted);
        free(ranks);
        return rc;
    }
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    win->posted = posted;
    win->nposted = 0;
    for (int i = 0; i < group->size && !code; i++) {
        code = halay_message_irecv(NULL, 0, HALAY_UINT8, ranks[i], HLY_MPI_TAG_COMPLETE,
                                   win->comm->halay, &posted[i]);
        win->nposted += !code;
        if (!code && !(assert &MPI_MODE_NOCHECK))
            code = halay_message_send(NULL, 0, HALAY_UINT8, ranks[i], HLY_MPI_TAG_POST,
                                      HALAY_SEND_STANDARD, win->comm->halay);
    }
    free(ranks);
    return hly_mpi_result(code, win->comm, function);
}

static int end_exposure(const char *function, struct hly_mpi_win *win)
{
    int code = 0;
    for (int i = 0; i < win->nposted; i++) {
        const int one = halay_message_wait(win->posted[i], NULL);
        code = code ? code : one;
    }
    free(win->posted);
    pthread_mutex_lock(&win->mutex);
    win->posted = NULL;
    win->nposted = 0;
    win->is_posted = false;
    pthread_mutex_unlock(&win->mutex);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    return hly_mpi_result(code, win->comm, function);
}

static int check_posted(const char *function, struct hly_mpi_win *win)
{
    int rc = hly_mpi_check_win(function, win);
    if (rc)
        return rc;
    pthread_mutex_lock(&win->mutex);
    if (!win->is_posted)
        rc = out_of_order(function, "MPI_Win_post was not called before");
    pthread_mutex_unlock(&win->mutex);
    return rc;
}

int hly_mpi_win_wait(struct hly_mpi_win *win)
{
    const int rc = check_posted("MPI_Win_wait", win);
    return rc ? rc : end_exposure("MPI_Win_wait", win);
}

static bool all_came(const struct hly_mpi_win *win)
{
    for (int i = 0; i < win->nposted; i++)
        if (!halay_message_is_done(win->posted[i]))
            return false;
    return true;
}

int hly_mpi_win_test(struct hly_mpi_win *win, int *flag)
{
    const int rc = check_posted("MPI_Win_test", win);
    if (rc)
        return rc;
    if (!all_came(win))
        halay_context_progress(hly_mpi_job.context, 0);
    *flag = all_came(win);
    return *flag ? end_exposure("MPI_Win_test", win) : MPI_SUCCESS;
}

/* ---------------------------------------------------------------- locks */

int hly_mpi_win_lock(int lock_type, int rank, int assert, struct hly_mpi_win *win)
{
    static const char function[] = "MPI_Win_lock";
    int rc = check_rank(function, win, rank);
    rc = rc ? rc : check_assert(function, assert);
    if (!rc && lock_type != MPI_LOCK_SHARED && lock_type != MPI_LOCK_EXCLUSIVE)
        rc = hly_mpi_fail(MPI_ERR_LOCKTYPE,
                          "%s: lock_type is %d: it has to be MPI_LOCK_SHARED or _EXCLUSIVE",
                          function, lock_type);
    if (rc)
        return rc;
    pthread_mutex_lock(&win->mutex);
    if (!is_free(win) && win->epoch != HLY_MPI_LOCKED)
        rc = out_of_order(function, open_texts[win->epoch]);
    else if (rank >= 0 && win->peers[rank].access & HLY_MPI_HAS_LOCK)
        rc = out_of_order(function, "the rank is locked already");
    if (!rc && rank >= 0) {
        win->peers[rank].access |= HLY_MPI_HAS_LOCK;
        if (assert & MPI_MODE_NOCHECK)
            win->peers[rank].access |= HLY_MPI_UNCHECKED;
    }
    if (!rc) {
        win->nlocks++;
        win->nulls += rank < 0;
        __atomic_store_n(&win->epoch, HLY_MPI_LOCKED, __ATOMIC_RELAXED);
    }
    pthread_mutex_unlock(&win->mutex);
    if (rc || rank < 0 || assert & MPI_MODE_NOCHECK)
        return rc;
    rc = hly_mpi_win_ask(function, win, HLY_MPI_LOCK, lock_type, &rank, 1);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    return rc;
}

/* With the mutex. */
static void drop_lock(struct hly_mpi_win *win, int rank)
{
    if (rank >= 0)
        win->peers[rank].access &= (uint8_t) ~(HLY_MPI_HAS_LOCK | HLY_MPI_UNCHECKED);
    else
        win->nulls--;
    if (--win->nlocks == 0)
        __atomic_store_n(&win->epoch, HLY_MPI_NO_EPOCH, __ATOMIC_RELAXED);
}

/* With the mutex. */
static bool has_lock(const struct hly_mpi_win *win, int rank)
{
    return win->epoch == HLY_MPI_LOCKED &&
           (rank < 0 ? win->nulls > 0 : win->peers[rank].access & HLY_MPI_HAS_LOCK);
}

int hly_mpi_win_unlock(int rank, struct hly_mpi_win *win)
{
    static const char function[] = "MPI_Win_unlock";
    int rc = check_rank(function, win, rank);
    if (rc)
        return rc;
    pthread_mutex_lock(&win->mutex);
    if (!has_lock(win, rank))
        rc = out_of_order(function, "the rank is not locked");
    pthread_mutex_unlock(&win->mutex);
    if (rc)
        return rc;
    if (rank >= 0 && win->peers[rank].access & HLY_MPI_UNCHECKED) {
        rc = hly_mpi_win_flush_rank(function, win, rank);
    } else if (rank >= 0) { /* which flushes, too */
        rc = hly_mpi_win_await(win, rank);
        __atomic_store_n(&win->peers[rank].dirty, 0, __ATOMIC_RELAXED);
        __atomic_thread_fence(__ATOMIC_SEQ_CST);
        const int unlocked = hly_mpi_win_ask(function, win, HLY_MPI_UNLOCK, 0, &rank, 1);
        rc = rc ? rc : unlocked;
    }
    pthread_mutex_lock(&win->mutex);
    drop_lock(win, rank);
    pthread_mutex_unlock(&win->mutex);
    return rc;
}

/* Asks all ranks. */
static int ask_all(const char *function, struct hly_mpi_win *win, enum hly_mpi_order_what what,
                   int mode)
{
    const int n = win->comm->size;
    int *ranks = malloc((size_t)n * sizeof(*ranks));
    if (!ranks)
        return hly_mpi_fail(MPI_ERR_NO_MEM, "%s: no memory for %d ranks", function, n);
    for (int i = 0; i < n; i++)
        ranks[i] = i;
    const int rc = hly_mpi_win_ask(function, win, what, mode, ranks, n);
    free(ranks);
    return rc;
}

int hly_mpi_win_lock_all(int assert, struct hly_mpi_win *win)
{
    static const char function[] = "MPI_Win_lock_all";
    int rc = hly_mpi_check_win(function, win);
    rc = rc ? rc : check_assert(function, assert);
    rc = rc ? rc : enter(function, win, HLY_MPI_LOCKED_ALL);
    if (rc)
        return rc;
    win->unchecked = assert &MPI_MODE_NOCHECK;
    if (!win->unchecked)
        rc = ask_all(function, win, HLY_MPI_LOCK, MPI_LOCK_SHARED);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    return rc;
}

int hly_mpi_win_unlock_all(struct hly_mpi_win *win)
{
    static const char function[] = "MPI_Win_unlock_all";
    int rc =
        check_open(function, win, HLY_MPI_LOCKED_ALL, "MPI_Win_lock_all was not called before");
    if (rc)
        return rc;
    rc = hly_mpi_win_flush_rank(function, win, -1);
    const int unlocked = win->unchecked ? MPI_SUCCESS : ask_all(function, win, HLY_MPI_UNLOCK, 0);
    leave(win);
    return rc ? rc : unlocked;
}

/* ---------------------------------------------------------------- flushes */

#define ALL INT_MIN
static int check_passive(const char *function, struct hly_mpi_win *win, int rank)
{
    int rc = rank == ALL ? hly_mpi_check_win(function, win) : check_rank(function, win, rank);
    if (rc)
        return rc;
    pthread_mutex_lock(&win->mutex);
    const bool all = win->epoch == HLY_MPI_LOCKED_ALL;
    if (!all && win->epoch != HLY_MPI_LOCKED)
        rc = out_of_order(function, "no rank is locked: call MPI_Win_lock or MPI_Win_lock_all");
    else if (!all && rank >= 0 && !(win->peers[rank].access & HLY_MPI_HAS_LOCK))
        rc = out_of_order(function, "the rank is not locked");
    pthread_mutex_unlock(&win->mutex);
    return rc;
}

int hly_mpi_win_flush(int rank, struct hly_mpi_win *win)
{
    const int rc = check_passive("MPI_Win_flush", win, rank);
    return rc || rank < 0 ? rc : hly_mpi_win_flush_rank("MPI_Win_flush", win, rank);
}

int hly_mpi_win_flush_all(struct hly_mpi_win *win)
{
    const int rc = check_passive("MPI_Win_flush_all", win, ALL);
    return rc ? rc : hly_mpi_win_flush_rank("MPI_Win_flush_all", win, -1);
}

/* What was sent is copied or received already. */
int hly_mpi_win_flush_local(int rank, struct hly_mpi_win *win)
{
    const int rc = check_passive("MPI_Win_flush_local", win, rank);
    return rc || rank < 0 ? rc : hly_mpi_win_await(win, rank);
}

int hly_mpi_win_flush_local_all(struct hly_mpi_win *win)
{
    const int rc = check_passive("MPI_Win_flush_local_all", win, ALL);
    return rc ? rc : hly_mpi_win_await(win, -1);
}

int hly_mpi_win_sync(struct hly_mpi_win *win)
{
    const int rc = hly_mpi_check_win("MPI_Win_sync", win);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    return rc;
}
