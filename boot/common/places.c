/* SPDX-License-Identifier: Apache-2.0 */
/*
 * places.c - which rank is on which node and where it listens.
 *
 * An address costs 2 bytes a rank and 20 a node: the ranks of a node have one ip, except for the
 * few in `others`.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "places.h"

static int run_end(const struct hly_boot_places *p, int run)
{
    return run + 1 < p->nruns ? p->runs[run + 1].first : p->nranks;
}

static bool known_family(const halay_address_t *address)
{
    return address->family == 0 || address->family == AF_INET || address->family == AF_INET6;
}

bool hly_boot_places_valid(const struct hly_boot_places *p)
{
    int seen = 0;
    if (p->nranks < 1 || p->nnodes < 1 || p->nnodes > p->nruns || p->nruns > p->nranks ||
        p->nothers < 0 || p->nothers > p->nranks || p->runs[0].first != 0)
        return false;
    for (int i = 0; i < p->nruns; i++) {
        const struct hly_boot_run *run = &p->runs[i];
        if (run_end(p, i) <= run->first || run_end(p, i) > p->nranks || run->node < 0 ||
            run->node > seen || run->node >= p->nnodes)
            return false;
        seen += run->node == seen;
    }
    for (int n = 0; n < p->nnodes; n++)
        if (!memchr(p->nodes[n].host, 0, sizeof p->nodes[n].host) ||
            !known_family(&p->nodes[n].address))
            return false;
    for (int i = 0; i < p->nothers; i++)
        if (p->others[i].rank >= p->nranks || !known_family(&p->others[i].address) ||
            p->others[i].rank <= (i ? p->others[i - 1].rank : -1))
            return false;
    for (int i = 0; i < p->nprocesses; i++)
        if (p->processes[i].rank >= p->nranks || p->processes[i].process.pid < 0 ||
            p->processes[i].rank <= (i ? p->processes[i - 1].rank : -1))
            return false;
    return seen == p->nnodes;
}

/* Ranks are the first members of the elements. */
static int by_rank(const void *rank, const void *element)
{
    const int32_t a = *(const int32_t *)rank, b = *(const int32_t *)element;
    return (a > b) - (a < b);
}

/* Finds a rank's element in a table that is sorted by rank; NULL: none. */
static const void *find(int32_t rank, const void *table, int n, size_t bytes)
{
    return n ? bsearch(&rank, table, (size_t)n, bytes, by_rank) : NULL;
}

int hly_boot_places_get(const struct hly_boot_places *p, int rank, halay_place_t *place)
{
    if (rank < 0 || rank >= p->nranks || place->size < sizeof *place)
        return HALAY_EINVAL;
    int low = 0, high = p->nruns; /* runs[low].first <= rank < runs[high].first */
    while (high - low > 1) {
        int middle = low + (high - low) / 2;
        if (p->runs[middle].first <= rank)
            low = middle;
        else
            high = middle;
    }
    int n = p->runs[low].node;
    assert(n >= 0 && n < p->nnodes);
    const struct hly_boot_other *other = find(rank, p->others, p->nothers, sizeof *other);
    const struct hly_boot_process *process =
        find(rank, p->processes, p->nprocesses, sizeof *process);
    *place = (halay_place_t){.size = sizeof *place, .node = n};
    memcpy(place->host, p->nodes[n].host, sizeof place->host);
    place->process = process ? process->process : (halay_process_t){0};
    place->address = other ? other->address : p->nodes[n].address;
    place->address.port = p->ports[rank];
    if (!place->address.family || !place->address.port)
        memset(&place->address, 0, sizeof place->address);
    return HALAY_OK;
}

void hly_boot_places_info(const struct hly_boot_places *p, halay_boot_info_t *info)
{
    halay_place_t place = {.size = sizeof place};
    int rc = hly_boot_places_get(p, info->rank, &place);
    assert(rc == HALAY_OK);
    (void)rc;
    info->nranks = p->nranks;
    info->nnodes = p->nnodes;
    info->node = place.node;
    info->local_rank = info->local_nranks = 0;
    for (int i = 0; i < p->nruns; i++) {
        int first = p->runs[i].first, end = run_end(p, i);
        if (p->runs[i].node != place.node)
            continue;
        info->local_nranks += end - first;
        if (info->rank >= first)
            info->local_rank += (info->rank < end ? info->rank : end) - first;
    }
    snprintf(info->host, sizeof info->host, "%s", place.host);
    info->address = place.address;
}
