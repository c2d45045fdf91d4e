/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rails.c - which ports serve, which pairs of ports join two ends, which data go over which.
 */
#include "rails.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------ distance */

int hly_verbs_list_next(const char **list, int *first, int *last)
{
    char *end;
    const char *at = *list + strspn(*list, ", \t\n");
    *first = *last = (int)strtol(at, &end, 10);
    if (end == at)
        return 0;
    if (*end == '-')
        *last = (int)strtol(end + 1, &end, 10);
    *list = end;
    return 1;
}

int hly_verbs_lists_meet(const char *a, const char *b)
{
    int first, last, from, to;
    while (hly_verbs_list_next(&a, &first, &last)) {
        for (const char *rest = b; hly_verbs_list_next(&rest, &from, &to);)
            if (from <= last && first <= to)
                return 1;
    }
    return 0;
}

/* The k-th number of a row: the distance to the k-th node that is online. */
static int row_at(const char *row, int k)
{
    int first = 0, last;
    while (k-- >= 0) {
        if (!hly_verbs_list_next(&row, &first, &last))
            return 0;
    }
    return first;
}

int hly_verbs_distance(const hly_verbs_numa_t *numa, const char *cpus, int node)
{
    int best = 0, to = 0;
    while (to < numa->n && numa->node[to] != node)
        to++;
    for (int from = 0; to < numa->n && from < numa->n; from++) {
        int distance = row_at(numa->distances[from], to);
        if (distance > 0 && (best == 0 || distance < best) &&
            hly_verbs_lists_meet(cpus, numa->cpus[from]))
            best = distance;
    }
    return best ? best : HLY_VERBS_NEAR; /* nothing is known: nothing counts against it */
}

/* ------------------------------------------------------------------ which ports */

/* 2: the same subnet; 1: by routers; 0: of the same link, perhaps; -1: no way. */
static int kind_of_rate(int rate)
{
    return rate >= 5 ? 2 : rate > 1 ? 1 : rate - 1;
}

static int best_rate(const hly_verbs_port_t *a, const hly_verbs_port_t *b)
{
    int i = 0, j = 0;
    if (a->type != b->type ||
        hly_verbs_gids_pair(a->gids, (int)a->ngids, b->gids, (int)b->ngids, 1, &i, &j))
        return 0;
    return hly_verbs_gid_rate(&a->gids[i], &b->gids[j]);
}

static int by_place(const void *a, const void *b)
{
    const hly_verbs_candidate_t *x = a, *y = b;
    int order = strcmp(x->place, y->place);
    if (order == 0)
        order = strcmp(x->port.name, y->port.name);
    return order ? order : (int)x->port.port - (int)y->port.port;
}

/* near is 1: link-local GIDs only. */
static int is_routable(const hly_verbs_candidate_t *one)
{
    return one->near > 1;
}

static int by_worth(const void *a, const void *b)
{
    const hly_verbs_candidate_t *x = a, *y = b;
    if (x->good != y->good)
        return y->good - x->good;
    if (is_routable(x) != is_routable(y))
        return is_routable(y) - is_routable(x);
    if (x->distance != y->distance)
        return x->distance - y->distance;
    if (x->port.speed_mbs != y->port.speed_mbs)
        return x->port.speed_mbs < y->port.speed_mbs ? 1 : -1;
    if (x->near != y->near)
        return y->near - x->near;
    return (int)x->port.number - (int)y->port.number;
}

/* Is it as good as the best of its subnet? all: in order of worth, the slow ones left out (good
 * is 0) before. */
static void good_mark(hly_verbs_candidate_t all[], int n)
{
    for (int i = 0; i < n; i++) {
        int first = 0;
        while (first < i && (all[first].net != first ||
                             kind_of_rate(best_rate(&all[first].port, &all[i].port)) < 2))
            first++;
        all[i].net = first;
        all[i].good &= all[i].distance == all[first].distance &&
                       all[i].port.speed_mbs == all[first].port.speed_mbs &&
                       is_routable(&all[i]) == is_routable(&all[0]);
    }
}

static void fast_mark(hly_verbs_candidate_t all[], int n)
{
    uint32_t most[2] = {0, 0};
    for (int i = 0; i < n; i++) {
        uint32_t *of = &most[is_routable(&all[i])];
        *of = all[i].port.speed_mbs > *of ? all[i].port.speed_mbs : *of;
    }
    for (int i = 0; i < n; i++)
        all[i].good = all[i].port.speed_mbs >= most[is_routable(&all[i])] / 2;
}

