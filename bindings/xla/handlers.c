/* SPDX-License-Identifier: Apache-2.0 */
/*
 * handlers.c - the custom calls. Each submits its arrays by name, and tells XLA through a future
 * when the trainer has done with them: no thread of XLA's waits, so programs of different ranks may
 * run their calls in different orders. What is done within microseconds, and what is all of its
 * program in the process's first thread, is returned without a future.
 *
 * A call is on its gate's list `out` from the submission until its last ticket is released. The
 * arrays are XLA's, which keeps them until the future is complete.
 */
#define _GNU_SOURCE
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "frame.h"

#define SPIN_MAX_NS UINT64_C(50000) /* what it costs to end a sleep */
#define SPIN_TRIES  32              /* one look of so many takes as long as that, paid or not */
#define TEXT_BYTES  1024

enum kind { ALLREDUCE, ALLGATHER, BROADCAST, REDUCE_SCATTER, ALLTOALL };

struct part {
    struct hlx_call *call;
    halay_ticket_t ticket;
    struct hlx_array in, out;
};

struct hlx_call {
    struct hlx_call *next, **place; /* of the list that it is on */
    halay_trainer_t *trainer;
    const struct hlx_ffi_api *api;
    struct hlx_ffi_future *future;
    enum kind kind;
    int rank, size;
    struct hlx_says says;
    atomic_int code; /* of the first part that failed, whose text is there */
    char text[TEXT_BYTES];
    atomic_size_t remaining;
    size_t nparts, room;
    struct part *parts;
};

/* ------------------------------------------------------------------ calls that are out */

static void list_push(struct hlx_call **list, struct hlx_call *call)
{
    call->next = *list;
    call->place = list;
    if (call->next)
        call->next->place = &call->next;
    *list = call;
}

static void list_remove(struct hlx_call *call)
{
    *call->place = call->next;
    if (call->next)
        call->next->place = call->place;
}

static int make_room(struct hlx_call *call, size_t nparts)
{
    if (call->room >= nparts)
        return 0;
    struct part *parts = realloc(call->parts, nparts * sizeof(*parts));
    if (!parts)
        return HALAY_ENOMEM;
    call->parts = parts;
    call->room = nparts;
    return 0;
}

/* One that an earlier call has left, or a new one; NULL: no memory. It is on the list `out`. */
static struct hlx_call *call_take(struct hlx_gate *gate, size_t nparts)
{
    pthread_mutex_lock(&gate->mutex);
    struct hlx_call *call = gate->kept;
    if (call)
        list_remove(call);
    pthread_mutex_unlock(&gate->mutex);
    if (!call && !(call = calloc(1, sizeof(*call))))
        return NULL;
    if (make_room(call, nparts)) {
        free(call->parts);
        free(call);
        return NULL;
    }
    call->nparts = nparts;
    call->future = NULL;
    call->says.name[0] = 0;
    atomic_store_explicit(&call->code, 0, memory_order_relaxed);
    atomic_store_explicit(&call->remaining, nparts, memory_order_relaxed);
    pthread_mutex_lock(&gate->mutex);
    list_push(&gate->out, call);
    pthread_mutex_unlock(&gate->mutex);
    return call;
}

static void call_give(struct hlx_gate *gate, struct hlx_call *call)
{
    pthread_mutex_lock(&gate->mutex);
    list_remove(call);
    list_push(&gate->kept, call);
    pthread_mutex_unlock(&gate->mutex);
}

/* Whether another call of this name is out. */
static int is_out(struct hlx_gate *gate, const struct hlx_call *call)
{
    int found = 0;
    pthread_mutex_lock(&gate->mutex);
    for (const struct hlx_call *other = gate->out; other && !found; other = other->next)
        found = other != call && !strcmp(other->says.name, call->says.name);
    pthread_mutex_unlock(&gate->mutex);
    return found;
}

/* ------------------------------------------------------------------ the end of a call */

static int equal_rows(const struct hlx_call *call, const size_t *rows, size_t each)
{
    for (int r = 0; r < call->size; r++) {
        if (rows[r] != each)
            return 0;
    }
    return 1;
}

/* Copies a result of the trainer's into XLA's array, whose shape says how much each rank gives. */
static int fetch(struct hlx_call *call, struct part *part, char *text, size_t bytes)
{
    const void *data;
    const size_t *rows;
    size_t count;
    int rc = halay_trainer_result(call->trainer, part->ticket, &data, &count, &rows);
    if (rc)
        return rc;
    if (count != part->out.count || !equal_rows(call, rows, part->out.rows / (size_t)call->size)) {
        snprintf(text, bytes,
                 "%s: the ranks do not have as many rows as each other: compiled "
                 "programs have arrays of fixed shapes, so halay.jax needs equal ones",
                 call->says.name);
        return HALAY_EMISMATCH;
    }
    if (part->out.bytes)
        memcpy(part->out.data, data, part->out.bytes);
    return 0;
}

