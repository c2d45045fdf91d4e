/* SPDX-License-Identifier: Apache-2.0 */
/*
 * job.c - the life of the job: MPI_Init, MPI_Finalize, MPI_Abort, sessions. MPI has one job in a
 * process, so this has one, too: hly_mpi_job. The world and each session use the same context of
 * Halay, which ends with the last of them.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#include <halay/local.h>

#include "comm.h"
#include "message.h"
#include "window.h"

struct hly_mpi_job hly_mpi_job;

/* Guards the making and the ending of the job. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int users; /* the world, and sessions that are open */
static pthread_t main_thread;
static pid_t process; /* not a child's, which fork() has made */
static bool sessions; /* there was one: it may have MPI_THREAD_MULTIPLE */
static bool serves;   /* a thread of this library sends messages; atomic */

_Thread_local const char *hly_mpi_called;

static const char *called(void)
{
    return hly_mpi_called;
}

int hly_mpi_check_job(const char *function)
{
    if (hly_mpi_job.context)
        return MPI_SUCCESS;
    return hly_mpi_fail(MPI_ERR_OTHER, "%s: it was called %s", function,
                        hly_mpi_job.finalized ? "after MPI_Finalize" : "before MPI_Init");
}

/* ---------------------------------------------------------------- the context */

static void end_session(void *object)
{
    struct hly_mpi_session *session = object;
    hly_mpi_drop(session->errhandler);
    hly_mpi_drop(session->info);
    hly_mpi_buffer_free(session->buffer);
}

static int make_predefined(void)
{
    static bool made; /* they live as long as the process */
    int rc = MPI_SUCCESS;
    if (made)
        return MPI_SUCCESS;
    hly_mpi_groups_open();
    hly_mpi_comms_open();
    hly_mpi_messages_open();
    hly_mpi_object_ends(HLY_MPI_SESSION, end_session);
    rc = hly_mpi_types_open();
    if (!rc)
        rc = hly_mpi_ops_open();
    made = !rc;
    return rc;
}

static int open_context(const char *function)
{
    char why[1024] = "";
    halay_config_t config = HALAY_CONFIG_INIT;
    halay_topology_t topology = {.size = sizeof(topology)};
    halay_comm_t *all;
    config.error = why;
    config.error_bytes = sizeof(why);
    int rc = halay_init_shared(&config, &hly_mpi_job.context);
    if (rc)
        return hly_mpi_fail(MPI_ERR_OTHER, "%s: %s", function, why[0] ? why : halay_strerror(rc));
    rc = halay_comm_world(hly_mpi_job.context, &all);
    if (!rc) /* the program may use the job's own by another library */
        rc = halay_comm_dup(all, &hly_mpi_job.base);
    if (!rc && !getenv("HALAY_DEADLINE")) /* a correct program of MPI may compute for days */
        rc = halay_comm_set_deadline(hly_mpi_job.base, UINT64_MAX);
    if (!rc)
        rc = halay_context_topology(hly_mpi_job.context, &topology);
    hly_mpi_job.rank = topology.rank;
    hly_mpi_job.size = topology.nranks;
    if (!rc)
        return MPI_SUCCESS;
    hly_mpi_ops_leave();
    halay_finalize(hly_mpi_job.context);
    hly_mpi_job.context = NULL;
    return hly_mpi_result(rc, NULL, function);
}

/* What notices call a wait; and whether calls come one at a time. */
static void tell_calls(void)
{
    const bool multiple = sessions || __atomic_load_n(&serves, __ATOMIC_ACQUIRE) ||
                          hly_mpi_job.thread_level == MPI_THREAD_MULTIPLE;
    halay_local_on_name(hly_mpi_job.context, called, !multiple);
}

void hly_mpi_job_serves(bool does)
{
    __atomic_store_n(&serves, does, __ATOMIC_RELEASE);
    if (hly_mpi_job.context)
        tell_calls();
}

/* With the lock. */
static int use_job(const char *function)
{
    if (!users) {
        int rc = open_context(function);
        if (!rc)
            rc = make_predefined();
        if (rc)
            return rc;
    }
    users++;
    return MPI_SUCCESS;
}

/* With the lock. All ranks have to come, since the others may wait for what this one still sends;
 * but not if they have `failed` to meet already. */
static int leave_job(const char *function, int failed)
{
    if (--users)
        return failed;
    if (!failed) {
        hly_mpi_buffers_leave();
        hly_mpi_requests_leave();
    }
    int rc = failed
                 ? failed
                 : hly_mpi_result_at(halay_barrier(hly_mpi_job.base), hly_mpi_job.base, function);
    hly_mpi_windows_leave();
    halay_comm_free(hly_mpi_job.base);
    hly_mpi_job.base = NULL;
    hly_mpi_ops_leave();
    const int ended = halay_finalize(hly_mpi_job.context);
    hly_mpi_job.context = NULL;
    return rc ? rc : hly_mpi_result(ended, NULL, function);
}

