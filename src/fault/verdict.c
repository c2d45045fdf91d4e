/* SPDX-License-Identifier: Apache-2.0 */
/* verdict.c - makes verdicts, and their texts. */
#include <stdio.h>
#include <string.h>

#include "fault/fault.h"

static void host_of(halay_comm_t *comm, int rank, char host[64])
{
    halay_context_t *ctx = comm->context;
    halay_place_t place = {.size = sizeof(place)};
    host[0] = 0;
    if (rank < 0 || rank >= comm->nranks)
        return;
    int world = hly_comm_world_rank(comm, rank);
    bool known = ctx->boot && !ctx->boot_ops->get(ctx->boot, world, &place);
    snprintf(host, 64, "%.63s", known ? place.host : ctx->info.host);
}

void hly_verdict_init(struct hly_verdict_wire *v, halay_comm_t *comm, enum hly_cause cause,
                      int code, int rank)
{
    memset(v, 0, sizeof(*v));
    v->cause = cause;
    v->code = code;
    v->rank = rank;
    v->other = -1;
    host_of(comm, rank, v->host);
}

void hly_verdict_other(struct hly_verdict_wire *v, halay_comm_t *comm)
{
    host_of(comm, v->other, v->other_host);
}

void hly_verdict_lost(const halay_comm_t *comm, int rank)
{
    const halay_context_t *ctx = comm->context;
    if (ctx->boot && ctx->boot_ops->lost)
        ctx->boot_ops->lost(ctx->boot, hly_comm_world_rank(comm, rank));
}

void hly_verdict_agreed(const halay_comm_t *comm, const struct hly_verdict_wire *v)
{
    const bool lost =
        v->cause == HLY_CAUSE_PEER || v->cause == HLY_CAUSE_STOPPED || v->cause == HLY_CAUSE_ABSENT;
    if (lost && v->rank >= 0 && v->rank != comm->rank)
        hly_verdict_lost(comm, v->rank);
}

bool hly_verdict_is_news(const halay_comm_t *comm, const struct hly_verdict_wire *v)
{
    halay_context_t *ctx = comm->context;
    if (v->cause == HLY_CAUSE_REVOKED && v->rank == comm->rank && hly_interrupted(ctx)) {
        const bool reported = ctx->waiters.reported;
        ctx->waiters.reported = true;
        return !reported;
    }
    if (v->rank < 0 || (v->cause != HLY_CAUSE_PEER && v->cause != HLY_CAUSE_STOPPED))
        return true;
    const int world = hly_comm_world_rank(comm, v->rank);
    for (uint32_t i = 0; i < HLY_DEATHS_TOLD && i < ctx->ndeaths_told; i++)
        if (ctx->deaths_told[i].rank == world && ctx->deaths_told[i].cause == v->cause)
            return false;
    ctx->deaths_told[ctx->ndeaths_told++ % HLY_DEATHS_TOLD] =
        (struct hly_death_told){world, v->cause};
    return true;
}

static void op_text(const struct hly_call_desc *c, char *text, size_t bytes)
{
    if (c->op == HLY_CALL_UNKNOWN)
        snprintf(text, bytes, ", unknown operation");
    else if (c->op < HLY_CALL_USER && c->op >= HALAY_OP_COUNT)
        snprintf(text, bytes, ", unknown operation %u", c->op);
    else if (c->op < HLY_CALL_USER)
        snprintf(text, bytes, ", %s%s", halay_op_name((halay_op_t)c->op),
                 c->flags & HLY_CALL_SCALED ? ", scaled" : "");
    else
        snprintf(text, bytes, ", user's operation %u%s", c->op % HLY_CALL_USER,
                 c->flags & HLY_CALL_ORDERED ? " in order" : "");
}

static const char *type_text(const struct hly_call_desc *c, char text[32])
{
    if (halay_type_bytes((halay_type_t)c->type))
        return halay_type_name((halay_type_t)c->type);
    if (c->type == UINT8_MAX) /* or more, or negative */
        return "an unknown type";
    snprintf(text, 32, "unknown type %u", c->type);
    return text;
}

static void elements_text(const struct hly_call_desc *c, char *text, size_t bytes)
{
    char number[32];
    snprintf(text, bytes, " of %llu %s%s", (unsigned long long)c->count,
             halay_type_bytes((halay_type_t)c->type) ? "" : "of ", type_text(c, number));
}

