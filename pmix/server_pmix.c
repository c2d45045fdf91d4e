/* SPDX-License-Identifier: Apache-2.0 */
/*
 * server_pmix.c - the PMIx server that lives inside halayrun: all ranks on this node, nothing else.
 *
 * Callbacks run on libpmix's thread. They record what they were told and write an eventfd; they
 * make no PMIx call and never wait. libpmix allows one server a process, so `running` is
 * process-wide.
 */
#define _GNU_SOURCE
#include <assert.h>
#include <dlfcn.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <pmix.h>
#include <pmix_server.h>
#include <pthread.h>
#include <pwd.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include <halay/launch.h>

#include "../boot/common/claim.h"

enum { RANKS_MAX = 1024, STOP_S = 5, NODE_BYTES = 48 };
enum { NONE = 0, ABORTS, ABORTED, TOLD };

struct client {
    halay_launch_t *server;
    _Atomic int state;
};

struct halay_launch {
    int nranks, event_fd;
    struct hly_boot_log log;
    pmix_proc_t job;
    /* The thread that moves it from NONE writes `abort`, and then moves it on. */
    _Atomic int aborted;
    halay_launch_abort_t abort;
    struct client clients[];
};

static _Atomic int running;

/* ------------------------------------------------------------------ on libpmix's thread */

static pmix_status_t on_connected(const pmix_proc_t *proc, void *object, pmix_info_t info[],
                                  size_t ninfo, pmix_op_cbfunc_t done, void *arg)
{
    struct client *client = object;
    (void)proc, (void)info, (void)ninfo, (void)done, (void)arg;
    if (client)
        atomic_store(&client->state, HALAY_LAUNCH_CONNECTED);
    return PMIX_OPERATION_SUCCEEDED;
}

static pmix_status_t on_finalized(const pmix_proc_t *proc, void *object, pmix_op_cbfunc_t done,
                                  void *arg)
{
    struct client *client = object;
    (void)proc, (void)done, (void)arg;
    if (client)
        atomic_store(&client->state, HALAY_LAUNCH_FINALIZED);
    return PMIX_OPERATION_SUCCEEDED;
}

static pmix_status_t on_abort(const pmix_proc_t *proc, void *object, int status, const char text[],
                              pmix_proc_t procs[], size_t nprocs, pmix_op_cbfunc_t done, void *arg)
{
    struct client *client = object;
    uint64_t one = 1;
    int none = NONE;
    (void)procs, (void)nprocs, (void)done, (void)arg;
    if (!client)
        return PMIX_ERR_NOT_SUPPORTED;
    halay_launch_t *server = client->server;
    if (atomic_compare_exchange_strong(&server->aborted, &none, ABORTS)) {
        server->abort.rank = (int)proc->rank;
        server->abort.status = status;
        snprintf(server->abort.text, sizeof server->abort.text, "%s", text ? text : "");
        atomic_store(&server->aborted, ABORTED);
    }
    if (write(server->event_fd, &one, sizeof one) != sizeof one)
        return PMIX_ERROR;
    return PMIX_OPERATION_SUCCEEDED;
}

/* All participants are here, so their data is all there is. */
static pmix_status_t on_fence(const pmix_proc_t procs[], size_t nprocs, const pmix_info_t info[],
                              size_t ninfo, char *data, size_t bytes, pmix_modex_cbfunc_t done,
                              void *arg)
{
    (void)procs, (void)nprocs, (void)info, (void)ninfo;
    if (done)
        done(PMIX_SUCCESS, data, bytes, arg, NULL, NULL);
    return PMIX_SUCCESS;
}

/* There is no other server to ask. */
static pmix_status_t on_modex(const pmix_proc_t *proc, const pmix_info_t info[], size_t ninfo,
                              pmix_modex_cbfunc_t done, void *arg)
{
    (void)proc, (void)info, (void)ninfo, (void)done, (void)arg;
    return PMIX_ERR_NOT_FOUND;
}

static pmix_server_module_t module = {
    .client_connected2 = on_connected,
    .client_finalized = on_finalized,
    .abort = on_abort,
    .fence_nb = on_fence,
    .direct_modex = on_modex,
};

/* ------------------------------------------------------------------ on the launcher's thread */

/* "0,1,...,n-1", to be freed. */
static char *all_ranks(int nranks)
{
    size_t room = (size_t)nranks * 5 + 1, n = 0;
    char *text = malloc(room);
    for (int i = 0; text && i < nranks; i++)
        n += (size_t)snprintf(text + n, room - n, i ? ",%d" : "%d", i);
    assert(!text || n < room);
    return text;
}

static void drop_warning(int severity, const char *text)
{
    (void)severity, (void)text;
}

/*
 * libpmix closes the connection of a rank that ends before its event library forgets it. That then
 * warns on standard error ("Epoll MOD(1) on fd 20 failed"), beside our message of why the job ends.
 */
