/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ops.c - tells TensorFlow which operations there are, when it loads this library.
 *
 * Collectives are not marked as having a state: tf.function would run those of a program one after
 * the other in its order, and ranks that have two in different orders would wait for each other.
 */
#include <stdio.h>
#include <stdlib.h>

#include "kernel.h"

#define ONE  "4607182418800017408" /* the bits of 1.0 */
#define MANY "num_tensors: int >= 1"
/* The second is not read: TensorFlow makes one operation of two that are alike in all but the node.
 */
#define NAMES "tensor_name: string = ''", "node_name: string = ''"

static const char types[] =
    "T: {bool, uint8, int8, uint16, int16, uint32, int32, uint64, int64, half, bfloat16, float, "
    "double, complex64, complex128}";

static const char *failure;

/* ------------------------------------------------------------------ shapes */

static void shape_same(TF_ShapeInferenceContext *ctx, TF_Status *status)
{
    int64_t count = hlf_tf.ShapeInferenceContextNumInputs(ctx) - 1; /* without the label */
    TF_ShapeHandle *shape = hlf_tf.NewShapeHandle();
    for (int i = 0; i < count && hlf_tf.GetCode(status) == TF_OK; i++) {
        hlf_tf.ShapeInferenceContextGetInput(ctx, i, shape, status);
        if (hlf_tf.GetCode(status) == TF_OK)
            hlf_tf.ShapeInferenceContextSetOutput(ctx, i, shape, status);
    }
    hlf_tf.DeleteShapeHandle(shape);
}

/* How many rows there are is not known before it runs; Python says what is known of the rest. */
static void shape_unknown(TF_ShapeInferenceContext *ctx, TF_Status *status)
{
    hlf_tf.ShapeInferenceContextSetUnknownShape(ctx, status);
}

static void shape_scalar(TF_ShapeInferenceContext *ctx, TF_Status *status)
{
    TF_ShapeHandle *shape = hlf_tf.ShapeInferenceContextScalar(ctx);
    hlf_tf.ShapeInferenceContextSetOutput(ctx, 0, shape, status);
    hlf_tf.DeleteShapeHandle(shape);
}

/* ------------------------------------------------------------------ what is known of the job */

enum { ASK_LABEL, ASK_RANK, ASK_SIZE, ASK_LOCAL_RANK, ASK_LOCAL_SIZE, ASK_INCLUDED };

struct question {
    int64_t what, set;
};

static void *create_question(TF_OpKernelConstruction *of)
{
    TF_Status *status = hlf_tf.NewStatus();
    struct question *question = calloc(1, sizeof *question);
    if (question) {
        hlf_tf.OpKernelConstruction_GetAttrInt64(of, "what", &question->what, status);
        if (hlf_tf.GetCode(status) == TF_OK)
            hlf_tf.OpKernelConstruction_GetAttrInt64(of, "process_set_id", &question->set, status);
    } else {
        hlf_tf.SetStatus(status, TF_RESOURCE_EXHAUSTED, "no memory");
    }
    if (hlf_tf.GetCode(status) != TF_OK)
        hlf_tf.OpKernelConstruction_Failure(of, status);
    hlf_tf.DeleteStatus(status);
    return question;
}

/* 1: *value is the answer. included: as Horovod's, -1 without a job and -2 without the set. */
static int answer(const struct question *question, int32_t *value, const char **why)
{
    if (question->what == ASK_LABEL) {
        *value = 1;
        return 1;
    }
    struct hlf_job *job = hlf_job_enter(why);
    if (!job) {
        *value = -1;
        return question->what == ASK_INCLUDED;
    }
    const struct hlf_set *set = hlf_job_set(job, question->set);
    int known = set || question->what == ASK_INCLUDED;
    *why = "there is no such process set: it was not added, or was removed";
    if (question->what == ASK_RANK)
        *value = set ? set->is.rank : -1;
    else if (question->what == ASK_LOCAL_RANK)
        *value = job->local_rank;
    else if (question->what == ASK_LOCAL_SIZE)
        *value = job->local_size;
    else if (question->what == ASK_SIZE)
        *value = set ? set->is.nranks : 0;
    else
        *value = !set ? -2 : set->is.rank >= 0;
    hlf_job_leave();
    return known;
}

static void compute_question(void *kernel, TF_OpKernelContext *ctx)
{
    const char *why = "";
    int32_t value = 0;
    if (!answer(kernel, &value, &why)) {
        hlf_fail(ctx, TF_FAILED_PRECONDITION, why);
        return;
    }
    TF_Status *status = hlf_tf.NewStatus();
    TF_Tensor *out = hlf_tf.AllocateOutput(ctx, 0, TF_INT32, NULL, 0, sizeof value, status);
    if (hlf_tf.GetCode(status) == TF_OK) {
        *(int32_t *)hlf_tf.TensorData(out) = value;
        hlf_tf.DeleteTensor(out);
    } else {
        hlf_tf.OpKernelContext_Failure(ctx, status);
    }
    hlf_tf.DeleteStatus(status);
}

/* ------------------------------------------------------------------ XLA */

static void *create_refused(TF_OpKernelConstruction *of)
{
    (void)of;
    return NULL;
}

static void delete_nothing(void *kernel)
{
    (void)kernel;
}

static void compute_refused(void *kernel, TF_OpKernelContext *ctx)
{
    (void)kernel;
    hlf_fail(ctx, TF_UNIMPLEMENTED,
             "Halay's operations cannot be compiled by XLA: use tf.function(jit_compile=False), or "
             "model.compile(jit_compile=False) with Keras");
}