static const char *memory_text(const struct hly_call_desc *c, char text[32])
{
    text[0] = 0;
    if (c->memory == HALAY_MEMORY_CUDA)
        snprintf(text, 32, " in memory of a GPU");
    else if (c->memory != HALAY_MEMORY_HOST)
        snprintf(text, 32, " in memory of kind %u", c->memory);
    return text;
}

void hly_desc_text(const struct hly_call_desc *c, char *text, size_t bytes)
{
    halay_collective_t collective = (halay_collective_t)c->collective;
    bool known = c->collective < HALAY_COLLECTIVE_COUNT;
    unsigned long long count = (unsigned long long)c->count;
    char what[64], op[40] = "", root[32] = "", memory[32], number[32];
    const char *type = type_text(c, number);
    const char *place = !(c->flags & HLY_CALL_IN_PLACE) ? ""
                        : c->flags & HLY_CALL_SCALED    ? ", in place or with a prescale"
                                                        : ", in place"; /* api/scaled.c */
    if (collective == HALAY_BARRIER) {
        const bool refused = (c->flags & HLY_CALL_REFUSED) == HLY_CALL_REFUSED;
        const char *form = refused ? "which cannot make its call"
                           : c->flags & HLY_CALL_LIST
                               ? "comm_from_ranks of %lld" /* as it was given: an int */
                           : c->flags & HLY_CALL_GROUP ? "group of %llu calls"
                                                       : "barrier";
        snprintf(text, bytes, form, count);
        return;
    }
    if (c->flags & HLY_CALL_LIST) {
        snprintf(text, bytes, "comm_split");
        return;
    }
    if (!(c->flags & HLY_CALL_VECTOR))
        elements_text(c, what, sizeof(what));
    else if (collective == HALAY_ALLTOALL)
        snprintf(what, sizeof(what), "v of %s", type);
    else
        snprintf(what, sizeof(what), "v of %s, %llu in all", type, count);
    if (known && halay_collective_reduces(collective))
        op_text(c, op, sizeof(op));
    if (known && halay_collective_rooted(collective))
        snprintf(root, sizeof(root), " %s root %d",
                 collective == HALAY_GATHER || collective == HALAY_REDUCE ? "to" : "from",
                 (int)c->root);
    snprintf(text, bytes, "%s%s%s%s%s%s", known ? halay_collective_name(collective) : "?", what,
             memory_text(c, memory), op, root, place);
}

bool hly_verdict_is_certain(const struct hly_verdict_wire *v)
{
    static const struct hly_call_desc none;
    return v->cause == HLY_CAUSE_DEADLOCK && hly_desc_equal(&v->call, &none);
}

void hly_rank_text(int rank, int nranks, int world, char text[HLY_RANK_TEXT])
{
    char of[16] = "", job[32] = "";
    if (nranks)
        snprintf(of, sizeof(of), " of %d", nranks);
    if (world != rank)
        snprintf(job, sizeof(job), " (rank %d of the job)", world);
    snprintf(text, HLY_RANK_TEXT, "rank %d%s%s", rank, of, job);
}

void hly_failure_init(struct hly_failure *f, const halay_comm_t *comm, uint32_t sequence,
                      const struct hly_verdict_wire *v)
{
    *f = (struct hly_failure){.verdict = *v,
                              .sequence = v->of ? (uint32_t)(v->of - 1) : sequence,
                              .nranks = (comm->parent ? comm->parent : comm)->nranks,
                              .paired = comm->parent != NULL,
                              .pair = {comm->pair[0], comm->pair[1]}};
    const int ranks[2] = {v->rank, v->other};
    for (int i = 0; i < 2; i++)
        f->world[i] = ranks[i] < 0 ? -1 : hly_comm_world_rank(comm, ranks[i]);
}

int hly_failure_rank(const struct hly_failure *f, int rank)
{
    return f->paired && rank >= 0 ? f->pair[rank & 1] : rank;
}

