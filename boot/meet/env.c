/* SPDX-License-Identifier: Apache-2.0 */
/* env.c - a launcher and the environment (env.h). */
#include "env.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include <halay/halay.h>

#include "../../common/job.h"

int hly_meet_env(const char *where, int slot, const char *job, char ***env)
{
    char which[16];
    snprintf(which, sizeof which, "%d", slot);
    return hly_job_put(env, "meet", where) && hly_job_put(env, "slot", which) &&
                   hly_job_put(env, "name", job)
               ? HALAY_OK
               : HALAY_ENOMEM;
}

uint64_t hly_meet_seconds_ns(const char *name, unsigned otherwise_s)
{
    const char *text = getenv(name);
    char *end;
    const double seconds = strtod(text ? text : "", &end);
    const bool right = seconds > 0 && seconds <= 1e9 && !*end;
    return right ? (uint64_t)(seconds * 1e9) : otherwise_s * UINT64_C(1000000000);
}
