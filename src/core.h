/* SPDX-License-Identifier: Apache-2.0 */
/*
 * core.h - the objects of the core and who owns whom.
 *
 *   context -> transport, device, boot, peers, certificates, communicators
 *   comm    -> group, plan cache, window of calls
 *   request -> one call in its comm's window: the plan being executed
 *
 * Everything below is protected by context->mutex, but for the fields said to be constant. A
 * function named hly_* expects the mutex to be held unless it says otherwise.
 */
#ifndef HLY_CORE_H
#define HLY_CORE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <halay/boot.h>
#include <halay/device.h>
#include <halay/halay.h>
#include <halay/plan.h>
#include <halay/transport.h>

#include "both.h"
#include "due.h"
#include "fault.h"
#include "habit.h"
#include "layout.h"
#include "series.h"
#include "wire.h"

#define HLY_WORKS_KEPT      320 /* steps of plans whose work is kept for the next call */
#define HLY_WINDOW          16  /* calls of one communicator that may be running on this rank */
#define HLY_SLOTS           64  /* headers up to window + HLY_SERIES ahead: series.h */
#define HLY_CONTROL_MAX     32  /* neighbours in the control graph: log2 of the ranks, at most */
#define HLY_ORPHANS_MAX     65536
#define HLY_COMMS_MAX       65536
#define HLY_FREED_MAX       64
#define HLY_WAYS            2   /* transports: inside the node, between nodes */
#define HLY_PLANS_MAX       256 /* kept a communicator */
#define HLY_PROVE_WHOLE_MAX 512 /* ranks whose plans are proved together */
#define HLY_LANDINGS_MAX    65536
#define HLY_RANGES_MAX      256          /* that the program keeps registered */
#define HLY_SCRATCHES_MAX   64           /* of requests, beside those */
#define HLY_GRACE_NS        400000000ull /* for the others to agree on a dead or an absent rank */
#define HLY_GRACE_MAX_NS    2000000000ull

enum hly_level { HLY_ERROR = 0, HLY_WARN = 1, HLY_INFO = 2, HLY_TRACE = 3 };

struct hly_link { /* of a circular list; an element in no list points to itself */
    struct hly_link *next, *prev;
};

/* ---------------------------------------------------------------- peers and what is sent
 * to them */

struct hly_out;

/* An open transport. Two ranks reach each other over the same one: the node table decides. */
struct hly_way {
    const halay_transport_ops_t *ops;
    halay_transport_t *transport;
    halay_transport_attr_t attr; /* eager_bytes: of one message */
    size_t unannounced_bytes;    /* in one message or several */
    halay_traffic_t traffic;
    struct hly_hello hello; /* to each peer, first */
};

struct hly_peer { /* lives as long as the context */
    struct hly_peer *hash_next;
    halay_peer_id_t id;
    int world_rank;
    struct hly_way *way; /* the transport that reaches it. Constant */
    halay_ep_t *ep;      /* on that transport, or NULL */
    bool greeted;        /* the hello is on its way */
    bool dead;
    uint64_t alarm;          /* number of the failure that it was last told of */
    struct hly_link queue;   /* of hly_out that the transport did not take yet */
    struct hly_link waiting; /* in context->busy_peers while queue is not empty */
    char evidence[256];      /* why it is dead */
};

enum hly_out_kind {
    HLY_OUT_CONTROL,
    HLY_OUT_EAGER,
    HLY_OUT_STAGED,
    HLY_OUT_PUT,
    HLY_OUT_TAGGED,
    HLY_OUT_DEVICE
};

struct hly_places {
    const char *in, *out, *scratch;
    uint64_t op;
};

struct hly_segment {
    char *address;
    size_t bytes;
};

/* Where an operand is: `offset` bytes into its buffer; what wraps is in the second segment. */
struct hly_span {
    size_t offset;
    struct hly_segment segment[2];
};

/* Something under way: a message not accepted or not complete yet, or work of a device. */
struct hly_out {
    struct hly_link link; /* peer->queue, or request->flying, or the free list */
    enum hly_out_kind kind;
    struct hly_peer *peer;
    halay_request_t *request; /* NULL: control */
    uint32_t step;
    struct hly_header header;
    struct hly_segment segment[2];
    uint64_t sent_bytes; /* STAGED, EAGER: accepted so far */
    uint32_t flying;     /* transport completions to come */
    int status;          /* first failure of those */
    bool accepted;       /* nothing left to hand to the transport */
    bool held;           /* lent to the end of its call, which waits for it; its step is done */
    bool revoke;         /* PUT, TAGGED: answer REVOKED when it is complete */
    uint64_t revoke_cookie;
    struct hly_ready ready; /* PUT, TAGGED */
    uint32_t payload_bytes; /* CONTROL: of the payload that follows in `payload` */
    unsigned char payload[sizeof(struct hly_verdict_wire)];
};

