/* SPDX-License-Identifier: Apache-2.0 */
/* A ring of which the other side writes what it likes: read as a consumer does, written as a
 * producer does, while it changes. */
#include "fuzz.h"
#include "transports/shm/ring.h"

enum { BYTES = HLY_SHM_RING_MIN };

static void corrupt(hly_shm_ring_t *ring, struct fuzz *f)
{
    hly_shm_shared_t *s = ring->shared;
    const uint8_t where = fuzz_byte(f);
    uint64_t word;
    fuzz_take(f, &word, sizeof(word));
    if (where < HLY_SHM_CELLS)
        s->cells[where].word = word;
    else if (where == 100)
        s->head = word;
    else if (where == 101)
        s->taken = word;
    else if (where == 102)
        s->armed = s->starved = (uint32_t)word;
    else /* the next message, whole or not: what is found by chance only */
        hly_shm_ring_cell(ring)->word =
            hly_shm_ring_word(ring->number + 1, where & 1 ? HLY_SHM_WHOLE : where, 0) |
            (word & (HLY_SHM_LENT | 0x3fff));
}

static void consume(hly_shm_ring_t *ring, uint8_t how)
{
    static volatile uint8_t sink;
    const void *at;
    size_t bytes;
    const uint64_t word = how & 1 ? hly_shm_ring_look(ring) : 0;
    int rc = 0;
    if (!word || !(rc = hly_shm_ring_take_usual(ring, word, HLY_SHM_BESIDE, &at, &bytes)))
        rc = hly_shm_ring_take(ring, &at, &bytes);
    for (size_t i = 0; rc > 0 && i < bytes; i++)
        sink ^= ((const uint8_t *)at)[i];
    if (how & 2)
        hly_shm_ring_release(ring);
}

static void produce(hly_shm_ring_t *ring, uint8_t how)
{
    static const uint8_t header[HLY_SHM_LINE] = {1, 2, 3}, payload[512];
    uint64_t need;
    int wake;
    const size_t bytes = how & 1 ? sizeof(payload) : how / 8u;
    if (!(how & 2) || !hly_shm_ring_send_usual(ring, header, payload, bytes, &wake))
        hly_shm_ring_send(ring, header, how & 4 ? 8 : HLY_SHM_LINE, payload, bytes, 0, &need,
                          &wake);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct fuzz f = {data, bytes};
    static hly_shm_shared_t *shared;
    static uint8_t *room; /* apart: what goes beyond either is seen */
    if (!shared)
        shared = aligned_alloc(4096, HLY_SHM_HEAD);
    if (!room)
        room = malloc(BYTES);
    FUZZ_WANT(shared && room);
    memset(shared, 0, HLY_SHM_HEAD);
    memset(room, 5, BYTES);
    hly_shm_ring_t ring = {.shared = shared, .data = room, .mask = BYTES - 1};
    ring.most = hly_shm_ring_message(ring.mask) - HLY_SHM_LINE;
    const int producer = fuzz_byte(&f) & 1;
    while (f.left) {
        const uint8_t what = fuzz_byte(&f);
        if (what >= 0xc0)
            corrupt(&ring, &f);
        else if (producer)
            produce(&ring, what);
        else
            consume(&ring, what);
    }
    return 0;
}
