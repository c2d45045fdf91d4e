/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memory.c - where tensors and fusion buffers are: in the host's memory, which the trainer copies
 * and scales itself, or in a device's, which only that device touches;
 * docs/decisions/fusion.md#0060.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "trainer.h"

enum { MOVES = 2 * HALAY_LIST_PARTS }; /* at once */

void *hlt_memory_alloc(const halay_trainer_t *trainer, uint32_t memory, size_t bytes)
{
    void *address = NULL;
    if (bytes > PTRDIFF_MAX - 64)
        return NULL;
    if (memory == HALAY_MEMORY_HOST)
        return aligned_alloc(64, (bytes + 64) / 64 * 64);
    return halay_local_alloc(trainer->context, memory, bytes, &address) ? NULL : address;
}

void hlt_memory_free(const halay_trainer_t *trainer, uint32_t memory, void *address)
{
    if (memory == HALAY_MEMORY_HOST)
        free(address);
    else if (address)
        halay_local_free(trainer->context, memory, address);
}

/* Starts moves: before the next call, or after one if there is a mark. */
static int moves_start(const halay_trainer_t *trainer, uint32_t memory, const halay_move_t moves[],
                       size_t nmoves, halay_mark_t *mark)
{
    if (!nmoves)
        return 0;
    return mark ? halay_local_start(trainer->context, memory, moves, nmoves,
                                    trainer->core.deadline_ns / 4, mark)
                : halay_local_precede(trainer->data, memory, moves, nmoves);
}

int hlt_memory_move(const halay_trainer_t *trainer, uint32_t memory, void *out, const void *in,
                    size_t count, halay_type_t type, double factor, halay_mark_t *mark)
{
    const halay_move_t move = {
        .dst = out, .src = in, .count = count, .type = type, .factor = factor};
    if (!count || (out == in && factor == 1))
        return 0;
    if (memory != HALAY_MEMORY_HOST)
        return moves_start(trainer, memory, &move, 1, mark);
    if (factor != 1)
        return halay_scale(out, in, count, type, factor);
    memcpy(out, in, count * halay_type_bytes(type));
    return 0;
}

int hlt_memory_carry(const halay_trainer_t *trainer, uint32_t memory, void *to, const void *from,
                     size_t bytes, uint32_t way, halay_mark_t *mark)
{
    const halay_move_t move = {to, from, bytes, HALAY_UINT8, way, 1};
    return moves_start(trainer, memory, &move, 1, mark);
}

int hlt_memory_zero(const halay_trainer_t *trainer, uint32_t memory, void *address, size_t bytes)
{
    if (memory == HALAY_MEMORY_HOST) {
        memset(address, 0, bytes);
        return 0;
    }
    void *zeros = calloc(1, bytes ? bytes : 1);
    const halay_move_t move = {address, zeros, bytes, HALAY_UINT8, HALAY_FROM_HOST, 1};
    int rc =
        zeros ? halay_local_moves(trainer->context, memory, &move, 1, trainer->core.deadline_ns / 4)
              : HALAY_ENOMEM;
    free(zeros);
    return rc;
}

/* Packs or unpacks in a device's memory. */
static int device_copy(halay_trainer_t *trainer, uint32_t memory, char *buffer,
                       const struct hlt_list *tensors, int pack, halay_mark_t *mark)
{
    halay_move_t moves[MOVES];
    size_t nmoves = 0;
    for (const struct hlt_tensor *tensor = tensors->head; tensor; tensor = tensor->next) {
        size_t bytes = tensor->count * halay_type_bytes(tensor->type);
        if (!bytes)
            continue;
        moves[nmoves++] = (halay_move_t){.dst = pack ? buffer : tensor->out,
                                         .src = pack ? tensor->in : buffer,
                                         .count = tensor->count,
                                         .type = tensor->type,
                                         .factor = pack ? tensor->prescale : tensor->postscale};
        buffer += bytes;
        trainer->core.counters.copied_bytes += bytes;
        if (nmoves < MOVES)
            continue;
        int rc = moves_start(trainer, memory, moves, nmoves, mark);
        if (rc)
            return rc;
        nmoves = 0;
    }
    return moves_start(trainer, memory, moves, nmoves, mark);
}

static void host_copy(halay_trainer_t *trainer, char *buffer, const struct hlt_list *tensors,
                      int pack)
{
    for (const struct hlt_tensor *tensor = tensors->head; tensor; tensor = tensor->next) {
        size_t bytes = tensor->count * halay_type_bytes(tensor->type);
        double factor = pack ? tensor->prescale : tensor->postscale;
        const void *from = pack ? tensor->in : buffer;
        void *to = pack ? buffer : tensor->out;
        if (!bytes)
            continue;
        if (factor != 1)
            halay_scale(to, from, tensor->count, tensor->type, factor);
        else
            memcpy(to, from, bytes);
        buffer += bytes;
        trainer->core.counters.copied_bytes += bytes;
    }
}

int hlt_fuse_copy(halay_trainer_t *trainer, uint32_t memory, char *buffer,
                  const struct hlt_list *tensors, int pack, halay_mark_t *mark)
{
    if (memory != HALAY_MEMORY_HOST)
        return device_copy(trainer, memory, buffer, tensors, pack, mark);
    host_copy(trainer, buffer, tensors, pack);
    return 0;
}

/* The zeros of a stand-in: its input, and its output unless the call is in place. */
static int stand_in_fill(halay_trainer_t *trainer, struct hlt_tensor *tensor)
{
    size_t bytes = tensor->count * halay_type_bytes(tensor->type);
    char *zeros = hlt_memory_alloc(trainer, tensor->memory, 2 * bytes);
    if (!zeros || hlt_memory_zero(trainer, tensor->memory, zeros, 2 * bytes)) {
        hlt_memory_free(trainer, tensor->memory, zeros);
        return HALAY_ENOMEM;
    }
    tensor->result = zeros;
    tensor->in = zeros;
    tensor->out = tensor->in_place ? zeros : zeros + bytes;
    return 0;
}

void hlt_stand_ins_fill(halay_trainer_t *trainer)
{
    struct hlt_core *core = &trainer->core;
    struct hlt_tensor *next;
    for (struct hlt_tensor *t = core->ready.head; t && core->rounds.stand_ins; t = next) {
        next = t->next;
        if (!t->stand_in || t->result)
            continue;
        core->rounds.stand_ins--;
        if (!stand_in_fill(trainer, t))
            continue;
        hlt_tensor_list_remove(&core->ready, t);
        free(t);
        hlt_core_leave_all(core, HALAY_ENOMEM, HLT_NO_ZEROS);
    }
}