/* A ticket is done: takes its result. Whether it was the last of its call. */
static int part_end(struct part *part)
{
    struct hlx_call *call = part->call;
    char text[TEXT_BYTES];
    int none = 0;
    int rc = halay_trainer_wait(call->trainer, part->ticket, text, sizeof(text));
    if (!rc && (call->kind == ALLGATHER || call->kind == ALLTOALL))
        rc = fetch(call, part, text, sizeof(text));
    if (!rc && call->says.keep >= 0 && call->says.keep != call->rank && part->out.bytes)
        memset(part->out.data, 0, part->out.bytes);
    if (rc && atomic_compare_exchange_strong(&call->code, &none, rc))
        memcpy(call->text, text, sizeof(text));
    halay_trainer_release(call->trainer, part->ticket);
    return atomic_fetch_sub(&call->remaining, 1) == 1;
}

static struct hlx_ffi_error *call_error(struct hlx_call *call)
{
    int code = atomic_load(&call->code);
    return code ? hlx_error(call->api, code, call->text) : NULL;
}

static void when_done(void *arg, halay_ticket_t ticket)
{
    struct part *part = arg;
    struct hlx_call *call = part->call;
    (void)ticket;
    if (!part_end(part))
        return;
    const struct hlx_ffi_api *api = call->api;
    struct hlx_ffi_future *future = call->future;
    struct hlx_ffi_error *error = call_error(call);
    call_give(call->says.gate, call);
    if (error) {
        struct hlx_ffi_future_error with = {
            .struct_size = sizeof(with), .future = future, .error = error};
        api->future_set_error(&with);
        return;
    }
    struct hlx_ffi_future_available with = {.struct_size = sizeof(with), .future = future};
    api->future_set_available(&with); /* what waits for it in the program runs here */
}

/* ------------------------------------------------------------------ submission */

/* What the trainer is asked for where every rank divides by as many as there are now. */
static double postscale(const struct hlx_call *call)
{
    const struct hlx_says *says = &call->says;
    return says->mean ? says->postscale / call->size : says->postscale;
}

static int submit_group(struct hlx_call *call)
{
    const struct hlx_says *says = &call->says;
    const size_t n = call->nparts, name_bytes = HALAY_TENSOR_NAME_MAX;
    char *memory = malloc(n * (3 * sizeof(uint64_t) + sizeof(halay_reduction_t) + name_bytes));
    if (!memory)
        return HALAY_ENOMEM;
    halay_reduction_t *of = (halay_reduction_t *)memory;
    const void **in = (const void **)(of + n);
    void **out = (void **)(in + n);
    halay_ticket_t *tickets = (halay_ticket_t *)(out + n);
    char *text = (char *)(tickets + n);
    int rc = 0;
    for (size_t i = 0; i < n && !rc; i++) {
        const struct part *part = &call->parts[i];
        of[i] = (halay_reduction_t){.size = sizeof(*of),
                                    .name = text + i * name_bytes,
                                    .shape = part->in.shape,
                                    .type = part->in.type,
                                    .op = (halay_op_t)says->op,
                                    .prescale = says->prescale,
                                    .postscale = postscale(call)};
        if (snprintf(text + i * name_bytes, name_bytes, "%s.%zu", says->name, i) >= (int)name_bytes)
            rc = HALAY_EINVAL;
        in[i] = part->in.data;
        out[i] = part->out.data;
    }
    if (!rc)
        rc = halay_trainer_allreduce_group(call->trainer, n, of, in, out, tickets);
    for (size_t i = 0; i < n && !rc; i++)
        call->parts[i].ticket = tickets[i];
    free(memory);
    return rc;
}

static int submit_alltoall(struct hlx_call *call, struct part *part)
{
    size_t few[64], *rows = few;
    if (call->size > 64 && !(rows = malloc((size_t)call->size * sizeof(*rows))))
        return HALAY_ENOMEM;
    for (int r = 0; r < call->size; r++)
        rows[r] = part->in.rows / (size_t)call->size;
    int rc = halay_trainer_alltoall(call->trainer, call->says.name, part->in.data, rows,
                                    &part->in.shape, part->in.type, &part->ticket);
    if (rows != few)
        free(rows);
    return rc;
}

