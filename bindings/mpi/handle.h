/* SPDX-License-Identifier: Apache-2.0 */
/*
 * handle.h - how a handle finds its object, for the faces, in a few instructions and without a
 * lock. A handle has 32 bits: 00, the kind (4), a generation from 1 on (6), the index of a slot
 * (20). So it is positive, and none is a predefined handle: in the standard's ABI those are below
 * 0x400; in MPICH's they begin with 01 or 10, and its null handles end with 26 zeros.
 */
#ifndef HLY_MPI_HANDLE_H
#define HLY_MPI_HANDLE_H

#include "core.h"

#define HLY_MPI_INDEX_BITS      20
#define HLY_MPI_PAGE_BITS       10
#define HLY_MPI_GENERATION_BITS 6
#define HLY_MPI_KIND_SHIFT      (HLY_MPI_INDEX_BITS + HLY_MPI_GENERATION_BITS)
#define HLY_MPI_PAGES           (1u << (HLY_MPI_INDEX_BITS - HLY_MPI_PAGE_BITS))
#define HLY_MPI_PAGE_SLOTS      (1u << HLY_MPI_PAGE_BITS)
#define HLY_MPI_NUMBERS         0x400u /* predefined handles of the standard's ABI are below */

struct hly_mpi_slot {
    void *object;    /* valid while `handle` is not 0 */
    uint32_t handle; /* 0: free */
    uint32_t next;   /* in the list of free slots */
};
/* Pages are added, and never moved or freed: so readers need no lock. */
extern struct hly_mpi_slot *hly_mpi_pages[HLY_MPI_PAGES];
extern void *hly_mpi_fixed[HLY_MPI_NUMBERS]; /* the predefined objects, by number */

/* The object of one of our own handles; NULL: freed, of another kind, or no handle at all. */
static inline void *hly_mpi_handle_object(enum hly_mpi_kind kind, uint32_t handle)
{
    uint32_t index = handle & ((1u << HLY_MPI_INDEX_BITS) - 1);
    struct hly_mpi_slot *page =
        __atomic_load_n(&hly_mpi_pages[index >> HLY_MPI_PAGE_BITS], __ATOMIC_ACQUIRE);
    if (!page || handle >> HLY_MPI_KIND_SHIFT != (uint32_t)kind)
        return NULL;
    struct hly_mpi_slot *slot = &page[index & (HLY_MPI_PAGE_SLOTS - 1)];
    if (__atomic_load_n(&slot->handle, __ATOMIC_ACQUIRE) != handle)
        return NULL;
    return __atomic_load_n(&slot->object, __ATOMIC_RELAXED);
}

#endif
