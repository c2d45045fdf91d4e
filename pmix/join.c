/* SPDX-License-Identifier: Apache-2.0 */
/*
 * join.c - the one PMIx life of a process: init, the node's meeting, one fence over one record a
 * node (and one more where that carries no data), finalize.
 *
 * Nothing may stay connected to PMIx: a launcher takes the death of a connected task for the death
 * of the job, and ending the job is Halay's business. But where the process has loaded an MPI that
 * is still to begin: that is going to be connected itself, and servers of OpenPMIx 4 do not answer
 * all that is asked in a second life of the same task. There the one life lasts to the process's
 * end, and MPI shares it.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pmix.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "absent.h"
#include "records.h"

#define HEAR_NS   500000000ull
#define DEPUTY_NS 2900000000ull
#define EXCUSE_NS 60000000000ull /* nodes seldom begin a job at times that differ by more */

/* The last error that was logged, since the node's other ranks are told as well. */
struct heard {
    const struct hly_boot_log *log;
    char error[HLY_NODE_TEXT];
};

struct joining {
    const struct hly_boot_log *log;
    uint64_t deadline_ns;
    pmix_proc_t me;
    struct hly_pmix_call call;
    uint32_t *local; /* the ranks of this node, rising */
    struct hly_node node;
};

static void hear(void *arg, int level, const char *text)
{
    struct heard *heard = arg;
    if (level == 0)
        snprintf(heard->error, sizeof heard->error, "%s", text);
    if (heard->log->fn)
        heard->log->fn(heard->log->arg, level, text);
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
    return hly_boot_error(j->log, HALAY_EBOOT,
                          "the launcher's PMIx server does not say how many ranks the job has "
                          "(%s): use a launcher with PMIx 3 or newer",
                          PMIX_JOB_SIZE);
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
    j->node.nlocal = 0;
    while (*text && j->node.nlocal < HLY_PMIX_LOCAL_MAX) {
        char *end;
        unsigned long rank = strtoul(text, &end, 10);
        if (end == text || rank >= (unsigned long)nranks || (*end && *end != ','))
            return 0;
        self |= rank == j->me.rank;
        j->local[j->node.nlocal++] = (uint32_t)rank;
        text = *end ? end + 1 : end;
    }
    qsort(j->local, (size_t)j->node.nlocal, sizeof j->local[0], by_rank);
    for (int i = 1; i < j->node.nlocal; i++)
        if (j->local[i] == j->local[i - 1])
            return 0;
    return self && !*text;
}

static void host_name(const struct joining *j, pmix_rank_t rank, char *host, size_t bytes)
{
    pmix_value_t *value;
    memset(host, 0, bytes);
    if (fact(j, PMIX_HOSTNAME, rank, &value) == HALAY_OK) {
        if (value->type == PMIX_STRING)
            snprintf(host, bytes, "%s", value->data.string);
        PMIX_VALUE_RELEASE(value);
    }
}

/* For OpenPMIx 4, which in messages may give every node the peers of the last one. */
static int peers_by_host(struct joining *j, int nranks)
{
    char mine[256], other[256]; /* names may differ in their last characters */
    host_name(j, j->me.rank, mine, sizeof mine);
    j->node.nlocal = 0;
    for (uint32_t rank = 0; mine[0] && rank < (uint32_t)nranks; rank++) {
        host_name(j, rank, other, sizeof other);
        if (!other[0] || j->node.nlocal == HLY_PMIX_LOCAL_MAX)
            return 0;
        if (!strcmp(mine, other))
            j->local[j->node.nlocal++] = rank;
    }
    return mine[0] != 0;
}

static int local_ranks(struct joining *j, struct hly_boot_identity *id)
{
    pmix_value_t *value = NULL;
    int ok;
    j->local = malloc(HLY_PMIX_LOCAL_MAX * sizeof j->local[0]);
    if (!j->local)
        return HALAY_ENOMEM;
    if (id->nranks == 1) {
        ok = parse_peers(j, "0", 1);
    } else {
        ok = fact(j, PMIX_LOCAL_PEERS, PMIX_RANK_WILDCARD, &value) == HALAY_OK;
        if (ok) {
            ok = value->type == PMIX_STRING && parse_peers(j, value->data.string, id->nranks);
            PMIX_VALUE_RELEASE(value);
        }
        ok = ok || peers_by_host(j, id->nranks);
    }
    if (!ok)
        return hly_boot_error(j->log, HALAY_EBOOT,
                              "the launcher's PMIx server does not say which ranks share this node "
                              "(%s): use a launcher with PMIx 3 or newer",
                              PMIX_LOCAL_PEERS);
    j->node.local = j->local;
    return HALAY_OK;
}

