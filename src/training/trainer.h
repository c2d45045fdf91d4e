/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trainer.h - what the files of this folder share.
 *
 * Words.
 * - programme: the agreed order of fused groups that is replayed each step (a cached schedule).
 * - replay: the ranks run a programme, and do not ask each other what is ready.
 * - cycle: a programme is run through once; in training that is a step.
 * - round: the ranks announce to each other what they have submitted (a negotiation cycle).
 * - run: the tensors that a rank submits between two of its waits.
 * - vote: one word, reduced over all ranks: whether each rank has the tensors that come next.
 * - void: of a group whose tensors are not all here on some rank. The call is made all the same,
 *   its result says so, and every rank drops it.
 * - mark: elements behind a fused group's tensors that tell whether a rank was void.
 * - pool: what this rank has submitted in a replay and no group has taken yet.
 * - tape: what the ranks have agreed on in rounds, in its order; programmes are learnt from it.
 * - series: the tensors without a name of their own, told apart by a number.
 * - behind: of a tensor that stands behind a stream of the program, which has not come to it yet.
 * - stand-in: the zeros with which a rank that has joined takes part.
 *
 * Who may touch what. The mutex guards what callers see: the tensors' table, `submitted`, every
 * tensor's outcome, the timeline. What is marked "stepper" belongs to the one thread inside step()
 * (`stepping`), with or without the mutex. That role passes from thread to thread under the mutex.
 * No call into Halay is made with the mutex held.
 *
 * The way of a tensor: submitted (-> behind a stream) -> pending -> (announced in a round) waiting
 * -> (announced by all) ready -> (started) in one of `calls` -> done. While a programme is
 * replayed: pending -> pool -> calls -> done, and back to the pool where the group was void. It is
 * in one list at a time.
 */
#ifndef HLT_TRAINER_H
#define HLT_TRAINER_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "halay/halay.h"
#include "halay/local.h"
#include "halay/training.h"

enum {
    HLT_ROUND_ENTRIES = 16,  /* announcements of one rank in one round */
    HLT_CALLS = 12,          /* in flight; below the core's window of 16 */
    HLT_CHUNK_TENSORS = 256, /* tensors are allocated in chunks: they never move */
    HLT_CHUNKS = 256,        /* 65,536 tensors out at most */
    HLT_BUFFERS = 4,     /* fusion buffers, and groups of a programme ahead of the last result */
    HLT_VOTE_ITEMS = 32, /* tensors that share a vote */
    HLT_PROGRAMMES = 8,  /* kept */
    HLT_SERIES = 64,     /* known; tensors of any other have plain names */
    HLT_PROGRAMME_SERIES = 16, /* in a programme */
    HLT_PERIOD = 1024,         /* tensors in the longest one */
    HLT_TAPE_ITEMS = 65536,
    HLT_TEXT_BYTES = 1024,
    HLT_RECORDING_CYCLES = 2, /* halay_trainer.recording: cycles, too */
    HLT_PLACE_BYTES = 80,     /* file and line of a submission; the end of a longer path */
    HLT_PLACES = 65536,       /* remembered, of names that come again */
    HLT_PLACES_ONCE = 256,    /* remembered, of names that are used once */
    HLT_EXCHANGES = 1024,     /* alltoalls of which the rows are remembered */
    HLT_AFTERS = 1024         /* streams that wait for a submission to stand behind them */
};

#define HLT_DIM_LARGE UINT32_MAX

/* Lowest bits of `wait` in a block. In a programme's item `wait` is HLT_IN_PLACE or 0. */
#define HLT_PART_REPLAYED UINT64_C(1) /* a replay has run other tensors of the same run */
#define HLT_IN_PLACE      UINT64_C(2) /* its input is its output */
#define HLT_MARK_BITS     2

/* The kind of a tensor's memory is a part of `what`. */
#define HLT_MEMORY_SHIFT 24
#define HLT_MEMORY_ANY   0xffu /* of an allgather or alltoall without rows: any kind is right */

/*
 * What a rank says about a tensor. All words but `rows` and `wait` must agree between ranks.
 * wait: how often this rank had waited before it submitted the tensor. In a block that stands in
 * the upper bits, above the marks.
 * shape[0]: 1 + the number of dimensions, or 0 without a shape. Behind it stand the dimensions; one
 * that is too large is HLT_DIM_LARGE. At most one is: the count tells such shapes apart.
 */
struct hlt_announcement {
    uint64_t name;     /* its hash */
    uint64_t what;     /* kind, type, operation, root: see hlt_tensor_what() */
    uint64_t count;    /* elements; allgather, alltoall: of one row */
    uint64_t prescale; /* bits of the double */
    uint64_t postscale;
    uint64_t rows; /* allgather: of this rank; reduce_scatter: of all */
    uint64_t wait;
    uint64_t group;   /* of a group call: a hash of all that its tensors say; else 0 */
    uint64_t members; /* of a group call: how many tensors; else 0 */
    uint32_t shape[1 + HALAY_DIMS_MAX];
};

