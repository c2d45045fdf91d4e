/* SPDX-License-Identifier: Apache-2.0 */
/* comm.c - what a communicator is, and what it has: ranks, name, info, groups. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm.h"

int hly_mpi_check_comm(const char *function, const struct hly_mpi_comm *comm)
{
    if (__builtin_expect(comm && !comm->freed, 1))
        return MPI_SUCCESS;
    if (comm)
        return hly_mpi_fail(MPI_ERR_COMM, "%s: the communicator was freed", function);
    const int rc = hly_mpi_check_job(function);
    return rc ? rc : hly_mpi_fail(MPI_ERR_COMM, "%s: the communicator is MPI_COMM_NULL", function);
}

/* The last user has gone: the program, requests, and other communicators. */
static void end_comm(void *object)
{
    struct hly_mpi_comm *comm = object;
    if (comm->halay && hly_mpi_job.context)
        halay_comm_free(comm->halay);
    hly_mpi_drop(comm->group);
    hly_mpi_drop(comm->remote);
    hly_mpi_drop(comm->errhandler);
    hly_mpi_drop(comm->info);
    hly_mpi_comm_tags_free(comm->tags);
    hly_mpi_buffer_free(comm->buffer);
    free(comm->topology);
}

void hly_mpi_comm_close(struct hly_mpi_comm *comm)
{
    end_comm(comm);
    comm->halay = NULL;
}

void hly_mpi_comms_open(void)
{
    hly_mpi_object_ends(HLY_MPI_COMM, end_comm);
}

int hly_mpi_comm_make(const char *function, halay_comm_t *halay, struct hly_mpi_group *group,
                      const struct hly_mpi_comm *parent, struct hly_mpi_comm **made)
{
    struct hly_mpi_comm *comm =
        halay && group ? hly_mpi_object_new(HLY_MPI_COMM, sizeof(*comm)) : NULL;
    if (!comm) {
        halay_comm_free(halay);
        hly_mpi_drop(group);
        return hly_mpi_fail(MPI_ERR_NO_MEM, "%s: no memory for a communicator", function);
    }
    comm->halay = halay;
    comm->group = group;
    comm->rank = group->rank;
    comm->size = group->size;
    if (parent)
        group->session = parent->group->session;
    comm->errhandler = parent ? parent->errhandler : hly_mpi_predefined(HLY_MPI_ERRHANDLER, 0x141);
    if (comm->errhandler)
        hly_mpi_object_hold(comm->errhandler);
    *made = comm;
    return MPI_SUCCESS;
}

int hly_mpi_comm_rank(struct hly_mpi_comm *comm, int *rank)
{
    int rc = hly_mpi_check_comm("MPI_Comm_rank", comm);
    if (!rc && !rank)
        rc = hly_mpi_fail(MPI_ERR_ARG, "MPI_Comm_rank: the address of the rank is NULL");
    if (!rc)
        *rank = comm->rank;
    return rc;
}

int hly_mpi_comm_size(struct hly_mpi_comm *comm, int *size)
{
    int rc = hly_mpi_check_comm("MPI_Comm_size", comm);
    if (!rc && !size)
        rc = hly_mpi_fail(MPI_ERR_ARG, "MPI_Comm_size: the address of the size is NULL");
    if (!rc)
        *size = comm->size;
    return rc;
}

int hly_mpi_comm_test_inter(struct hly_mpi_comm *comm, int *flag)
{
    const int rc = hly_mpi_check_comm("MPI_Comm_test_inter", comm);
    if (!rc)
        *flag = comm->remote != NULL;
    return rc;
}

static int check_inter(const char *function, const struct hly_mpi_comm *comm)
{
    const int rc = hly_mpi_check_comm(function, comm);
    if (rc || comm->remote)
        return rc;
    return hly_mpi_fail(MPI_ERR_COMM,
                        "%s: the communicator has no remote group: it is no "
                        "intercommunicator",
                        function);
}

int hly_mpi_comm_remote_size(struct hly_mpi_comm *comm, int *size)
{
    const int rc = check_inter("MPI_Comm_remote_size", comm);
    if (!rc)
        *size = comm->remote->size;
    return rc;
}

/* A copy, so that a program which frees it twice does no harm. */
static int give_group(const char *function, const struct hly_mpi_group *group,
                      struct hly_mpi_group **made)
{
    struct hly_mpi_group *copy = hly_mpi_group_of(group->world, group->size);
    if (!copy)
        return hly_mpi_fail(MPI_ERR_NO_MEM, "%s: no memory for a group of %d", function,
                            group->size);
    copy->session = group->session;
    *made = copy;
    return MPI_SUCCESS;
}

int hly_mpi_comm_group(struct hly_mpi_comm *comm, struct hly_mpi_group **group)
{
    const int rc = hly_mpi_check_comm("MPI_Comm_group", comm);
    return rc ? rc : give_group("MPI_Comm_group", comm->group, group);
}