static int submit(struct hlx_call *call)
{
    const struct hlx_says *says = &call->says;
    struct part *part = call->parts;
    const halay_op_t op = (halay_op_t)says->op;
    if (call->nparts > 1)
        return submit_group(call);
    switch (call->kind) {
    case ALLREDUCE:
        return halay_trainer_allreduce_shaped(call->trainer, says->name, part->in.data,
                                              part->out.data, &part->in.shape, part->in.type, op,
                                              says->prescale, postscale(call), &part->ticket);
    case REDUCE_SCATTER:
        return halay_trainer_reduce_scatter(call->trainer, says->name, part->in.data,
                                            part->out.data, &part->in.shape, part->in.type, op,
                                            says->prescale, postscale(call), &part->ticket);
    case BROADCAST:
        if (says->root == call->rank && part->in.bytes)
            memcpy(part->out.data, part->in.data, part->in.bytes);
        return halay_trainer_broadcast_shaped(call->trainer, says->name, part->out.data,
                                              &part->in.shape, part->in.type, (int)says->root,
                                              &part->ticket);
    case ALLGATHER:
        return halay_trainer_allgather_shaped(call->trainer, says->name, part->in.data,
                                              &part->in.shape, part->in.type, &part->ticket);
    default:
        return submit_alltoall(call, part);
    }
}

/* NULL, or why the shapes, which were fixed when the program was compiled, are wrong. */
static const char *shapes_wrong(const struct hlx_call *call)
{
    const struct hlx_array *in = &call->parts->in, *out = &call->parts->out;
    const size_t size = (size_t)call->size;
    int right = in->count == out->count;
    if (call->kind == ALLGATHER)
        right = out->count == in->count * size;
    else if (call->kind == REDUCE_SCATTER)
        right = out->count * size == in->count && in->rows % size == 0;
    else if (call->kind == ALLTOALL)
        right = right && in->rows % size == 0;
    return right ? NULL
                 : "the program was compiled for another number of ranks: "
                   "jax.clear_caches() after init() has it compiled again";
}

/* ------------------------------------------------------------------ the handlers */

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static int all_done(const struct hlx_call *call)
{
    for (size_t i = call->nparts; i-- > 0;) {
        if (halay_trainer_poll(call->trainer, call->parts[i].ticket) == 0)
            return 0;
    }
    return 1;
}

/*
 * Whether the call is likely to be the only one of its program's. If
 * there are several, to wait for each would keep the next from being sent along.
 */
static int is_first(struct hlx_gate *gate, const struct hlx_ffi_frame *frame)
{
    int64_t run = hlx_run_of(frame);
    return atomic_exchange_explicit(&gate->run, run, memory_order_relaxed) != run;
}

/*
 * Looks for as long as that has lately spared a future, whose end another thread has to tell; now
 * and then for longer, to see. The numbers may be torn between threads: they are only a guess.
 */
static int done_soon(struct hlx_gate *gate, const struct hlx_call *call)
{
    const uint64_t begin_ns = now_ns();
    uint64_t took_ns = 0;
    uint64_t limit_ns = gate->spins++ % SPIN_TRIES ? gate->spin_ns : SPIN_MAX_NS;
    int done = 0;
    while (!done && took_ns < limit_ns) {
        done = all_done(call);
        took_ns = now_ns() - begin_ns;
    }
    if (!done || took_ns > SPIN_MAX_NS)
        gate->spin_ns /= 2;
    else if (gate->spin_ns < 2 * took_ns)
        gate->spin_ns = 2 * took_ns < SPIN_MAX_NS ? 2 * took_ns : SPIN_MAX_NS;
    return done;
}

/*
 * XLA runs a short program in the thread that calls it, and waits there for what it does. Where
 * that is one call, in the process's first thread, the wait is ours: it asks the program, whose
 * handlers of signals run (halay_local_on_wait).
 */
static int waits_here(const struct hlx_says *says)
{
    return says->alone && syscall(SYS_gettid) == getpid();
}

static struct hlx_ffi_error *no_future(struct hlx_call *call)
{
    struct hlx_ffi_error *error = NULL;
    for (size_t i = 0; i < call->nparts; i++) {
        if (part_end(&call->parts[i])) {
            error = call_error(call);
            call_give(call->says.gate, call);
        }
    }
    return error;
}

static struct hlx_ffi_error *with_future(struct hlx_call *call, struct hlx_ffi_frame *frame)
{
    struct hlx_ffi_future_create create = {.struct_size = sizeof(create)};
    struct hlx_ffi_error *error = frame->api->future_create(&create);
    if (error) { /* no memory: the wait is bounded by the deadline */
        struct hlx_ffi_error *other = no_future(call);
        return other ? other : error;
    }
    const size_t nparts = call->nparts; /* after the last of them the call is another's */
    struct part *parts = call->parts;
    frame->future = call->future = create.future;
    for (size_t i = 0; i < nparts; i++) {
        if (halay_trainer_on_done(call->trainer, parts[i].ticket, when_done, &parts[i]))
            when_done(&parts[i], parts[i].ticket);
    }
    return NULL;
}

