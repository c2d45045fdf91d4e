/* SPDX-License-Identifier: Apache-2.0 */
/* file_limit.h - the limit on the size of files (ulimit -f), before a file grows. */
#ifndef HLY_FILE_LIMIT_H
#define HLY_FILE_LIMIT_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>

/* May a file of this process have so many bytes? Beyond the limit the kernel does not only refuse,
 * it sends SIGXFSZ. If it may not, errno is EFBIG. */
static inline bool hly_file_fits(uint64_t bytes)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) || limit.rlim_cur == RLIM_INFINITY ||
        limit.rlim_cur >= bytes)
        return true;
    errno = EFBIG;
    return false;
}

#endif
