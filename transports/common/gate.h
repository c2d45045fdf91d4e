/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gate.h - how much strangers may cost: some at once, then one in so long. While more than that
 * have come and gone, nobody is let in: who calls waits in the socket's queue.
 */
#ifndef HALAY_TRANSPORTS_COMMON_GATE_H
#define HALAY_TRANSPORTS_COMMON_GATE_H

#include <stdint.h>

enum { HLY_MEET_STRANGERS = 32 };             /* at once */
#define HLY_MEET_STRANGER_NS UINT64_C(500000) /* for each; one costs 10 to 30 us of this rank */

typedef struct hly_meet_gate {
    int shut;
    uint64_t open_ns; /* when all that have come are paid for, less those at once */
} hly_meet_gate_t;

/* A stranger has gone. */
void hly_meet_gate_charge(hly_meet_gate_t *gate, uint64_t now);
/* Watches the socket that listens, or not, as it has to be now. watch: epoll's data. */
void hly_meet_gate_set(hly_meet_gate_t *gate, uint64_t now, int epoll_fd, int listen_fd,
                       void *watch);

#endif
