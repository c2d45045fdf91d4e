/* SPDX-License-Identifier: Apache-2.0 */
/*
 * job.h - HALAY_JOB, "key=value;key=value": what a launcher of Halay's tells its processes. Or
 * "none": this process is a job of one rank. The keys, which the launcher sets where it knows them:
 *   launcher    its name                       ranks       how many there are
 *   name        the job's                      processors  that bound ranks of a node share
 *   meet, slot  the driver's address, and which of its processes this is
 *   record      the file of its flight record  words       the file for an error of its own
 */
#ifndef HALAY_PROC_JOB_H
#define HALAY_PROC_JOB_H

#include <stdbool.h>
#include <stddef.h>

#define HLY_JOB_VARIABLE "HALAY_JOB"
enum { HLY_JOB_VALUE = 384 }; /* bytes of one value, with its end */

/* The value of a key in the variable's text, or NULL, as text may be. */
const char *hly_job_find(const char *text, const char *key, char *value, size_t bytes);
bool hly_job_is_none(const char *text);

/* The same of this process's variable; *value becomes "" where there is none. */
bool hly_job_has(const char *key, char *value, size_t bytes);
bool hly_job_none(void);

/* Sets a key in the variable of *env, whose array and strings are allocated. false: no memory, or
 * the value has a semicolon. */
bool hly_job_put(char ***env, const char *key, const char *value);

#endif
