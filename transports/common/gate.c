/* SPDX-License-Identifier: Apache-2.0 */
/* gate.c - see gate.h */
#include "gate.h"

#include <sys/epoll.h>

void hly_meet_gate_charge(hly_meet_gate_t *gate, uint64_t now)
{
    const uint64_t burst = HLY_MEET_STRANGERS * HLY_MEET_STRANGER_NS;
    uint64_t least = now > burst ? now - burst : 0;
    gate->open_ns = (gate->open_ns > least ? gate->open_ns : least) + HLY_MEET_STRANGER_NS;
}

void hly_meet_gate_set(hly_meet_gate_t *gate, uint64_t now, int epoll_fd, int listen_fd,
                       void *watch)
{
    int shut = gate->open_ns > now;
    struct epoll_event event = {.events = shut ? 0 : EPOLLIN, .data.ptr = watch};
    if (shut != gate->shut)
        epoll_ctl(epoll_fd, EPOLL_CTL_MOD, listen_fd, &event);
    gate->shut = shut;
}