/* Turns a run of equals by the local rank. */
static void turn(hly_verbs_candidate_t all[], int n, int by)
{
    hly_verbs_candidate_t first;
    for (int i = 0; n > 1 && i < by % n; i++) {
        first = all[0];
        memmove(all, all + 1, (size_t)(n - 1) * sizeof(first));
        all[n - 1] = first;
    }
}

/* Where some have to be left: those of the bootstrap's subnet go first, and only they are turned,
 * so that ranks of two nodes always have a subnet in common. */
static void subnet_first(hly_verbs_candidate_t all[], int n, int local_rank)
{
    int best = 0, many = 0;
    for (int i = 1; i < n; i++)
        best = all[i].near > all[best].near ? i : best;
    const int net = all[best].net;
    for (int i = 0; i < n; i++) {
        if (all[i].net != net)
            continue;
        hly_verbs_candidate_t one = all[i];
        memmove(&all[many + 1], &all[many], (size_t)(i - many) * sizeof(one));
        all[many++] = one;
    }
    turn(all, many, local_rank);
}

int hly_verbs_rails_choose(hly_verbs_candidate_t all[], int n, int wanted, int local_rank)
{
    int good = 0;
    qsort(all, (size_t)n, sizeof(all[0]), by_place);
    for (int i = 0; i < n; i++)
        all[i].port.number = (uint32_t)i;
    fast_mark(all, n);
    qsort(all, (size_t)n, sizeof(all[0]), by_worth);
    good_mark(all, n);
    qsort(all, (size_t)n, sizeof(all[0]), by_worth);
    while (good < n && all[good].good)
        good++;
    if (wanted < 0)
        wanted = good;
    if (wanted > HLY_VERBS_RAILS)
        wanted = HLY_VERBS_RAILS;
    if (good > wanted)
        subnet_first(all, good, local_rank);
    for (int i = 0, end; good <= wanted && i < good; i = end) {
        for (end = i + 1; end < good && all[end].distance == all[i].distance &&
                          all[end].port.speed_mbs == all[i].port.speed_mbs;)
            end++;
        turn(all + i, end - i, local_rank);
    }
    return wanted < n ? wanted : n;
}

/* ------------------------------------------------------------------ which pairs */

/* A set of pairs of ports: to[i] is the partner of the lower end's i-th port, -1: none. */
typedef struct hly_verbs_set {
    int to[HLY_VERBS_RAILS];
    uint64_t speed;
    int rate, apart;
} hly_verbs_set_t;

/* One search for the best set; ports: the lower end's, and the other's. */
typedef struct hly_verbs_search {
    const hly_verbs_port_t *ports[2];
    int n[2], kind;
    int rate[HLY_VERBS_RAILS][HLY_VERBS_RAILS];
    hly_verbs_set_t best;
} hly_verbs_search_t;

static uint32_t slower(const hly_verbs_port_t *a, const hly_verbs_port_t *b)
{
    uint32_t speed = a->speed_mbs < b->speed_mbs ? a->speed_mbs : b->speed_mbs;
    return speed ? speed : 1;
}

static int is_better(const hly_verbs_set_t *a, const hly_verbs_set_t *b)
{
    if (a->speed != b->speed)
        return a->speed > b->speed;
    return a->rate != b->rate ? a->rate > b->rate : a->apart < b->apart;
}

static hly_verbs_set_t set_with(const hly_verbs_search_t *s, const hly_verbs_set_t *set, int i,
                                int j)
{
    const hly_verbs_port_t *a = &s->ports[0][i], *b = &s->ports[1][j];
    hly_verbs_set_t with = *set;
    with.to[i] = j;
    with.speed += slower(a, b);
    with.rate += s->rate[i][j];
    with.apart += abs((int)a->number - (int)b->number);
    return with;
}

/* Tries all sets that pair the ports from the i-th on, those with early partners first. */
static void search(hly_verbs_search_t *s, int i, int taken, hly_verbs_set_t set)
{
    if (i == s->n[0] || (s->kind == 0 && taken)) {
        while (i < s->n[0])
            set.to[i++] = -1;
        if (is_better(&set, &s->best))
            s->best = set;
        return;
    }
    for (int j = 0; j < s->n[1]; j++) {
        if (taken >> j & 1 || kind_of_rate(s->rate[i][j]) < s->kind)
            continue;
        search(s, i + 1, taken | 1 << j, set_with(s, &set, i, j));
    }
    set.to[i] = -1;
    search(s, i + 1, taken, set);
}

