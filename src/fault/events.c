/* SPDX-License-Identifier: Apache-2.0 */
/* events.c - makes verdicts of the errors that wire/ and exec/ report. */
#include <stdio.h>
#include <string.h>

#include "exec/device_comm.h"
#include "fault/call.h"
#include "fault/deadlock.h"
#include "fault/survivors.h"
#include "wire/match.h"
#include "wire/rendezvous.h"

/* A peer may have completed the call, and ended, when this rank has this many segments left. */
#define SEGMENTS_LEFT 2

/* ---------------------------------------------------------------- lost peers and messages */

/* Is a part of this step's message among the unexpected ones? */
static bool is_here(const struct hly_slot *slot, const halay_step_t *s, uint32_t segment)
{
    for (struct hly_link *l = slot->unexpected.next; l != &slot->unexpected; l = l->next) {
        const struct hly_unexpected *m = HLY_OF(l, struct hly_unexpected, link);
        if (m->header.kind == HLY_EAGER && m->header.from == s->peer && m->header.edge == s->edge &&
            m->header.segment == (uint16_t)segment)
            return true;
    }
    return false;
}

/* Does this step still need its peer, in this segment (the current one or a later one)? */
static bool is_needed(const halay_request_t *r, const struct hly_slot *slot, uint32_t step,
                      uint32_t segment)
{
    const halay_step_t *s = &r->plan->steps[step];
    if (segment == r->segments.number && r->run.state[step] == HLY_DONE)
        return false;
    return s->kind != HALAY_STEP_RECV || !is_here(slot, s, segment);
}

/*
 * Which data has this peer sent for the request? A peer that has completed the call, and ended, had
 * done all of its steps. So all of its data are here, landed or unexpected. This rank's data for it
 * have left, so this rank is in one of the call's last segments. That holds also if the call fails
 * here meanwhile.
 */
static enum hly_given given_by(const halay_request_t *r, const struct hly_slot *slot,
                               const struct hly_peer *peer)
{
    const struct hly_segments *t = &r->segments;
    enum hly_given given = HLY_GIVEN_NONE;
    if (!r->run.ran || t->n - t->number > SEGMENTS_LEFT)
        return HLY_GIVEN_PART;
    for (uint32_t segment = t->number; segment < t->n; segment++)
        for (uint32_t i = 0; i < r->plan->nsteps; i++) {
            if (r->plan->peers[i] != peer)
                continue;
            if (is_needed(r, slot, i, segment))
                return HLY_GIVEN_PART;
            if (r->plan->steps[i].kind == HALAY_STEP_RECV)
                given = HLY_GIVEN_ALL;
        }
    return given;
}

/*
 * During the agreement a rank is found to have ended. Is it to blame? If the agreement is about a
 * rank that did not answer in time, and this one has sent nothing in it, yes. A forked child may
 * have held its connections open, so that ranks which waited for it could not know of its end.
 */
static bool is_unheard(halay_comm_t *comm, const struct hly_slot *slot, int rank,
                       const struct hly_peer *peer)
{
    struct hly_fault_view at;
    return hly_failing_blames(hly_fault_view(&at, comm, slot->sequence), slot->fault, rank,
                              given_by(slot->request, slot, peer), !peer->ep);
}

static void lost_for_comm(halay_comm_t *comm, int rank, const struct hly_peer *peer)
{
    struct hly_verdict_wire v;
    if (peer->refused) /* the other rank is well, and calls this one lost */
        hly_verdict_init(&v, comm, HLY_CAUSE_LOCAL, HALAY_ENOMEM, comm->rank);
    else
        hly_verdict_init(&v, comm, HLY_CAUSE_PEER, HALAY_EPEER, rank);
    snprintf(v.detail, sizeof(v.detail), "%s", peer->evidence);
    if (peer->cut && !peer->refused) { /* either end may be at fault */
        v.other = comm->rank;
        hly_verdict_other(&v, comm);
    }
    hly_broken_note(&comm->broken, &v);
    if (comm->survivors)
        hly_consensus_lost(comm, rank);
    if (comm->dcomms)
        hly_device_comms_lost(comm->dcomms, hly_now_ns());
    for (int i = 0; i < HLY_SLOTS; i++)
        hly_fault_others(comm, &comm->slots[i]);
    for (uint32_t s = comm->oldest; s != comm->started; s++) {
        struct hly_slot *slot = &comm->slots[s % HLY_SLOTS];
        halay_request_t *r = slot->request;
        if (!r)
            continue;
        const bool fails = r->state == HLY_FAILING;
        v.call = peer->refused ? r->call.desc : v.call;
        if (fails ? is_unheard(comm, slot, rank, peer)
                  : hly_request_runs(r) && given_by(r, slot, peer) == HLY_GIVEN_PART)
            hly_fault_raise(comm, s, &v);
        if (fails)
            hly_fault_progress(comm, slot);
    }
}

