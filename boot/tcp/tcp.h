/* SPDX-License-Identifier: Apache-2.0 */
/* tcp.h - the meeting of ranks by variables, which rank 0 holds: its settings, and where it is
 * found. Inside boot/tcp/ only. docs/decisions/bootstraps.md#0008. */
#ifndef HALAY_BOOT_TCP_H
#define HALAY_BOOT_TCP_H

#include <stdbool.h>
#include <stdint.h>

#include <halay/boot.h>

#include "../common/meet.h"

enum {
    HLY_TCP_PORT_OFFSET = 101, /* the first port tried is MASTER_PORT + this */
    HLY_TCP_PORTS = 16
};

struct hly_tcp_variables {
    char address[HLY_BOOT_NAME]; /* of rank 0 */
    char claim[768];             /* all that names the job, as this process has it */
    char rank_text[16], port_text[8];
    int port, ports[HLY_TCP_PORTS], nports;
    int rank, nranks;
    bool given;  /* by the program, not by variables */
    int door_fd; /* where rank 0 listens for the others by now, at `port`; -1: nowhere */
    struct hly_boot_key key;
};

struct hly_tcp {
    const struct hly_boot_log *log;
    const struct hly_tcp_variables *v;
    uint64_t begin_ns, end_ns;  /* of the monotonic clock */
    int listen_fd;              /* -1: not yet; its address is in self */
    struct hly_boot_hello self; /* what this rank says of itself; its proof is made for each send */
};

/* Whether the environment has any of the variables. *announced: WORLD_SIZE, or 1. */
int hly_tcp_announced(int *announced);
/* Reads and checks the variables. HALAY_EBOOT, logged with variable and remedy. */
int hly_tcp_variables(const struct hly_boot_log *log, struct hly_tcp_variables *v);
/* The same of what a program says instead, by its allgather if there is one. v->door_fd is the
 * caller's, also where this fails. */
int hly_tcp_given(const struct hly_boot_log *log, const halay_boot_rank_t *given,
                  uint64_t deadline_ns, struct hly_tcp_variables *v);
/* Asks the program's allgather where rank 0 is: v's address, port, secret and door_fd. Logged. */
int hly_tcp_gather(const struct hly_boot_log *log, const halay_boot_rank_t *given,
                   uint64_t deadline_ns, struct hly_tcp_variables *v);

/* Meets the others at rank 0, and fills *id, also its listen_fd. Logged. */
int hly_tcp_join(const struct hly_boot_log *log, const struct hly_tcp_variables *v,
                 uint64_t deadline_ns, const halay_boot_info_t *info, struct hly_boot_identity *id);
/* Rank 0's part and that of the others. Fill *id. Logged. */
int hly_tcp_host(struct hly_tcp *tcp, struct hly_boot_identity *id);
int hly_tcp_guest(struct hly_tcp *tcp, struct hly_boot_identity *id);

/* Says hello over a greeted connection, which it closes, and fills *id from the answer. */
int hly_tcp_meet(struct hly_tcp *tcp, int fd, int port, const struct hly_boot_greeting *greeting,
                 struct hly_boot_identity *id);

#endif
