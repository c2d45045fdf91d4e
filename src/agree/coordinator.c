/* SPDX-License-Identifier: Apache-2.0 */
/*
 * coordinator.c - one rank decides the verdict of a failing call (docs/agreements.md,
 * docs/decisions/agreements.md#0085, 0090), as a Paxos proposer does.
 *
 * Each rank votes: it sends the verdict that it holds to the coordinator. The coordinator takes the
 * best one, decides when every rank that lives has voted, and sends the verdict to them. If the
 * coordinator dies, the next rank coordinates.
 *
 * Ballots number the coordinators: the coordinator of ballot b is rank b mod p, for p ranks. A rank
 * moves to a higher ballot when its coordinator is dead or stopped, or when a coordinator asks it
 * in a higher ballot. When its time is over it moves to the next round (b / p). From round 1 on, a
 * rank that has sent nothing does not coordinate. A rank votes in no lower ballot than its own.
 *
 * The coordinator decides only a verdict that all voters hold. If their votes differ, or a rank
 * that may live has not voted, it proposes the best verdict, with its ballot, and they vote for
 * that. The proposal of the higher ballot wins, and any proposal wins over a verdict that was not
 * proposed. So a coordinator after one that died, or was silent, finds the same verdict, even if
 * ranks that have got DECIDED have left, and others make the call only now.
 *
 * A rank that is in no call does not vote. The coordinator asks, and decides without the ranks that
 * send nothing within the grace time.
 */
#include <string.h>

#include "agree/failing.h"

typedef struct hly_fault fault_t;
typedef struct hly_voting voting_t;
typedef struct hly_verdict_wire verdict_t;

enum { ROUNDS = 3 }; /* when its time is over in round 3, a rank ends the agreement by itself */

static uint64_t *set_of(hly_view_t *v, fault_t *f, enum hly_failing_set set)
{
    return f->sets + (size_t)set * hly_set_words(v->nranks);
}

static bool voted(hly_view_t *v, const fault_t *f, int rank)
{
    return hly_failing_has(v, f, HLY_VOTED, rank);
}

static bool spoke(hly_view_t *v, const fault_t *f, int rank)
{
    return hly_failing_has(v, f, HLY_SPOKE, rank);
}

static void add(hly_view_t *v, fault_t *f, enum hly_failing_set set, int rank)
{
    hly_set_add(set_of(v, f, set), rank);
}

static void clear(hly_view_t *v, fault_t *f, enum hly_failing_set set)
{
    memset(set_of(v, f, set), 0, hly_set_words(v->nranks) * sizeof(uint64_t));
}

static bool is_linked(hly_view_t *v, int rank)
{
    return (v->is(v->arg, rank) & (HLY_RANK_LINKED | HLY_RANK_DEAD)) == HLY_RANK_LINKED;
}

/* Is the rank dead or stopped, as far as this one knows? If others call it dead while the link to
 * it is whole, only those cannot reach it. f may be NULL. */
static bool is_out(hly_view_t *v, const fault_t *f, int rank)
{
    return !f ? hly_is_dead(v, rank)
              : hly_verdict_stops(&f->verdict, rank) ||
                    (hly_held_is_gone(v, f, rank) && !is_linked(v, rank));
}

/* How often this rank's time was over. From 1 on, silent ranks do not coordinate. */
static uint32_t round_of(hly_view_t *v, const fault_t *f)
{
    return f->voting.ballot / (uint32_t)v->nranks;
}

static int coordinator_in(hly_view_t *v, uint32_t ballot)
{
    return (int)(ballot % (uint32_t)v->nranks);
}

/* Nobody waits for a rank that others call stopped, so it does not coordinate while another rank
 * can. */
static bool can_coordinate(hly_view_t *v, const fault_t *f, int rank)
{
    if (rank == v->rank)
        return !hly_verdict_stops(&f->verdict, rank);
    return !is_out(v, f, rank) && (!round_of(v, f) || spoke(v, f, rank));
}

static void follow(hly_view_t *v, fault_t *f, uint32_t ballot)
{
    voting_t *j = &f->voting;
    if (ballot == j->ballot)
        return;
    j->ballot = ballot;
    j->probed = j->asked = j->overdue = false;
    clear(v, f, HLY_VOTED);
    clear(v, f, HLY_TOOK);
}

/* The coordinator of this ballot, or of the next one whose coordinator can. */
static int coordinator_of(hly_view_t *v, fault_t *f)
{
    uint32_t ballot = f->voting.ballot;
    for (int i = 0; i < v->nranks; i++)
        if (can_coordinate(v, f, coordinator_in(v, ballot + (uint32_t)i))) {
            follow(v, f, ballot + (uint32_t)i);
            return coordinator_in(v, f->voting.ballot);
        }
    while (coordinator_in(v, ballot) != v->rank)
        ballot++;
    follow(v, f, ballot);
    return v->rank;
}

