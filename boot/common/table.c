/* SPDX-License-Identifier: Apache-2.0 */
/*
 * table.c - the table of ranks, nodes and addresses: the holder writes it, and all ranks read it.
 * Nodes are numbered in the order of their lowest ranks. The lowest rank also says how many
 * processors its node has. On the wire it has the runs, the ports of all ranks, and the ranks whose
 * IP is not that of their node's lowest rank. Then come the nodes: each a family, its IP (4 or 16
 * bytes) and its name with a final zero. After these, not the same for all ranks, the processes of
 * the rank's node.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "listen.h"
#include "meet.h"

struct place {
    const struct hly_boot_hello *hello;
    int rank;
};

static int by_node(const struct hly_boot_hello *a, const struct hly_boot_hello *b)
{
    if (a->netns != b->netns)
        return a->netns < b->netns ? -1 : 1;
    if (a->uid != b->uid)
        return a->uid < b->uid ? -1 : 1;
    return strcmp(a->machine, b->machine);
}

static int by_place(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    int order = by_node(x->hello, y->hello);
    return order ? order : x->rank - y->rank;
}

/* Fills node_of[rank] for all ranks. Returns the number of nodes, or -1: no memory. */
static int number_nodes(const struct hly_boot_hello *hellos, int nranks, int32_t *node_of)
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

static size_t node_bytes(const struct hly_boot_hello *hello)
{
    return 2 + (size_t)ip_bytes(hello->address.family) + strlen(hello->host) + 1;
}

static char *put(char *to, const void *from, size_t bytes)
{
    memcpy(to, from, bytes);
    return to + bytes;
}

/* Finds the lowest rank of each node, and computes how many bytes the table has. */
static size_t measure(const struct hly_boot_hello *hellos, int nranks, const int32_t *node_of,
                      const struct hly_boot_hello **firsts, struct hly_boot_answer *answer)
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
    answer->nranks = (uint32_t)nranks;
    return bytes;
}

/* Marks the address of every rank on an oversubscribed node, also of ranks with another IP. */
static void mark_oversubscribed(struct hly_boot_hello *hellos, int nranks, const int32_t *node_of,
                                const struct hly_boot_hello **firsts, const uint32_t *count)
{
    for (int r = 0; r < nranks; r++) {
        uint32_t processors = firsts[node_of[r]]->processors;
        if (processors && count[node_of[r]] > processors)
            hellos[r].address.fabrics |=
                HALAY_NODE_OVERSUBSCRIBED | (processors == 1 ? HALAY_NODE_SINGLE : 0);
    }
}

/* Writes the processes, node by node. count[node] becomes 0. */
static void write_processes(const struct hly_boot_hello *hellos, int nranks, uint32_t *count,
                            char *to, const struct hly_boot_table *table)
{
    for (int n = 0; n < nranks; n++)
        table->starts[n + 1] = table->starts[n] + count[n];
    for (int r = 0; r < nranks; r++) {
        const int32_t n = table->node_of[r];
        const struct hly_boot_process it = {r, 0, hellos[r].process};
        put(to + sizeof it * (table->starts[n + 1] - count[n]--), &it, sizeof it);
    }
}

/* Writes the table without the processes. Returns where it ends. */
static char *write_table(const struct hly_boot_hello *hellos, int nranks, const int32_t *node_of,
                         const struct hly_boot_hello **firsts, uint32_t nnodes, char *to)
{
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
    for (uint32_t n = 0; n < nnodes; n++) {
        const halay_address_t *a = &firsts[n]->address;
        to = put(to, &a->family, 1);
        to = put(to, &a->fabrics, 1);
        to = put(to, a->ip, (size_t)ip_bytes(a->family));
        to = put(to, firsts[n]->host, strlen(firsts[n]->host) + 1);
    }
    return to;
}

static bool alike(const struct hly_boot_hello *hellos, int nranks)
{
    for (int r = 1; r < nranks; r++)
        if (hellos[r].kept != hellos[0].kept)
            return false;
    return true;
}

