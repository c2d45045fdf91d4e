/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trainer.h - what the files of this folder share.
 *
 * Who may touch what. The mutex guards what callers see: the tensors' table, `submitted`, every
 * tensor's outcome, the trace. Everything marked "stepper" belongs to the one thread that is inside
 * step() (`stepping`), with or without the mutex; the role passes from thread to thread under the
 * mutex. No call into Halay is made with the mutex held.
 *
 * The way of a tensor: submitted -> pending -> (announced in a round) waiting -> (announced by all)
 * ready -> (started) in one of `flights` -> done. While a programme is replayed: pending -> pool ->
 * flights -> done, and back to the pool where the group was void. It is in one list at a time.
 */
#ifndef HLY_TRAINER_H
#define HLY_TRAINER_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "halay/halay.h"
#include "halay/training.h"

enum {
    HLY_ROUND_ENTRIES = 16,  /* announcements of one rank in one round */
    HLY_FLIGHTS = 12,        /* operations in flight; below the core's window of 16 */
    HLY_CHUNK_TENSORS = 256, /* tensors are allocated in chunks, so that they never move */
    HLY_CHUNKS = 256,        /* 65,536 tensors out at most */
    HLY_SLOTS = 4,       /* fusion buffers, and groups of a programme ahead of the last result */
    HLY_VOTE_ITEMS = 32, /* tensors that share a vote */
    HLY_PROGRAMMES = 8,
    HLY_SERIES = 64,           /* of tensors without a name; of more all others are plain names */
    HLY_PROGRAMME_SERIES = 16, /* in a programme */
    HLY_PERIOD = 1024,         /* tensors */
    HLY_TAPE_ITEMS = 65536,
    HLY_TEXT_BYTES = 1024,
    HLY_RECORDING_CYCLES = 2, /* halay_trainer.recording: the cycles' beginnings as well */
    HLY_PLACE_BYTES = 80,     /* file and line of a submission; the end of a longer path */
    HLY_PLACES = 65536,       /* remembered */
    HLY_PLACES_ONCE = 256,    /* and so many of names that are used once */
    HLY_DEALS = 1024          /* alltoalls of which the rows are remembered */
};

#define HLY_DIM_LARGE UINT32_MAX

/* Lowest bits of `wait` in a block; in a programme's item it is HLY_PLACED or 0. */
#define HLY_TORN      UINT64_C(1) /* a replay has run a part of the run */
#define HLY_PLACED    UINT64_C(2) /* in place */
#define HLY_MARK_BITS 2

/* What a rank says about a tensor: all words must agree between ranks, but `rows` and `wait`. */
struct hly_announcement {
    uint64_t name;     /* hash of it */
    uint64_t what;     /* kind, type, operation, root: see hly_tensor_what() */
    uint64_t count;    /* elements; of one row for an allgather, an alltoall */
    uint64_t prescale; /* bits of the double */
    uint64_t postscale;
    uint64_t rows;           /* allgather: of this rank; reduce_scatter: of all */
    uint64_t wait;           /* how often this rank had waited before it submitted this; in a block
                                in its upper bits, with HLY_TORN and HLY_PLACED */
    uint64_t group, members; /* all or nothing: a hash of all that they say, and how many; or 0 */
    uint32_t shape[1 + HALAY_DIMS_MAX]; /* dimensions and one more, or 0 if it has no shape; the
                                           dimensions, of which what is too large is HLY_DIM_LARGE:
                                           one at most, and the count tells them apart */
};

/* What a rank puts into a round. */
struct hly_block {
    uint64_t count, issued; /* issued: in a replay, the groups that it has sent out */
    struct hly_announcement entries[HLY_ROUND_ENTRIES];
};

