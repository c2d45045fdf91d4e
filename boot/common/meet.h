/* SPDX-License-Identifier: Apache-2.0 */
/*
 * meet.h - how processes meet: one of them (rank 0, a node's first rank, or a launcher's driver)
 * holds the meeting, hears all others, its guests, and answers them. Inside boot/ and pmix/ only.
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

#include <halay/boot.h>

#include "../../common/keys.h"
#include "places.h"
#include "share.h"
#include "world.h"

#define HLY_BOOT_MAGIC  0x315a564459414c48ull /* "HLAYDVZ1" on a little-endian machine */
#define HLY_BOOT_NOBODY UINT32_MAX            /* no rank */

enum { HLY_BOOT_VERSION = 9, HLY_BOOT_RANKS_MAX = 65536, HLY_BOOT_TEXT_BYTES = 1024 };

/* In an answer: the payload is the table; and ranks may change from one meeting to the next. Rank
 * 0's connection stays open then, and brings how many newcomers wait, whenever that has changed, as
 * a uint32_t. ALIKE: all ranks have the same `kept`. LISTED, and nothing else: what all wait for
 * follows later. */
enum { HLY_BOOT_JOINED = 1, HLY_BOOT_CHANGES = 2, HLY_BOOT_ALIKE = 4, HLY_BOOT_LISTED = 8 };
/* In a refusal: its text is in the holder's log; the job ends; it goes on, and the guest, too, as a
 * node of its own. */
enum { HLY_BOOT_SAID = 1, HLY_BOOT_OVER = 2, HLY_BOOT_APART = 4 };
#define HLY_BOOT_AGENT UINT32_MAX /* slot of a hello: a launcher, with `nranks` places */

/* What holder and guests know before they meet. */
struct hly_boot_key {
    bool has_secret;
    uint8_t secret[32]; /* made of HALAY_SECRET, or of nothing */
    uint8_t job[16];    /* tells this job's meeting from another's */
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
    uint32_t rank, nranks, pid; /* rank, nranks: HLY_BOOT_NOBODY where the holder gives them;
                                 * nranks 0: it leaves, and wants no rank */
    halay_address_t address;    /* where it listens */
    uint64_t left_ns;           /* until this rank's deadline */
    uint64_t netns; /* with machine and uid: two ranks share a node if they have the same */
    char machine[40];
    char host[HLY_BOOT_HOST_BYTES];
    char library[24];
    char alone[HLY_SHARE_WHY]; /* why it can share no memory; else empty */
    uint32_t processors;       /* that the ranks of its node have; 0: not known */
    uint32_t uid;              /* no user gives another its memory */
    halay_process_t process;
    uint8_t id[16];     /* of the process, random; zeros where the holder does not ask */
    uint64_t epoch;     /* that it was in last; 0: none */
    uint32_t slot, was; /* which of the launcher's processes; its rank in that epoch */
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
    uint8_t secret[16]; /* zeros where HALAY_SECRET is: then it is derived */
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
    struct hly_boot_places places; /* points to what follows */
    struct hly_boot_run *runs;
    struct hly_boot_node *nodes;
    struct hly_boot_other *others;
    struct hly_boot_process *processes;
    uint16_t *ports;
};

uint64_t hly_boot_now_ns(void);
/* Is the other end of a Unix socket a process of this user? */
bool hly_boot_same_user(int fd);
/* HALAY_EBOOT, logged. */
int hly_boot_random(const struct hly_boot_log *log, void *bytes, size_t n);
/* Fills what a hello says of this process: its machine, host, pid, library. Where it can share no
 * memory its machine is `name`, and nobody else's. info: of its caller; NULL: it is no rank. */
void hly_boot_describe(const char *name, const halay_boot_info_t *info,
                       struct hly_boot_hello *hello);
/* "rank 3 (pid 7 on host)" */
const char *hly_boot_who(const struct hly_boot_hello *hello, char text[128]);

void hly_boot_hello_mac(const struct hly_boot_key *key, const struct hly_boot_greeting *greeting,
                        const struct hly_boot_hello *hello, uint8_t mac[32]);
/* digest: of the payload */
void hly_boot_answer_mac(const struct hly_boot_key *key, const struct hly_boot_greeting *greeting,
                         const struct hly_boot_hello *hello, const struct hly_boot_answer *answer,
                         const uint8_t digest[32], uint8_t mac[32]);

/* ---------------------------------------------------------------- the table */

/* The most that a rank adds to the table: a run, a port, an address of its own, a node, a
 * process. */
enum { HLY_BOOT_RANK_BYTES = 8 + 2 + 24 + 17 + HLY_BOOT_HOST_BYTES + 32 };

/* What the holder hands out: the table, which all get, and after it the processes, node by node,
 * of which each rank gets those of its node. */
struct hly_boot_table {
    char *bytes;
    struct hly_boot_part {
        uint32_t first, count;
    } * parts; /* by rank */
};
/* All ranks' hellos -> the table; answer's nnodes, nruns, nothers and bytes; in their addresses,
 * which nodes are oversubscribed. HALAY_ENOMEM. hly_boot_table_finish is due in any case. */
int hly_boot_table_write(struct hly_boot_hello *hellos, int nranks, struct hly_boot_answer *answer,
                         struct hly_boot_table *table);
/* The rank's part, which comes after the table; *answer is made the rank's. Rank 0's part is right
 * behind the table in memory, too. */
struct hly_piece hly_boot_table_part(const struct hly_boot_table *table, uint32_t rank,
                                     struct hly_boot_answer *answer);
void hly_boot_table_finish(struct hly_boot_table *table);
/* Says which rank is a node of its own although others are on its machine, and how many more are.
 */
