/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tcp.h - what the files of this transport share. docs/decisions/0012-tcp-transport.md says why.
 *
 *   tcp.c    the table; small answers, ways, send, poll, arm
 *   open.c   an endpoint comes and goes
 *   peer.c   peers: that they failed; landing buffers
 *   in.c     frames come in: messages, and what lands
 *   out.c    frames go out, and wait where a socket is full
 *   link.c   TCP connections come and go
 *   meet.c   hello, answer, goodbye: who may say them, and what they do
 *   seal.c   keys and seals of frames
 *   watch.c  the slow path: sockets that are not open yet, timers, failures
 *
 * Two processes that talk share one connection, for both directions and all ways. If both call at
 * once there are two; then the one that the higher id has called is retired: each end says on it
 * that it has said its last there, and it is closed when both have. A connection stays until one of
 * the two processes ends, so a way costs nothing, and giving one up disturbs nobody. It begins with
 * a greeting, a hello and an answer, which prove the secret; sealed frames follow. Its end without
 * a goodbye is the sign that the peer has died.
 *
 * A hello that proves the secret for somebody else comes from another epoch of the same job: from a
 * process that is in its next epoch already, or is late in its last. Which of the two cannot be
 * told. So it is parked, without an answer, until this end closes and hangs up; then the caller
 * tries again at once, and finds the next epoch; or it gives up by its own deadline.
 */
#ifndef HALAY_TCP_TCP_H
#define HALAY_TCP_TCP_H

#include <assert.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/types.h>

#include "../common/address.h"
#include "../common/gate.h"
#include "../common/proof.h"
#include "halay/transport.h"

enum {
    HLY_TCP_GUESTS = 64,                /* connections that have not said hello yet */
    HLY_TCP_PARKED = 64,                /* callers for another epoch than this */
    HLY_TCP_LINKS_PEER = 4,             /* open connections to one peer: two, and what is retired */
    HLY_TCP_PARTS = 1024,               /* parts of messages that wait for a socket */
    HLY_TCP_PARTS_LINK = 64,            /* of them, for one socket */
    HLY_TCP_LANDINGS = 4096,            /* posted landing buffers */
    HLY_TCP_BUCKETS = 1024,             /* where they are looked for */
    HLY_TCP_MESSAGE = (64 << 10) + 256, /* header and payload of a message */
    HLY_TCP_EAGER = 64 << 10,           /* payloads that are best sent unannounced */
    HLY_TCP_PIECE = 64 << 10,           /* of a staged transfer, beside its header */
    HLY_TCP_SMALL = 1 << 10, /* a frame up to here is put together, and written from one piece */
    HLY_TCP_IN = 256 << 10,  /* read at once, at most */
    HLY_TCP_PEEK = 2 << 10,  /* of them, where a landing may follow */
    HLY_TCP_READS = 4,       /* reads in a row from one socket */
    HLY_TCP_OUT = 96 << 10,  /* copied, while a socket is full */
    HLY_TCP_OUT_SMALL = 8 << 10, /* a larger message is not copied behind others */
    HLY_TCP_CHUNK = 256 << 10,   /* written at once, at most: then it is time to read */
    HLY_TCP_VECTOR = 16,         /* parts written at once */
    HLY_TCP_DIRECT = 8,          /* so many sockets are read without asking which to read */
    HLY_TCP_ROUNDS = 128,        /* descriptors looked at in one go */
    HLY_TCP_TICK = 16,           /* polls between two looks at the clock */
    HLY_TCP_SILENT = 4,          /* looks in a row at which nothing was acknowledged: it is dead */
    HLY_TCP_TEXT = 256
};
#define HLY_TCP_MAGIC        UINT64_C(0x3250435459414c48)
#define HLY_TCP_SLOW_NS      UINT64_C(50000)   /* between two looks at sockets, while polled */
#define HLY_TCP_PAUSE_NS     UINT64_C(1000000) /* before the second try to connect; doubles */
#define HLY_TCP_PAUSE_MAX_NS UINT64_C(50000000)
#define HLY_TCP_GUEST_NS     UINT64_C(2000000000) /* to say hello in */
#define HLY_TCP_CLOSE_NS     UINT64_C(1000000000) /* all that a close waits for */
#define HLY_TCP_WATCH_NS     UINT64_C(1000000000) /* between two looks at what is acknowledged */
#define HLY_TCP_DEADLINE_NS  UINT64_C(30000000000)

