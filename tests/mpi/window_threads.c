/* SPDX-License-Identifier: Apache-2.0 */
/*
 * window_threads.c - threads of each rank use one window at once, and a window of their own: sums
 * have to be exact, and what a thread has put and flushed has to be there. window_threads [TIMES].
 */
#include <mpi.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define THREADS 3
#define BLOCK   3000 /* words: above what goes out with its order */

static int rank, size, failures, times = 300;
static MPI_Win win;
static int64_t *memory;
static MPI_Comm comms[THREADS];

static void wrong(const char *what, int thread, long long is, long long wanted)
{
    fprintf(stderr, "rank %d, thread %d: %s is %lld, not %lld\n", rank, thread, what, is, wanted);
    __atomic_add_fetch(&failures, 1, __ATOMIC_RELAXED);
}

/* Words of a rank's memory: a counter, then a block for each thread of each rank. */
static MPI_Aint block(int r, int thread)
{
    return 8 + ((MPI_Aint)r * THREADS + thread) * BLOCK;
}

static void use_common(int thread)
{
    const int64_t one = 1;
    const int other = (rank + 1) % size; /* of all threads, so that their orders meet */
    int64_t old, *out = malloc(BLOCK * sizeof(*out)), *in = malloc(BLOCK * sizeof(*in));
    for (int i = 0; i < times; i++) {
        const int n = i % 3 ? 1 + i % 7 : BLOCK;
        MPI_Request request;
        MPI_Accumulate(&one, 1, MPI_INT64_T, other, 0, 1, MPI_INT64_T, MPI_SUM, win);
        MPI_Fetch_and_op(&one, &old, MPI_INT64_T, 0, 1, MPI_SUM, win);
        for (int j = 0; j < n; j++)
            out[j] = (int64_t)rank * 1000000 + thread * 100000 + i + j;
        MPI_Put(out, n, MPI_INT64_T, other, block(rank, thread), n, MPI_INT64_T, win);
        MPI_Win_flush(other, win);
        MPI_Win_flush_local(0, win);
        memset(in, 0, BLOCK * sizeof(*in));
        MPI_Rget(in, n, MPI_INT64_T, other, block(rank, thread), n, MPI_INT64_T, win, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        if (memcmp(in, out, (size_t)n * sizeof(*in)))
            wrong("what was put, in its first word,", thread, in[0], out[0]);
    }
    free(out);
    free(in);
}

/* Windows come and go while others are in use. */
static void use_own(int thread)
{
    for (int i = 0; i < 5; i++) {
        int64_t *words, got = 0;
        const int64_t mine = rank * 10 + i;
        MPI_Win own;
        MPI_Win_allocate(2 * sizeof(*words), sizeof(*words), MPI_INFO_NULL, comms[thread], &words,
                         &own);
        MPI_Win_fence(0, own);
        MPI_Put(&mine, 1, MPI_INT64_T, (rank + 1) % size, 1, 1, MPI_INT64_T, own);
        MPI_Win_fence(0, own);
        MPI_Get(&got, 1, MPI_INT64_T, rank, 1, 1, MPI_INT64_T, own);
        MPI_Win_fence(MPI_MODE_NOSUCCEED, own);
        if (got != (rank + size - 1) % size * 10 + i)
            wrong("a word of its own window", thread, got, (rank + size - 1) % size * 10 + i);
        MPI_Win_free(&own);
    }
}

static void *body(void *arg)
{
    const int thread = (int)(intptr_t)arg;
    use_common(thread);
    use_own(thread);
    use_common(thread);
    return NULL;
}

static void run(void)
{
    pthread_t threads[THREADS];
    MPI_Win_lock_all(0, win);
    for (int t = 0; t < THREADS; t++)
        pthread_create(&threads[t], NULL, body, (void *)(intptr_t)t);
    for (int t = 0; t < THREADS; t++)
        pthread_join(threads[t], NULL);
    MPI_Win_unlock_all(win);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, win);
    /* Each thread of each rank has added 2 times to one rank. */
    const int adders = THREADS;
    if (memory[0] != (int64_t)adders * 2 * times)
        wrong("the sum", -1, memory[0], (long long)adders * 2 * times);
    if (!rank && memory[1] != (int64_t)size * THREADS * 2 * times)
        wrong("the common sum", -1, memory[1], (long long)size * THREADS * 2 * times);
    MPI_Win_unlock(rank, win);
}

int main(int argc, char **argv)
{
    int provided;
    if (argc > 1)
        times = atoi(argv[1]);
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int t = 0; t < THREADS; t++)
        MPI_Comm_dup(MPI_COMM_WORLD, &comms[t]);
    const MPI_Aint bytes = block(size, 0) * (MPI_Aint)sizeof(*memory);
    memory = calloc(1, (size_t)bytes);
    MPI_Win_create(memory, bytes, sizeof(*memory), MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    run();
    MPI_Win_free(&win);
    free(memory);
    MPI_Win_allocate(bytes, sizeof(*memory), MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
    run();
    MPI_Win_free(&win);
    for (int t = 0; t < THREADS; t++)
        MPI_Comm_free(&comms[t]);
    MPI_Finalize();
    return failures != 0;
}
