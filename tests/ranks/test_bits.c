/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The same bits on every rank: data full of NaNs with payloads, signed zeros, infinities and
 * denormals, another instruction set forced on each rank, flush-to-zero on one; and half types
 * within the bound that the prover prints: (reduce steps on the longest path) x u x sum of |x|.
 */
#include <halay/plan.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#if defined(__SSE__)
#include <xmmintrin.h>
#endif

#include "ranks.h"

#define COUNT 1009

static const char *const algorithms[] = {"ring",
                                         "circulant",
                                         "recursive_doubling",
                                         "one_shot",
                                         "recursive_multiplying",
                                         "double_tree",
                                         "halving_doubling",
                                         "star",
                                         "two_stars",
                                         "two_level",
                                         "two_level_short"};
#define TWO_LEVEL 9 /* the first of those */
static const int nodes[][9] = {{0, 0, 0, 1, 1, 1, 1, 2, 2}, {0, 1, 0, 1, 0, 1, 2, 0, 1}};
#define NODES 2 /* ways to spread the ranks, after the one node */

struct how {
    const char *algorithm;
    const int *node_of_rank; /* or NULL */
};

/* Bits of any kind of number; special values are frequent. */
static void fill(struct rank *r, void *data, size_t bytes, size_t element)
{
    static const uint64_t special[] = {0x7ff8000000000000ull, 0xfff8000000000123ull,
                                       0x7ff0000000000000ull, 0xfff0000000000000ull,
                                       0x8000000000000000ull, 0,
                                       0x0000000000000001ull, 0x7ff0000000000001ull};
    unsigned char *p = data;
    for (size_t i = 0; i + element <= bytes; i += element) {
        uint64_t bits = ranks_random(&r->seed);
        if (bits % 3 == 0) {
            bits = special[(bits >> 8) % 8];
            bits |=
                element < 8 ? bits >> (64 - 8 * element) : 0; /* the top bytes of a short type */
        }
        memcpy(p + i, &bits, element);
    }
}

static void same_everywhere(struct rank *r, const void *data, size_t bytes, halay_type_t type,
                            halay_op_t op)
{
    uint8_t *all = malloc(bytes * (size_t)r->nranks);
    CHECK(all && !halay_allgather(data, all, bytes, HALAY_UINT8, r->world), "allgather");
    for (int k = 1; k < r->nranks; k++)
        for (size_t i = 0; i < bytes; i++)
            CHECK(all[i] == all[(size_t)k * bytes + i],
                  "%s %s: byte %zu is %02x on rank 0, %02x on rank %d", halay_type_name(type),
                  halay_op_name(op), i, all[i], all[(size_t)k * bytes + i], k);
    free(all);
}

static void bits(struct rank *r)
{
    static double in[2 * COUNT * RANKS_MAX];
    char *mine = (char *)(in + 2 * COUNT * r->rank);
    char *out = malloc(2 * COUNT * sizeof(double));
    CHECK(out, "no memory");
#if defined(__SSE__)
    if (r->rank == 1)
        _mm_setcsr(_mm_getcsr() | 0x8040); /* flush to zero, denormals are zero */
#endif
    for (int t = 0; t < HALAY_TYPE_COUNT; t++)
        for (int o = 0; o < HALAY_OP_COUNT; o++) {
            halay_type_t type = (halay_type_t)t;
            size_t bytes = COUNT * halay_type_bytes(type);
            if (!halay_op_takes((halay_op_t)o, type))
                continue;
            bool halves = type >= HALAY_COMPLEX64; /* and the pairs */
            size_t element = halay_type_bytes(type) / (halves ? 2 : 1);
            fill(r, mine, bytes, element);
            int rc = halay_allreduce(mine, out, COUNT, type, (halay_op_t)o, r->world);
            CHECK(rc == 0, "%s", halay_strerror(rc));
            same_everywhere(r, out, bytes, type, (halay_op_t)o);
        }
    free(out);
}

