/* SPDX-License-Identifier: Apache-2.0 */
/*
 * session.c - the job's private folder: <tmp>/halayrun-<uid>-<pid>-<random>.
 *
 * Its owner holds a lock on the folder for as long as it lives, so a folder whose process is gone
 * and whose lock is free has no owner (a pid alone could be that of another container's halayrun,
 * which shares the file system).
 */
#define _GNU_SOURCE
#include "session.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "note.h"

enum { DEPTH_MAX = 8 };

static void remove_tree(int parent, const char *name, int depth)
{
    struct dirent *entry;
    int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *dir = fd >= 0 && depth < DEPTH_MAX ? fdopendir(fd) : NULL;
    if (dir) {
        while ((entry = readdir(dir))) {
            if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
                continue;
            if (unlinkat(fd, entry->d_name, 0) && (errno == EISDIR || errno == EPERM))
                remove_tree(fd, entry->d_name, depth + 1);
        }
        closedir(dir);
    } else if (fd >= 0) {
        close(fd);
    }
    unlinkat(parent, name, AT_REMOVEDIR);
}

/* The path of a socket in the folder must fit struct sockaddr_un. */
static const char *tmp_dir(void)
{
    const char *dir = getenv("TMPDIR");
    const int added =
        snprintf(NULL, 0, "/halayrun-%d-%d-XXXXXX/meet", (int)geteuid(), (int)getpid());
    return dir && dir[0] == '/' && !strchr(dir, ';') && strlen(dir) + (size_t)added < 108 ? dir
                                                                                          : "/tmp";
}

static int abandoned(int tmp, const char *name)
{
    struct stat info;
    int uid, pid, end = 0, free_lock;
    /* NOLINTNEXTLINE(cert-err34-c): any number is only asked about; the owner is looked at, too */
    if (sscanf(name, "halayrun-%d-%d-%n", &uid, &pid, &end) != 2 || !end || uid != (int)geteuid() ||
        pid < 2)
        return 0;
    if (kill(pid, 0) == 0 || errno != ESRCH)
        return 0;
    int fd = openat(tmp, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return 0;
    free_lock =
        fstat(fd, &info) == 0 && info.st_uid == geteuid() && flock(fd, LOCK_EX | LOCK_NB) == 0;
    close(fd);
    return free_lock;
}

static void sweep(const char *tmp)
{
    struct dirent *entry;
    DIR *dir = opendir(tmp);
    if (!dir)
        return;
    while ((entry = readdir(dir)))
        if (!strncmp(entry->d_name, "halayrun-", 9) && abandoned(dirfd(dir), entry->d_name))
            remove_tree(dirfd(dir), entry->d_name, 0);
    closedir(dir);
}

int hly_session_create(struct hly_session *session)
{
    const char *tmp = tmp_dir();
    int n = snprintf(session->path, sizeof session->path, "%s/halayrun-%d-%d-XXXXXX", tmp,
                     (int)geteuid(), (int)getpid());
    assert(n > 0 && (size_t)n < sizeof session->path);
    (void)n;
    sweep(tmp);
    if (!mkdtemp(session->path)) {
        hly_note("cannot make a folder in %s: %s (set TMPDIR to a folder that can be written)", tmp,
                 strerror(errno));
        return -1;
    }
    session->lock_fd = open(session->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (session->lock_fd < 0 || flock(session->lock_fd, LOCK_EX | LOCK_NB)) {
        const char *remedy = errno == EACCES ? "a umask such as 022 leaves the owner in"
                                             : "set TMPDIR to a folder on a local disk";
        hly_note("cannot lock %s: %s (%s)", session->path, strerror(errno), remedy);
        hly_session_remove(session);
        return -1;
    }
    return 0;
}

void hly_session_remove(struct hly_session *session)
{
    remove_tree(AT_FDCWD, session->path, 0);
    if (session->lock_fd >= 0)
        close(session->lock_fd);
    session->lock_fd = -1;
}
