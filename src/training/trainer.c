/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trainer.c - the trainer's life, its thread, and waiting.
 *
 * All work is done in step(), by one thread at a time: the trainer's own, or a caller that waits
 * and takes over ("driver"). So no result has to be handed from one core to another. While callers
 * wait, the thread is parked. Whoever sleeps, sleeps in halay_context_progress() and has
 * counted itself in `asleep` under the mutex before; whoever makes news wakes it through the
 * context, where a wake that comes just before the sleep counts.
 */
#include <assert.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "trainer.h"

#define SLEEP_NS    UINT64_C(1000000000) /* the longest sleep */
#define ASK_NS      UINT64_C(100000000)  /* of who waits, who asks the program: halay_local_ask() */
#define PARK_NS     UINT64_C(2000000)    /* after a wait the next one is likely to come soon */
#define SHARED_NS   UINT64_C(1000000)    /* while two sleep: one may take the wake of the other */
#define SPIN_MAX_NS UINT64_C(50000)      /* a waiting caller polls no longer than a sleep costs */
#define SPIN_TRIES  32 /* one poll of so many takes as long as that, paid or not */

/* ------------------------------------------------------------------ steps and sleep */

/* Mutex held. Tells those who sleep that tensors are done. */
static void publish(halay_trainer_t *trainer)
{
    int asleep = trainer->news ? trainer->asleep : 0;
    trainer->news = 0;
    pthread_cond_broadcast(&trainer->changed);
    if (!asleep)
        return;
    pthread_mutex_unlock(&trainer->mutex);
    halay_context_wake(trainer->context);
    pthread_mutex_lock(&trainer->mutex);
}

/*
 * Mutex held, but for the functions. By one thread at a time: what is done meanwhile, here or
 * elsewhere, it calls as well; so a function that submits does not nest.
 */
static void call_functions(halay_trainer_t *trainer)
{
    struct hlt_tensor *tensor;
    if (trainer->calling)
        return;
    trainer->calling = 1;
    while ((tensor = hlt_tensor_list_pop(&trainer->done)) != NULL) {
        const halay_ticket_done_t call = tensor->call;
        void *arg = tensor->call_arg;
        const halay_ticket_t ticket = hlt_tensor_ticket(tensor);
        trainer->functions--;
        tensor->call = NULL; /* from now on others may release it */
        const int asleep = trainer->asleep;
        pthread_cond_broadcast(&trainer->changed);
        pthread_mutex_unlock(&trainer->mutex);
        if (asleep) /* one may wait for this ticket */
            halay_context_wake(trainer->context);
        call(arg, ticket);
        pthread_mutex_lock(&trainer->mutex);
    }
    trainer->calling = 0;
}

/* when_ns: 0 is never. */
static void end_earlier(halay_trainer_t *trainer, uint64_t when_ns)
{
    if (when_ns && (!trainer->next_end_ns || when_ns < trainer->next_end_ns))
        trainer->next_end_ns = when_ns;
}

/* Mutex held, but for the work itself. Never blocks. Does nothing where another thread steps. */
static void step(halay_trainer_t *trainer)
{
    struct hlt_tensor *tensor;
    uint64_t look_ns;
    int lost;
    if (trainer->stepping) {
        trainer->again = 1;
        return;
    }
    trainer->stepping = 1;
    do {
        trainer->again = 0;
        trainer->leaving = trainer->closing;
        trainer->wanting = trainer->waiters || trainer->polled;
        trainer->expecting = trainer->functions > 0;
        trainer->recording = hlt_timeline_recording(trainer->timeline);
        lost = trainer->lost;
        while ((tensor = hlt_tensor_list_pop(&trainer->submitted)) != NULL)
            hlt_tensor_list_push(tensor->behind ? &trainer->behind : &trainer->pending, tensor);
        pthread_mutex_unlock(&trainer->mutex);
        if (lost)
            hlt_trainer_leave_all(trainer, HALAY_EDEVICE, "this rank's device has failed");
        look_ns = hlt_behind_step(trainer);
        do {
            hlt_round_step(trainer);
            hlt_calls_step(trainer);
        } while (hlt_replay_step(trainer));
        pthread_mutex_lock(&trainer->mutex);
    } while (trainer->again || trainer->submitted.head);

    trainer->next_end_ns = trainer->round ? 0 : hlt_round_end_ns(trainer);
    end_earlier(trainer, trainer->replay.check_ns);
    end_earlier(trainer, hlt_stall_check_ns(trainer));
    end_earlier(trainer, look_ns);
    trainer->busy = trainer->round || trainer->ncalls || trainer->ready.head ||
                    trainer->pending.head || trainer->waiting.head || trainer->pool.head ||
                    trainer->joining.head || trainer->behind.head || trainer->farewell;
    trainer->quiet = trainer->behind.head ? 0 : trainer->replay.quiet;
    trainer->published = trainer->counters;
    trainer->stepping = 0;
    publish(trainer);
    if (trainer->done.head)
        call_functions(trainer);
}