/* ---------------------------------------------------------------- the world */

static int make_world(const char *function)
{
    const int n = hly_mpi_job.size;
    int *ranks = malloc((size_t)n * sizeof(*ranks)), rc = MPI_SUCCESS;
    halay_comm_t *world = NULL, *self = NULL;
    if (!ranks)
        return hly_mpi_fail(MPI_ERR_NO_MEM, "%s: no memory for the list of %d ranks", function, n);
    for (int i = 0; i < n; i++)
        ranks[i] = i;
    int code = halay_comm_dup(hly_mpi_job.base, &world);
    if (!code)
        code = halay_comm_create_group(hly_mpi_job.base, &hly_mpi_job.rank, 1, HLY_MPI_TAG_SELF,
                                       &self);
    if (code)
        rc = hly_mpi_result(code, NULL, function);
    if (!rc)
        rc = hly_mpi_comm_make(function, world, hly_mpi_group_of(ranks, n), NULL,
                               &hly_mpi_job.world);
    if (!rc)
        rc = hly_mpi_comm_make(function, self, hly_mpi_group_of(&hly_mpi_job.rank, 1), NULL,
                               &hly_mpi_job.self);
    free(ranks);
    if (rc)
        return rc;
    snprintf(hly_mpi_job.world->name, sizeof(hly_mpi_job.world->name), "MPI_COMM_WORLD");
    snprintf(hly_mpi_job.self->name, sizeof(hly_mpi_job.self->name), "MPI_COMM_SELF");
    hly_mpi_predefine(HLY_MPI_COMM, 0x101, hly_mpi_job.world);
    hly_mpi_predefine(HLY_MPI_COMM, 0x102, hly_mpi_job.self);
    return MPI_SUCCESS;
}

static int init(const char *function, int required, int *provided)
{
    static const int levels[] = {MPI_THREAD_SINGLE, MPI_THREAD_FUNNELED, MPI_THREAD_SERIALIZED,
                                 MPI_THREAD_MULTIPLE};
    int level = 0, rc = MPI_SUCCESS;
    while (level < 3 && levels[level] < required)
        level++;
    pthread_mutex_lock(&lock);
    if (hly_mpi_job.initialized) {
        rc = hly_mpi_fail(MPI_ERR_OTHER, "%s: MPI was initialized %s", function,
                          hly_mpi_job.finalized ? "and finalized before: a process can do so once"
                                                : "before: a program calls it once");
        goto unlock;
    }
    rc = use_job(function);
    if (rc)
        goto unlock;
    rc = make_world(function);
    if (rc) {
        leave_job(function, MPI_SUCCESS);
        goto unlock;
    }
    main_thread = pthread_self();
    process = getpid();
    hly_mpi_job.thread_level = levels[level];
    hly_mpi_job.initialized = 1;
    tell_calls();
    if (provided)
        *provided = levels[level];
unlock:
    pthread_mutex_unlock(&lock);
    return rc;
}

int hly_mpi_init(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    return init("MPI_Init", MPI_THREAD_SINGLE, NULL);
}

int hly_mpi_init_thread(int *argc, char ***argv, int required, int *provided)
{
    (void)argc, (void)argv;
    return init("MPI_Init_thread", required, provided);
}

int hly_mpi_finalize(void)
{
    int rc = hly_mpi_job.initialized && !hly_mpi_job.finalized
                 ? MPI_SUCCESS
                 : hly_mpi_fail(MPI_ERR_OTHER, "MPI_Finalize: it was called %s",
                                hly_mpi_job.finalized ? "before" : "before MPI_Init");
    if (rc)
        return rc;
    /* The delete functions of MPI_COMM_SELF's attributes may still call MPI. */
    rc = hly_mpi_attributes_free(HLY_MPI_COMM, hly_mpi_job.self, &hly_mpi_job.self->attributes);
    const int world =
        hly_mpi_attributes_free(HLY_MPI_COMM, hly_mpi_job.world, &hly_mpi_job.world->attributes);
    hly_mpi_buffer_free(hly_mpi_job.self->buffer);
    hly_mpi_buffer_free(hly_mpi_job.world->buffer);
    hly_mpi_job.self->buffer = hly_mpi_job.world->buffer = NULL;
    hly_mpi_buffers_leave();
    hly_mpi_requests_leave();
    const int met =
        hly_mpi_result(halay_barrier(hly_mpi_job.world->halay), hly_mpi_job.world, "MPI_Finalize");
    if (!met)
        hly_mpi_left_tell();
    rc = rc ? rc : world;
    pthread_mutex_lock(&lock);
    hly_mpi_predefine(HLY_MPI_COMM, 0x101, NULL);
    hly_mpi_predefine(HLY_MPI_COMM, 0x102, NULL);
    hly_mpi_comm_close(hly_mpi_job.self);
    hly_mpi_comm_close(hly_mpi_job.world);
    hly_mpi_job.self = hly_mpi_job.world = NULL;
    hly_mpi_job.finalized = 1;
    const int left = leave_job("MPI_Finalize", met);
    pthread_mutex_unlock(&lock);
    return rc ? rc : left;
}

