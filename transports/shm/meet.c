/* SPDX-License-Identifier: Apache-2.0 */
/*
 * meet.c - the messages over the socket. A connection carries one hello and one answer, or a region
 * alone, and is then closed by both sides: the ring, the wake-up descriptors and the pidfds are all
 * that is needed, and sockets say nothing reliable about death (a forked child may hold them open).
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "shm.h"

void hly_shm_hello_fill(const halay_transport_t *t, int kind, halay_peer_id_t to,
                        hly_shm_hello_t *hello)
{
    memset(hello, 0, sizeof(*hello));
    hello->magic = HLY_SHM_MAGIC;
    hello->kind = (uint32_t)kind;
    hello->pid = (uint32_t)t->pid;
    hello->from = t->self;
    hello->to = to;
    memcpy(hello->secret, t->secret, sizeof(hello->secret));
}

int hly_shm_hello_right(const halay_transport_t *t, int kind, const hly_shm_hello_t *hello)
{
    int secret = hly_meet_same_secret(hello->secret, t->secret);
    return secret && hello->magic == HLY_SHM_MAGIC && hello->kind == (uint32_t)kind &&
           hly_meet_same_id(hello->to, t->self);
}

union control {
    struct cmsghdr align;
    char room[CMSG_SPACE(HLY_SHM_FDS * sizeof(int))];
};

int hly_shm_hello_send(int socket, const hly_shm_hello_t *hello, const int fds[], int n)
{
    union control control;
    struct iovec part = {(void *)(uintptr_t)hello, sizeof(*hello)};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    assert(n > 0 && n <= HLY_SHM_FDS);
    memset(&control, 0, sizeof(control));
    message.msg_control = &control;
    message.msg_controllen = CMSG_SPACE((size_t)n * sizeof(int));
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN((size_t)n * sizeof(int));
    memcpy(CMSG_DATA(head), fds, (size_t)n * sizeof(int));
    return sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 ? -errno : 0;
}

int hly_shm_hello_recv(int socket, hly_shm_hello_t *hello, int fds[], int n)
{
    union control control;
    struct iovec part = {hello, sizeof(*hello)};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    message.msg_control = &control;
    message.msg_controllen = sizeof(control);
    ssize_t bytes = recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (bytes < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : -1;
    /* No bytes may bring descriptors too; and the room is rounded up, so a stranger's message may
     * have more than this end sends. What does not fit the kernel has closed. */
    int got = 0, all[sizeof(control.room) / sizeof(int)];
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    if (head && head->cmsg_level == SOL_SOCKET && head->cmsg_type == SCM_RIGHTS &&
        head->cmsg_len >= CMSG_LEN(0) && head->cmsg_len <= sizeof(control.room)) {
        got = (int)((head->cmsg_len - CMSG_LEN(0)) / sizeof(int));
        memcpy(all, CMSG_DATA(head), (size_t)got * sizeof(int));
    }
    if (bytes == (ssize_t)sizeof(*hello) && got == n &&
        !(message.msg_flags & (MSG_CTRUNC | MSG_TRUNC))) {
        memcpy(fds, all, (size_t)n * sizeof(int));
        return 1;
    }
    for (int i = 0; i < got; i++)
        close(all[i]);
    return bytes ? -2 : -1;
}

int hly_shm_same_user(int socket, pid_t *pid, uid_t *uid)
{
    struct ucred who;
    socklen_t bytes = sizeof(who);
    *pid = 0;
    *uid = (uid_t)-1;
    if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &who, &bytes))
        return 0;
    *pid = who.pid;
    *uid = who.uid;
    return who.uid == geteuid();
}

/* shutdown, because a forked child may hold the socket, and the other end shall see the end. */
static void hang_up(int fd)
{
    shutdown(fd, SHUT_RDWR);
    close(fd);
}

static void turn_away(halay_transport_t *t, int fd, pid_t pid, const char *why)
{
    if (!(t->warned & WARNED_STRANGER))
        hly_shm_log(t, 1,
                    "shm: process %d connected to this rank's socket and was dropped: %s; this is "
                    "logged once",
                    (int)pid, why);
    t->warned |= WARNED_STRANGER;
    hly_meet_gate_charge(&t->gate, t->attended_ns);
    hang_up(fd);
}

