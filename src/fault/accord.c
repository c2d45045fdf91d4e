/* SPDX-License-Identifier: Apache-2.0 */
/*
 * accord.c - the survivors of a communicator agree on a flag and on who has failed, also while
 * further ranks fail (docs/decisions/0078).
 *
 * The lowest rank that is not known to have failed coordinates. Each rank gives it its
 * contribution (GIVE), with all whom it knows to have failed. When it has those of all others it
 * proposes a value (PROPOSE); when all have taken that (TAKEN), they are told that it is decided
 * (DECIDED). If it fails, the next one coordinates. A contribution to it has the value that its
 * sender has taken, if any: then that is what it proposes. A rank that has given up a coordinator
 * takes nothing from it any more.
 *
 * So what any rank has decided all living ones have taken, and nothing else can be proposed. It is
 * also the reason why a rank that has taken a value need not wait for silent ones: these may have
 * decided, and be in no call.
 *
 * A coordinator says that it waits (ASK), at first to all and then now and then. Whoever has not
 * been heard of by the deadline counts as failed: a rank that has not called, to the coordinator;
 * the coordinator, to the others. So does a process that is seen to be stopped for too long
 * (patience.c). It is told so (LEFT_OUT), if it ever hears again.
 *
 * A rank that is cut off from the others gives up one coordinator after the other. So that it need
 * not wait HALAY_LINK_PATIENCE for each, a link that is cut stands for those to the other ranks of
 * its node that there are none to yet, and the first rank of each other node is asked then.
 */
#include "fault/accord.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/record.h"
#include "fault/agree.h"
#include "fault/patience.h"

#define LATE_LOOKS 8 /* as in agree.c */
#define ASK_SHARE  8 /* of the deadline: so often a coordinator says that it waits, */
#define ASK_LEAST  20000000ull
#define ASK_MOST   1000000000ull

static uint32_t words_of(const halay_comm_t *comm)
{
    return ((uint32_t)comm->nranks + 63) / 64;
}

static void add(uint64_t set[], int rank)
{
    set[rank / 64] |= 1ull << (rank % 64);
}

static void unite(uint64_t set[], const uint64_t other[], uint32_t words)
{
    for (uint32_t i = 0; i < words; i++)
        set[i] |= other[i];
}

static int coordinator_of(const halay_comm_t *comm, const struct hly_accord *a)
{
    int rank = 0;
    while (rank < comm->rank && hly_accord_has(a->failed, rank))
        rank++;
    return rank;
}

static struct hly_accords *accords_of(halay_comm_t *comm)
{
    if (!comm->accords && comm->nranks <= HLY_ACCORD_RANKS)
        comm->accords = calloc(1, sizeof(*comm->accords));
    return comm->accords;
}

/*
 * A rank that enters the next agreement has decided this one, and so has who takes part in the one
 * after that: so of an older one nobody needs to know any more.
 */
static struct hly_accord *accord_of(struct hly_accords *x, uint32_t number)
{
    struct hly_accord *a = &x->accord[number % 2];
    if (a->number != number)
        *a = (struct hly_accord){.number = number, .told = -1, .flag = -1};
    return a;
}

static void tell(halay_comm_t *comm, const struct hly_accord *a, int to, enum hly_accord_what what)
{
    const uint32_t n = words_of(comm);
    struct hly_accord_wire m = {.what = what,
                                .call = a->call,
                                .flag = a->ballot ? a->value.flag : a->flag,
                                .code = a->ballot ? a->value.code : a->code,
                                .ballot = a->ballot};
    memcpy(m.sets, a->failed, n * sizeof(*m.sets));
    memcpy(m.sets + n, a->value.without, n * sizeof(*m.sets));
    hly_control_send(comm, to, HLY_ACCORD, a->number, 0, 0, NULL, &m,
                     hly_accord_bytes(comm->nranks));
}

static void tell_all(halay_comm_t *comm, const struct hly_accord *a, enum hly_accord_what what)
{
    for (int r = 0; r < comm->nranks; r++)
        if (r != comm->rank && !hly_accord_has(a->failed, r))
            tell(comm, a, r, what);
}

/* ---------------------------------------------------------------- who is waited for */

int hly_accord_awaited(const halay_comm_t *comm, const struct hly_accord *a, int ranks[], int most)
{
    int n = 0;
    if (a->decided)
        return 0;
    if (coordinator_of(comm, a) != comm->rank) {
        ranks[0] = coordinator_of(comm, a);
        return 1;
    }
    for (int r = 0; r < comm->nranks && n < most; r++)
        if (r != comm->rank && !hly_accord_has(a->failed, r) &&
            hly_accord_has(a->heard, r) == a->proposed && !hly_accord_has(a->acked, r))
            ranks[n++] = r;
    return n;
}

