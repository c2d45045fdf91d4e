/* SPDX-License-Identifier: Apache-2.0 */
/*
 * comm_inter.c - intercommunicators. Their communicator of Halay has the ranks of both groups:
 * first those of the group whose rank 0 is the lower one in MPI_COMM_WORLD, or what the parent had
 * first.
 */
#include <stdlib.h>
#include <string.h>

#include "comm.h"
#include "message.h"

int hly_mpi_inter_make(const char *function, halay_comm_t *halay, struct hly_mpi_group *local,
                       struct hly_mpi_group *remote, bool local_is_first,
                       const struct hly_mpi_comm *parent, struct hly_mpi_comm **made)
{
    struct hly_mpi_comm *comm = NULL;
    int rc = MPI_SUCCESS;
    if (!remote) {
        halay_comm_free(halay);
        hly_mpi_drop(local);
        rc = hly_mpi_fail(MPI_ERR_NO_MEM, "%s: no memory for the remote group", function);
    }
    if (!rc)
        rc = hly_mpi_comm_make(function, halay, local, parent, &comm);
    if (rc) {
        hly_mpi_drop(remote);
        return rc;
    }
    comm->remote = remote;
    comm->local_first = local_is_first ? 0 : remote->size;
    comm->remote_first = local_is_first ? comm->size : 0;
    *made = comm;
    return MPI_SUCCESS;
}

/* ---------------------------------------------------------------- out of two groups */

/* Both groups are known on all of their ranks, which all call. It takes over the remote one. */
static int join(const char *function, const struct hly_mpi_group *local,
                struct hly_mpi_group *remote, uint64_t tag, const struct hly_mpi_comm *parent,
                struct hly_mpi_comm **made)
{
    static struct hly_mpi_tags *tags; /* a process has one job */
    halay_comm_t *halay = NULL;
    uint64_t unique = 0;
    const int n = local->size + remote->size;
    const bool first = local->world[0] < remote->world[0];
    const struct hly_mpi_group *a = first ? local : remote, *b = first ? remote : local;
    int *both = malloc((size_t)n * sizeof(*both));
    int rc = both ? MPI_SUCCESS
                  : hly_mpi_fail(MPI_ERR_NO_MEM, "%s: no memory for %d ranks", function, n);
    if (!rc) {
        memcpy(both, a->world, (size_t)a->size * sizeof(*both));
        memcpy(both + a->size, b->world, (size_t)b->size * sizeof(*both));
        for (int i = 0; i < local->size && !rc; i++)
            for (int k = 0; k < remote->size && !rc; k++)
                if (local->world[i] == remote->world[k])
                    rc = hly_mpi_fail(MPI_ERR_COMM,
                                      "%s: rank %d of MPI_COMM_WORLD is in both "
                                      "groups",
                                      function, local->world[i]);
    }
    if (!rc)
        rc = hly_mpi_comm_tag(function, &tags, both, (size_t)n * sizeof(*both), tag, &unique);
    if (!rc) {
        const int code =
            halay_comm_create_group(hly_mpi_job.base, both, n, unique | HLY_MPI_TAG_INTER, &halay);
        rc = code ? hly_mpi_result(code, NULL, function) : MPI_SUCCESS;
    }
    free(both);
    if (rc) {
        hly_mpi_drop(remote);
        return rc;
    }
    return hly_mpi_inter_make(function, halay, hly_mpi_group_of(local->world, local->size), remote,
                              first, parent, made);
}

/* The leaders tell each other their groups; *list has `*n` ranks, which the caller frees. */
static int meet(const struct hly_mpi_group *group, struct hly_mpi_comm *peer, int leader, int tag,
                int **list, int *n)
{
    struct hly_mpi_type *type = hly_mpi_predefined(HLY_MPI_TYPE, 0x209); /* MPI_INT */
    struct hly_mpi_status status;
    int size = group->size;
    struct hly_mpi_end out = {.function = "MPI_Intercomm_create",
                              .buffer = &size,
                              .count = 1,
                              .type = type,
                              .rank = leader,
                              .tag = tag,
                              .comm = peer,
                              .sends = true};
    struct hly_mpi_end in = out;
    in.sends = false;
    in.buffer = n;
    int rc = hly_mpi_exchange_message(&out, &in, &status);
    if (rc)
        return rc;
    *list = malloc((size_t)(*n + 1) * sizeof(int));
    if (!*list)
        return hly_mpi_fail(MPI_ERR_NO_MEM, "MPI_Intercomm_create: no memory for %d ranks", *n);
    out.buffer = (void *)(uintptr_t)group->world;
    out.count = size;
    in.buffer = *list;
    in.count = *n;
    return hly_mpi_exchange_message(&out, &in, &status);
}

