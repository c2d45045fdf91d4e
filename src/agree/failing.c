/* SPDX-License-Identifier: Apache-2.0 */
/*
 * failing.c - one rank's error becomes every rank's, with the same verdict
 * (docs/decisions/agreements.md#0005).
 *
 * A call that has failed on one rank fails on all, because no rank completes a plan before it has
 * heard from every other (proved; exec/relaxed.h is the exception). A rank whose call has failed
 * enters the agreement: it sends NEWS to the ranks 2^k after it, modulo p, for k = 0 .. L-1, where
 * p is the number of ranks and L = ceil(log2 p). This control graph does not depend on the plan,
 * and an error reaches all ranks in L steps. Then one rank, the coordinator, decides which verdict
 * it is (coordinator.c).
 *
 * A rank votes when its buffers are withdrawn, or when the coordinator asks. It ends the call only
 * when its buffers are withdrawn, so it never leaves while others write to it. No rank waits for
 * dead ones. A rank that is absent (has not made the call, or hangs) is named after a quarter of
 * the grace time. The clock then ends the agreement, and ranks forward better verdicts until then.
 *
 * A rank may fail when others have received all that they need from it, and have completed the
 * call. A rank that has completed it votes all the same, for the grace time.
 */
#include "agree/failing.h"

#include <string.h>

typedef struct hly_fault fault_t;
typedef struct hly_verdict_wire verdict_t;

/* Does the verdict call the rank dead or stopped, and is there no link to it? Then nothing is sent
 * to it: the message would wait for a link, and the call's end for the message. A rank with a link
 * may live, and only others cannot reach it. */
static bool is_beyond(hly_view_t *v, const verdict_t *verdict, int rank)
{
    return hly_verdict_counts_out(verdict, rank) && !(v->is(v->arg, rank) & HLY_RANK_LINKED);
}

void hly_failing_alarm(hly_view_t *v, const fault_t *f)
{
    const struct hly_failing_message m = {.in_call = v->made, .from = v->rank};
    for (uint32_t k = 0; k < hly_failing_neighbours(v->nranks); k++)
        if (!is_beyond(v, &f->verdict, hly_failing_to(v, k)))
            v->send(v->arg, hly_failing_to(v, k), &m, &f->verdict);
}

void hly_failing_tell(hly_view_t *v, fault_t *f, int to, const verdict_t *agreed)
{
    struct hly_failing_message m = {.from = v->rank, .what = HLY_AGREE_DECIDED};
    if (f && v->made)
        hly_held_note_speaker(f, v->rank);
    m.edge = f ? (uint32_t)f->speaker : 0;
    v->send(v->arg, to, &m, agreed);
}

/* Ranks with a connection to this one see it end. If p is small, all ranks get the reason: any of
 * them may ask this rank for its vote when it has ended. */
void hly_failing_leave(hly_view_t *v, const verdict_t *why)
{
    const struct hly_failing_message m = {.from = v->rank, .what = HLY_AGREE_LEAVES};
    for (int r = 0; r < v->nranks; r++) {
        const unsigned is = v->is(v->arg, r);
        if (r != v->rank && !(is & (HLY_RANK_DEAD | HLY_RANK_LEFT)) &&
            (v->nranks <= HLY_TOLD_MOST || is & HLY_RANK_CALLED))
            v->send(v->arg, r, &m, why);
    }
}

/* ---------------------------------------------------------------- the clock */

/*
 * Lets the clock end the agreement, where some ranks may never vote. That takes longer where a rank
 * is absent, since ranks have to forward that. The clock also ends it where ranks have gone on
 * after the call (`of`), or may have after a relaxed broadcast. It ends it where builds differ,
 * because ranks of another build may send verdicts that make no sense here.
 */
void hly_failing_by_time(hly_view_t *v, fault_t *f, enum hly_cause cause)
{
    const bool slow =
        cause <= HLY_CAUSE_BUILD || cause >= HLY_CAUSE_STOPPED || f->verdict.of || v->unconfirmed;
    const bool known = cause <= HLY_CAUSE_BUILD || cause == HLY_CAUSE_STOPPED;
    if (!slow || (f->slow && !known))
        return;
    uint64_t grace = HLY_GRACE_NS;
    const uint64_t share = v->deadline_ns / 4;
    if (!known && share > grace)
        grace = share < HLY_GRACE_MAX_NS ? share : HLY_GRACE_MAX_NS;
    if (f->slow && f->deadline_ns < v->now_ns + grace)
        return;
    f->slow = f->hurry = true;
    f->deadline_ns = v->now_ns + grace;
    f->absent_ns = v->now_ns + grace / 4;
}

void hly_failing_hurry(hly_view_t *v, fault_t *f)
{
    const uint64_t end_ns = v->now_ns + HLY_GRACE_MAX_NS;
    if (!f->final)
        hly_failing_by_time(v, f, HLY_CAUSE_ABSENT);
    if (f->deadline_ns > end_ns)
        f->deadline_ns = end_ns;
}

