/* SPDX-License-Identifier: Apache-2.0 */
/*
 * launcher.c - the one place that decides how many ranks there are. Variables are inherited, so
 * those of several launchers may lie upon each other: the innermost one counts. Where two numbers
 * contradict each other and it is not known which launcher is the inner one, the process is
 * refused: it never takes the smaller number (docs/decisions/bootstraps.md#0008).
 */
#include <ctype.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "../../common/job.h"
#include "start/launcher.h"

#define ALONE "set HALAY_JOB=none to run alone"

struct environment {
    hly_variable_fn get;
    void *arg;
};

struct row {
    const char *must, *number, *launcher, *remedy;
};

/* The shell of a batch script has SLURM_NTASKS but no step of several tasks: it is nobody's task.
 */
static const struct row rows[] = {
    {"SLURM_STEP_ID", "SLURM_STEP_NUM_TASKS", "Slurm's srun",
     "start it with srun --mpi=pmix (srun --mpi=list shows what this cluster has)"},
    /* before Open MPI: Spectrum MPI's jsrun sets its variables too */
    {"JSM_NAMESPACE_SIZE", "JSM_NAMESPACE_SIZE", "jsrun",
     "load a jsrun with PMIx, or start with mpirun"},
    {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "Open MPI's mpirun",
     "use an mpirun with PMIx (Open MPI 4 or newer)"},
    {"PALS_RANKID", "PALS_NRANKS", "PALS", "start it with --pmi=pmix"},
    {"PMI_SIZE", "PMI_SIZE", "an mpiexec without PMIx and without PMI_FD",
     "use a launcher with PMIx, MPICH's mpiexec, or halayrun"},
    {HLY_JOB_VARIABLE, HLY_JOB_VARIABLE, "halayrun", "check halayrun's own message above"},
};

enum { ROWS = sizeof rows / sizeof rows[0] };

static const char *value(const struct environment *e, const char *name)
{
    const char *text = e->get(e->arg, name, false);
    return text && *text ? text : NULL;
}

static int number(const struct environment *e, const char *name)
{
    char ranks[16];
    const char *text = value(e, name);
    if (!strcmp(name, HLY_JOB_VARIABLE))
        text = hly_job_find(text, "ranks", ranks, sizeof ranks);
    long n = text ? strtol(text, NULL, 10) : 0;
    return n > 0 && n < (1 << 28) ? (int)n : 0;
}

static bool is(const struct environment *e, const char *name, const char *what)
{
    const char *text = value(e, name);
    return text && !strcmp(text, what);
}

/*
 * Open MPI 4, initialized without a launcher that it knows, writes the variables of a PMIx job of
 * one rank over what there was. Its name spaces are numbers, no other launcher's are.
 */
static bool mpi_is_alone(const struct environment *e)
{
    const char *space = value(e, "PMIX_NAMESPACE");
    return space && is(e, "OMPI_MCA_ess", "singleton") && !space[strspn(space, "0123456789")];
}

/* The name space that a launcher gave, or NULL. */
static const char *pmix(const struct environment *e)
{
    return value(e, "PMIX_RANK") && !mpi_is_alone(e) ? value(e, "PMIX_NAMESPACE") : NULL;
}

/* A launcher gave one, and such an MPI has replaced it, or has removed it at its end. */
static bool pmix_is_lost(const struct environment *e)
{
    const char *began =
        value(e, "OMPI_MCA_orte_launch") ? e->get(e->arg, "PMIX_NAMESPACE", true) : NULL;
    const char *now = value(e, "PMIX_NAMESPACE");
    return began && *began && (!now || (mpi_is_alone(e) && strcmp(began, now) != 0));
}

static bool by_torchrun(const struct environment *e)
{
    return value(e, "TORCHELASTIC_RUN_ID") && value(e, "WORLD_SIZE");
}

/*
 * Variables as torchrun and Kubernetes set them; the plug-in says what is wrong with
 * them. One rank runs alone. torchrun may itself be a task of a launcher with PMIx, whose variables
 * its workers then inherit: they are torchrun's ranks.
 */
static bool by_variables(const struct environment *e)
{
    const bool one = is(e, "WORLD_SIZE", "1") && (!value(e, "RANK") || is(e, "RANK", "0"));
    if (one || !(value(e, "RANK") || value(e, "WORLD_SIZE")))
        return false;
    return !pmix(e) || (by_torchrun(e) && value(e, "RANK"));
}

/* halayrun's driver; a launcher that a rank starts has variables of its own. */
static bool by_driver(const struct environment *e)
{
    char meet[HLY_JOB_VALUE], name[HLY_JOB_VALUE];
    const char *space = pmix(e), *text = value(e, HLY_JOB_VARIABLE);
    if (!hly_job_find(text, "meet", meet, sizeof meet) || by_torchrun(e))
        return false;
    return !space || !hly_job_find(text, "name", name, sizeof name) || !strcmp(space, name);
}

