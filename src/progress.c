/* SPDX-License-Identifier: Apache-2.0 */
/*
 * progress.c - who moves things on, and how a waiting thread waits.
 *
 * Any thread that waits makes progress for all of its context, one at a time, under the mutex. It
 * polls for a few microseconds, then yields the processor between polls, and late it sleeps: a
 * sleep costs tens of microseconds to end, a yield less than one, and next to nothing where nobody
 * waits for the processor. A long spin would cost the peer that shares it a whole time slice. Where
 * waits for other nodes have been long lately, as when the processor itself carries their packets,
 * it sleeps sooner.
 *
 * Leader and followers: of the threads that want to sleep one, the watcher, sleeps on the
 * descriptors; the others wait on the condition. The watcher wakes them when it leaves, so that one
 * takes over; whoever completes a request wakes all. All of this is under the mutex, so no wake-up
 * is lost.
 */
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <unistd.h>

#include "core.h"
#include "straight.h"

#if __has_include(<sys/single_threaded.h>)
#include <sys/single_threaded.h>
#define is_single() (__libc_single_threaded)
#else
#define is_single() false
#endif

#define POLLS_BETWEEN_CLOCKS 64
#define TIMER_NS             1000000ull /* deadlines are looked at this often */
#define SPINS                100        /* polls without yielding: a few microseconds */
#define SPINS_CROWDED        2          /* with more ranks than processors */
#define YIELD_NS             2000000ull /* without sleeping */
#define LONG_NS              250000ull  /* a wait to which the end of a sleep adds little */
#define HASTE_MOST           5          /* YIELD_NS / 32 is more than a sleep costs */
#define POLLS_IN_HASTE       16         /* between two looks at the clock while nothing comes */
#define SLEEP_NS             1000000000ull
#define SLEEP_CONNECTING_NS  1000000ull /* ways that come about are looked after by polling */

void hly_lock(halay_context_t *context)
{
    if (is_single()) { /* the C library then does without an atomic operation; not so in trylock */
        pthread_mutex_lock(&context->mutex);
        return;
    }
    if (pthread_mutex_trylock(&context->mutex) == 0)
        return;
    atomic_fetch_add_explicit(&context->want, 1, memory_order_relaxed);
    pthread_mutex_lock(&context->mutex);
    atomic_fetch_sub_explicit(&context->want, 1, memory_order_relaxed);
}

void hly_unlock(halay_context_t *context)
{
    pthread_mutex_unlock(&context->mutex);
}

int hly_device_poll(halay_context_t *context)
{
    uint64_t cookies[16];
    int n = context->device_ops->poll(context->device, cookies, 16);
    for (int i = 0; i < n; i++) {
        struct hly_out *out = (struct hly_out *)(uintptr_t)cookies[i];
        context->device_flying--;
        out->flying = 0;
        hly_out_complete(context, out, HALAY_OK);
    }
    if (n <= 0)
        return 0;
    struct hly_link *next; /* steps that found the device full */
    for (struct hly_link *l = context->requests.next; l != &context->requests; l = next) {
        halay_request_t *r = HLY_OF(l, halay_request_t, link);
        next = l->next;
        if (r->state == HLY_RUNNING)
            hly_engine_run(r);
    }
    return n;
}

static void look_at_clock(halay_context_t *context)
{
    context->polls = 0;
    context->now_ns = hly_now_ns();
    if (context->now_ns < context->timer_ns)
        return;
    context->timer_ns = context->now_ns + TIMER_NS;
    hly_fault_timers(context);
}

static void wake_watcher(halay_context_t *context)
{
    uint64_t one = 1;
    if (context->watcher && write(context->wake_fd, &one, sizeof(one)) < 0 && errno != EAGAIN)
        hly_log(context, HLY_ERROR, "a sleeping thread could not be woken");
}

int hly_progress(halay_context_t *context)
{
    if (context->watcher && !context->kicked) {
        context->kicked = true;
        wake_watcher(context);
    }
    int n = hly_channel_poll(context);
    if (context->device_flying)
        n += hly_device_poll(context);
    if (++context->polls >= POLLS_BETWEEN_CLOCKS || !context->timer_ns)
        look_at_clock(context);
    return n;
}

void hly_wake(halay_context_t *context)
{
    context->roused = true;
    if (context->followers)
        pthread_cond_broadcast(&context->cond);
    wake_watcher(context);
}

static void follow(halay_context_t *context, uint64_t timeout_ns)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    uint64_t ns = (uint64_t)until.tv_nsec + timeout_ns;
    until.tv_sec += (time_t)(ns / 1000000000ull);
    until.tv_nsec = (long)(ns % 1000000000ull);
    context->followers++;
    pthread_cond_timedwait(&context->cond, &context->mutex, &until);
    context->followers--;
}