/* Said first on a connection, by both, after the greeting (proof.h). */
typedef struct hly_tcp_word {
    uint64_t magic;
    uint32_t kind, seal; /* what its frames seal */
    halay_peer_id_t from, to;
    uint8_t nonce[HLY_MEET_NONCE]; /* of a hello */
    halay_address_t where;         /* where who says it listens */
    uint8_t zeros[4];
    uint8_t mac[32];
} hly_tcp_word_t;
_Static_assert(sizeof(hly_tcp_word_t) == 120, "a word is the same on all machines");

enum { WORD_HELLO = 1, WORD_ANSWER };
enum { SEAL_HEADERS, SEAL_PAYLOAD };

/*
 * Then frames follow, each with its bytes, filled up with zeros to a multiple of 8: so what is
 * pointed to in the buffer that they are read into is aligned. word: mark, kind, bytes. seal: of
 * the frame's number, which is not sent, and of what is before it, by the key of this direction.
 */
typedef struct hly_tcp_frame {
    uint64_t word, tag;
    uint64_t digest; /* of its bytes, where those are sealed; else 0 */
    uint64_t seal;
} hly_tcp_frame_t;

/* One direction. */
typedef struct hly_tcp_seal {
    uint8_t key[16], payload_key[16];
    uint64_t count; /* frames said, or heard */
} hly_tcp_seal_t;

#define HLY_TCP_MARK       UINT64_C(0x4c)
#define HLY_TCP_BYTES_BITS 48
#define HLY_TCP_BYTES_MAX  ((UINT64_C(1) << HLY_TCP_BYTES_BITS) - 1)

enum { FRAME_MESSAGE = 1, FRAME_TAGGED, FRAME_RETIRE, FRAME_GOODBYE };

/* What epoll's data points to: the first member of its object. */
typedef enum hly_tcp_watch {
    WATCH_SLOW = 1,
    WATCH_LISTEN,
    WATCH_TIMER,
    WATCH_LINK
} hly_tcp_watch_t;

enum {
    LINK_CALLING, /* TCP connects */
    LINK_HEARING, /* the greeting is to come */
    LINK_GREETED, /* the answer */
    LINK_GUEST,   /* the hello */
    LINK_PARKED,
    LINK_OPEN
};

typedef struct hly_tcp_peer hly_tcp_peer_t;
typedef struct hly_tcp_link hly_tcp_link_t;

/* A part of what waits for a socket: bytes in the link's `out`, or of the caller. */
typedef struct hly_tcp_part {
    const uint8_t *data;
    size_t bytes;
    int tell; /* it is the caller's: SENT will come */
    int status;
    uint64_t cookie;
    halay_peer_id_t peer;
    struct hly_tcp_part *next;
} hly_tcp_part_t;

enum { LANDING_FREE, LANDING_POSTED, LANDING_LANDING, LANDING_DONE /* the event waits */ };

typedef struct hly_tcp_landing {
    int state, status;
    uint64_t tag, cookie;
    uint8_t *buffer;
    size_t room, bytes; /* bytes: of what lands or has landed */
    halay_peer_id_t peer;
    struct hly_tcp_landing *next; /* in its bucket, of the free, of the done */
} hly_tcp_landing_t;

/*
 * What was read is buffer[begin, end), from the start of a frame on. Between two frames, and in
 * front of the padding of one that landed, begin is where the next frame is aligned.
 */
struct hly_tcp_link {
    hly_tcp_watch_t watch;
    int state, fd;
    int called;           /* by this end */
    hly_tcp_peer_t *peer; /* NULL: a guest, or parked */
    uint64_t since_ns;
    size_t read; /* of the greeting, or of the word */
    hly_meet_greeting_t greeting;
    hly_tcp_word_t word;
    hly_meet_keys_t keys;
    hly_tcp_seal_t in_seal, out_seal;

    uint8_t *buffer;
    size_t begin, end;
    uint64_t left;   /* bytes of a tagged frame that are still to come: into land_to, or nowhere */
    uint64_t digest; /* of all of them */
    unsigned pad;    /* and zeros behind them */
    uint8_t *land_to;
    hly_tcp_landing_t *landing;
    int more;                   /* there may be whole frames in the buffer */
    int ended, error;           /* end of file, or of sense; error: an errno, or 0 */
    int goodbye, retired, over; /* said by the peer; over: by both */

