/* SPDX-License-Identifier: Apache-2.0 */
/*
 * agree.c - ranks agree on a flag and on the set of failed ranks, also while further ranks fail
 * (docs/agreements.md, docs/decisions/agreements.md#0078).
 *
 * The lowest rank that is not known to have failed coordinates. Each rank sends it its vote (VOTE):
 * its flag, and all ranks that it knows to have failed. When the coordinator has the votes of all
 * others, it proposes a value (ASK, with its ballot). A rank accepts that by a second vote (VOTE,
 * with the same ballot). When all have accepted, the coordinator sends DECIDED. If it fails, the
 * next rank coordinates. A rank that has accepted a value sends that as its vote, and the new
 * coordinator proposes the same value. A rank that has given up a coordinator accepts nothing from
 * it any more.
 *
 * So if any rank has decided a value, all living ones have accepted it, and no other value can be
 * proposed. A rank that has decided returns to the program, and may read no message for long. So
 * that no rank has to wait for it, it first sends DECIDED to the ranks that are 1, 2, 4, ... before
 * and after it. That reaches all living ranks, as long as not all ranks die to which it has sent.
 *
 * A new coordinator sends ASK to all, and repeats it at intervals. If a rank has not voted by the
 * deadline, it counts as failed for the coordinator. A coordinator that has sent nothing by the
 * deadline counts as failed for the others. A rank that counts as failed gets LEFT_OUT if it ever
 * sends a message again.
 */
#include "agree/agree.h"

#include <string.h>

typedef struct hly_agreement agreement_t;
typedef struct hly_agreement_message message_t;
typedef const struct hly_agreement_sink sink_t;

static uint64_t *set_of(agreement_t *a, int which)
{
    return a->set + (size_t)(unsigned)which * hly_set_words(a->nranks);
}

static bool is_in(const agreement_t *a, int which, int rank)
{
    return hly_set_has(hly_agreement_set(a, which), rank);
}

static void add(agreement_t *a, int which, int rank)
{
    hly_set_add(set_of(a, which), rank);
}

/* Is that another rank, which has not failed as far as this one knows? */
static bool is_other(const agreement_t *a, int rank)
{
    return rank != a->rank && !is_in(a, HLY_SET_FAILED, rank);
}

void hly_agreement_init(agreement_t *a, int nranks, int rank)
{
    memset(a, 0, hly_agreement_bytes(nranks));
    a->nranks = nranks;
    a->rank = rank;
    a->voted_to = -1;
    a->flag = -1;
}

int hly_agreement_coordinator(const agreement_t *a)
{
    int rank = 0;
    while (rank < a->rank && is_in(a, HLY_SET_FAILED, rank))
        rank++;
    return rank;
}

bool hly_agreement_awaits(const agreement_t *a, int rank)
{
    const int c = hly_agreement_coordinator(a);
    if (hly_agreement_is_over(a) || rank == a->rank)
        return false;
    if (c != a->rank)
        return rank == c;
    return is_other(a, rank) && is_in(a, HLY_SET_HEARD, rank) == a->proposed &&
           !is_in(a, HLY_SET_TAKEN, rank);
}

bool hly_agreement_refuses(const agreement_t *a, int rank)
{
    const bool without = a->ballot && is_in(a, HLY_SET_WITHOUT, rank);
    return a->call && (without || is_in(a, HLY_SET_FAILED, rank));
}

static bool awaits_any(const agreement_t *a)
{
    for (int r = 0; r < a->nranks; r++)
        if (hly_agreement_awaits(a, r))
            return true;
    return false;
}

/* ---------------------------------------------------------------- messages out */

static void tell(const agreement_t *a, sink_t *sink, int to, enum hly_agree_what what)
{
    const message_t m = {.what = what,
                         .call = a->call,
                         .flag = a->ballot ? a->value_flag : a->flag,
                         .code = a->ballot ? a->value_code : a->code,
                         .ballot = a->ballot,
                         .failed = hly_agreement_set(a, HLY_SET_FAILED),
                         .without = hly_agreement_set(a, HLY_SET_WITHOUT)};
    sink->send(sink->arg, to, &m);
}

