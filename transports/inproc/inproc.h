/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inproc.h - what a test needs of the transport and the bootstrap whose ranks are threads of one
 * process: the hub that the threads share, and the faults that it injects.
 *
 * A hub lives over any number of init/finalize rounds of its ranks. All functions may be called
 * from any thread.
 */
#ifndef HALAY_INPROC_H
#define HALAY_INPROC_H

#include <halay/transport.h>

typedef struct halay_inproc_hub halay_inproc_hub_t;

/* All zero: no faults. A "poll" is one call of poll by an endpoint that something is
 * pending for. */
typedef struct halay_inproc_faults {
    uint64_t seed;            /* of everything random here, and of the job's name and secret */
    uint32_t delay_polls_max; /* each message and put arrives after 0 to this many polls */
    uint32_t reorder;         /* 1: events come in random order */
    uint32_t late_put_polls; /* > 0: puts and landing sends copy random chunks, at random ends, over
                                up to this many polls of either side; some sends are INPROGRESS */
    uint32_t queue_slots;    /* what a way holds before HALAY_EAGAIN; 0: 64 */
    uint32_t again_percent;  /* so many of 100 posts are HALAY_EAGAIN for no reason; at most 90 */
    uint32_t connect_polls;  /* a way is made after so many polls */
    uint32_t hide_capabilities; /* HALAY_CAN_* that are not offered */
    uint32_t cache;             /* 1: HALAY_CAN_CACHE is */
    uint32_t lend_bytes;        /* > 0: HALAY_CAN_LEND is, and payloads of so many bytes are lent */
    uint64_t lend_most;         /* bytes that alloc_mem makes at most; 0: any */
    uint64_t eager_bytes, message_bytes, piece_bytes; /* 0: 2048, 16384, 8192 */
} halay_inproc_faults_t;

/* config.boot_arg and params.arg point to one. It must outlive what was opened with it. */
struct halay_inproc_rank {
    halay_inproc_hub_t *hub;
    int rank;
};

/* faults NULL: none. HALAY_EINVAL, HALAY_ENOMEM. */
int halay_inproc_hub_create(int nranks, const halay_inproc_faults_t *faults,
                            halay_inproc_hub_t **hub);

/* Frees it and what killed ranks left open. Living ranks must have closed. Takes NULL. */
void halay_inproc_hub_destroy(halay_inproc_hub_t *hub);

/* Where ranks run: nodes 0 to k, none left out. Without it all run on node 0. Before any open. */
int halay_inproc_hub_nodes(halay_inproc_hub_t *hub, const int node_of_rank[]);

/*
 * The rank is dead, for good. Its puts stop writing and its own calls are HALAY_ETRANSPORT (a sleep
 * on its descriptor ends); it should still close. Some of the messages that it had sent are lost.
 * Peers with a way to or from it get FAILED, once; sends to it are HALAY_EPEER.
 */
void halay_inproc_kill(halay_inproc_hub_t *hub, int rank);

/* From now on packets between the two vanish: sends seem to work, puts never complete. No event. */
void halay_inproc_cut(halay_inproc_hub_t *hub, int a, int b);

extern HALAY_API const halay_transport_ops_t halay_transport_v7_inproc;
extern HALAY_API const halay_boot_ops_t halay_boot_v4_inproc;

#endif
