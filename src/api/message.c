/* SPDX-License-Identifier: Apache-2.0 */
/* message.c - the public calls for messages with tags: run/message.c, wire/message.c. */
#include <stdio.h>
#include <stdlib.h>

#include "api/api.h"
#include "base/context.h"
#include "exec/exec.h"
#include "exec/record.h"
#include "fault/fault.h"
#include "run/pair.h"

struct halay_message { /* taken by halay_message_take() */
    halay_comm_t *comm;
    struct hly_early *early; /* in comm->messages->taken */
};

/* ---------------------------------------------------------------- arguments */

static int refuse(halay_comm_t *comm, const char *function, const char *why)
{
    char text[320];
    snprintf(text, sizeof(text), "%s: %s", function, why);
    return hly_comm_refuse(comm, HALAY_EINVAL, text);
}

/* Checks what both ends have; the context is locked. */
static int check(halay_comm_t *comm, const char *function, bool any, int rank, int tag)
{
    char why[160];
    const bool ranked = rank >= 0 ? rank < comm->nranks : any && rank == HALAY_ANY_SOURCE;
    if (comm->freed)
        return hly_comm_refuse(comm, HALAY_ESTATE, "the communicator was freed on this rank");
    if (!ranked) {
        snprintf(why, sizeof(why), "there is no rank %d: there are ranks 0 to %d", rank,
                 comm->nranks - 1);
        return refuse(comm, function, why);
    }
    if (tag < 0 && !(any && tag == HALAY_ANY_TAG)) {
        snprintf(why, sizeof(why), "tag %d: a tag is 0 or more", tag);
        return refuse(comm, function, why);
    }
    return hly_messages_make(comm) ? hly_comm_refuse(comm, HALAY_ENOMEM, "no memory for messages")
                                   : HALAY_OK;
}

static int check_buffer(halay_comm_t *comm, const char *function, const void *buffer, size_t count,
                        halay_type_t type)
{
    struct hly_memory_seen seen = {.kind = HALAY_MEMORY_HOST};
    char why[224];
    const size_t each = halay_type_bytes(type);
    if (!each || (count && !buffer) || count > SIZE_MAX / 2 / each)
        return refuse(comm, function,
                      !each    ? "there is no such type"
                      : buffer ? "the count is beyond the address space"
                               : "the buffer is NULL");
    const void *const at[2] = {buffer, NULL};
    if (comm->context->ndevices > 1 &&
        hly_memory_look(comm->context, at, (const size_t[2]){count * each, 0}, &seen, why,
                        sizeof(why)))
        return refuse(comm, function, why);
    return seen.kind == HALAY_MEMORY_HOST
               ? HALAY_OK
               : hly_comm_refuse(comm, HALAY_EUNSUPPORTED,
                                 "messages with tags are sent from host memory, and received "
                                 "there: copy the buffer, or send and receive it without a tag");
}

/* ---------------------------------------------------------------- send and receive */

static int send_begin(const char *function, const void *buffer, size_t count, halay_type_t type,
                      int to, int tag, halay_send_mode_t mode, halay_comm_t *comm,
                      halay_request_t **out)
{
    int rc = check(comm, function, false, to, tag);
    rc = rc ? rc : check_buffer(comm, function, buffer, count, type);
    rc = rc ? rc : hly_message_refused(comm);
    if (rc)
        return rc;
    halay_request_t *r = hly_message_request(comm, HLY_MESSAGE_SEND, (void *)(uintptr_t)buffer,
                                             count * halay_type_bytes(type), (uint8_t)type);
    const bool synchronous = mode == HALAY_SEND_SYNCHRONOUS;
    if (r && to == comm->rank)
        rc = hly_message_send_itself(r, tag, synchronous);
    else if (r)
        rc = hly_message_send(r, to, tag, synchronous);
    if (r && rc) {
        r->state = HLY_COMPLETE;
        hly_request_release(r);
    }
    if (!r || rc)
        return hly_comm_refuse(comm, rc ? rc : HALAY_ENOMEM, "a message could not be begun");
    hly_hand_on(comm->context);
    *out = r;
    return HALAY_OK;
}

