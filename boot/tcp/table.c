/* SPDX-License-Identifier: Apache-2.0 */
/*
 * table.c - which rank is on which node, as rank 0 finds it and all ranks read it. Nodes are
 * numbered in the order of their lowest ranks, which also say how many processors a node has. On
 * the wire: the runs, the ports of all ranks, the ranks whose ip is not that of their node's lowest
 * rank, and the nodes, each a family, its ip (4 or 16 bytes) and its name with its end.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "tcp.h"

struct place {
    const struct hly_tcp_hello *hello;
    int rank;
};

static int by_node(const struct hly_tcp_hello *a, const struct hly_tcp_hello *b)
{
    if (a->netns != b->netns)
        return a->netns < b->netns ? -1 : 1;
    return strcmp(a->machine, b->machine);
}

static int by_place(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    int order = by_node(x->hello, y->hello);
    return order ? order : x->rank - y->rank;
}

/* node_of[rank] for all; the number of nodes, or -1 without memory. */
static int number_nodes(const struct hly_tcp_hello *hellos, int nranks, int32_t *node_of)
{
    struct place *places = malloc((size_t)nranks * sizeof places[0]);
    int nnodes = 0, first = 0;
    if (!places)
        return -1;
    for (int r = 0; r < nranks; r++)
        places[r] = (struct place){&hellos[r], r};
    qsort(places, (size_t)nranks, sizeof places[0], by_place);
    for (int i = 0; i < nranks; i++) { /* at first: the lowest rank of its node */
        if (i == 0 || by_node(places[i].hello, places[i - 1].hello))
            first = places[i].rank;
        node_of[places[i].rank] = first;
    }
    for (int r = 0; r < nranks; r++) {
        assert(node_of[r] <= r);
        node_of[r] = node_of[r] == r ? nnodes++ : node_of[node_of[r]];
    }
    free(places);
    return nnodes;
}

static int ip_bytes(int family)
{
    return family == AF_INET ? 4 : family == AF_INET6 ? 16 : 0;
}

static size_t node_bytes(const struct hly_tcp_hello *hello)
{
    return 2 + (size_t)ip_bytes(hello->address.family) + strlen(hello->host) + 1;
}

static char *put(char *to, const void *from, size_t bytes)
{
    memcpy(to, from, bytes);
    return to + bytes;
}

/* Who speaks for each node, and how many bytes the table has. */
static size_t measure(const struct hly_tcp_hello *hellos, int nranks, const int32_t *node_of,
                      const struct hly_tcp_hello **firsts, struct hly_tcp_answer *answer)
{
    uint32_t nruns = 0, nothers = 0, nnodes = 0;
    size_t bytes = 0;
    for (int r = 0; r < nranks; r++) {
        nruns += r == 0 || node_of[r] != node_of[r - 1];
        if ((uint32_t)node_of[r] == nnodes) {
            firsts[nnodes++] = &hellos[r];
            bytes += node_bytes(&hellos[r]);
        }
        nothers += !hly_address_same_ip(&hellos[r].address, &firsts[node_of[r]]->address);
    }
    bytes += nruns * sizeof(struct hly_boot_run) + nothers * sizeof(struct hly_boot_other) +
             (size_t)nranks * sizeof(uint16_t);
    answer->nnodes = nnodes;
    answer->nruns = nruns;
    answer->nothers = nothers;
    answer->bytes = (uint32_t)bytes;
    return bytes;
}

/* Who shares processors is told so with every address: whose ip is another one, too. */
static void mark_oversubscribed(struct hly_tcp_hello *hellos, int nranks, const int32_t *node_of,
                                const struct hly_tcp_hello **firsts, uint32_t *count)
{
    for (int r = 0; r < nranks; r++)
        count[node_of[r]]++;
    for (int r = 0; r < nranks; r++) {
        uint32_t processors = firsts[node_of[r]]->processors;
        if (processors && count[node_of[r]] > processors)
            hellos[r].address.fabrics |=
                HALAY_NODE_OVERSUBSCRIBED | (processors == 1 ? HALAY_NODE_SINGLE : 0);
    }
}

