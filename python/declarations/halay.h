/* SPDX-License-Identifier: Apache-2.0 */
/* What Python uses of halay.h and training.h: declarations as they stand there, without comments.
 */
#define HALAY_TENSOR_NAME_MAX 256
#define HALAY_DIMS_MAX        7

enum {
    HALAY_OK = 0,
    HALAY_INPROGRESS = 1,
    HALAY_EINVAL = -1,
    HALAY_ENOMEM = -2,
    HALAY_EUNSUPPORTED = -3,
    HALAY_ESTATE = -4,
    HALAY_EMISMATCH = -5,
    HALAY_ETIMEOUT = -6,
    HALAY_EPEER = -7,
    HALAY_ETRANSPORT = -8,
    HALAY_EBOOT = -9,
    HALAY_EFORKED = -10,
    HALAY_EPLAN = -11,
    HALAY_EAGAIN = -12,
    HALAY_EINTERNAL = -13,
    HALAY_EDEVICE = -14,
    HALAY_EREVOKED = -15,
    HALAY_EOVER = -16
};

const char *halay_strerror(int code);
const char *halay_version(void);

typedef enum halay_type {
    HALAY_INT8 = 0,
    HALAY_UINT8,
    HALAY_INT16,
    HALAY_UINT16,
    HALAY_INT32,
    HALAY_UINT32,
    HALAY_INT64,
    HALAY_UINT64,
    HALAY_BOOL,
    HALAY_FLOAT16,
    HALAY_BFLOAT16,
    HALAY_FLOAT32,
    HALAY_FLOAT64,
    HALAY_COMPLEX64,
    HALAY_COMPLEX128,
    HALAY_FLOAT32_INT32,
    HALAY_FLOAT64_INT64,
    HALAY_INT32_INT32,
    HALAY_INT64_INT64,
    HALAY_TYPE_COUNT
} halay_type_t;

typedef enum halay_op {
    HALAY_SUM = 0,
    HALAY_PROD,
    HALAY_MIN,
    HALAY_MAX,
    HALAY_AVERAGE,
    HALAY_LAND,
    HALAY_LOR,
    HALAY_LXOR,
    HALAY_BAND,
    HALAY_BOR,
    HALAY_BXOR,
    HALAY_MINLOC,
    HALAY_MAXLOC,
    HALAY_OP_COUNT,
    HALAY_OP_USER = 0x10000,
    HALAY_OP_USER_LAST = 0x3fffffff
} halay_op_t;

const char *halay_type_name(halay_type_t type);
const char *halay_op_name(halay_op_t op);
int halay_op_takes(halay_op_t op, halay_type_t type);

typedef struct halay_context halay_context_t;
typedef struct halay_comm halay_comm_t;

typedef struct halay_config {
    size_t size;
    const struct halay_boot_ops *boot;
    void *boot_arg;
    const struct halay_transport_ops *transport;
    const char *transport_options;
    const struct halay_device_ops *device;
    void *device_arg;
    uint64_t deadline_ns;
    const char *algorithm;
    const char *isa;
    char *error;
    size_t error_bytes;
    const struct halay_group_ops *group;
    void *group_arg;
} halay_config_t;

typedef struct halay_boot_rank {
    size_t size;
    int rank, nranks;
    const char *address;
    const char *secret;
    int (*allgather)(void *context, const void *in, void *out, size_t bytes, void **request);
    int (*test)(void *request);
    int (*free)(void *request);
    void *context;
} halay_boot_rank_t;

int halay_init(const halay_config_t *config, halay_context_t **context);
int halay_init_shared(const halay_config_t *config, halay_context_t **context);
int halay_finalize(halay_context_t *context);
int halay_leave(halay_context_t *context);
int halay_context_progress(halay_context_t *context, uint64_t timeout_ns);
void halay_context_wake(halay_context_t *context);