static struct hlx_ffi_error *refused(struct hlx_call *call, int rc)
{
    char text[TEXT_BYTES];
    const char *why = halay_strerror(rc);
    why += strcspn(why, ":") + 2;
    if (rc == HALAY_EINVAL && is_out(call->says.gate, call))
        why = "is out already: two calls of one name at once. Give each a name; a function that is "
              "traced once and called twice has to be given it as an argument";
    snprintf(text, sizeof(text), "%s: %s", call->says.name, why);
    call_give(call->says.gate, call);
    return hlx_error(call->api, rc, text);
}

static struct hlx_ffi_error *run(struct hlx_ffi_frame *frame, const struct hlx_says *says,
                                 halay_trainer_t *trainer, enum kind kind, int rank, int size)
{
    const size_t nparts = (size_t)frame->args.size;
    struct hlx_call *call = call_take(says->gate, nparts);
    if (!call)
        return hlx_error(frame->api, HALAY_ENOMEM, says->name);
    call->trainer = trainer;
    call->api = frame->api;
    call->kind = kind;
    call->rank = rank;
    call->size = size;
    pthread_mutex_lock(&says->gate->mutex); /* other calls look at the name */
    call->says = *says;
    pthread_mutex_unlock(&says->gate->mutex);
    int rc = 0;
    for (size_t i = 0; i < nparts && !rc; i++) {
        call->parts[i].call = call;
        rc = hlx_array_read(&call->parts[i].in, &frame->args, (int64_t)i);
        if (!rc)
            rc = hlx_array_read(&call->parts[i].out, &frame->rets, (int64_t)i);
    }
    if (rc)
        return refused(call, rc);
    const char *wrong = shapes_wrong(call);
    if (wrong) {
        call_give(says->gate, call);
        return hlx_error(frame->api, HALAY_ESTATE, wrong);
    }
    if ((rc = submit(call)) != 0)
        return refused(call, rc);
    if ((is_first(says->gate, frame) && done_soon(says->gate, call)) || waits_here(says))
        return no_future(call);
    return with_future(call, frame);
}

static struct hlx_ffi_error *handle(struct hlx_ffi_frame *frame, enum kind kind)
{
    struct hlx_says says;
    int rank, size;
    if (hlx_is_question(frame) || frame->stage != HLX_FFI_EXECUTE)
        return NULL;
    if (frame->args.size < 1 || frame->args.size != frame->rets.size ||
        frame->args.size > HALAY_GROUP_MAX || hlx_says_read(&says, frame))
        return hlx_error(frame->api, HALAY_EINVAL, "a custom call that is not of halay.jax");
    halay_trainer_t *trainer = hlx_gate_enter(says.gate, &rank, &size);
    if (!trainer) {
        char text[TEXT_BYTES];
        snprintf(text, sizeof(text),
                 "%s: halay is shut down: call init() before the program is run", says.name);
        return hlx_error(frame->api, HALAY_ESTATE, text);
    }
    struct hlx_ffi_error *error = run(frame, &says, trainer, kind, rank, size);
    hlx_gate_leave(says.gate);
    return error;
}

/* XLA's handlers, whose addresses halay.jax registers. */
HALAY_API struct hlx_ffi_error *halay_xla_allreduce(struct hlx_ffi_frame *frame);
HALAY_API struct hlx_ffi_error *halay_xla_allgather(struct hlx_ffi_frame *frame);
HALAY_API struct hlx_ffi_error *halay_xla_broadcast(struct hlx_ffi_frame *frame);
HALAY_API struct hlx_ffi_error *halay_xla_reducescatter(struct hlx_ffi_frame *frame);
HALAY_API struct hlx_ffi_error *halay_xla_alltoall(struct hlx_ffi_frame *frame);

struct hlx_ffi_error *halay_xla_allreduce(struct hlx_ffi_frame *frame)
{
    return handle(frame, ALLREDUCE);
}

struct hlx_ffi_error *halay_xla_allgather(struct hlx_ffi_frame *frame)
{
    return handle(frame, ALLGATHER);
}

struct hlx_ffi_error *halay_xla_broadcast(struct hlx_ffi_frame *frame)
{
    return handle(frame, BROADCAST);
}

struct hlx_ffi_error *halay_xla_reducescatter(struct hlx_ffi_frame *frame)
{
    return handle(frame, REDUCE_SCATTER);
}

struct hlx_ffi_error *halay_xla_alltoall(struct hlx_ffi_frame *frame)
{
    return handle(frame, ALLTOALL);
}
