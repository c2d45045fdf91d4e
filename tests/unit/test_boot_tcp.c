/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pieces of the TCP rendezvous that a job on one node does not reach: SHA-256 and HMAC against
 * the published vectors, and the table of nodes, against a count by hand, for many shapes; tables
 * that are cut or changed are refused or stay in bounds.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "../../boot/tcp/tcp.h"

#include "../check.h"

static void check_hex(const uint8_t digest[32], const char *expected)
{
    char text[65];
    for (int i = 0; i < 32; i++)
        snprintf(text + 2 * i, 3, "%02x", digest[i]);
    MUST(!strcmp(text, expected));
}

static void sha_of(const void *data, size_t bytes, const char *expected)
{
    struct hly_sha sha;
    uint8_t digest[32];
    hly_sha_init(&sha);
    hly_sha_add(&sha, data, bytes / 3); /* in two pieces */
    hly_sha_add(&sha, (const char *)data + bytes / 3, bytes - bytes / 3);
    hly_sha_end(&sha, digest);
    check_hex(digest, expected);
}

/* FIPS 180-4's examples, and RFC 4231's first two cases of HMAC (keys filled with zeros). */
static void vectors(void)
{
    static char million[1000000];
    uint8_t key[32] = {0}, mac[32], other[32];
    memset(million, 'a', sizeof million);
    sha_of("", 0, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    sha_of("abc", 3, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    sha_of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 56,
           "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    sha_of(million, sizeof million,
           "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    memset(key, 0x0b, 20);
    hly_mac(key, (struct hly_piece[]){{"Hi ", 3}, {"There", 5}}, 2, mac);
    check_hex(mac, "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
    memset(key, 0, sizeof key);
    memcpy(key, "Jefe", 4);
    hly_mac(key, (struct hly_piece[]){{"what do ya want for nothing?", 28}}, 1, mac);
    check_hex(mac, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    for (int bit = 0; bit < 256; bit++) {
        memcpy(other, mac, sizeof mac);
        MUST(hly_mac_equal(mac, other));
        other[bit / 8] ^= (uint8_t)(1 << bit % 8);
        MUST(!hly_mac_equal(mac, other));
    }
}

/* Which host rank r of n is on, in one of the shapes. */
static int host_of(int shape, int r, int n)
{
    switch (shape) {
    case 0:
        return 0; /* one node */
    case 1:
        return r; /* a rank a node */
    case 2:
        return r / 8; /* filled node by node */
    case 3:
        return r % (n < 8 ? 2 : 8); /* dealt out */
    case 4:
        return (n - 1 - r) / 3; /* backwards */
    default:
        return (int)((unsigned)r * 2654435761u >> 28); /* anyhow */
    }
}

/* Every third host has IPv6; every seventh rank has an ip of its own, one of them none. */
static halay_address_t address_of(int host, int r)
{
    halay_address_t address = {.family = host % 3 ? AF_INET : AF_INET6,
                               .port = (uint16_t)(r % 60000 + 1),
                               .ip = {10, (uint8_t)(host >> 8), (uint8_t)host}};
    if (r == 14)
        return (halay_address_t){0};
    if (r % 7 == 3)
        address.ip[3] = 200;
    if (address.family == AF_INET6)
        address.ip[15] = 6;
    return address;
}

/* As the lowest rank of the host says; 0: not known. */
static uint32_t processors_of(int host)
{
    return (uint32_t)host % 5;
}

static halay_process_t process_of(int host, int r)
{
    return (halay_process_t){7u + (unsigned)host, 1000u + (unsigned)r, 3 * (int64_t)r + 1};
}

/* The lowest rank of each host, and how many it has; by host, of which there are at most n. */
static void count_ranks(int shape, int n, int *lowest, uint32_t *ranks)
{
    for (int r = n - 1; r >= 0; r--) {
        lowest[host_of(shape, r, n)] = r;
        ranks[host_of(shape, r, n)]++;
    }
}

/* Hosts 4k to 4k+3 are one machine with two network namespaces, each with processes of two users.
 */
static struct hly_boot_hello *hellos_of(int shape, int n)
{
    struct hly_boot_hello *hellos = calloc((size_t)n, sizeof hellos[0]);
    int *lowest = calloc((size_t)n + 16, sizeof lowest[0]);
    uint32_t *ranks = calloc((size_t)n + 16, sizeof ranks[0]);
    MUST(hellos && lowest && ranks);
    count_ranks(shape, n, lowest, ranks);
    for (int r = 0; r < n; r++) {
        int host = host_of(shape, r, n);
        hellos[r].processors = r == lowest[host] ? processors_of(host) : (unsigned)r % 3;
        snprintf(hellos[r].machine, sizeof hellos[r].machine, "machine-%d", host / 4);
        hellos[r].netns = 4026531840u + (unsigned)host / 2 % 2;
        hellos[r].uid = (unsigned)host % 2;
        snprintf(hellos[r].host, sizeof hellos[r].host, "host-%d", host);
        hellos[r].address = address_of(host, r);
        hellos[r].process = process_of(host, r);
    }
    free(lowest);
    free(ranks);
    return hellos;
}

static void check_identity(const struct hly_boot_identity *id, int shape)
{
    int local = 0, before = 0, seen = 0,
        *lowest = calloc((size_t)id->nranks + 16, sizeof lowest[0]);
    uint32_t *ranks = calloc((size_t)id->nranks + 16, sizeof ranks[0]);
    char name[32];
    halay_place_t at = {.size = sizeof at};
    halay_boot_info_t info = {.rank = id->rank};
    hly_boot_places_info(&id->places, &info);
    MUST(lowest && ranks);
    count_ranks(shape, id->nranks, lowest, ranks);
    for (int r = 0; r < id->nranks; r++) {
        int host = host_of(shape, r, id->nranks);
        halay_address_t address = address_of(host, r);
        if (address.family && processors_of(host) && ranks[host] > processors_of(host))
            address.fabrics =
                HALAY_NODE_OVERSUBSCRIBED | (processors_of(host) == 1 ? HALAY_NODE_SINGLE : 0);
        MUST(hly_boot_places_get(&id->places, r, &at) == HALAY_OK);
        MUST(at.node >= 0 && at.node <= seen && at.node < info.nnodes);
        seen += at.node == seen; /* numbered in the order of lowest ranks */
        snprintf(name, sizeof name, "host-%d", host);
        MUST(!strcmp(at.host, name));
        MUST(!memcmp(&at.address, &address, sizeof address));
        bool mine = host == host_of(shape, id->rank, id->nranks);
        const halay_process_t process = mine ? process_of(host, r) : (halay_process_t){0};
        MUST(mine == (at.node == info.node));
        MUST(!memcmp(&at.process, &process, sizeof process));
        local += mine;
        before += mine && r < id->rank;
        if (r == id->rank)
            MUST(!strcmp(info.host, name) && !memcmp(&info.address, &address, sizeof address));
    }
    MUST(hly_boot_places_get(&id->places, id->nranks, &at) == HALAY_EINVAL);
    MUST(hly_boot_places_get(&id->places, -1, &at) == HALAY_EINVAL);
    MUST(seen == info.nnodes && info.nranks == id->nranks);
    MUST(info.local_nranks == local && info.local_rank == before);
    free(lowest);
    free(ranks);
}

/* What rank r gets, as one piece; *answer becomes its answer. */
static char *table_of(const struct hly_boot_table *table, int r, struct hly_boot_answer *answer)
{
    const uint32_t bytes = answer->bytes;
    const struct hly_piece part = hly_boot_table_part(table, (uint32_t)r, answer);
    char *all = malloc(answer->bytes);
    MUST(all && answer->bytes == bytes + part.bytes);
    MUST(r > 0 || part.data == table->bytes + bytes);
    memcpy(all, table->bytes, bytes);
    memcpy(all + bytes, part.data, part.bytes);
    return all;
}

/* Whether all ranks have kept the same is in the answer: each counts. */
static void alike(void)
{
    enum { N = 9 };
    const struct hly_boot_key key = {0};
    struct hly_boot_hello *hellos = hellos_of(1, N);
    for (int odd = -1; odd <= N; odd++) { /* -1: none has any; N: all the same */
        struct hly_boot_answer answer = {.joined = HLY_BOOT_JOINED};
        struct hly_boot_table table;
        struct hly_boot_identity id = {0};
        for (int r = 0; r < N; r++)
            hellos[r].kept = odd < 0 ? 0 : r == odd ? 8 : 7;
        MUST(hly_boot_table_write(hellos, N, &answer, &table) == HALAY_OK);
        MUST(answer.joined ==
             (odd < 0 || odd == N ? HLY_BOOT_JOINED | HLY_BOOT_ALIKE : HLY_BOOT_JOINED));
        char *all = table_of(&table, 0, &answer);
        MUST(hly_boot_table_read(&key, &answer, all, &id) == HALAY_OK);
        MUST(id.alike == (odd < 0 || odd == N ? 1 : -1));
        free(all);
        hly_boot_identity_finish(&id);
        hly_boot_table_finish(&table);
    }
    free(hellos);
}

static void tables(int n)
{
    const struct hly_boot_key key = {0};
    for (int shape = 0; shape < 6; shape++) {
        struct hly_boot_hello *hellos = hellos_of(shape, n);
        struct hly_boot_answer answer = {.joined = 1};
        struct hly_boot_table table;
        MUST(hly_boot_table_write(hellos, n, &answer, &table) == HALAY_OK);
        for (int r = 0; r < n; r += 1 + n / 5) {
            struct hly_boot_identity id = {0};
            struct hly_boot_answer own = answer;
            char *bytes = table_of(&table, r, &own);
            MUST(own.bytes <= (uint32_t)n * HLY_BOOT_RANK_BYTES);
            MUST(hly_boot_table_read(&key, &own, bytes, &id) == HALAY_OK);
            MUST(id.rank == r && id.nranks == n);
            check_identity(&id, shape);
            hly_boot_identity_finish(&id);
            free(bytes);
        }
        hly_boot_table_finish(&table);
        free(hellos);
    }
}

/* Cut short, or with one byte changed: refused, or another table, but nothing out of bounds. */
static void bad_tables(void)
{
    enum { N = 20 };
    const struct hly_boot_key key = {0};
    struct hly_boot_hello *hellos = hellos_of(2, N);
    struct hly_boot_answer good = {.joined = 1}, answer;
    struct hly_boot_table all;
    int refused = 0;
    MUST(hly_boot_table_write(hellos, N, &good, &all) == HALAY_OK);
    char *table = table_of(&all, 3, &good);
    for (uint32_t bytes = 0; bytes < good.bytes; bytes++) {
        struct hly_boot_identity id = {0};
        char *cut = malloc(bytes ? bytes : 1);
        MUST(cut);
        memcpy(cut, table, bytes);
        answer = good;
        answer.bytes = bytes;
        MUST(hly_boot_table_read(&key, &answer, cut, &id) == HALAY_EBOOT && !id.memory);
        free(cut);
    }
    for (uint32_t at = 0; at < good.bytes * 8; at++) {
        struct hly_boot_identity id = {0};
        table[at / 8] ^= (char)(1 << at % 8);
        if (hly_boot_table_read(&key, &good, table, &id)) {
            refused++;
        } else {
            halay_boot_info_t info = {.rank = 3};
            hly_boot_places_info(&id.places, &info);
            MUST(info.node >= 0 && info.node < info.nnodes && info.local_rank < info.local_nranks);
            hly_boot_identity_finish(&id);
        }
        table[at / 8] ^= (char)(1 << at % 8);
    }
    MUST(refused > 100);
    for (int i = 0; i < 11; i++) {
        struct hly_boot_identity id = {0};
        answer = good;
        uint32_t *const counts[6] = {&answer.nruns,      &answer.nnodes, &answer.nothers,
                                     &answer.nprocesses, &answer.nranks, &answer.rank};
        *counts[i % 6] = i / 6 ? 0 : 0xffffffffu; /* rank 0 is one */
        MUST(hly_boot_table_read(&key, &answer, table, &id) == HALAY_EBOOT);
    }
    hly_boot_table_finish(&all);
    free(table);
    free(hellos);
}

int main(void)
{
    alike();
    vectors();
    for (int n = 1; n <= 33; n++)
        tables(n);
    tables(1000);
    tables(HLY_BOOT_RANKS_MAX);
    bad_tables();
    return 0;
}
