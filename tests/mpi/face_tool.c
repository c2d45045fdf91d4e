/* SPDX-License-Identifier: Apache-2.0 */
/* face_tool.c - MPI_T, and PMPI: a program's own MPI_Comm_size() is called instead of the
 * library's, and reaches that by PMPI_Comm_size(). Prints what is wrong, and exits with 1. */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

static int wrong, calls;
#define CHECK(what)                                                                                \
    do {                                                                                           \
        if (!(what)) {                                                                             \
            printf("face_tool.c:%d: %s\n", __LINE__, #what);                                       \
            wrong++;                                                                               \
        }                                                                                          \
    } while (0)
#define OK(call) CHECK((call) == MPI_SUCCESS)

int MPI_Comm_size(MPI_Comm comm, int *size)
{
    calls++;
    return PMPI_Comm_size(comm, size);
}

/* All but the interface's beginning and end fail before MPI_T_init_thread. */
static void check_not_ready(void)
{
    int n = 0;
    MPI_T_pvar_session session;
    CHECK(MPI_T_pvar_get_num(&n) == MPI_T_ERR_NOT_INITIALIZED);
    CHECK(MPI_T_cvar_get_num(&n) == MPI_T_ERR_NOT_INITIALIZED);
    CHECK(MPI_T_pvar_session_create(&session) == MPI_T_ERR_NOT_INITIALIZED);
    CHECK(MPI_T_finalize() == MPI_T_ERR_NOT_INITIALIZED);
}

static void check_info(int index, const char *want)
{
    char name[64], text[256], small[5];
    int name_bytes = sizeof name, text_bytes = sizeof text, verbosity, class, bind, readonly;
    int continuous, atomic, found = -1;
    MPI_Datatype type;
    MPI_T_enum values;
    OK(MPI_T_pvar_get_info(index, name, &name_bytes, &verbosity, &class, &type, &values, text,
                           &text_bytes, &bind, &readonly, &continuous, &atomic));
    CHECK(strcmp(name, want) == 0 && name_bytes == (int)strlen(want) + 1);
    CHECK(text_bytes == (int)strlen(text) + 1 && class == MPI_T_PVAR_CLASS_COUNTER);
    CHECK(type == MPI_UNSIGNED_LONG_LONG && values == MPI_T_ENUM_NULL);
    CHECK(bind == MPI_T_BIND_NO_OBJECT && readonly && continuous && !atomic);
    CHECK(verbosity == MPI_T_VERBOSITY_USER_BASIC);
    name_bytes = sizeof small;
    OK(MPI_T_pvar_get_info(index, small, &name_bytes, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
                           NULL, NULL, NULL));
    CHECK(strncmp(small, want, 4) == 0 && small[4] == 0 && name_bytes == (int)strlen(want) + 1);
    OK(MPI_T_pvar_get_index(want, MPI_T_PVAR_CLASS_COUNTER, &found));
    CHECK(found == index);
    CHECK(MPI_T_pvar_get_index(want, MPI_T_PVAR_CLASS_TIMER, &found) == MPI_T_ERR_INVALID_NAME);
}

static void check_reads(int index)
{
    MPI_T_pvar_session session, other;
    MPI_T_pvar_handle handle;
    unsigned long long before = 0, after = 0;
    int count = 0, size = 0;
    OK(MPI_T_pvar_session_create(&session));
    OK(MPI_T_pvar_session_create(&other));
    OK(MPI_T_pvar_handle_alloc(session, index, NULL, &handle, &count));
    CHECK(count == 1);
    OK(MPI_T_pvar_read(session, handle, &before));
    for (int i = 0; i < 10; i++)
        OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_T_pvar_read(session, handle, &after));
    OK(MPI_Comm_size(MPI_COMM_WORLD, &size));
    CHECK(after >= before + 10);
    CHECK(MPI_T_pvar_read(other, handle, &after) == MPI_T_ERR_INVALID_HANDLE);
    CHECK(MPI_T_pvar_write(session, handle, &after) == MPI_T_ERR_PVAR_NO_WRITE);
    CHECK(MPI_T_pvar_start(session, handle) == MPI_T_ERR_PVAR_NO_STARTSTOP);
    OK(MPI_T_pvar_start(session, MPI_T_PVAR_ALL_HANDLES));
    OK(MPI_T_pvar_handle_free(session, &handle));
    CHECK(handle == MPI_T_PVAR_HANDLE_NULL);
    OK(MPI_T_pvar_session_free(&session));
    CHECK(session == MPI_T_PVAR_SESSION_NULL);
    CHECK(MPI_T_pvar_session_free(&session) == MPI_T_ERR_INVALID_SESSION);
    OK(MPI_T_pvar_session_free(&other));
}

int main(int argc, char **argv)
{
    int level = 0, pvars = 0, n = -1, size = 0;
    check_not_ready();
    OK(MPI_T_init_thread(MPI_THREAD_SINGLE, &level));
    OK(MPI_T_pvar_get_num(&pvars));
    OK(MPI_T_cvar_get_num(&n));
    CHECK(pvars > 4 && n == 0);
    CHECK(MPI_T_category_get_num_events(0, &n) == MPI_T_ERR_INVALID_INDEX);
    CHECK(MPI_T_cvar_get_index("x", &n) == MPI_T_ERR_INVALID_NAME);
    CHECK(MPI_T_pvar_get_info(pvars, NULL, &n, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
                              NULL) == MPI_T_ERR_INVALID_INDEX);
    check_info(4, "halay_operations");
    OK(MPI_Init(&argc, &argv));
    OK(MPI_Comm_size(MPI_COMM_WORLD, &size));
    CHECK(calls == 1 && size > 0);
    check_reads(4);
    OK(MPI_T_finalize());
    OK(MPI_Finalize());
    return wrong != 0;
}