/* A message that came before it could be used. */
struct hly_stash {
    struct hly_link link;
    halay_peer_id_t peer;
    struct hly_header header;
    size_t bytes;
    unsigned char data[] __attribute__((aligned(16)));
};

/* Where an announced message goes; its number and generation travel as cookie and immediate. */
struct hly_landing {
    halay_request_t *request; /* NULL: free */
    struct hly_peer *peer;
    uint32_t step;
    uint16_t generation;
    uint8_t mode;
    bool revoking;           /* the call has failed: waits for the sender's answer */
    bool tag_posted;         /* TAGGED: the transport still has the buffer */
    bool sent;               /* TAGGED: and the sender says that the bytes are on their way */
    halay_mem_t *mem;        /* made for it alone */
    struct hly_range *range; /* or what it lies in, which stays registered */
    uint32_t next_free;
};

/* Memory that stays registered: mem.c. */
struct hly_range {
    char *address;
    size_t bytes;  /* 0: a free place */
    size_t mapped; /* of halay_mem_alloc, to be unmapped; else 0 */
    uint32_t generation;
    uint32_t landings; /* open, in it */
    bool scratch;      /* of a request */
    bool refused[HLY_WAYS];
    bool lent[HLY_WAYS];        /* by this transport, as long as there is mem */
    halay_mem_t *mem[HLY_WAYS]; /* NULL: not registered there, or not any more */
};

/* ---------------------------------------------------------------- calls */

/* Of the user; context->user_ops. */
struct hly_op {
    struct hly_op *next;
    halay_op_t number;
    halay_op_fn *fn;
    void *arg;
    size_t group;
    bool commutative;
    uint32_t users; /* requests */
};

struct hly_vector { /* counts NULL: the blocks of the other buffer are as large */
    const size_t *counts, *displs;
};

struct hly_blocks { /* bytes; of each rank's block */
    size_t *offset, *bytes;
};

struct hly_call {
    struct hly_brief brief;
    uint64_t signature;
    const void *in;
    void *out;
    struct hly_vector vector[2]; /* v forms, while the call is being made: of IN, of OUT */
    bool local_in_place;         /* at the root of reduce, gather, scatter: nobody else's affair */
    bool aside;                  /* the result may not be written before the input was read */
    struct hly_op *user;         /* NULL: the operation is one of halay.h's */
    double prescale, postscale;  /* HLY_BRIEF_SCALED */
};

struct hly_step_run;

struct hly_plan { /* a plan admitted for one communicator: proved, with its peers looked up */
    struct hly_plan *next;
    uint32_t planner, root, in_place;
    halay_plan_t *plan;
    uint64_t hash;           /* what the certificate says */
    struct hly_peer **peers; /* for each step; NULL where it has none */
    uint32_t *successors;    /* successors of step i: successor_first[i] .. [i + 1] */
    uint32_t *successor_first;
    uint32_t *table; /* open addressing over (kind, peer, edge) -> step */
    uint32_t table_mask;
    struct hly_step_run *fresh; /* all steps as they are before the start */
    uint32_t *ready;            /* steps without predecessors */
    uint32_t nready;
    uint32_t ahead;     /* the step whose message may go ahead of its tile; HALAY_STEP_NONE: none */
    bool lone;          /* it receives one message, if there is `straight`: */
    uint16_t *straight; /* its steps, as straight.c does them; NULL: they are too many */
    uint16_t reader[HLY_WORKS_KEPT]; /* of what each writes: readers.h; if there is `straight` */
    uint32_t running;                /* requests that use it now */
    halay_request_t *spare;          /* requests that can be used again */
};

enum hly_step_state { HLY_WAITS = 0, HLY_STARTED, HLY_DONE };

