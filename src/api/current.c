/* SPDX-License-Identifier: Apache-2.0 */
/*
 * current.c - the context that the libraries of one process share: beside the job's identity the
 * only process-wide state (docs/decisions/torch.md#0115).
 */
#include <assert.h>
#include <pthread.h>

#include "api/api.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;   /* of the two below; held for no call */
static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER; /* of who makes the one, or ends it */
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

/* Takes one user away, unless it is the last one and `last` is not set. */
static enum hly_current_left take_away(const halay_context_t *context, bool last)
{
    enum hly_current_left left = HLY_CURRENT_OTHER;
    pthread_mutex_lock(&lock);
    if (context && context == current && !hly_forked(context)) {
        assert(users > 0);
        left = users > 1 ? HLY_CURRENT_STAYS : HLY_CURRENT_ENDS;
        if (users > 1 || last)
            users--;
        if (!users)
            current = NULL;
    }
    pthread_mutex_unlock(&lock);
    return left;
}

enum hly_current_left hly_current_end(const halay_context_t *context)
{
    enum hly_current_left left = take_away(context, false);
    if (left != HLY_CURRENT_ENDS)
        return left;
    pthread_mutex_lock(&making);
    left = take_away(context, true); /* another user may have come meanwhile */
    if (left != HLY_CURRENT_ENDS)
        pthread_mutex_unlock(&making);
    return left;
}

void hly_current_ended(enum hly_current_left left)
{
    if (left == HLY_CURRENT_ENDS)
        pthread_mutex_unlock(&making);
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
