/* SPDX-License-Identifier: Apache-2.0 */
/* whole_table.h - the rule of all contracts: no member of a table is NULL (halay_config_t). */
#ifndef TEST_WHOLE_TABLE_H
#define TEST_WHOLE_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline bool is_whole(const void *table, size_t bytes)
{
    uintptr_t member = 1;
    for (size_t at = sizeof(size_t); member && at < bytes; at += sizeof(member))
        memcpy(&member, (const char *)table + at, sizeof(member));
    return member != 0;
}

#endif
