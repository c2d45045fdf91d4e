/* SPDX-License-Identifier: Apache-2.0 */
/* options.h - halayrun's command line. */
#ifndef HALAYRUN_OPTIONS_H
#define HALAYRUN_OPTIONS_H

enum { HLY_ENV_MAX = 256 };

struct hly_options {
    int nranks;
    int prefix;
    int verbose;
    int timeout_s; /* 0: none */
    int nenv;
    const char *env[HLY_ENV_MAX]; /* "NAME=VALUE" */
    char **command;               /* NULL-terminated, at least one */
};

/* -1 if there is a job to run, else the status to exit with; everything has been said. */
int hly_options_parse(int argc, char **argv, struct hly_options *options);

#endif
