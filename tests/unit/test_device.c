/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_device.c - types and operations, opening devices, bad work, and the late device: everything
 * once, in another order, nothing before its time.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/device_builtin.h"

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                        \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

/* ------------------------------------------------------------------ types and operations */

static void test_types(void)
{
    /* i: sum prod min max average and the logical and bitwise ones; b: the latter; f: the first
     * five; c: sum prod average; p: minloc maxloc */
    static const struct {
        const char *name;
        size_t bytes;
        char kind;
    } want[HALAY_TYPE_COUNT] = {
        {"int8", 1, 'i'},          {"uint8", 1, 'i'},          {"int16", 2, 'i'},
        {"uint16", 2, 'i'},        {"int32", 4, 'i'},          {"uint32", 4, 'i'},
        {"int64", 8, 'i'},         {"uint64", 8, 'i'},         {"bool", 1, 'b'},
        {"float16", 2, 'f'},       {"bfloat16", 2, 'f'},       {"float32", 4, 'f'},
        {"float64", 8, 'f'},       {"complex64", 8, 'c'},      {"complex128", 16, 'c'},
        {"float32_int32", 8, 'p'}, {"float64_int64", 16, 'p'}, {"int32_int32", 8, 'p'},
        {"int64_int64", 16, 'p'}};
    static const char *const ops[HALAY_OP_COUNT] = {"sum",  "prod",   "min",   "max",  "average",
                                                    "land", "lor",    "lxor",  "band", "bor",
                                                    "bxor", "minloc", "maxloc"};
    static const char *const takers[HALAY_OP_COUNT] = {"ifc", "ifc", "if", "if", "ifc", "ib", "ib",
                                                       "ib",  "ib",  "ib", "ib", "p",   "p"};
    for (int t = 0; t < HALAY_TYPE_COUNT; t++) {
        CHECK(strcmp(halay_type_name((halay_type_t)t), want[t].name) == 0);
        CHECK(halay_type_bytes((halay_type_t)t) == want[t].bytes);
        for (int op = 0; op < HALAY_OP_COUNT; op++)
            CHECK(halay_op_takes((halay_op_t)op, (halay_type_t)t) ==
                  (strchr(takers[op], want[t].kind) != NULL));
    }
    for (int op = 0; op < HALAY_OP_COUNT; op++)
        CHECK(strcmp(halay_op_name((halay_op_t)op), ops[op]) == 0);
}

static void test_types_unknown(void)
{
    static const int unknown[] = {-1, HALAY_TYPE_COUNT, HALAY_OP_COUNT + HALAY_TYPE_COUNT, 1 << 30};
    for (size_t u = 0; u < sizeof unknown / sizeof unknown[0]; u++) {
        const halay_type_t type = (halay_type_t)unknown[u];
        const halay_op_t op = (halay_op_t)unknown[u];
        CHECK(halay_type_bytes(type) == 0);
        CHECK(strcmp(halay_type_name(type), "?") == 0);
        CHECK(!halay_op_takes(HALAY_SUM, type));
        CHECK(strcmp(halay_op_name(op), "?") == 0 && !halay_op_takes(op, HALAY_INT8));
    }
    CHECK(strcmp(halay_op_name(HALAY_OP_COUNT), "?") == 0);
}

/* ------------------------------------------------------------------ what every device does */

static void test_open(const halay_device_ops_t *ops)
{
    static const char *const wrong[] = {"", "sse9", "AVX2", "avx", "avx5122"};
    halay_device_t *device = NULL;
    CHECK(ops->size == sizeof *ops);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        CHECK(ops->open(NULL, wrong[i], &device) == HALAY_EUNSUPPORTED && !device);
    CHECK(ops->open(NULL, NULL, NULL) == HALAY_EINVAL);
    CHECK(ops->open(NULL, NULL, &device) == HALAY_OK && device);
    ops->close(device);
    CHECK(ops->open(NULL, "scalar", &device) == HALAY_OK && device);
    ops->close(device);
    ops->close(NULL);
}

static void take_left(void *arg, halay_type_t type, size_t count, void *dst, const void *left,
                      const void *right)
{
    (void)arg;
    (void)right;
    memcpy(dst, left, count * halay_type_bytes(type));
}