typedef uint64_t halay_range_t;
int halay_mem_register(halay_context_t *context, void *address, size_t bytes, halay_range_t *range);
int halay_mem_deregister(halay_context_t *context, halay_range_t range);
int halay_mem_alloc(halay_context_t *context, size_t bytes, void **address);
int halay_mem_free(halay_context_t *context, void *address);

typedef struct halay_topology {
    size_t size;
    int rank, nranks;
    int local_rank, local_nranks;
    int node, nnodes;
    char host[64];
    char launcher[32];
    char transport[32];
    int oversubscribed;
} halay_topology_t;

int halay_context_topology(const halay_context_t *context, halay_topology_t *topology);
int halay_newcomers(halay_context_t *context, int *count);

int halay_comm_world(halay_context_t *context, halay_comm_t **comm);
int halay_comm_from_ranks(halay_comm_t *comm, const int ranks[], int n, halay_comm_t **subset);
int halay_comm_dup(halay_comm_t *comm, halay_comm_t **dup);
int halay_comm_free(halay_comm_t *comm);

typedef struct halay_verdict {
    size_t size;
    int code;
    int rank;
    int other;
    uint32_t sequence;
    char host[64];
    char text[512];
} halay_verdict_t;

int halay_comm_verdict(const halay_comm_t *comm, halay_verdict_t *verdict);

int halay_allreduce(const void *in, void *out, size_t count, halay_type_t type, halay_op_t op,
                    halay_comm_t *comm);
int halay_broadcast(void *buffer, size_t count, halay_type_t type, int root, halay_comm_t *comm);
int halay_allgather(const void *in, void *out, size_t count, halay_type_t type, halay_comm_t *comm);
int halay_reduce_scatter(const void *in, void *out, size_t count, halay_type_t type, halay_op_t op,
                         halay_comm_t *comm);
int halay_alltoall(const void *in, void *out, size_t count, halay_type_t type, halay_comm_t *comm);
int halay_reduce(const void *in, void *out, size_t count, halay_type_t type, halay_op_t op,
                 int root, halay_comm_t *comm);
int halay_scan(const void *in, void *out, size_t count, halay_type_t type, halay_op_t op,
               halay_comm_t *comm);
int halay_exscan(const void *in, void *out, size_t count, halay_type_t type, halay_op_t op,
                 halay_comm_t *comm);
int halay_allgatherv(const void *in, void *out, const size_t counts[], const size_t displs[],
                     halay_type_t type, halay_comm_t *comm);
int halay_gatherv(const void *in, void *out, const size_t counts[], const size_t displs[],
                  halay_type_t type, int root, halay_comm_t *comm);
int halay_scatterv(const void *in, void *out, const size_t counts[], const size_t displs[],
                   halay_type_t type, int root, halay_comm_t *comm);
int halay_reduce_scatterv(const void *in, void *out, const size_t counts[], halay_type_t type,
                          halay_op_t op, halay_comm_t *comm);
int halay_alltoallv(const void *in, const size_t in_counts[], const size_t in_displs[], void *out,
                    const size_t out_counts[], const size_t out_displs[], halay_type_t type,
                    halay_comm_t *comm);
int halay_gather(const void *in, void *out, size_t count, halay_type_t type, int root,
                 halay_comm_t *comm);
int halay_scatter(const void *in, void *out, size_t count, halay_type_t type, int root,
                  halay_comm_t *comm);
int halay_send(const void *buffer, size_t count, halay_type_t type, int peer, halay_comm_t *comm);
int halay_recv(void *buffer, size_t count, halay_type_t type, int peer, halay_comm_t *comm);
int halay_barrier(halay_comm_t *comm);

typedef struct halay_request halay_request_t;

int halay_iallreduce(const void *in, void *out, size_t count, halay_type_t type, halay_op_t op,
                     halay_comm_t *comm, halay_request_t **request);
int halay_ibroadcast(void *buffer, size_t count, halay_type_t type, int root, halay_comm_t *comm,
                     halay_request_t **request);
int halay_iallgatherv(const void *in, void *out, const size_t counts[], const size_t displs[],
                      halay_type_t type, halay_comm_t *comm, halay_request_t **request);