/* Has it slept until what it watches has something, or is there something already? */
static bool watch_once(halay_context_t *context, uint64_t timeout_ns)
{
    struct pollfd fds[1 + HLY_WAYS] = {{.fd = context->wake_fd, .events = POLLIN}};
    nfds_t nfds = 1;
    for (int w = 0; w < context->nways; w++) {
        const struct hly_way *way = &context->ways[w];
        if (!(way->attr.capabilities & HALAY_CAN_SLEEP))
            continue;
        if (way->ops->arm(way->transport, &fds[nfds].fd))
            return true;
        fds[nfds++].events = POLLIN;
    }
    context->watcher = true;
    context->kicked = context->roused = false;
    context->counters.sleeps++;
    hly_unlock(context);
    struct timespec ts = {(time_t)(timeout_ns / 1000000000ull), (long)(timeout_ns % 1000000000ull)};
    int ready = ppoll(fds, nfds, &ts, NULL);
    hly_lock(context);
    context->watcher = false;
    uint64_t drain;
    while (read(context->wake_fd, &drain, sizeof(drain)) > 0)
        ;
    return ready != 1 || !fds[0].revents;
}

/* Must something be looked after by polling soon? Then no long sleep. */
static uint64_t longest_sleep(const halay_context_t *context)
{
    uint64_t most = SLEEP_NS;
    if (!hly_link_empty(&context->busy_peers) || context->device_flying)
        return SLEEP_CONNECTING_NS;
    for (int w = 0; w < context->nways; w++)
        if (!(context->ways[w].attr.capabilities & HALAY_CAN_SLEEP))
            return SLEEP_CONNECTING_NS;
    for (struct hly_link *l = context->requests.next; l != &context->requests; l = l->next) {
        const halay_request_t *r = HLY_OF(l, halay_request_t, link);
        if (r->state == HLY_FAILING)
            return SLEEP_CONNECTING_NS;
        uint64_t now = context->now_ns, left = r->deadline_ns > now ? r->deadline_ns - now : 1;
        if (left < most)
            most = left;
    }
    return most;
}

/*
 * A thread that only polled before its own sleep may have taken in what was armed, and no more: the
 * watcher arms anew and sleeps on. Would it go back to its caller, who polls, the next watcher
 * would be kicked in turn, and so on for ever.
 */
static void watch(halay_context_t *context, uint64_t timeout_ns)
{
    uint64_t end_ns = hly_now_ns() + timeout_ns;
    while (!watch_once(context, timeout_ns) && context->kicked && !context->roused &&
           !context->pollers) {
        look_at_clock(context);
        if (context->roused || context->now_ns >= end_ns) /* a deadline has passed: say so */
            break;
        uint64_t most = longest_sleep(context);
        timeout_ns = end_ns - context->now_ns < most ? end_ns - context->now_ns : most;
    }
    if (context->followers)
        pthread_cond_broadcast(&context->cond);
}

void hly_sleep(halay_context_t *context, uint64_t timeout_ns)
{
    uint64_t most = longest_sleep(context);
    if (timeout_ns > most)
        timeout_ns = most;
    if (context->watcher || context->pollers)
        follow(context, timeout_ns);
    else
        watch(context, timeout_ns);
    look_at_clock(context);
}

static void stop_polling(halay_context_t *context)
{
    if (--context->pollers == 0 && context->followers)
        pthread_cond_broadcast(&context->cond); /* one of them watches now */
}

bool hly_crowded(const halay_context_t *context)
{
    return context->info.local_nranks > context->ncpus;
}

uint32_t hly_spins(const halay_context_t *context)
{
    return hly_crowded(context) ? SPINS_CROWDED : SPINS;
}

/*
 * Something has come, after a wait that the clock was looked at for. Waits grow shorter only where
 * an adapter moves the data by itself; over a kernel's sockets, polling is what takes them in.
 */
static void learn(halay_context_t *context, uint64_t waited_ns)
{
    if (context->info.local_nranks == context->info.nranks ||
        !(context->ways[context->nways - 1].attr.capabilities & HALAY_CAN_PUT))
        return;
    if (waited_ns > LONG_NS)
        context->haste += context->haste < HASTE_MOST;
    else if (waited_ns > YIELD_NS >> context->haste)
        context->haste--;
}

void hly_wait(halay_request_t *r)
{
    halay_context_t *ctx = r->context;
    uint32_t spins = hly_spins(ctx);
    uint64_t idle_since = 0;
    uint32_t idle = 0;
    ctx->pollers++;
    while (r->state != HLY_COMPLETE) {
        if (hly_progress(ctx) > 0) {
            if (idle_since)
                learn(ctx, hly_now_ns() - idle_since);
            idle = 0;
            idle_since = 0;
            continue;
        }
        idle++;
        if (idle > spins || atomic_load_explicit(&ctx->want, memory_order_relaxed) > 0) {
            hly_unlock(ctx);
            sched_yield();
            hly_lock(ctx);
        }
        if (idle % (ctx->haste ? POLLS_IN_HASTE : POLLS_BETWEEN_CLOCKS))
            continue;
        uint64_t now = hly_now_ns();
        if (!idle_since)
            idle_since = now;
        if (now - idle_since > YIELD_NS >> ctx->haste) {
            hly_series_doubt(r);
            stop_polling(ctx);
            hly_sleep(ctx, SLEEP_NS);
            ctx->pollers++;
        }
    }
    stop_polling(ctx);
}
