/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_verbs_rails.c - several rails, without a device: which ports serve on made-up nodes, which
 * pairs of them two ends agree on, which data go over which. Runs everywhere.
 */
#include <stdio.h>
#include <string.h>

#include "../../transports/verbs/rails.h"
#include "../check.h"

enum { IB = 0, NETS = 4 }; /* of a made-up port: its network; 0: InfiniBand */

static uint64_t seed = 1;

static uint32_t any(uint32_t below)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(seed >> 33) % below;
}

/* ------------------------------------------------------------------ made-up ports */

/* Of RoCE v2 in 10.net.0.0/24, and a link-local GID; local: that one only. */
static hly_verbs_port_t port_of(int net, int host, uint32_t speed_mbs, int local)
{
    hly_verbs_port_t port = {.qpn = 1 + any(1 << 20),
                             .mtu = 5,
                             .port = 1,
                             .speed_mbs = speed_mbs,
                             .type = net == IB ? 1 : 2};
    hly_verbs_gid_t *gid = port.gids;
    snprintf(port.name, sizeof(port.name), "net%dhost%d", net, host);
    if (net != IB && !local) {
        gid->type = HLY_VERBS_ROCE2;
        gid->prefix = 24;
        gid->raw[10] = gid->raw[11] = 0xff;
        gid->raw[12] = 10;
        gid->raw[13] = (uint8_t)net;
        gid->raw[15] = (uint8_t)host;
        gid++;
    }
    gid->type = net == IB ? HLY_VERBS_IB : HLY_VERBS_ROCE2;
    gid->index = (uint8_t)(gid - port.gids);
    gid->raw[0] = 0xfe;
    gid->raw[1] = 0x80;
    gid->raw[14] = (uint8_t)net;
    gid->raw[15] = (uint8_t)host;
    port.ngids = 1 + (uint32_t)(gid - port.gids);
    return port;
}

static hly_verbs_candidate_t candidate(const char *place, int net, uint32_t speed_mbs, int distance)
{
    hly_verbs_candidate_t one = {.port = port_of(net, 1, speed_mbs, 0), .distance = distance};
    one.near = net == IB ? 5 : net == 1 ? 9 : 3; /* the bootstrap is in net 1 */
    snprintf(one.place, sizeof(one.place), "%s", place);
    return one;
}

/* The places of those that serve, in order. */
static const char *chosen(const hly_verbs_candidate_t ports[], int n, int wanted, int local_rank)
{
    static char text[256];
    hly_verbs_candidate_t all[HLY_VERBS_PORTS];
    memcpy(all, ports, (size_t)n * sizeof(all[0]));
    int many = hly_verbs_rails_choose(all, n, wanted, local_rank);
    CHECK(many >= 1 && many <= HLY_VERBS_RAILS && many <= n, "%d of %d", many, n);
    *text = 0;
    for (int i = 0; i < many; i++)
        strcat(text, all[i].place);
    return text;
}

#define CHOSEN(ports, wanted, rank, want)                                                          \
    do {                                                                                           \
        const char *got = chosen(ports, (int)(sizeof(ports) / sizeof(ports[0])), wanted, rank);    \
        CHECK(!strcmp(got, want), "%s for %s", got, want);                                         \
    } while (0)

