/* SPDX-License-Identifier: Apache-2.0 */
/* nccl.c - communicators and collectives of the double. One mutex guards all of it. */
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../cuda/double.h"
#include "device/cuda/driver.h"
#include "inside.h"

int cuLaunchHostFunc(void *stream, hly_cu_host_fn *fn, void *arg);
int cuCtxGetDevice(int *device);
int cuStreamIsCapturing(void *stream, int *status);

enum { MEMBERS_MAX = 16, WAITING_MAX = 32, ORDER_MAX = 65536, NO_CONTEXT = 201 };
enum { ALLREDUCE, REDUCE_SCATTER, REDUCE, ALLGATHER, BROADCAST, EXCHANGE };

struct piece { /* of an exchange: to or from a peer */
    void *at;
    size_t bytes;
    bool there;
};

struct part {
    struct piece sent[MEMBERS_MAX], got[MEMBERS_MAX];
    struct comm *comm;
    struct op *op;
    void *in, *out, *stream; /* inside the GPU's memory */
    bool begun;
    uint64_t replays; /* that have begun */
};

struct op { /* of all members */
    struct op *next;
    int kind, type, op, root;
    size_t count;
    uint64_t number;
    uint32_t nbegun, nleft;
    uint64_t replays; /* of a graph, that have ended */
    bool done;
    struct part part[MEMBERS_MAX];
};

struct meeting {
    struct meeting *next;
    uint64_t id;
    uint32_t n, joined, left, aborted;
    bool taken[MEMBERS_MAX];
    struct op *ops;
};