struct hly_step_run {
    uint64_t arrived; /* RECV: bytes; REDUCE, COPY: pieces that the device holds, 1 more till it
                         has taken all */
    uint8_t state;
    uint8_t pending;     /* predecessors not done yet */
    uint8_t pieces;      /* REDUCE, COPY: that the device has taken */
    uint32_t landing;    /* RECV: index + 1 */
    struct hly_out *out; /* SEND: what will carry it, once announced and until it is on its way */
};

/* Can the request's call be made again by straight.c? */
enum { HLY_STRAIGHT_UNKNOWN = 0, HLY_STRAIGHT_YES, HLY_STRAIGHT_NO };
enum { HLY_BEFORE_NOTHING = 0, HLY_BEFORE_DUE, HLY_BEFORE_FLYING };
/* In this order. */
enum { HLY_AFTER_DIVIDE = 1, HLY_AFTER_MULTIPLY = 2, HLY_AFTER_MOVE = 4 };
enum hly_request_state {
    HLY_IDLE = 0,
    HLY_QUEUED,
    HLY_RUNNING,
    HLY_SCALING,
    HLY_FAILING,
    HLY_COMPLETE
};

struct halay_request {
    uint32_t magic;           /* constant, as long as there is the memory */
    halay_context_t *context; /* so too */
    uint64_t generation;      /* request.c */
    enum hly_request_state state;
    bool given;                /* the program has a handle */
    bool persistent;           /* lives until halay_request_free() */
    bool refused;              /* `early` was there from the beginning */
    bool bound;                /* places, spans and works are those of `call` */
    uint8_t straight;          /* HLY_STRAIGHT_* */
    uint64_t repeated;         /* hly_checked.number that it is known to repeat; 0: none */
    struct hly_bundle *bundle; /* it is a part of this group */
    struct hly_bundle *group;  /* it stands for this group */
    halay_comm_t *comm;
    halay_request_t *next; /* spare list, or queue of the communicator */
    struct hly_call call;
    struct hly_header header; /* of its eager messages, but for edge and cookie */
    uint32_t sequence;
    struct hly_tiles tiles;
    int result;
    bool ran;              /* `run` is valid */
    bool runs;             /* hly_engine_run is at it */
    bool doubts;           /* hly_series_doubt */
    bool large;            /* more than the caches hold */
    bool in_turn;          /* straight.c takes each message when its step is there */
    bool foreseen;         /* made on a communicator known to be broken: no news */
    struct hly_plan *plan; /* NULL where the arguments allow none */
    char *in, *out, *scratch, *own_scratch; /* the last: allocated for it; or peers map scratch */
    size_t scratch_bytes;
    bool told; /* what its plan sends from there goes to many: best if peers map it */
    size_t slot_bytes;
    size_t element_bytes;
    halay_work_t *works;            /* of each step, once it was done in one piece; or NULL */
    struct hly_span *spans;         /* of each operand of the plan */
    struct hly_places places;       /* for which both hold; and the spans' sizes: */
    uint64_t laid_count, laid_tile; /* of the call, of the tile */
    uint8_t laid_type;
    bool laid_out;
    size_t laid_group;
    size_t unit_bytes; /* of a block; of the first long_blocks an element more */
    uint32_t long_blocks;
    size_t *tables; /* v forms, else NULL: memory of */
    struct hly_blocks block[2];
    char *home; /* where OUT goes in the end: r->out, but for a result kept aside */
    size_t result_bytes;
    uint64_t started_ns, deadline_ns;
    struct hly_explained *explained; /* HALAY_EXPLAIN: where its time is noted; else NULL */
    struct hly_verdict_wire *early;  /* it cannot be started, only failed; NULL: it can */
    uint8_t before;                  /* HLY_BEFORE_*: scaling, before any step */
    uint8_t after;                   /* HLY_AFTER_*: what is left to be done to the result */
    uint32_t steps_done;
    uint32_t ready_head, ready_tail;
    uint32_t *ready; /* queue of startable steps; each enters once */
    struct hly_step_run *run;
    struct hly_both both;
    struct hly_due due;     /* of a plan with one, as long as straight.c finds all as it was */
    struct hly_link flying; /* hly_out that the transport or the device holds */
    uint32_t landings;      /* open */
    struct hly_link link;   /* context->requests while running */
    struct hly_link posted; /* context->posted until released */
};

struct hly_slot {
    uint32_t sequence;
    halay_request_t *request; /* NULL: not made yet */
    bool complete;            /* and forgotten once all older ones are */
    bool settled;             /* has failed here, or those who fail know that it has not */
    bool unheard;             /* others need not have made it when it is complete: series.h */
    struct hly_link stash;
    struct hly_fault *fault; /* NULL: all is well */
    struct hly_room room;
};

