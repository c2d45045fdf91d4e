/* SPDX-License-Identifier: Apache-2.0 */
/* print.c - what a person reads: findings, equal ones of several hosts as one, and the matrix. */
#include <string.h>

#include "doctor.h"

#define COLUMN     24 /* where a finding's text begins */
#define TABLE_MOST 16 /* ranks that a table has */

/* ---------------------------------------------------------------- findings */

static bool same(const struct hly_finding *a, const struct hly_finding *b)
{
    return a->severity == b->severity && !strcmp(a->check, b->check) &&
           !strcmp(a->where, b->where) && !strcmp(a->what, b->what) &&
           !strcmp(a->remedy, b->remedy);
}

/* What is well is printed for the first host alone, whatever the numbers are elsewhere. */
static bool alike(const struct hly_finding *a, const struct hly_finding *b)
{
    bool good = a->severity == HLY_GOOD && b->severity == HLY_GOOD;
    return good ? !strcmp(a->check, b->check) && !strcmp(a->where, b->where) : same(a, b);
}

static bool has(const struct hly_report *report, uint32_t before, const struct hly_finding *f)
{
    for (uint32_t i = 0; i < before; i++)
        if (alike(&report->findings[i], f))
            return true;
    return false;
}

/* "3 of 4: n1, n2, n3"; of what is well only how many have it. */
static void print_who(const struct hly_job *job, const struct hly_finding *f)
{
    int with = 0, told = 0, equal = 0;
    for (int s = 0; s < job->nseats; s++) {
        const struct hly_report *report = &job->reports[s];
        with += has(report, report->nfindings, f);
        for (uint32_t i = 0; i < report->nfindings; i++)
            equal += same(&report->findings[i], f);
    }
    if (f->severity == HLY_GOOD) {
        printf(with == job->nseats ? equal == with ? "" : " (the others have their own)"
                                   : " (on %d of %d)",
               with, job->nseats);
        return;
    }
    printf("\n%*son:  %d of %d", COLUMN, "", with, job->nseats);
    for (int s = 0; s < job->nseats && with < job->nseats; s++) {
        const struct hly_seat *seat = &job->seats[s];
        if (!has(&job->reports[s], job->reports[s].nfindings, f) || told++ >= TABLE_MOST)
            continue;
        printf("%s %s", told > 1 ? "," : ":", seat->host);
        if (seat->local_rank)
            printf(" (rank %d)", seat->rank);
    }
    if (told > TABLE_MOST)
        printf(", ...");
}

static void print_one(const struct hly_job *job, const struct hly_finding *f, bool of_hosts)
{
    printf("%-8s %-*s %s%s%s", hly_severity_names[f->severity], COLUMN - 10, f->check, f->where,
           *f->where ? ": " : "", f->what);
    if (of_hosts && job->nseats > 1)
        print_who(job, f);
    if (*f->why)
        printf("\n%*swhy: %s", COLUMN, "", f->why);
    if (*f->remedy)
        printf("\n%*sdo:  %s", COLUMN, "", f->remedy);
    puts("");
}

/* Has an earlier host the same? Then it was told there. */
static bool told_before(const struct hly_job *job, int seat, uint32_t at)
{
    const struct hly_finding *f = &job->reports[seat].findings[at];
    if (has(&job->reports[seat], at, f))
        return true;
    for (int s = 0; s < seat; s++)
        if (has(&job->reports[s], job->reports[s].nfindings, f))
            return true;
    return false;
}

static void print_findings(const struct hly_options *o, const struct hly_job *job, int counts[])
{
    for (int s = 0; s < job->nseats; s++)
        for (uint32_t i = 0; i < job->reports[s].nfindings; i++) {
            const struct hly_finding *f = &job->reports[s].findings[i];
            if (told_before(job, s, i))
                continue;
            counts[f->severity]++;
            if (o->brief && f->severity == HLY_GOOD)
                continue;
            print_one(job, f, true);
        }
    for (uint32_t i = 0; i < job->across.nfindings; i++) {
        const struct hly_finding *f = &job->across.findings[i];
        counts[f->severity]++;
        if (!o->brief || f->severity != HLY_GOOD)
            print_one(job, f, false);
    }
}

/* ---------------------------------------------------------------- the matrix */

static void print_cell(const struct hly_cell *cell, double value)
{
    if (cell->code < 0)
        printf(" %9s", "FAILED");
    else if (cell->code || value <= 0)
        printf(" %9s", "?");
    else
        printf(value < 100 ? " %9.1f" : " %9.0f", value);
}

