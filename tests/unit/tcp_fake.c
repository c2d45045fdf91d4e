/* SPDX-License-Identifier: Apache-2.0 */
/* tcp_fake.c - see tcp_fake.h */
#define _GNU_SOURCE
#include "tcp_fake.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

void fake_meet(fake_t *fake, rank_t *rank, int seal)
{
    halay_event_t event;
    hly_tcp_word_t answer;
    *fake = (fake_t){.t = calloc(1, sizeof(*fake->t))};
    fake->t->self = (halay_peer_id_t){7, 2};
    fake->t->seal = seal;
    memcpy(fake->t->secret, "between us", 10);
    fake->fd = fake->link.fd = stranger_greeted(rank, (uint8_t *)&fake->link.greeting);
    CHECK(hly_tcp_word_say(fake->t, &fake->link, WORD_HELLO, (halay_peer_id_t){7, 1}) == 0, "say");
    CHECK(rank_wait(rank, 20 * MS, &event) == 0, "kind %d", event.kind);
    take(fake->fd, &answer, sizeof(answer));
    CHECK(hly_meet_proved(fake->link.keys.in, &answer, offsetof(hly_tcp_word_t, mac), NULL, 0,
                          answer.mac),
          "the answer proves nothing");
}

size_t fake_frame(fake_t *fake, int kind, uint64_t tag, const void *data, size_t bytes,
                  uint8_t *frame)
{
    uint64_t digest = fake->t->seal == SEAL_PAYLOAD
                          ? hly_tcp_digest(&fake->link.out_seal, NULL, 0, data, bytes)
                          : 0;
    hly_tcp_frame_t head = hly_tcp_frame(&fake->link, kind, bytes, tag, digest);
    fake->link.out_seal.count++;
    memcpy(frame, &head, sizeof(head));
    memset(frame + sizeof(head), 0, (bytes + 7) & ~(size_t)7);
    memcpy(frame + sizeof(head), data, bytes);
    return sizeof(head) + ((bytes + 7) & ~(size_t)7);
}

void fake_end(fake_t *fake)
{
    close(fake->fd);
    free(fake->t);
}
