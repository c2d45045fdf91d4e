/* SPDX-License-Identifier: Apache-2.0 */
/*
 * comm_threads.c - threads that use communicators of their own at the same time: collectives,
 * duplicates, splits, groups and attributes. A program of MPI: any library can run it.
 */
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>

enum { THREADS = 4, ROUNDS = 200 };
static int rank, size, failures[THREADS];
static MPI_Comm comms[THREADS];

static int copy_fn(MPI_Comm comm, int keyval, void *extra, void *in, void *out, int *flag)
{
    (void)comm, (void)keyval, (void)extra;
    *(void **)out = in;
    *flag = 1;
    return MPI_SUCCESS;
}

static void *work(void *arg)
{
    const int t = (int)(size_t)arg;
    int *bad = &failures[t];
    for (int i = 0; i < ROUNDS; i++) {
        MPI_Comm dup, part;
        MPI_Request request;
        MPI_Group group;
        int key, flag, in = rank + t + i, sum = -1, n;
        void *value = NULL;
        *bad += MPI_Comm_create_keyval(copy_fn, MPI_COMM_NULL_DELETE_FN, &key, NULL);
        *bad += MPI_Comm_set_attr(comms[t], key, &in);
        *bad += MPI_Comm_dup(comms[t], &dup);
        *bad += MPI_Comm_get_attr(dup, key, &value, &flag);
        *bad += !flag || value != &in;
        *bad += MPI_Comm_delete_attr(comms[t], key);
        *bad += MPI_Comm_free_keyval(&key);
        *bad += MPI_Iallreduce(&in, &sum, 1, MPI_INT, MPI_SUM, dup, &request);
        *bad += MPI_Comm_free(&dup); /* the request keeps it */
        *bad += MPI_Wait(&request, MPI_STATUS_IGNORE);
        *bad += sum != size * (size - 1) / 2 + size * (t + i);
        *bad += MPI_Comm_split(comms[t], (rank + i) % 2, 0, &part);
        *bad += MPI_Comm_group(part, &group);
        *bad += MPI_Group_size(group, &n);
        *bad += MPI_Group_free(&group);
        *bad += MPI_Allreduce(&in, &sum, 1, MPI_INT, MPI_MAX, part);
        *bad += sum < in;
        *bad += MPI_Comm_free(&part);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t threads[THREADS];
    int provided, mine = 0, all;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (provided != MPI_THREAD_MULTIPLE)
        mine++;
    for (int t = 0; t < THREADS; t++)
        MPI_Comm_dup(MPI_COMM_WORLD, &comms[t]);
    for (int t = 0; t < THREADS; t++)
        pthread_create(&threads[t], NULL, work, (void *)(size_t)t);
    for (int t = 0; t < THREADS; t++) {
        pthread_join(threads[t], NULL);
        mine += failures[t];
        MPI_Comm_free(&comms[t]);
    }
    MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0)
        printf("threads: %d failures on all ranks\n", all);
    MPI_Finalize();
    return all != 0;
}
