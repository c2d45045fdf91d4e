/* SPDX-License-Identifier: Apache-2.0 */
/*
 * done.h - the function that an asynchronous kernel of TensorFlow calls at its end, kept until
 * then.
 */
#ifndef HALAY_TF_DONE_H
#define HALAY_TF_DONE_H

#include "abi.h"

struct hlf_done {
    void *words[4]; /* a std::function of libstdc++: two of data, manager, invoker */
    TF_AsyncOpKernelDoneCallback *given;
    int moved;
};

/* 1: done may be called after the kernel has returned. 0: before it returns only, as nobody knows
 * how to keep it. */
int hlf_done_take(struct hlf_done *done, TF_AsyncOpKernelDoneCallback *given);
/* Calls it, once. */
void hlf_done_call(struct hlf_done *done);

#endif
