/* SPDX-License-Identifier: Apache-2.0 */
/*
 * op_user.c - operations that Halay is given: slots, each an operation of halay_op_create().
 *
 * The kernels of predefined operations are all made at once, before any other: so they have the
 * same numbers on all ranks, and a call of MPI_SUM with MPI_PROD is a mismatch. A slot for
 * operations of the user is a local operation, since MPI lets the ranks make theirs in any order.
 * It serves elements of one size, is bound to an operation and a type while calls use it, and is
 * made where none is idle.
 *
 * Elements are packed. A type without gaps is as in memory. Of others, some elements are unpacked
 * at a time, the user's function called, and the result packed again. The element of the lower rank
 * is the function's first operand, as MPI says.
 */
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "op.h"

#define SLOTS 128 /* of halay_op_create() */
#define STACK 8192

struct slot {
    halay_op_t number;
    int64_t size;
    bool commutative;
    int users;              /* calls under way; they hold op and type */
    uint64_t last;          /* the count of uses then */
    hly_mpi_kernel *kernel; /* of a predefined one; else: */
    struct hly_mpi_op *op;
    struct hly_mpi_type *type;
    int64_t low, span; /* where an element begins before its address, and its bytes */
    pthread_mutex_t room_lock;
    char *room; /* for two elements that the stack has no room for */
};
struct hly_mpi_op_slots {
    halay_context_t *context;
    uint64_t uses;
    int n;
    struct slot *slots[SLOTS];
};

/* Guards hly_mpi_job.op_slots and the slots, except for what a call under way reads. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* ---------------------------------------------------------------- what Halay calls */

/* n elements with gaps: two buffers of `bytes`, of which elements begin at -low. */
static void call_unpacked(const struct slot *slot, char *in, char *inout, int64_t bytes,
                          int64_t low, int64_t n, char *dst, const char *left, const char *right)
{
    void *a = (void *)((uintptr_t)in - (uintptr_t)low),
         *b = (void *)((uintptr_t)inout - (uintptr_t)low);
    memset(in, 0, (size_t)bytes);
    memset(inout, 0, (size_t)bytes);
    hly_mpi_unpack_range(a, n, slot->type, 0, n * slot->size, left);
    hly_mpi_unpack_range(b, n, slot->type, 0, n * slot->size, right);
    hly_mpi_op_call(slot->op, a, b, n, slot->type);
    hly_mpi_pack_range(b, n, slot->type, 0, n * slot->size, dst);
}

static void call_user(struct slot *slot, int64_t bytes, void *dst, const void *left,
                      const void *right)
{
    _Alignas(64) char in[STACK], inout[STACK];
    int64_t extent = slot->type->extent, step = extent < 0 ? -extent : extent, most = 1;
    if (slot->type->dense) {
        memcpy(dst, right, (size_t)bytes);
        hly_mpi_op_call(slot->op, left, dst, bytes / slot->size, slot->type);
        return;
    }
    if (slot->room)
        pthread_mutex_lock(&slot->room_lock);
    else if (step)
        most = 1 + (STACK - slot->span) / step;
    for (int64_t at = 0; at < bytes;) {
        int64_t left_over = (bytes - at) / slot->size, n = left_over < most ? left_over : most,
                far = (n - 1) * step, low = slot->low - (extent < 0 ? far : 0);
        char *a = slot->room ? slot->room : in, *b = slot->room ? a + slot->span : inout;
        /* Keeps the alignment of address 0 where elements go downwards: step is a multiple of it.
         */
        call_unpacked(slot, a, b, slot->span + far, low, n, (char *)dst + at,
                      (const char *)left + at, (const char *)right + at);
        at += n * slot->size;
    }
    if (slot->room)
        pthread_mutex_unlock(&slot->room_lock);
}

static void call(void *arg, halay_type_t type, size_t count, void *dst, const void *left,
                 const void *right)
{
    struct slot *slot = arg;
    const size_t bytes = count * halay_type_bytes(type);
    if (slot->kernel)
        slot->kernel(dst, left, right, bytes / (size_t)slot->size);
    else
        call_user(slot, (int64_t)bytes, dst, left, right);
}

