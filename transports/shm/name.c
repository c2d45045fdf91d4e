/* SPDX-License-Identifier: Apache-2.0 */
/*
 * name.c - the abstract socket address of a process. Everybody on the node can read these names
 * (/proc/net/unix), so they are made by a keyed hash that does not give the key, the job's secret,
 * away: SipHash-2-4 (Aumasson, Bernstein: "SipHash: a fast short-input PRF", INDOCRYPT 2012), with
 * the 128-bit result of its authors' reference.
 */
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "shm.h"

static uint64_t rotate(uint64_t x, int bits)
{
    return x << bits | x >> (64 - bits);
}

static void rounds(uint64_t v[4], int n)
{
    for (int i = 0; i < n; i++) {
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
}

void hly_shm_siphash(const uint8_t key[16], const uint64_t words[], int n, uint64_t out[2])
{
    uint64_t k[2], v[4];
    memcpy(k, key, sizeof(k));
    v[0] = k[0] ^ UINT64_C(0x736f6d6570736575);
    v[1] = k[1] ^ UINT64_C(0x646f72616e646f6d) ^ 0xee;
    v[2] = k[0] ^ UINT64_C(0x6c7967656e657261);
    v[3] = k[1] ^ UINT64_C(0x7465646279746573);
    for (int i = 0; i <= n; i++) { /* the last word is the length in bytes, in its top byte */
        uint64_t m = i < n ? words[i] : (uint64_t)n * 8 << 56;
        v[3] ^= m;
        rounds(v, 2);
        v[0] ^= m;
    }
    v[2] ^= 0xee;
    rounds(v, 4);
    out[0] = v[0] ^ v[1] ^ v[2] ^ v[3];
    v[1] ^= 0xdd;
    rounds(v, 4);
    out[1] = v[0] ^ v[1] ^ v[2] ^ v[3];
}

socklen_t hly_shm_name(const halay_transport_t *t, halay_peer_id_t id, struct sockaddr_un *address)
{
    uint64_t words[4], hash[2];
    memcpy(words, t->job, sizeof(t->job));
    words[2] = id.hi;
    words[3] = id.lo;
    hly_shm_siphash(t->secret, words, 4, hash);
    memset(address, 0, sizeof(*address));
    address->sun_family = AF_UNIX;
    int length =
        snprintf(address->sun_path + 1, sizeof(address->sun_path) - 1, "halay-shm-%016llx%016llx",
                 (unsigned long long)hash[0], (unsigned long long)hash[1]);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
}
