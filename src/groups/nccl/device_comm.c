/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device_comm.c - how a device communicator is made and ended. NCCL's calls that end one may wait
 * for its kernels and threads, so a thread of their own makes them. If it does not come back in
 * time it is left behind: then the device communicator is lost, and what it has stays.
 */
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "groups/nccl/inside.h"

#define PAUSE_NS 50000
#define LOOKS    20 /* at least, whether a communicator has ended: the thread may come late */

int hly_nccl_enter(struct halay_circle *c)
{
    const struct hly_cuda_driver *d = &c->nccl->driver;
    void *was;
    int rc = d->cuCtxPushCurrent_v2(c->context);
    if (rc)
        return hly_nccl_cuda_failed(c->nccl, "cuCtxPushCurrent", rc);
    c->capture_mode = HLY_CU_CAPTURE_RELAXED;
    rc = d->cuThreadExchangeStreamCaptureMode(&c->capture_mode);
    if (!rc)
        return HALAY_OK;
    d->cuCtxPopCurrent_v2(&was);
    return hly_nccl_cuda_failed(c->nccl, "cuThreadExchangeStreamCaptureMode", rc);
}

void hly_nccl_leave(struct halay_circle *c)
{
    void *was;
    c->nccl->driver.cuThreadExchangeStreamCaptureMode(&c->capture_mode);
    c->nccl->driver.cuCtxPopCurrent_v2(&was);
}

static int find_device(struct hly_nccl *nccl, int *device)
{
    const struct hly_cuda_driver *d = &nccl->driver;
    int rc = d->cuInit(0);
    if (!rc && nccl->ordinal < 0)
        rc = d->cuCtxGetDevice(&nccl->ordinal);
    if (!rc)
        rc = d->cuDeviceGet(device, nccl->ordinal);
    return rc ? hly_nccl_cuda_failed(nccl, "cuInit, cuCtxGetDevice or cuDeviceGet", rc) : HALAY_OK;
}

int hly_nccl_dcomm_make(struct hly_nccl *nccl, struct halay_circle **dcomm)
{
    const struct hly_cuda_driver *d = &nccl->driver;
    struct halay_circle *c = calloc(1, sizeof(*c));
    if (!c)
        return HALAY_ENOMEM;
    c->nccl = nccl;
    int rc = find_device(nccl, &c->device);
    if (rc)
        goto free_dcomm;
    rc = d->cuDevicePrimaryCtxRetain(&c->context, c->device);
    if (rc) {
        rc = hly_nccl_cuda_failed(nccl, "cuDevicePrimaryCtxRetain", rc);
        c->context = NULL;
        goto free_dcomm;
    }
    rc = hly_nccl_enter(c);
    if (rc)
        goto free_dcomm;
    rc = d->cuStreamCreate(&c->stream, HLY_CU_NON_BLOCKING);
    for (int i = 0; !rc && i < HLY_NCCL_FLIGHTS; i++)
        rc = d->cuEventCreate(&c->events[i], HLY_CU_DISABLE_TIMING);
    if (rc)
        rc = hly_nccl_cuda_failed(nccl, "cuStreamCreate or cuEventCreate", rc);
    hly_nccl_leave(c);
    if (rc)
        goto free_dcomm;
    *dcomm = c;
    return HALAY_OK;

free_dcomm:
    hly_nccl_dcomm_free(c);
    return rc;
}

void hly_nccl_dcomm_free(struct halay_circle *c)
{
    if (!c || c->lost) /* what still runs may use it */
        return;
    const struct hly_cuda_driver *d = &c->nccl->driver;
    if (c->context && !hly_nccl_enter(c)) {
        for (int i = 0; i < HLY_NCCL_FLIGHTS; i++)
            if (c->events[i])
                d->cuEventDestroy_v2(c->events[i]);
        if (c->stream)
            d->cuStreamDestroy_v2(c->stream);
        hly_nccl_leave(c);
    }
    if (c->context)
        d->cuDevicePrimaryCtxRelease_v2(c->device);
    free(c);
}

