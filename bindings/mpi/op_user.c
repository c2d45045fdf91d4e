/* SPDX-License-Identifier: Apache-2.0 */
/*
 * op_user.c - operations that Halay is given: slots, each an operation of halay_op_create().
 *
 * Halay compares the numbers of operations between the ranks of a call, so that all ranks have to
 * make them in the same order. MPI asks for no such thing. The kernels of predefined operations are
 * therefore all made at once, before any other: they have the same numbers everywhere, whenever a
 * rank first needs one. A slot for an operation of the user is made at its first use, for elements
 * of one size, since that is when its size is known. It stays bound to the operation and the type
 * while both exist, and then serves others with elements of that size, so the numbers do not run
 * out. They are equal where the ranks use their operations in the same order, as programs of one
 * source do; where they do not, the call fails with a mismatch.
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
    bool late;              /* its operation was freed while a call used it */
    int users;              /* calls under way; they hold op and type */
    uint64_t last;          /* the count of uses then */
    hly_mpi_kernel *kernel; /* of a predefined one; else: */
    struct hly_mpi_op *op;
    struct hly_mpi_type *type;
    uint32_t op_handle, type_handle;
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

static void call_kernel(void *arg, halay_type_t type, size_t count, void *dst, const void *left,
                        const void *right)
{
    const struct slot *slot = arg;
    slot->kernel(dst, left, right, count * halay_type_bytes(type) / (size_t)slot->size);
}

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

static void call_user(void *arg, halay_type_t as, size_t count, void *dst, const void *left,
                      const void *right)
{
    struct slot *slot = arg;
    _Alignas(64) char in[STACK], inout[STACK];
    int64_t extent = slot->type->extent, step = extent < 0 ? -extent : extent, most = 1,
            bytes = (int64_t)(count * halay_type_bytes(as));
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

/* ---------------------------------------------------------------- slots */

/* MPI_ERR_*, without a text. */
static int slot_make(struct hly_mpi_op_slots *slots, hly_mpi_kernel *kernel, int64_t size,
                     bool commutative, struct slot **made)
{
    struct slot *slot = slots->n < SLOTS ? calloc(1, sizeof(*slot)) : NULL;
    if (!slot)
        return MPI_ERR_NO_MEM;
    slot->kernel = kernel;
    slot->size = size;
    slot->commutative = commutative;
    if (halay_op_create(slots->context, kernel ? call_kernel : call_user, slot, (size_t)size,
                        commutative, &slot->number)) {
        free(slot);
        return MPI_ERR_NO_MEM;
    }
    pthread_mutex_init(&slot->room_lock, NULL);
    slots->slots[slots->n++] = slot;
    *made = slot;
    return MPI_SUCCESS;
}

/* Binds it, and takes the memory that its elements need. */
static int slot_bind(struct slot *slot, struct hly_mpi_op *op, struct hly_mpi_type *type)
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
            return MPI_ERR_NO_MEM;
    }
    free(slot->room);
    slot->room = room;
    slot->low = low;
    slot->span = high - low;
    slot->late = false;
    slot->op = op;
    slot->type = type;
    slot->op_handle = op->head.handle;
    slot->type_handle = type->head.handle;
    return MPI_SUCCESS;
}

/* Does what the slot was bound to still exist? */
static bool is_alive(const struct slot *slot)
{
    return slot->op && hly_mpi_object_of(HLY_MPI_OP, slot->op_handle) == slot->op &&
           (slot->type_handle < 0x400 || /* predefined */
            hly_mpi_object_of(HLY_MPI_TYPE, slot->type_handle) == slot->type);
}

/* The slot that serves these already, or one that is free to. NULL: there is none. */
static struct slot *slot_find(const struct hly_mpi_op_slots *slots, const struct hly_mpi_op *op,
                              const struct hly_mpi_type *type)
{
    struct slot *free_one = NULL;
    for (int i = 0; i < slots->n; i++) {
        struct slot *slot = slots->slots[i];
        if (slot->kernel || slot->size != type->size || slot->commutative != op->commutative)
            continue;
        if (slot->op == op && slot->type == type && slot->op_handle == op->head.handle &&
            slot->type_handle == type->head.handle)
            return slot;
        if (!free_one && !slot->late && !slot->users && !is_alive(slot))
            free_one = slot;
    }
    return free_one;
}

/* A call that still uses the operation ends at another time on each rank. Its slot serves others
 * only when all slots are taken, so that all ranks choose the same. */
void hly_mpi_op_slots_late(const struct hly_mpi_op *op)
{
    pthread_mutex_lock(&lock);
    for (int i = 0; hly_mpi_job.op_slots && i < hly_mpi_job.op_slots->n; i++) {
        struct slot *slot = hly_mpi_job.op_slots->slots[i];
        if (slot->op == op && slot->op_handle == op->head.handle && slot->users)
            slot->late = true;
    }
    pthread_mutex_unlock(&lock);
}