int halay_ialltoallv(const void *in, const size_t in_counts[], const size_t in_displs[], void *out,
                     const size_t out_counts[], const size_t out_displs[], halay_type_t type,
                     halay_comm_t *comm, halay_request_t **request);
int halay_request_wait(halay_request_t *request);
int halay_request_test(halay_request_t *request);

typedef struct halay_trainer halay_trainer_t;
typedef uint64_t halay_ticket_t;

int halay_trainer_create(halay_context_t *context, halay_comm_t *comm, halay_trainer_t **trainer);
void halay_trainer_destroy(halay_trainer_t *trainer);

typedef struct halay_dims {
    int ndims;
    size_t dims[7];
} halay_dims_t;

int halay_trainer_allreduce_shaped(halay_trainer_t *trainer, const char *name, const void *in,
                                   void *out, const halay_dims_t *shape, halay_type_t type,
                                   halay_op_t op, double prescale, double postscale,
                                   halay_ticket_t *ticket);
typedef struct halay_reduction {
    size_t size;
    const char *name;
    halay_dims_t shape;
    halay_type_t type;
    halay_op_t op;
    double prescale, postscale;
} halay_reduction_t;

int halay_trainer_allreduce_wait(halay_trainer_t *trainer, const halay_reduction_t *says,
                                 const void *in, void *out, char *text, size_t text_bytes);
int halay_trainer_broadcast_shaped(halay_trainer_t *trainer, const char *name, void *buffer,
                                   const halay_dims_t *shape, halay_type_t type, int root,
                                   halay_ticket_t *ticket);
int halay_trainer_allgather_shaped(halay_trainer_t *trainer, const char *name, const void *in,
                                   const halay_dims_t *shape, halay_type_t type,
                                   halay_ticket_t *ticket);
int halay_trainer_reduce_scatter(halay_trainer_t *trainer, const char *name, const void *in,
                                 void *out, const halay_dims_t *shape, halay_type_t type,
                                 halay_op_t op, double prescale, double postscale,
                                 halay_ticket_t *ticket);
int halay_trainer_alltoall(halay_trainer_t *trainer, const char *name, const void *in,
                           const size_t rows[], const halay_dims_t *shape, halay_type_t type,
                           halay_ticket_t *ticket);
int halay_trainer_barrier(halay_trainer_t *trainer, const char *name, halay_ticket_t *ticket);

int halay_trainer_join(halay_trainer_t *trainer, halay_ticket_t *ticket);
int halay_trainer_place(halay_trainer_t *trainer, const char *name, const char *place, int lasting);

typedef void (*halay_ticket_done_t)(void *arg, halay_ticket_t ticket);
int halay_trainer_on_done(halay_trainer_t *trainer, halay_ticket_t ticket, halay_ticket_done_t done,
                          void *arg);
int halay_trainer_poll(halay_trainer_t *trainer, halay_ticket_t ticket);
int halay_trainer_wait(halay_trainer_t *trainer, halay_ticket_t ticket, char *text,
                       size_t text_bytes);
int halay_trainer_result(halay_trainer_t *trainer, halay_ticket_t ticket, const void **data,
                         size_t *count, const size_t **rows);
void halay_trainer_release(halay_trainer_t *trainer, halay_ticket_t ticket);

typedef struct halay_trainer_counters {
    size_t size;
    uint64_t control_rounds, control_bytes;
    uint64_t calls;
    uint64_t votes;
    uint64_t fused_calls;
    uint64_t fused_tensors;
    uint64_t copied_bytes;
    uint64_t programmes;
    uint64_t cycles;
    uint64_t voids;
    uint64_t deals;
} halay_trainer_counters_t;
int halay_trainer_counters(halay_trainer_t *trainer, halay_trainer_counters_t *counters);

int halay_trainer_timeline_start(halay_trainer_t *trainer, const char *path, int mark_cycles);
int halay_trainer_timeline_share(halay_trainer_t *trainer, halay_trainer_t *of, const char *label);
int halay_trainer_timeline_span(halay_trainer_t *trainer, const char *name, uint64_t begin_ns,
                                uint64_t end_ns);

