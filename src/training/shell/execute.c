/* SPDX-License-Identifier: Apache-2.0 */
/*
 * execute.c - the calls on the data communicator. What rounds have made ready runs first, in the
 * order in which it became ready, then the groups of the programme; both orders are the same on all
 * ranks, so the k-th call is the same on all. After a vote nothing is started before its result is
 * known, as that decides what comes next. A call that cannot be started here would shift the order:
 * then no later one is started.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../core/replay.h"
#include "../core/tune.h"
#include "trainer.h"

static struct hlt_call *call_take(halay_trainer_t *trainer, enum hlt_call_kind kind)
{
    assert(trainer->calls.count < HLT_CALLS);
    struct hlt_call *call = &trainer->calls.at[trainer->calls.count++];
    *call = (struct hlt_call){.kind = kind, .buffer = -1};
    return call;
}

/* All ranks see the same code, so all end the same tensors. text has HLT_TEXT_BYTES. */
static void call_drop(halay_trainer_t *trainer, struct hlt_call *call, int code, char *text)
{
    hlt_trainer_verdict(trainer->data, code, text, HLT_TEXT_BYTES);
    hlt_tensors_fail(trainer, &call->tensors, code, text);
    if (call->buffer >= 0)
        trainer->fusion.buffers[call->buffer].used = 0;
}

/* The last call could not be made, so it is taken off. The order of calls is lost, and the others
 * are told in its place. */
static void call_fail(halay_trainer_t *trainer, int code)
{
    char text[HLT_TEXT_BYTES];
    call_drop(trainer, &trainer->calls.at[--trainer->calls.count], code, text);
    trainer->calls.broken = code;
    hlt_core_leave_all(&trainer->core, code, text);
}

/* ------------------------------------------------------------------ moves that follow a call */

/* Returns 1 if the call is over. A programme's results are taken in its order. */
static int call_test(halay_trainer_t *trainer, struct hlt_call *call);

/* The mark of the moves that are now started. call_test() goes on when they have ended. */
static halay_mark_t *moves_follow(halay_trainer_t *trainer, struct hlt_call *call,
                                  enum hlt_phase phase)
{
    int i = __builtin_ctz(~trainer->calls.moving);
    trainer->calls.moving |= UINT32_C(1) << i;
    call->phase = phase;
    call->moves = &trainer->calls.moves[i];
    return call->moves;
}

static int moves_test(halay_trainer_t *trainer, struct hlt_call *call)
{
    int rc = call->code ? call->code : halay_local_marked(trainer->context, call->moves, 0);
    if (rc == HALAY_INPROGRESS)
        return rc;
    halay_local_unmark(trainer->context, call->moves);
    trainer->calls.moving &= ~(UINT32_C(1) << (call->moves - trainer->calls.moves));
    call->moves = NULL;
    return rc;
}

/* ------------------------------------------------------------------ calls that fail */

/* There is no memory for a fusion buffer. */
static void fused_fail(halay_trainer_t *trainer, const struct hlt_list *tensors, int code)
{
    call_take(trainer, HLT_CALL_FUSED)->tensors = *tensors;
    call_fail(trainer, code);
}

/* ------------------------------------------------------------------ one tensor */

/* This rank cannot make the call. Then it fails on all ranks, and they need not wait. */
static int call_refuse(const halay_trainer_t *trainer, int code, halay_request_t **request)
{
    static const char memory[] = "there is no memory for a tensor's result";
    static const char device[] = "the device has failed before a tensor's call";
    static const char freed[] = "a tensor's memory is not the device's now: was it freed?";
    return halay_local_refuse(trainer->data, code,
                              code == HALAY_ENOMEM   ? memory
                              : code == HALAY_EINVAL ? freed
                                                     : device,
                              request);
}

/* The code of what has failed in a stream that a tensor waited for. */
static int unready(const struct hlt_list *tensors)
{
    const struct hlt_tensor *tensor = tensors->head;
    while (tensor && !tensor->unready)
        tensor = tensor->next;
    return tensor ? tensor->unready : 0;
}

/*
 * All ranks make the same call: in place if any rank is, or if the input is scaled. A rank that is
 * not in place copies its input then. A rank that is, where the call is not, copies too.
 */