int hly_mpi_initialized(int *flag)
{
    *flag = hly_mpi_job.initialized;
    return MPI_SUCCESS;
}

int hly_mpi_finalized(int *flag)
{
    *flag = hly_mpi_job.finalized;
    return MPI_SUCCESS;
}

int hly_mpi_is_thread_main(int *flag)
{
    const int rc = hly_mpi_check_job("MPI_Is_thread_main");
    if (!rc)
        *flag = hly_mpi_job.initialized && pthread_equal(main_thread, pthread_self()) ? 1 : 0;
    return rc;
}

int hly_mpi_query_thread(int *provided)
{
    const int rc = hly_mpi_check_job("MPI_Query_thread");
    if (!rc)
        *provided = hly_mpi_job.thread_level;
    return rc;
}

/* The launcher ends the other ranks when one has ended with an error. */
void hly_mpi_job_end(int code)
{
    const struct timespec pause = {.tv_nsec = 500000000};
    fflush(NULL);
    /* The launcher reports the first rank that ends: one that has only seen another's end waits. */
    if (code == MPI_ERR_PROC_ABORTED)
        nanosleep(&pause, NULL);
    _exit(code & 0xff ? code & 0xff : 1);
}

int hly_mpi_abort(struct hly_mpi_comm *comm, int errorcode)
{
    const char *name = comm && comm->name[0] ? comm->name : "a communicator";
    fprintf(stderr, "MPI_Abort: rank %d has ended the job, with code %d, on %s\n", hly_mpi_job.rank,
            errorcode, name);
    hly_mpi_job_end(errorcode);
}

/* A program that returns from main() without MPI_Finalize may leave others to wait. */
__attribute__((destructor)) static void end_process(void)
{
    if (hly_mpi_job.initialized && !hly_mpi_job.finalized && process == getpid())
        fprintf(stderr,
                "rank %d: the program has ended without MPI_Finalize: call it on every rank\n",
                hly_mpi_job.rank);
}

int hly_mpi_get_processor_name(char *name, int *resultlen)
{
    char host[MPI_MAX_PROCESSOR_NAME] = "";
    const int rc = hly_mpi_check_job("MPI_Get_processor_name");
    if (rc)
        return rc;
    if (gethostname(host, sizeof(host) - 1))
        return hly_mpi_fail(MPI_ERR_OTHER, "MPI_Get_processor_name: the host has no name");
    *resultlen = (int)strlen(host);
    memcpy(name, host, (size_t)*resultlen + 1);
    return MPI_SUCCESS;
}

/* ---------------------------------------------------------------- sessions */

static const char *const psets[] = {"mpi://WORLD", "mpi://SELF"};
#define NPSETS ((int)(sizeof(psets) / sizeof(psets[0])))

int hly_mpi_check_session(const char *function, const struct hly_mpi_session *session)
{
    if (session)
        return hly_mpi_check_job(function);
    return hly_mpi_fail(MPI_ERR_SESSION, "%s: the session is MPI_SESSION_NULL, or was finalized",
                        function);
}

int hly_mpi_session_init(struct hly_mpi_info *info, struct hly_mpi_errhandler *errhandler,
                         struct hly_mpi_session **session)
{
    pthread_mutex_lock(&lock);
    int rc = use_job("MPI_Session_init");
    if (!rc && !hly_mpi_job.initialized)
        hly_mpi_job.thread_level = MPI_THREAD_MULTIPLE;
    if (!rc) {
        sessions = true;
        tell_calls();
    }
    pthread_mutex_unlock(&lock);
    if (rc)
        return rc;
    struct hly_mpi_session *made = hly_mpi_object_new(HLY_MPI_SESSION, sizeof(*made));
    if (made && errhandler) {
        hly_mpi_object_hold(errhandler);
        made->errhandler = errhandler;
    }
    if (made && info)
        rc = hly_mpi_info_dup(info, &made->info);
    if (made && !rc) {
        *session = made;
        return MPI_SUCCESS;
    }
    hly_mpi_drop(made);
    pthread_mutex_lock(&lock);
    leave_job("MPI_Session_init", MPI_SUCCESS);
    pthread_mutex_unlock(&lock);
    return rc ? rc : hly_mpi_fail(MPI_ERR_NO_MEM, "MPI_Session_init: no memory for the session");
}

