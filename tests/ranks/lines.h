/* SPDX-License-Identifier: Apache-2.0 */
/* lines.h - streams of a program, of the double of CUDA's driver and of the late device. */
#ifndef TESTS_RANKS_LINES_H
#define TESTS_RANKS_LINES_H

#include "device/cuda/driver.h"
#include "device/device_builtin.h"
#include "double/cuda/double.h"
#include "ranks.h"

#define CALL(name, arguments) extern int name arguments;
HLY_CUDA_CALLS(CALL, CALL)
#undef CALL

enum { LINE_JOBS = 1024 };

struct line;
extern bool late; /* else CUDA */

struct job {
    enum { PUT = 0, GET, GATE } kind;
    void *to;
    const void *from;
    size_t bytes;
    uint32_t behind; /* of `after`; GATE: its number */
    struct line *after;
};

/* A stream. Of the late device it is a thread, that does a job a millisecond after it was put. */
struct line {
    struct hly_late_stream stream;
    void *context, *cuda;
    pthread_t thread;
    bool closing;
    bool opened[LINE_JOBS]; /* gates, by number */
    struct job jobs[LINE_JOBS];
};

void line_make(struct line *l, int gpu);
/* Waits until all that was put there is done. */
void line_end(struct line *l);
void line_drop(struct line *l, int gpu);
halay_stream_t stream_of(struct line *l);
void enter(struct line *l); /* makes its GPU's context current */
void leave(void);
/* Puts a copy to the device into the stream, of memory that stays as it is; `after`: behind all
 * that stands there. */
void put(struct line *l, void *to, const void *from, size_t bytes, struct line *after);
/* Puts a copy from the device into the stream; CUDA: to pinned memory. */
void get(struct line *l, void *to, const void *from, size_t bytes);
/* Has the stream come to its end? */
bool line_is_done(struct line *l);

#endif
