/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ucx.h - what the files of this transport share. docs/decisions/0007-ucx-transport.md says why.
 *
 *   ucx.c       the table; send, recv, poll, arm: all that is on the fast path
 *   open.c      an endpoint comes and goes
 *   settings.c  UCX's own settings; addresses
 *   peer.c      peers: their UCX endpoint, that they failed; events that wait to be polled
 *   link.c      TCP connections of our own: what is written and read on them
 *   meet.c      hello, answer, goodbye: who may say them, and what they do
 *   watch.c     the slow path: sockets, timers, failures
 *
 * Two processes that talk share one link (two, if both called at once) and one pair of UCX
 * endpoints, for both directions and all ways. Both stay until one of the two ends, so a way costs
 * nothing, and giving one up disturbs nobody. A link carries a hello or an answer, with which the
 * two get to know each other's UCX address; then its end is the sign that the peer has ended.
 *
 * A hello with the right secret for somebody else comes from another epoch of the same job: from a
 * process that is in its next epoch already, or is late in its last. Which of the two cannot be
 * told. So it is parked, without an answer, until this end closes and hangs up; then the caller
 * tries again at once, and finds the next epoch; or it gives up by its own deadline.
 */
#ifndef HALAY_UCX_UCX_H
#define HALAY_UCX_UCX_H

#include <assert.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <ucp/api/ucp.h>

#include "halay/transport.h"

enum {
    HLY_UCX_GUESTS = 64,        /* connections that have not said hello yet */
    HLY_UCX_PARKED = 64,        /* callers for another epoch than this */
    HLY_UCX_OPS = 256,          /* sends under way */
    HLY_UCX_OPS_PEER = 64,      /* of them, to one peer */
    HLY_UCX_LANDINGS = 4096,    /* posted landing buffers */
    HLY_UCX_MESSAGE = 64 << 10, /* header and payload of a message */
    HLY_UCX_EAGER = 8 << 10,    /* payloads that are best sent unannounced */
    HLY_UCX_COPY = 8 << 10,     /* up to here a send copies */
    HLY_UCX_TOKEN = 8,          /* before a message */
    HLY_UCX_ADDRESS = 4 << 10,  /* a UCX worker's address, at most */
    HLY_UCX_PROGRESS = 8,       /* looks at UCX in one idle poll, at most */
    HLY_UCX_DROPS = 64,         /* messages nobody waits for that are thrown away in one go */
    HLY_UCX_ROUNDS = 128,       /* descriptors looked at in one go */
    HLY_UCX_TICK = 16,          /* polls between two looks at the clock */
    HLY_UCX_TEXT = 256,
    HLY_UCX_NAME = INET6_ADDRSTRLEN + 10
};
#define HLY_UCX_MAGIC        UINT64_C(0x3258435559414c48)
#define HLY_UCX_SLOW_NS      UINT64_C(50000)   /* between two looks at sockets, while polled */
#define HLY_UCX_PAUSE_NS     UINT64_C(1000000) /* before the second try to connect; doubles */
#define HLY_UCX_PAUSE_MAX_NS UINT64_C(50000000)
#define HLY_UCX_GUEST_NS     UINT64_C(2000000000) /* to say hello in */
#define HLY_UCX_CLOSE_NS     UINT64_C(1000000000) /* all that a close waits for */
#define HLY_UCX_DEADLINE_NS  UINT64_C(30000000000)

/*
 * What is said on a link; little endian, as all that Halay runs on. A hello or an answer goes
 * first, and the UCX address of who says it follows. GOODBYE tells how many messages were sent;
 * SEEN, that all of them have come.
 */
typedef struct hly_ucx_word {
    uint64_t magic;
    uint32_t kind, address_bytes;
    halay_peer_id_t from, to;
    uint8_t secret[16];
    uint64_t token; /* what the other is to put before its messages */
    uint64_t count;
    halay_address_t where; /* where who says it listens */
    uint8_t zero[4];
} hly_ucx_word_t;
_Static_assert(sizeof(hly_ucx_word_t) == 104, "a word is the same on all machines");

enum { WORD_HELLO = 1, WORD_ANSWER, WORD_GOODBYE, WORD_SEEN };

