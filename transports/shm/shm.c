/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shm.c - the transport between the processes of a node: the table and the fast path.
 *
 * A send copies into the ring that leads to the peer, or lends (region.c); poll hands out pointers
 * into the rings that lead here, or to short messages, and frees what it handed out at a later
 * poll. Everything else is the slow path (watch.c), taken every 50 to 200 us, and when there is
 * reason to.
 */
#include "shm.h"

#include <string.h>

extern HALAY_API const halay_transport_ops_t halay_transport_v7_shm;

/* ------------------------------------------------------------------ small answers */

static int shm_query(const halay_transport_t *t, halay_transport_attr_t *attr)
{
    if (!attr || attr->size < sizeof(*attr))
        return HALAY_EINVAL;
    size_t message = hly_shm_ring_message(t->least_bytes - 1);
    attr->capabilities = HALAY_CAN_SLEEP | HALAY_CAN_CACHE | HALAY_CAN_LEND | HALAY_CAN_WATCH;
    attr->message_bytes = message;
    message -= HLY_SHM_LINE;
    attr->eager_bytes = message < t->eager_bytes ? message : t->eager_bytes;
    attr->piece_bytes = attr->eager_bytes;
    return HALAY_OK;
}

static int shm_address(const halay_transport_t *t, void *address, size_t *bytes)
{
    (void)t;
    (void)address;
    *bytes = 0;
    return HALAY_OK;
}

static int shm_register(halay_transport_t *t, const halay_mem_params_t *params, halay_mem_t **mem)
{
    (void)t, (void)params, (void)mem;
    return HALAY_EUNSUPPORTED;
}

static int shm_key(halay_transport_t *t, const halay_mem_t *mem, void *key, size_t *bytes)
{
    (void)t, (void)mem, (void)key, (void)bytes;
    return HALAY_EUNSUPPORTED;
}

static int shm_withdraw(halay_transport_t *t, uint64_t tag)
{
    (void)t, (void)tag;
    return HALAY_EUNSUPPORTED;
}

static int shm_recv(halay_transport_t *t, uint64_t tag, void *buffer, size_t bytes, uint64_t cookie)
{
    (void)t, (void)tag, (void)buffer, (void)bytes, (void)cookie;
    return HALAY_EUNSUPPORTED;
}

static int shm_put(halay_transport_t *t, halay_ep_t *ep, const void *payload, size_t bytes,
                   const void *key, size_t key_bytes, uint64_t offset, uint32_t immediate,
                   uint64_t cookie)
{
    (void)t, (void)ep, (void)payload, (void)bytes, (void)key, (void)key_bytes;
    (void)offset, (void)immediate, (void)cookie;
    return HALAY_EUNSUPPORTED;
}

/* ------------------------------------------------------------------ the fast path */

static inline int post(halay_transport_t *t, halay_ep_t *ep, const void *header,
                       size_t header_bytes, const void *payload, size_t payload_bytes,
                       uint32_t lent)
{
    hly_shm_ring_t *ring = &ep->ring;
    uint64_t need = 0;
    int wake;
    int room = ep->state == WAY_CALLING ? 0
                                        : hly_shm_ring_send(ring, header, header_bytes, payload,
                                                            payload_bytes, lent, &need, &wake);
    if (room == 0) {
        ep->refused = need | 1; /* a cell, if nothing else */
        return HALAY_EAGAIN;
    }
    if (room < 0) {
        hly_shm_peer_fail(t, ep->peer, HALAY_ETRANSPORT,
                          "the ring to process %d is corrupt: its memory was overwritten",
                          (int)ep->peer->pid);
        return HALAY_EPEER;
    }
    ep->refused = 0;
    if (wake)
        hly_shm_way_wake(t, ep);
    return HALAY_OK;
}