enum hly_kind {
    HLY_KIND_ALLREDUCE = 1,
    HLY_KIND_BROADCAST,
    HLY_KIND_ALLGATHER,
    HLY_KIND_BARRIER,
    HLY_KIND_REDUCE_SCATTER,
    HLY_KIND_ALLTOALL,
    HLY_KIND_JOIN,
    HLY_KIND_WITHDRAW, /* only in a round: this rank's deadline for the name has passed */
    HLY_KIND_UNJOIN,   /* and for its join */
    HLY_KIND_QUESTION  /* only in a round: this rank has waited for long; see stall.c */
};

/* A map from 64-bit hashes to what contains the node. Chained; grows, never shrinks. */
struct hly_node {
    uint64_t hash;
    struct hly_node *next;
};

struct hly_map {
    struct hly_node **buckets;
    size_t mask, count;
};

/* What all ranks have said so far about a name that not all have announced. Equal on all ranks. */
struct hly_record {
    struct hly_node node; /* first */
    struct hly_announcement first, other;
    int first_rank, other_rank; /* other: the first that differs, -1 while none does */
    int nannounced;
    uint64_t run;   /* of all ranks' `wait`: equal where no rank waited in between */
    uint64_t marks; /* HLY_TORN, HLY_PLACED: of any rank */
    uint64_t told;  /* the round whose notice has spoken of it */
    uint64_t *rows; /* of each rank; allocated for allgathers only */
    uint64_t sequence;
    struct hly_record *next; /* of the unused ones */
    uint64_t announced[];    /* a bit a rank */
};

/* The tensors of one group on this rank. */
struct hly_bundle {
    size_t refs;
    int agreed; /* one of them was announced by all ranks: so all ranks have submitted all */
};

struct hly_tensor {
    struct hly_node node; /* first; in the map of names until it is done */
    struct hly_tensor *prev, *next;
    uint32_t index;
    uint64_t generation;

    struct hly_announcement says;
    const void *in;
    void *out;
    size_t count; /* elements here: rows * elements of a row for an allgather, an alltoall */
    halay_type_t type;
    halay_op_t op;
    int kind, root;
    double prescale, postscale;

    uint64_t series, number; /* of one without a name of its own; series: 0 if it has one */

    /* stepper */
    struct hly_item *item; /* in the pool: its place in the programme, NULL if it has none */
    uint64_t known;        /* under which its rows are remembered: the name, or that of the item */
    uint64_t bond;         /* ready: those with the same are fused; 0 with none */
    int placed;            /* on some rank it is in place, so on all the call is */
    int notices;           /* doublings of the time after which it is due for a notice */
    uint64_t submit_ns, ready_ns, start_ns; /* ready: by a round; 0 if it was replayed */
    int buffer;                             /* fusion buffer; HLY_SLOTS: none */
    struct hly_bundle *bundle;              /* NULL: in no group */
    int ghost;                              /* a joined rank's zeros: of no caller */
    int voted, dealt; /* alltoall: behind a vote; it is known what each rank has for this one */

    /* mutex */
    int done, code;
    int wanted;   /* a caller has waited or polled for it */
    char *text;   /* why; NULL without an error */
    void *result; /* of an allgather, an alltoall */
    size_t *rows; /* of an allgather, one a rank: the stepper's until it is done; of an alltoall,
                     from each rank, and then to each rank */
    size_t result_count;
    char name[HALAY_TENSOR_NAME_MAX];
};

struct hly_list {
    struct hly_tensor *head, *tail;
};

/*
 * A tensor's place on the tape or in a programme. Of a series: says.name is hly_series_name() of
 * the number, in a programme of the complement of its place in the series.
 */
struct hly_item {
    struct hly_announcement says;
    uint64_t run;
    uint64_t series, number;   /* in a programme: the place */
    uint64_t due;              /* replayed: the number that is next here */
    struct hly_tensor *tensor; /* replayed: this rank's, once it is here */
    uint32_t group;
    uint32_t row; /* in the timeline; see hly_group.timelines */
};

