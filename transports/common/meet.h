/* SPDX-License-Identifier: Apache-2.0 */
/*
 * meet.h - how two processes meet, for transports between nodes; linked into each of them.
 *
 *   open.c     sockets and descriptors come and go
 *   link.c     links: what is written and read on them
 *   call.c     calling a peer, again and again until the deadline; peers
 *   guest.c    being called; what a message does
 *   address.c  addresses, as a socket and as text
 *   proof.c    greetings, keys, proofs
 *   gate.c     what strangers may cost
 *
 * Who wants to talk calls on TCP, where the other's bootstrap listens, or a socket of the
 * transport's own. Each proves the job's secret (proof.h), and says both ids and what its transport
 * wants the other to know (tell). Then its socket is the transport's, if that takes it (take). Else
 * the link stays open until one of the two ends: its end without a goodbye is a death.
 *
 * A hello that proves the secret for somebody else comes from another epoch of the same job: from a
 * process that is in its next epoch already, or is late in its last. Which of the two cannot be
 * told. So it is parked, without an answer, until this end closes and hangs up; then the caller
 * tries again at once, and finds the next epoch; or it gives up by its own deadline.
 */
#ifndef HALAY_TRANSPORTS_COMMON_MEET_H
#define HALAY_TRANSPORTS_COMMON_MEET_H

#include <assert.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/types.h>

#include "address.h"
#include "gate.h"
#include "halay/transport.h"
#include "proof.h"

enum {
    HLY_MEET_GUESTS = 64,             /* connections that have not said hello yet */
    HLY_MEET_PARKED = 64,             /* callers for another epoch than this */
    HLY_MEET_TELLS = (4 << 10) + 128, /* bytes that a transport tells, at most */
    HLY_MEET_ROUNDS = 128,            /* descriptors looked at in one go */
    HLY_MEET_TEXT = 256
};
#define HLY_MEET_PAUSE_NS     UINT64_C(1000000) /* before the second try to connect; doubles */
#define HLY_MEET_PAUSE_MAX_NS UINT64_C(50000000)
#define HLY_MEET_GUEST_NS     UINT64_C(2000000000) /* to say hello in */
#define HLY_MEET_CLOSE_NS     UINT64_C(1000000000) /* all that a close waits for */
#define HLY_MEET_DEADLINE_NS  UINT64_C(30000000000)
#define HLY_MEET_LINK_NS      UINT64_C(30000000000) /* with a link that is cut */

/*
 * The messages on a link; little endian, as all that Halay runs on. A hello or an answer goes
 * first, and what the transport tells follows. GOODBYE tells how many messages were sent; SEEN,
 * that all of them have come.
 */
typedef struct hly_meet_message {
    uint64_t magic; /* the transport's own */
    uint32_t kind, tells;
    halay_peer_id_t from, to;
    uint8_t nonce[HLY_MEET_NONCE]; /* of a hello */
    uint64_t count;
    halay_address_t where; /* where who says it listens */
    uint8_t zero[4];
    uint8_t mac[32]; /* of this and what is told */
} hly_meet_message_t;
_Static_assert(sizeof(hly_meet_message_t) == 128, "a message is the same on all machines");

enum { MEET_HELLO = 1, MEET_ANSWER, MEET_GOODBYE, MEET_SEEN };

/* What epoll's data points to: the first member of its object. */
typedef enum hly_meet_watch { WATCH_LISTEN = 1, WATCH_TIMER, WATCH_LINK } hly_meet_watch_t;

enum {
    LINK_CALLING, /* TCP connects */
    LINK_HEARING, /* the greeting is to come */
    LINK_GREETED, /* the answer */
    LINK_GUEST,   /* the hello */
    LINK_PARKED,
    LINK_OPEN
};

/* WELL until something is wrong; FAILING: known, not told; FAILED: told. */
enum { PEER_WELL, PEER_FAILING, PEER_FAILED };

/* What all transports know of a peer: the first member of theirs. A peer that has failed, was told
 * and to which no way leads goes soon; then one with the same id starts anew. */
