/* SPDX-License-Identifier: Apache-2.0 */
/* circle.c - makes, opens and ends circles, the communicators of a device library (circle.h). */
#include "exec/circle.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exec/exec.h"

struct hly_circles *hly_circles_of(halay_comm_t *comm)
{
    if (comm->circles)
        return comm->circles;
    struct hly_circles *c = calloc(1, sizeof(*c));
    if (!c)
        return NULL;
    c->comm = comm;
    hly_link_init(&c->list);
    hly_link_init(&c->link);
    hly_link_append(&comm->context->circles, &c->link);
    comm->circles = c;
    return c;
}

void hly_circles_begin(halay_comm_t *inner)
{
    struct hly_circles *c = hly_circles_of(inner); /* NULL, no memory: its group steps fail */
    if (!c || c->begun)
        return;
    c->begun = true;
    c->first = inner->next_sequence;
}

void hly_circles_free(halay_comm_t *comm)
{
    struct hly_circles *c = comm->circles;
    if (!c)
        return;
    while (!hly_link_empty(&c->list)) {
        struct hly_circle *circle = HLY_OF(c->list.next, struct hly_circle, link);
        if (circle->flying || (circle->handle && !circle->opened))
            hly_circle_abort(circle);
        circle->flying = 0;
        hly_circle_free(circle);
    }
    hly_link_remove(&c->link);
    comm->circles = NULL;
    free(c);
}

/* True if this call came before the first one with group steps. Not all ranks may have noted that
 * it failed, so generations do not count it. */
static bool is_before_all(const struct hly_circles *c, uint32_t sequence)
{
    const struct hly_nccl_ask *ask = c->comm->nccl;
    if (c->begun)
        return (int32_t)(sequence - c->first) < 0;
    return ask && ask->on && (int32_t)(sequence - ask->from) < 0;
}

uint32_t hly_circle_generation(const struct hly_circles *c, uint32_t sequence)
{
    const uint32_t n = c->nfailed < HLY_FAILED_MAX ? c->nfailed : HLY_FAILED_MAX;
    uint32_t found = 0;
    bool any = false;
    for (uint32_t i = 0; i < n; i++)
        if ((int32_t)(c->failed[i] - sequence) < 0 && !is_before_all(c, c->failed[i]) &&
            (!any || (int32_t)(c->failed[i] - (found - 1)) > 0)) {
            any = true;
            found = c->failed[i] + 1;
        }
    return found;
}

/* ---------------------------------------------------------------- making one */

static uint64_t members_hash(const struct hly_circle *circle)
{
    return hly_hash(circle->n, circle->rank, circle->n * sizeof(*circle->rank));
}

static bool has_members(const struct hly_circle *circle, const halay_member_t *member, uint32_t n)
{
    bool same = circle->n == n;
    for (uint32_t i = 0; same && i < n; i++)
        same = circle->rank[i] == member[i].rank;
    return same;
}

struct hly_circle *hly_circle_find(const halay_request_t *r, uint32_t step)
{
    const halay_plan_t *plan = r->plan->plan;
    const halay_step_t *s = hly_step(r, step);
    const halay_group_t *group = &plan->groups[s->peer];
    const struct hly_circles *c = r->comm->circles;
    const uint32_t generation = hly_circle_generation(c, r->sequence);
    for (const struct hly_link *l = c->list.next; l != &c->list; l = l->next) {
        struct hly_circle *circle = HLY_OF(l, struct hly_circle, link);
        if (circle->channel == s->edge && circle->generation == generation &&
            circle->device == r->device &&
            has_members(circle, &plan->members[group->member], group->nmembers))
            return circle;
    }
    return NULL;
}

static int make(struct hly_circles *c, const halay_member_t *member, uint32_t n,
                struct hly_circle **out)
{
    if (c->ncircles == HLY_CIRCLES_MAX)
        return HALAY_ENOMEM;
    struct hly_circle *circle = calloc(1, sizeof(*circle) + n * sizeof(circle->rank[0]));
    size_t *count = calloc(n, sizeof(*count));
    if (!circle || !count) {
        free(count);
        free(circle);
        return HALAY_ENOMEM;
    }
    circle->circles = c;
    circle->count = count;
    circle->n = n;
    for (uint32_t i = 0; i < n; i++) {
        circle->rank[i] = member[i].rank;
        if (member[i].rank == (uint32_t)c->comm->rank)
            circle->me = i;
    }
    hly_link_init(&circle->link);
    hly_link_append(&c->list, &circle->link);
    c->ncircles++;
    *out = circle;
    return HALAY_OK;
}

void hly_circle_note(struct hly_circle *circle)
{
    const struct hly_group_library *library = circle->library;
    const bool tells = library->ops->size > offsetof(halay_group_ops_t, why) && library->ops->why;
    if (tells && !circle->why[0])
        snprintf(circle->why, sizeof(circle->why), ": %.189s", library->ops->why(library->arg));
}

static int open_end(struct hly_circle *circle, const unsigned char id[HALAY_CIRCLE_ID_BYTES])
{
    const struct hly_group_library *library = circle->library;
    const int rc = library->ops->open(library->arg, id, circle->me, circle->n, &circle->handle);
    circle->opened = rc == HALAY_OK;
    circle->lost = rc < 0;
    if (rc < 0) {
        hly_circle_note(circle);
        circle->handle = NULL;
    }
    return rc < 0 ? rc : HALAY_OK;
}

