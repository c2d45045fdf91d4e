/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device_body.c - what every device does: opening, memory, copies to and from the host, work right
 * and wrong, the descriptor to sleep on, stopping, export. Operands are in the device's own memory,
 * and are looked at through copies to the host.
 */
#include "device_body.h"

#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#define LAST_POLL 100000000 /* a device that needs more is taken to have lost the work */
#define WAIT_MS   10000

struct trial {
    const halay_device_ops_t *ops;
    void *arg;
    halay_device_t *device;
    halay_memory_t memory;
    uint64_t cookie;
};

static void begin(struct trial *t)
{
    t->memory = (halay_memory_t){.size = sizeof(t->memory)};
    CHECK(t->ops->open(t->arg, NULL, &t->device) == HALAY_OK);
    CHECK(t->ops->query(t->device, NULL, 0, &t->memory) == HALAY_OK);
}

static void end(struct trial *t)
{
    halay_done_t done;
    CHECK(t->ops->poll(t->device, &done, 1) == 0);
    t->ops->close(t->device);
}

static void *take(struct trial *t, size_t bytes)
{
    void *at = NULL;
    CHECK(t->ops->alloc(t->device, HALAY_PLACE_OWN, bytes, 64, &at) == HALAY_OK && at);
    CHECK((uintptr_t)at % 64 == 0);
    return at;
}

static void drop(struct trial *t, void *at)
{
    t->ops->free(t->device, HALAY_PLACE_OWN, at);
}

/* Launches it alone and sees it to its end: what launch has said, and its cookie once. */
static int perform(struct trial *t, const halay_work_t *work)
{
    halay_work_t w = *work;
    halay_done_t done[2];
    int n = 0;
    w.cookie = ++t->cookie;
    const int rc = t->ops->launch(t->device, &w);
    if (rc != HALAY_INPROGRESS)
        return rc;
    for (int p = 0; n == 0 && p < LAST_POLL; p++)
        n = t->ops->poll(t->device, done, 2);
    CHECK(n == 1 && done[0].cookie == t->cookie && done[0].status == HALAY_OK);
    return HALAY_OK;
}

static halay_work_t copy_of(void *to, const void *from, size_t bytes, uint32_t direction)
{
    return (halay_work_t){.size = sizeof(halay_work_t),
                          .dst = to,
                          .src = {from},
                          .count = bytes,
                          .type = HALAY_UINT8,
                          .nsrc = 1,
                          .direction = direction};
}

static void put(struct trial *t, void *to, const void *from, size_t bytes)
{
    const halay_work_t w = copy_of(to, from, bytes, HALAY_FROM_HOST);
    CHECK(perform(t, &w) == HALAY_OK);
}

static void get(struct trial *t, void *to, const void *from, size_t bytes)
{
    const halay_work_t w = copy_of(to, from, bytes, HALAY_TO_HOST);
    CHECK(perform(t, &w) == HALAY_OK);
}

static int32_t element(struct trial *t, const int32_t *at, size_t i)
{
    int32_t value;
    get(t, &value, at + i, sizeof(value));
    return value;
}

/* ------------------------------------------------------------------ opening */

static void test_open(const struct trial *t)
{
    static const char *const wrong[] = {"", "sse9", "AVX2", "avx", "avx5122"};
    halay_device_t *device = NULL;
    CHECK(t->ops->size == sizeof(*t->ops) && t->ops->why && t->ops->follow);
    CHECK(t->ops->export_mem && t->ops->flush);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        CHECK(t->ops->open(t->arg, wrong[i], &device) == HALAY_EUNSUPPORTED && !device);
    CHECK(t->ops->open(t->arg, NULL, NULL) == HALAY_EINVAL);
    CHECK(t->ops->open(t->arg, NULL, &device) == HALAY_OK && device);
    t->ops->close(device);
    CHECK(t->ops->open(t->arg, "scalar", &device) == HALAY_OK && device);
    t->ops->close(device);
    t->ops->close(NULL);
}

/* ------------------------------------------------------------------ memory */

