/* SPDX-License-Identifier: Apache-2.0 */
/* comm_make.c - makes communicators of others: dup, split, node, list of ranks. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "fault/fault.h"

#define CREATE_GROUP_TAG 0x67726f7570000000ull /* no number of children gets there */

/* The communicator of a handle. Why it cannot be used to make another one; 0 if it can. */
static int parent_of(const halay_comm_t *handle, void *out, const char *call, halay_comm_t **parent)
{
    halay_comm_t *comm = *parent = hly_comm_of(handle);
    char text[128];
    if (!comm)
        return HALAY_EINVAL;
    if (hly_forked(comm->context))
        return HALAY_EFORKED;
    if (!out) {
        snprintf(text, sizeof(text), "%s: there is no place for the communicator (NULL)", call);
        return hly_comm_reject(comm, HALAY_EINVAL, text);
    }
    if (comm->freed || comm->group_open) {
        snprintf(text, sizeof(text), "%s: the communicator %s", call,
                 comm->group_open ? "has a group that was not ended" : "was freed on this rank");
        return hly_comm_reject(comm, HALAY_ESTATE, text);
    }
    return HALAY_OK;
}

/* No memory, or no room for one more communicator. The context is locked. Returns rc. */
static int refuse_make(halay_comm_t *parent, const char *call, int rc)
{
    char text[128];
    snprintf(text, sizeof(text), "%s: the communicator could not be made: %s", call,
             halay_strerror(rc));
    return hly_comm_refuse(parent, rc, text);
}

enum { DUP, SPLIT, SPLIT_NODE, FROM_RANKS }; /* how a communicator is made */

/* The id needs no agreement: it is a hash of the parent's id, how many children that had, and the
 * colour. How they were made is what split and from_ranks compare. */
static uint64_t child_id(halay_comm_t *parent, uint64_t how, int colour)
{
    uint64_t key[2] = {parent->children++, (uint64_t)(uint32_t)colour};
    uint64_t id = hly_hash(parent->id, key, sizeof(key));
    parent->made = hly_hash(parent->made, &how, sizeof(how));
    return id ? id : 1;
}

/* hly_comm_make() for the program. */
static int make(halay_context_t *context, uint64_t id, struct hly_ranks *ranks, int rank,
                uint64_t deadline_ns, halay_comm_t **handle)
{
    halay_comm_t *comm;
    const int rc = hly_comm_make(context, id, ranks, rank, deadline_ns, &comm);
    if (rc)
        return rc;
    *handle = comm->handle;
    hly_hand_on(context);
    return HALAY_OK;
}

int halay_comm_dup(halay_comm_t *handle, halay_comm_t **dup)
{
    halay_comm_t *comm;
    int rc = parent_of(handle, dup, "comm_dup", &comm);
    if (rc)
        return rc;
    halay_context_t *ctx = comm->context;
    hly_lock(ctx);
    struct hly_ranks *ranks;
    rc = hly_ranks_copy(comm->ranks, &ranks);
    if (!rc)
        rc = make(ctx, child_id(comm, DUP, -1), ranks, comm->rank, comm->deadline_ns, dup);
    if (rc)
        refuse_make(comm, "comm_dup", rc);
    hly_unlock(ctx);
    return rc;
}

struct member {
    int32_t colour, key;
};

