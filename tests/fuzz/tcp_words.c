/* SPDX-License-Identifier: Apache-2.0 */
/* Hello and answer of the transport over TCP: of strangers, and of one that was called. */
#include "fuzz.h"
#include "transports/tcp/tcp.h"

enum { LINKS = 3 };

static void end(halay_transport_t *t)
{
    while (t->links)
        hly_tcp_link_free(t, t->links);
    while (t->peers)
        hly_tcp_peer_free(t, t->peers);
    FUZZ_WANT(!t->nguests && !t->nparked && !t->nopen);
    free(t->open);
    free(t->parts);
    free(t);
}

static halay_transport_t *begin(void)
{
    halay_transport_t *t = calloc(1, sizeof(*t));
    FUZZ_WANT(t && (t->parts = calloc(4, sizeof(*t->parts))));
    for (int i = 0; i < 4; i++) {
        t->parts[i].next = t->free_part;
        t->free_part = &t->parts[i];
    }
    t->nfree = 4;
    t->sent_end = &t->sent;
    t->landed_end = &t->landed;
    t->slow_fd = t->epoll_fd = FUZZ_FD;
    t->self.lo = 1;
    t->deadline_ns = 1;
    return t;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct fuzz f = {data, bytes};
    halay_transport_t *t = begin();
    hly_tcp_link_t *link;
    hly_tcp_peer_t *called = NULL;
    fuzz_net_feed(&f);
    FUZZ_WANT(!hly_tcp_peer_hold(t, (halay_peer_id_t){.lo = 2}, &called));
    called->calls = t->unsettled = 1;
    FUZZ_WANT(!hly_tcp_link_add(t, FUZZ_FD, LINK_CALLING, called, &link));
    hly_tcp_link_look(t, link);
    for (int i = 0; i < LINKS; i++)
        FUZZ_WANT(!hly_tcp_link_add(t, FUZZ_FD, LINK_GUEST, NULL, &link));
    for (int turn = 0; turn < 16 && f.left; turn++) {
        const uint8_t which = fuzz_byte(&f) % (LINKS + 1);
        link = t->links;
        for (uint8_t i = 0; link && i < which; i++)
            link = link->next;
        if (link && link->state != LINK_OPEN)
            hly_tcp_link_look(t, link);
        hly_tcp_ends_look(t);
    }
    end(t);
    return 0;
}
