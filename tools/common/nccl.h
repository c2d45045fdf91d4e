/* SPDX-License-Identifier: Apache-2.0 */
/* nccl.h - which NCCL a context would open on this machine. */
#ifndef HLY_NCCL_H
#define HLY_NCCL_H

#include <stddef.h>

enum hly_nccl_state { HLY_NCCL_OFF, HLY_NCCL_MISSING, HLY_NCCL_OLD, HLY_NCCL_FOUND };

/* Opens it: what HALAY_NCCL_LIBRARY names, else libnccl.so.2. A line says what was found. */
enum hly_nccl_state hly_nccl_look(char *line, size_t bytes);

#endif
