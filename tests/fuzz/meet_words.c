/* SPDX-License-Identifier: Apache-2.0 */
/* Words on the connections of transports between nodes (transports/common): of strangers, of peers
 * that call, of one that was called, in any order. The first byte says what the transport does:
 * takes a link, cannot, or leaves it. */
#include "common/keys.h"
#include "fuzz.h"
#include "transports/common/guest.c" /* NOLINT(bugprone-suspicious-include) */

enum { LINKS = 3 };

static hly_meet_peer_t *make(halay_transport_t *t)
{
    (void)t;
    return calloc(1, sizeof(hly_meet_peer_t));
}

static size_t tell(halay_transport_t *t, hly_meet_peer_t *peer, uint8_t *tells)
{
    (void)t, (void)peer;
    memset(tells, 7, 16);
    return 16;
}

static void meet(halay_transport_t *t, hly_meet_peer_t *peer, const uint8_t *tells, size_t bytes)
{
    uint8_t copy[HLY_MEET_TELLS];
    (void)t, (void)peer;
    FUZZ_WANT(bytes > 0 && bytes <= sizeof(copy));
    memcpy(copy, tells, bytes);
}

static int takes(halay_transport_t *t, hly_meet_peer_t *peer, const hly_meet_link_t *link,
                 int called)
{
    (void)t;
    FUZZ_WANT(link->peer == peer && link->fd == FUZZ_FD && (called || link->since_ns));
    return 0;
}

static int takes_not(halay_transport_t *t, hly_meet_peer_t *peer, const hly_meet_link_t *link,
                     int called)
{
    (void)t, (void)peer, (void)link, (void)called;
    return -ENOMEM;
}

#define OPS .name = "fuzz", .magic = 0x7a7a7566, .make = make, .tell = tell, .meet = meet
static const hly_meet_ops_t ops[3] = {{OPS}, {OPS, .take = takes}, {OPS, .take = takes_not}};

/* Nobody knows the secret here; to compute proofs would take most of the time. */
void __wrap_hly_mac(const uint8_t key[32], const struct hly_piece *pieces, int n, uint8_t mac[32]);
void __wrap_hly_mac(const uint8_t key[32], const struct hly_piece *pieces, int n, uint8_t mac[32])
{
    memcpy(mac, key, 32);
    mac[0] ^= pieces[n - 1].bytes ? *(const uint8_t *)pieces[n - 1].data : 1;
}

int __wrap_hly_mac_equal(const uint8_t a[32], const uint8_t b[32]);
/* All but a mac that ends with 255 are right. */
int __wrap_hly_mac_equal(const uint8_t a[32], const uint8_t b[32])
{
    (void)a;
    return b[31] != 255;
}

static void end(hly_meet_t *m)
{
    while (m->links)
        hly_meet_link_free(m, m->links);
    FUZZ_WANT(!m->nguests && !m->nparked);
    for (hly_meet_peer_t *peer; (peer = m->peers) != NULL; free(peer))
        m->peers = peer->next;
    free(m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct fuzz f = {data, bytes};
    hly_meet_t *m = calloc(1, sizeof(*m));
    hly_meet_link_t *link;
    FUZZ_WANT(m);
    m->ops = &ops[fuzz_byte(&f) % 3];
    m->slow_fd = m->epoll_fd = FUZZ_FD;
    m->self.lo = 1;
    fuzz_net_feed(&f);
    hly_meet_peer_t *called = hly_meet_peer_hold(m, (halay_peer_id_t){.lo = 2});
    FUZZ_WANT(called && !hly_meet_link_add(m, FUZZ_FD, LINK_CALLING, called, &link));
    called->calls = called->called = m->unsettled = 1;
    link_look(m, link);
    for (int i = 0; i < LINKS; i++)
        FUZZ_WANT(!hly_meet_link_add(m, FUZZ_FD, LINK_GUEST, NULL, &link));
    for (int turn = 0; turn < 16 && f.left; turn++) {
        const uint8_t which = fuzz_byte(&f) % (LINKS + 1);
        link = m->links;
        for (uint8_t i = 0; link && i < which; i++)
            link = link->next;
        if (link)
            link_look(m, link);
    }
    end(m);
    return 0;
}
