/* SPDX-License-Identifier: Apache-2.0 */
/*
 * launch.h - contract between a launcher (halayrun) and the server from which its ranks get their
 * ranks and addresses. The server lives in the launcher's process; the ranks are its clients by a
 * bootstrap (boot.h).
 *
 * A launcher has one server in its process. The launcher itself starts the ranks, decides what a
 * failure means, and kills processes. The server only reports what the ranks have sent.
 * start, env, descriptor and stop are set; another function is NULL where a server has no use for
 * it.
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
    int least;               /* fewest ranks of a job whose ranks may change; 0: always nranks */
    const char *job;         /* name of the job: unique on this node, at most 200 bytes */
    const char *host;        /* of this node */
    const char *session_dir; /* private, short, exists; the launcher removes it after stop */
    const char *secret;      /* HALAY_SECRET of the processes; may be empty */
    /* The TCP port, on each interface of this host, to which agents and all processes of a job with
     * agents connect; -1: any free one. 0: this launcher starts all processes. Else it starts the
     * first `nlocal`, and agents bring places for the others. */
    int port, nlocal;
    const char *listen; /* with a port: the one IP address of this host; NULL: all of them */
    const char *head;   /* of an agent: the head's "host:port" */
    halay_log_fn log;
    void *log_arg;
    /* Has the last halay_init of a rank, whose process runs, failed? 1, and text gets the reason.
     * NULL: the launcher does not know. */
    int (*failed)(void *arg, int rank, char *text, size_t bytes);
    /* The server calls this when other ranks report this rank, whose process runs, as lost, and
     * are about to meet without it. The function may call ended() for other ranks. NULL: no such
     * call. */
    void (*lost)(void *arg, int rank);
    void *arg; /* of failed and lost */
} halay_launch_params_t;

/* The state of a rank at the server. */
enum {
    HALAY_LAUNCH_UNKNOWN = 0,   /* never connected: perhaps it does not use Halay */
    HALAY_LAUNCH_CONNECTED = 1, /* connected and not finalized: leaving now is an error */
    HALAY_LAUNCH_FINALIZED = 2
};

/*
 * Messages between an agent, a launcher on another node, and the head, the launcher with the
 * driver. An agent brings places for processes. The head decides what it starts there, and numbers
 * the places with its own.
 */
enum halay_launch_what {
    HALAY_LAUNCH_AGENT = 1, /* to the head: an agent has come with `count` places, from `rank` on.
                               To the agent, first of all: it has them; value: 1 if ranks change */
    HALAY_LAUNCH_AGENT_LEAVES, /* to the head: tell the agent's processes to leave */
    HALAY_LAUNCH_AGENT_LOST,   /* to the head: the agent and its places are lost */
    HALAY_LAUNCH_STARTED,      /* to the head: a process of an agent has started; value: pid */
    /* to the head, which calls ended(): a process of an agent has ended; value: wait(2)'s
     * status; count: 1 if only its agent is lost */
    HALAY_LAUNCH_ENDED,
    /* to an agent: start a process; value: how many seconds it waits for others
     * (HALAY_START_DEADLINE), 0: its default */
    HALAY_LAUNCH_START,
    HALAY_LAUNCH_SIGNAL, /* to an agent: send the process the signal `value` */
    /* to an agent: the job is over, or its head is lost (text); value: the exit status */
    HALAY_LAUNCH_END,
    /* to an agent: what does the process do? To the head: `state`, a letter of proc(5) */
    HALAY_LAUNCH_LOOK
};

typedef struct halay_launch_event {
    size_t size; /* of this struct, set by the caller */
    enum halay_launch_what what;
    int rank, count, value;
    int state;      /* ENDED: as of ended(); LOOK */
    char text[252]; /* AGENT: its host; AGENT_LOST: why; ENDED: as `why` of ended() */
} halay_launch_event_t;

/* A rank has asked the launcher to end the whole job. */
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
     * Adds the variables with which the rank finds the server to *env, an allocated,
     * NULL-terminated array of allocated strings; replaces variables of the same name. On an error
     * *env stays valid.
     */
    int (*env)(halay_launch_t *server, int rank, char ***env);

    /*
     * The launcher reports that a rank's process has started, or has ended. status: wait(2)'s;
     * state: that of its flight record (record.h), -1 if unknown; why: the error of its halay_init,
     * or NULL. A rank may be started again.
     */
    void (*started)(halay_launch_t *server, int rank, int64_t pid);
    void (*ended)(halay_launch_t *server, int rank, int status, int state, const char *why);

    /* Returns the rank's HALAY_LAUNCH_* state; certainly up to date once the rank's process has
     * ended. Does not block. */
    int (*state)(const halay_launch_t *server, int rank);

    /* A descriptor that is readable while progress() has something to do, or aborted() something to
     * tell. Owned by the server. */
    int (*descriptor)(const halay_launch_t *server);

    /* Does a bounded piece of the server's work. Does not block. Returns in how many milliseconds
     * at the latest to call it again; -1: not before the descriptor is readable. */
    int (*progress)(halay_launch_t *server);

    /* Returns 1 and a rank whose process lives although the others have gone on without it: the
     * launcher kills it, so that it never acts again. Returns each once; 0: there is none. */
    int (*condemned)(halay_launch_t *server, int *rank);

    /* How often ranks have met, as in halay_boot_info_t: 0 before the first time, or if the server
     * does not know. */
    uint64_t (*epoch)(const halay_launch_t *server);

    /* Returns 1 and the first abort that a rank has asked for, once; 0: there is none. Does not
     * block. */
    int (*aborted)(halay_launch_t *server, halay_launch_abort_t *abort);

    /* Returns 1 and the next message of an agent or the head; 0: there is none. Does not block. */
    int (*event)(halay_launch_t *server, halay_launch_event_t *event);

    /* Sends a message. START, SIGNAL, LOOK go to the agent that has the place; END goes to all. An
     * agent that cannot be reached is lost. On an agent: AGENT_LEAVES, to the head. Does not
     * block. */
    void (*command)(halay_launch_t *server, const halay_launch_event_t *command);

    /* The address of the head for others, "host:port"; NULL: it has none. */
    const char *(*address)(const halay_launch_t *server);

    /* Sets the number of processes of a job with agents, instead of params.nranks, before any was
     * started. */
    void (*settle)(halay_launch_t *server, int nranks);

    /* Ends the server and its threads. Takes NULL. */
    void (*stop)(halay_launch_t *server);
} halay_launch_ops_t;

#ifdef __cplusplus
}
#endif
#endif