static void lost_messages(halay_comm_t *comm)
{
    if (comm->broken.is || !hly_orphan_lost(comm->context, comm->id))
        return;
    hly_verdict_init(&comm->broken.by, comm, HLY_CAUSE_LOCAL, HALAY_ENOMEM, comm->rank);
    snprintf(comm->broken.by.detail, sizeof(comm->broken.by.detail),
             "the others had sent more than fits (%u MiB, %u from one rank) before this rank made "
             "the communicator; make it on all ranks before anything long is sent",
             HLY_ORPHANS_BYTES >> 20, HLY_ORPHANS_SHARE >> 20);
    comm->broken.is = true;
}

void hly_fault_new_comm(halay_comm_t *comm)
{
    halay_context_t *ctx = comm->context;
    for (uint32_t i = 0; i <= ctx->peer_mask; i++)
        for (const struct hly_peer *p = ctx->peer_table[i]; p; p = p->hash_next) {
            int rank = p->dead || p->left_out ? hly_comm_rank_of(comm, p->world_rank) : -1;
            if (rank >= 0)
                lost_for_comm(comm, rank, p);
        }
    lost_messages(comm);
}

void hly_fault_lost(halay_context_t *context, const struct hly_peer *peer)
{
    struct hly_link *next;
    for (struct hly_link *l = context->comms.next; l != &context->comms; l = next) {
        next = l->next;
        halay_comm_t *comm = HLY_OF(l, halay_comm_t, link);
        int rank = hly_comm_rank_of(comm, peer->world_rank);
        if (rank >= 0)
            lost_for_comm(comm, rank, peer);
    }
}

void hly_fault_transport_lost(halay_context_t *context, const char *why)
{
    struct hly_link *next;
    for (struct hly_link *l = context->requests.next; l != &context->requests; l = next) {
        halay_request_t *r = HLY_OF(l, halay_request_t, link);
        struct hly_verdict_wire v;
        next = l->next;
        hly_verdict_init(&v, r->comm, HLY_CAUSE_LOCAL, HALAY_ETRANSPORT, r->comm->rank);
        v.call = r->call.desc;
        snprintf(v.detail, sizeof(v.detail), "%s", why);
        if (r->state == HLY_FAILING)
            hly_fault_progress(r->comm, r->slot);
        else
            hly_fault_raise(r->comm, r->sequence, &v);
    }
}

/* ---------------------------------------------------------------- builds, settings that differ */

/* Skips the items ("name value, ") that are equal at the beginning and at the end of both texts. */
static void skip_equal(const char **a, const char **b, int *a_length, int *b_length)
{
    size_t n = 0, item = 0, na, nb;
    for (; (*a)[n] && (*a)[n] == (*b)[n]; n++)
        if ((*a)[n] == ',' && (*a)[n + 1] == ' ')
            item = n + 2;
    *a += item <= n ? item : 0;
    *b += item <= n ? item : 0;
    na = strlen(*a);
    nb = strlen(*b);
    for (n = item = 0; n < na && n < nb && (*a)[na - 1 - n] == (*b)[nb - 1 - n]; n++)
        if (n && (*a)[na - 1 - n] == ',' && (*a)[na - n] == ' ')
            item = n + 1;
    *a_length = (int)(na - item);
    *b_length = (int)(nb - item);
}

