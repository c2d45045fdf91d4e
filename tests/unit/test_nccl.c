/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_nccl.c - NCCL's adapter alone, over doubles of NCCL and of CUDA's driver; ranks are threads:
 * all kinds and types that it offers, with equal and with other runs; faults of NCCL's and the
 * driver's calls; collectives that hang; an abort that does; wrong libraries.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <halay/device.h>

#include "../check.h"
#include "../double/cuda/double.h"
#include "../double/nccl/double.h"
#include "device/cuda/driver.h"
#include "groups/nccl/library.h"
#include "groups/nccl/nccl.h"

#define CALL(name, arguments) int name arguments;
HLY_CUDA_CALLS(CALL, CALL)

enum { RANKS_MAX = 8, RUN = 37, COOKIE = 7, LAUNCHES = 3 };
static const uint64_t TIMEOUT_NS = 2000000000u;
static const halay_group_ops_t *const ops = &hly_group_nccl;

struct shared {
    unsigned n;
    uint32_t kind;
    halay_type_t type;
    halay_op_t op;
    size_t count[RANKS_MAX];
    bool fails; /* something of it will: the verdict counts, not the data */
    bool ends;  /* by abort, after a while */
    unsigned char id[HALAY_CIRCLE_ID_BYTES];
    int status[RANKS_MAX], abort_status[RANKS_MAX];
    char why[RANKS_MAX][256];
};

struct rank {
    struct shared *shared;
    unsigned me;
};

/* Device communicators whose abort did not come back in time stay, with all that they name. */
static halay_circle_t *left[RANKS_MAX];

static void check_clean(void)
{
    const struct cuda_double_counts c = cuda_double_counts();
    CHECK(!c.streams && !c.events && !c.allocations && !c.retained && !c.pushed && !c.misused,
          "%d streams, %d events, %d allocations, %d retained, %d pushed, %llu misused", c.streams,
          c.events, c.allocations, c.retained, c.pushed, (unsigned long long)c.misused);
    CHECK(!nccl_double_counts().comms && !nccl_double_counts().misused, "%d comms, %llu misused",
          nccl_double_counts().comms, (unsigned long long)nccl_double_counts().misused);
}

static void pause_us(long us)
{
    nanosleep(&(struct timespec){.tv_nsec = us * 1000}, NULL);
}

/* ------------------------------------------------------------------ values */

static bool moves(uint32_t kind)
{
    return kind == HALAY_GROUP_ALLGATHER || kind == HALAY_GROUP_BROADCAST ||
           kind == HALAY_GROUP_ALLTOALL;
}

/* 1, 2 or 3: sums and products of eight are exact in all types. */
static unsigned value(unsigned rank, size_t i)
{
    return 1 + (unsigned)((rank + i) % 3 == 0) + (unsigned)((rank * 5 + i) % 7 == 0);
}

static void write_value(char *at, halay_type_t type, unsigned v)
{
    static const uint16_t f16[] = {0, 0x3c00, 0x4000, 0x4200};
    const float f = (float)v;
    const double d = v;
    const uint64_t u = v;
    uint32_t bits;
    memcpy(&bits, &f, sizeof(bits));
    const uint16_t b = (uint16_t)(bits >> 16);
    if (type == HALAY_FLOAT16) /* of what is put in; results are compared as numbers */
        memcpy(at, &f16[v], 2);
    else
        memcpy(at,
               type == HALAY_FLOAT32    ? (const void *)&f
               : type == HALAY_FLOAT64  ? (const void *)&d
               : type == HALAY_BFLOAT16 ? (const void *)&b
                                        : (const void *)&u,
               halay_type_bytes(type) < 8 ? halay_type_bytes(type) : 8);
}

static double read_value(const char *at, halay_type_t type)
{
    uint64_t u = 0;
    uint32_t bits;
    uint16_t h;
    float f;
    double d;
    memcpy(&u, at, halay_type_bytes(type) < 8 ? halay_type_bytes(type) : 8);
    memcpy(&h, at, sizeof(h));
    if (type == HALAY_FLOAT16)
        bits = ((h & 0x7fffu) + 0x1c000u) << 13;
    else if (type == HALAY_BFLOAT16)
        bits = (uint32_t)h << 16;
    else
        bits = (uint32_t)u;
    memcpy(&f, &bits, sizeof(f));
    memcpy(&d, &u, sizeof(d));
    if (type == HALAY_FLOAT64)
        return d;
    return type == HALAY_FLOAT16 || type == HALAY_BFLOAT16 || type == HALAY_FLOAT32 ? f : (double)u;
}