/* The rank that speaks of the other nodes: rank 0; and where it may not have come itself, the first
 * rank of the next node or of the next ones, as ranks are dealt out. */
static bool speaks(const struct joining *j, uint64_t waited_ns)
{
    const struct hly_node *node = &j->node;
    return j->me.rank == 0 || (node->role == HLY_ROLE_FIRST && waited_ns >= DEPUTY_NS &&
                               node->rank <= (uint32_t)node->nlocal);
}

/* Ranks of this node have not come. */
static int give_up(struct hly_node *node)
{
    char text[HLY_NODE_TEXT];
    hly_node_missing(node, false, text);
    hly_boot_say(node->log, 0, "%s", text);
    if (node->role == HLY_ROLE_FIRST)
        hly_node_fail(node, text);
    return HALAY_EBOOT;
}

static void say_others(const struct joining *j)
{
    const struct hly_node *node = &j->node;
    if (node->nlocal < node->nranks)
        hly_boot_remind(j->log, node->begin_ns, node->end_ns, "halay_init",
                        " for ranks of other nodes than %s: the launcher does not say which",
                        node->self.host);
    else
        hly_boot_remind(j->log, node->begin_ns, node->end_ns, "halay_init",
                        " for the launcher's PMIx server to exchange what the ranks say");
}

/* The fence is over, or a rank of this node has left, or the deadline is: PMIX_ERR_TIMEOUT. */
static int fence_wait(struct joining *j, pmix_status_t *status)
{
    struct hly_node *node = &j->node;
    for (;;) {
        uint64_t now = hly_boot_now_ns();
        const bool lacks = hly_node_lacks(node);
        if (lacks && now >= node->end_ns)
            return give_up(node);
        if (!lacks && hly_notices_give(&node->notices, now) && !hly_node_remind(node, true) &&
            speaks(j, now - node->begin_ns))
            say_others(j);
        struct pollfd p[2] = {{.fd = j->call.event_fd, .events = POLLIN},
                              {.fd = node->watch_fd, .events = POLLIN}};
        *status = PMIX_ERR_TIMEOUT;
        if (now >= node->end_ns)
            return HALAY_OK;
        const uint64_t notice_ns = hly_notices_due_ns(&node->notices);
        const int ms = hly_boot_ms(notice_ns < node->end_ns ? notice_ns : node->end_ns);
        const int timeout_ms = hly_node_timeout_ms(node);
        if (poll(p, 2, ms < timeout_ms ? ms : timeout_ms) < 0 && errno != EINTR)
            return hly_boot_errno(j->log, errno, "cannot wait for the other ranks");
        if (p[0].revents) {
            *status = hly_pmix_call_wait(&j->call, 0);
            return HALAY_OK;
        }
        int rc = hly_node_step(node);
        if (rc)
            return rc;
    }
}

/* The exchange has failed. A rank that has ended told its node why; the launcher may be sooner. */
static int hear_why(struct hly_node *node)
{
    const uint64_t end = hly_boot_now_ns() + HEAR_NS;
    int rc = HALAY_OK;
    while (!rc && node->watch_fd >= 0 && hly_boot_now_ns() < end) {
        struct pollfd p = {.fd = node->watch_fd, .events = POLLIN};
        poll(&p, 1, 10);
        rc = hly_node_step(node);
    }
    return rc;
}

static pmix_status_t fence_begin(struct joining *j)
{
    pmix_info_t info[2];
    bool collect = true;
    uint64_t now = hly_boot_now_ns(), end = j->node.end_ns;
    int seconds = now < end ? (int)((end - now) / 1000000000u) + 1 : 1;
    memset(info, 0, sizeof info);
    PMIX_INFO_LOAD(&info[0], PMIX_COLLECT_DATA, &collect, PMIX_BOOL);
    PMIX_INFO_LOAD(&info[1], PMIX_TIMEOUT, &seconds, PMIX_INT); /* 0 would be no limit */
    return PMIx_Fence_nb(NULL, 0, info, 2, hly_pmix_call_over, &j->call);
}

