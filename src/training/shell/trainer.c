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
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../core/negotiate.h"
#include "../core/replay.h"
#include "../core/tune.h"
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
    int asleep = trainer->steps.news ? trainer->callers.asleep : 0;
    trainer->steps.news = 0;
    pthread_cond_broadcast(&trainer->changed);
    if (!asleep)
        return;
    hlt_trainer_wake(trainer);
}

/*
 * Mutex held, except for the functions. By one thread at a time: what is done meanwhile, here or
 * elsewhere, it calls as well; so a function that submits does not nest.
 */
static void call_functions(halay_trainer_t *trainer)
{
    struct hlt_tensor *tensor;
    if (trainer->callers.calling)
        return;
    trainer->callers.calling = 1;
    while ((tensor = hlt_tensor_list_pop(&trainer->callers.done)) != NULL) {
        const halay_ticket_done_t call = tensor->call;
        void *arg = tensor->call_arg;
        const halay_ticket_t ticket = hlt_tensor_ticket(tensor);
        trainer->callers.functions--;
        tensor->call = NULL; /* from now on others may release it */
        const int asleep = trainer->callers.asleep;
        pthread_cond_broadcast(&trainer->changed);
        pthread_mutex_unlock(&trainer->mutex);
        if (asleep) /* one may wait for this ticket */
            halay_context_wake(trainer->context);
        call(arg, ticket);
        pthread_mutex_lock(&trainer->mutex);
    }
    trainer->callers.calling = 0;
}

/* when_ns: 0 is never. */
static void end_earlier(halay_trainer_t *trainer, uint64_t when_ns)
{
    if (when_ns && (!trainer->steps.next_end_ns || when_ns < trainer->steps.next_end_ns))
        trainer->steps.next_end_ns = when_ns;
}

/* Returns 1 if a replay has ended, and rounds go on. */
static int replay_step(halay_trainer_t *trainer)
{
    int over = hlt_replay_step(&trainer->core, trainer->round ? 0 : hlt_calls_oldest_ns(trainer));
    if (!over)
        return 0;
    hlt_tune_speak(&trainer->core);
    hlt_timeline_void(trainer);
    return 1;
}

/* Mutex held, except for the work itself. Never blocks. Does nothing where another thread steps. */
static void step(halay_trainer_t *trainer)
{
    struct hlt_tensor *tensor;
    uint64_t look_ns;
    int lost;
    if (trainer->steps.stepping) {
        trainer->steps.again = 1;
        return;
    }
    trainer->steps.stepping = 1;
    do {
        trainer->steps.again = 0;
        trainer->core.leaving = trainer->closing;
        trainer->steps.wanting = trainer->callers.waiters || trainer->callers.polled;
        trainer->steps.expecting = trainer->callers.functions > 0;
        trainer->recording.on = hlt_timeline_recording(trainer->recording.timeline);
        lost = trainer->lost;
        while ((tensor = hlt_tensor_list_pop(&trainer->tensors.submitted)) != NULL)
            hlt_tensor_list_push(tensor->behind ? &trainer->behinds.list : &trainer->core.pending,
                                 tensor);
        pthread_mutex_unlock(&trainer->mutex);
        if (lost)
            hlt_core_leave_all(&trainer->core, HALAY_EDEVICE, "this rank's device has failed");
        look_ns = hlt_behind_step(trainer);
        do {
            hlt_round_step(trainer);
            hlt_calls_step(trainer);
        } while (replay_step(trainer));
        pthread_mutex_lock(&trainer->mutex);
    } while (trainer->steps.again || trainer->tensors.submitted.head);

    trainer->steps.next_end_ns = trainer->round ? 0 : hlt_round_end_ns(&trainer->core);
    end_earlier(trainer, trainer->core.replay.check_ns);
    end_earlier(trainer, hlt_stall_check_ns(trainer));
    end_earlier(trainer, look_ns);
    trainer->steps.busy = trainer->round || trainer->calls.count || trainer->core.ready.head ||
                          trainer->core.pending.head || trainer->core.waiting.head ||
                          trainer->core.pool.head || trainer->core.joining.head ||
                          trainer->behinds.list.head || trainer->core.farewell;
    trainer->steps.submissions_before_wake =
        trainer->behinds.list.head ? 0 : trainer->core.replay.submissions_before_group;
    trainer->published = trainer->core.counters;
    trainer->steps.stepping = 0;
    publish(trainer);
    if (trainer->callers.done.head)
        call_functions(trainer);
}

