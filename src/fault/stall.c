/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stall.c - asks where awaited ranks are, says who is missing, and ends calls that wait for a
 * stopped process (stall.h).
 *
 * No rank has more than one question open to another, since a rank that computes for long answers
 * none. A notice ends no call. Only a stopped process does, if looks in /proc have found it stopped
 * for HALAY_STOP_TIMEOUT.
 */
#include "fault/stall.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fault/call.h"
#include "fault/deadlock.h"
#include "waits/text.h"
#include "wire/message.h"

#define ASK_NS       500000000ull /* after so long without progress this rank asks */
#define HELPERS_MOST 8            /* ranks of a node that are asked in turn about a rank of it */
#define DEAD_MOST    16           /* processes that look_for_dead() looks at each time */

struct waiting { /* a call, an agreement, or a message */
    halay_comm_t *comm;
    halay_request_t *call;           /* or NULL */
    struct hly_consensus *consensus; /* or NULL */
    struct hly_waited *message;      /* or NULL */
    uint64_t deadline_ns, now;
};

/* A time of this file. Where a notice of a message is due sooner than usually, so is all else. */
static uint64_t soon(const struct waiting *w, uint64_t ns)
{
    const uint64_t notice_ns = w->comm->context->settings.notice_ns;
    return w->message && notice_ns && notice_ns < HLY_FIRST_NOTICE_NS
               ? (uint64_t)((double)ns * ((double)notice_ns / (double)HLY_FIRST_NOTICE_NS))
               : ns;
}

/* ---------------------------------------------------------------- whom a call waits for */

/* A number that changes whenever the call or agreement makes progress. */
static uint64_t measure(const struct waiting *w)
{
    const halay_request_t *r = w->call;
    if (w->message)
        return 0;
    if (!r)
        return hly_consensus_measure(w->comm, w->consensus);
    uint64_t sum = (uint64_t)r->segments.number * 1000003 + r->run.ndone + (uint64_t)r->state * 31;
    for (uint32_t i = 0; r->run.ran && i < r->plan->nsteps; i++)
        if (r->run.state[i] == HLY_STARTED && hly_step(r, i)->kind == HALAY_STEP_RECV)
            sum += r->run.step[i].arrived;
    if (r->slot->fault)
        sum += (uint64_t)r->slot->fault->voting.ballot * 1009;
    return sum;
}

static void await(struct hly_stall *p, const halay_comm_t *comm, int rank)
{
    struct hly_awaited *a = hly_peer_is_dead(comm, rank) ? NULL : hly_waits_add(&p->waits, rank);
    if (a)
        a->awaited = true;
}

/* A message of any rank: not where there are more than one wait asks. */
static void await_message(struct hly_stall *p, const struct waiting *w)
{
    const halay_comm_t *comm = w->comm;
    const int from = w->message->from;
    if (from != HLY_ANY && from != comm->rank)
        await(p, comm, from);
    for (int rank = 0;
         from == HLY_ANY && comm->nranks - 1 <= HLY_AWAITED_MOST && rank < comm->nranks; rank++)
        if (rank != comm->rank)
            await(p, comm, rank);
}

static void await_all(struct hly_stall *p, const struct waiting *w)
{
    const halay_request_t *r = w->call;
    const halay_comm_t *comm = w->comm;
    int ranks[HLY_AWAITED_MOST];
    hly_waits_none(&p->waits, w->now);
    if (w->message) {
        await_message(p, w);
        return;
    }
    if (!r) {
        const int n = hly_consensus_awaited(comm, w->consensus, ranks, HLY_AWAITED_MOST);
        for (int i = 0; i < n; i++)
            await(p, comm, ranks[i]);
        return;
    }
    const struct hly_fault *f = r->slot->fault;
    const bool fails = r->state == HLY_FAILING;
    struct hly_fault_view at;
    hly_view_t *v = hly_fault_view(&at, w->comm, r->sequence);
    for (uint32_t k = 0; fails && k < hly_failing_neighbours(comm->nranks); k++)
        if (hly_failing_is_silent(v, f, k)) /* it may be called absent */
            await(p, comm, hly_failing_from(v, k));
    for (int rank = 0; fails && f->ready && rank < comm->nranks; rank++)
        if (hly_coordinator_awaits(v, f, rank) && !hly_held_is_gone(v, f, rank))
            await(p, comm, rank);
    r = hly_request_steps(r);
    if (!r->run.ran || (fails && hly_link_empty(&r->flying) && !r->targets))
        return;
    for (uint32_t i = 0; i < r->plan->nsteps; i++)
        if (r->run.state[i] == HLY_STARTED && r->plan->peers[i])
            await(p, comm, (int)hly_step(r, i)->peer);
}

