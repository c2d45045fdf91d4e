/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sip.c - SipHash-2-4 (Aumasson, Bernstein: "SipHash: a fast short-input PRF", INDOCRYPT 2012).
 */
#include <string.h>

#include "keys.h"

static uint64_t rotate(uint64_t x, int bits)
{
    return x << bits | x >> (64 - bits);
}

static inline void round_once(uint64_t v[4])
{
    v[0] += v[1];
    v[2] += v[3];
    v[1] = rotate(v[1], 13) ^ v[0];
    v[3] = rotate(v[3], 16) ^ v[2];
    v[0] = rotate(v[0], 32);
    v[2] += v[1];
    v[0] += v[3];
    v[1] = rotate(v[1], 17) ^ v[2];
    v[3] = rotate(v[3], 21) ^ v[0];
    v[2] = rotate(v[2], 32);
}

static inline void word_take(uint64_t v[4], uint64_t word)
{
    v[3] ^= word;
    round_once(v);
    round_once(v);
    v[0] ^= word;
}

static inline uint64_t finish(uint64_t v[4])
{
    for (int i = 0; i < 4; i++)
        round_once(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

static inline void begin(uint64_t v[4], const uint8_t key[16])
{
    uint64_t k[2];
    memcpy(k, key, sizeof(k));
    v[0] = k[0] ^ UINT64_C(0x736f6d6570736575);
    v[1] = k[1] ^ UINT64_C(0x646f72616e646f6d);
    v[2] = k[0] ^ UINT64_C(0x6c7967656e657261);
    v[3] = k[1] ^ UINT64_C(0x7465646279746573);
}

/* The last word is the length in bytes, in its top byte. */
static inline void words_take(uint64_t v[4], const uint64_t words[], int n)
{
    for (int i = 0; i < n; i++)
        word_take(v, words[i]);
    word_take(v, (uint64_t)n * 8 << 56);
}

uint64_t hly_sip(const uint8_t key[16], const uint64_t words[], int n)
{
    uint64_t v[4];
    begin(v, key);
    words_take(v, words, n);
    v[2] ^= 0xff;
    return finish(v);
}

void hly_sip_long(const uint8_t key[16], const uint64_t words[], int n, uint64_t out[2])
{
    uint64_t v[4];
    begin(v, key);
    v[1] ^= 0xee;
    words_take(v, words, n);
    v[2] ^= 0xee;
    out[0] = finish(v);
    v[1] ^= 0xdd;
    out[1] = finish(v);
}

uint64_t hly_sip_pieces(const uint8_t key[16], const struct hly_piece *pieces, int n)
{
    uint64_t v[4], word, all = 0;
    uint8_t rest[8];
    size_t held = 0;
    begin(v, key);
    for (int i = 0; i < n; i++) {
        const uint8_t *at = pieces[i].data, *end = at + pieces[i].bytes;
        all += pieces[i].bytes;
        while (at < end && (held > 0 || end - at < 8)) { /* to where a word begins, or the end */
            rest[held++] = *at++;
            if (held < 8)
                continue;
            memcpy(&word, rest, 8);
            word_take(v, word);
            held = 0;
        }
        for (; end - at >= 8; at += 8) {
            memcpy(&word, at, 8);
            word_take(v, word);
        }
        while (at < end)
            rest[held++] = *at++;
    }
    memset(rest + held, 0, sizeof(rest) - held);
    memcpy(&word, rest, 8);
    word_take(v, word | all << 56);
    v[2] ^= 0xff;
    return finish(v);
}
