/* SPDX-License-Identifier: Apache-2.0 */
/* mutex.c - the mutex of a context, where a thread sleeps or is woken: by futex(2). */
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/mutex.h"

static void sleep_while(_Atomic uint32_t *word, uint32_t value, const struct timespec *timeout)
{
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, timeout, NULL, 0);
}

static void wake(_Atomic uint32_t *word, int most)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, most, NULL, NULL, 0);
}

void hly_mutex_await(struct hly_mutex *mutex)
{
    const int before = errno;
    while (atomic_exchange_explicit(&mutex->word, HLY_MUTEX_WANTED, memory_order_acquire) !=
           HLY_MUTEX_FREE)
        sleep_while(&mutex->word, HLY_MUTEX_WANTED, NULL);
    errno = before;
}

void hly_mutex_wake(struct hly_mutex *mutex)
{
    const int before = errno;
    wake(&mutex->word, 1);
    errno = before;
}

void hly_mutex_sleep(struct hly_mutex *mutex, uint64_t timeout_ns)
{
    const int before = errno;
    const struct timespec timeout = {(time_t)(timeout_ns / 1000000000ull),
                                     (long)(timeout_ns % 1000000000ull)};
    const uint32_t calls = atomic_load_explicit(&mutex->calls, memory_order_relaxed);
    hly_mutex_unlock(mutex);
    sleep_while(&mutex->calls, calls, &timeout);
    hly_mutex_lock(mutex);
    errno = before;
}

void hly_mutex_call(struct hly_mutex *mutex)
{
    atomic_fetch_add_explicit(&mutex->calls, 1, memory_order_relaxed);
    wake(&mutex->calls, INT_MAX);
}
