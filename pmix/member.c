/* SPDX-License-Identifier: Apache-2.0 */
/*
 * member.c - the meeting of a node's ranks: the side of a rank that is not the first.
 *
 * The first rank may not be there yet, and a stranger may hold one of its doors' names: all are
 * tried, again and again, until one greets as the first rank does. See node.c for why a rank that
 * gives up shuts its side before it looks a last time.
 */
#define _GNU_SOURCE
#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "absent.h"

#define MS 1000000ull

enum { PAUSE_MIN_MS = 1, PAUSE_MAX_MS = 20, GREETING_MS = 1000, TELL_MS = 50 };

static bool wait_for(int fd, uint64_t until_ns)
{
    for (;;) {
        uint64_t now = hly_node_now_ns();
        struct pollfd p = {.fd = fd, .events = POLLIN};
        if (now >= until_ns)
            return false;
        uint64_t ms = (until_ns - now) / MS + 1;
        int n = poll(&p, 1, ms < 1000 ? (int)ms : 1000);
        if (n > 0)
            return true;
        if (n < 0 && errno != EINTR)
            return false;
    }
}

/* One word and the descriptor that may come with it. 1; 0: there is none yet; -1: the end. */
static int hear(int fd, struct hly_node_word *word, int *passed_fd)
{
    union {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec iov = {word, sizeof *word};
    struct msghdr message = {.msg_iov = &iov,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = sizeof control};
    ssize_t n;
    bool reset = false; /* what was said before the other end left comes after the news of that */
    *passed_fd = -1;
    memset(word, 0, sizeof *word);
    for (;;) {
        n = recvmsg(fd, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
        if (n >= 0 || (errno != EINTR && (errno != ECONNRESET || reset)))
            break;
        reset |= errno == ECONNRESET;
    }
    if (n < 0)
        return errno == EAGAIN ? 0 : -1;
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    /* The room is rounded up: there may be two descriptors, where one is sent. */
    for (size_t at = CMSG_LEN(0); head && head->cmsg_level == SOL_SOCKET &&
                                  head->cmsg_type == SCM_RIGHTS && at < head->cmsg_len;
         at += sizeof(int)) {
        if (*passed_fd >= 0)
            close(*passed_fd);
        memcpy(passed_fd, (char *)head + at, sizeof *passed_fd);
    }
    word->library[sizeof word->library - 1] = word->host[sizeof word->host - 1] = '\0';
    word->text[sizeof word->text - 1] = '\0';
    bool known = (size_t)n >= offsetof(struct hly_node_word, rank) &&
                 word->magic == HLY_NODE_MAGIC &&
                 (word->version != HLY_NODE_VERSION || n == (ssize_t)sizeof *word);
    if (!known && *passed_fd >= 0) {
        close(*passed_fd);
        *passed_fd = -1;
    }
    return known ? 1 : -1;
}

static int await_word(int fd, uint64_t until_ns, struct hly_node_word *word)
{
    int passed_fd;
    for (;;) {
        int got = hear(fd, word, &passed_fd);
        if (passed_fd >= 0)
            close(passed_fd); /* no word that is awaited here has one */
        if (got || !wait_for(fd, until_ns))
            return got;
    }
}

/* A connection to whoever holds door k and is of our user. */
static int knock(const struct hly_node *node, int k)
{
    struct sockaddr_un name;
    socklen_t bytes;
    int fd = hly_node_door(node, k, &name, &bytes);
    if (fd >= 0 && (connect(fd, (struct sockaddr *)&name, bytes) || !hly_node_same_user(fd))) {
        close(fd);
        return -1;
    }
    return fd;
}

static int no_job(const struct hly_node *node, int level, const char *text)
{
    hly_boot_say(node->log, level, "%s", text);
    return HALAY_EBOOT;
}

/* For half of the time, or all of it if the first rank is seen to be on its way. */
static int find(struct hly_node *node)
{
    uint64_t pause = PAUSE_MIN_MS * MS, end = node->half_ns;
    char text[HLY_NODE_TEXT];
    for (;;) {
        const bool over = hly_node_now_ns() >= end; /* read once: more time only for who may come */
        if (over && (end == node->end_ns || !hly_node_may_come(node)))
            break;
        if (over)
            end = node->end_ns;
        hly_node_remind(node);
        for (int k = 0; k < HLY_NODE_DOORS; k++) {
            int fd = knock(node, k);
            uint64_t until =
                hly_node_now_ns() + GREETING_MS * MS; /* for each, whatever the last took */
            if (fd < 0)
                continue;
            if (await_word(fd, until < end ? until : end, &node->first) > 0 &&
                node->first.type == HLY_NODE_GREETING) {
                node->fd = fd;
                return HALAY_OK;
            }
            close(fd);
        }
        struct timespec t = {0, (long)pause};
        nanosleep(&t, NULL);
        pause = pause * 2 < PAUSE_MAX_MS * MS ? pause * 2 : PAUSE_MAX_MS * MS;
    }
    if (end == node->half_ns)
        return HALAY_OK;
    hly_node_missing(node, text);
    return no_job(node, hly_absent_level(node), text);
}

/* The ranks of a node have one ip: that of the first rank, unless the user named an interface. */
static int listen_somewhere(struct hly_node *node, bool met)
{
    const char *interface = hly_listen_interface();
    if (met && !interface) {
        node->address = node->first.address;
        int fd = node->address.family ? hly_listen_at(&node->address) : -EADDRNOTAVAIL;
        if (fd >= 0) {
            node->listen_fd = fd;
            return HALAY_OK;
        }
    }
    int rc = hly_listen_choose(node->log, interface, &node->address);
    return rc ? rc : hly_listen_open(node->log, &node->address, &node->listen_fd);
}

static int alone(struct hly_node *node, const char *why)
{
    hly_boot_say(node->log, node->first.apart ? 2 : 1, /* the first rank has said it of all */
                 "rank %u (pid %d on %s) is a node of its own and shares no memory with the other "
                 "ranks of its host: %s",
                 node->rank, (int)getpid(), node->host, why);
    node->role = HLY_ROLE_ALONE;
    if (node->fd >= 0)
        close(node->fd);
    node->fd = -1;
    return HALAY_OK;
}

static int unreached(struct hly_node *node)
{
    char why[200];
    int rc = listen_somewhere(node, false);
    snprintf(why, sizeof why,
             "it did not reach rank %u, the first of the node, on a Unix socket within %.1f s: it "
             "has a network namespace of its own, or rank %u is late",
             node->local[0], (double)(node->half_ns - node->begin_ns) / 1e9, node->local[0]);
    return rc ? rc : alone(node, why);
}

static int first_died(const struct hly_node *node)
{
    hly_boot_say(node->log, hly_absent_level(node),
                 "rank %u (pid %u on %s), the first rank of this node, has died while the ranks "
                 "were joining the job",
                 node->local[0], node->first.pid, node->first.host);
    return HALAY_EBOOT;
}

static int refused(const struct hly_node *node, const struct hly_node_word *word)
{
    hly_boot_say(node->log, HALAY_LOG_TOLD,
                 "rank %u (pid %u on %s), the first rank of this node, says: %s", node->local[0],
                 node->first.pid, node->first.host, word->text);
    return HALAY_EBOOT;
}

static int other_version(const struct hly_node *node)
{
    struct hly_node_word word;
    hly_node_word_init(node, HLY_NODE_HELLO, &word);
    hly_node_send(node->fd, &word, -1); /* so that it can tell the others */
    hly_boot_say(node->log, 0,
                 "rank %u (pid %d on %s) runs Halay %s, but rank %u of the same node runs Halay "
                 "%s: run the same version on all ranks",
                 node->rank, (int)getpid(), node->host, node->library, node->local[0],
                 node->first.library);
    return HALAY_EBOOT;
}

static int watch(struct hly_node *node)
{
    struct epoll_event event = {.events = EPOLLIN};
    node->role = HLY_ROLE_MEMBER;
    node->watch_fd = epoll_create1(EPOLL_CLOEXEC);
    if (node->watch_fd >= 0 && !epoll_ctl(node->watch_fd, EPOLL_CTL_ADD, node->fd, &event))
        return HALAY_OK;
    hly_boot_say(node->log, 0, "rank %u cannot watch the first rank of its node: %s%s", node->rank,
                 strerror(errno), hly_boot_remedy(errno));
    return HALAY_ENOMEM;
}

static int hello(struct hly_node *node)
{
    struct hly_node_word word;
    bool same = hly_address_same_ip(&node->address, &node->first.address) && !node->apart[0];
    char why[200], mine[HLY_LISTEN_NAME], its[HLY_LISTEN_NAME];
    hly_node_word_init(node, same ? HLY_NODE_HELLO : HLY_NODE_ALONE, &word);
    bool said = hly_node_send(node->fd, &word, -1);
    const uint64_t until = hly_node_now_ns() < node->half_ns ? node->half_ns : node->end_ns;
    int got = said ? await_word(node->fd, until, &word) : -1;
    if (got == 0) {
        shutdown(node->fd, SHUT_RD); /* from now on the first rank cannot list this one */
        got = await_word(node->fd, 0, &word);
        if (got < 0)
            return alone(node, "the first rank did not answer in time");
        if (word.type == HLY_NODE_LISTED) { /* listed, but it cannot hear of the table */
            node->role = HLY_ROLE_MEMBER;
            return HALAY_OK;
        }
    }
    if (got < 0)
        return first_died(node);
    if (word.type == HLY_NODE_FAILED)
        return refused(node, &word);
    if (word.type == HLY_NODE_LISTED && same)
        return watch(node);
    node->told = true;
    word.address = node->address;
    word.address.port = 0;
    if (node->apart[0])
        return alone(node, node->apart);
    if (node->first.apart)
        return alone(node, "the first rank can share none");
    if (same)
        return alone(node, "it came when the first rank had waited for half of its time");
    snprintf(why, sizeof why, "its address is %s, that of rank %u is %s (see HALAY_INTERFACE)",
             hly_address_name(&word.address, mine), node->local[0],
             hly_address_name(&node->first.address, its));
    return alone(node, why);
}

int hly_node_member_meet(struct hly_node *node)
{
    int rc = find(node);
    if (rc || node->fd < 0)
        return rc ? rc : unreached(node);
    if (node->first.version != HLY_NODE_VERSION)
        return other_version(node);
    rc = listen_somewhere(node, true);
    return rc ? rc : hello(node);
}

/* A first rank that comes late need not wait for who has given up. */
static void tell(struct hly_node *node)
{
    struct hly_node_word word;
    hly_node_word_init(node, HLY_NODE_ALONE, &word);
    for (int k = 0; k < HLY_NODE_DOORS; k++) {
        int fd = knock(node, k);
        if (fd < 0)
            continue;
        node->told |= hly_node_send(fd, &word, -1);
        close(fd);
    }
}

int hly_node_patience_ms(const struct hly_node *node)
{
    return node->role == HLY_ROLE_ALONE && !node->told ? TELL_MS : 1000;
}

static void unwatch(struct hly_node *node)
{
    close(node->watch_fd);
    node->watch_fd = -1;
}

int hly_node_member_step(struct hly_node *node)
{
    struct hly_node_word word;
    int passed_fd;
    if (node->role == HLY_ROLE_ALONE && !node->told)
        tell(node);
    if (node->role == HLY_ROLE_ALONE || node->watch_fd < 0)
        return HALAY_OK;
    int got = hear(node->fd, &word, &passed_fd);
    if (got == 0)
        return HALAY_OK;
    if (got > 0 && word.type == HLY_NODE_TABLE && passed_fd >= 0) {
        node->table_fd = passed_fd;
        unwatch(node);
        return HALAY_OK;
    }
    if (passed_fd >= 0)
        close(passed_fd);
    unwatch(node);
    return got > 0 && word.type == HLY_NODE_FAILED ? refused(node, &word) : first_died(node);
}

int hly_node_take(struct hly_node *node, int *fd)
{
    struct hly_node_word word;
    int passed_fd, got = 1;
    assert(node->role == HLY_ROLE_MEMBER);
    while (node->table_fd < 0) {
        got = hear(node->fd, &word, &passed_fd);
        if (got == 0 && wait_for(node->fd, node->end_ns))
            continue;
        if (got > 0 && word.type == HLY_NODE_TABLE)
            node->table_fd = passed_fd;
        else if (passed_fd >= 0)
            close(passed_fd);
        if (got > 0 && word.type == HLY_NODE_FAILED)
            return refused(node, &word);
        if (node->table_fd < 0)
            break;
    }
    *fd = node->table_fd;
    node->table_fd = -1;
    if (*fd < 0)
        hly_boot_say(node->log, 2,
                     "rank %u, the first of this node, has handed out no table: rank %u reads the "
                     "records itself",
                     node->local[0], node->rank);
    return HALAY_OK;
}
