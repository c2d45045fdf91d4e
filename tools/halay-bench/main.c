/* SPDX-License-Identifier: Apache-2.0 */
/* main.c - halay-bench: times one collective over many sizes, and prints a table. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "bench.h"

static void print_head(const struct hly_bench *b, const halay_topology_t *t, FILE *csv)
{
    const bool typed = b->collective != HALAY_BARRIER;
    const bool reduces = halay_collective_reduces(b->collective);
    printf("# Halay %s: %s%s%s%s%s, %d rank%s on %d node%s, transport %s%s, %s\n", halay_version(),
           halay_collective_name(b->collective), typed ? " of " : "",
           typed ? halay_type_name(b->type) : "", reduces ? ", " : "",
           reduces ? halay_op_name(b->op) : "", t->nranks, t->nranks == 1 ? "" : "s", t->nnodes,
           t->nnodes == 1 ? "" : "s", t->transport, b->in_place ? ", in place" : "",
           b->barrier ? "a barrier before each call" : "calls back to back");
    printf("%12s %11s %7s %12s %12s %12s %10s %6s\n", "bytes", "count", "calls", "avg us",
           "median us", "min us", "switches", "valid");
    fflush(stdout);
    if (csv)
        fprintf(csv, "bytes,count,calls,avg_us,median_us,min_us,switches,valid\n");
}

static void print_row(const struct hly_result *r, FILE *csv)
{
    printf("%12zu %11zu %7d %12.2f %12.2f %12.2f %10.3f %6s\n", r->bytes, r->count, r->calls,
           r->avg_us, r->median_us, r->min_us, r->switches, r->valid ? "yes" : "NO");
    fflush(stdout);
    if (csv)
        fprintf(csv, "%zu,%zu,%d,%.3f,%.3f,%.3f,%.4f,%d\n", r->bytes, r->count, r->calls, r->avg_us,
                r->median_us, r->min_us, r->switches, r->valid);
}

static int run(const struct hly_bench *b, const halay_topology_t *t, halay_comm_t *comm, FILE *csv)
{
    struct hly_data data;
    bool valid = true, slow = false;
    int rc = hly_data_create(&data, b, t->rank, t->nranks);
    if (rc) {
        fprintf(stderr, "halay-bench: rank %d: %s\n", t->rank,
                rc == HALAY_ENOMEM ? "no memory for the buffers: choose a smaller --max"
                                   : "too many ranks for exact sums in this type");
        return 1;
    }
    if (t->rank == 0)
        print_head(b, t, csv);
    for (size_t bytes = b->min_bytes; rc == HALAY_OK && bytes <= b->max_bytes && !slow;
         bytes *= (size_t)b->factor) {
        struct hly_result result;
        const bool barrier = b->collective == HALAY_BARRIER;
        if (!barrier && !hly_data_count(&data, bytes))
            continue; /* less than one element a block */
        rc = hly_measure(b, &data, comm, barrier ? 0 : bytes, &result);
        if (rc == HALAY_OK && t->rank == 0)
            print_row(&result, csv);
        valid = valid && result.valid;
        slow = b->stop_at > 0 && result.avg_us > b->stop_at * 1e6;
        if (barrier)
            break;
    }
    hly_data_destroy(&data);
    if (rc) {
        halay_verdict_t verdict = {.size = sizeof verdict};
        halay_comm_verdict(comm, &verdict);
        fprintf(stderr, "halay-bench: rank %d: %s\n", t->rank,
                verdict.code ? verdict.text : halay_strerror(rc));
    } else if (!valid && t->rank == 0) {
        fprintf(stderr, "halay-bench: wrong data\n");
    }
    return rc || !valid;
}

/* All of it is on its way, or a note has told why not. */
static int is_written(FILE *file, const char *name)
{
    const int well = !fflush(file) && !ferror(file);
    if (!well)
        fprintf(stderr, "halay-bench: cannot write %s: %s\n", name, strerror(errno ? errno : EIO));
    return well;
}

int main(int argc, char **argv)
{
    struct hly_bench bench;
    int status;
    if (hly_bench_options(argc, argv, &bench, &status))
        return status;
    if (bench.calibrate)
        return hly_bench_calibrate(bench.model, bench.seconds);
    halay_context_t *context;
    halay_comm_t *comm;
    halay_topology_t topology = {.size = sizeof topology};
    FILE *csv = NULL;
    if (halay_init(NULL, &context)) /* has said why */
        return 1;
    status = halay_comm_world(context, &comm) || halay_context_topology(context, &topology);
    if (!status && bench.csv && topology.rank == 0) {
        csv = fopen(bench.csv, "w");
        status = csv == NULL;
        if (status)
            fprintf(stderr, "halay-bench: cannot write %s: %s\n", bench.csv, strerror(errno));
    }
    bench.context = context;
    if (!status && bench.relaxed)
        status = halay_comm_set_hint(comm, HALAY_HINT_RELAXED_BROADCAST, 1);
    if (!status)
        status = run(&bench, &topology, comm, csv);
    if (topology.rank == 0 && !is_written(stdout, "the table"))
        status = 1;
    if (csv) {
        status = is_written(csv, bench.csv) ? status : 1;
        fclose(csv);
    }
    return halay_finalize(context) || status;
}
