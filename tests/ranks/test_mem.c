/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Registered memory: calls whose buffers lie in it register nothing; what it costs where it is
 * refused; when an entry dies; a rank that does not answer can change nothing later; bad arguments.
 * Memory that peers map is read in place; what they have not read when a call is given up, never.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ranks.h"

extern HALAY_API const halay_transport_ops_t halay_transport_v7_shm;

#define NRANKS 4 /* at most */
#define COUNT  20000
#define BYTES  (COUNT * sizeof(int32_t))
#define RANGES 256

static int nranks = NRANKS;

/* ---------------------------------------------------------------- a transport that counts */

static _Thread_local unsigned registered, deregistered; /* of this rank */
static size_t refused_from = SIZE_MAX;                  /* bytes that cannot be registered */

static int count_register(halay_transport_t *t, const halay_mem_params_t *params, halay_mem_t **mem)
{
    if (params->bytes >= refused_from)
        return HALAY_ENOMEM;
    registered++;
    return halay_transport_v7_inproc.register_mem(t, params, mem);
}

static void count_deregister(halay_transport_t *t, halay_mem_t *mem)
{
    deregistered++;
    halay_transport_v7_inproc.deregister_mem(t, mem);
}

/* ---------------------------------------------------------------- memory that is lent */

static const halay_transport_ops_t *lending;
static _Thread_local unsigned lent;
static _Thread_local bool slow; /* to read what it is lent */
static const char *algorithm;   /* of run_lent */

static int count_poll(halay_transport_t *t, halay_event_t events[], int max)
{
    int n = lending->poll(t, events, max);
    bool is_lent = n > 0 && events[n - 1].kind == HALAY_EVENT_LENT;
    lent += is_lent;
    if (is_lent && slow)
        usleep(2000);
    return n;
}

static void run_lent(void (*fn)(struct rank *), uint64_t deadline_ns, bool shm, uint64_t most)
{
    halay_transport_ops_t counting = shm ? halay_transport_v7_shm : halay_transport_v7_inproc;
    halay_inproc_faults_t faults = {.seed = 8,
                                    .eager_bytes = 4096,
                                    .delay_polls_max = 3,
                                    .reorder = 1,
                                    .cache = 1,
                                    .lend_bytes = 64,
                                    .lend_most = most,
                                    .hide_capabilities = HALAY_CAN_LAND | HALAY_CAN_PUT};
    lending = shm ? &halay_transport_v7_shm : &halay_transport_v7_inproc;
    counting.poll = count_poll;
    struct ranks_options o = {.nranks = nranks,
                              .faults = &faults,
                              .transport = &counting,
                              .algorithm = algorithm,
                              .deadline_ns = deadline_ns,
                              .keep = deadline_ns != 0};
    ranks_run(&o, fn, NULL);
}

static void run(void (*fn)(struct rank *), uint64_t deadline_ns, bool shm)
{
    halay_transport_ops_t counting = halay_transport_v7_inproc;
    halay_inproc_faults_t faults = {
        .seed = 7, .eager_bytes = 64, .late_put_polls = 6, .hide_capabilities = HALAY_CAN_LAND};
    counting.register_mem = count_register;
    counting.deregister_mem = count_deregister;
    struct ranks_options o = {.nranks = nranks,
                              .shm = shm,
                              .faults = &faults,
                              .transport = shm ? NULL : &counting,
                              .deadline_ns = deadline_ns,
                              .keep = deadline_ns != 0};
    ranks_run(&o, fn, NULL);
}

/* ---------------------------------------------------------------- calls, and what they register */

static void fill(const struct rank *r, int32_t *in, int salt)
{
    for (int i = 0; i < COUNT; i++)
        in[i] = i % 1009 * (r->rank + 1) + salt;
}

static int32_t sum_at(int i, int salt)
{
    return i % 1009 * (nranks * (nranks + 1) / 2) + nranks * salt;
}