/*
 * A whole step that begins now, by this thread or by the one that steps already. Whoever has slept
 * takes one first of all: its sleep may have taken in what the others would have woken up for.
 */
static void step_or_wait(halay_trainer_t *trainer)
{
    int busy = trainer->steps.stepping;
    step(trainer);
    while (busy && trainer->steps.stepping)
        pthread_cond_wait(&trainer->changed, &trainer->mutex);
}

/* Mutex held, except for the sleep. Returns when something may have changed. */
static void doze(halay_trainer_t *trainer, uint64_t timeout_ns)
{
    uint64_t now_ns;
    if (trainer->steps.stepping || trainer->tensors.submitted.head)
        return;
    if (trainer->steps.next_end_ns) {
        now_ns = hlt_trainer_now_ns();
        if (trainer->steps.next_end_ns <= now_ns)
            timeout_ns = 0;
        else if (trainer->steps.next_end_ns - now_ns < timeout_ns)
            timeout_ns = trainer->steps.next_end_ns - now_ns;
    }
    if (trainer->callers.asleep++ && timeout_ns > SHARED_NS)
        timeout_ns = SHARED_NS;
    pthread_mutex_unlock(&trainer->mutex);
    int rc = halay_context_progress(trainer->context, timeout_ns);
    pthread_mutex_lock(&trainer->mutex);
    trainer->callers.asleep--;
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
    uint64_t waits = trainer->callers.waits;
    if (!trainer->callers.functions ||
        trainer->callers.waiters) /* else nobody but the thread makes progress */
        pthread_cond_timedwait(&trainer->handback, &trainer->mutex, &until);
    if (trainer->callers.waiters && trainer->callers.waits == waits && !trainer->stop) {
        trainer->callers.parked = 1;
        pthread_cond_wait(&trainer->handback, &trainer->mutex);
        trainer->callers.parked = 0;
    }
}

