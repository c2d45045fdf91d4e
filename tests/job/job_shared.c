/* SPDX-License-Identifier: Apache-2.0 */
/*
 * job_shared - three libraries of one rank, each in a thread of its own, take and leave the shared
 * context again and again: the first init may come while the last finalize is under way.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <time.h>

#include <halay/halay.h>

#include "../check.h"

enum { THREADS = 3, TURNS = 700 };

static atomic_int begun;

static void *turns(void *arg)
{
    const int me = (int)(intptr_t)arg;
    for (int i = 0; i < TURNS; i++) {
        char why[256] = "";
        halay_config_t config = HALAY_CONFIG_INIT;
        halay_context_t *context;
        halay_comm_t *world;
        config.error = why;
        config.error_bytes = sizeof why;
        const int rc = halay_init_shared(&config, &context);
        CHECK(!rc, "thread %d, turn %d: %s: %s", me, i, halay_strerror(rc), why);
        MUST(!halay_comm_world(context, &world));
        MUST(!halay_finalize(context));
        if ((i + me) % 3 == 0)
            nanosleep(&(struct timespec){0, 1000L * (i % 50)}, NULL);
        atomic_fetch_add(&begun, 1);
    }
    return NULL;
}

int main(void)
{
    pthread_t threads[THREADS];
    for (int t = 0; t < THREADS; t++)
        MUST(!pthread_create(&threads[t], NULL, turns, (void *)(intptr_t)t));
    for (int t = 0; t < THREADS; t++)
        MUST(!pthread_join(threads[t], NULL));
    printf("%d lives of the shared context\n", atomic_load(&begun));
    return 0;
}
