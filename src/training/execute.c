/* SPDX-License-Identifier: Apache-2.0 */
/*
 * execute.c - the calls on the data communicator. What rounds have made ready runs first, in the
 * order in which it became ready, then the groups of the programme; both orders are the same on all
 * ranks, so the k-th call is the same on all. Behind a vote nothing is started before its result is
 * known, as that decides what comes next. A call that cannot be started here would shift the order:
 * then no later one is started.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trainer.h"

void hly_trainer_verdict(const halay_comm_t *comm, int code, char *text, size_t bytes)
{
    halay_verdict_t verdict = {.size = sizeof(verdict)};
    int known = !halay_comm_verdict(comm, &verdict) && verdict.code == code && verdict.text[0];
    snprintf(text, bytes, "%s", known ? verdict.text : halay_strerror(code));
}

static struct hly_flight *flight_take(halay_trainer_t *trainer, enum hly_flight_kind kind)
{
    assert(trainer->nflights < HLY_FLIGHTS);
    struct hly_flight *flight = &trainer->flights[trainer->nflights++];
    *flight = (struct hly_flight){.kind = kind, .slot = -1};
    return flight;
}

/* All ranks see the same code, so all end the same tensors. text: HLY_TEXT_BYTES. */
static void flight_drop(halay_trainer_t *trainer, struct hly_flight *flight, int code, char *text)
{
    hly_trainer_verdict(trainer->data, code, text, HLY_TEXT_BYTES);
    hly_tensor_list_end(trainer, &flight->tensors, code, text);
    if (flight->slot >= 0)
        trainer->slots[flight->slot].used = 0;
}

/* The call could not be made: the last flight is none, and the order is lost. */
static void flight_fail(halay_trainer_t *trainer, int code)
{
    char text[HLY_TEXT_BYTES];
    flight_drop(trainer, &trainer->flights[--trainer->nflights], code, text);
    trainer->data_broken = code;
    hly_trainer_break(trainer, code, text);
}

/* For want of a fusion buffer. */
static void fused_fail(halay_trainer_t *trainer, const struct hly_list *tensors, int code)
{
    flight_take(trainer, HLY_FLIGHT_FUSED)->tensors = *tensors;
    flight_fail(trainer, code);
}

/* ------------------------------------------------------------------ one tensor */

/*
 * All ranks make the same call: in place if it is so on any, or scaled before. A rank of which that
 * is not true copies; one that was told of no other in place and is now so too.
 */
static int allreduce_start(halay_trainer_t *trainer, struct hly_tensor *tensor,
                           halay_request_t **request)
{
    size_t bytes = tensor->count * halay_type_bytes(tensor->type);
    int placed = tensor->placed || tensor->prescale != 1;
    const void *in = placed ? HALAY_IN_PLACE : tensor->in;
    if (tensor->prescale != 1) {
        halay_scale(tensor->out, tensor->in, tensor->count, tensor->type, tensor->prescale);
    } else if (placed && tensor->in != tensor->out && bytes) {
        memcpy(tensor->out, tensor->in, bytes);
    } else if (!placed && tensor->in == tensor->out && bytes) {
        assert(!tensor->result);
        if (!(tensor->result = malloc(bytes)))
            return HALAY_ENOMEM;
        in = memcpy(tensor->result, tensor->in, bytes);
    }
    return halay_iallreduce(in, tensor->out, tensor->count, tensor->type, tensor->op, trainer->data,
                            request);
}

/* All ranks know the same rows, so all come to the same counts, or to the same overflow. */
static int allgather_counts(halay_trainer_t *trainer, struct hly_tensor *tensor, size_t *bytes)
{
    size_t total = 0;
    for (int r = 0; r < trainer->nranks; r++) {
        if (__builtin_mul_overflow(tensor->rows[r], tensor->says.count, &trainer->counts[r]) ||
            __builtin_add_overflow(total, trainer->counts[r], &total))
            return HALAY_EINVAL;
    }
    tensor->result_count = total;
    if (__builtin_mul_overflow(total, halay_type_bytes(tensor->type), bytes) ||
        *bytes > PTRDIFF_MAX - 64)
        return HALAY_EINVAL;
    return 0;
}

/* Without memory the call is made all the same, without a buffer: it then fails on all ranks. */
static int allgather_start(halay_trainer_t *trainer, struct hly_tensor *tensor, size_t bytes,
                           halay_request_t **request)
{
    tensor->result = aligned_alloc(64, (bytes + 64) / 64 * 64);
    return halay_iallgatherv(tensor->in, tensor->result, trainer->counts, NULL, tensor->type,
                             trainer->data, request);
}

