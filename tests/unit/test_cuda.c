/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_cuda.c - the CUDA device over a double of libcuda: the contract; whose memory it is; a fault
 * at each call of the driver; GPUs that break or stop; threads (bits are those of gpu/bits). And
 * the double: who touches a GPU's memory crashes.
 */
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../double/cuda/double.h"
#include "device/cuda/driver.h"
#include "device/device_builtin.h"
#include "device_body.h"

#define CALL(name, arguments) int name arguments;
HLY_CUDA_CALLS(CALL, CALL)
int cuMemAllocManaged(uint64_t *at, size_t bytes, unsigned flags);

static const halay_device_ops_t *const ops = &hly_device_cuda;
static struct hly_device_cuda_arg first = {.ordinal = 1}, events = {.ordinal = 1, .no_words = true};

/* Nothing is left, and nothing was used wrongly. */
static void check_clean(void)
{
    const struct cuda_double_counts c = cuda_double_counts();
    CHECK(!c.allocations && !c.pinned && !c.streams && !c.events && !c.modules);
    CHECK(!c.retained && !c.pushed && !c.pageable && !c.misused);
}

/* Sees the work to its end, at most a second or two. What launch or poll have said. */
static int perform(halay_device_t *device, const halay_work_t *work)
{
    halay_done_t done;
    int rc = ops->launch(device, work);
    if (rc != HALAY_INPROGRESS)
        return rc;
    for (int p = 0; p < 20000; p++) {
        const int n = ops->poll(device, &done, 1);
        if (n > 0)
            return done.status;
        if (n < 0)
            break;
        usleep(10);
    }
    rc = ops->stop(device, work->cookie, 100000000);
    CHECK(rc == HALAY_OK || rc == HALAY_EDEVICE);
    return HALAY_EDEVICE;
}

static halay_work_t copy_of(void *dst, const void *src, size_t bytes, uint32_t direction)
{
    return (halay_work_t){.size = sizeof(halay_work_t),
                          .dst = dst,
                          .src = {src},
                          .count = bytes,
                          .type = HALAY_UINT8,
                          .nsrc = 1,
                          .direction = direction};
}

/* ------------------------------------------------------------------ the double */

static void test_touch(void)
{
    halay_device_t *device;
    void *at;
    CHECK(ops->open(&first, NULL, &device) == HALAY_OK);
    CHECK(ops->alloc(device, HALAY_PLACE_OWN, 100, 64, &at) == HALAY_OK);
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
    ops->free(device, HALAY_PLACE_OWN, at);
    ops->close(device);
    check_clean();
}

/* It refuses what CUDA refuses, and counts it. */
static void test_misuse(void)
{
    uint64_t at, before = cuda_double_counts().misused;
    void *context, *stream, *other, *was;
    char host[8] = {0};
    CHECK(cuMemAlloc_v2(&at, 8) == 201); /* no context */
    CHECK(cuDevicePrimaryCtxRetain(&context, 0) == 0 && cuDevicePrimaryCtxRetain(&other, 1) == 0);
    CHECK(cuCtxPushCurrent_v2(context) == 0);
    CHECK(cuMemAlloc_v2(&at, 8) == 0);
    CHECK(cuStreamCreate(&stream, HLY_CU_NON_BLOCKING) == 0);
    CHECK(cuMemcpyHtoDAsync_v2((uint64_t)(uintptr_t)host, host, 8, stream) == 1);
    CHECK(cuMemcpyHtoDAsync_v2(at, (void *)(uintptr_t)at, 8, stream) == 1);
    CHECK(cuMemcpyHtoDAsync_v2(at, host, 9, stream) == 1);
    CHECK(cuCtxPushCurrent_v2(other) == 0);
    CHECK(cuMemcpyHtoDAsync_v2(at, host, 8, stream) == 400);
    CHECK(cuCtxPopCurrent_v2(&was) == 0 && was == other);
    CHECK(cuMemFree_v2(at) == 0 && cuMemFree_v2(at) == 1);
    CHECK(cuStreamDestroy_v2(stream) == 0 && cuStreamQuery(stream) == 400);
    CHECK(cuCtxPopCurrent_v2(&was) == 0 && was == context);
    CHECK(cuDevicePrimaryCtxRelease_v2(0) == 0 && cuDevicePrimaryCtxRelease_v2(1) == 0);
    CHECK(cuda_double_counts().misused == before + 7);
}

