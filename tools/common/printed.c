/* SPDX-License-Identifier: Apache-2.0 */
/* printed.c - output that could not be written is an error. */
#include "printed.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

int hly_printed(const char *program, int status, int failed)
{
    errno = 0;
    if (!fflush(stdout) && !ferror(stdout))
        return status;
    if (errno != EPIPE) /* nobody reads it */
        fprintf(stderr, "%s: cannot write to standard output: %s\n", program,
                strerror(errno ? errno : ENOSPC));
    return failed;
}