struct hly_run { /* of world ranks */
    int first_rank, first_world, stride, count;
};

struct hly_group { /* ranks of a communicator: group.c says in which form */
    size_t bytes;  /* of all of it */
    int nranks;
    uint32_t nruns; /* in word[]; 0: there is a table, */
    uint32_t width; /* of so many bits a rank */
    uint64_t word[];
};

struct halay_comm {
    uint32_t magic;
    uint64_t id;
    halay_context_t *context;
    struct hly_link link; /* context->comms, or ->freed_comms */
    halay_comm_t *hash_next;
    struct hly_group *group;
    int rank, nranks;
    uint32_t nnodes;   /* that its ranks are on: all that selection asks of its shape. Constant */
    bool scattered;    /* some node's ranks are not consecutive. Constant */
    uint32_t crowded;  /* 1: all on one node with more ranks than processors; 2: and one processor.
                          Constant */
    uint32_t children; /* made of it so far */
    bool persists;     /* the next call makes a persistent request: persistent.c */
    halay_request_t *blocking; /* its address alone has a meaning: api.h */
    uint32_t npersistent;      /* such requests */
    uint64_t deadline_ns;
    uint32_t next_sequence; /* of the next call */
    uint32_t oldest;        /* first call that is not complete */
    uint32_t heard;         /* those before it have been made by all ranks */
    uint32_t started;       /* first call that is not started */
    struct hly_slot slots[HLY_SLOTS];
    halay_request_t *queue_head, *queue_tail; /* beyond the window */
    struct hly_plan *plans;
    uint32_t nplans;
    struct hly_brief last_brief;  /* of the last call, which ran this plan */
    struct hly_plan *last_plan;   /* or NULL */
    struct hly_plan *last_series; /* of the same in a series; last_plan: that; NULL: not known */
    struct hly_series series;
    struct hly_checked checked; /* the last call whose arguments were looked at: api.c */
    uint64_t checks;            /* how many were */
    struct hly_habit habits[HLY_HABITS];
    uint32_t habit;                  /* the next one to be forgotten */
    struct hly_predicted *predicted; /* algorithms by size class: HALAY_SELECTION=model */
    struct hly_explained *explained; /* HALAY_EXPLAIN: what was measured */
    uint64_t foreign_sequence;       /* 1 + highest sequence that others were heard of */
    bool broken; /* the ranks are not all there or not in step: every later call fails */
    struct hly_verdict_wire broken_by;
    struct hly_failure last;
    bool failed;               /* `last` is valid */
    halay_comm_t *parent;      /* of a hidden one, for messages between two ranks (api_pair.c) */
    int pair[2];               /* then: the parent's rank that sends, and the one that receives */
    struct hly_link pairs;     /* the hidden ones made of this */
    struct hly_link pair_link; /* parent->pairs */
    halay_comm_t *inner;       /* hidden: where members of groups run (group_call.c), or NULL */
    halay_comm_t *outer;       /* of a hidden one: whose members run here */
    struct hly_bundle *bundle; /* the group that is being collected, or NULL */
    struct hly_link bundles;   /* groups whose members wait for the ranks to agree */
};

/* ---------------------------------------------------------------- context */

struct hly_certificate {
    struct hly_certificate *next;
    uint32_t planner, version, nranks, rank, root, in_place;
    uint64_t shape; /* hash; 0 where the planner asks for none */
    uint64_t hash;
};

struct hly_settings {
    uint64_t deadline_ns;
    uint64_t start_deadline_ns; /* HALAY_START_DEADLINE */
    int level;                  /* HALAY_DEBUG */
    char isa[16];
    char transport[32]; /* HALAY_TRANSPORT */
    char plugin_dir[256];
    char algorithm[512];
    char rows[256], model[256];   /* HALAY_SELECTION, HALAY_MODEL */
    halay_selection_t *selection; /* of the three */
    bool explain;                 /* HALAY_EXPLAIN */
};