static int scatter_start(halay_trainer_t *trainer, struct hly_tensor *tensor,
                         halay_request_t **request)
{
    const void *in = tensor->in;
    for (int r = 0; r < trainer->nranks; r++)
        trainer->counts[r] = hly_tensor_share(trainer, &tensor->says, r);
    tensor->result_count = trainer->counts[trainer->rank];
    if (tensor->prescale != 1 && tensor->count) {
        if (!(tensor->result = malloc(tensor->count * halay_type_bytes(tensor->type))))
            return HALAY_ENOMEM;
        halay_scale(tensor->result, in, tensor->count, tensor->type, tensor->prescale);
        in = tensor->result;
    }
    return halay_ireduce_scatterv(in, tensor->out, trainer->counts, tensor->type, tensor->op,
                                  trainer->data, request);
}

/* ------------------------------------------------------------------ alltoalls */

/* What a call that goes before others has carried is known, or it was not made. */
static void voting_end(halay_trainer_t *trainer)
{
    assert(trainer->voting);
    trainer->voting = 0;
}

/* Each rank tells each other how many rows it has for it. Behind this comes the alltoall itself. */
static void deal_start(halay_trainer_t *trainer, struct hly_tensor *tensor)
{
    _Static_assert(sizeof(size_t) == sizeof(uint64_t), "rows are sent as they are");
    struct hly_flight *flight = flight_take(trainer, HLY_FLIGHT_DEAL);
    hly_tensor_list_push(&flight->tensors, tensor);
    trainer->counters.deals++;
    int rc = halay_ialltoall(tensor->rows + trainer->nranks, tensor->rows, 1, HALAY_UINT64,
                             trainer->data, &flight->request);
    trainer->voting = !rc;
    if (rc)
        flight_fail(trainer, rc);
}

static int deal_end(halay_trainer_t *trainer, struct hly_flight *flight)
{
    struct hly_tensor *tensor = hly_tensor_list_pop(&flight->tensors);
    voting_end(trainer);
    tensor->dealt = 1;
    hly_deal_keep(trainer, tensor);
    hly_tensor_list_push_first(&trainer->ready, tensor);
    return 1;
}

/*
 * What there is too much of, or no memory for, is called for all the same, without a buffer: it
 * then fails on all ranks.
 */
static int alltoall_start(halay_trainer_t *trainer, struct hly_tensor *tensor,
                          halay_request_t **request)
{
    size_t nranks = (size_t)trainer->nranks, row = tensor->says.count, total = 0, bytes;
    int over = 0;
    for (size_t r = 0; r < nranks; r++) {
        over |= __builtin_mul_overflow(tensor->rows[r], row, &trainer->counts[r]);
        over |= __builtin_add_overflow(total, trainer->counts[r], &total);
        trainer->counts[nranks + r] = tensor->rows[nranks + r] * row;
    }
    over |= __builtin_mul_overflow(total, halay_type_bytes(tensor->type), &bytes);
    tensor->result_count = total;
    if (!over && bytes <= PTRDIFF_MAX - 64)
        tensor->result = aligned_alloc(64, (bytes + 64) / 64 * 64);
    return halay_ialltoallv(tensor->in, trainer->counts + nranks, NULL, tensor->result,
                            trainer->counts, NULL, tensor->type, trainer->data, request);
}

/* ------------------------------------------------------------------ any one */

static void direct_start(halay_trainer_t *trainer, struct hly_tensor *tensor)
{
    int rc;
    size_t bytes = 0;
    tensor->start_ns = hly_trainer_now_ns();
    if (tensor->kind == HLY_KIND_BARRIER) { /* the vote was all of it */
        hly_tensor_done(trainer, tensor, 0, NULL);
        return;
    }
    if (tensor->kind == HLY_KIND_ALLTOALL && !tensor->dealt) {
        deal_start(trainer, tensor);
        return;
    }
    if (tensor->kind == HLY_KIND_ALLGATHER && allgather_counts(trainer, tensor, &bytes)) {
        hly_tensor_done(trainer, tensor, HALAY_EINVAL,
                        "the gathered rows exceed the address space");
        return;
    }
    struct hly_flight *flight = flight_take(trainer, HLY_FLIGHT_DIRECT);
    hly_tensor_list_push(&flight->tensors, tensor);
    trainer->counters.calls++;
    if (tensor->kind == HLY_KIND_ALLREDUCE)
        rc = allreduce_start(trainer, tensor, &flight->request);
    else if (tensor->kind == HLY_KIND_REDUCE_SCATTER)
        rc = scatter_start(trainer, tensor, &flight->request);
    else if (tensor->kind == HLY_KIND_ALLTOALL)
        rc = alltoall_start(trainer, tensor, &flight->request);
    else if (tensor->kind == HLY_KIND_BROADCAST)
        rc = halay_ibroadcast(tensor->out, tensor->count, tensor->type, tensor->root, trainer->data,
                              &flight->request);
    else
        rc = allgather_start(trainer, tensor, bytes, &flight->request);
    if (rc)
        flight_fail(trainer, rc);
}