static int asked(struct trial *t, const void *at, size_t bytes)
{
    halay_memory_t m = {.size = sizeof(m), .kind = 77, .touchable = 77};
    const int rc = t->ops->query(t->device, at, bytes, &m);
    CHECK(rc || (m.kind == t->memory.kind && m.touchable == t->memory.touchable));
    return rc;
}

static void test_query(struct trial *t)
{
    static const size_t sizes[] = {1, 63, 64, 4096, 4097, 1 << 20};
    const char ours[64] = {0};
    begin(t);
    const int elsewhere = t->memory.kind == HALAY_MEMORY_HOST ? HALAY_OK : HALAY_EUNSUPPORTED;
    const int partly = elsewhere ? HALAY_EINVAL : HALAY_OK;
    CHECK(t->memory.kind < HALAY_MEMORY_KINDS);
    CHECK(t->ops->query(t->device, ours, 1, NULL) == HALAY_EINVAL);
    CHECK(t->ops->query(t->device, ours, 1, &(halay_memory_t){0}) == HALAY_EINVAL);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        const size_t bytes = sizes[i];
        char *at = take(t, bytes), *other = take(t, bytes);
        CHECK(at + bytes <= other || other + bytes <= at);
        CHECK(asked(t, at, bytes) == HALAY_OK && asked(t, at, 0) == HALAY_OK);
        CHECK(asked(t, at + bytes - 1, 1) == HALAY_OK && asked(t, at + bytes - 1, 0) == HALAY_OK);
        CHECK(asked(t, at, bytes + 1) == partly && asked(t, at - 1, 2) == partly);
        CHECK(asked(t, ours, sizeof(ours)) == elsewhere && asked(t, ours, 0) == elsewhere);
        drop(t, at);
        CHECK(asked(t, at, bytes) == elsewhere && asked(t, other, bytes) == HALAY_OK);
        drop(t, other);
    }
    end(t);
}

static void test_alloc_in(struct trial *t, uint32_t place)
{
    void *at = NULL, *aligned[13];
    begin(t);
    CHECK(t->ops->alloc(t->device, place, 0, 64, &at) == HALAY_EINVAL);
    CHECK(t->ops->alloc(t->device, place, 64, 0, &at) == HALAY_EINVAL);
    CHECK(t->ops->alloc(t->device, place, 64, 48, &at) == HALAY_EINVAL);
    CHECK(t->ops->alloc(t->device, place, 64, 64, NULL) == HALAY_EINVAL);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) /* these end the process */
    CHECK(t->ops->alloc(t->device, place, SIZE_MAX / 4, 64, &at) == HALAY_ENOMEM && !at);
#endif
    for (int i = 0; i < 13; i++) {
        CHECK(t->ops->alloc(t->device, place, 100, (size_t)1 << i, &aligned[i]) == HALAY_OK);
        CHECK((uintptr_t)aligned[i] % ((size_t)1 << i) == 0);
    }
    for (int i = 0; i < 13; i++)
        t->ops->free(t->device, place, aligned[(i * 5) % 13]);
    t->ops->free(t->device, place, NULL);
    end(t);
}

/* Host memory of the device may be touched, is not of its kind, and copies have it as a side. */
static void test_host_memory(struct trial *t)
{
    void *at;
    begin(t);
    char *there = take(t, 100);
    CHECK(t->ops->alloc(t->device, HALAY_PLACE_HOST, 100, 64, &at) == HALAY_OK);
    char *here = at;
    CHECK(asked(t, here, 100) ==
          (t->memory.kind == HALAY_MEMORY_HOST ? HALAY_OK : HALAY_EUNSUPPORTED));
    memset(here, 0x3c, 100);
    const halay_work_t up = copy_of(there, here, 100, HALAY_FROM_HOST),
                       down = copy_of(here, there, 100, HALAY_TO_HOST);
    CHECK(perform(t, &up) == HALAY_OK);
    memset(here, 0, 100);
    CHECK(perform(t, &down) == HALAY_OK);
    for (int i = 0; i < 100; i++)
        CHECK(here[i] == 0x3c);
    t->ops->free(t->device, HALAY_PLACE_HOST, here);
    drop(t, there);
    end(t);
}

