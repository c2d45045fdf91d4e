/* SPDX-License-Identifier: Apache-2.0 */
/*
 * meet.c - who may say hello, what is answered, and how a peer leaves. One that leaves says goodbye
 * on each connection, behind all that it has sent there, and stays, for a while, until that has
 * reached the other host.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include "tcp.h"

/* Whom it is for is another question. */
static int word_right(const hly_tcp_link_t *link, uint32_t kind)
{
    const hly_tcp_word_t *word = &link->word;
    return hly_meet_proved(link->keys.in, word, offsetof(hly_tcp_word_t, mac), NULL, 0,
                           word->mac) &&
           word->kind == kind;
}

static void seals_differ(halay_transport_t *t, hly_tcp_peer_t *peer)
{
    static const char *const names[] = {"headers", "payload"};
    hly_tcp_peer_fail(t, peer, HALAY_ETRANSPORT,
                      "%s has HALAY_TCP_SEAL=%s, and this rank %s: give all ranks the same",
                      peer->name, names[t->seal == SEAL_HEADERS], names[t->seal]);
}

/* ------------------------------------------------------------------ calling */

static void call_failed(hly_tcp_peer_t *peer, int error, uint64_t now)
{
    peer->called = 0;
    peer->error = error;
    peer->pause_ns *= 2;
    if (peer->pause_ns > HLY_TCP_PAUSE_MAX_NS)
        peer->pause_ns = HLY_TCP_PAUSE_MAX_NS;
    peer->again_ns = now + peer->pause_ns;
}

/*
 * Who was kept waiting for longer than its pause was parked: the one who hung up now goes on to its
 * next epoch, and pauses start anew. Whoever is turned away at once pauses for longer and longer.
 */
static void call_ended(hly_tcp_peer_t *peer, const hly_tcp_link_t *link, int error)
{
    uint64_t now = hly_tcp_now_ns();
    if (error == 0 && link->state == LINK_GREETED && now - link->since_ns > peer->pause_ns)
        peer->pause_ns = HLY_TCP_PAUSE_NS / 2;
    call_failed(peer, error, now);
}

void hly_tcp_call(halay_transport_t *t, hly_tcp_peer_t *peer, uint64_t now)
{
    struct sockaddr_storage address;
    hly_tcp_link_t *link;
    socklen_t length = hly_meet_where_socket(&peer->where, &address);
    if (length == 0) { /* no address was given: the peer may still call here */
        call_failed(peer, EDESTADDRREQ, now);
        return;
    }
    int fd = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        call_failed(peer, errno, now);
        return;
    }
    if (connect(fd, (struct sockaddr *)&address, length) && errno != EINPROGRESS) {
        int error = errno;
        close(fd);
        call_failed(peer, error, now);
        return;
    }
    int rc = hly_tcp_link_add(t, fd, LINK_CALLING, peer, &link);
    if (rc)
        call_failed(peer, -rc, now);
    else
        peer->called = 1;
}

static void give_up(halay_transport_t *t, hly_tcp_peer_t *peer, uint64_t now)
{
    unsigned long long ms = (now - peer->begun_ns) / 1000000;
    if (peer->called)
        hly_tcp_peer_fail(t, peer, HALAY_EPEER,
                          "%s did not answer within %llu ms: the process there is stopped or busy, "
                          "or has ended this run, or not begun it (all ranks initialize and "
                          "finalize equally often), or a firewall drops what is sent there",
                          peer->name, ms);
    else if (peer->error == 0)
        hly_tcp_peer_fail(t, peer, HALAY_EPEER,
                          "%s hung up on this rank for %llu ms: the process there has ended, or is "
                          "of another job, or of another version of Halay",
                          peer->name, ms);
    else if (peer->error == EDESTADDRREQ)
        hly_tcp_peer_fail(t, peer, HALAY_EPEER,
                          "its address is not known, and it did not call within %llu ms", ms);
    else
        hly_tcp_peer_fail(t, peer, HALAY_EPEER,
                          "%s could not be reached within %llu ms: %s; does the network let this "
                          "port through? (HALAY_INTERFACE chooses one)",
                          peer->name, ms, strerror(peer->error));
}