static void check_choice(void)
{
    /* Two of InfiniBand on each socket. */
    const hly_verbs_candidate_t sockets[] = {
        candidate("a", IB, 400000, 10), candidate("b", IB, 400000, 10),
        candidate("c", IB, 400000, 21), candidate("d", IB, 400000, 21)};
    CHOSEN(sockets, -1, 0, "ab");
    CHOSEN(sockets, -1, 1, "ba");
    CHOSEN(sockets, -1, 2, "ab");
    CHOSEN(sockets, 1, 0, "a");
    CHOSEN(sockets, 1, 5, "b");
    CHOSEN(sockets, 3, 1, "bac");
    CHOSEN(sockets, 4, 0, "abcd");
    /* A port on the board is near, and slow. */
    const hly_verbs_candidate_t board[] = {candidate("a", 1, 25000, 10),
                                           candidate("b", IB, 400000, 21)};
    CHOSEN(board, -1, 0, "b");
    CHOSEN(board, 2, 0, "ba");
    /* Half as fast is near enough, but not equally good. */
    const hly_verbs_candidate_t speeds[] = {candidate("a", IB, 200000, 21),
                                            candidate("b", IB, 100000, 10)};
    CHOSEN(speeds, -1, 0, "b");
    CHOSEN(speeds, 2, 0, "ba");
    /* Eight of InfiniBand: four, and ranks spread over all. */
    hly_verbs_candidate_t eight[8];
    for (int i = 0; i < 8; i++)
        eight[i] = candidate((const char[]){(char)('a' + i), 0}, IB, 400000, 10);
    CHOSEN(eight, -1, 0, "abcd");
    CHOSEN(eight, -1, 7, "habc");
    CHOSEN(eight, 1, 6, "g");
    /* Each in a network of its own: where some are left out, all ranks take the same. */
    hly_verbs_candidate_t apart[8];
    for (int i = 0; i < 8; i++)
        apart[i] = candidate((const char[]){(char)('a' + i), 0}, 8 - i, 400000, 10);
    CHOSEN(apart, -1, 0, "habc");
    CHOSEN(apart, -1, 3, "habc");
    CHOSEN(apart, 1, 3, "h");
    /* The far one is in another network: who is near it on another node is met only there. */
    const hly_verbs_candidate_t nets[] = {candidate("a", 1, 100000, 10),
                                          candidate("b", 2, 100000, 21)};
    CHOSEN(nets, -1, 0, "ab");
    CHOSEN(nets, -1, 1, "ab");
    /* One without an address. */
    hly_verbs_candidate_t bare[] = {candidate("a", 2, 100000, 10), candidate("b", 1, 100000, 21)};
    bare[0].port = port_of(2, 1, 100000, 1);
    bare[0].near = 1;
    CHOSEN(bare, -1, 0, "b");
    bare[1] = bare[0];
    strcpy(bare[1].place, "b");
    CHOSEN(bare, -1, 0, "ab");
}

/* ------------------------------------------------------------------ distance */

static void check_distance(void)
{
    static const hly_verbs_numa_t numa = {.n = 3,
                                          .node = {0, 2, 8},
                                          .cpus = {"0-3,16-19\n", "4-7\n", "\n"},
                                          .distances = {"10 21 31\n", "21 10 31\n", "31 31 10\n"}};
    static const struct {
        const char *cpus;
        int node, distance;
    } cases[] = {{"0-3", 0, 10},     {"0-3", 2, 21},  {"3-4", 2, 10},     {"\t17\n", 2, 21},
                 {"5,18", 8, 31},    {"0-31", 2, 10}, {"0-3", -1, 10},    {"0-3", 1, 10},
                 {"200-300", 2, 10}, {"", 0, 10},     {"nonsense", 0, 10}};
    const hly_verbs_numa_t none = {.n = 0};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        int got = hly_verbs_distance(&numa, cases[i].cpus, cases[i].node);
        CHECK(got == cases[i].distance, "'%s' to %d: %d", cases[i].cpus, cases[i].node, got);
    }
    CHECK(hly_verbs_distance(&none, "0", 0) == HLY_VERBS_NEAR, "no NUMA");
    CHECK(hly_verbs_lists_meet("0-3,8", "8-9") && !hly_verbs_lists_meet("0-3,8", "4-7"), "lists");
}

/* ------------------------------------------------------------------ pairs */

typedef struct end { /* as one end tells of itself */
    int n;
    hly_verbs_port_t ports[HLY_VERBS_RAILS];
} end_t;

static void end_add(end_t *end, hly_verbs_port_t port, int number)
{
    port.number = (uint32_t)number;
    port.device = (uint32_t)end->n;
    end->ports[end->n++] = port;
}