/*
 * How many ranks an mpiexec without PMIx has started within an srun, which that mpiexec uses to
 * reach nodes: its ranks inherit the PMIx of srun's tasks, which are others. 0: there is none.
 */
static int without_pmix(const struct environment *e)
{
    const int n = number(e, "PMI_SIZE"), tasks = number(e, "SLURM_STEP_NUM_TASKS");
    return n > 1 && tasks && n != tasks && !value(e, "OMPI_COMM_WORLD_SIZE") ? n : 0;
}

/* halayrun's own WORLD_SIZE is the number of its ranks. */
static struct hly_launcher driven(const struct environment *e)
{
    struct hly_launcher found = {.plugin = "meet",
                                 .launcher = "halayrun",
                                 .remedy = "check that all of Halay is installed, or " ALONE};
    const int n = number(e, HLY_JOB_VARIABLE), size = number(e, "WORLD_SIZE");
    found.nranks = n > 1 ? n : 0;
    if (n && size > n) {
        found.nranks = n;
        found.most = size;
        found.other = "WORLD_SIZE";
    }
    return found;
}

/* The PMI-1 of an mpiexec, as MPICH's and Intel MPI's. One that a job with PMIx has started is told
 * from one that has started that job only where their numbers differ. */
static bool by_pmi(const struct environment *e)
{
    return value(e, "PMI_FD") && value(e, "PMI_RANK") && number(e, "PMI_SIZE") > 1 &&
           (without_pmix(e) || (!pmix(e) && !pmix_is_lost(e)));
}

static const struct row *announced(const struct environment *e)
{
    for (int i = 0; i < ROWS; i++)
        if (value(e, rows[i].must) && number(e, rows[i].number) > 1)
            return &rows[i];
    return NULL;
}

static struct hly_launcher by_pmix(const struct environment *e)
{
    const struct row *row = announced(e);
    if (!row && !pmix(e) && !pmix_is_lost(e))
        return (struct hly_launcher){.nranks = 1};
    struct hly_launcher found = {
        .plugin = "pmix",
        .launcher = row ? row->launcher : "PMIx",
        .remedy = row ? row->remedy
                      : "check that the PMIx of the launcher and libpmix of this machine are "
                        "compatible",
        .nranks = row ? number(e, row->number) : 0};
    if (mpi_is_alone(e) || pmix_is_lost(e)) {
        found.plugin = NULL;
        found.reason =
            "MPI was initialized in this process before, and as a job of one rank, since "
            "it does not know this launcher";
        if (!row) {
            found.launcher = "the launcher";
            found.remedy = "call halay_init before MPI_Init, or start with halayrun";
        }
    }
    return found;
}

struct hly_launcher hly_launcher_find(hly_variable_fn get, void *arg)
{
    const struct environment e = {get, arg};
    if (hly_job_is_none(value(&e, HLY_JOB_VARIABLE))) /* a program that a rank starts, alone */
        return (struct hly_launcher){.nranks = 1};
    if (by_driver(&e))
        return driven(&e);
    if (by_variables(&e)) {
        const int n = number(&e, "WORLD_SIZE");
        return (struct hly_launcher){.plugin = "tcp",
                                     .launcher = "the environment (RANK, WORLD_SIZE)",
                                     .remedy = "check that all of Halay is installed, or " ALONE,
                                     .nranks =
                                         n > 1 ? n : 0}; /* 0: the plug-in says what is wrong */
    }
    if (by_pmi(&e))
        return (struct hly_launcher){.plugin = "pmi",
                                     .launcher = "an mpiexec with PMI-1",
                                     .remedy = "check that all of Halay is installed, or " ALONE,
                                     .nranks = number(&e, "PMI_SIZE")};
    if (without_pmix(&e))
        return (struct hly_launcher){.launcher = "an mpiexec without PMIx and without PMI_FD",
                                     .remedy = "use srun --mpi=pmix, MPICH's mpiexec, or halayrun",
                                     .reason =
                                         "they are not the tasks of the srun that it has used",
                                     .nranks = without_pmix(&e)};
    return by_pmix(&e);
}

/* prterun names no number; it is the inner one where its mark is. */
const char *hly_launcher_denies(hly_variable_fn get, void *arg, int nranks, int *most)
{
    const struct environment e = {get, arg};
    const char *by = NULL;
    *most = nranks;
    if (hly_job_is_none(value(&e, HLY_JOB_VARIABLE)))
        return NULL;
    for (int i = 0; i < ROWS; i++) {
        const int n = value(&e, rows[i].must) ? number(&e, rows[i].number) : 0;
        if (n == nranks || (n && n < nranks))
            return NULL;
        if (n > *most) {
            *most = n;
            by = rows[i].number;
        }
    }
    if (value(&e, "RANK") && number(&e, "WORLD_SIZE") > *most) {
        *most = number(&e, "WORLD_SIZE");
        by = "WORLD_SIZE";
    }
    return value(&e, "PRTE_LAUNCHED") ? NULL : by;
}