/* ------------------------------------------------------------------ whose memory it is */

static int asked(halay_device_t *device, const void *at, size_t bytes)
{
    halay_memory_t m = {.size = sizeof(m)};
    const int rc = ops->query(device, at, bytes, &m);
    CHECK(rc || (m.kind == HALAY_MEMORY_CUDA && !m.touchable));
    return rc;
}

/* What a program has: of two GPUs, managed, pinned, freed. */
static void test_query(void)
{
    halay_device_t *device, *second;
    void *contexts[2], *pinned, *was;
    uint64_t at[2], managed;
    char local;
    CHECK(ops->open(NULL, NULL, &device) == HALAY_OK && ops->open(NULL, NULL, &second) == HALAY_OK);
    for (int i = 0; i < 2; i++) {
        CHECK(!cuDevicePrimaryCtxRetain(&contexts[i], i) && !cuCtxPushCurrent_v2(contexts[i]));
        CHECK(!cuMemAlloc_v2(&at[i], 1000));
    }
    CHECK(!cuMemHostAlloc(&pinned, 100, HLY_CU_PORTABLE) && !cuMemAllocManaged(&managed, 100, 1));
    CHECK(asked(device, &local, 1) == HALAY_EUNSUPPORTED);
    CHECK(asked(device, pinned, 100) == HALAY_EUNSUPPORTED);
    CHECK(cuda_double_counts().retained == 2); /* so far by the program */
    void *p[2] = {(void *)(uintptr_t)at[0], (void *)(uintptr_t)at[1]};
    CHECK(asked(device, p[1], 1000) == HALAY_OK);
    CHECK(asked(device, (char *)p[1] + 1, 1000) == HALAY_EINVAL);
    CHECK(asked(device, (char *)p[1] - 1, 2) == HALAY_EINVAL);
    CHECK(asked(device, p[0], 1) == HALAY_EINVAL && strstr(ops->why(device), "memory of GPU 0"));
    CHECK(asked(second, p[0], 0) == HALAY_OK && asked(second, p[1], 0) == HALAY_EINVAL);
    CHECK(asked(device, (void *)(uintptr_t)managed, 100) == HALAY_OK);
    CHECK(asked(second, (void *)(uintptr_t)managed, 100) == HALAY_OK);
    const halay_work_t w = copy_of((void *)(uintptr_t)managed, p[1], 100, HALAY_WITHIN);
    const halay_work_t wrong = copy_of(p[1], p[0], 100, HALAY_WITHIN);
    const halay_work_t down = copy_of(pinned, p[0], 100, HALAY_TO_HOST);
    CHECK(perform(device, &w) == HALAY_OK && *(unsigned char *)(uintptr_t)managed == 0xdb);
    CHECK(perform(device, &wrong) == HALAY_EINVAL);
    CHECK(perform(second, &down) == HALAY_OK && *(unsigned char *)pinned == 0xdb);
    CHECK(!cuMemFree_v2(at[1]) && asked(device, p[1], 1) == HALAY_EUNSUPPORTED);
    CHECK(perform(device, &w) == HALAY_EINVAL);
    CHECK(!cuMemFree_v2(at[0]) && !cuMemFree_v2(managed) && !cuMemFreeHost(pinned));
    ops->close(device);
    ops->close(second);
    for (int i = 0; i < 2; i++)
        CHECK(!cuCtxPopCurrent_v2(&was) && !cuDevicePrimaryCtxRelease_v2(1 - i));
    check_clean();
}