static void test_alloc(struct trial *t)
{
    void *at;
    test_alloc_in(t, HALAY_PLACE_OWN);
    test_alloc_in(t, HALAY_PLACE_HOST);
    begin(t);
    CHECK(t->ops->alloc(t->device, HALAY_PLACE_HOST + 1, 64, 64, &at) == HALAY_EINVAL);
    end(t);
    test_host_memory(t);
}

/* To it, within it and back; odd places, and their neighbours stay. */
static void test_copies(struct trial *t)
{
    enum { MOST = 70000 };
    static uint8_t from[MOST], to[MOST], want[MOST];
    begin(t);
    uint8_t *a = take(t, MOST), *b = take(t, MOST);
    for (size_t i = 0; i < MOST; i++)
        from[i] = (uint8_t)(i * 7 + i / 256);
    for (size_t bytes = 1; bytes <= MOST; bytes = bytes * 3 + 1) {
        const size_t at = bytes < 100 ? bytes : 0;
        const halay_work_t w = copy_of(b + at, a + at, bytes, HALAY_WITHIN);
        memset(want, 0x55, MOST);
        put(t, a, from, MOST);
        put(t, b, want, MOST);
        CHECK(perform(t, &w) == HALAY_OK);
        memcpy(want + at, from + at, bytes);
        memset(to, 0, MOST);
        get(t, to, b, MOST);
        CHECK(!memcmp(to, want, MOST));
        if (t->memory.touchable)
            CHECK(!memcmp(b, want, MOST));
    }
    drop(t, a);
    drop(t, b);
    end(t);
}

/* ------------------------------------------------------------------ bad and odd work */

static void take_left(void *arg, halay_type_t type, size_t count, void *dst, const void *left,
                      const void *right)
{
    (void)arg;
    (void)right;
    memcpy(dst, left, count * halay_type_bytes(type));
}

enum { BAD = 23 };

static void make_bad(halay_work_t bad[BAD], const halay_work_t *good)
{
    for (size_t i = 0; i < BAD; i++)
        bad[i] = *good;
    bad[0].nsrc = 0;
    bad[1].nsrc = HALAY_REDUCE_SOURCES + 1;
    bad[2].type = HALAY_TYPE_COUNT;
    bad[3].op = HALAY_OP_COUNT;
    bad[4].type = HALAY_FLOAT32, bad[4].op = HALAY_LAND;
    bad[5].type = HALAY_BOOL;
    bad[6].dst = NULL;
    bad[7].src[1] = NULL;
    bad[8].count = SIZE_MAX / 2;
    bad[9].dst = (char *)(uintptr_t)good->src[0] + 4; /* overlaps */
    bad[10].type = HALAY_BOOL, bad[10].op = HALAY_AVERAGE, bad[10].divisor = 2, bad[10].nsrc = 1;
    bad[11].op = HALAY_OP_USER; /* without a function */
    bad[12].op = HALAY_OP_USER, bad[12].fn = take_left, bad[12].group = 0;
    bad[13].op = HALAY_OP_USER, bad[13].fn = take_left, bad[13].group = 3;
    bad[14].op = HALAY_OP_USER, bad[14].fn = take_left, bad[14].count = bad[14].group = 1025;
    bad[15].scales = 1, bad[15].factor = 2;
    bad[16].scales = 1, bad[16].factor = 1. / 0., bad[16].nsrc = 1;
    bad[17].size = 0;
    bad[18].size--;
    bad[19].direction = HALAY_FROM_HOST + 1, bad[19].nsrc = 1;
    bad[20].direction = HALAY_TO_HOST; /* of more than one source */
    bad[21].direction = HALAY_FROM_HOST, bad[21].nsrc = 1, bad[21].scales = 1, bad[21].factor = 2;
    bad[22].direction = HALAY_TO_HOST, bad[22].nsrc = 1, bad[22].op = HALAY_AVERAGE;
    bad[22].divisor = 2;
}