    hly_tcp_part_t *first, *last; /* what waits for the socket */
    int nparts;
    uint8_t *out;
    size_t out_end;
    int refused; /* a send was refused, because too much waits */
    int asked;   /* epoll tells when there is room */
    int broken;  /* errno of a write: nothing is written any more */
    int said_goodbye, said_retired;
    int spoke; /* not everything that was written is known to be acknowledged */
    int silent;
    hly_tcp_link_t *next;
};

/* WELL until something is wrong; FAILING: known, not told; FAILED: told. */
enum { PEER_WELL, PEER_FAILING, PEER_FAILED };

struct hly_tcp_peer {
    halay_peer_id_t id;
    int state, status;
    int refs;            /* ways to it */
    int calls;           /* this end calls it */
    int called;          /* and a connection is under way */
    int error;           /* errno of the last try; 0: it hung up before it answered */
    hly_tcp_link_t *out; /* where to send; NULL: they have not met */
    int nlinks;          /* open ones */
    int goodbyes;        /* of them, that have said it */
    halay_address_t where;
    char name[HLY_MEET_NAME];
    uint64_t begun_ns, again_ns, pause_ns;
    hly_tcp_peer_t *next;
    char text[HLY_TCP_TEXT];
};

/* A way: no more than a reference. */
struct halay_ep {
    hly_tcp_peer_t *peer;
    struct halay_ep *next;
};

struct halay_transport {
    hly_tcp_link_t **open; /* links that are open */
    int nopen, open_room;
    int turn;
    int waiting; /* links with parts that wait */
    int nmore;   /* links with more */
    int asked;   /* links with asked */
    hly_tcp_part_t *parts, *free_part;
    int nfree;
    hly_tcp_part_t *sent, **sent_end; /* done, SENT waits to be polled */
    hly_tcp_landing_t *landings, *free_landing, *landed, **landed_end;
    int nlandings; /* ever used */
    int posted;    /* of them, waiting for bytes */
    hly_tcp_landing_t *buckets[HLY_TCP_BUCKETS];

    hly_tcp_peer_t *peers;
    halay_ep_t *ways;
    hly_tcp_link_t *links; /* all of them */
    int nguests, nparked, unsettled /* peers that are called */, failing;
    int untold;  /* peers that are FAILED and can be forgotten, perhaps */
    int changed; /* a link has ended, or said that it will */
    int closing; /* this end is being closed: what arrives is thrown away */
    int seal;
    hly_meet_gate_t gate;

    uint32_t polls;
    int attention; /* the next idle poll takes the slow path */
    int error;     /* for poll to return, once */
    uint64_t attended_ns, timer_ns, watched_ns;
    hly_tcp_watch_t slow_watch, listen_watch, timer_watch;
    int listen_shared;                          /* listen_fd is the bootstrap's, and stays open */
    int listen_fd, timer_fd, slow_fd, epoll_fd; /* epoll_fd: what arm gives: slow_fd, open links */

    halay_address_t where;
    char name[HLY_MEET_NAME];
    pid_t pid; /* who opened it; anyone else is a forked child */
    halay_peer_id_t self;
    uint8_t secret[16];
    uint64_t deadline_ns;
    unsigned warned;
    halay_log_fn log;
    void *log_arg;
};

/* Warnings that are given once. */
enum { WARNED_STRANGER = 1, WARNED_DESCRIPTORS = 2 };

