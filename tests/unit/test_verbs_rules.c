/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_verbs_rules.c - what the transport over verbs decides without a device: credits, pieces,
 * GIDs, settings. Runs everywhere.
 */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../transports/verbs/rules.h"
#include "../check.h"

static uint64_t seed = 1;

static uint32_t any(uint32_t below)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(seed >> 33) % below;
}

/* ------------------------------------------------------------------ credits */

/* One direction: a sender with credits, a receiver with requests; what flies, flies in order. */
struct direction {
    uint32_t credits; /* the sender's */
    uint32_t flying, held, owed;
    uint32_t posted;                                /* at the receiver, for this sender */
    uint32_t returns, returned[HLY_VERBS_KEPT + 1]; /* on their way back, alone */
};

/*
 * Any order of sending, taking, posting again and reading of what came back: a receive request is
 * always there for what flies, and never more than KEPT returns are unread.
 */
static void check_credits(uint32_t grant)
{
    struct direction d = {.credits = grant, .posted = grant};
    uint64_t sent = 0;
    for (uint32_t i = 0; i < 200000; i++) {
        switch (any(4)) {
        case 0:
            if (d.credits == 0)
                break;
            d.credits--;
            d.flying++;
            sent++;
            break;
        case 1:
            if (d.flying == 0)
                break;
            CHECK(d.posted > 0, "no request for a message, grant %u", grant);
            d.flying--;
            d.posted--;
            d.held++;
            break;
        case 2:
            if (d.held == 0)
                break;
            d.held--;
            d.posted++;
            d.owed++;
            if (hly_verbs_owes_enough(d.owed, grant)) {
                CHECK(d.returns < HLY_VERBS_KEPT, "%u returns are unread, grant %u", d.returns,
                      grant);
                d.returned[d.returns++] = d.owed;
                d.owed = 0;
            }
            break;
        default:
            if (d.returns == 0)
                break;
            d.credits += d.returned[0];
            d.returns--;
            memmove(d.returned, d.returned + 1, d.returns * sizeof(d.returned[0]));
        }
        CHECK(d.posted >= d.flying + d.credits, "promised %u, posted %u", d.flying + d.credits,
              d.posted);
        /* Nobody waits for ever: somebody can always do something. */
        CHECK(d.credits || d.flying || d.held || d.returns, "all stand still, grant %u", grant);
    }
    CHECK(sent > 10000, "only %llu sent", (unsigned long long)sent);
}

/* ------------------------------------------------------------------ pieces */

static void check_pieces(size_t bytes, size_t most, size_t apart)
{
    size_t offset = 0, pieces = 0, data = 0;
    for (;;) {
        hly_verbs_piece_t piece = hly_verbs_piece(bytes, offset, most, apart);
        CHECK(piece.offset == offset && piece.bytes <= most && piece.bytes <= bytes - offset,
              "%zu at %zu of %zu", piece.bytes, piece.offset, bytes);
        CHECK(piece.bytes > 0 || piece.last, "an empty piece of %zu", bytes);
        pieces++;
        data += piece.bytes > 0;
        offset += piece.bytes;
        if (piece.last)
            break;
        CHECK(pieces < 10000, "no end of %zu", bytes);
    }
    CHECK(offset == bytes, "%zu of %zu bytes", offset, bytes);
    CHECK(data == (bytes + most - 1) / most, "%zu pieces of %zu", data, bytes);
    CHECK(pieces == data + (bytes > apart || bytes == 0), "%zu, %zu of %zu", pieces, data, bytes);
}

/* ------------------------------------------------------------------ GIDs */

static hly_verbs_gid_t gid_of(const char *text, int index, int type, int prefix)
{
    hly_verbs_gid_t gid = {
        .index = (uint8_t)index, .type = (uint8_t)type, .prefix = (uint8_t)prefix};
    CHECK(inet_pton(AF_INET6, text, gid.raw) == 1, "%s", text);
    return gid;
}

static int best_of(const hly_verbs_gid_t *mine, int n, const hly_verbs_gid_t *theirs, int m)
{
    int i = -1, j = -1, k = -1, l = -1;
    int rc = hly_verbs_gids_pair(mine, n, theirs, m, 1, &i, &j);
    CHECK(hly_verbs_gids_pair(theirs, m, mine, n, 0, &k, &l) == rc, "both ends");
    CHECK(i == l && j == k, "one end has %d and %d, the other %d and %d", i, j, l, k);
    return rc ? -1 : 10 * i + j;
}