static int allreduce_start(halay_trainer_t *trainer, struct hlt_tensor *tensor,
                           halay_request_t **request)
{
    size_t bytes = tensor->count * halay_type_bytes(tensor->type);
    int in_place = tensor->in_place || tensor->prescale != 1, rc = tensor->unready;
    const void *in = in_place ? HALAY_IN_PLACE : tensor->in;
    if (rc) {
        ; /* nothing of it is read */
    } else if (in_place) {
        rc = hlt_memory_move(trainer, tensor->memory, tensor->out, tensor->in, tensor->count,
                             tensor->type, tensor->prescale, NULL);
    } else if (tensor->in == tensor->out && bytes) {
        assert(!tensor->result);
        if (!(tensor->result = hlt_memory_alloc(trainer, tensor->memory, bytes)))
            return HALAY_ENOMEM;
        rc = hlt_memory_move(trainer, tensor->memory, tensor->result, tensor->in, tensor->count,
                             tensor->type, 1, NULL);
        in = tensor->result;
    }
    if (rc)
        return call_refuse(trainer, rc, request);
    return halay_iallreduce(in, tensor->out, tensor->count, tensor->type, tensor->op, trainer->data,
                            request);
}

/* All ranks know the same rows, so all compute the same counts, or the same overflow. */
static int allgather_counts(halay_trainer_t *trainer, struct hlt_tensor *tensor, size_t *bytes)
{
    size_t total = 0;
    for (int r = 0; r < trainer->core.nranks; r++) {
        if (__builtin_mul_overflow(tensor->rows[r], tensor->says.count,
                                   &trainer->calls.counts[r]) ||
            __builtin_add_overflow(total, trainer->calls.counts[r], &total))
            return HALAY_EINVAL;
    }
    tensor->result_count = total;
    if (__builtin_mul_overflow(total, halay_type_bytes(tensor->type), bytes) ||
        *bytes > PTRDIFF_MAX - 64)
        return HALAY_EINVAL;
    return 0;
}

static int allgather_start(halay_trainer_t *trainer, struct hlt_tensor *tensor, size_t bytes,
                           halay_request_t **request)
{
    tensor->result = hlt_memory_alloc(trainer, tensor->memory, bytes);
    const void *in = tensor->count ? tensor->in : tensor->result;
    if (tensor->unready || (bytes && !tensor->result))
        return call_refuse(trainer, tensor->unready ? tensor->unready : HALAY_ENOMEM, request);
    return halay_iallgatherv(in, tensor->result, trainer->calls.counts, NULL, tensor->type,
                             trainer->data, request);
}

static int scatter_start(halay_trainer_t *trainer, struct hlt_tensor *tensor,
                         halay_request_t **request)
{
    const void *in = tensor->in;
    int rc = tensor->unready;
    for (int r = 0; r < trainer->core.nranks; r++)
        trainer->calls.counts[r] = hlt_announcement_share(trainer->core.nranks, &tensor->says, r);
    tensor->result_count = trainer->calls.counts[trainer->core.rank];
    if (!rc && tensor->prescale != 1 && tensor->count) {
        size_t bytes = tensor->count * halay_type_bytes(tensor->type);
        if (!(tensor->result = hlt_memory_alloc(trainer, tensor->memory, bytes)))
            return HALAY_ENOMEM;
        rc = hlt_memory_move(trainer, tensor->memory, tensor->result, in, tensor->count,
                             tensor->type, tensor->prescale, NULL);
        in = tensor->result;
    }
    if (rc)
        return call_refuse(trainer, rc, request);
    return halay_ireduce_scatterv(in, tensor->out, trainer->calls.counts, tensor->type, tensor->op,
                                  trainer->data, request);
}

/* ------------------------------------------------------------------ alltoalls */

/* A vote or an exchange is over, or could not be made. */
static void voting_end(halay_trainer_t *trainer)
{
    assert(trainer->calls.voting);
    trainer->calls.voting = 0;
}

