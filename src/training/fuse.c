/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuse.c - tensors packed one behind the other, and the mark behind them.
 *
 * The mark is elements of the tensors' own type that every rank sets to the operation's neutral
 * value, and a void rank to another one such that the reduced value shows it, whatever the number
 * of void ranks. So the call that carries the tensors also tells whether all ranks had them.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "trainer.h"

#define SLOT_ALIGN 4096
#define LENT_LEAST 16384 /* bytes of a group; what is shorter gains nothing */
#define MARKS_MOST 16    /* bytes, of a pair */

halay_type_t hly_announcement_type(const struct hly_announcement *says)
{
    return (halay_type_t)(says->what >> 8 & 0xff);
}

halay_op_t hly_announcement_op(const struct hly_announcement *says)
{
    return (halay_op_t)(says->what >> 16 & 0xff);
}

static size_t round_up(size_t bytes)
{
    return (bytes + SLOT_ALIGN - 1) / SLOT_ALIGN * SLOT_ALIGN;
}

static int is_integer(halay_type_t type)
{
    return type <= HALAY_UINT64;
}

/* Sums of marks may wrap: so many ranks share one that they cannot. */
size_t hly_fuse_marks(const halay_trainer_t *trainer, halay_type_t type)
{
    size_t nranks = (size_t)trainer->nranks, bytes = halay_type_bytes(type);
    return bytes == 1 ? nranks / 128 + 1 : bytes == 2 ? nranks / 32768 + 1 : 1;
}

/* An exclusive or forgets an even number of void ranks; an integer's average truncates one. */
static int shows_void(halay_op_t op, halay_type_t type)
{
    switch (op) {
    case HALAY_SUM:
    case HALAY_PROD:
    case HALAY_MIN:
    case HALAY_MAX:
    case HALAY_LAND:
    case HALAY_LOR:
    case HALAY_BAND:
    case HALAY_BOR:
        return 1;
    default:
        return op == HALAY_AVERAGE && !is_integer(type);
    }
}

int hly_fuse_takes(const halay_trainer_t *trainer, const struct hly_announcement *says)
{
    halay_type_t type = hly_announcement_type(says);
    halay_op_t op = hly_announcement_op(says);
    size_t bytes = halay_type_bytes(type), marks = hly_fuse_marks(trainer, type) * bytes;
    if (hly_announcement_kind(says) != HLY_KIND_ALLREDUCE || !shows_void(op, type))
        return 0;
    return marks <= trainer->slot_bytes && says->count <= trainer->slot_bytes / bytes;
}

int hly_fuse_alike(const struct hly_announcement *a, const struct hly_announcement *b)
{
    return a->what == b->what;
}

/* Memory that the other of a pair maps, for all fusion buffers: asked for once. */
static int lend(halay_trainer_t *trainer, struct hly_slot *slot)
{
    const size_t room = round_up(trainer->slot_bytes + MARKS_MOST),
                 i = (size_t)(slot - trainer->slots);
    void *memory = NULL;
    if (!trainer->lent_asked && !halay_mem_alloc(trainer->context, HLY_SLOTS * 2 * room, &memory))
        trainer->lent = memory;
    trainer->lent_asked = 1;
    if (trainer->lent)
        *slot = (struct hly_slot){.memory = trainer->lent + i * 2 * room, .bytes = room, .lent = 1};
    return slot->lent;
}

static void slot_free(struct hly_slot *slot)
{
    if (!slot->lent)
        free(slot->memory);
    *slot = (struct hly_slot){0};
}

/* Zeroed, as lent memory is: a void rank sends what it has there. */
static int slot_grow(halay_trainer_t *trainer, struct hly_slot *slot, size_t bytes)
{
    const size_t room = round_up(bytes), all = trainer->pair ? 2 * room : room;
    if (bytes <= slot->bytes)
        return 0;
    slot_free(slot);
    if (trainer->pair && bytes >= LENT_LEAST && lend(trainer, slot))
        return 0;
    char *memory = aligned_alloc(SLOT_ALIGN, all);
    if (!memory)
        return HALAY_ENOMEM;
    *slot = (struct hly_slot){.memory = memset(memory, 0, all), .bytes = room};
    return 0;
}