/* A driver that is too old, no GPU, one that is too old; and no GPU is known. */
static void test_refusals(void)
{
    struct cuda_double_settings *s = cuda_double_settings();
    const struct cuda_double_settings was = *s;
    struct hly_device_cuda_arg third = {.ordinal = 3};
    halay_device_t *device = NULL;
    void *at;
    s->version = 10020;
    CHECK(ops->open(&first, NULL, &device) == HALAY_EUNSUPPORTED && !device);
    s->version = was.version;
    s->capability = 70;
    CHECK(ops->open(&first, NULL, &device) == HALAY_EUNSUPPORTED && !device);
    s->capability = was.capability;
    CHECK(ops->open(&third, NULL, &device) == HALAY_EUNSUPPORTED && !device);
    s->devices = 0;
    CHECK(ops->open(&first, NULL, &device) == HALAY_EUNSUPPORTED && !device);
    *s = was;
    CHECK(ops->open(NULL, NULL, &device) == HALAY_OK);
    CHECK(ops->alloc(device, HALAY_PLACE_OWN, 8, 8, &at) == HALAY_ESTATE && *ops->why(device));
    ops->close(device);
    check_clean();
}

/* ------------------------------------------------------------------ faults */

/* Opens, copies up, reduces, copies down, closes. What has failed first, or HALAY_OK. */
static int life(void *arg)
{
    char host[3000] = {0};
    halay_device_t *device;
    void *a, *b = NULL;
    int rc = ops->open(arg, NULL, &device);
    if (rc)
        return rc;
    rc = ops->alloc(device, HALAY_PLACE_OWN, sizeof(host), 4096, &a);
    if (rc)
        goto close_device;
    rc = ops->alloc(device, HALAY_PLACE_OWN, sizeof(host), 64, &b);
    if (rc)
        goto free_a;
    halay_work_t w = copy_of(a, host, sizeof(host), HALAY_FROM_HOST);
    rc = perform(device, &w);
    w = copy_of(b, a, sizeof(host), HALAY_WITHIN);
    rc = rc ? rc : perform(device, &w);
    w.nsrc = 2, w.src[1] = b;
    rc = rc ? rc : perform(device, &w);
    w = copy_of(host, b, sizeof(host), HALAY_TO_HOST);
    rc = rc ? rc : perform(device, &w);
    ops->free(device, HALAY_PLACE_OWN, b);
free_a:
    ops->free(device, HALAY_PLACE_OWN, a);
close_device:
    ops->close(device);
    return rc;
}

static int left_over(void)
{
    const struct cuda_double_counts c = cuda_double_counts();
    return c.allocations + c.pinned + c.streams + c.events + c.modules + c.retained;
}

/* Then nothing can be freed. */
static bool has_failed_to_enter(void)
{
    const char *failed = cuda_double_counts().failed;
    return !strcmp(failed, "cuCtxPushCurrent_v2") ||
           !strcmp(failed, "cuThreadExchangeStreamCaptureMode");
}

/* A code and an end, whichever call fails; nothing is left but what that call should have freed. */
static void test_faults(void *arg)
{
    enum { LAUNCH_FAILED = 719 };
    uint64_t ncalls = 40, nfailed = 0;
    CHECK(life(arg) == HALAY_OK);
    for (uint64_t n = 1; n <= ncalls; n++) {
        const uint64_t before = cuda_double_counts().calls;
        const int left = left_over();
        cuda_double_fail(NULL, n, n % 3 ? LAUNCH_FAILED : HLY_CU_OUT_OF_MEMORY);
        const int rc = life(arg);
        cuda_double_fail(NULL, 0, 0);
        CHECK(rc == HALAY_OK || rc == HALAY_EDEVICE || rc == HALAY_ENOMEM || rc == HALAY_EINVAL ||
              rc == HALAY_EUNSUPPORTED);
        const uint64_t calls = cuda_double_counts().calls - before;
        if (n == ncalls && calls > n && ncalls < 1500)
            ncalls++;
        nfailed += rc != HALAY_OK;
        CHECK(!cuda_double_counts().broken && !cuda_double_counts().pushed &&
              !cuda_double_counts().pageable);
        CHECK(left_over() <= left + 1 || has_failed_to_enter());
    }
    CHECK(nfailed > 20);
}

