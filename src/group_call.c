/* SPDX-License-Identifier: Apache-2.0 */
/*
 * group_call.c - several calls as one, all or nothing.
 *
 * Calls made between begin and end are bound, not begun (struct hly_bundle). At the end the ranks
 * compare them: the head of the group is a barrier whose signature holds those of all members, and
 * which fails where one of them was wrong on any rank. Only when it has succeeded do the members
 * begin, and since no rank's barrier ends before all ranks have called it with the same members,
 * they begin on all ranks or on none. They run on a hidden communicator, so that a group takes one
 * place in the sequence of the program's own, whatever its length: ranks that differ in it are
 * still in step. Groups begin their members in the order of their heads, which is the same on all
 * ranks: one whose head was faster waits.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api.h"

#define GROUP_TAG   0x67726f7570000000ull /* no number of children gets there */
#define MEMBERS_MAX 65536

struct hly_bundle {
    struct hly_link link; /* comm->bundles, from its end until its members begin */
    halay_comm_t *comm;
    halay_request_t *request, *head; /* the program's, and the barrier */
    halay_request_t **members;
    uint32_t nmembers, room, ncalls; /* calls: also those that were wrong */
    uint32_t left;                   /* members that are not complete */
    bool answered;                   /* the head is complete */
    int result;
    uint32_t failed; /* first member that has failed, and why */
    struct hly_failure failure;
    int wrong; /* what was found so first */
    char text[192];
    uint64_t hash;
};

/* ---------------------------------------------------------------- running */

static void finish(struct hly_bundle *b)
{
    halay_context_t *ctx = b->comm->context;
    if (b->failed != UINT32_MAX) {
        b->failure.sequence = b->head->sequence;
        b->comm->last = b->failure;
        b->comm->failed = true;
        b->result = b->failure.verdict.code;
    }
    b->request->result = b->result;
    b->request->state = HLY_COMPLETE;
    ctx->woken = true; /* whoever looked before this must not go to sleep now */
    hly_wake(ctx);
}

/* Members of the groups whose turn it is. */
static void begin_next(halay_comm_t *comm)
{
    while (!hly_link_empty(&comm->bundles)) {
        struct hly_bundle *b = HLY_OF(comm->bundles.next, struct hly_bundle, link);
        if (!b->answered)
            return;
        hly_link_remove(&b->link);
        b->left = b->result ? 0 : b->nmembers;
        if (!b->left)
            finish(b);
        else
            for (uint32_t i = 0; i < b->nmembers; i++) /* the last to complete finishes it */
                hly_engine_go(b->members[i]);
    }
}

static void member_done(struct hly_bundle *b, const halay_request_t *r)
{
    uint32_t i = 0;
    while (r->result && b->members[i] != r)
        i++;
    if (r->result && i < b->failed) {
        b->failed = i;
        b->failure = r->comm->last;
    }
    if (--b->left == 0)
        finish(b);
}

void hly_group_part_done(halay_request_t *r)
{
    struct hly_bundle *b = r->bundle;
    if (r != b->head) {
        member_done(b, r);
        return;
    }
    b->answered = true;
    b->result = r->result;
    begin_next(b->comm);
}

static void bundle_free(struct hly_bundle *b)
{
    free(b->members);
    free(b);
}

/* One that was never begun, or is over, is handed back. */
static void part_release(halay_request_t *r)
{
    r->bundle = NULL;
    r->state = HLY_COMPLETE;
    hly_request_release(r);
}

static void members_release(struct hly_bundle *b)
{
    for (uint32_t i = 0; i < b->nmembers; i++)
        part_release(b->members[i]);
    b->nmembers = 0;
}

void hly_group_release(halay_request_t *request)
{
    struct hly_bundle *b = request->group;
    request->group = NULL;
    members_release(b);
    part_release(b->head);
    bundle_free(b);
}

/* The context goes: the parts are on its list of requests themselves. */
void hly_group_forget(struct hly_bundle *b)
{
    if (!b)
        return;
    for (uint32_t i = 0; i < b->nmembers; i++)
        b->members[i]->bundle = NULL;
    if (b->head)
        b->head->bundle = NULL;
    bundle_free(b);
}

/* ---------------------------------------------------------------- collecting */

static void wrong_call(struct hly_bundle *b, int code, const char *text)
{
    if (b->wrong)
        return;
    b->wrong = code;
    snprintf(b->text, sizeof(b->text), "call %u of the group: %.160s", b->ncalls, text);
}

