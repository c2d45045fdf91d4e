/* SPDX-License-Identifier: Apache-2.0 */
/*
 * window_map.c - memory of a window that all its ranks map, and its locks. Rank 0 makes a memory
 * file without a name, and the others open it through /proc: so nothing stays behind a death.
 *
 * The file has a page or more for the head, then each rank's part.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "window.h"

struct slot { /* of a rank */
    _Alignas(64) pthread_mutex_t mutex;
};
struct head {
    _Alignas(64) uint64_t secret;
    struct slot slots[];
};
struct invitation {
    int64_t pid, fd, bytes; /* fd -1: there is no file */
    uint64_t secret;
};

/* ---------------------------------------------------------------- locks */

static pthread_mutex_t *lock_of(struct hly_mpi_win *win, int rank)
{
    return win->map ? &((struct head *)win->map)->slots[rank].mutex : &win->apply;
}

void hly_mpi_win_hold(struct hly_mpi_win *win, int rank)
{
    pthread_mutex_t *mutex = lock_of(win, rank);
    if (pthread_mutex_lock(mutex) == EOWNERDEAD) /* whole elements are written at once */
        pthread_mutex_consistent(mutex);
}

void hly_mpi_win_let_go(struct hly_mpi_win *win, int rank)
{
    pthread_mutex_unlock(lock_of(win, rank));
}

static int make_locks(struct head *head, int n)
{
    pthread_mutexattr_t shared;
    if (pthread_mutexattr_init(&shared))
        return -1;
    int rc = pthread_mutexattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
    rc = rc ? rc : pthread_mutexattr_setrobust(&shared, PTHREAD_MUTEX_ROBUST);
    for (int i = 0; i < n && !rc; i++)
        rc = pthread_mutex_init(&head->slots[i].mutex, &shared);
    pthread_mutexattr_destroy(&shared);
    return rc;
}

/* ---------------------------------------------------------------- the file */

static void *map_file(int fd, size_t bytes)
{
    void *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return map == MAP_FAILED ? NULL : map;
}

/* What rank 0 does. */
static void create(struct hly_mpi_win *win, size_t bytes, struct invitation *to)
{
    const int fd = memfd_create("halay-window", MFD_CLOEXEC);
    *to = (struct invitation){.pid = getpid(), .fd = -1, .bytes = (int64_t)bytes};
    if (fd < 0)
        return;
    /* Takes the memory now: a write to memory that is not there would end the process. */
    struct head *head = fallocate(fd, 0, 0, (off_t)bytes) ? NULL : map_file(fd, bytes);
    if (!head) {
        close(fd);
        return;
    }
    win->map = head;
    win->map_bytes = bytes;
    if (getrandom(&head->secret, sizeof(head->secret), GRND_NONBLOCK) !=
            (ssize_t)sizeof(head->secret) ||
        make_locks(head, win->comm->size)) {
        hly_mpi_win_unmap(win);
        close(fd);
        return;
    }
    to->secret = head->secret;
    to->fd = fd;
}

/* What the other ranks do. The secret says that it is the same file: a pid may be of another
 * namespace. */
static void join(struct hly_mpi_win *win, const struct invitation *to)
{
    char path[64];
    struct stat is;
    snprintf(path, sizeof(path), "/proc/%lld/fd/%lld", (long long)to->pid, (long long)to->fd);
    const int fd = to->fd < 0 ? -1 : open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return;
    struct head *head =
        fstat(fd, &is) || is.st_size != (off_t)to->bytes ? NULL : map_file(fd, (size_t)to->bytes);
    close(fd);
    if (!head)
        return;
    win->map = head;
    win->map_bytes = (size_t)to->bytes;
    if (head->secret != to->secret)
        hly_mpi_win_unmap(win);
}

/* The places of all parts; the bytes of the whole file, or 0: too many. */
static size_t place(struct hly_mpi_win *win, bool contiguous)
{
    const int n = win->comm->size;
    const __int128 page = sysconf(_SC_PAGESIZE), step = contiguous ? 1 : page;
    __int128 at = (__int128)sizeof(struct head) + (__int128)n * (__int128)sizeof(struct slot);
    at = (at + page - 1) / page * page;
    for (int i = 0; i < n; i++) {
        at = (at + step - 1) / step * step;
        if (at > INT64_MAX)
            return 0;
        win->peers[i].near = (char *)(uintptr_t)at; /* where it is in the file */
        at += win->peers[i].size;
    }
    at = (at + page - 1) / page * page;
    return at > INT64_MAX ? 0 : (size_t)at;
}

int hly_mpi_win_map(const char *function, struct hly_mpi_win *win, bool contiguous, bool *mapped)
{
    halay_comm_t *comm = win->comm->halay;
    const size_t bytes = place(win, contiguous);
    struct invitation to = {.fd = -1};
    if (win->comm->rank == 0 && bytes)
        create(win, bytes, &to);
    int code = halay_broadcast(&to, sizeof(to), HALAY_UINT8, 0, comm);
    if (!code && win->comm->rank && bytes)
        join(win, &to);
    int32_t mine = win->map != NULL, all = 0;
    if (!code)
        code = halay_allreduce(&mine, &all, 1, HALAY_INT32, HALAY_MIN, comm);
    if (win->comm->rank == 0 && to.fd >= 0)
        close((int)to.fd);
    *mapped = !code && all;
    if (!*mapped)
        hly_mpi_win_unmap(win);
    for (int i = 0; i < win->comm->size; i++)
        win->peers[i].near = *mapped ? (char *)win->map + (uintptr_t)win->peers[i].near : NULL;
    return hly_mpi_result(code, win->comm, function);
}

void hly_mpi_win_unmap(struct hly_mpi_win *win)
{
    if (win->map)
        munmap(win->map, win->map_bytes);
    win->map = NULL;
}