/* One call by name, at its first use and its second. */
static void test_named_faults(void)
{
    static const char *const names[] = {
        "cuMemAlloc_v2",        "cuMemHostAlloc",          "cuStreamCreate",
        "cuModuleLoadData",     "cuModuleGetFunction",     "cuLaunchKernel",
        "cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2",    "cuStreamWriteValue64_v2",
        "cuCtxPushCurrent_v2",  "cuDevicePrimaryCtxRetain"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        cuda_double_fail(names[i], 1, HLY_CU_OUT_OF_MEMORY);
        const int rc = life(&first);
        CHECK(rc == HALAY_ENOMEM || (rc == HALAY_EDEVICE && i == 8) ||
              (rc == HALAY_OK && i == 8 && !cuda_double_settings()->words));
        cuda_double_fail(NULL, 0, 0);
        check_clean();
    }
}

/* ------------------------------------------------------------------ the program's streams */

/* With the GPU's context. */
static void put_copies(void *stream, void *to, const void *from, int n)
{
    for (int i = 0; i < n; i++)
        CHECK(cuMemcpyHtoDAsync_v2((uint64_t)(uintptr_t)to, from, 64, stream) == 0);
}

/* A mark comes when all before it is done and not sooner, is dropped at once, and may be one too
 * many. Which streams can be followed. */
static void test_follow(void)
{
    enum { MARKS = 128 };
    halay_device_t *device;
    halay_done_t done[2];
    void *context, *other, *was, *at, *from;
    halay_stream_t s = {.size = sizeof(s), .kind = HALAY_MEMORY_CUDA}, wrong = s;
    CHECK(cuInit(0) == 0 && cuDevicePrimaryCtxRetain(&context, 0) == 0 &&
          cuDevicePrimaryCtxRetain(&other, 1) == 0 && cuCtxPushCurrent_v2(other) == 0);
    CHECK(cuStreamCreate(&wrong.handle, HLY_CU_NON_BLOCKING) == 0);
    CHECK(cuCtxPopCurrent_v2(&was) == 0 && cuCtxPushCurrent_v2(context) == 0);
    CHECK(cuStreamCreate(&s.handle, HLY_CU_NON_BLOCKING) == 0);
    CHECK(ops->open(NULL, NULL, &device) == HALAY_OK); /* takes the thread's GPU */
    CHECK(ops->follow(device, &s, 0) == HALAY_OK);
    CHECK(ops->follow(device, &wrong, 0) == HALAY_EINVAL && *ops->why(device));
    CHECK(ops->follow(device, &wrong, 5) == HALAY_EINVAL);
    CHECK(ops->alloc(device, HALAY_PLACE_OWN, 64, 64, &at) == HALAY_OK &&
          ops->alloc(device, HALAY_PLACE_HOST, 64, 64, &from) == HALAY_OK);
    cuda_double_halt(1);
    put_copies(s.handle, at, from, 3);
    for (uint64_t i = 1; i <= MARKS; i++)
        CHECK(ops->follow(device, &s, i) == HALAY_INPROGRESS);
    CHECK(ops->follow(device, &s, MARKS + 1) == HALAY_EAGAIN);
    CHECK(ops->poll(device, done, 2) == 0);
    for (uint64_t i = 2; i <= MARKS; i++)
        CHECK(ops->stop(device, i, 0) == HALAY_OK);
    CHECK(ops->follow(device, &s, 2) == HALAY_INPROGRESS && ops->poll(device, done, 2) == 0);
    cuda_double_halt(0);
    uint64_t seen = 0;
    for (int p = 0, n = 0; seen != 3 && p < 100000; p++, usleep(10))
        for (n = ops->poll(device, done, 2); n > 0; n--)
            seen += done[n - 1].status ? 100 : done[n - 1].cookie;
    CHECK(seen == 3 && ops->poll(device, done, 2) == 0);
    cuda_double_capture(s.handle, 1);
    CHECK(ops->follow(device, &s, 0) == HALAY_EUNSUPPORTED && strstr(ops->why(device), "graph"));
    cuda_double_capture(s.handle, 0);
    CHECK(ops->follow(device, &s, 7) == HALAY_INPROGRESS);
    cuda_double_break(700); /* sticky */
    CHECK(ops->poll(device, done, 2) == HALAY_EDEVICE && ops->stop(device, 7, 0) == HALAY_OK);
    CHECK(ops->follow(device, &s, 8) == HALAY_EDEVICE);
    cuda_double_break(0);
    ops->free(device, HALAY_PLACE_OWN, at);
    ops->free(device, HALAY_PLACE_HOST, from);
    ops->close(device);
    CHECK(cuStreamDestroy_v2(s.handle) == 0 && cuCtxPopCurrent_v2(&was) == 0);
    CHECK(cuCtxPushCurrent_v2(other) == 0 && cuStreamDestroy_v2(wrong.handle) == 0);
    CHECK(cuCtxPopCurrent_v2(&was) == 0);
    CHECK(cuDevicePrimaryCtxRelease_v2(0) == 0 && cuDevicePrimaryCtxRelease_v2(1) == 0);
    check_clean();
}

