/* SPDX-License-Identifier: Apache-2.0 */
/* device_comm.c - makes, opens and ends device communicators (device_comm.h). */
#include "exec/device_comm.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exec/exec.h"

struct hly_device_comms *hly_device_comms_of(halay_comm_t *comm)
{
    if (comm->dcomms)
        return comm->dcomms;
    struct hly_device_comms *c = calloc(1, sizeof(*c));
    if (!c)
        return NULL;
    c->comm = comm;
    hly_link_init(&c->list);
    hly_link_init(&c->link);
    hly_link_append(&comm->context->dcomms, &c->link);
    comm->dcomms = c;
    return c;
}

void hly_device_comms_free(halay_comm_t *comm)
{
    struct hly_device_comms *c = comm->dcomms;
    if (!c)
        return;
    while (!hly_link_empty(&c->list)) {
        struct hly_device_comm *dcomm = HLY_OF(c->list.next, struct hly_device_comm, link);
        if (dcomm->flying || (dcomm->handle && !dcomm->opened))
            hly_device_comm_abort(dcomm);
        dcomm->flying = 0;
        hly_device_comm_free(dcomm);
    }
    hly_link_remove(&c->link);
    comm->dcomms = NULL;
    free(c);
}

uint32_t hly_device_comm_generation(const struct hly_device_comms *c, uint32_t sequence)
{
    const uint32_t n = c->nfailed < HLY_FAILED_MAX ? c->nfailed : HLY_FAILED_MAX;
    uint32_t found = 0;
    bool any = false;
    for (uint32_t i = 0; i < n; i++)
        if ((int32_t)(c->failed[i] - sequence) < 0 &&
            (!any || (int32_t)(c->failed[i] - (found - 1)) > 0)) {
            any = true;
            found = c->failed[i] + 1;
        }
    return found;
}

/* ---------------------------------------------------------------- making one */

static uint64_t members_hash(const struct hly_device_comm *dcomm)
{
    return hly_hash(dcomm->n, dcomm->rank, dcomm->n * sizeof(*dcomm->rank));
}

static bool has_members(const struct hly_device_comm *dcomm, const halay_member_t *member,
                        uint32_t n)
{
    bool same = dcomm->n == n;
    for (uint32_t i = 0; same && i < n; i++)
        same = dcomm->rank[i] == member[i].rank;
    return same;
}

struct hly_device_comm *hly_device_comm_find(const halay_request_t *r, uint32_t step)
{
    const halay_plan_t *plan = r->plan->plan;
    const halay_step_t *s = hly_step(r, step);
    const halay_group_t *group = &plan->groups[s->peer];
    const struct hly_device_comms *c = r->comm->dcomms;
    const uint32_t generation = hly_device_comm_generation(c, r->sequence);
    for (const struct hly_link *l = c->list.next; l != &c->list; l = l->next) {
        struct hly_device_comm *dcomm = HLY_OF(l, struct hly_device_comm, link);
        if (dcomm->channel == s->edge && dcomm->generation == generation &&
            dcomm->device == r->device &&
            has_members(dcomm, &plan->members[group->member], group->nmembers))
            return dcomm;
    }
    return NULL;
}

static int make(struct hly_device_comms *c, const halay_member_t *member, uint32_t n,
                struct hly_device_comm **out)
{
    if (c->ndcomms == HLY_DEVICE_COMMS_MAX)
        return HALAY_ENOMEM;
    struct hly_device_comm *dcomm = calloc(1, sizeof(*dcomm) + n * sizeof(dcomm->rank[0]));
    size_t *count = calloc(n, sizeof(*count));
    if (!dcomm || !count) {
        free(count);
        free(dcomm);
        return HALAY_ENOMEM;
    }
    dcomm->dcomms = c;
    dcomm->count = count;
    dcomm->n = n;
    for (uint32_t i = 0; i < n; i++) {
        dcomm->rank[i] = member[i].rank;
        if (member[i].rank == (uint32_t)c->comm->rank)
            dcomm->me = i;
    }
    hly_link_init(&dcomm->link);
    hly_link_append(&c->list, &dcomm->link);
    c->ndcomms++;
    *out = dcomm;
    return HALAY_OK;
}

void hly_device_comm_note(struct hly_device_comm *dcomm)
{
    const struct hly_group_library *library = dcomm->library;
    const bool tells = library->ops->size > offsetof(halay_group_ops_t, why) && library->ops->why;
    if (tells && !dcomm->why[0])
        snprintf(dcomm->why, sizeof(dcomm->why), ": %.189s", library->ops->why(library->arg));
}

static int open_end(struct hly_device_comm *dcomm, const unsigned char id[HALAY_CIRCLE_ID_BYTES])
{
    const struct hly_group_library *library = dcomm->library;
    const int rc = library->ops->open(library->arg, id, dcomm->me, dcomm->n, &dcomm->handle);
    dcomm->opened = rc == HALAY_OK;
    dcomm->lost = rc < 0;
    if (rc < 0) {
        hly_device_comm_note(dcomm);
        dcomm->handle = NULL;
    }
    return rc < 0 ? rc : HALAY_OK;
}

