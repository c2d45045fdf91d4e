/* SPDX-License-Identifier: Apache-2.0 */
/* comm_make.c - communicators out of others, and out of groups. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "comm.h"

static int check_intra(const char *function, const struct hly_mpi_comm *comm)
{
    const int rc = hly_mpi_check_comm(function, comm);
    if (rc || !comm->remote)
        return rc;
    return hly_mpi_fail(MPI_ERR_UNSUPPORTED_OPERATION,
                        "%s: Halay does not do it for intercommunicators", function);
}

/* ---------------------------------------------------------------- duplicates */

int hly_mpi_comm_copy(const char *function, struct hly_mpi_comm *comm, struct hly_mpi_comm **made)
{
    halay_comm_t *halay = NULL;
    const int code = halay_comm_dup(comm->halay, &halay);
    if (code)
        return hly_mpi_result(code, comm, function);
    hly_mpi_object_hold(comm->group);
    if (!comm->remote)
        return hly_mpi_comm_make(function, halay, comm->group, comm, made);
    hly_mpi_object_hold(comm->remote);
    return hly_mpi_inter_make(function, halay, comm->group, comm->remote, !comm->local_first, comm,
                              made);
}

/* info: of the new one; its keys are kept as MPI_Comm_set_info keeps them. */
static int duplicate(const char *function, struct hly_mpi_comm *comm, struct hly_mpi_info *info,
                     struct hly_mpi_comm **newcomm)
{
    struct hly_mpi_comm *made = NULL;
    int rc = hly_mpi_check_comm(function, comm);
    if (!rc)
        rc = hly_mpi_comm_copy(function, comm, &made);
    if (rc)
        return rc;
    if (info)
        rc = hly_mpi_info_dup(info, &made->info);
    if (!rc && comm->topology) {
        made->topology = hly_mpi_topology_copy(comm->topology);
        if (!made->topology)
            rc = hly_mpi_fail(MPI_ERR_NO_MEM, "%s: no memory for the topology", function);
    }
    if (!rc)
        rc = hly_mpi_attributes_copy(HLY_MPI_COMM, comm, comm->attributes, &made->attributes);
    if (rc) {
        hly_mpi_attributes_free(HLY_MPI_COMM, made, &made->attributes);
        hly_mpi_object_release(made);
        return rc;
    }
    *newcomm = made;
    return MPI_SUCCESS;
}

int hly_mpi_comm_dup(struct hly_mpi_comm *comm, struct hly_mpi_comm **newcomm)
{
    return duplicate("MPI_Comm_dup", comm, comm ? comm->info : NULL, newcomm);
}

int hly_mpi_comm_dup_with_info(struct hly_mpi_comm *comm, struct hly_mpi_info *info,
                               struct hly_mpi_comm **newcomm)
{
    return duplicate("MPI_Comm_dup_with_info", comm, info, newcomm);
}

/* A duplicate sends nothing, so it is made at once, and the request is done. */
static int duplicate_later(const char *function, struct hly_mpi_comm *comm,
                           struct hly_mpi_info *info, struct hly_mpi_comm **newcomm,
                           struct hly_mpi_request **request)
{
    struct hly_mpi_request *made = hly_mpi_object_new(HLY_MPI_REQUEST, sizeof(*made));
    if (!made)
        return hly_mpi_fail(MPI_ERR_NO_MEM, "%s: no memory for a request", function);
    const int rc = duplicate(function, comm, info, newcomm);
    if (rc) {
        hly_mpi_object_release(made);
        return rc;
    }
    made->is = HLY_MPI_IS_DONE;
    made->function = function;
    made->active = true;
    made->status.source = MPI_ANY_SOURCE;
    made->status.tag = MPI_ANY_TAG;
    *request = made;
    return MPI_SUCCESS;
}

int hly_mpi_comm_idup(struct hly_mpi_comm *comm, struct hly_mpi_comm **newcomm,
                      struct hly_mpi_request **request)
{
    return duplicate_later("MPI_Comm_idup", comm, comm ? comm->info : NULL, newcomm, request);
}

