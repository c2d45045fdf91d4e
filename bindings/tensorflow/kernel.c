/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernel.c - runs a collective: hands the tensors to the trainer, and ends when the last is done.
 *
 * In a graph nobody waits: the last ticket's function makes the results and calls TensorFlow back,
 * so that many operations are out with few threads, in any order on each rank. What is called
 * eagerly waits in the caller's thread, which makes progress itself. `label`, the last input, tells
 * one from the other; it comes from an operation with a state, so that TensorFlow does not take
 * collectives of constants for constants.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "done.h"
#include "kernel.h"

#define TEXT_BYTES  1024
#define DIMS_MAX    254 /* of a tensor of TensorFlow's */
#define NAME_BYTES  512 /* of a node; what is longer is cut, and told apart by its hash */
#define TENSORS_MAX 32768
/* So many iterations of a loop have names of their own; no more are under way at a time. */
#define ITERATIONS 256

enum { AVERAGE, SUM, ADASUM, MIN, MAX, PRODUCT }; /* Horovod's numbers */

struct kernel {
    enum hlf_kind kind;
    TF_DataType tf_type;
    int type; /* halay_type_t */
    int64_t set, reduce_op, root;
    double prescale, postscale;
    int named; /* name is the program's own, not the node's */
    char name[NAME_BYTES];
};

struct part {
    struct request *of;
    int index;
    TF_Tensor *in, *out;
    halay_ticket_t ticket;
};

struct request {
    const struct kernel *kernel;
    TF_OpKernelContext *ctx;
    struct hlf_done done;
    halay_trainer_t *trainer;
    int rank, nranks, root;
    halay_op_t op;
    double prescale, postscale;
    atomic_int left; /* tickets that are not done, and one while tensors are handed over */
    atomic_int failed;
    TF_Code code;
    char text[TEXT_BYTES];
    char name[HALAY_TENSOR_NAME_MAX];
    size_t *rows; /* of an alltoall */
    int nparts;
    struct part parts[];
};

static const char *const words[HLF_KINDS] = {"allreduce",     "allgather", "broadcast",
                                             "reducescatter", "alltoall",  "join"};

/* ------------------------------------------------------------------ errors */

TF_Code hlf_code(int result)
{
    switch (result) {
    case HALAY_OK:
        return TF_OK;
    case HALAY_EINVAL:
        return TF_INVALID_ARGUMENT;
    case HALAY_ENOMEM:
        return TF_RESOURCE_EXHAUSTED;
    case HALAY_EUNSUPPORTED:
        return TF_UNIMPLEMENTED;
    case HALAY_ESTATE:
    case HALAY_EMISMATCH:
        return TF_FAILED_PRECONDITION;
    case HALAY_ETIMEOUT:
        return TF_DEADLINE_EXCEEDED;
    case HALAY_EINTERNAL:
        return TF_INTERNAL;
    default:
        return TF_UNKNOWN;
    }
}

void hlf_fail(TF_OpKernelContext *ctx, TF_Code code, const char *text)
{
    TF_Status *status = hlf_tf.NewStatus();
    hlf_tf.SetStatus(status, code, text);
    hlf_tf.OpKernelContext_Failure(ctx, status);
    hlf_tf.DeleteStatus(status);
}

/* The first error of a request is the one that it ends with. */
static void refuse(struct request *request, TF_Code code, const char *text)
{
    int none = 0;
    if (!atomic_compare_exchange_strong(&request->failed, &none, 1))
        return;
    request->code = code;
    snprintf(request->text, sizeof request->text, "%s", text);
}

/* result: not 0. The text begins with its name, which programs look for. */
static void refuse_result(struct request *request, int result, const char *text)
{
    char whole[TEXT_BYTES];
    const char *general = halay_strerror(result);
    int word = (int)strcspn(general, ":");
    if (!strncmp(text, "HALAY_E", 7))
        word = 0;
    snprintf(whole, sizeof whole, "%.*s%s%.*s", word, general, word ? ": " : "", TEXT_BYTES - 64,
             text);
    refuse(request, hlf_code(result), whole);
}

static int took(struct request *request, TF_Status *status)
{
    if (hlf_tf.GetCode(status) == TF_OK)
        return 1;
    refuse(request, hlf_tf.GetCode(status), hlf_tf.Message(status));
    return 0;
}