/* Each rank tells each other how many rows it has for it. The alltoall itself comes next. */
static void exchange_start(halay_trainer_t *trainer, struct hlt_tensor *tensor)
{
    _Static_assert(sizeof(size_t) == sizeof(uint64_t), "rows are sent as they are");
    struct hlt_call *call = call_take(trainer, HLT_CALL_EXCHANGE);
    hlt_tensor_list_push(&call->tensors, tensor);
    trainer->core.counters.deals++;
    int rc = halay_ialltoall(tensor->rows + trainer->core.nranks, tensor->rows, 1, HALAY_UINT64,
                             trainer->data, &call->request);
    trainer->calls.voting = !rc;
    if (rc)
        call_fail(trainer, rc);
}

static int exchange_end(halay_trainer_t *trainer, struct hlt_call *call)
{
    struct hlt_tensor *tensor = hlt_tensor_list_pop(&call->tensors);
    voting_end(trainer);
    tensor->exchanged = 1;
    hlt_exchange_keep(trainer, tensor);
    hlt_tensor_list_push_first(&trainer->core.ready, tensor);
    return 1;
}

static int alltoall_start(halay_trainer_t *trainer, struct hlt_tensor *tensor,
                          halay_request_t **request)
{
    size_t nranks = (size_t)trainer->core.nranks, row = tensor->says.count, total = 0, bytes;
    int over = 0;
    for (size_t r = 0; r < nranks; r++) {
        over |= __builtin_mul_overflow(tensor->rows[r], row, &trainer->calls.counts[r]);
        over |= __builtin_add_overflow(total, trainer->calls.counts[r], &total);
        trainer->calls.counts[nranks + r] = tensor->rows[nranks + r] * row;
    }
    over |= __builtin_mul_overflow(total, halay_type_bytes(tensor->type), &bytes);
    tensor->result_count = total;
    over |= bytes > PTRDIFF_MAX - 64;
    if (!over)
        tensor->result = hlt_memory_alloc(trainer, tensor->memory, bytes);
    if (over)
        return halay_local_refuse(trainer->data, HALAY_EINVAL,
                                  "a tensor's result is larger than the address space", request);
    if (tensor->unready || (bytes && !tensor->result))
        return call_refuse(trainer, tensor->unready ? tensor->unready : HALAY_ENOMEM, request);
    const void *in = tensor->count ? tensor->in : tensor->result;
    return halay_ialltoallv(in, trainer->calls.counts + nranks, NULL, tensor->result,
                            trainer->calls.counts, NULL, tensor->type, trainer->data, request);
}

/* ------------------------------------------------------------------ any one */

static void direct_start(halay_trainer_t *trainer, struct hlt_tensor *tensor)
{
    int rc;
    size_t bytes = 0;
    tensor->start_ns = hlt_trainer_now_ns();
    if (tensor->kind == HLT_KIND_BARRIER) { /* the vote was the barrier */
        hlt_tensor_done(trainer, tensor, 0, NULL);
        return;
    }
    if (tensor->kind == HLT_KIND_ALLTOALL && !tensor->exchanged) {
        exchange_start(trainer, tensor);
        return;
    }
    if (tensor->kind == HLT_KIND_ALLGATHER && allgather_counts(trainer, tensor, &bytes)) {
        hlt_tensor_done(trainer, tensor, HALAY_EINVAL,
                        "the gathered rows exceed the address space");
        return;
    }
    struct hlt_call *call = call_take(trainer, HLT_CALL_DIRECT);
    hlt_tensor_list_push(&call->tensors, tensor);
    trainer->core.counters.calls++;
    if (tensor->kind == HLT_KIND_ALLREDUCE)
        rc = allreduce_start(trainer, tensor, &call->request);
    else if (tensor->kind == HLT_KIND_REDUCE_SCATTER)
        rc = scatter_start(trainer, tensor, &call->request);
    else if (tensor->kind == HLT_KIND_ALLTOALL)
        rc = alltoall_start(trainer, tensor, &call->request);
    else if (tensor->kind == HLT_KIND_BROADCAST)
        rc = tensor->unready ? call_refuse(trainer, tensor->unready, &call->request)
                             : halay_ibroadcast(tensor->out, tensor->count, tensor->type,
                                                tensor->root, trainer->data, &call->request);
    else
        rc = allgather_start(trainer, tensor, bytes, &call->request);
    if (rc)
        call_fail(trainer, rc);
}

