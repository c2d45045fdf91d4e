/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_transport_tcp.c - the transport between nodes over TCP, by loopback: what all such
 * transports have to pass (net_cases.c), and what is special about it.
 *
 *   test_unit_transport_tcp [case]
 */
#include <stdio.h>
#include <string.h>

#include "net_rank.h"
#include "tcp_stream.h"
#include "transport_body.h"

extern const halay_transport_ops_t halay_transport_v6_tcp;
const halay_transport_ops_t *const net = &halay_transport_v6_tcp;

size_t hello_make(const char *secret, uint8_t hello[128])
{
    const uint64_t magic = UINT64_C(0x3150435459414c48);
    const uint32_t kind = 1;
    memcpy(hello, &magic, 8);
    memcpy(hello + 8, &kind, 4);
    memcpy(hello + 48, secret, strlen(secret));
    return 88;
}

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
    {"killed", killed},     {"contract_many", contract_many},
    {"mixed", mixed},       {"both_call", both_call},
    {"patient", patient},   {"refused_wakes", refused_wakes},
    {"cut", cut},           {"too_large", too_large},
    {"nonsense", nonsense},
};

int main(int argc, char **argv)
{
    return net_cases_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]));
}