static int keep(struct hly_bundle *b, halay_request_t *r)
{
    if (b->nmembers == b->room) {
        uint32_t room = b->room ? 2 * b->room : 8;
        halay_request_t **more = realloc(b->members, room * sizeof(*more));
        if (!more)
            return HALAY_ENOMEM;
        b->members = more;
        b->room = room;
    }
    b->members[b->nmembers++] = r;
    r->bundle = b;
    return HALAY_OK;
}

int hly_group_add(halay_comm_t *comm, const struct hly_call *call, const struct hly_check *c,
                  bool allowed, halay_request_t **request)
{
    struct hly_bundle *b = comm->bundle;
    halay_request_t *r;
    *request = NULL;
    b->ncalls++;
    b->hash = hly_hash(b->hash, &call->signature, sizeof(call->signature));
    if (!allowed || b->nmembers == MEMBERS_MAX) {
        wrong_call(b, HALAY_ESTATE, "not one that a group can have (or one too many)");
        return HALAY_ESTATE;
    }
    if (c->code || b->wrong) {
        wrong_call(b, c->code, c->text);
        return HALAY_OK;
    }
    int rc = hly_engine_make(comm->inner, call, 0, NULL, &r);
    if (!rc && (rc = keep(b, r)))
        part_release(r);
    if (rc)
        wrong_call(b, rc, "no memory for it");
    else if (r->refused)
        wrong_call(b, r->early->code, r->early->detail);
    return HALAY_OK;
}

static int inner_make(halay_comm_t *comm)
{
    size_t bytes = sizeof(struct hly_group) + comm->group->nruns * sizeof(struct hly_run);
    uint64_t tag = GROUP_TAG, id = hly_hash(comm->id, &tag, sizeof(tag));
    struct hly_group *group = malloc(bytes);
    if (!group)
        return HALAY_ENOMEM;
    memcpy(group, comm->group, bytes);
    int rc = hly_comm_create(comm->context, id, group, comm->rank, comm->deadline_ns, &comm->inner);
    if (!rc)
        comm->inner->outer = comm;
    return rc;
}

int halay_group_begin(halay_comm_t *comm)
{
    int rc = HALAY_OK;
    if (!hly_usable(comm, comm))
        return HALAY_EINVAL;
    if (hly_forked(comm->context))
        return HALAY_EFORKED;
    hly_lock(comm->context);
    struct hly_bundle *b = NULL;
    if (comm->bundle) {
        hly_log(comm->context, HLY_ERROR, "group_begin: the one before was not ended");
        rc = HALAY_ESTATE;
    } else if (comm->magic == HLY_COMM_MAGIC && !comm->inner) {
        rc = inner_make(comm);
    }
    if (!rc && !(b = calloc(1, sizeof(*b))))
        rc = HALAY_ENOMEM;
    if (b) {
        hly_link_init(&b->link);
        b->comm = comm;
        b->failed = UINT32_MAX;
        comm->bundle = b;
    }
    hly_unlock(comm->context);
    return rc;
}

/* The barrier, and the request that the program waits for. */
static int ask(struct hly_bundle *b)
{
    halay_comm_t *comm = b->comm;
    struct hly_call call = {
        .brief = {.collective = HALAY_BARRIER, .count = b->ncalls, .flags = HLY_BRIEF_GROUP}};
    call.signature = hly_hash(b->hash, &call.brief, sizeof(call.brief));
    if (comm->magic == HLY_COMM_FREED) {
        b->wrong = HALAY_ESTATE;
        snprintf(b->text, sizeof(b->text), "the communicator was freed on this rank");
    }
    b->request = hly_request_bare(comm);
    if (!b->request)
        return HALAY_ENOMEM;
    int rc = hly_engine_make(comm, &call, b->wrong, b->text, &b->head);
    if (rc) {
        part_release(b->request);
        return rc;
    }
    b->request->state = HLY_RUNNING;
    b->request->group = b;
    b->head->bundle = b;
    hly_link_append(&comm->bundles, &b->link);
    if (comm->inner)
        comm->inner->deadline_ns = comm->deadline_ns;
    hly_engine_go(b->head);
    return HALAY_OK;
}

int halay_group_end(halay_comm_t *comm, halay_request_t **request)
{
    if (!hly_usable(comm, request))
        return HALAY_EINVAL;
    if (hly_forked(comm->context))
        return HALAY_EFORKED;
    hly_lock(comm->context);
    struct hly_bundle *b = comm->bundle;
    int rc = b ? HALAY_OK : HALAY_ESTATE;
    comm->bundle = NULL;
    if (b && (rc = ask(b))) {
        members_release(b);
        bundle_free(b);
    } else if (b) {
        *request = hly_request_handle(b->request);
    } else {
        hly_log(comm->context, HLY_ERROR, "group_end: no group was begun");
    }
    hly_unlock(comm->context);
    return rc;
}