/* What a rank puts into a round. */
struct hlt_block {
    uint64_t count;  /* entries in use */
    uint64_t issued; /* in a replay: the groups that this rank has sent out */
    struct hlt_announcement entries[HLT_ROUND_ENTRIES];
};

enum hlt_kind {
    HLT_KIND_ALLREDUCE = 1,
    HLT_KIND_BROADCAST,
    HLT_KIND_ALLGATHER,
    HLT_KIND_BARRIER,
    HLT_KIND_REDUCE_SCATTER,
    HLT_KIND_ALLTOALL,
    HLT_KIND_JOIN,
    HLT_KIND_WITHDRAW, /* only in a round: this rank's deadline for the name has passed */
    HLT_KIND_UNJOIN,   /* only in a round: this rank's deadline for its join has passed */
    HLT_KIND_QUESTION  /* only in a round: this rank has waited for long; see stall.c */
};

/* A map from 64-bit hashes to what contains the node. It is chained; it grows, never shrinks. */
struct hlt_node {
    uint64_t hash;
    struct hlt_node *next;
};

struct hlt_map {
    struct hlt_node **buckets;
    size_t mask, count;
};

/* What all ranks have said so far about a name that not all have announced. Equal on all ranks. */
struct hlt_record {
    struct hlt_node node; /* the first member: a node is cast to its record */
    struct hlt_announcement first, other;
    int first_rank; /* who announced it first */
    int other_rank; /* who was the first to differ; -1: nobody */
    int nannounced;
    uint64_t run;            /* hash of all ranks' `wait`: equal where no rank waited in between */
    uint64_t marks;          /* HLT_PART_REPLAYED, HLT_IN_PLACE: of any rank */
    uint64_t told;           /* the round of the last notice of it */
    uint64_t *rows;          /* of each rank; allocated for allgathers only */
    uint64_t sequence;       /* its number, by age */
    struct hlt_record *next; /* in the list of unused ones */
    uint64_t announced[];    /* a bit a rank */
};

/* The tensors of one group call (halay_trainer_allreduce_group()) on this rank. */
struct hlt_grouped {
    size_t refs; /* tensors of it that are not released */
    int agreed;  /* all ranks have announced one of them, so all have submitted all */
};

/* The place in a stream of the program that the tensors of one submission stand behind. */
struct hlt_behind {
    struct hlt_behind *next; /* mutex: of those that wait for their submission; of unused ones */
    uint64_t name;           /* of the submission, hashed */
    halay_stream_t stream;
    halay_mark_t mark;
    int out;     /* the mark is */
    int over;    /* the stream has come so far, or never will */
    int code;    /* over: why not */
    size_t refs; /* tensors, once they are submitted */
};

struct hlt_tensor {
    struct hlt_node node; /* the first member; in the map of names until the tensor is done */
    struct hlt_tensor *prev, *next;
    uint32_t index;
    uint64_t generation;

    struct hlt_announcement says;
    const void *in;
    void *out;
    size_t count; /* elements of `in`; allgather, alltoall: rows times a row's elements */
    halay_type_t type;
    halay_op_t op;
    int kind, root;
    double prescale, postscale;

    uint64_t series; /* 0: it has a name of its own */
    uint64_t number; /* in the series */

    /* stepper */
    struct hlt_item *item; /* in the pool: its place in the programme; NULL: it has none */
    uint64_t known;        /* the name under which its rows are remembered */
    uint64_t fusion;       /* ready: tensors with the same number are fused; 0: it is not */
    int in_place;          /* it is in place on some rank, so the call is on all */
    uint32_t notices;      /* given of it, so that its next one has a time */
    uint64_t submit_ns;
    uint64_t ready_ns; /* when a round made it ready; 0: it was replayed */
    uint64_t start_ns;
    int buffer;                  /* its fusion buffer; HLT_BUFFERS: none */
    struct hlt_grouped *grouped; /* NULL: it is of no group call */
    int stand_in;                /* it is a joined rank's zeros, and no caller's */
    int voted;                   /* a vote has gone before it */
    int exchanged;               /* alltoall: its rows from each rank are known */
    struct hlt_behind *behind;   /* NULL: it stands behind no stream, or no more */
    int unready;                 /* the code of what has failed there: no call takes its buffers */

    /* mutex */
    int done, code;
    int wanted;               /* a caller has waited or polled for it */
    halay_ticket_done_t call; /* NULL: none, or it is called now */
    void *call_arg;
    char *text;      /* why it failed; NULL: it did not */
    void *result;    /* memory of the trainer's; what an allgather or alltoall gives */
    uint32_t memory; /* HALAY_MEMORY_*: of in, out and result. Agreed on, once it is ready */
    size_t *rows;    /* from each rank; alltoall: behind that, to each rank. Until done: stepper */
    size_t result_count;
    char name[HALAY_TENSOR_NAME_MAX];
};

struct hlt_list {
    struct hlt_tensor *head, *tail;
};

/*
 * A tensor's place on the tape or in a programme. Of a series, says.name is hlt_series_name() of
 * the number on the tape. In a programme it is that of the complement of the place in the series.
 */
