/* SPDX-License-Identifier: Apache-2.0 */
/*
 * judge.c - of a death or a stop one rank says for all whom the verdict names (docs/decisions/0085,
 * 0090).
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
#include "agree/agree.h"
#include "fault/agree.h"

static uint64_t bit_of(int rank)
{
    return UINT64_C(1) << (rank % 64);
}

static bool is_linked(const halay_comm_t *comm, int rank)
{
    const halay_context_t *ctx = comm->context;
    const struct hly_peer *peer =
        hly_peer_find(ctx, hly_peer_id(ctx, hly_comm_world_rank(comm, rank)));
    return peer && peer->greeted && !peer->dead && !peer->left_out;
}

static bool is_stopped(const struct hly_fault *f, int rank)
{
    return f->verdict.cause == HLY_CAUSE_STOPPED && f->verdict.rank == rank;
}

/* Is it dead, or stopped, as far as this rank knows? While the link to one that is called dead is
 * whole, others only cannot reach it. f may be NULL. */
static bool is_out(const halay_comm_t *comm, const struct hly_fault *f, int rank)
{
    return !f ? hly_peer_is_dead(comm, rank)
              : is_stopped(f, rank) || (hly_agree_is_gone(comm, f, rank) && !is_linked(comm, rank));
}

/* The lowest rank that is not, from this one on; and that is not passed over. */
static int living(const halay_comm_t *comm, const struct hly_fault *f, int from)
{
    while (from < comm->nranks && from != comm->rank &&
           (is_out(comm, f, from) || (f && f->passed && !hly_set_has(f->spoke, from))))
        from++;
    return from;
}

static int judge_of(const halay_comm_t *comm, const struct hly_fault *f)
{
    const int mine = living(comm, f, 0);
    return f->judge - 1 > mine && !f->passed && !is_linked(comm, mine) ? f->judge - 1 : mine;
}

bool hly_judge_rules(const halay_comm_t *comm, const struct hly_verdict_wire *v)
{
    return (v->cause == HLY_CAUSE_PEER || v->cause == HLY_CAUSE_STOPPED) && comm->nranks > 2 &&
           comm->nranks <= HLY_ACCORD_RANKS;
}

/* The agreement on this call, if this rank knows of it. */
static const struct hly_fault *fault_of(const halay_comm_t *comm, uint32_t sequence)
{
    const struct hly_slot *slot = &comm->slots[sequence % HLY_SLOTS];
    return slot->sequence == sequence ? slot->fault : NULL;
}

static void say(halay_comm_t *comm, const struct hly_slot *slot, int to, uint64_t cookie)
{
    const struct hly_call *call = slot->request ? &slot->request->call : NULL;
    hly_control_send(comm, to, HLY_ALARM, slot->sequence, slot->fault->passed > 0, cookie, call,
                     &slot->fault->verdict, sizeof(slot->fault->verdict));
}

/* Whom another one calls dead may live, and have a word to say: it is asked. To a dead process no
 * link comes about, which this rank hears soon. */
static bool is_awaited(const halay_comm_t *comm, const struct hly_fault *f, int rank)
{
    const bool waits = f->absent_ns != UINT64_MAX && hly_now_ns() < f->absent_ns;
    if (rank == comm->rank || hly_set_has(f->given, rank) || hly_peer_is_dead(comm, rank) ||
        is_stopped(f, rank))
        return false;
    return waits || !is_out(comm, f, rank);
}

static void more_time(struct hly_fault *f)
{
    f->looks = 0;
    f->deadline_ns = hly_now_ns() + HLY_GRACE_NS;
}

/* Where two have died, ranks may not have heard of the failure, or take another one for the judge.
 * If only one is known, and not all are heard of, another one may be. Who has given its word is to
 * hear that this rank judges, too. */
static void ask(halay_comm_t *comm, struct hly_slot *slot)
{
    struct hly_fault *f = slot->fault;
    const bool waits = f->absent_ns == UINT64_MAX || hly_now_ns() >= f->absent_ns;
    const bool all = f->verdict.gone[1] || waits;
    if (f->asked || (f->probed && !all))
        return;
    f->probed = true;
    f->asked = all;
    for (int r = 0; r < comm->nranks; r++)
        if (all ? is_awaited(comm, f, r) || hly_set_has(f->given, r)
                : is_awaited(comm, f, r) && is_out(comm, f, r))
            say(comm, slot, r, HLY_JUDGE);
    if (all)
        more_time(f);
}

