/* SPDX-License-Identifier: Apache-2.0 */
/*
 * request.c - waiting for requests of all kinds, testing, starting, cancelling and freeing them.
 *
 * A request is done once: take() has then kept its result and its status in it, and what remains is
 * to give them to the program. A freed request that is still active stays in a list until it is
 * done.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "message.h"

#define PAUSE_NS 1000000

/* ---------------------------------------------------------------- one */

/* Other errors of this thread may come before the program asks for this one. */
static void keep_result(struct hly_mpi_request *r, int rc)
{
    const char *text = rc ? hly_mpi_last_text(rc) : NULL;
    r->result = r->status.error = rc;
    free(r->why);
    r->why = text ? strdup(text) : NULL;
}

/* Keeps the result of a request whose call has ended. */
static void take(struct hly_mpi_request *r, int code, const halay_envelope_t *came)
{
    r->done = true;
    if (r->is == HLY_MPI_IS_SEND || r->is == HLY_MPI_IS_RECV)
        hly_mpi_status_fill(&r->status, r->comm, came);
    else
        hly_mpi_status_none(&r->status, MPI_ANY_SOURCE);
    if (code && (r->is == HLY_MPI_IS_SEND || r->is == HLY_MPI_IS_RECV))
        keep_result(r, hly_mpi_message_result(r, code, came));
    else if (code)
        keep_result(r, hly_mpi_result(code, r->comm, r->function));
    else
        keep_result(r, r->then ? r->then(r) : MPI_SUCCESS);
}

/* Without a call, as to MPI_PROC_NULL, its status is there already. */
static void take_at_once(struct hly_mpi_request *r)
{
    r->done = true;
    keep_result(r, r->is == HLY_MPI_IS_DONE && r->then ? r->then(r) : MPI_SUCCESS);
}

void hly_mpi_progress(void)
{
    if (hly_mpi_job.context)
        halay_context_progress(hly_mpi_job.context, PAUSE_NS);
}

/* Waits until it is done; of one that is active. */
static void finish(struct hly_mpi_request *r)
{
    halay_envelope_t came = {.size = sizeof(came), .source = -1, .tag = -1};
    if (r->done)
        return;
    if (!r->halay) {
        while (r->is_done && !r->is_done(r))
            hly_mpi_progress();
        take_at_once(r);
        return;
    }
    const int code = halay_message_wait(r->halay, &came);
    if (!(r->persistent && r->is == HLY_MPI_IS_CALL)) /* it is made once, and started again */
        r->halay = NULL;
    take(r, code, &came);
}

bool hly_mpi_request_is_done(struct hly_mpi_request *r)
{
    if (!r->done && (r->halay ? !halay_message_is_done(r->halay) : r->is_done && !r->is_done(r)))
        return false;
    finish(r);
    return true;
}

void hly_mpi_request_drop(struct hly_mpi_request *r)
{
    if (r->halay)
        halay_request_free(r->halay);
    if (r->end)
        r->end(r);
    free(r->kept);
    free(r->why);
    if (r->comm)
        hly_mpi_object_release(r->comm);
    hly_mpi_object_release(r);
}

/* Gives the result of one that is done, and ends it. */
static int give(struct hly_mpi_request **request, struct hly_mpi_status *status)
{
    struct hly_mpi_request *r = *request;
    const int freed_rc = r->given ? r->given(r) : MPI_SUCCESS;
    const int rc = r->result ? hly_mpi_fail_again(r->result, r->why) : freed_rc;
    if (status)
        *status = r->status;
    r->active = r->done = false;
    if (!r->persistent) {
        hly_mpi_request_drop(r);
        *request = NULL;
    }
    return rc;
}

static bool is_active(const struct hly_mpi_request *r)
{
    return r && r->active && !r->freed;
}

int hly_mpi_request_end(struct hly_mpi_request **request, struct hly_mpi_status *status)
{
    if (!is_active(*request)) {
        hly_mpi_status_none(status, MPI_ANY_SOURCE);
        return MPI_SUCCESS;
    }
    finish(*request);
    return give(request, status);
}

int hly_mpi_request_finish(struct hly_mpi_request *request, struct hly_mpi_status *status)
{
    return hly_mpi_request_end(&request, status);
}

/* ---------------------------------------------------------------- freed, and still active */

static struct {
    pthread_mutex_t mutex;
    struct hly_mpi_request **list;
    int n, room;
} freed = {.mutex = PTHREAD_MUTEX_INITIALIZER}; /* an MPI process is one job */