int hly_mpi_comm_idup_with_info(struct hly_mpi_comm *comm, struct hly_mpi_info *info,
                                struct hly_mpi_comm **newcomm, struct hly_mpi_request **request)
{
    return duplicate_later("MPI_Comm_idup_with_info", comm, info, newcomm, request);
}

/* ---------------------------------------------------------------- split */

int hly_mpi_comm_divide(const char *function, struct hly_mpi_comm *comm, int colour, int key,
                        struct hly_mpi_comm **made)
{
    halay_comm_t *halay = NULL;
    if (comm->remote)
        return hly_mpi_inter_divide(function, comm, colour, key, made);
    int size = 0, code = halay_comm_split(comm->halay, colour, key, &halay);
    if (code)
        return hly_mpi_result(code, comm, function);
    if (!halay) {
        *made = NULL;
        return MPI_SUCCESS;
    }
    halay_comm_size(halay, &size);
    int *world = malloc((size_t)size * sizeof(*world));
    if (world)
        code = halay_allgather(&hly_mpi_job.rank, world, 1, HALAY_INT32, halay);
    struct hly_mpi_group *group = world && !code ? hly_mpi_group_of(world, size) : NULL;
    free(world);
    if (code) {
        halay_comm_free(halay);
        return hly_mpi_result(code, comm, function);
    }
    return hly_mpi_comm_make(function, halay, group, comm, made);
}

int hly_mpi_comm_split(struct hly_mpi_comm *comm, int color, int key, struct hly_mpi_comm **newcomm)
{
    const char *function = "MPI_Comm_split";
    int rc = hly_mpi_check_comm(function, comm);
    if (rc)
        return rc;
    if (color >= 0 || color == MPI_UNDEFINED)
        return hly_mpi_comm_divide(function, comm, color < 0 ? -1 : color, key, newcomm);
    rc = hly_mpi_fail(MPI_ERR_ARG, "%s: color is %d: it has to be 0 or more, or MPI_UNDEFINED",
                      function, color);
    return hly_mpi_topology_refuse(function, comm, rc);
}

/* Does the info name the memory that a node's ranks share? */
static bool wants_node(struct hly_mpi_info *info)
{
    char value[64] = "";
    int length = sizeof(value), flag = 0;
    if (!info || hly_mpi_info_get_string(info, "mpi_hw_resource_type", &length, value, &flag))
        return false;
    return flag && !strcmp(value, "mpi_shared_memory");
}

int hly_mpi_comm_split_type(struct hly_mpi_comm *comm, int split_type, int key,
                            struct hly_mpi_info *info, struct hly_mpi_comm **newcomm)
{
    const char *function = "MPI_Comm_split_type";
    halay_topology_t topology = {.size = sizeof(topology)};
    struct hly_mpi_comm *made = NULL;
    int rc = hly_mpi_check_comm(function, comm), colour = -1;
    if (rc)
        return rc;
    if (split_type != MPI_UNDEFINED &&
        (split_type < MPI_COMM_TYPE_SHARED || split_type > MPI_COMM_TYPE_RESOURCE_GUIDED))
        return hly_mpi_fail(MPI_ERR_ARG, "%s: there is no split_type %d", function, split_type);
    halay_context_topology(hly_mpi_job.context, &topology);
    /* Halay knows nodes, and nothing below them. */
    if (split_type == MPI_COMM_TYPE_SHARED || split_type == MPI_COMM_TYPE_HW_UNGUIDED ||
        ((split_type == MPI_COMM_TYPE_HW_GUIDED || split_type == MPI_COMM_TYPE_RESOURCE_GUIDED) &&
         wants_node(info)))
        colour = topology.node;
    rc = hly_mpi_comm_divide(function, comm, colour, key, &made);
    if (rc)
        return rc;
    /* The unguided one is a part of the communicator, never all of it. */
    if (split_type == MPI_COMM_TYPE_HW_UNGUIDED && made && made->size == comm->size) {
        hly_mpi_object_release(made);
        made = NULL;
    }
    *newcomm = made;
    return MPI_SUCCESS;
}

