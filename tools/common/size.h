/* SPDX-License-Identifier: Apache-2.0 */
/* size.h - sizes on a command line. */
#ifndef HLY_SIZE_H
#define HLY_SIZE_H

#include <stdint.h>

/* Digits, then K, M, G, KiB, MiB, GiB (powers of 1024) or nothing. -1: it is none, or more. */
int hly_size_read(const char *text, uint64_t most, uint64_t *bytes);

#endif