static int direct_done(halay_trainer_t *trainer, struct hlt_call *call, int code)
{
    hlt_tensor_done(trainer, hlt_tensor_list_pop(&call->tensors), code,
                    code ? "the device could not scale the result" : NULL);
    return 1;
}

static int direct_end(halay_trainer_t *trainer, struct hlt_call *call)
{
    const struct hlt_tensor *tensor = call->tensors.head;
    size_t count = tensor->kind == HLT_KIND_REDUCE_SCATTER ? tensor->result_count : tensor->count;
    halay_mark_t *mark = tensor->memory && tensor->postscale != 1
                             ? moves_follow(trainer, call, HLT_PHASE_RESULT)
                             : NULL;
    call->code = hlt_memory_move(trainer, tensor->memory, tensor->out, tensor->out, count,
                                 tensor->type, tensor->postscale, mark);
    return mark ? call_test(trainer, call) : direct_done(trainer, call, call->code);
}

/* ------------------------------------------------------------------ fused */

static uint64_t tensors_started(struct hlt_list *tensors, int buffer)
{
    uint64_t now_ns = hlt_trainer_now_ns();
    for (struct hlt_tensor *tensor = tensors->head; tensor; tensor = tensor->next) {
        tensor->start_ns = now_ns;
        tensor->buffer = buffer;
    }
    return now_ns;
}

/* Takes the tensors. says: of any of them. With a group there are marks after them. */
static void fused_start(halay_trainer_t *trainer, const struct hlt_announcement *says, size_t count,
                        const struct hlt_group *group, struct hlt_list *tensors, int buffer)
{
    halay_type_t type = hlt_announcement_type(says);
    halay_op_t op = hlt_announcement_op(says);
    uint32_t kind = trainer->fusion.buffers[buffer].kind;
    char *memory = trainer->fusion.buffers[buffer].memory;
    size_t marks = group ? hlt_fuse_marks(trainer->core.nranks, type) : 0,
           bytes = halay_type_bytes(type);
    struct hlt_call *call = call_take(trainer, HLT_CALL_FUSED);
    call->begin_ns = tensors_started(tensors, buffer);
    int rc = unready(tensors);
    rc = rc ? rc : hlt_fuse_copy(trainer, kind, memory, tensors, 1, NULL);
    char *mark = kind ? trainer->fusion.buffers[buffer].marks : memory + count * bytes;
    if (group)
        hlt_fuse_mark(trainer, mark, type, op, !tensors->head);
    if (group && kind && !rc)
        rc = hlt_memory_carry(trainer, kind, memory + count * bytes, mark, marks * bytes,
                              HALAY_FROM_HOST, NULL);
    call->tensors = *tensors;
    call->buffer = buffer;
    call->count = count;
    call->packed_ns = trainer->recording.on ? hlt_trainer_now_ns() : 0;
    trainer->core.counters.calls++;
    trainer->core.counters.fused_calls++;
    rc = rc ? call_refuse(trainer, rc, &call->request)
            : halay_iallreduce(HALAY_IN_PLACE, memory, count + marks, type, op, trainer->data,
                               &call->request);
    if (rc)
        call_fail(trainer, rc);
}

static const struct hlt_announcement *group_says(const halay_trainer_t *trainer,
                                                 const struct hlt_group *group)
{
    return &trainer->core.replay.programme->script.items[group->first].says;
}

static size_t group_elements(const halay_trainer_t *trainer, const struct hlt_group *group)
{
    size_t count = 0;
    for (uint32_t i = group->first; i < group->first + group->count; i++)
        count += trainer->core.replay.programme->script.items[i].says.count;
    return count;
}

/* The timeline comes first: once a tensor is done its caller may release it. */
static int fused_done(halay_trainer_t *trainer, struct hlt_call *call, int code)
{
    struct hlt_tensor *tensor;
    uint64_t end_ns = trainer->recording.on ? hlt_trainer_now_ns() : 0;
    trainer->recording.listed = hlt_timeline_fused(trainer, call, end_ns);
    trainer->recording.end_ns = trainer->recording.listed ? 0 : end_ns;
    while ((tensor = hlt_tensor_list_pop(&call->tensors)) != NULL) {
        trainer->core.counters.fused_tensors++;
        hlt_tensor_done(trainer, tensor, code,
                        code ? "the device could not take the result out of the group" : NULL);
    }
    trainer->recording.end_ns = 0;
    trainer->recording.listed = 0;
    trainer->fusion.buffers[call->buffer].used = 0;
    return 1;
}

