/* SPDX-License-Identifier: Apache-2.0 */
/*
 * api_pair.c - send and receive: a broadcast on a communicator of the two ranks, sender first, one
 * for each direction (docs/decisions/0014). It is made when it is first used, with an id that both
 * sides know, belongs to the communicator that the program named, and is never seen: what fails on
 * it is told with that one's ranks (struct hly_failure).
 */
#include <stdio.h>

#include "api.h"

#define PAIR_TAG 0x7061697200000000ull /* no number of children gets there */

static int pair_of(halay_comm_t *parent, int from, int to, halay_comm_t **pair)
{
    uint64_t key[2] = {PAIR_TAG, (uint64_t)(uint32_t)from << 32 | (uint32_t)to};
    uint64_t id = hly_hash(parent->id, key, sizeof(key));
    halay_context_t *ctx = parent->context;
    halay_comm_t *comm = hly_comm_find(ctx, id);
    int rc = HALAY_OK;
    if (!comm) {
        int world[2] = {hly_comm_world_rank(parent, from), hly_comm_world_rank(parent, to)};
        struct hly_group *group;
        rc = hly_group_make(world, 2, &group);
        rc = rc ? rc : hly_comm_create(ctx, id, group, parent->rank == to, 1, &comm);
        if (rc)
            return rc;
        comm->parent = parent;
        comm->pair[0] = from;
        comm->pair[1] = to;
        hly_link_append(&parent->pairs, &comm->pair_link);
    }
    comm->deadline_ns = parent->deadline_ns;
    *pair = comm;
    return rc;
}

static int post(void *buffer, size_t count, halay_type_t type, bool sending, int peer,
                halay_comm_t *comm, halay_request_t **request)
{
    struct hly_check c = {0};
    struct hly_call call = {.out = buffer};
    halay_comm_t *pair;
    if (!hly_usable(comm, request))
        return HALAY_EINVAL;
    halay_context_t *ctx = comm->context;
    if (hly_forked(ctx))
        return HALAY_EFORKED;
    if (peer < 0 || peer >= comm->nranks || peer == comm->rank) {
        hly_log(ctx, HLY_ERROR, "%s rank %d: it has to be another rank of %d, and this is rank %d",
                sending ? "send to" : "receive from", peer, comm->nranks, comm->rank);
        return HALAY_EINVAL;
    }
    hly_lock(ctx);
    int from = sending ? comm->rank : peer, to = sending ? peer : comm->rank;
    int rc = pair_of(comm, from, to, &pair);
    hly_unlock(ctx);
    if (rc)
        return rc;
    hly_check_type(&c, count, 1, type);
    hly_check_buffers(&c, HALAY_IN_PLACE, 0, buffer, c.code ? 0 : count * halay_type_bytes(type));
    if (comm->magic == HLY_COMM_FREED) {
        c.code = HALAY_ESTATE;
        snprintf(c.text, sizeof(c.text), "the communicator was freed on this rank");
    }
    call.brief.flags = HLY_BRIEF_PAIR;
    call.brief.count = count;
    call.brief.type = hly_brief_byte(type);
    return hly_post(pair, HALAY_BROADCAST, &call, &c, request);
}

int halay_isend(const void *buffer, size_t count, halay_type_t type, int peer, halay_comm_t *comm,
                halay_request_t **request)
{
    return post((void *)(uintptr_t)buffer, count, type, true, peer, comm, request);
}

int halay_irecv(void *buffer, size_t count, halay_type_t type, int peer, halay_comm_t *comm,
                halay_request_t **request)
{
    return post(buffer, count, type, false, peer, comm, request);
}

int halay_send(const void *buffer, size_t count, halay_type_t type, int peer, halay_comm_t *comm)
{
    return halay_isend(buffer, count, type, peer, comm, hly_blocking(comm));
}

int halay_recv(void *buffer, size_t count, halay_type_t type, int peer, halay_comm_t *comm)
{
    return halay_irecv(buffer, count, type, peer, comm, hly_blocking(comm));
}
