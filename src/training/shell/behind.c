/* SPDX-License-Identifier: Apache-2.0 */
/*
 * behind.c - tensors that wait for a stream of the program: to other ranks, and to all else
 * here, they are submitted when the stream has come to where it ended at the submission. Nobody
 * waits for that: the mark is asked for in each step.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "trainer.h"

#define LOOK_NS UINT64_C(50000) /* a mark wakes nobody */

static struct hlt_behind *behind_new(halay_trainer_t *trainer)
{
    struct hlt_behind *behind = trainer->behinds.unused;
    if (!behind)
        return calloc(1, sizeof(*behind));
    trainer->behinds.unused = behind->next;
    *behind = (struct hlt_behind){.next = NULL};
    return behind;
}

static void behind_give(halay_trainer_t *trainer, struct hlt_behind *behind)
{
    assert(!behind->out);
    behind->next = trainer->behinds.unused;
    trainer->behinds.unused = behind;
}

/* Where too many marks are out, it is made later: behind all that is in the stream then. */
static int mark(halay_trainer_t *trainer, struct hlt_behind *behind)
{
    int rc = halay_local_mark(trainer->context, &behind->stream, &behind->mark);
    behind->out = !rc;
    return rc;
}

static void unmark(halay_trainer_t *trainer, struct hlt_behind *behind)
{
    if (behind->out)
        halay_local_unmark(trainer->context, &behind->mark);
    behind->out = 0;
}

/* Mutex held. The mark that the name waits for, taken out of the list; or NULL. */
static struct hlt_behind *after_take(halay_trainer_t *trainer, uint64_t name)
{
    struct hlt_behind **at = &trainer->behinds.after, *found;
    while (*at && (*at)->name != name)
        at = &(*at)->next;
    found = *at;
    if (found) {
        *at = found->next;
        trainer->behinds.nafters--;
    }
    return found;
}

int halay_trainer_after(halay_trainer_t *trainer, const char *name, const halay_stream_t *stream)
{
    if (!trainer || !name || !stream || stream->size < sizeof(*stream))
        return HALAY_EINVAL;
    int rc = hlt_trainer_enter(trainer);
    if (rc)
        return rc;
    struct hlt_behind *old = after_take(trainer, hlt_tensor_hash(name));
    struct hlt_behind *behind = trainer->behinds.nafters < HLT_AFTERS ? behind_new(trainer) : NULL;
    pthread_mutex_unlock(&trainer->mutex);
    if (old)
        unmark(trainer, old);
    rc = HALAY_ENOMEM;
    if (behind) {
        behind->name = hlt_tensor_hash(name);
        behind->stream = *stream;
        rc = mark(trainer, behind);
        if (rc == HALAY_EDEVICE) { /* all ranks are told so, by the tensor's call */
            behind->over = 1;
            behind->code = rc;
        }
        rc = rc == HALAY_EAGAIN || rc == HALAY_EDEVICE ? HALAY_OK : rc;
    }
    pthread_mutex_lock(&trainer->mutex);
    if (old)
        behind_give(trainer, old);
    if (!rc) {
        behind->next = trainer->behinds.after;
        trainer->behinds.after = behind;
        trainer->behinds.nafters++;
    } else if (behind) {
        behind_give(trainer, behind);
    }
    return hlt_trainer_leave(trainer, rc);
}

int hlt_trainer_lose(halay_trainer_t *trainer, int code)
{
    if (code != HALAY_EDEVICE || hlt_trainer_enter(trainer))
        return code;
    trainer->lost = 1;
    hlt_trainer_leave(trainer, code);
    halay_context_wake(trainer->context);
    return code;
}

struct hlt_behind *hlt_behind_take(halay_trainer_t *trainer, const char *name, size_t ntensors)
{
    struct hlt_behind *behind =
        trainer->behinds.after ? after_take(trainer, hlt_tensor_hash(name)) : NULL;
    if (behind)
        behind->refs = ntensors;
    return behind;
}

void hlt_behind_drop(halay_trainer_t *trainer, struct hlt_behind *behind)
{
    if (!behind || --behind->refs)
        return;
    pthread_mutex_unlock(&trainer->mutex);
    unmark(trainer, behind);
    pthread_mutex_lock(&trainer->mutex);
    behind_give(trainer, behind);
}

/* Returns whether the stream has come to it, or failed. */
static int look(halay_trainer_t *trainer, struct hlt_behind *behind)
{
    int rc = behind->over ? behind->code : HALAY_OK;
    if (!behind->over && !behind->out)
        rc = mark(trainer, behind);
    if (!behind->over && behind->out)
        rc = halay_local_marked(trainer->context, &behind->mark, 0);
    if (rc == HALAY_INPROGRESS || rc == HALAY_EAGAIN)
        return 0;
    behind->over = 1;
    behind->code = rc;
    unmark(trainer, behind);
    return 1;
}

static void leave(halay_trainer_t *trainer, struct hlt_tensor *tensor)
{
    struct hlt_behind *behind = tensor->behind;
    hlt_tensor_list_remove(&trainer->behinds.list, tensor);
    tensor->unready = behind->over ? behind->code : HALAY_OK;
    tensor->behind = NULL;
    pthread_mutex_lock(&trainer->mutex);
    hlt_behind_drop(trainer, behind);
    pthread_mutex_unlock(&trainer->mutex);
}

/* Other ranks have not heard of it from this one. */
static void expire(halay_trainer_t *trainer, struct hlt_tensor *tensor)
{
    char text[HLT_TEXT_BYTES + HALAY_TENSOR_NAME_MAX];
    snprintf(text, sizeof(text),
             "tensor '%s': the program's stream did not come to it in %.1f s: what stands there "
             "does not end. Does it wait for what is enqueued later? (HALAY_DEADLINE)",
             tensor->name, (double)trainer->core.deadline_ns / 1e9);
    hlt_tensor_done(trainer, tensor, HALAY_ETIMEOUT, text);
}

uint64_t hlt_behind_step(halay_trainer_t *trainer)
{
    struct hlt_tensor *tensor = trainer->behinds.list.head, *next;
    int ends = trainer->core.leaving || trainer->core.broken;
    if (!tensor)
        return 0;
    halay_context_progress(trainer->context, 0);
    uint64_t now_ns = hlt_trainer_now_ns();
    for (; tensor; tensor = next) {
        next = tensor->next;
        int late = tensor->submit_ns + trainer->core.deadline_ns <= now_ns;
        int over = look(trainer, tensor->behind);
        if (!over && !ends && !late)
            continue;
        leave(trainer, tensor);
        if (over || ends)
            hlt_tensor_list_push(&trainer->core.pending, tensor);
        else
            expire(trainer, tensor);
    }
    return trainer->behinds.list.head ? now_ns + LOOK_NS : 0;
}

void hlt_behinds_free(halay_trainer_t *trainer)
{
    struct hlt_behind *behind;
    while ((behind = trainer->behinds.after) != NULL) {
        trainer->behinds.after = behind->next;
        unmark(trainer, behind);
        free(behind);
    }
    while ((behind = trainer->behinds.unused) != NULL) {
        trainer->behinds.unused = behind->next;
        free(behind);
    }
}
