/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stats.h - a part of halay.h, which includes it: counters of transports, and whether other ranks
 * are in the next call. It serves tools and training engines; a program needs none of it.
 */
#ifndef HALAY_STATS_H
#define HALAY_STATS_H

#include "halay.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What an RDMA transport's adapter has done; all 0 for other transports. */
typedef struct halay_queues {
    uint64_t messages, puts; /* messages sent, and RDMA writes into peers' memory */
    uint64_t credits;        /* messages that only return flow-control credits to the peer */
    uint64_t requests;       /* work requests, for all of these and to try a new connection */
    uint64_t doorbells;      /* doorbell writes, which hand requests to the device */
    uint64_t signalled;      /* requests that raise a completion */
    uint64_t sent, received; /* completions: of own requests; of peers' messages and puts */
    uint64_t put_bytes;      /* bytes of all puts */
    uint64_t copied_bytes;   /* of put_bytes, those copied through the transport's own memory */
    uint64_t registrations;  /* times that memory of the program was registered */
    uint64_t reused;         /* times that a registration was there already */
    uint64_t connections;    /* connections that were made */
} halay_queues_t;

/* What one transport has moved. Often one serves ranks on the node, and another one those on other
 * nodes. */
typedef struct halay_traffic {
    size_t size; /* of this struct, set by the caller */
    char transport[32];
    uint64_t sent_bytes, sent_messages; /* bytes of the program's data, without headers */
    uint64_t connections;
    halay_queues_t queues;
} halay_traffic_t;

/* transport: 0, 1, ... in the order of opening; HALAY_EINVAL past the last. */
HALAY_API int halay_context_traffic(halay_context_t *context, int transport,
                                    halay_traffic_t *traffic);

/*
 * Sets *called to 1 if this rank knows that another one has made the next call on this
 * communicator. Sets it to 2 if not, but the next call would fail at once, since a rank has left or
 * is lost. Else sets it to 0. Makes no progress itself.
 */
HALAY_API int halay_comm_called(halay_comm_t *comm, int *called);

#ifdef __cplusplus
}
#endif
#endif
