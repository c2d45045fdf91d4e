/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mutex.h - the mutex of a context, and the threads that sleep until somebody calls them. One word,
 * since every call locks and unlocks it, and since a thread that polls asks at each poll whether
 * another one wants it. (U. Drepper: Futexes Are Tricky, the third mutex.)
 *
 * Invariant: a thread sleeps for the word only after it has made it WANTED, and who locks it after
 * a sleep leaves it WANTED, for there may be more. So whoever unlocks a WANTED one wakes one.
 * Barriers: unlock releases, lock acquires.
 */
#ifndef HLY_MUTEX_H
#define HLY_MUTEX_H

#include <assert.h>
#include <features.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#if __GLIBC_PREREQ(2, 32)
#include <sys/single_threaded.h>
#define HLY_IS_SINGLE() (__libc_single_threaded)
#else
#define HLY_IS_SINGLE() false
#endif

enum { HLY_MUTEX_FREE = 0, HLY_MUTEX_HELD, HLY_MUTEX_WANTED };

struct hly_mutex { /* all zero: free */
    _Atomic uint32_t word;
    _Atomic uint32_t calls; /* changed by the holder, read by all: hly_mutex_sleep() */
};

/* Out of line: locks it after a sleep; wakes one that sleeps for it. */
void hly_mutex_await(struct hly_mutex *mutex);
void hly_mutex_wake(struct hly_mutex *mutex);
/* The holder unlocks it, sleeps until hly_mutex_call(), or for so long, and locks it again. It may
 * return for no reason. */
void hly_mutex_sleep(struct hly_mutex *mutex, uint64_t timeout_ns);
/* The holder wakes all of them. */
void hly_mutex_call(struct hly_mutex *mutex);

static inline void hly_mutex_lock(struct hly_mutex *mutex)
{
    uint32_t seen = HLY_MUTEX_FREE;
    if (HLY_IS_SINGLE()) { /* no other thread that could hold it */
        assert(atomic_load_explicit(&mutex->word, memory_order_relaxed) == HLY_MUTEX_FREE);
        atomic_store_explicit(&mutex->word, HLY_MUTEX_HELD, memory_order_relaxed);
    } else if (!atomic_compare_exchange_strong_explicit(&mutex->word, &seen, HLY_MUTEX_HELD,
                                                        memory_order_acquire,
                                                        memory_order_relaxed)) {
        hly_mutex_await(mutex);
    }
}

static inline void hly_mutex_unlock(struct hly_mutex *mutex)
{
    if (HLY_IS_SINGLE())
        atomic_store_explicit(&mutex->word, HLY_MUTEX_FREE, memory_order_relaxed);
    else if (atomic_exchange_explicit(&mutex->word, HLY_MUTEX_FREE, memory_order_release) ==
             HLY_MUTEX_WANTED)
        hly_mutex_wake(mutex);
}

/* Asked by the holder: does another thread want it? */
static inline bool hly_mutex_is_wanted(const struct hly_mutex *mutex)
{
    return atomic_load_explicit(&mutex->word, memory_order_relaxed) == HLY_MUTEX_WANTED;
}

#endif
