/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ring.h - messages in shared memory, in order: one producer, one consumer. Each is announced by a
 * cell of one cache line; what does not fit in there lies in the ring, in bytes.
 *
 *   cell   one word: the message's number, a bit for each word of its header that is not as in the
 *          last header, the bytes of the rest; these words; then the rest, if it fits
 *   ring   64 bytes for the header, and the rest. The producer writes no header there: the consumer
 *          puts it together in front of the rest, there or in memory of its own (lines)
 * A message that has no header of 64 bytes, or one of which every word is new, is WHOLE: all of it
 * is rest. One that is LENT has a hly_shm_loan in place of its payload (region.c).
 *
 * Invariants
 *  - Positions are 64-bit counts of bytes that never wrap; the place in the ring is position &
 *    mask. What is in the ring starts on a cache line and goes on without a break. `number` counts
 *    messages in the same way.
 *  - A cell's word is never anything else, so it is the one of `number` or of HLY_SHM_CELLS before:
 *    nothing is cleared. One cache line moves for a small message, no shared index does.
 *  - The last header that was sent, and taken, is equal at both ends, as messages have an order.
 * The first 64 bytes of what is WHOLE count as one, if there are as many.
 *  - Neither side trusts a number that the other wrote: an impossible one is HLY_SHM_BROKEN.
 *
 * Barriers. The word is stored with release by send and loaded with acquire by take: cell and bytes
 * of the message. `head` and `taken` are stored with release by release and loaded with acquire by
 * room: what was read may be overwritten.
 *
 * The two sleeps are Dekker's pattern, so that at least one side sees the other:
 *   send:    word = message;           then reads armed
 *   arm:     armed = 1;      later     reads the word
 *   release: head, taken = positions;  then reads starved
 *   arm:     starved = 1;    later     reads head, taken
 * Only the second and the fourth have a full barrier. A store of the others may still be on its way
 * when its processor reads, but not for long: so arm looks HLY_SHM_SETTLE_NS after it has said that
 * it sleeps (Morrison, Afek: Temporally Bounding TSO for Fence-Free Asymmetric Synchronization,
 * ASPLOS 2015). Were that ever too short, the core, which sleeps for a second at most, would be
 * late.
 */
#ifndef HALAY_SHM_RING_H
#define HALAY_SHM_RING_H

#include <assert.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define HLY_SHM_LINE     64u
#define HLY_SHM_FAR      128u /* apart enough for the prefetcher of pairs of lines too */
#define HLY_SHM_RING_MIN (8u << 10)
#define HLY_SHM_RING_MAX (1u << 29)
#define HLY_SHM_HEAD     8192u /* bytes before the ring's data */
#define HLY_SHM_MAGIC    UINT64_C(0x33306d6873796c68)
#define HLY_SHM_CELLS    64u
#define HLY_SHM_WORDS    8u         /* of a line, and of a header */
#define HLY_SHM_WHOLE    0xffu      /* for the bits */
#define HLY_SHM_BESIDE   48u        /* bytes that fit in a cell beside one word */
#define HLY_SHM_HELD     32u        /* cells that the consumer may keep without need */
#define HLY_SHM_LENT     (1u << 27) /* in the length of the rest */
#define HLY_SHM_REGIONS  64u        /* of memory, that a process offers to map */
#define HLY_SHM_BROKEN   (-1)

/* What an end tells once, at the end. */
enum { HLY_SHM_STAYS = 0, HLY_SHM_GAVE_UP = 1, HLY_SHM_LEFT = 2 };

typedef struct hly_shm_cell {
    _Alignas(HLY_SHM_LINE) _Atomic uint64_t word;
    uint64_t more[HLY_SHM_WORDS - 1];
} hly_shm_cell_t;

typedef struct hly_shm_shared {
    uint64_t magic, bytes;
    _Alignas(HLY_SHM_FAR) _Atomic uint32_t closed; /* by the producer: GAVE_UP this way, or LEFT */
    _Atomic uint32_t starved; /* the producer waits for room, or for what it has lent */
    _Atomic uint32_t changes; /* of `offered`, by the producer */
    _Atomic uint64_t
        recalled; /* by it: what is lent by messages up to this number counts no more */
    _Alignas(HLY_SHM_FAR) _Atomic uint64_t head;  /* by the consumer: all before it is free, */
    _Atomic uint64_t taken;                       /* and the cells of all messages before this */
    _Alignas(HLY_SHM_FAR) _Atomic uint32_t armed; /* the consumer sleeps */
    _Atomic uint32_t left;                        /* the consumer reads no more: LEFT */
    /* Generation of the producer's region in each slot, 0: none; and of what the consumer maps. */
    _Alignas(HLY_SHM_FAR) _Atomic uint32_t offered[HLY_SHM_REGIONS];
    _Alignas(HLY_SHM_FAR) _Atomic uint32_t mapped[HLY_SHM_REGIONS];
    _Alignas(HLY_SHM_FAR) hly_shm_cell_t cells[HLY_SHM_CELLS];
} hly_shm_shared_t;

