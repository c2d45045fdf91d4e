/* SPDX-License-Identifier: Apache-2.0 */
/*
 * submit.c - takes tensors in. What no call could accept is refused here and submitted nowhere.
 */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "trainer.h"

/* What the caller says, before it is admitted. */
struct submission {
    int kind, root;
    const void *in;
    void *out;
    size_t count; /* elements in the caller's buffer */
    size_t row_count, nrows;
    const size_t *rows;                 /* alltoall: to each rank */
    uint32_t shape[1 + HALAY_DIMS_MAX]; /* as in the announcement */
    halay_type_t type;
    halay_op_t op;
    double prescale, postscale;
    uint64_t group, members;
    struct hlt_grouped *grouped;
    uint32_t memory; /* found by check() */
    struct hlt_behind *behind;
};

static uint64_t bits_of(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static int scalable(halay_type_t type)
{
    return type == HALAY_FLOAT16 || type == HALAY_BFLOAT16 || type == HALAY_FLOAT32 ||
           type == HALAY_FLOAT64 || type == HALAY_COMPLEX64 || type == HALAY_COMPLEX128;
}

/*
 * In what kind of memory is it? Without elements it is the host's on all ranks, as all have the
 * same count; but other ranks may have rows where this one has none.
 */
static int find_memory(const halay_trainer_t *trainer, struct submission *submission, size_t bytes)
{
    uint32_t in, out;
    int gathers = submission->kind == HLT_KIND_ALLGATHER || submission->kind == HLT_KIND_ALLTOALL;
    submission->memory = bytes || !gathers ? HALAY_MEMORY_HOST : HLT_MEMORY_ANY;
    if (!bytes)
        return 0;
    int rc = halay_mem_kind(trainer->context, submission->in, bytes, &in);
    rc = rc ? rc : halay_mem_kind(trainer->context, submission->out, 0, &out);
    submission->memory = rc ? HALAY_MEMORY_HOST : in;
    return rc ? rc : in != out ? HALAY_EINVAL : 0;
}

static int check(const halay_trainer_t *trainer, const char *name, struct submission *submission)
{
    size_t bytes = halay_type_bytes(submission->type), total;
    if (!name[0] || strnlen(name, HALAY_TENSOR_NAME_MAX) == HALAY_TENSOR_NAME_MAX)
        return HALAY_EINVAL;
    if (!bytes || __builtin_mul_overflow(submission->count, bytes, &total) || total > PTRDIFF_MAX)
        return HALAY_EINVAL;
    if (submission->count &&
        (!submission->in || !submission->out || submission->out == HALAY_IN_PLACE))
        return HALAY_EINVAL;
    if (submission->root < 0 || submission->root >= trainer->core.nranks)
        return HALAY_EINVAL;
    if ((submission->kind == HLT_KIND_ALLREDUCE || submission->kind == HLT_KIND_REDUCE_SCATTER) &&
        (submission->op >= HALAY_OP_COUNT || !halay_op_takes(submission->op, submission->type)))
        return HALAY_EINVAL;
    if ((submission->prescale != 1 || submission->postscale != 1) &&
        (submission->op != HALAY_SUM || !scalable(submission->type) ||
         !isfinite(submission->prescale) || !isfinite(submission->postscale)))
        return HALAY_EINVAL;
    return find_memory(trainer, submission, total);
}

static void fill(struct hlt_tensor *tensor, const char *name, const struct submission *submission)
{
    tensor->in = submission->in;
    tensor->out = submission->out;
    tensor->count = submission->count;
    tensor->type = submission->type;
    tensor->op = submission->op;
    tensor->kind = submission->kind;
    tensor->root = submission->root;
    tensor->memory = submission->memory == HLT_MEMORY_ANY ? HALAY_MEMORY_HOST : submission->memory;
    tensor->prescale = submission->prescale;
    tensor->postscale = submission->postscale;
    tensor->start_ns = tensor->ready_ns = 0;
    tensor->buffer = HLT_BUFFERS;
    tensor->notices = tensor->voted = tensor->exchanged = 0;
    tensor->result_count = 0;
    tensor->code = 0;
    strcpy(tensor->name, name);
    tensor->node.hash = hlt_tensor_hash(name);
    tensor->says = (struct hlt_announcement){
        .name = tensor->node.hash,
        .what =
            hlt_tensor_what(submission->kind, submission->type, submission->op, submission->root) |
            (uint64_t)submission->memory << HLT_MEMORY_SHIFT,
        .count = submission->row_count,
        .prescale = bits_of(submission->prescale),
        .postscale = bits_of(submission->postscale),
        .rows = submission->nrows,
        .group = submission->group,
        .members = submission->members,
    };
    memcpy(tensor->says.shape, submission->shape, sizeof(submission->shape));
    tensor->grouped = submission->grouped;
    tensor->behind = submission->behind;
    tensor->unready = 0;
    /* A group says the names of all its tensors, and is never the same again with others. */
    tensor->series = submission->group ? 0 : hlt_series_of(name, &tensor->number);
    tensor->known = tensor->node.hash;
    tensor->submit_ns = hlt_trainer_now_ns();
}

/* A submission without a size. */
static struct submission plain(int kind, const void *in, void *out, halay_type_t type)
{
    return (struct submission){
        .kind = kind,
        .in = in == HALAY_IN_PLACE ? out : in,
        .out = out,
        .type = type,
        .prescale = 1,
        .postscale = 1,
    };
}

static struct submission reduction(int kind, const void *in, void *out, halay_type_t type,
                                   halay_op_t op, double prescale, double postscale)
{
    struct submission submission = plain(kind, in, out, type);
    submission.op = op;
    submission.prescale = prescale;
    submission.postscale = postscale;
    return submission;
}

static int rows_take(const halay_trainer_t *trainer, struct hlt_tensor *tensor,
                     const struct submission *submission)
{
    size_t nranks = (size_t)trainer->core.nranks;
    if (submission->kind != HLT_KIND_ALLGATHER && submission->kind != HLT_KIND_ALLTOALL)
        return 0;
    if (!(tensor->rows = calloc(2 * nranks, sizeof(*tensor->rows))))
        return HALAY_ENOMEM;
    if (submission->rows)
        memcpy(tensor->rows + nranks, submission->rows, nranks * sizeof(*tensor->rows));
    return 0;
}

/* Mutex held. */
static int admit(halay_trainer_t *trainer, const char *name, const struct submission *submission,
                 halay_ticket_t *ticket)
{
    struct hlt_tensor *tensor;
    if (trainer->closing)
        return HALAY_ESTATE;
    if (hlt_tensor_map_find(&trainer->tensors.names, hlt_tensor_hash(name)))
        return HALAY_EINVAL;
    if (!(tensor = hlt_tensor_take(trainer)))
        return HALAY_ENOMEM;
    if (rows_take(trainer, tensor, submission)) {
        hlt_tensor_give(trainer, tensor);
        return HALAY_ENOMEM;
    }
    fill(tensor, name, submission);
    trainer->callers.looks += (uint64_t)trainer->callers.looked;
    trainer->callers.looked = 0;
    tensor->says.wait = trainer->callers.looks;
    hlt_tensor_map_add(&trainer->tensors.names, &tensor->node);
    hlt_tensor_list_push(&trainer->tensors.submitted, tensor);
    *ticket = hlt_tensor_ticket(tensor);
    return 0;
}

/* Mutex held. The same behind the stream that was said of the name, if any was. */
static int admit_behind(halay_trainer_t *trainer, const char *name, struct submission *submission,
                        halay_ticket_t *ticket)
{
    submission->behind = hlt_behind_take(trainer, name, 1);
    int rc = admit(trainer, name, submission, ticket);
    if (rc)
        hlt_behind_drop(trainer, submission->behind);
    return rc;
}

/* Mutex held. Whether somebody has to be woken for so many more tensors. */
static int wakes(halay_trainer_t *trainer, size_t ntensors)
{
    int quiet = trainer->steps.submissions_before_wake >= ntensors;
    trainer->steps.submissions_before_wake =
        quiet ? trainer->steps.submissions_before_wake - (uint32_t)ntensors : 0;
    return trainer->callers.asleep && !quiet;
}

static int submit(halay_trainer_t *trainer, const char *name, struct submission *submission,
                  halay_ticket_t *ticket)
{
    if (!trainer || !name || !ticket)
        return HALAY_EINVAL;
    if (hlt_trainer_forked(trainer))
        return HALAY_EFORKED;
    int rc = check(trainer, name, submission), wake;
    if (rc)
        return hlt_trainer_lose(trainer, rc);
    pthread_mutex_lock(&trainer->mutex);
    rc = admit_behind(trainer, name, submission, ticket);
    wake = !rc && wakes(trainer, 1);
    pthread_mutex_unlock(&trainer->mutex);
    if (wake)
        halay_context_wake(trainer->context);
    return rc;
}

/*
 * Fills the count, and the shape without its first dimensions: an allgather's first one may differ.
 * There is more than one large dimension only where the count is 0 or refused.
 */
static int shape_read(struct submission *submission, const halay_dims_t *shape, int first)
{
    size_t count = 1;
    if (!shape || shape->ndims < first || shape->ndims > HALAY_DIMS_MAX)
        return HALAY_EINVAL;
    submission->shape[0] = 1 + (uint32_t)(shape->ndims - first);
    for (int d = first; d < shape->ndims; d++) {
        size_t dim = shape->dims[d];
        submission->shape[1 + d - first] = dim < HLT_DIM_LARGE ? (uint32_t)dim : HLT_DIM_LARGE;
        if (dim && __builtin_mul_overflow(count, dim, &count))
            return HALAY_EINVAL;
    }
    for (int d = first; d < shape->ndims; d++)
        count = shape->dims[d] ? count : 0;
    submission->nrows = first ? shape->dims[0] : 0;
    submission->count = submission->row_count = count;
    if (first && __builtin_mul_overflow(submission->nrows, count, &submission->count))
        return HALAY_EINVAL;
    return 0;
}

/* Submits without a shape. */
static int submit_counted(halay_trainer_t *trainer, const char *name, struct submission *submission,
                          size_t count, halay_ticket_t *ticket)
{
    submission->count = submission->row_count = count;
    return submit(trainer, name, submission, ticket);
}

static int submit_shaped(halay_trainer_t *trainer, const char *name, struct submission *submission,
                         const halay_dims_t *shape, int first, halay_ticket_t *ticket)
{
    int rc = shape_read(submission, shape, first);
    return rc ? rc : submit(trainer, name, submission, ticket);
}

int halay_trainer_allreduce(halay_trainer_t *trainer, const char *name, const void *in, void *out,
                            size_t count, halay_type_t type, halay_op_t op, double prescale,
                            double postscale, halay_ticket_t *ticket)
{
    struct submission submission =
        reduction(HLT_KIND_ALLREDUCE, in, out, type, op, prescale, postscale);
    return submit_counted(trainer, name, &submission, count, ticket);
}

int halay_trainer_allreduce_shaped(halay_trainer_t *trainer, const char *name, const void *in,
                                   void *out, const halay_dims_t *shape, halay_type_t type,
                                   halay_op_t op, double prescale, double postscale,
                                   halay_ticket_t *ticket)
{
    struct submission submission =
        reduction(HLT_KIND_ALLREDUCE, in, out, type, op, prescale, postscale);
    return submit_shaped(trainer, name, &submission, shape, 0, ticket);
}

/*
 * Mutex held. The caller is going to wait, and will step itself unless another caller does so
 * already: only that one has to be woken. Where it has left meanwhile, the wake is too much.
 */
static void call_driver(halay_trainer_t *trainer)
{
    if (!wakes(trainer, 1) || !trainer->callers.driver)
        return;
    hlt_trainer_wake(trainer);
}

/* What the program says, however old its header is; what it cannot say is 1. NULL: all is well. */
static const char *take_reduction(halay_reduction_t *whole, const halay_reduction_t *says)
{
    *whole = (halay_reduction_t){.prescale = 1, .postscale = 1};
    if (!says || says->size < offsetof(halay_reduction_t, prescale) ||
        says->size % sizeof(size_t) || !says->name)
        return "the reduction has no size or no name";
    for (size_t i = sizeof(*says); i < says->size; i++)
        if (((const unsigned char *)says)[i])
            return "the reduction says what this library does not know: it is too old for it";
    memcpy(whole, says, says->size < sizeof(*whole) ? says->size : sizeof(*whole));
    return NULL;
}

int halay_trainer_allreduce_wait(halay_trainer_t *trainer, const halay_reduction_t *given,
                                 const void *in, void *out, char *text, size_t text_bytes)
{
    halay_ticket_t ticket = 0;
    struct hlt_tensor *tensor;
    halay_reduction_t says;
    const char *why = take_reduction(&says, given);
    if (why)
        return hlt_trainer_tell(HALAY_EINVAL, why, text, text_bytes);
    struct submission submission =
        reduction(HLT_KIND_ALLREDUCE, in, out, says.type, says.op, says.prescale, says.postscale);
    int rc = shape_read(&submission, &says.shape, 0);
    if (!rc && !(rc = hlt_trainer_enter(trainer))) {
        if (!(rc = check(trainer, says.name, &submission)) &&
            !(rc = admit_behind(trainer, says.name, &submission, &ticket))) {
            call_driver(trainer);
            rc = hlt_trainer_await(trainer, ticket, text, text_bytes);
            if ((tensor = hlt_tensor_find(trainer, ticket)) != NULL)
                hlt_tensor_give(trainer, tensor);
        }
        hlt_trainer_leave(trainer, rc);
    }
    return ticket ? rc : hlt_trainer_tell(rc, NULL, text, text_bytes);
}

/* ------------------------------------------------------------------ groups */

/* Takes tensors back. The mutex was held since the first was admitted, so no step has seen them. */
static void retract(halay_trainer_t *trainer, const halay_ticket_t tickets[], size_t admitted)
{
    while (admitted--) {
        struct hlt_tensor *tensor = hlt_tensor_find(trainer, tickets[admitted]);
        hlt_tensor_list_remove(&trainer->tensors.submitted, tensor);
        hlt_tensor_map_remove(&trainer->tensors.names, &tensor->node);
        tensor->grouped = NULL;
        tensor->behind = NULL;
        hlt_tensor_give(trainer, tensor);
    }
}

/* Hashes all that the members say, so that no member agrees with one of another group. */
static uint64_t group_add(uint64_t group, const char *name, const struct submission *submission)
{
    uint64_t words[4 + sizeof(submission->shape) / (sizeof(uint64_t))] = {
        hlt_tensor_hash(name), (uint64_t)submission->type, (uint64_t)submission->op,
        submission->count};
    static_assert(sizeof(submission->shape) % sizeof(*words) == 0, "a dimension is left out");
    memcpy(&words[4], submission->shape, sizeof(submission->shape));
    return hlt_hash_words(group, words, sizeof(words) / sizeof(words[0]));
}

static int group_submit(halay_trainer_t *trainer, size_t ntensors, const char *const names[],
                        struct submission members[], halay_ticket_t tickets[])
{
    int rc = 0;
    size_t admitted = 0;
    uint64_t group = ntensors;
    struct hlt_grouped *grouped = calloc(1, sizeof(*grouped));
    if (!grouped)
        return HALAY_ENOMEM;
    for (size_t i = 0; i < ntensors && !rc; i++) {
        rc = names[i] ? check(trainer, names[i], &members[i]) : HALAY_EINVAL;
        group = rc ? group : group_add(group, names[i], &members[i]);
    }
    pthread_mutex_lock(&trainer->mutex);
    grouped->refs = ntensors;
    struct hlt_behind *behind = rc ? NULL : hlt_behind_take(trainer, names[0], 1);
    for (; admitted < ntensors && !rc; admitted += !rc) {
        members[admitted].behind = behind;
        members[admitted].grouped = grouped;
        members[admitted].group = group ? group : 1;
        members[admitted].members = ntensors;
        rc = admit(trainer, names[admitted], &members[admitted], &tickets[admitted]);
    }
    if (rc) {
        retract(trainer, tickets, admitted);
        hlt_behind_drop(trainer, behind);
    } else if (behind) {
        behind->refs = ntensors;
    }
    int wake = !rc && wakes(trainer, ntensors);
    pthread_mutex_unlock(&trainer->mutex);
    if (wake)
        halay_context_wake(trainer->context);
    if (rc)
        free(grouped);
    return hlt_trainer_lose(trainer, rc);
}

int halay_trainer_allreduce_group(halay_trainer_t *trainer, size_t ntensors,
                                  const halay_reduction_t says[], const void *const in[],
                                  void *const out[], halay_ticket_t tickets[])
{
    if (!trainer || !ntensors || ntensors > HALAY_GROUP_MAX || !says || !in || !out || !tickets)
        return HALAY_EINVAL;
    if (hlt_trainer_forked(trainer))
        return HALAY_EFORKED;
    int rc = HALAY_OK;
    struct submission *members = calloc(ntensors, sizeof(*members));
    const char **names = calloc(ntensors, sizeof(*names));
    if (!members || !names)
        rc = HALAY_ENOMEM;
    for (size_t i = 0; i < ntensors && !rc; i++) {
        halay_reduction_t one;
        const char *at = (const char *)says + i * says->size; /* of a program's header */
        if (take_reduction(&one, (const halay_reduction_t *)at) || one.size != says->size) {
            rc = HALAY_EINVAL;
            break;
        }
        names[i] = one.name;
        members[i] = reduction(HLT_KIND_ALLREDUCE, in[i], out[i], one.type, one.op, one.prescale,
                               one.postscale);
        rc = shape_read(&members[i], &one.shape, 0);
    }
    rc = rc ? rc : group_submit(trainer, ntensors, names, members, tickets);
    free(names);
    free(members);
    return rc;
}

/* ------------------------------------------------------------------ other kinds */

int halay_trainer_broadcast(halay_trainer_t *trainer, const char *name, void *buffer, size_t count,
                            halay_type_t type, int root, halay_ticket_t *ticket)
{
    struct submission submission = plain(HLT_KIND_BROADCAST, buffer, buffer, type);
    submission.root = root;
    return submit_counted(trainer, name, &submission, count, ticket);
}

int halay_trainer_broadcast_shaped(halay_trainer_t *trainer, const char *name, void *buffer,
                                   const halay_dims_t *shape, halay_type_t type, int root,
                                   halay_ticket_t *ticket)
{
    struct submission submission = plain(HLT_KIND_BROADCAST, buffer, buffer, type);
    submission.root = root;
    return submit_shaped(trainer, name, &submission, shape, 0, ticket);
}

/* Nothing is written to `out`: the result is the trainer's. */
static struct submission gathering(int kind, const void *in, halay_type_t type)
{
    return plain(kind, in, (void *)in, type);
}

int halay_trainer_allgather_shaped(halay_trainer_t *trainer, const char *name, const void *in,
                                   const halay_dims_t *shape, halay_type_t type,
                                   halay_ticket_t *ticket)
{
    struct submission submission = gathering(HLT_KIND_ALLGATHER, in, type);
    return submit_shaped(trainer, name, &submission, shape, 1, ticket);
}

int halay_trainer_allgather(halay_trainer_t *trainer, const char *name, const void *in,
                            size_t nrows, size_t row_count, halay_type_t type,
                            halay_ticket_t *ticket)
{
    struct submission submission = gathering(HLT_KIND_ALLGATHER, in, type);
    submission.row_count = row_count;
    submission.nrows = nrows;
    if (__builtin_mul_overflow(nrows, row_count, &submission.count))
        return HALAY_EINVAL;
    return submit(trainer, name, &submission, ticket);
}

int halay_trainer_alltoall(halay_trainer_t *trainer, const char *name, const void *in,
                           const size_t rows[], const halay_dims_t *shape, halay_type_t type,
                           halay_ticket_t *ticket)
{
    struct submission submission = gathering(HLT_KIND_ALLTOALL, in, type);
    size_t left = shape && shape->ndims ? shape->dims[0] : 0;
    if (!trainer || !rows)
        return HALAY_EINVAL;
    for (int r = 0; r < trainer->core.nranks; left -= rows[r++])
        if (rows[r] > left)
            return HALAY_EINVAL;
    submission.rows = rows;
    return submit_shaped(trainer, name, &submission, shape, 1, ticket);
}

int halay_trainer_reduce_scatter(halay_trainer_t *trainer, const char *name, const void *in,
                                 void *out, const halay_dims_t *shape, halay_type_t type,
                                 halay_op_t op, double prescale, double postscale,
                                 halay_ticket_t *ticket)
{
    struct submission submission =
        reduction(HLT_KIND_REDUCE_SCATTER, in, out, type, op, prescale, postscale);
    int rc = shape && shape->ndims < 1 ? HALAY_EINVAL : shape_read(&submission, shape, 0);
    if (rc || in == HALAY_IN_PLACE || (submission.count && in == out))
        return HALAY_EINVAL;
    submission.nrows = shape->dims[0];
    return submit(trainer, name, &submission, ticket);
}

/* The kinds of memory that this rank can have, a bit each. */
static uint64_t memory_kinds(const halay_trainer_t *trainer)
{
    uint64_t kinds = UINT64_C(1) << HALAY_MEMORY_HOST;
    for (uint32_t kind = 0; !hlt_trainer_forked(trainer) && kind < HALAY_MEMORY_KINDS; kind++) {
        void *address = NULL;
        if (kind == HALAY_MEMORY_HOST || halay_local_alloc(trainer->context, kind, 1, &address))
            continue;
        kinds |= UINT64_C(1) << kind;
        halay_local_free(trainer->context, kind, address);
    }
    return kinds;
}

int halay_trainer_join(halay_trainer_t *trainer, halay_ticket_t *ticket)
{
    struct submission submission = plain(HLT_KIND_JOIN, NULL, NULL, HALAY_UINT8);
    submission.nrows = trainer ? (size_t)memory_kinds(trainer) : 0;
    return submit(trainer, "join", &submission, ticket);
}

int halay_trainer_barrier(halay_trainer_t *trainer, const char *name, halay_ticket_t *ticket)
{
    struct submission submission = plain(HLT_KIND_BARRIER, NULL, NULL, HALAY_UINT8);
    return submit(trainer, name, &submission, ticket);
}