static void check_gids(void)
{
    hly_verbs_gid_t mine[] = {
        gid_of("fe80::1", 0, HLY_VERBS_ROCE2, 64),
        gid_of("::ffff:10.1.0.1", 1, HLY_VERBS_ROCE1, 24),
        gid_of("2001:db8::1", 2, HLY_VERBS_ROCE2, 64),
        gid_of("::ffff:10.1.0.1", 3, HLY_VERBS_ROCE2, 24),
        gid_of("::ffff:10.2.0.1", 4, HLY_VERBS_ROCE2, 24),
    };
    hly_verbs_gid_t theirs[] = {
        gid_of("fe80::2", 0, HLY_VERBS_ROCE2, 64),
        gid_of("::ffff:10.3.0.2", 1, HLY_VERBS_ROCE2, 24),
        gid_of("::ffff:10.2.0.2", 2, HLY_VERBS_ROCE2, 24),
        gid_of("::ffff:10.1.0.2", 3, HLY_VERBS_ROCE1, 24),
        gid_of("2001:db8:1::2", 4, HLY_VERBS_ROCE2, 64),
    };
    CHECK(best_of(mine, 5, theirs, 5) == 42, "the same subnet: %d", best_of(mine, 5, theirs, 5));
    CHECK(best_of(mine, 4, theirs, 2) == 31, "IPv4: %d", best_of(mine, 4, theirs, 2));
    CHECK(best_of(mine, 3, theirs, 5) == 24, "global IPv6: %d", best_of(mine, 3, theirs, 5));
    CHECK(best_of(mine, 2, theirs, 5) == 0, "link-local at last: %d", best_of(mine, 2, theirs, 5));
    CHECK(best_of(&mine[1], 1, theirs, 5) == -1, "RoCE v1 is none");
    CHECK(best_of(&mine[2], 1, theirs, 4) == -1, "no family in common");
    CHECK(best_of(mine, 0, theirs, 5) == -1, "none");
    hly_verbs_gid_t ib[] = {gid_of("fe80::aaaa", 0, HLY_VERBS_IB, 0)};
    hly_verbs_gid_t far[] = {gid_of("fec0::bbbb", 0, HLY_VERBS_IB, 0),
                             gid_of("fe80::cccc", 1, HLY_VERBS_IB, 0)};
    CHECK(best_of(ib, 1, far, 2) == 1, "InfiniBand of the same subnet");
    CHECK(best_of(ib, 1, theirs, 5) == -1, "InfiniBand and RoCE");
    /* 10.1.0.1/16 and 10.1.5.2/24: a prefix that one end has wider does not part them. */
    hly_verbs_gid_t wide[] = {gid_of("::ffff:10.1.0.1", 0, HLY_VERBS_ROCE2, 16)};
    hly_verbs_gid_t narrow[] = {gid_of("::ffff:10.1.5.2", 0, HLY_VERBS_ROCE2, 24)};
    CHECK(hly_verbs_gid_rate(wide, narrow) == 7, "%d", hly_verbs_gid_rate(wide, narrow));
    narrow[0].prefix = 0;
    CHECK(hly_verbs_gid_rate(wide, narrow) == 3, "no prefix: %d", hly_verbs_gid_rate(wide, narrow));
}

/* Any tables, in any order: both ends agree, and nothing better was left. */
static void check_gids_any(void)
{
    static const char *const texts[] = {"fe80::1",         "fe80::2",         "::ffff:10.1.0.1",
                                        "::ffff:10.1.0.2", "::ffff:10.2.0.1", "2001:db8::1",
                                        "2001:db8::2",     "2001:db8:1::1"};
    for (int round = 0; round < 20000; round++) {
        hly_verbs_gid_t side[2][HLY_VERBS_GIDS];
        int n[2], best = 0, i = 0, j = 0;
        for (int s = 0; s < 2; s++) {
            n[s] = (int)any(HLY_VERBS_GIDS + 1);
            for (int k = 0; k < n[s]; k++)
                side[s][k] = gid_of(texts[any(8)], k, any(4) ? HLY_VERBS_ROCE2 : HLY_VERBS_ROCE1,
                                    any(2) ? 24 : 0);
        }
        for (int a = 0; a < n[0]; a++)
            for (int b = 0; b < n[1]; b++) {
                int rate = hly_verbs_gid_rate(&side[0][a], &side[1][b]);
                CHECK(rate == hly_verbs_gid_rate(&side[1][b], &side[0][a]), "not the same");
                best = rate > best ? rate : best;
            }
        CHECK((hly_verbs_gids_pair(side[0], n[0], side[1], n[1], 1, &i, &j) == 0) == (best > 0),
              "found");
        if (best == 0)
            continue;
        int k = 0, l = 0;
        CHECK(hly_verbs_gids_pair(side[1], n[1], side[0], n[0], 0, &k, &l) == 0, "both");
        CHECK(hly_verbs_gid_rate(&side[0][i], &side[1][j]) == best, "not the best");
        CHECK(!memcmp(side[0][i].raw, side[0][l].raw, 16) &&
                  !memcmp(side[1][j].raw, side[1][k].raw, 16),
              "the ends do not agree");
    }
}