/* Nobody can tell here whether a rank was void, so this rank cannot go on with the others, and
 * tells them so. */
static int group_leave(halay_trainer_t *trainer, struct hlt_call *call, int code, const char *text)
{
    hlt_tensors_fail(trainer, &call->tensors, code, text);
    if (call->buffer >= 0)
        trainer->fusion.buffers[call->buffer].used = 0;
    hlt_core_leave_all(&trainer->core, code, text);
    return 1;
}

/* What has come of a group denies what this rank has said itself. */
static int group_nonsense(halay_trainer_t *trainer, struct hlt_call *call)
{
    return group_leave(trainer, call, HALAY_EINTERNAL,
                       "what came of the ranks' votes on a group denies what this rank has said: a "
                       "rank's memory is corrupt, or it is another build of Halay");
}

/* The call is over, and no rank was void. */
static int fused_take(halay_trainer_t *trainer, struct hlt_call *call)
{
    const struct hlt_buffer *buffer = &trainer->fusion.buffers[call->buffer];
    if (!buffer->kind)
        return fused_done(trainer, call,
                          hlt_fuse_copy(trainer, 0, buffer->memory, &call->tensors, 0, NULL));
    call->group = NULL; /* the programme may end meanwhile */
    call->code = hlt_fuse_copy(trainer, buffer->kind, buffer->memory, &call->tensors, 0,
                               moves_follow(trainer, call, HLT_PHASE_RESULT));
    return call_test(trainer, call);
}

/* The processor sees the group's mark, at this place. */
static int group_end(halay_trainer_t *trainer, struct hlt_call *call, const char *mark)
{
    assert(call->group);
    const struct hlt_announcement *says = group_says(trainer, call->group);
    int empty =
        hlt_fuse_marked(trainer, mark, hlt_announcement_type(says), hlt_announcement_op(says));
    if (!empty && !call->tensors.head)
        return group_nonsense(trainer, call);
    hlt_replay_result(&trainer->core, &call->tensors, empty); /* takes a void group's back */
    return fused_take(trainer, call);
}

static int fused_end(halay_trainer_t *trainer, struct hlt_call *call)
{
    const struct hlt_buffer *buffer = &trainer->fusion.buffers[call->buffer];
    call->reduced_ns = trainer->recording.on ? hlt_trainer_now_ns() : 0;
    if (!call->group)
        return fused_take(trainer, call);
    halay_type_t type = hlt_announcement_type(group_says(trainer, call->group));
    size_t bytes = halay_type_bytes(type);
    char *mark = buffer->memory + call->count * bytes;
    if (!buffer->kind)
        return group_end(trainer, call, mark);
    call->code = hlt_memory_carry(trainer, buffer->kind, buffer->marks, mark,
                                  hlt_fuse_marks(trainer->core.nranks, type) * bytes, HALAY_TO_HOST,
                                  moves_follow(trainer, call, HLT_PHASE_MARK));
    return call_test(trainer, call);
}

/* ------------------------------------------------------------------ votes */

/* A vote's word: this rank is void, and a bit for each tensor from EXCHANGE_BIT up. */
#define VOID_BIT     UINT64_C(1)
#define EXCHANGE_BIT UINT64_C(2) /* the tensor's rows have changed: an exchange goes before it */
_Static_assert(HLT_VOTE_ITEMS < 63, "one bit each");