static void print_table(const struct hly_job *job, bool bandwidth)
{
    const struct hly_matrix *m = &job->matrix;
    puts(bandwidth ? "\nbandwidth, MB/s (1 MiB messages; from the rank at the left)"
                   : "\nlatency, us (half a round trip of 8 bytes, median)");
    printf("%6s %-12s", "rank", "host");
    for (int b = 0; b < m->n; b++)
        printf(" %9d", job->seats[b].rank);
    puts("");
    for (int a = 0; a < m->n; a++) {
        printf("%6d %-12.12s", job->seats[a].rank, job->seats[a].host);
        for (int b = 0; b < m->n; b++) {
            const struct hly_cell *cell = hly_cell(job, a, b);
            if (a == b)
                printf(" %9s", "-");
            else
                print_cell(cell, bandwidth ? cell->bandwidth_mbs : cell->latency_us);
        }
        puts("");
    }
}

static void print_range(const struct hly_job *job, bool bandwidth)
{
    int n = job->matrix.n, least = -1, most = -1;
    for (int i = 0; i < n * n; i++) {
        const struct hly_cell *cells = job->matrix.cells;
        double v = bandwidth ? cells[i].bandwidth_mbs : cells[i].latency_us;
        if (cells[i].code || v <= 0)
            continue;
        if (least < 0 || v < (bandwidth ? cells[least].bandwidth_mbs : cells[least].latency_us))
            least = i;
        if (most < 0 || v > (bandwidth ? cells[most].bandwidth_mbs : cells[most].latency_us))
            most = i;
    }
    if (least < 0)
        return;
    const struct hly_cell *low = &job->matrix.cells[least], *high = &job->matrix.cells[most];
    printf("%s: %.1f (%s to %s) to %.1f (%s to %s)\n",
           bandwidth ? "bandwidth, MB/s" : "latency, us",
           bandwidth ? low->bandwidth_mbs : low->latency_us, job->seats[least / n].host,
           job->seats[least % n].host, bandwidth ? high->bandwidth_mbs : high->latency_us,
           job->seats[most / n].host, job->seats[most % n].host);
}

static void print_matrix(const struct hly_job *job)
{
    int n = job->matrix.n, near = 0, far = 0;
    for (int a = 0; a < n; a++)
        for (int b = a + 1; b < n; b++)
            *(job->seats[a].node == job->seats[b].node ? &near : &far) += 1;
    if (n < 2)
        return;
    printf("\npairs:");
    if (near)
        printf(" %d inside a node over %s%s", near, job->matrix.near, far ? "," : "");
    if (far)
        printf(" %d between nodes over %s", far, job->matrix.far);
    puts("");
    if (n > TABLE_MOST) {
        print_range(job, false);
        print_range(job, true);
        puts("(the table is too large to print: --json and --picture have it)");
        return;
    }
    print_table(job, false);
    print_table(job, true);
}

bool hly_has_errors(const struct hly_job *job)
{
    bool found = false;
    for (int s = -1; s < job->nseats; s++) {
        const struct hly_report *report = s < 0 ? &job->across : &job->reports[s];
        for (uint32_t i = 0; i < report->nfindings; i++)
            found = found || report->findings[i].severity == HLY_ERROR;
    }
    return found;
}

void hly_print(const struct hly_options *options, const struct hly_job *job)
{
    const halay_topology_t *t = &job->topology;
    int counts[HLY_SEVERITIES] = {0};
    printf("halay-doctor %s: ", halay_version());
    if (t->nranks > 1)
        printf("%d ranks on %d node%s, started by %s; %d of them look\n", t->nranks, t->nnodes,
               t->nnodes == 1 ? "" : "s", t->launcher, job->nseats);
    else if (t->nranks == 1)
        printf("%s alone (halayrun or srun --mpi=pmix halay-doctor tries the way between hosts, "
               "too)\n",
               job->reports[0].host);
    else
        printf("%s; no job was made\n", job->reports[0].host);
    if (*options->root)
        printf("of the files below %s\n", options->root);
    print_findings(options, job, counts);
    print_matrix(job);
    printf("\n%d error%s, %d warning%s, %d note%s\n", counts[HLY_ERROR],
           counts[HLY_ERROR] == 1 ? "" : "s", counts[HLY_WARNING],
           counts[HLY_WARNING] == 1 ? "" : "s", counts[HLY_NOTE], counts[HLY_NOTE] == 1 ? "" : "s");
}
