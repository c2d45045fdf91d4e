/* SPDX-License-Identifier: Apache-2.0 */
/*
 * node.c - the meeting of a node's ranks: what both sides share, and the first rank's side.
 *
 * Invariant: a rank is on the list if and only if the word that says so went into its queue. The
 * kernel queues it as a whole or refuses it, because the member shuts its side before it gives up;
 * so both always know the same, whatever the moment.
 *
 * A guest is anyone connected; it takes a seat with a hello. Strangers cost a slot, no more.
 */
#define _GNU_SOURCE
#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "../proc/proc.h"
#include "absent.h"

enum { STRANGERS_MAX = 16, AT_ONCE = 64, TICK_MS = 100 };
/* After a failure in the meeting, for ranks that are on their way to hear of it. */
#define LINGER_NS 2000000000ull
#define SPARE_NS  1000000000ull
#define SEEN_NS   1000000000ull /* between two looks at who is on the way */

/* ---------------------------------------------------------------- shared */

uint64_t hly_node_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

int hly_node_door(const struct hly_node *node, int k, struct sockaddr_un *name, socklen_t *bytes)
{
    char user[16], first[16];
    const char *parts[4] = {"node", node->nspace, user, first};
    uint8_t hash[16];
    snprintf(user, sizeof user, "%u", (unsigned)geteuid());
    snprintf(first, sizeof first, "%u", node->local[0]);
    hly_boot_name(parts, 4, hash);
    *name = (struct sockaddr_un){.sun_family = AF_UNIX};
    char *to = name->sun_path + 1; /* abstract: the first byte is 0 */
    size_t room = sizeof name->sun_path - 1;
    int n = snprintf(to, room, "halay-node-");
    for (int i = 0; i < 16; i++)
        n += snprintf(to + n, room - (size_t)n, "%02x", hash[i]);
    n += snprintf(to + n, room - (size_t)n, "-%d", k);
    assert((size_t)n < room);
    *bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
    return socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

bool hly_node_same_user(int fd)
{
    struct ucred cred;
    socklen_t bytes = sizeof cred;
    return !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &bytes) && cred.uid == geteuid();
}

void hly_node_word_init(const struct hly_node *node, enum hly_node_type type,
                        struct hly_node_word *word)
{
    memset(word, 0, sizeof *word);
    word->magic = HLY_NODE_MAGIC;
    word->version = HLY_NODE_VERSION;
    word->type = type;
    memcpy(word->library, node->library, sizeof word->library);
    word->rank = node->rank;
    word->pid = (uint32_t)getpid();
    hly_proc_self(&word->process);
    word->address = node->address;
    word->apart = node->apart[0] != 0;
    memcpy(word->host, node->host, sizeof word->host);
    word->kept = node->kept;
    const uint64_t now = hly_node_now_ns();
    word->left_ns = now < node->end_ns ? node->end_ns - now : 0;
}

void hly_node_remind(struct hly_node *node)
{
    const uint64_t now = hly_node_now_ns();
    char text[HLY_NODE_TEXT];
    struct hly_line line = hly_line(text, sizeof text);
    int n = 0;
    if (!hly_notices_give(&node->notices, now))
        return;
    hly_absent_note(node);
    struct hly_absent *all = hly_absent_speaks(node) ? hly_absent_look(node) : NULL;
    if (!all)
        return;
    for (int i = 0; i < node->nlocal; i++)
        n += all[i].missing;
    hly_line_of_node(&line, now - node->begin_ns, n, node->nlocal, node->host);
    hly_absent_text(node, all, &line);
    free(all);
    hly_boot_say(node->log, 1, "%s", text);
}

