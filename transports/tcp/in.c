/* SPDX-License-Identifier: Apache-2.0 */
/*
 * in.c - frames come in. One system call reads what there is; messages are handed out where they
 * lie in the buffer, and stay there until the next poll. What is for a landing buffer is read
 * straight into it, except for what of it lay in the buffer already.
 *
 * Invariant: a frame starts at a multiple of 8 in the buffer. So what follows the bytes of a
 * landing is read to where its padding would lie in front of a multiple of 8.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>
#include <sys/uio.h>

#include "tcp.h"

static void more_set(halay_transport_t *t, hly_tcp_link_t *link, int more)
{
    t->nmore += more - link->more;
    link->more = more;
}

/* The link gives nothing any more; the slow path ends it. */
static void end(halay_transport_t *t, hly_tcp_link_t *link, int error)
{
    link->ended = 1;
    link->error = error;
    t->changed = t->meet.attention = 1;
}

/* ------------------------------------------------------------------ frames */

static void land_begin(halay_transport_t *t, hly_tcp_link_t *link, uint64_t bytes, uint64_t tag,
                       uint64_t digest)
{
    hly_tcp_landing_t *landing = hly_tcp_landing_take(t, tag);
    link->left = bytes;
    link->pad = (unsigned)(-bytes & 7);
    link->landing = landing;
    link->digest = digest;
    if (!landing)
        return; /* it was withdrawn: read into nothing */
    landing->peer = link->peer->base.id;
    landing->bytes = (size_t)bytes;
    link->land_to = landing->buffer;
    if (bytes > landing->room) {
        landing->bytes = 0;
        hly_tcp_landing_done(t, landing, HALAY_EINVAL);
        link->landing = NULL;
    }
}

static int bytes_right(const halay_transport_t *t, const hly_tcp_link_t *link, const void *data,
                       size_t bytes, uint64_t digest)
{
    return t->seal != SEAL_PAYLOAD ||
           hly_tcp_digest(&link->in_seal, NULL, 0, data, bytes) == digest;
}

/* All of it has come. */
static void land_end(halay_transport_t *t, hly_tcp_link_t *link)
{
    hly_tcp_landing_t *landing = link->landing;
    if (!landing)
        return;
    int right = bytes_right(t, link, landing->buffer, landing->bytes, link->digest);
    hly_tcp_landing_done(t, landing, right ? HALAY_OK : HALAY_ETRANSPORT);
    if (!right)
        end(t, link, EBADMSG);
    link->landing = NULL;
}

/* Takes what is in the buffer of a frame that lands. 1: that was all of it. */
static int land_more(halay_transport_t *t, hly_tcp_link_t *link)
{
    size_t there = link->end - link->begin;
    size_t n = there < link->left ? there : (size_t)link->left;
    if (link->landing && n > 0) {
        memcpy(link->land_to, link->buffer + link->begin, n);
        link->land_to += n;
    }
    link->begin += n;
    link->left -= n;
    if (link->left > 0)
        return 0;
    land_end(t, link);
    n = link->end - link->begin < link->pad ? link->end - link->begin : link->pad;
    link->begin += n;
    link->pad -= (unsigned)n;
    return link->pad == 0;
}

/* One that carries no bytes. */
static void on_notice(halay_transport_t *t, hly_tcp_link_t *link, unsigned kind)
{
    if (kind == FRAME_RETIRE && !link->retired) {
        link->retired = 1;
        t->changed = t->meet.attention = 1;
    } else if (kind == FRAME_GOODBYE) {
        link->goodbye = 1;
        link->peer->goodbyes++;
        end(t, link, 0);
    } else {
        end(t, link, EPROTO);
    }
}

static void message_give(hly_tcp_link_t *link, size_t bytes, halay_event_t *event)
{
    *event =
        (halay_event_t){.kind = HALAY_EVENT_MESSAGE,
                        .peer = link->peer->base.id,
                        .data = bytes ? link->buffer + link->begin + sizeof(hly_tcp_frame_t) : NULL,
                        .bytes = bytes};
}