static uint32_t depth_of(const struct how *how, uint32_t n)
{
    uint32_t planner;
    halay_shape_t *shape;
    halay_proof_t proof = {.size = sizeof(proof)};
    halay_plan_t *plans[RANKS_MAX];
    CHECK(!halay_planner_find(HALAY_ALLREDUCE, how->algorithm, &planner), "%s", how->algorithm);
    CHECK(!halay_shape_make((const uint32_t *)how->node_of_rank, n, &shape), "shape");
    for (uint32_t k = 0; k < n; k++) {
        halay_plan_params_t p = {HALAY_ALLREDUCE, n, k, 0, 0, shape};
        CHECK(!halay_plan_make(planner, &p, &plans[k]), "make");
    }
    CHECK(!halay_plan_prove((const halay_plan_t *const *)plans, n, &proof), "%s", proof.reason);
    for (uint32_t k = 0; k < n; k++)
        halay_plan_free(plans[k]);
    halay_shape_free(shape);
    return proof.reduce_depth;
}

static double random_value(uint64_t *seed)
{
    return (double)(int64_t)ranks_random(seed) * 0x1p-63 * 8;
}

/* arg: how */
static void bound(struct rank *r)
{
    static const double unit = 0x1p-11; /* of binary16 */
    const struct how *how = r->arg;
    uint32_t depth = depth_of(how, (uint32_t)r->nranks);
    _Float16 in[COUNT], out[COUNT];
    double sum[COUNT] = {0}, magnitude[COUNT] = {0};
    for (int k = 0; k < r->nranks; k++) {
        uint64_t seed = 77u + (uint64_t)k;
        for (int i = 0; i < COUNT; i++) {
            _Float16 x = (_Float16)random_value(&seed);
            sum[i] += (double)x;
            magnitude[i] += fabs((double)x);
            if (k == r->rank)
                in[i] = x;
        }
    }
    int rc = halay_allreduce(in, out, COUNT, HALAY_FLOAT16, HALAY_SUM, r->world);
    CHECK(rc == 0, "%s", halay_strerror(rc));
    for (int i = 0; i < COUNT; i++)
        CHECK(fabs((double)out[i] - sum[i]) <= depth * unit * magnitude[i],
              "%s, %d ranks: %g, exactly %g: beyond %u steps' rounding", how->algorithm, r->nranks,
              (double)out[i], sum[i], depth);
}

int main(int argc, char **argv)
{
    int most = argc > 1 ? atoi(argv[1]) : 9; /* ranks */
    static const char *isa[RANKS_MAX];
    static const char *const known[] = {"scalar", "avx2", "avx512"};
    int have = 0;
    const char *usable[3];
    for (int i = 0; i < 3; i++) {
        halay_device_t *device;
        extern const halay_device_ops_t hly_device_host;
        if (hly_device_host.open(NULL, known[i], &device) == 0) {
            usable[have++] = known[i];
            hly_device_host.close(device);
        }
    }
    CHECK(have > 0, "no instruction set");
    printf("%d instruction sets\n", have);
    for (int r = 0; r < RANKS_MAX; r++)
        isa[r] = usable[r % have];
    for (int n = 2; n <= most; n++)
        for (int a = 0; a < (int)(sizeof(algorithms) / sizeof(algorithms[0])); a++) {
            char setting[64];
            snprintf(setting, sizeof(setting), "allreduce=%s", algorithms[a]);
            for (int s = 0; s < (a < TWO_LEVEL ? 1 : 1 + NODES); s++) {
                if (a >= TWO_LEVEL && n % 3 != (s + 2) % 3)
                    continue; /* each way to spread for a third of the numbers */
                struct how how = {algorithms[a], s ? nodes[s - 1] : NULL};
                struct ranks_options o = {.nranks = n,
                                          .algorithm = setting,
                                          .isa = isa,
                                          .node_of_rank = how.node_of_rank};
                ranks_run(&o, bits, NULL);
                ranks_run(&o, bound, &how);
            }
        }
    return 0;
}
