/* SPDX-License-Identifier: Apache-2.0 */
/*
 * messages.c - messages between any number of ranks, in all modes: tags, wildcards, probes,
 * cancelled and persistent requests, derived types, errors. Each result is compared with what a
 * serial program would give. It is a plain program of MPI, for any library.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N 2000

static int rank, nranks, failures;

static void check_at(int line, int good, const char *what)
{
    if (good)
        return;
    printf("rank %d of %d: messages.c:%d: %s\n", rank, nranks, line, what);
    failures++;
}
#define CHECK(condition) check_at(__LINE__, (condition), #condition)
#define MUST(call)       check_at(__LINE__, (call) == MPI_SUCCESS, #call)

static int right(void)
{
    return (rank + 1) % nranks;
}

static int left(void)
{
    return (rank + nranks - 1) % nranks;
}

/* Element i of a message: of its sender, its tag and its place. */
static int value(int from, int tag, int i)
{
    return from * 1000003 + tag * 1009 + i;
}

static void fill(int *at, int n, int tag)
{
    for (int i = 0; i < n; i++)
        at[i] = value(rank, tag, i);
}

static void expect_at(int line, const int *at, int n, int from, int tag)
{
    for (int i = 0; i < n; i++) {
        if (at[i] == value(from, tag, i))
            continue;
        printf("rank %d of %d: messages.c:%d: element %d is %d, not %d\n", rank, nranks, line, i,
               at[i], value(from, tag, i));
        failures++;
        return;
    }
}
#define EXPECT(at, n, from, tag) expect_at(__LINE__, at, n, from, tag)

static void expect_status_at(int line, const MPI_Status *status, int from, int tag, int n)
{
    int count = -1;
    MPI_Get_count(status, MPI_INT, &count);
    if (status->MPI_SOURCE == from && status->MPI_TAG == tag && count == n)
        return;
    printf("rank %d of %d: messages.c:%d: the status has source %d, tag %d, count %d; not %d, %d, "
           "%d\n",
           rank, nranks, line, status->MPI_SOURCE, status->MPI_TAG, count, from, tag, n);
    failures++;
}
#define EXPECT_STATUS(status, from, tag, n) expect_status_at(__LINE__, status, from, tag, n)

/* ---------------------------------------------------------------- modes, sizes, order */

static void test_modes(void)
{
    static const int sizes[] = {0, 1, 17, 1000, 20000, 300000};
    for (int mode = 0; mode < 4; mode++) {
        for (int s = 0; s < 6; s++) {
            const int n = sizes[s];
            int *out = malloc((size_t)(n + 1) * sizeof(int));
            int *in = calloc((size_t)n + 1, sizeof(int));
            MPI_Request request;
            MPI_Status status;
            fill(out, n, s);
            MUST(MPI_Irecv(in, n, MPI_INT, left(), s, MPI_COMM_WORLD, &request));
            if (mode == 0)
                MUST(MPI_Send(out, n, MPI_INT, right(), s, MPI_COMM_WORLD));
            else if (mode == 1)
                MUST(MPI_Ssend(out, n, MPI_INT, right(), s, MPI_COMM_WORLD));
            else if (mode == 2)
                MUST(MPI_Bsend(out, n, MPI_INT, right(), s, MPI_COMM_WORLD));
            else {
                MUST(MPI_Barrier(MPI_COMM_WORLD));
                MUST(MPI_Rsend(out, n, MPI_INT, right(), s, MPI_COMM_WORLD));
            }
            if (mode == 2)
                memset(out, 0, (size_t)n * sizeof(int));
            MUST(MPI_Wait(&request, &status));
            EXPECT_STATUS(&status, left(), s, n);
            EXPECT(in, n, left(), s);
            free(out);
            free(in);
        }
    }
}

