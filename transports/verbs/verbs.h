/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verbs.h - what the files of this transport share. docs/decisions/0026-verbs-transport.md says
 * why.
 *
 *   verbs.c   the table, small answers
 *   open.c    an endpoint comes and goes
 *   device.c  which device, which port, which GIDs
 *   pair.c    a queue pair's states; GIDs of a pair; what is told of an end
 *   peer.c    peers come, are tried, fail and go
 *   send.c    messages, credits, work requests
 *   put.c     puts, in pieces
 *   recv.c    the shared receive queue
 *   poll.c    completions, events, sleep
 *   mem.c     registered memory, pools of buffers, the limit on locked memory
 *   rules.c   pure functions
 *
 * One RC queue pair a peer serves both directions and all ways, on one completion queue and one
 * shared receive queue. A message is a SEND, a put is RDMA WRITEs; a message and a put's immediate
 * take a receive request of the peer, for which a credit is spent.
 *
 * Invariant (promised): posted + held >= promised. posted: receive requests in the shared queue;
 * held: buffers of requests that have completed and are not posted again yet; promised: the sum,
 * over all peers, of the credits granted and KEPT. A credit is owed to its peer only when its
 * buffer is posted again.
 */
#ifndef HALAY_VERBS_VERBS_H
#define HALAY_VERBS_VERBS_H

#include <infiniband/verbs.h>

#include "../common/meet.h"
#include "rules.h"

enum {
    HLY_VERBS_SLOTS = 64,           /* work requests under way to one peer */
    HLY_VERBS_SPARE = 1,            /* of them for credits only */
    HLY_VERBS_PUTS = 16,            /* puts under way to one peer */
    HLY_VERBS_CHAIN = 8,            /* work requests to a doorbell */
    HLY_VERBS_QUIET = 8,            /* work requests from one that is signalled to the next */
    HLY_VERBS_MESSAGE = 8 << 10,    /* header and payload of a message; a receive buffer */
    HLY_VERBS_BOUNCE = 64 << 10,    /* a bounce buffer; what is not worth a registration */
    HLY_VERBS_APART = 8 << 10,      /* beyond it a put's immediate travels alone */
    HLY_VERBS_INLINE = 192,         /* asked for */
    HLY_VERBS_SENDS = 64,           /* buffers for messages, of all peers */
    HLY_VERBS_BOUNCES = 16,         /* bounce buffers */
    HLY_VERBS_QUEUE = 16 << 10,     /* receive requests, at most */
    HLY_VERBS_PAGE = 4096,          /* what peers try to write into */
    HLY_VERBS_BATCH = 16,           /* completions looked at in one go */
    HLY_VERBS_BUCKETS = 256,        /* of queue pairs by number */
    HLY_VERBS_TICK = 16,            /* polls between two looks at the clock */
    HLY_VERBS_HURRY = 256,          /* polls after which a failure is told in any case */
    HLY_VERBS_TIMEOUT = 17,         /* 4.096 us * 2^17, times (1 + RETRIES): 3.8 s */
    HLY_VERBS_RETRIES = 6,          /* 7 is for ever on Soft-RoCE */
    HLY_VERBS_IMM_MESSAGE = 1 << 16 /* in the immediate of a SEND; below it, credits */
};
#define HLY_VERBS_MAGIC       UINT64_C(0x3362726556414c48)
#define HLY_VERBS_SLOW_NS     UINT64_C(50000) /* between two looks at sockets, while polled */
#define HLY_VERBS_GIVEN_UP_NS UINT64_C(5000000000)
/* What work requests are called: a receive request by its buffer, which is even; a send by its
 * number. */
#define HLY_VERBS_SEND(number) ((uint64_t)(number) << 1 | 1)

/* Sources are in a list, and puts that need the same range at the same time share one (refs). A
 * target is never shared, neither with another nor with a source: its key has to die with it. */
struct halay_mem {
    struct ibv_mr *mr;
    const uint8_t *address;
    size_t bytes;
    int refs; /* of a source: puts */
    struct halay_mem *next;
};

typedef struct hly_verbs_buffer {
    uint8_t *at;
    uint32_t lkey;
    struct halay_ep *owed_to; /* while held: whose credit it was; NULL: nobody's */
    struct hly_verbs_buffer *next;
} hly_verbs_buffer_t;

/* Registered memory, cut into buffers. */
typedef struct hly_verbs_slab {
    void *room;
    size_t bytes;
    struct ibv_mr *mr;
    hly_verbs_buffer_t *buffers;
    struct hly_verbs_slab *next;
} hly_verbs_slab_t;

typedef struct hly_verbs_work { /* what a work request holds until it is done */
    hly_verbs_buffer_t *buffer, **pool;
    int ends_put;
} hly_verbs_work_t;

