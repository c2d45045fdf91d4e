/* SPDX-License-Identifier: Apache-2.0 */
/*
 * numbers.h - the variables by which programs that never heard of Halay know their rank: RANK,
 * WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT, as torchrun sets them.
 */
#ifndef HALAYRUN_NUMBERS_H
#define HALAYRUN_NUMBERS_H

#include "options.h"

/* Inherited from a rank of another job. */
int hly_numbers_of_another_job(const char *assignment);

/* Takes inherited numbers out, and puts in those that all ranks share, if they are always the same.
 * *port_fd: keeps the port of MASTER_PORT for the job while it is open, or -1. 0 or -1. */
int hly_numbers_common(char ***env, const struct hly_options *options, int *port_fd);
/* Those of one rank. 0 or -1. */
int hly_numbers_rank(char ***env, const struct hly_options *options, int rank);

#endif