/* Where the payload of a LENT message is. */
typedef struct hly_shm_loan {
    uint32_t slot, generation;
    uint64_t offset, bytes;
} hly_shm_loan_t;

/* One side's view. */
typedef struct hly_shm_ring {
    hly_shm_shared_t *shared;
    uint8_t *data;
    uint64_t mask;
    uint64_t most;     /* bytes beside a header, of the longest message */
    uint64_t position; /* of the next message's bytes */
    uint64_t number;   /* of the next message */
    uint64_t edge;     /* producer: head, as last seen. consumer: head, as last said */
    uint64_t taken;    /* the same of taken */
    uint32_t usual;    /* producer: word of the header that was new last time */
    uint64_t lines[2 * HLY_SHM_WORDS]; /* the last header; consumer: what came after it in a cell */
} hly_shm_ring_t;

/* All four: 0, or a negative errno; *why gets what was tried ("fallocate"). */
int hly_shm_memory_create(const char *name, size_t bytes, int *fd, const char **why);
int hly_shm_ring_create(size_t bytes, hly_shm_ring_t *ring, int *fd, const char **why);
int hly_shm_ring_map(int fd, uint64_t bytes, hly_shm_ring_t *ring, const char **why);
void hly_shm_ring_unmap(hly_shm_ring_t *ring);
/* Has it so many bytes, and will it always? */
int hly_shm_memory_check(int fd, uint64_t bytes);

/* The longest message of a ring: a little more than 32 KiB of 128. Two always fit, whatever the
 * place they start at, and beside what the consumer may not have given back yet. */
static inline size_t hly_shm_ring_message(uint64_t mask)
{
    return (size_t)((mask + 1) / 4 + (mask + 1) / 64 - HLY_SHM_LINE);
}

static inline hly_shm_cell_t *hly_shm_ring_cell(const hly_shm_ring_t *ring)
{
    return &ring->shared->cells[ring->number % HLY_SHM_CELLS];
}

/* A cell's word: 28 bits of number, 8 bits, 28 of the rest's length, the first for LENT. */
static inline uint64_t hly_shm_ring_word(uint64_t number, uint32_t bits, size_t rest)
{
    return number << 36 | (uint64_t)bits << 28 | rest;
}

/* Bytes of the ring that the message needs; none if it fits in its cell. */
static inline uint64_t hly_shm_ring_need(uint32_t words, size_t lead, size_t rest)
{
    if (words * sizeof(uint64_t) + rest <= sizeof(((hly_shm_cell_t *)0)->more))
        return 0;
    return (lead + rest + HLY_SHM_LINE - 1) & ~(uint64_t)(HLY_SHM_LINE - 1);
}

/* Bytes left empty at the ring's end. */
static inline uint64_t hly_shm_ring_skip(const hly_shm_ring_t *ring, uint64_t need)
{
    uint64_t offset = ring->position & ring->mask;
    return offset + need > ring->mask + 1 ? ring->mask + 1 - offset : 0;
}

/* 1 if a message with `need` bytes of the ring fits, 0 if not, HLY_SHM_BROKEN if what the consumer
 * says is nonsense. */
static inline int hly_shm_ring_room(hly_shm_ring_t *ring, uint64_t need)
{
    if (ring->position + need - ring->edge <= ring->mask + 1 &&
        ring->number - ring->taken < HLY_SHM_CELLS)
        return 1;
    uint64_t head = atomic_load(&ring->shared->head), taken = atomic_load(&ring->shared->taken);
    if (head - ring->edge > ring->position - ring->edge ||
        taken - ring->taken > ring->number - ring->taken)
        return HLY_SHM_BROKEN;
    ring->edge = head;
    ring->taken = taken;
    return ring->position + need - head <= ring->mask + 1 && ring->number - taken < HLY_SHM_CELLS;
}

/* Has to be woken, and by nobody else? Not before what was stored last. */
static inline int hly_shm_ring_sleeps(_Atomic uint32_t *flag)
{
    atomic_signal_fence(memory_order_seq_cst);
    return atomic_load_explicit(flag, memory_order_relaxed) && atomic_exchange(flag, 0);
}

