/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu.h - the insides of the CUDA device. It works on one GPU: the one that it was opened for, or
 * the one whose memory it met first. Its primary context is retained, and current only inside of a
 * call of ours.
 */
#ifndef HLY_CUDA_GPU_H
#define HLY_CUDA_GPU_H

#include <stdbool.h>
#include <stdint.h>

#include "device/cuda/driver.h"
#include "device/cuda/kernels.h"
#include "device/device_builtin.h"

#define HLY_GPU_FLIGHTS 64 /* of one stream */
#define HLY_GPU_MARKS   128
#define HLY_GPU_GATES   64
#define HLY_GPU_CHUNKS  8
#define HLY_GPU_CHUNK   (512u << 10) /* bytes */
#define HLY_GPU_WHY     256

enum { HLY_GPU_STREAMS = 3 }; /* by a work's direction */

#define HLY_GPU_COUNT(name, number) +1
enum { HLY_GPU_MODULES = 0 HLY_CUDA_MODULES(HLY_GPU_COUNT) };

/* A piece of work; or, of a copy from or to memory that is not pinned, its next chunk. */
struct hly_gpu_flight {
    uint64_t cookie, number; /* done when the stream's count has come to it */
    int status;
    int chunk; /* of pinned memory; -1: none */
    char *host;
    uint64_t at; /* on the GPU */
    size_t bytes, left;
};

/*
 * Invariants: pieces have the numbers 1 .. issued, in the stream's order, and those up to done are
 * known to be done; each number after done is that of one flight, so that its event is its own.
 */
struct hly_gpu_stream {
    void *handle, *alarm; /* alarm: a stream that waits for a piece and then wakes the sleeper */
    uint64_t issued, done, alarmed; /* alarmed: the piece for which an alarm was set last */
    uint32_t nflights, nidle;       /* nidle: looks since something was done */
    bool unmarked;                  /* a piece was issued whose end will not be written */
    struct hly_gpu_flight flights[HLY_GPU_FLIGHTS];
    void *events[HLY_GPU_FLIGHTS]; /* only where words cannot be had */
};

struct hly_gpu_block;

/* Where a stream of the program was, at some call. */
struct hly_gpu_mark {
    uint64_t cookie; /* 0: free */
    void *event;     /* made when it is needed first */
    const void *stream;
};

/* In a stream of the program. It is open when its word has come to `turn`, so that the word serves
 * again before the stream has come to the gate. */
struct hly_gpu_gate {
    uint64_t turn;
    bool shut;
    void *passed; /* an event behind the last one; made when it is needed first */
};

struct hly_gpu {
    struct hly_cuda_driver driver;
    int ordinal, device; /* -1: none yet */
    int tried;           /* the one that was opened last, or was to be */
    void *context;
    bool no_words, broken, lost; /* broken: the context is; lost: work runs on that was to stop */
    int wake;                    /* an eventfd */
    bool inside;                 /* its context is current, */
    int capture_mode;            /* and the thread had this mode before */
    uint32_t nmultiprocessors;
    int node; /* NUMA, for pinned memory; -1: any */
    struct hly_gpu_stream streams[HLY_GPU_STREAMS];
    uint32_t nmarks;
    uint64_t marks_first, marks_end; /* a ring: in the order in which they were made */
    struct hly_gpu_mark marks[HLY_GPU_MARKS];
    struct hly_gpu_gate gates[HLY_GPU_GATES];
    uint64_t *gate_words; /* pinned; NULL: none was needed yet */
    uint64_t gate_words_at;
    bool gates_stay; /* it is not known when a stream has passed one */
    uint64_t *words; /* pinned, one line a stream; NULL: events */
    uint64_t words_at;
    char *chunks; /* pinned, or NULL */
    uint32_t chunks_taken;
    struct hly_gpu_block *blocks;
    size_t cached; /* bytes of blocks that are free */
    void *modules[HLY_GPU_MODULES], *copies[2], *copy_lists[2], *lists[HALAY_TYPE_COUNT];
    void *kernels[HALAY_TYPE_COUNT][HALAY_OP_COUNT], *scales[HALAY_TYPE_COUNT];
    bool rdma, dmabuf, flushes, cannot_flush; /* export.c */
    char why[HLY_GPU_WHY], broken_why[HLY_GPU_WHY], piece_why[HLY_GPU_WHY];
};

/* Makes the GPU's context current, or back what it was before. */
int hly_gpu_enter(struct hly_gpu *gpu);
void hly_gpu_leave(struct hly_gpu *gpu);

/* Opens the GPU, if none is open. HALAY_EUNSUPPORTED: there is none of this number that we can
 * use. */
int hly_gpu_open(struct hly_gpu *gpu, int ordinal);
int hly_gpu_attribute(const struct hly_gpu *gpu, int which); /* 0: it has none such */
void hly_gpu_streams_free(struct hly_gpu *gpu);

