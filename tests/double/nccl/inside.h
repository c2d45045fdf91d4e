/* SPDX-License-Identifier: Apache-2.0 */
/* inside.h - what the parts of the double share. */
#ifndef TESTS_DOUBLE_NCCL_INSIDE_H
#define TESTS_DOUBLE_NCCL_INSIDE_H

#include <stddef.h>

#include "double.h"
#include "groups/nccl/library.h"

#define PROTOTYPE(result, name, arguments) NCCL_DOUBLE result name arguments;
HLY_NCCL_CALLS(PROTOTYPE)

size_t element_bytes(int type); /* 0: there is no such type */
/* into = into OP with */
void combine(void *into, const void *with, size_t count, int type, int op);

#endif
