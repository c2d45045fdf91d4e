/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ucx.h - what the files of this transport share. docs/decisions/ucx-tcp.md#0007 says why.
 *
 *   ucx.c       the table; send, recv, poll, arm: all that is on the fast path
 *   open.c      an endpoint comes and goes
 *   settings.c  UCX's own settings
 *   short.c     short messages that come
 *   peer.c      peers: their UCX endpoint, that they failed; events that wait to be polled
 *   watch.c     the slow path: sockets, goodbyes, failures
 *
 * Two processes that talk share one link (transports/common; two, if both called at once) and one
 * pair of UCX endpoints, for both directions and all ways. Both stay until one of the two ends, so
 * a way costs nothing, and giving one up disturbs nobody. On the link the two get to know each
 * other's UCX address; then its end is the sign that the peer has ended. A peer that leaves says
 * how many messages it has sent, and waits, for a while, to hear that they were seen: only then
 * does it close its UCX endpoint, which may throw away what the network still holds.
 */
#ifndef HALAY_UCX_UCX_H
#define HALAY_UCX_UCX_H

#include <ucp/api/ucp.h>

#include "../common/meet.h"

enum {
    HLY_UCX_OPS = 256,          /* sends under way */
    HLY_UCX_OPS_PEER = 64,      /* of them, to one peer */
    HLY_UCX_LANDINGS = 4096,    /* posted landing buffers */
    HLY_UCX_MESSAGE = 64 << 10, /* header and payload of a message */
    HLY_UCX_EAGER = 8 << 10,    /* payloads that are best sent unannounced */
    HLY_UCX_COPY = 8 << 10,     /* up to here a send copies */
    HLY_UCX_SHORT = 1 << 10,    /* header and payload of a short message, */
    HLY_UCX_SHORT_TCP = 4224,   /* and where TCP is all there is */
    HLY_UCX_SHORTS = 64,        /* posted receives for them, at most, */
    HLY_UCX_SHORTS_LEAST = 4,   /* and at least */
    HLY_UCX_TOKEN = 8,          /* before a message */
    HLY_UCX_LINE = 64,          /* a usual header */
    HLY_UCX_ADDRESS = 4 << 10,  /* a UCX worker's address, at most */
    HLY_UCX_PROGRESS = 8,       /* looks at UCX in one idle poll, at most */
    HLY_UCX_DROPS = 64,         /* messages nobody waits for that are thrown away in one go */
    HLY_UCX_TICK = 16,          /* polls between two looks at the clock */
    HLY_UCX_LOCKED = 64 << 20,  /* memory that one may lock, at least, for UCX over RDMA */
};
#define HLY_UCX_SHORT_TAG (UINT64_C(1) << 63) /* never in the tag of a landing buffer */
#define HLY_UCX_MAGIC     UINT64_C(0x3558435559414c48)
#define HLY_UCX_SLOW_NS   UINT64_C(50000)   /* between two looks at sockets, while polled */
#define HLY_UCX_BUSY_NS   UINT64_C(1000000) /* the same, while messages come */

/* A way is a reference to a peer. */
typedef struct halay_ep {
    hly_meet_peer_t base;
    int index;
    int under_way; /* sends that UCX has not finished */
    uint64_t token, its_token;
    ucp_ep_h ucp;
    ucs_status_t broken; /* UCX gave up its endpoint: why */
    uint64_t sent, came; /* messages; tagged ones do not count */
} hly_ucx_peer_t;

/* A send that UCX has not finished, with room for the header, or all of a small message. */
typedef struct hly_ucx_op {
    halay_transport_t *transport;
    hly_ucx_peer_t *peer;
    int tell; /* SENT will come */
    uint64_t cookie;
    ucp_dt_iov_t parts[2];
    struct hly_ucx_op *next;
    uint8_t *room;
} hly_ucx_op_t;

enum { LANDING_FREE, LANDING_POSTED, LANDING_DONE /* the event waits to be polled */ };

typedef struct hly_ucx_landing {
    halay_transport_t *transport;
    int state, withdrawing;
    uint64_t tag, cookie;
    void *request;
    struct hly_ucx_landing *next;
} hly_ucx_landing_t;

/* UCX's request lies before it. */
typedef struct hly_ucx_short {
    struct hly_ucx_short *next;
    int posted;
    uint64_t token; /* what comes */
    uint8_t room[HLY_UCX_SHORT_TCP];
} __attribute__((aligned(64))) hly_ucx_short_t;

/* An event that waits to be polled. offset: of its data in the arena, 8-byte aligned. */
typedef struct hly_ucx_waiting {
    halay_event_t event;
    int stays; /* event.data stays until the arena starts anew: it was not copied there */
    size_t offset;
    hly_ucx_landing_t *landing;
} hly_ucx_waiting_t;

