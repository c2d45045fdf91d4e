/* SPDX-License-Identifier: Apache-2.0 */
/*
 * software.c - PMIx of this process and of its launcher, Slurm's plug-ins, UCX: what is there and
 * whether it fits together. Libraries are opened as Halay would open them.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "../common/library.h"
#include "doctor.h"

/* The first number with dots in a text: "OpenPMIx 4.2.2, repo ..." */
static void version_in(const char *text, char version[32])
{
    text += strcspn(text, "0123456789");
    snprintf(version, 32, "%.*s", (int)strspn(text, "0123456789."), text);
}

/* They set up things of their own when they are loaded, which unloading would lose. */
#define OPEN (RTLD_LAZY | RTLD_LOCAL | RTLD_NODELETE)

/* What `function` of a library says; false: no such library, or it is not that. */
static bool library_says(const char *library, const char *function, char *text, size_t bytes)
{
    void *handle = dlopen(library, OPEN);
    void *symbol = handle ? dlsym(handle, function) : NULL;
    const char *(*says)(void) = NULL;
    if (symbol)
        memcpy(&says, &symbol, sizeof says);
    snprintf(text, bytes, "%s", says ? says() : "");
    if (handle)
        dlclose(handle);
    return says != NULL;
}

/* ---------------------------------------------------------------- PMIx */

static void tell_launcher(const struct hly_probe *p, const char *mine)
{
    const char *server = getenv("PMIX_VERSION"); /* a PMIx server tells its tasks */
    char version[32];
    if (!server || !*server)
        return;
    version_in(server, version);
    if (strtol(version, NULL, 10) == strtol(mine, NULL, 10)) {
        hly_find(p->report, HLY_GOOD, "pmix.launcher", "", "PMIx %s, of the same family", version);
        return;
    }
    struct hly_finding *f =
        hly_find(p->report, HLY_WARNING, "pmix.launcher", "",
                 "the launcher has PMIx %s, and libpmix here is %s", version, mine);
    hly_advise(f,
               "Different main versions understand each other in part: the usual signs are ranks "
               "that hang at the start, or that cannot be found.",
               "put the launcher's libpmix first (LD_LIBRARY_PATH), or build it against this one; "
               "meanwhile PMIX_MCA_gds=hash in launcher and ranks often helps");
}

/* "4.2.2", or "" where there is no libpmix. */
static void tell_pmix(const struct hly_probe *p, char version[32])
{
    char text[256];
    version[0] = '\0';
    if (*p->root)
        return;
    if (!library_says("libpmix.so.2", "PMIx_Get_version", text, sizeof text)) {
        struct hly_finding *f =
            hly_find(p->report, HLY_WARNING, "pmix.library", "", "libpmix.so.2 is not found");
        hly_advise(f,
                   "Ranks of srun, mpirun and prterun find each other through PMIx; halayrun, and "
                   "variables as torchrun's, are left.",
                   "install it (Debian: libpmix2), or name its folder in LD_LIBRARY_PATH");
        return;
    }
    version_in(text, version);
    hly_find(p->report, HLY_GOOD, "pmix.library", "", "PMIx %s", version);
    hly_fact(p->report, "PMIx", "%s", version);
    tell_launcher(p, version);
}

/* ---------------------------------------------------------------- Slurm */

static const char *const slurm_folders[] = {"/usr/lib/x86_64-linux-gnu/slurm-wlm",
                                            "/usr/lib/aarch64-linux-gnu/slurm-wlm",
                                            "/usr/lib64/slurm",
                                            "/usr/lib/slurm",
                                            "/usr/local/lib64/slurm",
                                            "/usr/local/lib/slurm",
                                            "/opt/slurm/lib64/slurm",
                                            "/opt/slurm/lib/slurm"};