/* Each collective that sends much, its results looked at. Returns what was registered for it. */
static unsigned calls(struct rank *r, int32_t *in, int32_t *out, int salt)
{
    const int part = COUNT / nranks;
    unsigned before = registered;
    fill(r, in, salt);
    CHECK(!halay_allreduce(in, out, COUNT, HALAY_INT32, HALAY_SUM, r->world), "allreduce");
    for (int i = 0; i < COUNT; i++)
        CHECK(out[i] == sum_at(i, salt), "allreduce: %d", i);
    CHECK(!halay_reduce_scatter(in, out, (size_t)part, HALAY_INT32, HALAY_SUM, r->world), "r_s");
    for (int i = 0; i < part; i++)
        CHECK(out[i] == sum_at(r->rank * part + i, salt), "reduce_scatter: %d", i);
    CHECK(!halay_allgather(in, out, (size_t)part, HALAY_INT32, r->world), "allgather");
    for (int i = 0; i < COUNT; i++)
        CHECK(out[i] == i % part % 1009 * (i / part + 1) + salt, "allgather: %d", i);
    CHECK(!halay_broadcast(in, COUNT, HALAY_INT32, 1, r->world), "broadcast");
    for (int i = 0; i < COUNT; i++)
        CHECK(in[i] == i % 1009 * 2 + salt, "broadcast: %d", i);
    return registered - before;
}

static int32_t *room(struct rank *r, size_t bytes)
{
    void *memory = NULL;
    CHECK(halay_mem_alloc(r->context, bytes, &memory) == HALAY_OK && memory, "alloc");
    CHECK((uintptr_t)memory % (size_t)sysconf(_SC_PAGESIZE) == 0, "not aligned to pages");
    CHECK(bytes < 2 << 20 || (uintptr_t)memory % (2 << 20) == 0, "not aligned to a huge page");
    for (size_t i = 0; i < bytes; i++)
        CHECK(((char *)memory)[i] == 0, "byte %zu is not zero", i);
    return memory;
}

static void counted(struct rank *r)
{
    int32_t *in = malloc(BYTES), *out = malloc(BYTES), *both = room(r, 2 * BYTES);
    int32_t *large = room(r, (2 << 20) + 1);
    halay_range_t range[2];
    /* The requests' scratch is registered now, and stays so: those in the call cache have their
     * own. */
    calls(r, both, both + COUNT, 0);
    calls(r, in, out, 0);
    CHECK(calls(r, in, out, 1) > 0, "nothing is registered in any case");
    CHECK(!halay_mem_register(r->context, in, BYTES, &range[0]), "register");
    CHECK(!halay_mem_register(r->context, out, BYTES, &range[1]), "register");
    for (int i = 0; i < 3; i++)
        CHECK(calls(r, in, out, i) == 0, "registered memory was registered again");
    for (int i = 0; i < 3; i++)
        CHECK(calls(r, both, both + COUNT, i) == 0, "allocated memory was registered again");
    CHECK(calls(r, large + 1025, both, 4) == 0, "in the middle");
    CHECK(!halay_mem_deregister(r->context, range[1]), "deregister");
    CHECK(calls(r, in, out, 5) > 0, "the entry lives on");
    CHECK(!halay_mem_deregister(r->context, range[0]), "deregister");
    CHECK(halay_mem_deregister(r->context, range[0]) == HALAY_ESTATE, "deregistered twice");
    CHECK(!halay_mem_free(r->context, both), "free");
    CHECK(halay_mem_free(r->context, both) == HALAY_EINVAL, "freed twice");
    calls(r, in, out, 6);
    free(in);
    free(out); /* `large` goes with the context */
}

/* Half of it, or all, cannot be registered: the results are right all the same. */
static void refused(struct rank *r)
{
    int32_t *in = room(r, BYTES), *out = room(r, BYTES);
    for (int i = 0; i < 3; i++)
        calls(r, in, out, i);
    CHECK(refused_from > 1 || registered == 0, "%u were registered", registered);
    CHECK(!halay_mem_free(r->context, in), "free");
}

/* ---------------------------------------------------------------- in use; bad arguments */