/* A bit for each word of the header that is new. Word by word: whoever sends has just written some
 * of them, and loads of several at once would have to wait for that. */
static inline uint32_t hly_shm_ring_news(const hly_shm_ring_t *ring, const uint8_t *header)
{
    uint32_t bits = 0;
#pragma GCC unroll 8
    for (uint32_t i = 0; i < HLY_SHM_WORDS; i++) {
        uint64_t word;
        memcpy(&word, header + i * sizeof(word), sizeof(word));
        bits |= (uint32_t)(word != ring->lines[i]) << i;
    }
    return bits;
}

/* The same where mostly no other word is new than last time; it is told already: *to. 0: some other
 * one is. */
static inline uint32_t hly_shm_ring_usual(hly_shm_ring_t *ring, const uint8_t *header, uint64_t *to)
{
    const uint32_t usual = ring->usual % HLY_SHM_WORDS;
    const uint64_t was = ring->lines[usual];
    uint64_t others = 0;
    memcpy(to, header + usual * sizeof(*to), sizeof(*to));
    ring->lines[usual] = *to;
#pragma GCC unroll 8
    for (uint32_t i = 0; i < HLY_SHM_WORDS; i++) {
        uint64_t word;
        memcpy(&word, header + i * sizeof(word), sizeof(word));
        others |= word ^ ring->lines[i];
    }
    if (!others)
        return 1u << usual;
    ring->lines[usual] = was;
    return 0;
}

/* Mostly one: not worth a call or a table. */
static inline uint32_t hly_shm_ring_count(uint32_t bits)
{
    uint32_t n = 0;
    for (; bits; bits &= bits - 1)
        n++;
    return n;
}

/* What goes into the cell first; the header is the last one from now on. */
static inline void hly_shm_ring_tell(hly_shm_ring_t *ring, const uint8_t *header, uint32_t bits,
                                     uint64_t *to)
{
    for (; bits; bits &= bits - 1) {
        uint32_t i = ring->usual = (uint32_t)__builtin_ctz(bits);
        memcpy(to, header + i * sizeof(*to), sizeof(*to));
        ring->lines[i] = *to++;
    }
}

/* What fits in a cell: a call of memcpy() would take longer than the copy. The last word overlaps
 * the one before it. */
static inline void hly_shm_ring_copy(void *to, const void *from, size_t bytes)
{
    uint8_t *d = to;
    const uint8_t *s = from;
    if (bytes >= 16) {
        for (size_t at = 0; at + 16 < bytes; at += 16)
            memcpy(d + at, s + at, 16);
        memcpy(d + bytes - 16, s + bytes - 16, 16);
    } else if (bytes >= 8) {
        memcpy(d, s, 8);
        memcpy(d + bytes - 8, s + bytes - 8, 8);
    } else if (bytes >= 4) {
        memcpy(d, s, 4);
        memcpy(d + bytes - 4, s + bytes - 4, 4);
    } else if (bytes) {
        d[0] = s[0];
        d[bytes / 2] = s[bytes / 2];
        d[bytes - 1] = s[bytes - 1];
    }
}

/* Announces the next message. Does the consumer sleep, and has to be woken? */
static inline int hly_shm_ring_announce(hly_shm_ring_t *ring, hly_shm_cell_t *cell, uint32_t bits,
                                        size_t rest)
{
    atomic_store_explicit(&cell->word, hly_shm_ring_word(++ring->number, bits, rest),
                          memory_order_release);
    return hly_shm_ring_sleeps(&ring->shared->armed);
}

/* The same as send where mostly nothing is new: there is room as far as is known, and one word of
 * the header has changed, or all that has fits in the cell. 0: something is not so. */
static inline int hly_shm_ring_send_usual(hly_shm_ring_t *ring, const void *header,
                                          const void *payload, size_t payload_bytes, int *wake)
{
    const uint64_t bytes = hly_shm_ring_need(1, HLY_SHM_LINE, payload_bytes);
    const uint64_t skip = bytes ? hly_shm_ring_skip(ring, bytes) : 0;
    if (ring->number - ring->taken >= HLY_SHM_CELLS ||
        (bytes && ring->position + skip + bytes - ring->edge > ring->mask + 1))
        return 0;
    hly_shm_cell_t *cell = hly_shm_ring_cell(ring);
    size_t news = sizeof(uint64_t);
    uint32_t bits = hly_shm_ring_usual(ring, header, cell->more);
    if (!bits) {
        bits = hly_shm_ring_news(ring, header);
        news = hly_shm_ring_count(bits) * sizeof(uint64_t);
        if (bytes || news + payload_bytes > sizeof(cell->more))
            return 0;
        hly_shm_ring_tell(ring, header, bits, cell->more);
    }
    if (!bytes) {
        hly_shm_ring_copy((uint8_t *)cell->more + news, payload, payload_bytes);
    } else {
        uint8_t *at = ring->data + ((ring->position + skip) & ring->mask) + HLY_SHM_LINE;
        memcpy(at, payload, payload_bytes);
        ring->position += skip + bytes;
    }
    *wake = hly_shm_ring_announce(ring, cell, bits, payload_bytes);
    return 1;
}