/* Items in order, found by name. */
struct hly_script {
    struct hly_item *items;
    uint32_t *index; /* open addressing: item + 1, or 0 */
    size_t count, room, mask;
};

/* What runs as one: items [first, first + count) of a programme. */
struct hly_group {
    uint32_t first, count, missing;
    int fused;          /* else behind a vote */
    int rows;           /* the vote carries rows */
    uint64_t timelines; /* as of the trainer, when the items' rows were asked for */
};

/* Numbers of tensors that all ranks have completed; equal on all ranks. */
struct hly_series {
    uint64_t series, next; /* above all of them */
};

/* A series in a programme. */
struct hly_share {
    uint64_t series;
    uint64_t base; /* the first number of the first cycle of the replay; of one that is over: of its
                      last whole cycle */
    uint64_t count; /* in a cycle */
};

/* What repeats where no name does; see series.c. */
struct hly_period {
    uint64_t count; /* items in a row of which each could be part of one */
    uint64_t keys[HLY_PERIOD];
    uint64_t same[1 + HLY_PERIOD]; /* so many items up to here are as those so far before them */
    int doubts;                    /* doublings of how often it must have stood */
};

struct hly_programme {
    struct hly_script script;
    struct hly_share shares[HLY_PROGRAMME_SERIES];
    size_t nshares;
    struct hly_group *groups;
    size_t ngroups;
    uint64_t set, used; /* hash of the items in any order; number of its last use */
    int score, begun;   /* begun: a name of it is on the tape */
    int periodic;       /* no name has ended its cycle */
};

/* Where the replay stands. Sequences count groups since it began. */
struct hly_replay {
    struct hly_programme *programme; /* NULL: rounds */
    uint64_t issued, results;
    uint64_t first_void;  /* the first result that was void, or UINT64_MAX */
    uint64_t good_behind; /* bit i: the group i after the first void was good all the same */
    int flushing;         /* this rank was void, or knows of a void: every group goes out at once */
    uint32_t foreign;     /* tensors in the pool that have no place in it */
    uint32_t early;       /* and that have one in a later cycle */
    uint32_t quiet;       /* submissions that change nothing but the pool */
    uint64_t called;      /* up to here another rank waits in a group */
    uint64_t alarm_ns;    /* when this rank last asked where the others are */
    uint64_t check_ns;    /* when to look again whether to be void; 0: no need */
};

enum hly_flight_kind { HLY_FLIGHT_DIRECT, HLY_FLIGHT_FUSED, HLY_FLIGHT_VOTE, HLY_FLIGHT_DEAL };

/* A call on the data communicator. */
struct hly_flight {
    enum hly_flight_kind kind;
    halay_request_t *request;
    struct hly_list tensors; /* direct: the one. Of a group: all, or none where this rank is void */
    struct hly_group *group; /* of a programme, or NULL */
    uint64_t sequence;       /* with a group */
    uint64_t start_ns;
    uint64_t begin_ns, packed_ns; /* while a timeline is on */
    int slot;                     /* fused */
    size_t count;                 /* fused: elements, without the marks */
};

/* What goes into a call, and behind it, for a pair, room for what comes out. */
struct hly_slot {
    char *memory;
    size_t bytes; /* of each part */
    int lent;     /* of trainer->lent */
    int used;
};

/* What to add to the clock of this node to have that of rank 0's, and how wrong that may be. */
struct hly_clock {
    int64_t offset_ns;
    uint64_t error_ns;
};

struct hly_timeline;

struct hly_unlike {
    uint64_t first, other;
};

/* Where the program submits a name. */
struct hly_place {
    struct hly_node node; /* first */
    char text[HLY_PLACE_BYTES];
};

/* How many rows of an alltoall went where when its ranks last told each other; see deal.c. */
struct hly_deal {
    struct hly_node node; /* first */
    size_t rows[];        /* as of the tensor */
};

struct hly_stall {
    uint64_t notice_ns; /* 0: no notices */
    int mute;           /* they are not printed */