/* Takes one that is done from the list; NULL: none is. */
static struct hly_mpi_request *take_freed(void)
{
    struct hly_mpi_request *r = NULL;
    pthread_mutex_lock(&freed.mutex);
    for (int i = 0; i < freed.n && !r; i++) {
        if (!hly_mpi_request_is_done(freed.list[i]))
            continue;
        r = freed.list[i];
        freed.list[i] = freed.list[--freed.n];
    }
    pthread_mutex_unlock(&freed.mutex);
    return r;
}

/* Functions of the program, which may call MPI, are called without the lock. */
void hly_mpi_requests_reap(void)
{
    struct hly_mpi_request *r;
    while (__atomic_load_n(&freed.n, __ATOMIC_RELAXED) && (r = take_freed())) {
        r->persistent = false;
        give(&r, NULL);
    }
}

/* Only those that end by themselves: nobody completes a generalised one any more, and nobody may
 * ever send to a receive. */
static bool is_awaited(void)
{
    bool some = false;
    pthread_mutex_lock(&freed.mutex);
    for (int i = 0; i < freed.n; i++)
        some = some || (freed.list[i]->halay && freed.list[i]->is != HLY_MPI_IS_RECV);
    pthread_mutex_unlock(&freed.mutex);
    return some;
}

void hly_mpi_requests_leave(void)
{
    while (is_awaited()) {
        hly_mpi_progress();
        hly_mpi_requests_reap();
    }
}

struct hly_mpi_request *hly_mpi_requests_freed(int *at)
{
    return *at < freed.n ? freed.list[(*at)++] : NULL;
}

int hly_mpi_request_free_active(struct hly_mpi_request *r)
{
    int rc = MPI_SUCCESS;
    r->freed = true;
    if (r->is != HLY_MPI_IS_DONE)
        hly_mpi_object_hide(r);
    if (r->given && !r->done)
        r->then = NULL; /* nobody asks for the status */
    pthread_mutex_lock(&freed.mutex);
    if (freed.n == freed.room) {
        const int room = freed.room ? 2 * freed.room : 16;
        struct hly_mpi_request **more =
            realloc(freed.list, (size_t)room * sizeof(struct hly_mpi_request *));
        if (more) {
            freed.list = more;
            freed.room = room;
        }
    }
    if (freed.n < freed.room)
        freed.list[freed.n++] = r;
    else
        rc = hly_mpi_fail(MPI_ERR_NO_MEM, "MPI_Request_free: no memory");
    pthread_mutex_unlock(&freed.mutex);
    hly_mpi_requests_reap();
    return rc;
}

int hly_mpi_request_free(struct hly_mpi_request **request)
{
    struct hly_mpi_request *r = *request;
    if (!r)
        return hly_mpi_fail(MPI_ERR_REQUEST, "MPI_Request_free: the request is MPI_REQUEST_NULL");
    *request = NULL;
    if (r->active)
        return hly_mpi_request_free_active(r);
    hly_mpi_request_drop(r);
    return MPI_SUCCESS;
}

/* ---------------------------------------------------------------- wait and test */

static void progress(uint64_t timeout_ns)
{
    if (hly_mpi_job.context)
        halay_context_progress(hly_mpi_job.context, timeout_ns);
    hly_mpi_requests_reap();
}

int hly_mpi_wait(struct hly_mpi_request **request, struct hly_mpi_status *status)
{
    const int rc = hly_mpi_request_end(request, status);
    hly_mpi_requests_reap();
    return rc;
}

int hly_mpi_test(struct hly_mpi_request **request, int *flag, struct hly_mpi_status *status)
{
    *flag = 1;
    if (!is_active(*request) || hly_mpi_request_is_done(*request))
        return hly_mpi_request_end(request, status);
    progress(0);
    *flag = hly_mpi_request_is_done(*request);
    return *flag ? give(request, status) : MPI_SUCCESS;
}

/* The error of several requests has the text of the first one that failed. */
struct failed {
    int rc;
    char text[MPI_MAX_ERROR_STRING];
};
static void keep_first(struct failed *failed, int64_t i, int rc)
{
    if (!rc || failed->rc)
        return;
    failed->rc = rc;
    snprintf(failed->text, sizeof(failed->text), "request %lld: %.480s", (long long)i,
             hly_mpi_error_text(rc));
}
static int in_status(const struct failed *failed)
{
    if (!failed->rc)
        return MPI_SUCCESS;
    hly_mpi_fail_again(failed->rc, failed->text);
    return hly_mpi_fail_again(MPI_ERR_IN_STATUS, NULL);
}

