/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_nomem.c - out of everything: the n-th allocation, descriptor or thread of one rank fails, in
 * init, in the first call of a collective, in finalize; ours alone are counted (by --wrap). Each
 * call ends on all ranks, with the right result or with the same error, within the deadline; and
 * nothing leaks, as the address sanitizer sees. Or, refuse: it never has memory for what others
 * share with it. test_ranks_nomem shm|inproc [all [FIRST] | refuse | SEED]
 */
#include <errno.h>
#include <execinfo.h>
#include <signal.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include "ranks.h"

extern const halay_transport_ops_t halay_transport_v7_shm;

enum { RANKS = 3, VICTIM = 1, CALLS = 7, COUNT = 20000 };
#define DEADLINE_NS UINT64_C(6000000000)
#define LATE_NS     UINT64_C(60000000000) /* under a load of 20 */

static _Thread_local int counting;
static uint32_t counted, fails_at; /* of the victim's thread alone; fails_at 0: none */
static bool refuses;               /* the victim maps no memory of others */
static int own[64];                /* its memory that is shared */

enum { WHERE = 12 };
static void *where[WHERE]; /* what failed was called from */
static int nwhere;

static int fails(void)
{
    if (!counting || ++counted != fails_at)
        return 0;
    nwhere = backtrace(where, WHERE);
    errno = ENOMEM;
    return 1;
}

/* A check has failed: which allocation was it? */
static void say_where(int number)
{
    (void)number;
    /* NOLINTNEXTLINE(bugprone-signal-handler): it is about to abort */
    backtrace_symbols_fd(where, nwhere, STDERR_FILENO);
}

#define FAILS(type_, name_, wrong_, parameters_, ...)                                              \
    type_ __real_##name_ parameters_;                                                              \
    type_ __wrap_##name_ parameters_;                                                              \
    type_ __wrap_##name_ parameters_                                                               \
    {                                                                                              \
        return fails() ? (wrong_) : __real_##name_(__VA_ARGS__);                                   \
    }

FAILS(void *, malloc, NULL, (size_t bytes), bytes)
FAILS(void *, calloc, NULL, (size_t n, size_t bytes), n, bytes)
FAILS(void *, realloc, NULL, (void *old, size_t bytes), old, bytes)
FAILS(void *, aligned_alloc, NULL, (size_t unit, size_t bytes), unit, bytes)
FAILS(char *, strdup, NULL, (const char *text), text)
FAILS(int, socket, -1, (int family, int type, int protocol), family, type, protocol)
FAILS(int, epoll_create1, -1, (int flags), flags)
FAILS(int, eventfd, -1, (unsigned value, int flags), value, flags)
FAILS(int, timerfd_create, -1, (int clock, int flags), clock, flags)
FAILS(int, pthread_create, EAGAIN,
      (pthread_t * thread, const pthread_attr_t *attr, void *(*run)(void *), void *arg), thread,
      attr, run, arg)

int __real_memfd_create(const char *name, unsigned flags);
int __wrap_memfd_create(const char *name, unsigned flags);
int __wrap_memfd_create(const char *name, unsigned flags)
{
    static int n;
    const int fd = fails() ? -1 : __real_memfd_create(name, flags);
    if (refuses && counting)
        own[n++ % 64] = fd;
    return fd;
}

void *__real_mmap(void *at, size_t bytes, int prot, int flags, int fd, off_t offset);
void *__wrap_mmap(void *at, size_t bytes, int prot, int flags, int fd, off_t offset);
void *__wrap_mmap(void *at, size_t bytes, int prot, int flags, int fd, off_t offset)
{
    bool mine = !refuses || !counting || fd < 0;
    for (int i = 0; i < 64 && !mine; i++)
        mine = own[i] == fd;
    if (mine && !fails())
        return __real_mmap(at, bytes, prot, flags, fd, offset);
    errno = ENOMEM;
    return (void *)-1;
}

/* ---------------------------------------------------------------- ranks */

