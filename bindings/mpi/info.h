/* SPDX-License-Identifier: Apache-2.0 */
/* info.h - info objects: pairs of strings in the order in which they were set. */
#ifndef HLY_MPI_INFO_H
#define HLY_MPI_INFO_H

#include "core.h"

struct hly_mpi_pair {
    char *key, *value;
};
struct hly_mpi_info {
    struct hly_mpi_head head;
    int count, room;
    struct hly_mpi_pair *pairs;
};
extern struct hly_mpi_info hly_mpi_info_env; /* MPI_INFO_ENV */
void hly_mpi_infos_open(void);

#endif