static void in_use(struct rank *r)
{
    int32_t *in = room(r, BYTES), *out = malloc(BYTES);
    halay_range_t range, more[RANGES];
    halay_request_t *request = NULL;
    int n = 0;
    fill(r, in, 3);
    CHECK(!halay_mem_register(r->context, out, BYTES, &range), "register");
    CHECK(!halay_barrier(r->world), "barrier");
    if (r->rank == 0)
        usleep(50000); /* the others cannot complete before */
    CHECK(!halay_iallreduce(in, out, COUNT, HALAY_INT32, HALAY_SUM, r->world, &request), "post");
    CHECK(halay_mem_deregister(r->context, range) == HALAY_ESTATE, "it is in use");
    CHECK(halay_mem_free(r->context, in) == HALAY_ESTATE, "it is in use");
    CHECK(!halay_request_wait(request), "wait");
    for (int i = 0; i < COUNT; i++)
        CHECK(out[i] == sum_at(i, 3), "allreduce: %d", i);
    while (halay_mem_register(r->context, out + n, 4, &more[n]) == HALAY_OK)
        CHECK(++n < RANGES, "there is no bound");
    CHECK(n == RANGES - 2, "%d ranges", n);
    CHECK(!halay_mem_deregister(r->context, more[100]), "deregister");
    CHECK(!halay_mem_register(r->context, out, BYTES, &range), "the place is free again");
    CHECK(halay_mem_deregister(r->context, more[100]) == HALAY_ESTATE, "another's place");
    CHECK(!halay_mem_free(r->context, in) && !halay_mem_free(r->context, NULL), "free");
    free(out);
}

static void wrong(struct rank *r)
{
    char memory[64];
    void *address;
    halay_range_t range = 0;
    halay_context_t *c = r->context;
    CHECK(halay_mem_register(NULL, memory, 64, &range) == HALAY_EINVAL, "no context");
    CHECK(halay_mem_register(c, NULL, 64, &range) == HALAY_EINVAL, "NULL");
    CHECK(halay_mem_register(c, memory, 0, &range) == HALAY_EINVAL, "nothing");
    CHECK(halay_mem_register(c, memory, SIZE_MAX, &range) == HALAY_EINVAL, "beyond all memory");
    CHECK(halay_mem_register(c, memory, 64, NULL) == HALAY_EINVAL, "no place for it");
    CHECK(halay_mem_deregister(c, 0) == HALAY_EINVAL, "0");
    CHECK(halay_mem_deregister(c, UINT64_MAX) == HALAY_EINVAL, "none");
    CHECK(halay_mem_deregister(NULL, 1) == HALAY_EINVAL, "no context");
    CHECK(halay_mem_alloc(c, 0, &address) == HALAY_EINVAL, "nothing");
    CHECK(halay_mem_alloc(c, 64, NULL) == HALAY_EINVAL, "no place for it");
    CHECK(halay_mem_alloc(c, SIZE_MAX, &address) == HALAY_ENOMEM, "all memory");
    CHECK(halay_mem_alloc(c, SIZE_MAX / 4, &address) == HALAY_ENOMEM, "more than there is");
    CHECK(halay_mem_free(c, memory) == HALAY_EINVAL, "not ours");
    CHECK(halay_mem_free(NULL, memory) == HALAY_EINVAL, "no context");
    CHECK(!halay_mem_register(c, memory, 64, &range), "register");
    CHECK(halay_mem_free(c, memory) == HALAY_EINVAL, "registered, not allocated");
}

/* A child is refused, and does not have the memory. */
static void forked(struct rank *r)
{
    unsigned char there;
    halay_range_t range;
    if (r->rank > 0)
        return;
    void *memory = room(r, BYTES), *other;
    CHECK(!halay_mem_register(r->context, &there, 1, &range), "register");
    pid_t pid = fork();
    CHECK(pid >= 0, "fork");
    if (pid == 0)
        _exit(!(halay_mem_register(r->context, &there, 1, &range) == HALAY_EFORKED &&
                halay_mem_deregister(r->context, range) == HALAY_EFORKED &&
                halay_mem_alloc(r->context, 1, &other) == HALAY_EFORKED &&
                halay_mem_free(r->context, memory) == HALAY_EFORKED &&
                mincore(memory, 1, &there) == -1 && errno == ENOMEM));
    int status;
    CHECK(waitpid(pid, &status, 0) == pid && status == 0, "the child: %#x", (unsigned)status);
    CHECK(!mincore(memory, 1, &there), "the parent has it no more");
}