uint64_t hly_accord_measure(const halay_comm_t *comm, const struct hly_accord *a)
{
    uint64_t sum = (uint64_t)coordinator_of(comm, a) * 1000003 + a->ballot * 31ull + a->proposed;
    for (uint32_t i = 0; i < words_of(comm); i++)
        sum += (uint64_t)__builtin_popcountll(a->heard[i]) +
               (uint64_t)__builtin_popcountll(a->acked[i]) +
               (uint64_t)__builtin_popcountll(a->failed[i]);
    return sum;
}

const char *hly_accord_text(const struct hly_accord *a)
{
    return a->call == HLY_CALL_SHRINK ? "halay_comm_shrink" : "halay_comm_agree";
}

bool hly_accord_is_made(const halay_comm_t *comm, uint32_t number)
{
    return comm->accords && (int32_t)(comm->accords->number - number) >= 0;
}

bool hly_accord_waits(const halay_comm_t *comm)
{
    const struct hly_accords *x = comm->accords;
    return x && x->accord[x->number % 2].entered && !x->accord[x->number % 2].decided;
}

/* For halay-info and halayrun. */
static void record(halay_comm_t *comm, const struct hly_accord *a)
{
    int ranks[HALAY_RECORD_AWAITED];
    halay_record_accord_t r = {
        .comm = comm->id,
        .began_ns = a->started_ns,
        .ended_ns = a->decided ? hly_about_now_ns() : 0,
        .number = a->number,
        .what = a->call == HLY_CALL_SHRINK ? HALAY_RECORD_SHRINK : HALAY_RECORD_AGREE,
        .nawaited = (uint32_t)hly_accord_awaited(comm, a, ranks, HALAY_RECORD_AWAITED)};
    for (uint32_t i = 0; i < r.nawaited; i++)
        r.awaited[i] = hly_comm_world_rank(comm, ranks[i]);
    hly_record_accord(comm->context, &r, a->recorded);
}

/* ---------------------------------------------------------------- its end */

static void end(halay_comm_t *comm, struct hly_accord *a)
{
    a->decided = true;
    if (a->entered)
        record(comm, a);
    comm->context->accords -= a->entered;
    hly_wake_if_asleep(comm->context);
}

/* Nobody waits for it any more, and what it sends is dropped. */
static void leave_out(halay_comm_t *comm, const struct hly_accord *a, int rank)
{
    halay_context_t *ctx = comm->context;
    hly_verdict_lost(comm, rank);
    if (hly_peer_is_dead(comm, rank))
        return;
    struct hly_peer *peer = hly_peer_find(ctx, hly_peer_id(ctx, hly_comm_world_rank(comm, rank)));
    /* Who has condemned it may have no link to it. */
    if (hly_accord_has(a->absent, rank) || (peer && peer->greeted))
        tell(comm, a, rank, HLY_ACCORD_LEFT_OUT);
    if (!peer)
        return;
    peer->left_out = true;
    if (!peer->evidence[0])
        snprintf(peer->evidence, sizeof(peer->evidence),
                 "it did not answer in time, and the others have gone on without it");
    hly_fault_lost(ctx, peer);
}

/* The others go on without this rank. */
static void be_left_out(halay_comm_t *comm)
{
    halay_context_t *ctx = comm->context;
    struct hly_accords *x = comm->accords;
    if (x->left_out)
        return;
    x->left_out = true;
    for (int i = 0; i < 2; i++)
        if (x->accord[i].entered && !x->accord[i].decided)
            end(comm, &x->accord[i]);
    hly_fault_left_out(comm);
    hly_wake_if_asleep(ctx);
}

static void decide(halay_comm_t *comm, struct hly_accord *a)
{
    const struct hly_accord_value *v = &a->value;
    if (a->decided)
        return;
    end(comm, a);
    if (hly_accord_has(v->without, comm->rank)) {
        be_left_out(comm);
        return;
    }
    unite(comm->accords->gone, v->without, words_of(comm));
    if (a->leads)
        tell_all(comm, a, HLY_ACCORD_DECIDED);
    for (int r = 0; r < comm->nranks; r++)
        if (hly_accord_has(v->without, r))
            leave_out(comm, a, r);
}

/* ---------------------------------------------------------------- its course */

static uint64_t deadline_of(const halay_comm_t *comm)
{
    return hly_now_ns() + comm->deadline_ns;
}

