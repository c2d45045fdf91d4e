/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tensors.c - the tensors that are out: by ticket (an index and a generation, so that a stale
 * ticket is never taken for a new tensor) and by name. Memory grows to what was out at once, and is
 * reused.
 */
#include <assert.h>
#include <stdlib.h>

#include "trainer.h"

static int chunk_add(halay_trainer_t *trainer)
{
    if (trainer->tensors.nchunks == HLT_CHUNKS)
        return HALAY_ENOMEM;
    struct hlt_tensor *chunk = calloc(HLT_CHUNK_TENSORS, sizeof(*chunk));
    if (!chunk)
        return HALAY_ENOMEM;
    for (size_t i = 0; i < HLT_CHUNK_TENSORS; i++) {
        chunk[i].index = (uint32_t)(trainer->tensors.nchunks * HLT_CHUNK_TENSORS + i);
        chunk[i].generation = 1;
        chunk[i].next = trainer->tensors.unused;
        trainer->tensors.unused = &chunk[i];
    }
    trainer->tensors.chunks[trainer->tensors.nchunks++] = chunk;
    return 0;
}

struct hlt_tensor *hlt_tensor_take(halay_trainer_t *trainer)
{
    if (!trainer->tensors.unused && chunk_add(trainer))
        return NULL;
    struct hlt_tensor *tensor = trainer->tensors.unused;
    trainer->tensors.unused = tensor->next;
    tensor->next = NULL;
    return tensor;
}

void hlt_tensor_give(halay_trainer_t *trainer, struct hlt_tensor *tensor)
{
    assert(!tensor->item);
    free(tensor->text);
    hlt_memory_free(trainer, tensor->memory, tensor->result);
    free(tensor->rows);
    if (tensor->grouped && !--tensor->grouped->refs)
        free(tensor->grouped);
    tensor->grouped = NULL;
    tensor->text = NULL;
    tensor->result = NULL;
    tensor->rows = NULL;
    assert(!tensor->call);
    tensor->done = tensor->wanted = 0;
    tensor->name[0] = 0;
    tensor->generation++;
    tensor->next = trainer->tensors.unused;
    trainer->tensors.unused = tensor;
}

halay_ticket_t hlt_tensor_ticket(const struct hlt_tensor *tensor)
{
    return tensor->generation << 16 | tensor->index;
}

struct hlt_tensor *hlt_tensor_find(halay_trainer_t *trainer, halay_ticket_t ticket)
{
    size_t index = ticket & 0xffff;
    if (index / HLT_CHUNK_TENSORS >= trainer->tensors.nchunks)
        return NULL;
    struct hlt_tensor *tensor =
        &trainer->tensors.chunks[index / HLT_CHUNK_TENSORS][index % HLT_CHUNK_TENSORS];
    /* Only a tensor that is out has a name. */
    return tensor->name[0] && tensor->generation == ticket >> 16 ? tensor : NULL;
}

/* Stepper, without the mutex. What was ended last in the core: its caller is told. */
static void tell(halay_trainer_t *trainer, struct hlt_tensor *tensor)
{
    if (tensor->stand_in) {
        hlt_memory_free(trainer, tensor->memory, tensor->result);
        free(tensor);
        return;
    }
    uint64_t end_ns = trainer->recording.end_ns;
    if (!end_ns && trainer->recording.on && !trainer->recording.listed)
        end_ns = hlt_trainer_now_ns();

    pthread_mutex_lock(&trainer->mutex);
    assert(!tensor->done);
    if (trainer->recording.timeline && end_ns)
        hlt_timeline_tensor(trainer, tensor, tensor->code, end_ns);
    hlt_tensor_map_remove(&trainer->tensors.names, &tensor->node);
    tensor->done = 1;
    if (tensor->call)
        hlt_tensor_list_push(&trainer->callers.done, tensor);
    trainer->steps.news = 1;
    pthread_mutex_unlock(&trainer->mutex);
}

void hlt_tensors_ended(halay_trainer_t *trainer)
{
    struct hlt_tensor *tensor;
    while ((tensor = hlt_tensor_list_pop(&trainer->core.ended)) != NULL)
        tell(trainer, tensor);
}

void hlt_tensor_done(halay_trainer_t *trainer, struct hlt_tensor *tensor, int code,
                     const char *text)
{
    hlt_tensor_end(&trainer->core, tensor, code, text);
    hlt_tensors_ended(trainer);
}

void hlt_tensors_fail(halay_trainer_t *trainer, struct hlt_list *list, int code, const char *text)
{
    hlt_tensor_list_end(&trainer->core, list, code, text);
    hlt_tensors_ended(trainer);
}

void hlt_tensors_free(halay_trainer_t *trainer)
{
    for (size_t c = 0; c < trainer->tensors.nchunks; c++) {
        for (size_t i = 0; i < HLT_CHUNK_TENSORS; i++) {
            free(trainer->tensors.chunks[c][i].text);
            hlt_memory_free(trainer, trainer->tensors.chunks[c][i].memory,
                            trainer->tensors.chunks[c][i].result);
            free(trainer->tensors.chunks[c][i].rows);
            struct hlt_grouped *grouped = trainer->tensors.chunks[c][i].grouped;
            if (grouped && !--grouped->refs)
                free(grouped);
        }
        free(trainer->tensors.chunks[c]);
    }
}
