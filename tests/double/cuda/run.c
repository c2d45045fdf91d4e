/* SPDX-License-Identifier: Apache-2.0 */
/* run.c - modules, and the running of kernels. */
#include "run.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "inside.h"

enum { KERNELS_MAX = 256, MODULES_MAX = 256, PLACES_MAX = 256 };

static struct kernel {
    const char *name;
    kernel_fn *fn;
    size_t bytes;
} kernels[KERNELS_MAX];
static int nkernels;
static struct module {
    const char *text; /* NULL: unused */
} modules[MODULES_MAX];

__thread uint64_t thread_number, thread_count;
static __thread struct {
    uint64_t at;
    size_t bytes;
    char *inside;
} places[PLACES_MAX];
static __thread int nplaces, of_device;
static __thread jmp_buf crash;

void kernel_add(const char *name, kernel_fn *fn, size_t bytes)
{
    if (nkernels == KERNELS_MAX)
        abort();
    kernels[nkernels++] = (struct kernel){name, fn, bytes};
}

char *kernel_at(uint64_t at, size_t bytes)
{
    int i = 0;
    while (i < nplaces && (places[i].at != at || places[i].bytes != bytes))
        i++;
    if (i < nplaces)
        return places[i].inside;
    pthread_mutex_lock(&mutex);
    char *p = inside(at, bytes, of_device);
    pthread_mutex_unlock(&mutex);
    if (!p || nplaces == PLACES_MAX)
        longjmp(crash, 1);
    places[nplaces].at = at;
    places[nplaces].bytes = bytes;
    places[nplaces++].inside = p;
    return p;
}

size_t kernel_bytes(const void *function)
{
    const struct kernel *k = function;
    return k >= kernels && k < kernels + nkernels ? k->bytes : 0;
}

bool kernel_run(const struct launch *launch, const void *argument, int device)
{
    const struct kernel *k = launch->function;
    nplaces = 0;
    of_device = device;
    thread_count = (uint64_t)launch->blocks * launch->threads;
    if (setjmp(crash))
        return false;
    for (thread_number = 0; thread_number < thread_count; thread_number++)
        k->fn(argument);
    return true;
}

/* Is it a text that a driver of the oldest version would take? */
int cuModuleLoadData(void **module, const void *image)
{
    int rc = call_begin("cuModuleLoadData", NEEDS_CONTEXT, NULL);
    struct module *m = modules;
    while (m < modules + MODULES_MAX && m->text)
        m++;
    if (!rc && !memcmp(image, "\x50\xed\x55\xba", 4)) /* a fatbin: of no chip that we are */
        return call_end(HLY_CU_NO_BINARY);
    if (!rc && (!strstr(image, "\n.version 6.3\n.target sm_75\n.address_size 64\n")))
        rc = misuse(HLY_CU_INVALID_IMAGE);
    if (!rc && m == modules + MODULES_MAX)
        rc = HLY_CU_OUT_OF_MEMORY;
    if (rc)
        return call_end(rc);
    m->text = image;
    counts.modules++;
    *module = m;
    return call_end(0);
}

static bool is_module(const struct module *m)
{
    return m >= modules && m < modules + MODULES_MAX && m->text;
}

int cuModuleUnload(void *module)
{
    struct module *m = module;
    int rc = call_begin("cuModuleUnload", NEEDS_CONTEXT, NULL);
    if (!rc && !is_module(m))
        rc = misuse(INVALID_HANDLE);
    if (!rc) {
        m->text = NULL;
        counts.modules--;
    }
    return call_end(rc);
}

/* It must be one of ours, and in the text, with one argument of the right size. */
int cuModuleGetFunction(void **function, void *module, const char *name)
{
    char entry[64], param[96];
    const struct module *m = module;
    int rc = call_begin("cuModuleGetFunction", NEEDS_CONTEXT, NULL);
    snprintf(entry, sizeof(entry), ".entry %s(", name);
    if (!rc && !is_module(m))
        rc = misuse(INVALID_HANDLE);
    for (int i = 0; !rc && i < nkernels; i++) {
        if (strcmp(kernels[i].name, name) != 0)
            continue;
        snprintf(param, sizeof(param), ".b8 %s_param_0[%zu]", name, kernels[i].bytes);
        if (!strstr(m->text, entry) || !strstr(m->text, param))
            break;
        *function = &kernels[i];
        return call_end(0);
    }
    return call_end(rc ? rc : misuse(NOT_FOUND));
}