/*
 * A whole step that begins now, by this thread or by the one that steps already. Whoever has slept
 * takes one first of all: its sleep may have taken in what the others would have woken up for.
 */
static void step_or_wait(halay_trainer_t *trainer)
{
    int busy = trainer->stepping;
    step(trainer);
    while (busy && trainer->stepping)
        pthread_cond_wait(&trainer->changed, &trainer->mutex);
}

/* Mutex held, but for the sleep. Returns when something may have changed. */
static void doze(halay_trainer_t *trainer, uint64_t timeout_ns)
{
    uint64_t now_ns;
    if (trainer->stepping || trainer->submitted.head)
        return;
    if (trainer->next_end_ns) {
        now_ns = hlt_trainer_now_ns();
        if (trainer->next_end_ns <= now_ns)
            timeout_ns = 0;
        else if (trainer->next_end_ns - now_ns < timeout_ns)
            timeout_ns = trainer->next_end_ns - now_ns;
    }
    if (trainer->asleep++ && timeout_ns > SHARED_NS)
        timeout_ns = SHARED_NS;
    pthread_mutex_unlock(&trainer->mutex);
    int rc = halay_context_progress(trainer->context, timeout_ns);
    pthread_mutex_lock(&trainer->mutex);
    trainer->asleep--;
    if (rc < 0) { /* the requests will tell why; no spinning meanwhile */
        pthread_mutex_unlock(&trainer->mutex);
        usleep(1000);
        pthread_mutex_lock(&trainer->mutex);
    }
}

/*
 * Mutex held. The thread keeps away while callers wait, and for a moment after: a program that
 * waits for one tensor often waits for the next. Only a long wait wakes it up at its end.
 */
static void park(halay_trainer_t *trainer)
{
    struct timespec until = hlt_trainer_until(PARK_NS);
    uint64_t waits = trainer->waits;
    if (!trainer->functions || trainer->waiters) /* else nobody but the thread makes progress */
        pthread_cond_timedwait(&trainer->handback, &trainer->mutex, &until);
    if (trainer->waiters && trainer->waits == waits && !trainer->stop) {
        trainer->parked = 1;
        pthread_cond_wait(&trainer->handback, &trainer->mutex);
        trainer->parked = 0;
    }
}

static void *run(void *arg)
{
    halay_trainer_t *trainer = arg;
    pthread_setname_np(pthread_self(), "halay-trainer");
    pthread_mutex_lock(&trainer->mutex);
    uint64_t waits = trainer->waits;
    while (!trainer->stop) {
        step_or_wait(trainer);
        if (trainer->waiters || trainer->waits != waits) {
            waits = trainer->waits;
            park(trainer);
        } else if (!trainer->stop) {
            doze(trainer, SLEEP_NS);
        }
    }
    pthread_mutex_unlock(&trainer->mutex);
    return NULL;
}

/* ------------------------------------------------------------------ create and destroy */

/*
 * Makes a byte that the kernel clears in a forked child. To compare process numbers costs a system
 * call.
 */