    /* mutex */
    struct hly_map places;
    struct hly_place *once[HLY_PLACES_ONCE];
    size_t nlasting, nonce;

    /* stepper */
    uint64_t check_ns;   /* when to look at what waits */
    uint64_t silence_ns; /* when the round in flight is late */
    int silences, lines;
};

struct halay_trainer {
    halay_context_t *context;
    halay_comm_t *control, *data;
    int rank, nranks;
    /* A forked child has no thread and may find the mutex locked: it is refused. */
    char *alive; /* 0 there */
    uint64_t deadline_ns;
    pthread_t thread;

    pthread_mutex_t mutex;
    pthread_cond_t changed;  /* a tensor is done, the driver has left, or stepping has ended */
    pthread_cond_t handback; /* for the parked thread */
    struct hly_map names;    /* those that are out and not done */
    struct hly_tensor *chunks[HLY_CHUNKS];
    size_t nchunks;
    struct hly_tensor *unused;
    struct hly_list submitted;
    int stop, closing; /* the thread has to end; no more rounds */
    int stepping;      /* a thread is inside step() */
    int again;         /* something came in meanwhile: step once more */
    int news;          /* tensors were done in this step */
    int busy;          /* after the last step: something is pending, waiting, ready or in flight */
    int driver;        /* a waiting caller steps and sleeps for all */
    int asleep;        /* threads in, or just about to call, halay_context_progress() */
    int waiters, parked, callers;
    int polled;     /* a tensor that was not done has been polled */
    int looked;     /* a caller has waited or polled since the last submission */
    uint64_t looks; /* counts those runs: hly_announcement.wait */
    uint32_t quiet; /* so many submissions need wake nobody */
    halay_trainer_counters_t published;
    uint64_t waits;                /* counts waits, so that the thread sees short ones */
    uint64_t spins, spin_ns;       /* how often a caller has polled, and how long it is worth it */
    uint64_t next_end_ns;          /* when the next tensor runs out of time; 0: none */
    struct hly_timeline *timeline; /* NULL: none is on */
    char label[32];                /* before names in a timeline that is shared */
    uint64_t label_hash;
    uint64_t timelines; /* so many have been begun or shared */

    /* stepper */
    struct hly_list pending, waiting, fresh, ready, pool;
    struct hly_list joining; /* this rank's join, announced */
    uint64_t *joined;        /* a bit a rank, as the rounds have said */
    int njoined;
    uint64_t agreed_ns; /* when something was agreed on last */
    uint64_t sequence;  /* counts records */
    struct hly_map records;
    struct hly_record *unused_records;
    halay_request_t *round;
    uint64_t *agreed_groups; /* of which a tensor was agreed on in the round that is being read */
    size_t nagreed_groups, groups_room;
    struct hly_unlike *unlike; /* groups that differ, in this round */
    size_t nunlike;
    char unlike_text[HLY_TEXT_BYTES];
    struct hly_block *blocks; /* one a rank, of the round in flight */
    struct hly_flight flights[HLY_FLIGHTS];
    int nflights, voting; /* voting: nothing is started before the result is known */
    struct hly_slot slots[HLY_SLOTS];
    size_t slot_bytes; /* a fused group's most, without its marks; equal on all ranks */
    int pair;          /* two ranks, on one node; equal on all ranks */
    char *lent;        /* of halay_mem_alloc(), for all slots */
    int lent_asked;
    uint64_t bonds;
    size_t *counts;                    /* two a rank, for a call */
    uint64_t *votes;                   /* of all ranks, of the vote in flight */
    struct hly_map deals;              /* by name */
    struct hly_deal *dealt[HLY_DEALS]; /* in the order in which they came */
    size_t ndealt;
    struct hly_greeting *greetings; /* one a rank */
    struct hly_clock clock;         /* of this node */
    int leaving;                    /* closing, as seen by this step */
    int wanting;                    /* a caller waits or has polled, as seen by this step */
    int recording;                  /* a timeline is on, as seen by this step */
    uint64_t end_ns;   /* of the tensors that end together now, else 0: while one is on */
    int listed;        /* they are in it already */
    uint64_t round_ns; /* when the round in flight began, while one is on */
    int data_broken;   /* an operation could not be started, so the order is lost */
    int broken;        /* why no round is started any more: the text */
    char broken_text[HLY_TEXT_BYTES];