static double expected(const struct shared *s, size_t i)
{
    double v = value(0, i);
    for (unsigned r = 1; r < s->n; r++) {
        const double w = value(r, i);
        v = s->op == HALAY_SUM                ? v + w
            : s->op == HALAY_PROD             ? v * w
            : (s->op == HALAY_MAX) == (v > w) ? v
                                              : w;
    }
    return v;
}

/* ------------------------------------------------------------------ a rank */

static size_t before(const struct shared *s, unsigned rank)
{
    size_t at = 0;
    for (unsigned i = 0; i < rank && s->kind != HALAY_GROUP_ALLREDUCE; i++)
        at += s->count[i];
    return at;
}

static void check_values(const struct shared *s, unsigned me, const char *out)
{
    const size_t e = halay_type_bytes(s->type);
    if (moves(s->kind)) {
        for (unsigned r = 0; r < s->n; r++)
            for (size_t i = 0; i < s->count[r]; i++) {
                const size_t first = s->kind == HALAY_GROUP_ALLTOALL ? before(s, me) : 0;
                char want[16] = {0};
                write_value(want, s->type, value(r, first + i));
                CHECK(!memcmp(out + (before(s, r) + i) * e, want, e), "rank %u, of %u, element %zu",
                      me, r, i);
            }
        return;
    }
    for (size_t i = 0; i < s->count[me]; i++) {
        const double got = read_value(out + i * e, s->type), want = expected(s, before(s, me) + i);
        CHECK(got == want, "rank %u of %u, kind %u %s %s, element %zu: %g and not %g", me, s->n,
              s->kind, halay_op_name(s->op), halay_type_name(s->type), i, got, want);
    }
}

/* Till the cookie, or an error, or a while if the launch is to end by abort. */
static int await(const struct shared *s, halay_circle_t *c, uint64_t cookie)
{
    halay_group_done_t done;
    for (int i = 0; i < (s->fails || s->ends ? 2000 : 200000); i++) {
        const int n = ops->poll(c, &done, 1);
        CHECK(n <= 1, "%d are done", n);
        if (n < 0)
            return n;
        if (n) {
            CHECK(done.cookie == cookie, "another cookie");
            return done.status;
        }
        pause_us(50);
    }
    CHECK(s->fails || s->ends, "kind %u does not end", s->kind);
    return HALAY_ETIMEOUT;
}

static int collective(const struct shared *s, unsigned me, halay_circle_t *c)
{
    const size_t e = halay_type_bytes(s->type);
    const size_t all = s->kind == HALAY_GROUP_ALLREDUCE ? s->count[0] : before(s, s->n);
    const bool own = moves(s->kind) && s->kind != HALAY_GROUP_ALLTOALL;
    const size_t given = own ? s->count[me] : all;
    const size_t got = moves(s->kind) ? all : s->count[me];
    halay_group_launch_t l = {.size = sizeof(l),
                              .kind = s->kind,
                              .type = s->type,
                              .op = s->op,
                              .n = s->n,
                              .count = s->count,
                              .cookie = COOKIE};
    static pthread_mutex_t once = PTHREAD_MUTEX_INITIALIZER; /* memory.c of the double reads it */
    uint64_t in, out;
    pthread_mutex_lock(&once);
    MUST(!cuMemAlloc_v2(&in, given * e + 16) && !cuMemAlloc_v2(&out, got * e + 16));
    pthread_mutex_unlock(&once);
    char *inside = cuda_double_inside(in, given * e + 16);
    memset(inside, 0, given * e);
    for (size_t i = 0; i < given; i++)
        write_value(inside + i * e, s->type, value(me, i));
    l.in = (void *)(uintptr_t)in;
    l.out = (void *)(uintptr_t)out;
    int rc = HALAY_EAGAIN;
    for (uint64_t ended = l.cookie; ended < COOKIE + LAUNCHES;) {
        const bool launches = l.cookie < COOKIE + LAUNCHES;
        rc = launches ? ops->launch(c, &l) : HALAY_EAGAIN;
        l.order += rc == HALAY_INPROGRESS;
        l.cookie += rc == HALAY_INPROGRESS;
        if (rc == HALAY_EAGAIN) {
            CHECK(ended < l.cookie, "a device communicator with nothing in flight is full");
            rc = await(s, c, ended++);
        }
        if (rc < 0)
            break;
    }
    if (!rc)
        check_values(s, me, cuda_double_inside(out, got * e + 16));
    if (rc)
        return rc; /* the memory is freed when nothing runs any more */
    MUST(!cuMemFree_v2(in) && !cuMemFree_v2(out));
    return rc;
}

