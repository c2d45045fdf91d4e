/* SPDX-License-Identifier: Apache-2.0 */
/* Compiles where bindings/xla/ffi.h declares what the installed jaxlib's own header does. */
#include <assert.h>

#include <xla/ffi/api/c_api.h>

#include <ffi.h>

#define AT(ours, member, theirs, their_member)                                                     \
    static_assert(offsetof(struct ours, member) == offsetof(theirs, their_member), #member);       \
    static_assert(sizeof(((struct ours *)0)->member) == sizeof(((theirs *)0)->their_member),       \
                  "size of " #member)
#define SAME(ours, theirs) static_assert((int)(ours) == (int)(theirs), #ours)

static_assert(XLA_FFI_API_MAJOR == HLX_FFI_MAJOR, "version");
SAME(HLX_FFI_ABORTED, XLA_FFI_Error_Code_ABORTED);
SAME(HLX_FFI_PRED, XLA_FFI_DataType_PRED);
SAME(HLX_FFI_S8, XLA_FFI_DataType_S8);
SAME(HLX_FFI_S16, XLA_FFI_DataType_S16);
SAME(HLX_FFI_S32, XLA_FFI_DataType_S32);
SAME(HLX_FFI_S64, XLA_FFI_DataType_S64);
SAME(HLX_FFI_U8, XLA_FFI_DataType_U8);
SAME(HLX_FFI_U16, XLA_FFI_DataType_U16);
SAME(HLX_FFI_U32, XLA_FFI_DataType_U32);
SAME(HLX_FFI_U64, XLA_FFI_DataType_U64);
SAME(HLX_FFI_F16, XLA_FFI_DataType_F16);
SAME(HLX_FFI_F32, XLA_FFI_DataType_F32);
SAME(HLX_FFI_F64, XLA_FFI_DataType_F64);
SAME(HLX_FFI_C64, XLA_FFI_DataType_C64);
SAME(HLX_FFI_BF16, XLA_FFI_DataType_BF16);
SAME(HLX_FFI_C128, XLA_FFI_DataType_C128);
SAME(HLX_FFI_EXTENSION_METADATA, XLA_FFI_Extension_Metadata);
SAME(HLX_FFI_BUFFER, XLA_FFI_ArgType_BUFFER);
SAME(HLX_FFI_BUFFER, XLA_FFI_RetType_BUFFER);
SAME(HLX_FFI_ATTR_SCALAR, XLA_FFI_AttrType_SCALAR);
SAME(HLX_FFI_ATTR_STRING, XLA_FFI_AttrType_STRING);
SAME(HLX_FFI_EXECUTE, XLA_FFI_ExecutionStage_EXECUTE);

AT(hlx_ffi_extension, type, XLA_FFI_Extension_Base, type);
AT(hlx_ffi_extension, next, XLA_FFI_Extension_Base, next);
AT(hlx_ffi_version, major_version, XLA_FFI_Api_Version, major_version);
AT(hlx_ffi_version, minor_version, XLA_FFI_Api_Version, minor_version);
AT(hlx_ffi_error_create, message, XLA_FFI_Error_Create_Args, message);
AT(hlx_ffi_error_create, errc, XLA_FFI_Error_Create_Args, errc);
AT(hlx_ffi_error_destroy, error, XLA_FFI_Error_Destroy_Args, error);
AT(hlx_ffi_future_create, future, XLA_FFI_Future_Create_Args, future);
AT(hlx_ffi_future_available, future, XLA_FFI_Future_SetAvailable_Args, future);
AT(hlx_ffi_future_error, future, XLA_FFI_Future_SetError_Args, future);
AT(hlx_ffi_future_error, error, XLA_FFI_Future_SetError_Args, error);
AT(hlx_ffi_run_id, context, XLA_FFI_RunId_Get_Args, ctx);
AT(hlx_ffi_run_id, run_id, XLA_FFI_RunId_Get_Args, run_id);
AT(hlx_ffi_api, api_version, XLA_FFI_Api, api_version);
AT(hlx_ffi_api, error_create, XLA_FFI_Api, XLA_FFI_Error_Create);
AT(hlx_ffi_api, error_destroy, XLA_FFI_Api, XLA_FFI_Error_Destroy);
AT(hlx_ffi_api, future_create, XLA_FFI_Api, XLA_FFI_Future_Create);
AT(hlx_ffi_api, future_set_available, XLA_FFI_Api, XLA_FFI_Future_SetAvailable);
AT(hlx_ffi_api, future_set_error, XLA_FFI_Api, XLA_FFI_Future_SetError);
AT(hlx_ffi_api, run_id_get, XLA_FFI_Api, XLA_FFI_RunId_Get);
AT(hlx_ffi_buffer, dtype, XLA_FFI_Buffer, dtype);
AT(hlx_ffi_buffer, data, XLA_FFI_Buffer, data);
AT(hlx_ffi_buffer, rank, XLA_FFI_Buffer, rank);
AT(hlx_ffi_buffer, dims, XLA_FFI_Buffer, dims);
AT(hlx_ffi_values, size, XLA_FFI_Args, size);
AT(hlx_ffi_values, types, XLA_FFI_Args, types);
AT(hlx_ffi_values, values, XLA_FFI_Args, args);
AT(hlx_ffi_values, values, XLA_FFI_Rets, rets);
AT(hlx_ffi_span, ptr, XLA_FFI_ByteSpan, ptr);
AT(hlx_ffi_span, len, XLA_FFI_ByteSpan, len);
AT(hlx_ffi_scalar, dtype, XLA_FFI_Scalar, dtype);
AT(hlx_ffi_scalar, value, XLA_FFI_Scalar, value);
AT(hlx_ffi_attrs, size, XLA_FFI_Attrs, size);
AT(hlx_ffi_attrs, types, XLA_FFI_Attrs, types);
AT(hlx_ffi_attrs, names, XLA_FFI_Attrs, names);
AT(hlx_ffi_attrs, attrs, XLA_FFI_Attrs, attrs);
AT(hlx_ffi_frame, extension_start, XLA_FFI_CallFrame, extension_start);
AT(hlx_ffi_frame, api, XLA_FFI_CallFrame, api);
AT(hlx_ffi_frame, context, XLA_FFI_CallFrame, ctx);
AT(hlx_ffi_frame, stage, XLA_FFI_CallFrame, stage);
AT(hlx_ffi_frame, args, XLA_FFI_CallFrame, args);
AT(hlx_ffi_frame, rets, XLA_FFI_CallFrame, rets);
AT(hlx_ffi_frame, attrs, XLA_FFI_CallFrame, attrs);
AT(hlx_ffi_frame, future, XLA_FFI_CallFrame, future);
AT(hlx_ffi_metadata, api_version, XLA_FFI_Metadata, api_version);
AT(hlx_ffi_metadata, traits, XLA_FFI_Metadata, traits);
AT(hlx_ffi_metadata_extension, metadata, XLA_FFI_Metadata_Extension, metadata);

/* XLA refuses structs that are shorter than its own. */
static_assert(sizeof(struct hlx_ffi_error_create) >= XLA_FFI_Error_Create_Args_STRUCT_SIZE, "");
static_assert(sizeof(struct hlx_ffi_future_create) >= XLA_FFI_Future_Create_Args_STRUCT_SIZE, "");
static_assert(sizeof(struct hlx_ffi_run_id) >= XLA_FFI_RunId_Get_Args_STRUCT_SIZE, "");