static const char *slurm_folder(const struct hly_probe *p, struct hly_names *files)
{
    for (size_t i = 0; i < sizeof slurm_folders / sizeof slurm_folders[0]; i++) {
        hly_list(p, files, "%s", slurm_folders[i]);
        for (int n = 0; n < files->n; n++)
            if (!strncmp(files->name[n], "mpi_", 4))
                return slurm_folders[i];
    }
    return NULL;
}

/* "limits", "MEMLOCK" in slurm.conf; srun hands the limits of the login node on. */
static void tell_slurm_conf(const struct hly_probe *p)
{
    char text[65536], except[128], all[64];
    if (!hly_read(p, text, sizeof text, "/etc/slurm/slurm.conf"))
        return;
    hly_line(text, "PropagateResourceLimitsExcept=", except, sizeof except);
    bool told = hly_line(text, "PropagateResourceLimits=", all, sizeof all);
    if (strcasestr(except, "MEMLOCK") || strcasestr(except, "ALL") ||
        (told && strcasestr(all, "NONE")))
        return;
    struct hly_finding *f = hly_find(p->report, HLY_NOTE, "slurm.limits", "/etc/slurm/slurm.conf",
                                     "srun hands on the login node's limit of locked memory");
    hly_advise(f, "A small limit there becomes that of every rank, however slurmd was set up.",
               "PropagateResourceLimitsExcept=MEMLOCK in slurm.conf; or ulimit -l unlimited before "
               "srun");
}

static void tell_slurm(const struct hly_probe *p, const char *version)
{
    struct hly_names files;
    char list[128] = "";
    size_t used = 0;
    long most = 0;
    const char *folder = slurm_folder(p, &files);
    if (!folder)
        return;
    for (int i = 0; i < files.n; i++) {
        const char *name = files.name[i], *so = strstr(name, ".so");
        if (strncmp(name, "mpi_pmix", 8) || !so || used >= sizeof list)
            continue;
        if (!strncmp(name, "mpi_pmix_v", 10) && strtol(name + 10, NULL, 10) > most)
            most = strtol(name + 10, NULL, 10);
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%.*s", used ? ", " : "",
                                 (int)(so - name), name);
    }
    struct hly_finding *f;
    if (!used) {
        f = hly_find(p->report, HLY_ERROR, "slurm.pmix", folder, "Slurm has no PMIx plug-in");
        hly_advise(f, "srun --mpi=pmix cannot start ranks.",
                   "install it (slurm-wlm-basic-plugins, slurm-pmix), or build Slurm --with-pmix; "
                   "meanwhile halayrun inside salloc");
    } else if (most && *version && most != strtol(version, NULL, 10)) {
        f = hly_find(p->report, HLY_WARNING, "slurm.pmix", folder,
                     "%s: built for PMIx %ld, and libpmix here is %s", list, most, version);
        hly_advise(f, "Different main versions understand each other in part.",
                   "build Slurm's plug-in against libpmix %s, or load the PMIx %ld that it has",
                   version, most);
    } else {
        hly_find(p->report, HLY_GOOD, "slurm.pmix", folder, "%s", list);
    }
    tell_slurm_conf(p);
}

/* ---------------------------------------------------------------- UCX */

/* libuct_NAME.so in ucx/ beside the library. */
static bool transports_of_ucx(const struct hly_probe *p, char *list, size_t bytes)
{
    struct hly_names files;
    Dl_info where;
    char folder[1024] = "";
    size_t used = 0;
    bool ib = false;
    void *handle = dlopen("libucp.so.0", OPEN);
    void *symbol = handle ? dlsym(handle, "ucp_get_version_string") : NULL;
    if (symbol && dladdr(symbol, &where)) {
        char *real = realpath(where.dli_fname, NULL);
        snprintf(folder, sizeof folder, "%.1000s", real ? real : where.dli_fname);
        free(real);
    }
    if (handle)
        dlclose(handle);
    char *slash = strrchr(folder, '/');
    if (slash)
        *slash = '\0';
    *list = '\0';
    hly_list(p, &files, "%s/ucx", folder);
    for (int i = 0; i < files.n && used < bytes; i++) {
        const char *name = files.name[i], *end = strstr(name, ".so");
        if (strncmp(name, "libuct_", 7) || !end || end[3])
            continue;
        ib = ib || !strcmp(name, "libuct_ib.so");
        used +=
            (size_t)snprintf(list + used, bytes - used, " %.*s", (int)(end - name - 7), name + 7);
    }
    return ib;
}

