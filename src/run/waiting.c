/* SPDX-License-Identifier: Apache-2.0 */
/*
 * waiting.c - waiting and sleeping. docs/threads.md. A wait polls for a while before it yields its
 * processor: docs/decisions/waiting.md#0050.
 *
 * Leader and followers: of the threads that want to sleep, the leader sleeps on the descriptors,
 * and the others on a condition. When the leader returns it wakes them, and one becomes the leader.
 * The thread that completes a request wakes all. All of this is under the mutex, so no wake-up is
 * lost.
 */
#include <poll.h>
#include <sched.h>
#include <unistd.h>

#include "../../common/thread.h"
#include "exec/exec.h"
#include "exec/record.h"
#include "fault/fault.h"
#include "fault/stall.h"
#include "halay/local.h"
#include "run/run.h"
#include "run/take.h"
#include "wire/match.h"

#define POLLS_OF_ONE          16  /* a round: polls of the expected message's transport */
#define POLLS_SHARED          2   /* a round, where ranks of this job share the processor */
#define ROUNDS_MATE           150 /* for each such rank on this processor: a context switch */
#define ROUNDS_OF_ONE         4   /* between two polls of all transports */
#define ROUNDS_BETWEEN_CLOCKS 8   /* while nothing comes; a power of two, as the next one */
#define ROUNDS_IN_BACKOFF     2
#define BACKOFF_MOST          5          /* polls for 1/32 of POLL_NS, or longer */
#define POLL_NS               2000000ull /* a wait polls for so long before it sleeps */
#define POLL_NODES_NS         100000ull  /* the same, in a job of several nodes */
#define SWITCH_NS             1000ull    /* a yield that takes longer has let another run */
#define YIELDED_NS            500000ull  /* a longer yield: to another job's process, */
#define YIELDED_MOST          4          /* if so many are: a rank of this job may compute once */
#define ALONE_NS              1000000ull /* from a useless yield to the next one; doubles */
#define ALONE_MOST_NS         1000000000ull
#define LONG_NS               250000ull /* so long a wait that waking up adds little */
#define SLEEP_NS              1000000000ull
#define ASK_NS                100000000ull /* between two calls of the program's ask() */
#define SLEEP_POLLED_NS       50000ull     /* group steps and marks are polled */
#define SLEEP_CONNECTING_NS   1000000ull   /* connections that are being made are polled */

/* ---------------------------------------------------------------- sleeping */

static void follow(halay_context_t *context, uint64_t timeout_ns)
{
    context->waiters.followers++;
    hly_mutex_sleep(&context->mutex, timeout_ns);
    context->waiters.followers--;
}

/* Collects the descriptors of all transports and devices that may have events. False: one has an
 * event already. */
static bool arm_all(halay_context_t *context, struct pollfd fds[], nfds_t *nfds)
{
    for (int w = 0; w < context->ntransports; w++) {
        const struct hly_transport *transport = &context->transports[w];
        if (!(transport->attr.capabilities & HALAY_CAN_SLEEP))
            continue;
        if (transport->ops->arm(transport->handle, &fds[*nfds].fd))
            return false;
        fds[(*nfds)++].events = POLLIN;
    }
    for (int i = 0; i < context->ndevices; i++) {
        const struct hly_device *device = &context->devices[i];
        if (!device->works || !device->sleeps)
            continue;
        if (device->ops->arm(device->handle, &fds[*nfds].fd))
            return false;
        fds[(*nfds)++].events = POLLIN;
    }
    return true;
}

