/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shm.h - what the files of this transport share. docs/decisions/shared-memory.md#0003 says why.
 *
 *   shm.c    the table; send, poll, arm: all that is on the fast path
 *   open.c   an endpoint comes and goes
 *   ring.c   the memory of a ring; ring.h, how it is written and read
 *   region.c memory that is lent: what peers map of it, and who reads what
 *   meet.c   messages over the socket: hello, answer, and who may say it
 *   way.c    ways out: tried until somebody listens, greeted, open, given up
 *   peer.c   peers: whose process, how to wake it, that it failed
 *   watch.c  the slow path: sockets, timers, goodbyes, failures
 *   name.c   the address of a peer, from a keyed hash
 */
#ifndef HALAY_SHM_SHM_H
#define HALAY_SHM_SHM_H

#include <sys/socket.h>
#include <sys/types.h>

#include "../common/address.h"
#include "../common/gate.h"
#include "halay/transport.h"
#include "ring.h"

enum {
    HLY_SHM_GUESTS = 64,   /* connections that have not said hello yet, or lack memory here */
    HLY_SHM_RINGS = 16384, /* incoming rings, at most */
    HLY_SHM_ROUNDS = 128,  /* descriptors looked at in one go */
    HLY_SHM_TICK = 64,     /* polls between two looks at the clock, if one finds nothing; */
    HLY_SHM_TICKS = 256,   /* by any */
    HLY_SHM_TEXT = 160
};
#define HLY_SHM_LEND_BYTES 8192u /* less is copied */
/* Payload of an eager message, at most; of 3 to FEW ranks. */
#define HLY_SHM_EAGER     (32u << 10)
#define HLY_SHM_EAGER_FEW (64u << 10)
#define HLY_SHM_FEW       8
/* What a rank has at rest, with ways to all others of a node of up to HLY_SHM_ALL. A ring is a
 * power of two up to RING_FEW, halved to RING_DEFAULT at most where memory is short. */
#define HLY_SHM_REST_BYTES    (4u << 20)
#define HLY_SHM_RANKS_UNKNOWN 16 /* taken for the ranks of a node */
#define HLY_SHM_ALL           257
#define HLY_SHM_RING_FEW      (1u << 20)
#define HLY_SHM_RING_DEFAULT  (256u << 10)
#define HLY_SHM_SLOW_NS       UINT64_C(50000)  /* between two looks at sockets, while polled; */
#define HLY_SHM_SLOW_MAX_NS   UINT64_C(200000) /* doubles up to this */
#define HLY_SHM_SETTLE_NS     UINT64_C(20000)  /* ring.h */
#define HLY_SHM_PAUSE_NS      UINT64_C(20000)  /* before the second try to connect; doubles */
#define HLY_SHM_PAUSE_MAX_NS  UINT64_C(1000000)
#define HLY_SHM_GUEST_NS      UINT64_C(1000000000) /* to say hello in, and to find memory in */
#define HLY_SHM_LACKS_NS      UINT64_C(10000000)   /* asleep: between two looks for memory */
#define HLY_SHM_HANGUP_NS     UINT64_C(20000000) /* from a hang-up to the news that it was a death */
#define HLY_SHM_DEADLINE_NS   UINT64_C(30000000000)

/* The one message each way over the socket; a region has no answer. Same node, same ABI: no byte
 * order. */
typedef struct hly_shm_hello {
    uint64_t magic;
    uint32_t kind, pid;
    uint64_t ring_bytes; /* REGION: of the region */
    uint32_t slot, generation;
    halay_peer_id_t from, to;
    uint8_t secret[16];
} hly_shm_hello_t;

enum { HLY_SHM_HELLO = 1, HLY_SHM_ANSWER = 2, HLY_SHM_REGION = 3 };

/* Descriptors that travel along: all have the first two, hello and region have memory too. */
enum { HLY_SHM_FD_PROCESS, HLY_SHM_FD_WAKE, HLY_SHM_FD_RING, HLY_SHM_FDS };

/* What epoll's data begins with: the address of one of these, the first member of its object. */
typedef enum hly_shm_watch {
    WATCH_LISTEN = 1,
    WATCH_WAKE,
    WATCH_TIMER,
    WATCH_GUEST,
    WATCH_WAY,
    WATCH_PEER
} hly_shm_watch_t;

enum { PEER_WELL, PEER_FAILING /* known, not told */, PEER_FAILED /* told */ };

typedef struct hly_shm_peer {
    hly_shm_watch_t watch;
    int process_fd, wake_fd; /* -1: not known yet */
    int sure;                /* process_fd came from the peer itself */
    int refs;                /* ways to it and rings from it */
    int state, status;
    pid_t pid;
    halay_peer_id_t id;
    struct hly_shm_peer *next;
    char text[HLY_SHM_TEXT];
} hly_shm_peer_t;

/* CALLING: nobody listens yet. GREETED: hello is sent. HUNG_UP: no answer will come. OPEN:
 * answered. */
enum { WAY_CALLING, WAY_GREETED, WAY_HUNG_UP, WAY_OPEN };

