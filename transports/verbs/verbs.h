/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verbs.h - what the files of this transport share. docs/decisions/verbs.md#0026 says why.
 *
 *   verbs.c   the table, small answers
 *   open.c    an endpoint comes and goes
 *   ports.c   which ports, with which GIDs
 *   device.c  what a device needs: its queues
 *   pair.c    a queue pair's states; what an end tells of itself
 *   peer.c    peers come, are tried, fail and go
 *   send.c    messages, credits, work requests
 *   put.c     puts, in pieces
 *   recv.c    the shared receive queue
 *   poll.c    completions, events, sleep
 *   mem.c     registered memory, pools of buffers, the limit on locked memory
 *   rules.c, rails.c   pure functions
 *
 * A rail is a port of this end; a lane is a pair of ports, one of each end, with an RC queue pair.
 * It serves both directions and all ways to a peer, on the completion queue and the shared receive
 * queue of its device. A message is a SEND, a put is RDMA WRITEs; a message and a put's immediate
 * take a receive request of the peer, for which a credit is spent. All of this goes over lane 0. A
 * large put is cut: each lane carries a part and, after it, an immediate. One credit stands for
 * all of them (docs/decisions/transports.md#0029).
 *
 * Invariant (promised), of each device: posted + held >= promised. posted: receive requests in the
 * shared queue; held: buffers of requests that have completed and are not posted again yet;
 * promised: the sum, over all lanes of all peers, of the credits granted and KEPT. A credit is owed
 * to its peer only when its buffer is posted again, and of a put that was cut those of all lanes.
 */
#ifndef HALAY_VERBS_VERBS_H
#define HALAY_VERBS_VERBS_H

#include <infiniband/verbs.h>
#include <pthread.h>
#include <sys/queue.h>

#include "../common/meet.h"
#include "rails.h"

enum {
    HLY_VERBS_SLOTS = 64,            /* work requests under way on one lane */
    HLY_VERBS_SPARE = 1,             /* of them for credits only */
    HLY_VERBS_PUTS = 16,             /* puts under way to one peer */
    HLY_VERBS_CHAIN = 8,             /* work requests to a doorbell */
    HLY_VERBS_QUIET = 8,             /* work requests from one that is signalled to the next */
    HLY_VERBS_MESSAGE = 8 << 10,     /* header and payload of a message; a receive buffer */
    HLY_VERBS_EAGER = 32 << 10,      /* what is not worth a turn: in messages */
    HLY_VERBS_BOUNCE = 64 << 10,     /* a bounce buffer; what is not worth a registration */
    HLY_VERBS_APART = 8 << 10,       /* beyond it a put's immediate travels alone */
    HLY_VERBS_INLINE = 192,          /* asked for */
    HLY_VERBS_SENDS = 64,            /* buffers for messages, of all peers */
    HLY_VERBS_BOUNCES = 16,          /* bounce buffers */
    HLY_VERBS_QUEUE = 16 << 10,      /* receive requests of a device, at most */
    HLY_VERBS_PAGE = 4096,           /* what peers try to write into */
    HLY_VERBS_BATCH = 16,            /* completions looked at in one go */
    HLY_VERBS_BUCKETS = 256,         /* of queue pairs by number */
    HLY_VERBS_TICK = 16,             /* polls between two looks at the clock */
    HLY_VERBS_HURRY = 256,           /* polls after which a failure is told in any case */
    HLY_VERBS_TIMEOUT = 18,          /* 4.096 us * 2^18, times (1 + RETRIES): 7.5 s */
    HLY_VERBS_RETRIES = 6,           /* 7 is for ever on Soft-RoCE */
    HLY_VERBS_IMM_MESSAGE = 1 << 16, /* in the immediate of a SEND; below them, credits */
    HLY_VERBS_IMM_PART = 1 << 17     /* lane 0's part of a put that was cut is complete */
};
#define HLY_VERBS_MAGIC       UINT64_C(0x3562726556414c48)
#define HLY_VERBS_SLOW_NS     UINT64_C(50000)      /* between two looks at sockets, while polled */
#define HLY_VERBS_LINK_NS     UINT64_C(7500000000) /* TIMEOUT and RETRIES */
#define HLY_VERBS_GIVEN_UP_NS UINT64_C(5000000000)
#define HLY_VERBS_END_NS      UINT64_C(5000000000) /* a close waits for queue pairs */
/* What work requests are called: a receive request by its buffer, which is even; a send by its
 * number. */
#define HLY_VERBS_SEND(number) ((uint64_t)(number) << 1 | 1)

/* Made for a source, which puts that need the same range at the same time share; or for a target,
 * of which no other shares the key, but puts from the same memory may use it (refs). */
struct halay_mem {
    struct ibv_mr *mr[HLY_VERBS_RAILS]; /* NULL: a target that was deregistered under such a put */
    const uint8_t *address;
    size_t bytes;
    int refs;           /* puts whose payload it is */
    int target, device; /* device: memory that the processor cannot touch */
    LIST_ENTRY(halay_mem) entry;
};

/* What a peer needs to put into it; rkey: of each device. */
typedef struct hly_verbs_key {
    uint64_t address, bytes;
    uint32_t rkey[HLY_VERBS_RAILS];
} hly_verbs_key_t;

typedef struct hly_verbs_buffer {
    uint8_t *at;
    const struct hly_verbs_slab *slab;
    struct halay_ep *owed_to; /* while held: whose credit it was; NULL: nobody's */
    struct hly_verbs_buffer *next;
} hly_verbs_buffer_t;

/* Registered memory, cut into buffers. */
typedef struct hly_verbs_slab {
    void *room;
    size_t bytes;
    struct ibv_mr *mr[HLY_VERBS_RAILS]; /* NULL: not with this device */
    int device;                         /* receive buffers: theirs; -1: of all */
    hly_verbs_buffer_t *buffers;
    struct hly_verbs_slab *next;
} hly_verbs_slab_t;

typedef struct hly_verbs_work { /* what a work request holds until it is done */
    hly_verbs_buffer_t *buffer, **pool;
    uint32_t put; /* that it ends, on this lane */
    int ends_put;
    int patient; /* its buffer may come back with a later request */
} hly_verbs_work_t;

typedef struct hly_verbs_put {
    const uint8_t *payload;
    size_t bytes, offset[HLY_VERBS_RAILS]; /* of what is to be posted next on a lane, in its part */
    uint64_t remote, cookie;
    uint32_t rkey[HLY_VERBS_RAILS]; /* of the peer's devices */
    uint32_t immediate;
    halay_mem_t *mem;  /* the payload's; NULL: it is inline, or bounces */
    int lanes, awaits; /* lanes that carry it; those on which it is not done */
    int bounces, status;
} hly_verbs_put_t;

/* What one end tells the other. */
typedef struct hly_verbs_tell {
    uint32_t nports, grant;
    hly_verbs_port_t ports[HLY_VERBS_RAILS];
} hly_verbs_tell_t;

enum { TRIED_NOT, TRYING_SMALL, TRYING_LARGE, TRIED };

/* A queue pair to a peer. */
typedef struct hly_verbs_lane {
    struct halay_ep *peer;
    struct ibv_qp *qp; /* NULL: gone */
    struct hly_verbs_lane *same_bucket;
    uint32_t qpn;
    int rail, place;       /* place: which lane it is */
    uint32_t posted, done; /* work requests: in all */
    uint32_t quiet;        /* the last ones, unsignalled */
    uint32_t trial;        /* the first of two requests that try it */
    uint32_t inline_bytes;
    uint32_t put_next;      /* the first put that is not posted whole here */
    uint32_t came;          /* parts of puts that are complete */
    int tried, failed_here; /* the latter: a request could not leave this end */
    hly_verbs_work_t work[HLY_VERBS_SLOTS];
} hly_verbs_lane_t;

/* A peer. A way is a reference to it. */
struct halay_ep {
    hly_meet_peer_t base;
    hly_verbs_tell_t its;
    uint32_t grant, credits, owed; /* what it was granted; what this end may spend; to give back */
    int tried, refused;            /* of all lanes; refused: somebody waits for room */
    int nlanes;                    /* 0: not met yet */
    hly_verbs_lane_plan_t plan[HLY_VERBS_RAILS];
    hly_verbs_lane_t *lane[HLY_VERBS_RAILS];
    hly_verbs_put_t puts[HLY_VERBS_PUTS];
    uint32_t put_first, put_end; /* oldest; behind the last */
    /* Of puts that were cut, the n-th modulo their number: parts come in any order of the lanes. */
    uint32_t immediates[HLY_VERBS_CREDITS];
    uint32_t told;            /* that are complete */
    hly_verbs_buffer_t *kept; /* the buffers of those that are not */
    hly_verbs_lane_t at[];    /* of each rail */
};

/* Queue pairs that are being destroyed. */
typedef struct hly_verbs_ends {
    pthread_mutex_t lock;
    pthread_cond_t over;
    struct ibv_qp *first; /* the next by qp_context */
    int runs, left;       /* a thread; the transport is closed, and the thread closes the devices */
} hly_verbs_ends_t;

typedef struct hly_verbs_counters {
    uint64_t messages, puts, requests, doorbells, signalled, sent, received, credits;
    uint64_t put_bytes, bounced_bytes, inlined, registered, shared, kept, refilled, connections;
    uint64_t lanes, cut;
} hly_verbs_counters_t;

typedef struct hly_verbs_device {
    struct ibv_context *context;
    struct ibv_device_attr limits;
    struct ibv_pd *pd;
    struct ibv_comp_channel *channel;
    struct ibv_cq *cq;
    struct ibv_srq *srq;
    int cq_room, cq_promised, armed;
    uint32_t queue;                           /* receive requests that the shared queue takes */
    uint32_t buffers, posted, held, promised; /* the invariant; buffers: in all */
} hly_verbs_device_t;

typedef struct hly_verbs_rail {
    int device;
    struct ibv_port_attr attr;
    char name[64];         /* "rxe0/1" */
    hly_verbs_port_t port; /* what this end tells of it, less the queue pair */
    uint64_t put_bytes;
} hly_verbs_rail_t;

struct halay_transport {
    hly_meet_t meet;
    hly_verbs_settings_t settings;
    hly_verbs_device_t devices[HLY_VERBS_RAILS];
    hly_verbs_rail_t rails[HLY_VERBS_RAILS];
    int ndevices, nrails;
    char over[128]; /* names of the rails */
    int local_rank;
    uint32_t most; /* bytes of one work request */

    hly_verbs_slab_t *slabs;
    hly_verbs_buffer_t *sends, *bounces; /* free */
    uint32_t nsends;                     /* of the former, in use */
    /* To be posted: nobody's; somebody's. In the caller's hands. */
    hly_verbs_buffer_t *spare, *idle, *given;
    uint8_t *page;
    struct ibv_mr *page_mr[HLY_VERBS_RAILS];
    LIST_HEAD(, halay_mem) sources, targets;
    uint64_t locked_bytes;
    int dmabuf, peermem; /* how memory of a GPU can be registered */
    uint32_t ngpu;       /* its registrations that live */
    hly_verbs_lane_t *by_qpn[HLY_VERBS_BUCKETS];
    uint32_t npeers;
    int late;    /* puts have ended whose events found no room, or queue pairs are to be let go */
    int starved; /* a put waits for a bounce buffer */
    int roused;  /* one who was refused may try again, before he sleeps */
    uint32_t polls, failing_polls, warned;
    uint64_t attended_ns;
    hly_verbs_ends_t ends;
    hly_verbs_counters_t n;
};

enum { WARNED_SOURCE = 1, WARNED_TARGET = 2, WARNED_PORT = 4, WARNED_GPU = 8 };

static inline halay_ep_t *hly_verbs_first(const halay_transport_t *t)
{
    return (halay_ep_t *)t->meet.peers;
}

static inline halay_ep_t *hly_verbs_next(const halay_ep_t *peer)
{
    return (halay_ep_t *)peer->base.next;
}

static inline uint32_t hly_verbs_room(const hly_verbs_lane_t *lane)
{
    return HLY_VERBS_SLOTS - (lane->posted - lane->done);
}

static inline hly_verbs_device_t *hly_verbs_device_of(halay_transport_t *t,
                                                      const hly_verbs_lane_t *lane)
{
    return &t->devices[t->rails[lane->rail].device];
}

static inline uint32_t hly_verbs_lkey(const halay_transport_t *t, const hly_verbs_lane_t *lane,
                                      const hly_verbs_buffer_t *buffer)
{
    return buffer->slab->mr[t->rails[lane->rail].device]->lkey;
}

static inline const hly_verbs_port_t *hly_verbs_its_port(const hly_verbs_lane_t *lane)
{
    return &lane->peer->its.ports[lane->peer->plan[lane->place].its];
}

/* open.c */
int hly_verbs_open(const halay_transport_params_t *params, halay_transport_t **transport);
void hly_verbs_close(halay_transport_t *t);
/* There are no peers any more, and no queue pairs: frees t, too. */
void hly_verbs_devices_close(halay_transport_t *t);

/* ports.c: opens the devices whose ports serve, and makes the rails; says what is wrong. */
int hly_verbs_ports_open(halay_transport_t *t);

/* device.c; says what is wrong */
int hly_verbs_devices_open(halay_transport_t *t);
/* Events that the devices tell beside completions. */
void hly_verbs_devices_look(halay_transport_t *t);

/* pair.c */
/* On lane->rail. 0 or an errno. */
int hly_verbs_pair_make(halay_transport_t *t, hly_verbs_lane_t *lane);
/* To the state in which both may send. 0 or an errno. */
int hly_verbs_pair_ready(halay_transport_t *t, hly_verbs_lane_t *lane);
/* What is posted ends with an error, and nothing is written here any more. */
void hly_verbs_pair_stop(hly_verbs_lane_t *lane);
void hly_verbs_tell_write(const halay_transport_t *t, const halay_ep_t *peer,
                          hly_verbs_tell_t *tell);
/* Both ports, GIDs and MTUs, for a message. */
void hly_verbs_pair_text(const halay_transport_t *t, const hly_verbs_lane_t *lane, char *text,
                         size_t bytes);

/* end.c */
void hly_verbs_ends_init(hly_verbs_ends_t *ends);
void hly_verbs_ends_free(hly_verbs_ends_t *ends);
/* Destroys it beside; nothing is under way on it, or nobody is to hear of that. */
void hly_verbs_pair_end(halay_transport_t *t, struct ibv_qp *qp);
/* Have all been destroyed by then? If not, t is the thread's, which closes the devices. */
int hly_verbs_pairs_ended(halay_transport_t *t, uint64_t until_ns);

/* peer.c */
hly_meet_peer_t *hly_verbs_peer_make(halay_transport_t *t);
size_t hly_verbs_peer_tell(halay_transport_t *t, hly_meet_peer_t *base, uint8_t *tells);
void hly_verbs_peer_meet(halay_transport_t *t, hly_meet_peer_t *base, const uint8_t *tells,
                         size_t bytes);
/* A hash of the lanes, and what the peer says that it is. */
uint64_t hly_verbs_peer_mark(const halay_transport_t *t, const hly_meet_peer_t *base);
void hly_verbs_peer_agree(halay_transport_t *t, hly_meet_peer_t *base, uint64_t mark);
hly_verbs_lane_t *hly_verbs_lane_of(const halay_transport_t *t, int device, uint32_t qpn);
/* Writes into a page of the peer's on each lane, when both queue pairs are ready. */
void hly_verbs_peer_try(halay_transport_t *t, halay_ep_t *peer);
/* More requests are done. */
void hly_verbs_lane_tried(halay_transport_t *t, hly_verbs_lane_t *lane);
/* It cannot be reached by RDMA, or not any more. */
void hly_verbs_lane_broken(halay_transport_t *t, const hly_verbs_lane_t *lane, const char *why);
/* Its failure was seen elsewhere: both ports are added to the text, and what to look at. */
void hly_verbs_peer_name_device(halay_transport_t *t, halay_ep_t *peer);
/* Is nothing under way? */
int hly_verbs_peer_quiet(const halay_ep_t *peer);
/* Lets go of what peers hold that have failed. Returns 1 if some have to be looked at again. */
int hly_verbs_peers_tidy(halay_transport_t *t);
/* It may be freed: it was told to have failed, nobody holds it, and its queue pairs are gone. */
int hly_verbs_peer_gone(const halay_transport_t *t, const halay_ep_t *peer);
void hly_verbs_peer_free(halay_transport_t *t, halay_ep_t *peer);

/* send.c */
int hly_verbs_send(halay_transport_t *t, halay_ep_t *peer, uint64_t tag, const void *header,
                   size_t header_bytes, const void *payload, size_t bytes, uint64_t cookie);
/* HALAY_OK, _EAGAIN or _EPEER; slots beside those that are kept for credits. */
int hly_verbs_may(halay_ep_t *peer, uint32_t slots);
/* Posts n requests with one doorbell; wr[i].num_sge is set, and work[i] what it holds. */
int hly_verbs_post(halay_transport_t *t, hly_verbs_lane_t *lane, struct ibv_send_wr wr[], int n,
                   const hly_verbs_work_t work[]);
/* It is done, or was never posted: its buffer is free. */
void hly_verbs_work_end(halay_transport_t *t, const hly_verbs_work_t *work);
/* The immediate of a SEND: what it says, and all credits that are owed, which it brings back. */
uint32_t hly_verbs_immediate(halay_transport_t *t, halay_ep_t *peer, uint32_t says);
/* Gives credits back alone, if enough are owed. */
void hly_verbs_credits_return(halay_transport_t *t, halay_ep_t *peer);
/* A request without any data that is signalled: all before it are done when it is. */
void hly_verbs_fence(halay_transport_t *t, hly_verbs_lane_t *lane);

/* put.c */
int hly_verbs_put(halay_transport_t *t, halay_ep_t *peer, const void *payload, size_t bytes,
                  const void *key, size_t key_bytes, uint64_t offset, uint32_t immediate,
                  uint64_t cookie);
/* Posts what there is room for. */
void hly_verbs_puts_advance(halay_transport_t *t, halay_ep_t *peer);
/* A put is done on a lane. */
void hly_verbs_put_done(halay_transport_t *t, hly_verbs_put_t *put, int status);
/* Events of puts that are over. */
int hly_verbs_puts_give(halay_transport_t *t, halay_ep_t *peer, halay_event_t events[], int max);
/* The peer has failed, and nothing is under way any more. */
void hly_verbs_puts_drop(halay_transport_t *t, halay_ep_t *peer);
/* The payload's registration goes: whose puts still use it is lost. */
void hly_verbs_puts_break(halay_transport_t *t, const halay_mem_t *mem);

/* recv.c */
/* So many more are promised on a device, or -1. */
int hly_verbs_recvs_promise(halay_transport_t *t, int device, uint32_t many);
/* Posts a list, and owes the credits. */
void hly_verbs_recvs_post(halay_transport_t *t, hly_verbs_buffer_t **list);
/* The peer goes: nobody is owed. */
void hly_verbs_recvs_forget(halay_transport_t *t, halay_ep_t *peer);

/* poll.c */
int hly_verbs_poll(halay_transport_t *t, halay_event_t events[], int max);
int hly_verbs_arm(halay_transport_t *t, int *fd);

/* mem.c */
/* device: whose receive buffers they are; -1: registered with all. */
int hly_verbs_pool_add(halay_transport_t *t, int device, hly_verbs_buffer_t **pool, uint32_t many,
                       size_t bytes);
int hly_verbs_pools_open(halay_transport_t *t);
void hly_verbs_pools_close(halay_transport_t *t);
hly_verbs_buffer_t *hly_verbs_buffer_take(hly_verbs_buffer_t **pool);
void hly_verbs_buffer_give(hly_verbs_buffer_t **pool, hly_verbs_buffer_t *buffer);
/* A source: a living registration that holds the range, or a new one if it is long enough. NULL: it
 * has to bounce. */
halay_mem_t *hly_verbs_source_hold(halay_transport_t *t, const void *address, size_t bytes);
void hly_verbs_source_drop(halay_transport_t *t, halay_mem_t *mem);
int hly_verbs_register(halay_transport_t *t, const halay_mem_params_t *params, halay_mem_t **mem);
/* What of dma-bufs and nvidia_peermem is there. */
void hly_verbs_gpu_look(halay_transport_t *t);
/* A payload of any size in memory of a GPU; NULL: it is not. */
halay_mem_t *hly_verbs_gpu_hold(halay_transport_t *t, const void *address, size_t bytes);
void hly_verbs_deregister(halay_transport_t *t, halay_mem_t *mem);
/* What nobody has deregistered. */
void hly_verbs_targets_drop(halay_transport_t *t);
int hly_verbs_key(halay_transport_t *t, const halay_mem_t *mem, void *key, size_t *bytes);

#endif
