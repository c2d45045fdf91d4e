/* SPDX-License-Identifier: Apache-2.0 */
/*
 * boot.h - contract of a bootstrap. It tells a process which rank of which job it is, where the
 * other ranks are, and a secret that only they know. All else goes over Halay's own connections.
 *
 * A bootstrap is one folder with one `const` table. A process may open, close and open again; each
 * open is a new epoch of the same job. Only the first has to reach the launcher, since the process
 * keeps the job's identity (docs/decisions/bootstraps.md#0002).
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

/* A plug-in logs through this function. level: 0 error, 1 warning, 2 info, 3 trace. HALAY_LOG_TOLD
 * is an error that another rank logs: it goes to config->error, and to this
 * rank's log as info. text
 * has no newline. */
typedef void (*halay_log_fn)(void *arg, int level, const char *text);
enum { HALAY_LOG_TOLD = 4 };

enum {
    HALAY_FABRIC_RDMA = 1,         /* an RDMA device with an active port */
    HALAY_FABRIC_VERBS = 2,        /* the transport verbs is installed */
    HALAY_FABRIC_UCX = 4,          /* the transport ucx is installed */
    HALAY_NODE_OVERSUBSCRIBED = 8, /* more ranks than processors, where that is known */
    HALAY_NODE_SINGLE = 16         /* the same, and the node has only one processor */
};

/* Where a process listens for the others' connections (TCP). */
typedef struct halay_address {
    uint8_t family;  /* AF_INET or AF_INET6; 0: nowhere */
    uint8_t fabrics; /* HALAY_FABRIC_*, HALAY_NODE_*: what else its node has */
    uint16_t port;   /* network order */
    uint8_t ip[16];
} halay_address_t;

/* Identifies a process among those of its node. A pid alone does not, since the kernel reuses
 * it. */
typedef struct halay_process {
    uint64_t space; /* inode of the pid's namespace; 0: the process is not known */
    uint64_t born;  /* start of the process, in clock ticks after boot */
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
    int processors; /* that the ranks of this node may use, set by the caller; 0: not known */
    int rank, nranks;
    int local_rank, local_nranks;
    int node, nnodes;
    uint64_t epoch;     /* equal on all ranks: 1 for the first open of this job, then 2, ... */
    uint8_t job[16];    /* hash of the job's name: the same on all ranks, different for each job */
    uint8_t secret[16]; /* random, the same on all ranks, known to no one else */
    char host[64];      /* of this node */
    char launcher[32];  /* "pmix", "inproc", ... */
    /*
     * A listening, non-blocking socket of this process, and its address, which all ranks know. The
     * bootstrap owns the socket and keeps it beyond the epoch, so that connections for the next
     * epoch wait in its queue. address.family is 0 if the bootstrap has none.
     */
    int listen_fd;
    halay_address_t address;
    uint64_t kept;  /* hash of the rows that halay-bench calibrate has kept, set by the caller; 0:
                       none */
    int kept_alike; /* 1: `kept` is the same on all ranks; -1: it differs; 0: not compared */
} halay_boot_info_t;

/*
 * The program itself gives the rank of this process, without a launcher: `boot_arg` of a
 * halay_config_t whose `boot` is NULL. All ranks connect to rank 0 in each halay_init(), so a
 * process may be another rank the next time. They find rank 0 by `address`; or by an allgather that
 * the program provides. Each rank calls it once, in the same thread as its test and free.
 */
typedef struct halay_boot_rank {
    size_t size; /* of this struct */
    int rank, nranks;
    const char *address; /* of rank 0, "host:port", a port that no other process uses */
    const char *secret;  /* which only the ranks know; NULL: HALAY_SECRET, where that is set; else,
                            with an allgather, one that rank 0 draws and the allgather carries */
    /*
     * Gathers `bytes` bytes from `in` of each rank, the same number on all, into out, in the order
     * of ranks. Returns 0 if it is done, or if it has begun and has set *request (NULL before);
     * else it has failed.
     */
    int (*allgather)(void *context, const void *in, void *out, size_t bytes, void **request);
    /* 1: it is done; 0: not yet; negative: it has failed. Does not block. */
    int (*test)(void *request);
    /* Ends the request, done or not. Does not block. Returns 1 if the request may still use in and
     * out, which Halay then never frees; else 0. */
    int (*free)(void *request);
    void *context; /* of allgather */
} halay_boot_rank_t;

typedef struct halay_boot halay_boot_t; /* an open bootstrap; its struct is its own */

typedef struct halay_boot_ops {
    size_t size; /* of this struct */
    const char *name;

    /*
     * Is this process a task of a launcher that this bootstrap can talk to? 1 yes, 0 no. Does not
     * block and has no effect. *announced gets the number of ranks in the launcher's environment (1
     * if it has none). The core does not call this for a table in halay_config_t.
     */
    int (*probe)(int *announced);

    /*
     * Joins the job and fills *info. Collective over the job in the first epoch: one exchange, with
     * one record for each node. May block, at most until deadline_ns from now. HALAY_EBOOT (logged
     * with cause and remedy); HALAY_EOVER (the job ends, logged); HALAY_ESTATE (this process holds
     * the job open already, or it inherited a rank's environment without being that rank).
     */
    int (*open)(void *arg, halay_log_fn log, void *log_arg, uint64_t deadline_ns,
                halay_boot_info_t *info, halay_boot_t **boot);

    /* Where this rank runs. Does not block. HALAY_EINVAL: there is no such rank. */
    int (*get)(const halay_boot_t *boot, int rank, halay_place_t *place);

    /* The core reports that this rank of the epoch is lost, by a verdict or halay_comm_shrink: the
     * next open does not wait for it. Does not block. Does nothing where no process can join
     * later. */
    void (*lost)(halay_boot_t *boot, int rank);

    /* Gives the number of processes that wait to be ranks of the next epoch, on rank 0; other ranks
     * get 0. Does not block. HALAY_EUNSUPPORTED: the job always has the same ranks. */
    int (*newcomers)(halay_boot_t *boot, int *count);

    /* Ends this epoch. Takes NULL. Does not block. */
    void (*close)(halay_boot_t *boot);

    /* Called before close: this process will not open again, so the next epoch does not wait for
     * it. Blocks for at most a second. Does nothing if epochs do not wait for ranks that have
     * left. */
    void (*leave)(halay_boot_t *boot);
} halay_boot_ops_t;

#ifdef __cplusplus
}
#endif
#endif
