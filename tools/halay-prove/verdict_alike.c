/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verdict_alike.c - which states of a failing call are alike.
 *
 * Messages are forgotten that make no difference, whoever may die, stop or speak later (forget):
 * - What a rank hears that has ended the call, or takes no part any more, except a decision.
 * - To a rank that has agreed each message is a question, and it answers each in the same way: one
 *   of a sender is enough, and none is needed while an answer is under way to that sender, or when
 *   its program knows the verdict. The answer is lost only if one of the two dies.
 * - A decision that the same sender has under way already.
 * - A message to a rank whose call fails, if that has heard its sender, holds a verdict that covers
 *   the one told, and has left the ballot of a vote or question (is_stale). The rank changes no
 *   more when it hears it: verdicts become better only, ballots higher. It would have to hear it
 *   before its clock is looked at. That a message delays it while it listens, or that it is stopped
 *   with messages unread, makes a difference: then none is forgotten.
 *
 * Numbers that a run cannot depend on are left out (hly_call_world_merge), by the phase in which a
 * rank is. For each of these, nothing in src/agree reads it in that phase or later;
 * hly_explore_merged() shows it.
 */
#include <string.h>

#include "seen.h"
#include "verdict_model.h"

static uint8_t bit(uint32_t rank)
{
    return (uint8_t)(1u << rank);
}

static uint32_t count(uint8_t set)
{
    return (uint32_t)__builtin_popcount(set);
}

bool hly_caller_outlives(const hly_caller_t *c)
{
    return c->phase == HLY_WELL && c->has_fault && c->held.entered && !c->held.final;
}

uint64_t hly_caller_due_in(const hly_caller_t *c)
{
    const hly_held_t *h = &c->held;
    const uint64_t own =
        c->called_for < HLY_CALL_DEADLINE_NS ? HLY_CALL_DEADLINE_NS - c->called_for : 0;
    if (c->phase == HLY_IN)
        return own;
    const uint64_t next = h->final ? UINT64_MAX : h->slow ? h->absent_in : own;
    return next < h->deadline_in ? next : h->deadline_in;
}

/* Has it told its program of the failure? */
static bool is_told(const hly_call_world_t *w, uint32_t r)
{
    const hly_caller_t *c = &w->ranks[r];
    return (w->dead & bit(r)) || c->phase == HLY_ENDED || (c->phase == HLY_WELL && c->agreed);
}

/* Data that come in a failing call matter where ranks may complete it and leave. */
static hly_phase_t last_with_data(const hly_call_world_t *w)
{
    return w->limits.leave ? HLY_FAILS : HLY_IN;
}

/* Has it completed the call, and takes no part in the agreement any more? */
static bool is_past(const hly_caller_t *c)
{
    return c->phase == HLY_WELL && c->outcome_known && !hly_caller_outlives(c);
}

/* Would adopting this verdict change nothing, now or after others? A proposal yields to later ones
 * only. Once the two verdicts held say that ranks are out of step, those that replace them are
 * better ones, and the one told counts as such at most. */
static bool is_covered(const hly_held_t *h, const hly_short_t *told)
{
    hly_short_t most = *told;
    if (told->gone & ~h->verdict.gone)
        return false;
    if (told->stamp || h->verdict.stamp)
        return told->stamp <= h->verdict.stamp;
    if (told->present & ~h->verdict.present || !h->verdict.of || !h->firm.of)
        return false;
    if (told->cause == HLY_CAUSE_ABSENT)
        return h->verdict.present & bit((uint32_t)told->rank);
    most.of = HLY_SEQUENCE + 1;
    const struct hly_verdict_wire it = hly_whole(&most), held = hly_whole(&h->verdict),
                                  firm = hly_whole(&h->firm);
    return (told->cause != HLY_CAUSE_PEER || h->verdict.gone & bit((uint32_t)told->rank)) &&
           !hly_verdict_better(&it, &held) && !hly_verdict_better(&it, &firm);
}

/* Does a rank whose call fails go on as before when it has heard this? */
static bool is_stale(const hly_call_world_t *w, const hly_letter_t *l)
{
    const hly_caller_t *c = &w->ranks[l->to];
    const hly_held_t *h = &c->held;
    const bool laps = l->edge >= w->limits.ranks;
    if (c->phase != HLY_FAILS || c->listens || (w->stopped & bit(l->to)) || !hly_caller_due_in(c) ||
        count(w->was_stopped) < w->limits.stopped)
        return false;
    const bool old = l->what == HLY_AGREE_VOTE  ? l->edge < h->ballot
                     : l->what == HLY_AGREE_ASK ? l->edge < h->ballot && (h->clocked || !laps)
                                                : l->what == HLY_AGREE_NEWS ||
                                                      (l->what == HLY_AGREE_BY_TIME && h->clocked);
    return old && h->sets[HLY_SPOKE] & bit(l->from) && (h->slow || !h->clocked) &&
           is_covered(h, &l->verdict);
}

/* Is the same message of this pair before it? */
static bool has_same(const hly_call_world_t *w, const hly_letter_t *l)
{
    const hly_letter_t *other = w->letters;
    while (other < l && memcmp(other, l, sizeof *l) != 0)
        other++;
    return other < l;
}

/* Makes this message no difference? `told`: of each rank, who has a DECIDED under way to it;
 * `asked`: whose questions are. */
