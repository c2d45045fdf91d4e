/* SPDX-License-Identifier: Apache-2.0 */
/* verdict_short.c - what of a verdict matters to an exploration, messages under way, and when two
 * states are alike. */
#include "seen.h"
#include "verdict_world.h"

#include <stdio.h>
#include <string.h>

hly_short_t hly_shorten(const struct hly_verdict_wire *v)
{
    hly_short_t s = {.cause = (uint8_t)v->cause,
                     .words = (uint8_t)v->detail[0],
                     .of = (uint8_t)v->of,
                     .stamp = (uint8_t)v->stamp,
                     .rank = (int8_t)v->rank,
                     .other = (int8_t)v->other};
    for (int i = 0; i < HLY_CALL_LIST; i++) {
        s.present[i] = (uint8_t)v->present[i];
        s.gone[i] = (uint8_t)v->gone[i];
    }
    return s;
}

struct hly_verdict_wire hly_whole(const hly_short_t *s)
{
    struct hly_verdict_wire v = {.cause = s->cause,
                                 .code = -1,
                                 .rank = s->rank,
                                 .other = s->other,
                                 .of = s->of,
                                 .stamp = s->stamp,
                                 .detail = {(char)s->words}};
    for (int i = 0; i < HLY_CALL_LIST; i++) {
        v.present[i] = s->present[i];
        v.gone[i] = s->gone[i];
    }
    return v;
}

hly_short_t hly_bare(const struct hly_verdict_wire *v)
{
    hly_short_t s = hly_shorten(v);
    memset(s.present, 0, sizeof s.present);
    memset(s.gone, 0, sizeof s.gone);
    s.stamp = 0;
    return s;
}

static const char *const causes[] = {
    "nothing", "PEER",    "BUILD",   "SETTINGS", "ARGUMENT", "STATE",     "MISMATCH", "DEVICE",
    "LOCAL",   "REVOKED", "STOPPED", "ABSENT",   "CIRCLE",   "ELSEWHERE", "LATE",     "DEADLINE"};

void hly_print_short(const hly_short_t *v)
{
    printf(" %s", causes[v->cause]);
    if (v->rank >= 0) {
        printf(" %d", v->rank);
    }
    printf("%s", v->of ? ", out of step" : "");
    if (v->stamp) {
        printf(", proposed in %d", v->stamp - 1);
    }
    if (v->words > ' ') {
        printf(" (%c)", v->words);
    }
}

/* ---------------------------------------------------------------- messages under way */

void hly_letter_put(hly_call_world_t *w, const hly_letter_t *letter)
{
    if (w->dead >> letter->to & 1) {
        return;
    }
    if (w->nletters == HLY_CALL_FLIGHTS) {
        w->complaint = "messages without end";
        return;
    }
    w->letters[w->nletters++] = *letter;
}

uint32_t hly_letters(const hly_call_world_t *w, int from, uint32_t to)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < w->nletters; i++) {
        n += w->letters[i].to == to && (from < 0 || w->letters[i].from == from);
    }
    return n;
}

bool hly_letter_take(hly_call_world_t *w, uint32_t from, uint32_t to, uint32_t behind,
                     hly_letter_t *letter)
{
    for (uint32_t i = 0; i < w->nletters; i++) {
        if (w->letters[i].from == from && w->letters[i].to == to && !behind--) {
            *letter = w->letters[i];
            w->nletters--;
            memmove(w->letters + i, w->letters + i + 1, (w->nletters - i) * sizeof *letter);
            return true;
        }
    }
    return false;
}

/* ---------------------------------------------------------------- states */

const hly_failing_ops_t hly_sound_verdicts = {"src/agree", HLY_FAILING_OPS};

void hly_call_world_init(hly_call_world_t *w, const hly_failing_ops_t *ops, uint32_t nranks,
                         const hly_case_limits_t *limits)
{
    memset(w, 0, sizeof *w);
    w->ops = ops;
    w->nranks = nranks;
    w->limits = *limits;
    w->now_ns = UINT64_C(1000000000000);
    for (uint32_t r = 0; r < nranks; r++) {
        w->ranks[r].linked = (uint8_t)(limits->sparse ? 1u << ((r + 1) % nranks) : ~(1u << r));
    }
}