void hly_node_missing(const struct hly_node *node, char text[HLY_NODE_TEXT])
{
    char missing[HLY_NODE_TEXT - 240];
    struct hly_line line = hly_line(missing, sizeof missing);
    struct hly_absent *all = hly_absent_look(node);
    if (all)
        hly_absent_text(node, all, &line);
    else
        hly_line_put(&line, "(out of memory)");
    free(all);
    snprintf(
        text, HLY_NODE_TEXT,
        "not all of the %d ranks joined within %.1f s: on %s %s. Look at their output; if they "
        "are only slow to start, set HALAY_START_DEADLINE to more seconds",
        node->nranks, (double)(node->end_ns - node->begin_ns) / 1e9, node->host, missing);
}

bool hly_node_lacks(const struct hly_node *node)
{
    for (int i = 0; node->role == HLY_ROLE_FIRST && i < node->nlocal; i++)
        if (node->seats[i].state == HLY_SEAT_EMPTY)
            return true;
    return node->role == HLY_ROLE_ALONE && !node->told;
}

bool hly_node_may_come(const struct hly_node *node)
{
    struct hly_absent *all = hly_absent_look(node);
    const bool may = all && hly_absent_may_come(node, all);
    free(all);
    return may;
}

bool hly_node_send(int fd, const struct hly_node_word *word, int pass_fd)
{
    union {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {.bytes = {0}};
    struct iovec iov = {(void *)(uintptr_t)word, sizeof *word};
    struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};
    ssize_t n;
    if (pass_fd >= 0) {
        message.msg_control = &control;
        message.msg_controllen = sizeof control;
        control.head.cmsg_level = SOL_SOCKET;
        control.head.cmsg_type = SCM_RIGHTS;
        control.head.cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(&control.head), &pass_fd, sizeof pass_fd);
    }
    do
        n = sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    assert(n < 0 || n == (ssize_t)sizeof *word);
    return n > 0;
}

void hly_node_init(struct hly_node *node)
{
    node->role = HLY_ROLE_NONE;
    node->listen_fd = node->watch_fd = node->door_fd = node->fd = node->table_fd = -1;
}

int hly_node_meet(struct hly_node *node)
{
    assert(node->nlocal >= 1 && node->role == HLY_ROLE_NONE && node->watch_fd == -1);
    node->notices = (struct hly_notices){node->begin_ns, HLY_FIRST_NOTICE_NS, 0};
    if (node->local[0] == node->rank)
        return hly_node_first_meet(node);
    return hly_node_member_meet(node);
}

int hly_node_step(struct hly_node *node)
{
    return node->role == HLY_ROLE_FIRST ? hly_node_first_step(node) : hly_node_member_step(node);
}

