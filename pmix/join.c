/* SPDX-License-Identifier: Apache-2.0 */
/*
 * join.c - the one PMIx life of a process: init, one fence over one record a node, finalize.
 *
 * The first rank of each node puts one record, which lists the node's ranks. Nobody is told who the
 * first ranks are: rank 0 is one, and the lowest rank that no record has listed yet is the next. So
 * the nodes are found, and numbered without gaps, in the same order on all ranks.
 *
 * Nothing may stay connected to PMIx: a launcher takes the death of a connected task for the death
 * of the job, and ending the job is Halay's business.
 */
#define _GNU_SOURCE
#include <assert.h>
#include <errno.h>
#include <pmix.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "identity.h"

#define RECORD_KEY "halay.node.1" /* the number is the record's version */

struct record {
    uint32_t version, nranks;
    uint64_t nonce;     /* of rank 0's node: tells two jobs of one name apart */
    uint8_t secret[16]; /* of rank 0's node */
    char host[HLY_PMIX_HOST_BYTES];
    struct {
        uint32_t rank, flags;
    } ranks[];
};
_Static_assert(sizeof(struct record) == 96, "a node's record is 96 + 8 bytes a rank");

/* A call into PMIx that is under way. Outlives PMIx_Finalize, after which PMIx calls back
 * no more. */
struct call {
    pthread_mutex_t lock;
    pthread_cond_t done_cond;
    int done;
    pmix_status_t status;
};

struct joining {
    const struct hly_boot_log *log;
    struct timespec end;
    uint64_t deadline_ns;
    pmix_proc_t me;
    struct call fence;
    int nlocal;
    uint32_t *local; /* the ranks of this node, rising */
};

static void call_init(struct call *call)
{
    pthread_condattr_t attr;
    memset(call, 0, sizeof *call);
    pthread_mutex_init(&call->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&call->done_cond, &attr);
    pthread_condattr_destroy(&attr);
}

static void call_finish(struct call *call)
{
    pthread_cond_destroy(&call->done_cond);
    pthread_mutex_destroy(&call->lock);
}

static void call_done(pmix_status_t status, void *arg)
{
    struct call *call = arg;
    pthread_mutex_lock(&call->lock);
    call->status = status;
    call->done = 1;
    pthread_cond_signal(&call->done_cond);
    pthread_mutex_unlock(&call->lock);
}

/* PMIX_ERR_TIMEOUT if the call is still under way at the deadline. */
static pmix_status_t call_wait(struct call *call, const struct timespec *end)
{
    pmix_status_t status = PMIX_ERR_TIMEOUT;
    int rc = 0;
    pthread_mutex_lock(&call->lock);
    while (!call->done && rc != ETIMEDOUT)
        rc = pthread_cond_timedwait(&call->done_cond, &call->lock, end);
    if (call->done)
        status = call->status;
    pthread_mutex_unlock(&call->lock);
    return status;
}

/* Rounded up, at least 1: PMIx takes 0 for no limit. */
static int seconds_left(const struct joining *j)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec >= j->end.tv_sec ? 1 : (int)(j->end.tv_sec - now.tv_sec) + 1;
}

/* One of the facts that the launcher gives about the whole job (or this rank). */
static int fact(const struct joining *j, const char *key, pmix_rank_t rank, pmix_value_t **value)
{
    pmix_proc_t proc;
    PMIX_LOAD_PROCID(&proc, j->me.nspace, rank);
    pmix_status_t status = PMIx_Get(&proc, key, NULL, 0, value);
    if (status != PMIX_SUCCESS)
        hly_boot_say(j->log, 2, "the launcher does not give %s: %s", key,
                     PMIx_Error_string(status));
    return status == PMIX_SUCCESS ? HALAY_OK : HALAY_EBOOT;
}

static int job_size(struct joining *j, int *nranks)
{
    pmix_value_t *value;
    int rc = fact(j, PMIX_JOB_SIZE, PMIX_RANK_WILDCARD, &value);
    if (rc == HALAY_OK) {
        uint32_t n = value->type == PMIX_UINT32 ? value->data.uint32 : 0;
        PMIX_VALUE_RELEASE(value);
        if (n >= 1 && n <= HLY_PMIX_RANKS_MAX && j->me.rank < n) {
            *nranks = (int)n;
            return HALAY_OK;
        }
    }
    hly_boot_say(j->log, 0,
                 "the launcher's PMIx server does not say how many ranks the job has (%s): "
                 "use a launcher with PMIx 3 or newer",
                 PMIX_JOB_SIZE);
    return HALAY_EBOOT;
}