static void test_bad_work(struct trial *t)
{
    int32_t host[8];
    halay_work_t bad[BAD];
    halay_done_t done;
    begin(t);
    int32_t *a = take(t, 8192), *b = take(t, 8192), *c = take(t, 8192);
    const halay_work_t good = {
        .size = sizeof(good), .dst = c, .src = {a, b}, .count = 8, .type = HALAY_INT32, .nsrc = 2};
    make_bad(bad, &good);
    memset(host, 0x77, sizeof(host));
    put(t, c, host, sizeof(host));
    for (size_t i = 0; i < BAD; i++) {
        CHECK(t->ops->bind(t->device, &bad[i]) < 0 && !bad[i].bound);
        CHECK(t->ops->launch(t->device, &bad[i]) == HALAY_EINVAL);
    }
    CHECK(t->ops->launch(t->device, NULL) == HALAY_EINVAL);
    for (size_t i = 0; i < 8; i++)
        CHECK(element(t, c, i) == 0x77777777);
    CHECK(t->ops->poll(t->device, &done, 1) == 0);
    CHECK(t->ops->poll(t->device, &done, 0) == 0);
    CHECK(t->ops->poll(t->device, &done, -1) == HALAY_EINVAL);
    drop(t, a);
    drop(t, b);
    drop(t, c);
    end(t);
}

/* A side that the direction does not name: only host memory is everywhere. */
static void test_wrong_side(struct trial *t)
{
    int32_t host[4] = {1, 2, 3, 4};
    begin(t);
    const int want = t->memory.kind == HALAY_MEMORY_HOST ? HALAY_OK : HALAY_EINVAL;
    char *a = take(t, 64), *b = take(t, 64);
    const halay_work_t wrong[] = {
        copy_of(a, host, 16, HALAY_WITHIN),  copy_of(host, a, 16, HALAY_WITHIN),
        copy_of(a, host, 16, HALAY_TO_HOST), copy_of(b, a, 16, HALAY_FROM_HOST),
        copy_of(b, a, 16, HALAY_TO_HOST),    copy_of(b, a + 32, 33, HALAY_WITHIN)};
    const size_t last = want ? 6 : 5; /* nobody knows how large the host's is */
    for (size_t i = 0; i < last; i++)
        CHECK(perform(t, &wrong[i]) == want);
    drop(t, a);
    drop(t, b);
    end(t);
}

/* Legal, though odd: nothing to do, and fields that have no meaning. */
static void test_odd_work(struct trial *t)
{
    const int32_t one[3] = {1, 2, 3}, two[3] = {10, 20, 30};
    const halay_work_t empty = {
        .size = sizeof(empty), .dst = NULL, .count = 0, .type = HALAY_INT16, .nsrc = 4};
    begin(t);
    int32_t *a = take(t, sizeof(one)), *b = take(t, sizeof(two)), *c = take(t, sizeof(one));
    halay_work_t w = {
        .size = sizeof(w), .dst = c, .src = {a, b}, .count = 3, .type = HALAY_INT32, .nsrc = 2};
    put(t, a, one, sizeof(one));
    put(t, b, two, sizeof(two));
    CHECK(perform(t, &empty) == HALAY_OK);
    w.divisor = 9; /* of a sum */
    CHECK(perform(t, &w) == HALAY_OK && element(t, c, 2) == 33);
    w.nsrc = 1;
    w.op = (halay_op_t)99;
    CHECK(perform(t, &w) == HALAY_OK && element(t, c, 2) == 3);
    w.dst = a; /* a copy onto itself */
    CHECK(perform(t, &w) == HALAY_OK && element(t, a, 2) == 3);
    w.scales = 1, w.factor = -2;
    CHECK(perform(t, &w) == HALAY_OK && element(t, a, 0) == -2 && element(t, a, 2) == -6);
    drop(t, a);
    drop(t, b);
    drop(t, c);
    end(t);
}

