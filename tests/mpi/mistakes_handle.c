/* SPDX-License-Identifier: Apache-2.0 */
/* mistakes_handle.c - handles that were freed, are of another kind, or were never made. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "mistakes.h"

static int in[64], out[64];

static int freed_comm(int rank)
{
    MPI_Comm copy = copy_of_world(), old = copy;
    (void)rank;
    MPI_Comm_free(&copy);
    return MPI_Barrier(old);
}

static int comm_freed_twice(int rank)
{
    MPI_Comm copy = copy_of_world(), old = copy;
    (void)rank;
    MPI_Comm_free(&copy);
    return MPI_Comm_free(&old);
}

static int world_freed(int rank)
{
    MPI_Comm world = MPI_COMM_WORLD;
    (void)rank;
    return MPI_Comm_free(&world);
}

static int null_freed(int rank)
{
    MPI_Comm null = MPI_COMM_NULL;
    (void)rank;
    return MPI_Comm_free(&null);
}

static MPI_Datatype two_ints(void)
{
    MPI_Datatype two;
    MPI_Type_contiguous(2, MPI_INT, &two);
    MPI_Type_commit(&two);
    return two;
}

static int freed_type(int rank)
{
    MPI_Datatype two = two_ints(), old = two;
    MPI_Type_free(&two);
    return MPI_Send(out, 1, old, !rank, 1, MPI_COMM_WORLD);
}

/* MPI permits it: the type ends when the receive does. */
static int type_freed_in_use(int rank)
{
    MPI_Datatype two = two_ints();
    MPI_Request r;
    out[1] = 17;
    MPI_Irecv(in, 1, two, !rank, 1, MPI_COMM_WORLD, &r);
    MPI_Type_free(&two);
    MPI_Send(out, 2, MPI_INT, !rank, 1, MPI_COMM_WORLD);
    return MPI_Wait(&r, MPI_STATUS_IGNORE) || in[1] != 17;
}

static int type_freed_twice(int rank)
{
    MPI_Datatype two = two_ints(), old = two;
    (void)rank;
    MPI_Type_free(&two);
    return MPI_Type_free(&old);
}

static int basic_type_freed(int rank)
{
    MPI_Datatype basic = MPI_INT;
    (void)rank;
    return MPI_Type_free(&basic);
}

static void add(void *a, void *b, int *count, MPI_Datatype *type)
{
    (void)type;
    for (int i = 0; i < *count; i++)
        ((int *)b)[i] += ((int *)a)[i];
}

static int freed_op(int rank)
{
    MPI_Op op, old;
    (void)rank;
    MPI_Op_create(add, 1, &op);
    old = op;
    MPI_Op_free(&op);
    return MPI_Allreduce(in, out, 1, MPI_INT, old, MPI_COMM_WORLD);
}

static int basic_op_freed(int rank)
{
    MPI_Op op = MPI_SUM;
    (void)rank;
    return MPI_Op_free(&op);
}

static int freed_group(int rank)
{
    MPI_Group group, old;
    (void)rank;
    MPI_Comm_group(MPI_COMM_WORLD, &group);
    old = group;
    MPI_Group_free(&group);
    return MPI_Group_size(old, &in[0]);
}

static int freed_errhandler(int rank)
{
    MPI_Errhandler handler, old;
    (void)rank;
    MPI_Comm_create_errhandler((MPI_Comm_errhandler_function *)add, &handler);
    old = handler;
    MPI_Errhandler_free(&handler);
    return MPI_Comm_set_errhandler(MPI_COMM_WORLD, old);
}

static int freed_info(int rank)
{
    MPI_Info info, old;
    (void)rank;
    MPI_Info_create(&info);
    old = info;
    MPI_Info_free(&info);
    return MPI_Info_set(old, "a", "b");
}

static int freed_key(int rank)
{
    int key, old;
    (void)rank;
    MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, MPI_COMM_NULL_DELETE_FN, &key, NULL);
    old = key;
    MPI_Comm_free_keyval(&key);
    return MPI_Comm_set_attr(MPI_COMM_WORLD, old, in);
}

