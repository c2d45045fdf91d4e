/* SPDX-License-Identifier: Apache-2.0 */
/*
 * out.c - frames go out. What the socket takes at once costs one system call and no copy. The rest
 * waits in parts, in order: copied, if it was a message; where it is, if it is for a landing buffer
 * (SENT then says that it has gone). Nothing is written past a part that waits.
 *
 * Invariant: a link's `out` holds all copied parts that wait, one behind the other; it starts anew
 * when none waits.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/uio.h>

#include "tcp.h"

static const uint8_t zeros[8];

/* ------------------------------------------------------------------ parts */

static hly_tcp_part_t *part_take(halay_transport_t *t, hly_tcp_link_t *link)
{
    hly_tcp_part_t *part = t->free_part;
    assert(part != NULL && t->nfree > 0);
    t->free_part = part->next;
    t->nfree--;
    *part = (hly_tcp_part_t){.peer = link->peer->base.id};
    if (link->last)
        link->last->next = part;
    else
        link->first = part;
    t->waiting += link->nparts++ == 0;
    link->last = part;
    return part;
}

/* The first part is done with. */
static void part_end(halay_transport_t *t, hly_tcp_link_t *link, int status)
{
    hly_tcp_part_t *part = link->first;
    link->first = part->next;
    if (--link->nparts == 0) {
        link->last = NULL;
        link->out_end = 0;
        t->waiting--;
    }
    part->next = NULL;
    part->status = status;
    if (part->tell) {
        *t->sent_end = part;
        t->sent_end = &part->next;
        return;
    }
    part->next = t->free_part;
    t->free_part = part;
    t->nfree++;
}

void hly_tcp_parts_end(halay_transport_t *t, hly_tcp_link_t *link, int status)
{
    while (link->first)
        part_end(t, link, status);
}

/* Behind all that waits; joins what was copied before. */
static void copy(halay_transport_t *t, hly_tcp_link_t *link, const void *data, size_t bytes)
{
    hly_tcp_part_t *part = link->last;
    uint8_t *to = link->out + link->out_end;
    assert(bytes <= HLY_TCP_OUT - link->out_end);
    if (!part || part->tell) {
        part = part_take(t, link);
        part->data = to;
    }
    memcpy(to, data, bytes);
    part->bytes += bytes;
    link->out_end += bytes;
}

/* What is left of these parts, from byte `skip` on, has to wait. The one at `refer` stays where it
 * is; -1: none. 1: SENT will come. */
static int queue(halay_transport_t *t, hly_tcp_link_t *link, const struct iovec parts[4],
                 size_t skip, int refer, uint64_t cookie)
{
    int tell = 0;
    for (int i = 0; i < 4; i++) {
        if (skip >= parts[i].iov_len) {
            skip -= parts[i].iov_len;
            continue;
        }
        const uint8_t *data = (const uint8_t *)parts[i].iov_base + skip;
        size_t bytes = parts[i].iov_len - skip;
        skip = 0;
        if (i != refer) {
            copy(t, link, data, bytes);
            continue;
        }
        hly_tcp_part_t *part = part_take(t, link);
        part->data = data;
        part->bytes = bytes;
        part->tell = tell = 1;
        part->cookie = cookie;
    }
    return tell;
}

/* Is there room for a frame with so many bytes to copy? */
static int room(const halay_transport_t *t, const hly_tcp_link_t *link, size_t bytes)
{
    return t->nfree >= 4 && link->nparts <= HLY_TCP_PARTS_LINK - 4 &&
           HLY_TCP_OUT - link->out_end >= bytes;
}

/* ------------------------------------------------------------------ writing */

/* How many bytes went, or a negative errno. A few bytes are copied sooner than described. */
static ssize_t parts_write(hly_tcp_link_t *link, struct iovec *parts, size_t n, size_t bytes)
{
    uint8_t small[HLY_TCP_SMALL];
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = n};
    ssize_t sent;
    if (bytes <= sizeof(small)) {
        uint8_t *to = small;
        for (size_t i = 0; i < n; to += parts[i].iov_len, i++) {
            if (parts[i].iov_len > 0)
                memcpy(to, parts[i].iov_base, parts[i].iov_len);
        }
    }
    do {
        sent = bytes <= sizeof(small) ? send(link->fd, small, bytes, MSG_NOSIGNAL | MSG_DONTWAIT)
                                      : sendmsg(link->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    } while (sent < 0 && errno == EINTR);
    link->spoke = 1;
    return sent < 0 ? -errno : sent;
}

/* What can still be read is read first; the end of file then tells. */
static void link_break(halay_transport_t *t, hly_tcp_link_t *link, int error)
{
    link->broken = error;
    hly_tcp_parts_end(t, link, HALAY_EPEER);
}

