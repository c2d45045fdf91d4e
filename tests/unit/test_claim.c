/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_claim.c - a rank's name on its node: one process has it; another user who holds it is named,
 * and keeps nobody from being the rank; with HALAY_SECRET he cannot know it.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../boot/common/claim.h"
#include "../check.h"

enum { NOBODY = 65534 };

static char said[1024];

static void keep(void *arg, int level, const char *text)
{
    (void)arg, (void)level;
    snprintf(said, sizeof said, "%s", text);
}

static int claim(const char *rank, int *fd)
{
    const struct hly_boot_log log = {keep, NULL};
    char job[32];
    snprintf(job, sizeof job, "job of %d", (int)getppid());
    const char *names[2] = {job, rank};
    said[0] = 0;
    return hly_boot_claim(&log, names, 2, rank, fd);
}

/* A process of this user, or of another, claims the rank, or holds its name without listening. */
static pid_t holds(const char *rank, int foreign, int listens)
{
    int ends[2];
    char byte;
    CHECK(pipe(ends) == 0, "pipe");
    pid_t pid = fork();
    if (pid == 0) {
        int fd = -1;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (foreign && (setresgid(NOBODY, NOBODY, NOBODY) || setresuid(NOBODY, NOBODY, NOBODY)))
            _exit(1);
        if (claim(rank, &fd))
            _exit(1);
        if (!listens) {
            struct sockaddr_un name;
            socklen_t bytes = sizeof name;
            CHECK(getsockname(fd, (struct sockaddr *)&name, &bytes) == 0, "name");
            close(fd);
            fd = socket(AF_UNIX, SOCK_STREAM, 0);
            CHECK(bind(fd, (struct sockaddr *)&name, bytes) == 0, "bind");
        }
        CHECK(write(ends[1], "x", 1) == 1, "write");
        pause();
    }
    close(ends[1]);
    CHECK(read(ends[0], &byte, 1) == 1, "it does not hold it");
    close(ends[0]);
    return pid;
}

static void ends(pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

static void alone(void)
{
    int fd = -1, other = -1;
    unsetenv("HALAY_SECRET");
    CHECK(claim("3", &fd) == 0, "%s", said);
    CHECK(claim("3", &other) == HALAY_ESTATE && strstr(said, "another copy of this library"), "%s",
          said);
    CHECK(claim("4", &other) == 0, "%s", said);
    close(other);
    close(fd);
}

/* Names contain the parent's number, so claims are compared between children of this process. */
static int claims(const char *rank)
{
    int status;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        int fd = -1, rc = claim(rank, &fd);
        fprintf(stdout, "%s\n", said);
        fflush(stdout);
        _exit(rc ? strstr(said, "is that rank already") ? 1 : 4
              : strstr(said, "which is user 65534's; with HALAY_SECRET set") ? 2
              : strstr(said, "does not listen; with HALAY_SECRET set")       ? 3
              : fd >= 0                                                      ? 0
                                                                             : 4);
    }
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status), "waitpid");
    return WEXITSTATUS(status);
}

int main(void)
{
    alone();
    pid_t pid = holds("1", 0, 1);
    CHECK(claims("1") == 1 && claims("2") == 0, "a process of this user");
    setenv("HALAY_SECRET", "ours", 1);
    CHECK(claims("1") == 0, "the name does not depend on the secret");
    unsetenv("HALAY_SECRET");
    ends(pid);
    pid = holds("1", 0, 0);
    CHECK(claims("1") == 3, "one that does not listen");
    ends(pid);
    if (geteuid() != 0) {
        puts("only root can become another user: that was not tried");
        return 0;
    }
    pid = holds("1", 1, 1);
    CHECK(claims("1") == 2, "another user");
    ends(pid);
    CHECK(claims("1") == 0, "nobody any more");
    return 0;
}