struct comm {
    struct comm *next; /* of those that were aborted: streams may still come to them */
    struct meeting *meeting;
    uint32_t me, nwaiting;
    int looks, device;
    uint64_t launched;
    bool open, aborted, finalized, hangs;
    struct part *waiting[WAITING_MAX]; /* not in the stream yet */
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct nccl_double_settings settings = {.version = 22809};
static struct nccl_double_counts counts;
static struct {
    uint64_t id[ORDER_MAX];
    uint32_t at[MEMBERS_MAX], known;
} order; /* of launches */
static struct meeting *meetings;
static struct comm *aborted;
static uint64_t ids, calls, fail_at;
static const char *fail_name;
static int fail_result, broken;
static __thread int grouped; /* depth */
static __thread struct comm *grouped_comm;

/* ------------------------------------------------------------------ control */

static void __attribute__((constructor)) ask_environment(void)
{
    const char *value = getenv("NCCL_DOUBLE");
    char text[128], *rest = text, *word;
    snprintf(text, sizeof(text), "%s", value ? value : "");
    while ((word = strtok_r(rest, " ", &rest)))
        if (sscanf(word, "version=%d", &settings.version) != 1 &&
            sscanf(word, "in_progress=%d", &settings.in_progress) != 1) {
            fprintf(stderr, "NCCL_DOUBLE: what is %s?\n", word);
            abort();
        }
}

struct nccl_double_settings *nccl_double_settings(void)
{
    return &settings;
}

struct nccl_double_counts nccl_double_counts(void)
{
    pthread_mutex_lock(&mutex);
    const struct nccl_double_counts c = counts;
    pthread_mutex_unlock(&mutex);
    return c;
}

void nccl_double_fail(const char *name, uint64_t nth, int result)
{
    pthread_mutex_lock(&mutex);
    calls = 0;
    fail_name = name;
    fail_at = nth;
    fail_result = result;
    pthread_mutex_unlock(&mutex);
}

uint64_t nccl_double_calls(void)
{
    pthread_mutex_lock(&mutex);
    const uint64_t n = calls;
    pthread_mutex_unlock(&mutex);
    return n;
}

void nccl_double_break(int result)
{
    pthread_mutex_lock(&mutex);
    broken = result;
    pthread_mutex_unlock(&mutex);
}

/* Takes the mutex. What the call has to answer, if not 0. */
static int begin(const char *name)
{
    pthread_mutex_lock(&mutex);
    if (fail_name && strcmp(name, fail_name) != 0)
        return 0;
    return ++calls == fail_at ? fail_result : 0;
}

static int end(int result)
{
    pthread_mutex_unlock(&mutex);
    return result;
}

static int misuse(const char *what)
{
    fprintf(stderr, "NCCL's double: %s\n", what);
    counts.misused++;
    return HLY_NCCL_INVALID_USAGE;
}

int ncclGetVersion(int *version)
{
    static unsigned asked;
    pthread_mutex_lock(&mutex);
    *version = settings.other_version && ++asked % 2 ? settings.other_version : settings.version;
    pthread_mutex_unlock(&mutex);
    return 0;
}

const char *ncclGetErrorString(int result)
{
    static const char *const text[] = {
        "no error",         "unhandled cuda error", "unhandled system error", "internal error",
        "invalid argument", "invalid usage",        "remote process exited",  "in progress"};
    return result >= 0 && result < 8 ? text[result] : "unknown";
}

const char *ncclGetLastError(void *comm)
{
    (void)comm;
    return "said by the double";
}

/* ------------------------------------------------------------------ communicators */

int ncclGetUniqueId(hly_nccl_id_t *id)
{
    const int rc = begin("ncclGetUniqueId");
    if (rc)
        return end(rc);
    memset(id, 0x3c, sizeof(*id));
    ids++;
    memcpy(id->bytes, &ids, sizeof(ids));
    return end(0);
}

static struct meeting *meeting_of(uint64_t id, int n)
{
    struct meeting *m = meetings;
    while (m && m->id != id)
        m = m->next;
    if (m)
        return m;
    m = calloc(1, sizeof(*m));
    if (!m)
        abort();
    *m = (struct meeting){.next = meetings, .id = id, .n = (uint32_t)n};
    return meetings = m;
}

int ncclCommInitRankConfig(void **comm, int n, hly_nccl_id_t id, int rank,
                           struct hly_nccl_config *config)
{
    uint64_t number;
    int device, rc = begin("ncclCommInitRankConfig");
    if (rc)
        return end(rc);
    memcpy(&number, id.bytes, sizeof(number));
    if (n < 1 || n > MEMBERS_MAX || rank < 0 || rank >= n || id.bytes[127] != 0x3c ||
        config->magic != HLY_NCCL_MAGIC || config->size != sizeof(*config) || config->blocking)
        return end(misuse("a wrong id, rank or config"));
    const int none = cuCtxGetDevice(&device);
    if (none)
        return end(none == NO_CONTEXT ? misuse("no context is current") : HLY_NCCL_CUDA_ERROR);
    struct meeting *m = meeting_of(number, n);
    if (m->n != (uint32_t)n || m->taken[rank])
        return end(misuse("two have one rank, or another number of ranks"));
    struct comm *c = calloc(1, sizeof(*c));
    if (!c)
        abort();
    *c = (struct comm){.meeting = m,
                       .me = (uint32_t)rank,
                       .looks = settings.in_progress,
                       .device = device,
                       .hangs = settings.hangs != 0};
    if (!counts.comms) /* another job */
        memset(&order, 0, sizeof(order));
    m->taken[rank] = true;
    m->joined++;
    counts.comms++;
    *comm = c;
    return end(HLY_NCCL_IN_PROGRESS);
}

static bool is_over(const struct op *op, const struct comm *c)
{
    return op->done || c->aborted;
}

static void compute(const struct meeting *m, struct op *op)
{
    const bool scatters = op->kind == REDUCE_SCATTER, gathers = op->kind == ALLGATHER;
    const size_t all = op->count * (scatters || gathers ? m->n : 1), e = element_bytes(op->type);
    char *sum = malloc(all * e + 1);
    if (!sum)
        abort();
    for (uint32_t i = m->n; i-- > 0;) {
        const void *in = op->part[i].in;
        if (gathers)
            memcpy(sum + i * op->count * e, in, op->count * e);
        else if (op->kind == BROADCAST ? (int)i == op->root : i == m->n - 1)
            memcpy(sum, in, all * e);
        else if (op->kind != BROADCAST)
            combine(sum, in, all, op->type, op->op);
    }
    for (uint32_t i = 0; i < m->n; i++)
        if (op->kind != REDUCE || (int)i == op->root)
            memcpy(op->part[i].out, sum + (scatters ? i * op->count * e : 0),
                   (scatters ? op->count : all) * e);
    free(sum);
    op->done = true;
    counts.collectives++;
}

/* Sends and receives of one group of calls, which all members make. */
static void exchange(const struct meeting *m, struct op *op)
{
    for (uint32_t from = 0; from < m->n; from++)
        for (uint32_t to = 0; to < m->n; to++) {
            const struct piece *sent = &op->part[from].sent[to], *got = &op->part[to].got[from];
            if (sent->there != got->there || sent->bytes != got->bytes)
                misuse("a send without its receive, or of another length");
            else if (sent->bytes)
                memcpy(got->at, sent->at, sent->bytes);
        }
    op->done = true;
    counts.collectives++;
}

static void make(const struct meeting *m, struct op *op)
{
    if (op->kind == EXCHANGE)
        exchange(m, op);
    else
        compute(m, op);
}

/* On a stream. */
static void perform(void *arg)
{
    struct part *p = arg;
    struct op *op = p->op;
    pthread_mutex_lock(&mutex);
    p->begun = true;
    if (++op->nbegun == p->comm->meeting->n && !p->comm->hangs && !p->comm->meeting->aborted)
        make(p->comm->meeting, op);
    pthread_cond_broadcast(&changed);
    while (!is_over(op, p->comm))
        pthread_cond_wait(&changed, &mutex);
    op->nleft++;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mutex);
}

