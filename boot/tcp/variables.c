/* SPDX-License-Identifier: Apache-2.0 */
/*
 * variables.c - what torchrun or a Kubernetes operator say in the environment, checked before
 * anything is sent. HALAY_RENDEZVOUS=host:port takes the place of MASTER_ADDR and
 * MASTER_PORT.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../common/job.h"
#include "tcp.h"

#define ALONE "; to run this process alone, set HALAY_JOB=none"

static const char *value_of(const char *name)
{
    const char *text = getenv(name);
    return text && *text ? text : NULL;
}

int hly_tcp_announced(int *announced)
{
    int n = hly_boot_number(value_of("WORLD_SIZE"), HLY_BOOT_RANKS_MAX);
    *announced = 1;
    if (hly_job_none())
        return 0;
    if (n > 1)
        *announced = n;
    return value_of("RANK") || value_of("WORLD_SIZE");
}

static int who_am_i(const struct hly_boot_log *log, struct hly_tcp_variables *v)
{
    const char *rank = value_of("RANK"), *size = value_of("WORLD_SIZE");
    const char *local = value_of("LOCAL_RANK"), *local_size = value_of("LOCAL_WORLD_SIZE");
    if (!rank || !size)
        return hly_boot_error(log, HALAY_EBOOT,
                              "%s is set, but %s is not: the launcher (torchrun, or a Kubernetes, "
                              "Spark or Ray job) has to set both" ALONE,
                              rank ? "RANK" : "WORLD_SIZE", rank ? "WORLD_SIZE" : "RANK");
    v->nranks = hly_boot_number(size, HLY_BOOT_RANKS_MAX);
    v->rank = hly_boot_number(rank, HLY_BOOT_RANKS_MAX);
    if (v->nranks < 1)
        return hly_boot_error(log, HALAY_EBOOT,
                              "WORLD_SIZE is '%.40s': it takes a number from 1 to %d" ALONE, size,
                              HLY_BOOT_RANKS_MAX);
    if (v->rank < 0 || v->rank >= v->nranks)
        return hly_boot_error(
            log, HALAY_EBOOT,
            "RANK is '%.40s': with WORLD_SIZE=%d it takes a number from 0 to %d" ALONE, rank,
            v->nranks, v->nranks - 1);
    int nlocal = local_size ? hly_boot_number(local_size, v->nranks) : v->nranks;
    int mine = local ? hly_boot_number(local, v->nranks) : 0;
    if (nlocal < 1 || mine < 0 || mine >= nlocal)
        return hly_boot_error(
            log, HALAY_EBOOT,
            "LOCAL_RANK is '%.40s' and LOCAL_WORLD_SIZE '%.40s': with WORLD_SIZE=%d they take "
            "numbers, the first less than the second, which is at most %d" ALONE,
            local ? local : "", local_size ? local_size : "", v->nranks, v->nranks);
    snprintf(v->rank_text, sizeof v->rank_text, "%d", v->rank);
    return HALAY_OK;
}

static int where_is_it(const struct hly_boot_log *log, struct hly_tcp_variables *v)
{
    const char *place = value_of("HALAY_RENDEZVOUS");
    const char *address = value_of("MASTER_ADDR"), *port = value_of("MASTER_PORT");
    if (place) {
        if (!hly_boot_split(place, v->address, &v->port))
            return hly_boot_error(log, HALAY_EBOOT,
                                  "HALAY_RENDEZVOUS is '%.80s': it takes host:port, the host being "
                                  "rank 0's (an IPv6 address in brackets)",
                                  place);
        v->ports[0] = v->port;
        v->nports = 1;
        return HALAY_OK;
    }
    if (!address || !port)
        return hly_boot_error(
            log, HALAY_EBOOT,
            "RANK and WORLD_SIZE (%d) are set, but %s is not, so rank 0 cannot be found: set "
            "MASTER_ADDR and MASTER_PORT (torchrun does), or HALAY_RENDEZVOUS=host:port, to rank "
            "0's host and the same port on all ranks" ALONE,
            v->nranks, address ? "MASTER_PORT" : "MASTER_ADDR");
    v->port = hly_boot_number(port, 65535);
    if (v->port < 1 || strlen(address) >= sizeof v->address)
        return hly_boot_error(log, HALAY_EBOOT,
                              "MASTER_ADDR is '%.80s' and MASTER_PORT '%.40s': they take the host "
                              "of rank 0 and a number from 1 to 65535",
                              address, port);
    strcpy(v->address, address);
    for (int k = 0; k < HLY_TCP_PORTS; k++) {
        int p = v->port + HLY_TCP_PORT_OFFSET + k;
        v->ports[k] = p > 65535 ? p - 65535 + 1023 : p;
    }
    v->nports = HLY_TCP_PORTS;
    return HALAY_OK;
}

int hly_tcp_variables(const struct hly_boot_log *log, struct hly_tcp_variables *v)
{
    const char *run = value_of("TORCHELASTIC_RUN_ID");
    const char *restart = value_of("TORCHELASTIC_RESTART_COUNT");
    memset(v, 0, sizeof *v);
    v->door_fd = -1;
    int rc = who_am_i(log, v);
    if (!rc && v->nranks > 1)
        rc = where_is_it(log, v);
    if (rc)
        return rc;
    snprintf(v->port_text, sizeof v->port_text, "%d", v->port);
    /* Not the address, which may differ (a service's name here, localhost there), nor the size,
     * which rank 0 compares. */
    const char *key[4] = {"halay tcp", v->port_text, run ? run : "", restart ? restart : ""};
    hly_boot_hash(key, 4, v->key.job);
    snprintf(v->claim, sizeof v->claim, "%s %d %d %.200s %.20s", v->address, v->port, v->nranks,
             run ? run : "", restart ? restart : "");
    v->key.has_secret = hly_boot_secret(v->key.secret);
    return HALAY_OK;
}

