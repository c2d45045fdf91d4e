/* SPDX-License-Identifier: Apache-2.0 */
/*
 * settings.c - UCX's own settings, and addresses. What the user has set in UCX_* stays.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <glob.h>
#include <ifaddrs.h>
#include <limits.h>
#include <net/if.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucs/debug/debug.h>
#include <unistd.h>

#include "ucx.h"

enum { LINE = 64, GIDS = 64 /* of a port, looked at */ };

/* ------------------------------------------------------------------ UCX */

/*
 * UCX takes over the signals of crashes when it is loaded, before anybody can set anything. They
 * are given back, unless the user has asked for it, or somebody else has taken them since.
 */
void hly_ucx_signals_restore(void)
{
    static const int signals[] = {SIGILL, SIGSEGV, SIGBUS, SIGFPE};
    Dl_info ucs, handler;
    if (getenv("UCX_HANDLE_ERRORS") || getenv("UCX_ERROR_SIGNALS"))
        return;
    if (!dladdr((void *)(uintptr_t)ucs_debug_disable_signal, &ucs))
        return;
    for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++) {
        struct sigaction action;
        if (sigaction(signals[i], NULL, &action) == 0 && action.sa_handler != SIG_DFL &&
            action.sa_handler != SIG_IGN &&
            dladdr((void *)(uintptr_t)action.sa_handler, &handler) &&
            handler.dli_fbase == ucs.dli_fbase)
            ucs_debug_disable_signal(signals[i]);
    }
}