/* ---------------------------------------------------------------- a rank that does not answer */

static pthread_barrier_t all;
static atomic_uint died;

/* The keys of those who gave up on it are dead; its late call changes nothing; other calls go on.
 */
static void silent(struct rank *r)
{
    int32_t *in = room(r, BYTES), *out = room(r, BYTES), *copy = malloc(BYTES);
    halay_comm_t *other;
    CHECK(!halay_comm_dup(r->world, &other), "dup");
    calls(r, in, out, 1);
    pthread_barrier_wait(&all);
    unsigned before = deregistered;
    if (r->rank != 1)
        CHECK(halay_broadcast(out, COUNT, HALAY_INT32, 1, other) < 0, "without its root");
    atomic_fetch_add(&died, deregistered - before);
    memcpy(copy, out, BYTES);
    pthread_barrier_wait(&all);
    if (r->rank == 1) {
        fill(r, in, 99);
        CHECK(halay_broadcast(in, COUNT, HALAY_INT32, 1, other) < 0, "the others gave it up");
    } else {
        for (uint64_t until = ranks_now_ns() + 300000000; ranks_now_ns() < until;)
            halay_context_progress(r->context, 1000000);
        CHECK(!memcmp(copy, out, BYTES), "rank %d: changed after the error", r->rank);
    }
    pthread_barrier_wait(&all);
    CHECK(died > 0, "no key has died");
    CHECK(calls(r, in, out, 2) <= 2, "more was registered than what had died");
    pthread_barrier_wait(&all);
    halay_finalize(r->context);
    free(copy);
}

/* ---------------------------------------------------------------- read in place */

static void in_place(struct rank *r, int32_t *out, int salt)
{
    fill(r, out, salt);
    CHECK(!halay_allreduce(HALAY_IN_PLACE, out, COUNT, HALAY_INT32, HALAY_SUM, r->world), "r");
    for (int i = 0; i < COUNT; i++)
        CHECK(out[i] == sum_at(i, salt), "in place: %d", i);
}

/* Peers map memory when they look at sockets, which is not at once. */
static bool have_begun(struct rank *r)
{
    int32_t mine = lent > 0 || r->rank == 0, least;
    CHECK(!halay_allreduce(&mine, &least, 1, HALAY_INT32, HALAY_MIN, r->world), "least");
    return least;
}

static void wait_until_lent(struct rank *r, int32_t *in, int32_t *out)
{
    int i = 0;
    do
        calls(r, in, out, i);
    while (!have_begun(r) && i++ < 2000);
    CHECK(i < 2000, "rank %d: %u were lent", r->rank, lent);
}

/* All ranks lend, or all but one; again and again, and from memory that comes and goes. */
static void read_there(struct rank *r)
{
    int32_t *plain = malloc(2 * BYTES);
    for (int round = 0; round < 12; round++) {
        int32_t *own = room(r, 2 * BYTES), *both = round % 4 == r->rank ? plain : own;
        for (int i = 0; i < 4; i++) {
            calls(r, both, both + COUNT, i);
            in_place(r, both, i);
        }
        CHECK(!halay_mem_free(r->context, own), "free");
    }
    CHECK(lent > 20, "rank %d: %u were lent", r->rank, lent);
    free(plain);
}

