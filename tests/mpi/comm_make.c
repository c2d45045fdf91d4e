/* SPDX-License-Identifier: Apache-2.0 */
/*
 * comm_make.c - communicators out of others and out of groups, groups, attributes, names, sessions.
 * A program of MPI: any library can run it.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failures, rank, size;

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            failures++;                                                                            \
            printf("rank %d: line %d: %s\n", rank, __LINE__, #condition);                          \
        }                                                                                          \
    } while (0)
#define TRY(call) CHECK((call) == MPI_SUCCESS)

/* Are these ranks of the world the members of the communicator, in this order? */
static void check_members(MPI_Comm comm, int n, const int members[])
{
    int seen[64], ranks[64], at, count;
    MPI_Group all, group;
    TRY(MPI_Comm_size(comm, &count));
    TRY(MPI_Comm_rank(comm, &at));
    CHECK(count == n);
    CHECK(members[at] == rank);
    TRY(MPI_Allgather(&rank, 1, MPI_INT, seen, 1, MPI_INT, comm));
    TRY(MPI_Comm_group(MPI_COMM_WORLD, &all));
    TRY(MPI_Comm_group(comm, &group));
    for (int i = 0; i < n; i++)
        ranks[i] = i;
    int worlds[64];
    TRY(MPI_Group_translate_ranks(group, n, ranks, all, worlds));
    for (int i = 0; i < n; i++) {
        CHECK(seen[i] == members[i]);
        CHECK(worlds[i] == members[i]);
    }
    TRY(MPI_Group_free(&group));
    TRY(MPI_Group_free(&all));
    CHECK(group == MPI_GROUP_NULL);
}

static void try_split(void)
{
    MPI_Comm part;
    int members[64], n = 0, result;
    TRY(MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &part));
    for (int r = size - 1; r >= 0; r--)
        if (r % 2 == rank % 2)
            members[n++] = r;
    check_members(part, n, members);
    TRY(MPI_Comm_compare(part, MPI_COMM_WORLD, &result));
    CHECK(result == (n < size ? MPI_UNEQUAL : size == 1 ? MPI_CONGRUENT : MPI_SIMILAR));
    TRY(MPI_Comm_free(&part));
    CHECK(part == MPI_COMM_NULL);
    /* Only rank 0 gets one. */
    TRY(MPI_Comm_split(MPI_COMM_WORLD, rank ? MPI_UNDEFINED : 3, 0, &part));
    CHECK((part == MPI_COMM_NULL) == (rank != 0));
    if (part != MPI_COMM_NULL)
        TRY(MPI_Comm_free(&part));
    /* All reversed. */
    TRY(MPI_Comm_split(MPI_COMM_WORLD, 0, size - rank, &part));
    for (int r = 0; r < size; r++)
        members[r] = size - 1 - r;
    check_members(part, size, members);
    TRY(MPI_Comm_compare(part, MPI_COMM_WORLD, &result));
    CHECK(result == (size == 1 ? MPI_CONGRUENT : MPI_SIMILAR));
    TRY(MPI_Comm_free(&part));
    TRY(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, -rank, MPI_INFO_NULL, &part));
    CHECK(part != MPI_COMM_NULL);
    TRY(MPI_Comm_free(&part));
    TRY(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_UNDEFINED, 0, MPI_INFO_NULL, &part));
    CHECK(part == MPI_COMM_NULL);
}