static void say(hly_view_t *v, const fault_t *f, int to, enum hly_agree_what what)
{
    const struct hly_failing_message m = {
        .from = v->rank, .in_call = v->made, .edge = f->voting.ballot, .what = what};
    v->send(v->arg, to, &m, &f->verdict);
}

/* Does the coordinator wait for the rank's vote? A rank that others call dead may live, and vote:
 * until absent_ns the coordinator waits for it. If it is dead this rank learns of it by then. */
static bool is_awaited(hly_view_t *v, const fault_t *f, int rank)
{
    const bool waits = f->absent_ns != UINT64_MAX && v->now_ns < f->absent_ns;
    if (rank == v->rank || voted(v, f, rank) || hly_is_dead(v, rank) ||
        hly_verdict_stops(&f->verdict, rank))
        return false;
    if (f->voting.overdue && !hly_verdict_is_loss(&f->verdict) && !spoke(v, f, rank))
        return false;
    return waits || !is_out(v, f, rank);
}

/* Is the rank one that gets ASK? All that live get it, and a rank that was stopped if it has sent a
 * message: it has to learn which rank coordinates. */
static bool is_asked(hly_view_t *v, const fault_t *f, int rank)
{
    return rank != v->rank && !hly_is_dead(v, rank) &&
           (spoke(v, f, rank) || !hly_verdict_stops(&f->verdict, rank));
}

static void more_time(hly_view_t *v, fault_t *f, uint32_t times)
{
    f->looks = 0;
    f->deadline_ns = v->now_ns + times * HLY_GRACE_NS;
}

/* Sends ASK to all where two ranks have died: ranks may not have heard of the failure, or may take
 * another rank for the coordinator. If one death is known, and votes are missing until absent_ns,
 * there may be a second one. A rank that has voted gets ASK, too, to learn which rank coordinates.
 * In later rounds all get ASK. Before that only ranks that others call dead get it. */
static void ask(hly_view_t *v, fault_t *f)
{
    voting_t *j = &f->voting;
    const bool loss = hly_verdict_is_loss(&f->verdict);
    const bool waits = f->absent_ns == UINT64_MAX || v->now_ns >= f->absent_ns;
    const bool all = round_of(v, f) || (loss && (f->verdict.gone[1] || waits));
    if (j->asked || (j->probed && !all))
        return;
    j->probed = true;
    j->asked = all;
    for (int r = 0; r < v->nranks; r++)
        if (all ? is_asked(v, f, r) : is_awaited(v, f, r) && is_out(v, f, r))
            say(v, f, r, HLY_AGREE_ASK);
    if (all && (j->overdue || loss))
        more_time(v, f, 1);
}

/* Votes when this rank is ready, when the coordinator has asked, or in later rounds. Before that,
 * this rank sends NEWS to the coordinator as soon as it knows of a death. */
static void vote(hly_view_t *v, fault_t *f)
{
    voting_t *j = &f->voting;
    const bool due = f->ready || round_of(v, f);
    if (j->answers || (due && j->voted != j->ballot + 1)) {
        if (j->answers)
            more_time(v, f, 2);
        say(v, f, coordinator_in(v, j->ballot), HLY_AGREE_VOTE);
        j->voted = j->ballot + 1;
        j->answers = false;
    } else if (!due && hly_verdict_is_loss(&f->verdict) && j->warned != j->ballot + 1) {
        say(v, f, coordinator_in(v, j->ballot), HLY_AGREE_NEWS);
        j->warned = j->ballot + 1;
    }
}

static bool has_proposed(const fault_t *f)
{
    return f->verdict.stamp == f->voting.ballot + 1;
}

static void propose(hly_view_t *v, fault_t *f)
{
    voting_t *j = &f->voting;
    f->verdict.stamp = (uint64_t)j->ballot + 1;
    clear(v, f, HLY_TOOK);
    for (int r = 0; r < v->nranks; r++)
        if (voted(v, f, r) && !is_out(v, f, r))
            say(v, f, r, HLY_AGREE_ASK);
    more_time(v, f, 1);
}

/* Do all voters hold this verdict, and can no rank hold another one? Otherwise proposes it. */
static bool is_taken(hly_view_t *v, fault_t *f)
{
    bool taken = true, whole = true, alone = true;
    for (int r = 0; r < v->nranks; r++) {
        const bool out = is_out(v, f, r), given = voted(v, f, r);
        if (r == v->rank)
            continue;
        whole &= given || (out && !hly_verdict_stops(&f->verdict, r));
        alone &= out || !given;
        taken &= out || !given || hly_failing_has(v, f, HLY_TOOK, r);
    }
    if (alone || (taken && (whole || has_proposed(f))))
        return true;
    if (!has_proposed(f))
        propose(v, f);
    return false;
}

