/* SPDX-License-Identifier: Apache-2.0 */
/* bind.h - which processors each rank on this machine may use. */
#ifndef HALAYRUN_BIND_H
#define HALAYRUN_BIND_H

#include "options.h"

enum { HLY_CPUS_MAX = 8192 };

/* Where a processor is. */
struct hly_seat {
    int package, node, core, cpu;
};

struct hly_binding {
    int nshares; /* of which rank r has number r modulo nshares; 0: no rank is bound */
    int ncpus;   /* that halayrun may use, and its ranks share; 0: not known */
    int nunits;
    int cpus[HLY_CPUS_MAX];      /* in the order in which they are shared out */
    int units[HLY_CPUS_MAX + 1]; /* where each unit begins in cpus: cores, or processors */
};

/* What halayrun may use, and whether ranks get shares of it. */
void hly_bind_plan(struct hly_binding *binding, const struct hly_options *options);

/* Divides these processors, which it sorts, into at most as many shares. */
void hly_bind_divide(struct hly_binding *binding, struct hly_seat *seats, int ncpus, int nshares);

/* A share is cpus[hly_bind_first(share)] up to that of the next one. */
int hly_bind_first(const struct hly_binding *binding, int share);

/* In a rank that is being born: system calls only. What cannot be bound is left as it is. */
void hly_bind_rank(const struct hly_binding *binding, int rank);

#endif
