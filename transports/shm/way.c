/* SPDX-License-Identifier: Apache-2.0 */
/*
 * way.c - the ways out. This side makes the ring, so a way takes messages as soon as the ring's
 * memory is on its way to a listening peer, which may look much later, and even after this end is
 * closed: messages wait in the ring, and the ring in the socket.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "shm.h"

static void socket_close(halay_transport_t *t, halay_ep_t *ep)
{
    if (ep->socket < 0)
        return;
    hly_shm_watch_drop(t, ep->socket);
    close(ep->socket);
    ep->socket = -1;
}

static void ring_fd_close(halay_ep_t *ep)
{
    if (ep->ring_fd >= 0)
        close(ep->ring_fd);
    ep->ring_fd = -1;
}

void hly_shm_way_free(halay_transport_t *t, halay_ep_t *ep)
{
    halay_ep_t **at = &t->ways;
    while (*at != ep)
        at = &(*at)->next;
    *at = ep->next;
    if (ep->state != WAY_OPEN)
        t->unsettled--;
    socket_close(t, ep);
    ring_fd_close(ep);
    free(ep->lending);
    hly_shm_ring_unmap(&ep->ring);
    hly_shm_peer_drop(t, ep->peer);
    free(ep);
}

/* One try. 1: the hello is sent. 0: not yet, and ep->error says why. */
static int call(halay_transport_t *t, halay_ep_t *ep)
{
    struct sockaddr_un address;
    hly_shm_hello_t hello;
    uid_t uid;
    pid_t pid;
    int fds[HLY_SHM_FDS] = {t->process_fd, t->wake_fd, ep->ring_fd};
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        ep->error = errno;
        return 0;
    }
    socklen_t length = hly_shm_name(t, ep->peer->id, &address);
    if (connect(fd, (struct sockaddr *)&address, length)) {
        ep->error = errno; /* ECONNREFUSED: nobody listens yet. EAGAIN: too many wait there */
        goto no;
    }
    if (!hly_shm_same_user(fd, &pid, &uid)) {
        ep->error = EPERM;
        hly_shm_peer_fail(t, ep->peer, HALAY_EPEER,
                          "process %d of user %u holds the peer's address on this node", (int)pid,
                          (unsigned)uid);
        goto no;
    }
    hly_shm_hello_fill(t, HLY_SHM_HELLO, ep->peer->id, &hello);
    hello.ring_bytes = ep->ring.mask + 1;
    ep->error = -hly_shm_hello_send(fd, &hello, fds, HLY_SHM_FDS);
    if (ep->error)
        goto no;
    ep->error = -hly_shm_watch_add(t, fd, &ep->watch);
    if (ep->error)
        goto no;
    ep->socket = fd;
    ep->state = WAY_GREETED;
    /* Until it answers: a dead peer's forked children may hold its socket open, so that neither an
     * answer nor a hang-up would ever come. */
    hly_shm_peer_guess(t, ep->peer, pid);
    return 1;
no:
    close(fd);
    return 0;
}

void hly_shm_way_answer(halay_transport_t *t, halay_ep_t *ep, uint64_t now)
{
    hly_shm_hello_t answer;
    int fds[HLY_SHM_FDS] = {-1, -1, -1};
    assert(ep->state == WAY_GREETED && ep->socket >= 0);
    int rc = hly_shm_hello_recv(ep->socket, &answer, fds, 2);
    if (rc == 0)
        return;
    socket_close(t, ep);
    ep->state = WAY_HUNG_UP;
    ep->again_ns = now + HLY_SHM_HANGUP_NS;
    if (rc == -1)
        return;
    if (rc == 1 && hly_shm_hello_right(t, HLY_SHM_ANSWER, &answer) &&
        hly_meet_same_id(answer.from, ep->peer->id)) {
        ring_fd_close(ep);
        ep->state = WAY_OPEN;
        t->unsettled--;
        hly_shm_peer_meet(t, ep->peer, fds[HLY_SHM_FD_PROCESS], fds[HLY_SHM_FD_WAKE],
                          ep->peer->pid > 0 ? ep->peer->pid : (pid_t)answer.pid);
        return;
    }
    for (int i = 0; rc == 1 && i < 2; i++)
        close(fds[i]);
    hly_shm_peer_fail(t, ep->peer, HALAY_ETRANSPORT,
                      "the answer of process %d could not be read: the limit on open files was met "
                      "(ulimit -n), or it is another version of Halay",
                      (int)ep->peer->pid);
}

/* No answer in time. */
static void give_up(halay_transport_t *t, const halay_ep_t *ep, uint64_t now)
{
    unsigned long long ms = (now - ep->begun_ns) / 1000000;
    int pid = (int)ep->peer->pid;
    if (ep->state == WAY_CALLING)
        hly_shm_peer_fail(t, ep->peer, HALAY_EPEER,
                          "nobody listened at the peer's address on this node within %llu ms (%s)",
                          ms, strerror(ep->error));
    else if (ep->state == WAY_GREETED)
        hly_shm_peer_fail(t, ep->peer, HALAY_EPEER,
                          "process %d on this node did not answer within %llu ms", pid, ms);
    else
        hly_shm_peer_fail(t, ep->peer, HALAY_EPEER,
                          "process %d on this node closed its end or refused the connection", pid);
}

