/* SPDX-License-Identifier: Apache-2.0 */
/* mutant.h - plans with a fault put in, or two. */
#ifndef HALAY_PROVE_MUTANT_H
#define HALAY_PROVE_MUTANT_H

#include "oracle.h"

enum { HLY_MUTANT_CHANGED_MAX = HLY_ORACLE_RANKS_MAX };

typedef struct hly_mutant {
    const halay_plan_t *plans[HLY_ORACLE_RANKS_MAX]; /* the originals except those changed */
    uint32_t nranks;
    halay_plan_t *changed[HLY_MUTANT_CHANGED_MAX];
    uint32_t nchanged;
    char what[256];
} hly_mutant_t;

uint32_t hly_mutant_kinds(void);
const char *hly_mutant_kind_name(uint32_t kind);

/* HALAY_EAGAIN: these plans have no place for this kind (or chance found none). HALAY_ENOMEM. */
int hly_mutant_make(uint32_t kind, const halay_plan_t *const plans[], uint32_t nranks,
                    uint64_t *chance, hly_mutant_t *mutant);
void hly_mutant_free(hly_mutant_t *mutant);
/* Equal mutants of the same plans have equal hashes. */
uint64_t hly_mutant_hash(const hly_mutant_t *mutant);

#endif
