/* SPDX-License-Identifier: Apache-2.0 */
/*
 * buffers.c - buffers of communicators, of sessions, and automatic ones; MPI_Isendrecv; the status
 * of many requests; requests that are freed while they are active. On any number of ranks.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N 500

static int rank, nranks, failures;

static void check_at(int line, int good, const char *what)
{
    if (good)
        return;
    printf("rank %d of %d: buffers.c:%d: %s\n", rank, nranks, line, what);
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

static void fill(int *at, int what)
{
    for (int i = 0; i < N; i++)
        at[i] = rank * 1000 + what + i;
}

static int is(const int *at, int from, int what)
{
    for (int i = 0; i < N; i++)
        if (at[i] != from * 1000 + what + i)
            return 0;
    return 1;
}

static int class_of(int code)
{
    int class = -1;
    MPI_Error_class(code, &class);
    return class;
}

/* The data may change as soon as the send has returned. */
static void exchange(MPI_Comm comm, int what)
{
    int out[N], in[N];
    fill(out, what);
    MUST(MPI_Bsend(out, N, MPI_INT, right(), 1, comm));
    fill(out, 0);
    MUST(MPI_Recv(in, N, MPI_INT, left(), 1, comm, MPI_STATUS_IGNORE));
    CHECK(is(in, left(), what));
}

static void test_buffers(void)
{
    const int size = N * (int)sizeof(int) + MPI_BSEND_OVERHEAD;
    char *buffer = malloc((size_t)size);
    void *at = NULL;
    int got = -1, out[N] = {0};
    MPI_Comm own;
    MPI_Request request;
    CHECK(class_of(MPI_Bsend(out, N, MPI_INT, right(), 0, MPI_COMM_WORLD)) == MPI_ERR_BUFFER);
    MUST(MPI_Buffer_attach(MPI_BUFFER_AUTOMATIC, 0));
    for (int k = 0; k < 20; k++)
        exchange(MPI_COMM_WORLD, k);
    MUST(MPI_Buffer_flush());
    MUST(MPI_Buffer_iflush(&request));
    MUST(MPI_Wait(&request, MPI_STATUS_IGNORE));
    MUST(MPI_Buffer_detach(&at, &got));
    CHECK(at == MPI_BUFFER_AUTOMATIC);

    MUST(MPI_Comm_dup(MPI_COMM_WORLD, &own));
    MUST(MPI_Comm_set_errhandler(own, MPI_ERRORS_RETURN));
    MUST(MPI_Comm_attach_buffer(own, buffer, size));
    for (int k = 0; k < 20; k++) {
        exchange(own, k);
        MUST(MPI_Comm_flush_buffer(own));
    }
    MUST(MPI_Comm_iflush_buffer(own, &request));
    MUST(MPI_Wait(&request, MPI_STATUS_IGNORE));
    CHECK(class_of(MPI_Bsend(out, N, MPI_INT, right(), 0, MPI_COMM_WORLD)) == MPI_ERR_BUFFER);
    MUST(MPI_Comm_detach_buffer(own, &at, &got));
    CHECK(at == buffer && got == size);
    MUST(MPI_Comm_free(&own));
    free(buffer);
}

static void test_session(void)
{
    MPI_Session session;
    MPI_Group group, part;
    MPI_Comm comm, copy;
    void *at = NULL;
    int got = -1;
    MUST(MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session));
    MUST(MPI_Group_from_session_pset(session, "mpi://WORLD", &group));
    MUST(MPI_Group_union(group, group, &part));
    MUST(MPI_Comm_create_from_group(part, "buffers", MPI_INFO_NULL, MPI_ERRORS_RETURN, &comm));
    MUST(MPI_Comm_dup(comm, &copy));
    MUST(MPI_Session_attach_buffer(session, MPI_BUFFER_AUTOMATIC, 0));
    for (int k = 0; k < 5; k++) {
        exchange(comm, k);
        exchange(copy, k + 7);
    }
    MUST(MPI_Session_flush_buffer(session));
    MUST(MPI_Session_detach_buffer(session, &at, &got));
    CHECK(at == MPI_BUFFER_AUTOMATIC);
    MUST(MPI_Comm_free(&copy));
    MUST(MPI_Comm_free(&comm));
    MUST(MPI_Group_free(&part));
    MUST(MPI_Group_free(&group));
    MUST(MPI_Session_finalize(&session));
}

