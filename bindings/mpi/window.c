/* SPDX-License-Identifier: Apache-2.0 */
/*
 * window.c - what a window is: how it is made and freed, its memory, its name, info and group.
 *
 * The ranks exchange what each of them has. If one cannot make the window, all of them say so.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "info.h"
#include "window.h"

#define ALIGNMENT 64

int hly_mpi_check_win(const char *function, const struct hly_mpi_win *win)
{
    if (win)
        return MPI_SUCCESS;
    const int rc = hly_mpi_check_job(function);
    return rc ? rc
              : hly_mpi_fail(MPI_ERR_WIN, "%s: the window is MPI_WIN_NULL, or was freed", function);
}

/* ---------------------------------------------------------------- info */

static const struct {
    const char *key, *usual;
} hints[] = {{"no_locks", "false"},
             {"accumulate_ordering", "rar,raw,war,waw"},
             {"accumulate_ops", "same_op_no_op"},
             {"same_size", "false"},
             {"same_disp_unit", "false"},
             {"alloc_shared_noncontig", "false"}};
#define NHINTS (sizeof(hints) / sizeof(hints[0]))

/* Is this value the one of the key? */
static bool says(struct hly_mpi_info *info, const char *key, const char *wanted)
{
    char value[64] = "";
    int length = sizeof(value), flag = 0;
    return info && !hly_mpi_info_get_string(info, key, &length, value, &flag) && flag &&
           !strcmp(value, wanted);
}

/* Keeps the hints that are known. Only alloc_shared_noncontig changes what the
 * library does. */
static int keep_hints(struct hly_mpi_win *win, struct hly_mpi_info *info)
{
    int rc = MPI_SUCCESS;
    for (size_t i = 0; info && i < NHINTS && !rc; i++) {
        char value[128] = "";
        int length = sizeof(value), flag = 0;
        rc = hly_mpi_info_get_string(info, hints[i].key, &length, value, &flag);
        if (!rc && flag)
            rc = hly_mpi_info_set(win->info, hints[i].key, value);
    }
    return rc;
}

static int make_info(struct hly_mpi_win *win, struct hly_mpi_info *info)
{
    int rc = hly_mpi_info_create(&win->info);
    for (size_t i = 0; i < NHINTS && !rc; i++)
        rc = hly_mpi_info_set(win->info, hints[i].key, hints[i].usual);
    return rc ? rc : keep_hints(win, info);
}

int hly_mpi_win_set_info(struct hly_mpi_win *win, struct hly_mpi_info *info)
{
    const int rc = hly_mpi_check_win("MPI_Win_set_info", win);
    if (!rc && !info)
        return hly_mpi_fail(MPI_ERR_INFO, "MPI_Win_set_info: the info is MPI_INFO_NULL");
    return rc ? rc : keep_hints(win, info);
}

int hly_mpi_win_get_info(struct hly_mpi_win *win, struct hly_mpi_info **info_used)
{
    const int rc = hly_mpi_check_win("MPI_Win_get_info", win);
    return rc ? rc : hly_mpi_info_dup(win->info, info_used);
}

/* ---------------------------------------------------------------- the end */

static void end_win(void *object)
{
    struct hly_mpi_win *win = object;
    hly_mpi_win_unmap(win);
    free(win->allocated);
    free(win->peers);
    free(win->waits);
    free(win->regions);
    hly_mpi_drop(win->info);
    hly_mpi_drop(win->errhandler);
    if (hly_mpi_job.context)
        hly_mpi_drop(win->comm);
    pthread_mutex_destroy(&win->mutex);
    pthread_mutex_destroy(&win->send_mutex);
    pthread_mutex_destroy(&win->region_mutex);
    pthread_mutex_destroy(&win->apply);
    pthread_cond_destroy(&win->fetched);
}

int hly_mpi_win_free(struct hly_mpi_win **handle)
{
    static const char function[] = "MPI_Win_free";
    struct hly_mpi_win *win = *handle;
    int rc = hly_mpi_check_win(function, win);
    if (rc)
        return rc;
    pthread_mutex_lock(&win->mutex);
    if (win->epoch > HLY_MPI_FENCED || win->is_posted)
        rc = hly_mpi_fail(MPI_ERR_RMA_SYNC, "%s: an epoch is open on the window", function);
    pthread_mutex_unlock(&win->mutex);
    if (!rc)
        rc = hly_mpi_attributes_free(HLY_MPI_WIN, win, &win->attributes);
    if (rc)
        return rc;
    rc = hly_mpi_win_flush_rank(function, win, -1);
    const int met = hly_mpi_result(halay_barrier(win->comm->halay), win->comm, function);
    hly_mpi_serve_end(win);
    hly_mpi_object_release(win);
    *handle = NULL;
    return rc ? rc : met;
}

/* ---------------------------------------------------------------- making one */

