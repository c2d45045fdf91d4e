/* SPDX-License-Identifier: Apache-2.0 */
/*
 * node.h - how the ranks of a node meet, before PMIx's fence and without PMIx. Inside pmix/ only.
 *
 * A node's first rank (the lowest that the launcher put there) opens a door, an abstract Unix
 * socket, and holds a meeting (boot/common/meet.h) at which the others, its members, say where they
 * listen. A rank that is on the list gets its answer at once; over the same connection follows,
 * after the fence, one packet: a descriptor, the table of nodes, or a text that says why there is
 * no job. A node waits for a rank that is seen to be on its way until the deadline. One that is not
 * seen, and does not get there in half of its time, has another address, or can share no memory is
 * a node of its own: alone. docs/meetings.md says whom the others wait for, and who is told what.
 */
#ifndef HALAY_PMIX_NODE_H
#define HALAY_PMIX_NODE_H

#include <stdbool.h>
#include <stdint.h>

#include "../boot/common/listen.h"
#include "../boot/common/meet.h"
#include "../src/waits/waits.h"

enum {
    HLY_NODE_DOORS = 4, /* names tried in turn, since a stranger may hold one */
    HLY_NODE_TEXT = 640
};

enum hly_node_role { HLY_ROLE_NONE = 0, HLY_ROLE_FIRST, HLY_ROLE_MEMBER, HLY_ROLE_ALONE };

struct hly_node {
    /* set by the caller */
    const struct hly_boot_log *log;
    const char *nspace, *server; /* NULL: ranks cannot see whether others are in halay_init */
    uint32_t rank;
    int nranks, nlocal;
    const uint32_t *local;      /* rising; local[0] is the first rank */
    struct hly_boot_hello self; /* what it says of itself; its address is where it listens */
    uint64_t begin_ns, half_ns, end_ns; /* of the monotonic clock */

    enum hly_node_role role;
    struct hly_boot_key key;
    int listen_fd;              /* the caller's to close */
    int watch_fd;               /* readable: hly_node_step has something to do; or -1 */
    bool refused;               /* its meeting has refused all; as far as is known all are there */
    bool *came;                 /* absent.c: who was ever in halay_init */
    struct hly_notices notices; /* of who is missing; since begin_ns */
    /* of the first rank */
    struct hly_boot_reception reception;
    struct hly_worlds *worlds;     /* who is on the list: by place in `local` */
    struct hly_boot_hello *hellos; /* of those on it */
    uint64_t linger_ns;
    char failure[HLY_NODE_TEXT]; /* empty: none */
    /* of the others */
    int fd, table_fd;
    bool told; /* the first rank knows that this one is alone */
    struct hly_boot_greeting greeting;
};

/* After the caller's members are set, and before all else. */
void hly_node_init(struct hly_node *node);

/*
 * Meets the others: fills role, self.address, listen_fd, and the first rank's list. At most until
 * half_ns, or end_ns for ranks that are on their way, and 2 s for a resolver. Logged. After it,
 * hly_node_leave is due.
 */
int hly_node_meet(struct hly_node *node);

/* Heeds what has come; does not block. An error, logged, if the node's ranks are no longer all
 * there. Members whose step is late hear of it no later than the table. */
int hly_node_step(struct hly_node *node);

/* How long the caller may sleep before the next step, if nothing comes. */
int hly_node_timeout_ms(const struct hly_node *node);

/* The first rank's: tells all members why there is no job; hands all the table. */
void hly_node_fail(struct hly_node *node, const char *text);
void hly_node_share(struct hly_node *node, int table_fd);

/* A member's, after the fence: the table's descriptor, or -1 in *fd if there will be none, because
 * the first rank has died, or is stopped: then it reads the records itself. */
int hly_node_take(struct hly_node *node, int *fd);

void hly_node_leave(struct hly_node *node);

/* On the first rank: is local[i] on the list? */
bool hly_node_lists(const struct hly_node *node, int i);
/* After the meeting: are there ranks of this node that have not come to it? */
bool hly_node_lacks(const struct hly_node *node);
/* Says who is missing; met: who is stopped of those that have come. False: nobody is, or another
 * rank says it. */
bool hly_node_remind(struct hly_node *node, bool met);
/* The deadline is over: "not all ... joined"; with who is missing. False: nobody is. */
bool hly_node_missing(const struct hly_node *node, bool met, char text[HLY_NODE_TEXT]);

/* Shared by the two sides. */
/* An unbound socket and the name of door k; -1. */
struct sockaddr_un;
int hly_node_door(const struct hly_node *node, int k, struct sockaddr_un *name, socklen_t *bytes);
int hly_node_first_meet(struct hly_node *node);
int hly_node_first_step(struct hly_node *node);
int hly_node_member_meet(struct hly_node *node);
int hly_node_member_step(struct hly_node *node);

#endif
