/* SPDX-License-Identifier: Apache-2.0 */
/*
 * held.c - the verdict that a rank holds while ranks agree on one: which it takes over, and who is
 * said to be absent.
 *
 * A rank that has been heard of in the agreement is never called absent. If others called it so,
 * because it was not scheduled, it is put on a list that goes with all verdicts (`present`). Who
 * believed it drops that verdict, and looks for others that are silent. The list only grows, so
 * this ends.
 */
#include <string.h>

#include "fault/agree.h"

bool hly_agree_is_claim(const struct hly_verdict_wire *v)
{
    return v->cause == HLY_CAUSE_ABSENT || v->cause == HLY_CAUSE_ELSEWHERE;
}

bool hly_agree_is_present(const struct hly_fault *f, int rank)
{
    for (int i = 0; i < HLY_PRESENT_MAX; i++)
        if (f->verdict.present[i] == (uint32_t)rank + 1)
            return true;
    return false;
}

bool hly_agree_is_gone(const halay_comm_t *comm, const struct hly_fault *f, int rank)
{
    for (int i = 0; i < HLY_GONE_MAX; i++)
        if (f->verdict.gone[i] == (uint32_t)rank + 1)
            return true;
    return hly_peer_is_dead(comm, rank) || hly_agree_counts_out(&f->verdict, rank);
}

bool hly_agree_note_gone(const halay_comm_t *comm, struct hly_fault *f, int rank)
{
    for (int i = 0; i < HLY_GONE_MAX && rank >= 0 && rank != comm->rank; i++) {
        if (f->verdict.gone[i] == (uint32_t)rank + 1)
            return false;
        if (!f->verdict.gone[i]) {
            f->verdict.gone[i] = (uint32_t)rank + 1;
            return true;
        }
    }
    return false;
}

bool hly_agree_note_dead(const halay_comm_t *comm, struct hly_fault *f)
{
    bool news = false;
    for (int r = 0; r < comm->nranks; r++)
        if (hly_peer_is_dead(comm, r))
            news |= hly_agree_note_gone(comm, f, r);
    return news;
}

static bool note_present(struct hly_fault *f, int rank)
{
    if (hly_agree_is_present(f, rank))
        return false;
    for (int i = 0; i < HLY_PRESENT_MAX; i++)
        if (!f->verdict.present[i]) {
            f->verdict.present[i] = (uint32_t)rank + 1;
            return true;
        }
    return false;
}

bool hly_agree_is_heard(const halay_comm_t *comm, const struct hly_slot *slot, int rank)
{
    if (rank < 0)
        return false;
    if (rank == comm->rank)
        return slot->request != NULL || slot->fault->entered;
    return slot->fault->alarmed & hly_agree_bits_of(comm, rank) ||
           hly_agree_is_present(slot->fault, rank);
}

void hly_agree_hold(struct hly_fault *f, const struct hly_verdict_wire *v)
{
    const struct hly_verdict_wire last = f->verdict;
    f->verdict = *v;
    memcpy(f->verdict.present, last.present, sizeof(last.present));
    memcpy(f->verdict.gone, last.gone, sizeof(last.gone));
    f->raised = true;
    f->proposed = false;
    memset(f->taken, 0, sizeof(f->taken));
}

/* Goes back to the best verdict that calls nobody absent. */
void hly_agree_hold_firm(halay_comm_t *comm, struct hly_fault *f)
{
    struct hly_verdict_wire v = f->firm;
    if (!v.cause) {
        hly_verdict_init(&v, comm, HLY_CAUSE_DEADLINE, HALAY_ETIMEOUT, -1);
        v.call = f->verdict.call;
    }
    hly_agree_hold(f, &v);
}

/* Drops a verdict that calls a present rank absent; the timers look for absent ranks anew. */
bool hly_agree_reconsider(halay_comm_t *comm, struct hly_slot *slot)
{
    struct hly_fault *f = slot->fault;
    if (!f->raised || !hly_agree_is_claim(&f->verdict) ||
        !hly_agree_is_heard(comm, slot, f->verdict.rank))
        return false;
    note_present(f, f->verdict.rank);
    hly_agree_hold_firm(comm, f);
    if (f->absent_ns == UINT64_MAX)
        f->absent_ns = 0;
    return true;
}

