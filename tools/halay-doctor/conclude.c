/* SPDX-License-Identifier: Apache-2.0 */
/* conclude.c - what no host can see alone: facts that differ, pairs that fail, pairs that are slow.
 */
#include <stdlib.h>
#include <string.h>

#include "doctor.h"

#define PAIRS_TOLD 8
#define SLOW       4.0 /* times what the better quarter of all pairs has */

/* ---------------------------------------------------------------- facts */

static const char *value_of(const struct hly_report *report, const char *name)
{
    for (uint32_t i = 0; i < report->nfacts; i++)
        if (!strcmp(report->facts[i].name, name))
            return report->facts[i].value;
    return NULL;
}

static void advise_fact(struct hly_finding *f, const char *name)
{
    if (strstr(name, "GPUDIRECT"))
        hly_advise(f, "Ranks compare it, and refuse each other.",
                   "the same on all ranks: export it where the job is started");
    else if (strstr(name, "GPUDirect"))
        hly_advise(f,
                   "A call under HALAY_GPUDIRECT=1 fails on all ranks if one of them cannot: the "
                   "others do not go another way for it.",
                   "take HALAY_GPUDIRECT away, or see gpu.peer of that host");
    else if (strstr(name, "RDMA"))
        hly_advise(f,
                   "Both ends take the smaller size; what is between them has to carry the larger.",
                   "the same MTU on all nodes, and on the switches: ip link set IFACE mtu ...");
    else if (strstr(name, "MTU"))
        hly_advise(f,
                   "Connections are made, and large messages vanish or crawl: a packet that one "
                   "side may send is too large for the other.",
                   "the same MTU on all nodes, and on the switches: ip link set IFACE mtu ...");
    else
        hly_advise(f, "Versions that differ may not understand each other.",
                   "the same installation on all nodes, or a folder that all of them share");
}

/* The first host's value against the first that differs, with how many have neither. */
static void compare_fact(struct hly_job *job, const char *name, const char *value)
{
    int others = 0, first = -1;
    for (int s = 1; s < job->nseats; s++) {
        const char *there = value_of(&job->reports[s], name);
        if (!there || !strcmp(there, value))
            continue;
        others++;
        first = first < 0 ? s : first;
    }
    if (!others)
        return;
    struct hly_finding *f = hly_find(
        &job->across, HLY_WARNING, "hosts.differ", "",
        "%s: %s on %s, %s on %s; not as the first: %d of %d", name, value, job->seats[0].host,
        value_of(&job->reports[first], name), job->seats[first].host, others, job->nseats);
    advise_fact(f, name);
}

/* ---------------------------------------------------------------- pairs */

static void tell_pair(struct hly_job *job, int a, int b, const struct hly_cell *cell)
{
    char where[64];
    snprintf(where, sizeof where, "%.28s - %.28s", job->seats[a].host, job->seats[b].host);
    struct hly_finding *f =
        hly_find(&job->across, HLY_ERROR, "pairs.reach", where,
                 "ranks %d and %d do not reach each other over %s: %.180s", job->seats[a].rank,
                 job->seats[b].rank, hly_transport(job, a, b), cell->reason);
    static const char why[] = "Any job in which these two exchange data ends with an error.";
    if (job->seats[a].node == job->seats[b].node)
        hly_advise(f, why,
                   "see those ranks' own output; ranks of one node meet by Unix sockets and "
                   "memfd, which containers may keep apart");
    else
        hly_advise(f, why, "on %.60s: ping %.60s; firewalls; routes; HALAY_INTERFACE%s",
                   job->seats[a].host, job->seats[b].host,
                   strcmp(job->matrix.far, "tcp")
                       ? "; HALAY_TRANSPORT=shm+tcp shows whether it is RDMA alone"
                       : "");
}