struct hlt_item {
    struct hlt_announcement says;
    uint64_t run;
    uint64_t series;
    uint64_t number;           /* in the series; in a programme: the place there, from 0 */
    uint64_t due;              /* replayed: the number that comes here next */
    struct hlt_tensor *tensor; /* replayed: this rank's; NULL: it is not submitted yet */
    uint32_t place;            /* in a programme: the item's number in the order that was learnt */
    uint32_t group;            /* of the programme */
    uint32_t row;              /* in the timeline; see hlt_group.timelines */
};

/* Items in order, found by name. */
struct hlt_script {
    struct hlt_item *items;
    uint32_t *index; /* a hash table with open addressing: item + 1, or 0 */
    size_t count, room, mask;
};

/* What runs as one: items [first, first + count) of a programme. */
struct hlt_group {
    uint32_t first, count;
    uint32_t missing;   /* items whose tensor is not here yet */
    int fused;          /* one call; 0: a vote, and then a call for each tensor */
    int rows;           /* the vote carries rows */
    uint64_t timelines; /* halay_trainer.timelines when the items' rows were asked for */
};

/* Where a series stands; equal on all ranks. */
struct hlt_series {
    uint64_t series;
    uint64_t next; /* above the numbers of all tensors that all ranks have completed */
};

/*
 * A series in a programme. base: the first number of the replay's first cycle. When the replay is
 * over it is the first number of the last whole cycle.
 */
struct hlt_share {
    uint64_t series;
    uint64_t base;
    uint64_t count; /* numbers in a cycle */
};

/* What repeats where no name does; see series.c. */
struct hlt_period {
    uint64_t count; /* items in a row that could be part of a period */
    uint64_t keys[HLT_PERIOD];
    uint64_t same[1 + HLT_PERIOD]; /* [p]: so many items up to here equal those p before them */
    int backoff_log2;              /* a period must have repeated 2^this times as often */
};

struct hlt_programme {
    struct hlt_script script;
    struct hlt_share shares[HLT_PROGRAMME_SERIES];
    size_t nshares;
    struct hlt_group *groups;
    size_t ngroups;
    uint64_t set;          /* hash of the items in any order */
    uint64_t used;         /* number of its last use */
    struct hlt_tune *tune; /* autotuning: what is known of its groups' size; else NULL */
    int score;             /* rises with whole cycles, falls with voids; 0: it is not used */
    int begun;             /* a name of it is on the tape */
    int periodic;          /* no name has ended its cycle: it is a period of a series */
};

/* Where the replay stands. Sequences count groups since it began. */
struct hlt_replay {
    struct hlt_programme *programme; /* NULL: there are rounds instead */
    uint64_t issued;                 /* groups sent out */
    uint64_t results;                /* groups whose result is known */
    uint64_t base;                   /* the first one of the present grouping */
    uint64_t cycles;                 /* that are whole before that one */
    uint64_t first_void;             /* the first result that was void, or UINT64_MAX */
    uint64_t good_behind; /* bit i: the group i after the first void was good all the same */
    int flushing;         /* a void is known of, or was this rank's: groups go out at once */
    uint32_t foreign;     /* tensors in the pool without a place in the programme */
    uint32_t early;       /* tensors in the pool with a place in a later cycle */
    uint32_t quiet;       /* so many more submissions cannot complete the next group */
    uint64_t called;      /* another rank waits for the groups up to here */
    uint64_t alarm_ns;    /* when this rank last asked where the others are */
    uint64_t check_ns;    /* when to look again whether to be void; 0: no need */
};

/* This rank ends alone: what others call next, here or there, is to fail at once. */
enum { HLT_FAREWELL_DATA = 1, HLT_FAREWELL_CONTROL = 2 };

enum hlt_call_kind {
    HLT_CALL_FAREWELL,
    HLT_CALL_DIRECT,
    HLT_CALL_FUSED,
    HLT_CALL_VOTE,
    HLT_CALL_EXCHANGE,
    HLT_CALL_TUNE /* the ranks' times, or a kept setting: tune.c */
};

/* A call on the data communicator. */
struct hlt_call {
    enum hlt_call_kind kind;
    halay_request_t *request;
    struct hlt_list tensors; /* empty where this rank is void */
    struct hlt_group *group; /* of the programme; NULL: rounds have made it ready */
    uint64_t sequence;       /* of the group */
    uint64_t start_ns;
    uint64_t begin_ns, packed_ns; /* while a timeline is on */
    int buffer;                   /* its fusion buffer; -1: none */
    size_t count;                 /* fused: elements, without the marks */
};

/* A fusion buffer. */
struct hlt_buffer {
    char *memory;
    uint32_t kind; /* HALAY_MEMORY_* */
    size_t bytes;
    int used;
};

/* What to add to the clock of this node to have that of rank 0's, and how wrong that may be. */
struct hlt_clock {
    int64_t offset_ns;
    uint64_t error_ns;
};

struct hlt_timeline;

/* The groups of two announcements that differ. */
struct hlt_unlike {
    uint64_t first, other;
};

/* Where the program submits a name. */
struct hlt_place {
    struct hlt_node node; /* the first member */
    char text[HLT_PLACE_BYTES];
};

