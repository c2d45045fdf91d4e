/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tcp.h - the rendezvous over TCP: its settings, what goes over the wire, and what comes out of it.
 * Inside boot/tcp/ only. docs/decisions/0008.
 *
 * Rank 0 listens and speaks first, so that no stranger on a probed port is sent anything:
 *   rank 0 -> rank r   greeting
 *   rank r -> rank 0   hello, proving the secret against the greeting's challenge
 *   rank 0 -> rank r   answer, proving it against the hello's, and a payload: the table and the
 *                      processes of r's node, or a text that says why there is no job
 */
#ifndef HALAY_BOOT_TCP_H
#define HALAY_BOOT_TCP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <halay/boot.h>

#include "../../keys/keys.h"
#include "../common/listen.h"
#include "../common/lookup.h"
#include "../common/places.h"
#include "../common/share.h"

#define HLY_TCP_MAGIC 0x315a564459414c48ull /* "HLAYDVZ1" on a little-endian machine */

enum {
    HLY_TCP_VERSION = 4,
    HLY_TCP_RANKS_MAX = 65536,
    HLY_TCP_PORT_OFFSET = 101, /* the first port tried is MASTER_PORT + this */
    HLY_TCP_PORTS = 16,
    HLY_TCP_TEXT_BYTES = 1024
};

struct hly_tcp_variables {
    char address[256]; /* of rank 0 */
    char claim[768];   /* all that names the job, as this process has it */
    char rank_text[16], port_text[8];
    int port, ports[HLY_TCP_PORTS], nports;
    int rank, nranks;
    bool has_secret;
    uint8_t secret_key[32]; /* of HALAY_SECRET, or of nothing */
    uint8_t key[16];        /* tells this job's rendezvous from another's */
};

struct hly_tcp_greeting {
    uint64_t magic;
    uint32_t version;
    uint16_t has_secret, local; /* local: rank 0 listens on loopback only */
    uint8_t key[16], challenge[16];
};

struct hly_tcp_hello {
    uint64_t magic;
    uint32_t version, bytes;
    uint8_t key[16], challenge[16];
    uint32_t rank, nranks, pid;
    halay_address_t address; /* where it listens */
    uint64_t left_ns;        /* until this rank's deadline */
    uint64_t netns;          /* with machine: two ranks share a node if they have the same */
    char machine[40];
    char host[HLY_BOOT_HOST_BYTES];
    char library[20];
    uint32_t processors; /* that the ranks of its node have; 0: not known */
    halay_process_t process;
    uint8_t mac[32];
};

struct hly_tcp_answer {
    uint64_t magic;
    uint32_t version, joined; /* joined: the payload is the table; else a text */
    uint32_t bytes;           /* of the payload */
    uint32_t nnodes, nruns, nothers, nprocesses;
    uint32_t said; /* 1: the text is in rank 0's log */
    uint8_t job[16];
    uint8_t secret[16]; /* zeros where HALAY_SECRET is: then it is derived */
    uint8_t mac[32];
};
_Static_assert(sizeof(struct hly_tcp_greeting) == 48 && sizeof(struct hly_tcp_hello) == 280 &&
                   sizeof(struct hly_tcp_answer) == 104,
               "no padding on the wire");

struct hly_tcp_identity {
    int rank, nranks, listen_fd;
    uint8_t job[16], secret[16];
    struct hly_boot_places places; /* points to what follows */
    struct hly_boot_run *runs;
    struct hly_boot_node *nodes;
    struct hly_boot_other *others;
    struct hly_boot_process *processes;
    uint16_t *ports;
};

struct hly_tcp {
    const struct hly_boot_log *log;
    const struct hly_tcp_variables *v;
    uint64_t begin_ns, end_ns; /* of the monotonic clock */
    int listen_fd;             /* -1: not yet; its address is in self */
    struct hly_tcp_hello self; /* what this rank says of itself; its proof is made for each send */
};

/* Whether the environment has any of the variables. *announced: WORLD_SIZE, or 1. */
int hly_tcp_announced(int *announced);
/* Reads and checks the variables. HALAY_EBOOT, logged with variable and remedy. */
int hly_tcp_variables(const struct hly_boot_log *log, struct hly_tcp_variables *v);

