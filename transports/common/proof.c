/* SPDX-License-Identifier: Apache-2.0 */
/* proof.c - see proof.h */
#define _GNU_SOURCE
#include "proof.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>

#include "../../common/keys.h"

int hly_meet_nonce(uint8_t nonce[HLY_MEET_NONCE])
{
    ssize_t n = getrandom(nonce, HLY_MEET_NONCE, GRND_NONBLOCK);
    return n == HLY_MEET_NONCE ? 0 : n < 0 ? -errno : -EAGAIN;
}

int hly_meet_greet(int fd, uint64_t magic, hly_meet_greeting_t *greeting)
{
    int rc = hly_meet_nonce(greeting->nonce);
    greeting->magic = magic;
    if (rc)
        return rc;
    ssize_t n = send(fd, greeting, sizeof(*greeting), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0)
        return -errno;
    return n == (ssize_t)sizeof(*greeting) ? 0 : -EMSGSIZE;
}

int hly_meet_take(int fd, uint64_t magic, void *to, size_t whole, size_t *read)
{
    while (*read < whole) {
        ssize_t n = recv(fd, (uint8_t *)to + *read, whole - *read, MSG_DONTWAIT);
        if (n == 0)
            return -ENODATA;
        if (n < 0 && errno != EINTR)
            return errno == EAGAIN ? 0 : -errno;
        *read += n > 0 ? (size_t)n : 0;
        if (memcmp(to, &magic, *read < sizeof(magic) ? *read : sizeof(magic)) != 0)
            return -EPROTO;
    }
    return 1;
}

void hly_meet_keys_make(const uint8_t secret[16], const hly_meet_greeting_t *greeting,
                        const uint8_t nonce[HLY_MEET_NONCE], halay_peer_id_t caller,
                        halay_peer_id_t called, int called_here, hly_meet_keys_t *keys)
{
    uint8_t key[32] = {0};
    struct hly_piece pieces[5] = {{"halay caller", 12},
                                  {greeting, sizeof(*greeting)},
                                  {nonce, HLY_MEET_NONCE},
                                  {&caller, sizeof(caller)},
                                  {&called, sizeof(called)}};
    memcpy(key, secret, 16);
    hly_mac(key, pieces, 5, called_here ? keys->in : keys->out);
    pieces[0].data = "halay called";
    hly_mac(key, pieces, 5, called_here ? keys->out : keys->in);
}

void hly_meet_prove(const uint8_t key[32], const void *message, size_t bytes, const void *tells,
                    size_t ntells, uint8_t mac[32])
{
    const struct hly_piece pieces[3] = {{"word", 4}, {message, bytes}, {tells, ntells}};
    hly_mac(key, pieces, 3, mac);
}

int hly_meet_proved(const uint8_t key[32], const void *message, size_t bytes, const void *tells,
                    size_t ntells, const uint8_t mac[32])
{
    uint8_t right[32];
    hly_meet_prove(key, message, bytes, tells, ntells, right);
    return hly_mac_equal(right, mac);
}