static int check_leaders(const struct hly_mpi_comm *local, int local_leader,
                         const struct hly_mpi_comm *peer, int remote_leader, int tag)
{
    const char *function = "MPI_Intercomm_create";
    int rc = hly_mpi_check_comm(function, local);
    if (!rc && local->remote)
        rc = hly_mpi_fail(MPI_ERR_COMM, "%s: local_comm is an intercommunicator", function);
    if (!rc && (local_leader < 0 || local_leader >= local->size))
        rc = hly_mpi_fail(MPI_ERR_RANK, "%s: local_leader is %d: it has to be from 0 to %d",
                          function, local_leader, local->size - 1);
    if (!rc && tag < 0)
        rc = hly_mpi_fail(MPI_ERR_TAG, "%s: tag is %d: it has to be 0 or more", function, tag);
    if (rc || local->rank != local_leader)
        return rc;
    rc = hly_mpi_check_comm(function, peer);
    if (rc)
        return rc;
    const int n = peer->remote ? peer->remote->size : peer->size;
    if (remote_leader < 0 || remote_leader >= n)
        return hly_mpi_fail(MPI_ERR_RANK, "%s: remote_leader is %d: it has to be from 0 to %d",
                            function, remote_leader, n - 1);
    return MPI_SUCCESS;
}

int hly_mpi_intercomm_create(struct hly_mpi_comm *local_comm, int local_leader,
                             struct hly_mpi_comm *peer_comm, int remote_leader, int tag,
                             struct hly_mpi_comm **newintercomm)
{
    const char *function = "MPI_Intercomm_create";
    int n = 0, *list = NULL;
    int rc = check_leaders(local_comm, local_leader, peer_comm, remote_leader, tag);
    if (rc)
        return rc;
    if (local_comm->rank == local_leader)
        rc = meet(local_comm->group, peer_comm, remote_leader, tag, &list, &n);
    int told = rc ? -1 : n; /* the others must not wait for a leader that has failed */
    int code = halay_broadcast(&told, 1, HALAY_INT32, local_leader, local_comm->halay);
    if (!rc && !code && told < 0)
        rc = hly_mpi_fail(MPI_ERR_OTHER, "%s: the leader, rank %d, has failed", function,
                          local_leader);
    if (!rc && !code && !list)
        list = malloc((size_t)(told + 1) * sizeof(*list));
    if (!rc && !list)
        rc = hly_mpi_fail(MPI_ERR_NO_MEM, "%s: no memory for %d ranks", function, told);
    if (!rc && !code)
        code = halay_broadcast(list, (size_t)told, HALAY_INT32, local_leader, local_comm->halay);
    if (!rc && code)
        rc = hly_mpi_result(code, local_comm, function);
    struct hly_mpi_group *remote = rc ? NULL : hly_mpi_group_of(list, told);
    free(list);
    if (!rc && !remote)
        rc = hly_mpi_fail(MPI_ERR_NO_MEM, "%s: no memory for a group", function);
    return rc ? rc
              : join(function, local_comm->group, remote, (uint64_t)tag, local_comm, newintercomm);
}

int hly_mpi_intercomm_create_from_groups(struct hly_mpi_group *local_group, int local_leader,
                                         struct hly_mpi_group *remote_group, int remote_leader,
                                         const char *stringtag, struct hly_mpi_info *info,
                                         struct hly_mpi_errhandler *errhandler,
                                         struct hly_mpi_comm **newintercomm)
{
    const char *function = "MPI_Intercomm_create_from_groups";
    uint64_t tag = 0xcbf29ce484222325ull;
    (void)local_leader, (void)remote_leader; /* all ranks know both groups */
    int rc = hly_mpi_check_group(function, local_group);
    if (!rc)
        rc = hly_mpi_check_group(function, remote_group);
    if (rc)
        return rc;
    if (!stringtag || !local_group->size || !remote_group->size)
        return hly_mpi_fail(MPI_ERR_ARG, "%s: the tag is NULL, or a group is empty", function);
    for (const char *c = stringtag; *c; c++)
        tag = (tag ^ (unsigned char)*c) * 0x100000001b3ull;
    struct hly_mpi_group *remote = hly_mpi_group_of(remote_group->world, remote_group->size);
    if (!remote)
        return hly_mpi_fail(MPI_ERR_NO_MEM, "%s: no memory for a group", function);
    rc = join(function, local_group, remote, tag | 1ull << 63, NULL, newintercomm);
    if (rc)
        return rc;
    if (errhandler) {
        hly_mpi_object_hold(errhandler);
        hly_mpi_drop((*newintercomm)->errhandler);
        (*newintercomm)->errhandler = errhandler;
    }
    return info ? hly_mpi_comm_set_info(*newintercomm, info) : MPI_SUCCESS;
}

