/* SPDX-License-Identifier: Apache-2.0 */
/*
 * group.c - several calls as one, all or nothing.
 *
 * Calls made between begin and end get their requests, but do not start (struct hly_group). At the
 * end the ranks compare them. The head of the group is a barrier whose signature holds those of all
 * members. It fails where one of them was wrong on any rank. The members start when it has
 * succeeded. No rank's barrier ends before all ranks have called it with the same members, so they
 * start on all ranks or on none.
 *
 * Members run on a hidden communicator, so that a group, whatever its length, takes one sequence
 * number of the program's communicator. So ranks whose groups differ still agree on the numbers of
 * later calls.
 */
#include <stdio.h>
#include <stdlib.h>

#include "exec/exec.h"
#include "fault/fault.h"
#include "run/group.h"
#include "run/run.h"
#include "wire/news.h"

#define GROUP_TAG   0x67726f7570000000ull /* larger than any number of a child communicator */
#define MEMBERS_MAX 65536

/* ---------------------------------------------------------------- collecting */

static void wrong_call(struct hly_group *b, int code, const char *text)
{
    if (b->wrong)
        return;
    b->wrong = code;
    snprintf(b->text, sizeof(b->text), "call %u of the group: %.160s", b->ncalls, text);
}

static int keep(struct hly_group *b, halay_request_t *r)
{
    if (b->nmembers == b->room) {
        uint32_t room = b->room ? 2 * b->room : 8;
        halay_request_t **more = realloc(b->members, room * sizeof(*more));
        if (!more)
            return HALAY_ENOMEM;
        b->members = more;
        b->room = room;
    }
    if (hly_news_reserve(r->context))
        return HALAY_ENOMEM;
    b->members[b->nmembers++] = r;
    r->group.member_of = b;
    r->reports = true;
    return HALAY_OK;
}

void hly_group_refuse(halay_comm_t *comm, bool full, char *text, size_t bytes)
{
    comm->group_open->ncalls++;
    if (full)
        snprintf(text, bytes,
                 "a group has %d calls at most, and this is one more: end the group before it, "
                 "with halay_group_end, and begin another one",
                 MEMBERS_MAX);
    else
        snprintf(text, bytes,
                 "a group of calls was begun on this communicator, and this has no place in it: "
                 "end it first, with halay_group_end");
    wrong_call(comm->group_open, HALAY_ESTATE, full ? text : "not one that a group can have");
}

int hly_group_add(halay_comm_t *comm, const struct hly_call *call, struct hly_check *c,
                  bool allowed, halay_request_t **request)
{
    struct hly_group *b = comm->group_open;
    halay_request_t *r;
    *request = NULL;
    b->hash = hly_hash(b->hash, &call->signature, sizeof(call->signature));
    if (!allowed || b->nmembers == MEMBERS_MAX) {
        hly_group_refuse(comm, allowed, c->text, sizeof(c->text));
        hly_log(comm->context, HLY_ERROR, "%s", c->text);
        return HALAY_ESTATE;
    }
    b->ncalls++;
    if (c->code || b->wrong) {
        wrong_call(b, c->code, c->text);
        return HALAY_OK;
    }
    b->grouped |= comm->nccl && call->desc.memory == HALAY_MEMORY_CUDA;
    int rc = hly_exec_make(comm->inner, call, 0, NULL, &r);
    if (!rc && (rc = keep(b, r)))
        hly_group_part_release(r);
    if (rc)
        wrong_call(b, rc, "no memory for it");
    else if (r->refused)
        wrong_call(b, r->refusal->code, r->refusal->text);
    return HALAY_OK;
}

static int inner_make(halay_comm_t *comm)
{
    uint64_t tag = GROUP_TAG, id = hly_hash(comm->id, &tag, sizeof(tag));
    struct hly_ranks *ranks;
    int rc = hly_ranks_copy(comm->ranks, &ranks);
    if (!rc)
        rc = hly_comm_make(comm->context, id, ranks, comm->rank, comm->deadline_ns, &comm->inner);
    if (!rc) {
        comm->inner->outer = comm;
        hly_hand_on(comm->context);
    }
    return rc;
}

int halay_group_begin(halay_comm_t *handle)
{
    halay_comm_t *comm = hly_comm_of(handle);
    if (!comm)
        return HALAY_EINVAL;
    int rc = hly_context_enter(comm->context);
    if (rc)
        return rc;
    struct hly_group *b = NULL;
    if (comm->group_open) {
        rc = hly_comm_refuse(comm, HALAY_ESTATE, "group_begin: the one before was not ended");
    } else if (!comm->freed && !comm->inner) {
        rc = inner_make(comm);
    }
    if (!rc && !(b = calloc(1, sizeof(*b))))
        rc = HALAY_ENOMEM;
    if (rc && !comm->group_open)
        hly_comm_refuse(comm, rc, "group_begin: no memory for a group of calls");
    if (b) {
        hly_link_init(&b->link);
        hly_link_init(&b->order);
        b->comm = comm;
        b->failed = UINT32_MAX;
        comm->group_open = b;
    }
    hly_unlock(comm->context);
    return rc;
}

/* Makes the head (a barrier) and the request that the program waits for. */
static int ask(struct hly_group *b)
{
    halay_comm_t *comm = b->comm;
    struct hly_call call = {
        .desc = {.collective = HALAY_BARRIER, .count = b->ncalls, .flags = HLY_CALL_GROUP}};
    call.signature = hly_hash(b->hash, &call.desc, sizeof(call.desc));
    if (comm->freed) {
        b->wrong = HALAY_ESTATE;
        snprintf(b->text, sizeof(b->text), "the communicator was freed on this rank");
    }
    b->request = hly_request_bare(comm);
    if (!b->request)
        return HALAY_ENOMEM;
    int rc = hly_news_reserve(comm->context);
    if (rc)
        goto release_request;
    rc = hly_exec_make(comm, &call, b->wrong, b->text, &b->head);
    if (rc)
        goto unreserve;
    b->request->state = HLY_RUNNING;
    b->request->group.stands_for = b;
    b->head->group.member_of = b;
    b->head->reports = true;
    hly_link_append(&comm->groups, &b->link);
    if (comm->inner)
        comm->inner->deadline_ns = comm->deadline_ns;
    hly_go(b->head);
    if (b->grouped && b->request->state == HLY_RUNNING)
        hly_link_append(&comm->grouped, &b->order);
    hly_group_order(comm);
    return HALAY_OK;

unreserve:
    hly_news_unreserve(comm->context);
release_request:
    hly_group_part_release(b->request);
    return rc;
}

int halay_group_end(halay_comm_t *handle, halay_request_t **request)
{
    halay_comm_t *comm = hly_comm_of(handle);
    if (!comm || !request)
        return hly_comm_reject(comm, HALAY_EINVAL,
                               "group_end: there is no place for the request (NULL)");
    int rc = hly_context_enter(comm->context);
    if (rc)
        return rc;
    struct hly_group *b = comm->group_open;
    rc = b ? HALAY_OK : HALAY_ESTATE;
    comm->group_open = NULL;
    if (b && (rc = ask(b))) {
        hly_group_drop(b);
        hly_comm_refuse(comm, rc, "group_end: no memory to begin the group");
    } else if (b) {
        *request = hly_request_handle(b->request);
    } else {
        hly_comm_refuse(comm, rc, "group_end: no group was begun");
    }
    hly_unlock(comm->context);
    return rc;
}