struct offer { /* what a rank has */
    int64_t size, disp_unit;
    int32_t node, wrong; /* wrong: an error's class */
};

/* A window without memory; NULL: no memory for it. */
static struct hly_mpi_win *win_new(int flavor, int nranks)
{
    struct hly_mpi_win *win = hly_mpi_object_new(HLY_MPI_WIN, sizeof(*win));
    if (!win)
        return NULL;
    hly_mpi_object_ends(HLY_MPI_WIN, end_win);
    win->flavor = flavor;
    win->model = MPI_WIN_UNIFIED;
    pthread_mutex_init(&win->mutex, NULL);
    pthread_mutex_init(&win->send_mutex, NULL);
    pthread_mutex_init(&win->region_mutex, NULL);
    pthread_mutex_init(&win->apply, NULL);
    pthread_cond_init(&win->fetched, NULL);
    win->peers = calloc((size_t)nranks, sizeof(*win->peers));
    win->waits = calloc((size_t)nranks, sizeof(*win->waits));
    if (win->peers && win->waits)
        return win;
    hly_mpi_object_release(win);
    return NULL;
}

/* Says the first error that a rank has, on all ranks. one_node: are all ranks of one? */
static int exchange(const char *function, struct hly_mpi_win *win, struct offer mine,
                    bool *one_node)
{
    const int n = win->comm->size;
    halay_topology_t topology = {.size = sizeof(topology)};
    struct offer *all = malloc((size_t)n * sizeof(*all));
    if (!all)
        return hly_mpi_fail(MPI_ERR_NO_MEM, "%s: no memory for %d ranks", function, n);
    halay_context_topology(hly_mpi_job.context, &topology);
    mine.node = topology.node;
    const int code = halay_allgather(&mine, all, sizeof(mine), HALAY_UINT8, win->comm->halay);
    int rc = hly_mpi_result(code, win->comm, function);
    *one_node = true;
    for (int i = 0; i < n && !rc; i++) {
        win->peers[i].size = all[i].size;
        win->peers[i].disp_unit = all[i].disp_unit;
        *one_node = *one_node && all[i].node == all[0].node;
        if (all[i].wrong == MPI_ERR_SIZE)
            rc = hly_mpi_fail(MPI_ERR_SIZE,
                              "%s: on rank %d the size is %lld: it has to be 0 or more", function,
                              i, (long long)all[i].size);
        else if (all[i].wrong)
            rc = hly_mpi_fail(all[i].wrong,
                              "%s: on rank %d the displacement unit is %lld: it has to be positive",
                              function, i, (long long)all[i].disp_unit);
    }
    free(all);
    return rc;
}

/* Memory of MPI_Win_allocate and _allocate_shared. */
static int allocate(const char *function, struct hly_mpi_win *win, bool one_node, bool contiguous)
{
    bool mapped = false;
    int rc = one_node ? hly_mpi_win_map(function, win, contiguous, &mapped) : MPI_SUCCESS;
    if (rc)
        return rc;
    if (mapped) {
        win->base = win->peers[win->comm->rank].near;
        return MPI_SUCCESS;
    }
    if (win->flavor == MPI_WIN_FLAVOR_SHARED)
        return hly_mpi_fail(MPI_ERR_RMA_SHARED,
                            "%s: the ranks are of several nodes, or the node has no such memory: "
                            "make a communicator by MPI_Comm_split_type, or a smaller window",
                            function);
    int32_t mine = !posix_memalign(&win->allocated, ALIGNMENT, (size_t)win->size + 1), all = 0;
    if (!mine)
        win->allocated = NULL;
    else
        memset(win->allocated, 0, (size_t)win->size);
    win->base = win->allocated;
    rc = hly_mpi_result(halay_allreduce(&mine, &all, 1, HALAY_INT32, HALAY_MIN, win->comm->halay),
                        win->comm, function);
    return rc || all
               ? rc
               : hly_mpi_fail(MPI_ERR_NO_MEM, "%s: a rank has no memory for its part", function);
}