static int by_rank(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

/* "0,1,5" -> j->local; 0 if it is no such list or lacks this rank. */
static int parse_peers(struct joining *j, const char *text, int nranks)
{
    int self = 0;
    j->nlocal = 0;
    while (*text && j->nlocal < HLY_PMIX_LOCAL_MAX) {
        char *end;
        unsigned long rank = strtoul(text, &end, 10);
        if (end == text || rank >= (unsigned long)nranks || (*end && *end != ','))
            return 0;
        self |= rank == j->me.rank;
        j->local[j->nlocal++] = (uint32_t)rank;
        text = *end ? end + 1 : end;
    }
    qsort(j->local, (size_t)j->nlocal, sizeof j->local[0], by_rank);
    for (int i = 1; i < j->nlocal; i++)
        if (j->local[i] == j->local[i - 1])
            return 0;
    return self && !*text;
}

static int local_ranks(struct joining *j, struct hly_pmix_identity *id)
{
    pmix_value_t *value = NULL;
    int ok;
    j->local = malloc(HLY_PMIX_LOCAL_MAX * sizeof j->local[0]);
    if (!j->local)
        return HALAY_ENOMEM;
    if (id->nranks == 1) {
        ok = parse_peers(j, "0", 1);
    } else if (fact(j, PMIX_LOCAL_PEERS, PMIX_RANK_WILDCARD, &value) == HALAY_OK) {
        ok = value->type == PMIX_STRING && parse_peers(j, value->data.string, id->nranks);
        PMIX_VALUE_RELEASE(value);
    } else {
        ok = 0;
    }
    if (!ok) {
        hly_boot_say(j->log, 0,
                     "the launcher's PMIx server does not say which ranks share this node (%s): "
                     "use a launcher with PMIx 3 or newer",
                     PMIX_LOCAL_PEERS);
        return HALAY_EBOOT;
    }
    id->local_nranks = j->nlocal;
    for (int i = 0; i < j->nlocal; i++)
        if (j->local[i] == (uint32_t)id->rank)
            id->local_rank = i;
    return HALAY_OK;
}

static void host_name(const struct joining *j, char host[HLY_PMIX_HOST_BYTES])
{
    pmix_value_t *value;
    memset(host, 0, HLY_PMIX_HOST_BYTES);
    if (fact(j, PMIX_HOSTNAME, j->me.rank, &value) == HALAY_OK) {
        if (value->type == PMIX_STRING)
            snprintf(host, HLY_PMIX_HOST_BYTES, "%s", value->data.string);
        PMIX_VALUE_RELEASE(value);
    }
    if (!host[0] && gethostname(host, HLY_PMIX_HOST_BYTES - 1))
        snprintf(host, HLY_PMIX_HOST_BYTES, "unknown");
}

/* The first rank of a node tells who is on it. */
static int put_record(struct joining *j)
{
    size_t bytes = sizeof(struct record) + (size_t)j->nlocal * 8;
    struct record *record = calloc(1, bytes);
    pmix_value_t value;
    if (!record)
        return HALAY_ENOMEM;
    record->version = 1;
    record->nranks = (uint32_t)j->nlocal;
    host_name(j, record->host);
    for (int i = 0; i < j->nlocal; i++)
        record->ranks[i].rank = j->local[i];
    if (j->me.rank == 0 && (getrandom(record->secret, sizeof record->secret, 0) != 16 ||
                            getrandom(&record->nonce, sizeof record->nonce, 0) != 8)) {
        hly_boot_say(j->log, 0, "no random bytes for the job's secret: %s", strerror(errno));
        free(record);
        return HALAY_EBOOT;
    }
    assert(bytes <= 96 + 8 * (size_t)j->nlocal);
    memset(&value, 0, sizeof value);
    value.type = PMIX_BYTE_OBJECT;
    value.data.bo.bytes = (char *)record;
    value.data.bo.size = bytes;
    pmix_status_t status = PMIx_Put(PMIX_GLOBAL, RECORD_KEY, &value);
    if (status == PMIX_SUCCESS)
        status = PMIx_Commit();
    free(record);
    if (status != PMIX_SUCCESS) {
        hly_boot_say(j->log, 0, "cannot publish this node's record: PMIx says %s",
                     PMIx_Error_string(status));
        return HALAY_EBOOT;
    }
    return HALAY_OK;
}

static int fence(struct joining *j, int nranks)
{
    pmix_info_t info[2];
    bool collect = true;
    int seconds = seconds_left(j);
    memset(info, 0, sizeof info);
    PMIX_INFO_LOAD(&info[0], PMIX_COLLECT_DATA, &collect, PMIX_BOOL);
    PMIX_INFO_LOAD(&info[1], PMIX_TIMEOUT, &seconds, PMIX_INT);
    pmix_status_t status = PMIx_Fence_nb(NULL, 0, info, 2, call_done, &j->fence);
    if (status == PMIX_SUCCESS)
        status = call_wait(&j->fence, &j->end);
    if (status == PMIX_SUCCESS || status == PMIX_OPERATION_SUCCEEDED)
        return HALAY_OK;
    if (status == PMIX_ERR_TIMEOUT)
        hly_boot_say(
            j->log, 0,
            "not all of the %d ranks joined within %.1f s: a rank has not called halay_init, "
            "has died, or is slow to start (see HALAY_DEADLINE)",
            nranks, (double)j->deadline_ns / 1e9);
    else
        hly_boot_say(j->log, 0, "the ranks' exchange through the launcher failed: PMIx says %s",
                     PMIx_Error_string(status));
    return HALAY_EBOOT;
}

static int valid_record(const pmix_value_t *value, uint32_t rank, int nranks)
{
    if (value->type != PMIX_BYTE_OBJECT || value->data.bo.size < sizeof(struct record))
        return 0;
    const struct record *got = (const struct record *)value->data.bo.bytes;
    int ok = got->version == 1 && got->nranks >= 1 && got->nranks <= HLY_PMIX_LOCAL_MAX &&
             value->data.bo.size == sizeof *got + (size_t)got->nranks * 8;
    for (uint32_t i = 0; ok && i < got->nranks; i++)
        ok = got->ranks[i].rank < (uint32_t)nranks &&
             (i == 0 || got->ranks[i].rank > got->ranks[i - 1].rank);
    return ok && got->ranks[0].rank == rank && !got->host[HLY_PMIX_HOST_BYTES - 1];
}

/*
 * The record of the node whose first rank is `rank`; to be released. The fence has brought it to
 * this node, so nothing waits here. (PMIx_Get_nb would do as well, but leaks each value:
 * libpmix 4.2.2.)
 */
static int get_record(struct joining *j, uint32_t rank, int nranks, pmix_value_t **value)
{
    pmix_proc_t proc;
    pmix_info_t info;
    int seconds = seconds_left(j);
    PMIX_LOAD_PROCID(&proc, j->me.nspace, rank);
    memset(&info, 0, sizeof info);
    PMIX_INFO_LOAD(&info, PMIX_TIMEOUT, &seconds, PMIX_INT);
    pmix_status_t status = PMIx_Get(&proc, RECORD_KEY, &info, 1, value);
    if (status != PMIX_SUCCESS) {
        hly_boot_say(
            j->log, 0,
            "rank %u has left no record of its node: PMIx says %s; do all ranks run the same "
            "version of Halay?",
            rank, PMIx_Error_string(status));
        return HALAY_EBOOT;
    }
    if (valid_record(*value, rank, nranks))
        return HALAY_OK;
    PMIX_VALUE_RELEASE(*value);
    hly_boot_say(j->log, 0,
                 "the record of rank %u's node is not one of this version of Halay: run the same "
                 "version on all nodes",
                 rank);
    return HALAY_EBOOT;
}

/* node_of[rank] for all, from the records; adds the nodes to *id. */
static int read_records(struct joining *j, struct hly_pmix_identity *id, int32_t *node_of)
{
    pmix_value_t *value = NULL;
    int room = 0;
    memset(node_of, 0xff, (size_t)id->nranks * sizeof node_of[0]);
    for (int rank = 0; rank < id->nranks; rank++) {
        if (node_of[rank] >= 0)
            continue;
        if (id->nnodes == room) {
            room = room ? room * 2 : 4;
            void *hosts = realloc(id->hosts, (size_t)room * sizeof id->hosts[0]);
            if (!hosts)
                return HALAY_ENOMEM;
            id->hosts = hosts;
        }
        int rc = get_record(j, (uint32_t)rank, id->nranks, &value);
        if (rc)
            return rc;
        const struct record *record = (const struct record *)value->data.bo.bytes;
        if (rank == 0) {
            char nonce[24];
            const char *parts[2] = {id->nspace, nonce};
            snprintf(nonce, sizeof nonce, "%016llx", (unsigned long long)record->nonce);
            hly_boot_hash(parts, 2, id->job);
            memcpy(id->secret, record->secret, sizeof id->secret);
        }
        for (uint32_t i = 0; i < record->nranks; i++)
            node_of[record->ranks[i].rank] = id->nnodes;
        memcpy(id->hosts[id->nnodes++], record->host, HLY_PMIX_HOST_BYTES);
        PMIX_VALUE_RELEASE(value);
    }
    return HALAY_OK;
}

static int find_nodes(struct joining *j, struct hly_pmix_identity *id)
{
    int32_t *node_of = malloc((size_t)id->nranks * sizeof node_of[0]);
    int rc = node_of ? read_records(j, id, node_of) : HALAY_ENOMEM;
    if (rc)
        goto out;
    for (int pass = 0; pass < 2; pass++) { /* count, then fill */
        id->nruns = 0;
        for (int rank = 0; rank < id->nranks; rank++) {
            if (rank && node_of[rank] == node_of[rank - 1])
                continue;
            if (pass)
                id->runs[id->nruns] = (struct hly_pmix_run){rank, node_of[rank]};
            id->nruns++;
        }
        assert(id->nruns > 0);
        if (!pass)
            id->runs = malloc((size_t)id->nruns * sizeof id->runs[0]);
        if (!id->runs) {
            rc = HALAY_ENOMEM;
            goto out;
        }
    }
    id->node = node_of[id->rank];
out:
    free(node_of);
    return rc;
}

static int exchange(struct joining *j, struct hly_pmix_identity *id)
{
    int rc = job_size(j, &id->nranks);
    if (rc == HALAY_OK)
        rc = local_ranks(j, id);
    if (rc == HALAY_OK && j->local[0] == j->me.rank)
        rc = put_record(j);
    if (rc == HALAY_OK)
        rc = fence(j, id->nranks);
    if (rc == HALAY_OK)
        rc = find_nodes(j, id);
    return rc;
}

int hly_pmix_join(const struct hly_boot_log *log, uint64_t deadline_ns,
                  struct hly_pmix_identity *id)
{
    struct joining j = {.log = log, .deadline_ns = deadline_ns};
    memset(id, 0, sizeof *id);
    clock_gettime(CLOCK_MONOTONIC, &j.end);
    uint64_t ns = (uint64_t)j.end.tv_nsec + deadline_ns % 1000000000u;
    j.end.tv_sec += (time_t)(deadline_ns / 1000000000u + ns / 1000000000u);
    j.end.tv_nsec = (long)(ns % 1000000000u);

    pmix_status_t status = PMIx_Init(&j.me, NULL, 0);
    if (status != PMIX_SUCCESS) {
        hly_boot_say(
            log, 0,
            "cannot reach the launcher's PMIx server (PMIx_Init: %s): the launcher has ended, or "
            "this process has inherited the environment of another job; to let it run alone, start "
            "it "
            "with HALAY_LAUNCHER=none",
            PMIx_Error_string(status));
        return HALAY_EBOOT;
    }
    call_init(&j.fence);
    snprintf(id->nspace, sizeof id->nspace, "%s", j.me.nspace);
    id->rank = (int)j.me.rank;
    int rc = exchange(&j, id);
    if (rc == HALAY_ENOMEM)
        hly_boot_say(log, 0, "out of memory while joining the job");
    PMIx_Finalize(NULL, 0);
    call_finish(&j.fence);
    free(j.local);
    if (rc) {
        free(id->runs);
        free(id->hosts);
        memset(id, 0, sizeof *id);
    }
    return rc;
}