struct halay_transport {
    hly_meet_t meet;
    ucp_context_h context;
    ucp_worker_h worker;
    ucp_address_t *worker_address;
    size_t worker_address_bytes;
    int worker_fd, watched; /* watched: meet.epoll_fd looks at worker_fd */

    hly_ucx_waiting_t *waiting; /* from first to last wait */
    size_t first, last, room;
    halay_event_t *sink; /* of the poll that is at it: short messages go there, if none waits */
    int sunk, sink_room;
    uint8_t *arena;
    size_t arena_bytes, arena_room;
    hly_ucx_op_t *ops, *free_op;
    uint8_t *ops_room;
    hly_ucx_landing_t *landings, *free_landing;
    uint8_t *shorts;
    size_t shorts_stride;
    hly_ucx_short_t *spare, *spent; /* spent: to be posted when the arena starts anew */
    int shorts_posted, shorts_wanted;
    size_t short_bytes; /* what is sent as a short message */
    int lands;          /* a landing buffer was posted at some time */

    hly_ucx_peer_t **by_index;
    int nindex;
    uint32_t lives; /* of indices: the upper half of a token */
    int closes;     /* UCX endpoints that are being closed */

    uint32_t polls;
    int busy; /* a message has come since the last look at the clock */
    uint64_t attended_ns;
    int warned; /* of a message of an unknown sender */
};

static inline hly_ucx_peer_t *hly_ucx_first(const halay_transport_t *t)
{
    return (hly_ucx_peer_t *)t->meet.peers;
}

/* NULL: none has this token. */
static inline hly_ucx_peer_t *hly_ucx_peer_of(const halay_transport_t *t, uint64_t token)
{
    uint32_t i = (uint32_t)token;
    if (i >= (uint32_t)t->nindex || !t->by_index[i] || t->by_index[i]->token != token)
        return NULL;
    return t->by_index[i];
}

/* What was polled before is gone. */
void hly_ucx_shorts_post(halay_transport_t *t);

/* What was polled before is gone, and no event waits; what waits inside UCX may come now. */
static inline void hly_ucx_arena_restart(halay_transport_t *t)
{
    t->first = t->last = t->arena_bytes = 0;
    if (t->shorts_posted == 0)
        hly_ucx_shorts_post(t);
}

static inline hly_ucx_peer_t *hly_ucx_next(const hly_ucx_peer_t *peer)
{
    return (hly_ucx_peer_t *)peer->base.next;
}

/* open.c */
int hly_ucx_open(const halay_transport_params_t *params, halay_transport_t **transport);
void hly_ucx_close(halay_transport_t *t);

/* short.c */
/* A message from the peer with this token. stays: as in hly_ucx_waiting_t. */
void hly_ucx_message(halay_transport_t *t, uint64_t token, const void *data, size_t bytes,
                     int stays);
int hly_ucx_shorts_make(halay_transport_t *t);
void hly_ucx_shorts_cancel(halay_transport_t *t);

/* settings.c */
void hly_ucx_signals_restore(void);
/* *rdma: not only TCP. */
ucs_status_t hly_ucx_settings_read(const hly_meet_t *meet, ucp_config_t **config, int *rdma);

/* peer.c */
/* What hly_meet_ops_t asks for. */
hly_meet_peer_t *hly_ucx_peer_make(halay_transport_t *t);
size_t hly_ucx_peer_tell(halay_transport_t *t, hly_meet_peer_t *peer, uint8_t *tells);
void hly_ucx_peer_meet(halay_transport_t *t, hly_meet_peer_t *base, const uint8_t *tells,
                       size_t bytes);
void hly_ucx_peer_free(halay_transport_t *t, hly_ucx_peer_t *peer);
/* UCX says that the peer cannot be reached. What our own link says is better: it is read first. */
void hly_ucx_peer_break(halay_transport_t *t, hly_ucx_peer_t *peer, ucs_status_t status);
void hly_ucx_ep_close(halay_transport_t *t, hly_ucx_peer_t *peer);
/* Appends an event, with a copy of its data if not `stays`; NULL: no memory, and t->error is set.
 */
hly_ucx_waiting_t *hly_ucx_event_add(halay_transport_t *t, const halay_event_t *event, int stays);

/* watch.c */
void hly_ucx_attend(halay_transport_t *t);
/* Whether UCX's descriptor wakes a sleeper. A negative errno. */
int hly_ucx_watch(halay_transport_t *t, int watched);
/* Throws away what was sent to landing buffers that were withdrawn. Returns how many. */
int hly_ucx_strays_drop(halay_transport_t *t);

#endif