/* ---------------------------------------------------------------- slots */

static void slot_free(struct slot *slot)
{
    pthread_mutex_destroy(&slot->room_lock);
    free(slot->room);
    free(slot);
}

/* NULL: no memory, or Halay makes no more. */
static struct slot *slot_make(struct hly_mpi_op_slots *slots, hly_mpi_kernel *kernel, int64_t size,
                              bool commutative)
{
    const int properties = (kernel ? 0 : HALAY_OP_LOCAL) | (commutative ? HALAY_OP_COMMUTATIVE : 0);
    struct slot *slot = calloc(1, sizeof(*slot));
    if (!slot)
        return NULL;
    slot->kernel = kernel;
    slot->size = size;
    slot->commutative = commutative;
    pthread_mutex_init(&slot->room_lock, NULL);
    if (halay_op_create(slots->context, call, slot, (size_t)size, properties, &slot->number)) {
        slot_free(slot);
        return NULL;
    }
    slots->slots[slots->n++] = slot;
    return slot;
}

/* Binds it, and takes the memory that its elements need. */
static bool slot_bind(struct slot *slot, struct hly_mpi_op *op, struct hly_mpi_type *type)
{
    int64_t ub = type->lb + type->extent, low = type->lb < ub ? type->lb : ub,
            high = type->lb < ub ? ub : type->lb, true_ub = type->true_lb + type->true_extent;
    char *room = NULL;
    low = type->true_lb < low ? type->true_lb : low;
    high = true_ub > high ? true_ub : high;
    low &= ~(int64_t)63; /* so elements are aligned as the type says */
    high = (high + 63) & ~(int64_t)63;
    if (!type->dense && high - low > STACK) {
        room = high - low < INT64_MAX / 4 ? aligned_alloc(64, 2 * (size_t)(high - low)) : NULL;
        if (!room)
            return false;
    }
    free(slot->room);
    slot->room = room;
    slot->low = low;
    slot->span = high - low;
    slot->op = op;
    slot->type = type;
    return true;
}

/* With the lock: the slot in use that is bound so, or the idle one that was used last, or a new
 * one; where all are made, the one that was used longest ago goes. NULL: there is none. */
static struct slot *slot_find(struct hly_mpi_op_slots *slots, const struct hly_mpi_op *op,
                              const struct hly_mpi_type *type)
{
    struct slot *idle = NULL;
    int oldest = -1;
    for (int i = 0; i < slots->n; i++) {
        struct slot *slot = slots->slots[i];
        if (slot->kernel)
            continue;
        const bool fits = slot->size == type->size && slot->commutative == op->commutative;
        if (fits && slot->users && slot->op == op && slot->type == type)
            return slot;
        if (fits && !slot->users && (!idle || slot->last > idle->last))
            idle = slot;
        if (!slot->users && (oldest < 0 || slot->last < slots->slots[oldest]->last))
            oldest = i;
    }
    if (idle)
        return idle;
    if (slots->n == SLOTS && oldest >= 0) {
        struct slot *slot = slots->slots[oldest];
        if (halay_op_free(slots->context, slot->number))
            return NULL;
        slot_free(slot);
        slots->slots[oldest] = slots->slots[--slots->n];
    }
    return slots->n < SLOTS ? slot_make(slots, NULL, type->size, op->commutative) : NULL;
}

/* Makes the slot of a predefined operation and a type, if Halay has none and there is none yet. */
static bool slot_make_kernel(struct hly_mpi_op_slots *slots, const struct hly_mpi_op *op, int place)
{
    hly_mpi_kernel *kernel = hly_mpi_op_kernel(op->head.handle, place);
    const struct hly_mpi_type *type = hly_mpi_predefined(HLY_MPI_TYPE, hly_mpi_named[place].number);
    halay_op_t found;
    halay_type_t as;
    int64_t each;
    bool have = !kernel || hly_mpi_op_native(op, place, &found, &as, &each);
    for (int i = 0; i < slots->n && !have; i++)
        have = slots->slots[i]->kernel == kernel;
    return have || slot_make(slots, kernel, type->size, true);
}