static int check_array(const char *function, int64_t count,
                       struct hly_mpi_request *const requests[])
{
    if (count < 0)
        return hly_mpi_fail(MPI_ERR_COUNT, "%s: count is %lld: it has to be 0 or more", function,
                            (long long)count);
    if (count && !requests)
        return hly_mpi_fail(MPI_ERR_ARG, "%s: the array of requests is NULL", function);
    return MPI_SUCCESS;
}

/* Waits for all, and ends them. */
static int end_all(int64_t count, struct hly_mpi_request *requests[],
                   struct hly_mpi_status statuses[])
{
    struct failed failed = {0};
    for (int64_t i = 0; i < count; i++) {
        struct hly_mpi_status status;
        const int one = hly_mpi_request_end(&requests[i], &status);
        status.error = one;
        if (statuses)
            statuses[i] = status;
        keep_first(&failed, i, one);
        if (one && count == 1 && !statuses)
            return one;
    }
    return in_status(&failed);
}

int hly_mpi_waitall(int64_t count, struct hly_mpi_request *requests[],
                    struct hly_mpi_status statuses[])
{
    int rc = check_array("MPI_Waitall", count, requests);
    if (rc)
        return rc;
    rc = end_all(count, requests, statuses);
    hly_mpi_requests_reap();
    return rc;
}

static bool all_done(int64_t count, struct hly_mpi_request *const requests[])
{
    bool all = true;
    for (int64_t i = 0; i < count && all; i++)
        all = !is_active(requests[i]) || hly_mpi_request_is_done(requests[i]);
    return all;
}

int hly_mpi_testall(int64_t count, struct hly_mpi_request *requests[], int *flag,
                    struct hly_mpi_status statuses[])
{
    const int wrong = check_array("MPI_Testall", count, requests);
    if (wrong)
        return wrong;
    *flag = all_done(count, requests);
    if (!*flag) {
        progress(0);
        *flag = all_done(count, requests);
    }
    return *flag ? end_all(count, requests, statuses) : MPI_SUCCESS;
}

/* The first that is done; -1: none is; MPI_UNDEFINED: none is active. */
static int first_done(int64_t count, struct hly_mpi_request *const requests[])
{
    int active = 0;
    for (int64_t i = 0; i < count; i++) {
        if (!is_active(requests[i]))
            continue;
        active++;
        if (hly_mpi_request_is_done(requests[i]))
            return (int)i;
    }
    return active ? -1 : MPI_UNDEFINED;
}

static int give_any(struct hly_mpi_request *requests[], int index, int *indx,
                    struct hly_mpi_status *status)
{
    *indx = index;
    if (index >= 0)
        return give(&requests[index], status);
    hly_mpi_status_none(status, MPI_ANY_SOURCE);
    return MPI_SUCCESS;
}

int hly_mpi_waitany(int64_t count, struct hly_mpi_request *requests[], int *indx,
                    struct hly_mpi_status *status)
{
    int index;
    const int wrong = check_array("MPI_Waitany", count, requests);
    if (wrong)
        return wrong;
    while ((index = first_done(count, requests)) == -1)
        progress(PAUSE_NS);
    return give_any(requests, index, indx, status);
}

int hly_mpi_testany(int64_t count, struct hly_mpi_request *requests[], int *indx, int *flag,
                    struct hly_mpi_status *status)
{
    const int wrong = check_array("MPI_Testany", count, requests);
    if (wrong)
        return wrong;
    int index = first_done(count, requests);
    if (index == -1) {
        progress(0);
        index = first_done(count, requests);
    }
    *flag = index != -1;
    if (*flag)
        return give_any(requests, index, indx, status);
    *indx = MPI_UNDEFINED;
    return MPI_SUCCESS;
}

/* Ends those that are done. */
static int give_some(int64_t count, struct hly_mpi_request *requests[], int *outcount,
                     int indices[], struct hly_mpi_status statuses[])
{
    struct failed failed = {0};
    int n = 0, active = 0;
    for (int64_t i = 0; i < count; i++) {
        struct hly_mpi_status status;
        if (!is_active(requests[i]))
            continue;
        active++;
        if (!hly_mpi_request_is_done(requests[i]))
            continue;
        const int one = give(&requests[i], &status);
        status.error = one;
        if (statuses)
            statuses[n] = status;
        indices[n++] = (int)i;
        keep_first(&failed, i, one);
    }
    *outcount = active ? n : MPI_UNDEFINED;
    return in_status(&failed);
}