/* How many rows of an alltoall went where when its ranks last told each other; see exchange.c. */
struct hlt_exchange {
    struct hlt_node node; /* the first member */
    size_t rows[];        /* as in hlt_tensor.rows */
};

/* Notices of tensors that wait. */
struct hlt_stall {
    uint64_t notice_ns; /* after so long the first; 0: none */
    int mute;           /* notices are not printed */

    /* mutex */
    struct hlt_map places;
    struct hlt_place *once[HLT_PLACES_ONCE];
    size_t nlasting, nonce;

    /* stepper */
    uint64_t check_ns; /* when to look at what waits */
    int lines;         /* printed in all */
};
/* Equal on all ranks. */
struct hlt_autotune {
    size_t most_bytes;     /* in a group of any setting */
    uint32_t steps;        /* in a block of the first round; 0: nothing is tuned */
    uint32_t warmup_steps; /* before the first block */
    int again;             /* what is kept is not read */
    uint64_t key;          /* hash of what a kept setting depends on, beside the programme */
};

struct halay_trainer {
    halay_context_t *context;
    halay_comm_t *control, *data;
    int rank, nranks;
    char *alive;          /* 0 in a forked child, which has no thread: it is refused */
    uint64_t deadline_ns; /* how long a tensor waits for other ranks */
    pthread_t thread;

    pthread_mutex_t mutex;
    pthread_cond_t changed;  /* a tensor is done, the driver has left, or stepping has ended */
    pthread_cond_t handback; /* for the parked thread */
    struct hlt_map names;    /* of tensors that are out and not done */
    struct hlt_tensor *chunks[HLT_CHUNKS];
    size_t nchunks;
    struct hlt_tensor *unused;
    struct hlt_list submitted;
    struct hlt_behind *after, *unused_behinds;
    size_t nafters;
    int stop;             /* the thread has to end */
    int closing;          /* no more rounds */
    int lost;             /* the device is, so this rank can take part in nothing more */
    int stepping;         /* a thread is inside step() */
    int again;            /* something came in meanwhile: step once more */
    int news;             /* tensors were done in this step */
    struct hlt_list done; /* their functions are to be called, in this order */
    size_t functions;     /* of tensors that are out */
    int calling;          /* a thread calls them, one at a time */
    int busy;   /* after the last step: something is pending, waiting, ready or in flight */
    int driver; /* a waiting caller steps and sleeps for all */
    int asleep; /* threads in, or just about to call, halay_context_progress() */
    int waiters, parked, callers;
    int polled;     /* a tensor that was not done has been polled */
    int looked;     /* a caller has waited or polled since the last submission */
    uint64_t looks; /* runs so far: hlt_announcement.wait */
    uint32_t quiet; /* submissions before the next one that must wake the thread */
    halay_trainer_counters_t published;
    uint64_t waits;                /* so far, so that the thread sees short ones */
    uint64_t spins;                /* times that a caller has polled */
    uint64_t spin_ns;              /* how long polling has lately paid */
    uint64_t next_end_ns;          /* when the next tensor runs out of time; 0: none */
    struct hlt_timeline *timeline; /* NULL: none is on */
    char label[32];                /* before names in a timeline that is shared */
    uint64_t label_hash;
    uint64_t timelines; /* begun or shared so far */

    /* stepper */
    struct hlt_list behind; /* a stream has not come to them */
    struct hlt_list pending, waiting, fresh, ready, pool;
    struct hlt_list joining; /* this rank's join, when it is announced */
    uint64_t *joined;        /* a bit for each rank, as the rounds have said */
    uint8_t *joined_kinds;   /* of each rank that has joined: a bit for each kind of memory */
    int njoined;
    uint64_t agreed_ns; /* when something was agreed on last */
    uint64_t sequence;  /* records so far */
    struct hlt_map records;
    struct hlt_record *unused_records;
    halay_request_t *round;
    uint64_t *agreed_groups; /* a tensor of these was agreed on in this round */
    size_t nagreed_groups, groups_room;
    struct hlt_unlike *unlike; /* in this round */
    size_t nunlike;
    char unlike_text[HLT_TEXT_BYTES];
    struct hlt_block *blocks; /* one for each rank, of the round in flight */
    struct hlt_call calls[HLT_CALLS];
    int ncalls;
    int voting; /* a vote, an exchange or a tuning is out: nothing is started before its result */
    struct hlt_buffer buffers[HLT_BUFFERS];
    size_t buffer_bytes; /* a fused group's most, without its marks; equal on all ranks */
    struct hlt_autotune autotune;
    uint64_t fusions;         /* so far, of rounds */
    size_t *counts;           /* two for each rank, for a call */
    uint64_t *votes;          /* of all ranks, of the vote in flight */
    char *marks;              /* of a group in a device's memory, as the processor sees them */
    struct hlt_map exchanges; /* remembered, by name */
    struct hlt_exchange *exchange_order[HLT_EXCHANGES]; /* a ring of the same, by age */
    size_t nexchanges;
    struct hlt_greeting *greetings; /* one for each rank */
    struct hlt_clock clock;         /* of this node */
    int leaving;                    /* closing, as seen by this step */
    int wanting;                    /* a caller waits or has polled, as seen by this step */
    int expecting;                  /* tensors that are out have functions, as seen by this step */
    int recording;                  /* a timeline is on, as seen by this step */
    uint64_t end_ns;   /* recording: when the tensors end that end together now; else 0 */
    int listed;        /* recording: the timeline has these tensors already */
    uint64_t round_ns; /* recording: when the round in flight began */
    int farewell;      /* HLT_FAREWELL_*: calls that are still to be made, and fail on all ranks */
    int data_broken;   /* the code of a call that could not be made, so the order is lost */
    int broken;        /* the code for which no round is started any more */
    char broken_text[HLT_TEXT_BYTES];
    char missed[HLT_TEXT_BYTES]; /* others have waited in vain for this rank, and then left */

