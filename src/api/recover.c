/* SPDX-License-Identifier: Apache-2.0 */
/* recover.c - what the survivors of a failure call: revoke, agree, shrink, failed. */
#include <assert.h>
#include <stdlib.h>

#include "api/api.h"
#include "exec/listen.h"
#include "fault/survivors.h"

int halay_comm_revoke(halay_comm_t *handle)
{
    halay_comm_t *comm;
    const int rc = hly_comm_enter(handle, &comm);
    if (rc)
        return rc;
    hly_fault_revoke(comm);
    hly_progress(comm->context);
    hly_unlock(comm->context);
    return HALAY_OK;
}

int halay_comm_failed(halay_comm_t *handle, int ranks[], int *n)
{
    halay_comm_t *comm;
    if (!n || (ranks && *n < 0))
        return hly_comm_reject(hly_comm_of(handle), HALAY_EINVAL,
                               "comm_failed: n is NULL, or negative");
    int rc = hly_comm_enter(handle, &comm);
    if (rc)
        return rc;
    const int room = ranks ? *n : 0;
    hly_progress(comm->context);
    *n = 0;
    for (int r = 0; r < comm->nranks; r++) {
        if (!hly_consensus_has_failed(comm, r))
            continue;
        if (*n < room)
            ranks[*n] = r;
        ++*n;
    }
    hly_unlock(comm->context);
    return HALAY_OK;
}

/* The context is locked. *value: what was agreed on, if there is no error. */
static int agree(halay_comm_t *comm, enum hly_consensus_call call, int32_t flag,
                 struct hly_consensus_value *value)
{
    char text[192];
    if (comm->group_open)
        return hly_fault_alone(comm, HALAY_ESTATE, "a group of calls was begun and not ended");
    hly_exec_listen(comm->context); /* the others may have gone on without this rank, and left */
    hly_progress(comm->context);
    int rc = hly_consensus_begin(comm, call, flag);
    if (rc)
        return hly_fault_alone(comm, rc, "no memory to agree on who has failed");
    hly_wait_until(comm->context, hly_consensus_is_over, comm);
    rc = hly_consensus_end(comm, value, text);
    return rc ? hly_fault_alone(comm, rc, text) : HALAY_OK;
}

int halay_comm_agree(halay_comm_t *handle, int *flag)
{
    halay_comm_t *comm;
    struct hly_consensus_value value = {0};
    if (!flag)
        return hly_comm_reject(hly_comm_of(handle), HALAY_EINVAL, "comm_agree: flag is NULL");
    int rc = hly_comm_enter(handle, &comm);
    if (rc)
        return rc;
    rc = agree(comm, HLY_CALL_AGREE, *flag, &value);
    if (!rc)
        *flag = value.flag;
    hly_unlock(comm->context);
    return rc;
}

/* Its id is one that all survivors compute, and no other ranks: the agreement's number is theirs,
 * and so is the set of those that have failed. */
static int make(halay_comm_t *comm, const struct hly_consensus_value *value,
                halay_comm_t **survivors)
{
    const uint64_t number = comm->survivors->number;
    assert(value->without);
    int n = 0, rank = -1, *world = calloc((size_t)comm->nranks, sizeof(*world));
    if (!world)
        return HALAY_ENOMEM;
    for (int r = 0; r < comm->nranks; r++) {
        if (hly_set_has(value->without, r))
            continue;
        rank = r == comm->rank ? n : rank;
        world[n++] = hly_comm_world_rank(comm, r);
    }
    assert(rank >= 0);
    uint64_t id = hly_hash(hly_hash(comm->id, &number, sizeof(number)), value->without,
                           hly_set_words(comm->nranks) * sizeof(*value->without));
    id = id ? id : 1;
    struct hly_ranks *ranks;
    halay_comm_t *made;
    int rc = hly_ranks_make(world, n, &ranks);
    rc = rc ? rc : hly_comm_make(comm->context, id, ranks, rank, comm->deadline_ns, &made);
    if (!rc) {
        *survivors = made->handle;
        hly_hand_on(comm->context);
    }
    free(world);
    return rc;
}

/* What has failed so far is no reason to leave any more. */
static void note_mended(halay_context_t *context)
{
    for (struct hly_link *l = context->comms.next; l != &context->comms; l = l->next) {
        halay_comm_t *comm = HLY_OF(l, halay_comm_t, link);
        comm->mended = comm->call_failed;
    }
}

int halay_comm_shrink(halay_comm_t *handle, halay_comm_t **survivors)
{
    halay_comm_t *comm;
    struct hly_consensus_value value = {0};
    if (!survivors)
        return hly_comm_reject(hly_comm_of(handle), HALAY_EINVAL, "comm_shrink: survivors is NULL");
    int rc = hly_comm_enter(handle, &comm);
    if (rc)
        return rc;
    rc = agree(comm, HLY_CALL_SHRINK, -1, &value);
    if (!rc && (rc = make(comm, &value, survivors)))
        hly_comm_refuse(comm, rc, "comm_shrink: no memory for the communicator");
    if (!rc)
        note_mended(comm->context);
    hly_unlock(comm->context);
    return rc;
}