/* Of a value that this rank has taken: others may have decided it, and be in no call. */
static uint64_t soon(const halay_comm_t *comm)
{
    return hly_now_ns() + (comm->deadline_ns < HLY_GRACE_NS ? comm->deadline_ns : HLY_GRACE_NS);
}

static void ask(halay_comm_t *comm, struct hly_accord *a)
{
    uint64_t every = comm->deadline_ns / ASK_SHARE;
    every = every < ASK_LEAST ? ASK_LEAST : every > ASK_MOST ? ASK_MOST : every;
    a->ask_ns = hly_now_ns() + every;
    tell_all(comm, a, HLY_ACCORD_ASK);
}

/* The living ranks that are not in `set`: is there one? */
static bool is_missing(const halay_comm_t *comm, const struct hly_accord *a, const uint64_t set[])
{
    for (int r = 0; r < comm->nranks; r++)
        if (r != comm->rank && !hly_accord_has(a->failed, r) && !hly_accord_has(set, r))
            return true;
    return false;
}

static void propose(halay_comm_t *comm, struct hly_accord *a)
{
    a->deadline_ns = a->ballot ? soon(comm) : deadline_of(comm);
    if (!a->ballot) {
        a->value.flag = a->flag;
        a->value.code = a->code;
        memcpy(a->value.without, a->failed, sizeof(a->failed));
    }
    a->ballot = (uint32_t)comm->rank + 1;
    a->proposed = true;
    a->late = false;
    a->looks = 0;
    for (int r = 0; r < comm->nranks; r++)
        if (hly_accord_has(a->heard, r) && !hly_accord_has(a->failed, r) && r != comm->rank)
            tell(comm, a, r, HLY_ACCORD_PROPOSE);
}

/* This rank coordinates. */
static void lead(halay_comm_t *comm, struct hly_accord *a)
{
    if (!a->leads) {
        a->leads = true;
        a->late = false;
        a->looks = 0;
        a->deadline_ns = deadline_of(comm);
        ask(comm, a);
    }
    if (!a->proposed) {
        const bool missing = is_missing(comm, a, a->heard);
        const uint64_t soon_ns = soon(comm);
        if (missing && a->ballot && a->deadline_ns > soon_ns)
            a->deadline_ns = soon_ns;
        if (missing && !a->late)
            return;
        propose(comm, a);
    }
    for (int r = 0; r < comm->nranks && !a->late; r++)
        if (r != comm->rank && hly_accord_has(a->heard, r) && !hly_accord_has(a->failed, r) &&
            !hly_accord_has(a->acked, r))
            return;
    decide(comm, a);
}

static void go_on(halay_comm_t *comm, struct hly_accord *a)
{
    if (!a->entered || a->decided)
        return;
    const int c = coordinator_of(comm, a);
    if (c == comm->rank) {
        lead(comm, a);
    } else if (a->told != c) {
        a->told = c;
        a->looks = 0;
        a->deadline_ns = a->ballot ? soon(comm) : deadline_of(comm);
        tell(comm, a, c, HLY_ACCORD_GIVE);
    }
}

static int node_of(const halay_comm_t *comm, int rank)
{
    halay_place_t place;
    hly_transport_of(comm->context, hly_comm_world_rank(comm, rank), &place);
    return place.node;
}

/* This rank has failed: is it that its link is cut? */
static void note_cut(halay_comm_t *comm, struct hly_accord *a, int rank)
{
    const halay_context_t *ctx = comm->context;
    const struct hly_peer *p =
        hly_peer_find(ctx, hly_peer_id(ctx, hly_comm_world_rank(comm, rank)));
    if (!p || !p->cut)
        return;
    const int node = node_of(comm, rank);
    int last = ctx->info.node;
    for (int r = 0; r < comm->nranks; r++) {
        const int other = node_of(comm, r);
        if (other == ctx->info.node || hly_accord_has(a->failed, r) ||
            hly_peer_find(ctx, hly_peer_id(ctx, hly_comm_world_rank(comm, r))))
            continue;
        if (other == node) {
            add(a->failed, r);
            add(a->absent, r);
        } else if (other != last) {
            tell(comm, a, r, HLY_ACCORD_ASK);
            last = other;
        }
    }
}

static void note_call(struct hly_accord *a, int call)
{
    if (a->call && a->call != call)
        a->code = HALAY_EMISMATCH;
    a->call = call;
}

static bool is_silent(const struct hly_verdict_wire *v, int rank)
{
    return (v->cause == HLY_CAUSE_STOPPED || v->cause == HLY_CAUSE_ABSENT) && v->rank == rank;
}