/* The call as `rank` made it. */
static void call_text(const struct hly_failure *f, const struct hly_call_desc *call, int rank,
                      char *text, size_t bytes)
{
    static const struct hly_call_desc unknown;
    char elements[64], memory[32];
    if (hly_desc_equal(call, &unknown))
        snprintf(text, bytes, "a call");
    else if (!f->paired)
        hly_desc_text(call, text, bytes);
    else {
        elements_text(call, elements, sizeof(elements));
        snprintf(text, bytes, "%s%s%s %s rank %d", rank == 1 ? "receive" : "send", elements,
                 memory_text(call, memory), rank == 1 ? "from" : "to", f->pair[rank != 1]);
    }
}

/* Which call it was. */
static void number_text(const struct hly_failure *f, char *text, size_t bytes)
{
    if (f->paired)
        snprintf(text, bytes, "message %u from rank %d to rank %d", f->sequence, f->pair[0],
                 f->pair[1]);
    else
        snprintf(text, bytes, "call %u on this communicator", f->sequence);
}

void hly_call_text(const halay_comm_t *comm, const struct hly_call_desc *desc, uint32_t sequence,
                   char *text, size_t bytes)
{
    const struct hly_failure f = {.sequence = sequence,
                                  .paired = comm->parent != NULL,
                                  .pair = {comm->pair[0], comm->pair[1]}};
    char call[128], number[96];
    call_text(&f, desc, comm->rank, call, sizeof(call));
    number_text(&f, number, sizeof(number));
    snprintf(text, bytes, "%s (%s)", call, number);
}

/* How two calls differ whose texts are equal. */
static const char *unlike_text(const struct hly_verdict_wire *v)
{
    const uint8_t flags = v->call.flags;
    if ((flags ^ v->other_call.flags) & HLY_CALL_RELAXED)
        return ", of which one did not follow the same call";
    if (flags & HLY_CALL_LIST)
        return v->call.collective == HALAY_BARRIER
                   ? " with another list, or has made other communicators of this one before"
                   : " and has made other communicators of this one before";
    return flags & HLY_CALL_GROUP ? ", and those differ"
                                  : " with other counts, factors or operations";
}

static void mismatch_text(const struct hly_failure *f, const char *number, char *text, size_t bytes)
{
    const struct hly_verdict_wire *v = &f->verdict;
    char one[128], two[128], first[HLY_RANK_TEXT], second[HLY_RANK_TEXT];
    hly_rank_text(hly_failure_rank(f, v->rank), 0, f->world[0], first);
    hly_rank_text(hly_failure_rank(f, v->other), 0, f->world[1], second);
    call_text(f, &v->call, v->rank, one, sizeof(one));
    call_text(f, &v->other_call, v->other, two, sizeof(two));
    if (v->detail[0] && v->detail[0] != ',')
        snprintf(text, bytes,
                 "the counts of %s do not fit (%s): %s (%s is on %s, %s on %s). Each rank "
                 "must expect from another what that one sends",
                 one, number, v->detail, first, v->host, second, v->other_host);
    else
        snprintf(text, bytes,
                 "the ranks' calls differ (%s): %s on %s called %s; %s on %s called "
                 "%s%s. All ranks must make the same calls in the same order",
                 number, first, v->host, one, second, v->other_host, two,
                 v->detail[0]       ? v->detail
                 : strcmp(one, two) ? ""
                                    : unlike_text(v));
}

/* A rank was stopped or late while others waited; or ranks wait for each other in a cycle. */
static void waited_text(const struct hly_failure *f, const char *who, const char *call,
                        const char *number, char *text, size_t bytes)
{
    const struct hly_verdict_wire *v = &f->verdict;
    if (hly_verdict_is_certain(v)) {
        snprintf(text, bytes,
                 "ranks of the job wait for each other, and none can go on: %s. One of them has to "
                 "do first what the next one waits for",
                 v->detail);
        return;
    }
    if (v->cause == HLY_CAUSE_DEADLOCK) {
        snprintf(text, bytes,
                 "%s (%s) waited in a circle. In the job, %s. All ranks must make communicators "
                 "of one parent in the same order, and their calls in one order, also across "
                 "communicators",
                 call, number, v->detail);
        return;
    }
    snprintf(text, bytes,
             "%s (%s) waited without success: %s on %s %s%s HALAY_STOP_TIMEOUT sets more "
             "seconds",
             call, number, who, v->host, v->detail,
             v->cause == HLY_CAUSE_LATE ? ": HALAY_DEADLINE, or if it was stopped"
                                        : " (SIGSTOP, SIGTSTP or a debugger).");
}