    struct hlt_script tape; /* what was agreed on since the last boundary */
    struct hlt_programme *programmes[HLT_PROGRAMMES];
    int impure;    /* the tape has items of a replay that broke off, with runs of another cycle */
    size_t turn;   /* the tape's length at which a cycle of a series is over; or 0 */
    int switching; /* a replay broke off between cycles: the next may be another programme's */
    struct hlt_programme *avoid; /* it broke off so, and nothing has been agreed on since */
    uint64_t uses;               /* of programmes, so far */
    struct hlt_series series[HLT_SERIES];
    size_t nseries;
    struct hlt_period period;
    uint64_t replayed_until; /* above the `wait` of all tensors that replays have run */
    int failures;            /* voids since the last whole cycle */
    int skip;                /* ends of cycles to stay in rounds for */
    struct hlt_replay replay;
    struct hlt_stall stall;
    halay_trainer_counters_t counters;
};

/* What ranks tell each other once. */
struct hlt_greeting {
    uint64_t fusion_bytes, group_bytes;
    uint64_t tune_steps, tune_warmup_steps, tune_reads; /* see struct hlt_autotune */
    char host[56];
};

/* Words that hold a bit for each rank. */
static inline size_t hlt_rank_words(int nranks)
{
    return ((size_t)nranks + 63) / 64;
}

static inline int hlt_rank_in(const uint64_t *ranks, int rank)
{
    return (int)(ranks[rank / 64] >> (rank % 64) & 1);
}

static inline void hlt_rank_add(uint64_t *ranks, int rank)
{
    ranks[rank / 64] |= UINT64_C(1) << (rank % 64);
}

static inline void hlt_rank_remove(uint64_t *ranks, int rank)
{
    ranks[rank / 64] &= ~(UINT64_C(1) << (rank % 64));
}

/* table.c */
uint64_t hlt_trainer_now_ns(void);
/* So long from now, as pthread_cond_timedwait() wants it. */
struct timespec hlt_trainer_until(uint64_t ns);
uint64_t hlt_tensor_hash(const char *name);
/* Goes on from a hash. */
uint64_t hlt_hash_words(uint64_t hash, const uint64_t *words, size_t nwords);
int hlt_tensor_map_init(struct hlt_map *map);
/* Ends the map, and what is in it with drop(); NULL: it is others'. Takes one that is not begun. */
void hlt_tensor_map_finish(struct hlt_map *map, void (*drop)(struct hlt_node *node));
/* For nodes that are the beginning of what was allocated. */
void hlt_node_free(struct hlt_node *node);
struct hlt_node *hlt_tensor_map_find(const struct hlt_map *map, uint64_t hash);
void hlt_tensor_map_add(struct hlt_map *map, struct hlt_node *node);
void hlt_tensor_map_remove(struct hlt_map *map, struct hlt_node *node);
void hlt_tensor_list_push(struct hlt_list *list, struct hlt_tensor *tensor);
void hlt_tensor_list_push_first(struct hlt_list *list, struct hlt_tensor *tensor);
void hlt_tensor_list_remove(struct hlt_list *list, struct hlt_tensor *tensor);
struct hlt_tensor *hlt_tensor_list_pop(struct hlt_list *list);
/* Mutex held. NULL: 65,536 are out, or no memory. */
struct hlt_tensor *hlt_tensor_take(halay_trainer_t *trainer);
void hlt_tensor_give(halay_trainer_t *trainer, struct hlt_tensor *tensor);
/* Mutex held. NULL if the ticket is not out. */
struct hlt_tensor *hlt_tensor_find(halay_trainer_t *trainer, halay_ticket_t ticket);
halay_ticket_t hlt_tensor_ticket(const struct hlt_tensor *tensor);
/* Stepper, without the mutex. Takes a tensor that is in no list. text: copied; may be NULL. */
void hlt_tensor_done(halay_trainer_t *trainer, struct hlt_tensor *tensor, int code,
                     const char *text);
void hlt_tensors_free(halay_trainer_t *trainer);

/* Inserts by the time of submission. */
void hlt_tensor_list_insert(struct hlt_list *list, struct hlt_tensor *tensor);
void hlt_tensor_list_end(halay_trainer_t *trainer, struct hlt_list *list, int code,
                         const char *text);

/* greet.c: collective; fills greetings and buffer_bytes. */
int hlt_trainer_greet(halay_trainer_t *trainer);

