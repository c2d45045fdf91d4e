/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hub.h - inside inproc: the objects that the threads share. One mutex, the hub's, guards all
 * fields below but those marked otherwise; nothing is called under it that could take another lock.
 *
 * An item is a message or a put under way. It is in the target's inbox until its event was polled
 * there, and in the source's outbox until its completion was polled there; it is freed when it is
 * in neither. A way counts its items, which bounds every list.
 */
#ifndef HALAY_INPROC_HUB_H
#define HALAY_INPROC_HUB_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/queue.h>

#include "inproc.h"

#define INPROC_PEERS_MAX    4096 /* different peers of one endpoint */
#define INPROC_MEMS_MAX     4096 /* registrations of one endpoint */
#define INPROC_LANDINGS_MAX 1024 /* posted buffers of one endpoint */
#define INPROC_MAGIC        0x68616c6179696e70u

enum item_kind { ITEM_MESSAGE, ITEM_LANDING, ITEM_PUT };

/* A block of its own for each message: a sanitizer sees who reads past it or too late. */
struct buffer {
    struct buffer *next;
    _Alignas(16) uint8_t bytes[];
};

struct item {
    TAILQ_ENTRY(item) in_entry, out_entry;
    enum item_kind kind;
    halay_transport_t *source, *target; /* NULL: closed or dead, or (target) cut off for ever */
    halay_ep_t *way;                    /* whose slot it holds; NULL: given up */
    halay_peer_id_t from, to;
    bool in_inbox, in_outbox;
    bool arrived;           /* the target may poll it */
    bool done;              /* the source may poll its completion */
    int status, landed;     /* of the completion; of LANDED */
    uint32_t delay, late;   /* polls until it moves; polls over which it is copied */
    const uint8_t *payload; /* not copied yet: low to high of it */
    size_t low, high;
    const uint8_t *lent; /* a message: where the payload stays, or NULL */
    halay_mem_t *mem_lent;
    bool recalled;
    struct buffer *data; /* a message; or a landing payload that the source need not keep */
    size_t bytes, header_bytes;
    uint64_t cookie, tag;
    uint64_t mem, offset; /* put: where to; mem 0: nowhere */
    uint32_t immediate;
    struct landing *landing; /* the item's since its first byte was copied there */
};
TAILQ_HEAD(item_list, item);

struct landing {
    struct landing *next;
    uint64_t tag, cookie;
    uint8_t *buffer;
    size_t bytes;
};

/* What an endpoint knows of another one. */
struct peer {
    struct peer *next;
    halay_peer_id_t id;
    uint32_t to, from; /* ways */
    bool gone;         /* closed or killed: for good */
    bool failed;       /* FAILED was raised */
    bool failing;      /* and is to be polled, after what came from it before */
    const char *text;
};

enum way_state { WAY_PENDING, WAY_UP, WAY_FAILED };

struct halay_ep {
    struct halay_ep *next;
    struct peer *peer;
    halay_transport_t *target; /* while UP */
    enum way_state state;
    uint32_t connect_polls;
    uint32_t slots; /* in use */
    bool wanted;    /* a post was refused: wake the owner when there is room */
    uint64_t deadline_ns;
};

struct halay_mem {
    struct halay_mem *next;
    uint64_t id;
    uint8_t *address;
    size_t bytes;
    uint8_t *shown;  /* of memory that was made: the same for readers, or NULL */
    uint8_t *inside; /* of a device: where its pages are for us; `mapped` bytes of them */
    size_t mapped;
    uint32_t readers; /* at it now */
    bool left;        /* by its owner: the last reader frees it */
};

/* What key() gives away. */
struct inproc_key {
    uint64_t magic, mem;
    halay_peer_id_t owner;
};

struct halay_transport {
    struct halay_transport *next; /* in the hub */
    halay_inproc_hub_t *hub;      /* const, as are the next five */
    int rank, fd;
    halay_peer_id_t self;
    uint8_t job[16], secret[16];
    uint64_t deadline_ns;
    halay_log_fn log; /* called without the lock */
    void *log_arg;
    struct buffer *held;   /* only the owner's thread: what the last poll's events point to */
    struct item *borrowed; /* what its LENT event points to, under the lock */
    atomic_bool busy; /* poll has something to do; set under the lock, read by poll without it */
    bool killed;
    bool armed;  /* the owner may sleep: whoever gives it something makes fd readable */
    bool timed;  /* fd is readable, or will be */
    bool nudged; /* there is room again where a post was refused */
    uint64_t rng;
    bool turn; /* which box is looked at first */
    struct item_list inbox, outbox;
    struct peer *peers;
    struct halay_ep *ways;
    struct halay_mem *mems;
    struct landing *landings;
    uint32_t npeers, nmems, nlandings;
};

