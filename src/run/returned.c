/* SPDX-License-Identifier: Apache-2.0 */
/*
 * returned.c - calls that return before they have completed (docs/decisions/streams.md#0066). After
 * each such call the program's stream stops at a gate of the device. When the call has completed,
 * Halay opens the gate. A thread of the context makes progress while there are such calls, and
 * sleeps otherwise. Once a call was captured into a graph, it runs without them, too
 * (docs/decisions/streams.md#0071).
 *
 * Invariant: a call is in the table as long as its gate is shut. Any thread that has the mutex may
 * end completed calls; the end of the context opens the other gates.
 */
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdlib.h>

#include "exec/device_comm.h"
#include "exec/exec.h"
#include "run/returned.h"
#include "run/run.h"

#define CALLS_MOST 32          /* under way, of all communicators */
#define LANDING_NS 1000000000u /* to end calls whose result is there */

struct hly_returned {
    halay_context_t *context;
    pthread_t thread;
    sem_t posted;       /* wakes the thread if it is idle */
    bool idle, closing; /* idle: it waits for `posted`, without the mutex */
    /* graphs may run that wait for other ranks: the thread looks for lost ranks */
    bool watches;
    uint32_t n;
    struct returned_call {
        halay_request_t *request;
        struct hly_device *device;
        uint32_t gate;
    } calls[CALLS_MOST]; /* in the order in which they were made */
};

/* Ends the calls that have completed, and opens their gates. Keeps the first error of each
 * communicator, with its verdict, in `owed`. */
static void settle(struct hly_returned *t)
{
    uint32_t left = 0;
    for (uint32_t i = 0; i < t->n; i++) {
        const struct returned_call c = t->calls[i];
        if (c.request->state != HLY_COMPLETE) {
            t->calls[left++] = c;
            continue;
        }
        halay_comm_t *named = hly_comm_known(c.request->comm);
        c.request->gate.stands = c.request->gate.opens = false;
        if (named->owed)
            hly_request_release(c.request);
        else
            named->owed = hly_end(c.request);
        c.device->ops->gate_open(c.device->handle, c.gate);
    }
    t->n = left;
}

/* ---------------------------------------------------------------- the thread */

static bool has_to_look(void *arg)
{
    struct hly_returned *t = arg;
    settle(t);
    if (t->watches)
        hly_group_steps_watch(t->context);
    return (!t->n && !t->watches) || t->closing;
}

static void *run(void *arg)
{
    halay_context_t *ctx = arg;
    struct hly_returned *t = ctx->returned;
    hly_lock(ctx);
    while (!t->closing) {
        hly_wait_until(ctx, has_to_look, t);
        if (t->closing)
            break;
        t->idle = true;
        hly_unlock(ctx);
        while (sem_wait(&t->posted)) /* interrupted */
            ;
        hly_lock(ctx);
    }
    hly_unlock(ctx);
    return NULL;
}

/* Wakes the thread: there is another call, or the context ends. */
static void call_thread(halay_context_t *ctx)
{
    struct hly_returned *t = ctx->returned;
    if (t->idle)
        sem_post(&t->posted);
    else
        hly_wake_if_asleep(ctx);
    t->idle = false;
}

int hly_returned_start(halay_context_t *ctx)
{
    sigset_t all, old;
    if (ctx->returned)
        return HALAY_OK;
    struct hly_returned *t = calloc(1, sizeof(*t));
    if (!t)
        return HALAY_ENOMEM;
    t->context = ctx;
    sem_init(&t->posted, 0, 0);
    ctx->returned = t;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    const int rc = pthread_create(&t->thread, NULL, run, ctx);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (!rc)
        return HALAY_OK;
    ctx->returned = NULL;
    sem_destroy(&t->posted);
    free(t);
    return HALAY_ENOMEM;
}

void hly_returned_watch(halay_context_t *ctx)
{
    if (hly_returned_start(ctx)) {
        hly_log(ctx, HLY_WARN, "no thread could be made to see, while graphs run, who is lost");
        return;
    }
    if (ctx->returned->watches)
        return;
    ctx->returned->watches = true;
    call_thread(ctx);
}

