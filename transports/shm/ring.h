/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ring.h - a byte ring in shared memory: one producer, one consumer, records in order.
 *
 * Invariants
 *  - Positions are 64-bit counts of bytes that never wrap; the place in the ring is position &
 * mask.
 *  - A record starts on a cache line with one word: low half bytes + 1 (or RING_SKIP: go on at the
 *    start of the ring), high half the record's number. Its bytes follow without a break.
 *  - The word at the consumer's position is 0 until the record there is complete. The producer
 * keeps it so: it clears the word behind a record before it publishes the record, and therefore
 * never fills the last line. One cache line moves for a small message, no shared index does.
 *  - Neither side trusts a number that the other wrote: an impossible one is HLY_SHM_BROKEN.
 *
 * Barriers. The word is stored with release (in seq_cst) by publish and loaded with acquire by
 * take: the bytes of the record. `head` is stored with release by release and loaded with acquire
 * by reserve: what was read may be overwritten. The two sleeps are Dekker's pattern, all four
 * accesses seq_cst, so that at least one side sees the other: publish: word = record;  then reads
 * armed        release: head = position; then reads starved arm:     armed = 1;      then reads the
 * word      arm:     starved = 1;     then reads head
 */
#ifndef HALAY_SHM_RING_H
#define HALAY_SHM_RING_H

#include <assert.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define HLY_SHM_LINE     64u
#define HLY_SHM_FAR      128u /* apart enough for the prefetcher of pairs of lines too */
#define HLY_SHM_RING_MIN (8u << 10)
#define HLY_SHM_RING_MAX (1u << 30)
#define HLY_SHM_HEAD     4096u /* bytes before the ring's data */
#define HLY_SHM_MAGIC    UINT64_C(0x31306d6873796c68)
#define HLY_SHM_SKIP     UINT32_MAX
#define HLY_SHM_BROKEN   (-1)

/* What is said once, at the end. */
enum { HLY_SHM_STAYS = 0, HLY_SHM_GAVE_UP = 1, HLY_SHM_LEFT = 2 };

typedef struct hly_shm_shared {
    uint64_t magic, bytes;
    _Alignas(HLY_SHM_FAR) _Atomic uint32_t closed; /* by the producer: GAVE_UP this way, or LEFT */
    _Atomic uint32_t starved;                      /* the producer sleeps for want of room */
    _Alignas(HLY_SHM_FAR) _Atomic uint64_t head;   /* by the consumer: all before it is free */
    _Alignas(HLY_SHM_FAR) _Atomic uint32_t armed;  /* the consumer sleeps */
    _Atomic uint32_t left;                         /* the consumer reads no more: LEFT */
} hly_shm_shared_t;

/* One side's view. */
typedef struct hly_shm_ring {
    hly_shm_shared_t *shared;
    uint8_t *data;
    uint64_t mask;
    uint64_t position; /* of the next record */
    uint64_t edge;     /* producer: head, as last seen. consumer: head, as last said */
    uint64_t skip;     /* producer, from reserve to publish: bytes left empty at the ring's end */
    uint32_t number;   /* of the next record */
} hly_shm_ring_t;

/* All three: 0, or a negative errno; *why gets what was tried ("fallocate"). */
int hly_shm_ring_create(size_t bytes, hly_shm_ring_t *ring, int *fd, const char **why);
int hly_shm_ring_map(int fd, uint64_t bytes, hly_shm_ring_t *ring, const char **why);
void hly_shm_ring_unmap(hly_shm_ring_t *ring);

/* The longest message of a ring: four always fit, whatever the place they start at. */
static inline size_t hly_shm_ring_message(uint64_t mask)
{
    return (size_t)((mask + 1) / 4 - HLY_SHM_LINE);
}

static inline _Atomic uint64_t *hly_shm_ring_word(const hly_shm_ring_t *ring, uint64_t position)
{
    return (_Atomic uint64_t *)(void *)(ring->data + (position & ring->mask));
}

static inline uint64_t hly_shm_ring_record(size_t bytes)
{
    return (sizeof(uint64_t) + bytes + HLY_SHM_LINE - 1) & ~(uint64_t)(HLY_SHM_LINE - 1);
}

