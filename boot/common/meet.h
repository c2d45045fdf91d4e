/* SPDX-License-Identifier: Apache-2.0 */
/*
 * meet.h - a meeting: the rendezvous in which processes learn their ranks and each other's
 * addresses. One process, the holder, is its server: rank 0, a node's first rank, or a launcher's
 * driver. The other processes, the guests, are its clients. Inside boot/ and pmix/ only.
 * docs/decisions/bootstraps.md#0008, 0096.
 *
 * The holder speaks first, so that no stranger on a probed port is sent anything:
 *   holder -> guest    greeting
 *   guest  -> holder   hello, proving the secret against the greeting's challenge
 *   holder -> guest    answer, proving it against the hello's, and a payload: the table and the
 *                      processes of the guest's node, or a text that says why there is no job
 */
#ifndef HALAY_BOOT_MEET_H
#define HALAY_BOOT_MEET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <halay/boot.h>

#include "../../common/keys.h"
#include "places.h"
#include "share.h"
#include "world.h"

#define HLY_BOOT_MAGIC  0x315a564459414c48ull /* "HLAYDVZ1" on a little-endian machine */
#define HLY_BOOT_NOBODY UINT32_MAX            /* no rank */

enum { HLY_BOOT_VERSION = 9, HLY_BOOT_RANKS_MAX = 65536, HLY_BOOT_TEXT_BYTES = 1024 };

/* Flags of an answer. JOINED: the payload is the table of ranks. CHANGES: ranks may change from one
 * meeting to the next. Then rank 0's connection stays open, and over it the holder sends the number
 * of waiting newcomers, a uint32_t, whenever it changes. ALIKE: all ranks have the same `kept`.
 * LISTED alone: this rank is on its node's list, and another answer with the table follows. */
enum { HLY_BOOT_JOINED = 1, HLY_BOOT_CHANGES = 2, HLY_BOOT_ALIKE = 4, HLY_BOOT_LISTED = 8 };
/* Flags of a refusal. SAID: its text is in the holder's log. OVER: the job ends. APART: the job
 * goes on, and the guest joins it as a node of its own. */
enum { HLY_BOOT_SAID = 1, HLY_BOOT_OVER = 2, HLY_BOOT_APART = 4 };
#define HLY_BOOT_AGENT UINT32_MAX /* slot of a hello: a launcher, with `nranks` places */

/* What holder and guests know before a meeting. */
struct hly_boot_key {
    bool has_secret;
    uint8_t secret[32]; /* derived from HALAY_SECRET, or from an empty text */
    uint8_t job[16];    /* identifies this job's meeting */
};

struct hly_boot_greeting {
    uint64_t magic;
    uint32_t version;
    uint16_t has_secret, local; /* local: the holder listens on this machine only */
    uint8_t key[16], challenge[16];
    halay_address_t address; /* where the holder listens for the job; and its pid: to none but */
    uint32_t pid;            /* processes of its own user, else zeros */
};

struct hly_boot_hello {
    uint64_t magic;
    uint32_t version, bytes;
    uint8_t key[16], challenge[16];
    /* rank, nranks: HLY_BOOT_NOBODY if the holder assigns them; nranks 0: the process leaves */
    uint32_t rank, nranks, pid;
    halay_address_t address; /* where it listens */
    uint64_t left_ns;        /* until this rank's deadline */
    uint64_t netns;          /* two ranks with equal netns, machine and uid share a node */
    char machine[40];
    char host[HLY_BOOT_HOST_BYTES];
    char library[24];
    char alone[HLY_SHARE_WHY]; /* why it can share no memory; else empty */
    uint32_t processors;       /* that the ranks of its node have; 0: not known */
    uint32_t uid;              /* only processes of one user share memory */
    halay_process_t process;
    uint8_t id[16];     /* of the process, random; zeros if the holder does not need it */
    uint64_t epoch;     /* the last one that this process was in; 0: none */
    uint32_t slot, was; /* number of the process at its launcher; its rank in that epoch */
    struct hly_boot_lost lost[HLY_BOOT_LOST_RUNS]; /* first > last: none */
    uint64_t kept;                                 /* as of halay_boot_info_t */
    uint8_t mac[32];
};

