/* SPDX-License-Identifier: Apache-2.0 */
/*
 * job.h - which job and process sets there are now, for kernels in any thread.
 */
#ifndef HALAY_TF_JOB_H
#define HALAY_TF_JOB_H

#include <stdatomic.h>

#include "binding.h"

enum hlf_kind {
    HLF_ALLREDUCE,
    HLF_ALLGATHER,
    HLF_BROADCAST,
    HLF_REDUCESCATTER,
    HLF_ALLTOALL,
    HLF_JOIN,
    HLF_KINDS
};

struct hlf_set {
    halay_tf_set_t is; /* ranks: our own copy */
    atomic_ullong unnamed[HLF_KINDS];
};

struct hlf_job {
    int open;
    int rank, size, local_rank, local_size;
    size_t nsets;
    struct hlf_set *sets;
};

/*
 * The job, which stays as it is until hlf_job_leave(). NULL: there is none, nothing is to be left;
 * why: a sentence.
 */
struct hlf_job *hlf_job_enter(const char **why);
void hlf_job_leave(void);
struct hlf_set *hlf_job_set(struct hlf_job *job, int64_t number);
/* How often all ranks have joined. */
unsigned long long hlf_job_joins(void);
/* They have: tensors without a name are counted anew, as who had joined earlier has counted less.
 */
void hlf_job_recount(void);

extern atomic_ullong hlf_later, hlf_at_once;

#endif
