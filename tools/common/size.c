/* SPDX-License-Identifier: Apache-2.0 */
/* size.c - sizes on a command line. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "size.h"

int hly_size_read(const char *text, uint64_t most, uint64_t *bytes)
{
    static const char units[] = "KMG";
    char *end;
    errno = 0;
    unsigned long long n = strtoull(text, &end, 10);
    const char *unit = *end ? strchr(units, *end) : NULL;
    unsigned shift = unit ? 10u * (unsigned)(unit - units + 1) : 0;
    if (unit)
        end += strcmp(end + 1, "iB") ? 1 : 3;
    if (errno || *text < '0' || *text > '9' || *end || n > most >> shift)
        return -1;
    *bytes = (uint64_t)n << shift;
    return 0;
}
