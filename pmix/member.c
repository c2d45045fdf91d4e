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
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "../common/proc.h"
#include "absent.h"

#define MS 1000000ull

enum { PAUSE_MIN_MS = 1, PAUSE_MAX_MS = 20, GREETING_MS = 1000, TELL_MS = 50, HOLDER = 160 };

/* What follows the answer: a text, or the descriptor that comes with it, else -1. Returns 1; 0:
 * there is nothing yet; -1: the end. */
static int hear(int fd, char text[HLY_NODE_TEXT], int *passed_fd)
{
    union {
        struct cmsghdr head;
        char bytes[CMSG_LEN(sizeof(int))]; /* there is room for one descriptor */
    } control;
    struct iovec iov = {text, HLY_NODE_TEXT - 1};
    struct msghdr message = {.msg_iov = &iov,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = sizeof control.bytes};
    ssize_t n;
    bool reset = false; /* what was said before the other end left comes after the news of that */
    *passed_fd = -1;
    for (;;) {
        n = recvmsg(fd, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
        if (n >= 0 || (errno != EINTR && (errno != ECONNRESET || reset)))
            break;
        reset |= errno == ECONNRESET;
    }
    text[n > 0 ? n : 0] = '\0';
    if (n < 0)
        return errno == EAGAIN ? 0 : -1;
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    if (head && head->cmsg_level == SOL_SOCKET && head->cmsg_type == SCM_RIGHTS)
        memcpy(passed_fd, CMSG_DATA(head), sizeof *passed_fd);
    return n > 0 || *passed_fd >= 0 ? 1 : -1;
}

/* A connection to whoever holds door k and is of our user. */
static int knock(const struct hly_node *node, int k)
{
    struct sockaddr_un name;
    socklen_t bytes;
    int fd = hly_node_door(node, k, &name, &bytes);
    if (fd >= 0 && (connect(fd, (struct sockaddr *)&name, bytes) || !hly_boot_same_user(fd))) {
        close(fd);
        return -1;
    }
    return fd;
}

/* Is the first rank, which has not come, on its way? */
static bool may_come(const struct hly_node *node)
{
    int n;
    struct hly_absent *all = hly_absent_look(node, false, &n);
    const bool may = all && all[0].missing && all[0].here;
    free(all);
    return may;
}

/* A connection to the first rank, which has greeted; -1. */
static int call_first(struct hly_node *node, uint64_t end_ns)
{
    struct hly_boot_greeting greeting;
    const char *why;
    for (int k = 0; k < HLY_NODE_DOORS; k++) {
        const int fd = knock(node, k);
        const uint64_t until = hly_boot_now_ns() + GREETING_MS * MS; /* for each */
        if (fd < 0)
            continue;
        if (hly_boot_visit_greeted(&node->key, fd, until < end_ns ? until : end_ns, &greeting,
                                   &why)) {
            node->greeting = greeting;
            return fd;
        }
        close(fd);
    }
    return -1;
}

/* For half of the time, or all of it if the first rank is seen to be on its way. */
static int find(struct hly_node *node)
{
    uint64_t pause = PAUSE_MIN_MS * MS, end = node->half_ns;
    char text[HLY_NODE_TEXT];
    for (;;) {
        const bool over =
            hly_boot_now_ns() >= end; /* read once: more time only for ranks that may come */
        if (over && (end == node->end_ns || !may_come(node)))
            break;
        if (over)
            end = node->end_ns;
        if (hly_notices_give(&node->notices, hly_boot_now_ns()))
            hly_node_remind(node, false);
        node->fd = call_first(node, end);
        if (node->fd >= 0)
            return HALAY_OK;
        struct timespec t = {0, (long)pause};
        nanosleep(&t, NULL);
        pause = pause * 2 < PAUSE_MAX_MS * MS ? pause * 2 : PAUSE_MAX_MS * MS;
    }
    if (end == node->half_ns)
        return HALAY_OK;
    hly_node_missing(node, false, text);
    hly_boot_say(node->log, hly_absent_level(node), "%s", text);
    return HALAY_EBOOT;
}

static int alone(struct hly_node *node, const char *why, int level)
{
    hly_boot_say(node->log, level,
                 "rank %u (pid %d on %s) is a node of its own and shares no memory with the other "
                 "ranks of its host: %s",
                 node->rank, (int)getpid(), node->self.host, why);
    node->role = HLY_ROLE_ALONE;
    if (node->fd >= 0)
        close(node->fd);
    node->fd = -1;
    return HALAY_OK;
}

static int unreached(struct hly_node *node)
{
    char why[200];
    int rc = hly_listen_near(node->log, NULL, &node->self.address, &node->listen_fd);
    snprintf(why, sizeof why,
             "it did not reach rank %u, the first of the node, on a Unix socket within %.1f s: it "
             "has a network namespace of its own, or rank %u is late",
             node->local[0], (double)(node->half_ns - node->begin_ns) / 1e9, node->local[0]);
    return rc ? rc : alone(node, why, 1);
}

static const char *holder_of(const struct hly_node *node, char text[HOLDER])
{
    snprintf(text, HOLDER, "rank %u (pid %u on %s), the first rank of this node,", node->local[0],
             node->greeting.pid, node->self.host);
    return text;
}

static int first_died(const struct hly_node *node)
{
    char holder[HOLDER];
    hly_boot_say(node->log, hly_absent_level(node),
                 "%s has died while the ranks were joining the job", holder_of(node, holder));
    return HALAY_EBOOT;
}

static int refused(const struct hly_node *node, const char *text)
{
    char holder[HOLDER];
    hly_boot_say(node->log, HALAY_LOG_TOLD, "%s refuses: %s", holder_of(node, holder), text);
    return HALAY_EBOOT;
}

/* Says what this rank is over a connection that was greeted: as hly_boot_visit_ask. *why: why it is
 * alone, to be freed; NULL: it is on the list. */
static int ask(struct hly_node *node, int fd, bool leaves, uint64_t until_ns,
               enum hly_boot_heard *heard, struct hly_boot_answer *answer, char **why)
{
    char holder[HOLDER], guest[128];
    struct hly_boot_hello me = node->self;
    const struct hly_boot_visit visit = {.log = node->log,
                                         .key = &node->key,
                                         .guest = hly_boot_who(&me, guest),
                                         .holder = holder_of(node, holder),
                                         .end_ns = node->end_ns,
                                         .heard = heard,
                                         .wait_ns = until_ns};
    me.nranks = leaves ? 0 : me.nranks;
    *heard = HLY_BOOT_HEARD;
    return hly_boot_visit_ask(&visit, fd, &node->greeting, &me, answer, why);
}

static int hello(struct hly_node *node)
{
    static const struct timespec a_little = {0, 20000000};
    enum hly_boot_heard heard;
    struct hly_boot_answer answer;
    char *why;
    int rc;
    for (;;) {
        const uint64_t now = hly_boot_now_ns();
        rc = ask(node, node->fd, false, now < node->half_ns ? node->half_ns : node->end_ns, &heard,
                 &answer, &why);
        node->refused = rc && heard == HLY_BOOT_HEARD;
        if (!rc || heard != HLY_BOOT_HUNG_UP)
            break;
        close(
            node->fd); /* it has died, or has taken this rank, which was stopped, for a stranger */
        nanosleep(&a_little, NULL);
        node->fd = now < node->end_ns ? call_first(node, node->end_ns) : -1;
        if (node->fd < 0)
            return first_died(node);
    }
    if (rc && heard == HLY_BOOT_GAVE_UP && !answer.magic)
        return alone(node, "the first rank did not answer in time", 1);
    if (!rc && answer.joined) {
        node->role = HLY_ROLE_MEMBER; /* if it has given up it cannot hear of the table */
        node->watch_fd = heard == HLY_BOOT_GAVE_UP ? -1 : node->fd;
    } else if (!rc) {
        node->told = true;
        rc = alone(node, why, answer.said & HLY_BOOT_SAID ? 2 : 1);
    }
    free(why);
    return rc;
}

int hly_node_member_meet(struct hly_node *node)
{
    int rc = find(node);
    if (rc || node->fd < 0)
        return rc ? rc : unreached(node);
    /* The ranks of a node have one ip: that of the first one, unless the user named an interface.
     */
    rc = hly_listen_near(node->log, &node->greeting.address, &node->self.address, &node->listen_fd);
    return rc ? rc : hello(node);
}

/* A first rank that comes late need not wait for ranks that have given up. */
static int tell(struct hly_node *node)
{
    int rc = HALAY_OK;
    for (int k = 0; !rc && !node->told && k < HLY_NODE_DOORS; k++) {
        const uint64_t until = hly_boot_now_ns() + TELL_MS * MS;
        const int fd = knock(node, k);
        enum hly_boot_heard heard;
        struct hly_boot_answer answer;
        const char *what;
        char *why;
        if (fd >= 0 && hly_boot_visit_greeted(&node->key, fd, until, &node->greeting, &what)) {
            rc = ask(node, fd, true, until, &heard, &answer, &why);
            node->told = !rc;
            if (rc && !answer.magic) /* it is too busy to answer */
                rc = HALAY_OK;
            free(why);
        }
        if (fd >= 0)
            close(fd);
    }
    return rc;
}

int hly_node_member_step(struct hly_node *node)
{
    char text[HLY_NODE_TEXT];
    int passed_fd;
    if (node->role == HLY_ROLE_ALONE && !node->told) {
        if (hly_notices_give(&node->notices, hly_boot_now_ns()))
            hly_node_remind(node, false);
        return tell(node);
    }
    if (node->watch_fd < 0)
        return HALAY_OK;
    int got = hear(node->fd, text, &passed_fd);
    if (got == 0)
        return HALAY_OK;
    node->watch_fd = -1;
    node->table_fd = passed_fd;
    return passed_fd >= 0 ? HALAY_OK : got > 0 ? refused(node, text) : first_died(node);
}

static bool first_is_stopped(const struct hly_node *node)
{
    struct hly_proc_stat seen;
    return hly_proc_stat(node->greeting.pid, &seen) && (seen.state == 'T' || seen.state == 't');
}

int hly_node_take(struct hly_node *node, int *fd)
{
    char text[HLY_NODE_TEXT];
    int got = 0;
    assert(node->role == HLY_ROLE_MEMBER);
    while (node->table_fd < 0 && !got) {
        const uint64_t now = hly_boot_now_ns(), then = now + 1000 * MS;
        const bool last = then >= node->end_ns;
        got = hear(node->fd, text, &node->table_fd);
        if (got == 0 && !hly_boot_wait(node->fd, POLLIN, last ? node->end_ns : then) &&
            (last || first_is_stopped(node)))
            break;
    }
    if (got > 0 && node->table_fd < 0)
        return refused(node, text);
    *fd = node->table_fd;
    node->table_fd = -1;
    if (*fd < 0)
        hly_boot_say(node->log, 2,
                     "rank %u, the first of this node, has handed out no table: rank %u reads the "
                     "records itself",
                     node->local[0], node->rank);
    return HALAY_OK;
}