static int direct_end(halay_trainer_t *trainer, struct hly_flight *flight)
{
    struct hly_tensor *tensor = hly_tensor_list_pop(&flight->tensors);
    size_t count = tensor->kind == HLY_KIND_REDUCE_SCATTER ? tensor->result_count : tensor->count;
    if (tensor->postscale != 1)
        halay_scale(tensor->out, tensor->out, count, tensor->type, tensor->postscale);
    hly_tensor_done(trainer, tensor, 0, NULL);
    return 1;
}

/* ------------------------------------------------------------------ fused */

static uint64_t tensors_started(struct hly_list *tensors, int slot)
{
    uint64_t now_ns = hly_trainer_now_ns();
    for (struct hly_tensor *tensor = tensors->head; tensor; tensor = tensor->next) {
        tensor->start_ns = now_ns;
        tensor->buffer = slot;
    }
    return now_ns;
}

/* says: of any of them. group: with marks, or NULL. Takes the tensors. */
static void fused_start(halay_trainer_t *trainer, const struct hly_announcement *says, size_t count,
                        const struct hly_group *group, struct hly_list *tensors, int slot)
{
    halay_type_t type = hly_announcement_type(says);
    halay_op_t op = hly_announcement_op(says);
    char *memory = trainer->slots[slot].memory;
    size_t marks = group ? hly_fuse_marks(trainer, type) : 0;
    struct hly_flight *flight = flight_take(trainer, HLY_FLIGHT_FUSED);
    flight->begin_ns = tensors_started(tensors, slot);
    hly_fuse_pack(trainer, memory, tensors);
    if (group)
        hly_fuse_mark(trainer, memory + count * halay_type_bytes(type), type, op, !tensors->head);
    flight->tensors = *tensors;
    flight->slot = slot;
    flight->count = count;
    flight->packed_ns = trainer->recording ? hly_trainer_now_ns() : 0;
    trainer->counters.calls++;
    trainer->counters.fused_calls++;
    int rc =
        halay_iallreduce(trainer->pair ? memory : HALAY_IN_PLACE, hly_fuse_result(trainer, slot),
                         count + marks, type, op, trainer->data, &flight->request);
    if (rc)
        flight_fail(trainer, rc);
}

static const struct hly_announcement *group_says(const halay_trainer_t *trainer,
                                                 const struct hly_group *group)
{
    return &trainer->replay.programme->script.items[group->first].says;
}

static size_t group_elements(const halay_trainer_t *trainer, const struct hly_group *group)
{
    size_t count = 0;
    for (uint32_t i = group->first; i < group->first + group->count; i++)
        count += trainer->replay.programme->script.items[i].says.count;
    return count;
}

/* Recorded before any is done: from then on the caller may use it again. */
static void fused_done(halay_trainer_t *trainer, struct hly_flight *flight, uint64_t reduced_ns)
{
    struct hly_tensor *tensor;
    uint64_t end_ns = trainer->recording ? hly_trainer_now_ns() : 0;
    trainer->listed = hly_timeline_fused(trainer, flight, reduced_ns, end_ns);
    trainer->end_ns = trainer->listed ? 0 : end_ns;
    while ((tensor = hly_tensor_list_pop(&flight->tensors)) != NULL) {
        trainer->counters.fused_tensors++;
        hly_tensor_done(trainer, tensor, 0, NULL);
    }
    trainer->end_ns = 0;
    trainer->listed = 0;
}

static int fused_end(halay_trainer_t *trainer, struct hly_flight *flight)
{
    int empty = 0;
    uint64_t reduced_ns = trainer->recording ? hly_trainer_now_ns() : 0;
    const struct hly_announcement *says =
        flight->group ? group_says(trainer, flight->group) : &flight->tensors.head->says;
    halay_type_t type = hly_announcement_type(says);
    const char *result = hly_fuse_result(trainer, flight->slot);
    if (flight->group) {
        const char *mark = result + flight->count * halay_type_bytes(type);
        empty = hly_fuse_marked(trainer, mark, type, hly_announcement_op(says));
    }
    assert(empty || flight->tensors.head);
    if (flight->group)
        hly_replay_result(trainer, flight, empty); /* takes the tensors of a void one back */
    hly_fuse_unpack(trainer, result, &flight->tensors);
    fused_done(trainer, flight, reduced_ns);
    trainer->slots[flight->slot].used = 0;
    return 1;
}

