/* SPDX-License-Identifier: Apache-2.0 */
/*
 * job.c - MPI_Init and MPI_Finalize, errors, and the names that nobody needs. MPI has one state a
 * process, so this has, too.
 */
#include "shim.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define FIRST_ERROR 1000           /* MPI's number of a code: this minus the code */
#define QUIET_NS    500000000ull   /* MPI_Finalize leaves when no call has begun for so long, */
#define BUSY_NS     60000000000ull /* and at the latest then */
#define LOOK_NS     5000000

static struct {
    pthread_mutex_t lock; /* of what follows; taken in the process of MPI_Init only */
    halay_context_t *context;
    pid_t process;
    unsigned life;
    bool finalized, alone;
    _Atomic unsigned begun, ended; /* calls of any thread */
    _Atomic bool closed;           /* partner of begun: a call counts itself, then looks here */
    struct comm world, self;
} job = {
    .lock = PTHREAD_MUTEX_INITIALIZER,
    .world = {.size = 1, .code = HALAY_ESTATE, .why = "MPI_Init was not called"},
    .self = {.size = 1, .code = HALAY_EUNSUPPORTED, .why = "MPI_COMM_SELF is not offered by Halay"},
};

static _Thread_local struct {
    int number;
    char text[1024];
} last;

/* ---------------------------------------------------------------- errors */

int fail(int code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(last.text, sizeof(last.text), format, args);
    va_end(args);
    return last.number = FIRST_ERROR - code;
}

int result(const struct comm *comm, int code)
{
    halay_verdict_t verdict = {.size = sizeof(verdict)};
    const bool known = code && !halay_comm_verdict(comm->halay, &verdict) && verdict.code == code;
    call_end();
    return code ? fail(code, "%s", known ? verdict.text : halay_strerror(code)) : MPI_SUCCESS;
}

int call_begin(const struct comm *comm)
{
    atomic_fetch_add(&job.begun, 1);
    const int rc = check(comm);
    if (rc)
        call_end();
    return rc;
}

void call_end(void)
{
    atomic_fetch_add(&job.ended, 1);
}

int check(const struct comm *comm)
{
    if (comm->code)
        return fail(comm->code, "%s", comm->why);
    if (is_over(comm))
        return fail(HALAY_ESTATE, "MPI was finalized");
    return MPI_SUCCESS;
}

int MPIABI_Error_string(int number, char *text, int *length)
{
    const int code = FIRST_ERROR - number;
    *length = snprintf(text, sizeof(last.text), "%s",
                       number == MPI_SUCCESS   ? "no error"
                       : number == last.number ? last.text
                       : number < FIRST_ERROR  ? "an error of MPI"
                                               : halay_strerror(code));
    return MPI_SUCCESS;
}

int MPIABI_Error_class(int number, int *class)
{
    *class = number == MPI_SUCCESS ? MPI_SUCCESS : MPI_ERR_OTHER;
    return MPI_SUCCESS;
}

/* ---------------------------------------------------------------- types and operations */

#define X(name, type) {"MPI_" #name, type},
static const struct {
    const char *name;
    halay_type_t type;
} datatypes[] = {MPI_DATATYPES(X)};
#undef X
#define X(name, op) {"MPI_" #name, op},
static const struct {
    const char *name;
    halay_op_t op;
} ops[] = {MPI_OPS(X)};
#undef X

#define X(name, type) DATATYPE_##name,
enum { MPI_DATATYPES(X) NDATATYPES };
#undef X
#define X(name, op) OP_##name,
enum { MPI_OPS(X) NOPS };
#undef X

int check_type(const char *function, int count, word datatype, halay_type_t *type)
{
    const word n = datatype - 1;
    if (count < 0)
        return fail(HALAY_EINVAL,
                    "%s of %d elements: MPI's counts have 31 bits, and this one may be larger than "
                    "2147483647: cut the array",
                    function, count);
    if (n >= NDATATYPES || datatypes[n].type == HALAY_TYPE_COUNT)
        return fail(HALAY_EUNSUPPORTED, "%s of %s is not offered by Halay", function,
                    n < NDATATYPES ? datatypes[n].name : "a type that is not MPI's");
    *type = datatypes[n].type;
    return MPI_SUCCESS;
}