bool hly_failing_look(hly_view_t *v, fault_t *f, uint64_t deadline_ns)
{
    if (v->now_ns >= deadline_ns && !f->slow && !f->final)
        hly_failing_by_time(v, f, HLY_CAUSE_ABSENT); /* a mismatch, and some ranks are absent */
    const bool name = f->slow && !f->final && v->now_ns >= f->absent_ns;
    if (name)
        f->absent_ns = UINT64_MAX;
    f->looks += v->now_ns >= f->deadline_ns;
    return name;
}

void hly_failing_look_alone(hly_view_t *v, fault_t *f)
{
    f->looks += v->now_ns >= f->deadline_ns;
}

/* ---------------------------------------------------------------- who is absent */

bool hly_failing_is_silent(hly_view_t *v, const fault_t *f, uint32_t k)
{
    const int from = hly_failing_from(v, k);
    return !hly_failing_has(v, f, HLY_SPOKE, from) && !hly_held_is_present(f, from) &&
           !hly_held_is_gone(v, f, from);
}

void hly_failing_name(hly_view_t *v, fault_t *f, verdict_t *absent)
{
    hly_held_share_call(v, absent, &f->verdict);
    if (!f->verdict.stamp && hly_verdict_better(absent, &f->verdict)) {
        hly_held_set(v, f, absent);
        hly_failing_alarm(v, f);
        f->hurry = true;
    }
}

/*
 * Ranks that have not made the call forward nothing. So if many are absent, a rank may hear from
 * none over the control graph. So each rank sends its verdict to all, once. A rank that gets it has
 * until the clock ends the agreement to send a better one.
 */
void hly_failing_named(hly_view_t *v, const fault_t *f)
{
    const struct hly_failing_message m = {
        .in_call = v->made, .from = v->rank, .what = HLY_AGREE_BY_TIME};
    for (int r = 0; v->nranks <= HLY_TOLD_MOST && r < v->nranks; r++)
        if (r != v->rank && !hly_is_dead(v, r) &&
            !(f->verdict.cause == HLY_CAUSE_PEER && f->verdict.rank == r))
            v->send(v->arg, r, &m, &f->verdict);
}

/* ---------------------------------------------------------------- its beginning */

void hly_failing_enter(hly_view_t *v, fault_t *f, uint64_t deadline_ns, const verdict_t *over)
{
    f->entered = true;
    f->deadline_ns = deadline_ns + HLY_GRACE_NS;
    f->absent_ns = deadline_ns;
    f->slow = false;
    if (over) {
        f->final = f->after = true;
        f->verdict = *over;
        f->deadline_ns = v->now_ns + HLY_GRACE_NS;
        return;
    }
    hly_held_reconsider(v, f);
    hly_held_note_dead(v, f);
    hly_failing_by_time(v, f, f->verdict.cause);
    if (f->voting.clocked)
        hly_failing_by_time(v, f, HLY_CAUSE_ABSENT);
    hly_failing_alarm(v, f);
}

void hly_failing_outlive(hly_view_t *v, fault_t *f, const verdict_t *theirs)
{
    f->entered = true;
    f->deadline_ns = v->now_ns + HLY_GRACE_NS;
    hly_held_set(v, f, theirs);
    if (theirs->cause >= HLY_CAUSE_STOPPED)
        hly_failing_by_time(v, f, theirs->cause); /* the others name absent ranks later than that */
    hly_held_note_dead(v, f);
    hly_failing_alarm(v, f);
}

void hly_failing_lost(hly_view_t *v, fault_t *f)
{
    if (f->entered && !f->final && hly_verdict_is_loss(&f->verdict) && hly_held_note_dead(v, f))
        hly_failing_alarm(v, f);
}

/* ---------------------------------------------------------------- its course */

bool hly_failing_heard(hly_view_t *v, fault_t *f, const struct hly_failing_message *m,
                       const verdict_t *theirs)
{
    if (m->in_call)
        hly_held_note_speaker(f, m->from);
    hly_coordinator_heard(v, f, m);
    const bool better = hly_held_adopt(v, f, theirs);
    hly_coordinator_compare(v, f, m, theirs);
    if (!f->entered || !v->made)
        return better;
    if (f->voting.clocked)
        hly_failing_by_time(v, f, HLY_CAUSE_ABSENT);
    if (better) {
        hly_failing_by_time(v, f, theirs->cause);
        if (f->slow && m->what != HLY_AGREE_ASK) /* a proposal goes to all anyway */
            hly_failing_alarm(v, f);
    }
    return better;
}

bool hly_failing_help(hly_view_t *v, fault_t *f, bool first, bool over, verdict_t *agreed)
{
    const bool late = f->looks >= HLY_LATE_LOOKS && hly_coordinator_ends(v, f);
    f->ready |= first || late;
    const bool decides = !over && hly_coordinator_decides(v, f, late);
    if (decides) {
        *agreed = f->verdict;
        hly_verdict_drop_lists(agreed);
        if (!agreed->of) /* its proposer may not know that this rank has completed the call */
            agreed->of = (uint64_t)v->sequence + 1;
    }
    f->final = late || over || decides;
    return decides;
}
