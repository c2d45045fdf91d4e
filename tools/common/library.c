/* SPDX-License-Identifier: Apache-2.0 */
/* library.c - where the library that is loaded lies. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "library.h"

/* Not &halay_version: that may be an entry of this program's own linkage table. */
void hly_library_path(char path[HLY_PATH_BYTES])
{
    Dl_info where;
    void *symbol = dlsym(RTLD_DEFAULT, "halay_version");
    char *real = symbol && dladdr(symbol, &where) ? realpath(where.dli_fname, NULL) : NULL;
    snprintf(path, HLY_PATH_BYTES, "%s", real ? real : "?");
    free(real);
}
