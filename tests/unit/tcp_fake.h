/* SPDX-License-Identifier: Apache-2.0 */
/* tcp_fake.h - a peer by hand: it knows the secret, is met as {7, 2}, and says what a test wants.
 */
#ifndef HALAY_TESTS_TCP_FAKE_H
#define HALAY_TESTS_TCP_FAKE_H

#include "../../transports/tcp/tcp.h"
#include "net_rank.h"

typedef struct fake {
    int fd, seal;
    hly_tcp_link_t link; /* no more than its seals */
} fake_t;

/* Says hello to a rank {7, 1}, and has been answered. */
void fake_meet(fake_t *fake, rank_t *rank, int seal);
/* A frame of this kind and its bytes, with their padding, the next on this connection. Returns how
 * many bytes it is. */
size_t fake_frame(fake_t *fake, int kind, uint64_t tag, const void *data, size_t bytes,
                  uint8_t *frame);
void fake_end(fake_t *fake);

#endif
