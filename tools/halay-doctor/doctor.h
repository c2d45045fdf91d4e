/* SPDX-License-Identifier: Apache-2.0 */
/*
 * doctor.h - halay-doctor: findings, the probes that make them, and what is printed of them. A
 * report holds no pointer: ranks send theirs as it is.
 */
#ifndef HLY_DOCTOR_H
#define HLY_DOCTOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <halay/halay.h>

enum {
    HLY_EXIT_USAGE = 2,
    HLY_FINDINGS = 96, /* of one host */
    HLY_FACTS = 16,
    HLY_MOST = 256,  /* ranks in the matrix */
    HLY_NAMES = 1024 /* entries of one folder */
};

enum hly_severity { HLY_GOOD, HLY_NOTE, HLY_WARNING, HLY_ERROR, HLY_SEVERITIES };

struct hly_finding {
    int32_t severity;
    char check[24]; /* "rdma.gid" */
    char where[64]; /* "mlx5_0/1"; may be empty */
    char what[400], why[256], remedy[256];
};

/* What has to be the same on all hosts. */
struct hly_fact {
    char name[40], value[120];
};

struct hly_report {
    char host[64];
    uint32_t nfindings, nfacts;
    struct hly_finding findings[HLY_FINDINGS];
    struct hly_fact facts[HLY_FACTS];
};

/* ---------------------------------------------------------------- report.c */

extern const char *const hly_severity_names[HLY_SEVERITIES];

/* Never NULL: what is too much shares the last place, which says so. */
struct hly_finding *hly_find(struct hly_report *report, enum hly_severity severity,
                             const char *check, const char *where, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
/* Adds to a finding that is not good. */
void hly_advise(struct hly_finding *finding, const char *why, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void hly_fact(struct hly_report *report, const char *name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Of another rank, which may be anything: ends strings and bounds counts. */
void hly_report_tame(struct hly_report *report);

/* ---------------------------------------------------------------- root.c: files below a root */

struct hly_probe {
    const char *root; /* "" on this machine: only then are libraries and system calls tried */
    struct hly_report *report;
};

struct hly_names {
    int n;
    char name[HLY_NAMES][64];
};

/* A file's text without white space at its end; false: it cannot be read. */
bool hly_read(const struct hly_probe *p, char *text, size_t bytes, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* The names in a folder in order, without dots; 0 where there is none. */
int hly_list(const struct hly_probe *p, struct hly_names *names, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* May this process open it to read and write? */
bool hly_usable(const struct hly_probe *p, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* The rest of the line that begins with `key`, less blanks and colons before it. */
bool hly_line(const char *text, const char *key, char *value, size_t bytes);
/* The host's memory, as /proc/meminfo has it. */
uint64_t hly_memory_bytes(const struct hly_probe *p);
/* "64 KiB" */
const char *hly_bytes_text(uint64_t bytes, char text[32]);

/* ---------------------------------------------------------------- the probes */

void hly_probe_host(const struct hly_probe *p);
void hly_probe_network(const struct hly_probe *p);
void hly_probe_rdma(const struct hly_probe *p);
void hly_probe_limits(const struct hly_probe *p);
void hly_probe_cgroup(const struct hly_probe *p);
void hly_probe_kernel(const struct hly_probe *p);
void hly_probe_calls(const struct hly_probe *p);
void hly_probe_software(const struct hly_probe *p);
void hly_probe_gpu(const struct hly_probe *p);

/* The interface at which ranks listen, "" if that cannot be told, and why that one. */
const char *hly_interface(const struct hly_probe *p, char name[64]);
/* Are there RDMA devices at all? */
bool hly_has_rdma(const struct hly_probe *p);

/* ---------------------------------------------------------------- the job */

struct hly_options {
    const char *root, *picture;
    int most;
    double seconds; /* until a pair is given up */
    bool json, brief, pairs, all_ranks;
};

struct hly_cell {                     /* from one rank to another */
    int32_t code;                     /* HALAY_E*; HALAY_INPROGRESS: was not tried */
    double latency_us, bandwidth_mbs; /* 0: not measured */
    char reason[200];
};

struct hly_seat { /* a rank in the matrix */
    int32_t rank, node, local_rank;
    char host[64];
};

struct hly_matrix {
    int n;                  /* 0: there is none */
    char near[32], far[32]; /* transports inside a node, and between nodes */
    struct hly_cell *cells; /* n x n */
};

/* What rank 0 knows in the end. Seat 0 is its own. */
struct hly_job {
    halay_topology_t topology;
    int nseats; /* each has a report */
    struct hly_seat *seats;
    struct hly_report *reports;
    struct hly_report across; /* findings that are of no single host */
    struct hly_matrix matrix;
};

struct hly_cell *hly_cell(const struct hly_job *job, int from, int to);
const char *hly_transport(const struct hly_job *job, int from, int to);

/* job.c. Rank 0 leads; the others follow it, and print nothing. 0, or HALAY_E* of this rank. */
int hly_lead(const struct hly_options *options, halay_comm_t *world, struct hly_job *job);
int hly_follow(const struct hly_options *options, halay_comm_t *world,
               const halay_topology_t *topology, const struct hly_report *report);

/* pair.c */
struct hly_table {
    halay_comm_t *world;
    uint64_t deadline_ns;
    int32_t seat, n, ranks[HLY_MOST];
};

/* A message whose length both sides know, waited for at most `deadlines` times the deadline. */
int hly_say(const struct hly_table *table, int rank, const void *message, size_t bytes,
            int deadlines);
int hly_hear(const struct hly_table *table, int rank, void *message, size_t bytes, int deadlines);
/* The same, begun; NULL where it could not be. */
halay_request_t *hly_hear_later(const struct hly_table *table, int rank, void *message,
                                size_t bytes, int deadlines);
/* Why the last call with this rank failed. */
void hly_reason(const struct hly_table *table, int rank, int code, char *text, size_t bytes);
/* Eight bytes to and from all others at once: a cell for each seat. */
int hly_reach(const struct hly_table *table, struct hly_cell *row);
/* Times one pair; one of the two leads, and measures the latency. */
void hly_measure(const struct hly_table *table, int seat, bool leads, struct hly_cell *cell);
/* With whom a seat is paired in a round of a tournament of n; -1: with nobody. */
int hly_partner(int n, int round, int seat);

/* conclude.c: what the reports and the matrix say together. */
void hly_conclude(struct hly_job *job);

/* print.c, json.c */
void hly_print(const struct hly_options *options, const struct hly_job *job);
void hly_print_json(const struct hly_job *job, FILE *out);
bool hly_has_errors(const struct hly_job *job);

/* picture.c: false: it could not be made, and standard error says why. */
bool hly_picture(const struct hly_job *job, const char *file);

#endif