/* Sleeps once. True: a descriptor is readable, or there was an event already. */
static bool lead_once(halay_context_t *context, uint64_t timeout_ns)
{
    struct pollfd fds[1 + HLY_TRANSPORTS + HLY_DEVICES] = {
        {.fd = context->waiters.wake_fd, .events = POLLIN}};
    nfds_t nfds = 1;
    if (!arm_all(context, fds, &nfds))
        return true;
    context->waiters.leader = true;
    context->waiters.rearm = context->waiters.called = false;
    context->counters.sleeps++;
    hly_unlock(context);
    struct timespec ts = {(time_t)(timeout_ns / 1000000000ull), (long)(timeout_ns % 1000000000ull)};
    int ready = ppoll(fds, nfds, &ts, NULL);
    hly_lock(context);
    context->waiters.leader = false;
    uint64_t drain;
    while (read(context->waiters.wake_fd, &drain, sizeof(drain)) > 0)
        ;
    for (nfds_t i = 0; ready > 0 && i < nfds; i++)
        if (fds[i].revents & POLLNVAL)
            hly_wire_failed(context, NULL, HALAY_ESTATE);
    return ready != 1 || !fds[0].revents;
}

/* True if a device works that has no descriptor. */
static bool must_poll_device(const halay_context_t *context)
{
    bool any = false;
    for (int i = 0; i < context->ndevices; i++)
        any |= context->devices[i].works > 0 && !context->devices[i].sleeps;
    return any;
}

/* How long a thread may sleep: not long while there is something that only polling notices. */
static uint64_t longest_sleep(const halay_context_t *context)
{
    uint64_t most = SLEEP_NS;
    for (int i = 0; i < context->ndevices; i++)
        if (context->devices[i].group_steps || context->devices[i].marks) /* no descriptors */
            return SLEEP_POLLED_NS;
    if (!hly_link_empty(&context->busy_peers) || context->survivors || must_poll_device(context))
        return SLEEP_CONNECTING_NS;
    for (int w = 0; w < context->ntransports; w++)
        if (!(context->transports[w].attr.capabilities & HALAY_CAN_SLEEP))
            return SLEEP_CONNECTING_NS;
    if (!hly_link_empty(&context->messages))
        most = most < HLY_STALL_LOOK_NS ? most : HLY_STALL_LOOK_NS;
    for (struct hly_link *l = context->requests.next; l != &context->requests; l = l->next) {
        const halay_request_t *r = HLY_OF(l, halay_request_t, link);
        if (r->state == HLY_FAILING)
            return SLEEP_CONNECTING_NS;
        most = most < HLY_STALL_LOOK_NS ? most : HLY_STALL_LOOK_NS;
        uint64_t now = context->now_ns, left = r->deadline_ns > now ? r->deadline_ns - now : 1;
        if (left < most)
            most = left;
    }
    return most;
}

/*
 * Another thread may have polled while this one slept, and taken in what the descriptors were armed
 * for. Then the leader arms them anew and sleeps on. If it returned instead, its caller would poll,
 * the next leader would have to arm anew, and so on for ever.
 */
static void lead(halay_context_t *context, uint64_t timeout_ns)
{
    uint64_t end_ns = hly_now_ns() + timeout_ns;
    while (!lead_once(context, timeout_ns) && context->waiters.rearm && !context->waiters.called &&
           !context->waiters.pollers) {
        hly_look_at_clock(context);
        if (context->waiters.called || context->now_ns >= end_ns) /* a deadline has passed */
            break;
        uint64_t most = longest_sleep(context);
        timeout_ns = end_ns - context->now_ns < most ? end_ns - context->now_ns : most;
    }
    if (context->waiters.followers)
        hly_mutex_call(&context->mutex);
}

void hly_sleep(halay_context_t *context, uint64_t timeout_ns)
{
    uint64_t most = longest_sleep(context);
    if (timeout_ns > most)
        timeout_ns = most;
    halay_record_stack_t *stack = hly_record_sleep(context);
    if (context->waiters.leader || context->waiters.pollers)
        follow(context, timeout_ns);
    else
        lead(context, timeout_ns);
    hly_record_woken(context, stack);
    hly_look_at_clock(context);
}

