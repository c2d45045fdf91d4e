/* SPDX-License-Identifier: Apache-2.0 */
/*
 * front.c - what every call of a user begins and ends with, and what the files of the shell share:
 * time, threads, and why a communicator has failed.
 */
#include <signal.h>
#include <stdio.h>

#include "trainer.h"

uint64_t hlt_trainer_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

struct timespec hlt_trainer_until(uint64_t ns)
{
    ns += hlt_trainer_now_ns();
    return (struct timespec){(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
}

/* What every call of a user begins and ends with; destroy waits for those who are inside. */
int hlt_trainer_enter(halay_trainer_t *trainer)
{
    if (!trainer)
        return HALAY_EINVAL;
    if (hlt_trainer_forked(trainer))
        return HALAY_EFORKED;
    pthread_mutex_lock(&trainer->mutex);
    trainer->callers.inside++;
    return 0;
}

int hlt_trainer_leave(halay_trainer_t *trainer, int result)
{
    if (--trainer->callers.inside == 0 && trainer->closing)
        pthread_cond_broadcast(&trainer->changed);
    pthread_mutex_unlock(&trainer->mutex);
    return result;
}

int hlt_cond_create(pthread_cond_t *cond)
{
    pthread_condattr_t attr;
    if (pthread_condattr_init(&attr))
        return HALAY_ENOMEM;
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    int rc = pthread_cond_init(cond, &attr);
    pthread_condattr_destroy(&attr);
    return rc ? HALAY_ENOMEM : 0;
}

int hlt_thread_start(pthread_t *thread, void *(*body)(void *), void *arg)
{
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int rc = pthread_create(thread, NULL, body, arg);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return rc ? HALAY_ENOMEM : 0;
}

void hlt_trainer_verdict(const halay_comm_t *comm, int code, char *text, size_t bytes)
{
    halay_verdict_t verdict = {.size = sizeof(verdict)};
    int known = !halay_comm_verdict(comm, &verdict) && verdict.code == code && verdict.text[0];
    snprintf(text, bytes, "%s", known ? verdict.text : halay_strerror(code));
}

int hlt_is_awaited(const halay_trainer_t *trainer, halay_comm_t *comm)
{
    int called = 0;
    return trainer->core.broken && !trainer->core.leaving && !halay_comm_called(comm, &called) &&
           called == 1;
}

void hlt_trainer_wake(halay_trainer_t *trainer)
{
    pthread_mutex_unlock(&trainer->mutex);
    halay_context_wake(trainer->context);
    pthread_mutex_lock(&trainer->mutex);
}
