/* SPDX-License-Identifier: Apache-2.0 */
/* bindings/xla, as halay.jax calls it. */
struct hlx_gate;
struct hlx_gate *halay_xla_gate_create(void);
void halay_xla_gate_open(struct hlx_gate *gate, halay_trainer_t *trainer, int rank, int size);
void halay_xla_gate_close(struct hlx_gate *gate);
uintptr_t halay_xla_library(void);
void halay_xla_speak(int minor);
void *halay_xla_allreduce(void *frame);
void *halay_xla_allgather(void *frame);
void *halay_xla_broadcast(void *frame);
void *halay_xla_reducescatter(void *frame);
void *halay_xla_alltoall(void *frame);