static uint32_t edge_of(const struct hly_stall *p)
{
    return p->of == HLY_OF_SURVIVORS  ? HLY_EDGE_CONSENSUS
           : p->of == HLY_OF_MESSAGES ? HLY_EDGE_MESSAGE
                                      : 0;
}

static void ask(const struct waiting *w, const struct hly_stall *p, int whom, int about)
{
    halay_comm_t *comm = w->comm;
    const uint32_t who = (uint32_t)hly_comm_world_rank(comm, about) + 1;
    struct hly_blocked how = {.comm = 0};
    if (w->message) {
        how = hly_deadlock_blocked(w->message);
        if (how.in != HLY_IN_SEND)
            how.message.number = hly_message_came_from(comm->messages, about);
    }
    hly_control_send(comm, whom, HLY_QUERY, p->sequence, edge_of(p), hly_cookie_about(about, who),
                     NULL, &how, w->message ? sizeof(how) : 0);
}

static bool place_of(const halay_comm_t *comm, int rank, halay_place_t *place)
{
    halay_context_t *ctx = comm->context;
    *place = (halay_place_t){.size = sizeof(*place)};
    return !ctx->boot_ops->get(ctx->boot, hly_comm_world_rank(comm, rank), place);
}

static int node_of(const halay_comm_t *comm, int rank)
{
    halay_place_t place;
    return place_of(comm, rank, &place) ? place.node : -1;
}

enum hly_doing hly_stall_look_near(const halay_comm_t *comm, int rank, int64_t *pid)
{
    halay_context_t *ctx = comm->context;
    const int world_rank = hly_comm_world_rank(comm, rank);
    const struct hly_peer *peer = hly_peer_find(ctx, hly_peer_id(ctx, world_rank));
    halay_place_t place;
    if (!place_of(comm, rank, &place) || place.node != ctx->info.node)
        return HLY_DOING_UNKNOWN;
    const halay_process_t *process = peer ? &peer->process : &place.process;
    const enum hly_doing doing = hly_process_look(process);
    *pid = doing == HLY_DOING_UNKNOWN ? 0 : process->pid;
    return doing;
}

/* 1 + the next rank of that rank's node after `last`, except that rank and this one; 0: none. */
static uint32_t next_helper(const halay_comm_t *comm, int rank, uint32_t last)
{
    const int node = node_of(comm, rank);
    for (int i = 0; i < comm->nranks; i++) {
        const int other = (int)((last + (uint32_t)i) % (uint32_t)comm->nranks);
        if (other != rank && other != comm->rank && node_of(comm, other) == node)
            return (uint32_t)other + 1;
    }
    return 0;
}

/* Asks a rank of the silent one's node what its process does. */
static void look_far(const struct waiting *w, const struct hly_stall *p, struct hly_awaited *a)
{
    const halay_comm_t *comm = w->comm;
    const uint64_t now = w->now;
    struct hly_helper *helper = &a->helper;
    const int rank = (int)a->rank - 1;
    bool lost;
    if (!hly_awaited_ask_helper(a, now, &lost))
        return;
    if (lost) {
        hly_awaited_see(a, HLY_DOING_UNKNOWN, now);
        helper->rank = helper->tried++ < HELPERS_MOST ? next_helper(comm, rank, helper->rank) : 0;
        helper->asked_ns = 0;
    }
    if (!helper->rank)
        return;
    helper->asked_ns = now;
    ask(w, p, (int)helper->rank - 1, rank);
}

static void examine(const struct waiting *w, const struct hly_stall *p, struct hly_awaited *a)
{
    const halay_comm_t *comm = w->comm;
    const uint64_t now = w->now;
    const int rank = (int)a->rank - 1;
    if (hly_awaited_ask(a, soon(w, HLY_AGAIN_NS), now))
        ask(w, p, rank, rank);
    if (!hly_awaited_is_silent(a, now))
        return;
    if (node_of(comm, rank) == comm->context->info.node)
        hly_awaited_see(a, (uint8_t)hly_stall_look_near(comm, rank, &a->pid), now);
    else
        look_far(w, p, a);
}

/* ---------------------------------------------------------------- notices */

