/* SPDX-License-Identifier: Apache-2.0 */
/*
 * comms.c - MPI_Comm_split, as JAX's CPU client calls it.
 *
 * JAX makes a communicator of each set of devices when it is first used, in whichever thread that
 * is. colour is the set's first device, key this process's place in it. The sets of one computation
 * are of one size, and have the keys 0, 1, 2 ...: where that is not so the processes are not at the
 * same computation, and would take each other's numbers. JAX does not look at what MPI_Comm_split
 * returns: what has failed is a communicator on which each call fails, with the same text.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shim.h"

static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;

struct member {
    int32_t colour, key, rank;
};

static int compare(const void *a, const void *b)
{
    const struct member *x = a, *y = b;
    return x->colour != y->colour ? (x->colour < y->colour ? -1 : 1)
           : x->key != y->key     ? (x->key < y->key ? -1 : 1)
                                  : x->rank - y->rank;
}

/* Is each colour a whole set, and are all of one size? If not the text says why not, the same on
 * all ranks. */
static int look_at_sets(struct member all[], int n, char *why, size_t bytes)
{
    int size = 0, place = 0; /* of the first set; in this one */
    qsort(all, (size_t)n, sizeof(*all), compare);
    for (int i = 0; i < n; i++) {
        const bool last = i == n - 1 || all[i + 1].colour != all[i].colour;
        if (all[i].colour < 0)
            continue;
        const bool fits = all[i].key == place++;
        if (last && !size)
            size = place;
        if (fits && (!last || place == size)) {
            place = last ? 0 : place;
            continue;
        }
        snprintf(why, bytes,
                 "the processes are at different sets of devices: process %d is at number %d of "
                 "the set of device %d, and the others do not make that set whole. All processes "
                 "must run the same computations in the same order, each with one device "
                 "(jax_num_cpu_devices 1)",
                 all[i].rank, all[i].key, all[i].colour);
        return HALAY_EMISMATCH;
    }
    return HALAY_OK;
}

static int failed(struct comm *made, int code, const char *why)
{
    made->code = code;
    snprintf(made->why, sizeof(made->why), "%s", why);
    return fail(code, "%s", why);
}

static int split(const struct comm *parent, int colour, int key, struct comm *made)
{
    const struct member mine = {colour < 0 ? -1 : colour, key, parent->rank};
    struct member *all = calloc((size_t)parent->size, sizeof(*all));
    halay_verdict_t verdict = {.size = sizeof(verdict)};
    char why[512] = "";
    int rc = all ? halay_allgather(&mine, all, 3, HALAY_INT32, parent->halay) : HALAY_ENOMEM;
    if (!rc && is_alone()) {
        snprintf(
            why, sizeof(why),
            "no launcher has told Halay of other processes, and JAX may have some: start all "
            "of them by halayrun, srun --mpi=pmix or mpirun (one process, too: halayrun -np 1)");
        rc = HALAY_EBOOT;
    }
    if (!rc)
        rc = look_at_sets(all, parent->size, why, sizeof(why));
    if (!rc)
        rc = halay_comm_split(parent->halay, mine.colour, key, &made->halay);
    free(all);
    if (rc && !why[0] && !halay_comm_verdict(parent->halay, &verdict) && verdict.code == rc)
        snprintf(why, sizeof(why), "%s", verdict.text);
    if (rc)
        return failed(made, rc, why[0] ? why : halay_strerror(rc));
    if (!made->halay)
        return MPI_SUCCESS;
    halay_comm_rank(made->halay, &made->rank);
    halay_comm_size(made->halay, &made->size);
    return MPI_SUCCESS;
}

int MPIABI_Comm_split(word handle, int colour, int key, word *out)
{
    const struct comm *parent = comm_of(handle);
    struct comm *made = malloc(sizeof(*made));
    *out = NONE;
    if (!made)
        return fail(HALAY_ENOMEM, "MPI_Comm_split: no memory");
    *made = (struct comm){.rank = parent->rank, .size = parent->size, .life = life_of_job()};
    *out = (word)made;
    if (call_begin(parent))
        return failed(made, parent->code ? parent->code : HALAY_ESTATE,
                      parent->code ? parent->why : "MPI was finalized, or this is a forked child");
    pthread_mutex_lock(&one_at_a_time);
    const int rc = split(parent, colour, key, made);
    pthread_mutex_unlock(&one_at_a_time);
    call_end();
    if (!rc && !made->halay) { /* colour MPI_UNDEFINED */
        *out = NONE;
        free(made);
    }
    return rc;
}

int MPIABI_Comm_free(word *handle)
{
    struct comm *comm = comm_of(*handle);
    if (*handle == NONE || *handle == WORLD || *handle == SELF)
        return fail(HALAY_EINVAL, "MPI_Comm_free: not a communicator of the program's");
    int rc = HALAY_OK;
    if (comm->halay && !is_forked() && !call_begin(comm)) {
        rc = halay_comm_free(comm->halay);
        call_end();
    }
    if (rc)
        return fail(rc, "MPI_Comm_free: %s", halay_strerror(rc));
    free(comm);
    *handle = NONE;
    return MPI_SUCCESS;
}

int MPIABI_Comm_rank(word handle, int *rank)
{
    const struct comm *comm = comm_of(handle);
    *rank = comm->rank;
    return check(comm);
}

int MPIABI_Comm_size(word handle, int *size)
{
    const struct comm *comm = comm_of(handle);
    *size = comm->size;
    return check(comm);
}