/* open.c */
int hly_tcp_open(const halay_transport_params_t *params, halay_transport_t **transport);
void hly_tcp_close(halay_transport_t *t);
uint64_t hly_tcp_now_ns(void);
void hly_tcp_log(const halay_transport_t *t, int level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* peer.c */
/* Finds it or makes it; the caller counts its way itself. 0 or -ENOMEM. */
int hly_tcp_peer_hold(halay_transport_t *t, halay_peer_id_t id, hly_tcp_peer_t **peer);
void hly_tcp_peer_free(halay_transport_t *t, hly_tcp_peer_t *peer);
void hly_tcp_peer_fail(halay_transport_t *t, hly_tcp_peer_t *peer, int status, const char *format,
                       ...) __attribute__((format(printf, 4, 5)));
int hly_tcp_landing_post(halay_transport_t *t, uint64_t tag, void *buffer, size_t bytes,
                         uint64_t cookie);
int hly_tcp_landing_withdraw(halay_transport_t *t, uint64_t tag);
/* The one that waits for this tag, which no more does then; or NULL. */
hly_tcp_landing_t *hly_tcp_landing_take(halay_transport_t *t, uint64_t tag);
/* No more bytes come: LANDED waits to be polled. */
void hly_tcp_landing_done(halay_transport_t *t, hly_tcp_landing_t *landing, int status);
void hly_tcp_landing_free(halay_transport_t *t, hly_tcp_landing_t *landing);

/* in.c: up to max events of one link; n of them. */
int hly_tcp_collect(halay_transport_t *t, hly_tcp_link_t *link, halay_event_t events[], int max);

/* seal.c */
/* HALAY_TCP_SEAL: headers or payload. 0, or -1. */
int hly_tcp_seal_read(const char *text, int *seal);
/* Of a link with a greeting, by its hello. called_here: by the peer. */
void hly_tcp_seals_make(const halay_transport_t *t, hly_tcp_link_t *link, const uint8_t nonce[],
                        halay_peer_id_t caller, halay_peer_id_t called, int called_here);
/* The next frame on a link, which is counted when it has gone (out_seal.count). */
hly_tcp_frame_t hly_tcp_frame(const hly_tcp_link_t *link, int kind, uint64_t bytes, uint64_t tag,
                              uint64_t digest);
/* Is it the next one that the peer has said here? */
int hly_tcp_frame_right(const hly_tcp_link_t *link, const hly_tcp_frame_t *frame);
uint64_t hly_tcp_digest(const hly_tcp_seal_t *seal, const void *header, size_t header_bytes,
                        const void *payload, size_t payload_bytes);

/* out.c */
/* As send of the contract, on a link. */
int hly_tcp_put(halay_transport_t *t, hly_tcp_link_t *link, uint64_t tag, const void *header,
                size_t header_bytes, const void *payload, size_t payload_bytes, uint64_t cookie);
/* A frame without bytes, behind all that waits. 0, or -EAGAIN. */
int hly_tcp_say(halay_transport_t *t, hly_tcp_link_t *link, int kind);
/* Writes what waits, as far as it goes. */
void hly_tcp_flush(halay_transport_t *t, hly_tcp_link_t *link);
/* Before sleep: epoll tells when there is room; and after. 0 or a negative errno. */
int hly_tcp_ask(halay_transport_t *t, hly_tcp_link_t *link, int on);
/* What waits ends with this status. */
void hly_tcp_parts_end(halay_transport_t *t, hly_tcp_link_t *link, int status);

/* link.c */
int hly_tcp_link_add(halay_transport_t *t, int fd, int state, hly_tcp_peer_t *peer,
                     hly_tcp_link_t **link);
void hly_tcp_link_free(halay_transport_t *t, hly_tcp_link_t *link);
/* Neither reads nor writes memory of the caller any more; it stays, and gives nothing. */
void hly_tcp_link_sever(halay_transport_t *t, hly_tcp_link_t *link);
/* It can carry frames from now on. 0 or a negative errno. */
int hly_tcp_link_open(halay_transport_t *t, hly_tcp_link_t *link, hly_tcp_peer_t *peer);
/* 0 or a negative errno. A hello needs the greeting; then the keys are made. */
int hly_tcp_word_say(const halay_transport_t *t, hly_tcp_link_t *link, uint32_t kind,
                     halay_peer_id_t to);
/* 1: the greeting, or a whole word, is in the link; 0: not yet; a negative errno, -ENODATA at the
 * end. */
int hly_tcp_word_read(hly_tcp_link_t *link);

/* meet.c */
void hly_tcp_call(halay_transport_t *t, hly_tcp_peer_t *peer, uint64_t now);
void hly_tcp_call_tend(halay_transport_t *t, hly_tcp_peer_t *peer, uint64_t now);
void hly_tcp_guests_accept(halay_transport_t *t);
void hly_tcp_guest_drop(halay_transport_t *t, hly_tcp_link_t *link, const char *why);
void hly_tcp_link_look(halay_transport_t *t, hly_tcp_link_t *link);
/* Links that are open and have ended, were retired, or have heard a goodbye. */
void hly_tcp_ends_look(halay_transport_t *t);

/* watch.c */
int hly_tcp_watch_add(int epoll_fd, int fd, uint32_t events, hly_tcp_watch_t *watch);
/* From room to write to something to read. */
int hly_tcp_watch_change(int epoll_fd, int fd, hly_tcp_watch_t *watch);
void hly_tcp_attend(halay_transport_t *t);
/* Gives FAILED of peers, up to max. */
int hly_tcp_failures_give(halay_transport_t *t, halay_event_t events[], int max);
int hly_tcp_timer_set(halay_transport_t *t);

#endif