/* The first member makes the id, and sends it to the others. */
static int invite(struct hly_device_comm *dcomm, uint32_t sequence)
{
    struct hly_invitation v = {.members = members_hash(dcomm), .memory = dcomm->device->memory};
    int rc = dcomm->library->ops->invite(dcomm->library->arg, v.id);
    if (rc)
        hly_device_comm_note(dcomm);
    for (uint32_t i = 1; !rc && i < dcomm->n; i++)
        hly_control_send(dcomm->dcomms->comm, (int)dcomm->rank[i], HLY_INVITE, sequence,
                         dcomm->channel, dcomm->generation, NULL, &v, sizeof(v));
    if (!rc)
        rc = open_end(dcomm, v.id);
    dcomm->lost = rc < 0;
    return rc;
}

/* Opens the device communicator if the first member's invitation has come. */
static int accept(struct hly_device_comm *dcomm)
{
    struct hly_device_comms *c = dcomm->dcomms;
    for (uint32_t i = 0; i < HLY_INVITATIONS_MAX; i++) {
        struct hly_invited *v = &c->invited[i];
        if (!v->valid || v->channel != dcomm->channel || v->generation != dcomm->generation ||
            v->from != dcomm->rank[0] || v->invitation.memory != dcomm->device->memory ||
            v->invitation.members != members_hash(dcomm))
            continue;
        v->valid = false;
        return open_end(dcomm, v->invitation.id);
    }
    return HALAY_OK;
}

int hly_device_comm_get(halay_request_t *r, uint32_t step, struct hly_device_comm **out, char *text,
                        size_t bytes)
{
    const halay_plan_t *plan = r->plan->plan;
    const halay_step_t *s = hly_step(r, step);
    const halay_group_t *group = &plan->groups[s->peer];
    const halay_member_t *member = &plan->members[group->member];
    struct hly_device_comms *c = r->comm->dcomms;
    struct hly_device_comm *dcomm = hly_device_comm_find(r, step);
    int rc = HALAY_OK;
    if (!dcomm) {
        rc = make(c, member, group->nmembers, &dcomm);
        if (rc) {
            snprintf(text, bytes,
                     "no memory for a device communicator of %u ranks, or there are %d of them",
                     group->nmembers, HLY_DEVICE_COMMS_MAX);
            return rc;
        }
        dcomm->device = r->device;
        dcomm->library = hly_comm_group_library(r->comm, r->device);
        dcomm->channel = s->edge;
        dcomm->generation = hly_device_comm_generation(c, r->sequence);
        if (dcomm->me == 0)
            rc = invite(dcomm, r->sequence);
    }
    if (!dcomm->handle && !dcomm->lost && dcomm->me > 0)
        rc = accept(dcomm);
    if (rc || dcomm->lost) {
        snprintf(text, bytes, "its group %.32s of %u ranks %s (%d)%s", dcomm->library->name,
                 dcomm->n, dcomm->why[0] ? "fails" : "could not be opened, or has failed",
                 rc ? rc : HALAY_EDEVICE, dcomm->why);
        return rc == HALAY_ENOMEM ? rc : HALAY_EDEVICE;
    }
    *out = dcomm;
    return HALAY_OK;
}

/* ---------------------------------------------------------------- invitations */

/* Where to keep an invitation: in place of an older one to the same members, or in a free place. */
static struct hly_invited *place_for(struct hly_device_comms *c, const struct hly_header *h,
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

void hly_device_comm_invited(halay_comm_t *comm, const struct hly_header *h,
                             const struct hly_invitation *v)
{
    struct hly_device_comms *c = comm->freed ? NULL : hly_device_comms_of(comm);
    struct hly_invited *at = c ? place_for(c, h, v) : NULL;
    if (!at) {
        hly_log(comm->context, HLY_ERROR,
                "rank %u invites to a device communicator that cannot be kept", h->from);
        return; /* its steps end by the deadline */
    }
    *at = (struct hly_invited){true, h->edge, (uint32_t)h->cookie, h->from, *v};
}

/* ---------------------------------------------------------------- its end */

void hly_device_comm_abort(struct hly_device_comm *dcomm)
{
    struct hly_device *device = dcomm->device;
    dcomm->lost = true;
    if (dcomm->handle && dcomm->library->ops->abort(dcomm->handle, HLY_DEVICE_COMM_ABORT_NS)) {
        hly_log(dcomm->dcomms->comm->context, HLY_ERROR,
                "the group %s cannot be stopped; no call can use its device any more",
                dcomm->library->name);
        device->runs_on = device->lost = true;
    }
    if (dcomm->handle)
        dcomm->library->ops->close(dcomm->handle, 0);
    dcomm->handle = NULL;
    dcomm->opened = false;
}

void hly_device_comm_free(struct hly_device_comm *dcomm)
{
    assert(!dcomm->flying);
    if (dcomm->handle && !dcomm->opened)
        hly_device_comm_abort(dcomm);
    if (dcomm->handle && dcomm->library->ops->close(dcomm->handle, HLY_DEVICE_COMM_CLOSE_NS) &&
        dcomm->captured)
        hly_log(
            dcomm->dcomms->comm->context, HLY_WARN,
            "the group %s did not end, and was aborted: what graphs of the program still run on "
            "it has any result. Destroy graphs before the communicator is freed, or the context "
            "ends",
            dcomm->library->name);
    hly_link_remove(&dcomm->link);
    dcomm->dcomms->ndcomms--;
    free(dcomm->count);
    free(dcomm);
}
