/* SPDX-License-Identifier: Apache-2.0 */
/*
 * group_run.c - a group of calls (group.c) after halay_group_end(): its head, its members, its
 * result.
 *
 * Groups start their members in the order of their heads, which is the same on all ranks; a group
 * whose head completes early waits for its turn. Group steps of members are launched in the
 * program's order, too: after those of all calls before the group, and before those of all calls
 * after it (comm->grouped).
 */
#include <stdlib.h>

#include "exec/exec.h"
#include "fault/fault.h"
#include "run/group.h"
#include "wire/news.h"

void hly_group_order(halay_comm_t *comm)
{
    if (!hly_link_empty(&comm->grouped))
        comm->grouped_first = HLY_OF(comm->grouped.next, struct hly_group, order)->head->sequence;
}

static void finish(struct hly_group *b)
{
    halay_context_t *ctx = b->comm->context;
    hly_link_remove(&b->order);
    hly_group_order(b->comm);
    if (b->failed != UINT32_MAX) {
        b->failure.sequence = b->head->sequence;
        b->result = b->failure.verdict.code;
        if (b->comm->inner->broken.is) /* some rank has already returned success for the group */
            hly_fault_break(b->comm, b->head->sequence, &b->failure.verdict);
    }
    if (b->result) {
        b->request->failure = malloc(sizeof(b->failure));
        if (b->request->failure)
            *b->request->failure = b->failure;
    }
    b->request->result = b->result;
    b->request->state = HLY_COMPLETE;
    hly_wake(ctx);
}

static void member_go(const struct hly_group *b, halay_request_t *r)
{
    r->group.is_behind = b->grouped;
    r->group.behind = b->head->sequence;
    hly_go(r);
}

/* Starts the members of the groups whose turn it is. */
static void begin_next(halay_comm_t *comm)
{
    while (!hly_link_empty(&comm->groups)) {
        struct hly_group *b = HLY_OF(comm->groups.next, struct hly_group, link);
        if (!b->answered)
            return;
        hly_link_remove(&b->link);
        b->left = b->result ? 0 : b->nmembers;
        if (!b->left)
            finish(b);
        else
            for (uint32_t i = 0; i < b->nmembers; i++) /* the last one to complete finishes b */
                member_go(b, b->members[i]);
    }
}

static void member_done(struct hly_group *b, const halay_request_t *r)
{
    uint32_t i = 0;
    while (r->result && b->members[i] != r)
        i++;
    if (r->result && i < b->failed) {
        b->failed = i;
        b->failure = r->failure ? *r->failure : (struct hly_failure){.verdict.code = r->result};
    }
    if (--b->left == 0)
        finish(b);
}

void hly_group_part_done(halay_request_t *r)
{
    struct hly_group *b = r->group.member_of;
    if (r != b->head) {
        member_done(b, r);
        return;
    }
    b->answered = true;
    b->result = r->result;
    if (r->failure)
        b->failure = *r->failure;
    begin_next(b->comm);
}

void hly_group_part_release(halay_request_t *r)
{
    if (r->group.member_of && r->state != HLY_COMPLETE)
        hly_news_unreserve(r->context);
    r->group.member_of = NULL;
    r->state = HLY_COMPLETE;
    hly_request_release(r);
}

static void group_free(struct hly_group *b)
{
    free(b->members);
    free(b);
}

void hly_group_drop(struct hly_group *b)
{
    for (uint32_t i = 0; i < b->nmembers; i++)
        hly_group_part_release(b->members[i]);
    group_free(b);
}

void hly_group_release(halay_request_t *request)
{
    struct hly_group *b = request->group.stands_for;
    request->group.stands_for = NULL;
    hly_group_part_release(b->head);
    hly_group_drop(b);
}

/* The context is destroyed: it frees the members itself, for they are on its list of requests. */
void hly_group_forget(struct hly_group *b)
{
    if (!b)
        return;
    for (uint32_t i = 0; i < b->nmembers; i++)
        b->members[i]->group.member_of = NULL;
    if (b->head)
        b->head->group.member_of = NULL;
    group_free(b);
}
