/* SPDX-License-Identifier: Apache-2.0 */
/* tcp_fake.c - see tcp_fake.h */
#define _GNU_SOURCE
#include "tcp_fake.h"

#include <stddef.h>
#include <string.h>

void fake_meet(fake_t *fake, rank_t *rank, int seal)
{
    const hly_tcp_tell_t tell = (hly_tcp_tell_t)seal;
    uint8_t greeting[GREETING], hello[HELLO_MOST], tells[sizeof(tell)];
    halay_event_t event;
    hly_meet_keys_t keys;
    hly_meet_message_t answer;
    *fake = (fake_t){.fd = stranger_greeted(rank, greeting), .seal = seal};
    give(fake->fd, hello,
         hello_keyed("between us", 2, 1, greeting, &tell, sizeof(tell), hello, &keys));
    CHECK(rank_wait(rank, 20 * MS, &event) == 0, "kind %d", event.kind);
    take(fake->fd, &answer, sizeof(answer));
    take(fake->fd, tells, sizeof(tells));
    CHECK(hly_meet_proved(keys.in, &answer, offsetof(hly_meet_message_t, mac), tells, sizeof(tells),
                          answer.mac),
          "the answer proves nothing");
    hly_tcp_seal_make(keys.out, &fake->link.out_seal);
}

size_t fake_frame(fake_t *fake, int kind, uint64_t tag, const void *data, size_t bytes,
                  uint8_t *frame)
{
    uint64_t digest =
        fake->seal == SEAL_PAYLOAD ? hly_tcp_digest(&fake->link.out_seal, NULL, 0, data, bytes) : 0;
    hly_tcp_frame_t head = hly_tcp_frame(&fake->link.out_seal, kind, bytes, tag, digest);
    fake->link.out_seal.count++;
    memcpy(frame, &head, sizeof(head));
    memset(frame + sizeof(head), 0, (bytes + 7) & ~(size_t)7);
    memcpy(frame + sizeof(head), data, bytes);
    return sizeof(head) + ((bytes + 7) & ~(size_t)7);
}

void fake_end(fake_t *fake)
{
    close(fake->fd);
}