static void *rank_run(void *arg)
{
    const struct rank *r = arg;
    struct shared *s = r->shared;
    struct hly_nccl *nccl;
    int version;
    halay_circle_t *c;
    void *context = NULL;
    char why[256] = "";
    MUST(!cuInit(0) && !cuDevicePrimaryCtxRetain(&context, 0) && !cuCtxPushCurrent_v2(context));
    CHECK(!hly_nccl_open(NULL, 0, &nccl, &version, why, sizeof(why)), "%s", why);
    int rc = ops->open(nccl, s->id, r->me, s->n, &c);
    if (rc == HALAY_INPROGRESS) {
        rc = await(s, c, HALAY_CIRCLE_OPENED);
        if (!rc)
            rc = collective(s, r->me, c);
        if (rc)
            s->abort_status[r->me] = ops->abort(c, TIMEOUT_NS);
        if (rc && s->abort_status[r->me])
            left[r->me] = c;
        ops->close(c, TIMEOUT_NS);
    }
    s->status[r->me] = rc;
    snprintf(s->why[r->me], sizeof(s->why[r->me]), "%s", hly_nccl_why(nccl));
    hly_nccl_close(nccl);
    MUST(!cuCtxPopCurrent_v2(&context) && !cuDevicePrimaryCtxRelease_v2(0));
    return NULL;
}

/* true: all ranks have ended well. */
static bool run(struct shared *s)
{
    struct hly_nccl *nccl;
    int version;
    struct rank rank[RANKS_MAX];
    pthread_t thread[RANKS_MAX];
    char why[256];
    bool well = true;
    CHECK(!hly_nccl_open(NULL, 0, &nccl, &version, why, sizeof(why)), "%s", why);
    const int rc = ops->invite(nccl, s->id);
    CHECK(!rc || s->fails, "%s", hly_nccl_why(nccl));
    hly_nccl_close(nccl);
    if (rc)
        return false;
    for (unsigned i = 0; i < s->n; i++) {
        rank[i] = (struct rank){s, i};
        MUST(!pthread_create(&thread[i], NULL, rank_run, &rank[i]));
    }
    for (unsigned i = 0; i < s->n; i++) {
        MUST(!pthread_join(thread[i], NULL));
        well = well && !s->status[i];
        CHECK(!s->status[i] || s->fails || s->ends, "rank %u: %d %s", i, s->status[i], s->why[i]);
    }
    return well;
}

/* ------------------------------------------------------------------ tests */

/* equal: all runs are; else one is long, one has nothing; in reduce and broadcast the root alone
 * has one. */
static void counts_of(struct shared *s, bool equal)
{
    const bool rooted = s->kind == HALAY_GROUP_REDUCE || s->kind == HALAY_GROUP_BROADCAST;
    for (unsigned i = 0; i < s->n; i++)
        s->count[i] = rooted ? (i == s->n / 2 ? RUN : 0)
                      : equal || s->kind == HALAY_GROUP_ALLREDUCE || s->kind == HALAY_GROUP_ALLTOALL
                          ? RUN
                          : (i != 1) * ((i * 29 + 5) % 62);
}