static void check_near(void)
{
    const uint8_t ip[4] = {10, 1, 0, 1}, near[4] = {10, 1, 0, 9};
    hly_verbs_gid_t same = gid_of("::ffff:10.1.0.1", 0, HLY_VERBS_ROCE2, 24);
    hly_verbs_gid_t other = gid_of("::ffff:10.9.0.1", 0, HLY_VERBS_ROCE2, 24);
    hly_verbs_gid_t six = gid_of("2001:db8::1", 0, HLY_VERBS_ROCE2, 64);
    hly_verbs_gid_t local = gid_of("fe80::1", 0, HLY_VERBS_ROCE2, 64);
    hly_verbs_gid_t old = gid_of("::ffff:10.1.0.1", 0, HLY_VERBS_ROCE1, 24);
    int rates[] = {
        hly_verbs_gid_near(&same, AF_INET, ip),  hly_verbs_gid_near(&same, AF_INET, near),
        hly_verbs_gid_near(&other, AF_INET, ip), hly_verbs_gid_near(&six, AF_INET, ip),
        hly_verbs_gid_near(&local, AF_INET, ip), hly_verbs_gid_near(&old, AF_INET, ip)};
    for (size_t i = 1; i < sizeof(rates) / sizeof(rates[0]); i++)
        CHECK(rates[i] < rates[i - 1], "%zu: %d after %d", i, rates[i], rates[i - 1]);
    CHECK(hly_verbs_gid_near(&six, AF_INET6, six.raw) >
              hly_verbs_gid_near(&same, AF_INET6, six.raw),
          "the address itself");
}

/* ------------------------------------------------------------------ settings */

static void check_settings(void)
{
    static const char *const wrong[] = {
        "gid",        "gid=",        "gid=-1",    "gid=1x",     "mtu=1500",   "class=256",
        "colour=red", "device=",     "device=a:", "device=a:0", "gid=1,,x=2", "gid=1;mtu=256",
        "=1",         "device=a:1x", "rails=0",   "rails=5"};
    hly_verbs_settings_t s = {.port = -1, .gid = -1, .mtu = -1, .class = -1, .rails = -1};
    char why[HLY_VERBS_TEXT] = "";
    CHECK(hly_verbs_settings_read(NULL, &s, why) == 0 && hly_verbs_settings_read("", &s, why) == 0,
          "%s", why);
    CHECK(s.gid == -1 && !*s.device, "nothing is set");
    CHECK(hly_verbs_settings_read("device=mlx5_0:2,gid=3,mtu=1024,class=104,rails=2", &s, why) == 0,
          "%s", why);
    CHECK(!strcmp(s.device, "mlx5_0") && s.port == 2 && s.gid == 3 && s.mtu == 1024 &&
              s.class == 104 && s.rails == 2,
          "%s %d %d %d %d %d", s.device, s.port, s.gid, s.mtu, s.class, s.rails);
    CHECK(hly_verbs_settings_read("gid=0", &s, why) == 0 && s.gid == 0 && s.mtu == 1024, "added");
    CHECK(hly_verbs_settings_read("device=rxe0", &s, why) == 0 && !strcmp(s.device, "rxe0"),
          "no port");
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        hly_verbs_settings_t bad = {.port = -1, .gid = -1, .mtu = -1, .class = -1, .rails = -1};
        CHECK(hly_verbs_settings_read(wrong[i], &bad, why) == -1, "'%s' was taken", wrong[i]);
        CHECK(strstr(why, "it takes device="), "%s", why);
    }
    for (int number = 1; number <= 5; number++)
        CHECK(hly_verbs_mtu_number(hly_verbs_mtu_bytes(number)) == number, "%d", number);
    CHECK(hly_verbs_mtu_bytes(5) == 4096 && hly_verbs_mtu_number(1500) == 0, "MTUs");
}

int main(void)
{
    static const size_t sizes[] = {0,        1,       4096,    8191,     8192,    8193,
                                   65535,    65536,   65537,   1 << 20,  8 << 20, (8 << 20) + 1,
                                   8193 * 3, 3 << 23, 5 << 20, 123456789};
    for (uint32_t npeers = 0; npeers < 2000; npeers += npeers < 140 ? 1 : 300)
        CHECK(hly_verbs_grant(npeers) >= 4 && hly_verbs_grant(npeers) <= hly_verbs_grant(0),
              "grant %u", hly_verbs_grant(npeers));
    for (uint32_t grant = 1; grant <= 33; grant++)
        check_credits(grant);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        check_pieces(sizes[i], 8 << 20, 8192);
        check_pieces(sizes[i], 65536, 8192);
    }
    check_gids();
    check_gids_any();
    check_near();
    check_settings();
    printf("credits, pieces, GIDs, settings: as they are to be\n");
    return 0;
}
