/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memory.c - where tensors and fusion buffers are: in the host's memory, which the trainer copies
 * and scales itself, or in a device's, which only that device touches; docs/decisions/0060.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "trainer.h"

enum { MOVES = 2 * HALAY_LIST_PARTS }; /* at once */

uint32_t hlt_announcement_memory(const struct hlt_announcement *says)
{
    return (uint32_t)(says->what >> HLT_MEMORY_SHIFT & 0xff);
}

uint32_t hlt_agreed_memory(const struct hlt_announcement *says)
{
    uint32_t memory = hlt_announcement_memory(says);
    return memory == HLT_MEMORY_ANY ? HALAY_MEMORY_HOST : memory;
}

static uint64_t without_memory(uint64_t what)
{
    return what & ~(UINT64_C(0xff) << HLT_MEMORY_SHIFT);
}

void hlt_announcement_settle(struct hlt_announcement *says, const struct hlt_announcement *other)
{
    if (hlt_announcement_memory(says) == HLT_MEMORY_ANY)
        says->what = other->what;
}

int hlt_memory_alike(const struct hlt_announcement *a, const struct hlt_announcement *b)
{
    return a->what == b->what || (without_memory(a->what) == without_memory(b->what) &&
                                  (hlt_announcement_memory(a) == HLT_MEMORY_ANY ||
                                   hlt_announcement_memory(b) == HLT_MEMORY_ANY));
}

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

static int moves_make(const halay_trainer_t *trainer, uint32_t memory, const halay_move_t moves[],
                      size_t nmoves)
{
    uint64_t patience_ns = trainer->deadline_ns / 4;
    return nmoves ? halay_local_moves(trainer->context, memory, moves, nmoves, patience_ns) : 0;
}

int hlt_memory_move(const halay_trainer_t *trainer, uint32_t memory, void *out, const void *in,
                    size_t count, halay_type_t type, double factor)
{
    const halay_move_t move = {
        .dst = out, .src = in, .count = count, .type = type, .factor = factor};
    if (!count || (out == in && factor == 1))
        return 0;
    if (memory != HALAY_MEMORY_HOST)
        return moves_make(trainer, memory, &move, 1);
    if (factor != 1)
        return halay_scale(out, in, count, type, factor);
    memcpy(out, in, count * halay_type_bytes(type));
    return 0;
}

int hlt_memory_down(const halay_trainer_t *trainer, uint32_t memory, void *host, const void *from,
                    size_t bytes)
{
    const halay_move_t move = {host, from, bytes, HALAY_UINT8, HALAY_TO_HOST, 1};
    return moves_make(trainer, memory, &move, 1);
}

int hlt_memory_up(const halay_trainer_t *trainer, uint32_t memory, void *to, const void *host,
                  size_t bytes)
{
    const halay_move_t move = {to, host, bytes, HALAY_UINT8, HALAY_FROM_HOST, 1};
    return moves_make(trainer, memory, &move, 1);
}

int hlt_memory_zero(const halay_trainer_t *trainer, uint32_t memory, void *address, size_t bytes)
{
    if (memory == HALAY_MEMORY_HOST) {
        memset(address, 0, bytes);
        return 0;
    }
    void *zeros = calloc(1, bytes ? bytes : 1);
    int rc = zeros ? hlt_memory_up(trainer, memory, address, zeros, bytes) : HALAY_ENOMEM;
    free(zeros);
    return rc;
}

/* Packs or unpacks in a device's memory. */
static int device_copy(halay_trainer_t *trainer, uint32_t memory, char *buffer,
                       const struct hlt_list *tensors, int pack)
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
        trainer->counters.copied_bytes += bytes;
        if (nmoves < MOVES)
            continue;
        int rc = moves_make(trainer, memory, moves, nmoves);
        if (rc)
            return rc;
        nmoves = 0;
    }
    return moves_make(trainer, memory, moves, nmoves);
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
        trainer->counters.copied_bytes += bytes;
    }
}

int hlt_fuse_pack(halay_trainer_t *trainer, uint32_t memory, char *to,
                  const struct hlt_list *tensors)
{
    if (memory != HALAY_MEMORY_HOST)
        return device_copy(trainer, memory, to, tensors, 1);
    host_copy(trainer, to, tensors, 1);
    return 0;
}

int hlt_fuse_unpack(halay_trainer_t *trainer, uint32_t memory, char *from,
                    const struct hlt_list *tensors)
{
    if (memory != HALAY_MEMORY_HOST)
        return device_copy(trainer, memory, from, tensors, 0);
    host_copy(trainer, from, tensors, 0);
    return 0;
}