static void try_create(void)
{
    MPI_Group all, group, other;
    MPI_Comm made;
    int members[64], n = 0, mine = 0;
    TRY(MPI_Comm_group(MPI_COMM_WORLD, &all));
    /* Two groups without a common member: halves, the upper one reversed. */
    const int half = size / 2, upper = rank >= half;
    for (int r = 0; r < size; r++)
        if ((r >= half) == upper)
            members[n++] = r;
    if (upper)
        for (int i = 0; i < n; i++)
            members[i] = size - 1 - i;
    TRY(MPI_Group_incl(all, n, members, &group));
    TRY(MPI_Comm_create(MPI_COMM_WORLD, group, &made));
    check_members(made, n, members);
    TRY(MPI_Comm_free(&made));
    /* The same list and tag, again and again, also while the first one lives. */
    MPI_Comm again[3];
    for (int i = 0; i < 3; i++)
        TRY(MPI_Comm_create_group(MPI_COMM_WORLD, group, 7, &again[i]));
    TRY(MPI_Comm_create_group(again[1], group, 7, &made));
    check_members(made, n, members);
    TRY(MPI_Comm_free(&made));
    for (int i = 0; i < 3; i++) {
        check_members(again[i], n, members);
        TRY(MPI_Comm_free(&again[i]));
    }
    TRY(MPI_Comm_create_from_group(group, "org.halay.test", MPI_INFO_NULL, MPI_ERRORS_RETURN,
                                   &made));
    check_members(made, n, members);
    TRY(MPI_Comm_free(&made));
    TRY(MPI_Group_free(&group));
    /* A group without this rank gives no communicator. */
    TRY(MPI_Group_incl(all, 1, &mine, &other));
    TRY(MPI_Comm_create(MPI_COMM_WORLD, other, &made));
    CHECK((made == MPI_COMM_NULL) == (rank != 0));
    if (made != MPI_COMM_NULL)
        TRY(MPI_Comm_free(&made));
    TRY(MPI_Group_free(&other));
    TRY(MPI_Comm_create(MPI_COMM_WORLD, MPI_GROUP_EMPTY, &made));
    CHECK(made == MPI_COMM_NULL);
    TRY(MPI_Group_free(&all));
}

static void try_groups(void)
{
    MPI_Group all, even, low, made;
    int list[64], n = 0, is, result, ranks[64];
    TRY(MPI_Comm_group(MPI_COMM_WORLD, &all));
    int ranges[2][3] = {{0, size - 1, 2}, {size - 1, 0, -1}};
    TRY(MPI_Group_range_incl(all, 1, ranges, &even));
    for (int r = 0; r < size; r += 2)
        list[n++] = r;
    TRY(MPI_Group_size(even, &is));
    CHECK(is == n);
    TRY(MPI_Group_rank(even, &is));
    CHECK(is == (rank % 2 ? MPI_UNDEFINED : rank / 2));
    TRY(MPI_Group_incl(all, n, list, &low));
    TRY(MPI_Group_compare(even, low, &result));
    CHECK(result == MPI_IDENT);
    TRY(MPI_Group_free(&low));
    TRY(MPI_Group_excl(all, n, list, &low)); /* the odd ones */
    TRY(MPI_Group_intersection(even, low, &made));
    TRY(MPI_Group_compare(made, MPI_GROUP_EMPTY, &result));
    CHECK(result == MPI_IDENT);
    TRY(MPI_Group_free(&made));
    TRY(MPI_Group_union(low, even, &made));
    TRY(MPI_Group_compare(made, all, &result));
    CHECK(result == (size == 1 ? MPI_IDENT : MPI_SIMILAR));
    for (int i = 0; i < size; i++)
        ranks[i] = i;
    TRY(MPI_Group_translate_ranks(made, size, ranks, even, list));
    for (int i = 0; i < size; i++)
        CHECK(list[i] == (i < size / 2 ? MPI_UNDEFINED : i - size / 2));
    ranks[0] = MPI_PROC_NULL;
    TRY(MPI_Group_translate_ranks(made, 1, ranks, even, list));
    CHECK(list[0] == MPI_PROC_NULL);
    TRY(MPI_Group_free(&made));
    TRY(MPI_Group_difference(all, even, &made));
    TRY(MPI_Group_compare(made, low, &result));
    CHECK(result == MPI_IDENT);
    TRY(MPI_Group_free(&made));
    TRY(MPI_Group_range_incl(all, 1, &ranges[1], &made));
    TRY(MPI_Group_rank(made, &is));
    CHECK(is == size - 1 - rank);
    TRY(MPI_Group_free(&made));
    TRY(MPI_Group_range_excl(all, 1, ranges, &made));
    TRY(MPI_Group_compare(made, low, &result));
    CHECK(result == MPI_IDENT);
    TRY(MPI_Group_free(&made));
    TRY(MPI_Group_free(&low));
    TRY(MPI_Group_free(&even));
    TRY(MPI_Group_free(&all));
}

/* ---------------------------------------------------------------- attributes */

static int copies, deletes, order[16];

static int copy_fn(MPI_Comm comm, int keyval, void *extra, void *in, void *out, int *flag)
{
    (void)comm, (void)keyval;
    copies++;
    *(void **)out = (char *)in + 1;
    *flag = extra != NULL;
    return MPI_SUCCESS;
}

