/* SPDX-License-Identifier: Apache-2.0 */
/* options.h - halayrun's command line. */
#ifndef HALAYRUN_OPTIONS_H
#define HALAYRUN_OPTIONS_H

enum { HLY_ENV_MAX = 256 };

enum hly_launcher {
    HLY_ANY, /* none was asked for */
    HLY_LOCAL,
    HLY_SRUN,
    HLY_JSRUN,
    HLY_MPIRUN,
    HLY_PRTERUN,
    HLY_LAUNCHERS
};

struct hly_options {
    int nranks; /* 0: as many as the hosts or the allocation have room for */
    int prefix;
    int timestamp; /* before it; with prefix */
    int lines;     /* of different ranks do not mix */
    int verbose;
    int dry_run;
    int bind;       /* each rank to its share of the processors */
    int horovod;    /* programs that import horovod get Halay's */
    int mpi;        /* programs for MPI find Halay's library */
    int keep_going; /* a rank that fails does not end the job */
    int timeout_s;  /* 0: none */
    int grace_s;    /* for ranks, from a signal to halayrun to SIGKILL */
    int has_grace;  /* it was given */
    int slots;      /* as many processes may there be at once */
    int nlocal;     /* of these on this machine: the first ones */
    int least;      /* a job whose ranks change goes on with so many; 0: they are always the same */
    int reset_limit, elastic_timeout_s, slots_per_host; /* reset_limit: -1: none */
    const char *discovery;                              /* how many places: a script's word */
    int cool_ms[2]; /* of a slot or host that has failed: from, to */
    int drop_hosts; /* a failure costs all places of its host */
    int drop_for_good;
    int agents;         /* how many the job waits for; -1: it takes none */
    int port;           /* where they come to; 0: a free one */
    const char *listen; /* on this address alone */
    const char *secret_file, *start_agent;
    const char *agent, *agent_name; /* of an agent: its head, the name of its host */
    int nenv;
    const char *env[HLY_ENV_MAX]; /* "NAME=VALUE", or "NAME": as it is */
    const char *hosts, *host_file;
    const char *output; /* a folder for what the ranks print; NULL: it is not kept */
    const char *record; /* a folder for flight records; NULL: they are not kept */
    enum hly_launcher launcher;
    char **command; /* NULL-terminated; at least one, but where nothing is started here */
};

/* The name of its program; halayrun's own is "local". */
const char *hly_launcher_name(enum hly_launcher launcher);

/* -1 if there is a job to run, else the status to exit with; everything has been said. */
int hly_options_parse(int argc, char **argv, struct hly_options *options);

/* For the parts of options.c. The whole of a text as a number; 0: it is none from least to most. */
int hly_options_number(const char *text, int least, int most, int *number);
/* Says why this option is wrong here. The status to exit with. */
int hly_options_refuse(const char *option, const char *why);

#endif