struct hly_boot_answer {
    uint64_t magic;
    uint32_t version, joined; /* HLY_BOOT_*; 0: the payload is a text */
    uint32_t bytes;           /* of the payload */
    uint32_t nnodes, nruns, nothers, nprocesses;
    uint32_t rank, nranks;
    uint32_t said; /* of the text: HLY_BOOT_SAID, HLY_BOOT_OVER */
    uint64_t epoch;
    uint8_t job[16];
    uint8_t secret[16]; /* zeros if HALAY_SECRET is set: then ranks derive it */
    uint8_t mac[32];
};
_Static_assert(sizeof(struct hly_boot_greeting) == 72 && sizeof(struct hly_boot_hello) == 616 &&
                   sizeof(struct hly_boot_answer) == 120,
               "no padding on the wire");

struct hly_boot_identity {
    int rank, nranks, listen_fd;
    bool changes; /* HLY_BOOT_CHANGES */
    int alike;    /* HLY_BOOT_ALIKE: 1 or -1 */
    uint64_t epoch;
    uint8_t job[16], secret[16];
    struct hly_boot_places places; /* points into `memory`, or into a mapping */
    void *memory;
};

uint64_t hly_boot_now_ns(void);
/* For poll(): in how many milliseconds that is, at most 60,000; 0: it is over. */
static inline int hly_boot_ms(uint64_t until_ns)
{
    const uint64_t now = hly_boot_now_ns(),
                   ms = now < until_ns ? (until_ns - now) / 1000000 + 1 : 0;
    return ms < 60000 ? (int)ms : 60000;
}
/* Is the other end of a Unix socket a process of this user? */
bool hly_boot_same_user(int fd);
/* HALAY_EBOOT, logged. */
int hly_boot_random(const struct hly_boot_log *log, void *bytes, size_t n);
/* Fills in the hello's machine, host, pid and library; no rank is lost. If this process cannot
 * share memory, its machine is `name`, which no other process has. info: from the bootstrap's
 * caller; NULL: this process is no rank. */
void hly_boot_describe(const char *name, const halay_boot_info_t *info,
                       struct hly_boot_hello *hello);
/* "rank 3 (pid 7 on host)" */
const char *hly_boot_who(const struct hly_boot_hello *hello, char text[128]);

#define HLY_BOOT_OF_NODE " for %d of the %d ranks of node %s: "
/* Logs "WHO has waited for 1.0 s FOR WHAT. If that stays so it ends with an error in 29 s at the
 * latest". */