void hly_tcp_call_tend(halay_transport_t *t, hly_tcp_peer_t *peer, uint64_t now)
{
    if (!peer->calls || peer->state != PEER_WELL)
        return;
    /* What is known to be wrong is said before the calls that wait for it reach their deadline. */
    uint64_t patience_ns = t->deadline_ns - (peer->error ? t->deadline_ns / 8 : 0);
    if (now >= peer->begun_ns + patience_ns)
        give_up(t, peer, now);
    else if (!peer->called && peer->error == ECONNREFUSED) /* a process listens while it lives */
        hly_tcp_peer_fail(t, peer, HALAY_EPEER,
                          "nobody listens at %s any more (connection refused): the process there "
                          "has ended",
                          peer->name);
    else if (!peer->called && now >= peer->again_ns)
        hly_tcp_call(t, peer, now);
}

/* ------------------------------------------------------------------ being called */

static void warn_stranger(halay_transport_t *t, int fd, const char *why)
{
    halay_address_t where = {0};
    struct sockaddr_storage address;
    socklen_t length = sizeof(address);
    char name[HLY_MEET_NAME] = "somebody";
    if (t->warned & WARNED_STRANGER)
        return;
    t->warned |= WARNED_STRANGER;
    if (getpeername(fd, (struct sockaddr *)&address, &length) == 0 &&
        hly_meet_where_from(&address, &where) == 0)
        hly_meet_where_name(&where, name);
    hly_tcp_log(t, 1, "tcp: %s connected to %s and was dropped: %s; this is said once", name,
                t->name, why);
}

void hly_tcp_guest_drop(halay_transport_t *t, hly_tcp_link_t *link, const char *why)
{
    warn_stranger(t, link->fd, why);
    hly_tcp_link_free(t, link);
}

/* Where all places are taken, the one who has been silent for longest has to go. */
static void place_free(halay_transport_t *t)
{
    hly_tcp_link_t *oldest = NULL;
    for (hly_tcp_link_t *link = t->links; link; link = link->next) {
        if (link->state == LINK_GUEST && (!oldest || link->since_ns < oldest->since_ns))
            oldest = link;
    }
    assert(oldest != NULL); /* all places are taken */
    hly_tcp_guest_drop(t, oldest, "too many connect and say nothing");
}

static void warn_descriptors(halay_transport_t *t, int error)
{
    if (!(t->warned & WARNED_DESCRIPTORS))
        hly_tcp_log(t, 0,
                    "tcp: a connection could not be accepted: %s; raise the limits on open files "
                    "and memory (ulimit -n, -v)",
                    strerror(error));
    t->warned |= WARNED_DESCRIPTORS;
    t->error = HALAY_ENOMEM;
}

void hly_tcp_guests_accept(halay_transport_t *t)
{
    for (int i = 0; i < HLY_TCP_ROUNDS && t->gate.open_ns <= t->attended_ns; i++) {
        hly_tcp_link_t *link;
        int fd = accept4(t->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0 && (errno == EINTR || errno == ECONNABORTED))
            continue;
        if (fd < 0 && errno == EAGAIN)
            return;
        int rc = fd < 0 ? -errno : 0;
        if (rc == 0 && t->nguests == HLY_TCP_GUESTS)
            place_free(t);
        if (rc == 0)
            rc = hly_tcp_link_add(t, fd, LINK_GUEST, NULL, &link);
        if (rc == 0 && hly_meet_greet(fd, HLY_TCP_MAGIC, &link->greeting))
            hly_tcp_link_free(t, link); /* it has gone already */
        if (rc == 0)
            continue;
        warn_descriptors(t, -rc);
        return;
    }
}

/* ------------------------------------------------------------------ meeting */

/* Of two connections the one that the lower id called stays. All that is said on the other is said
 * before this end retires it. */