static void tell_ucx(const struct hly_probe *p)
{
    char version[64], list[160];
    struct hly_finding *f;
    const char *tls = getenv("UCX_TLS"), *devices = getenv("UCX_NET_DEVICES");
    if (*p->root)
        return;
    if (!library_says("libucp.so.0", "ucp_get_version_string", version, sizeof version)) {
        f = hly_find(p->report, HLY_NOTE, "ucx", "", "libucp.so.0 is not found");
        hly_advise(f,
                   "HALAY_TRANSPORT=shm+ucx cannot be used; what is chosen without it: halay-info.",
                   "install it (Debian: libucx0)");
        return;
    }
    bool ib = transports_of_ucx(p, list, sizeof list);
    hly_fact(p->report, "UCX", "%s", version);
    if (ib || !hly_has_rdma(p)) {
        hly_find(p->report, HLY_GOOD, "ucx", "", "UCX %s; its modules:%s%s%s%s%s", version,
                 *list ? list : " none", tls ? "; UCX_TLS=" : "", tls ? tls : "",
                 devices ? "; UCX_NET_DEVICES=" : "", devices ? devices : "");
        return;
    }
    f = hly_find(p->report, HLY_WARNING, "ucx", "", "UCX %s has no module for RDMA; it has:%s",
                 version, *list ? list : " none");
    hly_advise(f, "HALAY_TRANSPORT=shm+ucx takes TCP although there is an RDMA device.",
               "build UCX --with-verbs, or install its module (ucx-ib)");
}

/* ---------------------------------------------------------------- our own plug-ins */

/* false: it is missing, which is told. */
static bool tell_plugin(const struct hly_probe *p, const char *name, enum hly_severity severity,
                        const char *why)
{
    char path[2 * HLY_PATH_BYTES], reason[2 * HLY_PATH_BYTES], remedy[128], check[32];
    hly_plugin_path("transport", name, path);
    void *plugin = dlopen(path, OPEN);
    if (plugin) {
        dlclose(plugin);
        return true;
    }
    snprintf(check, sizeof check, "plugin.%s", name);
    hly_plugin_reason(dlerror(), reason, sizeof reason);
    struct hly_finding *f =
        hly_find(p->report, severity, check, "", "the transport's plug-in is missing: %s", reason);
    hly_plugin_remedy(name, path, remedy, sizeof remedy);
    hly_advise(f, why, "%s", remedy);
    return false;
}

static void tell_plugins(const struct hly_probe *p)
{
    const enum hly_severity rdma = hly_has_rdma(p) ? HLY_WARNING : HLY_NOTE;
    if (*p->root)
        return;
    bool shm = tell_plugin(p, "shm", HLY_ERROR, "Ranks of one node cannot reach each other.");
    bool tcp = tell_plugin(p, "tcp", HLY_ERROR, "Nodes without RDMA cannot reach each other.");
    bool verbs = tell_plugin(p, "verbs", rdma, "RDMA is not used, unless by way of UCX.");
    bool ucx = tell_plugin(p, "ucx", HLY_NOTE, "HALAY_TRANSPORT=shm+ucx cannot be used.");
    hly_find(p->report, HLY_GOOD, "plugins", "", "transports:%s%s%s%s", shm ? " shm" : "",
             tcp ? " tcp" : "", verbs ? " verbs" : "", ucx ? " ucx" : "");
}

void hly_probe_software(const struct hly_probe *p)
{
    char version[32];
    tell_pmix(p, version);
    tell_slurm(p, version);
    tell_ucx(p);
    tell_plugins(p);
}
