/* SPDX-License-Identifier: Apache-2.0 */
/*
 * guests.c - who may talk to the PMIx server in this process.
 *
 * libpmix listens on a TCP port of this machine, where anybody may connect, and believes the user
 * that a client says it is of. So this program has an accept() of its own, which libpmix's calls
 * are bound to: a connection whose other end is another user's socket is closed before libpmix
 * sees it. The kernel tells whose that is: the other end of a connection within a machine is a
 * socket of this machine.
 */
#define _GNU_SOURCE
#include <assert.h>
#include <errno.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "note.h"

enum { GUEST_UNKNOWN = -2, GUEST_NONE = -1, STATE_ESTABLISHED = 1 };

/* A TCP address as the kernel's lists have it. */
static void place(const struct sockaddr_storage *at, __be16 *port, __be32 where[4])
{
    struct sockaddr_in6 six;
    struct sockaddr_in four;
    memcpy(&six, at, sizeof six);
    memcpy(&four, at, sizeof four);
    *port = four.sin_port; /* where that of the other is */
    if (at->ss_family == AF_INET6)
        memcpy(where, &six.sin6_addr, 16);
    else
        memcpy(where, &four.sin_addr, 4);
}

/* What the kernel answers about one socket. */
static long long answer_read(int fd)
{
    union {
        struct nlmsghdr head;
        char room[1024];
    } answer;
    struct inet_diag_msg socket;
    ssize_t n = recv(fd, &answer, sizeof answer, 0);
    if (n < (ssize_t)sizeof answer.head || answer.head.nlmsg_type == NLMSG_ERROR)
        return n > 0 ? GUEST_NONE : GUEST_UNKNOWN;
    if (n < (ssize_t)NLMSG_LENGTH(sizeof socket))
        return GUEST_UNKNOWN;
    memcpy(&socket, NLMSG_DATA(&answer.head), sizeof socket);
    return socket.idiag_state == STATE_ESTABLISHED && socket.idiag_inode != 0
               ? (long long)socket.idiag_uid
               : GUEST_NONE;
}

/* The user whose socket `there` is, which is connected to `here`. */
static long long tcp_user(const struct sockaddr_storage *there, const struct sockaddr_storage *here)
{
    struct {
        struct nlmsghdr head;
        struct inet_diag_req_v2 about;
    } ask = {.head = {.nlmsg_len = sizeof ask,
                      .nlmsg_type = SOCK_DIAG_BY_FAMILY,
                      .nlmsg_flags = NLM_F_REQUEST},
             .about = {.sdiag_family = (__u8)there->ss_family,
                       .sdiag_protocol = IPPROTO_TCP,
                       .id.idiag_cookie = {INET_DIAG_NOCOOKIE, INET_DIAG_NOCOOKIE}}};
    long long user = GUEST_UNKNOWN;
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
    if (fd < 0) /* who cannot be looked at is let in only where nobody ever can */
        return errno == EPROTONOSUPPORT || errno == EAFNOSUPPORT ? GUEST_UNKNOWN : GUEST_NONE;
    place(there, &ask.about.id.idiag_sport, ask.about.id.idiag_src);
    place(here, &ask.about.id.idiag_dport, ask.about.id.idiag_dst);
    if (send(fd, &ask, sizeof ask, 0) == (ssize_t)sizeof ask)
        user = answer_read(fd);
    close(fd);
    return user;
}

static long long user_of(int fd)
{
    struct sockaddr_storage there = {0}, here = {0};
    socklen_t bytes = sizeof there, here_bytes = sizeof here, cred_bytes;
    struct ucred cred;
    if (getpeername(fd, (struct sockaddr *)&there, &bytes) ||
        getsockname(fd, (struct sockaddr *)&here, &here_bytes))
        return GUEST_NONE; /* it has gone */
    cred_bytes = sizeof cred;
    if (here.ss_family == AF_UNIX)
        return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &cred_bytes) ? GUEST_NONE
                                                                           : (long long)cred.uid;
    return tcp_user(&there, &here);
}

int hly_accept(int fd, struct sockaddr *address, socklen_t *length) __asm__("accept")
    __attribute__((visibility("default")));

/* Where the kernel does not tell (no socket diagnosis), all are let in, as without this. */
int hly_accept(int fd, struct sockaddr *address, socklen_t *length)
{
    static _Atomic int told;
    int guest = accept4(fd, address, length, 0);
    long long user = guest >= 0 ? user_of(guest) : GUEST_UNKNOWN;
    if (guest < 0 || user == GUEST_UNKNOWN || user == (long long)geteuid())
        return guest;
    if (user != GUEST_NONE && !atomic_exchange(&told, 1))
        hly_note("a process of user %lld connected to this job's PMIx server, and was turned away; "
                 "this is logged once",
                 user);
    close(guest);
    errno = EAGAIN; /* of all errors the one that libpmix takes for nothing at all */
    return -1;
}
