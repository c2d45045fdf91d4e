/* SPDX-License-Identifier: Apache-2.0 */
/*
 * abi.h - what we use of TensorFlow's C interface, as its headers of 2.13 and newer have it,
 * declared by ourselves: one library serves all versions, and none is needed to build it. The
 * functions are looked up in the TensorFlow that this process has loaded.
 */
#ifndef HALAY_TF_ABI_H
#define HALAY_TF_ABI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct TF_Status TF_Status;
typedef struct TF_Tensor TF_Tensor;
typedef struct TF_KernelBuilder TF_KernelBuilder;
typedef struct TF_OpDefinitionBuilder TF_OpDefinitionBuilder;
typedef struct TF_OpKernelConstruction TF_OpKernelConstruction;
typedef struct TF_OpKernelContext TF_OpKernelContext;
typedef struct TF_AsyncOpKernelDoneCallback TF_AsyncOpKernelDoneCallback;
typedef struct TF_ShapeHandle TF_ShapeHandle;
typedef struct TF_ShapeInferenceContext TF_ShapeInferenceContext;

typedef struct TF_StringView {
    const char *data;
    size_t len;
} TF_StringView;

typedef enum TF_DataType {
    TF_FLOAT = 1,
    TF_DOUBLE = 2,
    TF_INT32 = 3,
    TF_UINT8 = 4,
    TF_INT16 = 5,
    TF_INT8 = 6,
    TF_COMPLEX64 = 8,
    TF_INT64 = 9,
    TF_BOOL = 10,
    TF_BFLOAT16 = 14,
    TF_UINT16 = 17,
    TF_COMPLEX128 = 18,
    TF_HALF = 19,
    TF_UINT32 = 22,
    TF_UINT64 = 23
} TF_DataType;

typedef enum TF_Code {
    TF_OK = 0,
    TF_UNKNOWN = 2,
    TF_INVALID_ARGUMENT = 3,
    TF_DEADLINE_EXCEEDED = 4,
    TF_RESOURCE_EXHAUSTED = 8,
    TF_FAILED_PRECONDITION = 9,
    TF_UNIMPLEMENTED = 12,
    TF_INTERNAL = 13
} TF_Code;

typedef void *(*tf_create_t)(TF_OpKernelConstruction *);
typedef void (*tf_compute_t)(void *, TF_OpKernelContext *);
typedef void (*tf_compute_async_t)(void *, TF_OpKernelContext *, TF_AsyncOpKernelDoneCallback *);
typedef void (*tf_delete_t)(void *);
typedef void (*tf_shape_t)(TF_ShapeInferenceContext *, TF_Status *);

