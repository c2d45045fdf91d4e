/* SPDX-License-Identifier: Apache-2.0 */
/*
 * proof.h - who calls and who is called prove the job's secret to each other, and never say it.
 *
 *   called -> caller   greeting: a nonce
 *   caller -> called   hello: a nonce, both ids, what else is to be told; proved
 *   called -> caller   answer; proved
 *
 * The secret, both nonces and both ids make a key for each direction, which proves all that is
 * sent that way. So what was recorded elsewhere, or the other way, proves nothing here.
 */
#ifndef HALAY_TRANSPORTS_COMMON_PROOF_H
#define HALAY_TRANSPORTS_COMMON_PROOF_H

#include <stddef.h>
#include <stdint.h>

#include "halay/transport.h"

enum { HLY_MEET_NONCE = 16 };

/* Said first on a connection, by who is called; little endian, as all that Halay runs on. */
typedef struct hly_meet_greeting {
    uint64_t magic; /* the transport's own */
    uint8_t nonce[HLY_MEET_NONCE];
} hly_meet_greeting_t;

/* The keys of one connection, at one of its ends. */
typedef struct hly_meet_keys {
    uint8_t out[32], in[32];
} hly_meet_keys_t;

int hly_meet_nonce(uint8_t nonce[HLY_MEET_NONCE]); /* 0 or a negative errno */
/* Makes it and says it on a connection that is new, so that there is room. 0 or a negative errno.
 */
int hly_meet_greet(int fd, uint64_t magic, hly_meet_greeting_t *greeting);
/* 1: all of it, `whole` bytes that begin with the magic number; 0: not yet; a negative errno,
 * -ENODATA at the end. */
int hly_meet_take(int fd, uint64_t magic, void *to, size_t whole, size_t *read);
/* nonce, caller, called: of the hello. */
void hly_meet_keys_make(const uint8_t secret[16], const hly_meet_greeting_t *greeting,
                        const uint8_t nonce[HLY_MEET_NONCE], halay_peer_id_t caller,
                        halay_peer_id_t called, int called_here, hly_meet_keys_t *keys);
void hly_meet_prove(const uint8_t key[32], const void *message, size_t bytes, const void *tells,
                    size_t ntells, uint8_t mac[32]);
int hly_meet_proved(const uint8_t key[32], const void *message, size_t bytes, const void *tells,
                    size_t ntells, const uint8_t mac[32]);

#endif
