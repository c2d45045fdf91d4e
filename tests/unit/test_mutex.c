/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_mutex.c - the mutex of a context: it excludes, a thread that polls notices who wants it, no
 * call is lost, and a sleep ends. A lost wake-up shows as a sleep of SLEEP_NS. On a busy machine a
 * change of threads may take milliseconds, so what changes often ends after BUSY_NS, too.
 */
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <time.h>

#include "base/mutex.h"
#include "check.h"

#define THREADS  4
#define ROUNDS   10000
#define CALLS    1000
#define SLEEP_NS 20000000000ull
#define BUSY_NS  2000000000ull

static struct hly_mutex mutex;
static unsigned long sum; /* under the mutex, as the next four */
static unsigned long done[THREADS];
static int turn, running;
static bool over;
static pthread_barrier_t both; /* of poll() */

static uint64_t now_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000ull + (uint64_t)ts.tv_nsec;
}

static void run(int threads, void *(*body)(void *))
{
    pthread_t thread[THREADS];
    unsigned long all = 0;
    sum = 0;
    over = false;
    for (int i = 0; i < threads; i++)
        CHECK(!pthread_create(&thread[i], NULL, body, (void *)(intptr_t)i), "thread %d", i);
    for (int i = 0; i < threads; i++)
        pthread_join(thread[i], NULL);
    CHECK(atomic_load(&mutex.word) == HLY_MUTEX_FREE, "it is not free");
    for (int i = 0; i < threads; i++)
        all += done[i];
    CHECK(all > 0 && sum == all, "two were in at once: %lu instead of %lu", sum, all);
}

static void *add(void *arg)
{
    for (int i = 0; i < ROUNDS; i++) {
        hly_mutex_lock(&mutex);
        const unsigned long before = sum;
        if (i % 512 == 0)
            sched_yield(); /* so that some find it held, and sleep */
        sum = before + 1;
        hly_mutex_unlock(&mutex);
    }
    done[(intptr_t)arg] = ROUNDS;
    return NULL;
}

/* Each holds it until the other one wants it, as a thread that polls does. */
static void *poll(void *arg)
{
    const uint64_t end = now_ns() + BUSY_NS;
    unsigned long calls = 0;
    pthread_barrier_wait(&both);
    hly_mutex_lock(&mutex);
    running++;
    for (; calls < CALLS && now_ns() < end; calls++) {
        while (running > 1 && !hly_mutex_is_wanted(&mutex))
            sched_yield();
        sum++;
        hly_mutex_unlock(&mutex);
        sched_yield();
        hly_mutex_lock(&mutex);
    }
    running--;
    done[(intptr_t)arg] = calls;
    hly_mutex_unlock(&mutex);
    return NULL;
}

/* They take turns, and sleep meanwhile. */
static void *take_turns(void *arg)
{
    const int mine = (int)(intptr_t)arg;
    const uint64_t end = now_ns() + BUSY_NS;
    hly_mutex_lock(&mutex);
    done[mine] = 0;
    while (!over) {
        const uint64_t before = now_ns();
        while (turn != mine && !over)
            hly_mutex_sleep(&mutex, SLEEP_NS);
        CHECK(now_ns() - before < SLEEP_NS, "a call was lost");
        over = over || done[mine] == CALLS || now_ns() >= end;
        turn = (turn + 1) % THREADS;
        sum++;
        done[mine]++;
        hly_mutex_call(&mutex);
    }
    hly_mutex_unlock(&mutex);
    return NULL;
}

static void sleep_ends(void)
{
    const uint64_t before = now_ns();
    hly_mutex_lock(&mutex);
    CHECK(!hly_mutex_is_wanted(&mutex), "nobody else is there");
    hly_mutex_sleep(&mutex, 2000000);
    CHECK(atomic_load(&mutex.word) != HLY_MUTEX_FREE, "it was not locked again");
    hly_mutex_unlock(&mutex);
    CHECK(now_ns() - before >= 1900000 && now_ns() - before < SLEEP_NS / 2, "a sleep of 2 ms");
}

int main(void)
{
    sleep_ends(); /* with a single thread */
    run(THREADS, add);
    pthread_barrier_init(&both, NULL, 2);
    run(2, poll);
    pthread_barrier_destroy(&both);
    run(THREADS, take_turns);
    sleep_ends();
    return 0;
}
