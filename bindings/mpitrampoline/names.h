/* SPDX-License-Identifier: Apache-2.0 */
/*
 * names.h - every name that MPItrampoline looks up (MPI ABI 2.9 and 2.10): it ends the process
 * where one is missing. Made of the lists of its versions 5.3.1 and 5.5.0. Constants have the
 * values that we give them.
 */
#ifndef HALAY_MPI_NAMES_H
#define HALAY_MPI_NAMES_H

/* clang-format off */
/* int MPI_NAME, and its value. */
#define MPI_INTS(X) \
    X(ANY_SOURCE, -2) X(ANY_TAG, -1) X(PROC_NULL, -3) X(ROOT, -4) X(CART, 1) X(DIST_GRAPH, 2)      \
    X(GRAPH, 3) X(CONGRUENT, 1) X(IDENT, 0) X(SIMILAR, 2) X(UNEQUAL, 3) X(BSEND_OVERHEAD, 0)       \
    X(KEYVAL_INVALID, -1) X(UNDEFINED, -32766) X(APPNUM, 4) X(HOST, 5) X(IO, 6)                    \
    X(LASTUSEDCODE, 7) X(TAG_UB, 8) X(UNIVERSE_SIZE, 9) X(WIN_BASE, 10)                            \
    X(WIN_CREATE_FLAVOR, 11) X(WIN_DISP_UNIT, 12) X(WIN_MODEL, 13) X(WIN_SIZE, 14)                 \
    X(WTIME_IS_GLOBAL, 15) X(COMBINER_CONTIGUOUS, 16) X(COMBINER_DARRAY, 17)                       \
    X(COMBINER_DUP, 18) X(COMBINER_F90_COMPLEX, 19) X(COMBINER_F90_INTEGER, 20)                    \
    X(COMBINER_F90_REAL, 21) X(COMBINER_HINDEXED, 22) X(COMBINER_HINDEXED_BLOCK, 23)               \
    X(COMBINER_HVECTOR, 24) X(COMBINER_INDEXED, 25) X(COMBINER_INDEXED_BLOCK, 26)                  \
    X(COMBINER_NAMED, 27) X(COMBINER_RESIZED, 28) X(COMBINER_STRUCT, 29)                           \
    X(COMBINER_SUBARRAY, 30) X(COMBINER_VECTOR, 31) X(COMM_TYPE_SHARED, 32)                        \
    X(DISTRIBUTE_BLOCK, 33) X(DISTRIBUTE_CYCLIC, 34) X(DISTRIBUTE_DFLT_DARG, 35)                   \
    X(DISTRIBUTE_NONE, 36) X(ERR_ACCESS, 1) X(ERR_AMODE, 2) X(ERR_ARG, 3) X(ERR_ASSERT, 4)         \
    X(ERR_BAD_FILE, 5) X(ERR_BASE, 6) X(ERR_BUFFER, 7) X(ERR_COMM, 8) X(ERR_CONVERSION, 9)         \
    X(ERR_COUNT, 10) X(ERR_DIMS, 11) X(ERR_DISP, 12) X(ERR_DUP_DATAREP, 13) X(ERR_FILE, 14)        \
    X(ERR_FILE_EXISTS, 15) X(ERR_FILE_IN_USE, 16) X(ERR_GROUP, 17) X(ERR_INFO, 18)                 \
    X(ERR_INFO_KEY, 19) X(ERR_INFO_NOKEY, 20) X(ERR_INFO_VALUE, 21) X(ERR_INTERN, 22)              \
    X(ERR_IN_STATUS, 23) X(ERR_IO, 24) X(ERR_KEYVAL, 25) X(ERR_LASTCODE, 16383)                    \
    X(ERR_LOCKTYPE, 27) X(ERR_NAME, 28) X(ERR_NOT_SAME, 29) X(ERR_NO_MEM, 30)                      \
    X(ERR_NO_SPACE, 31) X(ERR_NO_SUCH_FILE, 32) X(ERR_OP, 33) X(ERR_OTHER, 34)                     \
    X(ERR_PENDING, 35) X(ERR_PORT, 36) X(ERR_QUOTA, 37) X(ERR_RANK, 38) X(ERR_READ_ONLY, 39)       \
    X(ERR_REQUEST, 40) X(ERR_RMA_ATTACH, 41) X(ERR_RMA_CONFLICT, 42) X(ERR_RMA_FLAVOR, 43)         \
    X(ERR_RMA_RANGE, 44) X(ERR_RMA_SHARED, 45) X(ERR_RMA_SYNC, 46) X(ERR_ROOT, 47)                 \
    X(ERR_SERVICE, 48) X(ERR_SIZE, 49) X(ERR_SPAWN, 50) X(ERR_TAG, 51) X(ERR_TOPOLOGY, 52)         \
    X(ERR_TRUNCATE, 53) X(ERR_TYPE, 54) X(ERR_UNKNOWN, 55) X(ERR_UNSUPPORTED_DATAREP, 56)          \
    X(ERR_UNSUPPORTED_OPERATION, 57) X(ERR_WIN, 58) X(SUCCESS, 0) X(LOCK_EXCLUSIVE, 37)            \
    X(LOCK_SHARED, 38) X(MODE_APPEND, 1) X(MODE_CREATE, 2) X(MODE_DELETE_ON_CLOSE, 4)              \
    X(MODE_EXCL, 8) X(MODE_NOCHECK, 16) X(MODE_NOPRECEDE, 32) X(MODE_NOPUT, 64)                    \
    X(MODE_NOSTORE, 128) X(MODE_NOSUCCEED, 256) X(MODE_RDONLY, 512) X(MODE_RDWR, 1024)             \
    X(MODE_SEQUENTIAL, 2048) X(MODE_UNIQUE_OPEN, 4096) X(MODE_WRONLY, 8192) X(ORDER_C, 39)         \
    X(ORDER_FORTRAN, 40) X(SEEK_CUR, 41) X(SEEK_END, 42) X(SEEK_SET, 43) X(THREAD_FUNNELED, 1)     \
    X(THREAD_MULTIPLE, 3) X(THREAD_SERIALIZED, 2) X(THREAD_SINGLE, 0) X(TYPECLASS_COMPLEX, 44)     \
    X(TYPECLASS_INTEGER, 45) X(TYPECLASS_REAL, 46) X(WIN_FLAVOR_ALLOCATE, 47)                      \
    X(WIN_FLAVOR_CREATE, 48) X(WIN_FLAVOR_DYNAMIC, 49) X(WIN_FLAVOR_SHARED, 50)                    \
    X(WIN_SEPARATE, 51) X(WIN_UNIFIED, 52)