static void differ(halay_context_t *context, enum hly_cause cause, int rank, const char *mine,
                   const char *theirs)
{
    struct hly_link *next;
    for (struct hly_link *l = context->comms.next; l != &context->comms; l = next) {
        next = l->next;
        halay_comm_t *comm = HLY_OF(l, halay_comm_t, link);
        int other = hly_comm_rank_of(comm, rank);
        if (other < 0)
            continue;
        int low = other < comm->rank ? other : comm->rank;
        struct hly_verdict_wire v;
        hly_verdict_init(&v, comm, cause, HALAY_EMISMATCH, low);
        v.other = low == other ? comm->rank : other;
        const char *first = low == other ? theirs : mine, *second = low == other ? mine : theirs;
        int first_length, second_length;
        skip_equal(&first, &second, &first_length, &second_length);
        snprintf(v.detail, sizeof(v.detail), "rank %d has %.*s; rank %d has %.*s",
                 hly_comm_shown_rank(comm, low), first_length < 100 ? first_length : 100, first,
                 hly_comm_shown_rank(comm, v.other), second_length < 100 ? second_length : 100,
                 second);
        if (!comm->broken.agreed &&
            (!comm->broken.is || hly_verdict_better(&v, &comm->broken.by))) {
            comm->broken.is = true;
            comm->broken.by = v;
        }
        for (uint32_t s = comm->oldest; s != comm->started; s++)
            if (comm->slots[s % HLY_SLOTS].request)
                hly_fault_raise(comm, s, &v);
    }
}

void hly_fault_hello(halay_context_t *context, int rank, const struct hly_hello *theirs,
                     bool same_build)
{
    const struct hly_hello *mine = &hly_transport_of(context, rank, NULL)->hello;
    if (same_build)
        differ(context, HLY_CAUSE_SETTINGS, rank, mine->settings, theirs->settings);
    else
        differ(context, HLY_CAUSE_BUILD, rank, mine->build, theirs->build);
}

/* ---------------------------------------------------------------- calls that differ */

void hly_fault_mismatch(halay_request_t *r, const struct hly_header *h)
{
    int mine = r->comm->rank, theirs = (int)h->from;
    struct hly_verdict_wire v;
    hly_verdict_init(&v, r->comm, HLY_CAUSE_MISMATCH, HALAY_EMISMATCH,
                     mine < theirs ? mine : theirs);
    v.other = mine < theirs ? theirs : mine;
    v.call = mine < theirs ? r->call.desc : h->call;
    v.other_call = mine < theirs ? h->call : r->call.desc;
    hly_verdict_other(&v, r->comm);
    if ((h->signature ^ r->call.signature) == HLY_CAPTURED_SIGN)
        snprintf(v.detail, sizeof(v.detail), ", and rank %d alone captures it into a graph",
                 hly_comm_shown_rank(r->comm, r->call.captured ? mine : theirs));
    hly_fault_raise(r->comm, r->sequence, &v);
}

void hly_fault_misfit(halay_request_t *r, uint32_t step, const struct hly_header *h, uint64_t mine,
                      uint64_t theirs)
{
    const halay_plan_t *plan = r->plan->plan;
    bool sending = plan->steps[step].kind == HALAY_STEP_SEND;
    int me = r->comm->rank, from = (int)h->from;
    struct hly_verdict_wire v;
    hly_verdict_init(&v, r->comm, HLY_CAUSE_MISMATCH, HALAY_EMISMATCH, me < from ? me : from);
    v.other = me < from ? from : me;
    v.call = v.other_call = r->call.desc;
    hly_verdict_other(&v, r->comm);
    snprintf(v.detail, sizeof(v.detail), "rank %d sends %llu to rank %d, which expects %llu",
             sending ? me : from,
             (unsigned long long)((sending ? mine : theirs) / r->layout.element_bytes),
             sending ? from : me,
             (unsigned long long)((sending ? theirs : mine) / r->layout.element_bytes));
    hly_fault_raise(r->comm, r->sequence, &v);
}

/* ---------------------------------------------------------------- others */

void hly_fault_unkept(halay_comm_t *comm, uint32_t sequence)
{
    struct hly_verdict_wire v;
    hly_verdict_init(&v, comm, HLY_CAUSE_LOCAL, HALAY_ENOMEM, comm->rank);
    snprintf(v.detail, sizeof(v.detail), "it has no memory for a message that came early");
    hly_fault_raise(comm, sequence, &v);
}