int hly_tcp_given(const struct hly_boot_log *log, const halay_boot_rank_t *from,
                  uint64_t deadline_ns, struct hly_tcp_variables *v)
{
    const size_t least = offsetof(halay_boot_rank_t, allgather);
    halay_boot_rank_t given = {0};
    memset(v, 0, sizeof *v);
    v->door_fd = -1;
    if (from->size >= least) /* of an older program it is shorter */
        memcpy(&given, from, from->size < sizeof given ? from->size : sizeof given);
    const bool fits = given.nranks >= 1 && given.nranks <= HLY_BOOT_RANKS_MAX;
    const bool is_rank = fits && given.rank >= 0 && given.rank < given.nranks;
    if (given.allgather
            ? !fits
            : !is_rank || !given.address || !hly_boot_split(given.address, v->address, &v->port))
        return hly_boot_error(
            log, HALAY_EINVAL,
            "rank %d of %d at '%.80s' cannot be: the program gives halay_init a rank below the "
            "number of ranks, which is at most %d, and rank 0's host:port or an allgather",
            given.rank, given.nranks, given.address ? given.address : "", HLY_BOOT_RANKS_MAX);
    v->given = true;
    v->rank = given.rank;
    v->nranks = given.nranks;
    v->key.has_secret = given.secret ? hly_boot_secret_of(given.secret, v->key.secret)
                                     : hly_boot_secret(v->key.secret);
    const int rc = given.allgather ? hly_tcp_gather(log, &given, deadline_ns, v) : HALAY_OK;
    if (rc)
        return rc;
    v->ports[0] = v->port;
    v->nports = 1;
    snprintf(v->rank_text, sizeof v->rank_text, "%d", v->rank);
    snprintf(v->port_text, sizeof v->port_text, "%d", v->port);
    const char *key[2] = {"halay tcp, given", v->port_text};
    hly_boot_hash(key, 2, v->key.job);
    return HALAY_OK;
}
