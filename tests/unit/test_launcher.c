/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_launcher.c - who says how many ranks there are: environments as launchers make them, alone,
 * upon each other, and as an MPI that was initialized first leaves them.
 */
#include <string.h>

#include "start/launcher.h"

#include "../check.h"

#define HALAYRUN                                                                                   \
    "HALAY_JOB=launcher=halayrun;ranks=2;meet=unix:/m;slot=1;name=halayrun-1 "                     \
    "RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 "                                         \
    "MASTER_ADDR=127.0.0.1 MASTER_PORT=1 "
#define HALAYRUN_PMIX "PMIX_RANK=1 PMIX_NAMESPACE=halayrun-1 "
#define ELASTIC       "HALAY_JOB=launcher=halayrun;meet=unix:/m;slot=1;name=halayrun-1 "
#define VARIABLES     "RANK=1 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=1 "
#define TORCHRUN      VARIABLES "TORCHELASTIC_RUN_ID=none "
#define SRUN          "SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=2 "
#define SRUN_PMIX     SRUN "PMIX_RANK=1 PMIX_NAMESPACE=slurm.pmix.3.0 "
#define MPIRUN                                                                                     \
    "OMPI_COMM_WORLD_SIZE=2 PMIX_RANK=1 PMIX_NAMESPACE=2139422721 OMPI_MCA_orte_launch=1 "
#define MPIRUN_4     MPIRUN "OMPI_MCA_ess=^singleton "
#define MPIRUN_4_MPI MPIRUN "OMPI_MCA_ess=pmi "
#define MPIRUN_5                                                                                   \
    "OMPI_COMM_WORLD_SIZE=2 PMIX_RANK=1 PMIX_NAMESPACE=prterun-vm-5474@1 PRTE_LAUNCHED=1 "
#define PRTERUN "PMIX_RANK=1 PMIX_NAMESPACE=prterun-vm-5474@1 PRTE_LAUNCHED=1 "
#define HYDRA   "PMI_FD=9 PMI_RANK=1 PMI_SIZE=2 "
/* What MPI_Init and MPI_Finalize of Open MPI 4 leave, where it knows no launcher. */
#define MPI_ALONE                                                                                  \
    "OMPI_MCA_orte_launch=1 OMPI_MCA_ess=singleton PMIX_RANK=0 PMIX_NAMESPACE=2140798977 "         \
    "PMIX_SERVER_URI2=2140798976.0;tcp4://127.0.0.1:1 "
#define MPI_OVER "OMPI_MCA_orte_launch=1 PMIX_SERVER_URI2=2140798976.0;tcp4://127.0.0.1:1 "

static const struct {
    const char *now, *began; /* the environment; PMIX_NAMESPACE when the process began */
    const char *plugin;      /* NULL: refused, or alone */
    int nranks, most;
} rows[] = {
    {"", "", NULL, 1, 0},
    {MPI_ALONE, "", NULL, 1, 0},
    {MPI_OVER, "", NULL, 1, 0},
    {HALAYRUN, "", "meet", 2, 0},
    {HALAYRUN HALAYRUN_PMIX, "halayrun-1", "meet", 2, 0},
    {HALAYRUN MPI_ALONE, "halayrun-1", "meet", 2, 0},
    {HALAYRUN MPI_OVER, "halayrun-1", "meet", 2, 0},
    {ELASTIC, "", "meet", 0, 0},
    {ELASTIC MPI_ALONE, "", "meet", 0, 0},
    {ELASTIC MPI_OVER, "", "meet", 0, 0},
    {VARIABLES, "", "tcp", 2, 0},
    {VARIABLES MPI_ALONE, "", "tcp", 2, 0},
    {VARIABLES MPI_OVER, "", "tcp", 2, 0},
    {TORCHRUN, "", "tcp", 2, 0},
    {TORCHRUN MPI_ALONE, "", "tcp", 2, 0},
    {"RANK=0", "", "tcp", 0, 0},
    {"WORLD_SIZE=2", "", "tcp", 2, 0},
    {"RANK=0 WORLD_SIZE=1", "", NULL, 1, 0},
    {"RANK=0 WORLD_SIZE=1 " MPI_ALONE, "", NULL, 1, 0},
    {SRUN_PMIX, "slurm.pmix.3.0", "pmix", 2, 0},
    {SRUN, "", "pmix", 2, 0},          /* whose probe finds no server: refused */
    {SRUN MPI_ALONE, "", NULL, 2, 0},  /* srun --mpi=none: refused, not "0 of 1" */
    {SRUN MPI_OVER, "", "pmix", 2, 0}, /* no server either */
    {HYDRA, "", "pmi", 2, 0},
    {HYDRA MPI_ALONE, "", "pmi", 2, 0},
    {HYDRA "HALAY_JOB=none", "", NULL, 1, 0},
    {"PMI_FD=9 PMI_RANK=0 PMI_SIZE=1", "", NULL, 1, 0},
    {"PMI_RANK=0 PMI_SIZE=2", "", "pmix", 2, 0}, /* whose probe finds no server: refused */
    {HYDRA VARIABLES, "", "tcp", 2, 0},
    {HYDRA "RANK=0 WORLD_SIZE=1", "", "pmi", 2, 0},
    {HYDRA HALAYRUN, "", "meet", 2, 0},
    {HYDRA MPIRUN_5, "prterun-vm-5474@1", "pmix", 2, 0},
    {HYDRA SRUN, "", "pmi", 2, 0}, /* srun --mpi=pmi2, or mpiexec over the nodes of an srun */
    {"PMI_FD=9 PMI_RANK=1 PMI_SIZE=4 " SRUN_PMIX, "slurm.pmix.3.0", "pmi", 4, 0},
    {SRUN "PMI_SIZE=4 PMIX_RANK=1 PMIX_NAMESPACE=slurm.pmix.3.0", "", NULL, 4, 0},
    {MPIRUN_4, "2139422721", "pmix", 2, 0},
    {MPIRUN_4_MPI, "2139422721", "pmix", 2, 0},
    {MPIRUN_5, "prterun-vm-5474@1", "pmix", 2, 0},
    {PRTERUN, "prterun-vm-5474@1", "pmix", 0, 0},
    /* Open MPI 4's ranks of a launcher that it does not know: their PMIx is gone. */
    {"OMPI_COMM_WORLD_SIZE=2 PRTE_LAUNCHED=1 " MPI_ALONE, "prterun-vm-5474@1", NULL, 2, 0},
    {"PRTE_LAUNCHED=1 " MPI_ALONE, "prterun-vm-5474@1", NULL, 0, 0},
    {"PRTE_LAUNCHED=1 " MPI_OVER, "prterun-vm-5474@1", NULL, 0, 0},
    /* Launchers upon each other: the inner one. */
    {HALAYRUN TORCHRUN, "", "tcp", 2, 0},
    {SRUN_PMIX TORCHRUN, "slurm.pmix.3.0", "tcp", 2, 0},
    {HALAYRUN MPIRUN_4, "2139422721", "pmix", 2, 0},
    {VARIABLES SRUN_PMIX, "slurm.pmix.3.0", "pmix", 2, 0},
    {"OMPI_MCA_orte_launch=1 OMPI_MCA_ess=singleton " SRUN_PMIX, "slurm.pmix.3.0", "pmix", 2, 0},
    {"SLURM_STEP_NUM_TASKS=2", "", NULL, 1, 0},
    {SRUN HALAYRUN, "", "meet", 2, 0},
    /* Another launcher's numbers under halayrun's driver: the smaller one is never taken. */
    {"WORLD_SIZE=4 RANK=3 " HALAYRUN, "", "meet", 2, 4},
    {"WORLD_SIZE=1 RANK=0 " HALAYRUN, "", "meet", 2, 0},
    {"HALAY_JOB=none " HALAYRUN HALAYRUN_PMIX TORCHRUN, "halayrun-1", NULL, 1, 0},
};

