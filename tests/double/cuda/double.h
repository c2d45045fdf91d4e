/* SPDX-License-Identifier: Apache-2.0 */
/*
 * double.h - a double of libcuda for tests: GPUs that are threads. Memory of a GPU crashes whoever
 * touches it at its address; streams are in order each for itself, and late in an order that a seed
 * gives; kernels are those of kernels.inc, compiled by gcc. It shows wrong use and wrong order, not
 * what a real GPU does. All is set by these calls, or before the first one by the environment:
 * CUDA_DOUBLE="devices=2 seed=3 delay_us=50 megabytes=64 version=12000 words=0 dmabuf=0
 * ordered=1 ipc=1". What is exported as a dma-buf is a memfd, which can be mapped.
 */
#ifndef TESTS_DOUBLE_CUDA_H
#define TESTS_DOUBLE_CUDA_H

#include <stddef.h>
#include <stdint.h>

#define CUDA_DOUBLE __attribute__((visibility("default")))

struct cuda_double_settings {
    int devices, version, words, capability;
    int ipc;             /* memory is shared with other processes that use the double */
    int dmabuf, ordered; /* memory is exported; RDMA writes need no flush */
    unsigned taken;      /* bit i: GPU i is exclusive to a process, which is another one */
    int split;           /* GPUs have addresses of their own each: no unified addressing */
    int one_place;       /* all devices are parts of one GPU */
    int again;           /* what is freed now leaves its address to the next allocation */
    uint64_t seed;
    unsigned delay_us; /* at most, of each thing in a stream; 0: none */
    size_t bytes;      /* of a device's memory */
};

/* What is there and has not been freed; what was done. */
struct cuda_double_counts {
    int allocations, pinned, streams, events, modules, retained, pushed;
    int opened; /* of other processes */
    uint64_t exports, flushes, shared;
    uint64_t calls, kernels, pageable; /* pageable: copies that CUDA would not have made async */
    uint64_t misused;                  /* freed or foreign pointers, bad handles, no context */
    uint64_t spoiled;                  /* captures, by calls that are refused meanwhile */
    uint64_t written;                  /* words, by streams */
    uint64_t synchronized;             /* by cuStreamSynchronize and its like */
    /* calls in which the processor waits for the GPU: the same; pageable copies down; full queues;
     * and what is freed, for which CUDA waits */
    uint64_t waited;
    uint64_t launched;  /* kernels, done or not */
    int broken;         /* the error that all contexts have, or 0 */
    const char *failed; /* the call that failed last on request */
};

CUDA_DOUBLE struct cuda_double_settings *cuda_double_settings(void);
CUDA_DOUBLE struct cuda_double_counts cuda_double_counts(void);

/* The nth call from now on answers `result`, once; nth 0: none does. name NULL: of any call. */
CUDA_DOUBLE void cuda_double_fail(const char *name, uint64_t nth, int result);
/* From now on all calls of all contexts answer this, and nothing in a stream is done any more. 0:
 * well again. */
CUDA_DOUBLE void cuda_double_break(int result);
/* Streams stop where they are, or go on. */
CUDA_DOUBLE void cuda_double_halt(int halted);
/* The stream stands for the legacy one, which NULL and 1 name; else to name it is misuse. */
CUDA_DOUBLE void cuda_double_legacy(void *stream);
/* The stream is said to be captured into a graph, or no more. Meanwhile calls that CUDA holds to be
 * unsafe are refused on threads that have not said that they know better, and spoil the capture. */
CUDA_DOUBLE void cuda_double_capture(void *stream, int capturing);
/* Reads and writes memory of a GPU, as the GPU does. */
CUDA_DOUBLE void *cuda_double_inside(uint64_t at, size_t bytes);

#endif
