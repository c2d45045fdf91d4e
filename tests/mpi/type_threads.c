/* SPDX-License-Identifier: Apache-2.0 */
/*
 * type_threads.c - threads that make, use and free datatypes and operations at the same time: of
 * their own, and of one type that all share. For a sanitizer of threads, above all.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../bindings/mpi/type.h"

#define THREADS 4
#define ROUNDS  2000

static struct hly_mpi_type *shared;
static int failures;

static void add(const void *in, void *inout, int64_t count, const struct hly_mpi_type *type)
{
    (void)in, (void)inout, (void)count, (void)type;
}

static void check(bool right, const char *what)
{
    if (!right && !__atomic_fetch_add(&failures, 1, __ATOMIC_RELAXED))
        printf("%s\n", what);
}

static void *work(void *arg)
{
    int me = (int)(intptr_t)arg, ni, na, nd, combiner, numbers[4];
    int64_t none[1];
    for (int i = 0; i < ROUNDS; i++) {
        struct hly_mpi_type *t, *u, *f, *inner[1];
        struct hly_mpi_op *op;
        halay_op_t found;
        halay_type_t as;
        int64_t each;
        int data[12], packed[6];
        for (int k = 0; k < 12; k++)
            data[k] = me * 100 + k;
        check(!hly_mpi_type_vector(3, 1, 2, shared, &t), "vector");
        check(!hly_mpi_type_dup(t, &u), "dup");
        hly_mpi_type_free(&t);
        hly_mpi_type_commit(&u);
        hly_mpi_pack_range(data, 1, u, 0, u->size, packed);
        check(packed[0] == data[0] && packed[5] == data[9], "packed data");
        check(!hly_mpi_type_get_envelope(u, &ni, &na, &nd, &combiner) && nd == 1, "envelope");
        check(!hly_mpi_type_get_contents(u, 4, 1, 1, numbers, none, inner), "contents");
        check(!hly_mpi_type_create_f90_real(6 + (i + me) % 9, MPI_UNDEFINED, &f), "f90");
        check(!hly_mpi_op_create((hly_mpi_fn *)(void (*)(void))add, me % 2, &op), "op_create");
        check(!hly_mpi_op_find("test", op, u, &found, &as, &each) && each == u->size, "op_find");
        hly_mpi_op_free(&op); /* while a call uses it */
        hly_mpi_type_free(&u);
        hly_mpi_op_done(found);
        hly_mpi_type_free(&inner[0]);
    }
    return NULL;
}

int main(void)
{
    pthread_t threads[THREADS];
    if (hly_mpi_types_open() || hly_mpi_ops_open() || halay_init(NULL, &hly_mpi_job.context))
        return 1;
    hly_mpi_type_contiguous(2, hly_mpi_predefined(HLY_MPI_TYPE, 0x209), &shared);
    for (intptr_t i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, work, (void *)i);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    check(shared->head.refs == 1, "references are left");
    hly_mpi_type_free(&shared);
    hly_mpi_ops_leave();
    halay_finalize(hly_mpi_job.context);
    printf("%d failures\n", failures);
    return failures != 0;
}