static int create(const char *function, int flavor, void *base, int64_t size, int64_t disp_unit,
                  struct hly_mpi_info *info, struct hly_mpi_comm *comm, struct hly_mpi_win **made)
{
    struct offer mine = {.size = size, .disp_unit = disp_unit};
    bool one_node = false;
    int rc = hly_mpi_check_comm(function, comm);
    if (!rc && comm->remote)
        rc = hly_mpi_fail(MPI_ERR_COMM, "%s: the communicator is an intercommunicator", function);
    if (rc)
        return rc;
    struct hly_mpi_win *win = win_new(flavor, comm->size);
    if (!win)
        return hly_mpi_fail(MPI_ERR_NO_MEM, "%s: no memory for a window", function);
    win->size = size;
    win->base = base;
    win->disp_unit = (int)disp_unit;
    mine.wrong = size < 0                                 ? MPI_ERR_SIZE
                 : disp_unit < 1 || disp_unit > INT32_MAX ? MPI_ERR_DISP
                                                          : MPI_SUCCESS;
    rc = hly_mpi_comm_copy(function, comm, &win->comm);
    rc = rc ? rc : exchange(function, win, mine, &one_node);
    if (!rc && (flavor == MPI_WIN_FLAVOR_ALLOCATE || flavor == MPI_WIN_FLAVOR_SHARED))
        rc = allocate(function, win, one_node,
                      flavor == MPI_WIN_FLAVOR_SHARED &&
                          !says(info, "alloc_shared_noncontig", "true"));
    rc = rc ? rc : make_info(win, info);
    rc = rc ? rc : hly_mpi_serve(function, win);
    if (rc) {
        hly_mpi_object_release(win);
        return rc;
    }
    win->peers[win->comm->rank].near = win->base;
    win->errhandler = hly_mpi_predefined(HLY_MPI_ERRHANDLER, 0x141);
    hly_mpi_object_hold(win->errhandler);
    *made = win;
    return MPI_SUCCESS;
}

int hly_mpi_win_create(void *base, int64_t size, int64_t disp_unit, struct hly_mpi_info *info,
                       struct hly_mpi_comm *comm, struct hly_mpi_win **win)
{
    return create("MPI_Win_create", MPI_WIN_FLAVOR_CREATE, base, size, disp_unit, info, comm, win);
}

int hly_mpi_win_allocate(int64_t size, int64_t disp_unit, struct hly_mpi_info *info,
                         struct hly_mpi_comm *comm, void *baseptr, struct hly_mpi_win **win)
{
    const int rc =
        create("MPI_Win_allocate", MPI_WIN_FLAVOR_ALLOCATE, NULL, size, disp_unit, info, comm, win);
    if (!rc)
        *(void **)baseptr = (*win)->base;
    return rc;
}

int hly_mpi_win_allocate_shared(int64_t size, int64_t disp_unit, struct hly_mpi_info *info,
                                struct hly_mpi_comm *comm, void *baseptr, struct hly_mpi_win **win)
{
    const int rc = create("MPI_Win_allocate_shared", MPI_WIN_FLAVOR_SHARED, NULL, size, disp_unit,
                          info, comm, win);
    if (!rc)
        *(void **)baseptr = (*win)->base;
    return rc;
}

int hly_mpi_win_create_dynamic(struct hly_mpi_info *info, struct hly_mpi_comm *comm,
                               struct hly_mpi_win **win)
{
    return create("MPI_Win_create_dynamic", MPI_WIN_FLAVOR_DYNAMIC, NULL, 0, 1, info, comm, win);
}

/* ---------------------------------------------------------------- memory */

int hly_mpi_win_shared_query(struct hly_mpi_win *win, int rank, int64_t *size, int64_t *disp_unit,
                             void *baseptr)
{
    static const char function[] = "MPI_Win_shared_query";
    int rc = hly_mpi_check_win(function, win);
    if (!rc && rank != MPI_PROC_NULL && (rank < 0 || rank >= win->comm->size))
        rc = hly_mpi_fail(MPI_ERR_RANK, "%s: there is no rank %d", function, rank);
    if (!rc && win->flavor == MPI_WIN_FLAVOR_DYNAMIC)
        rc = hly_mpi_fail(MPI_ERR_RMA_FLAVOR, "%s: a dynamic window has no memory of its own",
                          function);
    if (rc)
        return rc;
    /* MPI_PROC_NULL: the first rank that has shared memory. */
    for (int i = 0; win->map && rank == MPI_PROC_NULL && i < win->comm->size; i++)
        if (win->peers[i].size > 0)
            rank = i;
    const bool is = rank >= 0 && win->peers[rank].near;
    *size = is ? win->peers[rank].size : 0;
    *disp_unit = rank >= 0 ? win->peers[rank].disp_unit : 1;
    *(void **)baseptr = is && *size ? win->peers[rank].near : NULL;
    return MPI_SUCCESS;
}

/* ---------------------------------------------------------------- name and group */

int hly_mpi_win_set_name(struct hly_mpi_win *win, const char *win_name)
{
    const int rc = hly_mpi_check_win("MPI_Win_set_name", win);
    if (!rc)
        snprintf(win->name, sizeof(win->name), "%s", win_name);
    return rc;
}

int hly_mpi_win_get_name(struct hly_mpi_win *win, char *win_name, int *resultlen)
{
    const int rc = hly_mpi_check_job("MPI_Win_get_name");
    if (!rc)
        *resultlen = snprintf(win_name, sizeof(win->name), "%s", win ? win->name : "MPI_WIN_NULL");
    return rc;
}

int hly_mpi_win_get_group(struct hly_mpi_win *win, struct hly_mpi_group **group)
{
    const int rc = hly_mpi_check_win("MPI_Win_get_group", win);
    return rc ? rc : hly_mpi_comm_group(win->comm, group);
}