/* The first member makes the id, and sends it to the others. */
static int invite(struct hly_circle *circle, uint32_t sequence)
{
    struct hly_invitation v = {.members = members_hash(circle), .memory = circle->device->memory};
    int rc = circle->library->ops->invite(circle->library->arg, v.id);
    if (rc)
        hly_circle_note(circle);
    for (uint32_t i = 1; !rc && i < circle->n; i++)
        hly_control_send(circle->circles->comm, (int)circle->rank[i], HLY_INVITE, sequence,
                         circle->channel, circle->generation, NULL, &v, sizeof(v));
    if (!rc)
        rc = open_end(circle, v.id);
    circle->lost = rc < 0;
    return rc;
}

/* Opens the circle if the first member's invitation has come. */
static int accept(struct hly_circle *circle)
{
    struct hly_circles *c = circle->circles;
    for (uint32_t i = 0; i < HLY_INVITATIONS_MAX; i++) {
        struct hly_invited *v = &c->invited[i];
        if (!v->valid || v->channel != circle->channel || v->generation != circle->generation ||
            v->from != circle->rank[0] || v->invitation.memory != circle->device->memory ||
            v->invitation.members != members_hash(circle))
            continue;
        v->valid = false;
        return open_end(circle, v->invitation.id);
    }
    return HALAY_OK;
}

int hly_circle_get(halay_request_t *r, uint32_t step, struct hly_circle **out, char *text,
                   size_t bytes)
{
    const halay_plan_t *plan = r->plan->plan;
    const halay_step_t *s = hly_step(r, step);
    const halay_group_t *group = &plan->groups[s->peer];
    const halay_member_t *member = &plan->members[group->member];
    struct hly_circles *c = r->comm->circles;
    struct hly_circle *circle = hly_circle_find(r, step);
    int rc = HALAY_OK;
    if (!circle) {
        rc = make(c, member, group->nmembers, &circle);
        if (rc) {
            snprintf(text, bytes, "no memory for a circle of %u ranks, or there are %d of them",
                     group->nmembers, HLY_CIRCLES_MAX);
            return rc;
        }
        circle->device = r->device;
        circle->library = hly_comm_group_library(r->comm, r->device);
        circle->channel = s->edge;
        circle->generation = hly_circle_generation(c, r->sequence);
        if (circle->me == 0)
            rc = invite(circle, r->sequence);
    }
    if (!circle->handle && !circle->lost && circle->me > 0)
        rc = accept(circle);
    if (rc || circle->lost) {
        snprintf(text, bytes, "its group %.32s of %u ranks %s (%d)%s", circle->library->name,
                 circle->n, circle->why[0] ? "fails" : "could not be opened, or has failed",
                 rc ? rc : HALAY_EDEVICE, circle->why);
        return rc == HALAY_ENOMEM ? rc : HALAY_EDEVICE;
    }
    *out = circle;
    return HALAY_OK;
}

/* ---------------------------------------------------------------- invitations */

/* Where to keep an invitation: in place of an older one of the same circle, or in a free place. */
static struct hly_invited *place_for(struct hly_circles *c, const struct hly_header *h,
                                     const struct hly_invitation *v)
{
    struct hly_invited *free_place = NULL;
    for (uint32_t i = 0; i < HLY_INVITATIONS_MAX; i++) {
        struct hly_invited *at = &c->invited[i];
        if (!at->valid)
            free_place = at;
        else if (at->channel == h->edge && at->from == h->from &&
                 at->invitation.memory == v->memory && at->invitation.members == v->members)
            return at;
    }
    return free_place;
}

void hly_circle_invited(halay_comm_t *comm, const struct hly_header *h,
                        const struct hly_invitation *v)
{
    struct hly_circles *c = comm->freed ? NULL : hly_circles_of(comm);
    struct hly_invited *at = c ? place_for(c, h, v) : NULL;
    if (!at) {
        hly_log(comm->context, HLY_ERROR, "rank %u invites to a circle that cannot be kept",
                h->from);
        return; /* its steps end by the deadline */
    }
    *at = (struct hly_invited){true, h->edge, (uint32_t)h->cookie, h->from, *v};
}

/* ---------------------------------------------------------------- its end */

void hly_circle_abort(struct hly_circle *circle)
{
    struct hly_device *device = circle->device;
    circle->lost = true;
    if (circle->handle && circle->library->ops->abort(circle->handle, HLY_CIRCLE_ABORT_NS)) {
        hly_log(circle->circles->comm->context, HLY_ERROR,
                "the group %s cannot be stopped; no call can use its device any more",
                circle->library->name);
        device->runs_on = device->lost = true;
    }
    if (circle->handle)
        circle->library->ops->close(circle->handle, 0);
    circle->handle = NULL;
    circle->opened = false;
}

void hly_circle_free(struct hly_circle *circle)
{
    assert(!circle->flying);
    if (circle->handle && !circle->opened)
        hly_circle_abort(circle);
    if (circle->handle && circle->library->ops->close(circle->handle, HLY_CIRCLE_CLOSE_NS) &&
        circle->captured)
        hly_log(
            circle->circles->comm->context, HLY_WARN,
            "the group %s did not end, and was aborted: what graphs of the program still run on "
            "it has any result. Destroy graphs before the communicator is freed, or the context "
            "ends",
            circle->library->name);
    hly_link_remove(&circle->link);
    circle->circles->ncircles--;
    free(circle->count);
    free(circle);
}