/* The same call again, and what it had lent is written as soon as it has returned. */
static void held(struct rank *r)
{
    int32_t *both = room(r, 2 * BYTES);
    wait_until_lent(r, both, both + COUNT);
    for (int i = 0; i < 60; i++) {
        fill(r, both, i);
        CHECK(!halay_allreduce(both, both + COUNT, COUNT, HALAY_INT32, HALAY_SUM, r->world), "h");
        for (int k = 0; k < COUNT; k++)
            CHECK(both[COUNT + k] == sum_at(k, i), "call %d: %d", i, k);
    }
    CHECK(lent > 60, "rank %d: %u were lent", r->rank, lent);
}

static void copied(struct rank *r)
{
    int32_t *both = room(r, 2 * BYTES);
    calls(r, both, both + COUNT, 1);
    CHECK(!lent, "%u were lent", lent);
}

/* Bytes of the memory without a name that this process has mapped, once each. */
static size_t shared_bytes(void)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512];
    struct {
        unsigned long inode, bytes;
    } seen[4096];
    size_t n = 0, sum = 0;
    CHECK(maps, "maps");
    while (fgets(line, sizeof(line), maps)) {
        unsigned long from, to, inode;
        if (!strstr(line, "memfd:halay") ||
            sscanf(line, "%lx-%lx %*s %*s %*s %lu", &from, &to, &inode) != 3)
            continue;
        size_t i = 0;
        while (i < n && seen[i].inode != inode)
            i++;
        if (i < n)
            continue;
        CHECK(n < 4096, "too many");
        seen[n].inode = inode;
        seen[n++].bytes = to - from;
        sum += to - from;
    }
    fclose(maps);
    return sum;
}

/* After calls of all sizes, from several communicators, one after the other and at once. */
static void at_rest(struct rank *r)
{
    enum { MOST = 1 << 18, REQUESTS = 6 };
    const size_t p = (size_t)r->nranks;
    int32_t *in = calloc(MOST, sizeof(*in)), *out = calloc(MOST * REQUESTS, sizeof(*out));
    halay_comm_t *other;
    CHECK(in && out && !halay_comm_dup(r->world, &other), "dup");
    for (int i = 0; i < MOST; i++)
        in[i] = i;
    for (size_t n = 64; n <= MOST; n *= 16)
        for (int c = 0; c < 2; c++) {
            halay_comm_t *comm = c ? other : r->world;
            CHECK(!halay_allreduce(in, out, n, HALAY_INT32, HALAY_SUM, comm), "allreduce");
            CHECK(!halay_reduce_scatter(in, out, n / p, HALAY_INT32, HALAY_SUM, comm), "r_s");
            CHECK(!halay_allgather(in, out, n / p, HALAY_INT32, comm), "allgather");
            CHECK(!halay_alltoall(in, out, n / p, HALAY_INT32, comm), "alltoall");
            CHECK(!halay_broadcast(in, n, HALAY_INT32, c, comm), "broadcast");
        }
    halay_request_t *request[REQUESTS];
    for (int i = 0; i < REQUESTS; i++)
        CHECK(!halay_iallreduce(in, out + i * MOST, MOST, HALAY_INT32, HALAY_SUM,
                                i % 2 ? other : r->world, &request[i]),
              "iallreduce");
    for (int i = 0; i < REQUESTS; i++)
        CHECK(!halay_request_wait(request[i]), "wait");
    for (int i = 0; i < MOST * REQUESTS; i++)
        CHECK(out[i] == (int32_t)p * (i % MOST), "%d: %d", i, out[i]);
    CHECK(!halay_barrier(r->world), "barrier");
    if (r->rank == 0) {
        const size_t bytes = shared_bytes();
        CHECK(bytes <= p << 22, "%zu ranks: %zu bytes each", p, bytes / p);
    }
    CHECK(!halay_barrier(r->world), "barrier");
    free(in);
    free(out);
}

/*
 * A call does not end before what it has lent was read: its caller writes
 * there next. The root finds the others' answers at once, while they are slow to read.
 */
