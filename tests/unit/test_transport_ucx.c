/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_transport_ucx.c - the transport between nodes over UCX, by loopback: what all such
 * transports have to pass (net_cases.c), and what is special about it.
 *
 *   test_unit_transport_ucx [case]
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <ucp/api/ucp.h>
#include <unistd.h>

#include "net_rank.h"

extern const halay_transport_ops_t halay_transport_v7_ucx;
const halay_transport_ops_t *const net = &halay_transport_v7_ucx;
const uint64_t net_magic = UINT64_C(0x3558435559414c48);
const size_t net_tells = 8;

static void killed(void)
{
    /* By rendezvous, and below its threshold. */
    for (size_t bytes = NET_LARGE; bytes >= 256 << 10; bytes /= 64)
        for (int polls = 0; polls < 8; polls++)
            printf("%s%s", net_killed_once(polls, bytes), polls < 7 ? ", " : "\n");
}

/* Whoever listens there dies, or says something else, before it has answered: FAILED names it. */
static void hung_up(void)
{
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof(name);
    halay_event_t event;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    CHECK(bind(fd, (struct sockaddr *)&name, bytes) == 0 && listen(fd, 8) == 0 &&
              getsockname(fd, (struct sockaddr *)&name, &bytes) == 0,
          "%s", strerror(errno));
    halay_address_t there = {.family = AF_INET, .port = name.sin_port, .ip = {127, 0, 0, 1}};
    for (int talks = 0; talks < 2; talks++) {
        rank_t rank = {0};
        char text[64];
        int calls = 0;
        rank_open(&rank, 1, 1000 * MS);
        rank_connect(&rank, 2, &there);
        uint64_t begun = clock_ns();
        while (rank.failed == 0 && clock_ns() - begun < 5000 * MS) {
            int one = accept(fd, NULL, NULL);
            if (one >= 0 && talks)
                give(one, "HTTP/1.1 400 Bad Request\r\n\r\n", 28);
            calls += one >= 0;
            rank_wait(&rank, MS, &event);
            close(one);
        }
        snprintf(text, sizeof(text), "127.0.0.1:%u", ntohs(there.port));
        CHECK(rank.failed == 1 && clock_ns() - begun < 2000 * MS, "%d FAILED", rank.failed);
        CHECK(strstr(rank.text, text), "%s", rank.text);
        CHECK(strstr(rank.text, talks ? "does not speak" : "hung up on this rank"), "%s",
              rank.text);
        CHECK(talks ? calls == 1 : calls > 3 && calls < 60, "%d calls", calls); /* pauses grow */
        net->close(rank.transport);
    }
    close(fd);
}

/* UCX would take it. */
static void signals(void)
{
    rank_t rank = {0};
    struct sigaction action;
    rank_open(&rank, 1, 300 * MS);
    CHECK(sigaction(SIGSEGV, NULL, &action) == 0, "sigaction");
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) /* which have their own */
    CHECK(action.sa_handler == SIG_DFL || getenv("UCX_HANDLE_ERRORS"), "UCX has taken SIGSEGV");
#endif
    net->close(rank.transport);
}

static uint64_t memory_types; /* 0: those that UCX has */

/* In the place of UCX's. */
ucs_status_t ucp_context_query(ucp_context_h context, ucp_context_attr_t *attr)
{
    union {
        void *symbol;
        ucs_status_t (*call)(ucp_context_h context, ucp_context_attr_t *attr);
    } real = {dlsym(RTLD_NEXT, "ucp_context_query")};
    CHECK(real.symbol, "UCX has no such call");
    const ucs_status_t status = real.call(context, attr);
    if (memory_types && attr->field_mask & UCP_ATTR_FIELD_MEMORY_TYPES)
        attr->memory_types = memory_types;
    return status;
}

/* With support for CUDA and without: it says why it does not carry a GPU's memory. */
static void gpu(void)
{
    rank_t rank = {0};
    rank_open(&rank, 1, 300 * MS);
    for (int with = -1; with < 2; with++) {
        halay_transport_attr_t attr = {.size = sizeof(attr)};
        memory_types =
            with < 0 ? 0 : UCS_BIT(UCS_MEMORY_TYPE_HOST) | (uint64_t)with << UCS_MEMORY_TYPE_CUDA;
        CHECK(net->query(rank.transport, &attr) == HALAY_OK, "query");
        CHECK(!(attr.capabilities & HALAY_CAN_DEVICE), "it says that it carries it");
        CHECK(strstr(attr.over, "not a GPU's memory: this UCX"), "%s", attr.over);
        CHECK(with < 0 || !!strstr(attr.over, "has no support for CUDA") == !with, "%s", attr.over);
    }
    net->close(rank.transport);
}

static const struct net_case cases[] = {
    {"gpu", gpu},
    {"killed", killed},
    {"hung_up", hung_up},
    {"signals", signals},
};

int main(int argc, char **argv)
{
    return net_cases_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]));
}
