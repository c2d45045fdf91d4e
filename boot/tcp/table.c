/* SPDX-License-Identifier: Apache-2.0 */
/*
 * table.c - which rank is on which node, as rank 0 finds it and all ranks read it. Nodes are
 * numbered in the order of their lowest ranks. On the wire: the runs, then the nodes' names, each
 * with its end.
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

static size_t name_bytes(const struct hly_tcp_hello *hello)
{
    return strlen(hello->host) + 1;
}

int hly_tcp_table_write(const struct hly_tcp_hello *hellos, int nranks,
                        struct hly_tcp_answer *answer, char **table)
{
    int32_t *node_of = malloc((size_t)nranks * sizeof node_of[0]);
    int nnodes = node_of ? number_nodes(hellos, nranks, node_of) : -1, nruns = 0, next = 0;
    size_t bytes = 0;
    char *to = NULL;
    if (nnodes < 0)
        goto out;
    for (int r = 0; r < nranks; r++) {
        nruns += r == 0 || node_of[r] != node_of[r - 1];
        if (node_of[r] == next) {
            next++;
            bytes += name_bytes(&hellos[r]);
        }
    }
    bytes += (size_t)nruns * sizeof(struct hly_tcp_run);
    *table = to = malloc(bytes);
    if (!to)
        goto out;
    for (int r = 0; r < nranks; r++)
        if (r == 0 || node_of[r] != node_of[r - 1]) {
            struct hly_tcp_run run = {r, node_of[r]};
            memcpy(to, &run, sizeof run);
            to += sizeof run;
        }
    next = 0;
    for (int r = 0; r < nranks; r++)
        if (node_of[r] == next) {
            next++;
            memcpy(to, hellos[r].host, name_bytes(&hellos[r]));
            to += name_bytes(&hellos[r]);
        }
    assert(next == nnodes && to == *table + bytes);
    answer->nnodes = (uint32_t)nnodes;
    answer->nruns = (uint32_t)nruns;
    answer->bytes = (uint32_t)bytes;
out:
    free(node_of);
    return to ? HALAY_OK : HALAY_ENOMEM;
}

static int read_names(const char *from, const char *end, struct hly_tcp_identity *id)
{
    for (int n = 0; n < id->nnodes; n++) {
        const char *stop = from < end ? memchr(from, 0, (size_t)(end - from)) : NULL;
        if (!stop || stop - from >= HLY_TCP_HOST_BYTES)
            return 0;
        memcpy(id->hosts[n], from, (size_t)(stop - from) + 1);
        from = stop + 1;
    }
    return from == end;
}

static int read_runs(struct hly_tcp_identity *id)
{
    int seen = 0;
    for (int i = 0; i < id->nruns; i++) {
        const struct hly_tcp_run *run = &id->runs[i];
        int end = i + 1 < id->nruns ? run[1].first : id->nranks;
        if ((i == 0 && run->first != 0) || end <= run->first || end > id->nranks || run->node < 0 ||
            run->node > seen || run->node >= id->nnodes)
            return 0;
        seen += run->node == seen;
        if (id->rank >= run->first && id->rank < end)
            id->node = run->node;
    }
    if (seen != id->nnodes)
        return 0;
    for (int i = 0; i < id->nruns; i++) {
        const struct hly_tcp_run *run = &id->runs[i];
        int end = i + 1 < id->nruns ? run[1].first : id->nranks;
        if (run->node != id->node)
            continue;
        id->local_nranks += end - run->first;
        if (id->rank >= run->first)
            id->local_rank += (id->rank < end ? id->rank : end) - run->first;
    }
    return 1;
}

int hly_tcp_table_read(const struct hly_tcp_variables *v, const struct hly_tcp_answer *answer,
                       const char *table, struct hly_tcp_identity *id)
{
    size_t runs_bytes = answer->nruns * sizeof(struct hly_tcp_run);
    int rc = HALAY_EBOOT;
    if (answer->nnodes < 1 || answer->nnodes > answer->nruns ||
        answer->nruns > (uint32_t)id->nranks || answer->bytes < runs_bytes)
        return HALAY_EBOOT;
    id->nnodes = (int)answer->nnodes;
    id->nruns = (int)answer->nruns;
    id->runs = malloc(runs_bytes);
    id->hosts = calloc(answer->nnodes, sizeof id->hosts[0]);
    if (!id->runs || !id->hosts) {
        rc = HALAY_ENOMEM;
        goto undo;
    }
    memcpy(id->runs, table, runs_bytes);
    if (!read_runs(id) || !read_names(table + runs_bytes, table + answer->bytes, id))
        goto undo;
    memcpy(id->job, answer->job, sizeof id->job);
    memcpy(id->secret, answer->secret, sizeof id->secret);
    if (v->has_secret) {
        uint8_t mac[32];
        struct hly_piece pieces[2] = {{"job", 3}, {answer->job, sizeof answer->job}};
        hly_mac(v->secret_key, pieces, 2, mac);
        memcpy(id->secret, mac, sizeof id->secret);
    }
    return HALAY_OK;
undo:
    free(id->runs);
    free(id->hosts);
    id->runs = NULL;
    id->hosts = NULL;
    return rc;
}