/* To the judge: as soon as this rank knows of a death, and when its rounds are over. */
static void give(halay_comm_t *comm, struct hly_slot *slot, int judge, bool over)
{
    int *const told = over ? &slot->fault->word : &slot->fault->warned;
    if (*told != judge + 1)
        say(comm, slot, judge, over ? HLY_WORD : 0);
    *told = judge + 1;
}

/* Do all that have given this rank their word hold its verdict? It is proposed to the others. */
static bool is_taken(halay_comm_t *comm, struct hly_slot *slot)
{
    struct hly_fault *f = slot->fault;
    bool taken = true;
    for (int r = 0; r < comm->nranks; r++) {
        if (!hly_set_has(f->given, r) || hly_set_has(f->taken, r) || is_out(comm, f, r))
            continue;
        if (!f->proposed)
            say(comm, slot, r, HLY_PROPOSED);
        taken = false;
    }
    f->proposed = true;
    return taken;
}

bool hly_judge_decides(halay_comm_t *comm, struct hly_slot *slot, bool over, bool late)
{
    struct hly_fault *f = slot->fault;
    const int judge = judge_of(comm, f);
    if (f->proposal && f->proposal >= f->word)
        say(comm, slot, f->proposal - 1, HLY_WORD);
    f->proposal = 0;
    if (judge != comm->rank) {
        give(comm, slot, judge, over);
        return false;
    }
    ask(comm, slot);
    bool all = over;
    for (int r = 0; r < comm->nranks && all; r++)
        all = !is_awaited(comm, f, r);
    return late || ((all || f->proposed) && is_taken(comm, slot));
}

/* Others wait for the judge twice as long: it began later, and may have been passed over to. */
bool hly_judge_ends(halay_comm_t *comm, struct hly_slot *slot)
{
    struct hly_fault *f = slot->fault;
    if (!hly_judge_rules(comm, &f->verdict) || f->passed == 2)
        return true;
    if (f->asked && judge_of(comm, f) == comm->rank) {
        if (f->proposed || is_taken(comm, slot))
            return true;
    } else {
        f->passed++;
    }
    more_time(f);
    return false;
}

void hly_judge_compare(const halay_comm_t *comm, struct hly_fault *f, const struct hly_header *h,
                       const struct hly_verdict_wire *v)
{
    if (comm->nranks <= HLY_ACCORD_RANKS && h->kind == HLY_ALARM && h->cookie == HLY_WORD &&
        !hly_verdict_better(v, &f->verdict) && !hly_verdict_better(&f->verdict, v))
        f->taken[h->from / 64] |= bit_of((int)h->from);
}

void hly_judge_heard(const halay_comm_t *comm, struct hly_fault *f, const struct hly_header *h)
{
    if (comm->nranks > HLY_ACCORD_RANKS)
        return;
    f->spoke[h->from / 64] |= bit_of((int)h->from);
    if (h->kind != HLY_ALARM)
        return;
    if (h->cookie == HLY_WORD)
        f->given[h->from / 64] |= bit_of((int)h->from);
    else if (h->cookie == HLY_PROPOSED)
        f->proposal = (int)h->from + 1;
    else if (h->cookie == HLY_JUDGE && (int)h->from + 1 > f->judge)
        f->judge = (int)h->from + 1;
    if (h->cookie == HLY_JUDGE && h->edge && !f->passed)
        f->passed = 1; /* for long enough nobody below it has spoken */
}

bool hly_judge_is_past(const halay_comm_t *comm, const struct hly_header *h)
{
    const struct hly_fault *f = fault_of(comm, h->sequence);
    return f && (int)h->from + 1 < f->word;
}

/* Not to who has no link to this rank: it may have left, and the call would wait for it. */
static void tell(halay_comm_t *comm, const struct hly_fault *f, int rank,
                 const struct hly_verdict_wire *v)
{
    if (is_linked(comm, rank) || (f && hly_set_has(f->given, rank) && !is_out(comm, f, rank)))
        hly_agree_tell(comm, rank, v);
}

void hly_judge_tell(halay_comm_t *comm, const struct hly_verdict_wire *v)
{
    const struct hly_fault *f = fault_of(comm, (uint32_t)(v->of - 1));
    if (!hly_judge_rules(comm, v))
        return;
    const int judge = living(comm, f, 0), next = living(comm, f, judge + 1);
    int last = next; /* the next ones, up to one that nobody calls dead */
    while (f && last < comm->nranks && last != comm->rank && hly_agree_is_gone(comm, f, last))
        last++;
    const bool all = comm->rank == judge || (comm->rank >= next && comm->rank <= last);
    for (int r = 0; r < comm->nranks; r++)
        if (all || (r >= next && r <= last))
            tell(comm, f, r, v);
}
