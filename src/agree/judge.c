/* SPDX-License-Identifier: Apache-2.0 */
/*
 * judge.c - of a death or a stop one rank says for all whom the verdict names
 * (docs/decisions/agreements.md#0085, 0090).
 *
 * Where several die at once, survivors know of different ones, and the dead are gaps in the control
 * graph. So a rank whose rounds are over gives its word, the verdict that it holds, to the judge:
 * the lowest rank that is not known to be dead. The judge concludes when it has the word of every
 * rank that lives, and tells them. If it dies, the next one judges.
 *
 * It tells nobody a verdict that not all of them hold: if their words differ, it proposes the best
 * one, and they give that as their word. Who has given its word takes up no failure that it finds
 * itself any more. So whoever judges after a judge that dies while it tells finds the same verdict,
 * whoever of those that were told has left.
 *
 * A rank that is in no call gives no word. The judge asks, and ends it without those that do not
 * speak within the grace time. If the judge itself has not spoken by then, it is passed over.
 */
#include <string.h>

#include "agree/failing.h"

typedef struct hly_fault fault_t;
typedef struct hly_judging judging_t;
typedef struct hly_verdict_wire verdict_t;

static bool has(const uint64_t set[], int rank)
{
    return set[rank / 64] >> (rank % 64) & 1;
}

static void add(uint64_t set[], int rank)
{
    set[rank / 64] |= UINT64_C(1) << (rank % 64);
}

static bool is_linked(hly_view_t *v, int rank)
{
    return v->is(v->arg, rank) == HLY_RANK_LINKED;
}

/* Is it dead, or stopped, as far as this rank knows? While the link to one that is called dead is
 * whole, others only cannot reach it. f may be NULL. */
static bool is_out(hly_view_t *v, const fault_t *f, int rank)
{
    return !f ? hly_is_dead(v, rank)
              : hly_verdict_stops(&f->verdict, rank) ||
                    (hly_held_is_gone(v, f, rank) && !is_linked(v, rank));
}

/* Is it passed over, since it has said nothing for so long? */
static bool is_mute(const fault_t *f, int rank)
{
    return f->judging.passed && !has(f->judging.spoke, rank);
}

/* Nobody waits for who is said to be stopped, so it does not judge while another rank can. */
static bool can_judge(hly_view_t *v, const fault_t *f, int rank)
{
    if (rank == v->rank)
        return !f || !hly_verdict_stops(&f->verdict, rank);
    return !is_out(v, f, rank) && !(f && is_mute(f, rank));
}

/* The lowest rank that can, from this one on; or as many as there are. */
static int next_judge(hly_view_t *v, const fault_t *f, int from)
{
    while (from < v->nranks && !can_judge(v, f, from))
        from++;
    return from;
}

static int judge_of(hly_view_t *v, const fault_t *f)
{
    const judging_t *j = &f->judging;
    const int mine = next_judge(v, f, 0);
    if (mine == v->nranks)
        return v->rank;
    return j->judge - 1 > mine && !j->passed && !is_linked(v, mine) ? j->judge - 1 : mine;
}

bool hly_judge_rules(int nranks, const verdict_t *verdict)
{
    return (verdict->cause == HLY_CAUSE_PEER || verdict->cause == HLY_CAUSE_STOPPED) &&
           nranks > 2 && nranks <= HLY_JUDGED_RANKS;
}

static void say(hly_view_t *v, const fault_t *f, int to, enum hly_alarm alarm)
{
    const struct hly_failing_message m = {
        .from = v->rank, .in_call = v->made, .edge = f->judging.passed > 0, .alarm = alarm};
    v->send(v->arg, to, &m, &f->verdict);
}

/* Whom another one calls dead may live, and have a word to say: it is asked. To a dead process no
 * link comes about, which this rank hears soon. */
static bool is_awaited(hly_view_t *v, const fault_t *f, int rank)
{
    const bool waits = f->absent_ns != UINT64_MAX && v->now_ns < f->absent_ns;
    if (rank == v->rank || has(f->judging.given, rank) || hly_is_dead(v, rank) ||
        hly_verdict_stops(&f->verdict, rank))
        return false;
    return waits || !is_out(v, f, rank);
}

static void more_time(hly_view_t *v, fault_t *f)
{
    f->looks = 0;
    f->deadline_ns = v->now_ns + HLY_GRACE_NS;
}

/* Where two have died, ranks may not have heard of the failure, or take another one for the judge.
 * If only one is known, and not all are heard of, another one may be. Who has given its word is to
 * hear that this rank judges, too. */
