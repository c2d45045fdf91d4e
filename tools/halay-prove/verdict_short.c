/* SPDX-License-Identifier: Apache-2.0 */
/* verdict_short.c - what of a verdict and of a rank's state matters to an exploration, and messages
 * under way. A time that has passed is 0, lists of ranks are sets. */
#include <stdio.h>
#include <string.h>

#include "verdict_model.h"

static uint8_t set_of(const uint32_t list[])
{
    uint32_t set = 0;
    for (int i = 0; i < HLY_PRESENT_MAX && list[i]; i++)
        set |= 1u << (list[i] - 1);
    return (uint8_t)set;
}

static void list_of(uint8_t set, uint32_t list[])
{
    for (; set; set &= (uint8_t)(set - 1))
        *list++ = 1 + (uint32_t)__builtin_ctz(set);
}

hly_short_t hly_shorten(const struct hly_verdict_wire *v)
{
    return (hly_short_t){.cause = (uint8_t)v->cause,
                         .words = (uint8_t)v->detail[0],
                         .of = (uint8_t)v->of,
                         .stamp = (uint8_t)v->stamp,
                         .present = set_of(v->present),
                         .gone = set_of(v->gone),
                         .rank = (int16_t)v->rank,
                         .other = (int16_t)v->other};
}

void hly_widen(struct hly_verdict_wire *v, const hly_short_t *s)
{
    v->cause = s->cause;
    v->code = s->cause ? -1 : 0;
    v->rank = s->rank;
    v->other = s->other;
    v->of = s->of;
    v->stamp = s->stamp;
    v->detail[0] = (char)s->words;
    memset(v->present, 0, sizeof v->present);
    memset(v->gone, 0, sizeof v->gone);
    list_of(s->present, v->present);
    list_of(s->gone, v->gone);
}

struct hly_verdict_wire hly_whole(const hly_short_t *s)
{
    struct hly_verdict_wire v = {0};
    hly_widen(&v, s);
    return v;
}

hly_short_t hly_bare(const struct hly_verdict_wire *v)
{
    hly_short_t s = hly_shorten(v);
    s.present = s.gone = s.stamp = 0;
    return s;
}

static const char *const causes[] = {
    "nothing", "PEER",    "BUILD",   "SETTINGS", "ARGUMENT", "STATE",     "MISMATCH", "DEVICE",
    "LOCAL",   "REVOKED", "STOPPED", "ABSENT",   "CIRCLE",   "ELSEWHERE", "LATE",     "DEADLINE"};

void hly_print_short(const hly_short_t *v)
{
    printf(" %s", causes[v->cause]);
    if (v->rank >= 0)
        printf(" %d", v->rank);
    printf("%s", v->of ? ", out of step" : "");
    if (v->stamp)
        printf(", proposed in %d", v->stamp - 1);
    if (v->words > ' ')
        printf(" (%c)", v->words);
}

/* ---------------------------------------------------------------- a rank's state */

static uint64_t until(uint64_t time, uint64_t now_ns)
{
    return time == UINT64_MAX ? time : time > now_ns ? time - now_ns : 0;
}

void hly_hold(hly_held_t *held, const struct hly_fault *f, uint64_t now_ns)
{
    const struct hly_voting *j = &f->voting;
    *held = (hly_held_t){.entered = f->entered,
                         .slow = f->slow,
                         .ready = f->ready,
                         .final = f->final,
                         .after = f->after,
                         .hurry = f->hurry,
                         .clocked = j->clocked,
                         .probed = j->probed,
                         .asked = j->asked,
                         .overdue = j->overdue,
                         .answers = j->answers,
                         .looks = (uint8_t)f->looks,
                         .ballot = (uint8_t)j->ballot,
                         .warned = (uint8_t)j->warned,
                         .voted = (uint8_t)j->voted,
                         .verdict = hly_shorten(&f->verdict),
                         .firm = hly_shorten(&f->firm),
                         .deadline_in = until(f->deadline_ns, now_ns),
                         .absent_in = until(f->absent_ns, now_ns)};
    for (int i = 0; i < HLY_FAILING_SETS; i++)
        held->sets[i] = (uint8_t)f->sets[i];
}

void hly_unhold(struct hly_fault *f, const hly_held_t *h, uint64_t now_ns)
{
    f->entered = h->entered;
    f->slow = h->slow;
    f->ready = h->ready;
    f->final = h->final;
    f->after = h->after;
    f->hurry = h->hurry;
    f->looks = h->looks;
    f->announced = false;
    f->speaker = 0;
    f->deadline_ns = now_ns + h->deadline_in;
    f->absent_ns = h->absent_in == UINT64_MAX ? UINT64_MAX : now_ns + h->absent_in;
    f->voting = (struct hly_voting){h->clocked, h->probed, h->asked,  h->overdue,
                                    h->answers, h->ballot, h->warned, h->voted};
    hly_widen(&f->verdict, &h->verdict);
    hly_widen(&f->firm, &h->firm);
    for (int i = 0; i < HLY_FAILING_SETS; i++)
        f->sets[i] = h->sets[i];
}

/* ---------------------------------------------------------------- messages under way */

void hly_letter_put(hly_call_world_t *w, const hly_letter_t *letter)
{
    if (w->dead >> letter->to & 1)
        return;
    if (w->nletters == HLY_CALL_FLIGHTS)
        w->common.complaint = "messages without end";
    else
        w->letters[w->nletters++] = *letter;
}

uint32_t hly_letters(const hly_call_world_t *w, int from, uint32_t to)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < w->nletters; i++)
        n += w->letters[i].to == to && (from < 0 || w->letters[i].from == from);
    return n;
}

bool hly_letter_take(hly_call_world_t *w, uint32_t from, uint32_t to, uint32_t behind,
                     hly_letter_t *letter)
{
    for (uint32_t i = 0; i < w->nletters; i++)
        if (w->letters[i].from == from && w->letters[i].to == to && !behind--) {
            *letter = w->letters[i];
            w->nletters--;
            memmove(w->letters + i, w->letters + i + 1, (w->nletters - i) * sizeof *letter);
            return true;
        }
    return false;
}
