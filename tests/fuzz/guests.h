/* SPDX-License-Identifier: Apache-2.0 */
/* guests.h - those who come to a meeting, and say hello. To be included behind reception.c. */
#ifndef TESTS_FUZZ_GUESTS_H
#define TESTS_FUZZ_GUESTS_H

#include "fuzz.h"

int __wrap_hly_mac_equal(const uint8_t a[32], const uint8_t b[32]);
int __wrap_hly_mac_equal(const uint8_t a[32], const uint8_t b[32])
{
    (void)a, (void)b;
    return 1;
}

static void come(struct hly_boot_guest *g)
{
    memset(g, 0, sizeof(*g));
    g->fd = FUZZ_FD;
    g->greeting.magic = HLY_BOOT_MAGIC;
}

/* A hello that is right but for what the input changes. */
static void say_hello(struct hly_boot_reception *r, struct hly_boot_guest *g, struct fuzz *f)
{
    struct hly_boot_hello it = {.magic = HLY_BOOT_MAGIC,
                                .version = HLY_BOOT_VERSION,
                                .bytes = sizeof it,
                                .left_ns = 1000000000,
                                .machine = "machine",
                                .host = "host",
                                .address.family = AF_INET};
    uint8_t said[1 + sizeof it] = {255};
    struct fuzz words = {said, sizeof said};
    it.rank = fuzz_byte(f);
    it.nranks = fuzz_byte(f);
    const uint8_t how = fuzz_byte(f);
    if (how & 1)
        it.left_ns = 1ull << fuzz_byte(f) % 64;
    if (how & 2)
        it.machine[0] = (char)fuzz_byte(f);
    if (how & 4)
        it.library[0] = (char)fuzz_byte(f);
    if (how & 8)
        it.version--;
    if (how == 0x80) /* any bytes in its middle */
        fuzz_take(f, &it.address, fuzz_byte(f));
    memcpy(said + 1, &it, sizeof it);
    fuzz_net_feed(&words);
    guest_event(r, g, EPOLLIN);
    fuzz_net_feed(f);
}

#endif
