/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peer.c - peers: one record a process, shared by all ways to it and rings from it. It lives as
 * long as one of those does, and until its failure has been told.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../../common/proc.h"
#include "shm.h"

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

int hly_shm_pidfd(pid_t pid)
{
    return (int)syscall(SYS_pidfd_open, pid, 0); /* close-on-exec by itself */
}

int hly_shm_peer_hold(halay_transport_t *t, halay_peer_id_t id, hly_shm_peer_t **out)
{
    for (hly_shm_peer_t *peer = t->peers; peer; peer = peer->next) {
        if (!hly_meet_same_id(peer->id, id) || (peer->state == PEER_FAILED && peer->refs == 0))
            continue; /* told and held by nobody: it goes at the next poll, a new one starts anew */
        peer->refs++;
        *out = peer;
        return 0;
    }
    hly_shm_peer_t *peer = calloc(1, sizeof(*peer));
    if (!peer)
        return -ENOMEM;
    peer->watch = WATCH_PEER;
    peer->process_fd = peer->wake_fd = -1;
    peer->refs = 1;
    peer->id = id;
    peer->next = t->peers;
    t->peers = peer;
    *out = peer;
    return 0;
}

static void process_fd_close(halay_transport_t *t, hly_shm_peer_t *peer)
{
    if (peer->process_fd < 0)
        return;
    hly_shm_watch_drop(t, peer->process_fd);
    close(peer->process_fd);
    peer->process_fd = -1;
}

void hly_shm_peer_free(halay_transport_t *t, hly_shm_peer_t *peer)
{
    hly_shm_peer_t **at = &t->peers;
    while (*at != peer)
        at = &(*at)->next;
    *at = peer->next;
    process_fd_close(t, peer);
    if (peer->wake_fd >= 0)
        close(peer->wake_fd);
    free(peer);
}

void hly_shm_peer_drop(halay_transport_t *t, hly_shm_peer_t *peer)
{
    assert(peer->refs > 0);
    if (--peer->refs > 0)
        return;
    if (peer->state == PEER_WELL)
        hly_shm_peer_free(t, peer);
    else
        t->attention = 1;
}

void hly_shm_peer_fail(halay_transport_t *t, hly_shm_peer_t *peer, int status, const char *format,
                       ...)
{
    va_list list;
    if (peer->state != PEER_WELL)
        return;
    peer->state = PEER_FAILING;
    peer->status = status;
    va_start(list, format);
    vsnprintf(peer->text, sizeof(peer->text), format, list);
    va_end(list);
    t->failing++;
    t->attention = 1;
    process_fd_close(t, peer); /* it may stay readable for ever */
}

void hly_shm_peer_ended(halay_transport_t *t, hly_shm_peer_t *peer)
{
    hly_shm_peer_fail(t, peer, HALAY_EPEER, "its process %d ended", (int)peer->pid);
}

static void watch_process(halay_transport_t *t, hly_shm_peer_t *peer, int process_fd)
{
    process_fd_close(t, peer);
    peer->process_fd = process_fd;
    int rc = hly_shm_watch_add(t, process_fd, &peer->watch);
    if (rc)
        hly_shm_peer_fail(t, peer, HALAY_ETRANSPORT, "process %d cannot be watched: epoll: %s",
                          (int)peer->pid, strerror(-rc));
}

void hly_shm_peer_meet(halay_transport_t *t, hly_shm_peer_t *peer, int process_fd, int wake_fd,
                       pid_t pid)
{
    if (peer->state != PEER_WELL || peer->wake_fd >= 0) {
        close(wake_fd);
    } else {
        peer->wake_fd = wake_fd;
    }
    if (peer->state != PEER_WELL || peer->sure) {
        close(process_fd);
        return;
    }
    peer->pid = pid;
    peer->sure = 1;
    watch_process(t, peer, process_fd);
}

/*
 * The process that opened the listening socket: most likely the peer. (Its pid may belong to
 * someone else by now, so this is replaced by what the peer itself sends.)
 */
void hly_shm_peer_guess(halay_transport_t *t, hly_shm_peer_t *peer, pid_t pid)
{
    if (peer->sure || peer->process_fd >= 0 || pid <= 0)
        return;
    peer->pid = pid;
    int fd = hly_shm_pidfd(pid);
    if (fd >= 0)
        watch_process(t, peer, fd);
    else if (errno == ESRCH)
        hly_shm_peer_ended(t, peer);
}

/* Its pid is not another process's by now, if who has it was born at the same time. If it was not,
 * nobody is watched: it may also be that clocks differ (time namespaces). */
void hly_shm_peer_known(halay_transport_t *t, hly_shm_peer_t *peer, const void *process)
{
    halay_process_t known;
    struct hly_proc_stat seen;
    memcpy(&known, process, sizeof(known));
    if (peer->sure || peer->process_fd >= 0 || peer->state != PEER_WELL)
        return;
    hly_shm_peer_guess(t, peer, (pid_t)known.pid);
    if (peer->process_fd >= 0 && (!hly_proc_stat(peer->pid, &seen) || seen.born != known.born))
        process_fd_close(t, peer);
}

void hly_shm_peer_wake(const hly_shm_peer_t *peer)
{
    uint64_t one = 1;
    if (peer->wake_fd < 0)
        return;
    ssize_t rc = write(peer->wake_fd, &one, sizeof(one));
    (void)rc; /* full: then it is readable already */
}

int hly_shm_in_make(halay_transport_t *t, const hly_shm_ring_t *ring, hly_shm_peer_t *peer,
                    hly_shm_in_t **out)
{
    if (t->nins == HLY_SHM_RINGS)
        return -ENOSPC;
    if (t->nins == t->room) {
        int room = t->room ? t->room * 2 : 16;
        hly_shm_in_t **ins = realloc(t->ins, (size_t)room * sizeof(hly_shm_in_t *));
        if (!ins)
            return -ENOMEM;
        t->ins = ins;
        t->room = room;
    }
    hly_shm_in_t *in = calloc(1, sizeof(*in));
    if (!in)
        return -ENOMEM;
    in->ring = *ring;
    in->peer = peer;
    *out = in;
    return 0;
}

void hly_shm_in_add(halay_transport_t *t, hly_shm_in_t *in)
{
    t->ins[t->nins++] = in;
    t->attention = 1;
}

void hly_shm_in_remove(halay_transport_t *t, int i)
{
    hly_shm_in_t *in = t->ins[i];
    if (in->ring.shared) {
        atomic_store(&in->ring.shared->left, HLY_SHM_LEFT);
        if (in->broken)
            hly_shm_peer_wake(in->peer);
    }
    hly_shm_maps_free(in);
    hly_shm_ring_unmap(&in->ring);
    hly_shm_peer_drop(t, in->peer);
    free(in);
    t->ins[i] = t->ins[--t->nins];
}
