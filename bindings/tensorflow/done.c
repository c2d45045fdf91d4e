/* SPDX-License-Identifier: Apache-2.0 */
/*
 * done.c - TensorFlow's C interface hands an asynchronous kernel the address of a std::function
 * that lies on the stack of the thread that called, and ends when the kernel returns: too early for
 * whoever is asynchronous. We move it: such an object of libstdc++ may be copied byte for byte, if
 * what stays behind is made empty. Nothing is moved that does not look like one. One that is not on
 * the stack is TensorFlow's to keep, in a version that has no such fault.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>

#include "done.h"

enum { MANAGER = 2, INVOKER = 3 };
#define DESTROY 3 /* what a manager of libstdc++ is told when the object ends */
#define KNOWN   16

typedef int (*manager_t)(void *to, const void *from, int operation);

/* Of this thread; a kernel runs on few threads again and again. */
static _Thread_local uintptr_t stack_low, stack_high;
/* Functions that were looked up before. */
static _Thread_local void *known[KNOWN];
static _Thread_local unsigned next_known;

static int on_own_stack(const void *at)
{
    uintptr_t address = (uintptr_t)at;
    if (!stack_high) {
        pthread_attr_t attr;
        void *low = NULL;
        size_t bytes = 0;
        if (pthread_getattr_np(pthread_self(), &attr))
            return 0;
        pthread_attr_getstack(&attr, &low, &bytes);
        pthread_attr_destroy(&attr);
        stack_low = (uintptr_t)low;
        stack_high = stack_low + bytes;
    }
    return address >= stack_low && address < stack_high;
}

static int is_code(void *function)
{
    Dl_info info;
    for (unsigned i = 0; i < KNOWN; i++)
        if (known[i] == function)
            return function != NULL;
    if (!function || !dladdr(function, &info))
        return 0;
    known[next_known++ % KNOWN] = function;
    return 1;
}

int hlf_done_take(struct hlf_done *done, TF_AsyncOpKernelDoneCallback *given)
{
    void **words = (void **)given;
    done->given = given;
    done->moved = 0;
    if (!on_own_stack(given))
        return stack_high != 0;
    if (!is_code(words[MANAGER]) || !is_code(words[INVOKER]))
        return 0;
    memcpy(done->words, words, sizeof done->words);
    words[MANAGER] = words[INVOKER] = NULL;
    done->given = (TF_AsyncOpKernelDoneCallback *)done->words;
    done->moved = 1;
    return 1;
}

void hlf_done_call(struct hlf_done *done)
{
    hlf_tf.RunAsyncOpKernelDoneCallback(done->given);
    if (done->moved)
        ((manager_t)done->words[MANAGER])(done->words, done->words, DESTROY);
}
