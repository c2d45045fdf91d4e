/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loader.c - finds plug-ins at run time, next to the library (lib/halay/) or in HALAY_PLUGIN_DIR.
 * So one binary serves nodes with and without PMIx. It also decides whether this process is a
 * launcher's task. The environment alone tells (docs/decisions/0002), so that nothing is loaded for
 * a program that is run alone.
 */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "job/job.h"

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

static int number_in(const char *variable)
{
    const char *text = getenv(variable);
    long n = text ? strtol(text, NULL, 10) : 0;
    return n > 0 && n < (1 << 28) ? (int)n : 0;
}

static bool given(const char *variable)
{
    const char *text = getenv(variable);
    return text && *text;
}

/*
 * Variables as torchrun, Kubernetes, Spark and Ray set them; the plug-in says what is wrong with
 * them. One rank runs alone. torchrun may itself be a task of a launcher with PMIx, whose variables
 * its workers then inherit: they are torchrun's ranks (docs/decisions/0008).
 */
static bool ranks_by_variables(void)
{
    const char *size = getenv("WORLD_SIZE"), *rank = getenv("RANK");
    bool one = size && !strcmp(size, "1") && (!rank || !*rank || !strcmp(rank, "0"));
    bool pmix = given("PMIX_RANK") && given("PMIX_NAMESPACE");
    if (one || !(given("RANK") || given("WORLD_SIZE")))
        return false;
    return !pmix || (given("TORCHELASTIC_RUN_ID") && given("RANK") && given("WORLD_SIZE"));
}

/* halayrun's driver; a launcher that a rank starts has variables of its own. */
static bool ranks_by_driver(void)
{
    const char *space = getenv("PMIX_NAMESPACE"), *job = getenv("HALAY_MEET_JOB");
    if (!given("HALAY_MEET") || (given("TORCHELASTIC_RUN_ID") && given("WORLD_SIZE")))
        return false;
    return !space || !job || !strcmp(space, job);
}

/*
 * How many ranks an mpiexec without PMIx has started within an srun, which that mpiexec uses to
 * reach nodes: its ranks inherit the PMIx of srun's tasks, which are others. 0: there is none.
 */
static int ranks_without_pmix(void)
{
    const int n = number_in("PMI_SIZE"), tasks = number_in("SLURM_STEP_NUM_TASKS");
    return n > 1 && tasks && n != tasks && !given("OMPI_COMM_WORLD_SIZE") ? n : 0;
}

/*
 * The shell of a batch script has SLURM_NTASKS but no step of several tasks: it is nobody's task.
 * PMIX_RANK alone promises nothing about the number of ranks: 0 means "ask PMIx".
 */
int hly_launcher_announced(const char **plugin, const char **launcher, const char **remedy)
{
    static const struct {
        const char *must, *number, *launcher, *remedy;
    } rows[] = {
        {"SLURM_STEP_ID", "SLURM_STEP_NUM_TASKS", "Slurm's srun",
         "start it with srun --mpi=pmix (srun --mpi=list shows what this cluster has)"},
        /* before Open MPI: Spectrum MPI's jsrun sets its variables too */
        {"JSM_NAMESPACE_SIZE", "JSM_NAMESPACE_SIZE", "jsrun",
         "load a jsrun with PMIx, or start with mpirun"},
        {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "Open MPI's mpirun",
         "use an mpirun with PMIx (Open MPI 4 or newer)"},
        {"PALS_RANKID", "PALS_NRANKS", "PALS", "start it with --pmi=pmix"},
        {"PMI_SIZE", "PMI_SIZE", "an mpiexec without PMIx, as MPICH's and Intel MPI's,",
         "use a launcher with PMIx, or halayrun"},
        {"HALAY_LAUNCHER", "HALAY_NRANKS", "halayrun", "check halayrun's own message above"},
    };
    const char *none = getenv("HALAY_LAUNCHER"); /* "none": a program that a rank starts, alone */
    if (none && !strcmp(none, "none"))
        return 1;
    *plugin = "pmix";
    if (ranks_by_driver()) {
        *plugin = "meet";
        *launcher = "halayrun";
        *remedy = "check that all of Halay is installed, or set HALAY_LAUNCHER=none to run alone";
        int n = number_in("HALAY_NRANKS");
        return n > 1 ? n : 0;
    }
    if (ranks_by_variables()) {
        *plugin = "tcp";
        *launcher = "the environment (RANK, WORLD_SIZE)";
        *remedy = "check that all of Halay is installed, or set HALAY_LAUNCHER=none to run alone";
        int n = number_in("WORLD_SIZE");
        return n > 1 ? n : 0; /* 0: the plug-in says what is wrong */
    }
    if (ranks_without_pmix()) {
        *plugin = NULL;
        *launcher = "an mpiexec without PMIx, as MPICH's and Intel MPI's,";
        *remedy = "use srun --mpi=pmix, or halayrun";
        return ranks_without_pmix();
    }
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        int n = getenv(rows[i].must) ? number_in(rows[i].number) : 0;
        if (n > 1) {
            *launcher = rows[i].launcher;
            *remedy = rows[i].remedy;
            return n;
        }
    }
    *launcher = "PMIx";
    *remedy = "check that the PMIx of the launcher and libpmix of this machine are compatible";
    return getenv("PMIX_RANK") && getenv("PMIX_NAMESPACE") ? 0 : 1;
}
