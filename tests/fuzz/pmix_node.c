/* SPDX-License-Identifier: Apache-2.0 */
/* What the first rank of a node hears of the others, and of strangers, over the node's door. */
#include "boot/common/reception.c" /* NOLINT(bugprone-suspicious-include) */
#include "pmix/node.c"             /* NOLINT(bugprone-suspicious-include) */

#include "guests.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    enum { LOCAL = 3, GUESTS = 4, HELLO = 0x40, SHARE = 0x7f, CLOSE = 0x7e };
    static const uint32_t local[LOCAL] = {0, 1, 5};
    const struct hly_boot_log log = {NULL, NULL};
    struct fuzz f = {data, bytes};
    struct hly_boot_guest guests[GUESTS];
    struct hly_boot_hello hellos[LOCAL] = {{0}};
    struct hly_node node = {.log = &log,
                            .nspace = "fuzz",
                            .nlocal = LOCAL,
                            .local = local,
                            .half_ns = UINT64_MAX / 4,
                            .end_ns = UINT64_MAX / 2};
    hly_node_init(&node);
    node.role = HLY_ROLE_FIRST;
    node.self = (struct hly_boot_hello){.host = "host", .address.family = AF_INET};
    node.hellos = hellos;
    node.worlds = hly_boot_worlds_new(LOCAL, 1);
    FUZZ_WANT(node.worlds);
    node.reception = (struct hly_boot_reception){.log = &log,
                                                 .key = &node.key,
                                                 .holder = "first",
                                                 .refusal = "no",
                                                 .listen_fd = -1,
                                                 .epoll_fd = FUZZ_FD,
                                                 .nslots = GUESTS,
                                                 .guests = guests,
                                                 .arg = &node,
                                                 .heard = hear_rank,
                                                 .left = lose_rank,
                                                 .full = run_out};
    for (int i = 0; i < GUESTS; i++)
        guests[i].fd = -1;
    begin(&node);
    fuzz_net_feed(&f);
    while (f.left) {
        const uint8_t what = fuzz_byte(&f);
        struct hly_boot_guest *g = &guests[what % GUESTS];
        if (g->fd < 0)
            come(g);
        if (what == CLOSE)
            node.worlds->list_ns = 1;
        if (what & HELLO && what < CLOSE && !g->got)
            say_hello(&node.reception, g, &f);
        else
            guest_event(&node.reception, g, EPOLLIN);
        turn(&node, 0);
        if (what == SHARE && node.worlds->listed && !node.failure[0])
            hly_node_share(&node, -1);
    }
    for (int i = 0; i < GUESTS; i++)
        if (guests[i].fd >= 0)
            hly_boot_reception_dismiss(&node.reception, &guests[i]);
    FUZZ_WANT(node.reception.nknown == 0 && hly_worlds_asking(node.worlds) <= LOCAL);
    free(node.came);
    free(node.worlds);
    return 0;
}
