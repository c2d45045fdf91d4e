/* SPDX-License-Identifier: Apache-2.0 */
/* plugins.c - what the library would find at run time, looked for in the same place and way. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <halay/launch.h>
#include <halay/transport.h>

#include "../common/library.h"
#include "info.h"

#define STRING(x)  #x
#define VERSION(x) "v" STRING(x)
#define NAME_MAX_  64
#define OTHERS_MAX 64

static const struct kind {
    const char *name, *version;
    size_t bytes; /* of its table, which begins with its own size */
} kinds[] = {
    {"transport", VERSION(HALAY_TRANSPORT_ABI), sizeof(halay_transport_ops_t)},
    {"boot", VERSION(HALAY_BOOT_ABI), sizeof(halay_boot_ops_t)},
    {"launch", VERSION(HALAY_LAUNCH_ABI), sizeof(halay_launch_ops_t)},
};

static const struct expected {
    int kind;
    const char *name, *purpose;
} expected[] = {
    {0, "shm", "ranks of one node"},
    {0, "tcp", "ranks of other nodes"},
    {0, "verbs", "ranks of other nodes, where all nodes have RDMA"},
    {0, "ucx", "ranks of other nodes, where all nodes have RDMA and not all have verbs"},
    {1, "meet", "how ranks find each other under halayrun"},
    {1, "pmix", "how ranks find each other under srun, mpirun and prterun"},
    {1, "tcp", "how ranks find each other by variables, as torchrun sets them"},
    {2, "meet", "where the ranks of halayrun meet"},
    {2, "agent", "halayrun on further machines of a job"},
    {2, "pmix", "a PMIx server for other programs under halayrun"},
};

static void missing(const char *name, const char *path, const char *why)
{
    char reason[2 * HLY_PATH_BYTES], remedy[128];
    hly_plugin_reason(why, reason, sizeof reason);
    hly_plugin_remedy(name, path, remedy, sizeof remedy);
    printf("missing: %s; %s\n", reason, remedy);
}

static void show(const char *dir, const struct kind *kind, const char *name, const char *purpose)
{
    char path[HLY_PATH_BYTES + 2 * NAME_MAX_], symbol[2 * NAME_MAX_];
    snprintf(path, sizeof path, "%s/halay-%s-%s.so", dir, kind->name, name);
    snprintf(symbol, sizeof symbol, "halay_%s_%s_%s", kind->name, kind->version, name);
    printf("  %-9s %-7s ", kind->name, name);
    void *plugin = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    const size_t *table = plugin ? dlsym(plugin, symbol) : NULL;
    if (!plugin)
        missing(name, path, dlerror());
    else if (!table)
        printf("missing: %s has no symbol %s: it was built for another version\n", path, symbol);
    else if (*table < kind->bytes)
        printf("missing: %s has a table of %zu bytes; this version needs %zu\n", path, *table,
               kind->bytes);
    else
        printf("found%s%s\n", *purpose ? ": " : "", purpose);
    if (plugin)
        dlclose(plugin);
}

static int is_expected(const struct kind *kind, const char *name)
{
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++)
        if (&kinds[expected[i].kind] == kind && !strcmp(name, expected[i].name))
            return 1;
    return 0;
}

/* Splits "halay-KIND-NAME.so". */
static const struct kind *parse(const char *file, char name[NAME_MAX_])
{
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        char prefix[NAME_MAX_];
        size_t length = (size_t)snprintf(prefix, sizeof prefix, "halay-%s-", kinds[i].name);
        size_t rest = strncmp(file, prefix, length) ? 0 : strlen(file + length);
        if (rest < 4 || rest >= NAME_MAX_ || strcmp(file + length + rest - 3, ".so"))
            continue;
        snprintf(name, NAME_MAX_, "%.*s", (int)(rest - 3), file + length);
        return &kinds[i];
    }
    return NULL;
}

void hly_info_plugins(void)
{
    char dir[HLY_PATH_BYTES], name[NAME_MAX_];
    hly_plugin_dir(dir);
    printf("plug-ins in %s\n", dir);
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++)
        show(dir, &kinds[expected[i].kind], expected[i].name, expected[i].purpose);
    DIR *files = opendir(dir);
    const struct dirent *entry;
    for (int n = 0; files && n < OTHERS_MAX && (entry = readdir(files));) {
        const struct kind *kind = parse(entry->d_name, name);
        if (!kind || is_expected(kind, name))
            continue;
        show(dir, kind, name, "");
        n++;
    }
    if (files)
        closedir(files);
}