/* reduce_scatter: the elements of a rank. */
size_t hlt_tensor_share(const halay_trainer_t *trainer, const struct hlt_announcement *says,
                        int rank);

/* negotiate.c; all: stepper, without the mutex */
uint64_t hlt_tensor_what(int kind, halay_type_t type, halay_op_t op, int root);
int hlt_announcement_kind(const struct hlt_announcement *says);
int hlt_announcement_alike(const struct hlt_announcement *a, const struct hlt_announcement *b);
void hlt_round_step(halay_trainer_t *trainer);
/* Others are in a call on this communicator of the trainer's that this rank would not make any
 * more: the error that has ended it here need not be known to them. */
int hlt_is_awaited(const halay_trainer_t *trainer, halay_comm_t *comm);
/* When the next tensor that waits for other ranks reaches its deadline; 0: none waits. */
uint64_t hlt_round_end_ns(const halay_trainer_t *trainer);
/* Ends all negotiation: what is not agreed on, and what comes later, ends with the code. */
void hlt_trainer_break(halay_trainer_t *trainer, int code, const char *text);
/* The same where other ranks do not know of it: their next calls fail. */
void hlt_trainer_leave_all(halay_trainer_t *trainer, int code, const char *text);
void hlt_round_records_free(halay_trainer_t *trainer);

/* All ranks have announced it or joined. All call this at the same place in the same round. */
void hlt_record_complete(halay_trainer_t *trainer, struct hlt_record *record);
/* Makes room for the groups of so many more completions in this round. */
int hlt_round_reserve(halay_trainer_t *trainer, size_t more);

/* join.c; stepper, without the mutex */
/* 1 if the rank has neither announced it nor joined. */
int hlt_join_missing(const halay_trainer_t *trainer, const struct hlt_record *record, int rank);
int hlt_join_complete(const halay_trainer_t *trainer, const struct hlt_record *record);
/* A joined rank that has not announced it, or -1. */
int hlt_join_absent(const halay_trainer_t *trainer, const struct hlt_record *record);
/* 1 if it goes on without the joined ranks. */
int hlt_join_takes(const struct hlt_announcement *says);
/* A joined rank that cannot have zeros of the record's kind of memory; -1: none. */
int hlt_join_lacks(const halay_trainer_t *trainer, const struct hlt_record *record);
/* The kinds of memory that this rank can have, a bit each. No stepper. */
uint64_t hlt_join_kinds(const halay_trainer_t *trainer);
/* This rank's stand-in for what it has not submitted. NULL: no memory. */
struct hlt_tensor *hlt_join_stand_in(halay_trainer_t *trainer, const struct hlt_record *record);
int hlt_join_said(halay_trainer_t *trainer, int rank, uint64_t kinds);
void hlt_join_unsaid(halay_trainer_t *trainer, int rank);
/* When this rank takes its join back; 0: it has none. */
uint64_t hlt_join_end_ns(const halay_trainer_t *trainer);

/* behind.c */
/* Mutex held. What the next submission of this name stands behind, for so many tensors, or NULL. */
struct hlt_behind *hlt_behind_take(halay_trainer_t *trainer, const char *name, size_t ntensors);
/* Without the mutex: the device has failed before a submission. Returns its code. */
int hlt_trainer_lose(halay_trainer_t *trainer, int code);
/* Mutex held. A tensor of it was not submitted. Takes NULL. */
void hlt_behind_drop(halay_trainer_t *trainer, struct hlt_behind *behind);
/* Stepper, without the mutex: tensors to which their streams have come become pending. Returns when
 * to look again; 0: no need. */
uint64_t hlt_behind_step(halay_trainer_t *trainer);
void hlt_behinds_free(halay_trainer_t *trainer);

/* trainer.c: what every call of a user begins (on 0 the mutex is held) and ends with */
int hlt_trainer_enter(halay_trainer_t *trainer);
int hlt_trainer_leave(halay_trainer_t *trainer, int result);
static inline int hlt_trainer_forked(const halay_trainer_t *trainer)
{
    return !*trainer->alive;
}
/* Mutex held. Waits for the ticket, and tells why it has failed; text may be NULL. */
int hlt_trainer_await(halay_trainer_t *trainer, halay_ticket_t ticket, char *text, size_t bytes);
/* Returns the code. text gets the reason, or the code's own if that is NULL. */
int hlt_trainer_tell(int code, const char *reason, char *text, size_t bytes);
/* The condition's times are those of CLOCK_MONOTONIC. */
int hlt_cond_create(pthread_cond_t *cond);
/* The thread has all signals blocked: they belong to the program's threads. */
int hlt_thread_start(pthread_t *thread, void *(*body)(void *), void *arg);

/* stall.c; stepper, without the mutex */
void hlt_stall_init(halay_trainer_t *trainer);
void hlt_stall_free(halay_trainer_t *trainer);
/* The tensor that this rank has to ask about; NULL: none. */
struct hlt_tensor *hlt_stall_due(halay_trainer_t *trainer);
void hlt_stall_write(halay_trainer_t *trainer, struct hlt_block *block);
/* Prints notices for the questions of a round, once its announcements are read. */
void hlt_stall_read(halay_trainer_t *trainer);
/* When to look again; 0: no need. */
uint64_t hlt_stall_check_ns(const halay_trainer_t *trainer);
/* text: HLT_PLACE_BYTES; empty if it is not known. */
void hlt_stall_place(halay_trainer_t *trainer, uint64_t name, char *text);

