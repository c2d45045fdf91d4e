/* SPDX-License-Identifier: Apache-2.0 */
/*
 * survivors.c - runs the agreements of a communicator's survivors (agree/agree.h): sends their
 * messages, keeps their deadlines, writes awaited ranks into the flight record, and leaves out the
 * ranks that a decision names.
 *
 * A rank that is cut off from the others gives up one coordinator after the other, and would wait
 * HALAY_LINK_TIMEOUT for each. So when a link to a rank is cut, the other ranks of that rank's node
 * count as failed, too, if there is no link to them yet. At the same time this rank asks the first
 * rank of each other node, to find out whether it is cut off from those as well.
 */
#include "fault/survivors.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agree/runs.h"
#include "base/record.h"
#include "fault/call.h"
#include "fault/stall.h"

#define ASK_SHARE 8 /* a coordinator sends ASK again after deadline / ASK_SHARE, but not */
#define ASK_LEAST 20000000ull   /* more often than this, */
#define ASK_MOST  1000000000ull /* and not less often than this */

static struct hly_survivors *survivors_of(halay_comm_t *comm)
{
    if (comm->survivors)
        return comm->survivors;
    const uint32_t words = hly_set_words(comm->nranks);
    const size_t each = hly_agreement_bytes(comm->nranks), sets = 3 * words * sizeof(uint64_t);
    struct hly_survivors *x = calloc(1, sizeof(*x) + sets + 2 * each);
    if (!x)
        return NULL;
    x->failed = x->gone + words;
    x->without = x->failed + words;
    for (int i = 0; i < 2; i++) {
        x->consensus[i].is = (void *)((char *)(x + 1) + sets + (size_t)i * each);
        hly_agreement_init(x->consensus[i].is, comm->nranks, comm->rank);
    }
    return comm->survivors = x;
}

/*
 * The state of an agreement; there is room for two. A rank that enters agreement n + 1 has decided
 * agreement n. So have all ranks that send messages of n + 1. So no rank needs agreement n - 1.
 */
static struct hly_consensus *consensus_of(const halay_comm_t *comm, uint32_t number)
{
    struct hly_consensus *a = &comm->survivors->consensus[number % 2];
    if (a->number != number) {
        *a = (struct hly_consensus){.number = number, .is = a->is};
        hly_agreement_init(a->is, comm->nranks, comm->rank);
    }
    return a;
}

static bool is_in(const struct hly_consensus *a, int which, int rank)
{
    return hly_set_has(hly_agreement_set(a->is, which), rank);
}

/* ---------------------------------------------------------------- the awaited ranks */

int hly_consensus_awaited(const halay_comm_t *comm, const struct hly_consensus *a, int ranks[],
                          int most)
{
    int n = 0;
    for (int r = 0; r < comm->nranks && n < most; r++)
        if (hly_agreement_awaits(a->is, r))
            ranks[n++] = r;
    return n;
}

uint64_t hly_consensus_measure(const halay_comm_t *comm, const struct hly_consensus *a)
{
    const int sets[] = {HLY_SET_HEARD, HLY_SET_TAKEN, HLY_SET_FAILED};
    uint64_t sum = (uint64_t)hly_agreement_coordinator(a->is) * 1000003 + a->is->ballot * 31ull +
                   a->is->proposed;
    for (int k = 0; k < 3; k++)
        for (uint32_t i = 0; i < hly_set_words(comm->nranks); i++)
            sum += (uint64_t)__builtin_popcountll(hly_agreement_set(a->is, sets[k])[i]);
    return sum;
}

const char *hly_consensus_text(const struct hly_consensus *a)
{
    return a->is->call == HLY_CALL_SHRINK ? "halay_comm_shrink" : "halay_comm_agree";
}

bool hly_consensus_is_made(const halay_comm_t *comm, uint32_t number)
{
    return comm->survivors && (int32_t)(comm->survivors->number - number) >= 0;
}

static bool is_under_way(const struct hly_consensus *a)
{
    return a->is->entered && !hly_agreement_is_over(a->is);
}

bool hly_consensus_waits(const halay_comm_t *comm)
{
    const struct hly_survivors *x = comm->survivors;
    return x && is_under_way(&x->consensus[x->number % 2]);
}