/* The first assignment of a name counts. */
struct given {
    const char *now, *began;
};

static const char *look(void *arg, const char *name, bool began)
{
    struct given *g = arg;
    const size_t length = strlen(name);
    if (began)
        return *g->began && !strcmp(name, "PMIX_NAMESPACE") ? g->began : NULL;
    for (const char *at = g->now; *at; at += strcspn(at, " "), at += strspn(at, " "))
        if (!strncmp(at, name, length) && at[length] == '=') {
            static char values[8][128]; /* more than are looked at together */
            static int next;
            char *value = values[next++ % 8];
            at += length + 1;
            snprintf(value, sizeof values[0], "%.*s", (int)strcspn(at, " "), at);
            return value;
        }
    return NULL;
}

static void check_row(size_t i)
{
    struct given given = {.now = rows[i].now, .began = rows[i].began};
    const struct hly_launcher found = hly_launcher_find(look, &given);
    const char *plugin = found.plugin ? found.plugin : "", *wanted = rows[i].plugin;
    CHECK(!strcmp(plugin, wanted ? wanted : ""), "row %zu: plug-in '%s', not '%s': %s", i, plugin,
          wanted ? wanted : "", rows[i].now);
    CHECK(found.nranks == rows[i].nranks, "row %zu: %d ranks, not %d: %s", i, found.nranks,
          rows[i].nranks, rows[i].now);
    CHECK(found.most == rows[i].most, "row %zu: %d elsewhere", i, found.most);
    CHECK(found.nranks == 1 || (found.launcher && found.remedy), "row %zu: nothing to say", i);
    CHECK(found.nranks == 1 || found.plugin || found.reason, "row %zu: no reason", i);
}

/* What is joined by PMIx has to be as large as what is announced. */
static void check_numbers(void)
{
    static const struct {
        const char *now;
        int nranks, most;
    } cases[] = {
        {SRUN_PMIX, 2, 0},
        {SRUN_PMIX, 1, 2},
        {MPIRUN_4, 1, 2},
        {"SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=3 " MPIRUN_4, 2, 0},
        {"SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=3 " PRTERUN, 2, 0},
        {"SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=3 PMIX_RANK=0 PMIX_NAMESPACE=x", 2, 3},
        {"SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=3 PMIX_RANK=0 PMIX_NAMESPACE=x", 4, 0},
        {"HALAY_JOB=launcher=halayrun;ranks=4 " MPIRUN_4, 2, 0},
        {"RANK=0 WORLD_SIZE=2 PMIX_RANK=0 PMIX_NAMESPACE=x", 1, 2},
        {"RANK=0 WORLD_SIZE=2 " SRUN_PMIX, 2, 0},
        {PRTERUN, 7, 0},
        {"PMIX_RANK=0 PMIX_NAMESPACE=x", 1, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct given given = {.now = cases[i].now, .began = ""};
        int most;
        const char *other = hly_launcher_denies(look, &given, cases[i].nranks, &most);
        CHECK(!other == !cases[i].most && (!other || most == cases[i].most),
              "case %zu: %s, %d instead of %d", i, other ? other : "nobody", most, cases[i].most);
    }
}

int main(void)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        check_row(i);
    check_numbers();
    return 0;
}
