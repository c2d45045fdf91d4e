/* SPDX-License-Identifier: Apache-2.0 */
/* autotune.h - what HALAY_AUTOTUNE says. */
#ifndef HALAY_PROC_AUTOTUNE_H
#define HALAY_PROC_AUTOTUNE_H

#include <stdbool.h>
#include <stdint.h>

#define HLY_AUTOTUNE_STEPS_MAX  128 /* as src/training/core/search.h has it */
#define HLY_AUTOTUNE_WARMUP_MAX 1000000
#define HLY_AUTOTUNE_GROUP_MAX  (UINT64_C(1) << 40)
#define HLY_AUTOTUNE_UNSET      UINT64_MAX
#define HLY_AUTOTUNE_TAKES                                                                         \
    "it takes 0 (the default) or 1, or, with commas between: again (what is kept is not used), "   \
    "steps:1 to 128, warmup:N, group:BYTES, and at last log:FILE"

struct hly_autotune {
    bool on, again;
    uint64_t steps, warmup; /* steps of a sample; samples before the first that counts */
    uint64_t group_bytes;   /* a group has at most, and nothing is tuned; or UNSET */
    const char *log;        /* part of the text; NULL: none */
};

/* text: of the variable, or NULL. false: it makes no sense. */
bool hly_autotune_read(const char *text, struct hly_autotune *autotune);

#endif
