/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fortran.c - what MPICH's Fortran library calls in libmpi.so.12: attributes that are integers,
 * seen from C as well, and functions with Fortran's arguments. It plays that library's part.
 */
#include <dlfcn.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define CHECK(what)                                                                                \
    do {                                                                                           \
        if (!(what)) {                                                                             \
            printf("%s:%d: wrong: %s\n", __FILE__, __LINE__, #what);                               \
            wrong = 1;                                                                             \
        }                                                                                          \
    } while (0)

enum { ADDRESS = 1, INTEGER = 3 };
typedef void function(void);
int MPII_Comm_set_attr(MPI_Comm comm, int keyval, void *value, int type);
int MPII_Comm_get_attr(MPI_Comm comm, int keyval, void *value, int *flag, int type);
int MPII_Type_set_attr(MPI_Datatype type, int keyval, void *value, int kind);
int MPII_Type_get_attr(MPI_Datatype type, int keyval, void *value, int *flag, int kind);
void MPII_Keyval_set_proxy(int keyval,
                           int (*copy)(function *, int, int, void *, int, void *, void **, int *),
                           int (*remove)(function *, int, int, int, void *, void *));
void MPII_Grequest_set_lang_f77(MPI_Request request);

static int wrong;
static intptr_t deleted[8], n_deleted;

/* ---------------------------------------------------------------- a program in Fortran */

static void copy_f(const int *comm, const int *key, const intptr_t *extra, const intptr_t *in,
                   intptr_t *out, int *flag, int *code)
{
    CHECK(*comm && *key);
    *out = *in + *extra;
    *flag = 1;
    *code = 0;
}

static void delete_f(const int *comm, const int *key, const intptr_t *in, const intptr_t *extra,
                     int *code)
{
    CHECK(*comm && *key && *extra == 7);
    deleted[n_deleted++ & 7] = *in;
    *code = 0;
}

static void query_f(const intptr_t *extra, MPI_Status *status, int *code)
{
    MPI_Status_set_elements(status, MPI_INT, (int)*extra);
    MPI_Status_set_cancelled(status, 0);
    status->MPI_SOURCE = 5;
    *code = 0;
}

static void free_f(intptr_t *extra, int *code)
{
    *extra += 1;
    *code = 0;
}

static void cancel_f(intptr_t *extra, const int *complete, int *code)
{
    *extra += *complete ? 100 : 10;
    *code = 0;
}

/* ---------------------------------------------------------------- its library */

static int call_copy(function *fn, int handle, int key, void *extra, int type, void *value,
                     void **copy, int *flag)
{
    intptr_t in = (intptr_t)value, out = 0;
    int code = 0;
    CHECK(type == ADDRESS);
    ((void (*)(int *, int *, void *, intptr_t *, intptr_t *, int *, int *))fn)(
        &handle, &key, extra, &in, &out, flag, &code);
    *copy = (void *)out;
    return code;
}

static int call_delete(function *fn, int handle, int key, int type, void *value, void *extra)
{
    intptr_t in = (intptr_t)value;
    int code = 0;
    CHECK(type == ADDRESS);
    ((void (*)(int *, int *, intptr_t *, void *, int *))fn)(&handle, &key, &in, extra, &code);
    return code;
}

/* ---------------------------------------------------------------- tests */

/* A keyval of a program in Fortran: its functions get integers, C gets a pointer to one. */
static void test_functions(void)
{
    static intptr_t extra = 7;
    intptr_t value = 0, *seen = NULL;
    int key, flag = 0;
    MPI_Comm copy;
    MPI_Comm_create_keyval((MPI_Comm_copy_attr_function *)(function *)copy_f,
                           (MPI_Comm_delete_attr_function *)(function *)delete_f, &key, &extra);
    MPII_Keyval_set_proxy(key, call_copy, call_delete);
    MPII_Keyval_set_proxy(key, call_copy, call_delete); /* again: no other meaning */
    MPII_Comm_set_attr(MPI_COMM_SELF, key, (void *)1000, ADDRESS);
    MPI_Comm_dup(MPI_COMM_SELF, &copy);
    CHECK(!MPII_Comm_get_attr(copy, key, &value, &flag, ADDRESS) && flag && value == 1007);
    CHECK(!MPI_Comm_get_attr(copy, key, &seen, &flag) && flag && *seen == 1007);
    MPII_Comm_set_attr(copy, key, (void *)-3, INTEGER);
    CHECK(n_deleted == 1 && deleted[0] == 1007);
    CHECK(!MPII_Comm_get_attr(copy, key, &value, &flag, INTEGER) && flag && value == -3);
    MPI_Comm_free(&copy);
    CHECK(n_deleted == 2 && deleted[1] == -3);
    MPI_Comm_delete_attr(MPI_COMM_SELF, key);
    CHECK(n_deleted == 3 && deleted[2] == 1000);
    CHECK(!MPII_Comm_get_attr(MPI_COMM_SELF, key, &value, &flag, ADDRESS) && !flag);
    MPI_Comm_free_keyval(&key);
}

static int copy_c(MPI_Comm comm, int key, void *extra, void *value, void *out, int *flag)
{
    CHECK(comm == MPI_COMM_SELF && key && *(intptr_t *)value == 42);
    memcpy(out, &extra, sizeof extra);
    *flag = 1;
    return MPI_SUCCESS;
}

/* A keyval of a program in C, whose attribute one in Fortran sets; and the other way round. */
static void test_both(void)
{
    static int there;
    intptr_t value = 0, *seen = NULL;
    void *pointer = NULL;
    int key, same, flag = 0;
    MPI_Comm copy;
    MPI_Comm_create_keyval(copy_c, MPI_COMM_NULL_DELETE_FN, &key, &there);
    MPI_Comm_create_keyval(MPI_COMM_DUP_FN, MPI_COMM_NULL_DELETE_FN, &same, NULL);
    MPII_Comm_set_attr(MPI_COMM_SELF, key, (void *)42, ADDRESS);
    MPII_Comm_set_attr(MPI_COMM_SELF, same, (void *)43, ADDRESS);
    MPI_Comm_dup(MPI_COMM_SELF, &copy);
    CHECK(!MPI_Comm_get_attr(copy, key, &pointer, &flag) && flag && pointer == &there);
    CHECK(!MPII_Comm_get_attr(copy, same, &value, &flag, ADDRESS) && flag && value == 43);
    CHECK(!MPI_Comm_get_attr(copy, same, &seen, &flag) && flag && *seen == 43);
    MPI_Comm_set_attr(copy, same, &there);
    CHECK(!MPII_Comm_get_attr(copy, same, &value, &flag, ADDRESS) && value == (intptr_t)&there);
    MPI_Comm_free(&copy);
    MPI_Comm_delete_attr(MPI_COMM_SELF, key);
    MPI_Comm_delete_attr(MPI_COMM_SELF, same);
    MPI_Comm_free_keyval(&key);
    MPI_Comm_free_keyval(&same);
}

static void test_types(void)
{
    intptr_t value = 0;
    int key, flag = 0;
    MPI_Datatype two, copy;
    MPI_Type_contiguous(2, MPI_INT, &two);
    MPI_Type_create_keyval(MPI_TYPE_DUP_FN, MPI_TYPE_NULL_DELETE_FN, &key, NULL);
    MPII_Type_set_attr(two, key, (void *)-5, ADDRESS);
    MPI_Type_dup(two, &copy);
    CHECK(!MPII_Type_get_attr(copy, key, &value, &flag, ADDRESS) && flag && value == -5);
    MPI_Type_free(&two);
    MPI_Type_free(&copy);
    MPI_Type_free_keyval(&key);
}

/* Fortran's numbers of the predefined attributes are C's and 1. */
static void test_predefined(void)
{
    intptr_t value = 0;
    int flag = 0, size, *c = NULL;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    CHECK(!MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &c, &flag) && flag);
    CHECK(!MPII_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB + 1, &value, &flag, ADDRESS) && flag);
    CHECK(value == *c && value >= 32767);
    MPII_Comm_get_attr(MPI_COMM_WORLD, MPI_UNIVERSE_SIZE + 1, &value, &flag, ADDRESS);
    CHECK(flag && value == size);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    CHECK(MPII_Comm_get_attr(MPI_COMM_WORLD, 12345, &value, &flag, ADDRESS));
    CHECK(MPII_Comm_set_attr(MPI_COMM_WORLD, 12345, NULL, ADDRESS));
    CHECK(MPII_Comm_get_attr(MPI_COMM_NULL, MPI_TAG_UB + 1, &value, &flag, ADDRESS));
    CHECK(MPII_Type_set_attr(MPI_DATATYPE_NULL, 12345, NULL, ADDRESS));
}

static void test_request(void)
{
    intptr_t extra = 3;
    int count = 0;
    MPI_Request request;
    MPI_Status status;
    MPI_Grequest_start((MPI_Grequest_query_function *)(function *)query_f,
                       (MPI_Grequest_free_function *)(function *)free_f,
                       (MPI_Grequest_cancel_function *)(function *)cancel_f, &extra, &request);
    MPII_Grequest_set_lang_f77(request);
    MPI_Cancel(&request);
    CHECK(extra == 13);
    MPI_Grequest_complete(request);
    MPI_Wait(&request, &status);
    MPI_Get_count(&status, MPI_INT, &count);
    CHECK(extra == 14 && count == 13 && status.MPI_SOURCE == 5);
}

int main(int argc, char **argv)
{
    void *debian = dlopen("libmpich.so.12", RTLD_NOW);
    CHECK(debian && dlsym(debian, "MPI_Init") == dlsym(RTLD_DEFAULT, "MPI_Init"));
    MPI_Init(&argc, &argv);
    test_functions();
    test_both();
    test_types();
    test_predefined();
    test_request();
    MPI_Finalize();
    return wrong;
}
