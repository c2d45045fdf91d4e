/* SPDX-License-Identifier: Apache-2.0 */
/*
 * binding.h - what Python calls in libhalay_tensorflow: it tells the operations which job and which
 * process sets there are. TensorFlow registers operations once a process, so there is one job here.
 */
#ifndef HALAY_BINDING_H
#define HALAY_BINDING_H

#include <halay/training.h>

typedef struct halay_tf_set {
    int64_t number;           /* process_set_id: 0 has all ranks */
    halay_trainer_t *trainer; /* NULL where this process is not one of its */
    int rank;                 /* this process's in it, -1 where it is none */
    int nranks;
    const int *ranks; /* of the job, in the set's order */
} halay_tf_set_t;

typedef struct halay_tf_job {
    int rank, size, local_rank, local_size;
    size_t nsets;
    const halay_tf_set_t *sets;
} halay_tf_job_t;

/* Why the operations are not there, or NULL: they were registered when the library was loaded. */
HALAY_API const char *halay_tf_failure(void);
/* Takes a copy; of another call before, it takes the place. 0 or HALAY_ENOMEM. */
HALAY_API int halay_tf_open(const halay_tf_job_t *job);
/* From now on operations end with an error. To be called before the trainers are destroyed; returns
 * when no operation is about to use one. It does nothing if the job is closed. */
HALAY_API void halay_tf_close(void);

typedef struct halay_tf_counters {
    size_t size;      /* of this struct, set by the caller */
    uint64_t later;   /* operations that were left to end in another thread */
    uint64_t at_once; /* called eagerly: the thread that called waited */
} halay_tf_counters_t;
HALAY_API int halay_tf_counters(halay_tf_counters_t *counters);

#endif
