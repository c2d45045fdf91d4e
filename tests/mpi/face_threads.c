/* SPDX-License-Identifier: Apache-2.0 */
/* face_threads.c - threads that make, use and free objects at once: every handle finds its own
 * object, and none that was freed. Prints what is wrong, and exits with 1. */
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 4, TURNS = 2000, KEPT = 40 };
static int wrong;
#define CHECK(what)                                                                                \
    do {                                                                                           \
        if (!(what)) {                                                                             \
            printf("face_threads.c:%d: %s\n", __LINE__, #what);                                    \
            __atomic_fetch_add(&wrong, 1, __ATOMIC_RELAXED);                                       \
        }                                                                                          \
    } while (0)

static void *work(void *arg)
{
    MPI_Info kept[KEPT], old;
    char key[16], value[32];
    int flag, n, class;
    for (int i = 0; i < KEPT; i++)
        kept[i] = MPI_INFO_NULL;
    snprintf(key, sizeof key, "thread %d", *(int *)arg);
    for (int turn = 0; turn < TURNS; turn++) {
        MPI_Info *info = &kept[turn % KEPT];
        if (*info != MPI_INFO_NULL) {
            snprintf(value, sizeof value, "?");
            CHECK(MPI_Info_get(*info, key, sizeof value - 1, value, &flag) == MPI_SUCCESS);
            CHECK(flag && strtol(value, NULL, 10) == turn - KEPT);
            old = *info;
            CHECK(MPI_Info_free(info) == MPI_SUCCESS);
            MPI_Error_class(MPI_Info_get_nkeys(old, &n), &class);
            CHECK(class == MPI_ERR_INFO);
        }
        CHECK(MPI_Info_create(info) == MPI_SUCCESS);
        snprintf(value, sizeof value, "%d", turn);
        CHECK(MPI_Info_set(*info, key, value) == MPI_SUCCESS);
    }
    for (int i = 0; i < KEPT; i++)
        CHECK(MPI_Info_free(&kept[i]) == MPI_SUCCESS);
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t threads[THREADS];
    int numbers[THREADS], level = 0;
    CHECK(MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level) == MPI_SUCCESS);
    CHECK(level == MPI_THREAD_MULTIPLE);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    for (int i = 0; i < THREADS; i++) {
        numbers[i] = i;
        CHECK(pthread_create(&threads[i], NULL, work, &numbers[i]) == 0);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    CHECK(MPI_Finalize() == MPI_SUCCESS);
    return wrong != 0;
}