static bool is_idle(const hly_call_world_t *w, const hly_letter_t *l, const uint8_t told[],
                    const uint8_t asked[])
{
    const hly_caller_t *to = &w->ranks[l->to];
    const bool concluded = l->what == HLY_AGREE_DECIDED;
    if (l->what == HLY_DATA)
        return to->phase > last_with_data(w);
    if (to->agreed) /* it answers each message with DECIDED */
        return concluded || is_told(w, l->from) || told[l->from] & bit(l->to) ||
               asked[l->to] & bit(l->from);
    if (concluded && l->verdict.of)
        return told[l->to] & bit(l->from) && has_same(w, l);
    return to->phase == HLY_ENDED || is_past(to) || (!concluded && is_stale(w, l));
}

/* What makes no difference any more is forgotten, so that fewer states differ. */
void hly_call_world_forget(hly_call_world_t *w)
{
    uint8_t told[HLY_CALL_RANKS] = {0}, asked[HLY_CALL_RANKS] = {0};
    uint32_t kept = 0;
    for (int concluded = 1; concluded >= 0; concluded--)
        for (uint32_t i = kept = 0; i < w->nletters; i++) {
            const hly_letter_t *l = &w->letters[i];
            const bool is = l->what == HLY_AGREE_DECIDED && l->verdict.of;
            if (is != concluded || !is_idle(w, l, told, asked)) {
                if (is == concluded)
                    (is ? told : asked)[l->to] |= l->what == HLY_DATA ? 0 : bit(l->from);
                w->letters[kept++] = *l;
            }
            if (i + 1 == w->nletters)
                w->nletters = kept;
        }
    for (uint32_t r = 0; r < w->limits.ranks; r++) {
        hly_caller_t *c = &w->ranks[r];
        if (c->phase > last_with_data(w))
            c->data = 0;
        if (is_told(w, r)) {
            memset(&c->held, 0, sizeof c->held);
            c->has_fault = c->listens = false;
            c->known = w->dead;
            c->explained = w->left;
        }
    }
}

/* ---------------------------------------------------------------- states */

/* In each phase: what nothing reads any more. `ballot` is never lower than those it is compared
 * with. */
static void merge_held(hly_held_t *h)
{
    h->firm.present = h->firm.gone = 0; /* hly_held_set() keeps the lists of the other one */
    if (h->verdict.stamp || h->final)   /* a proposal is not dropped for it */
        h->firm = (hly_short_t){0};
    if (h->ready)
        h->warned = 0;
    if (h->voted && h->voted != h->ballot + 1)
        h->voted = h->ballot ? 1 : 255;
    h->after = h->hurry = false;
    if (h->final)
        h->absent_in = 0;
}

static void merge_broken(hly_caller_t *c)
{
    hly_short_t *by = &c->broken_by;
    if (!c->broken || c->agreed || c->phase == HLY_OUT)
        return;
    const bool peer = by->cause == HLY_CAUSE_PEER;
    *by = (hly_short_t){.cause = peer ? HLY_CAUSE_PEER : HLY_CAUSE_STATE, .of = by->of};
    if (c->phase == HLY_ENDED)
        *by = (hly_short_t){0};
}

void hly_call_world_merge(void *world)
{
    hly_call_world_t *w = world;
    for (uint32_t r = 0; r < w->limits.ranks; r++) {
        merge_held(&w->ranks[r].held);
        merge_broken(&w->ranks[r]);
    }
    for (uint32_t i = 0; i < w->nletters; i++) {
        hly_letter_t *l = &w->letters[i];
        if (w->ranks[l->to].agreed && l->what != HLY_DATA)
            *l = (hly_letter_t){.from = l->from, .to = l->to};
    }
}

static uint64_t mix_bytes(uint64_t hash, const void *bytes, size_t n)
{
    for (size_t i = 0; i < n; i += sizeof hash) {
        uint64_t word = 0;
        memcpy(&word, (const char *)bytes + i, n - i < sizeof word ? n - i : sizeof word);
        hash = hly_seen_mix(hash, word);
    }
    return hash;
}

uint64_t hly_call_world_hash(const void *world)
{
    const hly_call_world_t *w = world;
    uint64_t links[HLY_CALL_RANKS * HLY_CALL_RANKS] = {0}, sum = 0;
    uint64_t hash = hly_seen_mix(
        1, w->dead | (uint64_t)w->stopped << 8 | (uint64_t)w->was_stopped << 16 |
               (uint64_t)w->was_away << 24 | (uint64_t)w->wrong << 32 | (uint64_t)w->left << 40);
    hash =
        w->dead | w->was_stopped | w->was_away ? hash : mix_bytes(hash, &w->best, sizeof w->best);
    for (uint32_t r = 0; r < w->limits.ranks; r++)
        sum += mix_bytes(hly_seen_mix(r, 1), &w->ranks[r],
                         w->ranks[r].has_fault ? sizeof w->ranks[r] : offsetof(hly_caller_t, held));
    for (uint32_t i = 0; i < w->nletters; i++) {
        const hly_letter_t *l = &w->letters[i];
        uint64_t *link = &links[l->from * HLY_CALL_RANKS + l->to];
        *link = mix_bytes(w->limits.in_order ? *link + 1 : 1, l, sizeof *l);
        sum += w->limits.in_order ? 0 : *link;
    }
    for (uint32_t i = 0; i < HLY_CALL_RANKS * HLY_CALL_RANKS && w->limits.in_order; i++)
        sum += links[i] ? hly_seen_mix(links[i], i) : 0;
    return hly_seen_mix(hash, sum);
}