struct one {
    pthread_t thread;
    struct halay_inproc_rank where;
    const halay_transport_ops_t *transport;
    int init, finalize, code[CALLS];
    char error[512], text[512];
    uint32_t in_init; /* counted then */
};

static void check_sum(const int32_t *out, int count, int call)
{
    for (int i = 0; i < count; i++)
        CHECK(out[i] == RANKS * (i + call) + RANKS * (RANKS - 1) / 2, "call %d, element %d: %d",
              call, i, out[i]);
}

static int make(halay_comm_t *world, int rank, int call, int32_t *in, int32_t *out)
{
    static const size_t counts[RANKS] = {5, 900, 0}, displs[RANKS] = {0, 10, 1000};
    size_t mine[RANKS], at[RANKS];
    int rc, n = call ? COUNT : 10;
    for (int r = 0; r < RANKS; r++) {
        mine[r] = counts[rank];
        at[r] = (size_t)r * 1000;
    }
    for (int i = 0; i < COUNT; i++)
        in[i] = i + call + rank;
    switch (call) {
    case 0:
    case 1:
        rc = halay_allreduce(in, out, (size_t)n, HALAY_INT32, HALAY_SUM, world);
        if (!rc)
            check_sum(out, n, call);
        return rc;
    case 2:
        return halay_broadcast(out, COUNT, HALAY_INT32, 2, world);
    case 3:
        return halay_allgather(in, out, COUNT / RANKS, HALAY_INT32, world);
    case 4:
        return halay_alltoallv(in, counts, displs, out, mine, at, HALAY_INT32, world);
    case 5:
        return halay_reduce_scatter(in, out, COUNT / RANKS, HALAY_INT32, HALAY_MAX, world);
    default:
        return halay_barrier(world);
    }
}

static void calls(struct one *s, halay_context_t *context)
{
    static int32_t in[RANKS][COUNT], out[RANKS][COUNT];
    halay_comm_t *world;
    halay_verdict_t verdict = {.size = sizeof(verdict)};
    CHECK(!halay_comm_world(context, &world), "no world");
    for (int call = 0; call < CALLS; call++) {
        s->code[call] = make(world, s->where.rank, call, in[s->where.rank], out[s->where.rank]);
        if (s->code[call] && !s->text[0] && !halay_comm_verdict(world, &verdict))
            strcpy(s->text, verdict.text);
    }
}

static void *run(void *arg)
{
    struct one *s = arg;
    halay_config_t config = HALAY_CONFIG_INIT;
    halay_context_t *context;
    config.boot = &halay_boot_v4_inproc;
    config.boot_arg = &s->where;
    config.transport = s->transport;
    config.deadline_ns = DEADLINE_NS;
    config.error = s->error;
    config.error_bytes = sizeof(s->error);
    counting = s->where.rank == VICTIM;
    s->init = halay_init(&config, &context);
    s->in_init = counting ? counted : 0;
    if (!s->init) {
        calls(s, context);
        s->finalize = halay_finalize(context);
    }
    counting = 0;
    return NULL;
}

/* ---------------------------------------------------------------- what is wanted */

/* The call that first failed; CALLS: none. */
static int first(const struct one *s)
{
    int call = 0;
    while (call < CALLS && !s->code[call])
        call++;
    return call;
}