static void test_kinds(void)
{
    static const halay_op_t op[] = {HALAY_SUM, HALAY_PROD, HALAY_MAX, HALAY_MIN};
    static const unsigned n[] = {1, 2, 3, 8};
    unsigned turn = 0;
    for (uint32_t kind = HALAY_GROUP_REDUCE_SCATTER; kind <= HALAY_GROUP_ALLTOALL; kind++)
        for (int t = 0; t < HALAY_TYPE_COUNT; t++, turn++) {
            struct shared s = {
                .n = n[turn % 4], .kind = kind, .type = (halay_type_t)t, .op = op[turn / 4 % 4]};
            if (ops->query(NULL, kind, s.type, s.op) != HALAY_OK)
                continue;
            if (s.op == HALAY_PROD && halay_type_bytes(s.type) < 4 && s.n > 3)
                s.op = HALAY_SUM; /* 3^8 has no place there */
            counts_of(&s, turn % 3 == 0);
            nccl_double_settings()->in_progress = (int)(turn / 2 % 3);
            MUST(run(&s));
        }
    nccl_double_settings()->in_progress = 0;
    check_clean();
}

static void test_offers(void)
{
    int offered = 0;
    for (int t = 0; t < HALAY_TYPE_COUNT; t++)
        for (int o = 0; o < HALAY_OP_COUNT; o++)
            offered +=
                ops->query(NULL, HALAY_GROUP_ALLREDUCE, (halay_type_t)t, (halay_op_t)o) == HALAY_OK;
    CHECK(offered == 40, "%d", offered); /* ten types, four operations */
    MUST(ops->query(NULL, HALAY_GROUP_ALLGATHER, HALAY_COMPLEX128, HALAY_SUM) == HALAY_OK);
    MUST(ops->query(NULL, HALAY_GROUP_ALLREDUCE, HALAY_BOOL, HALAY_LOR) == HALAY_EUNSUPPORTED);
    MUST(ops->query(NULL, HALAY_GROUP_ALLREDUCE, HALAY_INT16, HALAY_SUM) == HALAY_EUNSUPPORTED);
    MUST(ops->query(NULL, HALAY_GROUP_ALLREDUCE, HALAY_FLOAT32, HALAY_OP_USER) ==
         HALAY_EUNSUPPORTED);
    MUST(ops->query(NULL, 99, HALAY_FLOAT32, HALAY_SUM) == HALAY_EUNSUPPORTED);
}

static void wrong_file(const char *name, const char *says)
{
    struct hly_nccl *nccl;
    int version = 1;
    char why[256] = "";
    MUST(hly_nccl_open(name, 0, &nccl, &version, why, sizeof(why)) == HALAY_EUNSUPPORTED);
    CHECK(!version && strstr(why, name) && strstr(why, says), "%s: %d, %s", name, version, why);
}