void hly_wait_once(halay_context_t *context)
{
    if (hly_progress(context) == 0)
        hly_sleep(context, 1000000);
}

static void stop_polling(halay_context_t *context)
{
    if (--context->waiters.pollers == 0 && context->waiters.followers)
        hly_mutex_call(&context->mutex); /* a sleeping thread becomes the leader */
}

/* Do ranks of this job share this processor? Halay knows it if a node has more ranks than
 * processors. If several nodes are one machine, yield() finds out. */
static bool is_shared(const halay_context_t *context)
{
    return context->info.local_nranks > context->ncpus || context->waiters.yields;
}

/* How long a wait polls before it sleeps. */
static uint64_t polling_ns(const halay_context_t *context, bool shares)
{
    return (shares || context->info.nnodes == 1 ? POLL_NS : POLL_NODES_NS) >>
           context->waiters.backoff;
}

/*
 * A message has come after a long wait: adapts how soon waits sleep. They sleep sooner only where
 * an adapter moves the data by itself; over sockets, polling is what takes the data in.
 */
__attribute__((noinline)) static void learn(halay_context_t *context, uint64_t waited_ns,
                                            bool shares)
{
    if (context->info.local_nranks == context->info.nranks ||
        !(context->transports[context->ntransports - 1].attr.capabilities & HALAY_CAN_PUT))
        return;
    if (waited_ns > LONG_NS)
        context->waiters.backoff += context->waiters.backoff < BACKOFF_MOST;
    else if (waited_ns > polling_ns(context, shares) && context->waiters.backoff > 0)
        context->waiters.backoff--;
}

/*
 * Polls the transport of the expected message, `polls` times, if nothing else needs polling. 1: an
 * event came; 0: none did; -1: no message is expected. waited: the wait is long already.
 */
static inline int poll_expected(halay_request_t *r, uint32_t polls, bool waited)
{
    halay_context_t *ctx = r->context;
    if (r->expected.step == HALAY_STEP_NONE || r->state != HLY_RUNNING || ctx->lost ||
        !hly_link_empty(&ctx->busy_peers) || ctx->waiters.leader)
        return -1;
    const struct hly_transport *transport = r->expected.transport;
    halay_transport_t *const handle = transport->handle;
    const halay_transport_ops_t *const ops = transport->ops;
    halay_event_t event;
    for (uint32_t i = 0; i < polls; i++) {
        const int n = ops->poll(handle, &event, 1);
        if (n) {
            if (waited)
                ctx->now_ns = hly_about_now_ns();
            if (n > 0)
                hly_take(ctx, transport, hly_expected_came(&r->expected, &event) ? r : NULL,
                         &event);
            else
                hly_wire_failed(ctx, transport, n);
            return 1;
        }
        if (hly_mutex_is_wanted(&ctx->mutex))
            break;
    }
    return 0;
}

/* How a thread waits: docs/decisions/waiting.md#0050. */
struct wait {
    uint32_t rounds; /* without an event */
    uint32_t most;   /* rounds before a yield */
    uint64_t since_ns;
    uint64_t ask_ns;          /* when to call the program's ask() next; 0: not known yet */
    struct hly_waited waited; /* of which number is set; all else once the wait has taken long */
};

/*
 * How many rounds to poll before this rank yields to the ranks that share its processor (mates). 0
 * if a mate has yet to send what this call waits for. Otherwise a mate would run without use: polls
 * for as long as it takes to switch through all mates. Halay knows the mates if halayrun has bound
 * the ranks to processors.
 */
static uint32_t most_rounds(const halay_request_t *r)
{
    const halay_context_t *ctx = r->context;
    const struct hly_plan *p = r->plan;
    if (!ctx->dealt || ctx->info.nnodes > 1 || r->state != HLY_RUNNING || !p)
        return 0;
    const int mates = ctx->info.nranks / ctx->dealt - 1;
    int heard = 0;
    for (uint32_t i = 0; i < p->nsteps; i++) {
        if (hly_step(r, i)->kind != HALAY_STEP_RECV ||
            (p->peers[i]->world_rank - ctx->info.rank) % ctx->dealt)
            continue;
        if (r->run.state[i] != HLY_DONE)
            return 0;
        heard++;
    }
    return heard >= mates ? ROUNDS_MATE * (uint32_t)mates : 0;
}