void hly_node_leave(struct hly_node *node)
{
    int fds[] = {node->door_fd, node->watch_fd, node->fd, node->table_fd};
    for (size_t i = 0; i < sizeof fds / sizeof fds[0]; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    for (int i = 0; i < node->nguests; i++)
        if (node->guests[i].fd >= 0)
            close(node->guests[i].fd);
    hly_absent_finish(node);
    free(node->guests);
    free(node->seats);
    node->door_fd = node->watch_fd = node->fd = node->table_fd = -1;
    node->guests = NULL;
    node->seats = NULL;
    node->nguests = 0;
}

/* ---------------------------------------------------------------- the first rank */

static void drop(struct hly_node_guest *g)
{
    close(g->fd); /* which takes it out of the epoll set */
    g->fd = -1;
}

void hly_node_fail(struct hly_node *node, const char *text)
{
    struct hly_node_word word;
    hly_node_word_init(node, HLY_NODE_FAILED, &word);
    snprintf(word.text, sizeof word.text, "%s", text);
    snprintf(node->failure, sizeof node->failure, "%s", text);
    for (int i = 0; i < node->nguests; i++)
        if (node->guests[i].fd >= 0 && node->guests[i].seat >= 0)
            hly_node_send(node->guests[i].fd, &word, -1);
}

static void __attribute__((format(printf, 2, 3)))
fail(struct hly_node *node, const char *format, ...)
{
    char text[HLY_NODE_TEXT];
    va_list args;
    if (node->failure[0])
        return;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    hly_boot_say(node->log, 0, "%s", text);
    hly_node_fail(node, text);
}

void hly_node_share(struct hly_node *node, int table_fd)
{
    struct hly_node_word word;
    hly_node_word_init(node, HLY_NODE_TABLE, &word);
    for (int i = 0; i < node->nguests; i++) {
        const struct hly_node_guest *g = &node->guests[i];
        if (g->fd >= 0 && g->seat >= 0 && node->seats[g->seat].state == HLY_SEAT_LISTED)
            hly_node_send(g->fd, &word, table_fd); /* who is dead by now needs none */
    }
}

/* So long before a deadline others are told, so that they hear it before theirs is over. */
static uint64_t spare(uint64_t left_ns)
{
    return left_ns / 40 < SPARE_NS ? left_ns / 40 : SPARE_NS;
}

/* -1: no rank of this node, or the first. */
static int seat_of(const struct hly_node *node, uint32_t rank)
{
    for (int i = 1; i < node->nlocal; i++)
        if (node->local[i] == rank)
            return i;
    return -1;
}

static void take_seat(struct hly_node *node, struct hly_node_guest *g,
                      const struct hly_node_word *hello)
{
    struct hly_node_seat *seat = &node->seats[g->seat];
    struct hly_node_word word;
    if (node->failure[0]) {
        seat->state = HLY_SEAT_ALONE;
        hly_node_word_init(node, HLY_NODE_FAILED, &word);
        memcpy(word.text, node->failure, sizeof word.text);
        hly_node_send(g->fd, &word, -1);
        return;
    }
    if (hello->type == HLY_NODE_ALONE || node->closed || node->apart[0] ||
        !hly_address_same_ip(&hello->address, &node->address)) {
        hly_node_word_init(node, HLY_NODE_LATE, &word);
        hly_node_send(g->fd, &word, -1);
        seat->state = HLY_SEAT_ALONE;
        drop(g);
        return;
    }
    hly_node_word_init(node, HLY_NODE_LISTED, &word);
    seat->port = hello->address.port;
    seat->process = hello->process;
    seat->kept = hello->kept;
    seat->state = hly_node_send(g->fd, &word, -1) ? HLY_SEAT_LISTED : HLY_SEAT_ALONE;
}

static void hear(struct hly_node *node, struct hly_node_guest *g, struct hly_node_word *hello,
                 size_t bytes)
{
    const size_t fixed = offsetof(struct hly_node_word, rank);
    int seat;
    if (bytes < fixed || hello->magic != HLY_NODE_MAGIC) {
        drop(g);
        return;
    }
    hello->library[sizeof hello->library - 1] = '\0';
    if (hello->version != HLY_NODE_VERSION || bytes != sizeof *hello) {
        fail(node,
             "a rank of this node (%s) runs Halay %s, but rank %u (pid %d) runs Halay %s: run the "
             "same version on all ranks",
             node->host, hello->library, node->rank, (int)getpid(), node->library);
        drop(g);
        return;
    }
    seat = seat_of(node, hello->rank);
    if (seat < 0 || node->seats[seat].state != HLY_SEAT_EMPTY ||
        (hello->type != HLY_NODE_HELLO && hello->type != HLY_NODE_ALONE)) {
        drop(g);
        return;
    }
    const uint64_t left_ns = hello->left_ns < UINT64_MAX / 2 ? hello->left_ns : UINT64_MAX / 2;
    const uint64_t told_ns = hly_node_now_ns() + left_ns - spare(left_ns);
    if (told_ns < node->decide_ns)
        node->decide_ns = told_ns;
    g->seat = seat;
    node->nheard++;
    if (strcmp(hello->library, node->library) != 0)
        fail(node,
             "rank %u (pid %u on %s) runs Halay %s, but rank %u (pid %d) of the same node runs "
             "Halay %s: run the same version on all ranks",
             hello->rank, hello->pid, node->host, hello->library, node->rank, (int)getpid(),
             node->library);
    take_seat(node, g, hello);
}

static void guest_event(struct hly_node *node, struct hly_node_guest *g)
{
    struct hly_node_word word;
    memset(&word, 0, sizeof word);
    ssize_t n = recv(g->fd, &word, sizeof word, MSG_TRUNC); /* descriptors in it are dropped */
    if (n < 0 && errno == ECONNRESET) /* it left without reading: what it said comes after that */
        n = recv(g->fd, &word, sizeof word, MSG_TRUNC);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n > 0 && g->seat < 0) {
        hear(node, g, &word, (size_t)n);
        return;
    }
    int seat = g->seat;
    drop(g);
    if (seat >= 0 && node->seats[seat].state == HLY_SEAT_LISTED)
        fail(node,
             "rank %u of this node (%s) has left while the ranks were joining the job: it has "
             "died, or its own deadline was over; see what it says",
             node->local[seat], node->host);
}