uint64_t hly_tcp_now_ns(void);
int hly_tcp_random(const struct hly_boot_log *log, void *bytes, size_t n);
/* "rank 3 (pid 7 on host)" */
const char *hly_tcp_who(const struct hly_tcp_hello *hello, char text[128]);

void hly_tcp_hello_mac(const struct hly_tcp_variables *v, const struct hly_tcp_greeting *greeting,
                       const struct hly_tcp_hello *hello, uint8_t mac[32]);
/* digest: of the payload */
void hly_tcp_answer_mac(const struct hly_tcp_variables *v, const struct hly_tcp_greeting *greeting,
                        const struct hly_tcp_hello *hello, const struct hly_tcp_answer *answer,
                        const uint8_t digest[32], uint8_t mac[32]);

/* The most that a rank adds to the table: a run, a port, an address of its own, a node, a
 * process. */
enum { HLY_TCP_RANK_BYTES = 8 + 2 + 24 + 17 + HLY_BOOT_HOST_BYTES + 32 };

/* What rank 0 hands out: the table, which all get, and behind it the processes, node by node, of
 * which each rank gets those of its node. */
struct hly_tcp_table {
    char *bytes;
    struct hly_tcp_part {
        uint32_t first, count;
    } * parts; /* by rank */
};
/* All ranks' hellos -> the table; answer's nnodes, nruns, nothers and bytes; in their addresses,
 * which nodes are oversubscribed. HALAY_ENOMEM. hly_tcp_table_finish is due in any case. */
int hly_tcp_table_write(struct hly_tcp_hello *hellos, int nranks, struct hly_tcp_answer *answer,
                        struct hly_tcp_table *table);
/* The rank's part, which comes after the table; *answer is made the rank's. Rank 0's part is right
 * behind the table in memory, too. */
struct hly_piece hly_tcp_table_part(const struct hly_tcp_table *table, uint32_t rank,
                                    struct hly_tcp_answer *answer);
void hly_tcp_table_finish(struct hly_tcp_table *table);
/* The table -> *id, all but rank and nranks, which are read. HALAY_ENOMEM, HALAY_EBOOT (no table).
 */
int hly_tcp_table_read(const struct hly_tcp_variables *v, const struct hly_tcp_answer *answer,
                       const char *table, struct hly_tcp_identity *id);

void hly_tcp_identity_finish(struct hly_tcp_identity *id);

/* Where rank 0 listens for the rendezvous: on loopback if its address is that, else everywhere. */
struct hly_tcp_door {
    struct sockaddr_storage at;
    socklen_t bytes;
    bool local;
    halay_address_t near; /* at which the others find rank 0; family 0: not known */
};
void hly_tcp_door_place(const struct hly_tcp *tcp, struct hly_tcp_door *door);
/* A socket, or -1 with errno. */
int hly_tcp_door_open(struct hly_tcp_door *door, int port);
/* Makes the socket that the job's ranks connect to, at the address `near` if that can be: where
 * this rank is reached from, or reaches rank 0. HALAY_INTERFACE comes first. Logged. */
int hly_tcp_listen(struct hly_tcp *tcp, const halay_address_t *near);
int hly_tcp_listen_beside(struct hly_tcp *tcp, int fd, const struct hly_tcp_greeting *greeting);

/* Rank 0's part and that of the others. Fill *id. Logged. */
int hly_tcp_host(struct hly_tcp *tcp, struct hly_tcp_identity *id);
int hly_tcp_guest(struct hly_tcp *tcp, struct hly_tcp_identity *id);

/*
 * Is there a rendezvous of this job at this address? Waits at most until until_ns. The connection,
 * greeted and non-blocking, or -1; why[200] says then what is there instead.
 */
struct addrinfo;
int hly_tcp_knock(const struct hly_tcp *tcp, const struct addrinfo *at, int port, uint64_t until_ns,
                  struct hly_tcp_greeting *greeting, char *why);
/* Says hello over a greeted connection, which it closes, and fills *id from the answer. */
int hly_tcp_meet(struct hly_tcp *tcp, int fd, int port, const struct hly_tcp_greeting *greeting,
                 struct hly_tcp_identity *id);

#endif