/* ------------------------------------------------------------------ votes */

/* Bits of a vote's word. */
#define VOID_BIT UINT64_C(1)
#define DEAL_BIT UINT64_C(2) /* of the first tensor, and so on: its rows are dealt out anew */
_Static_assert(HLY_VOTE_ITEMS < 63, "one bit each");

/* One word of all ranks; with allgathers each rank's word, and its rows. */
static void vote_start(halay_trainer_t *trainer, const struct hly_group *group,
                       struct hly_list *tensors)
{
    struct hly_flight *flight = flight_take(trainer, HLY_FLIGHT_VOTE);
    size_t words = group->rows ? 1 + (size_t)group->count : 1, at = 1;
    uint64_t *own = trainer->votes + (group->rows ? (size_t)trainer->rank * words : 0);
    memset(own, 0, words * sizeof(*own));
    own[0] = tensors->head ? 0 : VOID_BIT;
    for (const struct hly_tensor *t = tensors->head; t; t = t->next, at++) {
        if (t->kind == HLY_KIND_ALLTOALL && hly_deal_new(trainer, t))
            own[0] |= DEAL_BIT << (at - 1);
        if (group->rows)
            own[at] = t->says.rows;
    }
    flight->tensors = *tensors;
    flight->begin_ns = trainer->recording ? hly_trainer_now_ns() : 0;
    trainer->counters.votes++;
    int rc = group->rows ? halay_iallgather(HALAY_IN_PLACE, trainer->votes, words, HALAY_UINT64,
                                            trainer->data, &flight->request)
                         : halay_iallreduce(HALAY_IN_PLACE, own, 1, HALAY_UINT64, HALAY_BOR,
                                            trainer->data, &flight->request);
    trainer->voting = !rc;
    if (rc)
        flight_fail(trainer, rc);
}

static int vote_end(halay_trainer_t *trainer, struct hly_flight *flight)
{
    struct hly_tensor *tensor;
    const struct hly_group *group = flight->group;
    assert(group);
    size_t words = group->rows ? 1 + (size_t)group->count : 1, at = 1;
    int ranks = group->rows ? trainer->nranks : 1;
    uint64_t bits = 0;
    for (int r = 0; r < ranks; r++)
        bits |= trainer->votes[(size_t)r * words];
    int empty = (bits & VOID_BIT) != 0;
    assert(empty || flight->tensors.head);
    voting_end(trainer);
    hly_timeline_vote(trainer, flight);
    hly_replay_result(trainer, flight, empty);
    while (!empty && (tensor = hly_tensor_list_pop(&flight->tensors)) != NULL) {
        for (int r = 0; tensor->kind == HLY_KIND_ALLGATHER && r < ranks; r++)
            tensor->rows[r] = (size_t)trainer->votes[(size_t)r * words + at];
        tensor->voted = 1;
        if (tensor->kind == HLY_KIND_ALLTOALL && !(bits & DEAL_BIT << (at - 1)))
            hly_deal_recall(trainer, tensor);
        at++;
        tensor->bond = 0;
        hly_tensor_list_push(&trainer->ready, tensor);
    }
    return 1;
}

/* ------------------------------------------------------------------ what comes next */

void hly_group_start(halay_trainer_t *trainer, struct hly_group *group, uint64_t sequence,
                     struct hly_list *tensors)
{
    int slot = -1, before = trainer->nflights;
    if (!group->fused) {
        vote_start(trainer, group, tensors);
    } else {
        const struct hly_announcement *says = group_says(trainer, group);
        halay_type_t type = hly_announcement_type(says);
        size_t count = group_elements(trainer, group);
        size_t marks = hly_fuse_marks(trainer, type);
        int rc = hly_fuse_slot(trainer, (count + marks) * halay_type_bytes(type), &slot);
        assert(rc != HALAY_EAGAIN); /* hly_fuse_free */
        if (rc) {
            fused_fail(trainer, tensors, rc);
            return;
        }
        fused_start(trainer, says, count, group, tensors, slot);
    }
    if (trainer->nflights > before) {
        trainer->flights[before].group = group;
        trainer->flights[before].sequence = sequence;
        trainer->flights[before].start_ns = hly_trainer_now_ns();
    }
}

