/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz.h - what the fuzz targets share. Each target is one file with LLVMFuzzerTestOneInput, which
 * libFuzzer calls with bytes that it makes up (tests/fuzz/run), and main.c with those of the
 * corpus. A target makes all of its state anew: what an input does depends on that input alone.
 */
#ifndef TESTS_FUZZ_H
#define TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

#define FUZZ_WANT(condition)                                                                       \
    do {                                                                                           \
        if (!(condition))                                                                          \
            abort();                                                                               \
    } while (0)

struct fuzz {
    const uint8_t *at;
    size_t left;
};

/* As many as there are; zeros stand for the rest. */
static inline size_t fuzz_take(struct fuzz *f, void *to, size_t bytes)
{
    const size_t n = bytes < f->left ? bytes : f->left;
    memset(to, 0, bytes);
    if (n)
        memcpy(to, f->at, n);
    f->at += n;
    f->left -= n;
    return n;
}

static inline uint8_t fuzz_byte(struct fuzz *f)
{
    uint8_t one;
    fuzz_take(f, &one, 1);
    return one;
}

static inline uint32_t fuzz_word(struct fuzz *f)
{
    uint32_t one;
    fuzz_take(f, &one, sizeof(one));
    return one;
}

/* A copy with a zero at its end, in memory of just that size. */
static inline char *fuzz_text(const struct fuzz *f)
{
    char *text = malloc(f->left + 1);
    FUZZ_WANT(text);
    if (f->left)
        memcpy(text, f->at, f->left);
    text[f->left] = 0;
    return text;
}

/* The lowest descriptor that is free: before and after an input, to see whether one was lost. */
int fuzz_free_fd(void);

/*
 * net.c: system calls on this descriptor, which is none, read from the input: a byte says how much
 * comes (0: nothing yet, 254: a reset, 255: as much as is asked for), and what comes follows. Its
 * end is that of the stream. What is written is thrown away.
 */
#define FUZZ_FD 1000000
void fuzz_net_feed(struct fuzz *f);
extern int fuzz_net_full;    /* 1: nothing can be written now; 2: half of it */
extern long fuzz_net_closed; /* how often it was closed: it may stand for many */
/* fopen() of this path gives these bytes. */
#define FUZZ_PATH "/fuzz"
void fuzz_file_feed(const void *data, size_t bytes);

#endif
