/* SPDX-License-Identifier: Apache-2.0 */
/*
 * meet.c - who may say hello, what is answered, and how a peer leaves. A peer that leaves says how
 * many messages it has sent, and waits, for a while, to hear that they were seen: only then does it
 * close its UCX endpoint, which may throw away what the network still holds.
 */
#define _GNU_SOURCE
#include <assert.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "ucx.h"

/* In constant time, so that the secret cannot be guessed byte by byte. */
static int same_secret(const uint8_t a[16], const uint8_t b[16])
{
    volatile uint8_t difference = 0;
    for (int i = 0; i < 16; i++)
        difference |= a[i] ^ b[i];
    return difference == 0;
}

/* Whom it is for is another question. */
static int word_right(const halay_transport_t *t, const hly_ucx_word_t *word, uint32_t kind)
{
    int secret = same_secret(word->secret, t->secret);
    int address = kind == WORD_HELLO || kind == WORD_ANSWER ? word->address_bytes > 0
                                                            : word->address_bytes == 0;
    return secret && word->kind == kind && address;
}

/* ------------------------------------------------------------------ calling */

static void call_failed(hly_ucx_peer_t *peer, int error, uint64_t now)
{
    peer->called = 0;
    peer->calls_ended++;
    peer->error = error;
    peer->pause_ns *= 2;
    if (peer->pause_ns > HLY_UCX_PAUSE_MAX_NS)
        peer->pause_ns = HLY_UCX_PAUSE_MAX_NS;
    peer->again_ns = now + peer->pause_ns;
}

/*
 * Who was kept waiting for longer than any pause was parked: the one who hung up now goes on to its
 * next epoch, and pauses start anew. Whoever is turned away at once pauses for longer and longer.
 */
static void call_ended(hly_ucx_peer_t *peer, const hly_ucx_link_t *link, int error)
{
    uint64_t now = hly_ucx_now_ns();
    if (link->state == LINK_GREETED && (error == ECONNRESET || error == EPIPE))
        error = 0; /* it hung up before it had read all */
    if (error == 0 && link->state == LINK_GREETED && now - link->since_ns > HLY_UCX_PAUSE_MAX_NS)
        peer->pause_ns = HLY_UCX_PAUSE_NS / 2;
    call_failed(peer, error, now);
}

void hly_ucx_call(halay_transport_t *t, hly_ucx_peer_t *peer, uint64_t now)
{
    struct sockaddr_storage address;
    hly_ucx_link_t *link;
    socklen_t length = hly_ucx_where_socket(&peer->where, &address);
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
    int rc = hly_ucx_link_add(t, fd, LINK_CALLING, peer, &link);
    if (rc)
        call_failed(peer, -rc, now);
    peer->called = rc == 0;
    peer->called_ns = now;
}

static void give_up(halay_transport_t *t, hly_ucx_peer_t *peer, uint64_t now)
{
    unsigned long long ms = (now - peer->begun_ns) / 1000000;
    /* What ended the calls before says more than one that has just begun. */
    if (peer->called && (peer->calls_ended == 0 || now - peer->called_ns > HLY_UCX_PAUSE_MAX_NS))
        hly_ucx_peer_fail(t, peer, HALAY_EPEER,
                          "%s did not answer within %llu ms: the process there is stopped or busy, "
                          "or has ended this run, or not begun it (all ranks initialize and "
                          "finalize equally often), or a firewall drops what is sent there",
                          peer->name, ms);
    else if (peer->error == 0)
        hly_ucx_peer_fail(t, peer, HALAY_EPEER,
                          "%s hung up on this rank for %llu ms: the process there has ended, or is "
                          "of another job, or of another version of Halay",
                          peer->name, ms);
    else if (peer->error == EDESTADDRREQ)
        hly_ucx_peer_fail(t, peer, HALAY_EPEER,
                          "its address is not known, and it did not call within %llu ms", ms);
    else
        hly_ucx_peer_fail(t, peer, HALAY_EPEER,
                          "%s could not be reached within %llu ms: %s; does the network let this "
                          "port through? (HALAY_INTERFACE chooses one)",
                          peer->name, ms, strerror(peer->error));
}