    struct hly_script tape; /* what was agreed on since the last boundary */
    struct hly_programme *programmes[HLY_PROGRAMMES];
    int impure;    /* the tape has items of a broken-off replay, whose runs are of another cycle */
    size_t turn;   /* so long the tape is when a cycle is over that began with a series; or 0 */
    int switching; /* a replay broke off where a cycle begins: it may be another programme's */
    struct hly_programme *avoid; /* broke off there, and nothing has been agreed on since */
    uint64_t uses;
    struct hly_series series[HLY_SERIES];
    size_t nseries;
    struct hly_period period;
    uint64_t served;    /* above the `wait` of all that replays have run */
    int failures, skip; /* voids since the last whole cycle; boundaries to stay in rounds for */
    struct hly_replay replay;
    struct hly_stall stall;
    halay_trainer_counters_t counters;
};

/* What ranks tell each other once. */
struct hly_greeting {
    uint64_t fusion_bytes, node;
    char host[56];
};

/* A bit a rank, in words. */
static inline size_t hly_rank_words(int nranks)
{
    return ((size_t)nranks + 63) / 64;
}

static inline int hly_rank_in(const uint64_t *ranks, int rank)
{
    return (int)(ranks[rank / 64] >> (rank % 64) & 1);
}

static inline void hly_rank_add(uint64_t *ranks, int rank)
{
    ranks[rank / 64] |= UINT64_C(1) << (rank % 64);
}

static inline void hly_rank_remove(uint64_t *ranks, int rank)
{
    ranks[rank / 64] &= ~(UINT64_C(1) << (rank % 64));
}

/* table.c */
uint64_t hly_trainer_now_ns(void);
/* So long from now, as pthread_cond_timedwait() wants it. */
struct timespec hly_trainer_until(uint64_t ns);
uint64_t hly_tensor_hash(const char *name);
/* Goes on from a hash. */
uint64_t hly_hash_words(uint64_t hash, const uint64_t *words, size_t nwords);
int hly_tensor_map_init(struct hly_map *map);
/* Ends the map, and what is in it with drop(); NULL: it is others'. Takes one that is not begun. */
void hly_tensor_map_finish(struct hly_map *map, void (*drop)(struct hly_node *node));
/* For nodes that are the beginning of what was allocated. */
void hly_node_free(struct hly_node *node);
struct hly_node *hly_tensor_map_find(const struct hly_map *map, uint64_t hash);
void hly_tensor_map_add(struct hly_map *map, struct hly_node *node);
void hly_tensor_map_remove(struct hly_map *map, struct hly_node *node);
void hly_tensor_list_push(struct hly_list *list, struct hly_tensor *tensor);
void hly_tensor_list_push_first(struct hly_list *list, struct hly_tensor *tensor);
void hly_tensor_list_remove(struct hly_list *list, struct hly_tensor *tensor);
struct hly_tensor *hly_tensor_list_pop(struct hly_list *list);
/* Mutex held. NULL: 65,536 are out, or no memory. */
struct hly_tensor *hly_tensor_take(halay_trainer_t *trainer);
void hly_tensor_give(halay_trainer_t *trainer, struct hly_tensor *tensor);
/* Mutex held. NULL if the ticket is not out. */
struct hly_tensor *hly_tensor_find(halay_trainer_t *trainer, halay_ticket_t ticket);
halay_ticket_t hly_tensor_ticket(const struct hly_tensor *tensor);
/* Stepper, without the mutex. Takes a tensor that is in no list. text: copied; may be NULL. */
void hly_tensor_done(halay_trainer_t *trainer, struct hly_tensor *tensor, int code,
                     const char *text);
