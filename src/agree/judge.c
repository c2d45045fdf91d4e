/* SPDX-License-Identifier: Apache-2.0 */
/*
 * judge.c - one rank says for all which verdict it is (docs/decisions/agreements.md#0085, 0090):
 * where a rank is dead, stopped or late, and wherever the clock ends the agreement.
 *
 * Where several die at once, survivors know of different ones, and the dead are gaps in the control
 * graph. So a rank whose rounds are over gives its word, the verdict that it holds, to the judge:
 * the lowest rank that is not known to be dead. The judge concludes when it has the word of every
 * rank that lives, and tells them. If it dies, the next one judges.
 *
 * Ballots number the judges: the judge of ballot b is rank b modulo the ranks. A rank goes on to a
 * higher ballot when its judge is dead, when it is asked in a higher one, and when the clock goes
 * by: then to the next lap (b divided by the ranks), in which who has not spoken does not judge.
 * It answers in no lower ballot any more.
 *
 * The judge tells nobody a verdict that not all of them hold: if their words differ, or a rank that
 * may live has given none, it proposes the best one, with its ballot, and they give that as their
 * word. The proposal of the higher ballot counts, and any one beats a verdict that was
 * not proposed. So whoever judges after a judge that died or was passed over finds the same
 * verdict, whoever of those that were told has left, and whoever calls only now.
 *
 * A rank that is in no call gives no word. The judge asks, and ends it without those that do not
 * speak within the grace time.
 */
#include <string.h>

#include "agree/failing.h"

typedef struct hly_fault fault_t;
typedef struct hly_judging judging_t;
typedef struct hly_verdict_wire verdict_t;

enum { LAPS = 3 }; /* then each rank ends it by itself */

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

/* How often the clock has gone by: who has not spoken since is passed over. */
static uint32_t lap_of(hly_view_t *v, const fault_t *f)
{
    return f->judging.ballot / (uint32_t)v->nranks;
}

static int judge_in(hly_view_t *v, uint32_t ballot)
{
    return (int)(ballot % (uint32_t)v->nranks);
}

/* Nobody waits for a rank that others call stopped, so it does not judge while another rank can. */
static bool can_judge(hly_view_t *v, const fault_t *f, int rank)
{
    if (rank == v->rank)
        return !hly_verdict_stops(&f->verdict, rank);
    return !is_out(v, f, rank) && (!lap_of(v, f) || has(f->judging.spoke, rank));
}

static void follow(fault_t *f, uint32_t ballot)
{
    judging_t *j = &f->judging;
    if (ballot == j->ballot)
        return;
    j->ballot = ballot;
    j->probed = j->asked = j->overdue = false;
    memset(j->given, 0, sizeof(j->given));
    memset(j->taken, 0, sizeof(j->taken));
}

/* The judge of this ballot, or of the next one whose judge can. */
static int judge_of(hly_view_t *v, fault_t *f)
{
    uint32_t ballot = f->judging.ballot;
    for (int i = 0; i < v->nranks; i++)
        if (can_judge(v, f, judge_in(v, ballot + (uint32_t)i))) {
            follow(f, ballot + (uint32_t)i);
            return judge_in(v, f->judging.ballot);
        }
    while (judge_in(v, ballot) != v->rank)
        ballot++;
    follow(f, ballot);
    return v->rank;
}

static bool is_possible(int nranks)
{
    return nranks > 2 && nranks <= HLY_JUDGED_RANKS;
}

static bool is_judged(hly_view_t *v, const fault_t *f, const verdict_t *verdict)
{
    return is_possible(v->nranks) && (verdict->cause == HLY_CAUSE_PEER ||
                                      verdict->cause >= HLY_CAUSE_STOPPED || (f && lap_of(v, f)));
}

bool hly_judge_rules(hly_view_t *v, const fault_t *f)
{
    return is_judged(v, f, &f->verdict);
}

static void say(hly_view_t *v, const fault_t *f, int to, enum hly_alarm alarm)
{
    const struct hly_failing_message m = {
        .from = v->rank, .in_call = v->made, .edge = f->judging.ballot, .alarm = alarm};
    v->send(v->arg, to, &m, &f->verdict);
}