/* For halay-info and halayrun. */
static void record(halay_comm_t *comm, const struct hly_consensus *a)
{
    int ranks[HALAY_RECORD_AWAITED];
    halay_record_agreement_t r = {
        .comm = comm->id,
        .began_ns = a->started_ns,
        .ended_ns = hly_agreement_is_over(a->is) ? hly_about_now_ns() : 0,
        .number = a->number,
        .what = a->is->call == HLY_CALL_SHRINK ? HALAY_RECORD_SHRINK : HALAY_RECORD_AGREE,
        .nawaited = (uint32_t)hly_consensus_awaited(comm, a, ranks, HALAY_RECORD_AWAITED)};
    for (uint32_t i = 0; i < r.nawaited; i++)
        r.awaited[i] = hly_comm_world_rank(comm, ranks[i]);
    hly_record_consensus(comm->context, &r, a->recorded);
}

/* ---------------------------------------------------------------- messages out */

struct post {
    halay_comm_t *comm;
    const struct hly_consensus *consensus;
    int from; /* the rank whose message is answered, or -1 */
};

/* May this rank send LEFT_OUT to that one? If there is no link to it, a rank with a link does so,
 * unless this rank itself has found it silent. */
static bool may_tell(const struct post *p, int rank)
{
    halay_context_t *ctx = p->comm->context;
    const struct hly_peer *peer =
        hly_peer_find(ctx, hly_peer_id(ctx, hly_comm_world_rank(p->comm, rank)));
    return rank == p->from ||
           (!hly_peer_is_dead(p->comm, rank) &&
            (is_in(p->consensus, HLY_SET_ABSENT, rank) || (peer && peer->greeted)));
}

static void post(void *arg, int to, const struct hly_agreement_message *m)
{
    const struct post *p = arg;
    struct hly_consensus_wire wire = {
        .what = m->what, .call = m->call, .flag = m->flag, .code = m->code, .ballot = m->ballot};
    struct hly_packed sets = {.words = wire.sets, .most = HLY_CONSENSUS_RUNS};
    if (m->what == HLY_AGREE_LEFT_OUT && !may_tell(p, to))
        return;
    if (!hly_sets_pack(p->comm->nranks, m->failed, m->without, &sets))
        wire.code = HALAY_EUNSUPPORTED; /* all ranks end the agreement with this code */
    wire.nfailed = sets.nfailed;
    wire.nwithout = sets.nwithout;
    hly_control_send(p->comm, to, HLY_CONSENSUS, p->consensus->number, 0, 0, NULL, &wire,
                     hly_consensus_bytes(p->comm->nranks));
}

#define SINK(comm_, consensus_, from_)                                                             \
    (&(const struct hly_agreement_sink){                                                           \
        post, &(struct post){.comm = (comm_), .consensus = (consensus_), .from = (from_)}})

/* ---------------------------------------------------------------- its end */

static void end(halay_comm_t *comm, struct hly_consensus *a)
{
    a->ended = true;
    if (a->is->entered)
        record(comm, a);
    comm->context->survivors -= a->is->entered;
    hly_wake_if_asleep(comm->context);
}

/* From now on no call waits for the rank, and messages from it are dropped. */
static void leave_out(halay_comm_t *comm, int rank)
{
    halay_context_t *ctx = comm->context;
    hly_verdict_lost(comm, rank);
    struct hly_peer *peer = hly_peer_find(ctx, hly_peer_id(ctx, hly_comm_world_rank(comm, rank)));
    if (hly_peer_is_dead(comm, rank) || !peer)
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
    struct hly_survivors *x = comm->survivors;
    if (x->left_out)
        return;
    x->left_out = true;
    for (int i = 0; i < 2; i++)
        if (x->consensus[i].is->entered && !x->consensus[i].ended) {
            x->consensus[i].is->left_out = true;
            end(comm, &x->consensus[i]);
        }
    hly_fault_left_out(comm);
    hly_wake_if_asleep(comm->context);
}

/* After each event: does what the agreement asks for. */
static void after(halay_comm_t *comm, struct hly_consensus *a)
{
    if (a->is->wait_anew) {
        a->looks = 0;
        a->deadline_ns = hly_now_ns() + comm->deadline_ns;
    }
    a->is->wait_anew = false;
    if (a->is->left_out) {
        be_left_out(comm);
        return;
    }
    if (a->ended || !a->is->decided)
        return;
    end(comm, a);
    for (int r = 0; r < comm->nranks; r++)
        if (is_in(a, HLY_SET_WITHOUT, r)) {
            comm->survivors->gone[r / 64] |= 1ull << (r % 64);
            leave_out(comm, r);
        }
}