/* A free slot; the oldest stranger makes room. There is one: members have a seat each. */
static struct hly_node_guest *slot(struct hly_node *node)
{
    struct hly_node_guest *oldest = NULL;
    for (int i = 0; i < node->nguests; i++) {
        struct hly_node_guest *g = &node->guests[i];
        if (g->fd < 0)
            return g;
        if (g->seat < 0 && (!oldest || g->since_ns < oldest->since_ns))
            oldest = g;
    }
    assert(oldest);
    drop(oldest);
    return oldest;
}

static void let_in(struct hly_node *node)
{
    struct hly_node_word greeting;
    hly_node_word_init(node, HLY_NODE_GREETING, &greeting);
    greeting.address.port = 0;
    for (int i = 0; i < AT_ONCE; i++) {
        int fd = accept4(node->door_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0) {
            if (errno == EMFILE || errno == ENFILE)
                fail(node,
                     "rank %u has no file descriptors left to meet the %d ranks of its node (%s), "
                     "one for each: raise the limit (ulimit -n)",
                     node->rank, node->nlocal, node->host);
            return;
        }
        if (!hly_node_same_user(fd)) {
            close(fd);
            continue;
        }
        struct hly_node_guest *g = slot(node);
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = g};
        *g = (struct hly_node_guest){fd, -1, hly_node_now_ns()};
        hly_node_send(fd, &greeting, -1); /* who has gone already may have left a word */
        if (epoll_ctl(node->watch_fd, EPOLL_CTL_ADD, fd, &event))
            drop(g);
    }
}

static void serve(struct hly_node *node, int timeout_ms)
{
    struct epoll_event events[AT_ONCE];
    bool door = false;
    int n = epoll_wait(node->watch_fd, events, AT_ONCE, timeout_ms);
    for (int i = 0; i < n; i++) {
        struct hly_node_guest *g = events[i].data.ptr;
        if (!g)
            door = true;
        else if (g->fd >= 0)
            guest_event(node, g);
    }
    if (door) /* last: takes over slots that events may have freed */
        let_in(node);
}

int hly_node_first_step(struct hly_node *node)
{
    if (node->watch_fd >= 0)
        serve(node, 0);
    return node->failure[0] ? HALAY_EBOOT : HALAY_OK;
}

