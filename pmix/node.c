/* SPDX-License-Identifier: Apache-2.0 */
/*
 * node.c - the meeting of a node's ranks: what both sides share, and the first rank's side.
 *
 * Invariant: a rank is on the list if and only if the answer that says so went into its queue. The
 * kernel queues it as a whole or refuses it, because the member shuts its side before it gives up;
 * so both always know the same, whatever the moment.
 */
#define _GNU_SOURCE
#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "absent.h"

enum { TICK_MS = 100, WHY = 400 };
/* After a failure in the meeting, for ranks that are on their way to hear of it. */
#define LINGER_NS 2000000000ull

/* ---------------------------------------------------------------- shared */

/* What the ranks of this node have in common, and no other job. */
static void name_of(const struct hly_node *node, uint8_t hash[16])
{
    char user[16], first[16];
    const char *parts[4] = {"node", node->nspace, user, first};
    snprintf(user, sizeof user, "%u", (unsigned)geteuid());
    snprintf(first, sizeof first, "%u", node->local[0]);
    hly_boot_name(parts, 4, hash);
}

int hly_node_door(const struct hly_node *node, int k, struct sockaddr_un *name, socklen_t *bytes)
{
    uint8_t hash[16];
    name_of(node, hash);
    *bytes = hly_boot_abstract("node", hash, k, name);
    return socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

bool hly_node_remind(struct hly_node *node, bool met)
{
    char text[HLY_NODE_TEXT - 140];
    struct hly_line line = hly_line(text, sizeof text);
    hly_absent_note(node);
    int n = 0;
    struct hly_absent *all = hly_absent_speaks(node) ? hly_absent_look(node, met, &n) : NULL;
    if (all && (n || !met)) {
        hly_absent_text(node, all, &line);
        hly_boot_remind(node->log, node->begin_ns, 0, "halay_init", HLY_BOOT_OF_NODE "%s", n,
                        node->nlocal, node->self.host, text);
    }
    free(all);
    return n;
}

bool hly_node_missing(const struct hly_node *node, bool met, char text[HLY_NODE_TEXT])
{
    char missing[HLY_NODE_TEXT - 240];
    struct hly_line line = hly_line(missing, sizeof missing);
    int n;
    struct hly_absent *all = hly_absent_look(node, met, &n);
    if (all)
        hly_absent_text(node, all, &line);
    else
        hly_line_put(&line, "(out of memory)");
    free(all);
    snprintf(text, HLY_NODE_TEXT,
             "not all of the %d ranks joined within %.1f s: on %s %s. Look at their output; if "
             "they are only slow to start, set HALAY_START_DEADLINE to more seconds",
             node->nranks, (double)(node->end_ns - node->begin_ns) / 1e9, node->self.host, missing);
    return n;
}

bool hly_node_lists(const struct hly_node *node, int i)
{
    const enum hly_place_state state = node->worlds->place[i].state;
    return state == HLY_PLACE_ASKING || state == HLY_PLACE_IN;
}

bool hly_node_lacks(const struct hly_node *node)
{
    if (node->role == HLY_ROLE_FIRST)
        return hly_worlds_waiting(node->worlds) > 0;
    return node->role == HLY_ROLE_ALONE && !node->told;
}

void hly_node_init(struct hly_node *node)
{
    node->role = HLY_ROLE_NONE;
    node->listen_fd = node->watch_fd = node->fd = node->table_fd = -1;
    node->reception.listen_fd = node->reception.epoll_fd = -1;
}

int hly_node_meet(struct hly_node *node)
{
    assert(node->nlocal >= 1 && node->role == HLY_ROLE_NONE && node->watch_fd == -1);
    node->notices = (struct hly_notices){node->begin_ns, HLY_FIRST_NOTICE_NS, 0};
    node->self.rank = node->rank;
    node->self.nranks = (uint32_t)node->nlocal;
    node->key.has_secret = hly_boot_secret(node->key.secret);
    name_of(node, node->key.job);
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
    int fds[] = {node->reception.listen_fd, node->fd, node->table_fd};
    hly_boot_reception_close(&node->reception);
    for (size_t i = 0; i < sizeof fds / sizeof fds[0]; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    free(node->came);
    free(node->hellos);
    free(node->worlds);
    node->reception.listen_fd = node->watch_fd = node->fd = node->table_fd = -1;
    node->came = NULL;
    node->hellos = NULL;
    node->worlds = NULL;
    explicit_bzero(&node->key, sizeof node->key);
}

/* ---------------------------------------------------------------- what the first rank says */

/* One packet, with a descriptor if pass_fd is not -1: who is dead by now needs none. */
static void push(int fd, const char *text, int pass_fd)
{
    union {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {.bytes = {0}};
    struct iovec iov = {(void *)(uintptr_t)text, strlen(text)};
    struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};
    if (pass_fd >= 0) {
        message.msg_control = &control;
        message.msg_controllen = sizeof control;
        control.head.cmsg_level = SOL_SOCKET;
        control.head.cmsg_type = SCM_RIGHTS;
        control.head.cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(&control.head), &pass_fd, sizeof pass_fd);
    }
    while (sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 && errno == EINTR)
        continue;
}

/* To all that are on the list. */
static void push_all(struct hly_node *node, const char *text, int pass_fd)
{
    for (int i = 0; i < node->reception.nslots; i++)
        if (node->reception.guests[i].fd >= 0 && node->reception.guests[i].stays)
            push(node->reception.guests[i].fd, text, pass_fd);
}

void hly_node_share(struct hly_node *node, int table_fd)
{
    push_all(node, "table", table_fd);
    hly_worlds_joined(node->worlds);
}

/* Whether an answer is in the queue of its guest, whole: else the guest has given up. */
static bool is_sent(struct hly_node *node, struct hly_boot_guest *g)
{
    const bool sent = g->fd >= 0 && g->sent == sizeof g->answer + g->answer.bytes;
    if (!sent && g->fd >= 0)
        hly_boot_reception_dismiss(&node->reception, g);
    return sent;
}

static void list(struct hly_node *node, struct hly_boot_guest *g, int seat)
{
    const struct hly_boot_answer a = {.joined = HLY_BOOT_LISTED};
    node->hellos[seat] = g->hello;
    hly_boot_reception_answer(&node->reception, g, &a, "", NULL, NULL);
    g->stays = is_sent(node, g);
    if (!g->stays)
        hly_worlds_end(node->worlds, seat, false);
}

/* ---------------------------------------------------------------- what its meeting says */

static void refuse_all(struct hly_node *node, const struct hly_worlds_action *a)
{
    char who[128];
    if (a->cause == HLY_CAUSE_MISSING)
        hly_node_missing(node, false, node->failure);
    if (a->cause == HLY_CAUSE_LEFT)
        snprintf(node->failure, sizeof node->failure,
                 "%s has left while the ranks were joining the job: it has died, or its own "
                 "deadline was over; see what it says",
                 hly_boot_who(&node->hellos[a->place], who));
    node->refused = a->cause != HLY_CAUSE_MISSING && a->cause != HLY_CAUSE_LEFT;
    if (!node->refused)
        hly_boot_say(node->log, 0, "%s", node->failure);
    push_all(node, node->failure, -1);
    hly_worlds_refused(node->worlds);
}

static void look(struct hly_node *node)
{
    int n;
    struct hly_absent *all = hly_absent_look(node, false, &n);
    for (int i = 0; i < node->nlocal; i++)
        hly_worlds_seen(node->worlds, i, !(all && all[i].missing && all[i].here));
    free(all);
}

static void go_on(struct hly_node *node)
{
    struct hly_worlds_action a;
    while (hly_worlds_next(node->worlds, hly_boot_now_ns(), &a)) {
        if (a.what == HLY_WORLDS_REFUSE_ALL)
            refuse_all(node, &a);
        else if (a.what == HLY_WORLDS_LOOK)
            look(node);
        else if (a.what == HLY_WORLDS_NOTICE)
            hly_node_remind(node, false);
    }
    if (hly_node_lacks(node)) /* later ones are of other nodes */
        node->notices = node->worlds->notices;
}

void hly_node_fail(struct hly_node *node, const char *text)
{
    snprintf(node->failure, sizeof node->failure, "%s", text);
    if (!node->worlds)
        return;
    hly_worlds_break(node->worlds);
    go_on(node);
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

/* ---------------------------------------------------------------- what guests say */

/* -1: no rank of this node, or the first. */
static int seat_of(const struct hly_node *node, uint32_t rank)
{
    for (int i = 1; i < node->nlocal; i++)
        if (node->local[i] == rank)
            return i;
    return -1;
}

/* Whether a rank cannot be on the list, and why; else why it is not if it is late. */
static bool is_apart(const struct hly_node *node, const struct hly_boot_hello *it, char why[WHY])
{
    const struct hly_boot_hello *me = &node->self;
    halay_address_t its = it->address, mine = me->address;
    char its_name[HLY_LISTEN_NAME], my_name[HLY_LISTEN_NAME];
    const bool same = hly_address_same_ip(&its, &mine);
    its.port = 0;
    mine.port = 0;
    if (it->alone[0])
        snprintf(why, WHY, "%s", it->alone);
    else if (me->alone[0])
        snprintf(why, WHY, "the first rank can share none");
    else if (!same)
        snprintf(why, WHY, "its address is %s, that of rank %u is %s (see HALAY_INTERFACE)",
                 hly_address_name(&its, its_name), node->rank, hly_address_name(&mine, my_name));
    else
        snprintf(why, WHY, "it came when the first rank had waited for half of its time");
    return it->alone[0] || me->alone[0] || !same || !it->nranks;
}

static void hear_rank(void *arg, struct hly_boot_guest *g)
{
    struct hly_node *node = arg;
    const struct hly_boot_hello *it = &g->hello;
    char why[WHY], a[128], b[128];
    const int seat = seat_of(node, it->rank);
    if (seat < 0) {
        hly_boot_reception_dismiss(&node->reception, g);
        return;
    }
    if (hly_boot_builds_differ(&node->self, it, why))
        fail(node, "%s", why);
    const bool apart = is_apart(node, it, why);
    const struct hly_worlds_hello hello = {it->id, 0, it->left_ns, it->lost, apart};
    const enum hly_hello was = hly_worlds_hello(node->worlds, seat, &hello, hly_boot_now_ns());
    if (was == HLY_HELLO_TWIN)
        fail(node, "two processes are the same rank: %s and %s: start each rank once",
             hly_boot_who(&node->hellos[seat], a), hly_boot_who(it, b));
    if (was == HLY_HELLO_TAKEN) {
        list(node, g, seat);
    } else {
        hly_boot_reception_text(&node->reception, g, node->failure[0] ? node->failure : why,
                                node->failure[0]      ? HLY_BOOT_SAID
                                : node->self.alone[0] ? HLY_BOOT_APART | HLY_BOOT_SAID
                                                      : HLY_BOOT_APART);
        is_sent(node, g);
    }
    go_on(node);
}

/* Is this rank's own time nearly over? Then a listed one that leaves has none left, either:
 * both wait for other nodes, and the end of this rank's time says so. */
static bool is_late(const struct hly_node *node)
{
    const struct hly_worlds *w = node->worlds;
    return w->listed &&
           hly_boot_now_ns() >= w->place[0].end_ns; /* this rank's: boot/common/world.c */
}

static void lose_rank(void *arg, struct hly_boot_guest *g)
{
    struct hly_node *node = arg;
    if (!g->stays || is_late(node))
        return;
    hly_worlds_left(node->worlds, seat_of(node, g->hello.rank));
    go_on(node);
}

static void run_out(void *arg)
{
    struct hly_node *node = arg;
    fail(node,
         "rank %u has no file descriptors left to meet the %d ranks of its node (%s), one for "
         "each: raise the limit (ulimit -n)",
         node->rank, node->nlocal, node->self.host);
}

/* ---------------------------------------------------------------- to its end */

static void turn(struct hly_node *node, int timeout_ms)
{
    char who[128];
    if (node->watch_fd >= 0)
        hly_boot_reception_turn(&node->reception, timeout_ms);
    if (node->reception.other_version)
        fail(node,
             "a rank of this node runs another version of Halay than %s, which runs Halay %s: run "
             "the same version on all nodes",
             hly_boot_who(&node->self, who), node->self.library);
    go_on(node);
}

int hly_node_first_step(struct hly_node *node)
{
    turn(node, 0);
    return node->failure[0] ? HALAY_EBOOT : HALAY_OK;
}

int hly_node_timeout_ms(const struct hly_node *node)
{
    if (node->role != HLY_ROLE_FIRST)
        return node->role == HLY_ROLE_ALONE && !node->told ? 50 : 1000;
    const int ms = hly_boot_ms(hly_worlds_due_ns(node->worlds));
    return ms < 1000 ? ms : 1000;
}

static int open_door(struct hly_node *node)
{
    struct sockaddr_un name;
    socklen_t bytes;
    char who[HLY_BOOT_WHO] = "";
    struct hly_boot_reception *r = &node->reception;
    int error = 0;
    for (int k = 0; k < HLY_NODE_DOORS && r->listen_fd < 0; k++) {
        int fd = hly_node_door(node, k, &name, &bytes);
        if (fd >= 0 && !bind(fd, (struct sockaddr *)&name, bytes) && !listen(fd, SOMAXCONN)) {
            r->listen_fd = fd;
            break;
        }
        error = errno;
        if (error == EADDRINUSE)
            hly_boot_holder(&name, bytes, who);
        if (fd >= 0)
            close(fd);
    }
    int rc = r->listen_fd < 0 ? HALAY_EBOOT : hly_boot_reception_open(r, node->nlocal);
    node->watch_fd = r->epoll_fd;
    if (!rc)
        return HALAY_OK;
    errno = r->listen_fd < 0 ? error : errno;
    hly_boot_say(
        node->log, 0,
        "rank %u cannot meet the other ranks of its node (%s) on an abstract Unix socket: %s%s%s%s",
        node->rank, node->self.host, strerror(errno), hly_boot_remedy(errno), who[0] ? ", by " : "",
        who);
    return errno == EMFILE || errno == ENFILE || errno == ENOMEM ? HALAY_ENOMEM : HALAY_EBOOT;
}

/* Is the list closed, or has who is still to hear that there is no job done so? */
static bool is_over(struct hly_node *node)
{
    const uint64_t now = hly_boot_now_ns();
    if (!node->failure[0])
        return node->worlds->listed;
    node->linger_ns = node->linger_ns ? node->linger_ns : now + LINGER_NS;
    return !hly_worlds_untold(node->worlds) || now >= node->linger_ns || now >= node->half_ns;
}

/* All are on their way, and this one is there: where it is alone, that is the list. */
static void begin(struct hly_node *node)
{
    const uint64_t now = hly_boot_now_ns(), left = now < node->end_ns ? node->end_ns - now : 0;
    const struct hly_worlds_hello hello = {node->self.id, 0, left, node->self.lost, false};
    node->worlds->once = true;
    node->worlds->list_ns = node->half_ns;
    for (int i = 0; i < node->nlocal; i++)
        hly_worlds_start(node->worlds, i);
    hly_worlds_hello(node->worlds, 0, &hello, now);
    node->hellos[0] = node->self;
    go_on(node);
}

static int tick(const struct hly_node *node)
{
    const int ms = hly_node_timeout_ms(node);
    return ms < TICK_MS ? ms : TICK_MS;
}

int hly_node_first_meet(struct hly_node *node)
{
    int rc = HALAY_OK;
    node->reception = (struct hly_boot_reception){.log = node->log,
                                                  .key = &node->key,
                                                  .holder = "the first rank of the node",
                                                  .refusal = "this process is no rank of the node",
                                                  .listen_fd = -1,
                                                  .epoll_fd = -1,
                                                  .local = true,
                                                  .address = &node->self.address,
                                                  .arg = node,
                                                  .heard = hear_rank,
                                                  .left = lose_rank,
                                                  .full = run_out};
    node->worlds = hly_boot_worlds_new(node->nlocal, 1);
    node->hellos = calloc((size_t)node->nlocal, sizeof node->hellos[0]);
    if (!node->worlds || !node->hellos)
        return HALAY_ENOMEM;
    node->role = HLY_ROLE_FIRST;
    rc = hly_listen_near(node->log, NULL, &node->self.address, &node->listen_fd);
    if (!rc && node->nlocal > 1)
        rc = open_door(node);
    if (rc)
        return rc;
    for (begin(node); !is_over(node); turn(node, tick(node)))
        continue;
    if (node->self.alone[0] && node->nlocal > 1)
        hly_boot_say(node->log, 1,
                     "rank %u (pid %d) is a node of its own, and so are the other ranks of its "
                     "host (%s): it can share no memory: %s",
                     node->rank, (int)getpid(), node->self.host, node->self.alone);
    return node->failure[0] ? HALAY_EBOOT : HALAY_OK;
}
