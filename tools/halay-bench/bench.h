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
    double seconds;              /* about as long as one size takes */
    double stop_at; /* seconds of a call, after which no larger size follows; 0: none */
    bool barrier, in_place, registered, relaxed;
    halay_context_t *context; /* whose memory the buffers are, if registered */
    const char *csv;
    const char *model; /* calibrate, and write here; else NULL */
};

/* `halay-bench calibrate`: writes the constants of this machine to a file. The exit status. */
int hly_bench_calibrate(const char *path);

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

/* Collective. HALAY_E* of the call that failed. */
int hly_measure(const struct hly_bench *bench, struct hly_data *data, halay_comm_t *comm,
                size_t bytes, struct hly_result *result);

#endif
