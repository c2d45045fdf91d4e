/* SPDX-License-Identifier: Apache-2.0 */
/*
 * window_errors.c - what one-sided communication refuses: calls without an epoch, or in the wrong
 * one, memory that is not in the window, types and operations that do not go together. After each
 * error the window still works.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, size, failures;

static void expect_at(int line, int code, int wanted, const char *what)
{
    int class = MPI_SUCCESS, length;
    char text[MPI_MAX_ERROR_STRING] = "";
    MPI_Error_class(code, &class);
    if (class == wanted)
        return;
    MPI_Error_string(code, text, &length);
    printf("rank %d of %d: line %d: %s: class %d, not %d: %s\n", rank, size, line, what, class,
           wanted, text);
    failures++;
}
#define EXPECT(wanted, call) expect_at(__LINE__, (call), wanted, #call)
#define MUST(call)           EXPECT(MPI_SUCCESS, call)

/* Does the text of the last error name what is at fault? */
static void says_at(int line, int code, const char *wanted)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length;
    MPI_Error_string(code, text, &length);
    if (strstr(text, wanted))
        return;
    printf("rank %d: line %d: \"%s\" is not in \"%s\"\n", rank, line, wanted, text);
    failures++;
}

static void outside_of_epochs(MPI_Win win)
{
    int word = 1, flag;
    MPI_Request request;
    EXPECT(MPI_ERR_RMA_SYNC, MPI_Put(&word, 1, MPI_INT, 0, 0, 1, MPI_INT, win));
    EXPECT(MPI_ERR_RMA_SYNC, MPI_Get(&word, 1, MPI_INT, 0, 0, 1, MPI_INT, win));
    EXPECT(MPI_ERR_RMA_SYNC, MPI_Accumulate(&word, 1, MPI_INT, 0, 0, 1, MPI_INT, MPI_SUM, win));
    EXPECT(MPI_ERR_RMA_SYNC, MPI_Fetch_and_op(&word, &word, MPI_INT, 0, 0, MPI_SUM, win));
    EXPECT(MPI_ERR_RMA_SYNC, MPI_Rput(&word, 1, MPI_INT, 0, 0, 1, MPI_INT, win, &request));
    EXPECT(MPI_ERR_RMA_SYNC, MPI_Win_unlock(0, win));
    EXPECT(MPI_ERR_RMA_SYNC, MPI_Win_unlock_all(win));
    EXPECT(MPI_ERR_RMA_SYNC, MPI_Win_complete(win));
    EXPECT(MPI_ERR_RMA_SYNC, MPI_Win_wait(win));
    EXPECT(MPI_ERR_RMA_SYNC, MPI_Win_test(win, &flag));
    EXPECT(MPI_ERR_RMA_SYNC, MPI_Win_flush(0, win));
    EXPECT(MPI_ERR_RMA_SYNC, MPI_Win_flush_local_all(win));
}

static void wrong_epochs(MPI_Win win)
{
    int word = 1;
    MPI_Group self, world;
    const int other = (rank + 1) % size;
    MPI_Comm_group(MPI_COMM_SELF, &self);
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MUST(MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, win));
    EXPECT(MPI_ERR_RMA_SYNC, MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, win));
    EXPECT(MPI_ERR_RMA_SYNC, MPI_Win_lock_all(0, win));
    EXPECT(MPI_ERR_RMA_SYNC, MPI_Win_fence(0, win));
    EXPECT(MPI_ERR_RMA_SYNC, MPI_Win_start(self, 0, win));
    EXPECT(MPI_ERR_RMA_SYNC, MPI_Win_free(&win));
    if (other != rank)
        EXPECT(MPI_ERR_RMA_SYNC, MPI_Put(&word, 1, MPI_INT, other, 0, 1, MPI_INT, win));
    MUST(MPI_Win_unlock(rank, win));
    EXPECT(MPI_ERR_LOCKTYPE, MPI_Win_lock(-17, rank, 0, win));
    EXPECT(MPI_ERR_RANK, MPI_Win_lock(MPI_LOCK_SHARED, size, 0, win));
    EXPECT(MPI_ERR_ASSERT, MPI_Win_lock(MPI_LOCK_SHARED, rank, 1 << 30, win));
    MUST(MPI_Win_post(self, 0, win));
    EXPECT(MPI_ERR_RMA_SYNC, MPI_Win_post(self, 0, win));
    EXPECT(MPI_ERR_RMA_SYNC, MPI_Win_free(&win));
    MUST(MPI_Win_start(self, 0, win));
    MUST(MPI_Put(&word, 1, MPI_INT, rank, 0, 1, MPI_INT, win));
    if (other != rank)
        EXPECT(MPI_ERR_RMA_SYNC, MPI_Put(&word, 1, MPI_INT, other, 0, 1, MPI_INT, win));
    MUST(MPI_Win_complete(win));
    MUST(MPI_Win_wait(win));
    /* After a fence a lock may come, if no operation was made. */
    MUST(MPI_Win_fence(0, win));
    MUST(MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, win));
    MUST(MPI_Win_unlock(rank, win));
    MUST(MPI_Win_fence(0, win));
    MUST(MPI_Put(&word, 1, MPI_INT, rank, 0, 1, MPI_INT, win));
    EXPECT(MPI_ERR_RMA_SYNC, MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, win));
    MUST(MPI_Win_fence(MPI_MODE_NOSUCCEED, win));
    MPI_Group_free(&self);
    MPI_Group_free(&world);
}