static int delete_fn(MPI_Comm comm, int keyval, void *value, void *extra)
{
    (void)comm, (void)keyval, (void)extra;
    order[deletes++ & 15] = (int)(size_t)value;
    return MPI_SUCCESS;
}

static int failing_delete(MPI_Comm comm, int keyval, void *value, void *extra)
{
    (void)comm, (void)keyval, (void)value;
    return (*(int *)extra)-- > 0 ? MPI_ERR_OTHER : MPI_SUCCESS;
}

static void try_attributes(void)
{
    int copied, plain, dup, flag, stubborn, times = 1, *ub;
    void *value;
    MPI_Comm a, b;
    TRY(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &ub, &flag));
    CHECK(flag && *ub >= 32767);
    TRY(MPI_Comm_create_keyval(copy_fn, delete_fn, &copied, &copied));
    TRY(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, delete_fn, &plain, NULL));
    TRY(MPI_Comm_create_keyval(MPI_COMM_DUP_FN, MPI_COMM_NULL_DELETE_FN, &dup, NULL));
    TRY(MPI_Comm_dup(MPI_COMM_WORLD, &a));
    TRY(MPI_Comm_get_attr(a, copied, &value, &flag));
    CHECK(!flag);
    TRY(MPI_Comm_set_attr(a, copied, (void *)10));
    TRY(MPI_Comm_set_attr(a, plain, (void *)20));
    TRY(MPI_Comm_set_attr(a, dup, (void *)30));
    TRY(MPI_Comm_set_attr(a, plain, (void *)21));
    CHECK(deletes == 1 && order[0] == 20);
    TRY(MPI_Comm_dup(a, &b));
    CHECK(copies == 1);
    TRY(MPI_Comm_get_attr(b, copied, &value, &flag));
    CHECK(flag && value == (void *)11);
    TRY(MPI_Comm_get_attr(b, plain, &value, &flag));
    CHECK(!flag);
    TRY(MPI_Comm_get_attr(b, dup, &value, &flag));
    CHECK(flag && value == (void *)30);
    const int key = copied;
    TRY(MPI_Comm_free_keyval(&copied)); /* attributes stay */
    CHECK(copied == MPI_KEYVAL_INVALID);
    TRY(MPI_Comm_get_attr(a, key, &value, &flag));
    CHECK(flag && value == (void *)10);
    TRY(MPI_Comm_delete_attr(a, plain));
    CHECK(deletes == 2 && order[1] == 21);
    TRY(MPI_Comm_free(&b));
    CHECK(deletes == 3 && order[2] == 11);
    TRY(MPI_Comm_free(&a));
    CHECK(deletes == 4 && order[3] == 10);
    CHECK(MPI_Comm_get_attr(MPI_COMM_WORLD, key, &value, &flag) != MPI_SUCCESS);
    TRY(MPI_Comm_free_keyval(&plain));
    TRY(MPI_Comm_free_keyval(&dup));
    /* A delete function that fails keeps the communicator. */
    TRY(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, failing_delete, &stubborn, &times));
    TRY(MPI_Comm_dup(MPI_COMM_SELF, &a));
    TRY(MPI_Comm_set_errhandler(a, MPI_ERRORS_RETURN));
    TRY(MPI_Comm_set_attr(a, stubborn, NULL));
    CHECK(MPI_Comm_free(&a) != MPI_SUCCESS);
    CHECK(a != MPI_COMM_NULL);
    TRY(MPI_Comm_free(&a));
    TRY(MPI_Comm_free_keyval(&stubborn));
}

static void try_names(void)
{
    char name[MPI_MAX_OBJECT_NAME];
    int length, result, inter;
    MPI_Comm dup, later;
    MPI_Request request;
    TRY(MPI_Comm_get_name(MPI_COMM_WORLD, name, &length));
    CHECK(!strcmp(name, "MPI_COMM_WORLD") && length == 14);
    TRY(MPI_Comm_dup(MPI_COMM_WORLD, &dup));
    TRY(MPI_Comm_get_name(dup, name, &length));
    CHECK(length == 0 && !name[0]);
    TRY(MPI_Comm_set_name(dup, "a name"));
    TRY(MPI_Comm_get_name(dup, name, &length));
    CHECK(!strcmp(name, "a name") && length == 6);
    TRY(MPI_Comm_compare(dup, MPI_COMM_WORLD, &result));
    CHECK(result == MPI_CONGRUENT);
    TRY(MPI_Comm_compare(dup, dup, &result));
    CHECK(result == MPI_IDENT);
    TRY(MPI_Comm_test_inter(dup, &inter));
    CHECK(!inter);
    TRY(MPI_Comm_idup(dup, &later, &request));
    TRY(MPI_Wait(&request, MPI_STATUS_IGNORE));
    TRY(MPI_Comm_compare(dup, later, &result));
    CHECK(result == MPI_CONGRUENT);
    TRY(MPI_Barrier(later));
    TRY(MPI_Comm_disconnect(&later));
    TRY(MPI_Comm_free(&dup));
}