/* ------------------------------------------------------------------ the end */

/* What the thread needs, with calls of its own: nobody may be there any more when it ends. */
struct hly_nccl_ending {
    int (*finalize)(void *), (*destroy)(void *), (*abort)(void *), (*error)(void *, int *);
    int (*push)(void *), (*pop)(void **), (*query)(void *), (*mode)(int *);
    void *comm, *context, *stream;
    uint64_t until_ns, quiet_ns; /* to finalize; for the stream to end */
    bool aborts, gave_up;        /* gave_up: it was to be finalized, and did not end */
    int status;                  /* HALAY_OK: nothing runs any more */
};

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void pause_shortly(void)
{
    nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
}

static bool finalizes(const struct hly_nccl_ending *e)
{
    int result = e->finalize(e->comm);
    const bool ends = !result || result == HLY_NCCL_IN_PROGRESS;
    for (int i = 0; ends && (i < LOOKS || now_ns() < e->until_ns); i++) {
        const int rc = e->error(e->comm, &result);
        if (rc || result != HLY_NCCL_IN_PROGRESS)
            return !rc && !result;
        pause_shortly();
    }
    return false;
}

static void *end_run(void *arg)
{
    struct hly_nccl_ending *e = arg;
    void *was;
    int mode = HLY_CU_CAPTURE_RELAXED;
    if (e->push(e->context))
        return NULL;
    e->mode(&mode); /* the thread is ours, and ends */
    e->gave_up = !e->aborts && !finalizes(e);
    if (!e->aborts && !e->gave_up)
        e->destroy(e->comm);
    else
        e->abort(e->comm);
    int rc = e->query(e->stream);
    for (; rc == HLY_CU_NOT_READY && now_ns() < e->quiet_ns; rc = e->query(e->stream))
        pause_shortly();
    e->status = rc == HLY_CU_NOT_READY ? HALAY_EDEVICE : HALAY_OK; /* of a broken one: it is over */
    e->pop(&was);
    return NULL;
}

int hly_nccl_dcomm_end(struct halay_circle *c, bool abort, uint64_t timeout_ns)
{
    const struct hly_nccl_library *l = &c->nccl->library;
    const struct hly_cuda_driver *d = &c->nccl->driver;
    struct hly_nccl_ending *e = calloc(1, sizeof(*e));
    struct timespec until;
    pthread_t thread;
    if (c->ended || !c->comm) {
        free(e);
        return c->lost ? HALAY_EDEVICE : HALAY_OK;
    }
    c->ended = c->lost = true;
    if (!e)
        return HALAY_EDEVICE;
    *e = (struct hly_nccl_ending){l->ncclCommFinalize,
                                  l->ncclCommDestroy,
                                  l->ncclCommAbort,
                                  l->ncclCommGetAsyncError,
                                  d->cuCtxPushCurrent_v2,
                                  d->cuCtxPopCurrent_v2,
                                  d->cuStreamQuery,
                                  d->cuThreadExchangeStreamCaptureMode,
                                  c->comm,
                                  c->context,
                                  c->stream,
                                  now_ns() + timeout_ns / 2,
                                  now_ns() + timeout_ns / 8 * 7,
                                  abort,
                                  false,
                                  HALAY_EDEVICE};
    if (pthread_create(&thread, NULL, end_run, e)) {
        free(e);
        return HALAY_EDEVICE;
    }
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += (time_t)(timeout_ns / 1000000000u);
    until.tv_nsec += (long)(timeout_ns % 1000000000u);
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    if (pthread_timedjoin_np(thread, NULL, &until)) {
        pthread_detach(thread);
        c->ending = e; /* which the thread uses, and which stays */
        return HALAY_EDEVICE;
    }
    c->lost = e->status != HALAY_OK;
    const bool well = !c->lost && !e->gave_up;
    free(e);
    return well ? HALAY_OK : HALAY_EDEVICE;
}