static void lost_text(const struct hly_failure *f, const char *who, char *text, size_t bytes)
{
    const struct hly_verdict_wire *v = &f->verdict;
    char link[200] = "", other[HLY_RANK_TEXT];
    hly_rank_text(hly_failure_rank(f, v->other), 0, f->world[1], other);
    if (v->other >= 0)
        snprintf(link, sizeof(link),
                 "the link between it and %s on %.63s is cut, or its host is down: ", other,
                 v->other_host);
    snprintf(text, bytes,
             "%s on %s is lost: %s%s. %s; start the job again, or go on without it "
             "(halay_comm_shrink; in Python halay.distributed.shrink() or halayrun --min-np)",
             who, v->host, link, v->detail,
             v->other >= 0 ? "Look at the network between them, and at that host"
                           : "Look at that rank's own output for the first error, or why it has "
                             "ended early, and at the network if it still runs");
}

void hly_failure_text(const struct hly_failure *f, char *text, size_t bytes)
{
    const struct hly_verdict_wire *v = &f->verdict;
    bool waited = v->cause >= HLY_CAUSE_STOPPED; /* v->call is the call of a rank that waited */
    char call[128], number[96], who[HLY_RANK_TEXT];
    hly_rank_text(hly_failure_rank(f, v->rank), f->nranks, f->world[0], who);
    call_text(f, &v->call, waited ? v->rank == 0 : v->rank, call, sizeof(call));
    number_text(f, number, sizeof(number));
    if (f->alone && v->cause != HLY_CAUSE_DEADLOCK) {
        snprintf(text, bytes, "%s on %s: %s", who, v->host, v->detail);
        return;
    }
    switch (v->cause) {
    case HLY_CAUSE_PEER:
        lost_text(f, who, text, bytes);
        return;
    case HLY_CAUSE_BUILD:
        snprintf(text, bytes,
                 "the ranks run different builds of Halay: %s. Give all ranks the library and the "
                 "plug-ins of the same build",
                 v->detail);
        return;
    case HLY_CAUSE_SETTINGS:
        snprintf(text, bytes,
                 "the ranks' versions or settings differ: %s. Give all ranks the same library and "
                 "the same HALAY_* variables",
                 v->detail);
        return;
    case HLY_CAUSE_MISMATCH:
        mismatch_text(f, number, text, bytes);
        return;
    case HLY_CAUSE_REVOKED:
        snprintf(text, bytes,
                 "the communicator was revoked by %s. All ranks that are left leave it: call "
                 "halay_comm_shrink, too (under torch.distributed halay.distributed.shrink())",
                 v->detail);
        return;
    case HLY_CAUSE_ARGUMENT:
    case HLY_CAUSE_STATE:
    case HLY_CAUSE_DEVICE:
    case HLY_CAUSE_LOCAL:
        snprintf(text, bytes, "%s on %s, %s (%s): %s", who, v->host, call, number, v->detail);
        return;
    case HLY_CAUSE_STOPPED:
    case HLY_CAUSE_DEADLOCK:
    case HLY_CAUSE_LATE:
        waited_text(f, who, call, number, text, bytes);
        return;
    default:
        if (v->rank < 0)
            snprintf(text, bytes,
                     "the deadline passed in %s (%s), in which all ranks answer. HALAY_DEADLINE "
                     "sets more seconds",
                     call, number);
        else
            snprintf(text, bytes,
                     "the deadline passed in %s (%s): %s on %s %s. See where that rank is (a "
                     "debugger, py-spy); HALAY_DEADLINE sets more seconds",
                     call, number, who, v->host, v->detail);
    }
}

int hly_fault_alone(halay_comm_t *comm, int code, const char *text)
{
    struct hly_verdict_wire v;
    hly_verdict_init(&v, comm, HLY_CAUSE_LOCAL, code, comm->rank);
    snprintf(v.detail, sizeof(v.detail), "%s", text);
    hly_failure_init(&comm->last, comm, comm->next_sequence, &v);
    comm->last.alone = true;
    comm->failed = true;
    return code;
}
