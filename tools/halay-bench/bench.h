/* SPDX-License-Identifier: Apache-2.0 */
/* bench.h - halay-bench: what is measured, the data that go in and come out, and the loop. */
#ifndef HLY_BENCH_H
#define HLY_BENCH_H

#include <stdbool.h>
#include <stddef.h>

#include <halay/plan.h>

enum { HLY_EXIT_USAGE = 2 };

struct hly_bench {
    halay_collective_t collective;
    halay_type_t type;
    halay_op_t op;
    size_t min_bytes, max_bytes; /* of one rank's input, all of it */
    int factor;                  /* from size to size */
    int iterations, warmup;      /* negative: as many as fit into `seconds` */
    double seconds;              /* about as long as one size takes; of calibrate, all */
    double stop_at; /* seconds of a call, after which no larger size follows; 0: none */
    bool barrier, in_place, registered, relaxed;
    halay_context_t *context; /* whose memory the buffers are, if registered */
    const char *csv;
    bool calibrate;
    const char *model; /* calibrate's constants go there; NULL: rows are measured, and kept */
};

/* `halay-bench calibrate`: measures the constants of this machine, which go to a file, or with NULL
 * the rows, which are kept. The exit status. */
int hly_bench_calibrate(const char *path, double seconds);

/* ---------------------------------------------------------------- rows.c, keep.c */

enum { HLY_FOUND_MAX = 64 };

struct hly_found { /* another algorithm is faster for these sizes, as rows see them */
    uint32_t collective, by_default, chosen;
    uint64_t least, most;
    double default_ns, chosen_ns; /* of the first size that was measured */
};

struct hly_finding {
    int n;
    bool cut; /* the time was over */
    struct hly_found row[HLY_FOUND_MAX];
};

/* Collective; rank 0 prints a table. What was not measured by `end_ns`, of the monotonic clock,
 * stays as it is. HALAY_E* of the call that failed. */
int hly_bench_rows(halay_comm_t *world, const halay_topology_t *t, const int32_t *node,
                   const halay_model_t *model, double end_ns, struct hly_finding *finding);
/* Of rank 0: keeps them for this kind of nodes, or says why not and prints them. The exit status.
 * scattered: some node's ranks are not consecutive. mixed: the job's nodes are of several kinds. */
int hly_bench_keep(const halay_topology_t *t, bool scattered, bool mixed,
                   const struct hly_finding *finding);

/* ---------------------------------------------------------------- one collective */

/* 0: go on. Otherwise *status is how to leave: help was printed, or a complaint. */
int hly_bench_options(int argc, char **argv, struct hly_bench *bench, int *status);

/* The buffers of one rank. Inputs follow a pattern with a prime period, so that what was left out,
 * added twice or put in the wrong place shows; all sums are exact in every type. */
struct hly_data {
    const struct hly_bench *bench;
    int rank, nranks;
    size_t element;
    char *in, *out; /* `in` is NULL in place, and where the collective has none */
    unsigned char *input, *expected, *other; /* a period each: mine, the result's, any rank's */
};

/* HALAY_ENOMEM, or HALAY_EUNSUPPORTED: too many ranks for exact sums in this type. */
int hly_data_create(struct hly_data *data, const struct hly_bench *bench, int rank, int nranks);
void hly_data_destroy(struct hly_data *data);
/* Elements of a call whose size is `bytes`; 0: there is no such call. */
size_t hly_data_count(const struct hly_data *data, size_t bytes);
/* Puts the input in its place and spoils the output. */
void hly_data_prepare(struct hly_data *data, size_t count);
bool hly_data_valid(struct hly_data *data, size_t count);
/* Data that stay as they are however often they are reduced in place. */
void hly_data_rest(struct hly_data *data, size_t count);

struct hly_result {
    size_t bytes, count;
    int calls;
    double avg_us, median_us, min_us; /* over calls, of the slowest rank's time for the call */
    double switches;                  /* context switches a call and rank */
    bool valid;
};

/* One call. */
int hly_call(const struct hly_bench *bench, const struct hly_data *data, halay_comm_t *comm,
             size_t count);
/* Collective. HALAY_E* of the call that failed. */
int hly_measure(const struct hly_bench *bench, struct hly_data *data, halay_comm_t *comm,
                size_t bytes, struct hly_result *result);

#endif