/* What epoll's data points to: the first member of its object. */
typedef enum hly_ucx_watch { WATCH_LISTEN = 1, WATCH_TIMER, WATCH_LINK } hly_ucx_watch_t;

enum { LINK_CALLING /* TCP connects */, LINK_GREETED, LINK_GUEST, LINK_PARKED, LINK_OPEN };

typedef struct hly_ucx_peer hly_ucx_peer_t;

typedef struct hly_ucx_link {
    hly_ucx_watch_t watch;
    int state, fd;
    uint32_t events;      /* what epoll watches for */
    hly_ucx_peer_t *peer; /* NULL: a guest, or parked */
    uint64_t since_ns;
    size_t read, written, to_write;
    uint8_t in[sizeof(hly_ucx_word_t) + HLY_UCX_ADDRESS];
    uint8_t out[3 * sizeof(hly_ucx_word_t) + HLY_UCX_ADDRESS];
    struct hly_ucx_link *next;
} hly_ucx_link_t;

/* WELL until something is wrong; FAILING: known, not told; FAILED: told. */
enum { PEER_WELL, PEER_FAILING, PEER_FAILED };

struct hly_ucx_peer {
    halay_peer_id_t id;
    int state, status;
    int refs;   /* ways to it */
    int met;    /* its UCX endpoint is there */
    int calls;  /* this end calls it */
    int called; /* and a link is under way or open */
    int index;
    uint64_t token, its_token;
    ucp_ep_h ucp;
    ucs_status_t broken;             /* UCX gave up its endpoint: why */
    int error;                       /* errno of the last try; 0: it hung up before it answered */
    int under_way;                   /* sends that UCX has not finished */
    uint64_t sent, came;             /* messages; tagged ones do not count */
    int said_goodbye, goodbye, seen; /* by this end; by the peer; it has seen all of ours */
    uint64_t goodbye_count, goodbye_ns;
    halay_address_t where;
    char name[HLY_UCX_NAME];
    uint64_t begun_ns, called_ns, again_ns, pause_ns;
    int calls_ended; /* without an answer */
    hly_ucx_peer_t *next;
    char text[HLY_UCX_TEXT];
};

/* A way: no more than a reference. */
struct halay_ep {
    hly_ucx_peer_t *peer;
    struct halay_ep *next;
};

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

/* An event that waits to be polled. offset: of its data in the arena, 8-byte aligned. */
typedef struct hly_ucx_waiting {
    halay_event_t event;
    size_t offset;
    hly_ucx_landing_t *landing;
} hly_ucx_waiting_t;

struct halay_transport {
    ucp_context_h context;
    ucp_worker_h worker;
    ucp_address_t *worker_address;
    size_t worker_address_bytes;
    int worker_fd;

    hly_ucx_waiting_t *waiting; /* from first to last wait */
    size_t first, last, room;
    uint8_t *arena;
    size_t arena_bytes, arena_room;
    hly_ucx_op_t *ops, *free_op;
    uint8_t *ops_room;
    hly_ucx_landing_t *landings, *free_landing;
    int lands; /* a landing buffer was posted at some time */

    hly_ucx_peer_t **by_index;
    int nindex;
    uint32_t lives; /* of indices: the upper half of a token */
    hly_ucx_peer_t *peers;
    halay_ep_t *ways;
    hly_ucx_link_t *links;
    int nguests, nparked, unsettled /* peers that are called */, failing;
    int closing; /* this end is being closed: what arrives is only counted */
    int closes;  /* UCX endpoints that are being closed */

    uint32_t polls;
    int attention; /* the next idle poll takes the slow path */
    int error;     /* for poll to return, once */
    uint64_t attended_ns, timer_ns;
    hly_ucx_watch_t listen_watch, timer_watch;
    int listen_shared;                          /* listen_fd is the bootstrap's, and stays open */
    int listen_fd, timer_fd, slow_fd, epoll_fd; /* epoll_fd: what arm gives: slow_fd, worker_fd */

    halay_address_t where;
    char name[HLY_UCX_NAME];
    pid_t pid; /* who opened it; anyone else is a forked child */
    halay_peer_id_t self;
    uint8_t secret[16];
    uint64_t deadline_ns;
    unsigned warned;
    halay_log_fn log;
    void *log_arg;
};