int hly_fuse_slot(halay_trainer_t *trainer, size_t bytes, int *slot)
{
    for (int i = 0; i < HLY_SLOTS; i++) {
        if (trainer->slots[i].used)
            continue;
        int rc = slot_grow(trainer, &trainer->slots[i], bytes);
        if (rc)
            return rc;
        assert(trainer->slots[i].bytes >= bytes);
        trainer->slots[i].used = 1;
        *slot = i;
        return 0;
    }
    return HALAY_EAGAIN;
}

int hly_fuse_free(const halay_trainer_t *trainer)
{
    int unused = 0;
    for (int i = 0; i < HLY_SLOTS; i++)
        unused |= !trainer->slots[i].used;
    return unused;
}

char *hly_fuse_result(const halay_trainer_t *trainer, int slot)
{
    const struct hly_slot *s = &trainer->slots[slot];
    return trainer->pair ? s->memory + s->bytes : s->memory;
}

void hly_fuse_finish(halay_trainer_t *trainer)
{
    for (int i = 0; i < HLY_SLOTS; i++)
        slot_free(&trainer->slots[i]);
    if (trainer->lent)
        halay_mem_free(trainer->context, trainer->lent);
}

/* ------------------------------------------------------------------ marks */

/* One, as an element. */
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

/* What the mark of a rank that is not void is, and also what all of them reduce to. */
static void neutral(char *at, halay_type_t type, halay_op_t op)
{
    if (op == HALAY_PROD || op == HALAY_MIN || op == HALAY_LAND)
        one(at, type);
    else
        memset(at, op == HALAY_BAND ? (type == HALAY_BOOL ? 1 : 0xff) : 0, halay_type_bytes(type));
}

void hly_fuse_mark(const halay_trainer_t *trainer, char *at, halay_type_t type, halay_op_t op,
                   int empty)
{
    size_t bytes = halay_type_bytes(type), marks = hly_fuse_marks(trainer, type);
    for (size_t i = 0; i < marks; i++)
        neutral(at + i * bytes, type, op);
    if (!empty)
        return;
    at += (size_t)trainer->rank * marks / (size_t)trainer->nranks * bytes;
    if (op == HALAY_SUM || op == HALAY_AVERAGE || op == HALAY_MAX || op == HALAY_LOR ||
        op == HALAY_BOR)
        one(at, type);
    else
        memset(at, 0, bytes);
}

int hly_fuse_marked(const halay_trainer_t *trainer, const char *at, halay_type_t type,
                    halay_op_t op)
{
    char want[16];
    size_t bytes = halay_type_bytes(type), marks = hly_fuse_marks(trainer, type);
    assert(bytes <= sizeof(want));
    neutral(want, type, op);
    for (size_t i = 0; i < marks; i++)
        if (memcmp(at + i * bytes, want, bytes))
            return 1;
    return 0;
}

/* ------------------------------------------------------------------ tensors */

void hly_fuse_pack(halay_trainer_t *trainer, char *to, const struct hly_list *tensors)
{
    for (const struct hly_tensor *tensor = tensors->head; tensor; tensor = tensor->next) {
        size_t bytes = tensor->count * halay_type_bytes(tensor->type);
        if (!bytes)
            continue;
        if (tensor->prescale != 1)
            halay_scale(to, tensor->in, tensor->count, tensor->type, tensor->prescale);
        else
            memcpy(to, tensor->in, bytes);
        to += bytes;
        trainer->counters.copied_bytes += bytes;
    }
}

void hly_fuse_unpack(halay_trainer_t *trainer, const char *from, const struct hly_list *tensors)
{
    for (const struct hly_tensor *tensor = tensors->head; tensor; tensor = tensor->next) {
        size_t bytes = tensor->count * halay_type_bytes(tensor->type);
        if (!bytes)
            continue;
        if (tensor->postscale != 1)
            halay_scale(tensor->out, from, tensor->count, tensor->type, tensor->postscale);
        else
            memcpy(tensor->out, from, bytes);
        from += bytes;
        trainer->counters.copied_bytes += bytes;
    }
}
