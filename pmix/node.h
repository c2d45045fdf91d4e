/* SPDX-License-Identifier: Apache-2.0 */
/*
 * node.h - how the ranks of a node meet, before PMIx's fence and without PMIx. Inside pmix/ only.
 *
 * A node's first rank (the lowest that the launcher put there) opens a door, an abstract Unix
 * socket; the others, its members, tell it where they listen. Over the same connections it hands
 * them the table of nodes after the fence. A rank that is seen to be on its way is waited for until
 * the deadline. One that is not seen, and does not get there in half of its time, has another
 * address, or can share no memory is a node of its own: alone.
 */
#ifndef HALAY_PMIX_NODE_H
#define HALAY_PMIX_NODE_H

#include <stdbool.h>
#include <stdint.h>

#include "../boot/common/listen.h"
#include "../boot/common/share.h"
#include "../src/waits/waits.h"

#define HLY_NODE_MAGIC 0x31444e59414c4148ull /* "HALAYND1" on a little-endian machine */

enum {
    HLY_NODE_VERSION = 3,
    HLY_NODE_DOORS = 4, /* names tried in turn, since a stranger may hold one */
    HLY_NODE_HOST = 48,
    HLY_NODE_LIBRARY = 24,
    HLY_NODE_TEXT = 640
};

enum hly_node_type {
    HLY_NODE_GREETING = 1, /* first -> whoever comes: its address */
    HLY_NODE_HELLO,        /* member -> first: its address */
    HLY_NODE_ALONE,        /* member -> first: do not wait for this rank */
    HLY_NODE_LISTED,       /* first -> member: it is on the node's list */
    HLY_NODE_LATE,         /* first -> member: the list is closed */
    HLY_NODE_FAILED,       /* first -> member: there is no job; the text says why */
    HLY_NODE_TABLE         /* first -> member: the table, as a descriptor */
};

/* All that is said, one packet each. The first four members stay as they are in all versions. */
struct hly_node_word {
    uint64_t magic;
    uint32_t version, type;
    char library[HLY_NODE_LIBRARY];
    uint32_t rank, pid;
    halay_address_t address;
    uint32_t apart; /* 1: this rank can share no memory */
    char host[HLY_NODE_HOST];
    char text[HLY_NODE_TEXT];
    halay_process_t process;
    uint64_t left_ns; /* until this rank's deadline */
    uint64_t kept;    /* as of halay_boot_info_t */
};

enum hly_node_role { HLY_ROLE_NONE = 0, HLY_ROLE_FIRST, HLY_ROLE_MEMBER, HLY_ROLE_ALONE };

struct hly_node_guest {
    int fd; /* -1: free */
    int seat;
    uint64_t since_ns;
};

/* A local rank, as the first one knows it. */
struct hly_node_seat {
    enum { HLY_SEAT_EMPTY = 0, HLY_SEAT_LISTED, HLY_SEAT_ALONE } state;
    uint16_t port; /* network order */
    halay_process_t process;
    uint64_t kept;
};

struct hly_node {
    /* set by the caller */
    const struct hly_boot_log *log;
    const char *nspace, *server; /* NULL: ranks cannot see whether others are in halay_init */
    uint32_t rank;
    int nranks, nlocal;
    const uint32_t *local; /* rising; local[0] is the first rank */
    int processors;        /* 0: not known */
    uint64_t kept;         /* as of halay_boot_info_t */
    char host[HLY_NODE_HOST], library[HLY_NODE_LIBRARY];
    char apart[HLY_SHARE_WHY];          /* why this rank can share no memory; empty: it can */
    uint64_t begin_ns, half_ns, end_ns; /* of the monotonic clock */

    enum hly_node_role role;
    halay_address_t address;    /* where this rank listens, */
    int listen_fd;              /* which is the caller's to close */
    int watch_fd;               /* readable: hly_node_step has something to do; or -1 */
    bool *came;                 /* absent.c: who was ever in halay_init */
    struct hly_notices notices; /* of who is missing; since begin_ns */
    /* of the first rank */
    int door_fd, nheard, nguests;
    bool closed; /* the list */
    uint64_t decide_ns, seen_ns, linger_ns;
    struct hly_node_guest *guests;
    struct hly_node_seat *seats;
    char failure[HLY_NODE_TEXT]; /* empty: none */
    /* of the others */
    int fd, table_fd;
    bool told; /* the first rank knows that this one is alone */
    struct hly_node_word first;
};

/* After the caller's members are set, and before all else. */
void hly_node_init(struct hly_node *node);

/*
 * Meets the others: fills role, address, listen_fd, and the first rank's seats. At most until
 * half_ns, or end_ns for ranks that are on their way, and 2 s for a resolver. Logged. After it,
 * hly_node_leave is due.
 */
int hly_node_meet(struct hly_node *node);

/* Heeds what has come; does not block. An error, logged, if the node's ranks are no longer all
 * there. Members whose step is late hear of it no later than the table. */
int hly_node_step(struct hly_node *node);

/* How long the caller may sleep before the next step, if nothing comes. */
int hly_node_patience_ms(const struct hly_node *node);

/* The first rank's: tells all members why there is no job; hands all the table. */
void hly_node_fail(struct hly_node *node, const char *text);
void hly_node_share(struct hly_node *node, int table_fd);

/* A member's, after the fence: the table's descriptor, or -1 in *fd if there will be none, because
 * the first rank has died: then it reads the records itself. */
int hly_node_take(struct hly_node *node, int *fd);

void hly_node_leave(struct hly_node *node);

/* After the meeting: are there ranks of this node that have not come to it? */
bool hly_node_lacks(const struct hly_node *node);
/* Says, when it is time, who is missing. */
void hly_node_remind(struct hly_node *node);
/* The deadline is over: "not all ... joined"; with who is missing. */
void hly_node_missing(const struct hly_node *node, char text[HLY_NODE_TEXT]);

/* Shared by the two sides. */
/* Is one that is missing on its way? */
bool hly_node_may_come(const struct hly_node *node);
uint64_t hly_node_now_ns(void);
/* An unbound socket and the name of door k; -1. */
struct sockaddr_un;
int hly_node_door(const struct hly_node *node, int k, struct sockaddr_un *name, socklen_t *bytes);
bool hly_node_same_user(int fd);
void hly_node_word_init(const struct hly_node *node, enum hly_node_type type,
                        struct hly_node_word *word);
/* One packet, with a descriptor if pass_fd is not -1: false if it was not queued. */
bool hly_node_send(int fd, const struct hly_node_word *word, int pass_fd);
int hly_node_first_meet(struct hly_node *node);
int hly_node_first_step(struct hly_node *node);
int hly_node_member_meet(struct hly_node *node);
int hly_node_member_step(struct hly_node *node);

#endif
