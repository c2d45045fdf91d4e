/* SPDX-License-Identifier: Apache-2.0 */
/* What rank 0 hears of those who come to the rendezvous over TCP, in any order, and when they
 * leave.
 */
#include "boot/common/reception.c" /* NOLINT(bugprone-suspicious-include) */
#include "boot/tcp/host.c"         /* NOLINT(bugprone-suspicious-include) */
#include "guests.h"

static void nowhere(void *arg, int level, const char *text)
{
    (void)level;
    *(size_t *)arg += strlen(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    enum { RANKS = 3, GUESTS = 4, HELLO = 0x40 };
    static size_t said;
    struct fuzz f = {data, bytes};
    const struct hly_boot_log log = {nowhere, &said};
    struct hly_tcp_variables v = {.address = "host", .nranks = RANKS};
    struct hly_tcp tcp = {.log = &log, .v = &v, .end_ns = UINT64_MAX / 2, .listen_fd = -1};
    struct hly_boot_guest guests[GUESTS];
    struct hly_boot_hello hellos[RANKS] = {{.magic = HLY_BOOT_MAGIC}};
    struct host h = {.tcp = &tcp};
    h.reception = (struct hly_boot_reception){.log = &log,
                                              .key = &v.key,
                                              .holder = "rank 0",
                                              .refusal = "no",
                                              .listen_fd = -1,
                                              .epoll_fd = FUZZ_FD,
                                              .nslots = GUESTS,
                                              .guests = guests,
                                              .arg = &h,
                                              .heard = hear_rank,
                                              .left = lose_rank,
                                              .full = run_out};
    tcp.self = (struct hly_boot_hello){.magic = HLY_BOOT_MAGIC, .nranks = RANKS, .host = "host"};
    h.hellos = hellos;
    h.worlds = hly_boot_worlds_new(RANKS, 0);
    FUZZ_WANT(h.worlds);
    begin(&h);
    for (int i = 0; i < GUESTS; i++)
        guests[i].fd = -1;
    fuzz_net_feed(&f);
    while (f.left) {
        const uint8_t what = fuzz_byte(&f);
        struct hly_boot_guest *g = &guests[what % GUESTS];
        if (g->fd < 0)
            come(g);
        if (what & HELLO && what != 0x7f && !g->got)
            say_hello(&h.reception, g, &f);
        else
            guest_event(&h.reception, g, what & 0x80 ? EPOLLOUT | EPOLLIN : EPOLLIN);
        if (what == 0x7f) /* rank 0's time is over */
            h.worlds->place[0].end_ns = 1;
        go_on(&h);
        finished(&h, 1);
    }
    for (int i = 0; i < GUESTS; i++)
        if (guests[i].fd >= 0)
            hly_boot_reception_dismiss(&h.reception, &guests[i]);
    FUZZ_WANT(h.reception.nknown == 0 && hly_worlds_asking(h.worlds) <= RANKS);
    hly_boot_table_finish(&h.table);
    free(h.worlds);
    return 0;
}
