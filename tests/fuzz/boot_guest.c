/* SPDX-License-Identifier: Apache-2.0 */
/* What a rank hears of rank 0 at the rendezvous over TCP. Whoever it is knows the secret. */
#include <netdb.h>

#include "boot/tcp/tcp.h"
#include "fuzz.h"

int __wrap_hly_mac_equal(const uint8_t a[32], const uint8_t b[32]);
int __wrap_hly_mac_equal(const uint8_t a[32], const uint8_t b[32])
{
    (void)a, (void)b;
    return 1;
}

int __wrap_hly_tcp_listen_beside(struct hly_tcp *tcp, int fd,
                                 const struct hly_boot_greeting *greeting);
int __wrap_hly_tcp_listen_beside(struct hly_tcp *tcp, int fd,
                                 const struct hly_boot_greeting *greeting)
{
    (void)tcp, (void)fd, (void)greeting;
    return 0;
}

static void nowhere(void *arg, int level, const char *text)
{
    (void)level;
    *(size_t *)arg += strlen(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static size_t said;
    struct fuzz f = {data, bytes};
    const struct hly_boot_log log = {nowhere, &said};
    struct hly_tcp_variables v = {.address = "host", .nranks = 1 + fuzz_byte(&f), .rank = 0};
    struct hly_tcp tcp = {.log = &log, .v = &v, .end_ns = UINT64_MAX / 2, .listen_fd = -1};
    tcp.self.rank = 0;
    tcp.self.nranks = (uint32_t)v.nranks;
    struct hly_boot_greeting greeting = {.version = HLY_BOOT_VERSION};
    struct hly_boot_identity id = {.listen_fd = -1};
    fuzz_net_feed(&f);
    if (hly_tcp_meet(&tcp, FUZZ_FD, 1, &greeting, &id) == HALAY_OK)
        FUZZ_WANT(hly_boot_places_valid(&id.places));
    hly_boot_identity_finish(&id);
    return 0;
}
