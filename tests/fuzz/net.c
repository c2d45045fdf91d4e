/* SPDX-License-Identifier: Apache-2.0 */
/* net.c - system calls on FUZZ_FD (fuzz.h), and what /proc says: nothing. All others are what they
 * are. By --wrap. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <halay/boot.h>

#include "fuzz.h"

#define WRAPPED(type_, name_, ...)                                                                 \
    type_ __real_##name_(__VA_ARGS__);                                                             \
    type_ __wrap_##name_(__VA_ARGS__);                                                             \
    type_ __wrap_##name_(__VA_ARGS__)

static struct fuzz *input;
static const void *file_data;
static size_t file_bytes;
int fuzz_net_full;
long fuzz_net_closed;

void fuzz_net_feed(struct fuzz *f)
{
    input = f;
}

void fuzz_file_feed(const void *data, size_t bytes)
{
    file_data = data;
    file_bytes = bytes;
}

int fuzz_free_fd(void)
{
    const int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    FUZZ_WANT(fd >= 0);
    close(fd);
    return fd;
}

static int refuses(int error)
{
    errno = error;
    return -1;
}

/* All that goes is looked at. */
static ssize_t go(const void *from, size_t bytes)
{
    static volatile uint8_t looked;
    const uint8_t *at = from;
    uint8_t sum = 0;
    if (fuzz_net_full == 1)
        return refuses(EAGAIN);
    if (fuzz_net_full && bytes > 1)
        bytes /= 2;
    for (size_t i = 0; i < bytes; i++)
        sum ^= at[i];
    looked = sum;
    (void)looked;
    return (ssize_t)bytes;
}

static ssize_t come(void *to, size_t bytes)
{
    if (!input || !input->left)
        return 0;
    const uint8_t code = fuzz_byte(input);
    if (code == 0 || code == 254)
        return refuses(code ? ECONNRESET : EAGAIN);
    size_t n = code == 255 ? bytes : code;
    n = n < bytes ? n : bytes;
    n = n < input->left ? n : input->left;
    if (n)
        memcpy(to, input->at, n);
    input->at += n;
    input->left -= n;
    return (ssize_t)n;
}

WRAPPED(ssize_t, recv, int fd, void *to, size_t bytes, int flags)
{
    return fd == FUZZ_FD ? come(to, bytes) : __real_recv(fd, to, bytes, flags);
}

WRAPPED(ssize_t, read, int fd, void *to, size_t bytes)
{
    return fd == FUZZ_FD ? come(to, bytes) : __real_read(fd, to, bytes);
}

/* No descriptors come along. */
WRAPPED(ssize_t, recvmsg, int fd, struct msghdr *message, int flags)
{
    ssize_t all = 0;
    if (fd != FUZZ_FD)
        return __real_recvmsg(fd, message, flags);
    message->msg_controllen = 0;
    message->msg_flags = 0;
    for (size_t i = 0; i < message->msg_iovlen; i++) {
        const ssize_t n = come(message->msg_iov[i].iov_base, message->msg_iov[i].iov_len);
        if (n < 0 && !all)
            return n;
        all += n > 0 ? n : 0;
        if (n < (ssize_t)message->msg_iov[i].iov_len)
            break;
    }
    return all;
}

WRAPPED(ssize_t, send, int fd, const void *from, size_t bytes, int flags)
{
    return fd == FUZZ_FD ? go(from, bytes) : __real_send(fd, from, bytes, flags);
}

WRAPPED(ssize_t, write, int fd, const void *from, size_t bytes)
{
    return fd == FUZZ_FD ? go(from, bytes) : __real_write(fd, from, bytes);
}

WRAPPED(ssize_t, sendmsg, int fd, const struct msghdr *message, int flags)
{
    ssize_t all = 0;
    if (fd != FUZZ_FD)
        return __real_sendmsg(fd, message, flags);
    for (size_t i = 0; i < message->msg_iovlen; i++) {
        const ssize_t n = go(message->msg_iov[i].iov_base, message->msg_iov[i].iov_len);
        if (n < 0)
            return n;
        all += n;
    }
    return all;
}

WRAPPED(int, close, int fd)
{
    fuzz_net_closed += fd == FUZZ_FD;
    return fd == FUZZ_FD ? 0 : __real_close(fd);
}

WRAPPED(int, shutdown, int fd, int how)
{
    return fd == FUZZ_FD ? 0 : __real_shutdown(fd, how);
}

WRAPPED(int, epoll_ctl, int set, int op, int fd, struct epoll_event *event)
{
    return fd == FUZZ_FD || set == FUZZ_FD ? 0 : __real_epoll_ctl(set, op, fd, event);
}

WRAPPED(int, setsockopt, int fd, int level, int name, const void *value, socklen_t bytes)
{
    return fd == FUZZ_FD ? 0 : __real_setsockopt(fd, level, name, value, bytes);
}

WRAPPED(int, getsockopt, int fd, int level, int name, void *value, socklen_t *bytes)
{
    return fd == FUZZ_FD ? 0 : __real_getsockopt(fd, level, name, value, bytes);
}

WRAPPED(int, getpeername, int fd, struct sockaddr *address, socklen_t *bytes)
{
    return fd == FUZZ_FD ? refuses(ENOTCONN) : __real_getpeername(fd, address, bytes);
}

WRAPPED(int, poll, struct pollfd *fds, nfds_t n, int timeout_ms)
{
    if (n != 1 || fds->fd != FUZZ_FD)
        return __real_poll(fds, n, timeout_ms);
    fds->revents = fds->events;
    return 1;
}

WRAPPED(FILE *, fopen, const char *path, const char *mode)
{
    if (strcmp(path, FUZZ_PATH) != 0)
        return __real_fopen(path, mode);
    return file_bytes ? fmemopen((void *)(uintptr_t)file_data, file_bytes, "r")
                      : __real_fopen("/dev/null", "r");
}

/* Else most of a target's time could go there, and what is found is not of the input. */
WRAPPED(DIR *, opendir, const char *path)
{
    return strcmp(path, "/proc") != 0 ? __real_opendir(path) : NULL;
}

WRAPPED(void, hly_proc_self, halay_process_t *self)
{
    memset(self, 0, sizeof(*self));
}