/* The vote is one word, reduced. With allgathers it is each rank's word and rows, gathered. */
static void vote_start(halay_trainer_t *trainer, const struct hlt_group *group,
                       struct hlt_list *tensors)
{
    struct hlt_call *call = call_take(trainer, HLT_CALL_VOTE);
    size_t words = group->rows ? 1 + (size_t)group->count : 1, at = 1;
    uint64_t *own = trainer->calls.votes + (group->rows ? (size_t)trainer->core.rank * words : 0);
    memset(own, 0, words * sizeof(*own));
    own[0] = tensors->head ? 0 : VOID_BIT;
    for (const struct hlt_tensor *t = tensors->head; t; t = t->next, at++) {
        if (t->kind == HLT_KIND_ALLTOALL && hlt_exchange_needed(trainer, t))
            own[0] |= EXCHANGE_BIT << (at - 1);
        if (group->rows)
            own[at] = t->says.rows;
    }
    call->tensors = *tensors;
    call->begin_ns = trainer->recording.on ? hlt_trainer_now_ns() : 0;
    trainer->core.counters.votes++;
    int rc = group->rows ? halay_iallgather(HALAY_IN_PLACE, trainer->calls.votes, words,
                                            HALAY_UINT64, trainer->data, &call->request)
                         : halay_iallreduce(HALAY_IN_PLACE, own, 1, HALAY_UINT64, HALAY_BOR,
                                            trainer->data, &call->request);
    trainer->calls.voting = !rc;
    if (rc)
        call_fail(trainer, rc);
}

/* Are this rank's own bits among them? */
static int vote_fits(const halay_trainer_t *trainer, const struct hlt_list *tensors, uint64_t bits)
{
    uint64_t bit = EXCHANGE_BIT;
    for (const struct hlt_tensor *t = tensors->head; t; t = t->next, bit <<= 1)
        if (t->kind == HLT_KIND_ALLTOALL && !(bits & bit) && hlt_exchange_needed(trainer, t))
            return 0;
    return tensors->head != NULL;
}

static int vote_end(halay_trainer_t *trainer, struct hlt_call *call)
{
    struct hlt_tensor *tensor;
    const struct hlt_group *group = call->group;
    assert(group);
    size_t words = group->rows ? 1 + (size_t)group->count : 1, at = 1;
    int ranks = group->rows ? trainer->core.nranks : 1;
    uint64_t bits = 0;
    for (int r = 0; r < ranks; r++)
        bits |= trainer->calls.votes[(size_t)r * words];
    int empty = (bits & VOID_BIT) != 0;
    voting_end(trainer);
    if (!empty && !vote_fits(trainer, &call->tensors, bits))
        return group_nonsense(trainer, call);
    hlt_timeline_vote(trainer, call);
    hlt_replay_result(&trainer->core, &call->tensors, empty);
    while (!empty && (tensor = hlt_tensor_list_pop(&call->tensors)) != NULL) {
        for (int r = 0; tensor->kind == HLT_KIND_ALLGATHER && r < ranks; r++)
            tensor->rows[r] = (size_t)trainer->calls.votes[(size_t)r * words + at];
        tensor->voted = 1;
        if (tensor->kind == HLT_KIND_ALLTOALL && !(bits & EXCHANGE_BIT << (at - 1)))
            hlt_exchange_recall(trainer, tensor);
        at++;
        tensor->fusion = 0;
        hlt_tensor_list_push(&trainer->core.ready, tensor);
    }
    return 1;
}

/* ------------------------------------------------------------------ autotuning */

static void tune_start(halay_trainer_t *trainer)
{
    size_t nwords;
    hlt_tune_recall(&trainer->core);
    double *words = hlt_tune_words(&trainer->core, &nwords);
    struct hlt_call *call = call_take(trainer, HLT_CALL_TUNE);
    call->start_ns = hlt_trainer_now_ns();
    int rc = halay_iallreduce(HALAY_IN_PLACE, words, nwords, HALAY_FLOAT64, HALAY_MAX,
                              trainer->data, &call->request);
    trainer->calls.voting = !rc;
    if (rc)
        call_fail(trainer, rc);
}

static int tune_end(halay_trainer_t *trainer)
{
    voting_end(trainer);
    trainer->core.now_ns = hlt_trainer_now_ns();
    hlt_replay_tuned(&trainer->core);
    hlt_tune_speak(&trainer->core);
    return 1;
}

/* ------------------------------------------------------------------ what comes next */

