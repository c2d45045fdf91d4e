/* SPDX-License-Identifier: Apache-2.0 */
/* picture.c - hands the JSON to the script that draws, which lies beside the plug-ins. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../common/library.h"
#include "doctor.h"

static bool script_path(char path[HLY_PATH_BYTES + 32])
{
    char library[HLY_PATH_BYTES];
    hly_library_path(library);
    char *slash = strrchr(library, '/');
    if (slash)
        *slash = '\0';
    snprintf(path, HLY_PATH_BYTES + 32, "%s/halay/halay-doctor-picture", slash ? library : ".");
    return access(path, X_OK) == 0;
}

static pid_t start(const char *script, const char *file, int in[2])
{
    pid_t pid = fork();
    if (pid)
        return pid;
    if (dup2(in[0], STDIN_FILENO) >= 0) {
        close(in[0]);
        close(in[1]);
        execl(script, script, file, (char *)NULL);
    }
    fprintf(stderr, "halay-doctor: %s: %s\n", script, strerror(errno));
    _exit(127);
}

bool hly_picture(const struct hly_job *job, const char *file)
{
    char script[HLY_PATH_BYTES + 32];
    int in[2], status = -1;
    if (job->matrix.n < 2) {
        fprintf(stderr, "halay-doctor: no picture: there are no pairs of ranks\n");
        return false;
    }
    if (!script_path(script) || pipe(in)) {
        fprintf(stderr, "halay-doctor: no picture: %s: %s\n", script, strerror(errno));
        return false;
    }
    pid_t pid = start(script, file, in);
    close(in[0]);
    FILE *out = pid < 0 ? NULL : fdopen(in[1], "w");
    if (out) {
        signal(SIGPIPE, SIG_IGN); /* a script that ends early says why by itself */
        hly_print_json(job, out);
        fclose(out);
    } else {
        close(in[1]);
    }
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    return pid > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}
