/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tcp.h - what the files of this transport share. docs/decisions/ucx-tcp.md#0012 says why.
 *
 *   tcp.c    the table; small answers, ways, send, poll, arm
 *   open.c   an endpoint comes and goes
 *   land.c   landing buffers
 *   in.c     frames come in: messages, and what lands
 *   out.c    frames go out, and wait where a socket is full
 *   link.c   connections come and go: taken from transports/common, retired, ended
 *   seal.c   keys and seals of frames
 *   watch.c  the slow path: who is silent, who failed
 *
 * Two processes that talk share one connection, for both directions and all ways. If both call at
 * once there are two; then the one that the higher id has called is retired: each end says on it
 * that it has said its last there, and it is closed when both have. A connection stays until one of
 * the two processes ends, so a way costs nothing, and giving one up disturbs nobody. How they meet
 * is in transports/common; sealed frames follow. Its end without a goodbye is the sign that the
 * peer has died.
 */
#ifndef HALAY_TCP_TCP_H
#define HALAY_TCP_TCP_H

#include "../common/meet.h"

enum {
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
    HLY_TCP_TICK = 16,           /* polls between two looks at the clock */
    HLY_TCP_SILENT = 2           /* looks in a row at which nothing was acknowledged: it is told */
};
#define HLY_TCP_MAGIC    UINT64_C(0x3350435459414c48)
#define HLY_TCP_SLOW_NS  UINT64_C(50000)      /* between two looks at sockets, while polled */
#define HLY_TCP_WATCH_NS UINT64_C(1000000000) /* between two looks at what is acknowledged */

/* What frames seal; told when two meet. */
enum { SEAL_HEADERS, SEAL_PAYLOAD };
typedef uint32_t hly_tcp_tell_t;

/*
 * Frames follow the answer, each with its bytes, filled up with zeros to a multiple of 8: so what
 * is pointed to in the buffer that they are read into is aligned. word: mark, kind, bytes. seal: of
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

/* A way is a reference to a peer. */
typedef struct halay_ep {
    hly_meet_peer_t base;
    hly_tcp_link_t *out; /* where to send; NULL: they have not met */
    int nlinks;
    int goodbyes; /* of them, that have said it */
} hly_tcp_peer_t;

/*
 * What was read is buffer[begin, end), from the start of a frame on. Between two frames, and in
 * front of the padding of one that landed, begin is where the next frame is aligned.
 */
struct hly_tcp_link {
    int fd;
    int called; /* by this end */
    hly_tcp_peer_t *peer;
    hly_tcp_seal_t in_seal, out_seal;

    uint8_t *buffer;
    size_t begin, end;
    uint64_t left;   /* bytes of a tagged frame that are still to come: into land_to, or nowhere */
    uint64_t digest; /* of all of them */
    unsigned pad;    /* and zeros after them */
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
    int spoke;       /* not everything that was written is known to be acknowledged */
    uint64_t silent; /* looks in a row */
};

struct halay_transport {
    hly_meet_t meet;
    hly_tcp_link_t **open; /* links */
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

    int changed; /* a link has come, has ended, or said that it will */
    int seal;
    uint32_t polls;
    uint64_t watched_ns;
    int local_rank;
    int said_silent; /* that somebody acknowledges nothing, until all do again */
};

/* open.c */
int hly_tcp_open(const halay_transport_params_t *params, halay_transport_t **transport);
void hly_tcp_close(halay_transport_t *t);

/* land.c */
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
/* Makes the seal of one direction's key. */
void hly_tcp_seal_make(const uint8_t key[32], hly_tcp_seal_t *seal);
/* The next frame on a link, which is counted when it has gone (seal->count). */
hly_tcp_frame_t hly_tcp_frame(const hly_tcp_seal_t *seal, int kind, uint64_t bytes, uint64_t tag,
                              uint64_t digest);
/* Is it the next one that the peer has said here? */
int hly_tcp_frame_right(const hly_tcp_seal_t *seal, const hly_tcp_frame_t *frame);
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

/* link.c; what hly_meet_ops_t asks for */
hly_meet_peer_t *hly_tcp_peer_make(halay_transport_t *t);
size_t hly_tcp_peer_tell(halay_transport_t *t, hly_meet_peer_t *peer, uint8_t *tells);
void hly_tcp_peer_meet(halay_transport_t *t, hly_meet_peer_t *peer, const uint8_t *tells,
                       size_t bytes);
int hly_tcp_peer_take(halay_transport_t *t, hly_meet_peer_t *peer, const hly_meet_link_t *met,
                      int called);

void hly_tcp_link_free(halay_transport_t *t, hly_tcp_link_t *link);
/* Neither reads nor writes memory of the caller any more; it stays, and gives nothing. */
void hly_tcp_link_sever(halay_transport_t *t, hly_tcp_link_t *link);
/* Links that have come, have ended, were retired, or have heard a goodbye. */
void hly_tcp_links_look(halay_transport_t *t);

/* watch.c */
void hly_tcp_attend(halay_transport_t *t);
/* Gives FAILED of peers, up to max. */
int hly_tcp_failures_give(halay_transport_t *t, halay_event_t events[], int max);
int hly_tcp_timer_set(halay_transport_t *t);

#endif
