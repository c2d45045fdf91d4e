/* SPDX-License-Identifier: Apache-2.0 */
/* test_search.c - successive halving finds the best of settings whose costs are known, in noise. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "../../src/training/core/search.h"

#define CHECK_FAILED abort()
#include "../check.h"

static uint64_t seed = 88172645463325252u;

static double draw(void)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (double)(seed >> 11) / (double)(UINT64_C(1) << 53);
}

struct run {
    int found, blocks, steps, reductions;
    double gain;
};

/* The time of a block of this setting: noise as of a busy machine, which only adds. */
typedef double (*cost_fn)(int setting, int block);

static struct run search(int nsettings, int steps, cost_fn cost)
{
    struct hlt_search s;
    struct run run = {0};
    hlt_search_begin(&s, nsettings, steps);
    while (!s.over) {
        const int setting = hlt_search_setting(&s), n = hlt_search_steps(&s);
        CHECK(setting >= 0 && setting < nsettings, "setting %d", setting);
        CHECK(n > 0 && n <= HLT_BLOCK_STEPS, "%d steps", n);
        run.steps += n;
        if (hlt_search_block(&s, cost(setting, run.blocks++))) {
            CHECK(hlt_search_words(&s) <= HLT_SEARCH_WORDS, "words");
            run.reductions++;
            hlt_search_agreed(&s);
        }
        CHECK(run.blocks < 100, "it does not end");
    }
    run.found = hlt_search_setting(&s);
    run.gain = s.gain;
    return run;
}

/* ------------------------------------------------------------------ known costs */

static double costs[HLT_SETTINGS], noise;

static double noisy(int setting, int block)
{
    (void)block;
    return costs[setting] * (1 + noise * draw() * draw());
}

static double least(int nsettings)
{
    double best = costs[0];
    for (int i = 1; i < nsettings; i++)
        best = fmin(best, costs[i]);
    return best;
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Of nine searches each: within 5 % of the best, and never behind the default. */
static void near_the_best(double spread, double much)
{
    double part[9];
    noise = much;
    for (int landscape = 0; landscape < 300; landscape++) {
        const int nsettings = 1 + landscape % HLT_SETTINGS;
        for (int i = 0; i < nsettings; i++)
            costs[i] = 1e6 * exp(spread * (draw() - 0.5));
        for (int i = 0; i < 9; i++) {
            const struct run run = search(nsettings, 10, noisy);
            part[i] = costs[run.found] / least(nsettings);
            CHECK(costs[run.found] <= 1.03 * costs[0], "%d of %d ends %.3f behind the default",
                  run.found, nsettings, costs[run.found] / costs[0]);
        }
        qsort(part, 9, sizeof(part[0]), by_size);
        CHECK(part[4] <= 1.05, "landscape %d: %.3f of the best", landscape, part[4]);
    }
}

/* ------------------------------------------------------------------ what must not be taken */

static double nearly(int setting, int block)
{
    (void)block;
    return setting == 3 ? 0.98e6 : setting ? 1.2e6 : 1e6; /* 2 % are too few */
}

static double enough(int setting, int block)
{
    (void)block;
    return setting == 3 ? 0.96e6 : setting ? 1.2e6 : 1e6;
}

/* The machine was quiet in the first round, and then never again. */
static double drifts(int setting, int block)
{
    return (setting == 2 ? 1e6 : setting ? 2e6 : 1e6) * (block == 2 ? 0.3 : 1);
}

/* It gets slower all the time; setting 1 is half as slow. */
static double slows(int setting, int block)
{
    return (setting == 1 ? 0.5e6 : 1e6) * pow(1.05, block);
}

static double all_worse(int setting, int block)
{
    (void)block;
    return setting ? 3e6 : 1e6;
}

static double nothing(int setting, int block)
{
    (void)setting;
    (void)block;
    return 0;
}

int main(void)
{
    double odd[] = {3, 1, 2}, even[] = {4, 1, 3, 2};
    CHECK(hlt_median(odd, 3) == 2 && hlt_median(even, 4) == 2.5, "median");

    struct run run = search(7, 10, nearly);
    CHECK(run.found == 0 && run.gain == 0, "2 %% are taken");
    run = search(7, 10, enough);
    CHECK(run.found == 3 && fabs(run.gain - 0.04) < 1e-9, "found %d, gain %f", run.found, run.gain);
    CHECK(run.blocks == 7 + 4 + 18 && run.steps == 70 + 80 + 180 && run.reductions == 3,
          "%d blocks, %d steps, %d reductions", run.blocks, run.steps, run.reductions);
    run = search(8, 128, enough);
    CHECK(run.found == 3, "the largest block");
    CHECK(search(7, 10, drifts).found == 0, "one lucky block decides");
    CHECK(search(7, 10, slows).found == 1, "the drift hides what is twice as fast");
    run = search(7, 10, all_worse);
    CHECK(run.found == 0 && run.blocks == 7 && run.reductions == 1, "hopeless: %d blocks",
          run.blocks);
    CHECK(search(1, 10, nothing).found == 0 && search(1, 10, nothing).blocks == 0, "one setting");
    CHECK(search(8, 1, nothing).found == 0, "no time at all");

    near_the_best(0.2, 0.02);
    near_the_best(2, 0.1);
    near_the_best(2, 0.3);
    return 0;
}