/* Returns 0 if it has to wait for a fusion buffer. */
static int bonded_start(halay_trainer_t *trainer)
{
    struct hly_list tensors = {NULL, NULL};
    const struct hly_tensor *first = trainer->ready.head;
    size_t count = 0;
    int slot = -1;
    for (const struct hly_tensor *t = first; t && t->bond == first->bond; t = t->next)
        count += t->count;
    int rc = hly_fuse_slot(trainer, count * halay_type_bytes(first->type), &slot);
    if (rc == HALAY_EAGAIN)
        return 0;
    for (uint64_t bond = first->bond; trainer->ready.head && trainer->ready.head->bond == bond;)
        hly_tensor_list_push(&tensors, hly_tensor_list_pop(&trainer->ready));
    if (rc) {
        fused_fail(trainer, &tensors, rc);
        return 0;
    }
    fused_start(trainer, &tensors.head->says, count, NULL, &tensors, slot);
    return 1;
}

/* Returns 0 if nothing can be started now. */
static int next_start(halay_trainer_t *trainer)
{
    if (trainer->nflights == HLY_FLIGHTS || trainer->voting)
        return 0;
    if (trainer->data_broken) {
        hly_tensor_list_end(trainer, &trainer->ready, trainer->data_broken,
                            "an earlier operation could not be started on this rank");
        return 0;
    }
    if (!trainer->ready.head)
        return hly_fuse_free(trainer) && hly_replay_next(trainer);
    if (trainer->ready.head->bond)
        return bonded_start(trainer);
    direct_start(trainer, hly_tensor_list_pop(&trainer->ready));
    return 1;
}

void hly_fresh_bond(halay_trainer_t *trainer)
{
    struct hly_tensor *first, *next;
    uint64_t now_ns = trainer->recording ? hly_trainer_now_ns() : 0;
    for (first = trainer->fresh.head; first; first = first->next)
        first->ready_ns = now_ns;
    while ((first = hly_tensor_list_pop(&trainer->fresh)) != NULL) {
        size_t left = first->says.count, bytes = halay_type_bytes(first->type);
        first->bond = 0;
        hly_tensor_list_push(&trainer->ready, first);
        if (!hly_fuse_takes(trainer, &first->says))
            continue;
        left = trainer->slot_bytes / bytes - left;
        for (struct hly_tensor *t = trainer->fresh.head; t; t = next) {
            next = t->next;
            if (!hly_fuse_alike(&first->says, &t->says))
                continue;
            if (t->says.count > left)
                break;
            left -= t->says.count;
            if (!first->bond)
                first->bond = ++trainer->bonds;
            t->bond = first->bond;
            hly_tensor_list_remove(&trainer->fresh, t);
            hly_tensor_list_push(&trainer->ready, t);
        }
    }
}

/* ------------------------------------------------------------------ results */

/* An error of a programme's group is all ranks' error, and the end: the positions are lost. */
static void flight_error(halay_trainer_t *trainer, struct hly_flight *flight, int code)
{
    char text[HLY_TEXT_BYTES];
    flight_drop(trainer, flight, code, text);
    if (flight->kind == HLY_FLIGHT_VOTE || flight->kind == HLY_FLIGHT_DEAL)
        voting_end(trainer);
    if (flight->group)
        hly_trainer_break(trainer, code, text);
}

/* Returns 1 if it is over. Results of a programme are taken in its order. */
static int flight_test(halay_trainer_t *trainer, struct hly_flight *flight)
{
    if (flight->group && !trainer->broken && flight->sequence != trainer->replay.results)
        return 0;
    int rc = halay_request_test(flight->request);
    if (rc == HALAY_INPROGRESS)
        return 0;
    if (!rc && trainer->broken && flight->group) /* behind one that was not good */
        rc = trainer->broken;
    if (rc) {
        flight_error(trainer, flight, rc);
        return 1;
    }
    switch (flight->kind) {
    case HLY_FLIGHT_FUSED:
        return fused_end(trainer, flight);
    case HLY_FLIGHT_VOTE:
        return vote_end(trainer, flight);
    case HLY_FLIGHT_DEAL:
        return deal_end(trainer, flight);
    default:
        return direct_end(trainer, flight);
    }
}

void hly_flights_step(halay_trainer_t *trainer)
{
    int over;
    trainer->replay.check_ns = trainer->replay.quiet = 0;
    do {
        while (next_start(trainer))
            ;
        int kept = 0, tested = trainer->nflights;
        for (int i = 0; i < tested; i++) {
            if (!flight_test(trainer, &trainer->flights[i]))
                trainer->flights[kept++] = trainer->flights[i];
        }
        trainer->nflights = kept;
        over = tested - kept;
    } while (over);
}
