/* SPDX-License-Identifier: Apache-2.0 */
/* library.c - where the library that is loaded lies, and its plug-ins. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

void hly_plugin_dir(char dir[HLY_PATH_BYTES])
{
    char library[HLY_PATH_BYTES];
    const char *named = getenv("HALAY_PLUGIN_DIR");
    hly_library_path(library);
    char *slash = strrchr(library, '/');
    if (slash)
        *slash = '\0';
    if (named && *named)
        snprintf(dir, HLY_PATH_BYTES, "%s", named);
    else
        snprintf(dir, HLY_PATH_BYTES, "%.*s/halay", HLY_PATH_BYTES - 8, slash ? library : ".");
}

void hly_plugin_path(const char *kind, const char *name, char path[2 * HLY_PATH_BYTES])
{
    char dir[HLY_PATH_BYTES];
    hly_plugin_dir(dir);
    snprintf(path, 2 * HLY_PATH_BYTES, "%s/halay-%.64s-%.64s.so", dir, kind, name);
}

/* Debian's packages: for the build, and where it runs. The other plug-ins need none. */
static const struct need {
    const char *name, *build, *run;
} needs[] = {{"verbs", "libibverbs-dev", "libibverbs1 ibverbs-providers"},
             {"ucx", "libucx-dev", "libucx0"},
             {"pmix", "libpmix-dev", "libpmix2"}};

void hly_plugin_reason(const char *error, char *text, size_t bytes)
{
    const char *end = strstr(error, ": cannot open shared object file: No such file");
    if (end && error[0] != '/') /* not our own file */
        snprintf(text, bytes, "%.*s is not found", (int)(end - error), error);
    else
        snprintf(text, bytes, "%s", error);
}

void hly_plugin_remedy(const char *name, const char *path, char *text, size_t bytes)
{
    const struct need *need = NULL;
    for (size_t i = 0; i < sizeof needs / sizeof needs[0]; i++)
        if (!strcmp(needs[i].name, name))
            need = &needs[i];
    const int there = access(path, F_OK) == 0;
    if (there && need)
        snprintf(text, bytes, "install %s (Debian), or build Halay again here", need->run);
    else if (need)
        snprintf(text, bytes,
                 "install %s (Debian) where Halay is built, and build and install it again",
                 need->build);
    else
        snprintf(text, bytes, "build and install Halay again");
}