/* MPI_Datatype MPI_NAME, and what it is here; HALAY_TYPE_COUNT: nothing. */
#define MPI_DATATYPES(X) \
    X(2DOUBLE_PRECISION, HALAY_TYPE_COUNT) X(2INT, HALAY_TYPE_COUNT)                               \
    X(2INTEGER, HALAY_TYPE_COUNT) X(2REAL, HALAY_TYPE_COUNT) X(AINT, HALAY_TYPE_COUNT)             \
    X(BYTE, HALAY_UINT8) X(CHAR, HALAY_INT8) X(CHARACTER, HALAY_TYPE_COUNT)                        \
    X(COMPLEX, HALAY_TYPE_COUNT) X(COMPLEX16, HALAY_TYPE_COUNT) X(COMPLEX32, HALAY_TYPE_COUNT)     \
    X(COMPLEX8, HALAY_TYPE_COUNT) X(COUNT, HALAY_TYPE_COUNT) X(CXX_BOOL, HALAY_TYPE_COUNT)         \
    X(CXX_DOUBLE_COMPLEX, HALAY_TYPE_COUNT) X(CXX_FLOAT_COMPLEX, HALAY_TYPE_COUNT)                 \
    X(CXX_LONG_DOUBLE_COMPLEX, HALAY_TYPE_COUNT) X(C_BOOL, HALAY_BOOL)                             \
    X(C_COMPLEX, HALAY_COMPLEX64) X(C_DOUBLE_COMPLEX, HALAY_COMPLEX128)                            \
    X(C_FLOAT_COMPLEX, HALAY_COMPLEX64) X(C_LONG_DOUBLE_COMPLEX, HALAY_TYPE_COUNT)                 \
    X(DATATYPE_NULL, HALAY_TYPE_COUNT) X(DOUBLE, HALAY_FLOAT64)                                    \
    X(DOUBLE_COMPLEX, HALAY_TYPE_COUNT) X(DOUBLE_INT, HALAY_TYPE_COUNT)                            \
    X(DOUBLE_PRECISION, HALAY_TYPE_COUNT) X(FLOAT, HALAY_FLOAT32)                                  \
    X(FLOAT_INT, HALAY_TYPE_COUNT) X(INT, HALAY_INT32) X(INT16_T, HALAY_INT16)                     \
    X(INT32_T, HALAY_INT32) X(INT64_T, HALAY_INT64) X(INT8_T, HALAY_INT8)                          \
    X(INTEGER, HALAY_TYPE_COUNT) X(INTEGER1, HALAY_TYPE_COUNT) X(INTEGER2, HALAY_TYPE_COUNT)       \
    X(INTEGER4, HALAY_TYPE_COUNT) X(INTEGER8, HALAY_TYPE_COUNT) X(LOGICAL, HALAY_TYPE_COUNT)       \
    X(LONG, HALAY_INT64) X(LONG_DOUBLE, HALAY_TYPE_COUNT) X(LONG_DOUBLE_INT, HALAY_TYPE_COUNT)     \
    X(LONG_INT, HALAY_TYPE_COUNT) X(LONG_LONG, HALAY_INT64) X(LONG_LONG_INT, HALAY_INT64)          \
    X(OFFSET, HALAY_TYPE_COUNT) X(PACKED, HALAY_TYPE_COUNT) X(REAL, HALAY_TYPE_COUNT)              \
    X(REAL16, HALAY_TYPE_COUNT) X(REAL4, HALAY_TYPE_COUNT) X(REAL8, HALAY_TYPE_COUNT)              \
    X(SHORT, HALAY_INT16) X(SHORT_INT, HALAY_TYPE_COUNT) X(SIGNED_CHAR, HALAY_INT8)                \
    X(UINT16_T, HALAY_UINT16) X(UINT32_T, HALAY_UINT32) X(UINT64_T, HALAY_UINT64)                  \
    X(UINT8_T, HALAY_UINT8) X(UNSIGNED, HALAY_UINT32) X(UNSIGNED_CHAR, HALAY_UINT8)                \
    X(UNSIGNED_LONG, HALAY_UINT64) X(UNSIGNED_LONG_LONG, HALAY_UINT64)                             \
    X(UNSIGNED_SHORT, HALAY_UINT16) X(WCHAR, HALAY_TYPE_COUNT)