/* Starts a group of a programme. Without tensors this rank is void. */
static void group_start(halay_trainer_t *trainer, struct hlt_launch *launch)
{
    struct hlt_group *group = launch->group;
    int buffer = -1, before = trainer->calls.count;
    if (!group->fused) {
        vote_start(trainer, group, &launch->tensors);
    } else {
        const struct hlt_announcement *says = group_says(trainer, group);
        halay_type_t type = hlt_announcement_type(says);
        size_t count = group_elements(trainer, group);
        size_t marks = hlt_fuse_marks(trainer->core.nranks, type);
        int rc = hlt_fuse_buffer(trainer, hlt_announcement_memory(says),
                                 (count + marks) * halay_type_bytes(type), &buffer);
        assert(rc != HALAY_EAGAIN); /* hlt_fuse_free() has said so */
        if (rc) {
            fused_fail(trainer, &launch->tensors, rc);
            return;
        }
        fused_start(trainer, says, count, group, &launch->tensors, buffer);
    }
    if (trainer->calls.count > before) {
        trainer->calls.at[before].group = group;
        trainer->calls.at[before].sequence = launch->sequence;
        trainer->calls.at[before].start_ns = hlt_trainer_now_ns();
    }
}

/* Does a caller wait for a tensor of the pool? */
static int pool_wanted(halay_trainer_t *trainer)
{
    int wanted = 0;
    pthread_mutex_lock(&trainer->mutex);
    for (const struct hlt_tensor *t = trainer->core.pool.head; t && !wanted; t = t->next)
        wanted = t->wanted;
    if (!wanted)
        trainer->callers.polled = 0;
    pthread_mutex_unlock(&trainer->mutex);
    return wanted;
}

/* Tensors of the next group are missing here. Must it go out all the same? */
static int must_void(halay_trainer_t *trainer)
{
    struct hlt_core *core = &trainer->core;
    int called = 0;
    struct hlt_seen seen = {.behind = trainer->behinds.list.head != NULL,
                            .expecting = trainer->steps.expecting};
    core->now_ns = hlt_trainer_now_ns();
    if (core->pool.head) {
        seen.over = !halay_comm_called(trainer->data, &called) && called == 2;
        seen.wanted = trainer->steps.wanting && !seen.behind && pool_wanted(trainer);
    }
    return hlt_replay_must_void(core, &seen);
}

/* Starts the next group of the replay if it is time; returns 1 if it did. */
static int replay_start(halay_trainer_t *trainer)
{
    struct hlt_core *core = &trainer->core;
    struct hlt_launch launch;
    enum hlt_next next;
    int empty = 0;
    if (core->autotune.steps)
        core->now_ns = hlt_trainer_now_ns();
    while ((next = hlt_replay_next(core, empty, &launch)) == HLT_NEXT_MISSING)
        if (!(empty = must_void(trainer)))
            break;
    hlt_tune_speak(core);
    if (next == HLT_NEXT_REDUCE)
        tune_start(trainer);
    if (next != HLT_NEXT_GROUP)
        return 0;
    if (launch.begins)
        hlt_timeline_cycle(trainer);
    group_start(trainer, &launch);
    return 1;
}

/* Returns 0 if it has to wait for a fusion buffer. */
static int fusion_start(halay_trainer_t *trainer)
{
    struct hlt_list tensors = {NULL, NULL};
    const struct hlt_tensor *first = trainer->core.ready.head;
    size_t count = 0;
    int buffer = -1;
    for (const struct hlt_tensor *t = first; t && t->fusion == first->fusion; t = t->next)
        count += t->count;
    int rc =
        hlt_fuse_buffer(trainer, first->memory, count * halay_type_bytes(first->type), &buffer);
    if (rc == HALAY_EAGAIN)
        return 0;
    for (uint64_t fusion = first->fusion;
         trainer->core.ready.head && trainer->core.ready.head->fusion == fusion;)
        hlt_tensor_list_push(&tensors, hlt_tensor_list_pop(&trainer->core.ready));
    if (rc) {
        fused_fail(trainer, &tensors, rc);
        return 0;
    }
    fused_start(trainer, &tensors.head->says, count, NULL, &tensors, buffer);
    return 1;
}

/* Fails on all ranks, with the reason: they need not wait for this one. */
static int farewell(halay_trainer_t *trainer)
{
    struct hlt_call *call = call_take(trainer, HLT_CALL_FAREWELL);
    trainer->core.farewell &= ~HLT_FAREWELL_DATA;
    trainer->calls.broken = trainer->core.broken;
    int rc = halay_local_refuse(trainer->data, trainer->core.broken, trainer->core.broken_text,
                                &call->request);
    if (rc)
        trainer->calls.count--;
    return !rc;
}