static bool comes_to_end(void *stream, unsigned ms)
{
    for (unsigned i = 0; i < 10 * ms && cuStreamQuery(stream); i++)
        usleep(100);
    return !cuStreamQuery(stream);
}

/* A stream stands at a gate until that is opened, in whatever order they are; gates may be too
 * many; one serves again before the stream has passed it. A failure leaves no stream standing. */
static void test_gates(void)
{
    enum { GATES = 64 };
    static const char *const calls[] = {"cuMemHostAlloc", "cuMemHostGetDevicePointer_v2",
                                        "cuEventCreate", "cuStreamWaitValue64_v2"};
    halay_device_t *device;
    void *context, *was;
    uint32_t gates[GATES], again;
    halay_stream_t s = {.size = sizeof(s), .kind = HALAY_MEMORY_CUDA};
    CHECK(cuInit(0) == 0 && cuDevicePrimaryCtxRetain(&context, 0) == 0);
    CHECK(cuCtxPushCurrent_v2(context) == 0);
    CHECK(cuStreamCreate(&s.handle, HLY_CU_NON_BLOCKING) == 0);
    CHECK(ops->open(NULL, NULL, &device) == HALAY_OK && ops->follow(device, &s, 0) == HALAY_OK);
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        cuda_double_fail(calls[i], 1, 999);
        CHECK(ops->gate(device, &s, gates) == HALAY_EDEVICE && *ops->why(device));
        CHECK(comes_to_end(s.handle, 1000));
    }
    CHECK(ops->gate(device, &s, NULL) == HALAY_OK && comes_to_end(s.handle, 1000));
    for (int i = 0; i < GATES; i++)
        CHECK(ops->gate(device, &s, &gates[i]) == HALAY_OK);
    CHECK(ops->gate(device, &s, &again) == HALAY_EAGAIN);
    for (int i = GATES - 1; i >= 0; i--) {
        CHECK(i % 16 || !comes_to_end(s.handle, 2));
        ops->gate_open(device, gates[i]);
    }
    CHECK(comes_to_end(s.handle, 1000));
    cuda_double_halt(1);
    CHECK(ops->gate(device, &s, &gates[0]) == HALAY_OK);
    ops->gate_open(device, gates[0]);
    CHECK(ops->gate(device, &s, &again) == HALAY_OK && again == gates[0]);
    cuda_double_halt(0);
    CHECK(!comes_to_end(s.handle, 5));
    ops->gate_open(device, again);
    CHECK(comes_to_end(s.handle, 1000));
    cuda_double_capture(s.handle, 1);
    CHECK(ops->gate(device, &s, &again) == HALAY_EUNSUPPORTED);
    cuda_double_capture(s.handle, 0);
    ops->close(device);
    CHECK(cuStreamDestroy_v2(s.handle) == 0 && cuCtxPopCurrent_v2(&was) == 0);
    CHECK(cuDevicePrimaryCtxRelease_v2(0) == 0);
}

