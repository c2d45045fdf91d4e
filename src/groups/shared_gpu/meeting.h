/* SPDX-License-Identifier: Apache-2.0 */
/*
 * meeting.h - the memory in which the members of a device communicator meet: a memfd that the first
 * one makes and that the others find by its id. It stays until the last one has left it.
 */
#ifndef HLY_SHARED_GPU_MEETING_H
#define HLY_SHARED_GPU_MEETING_H

#include <stddef.h>
#include <stdint.h>

#include "device/device_builtin.h"
#include "groups/shared_gpu/shared_gpu.h"

/*
 * Written by this member alone. The first three are constant from before `ended` first grows. Each
 * of the last three pairs with another member's: who is about to read slabs writes `reading` and
 * then looks at `shut`; who is to free one writes `shut` and then looks at `reading`.
 */
struct hly_meeting_member {
    uint64_t slab; /* memory of the GPU that all read: its address here, */
    unsigned char handle[HLY_CUDA_HANDLE_BYTES]; /* and for other processes */
    int32_t process;
    uint64_t ended;   /* steps of launches; the release of what they wrote */
    uint32_t reading; /* kernels of it may be, in slabs of others */
    uint32_t shut;    /* its slab must not be read any more */
    uint32_t left;    /* it reads no slab any more, nor has it one open */
} __attribute__((aligned(64)));

struct hly_meeting {
    uint64_t token; /* of the id. Constant */
    uint32_t lost;  /* a member has given up: nobody waits any more */
    struct hly_meeting_member member[];
};

/*
 * What a member writes for others, and reads of them: a release and an acquire, or both full
 * barriers. The thread sanitizer knows memory by its address, and each member maps the meeting at
 * another one, so it is told.
 */
#ifdef __SANITIZE_THREAD__
void __tsan_acquire(void *addr);
void __tsan_release(void *addr);
extern char hly_meeting_address[64];
#define HLY_MEETING_WRITTEN(m) __tsan_release(&hly_meeting_address[(m)->token % 64])
#define HLY_MEETING_READ(m)    __tsan_acquire(&hly_meeting_address[(m)->token % 64])
#else
#define HLY_MEETING_WRITTEN(m) ((void)(m))
#define HLY_MEETING_READ(m)    ((void)(m))
#endif

static inline void hly_meeting_write(struct hly_meeting *meeting, uint64_t *word, uint64_t value)
{
    HLY_MEETING_WRITTEN(meeting);
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
}

static inline uint64_t hly_meeting_read(struct hly_meeting *meeting, const uint64_t *word)
{
    const uint64_t value = __atomic_load_n(word, __ATOMIC_ACQUIRE);
    HLY_MEETING_READ(meeting);
    return value;
}

/* Makes one, and its id. The descriptor in it stays open until the first member leaves. */
int hly_meeting_make(unsigned char id[HALAY_CIRCLE_ID_BYTES]);
/* HALAY_EDEVICE: there is none of this id any more; HALAY_ENOMEM. */
int hly_meeting_enter(const unsigned char id[HALAY_CIRCLE_ID_BYTES], uint32_t n,
                      struct hly_meeting **meeting);
void hly_meeting_leave(struct hly_meeting *meeting, uint32_t n);
/* On the first member: nobody else can enter any more. */
void hly_meeting_shut(const unsigned char id[HALAY_CIRCLE_ID_BYTES]);

#endif
