/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_transport_tcp.c - the transport between nodes over TCP, by loopback: what all such
 * transports have to pass (net_cases.c), and what is special about it.
 *
 *   test_unit_transport_tcp [case]
 */
#include <stdio.h>
#include <string.h>

#include "../../transports/tcp/tcp.h"
#include "net_rank.h"
#include "tcp_stream.h"
#include "transport_body.h"

extern const halay_transport_ops_t halay_transport_v7_tcp;
const halay_transport_ops_t *const net = &halay_transport_v7_tcp;
const uint64_t net_magic = HLY_TCP_MAGIC;
const size_t net_tells = sizeof(hly_tcp_tell_t);

static void killed(void)
{
    for (int polls = 0; polls <= 30; polls += 3)
        printf("%s%s", net_killed_once(polls, NET_LARGE), polls < 30 ? ", " : "\n");
}

/* More connections than are read without asking which. */
static void contract_many(void)
{
    static const char *const some[] = {"many_to_one", "wake_by_many", "idle", "land", "close"};
    struct transport_body body = {.ops = net, .n = 12};
    for (size_t i = 0; i < sizeof(some) / sizeof(some[0]); i++)
        CHECK(transport_body_run(&body, some[i]) == 0, "%s", some[i]);
}

static const struct net_case cases[] = {
    {"killed", killed},   {"contract_many", contract_many},
    {"mixed", mixed},     {"both_call", both_call},
    {"patient", patient}, {"refused_wakes", refused_wakes},
    {"cut", cut},         {"too_large", too_large},
    {"leaves", leaves},   {"nonsense", nonsense},
};

int main(int argc, char **argv)
{
    struct net_case all[32];
    const size_t n = sizeof(cases) / sizeof(cases[0]);
    memcpy(all, cases, sizeof(cases));
    memcpy(all + n, tcp_seal_cases, tcp_seal_ncases * sizeof(all[0]));
    return net_cases_main(argc, argv, all, n + tcp_seal_ncases);
}
