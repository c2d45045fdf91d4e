/* SPDX-License-Identifier: Apache-2.0 */
/*
 * held.c - the verdict that a rank holds while ranks agree on one: which verdicts of other ranks it
 * adopts, and which ranks it calls absent.
 *
 * No verdict may call a rank absent that has taken part in the agreement. Others may have called it
 * so because it was not scheduled. Then a rank that knows better puts it on a list that goes with
 * all verdicts (`present`). A rank that reads the list drops such a verdict, and looks for other
 * silent ranks. The list only grows, so this ends.
 */
#include <string.h>

#include "agree/failing.h"

typedef struct hly_fault fault_t;
typedef struct hly_verdict_wire verdict_t;

bool hly_verdict_counts_out(const verdict_t *verdict, int rank)
{
    return hly_verdict_is_loss(verdict) && verdict->rank == rank;
}

bool hly_held_is_claim(const verdict_t *verdict)
{
    return verdict->cause == HLY_CAUSE_ABSENT || verdict->cause == HLY_CAUSE_UNCALLED;
}

bool hly_held_is_present(const fault_t *f, int rank)
{
    for (int i = 0; i < HLY_PRESENT_MAX; i++)
        if (f->verdict.present[i] == (uint32_t)rank + 1)
            return true;
    return false;
}

bool hly_held_is_gone(hly_view_t *v, const fault_t *f, int rank)
{
    for (int i = 0; i < HLY_GONE_MAX; i++)
        if (f->verdict.gone[i] == (uint32_t)rank + 1)
            return true;
    return hly_is_dead(v, rank) || hly_verdict_counts_out(&f->verdict, rank);
}

static bool note_gone(hly_view_t *v, fault_t *f, int rank)
{
    for (int i = 0; i < HLY_GONE_MAX && rank >= 0 && rank != v->rank; i++) {
        if (f->verdict.gone[i] == (uint32_t)rank + 1)
            return false;
        if (!f->verdict.gone[i]) {
            f->verdict.gone[i] = (uint32_t)rank + 1;
            return true;
        }
    }
    return false;
}

bool hly_held_note_dead(hly_view_t *v, fault_t *f)
{
    bool news = false;
    for (int r = 0; r < v->nranks; r++)
        if (hly_is_dead(v, r))
            news |= note_gone(v, f, r);
    return news;
}

static bool note_present(fault_t *f, int rank)
{
    if (hly_held_is_present(f, rank))
        return false;
    for (int i = 0; i < HLY_PRESENT_MAX; i++)
        if (!f->verdict.present[i]) {
            f->verdict.present[i] = (uint32_t)rank + 1;
            return true;
        }
    return false;
}

bool hly_held_is_heard(hly_view_t *v, const fault_t *f, int rank)
{
    if (rank < 0)
        return false;
    if (rank == v->rank)
        return v->made || f->entered;
    return hly_failing_has(v, f, HLY_SPOKE, rank) || hly_held_is_present(f, rank);
}

void hly_held_set(hly_view_t *v, fault_t *f, const verdict_t *verdict)
{
    const size_t words = hly_set_words(v->nranks);
    const verdict_t last = f->verdict;
    f->verdict = *verdict;
    memcpy(f->verdict.present, last.present, sizeof(last.present));
    memcpy(f->verdict.gone, last.gone, sizeof(last.gone));
    memset(f->sets + (size_t)HLY_TOOK * words, 0, words * sizeof(uint64_t));
}

static void set_firm(hly_view_t *v, fault_t *f)
{
    verdict_t firm = f->firm;
    if (!firm.cause) /* a missed deadline, which names no rank */
        firm = (verdict_t){.cause = HLY_CAUSE_DEADLINE,
                           .code = v->timeout_code,
                           .rank = -1,
                           .other = -1,
                           .call = f->verdict.call};
    hly_held_set(v, f, &firm);
}

bool hly_held_reconsider(hly_view_t *v, fault_t *f)
{
    if (f->verdict.stamp || !hly_held_is_claim(&f->verdict) ||
        !hly_held_is_heard(v, f, f->verdict.rank))
        return false;
    note_present(f, f->verdict.rank);
    set_firm(v, f);
    if (f->absent_ns == UINT64_MAX)
        f->absent_ns = 0;
    return true;
}

/*
 * A verdict about a silent rank has the rank, and the call since which ranks are out of step. One
 * rank may know the silent rank, and another that ranks are out of step since this call: the better
 * verdict gets both.
 */
bool hly_held_share_call(hly_view_t *v, verdict_t *to, const verdict_t *from)
{
    const bool silence = (to->cause == HLY_CAUSE_PEER || to->cause >= HLY_CAUSE_STOPPED) &&
                         from->cause >= HLY_CAUSE_STOPPED;
    if (!silence || to->of || from->of != (uint64_t)v->sequence + 1)
        return false;
    to->of = from->of;
    return true;
}

/* A coordinator has proposed at least one of the two verdicts: that of the higher ballot wins, and
 * is not changed. But a device that cannot be stopped wins over all. */
static bool adopt_proposal(hly_view_t *v, fault_t *f, const verdict_t *theirs)
{
    for (int i = 0; i < HLY_GONE_MAX; i++)
        if (theirs->gone[i])
            note_gone(v, f, (int)(theirs->gone[i] - 1));
    const bool runs_on = theirs->cause == HLY_CAUSE_DEVICE,
               mine = f->verdict.cause == HLY_CAUSE_DEVICE;
    if (runs_on != mine ? mine : theirs->stamp <= f->verdict.stamp)
        return false;
    hly_held_set(v, f, theirs);
    return true;
}

bool hly_held_adopt(hly_view_t *v, fault_t *f, const verdict_t *theirs)
{
    verdict_t copy = *theirs;
    const verdict_t *t = &copy;
    if (t->stamp || f->verdict.stamp)
        return adopt_proposal(v, f, t);
    bool news = hly_held_is_any(f) && hly_held_share_call(v, &f->verdict, t);
    if (hly_held_is_any(f))
        hly_held_share_call(v, &copy, &f->verdict);
    if (f->firm.cause && !hly_held_is_claim(t)) { /* the order of messages must not matter */
        hly_held_share_call(v, &f->firm, t);
        hly_held_share_call(v, &copy, &f->firm);
    }
    for (int i = 0; i < HLY_PRESENT_MAX; i++)
        if (t->present[i])
            news |= note_present(f, (int)(t->present[i] - 1));
    for (int i = 0; i < HLY_GONE_MAX; i++)
        if (t->gone[i])
            news |= note_gone(v, f, (int)(t->gone[i] - 1));
    if (t->cause == HLY_CAUSE_PEER)
        news |= note_gone(v, f, t->rank);
    if (!hly_held_is_claim(t) && (!f->firm.cause || hly_verdict_better(t, &f->firm)))
        f->firm = *t;
    news |= hly_held_reconsider(v, f);
    if (hly_held_is_claim(t) && hly_held_is_heard(v, f, t->rank)) {
        news |= note_present(f, t->rank);
        if (!hly_held_is_any(f)) {
            f->verdict.call = t->call;
            set_firm(v, f);
        }
        return news;
    }
    if (hly_held_is_any(f) && !hly_verdict_better(t, &f->verdict))
        return news;
    hly_held_set(v, f, t);
    return true;
}

void hly_held_note_speaker(fault_t *f, int rank)
{
    if (!f->speaker || rank + 1 < f->speaker)
        f->speaker = rank + 1;
}