static int receive_begin(const char *function, void *buffer, size_t count, halay_type_t type,
                         int from, int tag, halay_comm_t *comm, halay_request_t **out)
{
    int rc = check(comm, function, true, from, tag);
    rc = rc ? rc : check_buffer(comm, function, buffer, count, type);
    if (!rc && !hly_tags_message_for(&comm->messages->tags, from, tag))
        rc = hly_message_refused(comm); /* what has come can be received all the same */
    if (rc)
        return rc;
    halay_request_t *r = hly_message_request(comm, HLY_MESSAGE_RECV, buffer,
                                             count * halay_type_bytes(type), (uint8_t)type);
    if (!r)
        return hly_comm_refuse(comm, HALAY_ENOMEM, "a receive could not be begun");
    hly_message_receive(r, from, tag);
    hly_hand_on(comm->context);
    *out = r;
    return HALAY_OK;
}

static void fill(const halay_request_t *r, halay_envelope_t *envelope)
{
    const struct hly_message *m = &r->message;
    const bool came = m->is == HLY_MESSAGE_RECV && !m->cancelled;
    if (!envelope)
        return;
    const halay_envelope_t is = {.size = envelope->size,
                                 .source = came ? m->came_from : -1,
                                 .tag = came ? m->came_tag : -1,
                                 .cancelled = m->cancelled,
                                 .bytes = came ? m->came_bytes : 0};
    memcpy(envelope, &is, is.size < sizeof(is) ? is.size : sizeof(is));
}

/* Waits for it, says what has come, and releases it. The deadline counts from now on. */
static int finish(halay_request_t *r, halay_envelope_t *envelope)
{
    hly_message_await(r);
    hly_wait(r);
    fill(r, envelope);
    return hly_end(r);
}

int halay_message_isend(const void *buffer, size_t count, halay_type_t type, int to, int tag,
                        halay_send_mode_t mode, halay_comm_t *handle, halay_request_t **request)
{
    halay_comm_t *comm;
    halay_request_t *r = NULL;
    int rc = hly_comm_enter(handle, &comm);
    if (rc)
        return rc;
    rc = request ? send_begin("message_isend", buffer, count, type, to, tag, mode, comm, &r)
                 : refuse(comm, "message_isend", "there is no place for the request (NULL)");
    if (r)
        *request = hly_request_handle(r);
    hly_unlock(comm->context);
    return rc;
}

int halay_message_irecv(void *buffer, size_t count, halay_type_t type, int from, int tag,
                        halay_comm_t *handle, halay_request_t **request)
{
    halay_comm_t *comm;
    halay_request_t *r = NULL;
    int rc = hly_comm_enter(handle, &comm);
    if (rc)
        return rc;
    rc = request ? receive_begin("message_irecv", buffer, count, type, from, tag, comm, &r)
                 : refuse(comm, "message_irecv", "there is no place for the request (NULL)");
    if (r)
        *request = hly_request_handle(r);
    hly_unlock(comm->context);
    return rc;
}

int halay_message_send(const void *buffer, size_t count, halay_type_t type, int to, int tag,
                       halay_send_mode_t mode, halay_comm_t *handle)
{
    halay_comm_t *comm;
    halay_request_t *r = NULL;
    int rc = hly_comm_enter(handle, &comm);
    if (rc)
        return rc;
    rc = send_begin("message_send", buffer, count, type, to, tag, mode, comm, &r);
    rc = r ? finish(r, NULL) : rc;
    hly_unlock(comm->context);
    return rc;
}

int halay_message_recv(void *buffer, size_t count, halay_type_t type, int from, int tag,
                       halay_comm_t *handle, halay_envelope_t *envelope)
{
    halay_comm_t *comm;
    halay_request_t *r = NULL;
    int rc = hly_comm_enter(handle, &comm);
    if (rc)
        return rc;
    rc = receive_begin("message_recv", buffer, count, type, from, tag, comm, &r);
    rc = r ? finish(r, envelope) : rc;
    hly_unlock(comm->context);
    return rc;
}

