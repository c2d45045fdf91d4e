/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nccl.c - a member of a device communicator of NCCL on the first GPU: allreduces whose sums it
 * checks. Processes that share a GPU need each an NCCL_HOSTID of its own.
 *
 *   nccl FILE RANK RANKS   the id goes through the file, which is not there before.
 *                          Exit status 77: there is no NCCL, or it is too old
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "check.h"
#include "device/cuda/driver.h"
#include "groups/nccl/nccl.h"

enum { COUNT = 100003, CALLS = 5, LOOKS = 60000 }; /* looks of a millisecond */
#define BYTES (COUNT * sizeof(int32_t))

static const halay_group_ops_t *const ops = &hly_group_nccl;
static struct hly_cuda_driver driver;
static struct hly_nccl *nccl;

static void rest(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

static void exchange(const char *path, int rank, unsigned char id[HALAY_CIRCLE_ID_BYTES])
{
    char part[1024];
    snprintf(part, sizeof(part), "%s.part", path);
    if (!rank) {
        FILE *file = fopen(part, "wb");
        MUST(file);
        CHECK(!ops->invite(nccl, id), "%s", hly_nccl_why(nccl));
        MUST(fwrite(id, HALAY_CIRCLE_ID_BYTES, 1, file) == 1);
        MUST(!fclose(file) && !rename(part, path));
        return;
    }
    FILE *file = NULL;
    for (int look = 0; look < LOOKS && !(file = fopen(path, "rb")); look++)
        rest();
    CHECK(file && fread(id, HALAY_CIRCLE_ID_BYTES, 1, file) == 1, "%s has no id", path);
    fclose(file);
}

static void await(halay_circle_t *dcomm, uint64_t cookie)
{
    halay_group_done_t done;
    int n = 0;
    for (int look = 0; look < LOOKS && !n; look++) {
        n = ops->poll(dcomm, &done, 1);
        CHECK(n >= 0, "poll: %s: %s", halay_strerror(n), hly_nccl_why(nccl));
        if (!n)
            rest();
    }
    CHECK(n == 1 && done.cookie == cookie && !done.status, "%d done: %s", n, hly_nccl_why(nccl));
}

static void finish(void *stream)
{
    int rc;
    while ((rc = driver.cuStreamQuery(stream)) == HLY_CU_NOT_READY)
        rest();
    CHECK(!rc, "the stream: %d", rc);
}

static void sums(halay_circle_t *dcomm, int rank, int nranks)
{
    size_t count[64];
    uint64_t in, out;
    void *stream, *at;
    MUST(!driver.cuMemAlloc_v2(&in, BYTES) && !driver.cuMemAlloc_v2(&out, BYTES));
    MUST(!driver.cuMemHostAlloc(&at, BYTES, HLY_CU_PORTABLE));
    MUST(!driver.cuStreamCreate(&stream, HLY_CU_NON_BLOCKING));
    int32_t *host = at;
    for (int i = 0; i < nranks; i++)
        count[i] = COUNT;
    for (int call = 0; call < CALLS; call++) {
        const halay_group_launch_t l = {.size = sizeof(l),
                                        .kind = HALAY_GROUP_ALLREDUCE,
                                        .type = HALAY_INT32,
                                        .op = HALAY_SUM,
                                        .n = (uint32_t)nranks,
                                        .count = count,
                                        .in = (const void *)(uintptr_t)in,
                                        .out = (void *)(uintptr_t)out,
                                        .order = (uint64_t)call,
                                        .cookie = (uint64_t)call + 1};
        for (int i = 0; i < COUNT; i++)
            host[i] = (rank + 1) * (i % 1000) + call;
        MUST(!driver.cuMemcpyHtoDAsync_v2(in, host, BYTES, stream));
        finish(stream);
        const int rc = ops->launch(dcomm, &l);
        CHECK(rc == HALAY_INPROGRESS, "%s: %s", halay_strerror(rc), hly_nccl_why(nccl));
        await(dcomm, l.cookie);
        MUST(!driver.cuMemcpyDtoHAsync_v2(host, out, BYTES, stream));
        finish(stream);
        for (int i = 0; i < COUNT; i++)
            CHECK(host[i] == nranks * (nranks + 1) / 2 * (i % 1000) + nranks * call,
                  "call %d, element %d: %d", call, i, host[i]);
    }
    MUST(!driver.cuStreamDestroy_v2(stream) && !driver.cuMemFreeHost(at));
    MUST(!driver.cuMemFree_v2(in) && !driver.cuMemFree_v2(out));
}

int main(int argc, char **argv)
{
    char why[256] = "";
    unsigned char id[HALAY_CIRCLE_ID_BYTES];
    void *context;
    int device, version;
    halay_circle_t *dcomm;
    MUST(argc == 4);
    const int rank = atoi(argv[2]), nranks = atoi(argv[3]);
    MUST(nranks > 0 && nranks <= 64 && rank >= 0 && rank < nranks);
    CHECK(!hly_cuda_driver_open(&driver, false, why, sizeof(why)), "%s", why);
    MUST(!driver.cuInit(0) && !driver.cuDeviceGet(&device, 0));
    MUST(!driver.cuDevicePrimaryCtxRetain(&context, device));
    MUST(!driver.cuCtxPushCurrent_v2(context));
    if (hly_nccl_open(getenv("HALAY_NCCL_LIBRARY"), 0, &nccl, &version, why, sizeof(why))) {
        printf("nccl: %s\n", why);
        return 77;
    }
    exchange(argv[1], rank, id);
    const int rc = ops->open(nccl, id, (uint32_t)rank, (uint32_t)nranks, &dcomm);
    CHECK(!rc || rc == HALAY_INPROGRESS, "open: %s: %s", halay_strerror(rc), hly_nccl_why(nccl));
    if (rc)
        await(dcomm, HALAY_CIRCLE_OPENED);
    sums(dcomm, rank, nranks);
    ops->close(dcomm, UINT64_C(5000000000));
    hly_nccl_close(nccl);
    printf("nccl: rank %d of %d: %d sums are right, NCCL %d\n", rank, nranks, CALLS, version);
    return 0;
}