/*
 * Yields the processor. In a job of several nodes, which may be one machine, it finds out who gets
 * it; unless another thread of this context takes the mutex meanwhile. A rank of this job polls, so
 * it yields in turn soon. A process of another job keeps the processor for a time slice; then this
 * rank yields less and less often.
 */
static void yield(halay_context_t *ctx)
{
    struct hly_waiters *w = &ctx->waiters;
    const bool learns = ctx->info.nnodes > 1 && !hly_mutex_is_wanted(&ctx->mutex);
    const uint64_t before = learns ? hly_now_ns() : 0;
    hly_unlock(ctx);
    sched_yield();
    hly_lock(ctx);
    if (!learns)
        return;
    const uint64_t now = hly_now_ns(), took = now - before;
    if (took > YIELDED_NS && w->yields > 1) {
        w->yields--;
    } else if (took > YIELDED_NS || (!w->yields && took < SWITCH_NS)) {
        w->yields = 0;
        w->retry_ns = w->retry_ns ? 2 * w->retry_ns : ALONE_NS;
        w->retry_ns = w->retry_ns < ALONE_MOST_NS ? w->retry_ns : ALONE_MOST_NS;
        w->try_ns = now + w->retry_ns;
    } else if (took >= SWITCH_NS) {
        w->retry_ns >>= !w->yields;
        w->yields = YIELDED_MOST;
    }
}

/* When a wait calls the program's ask() next. UINT64_MAX: never. */
static uint64_t ask_from(const halay_context_t *ctx, uint64_t now)
{
    return ctx->waiters.ask && hly_thread_id() == (int32_t)getpid() ? now + ASK_NS : UINT64_MAX;
}

static bool ask_program(halay_context_t *ctx)
{
    int (*const ask)(void *arg) = ctx->waiters.ask;
    void *const arg = ctx->waiters.ask_arg;
    if (!ask || hly_thread_id() != (int32_t)getpid())
        return false;
    hly_unlock(ctx);
    const bool interrupted = ask(arg) != 0;
    hly_lock(ctx);
    if (interrupted) {
        ctx->waiters.reported &= hly_interrupted(ctx);
        ctx->waiters.interrupted_ns = hly_now_ns();
    }
    return interrupted;
}

/* Calls the program's ask() when it is due. If ask() wants the wait to end, revokes the
 * communicator: all calls on it end, on all ranks. */
static void ask(halay_request_t *r, struct wait *w, uint64_t now)
{
    if (w->ask_ns && now >= w->ask_ns && ask_program(r->context) && r->state != HLY_COMPLETE)
        hly_fault_revoke(hly_comm_known(r->comm));
    if (!w->ask_ns || now >= w->ask_ns)
        w->ask_ns = ask_from(r->context, now);
}

/*
 * A round of polls found nothing. Yields to ranks of this job that share the processor, or to
 * another thread of this context. Once the wait has taken long, sleeps.
 */
