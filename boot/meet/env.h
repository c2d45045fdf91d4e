/* SPDX-License-Identifier: Apache-2.0 */
/* env.h - what a launcher adds to the environment of its processes, and takes from its own. Inside
 * boot/meet/ only. */
#ifndef HALAY_BOOT_MEET_ENV_H
#define HALAY_BOOT_MEET_ENV_H

#include <stdint.h>

/* meet, slot and name of HALAY_JOB, as halay_launch_ops_t.env has it. */
int hly_meet_env(const char *where, int slot, const char *job, char ***env);

enum { HLY_MEET_STOP_S = 30, HLY_MEET_START_S = 300 };
/* A variable of seconds, as the ranks read it, who say what is wrong with it. */
uint64_t hly_meet_seconds_ns(const char *name, unsigned otherwise_s);

#endif