/* The first line of a file; empty, if there is none. */
__attribute__((format(printf, 2, 3))) static const char *line_of(char line[LINE],
                                                                 const char *format, ...)
{
    char path[PATH_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(path, sizeof(path), format, args);
    va_end(args);
    FILE *file = fopen(path, "re");
    line[0] = 0;
    if (file && !fgets(line, LINE, file))
        line[0] = 0;
    if (file)
        fclose(file);
    return line;
}

/*
 * The GID of a port of Soft-RoCE that UCX can use: over IPv4 its datagrams, which connect its
 * queue pairs, never arrive there (0030). -1: there is none.
 */
static int soft_gid(const char *port)
{
    static const char four[] = "0000:0000:0000:0000:0000:ffff:", local[] = "fe80:",
                      none[] = "0000:0000:0000:0000:0000:0000:";
    char line[LINE];
    int best = -1;
    for (int i = 0; i < GIDS; i++) {
        if (strncmp(line_of(line, "%s/gid_attrs/types/%d", port, i), "RoCE v2", 7) != 0)
            continue;
        line_of(line, "%s/gids/%d", port, i);
        if (!line[0] || strncmp(line, four, strlen(four)) == 0 ||
            strncmp(line, none, strlen(none)) == 0)
            continue;
        if (strncmp(line, local, strlen(local)) != 0)
            return i;
        best = best < 0 ? i : best;
    }
    return best;
}

/* The RDMA devices here: InfiniBand, RoCE, Omni-Path, EFA. *gid: which one UCX has to take, where
 * all of them are Soft-RoCE; -1: it knows better. */
static int rdma_here(int *gid)
{
    glob_t all;
    int n = 0, soft = 0;
    *gid = -1;
    if (glob("/sys/class/infiniband/*/ports/1", 0, NULL, &all))
        return 0;
    for (size_t i = 0; i < all.gl_pathc; i++) {
        char line[LINE];
        n++;
        soft += *line_of(line, "%s/../../parent", all.gl_pathv[i]) != 0; /* rxe alone has it */
        if (*gid < 0)
            *gid = soft_gid(all.gl_pathv[i]);
    }
    globfree(&all);
    if (soft < n)
        *gid = -1;
    return n;
}

/*
 * UCX 1.13 tries again for ever, inside one of its calls, to register its buffers: with a limit
 * that they do not fit in it is kept from RDMA, unless the user says what it shall take.
 */
static int may_not_lock(const hly_meet_t *meet)
{
    const uint64_t limit = hly_locked_limit();
    if (limit >= HLY_UCX_LOCKED || getenv("UCX_TLS") || getenv("UCX_NET_DEVICES") ||
        access("/dev/infiniband", F_OK))
        return 0;
    hly_meet_log(meet, 1,
                 "this rank uses TCP, not RDMA: the limit on locked memory (ulimit -l) is %llu "
                 "KiB, and UCX may need %d KiB: raise it, also for the batch system's daemons "
                 "(LimitMEMLOCK=infinity); UCX_TLS=all uses RDMA all the same",
                 (unsigned long long)limit >> 10, HLY_UCX_LOCKED >> 10);
    return 1;
}

/* The interface with this address, if UCX will find it; else name is empty. */
static void interface_find(const halay_address_t *where, char name[IF_NAMESIZE])
{
    char folder[IF_NAMESIZE + 32];
    struct ifaddrs *all = NULL;
    name[0] = 0;
    if (getifaddrs(&all))
        return;
    const struct ifaddrs *one = hly_meet_where_interface(all, where);
    if (one)
        snprintf(name, IF_NAMESIZE, "%.*s", (int)strcspn(one->ifa_name, ":"), one->ifa_name);
    freeifaddrs(all);
    snprintf(folder, sizeof(folder), "/sys/class/net/%s", name);
    if (access(folder, F_OK))
        name[0] = 0;
}

/* What stands in the file; 0: no number above 0. What is not known is -1 there, or an error. */
static int number_in(const char *file)
{
    char text[LINE];
    long number = strtol(line_of(text, "%s", file), NULL, 10);
    return number > 0 && number < INT_MAX ? (int)number : 0;
}

/* A wish, where the user has not set it. prefix: of the variable, after "UCX_". */
static void wish(ucp_config_t *config, const char *prefix, const char *name, const char *value)
{
    unsigned major, minor, release;
    char variable[64];
    snprintf(variable, sizeof(variable), "UCX_%s%s", prefix, name);
    if (getenv(variable))
        return;
    ucp_get_version(&major, &minor, &release);
    /* Before 1.17 UCX knew a transport's settings by their bare names, and ignored others. */
    if (major > 1 || minor >= 17)
        name = variable + 4;
    ucp_config_modify(config, name, value);
}

/*
 * What a link carries in 100 us, as a power of two, 128 KiB at least. A kernel that takes more from
 * us lets data leave the cache before they are sent (0007). 0: the speed is not known, or the
 * kernel would not give so much: then its own tuning is better.
 */
static int send_room(const char *interface)
{
    char file[IF_NAMESIZE + 32];
    int most = number_in("/proc/sys/net/core/wmem_max"), room = 128 << 10;
    snprintf(file, sizeof(file), "/sys/class/net/%s/speed", interface);
    int mbit = number_in(file);
    if (!mbit)
        return 0;
    while (room <= most / 2 && room / 100 < mbit / 8)
        room *= 2;
    return room <= most && room / 100 >= mbit / 8 ? room : 0;
}

/*
 * Where TCP is all there is, UCX is kept to the interface that the bootstrap has found: it would
 * also try those that lead nowhere (bridges of containers with the same address on each host).
 */
ucs_status_t hly_ucx_settings_read(const hly_meet_t *meet, ucp_config_t **config, int *rdma)
{
    int gid;
    const int has_rdma = rdma_here(&gid);
    *rdma = has_rdma && !may_not_lock(meet);
    char interface[IF_NAMESIZE], number[16];
    ucs_status_t status = ucp_config_read(NULL, NULL, config);
    if (status != UCS_OK)
        return status;
    wish(*config, "", "HANDLE_ERRORS", "none");
    wish(*config, "", "LOG_LEVEL", "fatal"); /* errors come back as a status, and are told by us */
    if (!*rdma || (!getenv("UCX_TLS") && !getenv("UCX_NET_DEVICES"))) { /* else UCX would warn */
        wish(*config, "TCP_", "RX_SEG_SIZE", "640K");
        wish(*config, "TCP_", "CONN_NB", "y"); /* a connect that blocks is none for poll */
    }
    if (gid >= 0) {
        snprintf(number, sizeof(number), "%d", gid);
        wish(*config, "IB_", "GID_INDEX", number);
    }
    if (*rdma)
        return UCS_OK;
    if (has_rdma)
        wish(*config, "", "TLS", "tcp");
    wish(*config, "TCP_", "SENDV_THRESH", "8K");    /* a short message by send(2) */
    wish(*config, "", "KEEPALIVE_INTERVAL", "inf"); /* the link notices */
    wish(*config, "", "RNDV_THRESH", "600K");       /* below it one segment holds a landing */
    interface_find(&meet->where, interface);
    if (!interface[0])
        return UCS_OK;
    wish(*config, "", "NET_DEVICES", interface);
    int bytes = send_room(interface);
    if (bytes) {
        snprintf(number, sizeof(number), "%d", bytes);
        wish(*config, "TCP_", "SNDBUF", number);
    }
    return UCS_OK;
}
