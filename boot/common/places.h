/* SPDX-License-Identifier: Apache-2.0 */
/* places.h - which rank is on which node and where it listens. Inside boot/ and pmix/ only. */
#ifndef HALAY_BOOT_PLACES_H
#define HALAY_BOOT_PLACES_H

#include <stdbool.h>

#include "claim.h"

enum { HLY_BOOT_HOST_BYTES = 64 };

/* The ranks from `first` up to the next run's first are on `node`. */
struct hly_boot_run {
    int32_t first, node;
};

struct hly_boot_node {
    char host[HLY_BOOT_HOST_BYTES];
    halay_address_t address; /* of its ranks; port 0 */
};

/* A rank whose ip is not that of its node. */
struct hly_boot_other {
    int32_t rank;
    halay_address_t address; /* port 0 */
};

/* The process of a rank, which the ranks of its node know. */
struct hly_boot_process {
    int32_t rank;
    uint32_t unused;
    halay_process_t process;
};

/* Nodes are numbered in the order of their lowest ranks. The struct does not own the tables. */
struct hly_boot_places {
    int nranks, nnodes, nruns, nothers, nprocesses;
    const struct hly_boot_run *runs; /* sorted; nnodes of them where ranks fill node by node */
    const struct hly_boot_node *nodes;
    const uint16_t *ports;                    /* nranks, network order */
    const struct hly_boot_other *others;      /* sorted */
    const struct hly_boot_process *processes; /* sorted: of ranks of this process's node */
};

/* Are all tables consistent? A peer has sent them. */
bool hly_boot_places_valid(const struct hly_boot_places *places);

/* HALAY_EINVAL: no such rank, or place->size is wrong. */
int hly_boot_places_get(const struct hly_boot_places *places, int rank, halay_place_t *place);

/* Fills node, nnodes, local_rank, local_nranks, host and address of the rank info->rank. */
void hly_boot_places_info(const struct hly_boot_places *places, halay_boot_info_t *info);

#endif
