/* SPDX-License-Identifier: Apache-2.0 */
/*
 * spawn.c - the birth of a rank. libpmix has threads by then: between fork and exec only system
 * calls are made, on what was prepared before.
 *
 * Each rank leads a process group, so that what it starts can be signalled with it, even after its
 * own death. A rank that reads from a terminal stays in halayrun's group: as a background group it
 * would be stopped (SIGTTIN).
 */
#define _GNU_SOURCE
#include "spawn.h"

#include <assert.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../../common/job.h"
#include "note.h"
#include "numbers.h"

extern char **environ;

/* 0 if it can be run, else errno. */
static int runnable(const char *path)
{
    struct stat info;
    if (stat(path, &info))
        return errno;
    if (S_ISDIR(info.st_mode))
        return EISDIR;
    return access(path, X_OK) ? errno : 0;
}

int hly_search_program(const char *name, char path[HLY_PATH_BYTES])
{
    const char *dirs = getenv("PATH");
    int error = ENOENT;
    if (strchr(name, '/')) {
        int n = snprintf(path, HLY_PATH_BYTES, "%s", name);
        error = n >= HLY_PATH_BYTES ? ENAMETOOLONG : runnable(path);
    } else if (*name) {
        for (const char *dir = dirs ? dirs : "/usr/bin:/bin"; dir && error;
             dir = strchr(dir, ':')) {
            dir += *dir == ':';
            int bytes = (int)strcspn(dir, ":");
            int n = snprintf(path, HLY_PATH_BYTES, "%.*s%s%s", bytes, dir, bytes ? "/" : "", name);
            int problem = n >= HLY_PATH_BYTES ? ENAMETOOLONG : runnable(path);
            if (problem != ENOENT && problem != ENOTDIR && problem != EISDIR)
                error = problem;
            if (!bytes && !*dir)
                break;
        }
    }
    return error;
}

int hly_find_program(const char *name, char path[HLY_PATH_BYTES])
{
    int error = hly_search_program(name, path);
    if (!error)
        return 0;
    const int searched = error == ENOENT && *name && !strchr(name, '/');
    hly_note("cannot start '%s': %s%s%s", name, strerror(error), searched ? " on PATH" : "",
             searched && !access(name, F_OK)
                 ? "; it is in this folder: give ./ in front of it, or the program that runs it "
                   "(python)"
                 : "");
    return error == ENOENT || error == ENOTDIR ? HLY_EXIT_MISSING : HLY_EXIT_REFUSED;
}

static size_t env_count(char **env)
{
    size_t n = 0;
    while (env[n])
        n++;
    return n;
}

int hly_env_set(char ***env, const char *assignment)
{
    size_t name = (size_t)(strchrnul(assignment, '=') - assignment) + 1, n = env_count(*env);
    char *copy = strdup(assignment);
    if (!copy)
        return -1;
    for (size_t i = 0; i < n; i++) {
        if (!strncmp((*env)[i], assignment, name)) {
            free((*env)[i]);
            (*env)[i] = copy;
            return 0;
        }
    }
    char **grown = realloc(*env, (n + 2) * sizeof **env);
    if (!grown) {
        free(copy);
        return -1;
    }
    grown[n] = copy;
    grown[n + 1] = NULL;
    *env = grown;
    return 0;
}

void hly_env_destroy(char **env)
{
    for (size_t i = 0; env && env[i]; i++)
        free(env[i]);
    free(env);
}

char **hly_env_copy(char **env)
{
    size_t n = env_count(env);
    char **copy = calloc(n + 1, sizeof *copy);
    for (size_t i = 0; copy && i < n; i++) {
        copy[i] = strdup(env[i]);
        if (!copy[i]) {
            hly_env_destroy(copy);
            return NULL;
        }
    }
    return copy;
}

int hly_env_of_another_job(const char *assignment)
{
    return (!strncmp(assignment, "PMIX_", 5) && strncmp(assignment, "PMIX_MCA_", 9) != 0) ||
           !strncmp(assignment, "HALAY_JOB=", 10) || hly_numbers_of_another_job(assignment);
}

const char *hly_own_secret(void)
{
    const char *own = getenv("HALAY_SECRET");
    return own && *own && strcmp(own, "*") != 0 ? own : NULL;
}

/* What the ranks have in common, and nobody else: other users can read neither their environment
 * nor this one. The user's own stays. */
