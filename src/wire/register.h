/* SPDX-License-Identifier: Apache-2.0 */
/* register.h - the registration cache: memory that stays registered with transports. */
#ifndef HLY_REGISTER_H
#define HLY_REGISTER_H

#include "wire/endpoint.h"

#define HLY_RANGES_MAX    256 /* of the program */
#define HLY_DIRECTS_MAX   32  /* of these, of devices, which nobody has named */
#define HLY_SCRATCHES_MAX 64  /* scratch of requests, beside those */

struct hly_range {
    char *address;
    size_t bytes;  /* 0: the entry is free */
    size_t mapped; /* bytes to unmap, if halay_mem_alloc() made it; else 0 */
    uint32_t generation;
    uint32_t targets; /* open rendezvous targets in it */
    bool scratch;     /* it is a request's scratch */
    bool direct;      /* an allocation of a device: with this number, */
    bool flushes;     /* whose writes by peers need a flush */
    uint64_t id;
    uint64_t used; /* direct: when it was used last: a count */
    bool refused[HLY_TRANSPORTS];
    bool lent[HLY_TRANSPORTS]; /* made by this transport: while there is mem, peers can read it */
    halay_mem_t *mem[HLY_TRANSPORTS]; /* NULL: not registered there, or not any more */
};

/* Memory that a transport has made, so that peers can read it. */
struct hly_lent {
    halay_mem_t *mem; /* NULL: no transport has made it */
    int transport;
};

/* Registers memory with a transport, for one transfer. If memory runs out, idle scratch gives up
 * its registrations first. */
int hly_mem_register(halay_context_t *context, const struct hly_transport *transport, void *address,
                     size_t bytes, halay_mem_t **mem);
/* The entry that holds this extent, registered with this transport; NULL: none. May enter the
 * request's scratch. */
struct hly_range *hly_range_of(const halay_request_t *request,
                               const struct hly_transport *transport,
                               const struct hly_extent *extent);
/* The entry of a device's allocation that holds this extent, registered with this transport. It is
 * made if it is not there, or if the allocation at this address is another one now. NULL: why. */
struct hly_range *hly_range_direct(const halay_request_t *request,
                                   const struct hly_transport *transport,
                                   const struct hly_extent *extent, char *why, size_t why_bytes);
/* Deregisters it with this transport, so that its key is not valid any more. */
void hly_range_revoke(halay_context_t *context, struct hly_range *range,
                      const struct hly_transport *transport);
/* If the address lies in memory that this transport lends: ends that, and all messages that lend
 * it. false: it does not. */
bool hly_range_recall(halay_context_t *context, const struct hly_transport *transport,
                      const void *address);
/* Makes the request's scratch at least so large. */
int hly_scratch_alloc(halay_request_t *request, size_t bytes, size_t alignment);
/* The same for the slots of a plan with a stage that are not on it. */
int hly_scratch_own(halay_request_t *request, size_t bytes, size_t alignment);
void hly_scratch_free(halay_request_t *request);
/* When the context goes: before the transports do, and after. */
void hly_ranges_withdraw(halay_context_t *context);
void hly_ranges_free(halay_context_t *context);

/* For halay_mem_*: enters a range, and registers it with all transports that put. HALAY_ENOMEM:
 * there are HLY_RANGES_MAX already. */
int hly_range_enter(halay_context_t *context, void *address, size_t bytes, size_t mapped,
                    struct hly_lent lent, struct hly_range **range);
/* HALAY_ESTATE: a call that is under way uses the memory. */
int hly_range_leave(halay_context_t *context, struct hly_range *range);
/* Whole pages that peers can read; NULL: no transport makes any. */
void *hly_lent_make(halay_context_t *context, size_t bytes, struct hly_lent *lent);
void hly_lent_drop(halay_context_t *context, void *pages, size_t bytes, struct hly_lent lent);

#endif