/* Whom another one calls dead may live, and have a word to say: it is asked. No link to a
 * dead process is made, which this rank hears soon. */
static bool is_awaited(hly_view_t *v, const fault_t *f, int rank)
{
    const bool waits = f->absent_ns != UINT64_MAX && v->now_ns < f->absent_ns;
    if (rank == v->rank || has(f->judging.given, rank) || hly_is_dead(v, rank) ||
        hly_verdict_stops(&f->verdict, rank))
        return false;
    if (f->judging.overdue && !hly_verdict_is_loss(&f->verdict) && !has(f->judging.spoke, rank))
        return false;
    return waits || !is_out(v, f, rank);
}

/* All that live, and who was stopped if it has spoken: it is to hear who judges. */
static bool is_asked(hly_view_t *v, const fault_t *f, int rank)
{
    return rank != v->rank && !hly_is_dead(v, rank) &&
           (has(f->judging.spoke, rank) || !hly_verdict_stops(&f->verdict, rank));
}

static void more_time(hly_view_t *v, fault_t *f, uint32_t times)
{
    f->looks = 0;
    f->deadline_ns = v->now_ns + times * HLY_GRACE_NS;
}

/* Where two have died, ranks may not have heard of the failure, or take another one for the judge.
 * If only one is known, and not all are heard of, another one may be. A rank that has given its
 * word is to hear that this rank judges, too. All are asked about an absent rank when the clock has
 * gone by. */
static void ask(hly_view_t *v, fault_t *f)
{
    judging_t *j = &f->judging;
    const bool loss = hly_verdict_is_loss(&f->verdict);
    const bool waits = f->absent_ns == UINT64_MAX || v->now_ns >= f->absent_ns;
    const bool all = lap_of(v, f) || (loss && (f->verdict.gone[1] || waits));
    if (j->asked || (j->probed && !all))
        return;
    j->probed = true;
    j->asked = all;
    for (int r = 0; r < v->nranks; r++)
        if (all ? is_asked(v, f, r) : is_awaited(v, f, r) && is_out(v, f, r))
            say(v, f, r, HLY_JUDGE);
    if (all && (j->overdue || loss))
        more_time(v, f, 1);
}

/* To the judge: as soon as this rank knows of a death, and when its rounds are over. */
static void give(hly_view_t *v, fault_t *f, bool over)
{
    judging_t *j = &f->judging;
    const bool due = over || lap_of(v, f);
    if (j->answers || (due && j->word != j->ballot + 1)) {
        if (j->answers)
            more_time(v, f, 2);
        say(v, f, judge_in(v, j->ballot), HLY_WORD);
        j->word = j->ballot + 1;
        j->answers = false;
    } else if (!due && hly_verdict_is_loss(&f->verdict) && j->warned != j->ballot + 1) {
        say(v, f, judge_in(v, j->ballot), HLY_ALARM_NEWS);
        j->warned = j->ballot + 1;
    }
}

static bool has_proposed(const fault_t *f)
{
    return f->verdict.stamp == f->judging.ballot + 1;
}

static void propose(hly_view_t *v, fault_t *f)
{
    judging_t *j = &f->judging;
    f->verdict.stamp = (uint64_t)j->ballot + 1;
    memset(j->taken, 0, sizeof(j->taken));
    for (int r = 0; r < v->nranks; r++)
        if (has(j->given, r) && !is_out(v, f, r))
            say(v, f, r, HLY_JUDGE);
    more_time(v, f, 1);
}

/* Do all that have given this rank their word hold its verdict, and no other rank can hold another
 * one? Else it is proposed to them. */
static bool is_taken(hly_view_t *v, fault_t *f)
{
    judging_t *j = &f->judging;
    bool taken = true, whole = true, alone = true;
    for (int r = 0; r < v->nranks; r++) {
        const bool out = is_out(v, f, r), given = has(j->given, r);
        if (r == v->rank)
            continue;
        whole &= given || (out && !hly_verdict_stops(&f->verdict, r));
        alone &= out || !given;
        taken &= out || !given || has(j->taken, r);
    }
    if (alone || (taken && (whole || has_proposed(f))))
        return true;
    if (!has_proposed(f))
        propose(v, f);
    return false;
}