/* The frames that are whole, and the start of one that lands. */
static int frames_take(halay_transport_t *t, hly_tcp_link_t *link, halay_event_t events[], int max)
{
    hly_tcp_frame_t frame;
    int n = 0;
    if ((link->left > 0 || link->pad > 0) && !land_more(t, link))
        return 0;
    while (link->end - link->begin >= sizeof(frame) && !link->ended) {
        memcpy(&frame, link->buffer + link->begin, sizeof(frame));
        uint64_t bytes = frame.word & HLY_TCP_BYTES_MAX;
        unsigned kind = (unsigned)(frame.word >> HLY_TCP_BYTES_BITS) & 0xff;
        int tagged = kind == FRAME_TAGGED;
        if (!hly_tcp_frame_right(&link->in_seal, &frame)) {
            end(t, link, EBADMSG);
            break;
        }
        if (frame.word >> 56 != HLY_TCP_MARK || (frame.tag != 0) != tagged ||
            (!tagged && bytes > (kind == FRAME_MESSAGE ? HLY_TCP_MESSAGE : 0))) {
            end(t, link, EPROTO);
            break;
        }
        if (kind == FRAME_MESSAGE) {
            size_t all = sizeof(frame) + (((size_t)bytes + 7) & ~(size_t)7);
            if (link->end - link->begin < all)
                break;
            if (n == max) {
                more_set(t, link, 1);
                return n;
            }
            if (!bytes_right(t, link, link->buffer + link->begin + sizeof(frame), (size_t)bytes,
                             frame.digest)) {
                end(t, link, EBADMSG);
                break;
            }
            message_give(link, (size_t)bytes, &events[n++]);
            link->begin += all;
            link->in_seal.count++;
            continue;
        }
        link->begin += sizeof(frame);
        link->in_seal.count++;
        if (!tagged) {
            on_notice(t, link, kind);
            continue;
        }
        land_begin(t, link, bytes, frame.tag, frame.digest);
        if (!land_more(t, link))
            break;
    }
    more_set(t, link, 0);
    return n;
}

/* ------------------------------------------------------------------ reading */

/* Where to read to: behind what is there, which goes to the front where room is short. */
static void buffer_prepare(hly_tcp_link_t *link)
{
    size_t there = link->end - link->begin;
    if (there == 0) {
        link->begin = link->end = -link->pad & 7;
    } else if (HLY_TCP_IN - link->begin < HLY_TCP_MESSAGE + sizeof(hly_tcp_frame_t)) {
        assert(link->begin % 8 == 0 && link->pad == 0);
        memmove(link->buffer, link->buffer + link->begin, there);
        link->begin = 0;
        link->end = there;
    }
    assert(link->end < HLY_TCP_IN);
}

/*
 * How many bytes came, or a negative errno; -ENODATA at the end of file. What lands is read to its
 * place, what follows it into the buffer. Where landing buffers are posted, little is read from the
 * start of a frame on: the next may be one that lands, and need not be copied then.
 */
static ssize_t fill(const halay_transport_t *t, hly_tcp_link_t *link, int *all)
{
    buffer_prepare(link);
    size_t room = HLY_TCP_IN - link->end, there = link->end - link->begin;
    if (t->posted > 0 && there < HLY_TCP_PEEK)
        room = HLY_TCP_PEEK - there;
    struct iovec vector[2] = {{link->land_to, (size_t)link->left},
                              {link->buffer + link->end, room}};
    struct msghdr message = {.msg_iov = vector, .msg_iovlen = 2};
    size_t nothing = link->left < HLY_TCP_IN ? (size_t)link->left : HLY_TCP_IN;
    ssize_t came;
    if (link->left > 0 && link->landing)
        came = recvmsg(link->fd, &message, MSG_DONTWAIT);
    else if (link->left > 0) /* into nothing: the buffer is empty, and stays so */
        came = recv(link->fd, link->buffer, nothing, MSG_TRUNC | MSG_DONTWAIT);
    else
        came = recv(link->fd, link->buffer + link->end, room, MSG_DONTWAIT);
    if (came <= 0)
        return came < 0 ? -errno : -ENODATA;
    *all = link->left > 0 ? (size_t)came < link->left : (size_t)came < room;
    return came;
}

static void came_count(halay_transport_t *t, hly_tcp_link_t *link, size_t came)
{
    size_t direct = came < link->left ? came : (size_t)link->left;
    if (direct > 0) {
        if (link->landing)
            link->land_to += direct;
        link->left -= direct;
        if (link->left == 0)
            land_end(t, link);
    }
    link->end += came - direct;
}

int hly_tcp_collect(halay_transport_t *t, hly_tcp_link_t *link, halay_event_t events[], int max)
{
    int n = link->more ? frames_take(t, link, events, max) : 0, all = 0;
    for (int i = 0; i < HLY_TCP_READS && n == 0 && !all && !link->ended; i++) {
        ssize_t came = fill(t, link, &all);
        if (came == -EAGAIN || came == -EINTR)
            break;
        if (came < 0) {
            end(t, link, link->broken ? link->broken : came == -ENODATA ? 0 : (int)-came);
            break;
        }
        came_count(t, link, (size_t)came);
        if (link->left == 0)
            n = frames_take(t, link, events, max);
    }
    return n;
}