static void test_bad_work(const halay_device_ops_t *ops)
{
    int32_t a[8] = {0}, b[8] = {0}, c[8];
    const halay_work_t good = {.dst = c, .src = {a, b}, .count = 8, .type = HALAY_INT32, .nsrc = 2};
    halay_work_t bad[17];
    halay_device_t *device;
    uint64_t cookie;
    CHECK(ops->open(NULL, NULL, &device) == HALAY_OK);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        bad[i] = good;
    bad[0].nsrc = 0;
    bad[1].nsrc = HALAY_REDUCE_SOURCES + 1;
    bad[2].type = HALAY_TYPE_COUNT;
    bad[3].op = HALAY_OP_COUNT;
    bad[4].type = HALAY_FLOAT32, bad[4].op = HALAY_LAND;
    bad[5].type = HALAY_BOOL;
    bad[6].dst = NULL;
    bad[7].src[1] = NULL;
    bad[8].count = SIZE_MAX / 2;
    bad[9].dst = a + 1; /* overlaps */
    bad[10].type = HALAY_BOOL, bad[10].op = HALAY_AVERAGE, bad[10].divisor = 2, bad[10].nsrc = 1;
    bad[11].op = HALAY_OP_USER; /* without a function */
    bad[12].op = HALAY_OP_USER, bad[12].fn = take_left, bad[12].group = 0;
    bad[13].op = HALAY_OP_USER, bad[13].fn = take_left, bad[13].group = 3;
    bad[14].op = HALAY_OP_USER, bad[14].fn = take_left, bad[14].count = bad[14].group = 1025;
    bad[15].scales = 1, bad[15].factor = 2;
    bad[16].scales = 1, bad[16].factor = 1. / 0., bad[16].nsrc = 1;
    memset(c, 0x77, sizeof c);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        CHECK(ops->bind(device, &bad[i]) < 0 && !bad[i].bound);
        CHECK(ops->launch(device, &bad[i]) == HALAY_EINVAL);
    }
    CHECK(ops->launch(device, NULL) == HALAY_EINVAL);
    for (int i = 0; i < 8; i++)
        CHECK(a[i] == 0 && b[i] == 0 && c[i] == 0x77777777);
    CHECK(ops->poll(device, &cookie, 1) == 0);
    CHECK(ops->poll(device, &cookie, 0) == 0);
    CHECK(ops->poll(device, &cookie, -1) == HALAY_EINVAL);
    ops->close(device);
}

/* Legal, though odd: nothing to do, and fields that have no meaning. */
static void test_odd_work(void)
{
    int16_t a[3] = {1, 2, 3}, b[3] = {10, 20, 30}, c[3] = {0};
    halay_work_t w = {.dst = c, .src = {a, b}, .count = 3, .type = HALAY_INT16, .nsrc = 2};
    halay_work_t empty = {.dst = NULL, .count = 0, .type = HALAY_INT16, .nsrc = 4};
    halay_device_t *device;
    CHECK(hly_device_host.open(NULL, NULL, &device) == HALAY_OK);
    CHECK(hly_device_host.launch(device, &empty) == HALAY_OK);
    w.divisor = 9; /* of a sum */
    CHECK(hly_device_host.launch(device, &w) == HALAY_OK && c[2] == 33);
    w.nsrc = 1;
    w.op = (halay_op_t)99;
    CHECK(hly_device_host.launch(device, &w) == HALAY_OK && c[2] == 3);
    w.dst = a; /* a copy onto itself */
    CHECK(hly_device_host.launch(device, &w) == HALAY_OK && a[2] == 3);
    hly_device_host.close(device);
}

