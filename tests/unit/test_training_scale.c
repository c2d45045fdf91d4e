/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_training_scale.c - prescale and postscale. The half types for all 65,536 values against the
 * compiler's own _Float16, and against a rounding done in float64; sums of scaled values exactly.
 */
#include <math.h>

#include "training_ranks.h"

static halay_ticket_t submit(struct rank *rank, const void *in, void *out, size_t count,
                             halay_type_t type, double prescale, double postscale)
{
    halay_ticket_t ticket;
    CHECK(!halay_trainer_allreduce(rank->trainer, "scaled", in, out, count, type, HALAY_SUM,
                                   prescale, postscale, &ticket),
          "submit");
    return ticket;
}

static float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

/* The nearest bfloat16, ties to even, found among the neighbours by distance in float64. */
static uint16_t bfloat_nearest(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    if (isnan(value))
        return 0x7fc0;
    uint16_t low = (uint16_t)(bits >> 16), high = (uint16_t)(low + 1);
    if (isinf(value) || !(bits & 0xffff))
        return low;
    /* What follows the largest finite value counts as 2^128 here. */
    double a = fabs((double)float_of((uint32_t)low << 16)), v = fabs((double)value);
    double b = (high & 0x7fff) == 0x7f80 ? 0x1p128 : fabs((double)float_of((uint32_t)high << 16));
    if (v - a == b - v)
        return low & 1 ? high : low;
    return v - a < b - v ? low : high;
}

/* One rank, so that the sum changes nothing: every value, times the factor, rounded once. */
static void halves(struct rank *rank)
{
    static const double factors[] = {2, 0.5, 1.0 / 3, 0x1p-14, 0x1p-24, 1e5, -1, 0, 65504};
    uint16_t *in = malloc(65536 * sizeof(*in)), *out = malloc(65536 * sizeof(*out));
    for (size_t f = 0; f < sizeof(factors) / sizeof(factors[0]); f++) {
        for (int bfloat = 0; bfloat < 2; bfloat++) {
            for (int pre = 0; pre < 2; pre++) {
                for (int i = 0; i < 65536; i++)
                    in[i] = (uint16_t)i;
                finish(rank,
                       submit(rank, in, out, 65536, bfloat ? HALAY_BFLOAT16 : HALAY_FLOAT16,
                              pre ? factors[f] : 1, pre ? 1 : factors[f]),
                       0);
                for (int i = 0; i < 65536; i++) {
                    _Float16 half;
                    memcpy(&half, &in[i], sizeof(half));
                    float product =
                        (bfloat ? float_of((uint32_t)i << 16) : (float)half) * (float)factors[f];
                    uint16_t want = bfloat_nearest(product);
                    if (!bfloat) {
                        half = (_Float16)product;
                        memcpy(&want, &half, sizeof(want));
                        want = isnan(product) ? 0x7e00 : want;
                    }
                    CHECK(in[i] == i, "the input changed");
                    CHECK(out[i] == want, "%s %04x * %g is %04x, not %04x",
                          bfloat ? "bfloat16" : "float16", (unsigned)i, factors[f], out[i], want);
                }
            }
        }
    }
    free(in);
    free(out);
}

/* float32 times a factor rounded to float32; float64 as it is; complex in both parts. */
static void floats(struct rank *rank)
{
    enum { COUNT = 100 };
    const double factor = 1.0 / 3, r1 = rank->rank + 1;
    double n = rank->nranks, sum = n * (n + 1) / 2;
    for (int in_place = 0; in_place < 2; in_place++) {
        float f[2 * COUNT], fo[2 * COUNT];
        double d[2 * COUNT], dout[2 * COUNT];
        for (int width = 1; width <= 2; width++) {
            for (int i = 0; i < 2 * COUNT; i++)
                f[i] = (float)(d[i] = r1 * (i + 1) * 4);
            float *fp = in_place ? f : fo;
            double *dp = in_place ? d : dout;
            finish(rank,
                   submit(rank, f, fp, COUNT, width == 1 ? HALAY_FLOAT32 : HALAY_COMPLEX64, 0.25,
                          factor),
                   0);
            finish(rank,
                   submit(rank, d, dp, COUNT, width == 1 ? HALAY_FLOAT64 : HALAY_COMPLEX128, 0.25,
                          factor),
                   0);
            for (int i = 0; i < width * COUNT; i++) {
                CHECK(fp[i] == (float)(sum * (i + 1)) * (float)factor, "[%d] is %a", i, fp[i]);
                CHECK(dp[i] == sum * (i + 1) * factor, "[%d] is %a", i, dp[i]);
                CHECK(in_place || (f[i] == (float)(r1 * (i + 1) * 4) && d[i] == r1 * (i + 1) * 4),
                      "the input changed");
            }
        }
    }
}

/* Prescaling rounds each rank's values before the sum. */
static void prescale(struct rank *rank)
{
    enum { COUNT = 50 };
    double in[COUNT], out[COUNT];
    for (int i = 0; i < COUNT; i++)
        in[i] = (rank->rank + 1) * (i + 1);
    finish(rank, submit(rank, in, out, COUNT, HALAY_FLOAT64, 0.125, 8), 0);
    for (int i = 0; i < COUNT; i++)
        CHECK(out[i] == (i + 1) * rank->nranks * (rank->nranks + 1) / 2, "[%d] is %a", i, out[i]);
    for (int i = 0; i < COUNT; i++)
        in[i] = i % 2 ? INFINITY : NAN;
    finish(rank, submit(rank, in, out, COUNT, HALAY_FLOAT64, 0, 1), 0);
    for (int i = 0; i < COUNT; i++)
        CHECK(isnan(out[i]) && !signbit(out[i]), "[%d] is %a", i, out[i]);
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        {"halves", halves, {1}},
        {"floats", floats},
        {"prescale", prescale},
        {NULL},
    };
    return run_cases(cases, argc, argv);
}
