/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loader.c - finds plug-ins at run time, next to the library (lib/halay/) or in HALAY_PLUGIN_DIR.
 * So one binary serves nodes with and without PMIx. Whether this process is a launcher's task the
 * environment alone tells (launcher.c), so that nothing is loaded for a program that is run alone.
 */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "start/start.h"

static void plugin_path(halay_context_t *context, const char *kind, const char *name, char *path,
                        size_t bytes)
{
    Dl_info where;
    const char *dir = context->settings.plugin_dir;
    if (*dir) {
        snprintf(path, bytes, "%s/halay-%s-%s.so", dir, kind, name);
        return;
    }
    const char *self = dladdr((const void *)halay_version, &where) ? where.dli_fname : NULL;
    const char *slash = self ? strrchr(self, '/') : NULL;
    int length = slash ? (int)(slash - self) : 1;
    snprintf(path, bytes, "%.*s/halay/halay-%s-%s.so", length, slash ? self : ".", kind, name);
}

/* The names of the plug-ins of this kind next to `path`, each with a blank before it. */
static void list_plugins(const char *path, const char *kind, char *names, size_t bytes)
{
    char folder[512], prefix[32];
    snprintf(folder, sizeof(folder), "%s", path);
    *strrchr(folder, '/') = 0;
    size_t length = (size_t)snprintf(prefix, sizeof(prefix), "halay-%s-", kind), used = 0;
    DIR *all = opendir(folder);
    *names = 0;
    for (struct dirent *one; all && (one = readdir(all));) {
        const char *end = strstr(one->d_name, ".so");
        if (strncmp(one->d_name, prefix, length) || !end || used >= bytes)
            continue;
        used += (size_t)snprintf(names + used, bytes - used, " %.*s",
                                 (int)(end - one->d_name - (long)length), one->d_name + length);
    }
    if (all)
        closedir(all);
}

int hly_plugin_load(halay_context_t *context, const char *kind, const char *name,
                    const char *symbol_prefix, const void **table, char *error, size_t error_bytes)
{
    char path[512], symbol[96];
    plugin_path(context, kind, name, path, sizeof(path));
    if (context->nplugins == (int)(sizeof(context->plugins) / sizeof(context->plugins[0])))
        return HALAY_ENOMEM;
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
        char names[128];
        const char *reason = dlerror();
        const bool full = reason && strstr(reason, strerror(EMFILE)); /* the loader has no code */
        list_plugins(path, kind, names, sizeof(names));
        snprintf(error, error_bytes, "the plug-in for %s '%s' cannot be loaded: %s; %s%s", kind,
                 name, reason,
                 full ? "raise the limit on open files (ulimit -n); there are:" : "there are:",
                 *names ? names : " none");
        return HALAY_EUNSUPPORTED;
    }
    snprintf(symbol, sizeof(symbol), "%s%s", symbol_prefix, name);
    const void *found = dlsym(handle, symbol);
    if (!found) {
        snprintf(error, error_bytes,
                 "%s has no symbol %s: it was built for another version of Halay", path, symbol);
        dlclose(handle);
        return HALAY_EUNSUPPORTED;
    }
    context->plugins[context->nplugins++] = handle;
    *table = found;
    return HALAY_OK;
}

/* What the process was started with, which MPI cannot change; *kept: to be freed. */
static const char *began_with(const char *name, char **kept)
{
    const size_t length = strlen(name);
    size_t bytes = 0;
    FILE *file = fopen("/proc/self/environ", "re");
    while (file && getdelim(kept, &bytes, 0, file) > 0)
        if (!strncmp(*kept, name, length) && (*kept)[length] == '=') {
            fclose(file);
            return *kept + length + 1;
        }
    if (file)
        fclose(file);
    return NULL;
}

static const char *variable(void *kept, const char *name, bool began)
{
    return began ? began_with(name, kept) : getenv(name);
}

struct hly_launcher hly_launcher_here(void)
{
    char *kept = NULL;
    const struct hly_launcher found = hly_launcher_find(variable, &kept);
    free(kept);
    return found;
}

const char *hly_launcher_denies_here(int nranks, int *most)
{
    return hly_launcher_denies(variable, NULL, nranks, most);
}