static void ask(hly_view_t *v, fault_t *f)
{
    judging_t *j = &f->judging;
    const bool waits = f->absent_ns == UINT64_MAX || v->now_ns >= f->absent_ns;
    const bool all = f->verdict.gone[1] || waits;
    if (j->asked || (j->probed && !all))
        return;
    j->probed = true;
    j->asked = all;
    for (int r = 0; r < v->nranks; r++)
        if (all ? is_awaited(v, f, r) || has(j->given, r) : is_awaited(v, f, r) && is_out(v, f, r))
            say(v, f, r, HLY_JUDGE);
    if (all)
        more_time(v, f);
}

/* To the judge: as soon as this rank knows of a death, and when its rounds are over. */
static void give(hly_view_t *v, fault_t *f, int judge, bool over)
{
    judging_t *j = &f->judging;
    int *const told = over ? &j->word : &j->warned;
    if (*told != judge + 1)
        say(v, f, judge, over ? HLY_WORD : HLY_ALARM_NEWS);
    *told = judge + 1;
}

/* Do all that have given this rank their word hold its verdict? It is proposed to the others. */
static bool is_taken(hly_view_t *v, fault_t *f)
{
    judging_t *j = &f->judging;
    bool taken = true;
    for (int r = 0; r < v->nranks; r++) {
        if (!has(j->given, r) || has(j->taken, r) || is_out(v, f, r))
            continue;
        if (!j->proposed)
            say(v, f, r, HLY_PROPOSED);
        taken = false;
    }
    j->proposed = true;
    return taken;
}

bool hly_judge_decides(hly_view_t *v, fault_t *f, bool over, bool late)
{
    judging_t *j = &f->judging;
    const int judge = judge_of(v, f);
    if (j->proposal && j->proposal >= j->word)
        say(v, f, j->proposal - 1, HLY_WORD);
    j->proposal = 0;
    if (judge != v->rank) {
        give(v, f, judge, over);
        return false;
    }
    ask(v, f);
    bool all = over;
    for (int r = 0; r < v->nranks && all; r++)
        all = !is_awaited(v, f, r);
    return late || ((all || j->proposed) && is_taken(v, f));
}

/* Others wait for the judge twice as long: it began later, and may have been passed over to. */
bool hly_judge_ends(hly_view_t *v, fault_t *f)
{
    judging_t *j = &f->judging;
    if (!hly_judge_rules(v->nranks, &f->verdict) || j->passed == 2)
        return true;
    if (j->asked && judge_of(v, f) == v->rank) {
        if (j->proposed || is_taken(v, f))
            return true;
    } else {
        j->passed++;
    }
    more_time(v, f);
    return false;
}

void hly_judge_compare(hly_view_t *v, fault_t *f, const struct hly_failing_message *m,
                       const verdict_t *theirs)
{
    if (v->nranks <= HLY_JUDGED_RANKS && !m->is_round && m->alarm == HLY_WORD &&
        !hly_verdict_better(theirs, &f->verdict) && !hly_verdict_better(&f->verdict, theirs))
        add(f->judging.taken, m->from);
}

void hly_judge_heard(hly_view_t *v, fault_t *f, const struct hly_failing_message *m)
{
    judging_t *j = &f->judging;
    if (v->nranks > HLY_JUDGED_RANKS)
        return;
    add(j->spoke, m->from);
    if (m->is_round)
        return;
    j->clocked |= m->alarm == HLY_BY_TIME;
    if (m->alarm == HLY_WORD)
        add(j->given, m->from);
    else if (m->alarm == HLY_PROPOSED)
        j->proposal = m->from + 1;
    else if (m->alarm == HLY_JUDGE && m->from + 1 > j->judge)
        j->judge = m->from + 1;
    if (m->alarm == HLY_JUDGE && m->edge && !j->passed)
        j->passed = 1; /* for long enough nobody below it has spoken */
}

/* Not to who has no link to this rank: it may have left, and the call would wait for it. */
static void tell(hly_view_t *v, fault_t *f, int rank, const verdict_t *agreed)
{
    if (is_linked(v, rank) || (f && has(f->judging.given, rank) && !is_out(v, f, rank)))
        hly_failing_tell(v, f, rank, agreed);
}

void hly_judge_tell(hly_view_t *v, fault_t *f, const verdict_t *agreed)
{
    if (!hly_judge_rules(v->nranks, agreed))
        return;
    const int judge = next_judge(v, f, 0), next = next_judge(v, f, judge + 1);
    int last = next; /* the next ones, up to one that nobody calls dead */
    while (f && last < v->nranks && last != v->rank && hly_held_is_gone(v, f, last))
        last++;
    const bool all = v->rank == judge || (v->rank >= next && v->rank <= last);
    for (int r = 0; r < v->nranks; r++)
        if (all || (r >= next && r <= last))
            tell(v, f, r, agreed);
}
