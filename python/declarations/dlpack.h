/* SPDX-License-Identifier: Apache-2.0 */
/* DLPack's structures: dlpack.h of github.com/dmlc/dlpack, with pointers to functions as void *. */
typedef struct {
    int32_t device_type, device_id;
} DLDevice;
typedef struct {
    uint8_t code, bits;
    uint16_t lanes;
} DLDataType;
typedef struct {
    void *data;
    DLDevice device;
    int32_t ndim;
    DLDataType dtype;
    int64_t *shape, *strides;
    uint64_t byte_offset;
} DLTensor;
typedef struct {
    DLTensor dl_tensor;
    void *manager_ctx, *deleter;
} DLManagedTensor;
typedef struct {
    uint32_t major, minor;
    void *manager_ctx, *deleter;
    uint64_t flags;
    DLTensor dl_tensor;
} DLManagedTensorVersioned;