/* Any message. Not inlined: what is short would pay for its registers. */
__attribute__((noinline)) static int send_any(halay_transport_t *t, halay_ep_t *ep,
                                              const void *header, size_t header_bytes,
                                              const void *payload, size_t payload_bytes,
                                              uint64_t cookie)
{
    size_t most = hly_shm_ring_message(ep->ring.mask);
    hly_shm_loan_t loan;
    if (header_bytes > most || payload_bytes > most - header_bytes)
        return HALAY_EINVAL;
    if (ep->peer->state != PEER_WELL)
        return HALAY_EPEER;
    if (payload_bytes < HLY_SHM_LEND_BYTES || !t->nregions ||
        !hly_shm_can_lend(t, ep, payload, payload_bytes, &loan))
        return post(t, ep, header, header_bytes, payload, payload_bytes, 0);
    int rc = post(t, ep, header, header_bytes, &loan, sizeof(loan), HLY_SHM_LENT);
    if (rc)
        return rc;
    hly_shm_lent(t, ep, loan.slot, cookie);
    return HALAY_INPROGRESS;
}

static int shm_send(halay_transport_t *t, halay_ep_t *ep, uint64_t tag, const void *header,
                    size_t header_bytes, const void *payload, size_t payload_bytes, uint64_t cookie)
{
    int wake;
    if (tag != 0)
        return HALAY_EUNSUPPORTED;
    if (header_bytes != HLY_SHM_LINE || payload_bytes >= HLY_SHM_LEND_BYTES || ep->refused ||
        payload_bytes > ep->ring.most || ep->peer->state != PEER_WELL || ep->state == WAY_CALLING ||
        !hly_shm_ring_send_usual(&ep->ring, header, payload, payload_bytes, &wake))
        return send_any(t, ep, header, header_bytes, payload, payload_bytes, cookie);
    if (wake)
        hly_shm_way_wake(t, ep);
    return HALAY_OK;
}

__attribute__((noinline, cold)) static void fail_nonsense(halay_transport_t *t, hly_shm_in_t *in)
{
    in->broken = 1;
    hly_shm_peer_fail(t, in->peer, HALAY_ETRANSPORT,
                      "the ring of process %d holds nonsense: its memory was overwritten",
                      (int)in->peer->pid);
}

static inline void tell_message(const hly_shm_in_t *in, halay_event_t *event)
{
    event->kind = HALAY_EVENT_MESSAGE;
    event->status = HALAY_OK;
    event->peer = in->peer->id;
    event->cookie = 0;
    event->immediate = 0;
    event->text = NULL;
}

/* A message of at most so many bytes beside its header. word: its ring's next one. */
__attribute__((always_inline)) static inline int
take_usual(halay_transport_t *t, hly_shm_in_t *in, uint64_t word, size_t most, halay_event_t *event)
{
    if (!hly_shm_ring_take_usual(&in->ring, word, most, &event->data, &event->bytes))
        return 0;
    t->holds |= hly_shm_ring_holds(&in->ring);
    tell_message(in, event);
    return 1;
}

/* What is in one ring, up to max. First frees what the last poll handed out, if that is much. */
__attribute__((noinline)) static int ring_collect(halay_transport_t *t, hly_shm_in_t *in,
                                                  halay_event_t events[], int max)
{
    hly_shm_ring_t *ring = &in->ring;
    int n = 0, rc = 0, is_short = 0;
    if (in->broken)
        return 0;
    if (hly_shm_ring_holds(ring) && hly_shm_ring_release(ring))
        hly_shm_peer_wake(in->peer);
    while (n < max && !is_short && !t->lender) {
        halay_event_t *event = &events[n];
        rc = hly_shm_ring_take(ring, &event->data, &event->bytes);
        if (rc <= 0)
            break;
        if (rc == 2) {
            rc = hly_shm_borrow(t, in, event);
            if (rc < 0)
                break;
            n += rc;
            continue;
        }
        is_short = hly_shm_ring_short(ring, event->data); /* it would be overwritten */
        tell_message(in, event);
        n++;
    }
    if (rc < 0)
        fail_nonsense(t, in);
    t->holds |= hly_shm_ring_holds(ring);
    return n;
}

