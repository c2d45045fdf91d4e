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

int __wrap_hly_listen_beside(const struct hly_boot_log *log, int connection, bool local,
                             halay_address_t *address, int *fd);
int __wrap_hly_listen_beside(const struct hly_boot_log *log, int connection, bool local,
                             halay_address_t *address, int *fd)
{
    (void)log, (void)connection, (void)local, (void)address, (void)fd;
    return 0;
}

static void nowhere(void *arg, int level, const char *text)
{
    (void)level;
    *(size_t *)arg += strlen(text);
}

/* Rank 0's answer with the table of its ranks, or a text; but for what the input changes. Returns
 * its bytes, behind those that say how many come. */
static uint8_t *answer(struct fuzz *f, int nranks, int joins, size_t *bytes)
{
    struct hly_boot_answer a = {.magic = HLY_BOOT_MAGIC, .version = HLY_BOOT_VERSION};
    struct hly_boot_table table = {0};
    struct hly_boot_hello *hellos = calloc((size_t)nranks, sizeof *hellos);
    FUZZ_WANT(hellos);
    for (int r = 0; r < nranks; r++) {
        hellos[r].address.family = r % 2 ? AF_INET6 : AF_INET;
        hellos[r].machine[0] = (char)('a' + fuzz_byte(f) % 4);
        hellos[r].process.pid = r + 1;
        strcpy(hellos[r].host, "host");
    }
    FUZZ_WANT(!hly_boot_table_write(hellos, nranks, &a, &table));
    if (joins) {
        a.joined = HLY_BOOT_JOINED;
        hly_boot_table_part(&table, 0, &a);
    } else {
        a.bytes = a.bytes < HLY_BOOT_TEXT_BYTES ? a.bytes : HLY_BOOT_TEXT_BYTES;
    }
    *bytes = 2 + sizeof a + a.bytes;
    uint8_t *said = malloc(*bytes);
    FUZZ_WANT(said);
    said[0] = said[1 + sizeof a] = 255;
    memcpy(said + 1, &a, sizeof a);
    memcpy(said + 2 + sizeof a, table.bytes, a.bytes);
    while (f->left) {
        const size_t at = 1 + fuzz_word(f) % (*bytes - 1);
        said[at] = fuzz_byte(f);
    }
    hly_boot_table_finish(&table);
    free(hellos);
    return said;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    enum { RAW, TABLE, WORDS };
    static size_t said;
    struct fuzz f = {data, bytes};
    const struct hly_boot_log log = {nowhere, &said};
    struct hly_tcp_variables v = {.address = "host", .nranks = 1 + fuzz_byte(&f), .rank = 0};
    struct hly_tcp tcp = {.log = &log, .v = &v, .end_ns = UINT64_MAX / 2, .listen_fd = -1};
    tcp.self.rank = 0;
    tcp.self.nranks = (uint32_t)v.nranks;
    struct hly_boot_greeting greeting = {.version = HLY_BOOT_VERSION};
    struct hly_boot_identity id = {.listen_fd = -1};
    const uint8_t how = fuzz_byte(&f) % 3;
    const bool whole = f.left <= (size_t)v.nranks;
    uint8_t *own = NULL;
    size_t own_bytes = 0;
    if (how != RAW)
        own = answer(&f, v.nranks, how == TABLE, &own_bytes);
    struct fuzz words = {own ? own : f.at, own ? own_bytes : f.left};
    fuzz_net_feed(&words);
    const int rc = hly_tcp_meet(&tcp, FUZZ_FD, 1, &greeting, &id);
    if (rc == HALAY_OK)
        FUZZ_WANT(hly_boot_places_valid(&id.places));
    FUZZ_WANT(rc == HALAY_OK || how != TABLE || !whole);
    hly_boot_identity_finish(&id);
    free(own);
    return 0;
}