static void *run(void *arg)
{
    halay_trainer_t *trainer = arg;
    pthread_setname_np(pthread_self(), "halay-trainer");
    pthread_mutex_lock(&trainer->mutex);
    uint64_t waits = trainer->callers.waits;
    while (!trainer->stop) {
        step_or_wait(trainer);
        if (trainer->callers.waiters || trainer->callers.waits != waits) {
            waits = trainer->callers.waits;
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
    struct hlt_core *core = &trainer->core;
    struct hlt_rounds *rounds = &core->rounds;
    struct hlt_calls *calls = &trainer->calls;
    size_t nranks = (size_t)core->nranks, room = nranks * HLT_ROUND_ENTRIES;
    rounds->blocks = calloc(nranks, sizeof(*rounds->blocks));
    rounds->groups_room = room;
    rounds->agreed_groups = calloc(room, sizeof(*rounds->agreed_groups));
    rounds->unlike = calloc(room, sizeof(*rounds->unlike));
    calls->counts = calloc(2 * nranks, sizeof(*calls->counts));
    calls->votes = calloc(nranks * (1 + HLT_VOTE_ITEMS), sizeof(*calls->votes));
    calls->marks = calloc(HLT_BUFFERS, nranks / 128 + 17);
    for (size_t i = 0; i < HLT_BUFFERS; i++)
        trainer->fusion.buffers[i].marks = calls->marks + i * (nranks / 128 + 17);
    core->joins.ranks = calloc(hlt_rank_words(core->nranks), sizeof(*core->joins.ranks));
    core->joins.kinds = calloc(nranks, 1);
    core->greetings = calloc(nranks, sizeof(*core->greetings));
    if (alive_create(trainer) || !rounds->blocks || !calls->counts || !calls->votes ||
        !calls->marks || !rounds->agreed_groups || !rounds->unlike || !core->greetings ||
        !core->joins.ranks || !core->joins.kinds || hlt_tensor_map_init(&trainer->tensors.names) ||
        hlt_tensor_map_init(&rounds->records) || hlt_tensor_map_init(&trainer->stall.places) ||
        hlt_tensor_map_init(&trainer->exchanges.map))
        return HALAY_ENOMEM;
    return 0;
}

static void memory_free(halay_trainer_t *trainer)
{
    hlt_round_records_free(&trainer->core);
    hlt_tensors_free(trainer);
    hlt_programmes_free(&trainer->core);
    hlt_stall_free(trainer);
    hlt_exchanges_free(trainer);
    hlt_behinds_free(trainer);
    hlt_tensor_map_finish(&trainer->tensors.names, NULL);
    for (int i = 0; i < HLT_BUFFERS; i++)
        hlt_memory_free(trainer, trainer->fusion.buffers[i].kind,
                        trainer->fusion.buffers[i].memory);
    if (trainer->alive)
        munmap(trainer->alive, (size_t)sysconf(_SC_PAGESIZE));
    free(trainer->core.greetings);
    free(trainer->core.joins.ranks);
    free(trainer->core.joins.kinds);
    free(trainer->core.rounds.agreed_groups);
    free(trainer->core.rounds.unlike);
    free(trainer->calls.votes);
    free(trainer->calls.marks);
    free(trainer->calls.counts);
    free(trainer->core.rounds.blocks);
    free(trainer);
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

int halay_trainer_create(halay_context_t *context, halay_comm_t *comm, halay_trainer_t **out)
{
    if (!context || !comm || !out)
        return HALAY_EINVAL;
    halay_trainer_t *trainer = calloc(1, sizeof(*trainer));
    if (!trainer)
        return HALAY_ENOMEM;
    trainer->context = context;
    int rc = halay_comm_rank(comm, &trainer->core.rank);
    if (!rc)
        rc = halay_comm_deadline(comm, &trainer->core.deadline_ns);
    if (!rc)
        rc = halay_comm_size(comm, &trainer->core.nranks);
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

/* Mutex held, except for the question. What the program wants to do meanwhile it does; if it wants
 * the wait to end, all that is out ends, on all ranks. */
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
    while (trainer->steps.stepping || trainer->steps.busy || trainer->tensors.submitted.head) {
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
    while (trainer->callers.inside)
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
    uint64_t limit_ns =
        trainer->callers.spins++ % SPIN_TRIES ? trainer->callers.spin_ns : SPIN_MAX_NS;
    int over = 0;
    while (!over && took_ns < limit_ns) {
        step_or_wait(trainer);
        over = is_over(trainer, ticket);
        took_ns = hlt_trainer_now_ns() - begin_ns;
    }
    if (!over || took_ns > SPIN_MAX_NS)
        trainer->callers.spin_ns /= 2;
    else if (trainer->callers.spin_ns < 2 * took_ns)
        trainer->callers.spin_ns = 2 * took_ns < SPIN_MAX_NS ? 2 * took_ns : SPIN_MAX_NS;
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
    trainer->callers.driver = 1;
    if (trainer->callers.asleep) { /* wakes the thread, so that it parks, and does not wake for
                              every message */
        hlt_trainer_wake(trainer);
    }
    while (!is_over(trainer, ticket)) {
        step_or_wait(trainer);
        if (is_over(trainer, ticket) || spin(trainer, ticket) || ask_is_due(ask_ns))
            break;
        doze(trainer, ASK_NS);
    }
    trainer->callers.driver = 0;
    pthread_cond_broadcast(&trainer->changed);
}

/* Mutex held. NULL: the ticket is not out, or another thread has released it meanwhile. */
static struct hlt_tensor *await(halay_trainer_t *trainer, halay_ticket_t ticket)
{
    struct hlt_tensor *tensor = hlt_tensor_find(trainer, ticket);
    uint64_t ask_ns = 0;
    if (tensor)
        trainer->callers.looked = tensor->wanted = 1;
    if (is_over(trainer, ticket))
        return tensor;
    trainer->callers.waiters++;
    trainer->callers.waits++;
    while (!is_over(trainer, ticket)) {
        if (trainer->callers.driver) {
            const struct timespec until = hlt_trainer_until(ASK_NS);
            pthread_cond_timedwait(&trainer->changed, &trainer->mutex, &until);
        } else {
            drive(trainer, ticket, &ask_ns);
        }
        if (!is_over(trainer, ticket))
            ask(trainer, &ask_ns);
    }
    if (--trainer->callers.waiters == 0 && (trainer->callers.parked || trainer->callers.functions))
        pthread_cond_signal(&trainer->handback);
    return hlt_tensor_find(trainer, ticket);
}

int halay_trainer_poll(halay_trainer_t *trainer, halay_ticket_t ticket)
{
    int rc = hlt_trainer_enter(trainer);
    if (rc)
        return rc;
    struct hlt_tensor *tensor = hlt_tensor_find(trainer, ticket);
    if (tensor)
        trainer->callers.looked = tensor->wanted = 1;
    if (tensor && !tensor->done) {
        trainer->callers.polled = 1;
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
    if (!trainer->callers.functions++ &&
        !trainer->callers.waiters) /* the thread may wait for the next caller */
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