static int alive_create(halay_trainer_t *trainer)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *alive = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (alive == MAP_FAILED)
        return HALAY_ENOMEM;
    trainer->alive = alive;
    *alive = 1;
    return madvise(alive, page, MADV_WIPEONFORK) ? HALAY_ENOMEM : 0;
}

static int memory_create(halay_trainer_t *trainer)
{
    size_t nranks = (size_t)trainer->nranks;
    trainer->blocks = calloc(nranks, sizeof(*trainer->blocks));
    trainer->counts = calloc(2 * nranks, sizeof(*trainer->counts));
    trainer->votes = calloc(nranks * (1 + HLT_VOTE_ITEMS), sizeof(*trainer->votes));
    trainer->marks = calloc(1, nranks / 128 + 17);
    trainer->groups_room = nranks * HLT_ROUND_ENTRIES;
    trainer->agreed_groups = calloc(trainer->groups_room, sizeof(*trainer->agreed_groups));
    trainer->unlike = calloc(trainer->groups_room, sizeof(*trainer->unlike));
    trainer->joined = calloc(hlt_rank_words(trainer->nranks), sizeof(*trainer->joined));
    trainer->joined_kinds = calloc(nranks, 1);
    trainer->greetings = calloc(nranks, sizeof(*trainer->greetings));
    if (alive_create(trainer) || !trainer->blocks || !trainer->counts || !trainer->votes ||
        !trainer->marks || !trainer->agreed_groups || !trainer->unlike || !trainer->greetings ||
        !trainer->joined || !trainer->joined_kinds || hlt_tensor_map_init(&trainer->names) ||
        hlt_tensor_map_init(&trainer->records) || hlt_tensor_map_init(&trainer->stall.places) ||
        hlt_tensor_map_init(&trainer->exchanges))
        return HALAY_ENOMEM;
    return 0;
}

static void memory_free(halay_trainer_t *trainer)
{
    hlt_round_records_free(trainer);
    hlt_tensors_free(trainer);
    hlt_programmes_free(trainer);
    hlt_stall_free(trainer);
    hlt_exchanges_free(trainer);
    hlt_behinds_free(trainer);
    hlt_tensor_map_finish(&trainer->names, NULL);
    for (int i = 0; i < HLT_BUFFERS; i++)
        hlt_memory_free(trainer, trainer->buffers[i].kind, trainer->buffers[i].memory);
    if (trainer->alive)
        munmap(trainer->alive, (size_t)sysconf(_SC_PAGESIZE));
    free(trainer->greetings);
    free(trainer->joined);
    free(trainer->joined_kinds);
    free(trainer->agreed_groups);
    free(trainer->unlike);
    free(trainer->votes);
    free(trainer->marks);
    free(trainer->counts);
    free(trainer->blocks);
    free(trainer);
}

int hlt_cond_create(pthread_cond_t *cond)
{
    pthread_condattr_t attr;
    if (pthread_condattr_init(&attr))
        return HALAY_ENOMEM;
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    int rc = pthread_cond_init(cond, &attr);
    pthread_condattr_destroy(&attr);
    return rc ? HALAY_ENOMEM : 0;
}

static int locks_create(halay_trainer_t *trainer)
{
    if (hlt_cond_create(&trainer->changed))
        return HALAY_ENOMEM;
    if (hlt_cond_create(&trainer->handback)) {
        pthread_cond_destroy(&trainer->changed);
        return HALAY_ENOMEM;
    }
    pthread_mutex_init(&trainer->mutex, NULL);
    return 0;
}

static void locks_free(halay_trainer_t *trainer)
{
    pthread_cond_destroy(&trainer->handback);
    pthread_cond_destroy(&trainer->changed);
    pthread_mutex_destroy(&trainer->mutex);
}

int hlt_thread_start(pthread_t *thread, void *(*body)(void *), void *arg)
{
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int rc = pthread_create(thread, NULL, body, arg);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return rc ? HALAY_ENOMEM : 0;
}