/* Sends header and payload, at most hly_shm_ring_message(); lent: HLY_SHM_LENT or 0. 1: sent, and
 * *wake says whether the consumer sleeps and has to be woken. Otherwise as room; *need is then what
 * it lacks. */
static inline int hly_shm_ring_send(hly_shm_ring_t *ring, const void *header, size_t header_bytes,
                                    const void *payload, size_t payload_bytes, uint32_t lent,
                                    uint64_t *need, int *wake)
{
    uint32_t bits = HLY_SHM_WHOLE, nnews = 0;
    size_t lead = 0, rest = header_bytes + payload_bytes;
    assert(rest <= hly_shm_ring_message(ring->mask));
    if (header_bytes == HLY_SHM_LINE)
        bits = hly_shm_ring_news(ring, header);
    if (bits != HLY_SHM_WHOLE) {
        nnews = hly_shm_ring_count(bits);
        lead = HLY_SHM_LINE;
        rest = payload_bytes;
    }
    uint64_t bytes = hly_shm_ring_need(nnews, lead, rest);
    uint64_t skip = bytes ? hly_shm_ring_skip(ring, bytes) : 0;
    int room = hly_shm_ring_room(ring, skip + bytes);
    *need = skip + bytes;
    if (room != 1)
        return room;
    hly_shm_cell_t *cell = hly_shm_ring_cell(ring);
    uint8_t *at = (uint8_t *)(cell->more + nnews);
    if (bytes)
        at = ring->data + ((ring->position + skip) & ring->mask) + lead;
    if (lead) {
        hly_shm_ring_tell(ring, header, bits, cell->more);
    } else if (header_bytes) {
        memcpy(at, header, header_bytes);
        at += header_bytes;
    }
    if (!bytes)
        hly_shm_ring_copy(at, payload, payload_bytes);
    else if (payload_bytes)
        memcpy(at, payload, payload_bytes);
    if (!lead && rest >= HLY_SHM_LINE)
        memcpy(ring->lines, at - header_bytes, HLY_SHM_LINE);
    ring->position += skip + bytes;
    *wake = hly_shm_ring_announce(ring, cell, bits, rest | lent);
    return 1;
}

/* Is this word of the message before the next one in its cell? */
static inline int hly_shm_ring_old(const hly_shm_ring_t *ring, uint64_t word)
{
    const uint64_t last = ring->number < HLY_SHM_CELLS ? 0 : ring->number + 1 - HLY_SHM_CELLS;
    return (word ^ hly_shm_ring_word(last, 0, 0)) >> 36 == 0;
}

/* 1 if this word is that of the next message, 0 if of the one before it in its cell, or broken. */
static inline int hly_shm_ring_due(const hly_shm_ring_t *ring, uint64_t word)
{
    if ((word ^ hly_shm_ring_word(ring->number + 1, 0, 0)) >> 36 == 0)
        return 1;
    return hly_shm_ring_old(ring, word) ? 0 : HLY_SHM_BROKEN;
}

/* Consumer: is there a message? */
static inline int hly_shm_ring_ready(const hly_shm_ring_t *ring)
{
    return hly_shm_ring_due(ring, atomic_load(&hly_shm_ring_cell(ring)->word)) != 0;
}

/* Consumer: 1, or 2 if it is LENT, and the next message, until release; one in ring->lines until
 * the next take. 0: none; HLY_SHM_BROKEN. */