/* MPI_Op MPI_NAME, and what it is here; HALAY_OP_COUNT: nothing. */
#define MPI_OPS(X) \
    X(BAND, HALAY_BAND) X(BOR, HALAY_BOR) X(BXOR, HALAY_BXOR) X(LAND, HALAY_LAND)                  \
    X(LOR, HALAY_LOR) X(LXOR, HALAY_LXOR) X(MAX, HALAY_MAX) X(MAXLOC, HALAY_OP_COUNT)              \
    X(MIN, HALAY_MIN) X(MINLOC, HALAY_OP_COUNT) X(NO_OP, HALAY_OP_COUNT)                           \
    X(OP_NULL, HALAY_OP_COUNT) X(PROD, HALAY_PROD) X(REPLACE, HALAY_OP_COUNT) X(SUM, HALAY_SUM)

/* Handles, addresses and functions, and their values: 0 is none, or nothing to be ignored. */
#define MPI_WORDS(X) \
    X(ARGV_NULL, 0) X(ARGVS_NULL, 0) X(ERRCODES_IGNORE, 0) X(UNWEIGHTED, 0) X(WEIGHTS_EMPTY, 0)    \
    X(BOTTOM, 0) X(IN_PLACE, UINTPTR_MAX) X(COMM_NULL, 0) X(COMM_SELF, SELF)                       \
    X(COMM_WORLD, WORLD) X(COMM_DUP_FN, 0) X(COMM_NULL_COPY_FN, 0) X(COMM_NULL_DELETE_FN, 0)       \
    X(DUP_FN, 0) X(NULL_COPY_FN, 0) X(CONVERSION_FN_NULL, 0) X(NULL_DELETE_FN, 0)                  \
    X(ERRHANDLER_NULL, 0) X(ERRORS_ARE_FATAL, 2) X(ERRORS_RETURN, 1) X(FILE_NULL, 0)               \
    X(F_STATUS_IGNORE, 0) X(F_STATUSES_IGNORE, 0) X(GROUP_EMPTY, 0) X(GROUP_NULL, 0)               \
    X(INFO_ENV, 0) X(INFO_NULL, 0) X(MESSAGE_NO_PROC, 0) X(MESSAGE_NULL, 0)                        \
    X(DISPLACEMENT_CURRENT, 0) X(REQUEST_NULL, 0) X(STATUS_IGNORE, 0) X(STATUSES_IGNORE, 0)        \
    X(TYPE_DUP_FN, 0) X(TYPE_NULL_COPY_FN, 0) X(TYPE_NULL_DELETE_FN, 0) X(WIN_NULL, 0)             \
    X(WIN_DUP_FN, 0) X(WIN_NULL_COPY_FN, 0) X(WIN_NULL_DELETE_FN, 0)

