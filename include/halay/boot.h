/* SPDX-License-Identifier: Apache-2.0 */
/*
 * boot.h - contract of a bootstrap: how a process finds out which rank of which job it is, where
 * the others are, and a secret that only they know. All else goes over Halay's own connections.
 *
 * A bootstrap is one folder with one `const` table. A process may open, close and open again; each
 * open is a new epoch of the same job, and only the first has to reach the launcher: the job's
 * identity is kept (docs/decisions/bootstraps.md#0002).
 */
#ifndef HALAY_BOOT_H
#define HALAY_BOOT_H

#include <stddef.h>
#include <stdint.h>

#include "halay.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Raised when a member changes its meaning. A plug-in exports `halay_boot_v4_<name>`, this
 * table. */
#define HALAY_BOOT_ABI 4

/* Where messages of a plug-in go. level: 0 error, 1 warning, 2 info, 3 trace; or HALAY_LOG_TOLD, an
 * error that another rank says, too: the program is told, and the log has it once. text has no
 * newline. */
typedef void (*halay_log_fn)(void *arg, int level, const char *text);
enum { HALAY_LOG_TOLD = 4 };

enum {
    HALAY_FABRIC_RDMA = 1,         /* an RDMA device with an active port */
    HALAY_FABRIC_VERBS = 2,        /* the transport verbs is installed */
    HALAY_FABRIC_UCX = 4,          /* the transport ucx is installed */
    HALAY_NODE_OVERSUBSCRIBED = 8, /* more ranks than processors, where that is known */
    HALAY_NODE_SINGLE = 16         /* and only one processor */
};

/* Where a process listens for the others' connections (TCP). */
typedef struct halay_address {
    uint8_t family;  /* AF_INET or AF_INET6; 0: nowhere */
    uint8_t fabrics; /* HALAY_FABRIC_*, HALAY_NODE_*: what else its node has */
    uint16_t port;   /* network order */
    uint8_t ip[16];
} halay_address_t;

/* A process, as others of its node know it. The kernel gives a pid to another process later. */
typedef struct halay_process {
    uint64_t space; /* inode of the namespace that the pid is of; 0: nothing is known */
    uint64_t born;  /* clock ticks after the machine's start */
    int64_t pid;
} halay_process_t;

/* Where a rank runs. */
typedef struct halay_place {
    size_t size; /* of this struct, set by the caller */
    int node;
    char host[64];
    halay_address_t address;
    halay_process_t process; /* of a rank of this node, where it is known; else zeros */
} halay_place_t;

typedef struct halay_boot_info {
    size_t size;    /* of this struct, set by the caller */
    int processors; /* that the ranks of this node have, set by the caller; 0: not known */
    int rank, nranks;
    int local_rank, local_nranks;
    int node, nnodes;
    uint64_t epoch;     /* equal on all ranks: 1 for the first open of this job, then 2, ... */
    uint8_t job[16];    /* hash of the job's name: the same on all ranks, different for each job */
    uint8_t secret[16]; /* random, the same on all ranks, known to no one else */
    char host[64];      /* of this node */
    char launcher[32];  /* "pmix", "inproc", ... */
    /*
     * A listening, non-blocking socket of this process and its address, which all ranks know. It
     * belongs to the bootstrap and outlives the epoch, so that a connection of the next one waits
     * in its queue. address.family is 0 where the bootstrap has none.
     */
    int listen_fd;
    halay_address_t address;
    uint64_t kept;  /* hash of the rows that halay-bench calibrate has kept, set by the caller; 0:
                       none */
    int kept_alike; /* 1: it is the same on all ranks; -1: it is not; 0: nobody has compared it */
} halay_boot_info_t;

/*
 * The rank of this process, where no launcher says so: `boot_arg` of a halay_config_t whose `boot`
 * is NULL. All ranks meet at rank 0 in each halay_init(), so a process may be another rank the next
 * time. Where rank 0 is, `address` says; or an allgather of the program's, which then is called
 * once by each rank, and by the same thread as its test and free.
 */
typedef struct halay_boot_rank {
    size_t size; /* of this struct */
    int rank, nranks;
    const char *address; /* of rank 0, "host:port"; nobody else listens there */
    const char *secret;  /* which only the ranks know; NULL: HALAY_SECRET, where that is set; else,
                            with an allgather, one that rank 0 draws and the allgather carries */
    /*
     * Brings the `bytes` at in of each rank, as many on all, to out, in the order of ranks. 0: it
     * is done, or has begun and *request (NULL before) is its own; else it has failed.
     */
    int (*allgather)(void *context, const void *in, void *out, size_t bytes, void **request);
    /* 1: it is done; 0: not yet; negative: it has failed. Does not block. */
    int (*test)(void *request);
    /* Ends the request, done or not. Does not block. 1: it may still use in and out, which are then
     * never freed; else 0. */
    int (*free)(void *request);
    void *context; /* of allgather */
} halay_boot_rank_t;

typedef struct halay_boot halay_boot_t; /* whatever the bootstrap makes of it */

typedef struct halay_boot_ops {
    size_t size; /* of this struct */
    const char *name;

    /*
     * Is this process a task of a launcher that this bootstrap can talk to? 1 yes, 0 no. Does not
     * block and has no effect. *announced gets the number of ranks that the launcher's environment
     * promises (1 if it cannot be told). A table in halay_config_t is never asked.
     */
    int (*probe)(int *announced);

    /*
     * Joins the job and fills *info. Collective over the job in the first epoch: one exchange of
     * one record a node. May block, at most until deadline_ns from now. HALAY_EBOOT (logged with
     * cause and remedy); HALAY_EOVER (the job ends, logged); HALAY_ESTATE (this process holds the
     * job open already, or it inherited a rank's environment without being that rank).
     */
    int (*open)(void *arg, halay_log_fn log, void *log_arg, uint64_t deadline_ns,
                halay_boot_info_t *info, halay_boot_t **boot);

    /* Where this rank runs. Does not block. HALAY_EINVAL: there is no such rank. */
    int (*get)(const halay_boot_t *boot, int rank, halay_place_t *place);

    /* A verdict or halay_comm_shrink has said that this rank of the epoch is lost: the next open
     * does not wait for it. Does not block. Does nothing where no process can join later. */
    void (*lost)(halay_boot_t *boot, int rank);

    /* How many processes wait to be ranks of the next epoch: rank 0 gets their number, others get
     * 0. Does not block. HALAY_EUNSUPPORTED: the job has always the same ranks. */
    int (*newcomers)(halay_boot_t *boot, int *count);

    /* Ends this epoch. Takes NULL. Does not block. */
    void (*close)(halay_boot_t *boot);

    /* Before close: this process does not open again, and the next epoch does not wait for its end.
     * Blocks for at most a second. Does nothing where epochs do not wait for ranks that left. */
    void (*leave)(halay_boot_t *boot);
} halay_boot_ops_t;

#ifdef __cplusplus
}
#endif
#endif