static int group_as_comm(int rank)
{
    MPI_Group group;
    (void)rank;
    MPI_Comm_group(MPI_COMM_WORLD, &group);
    return MPI_Barrier((MPI_Comm)(void *)group);
}

static int op_as_type(int rank)
{
    (void)rank;
    return MPI_Send(out, 1, (MPI_Datatype)(void *)MPI_SUM, 0, 1, MPI_COMM_WORLD);
}

static int type_as_op(int rank)
{
    (void)rank;
    return MPI_Allreduce(in, out, 1, MPI_INT, (MPI_Op)(void *)MPI_INT, MPI_COMM_WORLD);
}

static int garbage_comm(int rank)
{
    (void)rank;
    return MPI_Barrier((MPI_Comm)(uintptr_t)0xdeadbeefcafe);
}

static int unset_type(int rank)
{
    (void)rank;
    return MPI_Type_commit(&(MPI_Datatype){0});
}

/* The handle of another library, which is a small number there. */
static int foreign_comm(int rank)
{
    (void)rank;
    return MPI_Barrier((MPI_Comm)(uintptr_t)0x44000000);
}

/* It is said on request only. */
static int comm_leaked(int rank)
{
    (void)rank;
    setenv("HALAY_DEBUG", "info", 1);
    MPI_Init(NULL, NULL);
    copy_of_world();
    return MPI_Finalize();
}

/* Requests still use it, and the program may not. */
static int freed_comm_in_use(int rank)
{
    MPI_Comm copy = copy_of_world(), old = copy;
    MPI_Request r;
    MPI_Irecv(in, 1, MPI_INT, !rank, 1, copy, &r);
    MPI_Comm_free(&copy);
    return MPI_Barrier(old);
}

#define BAD  "invalid parameter"
#define LEAK "resource leak"
const struct mistake mistakes_handle[] = {
    {"freed_comm", 2, ONE, BAD, "MPI_Barrier: the handle of a communicator", freed_comm, 0},
    {"comm_freed_twice", 2, ONE, BAD, "MPI_Comm_free: the handle", comm_freed_twice, 0},
    {"world_freed", 2, ONE, BAD, "MPI_COMM_WORLD cannot be freed", world_freed, 0},
    {"null_freed", 1, ONE, BAD, "MPI_COMM_NULL", null_freed, 0},
    {"freed_type", 2, ONE, BAD, "MPI_Send: the handle of a datatype", freed_type, 0},
    {"type_freed_in_use", 2, FINE, BAD, "", type_freed_in_use, 0},
    {"type_freed_twice", 1, ONE, BAD, "MPI_Type_free", type_freed_twice, 0},
    {"basic_type_freed", 1, ONE, BAD, "MPI_Type_free", basic_type_freed, 0},
    {"freed_op", 2, ONE, BAD, "MPI_Allreduce: the handle", freed_op, 0},
    {"basic_op_freed", 1, ONE, BAD, "MPI_Op_free", basic_op_freed, 0},
    {"freed_group", 1, ONE, BAD, "MPI_Group_size: the handle", freed_group, 0},
    {"freed_errhandler", 1, ONE, BAD, "MPI_Comm_set_errhandler", freed_errhandler, 0},
    {"freed_info", 1, ONE, BAD, "MPI_Info_set", freed_info, 0},
    {"freed_key", 1, ONE, BAD, "MPI_Comm_set_attr", freed_key, 0},
    {"group_as_comm", 2, ONE, BAD, "MPI_Barrier", group_as_comm, 0},
    {"op_as_type", 1, ONE, BAD, "MPI_Send", op_as_type, 0},
    {"type_as_op", 2, ONE, BAD, "MPI_Allreduce", type_as_op, 0},
    {"garbage_comm", 2, ONE, BAD, "MPI_Barrier", garbage_comm, 0},
    {"unset_type", 1, ONE, BAD, "MPI_Type_commit", unset_type, 0},
    {"foreign_comm", 2, ONE, BAD, "MPI_Barrier", foreign_comm, 0},
    {"comm_leaked", 2, TOLD, LEAK, "1 communicator was not freed", comm_leaked, 1},
    {"freed_comm_in_use", 2, ONE, BAD, "MPI_Barrier: the communicator was freed", freed_comm_in_use,
     0},
    {0},
};