static const char *const doing_text[] = {
    [HLY_DOING_UNKNOWN] = "is not in Halay, or stopped, or cut off",
    [HLY_DOING_RUNS] = "is not in Halay, and computes",
    [HLY_DOING_SLEEPS] = "is not in Halay, and sleeps",
    [HLY_DOING_DISK] = "is not in Halay, and waits for a disk or device",
    [HLY_DOING_STOPPED] = "is stopped (SIGSTOP, SIGTSTP or a debugger)",
};

static void name(halay_comm_t *comm, const struct hly_stall *p, const struct hly_awaited *a,
                 uint64_t now, struct hly_line *line)
{
    struct hly_verdict_wire v;
    char who[HLY_RANK_TEXT];
    const int rank = (int)a->rank - 1;
    const bool behind = hly_awaited_is_behind(a, now), stopped = a->doing == HLY_DOING_STOPPED;
    /* A thread of Halay in its process may answer while its program is in no call. */
    const struct hly_chain *chain = &p->chains[a - p->waits.awaited];
    const char *const where =
        chain->n ? "has not made this call: it is in another one" : "has not made this call";
    hly_rank_text(hly_comm_shown_rank(comm, rank), hly_comm_known(comm)->nranks,
                  hly_comm_world_rank(comm, rank), who);
    hly_verdict_init(&v, comm, HLY_CAUSE_ABSENT, HALAY_ETIMEOUT, rank);
    /* Over a network, questions and answers may be lost. */
    const bool lost = comm->nnodes > 1 && !behind && !stopped && a->doing != HLY_DOING_UNKNOWN;
    hly_line_put(line, "%s on %s %s%s%s", who, v.host,
                 behind || stopped ? "" : "does not answer: it ",
                 behind ? where : doing_text[a->doing], lost ? ", or it is cut off" : "");
    if (behind && chain->n) {
        hly_line_put(line, ", ");
        hly_deadlock_text(&chain->blocked[0], true, line);
    }
    if (a->pid)
        hly_line_put(line, ", pid %lld", (long long)a->pid);
    if (behind && a->calls && p->of == HLY_OF_CALLS)
        hly_line_put(line, " (its last here: call %u)", a->calls - 1);
}

/* Is the rank of another node, and has no rank there said what its process does? */
static bool may_be_cut_off(const halay_comm_t *comm, const struct hly_awaited *a, uint64_t now)
{
    return !hly_awaited_is_behind(a, now) && a->doing == HLY_DOING_UNKNOWN &&
           node_of(comm, (int)a->rank - 1) != comm->context->info.node;
}

/* Logs a notice. call: text of the call or agreement, with its number. end: when it ends. */
static void say(halay_comm_t *comm, const struct hly_stall *p, const char *call, uint64_t end,
                uint64_t now)
{
    char room[900];
    struct hly_line line = hly_line(room, sizeof(room));
    bool far = false;
    hly_line_waited(&line, now - p->waits.notices.since_ns, "%s", call);
    hly_line_put(&line, ": ");
    for (int i = 0; i < HLY_AWAITED_MOST; i++) {
        const struct hly_awaited *a = &p->waits.awaited[i];
        if (!hly_awaited_is_missing(a, now) || !hly_line_next(&line, "; "))
            continue;
        name(comm, p, a, now, &line);
        far = far || may_be_cut_off(comm, a, now);
    }
    hly_line_more(&line, "; ");
    hly_line_until(&line, p->of == HLY_OF_SURVIVORS ? "the others go on without it" : HLY_ENDS, end,
                   now);
    if (end > now && far)
        hly_line_put(&line, "; %.1f s after its link was cut, if it is (HALAY_LINK_TIMEOUT)",
                     (double)comm->context->settings.link_timeout_ns * 1e-9);
    hly_log(comm->context, HLY_WARN, "%s", room);
}

/* The lowest rank that is not known to be missing: it logs the notice for all. */
static int speaker(struct hly_stall *p, const struct waiting *w)
{
    const halay_comm_t *comm = w->comm;
    for (int s = 0; s < comm->rank; s++) {
        const struct hly_awaited *a = hly_waits_find(&p->waits, s);
        if (!hly_peer_is_dead(comm, s) && !(a && hly_awaited_is_missing(a, w->now)) &&
            !(w->consensus && hly_set_has(hly_agreement_set(w->consensus->is, HLY_SET_FAILED), s)))
            return s;
    }
    return comm->rank;
}

