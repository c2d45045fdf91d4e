/* SPDX-License-Identifier: Apache-2.0 */
/*
 * library.h - the calls of NCCL that are used, declared here, so that nothing of NCCL is needed to
 * build. Handles and streams are void *, types, operations and results int.
 */
#ifndef HLY_NCCL_LIBRARY_H
#define HLY_NCCL_LIBRARY_H

#include <stddef.h>

#include <halay/halay.h>

#include "groups/nccl/nccl.h"

#define HLY_NCCL_LIBRARY  "libnccl.so.2"
#define HLY_NCCL_ID_BYTES 128
#define HLY_NCCL_MAGIC    0xcafebeefu

enum { /* results */
       HLY_NCCL_OK = 0,
       HLY_NCCL_CUDA_ERROR,
       HLY_NCCL_SYSTEM_ERROR,
       HLY_NCCL_INTERNAL_ERROR,
       HLY_NCCL_INVALID_ARGUMENT,
       HLY_NCCL_INVALID_USAGE,
       HLY_NCCL_REMOTE_ERROR,
       HLY_NCCL_IN_PROGRESS
};

enum { HLY_NCCL_UNSET = -2147483647 - 1 };

typedef struct hly_nccl_id {
    char bytes[HLY_NCCL_ID_BYTES];
} hly_nccl_id_t;

/* As NCCL 2.18 has it. It says its size and version, so newer ones know what is not there. */
struct hly_nccl_config {
    size_t size;
    unsigned magic, version;
    int blocking, cga_cluster_size, min_ctas, max_ctas;
    const char *net_name;
    int split_share;
};

#define HLY_NCCL_CALLS(X)                                                                          \
    X(int, ncclGetVersion, (int *version))                                                         \
    X(const char *, ncclGetErrorString, (int result))                                              \
    X(const char *, ncclGetLastError, (void *comm))                                                \
    X(int, ncclGetUniqueId, (hly_nccl_id_t * id))                                                  \
    X(int, ncclCommInitRankConfig,                                                                 \
      (void **comm, int n, hly_nccl_id_t id, int rank, struct hly_nccl_config *config))            \
    X(int, ncclCommGetAsyncError, (void *comm, int *result))                                       \
    X(int, ncclCommFinalize, (void *comm))                                                         \
    X(int, ncclCommDestroy, (void *comm))                                                          \
    X(int, ncclCommAbort, (void *comm))                                                            \
    X(int, ncclGroupStart, (void))                                                                 \
    X(int, ncclGroupEnd, (void))                                                                   \
    X(int, ncclAllReduce,                                                                          \
      (const void *in, void *out, size_t count, int type, int op, void *comm, void *stream))       \
    X(int, ncclReduceScatter,                                                                      \
      (const void *in, void *out, size_t count, int type, int op, void *comm, void *stream))       \
    X(int, ncclReduce,                                                                             \
      (const void *in, void *out, size_t count, int type, int op, int root, void *comm,            \
       void *stream))                                                                              \
    X(int, ncclAllGather,                                                                          \
      (const void *in, void *out, size_t count, int type, void *comm, void *stream))               \
    X(int, ncclBroadcast,                                                                          \
      (const void *in, void *out, size_t count, int type, int root, void *comm, void *stream))     \
    X(int, ncclSend, (const void *in, size_t count, int type, int peer, void *comm, void *stream)) \
    X(int, ncclRecv, (void *out, size_t count, int type, int peer, void *comm, void *stream))

#define HLY_NCCL_POINTER(result, name, arguments) result(*name) arguments;
struct hly_nccl_library {
    void *handle; /* NULL: not opened */
    int version;  /* 21805: 2.18.5 */
    HLY_NCCL_CALLS(HLY_NCCL_POINTER)
};

/* Opens it by this name; NULL or "": libnccl.so.2, the one that the program has loaded if it has.
 * HALAY_EUNSUPPORTED: it is not there or too old, and `why` says so. */
int hly_nccl_library_open(struct hly_nccl_library *library, const char *name, char *why,
                          size_t why_bytes);
void hly_nccl_library_close(struct hly_nccl_library *library);

/* NCCL's number of a type, or of an operation; -1: it has none. */
int hly_nccl_type(halay_type_t type);
int hly_nccl_op(halay_op_t op);

#endif
