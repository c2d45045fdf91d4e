/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gate.h - what stands between a compiled program, which lives as long as it likes, and a trainer.
 * A program knows its gate, by address: a gate is never freed. It is open while there is a trainer
 * after it; there may be another one later, of more or fewer ranks.
 */
#ifndef HALAY_XLA_GATE_H
#define HALAY_XLA_GATE_H

#include <pthread.h>
#include <stdatomic.h>

#include <halay/training.h>

struct hlx_call; /* handlers.c: a call that is out */

struct hlx_gate {
    pthread_mutex_t mutex;
    pthread_cond_t left;
    halay_trainer_t *trainer; /* NULL: closed */
    int rank, size;
    int inside;       /* who has entered, and may submit */
    atomic_llong run; /* the execution whose call came last */
    uint64_t spin_ns;
    unsigned spins;
    struct hlx_call *out, *kept; /* lists: by call, and to be used again */
};

/* NULL: no memory. */
HALAY_API struct hlx_gate *halay_xla_gate_create(void);
/* From now on programs submit to the trainer, in which this process is rank of size. */
HALAY_API void halay_xla_gate_open(struct hlx_gate *gate, halay_trainer_t *trainer, int rank,
                                   int size);
/* Returns when nobody is about to submit: then the trainer may be destroyed. */
HALAY_API void halay_xla_gate_close(struct hlx_gate *gate);
/* Where halay_version() is that this library calls: to see that there is one libhalay only. */
HALAY_API uintptr_t halay_xla_library(void);

/* The trainer, or NULL: the gate is closed, and not entered. */
halay_trainer_t *hlx_gate_enter(struct hlx_gate *gate, int *rank, int *size);
void hlx_gate_leave(struct hlx_gate *gate);

#endif