int hly_mpi_session_finalize(struct hly_mpi_session **session)
{
    int rc = hly_mpi_check_session("MPI_Session_finalize", *session);
    if (rc)
        return rc;
    hly_mpi_object_release(*session);
    *session = NULL;
    pthread_mutex_lock(&lock);
    rc = leave_job("MPI_Session_finalize", MPI_SUCCESS);
    pthread_mutex_unlock(&lock);
    return rc;
}

int hly_mpi_session_get_info(struct hly_mpi_session *session, struct hly_mpi_info **info_used)
{
    int rc = hly_mpi_check_session("MPI_Session_get_info", session);
    if (!rc)
        rc = session->info ? hly_mpi_info_dup(session->info, info_used)
                           : hly_mpi_info_create(info_used);
    return rc ? rc : hly_mpi_info_set(*info_used, "thread_level", "MPI_THREAD_MULTIPLE");
}

int hly_mpi_session_get_num_psets(struct hly_mpi_session *session, struct hly_mpi_info *info,
                                  int *npset_names)
{
    (void)info;
    const int rc = hly_mpi_check_session("MPI_Session_get_num_psets", session);
    if (!rc)
        *npset_names = NPSETS;
    return rc;
}

int hly_mpi_session_get_nth_pset(struct hly_mpi_session *session, struct hly_mpi_info *info, int n,
                                 int *pset_len, char *pset_name)
{
    (void)info;
    const int rc = hly_mpi_check_session("MPI_Session_get_nth_pset", session);
    if (rc)
        return rc;
    if (n < 0 || n >= NPSETS)
        return hly_mpi_fail(MPI_ERR_ARG, "MPI_Session_get_nth_pset: there are %d sets, and none %d",
                            NPSETS, n);
    const int needed = (int)strlen(psets[n]) + 1;
    if (*pset_len > 0)
        snprintf(pset_name, (size_t)*pset_len, "%s", psets[n]);
    *pset_len = needed;
    return MPI_SUCCESS;
}

/* 0 or 1: the process set of this name; -1: there is none. */
static int find_pset(const char *name)
{
    for (int i = 0; name && i < NPSETS; i++)
        if (!strcasecmp(name, psets[i]))
            return i;
    return -1;
}

int hly_mpi_session_get_pset_info(struct hly_mpi_session *session, const char *pset_name,
                                  struct hly_mpi_info **info)
{
    char size[16];
    int rc = hly_mpi_check_session("MPI_Session_get_pset_info", session);
    const int which = find_pset(pset_name);
    if (rc)
        return rc;
    if (which < 0)
        return hly_mpi_fail(MPI_ERR_ARG, "MPI_Session_get_pset_info: there is no such process set");
    rc = hly_mpi_info_create(info);
    snprintf(size, sizeof(size), "%d", which ? 1 : hly_mpi_job.size);
    return rc ? rc : hly_mpi_info_set(*info, "mpi_size", size);
}

int hly_mpi_group_from_session_pset(struct hly_mpi_session *session, const char *pset_name,
                                    struct hly_mpi_group **newgroup)
{
    const int rc = hly_mpi_check_session("MPI_Group_from_session_pset", session);
    const int which = find_pset(pset_name), n = which ? 1 : hly_mpi_job.size;
    if (rc)
        return rc;
    if (which < 0)
        return hly_mpi_fail(MPI_ERR_ARG, "MPI_Group_from_session_pset: there is no such set: use "
                                         "\"mpi://WORLD\" or \"mpi://SELF\"");
    int *ranks = malloc((size_t)n * sizeof(*ranks));
    for (int i = 0; ranks && i < n; i++)
        ranks[i] = which ? hly_mpi_job.rank : i;
    struct hly_mpi_group *made = ranks ? hly_mpi_group_of(ranks, n) : NULL;
    free(ranks);
    if (!made)
        return hly_mpi_fail(MPI_ERR_NO_MEM, "MPI_Group_from_session_pset: no memory for %d ranks",
                            n);
    made->session = session->head.handle;
    *newgroup = made;
    return MPI_SUCCESS;
}
