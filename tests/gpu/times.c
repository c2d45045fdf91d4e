/* SPDX-License-Identifier: Apache-2.0 */
/*
 * times.c - what the CUDA device takes, through its contract: a piece of work from launch to the
 * poll that sees it, by words and by events; to wake a sleeper; copies down and up, within the GPU;
 * the reduce kernel as a share of the copy.
 *
 *   times [MEGABYTES [REPEATS]]
 */
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "check.h"
#include "device/device_builtin.h"

#define WAIT_S 10.

static const halay_device_ops_t *const ops = &hly_device_cuda;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *take(halay_device_t *device, uint32_t place, size_t bytes)
{
    void *at;
    const int rc = ops->alloc(device, place, bytes, 256, &at);
    CHECK(!rc, "%s", ops->why(device));
    return at;
}

/* From the launch to the poll that sees it. sleeps: by the device's descriptor. */
static double once(halay_device_t *device, const halay_work_t *work, bool sleeps)
{
    halay_done_t done;
    int n = 0, fd;
    const double begin = now();
    const int rc = ops->launch(device, work);
    CHECK(rc == HALAY_INPROGRESS, "launch: %d, %s", rc, ops->why(device));
    while (!n) {
        if (sleeps && !ops->arm(device, &fd))
            poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, 1000);
        n = ops->poll(device, &done, 1);
        CHECK(now() - begin < WAIT_S, "it does not end");
    }
    CHECK(n == 1 && !done.status, "poll: %d, %s", n, ops->why(device));
    return now() - begin;
}

/* The least of some; the first does not count, for it may load a module. */
static double least(halay_device_t *device, const halay_work_t *work, bool sleeps, int repeats)
{
    double best = WAIT_S;
    once(device, work, sleeps);
    for (int i = 0; i < repeats; i++) {
        const double t = once(device, work, sleeps);
        best = t < best ? t : best;
    }
    return best;
}

static void latencies(bool no_words, int repeats)
{
    struct hly_device_cuda_arg first = {.ordinal = 1, .no_words = no_words};
    halay_device_t *device;
    MUST(ops->open(&first, NULL, &device) == HALAY_OK);
    void *a = take(device, HALAY_PLACE_OWN, 256), *b = take(device, HALAY_PLACE_OWN, 256);
    const halay_work_t w = {
        .size = sizeof(w), .dst = a, .src = {b}, .count = 64, .type = HALAY_INT32, .nsrc = 1};
    const char *by = no_words ? "event" : "word";
    printf("times: a kernel of 256 bytes, seen by %s: %.1f us\n", by,
           1e6 * least(device, &w, false, repeats));
    printf("times: the same, by a sleeper (%s, host function): %.1f us\n", by,
           1e6 * least(device, &w, true, repeats));
    ops->free(device, HALAY_PLACE_OWN, a);
    ops->free(device, HALAY_PLACE_OWN, b);
    ops->close(device);
}

/* Bytes read and written, a second. */
static double rate(halay_device_t *device, const halay_work_t *work, size_t bytes, int repeats)
{
    return 1e-9 * (double)bytes / least(device, work, false, repeats);
}

static void bandwidths(size_t bytes, int repeats)
{
    struct hly_device_cuda_arg first = {.ordinal = 1};
    halay_device_t *device;
    char *at[HALAY_REDUCE_SOURCES + 1];
    MUST(ops->open(&first, NULL, &device) == HALAY_OK);
    char *host = take(device, HALAY_PLACE_HOST, bytes);
    for (int i = 0; i <= HALAY_REDUCE_SOURCES; i++)
        at[i] = take(device, HALAY_PLACE_OWN, bytes);
    halay_work_t w = {.size = sizeof(w), .count = bytes / 4, .type = HALAY_FLOAT32, .nsrc = 1};
    w.dst = at[0], w.src[0] = host, w.direction = HALAY_FROM_HOST;
    printf("times: pinned to GPU: %.2f GB/s\n", rate(device, &w, bytes, repeats));
    w.dst = host, w.src[0] = at[0], w.direction = HALAY_TO_HOST;
    printf("times: GPU to pinned: %.2f GB/s\n", rate(device, &w, bytes, repeats));
    w.direction = HALAY_WITHIN;
    w.dst = at[HALAY_REDUCE_SOURCES];
    double copy = 0;
    for (uint32_t n = 1; n <= HALAY_REDUCE_SOURCES; n++) {
        w.nsrc = n;
        w.src[n - 1] = at[n - 1];
        const double r = rate(device, &w, (n + 1) * bytes, repeats);
        copy = n == 1 ? r : copy;
        printf("times: %s, float32, %u sources: %.2f GB/s read and written, %.0f %% of a copy\n",
               n == 1 ? "copy" : "sum", n, r, 100 * r / copy);
    }
    for (int i = 0; i <= HALAY_REDUCE_SOURCES; i++)
        ops->free(device, HALAY_PLACE_OWN, at[i]);
    ops->free(device, HALAY_PLACE_HOST, host);
    ops->close(device);
}

int main(int argc, char **argv)
{
    const size_t megabytes = argc > 1 ? (size_t)atoi(argv[1]) : 256;
    const int repeats = argc > 2 ? atoi(argv[2]) : 20;
    setvbuf(stdout, NULL, _IOLBF, 0); /* what is wrong comes last */
    CHECK(megabytes > 0 && repeats > 0, "usage: times [MEGABYTES [REPEATS]]");
    latencies(false, repeats);
    latencies(true, repeats);
    bandwidths(megabytes << 20, repeats);
    return 0;
}