static int rings_collect(halay_transport_t *t, halay_event_t events[], int max)
{
    int n = 0, i = t->turn < t->nins ? t->turn : 0, seen = 0;
    t->turn = i + 1;
    t->holds = 0;
    for (; seen < t->nins && n < max && !t->lender; seen++) {
        hly_shm_in_t *in = t->ins[i];
        t->holds |= in->broken;
        const uint64_t word =
            in->broken || hly_shm_ring_holds(&in->ring) ? 0 : hly_shm_ring_look(&in->ring);
        if (word && take_usual(t, in, word, HLY_SHM_BESIDE, &events[n]))
            n++;
        else if (hly_shm_ring_ready(&in->ring) || hly_shm_ring_holds(&in->ring))
            n += ring_collect(t, in, events + n, max - n);
        if (++i == t->nins)
            i = 0;
    }
    t->holds |= seen < t->nins;
    return n;
}

static void disarm(halay_transport_t *t)
{
    for (int i = 0; i < t->nins; i++)
        atomic_store_explicit(&t->ins[i]->ring.shared->armed, 0, memory_order_relaxed);
    for (halay_ep_t *ep = t->ways; ep; ep = ep->next)
        atomic_store_explicit(&ep->ring.shared->starved, 0, memory_order_relaxed);
    t->armed = 0;
}

/* Nothing has come, or it is time to look: the slow path too. */
__attribute__((noinline)) static int look_around(halay_transport_t *t, halay_event_t events[],
                                                 int max)
{
    int n = hly_shm_attend(t, events, max);
    if (n < max)
        n += rings_collect(t, events + n, max - n);
    return n;
}

static int is_time(const halay_transport_t *t, uint32_t ticks)
{
    return t->polls % ticks == 0 && hly_shm_now_ns() - t->attended_ns >= t->slow_ns;
}

/* Anything that can be. */
__attribute__((noinline)) static int poll_all(halay_transport_t *t, halay_event_t events[], int max)
{
    int n = 0;
    assert(max > 0);
    if (t->loans) {
        hly_shm_give_back(t);
        n = hly_shm_lent_poll(t, events, max);
        if (n && t->armed)
            disarm(t);
        if (n)
            return n;
    }
    n = is_time(t, HLY_SHM_TICKS) ? look_around(t, events, max) : rings_collect(t, events, max);
    if (n == 0 && (t->attention || is_time(t, HLY_SHM_TICK)))
        n = look_around(t, events, max);
    if (n == 0 && t->error) {
        n = t->error;
        t->error = 0;
    }
    if (n && t->armed) /* else this end goes back to sleep, perhaps */
        disarm(t);
    return n;
}

/* The message in the only ring, mostly one as they all are. */
__attribute__((noinline)) static int take_one(halay_transport_t *t, uint64_t word,
                                              halay_event_t events[], int max)
{
    hly_shm_in_t *in = t->ins[0];
    assert(max > 0);
    const size_t most = max > 1 ? HLY_SHM_BESIDE /* else there may be more */
                                : in->ring.most;
    if (!take_usual(t, in, word, most, &events[0]))
        return poll_all(t, events, max);
    if (!t->vain) /* whoever waits for a message looks all the sooner for the next one */
        __builtin_prefetch(hly_shm_ring_cell(&in->ring));
    t->vain = 0;
    return 1;
}

/* First where one ring leads here, and mostly there is nothing. */
static int shm_poll(halay_transport_t *t, halay_event_t events[], int max)
{
    if (++t->polls % HLY_SHM_TICKS == 0 || t->nins != 1 ||
        t->loans | t->armed | t->attention | t->error | t->holds)
        return poll_all(t, events, max);
    const uint64_t word = hly_shm_ring_look(&t->ins[0]->ring);
    if (word)
        return take_one(t, word, events, max);
    t->vain = 1;
    return t->polls % HLY_SHM_TICK ? 0 : poll_all(t, events, max);
}

