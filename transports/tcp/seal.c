/* SPDX-License-Identifier: Apache-2.0 */
/*
 * seal.c - frames are sealed: what another process puts into a connection, takes out of it, repeats
 * or moves ends it, and is never taken for a message. docs/decisions/security.md#0076.
 */
#include <string.h>

#include "../../common/keys.h"
#include "tcp.h"

int hly_tcp_seal_read(const char *text, int *seal)
{
    *seal = SEAL_HEADERS;
    if (!text || !*text || !strcmp(text, "headers"))
        return 0;
    *seal = SEAL_PAYLOAD;
    return strcmp(text, "payload") ? -1 : 0;
}

void hly_tcp_seal_make(const uint8_t key[32], hly_tcp_seal_t *seal)
{
    uint8_t made[32];
    hly_meet_prove(key, "frames", 6, NULL, 0, made);
    memcpy(seal->key, made, sizeof(seal->key));
    memcpy(seal->payload_key, made + 16, sizeof(seal->payload_key));
    seal->count = 0;
}

static uint64_t seal_of(const hly_tcp_seal_t *seal, const hly_tcp_frame_t *frame)
{
    const uint64_t words[4] = {seal->count, frame->word, frame->tag, frame->digest};
    return hly_sip(seal->key, words, 4);
}

hly_tcp_frame_t hly_tcp_frame(const hly_tcp_seal_t *seal, int kind, uint64_t bytes, uint64_t tag,
                              uint64_t digest)
{
    assert(bytes <= HLY_TCP_BYTES_MAX);
    hly_tcp_frame_t frame = {.word =
                                 HLY_TCP_MARK << 56 | (uint64_t)kind << HLY_TCP_BYTES_BITS | bytes,
                             .tag = tag,
                             .digest = digest};
    frame.seal = seal_of(seal, &frame);
    return frame;
}

int hly_tcp_frame_right(const hly_tcp_seal_t *seal, const hly_tcp_frame_t *frame)
{
    return seal_of(seal, frame) == frame->seal;
}

uint64_t hly_tcp_digest(const hly_tcp_seal_t *seal, const void *header, size_t header_bytes,
                        const void *payload, size_t payload_bytes)
{
    const struct hly_piece pieces[2] = {{header, header_bytes}, {payload, payload_bytes}};
    return hly_sip_pieces(seal->payload_key, pieces, 2);
}
