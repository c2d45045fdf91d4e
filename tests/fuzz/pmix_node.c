/* SPDX-License-Identifier: Apache-2.0 */
/* What the first rank of a node hears of the others, and of strangers, over the node's door. */
#include "fuzz.h"
#include "pmix/node.c" /* NOLINT(bugprone-suspicious-include) */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    enum { LOCAL = 3, GUESTS = 4 };
    const uint32_t local[LOCAL] = {0, 1, 5};
    const struct hly_boot_log log = {NULL, NULL};
    struct fuzz f = {data, bytes};
    struct hly_node_guest guests[GUESTS];
    struct hly_node_seat seats[LOCAL] = {{HLY_SEAT_LISTED, 1, {0}}};
    struct hly_node node = {
        .log = &log, .nlocal = LOCAL, .local = local, .host = "host", .library = "1"};
    hly_node_init(&node);
    node.role = HLY_ROLE_FIRST;
    node.guests = guests;
    node.nguests = GUESTS;
    node.seats = seats;
    for (int i = 0; i < GUESTS; i++)
        guests[i].fd = -1;
    fuzz_net_feed(&f);
    while (f.left) {
        const uint8_t what = fuzz_byte(&f);
        struct hly_node_guest *g = &guests[what % GUESTS];
        if (g->fd < 0)
            *g = (struct hly_node_guest){FUZZ_FD, -1, 0};
        node.closed |= what & 0x80;
        guest_event(&node, g);
        if (what == 0x7f)
            hly_node_share(&node, -1);
    }
    FUZZ_WANT(node.nheard < LOCAL);
    return 0;
}
