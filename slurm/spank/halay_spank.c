/* SPDX-License-Identifier: Apache-2.0 */
/*
 * halay_spank.c - a SPANK plug-in: a site's defaults for Halay, and `srun --halay-doctor`.
 *
 *   optional halay-spank.so doctor=/opt/halay/bin/halay-doctor HALAY_INTERFACE=ib0
 * (plugstack.conf)
 *
 * Each NAME=VALUE goes into the environment of a job that does not set it itself. With
 * --halay-doctor halay-doctor looks at each node before the node's tasks begin. Nothing that goes
 * wrong here stops a job: every function returns 0, and the doctor has DOCTOR_S seconds.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <slurm/spank.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

SPANK_PLUGIN(halay, 1)

enum { DOCTOR_S = 60, LOOKS = 20 /* a second */, VARIABLES = 4096 };

static const char doctor_is[] = "doctor=";
static bool wanted;

/* Slurm calls it in srun and on each node. */
static int take_option(int value, const char *argument, int remote)
{
    (void)value, (void)argument, (void)remote;
    wanted = true;
    return 0;
}

static struct spank_option doctor_option = {
    .name = (char *)"halay-doctor",
    .usage = (char *)"halay-doctor looks at each node before the tasks begin",
    .cb = take_option,
};

int slurm_spank_init(spank_t spank, int argc, char *argv[])
{
    (void)argc, (void)argv;
    if (spank_option_register(spank, &doctor_option) != ESPANK_SUCCESS)
        slurm_error("halay: there is no option --halay-doctor");
    return 0;
}

/* On a node, as the user, before the tasks: what the job does not set is the site's. */
int slurm_spank_user_init(spank_t spank, int argc, char *argv[])
{
    char name[128], own[8];
    for (int i = 0; i < argc; i++) {
        const char *equals = strchr(argv[i], '=');
        if (!strncmp(argv[i], doctor_is, sizeof(doctor_is) - 1))
            continue;
        if (!equals || strncmp(argv[i], "HALAY_", 6) ||
            (size_t)(equals - argv[i]) >= sizeof(name)) {
            slurm_error("halay: plugstack.conf: '%s' is neither HALAY_NAME=VALUE nor doctor=PATH",
                        argv[i]);
            continue;
        }
        memcpy(name, argv[i], (size_t)(equals - argv[i]));
        name[equals - argv[i]] = 0;
        if (spank_getenv(spank, name, own, sizeof(own)) == ESPANK_ENV_NOEXIST &&
            spank_setenv(spank, name, equals + 1, 0) != ESPANK_SUCCESS)
            slurm_error("halay: plugstack.conf: %s cannot be set", name);
    }
    return 0;
}

static const char *doctor_path(int argc, char *argv[])
{
    for (int i = 0; i < argc; i++)
        if (!strncmp(argv[i], doctor_is, sizeof(doctor_is) - 1))
            return argv[i] + sizeof(doctor_is) - 1;
    return "halay-doctor";
}

/* The job's environment without the task's place in the job: the doctor is no rank. */
static void keep_out_of_job(char **all, char *kept[VARIABLES])
{
    int n = 0;
    for (; *all && n < VARIABLES - 1; all++)
        if (strncmp(*all, "PMI", 3) && strncmp(*all, "SLURM_", 6))
            kept[n++] = *all;
    kept[n] = NULL;
}

/* Until the child has ended; it is killed when its time is over. Kernels before 5.3 have no pidfd.
 */
static int wait_for(pid_t child, const char *path)
{
    const struct timespec between = {.tv_nsec = 1000000000 / LOOKS};
    int status = 0;
    for (int i = 0; i < DOCTOR_S * LOOKS; i++) {
        if (waitpid(child, &status, WNOHANG))
            return status;
        nanosleep(&between, NULL);
    }
    slurm_error("halay: %s has not ended after %d s, and is killed", path, DOCTOR_S);
    kill(child, SIGKILL);
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        continue;
    return 0;
}

/* In a task, as the user, before its program. The first of a node looks at it; none waits for
 * another. */
int slurm_spank_task_init(spank_t spank, int argc, char *argv[])
{
    int local = -1;
    char **all = NULL, *kept[VARIABLES];
    const char *path = doctor_path(argc, argv);
    if (!wanted || spank_get_item(spank, S_TASK_ID, &local) != ESPANK_SUCCESS || local != 0 ||
        spank_get_item(spank, S_JOB_ENV, &all) != ESPANK_SUCCESS)
        return 0;
    keep_out_of_job(all, kept);
    pid_t child = fork();
    if (child < 0) {
        slurm_error("halay: %s cannot be started: %s", path, strerror(errno));
        return 0;
    }
    if (child == 0) {
        int null = open("/dev/null", O_RDONLY);
        dup2(null, 0);
        dup2(2, 1);
        environ = kept; /* the job's PATH, too */
        execvp(path, (char *[]){(char *)path, (char *)"--brief", NULL});
        _exit(errno == ENOENT ? 127 : 126);
    }
    int status = wait_for(child, path);
    if (WIFSIGNALED(status))
        slurm_error("halay: %s was ended by signal %d", path, WTERMSIG(status));
    else if (WEXITSTATUS(status) == 127)
        slurm_error(
            "halay: there is no %s on this node: doctor=PATH in plugstack.conf says where it is",
            path);
    else if (WEXITSTATUS(status) == 126)
        slurm_error("halay: %s cannot be run on this node: may everybody run it?", path);
    return 0;
}
