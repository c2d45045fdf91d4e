/* SPDX-License-Identifier: Apache-2.0 */
/*
 * launch.h - contract between a launcher (halayrun) and the server that its ranks ask who they are.
 * The server lives inside the launcher's process; the ranks are ordinary clients of it (boot.h).
 *
 * A launcher starts one server a process, starts the ranks itself, decides itself what a failure
 * means, and kills. The server only tells what the ranks have told it. All members are set
 * (halay_config_t): a server without elastic ranks or agents has functions that do nothing.
 */
#ifndef HALAY_LAUNCH_H
#define HALAY_LAUNCH_H

#include <stddef.h>

#include "boot.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Raised when a member changes its meaning. A plug-in exports `halay_launch_v3_<name>`,
 * this table. */
#define HALAY_LAUNCH_ABI 3

typedef struct halay_launch_params {
    size_t size;             /* of this struct */
    int nranks;              /* processes, all on this node */
    int least;               /* a job that changes goes on with so many ranks; 0: always nranks */
    const char *job;         /* name of the job: unique on this node, at most 200 bytes */
    const char *host;        /* of this node */
    const char *session_dir; /* private, short, exists; the launcher removes it after stop */
    const char *secret;      /* HALAY_SECRET of the processes; may be empty */
    /* Where agents and all processes of a job with agents come to, on each interface of this
     * host: a TCP port, or -1 for a free one. 0: all processes are this launcher's. Else the first
     * `nlocal` are, and agents bring places for the others. */
    int port, nlocal;
    const char *listen; /* with a port: the one IP address of this host; NULL: all of them */
    const char *head;   /* of an agent: the head's "host:port" */
    halay_log_fn log;
    void *log_arg;
    /* 1 and why, if the last halay_init of a rank that has not ended has failed. NULL: the launcher
     * does not know. */
    int (*failed)(void *arg, int rank, char *text, size_t bytes);
    /* Processes of this rank's last world say that it is lost, and are about to meet without it. It
     * has not ended. Others may be reported as ended from within. NULL: nobody is told. */
    void (*lost)(void *arg, int rank);
    void *arg; /* of both */
} halay_launch_params_t;

/* How far a rank has come with the server. */
enum {
    HALAY_LAUNCH_UNKNOWN = 0,   /* never connected: perhaps it has no use for the server */
    HALAY_LAUNCH_CONNECTED = 1, /* connected and not finalized: leaving now is an error */
    HALAY_LAUNCH_FINALIZED = 2
};

/*
 * What a launcher on another node, an agent, says to the launcher that has the driver, the head;
 * and what that one asks of it. An agent brings places for processes. The head decides what is
 * started there, and numbers them as its own.
 */
enum halay_launch_what {
    HALAY_LAUNCH_AGENT = 1, /* to the head: an agent has come with `count` places, from `rank` on.
                               To the agent, first of all: it has them; value: 1 if ranks change */
    HALAY_LAUNCH_AGENT_LEAVES, /* to the head: it wants its processes told to leave */
    HALAY_LAUNCH_AGENT_LOST,   /* it has gone, and so have its places */
    HALAY_LAUNCH_STARTED,      /* a process of an agent has; value: its pid */
    HALAY_LAUNCH_ENDED,  /* so it has; value: wait(2)'s status. count: 1 where only its agent is
                            lost. The head hands it to ended() */
    HALAY_LAUNCH_START,  /* to an agent: start a process; value: for how many seconds it waits for
                            others (HALAY_START_DEADLINE), 0: not said */
    HALAY_LAUNCH_SIGNAL, /* send it the signal `value` */
    HALAY_LAUNCH_END,    /* the job is over, or its head is lost: text says so; value: the exit
                            status */
    HALAY_LAUNCH_LOOK    /* to an agent: what does the process do? To the head: state, proc(5)'s
                            letter */
};

typedef struct halay_launch_event {
    size_t size; /* of this struct, set by the caller */
    enum halay_launch_what what;
    int rank, count, value;
    int state;      /* ENDED: as of ended(); LOOK */
    char text[252]; /* AGENT, AGENT_LOST: its host, why it is lost; ENDED: as `why` of ended() */
} halay_launch_event_t;

/* A rank asked for the whole job to be ended. */
typedef struct halay_launch_abort {
    size_t size; /* of this struct, set by the caller */
    int rank;
    int status; /* the exit status that the rank asks for */
    char text[256];
} halay_launch_abort_t;

typedef struct halay_launch halay_launch_t;

typedef struct halay_launch_ops {
    size_t size; /* of this struct */
    const char *name;

    /*
     * Starts the server and registers all ranks with it. May block for some 100 ms and may start
     * threads: block signals before. HALAY_ESTATE if one runs already, HALAY_EBOOT (both logged).
     */
    int (*start)(const halay_launch_params_t *params, halay_launch_t **server);

    /*
     * Adds to *env, a NULL-terminated array of allocated strings which itself is allocated, what
     * rank needs to find the server; replaces variables of the same name. On an error *env stays
     * valid.
     */
    int (*env)(halay_launch_t *server, int rank, char ***env);

    /*
     * The rank's process has started. It has ended: status is wait(2)'s, state is that of its
     * flight record (record.h), -1 if nobody knows, why is what its halay_init has failed with, or
     * NULL. A rank may be started again.
     */
    void (*started)(halay_launch_t *server, int rank, int64_t pid);
    void (*ended)(halay_launch_t *server, int rank, int status, int state, const char *why);

    /* One of HALAY_LAUNCH_*; known to be up to date once the rank's process has ended. Does not
     * block. */
    int (*state)(const halay_launch_t *server, int rank);

    /* A descriptor that is readable while progress() has something to do, or aborted() something to
     * tell. Owned by the server. */
    int (*descriptor)(const halay_launch_t *server);

    /* Does what is due, a bounded piece of it. Does not block. In how many milliseconds it is to be
     * called at the latest; -1: when the descriptor is readable. */
    int (*progress)(halay_launch_t *server);

    /* 1 and a process that lives, and is lost by the word of those that have gone on without it:
     * the launcher kills it, so that it never acts again. Each once; 0 if there is none. */
    int (*condemned)(halay_launch_t *server, int *rank);

    /* How often ranks have met: 0 before the first time, or if the server cannot tell. */
    uint64_t (*epoch)(const halay_launch_t *server);

    /* 1 and the first abort that was asked for, once; 0 if there is none. Does not block. */
    int (*aborted)(halay_launch_t *server, halay_launch_abort_t *abort);

    /* 1 and the next thing that an agent or the head has said; 0: nothing. Does not block. */
    int (*event)(halay_launch_t *server, halay_launch_event_t *event);

    /* START, SIGNAL, LOOK: to the agent that has the place; END: to all. An agent that cannot be
     * told is lost. On an agent: AGENT_LEAVES. Does not block. */
    void (*command)(halay_launch_t *server, const halay_launch_event_t *command);

    /* Where others find the head, "host:port"; NULL: nowhere. */
    const char *(*address)(const halay_launch_t *server);

    /* No process of a job with agents has been started yet: it has so many, not params.nranks. */
    void (*settle)(halay_launch_t *server, int nranks);

    /* Ends the server and its threads. Takes NULL. */
    void (*stop)(halay_launch_t *server);
} halay_launch_ops_t;

#ifdef __cplusplus
}
#endif
#endif
