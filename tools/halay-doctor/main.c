/* SPDX-License-Identifier: Apache-2.0 */
/* main.c - halay-doctor: what a site engineer runs first. */
#define _GNU_SOURCE
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../common/printed.h"
#include "doctor.h"

static const char help[] =
    "Usage: halay-doctor [options]                    this host\n"
    "       halayrun -np N halay-doctor [options]     ... and the way between the ranks' hosts\n"
    "       srun --mpi=pmix halay-doctor [options]\n"
    "Looks at RDMA devices, network, limits, control groups, kernel, PMIx, Slurm, UCX and GPUs; "
    "says "
    "what\n"
    "it finds, why it matters, and what to do. Ranks of a job try and time every pair, one rank a "
    "node\n"
    "(where there is one node: all ranks).\n"
    "\n"
    "  --brief         only what is not as it should be\n"
    "  --json          as JSON\n"
    "  --picture FILE  the pairs as a picture, FILE.png or FILE.svg (python3 with matplotlib)\n"
    "  --no-pairs      findings only\n"
    "  --all-ranks     all ranks of a node, not one\n"
    "  --most N        ranks that are looked at, 1 to 256 (32)\n"
    "  --seconds S     until a pair that does not answer is given up (10)\n"
    "  --root DIR      the files of /proc, /sys, /dev and /etc are those below DIR; libraries and "
    "system\n"
    "                  calls are not tried\n"
    "Exit status: 0; 1 an error was found; 2 wrong usage.\n";

static int complain(const char *what, const char *value)
{
    fprintf(stderr, "halay-doctor: %s%s; see halay-doctor --help\n", what, value);
    return HLY_EXIT_USAGE;
}

static int parse_most(const char *text, int *most)
{
    char *end;
    errno = 0;
    long n = strtol(text, &end, 10);
    if (errno || *text < '0' || *text > '9' || *end || n < 1 || n > HLY_MOST)
        return complain("--most cannot be ", text);
    *most = (int)n;
    return 0;
}

static int parse_seconds(const char *text, double *seconds)
{
    char *end;
    double s = strtod(text, &end);
    if (end == text || *end || !isfinite(s) || s < 0.1 || s > 600)
        return complain("--seconds cannot be ", text);
    *seconds = s;
    return 0;
}

static int parse_picture(const char *file, const char **picture)
{
    size_t n = strlen(file);
    if (n < 5 || (strcmp(file + n - 4, ".png") && strcmp(file + n - 4, ".svg")))
        return complain("--picture has to end with .png or .svg: ", file);
    *picture = file;
    return 0;
}

static int parse_option(int option, struct hly_options *o)
{
    switch (option) {
    case 'b':
        o->brief = true;
        return 0;
    case 'j':
        o->json = true;
        return 0;
    case 'p':
        return parse_picture(optarg, &o->picture);
    case 'n':
        o->pairs = false;
        return 0;
    case 'a':
        o->all_ranks = true;
        return 0;
    case 'm':
        return parse_most(optarg, &o->most);
    case 's':
        return parse_seconds(optarg, &o->seconds);
    case 'r':
        o->root = optarg;
        return access(optarg, R_OK) ? complain("--root cannot be read: ", optarg) : 0;
    case 'h':
        fputs(help, stdout);
        return -1;
    default:
        return HLY_EXIT_USAGE;
    }
}

/* -1: all is done. */
static int parse(int argc, char **argv, struct hly_options *o)
{
    static const struct option longs[] = {{"brief", 0, 0, 'b'},     {"json", 0, 0, 'j'},
                                          {"picture", 1, 0, 'p'},   {"no-pairs", 0, 0, 'n'},
                                          {"all-ranks", 0, 0, 'a'}, {"most", 1, 0, 'm'},
                                          {"seconds", 1, 0, 's'},   {"root", 1, 0, 'r'},
                                          {"help", 0, 0, 'h'},      {0, 0, 0, 0}};
    int option, status = 0;
    while (!status && (option = getopt_long(argc, argv, "h", longs, NULL)) != -1)
        status = parse_option(option, o);
    if (!status && optind < argc)
        status = complain("no such argument: ", argv[optind]);
    return status;
}

