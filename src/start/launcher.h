/* SPDX-License-Identifier: Apache-2.0 */
/*
 * launcher.h - who started this process, by its environment alone, and how many ranks there are.
 * A pure function: unit/launcher asks it over a table of environments.
 */
#ifndef HLY_JOB_LAUNCHER_H
#define HLY_JOB_LAUNCHER_H

#include <stdbool.h>

/* The value of a variable, or NULL. began: as the process was started; else as it is now. */
typedef const char *(*hly_variable_fn)(void *arg, const char *name, bool began);

struct hly_launcher {
    const char *plugin;   /* the bootstrap's; NULL: none can find the ranks, for `reason` */
    const char *launcher; /* its name */
    const char *remedy;   /* if the ranks are not found */
    const char *reason;   /* if there is no plug-in */
    int nranks;           /* 1: no launcher; 0: nobody but the bootstrap can tell */
    int most;             /* what another source says, if that is more than nranks: refused */
    const char *other;    /* that source */
};

struct hly_launcher hly_launcher_find(hly_variable_fn get, void *arg);

/* NULL, or the variable that announces more ranks than the `nranks` of the job, where none
 * announces as many; *most: how many. */
const char *hly_launcher_denies(hly_variable_fn get, void *arg, int nranks, int *most);

#endif