/* ------------------------------------------------------------------ a node */

static int halay_type(TF_DataType type)
{
    static const signed char types[] = {
        [TF_FLOAT] = HALAY_FLOAT32 + 1,       [TF_DOUBLE] = HALAY_FLOAT64 + 1,
        [TF_INT32] = HALAY_INT32 + 1,         [TF_UINT8] = HALAY_UINT8 + 1,
        [TF_INT16] = HALAY_INT16 + 1,         [TF_INT8] = HALAY_INT8 + 1,
        [TF_COMPLEX64] = HALAY_COMPLEX64 + 1, [TF_INT64] = HALAY_INT64 + 1,
        [TF_BOOL] = HALAY_BOOL + 1,           [TF_BFLOAT16] = HALAY_BFLOAT16 + 1,
        [TF_UINT16] = HALAY_UINT16 + 1,       [TF_COMPLEX128] = HALAY_COMPLEX128 + 1,
        [TF_HALF] = HALAY_FLOAT16 + 1,        [TF_UINT32] = HALAY_UINT32 + 1,
        [TF_UINT64] = HALAY_UINT64 + 1};
    return (size_t)type < sizeof types ? types[type] - 1 : -1;
}

static uint64_t hash(const char *text, size_t length)
{
    uint64_t value = 14695981039346656037u; /* FNV-1a */
    for (size_t i = 0; i < length; i++)
        value = (value ^ (unsigned char)text[i]) * 1099511628211u;
    return value;
}

/* At most `room` bytes with the final zero, equal where the text is. */
static void shorten(char *to, size_t room, const char *text, size_t length)
{
    if (length < room) {
        memcpy(to, text, length);
        to[length] = 0;
        return;
    }
    size_t half = (room - 20) / 2;
    snprintf(to, room, "%.*s~%016" PRIx64 "~%s", (int)half, text, hash(text, length),
             text + length - half);
}

static int64_t attr_int(TF_OpKernelConstruction *of, const char *name, TF_Status *status)
{
    int64_t value = 0;
    if (hlf_tf.GetCode(status) == TF_OK)
        hlf_tf.OpKernelConstruction_GetAttrInt64(of, name, &value, status);
    return value;
}