int hly_mpi_comm_remote_group(struct hly_mpi_comm *comm, struct hly_mpi_group **group)
{
    const int rc = check_inter("MPI_Comm_remote_group", comm);
    return rc ? rc : give_group("MPI_Comm_remote_group", comm->remote, group);
}

int hly_mpi_comm_compare(struct hly_mpi_comm *comm1, struct hly_mpi_comm *comm2, int *result)
{
    int rc = hly_mpi_check_comm("MPI_Comm_compare", comm1), remote = MPI_IDENT;
    if (!rc)
        rc = hly_mpi_check_comm("MPI_Comm_compare", comm2);
    if (rc)
        return rc;
    if (comm1 == comm2) {
        *result = MPI_IDENT;
        return MPI_SUCCESS;
    }
    *result = MPI_UNEQUAL;
    if (!comm1->remote != !comm2->remote)
        return MPI_SUCCESS;
    rc = hly_mpi_group_compare(comm1->group, comm2->group, result);
    if (!rc && comm1->remote)
        rc = hly_mpi_group_compare(comm1->remote, comm2->remote, &remote);
    if (rc)
        return rc;
    /* Their numbers are in this order. */
    *result = *result > remote ? *result : remote;
    if (*result == MPI_IDENT)
        *result = MPI_CONGRUENT;
    return MPI_SUCCESS;
}

/* No program is started by another one. */
int hly_mpi_comm_get_parent(struct hly_mpi_comm **parent)
{
    const int rc = hly_mpi_check_job("MPI_Comm_get_parent");
    if (!rc)
        *parent = NULL;
    return rc;
}

/* ---------------------------------------------------------------- name and info */

int hly_mpi_comm_set_name(struct hly_mpi_comm *comm, const char *comm_name)
{
    const int rc = hly_mpi_check_comm("MPI_Comm_set_name", comm);
    if (rc)
        return rc;
    if (!comm_name)
        return hly_mpi_fail(MPI_ERR_ARG, "MPI_Comm_set_name: the name is NULL");
    snprintf(comm->name, sizeof(comm->name), "%s", comm_name);
    return MPI_SUCCESS;
}

int hly_mpi_comm_get_name(struct hly_mpi_comm *comm, char *comm_name, int *resultlen)
{
    /* MPI_COMM_NULL has a name, too. */
    const char *name = comm ? comm->name : "MPI_COMM_NULL";
    const int rc = hly_mpi_check_job("MPI_Comm_get_name");
    if (rc)
        return rc;
    *resultlen = (int)strlen(name);
    memcpy(comm_name, name, (size_t)*resultlen + 1);
    return MPI_SUCCESS;
}

int hly_mpi_comm_set_info(struct hly_mpi_comm *comm, struct hly_mpi_info *info)
{
    struct hly_mpi_info *copy = NULL;
    int rc = hly_mpi_check_comm("MPI_Comm_set_info", comm);
    if (!rc && info)
        rc = hly_mpi_info_dup(info, &copy);
    if (rc)
        return rc;
    hly_mpi_drop(comm->info);
    comm->info = copy;
    return MPI_SUCCESS;
}

int hly_mpi_comm_get_info(struct hly_mpi_comm *comm, struct hly_mpi_info **info_used)
{
    const int rc = hly_mpi_check_comm("MPI_Comm_get_info", comm);
    if (rc)
        return rc;
    return comm->info ? hly_mpi_info_dup(comm->info, info_used) : hly_mpi_info_create(info_used);
}

/* ---------------------------------------------------------------- the end */

static int comm_free(const char *function, struct hly_mpi_comm **comm)
{
    int rc = hly_mpi_check_comm(function, *comm);
    if (rc)
        return rc;
    if (*comm == hly_mpi_job.world || *comm == hly_mpi_job.self)
        return hly_mpi_fail(MPI_ERR_COMM, "%s: %s cannot be freed: MPI_Finalize does so", function,
                            (*comm)->name);
    rc = hly_mpi_attributes_free(HLY_MPI_COMM, *comm, &(*comm)->attributes);
    if (rc)
        return rc;
    hly_mpi_buffer_free((*comm)->buffer); /* what is pending in it uses the communicator */
    (*comm)->buffer = NULL;
    (*comm)->freed = true;
    hly_mpi_object_release(*comm);
    *comm = NULL;
    return MPI_SUCCESS;
}

int hly_mpi_comm_free(struct hly_mpi_comm **comm)
{
    return comm_free("MPI_Comm_free", comm);
}

/* All messages of the communicator end by their own requests, which hold it. */
int hly_mpi_comm_disconnect(struct hly_mpi_comm **comm)
{
    return comm_free("MPI_Comm_disconnect", comm);
}