/* Received in another order of tags than they were sent in; within a tag in the same. */
static void test_tags(void)
{
    enum { TAGS = 7, EACH = 3 };
    int out[TAGS][EACH][5], in[5];
    MPI_Request sends[TAGS * EACH];
    MPI_Status status;
    for (int k = 0; k < EACH; k++) {
        for (int t = 0; t < TAGS; t++) {
            fill(out[t][k], 5, t * 10 + k);
            MUST(
                MPI_Isend(out[t][k], 5, MPI_INT, right(), t, MPI_COMM_WORLD, &sends[t * EACH + k]));
        }
    }
    for (int t = TAGS - 1; t >= 0; t--) {
        for (int k = 0; k < EACH; k++) {
            MUST(MPI_Recv(in, 5, MPI_INT, left(), t, MPI_COMM_WORLD, &status));
            EXPECT_STATUS(&status, left(), t, 5);
            EXPECT(in, 5, left(), t * 10 + k);
        }
    }
    MUST(MPI_Waitall(TAGS * EACH, sends, MPI_STATUSES_IGNORE));
}

/* All send to rank 0, which takes them as they come: each sender's are in order. */
static void test_wildcards(void)
{
    enum { EACH = 20 };
    int next[64] = {0}, data[3];
    MPI_Request sends[EACH];
    int out[EACH][3];
    for (int k = 0; k < EACH; k++) {
        fill(out[k], 3, k);
        MUST(MPI_Isend(out[k], 3, MPI_INT, 0, k, MPI_COMM_WORLD, &sends[k]));
    }
    for (int i = 0; rank == 0 && i < EACH * nranks; i++) {
        MPI_Status status;
        MUST(MPI_Recv(data, 3, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &status));
        const int from = status.MPI_SOURCE;
        CHECK(from >= 0 && from < nranks && from < 64);
        if (from < 0 || from >= nranks || from >= 64)
            break;
        EXPECT_STATUS(&status, from, next[from], 3);
        EXPECT(data, 3, from, next[from]);
        next[from]++;
    }
    MUST(MPI_Waitall(EACH, sends, MPI_STATUSES_IGNORE));
    MUST(MPI_Barrier(MPI_COMM_WORLD));
}

