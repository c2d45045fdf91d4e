/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "gate.h"

#define SPIN_NS UINT64_C(20000)

struct hlx_gate *halay_xla_gate_create(void)
{
    struct hlx_gate *gate = calloc(1, sizeof(*gate));
    if (!gate)
        return NULL;
    gate->spin_ns = SPIN_NS;
    if (pthread_mutex_init(&gate->mutex, NULL))
        goto free_gate;
    if (pthread_cond_init(&gate->left, NULL))
        goto destroy_mutex;
    return gate;

destroy_mutex:
    pthread_mutex_destroy(&gate->mutex);
free_gate:
    free(gate);
    return NULL;
}

void halay_xla_gate_open(struct hlx_gate *gate, halay_trainer_t *trainer, int rank, int size)
{
    pthread_mutex_lock(&gate->mutex);
    gate->trainer = trainer;
    gate->rank = rank;
    gate->size = size;
    pthread_mutex_unlock(&gate->mutex);
}

void halay_xla_gate_close(struct hlx_gate *gate)
{
    pthread_mutex_lock(&gate->mutex);
    gate->trainer = NULL;
    while (gate->inside) /* who submits; the process's first thread may wait, too */
        pthread_cond_wait(&gate->left, &gate->mutex);
    pthread_mutex_unlock(&gate->mutex);
}

halay_trainer_t *hlx_gate_enter(struct hlx_gate *gate, int *rank, int *size)
{
    pthread_mutex_lock(&gate->mutex);
    halay_trainer_t *trainer = gate->trainer;
    if (trainer)
        gate->inside++;
    *rank = gate->rank;
    *size = gate->size;
    pthread_mutex_unlock(&gate->mutex);
    return trainer;
}

void hlx_gate_leave(struct hlx_gate *gate)
{
    pthread_mutex_lock(&gate->mutex);
    if (--gate->inside == 0 && !gate->trainer)
        pthread_cond_broadcast(&gate->left);
    pthread_mutex_unlock(&gate->mutex);
}

uintptr_t halay_xla_library(void)
{
    return (uintptr_t)halay_version;
}
