/* SPDX-License-Identifier: Apache-2.0 */
/*
 * course.c - the course of a failing call on one rank: classifies messages, and says when the rank
 * has to read on, when its call ends, and whether later calls fail.
 */
#include <string.h>

#include "agree/failing.h"

typedef struct hly_fault fault_t;
typedef struct hly_verdict_wire verdict_t;

/* ---------------------------------------------------------------- the communicator */

bool hly_broken_note(struct hly_broken *b, const verdict_t *verdict)
{
    if (b->is)
        return false;
    b->is = true;
    b->by = *verdict;
    return true;
}

void hly_broken_agree(struct hly_broken *b, const verdict_t *verdict)
{
    b->is = b->agreed = true;
    b->by = *verdict;
    b->since = (uint32_t)(verdict->of - 1);
}

/* ---------------------------------------------------------------- messages */

enum hly_heard hly_failing_sort(hly_view_t *v, fault_t *f, const struct hly_broken *b,
                                const struct hly_failing_message *m, const verdict_t *theirs,
                                bool complete)
{
    if (m->what == HLY_AGREE_DECIDED) {
        if (f && m->edge && m->edge <= (uint32_t)v->nranks)
            hly_held_note_speaker(f, (int)m->edge - 1);
        if (b->agreed)
            return HLY_HEARD_NOTHING;
        if (theirs->of)
            return HLY_HEARD_AGREED;
        return f && f->entered && v->made && !f->final ? HLY_HEARD_IN_STEP : HLY_HEARD_NOTHING;
    }
    if (m->what == HLY_AGREE_LEAVES && f && f->entered && f->verdict.cause != HLY_CAUSE_DEADLINE)
        return HLY_HEARD_NOTHING; /* the ranks agree on another reason */
    if (hly_broken_ends(b, v->sequence))
        return HLY_HEARD_QUESTION;
    if (complete)
        return HLY_HEARD_AFTER;
    return f && f->final ? HLY_HEARD_NOTHING : HLY_HEARD_OF_CALL;
}

bool hly_failing_heard_after(hly_view_t *v, fault_t *f, struct hly_broken *b,
                             const struct hly_failing_message *m, const verdict_t *theirs)
{
    const bool better = hly_failing_heard(v, f, m, theirs);
    if (!better || b->agreed || b->by.of != (uint64_t)v->sequence + 1)
        return false;
    hly_failing_alarm(v, f);
    b->by = f->verdict;
    hly_verdict_drop_lists(&b->by);
    return true;
}

/* ---------------------------------------------------------------- the call */

bool hly_failing_raise(hly_view_t *v, fault_t *f, const verdict_t *mine)
{
    /* The others do not wait for the vote of a rank that they call stopped, so it adds nothing to
     * theirs. A vote whose cause is an error of some rank stays: the coordinator may have decided
     * it, and ranks may have left with it. */
    const bool stops = hly_verdict_stops(&f->verdict, v->rank),
               stays = f->voting.voted && f->verdict.cause < HLY_CAUSE_ABSENT;
    if (f->entered && (f->final || ((stops || stays) && mine->cause != HLY_CAUSE_DEVICE)))
        return false;
    const bool enters = !f->entered && v->made;
    if (hly_held_adopt(v, f, mine) && f->entered) {
        f->voting.voted = 0; /* it votes again */
        hly_failing_alarm(v, f);
    }
    return enters;
}

bool hly_failing_blames(hly_view_t *v, const fault_t *f, int rank, enum hly_given given,
                        bool severed)
{
    if (f->final || v->is(v->arg, rank) & HLY_RANK_LEFT)
        return false;
    if (hly_verdict_is_loss(&f->verdict))
        return given == HLY_GIVEN_PART; /* this death may be the better verdict */
    return f->verdict.cause >= HLY_CAUSE_STOPPED && given != HLY_GIVEN_ALL && !severed &&
           !hly_held_is_heard(v, f, rank);
}

void hly_failing_end_in_step(fault_t *f, const verdict_t *theirs)
{
    f->final = true;
    f->verdict = *theirs;
}

bool hly_failing_end_too(fault_t *f, const struct hly_broken *b)
{
    if (!f->entered)
        return false;
    f->final = true;
    f->verdict = b->by;
    return true;
}

bool hly_failing_is_late(hly_view_t *v, fault_t *f, const struct hly_broken *b)
{
    /* The lost peer may have completed this call. A rank that has voted waits for the
     * coordinator. */
    if (!f->final && !f->voting.voted && b->is && b->by.cause == HLY_CAUSE_PEER)
        hly_failing_by_time(v, f, HLY_CAUSE_PEER);
    return f->looks >= HLY_LATE_LOOKS && (f->final || hly_coordinator_ends(v, f));
}

/* over: the ranks have decided how this call ends. Then this rank does not vote; its call ends at
 * the next look at the clock. */
static bool is_decided(hly_view_t *v, fault_t *f, bool over)
{
    return !over && hly_coordinator_decides(v, f, false);
}

enum hly_course hly_failing_go_on(hly_view_t *v, fault_t *f, const struct hly_broken *b,
                                  const struct hly_failing_now *now)
{
    const bool over = hly_broken_ends(b, v->sequence);
    if (!f->final)
        is_decided(v, f, over); /* so that others do not wait until the call is quiet here */
    if (!now->quiet)
        return HLY_COURSE_WAITS;
    if (f->final)
        return HLY_COURSE_ENDS;
    if (now->late || now->first)
        f->ready = true;
    if (now->older_fails)
        return HLY_COURSE_WAITS;
    if (!now->late && !is_decided(v, f, over))
        return HLY_COURSE_WAITS;
    return !now->late && now->unread ? HLY_COURSE_READS : HLY_COURSE_ENDS;
}

enum hly_end hly_failing_end(hly_view_t *v, fault_t *f, struct hly_broken *b, verdict_t *verdict)
{
    *verdict = f->verdict;
    hly_verdict_drop_lists(verdict);
    if (!verdict->of &&
        (f->final || (verdict->cause > HLY_CAUSE_SETTINGS && verdict->cause != HLY_CAUSE_DEVICE &&
                      verdict->cause < HLY_CAUSE_STOPPED && hly_coordinator_has_all(v, f))))
        return HLY_END_IN_STEP;
    if (f->final)
        return HLY_END_AS_AGREED;
    if (b->agreed) { /* the ranks have decided in a later call: exec/relaxed.h */
        b->since = v->sequence;
        *verdict = b->by;
        return HLY_END_AS_AGREED;
    }
    if (!verdict->of)
        verdict->of = (uint64_t)v->sequence + 1;
    /* If this rank was stopped, the others did not wait for it, and may have a better verdict. */
    return hly_verdict_stops(verdict, v->rank) ? HLY_END_ALONE : HLY_END_AGREES;
}