/* On a stream, for a graph: again and again. */
static void perform_again(void *arg)
{
    struct part *p = arg;
    struct op *op = p->op;
    struct meeting *m = p->comm->meeting;
    pthread_mutex_lock(&mutex);
    const uint64_t mine = p->replays++;
    counts.replays++;
    if (p->comm->aborted) {
        pthread_mutex_unlock(&mutex);
        return;
    }
    if (++op->nbegun == m->n && !p->comm->hangs && !m->aborted) {
        make(m, op);
        op->done = false;
        op->nbegun = 0;
        op->replays++;
    }
    pthread_cond_broadcast(&changed);
    while (op->replays <= mine && !p->comm->aborted)
        pthread_cond_wait(&changed, &mutex);
    pthread_mutex_unlock(&mutex);
}

/* With the mutex, which it gives away: what waits goes to the streams. */
static int enqueue(struct comm *c)
{
    int rc = 0;
    for (uint32_t i = 0; i < c->nwaiting && !rc; i++) {
        struct part *p = c->waiting[i];
        int captured = 0;
        pthread_mutex_unlock(&mutex);
        rc = cuStreamIsCapturing(p->stream, &captured);
        rc = rc ? rc : cuLaunchHostFunc(p->stream, captured ? perform_again : perform, p);
        pthread_mutex_lock(&mutex);
    }
    c->nwaiting = 0;
    return rc ? HLY_NCCL_CUDA_ERROR : 0;
}

/* Does a graph run that has a collective of it? */
static bool in_graph(const struct comm *c)
{
    for (const struct op *op = c->meeting->ops; op; op = op->next)
        if (op->part[c->me].replays > op->replays)
            return true;
    return false;
}

int ncclCommGetAsyncError(void *comm, int *result)
{
    struct comm *c = comm;
    const int rc = begin("ncclCommGetAsyncError");
    if (rc)
        return end(rc);
    if (c->aborted)
        return end(misuse("a communicator is used after its end"));
    *result = broken;
    if (!broken && c->meeting->aborted)
        *result = HLY_NCCL_REMOTE_ERROR;
    else if (!broken && c->finalized && in_graph(c))
        *result = HLY_NCCL_IN_PROGRESS;
    else if (!broken && ((!c->open && c->meeting->joined < c->meeting->n) || c->looks-- > 0))
        *result = HLY_NCCL_IN_PROGRESS;
    else if (!broken) {
        c->looks = 0;
        c->open = true;
        *result = enqueue(c);
    }
    return end(0);
}

int ncclCommFinalize(void *comm)
{
    struct comm *c = comm;
    const int rc = begin("ncclCommFinalize");
    c->finalized = !rc;
    c->looks = settings.in_progress;
    return end(rc ? rc : HLY_NCCL_IN_PROGRESS);
}