static int compare_words(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* The parent's ranks of one colour, by key, then by rank. Returns how many there are, or an error.
 */
static int order_members(const struct member *all, int nranks, int colour, int order[])
{
    int n = 0;
    uint64_t *sorted = malloc((size_t)nranks * sizeof(*sorted));
    if (!sorted)
        return HALAY_ENOMEM;
    for (int r = 0; r < nranks; r++)
        if (all[r].colour == colour)
            sorted[n++] = (uint64_t)((int64_t)all[r].key - INT32_MIN) << 32 | (uint32_t)r;
    qsort(sorted, (size_t)n, sizeof(*sorted), compare_words);
    for (int i = 0; i < n; i++)
        order[i] = (int)(uint32_t)sorted[i];
    free(sorted);
    return n;
}

static int split_locked(halay_comm_t *comm, const struct member *all, int *order, int colour,
                        halay_comm_t **split)
{
    uint64_t id = child_id(comm, SPLIT, colour);
    if (colour < 0) {
        *split = NULL;
        return HALAY_OK;
    }
    int rank = -1;
    int n = order_members(all, comm->nranks, colour, order);
    if (n < 0)
        return n;
    for (int r = 0; r < n; r++) {
        if (order[r] == comm->rank)
            rank = r;
        order[r] = hly_comm_world_rank(comm, order[r]);
    }
    assert(rank >= 0);
    struct hly_ranks *ranks;
    int rc = hly_ranks_make(order, n, &ranks);
    return rc ? rc : make(comm->context, id, ranks, rank, comm->deadline_ns, split);
}

/* Gathers the members. Ranks that have made other communicators of this one differ in it. */
static int gather_members(halay_comm_t *comm, const struct member *mine, struct member *all)
{
    struct hly_check c = {0};
    struct hly_call call = hly_call_of(HALAY_ALLGATHER, mine, all, 2, HALAY_INT32);
    call.desc.flags |= HLY_CALL_LIST;
    hly_lock(comm->context);
    call.signature = comm->made;
    hly_unlock(comm->context);
    return hly_post(comm, &call, &c, HLY_WAIT, NULL);
}

int halay_comm_split(halay_comm_t *handle, int colour, int key, halay_comm_t **split)
{
    halay_comm_t *comm;
    int rc = parent_of(handle, split, "comm_split", &comm);
    if (rc)
        return rc;
    struct member mine = {colour, key};
    struct member *all = calloc((size_t)comm->nranks, sizeof(*all));
    int *order = calloc((size_t)comm->nranks, sizeof(*order));
    const bool room = all && order;
    rc = room ? gather_members(comm, &mine, all)
              : hly_comm_reject(comm, HALAY_ENOMEM, "comm_split: no memory for the list of ranks");
    if (room && !rc) {
        hly_lock(comm->context);
        rc = split_locked(comm, all, order, colour, split);
        if (rc)
            refuse_make(comm, "comm_split", rc);
        hly_unlock(comm->context);
    }
    free(order);
    free(all);
    return rc;
}

int halay_comm_split_node(halay_comm_t *handle, halay_comm_t **split)
{
    halay_comm_t *comm;
    int rc = parent_of(handle, split, "comm_split_node", &comm);
    if (rc)
        return rc;
    hly_lock(comm->context);
    halay_shape_t *shape;
    struct hly_ranks *ranks;
    rc = hly_comm_shape(comm, &shape);
    if (rc)
        goto unlock;
    uint32_t node = shape->node[comm->rank], first = shape->first[node];
    int n = (int)(shape->first[node + 1] - first), rank = -1;
    int *world = calloc((size_t)n, sizeof(*world));
    rc = world ? HALAY_OK : HALAY_ENOMEM;
    for (int i = 0; i < n && !rc; i++) {
        if (shape->member[first + (uint32_t)i] == (uint32_t)comm->rank)
            rank = i;
        world[i] = hly_comm_world_rank(comm, (int)shape->member[first + (uint32_t)i]);
    }
    uint64_t id = child_id(comm, SPLIT_NODE, (int)node);
    rc = rc ? rc : hly_ranks_make(world, n, &ranks);
    rc = rc ? rc : make(comm->context, id, ranks, rank, comm->deadline_ns, split);
    free(world);
    halay_shape_free(shape);
unlock:
    if (rc)
        refuse_make(comm, "comm_split_node", rc);
    hly_unlock(comm->context);
    return rc;
}

static void check_list(struct hly_check *c, const halay_comm_t *comm, const int ranks[], int n)
{
    bool *seen = calloc((size_t)comm->nranks, sizeof(*seen));
    if (!seen) {
        hly_wrong(c, "no memory");
        c->code = HALAY_ENOMEM;
    } else if (n < 0 || n > comm->nranks || (n && !ranks)) {
        hly_wrong(c, "there is no list of so many ranks");
    }
    for (int i = 0; seen && ranks && i < n && !c->code; i++) {
        if (ranks[i] < 0 || ranks[i] >= comm->nranks)
            hly_wrong(c, "the list has a rank that the communicator does not have");
        else if (seen[ranks[i]])
            hly_wrong(c, "the list has a rank twice");
        else
            seen[ranks[i]] = true;
    }
    free(seen);
}

static int subset_locked(halay_comm_t *comm, uint64_t id, const int ranks[], int n,
                         halay_comm_t **subset)
{
    int rank = -1, *world = calloc((size_t)n + 1, sizeof(*world));
    if (!world)
        return HALAY_ENOMEM;
    for (int i = 0; i < n; i++) {
        if (ranks[i] == comm->rank)
            rank = i;
        world[i] = hly_comm_world_rank(comm, ranks[i]);
    }
    int rc = HALAY_OK;
    struct hly_ranks *members;
    *subset = NULL;
    if (rank >= 0)
        rc = hly_ranks_make(world, n, &members);
    if (rank >= 0 && !rc)
        rc = make(comm->context, id, members, rank, comm->deadline_ns, subset);
    free(world);
    return rc;
}

int halay_comm_from_ranks(halay_comm_t *handle, const int ranks[], int n, halay_comm_t **subset)
{
    struct hly_check c = {0};
    struct hly_call call = {0};
    halay_comm_t *comm = hly_comm_of(handle);
    if (!comm)
        return HALAY_EINVAL;
    if (!subset)
        return hly_comm_reject(comm, HALAY_EINVAL,
                               "comm_from_ranks: there is no place for the communicator (NULL)");
    check_list(&c, comm, ranks, n);
    call.desc.collective = HALAY_BARRIER;
    call.desc.flags = HLY_CALL_LIST;
    call.desc.count = (uint64_t)n;
    if (hly_forked(comm->context))
        return HALAY_EFORKED;
    hly_lock(comm->context);
    call.signature = comm->made;
    hly_unlock(comm->context);
    if (!c.code)
        call.signature = hly_hash(call.signature, ranks, (size_t)n * sizeof(*ranks));
    int rc = hly_post(comm, &call, &c, HLY_WAIT, NULL);
    if (rc)
        return rc;
    hly_lock(comm->context);
    rc = subset_locked(comm, child_id(comm, FROM_RANKS, -2), ranks, n, subset);
    if (rc)
        refuse_make(comm, "comm_from_ranks", rc);
    hly_unlock(comm->context);
    return rc;
}

int halay_comm_create_group(halay_comm_t *handle, const int ranks[], int n, uint64_t tag,
                            halay_comm_t **made)
{
    struct hly_check c = {0};
    halay_comm_t *comm;
    int rc = parent_of(handle, made, "comm_create_group", &comm);
    if (rc)
        return rc;
    check_list(&c, comm, ranks, n);
    hly_lock(comm->context);
    uint64_t key[3] = {CREATE_GROUP_TAG, tag,
                       c.code ? 0 : hly_hash(0, ranks, (size_t)n * sizeof(*ranks))};
    uint64_t id = hly_hash(comm->id, key, sizeof(key));
    if (!c.code && (hly_comm_find(comm->context, id) || hly_comm_is_gone(comm->context, id)))
        hly_wrong(&c, "the list has, or had, a communicator with this tag");
    rc = c.code;
    if (rc)
        hly_comm_refuse(comm, rc, c.text);
    else if ((rc = subset_locked(comm, id ? id : 1, ranks, n, made)))
        refuse_make(comm, "comm_create_group", rc);
    hly_unlock(comm->context);
    return rc;
}
