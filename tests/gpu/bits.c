/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bits.c - the bits of all kernels against the host's: every type, operation, number of sources and
 * divisor that there is, at odd places and lengths. Over the driver that is found: a GPU's, or the
 * double.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "device/device_builtin.h"

#define LAST_POLL 1000000 /* of 10 us */

static const halay_device_ops_t *const ops = &hly_device_cuda;
static unsigned ncompared;

static uint64_t random_next(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state * 0x2545f4914f6cdd1du;
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

/* Sees the work to its end, or gives up. */
static int perform(halay_device_t *device, const halay_work_t *work)
{
    halay_done_t done;
    const int rc = ops->launch(device, work);
    if (rc != HALAY_INPROGRESS)
        return rc;
    for (int p = 0; p < LAST_POLL; p++) {
        const int n = ops->poll(device, &done, 1);
        if (n)
            return n < 0 ? n : done.status;
        usleep(10);
    }
    return HALAY_ETIMEOUT;
}

enum { COUNT = 1003, ROOM = COUNT * 16 + 64 };

struct bench {
    halay_device_t *device, *host;
    unsigned char *gpu[HALAY_REDUCE_SOURCES + 1], *host_memory[HALAY_REDUCE_SOURCES + 1];
    unsigned char got[ROOM];
    uint64_t random;
};

static void bench_begin(struct bench *b, bool no_words)
{
    struct hly_device_cuda_arg first = {.ordinal = 1, .no_words = no_words};
    void *at;
    memset(b, 0, sizeof(*b));
    b->random = 7;
    MUST(ops->open(&first, NULL, &b->device) == HALAY_OK);
    MUST(hly_device_host.open(NULL, "scalar", &b->host) == HALAY_OK);
    for (int i = 0; i <= HALAY_REDUCE_SOURCES; i++) {
        MUST(ops->alloc(b->device, HALAY_PLACE_OWN, ROOM, 64, &at) == HALAY_OK);
        b->gpu[i] = at;
        b->host_memory[i] = calloc(1, ROOM);
        MUST(b->host_memory[i]);
    }
}

static void bench_end(struct bench *b)
{
    for (int i = 0; i <= HALAY_REDUCE_SOURCES; i++) {
        ops->free(b->device, HALAY_PLACE_OWN, b->gpu[i]);
        free(b->host_memory[i]);
    }
    hly_device_host.close(b->host);
    ops->close(b->device);
}

/* Random bits, or among few values: zeros, infinities, NaNs, ties. */
static void fill(struct bench *b, unsigned char *to, halay_type_t type)
{
    static const uint64_t few[] = {0,
                                   1,
                                   2,
                                   0x8000000000000000u,
                                   0x7ff0000000000000u,
                                   0xfff8000000000123u,
                                   0x7f800000u,
                                   0xffc12345u,
                                   0x80000000u,
                                   0x3c007c00u,
                                   0x7e017f80u,
                                   0xffc18000u,
                                   0x3ff0000000000000u,
                                   0x3f8000003f800000u,
                                   0x4049000040490fdbu,
                                   0x8001000180010001u,
                                   0xffffffffffffffffu};
    for (size_t i = 0; i + 8 <= ROOM; i += 8) {
        const uint64_t r = random_next(&b->random);
        const uint64_t bits = r % 3 ? random_next(&b->random) : few[(r >> 8) % 17];
        memcpy(to + i, &bits, 8);
    }
    for (size_t i = 0; type == HALAY_BOOL && i < ROOM; i++)
        to[i] %= 3;
}

/* The same work on both, with dst in place of src[alias] (-1: none). */
static void compare(struct bench *b, halay_work_t w, const size_t offset[], int alias)
{
    const int last = HALAY_REDUCE_SOURCES;
    halay_work_t h = w;
    for (uint32_t s = 0; s <= w.nsrc; s++) {
        const int i = s == w.nsrc ? last : (int)s;
        fill(b, b->host_memory[i], w.type);
        const halay_work_t up = copy_of(b->gpu[i], b->host_memory[i], ROOM, HALAY_FROM_HOST);
        MUST(perform(b->device, &up) == HALAY_OK);
        if (i == last)
            break;
        w.src[s] = b->gpu[i] + offset[i];
        h.src[s] = b->host_memory[i] + offset[i];
    }
    const int to = alias >= 0 ? alias : last;
    w.dst = b->gpu[to] + offset[to];
    h.dst = b->host_memory[to] + offset[to];
    MUST(hly_device_host.launch(b->host, &h) == HALAY_OK);
    MUST(perform(b->device, &w) == HALAY_OK);
    const halay_work_t down = copy_of(b->got, b->gpu[to], ROOM, HALAY_TO_HOST);
    MUST(perform(b->device, &down) == HALAY_OK);
    ncompared++;
    if (memcmp(b->got, b->host_memory[to], ROOM) == 0)
        return;
    fprintf(stderr, "%s %s nsrc %u divisor %u scales %u count %zu alias %d\n",
            halay_type_name(w.type), halay_op_name(w.op), w.nsrc, w.divisor, w.scales, w.count,
            alias);
    exit(1);
}

/* Offsets: all alike within 16 bytes, whole elements, or any. */
static void compare_some(struct bench *b, halay_work_t w)
{
    const size_t bytes = halay_type_bytes(w.type);
    size_t offset[HALAY_REDUCE_SOURCES + 1];
    for (int how = 0; how < 3; how++) {
        const size_t same = random_next(&b->random) % 4 * bytes % 48;
        for (int i = 0; i <= HALAY_REDUCE_SOURCES; i++) {
            const size_t r = random_next(&b->random);
            offset[i] = how == 0 ? same : how == 1 ? r % 3 * bytes : r % 33;
        }
        w.count =
            how == 1 ? 1 + random_next(&b->random) % 40 : COUNT - random_next(&b->random) % 40;
        compare(b, w, offset, (int)(random_next(&b->random) % (w.nsrc + 1)) - 1);
    }
}

/* All divisors, if it takes one. */
static void compare_divided(struct bench *b, halay_work_t w)
{
    static const uint32_t divisors[] = {0, 2, 3, 7, 1000003, 16777217, 4294967295u};
    for (int d = 0; d < (w.op == HALAY_AVERAGE ? 7 : 1); d++) {
        w.divisor = divisors[d];
        compare_some(b, w);
    }
}

static void test_bits(void)
{
    static struct bench b;
    bench_begin(&b, false);
    for (int t = 0; t < HALAY_TYPE_COUNT; t++)
        for (int op = 0; op < HALAY_OP_COUNT; op++)
            for (uint32_t nsrc = 1; nsrc <= HALAY_REDUCE_SOURCES; nsrc++) {
                halay_work_t w = {.size = sizeof(w), .nsrc = nsrc};
                w.type = (halay_type_t)t;
                w.op = (halay_op_t)op;
                if (halay_op_takes(w.op, w.type))
                    compare_divided(&b, w);
            }
    bench_end(&b);
}

static void test_scales(void)
{
    static const double factors[] = {0.5, -3, 1e30, 1e-30, 1. / 3};
    static struct bench b;
    bench_begin(&b, true);
    for (int t = 0; t < HALAY_TYPE_COUNT; t++)
        for (int f = 0; f < 5; f++) {
            halay_work_t w = {.size = sizeof(w), .nsrc = 1, .scales = 1, .factor = factors[f]};
            w.type = (halay_type_t)t;
            if (!halay_scale(NULL, NULL, 0, w.type, 1))
                compare_some(&b, w);
        }
    bench_end(&b);
}

/* The same lists on both: parts one behind the other at odd places, and copied to the others'
 * memory, some in place; lengths around a tile, and none. */
enum { LISTS = HALAY_LIST_PARTS, LIST_ROOM = LISTS * (3 * 1024 + 64) * 16 };
struct lists {
    unsigned char *gpu[2], *host[2], *got;
    halay_part_t at_gpu[LISTS], at_host[LISTS];
};

static void list_make(struct bench *b, struct lists *l, halay_type_t type, uint32_t n, int how)
{
    static const size_t lengths[] = {0, 1, 3, 40, 1023, 1024, 1025, 2100};
    const size_t bytes = halay_type_bytes(type);
    size_t at = 0;
    for (uint32_t i = 0; i < n; i++) {
        const uint64_t r = random_next(&b->random);
        const size_t count = lengths[r % 8], from = at + (how ? r >> 8 & 15 : 0);
        const int place = r >> 16 & 1; /* in place */
        const double factor = how == 2 && r >> 20 & 1 ? 1. / 3 : 1;
        l->at_gpu[i] = (halay_part_t){l->gpu[1] + at, l->gpu[0] + from, count, factor};
        l->at_host[i] = (halay_part_t){l->host[1] + at, l->host[0] + from, count, factor};
        if (place) {
            l->at_gpu[i].src = l->at_gpu[i].dst;
            l->at_host[i].src = l->at_host[i].dst;
        }
        at += count * bytes + (how == 1 ? r >> 24 & 7 : 0);
    }
    MUST(at + 16 + 2100 * bytes < LIST_ROOM);
}

static void list_compare(struct bench *b, struct lists *l, halay_type_t type, uint32_t n)
{
    halay_done_t done;
    int rc;
    for (int i = 0; i < 2; i++) {
        for (size_t at = 0; at < LIST_ROOM; at += 8) {
            const uint64_t bits = random_next(&b->random);
            memcpy(l->host[i] + at, &bits, 8);
        }
        const halay_work_t up = copy_of(l->gpu[i], l->host[i], LIST_ROOM, HALAY_FROM_HOST);
        MUST(perform(b->device, &up) == HALAY_OK);
    }
    MUST(hly_device_host.launch_list(b->host, l->at_host, n, type, 1) == HALAY_OK);
    rc = ops->launch_list(b->device, l->at_gpu, n, type, 7);
    memset(l->at_gpu, 0xff, sizeof(l->at_gpu)); /* they are the caller's again */
    for (int p = 0; rc == HALAY_INPROGRESS && p < LAST_POLL; p++) {
        if (ops->poll(b->device, &done, 1) > 0)
            rc = done.cookie == 7 ? done.status : HALAY_EDEVICE;
        else
            usleep(10);
    }
    MUST(rc == HALAY_OK);
    const halay_work_t down = copy_of(l->got, l->gpu[1], LIST_ROOM, HALAY_TO_HOST);
    MUST(perform(b->device, &down) == HALAY_OK);
    MUST(memcmp(l->got, l->host[1], LIST_ROOM) == 0);
    ncompared++;
}

static void test_lists(void)
{
    static const uint32_t sizes[] = {1, 5, LISTS};
    static struct bench b;
    static struct lists l;
    void *at;
    bench_begin(&b, false);
    for (int i = 0; i < 2; i++) {
        MUST(ops->alloc(b.device, HALAY_PLACE_OWN, LIST_ROOM, 64, &at) == HALAY_OK);
        l.gpu[i] = at;
        l.host[i] = malloc(LIST_ROOM);
    }
    l.got = malloc(LIST_ROOM);
    MUST(l.host[0] && l.host[1] && l.got);
    for (int t = 0; t < HALAY_TYPE_COUNT; t++)
        for (int how = 0; how < 3; how++) { /* copies, copies at odd places, scalings */
            const halay_type_t type = (halay_type_t)t;
            if (how == 2 && halay_scale(NULL, NULL, 0, type, 1))
                continue;
            const uint32_t n = sizes[random_next(&b.random) % 3];
            list_make(&b, &l, type, n, how);
            list_compare(&b, &l, type, n);
        }
    for (int i = 0; i < 2; i++) {
        ops->free(b.device, HALAY_PLACE_OWN, l.gpu[i]);
        free(l.host[i]);
    }
    free(l.got);
    bench_end(&b);
}

int main(void)
{
    test_bits();
    test_scales();
    test_lists();
    printf("bits: %u pieces of work, as the host's\n", ncompared);
    return 0;
}