int hly_accord_begin(halay_comm_t *comm, enum hly_accord_call call, int32_t flag)
{
    struct hly_accords *x = accords_of(comm);
    if (!x)
        return comm->nranks > HLY_ACCORD_RANKS ? HALAY_EUNSUPPORTED : HALAY_ENOMEM;
    struct hly_accord *a = accord_of(x, ++x->number);
    a->entered = true;
    a->started_ns = a->look_ns = hly_now_ns();
    a->recorded = ++comm->context->record.naccords;
    comm->context->accords += !a->decided;
    note_call(a, (int)call);
    a->flag &= flag;
    for (int r = 0; r < comm->nranks; r++) {
        if (!hly_accord_has_failed(comm, r))
            continue;
        add(a->failed, r);
        if (is_silent(&comm->broken_by, r))
            add(a->absent, r);
    }
    for (int r = 0; r < comm->nranks && !x->left_out; r++)
        if (hly_accord_has_failed(comm, r))
            note_cut(comm, a, r);
    if (!a->decided)
        record(comm, a);
    if (x->left_out)
        end(comm, a);
    else
        go_on(comm, a);
    return HALAY_OK;
}

bool hly_accord_is_over(void *arg)
{
    const halay_comm_t *comm = arg;
    const struct hly_accords *x = comm->accords;
    return x->accord[x->number % 2].decided || comm->context->lost;
}

int hly_accord_end(halay_comm_t *comm, const struct hly_accord_value **value, char text[192])
{
    struct hly_accords *x = comm->accords;
    struct hly_accord *a = &x->accord[x->number % 2];
    *value = &a->value;
    if (!a->decided)
        end(comm, a); /* this rank's transport has failed */
    const char *why =
        comm->context->lost ? HLY_LOST_TEXT
        : x->left_out       ? "the others have gone on without this rank, which did not answer in "
                              "time or could not be reached; end it"
        : a->value.code ? "ranks have called halay_comm_agree and others halay_comm_shrink; all "
                          "must make the same calls in the same order"
                        : "";
    snprintf(text, 192, "%s", why);
    return comm->context->lost ? HALAY_ETRANSPORT : x->left_out ? HALAY_EPEER : a->value.code;
}

bool hly_accord_has_failed(const halay_comm_t *comm, int rank)
{
    const struct hly_verdict_wire *v = &comm->broken_by;
    const bool named = comm->broken && ((v->rank == rank && v->cause == HLY_CAUSE_PEER) ||
                                        (comm->agreed && is_silent(v, rank)));
    return rank != comm->rank && (named || hly_peer_is_dead(comm, rank) ||
                                  (comm->accords && hly_accord_has(comm->accords->gone, rank)));
}

void hly_accord_free(const halay_comm_t *comm)
{
    for (int r = 0; comm->accords && r < comm->nranks; r++)
        if (hly_accord_has(comm->accords->gone, r))
            hly_peer_give_back(comm->context, hly_comm_world_rank(comm, r));
}

/* ---------------------------------------------------------------- messages */

/* Takes over the value that another rank has taken, if it is of a later coordinator. */
static void take(const halay_comm_t *comm, struct hly_accord *a, const struct hly_accord_wire *m)
{
    const uint32_t words = words_of(comm);
    if (m->ballot <= a->ballot)
        return;
    a->ballot = m->ballot;
    a->value.flag = m->flag;
    a->value.code = m->code;
    memcpy(a->value.without, m->sets + words, words * sizeof(*m->sets));
}

/* A peer has sent it. */
static bool is_sound(const halay_comm_t *comm, const struct hly_accord_wire *m)
{
    const int spare = (int)words_of(comm) * 64 - comm->nranks; /* bits that no rank has */
    const uint64_t none = spare ? ~UINT64_C(0) << (64 - spare) : 0;
    return m->what >= HLY_ACCORD_GIVE && m->what <= HLY_ACCORD_LEFT_OUT &&
           m->ballot <= (uint32_t)comm->nranks && m->code <= 0 &&
           (m->call == HLY_CALL_AGREE || m->call == HLY_CALL_SHRINK) &&
           (m->ballot || (m->what != HLY_ACCORD_PROPOSE && m->what != HLY_ACCORD_DECIDED)) &&
           !((m->sets[words_of(comm) - 1] | m->sets[2 * words_of(comm) - 1]) & none);
}

static void heard_give(halay_comm_t *comm, struct hly_accord *a, int from,
                       const struct hly_accord_wire *m)
{
    note_call(a, m->call);
    if (m->ballot)
        take(comm, a, m);
    else
        a->flag &= m->flag;
    add(a->heard, from);
}

