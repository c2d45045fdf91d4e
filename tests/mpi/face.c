/* SPDX-License-Identifier: Apache-2.0 */
/* face.c - a program of one rank or more for any ABI: handles, numbers, statuses and callbacks are
 * those of the mpi.h with which it was built. Prints what is wrong, and exits with 1. */
#include <limits.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int wrong;
#define CHECK(what)                                                                                \
    do {                                                                                           \
        if (!(what)) {                                                                             \
            printf("face.c:%d: %s\n", __LINE__, #what);                                            \
            wrong++;                                                                               \
        }                                                                                          \
    } while (0)
#define OK(call) CHECK((call) == MPI_SUCCESS)

static int class_of(int code)
{
    int class = -1;
    OK(MPI_Error_class(code, &class));
    return class;
}

/* ---------------------------------------------------------------- errors */

static MPI_Comm handler_comm;
static int handler_code, handler_calls;

static void on_error(MPI_Comm *comm, int *code, ...)
{
    handler_comm = *comm;
    handler_code = *code;
    handler_calls++;
}

static void check_errors(void)
{
    MPI_Comm dup, old;
    MPI_Errhandler handler, got;
    char text[MPI_MAX_ERROR_STRING];
    int rank, length = 0;

    OK(MPI_Comm_dup(MPI_COMM_WORLD, &dup));
    old = dup;
    OK(MPI_Comm_create_errhandler(on_error, &handler));
    OK(MPI_Comm_set_errhandler(dup, handler));
    OK(MPI_Comm_get_errhandler(dup, &got));
    CHECK(got == handler);
    OK(MPI_Errhandler_free(&got));
    CHECK(got == MPI_ERRHANDLER_NULL);
    OK(MPI_Errhandler_free(&handler));
    OK(MPI_Comm_call_errhandler(dup, MPI_ERR_TAG));
    CHECK(handler_calls == 1 && handler_comm == dup && handler_code == MPI_ERR_TAG);
    CHECK(class_of(MPI_Cartdim_get(dup, &rank)) == MPI_ERR_TOPOLOGY);
    CHECK(handler_calls == 2 && class_of(handler_code) == MPI_ERR_TOPOLOGY);
    OK(MPI_Error_string(handler_code, text, &length));
    CHECK(strstr(text, "MPI_ERR_TOPOLOGY") == text && (int)strlen(text) == length);
    OK(MPI_Comm_free(&dup));
    CHECK(dup == MPI_COMM_NULL);

    CHECK(class_of(MPI_Comm_rank(old, &rank)) == MPI_ERR_COMM);
    CHECK(class_of(MPI_Comm_rank(MPI_COMM_NULL, &rank)) == MPI_ERR_COMM);
    CHECK(class_of(MPI_Comm_rank((MPI_Comm)(size_t)0x7f0000, &rank)) == MPI_ERR_COMM);
    CHECK(class_of(MPI_Comm_rank((MPI_Comm)(size_t)MPI_INT, &rank)) == MPI_ERR_COMM);
    CHECK(class_of(MPI_Type_size((MPI_Datatype)(size_t)MPI_COMM_WORLD, &rank)) == MPI_ERR_TYPE);
    CHECK(class_of(MPI_Type_size(MPI_DATATYPE_NULL, &rank)) == MPI_ERR_TYPE);
    OK(MPI_Comm_get_errhandler(MPI_COMM_WORLD, &got));
    CHECK(got == MPI_ERRORS_RETURN);
}

static void check_codes(void)
{
    int class = 0, code = 0, *last, flag = 0, was;
    char text[MPI_MAX_ERROR_STRING];
    OK(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_LASTUSEDCODE, &last, &flag));
    was = *last;
    CHECK(flag && was >= MPI_ERR_LASTCODE);
    OK(MPI_Add_error_class(&class));
    CHECK(class > was);
    OK(MPI_Add_error_code(class, &code));
    CHECK(class_of(class) == class && class_of(code) == class);
    OK(MPI_Add_error_string(code, "a text of our own"));
    OK(MPI_Error_string(code, text, &flag));
    CHECK(strcmp(text, "a text of our own") == 0);
    OK(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_LASTUSEDCODE, &last, &flag));
    CHECK(*last == code);
    CHECK(class_of(MPI_Add_error_code(-5, &code)) == MPI_ERR_ARG);
    for (int i = 1; i <= MPI_ERR_ARG; i++)
        CHECK(class_of(i) == i);
}

/* ---------------------------------------------------------------- info */

