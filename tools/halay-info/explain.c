/* SPDX-License-Identifier: Apache-2.0 */
/* explain.c - `halay-info explain`: which algorithm a call would get, why, and what it costs. */
#define _GNU_SOURCE
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <halay/plan.h>

#include "../../common/calibration.h"
#include "../common/library.h"
#include "../common/size.h"
#include "../common/switch.h"
#include "info.h"

#define RANKS_MAX 65536
#define BYTES_MAX (1ull << 50)

const char hly_info_explain_help[] =
    "Usage: halay-info explain COLLECTIVE [BYTES] --ranks N [options]\n"
    "Prints every algorithm that could serve the call, what forbids the others, the time that the\n"
    "model predicts, and which one is chosen. BYTES is that of one rank's input as in halay-bench\n"
    "(K, M and G, also KiB, MiB and GiB, are powers of 1024); of allgather one rank's block.\n"
    "\n"
    "  --ranks N         ranks\n"
    "  --nodes N         nodes (1), the ranks spread evenly, consecutive ones together\n"
    "  --round-robin     ... or dealt out to the nodes in turn\n"
    "  --oversubscribed         on one node that has more ranks than processors\n"
    "  --single          ... and only one processor\n"
    "  --type T          float32\n"
    "  --op OP           sum; \"ordered\" is any operation that does not commute\n"
    "  --root R          root (0)\n"
    "  --in-place        the input is in the output's memory\n"
    "  --vector          the v form of the collective\n"
    "  --gpu             in memory of a GPU, without NCCL; the last line is the way of its data\n"
    "  --algorithm A     as HALAY_ALGORITHM, which counts if this is not given\n"
    "  --selection FILE  as HALAY_SELECTION\n"
    "  --model FILE      of halay-bench calibrate -o, for the predicted times\n"
    "  --json            as JSON\n";

struct explain {
    halay_question_t question;
    uint32_t nranks, nnodes;
    uint64_t bytes;
    halay_type_t type;
    const char *op, *algorithm, *selection, *model;
    int round_robin, json, gpudirect;
};

static int complain(const char *what, const char *value)
{
    fprintf(stderr, "halay-info: %s%s; see halay-info explain --help\n", what, value);
    return HLY_EXIT_USAGE;
}

static int parse_number(const char *text, uint32_t least, uint32_t most, uint32_t *number)
{
    char *end;
    errno = 0;
    unsigned long n = strtoul(text, &end, 10);
    if (errno || *text < '0' || *text > '9' || *end || n < least || n > most)
        return complain("no such number: ", text);
    *number = (uint32_t)n;
    return 0;
}

static int parse_bytes(const char *text, uint64_t *bytes)
{
    return hly_size_read(text, BYTES_MAX, bytes) ? complain("no such size: ", text) : 0;
}

static int parse_type(const char *text, halay_type_t *type)
{
    for (int t = 0; t < HALAY_TYPE_COUNT; t++)
        if (!strcmp(text, halay_type_name((halay_type_t)t))) {
            *type = (halay_type_t)t;
            return 0;
        }
    return complain("no such type: ", text);
}

static int check_op(struct explain *x)
{
    x->question.commutative = strcmp(x->op, "ordered") != 0;
    if (!x->question.commutative)
        return 0;
    for (int o = 0; o < HALAY_OP_COUNT; o++)
        if (!strcmp(x->op, halay_op_name((halay_op_t)o)))
            return halay_op_takes((halay_op_t)o, x->type)
                       ? 0
                       : complain("that operation does not take the type: ", x->op);
    return complain("no such operation: ", x->op);
}

static int parse_option(int option, struct explain *x)
{
    switch (option) {
    case 'n':
        return parse_number(optarg, 1, RANKS_MAX, &x->nranks);
    case 'N':
        return parse_number(optarg, 1, RANKS_MAX, &x->nnodes);
    case 'o':
        return parse_number(optarg, 0, RANKS_MAX - 1, &x->question.root);
    case 't':
        return parse_type(optarg, &x->type);
    case 'O':
        x->op = optarg;
        return 0;
    case 'a':
        x->algorithm = optarg;
        return 0;
    case 's':
        x->selection = optarg;
        return 0;
    case 'm':
        x->model = optarg;
        return 0;
    case 'i':
        x->question.in_place = 1;
        return 0;
    case 'v':
        x->question.vector = 1;
        return 0;
    case 'g':
        x->question.apart = 1;
        return 0;
    case 'r':
        x->round_robin = 1;
        return 0;
    case 'c':
    case 'S':
        x->question.oversubscribed = option == 'S' ? 2 : 1;
        return 0;
    case 'j':
        return (x->json = 1) - 1;
    case 'h':
        fputs(hly_info_explain_help, stdout);
        return -1;
    default:
        return HLY_EXIT_USAGE;
    }
}