void hly_fault_runs_on(halay_comm_t *comm, const struct hly_slot *slot)
{
    const halay_request_t *r = slot->request;
    const struct hly_fault *f = slot->fault;
    struct hly_verdict_wire v;
    if (!r->device->runs_on || f->ready || f->final || f->verdict.cause == HLY_CAUSE_DEVICE)
        return;
    hly_verdict_init(&v, comm, HLY_CAUSE_DEVICE, HALAY_EDEVICE, comm->rank);
    v.call = r->call.desc;
    snprintf(v.detail, sizeof(v.detail),
             "its device %.32s cannot be stopped: memory of the call may still change; end the job",
             r->device->ops->name);
    hly_fault_raise(comm, slot->sequence, &v);
}

void hly_fault_alarm_members(const struct hly_slot *slot, const halay_step_t *s, uint64_t mark)
{
    const halay_request_t *r = slot->request;
    const halay_plan_t *plan = r->plan->plan;
    const halay_group_t *group = &plan->groups[s->peer];
    for (uint32_t i = 0; i < group->nmembers; i++) {
        const int rank = (int)plan->members[group->member + i].rank;
        struct hly_peer *peer;
        if (rank == r->comm->rank ||
            hly_peer_get(r->context, hly_comm_world_rank(r->comm, rank), &peer) ||
            peer->alarm == mark)
            continue;
        peer->alarm = mark;
        hly_control_send(r->comm, rank, HLY_ALARM, slot->sequence, 0, 0, &r->call,
                         &slot->fault->verdict, sizeof(slot->fault->verdict));
    }
}

void hly_fault_local(halay_request_t *r, int code, const char *text)
{
    struct hly_verdict_wire v;
    hly_verdict_init(&v, r->comm, r->device->runs_on ? HLY_CAUSE_DEVICE : HLY_CAUSE_LOCAL, code,
                     r->comm->rank);
    v.call = r->call.desc;
    snprintf(v.detail, sizeof(v.detail), "%s", text);
    hly_fault_raise(r->comm, r->sequence, &v);
}

/* Is a verdict that a peer has sent valid? */
static bool is_verdict(const halay_comm_t *comm, const struct hly_verdict_wire *v)
{
    bool sound = v->cause >= HLY_CAUSE_PEER && v->cause <= HLY_CAUSE_DEADLINE && v->code < 0 &&
                 v->code >= HALAY_EREVOKED && v->rank >= -1 && v->rank < comm->nranks &&
                 v->other >= -1 && v->other < comm->nranks;
    /* Ranks can be out of step only since a call that is in the window, or is older. */
    sound = sound && (!v->of || (v->of - 1 <= UINT32_MAX &&
                                 (int32_t)((uint32_t)(v->of - 1) - comm->oldest) < HLY_SLOTS));
    for (int i = 0; i < HLY_PRESENT_MAX; i++)
        sound = sound && v->present[i] <= (uint32_t)comm->nranks;
    for (int i = 0; i < HLY_GONE_MAX; i++)
        sound = sound && v->gone[i] <= (uint32_t)comm->nranks;
    return sound;
}

/* That rank has said why it leaves: the verdict on its end will have this text. */
static void note_reason(const halay_comm_t *comm, int rank, const struct hly_verdict_wire *why)
{
    const halay_context_t *ctx = comm->context;
    struct hly_peer *peer = hly_peer_find(ctx, hly_peer_id(ctx, hly_comm_world_rank(comm, rank)));
    if (!peer || peer->dead)
        return;
    peer->explained = true;
    snprintf(peer->evidence, sizeof(peer->evidence), "%s", why->detail);
}

void hly_fault_verdict(halay_comm_t *comm, const struct hly_header *h,
                       const struct hly_verdict_wire *v)
{
    struct hly_verdict_wire mine;
    if (!is_verdict(comm, v)) {
        hly_verdict_init(&mine, comm, HLY_CAUSE_LOCAL, HALAY_EINTERNAL, (int)h->from);
        snprintf(mine.detail, sizeof(mine.detail),
                 "what it said of an error makes no sense; is it the same build of Halay?");
        v = &mine;
    }
    struct hly_slot *slot = hly_comm_slot(comm, h->sequence);
    halay_request_t *r = slot ? slot->request : NULL;
    if (h->kind == HLY_ALARM && h->cookie == HLY_AGREE_LEAVES)
        note_reason(comm, (int)h->from, v);
    hly_fault_heard(comm, h, v);
    if (h->kind == HLY_REVOKE) /* the request may have ended meanwhile */
        hly_rendezvous_revoke(comm, slot && slot->request == r ? r : NULL, h);
}
