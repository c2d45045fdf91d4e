/* SPDX-License-Identifier: Apache-2.0 */
/*
 * keys.h - what proves and seals, for bootstraps and transports, linked into each of them.
 *
 *   mac.c  SHA-256 and HMAC: few bytes, many guesses: who knows a secret, and keys made of one
 *   sip.c  SipHash-2-4: many frames, one key each: names and seals
 */
#ifndef HALAY_KEYS_KEYS_H
#define HALAY_KEYS_KEYS_H

#include <stddef.h>
#include <stdint.h>

struct hly_sha {
    uint32_t state[8];
    uint64_t bytes;
    uint8_t data[64];
};

struct hly_piece {
    const void *data;
    size_t bytes;
};

void hly_sha_init(struct hly_sha *sha);
void hly_sha_add(struct hly_sha *sha, const void *data, size_t bytes);
void hly_sha_end(struct hly_sha *sha, uint8_t digest[32]);
void hly_mac(const uint8_t key[32], const struct hly_piece *pieces, int n, uint8_t mac[32]);
int hly_mac_equal(const uint8_t a[32], const uint8_t b[32]); /* in constant time */

/* Of n words; the result of 64 bits, and that of 128 bits of its authors' reference. */
uint64_t hly_sip(const uint8_t key[16], const uint64_t words[], int n);
void hly_sip_long(const uint8_t key[16], const uint64_t words[], int n, uint64_t out[2]);
/* Of bytes, as the reference has it. */
uint64_t hly_sip_pieces(const uint8_t key[16], const struct hly_piece *pieces, int n);

#endif
