/* SPDX-License-Identifier: Apache-2.0 */
/* switch.c - settings that are 1 or 0. */
#include "switch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int hly_switch_read(const char *variable, char *wrong, size_t bytes)
{
    const char *text = getenv(variable);
    if (!text || !*text || !strcmp(text, "0"))
        return 0;
    if (!strcmp(text, "1"))
        return 1;
    snprintf(wrong, bytes, "%s is '%s'; it takes 1 or 0 (the default)", variable, text);
    return -1;
}