/* 1 if `need` bytes from position fit, 0 if not, HLY_SHM_BROKEN if the consumer's head is
 * nonsense. */
static inline int hly_shm_ring_room(hly_shm_ring_t *ring, uint64_t need)
{
    if (ring->position + need + HLY_SHM_LINE - ring->edge <= ring->mask + 1)
        return 1;
    uint64_t head = atomic_load(&ring->shared->head);
    if (head - ring->edge > ring->position - ring->edge)
        return HLY_SHM_BROKEN;
    ring->edge = head;
    return ring->position + need + HLY_SHM_LINE - head <= ring->mask + 1;
}

/* 1: *place is where `bytes` bytes go, until publish. Otherwise as room. */
static inline int hly_shm_ring_reserve(hly_shm_ring_t *ring, size_t bytes, uint8_t **place)
{
    uint64_t offset = ring->position & ring->mask, need = hly_shm_ring_record(bytes);
    assert(bytes <= hly_shm_ring_message(ring->mask));
    ring->skip = offset + need > ring->mask + 1 ? ring->mask + 1 - offset : 0;
    int room = hly_shm_ring_room(ring, ring->skip + need);
    if (room == 1)
        *place = (uint8_t *)hly_shm_ring_word(ring, ring->position + ring->skip) + sizeof(uint64_t);
    return room;
}

/* Publishes the record reserved last. 1 if the consumer sleeps and has to be woken. */
static inline int hly_shm_ring_publish(hly_shm_ring_t *ring, size_t bytes)
{
    uint64_t start = ring->position + ring->skip, next = start + hly_shm_ring_record(bytes);
    uint64_t number = (uint64_t)ring->number++ << 32, word = number | (uint32_t)(bytes + 1);
    atomic_store_explicit(hly_shm_ring_word(ring, next), 0, memory_order_relaxed);
    if (ring->skip) {
        atomic_store_explicit(hly_shm_ring_word(ring, start), word, memory_order_relaxed);
        word = number | HLY_SHM_SKIP;
    }
    atomic_store(hly_shm_ring_word(ring, ring->position), word);
    ring->position = next;
    return atomic_load(&ring->shared->armed) && atomic_exchange(&ring->shared->armed, 0);
}

/* Consumer: is there a record? */
static inline int hly_shm_ring_ready(const hly_shm_ring_t *ring)
{
    return atomic_load(hly_shm_ring_word(ring, ring->position)) != 0;
}

/* Consumer: 1 and the next record, which stays until release; 0 none; HLY_SHM_BROKEN. */
static inline int hly_shm_ring_take(hly_shm_ring_t *ring, const void **data, size_t *bytes)
{
    _Atomic uint64_t *place = hly_shm_ring_word(ring, ring->position);
    uint64_t word = atomic_load_explicit(place, memory_order_acquire);
    if (word == 0)
        return 0;
    uint64_t offset = ring->position & ring->mask, skip = 0;
    if ((uint32_t)word == HLY_SHM_SKIP && word >> 32 == ring->number) {
        skip = ring->mask + 1 - offset;
        offset = 0;
        place = hly_shm_ring_word(ring, 0);
        word = atomic_load_explicit(place, memory_order_relaxed);
    }
    size_t length = (size_t)(uint32_t)word - 1; /* 0 - 1 is too long, as it should be */
    if (word >> 32 != ring->number || length > hly_shm_ring_message(ring->mask) ||
        offset + hly_shm_ring_record(length) > ring->mask + 1)
        return HLY_SHM_BROKEN;
    ring->number++;
    ring->position += skip + hly_shm_ring_record(length);
    *data = (const uint8_t *)place + sizeof(uint64_t);
    *bytes = length;
    return 1;
}

/* Consumer: frees all that was taken. 1 if the producer sleeps for room and has to be woken. */
static inline int hly_shm_ring_release(hly_shm_ring_t *ring)
{
    ring->edge = ring->position;
    atomic_store(&ring->shared->head, ring->position);
    return atomic_load(&ring->shared->starved) && atomic_exchange(&ring->shared->starved, 0);
}

#endif