/* X(result, name without "TF_", parameters) */
#define HALAY_TF_FUNCTIONS(X)                                                                      \
    X(TF_Status *, NewStatus, (void))                                                              \
    X(void, DeleteStatus, (TF_Status *))                                                           \
    X(void, SetStatus, (TF_Status *, TF_Code, const char *))                                       \
    X(TF_Code, GetCode, (const TF_Status *))                                                       \
    X(const char *, Message, (const TF_Status *))                                                  \
    X(void, DeleteTensor, (TF_Tensor *))                                                           \
    X(TF_DataType, TensorType, (const TF_Tensor *))                                                \
    X(int, NumDims, (const TF_Tensor *))                                                           \
    X(int64_t, Dim, (const TF_Tensor *, int))                                                      \
    X(size_t, TensorByteSize, (const TF_Tensor *))                                                 \
    X(void *, TensorData, (const TF_Tensor *))                                                     \
    X(int64_t, TensorElementCount, (const TF_Tensor *))                                            \
    X(TF_OpDefinitionBuilder *, NewOpDefinitionBuilder, (const char *))                            \
    X(void, RegisterOpDefinition, (TF_OpDefinitionBuilder *, TF_Status *))                         \
    X(void, OpDefinitionBuilderAddAttr, (TF_OpDefinitionBuilder *, const char *))                  \
    X(void, OpDefinitionBuilderAddInput, (TF_OpDefinitionBuilder *, const char *))                 \
    X(void, OpDefinitionBuilderAddOutput, (TF_OpDefinitionBuilder *, const char *))                \
    X(void, OpDefinitionBuilderSetIsStateful, (TF_OpDefinitionBuilder *, bool))                    \
    X(void, OpDefinitionBuilderSetShapeInferenceFunction, (TF_OpDefinitionBuilder *, tf_shape_t))  \
    X(TF_ShapeHandle *, NewShapeHandle, (void))                                                    \
    X(void, DeleteShapeHandle, (TF_ShapeHandle *))                                                 \
    X(TF_ShapeHandle *, ShapeInferenceContextScalar, (TF_ShapeInferenceContext *))                 \
    X(int64_t, ShapeInferenceContextNumInputs, (TF_ShapeInferenceContext *))                       \
    X(void, ShapeInferenceContextGetInput,                                                         \
      (TF_ShapeInferenceContext *, int, TF_ShapeHandle *, TF_Status *))                            \
    X(void, ShapeInferenceContextSetOutput,                                                        \
      (TF_ShapeInferenceContext *, int, TF_ShapeHandle *, TF_Status *))                            \
    X(void, ShapeInferenceContextSetUnknownShape, (TF_ShapeInferenceContext *, TF_Status *))       \
    X(TF_KernelBuilder *, NewKernelBuilder,                                                        \
      (const char *, const char *, tf_create_t, tf_compute_t, tf_delete_t))                        \
    X(TF_KernelBuilder *, NewAsyncKernelBuilder,                                                   \
      (const char *, const char *, tf_create_t, tf_compute_async_t, tf_delete_t))                  \
    X(void, RegisterKernelBuilder, (const char *, TF_KernelBuilder *, TF_Status *))                \
    X(void, RunAsyncOpKernelDoneCallback, (TF_AsyncOpKernelDoneCallback *))                        \
    X(int, NumInputs, (TF_OpKernelContext *))                                                      \
    X(void, GetInput, (TF_OpKernelContext *, int, TF_Tensor **, TF_Status *))                      \
    X(uint64_t, GetFrameId, (TF_OpKernelContext *))                                                \
    X(int64_t, GetIterId, (TF_OpKernelContext *))                                                  \
    X(TF_Tensor *, AllocateOutput,                                                                 \
      (TF_OpKernelContext *, int, TF_DataType, const int64_t *, int, size_t, TF_Status *))         \
    X(TF_Tensor *, ForwardInputOrAllocateOutput,                                                   \
      (TF_OpKernelContext *, const int *, int, int, const int64_t *, int, int *, TF_Status *))     \
    X(void, OpKernelContext_Failure, (TF_OpKernelContext *, TF_Status *))                          \
    X(void, OpKernelConstruction_Failure, (TF_OpKernelConstruction *, TF_Status *))                \
    X(TF_StringView, OpKernelConstruction_GetName, (TF_OpKernelConstruction *))                    \
    X(void, OpKernelConstruction_GetAttrType,                                                      \
      (TF_OpKernelConstruction *, const char *, TF_DataType *, TF_Status *))                       \
    X(void, OpKernelConstruction_GetAttrInt64,                                                     \
      (TF_OpKernelConstruction *, const char *, int64_t *, TF_Status *))                           \
    X(void, OpKernelConstruction_GetAttrSize,                                                      \
      (TF_OpKernelConstruction *, const char *, int32_t *, int32_t *, TF_Status *))                \
    X(void, OpKernelConstruction_GetAttrString,                                                    \
      (TF_OpKernelConstruction *, const char *, char *, size_t, TF_Status *))

struct hlf_abi {
#define MEMBER(result, name, parameters) result(*name) parameters;
    HALAY_TF_FUNCTIONS(MEMBER)
#undef MEMBER
};

extern struct hlf_abi hlf_tf;

/* Fills hlf_tf. NULL, or a sentence that says what is missing. */
const char *hlf_abi_load(void);

#endif