void hly_tcp_flush(halay_transport_t *t, hly_tcp_link_t *link)
{
    struct iovec vector[HLY_TCP_VECTOR];
    size_t n = 0, left = HLY_TCP_CHUNK;
    for (hly_tcp_part_t *part = link->first; part && n < HLY_TCP_VECTOR && left > 0;
         part = part->next) {
        size_t bytes = part->bytes < left ? part->bytes : left;
        vector[n++] = (struct iovec){(void *)(uintptr_t)part->data, bytes};
        left -= bytes;
    }
    ssize_t sent = n > 0 ? parts_write(link, vector, n, HLY_TCP_CHUNK - left) : 0;
    if (sent == -EAGAIN)
        return;
    if (sent < 0) {
        link_break(t, link, (int)-sent);
        return;
    }
    for (size_t rest = (size_t)sent; rest > 0;) {
        hly_tcp_part_t *part = link->first;
        assert(part); /* no more is sent than there is */
        size_t bytes = part->bytes < rest ? part->bytes : rest;
        part->data += bytes;
        part->bytes -= bytes;
        rest -= bytes;
        if (part->bytes == 0)
            part_end(t, link, HALAY_OK);
    }
}

int hly_tcp_put(halay_transport_t *t, hly_tcp_link_t *link, uint64_t tag, const void *header,
                size_t header_bytes, const void *payload, size_t payload_bytes, uint64_t cookie)
{
    hly_tcp_frame_t frame;
    size_t pad = -(header_bytes + payload_bytes) & 7, sent = 0;
    size_t all = sizeof(frame) + header_bytes + payload_bytes + pad;
    size_t copied = tag ? sizeof(frame) + pad : all;
    struct iovec parts[4] = {{&frame, sizeof(frame)},
                             {(void *)(uintptr_t)header, header_bytes},
                             {(void *)(uintptr_t)payload, payload_bytes},
                             {(void *)(uintptr_t)zeros, pad}};
    if (!room(t, link, copied) || (link->first && copied > HLY_TCP_OUT_SMALL)) {
        link->refused = 1;
        return HALAY_EAGAIN;
    }
    uint64_t digest = t->seal == SEAL_PAYLOAD ? hly_tcp_digest(&link->out_seal, header,
                                                               header_bytes, payload, payload_bytes)
                                              : 0;
    frame = hly_tcp_frame(&link->out_seal, tag ? FRAME_TAGGED : FRAME_MESSAGE,
                          header_bytes + payload_bytes, tag, digest);
    if (!link->first) {
        size_t now = payload_bytes < HLY_TCP_CHUNK ? payload_bytes : HLY_TCP_CHUNK;
        parts[2].iov_len = now; /* the padding goes with the last of it */
        parts[3].iov_len = now < payload_bytes ? 0 : pad;
        ssize_t n =
            parts_write(link, parts, 4, sizeof(frame) + header_bytes + now + parts[3].iov_len);
        parts[2].iov_len = payload_bytes;
        parts[3].iov_len = pad;
        if (n < 0 && n != -EAGAIN) {
            link_break(t, link, (int)-n);
            return HALAY_EPEER;
        }
        if (n < 0 && t->seal != SEAL_PAYLOAD) { /* else it waits: it was read once for its digest */
            link->refused = 1;
            return HALAY_EAGAIN;
        }
        sent = n < 0 ? 0 : (size_t)n;
    }
    link->out_seal.count++;
    if (sent == all)
        return HALAY_OK;
    return queue(t, link, parts, sent, tag ? 2 : -1, cookie) ? HALAY_INPROGRESS : HALAY_OK;
}

int hly_tcp_say(halay_transport_t *t, hly_tcp_link_t *link, int kind)
{
    hly_tcp_frame_t frame = hly_tcp_frame(&link->out_seal, kind, 0, 0, 0);
    struct iovec parts[4] = {{&frame, sizeof(frame)}};
    if (link->broken)
        return 0; /* nobody hears it */
    if (!room(t, link, sizeof(frame)))
        return -EAGAIN;
    link->out_seal.count++;
    queue(t, link, parts, 0, -1, 0);
    hly_tcp_flush(t, link);
    return 0;
}

int hly_tcp_ask(halay_transport_t *t, hly_tcp_link_t *link, int on)
{
    struct epoll_event event = {.events = EPOLLIN | (on ? EPOLLOUT : 0), .data.ptr = link};
    if (link->asked == on)
        return 0;
    if (epoll_ctl(t->meet.epoll_fd, EPOLL_CTL_MOD, link->fd, &event))
        return -errno;
    link->asked = on;
    t->asked += on ? 1 : -1;
    return 0;
}