void hly_tensors_free(halay_trainer_t *trainer);

/* By time of submission. */
void hly_tensor_list_insert(struct hly_list *list, struct hly_tensor *tensor);
void hly_tensor_list_end(halay_trainer_t *trainer, struct hly_list *list, int code,
                         const char *text);

/* greet.c: collective; fills greetings, slot_bytes and pair. */
int hly_trainer_greet(halay_trainer_t *trainer);

/* Of a reduce_scatter: elements of a rank. */
size_t hly_tensor_share(const halay_trainer_t *trainer, const struct hly_announcement *says,
                        int rank);

/* negotiate.c; all: stepper, without the mutex */
uint64_t hly_tensor_what(int kind, halay_type_t type, halay_op_t op, int root);
int hly_announcement_kind(const struct hly_announcement *says);
int hly_announcement_alike(const struct hly_announcement *a, const struct hly_announcement *b);
void hly_round_step(halay_trainer_t *trainer);
/* When the next tensor that waits for other ranks runs out of time; 0: none does. */
uint64_t hly_round_end_ns(const halay_trainer_t *trainer);
/* The end of all negotiation: what is not agreed ends with the code, and what comes later too. */
void hly_trainer_break(halay_trainer_t *trainer, int code, const char *text);
void hly_round_records_free(halay_trainer_t *trainer);

/* All ranks have announced it or joined, and come to this at the same place in the same round. */
void hly_record_complete(halay_trainer_t *trainer, struct hly_record *record);
/* Room for what so many completions more in this round say of groups. */
int hly_round_reserve(halay_trainer_t *trainer, size_t more);

/* join.c; stepper, without the mutex */
/* Neither announced nor joined. */
int hly_join_missing(const halay_trainer_t *trainer, const struct hly_record *record, int rank);
int hly_join_complete(const halay_trainer_t *trainer, const struct hly_record *record);
/* A joined rank that has not announced it, or -1. */
int hly_join_absent(const halay_trainer_t *trainer, const struct hly_record *record);
/* Whether it goes on without the joined ranks. */
int hly_join_takes(const struct hly_announcement *says);
/* This rank's part of what it has not submitted. NULL: no memory. */
struct hly_tensor *hly_join_ghost(halay_trainer_t *trainer, const struct hly_record *record);
int hly_join_said(halay_trainer_t *trainer, int rank);
void hly_join_unsaid(halay_trainer_t *trainer, int rank);
/* When this rank takes its join back; 0: it has none. */
uint64_t hly_join_end_ns(const halay_trainer_t *trainer);
/* trainer.c: what every call of a user begins (on 0 the mutex is held) and ends with */
int hly_trainer_enter(halay_trainer_t *trainer);
int hly_trainer_leave(halay_trainer_t *trainer, int result);
static inline int hly_trainer_forked(const halay_trainer_t *trainer)
{
    return !*trainer->alive;
}
/* Mutex held. Waits for the ticket, and tells why it has failed; text may be NULL. */
int hly_trainer_await(halay_trainer_t *trainer, halay_ticket_t ticket, char *text, size_t bytes);
/* Returns the code. text: gets the reason, that of the code itself if it is NULL. */
int hly_trainer_tell(int code, const char *reason, char *text, size_t bytes);
/* For times of CLOCK_MONOTONIC. */
int hly_cond_create(pthread_cond_t *cond);
/* With all signals blocked: they belong to the program's threads. */
int hly_thread_start(pthread_t *thread, void *(*body)(void *), void *arg);