/* All that takes memory of an incoming ring. On success the peer has the first two descriptors. */
static int ring_take(halay_transport_t *t, pid_t pid, const hly_shm_hello_t *hello,
                     int fds[HLY_SHM_FDS], const char **why, hly_shm_in_t **in)
{
    hly_shm_ring_t ring;
    hly_shm_peer_t *peer;
    int rc = hly_shm_ring_map(fds[HLY_SHM_FD_RING], hello->ring_bytes, &ring, why);
    if (rc)
        return rc;
    *why = "memory, or too many rings";
    rc = hly_shm_peer_hold(t, hello->from, &peer);
    if (rc)
        goto unmap;
    rc = hly_shm_in_make(t, &ring, peer, in);
    if (rc)
        goto drop;
    hly_shm_peer_meet(t, peer, fds[HLY_SHM_FD_PROCESS], fds[HLY_SHM_FD_WAKE],
                      pid > 0 ? pid : (pid_t)hello->pid);
    fds[HLY_SHM_FD_PROCESS] = fds[HLY_SHM_FD_WAKE] = -1;
    return 0;
drop:
    hly_shm_peer_drop(t, peer);
unmap:
    hly_shm_ring_unmap(&ring);
    return rc;
}

static void in_forget(halay_transport_t *t, hly_shm_in_t *in)
{
    hly_shm_peer_drop(t, in->peer);
    hly_shm_ring_unmap(&in->ring);
    free(in);
}

static void fds_close(int fds[HLY_SHM_FDS])
{
    for (int i = 0; i < HLY_SHM_FDS; i++)
        if (fds[i] >= 0)
            close(fds[i]);
}

/* No memory or descriptors: the peer will call this rank lost, so this rank says why. */
static void refuse(halay_transport_t *t, halay_peer_id_t id, pid_t pid, int error)
{
    hly_shm_peer_t *peer;
    if ((error != -ENOMEM && error != -EMFILE && error != -ENFILE) ||
        hly_shm_peer_hold(t, id, &peer))
        return;
    hly_shm_peer_fail(t, peer, HALAY_ENOMEM,
                      "the connection of process %d could not be taken: %s; raise the limits on "
                      "memory and descriptors (ulimit -a)",
                      (int)pid, strerror(-error));
    hly_shm_peer_drop(t, peer);
}

/* An incoming ring. 0: there is no memory for it now, and nothing has been taken; but the last try
 * is final. Else takes socket and fds over, whatever comes of it. */
static int welcome(halay_transport_t *t, int fd, pid_t pid, const hly_shm_hello_t *hello,
                   int fds[HLY_SHM_FDS], int last)
{
    hly_shm_hello_t answer;
    hly_shm_in_t *in = NULL;
    const char *why = "memory";
    int own[2] = {[HLY_SHM_FD_PROCESS] = t->process_fd, [HLY_SHM_FD_WAKE] = t->wake_fd};
    int rc = ring_take(t, pid, hello, fds, &why, &in);
    if (rc == -ENOMEM && !last)
        return 0;
    if (rc)
        goto no;
    why = "its hello came after it had failed";
    if (in->peer->state == PEER_FAILED) /* else what it has sent is read before that is told */
        goto forget;
    /* The answer goes before the ring is in the table: armed is set by those in the table only, so
     * a producer that finds armed set finds the answer in its socket (way.c, hly_shm_way_wake). A
     * sender that has hung up has said all it had to say, and that lies in the ring. */
    hly_shm_hello_fill(t, HLY_SHM_ANSWER, hello->from, &answer);
    why = "answering it";
    rc = hly_shm_hello_send(fd, &answer, own, 2);
    if (rc && rc != -EPIPE && rc != -ECONNRESET)
        goto forget;
    hly_shm_in_add(t, in);
    fds_close(fds);
    close(fd);
    return 1;
forget:
    in_forget(t, in);
no:
    fds_close(fds);
    if (!(t->warned & WARNED_RING))
        hly_shm_log(
            t, 0,
            "shm: the connection of process %d could not be taken: %s: %s; it will report "
            "this rank as unreachable; check the limits on memory and descriptors (ulimit -a)",
            (int)pid, why, rc ? strerror(-rc) : "dropped");
    t->warned |= WARNED_RING;
    refuse(t, hello->from, pid, rc);
    hang_up(fd);
    return 1;
}

/* GREET_LATER: the hello has not come yet. GREET_LACKS: there is no memory for what it brings,
 * which waits in hello and fds. */
enum { GREET_LATER, GREET_LACKS, GREET_OVER };

static int greet(halay_transport_t *t, int fd, pid_t pid, hly_shm_hello_t *hello,
                 int fds[HLY_SHM_FDS])
{
    int rc = hly_shm_hello_recv(fd, hello, fds, HLY_SHM_FDS);
    if (rc == 0)
        return GREET_LATER;
    if (rc == -1) {
        hly_meet_gate_charge(&t->gate, t->attended_ns);
        hang_up(fd);
    } else if (rc == -2) {
        turn_away(t, fd, pid,
                  "it does not speak this protocol (or the limit on descriptors was met)");
    } else if (hly_shm_hello_right(t, HLY_SHM_REGION, hello)) {
        close(fds[HLY_SHM_FD_PROCESS]);
        close(fds[HLY_SHM_FD_WAKE]);
        hly_shm_region_take(t, hello, fds[HLY_SHM_FD_RING]);
        hang_up(fd);
    } else if (!hly_shm_hello_right(t, HLY_SHM_HELLO, hello)) {
        fds_close(fds);
        turn_away(t, fd, pid, "it is of another job, or of another version of Halay");
    } else if (!welcome(t, fd, pid, hello, fds, 0)) {
        return GREET_LACKS;
    }
    return GREET_OVER;
}