/* Warnings that are given once. */
enum { WARNED_STRANGER = 1, WARNED_DESCRIPTORS = 2, WARNED_MESSAGE = 4 };

/* open.c */
int hly_ucx_open(const halay_transport_params_t *params, halay_transport_t **transport);
void hly_ucx_close(halay_transport_t *t);
uint64_t hly_ucx_now_ns(void);
void hly_ucx_log(const halay_transport_t *t, int level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* settings.c */
void hly_ucx_signals_restore(void);
/* where: this process listens. */
ucs_status_t hly_ucx_settings_read(const halay_address_t *where, ucp_config_t **config);
socklen_t hly_ucx_where_socket(const halay_address_t *where, struct sockaddr_storage *address);
int hly_ucx_where_from(const struct sockaddr_storage *address, halay_address_t *where);
void hly_ucx_where_name(const halay_address_t *where, char name[HLY_UCX_NAME]);

/* peer.c */
int hly_ucx_same_id(halay_peer_id_t a, halay_peer_id_t b);
/* Finds it or makes it; the caller counts its way itself. 0 or -ENOMEM. */
int hly_ucx_peer_hold(halay_transport_t *t, halay_peer_id_t id, hly_ucx_peer_t **peer);
void hly_ucx_peer_free(halay_transport_t *t, hly_ucx_peer_t *peer);
/* The peer's UCX address has come. */
void hly_ucx_peer_meet(halay_transport_t *t, hly_ucx_peer_t *peer, const void *address,
                       uint64_t token);
/* UCX says that the peer cannot be reached. What our own link says is better, so that is read first
 * (hly_ucx_goodbye_look). */
void hly_ucx_peer_break(halay_transport_t *t, hly_ucx_peer_t *peer, ucs_status_t status);
void hly_ucx_peer_fail(halay_transport_t *t, hly_ucx_peer_t *peer, int status, const char *format,
                       ...) __attribute__((format(printf, 4, 5)));
hly_ucx_peer_t *hly_ucx_peer_of(const halay_transport_t *t, uint64_t token);
void hly_ucx_ep_close(halay_transport_t *t, hly_ucx_peer_t *peer);
/* Appends an event, with a copy of its data; NULL: no memory, and t->error is set. */
hly_ucx_waiting_t *hly_ucx_event_add(halay_transport_t *t, const halay_event_t *event);

/* link.c */
int hly_ucx_link_add(halay_transport_t *t, int fd, int state, hly_ucx_peer_t *peer,
                     hly_ucx_link_t **link);
void hly_ucx_link_free(halay_transport_t *t, hly_ucx_link_t *link);
void hly_ucx_link_say(halay_transport_t *t, hly_ucx_link_t *link, uint32_t kind, uint64_t count);
/* 0 or a negative errno. */
int hly_ucx_link_write(halay_transport_t *t, hly_ucx_link_t *link);
/* 1: a whole word is in link->in; 0: not yet; a negative errno, -ENODATA at the end. */
int hly_ucx_link_read(hly_ucx_link_t *link);
hly_ucx_link_t *hly_ucx_link_of(const halay_transport_t *t, const hly_ucx_peer_t *peer);

/* meet.c */
void hly_ucx_call(halay_transport_t *t, hly_ucx_peer_t *peer, uint64_t now);
void hly_ucx_guests_accept(halay_transport_t *t);
void hly_ucx_guest_drop(halay_transport_t *t, hly_ucx_link_t *link, const char *why);
void hly_ucx_link_look(halay_transport_t *t, hly_ucx_link_t *link);
void hly_ucx_call_tend(halay_transport_t *t, hly_ucx_peer_t *peer, uint64_t now);
void hly_ucx_goodbye_look(halay_transport_t *t, hly_ucx_peer_t *peer, uint64_t now);

/* watch.c */
int hly_ucx_watch_add(int epoll_fd, int fd, uint32_t events, hly_ucx_watch_t *watch);
void hly_ucx_attend(halay_transport_t *t);
int hly_ucx_timer_set(halay_transport_t *t);
/* Throws away what was sent to landing buffers that were withdrawn. Returns how many. */
int hly_ucx_strays_drop(halay_transport_t *t);

#endif