/* Another stream opens the gate, and gate_open follows; the next one stands. */
static void test_gate_word(void)
{
    halay_device_t *device;
    void *context, *was, *other;
    uint32_t gate;
    uint64_t at, value;
    halay_stream_t s = {.size = sizeof(s), .kind = HALAY_MEMORY_CUDA};
    CHECK(cuDevicePrimaryCtxRetain(&context, 0) == 0 && cuCtxPushCurrent_v2(context) == 0);
    CHECK(cuStreamCreate(&s.handle, HLY_CU_NON_BLOCKING) == 0 &&
          cuStreamCreate(&other, HLY_CU_NON_BLOCKING) == 0);
    CHECK(ops->open(NULL, NULL, &device) == HALAY_OK && ops->follow(device, &s, 0) == HALAY_OK);
    for (int i = 0; i < 3; i++) {
        CHECK(ops->gate(device, &s, &gate) == HALAY_OK && !comes_to_end(s.handle, 2));
        CHECK(ops->gate_word(device, gate, &at, &value) == HALAY_OK);
        CHECK(cuStreamWriteValue64_v2(other, at, value, 0) == 0 && comes_to_end(s.handle, 1000));
        ops->gate_open(device, gate);
    }
    ops->close(device);
    CHECK(cuStreamDestroy_v2(s.handle) == 0 && cuStreamDestroy_v2(other) == 0);
    CHECK(cuCtxPopCurrent_v2(&was) == 0 && cuDevicePrimaryCtxRelease_v2(0) == 0);
}

/* The device is closed while a stream stands before an open gate, whose word stays. */
static void test_gate_left(void)
{
    halay_device_t *device;
    void *context, *was;
    uint32_t gate;
    halay_stream_t s = {.size = sizeof(s), .kind = HALAY_MEMORY_CUDA};
    const int pinned = cuda_double_counts().pinned;
    CHECK(cuDevicePrimaryCtxRetain(&context, 0) == 0 && cuCtxPushCurrent_v2(context) == 0);
    CHECK(cuStreamCreate(&s.handle, HLY_CU_NON_BLOCKING) == 0);
    CHECK(ops->open(NULL, NULL, &device) == HALAY_OK && ops->follow(device, &s, 0) == HALAY_OK);
    cuda_double_halt(1);
    CHECK(ops->gate(device, &s, &gate) == HALAY_OK);
    ops->gate_open(device, gate);
    ops->close(device);
    cuda_double_halt(0);
    CHECK(comes_to_end(s.handle, 1000) && cuda_double_counts().pinned == pinned + 1);
    CHECK(cuStreamDestroy_v2(s.handle) == 0 && cuCtxPopCurrent_v2(&was) == 0);
    CHECK(cuDevicePrimaryCtxRelease_v2(0) == 0);
}

/* Sticky: poll says so, work is stopped at once, and all later work is refused. */
static void test_broken(void)
{
    halay_device_t *device;
    halay_done_t done;
    void *a, *b;
    int n = 0;
    CHECK(ops->open(&first, NULL, &device) == HALAY_OK);
    CHECK(!ops->alloc(device, HALAY_PLACE_OWN, 64, 64, &a) &&
          !ops->alloc(device, HALAY_PLACE_OWN, 64, 64, &b));
    const halay_work_t w = copy_of(b, a, 64, HALAY_WITHIN);
    CHECK(perform(device, &w) == HALAY_OK);
    cuda_double_halt(1);
    CHECK(ops->launch(device, &w) == HALAY_INPROGRESS);
    cuda_double_break(700);
    cuda_double_halt(0);
    for (int p = 0; p < 1000 && n == 0; p++)
        n = ops->poll(device, &done, 1);
    CHECK(n == HALAY_EDEVICE && strstr(ops->why(device), "ILLEGAL_ADDRESS"));
    CHECK(ops->stop(device, w.cookie, 1000000000) == HALAY_OK);
    CHECK(ops->launch(device, &w) == HALAY_EDEVICE && ops->poll(device, &done, 1) < 0);
    cuda_double_break(0);
    ops->free(device, HALAY_PLACE_OWN, a);
    ops->free(device, HALAY_PLACE_OWN, b);
    ops->close(device);
    check_clean();
}