void hly_call_world_copy(void *copy, const void *world)
{
    hly_call_world_t *to = copy;
    const hly_call_world_t *from = world;
    memcpy(to, from, offsetof(hly_call_world_t, ranks));
    memcpy(to->ranks, from->ranks, from->nranks * sizeof from->ranks[0]);
    memcpy(to->letters, from->letters, from->nletters * sizeof from->letters[0]);
}

static uint64_t mix_short(uint64_t hash, const hly_short_t *s)
{
    uint64_t words[2] = {0};
    memcpy(words, s, sizeof *s);
    return hly_seen_mix(hly_seen_mix(hash, words[0]), words[1]);
}

static uint64_t until(const hly_call_world_t *w, uint64_t time)
{
    return time == UINT64_MAX ? time : time > w->now_ns ? time - w->now_ns : 0;
}

static uint64_t mix_fault(uint64_t hash, const hly_call_world_t *w, const struct hly_fault *f)
{
    const struct hly_voting *j = &f->voting;
    const hly_short_t verdict = hly_shorten(&f->verdict), firm = hly_shorten(&f->firm);
    hash = mix_short(mix_short(hash, &verdict), &firm);
    hash = hly_seen_mix(hash, f->entered | f->slow << 1 | f->ready << 2 | f->final << 3 |
                                  f->after << 4 | j->probed << 5 | j->asked << 6 | j->answers << 7 |
                                  (uint64_t)j->overdue << 41 | (uint64_t)f->looks << 32 |
                                  (uint64_t)j->clocked << 40 | (uint64_t)j->ballot << 48);
    hash = hly_seen_mix(hash, (uint64_t)(uint8_t)j->warned | (uint64_t)(uint8_t)j->voted << 8 |
                                  f->sets[HLY_VOTED] << 32 | f->sets[HLY_TOOK] << 40 |
                                  f->sets[HLY_SPOKE] << 48);
    return hly_seen_mix(hly_seen_mix(hash, until(w, f->deadline_ns)), until(w, f->absent_ns));
}

uint64_t hly_call_world_hash(const void *world)
{
    const hly_call_world_t *w = world;
    uint64_t links[HLY_CALL_RANKS * HLY_CALL_RANKS] = {0};
    uint64_t hash = hly_seen_mix(
        1, w->dead | (uint64_t)w->stopped << 8 | (uint64_t)w->was_stopped << 16 |
               (uint64_t)w->was_away << 24 | (uint64_t)w->nrefused << 32 | (uint64_t)w->left << 40);
    hash = w->dead | w->was_stopped | w->was_away ? hash : mix_short(hash, &w->best);
    for (uint32_t r = 0; r < w->nranks; r++) {
        const hly_caller_t *c = &w->ranks[r];
        hash = hly_seen_mix(hash, c->phase | (uint64_t)c->data << 8 | (uint64_t)c->known << 16 |
                                      (uint64_t)c->has_fault << 24 |
                                      (uint64_t)c->outcome_known << 25 | (uint64_t)c->broken << 26 |
                                      (uint64_t)c->agreed << 27 | (uint64_t)c->listens << 28 |
                                      (uint64_t)c->linked << 32 | (uint64_t)c->explained << 40);
        hash = hly_seen_mix(hash, (c->phase == HLY_IN || c->phase == HLY_FAILS)
                                      ? until(w, c->started_ns + HLY_CALL_DEADLINE_NS)
                                      : 0);
        hash = mix_short(mix_short(hash, &c->broken_by), &c->result);
        hash = c->has_fault ? mix_fault(hash, w, &c->fault) : hash;
    }
    for (uint32_t i = 0; i < w->nletters; i++) {
        const hly_letter_t *l = &w->letters[i];
        uint64_t *link = &links[l->from * HLY_CALL_RANKS + l->to];
        uint64_t one = hly_seen_mix(w->limits.in_order ? *link + 1 : 1,
                                    l->kind | (uint64_t)l->what << 8 | (uint64_t)l->edge << 16 |
                                        (uint64_t)l->in_call << 24);
        one = mix_short(one, &l->verdict);
        *link = w->limits.in_order ? one : *link + one;
    }
    for (uint32_t i = 0; i < HLY_CALL_RANKS * HLY_CALL_RANKS; i++) {
        hash = hly_seen_mix(hash, links[i]);
    }
    return hash;
}