static inline int hly_shm_ring_take(hly_shm_ring_t *ring, const void **data, size_t *bytes)
{
    const hly_shm_cell_t *cell = hly_shm_ring_cell(ring);
    uint64_t word = atomic_load_explicit(&cell->word, memory_order_acquire);
    int due = hly_shm_ring_due(ring, word);
    if (due != 1)
        return due;
    uint32_t bits = word >> 28 & 0xff, nnews = 0;
    size_t rest = word & (HLY_SHM_LENT - 1), lead = 0;
    if (bits != HLY_SHM_WHOLE) {
        lead = HLY_SHM_LINE;
        for (; bits; bits &= bits - 1)
            ring->lines[__builtin_ctz(bits)] = cell->more[nnews++];
    }
    if (lead + rest > hly_shm_ring_message(ring->mask))
        return HLY_SHM_BROKEN;
    uint64_t need = hly_shm_ring_need(nnews, lead, rest), skip = 0;
    uint8_t *start = (uint8_t *)ring->lines + (lead ? 0 : HLY_SHM_LINE);
    if (!need) {
        hly_shm_ring_copy(ring->lines + HLY_SHM_WORDS, cell->more + nnews, rest);
    } else {
        skip = hly_shm_ring_skip(ring, need);
        start = ring->data + ((ring->position + skip) & ring->mask);
        if (lead)
            memcpy(start, ring->lines, HLY_SHM_LINE);
        else if (rest >= HLY_SHM_LINE)
            memcpy(ring->lines, start, HLY_SHM_LINE);
    }
    ring->number++;
    ring->position += skip + need;
    *data = start;
    *bytes = lead + rest;
    return word & HLY_SHM_LENT ? 2 : 1;
}

/* Consumer: the next cell's word, for take_usual; 0: there is none, or not a usual one. */
static inline uint64_t hly_shm_ring_look(const hly_shm_ring_t *ring)
{
    const uint64_t word =
        atomic_load_explicit(&hly_shm_ring_cell(ring)->word, memory_order_acquire);
    return (word ^ hly_shm_ring_word(ring->number + 1, 0, 0)) >> 36 ? 0 : word;
}

/* Consumer: the same as take where one word of the header is new, as mostly, and not more than
 * `most` bytes follow. word: by look; 0: it is another message. */
static inline int hly_shm_ring_take_usual(hly_shm_ring_t *ring, uint64_t word, size_t most,
                                          const void **data, size_t *bytes)
{
    const hly_shm_cell_t *cell = hly_shm_ring_cell(ring);
    const uint32_t bits = word >> 28 & 0xff;
    const size_t rest = word & ((1u << 28) - 1);
    if (!bits || bits & (bits - 1) || rest > most)
        return 0;
    const uint32_t one = (uint32_t)__builtin_ctz(bits);
    const uint64_t news = cell->more[0];
    *data = ring->lines;
    if (rest <= 2 * sizeof(uint64_t)) { /* more than that costs no more than to look how much */
        memcpy(ring->lines + HLY_SHM_WORDS, cell->more + 1, 2 * sizeof(uint64_t));
    } else if (rest <= HLY_SHM_BESIDE) {
        memcpy(ring->lines + HLY_SHM_WORDS, cell->more + 1, HLY_SHM_BESIDE);
    } else { /* the new word last: whoever has just written it waits before it copies a line */
        const uint64_t need = hly_shm_ring_need(1, HLY_SHM_LINE, rest);
        const uint64_t skip = hly_shm_ring_skip(ring, need);
        uint8_t *start = ring->data + ((ring->position + skip) & ring->mask);
        memcpy(start, ring->lines, HLY_SHM_LINE);
        memcpy(start + one * sizeof(news), &news, sizeof(news));
        ring->position += skip + need;
        *data = start;
    }
    ring->lines[one] = news;
    ring->number++;
    *bytes = HLY_SHM_LINE + rest;
    return 1;
}

/* Consumer: does the message of the last take lie in ring->lines? */
static inline int hly_shm_ring_short(const hly_shm_ring_t *ring, const void *data)
{
    return (const uint64_t *)data - ring->lines < 2 * HLY_SHM_WORDS &&
           (const uint64_t *)data >= ring->lines;
}

/* Consumer: does it keep so much of what was taken that the producer may want it? One message more
 * fits beside less than that. */
static inline int hly_shm_ring_holds(const hly_shm_ring_t *ring)
{
    return ring->position - ring->edge > ring->mask / 8 ||
           ring->number - ring->taken > HLY_SHM_HELD;
}

/* Consumer: frees all that was taken. 1 if the producer sleeps for room and has to be woken. */
static inline int hly_shm_ring_release(hly_shm_ring_t *ring)
{
    ring->edge = ring->position;
    ring->taken = ring->number;
    atomic_store_explicit(&ring->shared->head, ring->position, memory_order_release);
    atomic_store_explicit(&ring->shared->taken, ring->number, memory_order_release);
    return hly_shm_ring_sleeps(&ring->shared->starved);
}

#endif