static int parse(int argc, char **argv, struct explain *x)
{
    static const struct option longs[] = {{"ranks", 1, 0, 'n'},
                                          {"nodes", 1, 0, 'N'},
                                          {"round-robin", 0, 0, 'r'},
                                          {"type", 1, 0, 't'},
                                          {"op", 1, 0, 'O'},
                                          {"root", 1, 0, 'o'},
                                          {"in-place", 0, 0, 'i'},
                                          {"vector", 0, 0, 'v'},
                                          {"gpu", 0, 0, 'g'},
                                          {"algorithm", 1, 0, 'a'},
                                          {"selection", 1, 0, 's'},
                                          {"model", 1, 0, 'm'},
                                          {"json", 0, 0, 'j'},
                                          {"oversubscribed", 0, 0, 'c'},
                                          {"single", 0, 0, 'S'},
                                          {"help", 0, 0, 'h'},
                                          {0, 0, 0, 0}};
    int option, status = 0;
    while (!status && (option = getopt_long(argc, argv, "h", longs, NULL)) != -1)
        status = parse_option(option, x);
    if (status)
        return status;
    if (optind == argc)
        return complain("one collective has to be named", "");
    for (uint32_t c = 0; c < HALAY_COLLECTIVE_COUNT; c++)
        if (!strcmp(argv[optind], halay_collective_name((halay_collective_t)c)))
            x->question.collective = c;
    if (x->question.collective == HALAY_COLLECTIVE_COUNT)
        return complain("no such collective: ", argv[optind]);
    int barrier = x->question.collective == HALAY_BARRIER;
    if (argc - optind != (barrier ? 1 : 2))
        return complain(barrier ? "a barrier has no size" : "one size has to be given", "");
    return barrier ? 0 : parse_bytes(argv[optind + 1], &x->bytes);
}

/* Elements of the call. */
static int check_bytes(struct explain *x)
{
    const halay_collective_t collective = (halay_collective_t)x->question.collective;
    const uint32_t element = collective == HALAY_BARRIER ? 1 : (uint32_t)halay_type_bytes(x->type);
    const uint32_t blocks = collective == HALAY_REDUCE_SCATTER || collective == HALAY_SCATTER ||
                                    collective == HALAY_ALLTOALL
                                ? x->nranks
                                : 1;
    char least[64];
    x->question.element_bytes = element;
    x->question.count = x->bytes / blocks / element;
    if (!x->bytes || x->question.count)
        return 0;
    snprintf(least, sizeof least, "%llu bytes of %s", (unsigned long long)blocks * element,
             halay_type_name(x->type));
    return complain(blocks > 1 ? "too short for a block for each rank; the least are "
                               : "too short for one element; the least are ",
                    least);
}

static int check(struct explain *x)
{
    char wrong[200];
    halay_collective_t collective = (halay_collective_t)x->question.collective;
    if (!x->nranks)
        return complain("--ranks is missing", "");
    if (x->nnodes > x->nranks)
        return complain("--nodes is more than --ranks", "");
    if (x->question.oversubscribed && x->nnodes > 1)
        return complain("--oversubscribed and --single are for one node", "");
    if (x->question.root >= x->nranks || (x->question.root && !halay_collective_rooted(collective)))
        return complain("--root is no rank, or the collective has none", "");
    x->gpudirect = hly_switch_read("HALAY_GPUDIRECT", wrong, sizeof wrong);
    if (x->gpudirect < 0)
        return complain(wrong, "");
    if (check_bytes(x))
        return HLY_EXIT_USAGE;
    return halay_collective_reduces(collective) ? check_op(x) : 0;
}

