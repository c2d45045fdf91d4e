/* SPDX-License-Identifier: Apache-2.0 */
/*
 * servers.h - whom the ranks ask who they are: the driver that Halay's own ranks meet at, and,
 * where libpmix is there, a PMIx server for programs that need one (MPI).
 */
#ifndef HALAYRUN_SERVERS_H
#define HALAYRUN_SERVERS_H

#include <poll.h>
#include <sys/types.h>

#include <halay/launch.h>

enum { HLY_SERVERS = 2 };

struct hly_servers {
    struct hly_server {
        const halay_launch_ops_t *ops; /* NULL: it is not there */
        halay_launch_t *server;
    } all[HLY_SERVERS];
};

/* Loads and starts them. Non-zero if Halay's own cannot be, which has been said. */
int hly_servers_start(struct hly_servers *servers, const halay_launch_params_t *params,
                      int verbose);
/* As launch.h has them: of a head or an agent. */
int hly_servers_event(const struct hly_servers *servers, halay_launch_event_t *event);
void hly_servers_command(const struct hly_servers *servers, enum halay_launch_what what, int rank,
                         int value);
const char *hly_servers_address(const struct hly_servers *servers);
void hly_servers_settle(const struct hly_servers *servers, int nranks);
int hly_servers_env(const struct hly_servers *servers, int rank, char ***env);
void hly_servers_started(const struct hly_servers *servers, int rank, pid_t pid);
void hly_servers_ended(const struct hly_servers *servers, int rank, int status, int state,
                       const char *why);
/* It called PMIx_Init and has not called PMIx_Finalize. */
int hly_servers_connected(const struct hly_servers *servers, int rank);
/* Fills HLY_SERVERS of them. */
void hly_servers_poll(const struct hly_servers *servers, struct pollfd *fds);
/* In how many milliseconds it is to be called again; -1: when there is something to read. */
int hly_servers_progress(const struct hly_servers *servers);
/* How often Halay's ranks have met. */
uint64_t hly_servers_epoch(const struct hly_servers *servers);
/* 1 and a slot whose process lives and is to be killed: the others have met without it. Each once.
 */
int hly_servers_condemned(const struct hly_servers *servers, int *slot);
int hly_servers_aborted(const struct hly_servers *servers, halay_launch_abort_t *abort);
void hly_servers_stop(struct hly_servers *servers);

#endif