/* Functions that are not offered. */
#define MPI_REFUSED(X) \
    X(Send) X(Recv) X(Get_count) X(Bsend) X(Ssend) X(Rsend) X(Buffer_attach) X(Buffer_detach)      \
    X(Ibsend) X(Issend) X(Irsend) X(Test) X(Request_free) X(Waitany) X(Testany) X(Waitall)         \
    X(Testall) X(Waitsome) X(Testsome) X(Request_get_status) X(Iprobe) X(Probe) X(Improbe)         \
    X(Mprobe) X(Mrecv) X(Imrecv) X(Cancel) X(Test_cancelled) X(Send_init) X(Bsend_init)            \
    X(Ssend_init) X(Rsend_init) X(Recv_init) X(Start) X(Startall) X(Sendrecv_replace)              \
    X(Type_contiguous) X(Type_vector) X(Type_create_hvector) X(Type_indexed)                       \
    X(Type_create_hindexed) X(Type_create_indexed_block) X(Type_create_hindexed_block)             \
    X(Type_create_struct) X(Type_struct) X(Type_create_subarray) X(Type_create_darray)             \
    X(Get_address) X(Aint_add) X(Aint_diff) X(Type_size) X(Type_size_x) X(Type_get_extent)         \
    X(Type_get_extent_x) X(Type_create_resized) X(Type_get_true_extent)                            \
    X(Type_get_true_extent_x) X(Type_commit) X(Type_free) X(Type_dup) X(Get_elements)              \
    X(Get_elements_x) X(Type_get_envelope) X(Type_get_contents) X(Pack) X(Unpack) X(Pack_size)     \
    X(Pack_external) X(Unpack_external) X(Pack_external_size) X(Barrier) X(Bcast) X(Gather)        \
    X(Gatherv) X(Scatter) X(Scatterv) X(Allgatherv) X(Alltoall) X(Alltoallv) X(Alltoallw)          \
    X(Reduce) X(Op_create) X(Op_free) X(Op_commutative) X(Reduce_local) X(Reduce_scatter_block)    \
    X(Scan) X(Exscan) X(Ibarrier) X(Ibcast) X(Igather) X(Igatherv) X(Iscatter) X(Iscatterv)        \
    X(Iallgather) X(Iallgatherv) X(Ialltoall) X(Ialltoallv) X(Ialltoallw) X(Ireduce)               \
    X(Iallreduce) X(Ireduce_scatter_block) X(Ireduce_scatter) X(Iscan) X(Iexscan) X(Group_size)    \
    X(Group_rank) X(Group_translate_ranks) X(Group_compare) X(Comm_group) X(Group_union)           \
    X(Group_intersection) X(Group_difference) X(Group_incl) X(Group_excl) X(Group_range_incl)      \
    X(Group_range_excl) X(Group_free) X(Comm_compare) X(Comm_dup) X(Comm_dup_with_info)            \
    X(Comm_idup) X(Comm_create) X(Comm_create_group) X(Comm_split_type) X(Comm_set_info)           \
    X(Comm_get_info) X(Comm_test_inter) X(Comm_remote_size) X(Comm_remote_group)                   \
    X(Intercomm_create) X(Intercomm_merge) X(Comm_create_keyval) X(Comm_free_keyval)               \
    X(Comm_set_attr) X(Comm_get_attr) X(Comm_delete_attr) X(Win_create_keyval)                     \
    X(Win_free_keyval) X(Win_set_attr) X(Win_get_attr) X(Win_delete_attr) X(Type_create_keyval)    \
    X(Type_free_keyval) X(Type_set_attr) X(Type_get_attr) X(Type_delete_attr) X(Comm_set_name)     \
    X(Comm_get_name) X(Type_set_name) X(Type_get_name) X(Win_set_name) X(Win_get_name)             \
    X(Cart_create) X(Dims_create) X(Graph_create) X(Dist_graph_create_adjacent)                    \
    X(Dist_graph_create) X(Topo_test) X(Graphdims_get) X(Graph_get) X(Cartdim_get) X(Cart_get)     \
    X(Cart_rank) X(Cart_coords) X(Graph_neighbors_count) X(Graph_neighbors)                        \
    X(Dist_graph_neighbors_count) X(Dist_graph_neighbors) X(Cart_shift) X(Cart_sub) X(Cart_map)    \
    X(Graph_map) X(Neighbor_allgather) X(Neighbor_allgatherv) X(Neighbor_alltoall)                 \
    X(Neighbor_alltoallv) X(Neighbor_alltoallw) X(Ineighbor_allgather) X(Ineighbor_allgatherv)     \
    X(Ineighbor_alltoall) X(Ineighbor_alltoallv) X(Ineighbor_alltoallw) X(Get_processor_name)      \
    X(Alloc_mem) X(Free_mem) X(Comm_create_errhandler) X(Comm_set_errhandler)                      \
    X(Comm_get_errhandler) X(Win_create_errhandler) X(Win_set_errhandler) X(Win_get_errhandler)    \
    X(File_create_errhandler) X(File_set_errhandler) X(File_get_errhandler) X(Errhandler_free)     \
    X(Add_error_class) X(Add_error_code) X(Add_error_string) X(Comm_call_errhandler)               \
    X(Win_call_errhandler) X(File_call_errhandler) X(Info_create) X(Info_set) X(Info_delete)       \
    X(Info_get) X(Info_get_valuelen) X(Info_get_nkeys) X(Info_get_nthkey) X(Info_dup)              \
    X(Info_free) X(Comm_spawn) X(Comm_get_parent) X(Comm_spawn_multiple) X(Open_port)              \
    X(Close_port) X(Comm_accept) X(Comm_connect) X(Publish_name) X(Unpublish_name)                 \
    X(Lookup_name) X(Comm_disconnect) X(Comm_join) X(Win_create) X(Win_allocate)                   \
    X(Win_allocate_shared) X(Win_shared_query) X(Win_create_dynamic) X(Win_attach)                 \
    X(Win_detach) X(Win_free) X(Win_get_group) X(Win_set_info) X(Win_get_info) X(Put) X(Get)       \
    X(Accumulate) X(Get_accumulate) X(Fetch_and_op) X(Compare_and_swap) X(Rput) X(Rget)            \
    X(Raccumulate) X(Rget_accumulate) X(Win_fence) X(Win_start) X(Win_complete) X(Win_post)        \
    X(Win_wait) X(Win_test) X(Win_lock) X(Win_lock_all) X(Win_unlock) X(Win_unlock_all)            \
    X(Win_flush) X(Win_flush_all) X(Win_flush_local) X(Win_flush_local_all) X(Win_sync)            \
    X(Grequest_start) X(Grequest_complete) X(Status_set_elements) X(Status_set_elements_x)         \
    X(Status_set_cancelled) X(File_open) X(File_close) X(File_delete) X(File_set_size)             \
    X(File_preallocate) X(File_get_size) X(File_get_group) X(File_get_amode) X(File_set_info)      \
    X(File_get_info) X(File_set_view) X(File_get_view) X(File_read_at) X(File_read_at_all)         \
    X(File_write_at) X(File_write_at_all) X(File_iread_at) X(File_iread_at_all)                    \
    X(File_iwrite_at) X(File_iwrite_at_all) X(File_read) X(File_read_all) X(File_write)            \
    X(File_write_all) X(File_iread) X(File_iread_all) X(File_iwrite) X(File_iwrite_all)            \
    X(File_seek) X(File_get_position) X(File_get_byte_offset) X(File_read_shared)                  \
    X(File_write_shared) X(File_iread_shared) X(File_iwrite_shared) X(File_read_ordered)           \
    X(File_write_ordered) X(File_seek_shared) X(File_get_position_shared)                          \
    X(File_read_at_all_begin) X(File_read_at_all_end) X(File_write_at_all_begin)                   \
    X(File_write_at_all_end) X(File_read_all_begin) X(File_read_all_end)                           \
    X(File_write_all_begin) X(File_write_all_end) X(File_read_ordered_begin)                       \
    X(File_read_ordered_end) X(File_write_ordered_begin) X(File_write_ordered_end)                 \
    X(File_get_type_extent) X(Register_datarep) X(File_set_atomicity) X(File_get_atomicity)        \
    X(File_sync) X(Type_create_f90_real) X(Type_create_f90_complex) X(Type_create_f90_integer)     \
    X(Type_match_size) X(Comm_f2c) X(Comm_c2f) X(Type_f2c) X(Type_c2f) X(Group_f2c)                \
    X(Group_c2f) X(Request_f2c) X(Request_c2f) X(File_f2c) X(File_c2f) X(Win_f2c) X(Win_c2f)       \
    X(Op_f2c) X(Op_c2f) X(Info_f2c) X(Info_c2f) X(Errhandler_f2c) X(Errhandler_c2f)                \
    X(Message_f2c) X(Message_c2f) X(Status_f2c) X(Status_c2f)

/* MPIX_NAME: is there support for ...? */
#define MPIX_NO(X) \
    X(Query_cuda_support) X(Query_hip_support) X(Query_rocm_support) X(Query_ze_support)
/* clang-format on */

#endif
