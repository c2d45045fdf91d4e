/* SPDX-License-Identifier: Apache-2.0 */
/*
 * toy.c - the smallest transport that keeps the contract: one Unix datagram socket a process. The
 * kernel keeps messages whole and loses none, and a full queue is EAGAIN. It offers no capability,
 * so the core sends long messages in pieces, and polls instead of sleeping.
 *
 * A socket's name is made of its process's id and the secret. So a peer is found without a
 * directory, who does not know the secret is never reached, and a message's sender is known by the
 * name that it came from. A name that nobody listens at any more is a process that has ended.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <halay/transport.h>

HALAY_API extern const halay_transport_ops_t halay_transport_v7_toy;

#define MESSAGE_BYTES 4096
#define HEADER_BYTES  64         /* of the core's messages */
#define LOOK_NS       1000000ull /* peers are looked for this often */

enum { SENT = 1, SEVERED }; /* kinds of messages */

struct name { /* of a socket; one that begins with 0 needs no file */
    sa_family_t family;
    char path[22]; /* its first byte is 0 */
    halay_peer_id_t id;
    uint8_t secret[16];
};

struct halay_ep {
    halay_ep_t *next;
    struct name name;
    uint64_t deadline_ns; /* to be there */
    const char *why;      /* FAILED comes with it, or has come; NULL: all is well */
    bool there;           /* it has been seen */
    bool failed;          /* FAILED has come */
    bool severed;         /* by this end */
    bool told;            /* and the peer has been sent SEVERED */
};

struct halay_transport {
    int fd;
    int probe; /* is connected to a name to see whether there is anybody */
    struct name self;
    uint64_t deadline_ns, looked_ns;
    halay_ep_t *ways;
    _Alignas(8) unsigned char data[MESSAGE_BYTES]; /* of the last MESSAGE */
};

static uint64_t now_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000ull + (uint64_t)ts.tv_nsec;
}

static bool is_same(halay_peer_id_t a, halay_peer_id_t b)
{
    return a.hi == b.hi && a.lo == b.lo;
}

/* ---------------------------------------------------------------- life */

static void toy_close(halay_transport_t *t)
{
    if (!t)
        return;
    while (t->ways) {
        halay_ep_t *next = t->ways->next;
        free(t->ways);
        t->ways = next;
    }
    close(t->probe);
    close(t->fd);
    free(t);
}

static int toy_open(const halay_transport_params_t *params, halay_transport_t **transport)
{
    const int type = SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC;
    halay_transport_t *t = calloc(1, sizeof(*t));
    if (!t)
        return HALAY_ENOMEM;
    t->self = (struct name){.family = AF_UNIX, .path = "\0halay-toy", .id = params->self};
    memcpy(t->self.secret, params->secret, sizeof(t->self.secret));
    t->deadline_ns = params->deadline_ns;
    t->fd = socket(AF_UNIX, type, 0);
    t->probe = socket(AF_UNIX, type, 0);
    if (t->fd >= 0 && t->probe >= 0 &&
        !bind(t->fd, (const struct sockaddr *)&t->self, sizeof(t->self))) {
        *transport = t;
        return HALAY_OK;
    }
    params->log(params->log_arg, 0, "toy: no Unix socket can be made (ulimit -n)");
    toy_close(t);
    return HALAY_ETRANSPORT;
}

static int toy_query(const halay_transport_t *t, halay_transport_attr_t *attr)
{
    (void)t;
    attr->capabilities = 0;
    attr->message_bytes = MESSAGE_BYTES;
    attr->eager_bytes = attr->piece_bytes = MESSAGE_BYTES - HEADER_BYTES;
    return HALAY_OK;
}

static int toy_address(const halay_transport_t *t, void *address, size_t *bytes)
{
    (void)t, (void)address;
    *bytes = 0;
    return HALAY_OK;
}

static int toy_connect(halay_transport_t *t, halay_peer_id_t peer, const void *address,
                       size_t bytes, halay_ep_t **ep)
{
    (void)address, (void)bytes;
    halay_ep_t *e = calloc(1, sizeof(*e));
    if (!e)
        return HALAY_ENOMEM;
    e->name = t->self;
    e->name.id = peer;
    e->deadline_ns = now_ns() + t->deadline_ns;
    e->next = t->ways;
    t->ways = e;
    *ep = e;
    return HALAY_OK;
}

