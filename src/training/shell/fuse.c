/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuse.c - tensors packed one behind the other, and the mark after them.
 *
 * The mark is elements of the tensors' own type. Every rank sets them to the operation's neutral
 * value; a void rank sets another, which the reduced value shows for any number of void ranks. So
 * the call that carries the tensors also tells whether all ranks had them.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "trainer.h"

#define BUFFER_ALIGN 4096

static int buffer_grow(halay_trainer_t *trainer, struct hlt_buffer *buffer, uint32_t memory,
                       size_t bytes)
{
    size_t room = (bytes + BUFFER_ALIGN - 1) / BUFFER_ALIGN * BUFFER_ALIGN;
    if (bytes <= buffer->bytes && buffer->kind == memory)
        return 0;
    char *grown =
        memory ? hlt_memory_alloc(trainer, memory, room) : aligned_alloc(BUFFER_ALIGN, room);
    int rc = grown ? hlt_memory_zero(trainer, memory, grown, room) /* a void rank sends it */
                   : HALAY_ENOMEM;
    if (rc) {
        hlt_memory_free(trainer, memory, grown);
        return rc;
    }
    hlt_memory_free(trainer, buffer->kind, buffer->memory);
    *buffer =
        (struct hlt_buffer){.memory = grown, .marks = buffer->marks, .kind = memory, .bytes = room};
    return 0;
}

/* One of this kind; else one that is not made yet; else any that is not in use. */
static struct hlt_buffer *buffer_choose(halay_trainer_t *trainer, uint32_t memory)
{
    struct hlt_buffer *found = NULL;
    for (int i = HLT_BUFFERS; i-- > 0;) {
        struct hlt_buffer *buffer = &trainer->fusion.buffers[i];
        int better = !found || (found->kind != memory && !buffer->bytes);
        if (!buffer->used && (better || (buffer->bytes && buffer->kind == memory)))
            found = buffer;
    }
    return found;
}

int hlt_fuse_buffer(halay_trainer_t *trainer, uint32_t memory, size_t bytes, int *buffer)
{
    struct hlt_buffer *chosen = buffer_choose(trainer, memory);
    if (!chosen)
        return HALAY_EAGAIN;
    int rc = buffer_grow(trainer, chosen, memory, bytes);
    if (rc)
        return rc;
    chosen->used = 1;
    *buffer = (int)(chosen - trainer->fusion.buffers);
    return 0;
}

int hlt_fuse_free(const halay_trainer_t *trainer)
{
    int unused = 0;
    for (int i = 0; i < HLT_BUFFERS; i++)
        unused |= !trainer->fusion.buffers[i].used;
    return unused;
}

/* ------------------------------------------------------------------ marks */

/* Writes the value one. */
static void one(char *at, halay_type_t type)
{
    memset(at, 0, halay_type_bytes(type));
    switch (type) {
    case HALAY_FLOAT16:
        memcpy(at, &(uint16_t){0x3c00}, 2);
        break;
    case HALAY_BFLOAT16:
        memcpy(at, &(uint16_t){0x3f80}, 2);
        break;
    case HALAY_FLOAT32:
    case HALAY_COMPLEX64:
        memcpy(at, &(float){1}, 4);
        break;
    case HALAY_FLOAT64:
    case HALAY_COMPLEX128:
        memcpy(at, &(double){1}, 8);
        break;
    case HALAY_INT16:
    case HALAY_UINT16:
        memcpy(at, &(uint16_t){1}, 2);
        break;
    case HALAY_INT32:
    case HALAY_UINT32:
        memcpy(at, &(uint32_t){1}, 4);
        break;
    case HALAY_INT64:
    case HALAY_UINT64:
        memcpy(at, &(uint64_t){1}, 8);
        break;
    default:
        at[0] = 1;
    }
}

/* Writes the mark of a rank that is not void. Such marks reduce to the same value. */
static void neutral(char *at, halay_type_t type, halay_op_t op)
{
    if (op == HALAY_PROD || op == HALAY_MIN || op == HALAY_LAND)
        one(at, type);
    else
        memset(at, op == HALAY_BAND ? (type == HALAY_BOOL ? 1 : 0xff) : 0, halay_type_bytes(type));
}

void hlt_fuse_mark(const halay_trainer_t *trainer, char *at, halay_type_t type, halay_op_t op,
                   int empty)
{
    size_t bytes = halay_type_bytes(type), marks = hlt_fuse_marks(trainer->core.nranks, type);
    for (size_t i = 0; i < marks; i++)
        neutral(at + i * bytes, type, op);
    if (!empty)
        return;
    at += (size_t)trainer->core.rank * marks / (size_t)trainer->core.nranks * bytes;
    if (op == HALAY_SUM || op == HALAY_AVERAGE || op == HALAY_MAX || op == HALAY_LOR ||
        op == HALAY_BOR)
        one(at, type);
    else
        memset(at, 0, bytes);
}

int hlt_fuse_marked(const halay_trainer_t *trainer, const char *at, halay_type_t type,
                    halay_op_t op)
{
    char want[16];
    size_t bytes = halay_type_bytes(type), marks = hlt_fuse_marks(trainer->core.nranks, type);
    assert(bytes <= sizeof(want));
    neutral(want, type, op);
    for (size_t i = 0; i < marks; i++)
        if (memcmp(at + i * bytes, want, bytes))
            return 1;
    return 0;
}