static void heard(halay_comm_t *comm, struct hly_accord *a, int from,
                  const struct hly_accord_wire *m)
{
    const int c = coordinator_of(comm, a);
    switch (m->what) {
    case HLY_ACCORD_GIVE:
        if (!a->proposed)
            heard_give(comm, a, from, m);
        else /* one that was not waited for */
            tell(comm, a, from, HLY_ACCORD_PROPOSE);
        break;
    case HLY_ACCORD_PROPOSE:
        if (from != c || m->ballot != (uint32_t)from + 1)
            return;
        take(comm, a, m);
        tell(comm, a, from, HLY_ACCORD_TAKEN);
        break;
    case HLY_ACCORD_TAKEN:
        if (m->ballot == (uint32_t)comm->rank + 1)
            add(a->acked, from);
        break;
    default:
        break;
    }
    if (from == c) { /* it is there */
        a->deadline_ns = deadline_of(comm);
        a->looks = 0;
    }
    go_on(comm, a);
}

void hly_accord_heard(halay_comm_t *comm, const struct hly_header *h,
                      const struct hly_accord_wire *m)
{
    struct hly_accords *x = accords_of(comm);
    const int from = (int)h->from;
    const uint32_t words = words_of(comm);
    if (!x || !is_sound(comm, m))
        return;
    if (h->sequence - x->number > 1 && x->accord[h->sequence % 2].number != h->sequence)
        return; /* of one that nobody needs; or that cannot have begun */
    struct hly_accord *a = accord_of(x, h->sequence);
    if (m->what == HLY_ACCORD_LEFT_OUT) {
        be_left_out(comm);
    } else if (a->decided) {
        if (m->what < HLY_ACCORD_DECIDED && !x->left_out)
            tell(comm, a, from,
                 hly_accord_has(a->value.without, from) ? HLY_ACCORD_LEFT_OUT : HLY_ACCORD_DECIDED);
    } else if (m->what == HLY_ACCORD_DECIDED) {
        a->ballot = 0;
        take(comm, a, m);
        decide(comm, a);
    } else if (!hly_accord_has(a->failed, from)) {
        unite(a->failed, m->sets, words);
        a->failed[comm->rank / 64] &= ~(1ull << (comm->rank % 64));
        heard(comm, a, from, m);
    }
}

/* ---------------------------------------------------------------- failures and time */

void hly_accord_lost(halay_comm_t *comm, int rank)
{
    for (int i = 0; comm->accords && i < 2; i++) {
        struct hly_accord *a = &comm->accords->accord[i];
        if (!a->entered || a->decided || hly_accord_has(a->failed, rank))
            continue;
        add(a->failed, rank);
        note_cut(comm, a, rank);
        go_on(comm, a);
    }
}

/* The deadline has passed: who is waited for counts as failed. */
static void be_late(halay_comm_t *comm, struct hly_accord *a)
{
    const int c = coordinator_of(comm, a);
    a->looks = 0;
    a->deadline_ns = deadline_of(comm);
    if (c != comm->rank) {
        add(a->failed, c);
        add(a->absent, c);
    } else if (a->ballot) {
        a->late = true; /* what is proposed is all that can be decided */
    } else {
        for (int r = 0; r < comm->nranks; r++)
            if (r != comm->rank && !hly_accord_has(a->heard, r) && !hly_accord_has(a->failed, r)) {
                add(a->failed, r);
                add(a->absent, r);
            }
    }
    go_on(comm, a);
}

void hly_accord_absent(halay_comm_t *comm, struct hly_accord *a, int rank)
{
    add(a->failed, rank);
    add(a->absent, rank);
    go_on(comm, a);
}

static void look_at(halay_comm_t *comm, struct hly_accord *a, uint64_t now)
{
    if (now >= a->look_ns) {
        a->look_ns = now + HLY_PATIENCE_LOOK_NS;
        record(comm, a);
        hly_patience_look_accord(comm, a, now);
        if (a->decided)
            return;
    }
    if (a->leads && now >= a->ask_ns)
        ask(comm, a);
    a->looks += now >= a->deadline_ns;
    if (a->looks >= LATE_LOOKS)
        be_late(comm, a);
}

void hly_accord_timers(halay_context_t *context)
{
    struct hly_link *next;
    for (struct hly_link *l = context->comms.next; l != &context->comms; l = next) {
        halay_comm_t *comm = HLY_OF(l, halay_comm_t, link);
        next = l->next;
        for (int i = 0; comm->accords && i < 2; i++)
            if (comm->accords->accord[i].entered && !comm->accords->accord[i].decided)
                look_at(comm, &comm->accords->accord[i], context->now_ns);
    }
}
