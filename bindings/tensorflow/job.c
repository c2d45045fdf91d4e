/* SPDX-License-Identifier: Apache-2.0 */
/*
 * job.c - the job as Python tells it. Kernels hold the lock for reading while they submit, so that
 * who closes the job knows that no trainer is in use when it destroys them.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "job.h"

atomic_ullong hlf_later, hlf_at_once;

static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static struct hlf_job current;
static atomic_int owner; /* the process that opened it: a child that was forked off has none */
static atomic_ullong joins;

struct hlf_job *hlf_job_enter(const char **why)
{
    int opener = atomic_load(&owner);
    if (opener && opener != (int)getpid()) { /* the lock may be held by a thread of the parent */
        *why = "HALAY_EFORKED: called in a process that a rank has forked off, which is no rank";
        return NULL;
    }
    pthread_rwlock_rdlock(&lock);
    if (current.open)
        return &current;
    pthread_rwlock_unlock(&lock);
    *why = "Halay has not been initialized; use hvd.init().";
    return NULL;
}

void hlf_job_leave(void)
{
    pthread_rwlock_unlock(&lock);
}

struct hlf_set *hlf_job_set(struct hlf_job *job, int64_t number)
{
    for (size_t i = 0; i < job->nsets; i++)
        if (job->sets[i].is.number == number)
            return &job->sets[i];
    return NULL;
}

unsigned long long hlf_job_joins(void)
{
    return atomic_load(&joins);
}

static void drop(struct hlf_set *sets, size_t count)
{
    for (size_t i = 0; sets && i < count; i++)
        free((void *)sets[i].is.ranks);
    free(sets);
}

/* A copy of the job's sets; those that were there before go on counting. NULL: no memory. */
static struct hlf_set *copy(const halay_tf_job_t *job)
{
    struct hlf_set *sets = calloc(job->nsets ? job->nsets : 1, sizeof *sets);
    for (size_t i = 0; sets && i < job->nsets; i++) {
        const halay_tf_set_t *from = &job->sets[i];
        size_t bytes = (size_t)from->nranks * sizeof(int);
        int *ranks = malloc(bytes ? bytes : 1);
        if (!ranks) {
            drop(sets, i);
            return NULL;
        }
        memcpy(ranks, from->ranks, bytes);
        sets[i].is = *from;
        sets[i].is.ranks = ranks;
        struct hlf_set *before = current.open ? hlf_job_set(&current, from->number) : NULL;
        for (int kind = 0; before && kind < HLF_KINDS; kind++)
            atomic_store(&sets[i].unnamed[kind], atomic_load(&before->unnamed[kind]));
    }
    return sets;
}

int halay_tf_open(const halay_tf_job_t *job)
{
    pthread_rwlock_wrlock(&lock);
    struct hlf_set *sets = copy(job);
    if (sets) {
        drop(current.sets, current.nsets);
        if (!current.open)
            atomic_store(&joins, 0);
        current = (struct hlf_job){
            1, job->rank, job->size, job->local_rank, job->local_size, job->nsets, sets};
        atomic_store(&owner, (int)getpid());
    }
    pthread_rwlock_unlock(&lock);
    return sets ? HALAY_OK : HALAY_ENOMEM;
}

void halay_tf_close(void)
{
    if (atomic_load(&owner) != (int)getpid())
        return;
    pthread_rwlock_wrlock(&lock);
    drop(current.sets, current.nsets);
    current = (struct hlf_job){0};
    atomic_store(&owner, 0);
    pthread_rwlock_unlock(&lock);
}

void hlf_job_recount(void)
{
    /* For reading: who writes holds it for no longer than it takes to copy, and waits for nobody.
     */
    pthread_rwlock_rdlock(&lock);
    atomic_fetch_add(&joins, 1);
    for (size_t i = 0; i < current.nsets; i++)
        for (int kind = 0; kind < HLF_KINDS; kind++)
            atomic_store(&current.sets[i].unnamed[kind], 0);
    pthread_rwlock_unlock(&lock);
}

int halay_tf_counters(halay_tf_counters_t *counters)
{
    if (!counters || counters->size < sizeof *counters)
        return HALAY_EINVAL;
    counters->later = atomic_load(&hlf_later);
    counters->at_once = atomic_load(&hlf_at_once);
    return HALAY_OK;
}