typedef struct hly_meet_peer {
    halay_peer_id_t id;
    int state, status;
    int refs;                        /* ways to it */
    int met;                         /* what it tells has come */
    int heard;                       /* it has answered: it knows what this end tells */
    int calls;                       /* this end calls it */
    int called;                      /* and a link is under way or open */
    int calls_ended;                 /* without an answer */
    int error;                       /* errno of the last try; 0: it hung up before it answered */
    int said_goodbye, goodbye, seen; /* by this end; by the peer; it has seen all of ours */
    uint64_t goodbye_count, goodbye_ns;
    uint64_t begun_ns, called_ns, again_ns, pause_ns;
    uint64_t look_ns; /* when its transport wants to look at it, asleep or not; 0: never */
    halay_address_t where;
    char name[HLY_MEET_NAME];
    char text[HLY_MEET_TEXT];
    struct hly_meet_peer *next;
} hly_meet_peer_t;

typedef struct hly_meet_link {
    hly_meet_watch_t watch;
    int state, fd;
    uint32_t events;       /* what epoll watches for */
    hly_meet_peer_t *peer; /* NULL: a guest, or parked */
    uint64_t since_ns;
    size_t read, written, to_write;
    hly_meet_greeting_t greeting;
    hly_meet_keys_t keys;
    uint8_t in[sizeof(hly_meet_message_t) + HLY_MEET_TELLS];
    uint8_t out[3 * sizeof(hly_meet_message_t) + HLY_MEET_TELLS];
    struct hly_meet_link *next;
} hly_meet_link_t;

/* What a transport does. t: the transport. */
typedef struct hly_meet_ops {
    const char *name;
    uint64_t magic;
    int both; /* one who was called calls too: it is to hear an answer */
    /* A peer of its own, all 0. NULL: there is no room; who calls is turned away. */
    hly_meet_peer_t *(*make)(halay_transport_t *t);
    /* Writes what this peer is to know, at most HLY_MEET_TELLS bytes. Returns how many. */
    size_t (*tell)(halay_transport_t *t, hly_meet_peer_t *peer, uint8_t *tells);
    /* What the peer tells has come, for the first time; the transport judges it, and may fail it.
     */
    void (*meet)(halay_transport_t *t, hly_meet_peer_t *peer, const uint8_t *tells, size_t bytes);
    /* What follows from both tells, the same at both ends: an answer brings it, and who hears it
     * judges it, and may fail the peer. Both, or neither. */
    uint64_t (*mark)(const halay_transport_t *t, const hly_meet_peer_t *peer);
    void (*agree)(halay_transport_t *t, hly_meet_peer_t *peer, uint64_t mark);
    /* Or NULL. Both have proved the secret: link->fd is the transport's own from here on, with
     * link->keys; the link goes. called: by this end; else an answer follows. 0 or a negative
     * errno, which fails the peer. */
    int (*take)(halay_transport_t *t, hly_meet_peer_t *peer, const hly_meet_link_t *link,
                int called);
} hly_meet_ops_t;

enum { WARNED_STRANGER = 1, WARNED_DESCRIPTORS = 2 }; /* were logged */

typedef struct hly_meet {
    const hly_meet_ops_t *ops;
    halay_transport_t *transport;
    hly_meet_peer_t *peers;
    hly_meet_link_t *links;
    int nguests, nparked, failing;
    int over;      /* peers that may be forgotten */
    int unsettled; /* peers that are called */
    int closing;   /* who calls is turned away, and no hello is sent */
    hly_meet_gate_t gate;
    uint64_t attended_ns;
    int attention; /* something is to be looked at soon */
    int error;     /* for poll to return, once */
    uint64_t timer_ns;
    hly_meet_watch_t listen_watch, timer_watch;
    int listen_shared; /* listen_fd is the bootstrap's, and stays open */
    /* epoll_fd: what arm gives: slow_fd, and the transport's own. */
    int listen_fd, timer_fd, slow_fd, epoll_fd;
    halay_address_t where;
    char name[HLY_MEET_NAME];
    pid_t pid; /* who opened it; anyone else is a forked child */
    halay_peer_id_t self;
    uint8_t secret[16];
    uint64_t deadline_ns, timeout_ns;
    unsigned warned;
    halay_log_fn log;
    void *log_arg;
} hly_meet_t;