/* When the call ends at the latest, as far as is known now, with the agreement on its verdict. */
static uint64_t end_ns(const struct waiting *w, const struct hly_stall *p)
{
    uint64_t end = w->deadline_ns;
    for (int i = 0; i < HLY_AWAITED_MOST; i++) {
        const struct hly_awaited *a = &p->waits.awaited[i];
        const uint64_t timeout_ns = w->comm->context->settings.stop_timeout_ns;
        if (a->rank && a->doing == HLY_DOING_STOPPED && w->now + timeout_ns - a->stopped_ns < end)
            end = w->now + timeout_ns - a->stopped_ns;
    }
    return end + HLY_GRACE_MAX_NS + HLY_GRACE_NS;
}

/* Sends the speaker MISSING for each rank that this one finds missing. */
static void report(const struct waiting *w, struct hly_stall *p, int to)
{
    const uint64_t now = w->now;
    struct hly_awaited *s = hly_waits_add(&p->waits, to);
    if (!s || s->asked_ns || now < p->report_ns)
        return;
    p->report_ns = now + HLY_AGAIN_NS;
    s->asked_ns = now;
    for (int i = 0; i < HLY_AWAITED_MOST; i++) {
        const struct hly_awaited *a = &p->waits.awaited[i];
        if (a == s || !hly_awaited_is_missing(a, now))
            continue;
        hly_control_send(
            w->comm, to, HLY_MISSING, p->sequence,
            edge_of(p) | (hly_awaited_is_behind(a, now) ? (uint32_t)HLY_SEEN_BEHIND : a->doing),
            hly_cookie_about((int)a->rank - 1, a->calls), w->call ? &w->call->call : NULL, NULL, 0);
    }
}

/* What is known of a rank that may send or receive the message. */
static void name_other(const struct waiting *w, const struct hly_stall *p,
                       const struct hly_awaited *a, struct hly_line *line)
{
    const int rank = (int)a->rank - 1;
    const halay_comm_t *comm = w->comm;
    const struct hly_chain *chain = &p->chains[a - p->waits.awaited];
    const bool sends = w->message->request && w->message->request->message.is == HLY_MESSAGE_SEND;
    char who[HLY_RANK_TEXT];
    struct hly_verdict_wire v;
    hly_rank_text(rank, comm->nranks, hly_comm_world_rank(comm, rank), who);
    hly_verdict_init(&v, w->comm, HLY_CAUSE_ABSENT, HALAY_ETIMEOUT, rank);
    hly_line_put(line, "%s on %s ", who, v.host);
    if (hly_awaited_is_silent(a, w->now))
        hly_line_put(line, "does not answer: it %s", doing_text[a->doing]);
    else if (a->says == HLY_SEEN_HERE)
        hly_line_put(line, sends ? "has received it just now" : "has sent a message just now");
    else
        hly_line_put(line, sends ? "has not received it" : "has not sent it");
    if (a->pid)
        hly_line_put(line, ", pid %lld", (long long)a->pid);
    if (a->says == HLY_SEEN_BEHIND && !hly_awaited_is_silent(a, w->now) && chain->n) {
        hly_line_put(line, ": it is in ");
        hly_deadlock_text(&chain->blocked[0], true, line);
    }
}

/* Each rank speaks for itself: it waits for a message that nobody else waits for. */
static void speak_of_message(const struct waiting *w, struct hly_stall *p)
{
    char text[900];
    struct hly_line line = hly_line(text, sizeof(text));
    const struct hly_blocked how = hly_deadlock_blocked(w->message);
    bool named = false;
    if (!hly_notices_give(&p->waits.notices, w->now))
        return;
    hly_deadlock_text(&how, true, &line);
    hly_line_waited(&line, w->now - p->waits.notices.since_ns, "%s", "");
    for (int i = 0; i < HLY_AWAITED_MOST; i++) {
        const struct hly_awaited *a = &p->waits.awaited[i];
        if (!a->awaited || !(hly_awaited_is_silent(a, w->now) || a->heard_ns))
            continue;
        hly_line_put(&line, named ? "" : ": ");
        named = true;
        if (hly_line_next(&line, "; "))
            name_other(w, p, a, &line);
    }
    hly_line_more(&line, "; ");
    if (!named && w->message->from == HLY_ANY)
        hly_line_put(&line, ": no rank has sent it");
    hly_line_until(&line, HLY_ENDS, w->deadline_ns, w->now);
    hly_log(w->comm->context, HLY_WARN, "%s", text);
}

