/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watch.c - the slow path: sockets, goodbyes, failures. It runs in poll, when no event waits; so
 * what earlier polls gave away may go.
 */
#include <errno.h>
#include <sys/epoll.h>

#include "ucx.h"

/*
 * Not while it is polled: each message that arrives would wake one epoll through the other, in the
 * sender's system call.
 */
int hly_ucx_watch(halay_transport_t *t, int watched)
{
    struct epoll_event event = {.events = EPOLLIN};
    int operation = watched ? EPOLL_CTL_ADD : EPOLL_CTL_DEL;
    if (t->watched == watched)
        return 0;
    if (epoll_ctl(t->meet.epoll_fd, operation, t->worker_fd, &event))
        return -errno;
    t->watched = watched;
    return 0;
}

static void on_stray(void *request, ucs_status_t status, const ucp_tag_recv_info_t *info, void *arg)
{
    (void)status, (void)info, (void)arg;
    ucp_request_free(request);
}

/*
 * A peer that sends to a tag knows that it was posted. So a message that nobody waits for was sent
 * to a buffer that has been withdrawn since; it is received into nothing, for the sender waits.
 */
int hly_ucx_strays_drop(halay_transport_t *t)
{
    const ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK,
                                       .cb.recv = on_stray};
    ucp_tag_recv_info_t info;
    int n = 0;
    while (t->lands && n < HLY_UCX_DROPS) {
        ucp_tag_message_h message = ucp_tag_probe_nb(t->worker, 0, HLY_UCX_SHORT_TAG, 1, &info);
        if (!message)
            break;
        ucp_tag_msg_recv_nbx(t->worker, NULL, 0, message, &param);
        n++;
    }
    return n;
}

/* Tells of failures, when all that had arrived before has been polled. */
static void failures_tell(halay_transport_t *t)
{
    hly_meet_peer_t *failed;
    halay_event_t event;
    if (t->last > 0 || ucp_worker_progress(t->worker) || t->last > 0) {
        t->meet.attention = 1;
        return;
    }
    while ((failed = hly_meet_peer_failed(&t->meet, &event)) != NULL) {
        hly_ucx_ep_close(t, (hly_ucx_peer_t *)failed);
        hly_ucx_event_add(t, &event, 0);
    }
}

static void told_peers_free(halay_transport_t *t)
{
    hly_ucx_peer_t *next;
    for (hly_ucx_peer_t *peer = t->meet.over ? hly_ucx_first(t) : NULL; peer; peer = next) {
        next = hly_ucx_next(peer);
        if (hly_meet_peer_over(&peer->base) && peer->under_way == 0)
            hly_ucx_peer_free(t, peer);
    }
}

/* A peer that leaves: once all that it has sent is here, it may go. Or one that UCX has lost. */
static void goodbye_look(halay_transport_t *t, hly_ucx_peer_t *peer, uint64_t now)
{
    if (peer->base.state != PEER_WELL)
        return;
    if (!peer->base.goodbye) {
        if (peer->broken != UCS_OK)
            hly_meet_peer_fail(&t->meet, &peer->base, HALAY_EPEER,
                               "UCX: the connection to %s failed: %s", peer->base.name,
                               ucs_status_string(peer->broken));
        return;
    }
    if (peer->came < peer->base.goodbye_count && peer->broken == UCS_OK &&
        now - peer->base.goodbye_ns < HLY_MEET_CLOSE_NS)
        return;
    hly_meet_link_t *link = hly_meet_link_of(&t->meet, &peer->base);
    if (link) {
        (void)hly_meet_link_say(&t->meet, link, MEET_SEEN, 0); /* only a hello can fail */
        hly_meet_link_write(&t->meet, link); /* if it fails, nobody is there to wait for it */
    }
    hly_meet_peer_fail(&t->meet, &peer->base, HALAY_EPEER, "%s closed its end", peer->base.name);
}

void hly_ucx_attend(halay_transport_t *t)
{
    uint64_t now = hly_meet_now_ns();
    assert(t->first == t->last);
    t->attended_ns = now;
    t->shorts_wanted -= t->shorts_wanted > HLY_UCX_SHORTS_LEAST;
    t->meet.attention = 0;
    told_peers_free(t);
    hly_meet_attend(&t->meet, now);
    for (hly_ucx_peer_t *peer = hly_ucx_first(t); peer; peer = hly_ucx_next(peer))
        goodbye_look(t, peer, now);
    if (hly_ucx_strays_drop(t) > 0)
        t->meet.attention = 1;
    if (t->meet.failing)
        failures_tell(t);
}
