/* SPDX-License-Identifier: Apache-2.0 */
/* lookup.c - looks names up in a thread (lookup.h). */
#define _GNU_SOURCE
#include "lookup.h"

#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "../../common/thread.h"

struct hly_lookup {
    pthread_mutex_t lock;
    pthread_cond_t over_cond;
    bool over, left; /* over: the thread has ended; left: the caller has */
    int error;
    char name[256];
    struct addrinfo *found;
};

static void lookup_free(struct hly_lookup *l)
{
    if (l->found)
        freeaddrinfo(l->found);
    pthread_cond_destroy(&l->over_cond);
    pthread_mutex_destroy(&l->lock);
    free(l);
}

static void *look_up(void *arg)
{
    struct hly_lookup *l = arg;
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    const int error = getaddrinfo(l->name, NULL, &hints, &found);
    pthread_mutex_lock(&l->lock);
    l->error = error;
    l->found = error ? NULL : found;
    l->over = true;
    const bool left = l->left;
    pthread_cond_signal(&l->over_cond);
    pthread_mutex_unlock(&l->lock);
    if (left)
        lookup_free(l);
    return NULL;
}

/* True for a numeric address, which needs no resolver. inet_aton() knows several forms, but only
 * four numbers count here: a machine may be called 12345, which inet_aton() takes for 0.0.48.57. */
static bool is_address(struct hly_lookup *l)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST};
    struct in_addr any;
    l->over = getaddrinfo(l->name, NULL, &hints, &l->found) == 0;
    if (!l->over) {
        l->found = NULL;
    } else if (inet_aton(l->name, &any) && inet_pton(AF_INET, l->name, &any) != 1) {
        freeaddrinfo(l->found);
        l->found = NULL;
        l->error = EAI_NONAME;
    }
    return l->over;
}

struct hly_lookup *hly_lookup_start(const char *name)
{
    struct hly_lookup *l = calloc(1, sizeof *l);
    pthread_condattr_t attr;
    if (!l)
        return NULL;
    pthread_mutex_init(&l->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&l->over_cond, &attr);
    pthread_condattr_destroy(&attr);
    snprintf(l->name, sizeof l->name, "%s", name);
    if (is_address(l) || !hly_thread_detached(look_up, l))
        return l;
    lookup_free(l);
    return NULL;
}

bool hly_lookup_wait(struct hly_lookup *l, uint64_t until_ns)
{
    const struct timespec end = {(time_t)(until_ns / 1000000000u), (long)(until_ns % 1000000000u)};
    int error = 0;
    pthread_mutex_lock(&l->lock);
    while (!l->over && error != ETIMEDOUT)
        error = pthread_cond_timedwait(&l->over_cond, &l->lock, &end);
    const bool over = l->over;
    pthread_mutex_unlock(&l->lock);
    return over;
}

int hly_lookup_found(const struct hly_lookup *l, const struct addrinfo **found)
{
    *found = l->found;
    return l->error;
}

void hly_lookup_end(struct hly_lookup *l)
{
    if (!l)
        return;
    pthread_mutex_lock(&l->lock);
    const bool over = l->over;
    l->left = true;
    pthread_mutex_unlock(&l->lock);
    if (over)
        lookup_free(l);
}