/* The way of the chosen algorithm's messages in memory of a GPU. */
static void print_way(const halay_explanation_t *e, const halay_shape_t *s, int gpudirect)
{
    const char *why;
    if (e->chosen == UINT32_MAX)
        return;
    why = halay_planner_indirect(e->candidate[e->chosen].planner, e->nranks, e->nnodes,
                                 s->smallest != s->largest);
    if (why && e->nranks == 1)
        printf("  in device memory: on the device; %s\n", why);
    else if (why)
        printf("  in device memory: staged, copied through the host's; not GPUDirect: %s\n", why);
    else if (gpudirect)
        printf("  in device memory: direct (GPUDirect), unless it scales its input; where a GPU or "
               "an adapter cannot, the call fails (halay-doctor)\n");
    else
        printf("  in device memory: staged, copied through the host's; not GPUDirect: "
               "HALAY_GPUDIRECT is not 1\n");
}

static int print(const halay_selection_t *selection, const struct explain *x)
{
    halay_explanation_t *e;
    int rc = halay_explain(selection, &x->question, &e);
    if (rc) {
        fprintf(stderr, "halay-info: %s\n", halay_strerror(rc));
        return 1;
    }
    size_t bytes = halay_explanation_print(e, x->json, NULL, 0);
    char *text = malloc(bytes);
    if (text) {
        halay_explanation_print(e, x->json, text, bytes);
        fputs(text, stdout);
    }
    if (text && x->question.apart && !x->json)
        print_way(e, x->question.shape, x->gpudirect);
    int status = !text || e->chosen == UINT32_MAX;
    free(text);
    halay_explanation_free(e);
    return status;
}

static int make_shape(const struct explain *x, halay_shape_t **shape)
{
    uint32_t *node = calloc(x->nranks, sizeof *node);
    for (uint32_t r = 0; node && r < x->nranks; r++)
        node[r] = x->round_robin ? r % x->nnodes : (uint32_t)((uint64_t)r * x->nnodes / x->nranks);
    int rc = node ? halay_shape_make(node, x->nranks, shape) : HALAY_ENOMEM;
    free(node);
    return rc;
}

/* What was kept, where nothing else is asked for: the file's path, or empty. */
static void find_kept(const struct explain *x, char path[HLY_CALIBRATION_PATH])
{
    char library[HLY_PATH_BYTES], why[768];
    path[0] = 0;
    if ((x->algorithm && *x->algorithm) || (x->selection && *x->selection) ||
        (x->model && *x->model) || hly_calibration_off())
        return;
    hly_library_path(library);
    FILE *file = hly_calibration_open(library, halay_version(), path, why, sizeof why);
    if (*why)
        fprintf(stderr, "halay-info: %s\n", why);
    if (file)
        fclose(file);
    else
        path[0] = 0;
}

int hly_info_explain(int argc, char **argv)
{
    struct explain x = {.question = {.collective = HALAY_COLLECTIVE_COUNT, .commutative = 1},
                        .nnodes = 1,
                        .type = HALAY_FLOAT32,
                        .op = "sum",
                        .algorithm = getenv("HALAY_ALGORITHM"),
                        .selection = getenv("HALAY_SELECTION")};
    char error[512] = "", kept[HLY_CALIBRATION_PATH];
    halay_selection_t *selection;
    halay_shape_t *shape;
    int status = parse(argc, argv, &x);
    if (!status)
        status = check(&x);
    if (status)
        return status < 0 ? 0 : status;
    find_kept(&x, kept);
    int rc = halay_selection_make(x.algorithm, *kept ? kept : x.selection, x.model, error,
                                  sizeof error, &selection);
    if (rc)
        fprintf(stderr, "halay-info: %s\n", error);
    if (rc && *kept) /* a job would do so, too */
        rc = halay_selection_make(NULL, NULL, NULL, error, sizeof error, &selection);
    if (rc)
        return 1;
    rc = make_shape(&x, &shape);
    if (!rc) {
        x.question.shape = shape;
        status = print(selection, &x);
        if (*kept && !x.json)
            printf("  calibration: %s\n", kept);
        halay_shape_free(shape);
    }
    halay_selection_free(selection);
    return rc ? 1 : status;
}