/* In the order of both ends' places, the lower end's first. */
static int lanes_make(const hly_verbs_search_t *s, int lower,
                      hly_verbs_lane_plan_t lanes[HLY_VERBS_RAILS])
{
    int n = 0;
    for (int sum = 0; sum < 2 * HLY_VERBS_RAILS; sum++) {
        for (int i = 0; i < s->n[0]; i++) {
            const int j = s->best.to[i];
            if (j < 0 || i + j != sum)
                continue;
            const hly_verbs_port_t *a = &s->ports[0][i], *b = &s->ports[1][j];
            int gids[2] = {0, 0};
            hly_verbs_gids_pair(a->gids, (int)a->ngids, b->gids, (int)b->ngids, 1, &gids[0],
                                &gids[1]);
            lanes[n++] = (hly_verbs_lane_plan_t){.mine = lower ? i : j,
                                                 .its = lower ? j : i,
                                                 .gid = gids[!lower],
                                                 .its_gid = gids[lower],
                                                 .mtu = (int)(a->mtu < b->mtu ? a->mtu : b->mtu),
                                                 .share = slower(a, b)};
        }
    }
    return n;
}

int hly_verbs_map(const hly_verbs_port_t mine[], int n, const hly_verbs_port_t its[], int m,
                  int lower, hly_verbs_lane_plan_t lanes[HLY_VERBS_RAILS])
{
    hly_verbs_search_t s = {.ports = {lower ? mine : its, lower ? its : mine},
                            .n = {lower ? n : m, lower ? m : n},
                            .kind = -1};
    const hly_verbs_set_t none = {.speed = 0};
    for (int i = 0; i < s.n[0]; i++) {
        for (int j = 0; j < s.n[1]; j++) {
            s.rate[i][j] = best_rate(&s.ports[0][i], &s.ports[1][j]);
            if (kind_of_rate(s.rate[i][j]) > s.kind)
                s.kind = kind_of_rate(s.rate[i][j]);
        }
    }
    if (s.kind < 0)
        return 0;
    search(&s, 0, 0, none);
    return lanes_make(&s, lower != 0, lanes);
}

/* FNV-1a */
static uint64_t hash_more(uint64_t hash, const void *data, size_t bytes)
{
    const uint8_t *at = data;
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ at[i]) * UINT64_C(0x100000001b3);
    return hash;
}

static uint64_t hash_word(uint64_t hash, uint32_t word)
{
    const uint8_t bytes[4] = {(uint8_t)word, (uint8_t)(word >> 8), (uint8_t)(word >> 16),
                              (uint8_t)(word >> 24)};
    return hash_more(hash, bytes, sizeof(bytes));
}

static uint64_t hash_port(uint64_t hash, const hly_verbs_port_t *port, int gid)
{
    hash = hash_more(hash, port->name, strnlen(port->name, sizeof(port->name)));
    hash = hash_word(hash, port->port);
    hash = hash_word(hash, port->qpn);
    hash = hash_word(hash, port->lid);
    hash = hash_word(hash, port->device);
    return hash_more(hash, port->gids[gid].raw, sizeof(port->gids[gid].raw));
}

uint64_t hly_verbs_map_hash(const hly_verbs_port_t mine[], const hly_verbs_port_t its[], int lower,
                            const hly_verbs_lane_plan_t lanes[], int n)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (int k = 0; k < n; k++) {
        const hly_verbs_lane_plan_t *lane = &lanes[k];
        const hly_verbs_port_t *a = &mine[lane->mine], *b = &its[lane->its];
        hash = hash_word(hash, (uint32_t)lane->mtu);
        hash = hash_word(hash, lane->share);
        hash = hash_port(hash, lower ? a : b, lower ? lane->gid : lane->its_gid);
        hash = hash_port(hash, lower ? b : a, lower ? lane->its_gid : lane->gid);
    }
    return hash;
}

/* ------------------------------------------------------------------ which data */

size_t hly_verbs_part(size_t bytes, const hly_verbs_lane_plan_t lanes[], int n, int lane)
{
    uint64_t all = 0, before = 0;
    for (int k = 0; k < n; k++) {
        before += k < lane ? lanes[k].share : 0;
        all += lanes[k].share;
    }
    assert(all > 0 && lane <= n);
    if (lane == n)
        return bytes;
    size_t at = bytes / all * before + bytes % all * before / all;
    return at - at % HLY_VERBS_CUT;
}
