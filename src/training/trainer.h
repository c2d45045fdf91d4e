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
 * ready -> (started) one of `flights` -> done. It is in one list at a time.
 */
#ifndef HLY_TRAINER_H
#define HLY_TRAINER_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "halay/halay.h"
#include "halay/training.h"

enum {
    HLY_ROUND_ENTRIES = 16,  /* announcements of one rank in one round */
    HLY_FLIGHTS = 12,        /* operations in flight; below the core's window of 16 */
    HLY_CHUNK_TENSORS = 256, /* tensors are allocated in chunks, so that they never move */
    HLY_CHUNKS = 256,        /* 65,536 tensors out at most */
    HLY_TRACE_LINES = 65536,
    HLY_TEXT_BYTES = 1024
};

/* What a rank says about a tensor: all words must agree between ranks, but `rows`. */
struct hly_announcement {
    uint64_t name;     /* hash of it */
    uint64_t what;     /* kind, type, operation, root: see hly_tensor_what() */
    uint64_t count;    /* elements; of one row for an allgather */
    uint64_t prescale; /* bits of the double */
    uint64_t postscale;
    uint64_t rows; /* allgather: of this rank */
};

/* What a rank puts into a round. */
struct hly_block {
    uint64_t count;
    struct hly_announcement entries[HLY_ROUND_ENTRIES];
};

enum hly_kind {
    HLY_KIND_ALLREDUCE = 1,
    HLY_KIND_BROADCAST,
    HLY_KIND_ALLGATHER,
    HLY_KIND_BARRIER,
    HLY_KIND_WITHDRAW /* only in a round: this rank's deadline for the name has passed */
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
    uint64_t *rows;          /* of each rank; allocated for allgathers only */
    struct hly_record *next; /* of the unused ones */
    uint64_t announced[];    /* a bit a rank */
};

struct hly_tensor {
    struct hly_node node; /* first; in the map of names until it is done */
    struct hly_tensor *prev, *next;
    uint32_t index;
    uint64_t generation;

    struct hly_announcement says;
    const void *in;
    void *out;
    size_t count; /* elements here: rows * elements of a row for an allgather */
    halay_type_t type;
    halay_op_t op;
    int kind, root;
    double prescale, postscale;

    /* stepper */
    struct hly_record *record; /* from ready until started: allgather's rows */
    halay_request_t *request;
    uint64_t submit_ns, start_ns;

    /* mutex */
    int done, code;
    char *text;   /* why; NULL without an error */
    void *result; /* of an allgather, with its rows behind `rows` */
    size_t *rows;
    size_t result_count;
    char name[HALAY_TENSOR_NAME_MAX];
};

struct hly_list {
    struct hly_tensor *head, *tail;
};

struct halay_trainer {
    halay_context_t *context;
    halay_comm_t *control, *data;
    int rank, nranks;
    pid_t pid; /* a forked child has no thread and may find the mutex locked: it is refused */
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
    uint64_t waits;       /* counts waits, so that the thread sees short ones */
    uint64_t next_end_ns; /* when the next tensor runs out of time; 0: none */
    halay_trace_t *trace;
    size_t trace_room, trace_first, trace_count;

    /* stepper */
    struct hly_list pending, waiting, ready;
    struct hly_map records;
    struct hly_record *unused_records;
    halay_request_t *round;
    struct hly_block *blocks; /* one a rank, of the round in flight */
    struct hly_tensor *flights[HLY_FLIGHTS];
    int nflights;
    size_t *counts;  /* one a rank, for a call */
    int leaving;     /* closing, as seen by this step */
    int data_broken; /* an operation could not be started, so the order is lost */
    int broken;      /* why no round is started any more: the text */
    char broken_text[HLY_TEXT_BYTES];
};

/* table.c */
uint64_t hly_trainer_now_ns(void);
uint64_t hly_tensor_hash(const char *name);
int hly_tensor_map_init(struct hly_map *map);
void hly_tensor_map_finish(struct hly_map *map);
struct hly_node *hly_tensor_map_find(const struct hly_map *map, uint64_t hash);
void hly_tensor_map_add(struct hly_map *map, struct hly_node *node);
void hly_tensor_map_remove(struct hly_map *map, struct hly_node *node);
void hly_tensor_list_push(struct hly_list *list, struct hly_tensor *tensor);
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

/* negotiate.c; all: stepper, without the mutex */
uint64_t hly_tensor_what(int kind, halay_type_t type, halay_op_t op, int root);
void hly_round_step(halay_trainer_t *trainer);
void hly_round_record_give(halay_trainer_t *trainer, struct hly_record *record);
/* The end of all negotiation: what is not agreed ends with the code, and what comes later too. */
void hly_trainer_break(halay_trainer_t *trainer, int code, const char *text);
void hly_round_records_free(halay_trainer_t *trainer);

/* execute.c; stepper, without the mutex */
void hly_flights_step(halay_trainer_t *trainer);
/* The text of the last failed call on a communicator, or the code's own. */
void hly_trainer_verdict(const halay_comm_t *comm, int code, char *text, size_t bytes);

#endif
