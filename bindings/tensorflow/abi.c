/* SPDX-License-Identifier: Apache-2.0 */
/*
 * abi.c - finds TensorFlow's functions. Versions have them in different libraries
 * (libtensorflow_framework, libtensorflow_cc), which Python loads without showing them to others.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <string.h>

#include "abi.h"

#define LIBRARIES 8

struct hlf_abi hlf_tf;

struct places {
    void *handles[LIBRARIES];
    size_t count;
};

static int is_tensorflow(struct dl_phdr_info *info, size_t size, void *arg)
{
    struct places *places = arg;
    const char *name = strrchr(info->dlpi_name, '/');
    (void)size;
    if (!name || places->count == LIBRARIES ||
        (strncmp(name, "/libtensorflow", 14) && strncmp(name, "/_pywrap_tensorflow", 19)))
        return 0;
    void *handle = dlopen(info->dlpi_name, RTLD_LAZY | RTLD_NOLOAD);
    if (handle)
        places->handles[places->count++] = handle;
    return 0;
}

static void *find(const struct places *places, const char *name)
{
    for (size_t i = 0; i < places->count; i++) {
        void *found = dlsym(places->handles[i], name);
        if (found)
            return found;
    }
    return NULL;
}

const char *hlf_abi_load(void)
{
    static char failure[256];
    static const struct {
        const char *name;
        void **to;
    } wanted[] = {
#define ROW(result, name, parameters) {"TF_" #name, (void **)&hlf_tf.name},
        HALAY_TF_FUNCTIONS(ROW)
#undef ROW
    };
    struct places places = {.count = 0};
    dl_iterate_phdr(is_tensorflow, &places);
    if (places.count == 0)
        return "TensorFlow is not loaded in this process: import tensorflow first";
    failure[0] = 0;
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0] && !failure[0]; i++) {
        *wanted[i].to = find(&places, wanted[i].name);
        if (!*wanted[i].to)
            snprintf(
                failure, sizeof failure,
                "this TensorFlow has no function %s, which Halay needs: use TensorFlow 2.13 or "
                "newer",
                wanted[i].name);
    }
    for (size_t i = 0; i < places.count; i++)
        dlclose(places.handles[i]); /* it was loaded before, and stays */
    return failure[0] ? failure : NULL;
}