static void speak(const struct waiting *w, struct hly_stall *p)
{
    halay_comm_t *comm = w->comm;
    struct hly_notices *notices = &p->waits.notices;
    const uint64_t now = w->now;
    char call[224];
    if (!notices->first_ns || now < notices->since_ns + notices->first_ns ||
        !hly_waits_any_missing(&p->waits, now))
        return;
    const int who = speaker(p, w);
    if (who != comm->rank) {
        report(w, p, who);
        return;
    }
    if (!hly_notices_give(notices, now))
        return;
    if (w->call)
        hly_call_text(comm, &w->call->call.desc, p->sequence, call, sizeof(call));
    else
        snprintf(call, sizeof(call), "%s (agreement %u on this communicator)",
                 hly_consensus_text(w->consensus), p->sequence);
    say(comm, p, call, end_ns(w, p), now);
}

/* ---------------------------------------------------------------- a stopped process */

/* If the verdict calls this rank absent, and a look has shown what its process does, adds that to
 * the verdict, for all ranks. Not late in the agreement, when not all might get it. */
static void tell_seen(const struct waiting *w, const struct hly_awaited *a)
{
    const struct hly_fault *f = w->call->slot->fault;
    struct hly_verdict_wire v = f->verdict;
    if (f->final || w->now + HLY_SILENT_NS / 2 > f->deadline_ns || v.cause != HLY_CAUSE_ABSENT ||
        v.rank != (int)a->rank - 1 || a->doing == HLY_DOING_UNKNOWN ||
        hly_awaited_is_behind(a, w->now))
        return;
    snprintf(v.detail, sizeof(v.detail), "%s: it %s", HLY_ABSENT_TEXT, doing_text[a->doing]);
    if (hly_verdict_better(&v, &f->verdict))
        hly_fault_raise(w->comm, w->call->sequence, &v);
}

static void give_up(const struct waiting *w, const struct hly_awaited *a)
{
    halay_comm_t *comm = w->comm;
    halay_request_t *r = w->call;
    const uint64_t timeout_ns = comm->context->settings.stop_timeout_ns;
    if (a->rank && r && r->state == HLY_FAILING)
        tell_seen(w, a);
    if (!a->awaited || a->doing != HLY_DOING_STOPPED || a->stopped_ns < timeout_ns)
        return;
    if (!r) {
        hly_consensus_absent(comm, w->consensus, (int)a->rank - 1);
        return;
    }
    if (r->state == HLY_FAILING) {
        hly_fault_hurry(comm, r->slot);
        return;
    }
    struct hly_verdict_wire v;
    hly_verdict_init(&v, comm, HLY_CAUSE_STOPPED, HALAY_ETIMEOUT, (int)a->rank - 1);
    v.call = r->call.desc;
    /* The text is the same from each rank that has seen it. */
    snprintf(v.detail, sizeof(v.detail), "is stopped, for %.1f s as far as was seen",
             (double)timeout_ns * 1e-9);
    hly_fault_raise(comm, r->sequence, &v);
}

/* ---------------------------------------------------------------- ranks that cannot go on */

/* This rank's wait ends with an error that names all. */
static void end_wait(struct hly_waited *w, const struct hly_cycle *c)
{
    halay_comm_t *comm = w->comm;
    struct hly_verdict_wire v;
    hly_verdict_init(&v, comm, HLY_CAUSE_DEADLOCK, HALAY_ETIMEOUT, -1);
    hly_deadlock_cycle_text(c, v.detail, sizeof(v.detail));
    if (!hly_deadlock_is_call(w)) {
        w->why = strdup(v.detail);
        comm->context->timer_ns = 0;
        return;
    }
    struct hly_slot *slot = w->request->slot;
    hly_fault_raise(comm, slot->sequence, &v);
    if (w->request->state == HLY_FAILING) /* ranks that have not made the call will not */
        hly_fault_hurry(comm, slot);
}

static void tell(halay_comm_t *world, const struct hly_cycle *c, uint32_t to)
{
    const struct hly_blocked *it = &c->blocked[to];
    hly_control_send(world, it->rank, HLY_REPLY, it->wait, HLY_EDGE_MESSAGE | HLY_SEEN_CYCLE,
                     hly_cookie_about(it->rank, 0), NULL, c->blocked, c->n * sizeof(*it));
}

static void look_for_cycle(struct hly_waited *w, struct hly_stall *p)
{
    struct hly_cycle c;
    if (!hly_deadlock_find(w, p, &c))
        return;
    for (uint32_t i = 0; i < c.n; i++)
        if (c.blocked[i].rank != w->comm->context->info.rank)
            tell(w->comm->context->world, &c, i);
    end_wait(w, &c);
}