struct halay_mem { /* a region: what alloc_mem made */
    uint8_t *address;
    size_t bytes;
    int fd;
    uint32_t slot, generation;
};

typedef struct hly_shm_lent {
    uint64_t number, cookie; /* of the message */
    const halay_mem_t *mem;
} hly_shm_lent_t;

typedef struct hly_shm_lending {    /* what a way has lent, and not got back yet */
    uint32_t told[HLY_SHM_REGIONS]; /* generation whose descriptor was sent */
    uint32_t failures;              /* of sending one */
    uint32_t first, n;
    hly_shm_lent_t lent[HLY_SHM_CELLS]; /* from the first on, round and round */
} hly_shm_lending_t;

typedef struct hly_shm_ended { /* of a loan: to be told */
    halay_peer_id_t peer;
    uint64_t cookie;
    int status;
} hly_shm_ended_t;

typedef struct hly_shm_map { /* of a peer's region */
    uint8_t *base;
    size_t bytes;
    uint32_t generation;
} hly_shm_map_t;

struct halay_ep {
    hly_shm_watch_t watch;
    int state;
    int socket, ring_fd; /* -1 when not needed any more */
    int error;           /* errno of the last try */
    uint64_t refused;    /* bytes of ring that the last send lacked; 0: it was taken */
    hly_shm_ring_t ring;
    hly_shm_peer_t *peer;
    hly_shm_lending_t *lending; /* NULL: nothing was ever lent */
    uint64_t begun_ns, again_ns, pause_ns;
    struct halay_ep *next;
};

typedef struct hly_shm_in {
    hly_shm_ring_t ring;
    hly_shm_peer_t *peer;
    int broken;
    hly_shm_map_t *maps; /* HLY_SHM_REGIONS, or NULL */
    uint32_t changes;    /* of what is offered, as last seen */
} hly_shm_in_t;

typedef struct hly_shm_guest {
    hly_shm_watch_t watch;
    int fd; /* -1: free */
    pid_t pid;
    uint64_t since_ns;
    int lacks; /* memory: what it has said and brought is here, and is tried again */
    int fds[HLY_SHM_FDS];
    hly_shm_hello_t hello;
} hly_shm_guest_t;

struct halay_transport {
    hly_shm_in_t **ins; /* what poll walks */
    int nins, room, turn;
    uint32_t polls, vain;
    int attention; /* the next idle poll takes the slow path */
    int holds;     /* a ring has to be released, or is broken: the same */
    int armed;     /* it has been said that this end sleeps, at: */
    uint64_t armed_ns, attended_ns, slow_ns;

    halay_ep_t *ways;
    hly_shm_peer_t *peers;
    int unsettled; /* ways that are CALLING, GREETED or HUNG_UP */
    int failing;   /* peers that are */
    int error;     /* for poll to return, once */
    int full;      /* no connection can be accepted now */

    int loans;            /* lent, and not told yet; and what is borrowed: */
    hly_shm_in_t *lender; /* of the LENT event that was not given back yet */
    hly_shm_ended_t *ended;
    int nended, ended_room;
    halay_mem_t *regions[HLY_SHM_REGIONS];
    uint32_t nregions, generation; /* the last one's */

    hly_shm_watch_t listen_watch, wake_watch, timer_watch;
    int listen_fd, wake_fd, timer_fd, epoll_fd, process_fd;
    uint64_t timer_ns;
    hly_shm_guest_t guests[HLY_SHM_GUESTS];
    int nguests;
    hly_meet_gate_t gate; /* while it is shut, who calls waits in the socket's queue */

    pid_t pid; /* who opened it; anyone else is a forked child */
    halay_peer_id_t self;
    uint8_t job[16], secret[16];
    uint64_t deadline_ns;
    uint64_t soon_ns, timeout_ns; /* with a peer that does not listen: it lives; or may have died */
    size_t ring_bytes; /* of each, or half of it and so on, where memory is short; at least: */
    size_t least_bytes;
    size_t eager_bytes; /* at most */
    unsigned warned;
    halay_log_fn log;
    void *log_arg;
};

/* Warnings that are given once. */
enum { WARNED_STRANGER = 1, WARNED_DESCRIPTORS = 2, WARNED_RING = 4 };

