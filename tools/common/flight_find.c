/* SPDX-License-Identifier: Apache-2.0 */
/*
 * flight_find.c - the flight records of this machine: memfds of that name, which this user's
 * processes hold. Its launcher still holds that of a rank that has died.
 */
#define _GNU_SOURCE
#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "flight.h"

#define FOUND_MAX 8192
#define SEALS     (F_SEAL_SHRINK | F_SEAL_GROW)

struct found {
    hly_flights_t *flights;
    ino_t inodes[FOUND_MAX];
    uint32_t n;
};

static int is_new(struct found *found, ino_t inode)
{
    for (uint32_t i = 0; i < found->n; i++)
        if (found->inodes[i] == inode)
            return 0;
    if (found->n == FOUND_MAX)
        return 0;
    found->inodes[found->n++] = inode;
    return 1;
}

/* Mapped, not read: so a slot that is just being written is seen to be. Sealed ones do not
 * shrink. */
static void take(struct found *found, const char *path, int holder)
{
    struct stat is;
    const char *why;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return;
    void *at = MAP_FAILED;
    if (!fstat(fd, &is) && is.st_size == HALAY_RECORD_BYTES &&
        (fcntl(fd, F_GET_SEALS) & SEALS) == SEALS && is_new(found, is.st_ino))
        at = mmap(NULL, HALAY_RECORD_BYTES, PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    if (at == MAP_FAILED)
        return;
    hly_flight_t *flight = malloc(sizeof *flight);
    if (flight && !hly_flight_read(at, HALAY_RECORD_BYTES, flight, &why)) {
        flight->here = 1;
        flight->holder = holder;
        flight->process = flight->head.pid ? hly_flight_process(flight->head.pid) : 0;
        hly_flights_add(found->flights, flight);
    } else {
        free(flight);
    }
    munmap(at, HALAY_RECORD_BYTES);
}

static void look_at_process(struct found *found, int pid)
{
    static const char name[] = "/memfd:" HALAY_RECORD_NAME " ";
    char path[320], link[64];
    struct dirent *entry;
    snprintf(path, sizeof path, "/proc/%d/fd", pid);
    DIR *dir = opendir(path);
    while (dir && (entry = readdir(dir))) {
        snprintf(path, sizeof path, "/proc/%d/fd/%s", pid, entry->d_name);
        const ssize_t n = readlink(path, link, sizeof link - 1);
        if (n >= (ssize_t)sizeof name - 1 && !memcmp(link, name, sizeof name - 1))
            take(found, path, pid);
    }
    if (dir)
        closedir(dir);
}

static int is_of(const hly_flight_t *flight, const char *job)
{
    char *end;
    const long pid = strtol(job, &end, 10);
    return !strncmp(flight->head.job, job, strlen(job)) ||
           (!*end && (pid == flight->head.pid || pid == flight->holder));
}

int hly_flights_find(const char *job, hly_flights_t *flights)
{
    struct found *found = calloc(1, sizeof *found);
    DIR *dir = found ? opendir("/proc") : NULL;
    struct dirent *entry;
    struct stat is;
    *flights = (hly_flights_t){0};
    if (!found)
        return -1;
    found->flights = flights;
    while (dir && (entry = readdir(dir)))
        if (isdigit((unsigned char)entry->d_name[0]) &&
            !fstatat(dirfd(dir), entry->d_name, &is, 0) && is.st_uid == geteuid())
            look_at_process(found, (int)strtol(entry->d_name, NULL, 10));
    if (dir)
        closedir(dir);
    free(found);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < flights->n; i++) {
        if (!job || is_of(flights->list[i], job))
            flights->list[kept++] = flights->list[i];
        else
            free(flights->list[i]);
    }
    flights->n = kept;
    hly_flights_sort(flights);
    return 0;
}