typedef struct hly_verbs_put {
    const uint8_t *payload;
    size_t bytes, offset; /* offset: of what is to be posted next */
    uint64_t remote, cookie;
    uint32_t rkey, immediate;
    halay_mem_t *mem; /* the payload's; NULL: it is inline, or bounces */
    int bounces, posted, over, status;
} hly_verbs_put_t;

/* What one end tells the other. */
typedef struct hly_verbs_tell {
    uint32_t qpn, mtu, lid, grant, rkey, port, ngids, type;
    uint64_t page;
    char device[16];
    hly_verbs_gid_t gids[HLY_VERBS_GIDS];
} hly_verbs_tell_t;

enum { TRIED_NOT, TRYING_SMALL, TRYING_LARGE, TRIED };

/* A peer. A way is a reference to it. */
struct halay_ep {
    hly_meet_peer_t base;
    struct ibv_qp *qp; /* NULL: gone, after a failure */
    struct halay_ep *same_bucket;
    hly_verbs_tell_t its;
    uint32_t grant, credits, owed; /* what it was granted; what this end may spend; to give back */
    uint32_t posted, done;         /* work requests: in all */
    uint32_t quiet;                /* the last ones, unsignalled */
    uint32_t trial;                /* the first of two requests that try the peer */
    uint32_t inline_bytes;
    int tried, refused; /* refused: somebody waits for room */
    int gid, its_gid, mtu;
    hly_verbs_work_t work[HLY_VERBS_SLOTS];
    hly_verbs_put_t puts[HLY_VERBS_PUTS];
    uint32_t put_first, put_next, put_end; /* oldest; first not posted whole; behind the last */
};

typedef struct hly_verbs_counters {
    uint64_t messages, puts, requests, doorbells, signalled, sent, received, credits;
    uint64_t put_bytes, bounced_bytes, inlined, registered, shared, refilled, connections;
} hly_verbs_counters_t;

struct halay_transport {
    hly_meet_t meet;
    hly_verbs_settings_t settings;
    struct ibv_context *device;
    struct ibv_device_attr limits;
    struct ibv_port_attr port;
    int port_number;
    char name[64]; /* "rxe0/1" */
    hly_verbs_gid_t gids[HLY_VERBS_GIDS];
    int ngids, mtu;
    struct ibv_pd *pd;
    struct ibv_comp_channel *channel;
    struct ibv_cq *cq;
    struct ibv_srq *srq;
    int cq_room, cq_promised, armed;
    uint32_t queue; /* receive requests that the shared queue takes */
    uint32_t most;  /* bytes of one work request */

    hly_verbs_slab_t *slabs;
    hly_verbs_buffer_t *sends, *bounces;      /* free */
    hly_verbs_buffer_t *idle, *given;         /* to be posted; in the caller's hands */
    uint32_t buffers, posted, held, promised; /* the invariant; buffers: in all */
    uint8_t *page;
    struct ibv_mr *page_mr;
    halay_mem_t *sources;
    halay_ep_t *by_qpn[HLY_VERBS_BUCKETS];
    uint32_t npeers;
    int late;    /* puts have ended whose events found no room, or queue pairs are to be let go */
    int starved; /* a put waits for a bounce buffer */
    int roused;  /* one who was refused may try again, before he sleeps */
    uint32_t polls, failing_polls, warned;
    uint64_t attended_ns;
    hly_verbs_counters_t n;
};

enum { WARNED_SOURCE = 1, WARNED_TARGET = 2, WARNED_PORT = 4 };

static inline halay_ep_t *hly_verbs_first(const halay_transport_t *t)
{
    return (halay_ep_t *)t->meet.peers;
}

static inline halay_ep_t *hly_verbs_next(const halay_ep_t *peer)
{
    return (halay_ep_t *)peer->base.next;
}

static inline uint32_t hly_verbs_room(const halay_ep_t *peer)
{
    return HLY_VERBS_SLOTS - (peer->posted - peer->done);
}

/* open.c */
int hly_verbs_open(const halay_transport_params_t *params, halay_transport_t **transport);
void hly_verbs_close(halay_transport_t *t);

/* device.c; both say what is wrong */
int hly_verbs_device_open(halay_transport_t *t);
/* Events that the device tells beside completions. */
void hly_verbs_device_look(halay_transport_t *t);

/* pair.c */
int hly_verbs_pair_make(halay_transport_t *t, halay_ep_t *peer);
/* To the state in which both may send. 0 or an errno. */
int hly_verbs_pair_ready(halay_transport_t *t, halay_ep_t *peer);
/* What is posted ends with an error, and nothing is written here any more. */
void hly_verbs_pair_stop(halay_ep_t *peer);
void hly_verbs_tell_write(const halay_transport_t *t, const halay_ep_t *peer,
                          hly_verbs_tell_t *tell);
