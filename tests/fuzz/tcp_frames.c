/* SPDX-License-Identifier: Apache-2.0 */
/* Frames of a peer, on a connection of the transport over TCP, with landing buffers posted. */
#include "fuzz.h"
#include "transports/tcp/tcp.h"

enum { LANDINGS = 4, ROOM = 48, EVENTS = 3 };

static uint8_t *buffer; /* kept: to make it anew would take most of the time */

static void setup(halay_transport_t *t, hly_tcp_link_t *link, hly_tcp_peer_t *peer,
                  uint8_t *landing[LANDINGS])
{
    t->sent_end = &t->sent;
    t->landed_end = &t->landed;
    t->landings = calloc(LANDINGS, sizeof(*t->landings));
    link->buffer = buffer;
    FUZZ_WANT(t->landings && buffer);
    for (int i = 0; i < LANDINGS; i++) {
        landing[i] = malloc(ROOM);
        FUZZ_WANT(landing[i] &&
                  !hly_tcp_landing_post(t, (uint64_t)i + 1, landing[i], ROOM, (uint64_t)i));
    }
    link->fd = FUZZ_FD;
    link->peer = peer;
}

/* Reads all of them, as the core would. */
static uint8_t look(const halay_event_t *event)
{
    const uint8_t *at = event->data;
    uint8_t sum = 0;
    FUZZ_WANT(event->kind == HALAY_EVENT_MESSAGE && event->bytes <= HLY_TCP_MESSAGE);
    for (size_t i = 0; i < event->bytes; i++)
        sum ^= at[i];
    return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static volatile uint8_t sink;
    struct fuzz f = {data, bytes};
    halay_transport_t *t = calloc(1, sizeof(*t));
    hly_tcp_link_t link = {0};
    hly_tcp_peer_t peer = {.nlinks = 1};
    uint8_t *landing[LANDINGS];
    if (!buffer)
        buffer = malloc(HLY_TCP_IN);
    FUZZ_WANT(t);
    setup(t, &link, &peer, landing);
    fuzz_net_feed(&f);
    for (int i = 0; i < 4096 && !link.ended; i++) {
        halay_event_t events[EVENTS];
        int n = hly_tcp_collect(t, &link, events, EVENTS);
        FUZZ_WANT(n >= 0 && n <= EVENTS && link.begin <= link.end && link.end <= HLY_TCP_IN);
        while (n-- > 0)
            sink ^= look(&events[n]);
    }
    hly_tcp_link_sever(t, &link);
    for (int i = 0; i < LANDINGS; i++)
        free(landing[i]);
    free(t->landings);
    free(t);
    return 0;
}