static int set_secret(char ***env, const struct hly_options *o)
{
    char assignment[64] = "HALAY_SECRET=";
    uint8_t random[16];
    if (hly_own_secret()) {
        if (!o->agent && o->agents < 0) /* which need one */
            hly_note("the job's secret is that of HALAY_SECRET, which stays in the environment of "
                     "what has started halayrun");
        return 0;
    }
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random) {
        hly_note("the kernel gives no random bytes for the job's secret (getrandom): %s; "
                 "HALAY_SECRET can name one",
                 strerror(errno));
        return -1;
    }
    for (size_t i = 0; i < sizeof random; i++)
        snprintf(assignment + 13 + 2 * i, 3, "%02x", random[i]);
    return hly_env_set(env, assignment);
}

const char *hly_env_secret(char **env)
{
    for (; *env; env++)
        if (!strncmp(*env, "HALAY_SECRET=", 13))
            return *env + 13;
    return "";
}

int hly_env_set_deadline(char ***env, int seconds)
{
    char assignment[64];
    snprintf(assignment, sizeof assignment, "HALAY_START_DEADLINE=%d", seconds);
    for (char **at = *env; *at; at++)
        if (!strncmp(*at, assignment, sizeof "HALAY_START_DEADLINE"))
            return 0;
    return hly_env_set(env, assignment);
}

/* Ranks that are more than the processors, and not bound: one thread each. OpenMP's default, and
 * PyTorch's, would be as many as processors in each of them. */
static int are_crowded(const struct hly_options *o, const struct hly_binding *b)
{
    return o->bind && !b->nshares && b->ncpus && o->nlocal > b->ncpus;
}

char **hly_env_create(const struct hly_options *options, const struct hly_binding *binding)
{
    char **env = hly_env_copy(environ), size[16], cpus[16];
    size_t kept = 0;
    if (!env)
        return NULL;
    for (size_t i = 0; env[i]; i++) {
        if (hly_env_of_another_job(env[i]))
            free(env[i]);
        else
            env[kept++] = env[i];
    }
    env[kept] = NULL;
    snprintf(size, sizeof size, "%d", options->nranks);
    snprintf(cpus, sizeof cpus, "%d", binding->ncpus);
    int rc = hly_job_put(&env, "launcher", "halayrun") ? 0 : -1;
    if (!options->least && !options->agent && options->agents < 0)
        rc |= hly_job_put(&env, "ranks", size) ? 0 : -1;
    rc |= set_secret(&env, options);
    rc |= binding->nshares && !hly_job_put(&env, "processors", cpus) ? -1 : 0;
    if (are_crowded(options, binding) && !getenv("OMP_NUM_THREADS"))
        rc |= hly_env_set(&env, "OMP_NUM_THREADS=1");
    for (int i = 0; i < options->nenv; i++)
        rc |= strchr(options->env[i], '=') ? hly_env_set(&env, options->env[i]) : 0;
    rc |= options->least ? hly_env_set_deadline(&env, options->elastic_timeout_s) : 0;
    if (rc) {
        hly_env_destroy(env);
        return NULL;
    }
    return env;
}

int hly_rank_has_group(const struct hly_spawner *spawner, int rank)
{
    return rank != 0 || !spawner->terminal;
}

void hly_spawner_restore(const struct hly_spawner *s)
{
    setrlimit(RLIMIT_NOFILE, &s->files);
    sigaction(SIGPIPE, &s->pipe_action, NULL);
    sigaction(SIGXFSZ, &s->size_action, NULL);
    sigprocmask(SIG_SETMASK, &s->mask, NULL);
}

static void become(const struct hly_spawner *s, int rank, char **env, int out, int err)
{
    struct hly_report report = {rank, 0};
    if (hly_rank_has_group(s, rank))
        setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != s->self)
        _exit(HLY_EXIT_SELF); /* halayrun died before the line above */
    if (((rank != 0 || !s->input) && dup2(s->null_fd, STDIN_FILENO) < 0) ||
        (out >= 0 && dup2(out, STDOUT_FILENO) < 0) || (err >= 0 && dup2(err, STDERR_FILENO) < 0))
        goto fail;
    hly_bind_rank(&s->binding, rank);
    hly_spawner_restore(s);
    execve(s->path, s->argv, env);
fail:
    report.error = errno;
    if (write(s->report_fd, &report, sizeof report) != (ssize_t)sizeof report)
        _exit(HLY_EXIT_SELF);
    _exit(HLY_EXIT_REFUSED);
}

pid_t hly_spawn(const struct hly_spawner *spawner, int rank, char **env, int out, int err)
{
    pid_t pid = fork();
    if (pid == 0)
        become(spawner, rank, env, out, err);
    if (pid > 0 && hly_rank_has_group(spawner, rank))
        setpgid(
            pid,
            pid); /* whoever comes first; fails once the rank has done it and become the program */
    return pid;
}
