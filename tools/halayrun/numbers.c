/* SPDX-License-Identifier: Apache-2.0 */
/*
 * numbers.c - numbers.h. The user's -x wins. Where ranks come and go, or agents bring them, nobody
 * knows the numbers before the ranks meet: there are none then, rather than wrong ones.
 */
#define _GNU_SOURCE
#include "numbers.h"

#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "spawn.h"

static const char *const counts[] = {"RANK=", "WORLD_SIZE=", "LOCAL_RANK=", "LOCAL_WORLD_SIZE="};
static const char *const others[] = {"MASTER_ADDR=",      "MASTER_PORT=", "GROUP_RANK=",
                                     "GROUP_WORLD_SIZE=", "ROLE_RANK=",   "ROLE_WORLD_SIZE="};

static int is_count(const char *assignment)
{
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        if (!strncmp(assignment, counts[i], strlen(counts[i])))
            return 1;
    return 0;
}

/* MASTER_PORT alone is the user's wish; beside RANK it is the port of that rank's job. */
int hly_numbers_of_another_job(const char *assignment)
{
    if (!strncmp(assignment, "TORCHELASTIC_", 13))
        return 1;
    if (!getenv("RANK"))
        return 0;
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (!strncmp(assignment, others[i], strlen(others[i])))
            return 1;
    return is_count(assignment);
}

static int set(char ***env, const struct hly_options *o, const char *name, int value)
{
    char assignment[64];
    const size_t length = strlen(name);
    for (int i = 0; i < o->nenv; i++)
        if (!strncmp(o->env[i], name, length) && o->env[i][length] == '=')
            return 0;
    snprintf(assignment, sizeof assignment, "%s=%d", name, value);
    return hly_env_set(env, assignment);
}

static int are_known(const struct hly_options *o)
{
    return !o->least && !o->agent && o->agents < 0;
}

static int has(char **env, const char *name)
{
    for (; *env; env++)
        if (!strncmp(*env, name, strlen(name)))
            return 1;
    return 0;
}

/* The kernel gives a port that is bound to nobody else, but whoever reuses addresses, as PyTorch's
 * store does, can listen at it while this socket does not. */
static int free_port(int *port)
{
    struct sockaddr_in any = {.sin_family = AF_INET};
    socklen_t bytes = sizeof any;
    const int yes = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && !setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) &&
        !bind(fd, (struct sockaddr *)&any, bytes) &&
        !getsockname(fd, (struct sockaddr *)&any, &bytes)) {
        *port = ntohs(any.sin_port);
        return fd;
    }
    if (fd >= 0)
        close(fd);
    return -1;
}

int hly_numbers_common(char ***env, const struct hly_options *o, int *port_fd)
{
    size_t kept = 0;
    int port = 0, rc = 0;
    *port_fd = -1;
    for (size_t i = 0; (*env)[i]; i++) {
        if (is_count((*env)[i]))
            free((*env)[i]);
        else
            (*env)[kept++] = (*env)[i];
    }
    (*env)[kept] = NULL;
    for (int i = 0; i < o->nenv; i++) /* the user's, which were among them */
        rc |= is_count(o->env[i]) ? hly_env_set(env, o->env[i]) : 0;
    if (!are_known(o))
        return rc;
    rc |= set(env, o, "WORLD_SIZE", o->nranks);
    rc |= set(env, o, "LOCAL_WORLD_SIZE", o->nranks);
    if (!has(*env, "MASTER_ADDR="))
        rc |= hly_env_set(env, "MASTER_ADDR=127.0.0.1");
    if (!has(*env, "MASTER_PORT="))
        *port_fd = free_port(&port);
    if (port) /* else only who needs it fails, and says so */
        rc |= set(env, o, "MASTER_PORT", port);
    return rc;
}

int hly_numbers_rank(char ***env, const struct hly_options *o, int rank)
{
    if (!are_known(o))
        return 0;
    return set(env, o, "RANK", rank) | set(env, o, "LOCAL_RANK", rank);
}