/* ------------------------------------------------------------------ registering */

#define CREATE(name, kind)                                                                         \
    static void *name(TF_OpKernelConstruction *of)                                                 \
    {                                                                                              \
        return hlf_kernel_create(of, kind);                                                        \
    }
CREATE(create_allreduce, HLF_ALLREDUCE)
CREATE(create_allgather, HLF_ALLGATHER)
CREATE(create_broadcast, HLF_BROADCAST)
CREATE(create_reducescatter, HLF_REDUCESCATTER)
CREATE(create_alltoall, HLF_ALLTOALL)
CREATE(create_join, HLF_JOIN)
#undef CREATE

#define WORDS 8
static const struct operation {
    const char *name;
    tf_create_t create;
    tf_shape_t shape;
    const char *inputs[WORDS], *outputs[WORDS], *attributes[WORDS];
} operations[] = {
    {"HalayAllreduce",
     create_allreduce,
     shape_same,
     {"tensors: num_tensors * T", "label: int32"},
     {"reduced: num_tensors * T"},
     {types, MANY, "reduce_op: int", "prescale_bits: int = " ONE, "postscale_bits: int = " ONE,
      "process_set_id: int = 0", NAMES}},
    {"HalayAllgather",
     create_allgather,
     shape_unknown,
     {"tensors: num_tensors * T", "label: int32"},
     {"gathered: num_tensors * T", "rows: num_tensors * int32"},
     {types, MANY, "process_set_id: int = 0", NAMES}},
    {"HalayBroadcast",
     create_broadcast,
     shape_same,
     {"tensors: num_tensors * T", "label: int32"},
     {"sent: num_tensors * T"},
     {types, MANY, "root_rank: int", "process_set_id: int = 0", NAMES}},
    {"HalayReducescatter",
     create_reducescatter,
     shape_unknown,
     {"tensors: num_tensors * T", "label: int32"},
     {"scattered: num_tensors * T"},
     {types, MANY, "reduce_op: int", "prescale_bits: int = " ONE, "postscale_bits: int = " ONE,
      "process_set_id: int = 0", NAMES}},
    {"HalayAlltoall",
     create_alltoall,
     shape_unknown,
     {"tensor: T", "splits: int32", "label: int32"},
     {"received: T", "received_splits: int32"},
     {types, "process_set_id: int = 0", NAMES}},
    {"HalayJoin", create_join, shape_scalar, {"label: int32"}, {"last: int32"}, {NULL}},
    {"HalayAsk",
     NULL,
     shape_scalar,
     {NULL},
     {"answer: int32"},
     {"what: int", "process_set_id: int = 0"}},
};

static void define(const struct operation *operation, TF_Status *status)
{
    TF_OpDefinitionBuilder *builder = hlf_tf.NewOpDefinitionBuilder(operation->name);
    for (int i = 0; i < WORDS && operation->attributes[i]; i++)
        hlf_tf.OpDefinitionBuilderAddAttr(builder, operation->attributes[i]);
    for (int i = 0; i < WORDS && operation->inputs[i]; i++)
        hlf_tf.OpDefinitionBuilderAddInput(builder, operation->inputs[i]);
    for (int i = 0; i < WORDS && operation->outputs[i]; i++)
        hlf_tf.OpDefinitionBuilderAddOutput(builder, operation->outputs[i]);
    if (!operation->create) /* what it says changes, and constants must not follow from it */
        hlf_tf.OpDefinitionBuilderSetIsStateful(builder, true);
    hlf_tf.OpDefinitionBuilderSetShapeInferenceFunction(builder, operation->shape);
    hlf_tf.RegisterOpDefinition(builder, status); /* takes the builder */
}

static void give_kernels(const struct operation *operation, TF_Status *status)
{
    static const char *const compiled[] = {"XLA_CPU_JIT", "XLA_GPU_JIT"};
    TF_KernelBuilder *builder =
        operation->create ? hlf_tf.NewAsyncKernelBuilder(operation->name, "CPU", operation->create,
                                                         hlf_kernel_compute, hlf_kernel_delete)
                          : hlf_tf.NewKernelBuilder(operation->name, "CPU", create_question,
                                                    compute_question, free);
    hlf_tf.RegisterKernelBuilder(operation->name, builder, status);
    for (int i = 0; i < 2 && hlf_tf.GetCode(status) == TF_OK; i++)
        hlf_tf.RegisterKernelBuilder(operation->name,
                                     hlf_tf.NewKernelBuilder(operation->name, compiled[i],
                                                             create_refused, compute_refused,
                                                             delete_nothing),
                                     status);
}

__attribute__((constructor)) static void register_all(void)
{
    static char text[256];
    failure = hlf_abi_load();
    if (failure)
        return;
    TF_Status *status = hlf_tf.NewStatus();
    for (size_t i = 0; i < sizeof operations / sizeof operations[0] && !failure; i++) {
        define(&operations[i], status);
        if (hlf_tf.GetCode(status) == TF_OK)
            give_kernels(&operations[i], status);
        if (hlf_tf.GetCode(status) != TF_OK) {
            snprintf(text, sizeof text, "TensorFlow refused %s: %s", operations[i].name,
                     hlf_tf.Message(status));
            failure = text;
        }
    }
    hlf_tf.DeleteStatus(status);
}

const char *halay_tf_failure(void)
{
    return failure;
}