/* open.c */
int hly_shm_open(const halay_transport_params_t *params, halay_transport_t **transport);
void hly_shm_close(halay_transport_t *t);
uint64_t hly_shm_now_ns(void);
void hly_shm_log(const halay_transport_t *t, int level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* name.c: the address of a process. */
struct sockaddr_un;
socklen_t hly_shm_name(const halay_transport_t *t, halay_peer_id_t id, struct sockaddr_un *address);

/* meet.c */
void hly_shm_hello_fill(const halay_transport_t *t, int kind, halay_peer_id_t to,
                        hly_shm_hello_t *hello);
int hly_shm_hello_right(const halay_transport_t *t, int kind, const hly_shm_hello_t *hello);
/* 0 or a negative errno. */
int hly_shm_hello_send(int socket, const hly_shm_hello_t *hello, const int fds[], int n);
/* 1 it is here, with n descriptors; 0 not yet; -1 hung up; -2 nonsense, its descriptors are
 * closed. */
int hly_shm_hello_recv(int socket, hly_shm_hello_t *hello, int fds[], int n);
/* Is the other end a process of this user? Its pid too (0: in another pid namespace). */
int hly_shm_same_user(int socket, pid_t *pid, uid_t *uid);
void hly_shm_guests_accept(halay_transport_t *t);
void hly_shm_guest_look(halay_transport_t *t, hly_shm_guest_t *guest);
void hly_shm_guest_drop(halay_transport_t *t, hly_shm_guest_t *guest);
void hly_shm_guests_close(halay_transport_t *t);

/* region.c: the owner's side */
int hly_shm_alloc(halay_transport_t *t, size_t bytes, void **address, halay_mem_t **mem);
void hly_shm_deregister(halay_transport_t *t, halay_mem_t *mem);
/* Can the payload be lent on this way? Fills the loan. */
int hly_shm_can_lend(halay_transport_t *t, halay_ep_t *ep, const void *payload, size_t bytes,
                     hly_shm_loan_t *loan);
/* The last message has lent what is in this slot. */
void hly_shm_lent(halay_transport_t *t, halay_ep_t *ep, uint32_t slot, uint64_t cookie);
/* Has something come back? And its events. */
int hly_shm_came_back(const halay_ep_t *ep);
int hly_shm_lent_poll(halay_transport_t *t, halay_event_t events[], int max);
/* All that is lent on the way counts no more, and has ended. */
void hly_shm_recall(halay_transport_t *t, halay_ep_t *ep, int status);
void hly_shm_regions_free(halay_transport_t *t);
/* The reader's: takes the descriptor over. */
void hly_shm_region_take(halay_transport_t *t, const hly_shm_hello_t *hello, int fd);
/* What the message has lent: 1, 0 recalled, HLY_SHM_BROKEN. bytes: header and loan; then both. */
int hly_shm_borrow(halay_transport_t *t, hly_shm_in_t *in, halay_event_t *event);
int hly_shm_give_back(halay_transport_t *t);
void hly_shm_maps_look(hly_shm_in_t *in);
void hly_shm_maps_free(hly_shm_in_t *in);

/* way.c */
int hly_shm_connect(halay_transport_t *t, halay_peer_id_t peer, const void *address, size_t bytes,
                    halay_ep_t **ep);
void hly_shm_disconnect(halay_transport_t *t, halay_ep_t *ep);
void hly_shm_sever(halay_transport_t *t, halay_ep_t *ep);
void hly_shm_way_free(halay_transport_t *t, halay_ep_t *ep);
void hly_shm_way_answer(halay_transport_t *t, halay_ep_t *ep, uint64_t now);
void hly_shm_way_tend(halay_transport_t *t, halay_ep_t *ep, uint64_t now);
uint64_t hly_shm_way_deadline_ns(const halay_transport_t *t, const halay_ep_t *ep);
void hly_shm_way_wake(halay_transport_t *t, halay_ep_t *ep);

/* peer.c */
int hly_shm_pidfd(pid_t pid);
int hly_shm_peer_hold(halay_transport_t *t, halay_peer_id_t id, hly_shm_peer_t **peer);
void hly_shm_peer_drop(halay_transport_t *t, hly_shm_peer_t *peer);
void hly_shm_peer_free(halay_transport_t *t, hly_shm_peer_t *peer);
/* Takes both descriptors over. */
void hly_shm_peer_meet(halay_transport_t *t, hly_shm_peer_t *peer, int process_fd, int wake_fd,
                       pid_t pid);
void hly_shm_peer_guess(halay_transport_t *t, hly_shm_peer_t *peer, pid_t pid);
/* Learns who the peer is, before it has said anything. */
void hly_shm_peer_known(halay_transport_t *t, hly_shm_peer_t *peer, const void *process);
void hly_shm_peer_ended(halay_transport_t *t, hly_shm_peer_t *peer);
void hly_shm_peer_fail(halay_transport_t *t, hly_shm_peer_t *peer, int status, const char *format,
                       ...) __attribute__((format(printf, 4, 5)));
void hly_shm_peer_wake(const hly_shm_peer_t *peer);
/* All that needs memory; then the ring is put into the table. */
int hly_shm_in_make(halay_transport_t *t, const hly_shm_ring_t *ring, hly_shm_peer_t *peer,
                    hly_shm_in_t **in);
void hly_shm_in_add(halay_transport_t *t, hly_shm_in_t *in);
void hly_shm_in_remove(halay_transport_t *t, int i);

/* watch.c */
int hly_shm_watch_add(halay_transport_t *t, int fd, hly_shm_watch_t *watch);
void hly_shm_watch_drop(halay_transport_t *t, int fd);
int hly_shm_attend(halay_transport_t *t, halay_event_t events[], int max);
int hly_shm_timer_set(halay_transport_t *t);

#endif