bool hly_coordinator_has_all(hly_view_t *v, const fault_t *f)
{
    for (int r = 0; r < v->nranks; r++)
        if (r != v->rank && !voted(v, f, r))
            return false;
    return true;
}

bool hly_coordinator_awaits(hly_view_t *v, const fault_t *f, int rank)
{
    const int coordinator = coordinator_in(v, f->voting.ballot);
    return coordinator == v->rank ? is_awaited(v, f, rank) : coordinator == rank;
}

bool hly_coordinator_decides(hly_view_t *v, fault_t *f, bool late)
{
    const int coordinator = coordinator_of(v, f);
    if (coordinator != v->rank) {
        vote(v, f);
        return false;
    }
    f->voting.answers = false;
    ask(v, f);
    bool all = f->ready || round_of(v, f);
    for (int r = 0; r < v->nranks && all; r++)
        all = !is_awaited(v, f, r);
    return late || ((all || has_proposed(f)) && is_taken(v, f));
}

static bool is_alone(hly_view_t *v, const fault_t *f)
{
    const uint64_t *spoke = f->sets + (size_t)HLY_SPOKE * hly_set_words(v->nranks);
    for (size_t i = 0; i < hly_set_words(v->nranks); i++)
        if (spoke[i])
            return false;
    return true;
}

/* Others wait for the coordinator twice as long (vote()): it gives them one grace time for their
 * votes, and one for the votes on its proposal. */
bool hly_coordinator_ends(hly_view_t *v, fault_t *f)
{
    voting_t *j = &f->voting;
    const uint32_t round = round_of(v, f);
    if (round >= ROUNDS || is_alone(v, f))
        return true;
    const int coordinator = coordinator_of(v, f);
    if (coordinator == v->rank && j->asked) {
        const bool again = j->overdue || hly_verdict_is_loss(&f->verdict);
        if (again && (has_proposed(f) || is_taken(v, f)))
            return true;
        j->overdue = true;
    } else {
        if (round)
            set_of(v, f, HLY_SPOKE)[coordinator / 64] &= ~(UINT64_C(1) << coordinator % 64);
        follow(v, f, (round + 1) * (uint32_t)v->nranks);
        j->overdue = true;
    }
    more_time(v, f, 1);
    return false;
}

void hly_coordinator_compare(hly_view_t *v, fault_t *f, const struct hly_failing_message *m,
                             const verdict_t *theirs)
{
    if (m->what == HLY_AGREE_VOTE && m->edge == f->voting.ballot &&
        theirs->stamp == f->verdict.stamp && !hly_verdict_better(theirs, &f->verdict) &&
        !hly_verdict_better(&f->verdict, theirs))
        add(v, f, HLY_TOOK, m->from);
}

void hly_coordinator_heard(hly_view_t *v, fault_t *f, const struct hly_failing_message *m)
{
    voting_t *j = &f->voting;
    add(v, f, HLY_SPOKE, m->from);
    if (m->edge / (uint32_t)v->nranks > ROUNDS)
        return;
    const bool laps = m->edge >= (uint32_t)v->nranks;
    j->clocked |= m->what == HLY_AGREE_BY_TIME || (m->what == HLY_AGREE_ASK && laps);
    if (m->what == HLY_AGREE_VOTE) {
        if (m->edge > j->ballot && coordinator_in(v, m->edge) == v->rank)
            follow(v, f, m->edge);
        if (m->edge == j->ballot)
            add(v, f, HLY_VOTED, m->from);
    } else if (m->what == HLY_AGREE_ASK && m->edge >= j->ballot &&
               (laps || m->edge == j->ballot || !is_linked(v, coordinator_in(v, j->ballot)))) {
        follow(v, f, m->edge);
        j->answers = true;
    }
}

static bool is_power(uint32_t n)
{
    return !(n & (n - 1));
}

/* The coordinator sends DECIDED to all. Other ranks send it to those that are 1, 2, 4, ... before
 * and after them: if the coordinator dies, a verdict that one rank knows reaches all that live.
 * Ranks before this one get it only if there is a link: one without a link may have left, and the
 * end of the call would wait for it. */
void hly_failing_tell_all(hly_view_t *v, fault_t *f, const verdict_t *agreed)
{
    const uint32_t n = (uint32_t)v->nranks;
    const bool all = f && coordinator_in(v, f->voting.ballot) == v->rank;
    for (uint32_t d = 1; d < n; d++) {
        const int rank = (int)(((uint32_t)v->rank + d) % n);
        const bool known = is_linked(v, rank) || agreed->cause == HLY_CAUSE_REVOKED ||
                           (f && voted(v, f, rank) && !is_out(v, f, rank));
        if (is_power(d) ? known || !hly_verdict_counts_out(agreed, rank)
                        : known && (all || is_power(n - d)))
            hly_failing_tell(v, f, rank, agreed);
    }
}