/* ---------------------------------------------------------------- merge */

int hly_mpi_intercomm_merge(struct hly_mpi_comm *intercomm, int high,
                            struct hly_mpi_comm **newintracomm)
{
    const char *function = "MPI_Intercomm_merge";
    halay_comm_t *halay = NULL;
    int rc = hly_mpi_check_comm(function, intercomm);
    if (rc)
        return rc;
    const struct hly_mpi_group *local = intercomm->group, *remote = intercomm->remote;
    if (!remote)
        return hly_mpi_fail(MPI_ERR_COMM, "%s: the communicator is no intercommunicator", function);
    const int n = hly_mpi_span(intercomm), flag = high != 0;
    int *list = malloc((size_t)n * sizeof(*list));
    if (!list)
        return hly_mpi_fail(MPI_ERR_NO_MEM, "%s: no memory for %d ranks", function, n);
    int code = halay_allgather(&flag, list, 1, HALAY_INT32, intercomm->halay);
    for (int i = 0; i < n && !code; i++) {
        const bool here =
            i - intercomm->local_first >= 0 && i - intercomm->local_first < local->size;
        const int base = here ? intercomm->local_first : intercomm->remote_first;
        if (list[i] == list[base])
            continue;
        rc = hly_mpi_fail(
            MPI_ERR_ARG,
            "%s: rank %d of a group has passed %d as high, and rank 0 of it %d: pass the "
            "same on all ranks of a group",
            function, i - base, list[i], list[base]);
        free(list);
        return rc;
    }
    const int other = code ? 0 : list[intercomm->remote_first];
    const bool first = flag == other ? !intercomm->local_first : flag < other;
    if (!code)
        code = halay_comm_split(intercomm->halay, 0, intercomm->rank + (first ? 0 : remote->size),
                                &halay);
    memcpy(list + (first ? 0 : remote->size), local->world, (size_t)local->size * sizeof(*list));
    memcpy(list + (first ? local->size : 0), remote->world, (size_t)remote->size * sizeof(*list));
    struct hly_mpi_group *group = code ? NULL : hly_mpi_group_of(list, n);
    free(list);
    return code ? hly_mpi_result(code, intercomm, function)
                : hly_mpi_comm_make(function, halay, group, intercomm, newintracomm);
}

/* ---------------------------------------------------------------- split */

struct choice {
    int colour, key;
};
struct member {
    int key, rank;
};

static int by_key(const void *a, const void *b)
{
    const struct member *x = a, *y = b;
    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

/* The members of a group with a colour, in order, as ranks of the world. Returns how many. */
static int choose(const struct hly_mpi_group *group, const struct choice *choices, int colour,
                  struct member *room, int *world)
{
    int n = 0;
    for (int i = 0; i < group->size; i++)
        if (choices[i].colour == colour)
            room[n++] = (struct member){choices[i].key, i};
    qsort(room, (size_t)n, sizeof(*room), by_key);
    for (int i = 0; i < n; i++)
        world[i] = group->world[room[i].rank];
    return n;
}

int hly_mpi_inter_divide(const char *function, struct hly_mpi_comm *comm, int colour, int key,
                         struct hly_mpi_comm **made)
{
    const int n = hly_mpi_span(comm);
    const struct choice mine = {colour, key};
    halay_comm_t *halay = NULL;
    int nlocal = 0, nremote = 0, at = 0;
    struct choice *choices = malloc((size_t)n * sizeof(*choices));
    struct member *room = malloc((size_t)n * sizeof(*room));
    int *local = malloc((size_t)n * sizeof(*local)), *remote = malloc((size_t)n * sizeof(*remote));
    int code = choices && room && local && remote ? HALAY_OK : HALAY_ENOMEM;
    if (!code)
        code = halay_allgather(&mine, choices, 2, HALAY_INT32, comm->halay);
    if (!code && colour >= 0) {
        nlocal = choose(comm->group, choices + comm->local_first, colour, room, local);
        nremote = choose(comm->remote, choices + comm->remote_first, colour, room, remote);
        while (local[at] != hly_mpi_job.rank)
            at++;
    }
    const bool whole = nlocal && nremote, first = !comm->local_first;
    if (!code)
        code =
            halay_comm_split(comm->halay, whole ? colour : -1, at + (first ? 0 : nremote), &halay);
    int rc = code ? hly_mpi_result(code, comm, function) : MPI_SUCCESS;
    if (!rc && whole)
        rc = hly_mpi_inter_make(function, halay, hly_mpi_group_of(local, nlocal),
                                hly_mpi_group_of(remote, nremote), first, comm, made);
    else if (!rc)
        *made = NULL;
    free(choices);
    free(room);
    free(local);
    free(remote);
    return rc;
}