/* Each with its cause; nobody waits for a writer of the FIFO. */
static void test_wrong_files(void)
{
    static const char text[] = "not a library";
    char folder[] = "/tmp/test_nccl.XXXXXX", fifo[64], link[64], file[64];
    MUST(mkdtemp(folder));
    snprintf(fifo, sizeof(fifo), "%s/fifo", folder);
    snprintf(link, sizeof(link), "%s/link", folder);
    snprintf(file, sizeof(file), "%s/file", folder);
    MUST(!mkfifo(fifo, 0600) && !symlink(fifo, link));
    const int fd = open(file, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    MUST(fd >= 0);
    wrong_file(file, "too short"); /* it is empty */
    MUST(write(fd, text, sizeof(text)) == sizeof(text) && !close(fd));
    wrong_file(file, "file too short");
    wrong_file(folder, "is not a file");
    wrong_file(fifo, "is not a file");
    wrong_file(link, "is not a file");
    wrong_file("/no/libnccl.so.2", "No such file");
    wrong_file(" ", "No such file");
    wrong_file("libpthread.so.0", "is not NCCL: it lacks ncclGetVersion");
    MUST(!unlink(fifo) && !unlink(link) && !unlink(file) && !rmdir(folder));
}

static void test_versions(void)
{
    struct hly_nccl *nccl;
    int version;
    char why[256] = "";
    halay_group_attr_t attr = {.size = sizeof(attr)};
    MUST(hly_nccl_open("libnccl-is-not-here.so", 0, &nccl, &version, why, sizeof(why)) ==
         HALAY_EUNSUPPORTED);
    CHECK(strstr(why, "libnccl-is-not-here.so"), "%s", why);
    test_wrong_files();
    nccl_double_settings()->version = 21703;
    MUST(hly_nccl_open(NULL, 0, &nccl, &version, why, sizeof(why)) == HALAY_EUNSUPPORTED);
    CHECK(strstr(why, "2.17.3") && strstr(why, "2.18"), "%s", why);
    nccl_double_settings()->version = 23203;
    MUST(!hly_nccl_open(NULL, 0, &nccl, &version, why, sizeof(why)));
    MUST(!ops->about(nccl, &attr) && attr.memory == HALAY_MEMORY_CUDA);
    CHECK(!strcmp(attr.name, "nccl 2.32.3"), "%s", attr.name);
    hly_nccl_close(nccl);
}

/* Every rank comes back, and abort says that nothing runs any more, whichever call fails. */
static void test_fault(const char *name, uint64_t nth)
{
    struct shared s = {
        .n = 2, .kind = HALAY_GROUP_REDUCE_SCATTER, .type = HALAY_FLOAT32, .fails = true};
    counts_of(&s, nth % 2);
    nccl_double_settings()->in_progress = 1;
    nccl_double_fail(name, nth, HLY_NCCL_SYSTEM_ERROR);
    const bool well = run(&s);
    CHECK(!well, "%s fails, and no rank has heard of it", name);
    for (unsigned i = 0; i < s.n; i++)
        MUST(!s.abort_status[i]);
    const bool said = strstr(s.why[0], "unhandled system error: said by the double") ||
                      strstr(s.why[1], "unhandled system error: said by the double");
    CHECK(said || !strcmp(name, "ncclGetUniqueId"), "%s: %s, %s", name, s.why[0], s.why[1]);
    nccl_double_fail(NULL, 0, 0);
    nccl_double_settings()->in_progress = 0;
}

static void test_faults(void)
{
    test_fault("ncclGetUniqueId", 1);
    for (uint64_t nth = 1; nth <= 2; nth++) {
        test_fault("ncclCommInitRankConfig", nth);
        test_fault("ncclCommGetAsyncError", nth * 3);
    }
    test_fault("ncclReduceScatter", 1);
    test_fault("ncclGroupStart", 2);
    test_fault("ncclGroupEnd", 2);
    test_fault("ncclReduce", 2);
}

static void test_driver_faults(void)
{
    static const char *const name[] = {"cuStreamCreate", "cuEventCreate", "cuEventRecord",
                                       "cuEventQuery"};
    nccl_double_settings()->in_progress = 1;
    for (size_t i = 0; i < sizeof(name) / sizeof(name[0]); i++) {
        struct shared s = {
            .n = 2, .kind = HALAY_GROUP_ALLREDUCE, .type = HALAY_INT32, .fails = true};
        counts_of(&s, true);
        cuda_double_fail(name[i], 2, 999);
        CHECK(!run(&s), "%s fails, and no rank has heard of it", name[i]);
        MUST(!s.abort_status[0] && !s.abort_status[1]);
        CHECK(strstr(s.why[0], name[i]) || strstr(s.why[1], name[i]), "%s: %s, %s", name[i],
              s.why[0], s.why[1]);
        cuda_double_fail(NULL, 0, 0);
    }
    nccl_double_settings()->in_progress = 0;
}

/* Collectives that begin and do not end; and an abort that does not come back in time. */
static void test_hangs(void)
{
    struct shared s = {.n = 3, .kind = HALAY_GROUP_ALLREDUCE, .type = HALAY_FLOAT64, .ends = true};
    counts_of(&s, true);
    nccl_double_settings()->hangs = 1;
    MUST(!run(&s));
    for (unsigned i = 0; i < s.n; i++)
        MUST(!s.abort_status[i]);
    nccl_double_settings()->abort_hangs_ms = 2500;
    MUST(!run(&s));
    for (unsigned i = 0; i < s.n; i++)
        MUST(s.abort_status[i] == HALAY_EDEVICE);
    for (int i = 0; i < 5000 && nccl_double_counts().comms; i++)
        pause_us(1000);
    MUST(!nccl_double_counts().comms); /* the threads that were left behind have ended theirs */
    nccl_double_settings()->hangs = 0;
    nccl_double_settings()->abort_hangs_ms = 0;
}

int main(void)
{
    test_offers();
    test_versions();
    test_kinds();
    test_faults();
    test_driver_faults();
    test_hangs();
    return 0;
}