/* Does a pair of ports lead anywhere, and how well? 2: the same subnet; 1: routed; 0: a guess. */
static int kind_of(const hly_verbs_port_t *a, const hly_verbs_port_t *b)
{
    int best = -1;
    for (uint32_t i = 0; a->type == b->type && i < a->ngids; i++) {
        for (uint32_t j = 0; j < b->ngids; j++) {
            int rate = hly_verbs_gid_rate(&a->gids[i], &b->gids[j]);
            int kind = rate >= 5 ? 2 : rate >= 2 ? 1 : rate - 1;
            best = kind > best ? kind : best;
        }
    }
    return best;
}

/* What the best set of pairs carries, by another road: pairs are taken out one by one. */
static uint64_t best_speed(const end_t *a, const end_t *b, int kind, unsigned mine, unsigned its)
{
    uint64_t best = 0;
    for (int i = 0; i < a->n; i++) {
        for (int j = 0; j < b->n; j++) {
            if (mine >> i & 1 || its >> j & 1 || kind_of(&a->ports[i], &b->ports[j]) < kind)
                continue;
            uint64_t speed = a->ports[i].speed_mbs < b->ports[j].speed_mbs ? a->ports[i].speed_mbs
                                                                           : b->ports[j].speed_mbs;
            if (kind > 0)
                speed += best_speed(a, b, kind, mine | 1u << i, its | 1u << j);
            best = speed > best ? speed : best;
        }
    }
    return best;
}

/* Both ends see the same, which is well made and the best. Returns how many lanes. */
static int agree(const end_t *a, const end_t *b, hly_verbs_lane_plan_t x[HLY_VERBS_RAILS])
{
    hly_verbs_lane_plan_t y[HLY_VERBS_RAILS];
    unsigned mine = 0, its = 0;
    uint64_t speed = 0;
    int kind = -1, n = hly_verbs_map(a->ports, a->n, b->ports, b->n, 1, x);
    CHECK(hly_verbs_map(b->ports, b->n, a->ports, a->n, 0, y) == n, "as many lanes at both");
    for (int i = 0; i < a->n * b->n; i++) {
        int one = kind_of(&a->ports[i / b->n], &b->ports[i % b->n]);
        kind = one > kind ? one : kind;
    }
    CHECK((n > 0) == (kind >= 0), "%d lanes, kind %d", n, kind);
    for (int k = 0; k < n; k++) {
        const hly_verbs_port_t *p = &a->ports[x[k].mine], *q = &b->ports[x[k].its];
        CHECK(x[k].mine == y[k].its && x[k].its == y[k].mine && x[k].gid == y[k].its_gid &&
                  x[k].its_gid == y[k].gid && x[k].mtu == y[k].mtu && x[k].share == y[k].share,
              "lane %d is not the same", k);
        CHECK(!(mine >> x[k].mine & 1) && !(its >> x[k].its & 1), "a port has two lanes");
        mine |= 1u << x[k].mine;
        its |= 1u << x[k].its;
        CHECK(kind_of(p, q) == kind, "lane %d: kind %d, not %d", k, kind_of(p, q), kind);
        CHECK(hly_verbs_gid_rate(&p->gids[x[k].gid], &q->gids[x[k].its_gid]) > 0, "GIDs");
        CHECK(x[k].mtu == (int)(p->mtu < q->mtu ? p->mtu : q->mtu), "MTU %d", x[k].mtu);
        speed += x[k].share;
    }
    CHECK(n == 0 || speed == best_speed(a, b, kind, 0, 0), "a better set was left");
    CHECK(hly_verbs_map_hash(a->ports, b->ports, 1, x, n) ==
              hly_verbs_map_hash(b->ports, a->ports, 0, y, n),
          "the hash");
    return n;
}