void hly_ucx_call_tend(halay_transport_t *t, hly_ucx_peer_t *peer, uint64_t now)
{
    if (!peer->calls || peer->state != PEER_WELL)
        return;
    /* What is known to be wrong is said before the calls that wait for it reach their deadline. */
    uint64_t patience_ns = t->deadline_ns - (peer->error ? t->deadline_ns / 8 : 0);
    if (now >= peer->begun_ns + patience_ns)
        give_up(t, peer, now);
    else if (!peer->called && peer->error == ECONNREFUSED) /* a process listens while it lives */
        hly_ucx_peer_fail(t, peer, HALAY_EPEER,
                          "nobody listens at %s any more (connection refused): the process there "
                          "has ended",
                          peer->name);
    else if (!peer->called && now >= peer->again_ns)
        hly_ucx_call(t, peer, now);
}

/* ------------------------------------------------------------------ being called */

static void warn_stranger(halay_transport_t *t, int fd, const char *why)
{
    halay_address_t where = {0};
    struct sockaddr_storage address;
    socklen_t length = sizeof(address);
    char name[HLY_UCX_NAME] = "somebody";
    if (t->warned & WARNED_STRANGER)
        return;
    t->warned |= WARNED_STRANGER;
    if (getpeername(fd, (struct sockaddr *)&address, &length) == 0 &&
        hly_ucx_where_from(&address, &where) == 0)
        hly_ucx_where_name(&where, name);
    hly_ucx_log(t, 1, "ucx: %s connected to %s and was dropped: %s; this is said once", name,
                t->name, why);
}

void hly_ucx_guest_drop(halay_transport_t *t, hly_ucx_link_t *link, const char *why)
{
    warn_stranger(t, link->fd, why);
    hly_ucx_link_free(t, link);
}

/* Where all places are taken, the one who has been silent for longest has to go. */
static void place_free(halay_transport_t *t)
{
    hly_ucx_link_t *oldest = NULL;
    for (hly_ucx_link_t *link = t->links; link; link = link->next) {
        if (link->state == LINK_GUEST && (!oldest || link->since_ns < oldest->since_ns))
            oldest = link;
    }
    assert(oldest != NULL); /* all places are taken */
    hly_ucx_guest_drop(t, oldest, "too many connect and say nothing");
}

void hly_ucx_guests_accept(halay_transport_t *t)
{
    for (int i = 0; i < HLY_UCX_ROUNDS; i++) {
        hly_ucx_link_t *link;
        int fd = accept4(t->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0 && (errno == EINTR || errno == ECONNABORTED))
            continue;
        if (fd < 0 && errno == EAGAIN)
            return;
        int rc = fd < 0 ? -errno : 0;
        if (rc == 0 && t->nguests == HLY_UCX_GUESTS)
            place_free(t);
        if (rc == 0)
            rc = hly_ucx_link_add(t, fd, LINK_GUEST, NULL, &link);
        if (rc == 0)
            continue;
        if (!(t->warned & WARNED_DESCRIPTORS))
            hly_ucx_log(t, 0,
                        "ucx: a connection could not be accepted: %s; raise the limits on open "
                        "files and memory (ulimit -n, -v)",
                        strerror(-rc));
        t->warned |= WARNED_DESCRIPTORS;
        t->error = HALAY_ENOMEM;
        return;
    }
}

/* ------------------------------------------------------------------ words */

/* Where all places are taken, the caller has to try again later. 0: goes on. 1: the link is gone.
 */
static int park(halay_transport_t *t, hly_ucx_link_t *link)
{
    if (t->nparked == HLY_UCX_PARKED) {
        hly_ucx_link_free(t, link);
        return 1;
    }
    link->state = LINK_PARKED;
    t->nguests--;
    t->nparked++;
    return 0;
}

/* 0: goes on. 1: the link is gone. */
static int on_hello(halay_transport_t *t, hly_ucx_link_t *link, const hly_ucx_word_t *word)
{
    hly_ucx_peer_t *peer;
    if (!word_right(t, word, WORD_HELLO)) {
        hly_ucx_guest_drop(t, link, "it is of another job, or of another version of Halay");
        return 1;
    }
    if (!hly_ucx_same_id(word->to, t->self))
        return park(t, link);
    int rc = hly_ucx_peer_hold(t, word->from, &peer);
    if (rc || peer->state != PEER_WELL || t->closing) {
        hly_ucx_link_free(t, link);
        return 1;
    }
    peer->where = word->where;
    hly_ucx_where_name(&peer->where, peer->name);
    link->peer = peer;
    link->state = LINK_OPEN;
    t->nguests--;
    hly_ucx_link_say(t, link, WORD_ANSWER, 0);
    hly_ucx_peer_meet(t, peer, link->in + sizeof(*word), word->token);
    return 0;
}