static void tell_failures(struct hly_job *job)
{
    int failed = 0, n = job->matrix.n;
    for (int a = 0; a < n; a++)
        for (int b = a + 1; b < n; b++) {
            const struct hly_cell *there = hly_cell(job, a, b), *back = hly_cell(job, b, a);
            const struct hly_cell *cell = there->code < 0 ? there : back;
            if (cell->code < 0 && failed++ < PAIRS_TOLD)
                tell_pair(job, a, b, cell);
        }
    if (failed > PAIRS_TOLD)
        hly_find(&job->across, HLY_ERROR, "pairs.reach", "",
                 "%d more pairs do not reach each other (--json has all)", failed - PAIRS_TOLD);
    else if (!failed && n > 1)
        hly_find(&job->across, HLY_GOOD, "pairs.reach", "",
                 n == 2 ? "the two reach each other" : "all %d pairs reach each other",
                 n * (n - 1) / 2);
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static bool counts(const struct hly_job *job, int a, int b)
{
    const struct hly_cell *cell = hly_cell(job, a, b);
    return a != b && cell->code == HALAY_OK && cell->latency_us > 0 && cell->bandwidth_mbs > 0 &&
           job->seats[a].node != job->seats[b].node;
}

/*
 * What the better quarter of all ways that count has: one bad host of four is in half of them.
 * False: too few to tell.
 */
static bool quartiles(const struct hly_job *job, double *latency, double *bandwidth)
{
    int n = job->matrix.n, found = 0;
    double *l = calloc((size_t)n * (size_t)n + 1, sizeof *l);
    double *w = calloc((size_t)n * (size_t)n + 1, sizeof *w);
    for (int i = 0; i < n * n && l && w; i++)
        if (counts(job, i / n, i % n)) {
            l[found] = job->matrix.cells[i].latency_us;
            w[found++] = job->matrix.cells[i].bandwidth_mbs;
        }
    if (found) {
        qsort(l, (size_t)found, sizeof *l, compare);
        qsort(w, (size_t)found, sizeof *w, compare);
        *latency = l[found / 4];
        *bandwidth = w[found - 1 - found / 4];
    }
    free(l);
    free(w);
    return found >= 6;
}

/* Between nodes: inside one, pairs that are timed at once may share processors. */
static void tell_slow(struct hly_job *job)
{
    double latency = 0, bandwidth = 0;
    int n = job->matrix.n, told = 0;
    if (!quartiles(job, &latency, &bandwidth))
        return;
    for (int i = 0; i < n * n; i++) {
        int a = i / n, b = i % n;
        if (a >= b || !counts(job, a, b) || !counts(job, b, a))
            continue;
        const struct hly_cell *there = hly_cell(job, a, b), *back = hly_cell(job, b, a);
        double least =
            there->bandwidth_mbs < back->bandwidth_mbs ? there->bandwidth_mbs : back->bandwidth_mbs;
        if ((there->latency_us <= SLOW * latency && least >= bandwidth / SLOW) ||
            told++ >= PAIRS_TOLD)
            continue;
        char where[64];
        snprintf(where, sizeof where, "%.28s - %.28s", job->seats[a].host, job->seats[b].host);
        struct hly_finding *f = hly_find(
            &job->across, HLY_WARNING, "pairs.slow", where,
            "%.1f us and %.0f MB/s; the better quarter of the pairs: %.1f us and %.0f MB/s",
            there->latency_us, least, latency, bandwidth);
        hly_advise(f, "A collective is as fast as its slowest pair.",
                   "is the same host in all slow pairs? Then its cable, its slot, its frequency or "
                   "other work on it; else the path between the switches");
    }
}

/* ---------------------------------------------------------------- transports */

static bool says(const struct hly_report *report, const char *check, int severity)
{
    for (uint32_t i = 0; i < report->nfindings; i++)
        if (!strcmp(report->findings[i].check, check) && report->findings[i].severity == severity)
            return true;
    return false;
}

static void tell_transport(struct hly_job *job)
{
    int with = 0;
    for (int s = 0; s < job->nseats; s++)
        with += says(&job->reports[s], "rdma.choice", HLY_GOOD);
    if (job->topology.nnodes < 2 || !job->matrix.n)
        return;
    const char *named = getenv("HALAY_TRANSPORT");
    bool tcp = !strcmp(job->matrix.far, "tcp");
    if (!tcp || !with) {
        hly_find(&job->across, HLY_GOOD, "job.transport", "", "%s, %s", job->topology.transport,
                 named && *named ? "by HALAY_TRANSPORT" : "chosen");
        return;
    }
    struct hly_finding *f =
        hly_find(&job->across, HLY_WARNING, "job.transport", "",
                 "ranks of different nodes use tcp, though %d of %d ranks' hosts have RDMA", with,
                 job->nseats);
    hly_advise(f, "RDMA is used where every node has an active port, and the plug-in verbs or ucx.",
               "%s",
               named && *named ? "take HALAY_TRANSPORT away"
                               : "repair the others, or leave them out (findings above)");
}

void hly_conclude(struct hly_job *job)
{
    for (uint32_t i = 0; i < job->reports[0].nfacts; i++)
        compare_fact(job, job->reports[0].facts[i].name, job->reports[0].facts[i].value);
    tell_transport(job);
    if (job->matrix.n < 2)
        return;
    tell_failures(job);
    tell_slow(job);
}