/*
 * A peer that is there and lives may be busy for longer than any connection takes: it is not failed
 * for that, its pidfd tells when it ends. ~0: no end of waiting. One that lives and does not listen
 * may never begin this epoch, which is logged before the calls that wait for it reach their
 * deadline.
 */
uint64_t hly_shm_way_deadline_ns(const halay_transport_t *t, const halay_ep_t *ep)
{
    if (ep->state == WAY_HUNG_UP)
        return ep->again_ns;
    if (ep->state == WAY_GREETED)
        return ep->peer->process_fd >= 0 ? UINT64_MAX : ep->begun_ns + t->deadline_ns;
    return ep->begun_ns + (ep->peer->process_fd >= 0 ? t->soon_ns : t->timeout_ns);
}

void hly_shm_way_tend(halay_transport_t *t, halay_ep_t *ep, uint64_t now)
{
    if (ep->state == WAY_OPEN || ep->peer->state != PEER_WELL)
        return;
    if (now >= hly_shm_way_deadline_ns(t, ep)) {
        give_up(t, ep, now);
    } else if (ep->state == WAY_CALLING && now >= ep->again_ns && !call(t, ep)) {
        ep->pause_ns *= 2;
        if (ep->pause_ns > HLY_SHM_PAUSE_MAX_NS)
            ep->pause_ns = HLY_SHM_PAUSE_MAX_NS;
        ep->again_ns = now + ep->pause_ns;
    }
}

int hly_shm_connect(halay_transport_t *t, halay_peer_id_t peer, const void *address, size_t bytes,
                    halay_ep_t **out)
{
    const char *why;
    halay_ep_t *ep = calloc(1, sizeof(*ep));
    if (!ep)
        return HALAY_ENOMEM;
    int rc = hly_shm_peer_hold(t, peer, &ep->peer);
    if (rc) {
        free(ep);
        return HALAY_ENOMEM;
    }
    size_t ring_bytes = t->ring_bytes;
    while ((rc = hly_shm_ring_create(ring_bytes, &ep->ring, &ep->ring_fd, &why)) &&
           ring_bytes > t->least_bytes)
        ring_bytes /= 2;
    if (rc) {
        hly_shm_log(t, 0,
                    "shm: no ring of %zu bytes for a peer: %s: %s; raise the limit (ulimit -n, -v, "
                    "-f) on files, memory "
                    "or file size, or take smaller rings (transport option ring=BYTES)",
                    ring_bytes, why, strerror(-rc));
        hly_shm_peer_drop(t, ep->peer);
        free(ep);
        return HALAY_ENOMEM;
    }
    if (bytes == sizeof(halay_process_t))
        hly_shm_peer_known(t, ep->peer, address);
    ep->watch = WATCH_WAY;
    ep->state = WAY_CALLING;
    ep->socket = -1;
    ep->begun_ns = ep->again_ns = hly_shm_now_ns();
    ep->pause_ns = HLY_SHM_PAUSE_NS / 2;
    ep->next = t->ways;
    t->ways = ep;
    t->unsettled++;
    t->attention = 1;
    hly_shm_way_tend(t, ep, ep->begun_ns);
    *out = ep;
    return HALAY_OK;
}

void hly_shm_way_wake(halay_transport_t *t, halay_ep_t *ep)
{
    /* A peer that is armed has answered before (meet.c, welcome): the answer can be read now. */
    if (ep->peer->wake_fd < 0 && ep->state == WAY_GREETED)
        hly_shm_way_answer(t, ep, hly_shm_now_ns());
    hly_shm_peer_wake(ep->peer);
}

/*
 * Says goodbye and wakes the peer whether or not it sleeps. If it has not answered yet, it takes
 * the ring after this and finds the goodbye there before it can sleep.
 */
void hly_shm_disconnect(halay_transport_t *t, halay_ep_t *ep)
{
    if (!ep)
        return;
    if (getpid() != t->pid) { /* a forked child: the ring is not mapped here, the way not its own */
        ep->ring.shared = NULL;
        return;
    }
    hly_shm_recall(t, ep, HALAY_EPEER);
    atomic_store(&ep->ring.shared->closed, HLY_SHM_GAVE_UP);
    hly_shm_way_wake(t, ep);
    hly_shm_way_free(t, ep);
}

/*
 * What is lent ends here; it is all of ours that the peer reads. The peer's own rings go with the
 * failure, as they are, in the next poll: their end tells the peer.
 */
void hly_shm_sever(halay_transport_t *t, halay_ep_t *ep)
{
    hly_shm_peer_t *peer = ep->peer;
    for (halay_ep_t *way = t->ways; way; way = way->next) {
        if (way->peer == peer)
            hly_shm_recall(t, way, HALAY_EPEER);
    }
    for (int i = 0; i < t->nins; i++)
        t->ins[i]->broken |= t->ins[i]->peer == peer;
    hly_shm_peer_fail(t, peer, HALAY_EPEER, "this end has given process %d up", (int)peer->pid);
}