bool hly_judge_decides(hly_view_t *v, fault_t *f, bool over, bool late)
{
    const int judge = judge_of(v, f);
    if (judge != v->rank) {
        give(v, f, over);
        return false;
    }
    f->judging.answers = false;
    ask(v, f);
    bool all = over || lap_of(v, f);
    for (int r = 0; r < v->nranks && all; r++)
        all = !is_awaited(v, f, r);
    return late || ((all || has_proposed(f)) && is_taken(v, f));
}

/* Others wait for the judge twice as long (give): it may need as much time as it gives them for
 * their words, and then for what it proposes. */
bool hly_judge_ends(hly_view_t *v, fault_t *f)
{
    judging_t *j = &f->judging;
    const uint32_t lap = lap_of(v, f);
    if (!is_possible(v->nranks) || !(f->slow || hly_judge_rules(v, f)) || lap >= LAPS)
        return true;
    const int judge = judge_of(v, f);
    if (judge == v->rank && j->asked) {
        const bool again = j->overdue || hly_verdict_is_loss(&f->verdict);
        if (again && (has_proposed(f) || is_taken(v, f)))
            return true;
        j->overdue = true;
    } else {
        if (lap)
            j->spoke[judge / 64] &= ~(UINT64_C(1) << judge % 64);
        follow(f, (lap + 1) * (uint32_t)v->nranks);
        j->overdue = true;
    }
    more_time(v, f, 1);
    return false;
}

void hly_judge_compare(hly_view_t *v, fault_t *f, const struct hly_failing_message *m,
                       const verdict_t *theirs)
{
    if (is_possible(v->nranks) && !m->is_round && m->alarm == HLY_WORD &&
        m->edge == f->judging.ballot && theirs->stamp == f->verdict.stamp &&
        !hly_verdict_better(theirs, &f->verdict) && !hly_verdict_better(&f->verdict, theirs))
        add(f->judging.taken, m->from);
}

void hly_judge_heard(hly_view_t *v, fault_t *f, const struct hly_failing_message *m)
{
    judging_t *j = &f->judging;
    if (!is_possible(v->nranks))
        return;
    add(j->spoke, m->from);
    if (m->is_round || m->edge / (uint32_t)v->nranks > LAPS)
        return;
    const bool laps = m->edge >= (uint32_t)v->nranks;
    j->clocked |= m->alarm == HLY_BY_TIME || (m->alarm == HLY_JUDGE && laps);
    if (m->alarm == HLY_WORD) {
        if (m->edge > j->ballot && judge_in(v, m->edge) == v->rank)
            follow(f, m->edge);
        if (m->edge == j->ballot)
            add(j->given, m->from);
    } else if (m->alarm == HLY_JUDGE && m->edge >= j->ballot &&
               (laps || m->edge == j->ballot || !is_linked(v, judge_in(v, j->ballot)))) {
        follow(f, m->edge);
        j->answers = true;
    }
}

/* Not to who has no link to this rank: it may have left, and the call would wait for it. */
static void tell(hly_view_t *v, fault_t *f, int rank, const verdict_t *agreed)
{
    if (is_linked(v, rank) || (f && has(f->judging.given, rank) && !is_out(v, f, rank)))
        hly_failing_tell(v, f, rank, agreed);
}

/* The lowest rank from this one on that is not out; or as many as there are. */
static int next_living(hly_view_t *v, const fault_t *f, int from)
{
    while (from < v->nranks && from != v->rank && is_out(v, f, from))
        from++;
    return from;
}

void hly_judge_tell(hly_view_t *v, fault_t *f, const verdict_t *agreed)
{
    if (!is_judged(v, f, agreed))
        return;
    const int judge = next_living(v, f, 0), next = next_living(v, f, judge + 1);
    int last = next; /* the next ones, up to one that nobody calls dead */
    while (f && last < v->nranks && last != v->rank && hly_held_is_gone(v, f, last))
        last++;
    const bool all = v->rank == judge || (v->rank >= next && v->rank <= last) ||
                     (f && judge_in(v, f->judging.ballot) == v->rank);
    for (int r = 0; r < v->nranks; r++)
        if (all || (r >= next && r <= last))
            tell(v, f, r, agreed);
}