static void check_info(void)
{
    MPI_Info info, dup, old;
    char value[MPI_MAX_INFO_VAL + 1] = "";
    int n = 0, flag = 0;
    OK(MPI_Info_create(&info));
    OK(MPI_Info_set(info, "one", "1"));
    OK(MPI_Info_set(info, "two", "22"));
    OK(MPI_Info_set(info, "one", "111"));
    OK(MPI_Info_get_nkeys(info, &n));
    CHECK(n == 2);
    OK(MPI_Info_get_nthkey(info, 1, value));
    CHECK(strcmp(value, "two") == 0);
    OK(MPI_Info_get(info, "one", 2, value, &flag));
    CHECK(flag && strcmp(value, "11") == 0);
    OK(MPI_Info_get_valuelen(info, "one", &n, &flag));
    CHECK(flag && n == 3);
    OK(MPI_Info_dup(info, &dup));
    OK(MPI_Info_delete(info, "one"));
    CHECK(class_of(MPI_Info_delete(info, "one")) == MPI_ERR_INFO_NOKEY);
    OK(MPI_Info_get(info, "one", 2, value, &flag));
    CHECK(!flag);
    OK(MPI_Info_get(dup, "one", 9, value, &flag));
    CHECK(flag && strcmp(value, "111") == 0);
    CHECK(class_of(MPI_Info_set(info, "", "x")) == MPI_ERR_INFO_KEY);
    old = info;
    OK(MPI_Info_free(&info));
    OK(MPI_Info_free(&dup));
    CHECK(info == MPI_INFO_NULL);
    CHECK(class_of(MPI_Info_get_nkeys(old, &n)) == MPI_ERR_INFO);
    OK(MPI_Info_get_nkeys(MPI_INFO_ENV, &n));
    CHECK(n > 0);
    for (int i = 0; i < 5000; i++) { /* handles are used again, and old ones stay invalid */
        OK(MPI_Info_create(&info));
        CHECK(info != old);
        OK(MPI_Info_free(&info));
    }
}

/* ---------------------------------------------------------------- numbers */

static void check_numbers(void)
{
    MPI_Group world, reversed;
    int result = -1, size, rank, in[3] = {0, MPI_PROC_NULL, 0}, out[3], level;
    int periods[1] = {0}, dims[1], source, dest, topology;
    MPI_Comm line;

    OK(MPI_Comm_size(MPI_COMM_WORLD, &size));
    OK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    OK(MPI_Comm_compare(MPI_COMM_WORLD, MPI_COMM_WORLD, &result));
    CHECK(result == MPI_IDENT);
    OK(MPI_Comm_compare(MPI_COMM_WORLD, MPI_COMM_SELF, &result));
    CHECK(result == (size == 1 ? MPI_CONGRUENT : MPI_UNEQUAL));
    OK(MPI_Comm_group(MPI_COMM_WORLD, &world));
    OK(MPI_Group_translate_ranks(world, 3, in, MPI_GROUP_EMPTY, out));
    CHECK(out[0] == MPI_UNDEFINED && out[1] == MPI_PROC_NULL && out[2] == MPI_UNDEFINED);
    OK(MPI_Group_rank(MPI_GROUP_EMPTY, &result));
    CHECK(result == MPI_UNDEFINED);
    OK(MPI_Group_incl(world, 0, in, &reversed));
    CHECK(reversed == MPI_GROUP_EMPTY);
    OK(MPI_Group_free(&world));
    OK(MPI_Query_thread(&level));
    CHECK(level == MPI_THREAD_SINGLE || level == MPI_THREAD_FUNNELED ||
          level == MPI_THREAD_SERIALIZED || level == MPI_THREAD_MULTIPLE);
    OK(MPI_Topo_test(MPI_COMM_WORLD, &topology));
    CHECK(topology == MPI_UNDEFINED);
    dims[0] = size;
    OK(MPI_Cart_create(MPI_COMM_WORLD, 1, dims, periods, 0, &line));
    OK(MPI_Topo_test(line, &topology));
    CHECK(topology == MPI_CART);
    OK(MPI_Cart_shift(line, 0, 1, &source, &dest));
    CHECK(source == (rank ? rank - 1 : MPI_PROC_NULL));
    CHECK(dest == (rank < size - 1 ? rank + 1 : MPI_PROC_NULL));
    OK(MPI_Comm_free(&line));
    OK(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &line));
    OK(MPI_Comm_free(&line));
    OK(MPI_Comm_split(MPI_COMM_WORLD, MPI_UNDEFINED, 0, &line));
    CHECK(line == MPI_COMM_NULL);
}

