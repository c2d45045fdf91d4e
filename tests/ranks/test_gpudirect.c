/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_gpudirect.c - calls whose messages go from GPU to GPU (HALAY_GPUDIRECT=1), over doubles:
 * what cannot be registered, exported or flushed on one rank is an error on all, with the reason
 * and what to do; allocations that come and go at one address are told apart; few registrations are
 * kept. HALAY_EXPLAIN says which way device memory takes, and why no better one.
 */
#include <string.h>
#include <unistd.h>

#include "base/context.h"
#include "device/device_builtin.h"
#include "double/cuda/double.h"
#include "ranks.h"
#include "wire/register.h"

enum { COUNT = 20000, RANKS = 3, BYTES = COUNT * 4, BUFFERS = 40 };
#define DEADLINE_NS UINT64_C(20000000000) /* who waits for it has HALAY_ETIMEOUT */

static const int alone[RANKS] = {0, 1, 2}, shared[RANKS] = {0, 0, 1};
static const int *nodes = alone;
static int want, lacks;
static const char *text;

static int call(struct rank *r, int32_t *at, int root)
{
    int32_t *inside = cuda_double_inside((uint64_t)(uintptr_t)at, BYTES);
    CHECK(inside, "not of a GPU");
    for (int i = 0; i < COUNT; i++)
        inside[i] = r->rank + i;
    const int rc = halay_broadcast(at, COUNT, HALAY_INT32, root, r->world);
    for (int i = 0; !rc && i < COUNT; i++)
        CHECK(inside[i] == root + i, "element %d is %d", i, inside[i]);
    return rc;
}

static void fails(struct rank *r)
{
    halay_verdict_t v = {.size = sizeof(v)};
    void *at = ranks_there_take(r->context, BYTES);
    int rc = HALAY_OK;
    for (int root = 0; !rc && root < RANKS; root++) /* it may end here before it fails there */
        rc = call(r, at, root);
    CHECK(rc == want, "%s instead of %s", halay_strerror(rc), halay_strerror(want));
    CHECK(!halay_comm_verdict(r->world, &v), "no verdict");
    CHECK(strstr(v.text, text) && strstr(v.text, "HALAY_GPUDIRECT=0"), "%s", v.text);
    ranks_there_drop(r->context, at);
}

/* The adapter of one node cannot. The others do not wait for it, whether they send to it, are sent
 * to by it, or neither: they have its verdict long before the deadline. */
static void one_lacks(struct rank *r)
{
    halay_verdict_t v = {.size = sizeof(v)};
    void *at = ranks_there_take(r->context, BYTES);
    if (r->rank == lacks)
        for (int t = 0; t < r->context->ntransports; t++)
            r->context->transports[t].attr.capabilities &= ~(uint32_t)HALAY_CAN_DEVICE;
    int rc = HALAY_OK;
    for (int root = 0; !rc && root < RANKS; root++) /* who does not need it may end a call well */
        rc = call(r, at, root);
    CHECK(rc == HALAY_EDEVICE, "%s", halay_strerror(rc));
    CHECK(!halay_comm_verdict(r->world, &v) && v.rank == lacks, "rank %d: %s", v.rank, v.text);
    CHECK(strstr(v.text, "nvidia_peermem") && strstr(v.text, "HALAY_GPUDIRECT=0"), "%s", v.text);
    ranks_there_drop(r->context, at);
}

static void one(struct rank *r)
{
    void *at = ranks_there_take(r->context, BYTES);
    CHECK(!call(r, at, 0), "it fails");
    ranks_there_drop(r->context, at);
}

/* More allocations than are kept registered, and each twice. */
static void many(struct rank *r)
{
    void *at[BUFFERS];
    uint32_t n = 0;
    for (int i = 0; i < BUFFERS; i++)
        at[i] = ranks_there_take(r->context, BYTES + (size_t)i * 4096);
    for (int i = 0; i < 2 * BUFFERS; i++)
        CHECK(!call(r, at[i % BUFFERS], i % RANKS), "call %d", i);
    for (uint32_t i = 0; i < r->context->nranges; i++)
        n += r->context->ranges[i].direct;
    CHECK(n > 0 && n <= HLY_DIRECTS_MAX, "%u are kept", n);
    for (int i = 0; i < BUFFERS; i++)
        ranks_there_drop(r->context, at[i]);
}

static void run(void (*fn)(struct rank *), uint32_t hidden)
{
    static struct hly_device_cuda_arg first = {.ordinal = 1};
    const halay_inproc_faults_t faults = {
        .seed = 5, .late_put_polls = 4, .hide_capabilities = hidden};
    struct ranks_options o = {.nranks = RANKS,
                              .faults = &faults,
                              .device = &hly_device_cuda,
                              .device_arg = &first,
                              .algorithm = "broadcast=binomial",
                              .node_of_rank = nodes,
                              .deadline_ns = DEADLINE_NS};
    ranks_run(&o, fn, NULL);
    cuda_double_fail(NULL, 0, 0);
}

/* One call with this setting; what rank 0 tells of it has `says`. */
static void explains(const char *setting, uint32_t hidden, const char *says)
{
    static char told[16384];
    FILE *file = tmpfile();
    const int err = dup(STDERR_FILENO);
    CHECK(file && err >= 0, "no file");
    CHECK(!setenv("HALAY_GPUDIRECT", setting, 1) && !setenv("HALAY_EXPLAIN", "1", 1), "setenv");
    CHECK(dup2(fileno(file), STDERR_FILENO) >= 0, "dup2");
    run(one, hidden);
    CHECK(dup2(err, STDERR_FILENO) >= 0 && !close(err), "dup2");
    rewind(file);
    told[fread(told, 1, sizeof(told) - 1, file)] = '\0';
    CHECK(!fclose(file) && !unsetenv("HALAY_EXPLAIN"), "unsetenv");
    const char *line = strstr(told, "  in device memory: ");
    CHECK(line && strstr(line, says), "not '%s' in: %s", says, told);
}

static void explanations(void)
{
    explains("1", 0, "direct, adapters read and write it; GPUDirect: the transport inproc can");
    explains("0", 0,
             "; GPUDirect: the transport inproc can carry it here; HALAY_GPUDIRECT is not 1");
    explains("0", HALAY_CAN_DEVICE, "; GPUDirect: the transport inproc cannot carry it here");
    nodes = shared;
    explains("1", 0, "; not GPUDirect: ranks share a node");
    nodes = alone;
}

int main(void)
{
    struct cuda_double_settings *s = cuda_double_settings();
    CHECK(!setenv("HALAY_GPUDIRECT", "1", 1), "setenv");
    run(many, 0);
    want = HALAY_EDEVICE;
    text = "nvidia_peermem";
    run(fails, HALAY_CAN_DEVICE);
    for (lacks = 0; lacks < RANKS; lacks++)
        run(one_lacks, 0);
    text = "refused";
    cuda_double_fail("cuMemGetHandleForAddressRange", 2, 801);
    run(fails, 0); /* on one rank */
    s->dmabuf = 0;
    run(fails, 0);
    s->dmabuf = 1;
    s->ordered = 0;
    text = "flush";
    cuda_double_fail("cuFlushGPUDirectRDMAWrites", 1, 999);
    run(fails, 0);
    explanations();
    CHECK(!cuda_double_counts().misused, "CUDA was used wrongly");
    return 0;
}