/* A severed way stays: its peer is to be told, and what it has sent is dropped. */
static void toy_disconnect(halay_transport_t *t, halay_ep_t *ep)
{
    if (!ep || ep->severed)
        return;
    halay_ep_t **way = &t->ways;
    while (*way != ep)
        way = &(*way)->next;
    *way = ep->next;
    free(ep);
}

/* Nothing is ever under way: what was sent is the kernel's. */
static void toy_sever(halay_transport_t *t, halay_ep_t *ep)
{
    (void)t;
    ep->severed = true;
    if (!ep->why)
        ep->why = "this process has cut it off";
}

/* ---------------------------------------------------------------- messages */

static int say(halay_transport_t *t, halay_ep_t *ep, uint64_t kind, const void *header,
               size_t header_bytes, const void *payload, size_t payload_bytes)
{
    struct iovec parts[] = {{&kind, sizeof(kind)},
                            {(void *)(uintptr_t)header, header_bytes},
                            {(void *)(uintptr_t)payload, payload_bytes}};
    const struct msghdr m = {
        .msg_name = &ep->name, .msg_namelen = sizeof(ep->name), .msg_iov = parts, .msg_iovlen = 3};
    if (sendmsg(t->fd, &m, 0) >= 0)
        return HALAY_OK;
    return errno == ECONNREFUSED && ep->there ? HALAY_EPEER : HALAY_EAGAIN;
}

static int toy_send(halay_transport_t *t, halay_ep_t *ep, uint64_t tag, const void *header,
                    size_t header_bytes, const void *payload, size_t payload_bytes, uint64_t cookie)
{
    (void)cookie;
    if (tag)
        return HALAY_EUNSUPPORTED;
    if (header_bytes + payload_bytes > MESSAGE_BYTES)
        return HALAY_EINVAL;
    return ep->why ? HALAY_EPEER : say(t, ep, SENT, header, header_bytes, payload, payload_bytes);
}

static halay_ep_t *way_of(const halay_transport_t *t, halay_peer_id_t peer)
{
    halay_ep_t *e = t->ways;
    while (e && !is_same(e->name.id, peer))
        e = e->next;
    return e;
}

/* What any process may have sent is checked, and dropped without a word. */
static bool take_message(halay_transport_t *t, halay_event_t *event)
{
    uint64_t kind = 0;
    struct name from;
    struct iovec parts[] = {{&kind, sizeof(kind)}, {t->data, sizeof(t->data)}};
    struct msghdr m = {
        .msg_name = &from, .msg_namelen = sizeof(from), .msg_iov = parts, .msg_iovlen = 2};
    const ssize_t bytes = recvmsg(t->fd, &m, 0);
    if (bytes < (ssize_t)sizeof(kind) || m.msg_flags & MSG_TRUNC || m.msg_namelen != sizeof(from) ||
        memcmp(from.path, t->self.path, sizeof(from.path)) ||
        memcmp(from.secret, t->self.secret, sizeof(from.secret)))
        return false;
    halay_ep_t *way = way_of(t, from.id);
    if (way && (way->severed || kind == SEVERED)) {
        if (!way->why)
            way->why = "it has cut this process off";
        return false;
    }
    *event = (halay_event_t){.kind = HALAY_EVENT_MESSAGE,
                             .peer = from.id,
                             .data = t->data,
                             .bytes = (size_t)bytes - sizeof(kind)};
    return kind == SENT;
}

/* ---------------------------------------------------------------- peers that end */

static bool take_failure(halay_transport_t *t, halay_event_t *event)
{
    const halay_ep_t *lost = t->ways;
    while (lost && (!lost->why || lost->failed))
        lost = lost->next;
    if (!lost)
        return false;
    for (halay_ep_t *e = t->ways; e; e = e->next) /* once a peer, however many ways there are */
        if (is_same(e->name.id, lost->name.id)) {
            e->why = lost->why;
            e->failed = true;
        }
    *event = (halay_event_t){.kind = HALAY_EVENT_FAILED,
                             .status = HALAY_EPEER,
                             .peer = lost->name.id,
                             .text = lost->why};
    return true;
}