static void slots_free(struct hly_mpi_op_slots *slots)
{
    for (int i = 0; i < slots->n; i++) {
        struct slot *slot = slots->slots[i];
        if (!halay_op_free(slots->context, slot->number)) /* else a request may still call it */
            slot_free(slot);
    }
    free(slots);
}

/* With the lock: the slots of the present context. NULL: no memory, or there is no context. */
static struct hly_mpi_op_slots *slots_of_context(void)
{
    struct hly_mpi_op_slots *slots = hly_mpi_job.op_slots;
    bool made = true;
    if (slots || !hly_mpi_job.context)
        return slots;
    slots = calloc(1, sizeof(*slots));
    if (!slots)
        return NULL;
    slots->context = hly_mpi_job.context;
    for (uint32_t number = 0x21; number <= 0x39 && made; number++) {
        const struct hly_mpi_op *op = hly_mpi_predefined(HLY_MPI_OP, number);
        for (int place = 0; op && place < hly_mpi_named_count && made; place++)
            made = slot_make_kernel(slots, op, place);
    }
    if (!made) {
        slots_free(slots);
        return NULL;
    }
    hly_mpi_job.op_slots = slots;
    return slots;
}

int hly_mpi_op_slot(const char *function, struct hly_mpi_op *op, struct hly_mpi_type *type,
                    halay_op_t *found)
{
    struct hly_mpi_op_slots *slots;
    struct slot *slot;
    pthread_mutex_lock(&lock);
    slots = slots_of_context();
    slot = slots ? slot_find(slots, op, type) : NULL;
    if (slot && !slot->users && !slot_bind(slot, op, type))
        slot = NULL;
    if (slot) {
        hly_mpi_object_hold(op);
        hly_mpi_object_hold(type);
        slot->users++;
        slot->last = ++slots->uses;
        *found = slot->number;
    }
    pthread_mutex_unlock(&lock);
    if (slot)
        return MPI_SUCCESS;
    return hly_mpi_fail(MPI_ERR_NO_MEM,
                        "%s: no memory, or over %d operations and types are in use at once, or "
                        "types of 65,536 sizes were used in turn",
                        function, SLOTS);
}

int hly_mpi_op_slot_of_kernel(hly_mpi_kernel *kernel, halay_op_t *found)
{
    const struct hly_mpi_op_slots *slots;
    int rc = MPI_ERR_INTERN;
    pthread_mutex_lock(&lock);
    slots = slots_of_context();
    for (int i = 0; slots && rc && i < slots->n; i++) {
        if (slots->slots[i]->kernel == kernel) {
            *found = slots->slots[i]->number;
            rc = MPI_SUCCESS;
        }
    }
    pthread_mutex_unlock(&lock);
    return rc;
}

void hly_mpi_op_done(halay_op_t found)
{
    struct hly_mpi_op *op = NULL;
    struct hly_mpi_type *type = NULL;
    pthread_mutex_lock(&lock);
    for (int i = 0; hly_mpi_job.op_slots && i < hly_mpi_job.op_slots->n; i++) {
        struct slot *slot = hly_mpi_job.op_slots->slots[i];
        if (slot->number == found && slot->users) {
            slot->users--;
            op = slot->op;
            type = slot->type;
        }
    }
    pthread_mutex_unlock(&lock);
    if (op)
        hly_mpi_object_release(op);
    if (type)
        hly_mpi_object_release(type);
}

void hly_mpi_ops_leave(void)
{
    struct hly_mpi_op_slots *slots;
    pthread_mutex_lock(&lock);
    slots = hly_mpi_job.op_slots;
    hly_mpi_job.op_slots = NULL;
    pthread_mutex_unlock(&lock);
    if (slots)
        slots_free(slots);
}