void hly_boot_say_alone(const struct hly_boot_log *log, const struct hly_boot_hello *hellos,
                        int nranks);
/* NULL if all run the same build; else which two do not, and what to do, in text. */
const char *hly_boot_builds_differ(const struct hly_boot_hello *a, const struct hly_boot_hello *b,
                                   char text[400]);
/* NULL unless one listens at the loopback of a network namespace that is not the other's; else
 * which, and what to do, in text. Knows a container by being in the launcher's namespace itself. */
const char *hly_boot_cut_off(const struct hly_boot_hello *a, const struct hly_boot_hello *b,
                             char text[400]);
/* The table -> *id, all but its listen_fd. HALAY_ENOMEM, HALAY_EBOOT (no table). */
int hly_boot_table_read(const struct hly_boot_key *key, const struct hly_boot_answer *answer,
                        const char *table, struct hly_boot_identity *id);
void hly_boot_identity_finish(struct hly_boot_identity *id);

/* ---------------------------------------------------------------- the holder */

enum { HLY_BOOT_STRANGERS = 64 };

/* Anyone connected; it is known with a hello that proves the secret. */
struct hly_boot_guest {
    int fd; /* -1: the slot is free */
    bool known, answering;
    bool stays; /* behind its answer, too: an agent, rank 0 */
    size_t got, sent;
    uint64_t since_ns;
    struct hly_piece body[2]; /* the table, and its part; or a text */
    struct hly_boot_greeting greeting;
    struct hly_boot_hello hello;
    struct hly_boot_answer answer;
};

/* Lets guests in, hears and answers them. Its owner knows which it awaits. */
struct hly_boot_reception {
    const struct hly_boot_log *log;
    const struct hly_boot_key *key;
    const char *holder, *refusal; /* "rank 0"; what a guest that proves nothing is told */
    int listen_fd, epoll_fd;      /* the owner's; made by _open */
    bool local;
    const halay_address_t *address; /* not NULL: guests are of this user, and are greeted with it */
    int nslots, cursor;             /* cursor: where to look for a free slot first */
    int nknown;                     /* guests that are known and still connected */
    struct hly_boot_guest *guests;
    bool other_version;        /* one has come that speaks another one */
    uint64_t expire_ns;        /* when strangers are looked at next */
    char note[320];            /* of the last guest that was refused */
    uint64_t say_ns, quiet_ns; /* when the next one is logged */
    void *arg;
    void (*heard)(void *arg, struct hly_boot_guest *guest); /* it is known by now */
    /* A known guest has left, or sends more than one hello; its descriptor is closed. */
    void (*left)(void *arg, struct hly_boot_guest *guest);
    /* One that stays has said this. false: it is to be lost. May be NULL. */
    bool (*said)(void *arg, struct hly_boot_guest *guest, const char *bytes, size_t n);
    void (*full)(void *arg); /* there are no descriptors left */
};

/* Takes the members of the first three lines and the callbacks as they are. HALAY_ENOMEM,
 * HALAY_EBOOT (errno says why); _close is due in any case. */
int hly_boot_reception_open(struct hly_boot_reception *r, int nguests);
/* One look at what has come, for at most timeout_ms. */
void hly_boot_reception_turn(struct hly_boot_reception *r, int timeout_ms);
/* payload and body stay the caller's, and stay until the guest has left. sha: of the payload's
 * first a->bytes; part: what comes after it, or NULL. */
void hly_boot_reception_answer(struct hly_boot_reception *r, struct hly_boot_guest *guest,
                               const struct hly_boot_answer *a, const char *payload,
                               const struct hly_sha *sha, const struct hly_piece *part);
/* said: HLY_BOOT_SAID, HLY_BOOT_OVER. */
void hly_boot_reception_text(struct hly_boot_reception *r, struct hly_boot_guest *guest,
                             const char *text, uint32_t said);
/* Behind its answer. false: not now. */
bool hly_boot_reception_push(const struct hly_boot_guest *guest, const void *bytes, size_t n);
/* Whether all that are known have got their answers, or have left. */
bool hly_boot_reception_sent(const struct hly_boot_reception *r);
/* What answers point to will go: ends the guests that have not taken all of theirs. */
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
    /* heard: not NULL: there is no answer, which is not logged, for the holder has hung up, or this
     * guest has given up at wait_ns. It has shut its side of a Unix socket then, so an answer is
     * there already, or can never come. */
    uint64_t wait_ns; /* 0: not of a list: an answer is awaited until end_ns */
};

/* Waits until *end_ns for a descriptor to be ready. */
bool hly_boot_wait(int fd, short events, uint64_t until_ns);
/* The holder's greeting. false: something else answers, `why` says what. */
bool hly_boot_visit_greeted(const struct hly_boot_key *key, int fd, uint64_t until_ns,
                            struct hly_boot_greeting *greeting, const char **why);
/* Says hello over a greeted, non-blocking connection, and takes the answer: it has JOINED, or is
 * LISTED or APART, and *payload is the caller's. HALAY_EBOOT, HALAY_ENOMEM, logged. */
int hly_boot_visit_ask(const struct hly_boot_visit *visit, int fd,
                       const struct hly_boot_greeting *greeting, struct hly_boot_hello *hello,
                       struct hly_boot_answer *answer, char **payload);
/* The same, and fills *id from the answer. The connection stays the caller's. */
int hly_boot_visit(const struct hly_boot_visit *visit, int fd,
                   const struct hly_boot_greeting *greeting, struct hly_boot_hello *hello,
                   struct hly_boot_identity *id);

#endif