/* Now and then; what a peer sent before its end is there before this sees the end. */
static void look_for_peers(halay_transport_t *t)
{
    const uint64_t now = now_ns();
    if (now - t->looked_ns < LOOK_NS)
        return;
    t->looked_ns = now;
    for (halay_ep_t *e = t->ways; e; e = e->next) {
        if (e->severed && !e->told)
            e->told = say(t, e, SEVERED, NULL, 0, NULL, 0) != HALAY_EAGAIN;
        if (e->why)
            continue;
        if (!connect(t->probe, (const struct sockaddr *)&e->name, sizeof(e->name)))
            e->there = true;
        else if (e->there)
            e->why = "nobody listens at its name any more: its process has ended";
        else if (now >= e->deadline_ns)
            e->why = "it was not there by the deadline";
    }
}

/* Messages first, so that FAILED comes after all that its peer had sent. */
static int toy_poll(halay_transport_t *t, halay_event_t events[], int max)
{
    (void)max;
    if (take_message(t, events) || take_failure(t, events))
        return 1;
    look_for_peers(t);
    return 0;
}

/* ---------------------------------------------------------------- what it does not offer */

static int toy_register_mem(halay_transport_t *t, const halay_mem_params_t *params,
                            halay_mem_t **mem)
{
    (void)t, (void)params, (void)mem;
    return HALAY_EUNSUPPORTED;
}

static int toy_alloc_mem(halay_transport_t *t, size_t bytes, void **address, halay_mem_t **mem)
{
    (void)t, (void)bytes, (void)address, (void)mem;
    return HALAY_EUNSUPPORTED;
}

static void toy_deregister_mem(halay_transport_t *t, halay_mem_t *mem)
{
    (void)t, (void)mem;
}

static int toy_key(halay_transport_t *t, const halay_mem_t *mem, void *key, size_t *bytes)
{
    (void)t, (void)mem, (void)key, (void)bytes;
    return HALAY_EUNSUPPORTED;
}

static int toy_recv(halay_transport_t *t, uint64_t tag, void *buffer, size_t bytes, uint64_t cookie)
{
    (void)t, (void)tag, (void)buffer, (void)bytes, (void)cookie;
    return HALAY_EUNSUPPORTED;
}

static int toy_withdraw(halay_transport_t *t, uint64_t tag)
{
    (void)t, (void)tag;
    return HALAY_EUNSUPPORTED;
}

static int toy_put(halay_transport_t *t, halay_ep_t *ep, const void *payload, size_t bytes,
                   const void *key, size_t key_bytes, uint64_t offset, uint32_t immediate,
                   uint64_t cookie)
{
    (void)t, (void)ep, (void)payload, (void)bytes, (void)key, (void)key_bytes, (void)offset;
    (void)immediate, (void)cookie;
    return HALAY_EUNSUPPORTED;
}

static int toy_give_back(halay_transport_t *t)
{
    (void)t;
    return HALAY_EUNSUPPORTED;
}

static int toy_arm(halay_transport_t *t, int *fd)
{
    (void)t, (void)fd;
    return HALAY_EUNSUPPORTED;
}

const halay_transport_ops_t halay_transport_v7_toy = {
    .size = sizeof(halay_transport_ops_t),
    .name = "toy",
    .open = toy_open,
    .close = toy_close,
    .query = toy_query,
    .address = toy_address,
    .connect = toy_connect,
    .disconnect = toy_disconnect,
    .sever = toy_sever,
    .register_mem = toy_register_mem,
    .alloc_mem = toy_alloc_mem,
    .deregister_mem = toy_deregister_mem,
    .key = toy_key,
    .send = toy_send,
    .recv = toy_recv,
    .withdraw = toy_withdraw,
    .put = toy_put,
    .poll = toy_poll,
    .give_back = toy_give_back,
    .arm = toy_arm,
};