int check_op(const char *function, word op, halay_op_t *found)
{
    const word n = op - 1;
    if (n >= NOPS || ops[n].op == HALAY_OP_COUNT)
        return fail(HALAY_EUNSUPPORTED, "%s with %s is not offered by Halay", function,
                    n < NOPS ? ops[n].name : "an operation that is not MPI's");
    *found = ops[n].op;
    return MPI_SUCCESS;
}

/* ---------------------------------------------------------------- life */

struct comm *comm_of(word handle)
{
    static struct comm none = {.size = 1,
                               .code = HALAY_EINVAL,
                               .why = "a call on MPI_COMM_NULL, or on one that was freed"};
    return handle == NONE    ? &none
           : handle == WORLD ? &job.world
           : handle == SELF  ? &job.self
                             : (struct comm *)handle; // NOLINT(performance-no-int-to-ptr)
}

bool is_forked(void)
{
    return job.process && job.process != getpid();
}

bool is_over(const struct comm *comm)
{
    return atomic_load(&job.closed) || !job.context || comm->life != job.life;
}

bool is_alone(void)
{
    return job.alone;
}

unsigned life_of_job(void)
{
    return job.life;
}

/* The world is a communicator of its own: the program may use the job's by another library. */
static int join(void)
{
    halay_topology_t topology = {.size = sizeof(topology)};
    halay_config_t config = HALAY_CONFIG_INIT;
    halay_comm_t *all;
    config.error = job.world.why;
    config.error_bytes = sizeof(job.world.why);
    int rc = halay_init_shared(&config, &job.context);
    if (rc)
        return rc;
    rc = halay_comm_world(job.context, &all);
    if (!rc)
        rc = halay_comm_dup(all, &job.world.halay);
    if (!rc)
        rc = halay_context_topology(job.context, &topology);
    if (!rc) {
        job.world.rank = topology.rank;
        job.world.size = topology.nranks;
        job.world.life = ++job.life;
        job.alone = !strcmp(topology.launcher, "alone");
        return HALAY_OK;
    }
    snprintf(job.world.why, sizeof(job.world.why), "%s", halay_strerror(rc));
    halay_finalize(job.context);
    job.context = NULL;
    return rc;
}

int MPIABI_Init_thread(int *argc, char ***argv, int required, int *provided)
{
    (void)argc, (void)argv, (void)required;
    if (is_forked())
        return check(&job.world);
    pthread_mutex_lock(&job.lock);
    job.process = getpid();
    job.finalized = false;
    atomic_store(&job.closed, false);
    job.world.code = job.context ? HALAY_OK : join();
    const int rc = job.world.code;
    pthread_mutex_unlock(&job.lock);
    if (provided)
        *provided = MPI_THREAD_MULTIPLE;
    return rc ? check(&job.world) : MPI_SUCCESS;
}

int MPIABI_Init(int *argc, char ***argv)
{
    return MPIABI_Init_thread(argc, argv, MPI_THREAD_SINGLE, NULL);
}

