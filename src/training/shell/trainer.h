/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trainer.h - the shell of a trainer: its thread, those who call it, and what it asks of Halay.
 *
 * The threads that may touch a member: the mutex guards what callers see: the tensors' table,
 * `submitted`, every tensor's outcome, the timeline. What is marked "stepper" belongs to the one
 * thread inside step()
 * (`stepping`), with or without the mutex. That role passes from thread to thread under the mutex.
 * No call into Halay is made with the mutex held.
 */
#ifndef HLT_TRAINER_H
#define HLT_TRAINER_H

#include <pthread.h>
#include <time.h>

#include "behind.h"
#include "calls.h"
#include "recording.h"
#include "stall.h"
#include "tensors.h"

/* Mutex, except for what is as seen by this step: stepper. */
struct hlt_steps {
    int stepping; /* a thread is inside step() */
    int again;    /* something came in meanwhile: step once more */
    int news;     /* tensors were done in this step */
    int busy;     /* after it: something is pending, waiting, ready or in flight */
    uint32_t
        submissions_before_wake; /* submissions before the next one that must wake the thread */
    uint64_t next_end_ns;        /* when the next tensor runs out of time; 0: none */
    int wanting;                 /* a caller waits or has polled, as seen by this step */
    int expecting;               /* tensors that are out have functions, as seen by this step */
};

/* Mutex. Those who call the trainer, and sleep for it. */
struct hlt_callers {
    int inside; /* a call of the trainer's */
    int driver; /* a waiting caller steps and sleeps for all */
    int asleep; /* threads in, or just about to call, halay_context_progress() */
    int waiters, parked;
    int polled;           /* a tensor that was not done has been polled */
    int looked;           /* a caller has waited or polled since the last submission */
    uint64_t looks;       /* runs so far: hlt_announcement.wait */
    uint64_t waits;       /* so far, so that the thread sees short ones */
    uint64_t spins;       /* times that a caller has polled */
    uint64_t spin_ns;     /* how long polling has lately paid */
    struct hlt_list done; /* their functions are to be called, in this order */
    size_t functions;     /* of tensors that are out */
    int calling;          /* a thread calls them, one at a time */
};

struct halay_trainer {
    halay_context_t *context;
    halay_comm_t *control, *data;
    char *alive; /* 0 in a forked child, which has no thread: it is refused */
    pthread_t thread;

    pthread_mutex_t mutex;
    pthread_cond_t changed;  /* a tensor is done, the driver has left, or stepping has ended */
    pthread_cond_t handback; /* for the parked thread */
    int stop;                /* the thread has to end */
    int closing;             /* no more rounds */
    int lost;                /* the device is, so this rank can take part in nothing more */
    halay_trainer_counters_t published;
    struct hlt_tensors tensors;
    struct hlt_callers callers;
    struct hlt_steps steps;

    struct hlt_core core;   /* stepper; but rank, nranks and deadline_ns never change */
    halay_request_t *round; /* stepper, as are calls, fusion and exchanges */
    struct hlt_calls calls;
    struct hlt_fusion fusion;
    struct hlt_exchanges exchanges;
    struct hlt_behinds behinds;
    struct hlt_recording recording;
    struct hlt_stall stall;
};

/* front.c */
uint64_t hlt_trainer_now_ns(void);
/* So long from now, as pthread_cond_timedwait() wants it. */
struct timespec hlt_trainer_until(uint64_t ns);
/* What every call of a user begins (on 0 the mutex is held) and ends with. */
int hlt_trainer_enter(halay_trainer_t *trainer);
int hlt_trainer_leave(halay_trainer_t *trainer, int result);
static inline int hlt_trainer_forked(const halay_trainer_t *trainer)
{
    return !*trainer->alive;
}
/* Mutex held, except for the call: wakes who sleeps in the context. */
void hlt_trainer_wake(halay_trainer_t *trainer);
/* The condition's times are those of CLOCK_MONOTONIC. */
int hlt_cond_create(pthread_cond_t *cond);
/* The thread has all signals blocked: they belong to the program's threads. */
int hlt_thread_start(pthread_t *thread, void *(*body)(void *), void *arg);
/* Others are in a call on this communicator of the trainer's that this rank would not make any
 * more: the error that has ended it here need not be known to them. */
int hlt_is_awaited(const halay_trainer_t *trainer, halay_comm_t *comm);
/* The text of the last failed call on a communicator, or the code's own. */
void hlt_trainer_verdict(const halay_comm_t *comm, int code, char *text, size_t bytes);

/* trainer.c */
/* Mutex held. Waits for the ticket, and tells why it has failed; text may be NULL. */
int hlt_trainer_await(halay_trainer_t *trainer, halay_ticket_t ticket, char *text, size_t bytes);
/* Returns the code. text gets the reason, or the code's own if that is NULL. */
int hlt_trainer_tell(int code, const char *reason, char *text, size_t bytes);

/* rounds.c; stepper, without the mutex */
void hlt_round_step(halay_trainer_t *trainer);

/* greet.c: collective; fills greetings and buffer_bytes. */
int hlt_trainer_greet(halay_trainer_t *trainer);

#endif