/* Returns 0 if nothing can be started now. */
static int next_start(halay_trainer_t *trainer)
{
    if (trainer->calls.count == HLT_CALLS || trainer->calls.voting)
        return 0;
    if (trainer->core.farewell & HLT_FAREWELL_DATA)
        return farewell(trainer);
    if (trainer->calls.broken) {
        hlt_tensors_fail(trainer, &trainer->core.ready, trainer->calls.broken,
                         "an earlier operation could not be started on this rank");
        return hlt_is_awaited(trainer, trainer->data) && farewell(trainer);
    }
    if (!trainer->core.ready.head && hlt_is_awaited(trainer, trainer->data))
        return farewell(trainer);
    if (!trainer->core.ready.head)
        return hlt_fuse_free(trainer) && replay_start(trainer);
    if (trainer->core.ready.head->fusion)
        return fusion_start(trainer);
    direct_start(trainer, hlt_tensor_list_pop(&trainer->core.ready));
    return 1;
}

/* ------------------------------------------------------------------ results */

/*
 * An error of a programme's group is the error of all ranks. It ends the trainer, for no rank knows
 * any more where the others are.
 */
static void call_error(halay_trainer_t *trainer, struct hlt_call *call, int code)
{
    char text[HLT_TEXT_BYTES];
    call_drop(trainer, call, code, text);
    if (call->kind == HLT_CALL_VOTE || call->kind == HLT_CALL_EXCHANGE ||
        call->kind == HLT_CALL_TUNE)
        voting_end(trainer);
    if (call->group || call->kind == HLT_CALL_TUNE)
        hlt_core_break(&trainer->core, code, text);
}

static int call_test(halay_trainer_t *trainer, struct hlt_call *call)
{
    if (call->group && !trainer->core.broken && call->sequence != trainer->core.replay.results)
        return 0;
    int rc = call->moves ? moves_test(trainer, call) : halay_request_test(call->request);
    if (rc == HALAY_INPROGRESS)
        return 0;
    if (call->phase == HLT_PHASE_RESULT)
        return call->kind == HLT_CALL_FUSED ? fused_done(trainer, call, rc)
                                            : direct_done(trainer, call, rc);
    if (rc && call->phase == HLT_PHASE_MARK)
        return group_leave(trainer, call, rc,
                           "the device could not copy a group's mark to the host");
    if (!rc && trainer->core.broken && call->group) /* an earlier group has failed */
        rc = trainer->core.broken;
    if (rc) {
        call_error(trainer, call, rc);
        return 1;
    }
    if (call->phase == HLT_PHASE_MARK)
        return group_end(trainer, call, trainer->fusion.buffers[call->buffer].marks);
    switch (call->kind) {
    case HLT_CALL_FAREWELL: /* it cannot have gone well */
        return 1;
    case HLT_CALL_FUSED:
        return fused_end(trainer, call);
    case HLT_CALL_VOTE:
        return vote_end(trainer, call);
    case HLT_CALL_EXCHANGE:
        return exchange_end(trainer, call);
    case HLT_CALL_TUNE:
        return tune_end(trainer);
    default:
        return direct_end(trainer, call);
    }
}

void hlt_calls_step(halay_trainer_t *trainer)
{
    int over;
    if (trainer->calls.moving)
        halay_context_progress(trainer->context, 0);
    trainer->core.replay.check_ns = trainer->core.replay.submissions_before_group = 0;
    do {
        while (next_start(trainer))
            ;
        int kept = 0, tested = trainer->calls.count;
        for (int i = 0; i < tested; i++) {
            if (!call_test(trainer, &trainer->calls.at[i]))
                trainer->calls.at[kept++] = trainer->calls.at[i];
        }
        trainer->calls.count = kept;
        over = tested - kept;
    } while (over);
}

uint64_t hlt_calls_oldest_ns(const halay_trainer_t *trainer)
{
    uint64_t start_ns = 0;
    for (int i = 0; i < trainer->calls.count; i++) {
        const struct hlt_call *call = &trainer->calls.at[i];
        const int counts = call->group || call->kind == HLT_CALL_TUNE;
        if (counts && (!start_ns || call->start_ns < start_ns))
            start_ns = call->start_ns;
    }
    return start_ns;
}