/* Both ports, GIDs and MTUs, for a message. */
void hly_verbs_pair_text(const halay_transport_t *t, const halay_ep_t *peer, char *text,
                         size_t bytes);

/* peer.c */
hly_meet_peer_t *hly_verbs_peer_make(halay_transport_t *t);
size_t hly_verbs_peer_tell(halay_transport_t *t, hly_meet_peer_t *base, uint8_t *tells);
void hly_verbs_peer_meet(halay_transport_t *t, hly_meet_peer_t *base, const uint8_t *tells,
                         size_t bytes);
halay_ep_t *hly_verbs_peer_of(const halay_transport_t *t, uint32_t qpn);
/* Writes into a page of the peer's, when both queue pairs are ready. */
void hly_verbs_peer_try(halay_transport_t *t, halay_ep_t *peer);
/* More requests are done. */
void hly_verbs_peer_tried(halay_transport_t *t, halay_ep_t *peer);
/* It cannot be reached by RDMA, or not any more. */
void hly_verbs_peer_broken(halay_transport_t *t, halay_ep_t *peer, const char *why);
/* Lets go of what peers hold that have failed. Returns 1 if some have to be looked at again. */
int hly_verbs_peers_tidy(halay_transport_t *t);
void hly_verbs_peer_free(halay_transport_t *t, halay_ep_t *peer);

/* send.c */
int hly_verbs_send(halay_transport_t *t, halay_ep_t *peer, uint64_t tag, const void *header,
                   size_t header_bytes, const void *payload, size_t bytes, uint64_t cookie);
/* HALAY_OK, _EAGAIN or _EPEER; slots beside those that are kept for credits. */
int hly_verbs_may(halay_ep_t *peer, uint32_t slots);
/* Posts n requests with one doorbell; wr[i].num_sge is set, and work[i] what it holds. */
int hly_verbs_post(halay_transport_t *t, halay_ep_t *peer, struct ibv_send_wr wr[], int n,
                   const hly_verbs_work_t work[]);
/* Gives credits back alone, if enough are owed. */
void hly_verbs_credits_return(halay_transport_t *t, halay_ep_t *peer);
/* A request without any data that is signalled: all before it are done when it is. */
void hly_verbs_fence(halay_transport_t *t, halay_ep_t *peer);

/* put.c */
int hly_verbs_put(halay_transport_t *t, halay_ep_t *peer, const void *payload, size_t bytes,
                  const void *key, size_t key_bytes, uint64_t offset, uint32_t immediate,
                  uint64_t cookie);
/* Posts what there is room for. */
void hly_verbs_puts_advance(halay_transport_t *t, halay_ep_t *peer);
/* Events of puts that are over. */
int hly_verbs_puts_give(halay_transport_t *t, halay_ep_t *peer, halay_event_t events[], int max);
/* Of a peer that has failed, when nothing is under way any more. */
void hly_verbs_puts_drop(halay_transport_t *t, halay_ep_t *peer);

/* recv.c */
/* So many more are promised, or -1. */
int hly_verbs_recvs_promise(halay_transport_t *t, uint32_t many);
/* Posts a list, and owes the credits. */
void hly_verbs_recvs_post(halay_transport_t *t, hly_verbs_buffer_t **list);
/* The peer goes: nobody is owed. */
void hly_verbs_recvs_forget(halay_transport_t *t, const halay_ep_t *peer);

/* poll.c */
int hly_verbs_poll(halay_transport_t *t, halay_event_t events[], int max);
int hly_verbs_arm(halay_transport_t *t, int *fd);

/* mem.c */
int hly_verbs_pool_add(halay_transport_t *t, hly_verbs_buffer_t **pool, uint32_t many,
                       size_t bytes);
int hly_verbs_pools_open(halay_transport_t *t);
void hly_verbs_pools_close(halay_transport_t *t);
hly_verbs_buffer_t *hly_verbs_buffer_take(hly_verbs_buffer_t **pool);
void hly_verbs_buffer_give(hly_verbs_buffer_t **pool, hly_verbs_buffer_t *buffer);
/* A source: a living registration that holds the range, or a new one. NULL: it has to bounce. */
halay_mem_t *hly_verbs_source_hold(halay_transport_t *t, const void *address, size_t bytes);
void hly_verbs_source_drop(halay_transport_t *t, halay_mem_t *mem);
int hly_verbs_register(halay_transport_t *t, void *address, size_t bytes, halay_mem_t **mem);
void hly_verbs_deregister(halay_transport_t *t, halay_mem_t *mem);
int hly_verbs_key(halay_transport_t *t, const halay_mem_t *mem, void *key, size_t *bytes);

#endif