/* All have left: nobody looks at it any more. */
static void leave(struct comm *c)
{
    struct meeting *m = c->meeting, **at = &meetings;
    counts.comms--;
    if (++m->left < m->joined)
        return;
    while (*at != m)
        at = &(*at)->next;
    *at = m->next;
    while (m->ops) {
        struct op *next = m->ops->next;
        free(m->ops);
        m->ops = next;
    }
    free(m);
}

/* A thread of a stream may still come to something of this communicator, or be in it. */
static bool in_stream(const struct comm *c)
{
    for (const struct op *op = c->meeting->ops; op; op = op->next)
        if (op->part[c->me].begun && op->nleft < op->nbegun)
            return true;
    return false;
}

int ncclCommDestroy(void *comm)
{
    struct comm *c = comm;
    (void)begin("");
    if (!c->finalized)
        misuse("it was not finalized");
    for (int i = 0; i < 1000 && in_stream(c); i++) {
        pthread_mutex_unlock(&mutex);
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
        pthread_mutex_lock(&mutex);
    }
    leave(c);
    free(c);
    return end(0);
}

int ncclCommAbort(void *comm)
{
    struct comm *c = comm;
    (void)begin("");
    const int hangs = settings.abort_hangs_ms;
    pthread_mutex_unlock(&mutex);
    if (hangs)
        nanosleep(&(struct timespec){hangs / 1000, hangs % 1000 * 1000000L}, NULL);
    pthread_mutex_lock(&mutex);
    c->aborted = true;
    c->meeting->aborted++;
    c->next = aborted;
    aborted = c;
    counts.comms--;
    pthread_cond_broadcast(&changed);
    return end(0);
}

/* ------------------------------------------------------------------ collectives */

int ncclGroupStart(void)
{
    const int rc = begin("ncclGroupStart");
    grouped += !rc;
    return end(rc);
}

/* What was added is on its way. */
static int go(struct comm *c)
{
    if (!c)
        return 0;
    c->looks = settings.in_progress;
    return c->looks ? HLY_NCCL_IN_PROGRESS : enqueue(c);
}

int ncclGroupEnd(void)
{
    const int rc = begin("ncclGroupEnd");
    struct comm *c = grouped_comm;
    if (--grouped)
        return end(rc);
    grouped_comm = NULL;
    return end(rc ? rc : go(c));
}

/* Launches are of one order on all GPUs, whatever communicators they are on. */
static void check_order(const struct comm *c)
{
    const uint32_t n = order.at[c->device]++;
    if (n >= ORDER_MAX)
        abort();
    if (n == order.known)
        order.id[order.known++] = c->meeting->id;
    counts.crossed += order.id[n] != c->meeting->id;
}

static struct op *op_of(struct comm *c, const struct op *like)
{
    struct op **at = &c->meeting->ops;
    while (*at && (*at)->number != c->launched)
        at = &(*at)->next;
    if (!*at) {
        *at = malloc(sizeof(**at));
        if (!*at)
            abort();
        **at = *like;
        (*at)->number = c->launched;
    }
    c->launched++;
    return *at;
}

static int add(const char *name, const struct op *like, const void *in, void *out, struct comm *c,
               void *stream)
{
    const size_t bytes = like->count * element_bytes(like->type);
    const int rc = begin(name);
    if (rc)
        return end(rc);
    if (!c->open || c->aborted || c->finalized || c->looks > 0 || c->nwaiting == WAITING_MAX)
        return end(misuse("a communicator is not open, in progress, or over"));
    const uint32_t n = c->meeting->n;
    const bool reads = like->kind != BROADCAST || (int)c->me == like->root;
    const bool writes = like->kind != REDUCE || (int)c->me == like->root;
    void *from =
        cuda_double_inside((uint64_t)(uintptr_t)in, bytes * (like->kind == REDUCE_SCATTER ? n : 1));
    void *to =
        cuda_double_inside((uint64_t)(uintptr_t)out, bytes * (like->kind == ALLGATHER ? n : 1));
    if (!element_bytes(like->type) || like->op < 0 || like->op > 3 || (reads && !from) ||
        (writes && !to))
        return end(misuse("a wrong type or operation, or memory of no GPU"));
    if (settings.one_order)
        check_order(c);
    struct op *op = op_of(c, like);
    if (op->kind != like->kind || op->type != like->type || op->op != like->op ||
        op->root != like->root || op->count != like->count)
        return end(misuse("members make different collectives"));
    op->part[c->me] = (struct part){.comm = c, .op = op, .in = from, .out = to, .stream = stream};
    c->waiting[c->nwaiting++] = &op->part[c->me];
    if (grouped && grouped_comm && grouped_comm != c)
        return end(misuse("a group of two communicators"));
    grouped_comm = grouped ? c : NULL;
    return end(grouped ? 0 : go(c));
}

