/* SPDX-License-Identifier: Apache-2.0 */
/* handle.c - the table of handles: one for the process, as an MPI process is one job. Makes
 * objects, counts their users, and frees them. handle.h reads the table. */
#include "handle.h"

#include <pthread.h>
#include <stdlib.h>

#include "error.h"
#include "info.h"

#define INDEX_MASK ((1u << HLY_MPI_INDEX_BITS) - 1)

struct hly_mpi_slot *hly_mpi_pages[HLY_MPI_PAGES];

/* Error handlers and MPI_INFO_ENV are there before MPI_Init. */
void *hly_mpi_fixed[HLY_MPI_NUMBERS] = {
    [0x131] = &hly_mpi_info_env,
    [0x141] = &hly_mpi_errors_are_fatal,
    [0x142] = &hly_mpi_errors_abort,
    [0x143] = &hly_mpi_errors_return,
};

/* Slots are used again in the order in which they were freed, and only if WAITING are free: so an
 * old handle stays invalid until 63 * WAITING more objects were made. */
#define WAITING 256
static struct {
    pthread_mutex_t lock;
    uint32_t slots;       /* made so far; slot 0 is never used */
    uint32_t first, last; /* of the free ones; 0: none */
    uint32_t free;
    void (*end[HLY_MPI_KINDS])(void *object);
} table = {.lock = PTHREAD_MUTEX_INITIALIZER, .slots = 1};

static struct hly_mpi_slot *slot_at(uint32_t index)
{
    return &hly_mpi_pages[index >> HLY_MPI_PAGE_BITS][index & (HLY_MPI_PAGE_SLOTS - 1)];
}

/* With the lock held. 0: no memory, or there are too many objects. */
static uint32_t slot_take(void)
{
    bool full = table.slots >> HLY_MPI_INDEX_BITS;
    uint32_t index = table.first;
    if (index && (table.free >= WAITING || full)) {
        table.free--;
        table.first = slot_at(index)->next & INDEX_MASK;
        if (!table.first)
            table.last = 0;
        return index;
    }
    if (full)
        return 0;
    struct hly_mpi_slot **page = &hly_mpi_pages[table.slots >> HLY_MPI_PAGE_BITS];
    if (!*page) {
        struct hly_mpi_slot *made = calloc(HLY_MPI_PAGE_SLOTS, sizeof *made);
        if (!made)
            return 0;
        __atomic_store_n(page, made, __ATOMIC_RELEASE);
    }
    return table.slots++;
}

void *hly_mpi_object_new(enum hly_mpi_kind kind, size_t bytes)
{
    struct hly_mpi_head *head = calloc(1, bytes);
    if (!head)
        return NULL;
    pthread_mutex_lock(&table.lock);
    uint32_t index = slot_take();
    if (!index) {
        pthread_mutex_unlock(&table.lock);
        free(head);
        return NULL;
    }
    struct hly_mpi_slot *slot = slot_at(index);
    /* A free slot has its last generation in the upper bits of `next`. */
    uint32_t generation = (slot->next >> HLY_MPI_INDEX_BITS) + 1;
    if (generation >> HLY_MPI_GENERATION_BITS)
        generation = 1;
    head->handle = (uint32_t)kind << HLY_MPI_KIND_SHIFT | generation << HLY_MPI_INDEX_BITS | index;
    head->refs = 1;
    head->face = &hly_mpi_this_face;
    slot->next = 0;
    __atomic_store_n(&slot->object, head, __ATOMIC_RELAXED);
    __atomic_store_n(&slot->handle, head->handle, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&table.lock);
    return head;
}

void *hly_mpi_object_of(enum hly_mpi_kind kind, uint32_t handle)
{
    return hly_mpi_handle_object(kind, handle);
}

void hly_mpi_object_hold(void *object)
{
    struct hly_mpi_head *head = object;
    if (head)
        __atomic_fetch_add(&head->refs, 1, __ATOMIC_RELAXED);
}

/* Predefined objects are never freed: their handle is a number. */
void hly_mpi_object_release(void *object)
{
    struct hly_mpi_head *head = object;
    if (!head || __atomic_sub_fetch(&head->refs, 1, __ATOMIC_ACQ_REL) > 0 ||
        head->handle < HLY_MPI_NUMBERS)
        return;
    uint32_t kind = head->handle >> HLY_MPI_KIND_SHIFT, index = head->handle & INDEX_MASK;
    if (table.end[kind])
        table.end[kind](object);
    pthread_mutex_lock(&table.lock);
    struct hly_mpi_slot *slot = slot_at(index);
    slot->next = head->handle & ~INDEX_MASK & ((1u << HLY_MPI_KIND_SHIFT) - 1);
    __atomic_store_n(&slot->handle, 0, __ATOMIC_RELEASE);
    if (table.last)
        slot_at(table.last)->next |= index;
    else
        table.first = index;
    table.last = index;
    table.free++;
    pthread_mutex_unlock(&table.lock);
    free(object);
}

void hly_mpi_object_hide(void *object)
{
    struct hly_mpi_head *head = object;
    if (head->handle >= HLY_MPI_NUMBERS)
        __atomic_store_n(&slot_at(head->handle & INDEX_MASK)->handle, 0, __ATOMIC_RELEASE);
}

void *hly_mpi_object_next(enum hly_mpi_kind kind, uint32_t *at)
{
    while (++*at < table.slots) {
        const struct hly_mpi_slot *slot = slot_at(*at);
        const struct hly_mpi_head *head = slot->object;
        if (slot->handle >> HLY_MPI_KIND_SHIFT == (uint32_t)kind && head->handle == slot->handle)
            return slot->object; /* and it is not predefined */
    }
    return NULL;
}

void hly_mpi_object_ends(enum hly_mpi_kind kind, void (*end)(void *object))
{
    table.end[kind] = end;
}

void *hly_mpi_predefined(enum hly_mpi_kind kind, uint32_t number)
{
    (void)kind;
    return number < HLY_MPI_NUMBERS ? hly_mpi_fixed[number] : NULL;
}

void hly_mpi_predefine(enum hly_mpi_kind kind, uint32_t number, void *object)
{
    (void)kind;
    struct hly_mpi_head *head = object;
    if (head) {
        head->handle = number;
        head->face = &hly_mpi_this_face;
    }
    __atomic_store_n(&hly_mpi_fixed[number], object, __ATOMIC_RELEASE);
}