static int open_door(struct hly_node *node)
{
    struct epoll_event event = {.events = EPOLLIN};
    struct sockaddr_un name;
    socklen_t bytes;
    char who[HLY_BOOT_WHO] = "";
    int error = 0;
    for (int k = 0; k < HLY_NODE_DOORS && node->door_fd < 0; k++) {
        int fd = hly_node_door(node, k, &name, &bytes);
        if (fd >= 0 && !bind(fd, (struct sockaddr *)&name, bytes) && !listen(fd, SOMAXCONN)) {
            node->door_fd = fd;
            break;
        }
        error = errno;
        if (error == EADDRINUSE)
            hly_boot_holder(&name, bytes, who);
        if (fd >= 0)
            close(fd);
    }
    node->watch_fd = epoll_create1(EPOLL_CLOEXEC);
    if (node->door_fd < 0) {
        errno = error;
    } else if (node->watch_fd >= 0) {
        if (!epoll_ctl(node->watch_fd, EPOLL_CTL_ADD, node->door_fd, &event))
            return HALAY_OK;
    }
    hly_boot_say(node->log, 0,
                 "rank %u cannot meet the other ranks of its node (%s) on an abstract Unix "
                 "socket: %s%s%s%s",
                 node->rank, node->host, strerror(errno), hly_boot_remedy(errno),
                 who[0] ? ", by " : "", who);
    return errno == EMFILE || errno == ENFILE || errno == ENOMEM ? HALAY_ENOMEM : HALAY_EBOOT;
}

/* When the list is to be closed, or there is no job: half of the time, or for those who are seen to
 * be on their way all but what it takes to say so. */
static bool wait_over(struct hly_node *node, uint64_t now)
{
    char text[HLY_NODE_TEXT];
    if (node->failure[0])
        return now >= node->linger_ns || now >= node->half_ns;
    if (now < (node->half_ns < node->decide_ns ? node->half_ns : node->decide_ns) ||
        now < node->seen_ns)
        return false;
    node->seen_ns = now + SEEN_NS < node->decide_ns ? now + SEEN_NS : node->decide_ns;
    if (!hly_node_may_come(node))
        return true;
    if (now < node->decide_ns)
        return false;
    hly_node_missing(node, text);
    fail(node, "%s", text);
    return true;
}

static void gather(struct hly_node *node)
{
    node->decide_ns = node->end_ns - spare(node->end_ns - node->begin_ns);
    while (node->nheard < node->nlocal - 1) {
        const uint64_t now = hly_node_now_ns();
        if (node->failure[0] && !node->linger_ns)
            node->linger_ns = now + LINGER_NS;
        if (wait_over(node, now))
            break;
        if (!node->failure[0])
            hly_node_remind(node);
        serve(node, now < node->half_ns && node->half_ns - now < TICK_MS * 1000000ull
                        ? (int)((node->half_ns - now) / 1000000) + 1
                        : TICK_MS);
    }
    node->closed = true;
}

int hly_node_first_meet(struct hly_node *node)
{
    int rc = HALAY_OK;
    node->role = HLY_ROLE_FIRST;
    node->seats = calloc((size_t)node->nlocal, sizeof node->seats[0]);
    node->guests = calloc((size_t)node->nlocal + STRANGERS_MAX, sizeof node->guests[0]);
    if (!node->seats || !node->guests)
        return HALAY_ENOMEM;
    node->nguests = node->nlocal + STRANGERS_MAX;
    for (int i = 0; i < node->nguests; i++)
        node->guests[i].fd = -1;
    if (node->nlocal > 1)
        rc = open_door(node);
    if (!rc)
        rc = hly_listen_choose(node->log, hly_listen_interface(), &node->address);
    if (!rc)
        rc = hly_listen_open(node->log, &node->address, &node->listen_fd);
    if (rc)
        return rc;
    node->seats[0] = (struct hly_node_seat){
        .state = HLY_SEAT_LISTED, .port = node->address.port, .kept = node->kept};
    hly_proc_self(&node->seats[0].process);
    gather(node);
    if (node->apart[0] && node->nlocal > 1)
        hly_boot_say(node->log, 1,
                     "rank %u (pid %d) is a node of its own, and so are the other ranks of its "
                     "host (%s): it can share no memory: %s",
                     node->rank, (int)getpid(), node->host, node->apart);
    return node->failure[0] ? HALAY_EBOOT : HALAY_OK;
}