/* Bound or not, it is done as often as it is launched, with what its operands hold then. */
static void test_bound(struct trial *t)
{
    begin(t);
    int32_t *a = take(t, 12), *b = take(t, 12), *c = take(t, 12);
    halay_work_t w = {
        .size = sizeof(w), .dst = c, .src = {a, b}, .count = 3, .type = HALAY_INT32, .nsrc = 2};
    const int rc = t->ops->bind(t->device, &w);
    CHECK(rc == (w.bound ? HALAY_OK : HALAY_EUNSUPPORTED));
    for (int n = 0; n < 5; n++) {
        const int32_t one[3] = {0, n, 2 * n}, two[3] = {100, 101, 102};
        put(t, a, one, sizeof(one));
        put(t, b, two, sizeof(two));
        CHECK(perform(t, &w) == HALAY_OK);
        for (size_t i = 0; i < 3; i++)
            CHECK(element(t, c, i) == one[i] + two[i]);
    }
    w.bound = NULL; /* and then anything may change */
    w.op = HALAY_AVERAGE;
    w.divisor = 2;
    CHECK(perform(t, &w) == HALAY_OK && element(t, c, 2) == (8 + 102) / 2);
    drop(t, a);
    drop(t, b);
    drop(t, c);
    end(t);
}

/* ------------------------------------------------------------------ operations of the user */

struct seen {
    size_t calls, elements, groups_of;
};

/* left - 2 * right, element by element: neither commutes nor is it associative. */
static void minus_twice(void *arg, halay_type_t type, size_t count, void *dst, const void *left,
                        const void *right)
{
    struct seen *seen = arg;
    const int32_t *l = left, *r = right;
    int32_t *d = dst;
    CHECK(type == HALAY_INT32 && count % seen->groups_of == 0);
    CHECK(d + count <= l || l + count <= d);
    CHECK(d + count <= r || r + count <= d);
    for (size_t i = 0; i < count; i++)
        d[i] = l[i] - 2 * r[i];
    seen->calls++;
    seen->elements += count;
}

/* dst in place of each source, or of none: whole groups, left to right, operands never overlap. */
static void test_user(struct trial *t, uint32_t nsrc, size_t group, int alias)
{
    enum { MOST = 5000 };
    static int32_t host[MOST];
    const size_t count = MOST / group * group;
    struct seen seen = {.groups_of = group};
    int32_t *source[HALAY_REDUCE_SOURCES] = {NULL};
    begin(t);
    int32_t *out = take(t, sizeof(host));
    halay_work_t w = {.size = sizeof(w),
                      .dst = out,
                      .count = count,
                      .type = HALAY_INT32,
                      .op = (halay_op_t)(HALAY_OP_USER + 5),
                      .nsrc = nsrc,
                      .fn = minus_twice,
                      .fn_arg = &seen,
                      .group = group};
    for (uint32_t s = 0; s < nsrc; s++) {
        for (size_t i = 0; i < count; i++)
            host[i] = (int32_t)(i * 7 + s * 1000);
        w.src[s] = source[s] = take(t, sizeof(host));
        put(t, source[s], host, sizeof(host));
    }
    if (alias >= 0)
        w.dst = source[alias];
    const int rc = perform(t, &w);
    CHECK(rc == HALAY_EUNSUPPORTED || (rc == HALAY_OK && seen.calls > 0));
    CHECK(rc || seen.elements == (nsrc - 1) * count);
    get(t, host, w.dst, sizeof(host));
    for (size_t i = 0; i < count && !rc; i++) {
        int32_t want = (int32_t)(i * 7);
        for (uint32_t s = 1; s < nsrc; s++)
            want -= 2 * (int32_t)(i * 7 + s * 1000);
        CHECK(host[i] == want);
    }
    drop(t, out);
    for (uint32_t s = 0; s < nsrc; s++)
        drop(t, source[s]);
    end(t);
}

static void test_user_all(struct trial *t)
{
    static const size_t groups[] = {1, 3, 4, 1000, 1024};
    for (uint32_t nsrc = 2; nsrc <= HALAY_REDUCE_SOURCES; nsrc++)
        for (size_t g = 0; g < sizeof(groups) / sizeof(groups[0]); g++)
            for (int alias = -1; alias < (int)nsrc; alias++)
                test_user(t, nsrc, groups[g], alias);
}

/* ------------------------------------------------------------------ sleeping and stopping */

enum { WORKS = 20 };