static void quiet_events(void)
{
    Dl_info where;
    void (*set_log)(void (*)(int, const char *)) = NULL;
    void *start = (void *)(uintptr_t)PMIx_server_init;
    if (!dladdr(start, &where))
        return;
    void *library = dlopen(where.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    if (!library)
        return;
    *(void **)&set_log = dlsym(library, "event_set_log_callback"); /* or of what it needs */
    if (set_log)
        set_log(drop_warning);
    dlclose(library);
}

/* libpmix looks into the folder that getpwuid() names where HOME is not set, and ends the process
 * if this user has no such entry (a container's, for example). */
static void need_home(void)
{
    if (!getenv("HOME") && !getpwuid(geteuid()))
        setenv("HOME", "/", 0);
}

/* PMIx_generate_regex() writes beyond its 50 bytes where a name is longer. */
static const char *node_name(const halay_launch_params_t *params, char host[NODE_BYTES])
{
    snprintf(host, NODE_BYTES, "%s", params->host);
    return host;
}

/*
 * Data is kept in memory, not in a file shared with the ranks: it is small, and a rank that is
 * killed while it holds a lock in such a file would take the others along. All ranks are this
 * user's, so the user's id is proof enough. A user's own setting wins.
 */
static pmix_status_t init_server(const halay_launch_params_t *params)
{
    pmix_info_t info[3];
    char host[NODE_BYTES];
    quiet_events();
    need_home();
    setenv("PMIX_MCA_gds", "hash", 0);
    setenv("PMIX_MCA_psec", "native", 0);
    memset(info, 0, sizeof info);
    PMIX_INFO_LOAD(&info[0], PMIX_SERVER_TMPDIR, params->session_dir, PMIX_STRING);
    PMIX_INFO_LOAD(&info[1], PMIX_SYSTEM_TMPDIR, params->session_dir, PMIX_STRING);
    PMIX_INFO_LOAD(&info[2], PMIX_HOSTNAME, node_name(params, host), PMIX_STRING);
    pmix_status_t status = PMIx_server_init(&module, info, 3);
    for (int i = 0; i < 3; i++)
        PMIX_INFO_DESTRUCT(&info[i]);
    return status;
}

static pmix_status_t register_job(halay_launch_t *server, const halay_launch_params_t *params)
{
    pmix_info_t info[5];
    uint32_t n = (uint32_t)params->nranks;
    char host[NODE_BYTES], *ranks = all_ranks(params->nranks), *nodes = NULL, *map = NULL;
    pmix_status_t status =
        ranks ? PMIx_generate_regex(node_name(params, host), &nodes) : PMIX_ERR_NOMEM;
    if (status == PMIX_SUCCESS)
        status = PMIx_generate_ppn(ranks, &map);
    if (status == PMIX_SUCCESS) {
        memset(info, 0, sizeof info);
        PMIX_INFO_LOAD(&info[0], PMIX_JOB_SIZE, &n, PMIX_UINT32);
        PMIX_INFO_LOAD(&info[1], PMIX_UNIV_SIZE, &n, PMIX_UINT32);
        PMIX_INFO_LOAD(&info[2], PMIX_NODE_SIZE, &n, PMIX_UINT32);
        PMIX_INFO_LOAD(&info[3], PMIX_NODE_MAP, nodes, PMIX_REGEX);
        PMIX_INFO_LOAD(&info[4], PMIX_PROC_MAP, map, PMIX_REGEX);
        status =
            PMIx_server_register_nspace(server->job.nspace, params->nranks, info, 5, NULL, NULL);
        for (int i = 0; i < 5; i++)
            PMIX_INFO_DESTRUCT(&info[i]);
    }
    free(map);
    free(nodes);
    free(ranks);
    for (int i = 0;
         i < params->nranks && (status == PMIX_SUCCESS || status == PMIX_OPERATION_SUCCEEDED);
         i++) {
        pmix_proc_t proc;
        PMIX_LOAD_PROCID(&proc, server->job.nspace, (pmix_rank_t)i);
        status = PMIx_server_register_client(&proc, geteuid(), getegid(), &server->clients[i], NULL,
                                             NULL);
    }
    return status == PMIX_OPERATION_SUCCEEDED ? PMIX_SUCCESS : status;
}

static halay_launch_t *server_create(const halay_launch_params_t *params)
{
    size_t bytes = sizeof(halay_launch_t) + (size_t)params->nranks * sizeof(struct client);
    halay_launch_t *server = calloc(1, bytes);
    if (!server)
        return NULL;
    server->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (server->event_fd < 0) {
        free(server);
        return NULL;
    }
    server->nranks = params->nranks;
    server->log = (struct hly_boot_log){params->log, params->log_arg};
    PMIX_LOAD_PROCID(&server->job, params->job, PMIX_RANK_WILDCARD);
    for (int i = 0; i < params->nranks; i++)
        server->clients[i].server = server;
    return server;
}

static void server_destroy(halay_launch_t *server)
{
    close(server->event_fd);
    free(server);
}

/* Without one libpmix prints a page of its own, and gives up. */
static bool has_address(void)
{
    struct ifaddrs *all;
    bool found = false;
    if (getifaddrs(&all))
        return true;
    for (const struct ifaddrs *one = all; one && !found; one = one->ifa_next)
        found = (one->ifa_flags & IFF_UP) && one->ifa_addr && one->ifa_addr->sa_family == AF_INET;
    freeifaddrs(all);
    return found;
}

static int launch_start(const halay_launch_params_t *params, halay_launch_t **out)
{
    if (!params || params->size < sizeof *params || params->nranks < 1 ||
        params->nranks > RANKS_MAX || !params->job || strlen(params->job) > 200)
        return HALAY_EINVAL;
    const struct hly_boot_log log = {params->log, params->log_arg};
    int idle = 0;
    if (!has_address())
        return hly_boot_error(
            &log, HALAY_EUNSUPPORTED,
            "no PMIx server for programs that need one (MPI): no network interface of this machine "
            "has an IPv4 address, loopback neither (ip link set lo up)");
    if (!atomic_compare_exchange_strong(&running, &idle, 1))
        return hly_boot_error(&log, HALAY_ESTATE, "a PMIx server runs in this process already");
    halay_launch_t *server = server_create(params);
    if (!server) {
        atomic_store(&running, 0);
        return hly_boot_errno(&log, errno, "cannot make the PMIx server");
    }
    pmix_status_t status = init_server(params);
    if (status != PMIX_SUCCESS) {
        hly_boot_say(&log, 0, "cannot start the PMIx server: PMIx_server_init says %s",
                     PMIx_Error_string(status));
        goto undo_create;
    }
    status = register_job(server, params);
    if (status != PMIX_SUCCESS) {
        hly_boot_say(&log, 0, "the PMIx server does not take a job of %d ranks: %s", params->nranks,
                     PMIx_Error_string(status));
        goto undo_init;
    }
    *out = server;
    return HALAY_OK;

undo_init:
    PMIx_server_finalize();
undo_create:
    server_destroy(server);
    atomic_store(&running, 0);
    return HALAY_EBOOT;
}

static int launch_env(halay_launch_t *server, int rank, char ***env)
{
    pmix_proc_t proc;
    assert(rank >= 0 && rank < server->nranks);
    PMIX_LOAD_PROCID(&proc, server->job.nspace, (pmix_rank_t)rank);
    return PMIx_server_setup_fork(&proc, env) == PMIX_SUCCESS ? HALAY_OK : HALAY_EBOOT;
}

static int launch_state(const halay_launch_t *server, int rank)
{
    assert(rank >= 0 && rank < server->nranks);
    return atomic_load(&server->clients[rank].state);
}

static int launch_descriptor(const halay_launch_t *server)
{
    return server->event_fd;
}

static int launch_aborted(halay_launch_t *server, halay_launch_abort_t *abort)
{
    uint64_t count;
    int there = ABORTED;
    (void)!read(server->event_fd, &count, sizeof count);
    if (!atomic_compare_exchange_strong(&server->aborted, &there, TOLD))
        return 0;
    const size_t size = abort->size;
    assert(size >= sizeof *abort);
    *abort = server->abort;
    abort->size = size;
    return 1;
}

static void *finalize(void *none)
{
    PMIx_server_finalize();
    return none;
}

/* libpmix may wait for a connection that it has lost, and for ever. It is left running then: this
 * process ends soon, and until then no other server can run here. */
static void launch_stop(halay_launch_t *server)
{
    pthread_t thread;
    struct timespec until;
    if (!server)
        return;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += STOP_S;
    if (pthread_create(&thread, NULL, finalize, NULL)) {
        PMIx_server_finalize();
    } else if (pthread_timedjoin_np(thread, NULL, &until)) {
        hly_boot_say(&server->log, 1, "the PMIx server does not end within %d s: left behind",
                     STOP_S);
        pthread_detach(thread);
        return;
    }
    server_destroy(server);
    atomic_store(&running, 0);
}

/* PMIx says itself when a client connects and ends. */
HALAY_API extern const halay_launch_ops_t halay_launch_v3_pmix;
const halay_launch_ops_t halay_launch_v3_pmix = {
    .size = sizeof(halay_launch_ops_t),
    .name = "pmix",
    .start = launch_start,
    .env = launch_env,
    .state = launch_state,
    .descriptor = launch_descriptor,
    .aborted = launch_aborted,
    .stop = launch_stop,
};