static void check_pairs(void)
{
    hly_verbs_lane_plan_t lanes[HLY_VERBS_RAILS];
    end_t two = {0}, turned = {0}, one = {0}, other = {0}, fast = {0}, none = {0}, local = {0};
    for (int i = 0; i < 2; i++) {
        end_add(&two, port_of(IB, 1 + i, 200000, 0), i);
        end_add(&turned, port_of(IB, 8 - i, 200000, 0), 1 - i);
        end_add(&other, port_of(2 - i, 9, 100000, 0), i);
        end_add(&local, port_of(1 + i, 10, 100000, 1), i);
    }
    end_add(&one, port_of(IB, 5, 400000, 0), 0);
    end_add(&fast, port_of(1, 3, 400000, 0), 0);
    end_add(&fast, port_of(2, 3, 100000, 0), 1);
    /* The k-th port of one node with the k-th of the other, in whatever order they serve. */
    CHECK(agree(&two, &turned, lanes) == 2, "two and two");
    for (int k = 0; k < 2; k++)
        CHECK(two.ports[lanes[k].mine].number == turned.ports[lanes[k].its].number, "numbers");
    CHECK(agree(&two, &one, lanes) == 1 && lanes[0].share == 200000, "two and one");
    /* Networks decide, and the shares are the slower ends'. */
    CHECK(agree(&fast, &other, lanes) == 2 && lanes[0].mine != lanes[0].its, "two networks");
    CHECK(lanes[0].share == 100000 && lanes[1].share == 100000, "shares");
    CHECK(agree(&two, &other, lanes) == 0, "InfiniBand and RoCE");
    CHECK(agree(&two, &none, lanes) == 0, "no port");
    CHECK(agree(&local, &local, lanes) == 1, "link-local: one lane, for nobody knows the links");
    /* One rail has no GID in common with anything near: it is left out, not routed. */
    end_t partly = {0};
    end_add(&partly, port_of(1, 4, 100000, 0), 0);
    end_add(&partly, port_of(3, 4, 100000, 0), 1);
    CHECK(agree(&fast, &partly, lanes) == 1 && lanes[0].mine == 0 && lanes[0].its == 0, "a rail");
    /* All behind routers: in the order of their numbers. */
    end_t far = {0};
    end_add(&far, port_of(6, 4, 100000, 0), 0);
    end_add(&far, port_of(7, 4, 100000, 0), 1);
    CHECK(agree(&fast, &far, lanes) == 2 && lanes[0].mine == 0 && lanes[0].its == 0, "routed");
    /* The hash tells of anything that is not the same. */
    uint64_t hash = hly_verbs_map_hash(fast.ports, far.ports, 1, lanes, 2);
    hly_verbs_lane_plan_t swapped[] = {lanes[1], lanes[0]};
    CHECK(hly_verbs_map_hash(fast.ports, far.ports, 1, swapped, 2) != hash, "order");
    CHECK(hly_verbs_map_hash(fast.ports, far.ports, 1, lanes, 1) != hash, "one lane less");
    for (int i = 0; i < 4; i++) {
        end_t x = far;
        hly_verbs_lane_plan_t y[] = {lanes[0], lanes[1]};
        x.ports[1].qpn += i == 0;
        x.ports[1].gids[0].raw[15] ^= i == 1;
        y[1].mtu -= i == 2;
        y[0].share += i == 3;
        CHECK(hly_verbs_map_hash(fast.ports, x.ports, 1, y, 2) != hash, "change %d", i);
    }
}

