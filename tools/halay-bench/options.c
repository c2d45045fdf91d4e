/* SPDX-License-Identifier: Apache-2.0 */
/* options.c - halay-bench's command line. */
#define _GNU_SOURCE
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../common/size.h"
#include "bench.h"

#define BYTES_MAX (1ull << 40)
#define CALLS_MAX 10000000

static const char help[] =
    "Usage: halayrun -np N halay-bench COLLECTIVE [options]\n"
    "       halayrun -np N halay-bench calibrate [-o FILE]\n"
    "Times a collective for growing sizes, and checks the data. Without halayrun: one rank.\n"
    "\n"
    "COLLECTIVE: allreduce, broadcast, allgather, reduce_scatter, barrier, reduce, gather, "
    "scatter,\n"
    "alltoall, scan, exscan; the root is rank 0\n"
    "\n"
    "  --min BYTES, --max BYTES  sizes (4, 256M); K, M and G, also KiB, MiB and GiB, are powers\n"
    "                            of 1024. The size is that of one rank's input: of allgather and\n"
    "                            gather one rank's block, of reduce_scatter, scatter and alltoall\n"
    "                            all blocks\n"
    "  --factor N                from size to size (2)\n"
    "  --type T                  float32; float16, bfloat16, float64, int32, int64\n"
    "  --op OP                   sum; min, max\n"
    "  --in-place                the input is in the output's memory (at the root)\n"
    "  --registered              buffers of halay_mem_alloc(), registered once\n"
    "  --relaxed                 asks for relaxed broadcasts (HALAY_HINT_RELAXED_BROADCAST)\n"
    "  --barrier                 a barrier before each call; otherwise calls are back to back\n"
    "  --iterations N            timed calls (else what fits, 3 to 1000000)\n"
    "  --warmup N                calls before those (else until a call's time is known)\n"
    "  --seconds S               about as long as the timed calls of one size take (0.25)\n"
    "  --stop-at S               no larger size after one whose calls took longer than that\n"
    "  --csv FILE                rank 0 writes the table there too\n"
    "\n"
    "calibrate measures which algorithms are faster here than those that would be chosen, for as\n"
    "many ranks as it has, and keeps that for nodes of this kind (HALAY_CALIBRATION, halay(7)):\n"
    "later jobs of as many ranks use it.\n"
    "\n"
    "  --seconds S               about as long as that takes at most (60)\n"
    "  -o FILE                   instead rank 0 writes constants there, for "
    "HALAY_SELECTION=model:FILE\n"
    "\n"
    "A call takes as long as it takes the slowest rank. Columns: average, median and minimum over "
    "calls;\n"
    "context switches a call and rank; whether the results, looked at before and after, were "
    "right.\n"
    "Exit status: 0; 1 wrong data or an error; 2 wrong usage.\n";

static int complain(const char *what, const char *value)
{
    fprintf(stderr, "halay-bench: %s%s; see halay-bench --help\n", what, value);
    return HLY_EXIT_USAGE;
}

static bool parse_bytes(const char *text, size_t *bytes)
{
    uint64_t n;
    if (hly_size_read(text, BYTES_MAX, &n) || !n)
        return false;
    *bytes = (size_t)n;
    return true;
}

static bool parse_calls(const char *text, int least, int *calls)
{
    char *end;
    errno = 0;
    long n = strtol(text, &end, 10);
    if (errno || end == text || *end || n < least || n > CALLS_MAX)
        return false;
    *calls = (int)n;
    return true;
}

static bool parse_seconds(const char *text, double *seconds)
{
    char *end;
    double s = strtod(text, &end);
    if (end == text || *end || !isfinite(s) || s <= 0 || s > 3600)
        return false;
    *seconds = s;
    return true;
}

static bool parse_type(const char *text, halay_type_t *type)
{
    static const halay_type_t known[] = {HALAY_FLOAT32, HALAY_FLOAT16, HALAY_BFLOAT16,
                                         HALAY_FLOAT64, HALAY_INT32,   HALAY_INT64};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        *type = known[i];
        if (!strcmp(text, halay_type_name(known[i])))
            return true;
    }
    return false;
}

static bool parse_op(const char *text, halay_op_t *op)
{
    static const halay_op_t known[] = {HALAY_SUM, HALAY_MIN, HALAY_MAX};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        *op = known[i];
        if (!strcmp(text, halay_op_name(known[i])))
            return true;
    }
    return false;
}