/* ---------------------------------------------------------------- its course */

static void ask(halay_comm_t *comm, struct hly_consensus *a)
{
    uint64_t every = comm->deadline_ns / ASK_SHARE;
    every = every < ASK_LEAST ? ASK_LEAST : every > ASK_MOST ? ASK_MOST : every;
    if (a->ask_ns) /* 0: it has only just become the coordinator, and has sent ASK */
        hly_agreement_ask(a->is, SINK(comm, a, -1));
    a->ask_ns = hly_now_ns() + every;
}

static void go_on(halay_comm_t *comm, struct hly_consensus *a)
{
    hly_agreement_go_on(a->is, SINK(comm, a, -1));
    after(comm, a);
}

static int node_of(const halay_comm_t *comm, int rank)
{
    halay_place_t place;
    hly_transport_of(comm->context, hly_comm_world_rank(comm, rank), &place);
    return place.node;
}

/* This rank has failed. If its link is cut, see the head of this file. */
static void note_cut(halay_comm_t *comm, struct hly_consensus *a, int rank)
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
        if (other == ctx->info.node || is_in(a, HLY_SET_FAILED, r) ||
            hly_peer_find(ctx, hly_peer_id(ctx, hly_comm_world_rank(comm, r))))
            continue;
        if (other == node) {
            hly_agreement_note(a->is, r, true);
        } else if (other != last) {
            hly_agreement_ask_one(a->is, r, SINK(comm, a, -1));
            last = other;
        }
    }
}

static bool is_silent(const struct hly_verdict_wire *v, int rank)
{
    return (v->cause == HLY_CAUSE_STOPPED || v->cause == HLY_CAUSE_ABSENT) && v->rank == rank;
}

int hly_consensus_begin(halay_comm_t *comm, enum hly_consensus_call call, int32_t flag)
{
    struct hly_survivors *x = survivors_of(comm);
    if (!x)
        return HALAY_ENOMEM;
    struct hly_consensus *a = consensus_of(comm, ++x->number);
    a->started_ns = a->look_ns = hly_now_ns();
    a->recorded = ++comm->context->record.nagreements;
    a->is->left_out |= x->left_out;
    hly_agreement_enter(a->is, (int)call, flag);
    comm->context->survivors += !a->ended;
    for (int r = 0; r < comm->nranks; r++)
        if (hly_consensus_has_failed(comm, r))
            hly_agreement_note(a->is, r, is_silent(&comm->broken.by, r));
    for (int r = 0; r < comm->nranks && !x->left_out; r++)
        if (hly_consensus_has_failed(comm, r))
            note_cut(comm, a, r);
    if (!a->ended)
        record(comm, a);
    if (x->left_out && !a->ended)
        end(comm, a);
    go_on(comm, a);
    return HALAY_OK;
}

bool hly_consensus_is_over(void *arg)
{
    const halay_comm_t *comm = arg;
    const struct hly_survivors *x = comm->survivors;
    return x->consensus[x->number % 2].ended || comm->context->lost;
}

int hly_consensus_end(halay_comm_t *comm, struct hly_consensus_value *value, char text[192])
{
    const struct hly_survivors *x = comm->survivors;
    struct hly_consensus *a = &comm->survivors->consensus[x->number % 2];
    *value = (struct hly_consensus_value){.flag = a->is->value_flag,
                                          .without = hly_agreement_set(a->is, HLY_SET_WITHOUT)};
    if (!a->ended) { /* the transport of this rank has failed */
        a->is->left_out = true;
        end(comm, a);
    }
    uint64_t words[HLY_CONSENSUS_RUNS];
    struct hly_packed packed = {.words = words, .most = HLY_CONSENSUS_RUNS};
    const bool many = a->is->value_code == HALAY_EUNSUPPORTED ||
                      !hly_sets_pack(comm->nranks, value->without, value->without, &packed);
    const bool mismatch = a->is->value_code != 0;
    const char *why =
        comm->context->lost ? HLY_LOST_TEXT
        : x->left_out       ? "the others have gone on without this rank, which did not answer in "
                              "time or could not be reached; end it"
        : many     ? "more than 48 groups of neighbouring ranks have failed, and no message has "
                     "room for that; start the job again"
        : mismatch ? "ranks have called halay_comm_agree and others halay_comm_shrink; all "
                     "must make the same calls in the same order"
                   : "";
    snprintf(text, 192, "%s", why);
    return comm->context->lost ? HALAY_ETRANSPORT
           : x->left_out       ? HALAY_EPEER
           : many              ? HALAY_EUNSUPPORTED
           : mismatch          ? HALAY_EMISMATCH
                               : HALAY_OK;
}