/* ---------------------------------------------------------------- requests */

static int lock_request(halay_request_t *handle, halay_request_t **r)
{
    int rc = hly_request_lock(handle, r);
    if (rc || (*r)->state != HLY_IDLE)
        return rc;
    return hly_request_refuse(*r, HALAY_ESTATE,
                              "wait or test of a persistent request that was not started");
}

int halay_message_wait(halay_request_t *handle, halay_envelope_t *envelope)
{
    halay_request_t *r;
    int rc = lock_request(handle, &r);
    if (rc)
        return rc;
    halay_context_t *ctx = r->context;
    ctx->now_ns = hly_about_now_ns(); /* for exec/listen.h: the call was made earlier */
    rc = finish(r, envelope);
    hly_unlock(ctx);
    return rc;
}

int halay_message_test(halay_request_t *handle, halay_envelope_t *envelope)
{
    halay_request_t *r;
    int rc = lock_request(handle, &r);
    if (rc)
        return rc;
    halay_context_t *ctx = r->context;
    if (r->state != HLY_COMPLETE)
        hly_progress(ctx);
    rc = r->state == HLY_COMPLETE ? finish(r, envelope) : HALAY_INPROGRESS;
    hly_unlock(ctx);
    return rc;
}

int halay_message_is_done(halay_request_t *handle)
{
    halay_request_t *r;
    if (hly_request_lock(handle, &r))
        return 0;
    const int done = r->state == HLY_COMPLETE || r->state == HLY_IDLE;
    hly_unlock(r->context);
    return done;
}

int halay_message_cancel(halay_request_t *handle)
{
    halay_request_t *r;
    int rc = hly_request_lock(handle, &r);
    if (rc)
        return rc;
    if (r->message.is == HLY_MESSAGE_RECV && r->message.waits) {
        r->message.cancelled = true;
        hly_message_complete(r, HALAY_OK);
    }
    hly_unlock(r->context);
    return HALAY_OK;
}

/* ---------------------------------------------------------------- probe */

struct wanted {
    halay_comm_t *comm;
    int from, tag;
    uint64_t deadline_ns;
    struct hly_early *early;
    struct hly_waited waited;
    bool over;
};

static bool is_there(void *arg)
{
    struct wanted *w = arg;
    struct hly_tag *at = hly_tags_message_for(&w->comm->messages->tags, w->from, w->tag);
    w->early = at ? HLY_OF(at, struct hly_early, at) : NULL;
    w->over = w->comm->broken.is || w->comm->context->lost || w->waited.why ||
              (w->deadline_ns && w->comm->context->now_ns >= w->deadline_ns);
    return at || w->over;
}

/* An error: ranks wait for each other, and this one is one of them. */
static int wait_for(struct wanted *w)
{
    halay_context_t *ctx = w->comm->context;
    struct hly_verdict_wire v;
    if (is_there(w))
        return HALAY_OK;
    hly_waited_begin(ctx, &w->waited);
    hly_wait_until(ctx, is_there, w);
    const bool deadlock = w->waited.why && !w->early;
    if (deadlock) {
        hly_verdict_init(&v, w->comm, HLY_CAUSE_DEADLOCK, HALAY_ETIMEOUT, -1);
        snprintf(v.detail, sizeof(v.detail), "%s", w->waited.why);
        hly_failure_init(&w->comm->last, w->comm, w->comm->next_sequence, &v);
        w->comm->last.alone = w->comm->failed = true;
    }
    hly_waited_end(ctx, &w->waited);
    w->waited.why = NULL;
    return deadlock ? HALAY_ETIMEOUT : HALAY_OK;
}