struct halay_context {
    uint32_t magic;
    pthread_mutex_t mutex;
    pthread_cond_t cond; /* followers: see progress.c */
    atomic_int want;     /* threads that wait for the mutex */
    bool watcher;        /* a thread sleeps on the descriptors */
    bool kicked;         /* and has been woken, because another thread polled: it arms anew */
    bool roused;         /* and something was said to all who sleep: it goes back to its caller */
    int pollers;         /* threads that poll in a loop */
    int followers;
    bool woken; /* halay_context_wake() was called: the next sleep is skipped */
    int wake_fd;
    volatile uint32_t *alive; /* 1; a page that is wiped in a forked child. Constant */
    struct hly_settings settings;
    halay_boot_info_t info; /* constant after init */
    const halay_boot_ops_t *boot_ops;
    halay_boot_t *boot;
    struct hly_way ways[HLY_WAYS]; /* constant after init, but for what they count */
    int nways;                     /* 0 with one rank */
    const halay_device_ops_t *device_ops;
    halay_device_t *device;
    uint32_t device_flying;
    void *plugins[4]; /* dlopened */
    int nplugins;
    int ncpus;
    int dealt; /* to so many processors the ranks of one node are bound in turn; 0: not so */
    size_t cache_bytes; /* of the last level; a guess where nobody knows */

    struct hly_peer **peer_table; /* hash of ids, power of two */
    uint32_t peer_mask, npeers;
    struct hly_link busy_peers;
    struct hly_link comms;
    uint32_t ncomms;
    halay_comm_t *comm_table[256];
    struct hly_link freed_comms; /* the last HLY_FREED_MAX: a freed handle stays recognisable */
    uint32_t nfreed;
    halay_comm_t *world;
    struct hly_link requests; /* running or failing */
    struct hly_link requests_idle;
    struct hly_link posted;  /* all that the program has not waited for */
    bool lost;               /* the transport itself has failed: every call ends at once */
    struct hly_link orphans; /* stashed messages of communicators not made yet */
    uint64_t alarms;         /* failures that this rank has entered */
    uint64_t gone_ids[64];   /* of communicators whose memory is used again */
    uint32_t ngone, norphans;
    struct hly_link outs_free, outs_flying; /* unused; control messages with the transport */
    struct hly_landing *landings;
    uint32_t nlandings, landing_free;     /* index + 1 */
    struct hly_range *ranges;             /* PLACES of mem.c, or NULL */
    const struct hly_way *lender;         /* of the event that is being taken in, if it is LENT */
    uint32_t places;                      /* of them, that have been used */
    bool scratch_refused, shared_refused; /* memory for registrations has run out; for shared */
    struct hly_range *shared;     /* scratch that peers map, made when it is first of use; */
    halay_request_t *shared_user; /* of the call that runs with it, or did so last */
    struct hly_certificate *certificates;
    struct hly_op *user_ops;
    uint32_t nuser_ops, user_ops_made;
    uint64_t now_ns, timer_ns; /* last look at the clock; when timers are looked at next */
    uint32_t polls, haste;     /* haste: waits poll for 2 to the power of -haste of the time */
    halay_counters_t counters;
};

#define HLY_CONTEXT_MAGIC 0x48414c59u
#define HLY_COMM_MAGIC    0x434f4d4du
#define HLY_COMM_FREED    0x46524545u
#define HLY_REQUEST_MAGIC 0x52455155u

/* ---------------------------------------------------------------- util.c */