static void examine(const struct hly_options *o, struct hly_report *report)
{
    const struct hly_probe p = {o->root, report};
    gethostname(report->host, sizeof report->host - 1);
    hly_probe_host(&p);
    hly_probe_network(&p);
    hly_probe_rdma(&p);
    hly_probe_limits(&p);
    hly_probe_cgroup(&p);
    hly_probe_kernel(&p);
    hly_probe_calls(&p);
    hly_probe_software(&p);
    hly_probe_gpu(&p);
}

/* The launcher's number of this process, where no job was made that could tell. */
static bool is_first(void)
{
    static const char *const variables[] = {"PMIX_RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK",
                                            "PMI_RANK", "RANK"};
    for (size_t i = 0; i < sizeof variables / sizeof variables[0]; i++) {
        const char *value = getenv(variables[i]);
        if (value)
            return !strcmp(value, "0");
    }
    return true;
}

static int report(const struct hly_options *o, struct hly_job *job)
{
    bool drawn = true;
    hly_conclude(job);
    if (o->json)
        hly_print_json(job, stdout);
    else
        hly_print(o, job);
    if (o->picture)
        drawn = hly_picture(job, o->picture);
    return hly_has_errors(job) || !drawn;
}

/* No job: the findings of this host, and that there is none. */
static int alone(const struct hly_options *o, struct hly_job *job, const char *error)
{
    struct hly_finding *f = hly_find(&job->across, HLY_ERROR, "job", "", "%s", error);
    hly_advise(f, "No program of Halay can run in this way.",
               "read the first line that starts with \"halay error\", and the launcher's own; then "
               "halay-doctor on each host alone; can the hosts reach each other at all (ping)?");
    return is_first() ? report(o, job) : 0; /* a launcher may end the job at the first failure */
}

/* A rank whose findings have not come to rank 0, whose exit status says so. */
static void say_here(const struct hly_options *o, const struct hly_job *job, int rc)
{
    fprintf(stderr, "halay-doctor: rank %d on %s lost rank 0: %s\n", job->topology.rank,
            job->topology.host, halay_strerror(rc));
    for (uint32_t i = 0; i < job->reports[0].nfindings; i++) {
        const struct hly_finding *f = &job->reports[0].findings[i];
        if (f->severity >= HLY_WARNING && !o->json)
            fprintf(stderr, "halay-doctor: rank %d on %s: %s: %s %s: %s\n", job->topology.rank,
                    job->topology.host, hly_severity_names[f->severity], f->check, f->where,
                    f->what);
    }
}

static int work(const struct hly_options *o, struct hly_job *job)
{
    char error[512] = "";
    halay_config_t config = HALAY_CONFIG_INIT;
    halay_context_t *context;
    halay_comm_t *world;
    setenv("HALAY_DEBUG", "error", 0); /* what fails is a finding here */
    config.error = error;
    config.error_bytes = sizeof error;
    int rc = halay_init(&config, &context);
    if (rc)
        return alone(o, job, *error ? error : halay_strerror(rc));
    rc = halay_comm_world(context, &world);
    rc = rc ? rc : halay_context_topology(context, &job->topology);
    if (!rc && job->topology.rank) {
        rc = hly_follow(o, world, &job->topology, &job->reports[0]);
        halay_finalize(context);
        if (rc)
            say_here(o, job, rc);
        return 0;
    }
    if (!rc && job->topology.nranks > 1)
        rc = hly_lead(o, world, job);
    halay_finalize(context);
    if (rc)
        return alone(o, job, halay_strerror(rc));
    return report(o, job);
}

int main(int argc, char **argv)
{
    struct hly_options options = {.root = "", .most = 32, .seconds = 10, .pairs = true};
    struct hly_job job = {.nseats = 1, .topology = {.size = sizeof job.topology}};
    int status = parse(argc, argv, &options);
    if (status)
        return status < 0 ? hly_printed("halay-doctor", 0, EXIT_FAILURE) : status;
    job.reports = calloc(1, sizeof *job.reports);
    job.seats = calloc(1, sizeof *job.seats);
    if (job.reports && job.seats) {
        examine(&options, &job.reports[0]);
        gethostname(job.seats[0].host, sizeof job.seats[0].host - 1);
        status = work(&options, &job);
    } else {
        fprintf(stderr, "halay-doctor: %s\n", halay_strerror(HALAY_ENOMEM));
        status = 1;
    }
    free(job.matrix.cells);
    free(job.reports);
    free(job.seats);
    return hly_printed("halay-doctor", status, EXIT_FAILURE);
}