static int look_for(struct wanted *w, int *found, const char *function)
{
    char why[160];
    int rc = check(w->comm, function, true, w->from, w->tag);
    if (rc)
        return rc;
    if (found && !is_there(w)) {
        hly_progress(w->comm->context);
        is_there(w);
    } else if (!found) {
        w->deadline_ns = hly_now_ns() + w->comm->deadline_ns;
        w->waited = (struct hly_waited){
            .comm = w->comm, .from = w->from, .tag = w->tag, .deadline_ns = w->deadline_ns};
        rc = wait_for(w);
    }
    if (rc || (!w->early && w->over && (rc = hly_message_refused(w->comm))))
        return rc;
    if (!w->early && !found) {
        snprintf(why, sizeof(why),
                 "%s: no such message has come by the deadline of %.1f s (HALAY_DEADLINE)",
                 function, (double)w->comm->deadline_ns * 1e-9);
        return hly_comm_refuse(w->comm, HALAY_ETIMEOUT, why);
    }
    if (found)
        *found = w->early != NULL;
    return HALAY_OK;
}

static void fill_early(const struct hly_early *e, halay_envelope_t *envelope)
{
    if (!e || !envelope)
        return;
    const halay_envelope_t is = {
        .size = envelope->size, .source = e->at.source, .tag = e->at.tag, .bytes = e->bytes};
    memcpy(envelope, &is, is.size < sizeof(is) ? is.size : sizeof(is));
}

int halay_message_probe(int from, int tag, halay_comm_t *handle, int *found,
                        halay_envelope_t *envelope)
{
    struct wanted w = {.from = from, .tag = tag};
    int rc = hly_comm_enter(handle, &w.comm);
    if (rc)
        return rc;
    rc = look_for(&w, found, "message_probe");
    if (!rc)
        fill_early(w.early, envelope);
    hly_unlock(w.comm->context);
    return rc;
}

int halay_message_take(int from, int tag, halay_comm_t *handle, int *found,
                       halay_message_t **message, halay_envelope_t *envelope)
{
    struct wanted w = {.from = from, .tag = tag};
    struct halay_message *taken = NULL;
    if (!message)
        return hly_comm_reject(hly_comm_of(handle), HALAY_EINVAL,
                               "message_take: there is no place for the message (NULL)");
    int rc = hly_comm_enter(handle, &w.comm);
    if (rc)
        return rc;
    rc = look_for(&w, found, "message_take");
    if (!rc && w.early && !(taken = malloc(sizeof(*taken))))
        rc = hly_comm_refuse(w.comm, HALAY_ENOMEM, "no memory to take a message");
    if (taken) {
        hly_tags_remove(&w.early->at);
        hly_link_append(&w.comm->messages->taken, &w.early->at.all);
        *taken = (struct halay_message){.comm = w.comm, .early = w.early};
        *message = taken;
        fill_early(w.early, envelope);
    }
    hly_unlock(w.comm->context);
    return rc;
}

int halay_message_irecv_taken(void *buffer, size_t count, halay_type_t type,
                              halay_message_t *message, halay_request_t **request)
{
    halay_comm_t *comm = message ? message->comm : NULL;
    if (!request)
        return hly_comm_reject(comm, HALAY_EINVAL,
                               "message_irecv_taken: there is no place for the request (NULL)");
    int rc = comm ? hly_context_enter(comm->context) : HALAY_EINVAL;
    if (rc)
        return rc;
    rc = check_buffer(comm, "message_irecv_taken", buffer, count, type);
    halay_request_t *r = rc ? NULL
                            : hly_message_request(comm, HLY_MESSAGE_RECV, buffer,
                                                  count * halay_type_bytes(type), (uint8_t)type);
    if (!rc && !r)
        rc = hly_comm_refuse(comm, HALAY_ENOMEM, "a receive could not be begun");
    if (r) {
        hly_tags_remove(&message->early->at);
        hly_message_match(r, message->early);
        hly_hand_on(comm->context);
        *request = hly_request_handle(r);
        free(message);
    }
    hly_unlock(comm->context);
    return rc;
}
