/* SPDX-License-Identifier: Apache-2.0 */
/*
 * flight.h - flight records (halay/record.h) as tools read them. What they hold may be anything: it
 * is copied and checked first, and what does not make sense is left out.
 */
#ifndef HLY_FLIGHT_H
#define HLY_FLIGHT_H

#include <halay/record.h>

/* One rank's, as it was when it was read. Tables by rising age of their slots: the newest last. */
typedef struct hly_flight {
    halay_record_head_t head;
    int process;   /* its state in /proc; 'X': it is gone; 0: not looked for */
    int here;      /* read out of a process of this machine */
    int holder;    /* then: a process that holds the memory, the launcher if there is one */
    uint32_t torn; /* slots that were being written, or make no sense */
    uint32_t ncomms, nverdicts, nwaits, ncalls, nstacks;
    halay_record_comm_t comms[HALAY_RECORD_COMMS];
    halay_record_verdict_t verdicts[HALAY_RECORD_VERDICTS];
    halay_record_wait_t waits[HALAY_RECORD_WAITS];
    halay_record_call_t calls[HALAY_RECORD_CALLS];
    halay_record_stack_t stacks[HALAY_RECORD_STACKS];
} hly_flight_t;

/* 0, or -1 and why it is none. */
int hly_flight_read(const void *memory, size_t bytes, hly_flight_t *flight, const char **why);
/* The same of a file, said. */
int hly_flight_read_file(const char *path, hly_flight_t *flight);

typedef struct hly_flights { /* of one job, by rank */
    hly_flight_t **list;
    uint32_t n;
} hly_flights_t;

/* Takes the flight over. -1: no memory. */
int hly_flights_add(hly_flights_t *flights, hly_flight_t *flight);
void hly_flights_sort(hly_flights_t *flights); /* by job, then by rank */
void hly_flights_free(hly_flights_t *flights);
/* The state of a process: the letter of /proc. 'X': there is none such. */
int hly_flight_process(int pid);
/* By a signal or a debugger. */
int hly_flight_is_stopped(int pid);
/* All that this user's processes hold; of this job, if not NULL: its name, the beginning of it, or
 * the number of a process of it. -1: no memory. */
int hly_flights_find(const char *job, hly_flights_t *flights);

/* ---------------------------------------------------------------- where ranks are */

typedef enum hly_where {
    HLY_BEFORE_INIT,
    HLY_IN_INIT,
    HLY_NO_INIT,    /* halay_init() has failed */
    HLY_IN_MESSAGE, /* waits for a message with a tag, to come or to be received */
    HLY_IN_CALL,
    HLY_IN_FAILED,    /* its last call, which has failed */
    HLY_IN_AGREEMENT, /* in halay_comm_agree() or halay_comm_shrink() */
    HLY_OUTSIDE,      /* in code of the program */
    HLY_LEFT
} hly_where_t;

typedef struct hly_standing {
    hly_where_t where;
    const halay_record_call_t *call;           /* that it is in, or the last one; NULL: none */
    const halay_record_wait_t *wait;           /* of it; or NULL */
    const halay_record_agreement_t *agreement; /* HLY_IN_AGREEMENT */
    const halay_record_place_t *place;         /* where the program waits; NULL: not known */
} hly_standing_t;

void hly_flight_stand(const hly_flight_t *flight, hly_standing_t *standing);
const halay_record_comm_t *hly_flight_comm(const hly_flight_t *flight, uint64_t id);
/* Has it made this call of the communicator, as far as is known? */
int hly_flight_made(const hly_flight_t *flight, uint64_t comm, uint32_t sequence);
/* The latest time in any of them, since 1970; of live ones, now. */
uint64_t hly_flights_now(const hly_flights_t *flights);

/* "allreduce of 1024 float32", "send of 10 int32 to rank 3" */
void hly_flight_call_text(const hly_flight_t *flight, const halay_record_call_t *call, char *text,
                          size_t bytes);
/* "in call 17, allreduce of 1024 float32, since 2.1 s: waits for rank 3" */
void hly_flight_text(const hly_flight_t *flight, uint64_t now_ns, char *text, size_t bytes);
/* "  from train(step+0x12), from train(main+0x2)"; "": it does not wait. */
void hly_flight_stack_text(const hly_flight_t *flight, uint32_t stack, uint64_t now_ns, char *text,
                           size_t bytes);
/* "stopped", "killed by signal 9"; "" */
void hly_flight_process_text(const hly_flight_t *flight, char *text, size_t bytes);

/* ---------------------------------------------------------------- who is to blame */

typedef struct hly_blame {
    int rank; /* of the job */
    char text[256];
} hly_blame_t;

typedef struct hly_question { /* the call that does not end: the first of its communicator */
    uint64_t comm;
    uint32_t sequence;
    const halay_record_comm_t *members; /* as one of those in it has it; or NULL */
} hly_question_t;

/* "call 17 of communicator 89ab... (all 4 ranks)" */
void hly_flights_question_text(const hly_flights_t *flights, const hly_question_t *question,
                               char *text, size_t bytes);
/* "1, 3-5": the ranks of which there is no record; returns how many. Nothing is known of them. */
uint32_t hly_flights_lacking(const hly_flights_t *flights, char *text, size_t bytes);
/* Which calls do not end; returns how many, at most `most`. */
uint32_t hly_flights_questions(const hly_flights_t *flights, hly_question_t *questions,
                               uint32_t most);
/* Finds those that keep it from its end, among those that have left a record; returns how many. */
uint32_t hly_flights_blame(const hly_flights_t *flights, const hly_question_t *question,
                           hly_blame_t *blames, uint32_t most);
/* Prints each rank's story, then who is to blame, a line each with `head` before it; of many ranks
 * the first ones. */
void hly_flights_tell(const hly_flights_t *flights, uint32_t most,
                      void (*line)(void *arg, const char *text), void *arg);

#endif