static void check_types(void)
{
    int sizes[2] = {4, 6}, parts[2] = {2, 3}, starts[2] = {1, 1}, n, addresses, types, combiner;
    int integers[32], size = 0;
    MPI_Aint places[4];
    MPI_Datatype sub, dark, inner[4], big;
    MPI_Count count = 0;

    OK(MPI_Type_create_subarray(2, sizes, parts, starts, MPI_ORDER_FORTRAN, MPI_DOUBLE, &sub));
    OK(MPI_Type_get_envelope(sub, &n, &addresses, &types, &combiner));
    CHECK(n == 8 && addresses == 0 && types == 1 && combiner == MPI_COMBINER_SUBARRAY);
    OK(MPI_Type_get_contents(sub, n, addresses, types, integers, places, inner));
    CHECK(integers[0] == 2 && integers[2] == 6 && integers[7] == MPI_ORDER_FORTRAN);
    CHECK(inner[0] == MPI_DOUBLE);
    OK(MPI_Type_free(&sub));
    CHECK(sub == MPI_DATATYPE_NULL);

    int distribs[2] = {MPI_DISTRIBUTE_BLOCK, MPI_DISTRIBUTE_CYCLIC};
    int dargs[2] = {MPI_DISTRIBUTE_DFLT_DARG, 2}, grid[2] = {2, 2};
    OK(MPI_Type_create_darray(4, 1, 2, sizes, distribs, dargs, grid, MPI_ORDER_C, MPI_INT, &dark));
    OK(MPI_Type_get_envelope(dark, &n, &addresses, &types, &combiner));
    CHECK(n == 12 && combiner == MPI_COMBINER_DARRAY);
    OK(MPI_Type_get_contents(dark, n, addresses, types, integers, places, inner));
    CHECK(integers[5] == MPI_DISTRIBUTE_BLOCK && integers[6] == MPI_DISTRIBUTE_CYCLIC);
    CHECK(integers[7] == MPI_DISTRIBUTE_DFLT_DARG && integers[8] == 2);
    CHECK(integers[11] == MPI_ORDER_C);
    OK(MPI_Type_free(&dark));

    OK(MPI_Type_contiguous(INT_MAX, MPI_DOUBLE, &big));
    OK(MPI_Type_size(big, &size));
    CHECK(size == MPI_UNDEFINED);
    OK(MPI_Type_size_c(big, &count));
    CHECK(count == 8 * (MPI_Count)INT_MAX);
    OK(MPI_Type_free(&big));
    OK(MPI_Type_match_size(MPI_TYPECLASS_REAL, 8, &big));
    OK(MPI_Type_size(big, &size));
    CHECK(size == 8);
    CHECK(MPI_Type_fromint(MPI_Type_toint(MPI_INT)) == MPI_INT);
    CHECK(MPI_Comm_fromint(MPI_Comm_toint(MPI_COMM_SELF)) == MPI_COMM_SELF);
}

static void check_status(void)
{
    MPI_Status status;
    int n = 0, flag = 0;
    memset(&status, 0, sizeof status);
    OK(MPI_Status_set_source(&status, MPI_ANY_SOURCE));
    OK(MPI_Status_set_tag(&status, MPI_ANY_TAG));
    OK(MPI_Status_set_error(&status, MPI_ERR_TRUNCATE));
    OK(MPI_Status_set_elements(&status, MPI_INT, 7));
    OK(MPI_Status_set_cancelled(&status, 1));
    CHECK(status.MPI_SOURCE == MPI_ANY_SOURCE && status.MPI_TAG == MPI_ANY_TAG);
    CHECK(status.MPI_ERROR == MPI_ERR_TRUNCATE);
    OK(MPI_Get_count(&status, MPI_INT, &n));
    CHECK(n == 7);
    OK(MPI_Get_count(&status, MPI_DOUBLE, &n));
    CHECK(n == MPI_UNDEFINED);
    OK(MPI_Test_cancelled(&status, &flag));
    CHECK(flag == 1);
    OK(MPI_Status_set_cancelled(&status, 0));
    OK(MPI_Status_set_elements_x(&status, MPI_BYTE, (MPI_Count)1 << 40));
    MPI_Count many = 0;
    OK(MPI_Get_elements_x(&status, MPI_BYTE, &many));
    CHECK(many == (MPI_Count)1 << 40);
    OK(MPI_Get_count(&status, MPI_BYTE, &n));
    CHECK(n == MPI_UNDEFINED);
    OK(MPI_Test_cancelled(&status, &flag));
    CHECK(flag == 0);
}

/* ---------------------------------------------------------------- callbacks */