static int on_word(halay_transport_t *t, hly_ucx_link_t *link)
{
    hly_ucx_word_t word;
    hly_ucx_peer_t *peer = link->peer;
    memcpy(&word, link->in, sizeof(word));
    link->read = 0;
    if (link->state == LINK_GUEST)
        return on_hello(t, link, &word);
    if (link->state == LINK_PARKED) { /* it has no more to say before it is answered */
        hly_ucx_link_free(t, link);
        return 1;
    }
    int from = hly_ucx_same_id(word.from, peer->id) && hly_ucx_same_id(word.to, t->self);
    if (link->state == LINK_GREETED && from && word_right(t, &word, WORD_ANSWER)) {
        link->state = LINK_OPEN;
        hly_ucx_peer_meet(t, peer, link->in + sizeof(word), word.token);
    } else if (link->state == LINK_OPEN && from && word_right(t, &word, WORD_GOODBYE)) {
        peer->goodbye = 1;
        peer->goodbye_count = word.count;
        peer->goodbye_ns = hly_ucx_now_ns();
        t->attention = 1;
    } else if (link->state == LINK_OPEN && from && word_right(t, &word, WORD_SEEN)) {
        peer->seen = 1;
    } else {
        hly_ucx_peer_fail(t, peer, HALAY_ETRANSPORT,
                          "%s does not speak this version's language, or has another secret",
                          peer->name);
    }
    return 0;
}

/* The end of a link. error 0: end of file. */
static void link_ended(halay_transport_t *t, hly_ucx_link_t *link, int error)
{
    hly_ucx_peer_t *peer = link->peer;
    if (link->state == LINK_GUEST) {
        if (error == EPROTO)
            warn_stranger(t, link->fd, "it speaks another language, or another version's");
    } else if (link->state == LINK_CALLING || link->state == LINK_GREETED) {
        call_ended(peer, link, error);
    } else if (link->state == LINK_OPEN && !peer->goodbye) {
        hly_ucx_peer_fail(t, peer, HALAY_EPEER, "the connection to %s ended%s%s", peer->name,
                          error ? ": " : "", error ? strerror(error) : "");
    }
    peer = peer && t->closing ? peer : NULL;
    if (peer)
        peer->seen = 1; /* nobody is left to see anything */
    hly_ucx_link_free(t, link);
}

void hly_ucx_link_look(halay_transport_t *t, hly_ucx_link_t *link)
{
    int rc = 0;
    if (link->state == LINK_CALLING) {
        int error = 0;
        socklen_t bytes = sizeof(error);
        getsockopt(link->fd, SOL_SOCKET, SO_ERROR, &error, &bytes);
        rc = -error;
        if (rc == 0) {
            link->state = LINK_GREETED;
            hly_ucx_link_say(t, link, WORD_HELLO, 0);
        }
    }
    if (rc == 0)
        rc = hly_ucx_link_write(t, link);
    /* What can be read is read first, even if nothing can be written any more. */
    int read = rc;
    while (link->state != LINK_CALLING && (read = hly_ucx_link_read(link)) > 0) {
        if (on_word(t, link))
            return;
    }
    if (rc == 0 && read == 0 && link->written < link->to_write)
        rc = hly_ucx_link_write(t, link);
    if (rc == 0)
        rc = read;
    if (rc < 0)
        link_ended(t, link, rc == -ENODATA ? 0 : -rc);
}

/* A peer that leaves: once all that it has sent is here, it may go. Or one that UCX has lost. */
void hly_ucx_goodbye_look(halay_transport_t *t, hly_ucx_peer_t *peer, uint64_t now)
{
    if (peer->state != PEER_WELL)
        return;
    if (!peer->goodbye) {
        if (peer->broken != UCS_OK)
            hly_ucx_peer_fail(t, peer, HALAY_EPEER, "UCX: the connection to %s failed: %s",
                              peer->name, ucs_status_string(peer->broken));
        return;
    }
    if (peer->came < peer->goodbye_count && peer->broken == UCS_OK &&
        now - peer->goodbye_ns < HLY_UCX_CLOSE_NS)
        return;
    hly_ucx_link_t *link = hly_ucx_link_of(t, peer);
    if (link) {
        hly_ucx_link_say(t, link, WORD_SEEN, 0);
        hly_ucx_link_write(t, link); /* if it fails, there is nobody any more to wait for it */
    }
    hly_ucx_peer_fail(t, peer, HALAY_EPEER, "%s closed its end", peer->name);
}