/* Launches so many copies of `from`, one to each element. Returns how many are in flight. */
static int launch_many(struct trial *t, int32_t *to, const int32_t *from)
{
    int nflying = 0;
    for (uint64_t i = 0; i < WORKS; i++) {
        halay_work_t w = copy_of(to + i, from, sizeof(*to), HALAY_WITHIN);
        w.cookie = i;
        const int rc = t->ops->launch(t->device, &w);
        CHECK(rc == HALAY_OK || rc == HALAY_INPROGRESS);
        nflying += rc == HALAY_INPROGRESS;
    }
    return nflying;
}

/* Sleeps till there is something to poll, and polls: nothing comes to an end unannounced. */
static void test_arm(struct trial *t)
{
    const int32_t one = 1, none[WORKS] = {0};
    struct pollfd fd = {.fd = -1, .events = POLLIN};
    begin(t);
    const int can = t->ops->arm(t->device, &fd.fd);
    CHECK(can == HALAY_EUNSUPPORTED || (can == HALAY_OK && poll(&fd, 1, 0) == 0));
    int32_t *to = take(t, sizeof(none)), *from = take(t, sizeof(one));
    put(t, from, &one, sizeof(one));
    put(t, to, none, sizeof(none));
    int nflying = launch_many(t, to, from);
    while (nflying) {
        halay_done_t done[WORKS];
        struct pollfd again = fd;
        const int rc = t->ops->arm(t->device, &again.fd);
        CHECK(can ? rc == can : (rc == HALAY_OK || rc == HALAY_EAGAIN) && again.fd == fd.fd);
        if (rc == HALAY_OK)
            CHECK(poll(&again, 1, WAIT_MS) == 1);
        const int n = t->ops->poll(t->device, done, WORKS);
        CHECK(n > 0 || (can && n == 0));
        nflying -= n;
    }
    for (size_t i = 0; i < WORKS; i++)
        CHECK(element(t, to, i) == 1);
    int quiet = can;
    for (int n = 0; n < 100 && !quiet; n++) /* once too often is allowed */
        quiet = t->ops->arm(t->device, &fd.fd) == HALAY_OK && poll(&fd, 1, 10) == 0;
    CHECK(quiet);
    drop(t, to);
    drop(t, from);
    end(t);
}

/* What is taken back is not polled, and nothing is written after that. */
static void test_stop(struct trial *t)
{
    const int32_t one = 1, none[WORKS] = {0};
    begin(t);
    int32_t *to = take(t, sizeof(none)), *from = take(t, sizeof(one));
    put(t, from, &one, sizeof(one));
    put(t, to, none, sizeof(none));
    int nflying = launch_many(t, to, from);
    const bool flies = nflying > 0;
    for (uint64_t i = 0; i < WORKS && flies; i += 2, nflying--)
        CHECK(t->ops->stop(t->device, i, 1000000000u) == HALAY_OK);
    for (int p = 0; nflying && p < LAST_POLL; p++) {
        halay_done_t done;
        const int n = t->ops->poll(t->device, &done, 1);
        CHECK(n >= 0 && (!n || (done.cookie % 2 && !done.status)));
        nflying -= n;
    }
    CHECK(!nflying);
    for (size_t i = 0; i < WORKS; i++) {
        const int32_t value = element(t, to, i);
        const bool late = flies && i % 2 == 0; /* a GPU may have done it before */
        CHECK(value == !late || (value == 1 && t->memory.kind == HALAY_MEMORY_CUDA));
    }
    drop(t, to);
    drop(t, from);
    end(t);
}

/* ------------------------------------------------------------------ network adapters */