/*
 * This node's meeting has refused all. The launcher ends the exchange only when all ranks of the
 * job take part in it, and drops what was said on a node that has none left. So they take part, the
 * first one says why, and all stay until the other nodes know. Not where a rank has left, or has an
 * error of its own: then the exchange does not end, and ranks of this node would wait for it.
 */
static void excuse(struct joining *j, int nranks)
{
    const uint64_t now = hly_boot_now_ns();
    const uint64_t end = now + EXCUSE_NS < j->node.end_ns ? now + EXCUSE_NS : j->node.end_ns;
    if (j->node.nlocal == nranks || !j->node.refused || now >= end)
        return;
    if (j->node.role == HLY_ROLE_FIRST)
        hly_pmix_refusal_put(j->log, &j->node);
    if (fence_begin(j) == PMIX_SUCCESS)
        hly_pmix_call_wait(&j->call, end);
}

static int fence(struct joining *j, int nranks)
{
    int rc = HALAY_OK;
    pmix_status_t status = fence_begin(j);
    if (status == PMIX_SUCCESS)
        rc = fence_wait(j, &status);
    if (rc || status == PMIX_SUCCESS || status == PMIX_OPERATION_SUCCEEDED)
        return rc;
    if (status != PMIX_ERR_TIMEOUT && (rc = hear_why(&j->node)))
        return rc;
    const int level = hly_absent_level(&j->node);
    char text[HLY_NODE_TEXT];
    if (status == PMIX_ERR_TIMEOUT && hly_node_missing(&j->node, true, text))
        hly_boot_say(j->log, level, "%s", text);
    else if (status == PMIX_ERR_TIMEOUT && j->node.nlocal == nranks)
        hly_boot_say(j->log, level,
                     "all of the %d ranks are on %s, and the launcher's PMIx server has not "
                     "exchanged what they say within %.1f s",
                     nranks, j->node.self.host, (double)j->deadline_ns / 1e9);
    else if (status == PMIX_ERR_TIMEOUT)
        hly_boot_say(
            j->log, level,
            "not all of the %d ranks joined within %.1f s: those on %s did; which of other nodes "
            "did not, the launcher does not say: look at the output of the ranks there. If they "
            "are only slow to start, set HALAY_START_DEADLINE to more seconds",
            nranks, (double)j->deadline_ns / 1e9, j->node.self.host);
    else
        hly_boot_say(j->log, level, "the ranks' exchange through the launcher failed: PMIx says %s",
                     PMIx_Error_string(status));
    return HALAY_EBOOT;
}

/* Those of the node's ranks, for the table of this node alone. */
static int add_processes(const struct hly_node *node, struct hly_pmix_records *to)
{
    int n = 0;
    to->processes = calloc((size_t)node->nlocal, sizeof to->processes[0]);
    if (!to->processes)
        return HALAY_ENOMEM;
    for (int i = 0; i < node->nlocal; i++)
        if (hly_node_lists(node, i) && node->hellos[i].process.pid > 0) {
            to->processes[n].rank = (int32_t)node->local[i];
            to->processes[n++].process = node->hellos[i].process;
        }
    to->places.nprocesses = n;
    to->places.processes = to->processes;
    return HALAY_OK;
}

/* The first rank makes the node's table and hands it out; the others take it. */
static int settle(struct joining *j, struct hly_boot_identity *id)
{
    struct hly_node *node = &j->node;
    struct hly_pmix_records records;
    struct hly_pmix_table table = {0};
    int fd = -1;
    int rc = node->role == HLY_ROLE_MEMBER ? hly_node_take(node, &fd) : HALAY_OK;
    if (rc)
        return rc;
    if (fd < 0) {
        struct hly_pmix_reading reading = {j->log, node, j->me.nspace, node->end_ns, &j->call, 0};
        rc = hly_pmix_records_read(&reading, id->nranks, &records);
        if (!rc && node->role == HLY_ROLE_FIRST)
            rc = add_processes(node, &records);
        if (!rc && node->self.alone[0])
            rc = hly_pmix_table_keep(j->log, &records, &table);
        else if (!rc)
            rc = hly_pmix_table_make(j->log, &records, &fd);
        if (!rc && node->role == HLY_ROLE_FIRST && fd >= 0)
            hly_node_share(node, fd);
        if (!rc)
            hly_pmix_records_stay(&reading, &records);
        hly_pmix_records_finish(&records);
    }
    if (!rc && fd >= 0)
        rc = hly_pmix_table_map(j->log, fd, id->nranks, &table);
    if (fd >= 0)
        close(fd);
    if (rc)
        return rc;
    id->alike = table.kept == node->self.kept ? 1 : -1;
    id->places = table.places;
    memcpy(id->job, table.job, sizeof id->job);
    memcpy(id->secret, table.secret, sizeof id->secret);
    return HALAY_OK;
}

