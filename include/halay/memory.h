/* SPDX-License-Identifier: Apache-2.0 */
/* memory.h - a part of halay.h, which includes it: kinds of memory, and registered memory. */
#ifndef HALAY_MEMORY_H
#define HALAY_MEMORY_H

#include "halay.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * All buffers of a call are in memory of one kind, the same on all ranks: host memory, or that of
 * config.device. Halay copies buffers that the processor cannot touch to host memory and back. Two
 * kinds in a call are HALAY_EINVAL; ranks with different kinds get HALAY_EMISMATCH.
 *
 * halay_mem_kind() gives the kind: 0 for host memory, else the device's number (device.h). bytes 0:
 * looks at the byte at the address. HALAY_EINVAL: a part of it is of another kind. Local.
 */
HALAY_API int halay_mem_kind(halay_context_t *context, const void *address, size_t bytes,
                             uint32_t *kind);

/*
 * Registered memory: before a network adapter writes into another process's memory, that process
 * registers it with the adapter, which costs more than many messages do. Without these calls Halay
 * registers for each large message; with them once, for all calls whose buffers are entirely in the
 * memory. Transports that do not register (shared memory, TCP) ignore them. Local.
 */
typedef uint64_t halay_range_t; /* 0 is never one */

/*
 * The memory must stay mapped where it is until halay_mem_deregister() or halay_finalize(): Halay
 * does not notice an unmap. Then calls would silently neither send nor receive what is mapped there
 * later. Ranges may overlap, and the same one may be registered twice. If the adapter cannot
 * register it (a limit on locked memory), Halay logs that once and uses the memory as any other.
 * HALAY_ENOMEM: there are 256 already, with those of halay_mem_alloc(). HALAY_EUNSUPPORTED: it is
 * not memory of the host.
 */
HALAY_API int halay_mem_register(halay_context_t *context, void *address, size_t bytes,
                                 halay_range_t *range);
/* HALAY_ESTATE: deregistered before, or a call that is under way uses it. */
HALAY_API int halay_mem_deregister(halay_context_t *context, halay_range_t range);

/*
 * Memory of whole pages, zeroed, registered as above; large ones get huge pages where the kernel
 * gives them. A forked child does not have it: touching it there ends the child. halay_finalize()
 * frees it, if the program has not.
 */
HALAY_API int halay_mem_alloc(halay_context_t *context, size_t bytes, void **address);
/* Takes NULL. HALAY_ESTATE: a call that is under way uses it. HALAY_EINVAL: not from _alloc. */
HALAY_API int halay_mem_free(halay_context_t *context, void *address);

#ifdef __cplusplus
}
#endif

#endif