void hly_boot_remind(const struct hly_boot_log *log, uint64_t since_ns, uint64_t end_ns,
                     const char *who, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

void hly_boot_hello_mac(const struct hly_boot_key *key, const struct hly_boot_greeting *greeting,
                        const struct hly_boot_hello *hello, uint8_t mac[32]);
/* digest: of the payload */
void hly_boot_answer_mac(const struct hly_boot_key *key, const struct hly_boot_greeting *greeting,
                         const struct hly_boot_hello *hello, const struct hly_boot_answer *answer,
                         const uint8_t digest[32], uint8_t mac[32]);

/* ---------------------------------------------------------------- the table */

/* The most bytes that a rank adds to the table: a run, a port, an address of its own, a node, a
 * process. */
enum { HLY_BOOT_RANK_BYTES = 8 + 2 + 24 + 17 + HLY_BOOT_HOST_BYTES + 32 };

/* The bytes that the holder sends. First the table, which all ranks get; then the processes, node
 * by node, of which each rank gets those of its node. */
struct hly_boot_table {
    char *bytes;
    int32_t *node_of; /* by rank */
    uint32_t *starts; /* by node: its first process; then their number */
};
/* Makes the table from all ranks' hellos, and fills in nnodes, nruns, nothers and bytes of the
 * answer. Marks oversubscribed nodes in the hellos' addresses. HALAY_ENOMEM. Call
 * hly_boot_table_finish in any case. */
int hly_boot_table_write(struct hly_boot_hello *hellos, int nranks, struct hly_boot_answer *answer,
                         struct hly_boot_table *table);
/* Gives the rank's part, which follows the table, and sets the answer's members for this rank. In
 * memory rank 0's part follows the table directly. */
struct hly_piece hly_boot_table_part(const struct hly_boot_table *table, uint32_t rank,
                                     struct hly_boot_answer *answer);
void hly_boot_table_finish(struct hly_boot_table *table);
/* Logs which rank is a node of its own although other ranks are on its machine, and how many more
 * such ranks there are. */
void hly_boot_say_alone(const struct hly_boot_log *log, const struct hly_boot_hello *hellos,
                        int nranks);
/* NULL if both run the same build; else text: how they differ, with a remedy. */
const char *hly_boot_builds_differ(const struct hly_boot_hello *a, const struct hly_boot_hello *b,
                                   char text[400]);
/* NULL unless one process listens at the loopback of a network namespace in which the other is not;
 * then text: which one, with a remedy. A process outside the caller's namespace counts as one in a
 * container. */
const char *hly_boot_cut_off(const struct hly_boot_hello *a, const struct hly_boot_hello *b,
                             char text[400]);
/* Fills *id from the table, except for listen_fd. HALAY_ENOMEM; HALAY_EBOOT: the table is
 * invalid. */
int hly_boot_table_read(const struct hly_boot_key *key, const struct hly_boot_answer *answer,
                        const char *table, struct hly_boot_identity *id);
void hly_boot_identity_finish(struct hly_boot_identity *id);

/* ---------------------------------------------------------------- the holder */

enum { HLY_BOOT_STRANGERS = 64 };

/* A connected client. It is known once its hello has proved the secret; until then it is a
 * stranger. */
struct hly_boot_guest {
    int fd; /* -1: the slot is free */
    bool known, answering;
    bool stays; /* its connection stays after the answer: an agent, or rank 0 */
    size_t got, sent;
    uint64_t since_ns;
    struct hly_piece body[2]; /* the table and the guest's part of the processes; or a text */
    struct hly_boot_greeting greeting;
    struct hly_boot_hello hello;
    struct hly_boot_answer answer;
};

/* The holder's sockets: accepts guests, reads their hellos, sends answers. Its owner decides whom
 * it waits for. */
struct hly_boot_reception {
    const struct hly_boot_log *log;
    const struct hly_boot_key *key;
    /* "rank 0"; the answer to a guest that does not prove the secret */
    const char *holder, *refusal;
    int listen_fd, epoll_fd; /* the owner's; made by _open */
    bool local;
    const halay_address_t *address; /* not NULL: only guests of this user; the greeting has it */
    int nslots, cursor;             /* cursor: where to look for a free slot first */
    int nknown;                     /* guests that are known and still connected */
    struct hly_boot_guest *guests;
    bool other_version;        /* a guest of another version has come */
    uint64_t expire_ns;        /* when to look for strangers that time out */
    char note[320];            /* of the last guest that was refused */
    uint64_t say_ns, quiet_ns; /* when to log the next refusal */
    void *arg;
    void (*heard)(void *arg, struct hly_boot_guest *guest); /* a guest has become known */
    /* A known guest has left, or sends more than one hello; its descriptor is closed. */
    void (*left)(void *arg, struct hly_boot_guest *guest);
    /* A guest that stays has sent these bytes. False, or NULL: closes its connection. */
    bool (*said)(void *arg, struct hly_boot_guest *guest, const char *bytes, size_t n);
    void (*full)(void *arg); /* there are no descriptors left */
};

/* NULL: no memory. With room for `order`. */
struct hly_worlds *hly_boot_worlds_new(int nplaces, int least);

/* The caller has set log, key, holder, refusal, listen_fd, local, address and the callbacks.
 * HALAY_ENOMEM, HALAY_EBOOT (see errno). Call _close in any case. */
int hly_boot_reception_open(struct hly_boot_reception *r, int nguests);
/* Handles the events that have come; waits for one at most timeout_ms. */
void hly_boot_reception_turn(struct hly_boot_reception *r, int timeout_ms);
/* Answers a guest. The caller keeps payload and part until the guest has left. sha: of the
 * payload's first a->bytes, NULL: to be computed; part: more bytes to send after the payload, or
 * NULL. */
void hly_boot_reception_answer(struct hly_boot_reception *r, struct hly_boot_guest *guest,
                               const struct hly_boot_answer *a, const char *payload,
                               const struct hly_sha *sha, const struct hly_piece *part);
/* Answers a guest with a text. said: HLY_BOOT_SAID, HLY_BOOT_OVER. */
void hly_boot_reception_text(struct hly_boot_reception *r, struct hly_boot_guest *guest,
                             const char *text, uint32_t said);
/* Sends more bytes to a guest that stays. False: its answer has not left yet, or the socket is
 * full. */
bool hly_boot_reception_push(const struct hly_boot_guest *guest, const void *bytes, size_t n);
/* Have all known guests got their answers, or left? */
bool hly_boot_reception_sent(const struct hly_boot_reception *r);
/* The caller is about to free what answers point to: disconnects guests whose answers have not
 * left. */
void hly_boot_reception_forget(struct hly_boot_reception *r);
void hly_boot_reception_dismiss(struct hly_boot_reception *r, struct hly_boot_guest *guest);
void hly_boot_reception_close(struct hly_boot_reception *r);

/* ---------------------------------------------------------------- a guest */

struct hly_boot_visit {
    const struct hly_boot_log *log;
    const struct hly_boot_key *key;
    const char *guest, *holder; /* "rank 3"; "rank 0 at 'host' port 7" */
    uint64_t end_ns;
    enum hly_boot_heard { HLY_BOOT_HEARD, HLY_BOOT_HUNG_UP, HLY_BOOT_GAVE_UP } * heard;
    /* If heard is not NULL, *heard reports a missing answer, which is not logged. The holder has
     * closed the connection, or this guest has given up at wait_ns. When it gives up it shuts down
     * its side of a Unix socket: an answer has come before that, or never comes. */
    uint64_t wait_ns; /* for a node's list; 0: waits for the answer until end_ns */
};

enum { HLY_BOOT_WHY = 200 };

/* How a guest looks for the holder, from notices.since_ns to end_ns. */
struct hly_boot_search {
    const struct hly_boot_log *log;
    const struct hly_boot_key *key;
    const struct sockaddr_un *near; /* a Unix socket of this machine; NULL: the holder is */
    const char *name;               /* on this host, at one of these ports */
    const int *ports;
    int nports;
    uint64_t end_ns, timeout_ns; /* timeout_ns: for a port that does not answer, at first */
    struct hly_notices notices;
    const char *who, *looks; /* "halay_init"; "rank 1 looks for rank 0 at 'host'" */
    int port;                /* at which the holder is */
    char why[HLY_BOOT_WHY];  /* what was found last instead of it */
};
/* The connection, greeted and non-blocking, or -1. */
int hly_boot_find(struct hly_boot_search *search, struct hly_boot_greeting *greeting);
/* The same at one address, at this port of it if that is not 0. -1: errno is EAGAIN if the holder
 * may be there, and be too busy. */
int hly_boot_knock(const struct hly_boot_key *key, const struct sockaddr *to, socklen_t bytes,
                   int port, uint64_t until_ns, struct hly_boot_greeting *greeting,
                   char why[HLY_BOOT_WHY]);
/* Waits until until_ns for a descriptor to be ready. False: it is not. */
bool hly_boot_wait(int fd, short events, uint64_t until_ns);
/* Reads the holder's greeting. False: *why says who answers instead, if anybody does. */
bool hly_boot_visit_greeted(const struct hly_boot_key *key, int fd, uint64_t until_ns,
                            struct hly_boot_greeting *greeting, const char **why);
/* Sends the hello over a greeted, non-blocking connection, and reads the answer, which is JOINED,
 * LISTED or APART. The caller frees *payload. HALAY_EBOOT, HALAY_ENOMEM, logged. */
int hly_boot_visit_ask(const struct hly_boot_visit *visit, int fd,
                       const struct hly_boot_greeting *greeting, struct hly_boot_hello *hello,
                       struct hly_boot_answer *answer, char **payload);
/* The same, and fills *id from the answer. The caller closes the connection. */
int hly_boot_visit(const struct hly_boot_visit *visit, int fd,
                   const struct hly_boot_greeting *greeting, struct hly_boot_hello *hello,
                   struct hly_boot_identity *id);

#endif