static void no_operation(void *in, void *inout, int *n, MPI_Datatype *type)
{
    (void)in, (void)inout, (void)n, (void)type;
}

static void wrong_arguments(MPI_Win win, int target)
{
    int words[4] = {1, 2, 3, 4};
    double number = 1;
    MPI_Datatype mixed, open, types[] = {MPI_INT, MPI_DOUBLE};
    MPI_Op mine;
    MPI_Request request;
    const int lengths[] = {1, 1};
    const MPI_Aint places[] = {0, 8};
    MPI_Type_create_struct(2, lengths, places, types, &mixed);
    MPI_Type_commit(&mixed);
    MPI_Type_contiguous(2, MPI_INT, &open);
    MPI_Op_create(no_operation, 1, &mine);
    MUST(MPI_Win_lock_all(0, win));
    int code = MPI_Put(words, 4, MPI_INT, target, 13, 4, MPI_INT, win); /* of 16 words */
    EXPECT(MPI_ERR_RMA_RANGE, code);
    says_at(__LINE__, code, "displacement 13");
    says_at(__LINE__, code, "64 bytes");
    EXPECT(MPI_ERR_RMA_RANGE, MPI_Get(words, 1, MPI_INT, target, -1, 1, MPI_INT, win));
    EXPECT(MPI_ERR_RMA_RANGE,
           MPI_Get(words, 1, MPI_INT, target, (MPI_Aint)1 << 62, 1, MPI_INT, win));
    EXPECT(MPI_ERR_RANK, MPI_Put(words, 1, MPI_INT, size, 0, 1, MPI_INT, win));
    EXPECT(MPI_ERR_COUNT, MPI_Put(words, -1, MPI_INT, target, 0, 1, MPI_INT, win));
    EXPECT(MPI_ERR_COUNT, MPI_Put(words, 1, MPI_INT, target, 0, -1, MPI_INT, win));
    EXPECT(MPI_ERR_TYPE, MPI_Put(words, 1, MPI_DATATYPE_NULL, target, 0, 1, MPI_INT, win));
    EXPECT(MPI_ERR_TYPE, MPI_Put(words, 1, open, target, 0, 2, MPI_INT, win));
    EXPECT(MPI_ERR_TYPE, MPI_Put(words, 2, MPI_INT, target, 0, 1, open, win));
    EXPECT(MPI_ERR_BUFFER, MPI_Put(NULL, 1, MPI_INT, target, 0, 1, MPI_INT, win));
    EXPECT(MPI_ERR_TRUNCATE, MPI_Put(words, 2, MPI_INT, target, 0, 1, MPI_INT, win));
    EXPECT(MPI_ERR_TRUNCATE, MPI_Get(words, 1, MPI_INT, target, 0, 2, MPI_INT, win));
    EXPECT(MPI_ERR_OP, MPI_Accumulate(words, 1, MPI_INT, target, 0, 1, MPI_INT, mine, win));
    EXPECT(MPI_ERR_OP,
           MPI_Accumulate(&number, 1, MPI_DOUBLE, target, 0, 1, MPI_DOUBLE, MPI_BAND, win));
    EXPECT(MPI_ERR_TYPE, MPI_Accumulate(words, 1, mixed, target, 0, 1, mixed, MPI_SUM, win));
    EXPECT(MPI_ERR_TYPE, MPI_Accumulate(words, 1, MPI_INT, target, 0, 1, MPI_FLOAT, MPI_SUM, win));
    EXPECT(MPI_ERR_TYPE,
           MPI_Compare_and_swap(&number, &number, &number, MPI_DOUBLE, target, 0, win));
    EXPECT(MPI_ERR_TYPE, MPI_Fetch_and_op(words, words, mixed, target, 0, MPI_SUM, win));
    /* What is not there. */
    MUST(MPI_Put(words, 1, MPI_INT, MPI_PROC_NULL, 99, 1, MPI_INT, win));
    MUST(MPI_Rget(words, 1, MPI_INT, MPI_PROC_NULL, 99, 1, MPI_INT, win, &request));
    MUST(MPI_Wait(&request, MPI_STATUS_IGNORE));
    MUST(MPI_Put(NULL, 0, MPI_INT, target, 16, 0, MPI_INT, win));
    MUST(MPI_Win_unlock_all(win));
    MPI_Type_free(&mixed);
    MPI_Type_free(&open);
    MPI_Op_free(&mine);
}