/* TensorFlow's attributes have no double: its bits come as an integer. */
static double attr_double(TF_OpKernelConstruction *of, const char *name, TF_Status *status)
{
    int64_t bits = attr_int(of, name, status);
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static void read_name(struct kernel *kernel, TF_OpKernelConstruction *of, TF_Status *status)
{
    int32_t entries = 0, length = 0;
    hlf_tf.OpKernelConstruction_GetAttrSize(of, "tensor_name", &entries, &length, status);
    if (hlf_tf.GetCode(status) != TF_OK)
        return;
    if (length <= 0) {
        TF_StringView node = hlf_tf.OpKernelConstruction_GetName(of);
        shorten(kernel->name, sizeof kernel->name, node.data, node.len);
        return;
    }
    char *text = malloc((size_t)length + 1);
    if (!text) {
        hlf_tf.SetStatus(status, TF_RESOURCE_EXHAUSTED, "no memory for the tensor's name");
        return;
    }
    hlf_tf.OpKernelConstruction_GetAttrString(of, "tensor_name", text, (size_t)length, status);
    text[length] = 0;
    shorten(kernel->name, sizeof kernel->name, text, strlen(text));
    kernel->named = 1;
    free(text);
}

static void read_attributes(struct kernel *kernel, TF_OpKernelConstruction *of, TF_Status *status)
{
    kernel->prescale = kernel->postscale = 1;
    kernel->type = -1;
    if (kernel->kind == HLF_JOIN)
        return;
    hlf_tf.OpKernelConstruction_GetAttrType(of, "T", &kernel->tf_type, status);
    kernel->type = halay_type(kernel->tf_type);
    kernel->set = attr_int(of, "process_set_id", status);
    if (kernel->kind == HLF_BROADCAST)
        kernel->root = attr_int(of, "root_rank", status);
    if (kernel->kind == HLF_ALLREDUCE || kernel->kind == HLF_REDUCESCATTER) {
        kernel->reduce_op = attr_int(of, "reduce_op", status);
        kernel->prescale = attr_double(of, "prescale_bits", status);
        kernel->postscale = attr_double(of, "postscale_bits", status);
    }
    if (hlf_tf.GetCode(status) == TF_OK)
        read_name(kernel, of, status);
    if (hlf_tf.GetCode(status) == TF_OK && kernel->type < 0)
        hlf_tf.SetStatus(status, TF_INVALID_ARGUMENT, "Halay has no such type of elements");
}

void *hlf_kernel_create(TF_OpKernelConstruction *of, enum hlf_kind kind)
{
    TF_Status *status = hlf_tf.NewStatus();
    struct kernel *kernel = calloc(1, sizeof *kernel);
    if (kernel) {
        kernel->kind = kind;
        read_attributes(kernel, of, status);
    } else {
        hlf_tf.SetStatus(status, TF_RESOURCE_EXHAUSTED, "no memory for an operation of Halay's");
    }
    if (hlf_tf.GetCode(status) != TF_OK)
        hlf_tf.OpKernelConstruction_Failure(of, status);
    hlf_tf.DeleteStatus(status);
    return kernel;
}

void hlf_kernel_delete(void *kernel)
{
    free(kernel);
}

/* ------------------------------------------------------------------ its end */

/* TensorFlow's memory for so many rows of what came in; NULL: the request has failed. */
static TF_Tensor *rows_for(struct part *part, int64_t nrows, TF_Status *status)
{
    int64_t dims[DIMS_MAX];
    int ndims = hlf_tf.NumDims(part->in);
    for (int i = 0; i < ndims; i++)
        dims[i] = i ? hlf_tf.Dim(part->in, i) : nrows;
    return hlf_tf.AllocateOutput(part->of->ctx, part->index, part->of->kernel->tf_type, dims, ndims,
                                 0, status);
}

/* How many rows are of each rank. */
static void put_rows(struct part *part, const size_t *rows, TF_Status *status)
{
    struct request *request = part->of;
    int64_t dims[1] = {request->nranks};
    TF_Tensor *out =
        hlf_tf.AllocateOutput(request->ctx, request->nparts + part->index, TF_INT32, dims, 1,
                              (size_t)request->nranks * sizeof(int32_t), status);
    if (!took(request, status))
        return;
    int32_t *splits = hlf_tf.TensorData(out);
    for (int i = 0; i < request->nranks; i++)
        splits[i] = (int32_t)rows[i];
    hlf_tf.DeleteTensor(out);
}

/* The result of an allgather or an alltoall, which the trainer has. */
static void take_rows(struct part *part, TF_Status *status)
{
    struct request *request = part->of;
    const void *data = NULL;
    const size_t *rows = NULL;
    size_t count = 0;
    int64_t total = 0;
    int result = halay_trainer_result(request->trainer, part->ticket, &data, &count, &rows);
    if (result) {
        refuse_result(request, result, halay_strerror(result));
        return;
    }
    for (int i = 0; i < request->nranks; i++)
        total += (int64_t)rows[i];
    part->out = rows_for(part, total, status);
    if (!took(request, status))
        return;
    if (count > 0)
        memcpy(hlf_tf.TensorData(part->out), data, hlf_tf.TensorByteSize(part->out));
    put_rows(part, rows, status);
}

static void take_last(struct part *part, TF_Status *status)
{
    struct request *request = part->of;
    size_t last = 0;
    hlf_job_recount();
    halay_trainer_result(request->trainer, part->ticket, NULL, &last, NULL);
    part->out = hlf_tf.AllocateOutput(request->ctx, 0, TF_INT32, NULL, 0, sizeof(int32_t), status);
    if (took(request, status))
        *(int32_t *)hlf_tf.TensorData(part->out) = (int32_t)last;
}

static void finish(struct request *request)
{
    struct hlf_done done = request->done;
    if (done.moved)
        done.given = (TF_AsyncOpKernelDoneCallback *)done.words;
    if (atomic_load(&request->failed))
        hlf_fail(request->ctx, request->code, request->text);
    for (int i = 0; i < request->nparts; i++) {
        if (request->parts[i].in)
            hlf_tf.DeleteTensor(request->parts[i].in);
        if (request->parts[i].out)
            hlf_tf.DeleteTensor(request->parts[i].out);
    }
    free(request->rows);
    free(request);
    hlf_done_call(&done);
}

static void drop(struct request *request)
{
    if (atomic_fetch_sub(&request->left, 1) == 1)
        finish(request);
}

/* The ticket is done, or this waits for it. */
static void end_part(struct part *part)
{
    struct request *request = part->of;
    char text[TEXT_BYTES] = "";
    int result = halay_trainer_wait(request->trainer, part->ticket, text, sizeof text);
    if (result) {
        refuse_result(request, result, text);
    } else if (request->kernel->kind != HLF_ALLREDUCE && request->kernel->kind != HLF_BROADCAST &&
               request->kernel->kind != HLF_REDUCESCATTER) {
        TF_Status *status = hlf_tf.NewStatus();
        if (request->kernel->kind == HLF_JOIN)
            take_last(part, status);
        else
            take_rows(part, status);
        hlf_tf.DeleteStatus(status);
    }
    /* Before TensorFlow goes on: the next run of this node may submit the name. */
    halay_trainer_release(request->trainer, part->ticket);
    drop(request);
}

static void part_done(void *arg, halay_ticket_t ticket)
{
    struct part *part = arg;
    part->ticket = ticket;
    end_part(part);
}

/* ------------------------------------------------------------------ its beginning */

static void *address(const TF_Tensor *tensor)
{
    static char none[16];
    return hlf_tf.TensorElementCount(tensor) > 0 ? hlf_tf.TensorData(tensor) : none;
}

/* The dimensions for which the library has no room are one with its last. */
static halay_dims_t shape_of(const TF_Tensor *tensor)
{
    halay_dims_t shape = {.ndims = hlf_tf.NumDims(tensor)};
    int ndims = shape.ndims;
    if (ndims > HALAY_DIMS_MAX)
        shape.ndims = HALAY_DIMS_MAX;
    for (int i = 0; i < ndims; i++) {
        size_t dim = (size_t)hlf_tf.Dim(tensor, i);
        if (i < HALAY_DIMS_MAX)
            shape.dims[i] = dim;
        else
            shape.dims[HALAY_DIMS_MAX - 1] *= dim;
    }
    return shape;
}

/* 1: request->op and its scales are those of the library. */
static int choose_op(struct request *request)
{
    const struct kernel *kernel = request->kernel;
    int type = kernel->type, inexact = type >= HALAY_FLOAT16 && type <= HALAY_COMPLEX128;
    static const halay_op_t ops[] = {[AVERAGE] = HALAY_AVERAGE,
                                     [SUM] = HALAY_SUM,
                                     [MIN] = HALAY_MIN,
                                     [MAX] = HALAY_MAX,
                                     [PRODUCT] = HALAY_PROD};
    if (kernel->reduce_op < AVERAGE || kernel->reduce_op > PRODUCT || kernel->reduce_op == ADASUM) {
        refuse(request, TF_INVALID_ARGUMENT, "op is none of Average, Sum, Min, Max and Product");
        return 0;
    }
    request->op = ops[kernel->reduce_op];
    request->prescale = kernel->prescale;
    request->postscale = kernel->postscale;
    if (type == HALAY_BOOL)
        request->op = kernel->reduce_op == MAX                                   ? HALAY_LOR
                      : kernel->reduce_op == MIN || kernel->reduce_op == PRODUCT ? HALAY_LAND
                                                                                 : request->op;
    else if (kernel->reduce_op == AVERAGE && inexact) {
        request->op = HALAY_SUM;
        request->postscale /= request->nranks;
    }
    if (!halay_op_takes(request->op, (halay_type_t)type)) {
        char text[128];
        snprintf(text, sizeof text, "%s: op %s does not take elements of type %s",
                 words[kernel->kind], halay_op_name(request->op),
                 halay_type_name((halay_type_t)type));
        refuse(request, TF_INVALID_ARGUMENT, text);
        return 0;
    }
    return 1;
}

/* 1: what came in can be used, and there is memory for what comes out. */
static int prepare_part(struct part *part, TF_Status *status)
{
    struct request *request = part->of;
    enum hlf_kind kind = request->kernel->kind;
    int64_t dims[DIMS_MAX];
    int forwarded = -1, from = part->index, ndims;
    hlf_tf.GetInput(request->ctx, part->index, &part->in, status);
    if (!took(request, status))
        return 0;
    ndims = hlf_tf.NumDims(part->in);
    for (int i = 0; i < ndims; i++)
        dims[i] = hlf_tf.Dim(part->in, i);
    if (ndims == 0 && kind != HLF_ALLREDUCE && kind != HLF_BROADCAST) {
        char text[128];
        snprintf(text, sizeof text, "%s: a scalar has no first dimension; use tf.expand_dims()",
                 words[kind]);
        refuse(request, TF_INVALID_ARGUMENT, text);
        return 0;
    }
    if (kind == HLF_ALLGATHER || kind == HLF_ALLTOALL)
        return 1;
    if (kind == HLF_REDUCESCATTER) {
        int64_t nrows = hlf_tf.Dim(part->in, 0), more = nrows % request->nranks;
        part->out = rows_for(part, nrows / request->nranks + (request->rank < more), status);
        return took(request, status);
    }
    /* In its own memory, if nobody else uses it: so our handle on it goes first. */
    hlf_tf.DeleteTensor(part->in);
    part->in = NULL;
    part->out = hlf_tf.ForwardInputOrAllocateOutput(request->ctx, &from, 1, part->index, dims,
                                                    ndims, &forwarded, status);
    if (!took(request, status) || forwarded >= 0)
        return !atomic_load(&request->failed);
    hlf_tf.GetInput(request->ctx, part->index, &part->in, status);
    if (!took(request, status))
        return 0;
    if (kind == HLF_BROADCAST && request->root == request->rank &&
        hlf_tf.TensorElementCount(part->in) > 0)
        memcpy(hlf_tf.TensorData(part->out), hlf_tf.TensorData(part->in),
               hlf_tf.TensorByteSize(part->in));
    return 1;
}

/* 1: request->rows says how many rows go to each rank. */
static int read_splits(struct request *request, TF_Status *status)
{
    const TF_Tensor *in = request->parts[0].in;
    TF_Tensor *splits = NULL;
    int64_t left = hlf_tf.Dim(in, 0), each = left / request->nranks;
    char text[160] = "";
    hlf_tf.GetInput(request->ctx, 1, &splits, status);
    if (!took(request, status))
        return 0;
    int64_t count = hlf_tf.TensorElementCount(splits);
    const int32_t *given = count ? hlf_tf.TensorData(splits) : NULL;
    if (count && count != request->nranks)
        snprintf(text, sizeof text, "alltoall: splits has %" PRId64 " entries, for %d ranks", count,
                 request->nranks);
    else if (!count && each * request->nranks != left)
        snprintf(text, sizeof text,
                 "alltoall: %" PRId64 " rows cannot be dealt out evenly to %d ranks: give splits",
                 left, request->nranks);
    for (int i = 0; i < request->nranks && !text[0]; i++) {
        int64_t rows = given ? given[i] : each;
        left -= rows;
        if (rows < 0 || left < 0)
            snprintf(text, sizeof text,
                     "alltoall: splits has a negative entry, or more rows in all than the %" PRId64
                     " of the tensor",
                     hlf_tf.Dim(in, 0));
        else
            request->rows[i] = (size_t)rows;
    }
    hlf_tf.DeleteTensor(splits);
    if (text[0])
        refuse(request, TF_INVALID_ARGUMENT, text);
    return !text[0];
}

static int submit(struct part *part, const char *name)
{
    struct request *r = part->of;
    halay_type_t type = (halay_type_t)r->kernel->type;
    if (r->kernel->kind == HLF_JOIN)
        return halay_trainer_join(r->trainer, &part->ticket);
    halay_dims_t shape = shape_of(part->in ? part->in : part->out);
    void *out = part->out ? address(part->out) : NULL, *in = part->in ? address(part->in) : out;
    switch (r->kernel->kind) {
    case HLF_ALLREDUCE:
        return halay_trainer_allreduce_shaped(r->trainer, name, in, out, &shape, type, r->op,
                                              r->prescale, r->postscale, &part->ticket);
    case HLF_REDUCESCATTER:
        return halay_trainer_reduce_scatter(r->trainer, name, in, out, &shape, type, r->op,
                                            r->prescale, r->postscale, &part->ticket);
    case HLF_BROADCAST:
        return halay_trainer_broadcast_shaped(r->trainer, name, out, &shape, type, r->root,
                                              &part->ticket);
    case HLF_ALLGATHER:
        return halay_trainer_allgather_shaped(r->trainer, name, in, &shape, type, &part->ticket);
    default:
        return halay_trainer_alltoall(r->trainer, name, in, r->rows, &shape, type, &part->ticket);
    }
}

/* The name that all ranks give this operation. eager: nodes have no name that tells them apart. */
static void make_name(struct request *request, struct hlf_set *set, int eager)
{
    const struct kernel *kernel = request->kernel;
    char whole[NAME_BYTES + 96], since[32] = "";
    unsigned long long joins = hlf_job_joins();
    uint64_t frame = eager ? 0 : hlf_tf.GetFrameId(request->ctx);
    int64_t iteration = eager ? 0 : hlf_tf.GetIterId(request->ctx);
    if (joins)
        snprintf(since, sizeof since, "%llu.", joins);
    if (eager && !kernel->named)
        snprintf(whole, sizeof whole, "tf.%s.%snoname.%llu", words[kernel->kind], since,
                 atomic_fetch_add(&set->unnamed[kernel->kind], 1));
    else if (frame || iteration) /* several iterations of a loop may be out at a time */
        snprintf(whole, sizeof whole, "tf.%s.%s.loop%08x.%d", words[kernel->kind], kernel->name,
                 (unsigned)(frame ^ frame >> 32), (int)(iteration % ITERATIONS));
    else
        snprintf(whole, sizeof whole, "tf.%s.%s", words[kernel->kind], kernel->name);
    shorten(request->name, sizeof request->name - 8, whole, strlen(whole)); /* ".12345" */
}

static void refuse_submission(struct request *request, const char *name, int result)
{
    char text[TEXT_BYTES];
    if (result != HALAY_EINVAL) {
        refuse_result(request, result, halay_strerror(result));
        return;
    }
    snprintf(
        text, sizeof text,
        "tensor '%s' was refused: it is out already (give operations that run at the same time "
        "different names), or prescale_factor or postscale_factor is infinite or no number",
        name);
    refuse_result(request, result, text);
}

/* Reduces one tensor, in the caller's thread alone. */
static void reduce_at_once(struct request *request)
{
    const struct part *part = &request->parts[0];
    const TF_Tensor *given = part->in ? part->in : part->out;
    char text[TEXT_BYTES] = "";
    halay_reduction_t says = {.size = sizeof says,
                              .name = request->name,
                              .shape = shape_of(given),
                              .type = (halay_type_t)request->kernel->type,
                              .op = request->op,
                              .prescale = request->prescale,
                              .postscale = request->postscale};
    int result = halay_trainer_allreduce_wait(request->trainer, &says, address(given),
                                              address(part->out), text, sizeof text);
    if (result && text[0])
        refuse_result(request, result, text);
    else if (result)
        refuse_submission(request, request->name, result);
}

/* later: part_done() is called for it. Otherwise the function waits for it below. */
static void hand_over(struct request *request, int later)
{
    atomic_fetch_add(later ? &hlf_later : &hlf_at_once, 1);
    if (!later && request->nparts == 1 && request->kernel->kind == HLF_ALLREDUCE) {
        reduce_at_once(request);
        return;
    }
    for (int i = 0; i < request->nparts; i++) {
        struct part *part = &request->parts[i];
        char name[HALAY_TENSOR_NAME_MAX];
        snprintf(name, sizeof name, request->nparts > 1 ? "%s.%d" : "%s", request->name, i);
        int result = submit(part, name);
        if (result) {
            refuse_submission(request, name, result);
            part->ticket = 0;
            continue;
        }
        atomic_fetch_add(&request->left, 1);
        if (later && halay_trainer_on_done(request->trainer, part->ticket, part_done, part))
            end_part(part); /* cannot be: the ticket is out, and has no function */
    }
    for (int i = 0; i < request->nparts && !later; i++)
        if (request->parts[i].ticket)
            end_part(&request->parts[i]);
}

/* 1: the set has this rank, and the request what it has to know of it. */
static int enter_set(struct request *request, const struct hlf_set *set)
{
    const struct kernel *kernel = request->kernel;
    char text[160] = "";
    int found = 0;
    if (!set || set->is.rank < 0) {
        snprintf(text, sizeof text, "%s: %s process set %" PRId64, words[kernel->kind],
                 set ? "this rank is not in" : "there is no", kernel->set);
        refuse(request, TF_INVALID_ARGUMENT, text);
        return 0;
    }
    request->trainer = set->is.trainer;
    request->rank = set->is.rank;
    request->nranks = set->is.nranks;
    for (int i = 0; i < set->is.nranks && !found; i++) {
        found = set->is.ranks[i] == kernel->root;
        request->root = i;
    }
    if (kernel->kind != HLF_BROADCAST || found)
        return 1;
    snprintf(text, sizeof text, "broadcast: root_rank %" PRId64 " is not one of the %d ranks",
             kernel->root, set->is.nranks);
    refuse(request, TF_INVALID_ARGUMENT, text);
    return 0;
}

/* 1: nothing speaks against handing the tensors over. */
static int prepare(struct request *request)
{
    const struct kernel *kernel = request->kernel;
    int fine = 1;
    if (kernel->kind == HLF_JOIN)
        return 1;
    TF_Status *status = hlf_tf.NewStatus();
    if (kernel->kind == HLF_ALLREDUCE || kernel->kind == HLF_REDUCESCATTER)
        fine = choose_op(request);
    for (int i = 0; i < request->nparts && fine; i++)
        fine = prepare_part(&request->parts[i], status);
    if (fine && kernel->kind == HLF_ALLTOALL) {
        request->rows = calloc((size_t)request->nranks, sizeof *request->rows);
        fine = request->rows && read_splits(request, status);
        if (!request->rows)
            refuse(request, TF_RESOURCE_EXHAUSTED, "alltoall: no memory");
    }
    hlf_tf.DeleteStatus(status);
    return fine;
}

/* Whether TensorFlow calls it eagerly: `label`, its last input, is 0 there. */
static int is_eager(TF_OpKernelContext *ctx, int last)
{
    TF_Status *status = hlf_tf.NewStatus();
    TF_Tensor *label = NULL;
    int eager = 0;
    hlf_tf.GetInput(ctx, last, &label, status);
    if (hlf_tf.GetCode(status) == TF_OK) {
        eager = *(const int32_t *)hlf_tf.TensorData(label) == 0;
        hlf_tf.DeleteTensor(label);
    }
    hlf_tf.DeleteStatus(status);
    return eager;
}

/* To wait in this thread instead would hang, where ranks run operations in different orders. */
static const char unmoved[] =
    "this TensorFlow keeps the function that ends an operation in a way that Halay does not know: "
    "call Halay's operations eagerly, outside of tf.function, and report its version";

static struct request *make_request(const struct kernel *kernel, TF_OpKernelContext *ctx,
                                    TF_AsyncOpKernelDoneCallback *done, int nparts)
{
    struct request *request =
        calloc(1, sizeof *request + (size_t)nparts * sizeof request->parts[0]);
    if (!request)
        return NULL;
    request->kernel = kernel;
    request->ctx = ctx;
    request->done.given = done;
    request->nparts = nparts;
    atomic_init(&request->left, 1);
    for (int i = 0; i < nparts; i++) {
        request->parts[i].of = request;
        request->parts[i].index = i;
    }
    return request;
}

void hlf_kernel_compute(void *arg, TF_OpKernelContext *ctx, TF_AsyncOpKernelDoneCallback *done)
{
    const struct kernel *kernel = arg;
    int ninputs = hlf_tf.NumInputs(ctx), eager = is_eager(ctx, ninputs - 1), later;
    int nparts = kernel->kind == HLF_ALLTOALL || kernel->kind == HLF_JOIN ? 1 : ninputs - 1;
    const char *why = NULL;
    struct request *request = make_request(kernel, ctx, done, nparts);
    struct hlf_job *job = request ? hlf_job_enter(&why) : NULL;
    if (!job) {
        hlf_fail(ctx, request ? TF_FAILED_PRECONDITION : TF_RESOURCE_EXHAUSTED,
                 request ? why : "no memory for an operation of Halay's");
        free(request);
        hlf_tf.RunAsyncOpKernelDoneCallback(done);
        return;
    }
    struct hlf_set *set = hlf_job_set(job, kernel->set);
    if (enter_set(request, set)) {
        make_name(request, set, eager); /* counts, also if it is refused: as on the other ranks */
        if (prepare(request)) {
            later = !eager && hlf_done_take(&request->done, done);
            if (eager || later)
                hand_over(request, later);
            else
                refuse_result(request, HALAY_EUNSUPPORTED, unmoved);
        }
    }
    hlf_job_leave();
    drop(request);
}