static int exchange(struct joining *j, struct hly_boot_identity *id)
{
    struct hly_node *node = &j->node;
    char host[HLY_BOOT_HOST_BYTES];
    int rc = job_size(j, &id->nranks);
    if (rc == HALAY_OK)
        rc = local_ranks(j, id);
    if (rc)
        return rc;
    host_name(j, j->me.rank, host, sizeof host);
    if (host[0])
        memcpy(node->self.host, host, sizeof host);
    node->nranks = id->nranks;
    rc = hly_node_meet(node);
    if (rc)
        excuse(j, id->nranks);
    if (rc == HALAY_OK && node->role != HLY_ROLE_MEMBER)
        rc = hly_pmix_record_put(j->log, node);
    if (rc == HALAY_OK)
        rc = fence(j, id->nranks);
    if (rc == HALAY_OK)
        rc = settle(j, id);
    id->listen_fd = node->listen_fd;
    return rc;
}

static void prepare(struct joining *j, const halay_boot_info_t *info, struct hly_boot_identity *id)
{
    char name[24];
    id->rank = (int)j->me.rank;
    j->node.log = j->log;
    j->node.nspace = j->me.nspace;
    j->node.server = hly_pmix_server();
    j->node.rank = j->me.rank;
    snprintf(name, sizeof name, "rank %u", j->me.rank);
    hly_boot_describe(name, info, &j->node.self);
}

/* What ends the job here ends it on the node. */
static void tell_others(struct joining *j, int rc, const char *error)
{
    if (rc == HALAY_ENOMEM && !*error)
        hly_boot_say(j->log, 0, "out of memory while joining the job");
    if (rc && j->node.role == HLY_ROLE_FIRST && !j->node.failure[0])
        hly_node_fail(&j->node, *error ? error : "it cannot join the job");
}

enum mpi { MPI_ABSENT, MPI_TO_COME, MPI_HERE, MPI_GONE };

/* What this process's MPI, if it has loaded one, says about itself; at any time, to anyone. */
static enum mpi ask_mpi(void)
{
    static const char *const names[] = {"libmpi.so.40", "libmpi.so.12", "libmpi.so.0"};
    void *handle = NULL;
    int begun = 0, ended = 0;
    for (size_t i = 0; !handle && i < sizeof names / sizeof names[0]; i++)
        handle = dlopen(names[i], RTLD_LAZY | RTLD_NOLOAD);
    if (!handle)
        return MPI_ABSENT;
    int (*initialized)(int *), (*finalized)(int *);
    *(void **)&initialized = dlsym(handle, "MPI_Initialized");
    *(void **)&finalized = dlsym(handle, "MPI_Finalized");
    if (initialized && finalized && !initialized(&begun))
        finalized(&ended);
    dlclose(handle);
    return ended ? MPI_GONE : begun ? MPI_HERE : MPI_TO_COME;
}

/*
 * A process attaches once only to the memory (ds21, ds12) in which a server of OpenPMIx 4 shares
 * what it knows: in a second PMIx life, ours after MPI's, most of it is not found, so it has to
 * come in messages. The variable is there already: who reads the environment meanwhile is not
 * harmed.
 */
static void ask_by_message(void)
{
    const char *modules = getenv("PMIX_GDS_MODULE");
    if (modules && strstr(modules, "ds21"))
        setenv("PMIX_GDS_MODULE", "hash", 1);
}

void hly_pmix_leave(void)
{
    PMIx_Finalize(NULL, 0);
}