/* Only the target knows what is attached. */
static void detached(void)
{
    static int memory[1024];
    MPI_Win win;
    MPI_Aint at, *all = malloc((size_t)size * sizeof(*all));
    int word = 7, got = 0;
    const int both[2] = {8, 9};
    MPI_Request request;
    const int other = (rank + 1) % size;
    MUST(MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &win));
    MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
    MUST(MPI_Win_attach(win, memory + 256, 256 * sizeof(int)));
    MUST(MPI_Win_attach(win, memory, 256 * sizeof(int)));
    EXPECT(MPI_ERR_RMA_ATTACH, MPI_Win_attach(win, memory + 100, sizeof(int)));
    MPI_Get_address(memory, &at);
    MPI_Allgather(&at, 1, MPI_AINT, all, 1, MPI_AINT, MPI_COMM_WORLD);
    MUST(MPI_Win_lock_all(0, win));
    const MPI_Aint outside = MPI_Aint_add(all[other], 512 * (MPI_Aint)sizeof(int));
    if (other == rank) {
        EXPECT(MPI_ERR_RMA_RANGE, MPI_Put(&word, 1, MPI_INT, other, outside, 1, MPI_INT, win));
    } else {
        MUST(MPI_Put(&word, 1, MPI_INT, other, outside, 1, MPI_INT, win));
        EXPECT(MPI_ERR_RMA_RANGE, MPI_Win_flush(other, win));
        MUST(MPI_Win_flush(other, win));
        MUST(MPI_Rget(&got, 1, MPI_INT, other, outside, 1, MPI_INT, win, &request));
        EXPECT(MPI_ERR_RMA_RANGE, MPI_Wait(&request, MPI_STATUS_IGNORE));
        MUST(MPI_Win_flush(other, win));
        MUST(MPI_Get(&got, 1, MPI_INT, other, outside, 1, MPI_INT, win));
        EXPECT(MPI_ERR_RMA_RANGE, MPI_Win_flush(other, win));
    }
    MUST(MPI_Put(&word, 1, MPI_INT, other, all[other], 1, MPI_INT, win));
    /* Over the end of one region into the next. */
    MUST(MPI_Put(both, 2, MPI_INT, other, MPI_Aint_add(all[other], 255 * (MPI_Aint)sizeof(int)), 2,
                 MPI_INT, win));
    MUST(MPI_Win_unlock_all(win));
    MPI_Barrier(MPI_COMM_WORLD);
    if (memory[0] != 7 || memory[255] != 8 || memory[256] != 9 || memory[512]) {
        printf("rank %d: the memory has %d and %d\n", rank, memory[0], memory[512]);
        failures++;
    }
    EXPECT(MPI_ERR_RMA_ATTACH, MPI_Win_detach(win, memory + 1));
    MUST(MPI_Win_detach(win, memory));
    EXPECT(MPI_ERR_RMA_ATTACH, MPI_Win_detach(win, memory));
    MUST(MPI_Win_detach(win, memory + 256));
    MUST(MPI_Win_free(&win));
    free(all);
}

int main(int argc, char **argv)
{
    static int memory[16];
    MPI_Win win, none;
    int *base;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    EXPECT(MPI_ERR_WIN, MPI_Win_fence(0, MPI_WIN_NULL));
    EXPECT(MPI_ERR_SIZE, MPI_Win_create(memory, -1, 4, MPI_INFO_NULL, MPI_COMM_WORLD, &none));
    /* One rank's wrong argument is all ranks' error. */
    EXPECT(MPI_ERR_DISP, MPI_Win_create(memory, 4, rank == size - 1 ? 0 : 4, MPI_INFO_NULL,
                                        MPI_COMM_WORLD, &none));
    MUST(MPI_Win_create(memory, sizeof(memory), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &win));
    MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
    outside_of_epochs(win);
    wrong_epochs(win);
    wrong_arguments(win, (rank + 1) % size);
    wrong_arguments(win, rank);
    EXPECT(MPI_ERR_RMA_FLAVOR, MPI_Win_attach(win, memory, 4));
    MUST(MPI_Win_free(&win));
    EXPECT(MPI_ERR_WIN, MPI_Win_free(&win));
    MUST(MPI_Win_allocate(64, 4, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win));
    MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
    outside_of_epochs(win);
    wrong_epochs(win);
    wrong_arguments(win, (rank + 1) % size);
    MUST(MPI_Win_free(&win));
    detached();
    MPI_Finalize();
    return failures != 0;
}