/* Which rank has waited for what, as that rank says. */
struct hlt_notice {
    int rank, others; /* others: more tensors that wait for the same ranks */
    uint64_t waited_ns;
    const char *name, *place;
};

/* timeline.c. Stepper, without the mutex; they do nothing while no timeline is on. */
/*
 * Records a fused call, which is unpacked at end_ns. Returns 1 if it has recorded the tensors of
 * the call's list, too.
 */
int hlt_timeline_fused(halay_trainer_t *trainer, const struct hlt_call *call, uint64_t reduced_ns,
                       uint64_t end_ns);
void hlt_timeline_vote(halay_trainer_t *trainer, const struct hlt_call *call);
void hlt_timeline_round(halay_trainer_t *trainer);
void hlt_timeline_cycle(halay_trainer_t *trainer);
void hlt_timeline_void(halay_trainer_t *trainer);
int hlt_timeline_recording(const struct hlt_timeline *timeline);
/* Mutex held, and a timeline is on. */
void hlt_timeline_tensor(halay_trainer_t *trainer, const struct hlt_tensor *tensor, int code,
                         uint64_t end_ns);

/* text.c */
void hlt_text_notice(char *text, halay_trainer_t *trainer, const struct hlt_record *record,
                     const struct hlt_notice *notice);
void hlt_text_mismatch(char *text, const struct hlt_record *record, const char *name);
void hlt_text_unsupported(char *text, const halay_trainer_t *trainer,
                          const struct hlt_record *record, int rank);
/* A joined rank has no memory of the kind. */
void hlt_text_lacks(char *text, const halay_trainer_t *trainer, const struct hlt_record *record,
                    int rank);
void hlt_text_join(char *text, const halay_trainer_t *trainer);
void hlt_text_timeout(char *text, const halay_trainer_t *trainer, const struct hlt_record *record,
                      int rank, const char *name);

/* programme.c; stepper, without the mutex */
struct hlt_item *hlt_script_find(const struct hlt_script *script, uint64_t name);
/*
 * All ranks have announced this; tensor is this rank's. Returns the programme that begins here, and
 * will run it. NULL: it is on the tape, and runs now.
 */
struct hlt_programme *hlt_programme_seen(halay_trainer_t *trainer, const struct hlt_record *record,
                                         const struct hlt_tensor *tensor);
/* NULL: the programme has none of the series, or the series is 0. */
struct hlt_share *hlt_programme_share(struct hlt_programme *programme, uint64_t series);
/* What was agreed on is no part of a cycle. What comes next may begin a known programme. */
void hlt_programme_forget(halay_trainer_t *trainer);
void hlt_programme_whole(halay_trainer_t *trainer);
/* The replay ends; what has run in the cycle that it broke off is on the tape again. */
void hlt_programme_void(halay_trainer_t *trainer);
/* Sorts its items into groups of at most so many bytes. No replay of it has a group out. Returns
 * HALAY_ENOMEM, with the groups as they were. */
int hlt_programme_group(const halay_trainer_t *trainer, struct hlt_programme *programme,
                        size_t most);
void hlt_programmes_free(halay_trainer_t *trainer);

/* series.c */
/* The series of a name without one of its own; else 0. */
uint64_t hlt_series_of(const char *name, uint64_t *number);
uint64_t hlt_series_name(uint64_t series, uint64_t number);
/* This and all that follow: stepper, without the mutex; at the same place on all ranks. */
struct hlt_series *hlt_series_find(halay_trainer_t *trainer, uint64_t series);
/* Begins an unknown series with the number. NULL: there are too many. */
struct hlt_series *hlt_series_get(halay_trainer_t *trainer, uint64_t series, uint64_t number);
void hlt_series_done(halay_trainer_t *trainer, uint64_t series, uint64_t number);
/*
 * One more tensor is on the tape, the last of `among`; begins: it begins a run. Returns the length
 * of the period that it ends and that has stood often enough, or 0.
 */
size_t hlt_period_add(halay_trainer_t *trainer, uint64_t says, int begins, size_t among);
void hlt_period_forget(halay_trainer_t *trainer);
/* A period has to stand twice as often from now on (more is 1), or half as often (-1). */
void hlt_period_doubt(halay_trainer_t *trainer, int more);