/* A synchronous send is not done before its receive has begun. */
static void test_synchronous(void)
{
    int out = 5, in = 0, flag = 1;
    MPI_Request request;
    MUST(MPI_Issend(&out, 1, MPI_INT, right(), 1, MPI_COMM_WORLD, &request));
    for (int i = 0; i < 20; i++) {
        MUST(MPI_Test(&request, &flag, MPI_STATUS_IGNORE));
        CHECK(!flag);
    }
    MUST(MPI_Barrier(MPI_COMM_WORLD));
    MUST(MPI_Recv(&in, 1, MPI_INT, left(), 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    MUST(MPI_Wait(&request, MPI_STATUS_IGNORE));
    CHECK(in == 5);
}

/* ---------------------------------------------------------------- buffered */

static void test_buffered(void)
{
    enum { EACH = 4, LENGTH = 100 };
    int size = 0, got = -1, in[LENGTH], out[LENGTH];
    void *old = NULL, *at = NULL;
    MPI_Request request;
    MUST(MPI_Buffer_detach(&old, &got));
    MUST(MPI_Pack_size(LENGTH, MPI_INT, MPI_COMM_WORLD, &size));
    size = EACH * (size + MPI_BSEND_OVERHEAD);
    void *buffer = malloc((size_t)size);
    MUST(MPI_Buffer_attach(buffer, size));
    for (int k = 0; k < EACH; k++) {
        fill(out, LENGTH, k);
        if (k % 2) {
            MUST(MPI_Ibsend(out, LENGTH, MPI_INT, right(), k, MPI_COMM_WORLD, &request));
            MUST(MPI_Wait(&request, MPI_STATUS_IGNORE));
        } else {
            MUST(MPI_Bsend(out, LENGTH, MPI_INT, right(), k, MPI_COMM_WORLD));
        }
    }
    for (int k = EACH - 1; k >= 0; k--) {
        MUST(MPI_Recv(in, LENGTH, MPI_INT, left(), k, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        EXPECT(in, LENGTH, left(), k);
    }
    MUST(MPI_Bsend_init(out, LENGTH, MPI_INT, right(), 9, MPI_COMM_WORLD, &request));
    for (int k = 0; k < 3; k++) {
        fill(out, LENGTH, k);
        MUST(MPI_Start(&request));
        MUST(MPI_Wait(&request, MPI_STATUS_IGNORE));
        fill(out, LENGTH, 77);
        MUST(MPI_Recv(in, LENGTH, MPI_INT, left(), 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        EXPECT(in, LENGTH, left(), k);
    }
    MUST(MPI_Request_free(&request));
    CHECK(request == MPI_REQUEST_NULL);
    MUST(MPI_Buffer_detach(&at, &got));
    CHECK(at == buffer && got == size);
    /* What does not fit is an error, and sends nothing. */
    MUST(MPI_Buffer_attach(buffer, 64 + MPI_BSEND_OVERHEAD));
    int class = 0, code = MPI_Bsend(out, LENGTH * 5, MPI_BYTE, MPI_PROC_NULL, 0, MPI_COMM_WORLD);
    CHECK(code == MPI_SUCCESS);
    static char large[100000];
    code = MPI_Bsend(large, 100000, MPI_BYTE, right(), 0, MPI_COMM_WORLD);
    MPI_Error_class(code, &class);
    CHECK(class == MPI_ERR_BUFFER);
    MUST(MPI_Buffer_detach(&at, &got));
    free(buffer);
    if (old)
        MUST(MPI_Buffer_attach(old, 8000000));
}

/* ---------------------------------------------------------------- probes */

static void test_probe(void)
{
    int out[50], in[50], flag = 1;
    MPI_Request request;
    MPI_Message message;
    MPI_Status status;
    MUST(MPI_Iprobe(left(), 31, MPI_COMM_WORLD, &flag, &status));
    CHECK(!flag);
    for (int n = 1; n <= 50; n += 7) {
        fill(out, n, n);
        MUST(MPI_Isend(out, n, MPI_INT, right(), n, MPI_COMM_WORLD, &request));
        MUST(MPI_Probe(left(), MPI_ANY_TAG, MPI_COMM_WORLD, &status));
        EXPECT_STATUS(&status, left(), n, n);
        MUST(MPI_Recv(in, n, MPI_INT, status.MPI_SOURCE, status.MPI_TAG, MPI_COMM_WORLD, &status));
        EXPECT(in, n, left(), n);
        MUST(MPI_Wait(&request, MPI_STATUS_IGNORE));
    }
    MUST(MPI_Barrier(MPI_COMM_WORLD));
    for (int n = 1; n <= 50; n += 7) {
        fill(out, n, n);
        MUST(MPI_Isend(out, n, MPI_INT, right(), n, MPI_COMM_WORLD, &request));
        if (n % 2) {
            MUST(MPI_Mprobe(MPI_ANY_SOURCE, n, MPI_COMM_WORLD, &message, &status));
        } else {
            for (flag = 0; !flag;)
                MUST(MPI_Improbe(left(), n, MPI_COMM_WORLD, &flag, &message, &status));
        }
        EXPECT_STATUS(&status, left(), n, n);
        MUST(MPI_Iprobe(left(), n, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE));
        CHECK(!flag);
        MUST(MPI_Mrecv(in, n, MPI_INT, &message, &status));
        CHECK(message == MPI_MESSAGE_NULL);
        EXPECT_STATUS(&status, left(), n, n);
        EXPECT(in, n, left(), n);
        MUST(MPI_Wait(&request, MPI_STATUS_IGNORE));
    }
    MUST(MPI_Mprobe(MPI_PROC_NULL, 4, MPI_COMM_WORLD, &message, &status));
    CHECK(message == MPI_MESSAGE_NO_PROC);
    MUST(MPI_Mrecv(in, 1, MPI_INT, &message, &status));
    EXPECT_STATUS(&status, MPI_PROC_NULL, MPI_ANY_TAG, 0);
    MUST(MPI_Barrier(MPI_COMM_WORLD));
}

/* ---------------------------------------------------------------- requests */

static void test_cancel(void)
{
    int data = 7, cancelled = 0;
    MPI_Request request;
    MPI_Status status;
    MUST(MPI_Irecv(&data, 1, MPI_INT, left(), 99, MPI_COMM_WORLD, &request));
    MUST(MPI_Cancel(&request));
    MUST(MPI_Wait(&request, &status));
    MUST(MPI_Test_cancelled(&status, &cancelled));
    CHECK(cancelled && data == 7 && request == MPI_REQUEST_NULL);
    MUST(MPI_Irecv(&data, 1, MPI_INT, 0, 98, MPI_COMM_SELF, &request));
    MUST(MPI_Cancel(&request));
    MUST(MPI_Wait(&request, &status));
    MUST(MPI_Barrier(MPI_COMM_WORLD));
}

static void test_persistent(void)
{
    enum { TIMES = 30, LENGTH = 300 };
    int out[LENGTH], in[LENGTH];
    MPI_Request requests[2];
    MPI_Status statuses[2];
    MUST(MPI_Send_init(out, LENGTH, MPI_INT, right(), 3, MPI_COMM_WORLD, &requests[0]));
    MUST(MPI_Recv_init(in, LENGTH, MPI_INT, left(), MPI_ANY_TAG, MPI_COMM_WORLD, &requests[1]));
    MUST(MPI_Waitall(2, requests, statuses)); /* they are not active: done at once */
    for (int k = 0; k < TIMES; k++) {
        fill(out, LENGTH, k);
        memset(in, 0, sizeof(in));
        MUST(MPI_Startall(2, requests));
        MUST(MPI_Waitall(2, requests, statuses));
        CHECK(requests[0] != MPI_REQUEST_NULL && requests[1] != MPI_REQUEST_NULL);
        EXPECT_STATUS(&statuses[1], left(), 3, LENGTH);
        EXPECT(in, LENGTH, left(), k);
    }
    MUST(MPI_Request_free(&requests[0]));
    MUST(MPI_Request_free(&requests[1]));
    MUST(MPI_Barrier(MPI_COMM_WORLD));
}

static void test_any_and_some(void)
{
    enum { PARTS = 12 };
    int in[PARTS][2], out[PARTS][2], seen[PARTS] = {0}, index = 0, some = 0, indices[PARTS];
    MPI_Request receives[PARTS], sends[PARTS];
    MPI_Status statuses[PARTS];
    for (int turn = 0; turn < 2; turn++) {
        memset(seen, 0, sizeof(seen));
        for (int k = 0; k < PARTS; k++)
            MUST(MPI_Irecv(in[k], 2, MPI_INT, left(), k, MPI_COMM_WORLD, &receives[k]));
        for (int k = PARTS - 1; k >= 0; k--) {
            fill(out[k], 2, k);
            MUST(MPI_Isend(out[k], 2, MPI_INT, right(), k, MPI_COMM_WORLD, &sends[k]));
        }
        for (int n = 0; n < PARTS; n += turn ? some : 1) {
            if (turn)
                MUST(MPI_Waitsome(PARTS, receives, &some, indices, statuses));
            else
                MUST(MPI_Waitany(PARTS, receives, &indices[0], &statuses[0]));
            CHECK(turn ? some > 0 : indices[0] >= 0);
            if (turn ? some <= 0 : indices[0] < 0)
                break;
            for (int i = 0; i < (turn ? some : 1); i++) {
                const int k = indices[i];
                CHECK(k >= 0 && k < PARTS && !seen[k]++);
                EXPECT_STATUS(&statuses[i], left(), k, 2);
                EXPECT(in[k], 2, left(), k);
            }
        }
        MUST(MPI_Waitall(PARTS, sends, MPI_STATUSES_IGNORE));
        MUST(MPI_Waitany(PARTS, receives, &index, &statuses[0]));
        CHECK(index == MPI_UNDEFINED);
        MUST(MPI_Waitsome(PARTS, receives, &some, indices, statuses));
        CHECK(some == MPI_UNDEFINED);
    }
}

/* ---------------------------------------------------------------- types with gaps */

static void test_types(void)
{
    enum { ROWS = 40, COLUMNS = 30 };
    static int out[ROWS][COLUMNS], in[ROWS][COLUMNS], want[ROWS][COLUMNS], flat[ROWS * 2];
    MPI_Datatype column, part, pair;
    MPI_Status status;
    int count = 0;
    MUST(MPI_Type_vector(ROWS, 1, COLUMNS, MPI_INT, &column));
    MUST(MPI_Type_create_resized(column, 0, (MPI_Aint)sizeof(int), &part));
    MUST(MPI_Type_contiguous(2, part, &pair));
    MUST(MPI_Type_commit(&pair));
    fill(&out[0][0], ROWS * COLUMNS, 6);
    for (int i = 0; i < ROWS * COLUMNS; i++)
        (&in[0][0])[i] = (&want[0][0])[i] = -i;
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < 2; c++)
            want[r][5 + c] = value(left(), 6, r * COLUMNS + 3 + c);
    MUST(MPI_Sendrecv(&out[0][3], 1, pair, right(), 1, &in[0][5], 1, pair, left(), 1,
                      MPI_COMM_WORLD, &status));
    MUST(MPI_Get_count(&status, pair, &count));
    CHECK(count == 1);
    MUST(MPI_Get_elements(&status, pair, &count));
    CHECK(count == 2 * ROWS);
    CHECK(!memcmp(in, want, sizeof(in)));
    /* Out of gaps, into a block. */
    MUST(MPI_Sendrecv(&out[0][3], 1, pair, right(), 1, flat, 2 * ROWS, MPI_INT, left(), 1,
                      MPI_COMM_WORLD, &status));
    EXPECT_STATUS(&status, left(), 1, 2 * ROWS);
    for (int i = 0; i < 2 * ROWS; i++)
        CHECK(flat[i] == value(left(), 6, i % ROWS * COLUMNS + 3 + i / ROWS));
    /* A shorter message than the receive has room for fills only its part. */
    for (int i = 0; i < ROWS * COLUMNS; i++)
        (&in[0][0])[i] = (&want[0][0])[i] = -i;
    for (int r = 0; r < 7; r++)
        want[r][0] = value(left(), 6, r);
    MUST(MPI_Sendrecv(&out[0][0], 7, MPI_INT, right(), 1, in, 1, pair, left(), 1, MPI_COMM_WORLD,
                      &status));
    MUST(MPI_Get_count(&status, pair, &count));
    CHECK(count == MPI_UNDEFINED);
    CHECK(!memcmp(in, want, sizeof(in)));
    MUST(MPI_Type_free(&column));
    MUST(MPI_Type_free(&part));
    MUST(MPI_Type_free(&pair));
}

/* ---------------------------------------------------------------- errors, and special ranks */

static void test_truncation(void)
{
    int out[20], in[20], class = 0;
    MPI_Request request;
    fill(out, 20, 2);
    memset(in, 0, sizeof(in));
    MUST(MPI_Isend(out, 20, MPI_INT, right(), 2, MPI_COMM_WORLD, &request));
    MPI_Error_class(MPI_Recv(in, 10, MPI_INT, left(), 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE),
                    &class);
    CHECK(class == MPI_ERR_TRUNCATE);
    for (int i = 10; i < 20; i++)
        CHECK(in[i] == 0);
    MUST(MPI_Wait(&request, MPI_STATUS_IGNORE));
    MPI_Error_class(MPI_Send(out, 1, MPI_INT, nranks, 2, MPI_COMM_WORLD), &class);
    CHECK(class == MPI_ERR_RANK);
    MPI_Error_class(MPI_Send(out, -1, MPI_INT, 0, 2, MPI_COMM_WORLD), &class);
    CHECK(class == MPI_ERR_COUNT);
    MPI_Error_class(MPI_Send(out, 1, MPI_INT, 0, -77, MPI_COMM_WORLD), &class);
    CHECK(class == MPI_ERR_TAG);
    MPI_Error_class(MPI_Send(out, 1, MPI_DATATYPE_NULL, 0, 2, MPI_COMM_WORLD), &class);
    CHECK(class == MPI_ERR_TYPE);
}

static void test_special(void)
{
    int out[N], in[N];
    MPI_Request requests[2];
    MPI_Status status;
    /* To itself: by either communicator. */
    for (int k = 0; k < 2; k++) {
        const MPI_Comm comm = k ? MPI_COMM_SELF : MPI_COMM_WORLD;
        const int self = k ? 0 : rank;
        fill(out, N, 8);
        memset(in, 0, sizeof(in));
        MUST(MPI_Isend(out, N, MPI_INT, self, 8, comm, &requests[0]));
        MUST(MPI_Recv(in, N, MPI_INT, MPI_ANY_SOURCE, 8, comm, &status));
        MUST(MPI_Wait(&requests[0], MPI_STATUS_IGNORE));
        EXPECT_STATUS(&status, self, 8, N);
        EXPECT(in, N, rank, 8);
    }
    in[0] = 4;
    MUST(MPI_Send(out, N, MPI_INT, MPI_PROC_NULL, 8, MPI_COMM_WORLD));
    MUST(MPI_Recv(in, N, MPI_INT, MPI_PROC_NULL, 8, MPI_COMM_WORLD, &status));
    EXPECT_STATUS(&status, MPI_PROC_NULL, MPI_ANY_TAG, 0);
    CHECK(in[0] == 4);
    fill(in, N, 1);
    MUST(MPI_Sendrecv_replace(in, N, MPI_INT, right(), 1, left(), 1, MPI_COMM_WORLD, &status));
    EXPECT_STATUS(&status, left(), 1, N);
    EXPECT(in, N, left(), 1);
    /* Around a line, whose ends have no neighbour. */
    const int before = rank ? rank - 1 : MPI_PROC_NULL;
    const int after = rank + 1 < nranks ? rank + 1 : MPI_PROC_NULL;
    fill(out, N, 5);
    fill(in, N, 6);
    MUST(MPI_Sendrecv(out, N, MPI_INT, after, 5, in, N, MPI_INT, before, 5, MPI_COMM_WORLD,
                      &status));
    EXPECT(in, N, rank ? before : rank, rank ? 5 : 6);
    /* A message of one communicator is none of another. */
    MPI_Comm other;
    MUST(MPI_Comm_dup(MPI_COMM_WORLD, &other));
    fill(out, 1, 1);
    fill(out + 1, 1, 2);
    MUST(MPI_Isend(out, 1, MPI_INT, right(), 1, MPI_COMM_WORLD, &requests[0]));
    MUST(MPI_Isend(out + 1, 1, MPI_INT, right(), 1, other, &requests[1]));
    MUST(MPI_Recv(in, 1, MPI_INT, left(), 1, other, MPI_STATUS_IGNORE));
    EXPECT(in, 1, left(), 2);
    MUST(MPI_Recv(in, 1, MPI_INT, left(), 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    EXPECT(in, 1, left(), 1);
    MUST(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
    MUST(MPI_Comm_free(&other));
}

/* ---------------------------------------------------------------- generalised requests */

static int queried, ended;

static int query(void *extra, MPI_Status *status)
{
    queried++;
    MPI_Status_set_elements(status, MPI_INT, *(int *)extra);
    MPI_Status_set_cancelled(status, 0);
    status->MPI_SOURCE = 3;
    status->MPI_TAG = 12;
    return MPI_SUCCESS;
}

static int end(void *extra)
{
    (void)extra;
    ended++;
    return MPI_SUCCESS;
}

static int cancel(void *extra, int complete)
{
    (void)extra;
    (void)complete;
    return MPI_SUCCESS;
}

static void test_general(void)
{
    int five = 5, flag = 1;
    MPI_Request request;
    MPI_Status status;
    MUST(MPI_Grequest_start(query, end, cancel, &five, &request));
    MUST(MPI_Test(&request, &flag, &status));
    CHECK(!flag && !queried);
    MUST(MPI_Cancel(&request));
    MUST(MPI_Grequest_complete(request));
    MUST(MPI_Wait(&request, &status));
    EXPECT_STATUS(&status, 3, 12, 5);
    CHECK(queried == 1 && ended == 1 && request == MPI_REQUEST_NULL);
}

int main(int argc, char **argv)
{
    static char buffer[8000000];
    void *at;
    int size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &nranks);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Buffer_attach(buffer, (int)sizeof(buffer));
    test_modes();
    test_tags();
    test_wildcards();
    test_synchronous();
    test_buffered();
    test_probe();
    test_cancel();
    test_persistent();
    test_any_and_some();
    test_types();
    test_truncation();
    test_special();
    test_general();
    MPI_Buffer_detach(&at, &size);
    MPI_Allreduce(MPI_IN_PLACE, &failures, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Finalize();
    return failures ? 1 : 0;
}