/* Another rank has found a set of ranks that cannot go on. */
static void told_cycle(halay_comm_t *world, const struct hly_blocked *blocked, uint32_t nblocked)
{
    struct hly_waited *w = world->context->waiters.waited;
    struct hly_cycle c = {.n = hly_deadlock_check(world, blocked, nblocked)};
    uint32_t at;
    memcpy(c.blocked, blocked, c.n * sizeof(*blocked));
    if (!w || !hly_deadlock_is_in(w, &c, &at))
        return;
    if (c.n > 1) /* who has found it may have ended before its message came there */
        tell(world, &c, (at + 1) % c.n);
    end_wait(w, &c);
}

/* ---------------------------------------------------------------- dead processes */

/*
 * A transport reports only the death of peers, and the peers of the dead rank may be in the
 * program's code. So a rank that waits for long looks at processes of its node once a second, also
 * at those of ranks that its call has no step with. It looks at a few each time, beginning with the
 * rank after itself. So all ranks that wait look at each process soon, and none reads much. A
 * process that has exited by itself may have done its part, and finalized: only one that a signal
 * has killed counts.
 */
static void look_for_dead(const struct waiting *w, struct hly_stall *p)
{
    halay_comm_t *comm = w->comm;
    if (w->now < p->dead_ns || (w->call && !hly_request_runs(w->call)))
        return;
    p->dead_ns = w->now + HLY_AGAIN_NS;
    for (int i = 0, looked = 0; i < comm->nranks && looked < DEAD_MOST; i++) {
        halay_place_t place;
        struct hly_peer *peer;
        struct hly_verdict_wire v;
        const uint32_t next = (uint32_t)comm->rank + 1 + p->dead_next++;
        const int rank = (int)(next % (uint32_t)comm->nranks);
        if (rank == comm->rank || !place_of(comm, rank, &place) ||
            place.node != comm->context->info.node)
            continue;
        looked++;
        if (!hly_process_was_killed(&place.process))
            continue;
        if (w->message) { /* its transport finds out, if there is a connection */
            hly_peer_get(comm->context, hly_comm_world_rank(comm, rank), &peer);
            continue;
        }
        if (!w->call) {
            hly_consensus_lost(comm, rank);
            continue;
        }
        hly_verdict_init(&v, comm, HLY_CAUSE_PEER, HALAY_EPEER, rank);
        v.call = w->call->call.desc;
        snprintf(v.detail, sizeof(v.detail), "its process %lld ended",
                 (long long)place.process.pid);
        hly_fault_raise(comm, w->call->sequence, &v);
        return;
    }
}

/* ---------------------------------------------------------------- from outside */

void hly_stall_hurry(const halay_comm_t *comm)
{
    if (comm->stalls[HLY_OF_CALLS])
        comm->stalls[HLY_OF_CALLS]->look_ns = 0;
}

bool hly_stall_is_behind(const halay_comm_t *comm, uint32_t sequence, int rank)
{
    struct hly_stall *p = comm->stalls[HLY_OF_CALLS];
    const struct hly_awaited *a =
        p && p->sequence == sequence ? hly_waits_find(&p->waits, rank) : NULL;
    return a && hly_awaited_is_behind(a, hly_now_ns());
}

/* Makes the struct if need be. NULL: no memory. Then there are no notices, and the deadline ends
 * the call. */
static struct hly_stall *stall_of(halay_comm_t *comm, uint32_t of)
{
    struct hly_stall **p = &comm->stalls[of];
    if (!*p)
        *p = calloc(1, sizeof(**p));
    if (*p)
        (*p)->of = of;
    return *p;
}

static void restart(struct hly_stall *p, uint32_t sequence, uint64_t since_ns, uint64_t notice_ns)
{
    p->sequence = sequence;
    p->started_ns = since_ns;
    memset(p->chains, 0, sizeof(p->chains));
    hly_waits_begin(&p->waits, since_ns, notice_ns);
}

