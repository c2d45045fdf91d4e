/* SPDX-License-Identifier: Apache-2.0 */
/* library.c - finds NCCL and its calls. */
#include "groups/nccl/library.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static bool find(void *handle, const char *name, void *pointer)
{
    void *symbol = dlsym(handle, name);
    memcpy(pointer, &symbol, sizeof(symbol)); /* a function's address */
    return symbol != NULL;
}

static const char *find_all(struct hly_nccl_library *l, void *handle)
{
    const char *missing = NULL;
#define FIND(result, name, arguments)                                                              \
    if (!find(handle, #name, &l->name) && !missing)                                                \
        missing = #name;
    HLY_NCCL_CALLS(FIND)
    return missing;
}

/* A path is looked at first: to open a FIFO waits for whoever writes to it. */
static void *open_file(const char *name, char *why, size_t why_bytes)
{
    struct stat status = {0};
    void *handle = NULL;
    if (strchr(name, '/') && stat(name, &status)) {
        const int error = errno;
        snprintf(why, why_bytes, "%.180s: %s", name, strerror(error));
    } else if (strchr(name, '/') && !S_ISREG(status.st_mode)) {
        snprintf(why, why_bytes, "%.180s is not a file", name);
    } else if (!(handle = dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE))) {
        const char *said = dlerror();
        snprintf(why, why_bytes, "%.230s", said ? said : name);
    }
    return handle;
}

int hly_nccl_library_open(struct hly_nccl_library *l, const char *name, char *why, size_t why_bytes)
{
    char said[240];
    if (!name || !*name)
        name = HLY_NCCL_LIBRARY;
    l->version = 0;
    void *handle = open_file(name, said, sizeof(said));
    if (!handle) {
        snprintf(why, why_bytes, "there is no NCCL: %s", said);
        return HALAY_EUNSUPPORTED;
    }
    const char *missing = find_all(l, handle);
    if (l->ncclGetVersion && l->ncclGetVersion(&l->version))
        l->version = 0;
    if (!l->ncclGetVersion) {
        snprintf(why, why_bytes, "%.180s is not NCCL: it lacks %s", name, missing);
        dlclose(handle);
        return HALAY_EUNSUPPORTED;
    }
    if (missing || l->version < HALAY_NCCL_LEAST) {
        snprintf(why, why_bytes, "%s is NCCL %d.%d.%d, and " HALAY_NCCL_LEAST_TEXT " is needed%s%s",
                 name, l->version / 10000, l->version / 100 % 100, l->version % 100,
                 missing ? "; it lacks " : "", missing ? missing : "");
        dlclose(handle);
        return HALAY_EUNSUPPORTED;
    }
    l->handle = handle;
    return HALAY_OK;
}

void hly_nccl_library_close(struct hly_nccl_library *l)
{
    if (l->handle)
        dlclose(l->handle);
    l->handle = NULL;
}

int hly_nccl_type(halay_type_t type)
{
    switch (type) {
    case HALAY_INT8:
        return 0;
    case HALAY_UINT8:
        return 1;
    case HALAY_INT32:
        return 2;
    case HALAY_UINT32:
        return 3;
    case HALAY_INT64:
        return 4;
    case HALAY_UINT64:
        return 5;
    case HALAY_FLOAT16:
        return 6;
    case HALAY_FLOAT32:
        return 7;
    case HALAY_FLOAT64:
        return 8;
    case HALAY_BFLOAT16:
        return 9;
    default:
        return -1;
    }
}

int hly_nccl_op(halay_op_t op)
{
    switch (op) {
    case HALAY_SUM:
        return 0;
    case HALAY_PROD:
        return 1;
    case HALAY_MAX:
        return 2;
    case HALAY_MIN:
        return 3;
    default:
        return -1;
    }
}