uint64_t hly_now_ns(void);
uint64_t hly_about_now_ns(void); /* a few milliseconds late, and cheap */
uint64_t hly_hash(uint64_t seed, const void *data, size_t bytes);
void hly_log(halay_context_t *context, int level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void hly_log_text(void *context, int level, const char *text); /* a halay_log_fn */
static inline bool hly_forked(const halay_context_t *context)
{
    return *context->alive == 0;
}

static inline void hly_link_init(struct hly_link *l)
{
    l->next = l->prev = l;
}
static inline bool hly_link_empty(const struct hly_link *l)
{
    return l->next == l;
}
static inline void hly_link_append(struct hly_link *list, struct hly_link *l)
{
    l->prev = list->prev;
    l->next = list;
    list->prev->next = l;
    list->prev = l;
}
static inline void hly_link_remove(struct hly_link *l)
{
    l->prev->next = l->next;
    l->next->prev = l->prev;
    hly_link_init(l);
}
#define HLY_OF(link_, type_, member_) ((type_ *)((char *)(link_)-offsetof(type_, member_)))

/* ---------------------------------------------------------------- settings.c, loader.c */

int hly_settings_read(struct hly_settings *settings, const halay_config_t *config, char *error,
                      size_t error_bytes);
void hly_settings_show(halay_context_t *context);
/* Finds a plug-in's table: kind "transport", "boot"; the reason goes to error. */
int hly_plugin_load(halay_context_t *context, const char *kind, const char *name,
                    const char *symbol_prefix, const void **table, char *error, size_t error_bytes);
/* Ranks that a launcher's environment promises, who it is, and the bootstrap that finds them; 1 if
 * there is no launcher. */
int hly_launcher_announced(const char **plugin, const char **launcher, const char **remedy);

/* ---------------------------------------------------------------- way.c, between.c, peer.c,
 * channel.c */

int hly_ways_open(halay_context_t *context, const halay_config_t *config, char *why,
                  size_t why_bytes);
void hly_ways_close(halay_context_t *context);
/* How this world rank is reached, the same seen from there; and where it listens, if wanted. */
struct hly_way *hly_way_of(halay_context_t *context, int world_rank, halay_address_t *address);
void hly_ways_text(const halay_context_t *context, char *text, size_t bytes);

/* The transport between nodes that ranks choose alike; why it is that; the rows. */
enum { HLY_BETWEEN_BYTES = 448 };
const char *hly_between(const halay_context_t *context);
void hly_between_text(const halay_context_t *context, char *text, size_t bytes);
/* Where only some nodes have RDMA nobody uses it; one rank says so. */
void hly_between_warn(halay_context_t *context);
void hly_between_rows(char *text, size_t bytes);

int hly_peer_get(halay_context_t *context, int world_rank, struct hly_peer **peer);
struct hly_peer *hly_peer_find(halay_context_t *context, halay_peer_id_t id);
/* A communicator made after one of its ranks was lost. */
void hly_peer_break_comm(halay_comm_t *comm);
halay_peer_id_t hly_peer_id(const halay_context_t *context, int world_rank);
/* The transport has lost the peer, known here or not. */
void hly_peer_failed(halay_context_t *context, halay_peer_id_t id, const char *text);

int hly_out_more(halay_context_t *context);
struct hly_out *hly_out_new(halay_context_t *context, enum hly_out_kind kind,
                            struct hly_peer *peer);
/* The one that hly_out_new() gives next, whose address can be a cookie already. NULL: no memory. */
static inline struct hly_out *hly_out_next(halay_context_t *context)
{
    if (hly_link_empty(&context->outs_free) && hly_out_more(context))
        return NULL;
    return HLY_OF(context->outs_free.next, struct hly_out, link);
}
/*
 * An eager message with the request's header, without a struct hly_out unless the transport holds
 * the memory: HALAY_OK, the step is done; HALAY_INPROGRESS, it is flying; less: nothing was sent,
 * it has to be submitted.
 */
int hly_out_at_once(halay_request_t *request, uint32_t step, const struct hly_segment *segment);
/* Is nothing in the way of one now? */
bool hly_out_can(const halay_request_t *request, uint32_t step);
/* Then: one whose payload lies in the transport's place, or is lent and held. Less than HALAY_OK:
 * nothing was sent. */
int hly_out_ahead(halay_request_t *request, uint32_t step, struct hly_segment payload);
void hly_out_free(halay_context_t *context, struct hly_out *out);
void hly_out_cancel(halay_context_t *context, struct hly_out *out);
void hly_header_fill(struct hly_header *header, const halay_comm_t *comm, enum hly_kind kind,
                     uint32_t sequence, uint32_t edge, const struct hly_call *call);
void hly_out_submit(halay_context_t *context, struct hly_out *out);
void hly_out_complete(halay_context_t *context, struct hly_out *out, int status);
void hly_channel_flush(halay_context_t *context);
/* A message without data of the user; payload is copied. Never fails: it is queued. */
void hly_control_send(halay_comm_t *comm, int to, enum hly_kind kind, uint32_t sequence,
                      uint32_t edge, uint64_t cookie, const struct hly_call *call,
                      const void *payload, size_t payload_bytes);

void hly_channel_send(halay_request_t *request, uint32_t step);
void hly_channel_recv(halay_request_t *request, uint32_t step);
int hly_channel_poll(halay_context_t *context);
/* Takes in what the transport's poll has returned. Returns how many events. */
int hly_channel_take(halay_context_t *context, const struct hly_way *way,
                     const halay_event_t events[], int n);
/* The message with this header belongs to a STARTED recv / send step. */
void hly_channel_land(halay_request_t *request, uint32_t step, uint64_t offset, const void *data,
                      size_t bytes);
void hly_channel_announced(halay_request_t *request, uint32_t step, const struct hly_header *header,
                           const struct hly_ready *ready);
void hly_channel_piece(halay_context_t *context, const struct hly_header *header, const void *data,
                       size_t bytes, struct hly_peer *peer);
/* The sender's and the receiver's half of withdrawing a landing. */
void hly_channel_revoke(halay_comm_t *comm, halay_request_t *request,
                        const struct hly_header *header);
void hly_channel_revoked(halay_context_t *context, const struct hly_header *header,
                         struct hly_peer *peer);
/* Cancels what the transport does not hold, withdraws what was announced. */
void hly_channel_withdraw(halay_request_t *request);
/* The same without asking anyone, when the time for asking is over. */
void hly_channel_force(halay_request_t *request);
void hly_channel_peer_dead(halay_context_t *context, struct hly_peer *peer);

/* ---------------------------------------------------------------- match.c */

void hly_match(halay_context_t *context, const struct hly_header *header, const void *data,
               size_t bytes, halay_peer_id_t peer);
/* What came for this call before it was made; and for a communicator that has just been made. */
void hly_match_stashed(halay_request_t *request, uint32_t from_step);
void hly_match_posted(halay_request_t *request);
void hly_match_orphans(halay_comm_t *comm);
void hly_match_forget(halay_context_t *context, struct hly_link *stash);

/* ---------------------------------------------------------------- engine.c */

/* A request for the call, IDLE, with all bound that can be; an argument error is kept in it. */
int hly_engine_make(halay_comm_t *comm, const struct hly_call *call, int argument_error,
                    const char *argument_text, halay_request_t **request);
/* Its next call on the communicator: it is running, queued or failing after it. */
void hly_engine_go(halay_request_t *request);
/* Both. */
int hly_engine_post(halay_comm_t *comm, struct hly_call *call, int argument_error,
                    const char *argument_text, halay_request_t **request);
void hly_engine_step_done(halay_request_t *request, uint32_t step);
void hly_engine_run(halay_request_t *request);
/* The device has scaled the input; has done the last thing it was given to do to the result. */
void hly_engine_prescaled(halay_request_t *request);
void hly_engine_result(halay_request_t *request);
void hly_engine_finish(halay_request_t *request, int result);
/* Is its call the same, with the same memory? */
bool hly_request_repeats(const halay_request_t *request, const struct hly_call *call);
/* Hands a request back after its result was read. */
void hly_request_release(halay_request_t *request);
/* Frees it whatever its state, when the context goes. */
void hly_request_drop(halay_request_t *request);

/* Without a call, for a group. */
halay_request_t *hly_request_bare(halay_comm_t *comm);

/* ---------------------------------------------------------------- group_call.c */

/* The head of a group, or a member, is complete. */
void hly_group_part_done(halay_request_t *request);
/* The program has waited for it; the context goes. */
void hly_group_release(halay_request_t *request);
void hly_group_forget(struct hly_bundle *bundle);

/* ---------------------------------------------------------------- request.c */

/* All zero but for what request.c keeps. */
halay_request_t *hly_request_memory(halay_context_t *context);
/* Frees what it has, and keeps the memory. */
void hly_request_destroy(halay_request_t *request);
void hly_request_free_memory(halay_context_t *context);
/* What the program gets; and the request of a handle, with its context locked. */
halay_request_t *hly_request_handle(halay_request_t *request);
int hly_request_lock(halay_request_t *handle, halay_request_t **request);
/* The handle is not valid any more. */
void hly_request_retire(halay_request_t *request);

/* ---------------------------------------------------------------- layout.c */

bool hly_operand_wraps(const halay_plan_t *plan, const halay_operand_t *operand);

/* Two of them, by the operand's number in the plan; the second one may be empty. */
static inline const struct hly_segment *hly_operand_segments(const halay_request_t *request,
                                                             uint32_t operand)
{
    return request->spans[operand].segment;
}
static inline size_t hly_operand_bytes(const halay_request_t *request, uint32_t operand)
{
    const struct hly_segment *segment = hly_operand_segments(request, operand);
    return segment[0].bytes + segment[1].bytes;
}

/* The plan works in place. */
static inline bool hly_call_in_place(const struct hly_call *call)
{
    return (call->brief.flags & HLY_BRIEF_IN_PLACE && !call->aside) || call->local_in_place;
}

/* ---------------------------------------------------------------- plancache, select, explain_run
 */

/* reason: why nobody serves it. */
int hly_select(halay_comm_t *comm, const struct hly_call *call, uint32_t *planner, char *reason,
               size_t reason_bytes);
struct hly_ask;
void hly_select_ask(const halay_comm_t *comm, const struct hly_call *call, struct hly_ask *ask);
void hly_select_forget(halay_comm_t *comm);
/* HALAY_EXPLAIN, on rank 0 of a communicator: tells why the first call of a kind gets its plan,
 * notes how long each takes, and at the end tells how far the model was off. */
void hly_explain_call(halay_request_t *request);
void hly_explain_done(halay_request_t *request);
void hly_explain_end(halay_comm_t *comm);
int hly_plan_admit(halay_comm_t *comm, uint32_t planner, const struct hly_call *call,
                   struct hly_plan **plan, char *reason, size_t reason_bytes);
uint32_t hly_plan_step(const struct hly_plan *plan, uint32_t kind, uint32_t peer, uint32_t edge);
void hly_plan_drop_all(halay_comm_t *comm);
/* 0 if the plan's bytes are those of the certificate, else HALAY_EPLAN. */
int hly_plan_check(const struct hly_plan *plan);

/* ---------------------------------------------------------------- mem.c */

/* The transport's, for one transfer. */
int hly_mem_register(halay_context_t *context, const struct hly_way *way, void *address,
                     size_t bytes, halay_mem_t **mem);
/* What the segment of a running request lies in, registered with this transport; or NULL. */
struct hly_range *hly_range_of(const halay_request_t *request, const struct hly_way *way,
                               const struct hly_segment *segment);
/* Its key dies here and now. */
void hly_range_revoke(halay_context_t *context, struct hly_range *range, const struct hly_way *way);
/* At least so much, where there is none. */
int hly_scratch_alloc(halay_request_t *request, size_t bytes, size_t alignment);
void hly_scratch_free(halay_request_t *request);
/* When the context goes: before the transports do, and after. */
void hly_ranges_withdraw(halay_context_t *context);
void hly_ranges_free(halay_context_t *context);

/* ---------------------------------------------------------------- op.c */

void hly_ops_free(halay_context_t *context);

/* ---------------------------------------------------------------- shape.c */

/* Which of its ranks share a node; memory of O(ranks), so only while plans are made. */
int hly_comm_shape(const halay_comm_t *comm, halay_shape_t **shape);
/* Fills what selection asks at each call. */
int hly_comm_count_nodes(halay_comm_t *comm);

/* ---------------------------------------------------------------- comm.c */

int hly_comm_create(halay_context_t *context, uint64_t id, struct hly_group *group, int rank,
                    uint64_t deadline_ns, halay_comm_t **comm);
void hly_comm_destroy(halay_comm_t *comm);
halay_comm_t *hly_comm_find(halay_context_t *context, uint64_t id);
int hly_comm_world_rank(const halay_comm_t *comm, int rank);
int hly_comm_rank_of(const halay_comm_t *comm, int world_rank);        /* -1: not in it */
struct hly_slot *hly_comm_slot(halay_comm_t *comm, uint32_t sequence); /* NULL: out of the window */
/* The number of a rank of this communicator in the one that the program knows. */
int hly_comm_shown_rank(const halay_comm_t *comm, int rank);

/* Of one that has started. */
static inline struct hly_slot *hly_request_slot(const halay_request_t *request)
{
    return &request->comm->slots[request->sequence % HLY_SLOTS];
}

/* ---------------------------------------------------------------- group.c */

int hly_group_make(const int world_ranks[], int nranks, struct hly_group **group);
int hly_group_copy(const struct hly_group *group, struct hly_group **copy);
int hly_group_world_rank(const struct hly_group *group, int rank);
int hly_group_rank_of(const struct hly_group *group, int world_rank); /* -1: not in it */

/* ---------------------------------------------------------------- progress.c */

void hly_lock(halay_context_t *context);
void hly_unlock(halay_context_t *context);
int hly_progress(halay_context_t *context); /* how many things happened */
int hly_device_poll(halay_context_t *context);
void hly_wait(halay_request_t *request);
void hly_sleep(halay_context_t *context, uint64_t timeout_ns);
void hly_wake(halay_context_t *context);

#endif