static bool parse_collective(const char *text, halay_collective_t *collective)
{
    for (int c = 0; c < HALAY_COLLECTIVE_COUNT; c++) {
        *collective = (halay_collective_t)c;
        if (!strcmp(text, halay_collective_name(*collective)))
            return true;
    }
    return false;
}

static bool parse_option(int option, struct hly_bench *b)
{
    switch (option) {
    case 'm':
        return parse_bytes(optarg, &b->min_bytes);
    case 'M':
        return parse_bytes(optarg, &b->max_bytes);
    case 't':
        return parse_type(optarg, &b->type);
    case 'O':
        return parse_op(optarg, &b->op);
    case 'f':
        return parse_calls(optarg, 2, &b->factor);
    case 'n':
        return parse_calls(optarg, 1, &b->iterations);
    case 'w':
        return parse_calls(optarg, 0, &b->warmup);
    case 's':
        return parse_seconds(optarg, &b->seconds);
    case 'S':
        return parse_seconds(optarg, &b->stop_at);
    case 'p':
        return b->in_place = true;
    case 'r':
        return b->registered = true;
    case 'R':
        return b->relaxed = true;
    case 'b':
        return b->barrier = true;
    default:
        b->csv = optarg;
        return true;
    }
}

static int check(const struct hly_bench *b)
{
    const char *name = halay_collective_name(b->collective);
    if (b->in_place && (b->collective == HALAY_BROADCAST || b->collective == HALAY_BARRIER))
        return complain("--in-place has no meaning for ", name);
    if (b->barrier && b->collective == HALAY_BARRIER)
        return complain("--barrier has no meaning for ", name);
    if (b->min_bytes > b->max_bytes)
        return complain("--min is more than --max", "");
    if (b->collective != HALAY_BARRIER && b->max_bytes < halay_type_bytes(b->type))
        return complain("--max is less than one element of ", halay_type_name(b->type));
    return 0;
}

int hly_bench_options(int argc, char **argv, struct hly_bench *b, int *status)
{
    static const struct option longs[] = {{"min", 1, 0, 'm'},        {"max", 1, 0, 'M'},
                                          {"type", 1, 0, 't'},       {"factor", 1, 0, 'f'},
                                          {"op", 1, 0, 'O'},         {"warmup", 1, 0, 'w'},
                                          {"iterations", 1, 0, 'n'}, {"seconds", 1, 0, 's'},
                                          {"in-place", 0, 0, 'p'},   {"barrier", 0, 0, 'b'},
                                          {"registered", 0, 0, 'r'}, {"csv", 1, 0, 'c'},
                                          {"stop-at", 1, 0, 'S'},    {"relaxed", 0, 0, 'R'},
                                          {"help", 0, 0, 'h'},       {0, 0, 0, 0}};
    int option, index = 0, timed = 0;
    *b = (struct hly_bench){.type = HALAY_FLOAT32,
                            .min_bytes = 4,
                            .max_bytes = 256u << 20,
                            .factor = 2,
                            .iterations = -1,
                            .warmup = -1};
    *status = HLY_EXIT_USAGE;
    while ((option = getopt_long(argc, argv, "ho:", longs, &index)) != -1) {
        if (option == '?')
            return 1;
        timed += option != 'o' && option != 's';
        if (option == 'o') {
            b->model = optarg;
            continue;
        }
        if (option == 'h') {
            fputs(help, stdout);
            *status = 0;
            return 1;
        }
        if (!parse_option(option, b)) {
            char what[40];
            snprintf(what, sizeof what, "--%s cannot be ", longs[index].name);
            complain(what, optarg);
            return 1;
        }
    }
    if (optind + 1 != argc)
        return complain("one collective has to be named", "");
    if (!strcmp(argv[optind], "calibrate")) {
        if (timed)
            return complain("calibrate takes -o FILE, or --seconds S", "");
        b->calibrate = true;
        b->seconds = b->seconds > 0 ? b->seconds : 60;
        *status = 0;
        return 0;
    }
    b->seconds = b->seconds > 0 ? b->seconds : 0.25;
    if (b->model)
        return complain("-o is for calibrate: ", b->model);
    if (!parse_collective(argv[optind], &b->collective))
        return complain("no such collective: ", argv[optind]);
    return check(b);
}