int halay_trainer_create(halay_context_t *context, halay_comm_t *comm, halay_trainer_t **out)
{
    if (!context || !comm || !out)
        return HALAY_EINVAL;
    halay_trainer_t *trainer = calloc(1, sizeof(*trainer));
    if (!trainer)
        return HALAY_ENOMEM;
    trainer->context = context;
    int rc = halay_comm_rank(comm, &trainer->rank);
    if (!rc)
        rc = halay_comm_deadline(comm, &trainer->deadline_ns);
    if (!rc)
        rc = halay_comm_size(comm, &trainer->nranks);
    if (!rc)
        rc = memory_create(trainer);
    hlt_stall_init(trainer);
    if (!rc)
        rc = locks_create(trainer);
    if (rc)
        goto free_memory;
    if ((rc = halay_comm_dup(comm, &trainer->control)) != 0)
        goto free_locks;
    if ((rc = halay_comm_dup(comm, &trainer->data)) != 0)
        goto free_control;
    if ((rc = hlt_trainer_greet(trainer)) != 0 ||
        (rc = hlt_thread_start(&trainer->thread, run, trainer)) != 0)
        goto free_data;
    *out = trainer;
    return 0;

free_data:
    halay_comm_free(trainer->data);
free_control:
    halay_comm_free(trainer->control);
free_locks:
    locks_free(trainer);
free_memory:
    memory_free(trainer);
    return rc;
}

/* Mutex held, but for the question. What the program wants to do meanwhile it does; if it wants the
 * wait to end, all that is out ends, on all ranks. */
static void ask(halay_trainer_t *trainer, uint64_t *ask_ns)
{
    const uint64_t now_ns = hlt_trainer_now_ns();
    if (*ask_ns && now_ns < *ask_ns)
        return;
    if (*ask_ns) {
        pthread_mutex_unlock(&trainer->mutex);
        if (halay_local_ask(trainer->context) == 1) {
            halay_comm_revoke(trainer->control);
            halay_comm_revoke(trainer->data);
        }
        pthread_mutex_lock(&trainer->mutex);
    }
    *ask_ns = now_ns + ASK_NS;
}

/*
 * What all ranks have agreed on is still run, as the others count on it; a round in flight is
 * finished, as it cannot be taken back. Each is bounded by the communicators' deadlines.
 */
static void drain(halay_trainer_t *trainer)
{
    uint64_t ask_ns = 0;
    step_or_wait(trainer);
    while (trainer->stepping || trainer->busy || trainer->submitted.head) {
        ask(trainer, &ask_ns);
        doze(trainer, ASK_NS);
        step_or_wait(trainer);
    }
}

void halay_trainer_destroy(halay_trainer_t *trainer)
{
    if (!trainer || hlt_trainer_forked(trainer))
        return;
    pthread_mutex_lock(&trainer->mutex);
    trainer->stop = trainer->closing = 1;
    pthread_cond_signal(&trainer->handback);
    pthread_mutex_unlock(&trainer->mutex);
    halay_context_wake(trainer->context);
    pthread_join(trainer->thread, NULL);

    pthread_mutex_lock(&trainer->mutex);
    drain(trainer);
    while (trainer->callers)
        pthread_cond_wait(&trainer->changed, &trainer->mutex);
    pthread_mutex_unlock(&trainer->mutex);
    halay_trainer_timeline_stop(trainer, NULL);

    halay_comm_free(trainer->data);
    halay_comm_free(trainer->control);
    locks_free(trainer);
    memory_free(trainer);
}

/* ------------------------------------------------------------------ waiting */

/* Mutex held. A ticket that another thread has released meanwhile is over as well. */
static int is_over(halay_trainer_t *trainer, halay_ticket_t ticket)
{
    const struct hlt_tensor *tensor = hlt_tensor_find(trainer, ticket);
    return !tensor || (tensor->done && !tensor->call);
}

/*
 * Mutex held. Steps for as long as that has lately spared a sleep, which costs tens of microseconds
 * to end; now and then for longer, to see. A rank that shares its processor with the one that it
 * waits for soon does not poll any more. Returns whether it is over.
 */
