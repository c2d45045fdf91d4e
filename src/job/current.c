/* SPDX-License-Identifier: Apache-2.0 */
/*
 * current.c - the context that the libraries of one process share: beside the job's identity the
 * only process-wide state (docs/decisions/0115).
 */
#include <assert.h>
#include <pthread.h>

#include "job/job.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;   /* of the two below; held for no call */
static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER; /* of who finds none, and makes it */
static halay_context_t *current;                           /* the first that has not ended */
static uint32_t users;                                     /* of it; 0 where there is none */
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* Whoever held them does not exist in the child. */
static void in_child(void)
{
    lock = making = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
}

static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, in_child);
}

void hly_current_begin(halay_context_t *context)
{
    pthread_once(&once, watch_forks);
    pthread_mutex_lock(&lock);
    if (!current) {
        current = context;
        users = 1;
    }
    pthread_mutex_unlock(&lock);
}

bool hly_current_end(const halay_context_t *context)
{
    bool stays = false;
    pthread_mutex_lock(&lock);
    if (context && context == current && !hly_forked(context)) {
        assert(users > 0);
        stays = --users > 0;
        current = stays ? current : NULL;
    }
    pthread_mutex_unlock(&lock);
    return stays;
}

/* One more user of the context that is there. HALAY_INPROGRESS: there is none. */
static int join(halay_context_t **context)
{
    int rc = HALAY_INPROGRESS;
    pthread_mutex_lock(&lock);
    if (current)
        rc = hly_forked(current) ? HALAY_EFORKED : HALAY_OK;
    if (!rc) {
        users++;
        *context = current;
    }
    pthread_mutex_unlock(&lock);
    return rc;
}

int halay_init_shared(const halay_config_t *config, halay_context_t **context)
{
    if (!context)
        return HALAY_EINVAL;
    pthread_once(&once, watch_forks);
    pthread_mutex_lock(&making);
    int rc = join(context);
    if (rc > 0)
        rc = halay_init(config, context);
    pthread_mutex_unlock(&making);
    return rc;
}