static void tell_all(const agreement_t *a, sink_t *sink, enum hly_agree_what what)
{
    for (int r = 0; r < a->nranks; r++)
        if (is_other(a, r))
            tell(a, sink, r, what);
}

void hly_agreement_ask_one(const agreement_t *a, int rank, sink_t *sink)
{
    tell(a, sink, rank, HLY_AGREE_ASK);
}

void hly_agreement_ask(const agreement_t *a, sink_t *sink)
{
    tell_all(a, sink, HLY_AGREE_ASK);
}

/* ---------------------------------------------------------------- its course */

static void pass_on(const agreement_t *a, sink_t *sink)
{
    for (int d = 1; d < a->nranks; d *= 2) {
        const int after = (a->rank + d) % a->nranks, before = (a->rank + a->nranks - d) % a->nranks;
        if (is_other(a, after))
            tell(a, sink, after, HLY_AGREE_DECIDED);
        if (before != after && is_other(a, before))
            tell(a, sink, before, HLY_AGREE_DECIDED);
    }
}

static void decide(agreement_t *a, sink_t *sink)
{
    if (is_in(a, HLY_SET_WITHOUT, a->rank)) {
        a->left_out = true;
        return;
    }
    a->decided = true;
    if (a->leads)
        tell_all(a, sink, HLY_AGREE_DECIDED);
    else
        pass_on(a, sink);
    for (int r = 0; r < a->nranks; r++)
        if (is_in(a, HLY_SET_WITHOUT, r))
            tell(a, sink, r, HLY_AGREE_LEFT_OUT);
}

static void propose(agreement_t *a, sink_t *sink)
{
    a->wait_anew = true;
    if (!a->ballot) {
        a->value_flag = a->flag;
        a->value_code = a->code;
        memcpy(set_of(a, HLY_SET_WITHOUT), set_of(a, HLY_SET_FAILED),
               hly_set_words(a->nranks) * sizeof(uint64_t));
    }
    a->ballot = (uint32_t)a->rank + 1;
    a->proposed = true;
    a->late = false;
    for (int r = 0; r < a->nranks; r++)
        if (is_other(a, r) && is_in(a, HLY_SET_HEARD, r))
            tell(a, sink, r, HLY_AGREE_ASK);
}

static void lead(agreement_t *a, sink_t *sink)
{
    if (!a->leads) {
        a->leads = true;
        a->wait_anew = true;
        tell_all(a, sink, HLY_AGREE_ASK);
    }
    if (!a->proposed) {
        if (awaits_any(a) && !a->late)
            return;
        propose(a, sink);
    }
    if (a->late || !awaits_any(a))
        decide(a, sink);
}

void hly_agreement_go_on(agreement_t *a, sink_t *sink)
{
    if (!a->entered || hly_agreement_is_over(a))
        return;
    const int c = hly_agreement_coordinator(a);
    if (c == a->rank) {
        lead(a, sink);
    } else if (a->voted_to != c) {
        a->voted_to = c;
        a->wait_anew = true;
        tell(a, sink, c, HLY_AGREE_VOTE);
    }
}

static void note_call(agreement_t *a, int call)
{
    if (a->call && a->call != call)
        a->code = -1;
    a->call = call;
}

void hly_agreement_enter(agreement_t *a, int call, int32_t flag)
{
    a->entered = true;
    note_call(a, call);
    a->flag &= flag;
}

void hly_agreement_note(agreement_t *a, int rank, bool silent)
{
    add(a, HLY_SET_FAILED, rank);
    if (silent)
        add(a, HLY_SET_ABSENT, rank);
}

/* ---------------------------------------------------------------- messages in */

bool hly_agreement_is_sound(int nranks, const message_t *m)
{
    const uint32_t words = hly_set_words(nranks);
    const int spare = (int)words * 64 - nranks; /* bits that no rank has */
    const uint64_t none = spare ? ~UINT64_C(0) << (64 - spare) : 0;
    return m->what >= HLY_AGREE_VOTE && m->what <= HLY_AGREE_LEFT_OUT &&
           m->ballot <= (uint32_t)nranks && m->code <= 0 && m->call &&
           (m->ballot || m->what != HLY_AGREE_DECIDED) &&
           !((m->failed[words - 1] | m->without[words - 1]) & none);
}