static int spin(halay_trainer_t *trainer, halay_ticket_t ticket)
{
    uint64_t begin_ns = hlt_trainer_now_ns(), took_ns = 0;
    uint64_t limit_ns = trainer->spins++ % SPIN_TRIES ? trainer->spin_ns : SPIN_MAX_NS;
    int over = 0;
    while (!over && took_ns < limit_ns) {
        step_or_wait(trainer);
        over = is_over(trainer, ticket);
        took_ns = hlt_trainer_now_ns() - begin_ns;
    }
    if (!over || took_ns > SPIN_MAX_NS)
        trainer->spin_ns /= 2;
    else if (trainer->spin_ns < 2 * took_ns)
        trainer->spin_ns = 2 * took_ns < SPIN_MAX_NS ? 2 * took_ns : SPIN_MAX_NS;
    return over;
}

/* The first time: in ASK_NS. */
static int ask_is_due(uint64_t *ask_ns)
{
    const uint64_t now_ns = hlt_trainer_now_ns();
    if (!*ask_ns)
        *ask_ns = now_ns + ASK_NS;
    return now_ns >= *ask_ns;
}

/* Mutex held. Steps and sleeps for all who wait, until this ticket is done, or the program is to be
 * asked: that is done while nobody drives, as the program may wait for another ticket. */
static void drive(halay_trainer_t *trainer, halay_ticket_t ticket, uint64_t *ask_ns)
{
    trainer->driver = 1;
    if (trainer->asleep) { /* wakes the thread, so that it parks, and does not wake for every
                              message */
        pthread_mutex_unlock(&trainer->mutex);
        halay_context_wake(trainer->context);
        pthread_mutex_lock(&trainer->mutex);
    }
    while (!is_over(trainer, ticket)) {
        step_or_wait(trainer);
        if (is_over(trainer, ticket) || spin(trainer, ticket) || ask_is_due(ask_ns))
            break;
        doze(trainer, ASK_NS);
    }
    trainer->driver = 0;
    pthread_cond_broadcast(&trainer->changed);
}

/* Mutex held. NULL: the ticket is not out, or another thread has released it meanwhile. */
static struct hlt_tensor *await(halay_trainer_t *trainer, halay_ticket_t ticket)
{
    struct hlt_tensor *tensor = hlt_tensor_find(trainer, ticket);
    uint64_t ask_ns = 0;
    if (tensor)
        trainer->looked = tensor->wanted = 1;
    if (is_over(trainer, ticket))
        return tensor;
    trainer->waiters++;
    trainer->waits++;
    while (!is_over(trainer, ticket)) {
        if (trainer->driver) {
            const struct timespec until = hlt_trainer_until(ASK_NS);
            pthread_cond_timedwait(&trainer->changed, &trainer->mutex, &until);
        } else {
            drive(trainer, ticket, &ask_ns);
        }
        if (!is_over(trainer, ticket))
            ask(trainer, &ask_ns);
    }
    if (--trainer->waiters == 0 && (trainer->parked || trainer->functions))
        pthread_cond_signal(&trainer->handback);
    return hlt_tensor_find(trainer, ticket);
}

/* What every call of a user begins and ends with; destroy waits for those who are inside. */
int hlt_trainer_enter(halay_trainer_t *trainer)
{
    if (!trainer)
        return HALAY_EINVAL;
    if (hlt_trainer_forked(trainer))
        return HALAY_EFORKED;
    pthread_mutex_lock(&trainer->mutex);
    trainer->callers++;
    return 0;
}

int hlt_trainer_leave(halay_trainer_t *trainer, int result)
{
    if (--trainer->callers == 0 && trainer->closing)
        pthread_cond_broadcast(&trainer->changed);
    pthread_mutex_unlock(&trainer->mutex);
    return result;
}

int halay_trainer_poll(halay_trainer_t *trainer, halay_ticket_t ticket)
{
    int rc = hlt_trainer_enter(trainer);
    if (rc)
        return rc;
    struct hlt_tensor *tensor = hlt_tensor_find(trainer, ticket);
    if (tensor)
        trainer->looked = tensor->wanted = 1;
    if (tensor && !tensor->done) {
        trainer->polled = 1;
        step(trainer);
        tensor = hlt_tensor_find(trainer, ticket);
    }
    return hlt_trainer_leave(trainer, tensor ? tensor->done : HALAY_EINVAL);
}