/* stall.c; stepper, without the mutex */
void hly_stall_init(halay_trainer_t *trainer);
void hly_stall_free(halay_trainer_t *trainer);
/* What this rank waits for and has to ask about; NULL: nothing. */
struct hly_tensor *hly_stall_due(halay_trainer_t *trainer);
void hly_stall_write(halay_trainer_t *trainer, struct hly_block *block);
/* The questions of a round, behind its announcements. */
void hly_stall_read(halay_trainer_t *trainer);
/* A round begins; it is still out. */
void hly_stall_round(halay_trainer_t *trainer);
void hly_stall_silence(halay_trainer_t *trainer);
/* When to look again; 0: no need. */
uint64_t hly_stall_check_ns(const halay_trainer_t *trainer);
/* text: HLY_PLACE_BYTES; empty if it is not known. */
void hly_stall_place(halay_trainer_t *trainer, uint64_t name, char *text);

/* Who has waited for what, in the words of that rank. */
struct hly_notice {
    int rank, others; /* others: more tensors that wait for the same ranks */
    double waited_s;
    const char *name, *place;
};

/* timeline.c. Stepper, without the mutex; they do nothing while no timeline is on. */
/* A fused call. Unpacked, at end_ns; the tensors are in the flight's list. Returns 1 if they are
 * recorded too. */
int hly_timeline_fused(halay_trainer_t *trainer, const struct hly_flight *flight,
                       uint64_t reduced_ns, uint64_t end_ns);
void hly_timeline_vote(halay_trainer_t *trainer, const struct hly_flight *flight);
void hly_timeline_round(halay_trainer_t *trainer);
void hly_timeline_cycle(halay_trainer_t *trainer);
void hly_timeline_void(halay_trainer_t *trainer);
int hly_timeline_recording(const struct hly_timeline *timeline);
/* Mutex held, and a timeline is on. */
void hly_timeline_tensor(halay_trainer_t *trainer, const struct hly_tensor *tensor, int code,
                         uint64_t end_ns);

/* text.c */
void hly_text_notice(char *text, halay_trainer_t *trainer, const struct hly_record *record,
                     const struct hly_notice *notice);
void hly_text_mismatch(char *text, const struct hly_record *record, const char *name);
void hly_text_unsupported(char *text, const halay_trainer_t *trainer,
                          const struct hly_record *record, int rank);
void hly_text_join(char *text, const halay_trainer_t *trainer);
void hly_text_timeout(char *text, const halay_trainer_t *trainer, const struct hly_record *record,
                      int rank, const char *name);

/* programme.c; stepper, without the mutex */
struct hly_item *hly_script_find(const struct hly_script *script, uint64_t name);
/*
 * All ranks have announced this; tensor: this rank's. Returns the programme that begins here, with
 * it not yet run; or NULL: it is on the tape, and runs.
 */
struct hly_programme *hly_programme_seen(halay_trainer_t *trainer, const struct hly_record *record,
                                         const struct hly_tensor *tensor);
/* NULL: it has none of the series, or that is 0. */
struct hly_share *hly_programme_share(struct hly_programme *programme, uint64_t series);
/* What was agreed on is no part of a cycle; what comes now may begin a known programme. */
void hly_programme_forget(halay_trainer_t *trainer);
void hly_programme_whole(halay_trainer_t *trainer);
/* The replay ends; what has run in the cycle that it broke off is on the tape again. */
void hly_programme_void(halay_trainer_t *trainer);
void hly_programmes_free(halay_trainer_t *trainer);

/* series.c */
/* Returns 0 if the name is one of its own. */
uint64_t hly_series_of(const char *name, uint64_t *number);
uint64_t hly_series_name(uint64_t series, uint64_t number);
/* Stepper, without the mutex, as all that follow; at the same place on all ranks. */
struct hly_series *hly_series_find(halay_trainer_t *trainer, uint64_t series);
/* Begins it with the number if it is not known. NULL: there are too many. */
struct hly_series *hly_series_get(halay_trainer_t *trainer, uint64_t series, uint64_t number);
void hly_series_done(halay_trainer_t *trainer, uint64_t series, uint64_t number);
/*
 * One more is on the tape, now the last of so many; begins: a run. Returns the length of the period
 * that it ends, and that has stood often enough, or 0.
 */