/* Accepts the value of a message, if a later coordinator has proposed it. */
static void take(agreement_t *a, const message_t *m)
{
    if (m->ballot <= a->ballot)
        return;
    a->ballot = m->ballot;
    a->value_flag = m->flag;
    a->value_code = m->code;
    memcpy(set_of(a, HLY_SET_WITHOUT), m->without, hly_set_words(a->nranks) * sizeof(uint64_t));
}

/* Has this coordinator proposed the value of the message? */
static bool is_proposal(const message_t *m, int coordinator)
{
    return m->ballot == (uint32_t)coordinator + 1;
}

static void heard_vote(agreement_t *a, int from, const message_t *m, sink_t *sink)
{
    if (a->proposed) {
        if (is_proposal(m, a->rank))
            add(a, HLY_SET_TAKEN, from);
        else /* its first vote, which came after the proposal */
            tell(a, sink, from, HLY_AGREE_ASK);
        return;
    }
    note_call(a, m->call);
    if (m->ballot)
        take(a, m);
    else
        a->flag &= m->flag;
    add(a, HLY_SET_HEARD, from);
}

static void heard(agreement_t *a, int from, const message_t *m, sink_t *sink)
{
    const int c = hly_agreement_coordinator(a);
    if (m->what == HLY_AGREE_VOTE)
        heard_vote(a, from, m, sink);
    if (m->what == HLY_AGREE_ASK && is_proposal(m, from)) {
        if (from != c)
            return;
        take(a, m);
        tell(a, sink, from, HLY_AGREE_VOTE);
    }
    if (from == c) /* the coordinator is not silent */
        a->wait_anew = true;
    hly_agreement_go_on(a, sink);
}

/* The ranks that the sender has given up have failed for this rank, too. */
static void learn(agreement_t *a, const message_t *m)
{
    uint64_t *failed = set_of(a, HLY_SET_FAILED);
    for (uint32_t i = 0; i < hly_set_words(a->nranks); i++)
        failed[i] |= m->failed[i];
    failed[a->rank / 64] &= ~(1ull << (a->rank % 64));
}

void hly_agreement_heard(agreement_t *a, int from, const message_t *m, sink_t *sink)
{
    if (m->what == HLY_AGREE_LEFT_OUT) {
        /* If this rank has decided, the sender will decide the same value, unless that leaves the
         * sender out. */
        a->left_out |= !a->decided || is_in(a, HLY_SET_WITHOUT, from);
    } else if (hly_agreement_is_over(a)) {
        if (m->what < HLY_AGREE_DECIDED && !a->left_out)
            tell(a, sink, from,
                 is_in(a, HLY_SET_WITHOUT, from) ? HLY_AGREE_LEFT_OUT : HLY_AGREE_DECIDED);
    } else if (m->what == HLY_AGREE_DECIDED) {
        a->ballot = 0;
        take(a, m);
        decide(a, sink);
    } else if (!is_in(a, HLY_SET_FAILED, from)) {
        learn(a, m);
        heard(a, from, m, sink);
    } else if (hly_agreement_refuses(a, from)) {
        tell(a, sink, from, HLY_AGREE_LEFT_OUT);
    }
}

/* ---------------------------------------------------------------- time */

void hly_agreement_late(agreement_t *a, sink_t *sink)
{
    const int c = hly_agreement_coordinator(a);
    if (!a->entered || hly_agreement_is_over(a))
        return;
    a->wait_anew = true;
    if (c != a->rank || !a->ballot) {
        for (int r = 0; r < a->nranks; r++)
            if (c == a->rank ? is_other(a, r) && !is_in(a, HLY_SET_HEARD, r) : r == c)
                hly_agreement_note(a, r, true);
    } else {
        a->late = true; /* no other value than the proposed one can be decided */
    }
    hly_agreement_go_on(a, sink);
}
