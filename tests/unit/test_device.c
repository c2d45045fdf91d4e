/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_device.c - types and operations; what every device does, for all of them; and the late
 * device: everything once, in another order, nothing before its time.
 */
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "device/device_builtin.h"
#include "device_body.h"

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
        halay_done_t done[WORKS];
        int n;
        while (nlaunched < WORKS) {
            halay_work_t w = {.size = sizeof(w),
                              .dst = sum[nlaunched],
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
        n = hly_device_late.poll(device, done, max);
        CHECK(n >= 0 && n <= max);
        for (int c = 0; c < n; c++) {
            const int w = (int)(done[c].cookie - 0xabcd000000000000u);
            CHECK(!done[c].status);
            CHECK(w >= 0 && w < WORKS && state[w] == LAUNCHED);
            state[w] = DONE;
            order[ndone++] = w;
        }
        for (int w = 0; w < WORKS; w++)
            CHECK(state[w] == DONE ? summed(w) : untouched(w));
    }
    CHECK(ndone == WORKS && hly_device_late.poll(device, (halay_done_t[1]){{0}}, 1) == 0);
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
            halay_work_t work = {
                .size = sizeof(work), .dst = sum[w], .src = {left[w]}, .count = COUNT, .nsrc = 1};
            work.type = HALAY_INT32;
            CHECK(hly_device_late.launch(device, &work) == HALAY_INPROGRESS);
        }
        for (uint32_t p = 0; p < delay; p++) {
            halay_done_t done[50];
            int n = hly_device_late.poll(device, done, 50);
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
    halay_work_t w = {
        .size = sizeof(w), .dst = &to, .src = {&from}, .count = 1, .type = HALAY_INT32, .nsrc = 1};
    halay_device_t *device;
    halay_done_t done;
    int n = 0;
    CHECK(hly_device_late.open(NULL, NULL, &device) == HALAY_OK);
    CHECK(hly_device_late.launch(device, &w) == HALAY_INPROGRESS);
    from = 2;
    for (int p = 0; p < POLLS_MAX && n == 0; p++)
        n = hly_device_late.poll(device, &done, 1);
    CHECK(n == 1 && to == 2);
    hly_device_late.close(device);
}

/* One never ends and is taken back, one ends with an error: neither is done. Then poll breaks. */
static void test_late_fates(void)
{
    struct hly_device_late_arg arg = {.never = 2, .fails = 3, .breaks = 4, .delay_polls_max = 1};
    int32_t from = 1, to[4] = {0};
    halay_device_t *device;
    halay_done_t done[4];
    CHECK(hly_device_late.open(&arg, NULL, &device) == HALAY_OK);
    for (uint64_t i = 0; i < 4; i++) {
        halay_work_t w = {.size = sizeof(w),
                          .dst = &to[i],
                          .src = {&from},
                          .count = 1,
                          .type = HALAY_INT32,
                          .nsrc = 1};
        w.cookie = i;
        if (i == 3) {
            int n = 0;
            for (int p = 0; p < POLLS_MAX; p++)
                n += hly_device_late.poll(device, done + n, 4 - n);
            CHECK(n == 2);
        }
        CHECK(hly_device_late.launch(device, &w) == HALAY_INPROGRESS);
    }
    for (int i = 0; i < 2; i++)
        CHECK(done[i].cookie == 0 ? done[i].status == HALAY_OK
                                  : done[i].cookie == 2 && done[i].status == HALAY_EDEVICE);
    CHECK(hly_device_late.poll(device, done, 4) == HALAY_EDEVICE);
    CHECK(hly_device_late.stop(device, 1, 0) == HALAY_OK);
    CHECK(hly_device_late.stop(device, 3, 0) == HALAY_OK);
    CHECK(to[0] == 1 && to[1] == 0 && to[2] == 0 && to[3] == 0);
    hly_device_late.close(device);
}

/* Does a touch of its own memory show? A child reads or writes a byte, and is killed. */
static void test_late_shows_touch(void)
{
    struct hly_device_late_arg arg = {.own_memory = true};
    halay_device_t *device;
    void *at;
    CHECK(hly_device_late.open(&arg, NULL, &device) == HALAY_OK);
    CHECK(hly_device_late.alloc(device, HALAY_PLACE_OWN, 100, 64, &at) == HALAY_OK);
    for (int writes = 0; writes < 2; writes++) {
        int status;
        const pid_t child = fork();
        CHECK(child >= 0);
        if (!child) {
            signal(SIGSEGV, SIG_DFL); /* a sanitizer has its own */
            if (writes)
                *(volatile char *)at = 1;
            _exit(*(volatile char *)at);
        }
        CHECK(waitpid(child, &status, 0) == child);
        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
    }
    hly_device_late.free(device, HALAY_PLACE_OWN, at);
    hly_device_late.close(device);
}

/* What no kernel does alone is not bound; what is bound must be. */
static void test_host_bound(void)
{
    int64_t a[3] = {0}, b[3] = {0}, c[3];
    halay_work_t w = {
        .size = sizeof(w), .dst = c, .src = {a, b}, .count = 3, .type = HALAY_INT64, .nsrc = 2};
    halay_device_t *device;
    CHECK(hly_device_host.open(NULL, NULL, &device) == HALAY_OK);
    CHECK(hly_device_host.bind(device, &w) == HALAY_OK && w.bound);
    w.bound = NULL;
    w.op = HALAY_AVERAGE;
    w.divisor = 2;
    CHECK(hly_device_host.bind(device, &w) == HALAY_EUNSUPPORTED && !w.bound);
    w.count = 0;
    CHECK(hly_device_host.bind(device, &w) == HALAY_EUNSUPPORTED && !w.bound);
    hly_device_host.close(device);
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
    static struct hly_device_late_arg timed = {.delay_us_max = 2000}, own = {.own_memory = true},
                                      both = {.delay_us_max = 300, .own_memory = true};
    test_types();
    test_types_unknown();
    test_scale_integers();
    device_body(&hly_device_host, NULL);
    device_body(&hly_device_late, NULL);
    device_body(&hly_device_late, &timed);
    device_body(&hly_device_late, &own);
    device_body(&hly_device_late, &both);
    test_host_bound();
    test_late_order();
    test_late_bound();
    test_late_fates();
    test_late_shows_misuse();
    test_late_shows_touch();
    test_late_open();
    return 0;
}
