/* SPDX-License-Identifier: Apache-2.0 */
/* memory.h - a part of halay.h, which includes it: kinds of memory, and registered memory. */
#ifndef HALAY_MEMORY_H
#define HALAY_MEMORY_H

#include "halay.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Buffers lie in memory of one kind, the same on all ranks: the host's; or that of config.device,
 * which Halay copies to the host's and back where the processor cannot touch it. Two kinds in a
 * call are HALAY_EINVAL, another one on another rank is HALAY_EMISMATCH.
 *
 * halay_mem_kind() says which: 0, the host's, or a number that the device has (device.h). bytes 0:
 * of the byte at the address. HALAY_EINVAL: a part of it is of another kind. Local.
 */
HALAY_API int halay_mem_kind(halay_context_t *context, const void *address, size_t bytes,
                             uint32_t *kind);

/*
 * Registered memory: a network adapter that writes straight into the other process's memory has to
 * be told of it first, which costs more than many a message. Without these calls that is done for
 * each large message; with them once, for all calls whose buffers lie in the memory, whole. Where
 * nothing is registered (shared memory, TCP) they cost nothing and change nothing. Local.
 */
typedef uint64_t halay_range_t; /* 0 is never one */

/*
 * The memory must stay mapped where it is until halay_mem_deregister() or halay_finalize(): Halay
 * does not notice that it is unmapped, and what is mapped there later would neither be sent nor
 * received, in silence. Ranges may overlap, and the same one may be registered twice. Where the
 * adapter cannot (a limit on locked memory), Halay says so once, on standard error, and the memory
 * is used as any other. HALAY_ENOMEM: there are 256 already, with those of halay_mem_alloc().
 * HALAY_EUNSUPPORTED: it is not memory of the host.
 */
HALAY_API int halay_mem_register(halay_context_t *context, void *address, size_t bytes,
                                 halay_range_t *range);
/* HALAY_ESTATE: deregistered before, or a call that is under way uses it. */
HALAY_API int halay_mem_deregister(halay_context_t *context, halay_range_t range);

/*
 * Memory of whole pages, zeroed, registered as above; large ones get huge pages where the kernel
 * gives them. A forked child does not have it: touching it there ends the child. It goes with the
 * context, if it was not freed before.
 */
HALAY_API int halay_mem_alloc(halay_context_t *context, size_t bytes, void **address);
/* Takes NULL. HALAY_ESTATE: a call that is under way uses it. HALAY_EINVAL: not from _alloc. */
HALAY_API int halay_mem_free(halay_context_t *context, void *address);

#ifdef __cplusplus
}
#endif

#endif