int hly_mpi_waitsome(int64_t count, struct hly_mpi_request *requests[], int *outcount,
                     int indices[], struct hly_mpi_status statuses[])
{
    const int wrong = check_array("MPI_Waitsome", count, requests);
    if (wrong)
        return wrong;
    while (first_done(count, requests) == -1)
        progress(PAUSE_NS);
    return give_some(count, requests, outcount, indices, statuses);
}

int hly_mpi_testsome(int64_t count, struct hly_mpi_request *requests[], int *outcount,
                     int indices[], struct hly_mpi_status statuses[])
{
    const int wrong = check_array("MPI_Testsome", count, requests);
    if (wrong)
        return wrong;
    progress(0);
    return give_some(count, requests, outcount, indices, statuses);
}

/* ---------------------------------------------------------------- status */

static void look(const struct hly_mpi_request *r, struct hly_mpi_status *status)
{
    if (is_active(r) && status)
        *status = r->status;
    else
        hly_mpi_status_none(status, MPI_ANY_SOURCE);
}

int hly_mpi_request_get_status(struct hly_mpi_request *request, int *flag,
                               struct hly_mpi_status *status)
{
    *flag = all_done(1, &request);
    if (!*flag) {
        progress(0);
        *flag = all_done(1, &request);
    }
    if (*flag)
        look(request, status);
    return MPI_SUCCESS;
}

int hly_mpi_request_get_status_all(int64_t count, struct hly_mpi_request *const requests[],
                                   int *flag, struct hly_mpi_status statuses[])
{
    *flag = all_done(count, requests);
    if (!*flag) {
        progress(0);
        *flag = all_done(count, requests);
    }
    for (int64_t i = 0; *flag && statuses && i < count; i++)
        look(requests[i], &statuses[i]);
    return MPI_SUCCESS;
}

int hly_mpi_request_get_status_any(int64_t count, struct hly_mpi_request *const requests[],
                                   int *indx, int *flag, struct hly_mpi_status *status)
{
    int index = first_done(count, requests);
    if (index == -1) {
        progress(0);
        index = first_done(count, requests);
    }
    *flag = index != -1;
    *indx = index < 0 ? MPI_UNDEFINED : index;
    if (*flag)
        look(index < 0 ? NULL : requests[index], status);
    return MPI_SUCCESS;
}

int hly_mpi_request_get_status_some(int64_t count, struct hly_mpi_request *const requests[],
                                    int *outcount, int indices[], struct hly_mpi_status statuses[])
{
    int n = 0, active = 0;
    progress(0);
    for (int64_t i = 0; i < count; i++) {
        if (!is_active(requests[i]))
            continue;
        active++;
        if (!hly_mpi_request_is_done(requests[i]))
            continue;
        if (statuses)
            look(requests[i], &statuses[n]);
        indices[n++] = (int)i;
    }
    *outcount = active ? n : MPI_UNDEFINED;
    return MPI_SUCCESS;
}

/* ---------------------------------------------------------------- start and cancel */

static int start(const char *function, struct hly_mpi_request *r)
{
    if (!r)
        return hly_mpi_fail(MPI_ERR_REQUEST, "%s: the request is MPI_REQUEST_NULL", function);
    if (!r->persistent)
        return hly_mpi_fail(MPI_ERR_REQUEST,
                            "%s: the request of %s is not persistent: it is started already",
                            function, r->function);
    if (r->active)
        return hly_mpi_fail(MPI_ERR_REQUEST,
                            "%s: the request of %s was started, and not waited for since then",
                            function, r->function);
    const int rc = r->start ? r->start(r) : MPI_SUCCESS;
    r->active = !rc;
    r->done = false;
    return rc;
}

int hly_mpi_start(struct hly_mpi_request **request)
{
    return start("MPI_Start", *request);
}

int hly_mpi_startall(int64_t count, struct hly_mpi_request *requests[])
{
    int rc = check_array("MPI_Startall", count, requests);
    for (int64_t i = 0; i < count && !rc; i++)
        rc = start("MPI_Startall", requests[i]);
    return rc;
}

int hly_mpi_cancel(struct hly_mpi_request **request)
{
    struct hly_mpi_request *r = *request;
    if (!is_active(r))
        return hly_mpi_fail(MPI_ERR_REQUEST, "MPI_Cancel: the request is not active");
    if (r->cancel)
        return r->cancel(r);
    if (r->is == HLY_MPI_IS_RECV && !r->done && r->halay)
        halay_message_cancel(r->halay);
    return MPI_SUCCESS;
}