/* With the GPU's context: pinned words, all 0, and where the GPU has them. Nothing is kept after an
 * error. */
int hly_gpu_words_make(struct hly_gpu *gpu, size_t bytes, uint64_t **words, uint64_t *at);

/* A code for what a call has answered, which is kept in why. */
int hly_gpu_failed(struct hly_gpu *gpu, const char *call, int result);

/* The context is unusable, and `why` says why: it is kept. */
void hly_gpu_break(struct hly_gpu *gpu);

static inline bool hly_gpu_flies(const struct hly_gpu *gpu)
{
    return gpu->streams[0].nflights + gpu->streams[1].nflights + gpu->streams[2].nflights > 0;
}

/* As query of device.h; *ordinal: of the GPU whose memory it is. Managed memory is any one's. */
int hly_gpu_memory(struct hly_gpu *gpu, const void *address, size_t bytes, int *ordinal,
                   uint64_t *id);
bool hly_gpu_is_pinned(struct hly_gpu *gpu, const void *address, size_t bytes);
int hly_gpu_alloc(struct hly_gpu *gpu, bool pinned, size_t bytes, size_t alignment, void **address);
void hly_gpu_free(struct hly_gpu *gpu, void *address);
void hly_gpu_memory_close(struct hly_gpu *gpu);

/* node.c. The GPU's NUMA node, where sys stands for /sys; -1: not known, or there is one only. */
int hly_gpu_node_of(const char *sys, int domain, int bus, int device);
/* From now on the thread's new pages are of this node, if it may have them there; or false. */
bool hly_gpu_node_enter(int node);
void hly_gpu_node_leave(bool entered);
/* cuMemHostAlloc, on the GPU's node. */
int hly_gpu_pin(const struct hly_gpu *gpu, void **at, size_t bytes, unsigned flags);

/* A chunk of pinned memory: its number, -1 if none is free, or a code below that. */
int hly_gpu_chunk_take(struct hly_gpu *gpu);
void hly_gpu_chunk_give(struct hly_gpu *gpu, int chunk);

/* The kernel that does this work, and its elements per element of the work. */
int hly_gpu_kernel(struct hly_gpu *gpu, const halay_work_t *work, void **kernel, uint32_t *parts);
/* One that copies elements of 4 bytes, or bytes. */
int hly_gpu_kernel_copy(struct hly_gpu *gpu, bool words, void **kernel);
/* The same for lists, with scaling or without. */
int hly_gpu_kernel_list(struct hly_gpu *gpu, halay_type_t type, void **kernel, uint32_t *parts);
int hly_gpu_kernel_copy_list(struct hly_gpu *gpu, bool words, void **kernel);

/* Marks of the program's streams: as follow, poll and stop of device.h. */
int hly_gpu_follow(struct hly_gpu *gpu, const halay_stream_t *stream, uint64_t cookie);
int hly_gpu_marks_poll(struct hly_gpu *gpu, halay_done_t done[], int max);
bool hly_gpu_mark_drop(struct hly_gpu *gpu, uint64_t cookie);
void hly_gpu_marks_free(struct hly_gpu *gpu);

/* Is it a stream that can be followed? With the GPU's context. */
int hly_gpu_stream_check(struct hly_gpu *gpu, void *stream);
/* gate.c: as gate, gate_open and gate_word of device.h; _free may leave what streams have not
 * passed yet. */
int hly_gpu_gate(struct hly_gpu *gpu, const halay_stream_t *stream, uint32_t *gate);
void hly_gpu_gate_open(struct hly_gpu *gpu, uint32_t gate);
void hly_gpu_gate_word(const struct hly_gpu *gpu, uint32_t gate, uint64_t *at, uint64_t *value);
void hly_gpu_gates_free(struct hly_gpu *gpu);

int hly_gpu_launch(struct hly_gpu *gpu, const halay_work_t *work);
int hly_gpu_launch_list(struct hly_gpu *gpu, const halay_part_t parts[], uint32_t nparts,
                        halay_type_t type, uint64_t cookie);
int hly_gpu_poll(struct hly_gpu *gpu, halay_done_t done[], int max);
int hly_gpu_arm(struct hly_gpu *gpu, int *fd);
int hly_gpu_stop(struct hly_gpu *gpu, uint64_t cookie, uint64_t timeout_ns);

/* export.c: what adapters may do, which the GPU's attributes say; export_mem and flush. */
void hly_gpu_export_look(struct hly_gpu *gpu);
int hly_gpu_export(struct hly_gpu *gpu, const void *address, size_t bytes, uint32_t opens,
                   halay_export_t *exported);
int hly_gpu_flush(struct hly_gpu *gpu);

#endif