static void read_first(struct rank *r)
{
    enum { N = 2048, ROUNDS = 30 };
    int32_t *data = room(r, N * sizeof(*data));
    do
        CHECK(!halay_broadcast(data, N, HALAY_INT32, 0, r->world), "broadcast");
    while (!have_begun(r));
    slow = r->rank != 0;
    for (int i = 0; i < ROUNDS; i++) {
        for (int k = 0; k < N; k++)
            data[k] = r->rank == 0 ? i * N + k : -1;
        if (r->rank == 0)
            usleep(3000); /* the others wait for it */
        CHECK(!halay_broadcast(data, N, HALAY_INT32, 0, r->world), "broadcast");
        for (int k = 0; r->rank > 0 && k < N; k++)
            CHECK(data[k] == i * N + k, "round %d, element %d: %d", i, k, data[k]);
        memset(data, 0x55, N * sizeof(*data));
    }
    CHECK(r->rank == 0 || lent > ROUNDS / 2, "rank %d: %u were lent", r->rank, lent);
    slow = false;
}

/*
 * The others wait for rank 1 in vain, and write into what they had lent to it. When it calls at
 * last, nothing comes of that; and they go on, without it having been cut off.
 */
static void outlasted(struct rank *r)
{
    int32_t *both = room(r, 2 * BYTES), *more = room(r, 2 * BYTES);
    halay_comm_t *other;
    int rc = 0;
    CHECK(!halay_comm_dup(r->world, &other), "dup");
    wait_until_lent(r, both, both + COUNT);
    pthread_barrier_wait(&all);
    fill(r, both, 5);
    if (r->rank != 1)
        rc = halay_allreduce(both, both + COUNT, COUNT, HALAY_INT32, HALAY_SUM, other);
    memset(both, 0x77, BYTES);
    CHECK(rc < 0 || r->rank == 1, "without rank 1");
    pthread_barrier_wait(&all);
    if (r->rank == 1) {
        fill(r, both, 5);
        rc = halay_allreduce(both, both + COUNT, COUNT, HALAY_INT32, HALAY_SUM, other);
        CHECK(rc < 0, "the others gave it up");
    } else {
        for (uint64_t until = ranks_now_ns() + 300000000; ranks_now_ns() < until;)
            halay_context_progress(r->context, 1000000);
    }
    pthread_barrier_wait(&all);
    for (int i = 0; i < 3; i++) {
        calls(r, both, both + COUNT, i);
        in_place(r, more, i);
    }
    pthread_barrier_wait(&all);
    halay_finalize(r->context);
}

/* An argument: the most ranks. */
int main(int argc, char **argv)
{
    const int most = argc > 1 ? atoi(argv[1]) : 16;
    setenv("HALAY_DEBUG", "error", 1); /* the failures here are wanted */
    run(counted, 0, false);
    for (refused_from = BYTES; refused_from; refused_from = refused_from > 2 ? 1 : 0)
        run(refused, 0, false);
    refused_from = SIZE_MAX;
    run(in_use, 0, false);
    run(in_use, 0, true);
    run(wrong, 0, false);
    run(forked, 0, false);
    pthread_barrier_init(&all, NULL, (unsigned)nranks);
    run(silent, 1000000000, false);
    for (int shm = 0; shm < 2; shm++) {
        run_lent(read_there, 0, shm, 0);
        run_lent(outlasted, 1000000000, shm, 0);
    }
    run_lent(read_first, 0, true, 0);
    algorithm = "allreduce=ring,reduce_scatter=ring,allgather=one_shot,broadcast=posted";
    for (nranks = 3; nranks <= most; nranks += nranks == 3 ? 2 : 11)
        run_lent(at_rest, 0, true, 0);
    nranks = NRANKS;
    algorithm = NULL;
    run_lent(in_use, 0, false, 0);
    run_lent(copied, 0, false, BYTES);
    pthread_barrier_destroy(&all);
    nranks = 2; /* whose segments are lent */
    pthread_barrier_init(&all, NULL, (unsigned)nranks);
    for (int shm = 0; shm < 2; shm++) {
        run_lent(held, 0, shm, 0);
        run_lent(read_there, 0, shm, 0);
        run_lent(outlasted, 1000000000, shm, 0);
    }
    return 0;
}