static void one_retire(halay_transport_t *t, hly_tcp_peer_t *peer)
{
    const halay_peer_id_t a = t->self, b = peer->id;
    int lower = hly_meet_lower_id(a, b), calls = 0;
    for (int i = 0; i < t->nopen; i++) {
        if (t->open[i]->peer == peer && !t->open[i]->said_retired)
            calls |= t->open[i]->called ? 1 : 2;
    }
    if (calls != 3 || hly_meet_same_id(a, b))
        return;
    for (int i = 0; i < t->nopen; i++) {
        hly_tcp_link_t *link = t->open[i];
        if (link->peer != peer || link->said_retired)
            continue;
        if (link->called == lower)
            peer->out = link;
        else if (hly_tcp_say(t, link, FRAME_RETIRE) == 0)
            link->said_retired = 1;
    }
}

static int link_met(halay_transport_t *t, hly_tcp_link_t *link, hly_tcp_peer_t *peer)
{
    int rc = peer->nlinks < HLY_TCP_LINKS_PEER ? hly_tcp_link_open(t, link, peer) : -EMLINK;
    if (rc)
        return rc;
    if (!peer->out)
        peer->out = link;
    if (peer->calls)
        t->unsettled--;
    peer->calls = 0;
    t->attention = 1;
    return 0;
}

/* Where all places are taken, the caller has to try again later. */
static void park(halay_transport_t *t, hly_tcp_link_t *link)
{
    if (t->nparked == HLY_TCP_PARKED) {
        hly_tcp_link_free(t, link);
        return;
    }
    link->state = LINK_PARKED;
    t->nguests--;
    t->nparked++;
}

static void on_hello(halay_transport_t *t, hly_tcp_link_t *link)
{
    hly_tcp_peer_t *peer;
    const hly_tcp_word_t *word = &link->word;
    int own = hly_meet_same_id(word->from, t->self) && !hly_meet_same_id(word->to, t->self);
    hly_tcp_seals_make(t, link, word->nonce, word->from, word->to, 1);
    if (!word_right(link, WORD_HELLO) || own) { /* own: somebody sends back what was said here */
        hly_tcp_guest_drop(t, link, "it is of another job, or of another version of Halay");
        return;
    }
    if (!hly_meet_same_id(word->to, t->self)) {
        park(t, link);
        return;
    }
    int rc = hly_tcp_peer_hold(t, word->from, &peer);
    if (rc || peer->state != PEER_WELL || t->closing) {
        hly_tcp_link_free(t, link);
        return;
    }
    peer->where = word->where;
    hly_meet_where_name(&peer->where, peer->name);
    if (word->seal != (uint32_t)t->seal) {
        hly_tcp_word_say(t, link, WORD_ANSWER, peer->id); /* it says the same there */
        hly_tcp_link_free(t, link);
        seals_differ(t, peer);
        return;
    }
    rc = link_met(t, link, peer);
    if (rc == -ENOMEM || rc == -ENOSPC)
        warn_descriptors(t, -rc);
    if (rc) {
        hly_tcp_link_free(t, link);
        return;
    }
    rc = hly_tcp_word_say(t, link, WORD_ANSWER, peer->id);
    if (rc == 0)
        one_retire(t, peer);
    else /* what was said before its end is still read */
        link->broken = -rc;
}

static void on_answer(halay_transport_t *t, hly_tcp_link_t *link)
{
    const hly_tcp_word_t *word = &link->word;
    hly_tcp_peer_t *peer = link->peer;
    if (!word_right(link, WORD_ANSWER) || !hly_meet_same_id(word->from, peer->id) ||
        !hly_meet_same_id(word->to, t->self)) {
        hly_tcp_peer_fail(t, peer, HALAY_ETRANSPORT,
                          "%s does not speak this version's language, or has another secret",
                          peer->name);
        return;
    }
    if (peer->state == PEER_WELL && word->seal != (uint32_t)t->seal)
        seals_differ(t, peer);
    if (peer->state != PEER_WELL)
        return;
    int rc = link_met(t, link, peer);
    if (rc)
        hly_tcp_peer_fail(t, peer, HALAY_ENOMEM,
                          "the connection to %s cannot be used: %s; raise the limits on open files "
                          "and memory (ulimit -n, -v)",
                          peer->name, strerror(-rc));
    else
        one_retire(t, peer);
}