/* All slots are made: the one for elements of this size (0: of any) that was used longest ago.
 * Whether a call still uses it does not count at first, since that differs between ranks; `idle`:
 * no call does. -1: none. */
static int slot_oldest_of(const struct hly_mpi_op_slots *slots, int64_t size, bool commutative,
                          bool idle)
{
    int oldest = -1;
    for (int i = 0; i < slots->n; i++) {
        const struct slot *slot = slots->slots[i];
        if (!slot->kernel && !(idle && slot->users) &&
            (!size || (slot->size == size && slot->commutative == commutative)) &&
            (oldest < 0 || slot->last < slots->slots[oldest]->last))
            oldest = i;
    }
    return oldest;
}

static int slot_oldest(const struct hly_mpi_op_slots *slots, int64_t size, bool commutative)
{
    const int oldest = slot_oldest_of(slots, size, commutative, false);
    return oldest >= 0 && slots->slots[oldest]->users
               ? slot_oldest_of(slots, size, commutative, true)
               : oldest;
}

/* A slot to bind, or NULL. */
static struct slot *slot_take(struct hly_mpi_op_slots *slots, int64_t size, bool commutative)
{
    struct slot *slot = NULL;
    int i = slots->n == SLOTS ? slot_oldest(slots, size, commutative) : -1;
    if (i >= 0)
        return slots->slots[i]->users ? NULL : slots->slots[i];
    i = slots->n == SLOTS ? slot_oldest(slots, 0, false) : -1;
    if (i >= 0) {
        slot = slots->slots[i];
        if (slot->users || halay_op_free(slots->context, slot->number))
            return NULL;
        free(slot->room);
        pthread_mutex_destroy(&slot->room_lock);
        free(slot);
        slots->slots[i] = slots->slots[--slots->n];
        slot = NULL;
    }
    return slot_make(slots, NULL, size, commutative, &slot) ? NULL : slot;
}

/* Makes the slot of a predefined operation and a type, if Halay has none and there is none yet. */
static int slot_make_kernel(struct hly_mpi_op_slots *slots, const struct hly_mpi_op *op, int place)
{
    hly_mpi_kernel *kernel = hly_mpi_op_kernel(op->head.handle, place);
    const struct hly_mpi_type *type = hly_mpi_predefined(HLY_MPI_TYPE, hly_mpi_named[place].number);
    struct slot *slot;
    halay_op_t found;
    halay_type_t as;
    int64_t each;
    bool have = !kernel || hly_mpi_op_native(op, place, &found, &as, &each);
    for (int i = 0; i < slots->n && !have; i++)
        have = slots->slots[i]->kernel == kernel;
    return have ? MPI_SUCCESS : slot_make(slots, kernel, type->size, true, &slot);
}

static void slots_free(struct hly_mpi_op_slots *slots)
{
    for (int i = 0; i < slots->n; i++) {
        struct slot *slot = slots->slots[i];
        if (halay_op_free(slots->context, slot->number))
            continue; /* a request may still call it: it is left */
        pthread_mutex_destroy(&slot->room_lock);
        free(slot->room);
        free(slot);
    }
    free(slots);
}

/* With the lock: the slots of the present context. NULL: no memory, or there is no context. */
static struct hly_mpi_op_slots *slots_of_context(void)
{
    struct hly_mpi_op_slots *slots = hly_mpi_job.op_slots;
    int rc = MPI_SUCCESS;
    if (slots || !hly_mpi_job.context)
        return slots;
    slots = calloc(1, sizeof(*slots));
    if (!slots)
        return NULL;
    slots->context = hly_mpi_job.context;
    for (uint32_t number = 0x21; number <= 0x39 && !rc; number++) {
        const struct hly_mpi_op *op = hly_mpi_predefined(HLY_MPI_OP, number);
        for (int place = 0; op && place < hly_mpi_named_count && !rc; place++)
            rc = slot_make_kernel(slots, op, place);
    }
    if (rc) {
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
    int rc = MPI_SUCCESS;
    pthread_mutex_lock(&lock);
    slots = slots_of_context();
    slot = slots ? slot_find(slots, op, type) : NULL;
    if (slots && !slot)
        slot = slot_take(slots, type->size, op->commutative);
    if (!slot)
        rc = MPI_ERR_NO_MEM;
    if (!rc && !slot->users) /* also where it was bound: a new type may have an old one's handle */
        rc = slot_bind(slot, op, type);
    if (!rc) {
        hly_mpi_object_hold(op);
        hly_mpi_object_hold(type);
        slot->users++;
        slot->last = ++slots->uses;
        *found = slot->number;
    }
    pthread_mutex_unlock(&lock);
    if (!rc)
        return MPI_SUCCESS;
    return hly_mpi_fail(rc,
                        "%s: no memory, or over %d operations of the user are in use, or 65,536 "
                        "were made",
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
