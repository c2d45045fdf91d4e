/* SPDX-License-Identifier: Apache-2.0 */
/*
 * submit.c - takes tensors in. What no call could accept is refused here and submitted nowhere.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "trainer.h"

/* What the caller says, before it is admitted. */
struct submission {
    int kind, root;
    const void *in;
    void *out;
    size_t count; /* elements in the caller's buffer */
    size_t row_count, nrows;
    halay_type_t type;
    halay_op_t op;
    double prescale, postscale;
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

static int check(const halay_trainer_t *trainer, const char *name,
                 const struct submission *submission)
{
    size_t bytes = halay_type_bytes(submission->type), total;
    if (!name[0] || strnlen(name, HALAY_TENSOR_NAME_MAX) == HALAY_TENSOR_NAME_MAX)
        return HALAY_EINVAL;
    if (!bytes || __builtin_mul_overflow(submission->count, bytes, &total) || total > PTRDIFF_MAX)
        return HALAY_EINVAL;
    if (submission->count && (!submission->in || !submission->out))
        return HALAY_EINVAL;
    if (submission->root < 0 || submission->root >= trainer->nranks)
        return HALAY_EINVAL;
    if (submission->kind == HLY_KIND_ALLREDUCE && !halay_op_takes(submission->op, submission->type))
        return HALAY_EINVAL;
    if ((submission->prescale != 1 || submission->postscale != 1) &&
        (submission->op != HALAY_SUM || !scalable(submission->type)))
        return HALAY_EINVAL;
    return 0;
}

static void fill(struct hly_tensor *tensor, const char *name, const struct submission *submission)
{
    tensor->in = submission->in;
    tensor->out = submission->out;
    tensor->count = submission->count;
    tensor->type = submission->type;
    tensor->op = submission->op;
    tensor->kind = submission->kind;
    tensor->root = submission->root;
    tensor->prescale = submission->prescale;
    tensor->postscale = submission->postscale;
    tensor->start_ns = 0;
    tensor->result_count = 0;
    tensor->code = 0;
    strcpy(tensor->name, name);
    tensor->node.hash = hly_tensor_hash(name);
    tensor->says = (struct hly_announcement){
        .name = tensor->node.hash,
        .what =
            hly_tensor_what(submission->kind, submission->type, submission->op, submission->root),
        .count = submission->row_count,
        .prescale = bits_of(submission->prescale),
        .postscale = bits_of(submission->postscale),
        .rows = submission->nrows,
    };
    tensor->submit_ns = hly_trainer_now_ns();
}

static int submit(halay_trainer_t *trainer, const char *name, const struct submission *submission,
                  halay_ticket_t *ticket)
{
    if (!trainer || !name || !ticket)
        return HALAY_EINVAL;
    if (trainer->pid != getpid())
        return HALAY_EFORKED;
    int rc = check(trainer, name, submission), asleep;
    if (rc)
        return rc;

    pthread_mutex_lock(&trainer->mutex);
    struct hly_tensor *tensor = NULL;
    if (trainer->closing)
        rc = HALAY_ESTATE;
    else if (hly_tensor_map_find(&trainer->names, hly_tensor_hash(name)))
        rc = HALAY_EINVAL;
    else if (!(tensor = hly_tensor_take(trainer)))
        rc = HALAY_ENOMEM;
    if (tensor && submission->kind == HLY_KIND_ALLGATHER &&
        !(tensor->rows = calloc((size_t)trainer->nranks, sizeof(*tensor->rows)))) {
        hly_tensor_give(trainer, tensor);
        tensor = NULL;
        rc = HALAY_ENOMEM;
    }
    if (tensor) {
        fill(tensor, name, submission);
        trainer->looks += (uint64_t)trainer->looked;
        trainer->looked = 0;
        tensor->says.wait = trainer->looks;
        hly_tensor_map_add(&trainer->names, &tensor->node);
        hly_tensor_list_push(&trainer->submitted, tensor);
        *ticket = hly_tensor_ticket(tensor);
    }
    asleep = trainer->asleep && (!trainer->quiet || !trainer->quiet--);
    pthread_mutex_unlock(&trainer->mutex);
    if (tensor && asleep)
        halay_context_wake(trainer->context);
    return rc;
}

int halay_trainer_allreduce(halay_trainer_t *trainer, const char *name, const void *in, void *out,
                            size_t count, halay_type_t type, halay_op_t op, double prescale,
                            double postscale, halay_ticket_t *ticket)
{
    struct submission submission = {
        .kind = HLY_KIND_ALLREDUCE,
        .in = in == HALAY_IN_PLACE ? out : in,
        .out = out,
        .count = count,
        .row_count = count,
        .type = type,
        .op = op,
        .prescale = prescale,
        .postscale = postscale,
    };
    return submit(trainer, name, &submission, ticket);
}

int halay_trainer_broadcast(halay_trainer_t *trainer, const char *name, void *buffer, size_t count,
                            halay_type_t type, int root, halay_ticket_t *ticket)
{
    struct submission submission = {
        .kind = HLY_KIND_BROADCAST,
        .in = buffer,
        .out = buffer,
        .count = count,
        .row_count = count,
        .type = type,
        .root = root,
        .prescale = 1,
        .postscale = 1,
    };
    return submit(trainer, name, &submission, ticket);
}

int halay_trainer_allgather(halay_trainer_t *trainer, const char *name, const void *in,
                            size_t nrows, size_t row_count, halay_type_t type,
                            halay_ticket_t *ticket)
{
    struct submission submission = {
        .kind = HLY_KIND_ALLGATHER,
        .in = in,
        .out = (void *)in, /* nothing is written there: the result is the trainer's */
        .row_count = row_count,
        .nrows = nrows,
        .type = type,
        .prescale = 1,
        .postscale = 1,
    };
    if (__builtin_mul_overflow(nrows, row_count, &submission.count))
        return HALAY_EINVAL;
    return submit(trainer, name, &submission, ticket);
}

int halay_trainer_barrier(halay_trainer_t *trainer, const char *name, halay_ticket_t *ticket)
{
    struct submission submission = {
        .kind = HLY_KIND_BARRIER,
        .type = HALAY_UINT8,
        .prescale = 1,
        .postscale = 1,
    };
    return submit(trainer, name, &submission, ticket);
}