static int copies, deletes;

static int copy_it(MPI_Comm comm, int key, void *extra, void *value, void *out, int *flag)
{
    CHECK(comm == MPI_COMM_WORLD && extra == &copies && key != MPI_KEYVAL_INVALID);
    *(void **)out = (char *)value + 1;
    *flag = 1;
    copies++;
    return MPI_SUCCESS;
}

static int delete_it(MPI_Comm comm, int key, void *value, void *extra)
{
    (void)comm;
    (void)key;
    (void)value;
    (void)extra;
    deletes++;
    return MPI_SUCCESS;
}

static int deny(MPI_Comm comm, int key, void *value, void *extra)
{
    (void)comm;
    (void)key;
    (void)value;
    (void)extra;
    return MPI_ERR_PENDING;
}

static void check_attributes(void)
{
    int key = 0, dup_key = 0, deny_key = 0, flag = 0, *bound;
    char at[4], *value;
    MPI_Comm dup;
    OK(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &bound, &flag));
    CHECK(flag && *bound >= 32767);
    OK(MPI_Comm_create_keyval(copy_it, delete_it, &key, &copies));
    OK(MPI_Comm_create_keyval(MPI_COMM_DUP_FN, MPI_COMM_NULL_DELETE_FN, &dup_key, NULL));
    OK(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, deny, &deny_key, NULL));
    OK(MPI_Comm_set_attr(MPI_COMM_WORLD, key, at));
    OK(MPI_Comm_set_attr(MPI_COMM_WORLD, dup_key, at + 2));
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &dup));
    OK(MPI_Comm_get_attr(dup, key, &value, &flag));
    CHECK(flag && value == at + 1 && copies == 1);
    OK(MPI_Comm_get_attr(dup, dup_key, &value, &flag));
    CHECK(flag && value == at + 2);
    OK(MPI_Comm_set_attr(dup, deny_key, at));
    CHECK(class_of(MPI_Comm_delete_attr(dup, deny_key)) == MPI_ERR_PENDING);
    OK(MPI_Comm_get_attr(dup, deny_key, &value, &flag));
    CHECK(flag);
    OK(MPI_Comm_delete_attr(MPI_COMM_WORLD, key));
    CHECK(deletes == 1);
    OK(MPI_Comm_delete_attr(MPI_COMM_WORLD, dup_key));
    OK(MPI_Comm_free_keyval(&dup_key));
    CHECK(dup_key == MPI_KEYVAL_INVALID);
}

static void add(void *in, void *inout, int *count, MPI_Datatype *type)
{
    CHECK(*type == MPI_INT);
    for (int i = 0; i < *count; i++)
        ((int *)inout)[i] += ((int *)in)[i];
}

static void check_collectives(void)
{
    int size, rank, in[5], out[5], place[2];
    MPI_Op op;
    OK(MPI_Comm_size(MPI_COMM_WORLD, &size));
    OK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    for (int i = 0; i < 5; i++)
        in[i] = rank + i;
    OK(MPI_Allreduce(in, out, 5, MPI_INT, MPI_MAX, MPI_COMM_WORLD));
    for (int i = 0; i < 5; i++)
        CHECK(out[i] == size - 1 + i);
    place[0] = rank;
    place[1] = 1;
    OK(MPI_Allreduce(MPI_IN_PLACE, place, 2, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    CHECK(place[0] == size * (size - 1) / 2 && place[1] == size);
    OK(MPI_Op_create(add, 1, &op));
    OK(MPI_Reduce_local(in, out, 5, MPI_INT, op));
    for (int i = 0; i < 5; i++)
        CHECK(out[i] == size - 1 + i + rank + i);
    OK(MPI_Op_free(&op));
    CHECK(op == MPI_OP_NULL);
}

int main(int argc, char **argv)
{
    int major = 0, minor = 0, length;
    char text[MPI_MAX_LIBRARY_VERSION_STRING];
    double start;
    OK(MPI_Get_version(&major, &minor));
    CHECK(major == MPI_VERSION && minor == MPI_SUBVERSION);
    OK(MPI_Get_library_version(text, &length));
    CHECK((int)strlen(text) == length);
    OK(MPI_Init(&argc, &argv));
    start = MPI_Wtime();
    OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    OK(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN));
    check_errors();
    check_codes();
    check_info();
    check_numbers();
    check_types();
    check_status();
    check_attributes();
    check_collectives();
    CHECK(MPI_Wtime() >= start && MPI_Wtick() > 0);
    OK(MPI_Finalize());
    return wrong != 0;
}