/* Bound once, done as often as it is launched; what no kernel does alone is not bound. */
static void test_bound(void)
{
    int64_t a[3], b[3], c[3];
    halay_work_t w = {.dst = c, .src = {a, b}, .count = 3, .type = HALAY_INT64, .nsrc = 2};
    halay_device_t *device;
    CHECK(hly_device_host.open(NULL, NULL, &device) == HALAY_OK);
    CHECK(hly_device_host.bind(device, &w) == HALAY_OK && w.bound);
    for (int n = 0; n < 5; n++) {
        for (int i = 0; i < 3; i++)
            a[i] = n * i, b[i] = 100 + i;
        CHECK(hly_device_host.launch(device, &w) == HALAY_OK);
        for (int i = 0; i < 3; i++)
            CHECK(c[i] == 100 + i + n * i);
    }
    w.bound = NULL; /* and then anything may change */
    w.op = HALAY_AVERAGE;
    w.divisor = 2;
    CHECK(hly_device_host.bind(device, &w) == HALAY_EUNSUPPORTED && !w.bound);
    CHECK(hly_device_host.launch(device, &w) == HALAY_OK && c[2] == (8 + 102) / 2);
    w.count = 0;
    CHECK(hly_device_host.bind(device, &w) == HALAY_EUNSUPPORTED && !w.bound);
    w.nsrc = 1;
    CHECK(hly_device_host.bind(device, &w) == HALAY_EUNSUPPORTED && !w.bound);
    hly_device_host.close(device);
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
static void test_user(const halay_device_ops_t *ops, uint32_t nsrc, size_t group, int alias)
{
    enum { MOST = 5000 };
    static int32_t source[HALAY_REDUCE_SOURCES][MOST], out[MOST];
    const size_t count = MOST / group * group;
    struct seen seen = {.groups_of = group};
    halay_work_t w = {.dst = out,
                      .count = count,
                      .type = HALAY_INT32,
                      .op = (halay_op_t)(HALAY_OP_USER + 5),
                      .nsrc = nsrc,
                      .fn = minus_twice,
                      .fn_arg = &seen,
                      .group = group};
    halay_device_t *device;
    uint64_t cookie;
    CHECK(ops->open(NULL, NULL, &device) == HALAY_OK);
    for (uint32_t s = 0; s < nsrc; s++) {
        for (size_t i = 0; i < count; i++)
            source[s][i] = (int32_t)(i * 7 + s * 1000);
        w.src[s] = source[s];
    }
    if (alias >= 0)
        w.dst = source[alias];
    int rc = ops->launch(device, &w);
    while (rc == HALAY_INPROGRESS && ops->poll(device, &cookie, 1) == 0)
        ;
    CHECK(rc >= 0 && seen.elements == (nsrc - 1) * count && seen.calls > 0);
    for (size_t i = 0; i < count; i++) {
        int32_t want = (int32_t)(i * 7);
        for (uint32_t s = 1; s < nsrc; s++)
            want -= 2 * (int32_t)(i * 7 + s * 1000);
        CHECK(((int32_t *)w.dst)[i] == want);
    }
    ops->close(device);
}

static void test_user_all(const halay_device_ops_t *ops)
{
    static const size_t groups[] = {1, 3, 4, 1000, 1024};
    for (uint32_t nsrc = 2; nsrc <= HALAY_REDUCE_SOURCES; nsrc++)
        for (size_t g = 0; g < sizeof groups / sizeof groups[0]; g++)
            for (int alias = -1; alias < (int)nsrc; alias++)
                test_user(ops, nsrc, groups[g], alias);
}

/* ------------------------------------------------------------------ scaling */

/* Truncated toward zero, and held at the ends. */
static void test_scale_integers(void)
{
    int8_t a[] = {-128, -3, -1, 0, 1, 3, 127}, b[7];
    const int8_t half[] = {-64, -1, 0, 0, 0, 1, 63}, twice[] = {-128, -6, -2, 0, 2, 6, 127};
    uint16_t u[] = {0, 1, 65535}, v[3];
    int64_t big[] = {INT64_MIN, INT64_MAX, (1ll << 53) + 1, 7}, c[4];
    uint64_t huge[] = {UINT64_MAX, 1}, d[2];
    CHECK(!halay_scale(b, a, 7, HALAY_INT8, 0.5) && !memcmp(b, half, 7));
    CHECK(!halay_scale(b, a, 7, HALAY_INT8, 2) && !memcmp(b, twice, 7));
    CHECK(!halay_scale(v, u, 3, HALAY_UINT16, -1) && v[0] == 0 && v[1] == 0 && v[2] == 0);
    CHECK(!halay_scale(v, u, 3, HALAY_UINT16, 1e300) && v[0] == 0 && v[1] == 65535);
    CHECK(!halay_scale(c, big, 4, HALAY_INT64, 1) && c[0] == INT64_MIN && c[1] == INT64_MAX);
    CHECK(c[2] == 1ll << 53 && c[3] == 7);
    CHECK(!halay_scale(c, big, 4, HALAY_INT64, -1) && c[0] == INT64_MAX && c[3] == -7);
    CHECK(!halay_scale(d, huge, 2, HALAY_UINT64, 2) && d[0] == UINT64_MAX && d[1] == 2);
    CHECK(!halay_scale(a, a, 7, HALAY_INT8, 0.5) && !memcmp(a, half, 7));
    CHECK(halay_scale(b, a, 7, HALAY_BOOL, 2) == HALAY_EINVAL);
    CHECK(halay_scale(b, a, 0, HALAY_INT64_INT64, 2) == HALAY_EINVAL);
    CHECK(halay_scale(b, a, 7, HALAY_INT8, 0. / 0.) == HALAY_EINVAL);
    CHECK(halay_scale(NULL, a, 7, HALAY_INT8, 2) == HALAY_EINVAL);
    CHECK(halay_scale(NULL, NULL, 0, HALAY_INT8, 2) == HALAY_OK);
}

/* ------------------------------------------------------------------ the late device */

enum { WORKS = 200, COUNT = 33, POLLS_MAX = 100000 };

static int32_t left[WORKS][COUNT], right[WORKS][COUNT], sum[WORKS][COUNT];

static int untouched(int w)
{
    for (int i = 0; i < COUNT; i++)
        if (sum[w][i] != -1)
            return 0;
    return 1;
}

static int summed(int w)
{
    for (int i = 0; i < COUNT; i++)
        if (sum[w][i] != left[w][i] + right[w][i])
            return 0;
    return 1;
}

static void buffers_reset(void)
{
    memset(sum, 0xff, sizeof sum);
    for (int w = 0; w < WORKS; w++) {
        for (int i = 0; i < COUNT; i++) {
            left[w][i] = 1000 * w + i;
            right[w][i] = 7 * i;
        }
    }
}

/*
 * Launches WORKS pieces whenever there is room and polls max at a time, looking at every buffer
 * after every call. order gets the cookies as they came. Returns how often there was no room.
 */
static int late_run(const struct hly_device_late_arg *arg, int max, int order[WORKS], int *npolls)
{
    struct hly_device_late_arg copy = *arg;
    enum { WAITING, LAUNCHED, DONE } state[WORKS] = {WAITING};
    int nlaunched = 0, ndone = 0, nfull = 0;
    halay_device_t *device;

    buffers_reset();
    CHECK(hly_device_late.open(&copy, NULL, &device) == HALAY_OK);
    copy.capacity = 1; /* read in open, not kept */
    for (*npolls = 0; ndone < WORKS && *npolls < POLLS_MAX; (*npolls)++) {
        uint64_t cookies[WORKS];
        int n;
        while (nlaunched < WORKS) {
            halay_work_t w = {.dst = sum[nlaunched],
                              .src = {left[nlaunched], right[nlaunched]},
                              .count = COUNT,
                              .type = HALAY_INT32,
                              .op = HALAY_SUM,
                              .nsrc = 2,
                              .cookie = 0xabcd000000000000u + (uint64_t)nlaunched};
            int rc = hly_device_late.launch(device, &w);
            if (rc == HALAY_EAGAIN) {
                CHECK(nlaunched - ndone == (int)arg->capacity);
                nfull++;
                break;
            }
            CHECK(rc == HALAY_INPROGRESS);
            memset(&w, 0, sizeof w); /* the work itself belongs to the caller */
            state[nlaunched++] = LAUNCHED;
        }
        n = hly_device_late.poll(device, cookies, max);
        CHECK(n >= 0 && n <= max);
        for (int c = 0; c < n; c++) {
            const int w = (int)(cookies[c] - 0xabcd000000000000u);
            CHECK(w >= 0 && w < WORKS && state[w] == LAUNCHED);
            state[w] = DONE;
            order[ndone++] = w;
        }
        for (int w = 0; w < WORKS; w++)
            CHECK(state[w] == DONE ? summed(w) : untouched(w));
    }
    CHECK(ndone == WORKS && hly_device_late.poll(device, (uint64_t[1]){0}, 1) == 0);
    hly_device_late.close(device);
    return nfull;
}

static int in_order(const int order[WORKS])
{
    for (int w = 0; w < WORKS; w++)
        if (order[w] != w)
            return 0;
    return 1;
}

static void test_late_order(void)
{
    static const struct hly_device_late_arg args[] = {
        {1, 1, 16}, {2, 20, 64}, {3, 5, WORKS}, {4, 100, 3}, {5, 1, 1}};
    int first[WORKS], again[WORKS], other[WORKS], npolls;
    for (size_t a = 0; a < sizeof args / sizeof args[0]; a++) {
        struct hly_device_late_arg reseeded = args[a];
        for (int max = 1; max <= WORKS; max *= 10) {
            int nfull = late_run(&args[a], max, first, &npolls);
            CHECK(args[a].capacity >= WORKS ? nfull == 0 : nfull > 0);
            CHECK(npolls <= WORKS * (int)args[a].delay_polls_max);
            late_run(&args[a], max, again, &npolls);
            CHECK(memcmp(first, again, sizeof first) == 0);
            reseeded.seed += 100;
            late_run(&reseeded, max, other, &npolls);
            if (args[a].capacity == 1) {
                CHECK(in_order(first));
                continue;
            }
            CHECK(!in_order(first) && memcmp(first, other, sizeof first) != 0);
        }
    }
}

/* As many polls as the longest delay finish everything; with no delay to speak of, one does. */
static void test_late_bound(void)
{
    for (uint32_t delay = 1; delay <= 9; delay += 4) {
        struct hly_device_late_arg arg = {.seed = delay, .delay_polls_max = delay, .capacity = 50};
        int ndone = 0, nlate = 0;
        halay_device_t *device;
        CHECK(hly_device_late.open(&arg, "scalar", &device) == HALAY_OK);
        buffers_reset();
        for (int w = 0; w < 50; w++) {
            halay_work_t work = {.dst = sum[w], .src = {left[w]}, .count = COUNT, .nsrc = 1};
            work.type = HALAY_INT32;
            CHECK(hly_device_late.launch(device, &work) == HALAY_INPROGRESS);
        }
        for (uint32_t p = 0; p < delay; p++) {
            uint64_t cookies[50];
            int n = hly_device_late.poll(device, cookies, 50);
            CHECK(n >= 0);
            ndone += n;
            nlate += p > 0 ? n : 0;
        }
        CHECK(ndone == 50 && (delay == 1 || nlate > 0));
        hly_device_late.close(device);
    }
}

/* Does a buffer that is used too early show? The source changes between launch and poll. */
static void test_late_shows_misuse(void)
{
    int32_t from = 1, to = 0;
    halay_work_t w = {.dst = &to, .src = {&from}, .count = 1, .type = HALAY_INT32, .nsrc = 1};
    halay_device_t *device;
    uint64_t cookie;
    int n = 0;
    CHECK(hly_device_late.open(NULL, NULL, &device) == HALAY_OK);
    CHECK(hly_device_late.launch(device, &w) == HALAY_INPROGRESS);
    from = 2;
    for (int p = 0; p < POLLS_MAX && n == 0; p++)
        n = hly_device_late.poll(device, &cookie, 1);
    CHECK(n == 1 && to == 2);
    hly_device_late.close(device);
}

static void test_late_open(void)
{
    struct hly_device_late_arg arg = {.capacity = HLY_DEVICE_LATE_CAPACITY_MAX + 1};
    halay_device_t *device = NULL;
    CHECK(hly_device_late.open(&arg, NULL, &device) == HALAY_EINVAL && !device);
    arg.capacity = HLY_DEVICE_LATE_CAPACITY_MAX;
    CHECK(hly_device_late.open(&arg, NULL, &device) == HALAY_OK);
    CHECK(hly_device_late.poll(device, NULL, 1) == HALAY_EINVAL);
    hly_device_late.close(device);
}

int main(void)
{
    test_types();
    test_types_unknown();
    test_open(&hly_device_host);
    test_open(&hly_device_late);
    test_bad_work(&hly_device_host);
    test_bad_work(&hly_device_late);
    test_odd_work();
    test_bound();
    test_user_all(&hly_device_host);
    test_user_all(&hly_device_late);
    test_scale_integers();
    test_late_order();
    test_late_bound();
    test_late_shows_misuse();
    test_late_open();
    return 0;
}
