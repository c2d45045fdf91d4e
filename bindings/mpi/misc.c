/* SPDX-License-Identifier: Apache-2.0 */
/* misc.c - small functions of MPI that need no other part: versions, what the ABI says of Fortran,
 * memory, members of a status. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "error.h"

static int null_result(const char *function)
{
    return hly_mpi_fail(MPI_ERR_ARG, "%s: the address of a result is NULL", function);
}

/* ---------------------------------------------------------------- versions */

int hly_mpi_get_version(int *version, int *subversion)
{
    if (!version || !subversion)
        return null_result("MPI_Get_version");
    *version = 5;
    *subversion = 0;
    return MPI_SUCCESS;
}

int hly_mpi_get_library_version(char *version, int *resultlen)
{
    if (!version || !resultlen)
        return null_result("MPI_Get_library_version");
    *resultlen = snprintf(version, MPI_MAX_LIBRARY_VERSION_STRING, "Halay %s, %s", halay_version(),
                          hly_mpi_this_face.name);
    return MPI_SUCCESS;
}

/* ---------------------------------------------------------------- the ABI and Fortran */

static struct {
    pthread_mutex_t lock;
    struct hly_mpi_info *info; /* NULL: not set */
    int bytes;                 /* of a LOGICAL; 0: not set */
    char yes[16], no[16];
} fortran = {.lock = PTHREAD_MUTEX_INITIALIZER};

int hly_mpi_abi_get_info(struct hly_mpi_info **info)
{
    static const char *const keys[] = {"mpi_aint_size", "mpi_count_size", "mpi_offset_size"};
    int rc = hly_mpi_info_create(info);
    for (int i = 0; !rc && i < 3; i++)
        rc = hly_mpi_info_set(*info, keys[i], "8");
    return rc;
}

int hly_mpi_abi_get_fortran_info(struct hly_mpi_info **info)
{
    pthread_mutex_lock(&fortran.lock);
    int rc = MPI_SUCCESS;
    *info = NULL;
    if (fortran.info)
        rc = hly_mpi_info_dup(fortran.info, info);
    pthread_mutex_unlock(&fortran.lock);
    return rc;
}

int hly_mpi_abi_set_fortran_info(struct hly_mpi_info *info)
{
    pthread_mutex_lock(&fortran.lock);
    int rc = fortran.info
                 ? hly_mpi_fail(MPI_ERR_ABI, "MPI_Abi_set_fortran_info: it was called before")
                 : hly_mpi_info_dup(info, &fortran.info);
    pthread_mutex_unlock(&fortran.lock);
    return rc;
}

int hly_mpi_abi_get_fortran_booleans(int logical_size, void *logical_true, void *logical_false,
                                     int *is_set)
{
    if (!is_set)
        return null_result("MPI_Abi_get_fortran_booleans");
    pthread_mutex_lock(&fortran.lock);
    int rc = MPI_SUCCESS;
    *is_set = fortran.bytes != 0;
    if (fortran.bytes && fortran.bytes != logical_size) {
        rc = hly_mpi_fail(MPI_ERR_ARG,
                          "MPI_Abi_get_fortran_booleans: a LOGICAL has %d bytes, not %d",
                          fortran.bytes, logical_size);
    } else if (fortran.bytes && logical_true && logical_false) {
        memcpy(logical_true, fortran.yes, (size_t)fortran.bytes);
        memcpy(logical_false, fortran.no, (size_t)fortran.bytes);
    }
    pthread_mutex_unlock(&fortran.lock);
    return rc;
}

int hly_mpi_abi_set_fortran_booleans(int logical_size, void *logical_true, void *logical_false)
{
    int n = logical_size;
    if ((n != 1 && n != 2 && n != 4 && n != 8 && n != 16) || !logical_true || !logical_false)
        return hly_mpi_fail(
            MPI_ERR_ARG, "MPI_Abi_set_fortran_booleans: the size is %d, or an address is NULL", n);
    pthread_mutex_lock(&fortran.lock);
    int rc = MPI_SUCCESS;
    if (fortran.bytes) {
        rc = hly_mpi_fail(MPI_ERR_ABI, "MPI_Abi_set_fortran_booleans: it was called before");
    } else {
        fortran.bytes = n;
        memcpy(fortran.yes, logical_true, (size_t)n);
        memcpy(fortran.no, logical_false, (size_t)n);
    }
    pthread_mutex_unlock(&fortran.lock);
    return rc;
}

/* ---------------------------------------------------------------- memory */

int hly_mpi_alloc_mem(int64_t size, struct hly_mpi_info *info, void *baseptr)
{
    (void)info;
    void *memory = NULL;
    if (!baseptr)
        return null_result("MPI_Alloc_mem");
    if (size < 0)
        return hly_mpi_fail(MPI_ERR_ARG, "MPI_Alloc_mem: the size is %lld: it has to be 0 or more",
                            (long long)size);
    if (posix_memalign(&memory, 64, size ? (size_t)size : 1))
        return hly_mpi_fail(MPI_ERR_NO_MEM, "MPI_Alloc_mem: no memory for %lld bytes",
                            (long long)size);
    memcpy(baseptr, &memory, sizeof memory);
    return MPI_SUCCESS;
}

int hly_mpi_free_mem(void *base)
{
    free(base);
    return MPI_SUCCESS;
}

/* The library knows nothing of the hardware that MPI has keys for: so there are none. */
int hly_mpi_get_hw_resource_info(struct hly_mpi_info **hw_info)
{
    return hly_mpi_info_create(hw_info);
}

/* ---------------------------------------------------------------- members of a status */

int hly_mpi_status_get_source(const struct hly_mpi_status *status, int *source)
{
    if (!source)
        return null_result("MPI_Status_get_source");
    *source = status->source;
    return MPI_SUCCESS;
}

int hly_mpi_status_get_tag(const struct hly_mpi_status *status, int *tag)
{
    if (!tag)
        return null_result("MPI_Status_get_tag");
    *tag = status->tag;
    return MPI_SUCCESS;
}

int hly_mpi_status_get_error(const struct hly_mpi_status *status, int *error)
{
    if (!error)
        return null_result("MPI_Status_get_error");
    *error = status->error;
    return MPI_SUCCESS;
}

int hly_mpi_status_set_source(struct hly_mpi_status *status, int source)
{
    status->source = source;
    return MPI_SUCCESS;
}

int hly_mpi_status_set_tag(struct hly_mpi_status *status, int tag)
{
    status->tag = tag;
    return MPI_SUCCESS;
}

int hly_mpi_status_set_error(struct hly_mpi_status *status, int error)
{
    status->error = error;
    return MPI_SUCCESS;
}

int hly_mpi_status_set_cancelled(struct hly_mpi_status *status, int flag)
{
    status->cancelled = flag != 0;
    return MPI_SUCCESS;
}

int hly_mpi_test_cancelled(const struct hly_mpi_status *status, int *flag)
{
    if (!flag)
        return null_result("MPI_Test_cancelled");
    *flag = status->cancelled;
    return MPI_SUCCESS;
}