void hly_shm_guests_close(halay_transport_t *t)
{
    for (int i = 0; i < HLY_SHM_GUESTS; i++) {
        if (t->guests[i].fd < 0)
            continue;
        if (t->guests[i].lacks)
            fds_close(t->guests[i].fds);
        close(t->guests[i].fd);
    }
}

void hly_shm_guest_drop(halay_transport_t *t, hly_shm_guest_t *guest)
{
    if (guest->lacks) {
        welcome(t, guest->fd, guest->pid, &guest->hello, guest->fds, 1);
    } else {
        hly_shm_watch_drop(t, guest->fd);
        turn_away(t, guest->fd, guest->pid, "it said nothing");
    }
    guest->fd = -1;
    t->nguests--;
}

void hly_shm_guest_look(halay_transport_t *t, hly_shm_guest_t *guest)
{
    int fd = guest->fd, over;
    if (guest->lacks) { /* it is not watched: it has said all */
        over = welcome(t, fd, guest->pid, &guest->hello, guest->fds, 0);
    } else {
        /* Not watched any more before anything may close it: epoll would keep it for a forked
         * child. */
        hly_shm_watch_drop(t, fd);
        int came = greet(t, fd, guest->pid, &guest->hello, guest->fds);
        guest->lacks = came == GREET_LACKS;
        guest->since_ns = guest->lacks ? t->attended_ns : guest->since_ns;
        over = came == GREET_OVER;
        if (came == GREET_LATER && hly_shm_watch_add(t, fd, &guest->watch)) {
            hang_up(fd);
            over = 1;
        }
    }
    if (!over)
        return;
    guest->fd = -1;
    t->nguests--;
}

/* Waits in a slot, for its hello or for memory; where all are taken, the oldest has to go. */
static void seat(halay_transport_t *t, int fd, pid_t pid, const hly_shm_hello_t *hello,
                 const int fds[HLY_SHM_FDS], int lacks)
{
    hly_shm_guest_t *slot = NULL;
    for (int i = 0; i < HLY_SHM_GUESTS; i++) {
        hly_shm_guest_t *guest = &t->guests[i];
        if (guest->fd < 0) {
            slot = guest;
            break;
        }
        if (!slot || guest->since_ns < slot->since_ns)
            slot = guest;
    }
    if (slot->fd >= 0)
        hly_shm_guest_drop(t, slot);
    if (!lacks && hly_shm_watch_add(t, fd, &slot->watch)) {
        hang_up(fd);
        return;
    }
    slot->fd = fd;
    slot->pid = pid;
    slot->lacks = lacks;
    if (lacks) {
        slot->hello = *hello;
        memcpy(slot->fds, fds, sizeof(slot->fds));
    }
    slot->since_ns = t->attended_ns; /* not later than any now that it is compared with */
    t->nguests++;
}

void hly_shm_guests_accept(halay_transport_t *t)
{
    for (int i = 0; i < HLY_SHM_ROUNDS; i++) {
        hly_shm_hello_t hello;
        pid_t pid;
        uid_t uid;
        int fds[HLY_SHM_FDS], came;
        int fd = accept4(t->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0 && (errno == EINTR || errno == ECONNABORTED))
            continue;
        if (fd < 0) {
            if (errno == EAGAIN)
                return;
            if (errno == EBADF || errno == ENOTSOCK) { /* the program has closed it */
                t->error = HALAY_ESTATE;
                return;
            }
            if (!(t->warned & WARNED_DESCRIPTORS)) {
                hly_shm_log(
                    t, 0,
                    "shm: a peer's connection could not be accepted: %s; raise the limit on "
                    "open files (ulimit -n)",
                    strerror(errno));
                t->error = HALAY_ENOMEM;
            }
            t->warned |= WARNED_DESCRIPTORS;
            t->full = 1;
            return;
        }
        if (!hly_shm_same_user(fd, &pid, &uid))
            turn_away(t, fd, pid, "it belongs to another user");
        else if ((came = greet(t, fd, pid, &hello, fds)) != GREET_OVER)
            seat(t, fd, pid, &hello, fds, came == GREET_LACKS);
    }
}