static uint64_t look(void)
{
    struct timespec now, pause = {.tv_nsec = LOOK_NS};
    nanosleep(&pause, NULL);
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Until no call is under way, nor will be: those that run end by their own deadlines. */
static void close_calls(void)
{
    const uint64_t start_ns = look();
    uint64_t since_ns = start_ns, now_ns = start_ns;
    for (unsigned seen = atomic_load(&job.begun);
         now_ns < since_ns + QUIET_NS && now_ns < start_ns + BUSY_NS; now_ns = look()) {
        const unsigned begun = atomic_load(&job.begun);
        if (begun != seen || begun != atomic_load(&job.ended))
            since_ns = now_ns;
        seen = begun;
    }
    atomic_store(&job.closed, true);
    while (atomic_load(&job.begun) != atomic_load(&job.ended))
        look();
}

/* JAX calls it while its threads may be at collectives of results that nobody has waited for: they
 * go on until they rest. */
int MPIABI_Finalize(void)
{
    int rc = HALAY_OK;
    if (is_forked())
        return MPI_SUCCESS; /* the parent's job goes on */
    pthread_mutex_lock(&job.lock);
    if (job.context) {
        close_calls();
        halay_comm_free(job.world.halay);
        rc = halay_finalize(job.context);
        job.context = NULL;
    }
    job.finalized = true;
    job.world.code = HALAY_ESTATE;
    snprintf(job.world.why, sizeof(job.world.why), "MPI was finalized");
    pthread_mutex_unlock(&job.lock);
    return rc ? fail(rc, "MPI_Finalize: %s", halay_strerror(rc)) : MPI_SUCCESS;
}

int MPIABI_Initialized(int *flag)
{
    *flag = job.life > 0;
    return MPI_SUCCESS;
}

int MPIABI_Finalized(int *flag)
{
    *flag = job.finalized;
    return MPI_SUCCESS;
}

int MPIABI_Abort(word comm, int status)
{
    fprintf(stderr, "MPI_Abort(%d) in rank %d\n", status, comm_of(comm)->rank);
    _exit(status);
}

/* Every thread may do what the first one may. */
int MPIABI_Is_thread_main(int *flag)
{
    *flag = 1;
    return MPI_SUCCESS;
}

int MPIABI_Query_thread(int *provided)
{
    *provided = MPI_THREAD_MULTIPLE;
    return MPI_SUCCESS;
}

int MPIABI_Get_version(int *version, int *subversion)
{
    *version = 3;
    *subversion = 1;
    return MPI_SUCCESS;
}

int MPIABI_Get_library_version(char *text, int *length)
{
    *length = snprintf(text, 256, "Halay %s, the part of MPI that JAX calls", halay_version());
    return MPI_SUCCESS;
}

double MPIABI_Wtime(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

double MPIABI_Wtick(void)
{
    return 1e-9;
}

/* ---------------------------------------------------------------- names */

const int mpiabi_version_major = 2, mpiabi_version_minor = 10, mpiabi_version_patch = 0;
const int mpiwrapper_version_major = HALAY_VERSION_MAJOR;
const int mpiwrapper_version_minor = HALAY_VERSION_MINOR;
const int mpiwrapper_version_patch = HALAY_VERSION_PATCH;

void mpiwrapper_export_fortran_constants_(void)
{
}

#define X(name, value) const int MPIABI_##name = (value);
MPI_INTS(X)
#undef X
#define X(name, value) const word MPIABI_##name = (value);
MPI_WORDS(X)
#undef X
#define X(name, type) const word MPIABI_##name = DATATYPE_##name + 1;
MPI_DATATYPES(X)
#undef X
#define X(name, op) const word MPIABI_##name = OP_##name + 1;
MPI_OPS(X)
#undef X

static intptr_t refuse(const char *name)
{
    fprintf(stderr,
            "halay: %s was called, which libhalay_mpi does not offer: it has the part of MPI that "
            "JAX calls\n",
            name);
    return fail(HALAY_EUNSUPPORTED, "%s is not offered by libhalay_mpi", name);
}

/* Whatever its parameters are: they are not looked at. */
#define X(name)                                                                                    \
    intptr_t MPIABI_##name(void)                                                                   \
    {                                                                                              \
        return refuse("MPI_" #name);                                                               \
    }
MPI_REFUSED(X)
#undef X
#define X(name)                                                                                    \
    int MPIXABI_##name(void)                                                                       \
    {                                                                                              \
        return 0;                                                                                  \
    }
MPIX_NO(X)
#undef X