/* replay.c; stepper, without the mutex */
void hlt_replay_begin(halay_trainer_t *trainer, struct hlt_programme *programme);
/* Starts the next group if it is time; returns 1 if it did. */
int hlt_replay_next(halay_trainer_t *trainer);
/* The cycle in which this group is, from 0, and whether it is its first. */
uint64_t hlt_replay_cycle(const struct hlt_replay *replay, uint64_t sequence);
int hlt_replay_is_first(const struct hlt_replay *replay, uint64_t sequence);
struct hlt_group *hlt_replay_group(const struct hlt_replay *replay, uint64_t sequence);
/* Between two cycles, and no group is out: groups have so many bytes at most from here on. */
void hlt_replay_regroup(halay_trainer_t *trainer, size_t most);
/* Comes in the order of the sequences. A good call's tensors are still in its list. */
void hlt_replay_result(halay_trainer_t *trainer, struct hlt_call *call, int empty);
/* 1 if a group is out for long. Then a round asks the others to go as far, void if they must. */
int hlt_replay_alarm(const halay_trainer_t *trainer);
/* The groups sent out, and the next one if a tuning is out. */
uint64_t hlt_replay_reached(const halay_trainer_t *trainer);
/* A rank has said in that round how far it is. */
void hlt_replay_called(halay_trainer_t *trainer, uint64_t issued);
/* Comes after all that could be started or tested. 1 if the replay has ended and rounds go on. */
int hlt_replay_step(halay_trainer_t *trainer);

/* execute.c; stepper, without the mutex */
void hlt_calls_step(halay_trainer_t *trainer);
/* Starts a group of a programme. Without tensors this rank is void. */
void hlt_group_start(halay_trainer_t *trainer, struct hlt_group *group, uint64_t sequence,
                     struct hlt_list *tensors);
/* Moves what a round has completed to `ready`, and says which of it are fused. */
void hlt_fresh_fuse(halay_trainer_t *trainer);
/* The text of the last failed call on a communicator, or the code's own. */
void hlt_trainer_verdict(const halay_comm_t *comm, int code, char *text, size_t bytes);

/* exchange.c; stepper, without the mutex */
/* 1 if this rank remembers no rows for the name, or others than it has now. */
int hlt_exchange_needed(const halay_trainer_t *trainer, const struct hlt_tensor *tensor);
/* No rank needs an exchange: the tensor gets the rows that are remembered. */
void hlt_exchange_recall(const halay_trainer_t *trainer, struct hlt_tensor *tensor);
/* An exchange is over: its rows are remembered. */
void hlt_exchange_keep(halay_trainer_t *trainer, const struct hlt_tensor *tensor);
void hlt_exchanges_free(halay_trainer_t *trainer);

/* fuse.c */
halay_type_t hlt_announcement_type(const struct hlt_announcement *says);
halay_op_t hlt_announcement_op(const struct hlt_announcement *says);
/* 1 if this can be part of a fused group of so many bytes. */
int hlt_fuse_takes(const halay_trainer_t *trainer, const struct hlt_announcement *says,
                   size_t most);
int hlt_fuse_alike(const struct hlt_announcement *a, const struct hlt_announcement *b);
/* The number of elements behind the tensors that tell whether a rank was void. */
size_t hlt_fuse_marks(const halay_trainer_t *trainer, halay_type_t type);
/* Takes a fusion buffer of so many bytes. HALAY_EAGAIN: all are in use. Or HALAY_ENOMEM. */
int hlt_fuse_free(const halay_trainer_t *trainer); /* 1 if there is one */
int hlt_fuse_buffer(halay_trainer_t *trainer, uint32_t memory, size_t bytes, int *buffer);
/* at: in the host's memory */
void hlt_fuse_mark(const halay_trainer_t *trainer, char *at, halay_type_t type, halay_op_t op,
                   int empty);
int hlt_fuse_marked(const halay_trainer_t *trainer, const char *at, halay_type_t type,
                    halay_op_t op);

/* memory.c; stepper, but for init and free. memory: HALAY_MEMORY_* */
uint32_t hlt_announcement_memory(const struct hlt_announcement *says);
/* HLT_MEMORY_ANY of all ranks is the host's. */
uint32_t hlt_agreed_memory(const struct hlt_announcement *says);
/* What was said without a kind takes the other's. */
void hlt_announcement_settle(struct hlt_announcement *says, const struct hlt_announcement *other);
int hlt_memory_alike(const struct hlt_announcement *a, const struct hlt_announcement *b);
/* NULL: there is none, or no device of that kind. */
void *hlt_memory_alloc(const halay_trainer_t *trainer, uint32_t memory, size_t bytes);
void hlt_memory_free(const halay_trainer_t *trainer, uint32_t memory, void *address);
/* out = factor * in */
int hlt_memory_move(const halay_trainer_t *trainer, uint32_t memory, void *out, const void *in,
                    size_t count, halay_type_t type, double factor);
/* From a device's memory to the host's, and back. */
int hlt_memory_down(const halay_trainer_t *trainer, uint32_t memory, void *host, const void *from,
                    size_t bytes);
int hlt_memory_up(const halay_trainer_t *trainer, uint32_t memory, void *to, const void *host,
                  size_t bytes);
int hlt_memory_zero(const halay_trainer_t *trainer, uint32_t memory, void *address, size_t bytes);
int hlt_fuse_pack(halay_trainer_t *trainer, uint32_t memory, char *to,
                  const struct hlt_list *tensors);
int hlt_fuse_unpack(halay_trainer_t *trainer, uint32_t memory, char *from,
                    const struct hlt_list *tensors);

#endif
