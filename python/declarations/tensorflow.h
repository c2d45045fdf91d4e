/* SPDX-License-Identifier: Apache-2.0 */
/* bindings/tensorflow, as halay.tensorflow calls it. */
typedef struct halay_tf_set {
    int64_t number;
    halay_trainer_t *trainer;
    int rank;
    int nranks;
    const int *ranks;
} halay_tf_set_t;
typedef struct halay_tf_job {
    int rank, size, local_rank, local_size;
    size_t nsets;
    const halay_tf_set_t *sets;
} halay_tf_job_t;
const char *halay_tf_failure(void);
int halay_tf_open(const halay_tf_job_t *job);
void halay_tf_close(void);
typedef struct halay_tf_counters {
    size_t size;
    uint64_t later;
    uint64_t at_once;
} halay_tf_counters_t;
int halay_tf_counters(halay_tf_counters_t *counters);