static void look(const struct waiting *w, uint32_t sequence, uint64_t started_ns)
{
    const uint64_t now = w->now;
    struct hly_stall *p = stall_of(w->comm, w->message ? HLY_OF_MESSAGES
                                            : w->call  ? HLY_OF_CALLS
                                                       : HLY_OF_SURVIVORS);
    if (!p || (p->started_ns == started_ns && now < p->look_ns))
        return;
    if (p->started_ns != started_ns || p->sequence != sequence) {
        restart(p, sequence, started_ns, w->comm->context->settings.notice_ns);
        p->moved = measure(w);
    }
    p->look_ns = now + soon(w, HLY_STALL_LOOK_NS);
    const uint64_t moved = measure(w);
    if (moved != p->moved) {
        p->moved = moved;
        p->waits.notices.since_ns = now;
        p->waits.notices.given = 0;
    }
    if (now < p->waits.notices.since_ns + soon(w, ASK_NS) &&
        !(w->call && w->call->state == HLY_FAILING))
        return;
    await_all(p, w);
    for (int i = 0; i < HLY_AWAITED_MOST; i++)
        if (p->waits.awaited[i].awaited)
            examine(w, p, &p->waits.awaited[i]);
    look_for_dead(w, p);
    if (w->message) {
        look_for_cycle(w->message, p);
        if (!w->message->why)
            speak_of_message(w, p);
        return;
    }
    if (w->call && w->comm->context->waiters.waited &&
        w->comm->context->waiters.waited->request == w->call)
        look_for_cycle(w->comm->context->waiters.waited, p);
    if (w->call ? hly_request_runs(w->call) : !w->consensus->ended)
        speak(w, p);
    for (int i = 0; i < HLY_AWAITED_MOST; i++)
        if (w->call ? w->call->state != HLY_COMPLETE : !w->consensus->ended)
            give_up(w, &p->waits.awaited[i]);
}

void hly_stall_look(halay_request_t *r, uint64_t now)
{
    const struct waiting w = {
        .comm = r->comm, .call = r, .deadline_ns = r->deadline_ns, .now = now};
    if (now >= r->started_ns + ASK_NS && r->sequence == r->comm->oldest && !r->comm->asks_for)
        look(&w, r->sequence, r->started_ns);
}

void hly_stall_look_consensus(halay_comm_t *comm, struct hly_consensus *a, uint64_t now)
{
    const struct waiting w = {
        .comm = comm, .consensus = a, .deadline_ns = a->deadline_ns, .now = now};
    if (now >= a->started_ns + ASK_NS)
        look(&w, a->number, a->started_ns);
}

void hly_stall_look_message(struct hly_waited *message, uint64_t now)
{
    const struct waiting w = {
        .comm = message->comm, .message = message, .deadline_ns = message->deadline_ns, .now = now};
    if (now >= message->since_ns + soon(&w, ASK_NS))
        look(&w, message->number, message->since_ns);
}

/* The call with this number, while this rank is in it. */
static halay_request_t *call_at(halay_comm_t *comm, uint32_t sequence)
{
    const struct hly_slot *slot = hly_comm_slot(comm, sequence);
    return slot && !slot->complete ? slot->request : NULL;
}

static bool is_made(const halay_comm_t *comm, const struct hly_header *h,
                    const struct hly_blocked *how)
{
    if (h->edge & HLY_EDGE_MESSAGE)
        return !how || !hly_deadlock_owes(comm, (int)h->from, how);
    return h->edge & HLY_EDGE_CONSENSUS ? hly_consensus_is_made(comm, h->sequence)
                                        : (int32_t)(comm->next_sequence - h->sequence) > 0;
}

/* Answers a QUERY: where is the rank `about`, which is this rank or one of its node? how: the
 * sender waits for a message; or NULL. */
static void answer(halay_comm_t *comm, const struct hly_header *h, int about,
                   const struct hly_blocked *how)
{
    const uint32_t of = h->edge & (HLY_EDGE_CONSENSUS | HLY_EDGE_MESSAGE);
    const bool made = is_made(comm, h, how);
    struct hly_blocked blocked[HLY_BLOCKED_MOST];
    uint32_t nblocked = 0;
    int64_t pid = 0;
    const halay_request_t *r = NULL;
    uint32_t seen = made ? HLY_SEEN_HERE : HLY_SEEN_BEHIND, calls = comm->next_sequence;
    if (about != comm->rank) {
        seen = hly_stall_look_near(comm, about, &pid);
        calls = (uint32_t)pid;
    } else if (!of) {
        nblocked = hly_deadlock_chain(comm->context, made ? comm : NULL, h->sequence, blocked);
        r = call_at(comm, h->sequence);
    } else if (of == HLY_EDGE_MESSAGE && !made) {
        nblocked = hly_deadlock_chain(comm->context, NULL, 0, blocked);
    }
    hly_control_send(comm, (int)h->from, HLY_REPLY, h->sequence, seen | of,
                     hly_cookie_about(about, calls), r ? &r->call : NULL, blocked,
                     nblocked * sizeof(blocked[0]));
}