int ncclAllReduce(const void *in, void *out, size_t count, int type, int op, void *comm,
                  void *stream)
{
    const struct op like = {.kind = ALLREDUCE, .type = type, .op = op, .count = count};
    return add("ncclAllReduce", &like, in, out, comm, stream);
}

int ncclReduceScatter(const void *in, void *out, size_t count, int type, int op, void *comm,
                      void *stream)
{
    const struct op like = {.kind = REDUCE_SCATTER, .type = type, .op = op, .count = count};
    return add("ncclReduceScatter", &like, in, out, comm, stream);
}

int ncclReduce(const void *in, void *out, size_t count, int type, int op, int root, void *comm,
               void *stream)
{
    const struct op like = {.kind = REDUCE, .type = type, .op = op, .root = root, .count = count};
    return add("ncclReduce", &like, in, out, comm, stream);
}

int ncclAllGather(const void *in, void *out, size_t count, int type, void *comm, void *stream)
{
    const struct op like = {.kind = ALLGATHER, .type = type, .count = count};
    return add("ncclAllGather", &like, in, out, comm, stream);
}

int ncclBroadcast(const void *in, void *out, size_t count, int type, int root, void *comm,
                  void *stream)
{
    const struct op like = {.kind = BROADCAST, .type = type, .root = root, .count = count};
    return add("ncclBroadcast", &like, in, out, comm, stream);
}

static int add_piece(const char *name, void *at, size_t bytes, int peer, bool sends, struct comm *c,
                     void *stream)
{
    const struct op like = {.kind = EXCHANGE};
    const int rc = begin(name);
    if (rc)
        return end(rc);
    void *inside = cuda_double_inside((uint64_t)(uintptr_t)at, bytes);
    if (!grouped || peer < 0 || (uint32_t)peer >= c->meeting->n || !inside)
        return end(
            misuse("a send or receive outside of a group, to nobody, or of no GPU's memory"));
    struct part *p = c->nwaiting ? c->waiting[c->nwaiting - 1] : NULL;
    if (!grouped_comm || !p || p->op->kind != EXCHANGE) {
        if (!c->open || c->aborted || c->finalized || c->looks > 0 || c->nwaiting == WAITING_MAX)
            return end(misuse("a communicator is not open, in progress, or over"));
        struct op *op = op_of(c, &like);
        if (op->kind != EXCHANGE)
            return end(misuse("members make different collectives"));
        if (settings.one_order)
            check_order(c);
        p = &op->part[c->me];
        *p = (struct part){.comm = c, .op = op, .stream = stream};
        c->waiting[c->nwaiting++] = p;
    }
    if (grouped_comm && grouped_comm != c)
        return end(misuse("a group of two communicators"));
    grouped_comm = c;
    struct piece *piece = sends ? &p->sent[peer] : &p->got[peer];
    if (piece->there)
        return end(misuse("two messages between two members"));
    *piece = (struct piece){inside, bytes, true};
    return end(0);
}

int ncclSend(const void *in, size_t count, int type, int peer, void *comm, void *stream)
{
    return add_piece("ncclSend", (void *)(uintptr_t)in, count * element_bytes(type), peer, true,
                     comm, stream);
}

int ncclRecv(void *out, size_t count, int type, int peer, void *comm, void *stream)
{
    return add_piece("ncclRecv", out, count * element_bytes(type), peer, false, comm, stream);
}