/* All pairs of ends of up to 3 ports, each InfiniBand, or in one of two networks, fast or slow. */
static void check_all_small(void)
{
    enum { KINDS = 5, ENDS = 1 + KINDS + KINDS * KINDS + KINDS * KINDS * KINDS };
    static end_t ends[2][ENDS];
    int most = 0, cases = 0;
    for (int s = 0; s < 2; s++) {
        int n = 0;
        for (int ports = 0; ports <= 3; ports++) {
            int many = ports == 0 ? 1 : ports == 1 ? KINDS : ports == 2 ? 25 : 125;
            for (int code = 0; code < many; code++, n++) {
                for (int i = 0, rest = code; i < ports; i++, rest /= KINDS) {
                    int kind = rest % KINDS;
                    end_add(&ends[s][n],
                            port_of(kind == 0 ? IB : 1 + kind % 2, 10 * s + i, kind < 3 ? 2 : 1, 0),
                            i);
                }
            }
        }
        CHECK(n == ENDS, "%d ends", n);
    }
    for (int i = 0; i < ENDS; i++) {
        for (int j = 0; j < ENDS; j++, cases++) {
            hly_verbs_lane_plan_t lanes[HLY_VERBS_RAILS];
            int n = agree(&ends[0][i], &ends[1][j], lanes);
            most = n > most ? n : most;
        }
    }
    CHECK(most == 3, "at most %d lanes", most);
    printf("pairs: %d pairs of ends with up to 3 ports, all in agreement\n", cases);
}

/* Any ends of up to 4 ports: with and without addresses, of any speed, in any order. */
static void check_any(void)
{
    int lanes[HLY_VERBS_RAILS + 1] = {0};
    for (int round = 0; round < 3000; round++) {
        end_t ends[2] = {{0}, {0}};
        hly_verbs_lane_plan_t plan[HLY_VERBS_RAILS];
        for (int s = 0; s < 2; s++) {
            int n = (int)any(HLY_VERBS_RAILS + 1);
            for (int i = 0; i < n; i++) {
                hly_verbs_port_t port =
                    port_of((int)any(NETS), 1 + (int)any(100), 1 + any(3) * 100000, any(4) == 0);
                port.mtu = 1 + any(5);
                end_add(&ends[s], port, (int)any(8));
            }
        }
        lanes[agree(&ends[0], &ends[1], plan)]++;
    }
    for (int n = 0; n <= HLY_VERBS_RAILS; n++)
        CHECK(lanes[n] > 0, "never %d lanes", n);
}

/* ------------------------------------------------------------------ parts */

static void check_parts(void)
{
    static const uint32_t shares[][HLY_VERBS_RAILS] = {{1, 0, 0, 0},
                                                       {400000, 400000, 0, 0},
                                                       {400000, 100000, 0, 0},
                                                       {1, 1, 1, 1},
                                                       {3, 800000, 7, 1}};
    for (size_t s = 0; s < sizeof(shares) / sizeof(shares[0]); s++) {
        hly_verbs_lane_plan_t lanes[HLY_VERBS_RAILS] = {{0}};
        int n = 0;
        uint64_t all = 0;
        for (; n < HLY_VERBS_RAILS && shares[s][n]; n++)
            all += lanes[n].share = shares[s][n];
        for (size_t bytes = 0; bytes < (size_t)1 << 40; bytes = bytes * 3 + 12345) {
            CHECK(hly_verbs_part(bytes, lanes, n, 0) == 0, "begin");
            CHECK(hly_verbs_part(bytes, lanes, n, n) == bytes, "end");
            for (int k = 0; k < n; k++) {
                size_t from = hly_verbs_part(bytes, lanes, n, k);
                size_t to = hly_verbs_part(bytes, lanes, n, k + 1);
                double exact = (double)bytes * shares[s][k] / (double)all;
                CHECK(from <= to && from % HLY_VERBS_CUT == 0, "lane %d: %zu to %zu", k, from, to);
                CHECK((double)(to - from) < exact + HLY_VERBS_CUT + 1 &&
                          (double)(to - from) > exact - HLY_VERBS_CUT - 1,
                      "lane %d: %zu of %zu", k, to - from, bytes);
            }
        }
    }
}

int main(void)
{
    check_choice();
    check_distance();
    check_pairs();
    check_all_small();
    check_any();
    check_parts();
    printf("rails: ports, distances, pairs, hashes, parts: as they are to be\n");
    return 0;
}