/* open.c */
uint64_t hly_meet_now_ns(void);
/* Puts the transport's name before it. */
void hly_meet_log(const hly_meet_t *m, int level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Says an error, and returns rc. */
int hly_meet_error(const hly_meet_t *m, int rc, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* m is all 0. where: it is to listen there if the bootstrap does not listen for it. */
void hly_meet_init(hly_meet_t *m, const hly_meet_ops_t *ops, halay_transport_t *t,
                   const halay_transport_params_t *params, const halay_address_t *where);
/* own_fd: wakes a sleeper, too; or -1. HALAY_OK, or an error, which has been told. */
int hly_meet_open(hly_meet_t *m, int own_fd);
/* m->error, once. */
int hly_meet_error_take(hly_meet_t *m);
/* A peer that calls from now on waits in the socket's queue, for the next epoch. */
void hly_meet_leave(hly_meet_t *m);
/* Lets all go, also in a forked child, whose parent does not notice. Peers are the transport's. */
void hly_meet_close(hly_meet_t *m);

/* locked.c: bytes of memory that one may lock; UINT64_MAX: no limit. */
uint64_t hly_locked_limit(void);

/* link.c; 0 or a negative errno */
int hly_meet_watch(int epoll_fd, int fd, uint32_t events, void *watch);
int hly_meet_link_add(hly_meet_t *m, int fd, int state, hly_meet_peer_t *peer,
                      hly_meet_link_t **link);
void hly_meet_link_free(hly_meet_t *m, hly_meet_link_t *link);
/* 0 or a negative errno; a hello needs the greeting. */
int hly_meet_link_say(hly_meet_t *m, hly_meet_link_t *link, uint32_t kind, uint64_t count);
int hly_meet_link_write(hly_meet_t *m, hly_meet_link_t *link);
/* 1: a whole message is in link->in; 0: not yet; a negative errno, -ENODATA at the end. */
int hly_meet_link_read(const hly_meet_t *m, hly_meet_link_t *link);
hly_meet_link_t *hly_meet_link_of(const hly_meet_t *m, const hly_meet_peer_t *peer);

/*
 * Members of the table as they are: a transport's first member is a hly_meet_t, a way is a peer,
 * whose first member is a hly_meet_peer_t.
 */
int hly_meet_address(const halay_transport_t *t, void *address, size_t *bytes);
/* The address may be left out where the peer calls first, or is known already. */
int hly_meet_connect(halay_transport_t *t, halay_peer_id_t id, const void *address, size_t bytes,
                     halay_ep_t **ep);
void hly_meet_disconnect(halay_transport_t *t, halay_ep_t *ep);
/* For those whose transfers end with the failure that is told. */
void hly_meet_sever(halay_transport_t *t, halay_ep_t *ep);

/* call.c */
/* Finds it or makes it. NULL: no room. */
hly_meet_peer_t *hly_meet_peer_hold(hly_meet_t *m, halay_peer_id_t id);
/* It goes out of the list; its memory is the transport's. */
void hly_meet_peer_forget(hly_meet_t *m, hly_meet_peer_t *peer);
/* How a peer is lost whose connection has ended with this error: HALAY_ETIMEOUT where the link is
 * cut. */
int hly_meet_lost_status(int error);
/* Does this error say that the program has closed a descriptor of the transport's? */
int hly_meet_is_closed(int error);
/* Its connection has ended with this error; 0: as files end. A reset is not said: which of the
 * peers of a dead process see one is chance, and all are to say the same. */
void hly_meet_peer_lost(hly_meet_t *m, hly_meet_peer_t *peer, int error);
/* Returns status. */
int hly_meet_peer_fail(hly_meet_t *m, hly_meet_peer_t *peer, int status, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* Makes the event of a failure that is to be told now, and ends the peer's links. NULL: none. */
hly_meet_peer_t *hly_meet_peer_failed(hly_meet_t *m, halay_event_t *event);
/* It has failed, which was told, and nobody holds it: it may be forgotten. */
int hly_meet_peer_over(const hly_meet_peer_t *peer);
void hly_meet_call_tend(hly_meet_t *m, hly_meet_peer_t *peer, uint64_t now);
/* When the peer that is called is given up, as things are. */
uint64_t hly_meet_call_ends_ns(const hly_meet_t *m, const hly_meet_peer_t *peer);
void hly_meet_call_ended(hly_meet_peer_t *peer, const hly_meet_link_t *link, int error);
void hly_meet_call_settled(hly_meet_t *m, hly_meet_peer_t *peer);

/* guest.c */
/* The slow path: sockets, guests, calls. */
void hly_meet_attend(hly_meet_t *m, uint64_t now);
/* Before sleep: when attend has something to do that no descriptor tells. when: the same for the
 * transport; UINT64_MAX: never. */
int hly_meet_timer_set(hly_meet_t *m, uint64_t when);

#endif
