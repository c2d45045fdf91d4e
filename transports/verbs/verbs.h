/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verbs.h - a spike: the contract on a real queue pair (docs/decisions/0011-verbs-spike.md).
 *
 *   verbs.c  the table; send, put, poll, arm
 *   meet.c   peers and their queue pairs; the TCP links on which they meet
 *   open.c   the device and what is made on it
 *
 * Who calls says hello on a TCP link, which stays open: its end is a death. One RC queue pair a
 * peer serves both directions. A send takes a receive request of the peer, and so does a put, for
 * its immediate: each takes a credit. Credits come back before messages, or alone; for those KEPT
 * requests are posted beyond the credits: each brings half of all, so no more can be unread.
 */
#ifndef HALAY_VERBS_VERBS_H
#define HALAY_VERBS_VERBS_H

#include <assert.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <string.h>

#include "halay/transport.h"

enum { PEERS = 16, LINKS = 64, SLOTS = 32, CREDITS = 32, KEPT = 2, RECVS = CREDITS + KEPT };
enum { BUFFER = 8192, BUFFERS = RECVS + SLOTS, HEAD = 8, INLINE = 128, HELD = 16, ROUNDS = 64 };
enum { TIMEOUT = 17 /* 4.096 us * 2^17, times (1 + RETRIES): 3.8 s */, RETRIES = 6 };
enum { LINK_FREE, LINK_CALLING, LINK_GREETED, LINK_GUEST, LINK_OPEN };
enum { PEER_FREE, PEER_WELL, PEER_FAILING /* known, not told */, PEER_FAILED };
#define MAGIC UINT64_C(0x3162726556414c48)

typedef struct word { /* a hello, and its answer */
    uint64_t magic;
    uint32_t qpn, mtu, lid, zero;
    halay_peer_id_t from, to;
    uint8_t secret[16], gid[16];
    halay_address_t where;
} word_t;

typedef struct put_key {
    uint64_t address, bytes, rkey;
} put_key_t;

typedef struct link {
    int state, fd;
    size_t read;
    halay_ep_t *peer;
    word_t in;
} link_t;

struct halay_ep { /* a peer; a way is a reference to it */
    halay_peer_id_t id;
    int state, refs, called /* has a link; -1: had */, up /* the queue pair is */, met /* there */;
    uint64_t begun_ns;     /* 0: nobody here wants a link */
    halay_address_t where; /* family 0: not known */
    struct ibv_qp *qp;
    uint32_t posted, granted, owed, credits; /* receives; of them the peer's, ours; to spend */
    uint32_t free_slots;
    struct {
        uint64_t cookie;
        struct ibv_mr *mr; /* of a put, made for it alone */
        int put;
    } slot[SLOTS];
    char text[160];
};

struct halay_transport {
    struct ibv_context *device;
    struct ibv_port_attr port;
    struct ibv_pd *pd;
    struct ibv_comp_channel *channel;
    struct ibv_cq *cq;
    struct ibv_mr *mr; /* of room: for each peer RECVS buffers, then one for each slot */
    uint8_t *room;
    union ibv_gid gid;
    int port_number, gid_index, epoll_fd, timer_fd, listen_fd, armed, attention, warned, nheld;
    unsigned polls;
    halay_address_t where;
    halay_ep_t peers[PEERS];
    link_t links[LINKS];
    uint64_t held[HELD]; /* messages that one poll gave away: until the next */
    halay_transport_params_t params;
};

/* open.c */
uint64_t hly_verbs_now_ns(void);
/* Returns rc. */
int hly_verbs_say(const halay_transport_t *t, int level, int rc, const char *what, const char *why);
int hly_verbs_open(const halay_transport_params_t *params, halay_transport_t **out);
void hly_verbs_close(halay_transport_t *t);

/* meet.c */
int hly_verbs_watch(halay_transport_t *t, int fd);
int hly_verbs_peer_fail(halay_transport_t *t, halay_ep_t *peer, const char *what, const char *why);
halay_ep_t *hly_verbs_peer_hold(halay_transport_t *t, halay_peer_id_t id);
void hly_verbs_peer_cut(halay_transport_t *t, const halay_ep_t *peer);
void hly_verbs_recv_post(halay_transport_t *t, uint64_t n);
int hly_verbs_attend(halay_transport_t *t, halay_event_t events[], int max);

/* verbs.c */
int hly_verbs_poll(halay_transport_t *t, halay_event_t events[], int max);

#endif