int hly_tcp_table_write(struct hly_tcp_hello *hellos, int nranks, struct hly_tcp_answer *answer,
                        char **table)
{
    int32_t *node_of = malloc((size_t)nranks * sizeof node_of[0]);
    const struct hly_tcp_hello **firsts = malloc((size_t)nranks * sizeof firsts[0]);
    uint32_t *count = calloc((size_t)nranks, sizeof count[0]);
    char *to = NULL;
    if (!node_of || !firsts || !count || number_nodes(hellos, nranks, node_of) < 0)
        goto out;
    size_t bytes = measure(hellos, nranks, node_of, firsts, answer);
    mark_oversubscribed(hellos, nranks, node_of, firsts, count);
    *table = to = malloc(bytes);
    if (!to)
        goto out;
    for (int r = 0; r < nranks; r++)
        if (r == 0 || node_of[r] != node_of[r - 1])
            to = put(to, &(struct hly_boot_run){r, node_of[r]}, sizeof(struct hly_boot_run));
    for (int r = 0; r < nranks; r++)
        to = put(to, &hellos[r].address.port, sizeof hellos[r].address.port);
    for (int r = 0; r < nranks; r++) {
        struct hly_boot_other other = {r, hellos[r].address};
        other.address.port = 0;
        if (!hly_address_same_ip(&other.address, &firsts[node_of[r]]->address))
            to = put(to, &other, sizeof other);
    }
    for (uint32_t n = 0; n < answer->nnodes; n++) {
        const halay_address_t *a = &firsts[n]->address;
        to = put(to, &a->family, 1);
        to = put(to, &a->fabrics, 1);
        to = put(to, a->ip, (size_t)ip_bytes(a->family));
        to = put(to, firsts[n]->host, strlen(firsts[n]->host) + 1);
    }
    assert(to == *table + bytes);
out:
    free(count);
    free(firsts);
    free(node_of);
    return to ? HALAY_OK : HALAY_ENOMEM;
}

static bool read_nodes(const char *from, const char *end, int nnodes, struct hly_boot_node *nodes)
{
    for (int n = 0; n < nnodes; n++) {
        if (end - from < 2)
            return false;
        uint8_t family = (uint8_t)*from++;
        nodes[n].address.fabrics = (uint8_t)*from++;
        int ip = ip_bytes(family);
        if (end - from < ip)
            return false;
        nodes[n].address.family = family;
        memcpy(nodes[n].address.ip, from, (size_t)ip);
        from += ip;
        const char *stop = from < end ? memchr(from, 0, (size_t)(end - from)) : NULL;
        if (!stop || stop - from >= HLY_BOOT_HOST_BYTES)
            return false;
        memcpy(nodes[n].host, from, (size_t)(stop - from) + 1);
        from = stop + 1;
    }
    return from == end;
}

static int read_all(const struct hly_tcp_answer *answer, const char *from,
                    struct hly_tcp_identity *id)
{
    size_t n = (size_t)id->nranks, ports = n * sizeof id->ports[0];
    size_t runs = answer->nruns * sizeof id->runs[0],
           others = answer->nothers * sizeof id->others[0];
    if (answer->nnodes < 1 || answer->nnodes > answer->nruns || answer->nruns > n ||
        answer->nothers > n || answer->bytes < runs + ports + others)
        return HALAY_EBOOT;
    id->runs = malloc(runs);
    id->ports = malloc(ports);
    id->others = malloc(others + 1);
    id->nodes = calloc(answer->nnodes, sizeof id->nodes[0]);
    if (!id->runs || !id->ports || !id->others || !id->nodes)
        return HALAY_ENOMEM;
    memcpy(id->runs, from, runs);
    memcpy(id->ports, from + runs, ports);
    memcpy(id->others, from + runs + ports, others);
    id->places = (struct hly_boot_places){.nranks = id->nranks,
                                          .nnodes = (int)answer->nnodes,
                                          .nruns = (int)answer->nruns,
                                          .nothers = (int)answer->nothers,
                                          .runs = id->runs,
                                          .nodes = id->nodes,
                                          .ports = id->ports,
                                          .others = id->others};
    return read_nodes(from + runs + ports + others, from + answer->bytes, id->places.nnodes,
                      id->nodes) &&
                   hly_boot_places_valid(&id->places)
               ? HALAY_OK
               : HALAY_EBOOT;
}

int hly_tcp_table_read(const struct hly_tcp_variables *v, const struct hly_tcp_answer *answer,
                       const char *table, struct hly_tcp_identity *id)
{
    int rc = read_all(answer, table, id);
    if (rc) {
        hly_tcp_identity_finish(id);
        return rc;
    }
    memcpy(id->job, answer->job, sizeof id->job);
    memcpy(id->secret, answer->secret, sizeof id->secret);
    if (v->has_secret) {
        uint8_t mac[32];
        struct hly_piece pieces[2] = {{"job", 3}, {answer->job, sizeof answer->job}};
        hly_mac(v->secret_key, pieces, 2, mac);
        memcpy(id->secret, mac, sizeof id->secret);
    }
    return HALAY_OK;
}

void hly_tcp_identity_finish(struct hly_tcp_identity *id)
{
    free(id->runs);
    free(id->ports);
    free(id->others);
    free(id->nodes);
    id->runs = NULL;
    id->ports = NULL;
    id->others = NULL;
    id->nodes = NULL;
    memset(&id->places, 0, sizeof id->places);
}