/* A stream that stops: HALAY_EDEVICE in time, and nothing is given back that it may still use. */
static void test_stopped(void)
{
    halay_device_t *device;
    halay_done_t done;
    void *a, *b;
    const struct cuda_double_counts before = cuda_double_counts();
    CHECK(ops->open(&first, NULL, &device) == HALAY_OK);
    CHECK(!ops->alloc(device, HALAY_PLACE_OWN, 64, 64, &a) &&
          !ops->alloc(device, HALAY_PLACE_OWN, 64, 64, &b));
    const halay_work_t w = copy_of(b, a, 64, HALAY_WITHIN);
    CHECK(perform(device, &w) == HALAY_OK);
    cuda_double_halt(1);
    CHECK(ops->launch(device, &w) == HALAY_INPROGRESS && ops->poll(device, &done, 1) == 0);
    CHECK(ops->stop(device, w.cookie, 10000000) == HALAY_EDEVICE);
    CHECK(ops->launch(device, &w) == HALAY_EDEVICE);
    ops->close(device);
    const struct cuda_double_counts after = cuda_double_counts();
    CHECK(after.allocations == before.allocations + 2 && after.retained == before.retained + 1);
    CHECK(after.streams == before.streams + 6 && after.misused == before.misused);
    cuda_double_halt(0);
}

/* ------------------------------------------------------------------ more than one */

static void *thread_run(void *arg)
{
    struct hly_device_cuda_arg a = {.ordinal = 1 + (int)(intptr_t)arg % 2};
    for (int i = 0; i < 20; i++)
        CHECK(life(&a) == HALAY_OK);
    return NULL;
}

static void test_threads(void)
{
    pthread_t threads[4];
    for (intptr_t i = 0; i < 4; i++)
        CHECK(!pthread_create(&threads[i], NULL, thread_run, (void *)i));
    for (int i = 0; i < 4; i++)
        CHECK(!pthread_join(threads[i], NULL));
    check_clean();
}

/* More work than is taken at a time, copies in many chunks: all of it comes, in some order. */
static void test_many(void *arg)
{
    enum { WORKS = 300, BYTES = 700000 };
    static char host[BYTES], back[BYTES];
    halay_device_t *device;
    halay_done_t done[8];
    int nlaunched = 0, ndone = 0, nfull = 0;
    void *a;
    CHECK(ops->open(arg, NULL, &device) == HALAY_OK &&
          !ops->alloc(device, HALAY_PLACE_OWN, BYTES, 64, &a));
    for (size_t i = 0; i < BYTES; i++)
        host[i] = (char)(i * 31 + i / 251);
    halay_work_t w = copy_of(a, host, BYTES, HALAY_FROM_HOST);
    CHECK(perform(device, &w) == HALAY_OK);
    for (int p = 0; ndone < WORKS && p < 1000000; p++) {
        w = copy_of(back, a, nlaunched % 50 ? 1000 : BYTES, HALAY_TO_HOST);
        w.cookie = (uint64_t)nlaunched;
        const int rc = nlaunched < WORKS ? ops->launch(device, &w) : HALAY_EAGAIN;
        CHECK(rc == HALAY_INPROGRESS || rc == HALAY_EAGAIN);
        nlaunched += rc == HALAY_INPROGRESS;
        nfull += rc == HALAY_EAGAIN;
        const int n = rc == HALAY_EAGAIN ? ops->poll(device, done, 8) : 0;
        CHECK(n >= 0);
        ndone += n;
    }
    CHECK(ndone == WORKS && nfull && !memcmp(back, host, BYTES));
    ops->free(device, HALAY_PLACE_OWN, a);
    ops->close(device);
    check_clean();
}

int main(void)
{
    cuda_double_settings();
    device_body(ops, &first);
    check_clean();
    device_body(ops, &events);
    check_clean();
    test_touch();
    test_query();
    test_refusals();
    test_many(&first);
    test_many(&events);
    test_threads();
    test_follow();
    test_gates();
    test_gate_word();
    test_named_faults();
    test_broken();
    test_faults(&first);
    test_faults(&events);
    test_misuse();
    test_gate_left(); /* these two leave something */
    test_stopped();
    return 0;
}
