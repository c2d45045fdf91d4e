/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rules.c - what is decided without a device (rules.h).
 */
#include "rules.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

uint32_t hly_verbs_grant(uint32_t npeers)
{
    return npeers < 16 ? HLY_VERBS_CREDITS : npeers < 128 ? 8 : 4;
}

int hly_verbs_owes_enough(uint32_t owed, uint32_t grant)
{
    return owed > 0 && 2 * owed >= grant;
}

hly_verbs_piece_t hly_verbs_piece(size_t bytes, size_t offset, size_t most, size_t apart)
{
    hly_verbs_piece_t piece = {.offset = offset, .bytes = bytes - offset};
    if (piece.bytes > most)
        piece.bytes = most;
    piece.last = offset + piece.bytes == bytes && (bytes <= apart || piece.bytes == 0);
    return piece;
}

/* ------------------------------------------------------------------ GIDs */

static int is_four(const hly_verbs_gid_t *gid)
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    return memcmp(gid->raw, mapped, sizeof(mapped)) == 0;
}

static int is_local(const hly_verbs_gid_t *gid)
{
    return gid->raw[0] == 0xfe && (gid->raw[1] & 0xc0) == 0x80;
}

static int same_bits(const uint8_t *a, const uint8_t *b, unsigned bits)
{
    unsigned whole = bits / 8, rest = bits % 8;
    if (memcmp(a, b, whole) != 0)
        return 0;
    return rest == 0 || (a[whole] ^ b[whole]) >> (8 - rest) == 0;
}

/* 1: link-local; 2: IPv6; 3: IPv4. */
static int kind_of(const hly_verbs_gid_t *gid)
{
    return is_four(gid) ? 3 : is_local(gid) ? 1 : 2;
}

/* The smaller of two known prefixes. */
static int same_subnet(const hly_verbs_gid_t *a, const hly_verbs_gid_t *b)
{
    unsigned bits = a->prefix < b->prefix ? a->prefix : b->prefix;
    unsigned before = is_four(a) ? 96 : 0; /* of an IPv4 address, in its GID */
    return bits > 0 && before + bits <= 128 && same_bits(a->raw, b->raw, before + bits);
}

int hly_verbs_gid_rate(const hly_verbs_gid_t *a, const hly_verbs_gid_t *b)
{
    if (a->type != b->type || a->type == HLY_VERBS_ROCE1)
        return 0;
    if (a->type == HLY_VERBS_IB) /* the upper half is the subnet's */
        return same_bits(a->raw, b->raw, 64) ? 8 : 1;
    if (kind_of(a) != kind_of(b))
        return 0;
    if (is_local(a))
        return 1; /* whether it is the same link nobody can tell */
    return kind_of(a) + (same_subnet(a, b) ? 4 : 0);
}

/* Which of two pairs both ends take. */
static int goes_before(const hly_verbs_gid_t *a, const hly_verbs_gid_t *b, const hly_verbs_gid_t *c,
                       const hly_verbs_gid_t *d)
{
    int order = memcmp(a->raw, c->raw, sizeof(a->raw));
    return order ? order < 0 : memcmp(b->raw, d->raw, sizeof(b->raw)) < 0;
}

int hly_verbs_gids_pair(const hly_verbs_gid_t mine[], int n, const hly_verbs_gid_t theirs[], int m,
                        int lower, int *i, int *j)
{
    int best = 0;
    for (int a = 0; a < n; a++) {
        for (int b = 0; b < m; b++) {
            int rate = hly_verbs_gid_rate(&mine[a], &theirs[b]);
            int before = rate > best;
            if (rate > 0 && rate == best)
                before = lower ? goes_before(&mine[a], &theirs[b], &mine[*i], &theirs[*j])
                               : goes_before(&theirs[b], &mine[a], &theirs[*j], &mine[*i]);
            if (!before)
                continue;
            best = rate;
            *i = a;
            *j = b;
        }
    }
    return best ? 0 : -1;
}

