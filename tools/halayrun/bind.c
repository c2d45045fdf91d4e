/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bind.c - an equal share of this machine's processors for each rank:
 * docs/decisions/launchers.md#0039.
 *
 * Processors are put in the order of their place: socket, NUMA node, core, number. Share s has the
 * cores from ceil(s * cores / shares) on, so a share ends where a socket does whenever that can be.
 * All of halayrun's processors are always given out: where two jobs share them, each has as many
 * ranks on any part of the machine as on any other, and neither has to know of the other.
 */
#define _GNU_SOURCE
#include "bind.h"

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

union set { /* of HLY_CPUS_MAX processors; cpu_set_t has 1,024 */
    cpu_set_t first;
    char bytes[HLY_CPUS_MAX / 8];
};

/* A number that the kernel has written; 0 where it says nothing. */
static int read_number(int cpu, const char *name)
{
    char path[96], text[16];
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/%s", cpu, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
    if (fd >= 0)
        close(fd);
    text[n > 0 ? n : 0] = '\0';
    return (int)strtol(text, NULL, 10);
}

/* A link in the processor's folder is named after it. */
static int node_of(int cpu)
{
    char path[64];
    int node = 0;
    struct dirent *entry;
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d", cpu);
    DIR *dir = opendir(path);
    while (dir && (entry = readdir(dir)))
        if (!strncmp(entry->d_name, "node", 4))
            node = (int)strtol(entry->d_name + 4, NULL, 10);
    if (dir)
        closedir(dir);
    return node;
}

static int compare(const void *a, const void *b)
{
    const struct hly_seat *x = a, *y = b;
    const int order[] = {x->package - y->package, x->node - y->node, x->core - y->core,
                         x->cpu - y->cpu};
    for (int i = 0; i < 3; i++)
        if (order[i])
            return order[i];
    return order[3];
}

static int same_core(const struct hly_seat *a, const struct hly_seat *b)
{
    return a->package == b->package && a->node == b->node && a->core == b->core;
}

/* What is shared out: cores if there is one for each share, else processors. */
static void find_units(struct hly_binding *b, const struct hly_seat *seats, int nshares)
{
    for (int whole = 1; whole >= 0; whole--) {
        b->nunits = 0;
        for (int i = 0; i < b->ncpus; i++)
            if (!whole || i == 0 || !same_core(&seats[i - 1], &seats[i]))
                b->units[b->nunits++] = i;
        b->units[b->nunits] = b->ncpus;
        if (b->nunits >= nshares)
            return;
    }
}

void hly_bind_divide(struct hly_binding *b, struct hly_seat *seats, int ncpus, int nshares)
{
    qsort(seats, (size_t)ncpus, sizeof seats[0], compare);
    for (int i = 0; i < ncpus; i++)
        b->cpus[i] = seats[i].cpu;
    b->ncpus = ncpus;
    b->nshares = nshares;
    find_units(b, seats, nshares);
}

int hly_bind_first(const struct hly_binding *b, int share)
{
    return b->units[(share * b->nunits + b->nshares - 1) / b->nshares];
}

void hly_bind_plan(struct hly_binding *b, const struct hly_options *options)
{
    static struct hly_seat seats[HLY_CPUS_MAX];
    union set all;
    const int n = options->nlocal;
    b->nshares = b->ncpus = 0;
    memset(&all, 0, sizeof all);
    if (sched_getaffinity(0, sizeof all, &all.first))
        return;
    for (int cpu = 0; cpu < HLY_CPUS_MAX; cpu++)
        if (CPU_ISSET_S(cpu, sizeof all, &all.first))
            seats[b->ncpus++].cpu = cpu;
    if (!options->bind || n < 2 || b->ncpus < 2 || (n > b->ncpus && n % b->ncpus))
        return;
    for (int i = 0; i < b->ncpus; i++) {
        struct hly_seat *s = &seats[i];
        s->package = read_number(s->cpu, "physical_package_id");
        s->core = read_number(s->cpu, "core_id");
        s->node = node_of(s->cpu);
    }
    hly_bind_divide(b, seats, b->ncpus, n < b->ncpus ? n : b->ncpus);
}

void hly_bind_rank(const struct hly_binding *b, int rank)
{
    union set set;
    if (!b->nshares)
        return;
    const int mine = rank % b->nshares;
    memset(&set, 0, sizeof set);
    for (int i = hly_bind_first(b, mine); i < hly_bind_first(b, mine + 1); i++)
        CPU_SET_S(b->cpus[i], sizeof set, &set.first);
    sched_setaffinity(0, sizeof set, &set.first);
}
