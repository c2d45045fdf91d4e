/* SPDX-License-Identifier: Apache-2.0 */
/* device_builtin.h - the devices that are part of the core. */
#ifndef HLY_DEVICE_BUILTIN_H
#define HLY_DEVICE_BUILTIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <halay/device.h>

/* This processor. Takes no argument; all work is done when launch returns. */
extern const halay_device_ops_t hly_device_host;

/*
 * For tests: does on the host what it was asked to do, but late and in random order, so that who
 * touches a buffer too early is found out. One seed gives one order. Work is ready after 1 to
 * delay_polls_max polls, so that many polls finish all that is in flight.
 */
extern const halay_device_ops_t hly_device_late;

#define HLY_DEVICE_LATE_CAPACITY_MAX 65536u

/* 0 anywhere, or no argument at all: choose. */
struct hly_device_late_arg {
    uint64_t seed;
    uint32_t delay_polls_max;
    uint32_t capacity; /* pieces of work in flight at most, up to HLY_DEVICE_LATE_CAPACITY_MAX */
    /* Numbers of launched pieces, counted from 1: one that never finishes, one that ends with
     * HALAY_EDEVICE and is not done, one after which poll is an error. 0: none. */
    uint32_t never, fails, breaks;
    bool stubborn; /* it cannot be stopped */
    /* Work is ready after at most so many microseconds instead, however often is polled; and the
     * device has a descriptor to sleep on. */
    uint32_t delay_us_max;
    /* It works in memory of a kind of its own, HALAY_MEMORY_TEST: alloc's, whose pages nobody can
     * read or write but itself, while it works. Any other access crashes. */
    bool own_memory;
};

/* What a program's stream is to the late device: so many things were put into it, and are done. */
struct hly_late_stream {
    uint32_t magic; /* HLY_LATE_STREAM */
    uint32_t put, done;
    /* Puts a gate into the stream, or opens it: any other has another number. NULL: it has none. */
    void (*gate)(struct hly_late_stream *stream, uint32_t number, bool opens);
};
#define HLY_LATE_STREAM 0x4c535452u

/*
 * GPUs, by CUDA's driver. Opening it is cheap and loads nothing: libcuda is looked for when there
 * is memory of a GPU, which a program cannot have without it. Managed memory is taken as a GPU's.
 * One device object works on one GPU: of the argument, or the one whose memory is seen first.
 */
extern const halay_device_ops_t hly_device_cuda;

#define HLY_CUDA_DRIVER "libcuda.so.1"
#define HLY_CUDA_LOADED "libcuda.so" /* how its name begins where it is loaded */

/* 0 anywhere, or no argument at all: choose. */
struct hly_device_cuda_arg {
    int32_t ordinal; /* 1 + the GPU's number: it is opened at once, or opening fails */
    bool no_words;   /* events in place of words that the GPU writes */
};

/* The GPU's number here, and 1 + its place on the PCI buses of the node, which no other GPU has and
 * MIG instances of one share. HALAY_EUNSUPPORTED: this device has no GPU yet. */
int hly_device_cuda_gpu(halay_device_t *device, int *ordinal, uint64_t *place);
/* Do the GPU's processes share one context (MPS)? false, too, where the driver cannot tell. */
bool hly_device_cuda_mps(halay_device_t *device);

#define HLY_CUDA_UUID_BYTES   16
#define HLY_CUDA_HANDLE_BYTES 64

/* The GPU's own number, which each MIG instance has too. HALAY_EUNSUPPORTED: no GPU, or a driver
 * before 11.4. */
int hly_device_cuda_uuid(halay_device_t *device, unsigned char uuid[HLY_CUDA_UUID_BYTES]);
/* Memory of alloc, aligned to 256 bytes at most, for other processes. HALAY_EUNSUPPORTED, or
 * HALAY_EDEVICE: this driver cannot. */
int hly_device_cuda_share(halay_device_t *device, const void *address,
                          unsigned char handle[HLY_CUDA_HANDLE_BYTES]);
/* Another process's. Each handle is opened once at a time. */
int hly_device_cuda_open_shared(halay_device_t *device,
                                const unsigned char handle[HLY_CUDA_HANDLE_BYTES], void **address);
void hly_device_cuda_close_shared(halay_device_t *device, void *address);

/* memcpy past the caches; in parts, whose end comes before anything that says that the bytes are
 * there. */
void hly_stream(void *dst, const void *src, size_t bytes);
void hly_stream_part(void *dst, const void *src, size_t bytes);
void hly_stream_end(void);

/* HALAY_OK, or HALAY_EINVAL for work that no device could do. */
int hly_device_work_check(const halay_work_t *work);
/* The same of a list; and a part of it as work of its own. */
int hly_device_list_check(const halay_part_t parts[], uint32_t nparts, halay_type_t type);
halay_work_t hly_device_part(const halay_part_t *part, halay_type_t type);

#endif