/* The end of a link that was not open. error 0: end of file. */
static void link_ended(halay_transport_t *t, hly_tcp_link_t *link, int error)
{
    if (link->state == LINK_GUEST && error == EPROTO)
        warn_stranger(t, link->fd, "it speaks another language, or another version's");
    if ((link->state == LINK_HEARING || link->state == LINK_GREETED) && error == EPROTO)
        hly_tcp_peer_fail(t, link->peer, HALAY_ETRANSPORT,
                          "%s does not speak this version's language", link->peer->name);
    else if (link->peer)
        call_ended(link->peer, link, error);
    hly_tcp_link_free(t, link);
}

/* One that is not open can be read or written. */
void hly_tcp_link_look(halay_transport_t *t, hly_tcp_link_t *link)
{
    int rc = 0;
    if (link->state == LINK_CALLING) {
        int error = 0;
        socklen_t bytes = sizeof(error);
        getsockopt(link->fd, SOL_SOCKET, SO_ERROR, &error, &bytes);
        link->state = LINK_HEARING;
        rc = error ? -error : hly_tcp_watch_change(t->slow_fd, link->fd, &link->watch);
    } else if (link->state == LINK_HEARING) {
        rc = hly_tcp_word_read(link);
        if (rc > 0) {
            link->state = LINK_GREETED;
            rc = hly_tcp_word_say(t, link, WORD_HELLO, link->peer->id);
        }
    } else if (link->state == LINK_PARKED) { /* it has no more to say before it is answered */
        rc = -ENODATA;
    } else {
        rc = hly_tcp_word_read(link);
    }
    if (rc < 0)
        link_ended(t, link, rc == -ENODATA ? 0 : -rc);
    else if (rc > 0 && link->state == LINK_GUEST)
        on_hello(t, link);
    else if (rc > 0)
        on_answer(t, link);
}

/* ------------------------------------------------------------------ leaving */

/* One link of a peer that is well has ended, or is over. */
static void end_look(halay_transport_t *t, hly_tcp_link_t *link)
{
    hly_tcp_peer_t *peer = link->peer;
    if (link->goodbye)
        return; /* with the others, if they have heard it too */
    if (link->ended && link->error == EPROTO)
        hly_tcp_peer_fail(t, peer, HALAY_ETRANSPORT,
                          "what came from %s makes no sense: the connection carries something else",
                          peer->name);
    else if (link->ended && link->error == EBADMSG)
        hly_tcp_peer_fail(t, peer, HALAY_ETRANSPORT,
                          "what came from %s lacks its seal: on the way something was put in, "
                          "changed, repeated or left out; look for who can reach this network, or "
                          "for a device in it that damages data",
                          peer->name);
    else if (link->ended && !link->over)
        hly_tcp_peer_fail(t, peer, HALAY_EPEER, "the connection to %s ended%s%s", peer->name,
                          link->error ? ": " : "", link->error ? strerror(link->error) : "");
}

void hly_tcp_ends_look(halay_transport_t *t)
{
    t->changed = 0;
    for (int i = t->nopen - 1; i >= 0; i--) {
        hly_tcp_link_t *link = t->open[i];
        if (link->peer->state != PEER_WELL)
            continue;
        if (link->retired && !link->said_retired) /* it found no room when it was due */
            one_retire(t, link->peer);
        link->over = link->retired && link->said_retired && !link->first;
        t->changed |= link->retired && !link->over;
        end_look(t, link);
        if (link->over && link->peer->state == PEER_WELL && !link->goodbye)
            hly_tcp_link_free(t, link); /* the last takes its place */
    }
    for (hly_tcp_peer_t *peer = t->peers; peer; peer = peer->next) {
        if (peer->goodbyes > 0 && peer->goodbyes == peer->nlinks)
            hly_tcp_peer_fail(t, peer, HALAY_EPEER, "%s closed its end", peer->name);
    }
}
