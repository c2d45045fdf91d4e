/* SPDX-License-Identifier: Apache-2.0 */
/* env.h - what a launcher adds to the environment of its processes. Inside boot/meet/ only. */
#ifndef HALAY_BOOT_MEET_ENV_H
#define HALAY_BOOT_MEET_ENV_H

/* HALAY_MEET, HALAY_MEET_SLOT, HALAY_MEET_JOB, as halay_launch_ops_t.env has it. */
int hly_meet_env(const char *where, int slot, const char *job, char ***env);

#endif