bool hly_consensus_has_failed(const halay_comm_t *comm, int rank)
{
    const struct hly_verdict_wire *v = &comm->broken.by;
    const bool named = comm->broken.is && ((v->rank == rank && v->cause == HLY_CAUSE_PEER) ||
                                           (comm->broken.agreed && is_silent(v, rank)));
    return rank != comm->rank && (named || hly_peer_is_dead(comm, rank) ||
                                  (comm->survivors && hly_set_has(comm->survivors->gone, rank)));
}

void hly_consensus_free(const halay_comm_t *comm)
{
    for (int r = 0; comm->survivors && r < comm->nranks; r++)
        if (hly_set_has(comm->survivors->gone, r))
            hly_peer_give_back(comm->context, hly_comm_world_rank(comm, r));
}

/* ---------------------------------------------------------------- messages, failures and time */

void hly_consensus_heard(halay_comm_t *comm, const struct hly_header *h,
                         const struct hly_consensus_wire *wire)
{
    const struct hly_survivors *x = survivors_of(comm);
    uint64_t words[HLY_CONSENSUS_RUNS];
    const struct hly_packed packed = {.nfailed = wire->nfailed,
                                      .nwithout = wire->nwithout,
                                      .words = words,
                                      .most = HLY_CONSENSUS_RUNS};
    memcpy(words, wire->sets, sizeof(words));
    if (!x || !hly_sets_unpack(comm->nranks, &packed, x->failed, x->without))
        return;
    const struct hly_agreement_message m = {.what = wire->what,
                                            .call = wire->call,
                                            .flag = wire->flag,
                                            .code = wire->code,
                                            .ballot = wire->ballot,
                                            .failed = x->failed,
                                            .without = x->without};
    if (!hly_agreement_is_sound(comm->nranks, &m) || m.call < HLY_CALL_AGREE ||
        m.call > HLY_CALL_SHRINK)
        return;
    if (h->sequence - x->number > 1 && x->consensus[h->sequence % 2].number != h->sequence)
        return; /* a message of an old agreement, or of one that cannot have begun */
    struct hly_consensus *a = consensus_of(comm, h->sequence);
    hly_agreement_heard(a->is, (int)h->from, &m, SINK(comm, a, (int)h->from));
    after(comm, a);
}

void hly_consensus_lost(halay_comm_t *comm, int rank)
{
    for (int i = 0; comm->survivors && i < 2; i++) {
        struct hly_consensus *a = &comm->survivors->consensus[i];
        if (!is_under_way(a) || is_in(a, HLY_SET_FAILED, rank))
            continue;
        hly_agreement_note(a->is, rank, false);
        note_cut(comm, a, rank);
        go_on(comm, a);
    }
}

void hly_consensus_absent(halay_comm_t *comm, struct hly_consensus *a, int rank)
{
    hly_agreement_note(a->is, rank, true);
    go_on(comm, a);
}

static void look_at(halay_comm_t *comm, struct hly_consensus *a, uint64_t now)
{
    if (now >= a->look_ns) {
        a->look_ns = now + HLY_STALL_LOOK_NS;
        record(comm, a);
        hly_stall_look_consensus(comm, a, now);
        if (a->ended)
            return;
    }
    if (a->is->leads && now >= a->ask_ns)
        ask(comm, a);
    a->looks += now >= a->deadline_ns;
    if (a->looks < HLY_LATE_LOOKS)
        return;
    a->looks = 0;
    hly_agreement_late(a->is, SINK(comm, a, -1));
    after(comm, a);
}

void hly_consensus_timers(halay_context_t *context)
{
    struct hly_link *next;
    for (struct hly_link *l = context->comms.next; l != &context->comms; l = next) {
        halay_comm_t *comm = HLY_OF(l, halay_comm_t, link);
        next = l->next;
        for (int i = 0; comm->survivors && i < 2; i++)
            if (is_under_way(&comm->survivors->consensus[i]))
                look_at(comm, &comm->survivors->consensus[i], context->now_ns);
    }
}