__attribute__((noinline)) static void idle(halay_request_t *r, struct wait *w, bool shares)
{
    halay_context_t *ctx = r->context;
    if (shares && !w->rounds)
        w->most = most_rounds(r);
    if ((shares && w->rounds >= w->most) || hly_mutex_is_wanted(&ctx->mutex))
        yield(ctx);
    const uint32_t between = ctx->waiters.backoff ? ROUNDS_IN_BACKOFF : ROUNDS_BETWEEN_CLOCKS;
    if (++w->rounds & (between - 1))
        return;
    const uint64_t now = hly_now_ns();
    if (!w->since_ns)
        w->since_ns = now;
    if (now - w->since_ns <= polling_ns(ctx, shares))
        return;
    if (!shares && ctx->info.nnodes > 1 && now >= ctx->waiters.try_ns) {
        yield(ctx);
        if (ctx->waiters.yields)
            return;
    }
    if (r->state == HLY_COMPLETE) /* by another thread, while this one had released the mutex */
        return;
    stop_polling(ctx);
    if (!w->waited.number) {
        w->waited.request = r;
        hly_waited_begin(ctx, &w->waited);
    }
    ask(r, w, now);
    if (r->state != HLY_COMPLETE)
        hly_sleep(ctx, w->ask_ns == UINT64_MAX ? SLEEP_NS : w->ask_ns - now);
    ctx->waiters.pollers++;
}

void hly_wait(halay_request_t *r)
{
    halay_context_t *ctx = r->context;
    const bool shares = is_shared(ctx);
    const uint32_t round = shares ? POLLS_SHARED : POLLS_OF_ONE;
    struct wait w;
    w.rounds = w.waited.number = 0;
    w.since_ns = w.ask_ns = 0;
    ctx->waiters.pollers++;
    while (r->state != HLY_COMPLETE) {
        int n = poll_expected(r, round, w.since_ns != 0);
        if (n < 0 || (n == 0 && w.rounds % ROUNDS_OF_ONE == ROUNDS_OF_ONE - 1))
            n = hly_progress(ctx);
        if (n == 0) {
            idle(r, &w, shares);
            continue;
        }
        if (w.since_ns)
            learn(ctx, hly_now_ns() - w.since_ns, shares);
        w.rounds = 0;
        w.since_ns = 0;
    }
    stop_polling(ctx);
    if (w.waited.number)
        hly_waited_end(ctx, &w.waited);
    if (++ctx->polls >= HLY_POLLS_BETWEEN_CLOCKS)
        hly_progress(ctx); /* all transports, and the clock */
}

void hly_wait_until(halay_context_t *ctx, bool (*over)(void *arg), void *arg)
{
    const bool shares = is_shared(ctx);
    uint64_t since_ns = 0;
    uint32_t rounds = 0;
    ctx->waiters.pollers++;
    while (!over(arg)) {
        const int n = hly_progress(ctx);
        if ((!n && shares) || hly_mutex_is_wanted(&ctx->mutex))
            yield(ctx);
        rounds = n ? 0 : rounds + 1;
        since_ns = n ? 0 : since_ns;
        if (!rounds || rounds & (ROUNDS_BETWEEN_CLOCKS - 1))
            continue;
        const uint64_t now = hly_now_ns();
        since_ns = since_ns ? since_ns : now;
        if (now - since_ns <= polling_ns(ctx, shares) || over(arg))
            continue;
        stop_polling(ctx);
        hly_sleep(ctx, SLEEP_NS);
        ctx->waiters.pollers++;
    }
    stop_polling(ctx);
}

/* ---------------------------------------------------------------- waits that are interrupted */

int halay_local_on_wait(halay_context_t *context, int (*fn)(void *arg), void *arg)
{
    const int rc = hly_context_enter(context);
    if (rc)
        return rc;
    context->waiters.ask = fn;
    context->waiters.ask_arg = arg;
    hly_unlock(context);
    return HALAY_OK;
}

int halay_local_on_name(halay_context_t *context, const char *(*name)(void), int one_at_a_time)
{
    const int rc = hly_context_enter(context);
    if (rc)
        return rc;
    context->waiters.name = name;
    context->waiters.one_at_a_time = one_at_a_time != 0;
    hly_unlock(context);
    return HALAY_OK;
}

int halay_local_ask(halay_context_t *context)
{
    int rc = hly_context_enter(context);
    if (rc)
        return rc;
    rc = ask_program(context);
    hly_unlock(context);
    return rc;
}
