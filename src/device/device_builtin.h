/* SPDX-License-Identifier: Apache-2.0 */
/* device_builtin.h - the devices that are part of the core. */
#ifndef HLY_DEVICE_BUILTIN_H
#define HLY_DEVICE_BUILTIN_H

#include <stddef.h>
#include <stdint.h>

#include <halay/device.h>

/* This processor. Takes no argument; all work is done when launch returns. */
extern const halay_device_ops_t hly_device_host;

/* Bytes to be copied while the host device works: what it reads is read while it writes. */
struct hly_beside {
    void *to;
    const void *from;
    size_t bytes;
};
/* launch, and the copy; without hly_stream_end(), as what is copied is of a later tile, and the
 * last tile's work has one. */
int hly_host_beside(halay_device_t *device, const halay_work_t *work,
                    const struct hly_beside *beside);

/* launch of work that streams, and the same result there; hly_stream_end() is the caller's. */
int hly_host_twice(halay_device_t *device, const halay_work_t *work, void *other);

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
};

/* memcpy past the caches; in parts, whose end comes before anything that says that the bytes are
 * there. */
void hly_stream(void *dst, const void *src, size_t bytes);
void hly_stream_part(void *dst, const void *src, size_t bytes);
void hly_stream_end(void);

/* Work that the host's bind has left something in, with these two sources instead. */
void hly_host_combine(const halay_work_t *work, const void *left, const void *right);

/* HALAY_OK, or HALAY_EINVAL for work that no device could do. */
int hly_device_work_check(const halay_work_t *work);

#endif