/* Returns the code of an error that no call has returned to the program yet, not even
 * halay_comm_stream(). */
static int owed(const struct hly_link *comms)
{
    int rc = HALAY_OK;
    for (const struct hly_link *l = comms->next; l != comms && !rc; l = l->next)
        rc = HLY_OF(l, halay_comm_t, link)->owed;
    return rc;
}

struct landing {
    struct hly_returned *returned;
    const halay_comm_t *comm; /* NULL: any */
    uint64_t until_ns;
};

static bool has_landed(void *arg)
{
    const struct landing *l = arg;
    bool any = false;
    settle(l->returned);
    for (uint32_t i = 0; i < l->returned->n; i++) {
        const halay_request_t *r = l->returned->calls[i].request;
        any |= r->gate.opens && (!l->comm || hly_comm_known(r->comm) == l->comm);
    }
    return !any || hly_now_ns() > l->until_ns;
}

void hly_returned_land(halay_context_t *ctx, const halay_comm_t *comm)
{
    struct landing l = {ctx->returned, comm, hly_now_ns() + LANDING_NS};
    if (ctx->returned && !has_landed(&l))
        hly_wait_until(ctx, has_landed, &l);
}

int hly_returned_end(halay_context_t *ctx)
{
    struct hly_returned *t = ctx->returned;
    if (!t)
        return HALAY_OK;
    settle(t);
    for (uint32_t i = 0; i < t->n; i++) {
        t->calls[i].request->gate.stands = t->calls[i].request->gate.opens = false;
        t->calls[i].device->ops->gate_open(t->calls[i].device->handle, t->calls[i].gate);
    }
    t->n = 0;
    t->closing = true;
    call_thread(ctx);
    hly_unlock(ctx);
    pthread_join(t->thread, NULL);
    hly_lock(ctx);
    ctx->returned = NULL;
    sem_destroy(&t->posted);
    free(t);
    const int rc = owed(&ctx->comms);
    return rc ? rc : owed(&ctx->freed_comms);
}

/* ---------------------------------------------------------------- calls */

static bool has_room(void *arg)
{
    const halay_comm_t *comm = arg;
    struct hly_returned *t = comm->context->returned;
    settle(t);
    return t->n < CALLS_MOST && comm->next_sequence - comm->oldest < HLY_WINDOW;
}

/* Waits until the call can start at once, because its mark must precede its gate in the stream. */
void hly_returned_room(halay_comm_t *comm)
{
    if (!has_room(comm))
        hly_wait_until(comm->context, has_room, comm);
}

int hly_returned_add(halay_request_t *r)
{
    halay_context_t *ctx = r->context;
    struct hly_returned *t = ctx->returned;
    halay_comm_t *named = hly_comm_known(r->comm);
    struct hly_device *device = named->follows;
    const unsigned mark = r->run.before & (HLY_BEFORE_MARK | HLY_BEFORE_MARKED);
    uint32_t gate;
    if (t->n == CALLS_MOST || !hly_request_runs(r) || mark == HLY_BEFORE_MARK ||
        device->ops->gate(device->handle, &named->stream, &gate)) {
        hly_wait(r); /* no gate: waits for the call's end here */
        const int rc = hly_end(r);
        return rc ? rc : named->owed;
    }
    t->calls[t->n++] = (struct returned_call){r, device, gate};
    r->gate.stands = true;
    r->gate.number = gate;
    call_thread(ctx);
    return named->owed;
}

static bool is_quiet(void *arg)
{
    const halay_comm_t *comm = arg;
    struct hly_returned *t = comm->context->returned;
    settle(t);
    for (uint32_t i = 0; i < t->n; i++)
        if (hly_comm_known(t->calls[i].request->comm) == comm)
            return false;
    return true;
}

int hly_returned_await(halay_comm_t *comm)
{
    if (comm->context->returned && !is_quiet(comm))
        hly_wait_until(comm->context, is_quiet, comm);
    const int rc = comm->owed;
    comm->owed = 0;
    return rc;
}
