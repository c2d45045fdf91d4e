/* SPDX-License-Identifier: Apache-2.0 */
/* spawn.h - the program, its environment, and the birth of a rank. */
#ifndef HALAYRUN_SPAWN_H
#define HALAYRUN_SPAWN_H

#include <signal.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "bind.h"
#include "options.h"

enum { HLY_PATH_BYTES = 4096 };

/* What a rank that could not become the program writes to spawner.report_fd. */
struct hly_report {
    int rank, error;
};

struct hly_spawner {
    char path[HLY_PATH_BYTES];
    char **argv;
    char **base; /* the environment of all ranks, before the server adds to it */
    pid_t self;
    int null_fd;
    int port_fd;                               /* holds MASTER_PORT, or -1 */
    int report_fd;                             /* closes in a rank when it has become the program */
    int input;                                 /* rank 0 reads halayrun's standard input, */
    int terminal;                              /* which is a terminal */
    sigset_t mask;                             /* what the ranks start with, as halayrun found it */
    struct sigaction pipe_action, size_action; /* SIGPIPE and SIGXFSZ, too */
    struct rlimit files;
    struct hly_binding binding;
};

/* Looks for a program as a shell does. 0 or errno. */
int hly_search_program(const char *name, char path[HLY_PATH_BYTES]);

/* Finds the program. 0, or the status to exit with, said. */
int hly_find_program(const char *name, char path[HLY_PATH_BYTES]);

/* Set for halayrun itself by the PMIx server of another launcher, whose settings (MCA) are the
 * user's, or by another halayrun. */
int hly_env_of_another_job(const char *assignment);

/* A copy of the environment without what makes a process a task of some other job, plus options'
 * and, where ranks are bound, how many processors they share. */
char **hly_env_create(const struct hly_options *options, const struct hly_binding *binding);
char **hly_env_copy(char **env);
/* The user's HALAY_SECRET, or NULL: a rank has it as "*", with which it can do nothing. */
const char *hly_own_secret(void);
/* The value of HALAY_SECRET in it. */
const char *hly_env_secret(char **env);
/* How long those that ask wait for others; the user's own stays. 0 or -1. */
int hly_env_set_deadline(char ***env, int seconds);
/* Sets "NAME=VALUE" in it. 0 or -1. */
int hly_env_set(char ***env, const char *assignment);
void hly_env_destroy(char **env);

/* A rank has a process group of its own, except for one that reads from a terminal. */
int hly_rank_has_group(const struct hly_spawner *spawner, int rank);

/* What halayrun has changed for itself is as it was, for what this process becomes. System calls
 * only. */
void hly_spawner_restore(const struct hly_spawner *spawner);

/* Starts a rank; out and err replace its standard output and error unless they are -1. Pid
 * or -1. */
pid_t hly_spawn(const struct hly_spawner *spawner, int rank, char **env, int out, int err);

#endif