typedef struct halay_timeline_result {
    size_t size;
    uint64_t recorded, lost;
    int error;
} halay_timeline_result_t;

typedef struct halay_move {
    void *dst;
    const void *src;
    size_t count;
    halay_type_t type;
    uint32_t direction;
    double factor;
} halay_move_t;
int halay_local_moves(halay_context_t *context, uint32_t kind, const halay_move_t moves[],
                      size_t nmoves, uint64_t timeout_ns);
typedef struct halay_stream {
    size_t size;
    uint32_t kind;
    void *handle;
    uint64_t flags;
} halay_stream_t;
typedef struct halay_mark {
    void *state[8];
} halay_mark_t;
int halay_local_mark(halay_context_t *context, const halay_stream_t *stream, halay_mark_t *mark);
int halay_local_marked(halay_context_t *context, halay_mark_t *mark, uint64_t timeout_ns);
int halay_local_refuse(halay_comm_t *comm, int code, const char *text, halay_request_t **request);
int halay_local_on_wait(halay_context_t *context, int (*ask)(void *arg), void *arg);
void halay_local_unmark(halay_context_t *context, halay_mark_t *mark);
int halay_trainer_after(halay_trainer_t *trainer, const char *name, const halay_stream_t *stream);
int halay_mem_kind(halay_context_t *context, const void *address, size_t bytes, uint32_t *kind);

int halay_trainer_timeline_stop(halay_trainer_t *trainer, halay_timeline_result_t *result);

/* Of halay.distributed. */
int halay_comm_rank(const halay_comm_t *comm, int *rank);
int halay_comm_size(const halay_comm_t *comm, int *nranks);
int halay_comm_create_group(halay_comm_t *comm, const int ranks[], int n, uint64_t tag,
                            halay_comm_t **made);
int halay_comm_revoke(halay_comm_t *comm);
int halay_comm_agree(halay_comm_t *comm, int *flag);
int halay_comm_shrink(halay_comm_t *comm, halay_comm_t **survivors);
int halay_comm_failed(halay_comm_t *comm, int ranks[], int *n);
int halay_comm_set_deadline(halay_comm_t *comm, uint64_t deadline_ns);
int halay_comm_deadline(halay_comm_t *comm, uint64_t *deadline_ns);
int halay_iallgather(const void *in, void *out, size_t count, halay_type_t type, halay_comm_t *comm,
                     halay_request_t **request);
int halay_ireduce_scatter(const void *in, void *out, size_t count, halay_type_t type, halay_op_t op,
                          halay_comm_t *comm, halay_request_t **request);
int halay_ireduce_scatterv(const void *in, void *out, const size_t counts[], halay_type_t type,
                           halay_op_t op, halay_comm_t *comm, halay_request_t **request);
int halay_ireduce(const void *in, void *out, size_t count, halay_type_t type, halay_op_t op,
                  int root, halay_comm_t *comm, halay_request_t **request);
int halay_igather(const void *in, void *out, size_t count, halay_type_t type, int root,
                  halay_comm_t *comm, halay_request_t **request);
int halay_iscatter(const void *in, void *out, size_t count, halay_type_t type, int root,
                   halay_comm_t *comm, halay_request_t **request);
int halay_ialltoall(const void *in, void *out, size_t count, halay_type_t type, halay_comm_t *comm,
                    halay_request_t **request);
int halay_ibarrier(halay_comm_t *comm, halay_request_t **request);
int halay_isend(const void *buffer, size_t count, halay_type_t type, int peer, halay_comm_t *comm,
                halay_request_t **request);
int halay_irecv(void *buffer, size_t count, halay_type_t type, int peer, halay_comm_t *comm,
                halay_request_t **request);

int halay_group_begin(halay_comm_t *comm);
int halay_group_end(halay_comm_t *comm, halay_request_t **request);

int halay_comm_stream(halay_comm_t *comm, const halay_stream_t *stream);
