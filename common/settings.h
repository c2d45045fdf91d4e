/* SPDX-License-Identifier: Apache-2.0 */
/* settings.h - the table of all variables that Halay reads, and of those that it reads no more. */
#ifndef HALAY_PROC_SETTINGS_H
#define HALAY_PROC_SETTINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct hly_setting {
    const char *name, *type, *usual, *unit, *scope, *meaning;
};

extern const struct hly_setting hly_settings_all[];
extern const size_t hly_settings_count;

/* Its value may be shown to others: it is no secret. */
bool hly_setting_is_open(const struct hly_setting *setting);
/* A variable is set that was dropped: error names it and what has taken its place. */
bool hly_settings_dropped(char *error, size_t bytes);
struct hly_nccl_choice {
    const char *file; /* of NCCL; "": libnccl.so.2 */
    bool nccl, own;   /* may be used: NCCL; group steps of Halay's own */
    uint64_t least;   /* bytes of a call from which on those are used; 0: the GPU says it */
};

#define HLY_NCCL_TAKES                                                                             \
    "it takes NCCL's file; off: neither NCCL nor Halay's own kernels; own: only these, or "        \
    "own:BYTES, from so many bytes of a call on, at least 1"
/* Reads the text of HALAY_NCCL_LIBRARY, or NULL; false: it makes no sense. */
bool hly_nccl_choice_read(const char *text, struct hly_nccl_choice *choice);
/* A whole number from least to most, of these characters and no others. */
bool hly_setting_number(const char *text, size_t length, uint64_t least, uint64_t most,
                        uint64_t *number);

#endif