void hly_stall_asked_early(halay_context_t *ctx, const struct hly_header *h, struct hly_peer *peer)
{
    const uint32_t consensus = h->edge & HLY_EDGE_CONSENSUS;
    struct hly_blocked blocked[HLY_BLOCKED_MOST];
    const uint32_t n = consensus ? 0 : hly_deadlock_chain(ctx, NULL, 0, blocked);
    hly_control_reply(ctx, peer, h, HLY_SEEN_BEHIND | consensus | (h->edge & HLY_EDGE_MESSAGE),
                      (uint32_t)h->cookie, blocked, n * sizeof(blocked[0]));
}

static uint32_t of(const struct hly_header *h)
{
    return h->edge & HLY_EDGE_CONSENSUS ? HLY_OF_SURVIVORS
           : h->edge & HLY_EDGE_MESSAGE ? HLY_OF_MESSAGES
                                        : HLY_OF_CALLS;
}

/* Ranks that have made different calls may wait for one another without a message between them.
 * A halay_recv() may have another description than its halay_send(). */
static void compare(halay_comm_t *comm, const struct hly_header *h)
{
    halay_request_t *r = call_at(comm, h->sequence);
    if (r && hly_request_runs(r) && !comm->parent && h->signature &&
        h->signature != r->call.signature)
        hly_fault_mismatch(r, h);
}

static void told(halay_comm_t *comm, const struct hly_header *h, int about,
                 const struct hly_blocked *blocked, uint32_t nblocked, uint64_t now)
{
    struct hly_stall *p = comm->stalls[of(h)];
    struct hly_awaited *a = p ? hly_waits_find(&p->waits, about) : NULL;
    const uint32_t seen = h->edge & HLY_EDGE_SEEN, more = (uint32_t)(h->cookie >> 32);
    if (!a)
        return;
    if (h->from + 1 == a->helper.rank && seen <= HLY_DOING_STOPPED) {
        hly_awaited_helped(a, (uint8_t)seen, more, now);
        return;
    }
    if (h->from != (uint32_t)about)
        return;
    a->asked_ns = 0;
    if (h->sequence != p->sequence)
        return; /* the question was about an earlier call */
    struct hly_chain *chain = &p->chains[a - p->waits.awaited];
    hly_awaited_answers(a, seen == HLY_SEEN_HERE, more, now);
    chain->n = hly_deadlock_check(comm, blocked, nblocked);
    memcpy(chain->blocked, blocked, chain->n * sizeof(blocked[0]));
    if (of(h) == HLY_OF_CALLS)
        compare(comm, h);
}

/* A MISSING has come: this rank logs the notice for all, at its next look, or now if it is in no
 * call. */
static void reported(halay_comm_t *comm, const struct hly_header *h, int about, uint64_t now)
{
    const bool consensus = of(h) == HLY_OF_SURVIVORS;
    const bool waits = consensus ? hly_consensus_waits(comm) : comm->oldest != comm->next_sequence;
    const uint64_t notice_ns = comm->context->settings.notice_ns;
    struct hly_stall *p = stall_of(comm, of(h));
    char call[128] = "halay_comm_agree or halay_comm_shrink";
    const bool other = p && (p->sequence != h->sequence || !p->started_ns);
    if (!p || (waits && other)) /* its sender repeats it; or this rank finds out by itself */
        return;
    if (other)
        restart(p, h->sequence, now - notice_ns, notice_ns);
    struct hly_awaited *a = hly_waits_add(&p->waits, about);
    if (!a)
        return;
    hly_awaited_reported(a, h->edge & HLY_EDGE_SEEN, (uint32_t)(h->cookie >> 32), now);
    if (waits || !hly_notices_give(&p->waits.notices, now))
        return;
    if (!consensus)
        hly_desc_text(&h->call, call, sizeof(call));
    say(comm, p, call, 0, now);
}

void hly_stall_asked(halay_comm_t *comm, const struct hly_header *h,
                     const struct hly_blocked *blocked, uint32_t nblocked)
{
    const int about = (int)(h->cookie & 0xffffffff);
    const uint64_t now = hly_now_ns();
    if (about < 0 || about >= comm->nranks)
        return; /* not valid */
    if (h->kind == HLY_QUERY) {
        answer(comm, h, about, nblocked ? blocked : NULL);
    } else if (h->kind == HLY_REPLY && (h->edge & HLY_EDGE_SEEN) == HLY_SEEN_CYCLE) {
        told_cycle(comm, blocked, nblocked);
    } else if (h->kind == HLY_REPLY) {
        told(comm, h, about, blocked, nblocked, now);
    } else if (about != comm->rank && !(h->edge & HLY_EDGE_MESSAGE)) {
        reported(comm, h, about, now);
        answer(comm, h, comm->rank, NULL);
    }
}