size_t hly_period_add(halay_trainer_t *trainer, uint64_t says, int begins, size_t among);
void hly_period_forget(halay_trainer_t *trainer);
/* more: 1: it has to stand twice as often; -1: half as often. */
void hly_period_doubt(halay_trainer_t *trainer, int more);

/* replay.c; stepper, without the mutex */
void hly_replay_begin(halay_trainer_t *trainer, struct hly_programme *programme);
/* Starts the next group if it is time; returns 1 if it did. */
int hly_replay_next(halay_trainer_t *trainer);
/* In the order of the sequences. tensors: good, and still in the flight's list if it was fused. */
void hly_replay_result(halay_trainer_t *trainer, struct hly_flight *flight, int empty);
/* 1 if a group is out for long: a round asks the others to go as far, void if they must. */
int hly_replay_alarm(const halay_trainer_t *trainer);
/* What that round has said. */
void hly_replay_called(halay_trainer_t *trainer, uint64_t issued);
/* After all that could be started or tested: 1 if the replay has ended and rounds go on. */
int hly_replay_step(halay_trainer_t *trainer);

/* execute.c; stepper, without the mutex */
void hly_flights_step(halay_trainer_t *trainer);
/* A group of a programme; void where its tensors are not given. */
void hly_group_start(halay_trainer_t *trainer, struct hly_group *group, uint64_t sequence,
                     struct hly_list *tensors);
/* Moves what a round has completed to `ready`, bonded where it can be fused. */
void hly_fresh_bond(halay_trainer_t *trainer);
/* The text of the last failed call on a communicator, or the code's own. */
void hly_trainer_verdict(const halay_comm_t *comm, int code, char *text, size_t bytes);

/* deal.c; stepper, without the mutex */
/* 1 if this rank has no rows for the name, or others than now. */
int hly_deal_new(const halay_trainer_t *trainer, const struct hly_tensor *tensor);
/* No rank has: what they told each other is so. */
void hly_deal_recall(const halay_trainer_t *trainer, struct hly_tensor *tensor);
/* All have told each other. */
void hly_deal_keep(halay_trainer_t *trainer, const struct hly_tensor *tensor);
void hly_deals_free(halay_trainer_t *trainer);

/* fuse.c */
halay_type_t hly_announcement_type(const struct hly_announcement *says);
halay_op_t hly_announcement_op(const struct hly_announcement *says);
/* 1 if this can be part of a fused group. */
int hly_fuse_takes(const halay_trainer_t *trainer, const struct hly_announcement *says);
int hly_fuse_alike(const struct hly_announcement *a, const struct hly_announcement *b);
/* Elements behind the tensors, which tell whether a rank was void. */
size_t hly_fuse_marks(const halay_trainer_t *trainer, halay_type_t type);
/* A fusion buffer that is not in use, of this many bytes: HALAY_EAGAIN, HALAY_ENOMEM. */
int hly_fuse_slot(halay_trainer_t *trainer, size_t bytes, int *slot);
int hly_fuse_free(const halay_trainer_t *trainer); /* 1 if there is one */
/* Where the result of its call is. */
char *hly_fuse_result(const halay_trainer_t *trainer, int slot);
void hly_fuse_finish(halay_trainer_t *trainer);
void hly_fuse_mark(const halay_trainer_t *trainer, char *at, halay_type_t type, halay_op_t op,
                   int empty);
int hly_fuse_marked(const halay_trainer_t *trainer, const char *at, halay_type_t type,
                    halay_op_t op);
void hly_fuse_pack(halay_trainer_t *trainer, char *to, const struct hly_list *tensors);
void hly_fuse_unpack(halay_trainer_t *trainer, const char *from, const struct hly_list *tensors);

#endif