/* Is there something that no wake-up would announce, because it came before we were armed? */
static int unannounced(const halay_transport_t *t)
{
    if (t->lender || t->nended)
        return 1;
    for (int i = 0; i < t->nins; i++) {
        const hly_shm_in_t *in = t->ins[i];
        if (hly_shm_ring_ready(&in->ring) || atomic_load(&in->ring.shared->closed))
            return 1;
    }
    for (halay_ep_t *ep = t->ways; ep; ep = ep->next) {
        if (ep->peer->state != PEER_WELL || ep->state == WAY_CALLING)
            continue;
        if (atomic_load(&ep->ring.shared->left) || hly_shm_came_back(ep))
            return 1;
        if (ep->refused && hly_shm_ring_room(&ep->ring, ep->refused)) {
            ep->refused = 0; /* say it once: the caller may not want to send it any more */
            return 1;
        }
    }
    return 0;
}

/* Does it wait for its peer to read? */
static int waits(const halay_ep_t *ep)
{
    return ep->refused || (ep->lending && ep->lending->n);
}

/* Is it said in every ring, and has nobody answered by waking this end? */
static int is_armed(const halay_transport_t *t)
{
    for (int i = 0; i < t->nins; i++) {
        if (!atomic_load_explicit(&t->ins[i]->ring.shared->armed, memory_order_relaxed))
            return 0;
    }
    for (const halay_ep_t *ep = t->ways; ep; ep = ep->next) {
        if (waits(ep) && !atomic_load_explicit(&ep->ring.shared->starved, memory_order_relaxed))
            return 0;
    }
    return t->armed;
}

static void say_armed(halay_transport_t *t)
{
    for (int i = 0; i < t->nins; i++)
        atomic_store(&t->ins[i]->ring.shared->armed, 1);
    for (halay_ep_t *ep = t->ways; ep; ep = ep->next) {
        if (waits(ep))
            atomic_store(&ep->ring.shared->starved, 1);
    }
    t->armed = 1;
    t->armed_ns = hly_shm_now_ns();
}

/*
 * Nobody is forgotten asleep: first this end writes in every ring that it sleeps, then, after a
 * while (ring.h), every ring is looked at again; the other end first writes, then looks whether
 * this end sleeps. What the last poll handed out is still held; if it is much, a peer may wait for
 * that room, so it has to be freed first.
 */
static int shm_arm(halay_transport_t *t, int *fd)
{
    if (t->attention || t->error)
        return HALAY_EAGAIN; /* the slow path is due: a wake-up of before may have to be taken in */
    for (int i = 0; i < t->nins; i++) {
        if (hly_shm_ring_holds(&t->ins[i]->ring))
            return HALAY_EAGAIN;
    }
    if (!is_armed(t)) {
        say_armed(t);
        return HALAY_EAGAIN;
    }
    if (hly_shm_now_ns() - t->armed_ns < HLY_SHM_SETTLE_NS)
        return HALAY_EAGAIN;
    t->attention = 1;
    if (unannounced(t))
        return HALAY_EAGAIN;
    int rc = hly_shm_timer_set(t);
    if (rc)
        return rc;
    *fd = t->epoll_fd;
    return HALAY_OK;
}

const halay_transport_ops_t halay_transport_v7_shm = {
    .size = sizeof(halay_transport_ops_t),
    .name = "shm",
    .open = hly_shm_open,
    .close = hly_shm_close,
    .query = shm_query,
    .address = shm_address,
    .connect = hly_shm_connect,
    .disconnect = hly_shm_disconnect,
    .sever = hly_shm_sever,
    .register_mem = shm_register,
    .alloc_mem = hly_shm_alloc,
    .deregister_mem = hly_shm_deregister,
    .key = shm_key,
    .send = shm_send,
    .recv = shm_recv,
    .withdraw = shm_withdraw,
    .put = shm_put,
    .poll = shm_poll,
    .give_back = hly_shm_give_back,
    .arm = shm_arm,
};