int hly_verbs_gid_near(const hly_verbs_gid_t *gid, int family, const uint8_t *ip)
{
    hly_verbs_gid_t there = {.type = HLY_VERBS_ROCE2, .prefix = 128};
    if (gid->type == HLY_VERBS_ROCE1)
        return 0;
    if (gid->type == HLY_VERBS_IB)
        return 5;
    if (family == AF_INET6) {
        memcpy(there.raw, ip, 16);
    } else {
        there.raw[10] = there.raw[11] = 0xff;
        memcpy(there.raw + 12, ip, 4);
        there.prefix = 32;
    }
    if (memcmp(gid->raw, there.raw, sizeof(there.raw)) == 0)
        return 9;
    if (kind_of(gid) == kind_of(&there) && !is_local(gid) && same_subnet(gid, &there))
        return 8;
    return kind_of(gid);
}

/* ------------------------------------------------------------------ settings */

int hly_verbs_mtu_number(int bytes)
{
    for (int number = 1; number <= 5; number++) {
        if (hly_verbs_mtu_bytes(number) == bytes)
            return number;
    }
    return 0;
}

int hly_verbs_mtu_bytes(int number)
{
    return 128 << number;
}

/* A device, and after a colon a port. */
static int device_read(const char *text, size_t bytes, hly_verbs_settings_t *settings)
{
    size_t name = strcspn(text, ":,");
    char *end;
    if (name == 0 || name >= sizeof(settings->device))
        return -1;
    memcpy(settings->device, text, name);
    settings->device[name] = 0;
    if (name >= bytes)
        return 0;
    long port = strtol(text + name + 1, &end, 10);
    if (end != text + bytes || end == text + name + 1 || port < 1 || port > 255)
        return -1;
    settings->port = (int)port;
    return 0;
}

static int number_read(const char *text, size_t bytes, int most, int *number)
{
    char *end;
    long value = strtol(text, &end, 10);
    if (bytes == 0 || end != text + bytes || value < 0 || value > most)
        return -1;
    *number = (int)value;
    return 0;
}

int hly_verbs_settings_read(const char *text, hly_verbs_settings_t *settings,
                            char why[HLY_VERBS_TEXT])
{
    while (text && *text) {
        size_t all = strcspn(text, ","), name = strcspn(text, "=,");
        const char *value = text + name + 1;
        size_t bytes = all > name ? all - name - 1 : 0;
        int rc = -1;
        if (all > name && name == 6 && strncmp(text, "device", 6) == 0)
            rc = device_read(value, bytes, settings);
        else if (all > name && name == 3 && strncmp(text, "gid", 3) == 0)
            rc = number_read(value, bytes, 255, &settings->gid);
        else if (all > name && name == 3 && strncmp(text, "mtu", 3) == 0)
            rc = number_read(value, bytes, 4096, &settings->mtu);
        else if (all > name && name == 5 && strncmp(text, "class", 5) == 0)
            rc = number_read(value, bytes, 255, &settings->class);
        else if (all > name && name == 5 && strncmp(text, "rails", 5) == 0)
            rc = number_read(value, bytes, HLY_VERBS_RAILS, &settings->rails);
        if (rc == 0 && settings->rails == 0)
            rc = -1;
        if (rc == 0 && settings->mtu >= 0 && !hly_verbs_mtu_number(settings->mtu))
            rc = -1;
        if (rc) {
            snprintf(why, HLY_VERBS_TEXT,
                     "'%.*s' is not understood: it takes device=NAME or NAME:PORT, gid=INDEX, "
                     "mtu=256, 512, 1024, 2048 or 4096, class=0 to 255, rails=1 to %d, with commas "
                     "between",
                     (int)(all < 64 ? all : 64), text, HLY_VERBS_RAILS);
            return -1;
        }
        text += all + (text[all] == ',');
    }
    return 0;
}