/* ---------------------------------------------------------------- out of groups */

/* The ranks in comm of all members of the group, which the caller frees. */
static int members(const char *function, const struct hly_mpi_comm *comm,
                   const struct hly_mpi_group *group, int **ranks)
{
    const int rc = hly_mpi_group_ranks(function, group, comm->group, ranks);
    if (rc)
        return rc;
    for (int i = 0; i < group->size; i++)
        if ((*ranks)[i] == MPI_UNDEFINED) {
            free(*ranks);
            return hly_mpi_fail(MPI_ERR_GROUP,
                                "%s: rank %d of the group is not in the communicator", function, i);
        }
    return MPI_SUCCESS;
}

/* Has each rank of the new communicator passed the group that it has? The same error on all. */
static int check_same(const char *function, struct hly_mpi_group *group, struct hly_mpi_comm **made)
{
    int result = MPI_UNEQUAL, mine, first,
        rc = hly_mpi_group_compare(group, (*made)->group, &result);
    if (rc)
        return rc;
    mine = result == MPI_IDENT ? (*made)->size : (*made)->rank;
    const int code = halay_allreduce(&mine, &first, 1, HALAY_INT32, HALAY_MIN, (*made)->halay);
    if (code)
        rc = hly_mpi_result(code, *made, function);
    else if (first < (*made)->size)
        rc = hly_mpi_fail(MPI_ERR_GROUP,
                          "%s: the groups of the ranks differ and overlap: rank %d of "
                          "MPI_COMM_WORLD has passed another one than others",
                          function, (*made)->group->world[first]);
    if (rc) {
        hly_mpi_object_release(*made);
        *made = NULL;
    }
    return rc;
}

/* Ranks may pass different groups, if these have no member in common: so it is a split by the first
 * member. */
int hly_mpi_comm_create(struct hly_mpi_comm *comm, struct hly_mpi_group *group,
                        struct hly_mpi_comm **newcomm)
{
    int *ranks, rc = hly_mpi_check_comm("MPI_Comm_create", comm);
    if (!rc)
        rc = hly_mpi_check_group("MPI_Comm_create", group);
    if (!rc)
        rc = members("MPI_Comm_create", comm, group, &ranks);
    if (rc)
        return rc;
    const bool member = group->rank != MPI_UNDEFINED;
    /* In an intercommunicator each group's part meets the other's. */
    rc = hly_mpi_comm_divide("MPI_Comm_create", comm,
                             !member        ? -1
                             : comm->remote ? 0
                                            : ranks[0],
                             member ? group->rank : 0, newcomm);
    free(ranks);
    return rc || !*newcomm || comm->remote ? rc : check_same("MPI_Comm_create", group, newcomm);
}

/* How often lists of ranks have made communicators by a tag, since Halay's tags have to differ. */
struct hly_mpi_tags {
    uint32_t n, room;
    struct {
        uint64_t hash;
        uint32_t uses;
    } at[];
};
static pthread_mutex_t tags_lock = PTHREAD_MUTEX_INITIALIZER;

static uint64_t hash(uint64_t start, const void *bytes, size_t n)
{
    uint64_t h = start ^ 0xcbf29ce484222325ull;
    for (size_t i = 0; i < n; i++)
        h = (h ^ ((const unsigned char *)bytes)[i]) * 0x100000001b3ull;
    return h;
}