int halay_trainer_on_done(halay_trainer_t *trainer, halay_ticket_t ticket, halay_ticket_done_t done,
                          void *arg)
{
    int rc = done ? hlt_trainer_enter(trainer) : HALAY_EINVAL;
    if (rc)
        return rc;
    struct hlt_tensor *tensor = hlt_tensor_find(trainer, ticket);
    if (!tensor || tensor->call)
        return hlt_trainer_leave(trainer, HALAY_EINVAL);
    if (tensor->done) {
        hlt_trainer_leave(trainer, 0);
        done(arg, ticket);
        return 0;
    }
    tensor->call = done;
    tensor->call_arg = arg;
    if (!trainer->functions++ && !trainer->waiters) /* the thread may wait for the next caller */
        pthread_cond_signal(&trainer->handback);
    return hlt_trainer_leave(trainer, 0);
}

int hlt_trainer_tell(int code, const char *reason, char *text, size_t bytes)
{
    if (text && bytes)
        snprintf(text, bytes, "%s", !code ? "" : reason ? reason : halay_strerror(code));
    return code;
}

int hlt_trainer_await(halay_trainer_t *trainer, halay_ticket_t ticket, char *text, size_t bytes)
{
    const struct hlt_tensor *tensor = await(trainer, ticket);
    if (!tensor)
        return hlt_trainer_tell(HALAY_EINVAL, "the ticket is not out", text, bytes);
    return hlt_trainer_tell(tensor->code, tensor->text, text, bytes);
}

int halay_trainer_wait(halay_trainer_t *trainer, halay_ticket_t ticket, char *text,
                       size_t text_bytes)
{
    int rc = hlt_trainer_enter(trainer);
    if (rc)
        return hlt_trainer_tell(rc, NULL, text, text_bytes);
    return hlt_trainer_leave(trainer, hlt_trainer_await(trainer, ticket, text, text_bytes));
}

int halay_trainer_result(halay_trainer_t *trainer, halay_ticket_t ticket, const void **data,
                         size_t *count, const size_t **rows)
{
    int rc = hlt_trainer_enter(trainer);
    if (rc)
        return rc;
    const struct hlt_tensor *tensor = hlt_tensor_find(trainer, ticket);
    if (!tensor)
        return hlt_trainer_leave(trainer, HALAY_EINVAL);
    if (!tensor->done)
        return hlt_trainer_leave(trainer, HALAY_ESTATE);
    if (tensor->code)
        return hlt_trainer_leave(trainer, tensor->code);
    int gathered = tensor->kind == HLT_KIND_ALLGATHER || tensor->kind == HLT_KIND_ALLTOALL;
    int other = tensor->kind == HLT_KIND_JOIN || tensor->kind == HLT_KIND_REDUCE_SCATTER;
    if (data)
        *data = gathered ? tensor->result : tensor->out;
    if (count)
        *count = gathered || other ? tensor->result_count : tensor->count;
    if (rows)
        *rows = tensor->rows;
    return hlt_trainer_leave(trainer, 0);
}

void halay_trainer_release(halay_trainer_t *trainer, halay_ticket_t ticket)
{
    if (!ticket || hlt_trainer_enter(trainer))
        return;
    struct hlt_tensor *tensor = await(trainer, ticket);
    if (tensor)
        hlt_tensor_give(trainer, tensor);
    hlt_trainer_leave(trainer, 0);
}

int halay_trainer_counters(halay_trainer_t *trainer, halay_trainer_counters_t *counters)
{
    if (!counters || !counters->size || counters->size % sizeof(size_t))
        return HALAY_EINVAL;
    int rc = hlt_trainer_enter(trainer);
    if (rc)
        return rc;
    size_t size = counters->size < sizeof(*counters) ? counters->size : sizeof(*counters);
    memcpy(counters, &trainer->published, size);
    counters->size = size;
    return hlt_trainer_leave(trainer, 0);
}