static void test_sendrecv(void)
{
    int out[N], in[N] = {0}, count = -1;
    MPI_Request request;
    MPI_Status status;
    fill(out, 3);
    MUST(MPI_Isendrecv(out, N, MPI_INT, right(), 4, in, N, MPI_INT, left(), 4, MPI_COMM_WORLD,
                       &request));
    MUST(MPI_Wait(&request, &status));
    MUST(MPI_Get_count(&status, MPI_INT, &count));
    CHECK(status.MPI_SOURCE == left() && status.MPI_TAG == 4 && count == N);
    CHECK(is(in, left(), 3) && request == MPI_REQUEST_NULL);
    MUST(MPI_Isendrecv_replace(out, N, MPI_INT, right(), 5, left(), 5, MPI_COMM_WORLD, &request));
    MUST(MPI_Wait(&request, &status));
    CHECK(is(out, left(), 3));
}

static void test_status(void)
{
    enum { PARTS = 5 };
    static int in[PARTS][N], out[PARTS][N];
    int flag = 1, index = -1, some = 0, indices[PARTS];
    MPI_Request receives[PARTS], sends[PARTS];
    MPI_Status statuses[PARTS];
    for (int k = 0; k < PARTS; k++) {
        fill(out[k], k);
        MUST(MPI_Irecv(in[k], N, MPI_INT, left(), k, MPI_COMM_WORLD, &receives[k]));
    }
    MUST(MPI_Request_get_status_all(PARTS, receives, &flag, statuses));
    CHECK(!flag);
    MUST(MPI_Request_get_status_any(PARTS, receives, &index, &flag, statuses));
    CHECK(!flag);
    MUST(MPI_Barrier(MPI_COMM_WORLD));
    for (int k = 0; k < PARTS; k++)
        MUST(MPI_Isend(out[k], N, MPI_INT, right(), k, MPI_COMM_WORLD, &sends[k]));
    for (some = 0; some == 0;)
        MUST(MPI_Request_get_status_some(PARTS, receives, &some, indices, statuses));
    for (int i = 0; i < some; i++)
        CHECK(statuses[i].MPI_TAG == indices[i] && is(in[indices[i]], left(), indices[i]));
    for (flag = 0; !flag;)
        MUST(MPI_Request_get_status_any(PARTS, receives, &index, &flag, &statuses[0]));
    CHECK(index >= 0 && index < PARTS && statuses[0].MPI_TAG == index);
    for (flag = 0; !flag;)
        MUST(MPI_Request_get_status_all(PARTS, receives, &flag, statuses));
    for (int k = 0; k < PARTS; k++)
        CHECK(statuses[k].MPI_TAG == k && statuses[k].MPI_SOURCE == left());
    MUST(MPI_Waitall(PARTS, receives, statuses));
    for (int k = 0; k < PARTS; k++)
        CHECK(statuses[k].MPI_TAG == k && is(in[k], left(), k));
    MUST(MPI_Waitall(PARTS, sends, MPI_STATUSES_IGNORE));
}

static int ended;

static int query(void *extra, MPI_Status *status)
{
    (void)extra;
    (void)status;
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

static void test_freed(void)
{
    static int out[N], in[N];
    MPI_Request request, copy;
    fill(out, 9);
    MUST(MPI_Isend(out, N, MPI_INT, right(), 4, MPI_COMM_WORLD, &request));
    MUST(MPI_Request_free(&request));
    MUST(MPI_Recv(in, N, MPI_INT, left(), 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    CHECK(is(in, left(), 9));
    MUST(MPI_Grequest_start(query, end, cancel, NULL, &request));
    copy = request;
    MUST(MPI_Request_free(&request));
    CHECK(!ended);
    MUST(MPI_Grequest_complete(copy));
    CHECK(ended == 1);
    MUST(MPI_Barrier(MPI_COMM_WORLD));
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &nranks);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    test_buffers();
    test_session();
    test_sendrecv();
    test_status();
    test_freed();
    MPI_Allreduce(MPI_IN_PLACE, &failures, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Finalize();
    return failures ? 1 : 0;
}
