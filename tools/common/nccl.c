/* SPDX-License-Identifier: Apache-2.0 */
/* nccl.c - which NCCL a context would open on this machine. */
#define _GNU_SOURCE
#include "nccl.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <halay/group.h>

#include "../../common/settings.h"

#define WITHOUT                                                                                    \
    "calls in GPU memory are staged, or use Halay's own group steps where the ranks of a node "    \
    "are threads of one process on one GPU"

/* Where the library that has this symbol lies. */
static const char *path_of(const void *symbol, const char *name)
{
    Dl_info info;
    return dladdr(symbol, &info) && info.dli_fname ? info.dli_fname : name;
}

static enum hly_nccl_state look_in(void *library, const char *name, char *line, size_t bytes)
{
    int (*get)(int *) = NULL, version = 0;
    void *symbol = dlsym(library, "ncclGetVersion");
    memcpy(&get, &symbol, sizeof get); /* a function's address */
    if (!get || get(&version) || version <= 0) {
        snprintf(line, bytes, "%s does not say which NCCL it is: " WITHOUT, path_of(symbol, name));
        return HLY_NCCL_MISSING;
    }
    const int n = snprintf(line, bytes, "%s: NCCL %d.%d.%d", path_of(symbol, name), version / 10000,
                           version / 100 % 100, version % 100);
    if (version >= HALAY_NCCL_LEAST)
        return HLY_NCCL_FOUND;
    if (n >= 0 && (size_t)n < bytes)
        snprintf(line + n, bytes - (size_t)n,
                 ", and " HALAY_NCCL_LEAST_TEXT " or newer is needed: " WITHOUT);
    return HLY_NCCL_OLD;
}

/* To open a FIFO would wait for whoever writes to it. */
static bool is_no_file(const char *name)
{
    struct stat status;
    return strchr(name, '/') && !stat(name, &status) && !S_ISREG(status.st_mode);
}

enum hly_nccl_state hly_nccl_look(char *line, size_t bytes)
{
    const char *name = getenv("HALAY_NCCL_LIBRARY");
    struct hly_nccl_choice choice;
    if (!hly_nccl_choice_read(name, &choice) || !choice.nccl) {
        snprintf(line, bytes, "HALAY_NCCL_LIBRARY is %s: " WITHOUT, name);
        return HLY_NCCL_OFF;
    }
    name = *choice.file ? choice.file : "libnccl.so.2";
    if (is_no_file(name)) {
        snprintf(line, bytes, "none: %s is not a file; " WITHOUT, name);
        return HLY_NCCL_MISSING;
    }
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!library) {
        const char *why = dlerror();
        snprintf(line, bytes, "none: %s; " WITHOUT, why ? why : name);
        return HLY_NCCL_MISSING;
    }
    const enum hly_nccl_state state = look_in(library, name, line, bytes);
    dlclose(library);
    return state;
}