/*
 * A verdict on a silent rank says who it is, and since which call ranks are out of step. Of this
 * call, one rank may know the first and another the second: the better verdict gets the call.
 */
bool hly_agree_share_call(const struct hly_slot *slot, struct hly_verdict_wire *to,
                          const struct hly_verdict_wire *from)
{
    const bool silence = (to->cause == HLY_CAUSE_PEER || to->cause >= HLY_CAUSE_STOPPED) &&
                         from->cause >= HLY_CAUSE_STOPPED;
    if (!silence || to->of || from->of != (uint64_t)slot->sequence + 1)
        return false;
    to->of = from->of;
    return true;
}

/* Takes a verdict over if it is the first or a better one. True: others should hear of it. */
bool hly_agree_adopt(halay_comm_t *comm, struct hly_slot *slot,
                     const struct hly_verdict_wire *theirs)
{
    struct hly_fault *f = slot->fault;
    struct hly_verdict_wire copy = *theirs;
    const struct hly_verdict_wire *v = &copy;
    bool news = f->raised && hly_agree_share_call(slot, &f->verdict, v);
    if (f->raised)
        hly_agree_share_call(slot, &copy, &f->verdict);
    for (int i = 0; i < HLY_PRESENT_MAX; i++)
        if (v->present[i])
            news |= note_present(f, (int)(v->present[i] - 1));
    for (int i = 0; i < HLY_GONE_MAX; i++)
        if (v->gone[i])
            news |= hly_agree_note_gone(comm, f, (int)(v->gone[i] - 1));
    if (v->cause == HLY_CAUSE_PEER)
        news |= hly_agree_note_gone(comm, f, v->rank);
    if (!hly_agree_is_claim(v) && (!f->firm.cause || hly_verdict_better(v, &f->firm)))
        f->firm = *v;
    news |= hly_agree_reconsider(comm, slot);
    if (hly_agree_is_claim(v) && hly_agree_is_heard(comm, slot, v->rank)) {
        news |= note_present(f, v->rank);
        if (!f->raised) {
            f->verdict.call = v->call;
            hly_agree_hold_firm(comm, f);
        }
        return news;
    }
    if (f->raised && !hly_verdict_better(v, &f->verdict))
        return news;
    hly_agree_hold(f, v);
    return true;
}

void hly_agree_note_speaker(struct hly_fault *f, uint32_t rank)
{
    if (!f->speaker || (int)rank + 1 < f->speaker)
        f->speaker = (int)rank + 1;
}

void hly_agree_tell(halay_comm_t *comm, int to, const struct hly_verdict_wire *v)
{
    const uint32_t sequence = (uint32_t)(v->of - 1);
    const struct hly_slot *slot = &comm->slots[sequence % HLY_SLOTS];
    struct hly_fault *f = slot->sequence == sequence ? slot->fault : NULL;
    if (f && slot->request)
        hly_agree_note_speaker(f, (uint32_t)comm->rank);
    hly_control_send(comm, to, HLY_ALARM, sequence, f ? (uint32_t)f->speaker : 0, HLY_CONCLUDED,
                     NULL, v, sizeof(*v));
}

/*
 * One rank says it for all: the lowest in the call, as far as each knows from whom it has heard. So
 * somebody does, whoever is dead or away. Who is at fault says it, too. What has failed in an
 * earlier call is said by a rank in that one.
 */
enum hly_voice hly_agree_voice(const halay_comm_t *comm, const struct hly_slot *slot,
                               const struct hly_verdict_wire *v)
{
    const struct hly_fault *f = slot->fault;
    const int s = f->speaker - 1;
    const bool earlier = v->of && (int32_t)((uint32_t)(v->of - 1) - slot->sequence) < 0;
    /* If others have concluded before this rank, one of them has said it, and may have left. */
    const bool lower = s >= 0 && s < comm->rank && (f->final || !hly_agree_is_gone(comm, f, s));
    return (f->after || earlier || lower) && v->rank != comm->rank ? HLY_VOICE_QUIET
                                                                   : HLY_VOICE_LOUD;
}