/* Of memory that lies in it: the whole allocation; with a dma-buf only where one is asked for. */
static void test_export(struct trial *t)
{
    enum { BYTES = 5000, INSIDE = 1000 };
    const char ours[64] = {0};
    begin(t);
    char *at = take(t, BYTES), *other = take(t, BYTES);
    halay_export_t e = {.size = sizeof(e), .dmabuf = -1}, o = e, opened = e;
    const int rc = t->ops->export_mem(t->device, at + INSIDE, BYTES - INSIDE, 0, &e);
    CHECK(rc == HALAY_OK || rc == HALAY_EUNSUPPORTED);
    CHECK(t->ops->why(t->device));
    CHECK(t->ops->export_mem(t->device, at + INSIDE, BYTES - INSIDE, 1, &opened) == rc);
    CHECK(t->ops->export_mem(t->device, ours, sizeof(ours), 0, &o) != HALAY_OK);
    CHECK(t->ops->flush(t->device) == (rc || !e.flushes ? HALAY_EUNSUPPORTED : HALAY_OK));
    if (!rc) {
        const char *from = e.address;
        CHECK(from <= at && at + BYTES <= from + e.bytes && e.id && e.dmabuf == -1);
        CHECK(opened.address == e.address && opened.bytes == e.bytes && opened.id == e.id);
        CHECK(opened.dmabuf < 0 || !close(opened.dmabuf));
        CHECK(!t->ops->export_mem(t->device, other, BYTES, 0, &o));
        CHECK((o.address == e.address) == (o.id == e.id));
    }
    drop(t, at);
    drop(t, other);
    end(t);
}

/* ------------------------------------------------------------------ lists */

/* Parts of one list are one piece of work; wrong ones are none at all. */
static void test_list(struct trial *t)
{
    enum { N = 40 };
    int32_t values[N], got[N];
    halay_part_t parts[HALAY_LIST_PARTS + 1];
    halay_done_t done[2];
    begin(t);
    int32_t *in = take(t, sizeof(values)), *out = take(t, sizeof(values));
    for (int i = 0; i < N; i++)
        values[i] = i + 1;
    put(t, in, values, sizeof(values));
    put(t, out, values, sizeof(values));
    parts[0] = (halay_part_t){out, in + 10, 10, 1};
    parts[1] = (halay_part_t){out + 10, in, 10, -2};
    parts[2] = (halay_part_t){NULL, NULL, 0, 3};
    parts[3] = (halay_part_t){out + 20, out + 20, 10, 3};
    int n = 0, rc = t->ops->launch_list(t->device, parts, 4, HALAY_INT32, 9);
    CHECK(rc == HALAY_OK || rc == HALAY_INPROGRESS);
    memset(parts, 0, sizeof(parts));
    for (int p = 0; rc == HALAY_INPROGRESS && n == 0 && p < LAST_POLL; p++)
        n = t->ops->poll(t->device, done, 2);
    CHECK(rc == HALAY_OK || (n == 1 && done[0].cookie == 9 && done[0].status == HALAY_OK));
    get(t, got, out, sizeof(got));
    for (int i = 0; i < N; i++)
        CHECK(got[i] == (i < 10 ? i + 11 : i < 20 ? -2 * (i - 9) : i < 30 ? 3 * (i + 1) : i + 1));
    for (int i = 0; i <= HALAY_LIST_PARTS; i++)
        parts[i] = (halay_part_t){out, in, 1, 1};
    CHECK(t->ops->launch_list(t->device, parts, HALAY_LIST_PARTS + 1, HALAY_INT32, 1) ==
          HALAY_EINVAL);
    CHECK(t->ops->launch_list(t->device, parts, 0, HALAY_INT32, 1) == HALAY_EINVAL);
    CHECK(t->ops->launch_list(t->device, NULL, 1, HALAY_INT32, 1) == HALAY_EINVAL);
    parts[1].src = out + 1;
    parts[1].count = 4;
    CHECK(t->ops->launch_list(t->device, parts, 2, HALAY_INT32, 1) == HALAY_EINVAL);
    if (t->memory.kind != HALAY_MEMORY_HOST) {
        parts[1].src = values;
        CHECK(t->ops->launch_list(t->device, parts, 2, HALAY_INT32, 1) == HALAY_EINVAL);
    }
    drop(t, in);
    drop(t, out);
    end(t);
}

void device_body(const halay_device_ops_t *ops, void *arg)
{
    struct trial t = {.ops = ops, .arg = arg};
    test_open(&t);
    test_query(&t);
    test_alloc(&t);
    test_copies(&t);
    test_bad_work(&t);
    test_wrong_side(&t);
    test_odd_work(&t);
    test_bound(&t);
    test_list(&t);
    test_user_all(&t);
    test_arm(&t);
    test_stop(&t);
    test_export(&t);
}