/* All fail in one call, or some had ended it already: then in the next. Same code, same text. */
static void judge(const struct one all[RANKS], uint32_t n)
{
    const struct one *one = &all[0];
    CHECK(!all[0].init && !all[2].init, "n %u: another rank's init", n);
    CHECK(!all[VICTIM].init || (all[VICTIM].error[0] && first(&all[0]) == 0), "n %u: init", n);
    for (int r = 0; r < RANKS; r++)
        if (r != VICTIM && first(&all[r]) < first(one))
            one = &all[r];
    for (int r = 0; r < RANKS && first(one) < CALLS; r++) {
        const int call = first(&all[r]);
        if (all[r].init || (call == CALLS && first(one) == CALLS - 1))
            continue; /* finalize tells the latter */
        if (r == VICTIM && all[r].code[call] == HALAY_ENOMEM && call == first(&all[0]))
            continue; /* it could not make the call at all */
        CHECK(call - first(one) <= 1, "n %u: rank %d fails in call %d, another in %d", n, r, call,
              first(one));
        CHECK(all[r].code[call] == one->code[first(one)], "n %u, rank %d: %d, another %d", n, r,
              all[r].code[call], one->code[first(one)]);
        CHECK(!strcmp(all[r].text, one->text), "n %u: '%s' and '%s'", n, all[r].text, one->text);
        CHECK(strstr(all[r].text, "rank 1"), "n %u: '%s'", n, all[r].text);
    }
}

/* The others find it deaf, and call it lost. It must not call one of them so, since it lives. */
static void judge_refusal(const struct one all[RANKS])
{
    CHECK(first(&all[VICTIM]) == 0 && all[VICTIM].code[0] == HALAY_ENOMEM, "%d: '%s'",
          all[VICTIM].code[0], all[VICTIM].text);
    CHECK(!strcmp(all[0].text, all[2].text), "'%s' and '%s'", all[0].text, all[2].text);
    for (int r = 0; r < RANKS; r++)
        CHECK(!strncmp(all[r].text, "rank 1 of 3", 11), "rank %d: '%s'", r, all[r].text);
}

/* Returns how many were counted; *in_init: of them, in init. */
static uint32_t once(const halay_transport_ops_t *transport, uint32_t n, uint32_t *in_init)
{
    static struct one all[RANKS];
    halay_inproc_hub_t *hub;
    const uint64_t begun_ns = ranks_now_ns();
    counted = 0;
    fails_at = n;
    alarm(120);
    CHECK(!halay_inproc_hub_create(RANKS, NULL, &hub), "no hub");
    for (int r = 0; r < RANKS; r++) {
        all[r] = (struct one){.where = {hub, r}, .transport = transport};
        CHECK(!pthread_create(&all[r].thread, NULL, run, &all[r]), "no thread");
    }
    for (int r = 0; r < RANKS; r++)
        pthread_join(all[r].thread, NULL);
    halay_inproc_hub_destroy(hub);
    CHECK(ranks_now_ns() - begun_ns < LATE_NS, "n %u: it took too long", n);
    if (refuses)
        judge_refusal(all);
    else
        judge(all, n);
    *in_init = all[VICTIM].in_init;
    return counted;
}

int main(int argc, char **argv)
{
    const bool shm = argc > 1 && !strcmp(argv[1], "shm"),
               whole = argc > 2 && !strcmp(argv[2], "all");
    const halay_transport_ops_t *transport =
        shm ? &halay_transport_v7_shm : &halay_transport_v7_inproc;
    uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : ranks_now_ns();
    uint32_t in_init, ignored;
    const uint64_t drawn = seed;
    setenv("HALAY_DEBUG", "error", 0);
    signal(SIGABRT, say_where);
    refuses = argc > 2 && !strcmp(argv[2], "refuse");
    const uint32_t n = once(transport, 0, &in_init);
    printf("%u in all, %u in init; seed %llu\n", n, in_init, (unsigned long long)drawn);
    fflush(stdout);
    if (refuses)
        return 0;
    if (whole)
        for (uint32_t i = argc > 3 ? (uint32_t)strtoul(argv[3], NULL, 10) : 1; i <= n; i++)
            once(transport, i, &ignored);
    for (int i = 0; !whole && i < 2; i++) /* the others wait for their deadline */
        once(transport, 1 + (uint32_t)(ranks_random(&seed) % in_init), &ignored);
    for (int i = 0; !whole && i < 20; i++)
        once(transport, in_init + 1 + (uint32_t)(ranks_random(&seed) % (n - in_init)), &ignored);
    return 0;
}
