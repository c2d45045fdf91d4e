/* SPDX-License-Identifier: Apache-2.0 */
/* place.h - where a job's ranks run, and who starts them there. */
#ifndef HALAYRUN_PLACE_H
#define HALAYRUN_PLACE_H

#include "hosts.h"
#include "options.h"

struct hly_place {
    enum hly_launcher launcher;
    int nranks;
    struct hly_hosts hosts; /* empty: the launcher knows them */
    int named;              /* the user named them */
    int nodes, per_node;    /* for srun without hosts; 0: srun knows */
    char why[160];
};

/* Reads the environment, opens at most a file. 0, or the status to exit with, said. */
int hly_place_find(struct hly_place *place, const struct hly_options *options);

#endif
