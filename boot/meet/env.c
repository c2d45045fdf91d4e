/* SPDX-License-Identifier: Apache-2.0 */
/* env.c - a launcher and the environment (env.h). */
#define _GNU_SOURCE
#include "env.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <halay/halay.h>

/* Replaces or adds "name=..." of the environment, whose array and strings are allocated. */
static int put(char ***env, const char *name, const char *value)
{
    const size_t bytes = strlen(name);
    char *text = NULL;
    size_t n = 0;
    if (asprintf(&text, "%s=%s", name, value) < 0)
        return HALAY_ENOMEM;
    for (; (*env)[n]; n++)
        if (!strncmp((*env)[n], text, bytes + 1)) {
            free((*env)[n]);
            (*env)[n] = text;
            return HALAY_OK;
        }
    char **grown = realloc(*env, (n + 2) * sizeof *grown);
    if (!grown) {
        free(text);
        return HALAY_ENOMEM;
    }
    grown[n] = text;
    grown[n + 1] = NULL;
    *env = grown;
    return HALAY_OK;
}

int hly_meet_env(const char *where, int slot, const char *job, char ***env)
{
    char which[16];
    snprintf(which, sizeof which, "%d", slot);
    int rc = put(env, "HALAY_MEET", where);
    if (!rc)
        rc = put(env, "HALAY_MEET_SLOT", which);
    return rc ? rc : put(env, "HALAY_MEET_JOB", job);
}

uint64_t hly_meet_seconds_ns(const char *name, unsigned otherwise_s)
{
    const char *text = getenv(name);
    char *end;
    const double seconds = strtod(text ? text : "", &end);
    const bool right = seconds > 0 && seconds <= 1e9 && !*end;
    return right ? (uint64_t)(seconds * 1e9) : otherwise_s * UINT64_C(1000000000);
}
