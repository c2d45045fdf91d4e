/* SPDX-License-Identifier: Apache-2.0 */
/* thread.h - threads of Halay's own, beside those of the program. */
#ifndef HALAY_PROC_THREAD_H
#define HALAY_PROC_THREAD_H

#include <stdint.h>

/* Starts a thread that nobody joins, and that takes no signals: they are the program's. 0, or
 * pthread_create's error. */
int hly_thread_detached(void *(*body)(void *), void *arg);

/* Which thread this is, as gettid() has it; glibc 2.28 has no gettid(). */
int32_t hly_thread_id(void);

#endif