int hly_boot_table_write(struct hly_boot_hello *hellos, int nranks, struct hly_boot_answer *answer,
                         struct hly_boot_table *table)
{
    const size_t n = (size_t)nranks;
    int32_t *node_of = malloc(n * sizeof node_of[0]);
    const struct hly_boot_hello **firsts = malloc(n * sizeof firsts[0]);
    uint32_t *count = calloc(n, sizeof count[0]);
    char *end = NULL;
    *table = (struct hly_boot_table){.node_of = node_of,
                                     .starts = calloc(n + 1, sizeof table->starts[0])};
    if (!node_of || !firsts || !count || !table->starts ||
        number_nodes(hellos, nranks, node_of) < 0)
        goto out;
    size_t bytes = measure(hellos, nranks, node_of, firsts, answer);
    for (int r = 0; r < nranks; r++)
        count[node_of[r]]++;
    mark_oversubscribed(hellos, nranks, node_of, firsts, count);
    answer->joined |= alike(hellos, nranks) ? HLY_BOOT_ALIKE : 0;
    table->bytes = malloc(bytes + n * sizeof(struct hly_boot_process));
    if (!table->bytes)
        goto out;
    end = write_table(hellos, nranks, node_of, firsts, answer->nnodes, table->bytes);
    assert(end == table->bytes + bytes);
    write_processes(hellos, nranks, count, end, table);
out:
    free(count);
    free(firsts);
    return end ? HALAY_OK : HALAY_ENOMEM;
}

struct hly_piece hly_boot_table_part(const struct hly_boot_table *table, uint32_t rank,
                                     struct hly_boot_answer *answer)
{
    const uint32_t *start = &table->starts[table->node_of[rank]];
    const size_t one = sizeof(struct hly_boot_process);
    const struct hly_piece piece = {table->bytes + answer->bytes + one * start[0],
                                    one * (start[1] - start[0])};
    answer->rank = rank;
    answer->nprocesses = start[1] - start[0];
    answer->bytes += (uint32_t)piece.bytes;
    return piece;
}

void hly_boot_table_finish(struct hly_boot_table *table)
{
    free(table->bytes);
    free(table->node_of);
    free(table->starts);
    memset(table, 0, sizeof *table);
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

static int read_all(const struct hly_boot_answer *answer, const char *from,
                    struct hly_boot_identity *id)
{
    const size_t n = answer->nranks, runs = answer->nruns * sizeof(struct hly_boot_run),
                 ports = n * sizeof(uint16_t),
                 others = answer->nothers * sizeof(struct hly_boot_other),
                 processes = answer->nprocesses * sizeof(struct hly_boot_process);
    if (n < 1 || n > HLY_BOOT_RANKS_MAX || answer->rank >= n || answer->nnodes < 1 ||
        answer->nnodes > answer->nruns || answer->nruns > n || answer->nothers > n ||
        answer->nprocesses > n || answer->bytes < runs + ports + others + processes)
        return HALAY_EBOOT;
    char *to = id->memory = calloc(1, processes + runs + others + ports +
                                          answer->nnodes * sizeof(struct hly_boot_node));
    if (!to)
        return HALAY_ENOMEM;
    const char *nodes_end = from + answer->bytes - processes;
    memcpy(to, nodes_end, processes);
    memcpy(to + processes, from, runs);
    memcpy(to + processes + runs, from + runs + ports, others);
    struct hly_boot_node *nodes = (void *)(to + processes + runs + others);
    memcpy(nodes + answer->nnodes, from + runs, ports);
    id->rank = (int)answer->rank;
    id->nranks = (int)n;
    id->epoch = answer->epoch;
    id->places = (struct hly_boot_places){.nranks = id->nranks,
                                          .nnodes = (int)answer->nnodes,
                                          .nruns = (int)answer->nruns,
                                          .nothers = (int)answer->nothers,
                                          .nprocesses = (int)answer->nprocesses,
                                          .processes = (void *)to,
                                          .runs = (void *)(to + processes),
                                          .others = (void *)(to + processes + runs),
                                          .nodes = nodes,
                                          .ports = (void *)(nodes + answer->nnodes)};
    return read_nodes(from + runs + ports + others, nodes_end, id->places.nnodes, nodes) &&
                   hly_boot_places_valid(&id->places)
               ? HALAY_OK
               : HALAY_EBOOT;
}

int hly_boot_table_read(const struct hly_boot_key *key, const struct hly_boot_answer *answer,
                        const char *table, struct hly_boot_identity *id)
{
    int rc = read_all(answer, table, id);
    if (rc) {
        hly_boot_identity_finish(id);
        return rc;
    }
    id->changes = answer->joined & HLY_BOOT_CHANGES;
    id->alike = answer->joined & HLY_BOOT_ALIKE ? 1 : -1;
    memcpy(id->job, answer->job, sizeof id->job);
    memcpy(id->secret, answer->secret, sizeof id->secret);
    if (key->has_secret) {
        uint8_t mac[32];
        struct hly_piece pieces[2] = {{"job", 3}, {answer->job, sizeof answer->job}};
        hly_mac(key->secret, pieces, 2, mac);
        memcpy(id->secret, mac, sizeof id->secret);
    }
    return HALAY_OK;
}

void hly_boot_identity_finish(struct hly_boot_identity *id)
{
    free(id->memory);
    id->memory = NULL;
    memset(&id->places, 0, sizeof id->places);
}
