/* SPDX-License-Identifier: Apache-2.0 */
/*
 * window_region.c - memory that is attached to a dynamic window: regions in the order of their
 * addresses, which do not overlap. An empty one stands before another of the same address.
 */
#include <stdlib.h>
#include <string.h>

#include "window.h"

#define REGIONS_MOST 65536

/* How many regions begin before this address, or there. */
static int count_to(const struct hly_mpi_win *win, uintptr_t at)
{
    int low = 0, high = win->nregions;
    while (low < high) {
        const int middle = low + (high - low) / 2;
        if (win->regions[middle].at <= at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static uintptr_t end_of(const struct hly_mpi_region *r)
{
    return r->at + (uintptr_t)r->bytes;
}

bool hly_mpi_win_is_attached(struct hly_mpi_win *win, uintptr_t at, int64_t bytes)
{
    const uintptr_t end = at + (uintptr_t)bytes;
    pthread_mutex_lock(&win->region_mutex);
    for (int i = count_to(win, at) - 1; i >= 0 && i < win->nregions && at < end; i++) {
        if (win->regions[i].at > at)
            break;
        if (end_of(&win->regions[i]) > at)
            at = end_of(&win->regions[i]);
    }
    pthread_mutex_unlock(&win->region_mutex);
    return at >= end;
}

static int check_dynamic(const char *function, const struct hly_mpi_win *win)
{
    const int rc = hly_mpi_check_win(function, win);
    if (rc || win->flavor == MPI_WIN_FLAVOR_DYNAMIC)
        return rc;
    return hly_mpi_fail(MPI_ERR_RMA_FLAVOR, "%s: the window was not made by MPI_Win_create_dynamic",
                        function);
}

/* With the mutex of the regions: room for one more. */
static bool grow(struct hly_mpi_win *win)
{
    if (win->nregions < win->regions_room)
        return true;
    const int room = win->regions_room ? 2 * win->regions_room : 8;
    struct hly_mpi_region *more =
        room > REGIONS_MOST ? NULL : realloc(win->regions, (size_t)room * sizeof(*more));
    if (!more)
        return false;
    win->regions = more;
    win->regions_room = room;
    return true;
}

/* With the mutex. */
static int insert(const char *function, struct hly_mpi_win *win, uintptr_t at, int64_t bytes)
{
    int i = count_to(win, at);
    const bool overlaps =
        bytes && ((i > 0 && end_of(&win->regions[i - 1]) > at) ||
                  (i < win->nregions && win->regions[i].at < at + (uintptr_t)bytes));
    if (overlaps)
        return hly_mpi_fail(MPI_ERR_RMA_ATTACH, "%s: a part of the memory is attached already",
                            function);
    if (!grow(win))
        return hly_mpi_fail(MPI_ERR_RMA_ATTACH,
                            "%s: no memory for a list, or %d parts are attached already", function,
                            REGIONS_MOST);
    if (!bytes && i > 0 && win->regions[i - 1].at == at)
        i--;
    memmove(&win->regions[i + 1], &win->regions[i],
            (size_t)(win->nregions - i) * sizeof(win->regions[0]));
    win->regions[i] = (struct hly_mpi_region){at, bytes};
    win->nregions++;
    return MPI_SUCCESS;
}

int hly_mpi_win_attach(struct hly_mpi_win *win, void *base, int64_t size)
{
    static const char function[] = "MPI_Win_attach";
    int rc = check_dynamic(function, win);
    if (!rc && (size < 0 || (!base && size)))
        rc = hly_mpi_fail(MPI_ERR_ARG, "%s: the memory is NULL, or its size is negative", function);
    if (rc)
        return rc;
    pthread_mutex_lock(&win->region_mutex);
    rc = insert(function, win, (uintptr_t)base, size);
    pthread_mutex_unlock(&win->region_mutex);
    return rc;
}

int hly_mpi_win_detach(struct hly_mpi_win *win, const void *base)
{
    static const char function[] = "MPI_Win_detach";
    int rc = check_dynamic(function, win);
    if (rc)
        return rc;
    pthread_mutex_lock(&win->region_mutex);
    const int i = count_to(win, (uintptr_t)base) - 1;
    if (i >= 0 && win->regions[i].at == (uintptr_t)base)
        memmove(&win->regions[i], &win->regions[i + 1],
                (size_t)(--win->nregions - i) * sizeof(win->regions[0]));
    else
        rc = hly_mpi_fail(MPI_ERR_RMA_ATTACH, "%s: no attached memory begins there", function);
    pthread_mutex_unlock(&win->region_mutex);
    return rc;
}