struct inproc_rank_state {
    uint64_t epoch;
    halay_peer_id_t closed; /* its last endpoint that has closed */
    bool boot_open, killed;
    int node;
};

struct halay_inproc_hub {
    pthread_mutex_t lock;
    int nranks, nnodes;
    halay_inproc_faults_t faults; /* const */
    uint64_t serial;              /* of endpoints and registrations */
    uint64_t job; /* its name: other jobs on this machine have others (shm's sockets) */
    struct halay_transport *transports;
    struct inproc_rank_state *ranks;
    uint8_t *cut; /* nranks * nranks */
};

/* hub.c */
uint64_t hly_inproc_now(void);
uint64_t hly_inproc_mix(uint64_t x);
/* Without the lock. */
void hly_inproc_log(const halay_transport_t *transport, int level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* From here on with the lock. 0 to below; below itself too. */
uint32_t hly_inproc_random(halay_transport_t *transport, uint32_t below);
bool hly_inproc_same(halay_peer_id_t a, halay_peer_id_t b);
bool hly_inproc_is_cut(const halay_transport_t *a, const halay_transport_t *b);
halay_transport_t *hly_inproc_find(const halay_transport_t *seeker, halay_peer_id_t id);
/* Has it been there, and closed? Nobody knows of what is behind a cut. */
bool hly_inproc_has_closed(const halay_transport_t *seeker, halay_peer_id_t id);
/* It has something to poll, or may try again. */
void hly_inproc_wake(halay_transport_t *transport);
/* NULL: unknown, or (make) no room. */
struct peer *hly_inproc_peer(halay_transport_t *transport, halay_peer_id_t id, bool make);
/* Its ways to the peer have failed; raises FAILED unless that was done. */
void hly_inproc_fail(halay_transport_t *transport, struct peer *peer, const char *text);
/* Ends what is under way between the two; both have failed for one another. */
void hly_inproc_sever(halay_transport_t *transport, struct peer *peer);
/* Ends all that it has under way and tells the others. */
void hly_inproc_leave(halay_transport_t *transport, bool killed);
/* The last bit of close: what is left is its own. */
void hly_inproc_free(halay_transport_t *transport);

/* way.c; with the lock */
void hly_inproc_way_try(halay_transport_t *transport, halay_ep_t *ep);
void hly_inproc_way_drop(halay_transport_t *transport, halay_ep_t *ep);
/* 1: one can come up by polling. Otherwise *deadline_ns gets the first deadline, or 0. */
bool hly_inproc_connecting(const halay_transport_t *transport, uint64_t *deadline_ns);

/* post.c; with the lock, arguments checked */
int hly_inproc_send(halay_transport_t *transport, halay_ep_t *ep, uint64_t tag, const void *header,
                    size_t header_bytes, const void *payload, size_t payload_bytes,
                    uint64_t cookie);
int hly_inproc_recv(halay_transport_t *transport, uint64_t tag, void *buffer, size_t bytes,
                    uint64_t cookie);
int hly_inproc_withdraw(halay_transport_t *transport, uint64_t tag);
int hly_inproc_put(halay_transport_t *transport, halay_ep_t *ep, const void *payload, size_t bytes,
                   uint64_t mem, uint64_t offset, uint32_t immediate, uint64_t cookie);

/* progress.c; with the lock, but poll and free_held */
/* One poll of `by` has passed. May free the item, if the source needs it no more. */
void hly_inproc_advance(struct item *item, halay_transport_t *by);
/* Copies all that is left: the source is leaving. */
void hly_inproc_flush(struct item *item);
/* lend.c; with the lock, but make */
bool hly_inproc_mem_make(halay_mem_t *mem, size_t bytes, uint64_t most);
void hly_inproc_mem_free(halay_mem_t *mem);
/* Where readers find the payload, or NULL. */
const uint8_t *hly_inproc_lendable(const halay_transport_t *transport, const void *payload,
                                   size_t bytes, halay_mem_t **mem);
void hly_inproc_borrow(halay_transport_t *transport, struct item *item, halay_event_t *event);
/* What it lends in this memory, or on this way, counts no more; all of it, where both are NULL. */
void hly_inproc_recall(halay_transport_t *transport, const halay_mem_t *mem, const halay_ep_t *ep,
                       int status);
/* HALAY_EPEER: it had been recalled. */
int hly_inproc_give_back(halay_transport_t *transport);
/* The source's side is over. */
void hly_inproc_finish(struct item *item, int status);
void hly_inproc_leave_inbox(struct item *item);
void hly_inproc_leave_outbox(struct item *item);
bool hly_inproc_pending(const halay_transport_t *transport);
void hly_inproc_free_held(halay_transport_t *transport);
int hly_inproc_poll(halay_transport_t *transport, halay_event_t events[], int max);

#endif