static void try_session(void)
{
    MPI_Session session;
    MPI_Group group;
    MPI_Comm comm;
    int n, length = 0, members[64];
    char name[256];
    TRY(MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session));
    TRY(MPI_Session_get_num_psets(session, MPI_INFO_NULL, &n));
    CHECK(n >= 2);
    TRY(MPI_Session_get_nth_pset(session, MPI_INFO_NULL, 0, &length, NULL));
    CHECK(length == (int)strlen("mpi://WORLD") + 1);
    TRY(MPI_Session_get_nth_pset(session, MPI_INFO_NULL, 0, &length, name));
    CHECK(!strcmp(name, "mpi://WORLD"));
    TRY(MPI_Group_from_session_pset(session, name, &group));
    TRY(MPI_Comm_create_from_group(group, "session", MPI_INFO_NULL, MPI_ERRORS_RETURN, &comm));
    for (int r = 0; r < size; r++)
        members[r] = r;
    check_members(comm, size, members);
    TRY(MPI_Comm_free(&comm));
    TRY(MPI_Group_free(&group));
    TRY(MPI_Session_finalize(&session));
    CHECK(session == MPI_SESSION_NULL);
}

static void try_errors(void)
{
    MPI_Comm comm = MPI_COMM_WORLD;
    MPI_Group group = MPI_GROUP_NULL;
    int n, class;
    TRY(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    TRY(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN));
    n = MPI_Comm_free(&comm);
    TRY(MPI_Error_class(n, &class));
    CHECK(class == MPI_ERR_COMM);
    CHECK(MPI_Comm_size(MPI_COMM_NULL, &n) != MPI_SUCCESS);
    CHECK(MPI_Group_size(group, &n) != MPI_SUCCESS);
    n = MPI_Bcast(&n, 1, MPI_INT, size, MPI_COMM_WORLD);
    TRY(MPI_Error_class(n, &class));
    CHECK(class == MPI_ERR_ROOT);
    n = MPI_Bcast(&n, -1, MPI_INT, 0, MPI_COMM_WORLD);
    TRY(MPI_Error_class(n, &class));
    CHECK(class == MPI_ERR_COUNT);
    n = MPI_Allreduce(&n, &class, 1, MPI_INT, MPI_OP_NULL, MPI_COMM_WORLD);
    TRY(MPI_Error_class(n, &class));
    CHECK(class == MPI_ERR_OP);
    n = MPI_Allreduce(&n, &n, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    TRY(MPI_Error_class(n, &class));
    CHECK(class == MPI_ERR_BUFFER);
    TRY(MPI_Barrier(MPI_COMM_WORLD)); /* all goes on */
}

int main(int argc, char **argv)
{
    int all = 0, flag = 1, provided, last;
    char name[MPI_MAX_PROCESSOR_NAME];
    CHECK(MPI_Initialized(&flag) == MPI_SUCCESS && !flag);
    TRY(MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided));
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    CHECK(provided == MPI_THREAD_MULTIPLE);
    TRY(MPI_Is_thread_main(&flag));
    CHECK(flag);
    TRY(MPI_Get_processor_name(name, &last));
    CHECK(last == (int)strlen(name));
    TRY(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    try_split();
    try_create();
    try_groups();
    try_attributes();
    try_names();
    try_session();
    try_errors();
    MPI_Allreduce(&failures, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0)
        printf("communicators: %d failures on all ranks\n", all);
    int key;
    TRY(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, delete_fn, &key, NULL));
    deletes = 0;
    TRY(MPI_Comm_set_attr(MPI_COMM_SELF, key, (void *)1));
    TRY(MPI_Finalize());
    CHECK(deletes == 1);
    CHECK(MPI_Finalized(&flag) == MPI_SUCCESS && flag);
    return all != 0 || failures != 0;
}