/*
 * OpenPMIx 5 and newer free what they have freed when a second PMIx life ends, ours after MPI's.
 * That one is left to the end of the process.
 */
static bool ends_once(void)
{
    const char *version = PMIx_Get_version(); /* "OpenPMIx 4.2.2 (...)" */
    const char *number = strpbrk(version, "0123456789");
    return number && strtol(number, NULL, 10) > 4;
}

/* Whether somebody listens there in this network namespace: its table has a line for each socket,
 * "number: address:port address:port state ...". */
static bool listens(unsigned port)
{
    enum { LISTENING = 10 };
    char line[256];
    bool found = false;
    FILE *file = fopen("/proc/self/net/tcp", "re");
    for (unsigned at, state; file && !found && fgets(line, sizeof line, file);)
        /* NOLINTNEXTLINE(cert-err34-c): the kernel writes numbers of this size */
        found = sscanf(line, "%*u: %*x:%x %*x:%*x %x", &at, &state) == 2 && at == port &&
                state == LISTENING;
    if (file)
        fclose(file);
    return found;
}

/* A server of PMIx listens on the host's loopback, which a network of one's own does not have. */
static const char *of_a_container(void)
{
    static const char loopback[] = "tcp4://127.0.0.1:";
    const char *server = hly_pmix_server();
    const char *at = server ? strstr(server, loopback) : NULL;
    if (!at || listens((unsigned)strtoul(at + sizeof loopback - 1, NULL, 10)))
        return "";
    return "nobody listens at its address, 127.0.0.1. This process is in a container with a "
           "network of its own (give it the host's; Docker and Podman: --network=host; Apptainer: "
           "without --net), or ";
}

int hly_pmix_join(const struct hly_boot_log *log, uint64_t deadline_ns,
                  const halay_boot_info_t *info, struct hly_boot_identity *id, bool *stays)
{
    struct heard heard = {.log = log};
    const struct hly_boot_log ears = {hear, &heard};
    struct joining j = {.log = &ears, .deadline_ns = deadline_ns};
    memset(id, 0, sizeof *id);
    id->listen_fd = -1;
    j.node.begin_ns = hly_boot_now_ns();
    j.node.half_ns = j.node.begin_ns + deadline_ns / 2;
    j.node.end_ns = j.node.begin_ns + deadline_ns;
    hly_node_init(&j.node);
    if (hly_pmix_call_init(&j.call))
        return hly_boot_errno(log, errno, "cannot join the job");
    int rc = HALAY_EBOOT;
    enum mpi mpi = ask_mpi();
    if (mpi == MPI_GONE)
        ask_by_message();
    pmix_status_t status = hly_pmix_begin(&j.me, j.node.end_ns);
    if (status == PMIX_ERR_TIMEOUT) {
        hly_boot_say(
            log, 0,
            "PMIx_Init has not returned within %.1f s: the launcher's PMIx server does not answer, "
            "or this process lacks memory (ulimit -v). This process cannot join any more",
            (double)deadline_ns / 1e9);
        goto finish_call;
    }
    if (status != PMIX_SUCCESS) {
        hly_boot_say(log, 0,
                     "cannot reach the launcher's PMIx server (PMIx_Init: %s): %sthe launcher has "
                     "ended, or this process has inherited the environment of another job; to let "
                     "it run alone, start it with HALAY_JOB=none",
                     PMIx_Error_string(status), of_a_container());
        goto finish_call;
    }
    prepare(&j, info, id);
    rc = exchange(&j, id);
    tell_others(&j, rc, heard.error);
    if (rc && mpi == MPI_GONE)
        hly_boot_say(log, 0,
                     "MPI was finalized in this process before, and not every launcher's PMIx "
                     "server answers a task that joins again: call halay_init before MPI_Finalize");
    *stays = rc == HALAY_OK && mpi == MPI_TO_COME;
    if (!*stays && !(mpi == MPI_GONE && ends_once()))
        hly_pmix_leave();
    hly_node_leave(&j.node);
    free(j.local);
    if (rc) {
        if (id->listen_fd >= 0)
            close(id->listen_fd);
        memset(id, 0, sizeof *id);
        id->listen_fd = -1;
    }
finish_call:
    hly_pmix_call_finish(&j.call);
    return rc;
}
