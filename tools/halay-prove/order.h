/* SPDX-License-Identifier: Apache-2.0 */
/* order.h - the two ways of choosing orders: adversaries, and all there are. */
#ifndef HALAY_PROVE_ORDER_H
#define HALAY_PROVE_ORDER_H

#include "../common/machine.h"
#include "oracle.h"

typedef struct hly_adversary hly_adversary_t;

int hly_adversary_create(const hly_program_t *program, uint64_t seed, hly_adversary_t **adversary);
void hly_adversary_free(hly_adversary_t *adversary);
/* Runs the machine to its end in order number `order` (equal numbers, equal orders). */
void hly_adversary_run(hly_adversary_t *adversary, hly_machine_t *machine, uint32_t order,
                       uint32_t eager);

/*
 * Tries every order, meeting each state once. *states: how many there were; more than states_max:
 * given up, *complete is 0. The machine's verdict is that of the first bad run. 0 or HALAY_ENOMEM.
 */
int hly_search(hly_machine_t *machine, uint32_t eager, uint32_t states_max, uint64_t *states,
               int *complete);

#endif
