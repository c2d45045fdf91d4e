/* SPDX-License-Identifier: Apache-2.0 */
/* driver.c - finds libcuda and its calls. */
#include "device/cuda/driver.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include <halay/halay.h>

#include "device/device_builtin.h"

static bool find(void *library, const char *name, void *pointer)
{
    void *symbol = dlsym(library, name);
    memcpy(pointer, &symbol, sizeof(symbol)); /* a function's address */
    return symbol != NULL;
}

/* The first call of those that must be there that is not; or NULL. */
static const char *find_all(struct hly_cuda_driver *d, void *library)
{
    const char *missing = NULL;
#define FIND(name, arguments)                                                                      \
    if (!find(library, #name, &d->name) && !missing)                                               \
        missing = #name;
#define FIND_OR_NOT(name, arguments) find(library, #name, &d->name);
    HLY_CUDA_CALLS(FIND, FIND_OR_NOT)
    return missing;
}

int hly_cuda_driver_open(struct hly_cuda_driver *d, bool if_loaded, char *why, size_t why_bytes)
{
    int version = 0;
    if (d->library)
        return HALAY_OK;
    void *library =
        dlopen(HLY_CUDA_DRIVER, RTLD_NOW | RTLD_NODELETE | (if_loaded ? RTLD_NOLOAD : 0));
    if (!library) {
        if (!if_loaded)
            snprintf(why, why_bytes, "there is no CUDA driver: %s was not found", HLY_CUDA_DRIVER);
        return HALAY_EUNSUPPORTED;
    }
    const char *missing = find_all(d, library);
    if (d->cuDriverGetVersion)
        d->cuDriverGetVersion(&version);
    if (!missing && version >= HLY_CU_DRIVER_LEAST) {
        d->library = library;
        return HALAY_OK;
    }
    if (version < HLY_CU_DRIVER_LEAST)
        snprintf(why, why_bytes,
                 "the CUDA driver is too old: it is for CUDA %d.%d, and 11.0 is needed%s%s: update "
                 "this node's driver",
                 version / 1000, version % 1000 / 10, missing ? "; it lacks " : "",
                 missing ? missing : "");
    else
        snprintf(why, why_bytes,
                 "%s lacks %s, though it is for CUDA %d.%d: is it NVIDIA's? See LD_LIBRARY_PATH",
                 HLY_CUDA_DRIVER, missing, version / 1000, version % 1000 / 10);
    dlclose(library); /* it stays loaded, so what was found in it stays good */
    return HALAY_EUNSUPPORTED;
}

bool hly_cuda_driver_refused(const struct hly_cuda_driver *d, uint64_t at)
{
    unsigned type = 0;
    int which = HLY_CU_MEMORY_TYPE;
    void *value = &type;
    return !d->library && d->cuPointerGetAttributes &&
           !d->cuPointerGetAttributes(1, &which, &value, at) && type == HLY_CU_MEMORY_DEVICE;
}

void hly_cuda_driver_close(struct hly_cuda_driver *d)
{
    if (d->library)
        dlclose(d->library);
    d->library = NULL;
}