int hly_mpi_comm_tag(const char *function, struct hly_mpi_tags **tags, const void *list,
                     size_t bytes, uint64_t tag, uint64_t *unique)
{
    const uint64_t key = hash(hash(0, &tag, sizeof(tag)), list, bytes);
    uint32_t i = 0;
    pthread_mutex_lock(&tags_lock);
    struct hly_mpi_tags *t = *tags;
    while (t && i < t->n && t->at[i].hash != key)
        i++;
    if (!t || i == t->room) {
        const uint32_t room = t ? 2 * t->room : 8;
        struct hly_mpi_tags *more = realloc(t, sizeof(*t) + room * sizeof(t->at[0]));
        if (!more) {
            pthread_mutex_unlock(&tags_lock);
            return hly_mpi_fail(MPI_ERR_NO_MEM, "%s: no memory for a list of tags", function);
        }
        more->n = t ? more->n : 0;
        more->room = room;
        *tags = t = more;
    }
    if (i == t->n) {
        t->at[i].hash = key;
        t->at[i].uses = 0;
        t->n++;
    }
    *unique = (tag & 0xffffffffull) | ((uint64_t)(t->at[i].uses++ & 0xffffff) << 32);
    pthread_mutex_unlock(&tags_lock);
    return MPI_SUCCESS;
}

void hly_mpi_comm_tags_free(struct hly_mpi_tags *tags)
{
    free(tags);
}

int hly_mpi_comm_create_group(struct hly_mpi_comm *comm, struct hly_mpi_group *group, int tag,
                              struct hly_mpi_comm **newcomm)
{
    const char *function = "MPI_Comm_create_group";
    halay_comm_t *halay = NULL;
    uint64_t unique;
    int *ranks, rc = check_intra(function, comm);
    if (!rc)
        rc = hly_mpi_check_group(function, group);
    if (rc)
        return rc;
    if (tag < 0)
        return hly_mpi_fail(MPI_ERR_TAG, "%s: tag is %d: it has to be 0 or more", function, tag);
    if (group->rank == MPI_UNDEFINED) {
        *newcomm = NULL;
        return MPI_SUCCESS;
    }
    rc = members(function, comm, group, &ranks);
    if (rc)
        return rc;
    rc = hly_mpi_comm_tag(function, &comm->tags, ranks, (size_t)group->size * sizeof(*ranks),
                          (uint64_t)tag, &unique);
    const int code =
        rc ? 0 : halay_comm_create_group(comm->halay, ranks, group->size, unique, &halay);
    free(ranks);
    if (rc || code)
        return rc ? rc : hly_mpi_result(code, comm, function);
    return hly_mpi_comm_make(function, halay, hly_mpi_group_of(group->world, group->size), comm,
                             newcomm);
}

/* Without a parent: out of the job's own communicator. */
int hly_mpi_comm_create_from_group(struct hly_mpi_group *group, const char *stringtag,
                                   struct hly_mpi_info *info, struct hly_mpi_errhandler *errhandler,
                                   struct hly_mpi_comm **newcomm)
{
    const char *function = "MPI_Comm_create_from_group";
    static struct hly_mpi_tags *tags; /* a process has one job */
    halay_comm_t *halay = NULL;
    uint64_t unique;
    int rc = hly_mpi_check_group(function, group);
    if (rc)
        return rc;
    if (!stringtag)
        return hly_mpi_fail(MPI_ERR_ARG, "%s: the tag is NULL: it has to be a text", function);
    if (group->rank == MPI_UNDEFINED) {
        *newcomm = NULL;
        return MPI_SUCCESS;
    }
    rc = hly_mpi_comm_tag(function, &tags, group->world, (size_t)group->size * sizeof(int),
                          hash(0, stringtag, strlen(stringtag)), &unique);
    if (rc)
        return rc;
    const int code = halay_comm_create_group(hly_mpi_job.base, group->world, group->size,
                                             unique | HLY_MPI_TAG_GROUP, &halay);
    if (code)
        return hly_mpi_result(code, NULL, function);
    rc = hly_mpi_comm_make(function, halay, hly_mpi_group_of(group->world, group->size), NULL,
                           newcomm);
    if (rc)
        return rc;
    (*newcomm)->group->session = group->session;
    if (errhandler) {
        hly_mpi_object_hold(errhandler);
        hly_mpi_drop((*newcomm)->errhandler);
        (*newcomm)->errhandler = errhandler;
    }
    return info ? hly_mpi_comm_set_info(*newcomm, info) : MPI_SUCCESS;
}
